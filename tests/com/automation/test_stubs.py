"""Members called through their vtable.

Parameters are octets, objects are references, and results are codes.
"""

from __future__ import annotations

import importlib
import logging
import struct
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.activex import tables
from lanner.com.automation.stubs import MAX_REFERENCES, stub_of
from lanner.com.automation.values import EMPTY, MISSING, SafeArray, Variant
from lanner.com.constants import E_NOINTERFACE, E_NOTIMPL, E_UNEXPECTED, IID_IDISPATCH, IID_IUNKNOWN, S_FALSE
from lanner.com.members import IDISPATCH, InterfaceTable, Member, Parameter
from lanner.com.objects import ComCall, ComError, ComObject, Success
from lanner.com.objref import ObjRefStandard, StdObjRef
from lanner.model.errors import QueueNotFound
from lanner.rpc.ndr import BadStub, Decoder, Encoder, Value
from lanner.rpc.ndr.stream import MAX_REQUEST_ELEMENTS
from lanner.wire.vartypes import VT
from tests.com.fakes import NDR, Caller, Exporter, Foreign
from tests.statuses import MQ_ERROR_QUEUE_NOT_FOUND, MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL

ALL = [
    pytest.param(table, member, id=f"{table.name}.{member.name}.{member.opnum}")
    for table in tables.INTERFACES
    if table.is_remote
    for member in table.members
]


class Info(ComObject):
    """A queue info that records its calls."""

    interfaces: ClassVar = tables.MSMQ_QUEUE_INFO.interfaces

    def __init__(self) -> None:
        self.told: list[Value] = []
        self.path_name: str | None = None

    def get_path_name(self, call: ComCall) -> str | None:
        return self.path_name

    def put_path_name(self, call: ComCall, value: str | None) -> None:
        self.path_name = value

    def get_journal(self, call: ComCall) -> int:
        return -2

    def get_is_world_readable2(self, call: ComCall) -> bool:
        return True

    def get_create_time(self, call: ComCall) -> Variant:
        return Variant(VT.DATE, 25569.0)

    def get_modify_time(self, call: ComCall) -> None:
        return None

    def create(self, call: ComCall, is_transactional: Variant, is_world_readable: Variant) -> None:
        self.told += [is_transactional, is_world_readable]

    async def open(self, call: ComCall, access: int, share_mode: int) -> ComObject:
        self.told += [call.interface.name, call.member.name, access, share_mode]
        return Queue()

    def update(self, call: ComCall) -> None:
        raise QueueNotFound

    def refresh(self, call: ComCall) -> Success:
        return Success(MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL)

    def delete(self, call: ComCall) -> None:
        raise RuntimeError("a bug")

    def get_label(self, call: ComCall) -> None:
        raise ComError(S_FALSE + 0x8000_4000, "E_NOTIMPL, spelled out")


class Queue(ComObject):
    interfaces: ClassVar = tables.MSMQ_QUEUE.interfaces


class Message(ComObject):
    interfaces: ClassVar = tables.MSMQ_MESSAGE.interfaces

    def __init__(self) -> None:
        self.told: list[Value] = []

    def put_body(self, call: ComCall, value: Variant) -> None:
        self.told.append(value)

    def get_body(self, call: ComCall) -> Variant:
        return Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, [Variant(VT.DISPATCH, Info())]))

    def putref_response_queue_info(self, call: ComCall, value: ComObject | None) -> None:
        self.told.append(value)

    def get_response_queue_info(self, call: ComCall) -> None:
        return None

    def get_destination(self, call: ComCall) -> Any:  # noqa: ANN401
        return self.told[-1]

    def send(self, call: ComCall, destination: Value, transaction: Variant) -> None:
        self.told += [destination, transaction]


@pytest.mark.parametrize(("table", "member"), ALL)
def test_every_member_answers_whether_it_is_there_or_not(table: InterfaceTable, member: Member) -> None:
    """Its parameters are read, E_NOTIMPL and empty out parameters come back."""
    caller = Caller(type("Empty", (ComObject,), {"interfaces": (table,)})(), table)
    values: dict[str, Value] = {
        "long": -3,
        "short": -3,
        "HRESULT": MQ_ERROR_QUEUE_NOT_FOUND,
        "BSTR": "text",
        "VARIANT": Variant(VT.BSTR, "text"),
        "VARIANT*": MISSING,
    }
    arguments = [None if each.iid else values[each.type] for each in member.parameters if each.is_in]
    results, hresult = caller.call(member.name, *arguments, kind=member.kind)
    empty = {"long*": 0, "short*": 0, "VARIANT_BOOL*": False, "VARIANT*": EMPTY, "BSTR*": None}
    assert results == [empty.get(each.type) for each in member.parameters if each.is_out]
    assert hresult == E_NOTIMPL


