"""Cursors alone: how each event moves a cursor over a queue."""

from __future__ import annotations

import pytest

from lanner.engine.cursors import CursorEvent, Cursors
from lanner.model.enums import CursorState
from lanner.model.errors import IllegalCursorAction, InvalidHandle, MessageAlreadyReceived
from lanner.model.live import END, Cursor
from tests.engine.parts.fakes import World

PEEK, NEXT = CursorEvent.GET_MESSAGE_FOR_PEEK, CursorEvent.GET_NEXT_MESSAGE_FOR_PEEK
DEQUEUE = CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE


@pytest.fixture
def cursors(world: World) -> Cursors:
    return Cursors(world.core, world.positions)


def opened(world: World, cursors: Cursors, *bodies: bytes) -> Cursor:
    """Return a cursor on a new queue with these messages."""
    queue = world.queue()
    for body in bodies:
        world.put(queue, body)
    cursor = cursors.open_cursor(world.open(queue))
    assert cursor is not None
    return cursor


def test_a_cursor_walks_over_the_messages(world: World, cursors: Cursors) -> None:
    cursor = opened(world, cursors, b"1", b"2")
    first = cursors.get_message(cursor, PEEK, no_wait=False)
    assert first is not None
    assert (cursor.position, cursor.state) == (first.lookup_id, CursorState.READ)
    again = cursors.get_message(cursor, PEEK, no_wait=False)
    assert again is not None
    assert again.lookup_id == first.lookup_id
    second = cursors.get_message(cursor, NEXT, no_wait=False)
    assert second is not None
    assert second.lookup_id > first.lookup_id
    assert cursors.get_message(cursor, NEXT, no_wait=False) is None
    assert cursor.state is CursorState.WAIT_PEEK


def test_the_next_message_of_a_cursor_that_has_read_none_is_illegal(world: World, cursors: Cursors) -> None:
    with pytest.raises(IllegalCursorAction):
        cursors.get_message(opened(world, cursors, b"1"), NEXT, no_wait=False)


def test_a_message_that_another_reader_took_is_reported(world: World, cursors: Cursors) -> None:
    cursor = opened(world, cursors, b"1")
    position = cursors.get_message(cursor, PEEK, no_wait=False)
    assert position is not None
    world.positions.lock(position)
    with pytest.raises(MessageAlreadyReceived):
        cursors.get_message(cursor, PEEK, no_wait=False)


def test_a_receive_whose_wait_is_over_parks_the_cursor_behind_the_last_message(world: World, cursors: Cursors) -> None:
    cursor = opened(world, cursors, b"1")
    first = cursors.get_message(cursor, DEQUEUE, no_wait=False)
    assert first is not None
    assert cursors.get_message(cursor, DEQUEUE, no_wait=False) is None
    assert cursor.state is CursorState.WAIT_RECEIVE
    cursors.wait_time_expired(cursor)
    assert (cursor.position, cursor.state) == (END, CursorState.UNREAD)
    assert cursor.descriptor.queue is not None
    later = world.put(cursor.descriptor.queue, b"2")
    found = cursors.get_message(cursor, DEQUEUE, no_wait=False)
    assert found is not None
    assert found.lookup_id == later.lookup_id


def test_a_message_that_ends_the_wait_is_under_the_cursor(world: World, cursors: Cursors) -> None:
    cursor = opened(world, cursors)
    assert cursors.get_message(cursor, PEEK, no_wait=False) is None
    assert cursor.descriptor.queue is not None
    position = world.put(cursor.descriptor.queue, b"1")
    cursors.message_available(cursor, position)
    assert (cursor.position, cursor.state) == (position.lookup_id, CursorState.READ)


def test_a_closed_cursor_is_no_handle_any_more(world: World, cursors: Cursors) -> None:
    cursor = opened(world, cursors, b"1")
    cursors.close_cursor(cursor)
    assert cursor.descriptor.cursors == []
    with pytest.raises(InvalidHandle):
        cursors.get_message(cursor, PEEK, no_wait=False)


def test_a_descriptor_without_a_queue_has_no_cursors(world: World, cursors: Cursors) -> None:
    descriptor = world.open(world.queue())
    descriptor.queue = None
    assert cursors.open_cursor(descriptor) is None
