"""MSMQMessage (MC-MQAC 3.17): revisions, first values, and members that get and put."""

from __future__ import annotations

from uuid import UUID

import pytest

from lanner.activex.destination import MSMQDestination
from lanner.activex.message import MSMQMessage
from lanner.activex.tables import IMSMQ_MESSAGE, IMSMQ_MESSAGE2, IMSMQ_MESSAGE3, IMSMQ_MESSAGE4
from lanner.com.automation.dispatch import (
    DISPATCH_PROPERTYPUT,
    DISPATCH_PROPERTYPUTREF,
    DISPID_PROPERTYPUT,
    IID_NULL,
)
from lanner.com.automation.dispatch import invoke as dispatch_invoke
from lanner.com.automation.types import DispParams
from lanner.com.automation.values import EMPTY, NULL, Variant
from lanner.com.constants import E_INVALIDARG, E_NOTIMPL, S_OK
from lanner.com.members import InterfaceTable
from lanner.com.objects import ComCall
from lanner.model.enums import Acknowledgements, AuthenticationLevel, MessageClass, QueueAccessType
from lanner.model.errors import IllegalPropertySize, IllegalPropertyValue, LabelTooLong
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import SYSTEM
from lanner.wire.builder import set_authentication
from lanner.wire.format_name import parse
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.vartypes import VT
from tests.activex.messages import (
    BYTES,
    PEEK,
    create,
    new_message,
    number,
    octets,
    open_queue,
    packet,
    queue_info,
    receive,
    send,
    text,
)
from tests.activex.world import World
from tests.engine.harness import START_TIME
from tests.statuses import MQ_ERROR_LABEL_TOO_LONG

REVISIONS = (IMSMQ_MESSAGE, IMSMQ_MESSAGE2, IMSMQ_MESSAGE3, IMSMQ_MESSAGE4)
NO_GUID = "00000000-0000-0000-0000-000000000000"
OCTETS = ("sender_certificate", "sender_id", "extension", "destination_symmetric_key", "signature")
# MQMSGCLASS and the data model's names (2.2.2.9). Two more are in no packet and in no other
# document.
CLASSES = {
    "NORMAL": 0x0000,
    "REPORT": 0x0001,
    "ACK_REACH_QUEUE": 0x0002,
    "ACK_RECEIVE": 0x4000,
    "NACK_BAD_DEST_QUEUE": 0x8000,
    "NACK_PURGED": 0x8001,
    "NACK_REACH_QUEUE_TIMEOUT": 0x8002,
    "NACK_QUEUE_EXCEED_QUOTA": 0x8003,
    "NACK_ACCESS_DENIED": 0x8004,
    "NACK_HOP_COUNT_EXCEEDED": 0x8005,
    "NACK_BAD_SIGNATURE": 0x8006,
    "NACK_BAD_ENCRYPTION": 0x8007,
    "NACK_NOT_TRANSACTIONAL_QUEUE": 0x8009,
    "NACK_NOT_TRANSACTIONAL_MESSAGE": 0x800A,
    "NACK_UNSUPPORTED_CRYPTO_PROVIDER": 0x800B,
    "NACK_QUEUE_DELETED": 0xC000,
    "NACK_QUEUE_PURGED": 0xC001,
    "NACK_RECEIVE_TIMEOUT": 0xC002,
    "NACK_RECEIVE_TIMEOUT_AT_SENDER": 0xC003,
}
# Longs that are taken as they come.
LONGS = (
    "app_specific",
    "max_time_to_reach_queue",
    "max_time_to_receive",
    "hash_algorithm",
    "encrypt_algorithm",
    "authentication_provider_type",
    "msg_class",
)


# Revisions
# --------------------------------------------------------------------------------------------------


def types(table: InterfaceTable, opnum: int) -> list[str]:
    return [parameter.type for parameter in table.by_opnum[opnum].parameters]


@pytest.mark.spec("MQAC-3.17.4-1")
def test_each_revision_has_its_members_and_all_are_there(world: World) -> None:
    for table, last in zip(REVISIONS, (55, 81, 97, 97), strict=True):
        assert [member.opnum for member in table.members] == list(range(7, last + 1))
        message = new_message(world)
        assert message.query_interface(table.iid) is table
        for member in table.members:
            other = member.python.replace("putref_", "put_", 1)
            assert callable(getattr(message, member.python, None) or getattr(message, other, None)), member.name


