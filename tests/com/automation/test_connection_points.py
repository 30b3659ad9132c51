"""Connection points: sinks come, are enumerated, and go (MC-MQAC 3.16.4.5, 3.16.4.6)."""

from __future__ import annotations

import asyncio
import struct
from typing import ClassVar
from uuid import UUID

import pytest

from lanner.activex import tables
from lanner.com.automation.connection_points import ICONNECTION_POINT, ICONNECTION_POINT_CONTAINER, Connectable
from lanner.com.automation.enumerators import IENUM_CONNECTION_POINTS, IENUM_CONNECTIONS
from lanner.com.automation.stubs import ConnectData
from lanner.com.constants import (
    CONNECT_E_ADVISELIMIT,
    CONNECT_E_CANNOTCONNECT,
    CONNECT_E_NOCONNECTION,
    E_POINTER,
    IID_ICONNECTIONPOINT,
    IID_ICONNECTIONPOINTCONTAINER,
    IID_IUNKNOWN,
    S_FALSE,
    S_OK,
)
from lanner.com.objects import ComCall, ComError, ComObject
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import SYSTEM
from tests.com.fakes import Caller, Exporter, Foreign

EVENTS = tables.DMSMQ_EVENT_EVENTS.iid


class Event(Connectable):
    interfaces: ClassVar = tables.MSMQ_EVENT.interfaces
    outgoing: ClassVar = tables.DMSMQ_EVENT_EVENTS


class Point(Caller):
    """A client of the connection point of an event."""

    def __init__(self, event: Event) -> None:
        super().__init__(event, ICONNECTION_POINT, Exporter())

    def advise(self, sink: Foreign | None) -> tuple[int, int]:
        (cookie,), hresult = self.call("Advise", None if sink is None else self.exporter.let_in(sink))
        return cookie, hresult


def test_the_event_is_its_own_connection_point() -> None:
    event = Event()
    assert event.query_interface(IID_ICONNECTIONPOINT) is ICONNECTION_POINT
    assert event.query_interface(IID_ICONNECTIONPOINTCONTAINER) is ICONNECTION_POINT_CONTAINER
    assert event.default_dispatch() is tables.IMSMQ_EVENT3


@pytest.mark.spec("MQAC-3.16.4.5.1-1")
def test_a_connection_point_names_its_interface_and_its_container() -> None:
    """GetConnectionInterface returns d7d6e078-....

    GetConnectionPointContainer returns the container of the same event object.
    """
    point = Point(Event())
    assert point.call("GetConnectionInterface") == ([UUID("d7d6e078-dccd-11d0-aa4b-0060970debae")], S_OK)
    (objref,), hresult = point.call("GetConnectionPointContainer")
    assert (objref.iid, hresult) == (IID_ICONNECTIONPOINTCONTAINER, S_OK)
    assert point.object_of(objref) is point.obj


@pytest.mark.spec("MQAC-3.16.4.6.1-1")
def test_a_container_has_exactly_one_connection_point() -> None:
    """EnumConnectionPoints returns an enumerator holding exactly one connection point."""
    container = Caller(Event(), ICONNECTION_POINT_CONTAINER)
    (objref,), hresult = container.call("EnumConnectionPoints")
    assert (objref.iid, hresult) == (IENUM_CONNECTION_POINTS.iid, S_OK)
    enumerator = Caller(container.object_of(objref), IENUM_CONNECTION_POINTS, container.exporter)
    ((point,), number), hresult = enumerator.call("Next", 2)
    assert (number, hresult) == (1, S_FALSE)
    assert point.iid == IID_ICONNECTIONPOINT
    assert container.object_of(point) is container.obj


