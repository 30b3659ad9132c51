"""Callers of the Flight service, and the wires that they use."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import AccessDenied, ServiceNotAvailable
from lanner.security.identity import Identity
from lanner.spark.flight import auth as flight_auth
from lanner.spark.flight.auth import Tokens
from lanner.spark.flight.client import FlightFailed, FlightQueues
from lanner.spark.flight.errors import NotAuthenticated
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from tests.overlay import overlay

Connect = Callable[..., FlightQueues]
HERE = "127.0.0.1"


def test_a_user_is_who_the_account_file_says(connect: Connect) -> None:
    assert connect("alice", "wonder").info()["user"] == "alice"
    assert connect("ALICE", "wonder").info()["user"] == "alice"


def test_who_does_not_log_on_may_do_nothing(address: str, connect: Connect) -> None:
    nobody = connect(None)
    with fl.connect(address) as client:
        for call in (
            nobody.info,
            lambda: nobody.queues("*"),
            lambda: nobody.bounds("q"),
            lambda: nobody.table("q"),
            lambda: list(client.list_actions()),
        ):
            with pytest.raises((NotAuthenticated, fl.FlightUnauthenticatedError), match="log on"):
                call()


def test_the_anonymous_may_be_let_in_but_publish_nothing(qm: QueueManager) -> None:
    settings = FlightSettings(port=0, allow_anonymous=True)
    rows = pa.record_batch({"body": [b"x"]})
    qm.create_queue("q", access={"Anonymous": "full"})
    with FlightListener(runtime_of(qm), settings) as listener, FlightQueues(listener.address) as nobody:
        assert nobody.info()["user"] == "ANONYMOUS LOGON"
        assert nobody.table("q").num_rows == 0
        for call in (
            lambda: nobody.stage([rows], rows.schema, writer="w", queue="q"),
            lambda: nobody.publish("w", 0, []),
            lambda: nobody.drop([]),
            lambda: nobody.last_published("w"),
        ):
            with pytest.raises(AccessDenied, match="log on to publish"):
                call()


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonder"), ("alice", "")])
def test_a_wrong_user_or_password_is_refused_and_not_told_which(connect: Connect, user: str, password: str) -> None:
    with pytest.raises(NotAuthenticated, match="user or password is not right"):
        connect(user, password)


def test_a_refused_logon_is_in_the_audit_log(connect: Connect, qm: QueueManager) -> None:
    with pytest.raises(NotAuthenticated):
        connect("alice", "wrong")
    (line,) = (runtime_of(qm).path / "audit.log").read_text().splitlines()
    record = json.loads(line)
    assert (record["event"], record["who"], record["from"]) == ("log on", "alice", "Flight handshake")
    assert "wrong" not in line


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("Bearer made-up", "the token has expired"),
        ("Digest x", "Basic or Bearer expected"),
        ("Basic !!!", "cannot be read"),
        ("Basic YWxpY2U=", "cannot be read"),
        ("Basic YWxpY2U6d3Jvbmc=", "user or password is not right"),
    ],
)
def test_a_bad_header_is_refused_with_every_call(address: str, header: str, complaint: str) -> None:
    options = fl.FlightCallOptions(headers=[(b"authorization", header.encode())])
    with fl.connect(address) as client, pytest.raises(fl.FlightUnauthenticatedError, match=complaint):
        list(client.do_action(fl.Action("info", b""), options))


def test_a_password_may_come_with_any_call(address: str) -> None:
    options = fl.FlightCallOptions(headers=[(b"authorization", b"Basic YWxpY2U6d29uZGVy")])
    with fl.connect(address) as client:
        [result] = client.do_action(fl.Action("info", b""), options)
    assert b'"alice"' in result.body.to_pybytes()


def test_a_token_ends_with_the_password_and_with_the_user(qm: QueueManager, connect: Connect) -> None:
    alice, bob = connect("alice", "wonder"), connect("bob", "builder")
    runtime_of(qm).users.set_password("alice", "other")
    runtime_of(qm).users.remove("bob")
    for caller in (alice, bob):
        with pytest.raises(NotAuthenticated, match="log on again"):
            caller.info()
    assert connect("alice", "other").info()["user"] == "alice"


def test_a_password_that_was_right_is_not_worked_out_again_for_a_while(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes tens of milliseconds, and each process of a Spark job logs on.

    But it must be the same, and still be right.
    """
    users = runtime_of(qm).users
    users.add("alice", "wonder")
    asked: list[tuple[str, str]] = []

    def counted(name: str, password: str) -> Identity | None:
        asked.append((name, password))
        return users.verify(name, password)

    tokens = Tokens(overlay(users, verify=counted))
    for _ in range(3):
        assert tokens.log_on("alice", "wonder", HERE)[0].name == "alice"
    assert asked == [("alice", "wonder")]
    for password in ("wrong", "", "wonder "):
        with pytest.raises(NotAuthenticated):
            tokens.log_on("alice", password, HERE)
    assert len(asked) == 4
    users.set_password("alice", "other")
    with pytest.raises(NotAuthenticated):
        tokens.log_on("alice", "wonder", HERE)
    tokens.log_on("alice", "other", HERE)
    assert len(asked) == 6
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    tokens.log_on("alice", "other", HERE)
    assert len(asked) == 7
    users.remove("alice")
    with pytest.raises(NotAuthenticated):
        tokens.log_on("alice", "other", HERE)


