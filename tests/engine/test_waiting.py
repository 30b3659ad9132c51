"""Waiting reads, and the events that wake, end and order them.

MS-MQDMPR 3.1.7.1.17, 3.1.7.2 and 3.1.7.3.
"""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

import pytest

import lanner
from lanner.engine.dispatch import Dispatch
from lanner.engine.names import Names
from lanner.engine.positions import Positions
from lanner.engine.waiting import WaitingReads
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import (
    INFINITE,
    CursorState,
    EnqueueStatus,
    MessageClass,
    OutgoingState,
    PositionState,
    QueueAccessType,
)
from lanner.model.errors import IOTimeout, OperationCancelled, StatusError, status_error
from lanner.model.live import Cursor, MessagePosition, OpenQueueDescriptor, WaitingMessageReadOperation
from tests.engine.harness import Harness, Reader, at_once, body_of, status_of
from tests.statuses import MQ_ERROR_IO_TIMEOUT, MQ_INFORMATION_REMOTE_CANCELED, STATUS_NOT_FOUND

OUTGOING = r"DIRECT=OS:BETA\private$\out"


class Waiter:
    """A waiting read that, unlike the engine's own, does not release the next reader."""

    def __init__(
        self,
        h: Harness,
        descriptor: OpenQueueDescriptor,
        *,
        destructive: bool,
        timeout: int = INFINITE,
        tag: object | None = None,
        cursor: Cursor | None = None,
    ) -> None:
        self.positions: list[MessagePosition] = []
        self.statuses: list[StatusError] = []
        self.record = h.engine.waiting.wait_for_new_message(
            descriptor,
            timeout,
            destructive_read=destructive,
            tag=tag,
            cursor=cursor,
            satisfied=self.positions.append,
            stopped=self.statuses.append,
        )


# Cancel Waiting Message Read Request
# ----------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.17-1")
def test_a_waiting_read_is_cancelled_by_its_tag(h: Harness) -> None:
    """3.1.7.1.17: on any descriptor of the queue; the read ends with the status that was given."""
    h.create()
    first, second = h.open(), h.open()
    readers = [Reader() for _ in range(4)]
    h.engine.dequeue_message(first, tag=1, on_end=readers[0])
    h.engine.dequeue_message_begin(second, tag=2, on_end=readers[1])
    h.engine.dequeue_message(second, tag=3, on_end=readers[2])
    h.engine.dequeue_message(second, on_end=readers[3])
    h.engine.cancel_waiting_message_read_request(h.queue(), 2, status_error(MQ_INFORMATION_REMOTE_CANCELED))
    h.engine.cancel_waiting_message_read_request(h.queue(), 1, OperationCancelled())
    assert [reader.status for reader in readers] == [
        OperationCancelled.status,
        MQ_INFORMATION_REMOTE_CANCELED,
        None,
        None,
    ]
    assert (len(first.waiting_reads), len(second.waiting_reads)) == (0, 2)
    h.send(body=b"a")
    assert [len(reader.ends) for reader in readers] == [1, 1, 1, 0]


@pytest.mark.spec("DMPR-3.1.7.1.17-2")
@pytest.mark.parametrize("tag", [9, None, "1"])
def test_a_tag_that_nobody_has_cancels_nothing(h: Harness, tag: object) -> None:
    """3.1.7.1.17: STATUS_NOT_FOUND.

    Neither a read without a tag nor a read on another queue matches.
    """
    h.create()
    h.create("other")
    descriptor, tagged, untagged, elsewhere = h.open(), Reader(), Reader(), Reader()
    h.engine.dequeue_message(descriptor, tag=1, on_end=tagged)
    h.engine.dequeue_message(descriptor, on_end=untagged)
    h.engine.dequeue_message(h.open("other"), tag=9, on_end=elsewhere)
    cancel = h.engine.cancel_waiting_message_read_request
    assert status_of(lambda: cancel(h.queue(), tag, OperationCancelled())) == STATUS_NOT_FOUND
    assert tagged.ends + untagged.ends + elsewhere.ends == []
    assert len(descriptor.waiting_reads) == 2


