"""Moving a message between queues (MS-MQDMPR 3.1.7.1.16)."""

from __future__ import annotations

import pytest

from lanner.model.directory_objects import Queue
from lanner.model.enums import Acknowledgements, MessageClass, OperationType, PositionState, QueueAccessType
from lanner.model.errors import TransactionUsage
from lanner.model.live import MessagePosition, Transaction
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.engine.harness import Harness, Reader, body_of

SUBQUEUE = "q;sub"


def create(h: Harness, *, transactional: bool = False, **attributes: object) -> None:
    """A queue, its subqueue, and a queue for acknowledgments."""
    h.create("q", transactional=transactional, **attributes)  # type: ignore[arg-type] # the test's own choice
    h.create("admin")
    h.open(SUBQUEUE, QueueAccessType.MOVE)


def position_of(h: Harness, body: bytes, name: str = "q") -> MessagePosition:
    return next(p for p in h.engine.positions.all_positions(h.queue(name)) if body_of(p) == body)


def move(
    h: Harness, body: bytes, source: str = "q", target: str = SUBQUEUE, transaction: Transaction | None = None
) -> MessagePosition:
    """Through the handles a program would use."""
    return h.engine.move_message_by_lookup_identifier(
        h.open(source, QueueAccessType.MOVE),
        h.lookup_ids(source)[body],
        h.open(target, QueueAccessType.MOVE),
        transaction,
    )


def journal_of(h: Harness, name: str = "q") -> Queue:
    journal = h.queue(name).journal_queue
    assert journal is not None
    return journal


def commit_send(h: Harness, *bodies: bytes, **properties: object) -> None:
    transaction = h.begin()
    for body in bodies:
        h.send(body=body, transaction=transaction, **properties)  # type: ignore[arg-type] # the test's own choice
    h.commit(transaction)


@pytest.mark.spec("DMPR-3.1.7.1.16-1")
def test_a_moved_message_is_in_the_target_and_nowhere_else(h: Harness) -> None:
    """3.1.7.1.16: State Deleted in the source, Available in the target.

    The message is unchanged and in the normal order there.
    """
    create(h)
    for body, priority in ((b"low", 1), (b"a", 3), (b"b", 3), (b"high", 7)):
        h.send(body=body, priority=priority, label=body.decode())
    packets = {body_of(p): p.record.packet for p in h.engine.positions.all_positions(h.queue())}
    for body in (b"low", b"b", b"high", b"a"):
        source = move(h, body)
        assert source.state is PositionState.DELETED
    assert h.bodies() == []
    assert h.bodies(SUBQUEUE) == [b"high", b"a", b"b", b"low"]
    assert {body_of(p): p.record.packet for p in h.engine.positions.all_positions(h.queue(SUBQUEUE))} == packets
    h.restart()
    assert (h.bodies(), h.bodies(SUBQUEUE)) == ([], [b"high", b"a", b"b", b"low"])


@pytest.mark.spec("DMPR-3.1.7.1.16-1")
def test_a_move_wakes_a_reader_of_the_target(h: Harness) -> None:
    """3.1.7.1.16: Message Position Available on a target that is no System queue."""
    create(h)
    reader = Reader()
    h.engine.dequeue_message(h.open(SUBQUEUE), on_end=reader)
    h.send(body=b"a")
    move(h, b"a")
    assert (reader.body, h.bodies(SUBQUEUE)) == (b"a", [])


@pytest.mark.spec("DMPR-3.1.7.1.16-1")
def test_an_express_message_stays_express_when_it_is_moved(h: Harness) -> None:
    """3.1.7.1.16: unchanged; so it does not outlive a restart in the target either."""
    create(h)
    h.send(body=b"express", recoverable=False)
    h.send(body=b"kept")
    move(h, b"express")
    move(h, b"kept")
    assert h.bodies(SUBQUEUE) == [b"express", b"kept"]
    h.restart()
    assert (h.bodies(SUBQUEUE), h.queue(SUBQUEUE).message_count) == ([b"kept"], 1)


