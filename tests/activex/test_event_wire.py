"""Event sinks of clients, over sockets (MC-MQAC 3.16.4.4, 4.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest

import lanner.com.server.exporter
from lanner.activex.event import MSMQEvent
from lanner.activex.tables import (
    DMSMQ_EVENT_EVENTS,
    IMSMQ_EVENT3,
    IMSMQ_PRIVATE_EVENT,
    IMSMQ_QUEUE4,
    IMSMQ_QUEUE_INFO4,
    MSMQ_EVENT,
    MSMQ_QUEUE_INFO,
)
from lanner.com.automation.connection_points import ICONNECTION_POINT, ICONNECTION_POINT_CONTAINER, MAX_CONNECTIONS
from lanner.com.automation.values import MISSING, Variant
from lanner.com.client.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.client.exporter import OwnObjects
from lanner.com.members import InterfaceTable
from lanner.com.objects import ComCall, ComObject
from lanner.com.server.exporter import Invocation
from lanner.rpc.security import Credentials
from lanner.wire.vartypes import VT
from tests.activex.messages import create
from tests.activex.wire import HOST, Wire
from tests.activex.world import World
from tests.com.toys import PASSWORD, USER
from tests.engine.harness import OPEN_TO_ALL
from tests.statuses import MQ_ERROR_IO_TIMEOUT

RECEIVE, PEEK = 1, 0x20


class Sink(ComObject):
    """A sink in a client."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = (DMSMQ_EVENT_EVENTS,)

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.is_told = asyncio.Event()
        self.released_times = 0

    def released(self) -> None:
        self.released_times += 1

    def arrived(self, call: ComCall, queue: RemoteInterface, cursor: int) -> None:
        del call
        self.told.append(("Arrived", queue, cursor))
        self.is_told.set()

    def arrived_error(self, call: ComCall, queue: RemoteInterface, error: int, cursor: int) -> None:
        del call
        self.told.append(("ArrivedError", queue, error, cursor))
        self.is_told.set()


@pytest.fixture
def wire(world: World, tmp_path: Path) -> Iterator[Wire]:
    made = Wire(world, tmp_path)
    yield made
    made.close()


def listen(world: World, wire: Wire) -> tuple[RemoteInterface, RemoteInterface, Sink, int]:
    """An event, its connection point, a sink there and its cookie."""
    event = wire.create(MSMQ_EVENT.clsid, IMSMQ_EVENT3)
    container = wire.query(event, ICONNECTION_POINT_CONTAINER)
    point = wire.call(container, ICONNECTION_POINT_CONTAINER, "find_connection_point", DMSMQ_EVENT_EVENTS.iid)
    sink: Sink = world.run(_made())
    cookie = wire.call(point, ICONNECTION_POINT, "advise", sink)
    return event, point, sink, cookie


async def _made() -> Sink:
    return Sink()


def opened(world: World, wire: Wire, access: int) -> RemoteInterface:
    info = wire.create(MSMQ_QUEUE_INFO.clsid, IMSMQ_QUEUE_INFO4)
    wire.call(info, IMSMQ_QUEUE_INFO4, "put_format_name", create(world, security=OPEN_TO_ALL))
    queue: RemoteInterface = wire.call(info, IMSMQ_QUEUE_INFO4, "open", access, 0)
    return queue