@pytest.mark.spec("MQAC-3.16.4.6.2-1")
def test_the_connection_point_of_an_interface() -> None:
    """FindConnectionPoint returns the connection point of d7d6e078-....

    For any other IID it returns CONNECT_E_NOCONNECTION.
    """
    container = Caller(Event(), ICONNECTION_POINT_CONTAINER)
    (objref,), hresult = container.call("FindConnectionPoint", EVENTS)
    assert (objref.iid, hresult) == (IID_ICONNECTIONPOINT, S_OK)
    assert container.object_of(objref) is container.obj
    for other in (IID_IUNKNOWN, tables.IMSMQ_EVENT3.iid):
        assert container.call("FindConnectionPoint", other) == ([None], CONNECT_E_NOCONNECTION)


@pytest.mark.spec("MQAC-3.16.4.5.3-1")
def test_a_sink_without_the_interface_is_refused() -> None:
    """Advise queries the sink; if refused it returns CONNECT_E_CANNOTCONNECT and cookie 0."""
    event, sink = Event(), Foreign(IID_IUNKNOWN)
    assert Point(event).advise(sink) == (0, CONNECT_E_CANNOTCONNECT)
    assert not event.connections
    assert sink.is_released


@pytest.mark.spec("MQAC-3.16.4.5.3-2")
def test_cookies_are_unique_and_sinks_are_kept() -> None:
    """Success returns a cookie that is unique among live connections of that event.

    It also keeps a reference on the sink.
    """
    event = Event()
    point = Point(event)
    cookies = [point.advise(Foreign(EVENTS)) for _ in range(3)]
    assert [hresult for _, hresult in cookies] == [S_OK] * 3
    assert set(event.connections) == {cookie for cookie, _ in cookies}
    assert 0 not in event.connections
    for sink in event.connections.values():
        assert isinstance(sink, Foreign)
        # What is kept is the interface that it was asked for.
        assert sink.iid == EVENTS
        assert not sink.is_released


def test_a_cookie_is_not_given_again_while_it_lives() -> None:
    event = Event()
    point = Point(event)
    first, _ = point.advise(Foreign(EVENTS))
    event._last_cookie = 0xFFFF_FFFF
    assert point.advise(Foreign(EVENTS)) == (first + 1, S_OK)


@pytest.mark.spec("MQAC-3.16.4.5.3-3")
def test_so_many_sinks_and_no_more() -> None:
    """Advise at the connection limit returns CONNECT_E_ADVISELIMIT."""
    event = Event(connection_limit=2)
    point = Point(event)
    cookie, _ = point.advise(Foreign(EVENTS))
    assert point.advise(Foreign(EVENTS))[1] == S_OK
    refused = Foreign(EVENTS)
    assert point.advise(refused) == (0, CONNECT_E_ADVISELIMIT)
    assert refused.is_released
    point.call("Unadvise", cookie)
    assert point.advise(Foreign(EVENTS))[1] == S_OK


def call_on(event: Event) -> ComCall:
    member = ICONNECTION_POINT.by_opnum[5]
    return ComCall(SYSTEM, AuthLevel.PKT_INTEGRITY, "test", Exporter(), ICONNECTION_POINT, member)


class Slow(Foreign):
    """A sink that answers when the test says so."""

    def __init__(self) -> None:
        super().__init__(EVENTS)
        self.may_answer = asyncio.Event()
        self.answered: list[Foreign] = []

    async def query_interface(self, iid: UUID) -> Foreign:
        await self.may_answer.wait()
        self.answered.append(await super().query_interface(iid))
        return self.answered[-1]


def test_sinks_that_are_being_asked_have_their_places() -> None:
    async def both() -> None:
        event, slow, late = Event(connection_limit=1), Slow(), Foreign(EVENTS)
        first = asyncio.create_task(event.advise(call_on(event), slow))
        await asyncio.sleep(0)
        with pytest.raises(ComError):
            await event.advise(call_on(event), late)
        slow.may_answer.set()
        assert await first in event.connections

    asyncio.run(both())