# Message Position Deleted and Available
# -------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.2.1-1")
def test_a_deleted_position_leaves_the_list_and_the_totals(h: Harness) -> None:
    """3.1.7.2.1: TotalBytes decreases by headers and body.

    State is Deleted, and the position is no longer in MessagePositionList.
    """
    h.create()
    for body in (b"a", b"b" * 1000, b"c"):
        h.send(body=body)
    queue, qm = h.queue(), h.engine.queue_manager
    sizes = {body_of(p): len(p.record.packet) for p in h.engine.positions.all_positions(queue)}
    assert queue.total_bytes == qm.total_bytes == sum(sizes.values())
    assert sizes[b"b" * 1000] > 1000
    position = next(p for p in h.engine.positions.all_positions(queue) if body_of(p) == b"b" * 1000)
    removals = h.removals()
    h.engine.message_position_deleted(queue, position, MessageClass.ACK_RECEIVE)
    assert removals == [(b"b" * 1000, MessageClass.ACK_RECEIVE)]
    assert position.state is PositionState.DELETED
    assert queue.total_bytes == qm.total_bytes == sizes[b"a"] + sizes[b"c"]
    assert (h.bodies(), queue.message_count) == ([b"a", b"c"], 2)


@pytest.mark.spec("DMPR-3.1.7.2.1-2")
def test_every_subscriber_hears_of_a_deletion_with_its_reason(h: Harness) -> None:
    """3.1.7.2: protocols on this queue manager consume the event.

    It carries the queue, the position and iReason.
    """
    h.create()
    heard: list[tuple[str, Queue, bytes, MessageClass]] = []

    def hear(name: str, queue: Queue, position: MessagePosition, reason: MessageClass) -> None:
        heard.append((name, queue, body_of(position), reason))

    h.engine.position_deleted_subscribers += [partial(hear, "one"), partial(hear, "two")]
    h.send(body=b"a")
    h.receive()
    h.send(body=b"b", time_to_be_received=5)
    h.tick(6)
    h.send(body=b"c")
    h.engine.purge_queue(h.queue())
    expected = [
        (b"a", MessageClass.ACK_RECEIVE),
        (b"b", MessageClass.NACK_RECEIVE_TIMEOUT),
        (b"c", MessageClass.NACK_QUEUE_PURGED),
    ]
    assert heard == [(name, h.queue(), *event) for event in expected for name in ("one", "two")]


@pytest.mark.spec("DMPR-3.1.7.2.2-1")
def test_a_message_is_counted_once_however_often_it_becomes_available(h: Harness) -> None:
    """DECISIONS: enqueue adds, delete subtracts, move does both, abort undoes."""
    h.create(transactional=True)
    queue, qm = h.queue(), h.engine.queue_manager

    def totals() -> tuple[int, int]:
        return queue.total_bytes, qm.total_bytes

    sending = h.begin()
    h.send(body=b"a", transaction=sending)
    size = len(next(iter(queue.held_positions.values())).record.packet)
    assert totals() == (size, size)
    h.commit(sending)
    assert totals() == (size, size)
    receiving = h.begin()
    assert h.receive(transaction=receiving) == b"a"
    h.abort(receiving)
    assert totals() == (size, size)
    descriptor = h.open()
    position = at_once(h.engine.dequeue_message_begin(descriptor, timeout=0))
    h.engine.dequeue_message_end(descriptor, position, delete_message=False)
    assert totals() == (size, size)
    dropped = h.begin()
    h.send(body=b"b", transaction=dropped)
    h.abort(dropped)
    assert totals() == (size, size)
    h.restart()
    queue, qm = h.queue(), h.engine.queue_manager
    assert totals() == (size, size)
    assert h.receive() == b"a"
    assert totals() == (0, 0)


@pytest.mark.spec("DMPR-3.1.7.2.2-2")
def test_an_arrival_goes_to_peeks_in_turn_and_then_to_one_receive(h: Harness) -> None:
    """3.1.7.2.2: the first destructive reader ends the processing.

    The readers behind it stay blocked.
    """
    h.create()
    first, second = h.open(), h.open()
    order: list[tuple[str, bytes]] = []

    def reader(name: str) -> Reader:
        class Named(Reader):
            def __call__(self, end: MessagePosition | StatusError) -> None:
                assert isinstance(end, MessagePosition)
                order.append((name, body_of(end)))

        return Named()

    h.engine.peek_message(first, on_end=reader("peek 1"))
    h.engine.peek_message(second, on_end=reader("peek 2"))
    h.engine.dequeue_message(first, on_end=reader("receive 1"))
    h.engine.peek_message(first, on_end=reader("peek 3"))
    h.engine.dequeue_message(second, on_end=reader("receive 2"))
    h.engine.dequeue_message(first, on_end=reader("receive 3"))
    h.send(body=b"a")
    assert order == [("peek 1", b"a"), ("peek 2", b"a"), ("receive 1", b"a")]
    h.send(body=b"b")
    assert order[3:] == [("peek 3", b"b"), ("receive 2", b"b")]
    assert [read.destructive_read for read in h.queue().waiting_reads] == [True]
    assert h.bodies() == []


