"""Sending, receiving and peeking through qmcomm2 (MS-MQMP 3.1.5.1 to 3.1.5.3)."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest

from lanner.model.enums import Acknowledgements, DeliveryGuarantee, MessageClass, SenderIdentifierType
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Pointed
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import CACTransferBufferV1, CACTransferBufferV2, CACTransferReceive
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.queue_client_buffers import receive_buffer, send_buffer
from lanner.services.queue_client_receiving import MQ_ACTION_PEEK_CURRENT, MQ_ACTION_RECEIVE
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.sid import EVERYONE
from tests.services.queue_client_peer import PEEK, RECEIVE, SEND, Site, served, with_old
from tests.services.site import until
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_BUFFER_OVERFLOW,
    MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL,
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_ILLEGAL_OPERATION,
    MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
    MQ_ERROR_INSUFFICIENT_PROPERTIES,
    MQ_ERROR_INSUFFICIENT_RESOURCES,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_LABEL_BUFFER_TOO_SMALL,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_PROPERTY,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
    MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL,
    MQ_ERROR_SENDERID_BUFFER_TOO_SMALL,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
    NCA_FAULT_CANCEL,
    NCA_FAULT_CONTEXT_MISMATCH,
)

OK = 0
FAILURE = 0x8000_0000
INFINITE = 0xFFFF_FFFF


# What goes in comes out
# ---------------------------------------------------------------------------------------------


@served
async def test_every_property_that_the_buffer_carries_arrives(site: Site) -> None:
    """3.1.1.11: all members of CACTransferBufferV2, in one direction and back."""
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    connector = uuid.uuid4()
    results = await sender.send(
        b"body",
        label="Rechnung über €",
        priority=5,
        time_to_reach_queue=100,
        time_to_be_received=INFINITE,
        message_class=MessageClass.REPORT,
        body_type=8,
        application_tag=0xFFFF_FFFE,
        correlation_identifier=bytes(range(20)),
        extension=b"\0ext\0",
        acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
        administration_queue_format_name=parse(r"DIRECT=OS:other\private$\admin"),
        response_queue_format_name=parse(f"PRIVATE={connector}\\7"),
        positive_journaling_requested=True,
        negative_journaling_requested=True,
        tracing_requested=True,
        connector_type_identifier=connector,
        sender_certificate=b"certificate",
    )
    assert results[RETURNS] == OK
    received = await reader.read(extension_size=5)
    message = received.message
    qm = site.runtime.engine.queue_manager.identifier
    assert results["p_message_id"] == message.identifier
    assert message.identifier.queue_manager_guid == message.source_machine_identifier == qm
    assert (message.body, message.label, message.priority) == (b"body", "Rechnung über €", 5)
    assert message.delivery_guarantee is DeliveryGuarantee.RECOVERABLE
    assert message.time_to_reach_queue == 100
    assert message.time_to_be_received == INFINITE
    assert message.message_class == MessageClass.REPORT
    assert (message.body_type, message.application_tag) == (8, 0xFFFF_FFFE)
    assert message.correlation_identifier == bytes(range(20))
    assert message.extension == b"\0ext\0"
    assert message.acknowledgements_requested == Acknowledgements.FULL_RECEIVE
    assert str(message.administration_queue_format_name) == r"DIRECT=OS:other\private$\admin"
    assert message.response_queue_format_name == parse(f"PRIVATE={connector}\\7")
    assert message.positive_journaling_requested
    assert message.negative_journaling_requested
    assert message.tracing_requested
    assert message.connector_type_identifier == connector
    assert message.sender_certificate == b"certificate"
    assert message.sender_identifier == ANONYMOUS.sid.pack()
    assert str(message.destination_queue_format_name).lower() == r"direct=os:alpha\private$\q"
    old = received.buffer.old
    assert old.pul_version == 0x10
    assert abs((old.p_sent_time or 0) - site.runtime.engine.clock()) < 100
    assert old.p_arrived_time == old.p_sent_time
    assert old.p_authenticated == 0
    assert received.buffer.pp_xact_id == Pointed(MessageIdentifier(uuid.UUID(int=0), 0))
    assert received.buffer.pb_first_in_xact == received.buffer.pb_last_in_xact == 0


@served
async def test_what_is_null_gets_its_default(site: Site) -> None:
    """3.1.5.2: the value that the server substitutes for each member."""
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    bare = CACTransferBufferV2(
        CACTransferBufferV1(0, mqmp.CACTransferSend(), ul_relative_time_to_live=INFINITE, ul_absolute_time_to_queue=0)
    )
    assert (await sender.send(buffer=bare))[RETURNS] == OK
    message = (await reader.read()).message
    assert (message.body, message.label, message.extension) == (b"", "", b"")
    assert message.priority == 3
    assert not message.tracing_requested
    # LongLiveTime is as long as it gets (MS-MQDMPR 3.1.7.1.27).
    assert message.time_to_reach_queue == site.runtime.engine.settings.long_live_time
    assert message.connector_type_identifier == uuid.UUID(int=0)
    assert message.delivery_guarantee is DeliveryGuarantee.EXPRESS
    assert not message.positive_journaling_requested
    assert not message.negative_journaling_requested
    assert message.message_class == 0
    assert message.correlation_identifier == bytes(20)
    assert message.acknowledgements_requested == 0
    assert (message.application_tag, message.body_type) == (0, 0)
    assert (message.hash_algorithm, message.encryption_algorithm) == (0, 0)
    assert message.signature == b""


@served
async def test_what_a_reader_did_not_ask_for_it_is_not_told(site: Site) -> None:
    """3.1.5.3: "can be NULL, in which case it MUST be NULL on output"."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"body", label="label")
    nothing = CACTransferBufferV2(CACTransferBufferV1(1, CACTransferReceive(action=MQ_ACTION_PEEK_CURRENT)))
    assert (await reader.read(buffer=nothing)).buffer == nothing
    some = with_old(nothing, p_body_size=0, p_priority=0)
    assert (await reader.read(buffer=some)).buffer == with_old(nothing, p_body_size=4, p_priority=3)


