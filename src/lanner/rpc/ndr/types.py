# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""What a type is, and the types of fixed size: integers, enumerations, UUIDs, context handles (C706 14.2; MS-RPCE 2.2.4, 2.2.5.2).

A type writes and reads in two steps, because what embedded pointers point to comes after the construction around them
(C706 14.3.12.3): `encode` and `decode` handle the part in place, `encode_referents` and `decode_referents` what was deferred.
Only a type with `has_referents` has a second step; until then what `decode` gave is half a value.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from lanner.rpc.ndr.stream import REPRESENTATIONS, BadStub, Decoder, Encoder, Representation, Run, Slot, Value
from lanner.wire.reader import guid_from_bytes, guid_to_bytes


class Correlation(NamedTuple):
    """What size_is, length_is and switch_is of a field come to in the call at hand (MS-RPCE 3.1.1.5.3.1)."""

    size: int | None = None
    length: int | None = None
    switch: int | None = None


UNRELATED: Final = Correlation()


class Type(ABC):
    """How values of one declared type look in a stub."""

    # Whether something of it is deferred.
    has_referents: bool = False
    # Whether a count of elements stands before it, and moves to the front of a structure that ends with it.
    is_conformant: bool = False

    @abstractmethod
    def alignment(self, rep: Representation) -> int: ...

    @abstractmethod
    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None: ...

    @abstractmethod
    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value: ...

    # A type without referents has nothing to add.
    def encode_referents(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:  # noqa: B027
        """Write what was deferred."""

    def decode_referents(self, decoder: Decoder, partial: Value, related: Correlation = UNRELATED) -> Value:
        """Read what was deferred; the value is whole then."""
        return partial

    # A count that stands before the rest; only a conformant type has one.
    def encode_conformance(self, encoder: Encoder, value: Value, related: Correlation) -> None:  # noqa: B027
        """Write the count."""

    def decode_conformance(self, decoder: Decoder) -> int:
        return 0

    def encode_body(self, encoder: Encoder, value: Value, related: Correlation) -> None:
        """Write the part in place without the count."""
        self.encode(encoder, value, related)

    def decode_body(self, decoder: Decoder, max_count: int, related: Correlation) -> Value:
        return self.decode(decoder, related)

    def default(self, related: Correlation = UNRELATED) -> Value:
        """What an [out] parameter is when the method has nothing to say."""
        raise ValueError(f"{self!r} has no value of its own")

    def encode_whole(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        self.encode(encoder, value, related)
        if self.has_referents:
            self.encode_referents(encoder, value, related)

    def decode_whole(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        value = self.decode(decoder, related)
        return self.decode_referents(decoder, value, related) if self.has_referents else value


class FixedType(Type):
    """A type that fills one slot. `to_wire` and `from_wire` run only where `is_converted`."""

    is_converted: bool = False

    def __init__(self) -> None:
        self._run = Run(lambda rep: (self.slot(rep),))

    @abstractmethod
    def slot(self, rep: Representation) -> Slot: ...

    def to_wire(self, encoder: Encoder, value: Value) -> Value:
        return value

    def from_wire(self, decoder: Decoder, raw: Value) -> Value:
        return raw

    def alignment(self, rep: Representation) -> int:
        return self.slot(rep).alignment

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        self._run.pack(encoder, (self.to_wire(encoder, value) if self.is_converted else value,))

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        raw = self._run.unpack(decoder)[0]
        return self.from_wire(decoder, raw) if self.is_converted else raw


class Integer(FixedType):
    """An integer: a struct code for NDR and one for NDR64, and a [range] if it has one (MS-RPCE 2.2.4.14.1)."""

    def __init__(self, name: str, code: str, code64: str | None = None, bounds: tuple[int, int] | None = None) -> None:
        super().__init__()
        self._name = name
        self._codes = code, code64 or code
        self._bounds = bounds
        self.is_converted = bounds is not None
        self._slots = tuple(
            Slot(size := struct.calcsize(f"<{kind}"), size, kind)
            for rep in REPRESENTATIONS
            for kind in [self._codes[rep.is_ndr64]]
        )

    def __repr__(self) -> str:
        return self._name if self._bounds is None else "{}[{}..{}]".format(self._name, *self._bounds)

    def within(self, low: int, high: int) -> Integer:
        """The same integer under [range(low, high)]."""
        return Integer(self._name, *self._codes, bounds=(low, high))

    def slot(self, rep: Representation) -> Slot:
        return self._slots[rep.index]

    def to_wire(self, encoder: Encoder, value: Value) -> Value:
        if self._bounds is not None and not self._bounds[0] <= value <= self._bounds[1]:
            raise ValueError("{} is outside {}..{}".format(value, *self._bounds))
        return value

    def from_wire(self, decoder: Decoder, raw: Value) -> Value:
        if self._bounds is not None and not self._bounds[0] <= raw <= self._bounds[1]:
            raise BadStub("{} is outside {}..{}".format(raw, *self._bounds))
        return raw

    def default(self, related: Correlation = UNRELATED) -> int:
        return 0


class Octets(FixedType):
    """An array of so many octets, such as `unsigned char rgb[16]`."""

    def __init__(self, size: int, alignment: int = 1) -> None:
        super().__init__()
        self.size = size
        self._slot = Slot(alignment, size, f"{size}s")
        self.is_converted = True

    def __repr__(self) -> str:
        return f"octets[{self.size}]"

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    def to_wire(self, encoder: Encoder, value: Value) -> bytes:
        # struct would cut or fill it.
        if len(value) != self.size:
            raise ValueError(f"{len(value)} octets where {self.size} belong")
        return bytes(value)

    def default(self, related: Correlation = UNRELATED) -> bytes:
        return bytes(self.size)


class Guid(FixedType):
    """A UUID (C706 appendix A, MS-DTYP 2.3.4): three integers in the stub's byte order, then eight octets."""

    is_converted = True
    _slot = Slot(4, 16, "16s")

    def __repr__(self) -> str:
        return "guid"

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    def to_wire(self, encoder: Encoder, value: UUID) -> bytes:
        return guid_to_bytes(value) if encoder.representation.byte_order == "little" else value.bytes

    def from_wire(self, decoder: Decoder, raw: bytes) -> UUID:
        return guid_from_bytes(raw) if decoder.representation.byte_order == "little" else UUID(bytes=raw)

    def default(self, related: Correlation = UNRELATED) -> UUID:
        return UUID(int=0)


class ContextHandle(FixedType):
    """A context handle (C706 appendix N, ndr_context_handle): 4 octets of attributes and a UUID.

    The value is its 20 octets as they stand in a little-endian stub; NULL_HANDLE is NULL. `kind` is the name of its type:
    with type_strict_context_handle a handle of one kind is no handle of another (MS-RPCE 3.1.1.5.3.3.1.1).
    """

    is_converted = True
    _slot = Slot(4, 20, "20s")

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __repr__(self) -> str:
        return self.kind

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    @staticmethod
    def _turned(handle: bytes) -> bytes:
        return handle[3::-1] + UUID(bytes_le=handle[4:]).bytes

    def to_wire(self, encoder: Encoder, value: bytes) -> bytes:
        if len(value) != len(NULL_HANDLE):
            raise ValueError(f"{len(value)} octets where a context handle has {len(NULL_HANDLE)}")
        return value if encoder.representation.byte_order == "little" else self._turned(value)

    def from_wire(self, decoder: Decoder, raw: bytes) -> bytes:
        # Turning is its own inverse.
        return raw if decoder.representation.byte_order == "little" else self._turned(raw)

    def default(self, related: Correlation = UNRELATED) -> bytes:
        return NULL_HANDLE


NULL_HANDLE: Final = bytes(20)

i8: Final = Integer("i8", "b")
u8: Final = Integer("u8", "B")
i16: Final = Integer("i16", "h")
u16: Final = Integer("u16", "H")
i32: Final = Integer("i32", "i")
u32: Final = Integer("u32", "I")
i64: Final = Integer("i64", "q")
u64: Final = Integer("u64", "Q")
# Characters: in an array they make a str.
char: Final = Integer("char", "B")
wchar: Final = Integer("wchar", "H")
# C706 14.2.8: 16 bits, never negative; 32 with [v1_enum] and in NDR64 (MS-RPCE 2.2.4.6, 2.2.5.2).
enum16: Final = Integer("enum", "H", "I")
enum32: Final = Integer("v1_enum", "I")
guid: Final = Guid()


class Boolean(FixedType):
    """One octet that is zero or not (C706 14.2.3)."""

    is_converted = True
    _slot = Slot(1, 1, "B")

    def __repr__(self) -> str:
        return "boolean"

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    def to_wire(self, encoder: Encoder, value: Value) -> int:
        return 1 if value else 0

    def from_wire(self, decoder: Decoder, raw: int) -> bool:
        return raw != 0

    def default(self, related: Correlation = UNRELATED) -> bool:
        return False


boolean: Final = Boolean()


class Adapted(Type):
    """Another type under a Python value that is handier than its own."""

    def __init__(self, inner: Type, to_inner: Callable[[Value], Value], from_inner: Callable[[Value], Value]) -> None:
        if inner.is_conformant:
            raise TypeError(f"{inner!r} is conformant")
        self._inner = inner
        self._to_inner = to_inner
        self._from_inner = from_inner
        self.has_referents = inner.has_referents

    def __repr__(self) -> str:
        return repr(self._inner)

    def alignment(self, rep: Representation) -> int:
        return self._inner.alignment(rep)

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        self._inner.encode(encoder, self._to_inner(value), related)

    def encode_referents(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        self._inner.encode_referents(encoder, self._to_inner(value), related)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        value = self._inner.decode(decoder, related)
        return value if self.has_referents else self._from_inner(value)

    def decode_referents(self, decoder: Decoder, partial: Value, related: Correlation = UNRELATED) -> Value:
        return self._from_inner(self._inner.decode_referents(decoder, partial, related))
