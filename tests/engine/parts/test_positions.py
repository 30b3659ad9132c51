"""Positions alone: seeks, locks, removals, and the events about them."""

from __future__ import annotations

import pytest

from lanner.engine.tables import PURGE_PENDING
from lanner.model.enums import MessageClass, MessageSeekAction, PositionState
from lanner.model.errors import MessageNotFound, TransactionUsage
from lanner.model.live import ALLOW_PEEK_WHEN_LOCKED, END, START, MessagePosition, Record
from tests.engine.parts.fakes import World


def place(found: MessagePosition | None) -> int | None:
    return None if found is None else found.lookup_id


def test_a_seek_passes_over_locked_messages_in_both_directions(world: World) -> None:
    queue = world.queue()
    one, two, three = (world.put(queue) for _ in range(3))
    world.positions.lock(one)
    world.positions.lock(three)
    forward = world.positions.seek_available_message_position(queue, START, peek=False)
    backward = world.positions.seek_available_message_position(queue, END, peek=False, backward=True)
    assert place(forward) == place(backward) == two.lookup_id


def test_a_seek_after_many_locks_begins_behind_them(world: World) -> None:
    queue = world.queue()
    for _ in range(5):
        world.put(queue)
    while (found := world.positions.seek_forward(queue, START)) is not None:
        world.positions.lock(found)
    last = max(queue.held_positions)
    assert queue.head_hint == last


def test_a_peek_sees_a_lock_that_allows_it(world: World) -> None:
    queue = world.queue()
    position = world.put(queue)
    position.record.flags |= ALLOW_PEEK_WHEN_LOCKED
    world.positions.lock(position)
    assert world.positions.seek_available_message_position(queue, START, peek=True) is position
    assert world.positions.seek_available_message_position(queue, START, peek=False) is None


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (MessageSeekAction.FIRST, 0),
        (MessageSeekAction.LAST, 2),
        (MessageSeekAction.NEXT, 2),
        (MessageSeekAction.CURRENT, 1),
    ],
)
def test_a_seek_by_lookup_id(world: World, action: MessageSeekAction, expected: int) -> None:
    queue = world.queue()
    positions = [world.put(queue) for _ in range(3)]
    middle = positions[1].lookup_id
    found = world.positions.seek_available_message_position_with_id(queue, middle, peek=False, action=action)
    assert found.lookup_id == positions[expected].lookup_id


def test_a_locked_or_missing_message_is_not_found(world: World) -> None:
    queue = world.queue()
    position = world.put(queue)
    world.positions.lock(position)
    with pytest.raises(TransactionUsage):
        world.positions.seek_current(queue, position.lookup_id, peek=True)
    with pytest.raises(MessageNotFound):
        world.positions.seek_current(queue, position.lookup_id + 1, peek=True)


def test_a_deletion_is_reported_and_taken_from_the_totals(world: World) -> None:
    queue = world.queue()
    position = world.put(queue, b"gone")
    told: list[tuple[int, MessageClass]] = []
    world.positions.deleted_subscribers.append(lambda _, gone, reason: told.append((gone.lookup_id, reason)))
    world.positions.message_position_deleted(queue, position, MessageClass.ACK_RECEIVE)
    assert told == [(position.lookup_id, MessageClass.ACK_RECEIVE)]
    assert (queue.message_count, queue.total_bytes, world.queue_manager.total_bytes) == (0, 0, 0)
    assert position.state is PositionState.DELETED
    assert world.fake.messages == {}


def test_a_message_that_is_given_back_is_available_in_its_old_place(world: World) -> None:
    queue = world.queue()
    first = world.put(queue)
    world.put(queue)
    world.positions.lock(first)
    available: list[tuple[int, Record]] = []
    world.positions.available_subscribers.append(lambda _, first, records: available.append((first, records[0])))
    world.positions.give_back(first, is_abort=True)
    assert available == [(first.lookup_id, first.record)]
    assert first.record.abort_count == 1
    assert place(world.positions.seek_forward(queue, START)) == first.lookup_id


def test_a_message_whose_time_is_over_is_not_given_back(world: World) -> None:
    queue = world.queue()
    position = world.put(queue, time_to_be_received=5)
    world.positions.lock(position)
    world.now += 5
    world.positions.give_back(position, is_abort=False)
    assert (position.state, world.positions.expiries) == (PositionState.DELETED, 1)


def test_a_purge_of_a_locked_message_survives_in_the_store(world: World) -> None:
    queue = world.queue()
    position = world.put(queue)
    world.positions.lock(position)
    world.positions.purge_pending(position)
    table = world.fake.table(PURGE_PENDING)
    assert len(table.rows) == 1
    # After a restart no lock is left.
    queue.held_positions.clear()
    world.positions.recover_purges()
    assert (table.rows, world.fake.messages) == ({}, {})


def test_locks_on_messages_that_a_failing_store_has_undone_are_released(world: World) -> None:
    queue = world.queue()
    kept, undone = world.put(queue), world.put(queue)
    for position in (kept, undone):
        world.positions.lock(position)
    del world.fake.messages[queue.number, undone.lookup_id]
    world.positions.go_back()
    assert list(queue.held_positions) == [kept.lookup_id]
    assert undone.state is PositionState.DELETED