def test_values_of_each_kind() -> None:
    caller = Caller(Info(), tables.IMSMQ_QUEUE_INFO4)
    assert caller.put("PathName", ".\\private$\\orders") == 0
    assert caller.get("PathName") == (".\\private$\\orders", 0)
    assert caller.get("Journal") == (-2, 0)
    assert caller.get("IsWorldReadable2") == (True, 0)
    assert caller.get("CreateTime") == (Variant(VT.DATE, 25569.0), 0)
    # Nothing in a VARIANT.
    assert caller.get("ModifyTime") == (EMPTY, 0)


@pytest.mark.parametrize("value", [None, "", "x"])
@pytest.mark.spec("MQAC-2.2.1-1")
def test_a_null_and_an_empty_bstr_stay_what_they_are(value: str | None) -> None:
    caller = Caller(Info(), tables.IMSMQ_QUEUE_INFO4)
    caller.put("PathName", value)
    assert caller.get("PathName") == (value, 0)


@pytest.mark.spec("MQAC-2.2.1-2")
def test_variant_bool_results_are_ffff() -> None:
    caller = Caller(Info(), tables.IMSMQ_QUEUE_INFO4)
    assert caller.raw(caller.find("IsWorldReadable2", "propget"), b"").hex() == "ffff0000" + "00000000"


def test_optional_arguments_and_references_to_arguments() -> None:
    info = Info()
    caller = Caller(info, tables.IMSMQ_QUEUE_INFO4)
    caller.call("Create", MISSING, Variant(VT.BYREF | VT.BOOL, value=True))
    caller.call("Create", Variant(VT.BYREF | VT.VARIANT, Variant(VT.BYREF | VT.I2, 1)), MISSING)
    assert info.told == [MISSING, Variant(VT.BOOL, value=True), Variant(VT.I2, 1), MISSING]


@pytest.mark.parametrize("revision", ["", "2", "3", "4"])
def test_the_revision_that_was_called_says_what_comes_back(revision: str) -> None:
    info = Info()
    table = next(each for each in tables.INTERFACES if each.name == f"IMSMQQueueInfo{revision}")
    wanted = next(each for each in tables.INTERFACES if each.name == f"IMSMQQueue{revision}")
    caller = Caller(info, table)
    (objref,), hresult = caller.call("Open", 1, 0)
    assert (objref.iid, hresult) == (wanted.iid, 0)
    assert isinstance(caller.object_of(objref), Queue)
    assert info.told == [table.name, "Open", 1, 0]


def test_codes_of_success_and_failure() -> None:
    caller = Caller(Info(), tables.IMSMQ_QUEUE_INFO4)
    assert caller.call("Update") == ([], MQ_ERROR_QUEUE_NOT_FOUND)
    assert caller.call("Refresh") == ([], MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL)
    assert caller.get("Label") == (None, E_NOTIMPL)