def test_tokens_run_out_and_are_limited(qm: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime_of(qm).users.add("alice", "wonder")
    monkeypatch.setattr(flight_auth, "MAX_TOKENS", 2)
    tokens = Tokens(runtime_of(qm).users)
    given = [tokens.log_on("alice", "wonder", HERE)[1] for _ in range(2)]
    tokens.identity(given[0], HERE)
    given.append(tokens.log_on("alice", "wonder", HERE)[1])
    with pytest.raises(NotAuthenticated):
        tokens.identity(given[1], HERE)
    assert tokens.identity(given[0], HERE).name == "alice"
    monkeypatch.setattr(flight_auth, "TOKEN_LIFE", 0.0)
    with pytest.raises(NotAuthenticated):
        tokens.identity(given[2], HERE)


def test_a_user_logs_nobody_else_off(qm: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its limit it loses its own tokens; in total, the user with the most loses one."""
    users = runtime_of(qm).users
    for name in ("alice", "bob", "carol"):
        users.add(name, "wonder")
    monkeypatch.setattr(flight_auth, "MAX_TOKENS", 5)
    monkeypatch.setattr(flight_auth, "MAX_TOKENS_OF_USER", 3)
    tokens = Tokens(users)
    hers = tokens.log_on("alice", "wonder", HERE)[1]
    his = [tokens.log_on("bob", "wonder", HERE)[1] for _ in range(6)]
    for one in his[:3]:
        with pytest.raises(NotAuthenticated):
            tokens.identity(one, HERE)
    others = [tokens.log_on("carol", "wonder", HERE)[1] for _ in range(2)]
    with pytest.raises(NotAuthenticated):
        tokens.identity(his[3], HERE)
    for one in (hers, *his[4:], *others):
        tokens.identity(one, HERE)


def _wrong_handshakes(tokens: Tokens) -> None:
    """Guess alice's password until the passwords of her handshakes are no longer examined."""
    for _ in range(100):
        try:
            tokens.shake_hands("alice", "guess")
        except NotAuthenticated:
            continue
        return
    pytest.fail("every guess was looked at")


def test_handshakes_of_strangers_log_nobody_off(qm: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tokens cost no password, so they push out only one another."""
    runtime_of(qm).users.add("alice", "wonder")
    monkeypatch.setattr(flight_auth, "MAX_TOKENS", 4)
    tokens = Tokens(runtime_of(qm).users)
    hers = tokens.log_on("alice", "wonder", HERE)[1]
    _wrong_handshakes(tokens)
    for _ in range(flight_auth.MAX_UNVERIFIED + 10):
        tokens.shake_hands("alice", "guess")
    assert tokens.identity(hers, HERE).name == "alice"
    assert len(tokens._unverified) == flight_auth.MAX_UNVERIFIED
    later = tokens.shake_hands("alice", "wonder")
    for _ in range(2):
        assert tokens.identity(later, HERE).name == "alice"
    assert later not in tokens._unverified


def test_a_handshake_without_a_call_is_forgotten_with_its_password(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_of(qm).users.add("alice", "wonder")
    tokens = Tokens(runtime_of(qm).users)
    _wrong_handshakes(tokens)
    late = tokens.shake_hands("alice", "wonder")
    monkeypatch.setattr(flight_auth, "UNVERIFIED_LIFE", 0.0)
    with pytest.raises(NotAuthenticated, match="log on again"):
        tokens.identity(late, HERE)
    assert not tokens._unverified


def test_nobody_there_is_reported(address: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with FlightQueues(f"grpc://127.0.0.1:{port}") as queues, pytest.raises(ServiceNotAvailable, match=f":{port}"):
        queues.info()


# Listening
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    path = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, private = path / "certificate.pem", path / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, private


def test_tls(qm: QueueManager, certificate: tuple[Path, Path]) -> None:
    runtime_of(qm).users.add("alice", "wonder")
    listener = FlightListener(runtime_of(qm), FlightSettings("127.0.0.1", 0, *certificate))
    listener.open()
    try:
        assert listener.address.startswith("grpc+tls://127.0.0.1:")
        with FlightQueues(listener.address, user="alice", password="wonder", tls_roots=certificate[0]) as queues:
            assert queues.info()["user"] == "alice"
        plain = listener.address.replace("grpc+tls", "grpc")
        with FlightQueues(plain) as queues, pytest.raises((FlightFailed, ServiceNotAvailable)):
            queues.info()
    finally:
        listener.close()


def test_other_addresses_than_loopback_need_tls(certificate: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match=r"in the clear: give tls_certificate and tls_key"):
        FlightSettings("0.0.0.0")
    FlightSettings("0.0.0.0", 0, *certificate)
    with pytest.raises(ValueError, match="belong together"):
        FlightSettings(tls_certificate=certificate[0])


def test_a_port_that_is_taken_is_reported_as_the_system_tells_it(qm: QueueManager, address: str) -> None:
    second = FlightListener(runtime_of(qm), FlightSettings(port=int(address.rpartition(":")[2])))
    with pytest.raises(OSError, match="in use") as caught:
        asyncio.run(second.start())
    assert caught.value.strerror


def test_a_listener_starts_and_stops_with_the_daemon(qm: QueueManager) -> None:
    async def life() -> str:
        listener = FlightListener(runtime_of(qm), FlightSettings(port=0))
        await listener.start()
        address = listener.address
        await listener.stop()
        await listener.stop()
        return address

    assert asyncio.run(life()).startswith("grpc://127.0.0.1:")
