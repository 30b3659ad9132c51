"""The connection-oriented PDUs (C706 12.6.4, MS-RPCE 2.2.2): bytes to dataclasses and back.

PDUs are written in little-endian order, and read in both orders, as `drep` states (C706 14.2.5). A
malformed PDU raises RemoteProtocolError; callers decide what that means for the connection.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import ClassVar, Final
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader, padding

HEADER_SIZE: Final = 16
REQUEST_SIZE: Final = 24  # header and fixed part of a request or response
SEC_TRAILER_SIZE: Final = 8
# C706 12.6.3.1: every implementation must be able to receive 1432. No fragment is larger than
# frag_length can express.
MAX_FRAGMENT_SIZE: Final = 0xFFFF
# MS-RPCE 2.2.2.11: the sec_trailer begins at a multiple of 16 from the beginning of the PDU body.
AUTH_PAD_ALIGNMENT: Final = 16

RPC_VERS: Final = 5
RPC_VERS_MINOR: Final = 0


class PacketType(enum.IntEnum):  # C706 12.6.4.1 PTYPE, MS-RPCE 2.2.2.10
    REQUEST = 0
    RESPONSE = 2
    FAULT = 3
    BIND = 11
    BIND_ACK = 12
    BIND_NAK = 13
    ALTER_CONTEXT = 14
    ALTER_CONTEXT_RESP = 15
    AUTH3 = 16
    SHUTDOWN = 17
    CO_CANCEL = 18
    ORPHANED = 19


# C706 12.6.3.1, pfc_flags. They are plain integers because they are tested for every PDU.
PFC_FIRST_FRAG: Final = 0x01
PFC_LAST_FRAG: Final = 0x02
PFC_PENDING_CANCEL: Final = 0x04
# MS-RPCE 2.2.2.3: the meaning of the same bit in bind, alter_context, their answers and rpc_auth_3.
PFC_SUPPORT_HEADER_SIGN: Final = 0x04
PFC_CONC_MPX: Final = 0x10
PFC_DID_NOT_EXECUTE: Final = 0x20
PFC_MAYBE: Final = 0x40
PFC_OBJECT_UUID: Final = 0x80
PFC_WHOLE: Final = PFC_FIRST_FRAG | PFC_LAST_FRAG


class ContextResult(enum.IntEnum):  # C706 12.6.3.1 p_cont_def_result_t, MS-RPCE 2.2.2.4
    ACCEPTANCE = 0
    USER_REJECTION = 1
    PROVIDER_REJECTION = 2
    NEGOTIATE_ACK = 3


class ProviderReason(enum.IntEnum):  # C706 12.6.3.1 p_provider_reason_t
    REASON_NOT_SPECIFIED = 0
    ABSTRACT_SYNTAX_NOT_SUPPORTED = 1
    PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED = 2
    LOCAL_LIMIT_EXCEEDED = 3


class RejectReason(enum.IntEnum):  # C706 12.6.3.1 p_reject_reason_t, MS-RPCE 2.2.2.5
    REASON_NOT_SPECIFIED = 0
    TEMPORARY_CONGESTION = 1
    LOCAL_LIMIT_EXCEEDED = 2
    PROTOCOL_VERSION_NOT_SUPPORTED = 4
    AUTHENTICATION_TYPE_NOT_RECOGNIZED = 8
    INVALID_CHECKSUM = 9


class AuthType(enum.IntEnum):  # MS-RPCE 2.2.1.1.7
    NONE = 0x00
    GSS_NEGOTIATE = 0x09
    WINNT = 0x0A
    GSS_SCHANNEL = 0x0E
    GSS_KERBEROS = 0x10
    NETLOGON = 0x44
    DEFAULT = 0xFF


class AuthLevel(enum.IntEnum):  # MS-RPCE 2.2.1.1.8
    DEFAULT = 0
    NONE = 1
    CONNECT = 2
    CALL = 3
    PKT = 4
    PKT_INTEGRITY = 5
    PKT_PRIVACY = 6


@dataclass(frozen=True, slots=True)
class SyntaxId:
    """p_syntax_id_t, C706 12.6.3.1: an interface or a transfer syntax, and its version."""

    uuid: UUID
    major: int = 0
    minor: int = 0

    def pack(self) -> bytes:
        return self.uuid.bytes_le + struct.pack("<HH", self.major, self.minor)

    def __str__(self) -> str:
        return f"{self.uuid} {self.major}.{self.minor}"


# C706 14.1 and MS-RPCE 2.2.4.12, 2.2.5.1.
NDR20: Final = SyntaxId(UUID("8a885d04-1ceb-11c9-9fe8-08002b104860"), 2)
NDR64: Final = SyntaxId(UUID("71710533-beba-4937-8319-b5dbef9ccc36"), 1)
NO_SYNTAX: Final = SyntaxId(UUID(int=0))

# MS-RPCE 3.3.1.5.3: not a real transfer syntax, but a query for features.
_BIND_TIME_FEATURES: Final = UUID("6cb71c2c-9812-4540-0000-000000000000").bytes_le[:8]
SECURITY_CONTEXT_MULTIPLEXING: Final = 0x01  # MS-RPCE 2.2.2.14
KEEP_CONNECTION_ON_ORPHAN: Final = 0x02


def bind_time_features(syntax: SyntaxId) -> int | None:
    """Return the features that a client offers with a transfer syntax (MS-RPCE 2.2.2.14).

    Returns None for a real transfer syntax.
    """
    octets = syntax.uuid.bytes_le
    if octets[:8] != _BIND_TIME_FEATURES or (syntax.major, syntax.minor) != (1, 0):
        return None
    return int.from_bytes(octets[8:], "little")


def bind_time_features_syntax(features: int) -> SyntaxId:
    return SyntaxId(UUID(bytes_le=_BIND_TIME_FEATURES + features.to_bytes(8, "little")), 1)


class PduReader(Reader):
    """The bounded reader, in the byte order of `drep`."""

    __slots__ = ("is_little",)

    def __init__(self, data: bytes, start: int = 0, end: int | None = None, *, is_little: bool = True) -> None:
        super().__init__(data, start, end)
        self.is_little = is_little

    def u16(self, what: str) -> int:
        return int.from_bytes(self.take(2, what), "little" if self.is_little else "big")

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little" if self.is_little else "big")

    def guid(self, what: str) -> UUID:
        octets = self.take(16, what)
        return UUID(bytes_le=octets) if self.is_little else UUID(bytes=octets)

    def syntax(self, what: str) -> SyntaxId:
        """Read a p_syntax_id_t. Its version is one number, minor half above the major one."""
        guid = self.guid(what)
        version = self.u32(what)
        return SyntaxId(guid, version & 0xFFFF, version >> 16)


_HEADER_LITTLE = struct.Struct("<BBBBIHHI")
_HEADER_BIG = struct.Struct(">BBBBIHHI")
# Integers little-endian, characters ASCII, floats IEEE (C706 14.2.5).
DREP_LITTLE: Final = 0x10


@dataclass(frozen=True, slots=True)
class Header:
    """The common header of all PDUs (C706 12.6.4.1)."""

    packet_type: int
    flags: int
    frag_length: int
    auth_length: int
    call_id: int
    is_little: bool = True
    rpc_vers: int = RPC_VERS
    rpc_vers_minor: int = RPC_VERS_MINOR

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Return the header at the beginning of at least 16 bytes."""
        if len(data) < HEADER_SIZE:
            raise RemoteProtocolError(f"header: {HEADER_SIZE} bytes wanted, {len(data)} left")
        is_little = data[4] & 0xF0 == DREP_LITTLE
        layout = _HEADER_LITTLE if is_little else _HEADER_BIG
        vers, minor, packet_type, flags, _, frag_length, auth_length, call_id = layout.unpack_from(data)
        return cls(packet_type, flags, frag_length, auth_length, call_id, is_little, vers, minor)


