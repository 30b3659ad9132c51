"""The interface `lanner`: who may ask, for what, and what bad requests get."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

import lanner
from lanner import errors
from lanner.client import remote
from lanner.model.directory_objects import OutgoingQueue
from tests.cli.conftest import free_address
from tests.client.served import ServedManager

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
def qm(alpha: ServedManager) -> Iterator[remote.QueueManager]:
    with lanner.connect(data=alpha.data) as manager:
        yield manager


@pytest.mark.parametrize(
    ("request_", "arguments", "complaint"),
    [
        ("nonsense", {}, "unknown request 'nonsense': one of status"),
        ("peer", {}, "needs the text `name`"),
        ("peer", {"name": 1}, "needs the text `name`"),
        ("peer", {"name": "beta", "addresses": [1]}, "needs the list of texts `addresses`"),
        ("move", {"queue": "DIRECT=OS:.\\private$\\x", "target": "DIRECT=OS:.\\private$\\x;y", "lookup_ids": ["-1"]}, "lookup id"),
        ("move", {"queue": "DIRECT=OS:.\\private$\\x", "target": "DIRECT=OS:.\\private$\\x;y", "lookup_ids": ["9" * 5000]}, "lookup id"),
        ("register certificate", {"sid": "x", "certificate": "x"}, "x"),
        ("provision", {}, "needs the object `enterprise`"),
        ("provision", {"enterprise": {"sites": 1}}, "^sites: Input should be a valid list"),
        ("provision", {"enterprise": {"links": [{"sites": ["x", "y"]}]}}, "^routing link x - y: there is no site x"),
        ("create public queue", {"path": "alpha\\x"}, "needs the object `attributes`"),
        ("create public queue", {"path": "alpha\\x", "attributes": {"privacy_level": 9}}, "privacy_level of a queue: 9"),
        ("create public queue", {"path": "alpha\\x", "attributes": {"type": 5}}, "type of a queue: 5"),
        ("send", {"queue": "DIRECT=OS:.\\private$\\x", "packet": "no base64!"}, "the packet of a message: "),
        ("send", {"queue": "DIRECT=OS:.\\private$\\x", "packet": "AAAA"}, "the packet of a message: "),
        ("remove from directory", {"kind": "site"}, "needs the list of texts `names`"),
        ("remove from directory", {"kind": "moon", "names": ["x"]}, "a site, a computer or a list by its name"),
        ("remove from directory", {"kind": "computer", "names": []}, "a site, a computer or a list by its name"),
    ],
)  # fmt: skip
def test_bad_requests_are_told(
    qm: remote.QueueManager, request_: str, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(errors.InvalidParameter, match=complaint):
        qm.ask(request_, **arguments)


@pytest.mark.parametrize(
    ("request_", "arguments", "error"),
    [
        ("create public queue", {"path": r"alpha\private$\x", "attributes": {}}, errors.IllegalQueuePathname),
        ("create public queue", {"path": r"beta\x", "attributes": {}}, errors.IllegalQueuePathname),
        ("create public queue", {"path": r"alpha\x", "attributes": {"security": ""}}, errors.PropertyNotallowed),
        ("create public queue", {"path": r"alpha\x", "attributes": {"label": 1}}, errors.IllegalPropertyValue),
        ("change public queue", {"queue": r"DIRECT=OS:.\x", "attributes": {}}, errors.QueueNotFound),
        ("delete public queue", {"queue": r"DIRECT=OS:.\private$\kept"}, errors.UnsupportedFormatnameOperation),
    ],
)
def test_what_cannot_be_done_with_public_queues_is_told(
    qm: remote.QueueManager, request_: str, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with contextlib.suppress(errors.QueueExists):
        qm.create_queue("kept")
    with pytest.raises(error):
        qm.ask(request_, **arguments)


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", "[" * 100_000])
def test_what_is_no_request_is_told(qm: remote.QueueManager, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", lambda _: text)
    with pytest.raises(errors.InvalidParameter):
        qm.ask("status")


def test_only_administrators_are_told(alpha: ServedManager) -> None:
    for user, password in (("alice", "secret"), (None, None)):
        with lanner.connect(alpha.bind, user, password, port=alpha.port) as somebody:
            assert somebody.name == "ALPHA"
            with pytest.raises(errors.AccessDenied):
                somebody.status()
            with pytest.raises(errors.AccessDenied):
                somebody.enterprise.apply({"sites": ["theirs"]})
            with pytest.raises(errors.AccessDenied):
                somebody.create_queue(r".\theirs")


def test_a_fault_of_ours_is_told_and_logged(
    alpha: ServedManager, qm: remote.QueueManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alpha.engine, "outgoing_queues", lambda: 1 / 0)
    with pytest.raises(errors.GenericError, match="ZeroDivisionError: division by zero; this is a fault of lanner"):
        qm.status()
    assert "failed" in caplog.text


def test_a_peer_is_known_by_the_queues_for_it(alpha: ServedManager, qm: remote.QueueManager) -> None:
    for name in (FURTHER, FAR):
        qm.open(name).send(lanner.Message(body=b"x", recoverable=True))
    outgoing = {queue.destination_format_name: queue for queue in alpha.engine.outgoing_queues()}
    assert isinstance(outgoing[FURTHER], OutgoingQueue)
    outgoing[FURTHER].next_hops = ["IP=192.0.2.7"]

    def names(name: str, *addresses: str) -> list[str]:
        return [queue["name"] for queue in qm.ask("peer", name=name, addresses=addresses)["queues"]]

    assert names("BETA") == [FURTHER, FAR]
    assert names("gamma", "192.0.2.7") == [FURTHER]
    assert names("gamma") == []
    assert qm.ask("peer", name="gamma", addresses=[])["identifier"] is None
    assert qm.ask("peer", name="alpha", addresses=[])["identifier"] == str(qm.identifier)
    assert {one["name"]: one["next_hops"] for one in qm.ask("queues")["outgoing"]} == {
        FURTHER: ["IP=192.0.2.7"],
        FAR: [],
    }


def test_all_of_a_move_or_nothing(qm: remote.QueueManager) -> None:
    queue = qm.create_queue("moved")
    queue.send_many(["a", "b"])
    first, second = (message.lookup_id for message in queue)
    with pytest.raises(errors.MessageNotFound):
        queue.move_many([first, second, second + 1000], "later")
    assert [message.body for message in queue] == ["a", "b"]
    with pytest.raises(errors.StatusError):
        queue.move_many([first], qm.create_queue("other"))


def test_the_certificate_of_a_user_is_registered(alpha: ServedManager, qm: remote.QueueManager) -> None:
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
    qm.ask("register certificate", sid=str(users.sid("alice")), certificate=pem)
    with pytest.raises(errors.IllegalUser, match="nobody here has the SID"):
        qm.ask("register certificate", sid="S-1-5-21-1-2-3-4", certificate=pem)
