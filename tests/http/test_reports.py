"""Information of the service other than queues.

It covers history, the oldest message, certificates and reports of the pipeline.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

import lanner
from lanner.daemon.reports import PART
from lanner.errors import AccessDenied, InvalidParameter, UnsupportedOperation
from lanner.security.certificates import generate_certificate
from tests.http.service import HttpService

API = "/api/v1"
TOP_SECRET = "not for everybody"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reports")
    outside = made.parent / "outside.html"
    outside.write_text(TOP_SECRET)
    (made / "report.html").write_text("<p>é" + "x" * PART + "</p>", encoding="utf-8")
    (made / "link.html").symlink_to(outside)
    (made / ".hidden.html").write_text(TOP_SECRET)
    (made / "notes.txt").write_text(TOP_SECRET)
    return made


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[HttpService]:
    made = HttpService(tmp_path_factory.mktemp("http") / "alpha", f"[http]\nreports = '{folder}'\n")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def manager(service: HttpService) -> Iterator[lanner.QueueManager]:
    with lanner.connect(data=service.data) as made:
        yield made


def test_only_pages_of_the_directory_are_reports(manager: lanner.QueueManager, folder: Path) -> None:
    assert [one["name"] for one in manager.reports()] == ["report.html"]
    # It is longer than one answer.
    assert manager.report("report.html") == (folder / "report.html").read_bytes()
    for name in ("link.html", ".hidden.html", "notes.txt", "../outside.html", "none.html", "/etc/passwd", ""):
        with pytest.raises(InvalidParameter, match="there is no report"):
            manager.report(name)


def test_reports_are_for_administrators(service: HttpService, manager: lanner.QueueManager, tmp_path: Path) -> None:
    with lanner.connect(service.address, port=service.port, user="bob", password="word") as bob:
        for ask in (bob.reports, lambda: bob.report("report.html"), bob.oldest_message, bob.history, bob.certificates):
            with pytest.raises(AccessDenied):
                ask()
    with lanner.QueueManager(tmp_path / "embedded") as embedded:
        for ask in (embedded.reports, embedded.history):
            with pytest.raises(UnsupportedOperation):
                ask()


def test_the_oldest_message_is_that_which_came_first(manager: lanner.QueueManager) -> None:
    assert manager.oldest_message() is None
    first, second = manager.create_queue("first"), manager.create_queue("second")
    second.send(lanner.Message(body="x", priority=1, recoverable=True))
    first.send(lanner.Message(body="x", priority=7, recoverable=True))
    before = manager.oldest_message()
    assert before is not None
    second.send(lanner.Message(body="x", priority=7, recoverable=True))
    oldest = manager.oldest_message()
    assert oldest == before
    assert oldest["queue"].lower().endswith(r"\second") or oldest["arrived"] == before["arrived"]
    for queue in (first, second):
        queue.purge()
    assert manager.oldest_message() is None


def test_a_history_is_given_by_http(alice: httpx.Client, bob: httpx.Client, manager: lanner.QueueManager) -> None:
    manager.create_queue("past", access={"Administrators": ["full"]}).send("x")
    name = r"private$\past"
    queries: list[dict[str, str | int]] = [{}, {"queue": name}, {"queue": name, "seconds": 86400}]
    for query in queries:
        told = alice.get(f"{API}/history", params=query)
        assert told.status_code == 200, told.text
        assert set(told.json()) == {"interval", "points"}
    assert alice.get(f"{API}/history", params={"seconds": 7}).status_code == 400
    assert alice.get(f"{API}/history", params={"queue": r"private$\none"}).status_code == 404
    assert bob.get(f"{API}/history").status_code == 403
    assert bob.get(f"{API}/history", params={"queue": name}).status_code == 403


def test_certificates_are_registered_and_removed_by_http(alice: httpx.Client, bob: httpx.Client) -> None:
    made = x509.load_der_x509_certificate(generate_certificate("bob", dt.datetime.now(dt.UTC)).certificate)
    sid = next(one["sid"] for one in alice.get(f"{API}/users").json() if one["name"] == "bob")
    body = {"certificate": made.public_bytes(Encoding.PEM).decode(), "sid": sid}
    assert bob.post(f"{API}/certificates", json=body).status_code == 403
    assert alice.post(f"{API}/certificates", json=body).status_code == 204
    (one,) = alice.get(f"{API}/certificates").json()
    assert (one["user"], one["subject"]) == ("bob", "CN=bob")
    assert alice.delete(f"{API}/certificates/{one['sha256'][:20]}").status_code == 204
    assert alice.get(f"{API}/certificates").json() == []
    assert alice.delete(f"{API}/certificates/{one['sha256']}").status_code == 400
