"""Delivered messages whose senders asked to be told of their end.

They go to the journal, to the dead-letter queue, or nowhere.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.enums import MessageClass, QueueAccessType
from lanner.model.errors import AccessDenied
from lanner.security.identity import ANONYMOUS
from lanner.transfer.packets import FinalAckBody
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.engine.harness import at_once
from tests.transfer.outgoing import Outgoing, bodies, numbers

RECEIVED = int(MessageClass.ACK_RECEIVE)
PURGED = int(MessageClass.NACK_QUEUE_PURGED)


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Outgoing]:
    harness = Outgoing(tmp_path / "data")
    yield harness
    harness.close()


def deliver(h: Outgoing, body: bytes = b"a", **properties: object) -> bytes:
    """Send a transactional message, with both acknowledgments; the packet that the peer has."""
    h.say(body, transactional=True, **properties)
    (entry,) = h.transmit()
    packet = entry.packet
    h.acknowledge(entry)
    h.order_ack(entry.tx_sequence_number)
    return packet


@pytest.mark.spec("QQB-3.1.5.6-4")
@pytest.mark.spec("QQB-3.1.1.3.1-5")
def test_order_acked_messages_with_jp_or_jn_wait_for_their_final_ack_and_no_others(h: Outgoing) -> None:
    h.say(b"positive", transactional=True, positive_journaling_requested=True)
    h.say(b"neither", transactional=True)
    h.say(b"negative", transactional=True, negative_journaling_requested=True)
    h.say(b"recoverable", negative_journaling_requested=True)
    h.say(b"not order-acked", transactional=True, negative_journaling_requested=True)
    sent = {entry.lookup_id: entry for entry in h.transmit()}
    assert h.unread == []
    in_order = [entry for entry in sent.values() if entry.tx_sequence_number]
    plain = [entry for entry in sent.values() if not entry.tx_sequence_number]
    h.acknowledge(*in_order[:2], *in_order[3:], *plain)
    h.order_ack(3)
    assert h.unread == [b"positive"]
    h.acknowledge(in_order[2])  # its SessionAck comes last
    assert h.unread == [b"positive", b"negative"]
    assert h.waiting == [b"not order-acked"]
    assert (h.journal, h.transactional_dead_letters) == ([], [])
    h.sync()
    h.crash()
    assert h.unread == [b"positive", b"negative"]
    assert h.waiting == [b"not order-acked"]


@pytest.mark.spec("QQB-3.1.1.3.2-1")
def test_what_waits_and_what_has_ended_is_intact_after_a_crash(h: Outgoing) -> None:
    first = deliver(h, b"a", positive_journaling_requested=True)
    second = deliver(h, b"b", positive_journaling_requested=True)
    h.final_ack(first)
    h.sync()
    h.crash()
    assert (h.unread, h.journal) == ([b"b"], [b"a"])
    assert not h.final_ack(first)
    assert h.final_ack(second)
    h.sync()
    h.crash()
    assert (h.unread, h.journal) == ([], [b"a", b"b"])


@pytest.mark.spec("QQB-3.1.5.7-1")
@pytest.mark.spec("QQB-3.1.5.7-3/a receipt")
@pytest.mark.parametrize(("asked", "journaled"), [("positive", True), ("negative", False)])
def test_a_received_message_goes_to_the_journal_if_that_was_asked_for(
    h: Outgoing, asked: str, *, journaled: bool
) -> None:
    packet = deliver(h, b"a", **{f"{asked}_journaling_requested": True})
    assert h.final_ack(packet, RECEIVED)
    assert h.journal == ([b"a"] if journaled else [])
    assert (h.unread, h.transactional_dead_letters) == ([], [])
    assert not h.final_ack(packet, RECEIVED)
    assert h.engine.queue_manager.total_bytes == sum(
        h.store.stats(number)[1] for number in h.engine.queue_manager.queue_collection
    )


@pytest.mark.spec("QQB-3.1.5.7-2")
@pytest.mark.spec("QQB-3.1.5.7-3/any other class")
@pytest.mark.parametrize("message_class", [PURGED, 0x8005, 0xC0FF])
@pytest.mark.parametrize(("asked", "kept"), [("negative", True), ("positive", False)])
def test_any_other_end_makes_a_dead_letter_if_that_was_asked_for(
    h: Outgoing, asked: str, message_class: int, *, kept: bool
) -> None:
    packet = deliver(h, b"a", **{f"{asked}_journaling_requested": True})
    assert h.final_ack(packet, message_class)
    assert h.transactional_dead_letters == ([b"a"] if kept else [])
    assert (h.unread, h.journal, h.dead_letters) == ([], [], [])


@pytest.mark.spec("QQB-3.1.5.7-2")
def test_the_applications_own_dead_letter_queue_comes_first(h: Outgoing) -> None:
    h.create("mine", transactional=True)
    own = rf"{h.engine.queue_manager.computer_name}\private$\mine"
    packet = deliver(h, negative_journaling_requested=True, application_deadletter_queue=own)
    h.final_ack(packet, PURGED)
    assert h.bodies("mine") == [b"a"]
    assert h.transactional_dead_letters == []


@pytest.mark.spec("QQB-3.1.5.7-1")
@pytest.mark.spec("QQB-3.1.5.7-3/before the OrderAck")
def test_a_final_ack_may_come_before_the_order_ack(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c", transactional=True, positive_journaling_requested=True)
    sent = h.transmit()
    packets = [entry.packet for entry in sent]
    assert h.final_ack(packets[0], RECEIVED)
    assert h.journal == [b"a"]
    assert h.waiting == [b"b", b"c"]
    assert [entry.tx_sequence_number for entry in h.table.tx_outgoing_sequence.unacked] == [2, 3]
    h.acknowledge(*sent)
    h.order_ack(3)
    assert (h.waiting, h.unread, h.journal) == ([], [b"b", b"c"], [b"a"])


@pytest.mark.spec("QQB-3.1.5.7-2")
@pytest.mark.spec("QQB-3.1.5.7-3/a rejected message is not resent, its successors are bridged")
def test_a_rejected_message_is_not_sent_again_and_its_successors_are_bridged(h: Outgoing) -> None:
    h.say(b"a", transactional=True)
    h.say(b"b", transactional=True, negative_journaling_requested=True)
    h.say(b"c", transactional=True)
    sent = h.transmit()
    packets = [entry.packet for entry in sent]
    assert h.final_ack(packets[1], MessageClass.NACK_ACCESS_DENIED)
    assert h.transactional_dead_letters == [b"b"]
    h.now += 30
    h.table.on_timer()
    assert numbers(h.packets()) == [(1, 0), (3, 1)]
    # Also the only one: then nothing is left of the sequence.
    assert h.final_ack(packets[0], MessageClass.NACK_ACCESS_DENIED)
    assert h.final_ack(packets[2], MessageClass.NACK_ACCESS_DENIED)
    assert h.waiting == []
    assert h.sequence_id.ordinal == 2
    assert h.table.next_deadline() is None


@pytest.mark.spec("QQB-3.1.5.7-1")
def test_a_final_ack_finds_a_message_that_was_sent_before_a_restart(h: Outgoing) -> None:
    h.say(b"plain", priority=0)
    h.say(b"a", b"b", transactional=True, positive_journaling_requested=True)
    packets = [entry.packet for entry in h.transmit()]
    h.crash()
    assert h.final_ack(packets[2], RECEIVED)
    assert h.journal == [b"b"]
    assert bodies(h.packets()) == [b"plain", b"a"]


def test_a_final_ack_for_another_message_or_sender_ends_nothing(h: Outgoing) -> None:
    first = deliver(h, b"awaiting", positive_journaling_requested=True)
    h.say(b"sent", transactional=True, positive_journaling_requested=True)
    (entry,) = h.transmit()
    for packet in (first, entry.packet):
        body = FinalAckBody.of(packet)
        assert not h.awaiting.final_ack(dataclasses.replace(body, source_guid=uuid.uuid4()), RECEIVED, h.table)
        assert not h.awaiting.final_ack(dataclasses.replace(body, message_id=4711), RECEIVED, h.table)
    foreign = dataclasses.replace(FinalAckBody.of(entry.packet), tx_sequence_number=9)
    assert not h.awaiting.final_ack(foreign, RECEIVED, h.table)
    assert (h.unread, h.waiting, h.journal) == ([b"awaiting"], [b"sent"], [])


def test_the_table_counts_against_the_quota_and_only_administrators_see_it(h: Outgoing) -> None:
    before = h.engine.queue_manager.total_bytes
    packet = deliver(h, negative_journaling_requested=True)
    assert h.engine.queue_manager.total_bytes == before + len(packet)
    name = parse(r"DIRECT=OS:.\private$\awaiting_final_ack$")
    with pytest.raises(AccessDenied):
        h.engine.open_queue(name, QueueAccessType.PEEK, identity=ANONYMOUS)
    descriptor = h.engine.open_queue(name, QueueAccessType.RECEIVE)
    position = at_once(h.engine.dequeue_message(descriptor, timeout=0))
    assert Message(position.record.packet).body == b"a"
    # Receiving it ends the wait.
    sequence = h.engine.outgoing_sequence(h.far)
    assert sequence is not None
    assert sequence.no_read_count == 0
    assert h.transactional_dead_letters == []
    assert h.engine.queue_manager.total_bytes == before
    # What comes later stands before what was there, if its identifier was given earlier.
    h.say(b"b", b"c", transactional=True, negative_journaling_requested=True)
    first, second = (entry.packet for entry in h.transmit())
    for packet in (second, first):
        h.engine.delivery.await_final_ack(packet)
        found = at_once(h.engine.peek_message(descriptor, timeout=0))
        assert found.record.packet == packet


def test_a_queue_whose_messages_wait_for_final_acks_is_not_idle(h: Outgoing) -> None:
    packet = deliver(h, negative_journaling_requested=True)
    assert not h.engine.remove_idle_outgoing_queue(h.far)
    h.final_ack(packet)
    assert h.engine.remove_idle_outgoing_queue(h.far)
