# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""The interface of types, and the types of fixed size (C706 14.2; MS-RPCE 2.2.4, 2.2.5.2).

These are integers, enumerations, UUIDs and context handles. `encode` and `decode` are the codecs of
a whole value. For the types here they are generated (`compiler`): a type emits its code into the
function of the type that contains it. It does so in two steps, because the targets of embedded
pointers come after the construction around them (C706 14.3.12.3): first the part in place, then the
deferred part. Only a type with `has_referents` has a second step.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from uuid import UUID

from lanner.rpc.ndr.compiler import Expressions, Reader, Writer, reader_of, writer_of
from lanner.rpc.ndr.stream import (
    REPRESENTATIONS,
    UNRELATED,
    Correlation,
    Decoder,
    Encoder,
    Representation,
    Slot,
    Value,
)
from lanner.wire.reader import guid_from_bytes, guid_to_bytes

# The result of one step for the next: the name of a value, or those of its parts.
Partial: TypeAlias = Any


class Type(ABC):
    """The representation of the values of one declared type in a stub."""

    # Whether a part of it is deferred.
    has_referents: bool = False
    # Whether a count of elements precedes it, and moves to the front of a structure that ends with
    # it.
    is_conformant: bool = False

    @abstractmethod
    def alignment(self, rep: Representation) -> int: ...

    @abstractmethod
    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        """Write a value with everything that it points to."""

    @abstractmethod
    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        """Read a value with everything that it points to."""

    def default(self, related: Correlation = UNRELATED) -> Value:
        """Return the value of an [out] parameter that the method does not set."""
        raise ValueError(f"{self!r} has no value of its own")

    # The parts of generated functions. A codec that is written by hand defers nothing; it is
    # called.

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        """Read the part in place.

        Return an expression, or the argument of `emit_read_referents` if something is deferred.
        """
        return reader.call(self, related, path)

    def emit_read_referents(self, reader: Reader, partial: Partial, related: Expressions, path: str) -> str:
        """Read the deferred part; return the expression of the whole value."""
        raise NotImplementedError

    def emit_open(self, writer: Writer, value: str, related: Expressions, path: str) -> Partial:
        """Split a value into the parts that both steps need."""
        return value

    def emit_write(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        """Write the part in place."""
        writer.call(self, partial, related, path)

    def emit_write_referents(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        """Write the deferred part."""
        raise NotImplementedError

    # The count before the rest. Only a conformant type has one.

    def emit_read_conformance(self, reader: Reader, path: str) -> str | None:
        return None

    def emit_read_body(self, reader: Reader, max_count: str | None, related: Expressions, path: str) -> Partial:
        return self.emit_read(reader, related, path)

    def emit_write_conformance(  # noqa: B027  other types have no count
        self, writer: Writer, partial: Partial, related: Expressions, path: str
    ) -> None:
        """Write the count."""

    def emit_write_body(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        """Write the part in place without the count."""
        self.emit_write(writer, partial, related, path)

    # Both steps.

    def emit_decode(self, reader: Reader, related: Expressions, path: str) -> str:
        partial = self.emit_read(reader, related, path)
        return self.emit_read_referents(reader, partial, related, path) if self.has_referents else str(partial)

    def emit_encode(self, writer: Writer, value: str, related: Expressions, path: str) -> None:
        partial = self.emit_open(writer, value, related, path)
        self.emit_write(writer, partial, related, path)
        if self.has_referents:
            self.emit_write_referents(writer, partial, related, path)


class GeneratedType(Type):
    """A type whose codecs are generated when they are first needed."""

    def __init__(self) -> None:
        self._readers: list[Callable[..., Value] | None] = [None] * len(REPRESENTATIONS)
        self._writers: list[Callable[..., Value] | None] = [None] * len(REPRESENTATIONS)

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        rep = encoder.representation
        writer = self._writers[rep.index]
        if writer is None:
            writer = self._writers[rep.index] = writer_of(self, rep)
        writer(encoder, value, *related)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        rep = decoder.representation
        reader = self._readers[rep.index]
        if reader is None:
            reader = self._readers[rep.index] = reader_of(self, rep)
        return reader(decoder, *related)


class FixedType(GeneratedType):
    """A type that fills one slot. `to_wire` and `from_wire` run only if `is_converted`."""

    is_converted: bool = False

    @abstractmethod
    def slot(self, rep: Representation) -> Slot: ...

    def to_wire(self, encoder: Encoder, value: Value) -> Value:
        return value

    def from_wire(self, decoder: Decoder, raw: Value) -> Value:
        return raw

    def alignment(self, rep: Representation) -> int:
        return self.slot(rep).alignment

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        return reader.slot(self, path)

    def emit_write(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        writer.slot(self, partial, path)

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        """Convert the value that struct returned."""
        reader.raw(f"try: {name} = {reader.constant(self.from_wire)}(decoder, {name})")
        reader.raw(f'except BadStub as problem: raise BadStub(f"{path}{{problem}}") from None')

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        """Return the value for struct."""
        name = writer.name()
        writer.raw(f"try: {name} = {writer.constant(self.to_wire)}(encoder, {value})")
        writer.raw(f'except ValueError as problem: raise ValueError(f"{path}{{problem}}") from None')
        return name


class Integer(FixedType):
    """An integer: struct codes for NDR and NDR64, possibly a [range] (MS-RPCE 2.2.4.14.1)."""

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
        """Return the same integer with [range(low, high)]."""
        return Integer(self._name, *self._codes, bounds=(low, high))

    def slot(self, rep: Representation) -> Slot:
        return self._slots[rep.index]

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        self._emit_check(reader, name, path)

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        self._emit_check(writer, value, path)
        return value

    def _emit_check(self, source: Reader | Writer, value: str, path: str) -> None:
        if self._bounds is not None:
            low, high = map(int, self._bounds)
            source.raw(
                f"if not {low} <= {value} <= {high}: {source.refuse(path, f'{{{value}}} is outside {low}..{high}')}"
            )

    def default(self, related: Correlation = UNRELATED) -> int:
        return 0


class Octets(FixedType):
    """An array of a fixed number of octets, such as `unsigned char rgb[16]`."""

    def __init__(self, size: int, alignment: int = 1) -> None:
        super().__init__()
        self.size = size
        self._slot = Slot(alignment, size, f"{size}s")
        self.is_converted = True

    def __repr__(self) -> str:
        return f"octets[{self.size}]"

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        """Emit nothing: struct returns the right number of octets."""

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        # struct would truncate or pad it.
        refusal = writer.refuse(path, f"{{len({value})}} octets where {self.size} belong")
        writer.raw(f"if len({value}) != {self.size}: {refusal}")
        return f"bytes({value})"

    def default(self, related: Correlation = UNRELATED) -> bytes:
        return bytes(self.size)


class Guid(FixedType):
    """A UUID (C706 appendix A, MS-DTYP 2.3.4).

    It has three integers in the stub's byte order, then eight octets.
    """

    is_converted = True
    _slot = Slot(4, 16, "16s")

    def __repr__(self) -> str:
        return "guid"

    def slot(self, rep: Representation) -> Slot:
        return self._slot

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        convert = guid_from_bytes if reader.rep.byte_order == "little" else lambda octets: UUID(bytes=octets)
        reader.raw(f"{name} = {reader.constant(convert)}({name})")

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        if writer.rep.byte_order == "little":
            return f"{writer.constant(guid_to_bytes)}({value})"
        return f"{value}.bytes"

    def default(self, related: Correlation = UNRELATED) -> UUID:
        return UUID(int=0)


class ContextHandle(FixedType):
    """A context handle (C706 appendix N, ndr_context_handle): 4 octets of attributes and a UUID.

    The value is its 20 octets in the order of a little-endian stub; NULL_HANDLE is NULL. `kind` is
    the name of its type: with type_strict_context_handle, a handle of one kind is not a handle of
    another (MS-RPCE 3.1.1.5.3.3.1.1).
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

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        # The conversion is its own inverse.
        if reader.rep.byte_order == "big":
            reader.raw(f"{name} = {reader.constant(self._turned)}({name})")

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        size = len(NULL_HANDLE)
        refusal = writer.refuse(path, f"{{len({value})}} octets where a context handle has {size}")
        writer.raw(f"if len({value}) != {size}: {refusal}")
        return value if writer.rep.byte_order == "little" else f"{writer.constant(self._turned)}({value})"

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
# Characters. An array of them is a str.
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

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        reader.raw(f"{name} = {name} != 0")

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        return f"(1 if {value} else 0)"

    def default(self, related: Correlation = UNRELATED) -> bool:
        return False


boolean: Final = Boolean()


class Adapted(GeneratedType):
    """Another type, with a Python value that is more convenient than its own."""

    def __init__(self, inner: Type, to_inner: Callable[[Value], Value], from_inner: Callable[[Value], Value]) -> None:
        super().__init__()
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

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        partial = self._inner.emit_read(reader, related, path)
        return partial if self.has_referents else self._emit_conversion(reader, partial, path)

    def emit_read_referents(self, reader: Reader, partial: Partial, related: Expressions, path: str) -> str:
        return self._emit_conversion(reader, self._inner.emit_read_referents(reader, partial, related, path), path)

    def _emit_conversion(self, reader: Reader, value: str, path: str) -> str:
        converted = reader.name()
        reader.line(f"try: {converted} = {reader.constant(self._from_inner)}({value})")
        reader.line(f'except RemoteProtocolError as problem: raise BadStub(f"{path}{{problem}}") from None')
        return converted

    def emit_open(self, writer: Writer, value: str, related: Expressions, path: str) -> Partial:
        inner = writer.load(f"{writer.constant(self._to_inner)}({value})")
        return self._inner.emit_open(writer, inner, related, path)

    def emit_write(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        self._inner.emit_write(writer, partial, related, path)

    def emit_write_referents(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        self._inner.emit_write_referents(writer, partial, related, path)
