"""The same calls, marshalled by impacket's NDR engine: the same octets, gaps aside.

The declarations are translated, the marshalling is impacket's: alignment, conformance, and the
order of what pointers point to. It judges most of all what scapy cannot write: arrays of
PROPVARIANT, and pointers to pointers to arrays.
"""

from __future__ import annotations

import functools
import importlib
import random
from typing import Any, TypeAlias

import pytest

from lanner.rpc.interface import RETURNS, Parameter
from lanner.rpc.ndr import ContextHandle, Encoder, Octets, Struct, Syntax, Type, Union, Value, representation
from lanner.rpc.ndr.arrays import Conformant, ConformantVarying, String
from lanner.rpc.ndr.pointers import Pointer
from lanner.rpc.ndr.stream import UNRELATED, Correlation
from lanner.rpc.ndr.types import Adapted, Guid, Integer
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import ObjectFormat
from tests.services.calls import CALLS, PRIVATE, VARIANTS, Call

# Impacket has no types.
Peer: TypeAlias = Any
ndr: Peer = importlib.import_module("impacket.dcerpc.v5.ndr")

INTEGERS = {
    "b": ndr.NDRSMALL,
    "B": ndr.NDRUSMALL,
    "h": ndr.NDRSHORT,
    "H": ndr.NDRUSHORT,
    "i": ndr.NDRLONG,
    "I": ndr.NDRULONG,
    "q": ndr.NDRHYPER,
    "Q": ndr.NDRUHYPER,
}
# What it fills gaps with.
FILLERS = frozenset(b"\xaa\xab\xba\xbb\xbc\xbd\xbe\xbf\xca\xcb\xcc\xcd\xce\xdd\xee\xef")


def make(name: str, base: Peer, **members: Value) -> Peer:
    return type(name, (base,), members)


@functools.cache
def octets_class(size: int, alignment: int) -> Peer:
    return make("OCTETS", ndr.NDRSTRUCT, structure=(("Data", f'{size}s=b""'),), getAlignment=lambda _: alignment)


NOTHING = make("NOTHING", ndr.NDR, align=1, structure=())
_unions: dict[int, Peer] = {}


def peer_class(kind: Type) -> Peer:
    """Declare a type in the words of the peer."""
    match kind:
        case Adapted():
            return peer_class(kind._inner)
        case Guid():
            return octets_class(16, 4)
        case ContextHandle():
            return octets_class(20, 4)
        case Octets():
            return octets_class(kind.size, 1)
        case Integer():
            return INTEGERS[kind._codes[0]]
        case Pointer():
            return make("POINTER", ndr.NDRPOINTER, referent=(("Data", peer_class(kind.target)),))
        case ConformantVarying():
            return make("VARYING", ndr.NDRUniConformantVaryingArray, item=item(kind))
        case Conformant():
            return make("ARRAY", ndr.NDRUniConformantArray, item=item(kind))
        case Struct():
            structure = tuple((field.name, peer_class(field.type)) for field in kind.fields)
            members: dict[str, Value] = {}
            if any(isinstance(field.type, Union) for field in kind.fields):
                # It leaves the arms of a union out, and says of itself that this is against the
                # rules (C706 14.3.2).
                alignment = kind.alignment(representation(Syntax.NDR20))
                members["getAlignment"] = lambda _: alignment
            return make(kind.cls.__name__, ndr.NDRSTRUCT, structure=structure, **members)
        case Union():
            if id(kind) not in _unions:
                # A PROPVARIANT holds PROPVARIANTs: the class must be there before its arms are.
                union = make("UNION", ndr.NDRUNION, commonHdr=(("tag", peer_class(kind.tag)),), union={}, notAlign=True)
                _unions[id(kind)] = union
                for tag, arm in kind.arms.items():
                    union.union[int(tag)] = ("arm", NOTHING if arm is None else peer_class(arm))
            return _unions[id(kind)]
    raise TypeError(kind)


def item(kind: Conformant) -> Peer:
    if isinstance(kind.element, Integer):
        code = kind.element._codes[0]
        return "c" if code == "B" else f"<{code}"
    return peer_class(kind.element)