@served
async def test_a_message_of_one_s_own_class_and_the_reserved_time_members(site: Site) -> None:
    """2.2.3.2 pulRelativeTimeToLive: the seconds that remain."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"", time_to_be_received=1000)
    left = (await reader.peek()).buffer.old.pul_relative_time_to_live
    assert left is not None
    assert 900 < left <= 1000


@pytest.mark.parametrize("length", [1, 249, 250, 251, 600])
@served
async def test_a_long_label_is_cut(site: Site, length: int) -> None:
    """3.1.5.2 ulTitleBufferSizeInWCHARs: more than 250 are not taken, the terminator among them."""
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    label = "".join(chr(0x3B1 + number % 20) for number in range(length))
    buffer = with_old(send_buffer(MessageProperties()), pp_title=Pointed(label), ul_title_buffer_size_in_wchars=length)
    assert (await sender.send(buffer=buffer))[RETURNS] == OK
    assert (await reader.read()).message.label == label[:249]


@served
async def test_a_label_is_not_cut_inside_a_character(site: Site) -> None:
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    buffer = with_old(
        send_buffer(MessageProperties()), pp_title=Pointed("😀" * 125), ul_title_buffer_size_in_wchars=250
    )
    assert (await sender.send(buffer=buffer))[RETURNS] == OK
    assert (await reader.read()).message.label == "😀" * 124


@served
async def test_a_dot_in_a_name_becomes_the_computer(site: Site) -> None:
    """In a packet "." would mean the computer of the reader."""
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    name = parse(r"DIRECT=OS:.\private$\answers")
    assert (await sender.send(b"", response_queue_format_name=name))[RETURNS] == OK
    found = (await reader.read()).message.response_queue_format_name
    assert str(found) == rf"DIRECT=OS:{site.runtime.engine.queue_manager.computer_name}\private$\answers"


# What cannot be sent
# ------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"u_transfer_type": 1, "u": CACTransferReceive()}, MQ_ERROR_INVALID_PARAMETER),
    ({"u_transfer_type": 2, "u": mqmp.CACCreateRemoteCursor()}, MQ_ERROR_INVALID_PARAMETER),
    ({"p_priority": 8}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"p_delivery": 2}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"p_acknowledge": 16}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"p_auditing": 4}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"p_trace": 2}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"p_class": 0x00FF}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"p_class": 0x1234}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pul_priv_level": 4}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pul_priv_level": 1}, MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ({"pul_priv_level": 1, "pul_encrypt_alg": None}, MQ_ERROR_PROPERTY),
    ({"pul_priv_level": 1, "pul_encrypt_alg": 1}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"b_encrypted": 1}, MQ_ERROR_INVALID_PARAMETER),
    ({"pul_priv_level": 1, "b_encrypted": 1}, MQ_ERROR_INVALID_PARAMETER),
    ({"pp_symm_keys": Pointed(b"key"), "ul_symm_keys_size": 3}, MQ_ERROR_INVALID_PARAMETER),
    ({"pul_sender_id_type": None, "pp_sender_id": Pointed(b"s"), "u_sender_id_len": 1}, MQ_ERROR_INVALID_PARAMETER),
    ({"pul_sender_id_type": 0, "pp_sender_id": Pointed(b"s"), "u_sender_id_len": 1}, MQ_ERROR_INVALID_PARAMETER),
    ({"pul_sender_id_type": 1}, MQ_ERROR_INVALID_PARAMETER),
    ({"pul_sender_id_type": 3}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pp_signature": Pointed(b"s"), "ul_signature_size": 1, "pul_hash_alg": None}, MQ_ERROR_PROPERTY),
    ({"pp_signature": Pointed(b"s"), "ul_signature_size": 1, "pul_hash_alg": 1}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pp_signature": Pointed(b"s"), "ul_signature_size": 1, "f_default_provider": 0}, MQ_ERROR_INVALID_PARAMETER),
    ({"pp_signature": Pointed(b"s"), "ul_signature_size": 1, "pul_prov_type": None}, MQ_ERROR_INVALID_PARAMETER),
    ({"pp_signature": Pointed(b"s"), "ul_signature_size": 1, "pul_prov_type": 2}, MQ_ERROR_INVALID_PARAMETER),
    (
        {"pp_signature": Pointed(b"s"), "ul_signature_size": 1, "pul_auth_prov_name_len_prop": 2},
        MQ_ERROR_INVALID_PARAMETER,
    ),
    (
        {"pp_signature": Pointed(b"s"), "ul_signature_size": 1, "pul_auth_prov_name_len_prop": 0},
        MQ_ERROR_INVALID_PARAMETER,
    ),
    ({"u": mqmp.CACTransferSend(QueueFormat(0, 0, 0, None))}, MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"u": mqmp.CACTransferSend(None, QueueFormat(3, 0, 0, "nonsense"))}, MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"p_uow": uuid.uuid4().bytes_le}, MQ_ERROR_TRANSACTION_SEQUENCE),
]


@served
async def test_a_buffer_that_breaks_a_rule_is_not_sent(site: Site) -> None:
    """3.1.5.2: the constraints on ptb's members."""
    peer = await site.peer()
    sender = await peer.open(access=SEND)
    for changes, status in REFUSED:
        buffer = with_old(send_buffer(MessageProperties(body=b"x")), **changes)
        results = await sender.send(buffer=buffer)
        assert hex(results[RETURNS]) == hex(status), changes
    assert site.count() == 0


