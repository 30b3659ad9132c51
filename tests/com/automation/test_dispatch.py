"""IDispatch: names, DISPIDs, and members invoked by those (MS-OAUT 3.1)."""

from __future__ import annotations

import importlib
import logging
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.activex import tables
from lanner.com.automation.dispatch import (
    DISPATCH_METHOD,
    DISPATCH_PROPERTYGET,
    DISPATCH_PROPERTYPUT,
    DISPATCH_PROPERTYPUTREF,
    DISPATCH_ZERO_ARG_ERR,
    DISPATCH_ZERO_EXCEP_INFO,
    DISPATCH_ZERO_VAR_RESULT,
    DISPID_PROPERTYPUT,
    DISPID_UNKNOWN,
)
from lanner.com.automation.types import ExcepInfo
from lanner.com.automation.values import EMPTY, MISSING, NULL, RecordValue, SafeArray, Variant
from lanner.com.constants import (
    DISP_E_BADINDEX,
    DISP_E_BADPARAMCOUNT,
    DISP_E_BADVARTYPE,
    DISP_E_EXCEPTION,
    DISP_E_MEMBERNOTFOUND,
    DISP_E_OVERFLOW,
    DISP_E_PARAMNOTFOUND,
    DISP_E_PARAMNOTOPTIONAL,
    DISP_E_TYPEMISMATCH,
    DISP_E_UNKNOWNINTERFACE,
    DISP_E_UNKNOWNNAME,
    E_INVALIDARG,
    E_NOINTERFACE,
    E_NOTIMPL,
    E_UNEXPECTED,
    IID_IDISPATCH,
    S_FALSE,
    S_OK,
)
from lanner.com.members import Coclass, InterfaceTable
from lanner.com.objects import ComCall, ComError, ComObject, Success
from lanner.model.errors import QueueNotFound
from lanner.rpc.ndr import Value
from lanner.wire.vartypes import VT
from tests.com.fakes import Caller, Exporter, Foreign
from tests.statuses import MQ_ERROR_IO_TIMEOUT, MQ_ERROR_QUEUE_NOT_FOUND, MQ_INFORMATION_INTERNAL_USER_CERT_EXIST

METHOD, GET, PUT, PUTREF = DISPATCH_METHOD, DISPATCH_PROPERTYGET, DISPATCH_PROPERTYPUT, DISPATCH_PROPERTYPUTREF
VALUE = (DISPID_PROPERTYPUT,)
OTHER = UUID(int=7)


class Info(ComObject):
    """A queue info that records its calls."""

    interfaces: ClassVar = tables.MSMQ_QUEUE_INFO.interfaces

    def __init__(self) -> None:
        self.path_name: str | None = None
        self.journal = 0
        self.told: list[Value] = []

    def get_path_name(self, call: ComCall) -> str | None:
        return self.path_name

    def put_path_name(self, call: ComCall, value: str | None) -> None:
        self.path_name = value

    def get_journal(self, call: ComCall) -> int:
        return self.journal

    def put_journal(self, call: ComCall, value: int) -> None:
        self.journal = value

    def get_queue_guid(self, call: ComCall) -> str:
        return "{0}"

    def get_is_transactional(self, call: ComCall) -> int:
        return 1

    def get_is_transactional2(self, call: ComCall) -> bool:
        return True

    def get_create_time(self, call: ComCall) -> Variant:
        return Variant(VT.DATE, 25569.0)

    def create(self, call: ComCall, is_transactional: Variant, is_world_readable: Variant) -> None:
        self.told += [is_transactional, is_world_readable]

    async def open(self, call: ComCall, access: int, share_mode: int) -> ComObject:
        self.told += [call.interface.name, call.member.name, access, share_mode]
        if access > 100:
            raise QueueNotFound
        return Queue()

    def refresh(self, call: ComCall) -> Success:
        return Success(MQ_INFORMATION_INTERNAL_USER_CERT_EXIST)

    def update(self, call: ComCall) -> None:
        raise QueueNotFound("no such queue")

    def delete(self, call: ComCall) -> None:
        raise RuntimeError("a bug")


class Queue(ComObject):
    interfaces: ClassVar = tables.MSMQ_QUEUE.interfaces


