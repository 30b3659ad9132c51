"""Calls through the vtable: encoding of parameters, and calls of methods (MS-DCOM 3.1.1.5.4).

A stub is created once per member and kept. On the wire, stub data starts after ORPCTHIS or
ORPCTHAT, but alignment is counted from the first octet of that header, so the caller passes in the
decoder or encoder it used for it. A server calls

    answer = serve(obj, call, decoder)  # an Answer, or an awaitable of one
    answer.encode(encoder)

and a client `stub_of(member).encode_request(encoder, arguments)`, then `decode_response`. Interface
pointers in a stub are ObjRefs; `mapped` replaces objects by ObjRefs and ObjRefs by objects.
"""

from __future__ import annotations

import inspect
import logging
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Final, TypeAlias
from uuid import UUID

from lanner.com.automation import dispatch
from lanner.com.automation.types import BSTR, DISPPARAMS, EXCEPINFO, VARIANT, VARIANT_BOOL, DispParams
from lanner.com.automation.values import EMPTY, SafeArray, Variant
from lanner.com.constants import E_NOTIMPL, E_UNEXPECTED, IID_IDISPATCH, IID_IUNKNOWN, S_OK
from lanner.com.members import IDISPATCH, Member, Parameter
from lanner.com.objects import ComCall, ComError, ComObject, Failure, Remote, Success, find_method
from lanner.com.objref import INTERFACE_POINTER, ObjRef
from lanner.model.errors import StatusError
from lanner.rpc.ndr import (
    UNRELATED,
    BadStub,
    Conformant,
    ConformantVarying,
    Decoder,
    Encoder,
    Field,
    Parameters,
    Related,
    Struct,
    Type,
    Unique,
    Value,
    guid,
    i16,
    i32,
    i64,
    u8,
    u32,
    u64,
    wide_string,
)
from lanner.security.log_lines import log_of_peer
from lanner.wire.vartypes import VT

_LOG = logging.getLogger(__name__)

# Octets that may follow the last parameter of a response, as in rpc.interface: the gap at the end
# of a padded stub.
_MAX_PADDING: Final = 7
_HRESULT: Final = Parameter("HRESULT", "out", "HRESULT")
# Not in the specification: maximum number of references in the arguments of one call. No member
# takes more than two, and each foreign one requires a search for its owner.
MAX_REFERENCES: Final = 16


@dataclass(frozen=True, slots=True)
class ConnectData:
    """CONNECTDATA (MC-MQAC section 6): a sink and the cookie it was given."""

    p_unk: Annotated[Value, INTERFACE_POINTER]
    dw_cookie: Annotated[int, u32]


# The types of member parameters, by their IDL names. HRESULTs are unsigned, as everywhere in this
# package.
_TYPES: Final[dict[str, Type]] = {
    "long": i32,
    "short": i16,
    "DISPID": i32,
    "DWORD": u32,
    "HRESULT": u32,
    "LCID": u32,
    "UINT": u32,
    "ULONG": u32,
    "BOOL": i32,
    "byte": u8,
    "LARGE_INTEGER": i64,
    "ULARGE_INTEGER": u64,
    "CLSID": guid,
    "IID": guid,
    "REFIID": guid,
    "VARIANT_BOOL": VARIANT_BOOL,
    "BSTR": BSTR,
    "VARIANT": VARIANT,
    "LPOLESTR": Unique(wide_string),
    "DISPPARAMS": DISPPARAMS,
    "EXCEPINFO": EXCEPINFO,
    "CONNECTDATA": Struct(ConnectData),
}
# Types that may contain objects.
_CARRIERS: Final = frozenset({"VARIANT", "DISPPARAMS", "CONNECTDATA"})
_ELEMENT_IIDS: Final[dict[int, UUID | None]] = {
    VT.DISPATCH: IID_IDISPATCH,
    VT.UNKNOWN: IID_IUNKNOWN,
    # Its contents determine the type.
    VT.VARIANT: None,
}


def _ndr_type(parameter: Parameter) -> Type:
    # A top-level pointer is a reference pointer, which has no octets. An interface pointer is its
    # own target.
    kind = INTERFACE_POINTER if parameter.iid is not None else _TYPES[parameter.type.rstrip("*")]
    if parameter.length_is:
        return ConformantVarying(kind)
    return Conformant(kind) if parameter.size_is else kind


