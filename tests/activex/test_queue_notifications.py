"""MSMQQueue.EnableNotification (MC-MQAC 3.11.4.1.9)."""

from __future__ import annotations

import gc

import pytest

from lanner.activex.event import MSMQEvent
from lanner.activex.notifications import MAX_NOTIFICATIONS
from lanner.activex.queue import MSMQQueue
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.com.automation.values import EMPTY, MISSING, Variant
from lanner.com.constants import E_INVALIDARG
from lanner.com.objects import ComObject, Remote
from lanner.model.directory_objects import Queue
from lanner.wire.vartypes import VT
from tests.activex.world import World, invoke
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_INSUFFICIENT_RESOURCES,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_QUEUE_DELETED,
    OLE_E_BLANK,
)

RECEIVE, SEND, PEEK = 1, 2, 0x20
FIRST, CURRENT, NEXT = 0, 1, 2


def i4(value: int) -> Variant:
    return Variant(VT.I4, value)


PEEK_NOW = (MISSING, MISSING, i4(0))


class Event(MSMQEvent):
    """An event sink that records its calls."""

    def __init__(self, world: World) -> None:
        super().__init__(world.environment)
        self.fired: list[tuple[object, int, int | None]] = []

    def fire(self, queue: ComObject | Remote | None, cursor: int, error: int | None = None) -> None:
        self.fired.append((queue, cursor, error))


@pytest.fixture
def q(world: World) -> Queue:
    with world.held() as h:
        return h.create("q")


@pytest.fixture
def event(world: World) -> Event:
    return Event(world)


def opened(world: World, access: int = PEEK, name: str = r"DIRECT=OS:.\private$\q") -> MSMQQueue:
    made = MSMQQueueInfo(world.environment)
    made.format_name = name
    queue = world.call(made, "open", access, 0)
    assert isinstance(queue, MSMQQueue)
    world.objects.append(queue)
    return queue


def enable(world: World, queue: MSMQQueue, event: Event, *arguments: Variant) -> None:
    assert world.call(queue, "enable_notification", event, *arguments) is None
    world.run_ready()


def send(world: World, *bodies: bytes) -> None:
    with world.held() as h:
        for body in bodies:
            h.send(body=body)
    world.run_ready()


@pytest.mark.spec("MQAC-3.11.4.1.9-1")
def test_the_order_of_the_checks(world: World, q: Queue, event: Event) -> None:
    """Each object is wrong in everything that is checked later as well."""
    blank, closed, sender = MSMQQueue(world.environment), opened(world), opened(world, SEND)
    world.call(closed, "close")
    for queue in (blank, closed, sender):
        for cursor in (i4(3), i4(-1), Variant(VT.BSTR, "x"), EMPTY):
            assert world.status(queue, "enable_notification", None, cursor) == E_INVALIDARG
    assert world.status(blank, "enable_notification", None) == OLE_E_BLANK
    assert world.status(closed, "enable_notification", None) == MQ_ERROR_INVALID_HANDLE
    assert world.status(sender, "enable_notification", None) == E_INVALIDARG
    assert world.status(sender, "enable_notification", event) == MQ_ERROR_ACCESS_DENIED
    assert world.status(opened(world), "enable_notification", ComObject()) == E_INVALIDARG
    assert event.fired == []


@pytest.mark.spec("MQAC-3.11.4.1.9-2", "MQAC-3.1.4.2-1")
def test_defaults_and_an_answer_at_once(world: World, q: Queue, event: Event) -> None:
    """The default is the head of the queue without time-out.

    The event follows the answer, even if a message is already there.
    """
    queue = opened(world)
    assert world.call(queue, "enable_notification", event) is None
    world.tick(10_000_000)
    assert event.fired == []
    send(world, b"1")
    assert event.fired == [(queue, FIRST, None)]
    event.fired.clear()

    async def call() -> list[object]:
        await invoke(queue, "enable_notification", event)
        return list(event.fired)

    assert world.run(call()) == []
    world.run_ready()
    assert event.fired == [(queue, FIRST, None)]


@pytest.mark.spec("MQAC-3.11.4.1.9-3")
@pytest.mark.parametrize("access", [RECEIVE, PEEK, 0x81, 0xA0])
def test_every_access_that_reads(world: World, q: Queue, event: Event, access: int) -> None:
    name = r"DIRECT=OS:BETA\private$\q" if access & 0x80 else r"DIRECT=OS:.\private$\q"
    with world.held() as h:
        h.send(name, b"1")
    queue = opened(world, access, name)
    enable(world, queue, event)
    assert event.fired == [(queue, FIRST, None)]
    assert world.status(opened(world, SEND), "enable_notification", event) == MQ_ERROR_ACCESS_DENIED


@pytest.mark.spec("MQAC-3.11.4.1.9-4", "MQAC-3.11.4.1.9-7")
def test_one_call_gives_one_event(world: World, q: Queue, event: Event) -> None:
    """The message is there for the next reader."""
    queue = opened(world, RECEIVE)
    enable(world, queue, event, i4(FIRST), i4(1000))
    send(world, b"1", b"2")
    world.tick(2)
    assert event.fired == [(queue, FIRST, None)]
    assert world.call(queue, "peek", *PEEK_NOW).state.body == b"1"
    assert world.call(queue, "receive").state.body == b"1"
    enable(world, queue, event)
    assert len(event.fired) == 2


