"""Malformed transfer buffers: each call is answered, and nothing crashes.

The tests also decode them with a client's own helpers.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from lanner.model.enums import Acknowledgements, AuthenticationLevel, DeliveryGuarantee
from lanner.model.errors import IllegalOperation, RemoteProtocolError, StatusError
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS, Method
from lanner.rpc.ndr import BadStub, Pointed
from lanner.rpc.pdu import AuthLevel
from lanner.services.interfaces import mqmp
from lanner.services.queue_client_buffers import needed_sizes, packet_of, receive_buffer, send_buffer
from lanner.services.queue_client_receiving import MQ_ACTION_RECEIVE, fill, requested
from lanner.services.queue_client_sending import message_properties
from lanner.wire.builder import MessageProperties, build, set_authentication
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.services.calls import CALLS
from tests.services.queue_client_peer import Site, served, serving, with_old
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_ILLEGAL_OPERATION, NCA_FAULT_CONTEXT_MISMATCH

SOURCE = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
DESTINATION = parse(r"DIRECT=OS:alpha\private$\q")
RICH = MessageProperties(
    body=b"body" * 30,
    label="label",
    delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
    correlation_identifier=bytes(range(20)),
    extension=b"extension",
    acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
    administration_queue_format_name=parse(r"DIRECT=OS:alpha\private$\admin"),
    response_queue_format_name=parse(f"PRIVATE={SOURCE}\\7"),
    connector_type_identifier=uuid.UUID(int=7),
    sender_identifier=bytes.fromhex("010100000000000507000000"),
    sender_certificate=b"certificate",
    signature=b"signature",
    authentication_provider_name="provider",
    authentication_provider_type=24,
)


def packet(properties: MessageProperties = RICH, **options: Any) -> bytes:  # noqa: ANN401 (of build)
    plain: dict[str, Any] = {"source": SOURCE, "ordinal": 9, "sent_time": 1000, "destination": DESTINATION}
    return build(properties, **(plain | options))


def damaged(stub: bytes, rng: random.Random) -> bytes:
    octets = bytearray(stub)
    for _ in range(rng.randint(1, 4)):
        octets[rng.randrange(len(octets))] = rng.choice((0, 1, 2, 5, 0x7F, 0xFF, rng.randrange(256)))
    return bytes(octets)


def decoded(method: Method, arguments: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the parts of many damaged stubs that can be decoded."""
    rng = random.Random(method.name)
    stub = method.encode_request(arguments)
    found = []
    for _ in range(count):
        try:
            found.append(method.decode_request(damaged(stub, rng)))
        except BadStub:
            continue
    assert len(found) > count // 20
    return found


def test_a_damaged_message_is_sent_or_refused() -> None:
    """3.1.5.2: whatever passes the stub makes a packet that can be read, or an HRESULT."""
    arguments = {"h_queue": bytes(20), "ptb": send_buffer(RICH, SOURCE), "p_message_id": None}
    sent = 0
    for one in decoded(mqmp.RPC_AC_SEND_MESSAGE_EX, arguments, 2000):
        try:
            made = packet(message_properties(one["ptb"]))
        except StatusError:
            continue
        Message.unpack(made)
        sent += 1
    assert sent


def test_a_damaged_room_is_filled_or_refused() -> None:
    """3.1.5.3: whatever passes the stub can be answered."""
    method = mqmp.RPC_AC_RECEIVE_MESSAGE_EX
    room = receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0, body_size=130, extension_size=9)
    arguments = {"h_qm_context": 1, "ptb": room}
    message = Message(packet(transaction=5))
    filled = 0
    for one in decoded(method, arguments, 2000):
        try:
            requested(one["ptb"])
        except StatusError:
            method.encode_response({RETURNS: 1}, one)
            continue
        buffer, error = fill(one["ptb"], message, 1001, 1002)
        answer = method.decode_response(method.encode_response({"ptb": buffer, RETURNS: 0}, one), one)
        assert answer["ptb"] == buffer
        filled += error is None
    assert filled


def test_every_member_of_a_buffer_may_be_null() -> None:
    """Each pointer alone, with and without what it points to."""
    method = mqmp.RPC_AC_RECEIVE_MESSAGE_EX
    plain = receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0, body_size=130, extension_size=9)
    message = Message(packet())
    for field in fields(plain.old):
        value = getattr(plain.old, field.name)
        for given in (None, Pointed(None)) if isinstance(value, Pointed) else (None,):
            if field.name in ("u", "u_transfer_type") or (value is not None and not field.name.startswith("p")):
                continue
            buffer = with_old(plain, **{field.name: given})
            try:
                stub = method.encode_request({"h_qm_context": 1, "ptb": buffer})
            except ValueError:
                continue  # a NULL that announces a size
            one = method.decode_request(stub)
            try:
                requested(buffer)
            except StatusError:
                continue
            answer, _ = fill(buffer, message, 1, 2)
            method.encode_response({"ptb": answer, RETURNS: 0}, one)
            if given is None:
                assert getattr(answer.old, field.name) is None


