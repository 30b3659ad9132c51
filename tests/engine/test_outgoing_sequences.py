"""Numbers of transactional messages in outgoing queues.

They are assigned at commit, survive crashes, and are never reused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.engine.outgoing_sequences import OutgoingSequence
from lanner.engine.tables import OUTGOING_SEQUENCES
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass, QueueAccessType
from lanner.model.live import START, Transaction
from lanner.store import Store
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from tests.engine.harness import START_TIME, Harness

FAR = r"DIRECT=TCP:192.0.2.1\private$\far"
FARTHER = r"DIRECT=TCP:192.0.2.1\private$\farther"


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data")
    yield harness
    harness.close()


def outgoing(h: Harness, name: str = FAR) -> OutgoingQueue:
    queue = h.engine.find_outgoing_queue(parse(name))
    assert isinstance(queue, OutgoingQueue)
    return queue


def stored(h: Harness, name: str = FAR) -> list[Message]:
    """The messages of an outgoing queue in its order."""
    number, found, after = outgoing(h, name).number, [], START
    while (lookup_id := h.store.next(number, after)) is not None:
        after = lookup_id
        record = h.store.get(number, lookup_id)
        assert record is not None
        found.append(Message(record.packet))
    return found


def numbers(messages: list[Message]) -> list[tuple[bytes, int, int]]:
    return [(m.body, m.transaction_sequence_number, m.transaction_previous_sequence_number) for m in messages]


def send(h: Harness, *bodies: bytes, to: str = FAR, transaction: Transaction | None = None) -> None:
    own = transaction or h.begin()
    for body in bodies:
        h.send(to, body, transaction=own)
    if transaction is None:
        h.commit(own)


def sequence(h: Harness, name: str = FAR) -> OutgoingSequence:
    found = h.engine.outgoing_sequence(outgoing(h, name))
    assert found is not None
    return found


@pytest.mark.spec("QQB-3.1.1.3.1-2")
def test_the_first_sequence_has_ordinal_1_and_the_time_and_its_messages_are_numbered_from_1(h: Harness) -> None:
    send(h, b"a", b"b")
    send(h, b"c")
    assert [m.transactional_message_sequence_identifier for m in stored(h)] == [TxSequenceID(1, int(START_TIME))] * 3
    assert numbers(stored(h)) == [(b"a", 1, 0), (b"b", 2, 1), (b"c", 3, 2)]


@pytest.mark.spec("QQB-3.1.1.3.1-2")
@pytest.mark.spec("QQB-3.1.1.3.2-1")
def test_numbers_continue_after_a_crash(h: Harness) -> None:
    send(h, b"a", b"b")
    h.sync()
    h.crash()
    send(h, b"c")
    assert numbers(stored(h)) == [(b"a", 1, 0), (b"b", 2, 1), (b"c", 3, 2)]
    assert len({m.transactional_message_sequence_identifier for m in stored(h)}) == 1


def test_a_number_whose_message_was_lost_in_a_crash_is_given_again(h: Harness) -> None:
    """It was never sent: a message leaves when it is on disk, not before."""
    send(h, b"a")
    h.sync()
    send(h, b"lost")
    h.crash()
    send(h, b"b")
    assert numbers(stored(h)) == [(b"a", 1, 0), (b"b", 2, 1)]


@pytest.mark.spec("QQB-3.1.1.3.1-2")
def test_no_two_queues_share_a_time_stamp_and_a_new_one_is_above_every_earlier_one(h: Harness) -> None:
    send(h, b"a")
    h.now -= 1000  # a clock that was set back
    send(h, b"b", to=FARTHER)
    first, second = sequence(h), sequence(h, FARTHER)
    assert second.tx_sequence_id > first.tx_sequence_id
    assert second.ordinal == 1
    assert h.engine.outgoing_queue_of(first.tx_sequence_id) is outgoing(h)
    assert h.engine.outgoing_queue_of(TxSequenceID(7, second.time_stamp)) is outgoing(h, FARTHER)
    assert h.engine.outgoing_queue_of(TxSequenceID(1, 1)) is None


@pytest.mark.spec("DMPR-3.1.1.12-24")
def test_sequence_identifiers_never_decrease_and_only_transactional_messages_have_one(h: Harness) -> None:
    h.send(FAR, b"plain")
    seen = []
    for _ in range(3):
        send(h, b"a")
        seen.append(stored(h)[-1].transactional_message_sequence_identifier)
        h.engine.begin_outgoing_sequence(outgoing(h))
        h.now -= 10
    assert stored(h)[0].transactional_message_sequence_identifier is None
    assert [(s.time_stamp, s.ordinal) for s in seen if s] == [(int(START_TIME), n) for n in (1, 2, 3)]


def test_the_order_of_numbers_is_the_order_of_commits_and_of_the_queue(h: Harness) -> None:
    """Transactions interleave.

    Lookup identifiers are assigned when a message is sent, numbers when it is committed.
    """
    early, late = h.begin(), h.begin()
    send(h, b"sent first", transaction=early)
    send(h, b"committed first", transaction=late)
    h.commit(late)
    h.commit(early)
    assert numbers(stored(h)) == [(b"committed first", 1, 0), (b"sent first", 2, 1)]
    assert outgoing(h).message_count == 2
    assert not outgoing(h).held_positions


def test_an_aborted_transaction_takes_no_numbers(h: Harness) -> None:
    transaction = h.begin()
    send(h, b"a", transaction=transaction)
    h.abort(transaction)
    send(h, b"b")
    assert numbers(stored(h)) == [(b"b", 1, 0)]


def test_a_prepared_transaction_is_numbered_when_it_commits_also_after_a_crash(h: Harness) -> None:
    transaction = h.begin()
    send(h, b"prepared", transaction=transaction)
    h.engine.transaction_prepare(transaction.identifier, single_phase=False)
    send(h, b"meanwhile")
    h.sync()
    h.crash()
    h.commit(h.engine.queue_manager.transaction_collection[transaction.identifier])
    assert numbers(stored(h)) == [(b"meanwhile", 1, 0), (b"prepared", 2, 1)]
    queue = outgoing(h)
    assert (queue.message_count, queue.total_bytes) == h.store.stats(queue.number)
    h.sync()
    h.crash()
    queue = outgoing(h)
    assert numbers(stored(h)) == [(b"meanwhile", 1, 0), (b"prepared", 2, 1)]
    assert queue.message_count == 2


def test_a_message_that_expires_after_its_commit_is_found_under_its_new_place(h: Harness) -> None:
    transaction = h.begin()
    h.send(FAR, b"a", transaction=transaction, time_to_reach_queue=10)
    h.commit(transaction)
    removed = h.removals()
    h.tick(11)
    assert removed == [(b"a", MessageClass.NACK_REACH_QUEUE_TIMEOUT)]
    assert outgoing(h).message_count == 0


def test_a_failing_store_takes_numbers_back_with_their_messages(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    send(h, b"a")
    h.sync()
    send(h, b"undone")
    h.store._commits._fail(OSError("no space"))
    send(h, b"b")
    assert numbers(stored(h)) == [(b"a", 1, 0), (b"b", 2, 1)]


@pytest.mark.spec("QQB-3.1.1.5-1")
@pytest.mark.spec("QQB-3.1.1.3.1-2")
def test_a_restored_backup_begins_a_new_sequence_and_numbers_again_what_waits(h: Harness, tmp_path: Path) -> None:
    """What was sent after the backup is unknown here.

    A receiver would reject the old sequence identifier.
    """
    send(h, b"a", b"b")
    h.send(FAR, b"plain")
    before = sequence(h)
    h.sync()
    h.store.lock.release()
    h.store.backup(tmp_path / "backup")
    h.store.lock.acquire()
    h.close()
    h.path = tmp_path / "backup"
    h.start()
    assert numbers([m for m in stored(h) if m.is_transactional]) == [(b"a", 1, 0), (b"b", 2, 1)]
    send(h, b"c")
    transactional = [m for m in stored(h) if m.is_transactional]
    assert {m.transactional_message_sequence_identifier for m in transactional} == {sequence(h).tx_sequence_id}
    assert numbers(transactional)[-1] == (b"c", 3, 2)
    assert sequence(h).tx_sequence_id > before.tx_sequence_id
    renewed = sequence(h)
    h.sync()
    h.crash()
    assert sequence(h) == renewed
    assert numbers([m for m in stored(h) if m.is_transactional]) == numbers(transactional)


def test_the_number_after_the_highest_begins_a_new_sequence(h: Harness) -> None:
    send(h, b"a")
    h.engine.sequences.save(outgoing(h), sequence(h)._replace(number=0xFFFF_FFFF))
    send(h, b"last", b"first")
    last, first = stored(h)[1:]
    assert last.transaction_sequence_number == 0xFFFF_FFFF
    assert (first.transaction_sequence_number, sequence(h).ordinal) == (1, 2)


@pytest.mark.spec("QQB-3.1.1.3-4")
@pytest.mark.spec("QQB-3.1.1.3.2-1")
def test_message_ordinals_begin_at_0_grow_by_1_and_are_not_repeated_after_a_crash(h: Harness) -> None:
    for body in (b"a", b"b", b"c"):
        h.send(FAR, body)
    assert [m.identifier.ordinal for m in stored(h)] == [0, 1, 2]
    h.sync()
    h.crash()
    h.send(FAR, b"d")
    assert stored(h)[-1].identifier.ordinal > 2


@pytest.mark.spec("QQB-3.1.1.3-4")
def test_message_ordinals_are_used_again_after_32_bits(h: Harness) -> None:
    h.engine.numbers.next_message_ordinals(0xFFFF_FFFF)
    h.send(FAR, b"a")
    h.send(FAR, b"b")
    assert [m.identifier.ordinal for m in stored(h)] == [0xFFFF_FFFF, 0]


# Idle queues
# --------------------------------------------------------------------------------------------------


def test_an_idle_outgoing_queue_is_removed_and_its_next_life_has_a_higher_sequence(h: Harness) -> None:
    send(h, b"a")
    queue, before = outgoing(h), sequence(h)
    assert not h.engine.remove_idle_outgoing_queue(queue)
    h.engine.purge_queue(queue)
    assert h.engine.remove_idle_outgoing_queue(queue)
    assert h.engine.find_outgoing_queue(parse(FAR)) is None
    assert not h.engine.remove_idle_outgoing_queue(queue)
    assert h.engine.outgoing_queue_of(before.tx_sequence_id) is None
    assert len(list(h.store.table(OUTGOING_SEQUENCES).items())) == 1  # the newest Timestamp
    send(h, b"b")
    assert sequence(h).tx_sequence_id > before.tx_sequence_id
    h.restart()
    assert sequence(h).tx_sequence_id > before.tx_sequence_id


def test_a_queue_in_use_is_not_idle(h: Harness) -> None:
    descriptor = h.open(FAR, QueueAccessType.SEND)
    queue = outgoing(h)
    assert not h.engine.remove_idle_outgoing_queue(queue)
    h.engine.close_queue(descriptor)
    transaction = h.begin()
    send(h, b"not committed yet", transaction=transaction)
    assert not h.engine.remove_idle_outgoing_queue(queue)
    h.abort(transaction)
    h.engine.pause_queue(queue)
    assert not h.engine.remove_idle_outgoing_queue(queue)
    h.engine.resume_queue(queue)
    assert h.engine.remove_idle_outgoing_queue(queue)


def test_the_horizon_tells_what_is_durable(h: Harness) -> None:
    store: Store = h.store
    h.send(FAR, b"a")
    lookup_id = store.next(outgoing(h).number, START)
    assert lookup_id is not None
    record = store.get(outgoing(h).number, lookup_id)
    assert record is not None
    assert record.visibility > store.horizon
    h.sync()
    assert record.visibility <= store.horizon