@served
async def test_the_second_of_two_signatures_counts(site: Site) -> None:
    """3.1.5.2 pulAuthProvNameLenProp: less ulProvNameLen, the length of the part that is looked at.

    Nobody knows the key here.
    """
    from lanner.services.queue_client_sending import message_properties

    buffer = with_old(
        send_buffer(MessageProperties()),
        pp_signature=Pointed(b"firstsecond"),
        ul_signature_size=11,
        ppwcs_prov_name=Pointed("csp\0!"),
        ul_prov_name_len=5,
        pul_auth_prov_name_len_prop=5 + 6,
        f_default_provider=0,
        pul_prov_type=24,
    )
    properties = message_properties(buffer)
    assert properties.signature == b"second"
    assert (properties.authentication_provider_name, properties.authentication_provider_type) == ("csp", 24)
    del site


@served
async def test_nobody_sends_in_the_name_of_another(site: Site) -> None:
    """Queues grant rights to the sender that a message names, so it must be the caller.

    An administrator may name another sender.
    """
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    sid = site.add_user("alice")
    site.add_user("root", is_administrator=True)
    assert (await sender.send(sender_identifier=sid.pack()))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    guid = site.runtime.engine.queue_manager.identifier.bytes_le
    as_manager: dict[str, Any] = {
        "sender_identifier": guid,
        "sender_identifier_type": SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
    }
    assert (await sender.send(**as_manager))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    assert (await sender.send(sender_identifier=ANONYMOUS.sid.pack()))[RETURNS] == OK
    assert (await sender.send(sender_identifier_type=SenderIdentifierType.NONE))[RETURNS] == OK
    assert (await reader.read()).message.sender_identifier == ANONYMOUS.sid.pack()
    assert (await reader.read()).message.sender_identifier == b""
    site.create("open", sid=EVERYONE)
    alice = await (await site.peer("alice")).open(r"DIRECT=OS:.\private$\open", SEND)
    assert (await alice.send())[RETURNS] == OK
    assert (await alice.send(sender_identifier=sid.pack()))[RETURNS] == OK
    root = await (await site.peer("root")).open(r"DIRECT=OS:.\private$\open", SEND)
    assert (await root.send(sender_identifier=sid.pack()))[RETURNS] == OK
    back = await (await site.peer("alice")).open(r"DIRECT=OS:.\private$\open")
    assert [(await back.read()).message.sender_identifier for _ in range(3)] == [sid.pack()] * 3


