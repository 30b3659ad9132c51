"""Transactions of the Python API: all of it or nothing."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable

import pytest

from lanner.client import Queue, QueueManager, Transaction
from lanner.model.errors import IOTimeout, MessageNotFound, TransactionSequence, TransactionUsage
from tests.statuses import MQ_ERROR_TRANSACTION_SEQUENCE


@pytest.fixture
def ledger(qm: QueueManager) -> Queue:
    return qm.create_queue("ledger", transactional=True)


def bodies(queue: Queue) -> list[object]:
    return [message.body for message in queue]


class MistakeError(Exception):
    pass


def fail_in(qm: QueueManager, work: Callable[[Transaction], object]) -> None:
    def block() -> None:
        with qm.transaction() as transaction:
            work(transaction)
            raise MistakeError

    with pytest.raises(MistakeError):
        block()


def test_a_block_that_ends_commits(qm: QueueManager, ledger: Queue) -> None:
    with qm.transaction() as transaction:
        ledger.send("1", transaction=transaction)
        ledger.send_many(["2", "3"], transaction=transaction)
        assert bodies(ledger) == []
    assert bodies(ledger) == ["1", "2", "3"]
    first, second, third = ledger
    assert [m.is_first_in_transaction for m in (first, second, third)] == [True, False, False]
    assert [m.is_last_in_transaction for m in (first, second, third)] == [False, False, True]
    assert first.is_transactional
    assert first.recoverable


def test_a_block_that_fails_aborts(qm: QueueManager, ledger: Queue) -> None:
    fail_in(qm, lambda transaction: ledger.send("x", transaction=transaction))
    assert bodies(ledger) == []


def test_what_was_received_is_back_after_an_abort(qm: QueueManager, ledger: Queue) -> None:
    with qm.transaction() as transaction:
        ledger.send_many(["1", "2", "3"], transaction=transaction)
    second = ledger.peek_by_lookup_id(ledger.peek(0).lookup_id, "next")

    def take(transaction: Transaction) -> None:
        assert ledger.receive(0, transaction=transaction).body == "1"
        assert ledger.receive_by_lookup_id(second.lookup_id, transaction=transaction).body == "2"
        assert [m.body for m in ledger.receive_many(5, transaction=transaction)] == ["3"]
        with pytest.raises(IOTimeout):
            ledger.receive(0)

    fail_in(qm, take)
    assert bodies(ledger) == ["1", "2", "3"]
    assert [message.abort_count for message in ledger] == [1, 1, 1]


def test_queues_that_take_no_transactions_can_be_received_from_in_one(qm: QueueManager, q: Queue) -> None:
    q.send("x")
    fail_in(qm, lambda transaction: q.receive(0, transaction=transaction))
    assert bodies(q) == ["x"]
    with qm.transaction() as transaction:
        q.receive(0, transaction=transaction)
    assert bodies(q) == []


def test_a_message_is_passed_on_in_one_step(qm: QueueManager, ledger: Queue) -> None:
    other = qm.create_queue("other", transactional=True)
    with qm.transaction() as transaction:
        ledger.send("x", transaction=transaction)
    fail_in(qm, lambda tx: other.send(ledger.receive(0, transaction=tx), transaction=tx))
    assert (bodies(ledger), bodies(other)) == (["x"], [])
    with qm.transaction() as transaction:
        other.send(ledger.receive(0, transaction=transaction), transaction=transaction)
    assert (bodies(ledger), bodies(other)) == ([], ["x"])


def test_a_cursor_receives_in_a_transaction(qm: QueueManager, q: Queue) -> None:
    q.send_many(["1", "2"])
    with q.cursor() as cursor:
        cursor.peek(0)
        cursor.peek_next(0)
        fail_in(qm, lambda transaction: cursor.receive(0, transaction=transaction))
    assert bodies(q) == ["1", "2"]


def test_a_move_in_a_transaction(qm: QueueManager, q: Queue) -> None:
    q.send("x")
    lookup_id = q.peek(0).lookup_id
    fail_in(qm, lambda transaction: q.move(lookup_id, "retry", transaction=transaction))
    assert (bodies(q), bodies(q.subqueue("retry"))) == (["x"], [])
    with qm.transaction() as transaction:
        q.move(lookup_id, "retry", transaction=transaction)
        assert (bodies(q), bodies(q.subqueue("retry"))) == ([], [])
    assert (bodies(q), bodies(q.subqueue("retry"))) == ([], ["x"])


def test_commit_and_abort_can_be_said(qm: QueueManager, ledger: Queue) -> None:
    transaction = qm.transaction()
    assert str(uuid.UUID(transaction.identifier)) == transaction.identifier
    ledger.send("kept", transaction=transaction)
    transaction.commit()
    transaction = qm.transaction()
    ledger.send("lost", transaction=transaction)
    transaction.abort()
    assert bodies(ledger) == ["kept"]


def test_a_block_may_end_its_transaction_itself(qm: QueueManager, ledger: Queue) -> None:
    with qm.transaction() as transaction:
        ledger.send("kept", transaction=transaction)
        transaction.commit()
    with qm.transaction() as transaction:
        ledger.send("lost", transaction=transaction)
        transaction.abort()
    assert bodies(ledger) == ["kept"]


def test_a_transaction_ends_once(qm: QueueManager, ledger: Queue) -> None:
    transaction = qm.transaction()
    transaction.commit()
    for use in (
        transaction.commit,
        transaction.abort,
        lambda: ledger.send("x", transaction=transaction),
        lambda: ledger.send_many(["x"], transaction=transaction),
        lambda: ledger.receive(0, transaction=transaction),
        lambda: ledger.receive_many(1, transaction=transaction),
        lambda: ledger.receive_by_lookup_id(0, "first", transaction=transaction),
        lambda: ledger.move(0, "retry", transaction=transaction),
    ):
        with pytest.raises(TransactionSequence, match=transaction.identifier) as raised:
            use()
        assert raised.value.status == MQ_ERROR_TRANSACTION_SEQUENCE


def test_a_transaction_of_another_queue_manager_is_refused(
    start: Callable[..., QueueManager], qm: QueueManager, ledger: Queue
) -> None:
    other = start("BETA", "other")
    with other.transaction() as transaction, pytest.raises(TransactionUsage, match="another queue manager"):
        ledger.send("x", transaction=transaction)
    assert bodies(ledger) == []


def test_a_transaction_that_is_forgotten_is_aborted(qm: QueueManager, ledger: Queue) -> None:
    with qm.transaction() as transaction:
        ledger.send("x", transaction=transaction)
    forgotten = qm.transaction()
    ledger.receive(0, transaction=forgotten)
    del forgotten, transaction
    gc.collect()
    assert ledger.receive(timeout=20).body == "x"


def test_an_open_transaction_is_aborted_when_the_queue_manager_stops(start: Callable[..., QueueManager]) -> None:
    qm = start()
    ledger = qm.create_queue("ledger", transactional=True)
    with qm.transaction() as transaction:
        ledger.send("kept", transaction=transaction)
    transaction = qm.transaction()
    ledger.receive(0, transaction=transaction)
    ledger.send("lost", transaction=transaction)
    qm.close()
    assert bodies(start().open("ledger")) == ["kept"]


def test_an_error_in_a_block_is_reported_even_when_the_queue_manager_has_stopped(qm: QueueManager) -> None:
    fail_in(qm, lambda _: qm.close())


def test_what_is_not_there_is_reported(qm: QueueManager, q: Queue) -> None:
    with qm.transaction() as transaction:
        with pytest.raises(IOTimeout):
            q.receive(0, transaction=transaction)
        with pytest.raises(MessageNotFound):
            q.receive_by_lookup_id(5, transaction=transaction)
        assert q.receive_many(5, transaction=transaction) == []
