"""Object references: OBJREF, DUALSTRINGARRAY, MInterfacePointer (MS-DCOM 2.2.14 to 2.2.19).

An OBJREF is packed by hand, little-endian, inside an MInterfacePointer, which is NDR. An
inconsistent OBJREF raises RemoteProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias
from uuid import UUID

from lanner.com.constants import NCACN_IP_TCP
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.ndr import UNRELATED, Adapted, Conformant, Correlation, Related, Struct, Unique, guid, u8, u16, u32, u64
from lanner.wire.reader import Reader, guid_to_bytes

# "MEOW", MS-DCOM 2.2.18.
SIGNATURE: Final = 0x574F_454D
OBJREF_STANDARD: Final = 0x1
OBJREF_HANDLER: Final = 0x2
OBJREF_CUSTOM: Final = 0x4
OBJREF_EXTENDED: Final = 0x8
# MS-DCOM 2.2.18.2: the flag that the client need not ping.
SORF_NOPING: Final = 0x1000
# MS-DCOM 2.2.18.7.
_EXTENDED_SIGNATURE: Final = 0x4E53_5956
# MS-DCOM 2.2.19.4: reserved, and ignored by receivers.
_RESERVED_AUTHZ: Final = 0xFFFF

_HEADER: Final = struct.Struct("<II16s")
_STDOBJREF: Final = struct.Struct("<IIQQ16s")


# DUALSTRINGARRAY
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StringBinding:
    """STRINGBINDING, MS-DCOM 2.2.19.3: protocol sequence, host, and for an exporter an endpoint."""

    tower_id: int
    network_addr: str

    @classmethod
    def tcp(cls, host: str, port: int | None = None) -> StringBinding:
        return cls(NCACN_IP_TCP, host if port is None else f"{host}[{port}]")

    @property
    def host(self) -> str:
        return self.network_addr.partition("[")[0]

    @property
    def port(self) -> int | None:
        """The endpoint as a number, or None if it is missing or not a number."""
        endpoint = self.network_addr.partition("[")[2].removesuffix("]")
        return int(endpoint) if endpoint.isascii() and endpoint.isdecimal() and len(endpoint) <= 5 else None


@dataclass(frozen=True, slots=True)
class SecurityBinding:
    """SECURITYBINDING, MS-DCOM 2.2.19.4: a security provider and its target principal."""

    authn_svc: int
    princ_name: str = ""


@dataclass(frozen=True, slots=True)
class DualStringArray:
    """DUALSTRINGARRAY, MS-DCOM 2.2.19: addresses and security of a resolver or exporter."""

    string_bindings: tuple[StringBinding, ...] = ()
    security_bindings: tuple[SecurityBinding, ...] = ()

    def _halves(self) -> tuple[bytes, bytes]:
        strings = b"".join(
            [struct.pack("<H", one.tower_id) + _terminated(one.network_addr) for one in self.string_bindings]
        )
        security = b"".join(
            [
                struct.pack("<HH", one.authn_svc, _RESERVED_AUTHZ) + _terminated(one.princ_name)
                for one in self.security_bindings
            ]
        )
        # MS-DCOM 2.2.19.1: an empty array is two nulls, its own terminator and that of an empty
        # entry.
        return strings + bytes(2 if strings else 4), security + bytes(2 if security else 4)

    def pack(self) -> bytes:
        """Return the packet version (MS-DCOM 2.2.19.1)."""
        strings, security = self._halves()
        return struct.pack("<HH", (len(strings) + len(security)) // 2, len(strings) // 2) + strings + security

    @classmethod
    def read(cls, reader: Reader) -> DualStringArray:
        """Read the packet version."""
        entries = reader.u16("wNumEntries")
        offset = reader.u16("wSecurityOffset")
        return cls.from_entries(reader.take(2 * entries, "DUALSTRINGARRAY"), offset)

    @classmethod
    def from_entries(cls, entries: bytes, offset: int) -> DualStringArray:
        """Parse the entries of either version.

        Security begins at `offset`, in units of 2 octets.
        """
        if 2 * offset > len(entries):
            raise RemoteProtocolError(f"wSecurityOffset {offset} in {len(entries) // 2} entries")
        strings, security = Reader(entries, 0, 2 * offset), Reader(entries, 2 * offset)
        return cls(tuple(_string_bindings(strings)), tuple(_security_bindings(security)))

    def tcp(self) -> tuple[StringBinding, ...]:
        """Return the TCP bindings, the only ones that can be used here."""
        return tuple([one for one in self.string_bindings if one.tower_id == NCACN_IP_TCP])


def _terminated(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("a null inside a string")
    return text.encode("utf-16-le", "surrogatepass") + b"\0\0"


def _string_bindings(reader: Reader) -> Iterator[StringBinding]:
    while reader.remaining and (tower_id := reader.u16("wTowerId")):
        yield StringBinding(tower_id, reader.text_to_null("aNetworkAddr"))


def _security_bindings(reader: Reader) -> Iterator[SecurityBinding]:
    while reader.remaining and (authn_svc := reader.u16("wAuthnSvc")):
        reader.u16("Reserved")
        yield SecurityBinding(authn_svc, reader.text_to_null("aPrincName"))


@dataclass(frozen=True, slots=True)
class _DualStringArrayIdl:
    """The IDL version, MS-DCOM 2.2.19.2."""

    w_num_entries: Annotated[int, u16]
    w_security_offset: Annotated[int, u16]
    a_string_array: Annotated[tuple[int, ...], Conformant(u16), Related(size_is="w_num_entries")]


def _to_idl(bindings: DualStringArray | None) -> _DualStringArrayIdl | None:
    if bindings is None:
        return None
    entries, offset, *words = struct.unpack(f"<{len(packed := bindings.pack()) // 2}H", packed)
    return _DualStringArrayIdl(entries, offset, tuple(words))


def _from_idl(value: _DualStringArrayIdl | None) -> DualStringArray | None:
    if value is None:
        return None
    words = value.a_string_array
    return DualStringArray.from_entries(struct.pack(f"<{len(words)}H", *words), value.w_security_offset)


class _Pointed(Adapted):
    """A unique pointer within another value; NULL by default."""

    def default(self, related: Correlation = UNRELATED) -> None:
        del related


# A pointer to a DUALSTRINGARRAY; its value is a DualStringArray, or None.
DUALSTRINGARRAY: Final = _Pointed(Unique(Struct(_DualStringArrayIdl)), _to_idl, _from_idl)


# STDOBJREF and OBJREF
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StdObjRef:
    """STDOBJREF, MS-DCOM 2.2.18.1: references to an interface of an object of an exporter."""

    flags: Annotated[int, u32]
    public_refs: Annotated[int, u32]
    oxid: Annotated[int, u64]
    oid: Annotated[int, u64]
    ipid: Annotated[UUID, guid]

    def pack(self) -> bytes:
        return _STDOBJREF.pack(self.flags, self.public_refs, self.oxid, self.oid, guid_to_bytes(self.ipid))

    @classmethod
    def read(cls, reader: Reader) -> StdObjRef:
        return cls(
            reader.u32("STDOBJREF.flags"),
            reader.u32("cPublicRefs"),
            reader.u64("oxid"),
            reader.u64("oid"),
            reader.guid("ipid"),
        )


STDOBJREF: Final = Struct(StdObjRef)
NULL_STDOBJREF: Final = StdObjRef(0, 0, 0, 0, UUID(int=0))


@dataclass(frozen=True, slots=True)
class ObjRefStandard:
    """OBJREF_STANDARD, MS-DCOM 2.2.18.4."""

    iid: UUID
    std: StdObjRef
    res_addr: DualStringArray  # the resolver's address

    def pack(self) -> bytes:
        return _header(OBJREF_STANDARD, self.iid) + self.std.pack() + self.res_addr.pack()

    @classmethod
    def read(cls, iid: UUID, reader: Reader) -> ObjRefStandard:
        return cls(iid, StdObjRef.read(reader), DualStringArray.read(reader))


@dataclass(frozen=True, slots=True)
class ObjRefHandler:
    """OBJREF_HANDLER, MS-DCOM 2.2.18.5: a reference with a client-side handler class.

    The handler is not used: calls go to the object itself.
    """

    iid: UUID
    std: StdObjRef
    clsid: UUID
    res_addr: DualStringArray

    def pack(self) -> bytes:
        return _header(OBJREF_HANDLER, self.iid) + self.std.pack() + guid_to_bytes(self.clsid) + self.res_addr.pack()

    @classmethod
    def read(cls, iid: UUID, reader: Reader) -> ObjRefHandler:
        return cls(iid, StdObjRef.read(reader), reader.guid("clsid"), DualStringArray.read(reader))


@dataclass(frozen=True, slots=True)
class ObjRefCustom:
    """OBJREF_CUSTOM, MS-DCOM 2.2.18.6: data for the unmarshaler of a class."""

    iid: UUID
    clsid: UUID
    object_data: bytes

    def pack(self) -> bytes:
        # cbExtension is zero. Receivers ignore the other field; we write what impacket writes
        # there, which Windows is known to accept.
        return (
            _header(OBJREF_CUSTOM, self.iid)
            + guid_to_bytes(self.clsid)
            + struct.pack("<II", 0, len(self.object_data) + 8)
            + self.object_data
        )

    @classmethod
    def read(cls, iid: UUID, reader: Reader) -> ObjRefCustom:
        clsid = reader.guid("clsid")
        reader.take(8, "cbExtension and reserved")
        return cls(iid, clsid, reader.take(reader.remaining, "pObjectData"))


@dataclass(frozen=True, slots=True)
class ObjRefExtended:
    """OBJREF_EXTENDED, MS-DCOM 2.2.18.7: a standard reference with an envoy context.

    The context is ignored.
    """

    iid: UUID
    std: StdObjRef
    res_addr: DualStringArray
    data_id: UUID
    data: bytes

    def pack(self) -> bytes:
        size = len(self.data)
        return (
            _header(OBJREF_EXTENDED, self.iid)
            + self.std.pack()
            + struct.pack("<I", _EXTENDED_SIGNATURE)
            + self.res_addr.pack()
            + struct.pack("<II", 1, _EXTENDED_SIGNATURE)
            + guid_to_bytes(self.data_id)
            + struct.pack("<II", size, (size + 7) & ~7)
            + self.data
            + bytes(-size % 8)
        )

    @classmethod
    def read(cls, iid: UUID, reader: Reader) -> ObjRefExtended:
        std = StdObjRef.read(reader)
        _expect(reader.u32("Signature1"), _EXTENDED_SIGNATURE, "Signature1")
        res_addr = DualStringArray.read(reader)
        _expect(reader.u32("nElms"), 1, "nElms")
        _expect(reader.u32("Signature2"), _EXTENDED_SIGNATURE, "Signature2")
        data_id = reader.guid("dataID")
        size, rounded = reader.u32("cbSize"), reader.u32("cbRounded")
        _expect(rounded, (size + 7) & ~7, "cbRounded")
        return cls(iid, std, res_addr, data_id, reader.take(rounded, "Data")[:size])


ObjRef: TypeAlias = ObjRefStandard | ObjRefHandler | ObjRefCustom | ObjRefExtended
_FORMS: Final[dict[int, type[ObjRef]]] = {
    OBJREF_STANDARD: ObjRefStandard,
    OBJREF_HANDLER: ObjRefHandler,
    OBJREF_CUSTOM: ObjRefCustom,
    OBJREF_EXTENDED: ObjRefExtended,
}


def _header(flags: int, iid: UUID) -> bytes:
    return _HEADER.pack(SIGNATURE, flags, guid_to_bytes(iid))


def _expect(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise RemoteProtocolError(f"{what} is {found:#x}, not {expected:#x}")


def unpack_objref(data: bytes) -> ObjRef:
    """Parse an OBJREF.

    Trailing octets are ignored: some senders pad their buffers.
    """
    reader = Reader(data)
    _expect(reader.u32("signature"), SIGNATURE, "signature")
    flags = reader.u32("OBJREF flags")
    iid = reader.guid("iid")
    if flags not in _FORMS:
        raise RemoteProtocolError(f"an OBJREF of form {flags:#x}")
    return _FORMS[flags].read(iid, reader)


# MInterfacePointer
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MInterfacePointer:
    """MInterfacePointer, MS-DCOM 2.2.14."""

    ul_cnt_data: Annotated[int, u32]
    ab_data: Annotated[bytes, Conformant(u8), Related(size_is="ul_cnt_data")]


_POINTER: Final = Unique(Struct(_MInterfacePointer))


def _to_octets(data: bytes | None) -> _MInterfacePointer | None:
    return None if data is None else _MInterfacePointer(len(data), data)


def _from_octets(pointer: _MInterfacePointer | None) -> bytes | None:
    return None if pointer is None else pointer.ab_data


def _to_pointer(objref: ObjRef | None) -> _MInterfacePointer | None:
    return None if objref is None else _to_octets(objref.pack())


def _from_pointer(pointer: _MInterfacePointer | None) -> ObjRef | None:
    return None if pointer is None else unpack_objref(pointer.ab_data)


# PMInterfacePointer, MS-DCOM 2.2.16. The value is the OBJREF as octets, or None.
RAW_INTERFACE_POINTER: Final = _Pointed(_POINTER, _to_octets, _from_octets)
# The same, with an ObjRef or None as its value.
INTERFACE_POINTER: Final = _Pointed(_POINTER, _to_pointer, _from_pointer)
