"""The server's end of a connection: bytes in, calls out, no I/O (C706 9.3 and 12.6; MS-RPCE 3.3.3).

What a server answers to wrong PDUs (status, flags, context id, and whether the connection ends) is told by no document in full. It
is taken from the protocol tests of Samba, which were tried against Windows; `tests/interop` runs them.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.association import AssociationGroup, AssociationGroups
from lanner.rpc.faults import FORBIDDEN_STATUS, FaultStatus
from lanner.rpc.pdu import (
    AUTH_PAD_ALIGNMENT,
    DREP_LITTLE,
    HEADER_SIZE,
    KEEP_CONNECTION_ON_ORPHAN,
    NDR20,
    PFC_CONC_MPX,
    PFC_DID_NOT_EXECUTE,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_PENDING_CANCEL,
    PFC_SUPPORT_HEADER_SIGN,
    PFC_WHOLE,
    REQUEST_SIZE,
    RPC_VERS,
    RPC_VERS_MINOR,
    SEC_TRAILER_SIZE,
    SECURITY_CONTEXT_MULTIPLEXING,
    Auth3,
    AuthLevel,
    Bind,
    BindAck,
    BindNak,
    ContextAnswer,
    ContextElement,
    ContextResult,
    Fault,
    Header,
    PacketType,
    ProviderReason,
    RejectReason,
    Request,
    SecTrailer,
    SyntaxId,
    bind_time_features,
    split_trailer,
)
from lanner.rpc.security import Context, SecurityError, SecurityProviders
from lanner.rpc.verification_trailer import SIGNATURE, check_trailer, find_trailer
from lanner.security.identity import ANONYMOUS, Identity
from lanner.wire.reader import padding

_LOG = logging.getLogger(__name__)

# What Windows and Samba send and take over TCP; a fragment that is larger is a protocol error there.
MAX_FRAGMENT: Final = 5840
# C706 12.6.3.1 has 1432 as the least; Windows never goes below this.
MIN_FRAGMENT: Final = 2048
# MS-RPCE 3.3.3.5.4: "should not exceed 4 megabytes".
MAX_REQUEST_SIZE: Final = 0x0040_0000

_REQUEST_PDU: Final = struct.Struct("<BBBBIHHIIHH")
_RESPONSE_PDU: Final = struct.Struct("<BBBBIHHIIHBB")
_SEC_TRAILER: Final = struct.Struct("<BBBBI")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may cost. All ours, but where a line says otherwise."""

    max_fragment: int = MAX_FRAGMENT
    # Calls that wait for their end at once.
    max_calls: int = 256
    # MS-RPCE 3.3.3.5.5 allows 4000 for each interface.
    max_presentation_contexts: int = 4000
    # MS-RPCE 3.3.1.5.4 lets a server choose; Windows has 2048.
    max_security_contexts: int = 256


class Registered(Protocol):
    """What a connection asks about an interface."""

    @property
    def syntax(self) -> SyntaxId: ...

    @property
    def transfer_syntaxes(self) -> tuple[SyntaxId, ...]: ...

    @property
    def max_request_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PresentationContext:
    """What a context id of this connection stands for (MS-RPCE 3.3.3.1.1)."""

    interface: Registered
    transfer_syntax: SyntaxId
    # As the client asked for it; the minor version may be lower than the interface's.
    abstract_syntax: SyntaxId


class ServerCall:
    """One call (MS-RPCE 3.3.3.1.5 server call). `stub` is whole when the call is handed out."""

    __slots__ = (
        "call_id",
        "connection",
        "context",
        "context_id",
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
        call_id: int,
        context_id: int,
        context: PresentationContext,
        opnum: int,
        security: SecurityContext | None,
    ) -> None:
        self.connection = connection
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
        self.parts: list[bytes] = []
        self.size = 0

    @property
    def interface(self) -> Registered:
        return self.context.interface

    @property
    def transfer_syntax(self) -> SyntaxId:
        return self.context.transfer_syntax

    @property
    def identity(self) -> Identity:
        """Who asks: of the security context, or of the socket where that knows its peer."""
        return self.connection.identity if self.security is None else self.security.identity

    @property
    def auth_level(self) -> AuthLevel:
        return self.connection.auth_level if self.security is None else self.security.level

    @property
    def group(self) -> AssociationGroup:
        return self.connection.group

    @property
    def peer(self) -> str:
        return self.connection.peer

    def __repr__(self) -> str:
        return f"<call {self.call_id} of {self.connection.peer}: {self.context.interface.syntax} opnum {self.opnum}>"


