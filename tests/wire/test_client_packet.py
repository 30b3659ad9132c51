"""Packets that a program has built: what the queue manager writes over, and what it refuses."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import Acknowledgements, DeliveryGuarantee, MessagePrivacyLevel
from lanner.model.errors import InvalidParameter, RemoteProtocolError
from lanner.wire import client_packet, packet_runs
from lanner.wire import layout as at
from lanner.wire.builder import MessageProperties, build
from lanner.wire.client_packet import Stamp, body_size
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
    assert body_size(memoryview(made), 0) == len(Message(made).body)


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


FORMS = pytest.mark.parametrize(
    "form", [packet_runs._stamp_packets, packet_runs.stamp_packets], ids=["reference", "chosen"]
)


@FORMS
@pytest.mark.parametrize("transaction", [None, 0x12345])
def test_packets_that_follow_each_other_are_runs_of_equal_shape(
    monkeypatch: pytest.MonkeyPatch,
    form: Callable[..., tuple[list[bytes], int]],
    transaction: int | None,
) -> None:
    monkeypatch.setattr(client_packet, "stamp_packets", form)
    index = None if transaction is None else 0
    alike = [built(transaction=index, body=bytes(size), label="x" * size) for size in range(5)]
    named = [built(transaction=index, response_queue_format_name=REPLIES, body=bytes(size)) for size in range(3)]
    one = stamp(transaction=transaction)
    octets = memoryview(b"".join([*alike, *named, alike[0]]))
    runs, error = one.stamped_runs(octets, 9, 70)
    assert error is None
    numbers = itertools.count(70)
    assert runs == [[one.stamped(each, next(numbers)) for each in some] for some in (alike, named, alike[:1])]
    assert [body_size(octets, index) for index in range(9)] == [0, 1, 2, 3, 4, 0, 1, 2, 0]
    assert one.stamped_runs(memoryview(b""), 5, 70) == ([], None)
    with pytest.raises(RemoteProtocolError, match="more than 8 packets"):
        one.stamped_runs(octets, 8, 70)


def test_the_ordinals_of_a_run_begin_again_after_32_bits() -> None:
    runs, _ = stamp().stamped_runs(memoryview(built() * 3), 3, 0x1_FFFF_FFFF)
    assert [Message(each).identifier.ordinal for each in runs[0]] == [0xFFFF_FFFF, 0, 1]


@FORMS
def test_packets_that_are_transactions_of_their_own_have_numbers_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
    form: Callable[..., tuple[list[bytes], int]],
) -> None:
    monkeypatch.setattr(client_packet, "stamp_packets", form)
    alike = [built(transaction=0, body=bytes(size)) for size in range(4)]
    named = [built(transaction=0, response_queue_format_name=REPLIES, body=bytes(size)) for size in range(3)]
    one = stamp(transaction=0xF_FFFE, is_alone=True)
    runs, error = one.stamped_runs(memoryview(b"".join([*alike, *named])), 9, 70)
    assert error is None
    assert [len(run) for run in runs] == [4, 3]
    found = [Message(packet) for run in runs for packet in run]
    assert [each.transaction_identifier for each in found] == [0xF_FFFE, 0xF_FFFF, 0, 1, 2, 3, 4]
    assert all(each.first_in_transaction and each.last_in_transaction for each in found)
    assert [each.identifier.ordinal for each in found] == [*range(70, 77)]


@FORMS
def test_what_cannot_be_sent_ends_the_runs_and_what_is_no_packet_all(
    monkeypatch: pytest.MonkeyPatch,
    form: Callable[..., tuple[list[bytes], int]],
) -> None:
    monkeypatch.setattr(client_packet, "stamp_packets", form)
    good, bad = built(), built(allocation_body_size=9)
    runs, error = stamp().stamped_runs(memoryview(good + good + bad + good), 9, 1)
    assert [len(run) for run in runs] == [2]
    assert isinstance(error, InvalidParameter)
    for rest in (b"x" * 200, good[:-1], good[:20]):
        with pytest.raises(RemoteProtocolError, match="a packet of"):
            stamp().stamped_runs(memoryview(good + bad + rest), 9, 1)


@given(data=st.data(), transaction=st.sampled_from([None, 5]))
def test_a_damaged_packet_in_a_run_is_what_it_is_alone(data: st.DataObject, *, transaction: int | None) -> None:
    one = stamp(transaction=transaction)
    good = built(transaction=None if transaction is None else 0)
    packet = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        packet[data.draw(st.integers(12, len(packet) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(packet)
    try:
        alone = one.stamped(damaged, 2)
    except InvalidParameter:
        alone = None
    runs, error = one.stamped_runs(memoryview(good + damaged), 9, 1)
    assert [each for run in runs for each in run][1:] == ([] if alone is None else [alone])
    assert (error is None) == (alone is not None)
    for form in (packet_runs._stamp_packets, packet_runs.stamp_packets):
        places = one._places(good)
        at_transaction = -1 if transaction is None else places[0]
        front, header = one.stamped(good, 1)[:64], one._transaction
        found = form(damaged, 0, good, at_transaction, places[1], front, header, 2, 0)
        assert found in (([], 0), ([alone], len(damaged)))


@given(st.binary(max_size=400))
def test_any_octets_are_packets_or_refused(octets: bytes) -> None:
    try:
        runs, _ = stamp().stamped_runs(memoryview(octets), 10, 1)
    except RemoteProtocolError:
        return
    assert sum(len(each) for run in runs for each in run) <= len(octets)
