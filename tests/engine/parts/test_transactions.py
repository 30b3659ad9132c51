"""Transactions alone: what commit, abort and prepare do with each kind of operation."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import cast

import pytest

from lanner.engine.arrivals import Arrivals
from lanner.engine.moving import Moving
from lanner.engine.outgoing_sequences import OutgoingSequences
from lanner.engine.positions import Positions
from lanner.engine.tables import TRANSACTIONS
from lanner.engine.transactions import Transactions
from lanner.model.directory_objects import Queue
from lanner.model.enums import MessageClass, OperationType, PositionState
from lanner.model.errors import TransactionSequence
from lanner.model.live import MessagePosition, Record, Transaction, TransactionalOperation
from lanner.wire.envelope import Envelope
from tests.engine.parts.fakes import World


class FakeArrivals:
    def __init__(self) -> None:
        self.arrived: list[tuple[Queue, int, Record]] = []

    def arrive_run(self, queue: Queue, first: int, records: Sequence[Record], envelope: Envelope) -> None:
        assert envelope.is_transactional
        self.arrived += [(queue, first + index, record) for index, record in enumerate(records)]


class FakeMoving:
    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self.moved: list[tuple[MessagePosition, Queue]] = []

    def move_now(self, position: MessagePosition, target: Queue) -> None:
        self.moved.append((position, target))


class FakeSequences:
    def __init__(self) -> None:
        self.numbered: list[MessagePosition] = []

    def take_numbers(self, _queue: Queue, positions: Sequence[MessagePosition]) -> None:
        self.numbered += positions


class Bench:
    def __init__(self, world: World) -> None:
        self.world = world
        self.arrivals, self.moving, self.sequences = FakeArrivals(), FakeMoving(world.positions), FakeSequences()
        self.transactions = self.made()
        self.transaction: Transaction = self.transactions.create_transaction(uuid.uuid4())
        self.deleted: list[tuple[MessagePosition, MessageClass]] = []
        world.positions.deleted_subscribers.append(lambda _, gone, reason: self.deleted.append((gone, reason)))

    def made(self) -> Transactions:
        return Transactions(
            self.world.core,
            cast(Arrivals, self.arrivals),
            cast(Moving, self.moving),
            cast(OutgoingSequences, self.sequences),
        )

    def join(self, kind: OperationType, position: MessagePosition, target: Queue | None = None) -> MessagePosition:
        position.transaction = self.transaction
        self.world.positions.lock(position)
        operation = TransactionalOperation(kind, position, target_queue=target)
        self.transaction.transactional_operations.append(operation)
        return position

    def sent(self, queue: Queue) -> MessagePosition:
        position = self.world.position(queue, is_transactional=True)
        position.is_uncommitted_send = True
        return self.join(OperationType.ENQUEUE, position)

    def received(self, queue: Queue) -> MessagePosition:
        return self.join(OperationType.DEQUEUE, self.world.put(queue, is_transactional=True))


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def test_a_commit_delivers_sends_removes_receives_and_moves(bench: Bench) -> None:
    queue, target, outgoing = bench.world.queue(), bench.world.queue("target"), bench.world.outgoing()
    sent, away = bench.sent(queue), bench.sent(outgoing)
    received = bench.received(queue)
    moved = bench.join(OperationType.MOVE, bench.world.put(queue, is_transactional=True), target)
    bench.transactions.transaction_commit(bench.transaction.identifier)
    assert bench.arrivals.arrived == [(each.queue, each.lookup_id, each.record) for each in (sent, away)]
    assert bench.sequences.numbered == [away], "only messages for other computers are in a sequence"
    assert bench.deleted == [(received, MessageClass.ACK_RECEIVE)]
    assert bench.moving.moved == [(moved, target)]
    assert bench.world.queue_manager.transaction_collection == {}


def test_an_abort_drops_sends_and_gives_receives_back(bench: Bench) -> None:
    queue = bench.world.queue()
    sent, received = bench.sent(queue), bench.received(queue)
    bench.transactions.transaction_abort(bench.transaction.identifier)
    assert (sent.state, received.state) == (PositionState.DELETED, PositionState.AVAILABLE)
    assert received.record.abort_count == 1
    assert (bench.deleted, bench.arrivals.arrived, queue.held_positions) == ([], [], {})


def test_a_transaction_ends_once(bench: Bench) -> None:
    bench.transactions.transaction_commit(bench.transaction.identifier)
    assert bench.transaction.is_over
    with pytest.raises(TransactionSequence):
        bench.transactions.transaction_abort(bench.transaction.identifier)


def test_an_identifier_is_open_once(bench: Bench) -> None:
    with pytest.raises(TransactionSequence):
        bench.transactions.create_transaction(bench.transaction.identifier)


def test_a_prepared_transaction_is_recovered_with_its_operations(bench: Bench) -> None:
    queue = bench.world.queue()
    sent, received = bench.sent(queue), bench.received(queue)
    bench.transactions.transaction_prepare(bench.transaction.identifier, single_phase=False)
    assert len(bench.world.fake.table(TRANSACTIONS).rows) == 1
    # A restart: nothing of it is in memory.
    bench.world.queue_manager.transaction_collection.clear()
    queue.held_positions.clear()
    again = bench.made()
    again.recover_prepared()
    (transaction,) = bench.world.queue_manager.transaction_collection.values()
    assert transaction.is_prepared
    assert [operation.message_position.lookup_id for operation in transaction.transactional_operations] == [
        sent.lookup_id,
        received.lookup_id,
    ]
    assert set(queue.held_positions) == {sent.lookup_id, received.lookup_id}
    again.transaction_abort(transaction.identifier)
    assert bench.world.fake.table(TRANSACTIONS).rows == {}
    assert not bench.world.fake.contains(queue.number, sent.lookup_id)
    assert bench.world.fake.contains(queue.number, received.lookup_id)


def test_a_prepare_that_a_failing_store_has_undone_is_none(bench: Bench) -> None:
    bench.transactions.transaction_prepare(bench.transaction.identifier, single_phase=False)
    bench.world.fake.table(TRANSACTIONS).rows.clear()
    bench.transactions.go_back()
    assert (bench.transaction.is_prepared, bench.transaction.single_phase) == (False, True)


def test_a_stop_aborts_what_is_not_prepared(bench: Bench) -> None:
    prepared = bench.transactions.create_transaction(uuid.uuid4())
    bench.transactions.transaction_prepare(prepared.identifier, single_phase=False)
    bench.transactions.abort_unprepared()
    assert list(bench.world.queue_manager.transaction_collection) == [prepared.identifier]