class Message(ComObject):
    interfaces: ClassVar = tables.MSMQ_MESSAGE.interfaces

    def __init__(self) -> None:
        self.told: list[Value] = []

    def putref_response_queue_info(self, call: ComCall, value: Value) -> None:
        self.told.append(value)

    def get_response_queue_info(self, call: ComCall) -> Value:
        return self.told[-1]

    def put_body(self, call: ComCall, value: Variant) -> None:
        self.told.append(value)

    def get_body(self, call: ComCall) -> Success:
        return Success(S_FALSE, Variant(VT.BSTR, "body"))

    def put_hash_algorithm(self, call: ComCall, value: int) -> None:
        raise ComError(E_INVALIDARG)


class Event(ComObject):
    interfaces: ClassVar = tables.MSMQ_EVENT.interfaces

    def __init__(self) -> None:
        self.told: list[Value] = []

    def fire_arrived_error_event(self, call: ComCall, queue: Value, status: int, cursor: int) -> None:
        self.told += [queue, status, cursor]


class Collection(ComObject):
    interfaces: ClassVar = tables.MSMQ_COLLECTION.interfaces

    def item(self, call: ComCall, index: Variant) -> Variant:
        return index


# Type information
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.1-4")
def test_no_type_information_is_served() -> None:
    """GetTypeInfoCount returns 1 if type information is served, else 0."""
    assert Caller(Info()).call("GetTypeInfoCount") == ([0], S_OK)
    assert Caller(Info()).call("GetTypeInfo", 0, 0x409) == ([None], E_NOTIMPL)


@pytest.mark.spec("MQAC-3.1-5")
def test_type_information_has_no_other_index() -> None:
    assert Caller(Info()).call("GetTypeInfo", 1, 0x409) == ([None], DISP_E_BADINDEX)


# Names
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.1-6")
def test_names_without_regard_to_case() -> None:
    caller = Caller(Info())
    ids = [caller.ids(name) for name in ("PathName", "pathname", "PATHNAME")]
    assert ids == [((tables.IMSMQ_QUEUE_INFO4.by_name["pathname"][0].dispid,), S_OK)] * 3


@pytest.mark.spec("MQAC-3.1-6")
def test_unknown_names() -> None:
    """Unknown names get DISPID -1 and the call returns DISP_E_UNKNOWNNAME."""
    caller = Caller(Info())
    (opened,), _ = caller.ids("Open")
    assert caller.ids("Path_Name") == ((DISPID_UNKNOWN,), DISP_E_UNKNOWNNAME)
    assert caller.ids("Open", "access", "Mode") == ((opened, 0, DISPID_UNKNOWN), DISP_E_UNKNOWNNAME)
    assert caller.ids("Unknown", "Access") == ((-1, -1), DISP_E_UNKNOWNNAME)
    assert caller.ids(None) == ((-1,), DISP_E_UNKNOWNNAME)
    assert caller.ids() == ((), S_OK)


def test_names_of_parameters_are_their_places() -> None:
    caller = Caller(Info())
    (opened,), _ = caller.ids("Open")
    assert caller.ids("Open", "sharemode", "ACCESS") == ((opened, 1, 0), S_OK)
    # The result is no argument.
    assert caller.ids("Open", "ppq")[1] == DISP_E_UNKNOWNNAME
    assert caller.ids("PathName", "bstrPathName")[0][1] == 0


def test_names_that_all_interfaces_have_differ_in_their_dispids() -> None:
    """An interface has the DISPIDs of its own members, IDispatch those of the default interface."""
    new, old = Caller(Info()), Caller(Info(), tables.IMSMQ_QUEUE_INFO)
    assert new.ids("ADsPath")[1] == S_OK
    assert old.ids("ADsPath")[1] == DISP_E_UNKNOWNNAME
    assert Caller(Event()).ids("FireArrivedEvent")[1] == DISP_E_UNKNOWNNAME
    assert Caller(Event(), tables.IMSMQ_PRIVATE_EVENT).ids("FireArrivedEvent")[1] == S_OK


@pytest.mark.spec("MQAC-3.1-7")
def test_there_is_no_other_set_of_names() -> None:
    """GetIDsOfNames or Invoke with a riid other than IID_NULL returns DISP_E_UNKNOWNINTERFACE."""
    caller = Caller(Info())
    assert caller.ids("PathName", riid=OTHER) == ((0,), DISP_E_UNKNOWNINTERFACE)
    assert caller.invoke("PathName", GET, riid=OTHER)[4] == DISP_E_UNKNOWNINTERFACE


