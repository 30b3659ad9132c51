"""What an administrator is told about outgoing queues and trails."""

from __future__ import annotations

import datetime as dt
import shutil
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lanner.client import Message, QueueManager
from lanner.client.administration import _STATUSES, Administration, AdministrationError
from lanner.model.directory_objects import ConnectionHistoryEntry, OutgoingQueue
from lanner.model.enums import ConnectionStatus, OutgoingState
from lanner.model.errors import AccessDenied, QueueNotFound
from lanner.model.live import OutgoingTransferInfo
from lanner.transfer.tracing import send_report
from lanner.wire.message import Message as Packet

FAR = r"DIRECT=OS:beta\private$\far"
FURTHER = r"DIRECT=OS:beta\private$\further"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[QueueManager]:
    with QueueManager(tmp_path / "data", "alpha") as manager:
        for name in (FURTHER, FAR):
            manager.open(name).send(Message(body=b"x", recoverable=True))
        yield manager
    shutil.rmtree(tmp_path)


@pytest.fixture
def administration(manager: QueueManager) -> Administration:
    return Administration(manager.runtime)


def outgoing(manager: QueueManager, name: str) -> OutgoingQueue:
    return next(queue for queue in manager.runtime.engine.outgoing_queues() if queue.destination_format_name == name)


def test_a_queue_is_found_by_its_name_or_a_part_that_only_it_has(administration: Administration) -> None:
    assert [one["name"] for one in administration.list_outgoing()] == [FAR, FURTHER]
    for name in (FURTHER, "further", "FURTHER", FURTHER.lower()):
        assert administration.show_outgoing(name)["name"] == FURTHER
    # All of a name is no part of another.
    assert administration.show_outgoing(FAR.upper())["name"] == FAR
    with pytest.raises(AdministrationError, match="2 outgoing queues have 'beta' in their names, give more of it"):
        administration.show_outgoing("beta")
    with pytest.raises(AdministrationError, match="no outgoing queue has 'gamma' in its name"):
        administration.show_outgoing("gamma")


def test_a_pause_outlives_a_restart_and_a_resume_ends_it(tmp_path: Path) -> None:
    with QueueManager(tmp_path / "data", "alpha") as manager:
        manager.open(FAR).send(Message(body=b"x", recoverable=True))
        assert Administration(manager.runtime).pause("far")["state"] == "OnHold"
    with QueueManager(tmp_path / "data") as manager:
        administration = Administration(manager.runtime)
        assert administration.show_outgoing("far")["state"] == "OnHold"
        assert administration.resume("far")["state"] == "Inactive"
        with pytest.raises(AdministrationError, match="is not paused, it is Inactive"):
            administration.resume("far")
    shutil.rmtree(tmp_path)


def test_a_locked_queue_is_neither_paused_nor_resumed(manager: QueueManager, administration: Administration) -> None:
    outgoing(manager, FAR).state = OutgoingState.LOCKED
    for change in (administration.pause, administration.resume):
        with pytest.raises(AccessDenied, match=r"security\.hardened"):
            change(FAR)
    assert outgoing(manager, FAR).state is OutgoingState.LOCKED


def test_nothing_is_sent_again_while_nothing_is_sent(administration: Administration) -> None:
    with pytest.raises(AdministrationError, match="`lanner serve` sends what waits"):
        administration.resend("further")


def test_every_status_of_a_connection_has_words() -> None:
    assert set(_STATUSES) == set(ConnectionStatus)


