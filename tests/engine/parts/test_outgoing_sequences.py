"""Outgoing sequences alone: numbers, places, and what a restored backup changes."""

from __future__ import annotations

import pytest

from lanner.engine.outgoing_sequences import OutgoingSequences
from lanner.engine.tables import OUTGOING_SEQUENCES
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.live import MessagePosition
from lanner.wire.builder import read_sequence
from lanner.wire.envelope import read_envelope
from tests.engine.parts.fakes import World


def made(world: World) -> OutgoingSequences:
    return OutgoingSequences(world.core, world.positions)


@pytest.fixture
def sequences(world: World) -> OutgoingSequences:
    return made(world)


def committed(world: World, sequences: OutgoingSequences, queue: OutgoingQueue) -> MessagePosition:
    """Return the position of a message whose transaction has committed."""
    position = world.position(queue, is_transactional=True)
    sequences.take_numbers(queue, [position])
    world.positions.write(position, read_envelope(position.record.packet))
    return position


def test_messages_are_numbered_in_the_order_in_which_they_commit(world: World, sequences: OutgoingSequences) -> None:
    queue = world.outgoing()
    late, soon = (world.position(queue, is_transactional=True) for _ in range(2))
    sequences.take_numbers(queue, [soon])
    sequences.take_numbers(queue, [late])
    assert soon.lookup_id < late.lookup_id
    numbers = [read_sequence(position.record.packet) for position in (soon, late)]
    sequence = sequences.outgoing_sequence(queue)
    assert sequence is not None
    assert numbers == [(sequence.tx_sequence_id, 1), (sequence.tx_sequence_id, 2)]
    assert sequence.number == 3


def test_no_two_queues_have_the_same_timestamp(world: World, sequences: OutgoingSequences) -> None:
    queues = [world.outgoing(rf"DIRECT=OS:{host}\private$\q") for host in ("BETA", "GAMMA")]
    for queue in queues:
        committed(world, sequences, queue)
    stamps = [sequences.outgoing_sequence(queue) for queue in queues]
    assert stamps[0] is not None
    assert stamps[1] is not None
    assert stamps[0].time_stamp == int(world.now)
    assert stamps[1].time_stamp == int(world.now) + 1
    assert [sequences.outgoing_queue_of(stamp.tx_sequence_id) for stamp in stamps if stamp is not None] == queues


def test_a_new_sequence_begins_with_number_one(world: World, sequences: OutgoingSequences) -> None:
    queue = world.outgoing()
    committed(world, sequences, queue)
    before = sequences.outgoing_sequence(queue)
    sequences.begin_outgoing_sequence(queue)
    after = sequences.outgoing_sequence(queue)
    assert before is not None
    assert after is not None
    assert (after.ordinal, after.number, after.time_stamp) == (before.ordinal + 1, 1, before.time_stamp)


def test_the_sequence_of_a_deleted_queue_is_forgotten(world: World, sequences: OutgoingSequences) -> None:
    queue = world.outgoing()
    committed(world, sequences, queue)
    sequences.forget(queue)
    assert sequences.outgoing_sequence(queue) is None
    assert sequences.queues == {}
    assert len(world.fake.table(OUTGOING_SEQUENCES).rows) == 1, "the newest Timestamp"


def test_sequences_are_loaded_at_the_start(world: World, sequences: OutgoingSequences) -> None:
    sequences.load()
    queue = world.outgoing()
    committed(world, sequences, queue)
    sequence = sequences.outgoing_sequence(queue)
    assert sequence is not None
    again = made(world)
    again.load()
    assert again.outgoing_queue_of(sequence.tx_sequence_id) is queue


def test_a_restored_backup_begins_a_new_sequence_and_numbers_waiting_messages_again(
    world: World, sequences: OutgoingSequences
) -> None:
    sequences.load()
    queue = world.outgoing()
    position = committed(world, sequences, queue)
    before = sequences.outgoing_sequence(queue)
    ordinal = world.numbers.next_message_ordinal()
    world.fake.epoch += 1
    again = made(world)
    again.load()
    after = again.outgoing_sequence(queue)
    assert before is not None
    assert after is not None
    assert after.time_stamp > before.time_stamp
    record = world.fake.get(queue.number, position.lookup_id)
    assert record is not None
    assert read_sequence(record.packet) == (after.tx_sequence_id, 1)
    assert world.numbers.next_message_ordinal() > ordinal + 1, "identifiers given since the backup are skipped"