@pytest.mark.spec("MQAC-3.11.4.1.9-4")
def test_a_locked_head_is_not_suitable(world: World, q: Queue, event: Event) -> None:
    send(world, b"1")
    with world.held() as h:
        transaction = h.begin()
        h.receive(transaction=transaction)
    enable(world, opened(world), event)
    assert event.fired == []
    with world.held() as h:
        h.abort(transaction)
    world.run_ready()
    assert [error for _, _, error in event.fired] == [None]


@pytest.mark.spec("MQAC-3.11.4.1.9-5")
def test_current_is_about_the_cursor(world: World, q: Queue, event: Event) -> None:
    send(world, b"1", b"2")
    queue = opened(world, RECEIVE)
    assert world.call(queue, "peek_current", *PEEK_NOW).state.body == b"1"
    enable(world, queue, event, i4(CURRENT))
    assert event.fired == [(queue, CURRENT, None)]
    assert world.call(queue, "peek_current", *PEEK_NOW).state.body == b"1"
    assert world.call(queue, "receive").state.body == b"1"
    # The one under the cursor has gone: the next one is it.
    enable(world, queue, event, i4(CURRENT), i4(0))
    assert event.fired[1:] == [(queue, CURRENT, None)]
    assert world.call(queue, "peek_current", *PEEK_NOW).state.body == b"2"


@pytest.mark.spec("MQAC-3.11.4.1.9-5")
def test_next_advances_the_cursor_first(world: World, q: Queue, event: Event) -> None:
    """Before it returns, where there is a next message; when it comes, otherwise."""
    send(world, b"1", b"2")
    queue = opened(world)
    world.call(queue, "peek_current", *PEEK_NOW)
    enable(world, queue, event, i4(NEXT))
    assert event.fired == [(queue, NEXT, None)]
    assert world.call(queue, "peek_current", *PEEK_NOW).state.body == b"2"
    enable(world, queue, event, i4(NEXT))
    assert len(event.fired) == 1
    send(world, b"3")
    assert event.fired[1:] == [(queue, NEXT, None)]
    assert world.call(queue, "peek_current", *PEEK_NOW).state.body == b"3"


@pytest.mark.spec("MQAC-3.11.4.1.9-6")
@pytest.mark.parametrize("cursor", [FIRST, CURRENT, NEXT])
def test_times_that_run_out(world: World, q: Queue, event: Event, cursor: int) -> None:
    queue = opened(world)
    send(world, b"1")
    world.call(queue, "peek_current", *PEEK_NOW)
    if cursor != NEXT:
        with world.held() as h:
            h.messages()
        world.call(queue, "reset")
    enable(world, queue, event, i4(cursor), i4(0))
    assert event.fired == [(queue, cursor, MQ_ERROR_MESSAGE_NOT_FOUND)]
    if cursor == NEXT:
        # Past the end it has to find its place again.
        world.call(queue, "reset")
        world.call(queue, "peek_current", *PEEK_NOW)
    enable(world, queue, event, i4(cursor), i4(1500))
    world.tick(1.4)
    assert len(event.fired) == 1
    world.tick(0.2)
    assert event.fired[1:] == [(queue, cursor, MQ_ERROR_IO_TIMEOUT)]
    send(world, b"2")
    assert len(event.fired) == 2


@pytest.mark.spec("MQAC-3.16.4.4.2-2")
def test_what_else_ends_a_wait(world: World, q: Queue, event: Event) -> None:
    """A move that is illegal, and a queue that is deleted."""
    queue = opened(world)
    enable(world, queue, event, i4(NEXT))
    assert event.fired == [(queue, NEXT, MQ_ERROR_ILLEGAL_CURSOR_ACTION)]
    enable(world, queue, event, i4(NEXT), i4(0))
    assert event.fired[1:] == [(queue, NEXT, MQ_ERROR_MESSAGE_NOT_FOUND)]
    enable(world, queue, event)
    with world.held() as h:
        h.engine.delete_queue(q)
    world.run_ready()
    assert event.fired[2:] == [(queue, FIRST, MQ_ERROR_QUEUE_DELETED)]


def test_a_reset_ends_what_waits_at_the_cursor(world: World, q: Queue, event: Event) -> None:
    queue = opened(world)
    enable(world, queue, event, i4(CURRENT))
    world.call(queue, "reset")
    world.run_ready()
    assert event.fired == [(queue, CURRENT, MQ_ERROR_OPERATION_CANCELLED)]


@pytest.mark.parametrize("end", ["close", "released"])
def test_a_queue_that_its_client_closed_tells_nothing(world: World, q: Queue, event: Event, end: str) -> None:
    queue = opened(world)
    enable(world, queue, event)
    enable(world, queue, event, i4(CURRENT), i4(1000))
    if end == "close":
        world.call(queue, "close")
    else:
        queue.released()
    world.tick(2)
    assert event.fired == []
    assert q.waiting_reads == {}
    gc.collect()
    assert not queue._notifications


def test_so_many_may_wait(world: World, q: Queue, event: Event) -> None:
    queue = opened(world)
    for _ in range(MAX_NOTIFICATIONS):
        world.call(queue, "enable_notification", event)
    assert world.status(queue, "enable_notification", event) == MQ_ERROR_INSUFFICIENT_RESOURCES
    send(world, b"1")
    assert len(event.fired) == MAX_NOTIFICATIONS
    assert world.status(queue, "enable_notification", event) == 0