@pytest.mark.spec("MQAC-3.17.4-2")
def test_the_queue_properties_of_each_revision(world: World) -> None:
    for name, first in (("ResponseQueueInfo", 21), ("AdminQueueInfo", 29)):
        for table, version, suffix in (
            (IMSMQ_MESSAGE, 1, ""),
            (IMSMQ_MESSAGE2, 1, "_v1"),
            (IMSMQ_MESSAGE3, 1, "_v1"),
            (IMSMQ_MESSAGE4, 1, "_v1"),
            (IMSMQ_MESSAGE2, 2, ""),
            (IMSMQ_MESSAGE3, 2, "_v2"),
            (IMSMQ_MESSAGE4, 2, "_v2"),
            (IMSMQ_MESSAGE3, 3, ""),
            (IMSMQ_MESSAGE4, 4, ""),
        ):
            slots = {1: first, 2: 77 + (first > 21) * 2, 3: 82 + (first > 21) * 2, 4: 82 + (first > 21) * 2}
            slot, kind = slots[version], f"IMSMQQueueInfo{version if version > 1 else ''}"
            assert [table.by_opnum[slot].name, table.by_opnum[slot + 1].name] == [name + suffix] * 2
            assert types(table, slot) == [f"{kind}**"]
            assert types(table, slot + 1) == [f"{kind}*"]
    # One property under all its names.
    message = new_message(world)
    for revision, put, get in (
        (1, "putref_response_queue_info", "get_response_queue_info"),
        (4, "put_response_queue_info_v1", "get_response_queue_info_v2"),
        (4, "put_response_queue_info_v2", "get_response_queue_info"),
        (4, "putref_response_queue_info", "get_response_queue_info_v1"),
    ):
        name = rf"DIRECT=OS:beta\private$\r{revision}{put}"
        world.call(message, put, queue_info(world, name), revision=revision)
        assert world.call(world.call(message, get), "get_format_name") == name


@pytest.mark.spec("MQAC-3.17.4-3")
@pytest.mark.parametrize("flag", [DISPATCH_PROPERTYPUT, DISPATCH_PROPERTYPUTREF])
@pytest.mark.parametrize(
    ("table", "opnum"),
    [(table, opnum) for table in REVISIONS for opnum in (22, 30)]
    + [(table, opnum) for table in REVISIONS[1:] for opnum in (78, 80)],
)
def test_a_queue_can_be_put_either_way(world: World, table: InterfaceTable, opnum: int, flag: int) -> None:
    message, info = new_message(world), queue_info(world, r"DIRECT=OS:beta\private$\r")
    member = table.by_opnum[opnum]
    call = ComCall(SYSTEM, AuthLevel.PKT_INTEGRITY, "test", None, table, member)  # type: ignore[arg-type]  # no wire
    params = DispParams.of((Variant(VT.DISPATCH, info),), (DISPID_PROPERTYPUT,))

    async def invoke() -> object:
        return await dispatch_invoke(message, call, member.dispid, IID_NULL, 0, flag, params, 0, (), ())

    result = world.run(invoke())
    assert getattr(result, "hresult", S_OK) == S_OK
    getter = next(one for one in table.by_dispid[member.dispid] if one.kind == "propget")
    assert world.call(world.call(message, getter.python), "get_format_name") == r"DIRECT=OS:beta\private$\r"


@pytest.mark.spec("MQAC-3.17.4-4")
def test_the_types_of_send_and_of_queues_follow_the_revision() -> None:
    sent_to = ("IMSMQQueue*", "IMSMQQueue2*", "IDispatch*", "IDispatch*")
    infos = ("IMSMQQueueInfo**", "IMSMQQueueInfo2**", "IMSMQQueueInfo3**", "IMSMQQueueInfo4**")
    for table, destination, info in zip(REVISIONS, sent_to, infos, strict=True):
        assert types(table, 54) == [destination, "VARIANT*"]
        assert types(table, 48) == [info]
        if table is not IMSMQ_MESSAGE:
            assert types(table, 61) == [info]


