"""`lanner certificate`, and two `lanner serve` that speak TLS with each other."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanner.cli import certificates
from lanner.client import Message, QueueManager, connect
from lanner.security.certificates import CertificateWithKey
from lanner.security.tls_certificates import make_tls_certificate
from lanner.transfer.settings import TransferSettings
from lanner.transfer.tls import load_identity
from tests.cli.conftest import Run, Served, free_address
from tests.transfer.tls_files import authority, issue


def test_a_certificate_is_made_that_names_the_computer_and_the_queue_manager(run: Run, orders: str, data: Path) -> None:
    made = run("certificate", "make", "--days", 10, "--host-name", "alpha.example", "--json").json
    certificate, key = Path(made["certificate"]), Path(made["key"])
    assert (certificate, key) == (data / "tls-certificate.pem", data / "tls-key.pem")
    assert key.stat().st_mode & 0o777 == 0o600
    with QueueManager(data) as manager:
        assert made["queue_managers"] == [str(manager.identifier)]
    assert {"alpha", "alpha.example"} <= set(made["names"])
    assert load_identity(TransferSettings(tls_certificate=certificate, tls_key=key)) is not None
    shown = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-noout", "-fingerprint", "-sha256", "-text"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert made["sha256"] in shown
    assert "CA:FALSE" in shown
    days = dt.datetime.fromisoformat(made["not_valid_after"]) - dt.datetime.now(dt.UTC)
    assert days.days in (9, 10)
    assert run("certificate", "show", certificate, "--json").json | {"key": str(key)} == made
    assert made["sha256"] in run("certificate", "show", certificate).out


def test_files_that_are_there_are_not_replaced(run: Run, orders: str, data: Path) -> None:
    text = run("certificate", "make").out
    assert 'tls_key = "' in text
    assert "[peers.ALPHA]" in text
    before = (data / "tls-key.pem").read_bytes()
    assert "--force replaces it" in run("certificate", "make", code=1).err
    assert (data / "tls-key.pem").read_bytes() == before
    run("certificate", "make", "--force")
    assert (data / "tls-key.pem").read_bytes() != before
    elsewhere = data.parent / "elsewhere"
    run("backup", elsewhere)
    assert (elsewhere / "tls-key.pem").read_bytes() == (data / "tls-key.pem").read_bytes()
    assert "holds no certificate in PEM" in run("certificate", "show", data / "data.mdb", code=1).err
    assert "No such file" in run("certificate", "show", data / "missing", code=1).err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_files_that_root_makes_belong_to_the_owner_of_the_directory(run: Run, orders: str, data: Path) -> None:
    os.chown(data, 12345, 12345)
    run("certificate", "make")
    for name in ("tls-key.pem", "tls-certificate.pem"):
        assert (data / name).stat().st_uid == 12345


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(
    run: Run, orders: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the directory makes the links when root has already looked at it."""
    others = tmp_path / "passwd"
    others.write_text("root")
    others.chmod(0o600)
    names = ("tls-certificate.pem", "tls-key.pem")

    def make_links(*arguments: Any) -> CertificateWithKey:  # noqa: ANN401 (those of the function)
        for name in names:
            (data / name).symlink_to(others)
        return make_tls_certificate(*arguments)

    monkeypatch.setattr(certificates, "make_tls_certificate", make_links)
    run("certificate", "make", "--force")
    assert (others.read_text(), others.stat().st_mode & 0o777) == ("root", 0o600)
    modes = [(data / name).lstat().st_mode for name in names]
    assert modes == [stat.S_IFREG | 0o644, stat.S_IFREG | 0o600]


class Site:
    """Two data directories, their certificates and settings."""

    def __init__(self, run: Run, data: Path, tmp_path: Path) -> None:
        self.run = run
        self.data = {"alpha": data, "beta": tmp_path / "beta"}
        self.address = {name: free_address() for name in self.data}
        self.path = tmp_path
        self.made: dict[str, Any] = {}
        for name, where in self.data.items():
            run("queue", "create", "q", "--name", name, "--data", where)
            self.made[name] = run("certificate", "make", "--data", where, "--json").json

    def settings(self, name: str, *, pins: bool = True, extra: str = "") -> Path:
        other = next(one for one in self.data if one != name)
        made = self.made[name]
        pin = f'certificate = "{self.made[other]["certificate"]}"' if pins else ""
        config = self.path / f"{name}.toml"
        config.write_text(
            f"""
            name = "{name}"
            data = "{self.data[name]}"
            [transfer]
            try_connect_interval = 0.1
            tls_certificate = "{made["certificate"]}"
            tls_key = "{made["key"]}"
            {extra}
            [flight]
            enabled = false
            [peers.{other}]
            addresses = ["{self.address[other]}"]
            {pin}
            """
        )
        return config

    def start(self, serve: Callable[..., Served], name: str, **options: Any) -> tuple[Served, dict[str, Any]]:  # noqa: ANN401
        served = serve(
            "--data",
            self.data[name],
            "--config",
            self.settings(name, **options),
            "--bind",
            self.address[name],
            "--json",
        )
        return served, served.ready()

    def findings(self, *, code: int = 0) -> dict[str, dict[str, str]]:
        found = self.run("doctor", "beta", "--config", self.path / "alpha.toml", "--json", code=code).json
        return {one["check"]: one for one in found}