Convert: TypeAlias = Callable[[Value, UUID], Value]


def mapped(value: Value, convert: Convert, iid: UUID | None) -> Value:
    """Replace each object or reference in a value. A value without any is returned as it is."""
    match value:
        case None | str():
            return value
        case Variant():
            base = value.vt & ~(VT.ARRAY | VT.BYREF)
            if base not in _ELEMENT_IIDS:
                return value
            inner = mapped(value.value, convert, _ELEMENT_IIDS[base])
            return value if inner is value.value else Variant(value.vt, inner)
        case tuple():
            made = [mapped(each, convert, iid) for each in value]
            is_same = all(new is old for new, old in zip(made, value, strict=True))
            return value if is_same else tuple(made)
        case SafeArray():
            elements = mapped(value.elements, convert, iid)
            return value if elements is value.elements else replace(value, elements=elements)
        case DispParams():
            rgvarg = mapped(value.rgvarg, convert, None)
            return value if rgvarg is value.rgvarg else replace(value, rgvarg=rgvarg)
        case ConnectData():
            return ConnectData(mapped(value.p_unk, convert, IID_IUNKNOWN), value.dw_cookie)
        case _:
            return value if iid is None else convert(value, iid)


class _Way:
    """The parameters of one direction, each followed by its own referents (C706 14.4)."""

    def __init__(self, parameters: Sequence[Parameter], hint: str, known: Collection[str] = ()) -> None:
        """Declare parameters; `known` has the names of those in the opposite direction."""
        self.parameters = tuple(parameters)
        self.types = [_ndr_type(parameter) for parameter in parameters]
        names = [parameter.name for parameter in parameters]
        # An element count that also travels in the opposite direction is known before the array.
        self._stub = Parameters(
            [
                Field(each.name, kind, Related(size_is=each.size_is) if each.size_is in known else None)
                for each, kind in zip(parameters, self.types, strict=True)
            ],
            hint,
            modulus=1,
        )
        # For each array: its index, the index of its element count, and its name.
        self._counted = [
            (index, names.index(count), each.name)
            for index, each in enumerate(parameters)
            for count in [each.length_is or each.size_is]
            if count in names
        ]
        self.carriers = [
            (index, each.iid)
            for index, each in enumerate(parameters)
            if each.iid is not None or each.type.rstrip("*") in _CARRIERS
        ]

    def encode(self, encoder: Encoder, values: Sequence[Value], known: Mapping[str, Value] | None = None) -> None:
        self._stub.encode(encoder, dict(known or {}) | dict(zip(self._stub.names, values, strict=True)))

    def decode(self, decoder: Decoder, known: Mapping[str, Value] | None = None) -> list[Value]:
        values = list(self._stub.decode(decoder, known or {}).values())
        for index, count, name in self._counted:
            if len(values[index]) != values[count]:
                raise BadStub(f"{name}: {len(values[index])} elements where {values[count]} are announced")
        left = decoder.end - decoder.position
        # MS-DCOM 3.2.4.2: clients from the Windows 2000 to 2003 era append octets to requests;
        # recipients ignore them.
        if left < 0 or (known is not None and left > _MAX_PADDING):
            raise BadStub(f"{left} octets left over")
        return values

    def defaults(self, known: Mapping[str, Value]) -> list[Value]:
        """Return the default value of each parameter."""
        return [
            each.type.default(UNRELATED if each.related is None else each.related.resolve(known))
            for each in self._stub.members
        ]

    def mapped(self, values: list[Value], convert: Convert) -> list[Value]:
        values = list(values)
        for index, iid in self.carriers:
            values[index] = mapped(values[index], convert, iid)
        return values


