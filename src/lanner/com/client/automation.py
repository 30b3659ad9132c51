# ruff: noqa: SLF001  public names of a Dispatch are those of the object elsewhere
r"""Access to automation objects of another computer by name, as in pywin32.

>>> computer = lanner.com.connect("beta", user="alice", password="secret")
>>> info = computer.dispatch("MSMQ.MSMQQueueInfo")
>>> info.PathName = r".\private$\orders"
>>> queue = info.Open(1, 0)
>>> message = queue.Receive(ReceiveTimeout=1000)
>>> print(message.Label, message.Body)

The attributes of such an object are its members, in any capitalisation. Because it has no Python
attributes of its own, everything else is a function: `with_events`, `release`. An object is
released when Python drops the last reference to it, at the latest when its connection is closed.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from uuid import UUID

from lanner.com.automation.connection_points import ICONNECTION_POINT, ICONNECTION_POINT_CONTAINER
from lanner.com.automation.enumerators import IENUM_CONNECTION_POINTS, IENUM_VARIANT
from lanner.com.automation.values import Variant
from lanner.com.client.activation import server_alive
from lanner.com.client.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.client.connections import Address
from lanner.com.client.dispatch import (
    DISPATCH_METHOD,
    DISPATCH_PROPERTYGET,
    DISPATCH_PROPERTYPUT,
    DISPATCH_PROPERTYPUTREF,
    DISPID_NEWENUM,
    DISPID_PROPERTYPUT,
    DISPID_VALUE,
    DispatchError,
    get_ids_of_names,
    invoke,
)
from lanner.com.client.event_sinks import Deliver, make_sink
from lanner.com.client.event_thread import EventThread
from lanner.com.client.exporter import OwnObjects, local_address
from lanner.com.client.python_values import from_variant, to_variant
from lanner.com.constants import (
    DISP_E_BADPARAMCOUNT,
    DISP_E_MEMBERNOTFOUND,
    DISP_E_PARAMNOTOPTIONAL,
    DISP_E_TYPEMISMATCH,
    DISP_E_UNKNOWNNAME,
    E_INVALIDARG,
    IID_ICONNECTIONPOINTCONTAINER,
    IID_IDISPATCH,
    IID_IENUMVARIANT,
    RPC_E_DISCONNECTED,
)
from lanner.com.hresults import hresult_name
from lanner.com.known_classes import EVENTS, class_id
from lanner.com.members import InterfaceTable
from lanner.com.objects import ComError, ComObject
from lanner.com.objref import ObjRef
from lanner.host.loop_thread import LoopThread
from lanner.rpc.endpoint_mapper import EPMAPPER_PORT
from lanner.rpc.ndr import Value
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.rpc.security import Credentials
from lanner.wire.vartypes import VT

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

# A null object reference, like VBScript's Nothing.
NOTHING: Final = Variant(VT.DISPATCH, None)
# HRESULTs that distinguish a method from a property when its value is read. The list is pywin32's.
_IS_NO_PROPERTY: Final = frozenset(
    {DISP_E_MEMBERNOTFOUND, DISP_E_BADPARAMCOUNT, DISP_E_PARAMNOTOPTIONAL, DISP_E_TYPEMISMATCH, E_INVALIDARG}
)
_ELEMENTS_AT_ONCE: Final = 32
# How long releasing objects may delay the exit of a program.
_TIME_TO_END: Final = 3.0  # seconds
_LEVELS: Final = {"integrity": AuthLevel.PKT_INTEGRITY, "privacy": AuthLevel.PKT_PRIVACY}
_AUTHENTICATION: Final = {
    "ntlm": AuthType.WINNT,
    "negotiate": AuthType.GSS_NEGOTIATE,
    "kerberos": AuthType.GSS_KERBEROS,
}


class AutomationError(ComError):
    """A failed call on an object, with its HRESULT and the HRESULT's name."""

    def __init__(self, hresult: int, text: str, source: str = "", argument: int | None = None) -> None:
        super().__init__(hresult, text)
        self.source = source
        # The argument at fault, counted from 0, or None if there is none or it is unknown.
        self.argument = argument
        self.is_of_member = False

    @classmethod
    def of(cls, error: ComError) -> AutomationError:
        made = cls(error.hresult, error.text)
        if isinstance(error, DispatchError):
            made.source, made.argument, made.is_of_member = error.source, error.argument, error.is_of_member
        return made

    @property
    def name(self) -> str:
        """The documented name of the code, such as MQ_ERROR_QUEUE_NOT_FOUND; empty if unknown."""
        return hresult_name(self.hresult)

    def __str__(self) -> str:
        code = f"{self.name} {self.hresult:#010x}".strip()
        return f"{self.text} [{code}]" if code not in self.text else self.text


