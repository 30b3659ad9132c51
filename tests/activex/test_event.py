"""MSMQEvent (MC-MQAC 3.16): the events that sinks get, and that no sink delays another."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

import lanner.activex.event
from lanner.activex.event import MAX_PENDING, MSMQEvent
from lanner.activex.tables import (
    DMSMQ_EVENT_EVENTS,
    IMSMQ_EVENT,
    IMSMQ_EVENT2,
    IMSMQ_EVENT3,
    IMSMQ_PRIVATE_EVENT,
)
from lanner.com.automation.values import EMPTY, Variant
from lanner.com.constants import (
    CONNECT_E_NOCONNECTION,
    E_NOTIMPL,
    IID_ICONNECTIONPOINT,
    IID_ICONNECTIONPOINTCONTAINER,
    RPC_E_DISCONNECTED,
)
from lanner.com.objects import ComError, ComObject
from lanner.wire.vartypes import VT
from tests.activex.world import World
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_QUEUE_DELETED,
    MQ_ERROR_STALE_HANDLE,
    RPC_S_SERVER_UNAVAILABLE,
)


class Sink:
    """A sink of a client, as our side of it sees it."""

    iid = DMSMQ_EVENT_EVENTS.iid

    def __init__(self, *ends: BaseException | None) -> None:
        self.told: list[tuple[int, list[Variant]]] = []
        self.ends = list(ends)
        self.answers: asyncio.Event | None = None
        self.is_released = False

    async def query_interface(self, iid: UUID) -> Sink:
        assert iid == DMSMQ_EVENT_EVENTS.iid
        return self

    async def reference(self) -> None: ...

    def release(self) -> None:
        self.is_released = True

    async def invoke_dispatch(
        self,
        dispid: int,
        arguments: Sequence[Variant],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the client's own word)
    ) -> Variant:
        if self.answers is not None:
            await self.answers.wait()
        end = self.ends.pop(0) if self.ends else None
        if end is not None:
            raise end
        self.told.append((dispid, list(arguments)))
        return EMPTY


class Queue(ComObject):
    """Stands for the MSMQQueue that was enabled."""


def advise(world: World, event: MSMQEvent, sink: Sink) -> int:
    cookie: int = world.call(event, "advise", sink)
    sink.is_released = False  # the reference that came in, not the one that is kept
    return cookie


def fire(world: World, event: MSMQEvent, queue: ComObject, cursor: int = 0, error: int | None = None) -> None:
    async def fire() -> None:
        event.fire(queue, cursor, error)

    world.run(fire())
    world.run_ready()


@pytest.fixture
def event(world: World) -> MSMQEvent:
    made = MSMQEvent(world.environment)
    world.objects.append(made)
    return made


@pytest.mark.spec("MQAC-3.16.4-1", "MQAC-3.2.4.2.7-1")
def test_revisions(world: World, event: MSMQEvent) -> None:
    assert IMSMQ_EVENT.members == ()
    for table in (IMSMQ_EVENT2, IMSMQ_EVENT3):
        assert [(member.opnum, member.name) for member in table.members] == [(7, "Properties")]
    for table in (IMSMQ_EVENT, IMSMQ_EVENT2, IMSMQ_EVENT3):
        assert event.query_interface(table.iid) is table
    for revision in (2, 3):
        assert world.status(event, "get_properties", revision=revision) == E_NOTIMPL


@pytest.mark.spec("MQAC-3.16.4-2")
def test_it_is_a_connection_point_container(world: World, event: MSMQEvent) -> None:
    assert event.query_interface(IID_ICONNECTIONPOINTCONTAINER) is not None
    point = world.call(event, "find_connection_point", DMSMQ_EVENT_EVENTS.iid)
    assert point.query_interface(IID_ICONNECTIONPOINT) is not None
    assert world.call(point, "get_connection_interface") == DMSMQ_EVENT_EVENTS.iid
    assert world.status(event, "find_connection_point", IMSMQ_EVENT.iid) == CONNECT_E_NOCONNECTION


@pytest.mark.spec("MQAC-3.16.4.4.1-1")
@pytest.mark.parametrize("cursor", [0, 1, 2])
def test_arrived(world: World, event: MSMQEvent, cursor: int) -> None:
    sink, queue = Sink(), Queue()
    advise(world, event, sink)
    fire(world, event, queue, cursor)
    assert sink.told == [(0, [Variant(VT.DISPATCH, queue), Variant(VT.I4, cursor)])]


@pytest.mark.spec("MQAC-3.16.4.4.2-1", "MQAC-3.16.4.4.2-2")
@pytest.mark.parametrize(
    "error",
    [
        MQ_ERROR_IO_TIMEOUT,
        MQ_ERROR_QUEUE_DELETED,
        MQ_ERROR_STALE_HANDLE,
        MQ_ERROR_ACCESS_DENIED,
        MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    ],
)
def test_arrived_error(world: World, event: MSMQEvent, error: int) -> None:
    sink, queue = Sink(), Queue()
    advise(world, event, sink)
    fire(world, event, queue, 2, error)
    as_long = error - (1 << 32)
    expected = [Variant(VT.DISPATCH, queue), Variant(VT.I4, as_long), Variant(VT.I4, 2)]
    assert sink.told == [(1, expected)]


@pytest.mark.spec("MQAC-3.16.4.3-1")
def test_the_private_interface_tells_every_sink(world: World, event: MSMQEvent) -> None:
    assert event.query_interface(IMSMQ_PRIVATE_EVENT.iid) is IMSMQ_PRIVATE_EVENT
    # Members of the event itself are what IDispatch speaks of.
    assert event.default_dispatch() is IMSMQ_EVENT3
    assert world.call(event, "get_hwnd") == 0
    sinks, queue = [Sink(), Sink()], Queue()
    for sink in sinks:
        advise(world, event, sink)
    world.call(event, "fire_arrived_event", queue, 1)
    world.call(event, "fire_arrived_error_event", queue, -0x3FF1_FFA6, 2)
    world.run_ready()
    told = [
        (0, [Variant(VT.DISPATCH, queue), Variant(VT.I4, 1)]),
        (1, [Variant(VT.DISPATCH, queue), Variant(VT.I4, -0x3FF1_FFA6), Variant(VT.I4, 2)]),
    ]
    assert [sink.told for sink in sinks] == [told, told]


@pytest.mark.spec("MQAC-3.16.4.4-2")
@pytest.mark.parametrize(
    ("end", "is_kept"),
    [
        (lambda: ComError(0x8002_0009, "the script failed"), True),
        (lambda: ComError(E_NOTIMPL), True),
        (lambda: ComError(0x8001_0105), True),
        (lambda: ComError(RPC_S_SERVER_UNAVAILABLE), False),
        (lambda: ComError(RPC_E_DISCONNECTED), False),
        (TimeoutError, False),
        (lambda: OSError("gone"), False),
        (lambda: ValueError("a bug"), False),
    ],
)
def test_a_sink_that_fails_does_not_stop_the_others(
    world: World,
    event: MSMQEvent,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[], BaseException],
    is_kept: bool,
) -> None:
    bad, good = Sink(end()), Sink()
    cookie = advise(world, event, bad)
    advise(world, event, good)
    queue = Queue()
    with caplog.at_level(logging.CRITICAL, lanner.activex.event.__name__):
        fire(world, event, queue)
        fire(world, event, queue)
    assert len(good.told) == 2
    # An unreachable sink is released; one that returns an error is called again.
    assert (cookie in event.connections) is is_kept
    assert bad.is_released is not is_kept
    assert len(bad.told) == int(is_kept)


@pytest.mark.spec("MQAC-3.16.4.4-2")
def test_a_sink_that_hangs_is_waited_for_alone_and_not_forever(
    world: World, event: MSMQEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanner.activex.event, "SINK_TIMEOUT", 0.01)
    hanging, good = Sink(), Sink()
    hanging.answers = asyncio.Event()
    cookie = advise(world, event, hanging)
    advise(world, event, good)
    fire(world, event, Queue())
    assert len(good.told) == 1, "although the other has not answered"

    async def until_given_up() -> None:
        while cookie in event.connections:  # noqa: ASYNC110 (nobody else tells)
            await asyncio.sleep(0.001)

    world.run(asyncio.wait_for(until_given_up(), 10))
    assert hanging.is_released
    fire(world, event, Queue())
    assert len(good.told) == 2


def test_a_slow_sink_hears_of_everything_in_order_and_of_no_more_than_it_may_be_behind(
    world: World, event: MSMQEvent
) -> None:
    sink = Sink()
    sink.answers = asyncio.Event()
    advise(world, event, sink)
    for cursor in range(MAX_PENDING + 5):
        fire(world, event, Queue(), cursor)
    assert sink.told == []
    world.loop.call_soon(sink.answers.set)
    for _ in range(MAX_PENDING):
        world.run_ready()
    assert [arguments[1].value for _, arguments in sink.told] == list(range(MAX_PENDING))
    fire(world, event, Queue(), 1000)
    assert sink.told[-1][1][1].value == 1000


@pytest.mark.parametrize("end", ["unadvise", "released"])
def test_a_sink_that_is_given_back_hears_of_nothing_more(world: World, event: MSMQEvent, end: str) -> None:
    sink = Sink()
    sink.answers = asyncio.Event()
    cookie = advise(world, event, sink)
    fire(world, event, Queue())
    if end == "unadvise":
        world.call(event, "unadvise", cookie)
    else:

        async def released() -> None:
            event.released()

        world.run(released())
    assert sink.is_released
    world.loop.call_soon(sink.answers.set)
    world.run_ready()
    fire(world, event, Queue())
    assert sink.told == []
    assert [task for task in asyncio.all_tasks(world.loop) if not task.done()] == []


def test_nobody_to_tell(world: World, event: MSMQEvent) -> None:
    fire(world, event, Queue())
    fire(world, event, Queue(), 0, MQ_ERROR_QUEUE_DELETED)


def test_what_was_told_is_not_kept(world: World, event: MSMQEvent) -> None:
    """A queue that a sink was told of can be released."""
    sink = Sink()
    advise(world, event, sink)
    fire(world, event, Queue())
    sink.told.clear()
    gc.collect()
    assert [one for one in gc.get_objects() if type(one) is Queue] == []