@pytest.mark.spec("MQAC-3.1-8")
def test_the_accessors_of_a_property_have_one_dispid() -> None:
    caller = Caller(Info())
    (dispid,), _ = caller.ids("PathName")
    assert caller.invoke(dispid, PUT, Variant(VT.BSTR, "a"), named=VALUE)[4] == S_OK
    assert caller.invoke(dispid, GET)[0] == Variant(VT.BSTR, "a")
    assert caller.ids("PathName") == ((dispid,), S_OK)
    message = Caller(Message())
    (dispid,), _ = message.ids("ResponseQueueInfo")
    assert message.invoke(dispid, PUTREF, Variant(VT.DISPATCH, None), named=VALUE)[4] == S_OK
    assert message.invoke(dispid, GET)[0] == Variant(VT.DISPATCH, None)


# Which member
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.1-9")
def test_the_flags_say_which_member() -> None:
    """1 method, 2 get, 4 put, 8 putref; put values arrive as named argument DISPID -3."""
    info, message = Info(), Message()
    caller = Caller(info)
    assert caller.invoke("Journal", PUT, Variant(VT.I4, 1), named=VALUE)[4] == S_OK
    assert info.journal == 1
    assert caller.invoke("Journal", GET)[0] == Variant(VT.I4, 1)
    assert caller.invoke("Create", METHOD)[4] == S_OK
    assert Caller(message).invoke("ResponseQueueInfo", PUTREF, Variant(VT.DISPATCH, info), named=VALUE)[4] == S_OK
    assert message.told == [info]
    for name, flags in (("Journal", METHOD), ("Create", GET), ("Create", PUT), ("QueueGuid", PUTREF)):
        assert caller.invoke(name, flags)[4] == DISP_E_MEMBERNOTFOUND


@pytest.mark.parametrize("flags", [0, METHOD | PUT, GET | PUT, 0xF])
def test_flags_that_mean_nothing(flags: int) -> None:
    assert Caller(Info()).invoke("Journal", flags)[4] == E_INVALIDARG


@pytest.mark.spec("MQAC-3.1-16")
def test_a_call_that_wants_a_result_runs_what_there_is() -> None:
    """Invoke with flags 3 runs whichever of method and get the DISPID names."""
    info = Info()
    caller = Caller(info)
    assert caller.invoke("Journal", METHOD | GET)[0] == Variant(VT.I4, 0)
    assert caller.invoke("Open", METHOD | GET, Variant(VT.I4, 0), Variant(VT.I4, 1))[0].vt == VT.DISPATCH
    assert info.told[2:] == [1, 0]


@pytest.mark.parametrize("flags", [PUT, PUTREF, PUT | PUTREF])
def test_a_property_is_set_either_way(flags: int) -> None:
    info, message = Info(), Message()
    assert Caller(message).invoke("ResponseQueueInfo", flags, Variant(VT.DISPATCH, info), named=VALUE)[4] == S_OK
    assert message.told == [info]
    assert Caller(info).invoke("Journal", flags, Variant(VT.I4, 5), named=VALUE)[4] == S_OK
    assert info.journal == 5


@pytest.mark.parametrize("dispid", [0, -1, -5, 0x6002_FFFF, 0x7FFF_FFFF])
@pytest.mark.spec("MQAC-3.1-12")
def test_a_dispid_that_nothing_has(dispid: int) -> None:
    for flags in (METHOD, GET, PUT, PUTREF):
        assert Caller(Info()).invoke(dispid, flags)[4] == DISP_E_MEMBERNOTFOUND


@pytest.mark.spec("MQAC-3.1-12")
def test_a_property_that_is_read_only() -> None:
    """A put to a read-only property such as QueueGuid returns DISP_E_MEMBERNOTFOUND."""
    value = Variant(VT.BSTR, "{1}")
    assert Caller(Info()).invoke("QueueGuid", PUT, value, named=VALUE)[4] == DISP_E_MEMBERNOTFOUND
    assert Caller(Info()).invoke("QueueGuid", GET)[0] == Variant(VT.BSTR, "{0}")


def test_the_default_member_is_item() -> None:
    assert Caller(Collection()).invoke(0, METHOD | GET, Variant(VT.BSTR, "key"))[0] == Variant(VT.BSTR, "key")


def test_a_member_that_the_object_lacks() -> None:
    _, info, *_, hresult = Caller(Info()).invoke("Label", GET)
    assert (info.scode, hresult) == (E_NOTIMPL, DISP_E_EXCEPTION)


# Arguments
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.1-10")
def test_arguments_are_in_reverse_order() -> None:
    info = Info()
    Caller(info).invoke("Open", METHOD, Variant(VT.I4, 7), Variant(VT.I4, 2))
    assert info.told == ["IMSMQQueueInfo4", "Open", 2, 7]