@served
async def test_a_full_queue_takes_no_more(site: Site) -> None:
    """3.1.5.2: an rStatus that is not zero is a failure."""
    site.create("small", quota=1)
    peer = await site.peer()
    sender = await peer.open(r"DIRECT=OS:.\private$\small", SEND)
    assert (await sender.send(bytes(2000)))[RETURNS] == MQ_ERROR_INSUFFICIENT_RESOURCES
    assert (await sender.send(bytes(10)))[RETURNS] == OK


@served
async def test_what_was_opened_for_reading_does_not_send_and_the_other_way_round(site: Site) -> None:
    """3.1.4.17 dwDesiredAccess: "MUST permit only"."""
    peer = await site.peer()
    site.send(b"x")
    for access, denied in ((RECEIVE, "send"), (PEEK, "send"), (PEEK, "receive"), (SEND, "receive"), (SEND, "peek")):
        q = await peer.open(access=access)
        if denied == "send":
            assert (await q.send())[RETURNS] == MQ_ERROR_ACCESS_DENIED
        elif denied == "receive":
            assert (await q.read()).status == MQ_ERROR_ACCESS_DENIED
        else:
            assert (await q.peek()).status == MQ_ERROR_ACCESS_DENIED
    assert site.bodies() == [b"x"]


@served
async def test_the_message_id_comes_back_where_there_is_room_for_it(site: Site) -> None:
    """3.1.5.2 pMessageID: "can be NULL"."""
    peer = await site.peer()
    sender = await peer.open(access=SEND)
    buffer = send_buffer(MessageProperties())
    results = await peer.call2(mqmp.RPC_AC_SEND_MESSAGE_EX, h_queue=sender.handle, ptb=buffer, p_message_id=None)
    assert results == {RETURNS: OK, "p_message_id": None}


@served
async def test_there_is_no_second_way_to_send(site: Site) -> None:
    """3.1.5.1 QMSendMessageInternalEx does nothing.

    "MUST take no action ... and return MQ_ERROR_ILLEGAL_OPERATION".
    """
    peer = await site.peer()
    results = await peer.call2(
        mqmp.QM_SEND_MESSAGE_INTERNAL_EX,
        p_queue_format=QueueFormat(3, 0, 0, "OS:.\\private$\\q"),
        ptb=send_buffer(MessageProperties(body=b"x")),
        p_message_id=None,
    )
    assert results[RETURNS] == MQ_ERROR_ILLEGAL_OPERATION
    assert site.count() == 0