def test_a_bug_is_logged_and_ends_one_call(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert Caller(Info(), tables.IMSMQ_QUEUE_INFO4).call("Delete") == ([], E_UNEXPECTED)
    assert "IMSMQQueueInfo4.Delete failed" in caplog.text


def test_objects_go_in_and_come_out_inside_values() -> None:
    message, info = Message(), Info()
    caller = Caller(message, tables.IMSMQ_MESSAGE4)
    caller.put("Body", Variant(VT.DISPATCH, info))
    caller.put("Body", Variant(VT.ARRAY | VT.UNKNOWN, SafeArray.of(VT.UNKNOWN, [info, None])))
    assert message.told == [
        Variant(VT.DISPATCH, info),
        Variant(VT.ARRAY | VT.UNKNOWN, SafeArray.of(VT.UNKNOWN, [info, None])),
    ]
    body, _ = caller.get("Body")
    (element,) = body.value.elements
    assert element.value.iid == IID_IDISPATCH
    assert isinstance(caller.object_of(element.value), Info)


def test_objects_as_parameters_and_nothing() -> None:
    message, info = Message(), Info()
    caller = Caller(message, tables.IMSMQ_MESSAGE4)
    caller.put("ResponseQueueInfo", info, "propputref")
    caller.put("ResponseQueueInfo", None, "propputref")
    caller.call("Send", info, Variant(VT.I4, 0))
    assert message.told == [info, None, info, Variant(VT.I4, 0)]
    assert caller.get("ResponseQueueInfo") == (None, 0)


def test_a_property_set_the_other_way() -> None:
    """The object has only one of put and putref, and the revision declares the other.

    MC-MQAC 3.17.4.1.16.
    """
    message = Message()
    message.putref_response_queue_info_v1 = message.putref_response_queue_info  # type: ignore[attr-defined]
    caller = Caller(message, tables.IMSMQ_MESSAGE4)
    assert caller.put("ResponseQueueInfo_v1", None, "propput") == 0
    assert message.told == [None]


def test_foreign_objects_come_in_and_are_passed_on() -> None:
    exporter, foreign, message = Exporter(), Foreign(iid=IID_IUNKNOWN), Message()
    caller = Caller(message, tables.IMSMQ_MESSAGE4, exporter)
    caller.call("Send", exporter.let_in(foreign), MISSING)
    assert message.told == [foreign, MISSING]
    message.told.append(foreign)
    assert caller.get("Destination") == (foreign.objref, 0)


def test_a_reference_that_leads_nowhere() -> None:
    stray = ObjRefStandard(IID_IDISPATCH, StdObjRef(0, 5, 1, 2, UUID(int=3)), Foreign().objref.res_addr)
    message = Message()
    assert Caller(message, tables.IMSMQ_MESSAGE4).call("Send", stray, MISSING) == ([], E_NOINTERFACE)
    assert message.told == []


def test_an_object_without_the_declared_interface_is_not_given_out() -> None:
    message = Message()
    message.told.append(type("Bare", (ComObject,), {})())
    assert Caller(message, tables.IMSMQ_MESSAGE4).get("Destination") == (None, E_NOINTERFACE)


def test_so_many_references_and_no_more() -> None:
    message, info = Message(), Info()
    caller = Caller(message, tables.IMSMQ_MESSAGE4)
    caller.put("Body", Variant(VT.ARRAY | VT.DISPATCH, SafeArray.of(VT.DISPATCH, [info] * MAX_REFERENCES)))
    assert len(message.told) == 1
    with pytest.raises(BadStub, match="17 references"):
        caller.put("Body", Variant(VT.ARRAY | VT.DISPATCH, SafeArray.of(VT.DISPATCH, [info] * (MAX_REFERENCES + 1))))


def test_an_objref_that_is_none_is_a_bad_stub() -> None:
    caller = Caller(Message(), tables.IMSMQ_MESSAGE4)
    member = caller.find("ResponseQueueInfo", "propputref")
    with pytest.raises(BadStub, match="ResponseQueueInfo request: pqinfoResponse: signature"):
        caller.raw(member, struct.pack("<IIII", 1, 4, 4, 0xDEAD))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100])
def test_what_follows_the_parameters_of_a_request_is_ignored(size: int) -> None:
    """MS-DCOM 3.2.4.2: some clients append octets, which mean nothing.

    A response is not so free.
    """
    caller = Caller(Info(), tables.IMSMQ_QUEUE_INFO4)
    member = caller.find("Open")
    # The object is asynchronous: what is bad is found out before.
    assert caller.raw(member, struct.pack("<ii", 1, 0) + b"\xa5" * size)
    stub = stub_of(caller.find("PathName", "propput"))
    answer = Decoder(bytes(4 + size), NDR)
    if size > 7:
        with pytest.raises(BadStub, match="left over"):
            stub.decode_response(answer, ["x"])
    else:
        assert stub.decode_response(answer, ["x"]) == ([], 0)


def test_alignment_counts_from_what_stands_before_the_parameters() -> None:
    """A VARIANT behind an ORPCTHIS of 36 octets begins elsewhere than behind one of 32."""
    member = Caller(Message(), tables.IMSMQ_MESSAGE4).find("Body", "propput")
    for before in (32, 36):
        encoder = Encoder(NDR)
        encoder.write(bytes(before))
        stub_of(member).encode_request(encoder, [Variant(VT.R8, 1.5)])
        data = encoder.getvalue()
        assert len(data) == {32: 72, 36: 72}[before]
        decoder = Decoder(data, NDR)
        decoder.take(before)
        assert stub_of(member).decode_request(decoder) == [Variant(VT.R8, 1.5)]