@pytest.mark.spec("MQAC-3.1-10")
def test_arguments_by_reference_come_apart() -> None:
    """By-reference arguments are VT_EMPTY in rgvarg.

    They come through rgVarRef at the indices in rgVarRefIdx.
    """
    info = Info()
    caller = Caller(info)
    by_reference = Variant(VT.BYREF | VT.I2, 2)
    *_, changed, hresult = caller.invoke("Open", METHOD, Variant(VT.I4, 7), EMPTY, refs={1: by_reference})
    assert (info.told[2:], hresult) == ([2, 7], S_OK)
    # They go back, as they are.
    assert changed == (by_reference,)
    # The caller's variable is a VARIANT itself.
    refs = {0: Variant(VT.BYREF | VT.VARIANT, Variant(VT.BSTR, "3")), 1: by_reference}
    caller.invoke("Open", METHOD, EMPTY, EMPTY, refs=refs)
    assert info.told[6:] == [2, 3]
    # Both failed and successful calls give them back.
    assert caller.invoke("Update", METHOD, EMPTY, refs={0: by_reference})[3] == (by_reference,)


@pytest.mark.parametrize(
    ("given", "refs"),
    [
        ((EMPTY,), {1: Variant(VT.BYREF | VT.I4, 1)}),
        ((EMPTY,), {0xFFFF_FFFF: Variant(VT.BYREF | VT.I4, 1)}),
        ((Variant(VT.I4, 1),), {0: Variant(VT.BYREF | VT.I4, 1)}),
        ((EMPTY,), {0: Variant(VT.I4, 1)}),
        ((), {0: Variant(VT.BYREF | VT.I4, 1)}),
    ],
)
def test_references_that_do_not_fit_the_arguments(given: tuple[Variant, ...], refs: dict[int, Variant]) -> None:
    """MS-OAUT 3.1.4.4.1."""
    info = Info()
    assert Caller(info).invoke("Create", METHOD, *given, refs=refs)[4] == E_INVALIDARG
    assert info.told == []


def test_named_arguments() -> None:
    info = Info()
    caller = Caller(info)
    (opened, access, share_mode), _ = caller.ids("Open", "Access", "ShareMode")
    caller.invoke(opened, METHOD, Variant(VT.I4, 7), Variant(VT.I4, 2), named=(share_mode, access))
    caller.invoke(opened, METHOD, Variant(VT.I4, 2), Variant(VT.I4, 7), named=(access, share_mode))
    # The named ones stand first, the positional ones last.
    caller.invoke(opened, METHOD, Variant(VT.I4, 7), Variant(VT.I4, 2), named=(share_mode,))
    assert info.told == ["IMSMQQueueInfo4", "Open", 2, 7] * 3
    caller.invoke("Create", METHOD, Variant(VT.I4, 1), named=(1,))
    assert info.told[12:] == [MISSING, Variant(VT.I4, 1)]


@pytest.mark.parametrize(
    ("named", "index"),
    [((2,), 0), ((-1,), 0), ((DISPID_PROPERTYPUT,), 0), ((1, 1), 1), ((1, 0x7FFF_FFFF), 1), ((0,), 0)],
)
def test_names_of_arguments_that_are_none(named: tuple[int, ...], index: int) -> None:
    """DISP_E_PARAMNOTFOUND with the index of the argument.

    A parameter that already has an argument does not accept another.
    """
    given = (Variant(VT.I4, 7), Variant(VT.I4, 2))
    assert Caller(Info()).invoke("Open", METHOD, *given, named=named)[2::2] == (index, DISP_E_PARAMNOTFOUND)


def test_more_names_than_arguments() -> None:
    assert Caller(Info()).invoke("Open", METHOD, named=(0, 1))[4] == E_INVALIDARG


def test_arguments_left_out() -> None:
    info = Info()
    caller = Caller(info)
    assert caller.invoke("Create", METHOD)[4] == S_OK
    assert caller.invoke("Create", METHOD, Variant(VT.I2, -1))[4] == S_OK
    assert caller.invoke("Create", METHOD, MISSING, Variant(VT.BOOL, value=True))[4] == S_OK
    assert info.told == [MISSING, MISSING, Variant(VT.I2, -1), MISSING, Variant(VT.BOOL, value=True), MISSING]


ONE = Variant(VT.I4, 1)