def pack_header(packet_type: int, flags: int, frag_length: int, auth_length: int, call_id: int) -> bytes:
    return _HEADER_LITTLE.pack(
        RPC_VERS, RPC_VERS_MINOR, packet_type, flags, DREP_LITTLE, frag_length, auth_length, call_id
    )


_SEC_TRAILER = struct.Struct("<BBBBI")


@dataclass(frozen=True, slots=True)
class SecTrailer:
    """sec_trailer, MS-RPCE 2.2.2.11, and the authentication token that follows it."""

    auth_type: int
    auth_level: int
    auth_context_id: int
    token: bytes = b""
    auth_pad_length: int = 0

    def pack(self) -> bytes:
        return (
            _SEC_TRAILER.pack(self.auth_type, self.auth_level, self.auth_pad_length, 0, self.auth_context_id)
            + self.token
        )


def split_trailer(data: bytes, header: Header, start: int) -> tuple[int, SecTrailer | None]:
    """Return the end of a PDU's body, with authentication padding, and the sec_trailer after it.

    `start` is the beginning of the body. Padding may not reach before it (MS-RPCE 2.2.2.11).
    """
    if not header.auth_length:
        return len(data), None
    where = len(data) - header.auth_length - SEC_TRAILER_SIZE
    if where < start:
        raise RemoteProtocolError(f"auth_length {header.auth_length} does not fit into {len(data) - start} bytes")
    auth_type, level, pad, _, context_id = _SEC_TRAILER.unpack_from(data, where)
    if not header.is_little:
        context_id = int.from_bytes(data[where + 4 : where + 8], "big")
    if pad > where - start:
        raise RemoteProtocolError(
            f"auth_pad_length {pad} is more than the {where - start} bytes before the sec_trailer"
        )
    return where, SecTrailer(auth_type, level, context_id, data[where + SEC_TRAILER_SIZE :], pad)