def test_what_a_client_passes_wrong_is_a_value_error() -> None:
    member = Caller(Info(), tables.IMSMQ_QUEUE_INFO4).find("Open")
    with pytest.raises(ValueError, match="1 arguments where 2 belong"):
        stub_of(member).encode_request(Encoder(NDR), [1])
    with pytest.raises(ValueError, match="Open request"):
        stub_of(member).encode_request(Encoder(NDR), [1, 1 << 40])


def test_what_an_object_returns_wrong_is_a_value_error() -> None:
    class Wrong(Info):
        def get_journal(self, call: ComCall) -> int:
            return 1 << 40

    with pytest.raises(ValueError, match="Journal response"):
        Caller(Wrong(), tables.IMSMQ_QUEUE_INFO4).get("Journal")


def test_arrays_that_are_not_as_long_as_announced() -> None:
    member = Member(
        3, -1, "method", "M", (Parameter("a", "in", "VARIANT*", size_is="n"), Parameter("n", "in", "UINT")), "m"
    )
    encoder = Encoder(NDR)
    stub_of(member).encode_request(encoder, [(EMPTY, EMPTY), 3])
    with pytest.raises(BadStub, match="2 elements where 3 are announced"):
        stub_of(member).decode_request(Decoder(encoder.getvalue(), NDR))


def test_a_stub_is_made_once() -> None:
    member = tables.IMSMQ_QUEUE.members[0]
    assert stub_of(member) is stub_of(member)


SOME = [
    member
    for table in tables.INTERFACES
    for name in ("receive", "lookupqueue", "body", "send")
    for member in table.by_name.get(name, ())
] + list(IDISPATCH.members)


@given(st.sampled_from(SOME), st.binary(max_size=120))
def test_any_octets_are_arguments_or_a_bad_stub(member: Member, data: bytes) -> None:
    decoder = Decoder(data, NDR, elements=MAX_REQUEST_ELEMENTS)
    try:
        stub_of(member).decode_request(decoder)
    except BadStub:
        return
    assert decoder.position <= len(data)


# The other side is impacket's
# ----------------------------------------------------------------------------------------


def test_impacket_calls_members() -> None:
    """The members are Open and a property of IMSMQQueueInfo4.

    They are declared by hand from the document's IDL.
    """
    pytest.importorskip("impacket", reason="impacket is not installed")
    ndr: Any = importlib.import_module("impacket.dcerpc.v5.ndr")
    dtypes: Any = importlib.import_module("impacket.dcerpc.v5.dtypes")
    oaut: Any = importlib.import_module("impacket.dcerpc.v5.dcom.oaut")
    dcomrt: Any = importlib.import_module("impacket.dcerpc.v5.dcomrt")

    def declared(name: str, *fields: tuple[str, Any]) -> Any:  # noqa: ANN401
        return type(name, (ndr.NDRCALL,), {"opnum": 0, "structure": fields})

    info = Info()
    caller = Caller(info, tables.IMSMQ_QUEUE_INFO4)
    put = declared("Put", ("bstrPathName", oaut.BSTR))()
    put["bstrPathName"]["asData"] = ".\\private$\\q"
    assert caller.raw(caller.find("PathName", "propput"), put.getData()) == bytes(4)
    assert info.path_name == ".\\private$\\q"
    got = declared("Got", ("value", oaut.BSTR), ("hr", dtypes.ULONG))(
        caller.raw(caller.find("PathName", "propget"), b"")
    )
    assert (got["value"]["asData"], got["hr"]) == (".\\private$\\q", 0)

    create = declared("Create", ("a", oaut.VARIANT), ("b", oaut.VARIANT))()
    for name, value in (("a", -1), ("b", 0)):
        create[name]["clSize"] = 5
        create[name]["vt"] = create[name]["_varUnion"]["tag"] = VT.I2
        create[name]["_varUnion"]["iVal"] = value
    assert caller.raw(caller.find("Create"), create.getData()) == bytes(4)
    assert info.told == [Variant(VT.I2, -1), Variant(VT.I2, 0)]

    opened = declared("Opened", ("queue", dcomrt.PMInterfacePointer), ("hr", dtypes.ULONG))(
        caller.raw(caller.find("Open"), struct.pack("<ii", 2, 0))
    )
    assert dcomrt.OBJREF(b"".join(opened["queue"]["abData"]))["iid"] == tables.IMSMQ_QUEUE4.iid.bytes_le
    assert opened["hr"] == 0