@pytest.mark.parametrize(
    ("name", "flags", "given", "named", "hresult", "index"),
    [
        # Too many or too few.
        ("Open", METHOD, (ONE, ONE, ONE), (), DISP_E_BADPARAMCOUNT, 0),
        ("Open", METHOD, (ONE,), (), DISP_E_BADPARAMCOUNT, 0),
        ("Open", METHOD, (), (), DISP_E_BADPARAMCOUNT, 0),
        ("Update", METHOD, (ONE,), (), DISP_E_BADPARAMCOUNT, 0),
        ("Journal", GET, (ONE,), (), DISP_E_BADPARAMCOUNT, 0),
        ("Journal", PUT, (), (), DISP_E_BADPARAMCOUNT, 0),
        # Not to be turned into what is wanted: the index is that in rgvarg.
        ("Open", METHOD, (ONE, Variant(VT.BSTR, "x")), (), DISP_E_TYPEMISMATCH, 1),
        ("Open", METHOD, (NULL, ONE), (), DISP_E_TYPEMISMATCH, 0),
        ("Journal", PUT, (Variant(VT.ARRAY | VT.I4, SafeArray.of(VT.I4, [1])),), VALUE, DISP_E_TYPEMISMATCH, 0),
        ("PathName", PUT, (Variant(VT.DISPATCH, None),), VALUE, DISP_E_TYPEMISMATCH, 0),
        ("Open", METHOD, (ONE, Variant(VT.R8, 1e10)), (), DISP_E_OVERFLOW, 1),
        # One that must be there is marked as left out, or is when others are named.
        ("Open", METHOD, (MISSING, ONE), (), DISP_E_PARAMNOTOPTIONAL, 0),
        ("Open", METHOD, (ONE,), (1,), DISP_E_PARAMNOTOPTIONAL, 0),
        # A type that nothing here has.
        ("Open", METHOD, (Variant(VT.RECORD, RecordValue(None, None)), ONE), (), DISP_E_BADVARTYPE, 0),
        ("Create", METHOD, (ONE, Variant(VT.RECORD, RecordValue(None, None))), (), DISP_E_BADVARTYPE, 1),
    ],
)
@pytest.mark.spec("MQAC-3.1-13")
def test_arguments_that_are_wrong(
    name: str, flags: int, given: tuple[Variant, ...], named: tuple[int, ...], hresult: int, index: int
) -> None:
    """Each kind of wrong argument has its code.

    Too many or too few: 0x8002000E. Uncoercible: 0x80020005 with pArgErr index. Required but
    missing: 0x8002000F. Bad vt: 0x80020008.
    """
    info = Info()
    result, excep_info, argument, _, found = Caller(info).invoke(name, flags, *given, named=named)
    assert (found, argument) == (hresult, index)
    assert (result, excep_info) == (EMPTY, ExcepInfo())
    assert info.told == []


def test_arguments_are_turned_into_what_is_wanted() -> None:
    info = Info()
    caller = Caller(info)
    caller.invoke("Open", METHOD, Variant(VT.BSTR, "7"), Variant(VT.R8, 2.0))
    assert info.told[2:] == [2, 7]
    caller.invoke("PathName", PUT, Variant(VT.I4, 5), named=VALUE)
    assert info.path_name == "5"
    # Without its name, as some clients do.
    caller.invoke("PathName", PUT, Variant(VT.BSTR, None))
    assert info.path_name is None


def test_objects_as_arguments() -> None:
    info, message, exporter = Info(), Message(), Exporter()
    caller = Caller(message, exporter=exporter)

    def put(value: Variant) -> tuple[int, int]:
        result = caller.invoke("ResponseQueueInfo", PUTREF, value, named=VALUE)
        return result[4], result[2]

    assert put(Variant(VT.DISPATCH, info)) == (S_OK, 0)
    assert put(Variant(VT.UNKNOWN, info)) == (S_OK, 0)
    assert put(Variant(VT.DISPATCH, None)) == (S_OK, 0)
    foreign = Foreign(iid=IID_IDISPATCH)
    assert put(Variant(VT.DISPATCH, exporter.let_in(foreign))) == (S_OK, 0)
    assert message.told == [info, info, None, foreign]
    # An object of another kind, and what is none.
    assert put(Variant(VT.DISPATCH, Queue())) == (DISP_E_TYPEMISMATCH, 0)
    for other in (EMPTY, NULL, Variant(VT.I4, 0), Variant(VT.BSTR, "")):
        assert put(other) == (DISP_E_TYPEMISMATCH, 0)
    assert len(message.told) == 4


