"""IDispatch for every served object: names, DISPIDs, and calls of members (MS-OAUT 3.1).

Each function here implements a member of IDispatch, in the form of an object's method. Invoke
converts its arguments to the declared types and calls the method that also serves the vtable. A
dual interface exposes its own members; IDispatch itself exposes those of the object's default
interface. Type information is not served.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NoReturn
from uuid import UUID

from lanner.com.automation.coercion import change_type
from lanner.com.automation.types import DispParams, ExcepInfo
from lanner.com.automation.values import EMPTY, MISSING, Variant, is_missing
from lanner.com.constants import (
    DISP_E_BADINDEX,
    DISP_E_BADPARAMCOUNT,
    DISP_E_BADVARTYPE,
    DISP_E_EXCEPTION,
    DISP_E_MEMBERNOTFOUND,
    DISP_E_PARAMNOTFOUND,
    DISP_E_PARAMNOTOPTIONAL,
    DISP_E_TYPEMISMATCH,
    DISP_E_UNKNOWNINTERFACE,
    DISP_E_UNKNOWNNAME,
    E_INVALIDARG,
    E_NOTIMPL,
    E_UNEXPECTED,
    IID_IUNKNOWN,
    S_OK,
)
from lanner.com.members import IDISPATCH, InterfaceTable, Kind, Member, Parameter
from lanner.com.objects import ComCall, ComError, ComObject, Failure, Success, find_method
from lanner.model.errors import StatusError
from lanner.rpc.ndr import Value
from lanner.security.log_lines import log_of_peer
from lanner.wire.vartypes import VT

_LOG = logging.getLogger(__name__)

IID_NULL: Final = UUID(int=0)

# MS-OAUT 2.2.32.1.
DISPID_UNKNOWN: Final = -1
DISPID_PROPERTYPUT: Final = -3
DISPID_NEWENUM: Final = -4

# MS-OAUT 3.1.4.4, dwFlags.
DISPATCH_METHOD: Final = 0x1
DISPATCH_PROPERTYGET: Final = 0x2
DISPATCH_PROPERTYPUT: Final = 0x4
DISPATCH_PROPERTYPUTREF: Final = 0x8
DISPATCH_ZERO_VAR_RESULT: Final = 0x2_0000
DISPATCH_ZERO_EXCEP_INFO: Final = 0x4_0000
DISPATCH_ZERO_ARG_ERR: Final = 0x8_0000

# The member kinds that a flag selects, the preferred kind first. A property that has only one of
# the two setters accepts the flag of the other, because scripts do not distinguish them reliably.
# Scripts send two flags together for a call whose result they want, and for an assignment.
_KINDS: Final[dict[int, tuple[Kind, ...]]] = {
    DISPATCH_METHOD: ("method",),
    DISPATCH_PROPERTYGET: ("propget",),
    DISPATCH_METHOD | DISPATCH_PROPERTYGET: ("method", "propget"),
    DISPATCH_PROPERTYPUT: ("propput", "propputref"),
    DISPATCH_PROPERTYPUTREF: ("propputref", "propput"),
    DISPATCH_PROPERTYPUT | DISPATCH_PROPERTYPUTREF: ("propputref", "propput"),
}

# The types of parameters and results by their IDL names, except interface pointers and VARIANTs.
_VARIANT_TYPES: Final[dict[str, int]] = {
    "long": VT.I4,
    "short": VT.I2,
    "VARIANT_BOOL": VT.BOOL,
    "BSTR": VT.BSTR,
    "DWORD": VT.UI4,
    "ULONG": VT.UI4,
}


class _ArgumentError(ComError):
    """An argument that the member cannot accept, and its index in rgvarg."""

    def __init__(self, hresult: int, index: int) -> None:
        super().__init__(hresult, f"argument {index}")
        self.index = index


def table_of(obj: ComObject, call: ComCall) -> InterfaceTable:
    """Return the table that IDispatch exposes in this call."""
    table = obj.default_dispatch() if call.interface is IDISPATCH else call.interface
    if table is None:
        raise ComError(E_NOTIMPL, f"{type(obj).__name__} has no IDispatch")
    return table


def get_type_info_count(obj: ComObject, call: ComCall) -> int:  # noqa: ARG001
    """Return 0: there is no type information (MS-OAUT 3.1.4.1)."""
    return 0


def get_type_info(obj: ComObject, call: ComCall, index: int, lcid: int) -> NoReturn:  # noqa: ARG001
    """Raise ComError, because there is no type information (MS-OAUT 3.1.4.2)."""
    raise ComError(DISP_E_BADINDEX if index else E_NOTIMPL, "type information is not served")


def get_ids_of_names(
    obj: ComObject,
    call: ComCall,
    riid: UUID,
    names: Sequence[str | None],
    count: int,  # noqa: ARG001 (names has as many)
    lcid: int,  # noqa: ARG001
) -> Value:
    """Return the DISPIDs of a member and its parameters (MS-OAUT 3.1.4.3).

    The first name is the member's. A parameter's DISPID is its position.
    """
    if riid != IID_NULL:
        raise ComError(DISP_E_UNKNOWNINTERFACE, str(riid))
    members = table_of(obj, call).by_name.get((names[0] or "").lower(), ()) if names else ()
    places: dict[str, int] = {}
    for member in members:
        for index, parameter in enumerate(_inputs(member)):
            places.setdefault(parameter.name.lower(), index)
    found = [
        (members[0].dispid if members else DISPID_UNKNOWN)
        if position == 0
        else places.get((name or "").lower(), DISPID_UNKNOWN)
        for position, name in enumerate(names)
    ]
    # A parameter's position is never negative. A member's DISPID may be, but never this one.
    return Failure(DISP_E_UNKNOWNNAME, tuple(found)) if DISPID_UNKNOWN in found else tuple(found)


def invoke(
    obj: ComObject,
    call: ComCall,
    dispid: int,
    riid: UUID,
    lcid: int,  # noqa: ARG001
    flags: int,
    params: DispParams,
    ref_count: int,  # noqa: ARG001 (the two arrays have as many)
    ref_indices: tuple[int, ...],
    refs: tuple[Variant, ...],
) -> Value:
    """Call a member by its DISPID (MS-OAUT 3.1.4.4).

    The result is pVarResult, pExcepInfo, pArgErr and rgVarRef, with the result code.
    """
    answer = _Answer(obj, flags, refs)
    try:
        if riid != IID_NULL:
            raise ComError(DISP_E_UNKNOWNINTERFACE, str(riid))
        table = table_of(obj, call)
        member = _member(table, dispid, flags)
        arguments = _arguments(member, params, ref_indices, refs)
    except ComError as problem:
        return answer.of(problem.hresult, argument=problem.index if isinstance(problem, _ArgumentError) else 0)
    call = ComCall(call.identity, call.auth_level, call.peer, call.exporter, table, member)
    try:
        method = find_method(obj, member)
        if method is None:
            raise ComError(E_NOTIMPL, f"{type(obj).__name__} has no {member.python}")
        result = method(call, *arguments)
        if inspect.isawaitable(result):
            return _finish(answer, call, result)
        return answer.done(call, result)
    except Exception as problem:  # noqa: BLE001 (any error ends this call alone)
        return answer.failed(call, problem)


async def _finish(answer: _Answer, call: ComCall, result: Awaitable[Value]) -> Value:
    try:
        return answer.done(call, await result)
    except Exception as problem:  # noqa: BLE001
        return answer.failed(call, problem)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The response of Invoke. The flags of the call select the parts that the client wants."""

    obj: ComObject
    flags: int
    # The arguments are returned unchanged, because no member here has an out parameter besides its
    # result.
    refs: tuple[Variant, ...]

    def of(
        self, hresult: int, result: Variant = EMPTY, info: ExcepInfo | None = None, argument: int = 0
    ) -> Success | Failure:
        if self.flags & DISPATCH_ZERO_VAR_RESULT:
            result = EMPTY
        if info is None or self.flags & DISPATCH_ZERO_EXCEP_INFO:
            info = ExcepInfo()
        if self.flags & DISPATCH_ZERO_ARG_ERR:
            argument = 0
        value = (result, info, argument, self.refs)
        return Failure(hresult, value) if hresult >> 31 else Success(hresult, value)

    def done(self, call: ComCall, result: Value) -> Success | Failure:
        hresult, value = S_OK, result
        if isinstance(result, Success):
            hresult, value = result.hresult, result.value
        is_made = call.member.kind == "method" and isinstance(value, ComObject)
        if is_made and self.flags & DISPATCH_ZERO_VAR_RESULT:
            # The client discards the object that it requested, so it will never release it.
            call.exporter.discard(value)
        return self.of(hresult, _result(call.member, value))

    def failed(self, call: ComCall, problem: Exception) -> Success | Failure:
        match problem:
            case ComError():
                scode, text = problem.hresult, problem.text
            case StatusError():
                scode, text = problem.status, str(problem)
            case _:
                names = call.interface.name, call.member.name
                log_of_peer(_LOG, logging.ERROR, "failed", "", "%s.%s failed", *names, exc_info=problem)
                scode, text = E_UNEXPECTED, ""
        info = ExcepInfo(bstr_source=type(self.obj).__name__, bstr_description=text or None, scode=scode)
        return self.of(DISP_E_EXCEPTION, info=info)