@pytest.mark.spec("DMPR-3.1.7.1.16-2")
def test_a_move_to_a_system_queue_wakes_nobody(h: Harness) -> None:
    """3.1.7.1.16: no Message Position Available there; the message can be read all the same."""
    create(h)
    available: list[bytes] = []
    h.send(body=b"a")
    h.engine.position_available_subscribers.append(
        lambda queue, first, records: available.append(body_of(MessagePosition(queue, first, records[0])))
    )
    journal, reader = journal_of(h), Reader()
    h.engine.dequeue_message(h.open(r"DIRECT=OS:.\private$\q;journal"), on_end=reader)
    h.engine.move_message(position_of(h, b"a"), journal)
    assert (available, reader.ends) == ([], [])
    assert (h.bodies(), h.bodies(r"DIRECT=OS:.\private$\q;journal")) == ([], [b"a"])


@pytest.mark.spec("DMPR-3.1.7.1.16-2")
def test_an_old_message_moved_to_a_system_queue_is_found_there(h: Harness) -> None:
    """3.1.1.2 MessagePositionList: the message takes its place by age.

    It precedes newer messages that a reader has already seen.
    """
    create(h)
    name = r"DIRECT=OS:.\private$\q;journal"
    for body in (b"old", b"new", b"newest"):
        h.send(body=body)
    h.engine.move_message(position_of(h, b"newest"), journal_of(h))
    h.engine.move_message(position_of(h, b"new"), journal_of(h))
    assert h.bodies(name) == [b"new", b"newest"]
    h.engine.move_message(position_of(h, b"old"), journal_of(h))
    assert h.bodies(name) == [b"old", b"new", b"newest"]


@pytest.mark.spec("DMPR-3.1.7.1.16-2")
def test_a_move_to_a_system_queue_takes_no_transaction(h: Harness) -> None:
    """3.1.7.1.16: iTransaction MUST NOT be supplied if the target's QueueType is System."""
    create(h)
    h.send(body=b"a")
    transaction = h.begin()
    with pytest.raises(TransactionUsage):
        h.engine.move_message(position_of(h, b"a"), journal_of(h), transaction)
    assert (h.bodies(), transaction.transactional_operations) == ([b"a"], [])


@pytest.mark.spec("DMPR-3.1.7.1.16-3")
@pytest.mark.parametrize("commits", [True, False])
def test_a_move_in_a_transaction_is_in_neither_queue_until_its_end(h: Harness, commits: bool) -> None:
    """3.1.7.1.16: the source is Locked, and a Move operation names the target."""
    create(h, transactional=True)
    commit_send(h, b"a", b"b")
    reader, transaction = Reader(), h.begin()
    h.engine.peek_message(h.open(SUBQUEUE), on_end=reader)
    position = move(h, b"a", transaction=transaction)
    assert position.state is PositionState.LOCKED
    [operation] = transaction.transactional_operations
    assert (operation.operation_type, operation.message_position) == (OperationType.MOVE, position)
    assert operation.target_queue is h.queue(SUBQUEUE)
    assert (h.bodies(), h.bodies(SUBQUEUE), reader.ends) == ([b"b"], [], [])
    (h.commit if commits else h.abort)(transaction)
    if commits:
        assert (h.bodies(), h.bodies(SUBQUEUE), reader.body) == ([b"b"], [b"a"], b"a")
    else:
        assert (h.bodies(), h.bodies(SUBQUEUE), reader.ends) == ([b"a", b"b"], [], [])


def test_a_purge_before_the_commit_of_a_move_is_forgotten(h: Harness) -> None:
    """DECISIONS: a move that commits takes effect.

    The purge must not affect the message when it comes back.
    """
    create(h, transactional=True)
    commit_send(h, b"a")
    transaction = h.begin()
    move(h, b"a", transaction=transaction)
    h.engine.purge_queue(h.queue())
    h.commit(transaction)
    assert (h.bodies(), h.bodies(SUBQUEUE)) == ([], [b"a"])
    move(h, b"a", SUBQUEUE, "q")
    h.restart()
    assert (h.bodies(), h.bodies(SUBQUEUE)) == ([b"a"], [])


