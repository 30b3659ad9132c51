"""The numbers under which a client can give back what its transactions have received."""

from __future__ import annotations

from uuid import uuid4

from lanner.model.directory_objects import Queue
from lanner.model.live import MessagePosition, Record, Transaction
from lanner.services import received_runs
from lanner.services.received_runs import ReceivedRuns


def begun() -> Transaction:
    return Transaction(uuid4(), index=1)


def received(transaction: Transaction, count: int) -> list[MessagePosition]:
    queue = Queue(pathname="ALPHA\\private$\\q")
    return [MessagePosition(queue, number, Record(b""), transaction=transaction) for number in range(count)]


def test_a_number_is_given_back_once_and_ends_with_its_transaction() -> None:
    runs, transaction = ReceivedRuns(), begun()
    positions = received(transaction, 3)
    runs.add(7, positions, transaction)
    assert sorted(runs.numbers) == [7, 8, 9]
    assert runs.pop(8) is positions[1]
    assert runs.pop(8) is None
    runs.forget(transaction)
    assert not runs.numbers


def test_a_number_that_another_transaction_uses_again_is_that_ones() -> None:
    runs, before, after = ReceivedRuns(), begun(), begun()
    runs.add(7, received(before, 2), before)
    # Confirmed: the client may use the number again.
    assert runs.pop(7) is not None
    again = received(after, 1)
    runs.add(7, again, after)
    runs.forget(before)
    assert list(runs.numbers) == [7]
    assert runs.pop(7) is again[0]


def test_the_oldest_messages_are_forgotten_beyond_the_limit() -> None:
    runs, transaction = ReceivedRuns(), begun()
    runs.add(1, received(transaction, 1000), transaction)
    runs.add(2001, received(transaction, 24), transaction)
    assert len(runs.numbers) == 1024
    runs.add(3001, received(transaction, 1), transaction)
    assert len(runs.numbers) == 1024
    assert 1 not in runs.numbers
    assert 2 in runs.numbers
    assert 3001 in runs.numbers


def test_a_transaction_that_receives_and_gives_back_without_end_takes_no_more_memory() -> None:
    runs, transaction = ReceivedRuns(), begun()
    for number in range(5000):
        runs.add(number, received(transaction, 1), transaction)
        assert runs.pop(number) is not None
        (kept,) = runs._runs.values()
        assert len(kept) <= received_runs._MAX_RUNS
