# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""Arrays and strings (C706 14.3.3 to 14.3.5; MS-RPCE 2.2.4.4, 2.2.5.3.2, 2.2.5.3.3).

The value of an array is bytes if its elements are u8, str if they are characters, else a tuple. A
[string] is a str without its terminator. A count is not trusted before the octets that it announces
are there.
"""

from __future__ import annotations

import codecs
import struct
from typing import Final

from lanner.rpc.ndr.compiler import UNDECLARED, Expressions, Reader, Writer
from lanner.rpc.ndr.stream import MAX_COUNT, UNRELATED, Correlation, Representation, Value
from lanner.rpc.ndr.types import FixedType, GeneratedType, Partial, Type, char, u8, wchar

# These take one call. str and bytes would look up the codec by name.
_WIDE_DECODERS: Final = {"little": codecs.utf_16_le_decode, "big": codecs.utf_16_be_decode}
_WIDE_ENCODERS: Final = {"little": codecs.utf_16_le_encode, "big": codecs.utf_16_be_encode}


class _Elements:
    """Consecutive values of one type."""

    def __init__(self, element: Type) -> None:
        self.element = element

    def emit_load(self, writer: Writer, value: str) -> str:
        """Name the elements in the form that `emit_write` needs."""
        return value

    def emit_count(self, writer: Writer, elements: str) -> str:
        return writer.load(f"len({elements})")

    def emit_write(self, writer: Writer, elements: str, path: str) -> None:
        writer.align(self.element.alignment(writer.rep))
        with self._each(writer, elements) as each:
            self.element.emit_write(writer, self.element.emit_open(writer, each, UNDECLARED, path), UNDECLARED, path)

    def emit_write_referents(self, writer: Writer, elements: str, path: str) -> None:
        with self._each(writer, elements) as each:
            partial = self.element.emit_open(writer, each, UNDECLARED, path)
            self.element.emit_write_referents(writer, partial, UNDECLARED, path)

    @staticmethod
    def _each(source: Reader | Writer, elements: str) -> _Loop:
        return _Loop(source, elements)

    def emit_read(self, reader: Reader, count: str, path: str) -> Partial:
        reader.expect(count, path)
        reader.align(self.element.alignment(reader.rep))
        # Every element has at least one octet.
        refusal = reader.refuse(path, f"{{{count}}} elements wanted, {{max(end - p, 0)}} octets left")
        reader.line(f"if {count} > max(end - p, 0): {refusal}")
        values = reader.name()
        reader.line(f"{values} = []")
        first = len(reader.lines)
        with _Loop(reader, f"range({count})"):
            before = reader.names_so_far
            partial = self.element.emit_read(reader, UNDECLARED, path)
            reader.close_run()
            kept = reader.names_since(before) if self.element.has_referents else []
            reader.line(f"{values}.append({_tuple(kept) if kept else partial})")
        if not self.element.has_referents:
            reader.line(f"{values} = tuple({values})")
            return values
        # Not every branch has set each of them.
        reader.insert(first, f"{' = '.join(kept)} = None")
        return values, kept, partial

    def emit_read_referents(self, reader: Reader, partial: Partial, path: str) -> str:
        values, kept, inner = partial
        index = reader.name()
        with _Loop(reader, f"range(len({values}))", index):
            reader.line(f"{_tuple(kept)} = {values}[{index}]")
            value = self.element.emit_read_referents(reader, inner, UNDECLARED, path)
            reader.line(f"{values}[{index}] = {value}")
        reader.line(f"{values} = tuple({values})")
        return str(values)

    def empty(self, count: int) -> Value:
        return tuple([self.element.default() for _ in range(count)])


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)},)"


class _Loop:
    """A loop. Its position is unknown at the beginning of each iteration, and at the end."""

    def __init__(self, source: Reader | Writer, values: str, name: str | None = None) -> None:
        self._source = source
        self._name = name or source.name()
        self._block = source.block(f"for {self._name} in {values}:")

    def __enter__(self) -> str:
        self._block.__enter__()
        self._source.moved()
        return self._name

    def __exit__(self, *error: object) -> None:
        self._source.close_run()
        self._source.moved()
        self._block.__exit__(None, None, None)


class _FixedElements(_Elements):
    """Elements of one slot each, without conversion or gaps: all are unpacked at once."""

    element: FixedType

    def emit_write(self, writer: Writer, elements: str, path: str) -> None:
        slot = self.element.slot(writer.rep)
        pack = writer.constant(struct.Struct(writer.rep.prefix + slot.code).pack)
        writer.align(slot.alignment)
        octets = writer.name()
        writer.line(f'{octets} = b"".join([{pack}(each) for each in {elements}])')
        writer.put(octets, slot.size)

    def emit_read(self, reader: Reader, count: str, path: str) -> Partial:
        slot = self.element.slot(reader.rep)
        unpack = reader.constant(struct.Struct(reader.rep.prefix + slot.code).iter_unpack)
        reader.expect(count, path)
        reader.align(slot.alignment)
        stop = reader.take(f"{count} * {slot.size}", path)
        values = reader.name()
        reader.line(f"{values} = tuple([each for (each,) in {unpack}(data[p:{stop}])]); p = {stop}")
        reader.moved(slot.size)
        return values


class _Bytes(_Elements):
    def emit_write(self, writer: Writer, elements: str, path: str) -> None:
        writer.put(elements)

    def emit_read(self, reader: Reader, count: str, path: str) -> Partial:
        stop, value = reader.take(count, path), reader.name()
        reader.line(f"{value} = bytes(data[p:{stop}]); p = {stop}")
        reader.moved()
        return value

    def empty(self, count: int) -> bytes:
        return bytes(count)


class _Characters(_Elements):
    """Characters as text: octets are Latin-1, wide ones UTF-16.

    Lone surrogates pass, as in every WCHAR string.
    """

    def __init__(self, element: Type) -> None:
        super().__init__(element)
        self._is_wide = element is wchar

    def emit_load(self, writer: Writer, value: str) -> str:
        if not self._is_wide:
            return writer.load(f'{value}.encode("latin-1")')
        encode = writer.constant(_WIDE_ENCODERS[writer.rep.byte_order])
        return writer.load(f'{encode}({value}, "surrogatepass")[0]')

    def emit_count(self, writer: Writer, elements: str) -> str:
        return writer.load(f"len({elements}) // 2" if self._is_wide else f"len({elements})")

    def emit_write(self, writer: Writer, elements: str, path: str) -> None:
        if self._is_wide:
            writer.align(2)
        writer.put(elements, 2 if self._is_wide else 1)

    def emit_read(self, reader: Reader, count: str, path: str) -> Partial:
        value = reader.name()
        if not self._is_wide:
            stop = reader.take(count, path)
            reader.line(f'{value} = str(data[p:{stop}], "latin-1"); p = {stop}')
            reader.moved()
            return value
        reader.align(2)
        stop = reader.take(f"2 * {count}", path)
        decode = reader.constant(_WIDE_DECODERS[reader.rep.byte_order])
        reader.line(f'{value} = {decode}(data[p:{stop}], "surrogatepass", True)[0]; p = {stop}')
        reader.moved(2)
        return value

    def empty(self, count: int) -> str:
        return "\0" * count


def _elements(element: Type) -> _Elements:
    if element is u8:
        return _Bytes(element)
    if element is char or element is wchar:
        return _Characters(element)
    is_plain = isinstance(element, FixedType) and not element.is_converted
    return _FixedElements(element) if is_plain else _Elements(element)


class _Array(GeneratedType):
    is_string = False

    def __init__(self, element: Type) -> None:
        super().__init__()
        self.element = element
        self._elements = _elements(element)
        self.has_referents = element.has_referents

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.element!r})"

    def alignment(self, rep: Representation) -> int:
        return self.element.alignment(rep)

    def emit_open(self, writer: Writer, value: str, related: Expressions, path: str) -> Partial:
        """Return the elements and their number."""
        if self.is_string:
            value = writer.load(f"{writer.constant(_terminated)}({value})")
        elements = self._elements.emit_load(writer, value)
        return elements, self._elements.emit_count(writer, elements)

    def emit_write_referents(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        self._elements.emit_write_referents(writer, partial[0], path)

    def emit_read_referents(self, reader: Reader, partial: Partial, related: Expressions, path: str) -> str:
        return self._elements.emit_read_referents(reader, partial, path)

    def _emit_elements(self, reader: Reader, count: str, path: str) -> Partial:
        value = self._elements.emit_read(reader, count, path)
        if self.is_string:
            # A string ends at its first null, so there is exactly one (C706 14.3.4).
            refusal = reader.refuse(path, "a string without its null, or with one inside")
            reader.line(f'if not {value} or {value}.find("\\0") != len({value}) - 1: {refusal}')
            reader.line(f"{value} = {value}[:-1]")
        return value


class FixedArray(_Array):
    """An array with the declared number of elements."""

    def __init__(self, element: Type, size: int) -> None:
        super().__init__(element)
        self.size = size

    def emit_write(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        elements, count = partial
        refusal = writer.refuse(path, f"{{{count}}} elements where {self.size} belong")
        writer.line(f"if {count} != {self.size}: {refusal}")
        self._elements.emit_write(writer, elements, path)

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        return self._emit_elements(reader, str(self.size), path)

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self._elements.empty(self.size)


class Varying(_Array):
    """Up to the declared number of elements, after an offset and an actual count.

    As a [string] its value is a str, and the last character a terminator.
    """

    def __init__(self, element: Type, size: int, *, is_string: bool = False) -> None:
        super().__init__(element)
        self.size = size
        self.is_string = is_string

    def alignment(self, rep: Representation) -> int:
        return max(rep.word, self.element.alignment(rep))

    def emit_write(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        elements, count = partial
        refusal = writer.refuse(path, f"{{{count}}} elements where {self.size} belong")
        writer.line(f"if {count} > {self.size}: {refusal}")
        _emit_agree(writer, count, related.length, related, path, "belong")
        writer.words("0", count)
        self._elements.emit_write(writer, elements, path)

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        offset, count = reader.word(path), reader.word(path)
        reader.line(f"if {offset}: {reader.refuse(path, f'offset is {{{offset}}}, its correlated value 0')}")
        reader.check_count("actual count", count, related.length, related, path)
        refusal = reader.refuse(path, f"actual count {{{count}}} of an array of {self.size}")
        reader.line(f"if {count} > {self.size}: {refusal}")
        return self._emit_elements(reader, count, path)


def _emit_agree(
    writer: Writer, count: str, expected: str | None, related: Expressions, path: str, verb: str = "are announced"
) -> None:
    if expected is not None:
        refusal = writer.refuse(path, f"{{{count}}} elements where {{{expected}}} {verb}")
        writer.line(f"if {related.if_given(expected)}{count} != {expected}: {refusal}")


class Conformant(_Array):
    """An array after a count of its elements, which size_is repeats (C706 14.3.3.2)."""

    is_conformant = True

    def emit_write_conformance(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        writer.words(partial[1])

    def emit_write_body(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        elements, count = partial
        _emit_agree(writer, count, related.size, related, path)
        self._elements.emit_write(writer, elements, path)

    def emit_read_conformance(self, reader: Reader, path: str) -> str:
        return reader.word(path)

    def emit_read_body(self, reader: Reader, max_count: str | None, related: Expressions, path: str) -> Partial:
        count = str(max_count)
        reader.check_count("max count", count, related.size, related, path)
        reader.line(f"if {count} > {MAX_COUNT}: {reader.refuse(path, f'max count {{{count}}}')}")
        return self._emit_elements(reader, count, path)

    def emit_write(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        self.emit_write_conformance(writer, partial, related, path)
        self.emit_write_body(writer, partial, related, path)

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        return self.emit_read_body(reader, self.emit_read_conformance(reader, path), related, path)

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self._elements.empty(related.size or 0)


class ConformantVarying(Conformant):
    """An array after max count, offset and actual count (C706 14.3.3.4).

    size_is and length_is repeat the counts.
    """

    def alignment(self, rep: Representation) -> int:
        return max(rep.word, self.element.alignment(rep))

    def emit_write_conformance(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        writer.words(self._emit_size(writer, partial[1], related, path))

    def _emit_size(self, writer: Writer, count: str, related: Expressions, path: str) -> str:
        """Check the counts; return the number of elements that have room."""
        size = related.size
        if size is None:
            size = count
        else:
            if related.is_optional:
                size = writer.load(f"{count} if {size} is None else {size}")
            what = "characters where {} have room" if self.is_string else "elements where {} are announced"
            writer.raw(f"if {count} > {size}: {writer.refuse(path, f'{{{count}}} ' + what.format(f'{{{size}}}'))}")
        if not self.is_string and related.length is not None:
            refusal = writer.refuse(path, f"{{{count}}} elements where {{{related.length}}} are announced")
            writer.raw(f"if {related.if_given(related.length)}{count} != {related.length}: {refusal}")
        return size

    def emit_write_body(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        elements, count = partial
        writer.words("0", count)
        self._elements.emit_write(writer, elements, path)

    def emit_read_body(self, reader: Reader, max_count: str | None, related: Expressions, path: str) -> Partial:
        count, offset, actual = str(max_count), reader.word(path), reader.word(path)
        # MS-RPCE 3.1.1.5.3.2.1.1, .7, .8 and .12
        refusal = reader.refuse(path, f"max count {{{count}}}, offset {{{offset}}}, actual count {{{actual}}}")
        reader.line(f"if {offset} or {actual} > {count} or {count} > {MAX_COUNT}: {refusal}")
        reader.check_count("max count", count, related.size, related, path)
        reader.check_count("actual count", actual, related.length, related, path)
        return self._emit_elements(reader, actual, path)

    def default(self, related: Correlation = UNRELATED) -> Value:
        return self._elements.empty(related.length or 0)


class String(ConformantVarying):
    """A [string]: its value has no terminator, its octets have one (C706 14.3.4.2).

    size_is limits it, with the terminator (4.2.22).
    """

    is_string = True

    def default(self, related: Correlation = UNRELATED) -> str:
        return ""


def _terminated(value: str) -> str:
    if "\0" in value:
        raise ValueError("a null inside a string")
    return value + "\0"


wide_string: Final = String(wchar)
narrow_string: Final = String(char)
