"""Objects that remote clients call, and the errors of such calls.

Each member of an interface is a method of the object, with the caller as first argument:
`get_path_name(self, call)`, `put_path_name(self, call, value)`, `open(self, call, access,
share_mode)`. The interface's table has the method names. A method returns the [out, retval] value;
a tuple of all out parameters in IDL order, if there are several; or None, if there is none. It may
wrap any of these in a `Success`, or return a coroutine. It raises `ComError` or `StatusError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol
from uuid import UUID

from lanner.com.constants import IID_IDISPATCH, IID_IUNKNOWN
from lanner.com.members import IDISPATCH, IUNKNOWN, InterfaceTable, Member
from lanner.model.errors import LannerError
from lanner.rpc.ndr import Value
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ComError(LannerError):
    """A call that failed with one of COM's own codes. Codes of message queuing are StatusErrors."""

    def __init__(self, hresult: int, text: str = "") -> None:
        super().__init__(text or f"{hresult:#010x}")
        self.hresult = hresult
        self.text = text


@dataclass(frozen=True, slots=True)
class Success:
    """A result under a success code that is not S_OK: S_FALSE, MQ_INFORMATION_*."""

    hresult: int
    value: Value = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure code that is returned together with out parameters, as in IDispatch.

    Other failures are exceptions and leave the out parameters empty.
    """

    hresult: int
    value: Value = None


class Remote(Protocol):
    """A reference to a remote object. `lanner.com.client` implements it."""

    @property
    def iid(self) -> UUID: ...

    async def query_interface(self, iid: UUID) -> Remote: ...

    async def reference(self) -> Value:
        """Return an ObjRef of it, to be passed on."""

    def release(self) -> None: ...


class ComObject:
    """An object that remote clients hold. All its interfaces share one OID."""

    # The interfaces beyond IUnknown, IDispatch and their bases. IDispatch exposes the members of
    # the last dual one.
    interfaces: ClassVar[tuple[InterfaceTable, ...]] = ()

    def extra_interfaces(self) -> tuple[InterfaceTable, ...]:
        """Return further interfaces, such as IConnectionPointContainer.

        IDispatch does not expose their members.
        """
        return ()

    @property
    def octets(self) -> int:
        """The approximate size of the data that its client gave it or will fetch.

        Small objects need not report a size.
        """
        return 0

    def released(self) -> None:
        """Close what the object holds: no client refers to it. Called once, on the event loop."""

    def default_dispatch(self) -> InterfaceTable | None:
        """Return the table that IDispatch exposes, or None if the object has no IDispatch."""
        return next((table for table in reversed(self.interfaces) if table.is_dispatch), None)

    def all_interfaces(self) -> Iterator[InterfaceTable]:
        for table in (*self.interfaces, *self.extra_interfaces()):
            yield table
            yield from table.bases

    def query_interface(self, iid: UUID) -> InterfaceTable | None:
        """Return the table of an interface of this object; None stands for E_NOINTERFACE."""
        if iid == IID_IUNKNOWN:
            return IUNKNOWN
        if iid == IID_IDISPATCH:
            return None if self.default_dispatch() is None else IDISPATCH
        return next((table for table in self.all_interfaces() if table.iid == iid), None)


class Exporter(Protocol):
    """The part of the exporter that a call uses to marshal and unmarshal references."""

    def marshal(self, obj: ComObject, iid: UUID, public_refs: int = 5) -> Value: ...

    async def unmarshal(self, objref: Value) -> ComObject | Remote | None: ...

    def discard(self, obj: ComObject) -> None:
        """Release an object that was created for a client but not delivered."""

    def require_room(self) -> None:
        """Raise ComError if the caller may hold no more objects.

        Call it before creating an object that could not be created again.
        """


@dataclass(frozen=True, slots=True)
class ComCall:
    """The caller of a member, the kind of call, and the marshaler of its answer."""

    identity: Identity
    auth_level: AuthLevel
    peer: str
    exporter: Exporter
    interface: InterfaceTable
    member: Member


# A property that is set by value can be set by reference and vice versa, unless the object has a
# method for each.
_OTHER_WAY: Final = {"put_": "putref_", "putref_": "put_"}


def find_method(obj: ComObject, member: Member) -> Callable[..., Value] | None:
    """Return the method that implements a member, or None if it is not implemented."""
    method: Callable[..., Value] | None = getattr(obj, member.python, None)
    if method is None:
        prefix, _, name = member.python.partition("_")
        other = _OTHER_WAY.get(f"{prefix}_")
        if other is not None:
            method = getattr(obj, f"{other}{name}", None)
    return method
