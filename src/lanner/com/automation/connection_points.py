"""Objects with event sinks (IConnectionPointContainer, IConnectionPoint; MC-MQAC 3.16.4.5, .6).

Each object is its own and only connection point. A client that holds either interface therefore
holds the object and its sinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from lanner.com.automation.enumerators import EnumConnectionPoints, EnumConnections
from lanner.com.automation.stubs import ConnectData
from lanner.com.constants import (
    CONNECT_E_ADVISELIMIT,
    CONNECT_E_CANNOTCONNECT,
    CONNECT_E_NOCONNECTION,
    E_POINTER,
    IID_ICONNECTIONPOINT,
    IID_ICONNECTIONPOINTCONTAINER,
    IID_IENUMCONNECTIONPOINTS,
    IID_IENUMCONNECTIONS,
    IID_IUNKNOWN,
)
from lanner.com.members import InterfaceTable, Member, Parameter
from lanner.com.objects import ComCall, ComError, ComObject, Remote

# Not in the specification: the maximum number of sinks of one object (MC-MQAC 3.16.1
# ConnectionLimit). ATL, on which Windows' coclasses are built, has no limit.
MAX_CONNECTIONS: Final = 64
_MAX_COOKIE: Final = 0xFFFF_FFFF

Sink: TypeAlias = ComObject | Remote

ICONNECTION_POINT: Final = InterfaceTable(
    "IConnectionPoint",
    IID_ICONNECTIONPOINT,
    "IUnknown",
    is_dual=False,
    members=(
        Member(
            3, -1, "method", "GetConnectionInterface", (Parameter("pIID", "out", "IID*"),), "get_connection_interface"
        ),
        Member(
            4,
            -1,
            "method",
            "GetConnectionPointContainer",
            (Parameter("ppCPC", "out", "IConnectionPointContainer**", iid=IID_ICONNECTIONPOINTCONTAINER),),
            "get_connection_point_container",
        ),
        Member(
            5,
            -1,
            "method",
            "Advise",
            (Parameter("pUnkSink", "in", "IUnknown*", iid=IID_IUNKNOWN), Parameter("pdwCookie", "out", "DWORD*")),
            "advise",
        ),
        Member(6, -1, "method", "Unadvise", (Parameter("dwCookie", "in", "DWORD"),), "unadvise"),
        Member(
            7,
            -1,
            "method",
            "EnumConnections",
            (Parameter("ppEnum", "out", "IEnumConnections**", iid=IID_IENUMCONNECTIONS),),
            "enum_connections",
        ),
    ),
)
ICONNECTION_POINT_CONTAINER: Final = InterfaceTable(
    "IConnectionPointContainer",
    IID_ICONNECTIONPOINTCONTAINER,
    "IUnknown",
    is_dual=False,
    members=(
        Member(
            3,
            -1,
            "method",
            "EnumConnectionPoints",
            (Parameter("ppEnum", "out", "IEnumConnectionPoints**", iid=IID_IENUMCONNECTIONPOINTS),),
            "enum_connection_points",
        ),
        Member(
            4,
            -1,
            "method",
            "FindConnectionPoint",
            (
                Parameter("riid", "in", "REFIID"),
                Parameter("ppCP", "out", "IConnectionPoint**", iid=IID_ICONNECTIONPOINT),
            ),
            "find_connection_point",
        ),
    ),
)


class Connectable(ComObject):
    """An object with one outgoing interface, which it calls on the sinks that clients register."""

    # The interface that sinks must have.
    outgoing: ClassVar[InterfaceTable]

    def __init__(self, *, connection_limit: int = MAX_CONNECTIONS) -> None:
        self._connection_limit = connection_limit
        # MC-MQAC 3.16.1 ConnectionCollection, by cookie.
        self._connections: dict[int, Sink] = {}
        self._last_cookie = 0
        # Sinks that are being queried for the interface. Each already counts against the limit.
        self._advising = 0
        self._is_closed = False

    @property
    def connections(self) -> Mapping[int, Sink]:
        """The sinks, keyed by cookie."""
        return MappingProxyType(self._connections)

    def extra_interfaces(self) -> tuple[InterfaceTable, ...]:
        return (ICONNECTION_POINT_CONTAINER, ICONNECTION_POINT)

    def released(self) -> None:
        """Release the sinks. A subclass that holds more must extend this method."""
        self._is_closed = True
        while self._connections:
            self.disconnect(next(iter(self._connections)))

    def disconnect(self, cookie: int) -> bool:
        """Release a sink at its client's request or because it is unreachable.

        Return whether the sink was connected.
        """
        sink = self._connections.pop(cookie, None)
        if sink is not None:
            _give_back(sink)
        return sink is not None

    # IConnectionPointContainer

    def enum_connection_points(self, call: ComCall) -> EnumConnectionPoints:  # noqa: ARG002
        """Enumerate the connection points (MC-MQAC 3.16.4.6.1)."""
        return EnumConnectionPoints((self,))

    def find_connection_point(self, call: ComCall, iid: UUID) -> Connectable:  # noqa: ARG002
        """Return the connection point of an interface (MC-MQAC 3.16.4.6.2)."""
        if iid != self.outgoing.iid:
            raise ComError(CONNECT_E_NOCONNECTION, f"no connection point for {iid}")
        return self

    # IConnectionPoint

    def get_connection_interface(self, call: ComCall) -> UUID:  # noqa: ARG002
        """Return the IID of the outgoing interface (MC-MQAC 3.16.4.5.1)."""
        return self.outgoing.iid

    def get_connection_point_container(self, call: ComCall) -> Connectable:  # noqa: ARG002
        """Return the container, which is this object (MC-MQAC 3.16.4.5.2)."""
        return self

    async def advise(self, call: ComCall, sink: Sink | None) -> int:  # noqa: ARG002
        """Connect a sink and return its cookie (MC-MQAC 3.16.4.5.3)."""
        if sink is None:
            # The code is that of MS-ERREF; MC-MQAC prints a different one.
            raise ComError(E_POINTER, "no sink")
        if len(self._connections) + self._advising >= self._connection_limit:
            _give_back(sink)
            raise ComError(CONNECT_E_ADVISELIMIT, f"there are {self._connection_limit} sinks")
        self._advising += 1
        try:
            outgoing = await self._outgoing_of(sink)
        finally:
            self._advising -= 1
        if self._is_closed:
            _give_back(outgoing)
            raise ComError(CONNECT_E_CANNOTCONNECT, "the object has been released")
        cookie = self._next_cookie()
        self._connections[cookie] = outgoing
        return cookie

    async def _outgoing_of(self, sink: Sink) -> Sink:
        """Query a sink for the interface through which its members are called."""
        iid = self.outgoing.iid
        if isinstance(sink, ComObject):
            if sink.query_interface(iid) is None:
                raise ComError(CONNECT_E_CANNOTCONNECT, f"{type(sink).__name__} has no {self.outgoing.name}")
            return sink
        try:
            return await sink.query_interface(iid)
        except (TimeoutError, ComError) as problem:
            raise ComError(CONNECT_E_CANNOTCONNECT, f"{self.outgoing.name}: {problem}") from problem
        finally:
            # The queried interface has its own reference.
            sink.release()

    def _next_cookie(self) -> int:
        """Return an unused cookie other than 0."""
        cookie = self._last_cookie
        while True:
            cookie = cookie % _MAX_COOKIE + 1
            if cookie not in self._connections:
                self._last_cookie = cookie
                return cookie

    def unadvise(self, call: ComCall, cookie: int) -> None:  # noqa: ARG002
        """Disconnect a sink (MC-MQAC 3.16.4.5.4)."""
        if not self.disconnect(cookie):
            raise ComError(CONNECT_E_NOCONNECTION, f"no connection {cookie}")

    def enum_connections(self, call: ComCall) -> EnumConnections:  # noqa: ARG002
        """Enumerate the connections (MC-MQAC 3.16.4.5.5)."""
        return EnumConnections(ConnectData(sink, cookie) for cookie, sink in self._connections.items())


def _give_back(sink: Sink) -> None:
    if not isinstance(sink, ComObject):
        sink.release()
