# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""The encoding of automation values (MS-OAUT 2.2.23 to 2.2.34).

The types are BSTR, VARIANT, SAFEARRAY, DISPPARAMS and EXCEPINFO. Their contents are little-endian
even in a big-endian stub. They exist in NDR only, because no object interface has NDR64 (MS-OAUT
2.2). A VARIANT in an array or behind a parameter is a pointer, so its referent follows at once:
`_WireVariant` and `_WireSafeArray` defer nothing. Interface pointers are ObjRefs at this level
(`lanner.com.objref`); `stubs` replaces them by objects.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final

from lanner.com.automation.values import EMPTY, RecordValue, SafeArray, Variant
from lanner.com.objref import INTERFACE_POINTER
from lanner.rpc.ndr import (
    UNRELATED,
    Adapted,
    BadStub,
    Conformant,
    Correlation,
    Decoder,
    Encoder,
    FixedType,
    Related,
    Representation,
    Struct,
    Syntax,
    Type,
    Unique,
    Value,
    i8,
    i16,
    i32,
    i64,
    representation,
    u8,
    u16,
    u32,
    u64,
)
from lanner.rpc.ndr.compiler import Expressions, Reader, Writer
from lanner.rpc.ndr.pointers import Pointer
from lanner.rpc.ndr.stream import Slot
from lanner.rpc.ndr.types import Partial
from lanner.wire.vartypes import MAX_I4, VT, type_name

# The limit of SafeArrayCreate.
MAX_DIMENSIONS: Final = 60

_LITTLE: Final = representation(Syntax.NDR20, "little")