@pytest.mark.spec("MQAC-3.16.4.4-1", "MQAC-3.16.4.4.1-1")
def test_a_message_that_arrives_is_reported_and_can_be_read(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.5: the sink gets the queue that was enabled, and receives from it."""
    calls: list[tuple[UUID, str, type[ComObject]]] = []
    serve = lanner.com.server.exporter._serve_automation

    def watch(invocation: Invocation) -> bytes | Awaitable[bytes]:
        calls.append((invocation.orpc_this.cid, invocation.table.name, type(invocation.object)))
        return serve(invocation)

    monkeypatch.setattr(lanner.com.server.exporter, "_serve_automation", watch)
    event, _, sink, _ = listen(world, wire)
    queue = opened(world, wire, PEEK)
    for cursor, body in ((0, b"one"), (1, b"two")):
        wire.call(queue, IMSMQ_QUEUE4, "enable_notification", event, Variant(VT.I4, cursor), MISSING)
        assert sink.told == []
        with world.held() as h:
            h.send("q", body)
        world.run(asyncio.wait_for(sink.is_told.wait(), 10))
        (name, told, at) = sink.told.pop()
        sink.is_told.clear()
        assert (name, at) == ("Arrived", cursor)
        assert told.is_same_object(queue)
        found = world.run(told.query_interface(IMSMQ_QUEUE4.iid))
        assert wire.call(found, IMSMQ_QUEUE4, "get_is_open2") is True
        with world.held() as h:
            assert h.receive("q") == body
    to_sink = [(cid, table) for cid, table, kind in calls if kind is Sink]
    # On the events interface itself, or the sink's IDispatch; each time in a causality of its own.
    assert {table for _, table in to_sink} <= {"_DMSMQEventEvents", "IDispatch"}
    assert len(to_sink) == 2
    causalities = [cid for cid, _, _ in calls]
    assert len(set(causalities)) == len(causalities)


@pytest.mark.spec("MQAC-3.16.4.4.2-1")
def test_a_wait_that_ends_otherwise_is_reported_with_its_code(world: World, wire: Wire) -> None:
    event, _, sink, _ = listen(world, wire)
    queue = opened(world, wire, PEEK)
    wire.call(queue, IMSMQ_QUEUE4, "enable_notification", event, Variant(VT.I4, 0), Variant(VT.I4, 1000))
    world.tick(2)
    world.run(asyncio.wait_for(sink.is_told.wait(), 10))
    (told,) = sink.told
    assert (told[0], *told[2:]) == ("ArrivedError", MQ_ERROR_IO_TIMEOUT - (1 << 32), 0)
    assert told[1].is_same_object(queue)


@pytest.mark.spec("MQAC-3.16.4.4-2")
def test_a_client_that_has_gone_is_forgotten_and_the_others_are_told(world: World, wire: Wire) -> None:
    event, _, sink, _ = listen(world, wire)
    (served,) = [one for one in wire.objects if isinstance(one, MSMQEvent)]

    async def come_and_go(point: RemoteInterface) -> None:
        """Another client hands in a sink and ends without a word."""
        settings = ClientSettings(resolver_port=wire.server.port)
        client = ComClient(settings, credentials=Credentials(USER, PASSWORD))
        own = await OwnObjects.start(HOST, lambda objref, _: client.unmarshal(objref))
        client.exporter = own.exporter
        mine = await client.unmarshal(await point.reference())
        advise = next(member for member in ICONNECTION_POINT.members if member.python == "advise")
        await mine.call(advise, Sink())
        await own.stop()
        await client.close()

    container = wire.query(event, ICONNECTION_POINT_CONTAINER)
    point = wire.call(container, ICONNECTION_POINT_CONTAINER, "find_connection_point", DMSMQ_EVENT_EVENTS.iid)
    world.run(come_and_go(point))
    assert len(served.connections) == 2

    async def fire() -> None:
        served.fire(None, 0)
        await asyncio.wait_for(sink.is_told.wait(), 10)
        while len(served.connections) > 1:  # noqa: ASYNC110 (nobody else tells)
            await asyncio.sleep(0.005)

    world.run(asyncio.wait_for(fire(), 20))
    assert sink.told == [("Arrived", None, 0)]


def test_a_sink_that_is_unadvised_is_given_back(world: World, wire: Wire) -> None:
    event, point, sink, cookie = listen(world, wire)
    wire.call(point, ICONNECTION_POINT, "unadvise", cookie)

    async def given_back() -> None:
        while not sink.released_times:  # noqa: ASYNC110 (nobody else tells)
            await asyncio.sleep(0.005)

    world.run(asyncio.wait_for(given_back(), 10))
    assert not event.is_released


class BusySink(Sink):
    """Its program does not return before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def arrived(self, call: ComCall, queue: RemoteInterface, cursor: int) -> None:  # type: ignore[override]  # takes a while
        super().arrived(call, queue, cursor)
        await self.go_on.wait()


async def _busy(count: int) -> list[BusySink]:
    return [BusySink() for _ in range(count)]


async def _told(sinks: Sequence[BusySink]) -> None:
    await asyncio.wait_for(asyncio.gather(*[sink.is_told.wait() for sink in sinks]), 20)


def test_all_sinks_of_a_program_are_told_at_once(world: World, wire: Wire) -> None:
    """A sink that gets no event does not ask for the next one."""
    event = wire.create(MSMQ_EVENT.clsid, IMSMQ_EVENT3)
    point = wire.query(event, ICONNECTION_POINT)
    sinks = world.run(_busy(MAX_CONNECTIONS))
    for sink in sinks:
        wire.call(point, ICONNECTION_POINT, "advise", sink)
    wire.call(wire.query(event, IMSMQ_PRIVATE_EVENT), IMSMQ_PRIVATE_EVENT, "fire_arrived_event", None, 0)
    world.run(_told(sinks))
    for sink in sinks:
        sink.go_on.set()


def test_a_sink_may_take_longer_than_other_calls(world: World, wire: Wire) -> None:
    """A program works with the message before it returns."""
    calls = wire.server.com.client.calls
    event = wire.create(MSMQ_EVENT.clsid, IMSMQ_EVENT3)
    (sink,) = world.run(_busy(1))
    wire.call(wire.query(event, ICONNECTION_POINT), ICONNECTION_POINT, "advise", sink)
    (served,) = [one for one in wire.objects if isinstance(one, MSMQEvent)]
    calls.settings = replace(calls.settings, call_timeout=0.005)
    private = wire.query(event, IMSMQ_PRIVATE_EVENT)
    wire.call(private, IMSMQ_PRIVATE_EVENT, "fire_arrived_event", None, 0)
    world.run(_told([sink]))
    world.run(asyncio.sleep(0.02))
    sink.go_on.set()
    sink.is_told.clear()
    wire.call(private, IMSMQ_PRIVATE_EVENT, "fire_arrived_event", None, 1)
    world.run(_told([sink]))
    assert [told[2] for told in sink.told] == [0, 1]
    assert len(served.connections) == 1