@served
async def test_damaged_calls_of_every_method_are_answered(site: Site) -> None:
    """The answer is a result, a bad stub, or another caller's handle.

    The server continues, and no call fails on its own.
    """
    peer = await site.peer()
    rng = random.Random(4)
    seen: set[int] = set()
    for call in CALLS:
        if call.interface not in (mqmp.QMCOMM, mqmp.QMCOMM2):
            continue
        bound = peer.qmcomm if call.interface is mqmp.QMCOMM else peer.qmcomm2
        stub = call.method.encode_request(call.arguments)
        for _ in range(15):
            try:
                await bound.call_raw(call.method.opnum, damaged(stub, rng) if stub else b"")
            except RpcFault as fault:
                seen.add(fault.status)
    assert seen <= {0x6F7, NCA_FAULT_CONTEXT_MISMATCH, MQ_ERROR_ILLEGAL_OPERATION}
    assert await peer.status(mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=0) == site.port


def test_who_does_not_say_who_it_is_may_be_refused(tmp_path: Path) -> None:
    """5.1: everything but R_QMGetRTQMServerPort."""

    async def run() -> None:
        async with serving(tmp_path, level=AuthLevel.PKT_INTEGRITY) as site:
            peer = await site.peer()
            assert await peer.status(mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=0) == site.port
            denied = await peer.status(mqmp.R_QM_QUERY_QM_REGISTRY_INTERNAL, dw_query_type=4)
            assert denied == MQ_ERROR_ACCESS_DENIED
            answer = await peer.call2(
                mqmp.RPC_AC_RECEIVE_MESSAGE_EX, h_qm_context=1, ptb=receive_buffer(action=0, timeout=0)
            )
            assert answer[RETURNS] == MQ_ERROR_ACCESS_DENIED
            site.add_user("alice")
            alice = await site.peer("alice")
            assert await alice.status(mqmp.R_QM_QUERY_QM_REGISTRY_INTERNAL, dw_query_type=4) == 0

    asyncio.run(run())


# What a client's helpers do
# -----------------------------------------------------------------------------------------


def test_a_message_survives_both_buffers() -> None:
    """Properties, send buffer, properties, packet, receive buffer, packet: the same message."""
    properties = message_properties(send_buffer(RICH))
    original = Message(set_authentication(packet(properties, transaction=3), AuthenticationLevel.SIG20))
    room = receive_buffer(action=0, timeout=0, extension_size=9)
    filled, error = fill(room, original, 1001, 1001)
    assert error is None
    again = Message(packet_of(filled))
    for name in (
        "body",
        "label",
        "priority",
        "identifier",
        "sent_time",
        "delivery_guarantee",
        "correlation_identifier",
        "extension",
        "acknowledgements_requested",
        "administration_queue_format_name",
        "response_queue_format_name",
        "destination_queue_format_name",
        "connector_type_identifier",
        "sender_identifier",
        "sender_identifier_type",
        "sender_certificate",
        "signature",
        "authentication_provider_name",
        "authentication_provider_type",
        "authentication_level",
        "hash_algorithm",
        "transaction_identifier",
        "time_to_reach_queue",
        "time_to_be_received",
    ):
        assert getattr(again, name) == getattr(original, name), name


def test_the_sizes_that_are_needed_are_enough() -> None:
    message = Message(packet(replace(RICH, body=bytes(50_000), sender_certificate=bytes(3000))))
    small, error = fill(receive_buffer(action=0, timeout=0, name_size=3), message, 1, 2)
    assert error is not None
    filled, error = fill(receive_buffer(action=0, timeout=0, **needed_sizes(small)), message, 1, 2)
    assert error is None
    assert Message(packet_of(filled)).body == bytes(50_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"application_deadletter_queue": "x\\y"},
        {"soap_header": "x"},
        {"tracing_queue_identifier": SOURCE},
        {"multiple_destination_signature": b"x"},
    ],
    ids=str,
)
def test_what_the_protocol_cannot_carry_is_said_to_the_sender(changes: dict[str, Any]) -> None:
    with pytest.raises(IllegalOperation):
        send_buffer(replace(RICH, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"pp_message_id": None},
        {"pp_correlation_id": Pointed(None)},
        {"p_body_size": 1 << 30},
        {"p_body_size": None},
        {"pul_priv_level": 4},
        {"u": mqmp.CACTransferSend()},
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_is_the_server_s_fault(changes: dict[str, Any]) -> None:
    filled, _ = fill(receive_buffer(action=0, timeout=0, extension_size=9), Message(packet()), 1, 2)
    with pytest.raises(RemoteProtocolError):
        packet_of(with_old(filled, **changes))


def test_what_is_received_is_reported_in_the_packet_s_privacy_levels() -> None:
    """2.2.3.2 pulPrivLevel: 2 is read as Enhanced, which is returned as 3."""
    from lanner.model.enums import MessagePrivacyLevel

    for given, level in ((1, MessagePrivacyLevel.BASE), (2, MessagePrivacyLevel.ENHANCED), (3, 3), (5, 5)):
        buffer = with_old(send_buffer(MessageProperties()), pul_priv_level=given, pul_encrypt_alg=0x6602)
        assert message_properties(buffer).privacy_level == level
    private = Message(packet(MessageProperties(privacy_level=MessagePrivacyLevel.ENHANCED)))
    assert fill(receive_buffer(action=0, timeout=0), private, 1, 2)[0].old.pul_priv_level == 3