# First values
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.3-1", "MQAC-3.17.3-2", "MQAC-3.17.3-3", "MQAC-3.17.3-5")
def test_a_message_that_a_client_makes(world: World) -> None:
    message = new_message(world)
    first = {
        "class": 0,
        "msg_class": 0,
        "priv_level": 0,
        "auth_level": 0,
        "delivery": 0,
        "trace": 0,
        "priority": 3,
        "journal": 0,
        "ack": 0,
        "app_specific": 0,
        "sender_id_type": 1,
        "hash_algorithm": 0x8004,
        "encrypt_algorithm": 0x6801,
        # 0xFFFFFFFF as a long.
        "max_time_to_reach_queue": -1,
        "max_time_to_receive": -1,
        "authentication_provider_type": 1,
        "authentication_provider_name": "Microsoft Base Cryptographic Provider, v1.0",
        "lookup_id": text("0"),
        "source_machine_guid": NO_GUID,
        "connector_type_guid": f"{{{NO_GUID}}}",
        "is_first_in_transaction": 0,
        "is_last_in_transaction": 0,
        "is_first_in_transaction2": False,
        "is_last_in_transaction2": False,
        "is_authenticated": 0,
        "is_authenticated2": False,
        "received_authentication_level": 0,
        "body_length": 0,
        "body": EMPTY,
        "label": "",
        "id": octets(bytes(20)),
        "correlation_id": octets(bytes(20)),
        "transaction_id": octets(bytes(20)),
        "response_queue_info": None,
        "admin_queue_info": None,
        "destination_queue_info": None,
        "transaction_status_queue_info": None,
        "response_destination": None,
        "destination": None,
        "soap_envelope": None,
        "compound_message": octets(b""),
        **{name: octets(b"") for name in OCTETS},
    }
    for name, value in first.items():
        found = world.call(message, f"get_{name}")
        assert (found, type(found)) == (value, type(value)), name


@pytest.mark.spec("MQAC-3.17.3-4")
def test_a_received_message_is_as_it_was_stored(world: World) -> None:
    name = create(world)
    connector = UUID("00112233-4455-6677-8899-aabbccddeeff")
    with world.held() as h:
        descriptor = h.open("q", access=QueueAccessType.SEND)
        properties = h.properties(
            b"body",
            label="label",
            priority=5,
            body_type=BYTES,
            application_tag=0xFFFF_FFFE,
            correlation_identifier=bytes(range(20)),
            extension=b"more",
            acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
            administration_queue_format_name=parse(r"DIRECT=OS:beta\private$\a"),
            response_queue_format_name=parse(r"DIRECT=OS:beta\private$\r"),
            positive_journaling_requested=True,
            negative_journaling_requested=True,
            tracing_requested=True,
            connector_type_identifier=connector,
            time_to_reach_queue=100,
            time_to_be_received=200,
            sender_certificate=b"certificate",
        )
        h.engine.enqueue_message_to_an_open_queue(descriptor, properties)
        h.now += 7
    stored = packet(world, name)
    found = receive(world, name, want_destination=True, want_connector_type=True)
    expected = {
        "class": 0,
        "delivery": 1,
        "trace": 1,
        "priority": 5,
        "journal": 3,
        "ack": 0x0E,
        "app_specific": -2,
        "body": octets(b"body"),
        "body_length": 4,
        "label": "label",
        "id": octets(stored.identifier_bytes),
        "correlation_id": octets(bytes(range(20))),
        "extension": octets(b"more"),
        "connector_type_guid": f"{{{connector}}}".upper(),
        "max_time_to_reach_queue": 100,
        "max_time_to_receive": 200,
        "sender_id": octets(SYSTEM.sid.pack()),
        "sender_id_type": 1,
        "sender_certificate": octets(b"certificate"),
        "source_machine_guid": str(world.engine.queue_manager.identifier).upper(),
        "sent_time": Variant(VT.DATE, 25569 + START_TIME / 86400),
        "arrived_time": Variant(VT.DATE, 25569 + START_TIME / 86400),
        "auth_level": 0,
        "authentication_provider_name": "",
    }
    for member, value in expected.items():
        assert world.call(found, f"get_{member}") == value, member
    for member, called in (
        ("response_queue_info", r"DIRECT=OS:beta\private$\r"),
        ("admin_queue_info", r"DIRECT=OS:beta\private$\a"),
        ("destination_queue_info", r"DIRECT=OS:ALPHA\private$\q"),
        ("destination", r"DIRECT=OS:ALPHA\private$\q"),
    ):
        assert world.call(world.call(found, f"get_{member}"), "get_format_name") == called