def _member(table: InterfaceTable, dispid: int, flags: int) -> Member:
    kinds = _KINDS.get(flags & 0xF)
    if kinds is None:
        raise ComError(E_INVALIDARG, f"flags {flags:#x}")
    members = table.by_dispid.get(dispid, ())
    # The IDL declares _NewEnum as a method (MC-MQAC 3.15.4.1.3); MS-OAUT 2.2.32.1 allows either.
    if dispid == DISPID_NEWENUM and flags & (DISPATCH_METHOD | DISPATCH_PROPERTYGET):
        kinds = ("method", "propget")
    for kind in kinds:
        for member in members:
            if member.kind == kind:
                return member
    raise ComError(DISP_E_MEMBERNOTFOUND, f"{table.name} has no {dispid:#x} for flags {flags:#x}")


# Arguments
# --------------------------------------------------------------------------------------------------


@cache
def _inputs(member: Member) -> tuple[Parameter, ...]:
    """Return the parameters that take arguments: all but the retval (MS-OAUT 3.1.4.4.2)."""
    return tuple([parameter for parameter in member.parameters if not parameter.retval])


def _arguments(member: Member, params: DispParams, ref_indices: Sequence[int], refs: Sequence[Variant]) -> list[Value]:
    """Return a value for each parameter, in IDL order."""
    given = list(params.rgvarg or ())
    named = params.rgdispid_named_args or ()
    parameters = _inputs(member)
    if len(named) > len(given):
        raise ComError(E_INVALIDARG, f"{len(named)} named arguments of {len(given)}")
    # MS-OAUT 3.1.4.4.1: each by-reference argument leaves its own empty place among the arguments.
    for index, variant in zip(ref_indices, refs, strict=True):
        if index >= len(given) or given[index].vt != VT.EMPTY or not variant.is_byref:
            raise ComError(E_INVALIDARG, f"argument {index} by reference")
        given[index] = variant
    if len(given) > len(parameters):
        raise ComError(DISP_E_BADPARAMCOUNT, f"{len(given)} arguments where {member.name} has {len(parameters)}")
    # The index in rgvarg of each parameter's argument. Positional arguments are last, in reverse
    # order.
    places: list[int | None] = [None] * len(parameters)
    for position in range(len(given) - len(named)):
        places[position] = len(given) - 1 - position
    for index, dispid in enumerate(named):
        is_value = dispid == DISPID_PROPERTYPUT and member.kind in ("propput", "propputref")
        position = len(parameters) - 1 if is_value else dispid
        if not 0 <= position < len(parameters) or places[position] is not None:
            raise _ArgumentError(DISP_E_PARAMNOTFOUND, index)
        places[position] = index
    return [
        _left_out(member, parameter, is_short=not named)
        if place is None
        else _argument(parameter, given[place].dereferenced(), place)
        for parameter, place in zip(parameters, places, strict=True)
    ]