class _Parts:
    """The parts of a connection, in an object of their own.

    Their cleanup must not depend on the connection object.
    """

    def __init__(self) -> None:
        self.client: ComClient | None = None
        self.own: OwnObjects | None = None
        self.events: EventThread | None = None

    async def end(self) -> None:
        if self.client is not None:
            await self.client.close()
        if self.own is not None:
            await self.own.stop()
        if self.events is not None:
            self.events.stop()


class Connection:
    """A computer whose objects can be used. Close it, or use it in a `with` statement."""

    def __init__(
        self, host: str, credentials: Credentials, auth_type: AuthType, settings: ClientSettings, events_port: int
    ) -> None:
        self._host = host
        self._events_port = events_port
        self._thread = LoopThread("lanner-com")
        self._parts = _Parts()
        self._lock = threading.Lock()
        self._is_closed = False
        try:
            self.call(self._start(credentials, auth_type, settings))
        except BaseException:
            self._thread.stop()
            raise
        self._finalizer = weakref.finalize(self, self._thread.abandon, self._parts.end)
        self._finalizer.atexit = False
        _OPEN.add(self)

    async def _start(self, credentials: Credentials, auth_type: AuthType, settings: ClientSettings) -> None:
        client = ComClient(settings, credentials=credentials, auth_type=auth_type)
        try:
            await server_alive(client.calls, Address(self._host, settings.resolver_port))
        except BaseException:
            await client.close()
            raise
        self._parts.client = client

    def __repr__(self) -> str:
        return f"<objects of {self._host}{', closed' if self._is_closed else ''}>"

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's event loop.

        Raise AutomationError if COM reports an error.
        """
        if self._is_closed:
            coroutine.close()
            raise self._closed_error()
        try:
            return self._thread.call(coroutine)
        except ComError as error:
            raise AutomationError.of(error) from error

    @property
    def client(self) -> ComClient:
        if self._is_closed or self._parts.client is None:
            raise self._closed_error()
        return self._parts.client

    def _closed_error(self) -> AutomationError:
        return AutomationError(RPC_E_DISCONNECTED, f"the connection to {self._host} is closed")

    def dispatch(self, name: str | UUID) -> Dispatch:
        """Create an object of a class, given by ProgID (MSMQ.MSMQQueueInfo) or CLSID."""
        clsid = class_id(name)
        remote = self.call(self.client.activate(self._host, clsid, IID_IDISPATCH))
        return Dispatch(self, remote)

    def close(self, timeout: float | None = None) -> None:
        """Release all objects and disconnect. Closing twice is harmless."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._finalizer.detach()
        _OPEN.discard(self)
        try:
            self._thread.call(self._parts.end(), timeout)
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        self.close()

    # Events

    def event_thread(self) -> EventThread:
        with self._lock:
            if self._parts.events is None:
                self._parts.events = EventThread()
            return self._parts.events

    async def export(self) -> None:
        """Make local objects callable from that computer."""
        if self._parts.own is None:
            address = await local_address(self._host)
            self._parts.own = await OwnObjects.start(address, self._take, port=self._events_port)
            self.client.exporter = self._parts.own.exporter

    async def _take(self, objref: ObjRef, peer: str | None) -> RemoteInterface:
        """Unmarshal a reference that came with an event.

        It may refer to the computer that we call, or to the sender of the event.
        """
        return await self.client.unmarshal(objref, peer=None if self.client.knows(objref) else peer)