@pytest.fixture
def site(run: Run, data: Path, tmp_path: Path) -> Site:
    return Site(run, data, tmp_path)


def wait_for(look: Callable[[], Any], condition: Callable[[Any], object]) -> Any:  # noqa: ANN401
    deadline = time.monotonic() + 60
    while not condition(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
    return seen


FAR = r"DIRECT=OS:beta\private$\q"


def test_two_services_speak_tls_and_say_so(site: Site, serve: Callable[..., Served], run: Run) -> None:
    alpha, told = site.start(serve, "alpha")
    assert told["listeners"]["transfer over TLS"] == f"{site.address['alpha']}:1802"
    site.start(serve, "beta")
    run("send", FAR, "hello")
    run("send", FAR, "kept", "--recoverable")
    wait_for(lambda: run("outgoing", "show", "beta", "--json").json, lambda one: one["messages"] == 0)
    for name, other in (("alpha", "BETA"), ("beta", "ALPHA")):
        status = run("status", "--data", site.data[name], "--json").json
        (session,) = status["sessions"]
        assert (session["certificate"], session["certified_peer"]) == (f"CN={other}", other.lower())
        assert f"CN={other}" in run("status", "--data", site.data[name]).out
    findings = site.findings()
    assert findings["tls"]["text"].startswith("TLSv1.3, certificate CN=BETA, valid until")
    assert ":1802 takes connections" in findings["tcp"]["text"]
    assert f"queue manager {site.made['beta']['queue_managers'][0]}" in findings["handshake"]["text"]
    texts = [one["text"] for one in run("doctor", "--json").json if one["check"] == "tls"]
    assert len(texts) == 2
    assert "of this queue manager is valid until" in texts[0]
    assert alpha.end(signal.SIGTERM)[0] == 0
    # While none runs, the settings speak for it, under the identifier of the certificate.
    assert site.findings()["handshake"]["verdict"] == "OK"


def test_doctor_and_outgoing_say_in_words_what_is_wrong(
    site: Site, serve: Callable[..., Served], run: Run, tmp_path: Path
) -> None:
    site.start(serve, "alpha")
    run("send", FAR, "hello")

    def problem(text: str) -> None:
        wait_for(lambda: run("outgoing", "show", "beta", "--json").json["problem"] or "", lambda told: text in told)
        assert text in run("outgoing", "list").out

    # No process listens there.
    problem("does not run, or has no TLS")
    findings = site.findings(code=1)
    assert "1802 refused the connection" in findings["tcp"]["text"]
    assert "see that it has TLS" in findings["tcp"]["advice"]
    # Something without TLS.
    with socket.create_server((site.address["beta"], 1802)) as plain:
        plain.settimeout(30)
        connection, _ = plain.accept()
        with connection:
            connection.sendall(b"220 welcome\r\n" * 10)
            problem("the peer does not speak TLS")
    # A certificate that is not the pinned one.
    other = issue(tmp_path, "BETA")
    pinned = site.made["beta"]
    site.made["beta"] = {"certificate": other.certificate_file, "key": other.key_file}
    beta, _ = site.start(serve, "beta")
    problem("it is self-signed and not in [peers]")
    findings = site.findings(code=1)
    assert (
        "the certificate of the peer is not accepted: it is self-signed and not in [peers]" in findings["tls"]["text"]
    )
    assert beta.end(signal.SIGTERM)[0] == 0
    # The right one, but the peer does not know ours.
    site.made["beta"] = pinned
    mine = site.made["alpha"]
    site.made["alpha"] = {"certificate": other.certificate_file, "key": other.key_file}
    site.start(serve, "beta")
    site.made["alpha"] = mine
    problem("the peer does not know our certificate")
    site.settings("alpha")
    findings = site.findings(code=1)
    assert findings["tls"]["verdict"] == "OK"
    assert "the peer does not know our certificate" in findings["handshake"]["text"]


def test_an_expired_certificate_of_a_peer_is_reported(
    site: Site, serve: Callable[..., Served], run: Run, tmp_path: Path
) -> None:
    """It expires while its queue manager runs."""
    issuer = authority(tmp_path, "Authority")
    expired = issue(tmp_path, "beta", by=issuer, days=-1, age=10)
    # A service that starts with it is refused; so the listener is not ours.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(expired.certificate_file, expired.key_file)
    site.made["beta"] = {"certificate": expired.certificate_file}
    site.start(serve, "alpha")
    run("send", FAR, "hello")
    with socket.create_server((site.address["beta"], 1802)) as server:
        server.settimeout(30)
        connection, _ = server.accept()
        with connection, pytest.raises(OSError, match=r".*"):
            context.wrap_socket(connection, server_side=True)
        wait_for(
            lambda: run("outgoing", "show", "beta", "--json").json["problem"] or "",
            lambda told: "it has expired" in told,
        )
    assert any("expired on" in one["text"] for one in run("doctor", "--json", code=1).json if one["check"] == "tls")


def test_sighup_takes_over_new_certificates(site: Site, serve: Callable[..., Served], run: Run) -> None:
    alpha, _ = site.start(serve, "alpha")
    beta, _ = site.start(serve, "beta")
    run("send", FAR, "one")
    wait_for(lambda: run("outgoing", "show", "beta", "--json").json, lambda one: one["messages"] == 0)
    old = run("status", "--json").json["sessions"]
    # Beta makes a new one, in the same files, which alpha pins.
    site.made["beta"] = run("certificate", "make", "--force", "--data", site.data["beta"], "--json").json
    beta.process.send_signal(signal.SIGHUP)
    beta.line_with("the configuration has not changed")
    alpha.process.send_signal(signal.SIGHUP)
    alpha.line_with("the certificate CN=BETA is accepted no more")
    run("send", FAR, "two")
    wait_for(lambda: run("outgoing", "show", "beta", "--json").json, lambda one: one["messages"] == 0)
    (session,) = [one for one in run("status", "--json").json["sessions"] if one["initiator"]]
    assert session["certificate"] == "CN=BETA"
    assert old
    # What cannot be used changes nothing.
    site.data["alpha"].joinpath("tls-key.pem").chmod(0o644)
    alpha.process.send_signal(signal.SIGHUP)
    assert "has mode 0644" in alpha.line_with("the configuration stays as it was")
    run("send", FAR, "three")
    wait_for(lambda: run("outgoing", "show", "beta", "--json").json, lambda one: one["messages"] == 0)


def test_a_killed_service_gets_every_message_once(site: Site, serve: Callable[..., Served], run: Run) -> None:
    run("queue", "create", "t", "--transactional", "--data", site.data["beta"])
    site.start(serve, "alpha")
    expected = []
    with connect(data=site.data["alpha"]) as alpha:
        target = alpha.open(r"DIRECT=OS:beta\private$\t")
        for life in range(3):
            beta, _ = site.start(serve, "beta")
            for number in range(50):
                body = f"{life} {number}"
                with alpha.transaction() as transaction:
                    target.send(Message(body=body), transaction=transaction)
                expected.append(body)
            wait_for(lambda: run("queue", "show", "t", "--data", site.data["beta"], "--json").json["messages"], bool)
            beta.process.kill()
            beta.process.wait()
        site.start(serve, "beta")
        wait_for(lambda: run("outgoing", "show", "beta", "--json").json["messages"], lambda count: count == 0)
    with connect(data=site.data["beta"]) as there:
        assert [message.body for message in there.open("t")] == expected


def test_serve_says_which_file_cannot_be_used(site: Site, serve: Callable[..., Served]) -> None:
    def refused() -> str:
        served = serve("--data", site.data["alpha"], "--config", site.settings("alpha"), "--bind", free_address())
        _, err = served.process.communicate(timeout=60)
        assert served.process.returncode == 1
        return err

    key = Path(site.made["alpha"]["key"])
    key.chmod(0o644)
    assert f"transfer: tls_key: {key} has mode 0644" in refused()
    key.unlink()
    assert f"transfer: tls_key: {key}: No such file" in refused()
    now = dt.datetime.now(dt.UTC)
    old = make_tls_certificate(["ALPHA"], uuid.uuid4(), now - dt.timedelta(days=9), dt.timedelta(days=1))
    Path(site.made["alpha"]["certificate"]).write_bytes(old.certificate)
    assert "expired on" in refused()
    shutil.rmtree(site.data["beta"])
