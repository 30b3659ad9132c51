"""The client side of a connection: calls in, bytes out, no I/O (C706 9.3, 12.6; MS-RPCE 3.3.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.call_log import call_log
from lanner.rpc.faults import FORBIDDEN_STATUS, FaultStatus, InterfaceRefused, RpcConnectionError, RpcFault
from lanner.rpc.fragments import pack_fragments, pack_signed_fragments
from lanner.rpc.frames import FIRST_OCTET, KEY_SIZE, Entry, Frames, pack_entry, unpack_entries
from lanner.rpc.pdu import (
    HEADER_SIZE,
    NDR20,
    PFC_CONC_MPX,
    PFC_DID_NOT_EXECUTE,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_OBJECT_UUID,
    PFC_SUPPORT_HEADER_SIGN,
    PFC_WHOLE,
    REQUEST_SIZE,
    SEC_TRAILER_SIZE,
    SECURITY_CONTEXT_MULTIPLEXING,
    Auth3,
    AuthLevel,
    AuthType,
    Bind,
    BindAck,
    BindNak,
    ContextElement,
    ContextResult,
    Fault,
    Header,
    PacketType,
    ProviderReason,
    RejectReason,
    SecTrailer,
    SyntaxId,
    bind_time_features_syntax,
    pack_empty,
)
from lanner.rpc.security import Context, Credentials, SecurityError

# The proposal of Windows; a server may accept less.
MAX_FRAGMENT: Final = 5840
# Not in the specification: the maximum size of an answer. No answer of a queue manager is larger,
# and a server must not be able to fill the memory.
MAX_RESPONSE_SIZE: Final = 64 << 20
# Not in the specification: the size at which a frame is sent. The server handles it while the next
# one is made.
_LARGE_FRAME: Final = 0x0002_0000
_REQUEST_MIDDLE: Final = struct.Struct("<HH")
# MS-RPCE 3.3.3.5.2: call ids increase, and Windows refuses ids above this one.
_MAX_CALL_ID: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Bound:
    """The bind, or an alter_context, succeeded: context id and transfer syntax of the interface."""

    context_id: int
    transfer_syntax: SyntaxId


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a call: the NDR stub and its byte order."""

    call_id: int
    stub: bytes
    is_little: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The refusal of a call or a bind."""

    call_id: int
    error: RpcFault | RpcConnectionError


ClientEvent = Bound | Answered | Failed | Entry


@dataclass(frozen=True, slots=True)
class _Signer:
    auth_type: int
    context_id: int
    context: Context


class _Pending:
    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0


class ClientConnection:
    """One connection of a client. RemoteProtocolError and SecurityError from `receive` end it."""

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        auth_type: AuthType = AuthType.WINNT,
        level: AuthLevel = AuthLevel.NONE,
        host: str = "",
        peer: str = "",
        assoc_group_id: int = 0,
        max_fragment: int = MAX_FRAGMENT,
    ) -> None:
        if level == AuthLevel.CALL:
            level = AuthLevel.PKT  # MS-RPCE 2.2.1.1.8
        self.level = level if credentials is not None else AuthLevel.NONE
        self._signer: _Signer | None = None
        if credentials is not None and level > AuthLevel.NONE:
            self._signer = _Signer(auth_type, 0, credentials.initiate(auth_type, level, host))
        self.assoc_group_id = assoc_group_id
        self._max_fragment = max_fragment
        self._header_signing = False
        self._is_bound = False
        self._elements: tuple[ContextElement, ...] = ()
        self._next_context_id = 0
        self._next_call_id = 1
        self._binding: int | None = None
        self._pending: dict[int, _Pending] = {}
        self._rest = b""
        self._frames: Frames | None = None
        self._next_entry = 0
        self._out: list[bytes] = []
        # The interface of each context id, for the log.
        self._interfaces: dict[int, UUID] = {}
        self._log = call_log("client", peer)

    @property
    def _asks_for_header_signing(self) -> bool:
        return self.level >= AuthLevel.PKT_INTEGRITY

    def begin_frames(self, keys: bytes) -> None:
        """Begin to exchange frames beside PDUs, with the keys of both directions, or without."""
        self._frames = Frames(keys[:KEY_SIZE], keys[KEY_SIZE:])

    def post(self, kind: int, parts: Iterable[bytes]) -> int:
        """Send an entry with the next flush, and return its number. The answer is an Entry."""
        if self._frames is None:
            raise RpcConnectionError("the connection has no stream")
        # 0 is for entries without an answer.
        number = self._next_entry = self._next_entry % _MAX_CALL_ID + 1
        self._out += self._frames.put(pack_entry(number, kind, parts))
        return number

    @property
    def is_frame_large(self) -> bool:
        """Whether to send the posted entries at once, although more may be posted soon."""
        return self._frames is not None and self._frames.waiting >= _LARGE_FRAME

    def tell(self, kind: int, parts: Iterable[bytes]) -> None:
        """Queue an entry that has no answer. It is sent with the next entry that has one."""
        if self._frames is not None:
            self._out += self._frames.put(pack_entry(0, kind, parts))

    def data_to_send(self) -> bytes:
        if self._frames is not None:
            self._out += self._frames.flush()
        data = b"".join(self._out)
        self._out.clear()
        return data

    # Requests

    def bind(self, interface: SyntaxId, transfer_syntaxes: tuple[SyntaxId, ...] = (NDR20,)) -> int:
        """Request an interface: with bind the first time, then with alter_context.

        The answer is Bound or Failed.
        """
        if self._binding is not None:
            raise RuntimeError("another bind is under way")
        # MS-RPCE 3.3.1.5.6: one element for each transfer syntax.
        elements = []
        for syntax in transfer_syntaxes:
            elements.append(ContextElement(self._next_context_id, interface, (syntax,)))
            self._next_context_id += 1
        if not self._is_bound:
            features = bind_time_features_syntax(SECURITY_CONTEXT_MULTIPLEXING)
            elements.append(ContextElement(self._next_context_id, interface, (features,)))
            self._next_context_id += 1
        self._elements = tuple(elements)
        call_id = self._binding = self._new_call_id()
        if self._is_bound:
            self._send_bind(PacketType.ALTER_CONTEXT, call_id, None)
        else:
            token = None if self._signer is None else self._signer.context.step(b"")
            self._send_bind(PacketType.BIND, call_id, token)
        return call_id

    def request(self, context_id: int, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> int:
        """Send a call. The answer is Answered or Failed."""
        if self._frames is not None:
            # Entries that were posted earlier also come first on the wire.
            self._out += self._frames.flush()
        call_id = self._new_call_id()
        middle = _REQUEST_MIDDLE.pack(context_id, opnum)
        flags = 0
        if object_uuid is not None:
            middle += object_uuid.bytes_le
            flags = PFC_OBJECT_UUID
        signer = self._signer
        if signer is not None and self.level >= AuthLevel.PKT:
            self._out += pack_signed_fragments(
                PacketType.REQUEST,
                call_id,
                middle,
                stub,
                self._max_fragment,
                signer,
                header_signing=self._header_signing,
                flags=flags,
            )
        else:
            self._out += pack_fragments(PacketType.REQUEST, call_id, middle, stub, self._max_fragment, flags=flags)
        self._pending[call_id] = _Pending()
        if self._log is not None:
            self._log.request(self.assoc_group_id, call_id, self._interfaces[context_id], opnum, len(stub))
        return call_id

    def cancel(self, call_id: int) -> None:
        """Request the server to end a call early. It still answers."""
        self._out.append(pack_empty(PacketType.CO_CANCEL, call_id))

    def abandon(self, call_id: int) -> None:
        """Notify the server that the answer to a call is no longer needed (C706 12.6.4.8)."""
        if self._pending.pop(call_id, None) is not None:
            self._out.append(pack_empty(PacketType.ORPHANED, call_id))
            if self._log is not None:
                self._log.abandoned(call_id)

    # Answers

    def receive(self, data: bytes) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        frames = self._frames
        while position < end:
            if frames is not None and (frames.unfinished or data[position] == FIRST_OCTET):
                position = frames.take(data, position)
                continue
            if end - position < HEADER_SIZE:
                break
            header = Header.unpack(data[position : position + HEADER_SIZE])
            if header.frag_length < HEADER_SIZE:
                raise RemoteProtocolError(f"a PDU of {header.frag_length} bytes")
            if len(data) - position < header.frag_length:
                break
            pdu = data[position : position + header.frag_length]
            position += header.frag_length
            self._pdu(pdu, header, events)
        self._rest = data[position:]
        if frames is not None:
            for content in frames.received():
                events += unpack_entries(content)
        return events

    def _new_call_id(self) -> int:
        call_id = self._next_call_id
        if call_id > _MAX_CALL_ID:
            raise RpcConnectionError("the connection has run out of call ids")
        self._next_call_id += 1
        return call_id

    def _send_bind(self, packet_type: PacketType, call_id: int, token: bytes | None) -> None:
        flags = PFC_WHOLE | PFC_CONC_MPX
        trailer = None
        if token is not None and self._signer is not None:
            trailer = SecTrailer(self._signer.auth_type, self.level, self._signer.context_id, token)
            if self._asks_for_header_signing:
                flags |= PFC_SUPPORT_HEADER_SIGN
        pdu = Bind(self._max_fragment, self._max_fragment, self.assoc_group_id, self._elements, trailer)
        self._out.append(pdu.pack(packet_type, flags, call_id))

    def _pdu(self, pdu: bytes, header: Header, events: list[ClientEvent]) -> None:
        match header.packet_type:
            case PacketType.RESPONSE:
                self._response(pdu, header, events)
            case PacketType.FAULT:
                self._fault(Fault.unpack(pdu, header), header, events)
            case PacketType.BIND_ACK | PacketType.ALTER_CONTEXT_RESP:
                self._bind_ack(BindAck.unpack(pdu, header), header, events)
            case PacketType.BIND_NAK:
                nak = BindNak.unpack(pdu, header)
                self._binding = None
                error = RpcConnectionError(f"the server refuses the bind: {_name(RejectReason, nak.reject_reason)}")
                events.append(Failed(header.call_id, error))
            case PacketType.SHUTDOWN:
                raise RpcConnectionError("the server shuts down")
            case _:
                raise RemoteProtocolError(f"PDU type {header.packet_type} from a server")

    def _bind_ack(self, ack: BindAck, header: Header, events: list[ClientEvent]) -> None:
        if self._binding is None:
            raise RemoteProtocolError("an answer to a bind that was not sent")
        if not self._is_bound:
            self._is_bound = True
            self.assoc_group_id = ack.assoc_group_id
            self._max_fragment = min(self._max_fragment, ack.max_recv_frag)
            if self._max_fragment < REQUEST_SIZE + SEC_TRAILER_SIZE + 256:
                raise RemoteProtocolError(f"the server takes fragments of {ack.max_recv_frag} bytes")
        if header.flags & PFC_SUPPORT_HEADER_SIGN:
            self._header_signing = True
        signer = self._signer
        if signer is not None and not signer.context.is_complete:
            self._next_leg(signer, ack.trailer, header.call_id)
            if not signer.context.is_complete:
                return
        self._binding = None
        if len(ack.results) != len(self._elements):
            # The last leg of authentication was answered with the contexts of the earlier request.
            raise RemoteProtocolError(f"{len(ack.results)} results for {len(self._elements)} contexts")
        for element, result in zip(self._elements, ack.results, strict=True):
            if result.result == ContextResult.ACCEPTANCE:
                self._interfaces[element.context_id] = element.abstract_syntax.uuid
                events.append(Bound(element.context_id, element.transfer_syntaxes[0]))
                return
        reason = _name(ProviderReason, ack.results[0].reason)
        events.append(Failed(header.call_id, InterfaceRefused(f"the server does not take the interface: {reason}")))

    def _next_leg(self, signer: _Signer, trailer: SecTrailer | None, call_id: int) -> None:
        if trailer is None:
            raise SecurityError("the server does not authenticate")
        token = signer.context.step(trailer.token)
        if signer.context.is_complete:
            self._check_header_signing(signer.context)
        if not token:
            return
        # MS-RPCE 3.3.1.5.2.1: if the number of legs is odd, the last one has no answer.
        if signer.context.is_complete:
            last = SecTrailer(signer.auth_type, self.level, signer.context_id, token)
            self._out.append(Auth3(last).pack(PFC_WHOLE, call_id))
        else:
            # The contexts are the same as before. Features are requested only in a bind.
            self._elements = tuple(one for one in self._elements if one.transfer_syntaxes[0].uuid != _FEATURES)
            self._send_bind(PacketType.ALTER_CONTEXT, call_id, token)

    def _check_header_signing(self, context: Context) -> None:
        """Raise SecurityError if the server does not sign headers.

        Servers without header signing no longer exist. An attacker in between must have removed the
        flag, to change operations and contexts.
        """
        if self._asks_for_header_signing and not self._header_signing and not context.always_signs_headers:
            raise SecurityError("the server does not sign headers")

    def _response(self, pdu: bytes, header: Header, events: list[ClientEvent]) -> None:
        pending = self._pending.get(header.call_id)
        if pending is None:
            # This is the answer to an abandoned call. Its signature still counts in the sequence.
            if self._signer is not None and self.level >= AuthLevel.PKT:
                self._verified(pdu, header)
            return
        if bool(header.flags & PFC_FIRST_FRAG) == bool(pending.parts):
            raise RemoteProtocolError("the fragments of a response are mixed up")
        stub = self._verified(pdu, header)
        pending.size += len(stub)
        if pending.size > MAX_RESPONSE_SIZE:
            raise RemoteProtocolError(f"a response of more than {MAX_RESPONSE_SIZE} bytes")
        pending.parts.append(stub)
        if header.flags & PFC_LAST_FRAG:
            del self._pending[header.call_id]
            whole = pending.parts[0] if len(pending.parts) == 1 else b"".join(pending.parts)
            if self._log is not None:
                self._log.response(self.assoc_group_id, header.call_id, len(whole))
            events.append(Answered(header.call_id, whole, header.is_little))

    def _verified(self, pdu: bytes, header: Header) -> bytes:
        if len(pdu) < REQUEST_SIZE:
            raise RemoteProtocolError(f"a response of {len(pdu)} bytes")
        signer = self._signer
        where = len(pdu) - header.auth_length - SEC_TRAILER_SIZE
        if signer is None or self.level < AuthLevel.PKT:
            return pdu[REQUEST_SIZE:] if not header.auth_length else pdu[REQUEST_SIZE : max(where, REQUEST_SIZE)]
        if not header.auth_length or where < REQUEST_SIZE:
            raise SecurityError("a response without a signature")
        pad = pdu[where + 2]
        if pad > where - REQUEST_SIZE:
            raise RemoteProtocolError(f"auth_pad_length {pad}")
        stub = signer.context.unprotect(pdu, REQUEST_SIZE, where, header_signing=self._header_signing)
        return stub[: len(stub) - pad] if pad else stub

    def _fault(self, fault: Fault, header: Header, events: list[ClientEvent]) -> None:
        # MS-RPCE 3.3.2.5.1.
        status = FaultStatus.PROTOCOL_ERROR if fault.status in FORBIDDEN_STATUS else fault.status
        error = RpcFault(status, did_not_execute=bool(header.flags & PFC_DID_NOT_EXECUTE))
        if header.call_id == self._binding:
            self._binding = None
        elif self._pending.pop(header.call_id, None) is None:
            return
        if self._log is not None:
            self._log.fault(self.assoc_group_id, header.call_id, status)
        events.append(Failed(header.call_id, error))


_FEATURES: Final = bind_time_features_syntax(SECURITY_CONTEXT_MULTIPLEXING).uuid


def _name(kind: type[RejectReason | ProviderReason], value: int) -> str:
    try:
        return kind(value).name.lower()
    except ValueError:
        return f"reason {value}"