def filled(kind: Type, value: Value, related: Correlation = UNRELATED, *, is_top: bool = False) -> Peer:
    """Make the peer's instance of a value."""
    match kind:
        case Adapted():
            return filled(kind._inner, kind._to_inner(value), related, is_top=is_top)
        case Pointer():
            made = peer_class(kind)(topLevel=is_top)
            if value is None:
                made.fields["ReferentID"] = 0
                made.fields["Data"] = b""
            else:
                made.fields["Data"] = filled(kind.target, value, related)
            return made
        case Struct():
            made = peer_class(kind)()
            values = {field.name: getattr(value, field.name) for field in kind.fields}
            for field in kind.fields:
                correlation = field.related.resolve(values) if field.related else UNRELATED
                made.fields[field.name] = filled(field.type, values[field.name], correlation)
            return made
        case Union():
            made = peer_class(kind)()
            assert related.switch is not None
            made["tag"] = int(related.switch)
            arm = kind.arms[related.switch]
            made.fields["arm"] = NOTHING() if arm is None else filled(arm, value)
            return made
        case Conformant():
            made = peer_class(kind)()
            if isinstance(value, str):
                data = (value + "\0" if isinstance(kind, String) else value).encode("utf-16-le")
                made["Data"] = [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]
            elif isinstance(value, bytes) or isinstance(kind.element, Integer):
                made["Data"] = value
            else:
                made["Data"] = [filled(kind.element, each) for each in value]
            if related.size is not None:
                made.fields["MaximumCount"] = related.size
            return made
        case _:
            made = peer_class(kind)()
            made["Data"] = value.bytes_le if isinstance(kind, Guid) else value
            return made


def marshalled(members: list[Parameter], values: dict[str, Value]) -> bytes:
    call = make("CALL", ndr.NDRCALL, structure=tuple((member.name, peer_class(member.type)) for member in members))()
    for member in members:
        correlation = member.related.resolve(values) if member.related else UNRELATED
        call.fields[member.name] = filled(member.type, values[member.name], correlation, is_top=True)
    octets: bytes = call.getData()
    return octets


def same_but_for_gaps(ours: bytes, theirs: bytes) -> bool:
    return len(ours) == len(theirs) and all(
        our == their or (our == 0 and their in FILLERS) for our, their in zip(ours, theirs, strict=True)
    )


# Impacket aligns the elements of an array that is itself a parameter as if its count were not
# there; behind a pointer it does not.
MANY_VARIANTS = Call(
    mqmp.QMCOMM,
    mqmp.R_QM_SET_OBJECT_PROPERTIES,
    {
        "p_object_format": ObjectFormat(1, PRIVATE),
        "cp": len(VARIANTS),
        "a_prop": tuple(range(len(VARIANTS))),
        "ap_var": VARIANTS,
    },
    {"returns": 0},
)
STUBS = [
    (call, which)
    for call in [*CALLS, MANY_VARIANTS]
    for which in ("request", "response")
    if "ap_var" not in (call.arguments if which == "request" else call.results)
    or call.method is mqmp.R_QM_SET_OBJECT_PROPERTIES
]


@pytest.mark.parametrize(("call", "which"), STUBS, ids=str)
def test_impacket_writes_the_same_octets(monkeypatch: pytest.MonkeyPatch, call: Call, which: str) -> None:
    monkeypatch.setattr(Encoder, "referent", lambda _: 0x20000)
    monkeypatch.setattr(random, "randint", lambda *_: 0x20000)
    if which == "request":
        ours = call.method.encode_request(call.arguments)
        theirs = marshalled([each for each in call.method.parameters if each.is_in], call.arguments)
        assert call.method.decode_request(theirs) == call.arguments
    else:
        ours = call.method.encode_response(call.results, call.arguments)
        members = [each for each in call.method.parameters if each.is_out]
        if call.method.returns is not None:
            members.append(Parameter(RETURNS, call.method.returns))
        theirs = marshalled(members, {**call.arguments, **call.results})
        assert call.method.decode_response(theirs, call.arguments) == call.results
    assert same_but_for_gaps(ours, theirs), f"\n{ours.hex(' ', 4)}\n{theirs.hex(' ', 4)}"