_OPEN: Final[weakref.WeakSet[Connection]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Release what a script left open, as Windows does when a process ends."""
    for connection in list(_OPEN):
        try:
            connection.close(_TIME_TO_END)
        except Exception as error:  # noqa: BLE001 (the program has ended; pings, too)
            _LOG.debug("%r: %s", connection, error)


def connect(
    host: str,
    user: str | None = None,
    password: str | None = None,
    *,
    domain: str = "",
    level: Literal["integrity", "privacy"] = "privacy",
    authentication: Literal["ntlm", "negotiate", "kerberos"] = "ntlm",
    port: int = EPMAPPER_PORT,
    timeout: float = 10.0,
    events_port: int = 0,
) -> Connection:
    r"""Use automation objects of another computer, Lanner or Windows.

    >>> with lanner.com.connect("beta", "alice", "secret") as computer:
    ...     info = computer.dispatch("MSMQ.MSMQQueueInfo")

    Without a `user` you are anonymous, with the rights that a queue grants to everyone. `timeout`,
    in seconds, applies to connecting; a call such as Receive has no time limit of its own.
    `events_port` is the port on which events are received: 0 means any port; Windows requires 135.
    """
    if level not in _LEVELS:
        raise ValueError(f"level {level!r}: integrity or privacy")
    if authentication not in _AUTHENTICATION:
        raise ValueError(f"authentication {authentication!r}: ntlm, negotiate or kerberos")
    settings = ClientSettings(level=_LEVELS[level], connect_timeout=timeout, resolver_port=port)
    credentials = Credentials(user or "", password or "", domain)
    return Connection(host, credentials, _AUTHENTICATION[authentication], settings, events_port)


# Objects
# --------------------------------------------------------------------------------------------------


class _Shape:
    """The known members of an object: DISPIDs by name, and which members are methods."""

    __slots__ = ("dispids", "methods")

    def __init__(self) -> None:
        self.dispids: dict[tuple[str, ...], tuple[int, ...]] = {}
        self.methods: set[str] = set()


class Dispatch:
    """A remote object. Its attributes are its members."""

    __slots__ = ("__weakref__", "_connection", "_remote", "_shape")
    _connection: Connection
    _remote: RemoteInterface
    _shape: _Shape

    def __init__(self, connection: Connection, remote: RemoteInterface) -> None:
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_remote", remote)
        object.__setattr__(self, "_shape", _Shape())

    # Members

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        key = name.lower()
        if key not in self._shape.methods:
            (dispid,) = self._dispids(name)
            try:
                return self._invoke(dispid, flags=DISPATCH_PROPERTYGET)
            except AutomationError as error:
                if error.is_of_member or error.hresult not in _IS_NO_PROPERTY:
                    raise
            self._shape.methods.add(key)
        return _Method(self, name)

    def __setattr__(self, name: str, value: Value) -> None:
        (dispid,) = self._dispids(name)
        is_object = isinstance(value, Dispatch | ComObject) or value is NOTHING
        kinds = (DISPATCH_PROPERTYPUTREF, DISPATCH_PROPERTYPUT) if is_object else (DISPATCH_PROPERTYPUT,)
        try:
            self._put(dispid, value, kinds)
        except AutomationError as error:
            # None stands for Nothing where an object is expected.
            if value is not None or error.hresult != DISP_E_TYPEMISMATCH:
                raise
            self._put(dispid, NOTHING, (DISPATCH_PROPERTYPUTREF, DISPATCH_PROPERTYPUT))

    def _put(self, dispid: int, value: object, kinds: Sequence[int]) -> None:
        *others, last = kinds
        for flags in others:
            try:
                self._invoke(dispid, (value,), flags=flags, named=(DISPID_PROPERTYPUT,))
            except AutomationError as error:
                if error.hresult != DISP_E_MEMBERNOTFOUND:
                    raise
            else:
                return
        self._invoke(dispid, (value,), flags=last, named=(DISPID_PROPERTYPUT,))

    def __call__(self, *arguments: object, **named: object) -> Value:
        """Call the default member, like VB's parentheses."""
        if named:
            raise TypeError("the default member takes no arguments by name")
        return self._invoke(DISPID_VALUE, arguments, flags=DISPATCH_METHOD | DISPATCH_PROPERTYGET)

    def __getitem__(self, key: object) -> Value:
        return self._invoke(DISPID_VALUE, (key,), flags=DISPATCH_METHOD | DISPATCH_PROPERTYGET)

    def __len__(self) -> int:
        return int(self.Count)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Value]:
        """Iterate over the elements that _NewEnum enumerates."""
        connection = self._connection
        enumerator = connection.call(self._enumerator())
        while True:
            found, _ = connection.call(enumerator.call(IENUM_VARIANT.by_opnum[3], _ELEMENTS_AT_ONCE))
            for each in found:
                yield from_variant(each, self._wrap)
            if len(found) < _ELEMENTS_AT_ONCE:
                return

    async def _enumerator(self) -> RemoteInterface:
        result, _ = await invoke(self._remote, DISPID_NEWENUM, flags=DISPATCH_METHOD | DISPATCH_PROPERTYGET)
        found: RemoteInterface = result.value
        return found if found.iid == IID_IENUMVARIANT else await found.query_interface(IID_IENUMVARIANT)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dispatch):
            return NotImplemented
        return self._remote.is_same_object(other._remote)

    def __hash__(self) -> int:
        return hash(self._remote.oid)

    def __repr__(self) -> str:
        return f"<object {self._remote.oid:#x} of {self._connection!r}>"

    # Implementation

    def _dispids(self, *names: str) -> tuple[int, ...]:
        """Return the DISPIDs of a member and its parameters.

        Raise AttributeError if it is missing.
        """
        key = tuple([name.lower() for name in names])
        found = self._shape.dispids.get(key)
        if found is None:
            try:
                found = self._connection.call(self._ask_for(names))
            except AutomationError as error:
                if error.hresult != DISP_E_UNKNOWNNAME:
                    raise
                raise AttributeError(f"the object has no {', '.join(names)}") from error
            self._shape.dispids[key] = found
        return found

    async def _ask_for(self, names: Sequence[str]) -> tuple[int, ...]:
        remote = self._remote
        if remote.iid != IID_IDISPATCH:
            # IUnknown has no names; IDispatch exposes those of one interface of the object.
            object.__setattr__(self, "_remote", await remote.query_interface(IID_IDISPATCH))
            remote.release()
        return await get_ids_of_names(self._remote, names)

    def _invoke(self, dispid: int, arguments: Sequence[object] = (), *, flags: int, named: Sequence[int] = ()) -> Value:
        variants = [to_variant(each, _behind) for each in arguments]
        result, _ = self._connection.call(invoke(self._remote, dispid, variants, flags=flags, named=named))
        return from_variant(result, self._wrap)

    def _wrap(self, found: Value) -> Value:
        return Dispatch(self._connection, found) if isinstance(found, RemoteInterface) else found


