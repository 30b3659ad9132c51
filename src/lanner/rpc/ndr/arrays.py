# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""Arrays and strings (C706 14.3.3 to 14.3.5; MS-RPCE 2.2.4.4, 2.2.5.3.2, 2.2.5.3.3).

The value of an array is bytes if its elements are u8, str if they are characters, else a tuple. A [string] is a str without
its terminator. No count is believed before the octets it speaks of are there.
"""

from __future__ import annotations

import struct
from typing import Final

from lanner.rpc.ndr.stream import MAX_COUNT, REPRESENTATIONS, BadStub, Decoder, Encoder, Representation, Value, words
from lanner.rpc.ndr.types import UNRELATED, Correlation, FixedType, Type, char, u8, wchar

_ONE_WORD: Final = words(1)
_TWO_WORDS: Final = words(2)
_THREE_WORDS: Final = words(3)


def _agree(what: str, found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise BadStub(f"{what} is {found}, its correlated value {expected}")


class _Elements:
    """So many values of one type side by side."""

    def __init__(self, element: Type) -> None:
        self.element = element

    def count(self, value: Value) -> int:
        return len(value)

    def encode(self, encoder: Encoder, value: Value) -> None:
        encoder.align(self.element.alignment(encoder.representation))
        for each in value:
            self.element.encode(encoder, each)

    def encode_referents(self, encoder: Encoder, value: Value) -> None:
        for each in value:
            self.element.encode_referents(encoder, each)

    def decode(self, decoder: Decoder, count: int) -> Value:
        decoder.expect(count)
        decoder.align(self.element.alignment(decoder.representation))
        # Every element has at least one octet.
        if count > decoder.remaining:
            raise BadStub(f"{count} elements wanted, {decoder.remaining} octets left")
        values = [self.element.decode(decoder) for _ in range(count)]
        return values if self.element.has_referents else tuple(values)

    def decode_referents(self, decoder: Decoder, partial: Value) -> Value:
        return tuple([self.element.decode_referents(decoder, each) for each in partial])

    def empty(self, count: int) -> Value:
        return tuple([self.element.default() for _ in range(count)])


class _FixedElements(_Elements):
    """Elements that are one slot each: no gaps between them, so all are unpacked at once."""

    element: FixedType

    def __init__(self, element: FixedType) -> None:
        super().__init__(element)
        self._slots = [element.slot(rep) for rep in REPRESENTATIONS]
        self._packers = [
            struct.Struct(rep.prefix + slot.code) for rep, slot in zip(REPRESENTATIONS, self._slots, strict=True)
        ]

    def encode(self, encoder: Encoder, value: Value) -> None:
        index = encoder.representation.index
        encoder.align(self._slots[index].alignment)
        pack, to_wire = self._packers[index].pack, self.element.to_wire
        encoder.write(b"".join([pack(to_wire(encoder, each)) for each in value]))

    def decode(self, decoder: Decoder, count: int) -> Value:
        index = decoder.representation.index
        slot = self._slots[index]
        decoder.expect(count)
        decoder.align(slot.alignment)
        raw = self._packers[index].iter_unpack(decoder.take(count * slot.size))
        if not self.element.is_converted:
            return tuple([each for (each,) in raw])
        values = [self.element.from_wire(decoder, each) for (each,) in raw]
        return values if self.element.has_referents else tuple(values)


class _Bytes(_Elements):
    def encode(self, encoder: Encoder, value: bytes) -> None:
        encoder.write(value)

    def decode(self, decoder: Decoder, count: int) -> bytes:
        return decoder.take(count)

    def empty(self, count: int) -> bytes:
        return bytes(count)


class _Characters(_Elements):
    """Characters as text: octets are Latin-1, wide ones UTF-16, whose lone surrogates pass as in every WCHAR string."""

    def __init__(self, element: Type) -> None:
        super().__init__(element)
        self._is_wide = element is wchar

    def count(self, value: str) -> int:
        return len(value.encode("utf-16-le", "surrogatepass")) // 2 if self._is_wide else len(value)

    def encode(self, encoder: Encoder, value: str) -> None:
        if self._is_wide:
            encoder.align(2)
            encoder.write(value.encode(encoder.representation.wide_encoding, "surrogatepass"))
        else:
            encoder.write(value.encode("latin-1"))

    def decode(self, decoder: Decoder, count: int) -> str:
        if not self._is_wide:
            return decoder.take(count).decode("latin-1")
        decoder.align(2)
        return decoder.take(2 * count).decode(decoder.representation.wide_encoding, "surrogatepass")

    def empty(self, count: int) -> str:
        return "\0" * count


def _elements(element: Type) -> _Elements:
    if element is u8:
        return _Bytes(element)
    if element is char or element is wchar:
        return _Characters(element)
    return _FixedElements(element) if isinstance(element, FixedType) else _Elements(element)


class _Array(Type):
    def __init__(self, element: Type) -> None:
        self.element = element
        self._elements = _elements(element)
        self.has_referents = element.has_referents

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.element!r})"

    def alignment(self, rep: Representation) -> int:
        return self.element.alignment(rep)

    def encode_referents(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        self._elements.encode_referents(encoder, value)

    def decode_referents(self, decoder: Decoder, partial: Value, related: Correlation = UNRELATED) -> Value:
        return self._elements.decode_referents(decoder, partial)


class FixedArray(_Array):
    """As many elements as the declaration says."""

    def __init__(self, element: Type, size: int) -> None:
        super().__init__(element)
        self.size = size

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        if self._elements.count(value) != self.size:
            raise ValueError(f"{self._elements.count(value)} elements where {self.size} belong")
        self._elements.encode(encoder, value)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        return self._elements.decode(decoder, self.size)

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self._elements.empty(self.size)


class Varying(_Array):
    """Up to as many elements as the declaration says: offset and actual count stand before them.

    As a [string] its value is a str and the last character a terminator.
    """

    def __init__(self, element: Type, size: int, *, is_string: bool = False) -> None:
        super().__init__(element)
        self.size = size
        self._is_string = is_string

    def alignment(self, rep: Representation) -> int:
        return max(rep.word, self.element.alignment(rep))

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        if self._is_string:
            value = _terminated(value)
        count = self._elements.count(value)
        if count > self.size or related.length not in (None, count):
            raise ValueError(f"{count} elements where {self.size if related.length is None else related.length} belong")
        _TWO_WORDS.pack(encoder, (0, count))
        self._elements.encode(encoder, value)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        offset, count = _TWO_WORDS.unpack(decoder)
        _agree("offset", offset, 0)
        _agree("actual count", count, related.length)
        if count > self.size:
            raise BadStub(f"actual count {count} of an array of {self.size}")
        value = self._elements.decode(decoder, count)
        return _unterminated(value) if self._is_string else value


class Conformant(_Array):
    """As many elements as a count before them says; size_is says the same (C706 14.3.3.2)."""

    is_conformant = True

    def encode_conformance(self, encoder: Encoder, value: Value, related: Correlation) -> None:
        _ONE_WORD.pack(encoder, (self._elements.count(value),))

    def encode_body(self, encoder: Encoder, value: Value, related: Correlation) -> None:
        if related.size is not None and self._elements.count(value) != related.size:
            raise ValueError(f"{self._elements.count(value)} elements where {related.size} are announced")
        self._elements.encode(encoder, value)

    def decode_conformance(self, decoder: Decoder) -> int:
        count: int = _ONE_WORD.unpack(decoder)[0]
        return count

    def decode_body(self, decoder: Decoder, max_count: int, related: Correlation) -> Value:
        _agree("max count", max_count, related.size)
        if max_count > MAX_COUNT:
            raise BadStub(f"max count {max_count}")
        return self._elements.decode(decoder, max_count)

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        self.encode_conformance(encoder, value, related)
        self.encode_body(encoder, value, related)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        return self.decode_body(decoder, self.decode_conformance(decoder), related)

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self._elements.empty(related.size or 0)


class ConformantVarying(Conformant):
    """Max count, offset and actual count, then so many elements; size_is and length_is say the same (C706 14.3.3.4)."""

    def alignment(self, rep: Representation) -> int:
        return max(rep.word, self.element.alignment(rep))

    def encode_conformance(self, encoder: Encoder, value: Value, related: Correlation) -> None:
        _ONE_WORD.pack(encoder, (self._elements.count(value) if related.size is None else related.size,))

    def _counts(self, value: Value, related: Correlation) -> tuple[int, int]:
        actual = self._elements.count(value)
        size = actual if related.size is None else related.size
        if actual > size or related.length not in (None, actual):
            raise ValueError(
                f"{actual} elements where {size if related.length is None else related.length} are announced"
            )
        return size, actual

    def encode_body(self, encoder: Encoder, value: Value, related: Correlation) -> None:
        _, actual = self._counts(value, related)
        _TWO_WORDS.pack(encoder, (0, actual))
        self._elements.encode(encoder, value)

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        size, actual = self._counts(value, related)
        _THREE_WORDS.pack(encoder, (size, 0, actual))
        self._elements.encode(encoder, value)

    def _elements_checked(
        self, decoder: Decoder, max_count: int, offset: int, actual: int, related: Correlation
    ) -> Value:
        # MS-RPCE 3.1.1.5.3.2.1.1, .7, .8 and .12
        if offset or actual > max_count or max_count > MAX_COUNT:
            raise BadStub(f"max count {max_count}, offset {offset}, actual count {actual}")
        if related is not UNRELATED:
            _agree("max count", max_count, related.size)
            _agree("actual count", actual, related.length)
        return self._elements.decode(decoder, actual)

    def decode_body(self, decoder: Decoder, max_count: int, related: Correlation) -> Value:
        offset, actual = _TWO_WORDS.unpack(decoder)
        return self._elements_checked(decoder, max_count, offset, actual, related)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        max_count, offset, actual = _THREE_WORDS.unpack(decoder)
        return self._elements_checked(decoder, max_count, offset, actual, related)

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self._elements.empty(related.length or 0)


class String(ConformantVarying):
    """A [string]: its value has no terminator, its octets do (C706 14.3.4.2)."""

    def _counts(self, value: str, related: Correlation) -> tuple[int, int]:
        # C706 4.2.22: size_is of a string bounds it, its terminator included.
        actual = self._elements.count(value) + 1
        size = actual if related.size is None else related.size
        if actual > size:
            raise ValueError(f"{actual} characters where {size} have room")
        return size, actual

    def encode_conformance(self, encoder: Encoder, value: str, related: Correlation) -> None:
        _ONE_WORD.pack(encoder, (self._counts(value, related)[0],))

    def encode_body(self, encoder: Encoder, value: str, related: Correlation) -> None:
        _, actual = self._counts(value, related)
        _TWO_WORDS.pack(encoder, (0, actual))
        self._elements.encode(encoder, _terminated(value))

    def encode(self, encoder: Encoder, value: str, related: Correlation = UNRELATED) -> None:
        size, actual = self._counts(value, related)
        _THREE_WORDS.pack(encoder, (size, 0, actual))
        self._elements.encode(encoder, _terminated(value))

    def _elements_checked(
        self, decoder: Decoder, max_count: int, offset: int, actual: int, related: Correlation
    ) -> str:
        return _unterminated(super()._elements_checked(decoder, max_count, offset, actual, related))

    def default(self, related: Correlation = UNRELATED) -> str:
        return ""


def _terminated(value: str) -> str:
    if "\0" in value:
        raise ValueError("a null inside a string")
    return value + "\0"


def _unterminated(value: str) -> str:
    """Take the terminator off; a string ends where its first null stands, so there is just one (C706 14.3.4)."""
    if value.find("\0") != len(value) - 1 or not value:
        raise BadStub("a string without its null, or with one inside")
    return value[:-1]


wide_string: Final = String(wchar)
narrow_string: Final = String(char)
