"""Documents of the interface `lanner`: permitted callers and requests, and bad requests."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

import lanner
from lanner import errors
from lanner.client import QueueManager
from lanner.model.directory_objects import OutgoingQueue
from tests.cli.conftest import free_address
from tests.client.served import ServedManager
from tests.overlay import overlay

FAR = r"DIRECT=OS:beta\private$\far"
FURTHER = r"DIRECT=OS:beta\private$\further"


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedManager]:
    data = tmp_path_factory.mktemp("facts") / "data"
    served = ServedManager(data, free_address())
    served.runtime.users.add("alice", "secret")
    yield served
    served.close()
    shutil.rmtree(data)


@pytest.fixture
def qm(alpha: ServedManager) -> Iterator[QueueManager]:
    with lanner.connect(data=alpha.data) as manager:
        yield manager


@pytest.mark.parametrize(
    ("request_", "arguments", "complaint"),
    [
        ("nonsense", {}, "unknown request 'nonsense': one of who am i"),
        ("peer", {}, "needs the text `name`"),
        ("peer", {"name": 1}, "needs the text `name`"),
        ("peer", {"name": "beta", "addresses": [1]}, "needs the list of texts `addresses`"),
        ("pause", {}, "needs the text `queue`"),
        ("resume", {"queue": 1}, "needs the text `queue`"),
        ("resend", {"queue": ["x"]}, "needs the text `queue`"),
        ("register certificate", {"sid": "x", "certificate": "x"}, "x"),
        ("provision", {}, "needs the object `enterprise`"),
        ("provision", {"enterprise": {"sites": 1}}, "^sites: Input should be a valid list"),
        ("provision", {"enterprise": {"links": [{"sites": ["x", "y"]}]}}, "^routing link x - y: there is no site x"),
        ("remove from directory", {"kind": "site"}, "needs the list of texts `names`"),
        ("remove from directory", {"kind": "moon", "names": ["x"]}, "a site, a computer or a list by its name"),
        ("remove from directory", {"kind": "computer", "names": []}, "a site, a computer or a list by its name"),
    ],
)  # fmt: skip
def test_bad_requests_are_reported(qm: QueueManager, request_: str, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=complaint):
        qm._backend.ask(request_, **arguments)


@pytest.mark.parametrize("request_", ["send", "move", "public queue", "create public queue", "delete public queue"])
def test_what_sessions_do_is_no_request(qm: QueueManager, request_: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=f"unknown request '{request_}'"):
        qm._backend.ask(request_)


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", "[" * 100_000])
def test_what_is_no_request_is_reported(qm: QueueManager, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", lambda _: text)
    with pytest.raises(errors.InvalidParameter):
        qm._backend.ask("status")


def test_only_administrators_are_told(alpha: ServedManager) -> None:
    with lanner.connect(alpha.bind, "alice", "secret", port=alpha.port) as somebody:
        assert somebody.name == "ALPHA"
        with pytest.raises(errors.AccessDenied):
            somebody.status()
        with pytest.raises(errors.AccessDenied):
            somebody.enterprise.apply({"sites": ["theirs"]})
        with pytest.raises(errors.AccessDenied):
            somebody.create_queue(r".\theirs")


def test_who_does_not_log_on_is_told_to(alpha: ServedManager) -> None:
    with pytest.raises(errors.AccessDenied, match="serves only callers that log on: give a user and a password"):
        lanner.connect(alpha.bind, port=alpha.port)


def test_a_fault_of_ours_is_reported_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing = ServedManager(
        tmp_path / "data",
        free_address(),
        wrap_engine=lambda engine: overlay(engine, outgoing_queues=lambda: 1 / 0),
    )
    with (
        contextlib.closing(failing),
        lanner.connect(data=failing.data) as qm,
        pytest.raises(
            errors.GenericError, match="ZeroDivisionError: division by zero; this is a fault of Lanner, and its log"
        ),
    ):
        qm.status()
    assert "failed" in caplog.text


def test_a_peer_is_known_by_the_queues_for_it(alpha: ServedManager, qm: QueueManager) -> None:
    for name in (FURTHER, FAR):
        qm.open(name).send(lanner.Message(body=b"x", recoverable=True))
    outgoing = {queue.destination_format_name: queue for queue in alpha.engine.outgoing_queues()}
    assert isinstance(outgoing[FURTHER], OutgoingQueue)
    outgoing[FURTHER].next_hops = ["IP=192.0.2.7"]

    def names(name: str, *addresses: str) -> list[str]:
        return [queue["name"] for queue in qm.peer(name, addresses)["queues"]]

    assert names("BETA") == [FURTHER, FAR]
    assert names("gamma", "192.0.2.7") == [FURTHER]
    assert names("gamma") == []
    assert qm.peer("gamma")["identifier"] is None
    assert qm.peer("alpha")["identifier"] == str(qm.identifier)
    assert {one["name"]: one["next_hops"] for one in qm.outgoing()} == {
        FURTHER: ["IP=192.0.2.7"],
        FAR: [],
    }


def test_the_certificate_of_a_user_is_registered(alpha: ServedManager, qm: QueueManager) -> None:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM).decode()
    users = alpha.runtime.users
    qm.register_certificate(pem, str(users.sid("alice")))
    with pytest.raises(errors.IllegalUser, match="no account here has the SID"):
        qm.register_certificate(pem, "S-1-5-21-1-2-3-4")