@dataclass(frozen=True, slots=True)
class CallReceived:
    call: ServerCall


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client would like the call to end early, or (orphaned) does not want to hear of it any more."""

    call: ServerCall
    is_orphaned: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """Send what there is to send, then hang up."""

    reason: str


Event = CallReceived | CallCancelled | ConnectionClosed


class SecurityContext:
    """An acceptor under its auth_context_id, as far as it has come (MS-RPCE 3.3.1.5.2)."""

    __slots__ = ("acceptor", "auth_type", "context_id", "identity", "is_complete", "is_invalid", "level", "signs")

    def __init__(self, context_id: int, auth_type: int, level: AuthLevel, acceptor: Context) -> None:
        self.context_id = context_id
        self.auth_type = auth_type
        self.level = level
        self.acceptor = acceptor
        self.identity: Identity = ANONYMOUS
        self.is_complete = False
        # MS-RPCE 3.3.1.5.2.1: nobody answers an rpc_auth_3, so its failure is told to the first call.
        self.is_invalid = False
        # Samba and Windows treat "packet" as integrity.
        self.signs = level >= AuthLevel.PKT


class _Refused(Exception):
    """A PDU is answered with a fault; `ends` hangs up behind it."""

    def __init__(self, status: int, why: str, *, context_id: int = 0, flags: int = 0, ends: bool = True) -> None:
        super().__init__(why)
        self.status = status
        self.context_id = context_id
        self.flags = flags
        self.ends = ends


class _Nak(Exception):
    """A bind is answered with a bind_nak."""

    def __init__(self, reason: RejectReason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class ServerConnection:
    """One connection of a server, from its first byte to its end."""

    def __init__(
        self,
        find_interface: Callable[[SyntaxId], Registered | None],
        groups: AssociationGroups,
        providers: SecurityProviders | None = None,
        *,
        peer: str = "",
        secondary_address: str = "",
        local_address: str = "",
        identity: Identity = ANONYMOUS,
        auth_level: AuthLevel = AuthLevel.NONE,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._find_interface = find_interface
        self._groups = groups
        self._providers = providers
        # The address of the client, without a port.
        self.peer = peer
        # MS-RPCE 3.3.1.5.5: the endpoint itself.
        self._secondary_address = secondary_address
        # The address the client reached.
        self.local_address = local_address
        # Of calls without a security context: what the transport knows.
        self.identity = identity
        self.auth_level = auth_level
        self._limits = ConnectionLimits() if limits is None else limits
        self._group: AssociationGroup | None = None
        self._max_xmit = MIN_FRAGMENT
        self._is_multiplexed = False
        self._header_signing = False
        self._features = 0
        self._contexts: dict[int, PresentationContext] = {}
        self._security: dict[int, SecurityContext] = {}
        self._default_security: SecurityContext | None = None
        self._fragmented: ServerCall | None = None
        self._calls: dict[int, ServerCall] = {}
        self._rest = b""
        self._out: list[bytes] = []
        self._closed: str | None = None

    # What the shell asks ---------------------------------------------------------------------------------------

    @property
    def is_bound(self) -> bool:
        return self._group is not None

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    @property
    def is_authenticated(self) -> bool:
        return any(one.is_complete for one in self._security.values())

    @property
    def group(self) -> AssociationGroup:
        if self._group is None:
            raise RuntimeError("the connection is not bound")
        return self._group

    @property
    def outstanding_calls(self) -> int:
        return len(self._calls)

    def receive(self, data: bytes) -> list[Event]:
        """Take what came from the client; after ConnectionClosed everything is dropped."""
        events: list[Event] = []
        if self._closed is not None:
            return events
        if self._rest:
            data = self._rest + data
        end = len(data)
        position = 0
        while end - position >= HEADER_SIZE:
            order = data[position + 4] & 0xF0
            first, second = data[position + 8], data[position + 9]
            length = first | second << 8 if order == DREP_LITTLE else first << 8 | second
            if length < HEADER_SIZE:
                self._close(events, f"a PDU of {length} bytes")
                return events
            if end - position < length:
                break
            pdu = data if length == end else data[position : position + length]
            position += length
            if pdu[2] == PacketType.REQUEST:
                self._request(pdu, events)
            else:
                self._other(pdu, events)
            if self.is_closed:
                return events
        self._rest = data[position:] if position < end else b""
        return events

    def data_to_send(self) -> bytes:
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def respond(self, call: ServerCall, stub: bytes) -> None:
        """Answer a call with its out parameters; an orphaned call, or one of a connection that has ended, with nothing."""
        if not self._finish(call):
            return
        security = call.security
        if security is not None and security.signs:
            self._respond_signed(call, security, stub)
            return
        # Windows answers with the low byte of the context id only, and Samba's tests insist on it.
        context_id = call.context_id & 0xFF
        room = self._max_xmit - REQUEST_SIZE
        size = len(stub)
        if size <= room:
            front = _RESPONSE_PDU.pack(
                RPC_VERS,
                RPC_VERS_MINOR,
                PacketType.RESPONSE,
                PFC_WHOLE,
                DREP_LITTLE,
                REQUEST_SIZE + size,
                0,
                call.call_id,
                size,
                context_id,
                0,
                0,
            )
            self._out.append(front + stub)
            return
        for start in range(0, size, room):
            part = stub[start : start + room]
            flags = (PFC_FIRST_FRAG if start == 0 else 0) | (PFC_LAST_FRAG if start + room >= size else 0)
            front = _RESPONSE_PDU.pack(
                RPC_VERS,
                RPC_VERS_MINOR,
                PacketType.RESPONSE,
                flags,
                DREP_LITTLE,
                REQUEST_SIZE + len(part),
                0,
                call.call_id,
                # MS-RPCE 2.2.2.6: what is left, in every fragment.
                size - start,
                context_id,
                0,
                0,
            )
            self._out.append(front)
            self._out.append(part)

    def fault(self, call: ServerCall, status: int, *, did_not_execute: bool = False) -> None:
        """Answer a call with a fault."""
        if not self._finish(call):
            return
        if status in FORBIDDEN_STATUS:
            _LOG.error("status %#010x may not be sent in a fault", status)
            status = FaultStatus.NCA_FAULT_UNSPEC
        flags = PFC_WHOLE | (PFC_DID_NOT_EXECUTE if did_not_execute else 0)
        self._out.append(Fault(status, call.context_id).pack(flags, call.call_id))

    def close(self) -> None:
        """The transport is gone: leave the association; its handles are run down with its last connection."""
        if self._closed is None:
            self._closed = "the connection was lost"
        self._calls.clear()
        self._fragmented = None
        self._rest = b""
        if self._group is not None:
            group, self._group = self._group, None
            self._groups.leave(group)

    # PDUs ------------------------------------------------------------------------------------------------------

    def _finish(self, call: ServerCall) -> bool:
        if call.is_finished:
            return False
        call.is_finished = True
        return self._calls.pop(call.call_id, None) is not None and self._closed is None

    def _close(self, events: list[Event], reason: str) -> None:
        self._closed = reason
        self._fragmented = None
        self._rest = b""
        events.append(ConnectionClosed(reason))
        _LOG.info("%s: %s", self.peer, reason)

    def _refuse(self, events: list[Event], call_id: int, refusal: _Refused) -> None:
        self._out.append(Fault(refusal.status, refusal.context_id).pack(PFC_WHOLE | refusal.flags, call_id))
        if refusal.ends:
            self._close(events, str(refusal))

    def _other(self, pdu: bytes, events: list[Event]) -> None:
        header = Header.unpack(pdu)
        try:
            if (header.rpc_vers, header.rpc_vers_minor) != (RPC_VERS, RPC_VERS_MINOR):
                raise RemoteProtocolError(f"protocol version {header.rpc_vers}.{header.rpc_vers_minor}")
            match header.packet_type:
                case PacketType.BIND:
                    self._bind(Bind.unpack(pdu, header), header)
                case PacketType.ALTER_CONTEXT:
                    self._alter_context(Bind.unpack(pdu, header), header)
                case PacketType.AUTH3:
                    self._auth3(pdu, header)
                case PacketType.CO_CANCEL:
                    self._cancel(header.call_id, events, is_orphaned=False)
                case PacketType.ORPHANED:
                    self._cancel(header.call_id, events, is_orphaned=True)
                case _:
                    # Nothing a client sends.
                    raise _Refused(FaultStatus.NCA_PROTO_ERROR, f"PDU type {header.packet_type} from a client")
        except _Nak as nak:
            self._out.append(BindNak(nak.reason).pack(header.call_id))
            self._close(events, str(nak))
        except _Refused as refusal:
            self._refuse(events, header.call_id, refusal)
        except RemoteProtocolError as error:
            if header.packet_type == PacketType.BIND:
                self._out.append(BindNak(RejectReason.PROTOCOL_VERSION_NOT_SUPPORTED).pack(header.call_id))
                self._close(events, f"bind: {error}")
            else:
                self._refuse(events, header.call_id, _not_executed(FaultStatus.NCA_PROTO_ERROR, str(error)))

    def _cancel(self, call_id: int, events: list[Event], *, is_orphaned: bool) -> None:
        # A call that is not complete yet, or not there any more, is not touched: its client may not know better.
        call = self._calls.get(call_id)
        if call is None or call.is_cancelled:
            return
        call.is_cancelled = True
        if is_orphaned:
            call.is_finished = True
            del self._calls[call_id]
        events.append(CallCancelled(call, is_orphaned))

    # bind, alter_context, rpc_auth_3 ---------------------------------------------------------------------------

    def _bind(self, bind: Bind, header: Header) -> None:
        if self._group is not None:
            raise _Nak(RejectReason.REASON_NOT_SPECIFIED, "a second bind")
        if not bind.contexts or any(not one.transfer_syntaxes for one in bind.contexts):
            raise _Nak(RejectReason.REASON_NOT_SPECIFIED, "a bind without contexts or transfer syntaxes")
        if sum(_features(one) is not None for one in bind.contexts) > 1:
            raise _Nak(RejectReason.REASON_NOT_SPECIFIED, "bind time features twice")
        group = self._groups.find(bind.assoc_group_id, self.peer) if bind.assoc_group_id else None
        if bind.assoc_group_id and group is None:
            raise _Nak(RejectReason.REASON_NOT_SPECIFIED, f"association {bind.assoc_group_id:#010x} is not theirs")
        results = self._negotiate(bind.contexts, is_bind=True)
        trailer = self._bind_security(bind.trailer)
        self._group = self._groups.join(group, self.peer)
        # Both sizes come out the same, and a multiple of eight.
        wanted = min(bind.max_xmit_frag, bind.max_recv_frag)
        self._max_xmit = min(max(wanted, MIN_FRAGMENT), self._limits.max_fragment) & ~7
        flags = PFC_WHOLE
        if header.flags & PFC_CONC_MPX:
            self._is_multiplexed = True
            flags |= PFC_CONC_MPX
        if header.flags & PFC_SUPPORT_HEADER_SIGN:
            self._header_signing = True
            flags |= PFC_SUPPORT_HEADER_SIGN
        answer = BindAck(self._max_xmit, self._max_xmit, self.group.id, self._secondary_address, results, trailer)
        self._out.append(answer.pack(PacketType.BIND_ACK, flags, header.call_id))

    def _alter_context(self, alter: Bind, header: Header) -> None:
        if self._group is None:
            raise RemoteProtocolError("alter_context before bind")
        if not alter.contexts or any(not one.transfer_syntaxes for one in alter.contexts):
            raise RemoteProtocolError("alter_context without contexts or transfer syntaxes")
        results = self._negotiate(alter.contexts, is_bind=False)
        trailer = self._alter_security(alter.trailer)
        flags = PFC_WHOLE
        if header.flags & PFC_SUPPORT_HEADER_SIGN:
            self._header_signing = True
            flags |= PFC_SUPPORT_HEADER_SIGN
        # Fragment sizes and the association are settled; what an alter_context says about them is not looked at.
        answer = BindAck(self._max_xmit, self._max_xmit, self.group.id, "", results, trailer)
        self._out.append(answer.pack(PacketType.ALTER_CONTEXT_RESP, flags, header.call_id))

    def _negotiate(self, elements: tuple[ContextElement, ...], *, is_bind: bool) -> tuple[ContextAnswer, ...]:
        """MS-RPCE 3.3.1.5.3 and 3.3.1.5.6: one answer to each element, one transfer syntax to each interface."""
        # NDR is preferred where a client offers it: the interface then speaks what every client of it speaks.
        with_ndr20 = {one.abstract_syntax for one in elements if NDR20 in one.transfer_syntaxes}
        accepted: set[SyntaxId] = set()
        answers = []
        for element in elements:
            features = _features(element)
            if features is not None and is_bind:
                self._features = features & (SECURITY_CONTEXT_MULTIPLEXING | KEEP_CONNECTION_ON_ORPHAN)
                answers.append(ContextAnswer(ContextResult.NEGOTIATE_ACK, self._features))
                continue
            interface = self._find_interface(element.abstract_syntax)
            if interface is None:
                reason = ProviderReason.ABSTRACT_SYNTAX_NOT_SUPPORTED
                answers.append(ContextAnswer(ContextResult.PROVIDER_REJECTION, reason))
                continue
            known = [one for one in element.transfer_syntaxes if one in interface.transfer_syntaxes]
            if NDR20 in known:
                known = [NDR20]
            existing = self._contexts.get(element.context_id)
            if existing is not None and (
                existing.abstract_syntax != element.abstract_syntax
                or (known and existing.transfer_syntax != known[0] and existing.transfer_syntax not in known)
            ):
                raise RemoteProtocolError(f"context {element.context_id} is in use for something else")
            passed_over = element.abstract_syntax in with_ndr20 and known and known[0] != NDR20
            if not known or element.abstract_syntax in accepted or passed_over:
                reason = ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED
                answers.append(ContextAnswer(ContextResult.PROVIDER_REJECTION, reason))
                continue
            if existing is None and len(self._contexts) >= self._limits.max_presentation_contexts:
                if is_bind:
                    raise _Nak(RejectReason.LOCAL_LIMIT_EXCEEDED, "too many presentation contexts")
                reason = ProviderReason.LOCAL_LIMIT_EXCEEDED
                answers.append(ContextAnswer(ContextResult.PROVIDER_REJECTION, reason))
                continue
            accepted.add(element.abstract_syntax)
            self._contexts[element.context_id] = PresentationContext(interface, known[0], element.abstract_syntax)
            answers.append(ContextAnswer(ContextResult.ACCEPTANCE, transfer_syntax=known[0]))
        return tuple(answers)

    def _bind_security(self, trailer: SecTrailer | None) -> SecTrailer | None:
        if trailer is None:
            return None
        try:
            level = AuthLevel(trailer.auth_level)
        except ValueError:
            raise _Nak(RejectReason.REASON_NOT_SPECIFIED, f"authentication level {trailer.auth_level}") from None
        if level < AuthLevel.CONNECT:
            raise _Nak(RejectReason.REASON_NOT_SPECIFIED, f"a token at authentication level {level.name}")
        acceptor = self._accept(trailer, level)
        if acceptor is None:
            raise _Nak(
                RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED, f"authentication type {trailer.auth_type} is not known"
            )
        # MS-RPCE 2.2.1.1.8 has servers treat "call" as "packet"; what Windows does is this.
        if level == AuthLevel.CALL:
            raise _Nak(RejectReason.INVALID_CHECKSUM, "authentication level call")
        context = SecurityContext(trailer.auth_context_id, trailer.auth_type, level, acceptor)
        self._security[trailer.auth_context_id] = context
        try:
            return self._step(context, trailer)
        except SecurityError as error:
            raise _Nak(RejectReason.INVALID_CHECKSUM, f"authentication: {error}") from error

    def _alter_security(self, trailer: SecTrailer | None) -> SecTrailer | None:
        if trailer is None:
            return None
        context = self._security.get(trailer.auth_context_id)
        if context is None:
            context = self._new_security(trailer)
        else:
            self._check_security(context, trailer)
        if context.is_complete or context.is_invalid:
            # Nobody authenticates twice under one id.
            raise _not_executed(FaultStatus.ACCESS_DENIED, "authentication again under the same id")
        try:
            return self._step(context, trailer)
        except SecurityError as error:
            raise _not_executed(FaultStatus.SEC_PKG_ERROR, f"authentication: {error}") from error

    def _new_security(self, trailer: SecTrailer) -> SecurityContext:
        if len(self._security) >= self._limits.max_security_contexts:
            raise RemoteProtocolError(f"{len(self._security)} security contexts on one connection")
        if not AuthLevel.CONNECT <= trailer.auth_level <= AuthLevel.PKT_PRIVACY or trailer.auth_level == AuthLevel.CALL:
            raise _not_executed(FaultStatus.ACCESS_DENIED, f"authentication level {trailer.auth_level}")
        level = AuthLevel(trailer.auth_level)
        acceptor = self._accept(trailer, level)
        if acceptor is None:
            # MS-RPCE 3.3.3.5.3 asks for "authentication_type_not_recognized", which is no status of a fault.
            raise _not_executed(FaultStatus.ACCESS_DENIED, f"authentication type {trailer.auth_type}")
        context = SecurityContext(trailer.auth_context_id, trailer.auth_type, level, acceptor)
        self._security[trailer.auth_context_id] = context
        return context

    @staticmethod
    def _check_security(context: SecurityContext, trailer: SecTrailer) -> None:
        """A later leg speaks of the same thing as the first (MS-RPCE 3.3.1.5.2.1)."""
        if trailer.auth_level != context.level or trailer.auth_type == 0:
            raise _not_executed(FaultStatus.ACCESS_DENIED, "another authentication level than before")
        if trailer.auth_type != context.auth_type:
            raise _not_executed(FaultStatus.SEC_PKG_ERROR, "another authentication type than before")

    def _accept(self, trailer: SecTrailer, level: AuthLevel) -> Context | None:
        return None if self._providers is None else self._providers.accept(trailer.auth_type, level)

    def _step(self, context: SecurityContext, trailer: SecTrailer) -> SecTrailer:
        token = context.acceptor.step(trailer.token)
        if context.acceptor.is_complete:
            self._completed(context)
        return SecTrailer(context.auth_type, context.level, context.context_id, token)

    def _completed(self, context: SecurityContext) -> None:
        context.identity = context.acceptor.identity
        context.is_complete = True
        # MS-RPCE 3.3.1.5.4: calls without a sec_trailer belong to the security context of level connect.
        if context.level == AuthLevel.CONNECT and self._default_security is None:
            self._default_security = context
        _LOG.debug("%s is %s at level %s", self.peer, context.identity.name, context.level.name)

    def _auth3(self, pdu: bytes, header: Header) -> None:
        try:
            auth3 = Auth3.unpack(pdu, header)
        except RemoteProtocolError as error:
            raise _Refused(FaultStatus.NCA_FAULT_REMOTE_NO_MEMORY, str(error), flags=PFC_DID_NOT_EXECUTE) from error
        trailer = auth3.trailer
        context = self._security.get(trailer.auth_context_id)
        if context is None or context.is_complete:
            raise RemoteProtocolError("rpc_auth_3, and nothing to complete")
        self._check_security(context, trailer)
        # A failure is told to the first call that uses the context.
        try:
            token = context.acceptor.step(trailer.token)
        except SecurityError as error:
            _LOG.warning("%s: authentication: %s", self.peer, error)
            self._invalidate(context)
            return
        if token or not context.acceptor.is_complete:
            # There is no answer that could carry it.
            self._invalidate(context)
            return
        self._completed(context)

    def _invalidate(self, context: SecurityContext) -> None:
        context.is_invalid = True
        if context.level == AuthLevel.CONNECT and self._default_security is None:
            self._default_security = context

    # request ---------------------------------------------------------------------------------------------------

    def _request(self, pdu: bytes, events: list[Event]) -> None:
        try:
            self._accept_request(pdu, events)
        except _Refused as refusal:
            self._refuse(events, Header.unpack(pdu).call_id, refusal)
        except RemoteProtocolError as error:
            self._refuse(events, Header.unpack(pdu).call_id, _not_executed(FaultStatus.NCA_PROTO_ERROR, str(error)))

    def _accept_request(self, pdu: bytes, events: list[Event]) -> None:
        if len(pdu) < REQUEST_SIZE:
            raise RemoteProtocolError(f"a request of {len(pdu)} bytes")
        (vers, minor, _, flags, drep, _, auth_length, call_id, alloc_hint, context_id, opnum) = (
            _REQUEST_PDU.unpack_from(pdu)
        )
        object_uuid = None
        start = REQUEST_SIZE
        is_little = drep & 0xF0 == DREP_LITTLE
        if flags & 0x80 or not is_little:
            header = Header.unpack(pdu)
            request = Request.unpack(pdu, header)
            auth_length, call_id = header.auth_length, header.call_id
            alloc_hint, context_id, opnum = request.alloc_hint, request.context_id, request.opnum
            object_uuid, start = request.object_uuid, request.stub_start
        if vers != RPC_VERS or minor != RPC_VERS_MINOR:
            raise RemoteProtocolError(f"protocol version {vers}.{minor}")
        if self._group is None:
            raise RemoteProtocolError("a request before bind")
        if len(pdu) > self._limits.max_fragment:
            raise _Refused(FaultStatus.NCA_PROTO_ERROR, f"a fragment of {len(pdu)} bytes")
        call = self._fragmented
        if call is not None:
            self._continue(call, pdu, events, flags=flags, call_id=call_id, auth_length=auth_length, start=start)
            return
        if flags & PFC_FIRST_FRAG == 0 and not self._is_multiplexed:
            raise _Refused(FaultStatus.NCA_PROTO_ERROR, "a fragment without a first one")
        if flags & PFC_FIRST_FRAG and flags & PFC_PENDING_CANCEL:
            raise _not_executed(FaultStatus.NO_CALL_ACTIVE, "a cancel for a call that begins")
        if self._calls and (not self._is_multiplexed or call_id in self._calls):
            # MS-RPCE 3.3.1.5.8: an exclusive connection has one call at a time.
            raise _Refused(FaultStatus.NCA_PROTO_ERROR, "a call before the end of another", context_id=context_id)
        context = self._contexts.get(context_id)
        if context is None:
            raise _Refused(FaultStatus.NCA_UNK_IF, f"context {context_id}", flags=PFC_DID_NOT_EXECUTE, ends=False)
        security = self._default_security
        if auth_length or security is not None:
            security = self._security_of(pdu, auth_length, context_id, start, is_little=is_little)
        if security is not None and auth_length:
            stub = self._verified(security, pdu, auth_length, context_id, start)
        else:
            stub = pdu[start:]
        if not flags & PFC_FIRST_FRAG:
            raise _Refused(FaultStatus.NCA_PROTO_ERROR, "a fragment without a first one", context_id=context_id)
        if len(self._calls) >= self._limits.max_calls:
            raise _Refused(
                FaultStatus.NCA_SERVER_TOO_BUSY,
                f"{len(self._calls)} calls at once",
                context_id=context_id,
                flags=PFC_DID_NOT_EXECUTE,
                ends=False,
            )
        call = ServerCall(self, call_id, context_id, context, opnum, security)
        call.object_uuid = object_uuid
        call.is_little = is_little
        if flags & PFC_LAST_FRAG:
            call.stub = stub
            self._dispatch(call, events)
            return
        if alloc_hint > context.interface.max_request_size:
            raise _Refused(FaultStatus.ACCESS_DENIED, f"a request of {alloc_hint} bytes", context_id=context_id)
        call.parts.append(stub)
        call.size = len(stub)
        self._fragmented = call

    def _continue(
        self,
        call: ServerCall,
        pdu: bytes,
        events: list[Event],
        *,
        flags: int,
        call_id: int,
        auth_length: int,
        start: int,
    ) -> None:
        """A fragment after the first: its context id, opnum and the ids of its sec_trailer are not looked at."""
        if call_id != call.call_id:
            if self._is_multiplexed:
                raise _Refused(FaultStatus.NCA_PROTO_ERROR, "a call in the middle of another")
            # On an exclusive connection it is the one that began that fails.
            self._refuse(events, call.call_id, _mixed(call))
            return
        security = call.security
        if security is not None and security.signs:
            if not auth_length:
                raise _mixed(call)
            stub = self._verified(security, pdu, auth_length, call.context_id, start)
        elif auth_length:
            where, trailer = split_trailer(pdu, Header.unpack(pdu), start)
            stub = pdu[start : where - (0 if trailer is None else trailer.auth_pad_length)]
        else:
            stub = pdu[start:]
        if flags & PFC_FIRST_FRAG:
            raise _mixed(call)
        call.size += len(stub)
        if call.size > call.interface.max_request_size:
            raise _Refused(
                FaultStatus.ACCESS_DENIED, f"a request of more than {call.size} bytes", context_id=call.context_id
            )
        call.parts.append(stub)
        if flags & PFC_LAST_FRAG:
            self._fragmented = None
            call.stub = b"".join(call.parts)
            call.parts.clear()
            self._dispatch(call, events)

    def _dispatch(self, call: ServerCall, events: list[Event]) -> None:
        if SIGNATURE in call.stub[-0x400:]:
            self._strip_verification_trailer(call)
        self._calls[call.call_id] = call
        events.append(CallReceived(call))

    def _strip_verification_trailer(self, call: ServerCall) -> None:
        found = find_trailer(call.stub)
        if found is None:
            return
        start, commands = found
        try:
            check_trailer(
                commands,
                interface=call.context.abstract_syntax,
                transfer_syntax=call.transfer_syntax,
                call_id=call.call_id,
                context_id=call.context_id,
                opnum=call.opnum,
                drep=DREP_LITTLE if call.is_little else 0,
                header_signing=self._header_signing or call.security is None,
            )
        except RemoteProtocolError as error:
            # MS-RPCE 2.2.2.13: as a stub that cannot be read, with status 5.
            raise _Refused(
                FaultStatus.ACCESS_DENIED,
                str(error),
                context_id=call.context_id,
                flags=PFC_DID_NOT_EXECUTE,
                ends=False,
            ) from error
        call.stub = call.stub[:start]

    def _security_of(
        self, pdu: bytes, auth_length: int, context_id: int, start: int, *, is_little: bool
    ) -> SecurityContext | None:
        """The security context of a request's first fragment."""
        if not auth_length:
            found = self._default_security
        else:
            where = len(pdu) - auth_length - SEC_TRAILER_SIZE
            if where < start:
                raise RemoteProtocolError(f"auth_length {auth_length}")
            auth_type, level, _, _, security_id = _SEC_TRAILER.unpack_from(pdu, where)
            if not is_little:
                security_id = int.from_bytes(pdu[where + 4 : where + 8], "big")
            found = self._security.get(security_id)
            if found is None or found.auth_type != auth_type or found.level != level:
                raise _Refused(FaultStatus.ACCESS_DENIED, "a security context that is not there", context_id=context_id)
        if found is None:
            return None
        if found.is_invalid:
            raise _Refused(FaultStatus.ACCESS_DENIED, "authentication had failed", context_id=context_id)
        if not found.is_complete:
            raise _not_executed(FaultStatus.NCA_PROTO_ERROR, "a call before the end of authentication")
        return found

    def _verified(self, security: SecurityContext, pdu: bytes, auth_length: int, context_id: int, start: int) -> bytes:
        """The stub of a signed fragment, decrypted, without padding."""
        token_start = len(pdu) - auth_length
        where = token_start - SEC_TRAILER_SIZE
        if where < start:
            raise RemoteProtocolError(f"auth_length {auth_length}")
        pad = pdu[where + 2]
        if pad > where - start:
            raise RemoteProtocolError(f"auth_pad_length {pad}")
        if not security.signs:
            # MS-RPCE 3.3.1.5.2.2: at level connect the token means nothing.
            return pdu[start : where - pad]
        try:
            stub = security.acceptor.unprotect(
                pdu[:start],
                pdu[start:where],
                pdu[where:token_start],
                pdu[token_start:],
                header_signing=self._header_signing,
            )
        except SecurityError as error:
            raise _Refused(FaultStatus.SEC_PKG_ERROR, f"signature: {error}", context_id=context_id) from error
        return stub[: len(stub) - pad] if pad else stub

    def _respond_signed(self, call: ServerCall, security: SecurityContext, stub: bytes) -> None:
        acceptor = security.acceptor
        context_id = call.context_id & 0xFF
        token_size = acceptor.signature_size
        # Every fragment but the last is a multiple of 16, so that only the last needs padding.
        room = (self._max_xmit - REQUEST_SIZE - SEC_TRAILER_SIZE - token_size) & ~(AUTH_PAD_ALIGNMENT - 1)
        size = len(stub)
        for start in range(0, size, room) if size else (0,):
            part = stub[start : start + room]
            pad = padding(len(part), AUTH_PAD_ALIGNMENT)
            flags = (PFC_FIRST_FRAG if start == 0 else 0) | (PFC_LAST_FRAG if start + room >= size else 0)
            front = _RESPONSE_PDU.pack(
                RPC_VERS,
                RPC_VERS_MINOR,
                PacketType.RESPONSE,
                flags,
                DREP_LITTLE,
                REQUEST_SIZE + len(part) + pad + SEC_TRAILER_SIZE + token_size,
                token_size,
                call.call_id,
                size - start,
                context_id,
                0,
                0,
            )
            trailer = _SEC_TRAILER.pack(security.auth_type, security.level, pad, 0, security.context_id)
            body, token = acceptor.protect(
                front, part + bytes(pad) if pad else part, trailer, header_signing=self._header_signing
            )
            self._out += (front, body, trailer, token)


def _features(element: ContextElement) -> int | None:
    # More syntaxes behind the first one change nothing: Windows looks at the first.
    return bind_time_features(element.transfer_syntaxes[0]) if element.transfer_syntaxes else None


def _not_executed(status: int, why: str) -> _Refused:
    """A fault that promises that nothing happened, with no context, and the end."""
    return _Refused(status, why, flags=PFC_DID_NOT_EXECUTE)


def _mixed(call: ServerCall) -> _Refused:
    return _Refused(FaultStatus.NCA_PROTO_ERROR, f"fragments of {call} are mixed up", context_id=call.context_id)
