"""Packets that a program has built: what the queue manager writes over, and what it refuses."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import Acknowledgements, DeliveryGuarantee, MessagePrivacyLevel
from lanner.model.errors import InvalidParameter, RemoteProtocolError
from lanner.wire import client_packet
from lanner.wire import layout as at
from lanner.wire.builder import MessageProperties, build
from lanner.wire.client_packet import Stamp, body_size, split
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.quick_check import check

SOURCE = UUID("11111111-2222-3333-4444-555555555555")
HOST = UUID("99999999-2222-3333-4444-555555555555")
OTHER_HOST = UUID("88888888-2222-3333-4444-555555555555")
SID = bytes.fromhex("010500000000000515000000010000000200000003000000e8030000")
OTHER_SID = SID[:-4] + bytes(4)
DIRECT = parse(r"DIRECT=OS:ALPHA\private$\orders")
PUBLIC = parse("PUBLIC=12345678-2222-3333-4444-555555555555")
REPLIES = parse(r"DIRECT=OS:BETA\private$\replies")
LONGEST = 1000
NOW = 1_700_000_000


def stamp(**changes: Any) -> Stamp:  # noqa: ANN401 (of any parameter)
    given: dict[str, Any] = {
        "source": SOURCE,
        "destination": DIRECT,
        "host": None,
        "sender": SID,
        "transaction": None,
        "now": NOW,
        "longest": LONGEST,
    }
    return Stamp(**{**given, **changes})


def built(destination: Any = DIRECT, transaction: int | None = None, **changes: Any) -> bytes:  # noqa: ANN401 (of any property)
    """Return a packet as a client builds it, which does not know who sends when."""
    properties = MessageProperties(**{"body": b"body", "label": "label", "sender_identifier": SID, **changes})
    return build(
        properties, source=UUID(int=0), ordinal=0, sent_time=0, destination=destination, transaction=transaction
    )


def expected(destination: Any = DIRECT, transaction: int | None = None, **changes: Any) -> bytes:  # noqa: ANN401
    properties = MessageProperties(**{"body": b"body", "label": "label", "sender_identifier": SID, **changes})
    properties.time_to_reach_queue = min(properties.time_to_reach_queue, LONGEST)
    if destination is PUBLIC:
        properties.destination_queue_manager_identifier = HOST
    return build(properties, source=SOURCE, ordinal=77, sent_time=NOW, destination=destination, transaction=transaction)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"body": b"", "label": ""},
        {"body": bytes(4097), "label": "ä" * 249},
        {"delivery_guarantee": DeliveryGuarantee.RECOVERABLE, "priority": 7},
        {"time_to_reach_queue": 10, "time_to_be_received": 20},
        {"positive_journaling_requested": True, "negative_journaling_requested": True},
        {"extension": b"abc", "application_tag": 5, "body_type": 8, "correlation_identifier": b"c" * 20},
        {"response_queue_format_name": REPLIES},
        {
            "acknowledgements_requested": Acknowledgements.FULL_REACH_QUEUE,
            "administration_queue_format_name": REPLIES,
            "response_queue_format_name": REPLIES,
        },
        {"response_queue_format_name": PUBLIC, "connector_type_identifier": HOST},
        {"response_queue_format_name": parse(f"PRIVATE={OTHER_HOST}\\9")},
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
@pytest.mark.parametrize("transaction", [None, 0x12345])
@pytest.mark.parametrize("destination", [DIRECT, PUBLIC], ids=["direct", "public"])
def test_a_stamped_packet_is_the_one_that_the_queue_manager_builds(
    changes: dict[str, Any],
    transaction: int | None,
    destination: Any,  # noqa: ANN401 (a format name)
) -> None:
    packet = built(destination, None if transaction is None else 0, **changes)
    made = stamp(destination=destination, host=HOST, transaction=transaction).stamped(packet, 77)
    assert made == expected(destination, transaction, **changes)
    assert body_size(made) == len(Message(made).body)


@pytest.mark.parametrize(
    ("packet", "why"),
    [
        (built(parse(r"DIRECT=OS:ALPHA\private$\other_")), "another destination"),
        (built(sender_identifier=OTHER_SID), "another sender"),
        (built(sender_identifier=b""), "Flags"),
        (built(transaction=0), "Flags"),
        (built(tracing_requested=True), "BaseHeader.Flags"),
        (built(signature=b"s" * 64, sender_certificate=b"c"), "another sender"),
        (built(privacy_level=MessagePrivacyLevel.BASE), "another sender"),
        (built(message_class=1), "MessagePropertiesHeader"),
        (built(allocation_body_size=9), "MessagePropertiesHeader"),
        (built(destination_multi_queue_format_name=DIRECT), "Flags"),
        (built(soap_body="<x/>"), "Flags"),
        (built(response_queue_format_name=parse(r"DIRECT=OS:.\private$\x")), "each computer"),
        (built(response_queue_format_name=parse(r"DIRECT=OS:localhost\private$\x")), "each computer"),
    ],
)
def test_what_a_program_cannot_send_is_refused(packet: bytes, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        stamp().stamped(packet, 77)


def test_a_message_of_nobody_names_nobody() -> None:
    made = stamp(sender=b"").stamped(built(sender_identifier=b""), 77)
    assert Message(made).sender_identifier == b""
    with pytest.raises(InvalidParameter, match="Flags"):
        stamp(sender=b"").stamped(built(), 77)


@given(data=st.data(), named=st.booleans(), transaction=st.sampled_from([None, 5]))
def test_a_damaged_packet_is_refused_or_still_a_message_of_this_sender(
    data: st.DataObject, *, named: bool, transaction: int | None
) -> None:
    packet = bytearray(
        built(
            transaction=None if transaction is None else 0,
            response_queue_format_name=REPLIES if named else None,
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        packet[data.draw(st.integers(0, len(packet) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del packet[data.draw(st.integers(at.MINIMUM_SIZE, len(packet))) :]
        packet[8:12] = struct.pack("<I", len(packet))
    try:
        made = stamp(transaction=transaction).stamped(bytes(packet), 77)
    except InvalidParameter:
        return
    check(made)
    message = Message.unpack(made)
    assert (message.sender_identifier, message.source_machine_identifier) == (SID, SOURCE)
    assert (message.identifier.ordinal, message.sent_time, message.message_class) == (77, NOW, 0)
    assert message.destination_queue_format_name == DIRECT
    assert not message.authentication_level
    assert message.is_transactional == (transaction is not None)


def test_packets_that_follow_each_other_are_split() -> None:
    packets = [built(body=bytes(number)) for number in range(5)]
    assert split(memoryview(b"".join(packets)), 5) == packets
    assert split(memoryview(b""), 5) == []
    with pytest.raises(RemoteProtocolError, match="more than 4 packets"):
        split(memoryview(b"".join(packets)), 4)


@given(st.binary(max_size=400))
def test_any_octets_are_packets_or_refused(octets: bytes) -> None:
    try:
        found = client_packet.split(memoryview(octets), 10)
    except RemoteProtocolError:
        return
    assert b"".join(found) == octets