@served
async def test_a_recoverable_send_is_answered_when_it_is_on_disk(site: Site) -> None:
    peer = await site.peer()
    sender = await peer.open(access=SEND)
    store = site.runtime.store
    before = store.synced
    # No batch becomes durable while the test has the commit lock.
    store._commits._commit_lock.acquire()
    try:
        sending = asyncio.create_task(sender.send(b"x"))
        await until(lambda: site.count() == 1)
        assert store.synced == before
        assert not sending.done()
    finally:
        store._commits._commit_lock.release()
    assert (await sending)[RETURNS] == OK
    assert store.synced > before


# Buffers that are too small
# -----------------------------------------------------------------------------------------

SMALL: list[tuple[dict[str, Any], int]] = [
    ({"pp_body": Pointed(bytes(3)), "ul_body_buffer_size_in_bytes": 3}, MQ_ERROR_BUFFER_OVERFLOW),
    ({"pp_msg_extension": Pointed(b"e"), "ul_msg_extension_buffer_in_bytes": 1}, MQ_ERROR_BUFFER_OVERFLOW),
    (
        {
            "pp_title": Pointed("\0" * 5),
            "ul_title_buffer_size_in_wchars": 5,
            "pul_title_buffer_size_in_wchars": 5,
        },
        MQ_ERROR_LABEL_BUFFER_TOO_SMALL,
    ),
    ({"pp_sender_id": Pointed(b"1"), "u_sender_id_len": 1}, MQ_ERROR_SENDERID_BUFFER_TOO_SMALL),
    ({"pp_sender_cert": Pointed(b"12"), "ul_sender_cert_len": 2}, MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL),
]


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize(("changes", "status"), SMALL, ids=str)
@served
async def test_a_message_that_does_not_fit_stays_and_its_sizes_are_reported(
    site: Site, changes: dict[str, Any], status: int, in_transaction: bool
) -> None:
    """3.1.5.3: "prior to filling the buffer, the server MUST verify"; notes 73 has the codes."""
    site.create("t", transactional=True)
    peer = await site.peer()
    queue = "t" if in_transaction else "q"
    sender = await peer.open(rf"DIRECT=OS:.\private$\{queue}", SEND)
    reader = await peer.open(rf"DIRECT=OS:.\private$\{queue}")
    begun = await peer.begin() if in_transaction else None
    await sender.send(b"body", begun, label="label", extension=b"ext", sender_certificate=b"certificate")
    if begun is not None:
        await begun.commit()
        begun = await peer.begin()
    uow = None if begun is None else begun.uow
    buffer = with_old(receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0, uow=uow, extension_size=3), **changes)
    received = await reader.read(buffer=buffer)
    assert hex(received.status) == hex(status)
    old = received.buffer.old
    assert (old.p_body_size, old.p_msg_extension_size, old.pul_title_buffer_size_in_wchars) == (4, 3, 6)
    assert (old.pul_sender_id_len_prop, old.pul_sender_cert_len_prop) == (len(ANONYMOUS.sid.pack()), 11)
    if begun is not None:
        assert (await begun.commit())[RETURNS] == OK
    assert site.bodies(queue) == [b"body"]


@pytest.mark.parametrize("name", ["response", "admin", "dest"])
@served
async def test_a_format_name_that_does_not_fit(site: Site, name: str) -> None:
    """3.1.5.3 ppResponseFormatName and its kin; the length counts the terminator."""
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    other = parse(r"DIRECT=OS:alpha\private$\q")
    await sender.send(
        response_queue_format_name=other,
        administration_queue_format_name=other,
        acknowledgements_requested=Acknowledgements.NEG_RECEIVE,
    )
    length = len(str(other)) + 1
    plain = receive_buffer(action=MQ_ACTION_PEEK_CURRENT, timeout=0)
    for size, status in ((length - 1, MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL), (length, OK), (length + 1, OK)):
        room: dict[str, Any] = {
            f"pp_{name}_format_name": Pointed("\0" * size),
            f"ul_{name}_format_name_len": size,
            f"pul_{name}_format_name_len_prop": size,
        }
        receive = replace(plain.old.u, **room)
        received = await reader.read(buffer=with_old(plain, u=receive))
        assert received.status == status
        told = received.buffer.old.u
        assert getattr(told, f"pul_{name}_format_name_len_prop") == length
        if status == OK:
            assert getattr(told, f"ul_{name}_format_name_len") == length
            assert getattr(told, f"pp_{name}_format_name").value.lower() == f"{other}\0".lower()


