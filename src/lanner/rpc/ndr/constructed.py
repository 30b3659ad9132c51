# ruff: noqa: ARG002  every type has the same methods, and not each needs every argument
"""Structures and unions (C706 14.3.6 to 14.3.8; MS-RPCE 2.2.4.5, 2.2.4.8, 2.2.5.3.4).

A structure is declared on the frozen dataclass that is its value: each field is annotated with the type of its Python value, its
type in the stub, and how it is correlated with other fields:

    @dataclass(frozen=True, slots=True)
    class Tower:
        tower_length: Annotated[int, u32]
        tower_octet_string: Annotated[bytes, Conformant(u8), Related(size_is="tower_length")]

    TOWER = Struct(Tower)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import TypeAlias, get_args, get_type_hints

from lanner.rpc.ndr.stream import REPRESENTATIONS, BadStub, Decoder, Encoder, Representation, Run, Slot, Value
from lanner.rpc.ndr.types import UNRELATED, Correlation, FixedType, Integer, Type

# The name of a field beside this one, or a constant.
Argument: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True)
class Related:
    """The attributes of a field that say what it must agree with (C706 4.2.18, 4.2.22)."""

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


class RunSegment:
    """Fixed members side by side."""

    __slots__ = ("_converted", "_first", "_run", "start", "stop")

    def __init__(self, members: Sequence[Field], start: int, run: Run) -> None:
        self.start = start
        self.stop = start + len(members)
        self._run = run
        self._first = members[0].name
        # What struct does not convert by itself.
        self._converted = [
            (index, member.name, member.type)
            for index, member in enumerate(members)
            if isinstance(member.type, FixedType) and member.type.is_converted
        ]

    def encode(self, encoder: Encoder, values: Sequence[Value]) -> None:
        if self._converted:
            values = list(values)
            for index, name, kind in self._converted:
                try:
                    values[index] = kind.to_wire(encoder, values[index])
                except ValueError as problem:
                    raise ValueError(f"{name}: {problem}") from None
        self._run.pack(encoder, values)

    def decode(self, decoder: Decoder) -> Sequence[Value]:
        try:
            raw = self._run.unpack(decoder)
        except BadStub as problem:
            raise problem.at(self._first) from None
        if not self._converted:
            return raw
        values = list(raw)
        for index, name, kind in self._converted:
            try:
                values[index] = kind.from_wire(decoder, values[index])
            except BadStub as problem:
                raise problem.at(name) from None
        return values


@dataclass(frozen=True, slots=True)
class SingleSegment:
    """A member that is no slot of a run."""

    member: Field
    index: int


def segments(
    members: Sequence[Field],
    *,
    with_referents: bool,
    opening: Type | None = None,
    closing: Type | None = None,
) -> list[RunSegment | SingleSegment]:
    """Cut members into runs and what stands between them.

    Pointers are slots of a run only where their referents are deferred. `opening` is the type whose alignment the first run begins
    with, `closing` the one whose gap NDR64 adds to the last.
    """
    made: list[RunSegment | SingleSegment] = []
    run: list[Field] = []

    def close_run(stop: int) -> None:
        if not run:
            return
        start = stop - len(run)
        slots = _slots(run, opening if start == 0 else None, closing if stop == len(members) else None)
        made.append(RunSegment(run, start, Run(slots)))
        run.clear()

    for index, member in enumerate(members):
        if isinstance(member.type, FixedType) and (with_referents or not member.type.has_referents):
            run.append(member)
        else:
            close_run(index)
            made.append(SingleSegment(member, index))
    close_run(len(members))
    return made


def _slots(
    members: Sequence[Field], opening: Type | None, closing: Type | None
) -> Callable[[Representation], list[Slot]]:
    kinds = [member.type for member in members if isinstance(member.type, FixedType)]

    def slots(rep: Representation) -> list[Slot]:
        found = [kind.slot(rep) for kind in kinds]
        if opening is not None:
            found.insert(0, Slot(opening.alignment(rep)))
        if closing is not None and rep.is_ndr64:
            found.append(Slot(closing.alignment(rep)))
        return found

    return slots


def declared_fields(cls: type) -> list[Field]:
    """Read the members of a structure from the annotations of its dataclass."""
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


class Struct(Type):
    """A structure whose value is a dataclass; if its last member is a conformant array, the count goes first (C706 14.3.7)."""

    def __init__(self, cls: type, *members: Field) -> None:
        """Declare a structure by the annotations of `cls`, or by members in the order of its fields."""
        self.cls = cls
        self.fields = list(members) or declared_fields(cls)
        names = [member.name for member in self.fields]
        self._places = [_places(member, names, cls.__name__) for member in self.fields]
        for member in self.fields[:-1]:
            if member.type.is_conformant:
                raise TypeError(f"{cls.__name__}.{member.name} is a conformant array, but not the last member")
        self.is_conformant = self.fields[-1].type.is_conformant
        self.has_referents = any(member.type.has_referents for member in self.fields)
        self._getter = attrgetter(*names) if len(names) > 1 else _only(names[0])
        self._alignments = [0] * len(REPRESENTATIONS)
        self._segments = segments(
            self.fields, with_referents=True, opening=self, closing=None if self.is_conformant else self
        )
        # Whether a run does the aligning before and after.
        self._opens_aligned = isinstance(self._segments[0], RunSegment)
        self._closes_aligned = isinstance(self._segments[-1], RunSegment) or self.is_conformant
        self._deferred = [
            # Most fields are not correlated with any other: that need not be found out each time.
            (index, member, places if isinstance(places, Correlation) else None)
            for index, (member, places) in enumerate(zip(self.fields, self._places, strict=True))
            if member.type.has_referents
        ]

    def __repr__(self) -> str:
        return self.cls.__name__

    def alignment(self, rep: Representation) -> int:
        alignment = self._alignments[rep.index]
        if not alignment:
            alignment = self._alignments[rep.index] = max(member.type.alignment(rep) for member in self.fields)
        return alignment

    def _correlation(self, index: int, values: Sequence[Value]) -> Correlation:
        places = self._places[index]
        if isinstance(places, Correlation):
            return places
        size, length, switch = places
        return Correlation(
            None if size is None else values[size],
            None if length is None else values[length],
            None if switch is None else values[switch],
        )

    def encode_conformance(self, encoder: Encoder, value: Value, related: Correlation) -> None:
        values = self._getter(value)
        self.fields[-1].type.encode_conformance(encoder, values[-1], self._correlation(-1, values))

    def decode_conformance(self, decoder: Decoder) -> int:
        return self.fields[-1].type.decode_conformance(decoder)

    def encode_body(self, encoder: Encoder, value: Value, related: Correlation) -> None:
        values = self._getter(value)
        if not self._opens_aligned:
            encoder.align(self.alignment(encoder.representation))
        for segment in self._segments:
            if isinstance(segment, RunSegment):
                segment.encode(encoder, values[segment.start : segment.stop])
            else:
                index = segment.index
                segment.member.type.encode_body(encoder, values[index], self._correlation(index, values))
        if encoder.representation.is_ndr64 and not self._closes_aligned:
            encoder.align(self.alignment(encoder.representation))

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        if self.is_conformant:
            self.encode_conformance(encoder, value, related)
        self.encode_body(encoder, value, related)

    def encode_referents(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        values = self._getter(value)
        for index, member, known in self._deferred:
            try:
                member.type.encode_referents(encoder, values[index], known or self._correlation(index, values))
            except ValueError as problem:
                raise ValueError(f"{member.name}: {problem}") from None

    def decode_body(self, decoder: Decoder, max_count: int, related: Correlation) -> Value:
        values: list[Value] = []
        if not self._opens_aligned:
            decoder.align(self.alignment(decoder.representation))
        for segment in self._segments:
            if isinstance(segment, RunSegment):
                values += segment.decode(decoder)
                continue
            member = segment.member
            try:
                value = member.type.decode_body(decoder, max_count, self._correlation(segment.index, values))
            except BadStub as problem:
                raise problem.at(member.name) from None
            values.append(value)
        if decoder.representation.is_ndr64 and not self._closes_aligned:
            decoder.align(self.alignment(decoder.representation))
        return values if self.has_referents else self.cls(*values)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        return self.decode_body(decoder, self.decode_conformance(decoder) if self.is_conformant else 0, related)

    def decode_referents(self, decoder: Decoder, partial: list[Value], related: Correlation = UNRELATED) -> Value:
        for index, member, known in self._deferred:
            try:
                partial[index] = member.type.decode_referents(
                    decoder, partial[index], known or self._correlation(index, partial)
                )
            except BadStub as problem:
                raise problem.at(member.name) from None
        return self.cls(*partial)

    def default(self, related: Correlation = UNRELATED) -> Value:
        values: list[Value] = []
        for index, member in enumerate(self.fields):
            values.append(member.type.default(self._correlation(index, values)))
        return self.cls(*values)


def _only(name: str) -> Callable[[Value], tuple[Value]]:
    return lambda value: (getattr(value, name),)


# Where the arguments of size_is, length_is and switch_is stand among the members.
_Places: TypeAlias = tuple[int | None, int | None, int | None]


def _places(member: Field, names: Sequence[str], where: str) -> Correlation | _Places:
    related = member.related
    if related is None:
        return UNRELATED
    arguments = related.size_is, related.length_is, related.switch_is
    if not any(isinstance(argument, str) for argument in arguments):
        return related.resolve({})
    found: list[int | None] = []
    for argument in arguments:
        if argument is not None and argument not in names:
            raise TypeError(f"{where}.{member.name} is correlated with {argument}, which is no member")
        found.append(None if argument is None else names.index(str(argument)))
    size, length, switch = found
    return size, length, switch


class Union(Type):
    """A tag and the arm it selects; an arm that is None is empty.

    With switch_is the tag repeats a field beside the union, and the value is that of the arm alone. Without, the union is
    encapsulated and its value a pair of tag and arm. In NDR the arm has its own alignment: this is no ms_union. In NDR64 tag and arm
    are aligned to the largest alignment of all arms (MS-RPCE 2.2.5.3.4.4).
    """

    def __init__(self, tag: Integer, arms: Mapping[int, Type | None]) -> None:
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

    def _selected(self, value: Value, related: Correlation) -> tuple[int, Type | None, Value]:
        tag, value = value if related.switch is None else (related.switch, value)
        if tag not in self.arms:
            raise ValueError(f"{tag} selects no arm of {self!r}")
        return tag, self.arms[tag], value

    def encode(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        rep = encoder.representation
        tag, arm, value = self._selected(value, related)
        if rep.is_ndr64:
            encoder.align(self.alignment(rep))
        self.tag.encode(encoder, tag)
        if rep.is_ndr64:
            encoder.align(self.alignment(rep))
        if arm is not None:
            arm.encode(encoder, value)
        elif value is not None:
            raise ValueError(f"{value!r} in the empty arm {tag} of {self!r}")

    def encode_referents(self, encoder: Encoder, value: Value, related: Correlation = UNRELATED) -> None:
        _, arm, value = self._selected(value, related)
        if arm is not None and arm.has_referents:
            arm.encode_referents(encoder, value)

    def decode(self, decoder: Decoder, related: Correlation = UNRELATED) -> Value:
        rep = decoder.representation
        if rep.is_ndr64:
            decoder.align(self.alignment(rep))
        tag = self.tag.decode(decoder)
        if related.switch is not None and tag != related.switch:
            raise BadStub(f"union tag {tag}, its correlated value {related.switch}")
        if tag not in self.arms:
            raise BadStub(f"{tag} selects no arm of the union")
        if rep.is_ndr64:
            decoder.align(self.alignment(rep))
        arm = self.arms[tag]
        value = None if arm is None else arm.decode(decoder)
        return (tag, value) if self.has_referents or related.switch is None else value

    def decode_referents(self, decoder: Decoder, partial: tuple[int, Value], related: Correlation = UNRELATED) -> Value:
        tag, value = partial
        arm = self.arms[tag]
        if arm is not None and arm.has_referents:
            value = arm.decode_referents(decoder, value)
        return (tag, value) if related.switch is None else value
