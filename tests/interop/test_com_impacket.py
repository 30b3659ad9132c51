"""impacket uses a queue manager as a COM client.

Covered: activation, revisions, Invoke and the vtable, and an application's typical use of queues.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from tests.cli.conftest import free_address
from tests.interop.com_daemon import PASSWORD, USER, ComDaemon, com_daemon
from tests.interop.com_impacket import IID_IDISPATCH, Object, Peer, dcomrt, dtypes, oaut, plain, variant, wire
from tests.statuses import MQ_ERROR_QUEUE_NOT_ACTIVE, MQ_ERROR_QUEUE_NOT_FOUND, MQ_ERROR_SHARING_VIOLATION

rpcrt = pytest.importorskip("impacket.dcerpc.v5.rpcrt")
Untyped: TypeAlias = Any  # impacket has no types

LEVELS = {"integrity": 5, "privacy": 6}

# MC-MQAC 1.9.
CLSID_APPLICATION = "d7d6e086-dccd-11d0-aa4b-0060970debae"
CLSID_COLLECTION = "f72b9031-2f0c-43e8-924e-e6052cdc493f"
CLSID_MESSAGE = "d7d6e075-dccd-11d0-aa4b-0060970debae"
CLSID_QUEUE_INFO = "d7d6e07c-dccd-11d0-aa4b-0060970debae"
CLSID_QUEUE_MANAGEMENT = "33b6d07e-f27d-42fa-b2d7-bf82e11e9374"
CLSID_TRANSACTION_DISPENSER = "d7d6e084-dccd-11d0-aa4b-0060970debae"
# IMSMQQueueInfo, 2, 3 and 4.
IID_QUEUE_INFOS = [
    "d7d6e07b-dccd-11d0-aa4b-0060970debae",
    "fd174a80-89cf-11d2-b0f2-00e02c074f6b",
    "eba96b1d-2168-11d3-898c-00e02c074f6b",
    "eba96b21-2168-11d3-898c-00e02c074f6b",
]
IID_QUEUE4 = "eba96b20-2168-11d3-898c-00e02c074f6b"
IID_MESSAGE4 = "eba96b23-2168-11d3-898c-00e02c074f6b"

MQ_RECEIVE_ACCESS, MQ_SEND_ACCESS, MQ_PEEK_ACCESS = 1, 2, 32
MQ_DENY_NONE, MQ_DENY_RECEIVE_SHARE = 0, 1


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComDaemon]:
    with com_daemon(tmp_path_factory.mktemp("com"), free_address()) as made:
        yield made


@pytest.fixture(params=list(LEVELS.values()), ids=list(LEVELS))
def peer(daemon: ComDaemon, request: pytest.FixtureRequest) -> Iterator[Peer]:
    made = Peer(daemon.address, USER, PASSWORD, request.param)
    yield made
    made.close()


@pytest.fixture
def private_peer(daemon: ComDaemon) -> Iterator[Peer]:
    made = Peer(daemon.address, USER, PASSWORD, LEVELS["privacy"])
    yield made
    made.close()


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    return rf".\private$\{name}"


def created(peer: Peer, path: str, *arguments: object) -> Object:
    info = peer.create(CLSID_QUEUE_INFO)
    info.put("PathName", path)
    info.call("Create", *arguments)
    return info


def send(peer: Peer, info: Object, *labels: str, transaction: object = 0) -> None:
    queue = info.call("Open", MQ_SEND_ACCESS, MQ_DENY_NONE)
    for label in labels:
        message = peer.create(CLSID_MESSAGE)
        message.put("Label", label)
        message.put("Body", f"body of {label}")
        message.call("Send", queue, transaction)
    queue.call("Close")


def failure(caught: pytest.ExceptionInfo[Untyped]) -> int:
    code: int = caught.value.get_error_code()
    return code & 0xFFFF_FFFF


def member_failure(caught: pytest.ExceptionInfo[Untyped]) -> int:
    """Return the error of a member; Invoke itself returns DISP_E_EXCEPTION."""
    assert failure(caught) == 0x80020009
    code: int = caught.value.get_packet()["pExcepInfo"]["scode"]
    return code & 0xFFFF_FFFF


# Objects
# --------------------------------------------------------------------------------------------------


def test_every_revision_is_an_interface_of_one_object(peer: Peer, path: str) -> None:
    created(peer, path)
    info = peer.create(CLSID_QUEUE_INFO, IID_QUEUE_INFOS[0])
    found = [info.query(iid) for iid in IID_QUEUE_INFOS]
    # OXID and OID are the same, each interface has its own IPID.
    assert {each.objref[32:48] for each in found} == {info.objref[32:48]}
    assert len({each.ipid for each in found}) == 4
    assert found[0].ipid == info.ipid
    info.query(IID_IDISPATCH).put("PathName", path)
    for each in found:
        assert path_name(each).lower().endswith(path[1:].lower())


def test_an_interface_that_is_not_there(private_peer: Peer) -> None:
    info = private_peer.create(CLSID_QUEUE_INFO)
    # It does not look at the code of an interface, and takes the NULL of it for a reference.
    assert info.query(IID_MESSAGE4).ipid == bytes(16)


def test_a_class_that_is_not_there(private_peer: Peer) -> None:
    with pytest.raises(rpcrt.DCERPCException) as refused:
        private_peer.create("00000000-1111-2222-3333-444444444444")
    assert failure(refused) == 0x80040154


def test_a_wrong_password(daemon: ComDaemon) -> None:
    peer = Peer(daemon.address, USER, "wrong", LEVELS["integrity"])
    with pytest.raises(rpcrt.DCERPCException, match="access_denied"):
        peer.create(CLSID_QUEUE_INFO)
    peer.close()


def test_what_is_released_is_gone(peer: Peer, path: str) -> None:
    """The reader that denied others the queue closes it by letting go of it."""
    info = created(peer, path)
    reader = info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_RECEIVE_SHARE)
    with pytest.raises(rpcrt.DCERPCException) as refused:
        info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_RECEIVE_SHARE)
    assert member_failure(refused) == MQ_ERROR_SHARING_VIOLATION
    reader.add_ref()
    reader.release(5)
    assert reader.get("IsOpen2") is True
    reader.release()
    with pytest.raises(rpcrt.DCERPCException, match=r"RPC_E_DISCONNECTED|80010108"):
        reader.get("IsOpen2")
    assert info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_RECEIVE_SHARE).get("Access") == MQ_RECEIVE_ACCESS


# By name
# --------------------------------------------------------------------------------------------------


def test_names(peer: Peer) -> None:
    info = peer.create(CLSID_QUEUE_INFO)
    assert info.dispids("PathName") == info.dispids("pathname")
    open_, access, share_mode = info.dispids("Open", "Access", "ShareMode")
    assert open_ != info.dispids("Create")[0]
    assert (access, share_mode) == (0, 1)
    with pytest.raises(rpcrt.DCERPCException) as unknown:
        info.dispids("Colour")
    assert failure(unknown) == 0x80020006
    assert oaut.IDispatch(info.interface).GetTypeInfoCount()["pctinfo"] == 0


def test_a_member_that_fails_says_why(peer: Peer) -> None:
    info = peer.create(CLSID_QUEUE_INFO)
    info.put("PathName", r".\private$\nowhere")
    with pytest.raises(rpcrt.DCERPCException) as failed:
        info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_NONE)
    assert member_failure(failed) == MQ_ERROR_QUEUE_NOT_FOUND
    assert failed.value.get_packet()["pExcepInfo"]["bstrSource"]["asData"] == "MSMQQueueInfo"


def test_send_and_receive(peer: Peer, path: str) -> None:
    info = created(peer, path)
    send(peer, info, "one", "two")
    queue = info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_NONE)
    peeked = queue.call("Peek", ReceiveTimeout=1000)
    assert (peeked.get("Label"), peeked.get("Body")) == ("one", "body of one")
    for label in ("one", "two"):
        received = queue.call("Receive", WantBody=True, ReceiveTimeout=1000)
        assert (received.get("Label"), received.get("Body")) == (label, f"body of {label}")
        assert abs(received.get("ArrivedTime") - days(dt.datetime.now())) < 1  # noqa: DTZ005 (DATEs are local)
    assert queue.call("Receive", ReceiveTimeout=1) is None
    info.call("Delete")


def days(moment: dt.datetime) -> float:
    return (moment - dt.datetime(1899, 12, 30)) / dt.timedelta(days=1)  # noqa: DTZ001


def test_a_cursor(private_peer: Peer, path: str) -> None:
    info = created(private_peer, path)
    send(private_peer, info, "one", "two", "three")
    queue = info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_NONE)
    assert queue.call("PeekCurrent", ReceiveTimeout=100).get("Label") == "one"
    assert queue.call("PeekNext", ReceiveTimeout=100).get("Label") == "two"
    assert queue.call("ReceiveCurrent", ReceiveTimeout=100).get("Label") == "two"
    assert queue.call("PeekCurrent", ReceiveTimeout=100).get("Label") == "three"
    queue.call("Reset")
    assert queue.call("PeekCurrent", ReceiveTimeout=100).get("Label") == "one"


def test_lookup_ids(private_peer: Peer, path: str) -> None:
    info = created(private_peer, path)
    send(private_peer, info, "one", "two", "three")
    queue = info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_NONE)
    first = queue.call("PeekFirstByLookupId")
    identifier = first.get("LookupId")
    assert isinstance(identifier, str)
    second = queue.call("PeekNextByLookupId", identifier)
    assert second.get("Label") == "two"
    assert queue.call("PeekPreviousByLookupId", second.get("LookupId")).get("Label") == "one"
    assert queue.call("ReceiveByLookupId", second.get("LookupId")).get("Label") == "two"
    assert queue.call("ReceiveLastByLookupId").get("Label") == "three"
    assert queue.call("PeekLastByLookupId").get("Label") == "one"


def test_transactions(peer: Peer, path: str) -> None:
    info = created(peer, path, True)
    dispenser = peer.create(CLSID_TRANSACTION_DISPENSER)
    for verb, expected in [("Abort", None), ("Commit", "one")]:
        transaction = dispenser.call("BeginTransaction")
        send(peer, info, "one", transaction=transaction)
        queue = info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_NONE)
        assert queue.call("Peek", ReceiveTimeout=1) is None
        transaction.call(verb)
        peeked = queue.call("Peek", ReceiveTimeout=1000 if expected else 1)
        assert (peeked and peeked.get("Label")) == expected
    transaction = dispenser.call("BeginTransaction")
    assert queue.call("Receive", transaction, ReceiveTimeout=1000).get("Label") == "one"
    assert queue.call("Peek", ReceiveTimeout=1) is None
    transaction.call("Abort")
    assert queue.call("Receive", Transaction=3, ReceiveTimeout=1000).get("IsLastInTransaction2") is True


def test_management(private_peer: Peer, daemon: ComDaemon, path: str) -> None:
    info = created(private_peer, path)
    send(private_peer, info, "one", "two")
    managed = private_peer.create(CLSID_QUEUE_MANAGEMENT)
    # As on Windows: a queue that is not open is not active and has no information.
    with pytest.raises(rpcrt.DCERPCException) as refused:
        managed.call("Init", PathName=path)
    assert member_failure(refused) == MQ_ERROR_QUEUE_NOT_ACTIVE
    reader = info.call("Open", MQ_PEEK_ACCESS, MQ_DENY_NONE)
    assert reader.get("Access") == MQ_PEEK_ACCESS
    managed.call("Init", PathName=path)
    assert managed.get("MessageCount") == 2
    assert managed.get("IsLocal") is True
    assert managed.get("BytesInQueue") > 0
    assert managed.get("JournalMessageCount") == 0
    application = private_peer.create(CLSID_APPLICATION)
    guid = application.call("MachineIdOfMachineName", daemon.name)
    assert application.call("MachineNameOfMachineId", guid).lower() == daemon.name.lower()
    assert application.get("MSMQVersionMajor") >= 3


def test_a_response_queue_goes_along(private_peer: Peer, path: str) -> None:
    """An object of the server as the value of a property, and another back."""
    info = created(private_peer, path)
    queue = info.call("Open", MQ_SEND_ACCESS, MQ_DENY_NONE)
    message = private_peer.create(CLSID_MESSAGE)
    assert message.get("ResponseQueueInfo") is None
    message.put("ResponseQueueInfo", info)
    message.call("Send", queue)
    received = info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_NONE).call("Receive", ReceiveTimeout=1000)
    assert received.get("ResponseQueueInfo").get("FormatName") == info.get("FormatName")


# Through the vtable, written down again from MC-MQAC in impacket's words
# ---------------------------------------------


class DCERPCSessionError(dcomrt.DCERPCSessionError):  # type: ignore[misc]  # untyped
    """impacket looks for it beside the calls."""


class GetText(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = ()


class GetTextResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("text", oaut.BSTR), ("ErrorCode", oaut.error_status_t))


class PutText(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = (("text", oaut.BSTR),)


class PutTextResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("ErrorCode", oaut.error_status_t),)


class PutVariant(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = (("value", oaut.VARIANT),)


class PutVariantResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("ErrorCode", oaut.error_status_t),)


class GetVariant(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = ()


class GetVariantResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("value", oaut.VARIANT), ("ErrorCode", oaut.error_status_t))


class TwoVariants(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = (("first", oaut.VARIANT), ("second", oaut.VARIANT))


class TwoVariantsResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("ErrorCode", oaut.error_status_t),)


class Open(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = (("access", dtypes.LONG), ("share_mode", dtypes.LONG))


class OpenResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("object", dcomrt.PMInterfacePointer), ("ErrorCode", oaut.error_status_t))


class Send(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = (("queue", dcomrt.PMInterfacePointer), ("transaction", oaut.VARIANT))


class SendResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("ErrorCode", oaut.error_status_t),)


class Receive(dcomrt.DCOMCALL):  # type: ignore[misc]
    structure = tuple((name, oaut.VARIANT) for name in ("transaction", "destination", "body", "timeout", "connector"))


class ReceiveResponse(dcomrt.DCOMANSWER):  # type: ignore[misc]
    structure = (("object", dcomrt.PMInterfacePointer), ("ErrorCode", oaut.error_status_t))


def made(kind: type[Untyped], opnum: int, **fields: object) -> Untyped:
    request = kind()
    # Of this call: one class serves several members.
    request.opnum = opnum
    for name, value in fields.items():
        if isinstance(value, str) and not isinstance(request.fields[name], oaut.VARIANT):
            request[name]["asData"] = value
        else:
            request[name] = value
    return request


def missing() -> Untyped:
    """An optional argument that is left out (MS-OAUT 3.1.4.4.3)."""
    absent = oaut.VARIANT(None, False)
    absent["clSize"] = 3
    absent["vt"] = oaut.VARENUM.VT_ERROR
    absent["_varUnion"]["tag"] = oaut.VARENUM.VT_ERROR
    absent["_varUnion"]["scode"] = 0x80020004 - (1 << 32)
    return absent


def path_name(info: Object) -> Untyped:
    """PathName of IMSMQQueueInfo, the same slot in every revision."""
    return info.request(made(GetText, 12))["text"]["asData"]


def test_the_vtable(peer: Peer, path: str) -> None:
    info = peer.create(CLSID_QUEUE_INFO, IID_QUEUE_INFOS[3])
    info.request(made(PutText, 13, text=path))
    info.request(made(TwoVariants, 32, first=missing(), second=missing()))
    assert path_name(info).lower().endswith(path[1:].lower())
    sending = peer.of(info, pointer(info.request(made(Open, 34, access=MQ_SEND_ACCESS, share_mode=MQ_DENY_NONE))))
    message = peer.create(CLSID_MESSAGE, IID_MESSAGE4)
    message.request(made(PutText, 37, text="through the vtable"))
    message.request(made(PutVariant, 28, value=variant(12345)))
    sent = made(Send, 54, transaction=missing())
    sending.add_ref()
    octets = sending.objref[:28] + struct.pack("<I", 1) + sending.objref[32:]
    sent["queue"]["ulCntData"], sent["queue"]["abData"] = len(octets), list(octets)
    message.request(sent)
    reading = peer.of(info, pointer(info.request(made(Open, 34, access=MQ_RECEIVE_ACCESS, share_mode=MQ_DENY_NONE))))
    assert str(reading.iid) == IID_QUEUE4
    names = ("transaction", "destination", "body", "connector")
    arguments = {**{name: missing() for name in names}, "timeout": variant(1000)}
    received = peer.of(reading, pointer(reading.request(made(Receive, 20, **arguments))))
    assert str(received.iid) == IID_MESSAGE4
    assert received.request(made(GetText, 36))["text"]["asData"] == "through the vtable"
    assert plain(received.request(made(GetVariant, 27))["value"]) == 12345


def pointer(answer: Untyped) -> bytes:
    return b"".join(answer["object"]["abData"])


def test_a_code_of_the_vtable(private_peer: Peer) -> None:
    info = private_peer.create(CLSID_QUEUE_INFO, IID_QUEUE_INFOS[3])
    info.request(made(PutText, 13, text=r".\private$\nowhere"))
    with pytest.raises(rpcrt.DCERPCException) as failed:
        info.request(made(Open, 34, access=MQ_RECEIVE_ACCESS, share_mode=MQ_DENY_NONE))
    assert failure(failed) == MQ_ERROR_QUEUE_NOT_FOUND


def test_octets_in_a_body(private_peer: Peer, daemon: ComDaemon, path: str) -> None:
    """Its SAFEARRAYs are broken: the array is looked for in the octets of the answer."""
    from lanner.com import connect

    data = bytes(range(256)) * 3
    info = created(private_peer, path)
    with connect(daemon.address, USER, PASSWORD) as computer:
        message = computer.dispatch("MSMQ.MSMQMessage")
        message.Body = data
        other = computer.dispatch("MSMQ.MSMQQueueInfo")
        other.PathName = path
        message.Send(other.Open(MQ_SEND_ACCESS, MQ_DENY_NONE))
    received = info.call("Open", MQ_RECEIVE_ACCESS, MQ_DENY_NONE).call("Receive", ReceiveTimeout=1000)
    body = received.query(IID_MESSAGE4)
    interface = body.interface
    interface.connect(wire(body.iid))
    call = made(GetVariant, 27)
    call["ORPCthis"] = interface.get_cinstance().get_ORPCthis()
    call["ORPCthis"]["flags"] = 0
    rpc = interface.get_dce_rpc()
    rpc.call(27, call, body.ipid)
    stub = rpc.recv()
    # MS-OAUT 2.2.30.10: one dimension, FADF_HAVEVARTYPE, elements of one octet, the type in cLocks,
    # SF_I1; the bounds; the elements.
    count = len(data)
    head = struct.pack("<IHHIIII", 1, 1, 0x0080, 1, 0x0011_0000, 0x10, count)
    assert head in stub
    assert struct.pack("<IiI", count, 0, count) + data in stub