@served
async def test_a_cursor_s_receive_that_does_not_fit_can_be_tried_again(site: Site) -> None:
    """The message that stays in the queue stays ahead of the cursor."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"one", b"two")
    cursor = await reader.cursor()
    assert (await reader.read(cursor=cursor, body_size=1)).status == MQ_ERROR_BUFFER_OVERFLOW
    assert (await reader.read(cursor=cursor)).body == b"one"
    assert (await reader.peek(cursor=cursor)).body == b"two"
    assert (await reader.read(cursor=cursor, body_size=1)).status == MQ_ERROR_BUFFER_OVERFLOW
    assert (await reader.read(cursor=cursor)).body == b"two"


RULES: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"u_transfer_type": 0, "u": mqmp.CACTransferSend()}, {}, MQ_ERROR_INVALID_PARAMETER),
    ({}, {"action": 1}, MQ_ERROR_INVALID_PARAMETER),
    ({}, {"action": 0x8000_0002}, MQ_ERROR_INVALID_PARAMETER),
    ({}, {"action": 0x8000_0001}, MQ_ERROR_ILLEGAL_CURSOR_ACTION),
    ({}, {"cursor": 0x7FFF_FFFF}, MQ_ERROR_INVALID_HANDLE),
    ({"p_uow": uuid.uuid4().bytes_le}, {}, MQ_ERROR_TRANSACTION_SEQUENCE),
    (
        {"pp_body": None, "ul_body_buffer_size_in_bytes": 5, "ul_alloc_body_buffer_in_bytes": 0},
        {},
        MQ_ERROR_INVALID_PARAMETER,
    ),
    ({"pp_body": Pointed(None), "ul_alloc_body_buffer_in_bytes": 0}, {}, MQ_ERROR_INVALID_PARAMETER),
    ({"pul_title_buffer_size_in_wchars": None}, {}, MQ_ERROR_INSUFFICIENT_PROPERTIES),
    ({"pul_title_buffer_size_in_wchars": 3}, {}, MQ_ERROR_INVALID_PARAMETER),
    ({}, {"pul_dest_format_name_len_prop": None}, MQ_ERROR_INSUFFICIENT_PROPERTIES),
    ({}, {"pul_admin_format_name_len_prop": 5}, MQ_ERROR_INVALID_PARAMETER),
]


@served
async def test_a_buffer_that_breaks_a_rule_receives_nothing(site: Site) -> None:
    """3.1.5.3: the constraints on ptb's members."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"x")
    for changes, inner, status in RULES:
        buffer = receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0)
        if inner:
            buffer = with_old(buffer, u=replace(buffer.old.u, **inner))
        received = await reader.read(buffer=with_old(buffer, **changes))
        assert hex(received.status) == hex(status), (changes, inner)
    assert site.bodies() == [b"x"]


# Waiting
# --------------------------------------------------------------------------------------------------


@served
async def test_an_empty_queue_is_a_time_out(site: Site) -> None:
    """3.1.5.3 RequestTimeout, in milliseconds."""
    peer = await site.peer()
    reader = await peer.open()
    assert (await reader.read()).status == MQ_ERROR_IO_TIMEOUT
    assert (await reader.peek()).status == MQ_ERROR_IO_TIMEOUT
    assert (await reader.read(timeout=1)).status == MQ_ERROR_IO_TIMEOUT
    cursor = await reader.cursor()
    assert (await reader.read(cursor=cursor)).status == MQ_ERROR_MESSAGE_NOT_FOUND