@pytest.mark.spec("MQAC-3.17.3-4", "MQAC-3.17.4.1.4-1", "MQAC-2.2.2.17-1")
@pytest.mark.parametrize("level", [0, 1, 3, 5, 9])
def test_the_level_that_was_verified_is_not_the_one_that_is_asked_for(world: World, level: int) -> None:
    create(world)
    with world.held() as h:
        h.send("q", b"signed")
        descriptor = h.open("q")
        position = h.engine.try_dequeue_message(descriptor)
        assert position is not None
        position.record.packet = set_authentication(position.record.packet, AuthenticationLevel(level))
    found = MSMQMessage.received(world.environment, position)
    assert world.call(found, "get_received_authentication_level") == level
    is_authenticated = world.call(found, "get_is_authenticated")
    assert (is_authenticated, type(is_authenticated)) == (int(bool(level)), int)
    assert world.call(found, "get_is_authenticated2") is bool(level)
    assert world.call(found, "get_auth_level") == 0
    world.call(found, "put_auth_level", 8)
    assert world.call(found, "get_auth_level") == 8
    assert world.call(found, "get_received_authentication_level") == level


def test_what_is_not_wanted_stays_unset(world: World) -> None:
    name = create(world)
    connector = "{00112233-4455-6677-8899-AABBCCDDEEFF}"
    send(world, new_message(world, text("body"), connector_type_guid=connector), name)
    found = receive(world, name, want_body=False)
    assert world.call(found, "get_body") == EMPTY
    assert world.call(found, "get_body_length") == 8
    assert world.call(found, "get_destination_queue_info") is None
    assert world.call(found, "get_destination") is None
    assert world.call(found, "get_connector_type_guid") == f"{{{NO_GUID}}}"


# Numbers
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.3-1", "MQAC-2.2.2.15-1", "MQAC-3.17.4.1.12-1", "MQAC-3.17.4.1.14-1")
@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("priv_level", {0, 1, 3}),
        ("auth_level", {0, 1, 2, 4, 8}),
        ("delivery", {0, 1}),
        ("trace", {0, 1}),
        ("ack", {0, 1, 2, 4, 5, 8, 0x0C, 0x0E}),
        ("priority", set(range(8))),
        ("journal", {0, 1, 2, 3}),
        ("sender_id_type", {0, 1}),
    ],
)
def test_only_numbers_of_the_enumeration_are_taken(world: World, name: str, allowed: set[int]) -> None:
    message = new_message(world)
    for value in [*range(-2, 20), 0x100, 0x7FFF_FFFF, -0x8000_0000]:
        before = world.call(message, f"get_{name}")
        status = world.status(message, f"put_{name}", value)
        assert status == (0 if value in allowed else IllegalPropertyValue.status), value
        assert world.call(message, f"get_{name}") == (value if value in allowed else before)


@pytest.mark.spec("MQAC-3.17.4.1.14-1", "MQAC-2.2.2.12-1")
@pytest.mark.parametrize("journal", range(4))
def test_the_bits_of_journal(world: World, journal: int) -> None:
    name = create(world)
    send(world, new_message(world, journal=journal), name)
    kept = packet(world, name)
    assert kept.negative_journaling_requested is bool(journal & 1)
    assert kept.positive_journaling_requested is bool(journal & 2)
    assert world.call(receive(world, name), "get_journal") == journal


@pytest.mark.spec("MQAC-3.17.4.1.17-1", "MQAC-3.17.4.1.1-1")
@pytest.mark.parametrize("name", LONGS)
def test_any_long_is_stored_as_it_comes(world: World, name: str) -> None:
    message = new_message(world)
    for value in (0, 1, -1, 0x7FFF_FFFF, -0x8000_0000, 0x1234_5678):
        world.call(message, f"put_{name}", value)
        assert world.call(message, f"get_{name}") == value


@pytest.mark.spec("MQAC-3.17.4.1.17-1")
def test_the_two_times_are_seconds(world: World) -> None:
    name = create(world)
    send(world, new_message(world, max_time_to_reach_queue=60, max_time_to_receive=90), name)
    kept = packet(world, name)
    assert (kept.time_to_reach_queue, kept.time_to_be_received) == (60, 90)


