"""Receives and peeks: immediate, waiting, in several threads, and with waits that end early."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import TypeVar

import pytest

from lanner.client import Message, Queue, QueueManager, ReceivedMessage
from lanner.client.runtimes import operations_of, runtime_of
from lanner.host.reads import Read
from lanner.model.errors import (
    InvalidParameter,
    IOTimeout,
    MessageNotFound,
    OperationCancelled,
    QueueNotAvailable,
    StatusError,
    TransactionSequence,
)
from lanner.store import Store
from tests.statuses import (
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
    MQ_ERROR_TRANSACTION_SEQUENCE,
)

T = TypeVar("T")


class Interrupt(BaseException):
    """A simulated Ctrl-C at a moment that the test chooses."""


def in_thread(function: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 (told to whoever asks for the result)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def wait_until_waiting(qm: QueueManager, name: str = "q", count: int = 1) -> None:
    """Until that many reads wait on the queue."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with runtime_of(qm).lock:
            if len(operations_of(qm).find(name).waiting_reads) >= count:
                return
        time.sleep(0.001)
    pytest.fail("nobody waits")


# What is there
# ----------------------------------------------------------------------------------------


def test_messages_come_by_priority_then_in_order(q: Queue) -> None:
    for body, priority in (("a", 3), ("b", 5), ("c", 3), ("d", 5)):
        q.send(Message(body=body, priority=priority))
    assert [message.body for message in q] == ["b", "d", "a", "c"]
    assert [q.receive(0).body for _ in range(4)] == ["b", "d", "a", "c"]


def test_peek_leaves_and_receive_takes(q: Queue) -> None:
    q.send("x")
    assert (q.peek(0).body, q.peek().body, q.count()) == ("x", "x", 1)
    assert (q.receive().body, q.count()) == ("x", 0)


@pytest.mark.parametrize("read", [Queue.receive, Queue.peek], ids=["receive", "peek"])
def test_an_empty_queue_times_out_at_once(q: Queue, read: Callable[[Queue, float], ReceivedMessage]) -> None:
    with pytest.raises(IOTimeout) as raised:
        read(q, 0)
    assert raised.value.status == MQ_ERROR_IO_TIMEOUT


def test_a_receive_from_an_empty_queue_seeks_once(q: Queue) -> None:
    """The lock is held from the seek to the start of the wait, so no message comes in between."""
    with pytest.raises(IOTimeout):
        q.receive(0)  # opens the handle
    seeks: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Store.read_next.__code__:
            seeks.append(event)

    sys.setprofile(note)
    try:
        with pytest.raises(IOTimeout):
            q.receive(0.001)
    finally:
        sys.setprofile(None)
    assert len(seeks) == 1


@pytest.mark.parametrize("read", [Queue.receive, Queue.peek], ids=["receive", "peek"])
def test_a_wait_ends_at_its_time(q: Queue, read: Callable[[Queue, float], ReceivedMessage]) -> None:
    before = time.monotonic()
    with pytest.raises(IOTimeout):
        read(q, 0.05)
    assert time.monotonic() - before >= 0.05
    with pytest.raises(IOTimeout):
        read(q, 0.0001)


@pytest.mark.parametrize("timeout", [-1, -0.001, math.nan])
def test_a_time_out_is_not_negative(q: Queue, timeout: float) -> None:
    q.send("x")
    cursor = q.cursor()
    for read in (q.receive, q.peek, cursor.peek, cursor.receive):
        with pytest.raises(InvalidParameter, match="time-out"):
            read(timeout)
    assert q.count() == 1


@pytest.mark.parametrize("timeout", [None, math.inf, 1e12, 3600])
def test_a_long_time_is_long(qm: QueueManager, q: Queue, timeout: float | None) -> None:
    reader = in_thread(lambda: q.receive(timeout).body)
    wait_until_waiting(qm)
    q.send("x")
    assert reader.result(20) == "x"


def test_several_messages_at_once(q: Queue) -> None:
    q.send_many([str(number) for number in range(5)])
    assert [message.body for message in q.receive_many(3)] == ["0", "1", "2"]
    assert [message.body for message in q.receive_many(10)] == ["3", "4"]
    assert q.receive_many(10) == []
    assert q.receive_many(10, timeout=0.01) == []
    q.send("x")
    assert (q.receive_many(0), q.receive_many(-1), q.count()) == ([], [], 1)


def test_several_messages_wait_for_the_first(qm: QueueManager, q: Queue) -> None:
    reader = in_thread(lambda: [message.body for message in q.receive_many(10, timeout=None)])
    wait_until_waiting(qm)
    q.send_many(["1", "2"])
    found = reader.result(20)
    assert found + [message.body for message in q.receive_many(10)] == ["1", "2"]
    assert found[0] == "1"


# Threads
# ----------------------------------------------------------------------------------------------


def test_a_waiting_receive_gets_what_is_sent(qm: QueueManager, q: Queue) -> None:
    reader = in_thread(q.receive)
    wait_until_waiting(qm)
    q.send(Message(body="x", recoverable=True))
    assert reader.result(20).body == "x"
    assert q.count() == 0


