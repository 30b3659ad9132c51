"""Enqueue Message (MS-MQDMPR 3.1.7.1.9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.model.directory_objects import Queue
from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    EnqueueStatus,
    OperationType,
    PositionState,
    QueueAccessType,
)
from lanner.model.errors import InvalidParameter
from lanner.model.live import Transaction
from lanner.wire.message import Message
from tests.engine.harness import Harness, Reader

KILOBYTE = 1024
TOP_BYTE = 56
LOW_SEVEN_BYTES = (1 << TOP_BYTE) - 1


def of_size(h: Harness, size: int, *, transaction: int | None = None) -> Message:
    """A packet of exactly so many bytes."""
    empty = len(h.message(transaction=transaction).packet)
    message = h.message(bytes(size - empty), transaction=transaction)
    assert len(message.packet) == size
    return message


def state(h: Harness, queue: Queue) -> tuple[object, ...]:
    """All that an enqueue changes."""
    return (
        queue.total_bytes,
        queue.message_count,
        dict(queue.held_positions),
        h.engine.queue_manager.total_bytes,
        h.engine.numbers.sequential_id.last,
        h.store.stats(queue.number),
    )


# Quotas
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Harness]:
    """A queue manager with room for 4 kilobytes, and queue "q"."""
    harness = Harness(tmp_path / "data", queue_manager_quota=4)
    harness.create()
    yield harness
    harness.close()


@pytest.mark.spec("DMPR-3.1.7.1.9-1")
def test_a_throttled_queue_manager_takes_nothing(h: Harness) -> None:
    """Status 2, whatever the size, in and outside of transactions; it ends with the throttling."""
    queue = h.create()
    h.engine.begin_flow_control()
    before = state(h, queue)
    transaction = h.begin()
    assert h.engine.enqueue_message(queue, h.message()) == 2
    assert h.engine.enqueue_message(queue, h.message(transaction=1), transaction) == 2
    assert (state(h, queue), transaction.transactional_operations) == (before, [])
    h.engine.end_flow_control()
    assert h.engine.enqueue_message(queue, h.message(b"a")) == 0
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.9-1")
def test_the_queue_managers_quota_is_kept_to_the_byte(small: Harness) -> None:
    """QueueManagerQuota in kilobytes, over all queues: reached is allowed, exceeded is status 2."""
    queue, other = small.queue(), small.create("other")
    assert small.engine.enqueue_message(queue, of_size(small, 2 * KILOBYTE)) == 0
    before = state(small, other)
    assert small.engine.enqueue_message(other, of_size(small, 2 * KILOBYTE + 4)) == 2
    assert state(small, other) == before
    assert small.engine.enqueue_message(other, of_size(small, 2 * KILOBYTE)) == 0
    assert small.engine.enqueue_message(queue, of_size(small, 200)) == 2
    small.receive()
    assert small.engine.enqueue_message(other, of_size(small, 200)) == 0


@pytest.mark.spec("DMPR-3.1.7.1.9-1")
def test_the_queue_managers_quota_is_looked_at_before_the_queues(small: Harness) -> None:
    """A message that exceeds both gets status 2."""
    queue = small.create("narrow", quota=1)
    assert small.engine.enqueue_message(queue, of_size(small, 5 * KILOBYTE)) == 2
    assert small.engine.enqueue_message(queue, of_size(small, 2 * KILOBYTE)) == 1
    small.engine.begin_flow_control()
    assert small.engine.enqueue_message(queue, of_size(small, 2 * KILOBYTE)) == 2


@pytest.mark.spec("DMPR-3.1.7.1.9-2")
def test_the_queues_quota_is_kept_to_the_byte(h: Harness) -> None:
    """Quota in kilobytes: reached is allowed, exceeded is status 1 and nothing is inserted."""
    queue = h.create(quota=2)
    assert h.engine.enqueue_message(queue, of_size(h, KILOBYTE)) == 0
    before = state(h, queue)
    assert h.engine.enqueue_message(queue, of_size(h, KILOBYTE + 4)) == 1
    assert state(h, queue) == before
    assert h.engine.enqueue_message(queue, of_size(h, KILOBYTE)) == 0
    assert h.engine.enqueue_message(queue, of_size(h, 200)) == 1
    assert len(h.bodies()) == 2


@pytest.mark.spec("DMPR-3.1.7.1.9-2")
def test_all_ones_is_no_quota(h: Harness) -> None:
    """0xFFFFFFFF kilobytes are not counted: a total beyond them changes nothing."""
    queue = h.create(quota=0xFFFF_FFFF)
    h.engine.queue_manager.queue_manager_quota = INFINITE
    queue.total_bytes = 0xFFFF_FFFF * KILOBYTE
    assert h.engine.enqueue_message(queue, h.message()) == 0
    queue.quota = 0xFFFF_FFFE
    assert h.engine.enqueue_message(queue, h.message()) == 1


def enqueue_in(h: Harness, transaction: Transaction, name: str, size: int) -> EnqueueStatus:
    return h.engine.enqueue_message(h.queue(name), of_size(h, size, transaction=1), transaction)


@pytest.mark.spec("DMPR-3.1.7.1.9-3")
def test_uncommitted_sends_count_toward_the_queues_quota(h: Harness) -> None:
    """They count when sent, not again at the commit, and no more after an abort."""
    queue = h.create("t", transactional=True, quota=2)
    first, second = h.begin(), h.begin()
    before = h.engine.queue_manager.total_bytes
    assert enqueue_in(h, first, "t", KILOBYTE) == 0
    assert enqueue_in(h, second, "t", KILOBYTE) == 0
    assert (queue.total_bytes, h.engine.queue_manager.total_bytes - before) == (2 * KILOBYTE, 2 * KILOBYTE)
    assert enqueue_in(h, second, "t", 200) == 1
    h.commit(first)
    assert (queue.total_bytes, h.engine.queue_manager.total_bytes - before) == (2 * KILOBYTE, 2 * KILOBYTE)
    h.abort(second)
    assert (queue.total_bytes, h.engine.queue_manager.total_bytes - before) == (KILOBYTE, KILOBYTE)
    h.receive("t")
    assert (queue.total_bytes, h.engine.queue_manager.total_bytes - before) == (0, 0)


@pytest.mark.spec("DMPR-3.1.7.1.9-3")
@pytest.mark.parametrize("prepared", [True, False])
def test_uncommitted_sends_count_toward_the_queue_managers_quota(small: Harness, *, prepared: bool) -> None:
    h = small
    h.create("t", transactional=True)
    transaction = h.begin()
    assert enqueue_in(h, transaction, "t", 3 * KILOBYTE) == 0
    if prepared:
        h.engine.transaction_prepare(transaction.identifier, single_phase=False)
    assert h.engine.queue_manager.total_bytes == 3 * KILOBYTE
    assert h.engine.enqueue_message(h.queue("q"), of_size(h, 2 * KILOBYTE)) == 2
    h.abort(transaction)
    assert h.engine.queue_manager.total_bytes == 0
    assert h.engine.enqueue_message(h.queue("q"), of_size(h, 2 * KILOBYTE)) == 0


# Time
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.9-4")
def test_a_message_that_was_too_long_on_its_way_is_refused(h: Harness) -> None:
    """Status 3 when current time minus SentTime exceeds TimeToReachQueue.

    A message of exactly that age is accepted.
    """
    queue = h.create()
    message = h.message(b"a", time_to_reach_queue=30)
    patient = h.message(b"patient", time_to_reach_queue=INFINITE)
    h.now += 30
    assert h.engine.enqueue_message(queue, message) == 0
    h.now += 1
    before = state(h, queue)
    assert h.engine.enqueue_message(queue, message) == 3
    assert state(h, queue) == before
    h.now += 1_000_000
    assert h.engine.enqueue_message(queue, patient) == 0
    assert h.bodies() == [b"a", b"patient"]


@pytest.mark.spec("DMPR-3.1.7.1.9-5")
def test_each_enqueue_takes_the_next_sequential_id(h: Harness) -> None:
    """SequentialID increases by one.

    Its low seven bytes are those of LookupIdentifier, in every queue and transaction.
    """
    h.create()
    h.create("t", transactional=True)
    counter = h.engine.numbers.sequential_id
    before = counter.last
    h.send(body=b"a", priority=7)
    assert counter.last == before + 1
    h.send(body=b"b", priority=0)
    transaction = h.begin()
    h.send("t", b"c", transaction=transaction)
    assert counter.last == before + 3
    h.commit(transaction)
    ids = h.lookup_ids() | h.lookup_ids("t")
    assert {body: lookup_id & LOW_SEVEN_BYTES for body, lookup_id in ids.items()} == {
        b"a": before + 1,
        b"b": before + 2,
        b"c": before + 3,
    }


@pytest.mark.spec("DMPR-3.1.7.1.9-5")
def test_sequential_ids_continue_after_a_restart_and_are_cut_to_seven_bytes(h: Harness) -> None:
    queue = h.create()
    h.send(body=b"a")
    first = h.lookup_ids()[b"a"] & LOW_SEVEN_BYTES
    h.restart()
    h.send(body=b"b")
    assert h.lookup_ids()[b"b"] & LOW_SEVEN_BYTES == first + 1
    queue = h.queue()
    h.engine.numbers.sequential_id.next((1 << TOP_BYTE) + (1 << 55) - 1 - h.engine.newest_sequential_id)
    assert h.engine.enqueue_message(queue, h.message(b"c", priority=3)) == 0
    assert h.engine.newest_sequential_id == 0x0180_0000_0000_0000
    assert h.lookup_ids()[b"c"] == 0x0480_0000_0000_0000


@pytest.mark.spec("DMPR-3.1.7.1.9-5")
@pytest.mark.parametrize("recoverable", [True, False])
def test_enqueue_starts_the_time_to_be_received_timer(h: Harness, *, recoverable: bool) -> None:
    h.create()
    h.send(body=b"short", time_to_be_received=10, recoverable=recoverable)
    h.send(body=b"long", time_to_be_received=1000, recoverable=recoverable)
    h.send(body=b"for ever", recoverable=recoverable)
    assert h.engine.next_delay() == 10
    h.tick(9)
    assert h.bodies() == [b"short", b"long", b"for ever"]
    h.tick(2)
    assert h.bodies() == [b"long", b"for ever"]


# Place
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.9-6")
@pytest.mark.parametrize("priority", range(8))
def test_the_top_byte_of_a_lookup_id_is_seven_minus_the_priority(h: Harness, priority: int) -> None:
    """A transactional message counts as priority 0, whatever its packet says."""
    queue = h.create()
    assert h.engine.enqueue_message(queue, h.message(b"plain", priority=priority)) == 0
    packet = bytearray(h.message(b"transactional", transaction=1).packet)
    packet[2] |= priority  # BaseHeader PR: a peer may set it
    assert h.engine.enqueue_message(queue, Message(bytes(packet))) == 0
    ids = h.lookup_ids()
    assert (ids[b"plain"] >> TOP_BYTE, ids[b"transactional"] >> TOP_BYTE) == (7 - priority, 7)


@pytest.mark.spec("DMPR-3.1.7.1.9-6")
def test_lookup_ids_grow_along_the_queue(h: Harness) -> None:
    """Highest priority first, first come first of each."""
    h.create()
    for priority in (3, 7, 0, 3, 7, 5):
        h.send(body=bytes([priority]), priority=priority)
    received = numbered(h)
    assert [message.body[0] for _, message in received] == [7, 7, 5, 3, 3, 0]
    ids = [lookup_id for lookup_id, _ in received]
    assert ids == sorted(ids)


def numbered(h: Harness) -> list[tuple[int, Message]]:
    """Return the received messages in order, with their lookup identifiers."""
    descriptor = h.open()
    found = []
    while (position := h.engine.try_dequeue_message(descriptor)) is not None:
        found.append((position.lookup_id, Message(position.record.packet)))
    return found


# In and outside of transactions
# ---------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.9-7")
def test_a_message_sent_in_a_transaction_is_locked_until_the_commit(h: Harness) -> None:
    """Its position is in the list, Locked, and an Enqueue operation is recorded.

    No reader sees it, waiting or not.
    """
    queue = h.create("t", transactional=True)
    reader = Reader()
    h.engine.dequeue_message(h.open("t"), on_end=reader)
    transaction = h.begin()
    status = h.engine.enqueue_message(queue, h.message(b"a", transaction=transaction.index), transaction)
    assert status == 0
    (operation,) = transaction.transactional_operations
    assert operation.operation_type is OperationType.ENQUEUE
    position = operation.message_position
    assert (position.queue, position.state) == (queue, PositionState.LOCKED)
    assert queue.held_positions == {position.lookup_id: position}
    assert (h.bodies("t"), h.receive("t"), h.lookup_ids("t"), reader.ends) == ([], None, {}, [])
    h.commit(transaction)
    assert reader.body == b"a"
    assert isinstance(reader.ends[0], type(position))
    assert reader.ends[0].lookup_id == position.lookup_id


@pytest.mark.spec("DMPR-3.1.7.1.9-8")
def test_a_message_sent_outside_transactions_is_there_at_once(h: Harness) -> None:
    """Status 0; a waiting reader gets it, without one the next read finds it."""
    queue = h.create()
    reader, peeker = Reader(), Reader()
    h.engine.peek_message(h.open(access=QueueAccessType.PEEK), on_end=peeker)
    h.engine.dequeue_message(h.open(), on_end=reader)
    assert h.engine.enqueue_message(queue, h.message(b"a")) == 0
    assert (peeker.body, reader.body) == (b"a", b"a")
    assert h.engine.enqueue_message(queue, h.message(b"b")) == 0
    assert len(reader.ends) == 1
    assert h.bodies() == [b"b"]
    assert h.receive() == b"b"


def test_a_restored_message_is_as_it_was_found_and_has_no_consequences(h: Harness) -> None:
    queue = h.create("q", quota=0)
    h.create("admin")
    demands: dict[str, Any] = {
        "time_to_be_received": 10,
        "acknowledgements_requested": Acknowledgements.FULL_REACH_QUEUE | Acknowledgements.FULL_RECEIVE,
        "administration_queue_format_name": h.name("admin"),
    }
    packet = h.message(b"old", **demands).packet
    position = h.engine.restore_message(queue, packet, arrived=int(h.now) - 500, abort_count=4, move_count=2)
    record = position.record
    assert (record.arrived, record.abort_count, record.move_count) == (int(h.now) - 500, 4, 2)
    h.restart()
    h.tick(1000)
    assert h.bodies("q") == [b"old"]
    assert h.receive("q") == b"old"
    assert h.bodies("admin") == []
    assert (h.queue("q").total_bytes, h.queue("q").message_count) == (0, 0)


def test_who_waits_gets_a_restored_message(h: Harness) -> None:
    queue, reader = h.create("q"), Reader()
    h.engine.dequeue_message(h.open("q"), on_end=reader)
    h.engine.restore_message(queue, h.message(b"old").packet, arrived=int(h.now))
    h.sync()
    assert reader.body == b"old"


def test_nothing_is_restored_into_an_outgoing_queue(h: Harness) -> None:
    outgoing = h.open(r"DIRECT=OS:BETA\private$\q", QueueAccessType.SEND).queue
    assert outgoing is not None
    with pytest.raises(InvalidParameter, match="cannot be restored"):
        h.engine.restore_message(outgoing, h.message(b"old").packet, arrived=int(h.now))