class _Always(Pointer):
    """A unique pointer that is never written as NULL.

    A NULL that is read becomes the value `null`, or is rejected if `may_be_null` is false.
    """

    def __init__(self, target: Type, null: Value = None, *, may_be_null: bool = True) -> None:
        super().__init__(target)
        self._null = null
        self._may_be_null = may_be_null

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        return "referent()"

    def emit_write_referents(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        self.emit_write_target(writer, partial, related, path)

    def emit_read_null(self, reader: Reader, value: str, related: Expressions, path: str) -> None:
        if self._may_be_null:
            reader.line(f"{value} = {reader.constant(self._null)}")
        else:
            reader.line(reader.refuse(path, "NULL where a value is"))

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self._null


# Scalars
# --------------------------------------------------------------------------------------------------


class _Real(FixedType):
    """An IEEE number of 4 or 8 octets."""

    def __init__(self, code: str) -> None:
        super().__init__()
        size = struct.calcsize(f"<{code}")
        self._slot = Slot(size, size, code)

    def slot(self, rep: Representation) -> Slot:
        return self._slot


class _VariantBool(FixedType):
    """VARIANT_BOOL, MS-OAUT 2.2.27: 0xFFFF or 0. Any other value is true, as for every BOOL."""

    is_converted = True
    _slot = Slot(2, 2, "H")

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    def to_wire(self, encoder: Encoder, value: Value) -> int:
        return 0xFFFF if value else 0

    def from_wire(self, decoder: Decoder, raw: int) -> bool:
        return raw != 0

    def default(self, related: Correlation = UNRELATED) -> bool:
        return False


class _DecimalType(FixedType):
    """DECIMAL, MS-OAUT 2.2.26: 96 bits, a power of ten from 0 to 28 as divisor, and a sign."""

    is_converted = True
    _slot = Slot(8, 16, "16s")
    _fields = struct.Struct("<HBBIQ")
    _MAX_SCALE = 28
    _MINUS = 0x80

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    def to_wire(self, encoder: Encoder, value: Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise TypeError("no number")
        number = int("".join(map(str, digits)))
        if exponent > 0:
            # The number is too large. Reject it without the expensive calculation.
            number = number * 10**exponent if exponent <= self._MAX_SCALE else 1 << 96
            exponent = 0
        if number >> 96 or -exponent > self._MAX_SCALE:
            raise ValueError(f"{value} does not fit into a DECIMAL")
        return self._fields.pack(0, -exponent, self._MINUS if sign else 0, number >> 64, number & (1 << 64) - 1)

    def from_wire(self, decoder: Decoder, raw: bytes) -> Decimal:
        _, scale, sign, high, low = self._fields.unpack(raw)
        if scale > self._MAX_SCALE or sign not in (0, self._MINUS):
            raise BadStub(f"a DECIMAL of scale {scale}, sign {sign:#x}")
        digits = tuple(map(int, str(high << 64 | low)))
        return Decimal((1 if sign else 0, digits, -scale))


_r4: Final = _Real("f")
_r8: Final = _Real("d")
VARIANT_BOOL: Final = _VariantBool()
_decimal: Final = _DecimalType()


# BSTR
# --------------------------------------------------------------------------------------------------


class _FlaggedWordBlob(Type):
    """FLAGGED_WORD_BLOB, MS-OAUT 2.2.23.1. None is the NULL BSTR."""

    _fields = struct.Struct("<III")  # the count of the array, cBytes, clSize
    _NULL = 0xFFFF_FFFF

    def __repr__(self) -> str:
        return "FLAGGED_WORD_BLOB"

    def alignment(self, rep: Representation) -> int:
        return 4

    def encode(self, encoder: Encoder, value: str | None, related: Correlation = UNRELATED) -> None:
        encoder.align(4)
        if value is None:
            encoder.write(self._fields.pack(0, self._NULL, 0))
            return
        data = value.encode("utf-16-le", "surrogatepass")
        encoder.write(self._fields.pack(len(data) // 2, len(data), len(data) // 2))
        encoder.write(data)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> str | None:
        decoder.align(4)
        count, octets, words = self._fields.unpack(decoder.take(12))
        is_null = octets == self._NULL
        if count != words or words != (0 if is_null else (octets + 1) // 2):
            raise BadStub(f"a BSTR of {octets} octets in {words} words, {count} announced")
        # Octets that are not text may be odd in number. The last one is then kept as a character.
        return None if is_null else decoder.take(2 * words).decode("utf-16-le", "surrogatepass")


BSTR: Final = _Always(_FlaggedWordBlob())


# BRECORD
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WireRecord:
    """_wireBRECORD, MS-OAUT 2.2.28.2.1. A user-defined type is carried, not decoded."""

    f_flags: Annotated[int, u32]
    cl_size: Annotated[int, u32]
    p_rec_info: Annotated[Value, INTERFACE_POINTER]
    p_record: Annotated[bytes | None, Unique(Conformant(u8)), Related(size_is="cl_size")]


def _wire_record(value: RecordValue | None) -> _WireRecord | None:
    if value is None:
        return None
    return _WireRecord(value.data is not None, len(value.data or b""), value.info, value.data)


def _record(wire: _WireRecord | None) -> RecordValue | None:
    return None if wire is None else RecordValue(wire.p_rec_info, wire.p_record)


# BRECORD, MS-OAUT 2.2.28.2.2.
_BRECORD: Final = Adapted(Unique(Struct(_WireRecord)), _wire_record, _record)


# SAFEARRAY
# --------------------------------------------------------------------------------------------------

# MS-OAUT 2.2.8: the only SF_TYPE needed here that is not also a VARIANT type.
_SF_HAVEIID: Final = 0x800D
# MS-OAUT 2.2.9.
_FADF_RECORD: Final = 0x0020
_FADF_HAVEIID: Final = 0x0040
_FADF_HAVEVARTYPE: Final = 0x0080
_FADF_BSTR: Final = 0x0100
_FADF_UNKNOWN: Final = 0x0200
_FADF_DISPATCH: Final = 0x0400
_FADF_VARIANT: Final = 0x0800

# Numeric elements: form and size in a SAFEARRAYUNION, and the struct code of one element (MS-OAUT
# 2.2.30.10).
_SCALARS: Final[dict[int, tuple[int, int, str]]] = {
    VT.I1: (VT.I1, 1, "b"),
    VT.UI1: (VT.I1, 1, "B"),
    VT.I2: (VT.I2, 2, "h"),
    VT.UI2: (VT.I2, 2, "H"),
    VT.BOOL: (VT.I2, 2, "H"),
    VT.ERROR: (VT.I4, 4, "I"),
    VT.I4: (VT.I4, 4, "i"),
    VT.UI4: (VT.I4, 4, "I"),
    VT.R4: (VT.I4, 4, "f"),
    VT.INT: (VT.I4, 4, "i"),
    VT.UINT: (VT.I4, 4, "I"),
    VT.I8: (VT.I8, 8, "q"),
    VT.UI8: (VT.I8, 8, "Q"),
    VT.R8: (VT.I8, 8, "d"),
    VT.CY: (VT.I8, 8, "q"),
    VT.DATE: (VT.I8, 8, "d"),
}
# The other elements: their forms, each with the feature that it requires (the first form is the one
# we write), and cbElements.
_POINTERS: Final[dict[int, tuple[dict[int, int], int]]] = {
    VT.BSTR: ({VT.BSTR: _FADF_BSTR}, 4),
    VT.VARIANT: ({VT.VARIANT: _FADF_VARIANT}, 16),
    VT.UNKNOWN: ({VT.UNKNOWN: _FADF_UNKNOWN, _SF_HAVEIID: _FADF_HAVEIID}, 4),
    VT.DISPATCH: ({VT.DISPATCH: _FADF_DISPATCH, _SF_HAVEIID: _FADF_HAVEIID}, 4),
    VT.RECORD: ({VT.RECORD: _FADF_RECORD}, 4),
}
_ELEMENT_TYPES: Final = _SCALARS.keys() | _POINTERS.keys()


class _WireSafeArray(Type):
    """_wireSAFEARRAY, MS-OAUT 2.2.30.10.

    The correlated `switch` is the element type: that of the enclosing VARIANT.
    """

    # The count of bounds, cDims, fFeatures, cbElements, cLocks, sfType, Size and the pointer to the
    # elements.
    _head = struct.Struct("<IHHIIIII")
    _bound = struct.Struct("<Ii")
    _count = struct.Struct("<I")

    def __repr__(self) -> str:
        return "SAFEARRAY"

    def alignment(self, rep: Representation) -> int:
        return 4

    # Filled below, because arrays contain VARIANTs and VARIANTs contain arrays.
    _elements: dict[int, Conformant]

    def encode(self, encoder: Encoder, value: SafeArray | bytes, related: Correlation = UNRELATED) -> None:
        if not isinstance(value, SafeArray):
            value = SafeArray.of(VT.UI1, value)
        vt, elements, bounds = value.vt, value.elements, value.bounds
        if related.switch not in (None, vt) or math.prod([count for count, _ in bounds]) != len(elements):
            raise ValueError(f"{value!r} of {len(elements)} elements with bounds {bounds} in an array of {related}")
        features, size, form = _FADF_HAVEVARTYPE, 0, vt
        if vt in _SCALARS:
            form, size, code = _SCALARS[vt]
        else:
            forms, size = _POINTERS[vt]
            # MS-OAUT 2.2.30.10: no other feature is combined with that of records.
            features = forms[form] if vt == VT.RECORD else forms[form] | _FADF_HAVEVARTYPE
        locks = vt << 16 if features & _FADF_HAVEVARTYPE else 0
        dims = len(bounds)
        total = 1 if vt == VT.RECORD else len(elements)
        encoder.align(4)
        encoder.write(self._head.pack(dims, dims, features, size, locks, form, total, encoder.referent()))
        # MS-OAUT 2.2.30.10: the bounds are in reverse order.
        encoder.write(b"".join([self._bound.pack(*bound) for bound in reversed(bounds)]))
        if vt not in _SCALARS:
            self._elements[form].encode(encoder, elements)
            return
        encoder.write(self._count.pack(len(elements)))
        encoder.align(size)
        if vt == VT.BOOL:
            elements = tuple([0xFFFF if each else 0 for each in elements])
        encoder.write(elements if isinstance(elements, bytes) else struct.pack(f"<{len(elements)}{code}", *elements))

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> SafeArray | bytes:
        decoder.align(4)
        announced, dims, features, size, locks, form, total, pointer = self._head.unpack(decoder.take(self._head.size))
        if announced != dims or not 1 <= dims <= MAX_DIMENSIONS:
            raise BadStub(f"a SAFEARRAY of {dims} dimensions, {announced} announced")
        vt = related.switch
        if vt is None:
            raise TypeError("the type of the elements is not said")
        self._check(vt, features, size, locks, form)
        if form == _SF_HAVEIID:
            # The type that all elements share. Each element repeats it.
            decoder.take(16)
        bounds = tuple(self._bound.iter_unpack(decoder.take(dims * self._bound.size)))[::-1]
        for count, lower in bounds:
            if lower + count - 1 > MAX_I4:
                raise BadStub(f"{count} elements from {lower} on")
        if total != (1 if form == VT.RECORD else math.prod([count for count, _ in bounds])):
            raise BadStub(f"{total} elements in a SAFEARRAY with bounds {bounds}")
        elements = (
            self._scalars(decoder, vt, total, pointer) if vt in _SCALARS else self._pointers(decoder, form, total)
        )
        return elements if isinstance(elements, bytes) and dims == 1 else SafeArray(vt, elements, bounds)

    @staticmethod
    def _check(vt: int, features: int, size: int, locks: int, form: int) -> None:
        """Check the constraints between fields (MS-OAUT 2.2.30.10)."""
        # The VARIANT's type determines the elements. The array's own type must have the same form.
        for each in (vt, locks >> 16) if features & _FADF_HAVEVARTYPE else (vt,):
            if each in _SCALARS:
                is_consistent = (form, size) == _SCALARS[each][:2]
            else:
                forms, _ = _POINTERS.get(each, ({}, 0))
                is_consistent = form in forms and bool(features & forms[form])
            if not is_consistent:
                raise BadStub(f"a SAFEARRAY of {type_name(each)} in form {form:#x}, {features:#x}, {size}")

    def _scalars(self, decoder: Decoder, vt: int, total: int, pointer: int) -> tuple[Value, ...] | bytes:
        if not pointer:
            if total:
                raise BadStub(f"NULL where {total} elements are announced")
            return b"" if vt == VT.UI1 else ()
        self._agree(decoder, total)
        _, size, code = _SCALARS[vt]
        decoder.align(size)
        data = decoder.take(size * total)
        if vt == VT.UI1:
            return data
        elements = struct.unpack(f"<{total}{code}", data)
        return tuple([each != 0 for each in elements]) if vt == VT.BOOL else elements

    def _pointers(self, decoder: Decoder, form: int, total: int) -> tuple[Value, ...]:
        elements: tuple[Value, ...] = self._elements[form].decode(decoder, Correlation(size=total))
        return elements

    def _agree(self, decoder: Decoder, total: int) -> None:
        decoder.align(4)
        (count,) = self._count.unpack(decoder.take(4))
        if count != total:
            raise BadStub(f"{count} elements where {total} are announced")


_WIRE_SAFEARRAY: Final = _WireSafeArray()
# MS-OAUT 2.2.30.10 and 2.2.6: SAFEARRAY is a pointer type, and PSAFEARRAY a pointer to it.
_PSAFEARRAY: Final = _Always(Unique(_WIRE_SAFEARRAY))


# VARIANT
# --------------------------------------------------------------------------------------------------


class _WireVariant(Type):
    """_wireVARIANT, MS-OAUT 2.2.29.1."""

    # clSize, rpcReserved, vt, three reserved fields, and the tag of the union.
    _head = struct.Struct("<IIHHHHI")

    def __repr__(self) -> str:
        return "VARIANT"

    def alignment(self, rep: Representation) -> int:
        # The alignment of the widest arm of the union.
        return 8

    # Keyed by the tag of the union; filled below.
    _arms: dict[int, Type | None]

    @staticmethod
    def _tag(vt: int) -> int:
        """Return the union tag of a type.

        It is the type itself, except that all arrays share one tag, or one by reference.
        """
        return vt & (VT.ARRAY | VT.BYREF) if vt & VT.ARRAY else vt

    def encode(self, encoder: Encoder, value: Variant, related: Correlation = UNRELATED) -> None:
        vt = int(value.vt)
        tag = self._tag(vt)
        if tag not in self._arms:
            raise ValueError(f"{type_name(vt)} in a VARIANT")
        outer, encoder.representation = encoder.representation, _LITTLE
        encoder.align(8)
        # The size is known only when everything is written.
        index, start = len(encoder.parts), encoder.position
        encoder.write(bytes(self._head.size))
        arm = self._arms[tag]
        if arm is not None:
            try:
                arm.encode(encoder, value.value, _of_elements(vt))
            except (struct.error, TypeError, AttributeError, OverflowError) as problem:
                raise ValueError(f"{value.value!r} in a VARIANT of type {type_name(vt)}: {problem}") from None
        encoder.parts[index] = self._head.pack(encoder.position - start + 7 >> 3, 0, vt, 0, 0, 0, tag)
        encoder.representation = outer

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Variant:
        decoder.align(8)
        # MS-OAUT 2.2.29.1 intends the size for allocating buffers. We need none, and not every
        # client computes it.
        _, _, vt, _, _, _, tag = self._head.unpack(decoder.take(self._head.size))
        is_array_of_nothing = vt & VT.ARRAY and _of_elements(vt).switch not in _ELEMENT_TYPES
        if tag != self._tag(vt) or tag not in self._arms or is_array_of_nothing:
            raise BadStub(f"a VARIANT of type {vt:#06x}, tag {tag:#x}")
        arm = self._arms[tag]
        if arm is None:
            return Variant(vt)
        outer, decoder.representation = decoder.representation, _LITTLE
        # Each VARIANT in a VARIANT counts as one level of nesting, so that its pointers detect
        # excessive depth.
        decoder.depth += 1
        value = arm.decode(decoder, _of_elements(vt))
        decoder.depth -= 1
        decoder.representation = outer
        return Variant(vt, value)


def _of_elements(vt: int) -> Correlation:
    return Correlation(switch=vt & ~(VT.ARRAY | VT.BYREF)) if vt & VT.ARRAY else UNRELATED


# MS-OAUT 2.2.29.2: a pointer. Windows never writes NULL; a NULL is read as an empty VARIANT.
VARIANT: Final = _Always(_WireVariant(), EMPTY)

_PLAIN: Final[dict[int, Type]] = {
    VT.I8: i64,
    VT.I4: i32,
    VT.UI1: u8,
    VT.I2: i16,
    VT.R4: _r4,
    VT.R8: _r8,
    VT.BOOL: VARIANT_BOOL,
    VT.ERROR: u32,
    VT.CY: i64,
    VT.DATE: _r8,
    VT.BSTR: BSTR,
    VT.UNKNOWN: INTERFACE_POINTER,
    VT.DISPATCH: INTERFACE_POINTER,
    VT.ARRAY: _PSAFEARRAY,
    VT.I1: i8,
    VT.UI2: u16,
    VT.UI4: u32,
    VT.UI8: u64,
    VT.INT: i32,
    VT.UINT: u32,
    VT.DECIMAL: _decimal,
}
_WireVariant._arms = {  # noqa: SLF001
    VT.EMPTY: None,
    VT.NULL: None,
    **_PLAIN,
    **{vt | VT.BYREF: _Always(kind, may_be_null=False) for vt, kind in _PLAIN.items()},
    VT.VARIANT | VT.BYREF: _Always(VARIANT, may_be_null=False),
    # One arm for both: MS-OAUT 2.2.29.1.
    VT.RECORD: _BRECORD,
    VT.RECORD | VT.BYREF: _BRECORD,
}
_WireSafeArray._elements = {  # noqa: SLF001
    VT.BSTR: Conformant(BSTR),
    VT.VARIANT: Conformant(VARIANT),
    VT.UNKNOWN: Conformant(INTERFACE_POINTER),
    VT.DISPATCH: Conformant(INTERFACE_POINTER),
    _SF_HAVEIID: Conformant(INTERFACE_POINTER),
    VT.RECORD: Conformant(_BRECORD),
}


# IDispatch::Invoke
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DispParams:
    """DISPPARAMS, MS-OAUT 2.2.33: arguments in reverse order, named ones first, and DISPIDs."""

    rgvarg: Annotated[tuple[Variant, ...] | None, Unique(Conformant(VARIANT)), Related(size_is="c_args")]
    rgdispid_named_args: Annotated[tuple[int, ...] | None, Unique(Conformant(i32)), Related(size_is="c_named_args")]
    c_args: Annotated[int, u32]
    c_named_args: Annotated[int, u32]

    @classmethod
    def of(cls, rgvarg: tuple[Variant, ...], named: tuple[int, ...] = ()) -> DispParams:
        return cls(rgvarg or None, named or None, len(rgvarg), len(named))


@dataclass(frozen=True, slots=True)
class ExcepInfo:
    """EXCEPINFO, MS-OAUT 2.2.34. The two pointers are reserved, and have 4 octets in NDR."""

    w_code: Annotated[int, u16] = 0
    w_reserved: Annotated[int, u16] = 0
    bstr_source: Annotated[str | None, BSTR] = None
    bstr_description: Annotated[str | None, BSTR] = None
    bstr_help_file: Annotated[str | None, BSTR] = None
    dw_help_context: Annotated[int, u32] = 0
    pv_reserved: Annotated[int, u32] = 0
    pfn_deferred_fill_in: Annotated[int, u32] = 0
    scode: Annotated[int, u32] = 0


DISPPARAMS: Final = Struct(DispParams)
EXCEPINFO: Final = Struct(ExcepInfo)
