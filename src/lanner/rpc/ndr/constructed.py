# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""Structures and unions (C706 14.3.6 to 14.3.8; MS-RPCE 2.2.4.5, 2.2.4.8, 2.2.5.3.4).

A structure is declared on the frozen dataclass of its value: each field is annotated with the type
of its Python value, its type in the stub, and its correlation with other fields:

    @dataclass(frozen=True, slots=True)
    class Tower:
        tower_length: Annotated[int, u32]
        tower_octet_string: Annotated[bytes, Conformant(u8), Related(size_is="tower_length")]

    TOWER = Struct(Tower)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import TypeAlias, get_args, get_type_hints

from lanner.rpc.ndr.compiler import MODULUS, UNDECLARED, Expressions, Reader, Writer
from lanner.rpc.ndr.stream import (
    REPRESENTATIONS,
    UNRELATED,
    Correlation,
    Decoder,
    Encoder,
    Representation,
    Value,
)
from lanner.rpc.ndr.types import GeneratedType, Integer, Partial, Type

# The name of another field of the same structure, or a constant.
Argument: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True)
class Related:
    """The attributes of a field that correlate it with others (C706 4.2.18, 4.2.22)."""

    size_is: Argument = None
    length_is: Argument = None
    switch_is: Argument = None

    def resolve(self, values: Mapping[str, Value]) -> Correlation:
        size, length, switch = (
            values[each] if isinstance(each, str) else each for each in (self.size_is, self.length_is, self.switch_is)
        )
        return Correlation(size, length, switch)


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a structure, or a parameter of a method."""

    name: str
    type: Type
    related: Related | None = None


def declared_fields(cls: type) -> list[Field]:
    """Return the members of a structure, from the annotations of its dataclass."""
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is no dataclass")
    hints = get_type_hints(cls, include_extras=True)
    members = []
    for each in fields(cls):
        marks = get_args(hints[each.name])[1:]
        kind = next((mark for mark in marks if isinstance(mark, Type)), None)
        if kind is None:
            raise TypeError(f"{cls.__name__}.{each.name} does not say its type in a stub")
        members.append(Field(each.name, kind, next((mark for mark in marks if isinstance(mark, Related)), None)))
    return members


def _expressions(related: Related | None, names: Mapping[str, str]) -> Expressions:
    """Return the correlations of a field, with the names of the others in a generated function."""
    if related is None:
        return UNDECLARED
    size, length, switch = (
        None if each is None else names[each] if isinstance(each, str) else str(int(each))
        for each in (related.size_is, related.length_is, related.switch_is)
    )
    return Expressions(size, length, switch)


class Struct(GeneratedType):
    """A structure whose value is a dataclass.

    If its last member is a conformant array, the count comes first (C706 14.3.7).
    """

    def __init__(self, cls: type, *members: Field, check: Callable[[Value, int], None] | None = None) -> None:
        """Declare a structure by the annotations of `cls`, or by `members` in the order of fields.

        `check` is called with each value that was read, and the count of elements before it. It may
        raise BadStub.
        """
        super().__init__()
        self.cls = cls
        self.fields = list(members) or declared_fields(cls)
        self._check = check
        names = {member.name: member.name for member in self.fields}
        for member in self.fields:
            try:
                _expressions(member.related, names)
            except KeyError as error:
                text = f"{cls.__name__}.{member.name} is correlated with {error.args[0]}, which is no member"
                raise TypeError(text) from None
        for member in self.fields[:-1]:
            if member.type.is_conformant:
                raise TypeError(f"{cls.__name__}.{member.name} is a conformant array, but not the last member")
        self.is_conformant = self.fields[-1].type.is_conformant
        self.has_referents = any(member.type.has_referents for member in self.fields)

    def __repr__(self) -> str:
        return self.cls.__name__

    def alignment(self, rep: Representation) -> int:
        return max(member.type.alignment(rep) for member in self.fields)

    # Reading

    def emit_read_conformance(self, reader: Reader, path: str) -> str | None:
        last = self.fields[-1]
        return last.type.emit_read_conformance(reader, f"{path}{last.name}: ")

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        return self.emit_read_body(reader, self.emit_read_conformance(reader, path), related, path)

    def emit_read_body(self, reader: Reader, max_count: str | None, related: Expressions, path: str) -> Partial:
        reader.align(self.alignment(reader.rep))
        partials: dict[str, Partial] = {}
        for member in self.fields:
            place = f"{path}{member.name}: "
            # A pointer may precede the field with the count of its elements, which it needs only
            # later.
            expressions = _expressions(member.related, partials) if _comes_after(member, partials) else UNDECLARED
            partials[member.name] = member.type.emit_read_body(reader, max_count, expressions, place)
        if reader.rep.is_ndr64 and not self.is_conformant:
            reader.align(self.alignment(reader.rep))
        return (partials, max_count) if self.has_referents else self._emit_value(reader, partials, max_count)

    def emit_read_referents(self, reader: Reader, partial: Partial, related: Expressions, path: str) -> str:
        partials, max_count = partial
        partials = dict(partials)
        for member in self.fields:
            if member.type.has_referents:
                partials[member.name] = member.type.emit_read_referents(
                    reader, partials[member.name], _expressions(member.related, partials), f"{path}{member.name}: "
                )
        return self._emit_value(reader, partials, max_count)

    def _emit_value(self, reader: Reader, partials: Mapping[str, Partial], max_count: str | None) -> str:
        value = reader.name()
        reader.line(f"{value} = {reader.constant(self.cls)}({', '.join(partials.values())})")
        if self._check is not None:
            reader.line(f"{reader.constant(self._check)}({value}, {max_count})")
        return value

    # Writing

    def emit_open(self, writer: Writer, value: str, related: Expressions, path: str) -> Partial:
        names = {member.name: writer.load(f"{value}.{member.name}") for member in self.fields}
        return {
            member.name: (
                expressions := _expressions(member.related, names),
                member.type.emit_open(writer, names[member.name], expressions, f"{path}{member.name}: "),
            )
            for member in self.fields
        }

    def emit_write_conformance(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        last = self.fields[-1]
        expressions, inner = partial[last.name]
        last.type.emit_write_conformance(writer, inner, expressions, f"{path}{last.name}: ")

    def emit_write(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        if self.is_conformant:
            self.emit_write_conformance(writer, partial, related, path)
        self.emit_write_body(writer, partial, related, path)

    def emit_write_body(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        writer.align(self.alignment(writer.rep))
        for member in self.fields:
            expressions, inner = partial[member.name]
            member.type.emit_write_body(writer, inner, expressions, f"{path}{member.name}: ")
        if writer.rep.is_ndr64 and not self.is_conformant:
            writer.align(self.alignment(writer.rep))

    def emit_write_referents(self, writer: Writer, partial: Partial, related: Expressions, path: str) -> None:
        for member in self.fields:
            if member.type.has_referents:
                expressions, inner = partial[member.name]
                member.type.emit_write_referents(writer, inner, expressions, f"{path}{member.name}: ")

    def default(self, related: Correlation = UNRELATED) -> Value:
        values: dict[str, Value] = {}
        for member in self.fields:
            known = UNRELATED if member.related is None else member.related.resolve(values)
            values[member.name] = member.type.default(known)
        return self.cls(*values.values())


def _comes_after(member: Field, others: Container[str]) -> bool:
    """Return whether a member comes after everything that it is correlated with."""
    related = member.related
    arguments = () if related is None else (related.size_is, related.length_is, related.switch_is)
    return all(not isinstance(each, str) or each in others for each in arguments)


class Union(GeneratedType):
    """A tag and the arm that it selects. An arm that is None is empty.

    With switch_is the tag repeats another field of the structure, and the value is that of the arm
    alone. Without it, the union is encapsulated and its value is a pair of tag and arm. In NDR the
    arm has its own alignment, because this is not an ms_union. In NDR64 tag and arm are aligned to
    the largest alignment of all arms (MS-RPCE 2.2.5.3.4.4).
    """

    def __init__(self, tag: Integer, arms: Mapping[int, Type | None]) -> None:
        super().__init__()
        self.tag = tag
        self.arms = dict(arms)
        self.has_referents = any(arm is not None and arm.has_referents for arm in self.arms.values())
        if any(arm is not None and arm.is_conformant for arm in self.arms.values()):
            raise TypeError("an arm of a union is not conformant (C706 14.3.8)")
        self._alignments: list[int] = []

    def __repr__(self) -> str:
        return f"union {self.tag!r}"

    def alignment(self, rep: Representation) -> int:
        if not self._alignments:
            self._alignments = [
                max([self.tag.alignment(each), *(arm.alignment(each) for arm in self.arms.values() if arm is not None)])
                for each in REPRESENTATIONS
            ]
        return self._alignments[rep.index]

    # Reading

    def emit_read(self, reader: Reader, related: Expressions, path: str) -> Partial:
        if reader.rep.is_ndr64:
            reader.align(self.alignment(reader.rep))
        tag, value = reader.slot(self.tag, path), reader.name()
        reader.close_run()
        reader.check_tag(tag, related, path)
        partials: dict[int, Partial] = {}

        def read(number: int, arm: Type | None) -> None:
            # The gap comes after the tag: a tag that selects no arm is refused first.
            if reader.rep.is_ndr64:
                reader.align(self.alignment(reader.rep))
            found = "None" if arm is None else arm.emit_read(reader, UNDECLARED, path)
            if arm is not None and arm.has_referents:
                partials[number] = found
                reader.line("pass")
            else:
                reader.line(f"{value} = {found}")

        branches = [
            (f"{'elif' if index else 'if'} {tag} == {int(number)}:", partial(read, number, arm))
            for index, (number, arm) in enumerate(self.arms.items())
        ]
        refusal = reader.refuse(path, f"{{{tag}}} selects no arm of the union")
        reader.choose(branches)
        reader.line(f"else: {refusal}")
        return (tag, value, partials) if self.has_referents else _emit_pair(tag, value, related)

    def emit_read_referents(self, reader: Reader, partial: Partial, related: Expressions, path: str) -> str:
        tag, value, partials = partial

        def read(number: int, inner: Partial) -> None:
            arm = self.arms[number]
            if arm is not None:
                reader.line(f"{value} = {arm.emit_read_referents(reader, inner, UNDECLARED, path)}")

        for number, inner in partials.items():
            with reader.block(f"if {tag} == {int(number)}:"):
                read(number, inner)
        return _emit_pair(tag, value, related)

    # Writing

    def emit_open(self, writer: Writer, value: str, related: Expressions, path: str) -> Partial:
        switch = related.switch
        if switch is None:
            tag, inner = writer.load(f"{value}[0]"), writer.load(f"{value}[1]")
        elif related.is_optional:
            tag = writer.load(f"{value}[0] if {switch} is None else {switch}")
            inner = writer.load(f"{value}[1] if {switch} is None else {value}")
        else:
            tag, inner = switch, value
        return tag, inner

    def emit_write(self, writer: Writer, partial_: Partial, related: Expressions, path: str) -> None:
        tag, value = partial_
        if writer.rep.is_ndr64:
            writer.align(self.alignment(writer.rep))
        refusal = writer.refuse(path, f"{{{tag}}} selects no arm of {self!r}")
        writer.raw(f"if {tag} not in {writer.constant(self.arms)}: {refusal}")
        writer.slot(self.tag, tag, path)
        if writer.rep.is_ndr64:
            writer.align(self.alignment(writer.rep))

        def write(number: int, arm: Type | None) -> None:
            if arm is None:
                refusal = writer.refuse(path, f"{{{value}!r}} in the empty arm {int(number)} of {self!r}")
                writer.line(f"if {value} is not None: {refusal}")
            else:
                arm.emit_write(writer, arm.emit_open(writer, value, UNDECLARED, path), UNDECLARED, path)

        writer.choose(
            [
                (f"{'elif' if index else 'if'} {tag} == {int(number)}:", partial(write, number, arm))
                for index, (number, arm) in enumerate(self.arms.items())
            ]
        )

    def emit_write_referents(self, writer: Writer, partial_: Partial, related: Expressions, path: str) -> None:
        tag, value = partial_
        for number, arm in self.arms.items():
            if arm is not None and arm.has_referents:
                with writer.block(f"if {tag} == {int(number)}:"):
                    inner = arm.emit_open(writer, value, UNDECLARED, path)
                    arm.emit_write_referents(writer, inner, UNDECLARED, path)


def _emit_pair(tag: str, value: str, related: Expressions) -> str:
    """Return the value of a union: a pair if there is no switch_is."""
    if related.switch is None:
        return f"({tag}, {value})"
    return f"(({tag}, {value}) if {related.switch} is None else {value})" if related.is_optional else value


class Parameters:
    """The parameters of one direction, each followed by its own referents (C706 14.4).

    Their codecs are generated when they are first needed.
    """

    def __init__(self, members: Sequence[Field], hint: str, *, modulus: int = MODULUS) -> None:
        """Declare parameters. `modulus`: the position where they begin is a multiple of it."""
        self.members = tuple(members)
        self.names = [member.name for member in members]
        self._hint = hint
        self._modulus = modulus
        self._readers: list[Callable[..., Value] | None] = [None] * len(REPRESENTATIONS)
        self._writers: list[Callable[..., Value] | None] = [None] * len(REPRESENTATIONS)

    def encode(self, encoder: Encoder, values: Mapping[str, Value]) -> None:
        """Write parameters. `values` also has the values that they are correlated with."""
        rep = encoder.representation
        writer = self._writers[rep.index]
        if writer is None:
            writer = self._writers[rep.index] = self._writer(rep)
        writer(encoder, values)

    def decode(self, decoder: Decoder, known: Mapping[str, Value]) -> dict[str, Value]:
        """Read parameters. `known` has those of the other direction."""
        rep = decoder.representation
        reader = self._readers[rep.index]
        if reader is None:
            reader = self._readers[rep.index] = self._reader(rep)
        values: dict[str, Value] = reader(decoder, known)
        return values

    def _writer(self, rep: Representation) -> Callable[..., Value]:
        writer = Writer(rep, self._modulus)
        names = _Known("values")
        for member in self.members:
            names[member.name] = writer.load(f"values[{member.name!r}]")
        for member in self.members:
            place = f"{member.name}: "
            member.type.emit_encode(writer, names[member.name], _expressions(member.related, names), place)
        return writer.finish("encoder, values", f"write {self._hint}")

    def _reader(self, rep: Representation) -> Callable[..., Value]:
        reader = Reader(rep, self._modulus)
        names = _Known("known")
        for member in self.members:
            expressions = _expressions(member.related, names)
            names[member.name] = member.type.emit_decode(reader, expressions, f"{member.name}: ")
        result = ", ".join(f"{name!r}: {value}" for name, value in names.items())
        return reader.finish(f"{{{result}}}", "decoder, known", f"read {self._hint}")


class _Known(dict[str, str]):
    """The names of parameters in a generated function. Others are looked up in a mapping."""

    def __init__(self, mapping: str) -> None:
        super().__init__()
        self._mapping = mapping

    def __missing__(self, name: str) -> str:
        return f"{self._mapping}[{name!r}]"