@pytest.mark.spec("MQAC-2.2.2.9-1", "MQAC-3.17.4.1.1-1")
@pytest.mark.parametrize("message_class", [*CLASSES.values(), 0x8008, 0x800C])
def test_the_class_is_its_number(world: World, message_class: int) -> None:
    name = create(world)
    with world.held() as h:
        h.send("q", message_class=message_class)
    found = receive(world, name)
    assert world.call(found, "get_class") == world.call(found, "get_msg_class") == message_class
    # What a client says is what is there.
    world.call(found, "put_msg_class", 0xABCD)
    assert world.call(found, "get_class") == 0xABCD


@pytest.mark.spec("MQAC-2.2.2.9-1")
def test_the_classes_of_the_data_model_have_these_numbers() -> None:
    assert {name: MessageClass[name] for name in CLASSES} == CLASSES


@pytest.mark.spec("MQAC-3.17.4.1.47-1")
def test_the_type_of_the_sender_is_put_and_not_the_sender(world: World) -> None:
    message = new_message(world, sender_id=octets(b"sid"))
    world.call(message, "put_sender_id_type", 0)
    assert world.call(message, "get_sender_id_type") == 0
    assert world.call(message, "get_sender_id") == octets(b"sid")


@pytest.mark.spec("MQAC-3.17.4.1.50-1")
def test_the_version_of_the_sender(world: World) -> None:
    assert world.call(new_message(world), "get_sender_version") == 0x10


# Text and octets
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.31-1")
def test_a_label_has_less_than_250_characters(world: World) -> None:
    message = new_message(world)
    assert world.call(message, "get_label") == ""
    world.call(message, "put_label", "x" * 249)
    for longer in ("y" * 250, "y" * 1000, "\U0001f4e6" * 125):
        assert world.status(message, "put_label", longer) == LabelTooLong.status == MQ_ERROR_LABEL_TOO_LONG
    assert world.call(message, "get_label") == "x" * 249
    world.call(message, "put_label", "\U0001f4e6" * 124)
    name = create(world)
    send(world, message, name)
    assert world.call(receive(world, name), "get_label") == "\U0001f4e6" * 124
    world.call(message, "put_label", None)
    assert world.call(message, "get_label") == ""


@pytest.mark.spec("MQAC-3.17.4.1.19-1", "MQAC-3.17.4.1.54-1")
def test_guids_with_and_without_braces(world: World) -> None:
    guid = "00112233-4455-6677-8899-AABBCCDDEEFF"
    message = new_message(world, connector_type_guid=f"{{{guid}}}")
    assert world.call(message, "get_connector_type_guid") == f"{{{guid}}}"
    assert len(world.call(message, "get_connector_type_guid")) == 38
    for wrong in (guid, f"{{{guid}", f"{guid}}}", f"{{{guid[:-1]}}}", f"({guid})", "", None, f" {{{guid}}}"):
        assert world.status(message, "put_connector_type_guid", wrong) == IllegalPropertyValue.status
    assert world.call(message, "get_connector_type_guid") == f"{{{guid}}}"
    name = create(world)
    send(world, message, name)
    source = world.call(receive(world, name), "get_source_machine_guid")
    assert len(source) == 36
    assert UUID(source) == world.engine.queue_manager.identifier


@pytest.mark.spec("MQAC-3.17.4.1.62-1")
@pytest.mark.parametrize("unset", [None, ""])
def test_no_provider_name_is_an_empty_one(world: World, unset: str | None) -> None:
    message = new_message(world, authentication_provider_name="provider")
    assert world.call(message, "get_authentication_provider_name") == "provider"
    world.call(message, "put_authentication_provider_name", unset)
    assert world.call(message, "get_authentication_provider_name") == ""


@pytest.mark.spec("MQAC-3.17.4.1.43-1")
@pytest.mark.parametrize("name", OCTETS)
def test_octets_come_back_unchanged(world: World, name: str) -> None:
    message = new_message(world)
    for data in (b"\x00\x01\xff" * 10, b"", b"\x00"):
        world.call(message, f"put_{name}", octets(data))
        found = world.call(message, f"get_{name}")
        assert (found.vt, found.value) == (0x2011, data)
    world.call(message, f"put_{name}", octets(b"kept"))
    for wrong in (text("text"), number(1), Variant(VT.ARRAY | VT.I4, None)):
        assert world.status(message, f"put_{name}", wrong) == E_INVALIDARG
    assert world.call(message, f"get_{name}") == octets(b"kept")
    for nothing in (EMPTY, NULL, Variant(BYTES, None)):
        world.call(message, f"put_{name}", nothing)
        assert world.call(message, f"get_{name}") == octets(b"")
    world.call(message, f"put_{name}", Variant(VT.BYREF | BYTES, b"by reference"))
    assert world.call(message, f"get_{name}") == octets(b"by reference")