def test_the_history_and_the_sequence_are_told_in_words(manager: QueueManager, administration: Administration) -> None:
    queue = outgoing(manager, FAR)
    queue.next_hops = ["IP=192.0.2.7"]
    queue.connection_history = [
        ConnectionHistoryEntry(ConnectionStatus.SOCKET_CONNECT_FAILURE, 1_000_000_000, 0x8007_274D, ["IP=192.0.2.7"]),
        ConnectionHistoryEntry(ConnectionStatus.CONNECTION_REFUSED, 1_000_000_005, 0x8000_4005),
        ConnectionHistoryEntry(ConnectionStatus.ESTABLISHED, 1_000_000_010),
    ]
    sequence = 0x6000_0000_0000_0001
    queue.outgoing_transfer_info = OutgoingTransferInfo(
        queue,
        eod_first_non_ack=(sequence, 3, 2),
        eod_last_non_ack=(sequence, 9, 8),
        eod_no_ack_count=7,
        eod_resend_interval=30,
        eod_resend_time=1_000_000_020,
        eod_resend_count=2,
    )
    told = administration.show_outgoing(FAR)
    assert told["next_hops"] == ["IP=192.0.2.7"]
    assert told["connection_history"] == [
        {
            "time": "2001-09-09T01:46:40+00:00",
            "status": "socket_connect_failure",
            "text": "no TCP connection",
            "error": "0x8007274d",
            "error_text": "connection refused",
            "addresses": ["IP=192.0.2.7"],
        },
        {
            "time": "2001-09-09T01:46:45+00:00",
            "status": "connection_refused",
            "text": "the peer refused the session",
            "error": "0x80004005",
            "error_text": None,
            "addresses": [],
        },
        {
            "time": "2001-09-09T01:46:50+00:00",
            "status": "established",
            "text": "connected",
            "error": None,
            "error_text": None,
            "addresses": [],
        },
    ]
    assert told["sequence"] == {
        "first_non_ack": {"sequence": "0x6000000000000001", "number": 3, "previous": 2},
        "last_non_ack": {"sequence": "0x6000000000000001", "number": 9, "previous": 8},
        "no_ack_count": 7,
        "last_ack": None,
        "last_ack_time": None,
        "last_ack_count": 0,
        "next_seq": None,
        "no_read_count": 0,
        "resend_interval": 30,
        "resend_time": "2001-09-09T01:47:00+00:00",
        "resend_count": 2,
    }
    assert administration.show_outgoing(FURTHER)["sequence"] is None


def test_a_peer_is_known_by_the_queues_for_it(manager: QueueManager, administration: Administration) -> None:
    outgoing(manager, FURTHER).next_hops = ["IP=192.0.2.7"]

    def names(known: dict[str, Any]) -> list[str]:
        return [queue["name"] for queue in known["queues"]]

    assert names(administration.peer("BETA", [])) == [FURTHER, FAR]
    assert names(administration.peer("gamma", ["192.0.2.7"])) == [FURTHER]
    assert names(administration.peer("gamma", [])) == []
    assert administration.peer("gamma", [])["identifier"] is None
    assert administration.peer("alpha", [])["identifier"] == str(manager.runtime.engine.queue_manager.identifier)


def test_a_trail_is_in_order_and_other_messages_are_passed_over(
    manager: QueueManager, administration: Administration
) -> None:
    reports = manager.create_queue(r".\reports")
    queue = manager.create_queue("orders")
    guid = reports.attributes.identifier
    now = manager.runtime.engine.clock
    for body in ("one", "two"):
        queue.send(Message(body=body, tracing_queue=guid))
    reports.send("no report")
    first, second = queue
    assert (first.tracing_queue, first.copy().tracing_queue, first.use_tracing) == (guid, guid, True)
    engine = manager.runtime.engine
    try:
        with manager.runtime.lock:
            for seconds, message, next_hop in (
                (30, second, "192.0.2.7"),
                (20, first, None),
                (10, first, "192.0.2.8"),
            ):
                engine.clock = partial(float, seconds)
                send_report(engine, Packet(message.packet), next_hop=next_hop)
    finally:
        engine.clock = now
    told = administration.reports(r".\reports")
    assert [(one["message"], one["event"], one["next_hop"], one["time"]) for one in told] == [
        (second.id, "sent", "192.0.2.7", _at(30)),
        (first.id, "sent", "192.0.2.8", _at(10)),
        (first.id, "received", None, _at(20)),
    ]
    assert {one["by"] for one in told} == {str(engine.queue_manager.identifier)}
    assert len(reports) == 4
    with pytest.raises(QueueNotFound):
        administration.reports("none")
    assert r"DIRECT=OS:ALPHA\private$\none" not in [one["name"] for one in administration.list_outgoing()]


def _at(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).replace(year=2070).isoformat()


def test_a_tracing_queue_is_a_guid(manager: QueueManager) -> None:
    guid = uuid.uuid4()
    queue = manager.create_queue("q")
    queue.send(Message(tracing_queue=str(guid)))
    assert queue.receive(0).tracing_queue == guid
    queue.send(Message())
    assert queue.receive(0).tracing_queue is None
