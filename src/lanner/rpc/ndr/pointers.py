# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""Pointers (C706 14.3.10 to 14.3.12; MS-RPCE 2.2.5.3.5): a referent identifier in place, what it points to deferred.

A reference pointer that is a parameter has no representation: declare the parameter as what it points to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from lanner.rpc.ndr.stream import MAX_POINTER_DEPTH, BadStub, Decoder, Encoder, Representation, Slot, Value
from lanner.rpc.ndr.types import UNRELATED, Adapted, Correlation, FixedType, Type

# In Decoder.aliases while what it points to is being read.
_UNFINISHED = object()


class Pointer(FixedType):
    """The part all three kinds share. size_is and its kin belong to the innermost thing pointed to."""

    is_converted = True
    has_referents = True

    def __init__(self, target: Type) -> None:
        super().__init__()
        self.target = target

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()} {self.target!r}"

    def slot(self, rep: Representation) -> Slot:
        return Slot(rep.word, rep.word, rep.word_code)

    def to_wire(self, encoder: Encoder, value: Value) -> int:
        return 0 if value is None else encoder.referent()

    def encode_referents(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        if value is not None:
            self.target.encode_whole(encoder, value, related)
        elif related.size and self.target.is_conformant:
            raise ValueError(f"NULL where {related.size} elements are announced")

    def decode_referents(self, decoder: Decoder, partial: int, related: Correlation = UNRELATED) -> Value:
        if partial:
            target = self.target
            if decoder.depth >= MAX_POINTER_DEPTH:
                raise BadStub(f"pointers nested deeper than {MAX_POINTER_DEPTH}")
            if not target.has_referents:
                return target.decode(decoder, related)
            decoder.depth += 1
            value = target.decode_referents(decoder, target.decode(decoder, related), related)
            decoder.depth -= 1
            return value
        # MS-RPCE 3.1.1.5.3.3.1.2: a count that is not zero needs an array.
        if related.size and self.target.is_conformant:
            raise BadStub(f"NULL where {related.size} elements are announced")
        return None

    def default(self, related: Correlation = UNRELATED) -> Value:
        return None


class Unique(Pointer):
    """A pointer that may be NULL, which is None, and has no aliases (C706 14.3.10.1)."""


class Reference(Pointer):
    """An embedded pointer that is never NULL (C706 14.3.11.1; MS-RPCE 2.2.5.3.5.1).

    In NDR its identifier may hold anything, for it says nothing; NDR64 wants it nonzero.
    """

    def to_wire(self, encoder: Encoder, value: Value) -> int:
        if value is None:
            raise ValueError("NULL in a reference pointer")
        return encoder.referent()

    def from_wire(self, decoder: Decoder, raw: int) -> int:
        if not raw and decoder.representation.is_ndr64:
            raise BadStub("NULL in a reference pointer")
        return 1

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self.target.default(related)


class Full(Pointer):
    """A pointer that may be NULL or an alias: of equal identifiers only the first is followed by its referent (C706 14.3.10.2).

    We write no aliases: each pointer gets its own identifier.
    """

    def decode_referents(self, decoder: Decoder, partial: int, related: Correlation = UNRELATED) -> Value:
        if partial in decoder.aliases:
            value = decoder.aliases[partial]
            if value is _UNFINISHED:
                raise BadStub(f"referent {partial:#x} points into itself")
            return value
        if partial:
            decoder.aliases[partial] = _UNFINISHED
        value = super().decode_referents(decoder, partial, related)
        if partial:
            decoder.aliases[partial] = value
        return value


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pointed(Generic[T]):
    """What a pointer to a pointer points to: None is a NULL there, Pointed(None) a NULL behind it."""

    value: T


def pointed(inner: Pointer) -> Adapted:
    """Declare a pointer as the target of another, so that the NULLs of the two can be told apart."""
    return Adapted(inner, lambda value: value.value, Pointed)