@pytest.mark.spec("MQAC-3.17.4.1.27-1")
def test_a_correlation_identifier_has_20_octets(world: World) -> None:
    message = new_message(world, correlation_id=octets(bytes(range(20))))
    assert world.call(message, "get_correlation_id") == octets(bytes(range(20)))
    for wrong in (b"", bytes(19), bytes(21)):
        assert world.status(message, "put_correlation_id", octets(wrong)) == IllegalPropertySize.status
    assert world.status(message, "put_correlation_id", text("x" * 20)) == E_INVALIDARG
    name = create(world)
    send(world, message, name)
    found = world.call(receive(world, name), "get_correlation_id")
    assert (found.vt, found.value) == (0x2011, bytes(range(20)))


@pytest.mark.spec("MQAC-3.17.4.1.25-1")
def test_the_identifier_is_the_queue_manager_and_a_number(world: World) -> None:
    name = create(world)
    message = new_message(world)
    send(world, message, name)
    found = world.call(receive(world, name), "get_id")
    assert (found.vt, len(found.value)) == (0x2011, 20)
    expected = MessageIdentifier(world.engine.queue_manager.identifier, world.engine.last_ordinal).pack()
    assert found.value == world.engine.queue_manager.identifier.bytes_le + expected[16:] == expected
    assert world.call(message, "get_id") == found


@pytest.mark.spec("MQAC-3.17.4.1.40-1", "MQAC-2.2.1-3")
def test_times_are_dates_in_utc(world: World) -> None:
    name = create(world)
    with world.held() as h:
        h.now = 1_704_110_400.0  # 2024-01-01 12:00 UTC
    send(world, new_message(world), name)
    found = receive(world, name)
    assert world.call(found, "get_sent_time") == Variant(VT.DATE, 45292.5)
    assert world.call(found, "get_arrived_time") == Variant(VT.DATE, 45292.5)


@pytest.mark.spec("MQAC-3.17.4.1.83-1", "MQAC-3.17.4.1.83-2")
def test_the_lookup_identifier_is_a_number_in_decimal_and_is_taken_back(world: World) -> None:
    name = create(world)
    for body in ("first", "second"):
        send(world, new_message(world, text(body)), name)
    queue = open_queue(world, name, PEEK)
    second = world.call(queue, "peek_last_by_lookup_id")
    found = world.call(second, "get_lookup_id")
    with world.held() as h:
        identifiers = h.lookup_ids("q")
    assert (found.vt, found.value) == (VT.BSTR, str(identifiers["second".encode("utf-16-le")]))
    for given in (found, Variant(VT.UI8, int(found.value))):
        for member, body in (("peek_by_lookup_id", "second"), ("peek_previous_by_lookup_id", "first")):
            assert world.call(world.call(queue, member, given), "get_body") == text(body)
    with world.held() as h:
        h.create("r")
    receiver = open_queue(world, name, 1)
    assert world.call(world.call(receiver, "receive_by_lookup_id", found), "get_body") == text("second")


@pytest.mark.spec("MQAC-3.2.4.2.7-1")
def test_properties_are_not_implemented(world: World) -> None:
    assert world.status(new_message(world), "get_properties") == E_NOTIMPL


# Queues
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.15-1", "MQAC-3.17.4.1.15-2", "MQAC-3.17.4.1.16-1")
@pytest.mark.parametrize(
    ("put", "get"),
    [
        ("putref_response_queue_info", "get_response_queue_info"),
        ("put_response_queue_info_v1", "get_response_queue_info_v1"),
        ("put_response_queue_info_v2", "get_response_queue_info_v2"),
        ("putref_admin_queue_info", "get_admin_queue_info"),
        ("put_admin_queue_info_v1", "get_admin_queue_info_v1"),
        ("put_admin_queue_info_v2", "get_admin_queue_info_v2"),
    ],
)
def test_queues_for_answers(world: World, put: str, get: str) -> None:
    message = new_message(world)
    assert world.call(message, get) is None
    here = create(world, "answers", label="known here")
    for name, label in ((r"DIRECT=OS:nowhere\private$\gone", None), (here, "known here")):
        given = queue_info(world, name)
        world.call(message, put, given)
        found = world.call(message, get)
        assert found is not given
        assert world.call(found, "get_format_name") == name
        # Refreshed if it can be.
        assert found.is_refreshed is (label is not None)
        if label is not None:
            assert world.call(found, "get_label") == label
    world.call(message, put, None)
    assert world.call(message, get) is None