def test_all_who_peek_see_it_and_one_receives(qm: QueueManager, q: Queue) -> None:
    peekers = [in_thread(q.peek) for _ in range(3)]
    wait_until_waiting(qm, count=3)
    receivers = [in_thread(lambda: q.receive(timeout=20)) for _ in range(2)]
    wait_until_waiting(qm, count=5)
    q.send("first")
    assert [peeker.result(20).body for peeker in peekers] == ["first"] * 3
    q.send("second")
    assert sorted(str(receiver.result(20).body) for receiver in receivers) == ["first", "second"]


def test_each_message_is_received_once_by_many_threads(qm: QueueManager, q: Queue) -> None:
    """Eight threads share one object and receive what four threads send.

    Nothing is lost and nothing is received twice.
    """
    senders, each, receivers = 4, 100, 8
    found: list[str] = []
    lock = threading.Lock()

    def send(sender: int) -> None:
        for number in range(each):
            q.send(f"{sender} {number}")

    def receive() -> None:
        while True:
            body = str(q.receive(timeout=20).body)
            if body == "end":
                return
            with lock:
                found.append(body)

    with ThreadPoolExecutor(senders + receivers) as pool:
        readers = [pool.submit(receive) for _ in range(receivers)]
        for sender in [pool.submit(send, number) for number in range(senders)]:
            sender.result(60)
        q.send_many([Message(body="end", priority=0)] * receivers)
        for reader in readers:
            reader.result(60)
    assert sorted(found) == sorted(f"{sender} {number}" for sender in range(senders) for number in range(each))
    with runtime_of(qm).lock:
        assert len(operations_of(qm).find("q").open_queue_descriptors) == 2


def test_a_queue_object_is_opened_once_by_many_threads(qm: QueueManager, q: Queue) -> None:
    barrier = threading.Barrier(8)

    def send() -> None:
        barrier.wait(20)
        q.send("x")

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(send) for _ in range(8)]:
            future.result(20)
    with runtime_of(qm).lock:
        assert len(operations_of(qm).find("q").open_queue_descriptors) == 1


# Waits that end otherwise
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("read", [Queue.receive, Queue.peek], ids=["receive", "peek"])
def test_closing_the_queue_ends_the_wait(qm: QueueManager, q: Queue, read: Callable[[Queue], ReceivedMessage]) -> None:
    reader = in_thread(lambda: read(q))
    wait_until_waiting(qm)
    q.close()
    with pytest.raises(OperationCancelled) as raised:
        reader.result(20)
    assert raised.value.status == MQ_ERROR_OPERATION_CANCELLED


def test_closing_another_object_ends_no_wait(qm: QueueManager, q: Queue) -> None:
    other = qm.open("q")
    reader = in_thread(q.receive)
    wait_until_waiting(qm)
    other.peek_by_lookup_id  # noqa: B018 (never used, so never opened)
    other.close()
    del other
    gc.collect()
    q.send("x")
    assert reader.result(20).body == "x"


def test_deleting_the_queue_ends_the_wait(qm: QueueManager, q: Queue) -> None:
    reader = in_thread(q.receive)
    wait_until_waiting(qm)
    qm.delete_queue("q")
    with pytest.raises(QueueNotAvailable) as raised:
        reader.result(20)
    assert raised.value.status == MQ_ERROR_QUEUE_NOT_AVAILABLE


def test_closing_the_queue_manager_ends_every_wait(qm: QueueManager, q: Queue) -> None:
    readers = [in_thread(q.receive), in_thread(q.peek), in_thread(lambda: q.receive(timeout=100))]
    wait_until_waiting(qm, count=3)
    qm.close()
    for reader in readers:
        with pytest.raises(StatusError):
            reader.result(20)


