"""Messages, collections and management objects as clients see them over sockets.

The tests use every type that the members have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.activex.tables import (
    IMSMQ_COLLECTION,
    IMSMQ_MANAGEMENT,
    IMSMQ_MESSAGE4,
    IMSMQ_OUTGOING_QUEUE_MANAGEMENT,
    IMSMQ_QUEUE4,
    IMSMQ_QUEUE_INFO4,
    IMSMQ_QUEUE_MANAGEMENT,
    MSMQ_COLLECTION,
    MSMQ_MANAGEMENT,
    MSMQ_MESSAGE,
    MSMQ_QUEUE_INFO,
)
from lanner.com.automation.enumerators import IENUM_VARIANT
from lanner.com.automation.values import MISSING, Variant
from lanner.com.client.client import RemoteInterface
from lanner.com.client.dispatch import DISPATCH_PROPERTYGET
from lanner.com.constants import E_NOINTERFACE, E_NOTIMPL
from lanner.com.members import InterfaceTable
from lanner.com.objects import ComError
from lanner.model.live import IncomingTransactionalTransferInfo
from lanner.security.identity import Identity
from lanner.wire.sid import Sid
from lanner.wire.vartypes import VT
from tests.activex.messages import create, number, octets, text
from tests.activex.wire import Wire
from tests.activex.world import World
from tests.engine.harness import OPEN_TO_ALL
from tests.statuses import MQ_ERROR_UNINITIALIZED_OBJECT

Q = r"DIRECT=OS:.\private$\q"
OUTGOING = r"DIRECT=OS:BETA\private$\far"


def administrator(sid: Sid) -> Identity:
    return Identity("operator", sid, is_administrator=True)


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world(resolve_identity=administrator)


@pytest.fixture
def wire(world: World, tmp_path: Path) -> Iterator[Wire]:
    made = Wire(world, tmp_path)
    yield made
    made.close()


def status(wire: Wire, remote: RemoteInterface, table: InterfaceTable, name: str) -> int:
    try:
        wire.call(remote, table, name)
    except ComError as error:
        return error.hresult
    return 0


def test_every_property_of_a_message_can_be_read(world: World, wire: Wire) -> None:
    """Through the vtable and by name, with the same result."""
    message = wire.create(MSMQ_MESSAGE.clsid, IMSMQ_MESSAGE4)
    for member in IMSMQ_MESSAGE4.members:
        if member.kind != "propget":
            continue
        if member.name == "Properties":
            assert status(wire, message, IMSMQ_MESSAGE4, member.python) == E_NOTIMPL
            continue
        found = wire.call(message, IMSMQ_MESSAGE4, member.python)
        named: Variant = world.run(message.invoke_dispatch(member.dispid, flags=DISPATCH_PROPERTYGET))
        assert found == (named if isinstance(found, Variant) else named.value), member.name
    assert wire.call(message, IMSMQ_MESSAGE4, "get_max_time_to_receive") == -1
    assert wire.call(message, IMSMQ_MESSAGE4, "get_label") == ""
    assert wire.call(message, IMSMQ_MESSAGE4, "get_soap_envelope") is None


def test_a_message_goes_through_a_queue(world: World, wire: Wire) -> None:
    name = create(world, security=OPEN_TO_ALL)
    info = wire.create(MSMQ_QUEUE_INFO.clsid, IMSMQ_QUEUE_INFO4)
    wire.call(info, IMSMQ_QUEUE_INFO4, "put_format_name", name)
    message = wire.create(MSMQ_MESSAGE.clsid, IMSMQ_MESSAGE4)
    body = bytes(range(256)) * 4096
    for member, value in (
        ("put_body", octets(body)),
        ("put_label", "label"),
        ("put_app_specific", -5),
        ("put_correlation_id", octets(bytes(range(20)))),
        ("put_connector_type_guid", "{00112233-4455-6677-8899-AABBCCDDEEFF}"),
        ("putref_response_queue_info", info),
        ("put_delivery", 1),
        ("put_auth_level", 4),
    ):
        wire.call(message, IMSMQ_MESSAGE4, member, value)
    target = wire.call(info, IMSMQ_QUEUE_INFO4, "open", 2, 0)
    wire.call(message, IMSMQ_MESSAGE4, "send", target, MISSING)
    source = wire.call(info, IMSMQ_QUEUE_INFO4, "open", 1, 0)
    found = wire.call(source, IMSMQ_QUEUE4, "receive", number(0), MISSING, MISSING, number(0), MISSING)
    for member, value in (
        ("get_body", octets(body)),
        ("get_label", "label"),
        ("get_app_specific", -5),
        ("get_is_authenticated", 1),
        ("get_is_authenticated2", True),
        ("get_received_authentication_level", 3),
        ("get_delivery", 1),
        ("get_id", wire.call(message, IMSMQ_MESSAGE4, "get_id")),
    ):
        assert wire.call(found, IMSMQ_MESSAGE4, member) == value, member
    response = wire.call(found, IMSMQ_MESSAGE4, "get_response_queue_info")
    assert wire.call(response, IMSMQ_QUEUE_INFO4, "get_format_name") == r"DIRECT=OS:ALPHA\private$\q"


@pytest.mark.spec("MQAC-3.3.1-1", "MQAC-3.4.3-2", "MQAC-3.15.4.1.3-1")
def test_management_objects_and_their_collections(world: World, wire: Wire) -> None:
    with world.held() as h:
        queue = h.create("q", transactional=True)
        h.open("q")
        sender = h.engine.queue_manager.identifier
        queue.incoming_transactional_transfer_info[sender, Q] = IncomingTransactionalTransferInfo(
            queue, Q, sender, 0xFFFF_FFFF_0000_0001, 7, last_access_time=1_700_000_000, reject_count=3
        )
        h.send(OUTGOING, b"waits")
    local = wire.create(MSMQ_MANAGEMENT.clsid, IMSMQ_MANAGEMENT)
    with pytest.raises(ComError) as refused:
        wire.query(local, IMSMQ_QUEUE_MANAGEMENT)
    assert refused.value.hresult == E_NOINTERFACE
    assert status(wire, local, IMSMQ_MANAGEMENT, "get_message_count") == MQ_ERROR_UNINITIALIZED_OBJECT
    wire.call(local, IMSMQ_MANAGEMENT, "init", MISSING, MISSING, text(Q))
    managed = wire.query(local, IMSMQ_QUEUE_MANAGEMENT)
    with pytest.raises(ComError):
        wire.query(local, IMSMQ_OUTGOING_QUEUE_MANAGEMENT)
    assert wire.call(managed, IMSMQ_QUEUE_MANAGEMENT, "get_is_local") is True
    assert wire.call(managed, IMSMQ_QUEUE_MANAGEMENT, "get_bytes_in_journal") == Variant(VT.UI8, 0)
    infos = wire.call(managed, IMSMQ_QUEUE_MANAGEMENT, "eod_get_receive_info")
    (element,) = infos.value.elements
    assert (infos.vt, element.vt) == (VT.ARRAY | VT.VARIANT, VT.DISPATCH)
    collection = wire.query(element.value, IMSMQ_COLLECTION)
    assert wire.call(collection, IMSMQ_COLLECTION, "get_count") == 6
    assert wire.call(collection, IMSMQ_COLLECTION, "item", text("SeqID")) == Variant(VT.UI8, 0xFFFF_FFFF_0000_0001)
    enumerator = wire.query(wire.call(collection, IMSMQ_COLLECTION, "get_new_enum"), IENUM_VARIANT)
    following = next(member for member in IENUM_VARIANT.members if member.python == "next")
    (elements, count), _ = world.run(enumerator.call_with_result(following, 10))
    assert (count, elements[0], elements[3]) == (6, text(Q), Variant(VT.I4, 7))
    # By name, as scripts do, after Init also the members of the other interface.
    dispid = next(member.dispid for member in IMSMQ_QUEUE_MANAGEMENT.members if member.name == "JournalMessageCount")
    assert world.run(managed.invoke_dispatch(dispid, flags=DISPATCH_PROPERTYGET)) == number(0)


def test_an_outgoing_queue(wire: Wire, world: World) -> None:
    with world.held() as h:
        h.send(OUTGOING, b"waits")
    found = wire.create(MSMQ_MANAGEMENT.clsid, IMSMQ_MANAGEMENT)
    wire.call(found, IMSMQ_MANAGEMENT, "init", MISSING, MISSING, text(OUTGOING))
    managed = wire.query(found, IMSMQ_OUTGOING_QUEUE_MANAGEMENT)
    assert wire.call(managed, IMSMQ_OUTGOING_QUEUE_MANAGEMENT, "get_message_count") == 1
    assert wire.call(managed, IMSMQ_OUTGOING_QUEUE_MANAGEMENT, "get_next_hops").vt == VT.ARRAY | VT.BSTR
    wire.call(managed, IMSMQ_OUTGOING_QUEUE_MANAGEMENT, "pause")
    assert wire.call(managed, IMSMQ_OUTGOING_QUEUE_MANAGEMENT, "get_state") == 4
    infos = wire.call(managed, IMSMQ_OUTGOING_QUEUE_MANAGEMENT, "eod_get_send_info")
    nested = wire.call(infos, IMSMQ_COLLECTION, "item", text("EodNextSeq"))
    assert nested.vt == VT.DISPATCH
    for _ in range(2):
        # Given back and asked for again, it is as it was.
        inner = wire.query(nested.value, IMSMQ_COLLECTION)
        assert wire.call(inner, IMSMQ_COLLECTION, "get_count") == 3
        inner.release()
        nested = wire.call(infos, IMSMQ_COLLECTION, "item", text("EodNextSeq"))


@pytest.mark.spec("MQAC-3.15.4.1.2-1")
def test_a_collection_that_a_client_makes_is_empty(wire: Wire) -> None:
    collection = wire.create(MSMQ_COLLECTION.clsid, IMSMQ_COLLECTION)
    assert wire.call(collection, IMSMQ_COLLECTION, "get_count") == 0