def test_an_event_that_is_released_meanwhile_keeps_nothing() -> None:
    async def both() -> None:
        event, slow = Event(), Slow()
        task = asyncio.create_task(event.advise(call_on(event), slow))
        await asyncio.sleep(0)
        event.released()
        slow.may_answer.set()
        with pytest.raises(ComError):
            await task
        assert not event.connections
        assert [sink.is_released for sink in (*slow.answered, slow)] == [True, True]

    asyncio.run(both())


@pytest.mark.spec("MQAC-3.16.4.5.3-4")
def test_no_sink_is_e_pointer() -> None:
    assert Point(Event()).advise(None) == (0, E_POINTER)


@pytest.mark.spec("MQAC-3.16.4.5.4-1")
def test_unadvise_lets_a_sink_go() -> None:
    """An unknown cookie returns CONNECT_E_NOCONNECTION.

    Success releases the sink and stops further events to it.
    """
    event = Event()
    point = Point(event)
    cookie, _ = point.advise(Foreign(EVENTS))
    sink = event.connections[cookie]
    assert point.call("Unadvise", cookie + 1) == ([], CONNECT_E_NOCONNECTION)
    assert point.call("Unadvise", cookie) == ([], S_OK)
    assert isinstance(sink, Foreign)
    assert sink.is_released
    assert not event.connections
    assert point.call("Unadvise", cookie) == ([], CONNECT_E_NOCONNECTION)


@pytest.mark.spec("MQAC-3.16.4.5.5-1")
def test_connections_are_enumerated_with_their_cookies() -> None:
    """EnumConnections: its enumerator lists each sink with its cookie (CONNECTDATA)."""
    event = Event()
    point = Point(event)
    cookies = [point.advise(Foreign(EVENTS))[0] for _ in range(2)]
    (objref,), hresult = point.call("EnumConnections")
    assert (objref.iid, hresult) == (IENUM_CONNECTIONS.iid, S_OK)
    enumerator = Caller(point.object_of(objref), IENUM_CONNECTIONS, point.exporter)
    (found, number), hresult = enumerator.call("Next", 3)
    sinks = [event.connections[cookie] for cookie in cookies]
    assert [isinstance(sink, Foreign) for sink in sinks] == [True, True]
    assert found == tuple(ConnectData(sink.objref, cookie) for sink, cookie in zip(sinks, cookies, strict=True))  # type: ignore[union-attr]
    assert (number, hresult) == (2, S_FALSE)


def test_connect_data_as_octets() -> None:
    """The structures side by side, then what their pointers point to."""
    event = Event()
    point = Point(event)
    point.advise(Foreign(EVENTS))
    (objref,), _ = point.call("EnumConnections")
    enumerator = Caller(point.object_of(objref), IENUM_CONNECTIONS, point.exporter)
    data = enumerator.raw(enumerator.find("Next"), struct.pack("<I", 1))
    size = struct.unpack_from("<I", data, 24)[0]
    assert struct.unpack_from("<IIIIIII", data) == (1, 0, 1, 0x20000, 1, size, size)
    assert data[28:32] == b"MEOW"
    assert data[-8:] == struct.pack("<II", 1, S_OK)


def test_a_released_event_lets_its_sinks_go() -> None:
    event = Event()
    point = Point(event)
    for _ in range(2):
        point.advise(Foreign(EVENTS))
    sinks = list(event.connections.values())
    event.released()
    assert all(isinstance(sink, Foreign) and sink.is_released for sink in sinks)
    assert not event.connections


class Local(ComObject):
    interfaces: ClassVar = (tables.DMSMQ_EVENT_EVENTS,)


def test_a_sink_of_our_own() -> None:
    event, local = Event(), Local()
    point = Point(event)
    (cookie,), hresult = point.call("Advise", local)
    assert hresult == S_OK
    assert event.connections == {cookie: local}
    assert point.call("Advise", Event()) == ([0], CONNECT_E_CANNOTCONNECT)
    assert event.disconnect(cookie)
    assert not event.disconnect(cookie)
