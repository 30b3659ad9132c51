"""The HTTP process: its life cycle, its limits and the headers for browsers.

It starts at the first connection, ends when idle, and restarts when it fails.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from lanner.daemon.settings import HttpTable, SettingsError
from lanner.http.sessions import COOKIE
from lanner.security.certificates import generate_certificate
from tests.contract.service import USERS
from tests.http.service import HttpService


def _children(service: HttpService) -> list[int]:
    found = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
    return [int(one) for one in found if b"lanner.http" in Path(f"/proc/{one}/cmdline").read_bytes()]


def _until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_begins_with_a_connection_ends_when_idle_and_begins_again(tmp_path: Path) -> None:
    service = HttpService(tmp_path / "alpha", "[http]\nidle_timeout = 0.5\n")
    try:
        assert _children(service) == []
        for _ in range(2):
            assert httpx.get(f"{service.url}/api/v1/health/ready", trust_env=False, timeout=30).json() == {
                "status": "ok"
            }
            _until(lambda: _children(service) == [])
    finally:
        service.close()


def test_it_is_started_again_after_it_was_killed(service: HttpService) -> None:
    with service.client() as client:
        client.get("/api/v1/health/live")
    (first,) = _children(service)
    os.kill(first, signal.SIGKILL)
    _until(lambda: first not in _children(service))
    with service.client("alice") as client:
        assert client.get("/api/v1/whoami").json()["user"] == "alice"
    assert _children(service) != [first]
    assert "the HTTP process has failed" in service.log


def test_it_ends_with_the_service(tmp_path: Path) -> None:
    service = HttpService(tmp_path / "alpha")
    with service.client() as client:
        client.get("/api/v1/health/live")
    (child,) = _children(service)
    service.kill()
    _until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])
    service.start()
    service.close()


def test_an_address_that_others_reach_needs_a_certificate() -> None:
    with pytest.raises(SettingsError, match=r"http\.tls_certificate"):
        HttpTable(bind="192.0.2.1").address("127.0.0.1")
    assert HttpTable().address("192.0.2.1") == "127.0.0.1"
    assert HttpTable().address("127.0.0.9") == "127.0.0.9"


def test_a_certificate_switches_https_on(tmp_path: Path) -> None:
    made = generate_certificate("console.example", dt.datetime.now(dt.UTC))
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(ssl.DER_cert_to_PEM_cert(made.certificate))
    key.write_bytes(
        serialization.load_der_private_key(made.private_key, None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    settings = f'[http]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    context = ssl.create_default_context(cafile=str(certificate))
    # The certificate has no address.
    context.check_hostname = False
    service = HttpService(tmp_path / "alpha", settings)
    try:
        url = f"https://{service.address}:15801"
        with httpx.Client(base_url=url, verify=context, auth=("alice", USERS["alice"]), trust_env=False) as client:
            answer = client.get("/api/v1/whoami", timeout=60)
            assert answer.json()["user"] == "alice"
            assert answer.headers["strict-transport-security"].startswith("max-age=")
            form = {"user": "alice", "password": USERS["alice"], "next": "/"}
            cookie = client.post("/login", data=form, timeout=60).headers["set-cookie"]
        assert "secure" in cookie.lower()
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{service.address}:15801/api/v1/health/live", trust_env=False, timeout=60)
    finally:
        service.close()
    key.unlink()
    with pytest.raises(SettingsError, match=r"http\.tls_key .*key\.pem cannot be used: .*No such file"):
        HttpTable(tls_certificate=certificate, tls_key=key).address("127.0.0.1")


def test_connections_of_one_peer_are_limited(tmp_path: Path) -> None:
    service = HttpService(tmp_path / "alpha", "[http]\nmax_connections_per_peer = 4\n")
    held = []
    try:
        with service.client() as client:
            client.get("/api/v1/health/live")
        for _ in range(8):
            made = socket.create_connection((service.address, 15801))
            made.settimeout(2)
            held.append(made)

        def is_closed(one: socket.socket) -> bool:
            try:
                return one.recv(1) == b""
            except TimeoutError:
                return False

        assert sum(is_closed(one) for one in held) >= 4
    finally:
        for one in held:
            one.close()
        service.close()


def test_a_request_that_is_too_large_is_refused(alice: httpx.Client) -> None:
    answer = alice.post("/api/v1/queues/x/messages", content=b"x" * ((8 << 20) + 1))
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_browsers_are_told_what_a_page_may_do(alice: httpx.Client) -> None:
    headers = alice.get("/api/v1/whoami").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


def test_a_page_of_another_site_is_refused(alice: httpx.Client) -> None:
    assert alice.get("/api/v1/whoami", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_browser_needs_the_csrf_token_to_change_something(service: HttpService) -> None:
    with service.client() as client:
        secret = {"user": "alice", "password": USERS["alice"]}
        begun = client.post("/api/v1/session", json=secret)
        assert begun.status_code == 201, begun.text
        cookie = begun.headers["set-cookie"].lower()
        assert COOKIE in client.cookies
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        queue = {"name": "private$\\by_cookie"}
        assert client.get("/api/v1/whoami").json()["user"] == "alice"
        assert client.post("/api/v1/queues", json=queue).status_code == 403
        assert client.post("/api/v1/queues", json=queue, headers={"X-CSRF-Token": "wrong"}).status_code == 403
        token = begun.json()["csrf_token"]
        assert client.post("/api/v1/queues", json=queue, headers={"X-CSRF-Token": token}).status_code == 201
        assert client.delete("/api/v1/session", headers={"X-CSRF-Token": token}).status_code == 204
        assert client.get("/api/v1/whoami").status_code == 401