def test_objects_in_variables_of_the_caller() -> None:
    """Scripts pass a variable as VT_BYREF|VT_VARIANT with the object in it.

    The object is returned with new references.
    """
    info, message, exporter = Info(), Message(), Exporter()
    caller = Caller(message, exporter=exporter)
    for inner in (info, exporter.let_in(Foreign(iid=IID_IDISPATCH))):
        variable = Variant(VT.BYREF | VT.VARIANT, Variant(VT.DISPATCH, inner))
        *_, changed, hresult = caller.invoke("ResponseQueueInfo", PUTREF, EMPTY, named=VALUE, refs={0: variable})
        assert hresult == S_OK
        wanted = exporter.marshal(info, IID_IDISPATCH) if inner is info else inner
        assert changed == (Variant(VT.BYREF | VT.VARIANT, Variant(VT.DISPATCH, wanted)),)
    assert message.told[0] is info
    assert isinstance(message.told[1], Foreign)


def test_an_object_that_is_not_there() -> None:
    """The call fails before it begins; it has as many out parameters as the client expects."""
    message = Message()
    stray = Variant(VT.BYREF | VT.DISPATCH, Foreign(iid=IID_IDISPATCH).objref)
    answer = Caller(message).invoke("ResponseQueueInfo", PUTREF, EMPTY, named=VALUE, refs={0: stray})
    assert answer == (EMPTY, ExcepInfo(), 0, (EMPTY,), E_NOINTERFACE)
    assert message.told == []


def test_hresults_as_arguments() -> None:
    event = Event()
    caller = Caller(event, tables.IMSMQ_PRIVATE_EVENT)
    for status in (Variant(VT.ERROR, MQ_ERROR_IO_TIMEOUT), Variant(VT.I4, MQ_ERROR_IO_TIMEOUT - (1 << 32))):
        assert caller.invoke("FireArrivedErrorEvent", METHOD, ONE, status, Variant(VT.DISPATCH, Queue()))[4] == S_OK
    assert event.told[1::3] == [MQ_ERROR_IO_TIMEOUT, MQ_ERROR_IO_TIMEOUT]


# Results
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.1-15")
def test_results_have_the_types_of_the_idl() -> None:
    """Each IDL type has its VARIANT type.

    Long is VT_I4, short VT_I2, VARIANT_BOOL VT_BOOL, BSTR VT_BSTR, an interface VT_DISPATCH, and
    VARIANT is itself.
    """
    info = Info()
    caller = Caller(info)
    assert caller.invoke("Journal", GET)[0] == Variant(VT.I4, 0)
    assert caller.invoke("IsTransactional", GET)[0] == Variant(VT.I2, 1)
    assert caller.invoke("IsTransactional2", GET)[0] == Variant(VT.BOOL, value=True)
    assert caller.invoke("PathName", GET)[0] == Variant(VT.BSTR, None)
    assert caller.invoke("CreateTime", GET)[0] == Variant(VT.DATE, 25569.0)
    assert caller.invoke("Create", METHOD)[0] == EMPTY
    result = caller.invoke("Open", METHOD, ONE, ONE)[0]
    assert (result.vt, result.value.iid) == (VT.DISPATCH, IID_IDISPATCH)
    assert isinstance(caller.object_of(result.value), Queue)


@pytest.mark.spec("MQAC-3.1-3")
def test_vtable_and_invoke_reach_the_same_object() -> None:
    info = Info()
    caller, vtable = Caller(info), Caller(info, tables.IMSMQ_QUEUE_INFO4)
    vtable.put("PathName", "by vtable")
    assert caller.invoke("PathName", GET)[0].value == "by vtable"
    caller.invoke("PathName", PUT, Variant(VT.BSTR, "by name"), named=VALUE)
    assert vtable.get("PathName") == ("by name", S_OK)