@pytest.mark.spec("DMPR-3.1.7.2.2-3")
def test_after_a_peek_the_next_reader_waits_for_its_release(h: Harness) -> None:
    """3.1.7.2.2: Release Next Reader on this queue continues the loop.

    This holds also for later arrivals.
    """
    h.create()
    descriptor = h.open()
    peeker, receiver = Waiter(h, descriptor, destructive=False), Waiter(h, descriptor, destructive=True)
    another = Waiter(h, descriptor, destructive=True)
    h.send(body=b"a")
    h.send(body=b"b")
    assert [len(w.positions) for w in (peeker, receiver, another)] == [1, 0, 0]
    h.engine.waiting.release_next_reader(h.queue())
    assert [[body_of(p) for p in w.positions] for w in (peeker, receiver, another)] == [[b"a"], [b"a"], [b"b"]]


@pytest.mark.spec("DMPR-3.1.7.2.2-3")
def test_a_message_that_went_meanwhile_is_not_handed_on(h: Harness) -> None:
    """3.1.7.2.2: another reader received the message between a peek and the release."""
    h.create()
    descriptor = h.open()
    Waiter(h, descriptor, destructive=False)
    receiver = Waiter(h, descriptor, destructive=True)
    h.send(body=b"a")
    assert h.receive() == b"a"
    h.engine.waiting.release_next_reader(h.queue())
    assert receiver.positions == []
    h.send(body=b"b")
    assert [body_of(p) for p in receiver.positions] == [b"b"]


@pytest.mark.spec("DMPR-3.1.7.3.7-1")
def test_a_release_is_for_one_queue(h: Harness) -> None:
    """3.1.7.3.7: iReleaseOnQueue names the queue; readers of another stay held."""
    waiters = {}
    for name in ("q", "r"):
        h.create(name)
        descriptor = h.open(name)
        Waiter(h, descriptor, destructive=False)
        waiters[name] = Waiter(h, descriptor, destructive=True)
        h.send(name, name.encode())
    h.engine.waiting.release_next_reader(h.queue("r"))
    assert (len(waiters["q"].positions), len(waiters["r"].positions)) == (0, 1)
    h.engine.waiting.release_next_reader(h.queue("q"))
    assert len(waiters["q"].positions) == 1


# Outgoing queues and flow control
# -------------------------------------------------------------------------------


def outgoing(h: Harness) -> tuple[OutgoingQueue, list[bytes]]:
    """An outgoing queue with a message ready to leave, and what the dispatcher sends."""
    h.open(OUTGOING, QueueAccessType.SEND)
    queue = h.queue(OUTGOING)
    assert isinstance(queue, OutgoingQueue)
    sent: list[bytes] = []
    h.engine.dispatch.send_user_message = lambda entry: sent.append(body_of(entry.message_position))
    return queue, sent


def dispatch(h: Harness, queue: OutgoingQueue, body: bytes) -> None:
    h.send(OUTGOING, body)
    position = next(p for p in h.engine.positions.all_positions(queue) if body_of(p) == body)
    h.engine.add_message_to_dispatch_collection(position, object())


@pytest.mark.spec("DMPR-3.1.7.2.3-1")
def test_nothing_leaves_a_paused_queue(h: Harness) -> None:
    """3.1.7.2.3: State := OnHold, and its messages stay.

    Other queues continue to send, and a restart changes nothing.
    """
    queue, sent = outgoing(h)
    told: list[OutgoingState] = []
    h.engine.outgoing_state_subscribers.append(lambda changed: told.append(changed.state))
    h.engine.pause_queue(queue)
    assert (queue.state, told) == (OutgoingState.ON_HOLD, [OutgoingState.ON_HOLD])
    dispatch(h, queue, b"held")
    assert sent == []
    h.restart()
    restored = h.queue(OUTGOING)
    assert isinstance(restored, OutgoingQueue)
    assert restored.state is OutgoingState.ON_HOLD