def _left_out(member: Member, parameter: Parameter, *, is_short: bool) -> Variant:
    if parameter.optional:
        return MISSING
    raise ComError(
        DISP_E_BADPARAMCOUNT if is_short else DISP_E_PARAMNOTOPTIONAL, f"{member.name} without {parameter.name}"
    )


def _argument(parameter: Parameter, given: Variant, index: int) -> Value:
    """Convert an argument to the type of its parameter."""
    kind = parameter.type.rstrip("*")
    if is_missing(given) and not parameter.optional:
        raise _ArgumentError(DISP_E_PARAMNOTOPTIONAL, index)
    if given.vt & ~VT.ARRAY == VT.RECORD:
        raise _ArgumentError(DISP_E_BADVARTYPE, index)
    if kind == "VARIANT":
        return given
    if parameter.iid is not None:
        return _interface(parameter.iid, given, index)
    if kind == "HRESULT" and given.vt == VT.ERROR:
        return given.value
    try:
        value = change_type(given, _VARIANT_TYPES.get(kind, VT.I4)).value
    except ComError as problem:
        raise _ArgumentError(problem.hresult, index) from None
    return value & 0xFFFF_FFFF if kind == "HRESULT" else value


def _interface(iid: UUID, given: Variant, index: int) -> Value:
    """Return the object in an argument; Nothing is a NULL object pointer."""
    if given.vt not in (VT.DISPATCH, VT.UNKNOWN):
        raise _ArgumentError(DISP_E_TYPEMISMATCH, index)
    if isinstance(given.value, ComObject) and given.value.query_interface(iid) is None:
        raise _ArgumentError(DISP_E_TYPEMISMATCH, index)
    return given.value


def _result(member: Member, value: Value) -> Variant:
    """Return the VARIANT of a retval."""
    retval = next((parameter for parameter in member.parameters if parameter.retval), None)
    if retval is None:
        return EMPTY
    kind = retval.type.rstrip("*")
    if kind == "VARIANT":
        return EMPTY if value is None else value
    if retval.iid is not None:
        return Variant(VT.UNKNOWN if retval.iid == IID_IUNKNOWN else VT.DISPATCH, value)
    return Variant(_VARIANT_TYPES[kind], value)
