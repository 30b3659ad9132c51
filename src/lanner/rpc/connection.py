"""The server side of a connection: bytes in, calls out, no I/O (C706 9.3 and 12.6; MS-RPCE 3.3.3).

No document states in full how a server answers incorrect PDUs: which status, flags and context id
it sends, and whether the connection ends. The answers here follow the protocol tests of Samba,
which were run against Windows; `tests/interop` runs them.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from lanner.host.budget import Resource
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.association import AssociationGroup, AssociationGroups
from lanner.rpc.call_log import call_log
from lanner.rpc.calls import CallCancelled, ConnectionClosed, Event, Registered, ServerCall
from lanner.rpc.faults import FORBIDDEN_STATUS, FaultStatus, RpcFault
from lanner.rpc.fragments import pack_fragments, pack_signed_fragments
from lanner.rpc.frames import FIRST_OCTET, Frames
from lanner.rpc.pdu import (
    DREP_LITTLE,
    HEADER_SIZE,
    PFC_CONC_MPX,
    PFC_DID_NOT_EXECUTE,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_OBJECT_UUID,
    PFC_PENDING_CANCEL,
    PFC_SUPPORT_HEADER_SIGN,
    PFC_WHOLE,
    REQUEST_SIZE,
    RPC_VERS,
    RPC_VERS_MINOR,
    AuthLevel,
    Bind,
    BindAck,
    BindNak,
    Fault,
    Header,
    PacketType,
    RejectReason,
    Request,
    SyntaxId,
    split_trailer,
)
from lanner.rpc.presentation import MAX_PRESENTATION_CONTEXTS, PresentationContexts, offered_features
from lanner.rpc.refusals import Nak, Refused, not_executed
from lanner.rpc.security import LogonDelayed, SecurityError, SecurityProviders
from lanner.rpc.security_contexts import MAX_SECURITY_CONTEXTS, SecurityContexts
from lanner.rpc.verification_trailer import MAX_SIZE as MAX_TRAILER
from lanner.rpc.verification_trailer import SIGNATURE, check_trailer, find_trailer
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.log_lines import log_of_peer

_LOG = logging.getLogger(__name__)

# The fragment size of Windows and Samba over TCP. On these transports a larger fragment is a
# protocol error.
MAX_FRAGMENT: Final = 5840
# The minimum in C706 12.6.3.1 is 1432, but Windows never uses less than this.
MIN_FRAGMENT: Final = 2048
# Not in the specification: the maximum number of unanswered calls of one connection.
MAX_CALLS: Final = 256

_REQUEST_PDU: Final = struct.Struct("<BBBBIHHIIHH")
_RESPONSE_MIDDLE: Final = struct.Struct("<HBB")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection."""

    max_fragment: int = MAX_FRAGMENT
    max_calls: int = MAX_CALLS
    max_presentation_contexts: int = MAX_PRESENTATION_CONTEXTS
    max_security_contexts: int = MAX_SECURITY_CONTEXTS


def _nothing() -> None:
    """Do nothing: the connection has no socket."""