@pytest.mark.spec("DMPR-3.1.7.1.16-4")
@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_move_takes_its_bytes_along(h: Harness, in_transaction: bool) -> None:
    """DECISIONS: the source's TotalBytes is lowered, though the text omits it.

    The target's is raised.
    """
    create(h, transactional=in_transaction)
    if in_transaction:
        commit_send(h, b"a" * 500, b"b")
    else:
        h.send(body=b"a" * 500)
        h.send(body=b"b")
    source, target, qm = h.queue(), h.queue(SUBQUEUE), h.engine.queue_manager
    before, machine = source.total_bytes, qm.total_bytes
    size = len(position_of(h, b"a" * 500).record.packet)
    if in_transaction:
        transaction = h.begin()
        move(h, b"a" * 500, transaction=transaction)
        assert (source.total_bytes, target.total_bytes) == (before, 0)
        h.commit(transaction)
    else:
        move(h, b"a" * 500)
    assert (source.total_bytes, target.total_bytes, qm.total_bytes) == (before - size, size, machine)
    assert (source.message_count, target.message_count) == (1, 1)
    move(h, b"a" * 500, SUBQUEUE, "q")
    assert (source.total_bytes, target.total_bytes, qm.total_bytes) == (before, 0, machine)
    h.restart()
    assert (h.queue().total_bytes, h.queue(SUBQUEUE).total_bytes) == (before, 0)


@pytest.mark.spec("DMPR-3.1.7.1.16-5")
@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_move_acknowledges_nothing(h: Harness, in_transaction: bool) -> None:
    """3.1.7.1.16 raises no Message Position Deleted.

    The receive is reported once, when the message is received.
    """
    create(h, transactional=in_transaction, journaling=True)
    asks = {
        "acknowledgements_requested": Acknowledgements.FULL_RECEIVE,
        "administration_queue_format_name": parse(r"DIRECT=OS:.\private$\admin"),
    }
    if in_transaction:
        commit_send(h, b"a", **asks)
    else:
        h.send(body=b"a", **asks)  # type: ignore[arg-type] # the test's own choice
    removals = h.removals()
    for source, target in (("q", SUBQUEUE), (SUBQUEUE, "q"), ("q", SUBQUEUE)):
        if in_transaction:
            transaction = h.begin()
            move(h, b"a", source, target, transaction)
            h.commit(transaction)
        else:
            move(h, b"a", source, target)
        assert (removals, h.queue("admin").message_count, journal_of(h).message_count) == ([], 0, 0)
    assert h.receive(SUBQUEUE) == b"a"
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    assert [Message(p.record.packet).message_class for p in h.engine.positions.all_positions(h.queue("admin"))] == [
        MessageClass.ACK_RECEIVE
    ]


def test_the_time_of_the_last_move(h: Harness) -> None:
    """It survives a restart, and is forgotten with the message."""

    def time_of(name: str, body: bytes) -> int:
        return h.engine.positions.last_move_time(position_of(h, body, name))

    create(h)
    for body, recoverable in ((b"a", True), (b"b", True), (b"c", True), (b"express", False)):
        h.send(body=body, recoverable=recoverable)
    for body in (b"a", b"b", b"c", b"express"):
        assert time_of("q", body) == 0
        h.now += 10
        move(h, body)
    before = [time_of(SUBQUEUE, body) for body in (b"a", b"b", b"c", b"express")]
    assert before == [h.now - 30, h.now - 20, h.now - 10, h.now]
    h.now += 10
    move(h, b"a", SUBQUEUE, "q")
    assert time_of("q", b"a") == h.now
    h.restart()
    rows = h.store.table("move_times")
    assert (time_of("q", b"a"), time_of(SUBQUEUE, b"b")) == (h.now, h.now - 30)
    assert len(list(rows.items())) == 3
    assert h.receive() == b"a"
    assert len(h.engine.dequeue_messages(h.open(SUBQUEUE), 10, 1 << 20)) == 2
    assert list(rows.items()) == []
