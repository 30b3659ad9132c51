"""Units of work: create, prepare, commit and abort (MS-MQDMPR 3.1.4.3-3.1.4.5, 3.1.7.1.8)."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from lanner.model.enums import MessageClass, OperationType, PositionState, QueueAccessType
from lanner.model.live import Transaction
from tests.engine.harness import Harness, Reader, body_of, status_of
from tests.statuses import MQ_ERROR_TRANSACTION_SEQUENCE


@pytest.fixture
def t(h: Harness) -> Harness:
    """With a transactional queue "t"."""
    h.create("t", transactional=True)
    return h


def send_committed(h: Harness, *bodies: bytes, name: str = "t") -> None:
    transaction = h.begin()
    for body in bodies:
        h.send(name, body, transaction=transaction)
    h.commit(transaction)


def flags(h: Harness, name: str = "t") -> list[tuple[bytes, bool, bool]]:
    """(body, FirstInTransaction, LastInTransaction) of what the queue holds, which is taken."""
    return [(m.body, m.first_in_transaction, m.last_in_transaction) for m in h.messages(name)]


def move(
    h: Harness, body: bytes, transaction: Transaction | None = None, name: str = "t", target: str = "t;sub"
) -> None:
    source = h.open(name, QueueAccessType.MOVE)
    to = h.open(target, QueueAccessType.MOVE)
    h.engine.move_message_by_lookup_identifier(source, h.lookup_ids(name)[body], to, transaction)
    h.engine.close_queue(source)
    h.engine.close_queue(to)


# Create (3.1.7.1.8)
# ---------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.8-1")
def test_a_new_transaction_is_in_the_collection_and_has_no_operations(h: Harness) -> None:
    """Create Transaction adds a Transaction with the given identifier and returns it."""
    identifier = uuid.uuid4()
    transaction = h.engine.create_transaction(identifier)
    assert transaction.identifier == identifier
    assert transaction.transactional_operations == []
    assert h.engine.queue_manager.transaction_collection == {identifier: transaction}


# Prepare (3.1.4.3)
# ----------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.4.3-1")
def test_prepare_of_a_known_transaction_stores_single_phase(t: Harness) -> None:
    """The argument iSinglePhase is stored; its default is True."""
    one, two = t.begin(), t.begin()
    one.single_phase = False
    t.engine.transaction_prepare(one.identifier)
    assert one.single_phase is True
    t.engine.transaction_prepare(two.identifier, single_phase=False)
    assert two.single_phase is False
    assert set(t.engine.queue_manager.transaction_collection) == {one.identifier, two.identifier}


@pytest.mark.spec("DMPR-3.1.4.3-1")
def test_prepare_of_an_unknown_transaction_changes_nothing(t: Harness) -> None:
    """MQ_ERROR_TRANSACTION_SEQUENCE, and no Transaction comes into being or is touched."""
    other = t.begin()
    t.send("t", b"other", transaction=other)
    for single_phase in (True, False):
        prepare = partial(t.engine.transaction_prepare, uuid.uuid4(), single_phase=single_phase)
        assert status_of(prepare) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert t.engine.queue_manager.transaction_collection == {other.identifier: other}
    assert (other.single_phase, other.is_prepared) == (True, False)
    assert [operation.message_position.state for operation in other.transactional_operations] == [PositionState.LOCKED]


@pytest.mark.spec("DMPR-3.1.4.3-2")
@pytest.mark.parametrize("single_phase", [True, False])
def test_prepare_marks_the_first_and_the_last_message_that_was_sent(t: Harness, *, single_phase: bool) -> None:
    """FM and LM count sent messages.

    Receives at both ends of the transaction do not get the flags.
    """
    t.create("source", transactional=True)
    send_committed(t, b"received first", b"received last", name="source")
    transaction = t.begin()
    t.receive("source", transaction)
    for body in (b"a", b"b", b"c"):
        t.send("t", body, transaction=transaction)
    t.receive("source", transaction)
    sends = [
        operation.message_position
        for operation in transaction.transactional_operations
        if operation.operation_type is OperationType.ENQUEUE
    ]
    assert len(transaction.transactional_operations) == 5
    before = [position.record.packet for position in sends]
    t.engine.transaction_prepare(transaction.identifier, single_phase=single_phase)
    after = [position.record.packet for position in sends]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, False]
    t.commit(transaction)
    assert flags(t) == [(b"a", True, False), (b"b", False, False), (b"c", False, True)]


@pytest.mark.spec("DMPR-3.1.4.3-2")
@pytest.mark.parametrize("single_phase", [True, False])
def test_prepare_of_a_transaction_without_operations_is_no_error(t: Harness, *, single_phase: bool) -> None:
    """Nothing to flag; the commit that follows works too."""
    transaction = t.begin()
    t.engine.transaction_prepare(transaction.identifier, single_phase=single_phase)
    t.commit(transaction)
    assert t.bodies("t") == []


@pytest.mark.spec("DMPR-3.1.4.3-2")
def test_a_transaction_that_only_receives_is_prepared_without_flags(t: Harness) -> None:
    send_committed(t, b"x", b"y", b"z")
    transaction = t.begin()
    t.receive("t", transaction)
    t.engine.transaction_prepare(transaction.identifier)
    (operation,) = transaction.transactional_operations
    assert body_of(operation.message_position) == b"x"
    t.abort(transaction)
    # x keeps the flags of the transaction that sent it, and gets no LastInTransaction.
    assert flags(t)[0] == (b"x", True, False)


# Commit (3.1.4.4)
# -----------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.4.4-1")
def test_commit_removes_the_transaction_with_its_operations(t: Harness) -> None:
    transaction = t.begin()
    t.send("t", b"a", transaction=transaction)
    t.commit(transaction)
    assert t.engine.queue_manager.transaction_collection == {}
    assert transaction.transactional_operations == []


@pytest.mark.spec("DMPR-3.1.4.4-1")
def test_commit_of_an_unknown_or_finished_transaction_changes_nothing(t: Harness) -> None:
    """MQ_ERROR_TRANSACTION_SEQUENCE: never begun, committed before, aborted before."""
    committed, aborted, other = t.begin(), t.begin(), t.begin()
    for transaction in (committed, aborted, other):
        t.send("t", transaction.identifier.bytes, transaction=transaction)
    t.commit(committed)
    t.abort(aborted)
    totals = (t.queue("t").total_bytes, t.queue("t").message_count)
    for identifier in (uuid.uuid4(), committed.identifier, aborted.identifier):
        assert status_of(partial(t.engine.transaction_commit, identifier)) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert t.bodies("t") == [committed.identifier.bytes]
    assert (t.queue("t").total_bytes, t.queue("t").message_count) == totals
    assert t.engine.queue_manager.transaction_collection == {other.identifier: other}


@pytest.mark.spec("DMPR-3.1.4.4-2")
def test_commit_without_prepare_marks_first_and_last(t: Harness) -> None:
    """MS-MQMP commits internal transactions without raising Prepare."""
    send_committed(t, b"a", b"b", b"c")
    send_committed(t, b"alone")
    assert flags(t) == [(b"a", True, False), (b"b", False, False), (b"c", False, True), (b"alone", True, True)]


@pytest.mark.spec("DMPR-3.1.4.4-2")
def test_first_and_last_are_counted_over_all_queues_of_the_transaction(t: Harness) -> None:
    t.create("u", transactional=True)
    transaction = t.begin()
    t.send("u", b"a", transaction=transaction)
    t.send("t", b"b", transaction=transaction)
    t.send("u", b"c", transaction=transaction)
    t.commit(transaction)
    assert flags(t, "u") == [(b"a", True, False), (b"c", False, True)]
    assert flags(t, "t") == [(b"b", False, False)]


@pytest.mark.spec("DMPR-3.1.4.4-3")
def test_commit_makes_sent_messages_available_and_wakes_a_waiting_reader(t: Harness) -> None:
    descriptor = t.open("t")
    reader = Reader()
    t.engine.dequeue_message(descriptor, on_end=reader)
    transaction = t.begin()
    t.send("t", b"a", transaction=transaction)
    t.send("t", b"b", transaction=transaction)
    assert reader.ends == []
    assert t.bodies("t") == []
    t.commit(transaction)
    assert reader.body == b"a"
    assert len(reader.ends) == 1
    assert t.bodies("t") == [b"b"]


@pytest.mark.spec("DMPR-3.1.4.4-4")
def test_commit_removes_received_messages_and_reports_the_receive(t: Harness) -> None:
    send_committed(t, b"a", b"b")
    removals = t.removals()
    transaction = t.begin()
    assert t.receive("t", transaction) == b"a"
    assert removals == []
    t.commit(transaction)
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    assert t.bodies("t") == [b"b"]
    t.restart()
    assert t.bodies("t") == [b"b"]


@pytest.mark.spec("DMPR-3.1.4.4-4")
def test_a_committed_receive_stays_a_receive_when_a_purge_came_meanwhile(t: Harness) -> None:
    """A committed message was received: AckReceive, not NackQueuePurged."""
    send_committed(t, b"a")
    removals = t.removals()
    transaction = t.begin()
    t.receive("t", transaction)
    t.engine.purge_queue(t.queue("t"))
    t.commit(transaction)
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    assert (t.queue("t").message_count, t.queue("t").total_bytes) == (0, 0)


@pytest.mark.spec("DMPR-3.1.4.4-4")
def test_commit_reports_the_reason_that_the_operation_carries(t: Harness) -> None:
    """DequeueReason: a sent message that expired before the commit.

    It is removed with NackReceiveTimeout.
    """
    removals = t.removals()
    transaction = t.begin()
    t.send("t", b"late", transaction=transaction, time_to_be_received=10)
    t.send("t", b"in time", transaction=transaction)
    t.tick(11)
    assert removals == []
    t.commit(transaction)
    assert removals == [(b"late", MessageClass.NACK_RECEIVE_TIMEOUT)]
    assert t.bodies("t") == [b"in time"]


@pytest.mark.spec("DMPR-3.1.4.4-5")
def test_commit_of_a_move_takes_the_message_over(t: Harness) -> None:
    """The source position is Deleted, and the same message is Available in the target."""
    send_committed(t, b"a", b"b")
    lookup_id = t.lookup_ids("t")[b"a"]
    packet = t.engine.store.get(t.queue("t").number, lookup_id).packet  # type: ignore[union-attr]
    total = t.engine.queue_manager.total_bytes
    removals = t.removals()
    transaction = t.begin()
    move(t, b"a", transaction)
    (operation,) = transaction.transactional_operations
    position = operation.message_position
    assert (position.state, t.bodies("t"), t.bodies("t;sub")) == (PositionState.LOCKED, [b"b"], [])
    reader = Reader()
    t.engine.peek_message(t.open("t;sub", QueueAccessType.PEEK), on_end=reader)
    t.commit(transaction)
    assert position.state is PositionState.DELETED
    assert (t.bodies("t"), t.bodies("t;sub"), reader.body) == ([b"b"], [b"a"], b"a")
    assert removals == []
    assert t.messages("t;sub")[0].packet == packet
    assert t.engine.queue_manager.total_bytes == total - len(packet)
    assert (t.queue("t").message_count, t.queue("t;sub").message_count) == (1, 0)


@pytest.mark.spec("DMPR-3.1.4.4-5")
def test_a_moved_message_takes_the_place_that_the_order_of_messages_gives_it(h: Harness) -> None:
    """Priority first, then the order of arrival at the queue, whenever each was moved."""
    h.create()
    for priority, body in ((3, b"first"), (3, b"second"), (7, b"urgent")):
        h.send(body=body, priority=priority)
    for body in (b"second", b"first", b"urgent"):
        transaction = h.begin()
        move(h, body, transaction, name="q", target="q;sub")
        h.commit(transaction)
    assert h.bodies("q;sub") == [b"urgent", b"first", b"second"]


# Abort (3.1.4.5)
# ------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.4.5-1")
def test_abort_of_an_unknown_or_finished_transaction_is_refused(t: Harness) -> None:
    committed, aborted = t.begin(), t.begin()
    t.send("t", b"kept", transaction=committed)
    t.commit(committed)
    t.abort(aborted)
    for identifier in (uuid.uuid4(), committed.identifier, aborted.identifier):
        assert status_of(partial(t.engine.transaction_abort, identifier)) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert t.bodies("t") == [b"kept"]


@pytest.mark.spec("DMPR-3.1.4.5-1")
def test_abort_removes_the_transaction(t: Harness) -> None:
    transaction, other = t.begin(), t.begin()
    t.send("t", b"a", transaction=transaction)
    t.abort(transaction)
    assert t.engine.queue_manager.transaction_collection == {other.identifier: other}


@pytest.mark.spec("DMPR-3.1.4.5-2")
def test_abort_returns_received_messages_to_their_places(t: Harness) -> None:
    """Received ones are Available again, in the old order."""
    send_committed(t, b"a", b"b", b"c")
    before = t.lookup_ids("t")
    removals = t.removals()
    transaction = t.begin()
    assert [t.receive("t", transaction), t.receive("t", transaction)] == [b"a", b"b"]
    assert t.bodies("t") == [b"c"]
    t.abort(transaction)
    assert t.lookup_ids("t") == before
    assert t.bodies("t") == [b"a", b"b", b"c"]
    # Each abort is counted, and only for what it gives back.
    assert [each.record.abort_count for each in t.engine.positions.all_positions(t.queue("t"))] == [1, 1, 0]
    assert removals == []
    assert t.queue("t").message_count == 3


@pytest.mark.spec("DMPR-3.1.4.5-2")
def test_abort_returns_moved_messages_to_the_source(t: Harness) -> None:
    send_committed(t, b"a", b"b", b"c")
    before = t.lookup_ids("t")
    transaction = t.begin()
    move(t, b"b", transaction)
    t.abort(transaction)
    assert (t.lookup_ids("t"), t.bodies("t;sub")) == (before, [])


@pytest.mark.spec("DMPR-3.1.4.5-2")
@pytest.mark.parametrize("moved", [True, False])
def test_abort_wakes_a_waiting_reader(t: Harness, *, moved: bool) -> None:
    send_committed(t, b"a")
    transaction = t.begin()
    if moved:
        move(t, b"a", transaction)
    else:
        t.receive("t", transaction)
    reader = Reader()
    t.engine.dequeue_message(t.open("t"), on_end=reader)
    assert reader.ends == []
    t.abort(transaction)
    assert reader.body == b"a"


@pytest.mark.spec("DMPR-3.1.4.5-3")
@pytest.mark.parametrize("moved", [True, False])
def test_abort_deletes_what_was_purged_meanwhile(t: Harness, *, moved: bool) -> None:
    """A PurgePending position of a Dequeue or Move is deleted with NackQueuePurged.

    It is not released.
    """
    send_committed(t, b"a")
    removals = t.removals()
    transaction = t.begin()
    if moved:
        move(t, b"a", transaction)
    else:
        t.receive("t", transaction)
    t.engine.purge_queue(t.queue("t"))
    reader = Reader()
    t.engine.dequeue_message(t.open("t"), on_end=reader)
    assert removals == []
    t.abort(transaction)
    assert removals == [(b"a", MessageClass.NACK_QUEUE_PURGED)]
    assert (reader.ends, t.bodies("t"), t.bodies("t;sub")) == ([], [], [])
    assert (t.queue("t").message_count, t.queue("t").total_bytes) == (0, 0)
    t.restart()
    assert t.bodies("t") == []


@pytest.mark.spec("DMPR-3.1.4.5-4")
def test_abort_lets_sent_messages_vanish(t: Harness) -> None:
    """Their positions and bytes are removed, no reader sees them and no waiting reader is woken."""
    queue = t.queue("t")
    before = (queue.total_bytes, queue.message_count, t.engine.queue_manager.total_bytes)
    removals = t.removals()
    reader, peeker = Reader(), Reader()
    t.engine.dequeue_message(t.open("t"), on_end=reader)
    t.engine.peek_message(t.open("t", QueueAccessType.PEEK), on_end=peeker)
    transaction = t.begin()
    t.send("t", b"a", transaction=transaction)
    t.send("t", b"b", transaction=transaction)
    (position, _) = [operation.message_position for operation in transaction.transactional_operations]
    assert queue.total_bytes > before[0]
    t.abort(transaction)
    assert (queue.total_bytes, queue.message_count, t.engine.queue_manager.total_bytes) == before
    assert position.state is PositionState.DELETED
    assert (queue.held_positions, t.bodies("t"), removals) == ({}, [], [])
    assert (reader.ends, peeker.ends) == ([], [])


# Over a crash
# ---------------------------------------------------------------------------------------------


def test_a_crash_aborts_what_was_not_prepared_for_two_phases(t: Harness) -> None:
    """3.1.3: SinglePhase transactions end with the process, also when they were prepared."""
    send_committed(t, b"received")
    transaction = t.begin()
    t.receive("t", transaction)
    t.send("t", b"sent", transaction=transaction)
    t.engine.transaction_prepare(transaction.identifier)
    t.sync()
    t.crash()
    assert t.engine.queue_manager.transaction_collection == {}
    assert t.bodies("t") == [b"received"]


def test_commit_is_all_or_nothing_on_disk(t: Harness) -> None:
    """A crash before the sync undoes the whole commit, one after it undoes nothing."""
    send_committed(t, b"in")
    t.sync()
    for synced in (False, True):
        transaction = t.begin()
        assert t.receive("t", transaction) == b"in"
        t.send("t", b"out", transaction=transaction)
        t.commit(transaction)
        if synced:
            t.sync()
        t.crash()
        assert t.bodies("t") == ([b"out"] if synced else [b"in"])