@pytest.mark.spec("MQAC-3.1-3")
def test_codes_of_success_are_returned_both_ways() -> None:
    """Both ways return success codes, including S_FALSE and 0x400E000A.

    The code of a failure appears as EXCEPINFO.scode.
    """
    assert Caller(Info(), tables.IMSMQ_QUEUE_INFO4).call("Refresh")[1] == MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
    assert Caller(Info()).invoke("Refresh", METHOD)[1::3] == (ExcepInfo(), MQ_INFORMATION_INTERNAL_USER_CERT_EXIST)
    assert Caller(Message(), tables.IMSMQ_MESSAGE4).get("Body") == (Variant(VT.BSTR, "body"), S_FALSE)
    assert Caller(Message()).invoke("Body", GET)[0::4] == (Variant(VT.BSTR, "body"), S_FALSE)
    assert Caller(Info(), tables.IMSMQ_QUEUE_INFO4).call("Update")[1] == MQ_ERROR_QUEUE_NOT_FOUND
    assert Caller(Info()).invoke("Update", METHOD)[1].scode == MQ_ERROR_QUEUE_NOT_FOUND


@pytest.mark.spec("MQAC-3.1-11")
def test_a_failure_is_an_exception_with_its_code() -> None:
    """DISP_E_EXCEPTION with EXCEPINFO.scode set to the member's HRESULT and wCode 0."""
    result, info, argument, _, hresult = Caller(Info()).invoke("Update", METHOD)
    assert (hresult, info.scode, info.w_code, result, argument) == (
        DISP_E_EXCEPTION,
        MQ_ERROR_QUEUE_NOT_FOUND,
        0,
        EMPTY,
        0,
    )
    assert info.bstr_source == "Info"
    assert "no such queue" in (info.bstr_description or "")
    # The same when it fails later, and with COM's own codes.
    _, info, *_, hresult = Caller(Info()).invoke("Open", METHOD, ONE, Variant(VT.I4, 200))
    assert (hresult, info.scode) == (DISP_E_EXCEPTION, MQ_ERROR_QUEUE_NOT_FOUND)
    _, info, *_, hresult = Caller(Message()).invoke("HashAlgorithm", PUT, ONE, named=VALUE)
    assert (hresult, info.scode, info.bstr_description) == (DISP_E_EXCEPTION, E_INVALIDARG, None)


def test_a_bug_is_an_exception_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        _, info, *_, hresult = Caller(Info()).invoke("Delete", METHOD)
    assert (hresult, info.scode, info.bstr_description) == (DISP_E_EXCEPTION, E_UNEXPECTED, None)
    assert "a bug" in caplog.text


@pytest.mark.spec("MQAC-3.1-14")
def test_what_the_client_does_not_want_is_empty() -> None:
    """Flags suppress results.

    0x20000 makes pVarResult VT_EMPTY, 0x40000 makes EXCEPINFO zero with NULL strings, 0x80000 makes
    pArgErr 0.
    """
    caller = Caller(Info())
    assert caller.invoke("Journal", GET)[0] == Variant(VT.I4, 0)
    assert caller.invoke("Journal", GET | DISPATCH_ZERO_VAR_RESULT)[0::4] == (EMPTY, S_OK)
    assert caller.invoke("Update", METHOD)[1] != ExcepInfo()
    assert caller.invoke("Update", METHOD | DISPATCH_ZERO_EXCEP_INFO)[1::3] == (ExcepInfo(), DISP_E_EXCEPTION)
    wrong = (ONE, Variant(VT.BSTR, "x"))
    assert caller.invoke("Open", METHOD, *wrong)[2] == 1
    assert caller.invoke("Open", METHOD | DISPATCH_ZERO_ARG_ERR, *wrong)[2::2] == (0, DISP_E_TYPEMISMATCH)
    # What comes later, too.
    assert caller.invoke("Open", METHOD | DISPATCH_ZERO_VAR_RESULT, ONE, ONE)[0::4] == (EMPTY, S_OK)


@pytest.mark.spec("MQAC-3.1-14")
def test_a_result_that_nobody_wants_is_not_given_out() -> None:
    """No reference is made that the client would never release."""
    released: list[ComObject] = []

    class Made(Queue):
        def released(self) -> None:
            released.append(self)

    class Opening(Info):
        async def open(self, call: ComCall, access: int, share_mode: int) -> ComObject:
            return Made()

    exporter = Exporter()
    Caller(Opening(), exporter=exporter).invoke("Open", METHOD | DISPATCH_ZERO_VAR_RESULT, ONE, ONE)
    assert exporter.objects == {}
    assert len(released) == 1


def test_an_object_without_a_dispatch_interface() -> None:
    bare = Caller(type("Bare", (ComObject,), {})())
    assert bare.ids("Any") == ((0,), E_NOTIMPL)


# Anything
# --------------------------------------------------------------------------------------------------

