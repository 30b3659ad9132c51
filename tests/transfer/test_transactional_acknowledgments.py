"""Who is told how a transactional message ended, and where.

MS-MQQB 3.1.7.17 Send Transactional Acknowledgment, 3.1.7.2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.model.enums import Acknowledgements, MessageClass, QueueAccessType
from lanner.model.live import MessagePosition
from lanner.transfer.packets import FinalAckBody, OrderAckBody
from lanner.transfer.transactional_acknowledgments import order_queue_of
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from tests.transfer.incoming_harness import (
    LEDGER,
    ORDER_QUEUE,
    OTHER,
    PEER,
    SEQUENCE,
    FakeLink,
    IncomingHarness,
    final_acks,
)

HEADERS_ALONE = 0x0020_0000  # UserHeader.Flags with MP and no other bit


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    harness = IncomingHarness(tmp_path / "data")
    harness.create("ledger", transactional=True)
    harness.create("q")
    yield harness
    harness.close()


def user_flags(message: Message) -> int:
    return int.from_bytes(message.packet[60:64], "little")


# Packets
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.17-1")
def test_acknowledgments_are_bare_messages_of_low_rank(h: IncomingHarness) -> None:
    """Priority 0, OrderAck express and FinalAck recoverable.

    They request nothing and have no security, the label 'QM Ordering Ack' and a VT_EMPTY body.
    """
    h.arrive(h.packet(to=LEDGER, number=1, final_ack_required=True))
    h.order_acks()
    h.receive("ledger")
    (order_ack,) = h.link.express
    (final_ack,) = h.outgoing(ORDER_QUEUE)
    direct = 7 << 10
    assert user_flags(order_ack) == HEADERS_ALONE | direct
    assert user_flags(final_ack) == HEADERS_ALONE | direct | 1 << 5
    for message in (order_ack, final_ack):
        assert message.packet[2:4] == b"\0\0", "BaseHeader.Flags: priority 0, no tracing"
        assert message.label == "QM Ordering Ack"
        assert (message.body_type, message.body_size) == (0, 36)
        assert message.acknowledgements_requested == Acknowledgements.NONE
        assert message.administration_queue_format_name is None
        assert message.response_queue_format_name is None
        assert message.source_machine_identifier == h.engine.queue_manager.identifier
        assert message.privacy_level == 0
    assert order_ack.identifier != final_ack.identifier


@pytest.mark.spec("QQB-3.1.7.17-2", "QQB-2.2.4.1-2")
def test_an_order_ack_names_the_senders_sequence_and_the_number_before(h: IncomingHarness) -> None:
    """The number less one, even if the real predecessor expired; nothing is sent for number 0."""
    h.arrive(h.packet(to=LEDGER, number=1), h.packet(to=LEDGER, number=5, previous=1))
    h.order_acks()
    (order_ack,) = h.link.express
    assert order_ack.body == SEQUENCE.pack() + b"\5\0\0\0" + b"\4\0\0\0" + bytes(20)
    assert OrderAckBody.from_packet(order_ack.packet) == OrderAckBody(SEQUENCE, 5, 4)


@pytest.mark.spec("QQB-2.2.5.1-2")
@pytest.mark.parametrize(("number", "previous"), [(1, 0), (7, 0), (9, 0)])
def test_a_final_ack_repeats_what_the_message_said_of_its_predecessor(
    h: IncomingHarness, number: int, previous: int
) -> None:
    """0 for the first; a bridged number stays bridged."""
    packets = [
        h.packet(to=LEDGER, number=number, previous=previous, ordinal=71, final_ack_required=True),
        h.packet(to=LEDGER, number=number + 4, previous=number, ordinal=72, final_ack_required=True),
    ]
    h.arrive(*packets)
    h.messages("ledger")
    bodies = [FinalAckBody.from_packet(message.packet) for message in h.outgoing(ORDER_QUEUE)]
    assert bodies == [
        FinalAckBody(SEQUENCE, number, previous, PEER, 71),
        FinalAckBody(SEQUENCE, number + 4, number, PEER, 72),
    ]


# Addresses
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.17-3")
def test_acknowledgments_go_back_by_the_kind_of_name_the_message_came_by(h: IncomingHarness) -> None:
    r"""By direct name: to the address it came from. Else to PRIVATE=<source>\00000004."""
    me = h.engine.queue_manager.identifier
    number = h.queue("ledger").private_queue_number
    privately = rf"PRIVATE={me}\{number:x}"
    by_guid = rf"PRIVATE={PEER}\00000004"
    for to, back in ((LEDGER, ORDER_QUEUE), (privately, by_guid)):
        h.link = FakeLink()
        h.arrive(h.packet(to=to, number=1, final_ack_required=True))
        h.order_acks()
        h.receive("ledger")
        (order_ack,) = h.link.express
        assert str(order_ack.destination_queue_format_name) == back
        (final_ack,) = h.outgoing(back)
        assert str(final_ack.destination_queue_format_name) == back
        zero = b"\0" * 16
        assert order_ack.packet[32:48] == final_ack.packet[32:48] == (zero if to is LEDGER else PEER.bytes_le)
    assert str(order_queue_of(PEER, "2001:db8::7", is_direct=True)) == r"DIRECT=TCP:2001:db8::7\PRIVATE$\order_queue$"


@pytest.mark.spec("QQB-3.1.7.17-3")
def test_what_came_through_a_router_is_acknowledged_to_its_sender(h: IncomingHarness) -> None:
    """Acknowledgments are end-to-end.

    The router at the other end of the session is not the sender.
    """
    me = h.engine.queue_manager.identifier
    privately = rf"PRIVATE={me}\{h.queue('ledger').private_queue_number:x}"
    h.link = FakeLink(OTHER, "192.0.2.99", is_router=True)
    h.arrive(h.packet(to=privately, number=1, final_ack_required=True))
    h.order_acks()
    h.receive("ledger")
    assert h.link.express == []
    order_ack, final_ack = h.outgoing(rf"PRIVATE={PEER}\00000004")
    assert order_ack.message_class == 0x00FF
    assert not order_ack.is_recoverable
    assert user_flags(order_ack) == HEADERS_ALONE | 3 << 10
    assert OrderAckBody.from_packet(order_ack.packet) == OrderAckBody(SEQUENCE, 1, 0)
    assert final_ack.message_class == 0x4000


def test_the_address_of_a_sender_outlives_a_restart(h: IncomingHarness) -> None:
    h.arrive(h.packet(to=LEDGER, number=1, final_ack_required=True))
    h.sync()
    h.crash()
    h.receive("ledger")
    assert final_acks(h) == [0x4000]


@pytest.mark.spec("QQB-3.1.7.17-4")
def test_an_acknowledgment_that_can_go_nowhere_is_dropped(h: IncomingHarness) -> None:
    """The receive and the refusal that it is about are not disturbed."""
    # No computer can have this name, so no queue for it can be opened.
    h.link = FakeLink(remote_address="no host")
    h.arrive(
        h.packet(b"read", to=LEDGER, number=1, final_ack_required=True),
        h.packet(number=1, to=r"DIRECT=OS:ALPHA\private$\none"),
    )
    assert h.receive("ledger") == b"read"
    assert h.all_outgoing() == {}
    assert h.link.close_reasons == []
    assert h.link.processed_numbers == [2]


def test_an_address_that_is_our_own_gets_no_acknowledgments(tmp_path: Path) -> None:
    """They would stay in the local order queue, which has no reader."""
    h = IncomingHarness(tmp_path / "data", local_addresses=frozenset({"192.0.2.7"}))
    h.create("ledger", transactional=True)
    h.arrive(h.packet(b"read", to=LEDGER, number=1, final_ack_required=True))
    assert h.receive("ledger") == b"read"
    order_queue = h.engine.queue_manager.order_acknowledgment_queue
    assert order_queue is not None
    assert order_queue.message_count == 0
    h.close()


# Removal
# --------------------------------------------------------------------------------------------------


def receive(h: IncomingHarness) -> None:
    assert h.receive("ledger") is not None


def purge(h: IncomingHarness) -> None:
    h.engine.purge_queue(h.queue("ledger"))


def delete(h: IncomingHarness) -> None:
    h.engine.delete_queue(h.queue("ledger"))


def expire(h: IncomingHarness) -> None:
    h.tick(101)


def reject(h: IncomingHarness) -> None:
    queue = h.queue("ledger")
    position = h.engine.positions.seek_available_message_position(queue, -1, peek=True)
    assert isinstance(position, MessagePosition)
    h.engine.message_position_deleted(queue, position, MessageClass.NACK_RECEIVE_REJECTED)


ENDS = [(receive, 0x4000), (delete, 0xC000), (purge, 0xC001), (expire, 0xC002), (reject, 0xC004)]


@pytest.mark.spec("QQB-3.1.7.2.2-1", "DMPR-3.1.1.12-25")
@pytest.mark.parametrize(("end", "message_class"), ENDS)
@pytest.mark.parametrize(
    "asks", ["positive_journaling_requested", "negative_journaling_requested", "final_ack_required"]
)
def test_removal_is_told_to_who_asked_with_its_reason(
    h: IncomingHarness, end: Callable[[IncomingHarness], None], message_class: int, asks: str
) -> None:
    asking: dict[str, Any] = {asks: True}
    h.arrive(h.packet(b"asks", to=LEDGER, number=1, ordinal=55, time_to_be_received=100, **asking))
    assert h.all_outgoing() == {}
    end(h)
    (final_ack,) = h.outgoing(ORDER_QUEUE)
    assert final_ack.message_class == message_class
    assert FinalAckBody.from_packet(final_ack.packet).message_id == 55


@pytest.mark.spec("QQB-3.1.7.2.2-1", "DMPR-3.1.1.12-25")
@pytest.mark.parametrize(("end", "_class"), ENDS)
def test_removal_is_not_told_to_who_did_not_ask(
    h: IncomingHarness, end: Callable[[IncomingHarness], None], _class: int
) -> None:
    h.arrive(h.packet(b"silent", to=LEDGER, number=1, time_to_be_received=100))
    end(h)
    assert h.all_outgoing() == {}


def test_other_messages_have_no_final_acks(h: IncomingHarness) -> None:
    """Not transactional, or sent here: no sender waits for one."""
    h.arrive(h.packet(b"plain", positive_journaling_requested=True, negative_journaling_requested=True))
    transaction = h.begin()
    h.send("ledger", b"local", transaction=transaction, final_ack_required=True, negative_journaling_requested=True)
    h.commit(transaction)
    assert h.receive() == b"plain"
    assert h.receive("ledger") == b"local"
    assert h.all_outgoing() == {}


def test_a_receive_is_reported_when_it_commits(h: IncomingHarness) -> None:
    h.arrive(h.packet(b"once", to=LEDGER, number=1, final_ack_required=True))
    transaction = h.begin()
    assert h.receive("ledger", transaction) == b"once"
    h.abort(transaction)
    assert final_acks(h) == []
    transaction = h.begin()
    assert h.receive("ledger", transaction) == b"once"
    assert final_acks(h) == []
    h.commit(transaction)
    assert final_acks(h) == [0x4000]


def test_a_message_moved_to_a_subqueue_is_told_of_from_there(h: IncomingHarness) -> None:
    h.arrive(h.packet(b"poison", to=LEDGER, number=1, final_ack_required=True))
    source = h.open("ledger", QueueAccessType.MOVE)
    target = h.open(r"DIRECT=OS:.\private$\ledger;poison", QueueAccessType.MOVE)
    (lookup_id,) = h.lookup_ids("ledger").values()
    h.engine.move_message_by_lookup_identifier(source, lookup_id, target)
    assert final_acks(h) == []
    assert h.receive(r"DIRECT=OS:.\private$\ledger;poison") == b"poison"
    assert final_acks(h) == [0x4000]


def test_journal_copies_have_no_end_of_their_own(h: IncomingHarness) -> None:
    h.engine.set_queue_properties(h.queue("ledger"), {"journaling": True})
    h.arrive(h.packet(b"copied", to=LEDGER, number=1, final_ack_required=True))
    h.receive("ledger")
    assert h.receive(r"DIRECT=OS:.\private$\ledger;journal") == b"copied"
    assert final_acks(h) == [0x4000]


# Refusal
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-2.2.5-4")
def test_a_refusal_for_a_cause_is_reported_and_a_duplicate_or_gap_is_not(h: IncomingHarness) -> None:
    nowhere = r"DIRECT=OS:ALPHA\private$\none"
    h.arrive(
        h.packet(to=LEDGER, number=1),
        h.packet(to=LEDGER, number=1),
        h.packet(to=LEDGER, number=3),
        h.packet(to=LEDGER, number=1, sequence=TxSequenceID(1, 5)),
    )
    assert h.all_outgoing() == {}
    h.arrive(h.packet(number=1), h.packet(number=1), h.packet(to=nowhere, number=1), h.packet(to=nowhere, number=1))
    assert final_acks(h) == [0x8009, 0x8000]
    h.engine.set_queue_properties(h.queue("ledger"), {"quota": 0})
    h.arrive(h.packet(to=LEDGER, number=2), h.packet(to=LEDGER, number=2))
    assert final_acks(h) == [0x8009, 0x8000, 0x8003]


def test_final_acks_are_durable_with_what_they_tell_of(h: IncomingHarness) -> None:
    h.arrive(h.packet(to=LEDGER, number=1, final_ack_required=True))
    h.sync()
    h.receive("ledger")
    h.sync()
    h.crash()
    assert final_acks(h) == [0x4000]
    assert h.bodies("ledger") == []
