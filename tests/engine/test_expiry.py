"""Time To Be Received Timer Expired (MS-MQDMPR 3.1.7.2.7)."""

from __future__ import annotations

import pytest

from lanner.engine.tables import EXPIRY_HOLDS
from lanner.model.enums import Acknowledgements, MessageClass, OperationType, PositionState
from lanner.model.live import MessagePosition
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.engine.harness import Harness, at_once, body_of

LIFE = 10  # seconds
EXPIRED = (b"a", MessageClass.NACK_RECEIVE_TIMEOUT)


def send(h: Harness, body: bytes = b"a", **properties: object) -> None:
    h.send(body=body, time_to_be_received=LIFE, **properties)  # type: ignore[arg-type] # the test's own choice


def locked(h: Harness) -> MessagePosition:
    return at_once(h.engine.dequeue_message_begin(h.open(), timeout=0))


def end(h: Harness, position: MessagePosition, *, delete: bool) -> None:
    h.engine.dequeue_message_end(h.open(), position, delete_message=delete)


@pytest.fixture(params=[True, False], ids=["recoverable", "express"])
def recoverable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.spec("DMPR-3.1.7.2.7-1")
def test_a_message_nobody_received_in_time_is_deleted(h: Harness, recoverable: bool) -> None:
    """3.1.7.2.7: without TransactionIdentifier, the message is deleted on expiry.

    Message Position Deleted has NackReceiveTimeout (class 0xC002).
    """
    h.create()
    h.create("admin")
    send(
        h,
        recoverable=recoverable,
        acknowledgements_requested=Acknowledgements.NACK_RECEIVE,
        administration_queue_format_name=parse(r"DIRECT=OS:.\private$\admin"),
    )
    h.send(body=b"stays", recoverable=recoverable)
    removals = h.removals()
    assert h.engine.next_delay() == LIFE
    h.tick(LIFE - 1)
    assert removals == []
    h.tick(1)
    assert (removals, h.bodies()) == ([EXPIRED], [b"stays"])
    assert (h.queue().message_count, h.engine.next_delay()) == (1, None)
    assert [
        int(Message(p.record.packet).message_class) for p in h.engine.positions.all_positions(h.queue("admin"))
    ] == [0xC002]


@pytest.mark.spec("DMPR-3.1.7.2.7-1")
def test_the_time_to_be_received_continues_while_the_queue_manager_is_down(h: Harness) -> None:
    """3.1.7.2.7: the deadline is a time of day, kept with the message."""
    h.create()
    send(h)
    h.stop()
    h.now += LIFE + 1
    h.start()
    removals = h.removals()
    assert h.engine.next_delay() == 0
    h.engine.on_timer()
    assert (removals, h.bodies(), h.queue().total_bytes) == ([EXPIRED], [], 0)


@pytest.mark.spec("DMPR-3.1.7.2.7-1")
@pytest.mark.parametrize("delete", [True, False])
def test_a_message_that_is_being_read_expires_when_the_read_ends(h: Harness, recoverable: bool, delete: bool) -> None:
    """DECISIONS: expiry of a locked message waits; a read that succeeds was a receive."""
    h.create()
    send(h, recoverable=recoverable)
    removals, position = h.removals(), locked(h)
    h.tick(LIFE)
    h.tick(LIFE)
    assert (removals, position.state) == ([], PositionState.LOCKED)
    end(h, position, delete=delete)
    assert removals == [(b"a", MessageClass.ACK_RECEIVE) if delete else EXPIRED]
    assert (h.bodies(), h.queue().total_bytes, h.queue().message_count) == ([], 0, 0)
    h.tick(LIFE)
    assert len(removals) == 1


@pytest.mark.spec("DMPR-3.1.7.2.7-1")
def test_a_message_given_back_in_time_still_expires_later(h: Harness, recoverable: bool) -> None:
    """DECISIONS: a lock that ends before the deadline changes nothing about it."""
    h.create()
    send(h, recoverable=recoverable)
    position, removals = locked(h), h.removals()
    h.tick(LIFE - 1)
    end(h, position, delete=False)
    assert h.bodies() == [b"a"]
    h.tick(1)
    assert (removals, h.bodies()) == ([EXPIRED], [])


@pytest.mark.spec("DMPR-3.1.7.2.7-1")
def test_a_purged_and_expired_message_was_purged(h: Harness) -> None:
    """3.1.7.1.12: PurgePending ends as NackQueuePurged, whatever the timer says meanwhile."""
    h.create()
    send(h)
    position, removals = locked(h), h.removals()
    h.engine.purge_queue(h.queue())
    h.tick(LIFE)
    assert removals == []
    end(h, position, delete=False)
    assert removals == [(b"a", MessageClass.NACK_QUEUE_PURGED)]