@pytest.mark.spec("DMPR-3.1.7.2.4-1")
def test_a_resumed_queue_sends_again(h: Harness) -> None:
    """3.1.7.2.4: State := Inactive; what waited is dispatched."""
    queue, sent = outgoing(h)
    h.engine.pause_queue(queue)
    dispatch(h, queue, b"held")
    told: list[OutgoingState] = []
    h.engine.outgoing_state_subscribers.append(lambda changed: told.append(changed.state))
    assert sent == []
    h.engine.resume_queue(queue)
    assert (queue.state, told, sent) == (OutgoingState.INACTIVE, [OutgoingState.INACTIVE], [b"held"])


def test_flow_control_refuses_messages_everywhere(h: Harness) -> None:
    """3.1.7.2.5: Throttled True, so every enqueue returns 2.

    3.1.7.2.6: Throttled False, and enqueues succeed again.
    """
    h.create()
    h.create("r")
    h.engine.begin_flow_control()
    qm = h.engine.queue_manager
    assert qm.throttled is True
    assert [int(h.send(name, b"x")) for name in ("q", "r", OUTGOING)] == [2, 2, 2]
    assert (h.bodies("q"), h.bodies("r"), h.queue(OUTGOING).message_count) == ([], [], 0)
    h.engine.end_flow_control()
    assert h.engine.queue_manager.throttled is False
    assert [h.send(name, b"x") for name in ("q", "r", OUTGOING)] == [EnqueueStatus.OK] * 3


# Internal events
# ------------------------------------------------------------------------------------------------

# MS-MQDMPR 3.1.7.3: the events that protocols must not raise, and the parts of the engine that have
# them.
INTERNAL_EVENTS = {
    "wait_for_new_message": WaitingReads,
    "seek_available_message_position": Positions,
    "seek_available_message_position_with_id": Positions,
    "waiting_message_read_timer_start": WaitingReads,
    "waiting_message_read_timer_stop": WaitingReads,
    "waiting_message_read_satisfied": WaitingReads,
    "release_next_reader": WaitingReads,
    "expand_format_name": Names,
    "dispatch_send_message": Dispatch,
}


