"""Calls as a server sees them, and the events of its connections (MS-RPCE 3.3.3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from lanner.rpc.association import AssociationGroup, Rundown
from lanner.rpc.pdu import AuthLevel, SyntaxId
from lanner.rpc.security_contexts import SecurityContext
from lanner.security.identity import Identity
from lanner.wire.sid import ANONYMOUS_LOGON, Sid

if TYPE_CHECKING:
    from lanner.rpc.connection import ServerConnection

# MS-RPCE 3.3.3.5.4: "should not exceed 4 megabytes".
MAX_REQUEST_SIZE: Final = 0x0040_0000


class Registered(Protocol):
    """The attributes of an interface that a connection needs."""

    @property
    def syntax(self) -> SyntaxId: ...

    @property
    def transfer_syntaxes(self) -> tuple[SyntaxId, ...]: ...

    @property
    def max_request_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PresentationContext:
    """The meaning of a context id on its connection (MS-RPCE 3.3.3.1.1)."""

    interface: Registered
    transfer_syntax: SyntaxId
    # As the client requested it. Its minor version may be lower than the interface's.
    abstract_syntax: SyntaxId
    is_ndr64: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a context handle, or of a number in place of one.

    It is an association, and a user in it if the caller is authenticated.
    """

    group: AssociationGroup
    sid: Sid

    def includes(self, other: Caller) -> bool:
        return other.group is self.group and self.sid in (ANONYMOUS_LOGON, other.sid)

    def add(self, value: object, kind: str, rundown: Rundown | None = None) -> bytes:
        """Return a new context handle for this caller."""
        return self.group.handles.add(value, kind, rundown, self.sid)

    def get(self, handle: bytes, kind: str) -> object:
        """Return the value of a context handle of this caller. Raises RpcFault otherwise."""
        return self.group.handles.get(handle, kind, self.sid)

    def remove(self, handle: bytes, kind: str) -> object:
        """Close a context handle."""
        return self.group.handles.remove(handle, kind, self.sid)


class ServerCall:
    """One call (MS-RPCE 3.3.3.1.5 server call). `stub` is complete when the call is dispatched."""

    __slots__ = (
        "call_id",
        "connection",
        "context",
        "context_id",
        "group",
        "is_cancelled",
        "is_finished",
        "is_little",
        "object_uuid",
        "opnum",
        "parts",
        "security",
        "size",
        "stub",
    )

    def __init__(
        self,
        connection: ServerConnection,
        group: AssociationGroup,
        call_id: int,
        context_id: int,
        context: PresentationContext,
        opnum: int,
        security: SecurityContext | None,
    ) -> None:
        self.connection = connection
        # The owner of its context handles.
        self.group = group
        self.call_id = call_id
        self.context_id = context_id
        self.context = context
        self.opnum = opnum
        self.security = security
        self.object_uuid: UUID | None = None
        self.is_little = True
        self.is_cancelled = False
        self.is_finished = False
        self.stub = b""
        self.parts = bytearray()
        self.size = 0

    @property
    def interface(self) -> Registered:
        return self.context.interface

    @property
    def transfer_syntax(self) -> SyntaxId:
        return self.context.transfer_syntax

    @property
    def identity(self) -> Identity:
        """The caller's identity, from the security context or from a socket with a known peer."""
        return self.connection.identity if self.security is None else self.security.identity

    @property
    def caller(self) -> Caller:
        """The owner of the call's context handles."""
        return Caller(self.group, self.identity.sid)

    @property
    def auth_level(self) -> AuthLevel:
        """The level at which the security context, or a private transport, protects the call."""
        level = self.connection.auth_level
        return level if self.security is None else max(level, self.security.level)

    def log_on(self, identity: Identity) -> None:
        """Set the user of the caller, for the life of the call's security context or connection."""
        if self.security is None:
            self.connection.identity = identity
        else:
            self.security.identity = identity
        self.connection.log_on()

    @property
    def peer(self) -> str:
        return self.connection.peer

    def __repr__(self) -> str:
        return f"<call {self.call_id} of {self.connection.peer}: {self.context.interface.syntax} opnum {self.opnum}>"


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client wants the call to end early, or (orphaned) no longer needs the answer."""

    call: ServerCall
    is_orphaned: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection must be closed, after sending what remains."""

    reason: str


# A ServerCall is a call that has been received.
Event = ServerCall | CallCancelled | ConnectionClosed
