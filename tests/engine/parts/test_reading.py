"""Reading alone: how often a receive looks for a message, and how its wait ends."""

from __future__ import annotations

from typing import cast

import pytest

from lanner.engine.cursors import Cursors
from lanner.engine.positions import Positions
from lanner.engine.reading import Reading
from lanner.model.directory_objects import Queue
from lanner.model.enums import INFINITE, PositionState
from lanner.model.errors import IOTimeout, StatusError
from lanner.model.live import MessagePosition
from tests.engine.parts.fakes import World


class CountedSeeks:
    """Positions that count the seeks."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.seeks = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._positions, name)

    def seek_forward(self, queue: Queue, initial: int) -> MessagePosition | None:
        self.seeks += 1
        return self._positions.seek_forward(queue, initial)


class Bench:
    def __init__(self, world: World) -> None:
        self.world = world
        self.positions = CountedSeeks(world.positions)
        self.reading = Reading(world.core, Cursors(world.core, cast(Positions, self.positions)))
        self.queue = world.queue()
        self.descriptor = world.open(self.queue)


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def test_a_wait_that_begins_after_an_empty_seek_does_not_seek_again(bench: Bench) -> None:
    ends: list[MessagePosition | StatusError] = []
    assert bench.reading.try_dequeue_message(bench.descriptor) is None
    waiting = bench.reading.wait_to_dequeue_message(
        bench.descriptor, timeout=INFINITE, on_end=ends.append, two_phase_read=True
    )
    assert bench.positions.seeks == 1
    assert waiting.is_waiting
    position = bench.world.put(bench.queue, b"came")
    bench.world.positions.message_position_available(bench.queue, position)
    assert ends == [position]
    assert position.state is PositionState.LOCKED
    bench.reading.dequeue_message_end(bench.descriptor, position, delete_message=True)
    assert bench.world.fake.messages == {}


def test_a_wait_without_time_is_over_at_once(bench: Bench) -> None:
    ends: list[MessagePosition | StatusError] = []
    with pytest.raises(IOTimeout):
        bench.reading.wait_to_dequeue_message(bench.descriptor, timeout=0, on_end=ends.append, two_phase_read=True)
    assert (bench.positions.seeks, ends) == (0, [])


def test_a_receive_finds_the_first_message_with_one_seek(bench: Bench) -> None:
    first = bench.world.put(bench.queue, b"1")
    bench.world.put(bench.queue, b"2")
    found = bench.reading.dequeue_message(bench.descriptor)
    assert isinstance(found, MessagePosition)
    assert (found.lookup_id, found.state) == (first.lookup_id, PositionState.DELETED)
    assert bench.positions.seeks == 1


def test_a_two_phase_read_locks_the_message_until_it_ends(bench: Bench) -> None:
    position = bench.world.put(bench.queue)
    found = bench.reading.dequeue_message_begin(bench.descriptor)
    assert isinstance(found, MessagePosition)
    assert list(bench.queue.held_positions) == list(bench.descriptor.unfinished_reads) == [position.lookup_id]
    bench.reading.dequeue_message_end(bench.descriptor, found, delete_message=False)
    assert found.state is PositionState.AVAILABLE
    assert bench.queue.held_positions == bench.descriptor.unfinished_reads == {}