DUAL = [(coclass, table) for coclass in tables.COCLASSES for table in coclass.interfaces]
some_variants = st.sampled_from(
    [
        *(EMPTY, NULL, MISSING, ONE, Variant(VT.BSTR, "x"), Variant(VT.BSTR, "7"), Variant(VT.DISPATCH, None)),
        *(Variant(VT.ARRAY | VT.UI1, b"x"), Variant(VT.BYREF | VT.I4, 1), Variant(VT.RECORD, RecordValue(None, None))),
    ]
)


@given(
    st.sampled_from(DUAL),
    st.integers(0, 60),
    st.integers(0, 15) | st.sampled_from([METHOD, GET, PUT, PUTREF]),
    st.lists(some_variants, max_size=4),
    st.lists(st.integers(-4, 4), max_size=3),
)
def test_any_call_is_answered(
    which: tuple[Coclass, InterfaceTable], index: int, flags: int, given_: list[Variant], named: list[int]
) -> None:
    """An object that has nothing says so, or says what is wrong with the call."""
    coclass, table = which
    obj = type("Empty", (ComObject,), {"interfaces": coclass.interfaces})()
    dispid = table.members[index % len(table.members)].dispid if table.members else index
    *_, hresult = Caller(obj, table).invoke(dispid, flags, *given_, named=tuple(named))
    assert hresult in (
        *(DISP_E_EXCEPTION, DISP_E_MEMBERNOTFOUND, DISP_E_BADPARAMCOUNT, DISP_E_TYPEMISMATCH, DISP_E_BADVARTYPE),
        *(DISP_E_PARAMNOTOPTIONAL, DISP_E_PARAMNOTFOUND, DISP_E_OVERFLOW, E_INVALIDARG),
    )


# The other side is impacket's
# ----------------------------------------------------------------------------------------


def test_impacket_asks_for_names_and_invokes() -> None:
    pytest.importorskip("impacket", reason="impacket is not installed")
    ndr: Any = importlib.import_module("impacket.dcerpc.v5.ndr")
    oaut: Any = importlib.import_module("impacket.dcerpc.v5.dcom.oaut")

    def plain(call: type[Any]) -> Any:  # noqa: ANN401
        """Take ORPCTHIS or ORPCTHAT, which the exporter handles, off a declaration."""
        return type(call.__name__, (ndr.NDRCALL,), {"opnum": 0, "structure": call.structure})

    info = Info()
    caller = Caller(info)
    asked = plain(oaut.IDispatch_GetIDsOfNames)()
    asked["riid"] = oaut.IID_NULL
    name = oaut.LPOLESTR()
    name["Data"] = "PathName\0"
    asked["rgszNames"].append(name)
    asked["cNames"], asked["lcid"] = 1, 0
    answer = plain(oaut.IDispatch_GetIDsOfNamesResponse)(caller.raw(caller.find("GetIDsOfNames"), asked.getData()))
    (dispid,) = answer["rgDispId"]
    assert dispid == caller.ids("PathName")[0][0]

    def invoke(flags: int, *given: Any, named: tuple[int, ...] = ()) -> Any:  # noqa: ANN401
        request = plain(oaut.IDispatch_Invoke)()
        request["dispIdMember"], request["riid"], request["lcid"], request["dwFlags"] = dispid, oaut.IID_NULL, 0, flags
        params = oaut.DISPPARAMS(None, False)
        if given:
            params["rgvarg"].extend(given)
        else:
            params["rgvarg"] = ndr.NULL
        if named:
            params["rgdispidNamedArgs"].extend(named)
        else:
            params["rgdispidNamedArgs"] = ndr.NULL
        params["cArgs"], params["cNamedArgs"] = len(given), len(named)
        request["pDispParams"] = params
        request["cVarRef"], request["rgVarRefIdx"], request["rgVarRef"] = 0, [], []
        data = caller.raw(caller.find("Invoke"), request.getData())
        return plain(oaut.IDispatch_InvokeResponse)(data)

    value = oaut.VARIANT(None, False)
    value["clSize"] = 5
    value["vt"] = value["_varUnion"]["tag"] = VT.BSTR
    value["_varUnion"]["bstrVal"]["asData"] = ".\\private$\\q"
    assert invoke(PUT, value, named=(0xFFFF_FFFD,))["ErrorCode"] == S_OK
    assert info.path_name == ".\\private$\\q"
    got = invoke(GET)
    assert (got["pVarResult"]["_varUnion"]["bstrVal"]["asData"], got["ErrorCode"]) == (".\\private$\\q", S_OK)
    assert got["pExcepInfo"]["scode"] == 0