class Stream(Protocol):
    """The consumer of a connection's frames."""

    def frames_received(self, contents: list[bytes]) -> None:
        """Handle waiting frames and those that arrived together.

        Raises RemoteProtocolError to end the connection.
        """

    @property
    def is_behind(self) -> bool:
        """Whether some of the frames wait for the next turn."""

    def close(self) -> None:
        """Release everything: the connection has ended."""


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
        logons: Resource | None = None,
        needs_log_on: bool = False,
    ) -> None:
        """Serve a new connection.

        `needs_log_on`: the client cannot do anything before a user has logged on by a call.
        """
        self._groups = groups
        self.needs_log_on = needs_log_on
        # Whether a user has logged on by a call. The connection then belongs to that user.
        self.has_logged_on = False
        # The address of the client, without a port.
        self.peer = peer
        # MS-RPCE 3.3.1.5.5: the secondary address is the endpoint itself.
        self._secondary_address = secondary_address
        # The address to which the client has connected.
        self.local_address = local_address
        # The identity and the level that the transport gives to calls without a security context.
        self.identity = identity
        self.auth_level = auth_level
        self._limits = ConnectionLimits() if limits is None else limits
        self._group: AssociationGroup | None = None
        self._max_xmit = MIN_FRAGMENT
        self._is_multiplexed = False
        self._contexts = PresentationContexts(find_interface, self._limits.max_presentation_contexts)
        self._security = SecurityContexts(providers, self._limits.max_security_contexts, peer, logons)
        self._fragmented: ServerCall | None = None
        self._calls: dict[int, ServerCall] = {}
        self._rest = b""
        # Whether a complete request is kept until there is room for it.
        self.has_more = False
        # The seconds for which nothing should be read: a logon has to wait, and so does everything
        # behind it.
        self.delay = 0.0
        self._out: list[bytes] = []
        self._closed: str | None = None
        # The frames beside the PDUs, once a call has begun them, and their consumer.
        self.frames: Frames | None = None
        self.stream: Stream | None = None
        # Makes the socket send what the stream has put. Set by the socket.
        self.flush_soon: Callable[[], None] = _nothing
        # Makes the socket end the connection. Set by the socket.
        self.hang_up: Callable[[], None] = _nothing
        self._log = call_log("server", peer)

    # For the shell

    @property
    def is_bound(self) -> bool:
        return self._group is not None

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    @property
    def group(self) -> AssociationGroup:
        if self._group is None:
            raise RuntimeError("the connection is not bound")
        return self._group

    @property
    def outstanding_calls(self) -> int:
        return len(self._calls)

    @property
    def unfinished(self) -> int:
        """Bytes of an incomplete request and of an incomplete frame."""
        fragments = 0 if self._fragmented is None else self._fragmented.size
        return fragments if self.frames is None else fragments + self.frames.unfinished

    @property
    def is_logging_on(self) -> bool:
        """Whether a logon is under way."""
        return self._security.is_logging_on

    @property
    def is_authenticated(self) -> bool:
        """Whether a user that is not anonymous has logged on."""
        return self.has_logged_on or self._security.is_authenticated

    def log_on(self) -> None:
        """Note that a user has logged on by a call."""
        self.has_logged_on = True
        self.needs_log_on = False

    @property
    def has_handles(self) -> bool:
        """Whether the client process holds context handles."""
        return self._group is not None and len(self._group.handles) > 0

    def receive(self, data: bytes, max_calls: int | None = None) -> list[Event]:
        """Handle bytes from the client. After ConnectionClosed everything is dropped.

        After `max_calls` calls it stops at the next request (`has_more`), and continues there the
        next time. It also stops at a logon that has to wait, for `delay` seconds.
        """
        events: list[Event] = []
        self.has_more = False
        self.delay = 0.0
        if self._closed is not None:
            return events
        if self._rest:
            data = self._rest + data
        if self.is_behind:
            # Frames that arrived earlier are handled first.
            self._rest = data
            self.has_more = True
            return events
        end = len(data)
        position = 0
        frames = self.frames
        while position < end:
            if frames is not None and (frames.unfinished or data[position] == FIRST_OCTET):
                position = self._frame(frames, data, position, events)
                if self.is_closed:
                    return events
                continue
            if frames is not None and frames.has_received:
                # Frames that arrived earlier are handled first.
                self.has_more = True
                break
            if end - position < HEADER_SIZE:
                break
            order = data[position + 4] & 0xF0
            first, second = data[position + 8], data[position + 9]
            length = first | second << 8 if order == DREP_LITTLE else first << 8 | second
            if length < HEADER_SIZE:
                self._close(events, f"a PDU of {length} bytes")
                return events
            if end - position < length:
                break
            is_request = data[position + 2] == PacketType.REQUEST
            if is_request and max_calls is not None and len(events) >= max_calls:
                self.has_more = True
                break
            pdu = data if length == end else data[position : position + length]
            position += length
            try:
                if is_request:
                    self._request(pdu, events)
                else:
                    self._other(pdu, events)
            except LogonDelayed as delay:
                position -= length
                self.delay = delay.seconds
                break
            if self.is_closed:
                return events
        self._rest = data[position:] if position < end else b""
        return events

    def _frame(self, frames: Frames, data: bytes, position: int, events: list[Event]) -> int:
        try:
            return frames.take(data, position)
        except (RemoteProtocolError, SecurityError) as error:
            self._close(events, str(error))
            return len(data)

    @property
    def is_behind(self) -> bool:
        """Whether received frames wait for the next turn of their stream."""
        return self.stream is not None and self.stream.is_behind

    def begin_frames(self, frames: Frames, stream: Stream) -> None:
        """Accept frames beside PDUs from now on, and pass them to a stream."""
        if self.frames is not None:
            raise RpcFault(FaultStatus.NCA_FAULT_CONTEXT_MISMATCH, "the connection has a stream")
        self.frames, self.stream = frames, stream

    def send_entry(self, entry: bytes) -> None:
        """Send an entry of the stream with the next flush."""
        if self.frames is not None and self._closed is None:
            self._out += self.frames.put(entry)

    def keep(self, data: bytes) -> None:
        """Keep bytes that arrive while a logon waits. They are handled after it."""
        if self._closed is None:
            self._rest += data

    def data_to_send(self) -> bytes:
        out = self._out
        if self.frames is not None:
            out += self.frames.flush()
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def awaits(self, call: ServerCall) -> bool:
        """Return whether the client still waits for the answer to a call."""
        return self._closed is None and not call.is_finished

    def respond(self, call: ServerCall, stub: bytes) -> None:
        """Answer a call with its out parameters.

        Nothing is sent for an orphaned call, and after the end of the connection.
        """
        if not self._finish(call):
            return
        if self._log is not None:
            self._log.response(call.group.id, call.call_id, len(stub))
        # Windows returns only the low byte of the context id, and Samba's tests require that.
        middle = _RESPONSE_MIDDLE.pack(call.context_id & 0xFF, 0, 0)
        security = call.security
        if security is not None and security.signs:
            self._out += pack_signed_fragments(
                PacketType.RESPONSE,
                call.call_id,
                middle,
                stub,
                self._max_xmit,
                security,
                header_signing=self._security.header_signing,
            )
        else:
            self._out += pack_fragments(PacketType.RESPONSE, call.call_id, middle, stub, self._max_xmit)

    def fault(self, call: ServerCall, status: int, *, did_not_execute: bool = False) -> None:
        """Answer a call with a fault."""
        if not self._finish(call):
            return
        if status in FORBIDDEN_STATUS:
            _LOG.error("status %#010x may not be sent in a fault", status)
            status = FaultStatus.NCA_FAULT_UNSPEC
        if self._log is not None:
            self._log.fault(call.group.id, call.call_id, status)
        flags = PFC_WHOLE | (PFC_DID_NOT_EXECUTE if did_not_execute else 0)
        self._out.append(Fault(status, call.context_id).pack(flags, call.call_id))

    @property
    def user(self) -> str:
        """The name of the user that logged on last, or of the local user."""
        return self._security.user or self.identity.name

    @property
    def address(self) -> str:
        """The address of the user that logged on by a call, as the call named it; else the peer.

        The users of the HTTP process share its connection's peer.
        """
        return (self.has_logged_on and self.identity.origin) or self.peer

    @property
    def identities(self) -> list[Identity]:
        """The identities of the transport and of all security contexts."""
        return [self.identity, *self._security.identities]

    def close(self) -> None:
        """Leave the association, after the transport was lost.

        The handles of an association are run down with its last connection.
        """
        if self._closed is None:
            self._closed = "the connection was lost"
        self._calls.clear()
        self._fragmented = None
        self._rest = b""
        self.has_more = False
        self._security.close()
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        if self._group is not None:
            group, self._group = self._group, None
            self._groups.leave(group)

    # PDUs
    # ----------------------------------------------------------------------------------------------

    def _finish(self, call: ServerCall) -> bool:
        if call.is_finished:
            return False
        call.is_finished = True
        return self._calls.pop(call.call_id, None) is not None and self._closed is None

    def _close(self, events: list[Event], reason: str) -> None:
        self._closed = reason
        self._fragmented = None
        self._rest = b""
        self.has_more = False
        events.append(ConnectionClosed(reason))
        log_of_peer(_LOG, logging.INFO, "closed", self.peer, "%s: %s", self.peer, reason)

    def _refuse(self, events: list[Event], call_id: int, refusal: Refused) -> None:
        if self._log is not None:
            self._log.fault(0 if self._group is None else self._group.id, call_id, refusal.status)
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
                    self._security.auth3(pdu, header)
                case PacketType.CO_CANCEL:
                    self._cancel(header.call_id, events, is_orphaned=False)
                case PacketType.ORPHANED:
                    self._cancel(header.call_id, events, is_orphaned=True)
                case _:
                    # A client does not send this type.
                    raise Refused(FaultStatus.NCA_PROTO_ERROR, f"PDU type {header.packet_type} from a client")
        except Nak as nak:
            self._out.append(BindNak(nak.reason).pack(header.call_id))
            self._close(events, str(nak))
        except Refused as refusal:
            self._refuse(events, header.call_id, refusal)
        except RemoteProtocolError as error:
            if header.packet_type == PacketType.BIND:
                self._out.append(BindNak(RejectReason.PROTOCOL_VERSION_NOT_SUPPORTED).pack(header.call_id))
                self._close(events, f"bind: {error}")
            else:
                self._refuse(events, header.call_id, not_executed(FaultStatus.NCA_PROTO_ERROR, str(error)))

    def _cancel(self, call_id: int, events: list[Event], *, is_orphaned: bool) -> None:
        # A call that is incomplete or finished is not affected: its client may not know its state.
        call = self._calls.get(call_id)
        if call is None or call.is_cancelled:
            return
        call.is_cancelled = True
        if is_orphaned:
            call.is_finished = True
            del self._calls[call_id]
            if self._log is not None:
                self._log.abandoned(call_id)
        events.append(CallCancelled(call, is_orphaned))

    # bind, alter_context, rpc_auth_3
    # ---------------------------------------------------------------------------

    def _bind(self, bind: Bind, header: Header) -> None:
        if self._group is not None:
            raise Nak(RejectReason.REASON_NOT_SPECIFIED, "a second bind")
        if not bind.contexts or any(not one.transfer_syntaxes for one in bind.contexts):
            raise Nak(RejectReason.REASON_NOT_SPECIFIED, "a bind without contexts or transfer syntaxes")
        if sum(offered_features(one) is not None for one in bind.contexts) > 1:
            raise Nak(RejectReason.REASON_NOT_SPECIFIED, "bind time features twice")
        group = self._groups.find(bind.assoc_group_id, self.peer) if bind.assoc_group_id else None
        if bind.assoc_group_id and group is None:
            raise Nak(RejectReason.REASON_NOT_SPECIFIED, f"association {bind.assoc_group_id:#010x} is not theirs")
        results = self._contexts.negotiate(bind.contexts, is_bind=True)
        trailer = self._security.bind(bind.trailer)
        self._group = self._groups.join(group, self.peer)
        # Both sizes become the same multiple of eight.
        wanted = min(bind.max_xmit_frag, bind.max_recv_frag)
        self._max_xmit = min(max(wanted, MIN_FRAGMENT), self._limits.max_fragment) & ~7
        flags = PFC_WHOLE
        if header.flags & PFC_CONC_MPX:
            self._is_multiplexed = True
            flags |= PFC_CONC_MPX
        if header.flags & PFC_SUPPORT_HEADER_SIGN:
            self._security.header_signing = True
            flags |= PFC_SUPPORT_HEADER_SIGN
        answer = BindAck(self._max_xmit, self._max_xmit, self.group.id, self._secondary_address, results, trailer)
        self._out.append(answer.pack(PacketType.BIND_ACK, flags, header.call_id))

    def _alter_context(self, alter: Bind, header: Header) -> None:
        if self._group is None:
            raise RemoteProtocolError("alter_context before bind")
        if not alter.contexts or any(not one.transfer_syntaxes for one in alter.contexts):
            raise RemoteProtocolError("alter_context without contexts or transfer syntaxes")
        results = self._contexts.negotiate(alter.contexts, is_bind=False)
        trailer = self._security.alter(alter.trailer)
        flags = PFC_WHOLE
        if header.flags & PFC_SUPPORT_HEADER_SIGN:
            self._security.header_signing = True
            flags |= PFC_SUPPORT_HEADER_SIGN
        # Fragment sizes and the association are fixed, so their fields in an alter_context are
        # ignored.
        answer = BindAck(self._max_xmit, self._max_xmit, self.group.id, "", results, trailer)
        self._out.append(answer.pack(PacketType.ALTER_CONTEXT_RESP, flags, header.call_id))

    # request
    # ----------------------------------------------------------------------------------------------

    def _request(self, pdu: bytes, events: list[Event]) -> None:
        try:
            self._accept_request(pdu, events)
        except Refused as refusal:
            self._refuse(events, Header.unpack(pdu).call_id, refusal)
        except RemoteProtocolError as error:
            self._refuse(events, Header.unpack(pdu).call_id, not_executed(FaultStatus.NCA_PROTO_ERROR, str(error)))

    def _accept_request(self, pdu: bytes, events: list[Event]) -> None:
        if len(pdu) < REQUEST_SIZE:
            raise RemoteProtocolError(f"a request of {len(pdu)} bytes")
        (vers, minor, _, flags, drep, _, auth_length, call_id, alloc_hint, context_id, opnum) = (
            _REQUEST_PDU.unpack_from(pdu)
        )
        object_uuid = None
        start = REQUEST_SIZE
        is_little = drep & 0xF0 == DREP_LITTLE
        if flags & PFC_OBJECT_UUID or not is_little:
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
            raise Refused(FaultStatus.NCA_PROTO_ERROR, f"a fragment of {len(pdu)} bytes")
        call = self._fragmented
        if call is not None:
            self._continue(call, pdu, events, flags=flags, call_id=call_id, auth_length=auth_length, start=start)
            return
        if flags & PFC_FIRST_FRAG == 0 and not self._is_multiplexed:
            raise Refused(FaultStatus.NCA_PROTO_ERROR, "a fragment without a first one")
        if flags & PFC_FIRST_FRAG and flags & PFC_PENDING_CANCEL:
            raise not_executed(FaultStatus.NO_CALL_ACTIVE, "a cancel for a call that begins")
        if self._calls and (not self._is_multiplexed or call_id in self._calls):
            # MS-RPCE 3.3.1.5.8: an exclusive connection has one call at a time.
            raise Refused(FaultStatus.NCA_PROTO_ERROR, "a call before the end of another", context_id=context_id)
        context = self._contexts.get(context_id)
        if context is None:
            raise Refused(FaultStatus.NCA_UNK_IF, f"context {context_id}", flags=PFC_DID_NOT_EXECUTE, ends=False)
        security = self._security.default
        if auth_length or security is not None:
            security = self._security.of_request(pdu, auth_length, context_id, start, is_little=is_little)
        if security is not None and auth_length:
            stub = self._security.verified(security, pdu, auth_length, context_id, start)
        else:
            stub = pdu[start:]
        if not flags & PFC_FIRST_FRAG:
            raise Refused(FaultStatus.NCA_PROTO_ERROR, "a fragment without a first one", context_id=context_id)
        if len(self._calls) >= self._limits.max_calls:
            raise Refused(
                FaultStatus.NCA_SERVER_TOO_BUSY,
                f"{len(self._calls)} calls at once",
                context_id=context_id,
                flags=PFC_DID_NOT_EXECUTE,
                ends=False,
            )
        call = ServerCall(self, self._group, call_id, context_id, context, opnum, security)
        call.object_uuid = object_uuid
        call.is_little = is_little
        if flags & PFC_LAST_FRAG:
            call.stub = stub
            self._dispatch(call, events)
            return
        if alloc_hint > context.interface.max_request_size:
            raise Refused(FaultStatus.ACCESS_DENIED, f"a request of {alloc_hint} bytes", context_id=context_id)
        call.parts += stub
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
        """Handle a fragment after the first.

        Its context id, opnum and the ids of its sec_trailer are not checked.
        """
        if call_id != call.call_id:
            if self._is_multiplexed:
                raise Refused(FaultStatus.NCA_PROTO_ERROR, "a call in the middle of another")
            # On an exclusive connection, the call that had begun fails.
            self._refuse(events, call.call_id, _mixed(call))
            return
        security = call.security
        if security is not None and security.signs:
            if not auth_length:
                raise _mixed(call)
            stub = self._security.verified(security, pdu, auth_length, call.context_id, start)
        elif auth_length:
            where, trailer = split_trailer(pdu, Header.unpack(pdu), start)
            stub = pdu[start : where - (0 if trailer is None else trailer.auth_pad_length)]
        else:
            stub = pdu[start:]
        if flags & PFC_FIRST_FRAG:
            raise _mixed(call)
        call.size += len(stub)
        if call.size > call.interface.max_request_size:
            raise Refused(
                FaultStatus.ACCESS_DENIED, f"a request of more than {call.size} bytes", context_id=call.context_id
            )
        call.parts += stub
        if flags & PFC_LAST_FRAG:
            self._fragmented = None
            call.stub = bytes(call.parts)
            call.parts.clear()
            self._dispatch(call, events)

    def _dispatch(self, call: ServerCall, events: list[Event]) -> None:
        if SIGNATURE in call.stub[-MAX_TRAILER:]:
            self._strip_verification_trailer(call)
        self._calls[call.call_id] = call
        if self._log is not None:
            self._log.request(
                call.group.id, call.call_id, call.context.abstract_syntax.uuid, call.opnum, len(call.stub)
            )
        events.append(call)

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
                header_signing=self._security.header_signing or call.security is None,
            )
        except RemoteProtocolError as error:
            # MS-RPCE 2.2.2.13: handled like a stub that cannot be read, with status 5.
            raise Refused(
                FaultStatus.ACCESS_DENIED,
                str(error),
                context_id=call.context_id,
                flags=PFC_DID_NOT_EXECUTE,
                ends=False,
            ) from error
        call.stub = call.stub[:start]


def _mixed(call: ServerCall) -> Refused:
    return Refused(FaultStatus.NCA_PROTO_ERROR, f"fragments of {call} are mixed up", context_id=call.context_id)