class _Method:
    """A member that takes arguments."""

    __slots__ = ("_name", "_of")

    def __init__(self, of: Dispatch, name: str) -> None:
        self._of = of
        self._name = name

    def __call__(self, *arguments: object, **named: object) -> Value:
        of = self._of
        dispid, *places = of._dispids(self._name, *named)
        values = (*arguments, *named.values())
        return of._invoke(dispid, values, flags=DISPATCH_METHOD | DISPATCH_PROPERTYGET, named=places)

    def __repr__(self) -> str:
        return f"<method {self._name} of {self._of!r}>"


def _behind(value: object) -> Value:
    if isinstance(value, Dispatch):
        return value._remote
    return value if isinstance(value, ComObject | RemoteInterface) else None


def release(found: Dispatch) -> None:
    """Release an object now. It cannot be used afterwards."""
    found._remote.release()


# Events
# --------------------------------------------------------------------------------------------------


class EventConnection:
    """A subscription to the events of an object.

    Close it, or use it in a `with` statement; otherwise it ends with the connection to the
    computer.
    """

    def __init__(self, connection: Connection, point: RemoteInterface, cookie: int, sink: ComObject) -> None:
        self._connection = connection
        self._point = point
        self._cookie: int | None = cookie
        # The server's references keep it alive; this one is for debuggers.
        self.sink = sink

    def close(self) -> None:
        """Disconnect the sink from the object. Closing twice is harmless."""
        cookie, self._cookie = self._cookie, None
        if cookie is not None:
            self._connection.call(self._point.call(ICONNECTION_POINT.by_opnum[6], cookie))
            self._point.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        self.close()


def with_events(source: Dispatch, handler: object, events: InterfaceTable | None = None) -> EventConnection:
    """Call a handler's methods for the events of an object.

    A method has the name of its event, such as `Arrived`, or, as in pywin32, `OnArrived`. If
    `handler` is a class, an instance is created. The methods run one after the other in a thread of
    their own, where they may use objects as in any other thread. `events` is only needed for
    objects other than those of message queuing.
    """
    connection = source._connection
    found = handler() if isinstance(handler, type) else handler
    thread = connection.event_thread()

    def deliver(name: str, arguments: tuple[Value, ...]) -> bool:
        method = getattr(found, name, None) or getattr(found, f"On{name}", None)
        if method is None:
            return True
        wrapped = [source._wrap(each) for each in arguments]
        return thread.put(lambda: method(*wrapped))

    return connection.call(_advise(connection, source, deliver, events))


async def _advise(
    connection: Connection, source: Dispatch, deliver: Deliver, events: InterfaceTable | None
) -> EventConnection:
    await connection.export()
    container = await source._remote.query_interface(IID_ICONNECTIONPOINTCONTAINER)
    if events is None:
        point, events = await _first_point(container)
    else:
        (point,) = await container.call(ICONNECTION_POINT_CONTAINER.by_opnum[4], events.iid)
    container.release()
    sink = make_sink(events, deliver)
    (cookie,) = await point.call(ICONNECTION_POINT.by_opnum[5], sink)
    return EventConnection(connection, point, cookie, sink)


async def _first_point(container: RemoteInterface) -> tuple[RemoteInterface, InterfaceTable]:
    """Return the first connection point whose event interface is known."""
    (enumerator,) = await container.call(ICONNECTION_POINT_CONTAINER.by_opnum[3])
    seen: list[str] = []
    while True:
        found, count = await enumerator.call(IENUM_CONNECTION_POINTS.by_opnum[3], 1)
        if not count:
            raise ComError(E_INVALIDARG, f"events that are not known: {', '.join(seen) or 'none'}")
        (point,) = found
        (iid,) = await point.call(ICONNECTION_POINT.by_opnum[3])
        if iid in EVENTS:
            return point, EVENTS[iid]
        seen.append(str(iid))
