# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""Pointers (C706 14.3.10 to 14.3.12; MS-RPCE 2.2.5.3.5): an identifier in place, a deferred target.

A reference pointer that is a parameter has no representation: declare the parameter as its target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from lanner.rpc.ndr.compiler import Expressions, Reader, Writer
from lanner.rpc.ndr.stream import UNRELATED, Correlation, Representation, Slot, Value
from lanner.rpc.ndr.types import Adapted, FixedType, Partial, Type

# In Decoder.aliases while the target is being read.
_UNFINISHED = object()


class Pointer(FixedType):
    """The base of all three kinds. size_is and its kin belong to the innermost target."""

    is_converted = True
    has_referents = True

    def __init__(self, target: Type) -> None:
        super().__init__()
        self.target = target

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()} {self.target!r}"

    def slot(self, rep: Representation) -> Slot:
        return Slot(rep.word, rep.word, rep.word_code)

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        """Emit nothing: only whether the identifier is zero matters."""

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        return f"(0 if {value} is None else referent())"

    def emit_write_referents(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        with writer.block(f"if {partial} is not None:"):
            self.emit_write_target(writer, partial, related, path)
        if related.size is not None and self.target.is_conformant:
            refusal = writer.refuse(path, f"NULL where {{{related.size}}} elements are announced")
            writer.line(f"elif {related.size}: {refusal}")

    def emit_write_target(self, writer: Writer, value: str, related: Expressions, path: str) -> None:
        """Write the target."""
        if self.target in writer.inlined:
            writer.call(self.target, value, related, path)
            return
        writer.inlined.append(self.target)
        self.target.emit_encode(writer, value, related, path)
        writer.inlined.pop()

    def emit_read_referents(self, reader: Reader, partial: Partial, related: Expressions, path: str) -> str:
        value = reader.name()
        with reader.pointer(f"if {partial}:", self.target, path):
            if self.target in reader.inlined:
                # It contains itself, so its depth depends on the stub.
                reader.line(f"{value} = {reader.call(self.target, related, path)}")
            else:
                reader.inlined.append(self.target)
                reader.line(f"{value} = {self.target.emit_decode(reader, related, path)}")
                reader.inlined.pop()
        with reader.block("else:"):
            self.emit_read_null(reader, value, related, path)
        return value

    def emit_read_null(self, reader: Reader, value: str, related: Expressions, path: str) -> None:
        """Read the value of a NULL pointer."""
        # MS-RPCE 3.1.1.5.3.3.1.2: a count that is not zero needs an array.
        if related.size is not None and self.target.is_conformant:
            refusal = reader.refuse(path, f"NULL where {{{related.size}}} elements are announced")
            reader.line(f"if {related.size}: {refusal}")
        reader.line(f"{value} = None")

    def default(self, related: Correlation = UNRELATED) -> Value:
        return None


class Unique(Pointer):
    """A pointer that may be NULL, which is None, and has no aliases (C706 14.3.10.1)."""


class Reference(Pointer):
    """An embedded pointer that is never NULL (C706 14.3.11.1; MS-RPCE 2.2.5.3.5.1).

    In NDR its identifier has no meaning and may have any value; in NDR64 it must not be zero.
    """

    def emit_to_wire(self, writer: Writer, value: str, path: str) -> str:
        writer.raw(f"if {value} is None: {writer.refuse(path, 'NULL in a reference pointer')}")
        return "referent()"

    def emit_from_wire(self, reader: Reader, name: str, path: str) -> None:
        if reader.rep.is_ndr64:
            reader.raw(f"if not {name}: {reader.refuse(path, 'NULL in a reference pointer')}")
        reader.raw(f"{name} = 1")

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self.target.default(related)


class Full(Pointer):
    """A pointer that may be NULL or an alias (C706 14.3.10.2).

    Of equal identifiers only the first is followed by its referent. Writers here make no aliases:
    each pointer gets its own identifier.
    """

    def emit_read_referents(self, reader: Reader, partial: Partial, related: Expressions, path: str) -> str:
        value, unfinished = reader.name(), reader.constant(_UNFINISHED)
        with reader.block(f"if {partial} in decoder.aliases:"):
            reader.line(f"{value} = decoder.aliases[{partial}]")
            refusal = reader.refuse(path, f"referent {{{partial}:#x}} points into itself")
            reader.line(f"if {value} is {unfinished}: {refusal}")
        with reader.block("else:"):
            reader.line(f"if {partial}: decoder.aliases[{partial}] = {unfinished}")
            reader.line(f"{value} = {super().emit_read_referents(reader, partial, related, path)}")
            reader.line(f"if {partial}: decoder.aliases[{partial}] = {value}")
        return value


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pointed(Generic[T]):
    """The target of a pointer to a pointer.

    None is a NULL of the outer pointer, Pointed(None) a NULL of the inner one.
    """

    value: T


def pointed(inner: Pointer) -> Adapted:
    """Declare a pointer as the target of another, with distinct values for the NULLs of both."""
    return Adapted(inner, lambda value: value.value, Pointed)