def test_a_wait_that_is_interrupted_leaves_nothing_behind(
    qm: QueueManager, q: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before a message arrives ends the wait. The next message goes to the next reader."""

    def interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        raise Interrupt

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    for read in (q.receive, q.peek, q.cursor().receive):
        with pytest.raises(Interrupt):
            read()
    monkeypatch.undo()
    with runtime_of(qm).lock:
        assert not operations_of(qm).find("q").waiting_reads
    q.send("x")
    assert q.receive(0).body == "x"


@pytest.mark.parametrize("moment", ["before", "after", "removed"])
def test_a_message_that_has_arrived_is_not_lost_by_an_interrupt(
    q: Queue, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Ctrl-C when the message is already ours, but before we have it: it goes back to its place."""
    q_of_sender = q
    original = Read.take

    def sent_then_interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        monkeypatch.setattr(threading.Event, "wait", wait)
        q_of_sender.send_many(["1", "2"])
        assert self.is_set()
        if moment == "before":
            raise Interrupt
        return True

    def interrupted_take(self: Read) -> object:
        if moment == "removed":
            original(self)
        raise Interrupt

    wait = threading.Event.wait
    if moment != "before":
        monkeypatch.setattr(Read, "take", interrupted_take)
    monkeypatch.setattr(threading.Event, "wait", sent_then_interrupted)
    with pytest.raises(Interrupt):
        q.receive()
    monkeypatch.setattr(Read, "take", original)
    assert [message.body for message in q] == ["1", "2"]
    assert [q.receive(0).body, q.receive(0).body] == ["1", "2"]


def test_a_message_given_back_goes_to_who_waits(qm: QueueManager, q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = threading.Event.wait
    main = threading.current_thread()
    other: list[Future[ReceivedMessage]] = []

    def interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is not main:
            return wait(self, timeout)
        monkeypatch.undo()
        other.append(in_thread(lambda: q.receive(timeout=20)))
        wait_until_waiting(qm, count=2)
        q.send("x")  # for the main thread, which was first
        assert self.is_set()
        raise Interrupt

    q.send("open the handles")
    q.receive()
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(Interrupt):
        q.receive()
    assert other[0].result(20).body == "x"


def test_a_queue_closed_when_the_message_has_arrived_loses_nothing(q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = threading.Event.wait

    def closed(self: threading.Event, timeout: float | None = None) -> bool:
        monkeypatch.setattr(threading.Event, "wait", wait)
        q.send("x")
        assert self.is_set()
        q.close()
        return True

    monkeypatch.setattr(threading.Event, "wait", closed)
    with pytest.raises(StatusError):
        q.receive()
    assert q.receive(0).body == "x"


# Cursors and iteration
# --------------------------------------------------------------------------------


def test_a_cursor_walks_and_takes(q: Queue) -> None:
    q.send_many(["1", "2", "3"])
    with q.cursor() as cursor:
        assert cursor.peek(0).body == "1"
        assert cursor.peek(0).body == "1"
        assert cursor.peek_next(0).body == "2"
        assert cursor.receive(0).body == "2"
        assert [message.body for message in q] == ["1", "3"]
        # A receive leaves the cursor before the next message: that one is current now.
        assert cursor.peek(0).body == "3"
        with pytest.raises(IOTimeout) as raised:
            cursor.peek_next(0)
        assert raised.value.status == MQ_ERROR_IO_TIMEOUT
    with q.cursor() as cursor, pytest.raises(StatusError):
        cursor.peek_next(0)


def test_a_cursor_receive_that_finds_nothing(q: Queue) -> None:
    """DECISIONS: at time-out 0 it is 0xC00E0088, a peek 0xC00E001B."""
    with q.cursor() as cursor:
        with pytest.raises(MessageNotFound) as missing:
            cursor.receive(0)
        with pytest.raises(IOTimeout) as late:
            cursor.peek(0)
        with pytest.raises(IOTimeout):
            cursor.receive(0.01)
    assert (missing.value.status, late.value.status) == (MQ_ERROR_MESSAGE_NOT_FOUND, MQ_ERROR_IO_TIMEOUT)


def test_a_cursor_waits_for_the_next_message(qm: QueueManager, q: Queue) -> None:
    q.send("1")
    with q.cursor() as cursor:
        cursor.peek(0)
        reader = in_thread(cursor.peek_next)
        wait_until_waiting(qm)
        q.send("2")
        assert reader.result(20).body == "2"


def test_a_cursor_receive_waits_and_takes(qm: QueueManager, q: Queue) -> None:
    with q.cursor() as cursor:
        reader = in_thread(cursor.receive)
        wait_until_waiting(qm)
        q.send("1")
        assert reader.result(20).body == "1"
    assert q.count() == 0


def test_a_closed_cursor_is_of_no_use(qm: QueueManager, q: Queue) -> None:
    q.send("1")
    cursor = q.cursor()
    reader = in_thread(lambda: (cursor.peek(), cursor.peek_next()))
    wait_until_waiting(qm)
    cursor.close()
    with pytest.raises(StatusError):
        reader.result(20)
    with pytest.raises(StatusError):
        cursor.peek(0)
    cursor.close()


def test_iteration_peeks_at_what_is_there(qm: QueueManager, q: Queue) -> None:
    assert list(q) == []
    q.send_many(["1", "2", "3"])
    assert [message.body for message in q] == [message.body for message in q] == ["1", "2", "3"]
    seen = []
    for message in q:
        seen.append(message.body)
        if message.body == "1":
            q.receive(0)
            q.send("4")
    assert seen == ["1", "2", "3", "4"]
    for _message in q:
        break
    gc.collect()
    with runtime_of(qm).lock:
        assert not any(handle.cursors for handle in operations_of(qm).find("q").open_queue_descriptors.values())


# Transactions
# -----------------------------------------------------------------------------------------


def test_a_read_waits_in_a_transaction(qm: QueueManager, q: Queue) -> None:
    transaction = qm.transaction()
    reader = in_thread(lambda: q.receive(transaction=transaction))
    wait_until_waiting(qm)
    q.send("x")
    assert reader.result(20).body == "x"
    assert q.count() == 1
    transaction.abort()
    assert q.receive(0).body == "x"


def test_an_ended_transaction_waits_for_nothing(qm: QueueManager, q: Queue) -> None:
    transaction = qm.transaction()
    transaction.commit()
    with pytest.raises(TransactionSequence) as raised:
        q.receive(transaction=transaction)
    assert raised.value.status == MQ_ERROR_TRANSACTION_SEQUENCE
