"""Reads and sends when their transaction ends meanwhile or a reader disconnects."""

from __future__ import annotations

import threading

import pytest

from lanner.client import Message, Queue, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.host.operations import milliseconds
from lanner.model.enums import QueueAccessType
from lanner.model.errors import StatusError, TransactionSequence
from tests.client.conftest import handle_of, inner_of


@pytest.fixture
def tq(qm: QueueManager) -> Queue:
    return qm.create_queue("t", transactional=True)


def send(qm: QueueManager, queue: Queue, body: bytes) -> None:
    with qm.transaction() as tx:
        queue.send(body, transaction=tx)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_read_that_waits_in_a_transaction_ends_with_it(qm: QueueManager, tq: Queue, end: str) -> None:
    """A message that came later would be locked by a transaction that can no longer end."""
    tx = qm.transaction()
    errors: list[StatusError] = []
    is_waiting = threading.Event()

    def read() -> None:
        is_waiting.set()
        try:
            tq.receive(10, transaction=tx)
        except StatusError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    is_waiting.wait()
    while not tq.attributes().waiting_reads:
        pass
    getattr(tx, end)()
    reader.join()
    assert [type(error) for error in errors] == [TransactionSequence]
    send(qm, tq, b"later")
    assert tq.receive(0).body == b"later"


def test_a_wait_that_is_given_up_after_its_message_came_takes_it_out_of_the_transaction(
    qm: QueueManager, tq: Queue
) -> None:
    """The commit that follows must not remove a message that the program never saw."""
    operations = operations_of(qm)
    with qm.transaction() as tx:
        handle = handle_of(tq, QueueAccessType.RECEIVE)
        read = operations.receive(handle, milliseconds(None), transaction=inner_of(tx))
        was_waiting = read.is_waiting
        send(qm, tq, b"unseen")
        assert (was_waiting, read.is_waiting) == (True, False)
        read.abandon()
    assert tq.receive(0).body == b"unseen"


def test_nothing_joins_a_transaction_that_ended_meanwhile(qm: QueueManager, tq: Queue) -> None:
    """Two threads share it: one is about to send when the other commits."""
    send(qm, tq, b"one")
    lookup_id = tq.peek(0).lookup_id
    tx = qm.transaction()
    joined = inner_of(tx)
    tx.commit()
    engine, operations = runtime_of(qm).engine, operations_of(qm)
    sending, receiving = handle_of(tq, QueueAccessType.SEND), handle_of(tq, QueueAccessType.RECEIVE)
    moving, target = handle_of(tq, QueueAccessType.MOVE), handle_of(tq.subqueue("s"), QueueAccessType.MOVE)
    properties = Message(body=b"lost").properties(qm.names)
    before = tq.attributes().total_bytes
    for attempt in (
        lambda: operations.send(sending, properties, joined),
        lambda: operations.send_many(sending, [properties], [], joined),
        lambda: operations.receive(receiving, 0, transaction=joined),
        lambda: engine.try_dequeue_message(receiving, joined),
        lambda: engine.dequeue_messages(receiving, 1, 1, joined),
        lambda: operations.look_up(receiving, lookup_id, "current", is_peek=False, transaction=joined),
        lambda: operations.move(moving, lookup_id, target, joined),
    ):
        with pytest.raises(TransactionSequence, match="has ended"):
            attempt()
    assert tq.attributes().total_bytes == before
    assert tq.receive(0).body == b"one"