@pytest.mark.spec("MQAC-3.17.4.1.16-1", "MQAC-3.17.4.1.15-1")
def test_queues_for_answers_travel_with_the_message(world: World) -> None:
    name = create(world)
    message = new_message(world, ack=1)
    world.call(message, "putref_response_queue_info", queue_info(world, r"DIRECT=OS:.\private$\r"))
    world.call(message, "putref_admin_queue_info", queue_info(world, r"DIRECT=OS:beta\private$\a"))
    send(world, message, name)
    found = receive(world, name)
    # Every computer would take "." for itself.
    for get, called in (
        ("get_response_queue_info", r"DIRECT=OS:ALPHA\private$\r"),
        ("get_admin_queue_info", r"DIRECT=OS:beta\private$\a"),
    ):
        assert world.call(world.call(found, get), "get_format_name") == called


@pytest.mark.spec("MQAC-3.17.4.1.16-1")
def test_a_queue_that_is_known_by_its_path_name_only(world: World) -> None:
    create(world, "r")
    info = queue_info(world, "")
    world.call(info, "put_path_name", r".\private$\r")
    message = new_message(world)
    world.call(message, "putref_response_queue_info", info)
    found = world.call(message, "get_response_queue_info")
    assert world.call(found, "get_path_name").lower() == r"alpha\private$\r"


@pytest.mark.parametrize(
    "put", ["putref_response_queue_info", "put_admin_queue_info_v1", "putref_response_destination"]
)
def test_only_objects_of_the_right_kind_are_put(world: World, put: str) -> None:
    message = new_message(world)
    assert world.status(message, put, new_message(world)) == E_INVALIDARG


def new_destination(world: World, name: str) -> MSMQDestination:
    destination = MSMQDestination(world.environment)
    world.objects.append(destination)
    world.call(destination, "put_format_name", name)
    return destination


@pytest.mark.spec("MQAC-3.17.4.1.80-1")
@pytest.mark.parametrize(
    "names", [r"DIRECT=OS:beta\private$\one", r"DIRECT=OS:beta\private$\one,DIRECT=OS:gamma\private$\two"]
)
def test_destinations_for_answers(world: World, names: str) -> None:
    message = new_message(world)
    world.call(message, "putref_response_destination", new_destination(world, names))
    assert world.call(world.call(message, "get_response_destination"), "get_format_name") == names
    name = create(world)
    send(world, message, name)
    found = receive(world, name, want_destination=True)
    assert world.call(world.call(found, "get_response_destination"), "get_format_name") == names
    world.call(message, "putref_response_destination", None)
    assert world.call(message, "get_response_destination") is None


@pytest.mark.spec("MQAC-3.17.4.1.42-1")
def test_destinations(world: World) -> None:
    create(world, "one")
    create(world, "two")
    one, two = (rf"DIRECT=OS:ALPHA\private$\{name}" for name in ("one", "two"))
    names = f"{one},{two}"
    destination = new_destination(world, names)
    world.call(destination, "open")
    message = new_message(world, text("to both"))
    world.call(message, "send", destination)
    assert world.call(world.call(message, "get_destination"), "get_format_name") == names
    for name in (one, two):
        found = receive(world, name, want_destination=True)
        assert world.call(found, "get_body") == text("to both")
        assert world.call(world.call(found, "get_destination"), "get_format_name") == names
        info = world.call(found, "get_destination_queue_info")
        assert world.call(info, "get_format_name") == name
        # A new object each time.
        assert world.call(found, "get_destination_queue_info") is not info
        assert world.call(found, "get_transaction_status_queue_info") is None


def test_a_message_does_not_show_what_is_in_it(world: World) -> None:
    message = new_message(world, text("secret"), destination_symmetric_key=octets(b"secret"), label="secret")
    assert "secret" not in repr(message.state)


def test_a_released_message_holds_nothing(world: World) -> None:
    message = new_message(world, octets(bytes(1000)))
    world.call(message, "attach_current_security_context")
    message.released()
    assert message.state.body is None
    assert message._context is None
