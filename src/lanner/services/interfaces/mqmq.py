"""MS-MQMQ types in RPC interfaces: PROPVARIANT, QUEUE_FORMAT, OBJECTID, XACTUOW (2.2, 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias
from uuid import UUID

from lanner.rpc.ndr import (
    Adapted,
    Conformant,
    Field,
    Octets,
    Related,
    Struct,
    Type,
    Union,
    Unique,
    guid,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    wide_string,
)
from lanner.wire.format_name import QueueFormatType
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.propvariant import VARIANT_FALSE, VARIANT_TRUE, PropVariant, Value
from lanner.wire.vartypes import VT

# MS-MQMQ 2.2.8. In packets the same pair is named MessageIdentifier.
OBJECTID: Final = Struct(MessageIdentifier, Field("queue_manager_guid", guid), Field("ordinal", u32))
# MS-MQMQ 2.2.18.1.8: 16 octets, whose content only their creator interprets.
XACTUOW: Final = Octets(16)
# HRESULT and DWORD return values. The model's status codes are unsigned.
HRESULT: Final = u32


@dataclass(frozen=True, slots=True)
class DlId:
    """DL_ID (MS-MQMQ 2.2.9)."""

    m_dl_guid: Annotated[UUID, guid]
    m_pwz_domain: Annotated[str | None, Unique(wide_string)]


@dataclass(frozen=True, slots=True)
class MulticastId:
    """MULTICAST_ID (MS-MQMQ 2.2.10)."""

    m_address: Annotated[int, u32]
    m_port: Annotated[int, u32]


QueueFormatArm: TypeAlias = UUID | MessageIdentifier | DlId | MulticastId | str | None

_QUEUE_FORMAT_ARMS: Final = Union(
    u8,
    {
        QueueFormatType.UNKNOWN: None,
        QueueFormatType.PUBLIC: guid,
        QueueFormatType.PRIVATE: OBJECTID,
        QueueFormatType.DIRECT: Unique(wide_string),
        QueueFormatType.MACHINE: guid,
        QueueFormatType.CONNECTOR: guid,
        QueueFormatType.DL: Struct(DlId),
        QueueFormatType.MULTICAST: Struct(MulticastId),
        QueueFormatType.SUBQUEUE: Unique(wide_string),
    },
)


@dataclass(frozen=True, slots=True)
class QueueFormat:
    """QUEUE_FORMAT (MS-MQMQ 2.2.7).

    A direct name is stored without its prefix. A NULL name is None.
    """

    m_qft: Annotated[int, u8]
    m_suffix_and_flags: Annotated[int, u8]
    m_reserved: Annotated[int, u16]
    u: Annotated[QueueFormatArm, _QUEUE_FORMAT_ARMS, Related(switch_is="m_qft")]


QUEUE_FORMAT: Final = Struct(QueueFormat)


_Array: TypeAlias = bytes | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Counted:
    c_elems: int
    p_elems: _Array | None


def _counted(element: Type, empty: _Array = ()) -> Adapted:
    """Return the type of a counted array: BLOB and the CA structures (MS-MQMQ 2.2.15, 2.2.16).

    On the wire it is a count and a pointer to that many elements. The value is just the elements;
    an empty one has a NULL pointer.
    """
    structure = Struct(
        _Counted, Field("c_elems", u32), Field("p_elems", Unique(Conformant(element)), Related(size_is="c_elems"))
    )
    return Adapted(
        structure,
        lambda value: _Counted(len(value), value or None),
        lambda counted: empty if counted.p_elems is None else counted.p_elems,
    )


@dataclass(frozen=True, slots=True)
class _Variant:
    vt: int
    w_reserved1: int
    w_reserved2: int
    w_reserved3: int
    var_union: Value


# MS-MQMQ 2.2.13.1. The arm follows the tag at its own alignment, because the union is not an
# ms_union. The document does not say so, and only a capture from Windows could confirm it. If it is
# wrong, this is the only place to change.
_VARIANT_UNION: Final = Union(
    u16,
    {
        VT.EMPTY: None,
        VT.NULL: None,
        VT.I1: i8,
        VT.UI1: u8,
        VT.I2: i16,
        VT.UI2: u16,
        VT.I4: i32,
        VT.UI4: u32,
        VT.I8: i64,
        VT.UI8: u64,
        # MS-MQMQ 2.2.14: readers treat any nonzero value as true.
        VT.BOOL: Adapted(u16, lambda value: VARIANT_TRUE if value else VARIANT_FALSE, bool),
        VT.CLSID: Unique(guid),
        VT.BLOB: _counted(u8, b""),
        VT.LPWSTR: Unique(wide_string),
        VT.VECTOR | VT.UI1: _counted(u8, b""),
        VT.VECTOR | VT.UI2: _counted(u16),
        VT.VECTOR | VT.I4: _counted(i32),
        VT.VECTOR | VT.UI4: _counted(u32),
        VT.VECTOR | VT.UI8: _counted(u64),
        VT.VECTOR | VT.CLSID: _counted(guid),
        VT.VECTOR | VT.LPWSTR: _counted(Unique(wide_string)),
    },
)
# MS-MQMQ 2.2.13.2. wReserved1 to wReserved3 are sent as zero and ignored on receipt.
PROPVARIANT: Final = Adapted(
    Struct(
        _Variant,
        Field("vt", u16),
        Field("w_reserved1", u8),
        Field("w_reserved2", u8),
        Field("w_reserved3", u32),
        Field("var_union", _VARIANT_UNION, Related(switch_is="vt")),
    ),
    lambda value: _Variant(value.vt, 0, 0, 0, value.value),
    lambda variant: PropVariant(variant.vt, variant.var_union),
)
# CAPROPVARIANT is the only arm that refers back to PROPVARIANT, so it is added last.
_VARIANT_UNION.arms[VT.VECTOR | VT.VARIANT] = _counted(PROPVARIANT)