@served
async def test_a_receive_waits_and_its_connection_continues(site: Site) -> None:
    """A message that comes ends the wait.

    Other calls on the same connection are served meanwhile.
    """
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    first = asyncio.ensure_future(reader.read(timeout=INFINITE))
    await site.waiting(1)
    second = asyncio.ensure_future(reader.peek(timeout=INFINITE))
    await site.waiting(2)
    assert (await sender.send(b"for the first"))[RETURNS] == OK
    assert (await first).body == b"for the first"
    assert not second.done()
    assert (await sender.send(b"for the second"))[RETURNS] == OK
    assert (await second).body == b"for the second"
    assert site.bodies() == [b"for the second"]


@served
async def test_a_wait_that_is_satisfied_by_what_does_not_fit(site: Site) -> None:
    peer = await site.peer()
    sender, reader = await peer.open(access=SEND), await peer.open()
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE, body_size=1))
    await site.waiting(1)
    await sender.send(b"long")
    assert (await waiting).status == MQ_ERROR_BUFFER_OVERFLOW
    assert site.bodies() == [b"long"]


@served
async def test_closing_the_handle_ends_its_waiting_reads(site: Site) -> None:
    """3.1.4.18 rpc_ACCloseHandle generates Close Queue."""
    peer = await site.peer()
    reader = await peer.open()
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE))
    await site.waiting(1)
    assert (await reader.close())[RETURNS] == OK
    assert (await waiting).status == MQ_ERROR_OPERATION_CANCELLED
    assert (await reader.read()).status == MQ_ERROR_INVALID_HANDLE


@served
async def test_deleting_the_queue_ends_its_waiting_reads(site: Site) -> None:
    peer = await site.peer()
    reader, sender = await peer.open(), await peer.open(access=SEND)
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE))
    await site.waiting(1)
    site.delete("q")
    assert (await waiting).status == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert (await reader.read()).status == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert (await sender.send())[RETURNS] == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert (await reader.create_cursor())[RETURNS] == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert (await reader.format_name(100))[RETURNS] == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await reader.purge() == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert (await reader.close())[RETURNS] == OK


@served
async def test_a_cancelled_call_waits_no_more(site: Site) -> None:
    """C706 12.6.4.6: cancels and orphans; nothing is lost."""
    peer = await site.peer()
    reader = await peer.open()
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE))
    await site.waiting(1)
    waiting.cancel()
    await site.waiting(0)
    site.send(b"kept")
    assert site.bodies() == [b"kept"]
    assert (await reader.read()).body == b"kept"


@pytest.mark.parametrize("in_transaction", [False, True])
@served
async def test_a_read_that_is_cancelled_when_its_message_has_arrived_gives_it_back(
    site: Site, in_transaction: bool
) -> None:
    """The message becomes locked at the moment when its reader disconnects."""
    peer = await site.peer()
    reader = await peer.open()
    begun = await peer.begin() if in_transaction else None
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE, transaction=begun))
    await site.waiting(1)
    site.send(b"kept")
    assert site.bodies() == []
    for task in list(site.server._tasks):
        task.cancel()
    with pytest.raises(RpcFault) as caught:
        await waiting
    assert caught.value.status == NCA_FAULT_CANCEL
    assert site.bodies() == [b"kept"]
    if begun is not None:
        assert (await begun.commit())[RETURNS] == OK
        assert site.bodies() == [b"kept"]


@served
async def test_the_association_s_end_ends_its_reads_and_closes_its_queues(site: Site) -> None:
    """3.1.7.1: the rundown of RPC_QUEUE_HANDLE."""
    peer = await site.peer()
    reader = await peer.open(dw_share_mode=1)
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE))
    await site.waiting(1)
    await peer.client.close()
    with pytest.raises(Exception, match="the connection was closed"):
        await waiting
    await until(lambda: len(site.queue_client.handles) == 0)
    assert not site.runtime.engine.opening.descriptors
    site.send(b"kept")
    assert (await (await (await site.peer()).open(dw_share_mode=1)).read()).body == b"kept"