@pytest.mark.spec("DMPR-3.1.7.3-1")
def test_internal_events_are_raised_inside_the_engine_only(h: Harness) -> None:
    """3.1.7.3: "Protocol implementations MUST NOT raise these events".

    The facade has none, and no other package names one.
    """
    assert {name for name, part in INTERNAL_EVENTS.items() if not hasattr(part, name)} == set()
    assert {name for name in INTERNAL_EVENTS if hasattr(h.engine, name)} == set()
    package = Path(lanner.__file__).parent
    for source in package.rglob("*.py"):
        if source.relative_to(package).parts[0] != "engine":
            tree = ast.parse(source.read_text(encoding="utf-8"))
            names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            names |= {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
            assert not names & INTERNAL_EVENTS.keys(), source


@pytest.mark.spec("DMPR-3.1.7.3.1-1")
@pytest.mark.parametrize("timeout", [0, -1])
def test_a_wait_of_no_time_fails_at_once(h: Harness, timeout: int) -> None:
    """3.1.7.3.1: a time-out of zero or less, or no queue to wait on.

    The result is Failed, without a waiting read.
    """
    h.create()
    descriptor = h.open()
    with pytest.raises(IOTimeout):
        Waiter(h, descriptor, destructive=True, timeout=timeout)
    assert h.queue().waiting_reads == {}
    h.engine.delete_queue(h.queue())
    with pytest.raises(StatusError):
        Waiter(h, descriptor, destructive=True)
    assert descriptor.waiting_reads == []


@pytest.mark.spec("DMPR-3.1.7.3.1-2", "DMPR-3.1.7.3.6-1")
def test_a_wait_is_registered_and_satisfied_with_the_position(h: Harness) -> None:
    """3.1.7.3.1: DestructiveRead, Tag and CursorReference.

    3.1.7.3.6: only the named read gets the position.
    """
    h.create()
    descriptor = h.open()
    cursor = h.engine.open_cursor(descriptor)
    plain = Waiter(h, descriptor, destructive=True)
    full = Waiter(h, descriptor, destructive=False, timeout=3000, tag="t", cursor=cursor)
    assert isinstance(plain.record, WaitingMessageReadOperation)
    assert isinstance(full.record, WaitingMessageReadOperation)
    assert descriptor.waiting_reads == [plain.record, full.record]
    assert (plain.record.destructive_read, plain.record.tag, plain.record.cursor) == (True, None, None)
    assert (full.record.destructive_read, full.record.tag, full.record.cursor) == (False, "t", cursor)
    assert h.engine.next_delay() == 3.0
    h.create("r")
    h.send("r", b"a")
    position = next(h.engine.positions.all_positions(h.queue("r")))
    h.engine.waiting.waiting_message_read_satisfied(full.record, position)
    assert (full.positions, plain.positions) == ([position], [])
    assert descriptor.waiting_reads == [plain.record]


@pytest.mark.spec("DMPR-3.1.7.3.1-3", "DMPR-3.1.7.3.5-1")
def test_a_wait_that_is_stopped_returns_the_status_of_the_stop(h: Harness) -> None:
    """3.1.7.3.5 passes iStatus on: 0xC00E001B on expiry, the caller's on cancel.

    3.1.7.3.1: nothing remains.
    """
    h.create()
    descriptor = h.open()
    expired = Waiter(h, descriptor, destructive=True, timeout=1000)
    cancelled = Waiter(h, descriptor, destructive=True, timeout=1000, tag="c")
    served = Waiter(h, descriptor, destructive=True, timeout=1000)
    status = status_error(MQ_INFORMATION_REMOTE_CANCELED)
    h.engine.cancel_waiting_message_read_request(h.queue(), "c", status)
    assert cancelled.statuses == [status]
    assert served.record is not None
    h.tick(0.5)
    h.send(body=b"a")
    assert [body_of(p) for p in expired.positions] == [b"a"]
    h.tick(0.5)
    assert [s.status for s in served.statuses] == [MQ_ERROR_IO_TIMEOUT]
    assert (expired.statuses, h.queue().waiting_reads, h.engine.next_delay()) == ([], {}, None)
    h.tick(10)
    h.send(body=b"b")
    counts = [len(w.positions) + len(w.statuses) for w in (expired, cancelled, served)]
    assert counts == [1, 1, 1]


@pytest.mark.spec("DMPR-3.1.7.3.4-1")
def test_each_wait_has_a_timer_of_its_own_in_milliseconds(h: Harness) -> None:
    """3.1.7.3.4: one timer, bound to the read and its duration; an infinite one never fires."""
    h.create()
    descriptor = h.open()
    moved: list[float | None] = []
    h.engine.clocks.deadline_changed = lambda: moved.append(h.engine.next_delay())
    waiters = [Waiter(h, descriptor, destructive=True, timeout=t) for t in (3000, 1, 2500, INFINITE, 1)]
    assert moved == [3.0, pytest.approx(0.001, abs=1e-6)]
    fired = []
    for step in (0.0009, 0.0002, 2.4, 0.2, 0.5, 1e9):
        h.tick(step)
        fired.append([index for index, w in enumerate(waiters) if w.statuses])
    assert fired == [[], [1, 4], [1, 4], [1, 2, 4], [0, 1, 2, 4], [0, 1, 2, 4]]


# Close Cursor
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.2-1")
def test_closing_a_cursor_ends_its_waiting_reads_only(h: Harness) -> None:
    """3.1.7.1.2: the reads tied to that cursor, then the cursor itself leaves CursorCollection."""
    h.create()
    descriptor = h.open()
    closing, staying = h.engine.open_cursor(descriptor), h.engine.open_cursor(descriptor)
    assert closing is not None
    assert staying is not None
    ended, other, plain = Reader(), Reader(), Reader()
    h.engine.peek_message(descriptor, cursor=closing, on_end=ended)
    h.engine.peek_message(descriptor, cursor=staying, on_end=other)
    h.engine.dequeue_message(descriptor, on_end=plain)
    h.engine.close_cursor(closing)
    assert descriptor.cursors == [staying]
    assert [read.cursor for read in descriptor.waiting_reads] == [staying, None]
    assert (len(ended.ends), ended.body, other.ends, plain.ends) == (1, None, [], [])
    h.send(body=b"a")
    assert (len(ended.ends), other.body, plain.body) == (1, b"a", b"a")
    assert staying.state is CursorState.READ
    h.engine.close_cursor(closing)
    assert descriptor.cursors == [staying]