def assemble(packet_type: int, flags: int, call_id: int, body: bytes, trailer: SecTrailer | None = None) -> bytes:
    """Return a PDU with a body. The size of a body with a token is already a multiple of four."""
    if trailer is None:
        return pack_header(packet_type, flags, HEADER_SIZE + len(body), 0, call_id) + body
    end = trailer.pack()
    length = HEADER_SIZE + len(body) + len(end)
    if length > MAX_FRAGMENT_SIZE:
        raise ValueError(f"a PDU of {length} bytes")
    return pack_header(packet_type, flags, length, len(trailer.token), call_id) + body + end


@dataclass(frozen=True, slots=True)
class ContextElement:
    """p_cont_elem_t, C706 12.6.3.1."""

    context_id: int
    abstract_syntax: SyntaxId
    transfer_syntaxes: tuple[SyntaxId, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """bind and alter_context, C706 12.6.4.3 and 12.6.4.1."""

    max_xmit_frag: int
    max_recv_frag: int
    assoc_group_id: int
    contexts: tuple[ContextElement, ...]
    trailer: SecTrailer | None = None

    @classmethod
    def unpack(cls, data: bytes, header: Header) -> Bind:
        # auth_pad_length is not subtracted here: clients count padding from where the stub of a
        # request would begin.
        end, trailer = split_trailer(data, header, REQUEST_SIZE)
        reader = PduReader(data, HEADER_SIZE, end, is_little=header.is_little)
        max_xmit_frag = reader.u16("max_xmit_frag")
        max_recv_frag = reader.u16("max_recv_frag")
        assoc_group_id = reader.u32("assoc_group_id")
        count = reader.u8("n_context_elem")
        if count:
            reader.take(3, "p_context_elem reserved")
        contexts = []
        for _ in range(count):
            context_id = reader.u16("p_cont_id")
            syntaxes = reader.u8("n_transfer_syn")
            reader.take(1, "p_cont_elem reserved")
            abstract = reader.syntax("abstract_syntax")
            transfer = tuple(reader.syntax("transfer_syntax") for _ in range(syntaxes))
            contexts.append(ContextElement(context_id, abstract, transfer))
        return cls(max_xmit_frag, max_recv_frag, assoc_group_id, tuple(contexts), trailer)

    def pack(self, packet_type: int, flags: int, call_id: int) -> bytes:
        parts = [
            struct.pack(
                "<HHIBBH", self.max_xmit_frag, self.max_recv_frag, self.assoc_group_id, len(self.contexts), 0, 0
            )
        ]
        for one in self.contexts:
            parts.append(struct.pack("<HBB", one.context_id, len(one.transfer_syntaxes), 0))
            parts.append(one.abstract_syntax.pack())
            parts += [syntax.pack() for syntax in one.transfer_syntaxes]
        return assemble(packet_type, flags, call_id, b"".join(parts), self.trailer)


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """p_result_t, C706 12.6.3.1.

    `reason` is a bitmask of features if `result` is negotiate_ack (MS-RPCE 3.3.1.5.3).
    """

    result: int
    reason: int = ProviderReason.REASON_NOT_SPECIFIED
    transfer_syntax: SyntaxId = NO_SYNTAX


@dataclass(frozen=True, slots=True)
class BindAck:
    """bind_ack and alter_context_resp, C706 12.6.4.4 and 12.6.4.2."""

    max_xmit_frag: int
    max_recv_frag: int
    assoc_group_id: int
    secondary_address: str
    results: tuple[ContextAnswer, ...]
    trailer: SecTrailer | None = None

    @classmethod
    def unpack(cls, data: bytes, header: Header) -> BindAck:
        end, trailer = split_trailer(data, header, HEADER_SIZE)
        reader = PduReader(data, HEADER_SIZE, end, is_little=header.is_little)
        max_xmit_frag = reader.u16("max_xmit_frag")
        max_recv_frag = reader.u16("max_recv_frag")
        assoc_group_id = reader.u32("assoc_group_id")
        address = reader.take(reader.u16("sec_addr length"), "sec_addr").split(b"\0")[0]
        reader.align(4, 0, "sec_addr")
        count = reader.u8("n_results")
        reader.take(3, "p_result_list reserved")
        results = tuple(
            ContextAnswer(reader.u16("result"), reader.u16("reason"), reader.syntax("transfer_syntax"))
            for _ in range(count)
        )
        return cls(max_xmit_frag, max_recv_frag, assoc_group_id, address.decode("ascii", "replace"), results, trailer)

    def pack(self, packet_type: int, flags: int, call_id: int) -> bytes:
        # An alter_context_resp has no address, and therefore no terminator either.
        address = self.secondary_address.encode("ascii") + b"\0" if self.secondary_address else b""
        front = (
            struct.pack("<HHIH", self.max_xmit_frag, self.max_recv_frag, self.assoc_group_id, len(address)) + address
        )
        parts = [front, bytes(padding(len(front))), struct.pack("<BBH", len(self.results), 0, 0)]
        parts += [struct.pack("<HH", one.result, one.reason) + one.transfer_syntax.pack() for one in self.results]
        return assemble(packet_type, flags, call_id, b"".join(parts), self.trailer)


@dataclass(frozen=True, slots=True)
class BindNak:
    """bind_nak, C706 12.6.4.5 and MS-RPCE 2.2.2.9, without extended error information."""

    reject_reason: int
    versions: tuple[tuple[int, int], ...] = ((RPC_VERS, RPC_VERS_MINOR),)

    @classmethod
    def unpack(cls, data: bytes, header: Header) -> BindNak:
        reader = PduReader(data, HEADER_SIZE, is_little=header.is_little)
        reason = reader.u16("provider_reject_reason")
        # Some servers omit the versions.
        count = reader.u8("n_protocols") if reader.remaining else 0
        return cls(reason, tuple((reader.u8("major"), reader.u8("minor")) for _ in range(count)))

    def pack(self, call_id: int) -> bytes:
        body = struct.pack("<HB", self.reject_reason, len(self.versions)) + bytes(
            number for version in self.versions for number in version
        )
        return assemble(PacketType.BIND_NAK, PFC_WHOLE, call_id, body + bytes(padding(len(body))))


@dataclass(frozen=True, slots=True)
class Auth3:
    """rpc_auth_3, MS-RPCE 2.2.2.10."""

    trailer: SecTrailer

    @classmethod
    def unpack(cls, data: bytes, header: Header) -> Auth3:
        _, trailer = split_trailer(data, header, HEADER_SIZE + 4)
        if trailer is None:
            raise RemoteProtocolError("rpc_auth_3 without a token")
        return cls(trailer)

    def pack(self, flags: int, call_id: int) -> bytes:
        return assemble(PacketType.AUTH3, flags, call_id, bytes(4), self.trailer)


_REQUEST_LITTLE = struct.Struct("<IHH")
_REQUEST_BIG = struct.Struct(">IHH")


@dataclass(frozen=True, slots=True)
class Request:
    """A fragment of a request, C706 12.6.4.9.

    The stub begins at `stub_start` of the PDU that was unpacked.
    """

    alloc_hint: int
    context_id: int
    opnum: int
    object_uuid: UUID | None = None
    stub_start: int = REQUEST_SIZE

    @classmethod
    def unpack(cls, data: bytes, header: Header) -> Request:
        if len(data) < REQUEST_SIZE:
            raise RemoteProtocolError(f"request: {REQUEST_SIZE} bytes wanted, {len(data)} left")
        layout = _REQUEST_LITTLE if header.is_little else _REQUEST_BIG
        alloc_hint, context_id, opnum = layout.unpack_from(data, HEADER_SIZE)
        if not header.flags & PFC_OBJECT_UUID:
            return cls(alloc_hint, context_id, opnum)
        reader = PduReader(data, REQUEST_SIZE, is_little=header.is_little)
        return cls(alloc_hint, context_id, opnum, reader.guid("object"), REQUEST_SIZE + 16)

    def pack_front(self) -> bytes:
        """Return the octets between the header and the stub."""
        front = _REQUEST_LITTLE.pack(self.alloc_hint, self.context_id, self.opnum)
        return front if self.object_uuid is None else front + self.object_uuid.bytes_le


@dataclass(frozen=True, slots=True)
class Response:
    """A fragment of a response, C706 12.6.4.10. The stub begins after 24 bytes."""

    alloc_hint: int
    context_id: int
    cancel_count: int = 0

    @classmethod
    def unpack(cls, data: bytes, header: Header) -> Response:
        reader = PduReader(data, HEADER_SIZE, is_little=header.is_little)
        found = cls(reader.u32("alloc_hint"), reader.u16("p_cont_id"), reader.u8("cancel_count"))
        reader.take(1, "response reserved")
        return found

    def pack_front(self) -> bytes:
        return struct.pack("<IHBB", self.alloc_hint, self.context_id, self.cancel_count, 0)


@dataclass(frozen=True, slots=True)
class Fault:
    """fault, C706 12.6.4.7 and MS-RPCE 2.2.2.8: never with stub data."""

    SIZE: ClassVar[int] = 32

    status: int
    context_id: int = 0
    cancel_count: int = 0
    # This is the length of the PDU itself. Some peers treat zero as a protocol error.
    alloc_hint: int = SIZE

    @classmethod
    def unpack(cls, data: bytes, header: Header) -> Fault:
        reader = PduReader(data, HEADER_SIZE, is_little=header.is_little)
        alloc_hint = reader.u32("alloc_hint")
        context_id = reader.u16("p_cont_id")
        cancel_count = reader.u8("cancel_count")
        reader.take(1, "fault reserved")
        return cls(reader.u32("status"), context_id, cancel_count, alloc_hint)

    def pack(self, flags: int, call_id: int) -> bytes:
        body = struct.pack("<IHBBII", self.alloc_hint, self.context_id, self.cancel_count, 0, self.status, 0)
        return assemble(PacketType.FAULT, flags, call_id, body)


def pack_empty(packet_type: int, call_id: int, flags: int = PFC_WHOLE) -> bytes:
    """Return a co_cancel, orphaned or shutdown PDU (C706 12.6.4.6, 12.6.4.8, 12.6.4.11)."""
    return assemble(packet_type, flags, call_id, b"")
