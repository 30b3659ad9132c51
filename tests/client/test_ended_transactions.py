"""What happens to reads and sends that meet a transaction which ends meanwhile, or a reader who goes away."""

from __future__ import annotations

import threading

import pytest

from lanner.client import Queue, QueueManager
from lanner.client.operations import Waiting
from lanner.model.enums import QueueAccessType
from lanner.model.errors import StatusError, TransactionSequence


@pytest.fixture
def tq(qm: QueueManager) -> Queue:
    return qm.create_queue("t", transactional=True)


def send(qm: QueueManager, queue: Queue, body: bytes) -> None:
    with qm.transaction() as tx:
        queue.send(body, transaction=tx)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_read_that_waits_in_a_transaction_ends_with_it(qm: QueueManager, tq: Queue, end: str) -> None:
    """A message that came later would be locked by a transaction that nobody can end."""
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
    while not tq.attributes.waiting_reads:
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
    with qm.transaction() as tx:
        handle = tq.handle(QueueAccessType.RECEIVE)
        waiting = qm.operations.receive(handle, None, transaction=tx.inner(qm.operations))
        assert isinstance(waiting, Waiting)
        send(qm, tq, b"unseen")
        assert waiting.is_over
        waiting.abandon()
    assert tq.receive(0).body == b"unseen"


def test_nothing_joins_a_transaction_that_ended_meanwhile(qm: QueueManager, tq: Queue) -> None:
    """Two threads share it: one is about to send when the other commits."""
    send(qm, tq, b"one")
    lookup_id = tq.peek(0).lookup_id
    tx = qm.transaction()
    joined = tx.inner(qm.operations)
    tx.commit()
    operations = qm.operations
    receiving, moving = tq.handle(QueueAccessType.RECEIVE), tq.handle(QueueAccessType.MOVE)
    target = tq.subqueue("s").handle(QueueAccessType.MOVE)
    before = tq.attributes.total_bytes
    for attempt in (
        lambda: operations.send(tq.handle(QueueAccessType.SEND), b"lost", joined),
        lambda: operations.receive(receiving, 0, transaction=joined),
        lambda: operations.receive_many(receiving, 1, joined),
        lambda: operations.by_lookup_id(receiving, lookup_id, "current", is_peek=False, transaction=joined),
        lambda: operations.move(moving, lookup_id, target, joined),
    ):
        with pytest.raises(TransactionSequence, match="has ended"):
            attempt()
    assert tq.attributes.total_bytes == before
    assert tq.receive(0).body == b"one"
