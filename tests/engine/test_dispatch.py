"""DispatchCollection: messages for other computers are sent one at a time.

MS-MQDMPR 3.1.7.1.28, .29, .34 and 3.1.7.3.9; also the administrator's pause and resume of an
outgoing queue (3.1.4.14, 3.1.4.15).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState, QueueAccessType
from lanner.model.live import DispatchEntry, MessagePosition
from lanner.wire.message import Message
from tests.engine.harness import Harness, at_once, body_of

QUEUE_DATA = object()  # what MS-MQQB would attach


@dataclass
class Wire:
    """Remembers which entries were sent."""

    bodies: list[bytes] = field(default_factory=list)
    entries: list[DispatchEntry] = field(default_factory=list)

    def __init__(self, h: Harness) -> None:
        self.bodies, self.entries = [], []
        h.engine.dispatch.send_user_message = self._send

    def _send(self, entry: DispatchEntry) -> None:
        assert entry.send_in_progress
        self.bodies.append(body_of(entry.message_position))
        self.entries.append(entry)


def outgoing(h: Harness, computer: str = "BETA", base_priority: int = 0) -> OutgoingQueue:
    descriptor = h.open(rf"DIRECT=OS:{computer}\private$\q", QueueAccessType.SEND)
    h.engine.close_queue(descriptor)
    queue = descriptor_queue(h, computer)
    queue.base_priority = base_priority
    return queue


def descriptor_queue(h: Harness, computer: str) -> OutgoingQueue:
    queue = h.queue(rf"DIRECT=OS:{computer}\private$\q")
    assert isinstance(queue, OutgoingQueue)
    return queue


def waiting(h: Harness, queue: OutgoingQueue, body: bytes, priority: int = 3) -> MessagePosition:
    """A message in an outgoing queue, and its position."""
    h.send(queue.destination_format_name, body, priority=priority)
    descriptor = h.open(queue.destination_format_name, QueueAccessType.PEEK_ADMIN)
    cursor = h.engine.open_cursor(descriptor)
    assert cursor is not None
    position = at_once(h.engine.peek_message(descriptor, timeout=0, cursor=cursor))
    while body_of(position) != body:
        position = at_once(h.engine.peek_next_message(descriptor, cursor, timeout=0))
    h.engine.close_queue(descriptor)
    return position


def entries(h: Harness) -> list[DispatchEntry]:
    return h.engine.queue_manager.dispatch_collection


@pytest.mark.spec("DMPR-3.1.7.1.28-1")
def test_an_entry_adds_the_queues_priority_to_the_messages(h: Harness) -> None:
    """3.1.7.1.28: Priority is BasePriority plus Priority.

    SendInProgress is False until Dispatch Send Message.
    """
    position = waiting(h, outgoing(h, base_priority=100), b"x", priority=5)
    h.engine.add_message_to_dispatch_collection(position, QUEUE_DATA)
    (entry,) = entries(h)
    assert (entry.message_position, entry.protocol_data, entry.priority) == (position, QUEUE_DATA, 105)
    assert not entry.send_in_progress  # nothing is there to send it


@pytest.mark.spec("DMPR-3.1.7.1.28-1")
def test_what_is_added_is_sent_at_once_if_nothing_else_is(h: Harness) -> None:
    """3.1.7.1.28 raises Dispatch Send Message."""
    wire = Wire(h)
    h.engine.add_message_to_dispatch_collection(waiting(h, outgoing(h), b"x"), QUEUE_DATA)
    assert wire.bodies == [b"x"]
    assert [entry.send_in_progress for entry in entries(h)] == [True]


@pytest.mark.spec("DMPR-3.1.7.3.9-1")
def test_one_send_at_a_time_in_the_whole_queue_manager(h: Harness) -> None:
    """3.1.7.3.9: nothing starts while an entry has SendInProgress True.

    The queue and priority of that entry make no difference.
    """
    wire = Wire(h)
    beta, gamma = outgoing(h, "BETA"), outgoing(h, "GAMMA", base_priority=500)
    first = waiting(h, beta, b"first")
    h.engine.add_message_to_dispatch_collection(first, QUEUE_DATA)
    h.engine.add_message_to_dispatch_collection(waiting(h, gamma, b"urgent"), QUEUE_DATA)
    h.engine.add_message_to_dispatch_collection(waiting(h, beta, b"third"), QUEUE_DATA)
    assert wire.bodies == [b"first"]
    assert [entry.send_in_progress for entry in entries(h)] == [True, False, False]
    h.engine.remove_message_from_dispatch_collection(first)
    assert wire.bodies == [b"first", b"urgent"]


@pytest.mark.spec("DMPR-3.1.7.1.29-1")
def test_removing_an_entry_sends_the_next(h: Harness) -> None:
    """3.1.7.1.29: the entry of that position goes, then Dispatch Send Message."""
    wire = Wire(h)
    queue = outgoing(h)
    positions = [waiting(h, queue, body) for body in (b"1", b"2", b"3")]
    for position in positions:
        h.engine.add_message_to_dispatch_collection(position, QUEUE_DATA)
    for count, position in enumerate(positions, 1):
        assert wire.bodies == [b"1", b"2", b"3"][:count]
        h.engine.remove_message_from_dispatch_collection(position)
    assert entries(h) == []
    assert wire.bodies == [b"1", b"2", b"3"]


@pytest.mark.spec("DMPR-3.1.7.1.29-1")
def test_removing_what_is_not_there_is_harmless(h: Harness) -> None:
    """3.1.7.1.29: "if present"; the others stay, and the one being sent is not sent twice."""
    wire = Wire(h)
    queue = outgoing(h)
    here, absent = waiting(h, queue, b"here"), waiting(h, queue, b"absent")
    h.engine.remove_message_from_dispatch_collection(absent)
    h.engine.add_message_to_dispatch_collection(here, QUEUE_DATA)
    h.engine.remove_message_from_dispatch_collection(absent)
    assert [entry.message_position for entry in entries(h)] == [here]
    assert wire.bodies == [b"here"]
    # The same place in the same queue is the same position.
    h.engine.remove_message_from_dispatch_collection(MessagePosition(queue, here.lookup_id, here.record))
    assert entries(h) == []


def test_the_highest_priority_goes_first_and_equals_in_order(h: Harness) -> None:
    """3.1.7.3.9: BasePriority plus Priority decides, over all queues."""
    beta, gamma = outgoing(h, "BETA", base_priority=10), outgoing(h, "GAMMA", base_priority=12)
    wanted = [
        waiting(h, beta, b"11", priority=1),
        waiting(h, beta, b"13 a", priority=3),
        waiting(h, gamma, b"12", priority=0),
        waiting(h, beta, b"17", priority=7),
        waiting(h, gamma, b"13 b", priority=1),
    ]
    for position in wanted:
        h.engine.add_message_to_dispatch_collection(position, QUEUE_DATA)
    wire = Wire(h)
    for _ in wanted:
        h.engine.dispatch.dispatch_send_message()
        h.engine.remove_message_from_dispatch_collection(wire.entries[-1].message_position)
    assert wire.bodies == [b"17", b"13 a", b"13 b", b"12", b"11"]


def test_a_deleted_message_and_an_inactive_queue_are_passed_over(h: Harness) -> None:
    """3.1.7.3.9: Queue.Active and a State that is not Deleted.

    If no entry is eligible, nothing happens.
    """
    beta, gamma = outgoing(h, "BETA", base_priority=50), outgoing(h, "GAMMA", base_priority=90)
    deleted = waiting(h, beta, b"deleted", priority=7)
    idle = waiting(h, gamma, b"idle")
    plain = waiting(h, beta, b"plain")
    for position in (deleted, idle, plain):
        h.engine.add_message_to_dispatch_collection(position, QUEUE_DATA)
    for name in ("BETA", "GAMMA"):
        reader = h.open(rf"DIRECT=OS:{name}\private$\q", QueueAccessType.RECEIVE_ADMIN)
        while name == "GAMMA" and h.engine.try_dequeue_message(reader):
            pass
        h.engine.close_queue(reader)
    reader = h.open(r"DIRECT=OS:BETA\private$\q", QueueAccessType.RECEIVE_ADMIN)
    assert h.engine.dequeue_message(reader, timeout=0) is not None  # the deleted one, priority 7
    h.engine.close_queue(reader)
    assert (beta.active, gamma.active) == (True, False)
    wire = Wire(h)
    h.engine.dispatch.dispatch_send_message()
    assert wire.bodies == [b"plain"]
    h.engine.remove_message_from_dispatch_collection(plain)
    assert wire.bodies == [b"plain"]
    assert not any(entry.send_in_progress for entry in entries(h))


def test_a_message_waits_until_its_queue_is_active(h: Harness) -> None:
    """3.1.7.3.9 requires Queue.Active.

    A queue here is active only while it is open (3.1.1.2).
    """
    wire = Wire(h)
    h.create("q")
    h.send("q", b"x")
    reader = h.open("q", QueueAccessType.PEEK)
    position = at_once(h.engine.peek_message(reader, timeout=0))
    h.engine.close_queue(reader)
    h.engine.add_message_to_dispatch_collection(position, QUEUE_DATA)
    assert wire.bodies == []
    h.open("q", QueueAccessType.PEEK)
    h.engine.dispatch.dispatch_send_message()
    assert wire.bodies == [b"x"]


@pytest.mark.spec("DMPR-3.1.7.1.34-1")
def test_all_entries_of_one_queue_are_removed_together(h: Harness) -> None:
    """3.1.7.1.34: the entries of other queues stay; no Dispatch Send Message is raised."""
    beta, gamma = outgoing(h, "BETA"), outgoing(h, "GAMMA")
    kept = waiting(h, gamma, b"kept")
    wire = Wire(h)
    for position in (waiting(h, beta, b"1"), kept, waiting(h, beta, b"2")):
        h.engine.add_message_to_dispatch_collection(position, QUEUE_DATA)
    assert wire.bodies == [b"1"]
    h.engine.remove_messages_from_dispatch_collection_by_queue(beta)
    assert [entry.message_position for entry in entries(h)] == [kept]
    assert wire.bodies == [b"1"]
    h.engine.dispatch.dispatch_send_message()
    assert wire.bodies == [b"1", b"kept"]


def test_a_sender_that_is_done_at_once_empties_the_collection(h: Harness) -> None:
    """However many entries there are: the next one does not go out from inside the one before."""
    queue = outgoing(h)
    h.engine.position_available_subscribers.append(
        lambda queue, first, records: h.engine.add_message_to_dispatch_collection(
            MessagePosition(queue, first, records[0]), QUEUE_DATA
        )
    )
    for _ in range(600):
        h.engine.enqueue_message(queue, h.message(b"x"))
    sent = []

    def send(entry: DispatchEntry) -> None:
        sent.append(Message(entry.message_position.record.packet).body)
        h.engine.remove_message_from_dispatch_collection(entry.message_position)

    h.engine.dispatch.send_user_message = send
    h.engine.dispatch.dispatch_send_message()
    assert len(sent) == 600
    assert entries(h) == []


# 3.1.4.14, 3.1.4.15 Pause Queue, Resume Queue
# -----------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.4.14-1", "DMPR-3.1.4.15-1")
def test_pause_and_resume_are_raised_for_the_queue_they_name(h: Harness) -> None:
    """3.1.4.14, 3.1.4.15: the events of 3.1.7.2.3 and 3.1.7.2.4 for the same queue.

    The queue is OnHold, then Inactive.
    """
    beta, gamma = outgoing(h, "BETA"), outgoing(h, "GAMMA")
    raised: list[tuple[OutgoingQueue, OutgoingState]] = []
    h.engine.outgoing_state_subscribers.append(lambda queue: raised.append((queue, queue.state)))
    h.engine.pause_queue(beta)
    assert (beta.state, gamma.state) == (OutgoingState.ON_HOLD, OutgoingState.INACTIVE)
    h.engine.pause_queue(gamma)
    h.engine.resume_queue(beta)
    assert (beta.state, gamma.state) == (OutgoingState.INACTIVE, OutgoingState.ON_HOLD)
    assert raised == [
        (beta, OutgoingState.ON_HOLD),
        (gamma, OutgoingState.ON_HOLD),
        (beta, OutgoingState.INACTIVE),
    ]


def test_a_pause_outlives_a_restart(h: Harness) -> None:
    h.engine.pause_queue(outgoing(h, "BETA"))
    outgoing(h, "GAMMA")
    h.restart()
    states = (descriptor_queue(h, "BETA").state, descriptor_queue(h, "GAMMA").state)
    assert states == (OutgoingState.ON_HOLD, OutgoingState.INACTIVE)
