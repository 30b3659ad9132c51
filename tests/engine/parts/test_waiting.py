"""Waiting reads alone: their order, their results and their timers."""

from __future__ import annotations

import pytest

from lanner.engine.waiting import WaitingReads
from lanner.model.enums import INFINITE, PositionState
from lanner.model.errors import IOTimeout, OperationCancelled, StatusError, StatusNotFound
from lanner.model.live import MessagePosition, OpenQueueDescriptor, WaitingMessageReadOperation
from tests.engine.parts.fakes import World


class Waiter:
    """One waiting read, and how it ended."""

    def __init__(
        self,
        waiting: WaitingReads,
        descriptor: OpenQueueDescriptor,
        *,
        destructive: bool = True,
        timeout: int = INFINITE,
        tag: object | None = None,
    ) -> None:
        self.got: list[MessagePosition] = []
        self.errors: list[StatusError] = []
        self.read: WaitingMessageReadOperation = waiting.wait_for_new_message(
            descriptor,
            timeout,
            destructive_read=destructive,
            tag=tag,
            cursor=None,
            satisfied=self.got.append,
            stopped=self.errors.append,
        )


def test_reads_are_served_in_the_order_in_which_they_began(world: World) -> None:
    queue = world.queue()
    first, second = (Waiter(world.waiting, world.open(queue)) for _ in range(2))
    one, two = world.put(queue, b"1"), world.put(queue, b"2")
    world.waiting.serve(queue, one)
    assert (first.got, second.got) == ([one], [])
    world.waiting.serve(queue, two)
    assert second.got == [two]
    assert queue.waiting_reads == {}


def test_a_peek_holds_the_line_until_it_is_released(world: World) -> None:
    queue = world.queue()
    peek = Waiter(world.waiting, world.open(queue), destructive=False)
    receive = Waiter(world.waiting, world.open(queue))
    position = world.put(queue)
    world.waiting.serve(queue, position)
    assert (peek.got, receive.got) == ([position], [])
    world.waiting.release_next_reader(queue)
    assert receive.got == [position]


def test_a_position_that_is_no_longer_available_serves_no_read(world: World) -> None:
    queue = world.queue()
    waiter = Waiter(world.waiting, world.open(queue))
    position = world.put(queue)
    position.state = PositionState.DELETED
    world.waiting.serve(queue, position)
    assert waiter.got == []
    assert waiter.read.is_waiting


def test_timers_end_waits_in_order_and_report_the_next_deadline(world: World) -> None:
    descriptor = world.open(world.queue())
    moved: list[float | None] = []
    world.clocks.deadline_changed = lambda: moved.append(world.waiting.next_deadline())
    late = Waiter(world.waiting, descriptor, timeout=5000)
    soon = Waiter(world.waiting, descriptor, timeout=2000)
    Waiter(world.waiting, descriptor)
    assert moved == [world.now + 5, world.now + 2]
    world.now += 2
    world.waiting.expire()
    assert [type(error) for error in soon.errors] == [IOTimeout]
    assert late.errors == []
    assert world.waiting.next_deadline() == world.now + 3


def test_a_wait_without_time_fails_at_once(world: World) -> None:
    queue = world.queue()
    with pytest.raises(IOTimeout):
        Waiter(world.waiting, world.open(queue), timeout=0)
    assert queue.waiting_reads == {}


def test_a_wait_is_cancelled_by_its_tag_once(world: World) -> None:
    queue = world.queue()
    waiter = Waiter(world.waiting, world.open(queue), tag="mine")
    error = OperationCancelled()
    world.waiting.cancel_waiting_message_read_request(queue, "mine", error)
    assert waiter.errors == [error]
    with pytest.raises(StatusNotFound):
        world.waiting.cancel_waiting_message_read_request(queue, "mine", error)
