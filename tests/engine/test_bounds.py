"""Values that must not grow with use: heaps of timers, bodies in memory, the lock's hold time."""

from __future__ import annotations

import gc

import pytest

from lanner.engine.expiry import EXPIRY_SLICE
from lanner.model.enums import QueueAccessType
from lanner.model.errors import OperationCancelled
from lanner.model.live import MessagePosition, Record, WaitingMessageReadOperation
from tests.engine.harness import Harness


def test_waits_that_have_ended_leave_the_heap_of_timers(h: Harness) -> None:
    """One long wait stands before them, so they never come to the top."""
    h.create()
    descriptor = h.open()
    others = h.open(access=QueueAccessType.PEEK)
    first = h.engine.peek_message(others, timeout=1000)
    assert isinstance(first, WaitingMessageReadOperation)
    for _ in range(2000):
        reader = h.engine.dequeue_message(descriptor, timeout=3_600_000)
        assert isinstance(reader, WaitingMessageReadOperation)
        h.engine.stop_waiting_read(reader, OperationCancelled())
    assert first.is_waiting
    assert len(h.engine.waiting.timers) < 1000


def test_express_messages_that_were_received_leave_the_heap_of_deadlines(h: Harness) -> None:
    h.create()
    descriptor = h.open()
    for _ in range(5000):
        h.send(recoverable=False, time_to_be_received=86_400)
        assert h.engine.dequeue_message(descriptor, timeout=0) is not None
    assert len(h.engine.expiry.volatile) < 2500


def test_stored_messages_that_were_sent_in_transactions_leave_the_heap_of_deadlines(h: Harness) -> None:
    """Otherwise memory would grow with the depth of the queue."""
    h.create(transactional=True)
    for _ in range(30):
        transaction = h.begin()
        for _ in range(100):
            h.send(transaction=transaction, time_to_be_received=86_400)
        h.engine.transaction_commit(transaction.identifier)
    assert len(h.engine.expiry.volatile) < 2500
    h.now += 86_401
    while h.engine.next_delay() == 0:
        h.engine.on_timer()
    assert h.queue().message_count == 0


@pytest.mark.spec("DMPR-3.1.7.2.7-1")
def test_many_messages_that_expire_together_do_so_in_slices(h: Harness) -> None:
    """Others get the lock in between; what is locked does not keep the rest from going."""
    h.create()
    count = EXPIRY_SLICE + 500
    for _ in range(count):
        h.send(time_to_be_received=10)
    descriptor = h.open()
    h.engine.dequeue_message_begin(descriptor, timeout=0)
    h.now += 11
    h.engine.on_timer()
    assert h.queue().message_count == count - EXPIRY_SLICE
    assert h.engine.next_delay() == 0
    h.engine.on_timer()
    assert h.queue().message_count == 1
    assert h.engine.next_delay() != 0


def test_a_reader_whose_call_back_fails_does_not_fail_the_sender(h: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """The message is stored when the reader's callback runs.

    A failure of the callback must not be reported to the sender.
    """
    h.create()
    got: list[object] = []

    def broken(_: object) -> None:
        raise RuntimeError("the event loop is closed")

    h.engine.peek_message(h.open(access=QueueAccessType.PEEK), on_end=broken)
    h.engine.peek_message(h.open(access=QueueAccessType.PEEK), on_end=got.append)
    h.send()
    assert [type(end) for end in got] == [MessagePosition]
    assert "could not take its answer" in caplog.text


def test_the_last_message_read_of_each_queue_does_not_stay_in_memory(h: Harness) -> None:
    """Looking at the first message of 5,000 queues must not keep 5,000 bodies."""
    before = {id(found) for found in large_records()}
    for number in range(5):
        h.create(f"q{number}")
        h.send(f"q{number}", bytes(100_000))
    h.sync()
    for number in range(5):
        h.engine.peek_message(h.open(f"q{number}", access=QueueAccessType.PEEK), timeout=0)
    assert len([found for found in large_records() if id(found) not in before]) <= 1


def large_records() -> list[Record]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, Record) and len(found.packet) > 100_000]


def test_a_full_journal_is_said_to_be_full_once(h: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """A line for each message that is received would fill the disk with the log."""
    h.create(journaling=True, journal_quota=1)
    for _ in range(10):
        h.send(body=bytes(500))
        h.receive()
    assert caplog.text.count("is full") == 1
    h.engine.purge_queue(h.queue("q;journal"))
    for _ in range(10):
        h.send(body=bytes(500))
        h.receive()
    assert caplog.text.count("is full") == 2
