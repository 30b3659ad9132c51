"""Codecs as source text: each declared type becomes one Python function per representation.

A type describes its octets by calls of a `Reader` or a `Writer`, once, when its codec is first
needed. Adjacent fields of fixed size become one precompiled struct with its gaps. If a position is
known modulo the alignment, aligning costs nothing at run time; otherwise (after a string, for
example) it is one addition. Names of fields are constants in the texts of errors.

Generated functions have `decoder` or `encoder` as their first argument, and keep its position in
`p`. A codec that is written by hand gets the position through its `Decoder` or `Encoder`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.ndr.stream import MAX_POINTER_DEPTH, BadStub, Correlation, Representation, Slot, Value

if TYPE_CHECKING:
    from lanner.rpc.ndr.types import FixedType, Type

# Every alignment of NDR and NDR64 divides this.
MODULUS: Final = 8
# The bytes of a gap, by size.
_GAPS: Final = tuple(bytes(size) for size in range(8))


class Expressions(NamedTuple):
    """size_is, length_is and switch_is in the generated function; None: not declared."""

    size: str | None = None
    length: str | None = None
    switch: str | None = None
    # Whether each of them can also be None at run time: in the outermost function, to which a
    # caller may pass them or not.
    is_optional: bool = False

    def correlation(self) -> str:
        if (self.size, self.length, self.switch) == (None, None, None):
            return "UNRELATED"
        return f"Correlation({self.size}, {self.length}, {self.switch})"

    def if_given(self, expression: str) -> str:
        """Return the beginning of a condition about one of them."""
        return f"{expression} is not None and " if self.is_optional else ""


UNDECLARED: Final = Expressions()
_GIVEN: Final = Expressions("size", "length", "switch", is_optional=True)


class _Source:
    """A function that grows line by line.

    `_write_run` writes code for the collected fields before any other line.
    """

    def __init__(self, rep: Representation, modulus: int) -> None:
        """Start a function. Its initial position is a multiple of `modulus`."""
        self.rep = rep
        self.lines: list[str] = []
        self.namespace: dict[str, Value] = {
            "BadStub": BadStub,
            "Correlation": Correlation,
            "RemoteProtocolError": RemoteProtocolError,
            "UNRELATED": Correlation(),
        }
        self._indent = "    "
        self._count = 0
        # The position is `_residue` modulo `_modulus`.
        self._modulus, self._residue = modulus, 0
        self._codes: list[str] = []
        self._size = 0
        self._first = ""
        # Targets of pointers that are being written into this function. A target that contains
        # itself is called instead.
        self.inlined: list[Type] = []

    # Text

    def name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    @property
    def names_so_far(self) -> int:
        return self._count

    def names_since(self, count: int) -> list[str]:
        return [f"v{number}" for number in range(count + 1, self._count + 1)]

    def insert(self, index: int, text: str) -> None:
        """Insert a line before those from an index on."""
        self.lines.insert(index, self._indent + text)

    def constant(self, value: Value) -> str:
        name = f"K{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def line(self, text: str) -> None:
        self.close_run()
        self.raw(text)

    def raw(self, text: str) -> None:
        """Add a line that does not depend on the collected fields."""
        self.lines.append(self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add lines below a head that may not run.

        Afterwards only what is true of the position in both cases is known.
        """
        self.line(head)
        before = self._modulus, self._residue
        with self.indented():
            yield
        self._agree([before, (self._modulus, self._residue)])

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._indent += "    "
        yield
        self.close_run()
        self._indent = self._indent[:-4]

    def choose(self, branches: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """Add branches of which one runs: `if`, `elif` and so on, each with its head."""
        self.close_run()
        before, after = (self._modulus, self._residue), []
        for head, emit in branches:
            self._modulus, self._residue = before
            self.raw(head)
            with self.indented():
                emit()
            after.append((self._modulus, self._residue))
        self._agree(after)

    def _agree(self, states: list[tuple[int, int]]) -> None:
        modulus = math.gcd(*(modulus for modulus, _ in states))
        while len({residue % modulus for _, residue in states}) > 1:
            modulus //= 2
        self._modulus, self._residue = modulus, states[0][1] % modulus

    def compile(self, signature: str, hint: str) -> Callable[..., Value]:
        self.close_run()
        text = f"def codec({signature}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(text, f"<{hint}, {self.rep.syntax.value} {self.rep.byte_order}>", "exec"), self.namespace)  # noqa: S102 (from our own declarations)
        codec: Callable[..., Value] = self.namespace["codec"]
        return codec

    # Position

    def align(self, alignment: int) -> None:
        if self._modulus % alignment == 0:
            gap = -self._residue % alignment
            if gap:
                self._codes.append(f"{gap}x")
                self._advance(gap)
            return
        self.close_run()
        self._align_at_run_time(alignment)
        self._modulus, self._residue = alignment, 0

    def moved(self, unit: int = 1) -> None:
        """Record that the position has advanced by a multiple of `unit`."""
        self._modulus = math.gcd(self._modulus, unit)
        self._residue %= self._modulus

    def _advance(self, size: int) -> None:
        self._size += size
        self._residue = (self._residue + size) % self._modulus

    def _add(self, slot: Slot, path: str) -> None:
        self.align(slot.alignment)
        if not self._first:
            self._first = path
        self._codes.append(slot.code)
        self._advance(slot.size)

    @property
    def _word(self) -> Slot:
        return Slot(self.rep.word, self.rep.word, self.rep.word_code)

    def _align_at_run_time(self, alignment: int) -> None:
        raise NotImplementedError

    def close_run(self) -> None:
        """Write the collected fields."""
        if not self._size:
            return
        packer = struct.Struct(self.rep.prefix + "".join(self._codes))
        first, self._codes, self._size, self._first = self._first, [], 0, ""
        self._write_run(packer, first)

    def _write_run(self, packer: struct.Struct, first: str) -> None:
        raise NotImplementedError


class Reader(_Source):
    """A function that reads `data` from `p` to `end`."""

    def __init__(self, rep: Representation, modulus: int = 1) -> None:
        super().__init__(rep, modulus)
        self._names: list[str] = []
        self._conversions: list[Callable[[], None]] = []
        # The number of pointers that lead here from the beginning of the function.
        self._depth = 0
        self.raw("data = decoder.data; end = decoder.end; p = decoder.position; depth = decoder.depth")

    def slot(self, kind: FixedType, path: str) -> str:
        """Read a field of fixed size; return the name of its value."""
        self._add(kind.slot(self.rep), path)
        name = self.name()
        self._names.append(name)
        if kind.is_converted:
            self._conversions.append(lambda: kind.emit_from_wire(self, name, path))
        return name

    def word(self, path: str) -> str:
        """Read a count; return its name."""
        self._add(self._word, path)
        name = self.name()
        self._names.append(name)
        return name

    def refuse(self, path: str, text: str) -> str:
        """Return the statement that refuses a stub. `text` is the inside of an f-string."""
        return f'raise BadStub(f"{path}{text}")'

    def take(self, size: str, path: str) -> str:
        """Read a number of octets; return the end of their slice."""
        stop = self.name()
        self.line(f"{stop} = p + {size}")
        short = self.refuse(path, f"{{{size}}} octets wanted, {{max(end - p, 0)}} left")
        self.line(f"if {stop} > end: {short}")
        return stop

    def check_count(self, what: str, found: str, expected: str | None, related: Expressions, path: str) -> None:
        if expected is not None:
            refusal = self.refuse(path, f"{what} is {{{found}}}, its correlated value {{{expected}}}")
            self.line(f"if {related.if_given(expected)}{found} != {expected}: {refusal}")

    def check_tag(self, tag: str, related: Expressions, path: str) -> None:
        """Check that a union's tag equals its correlated field."""
        if related.switch is not None:
            refusal = self.refuse(path, f"union tag {{{tag}}}, its correlated value {{{related.switch}}}")
            self.line(f"if {related.if_given(related.switch)}{tag} != {related.switch}: {refusal}")

    def expect(self, count: str, path: str) -> None:
        """Count the elements of an array that follow. Too many elements in total are refused."""
        self.line(f"decoder.elements -= {count}")
        self.line(f"if decoder.elements < 0: {self.refuse(path, '{-decoder.elements} elements too many')}")

    @contextmanager
    def pointer(self, head: str, target: Type, path: str) -> Iterator[None]:
        """Read the target of a pointer that is not NULL.

        A target with pointers of its own is one level deeper.
        """
        with self.block(head):
            refusal = self.refuse(path, f"pointers nested deeper than {MAX_POINTER_DEPTH}")
            self.line(f"if depth >= {MAX_POINTER_DEPTH - self._depth}: {refusal}")
            self._depth += target.has_referents
            yield
            self._depth -= target.has_referents

    def call(self, kind: Type, related: Expressions, path: str) -> str:
        """Call a codec that is not part of this function, to read."""
        value = self.name()
        self.line("decoder.position = p")
        if self._depth:
            self.line(f"decoder.depth = depth + {self._depth}")
        codec = self.constant(kind.decode)
        if path:
            self.line(f"try: {value} = {codec}(decoder, {related.correlation()})")
            self.line(f'except RemoteProtocolError as problem: raise BadStub(f"{path}{{problem}}") from None')
        else:
            self.line(f"{value} = {codec}(decoder, {related.correlation()})")
        if self._depth:
            self.line("decoder.depth = depth")
        self.line("p = decoder.position")
        self.moved()
        return value

    def finish(self, result: str, signature: str, hint: str) -> Callable[..., Value]:
        self.line("decoder.position = p")
        self.line(f"return {result}")
        return self.compile(signature, hint)

    def _align_at_run_time(self, alignment: int) -> None:
        self.raw(f"p = p + {alignment - 1} & -{alignment}")

    def _write_run(self, packer: struct.Struct, first: str) -> None:
        names, self._names = self._names, []
        conversions, self._conversions = self._conversions, []
        if names:
            short = self.refuse(first, f"{packer.size} octets wanted, {{max(end - p, 0)}} left")
            self.raw(f"if p + {packer.size} > end: {short}")
            if packer.format[1:] == "B":
                self.raw(f"{names[0]} = data[p]")
            else:
                self.raw(f"{', '.join(names)}, = {self.constant(packer.unpack_from)}(data, p)")
        self.raw(f"p += {packer.size}")
        for conversion in conversions:
            conversion()


class Writer(_Source):
    """A function that writes: it appends to `encoder.parts`, and counts octets in `p`."""

    def __init__(self, rep: Representation, modulus: int = 1) -> None:
        super().__init__(rep, modulus)
        self._values: list[str] = []
        self.namespace["GAPS"] = _GAPS
        self.raw("out = encoder.parts.append; p = encoder.position; referent = encoder.referent")

    def slot(self, kind: FixedType, value: str, path: str) -> None:
        """Write a field of fixed size."""
        self._add(kind.slot(self.rep), path)
        self._values.append(kind.emit_to_wire(self, value, path) if kind.is_converted else value)

    def words(self, *values: str) -> None:
        """Write counts."""
        for value in values:
            self._add(self._word, "")
            self._values.append(value)

    def refuse(self, path: str, text: str) -> str:
        return f'raise ValueError(f"{path}{text}")'

    def load(self, expression: str) -> str:
        """Assign a value to a name."""
        name = self.name()
        self.raw(f"{name} = {expression}")
        return name

    def put(self, octets: str, unit: int = 1) -> None:
        """Append octets."""
        self.line(f"out({octets}); p += len({octets})")
        self.moved(unit)

    def call(self, kind: Type, value: str, related: Expressions, path: str) -> None:
        """Call a codec that is not part of this function, to write."""
        self.line("encoder.position = p")
        call = f"{self.constant(kind.encode)}(encoder, {value}, {related.correlation()})"
        if path:
            self.line(f"try: {call}")
            self.line(f'except ValueError as problem: raise ValueError(f"{path}{{problem}}") from None')
        else:
            self.line(call)
        self.line("p = encoder.position")
        self.moved()

    def finish(self, signature: str, hint: str) -> Callable[..., Value]:
        self.line("encoder.position = p")
        return self.compile(signature, hint)

    def _align_at_run_time(self, alignment: int) -> None:
        self.raw(f"gap = -p & {alignment - 1}")
        self.raw("if gap: out(GAPS[gap]); p += gap")

    def _write_run(self, packer: struct.Struct, first: str) -> None:
        del first
        values, self._values = self._values, []
        self.raw(f"out({self.constant(packer.pack)}({', '.join(values)})); p += {packer.size}")


def reader_of(kind: Type, rep: Representation) -> Callable[..., Value]:
    """Return the compiled function that reads a type from any position."""
    reader = Reader(rep)
    value = kind.emit_decode(reader, _GIVEN, "")
    return reader.finish(value, "decoder, size, length, switch", f"read {kind!r}")


def writer_of(kind: Type, rep: Representation) -> Callable[..., Value]:
    """Return the compiled function that writes a type at any position."""
    writer = Writer(rep)
    kind.emit_encode(writer, "value", _GIVEN, "")
    return writer.finish("encoder, value, size, length, switch", f"write {kind!r}")