@pytest.mark.spec("DMPR-3.1.7.2.7-2")
@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_expires_before_its_send_commits_never_arrives(
    h: Harness, recoverable: bool, commits: bool
) -> None:
    """3.1.7.2.7: the message stays Locked.

    Its own transaction gets a Dequeue with reason NackReceiveTimeout.
    """
    h.create(transactional=True)
    transaction, removals = h.begin(), h.removals()
    send(h, transaction=transaction, recoverable=recoverable)
    h.send(body=b"stays", transaction=transaction)
    arrived: list[bytes] = []
    h.engine.position_available_subscribers.append(
        lambda queue, first, records: arrived.append(body_of(MessagePosition(queue, first, records[0])))
    )
    h.tick(LIFE)
    h.tick(LIFE)
    *_, operation = operations = transaction.transactional_operations
    assert [o.operation_type for o in operations] == [
        OperationType.ENQUEUE,
        OperationType.ENQUEUE,
        OperationType.DEQUEUE,
    ]
    assert operation.dequeue_reason is MessageClass.NACK_RECEIVE_TIMEOUT
    assert operation.message_position.state is PositionState.LOCKED
    assert removals == []
    (h.commit if commits else h.abort)(transaction)
    assert (removals, arrived) == (([EXPIRED], [b"stays"]) if commits else ([], []))
    assert h.bodies() == arrived
    assert h.queue().message_count == len(arrived)
    h.restart()
    assert h.bodies() == arrived
    assert (h.queue().total_bytes > 0) == commits


@pytest.mark.spec("DMPR-3.1.7.2.7-3")
def test_a_committed_message_expires_like_any_other(h: Harness) -> None:
    """DECISIONS: its TransactionIdentifier names no live transaction.

    So an Available message is deleted at once.
    """
    h.create(transactional=True)
    transaction, removals = h.begin(), h.removals()
    send(h, transaction=transaction)
    h.tick(1)
    h.commit(transaction)
    h.tick(LIFE - 2)
    assert h.bodies() == [b"a"]
    h.tick(1)
    assert (removals, h.bodies(), h.queue().total_bytes) == ([EXPIRED], [], 0)


@pytest.mark.spec("DMPR-3.1.7.2.7-3", "DMPR-3.1.7.2.7-1")
@pytest.mark.parametrize("commits", [True, False])
def test_a_message_received_in_a_transaction_expires_at_its_abort(h: Harness, commits: bool) -> None:
    """DECISIONS: the message is Locked by a reader, so its expiry is checked after an abort.

    After a commit it has been received.
    """
    h.create(transactional=True)
    sending, removals = h.begin(), h.removals()
    send(h, transaction=sending)
    h.commit(sending)
    receiving = h.begin()
    assert h.receive(transaction=receiving) == b"a"
    h.tick(LIFE + 1)
    assert removals == []
    (h.commit if commits else h.abort)(receiving)
    assert removals == [(b"a", MessageClass.ACK_RECEIVE) if commits else EXPIRED]
    assert (h.bodies(), h.queue().total_bytes, h.queue().message_count) == ([], 0, 0)
    h.tick(LIFE)
    assert len(removals) == 1


@pytest.mark.spec("DMPR-3.1.7.2.7-3")
def test_a_message_given_back_by_an_abort_in_time_expires_later(h: Harness) -> None:
    """DECISIONS: re-evaluated after abort means that the deadline still stands."""
    h.create(transactional=True)
    sending, removals = h.begin(), h.removals()
    send(h, transaction=sending)
    h.commit(sending)
    receiving = h.begin()
    assert h.receive(transaction=receiving) == b"a"
    h.tick(LIFE - 1)
    h.abort(receiving)
    assert (h.bodies(), removals) == ([b"a"], [])
    h.tick(1)
    assert (h.bodies(), removals) == ([], [EXPIRED])


def test_what_is_held_does_not_expire_until_it_is_released(h: Harness) -> None:
    """A batch that the data pipeline processes stays until it is received."""
    queue = h.create()
    for body in (b"durable", b"express", b"later"):
        h.send(body=body, recoverable=body != b"express", time_to_be_received=10)
    h.sync()
    h.checkpoint()
    with h.store.scan(queue.number, 0) as scan:
        numbers = {Message(record.packet).body: number for number, _, record in scan}
    h.engine.hold_expiry(queue, numbers[b"express"], 30)
    h.tick(11)
    assert sorted(h.bodies()) == [b"durable", b"express"]
    h.engine.release_expiry(queue, numbers[b"durable"])
    h.tick(1)
    assert len(h.bodies()) == 2, "the hold reaches further than that"
    h.engine.release_expiry(queue, numbers[b"express"])
    h.tick(1)
    assert h.bodies() == []
    assert h.engine.expiries == 3
    h.engine.release_expiry(queue)


def test_a_hold_lasts_over_a_restart_for_a_time(h: Harness) -> None:
    queue = h.create()
    h.send(time_to_be_received=10)
    h.engine.hold_expiry(queue, 1 << 40, 30)
    h.sync()
    h.now += 11
    h.crash()
    h.tick(29)
    assert len(h.bodies()) == 1
    h.tick(2)
    assert h.bodies() == []
    h.restart()
    h.send(time_to_be_received=10)
    h.tick(11)
    assert h.bodies() == [], "it is forgotten"


def test_messages_of_other_queues_expire_while_many_are_held(h: Harness) -> None:
    queue = h.create()
    h.create("other")
    for name in ("q", "other"):
        for _ in range(3):
            h.send(name, time_to_be_received=10)
    h.engine.hold_expiry(queue, 1 << 40, 30)
    h.tick(11)
    assert (len(h.bodies()), h.bodies("other")) == (3, [])


def test_the_hold_of_a_queue_that_is_gone_is_forgotten(h: Harness) -> None:
    queue = h.create()
    h.engine.hold_expiry(queue, 1 << 40, 30)
    h.engine.delete_queue(queue)
    h.restart()
    assert h.engine.expiry.holds == {}
    assert list(h.store.table(EXPIRY_HOLDS).items()) == []