class Stub:
    """The layout of a member's request and response."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._request = _Way([each for each in member.parameters if each.is_in], f"{member.name} request")
        self._names = [each.name for each in self._request.parameters]
        results = [*(each for each in member.parameters if each.is_out), _HRESULT]
        self._response = _Way(results, f"{member.name} response", self._names)
        self._out_count = len(results) - 1
        # An [in] VARIANT that holds a pointer (VT_BYREF) is treated like the value it points to,
        # because nothing is returned through it.
        self._variants = [
            index
            for index, each in enumerate(self._request.parameters)
            if each.type in ("VARIANT", "VARIANT*") and not each.size_is
        ]

    def __repr__(self) -> str:
        return f"<stub of {self.member.name}>"

    def _known(self, arguments: Sequence[Value]) -> dict[str, Value]:
        return dict(zip(self._names, arguments, strict=True))

    # The server's side

    def decode_request(self, decoder: Decoder) -> list[Value]:
        """Return the arguments in IDL order. Raise BadStub if they are malformed."""
        try:
            arguments = self._request.decode(decoder)
        except BadStub as problem:
            raise problem.at(f"{self.member.name} request") from None
        for index in self._variants:
            if arguments[index].vt & VT.BYREF:
                arguments[index] = arguments[index].dereferenced()
        return arguments

    def encode_response(
        self, encoder: Encoder, results: Sequence[Value] | None, hresult: int, arguments: Sequence[Value]
    ) -> None:
        """Write the out parameters and the result code; None means zero, empty or NULL."""
        known = self._known(arguments)
        if results is None:
            results = self._response.defaults(known)[:-1]
        try:
            self._response.encode(encoder, [*results, hresult], known)
        except (ValueError, struct.error) as problem:
            raise ValueError(f"{self.member.name} response: {problem}") from problem

    # The client's side

    def encode_request(self, encoder: Encoder, arguments: Sequence[Value], marshal: Convert | None = None) -> None:
        """Write the arguments in IDL order; `marshal` converts objects among them to references."""
        values = list(arguments)
        if len(values) != len(self._names):
            raise ValueError(f"{self.member.name}: {len(values)} arguments where {len(self._names)} belong")
        if marshal is not None:
            values = self._request.mapped(values, _unless_reference(marshal))
        try:
            self._request.encode(encoder, values)
        except (ValueError, struct.error) as problem:
            raise ValueError(f"{self.member.name} request: {problem}") from problem

    def decode_response(self, decoder: Decoder, arguments: Sequence[Value]) -> tuple[list[Value], int]:
        """Return the out parameters and the result code of a call made with these arguments.

        Raise BadStub if the response is malformed.
        """
        try:
            *results, hresult = self._response.decode(decoder, self._known(arguments))
        except BadStub as problem:
            raise problem.at(f"{self.member.name} response") from None
        return results, hresult

    # Objects and references

    def references(self, arguments: list[Value]) -> list[ObjRef]:
        """Return the references in received arguments, in order."""
        found: list[ObjRef] = []
        if self._request.carriers:
            self._request.mapped(arguments, lambda objref, _: found.append(objref))
        return found

    def with_objects(self, arguments: list[Value], objects: Sequence[ComObject | Value]) -> list[Value]:
        """Substitute objects for the references that `references` found."""
        left = iter(objects)
        return self._request.mapped(arguments, lambda _objref, _iid: next(left))

    def with_references(self, results: list[Value], marshal: Convert) -> list[Value]:
        """Replace objects in results by references."""
        if not self._response.carriers:
            return results
        return self._response.mapped([*results, S_OK], _unless_reference(marshal))[:-1]

    def response_references(self, results: list[Value]) -> list[Value]:
        """Return the references, or objects, in results."""
        found: list[Value] = []
        self._response.mapped([*results, S_OK], lambda objref, _: found.append(objref))
        return found

    def response_with_objects(self, results: list[Value], objects: Sequence[Value]) -> list[Value]:
        """Replace each item that `response_references` found."""
        left = iter(objects)
        return self._response.mapped([*results, S_OK], lambda _objref, _iid: next(left))[:-1]

    def outs(self, value: Value) -> list[Value]:
        """Split the return value of a method into its out parameters."""
        if self._out_count == 0:
            return []
        values = [value] if self._out_count == 1 else list(value)
        # An empty VARIANT is VT_EMPTY.
        return [
            EMPTY if each is None and kind is VARIANT else each
            for each, kind in zip(values, self._response.types[:-1], strict=True)
        ]


def _unless_reference(marshal: Convert) -> Convert:
    return lambda value, iid: value if isinstance(value, ObjRef) else marshal(value, iid)


@cache
def stub_of(member: Member) -> Stub:
    return Stub(member)


@dataclass(frozen=True, slots=True)
class Answer:
    """The response: out parameters (None if the call failed without any) and the result code."""

    stub: Stub
    arguments: list[Value]
    results: list[Value] | None
    hresult: int

    def encode(self, encoder: Encoder) -> None:
        self.stub.encode_response(encoder, self.results, self.hresult, self.arguments)


def serve(obj: ComObject, call: ComCall, decoder: Decoder) -> Answer | Awaitable[Answer]:
    """Run a call on an object.

    Raise BadStub if its parameters are malformed. Every other outcome is an Answer.
    """
    stub = stub_of(call.member)
    arguments = stub.decode_request(decoder)
    references = stub.references(arguments)
    if len(references) > MAX_REFERENCES:
        raise BadStub(f"{call.member.name} request: {len(references)} references to objects")
    if references:
        return _serve_later(obj, call, stub, arguments, references)
    try:
        result = _run(obj, call, arguments)
        if inspect.isawaitable(result):
            return _finish(call, stub, arguments, result)
        return _answer(call, stub, arguments, result)
    except Exception as problem:  # noqa: BLE001 (any error ends this call alone)
        return Answer(stub, arguments, None, hresult_of(problem, call))


async def _serve_later(
    obj: ComObject, call: ComCall, stub: Stub, arguments: list[Value], references: list[ObjRef]
) -> Answer:
    try:
        objects = [await call.exporter.unmarshal(objref) for objref in references]
        result = _run(obj, call, stub.with_objects(arguments, objects))
        if inspect.isawaitable(result):
            result = await result
        answer = _answer(call, stub, arguments, result)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as problem:  # noqa: BLE001
        return Answer(stub, arguments, None, hresult_of(problem, call))


async def _finish(call: ComCall, stub: Stub, arguments: list[Value], result: Awaitable[Value]) -> Answer:
    try:
        answer = _answer(call, stub, arguments, await result)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as problem:  # noqa: BLE001
        return Answer(stub, arguments, None, hresult_of(problem, call))


def _run(obj: ComObject, call: ComCall, arguments: list[Value]) -> Value:
    own = _DISPATCH.get(call.member)
    if own is not None:
        return own(obj, call, *arguments)
    method = find_method(obj, call.member)
    if method is None:
        raise ComError(E_NOTIMPL, f"{type(obj).__name__} has no {call.member.python}")
    return method(call, *arguments)


_DISPATCH: Final = {member: getattr(dispatch, member.python) for member in IDISPATCH.members}


def _answer(call: ComCall, stub: Stub, arguments: list[Value], result: Value) -> Answer | Awaitable[Answer]:
    hresult, value = S_OK, result
    if isinstance(result, Success | Failure):
        hresult, value = result.hresult, result.value
    results = stub.outs(value)
    foreign: list[Remote] = []

    def marshal(value: Value, iid: UUID) -> Value:
        if isinstance(value, ComObject):
            try:
                return call.exporter.marshal(value, iid)
            except ComError:
                call.exporter.discard(value)
                raise
        foreign.append(value)
        return value

    results = stub.with_references(results, marshal)
    if foreign:
        return _pass_on(call, Answer(stub, arguments, results, hresult))
    return Answer(stub, arguments, results, hresult)


async def _pass_on(call: ComCall, answer: Answer) -> Answer:
    """Replace remote objects in an answer by references.

    Their owners may have to be called for references.
    """
    stub, results = answer.stub, answer.results or []
    try:
        made = [
            each if isinstance(each, ObjRef) else await each.reference() for each in stub.response_references(results)
        ]
        return replace(answer, results=stub.response_with_objects(results, made))
    except Exception as problem:  # noqa: BLE001
        return replace(answer, results=None, hresult=hresult_of(problem, call))


def hresult_of(problem: Exception, call: ComCall) -> int:
    """Return the result code for an exception raised by a member."""
    match problem:
        case ComError():
            return problem.hresult
        case StatusError():
            return problem.status
        case _:
            names = call.interface.name, call.member.name
            log_of_peer(_LOG, logging.ERROR, "failed", "", "%s.%s failed", *names, exc_info=problem)
            return E_UNEXPECTED