@served
async def test_what_a_client_that_went_away_had_been_given_comes_back(site: Site) -> None:
    """The connection ends while the removal is being written: no client has seen the message."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"kept")
    site.committer.outcome = durable = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(reader.read())
    await until(lambda: site.count() == 0)
    await peer.client.close()
    with pytest.raises(Exception, match="the connection was closed"):
        await waiting
    await until(lambda: site.server.connections == 0)
    durable.set_result(None)
    await until(lambda: site.count() == 1)
    site.committer.outcome = None
    assert site.bodies() == [b"kept"]


@served
async def test_a_message_whose_call_is_abandoned_during_its_removal_comes_back(site: Site) -> None:
    """C706 12.6.4.8: the connection continues, and the client sees no answer to the call."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"kept")
    site.committer.outcome = durable = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(reader.read())
    await until(lambda: site.count() == 0)
    waiting.cancel()
    (connection,) = site.server.clients()
    await until(lambda: connection._core is not None and not connection._core.outstanding_calls)
    durable.set_result(None)
    await until(lambda: site.count() == 1)
    site.committer.outcome = None
    assert (await reader.read()).body == b"kept"


@served
async def test_a_store_that_fails_is_reported_and_the_message_stays(site: Site) -> None:
    """An answer before the disk would be a lie."""
    from lanner.model.errors import MessageStorageFailed

    peer = await site.peer()
    sender = await peer.open(access=SEND)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(MessageStorageFailed("no room"))
    site.committer.outcome = failed
    assert (await sender.send(b"x"))[RETURNS] == MessageStorageFailed.status


# Whose handle is it
# -------------------------------------------------------------------------------------------------


@served
async def test_the_number_of_a_queue_is_good_in_its_association_only(site: Site) -> None:
    """HQMContext is no context handle, so the runtime does not look after it (3.1.5.3)."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"x", b"y")
    stranger = await site.peer()
    assert (await reader.read(peer=stranger)).status == MQ_ERROR_INVALID_HANDLE
    friend = await site.peer(group=peer.client.assoc_group_id)
    assert (await reader.read(peer=friend)).body == b"x"
    # The handle itself is a fault there.
    reader.peer = stranger
    for call in (reader.send, reader.create_cursor, reader.purge, reader.close):
        with pytest.raises(RpcFault) as caught:
            await call()
        assert caught.value.status == NCA_FAULT_CONTEXT_MISMATCH
    assert site.bodies() == [b"y"]


@served
async def test_a_null_handle_is_invalid(site: Site) -> None:
    """Notes 52, 54, 57, 58, 72, 75: MQ_ERROR_INVALID_HANDLE."""
    peer = await site.peer()
    reader = await peer.open()
    reader.handle = NULL_HANDLE
    assert (await reader.send())[RETURNS] == MQ_ERROR_INVALID_HANDLE
    assert (await reader.create_cursor())[RETURNS] == MQ_ERROR_INVALID_HANDLE
    assert (await reader.format_name(10))[RETURNS] == MQ_ERROR_INVALID_HANDLE
    assert await reader.purge() == MQ_ERROR_INVALID_HANDLE
    assert await reader.close_cursor(1) == MQ_ERROR_INVALID_HANDLE
    assert (await reader.close())[RETURNS] == MQ_ERROR_INVALID_HANDLE
    reader.context = 0
    assert (await reader.read()).status == MQ_ERROR_INVALID_HANDLE


@served
async def test_rights_are_asked_for_when_the_queue_is_opened(site: Site) -> None:
    """2.1: "The server SHOULD use this identity to perform method-specific access checks"."""
    site.create("written", QueueAccess.WRITE_MESSAGE)
    peer = await site.peer()
    name = r"DIRECT=OS:.\private$\written"
    assert (await peer.open_queue(name, RECEIVE))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    assert (await peer.open_queue(name, PEEK))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    assert (await (await peer.open(name, SEND)).send())[RETURNS] == OK
    sid = site.add_user("alice")
    site.create("hers", sid=sid)
    assert (await peer.open_queue(r"DIRECT=OS:.\private$\hers"))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    await (await site.peer("alice")).open(r"DIRECT=OS:.\private$\hers")
