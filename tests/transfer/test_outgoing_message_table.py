"""The order in which messages leave an outgoing queue, and their fate at the next hop."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from lanner.engine.tables import PURGE_PENDING
from lanner.model.enums import Acknowledgements, EnqueueStatus, MessageClass, QueueAccessType
from lanner.transfer import outgoing_message_table
from lanner.transfer.events import SessionAckReceived
from lanner.transfer.outgoing_message_table import OutgoingMessagePosition
from lanner.transfer.packets import OrderAckBody
from lanner.transfer.settings import TransferSettings
from lanner.wire.builder import build, set_sequence
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from lanner.wire.packet_template import MessageRun
from lanner.wire.session_header import SessionHeader
from tests.transfer.outgoing import DESTINATION, Outgoing, bodies, numbers
from tests.transfer.pairs import Pair, session_ack


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Outgoing]:
    harness = Outgoing(tmp_path / "data")
    yield harness
    harness.close()


FOREIGN = TxSequenceID(3, 77)


def forwarded(h: Outgoing, *, ordinal: int = 7, transactional: bool = True, sequence: TxSequenceID = FOREIGN) -> bytes:
    """A packet of another queue manager on its way through this one."""
    packet = build(
        h.properties(b"passed on", positive_journaling_requested=True),
        source=uuid.UUID(int=99),
        ordinal=ordinal,
        sent_time=int(h.now),
        destination=parse(DESTINATION),
        transaction=5 if transactional else None,
    )
    if transactional:
        packet = set_sequence(packet, sequence, 12, 11)
    assert h.engine.enqueue_message(h.far, Message(packet)) is EnqueueStatus.OK
    h.sync()
    return packet


@pytest.mark.spec("QQB-3.1.7.1.3-5")
def test_what_was_sent_awaits_its_acknowledgment(h: Outgoing) -> None:
    h.say(b"1", b"2")
    entries = h.table.next_unsent(2)
    assert [entry.awaiting_ack for entry in entries] == [False, False]
    h.table.sent([entries[0]])
    assert [entry.awaiting_ack for entry in entries] == [True, False]


# Order and what may leave
# -----------------------------------------------------------------------------------------


def test_messages_leave_by_priority_and_then_in_the_order_in_which_they_came(h: Outgoing) -> None:
    h.say(b"low", priority=1)
    h.say(b"high 1", b"high 2", priority=6)
    h.say(b"transactional", transactional=True, priority=7)
    h.say(b"middle", priority=3, recoverable=False)
    assert bodies(h.packets()) == [b"high 1", b"high 2", b"middle", b"low", b"transactional"]
    h.say(b"higher", priority=7)
    h.say(b"lower", priority=0)
    assert bodies(h.packets()) == [b"higher", b"lower"]
    assert h.packets() == []


def test_no_more_leave_than_there_is_room_for(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c")
    assert bodies(h.packets(2)) == [b"a", b"b"]
    assert h.packets(0) == []
    assert bodies(h.packets(2)) == [b"c"]


def test_the_priority_of_the_next_message_counts_with_that_of_its_queue(h: Outgoing) -> None:
    assert h.table.peek_priority() is None
    h.far.base_priority = -3
    h.say(b"low", priority=2)
    assert h.table.peek_priority() == -1
    h.say(b"high", priority=5)
    assert h.table.peek_priority() == 2
    assert bodies(h.packets()) == [b"high", b"low"]
    assert h.table.peek_priority() is None


def test_messages_that_are_published_together_leave(h: Outgoing) -> None:
    h.say(b"before", priority=2)
    assert bodies(h.packets()) == [b"before"]
    descriptor = h.open(DESTINATION, QueueAccessType.SEND)
    messages = h.properties(b"low", priority=2), h.properties(b"high", priority=3)
    h.engine.stage_messages(descriptor, b"token", map(MessageRun.of, messages))
    h.engine.publish_stages(b"key", [b"token"])
    assert h.packets() == []
    h.sync()
    assert bodies(h.packets()) == [b"high", b"low"]


def test_a_recoverable_message_leaves_when_it_is_on_disk_and_an_express_one_at_once(h: Outgoing) -> None:
    h.send(DESTINATION, b"recoverable", priority=4)
    h.send(DESTINATION, b"express", recoverable=False, priority=3)
    assert bodies(h.packets()) == [b"express"]
    assert h.table.is_waiting_for_sync
    h.sync()
    assert bodies(h.packets()) == [b"recoverable"]
    assert not h.table.is_waiting_for_sync


def test_a_transaction_that_is_committed_and_not_on_disk_does_not_leave(h: Outgoing) -> None:
    transaction = h.begin()
    h.send(DESTINATION, b"a", transaction=transaction)
    assert h.packets() == []
    h.commit(transaction)
    assert h.packets() == []
    h.sync()
    assert bodies(h.packets()) == [b"a"]


def test_records_of_what_the_next_hop_has_are_kept_up_to_a_limit(h: Outgoing, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the removal of most messages need not read them again."""
    monkeypatch.setattr(outgoing_message_table, "_MAX_KEPT", 1000)
    h.say(*[b"x" * 200] * 6)
    entries = h.transmit(6)
    size = len(entries[0].packet)
    h.session_acked(entries, [])
    kept = [entry for entry in entries if entry.record is not None]
    assert len(kept) == 1000 // size < 6
    assert h.table._kept_size == len(kept) * size
    assert not any(entry.packet for entry in entries)
    h.session_acked([], entries)
    assert not h.table._kept
    assert h.table._kept_size == 0
    assert h.far.message_count == 0


def test_memory_holds_what_is_on_its_way_and_not_what_waits(h: Outgoing) -> None:
    h.say(*[b"x"] * 200, priority=5)
    entries = h.transmit(10)
    assert len(h.table._entries) == 10
    h.table.session_closed()
    assert not any(entry.packet or entry.message_position.record.packet for entry in entries)
    h.table.session_opened()
    entries = h.transmit(10)
    h.acknowledge(*entries)
    assert not h.table._entries
    assert h.far.message_count == 190


def test_a_message_that_an_administrator_holds_waits_and_leaves_when_it_is_given_back(h: Outgoing) -> None:
    h.say(b"a", b"b")
    descriptor = h.open(DESTINATION, QueueAccessType.RECEIVE_ADMIN)
    transaction = h.begin()
    h.engine.dequeue_message(descriptor, timeout=0, transaction=transaction)
    assert bodies(h.packets()) == [b"b"]
    h.abort(transaction)
    h.sync()
    assert bodies(h.packets()) == [b"a"]


def test_nothing_overtakes_a_transactional_message_that_an_administrator_holds(h: Outgoing) -> None:
    """The receiver would take its successors and refuse it when it comes after them."""
    h.say(b"a", b"b", transactional=True)
    descriptor = h.open(DESTINATION, QueueAccessType.RECEIVE_ADMIN)
    transaction = h.begin()
    h.engine.dequeue_message(descriptor, timeout=0, transaction=transaction)
    assert h.packets() == []
    h.abort(transaction)
    h.sync()
    assert bodies(h.packets()) == [b"a", b"b"]


def test_a_transactional_message_that_an_administrator_took_is_bridged(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c", transactional=True)
    first = h.transmit(1)
    descriptor = h.open(DESTINATION, QueueAccessType.RECEIVE_ADMIN)
    # The first is on its way and can still be taken; the peer may have it twice, as the
    # administrator has seen.
    h.engine.dequeue_message(descriptor, timeout=0)
    h.engine.dequeue_message(descriptor, timeout=0)
    assert numbers(h.packets()) == [(3, 0)]
    h.acknowledge(*first)
    assert h.waiting == [b"c"]


def test_unacknowledged_transactional_messages_are_limited(tmp_path: Path) -> None:
    h = Outgoing(tmp_path / "data", TransferSettings(max_unacked_sequence=2))
    h.say(b"a", b"b", b"c", transactional=True)
    h.say(b"plain", priority=4)
    entries = h.transmit()
    assert [entry.tx_sequence_number for entry in entries] == [0, 1, 2]
    assert h.packets() == []
    h.acknowledge(*entries)
    assert h.packets() == []
    h.order_ack(1)
    assert bodies(h.packets()) == [b"c"]
    h.close()


def test_messages_that_reappear_when_the_store_fails_are_sent_again(h: Outgoing) -> None:
    h.say(b"a", b"b")
    h.acknowledge(*h.transmit())
    assert h.waiting == []
    h.store._commits._fail(OSError("no space"))
    h.table.store_failed()
    assert h.waiting == [b"a", b"b"]
    assert bodies(h.packets()) == [b"a", b"b"]


# Express and recoverable messages (3.1.1.1.1.3, 3.1.5.5)
# ----------------------------------------------------------


@pytest.mark.spec("QQB-3.1.1.1.1.3-1")
def test_an_express_message_that_could_not_be_sent_or_was_not_acknowledged_is_sent_again(h: Outgoing) -> None:
    h.say(b"a", b"b", recoverable=False)
    first = h.table.next_unsent(2)
    h.table.sent([first[0]])  # the connection ended before the second was written
    assert bodies([Message(entry.packet) for entry in h.table.next_unsent(2)]) == [b"b"]
    h.table.session_closed()
    h.table.session_opened()
    again = h.transmit()
    assert bodies([Message(entry.packet) for entry in again]) == [b"a", b"b"]
    h.acknowledge(*again)
    assert h.waiting == []


@pytest.mark.spec("QQB-3.1.5.5.2-1")
def test_a_session_ack_deletes_the_express_messages_it_covers_and_no_others(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c", recoverable=False)
    sent = h.transmit(2)
    h.session_acked(sent[:1], [])
    assert h.waiting == [b"b", b"c"]
    assert (h.far.message_count, h.far.total_bytes) == h.store.stats(h.far.number)


@pytest.mark.spec("QQB-3.1.5.5.3-1")
@pytest.mark.spec("QQB-3.1.5.5.3-2")
def test_a_recoverable_message_is_deleted_when_the_peer_has_it_on_disk(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c")
    forwarded(h)
    sent = h.transmit()
    h.session_acked(sent, [])  # AckSequenceNumber covers all, RecoverableMsgAckFlags is 0
    assert h.waiting == [b"a", b"b", b"c", b"passed on"]
    h.session_acked([], [sent[0], sent[2]])  # bits 0 and 2
    assert h.waiting == [b"b", b"passed on"]
    h.session_acked([], [sent[1], sent[3]])
    assert h.waiting == []
    assert h.table.is_empty
    h.sync()
    h.crash()
    assert h.waiting == []


@pytest.mark.spec("QQB-3.1.5.5.2-1")
@pytest.mark.spec("QQB-3.1.5.5.3-1")
@pytest.mark.spec("QQB-3.1.5.5.3-2")
@pytest.mark.spec("QQB-3.1.5.5.3-3")
def test_a_session_ack_as_it_comes_deletes_what_it_names(h: Outgoing) -> None:
    """Bit k of RecoverableMsgAckFlags is message RecoverableMsgAckSeqNumber + k.

    The SessionAck comes through a session.
    """
    h.say(b"r1", b"r2", priority=7)
    h.say(b"e1", priority=6, recoverable=False)
    h.say(b"r3", b"r4", b"r5", priority=5)
    h.say(b"e2", priority=4, recoverable=False)
    h.say(b"t6", b"t7", transactional=True)
    pair = Pair()
    for entry in h.table.next_unsent(64):
        pair.ours.send(entry.packet, entry)
        h.table.sent([entry])
    h.say(b"unsent", priority=1)

    def receive(header: SessionHeader) -> None:
        (event,) = pair.ours.receive(session_ack(header))
        assert isinstance(event, SessionAckReceived)
        h.session_acked(
            cast("list[OutgoingMessagePosition]", event.acked), cast("list[OutgoingMessagePosition]", event.persisted)
        )

    receive(SessionHeader(4, 0, 0, 0, 0))
    assert h.waiting == [b"r1", b"r2", b"r3", b"r4", b"r5", b"e2", b"unsent", b"t6", b"t7"]
    receive(SessionHeader(7, 2, 0b1001, 0, 0))
    assert h.waiting == [b"r3", b"r4", b"unsent", b"t6", b"t7"]
    h.order_ack(1)
    receive(SessionHeader(9, 6, 0b11, 0, 0))
    assert h.waiting == [b"unsent", b"t7"]


@pytest.mark.spec("QQB-3.1.5.5.4-1")
def test_a_delivered_message_that_asked_for_it_goes_to_the_journal(h: Outgoing) -> None:
    h.say(b"express", recoverable=False, positive_journaling_requested=True)
    h.say(b"recoverable", positive_journaling_requested=True)
    h.say(b"dead letter only", negative_journaling_requested=True)
    h.say(b"transactional", transactional=True, positive_journaling_requested=True)
    forwarded(h, transactional=False)
    sent = h.transmit()
    assert h.journal == []
    h.acknowledge(*sent)
    assert h.waiting == [b"transactional"]
    assert h.journal == [b"express", b"recoverable"]
    assert h.dead_letters == []
    h.order_ack(1)
    assert h.waiting == []
    assert h.journal == [b"express", b"recoverable"]


def test_a_message_that_is_purged_on_its_way_stays_purged(h: Outgoing) -> None:
    h.say(b"a", b"b", positive_journaling_requested=True)
    sent = h.transmit()
    h.engine.purge_queue(h.far)
    h.acknowledge(*sent)
    assert h.journal == []
    assert (h.far.message_count, h.far.total_bytes) == (0, 0)
    assert not h.table._entries


def test_a_message_that_is_delivered_while_an_administrator_holds_it_is_gone(h: Outgoing) -> None:
    h.say(b"a")
    sent = h.transmit()
    descriptor = h.open(DESTINATION, QueueAccessType.RECEIVE_ADMIN)
    transaction = h.begin()
    h.engine.dequeue_message(descriptor, timeout=0, transaction=transaction)
    h.engine.purge_queue(h.far)
    h.acknowledge(*sent)
    h.abort(transaction)
    assert h.waiting == []
    assert not h.far.held_positions
    assert (h.far.message_count, h.far.total_bytes) == (0, 0)
    assert list(h.store.table(PURGE_PENDING).items()) == []


def test_what_is_acknowledged_is_not_sent_again_though_it_is_still_in_the_queue(h: Outgoing) -> None:
    """It leaves after others were sent, and much may happen before that."""
    h.say(b"a", b"b")
    h.say(b"t1", b"t2", transactional=True)
    sent = h.transmit()
    h.table.session_acked(sent, sent)
    h.table.order_ack(OrderAckBody.of(h.sequence_id, 2))
    assert (len(h.waiting), h.table.is_ending, h.table.peek_priority()) == (4, True, None)
    h.table.store_failed()
    assert (h.table.peek_priority(), h.transmit()) == (None, [])
    h.table.session_closed()
    h.table.session_opened()
    assert (h.table.peek_priority(), h.transmit()) == (None, [])
    h.say(b"new")
    assert bodies(h.packets()) == [b"new"]
    h.end_all()
    assert (h.waiting, h.table.is_ending) == ([b"new"], False)
    assert (h.far.message_count, h.far.total_bytes) == h.store.stats(h.far.number)


# Sessions and restarts
# --------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.3.2-4")
def test_a_new_session_sends_everything_again_and_numbers_stay(h: Outgoing) -> None:
    h.say(b"express", recoverable=False)
    h.say(b"recoverable")
    h.say(b"t1", b"t2", transactional=True)
    sent = h.transmit()
    identifiers = [(m.identifier, m.transactional_message_sequence_identifier) for m in map(_message, sent)]
    h.session_acked(sent, [])
    h.order_ack(1)
    assert h.waiting == [b"express", b"recoverable", b"t2"][1:]
    h.say(b"t3", transactional=True)
    h.table.session_closed()
    h.table.session_opened()
    entries = h.table.next_unsent(10)
    assert not any(e.awaiting_ack or e.received_session_ack or e.received_order_ack or e.transmitted for e in entries)
    again = h.packets()
    assert bodies(again) == [b"recoverable", b"t2", b"t3"]
    assert [m.transaction_sequence_number for m in again] == [0, 2, 3]
    assert (again[1].identifier, again[1].transactional_message_sequence_identifier) == identifiers[3]


def _message(entry: object) -> Message:
    return Message(getattr(entry, "packet"))  # noqa: B009


@pytest.mark.spec("QQB-3.1.3.2-4")
def test_an_order_ack_of_an_earlier_session_does_not_count_on_a_new_one(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True)
    h.transmit()
    h.order_ack(1)  # and no SessionAck before the session ends
    h.table.session_closed()
    h.table.session_opened()
    again = h.transmit()
    assert [entry.tx_sequence_number for entry in again] == [1, 2]
    assert [entry.tx_sequence_number for entry in h.table.tx_outgoing_sequence.unacked] == [1, 2]
    h.acknowledge(*again)
    assert h.waiting == [b"a", b"b"]


@pytest.mark.spec("QQB-3.1.1.3.1-4")
@pytest.mark.spec("QQB-3.1.1.3.2-1")
def test_recoverable_and_transactional_messages_are_there_after_a_crash_in_their_order(h: Outgoing) -> None:
    h.say(b"r1", priority=0)
    h.say(b"express", recoverable=False)
    h.say(b"t1", transactional=True)
    h.say(b"r2", priority=5)
    h.say(b"t2", b"t3", transactional=True)
    before = h.packets(3)
    assert bodies(before) == [b"r2", b"express", b"r1"]
    h.crash()
    after = h.packets()
    assert bodies(after) == [b"r2", b"r1", b"t1", b"t2", b"t3"]
    assert after[0].identifier == before[0].identifier
    assert [m.transaction_sequence_number for m in after] == [0, 0, 1, 2, 3]


# Expiry (3.1.7.1.2, 3.1.1.1.1.3)
# ----------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.1.2-1")
@pytest.mark.parametrize(("age", "leaves"), [(10, True), (11, False)])
def test_a_message_past_its_time_to_reach_queue_is_not_sent(h: Outgoing, age: int, *, leaves: bool) -> None:
    h.say(b"a", time_to_reach_queue=10)
    h.now += age  # the engine's own timer has not run
    assert bool(h.packets()) is leaves
    assert h.waiting == ([b"a"] if leaves else [])
    assert h.table.is_empty is not leaves


@pytest.mark.spec("QQB-3.1.7.1.2-2")
@pytest.mark.parametrize("transactional", [False, True])
def test_an_expired_message_is_answered_with_0x8002_if_that_was_asked_for(h: Outgoing, *, transactional: bool) -> None:
    h.create("admin")
    admin = parse(rf"DIRECT=OS:{h.engine.queue_manager.computer_name}\private$\admin")
    for wanted in (Acknowledgements.NEG_ARRIVAL, Acknowledgements.NONE):
        h.say(
            b"a",
            transactional=transactional,
            time_to_reach_queue=10,
            acknowledgements_requested=wanted,
            administration_queue_format_name=admin,
        )
    h.now += 11
    assert h.packets() == []
    assert [m.message_class for m in h.messages("admin")] == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]


@pytest.mark.spec("QQB-3.1.7.1.2-3")
def test_an_expired_message_goes_to_the_dead_letter_queue_of_its_kind(h: Outgoing) -> None:
    h.create("mine", transactional=True)
    own = rf"{h.engine.queue_manager.computer_name}\private$\mine"
    h.say(b"dropped", time_to_reach_queue=10)
    h.say(b"plain", time_to_reach_queue=10, negative_journaling_requested=True)
    h.say(b"transactional", transactional=True, time_to_reach_queue=10, negative_journaling_requested=True)
    h.say(
        b"application's",
        transactional=True,
        time_to_reach_queue=10,
        negative_journaling_requested=True,
        application_deadletter_queue=own,
    )
    h.now += 11
    assert h.packets() == []
    assert h.dead_letters == [b"plain"]
    assert h.transactional_dead_letters == [b"transactional"]
    assert h.bodies("mine") == [b"application's"]


@pytest.mark.spec("QQB-3.1.1.1.1.3-2")
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_expires_before_it_is_sent_and_while_its_session_ack_is_awaited(
    h: Outgoing, *, recoverable: bool
) -> None:
    def say(body: bytes, *, kept: bool) -> None:
        h.say(
            body,
            recoverable=recoverable,
            time_to_reach_queue=10,
            positive_journaling_requested=True,
            negative_journaling_requested=kept,
        )

    say(b"sent, kept", kept=True)
    say(b"sent, dropped", kept=False)
    sent = h.transmit()
    say(b"unsent, kept", kept=True)
    say(b"unsent, dropped", kept=False)
    h.tick(11)
    assert h.waiting == []
    assert h.table._entries == {}
    assert h.packets() == []
    h.acknowledge(*sent)  # too late
    assert sorted(h.dead_letters) == [b"sent, kept", b"unsent, kept"]
    assert h.journal == []
    assert (h.far.message_count, h.far.total_bytes) == (0, 0)
    # A transactional one is no longer shown as waiting for its OrderAck.
    h.say(b"transactional", transactional=True, time_to_reach_queue=10)
    h.transmit()
    assert h.far.outgoing_transfer_info is not None
    assert h.far.outgoing_transfer_info.eod_no_ack_count == 1
    h.tick(11)
    assert h.far.outgoing_transfer_info.eod_no_ack_count == 0


def test_a_message_that_expired_is_not_sent_on_the_next_session(h: Outgoing) -> None:
    h.say(b"a", b"b", time_to_reach_queue=10)
    h.say(b"c")
    h.transmit()
    h.table.session_closed()
    h.now += 11
    h.table.session_opened()
    assert bodies(h.packets()) == [b"c"]


def test_a_message_that_cannot_be_sent_is_refused(h: Outgoing) -> None:
    h.say(b"a", negative_journaling_requested=True)
    h.say(b"b", transactional=True, negative_journaling_requested=True)
    for entry in h.table.next_unsent(2):
        h.table.refused(entry, MessageClass.NACK_BAD_ENCRYPTION)
    assert h.waiting == []
    assert (h.dead_letters, h.transactional_dead_letters) == ([b"a"], [b"b"])
    assert h.packets() == []
    assert h.sequence_id.ordinal == 2


# Identifiers and forwarded messages
# -------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.1.1-1")
def test_an_identifier_is_given_once_and_kept_when_a_message_is_sent_again(h: Outgoing) -> None:
    h.say(b"a", b"b")
    forwarded(h, ordinal=0, transactional=False)
    first = [m.identifier for m in h.packets()]
    assert [identifier.ordinal for identifier in first] == [0, 1, 0]
    h.table.session_closed()
    h.table.session_opened()
    assert [m.identifier for m in h.packets()] == first
    h.say(b"c")
    assert h.packets()[0].identifier.ordinal == 2


@pytest.mark.spec("QQB-3.1.1.5-3")
@pytest.mark.spec("QQB-3.1.7.1.3-2")
def test_a_forwarded_transactional_message_is_passed_on_byte_for_byte(h: Outgoing) -> None:
    h.say(b"ours", transactional=True)
    before = h.engine.outgoing_sequence(h.far)
    packet = forwarded(h)
    sent = h.transmit()
    assert sent[1].packet == packet
    assert sent[1].tx_sequence_number == 0
    assert [entry.tx_sequence_number for entry in h.table.tx_outgoing_sequence.unacked] == [1]
    assert h.engine.outgoing_sequence(h.far) == before
    h.table.session_closed()
    h.table.session_opened()
    again = h.transmit()
    assert again[1].packet == packet
    h.acknowledge(*again)
    assert h.waiting == [b"ours"]
    assert h.journal == []
    assert h.unread == []


def test_a_message_that_only_claims_to_come_from_here_is_passed_on_like_any_other(h: Outgoing) -> None:
    """Its number was not assigned here: a stranger must not disturb a sequence."""
    h.say(b"ours", transactional=True)
    packet = build(
        h.properties(b"forged", positive_journaling_requested=True),
        source=h.engine.queue_manager.identifier,
        ordinal=7,
        sent_time=int(h.now),
        destination=parse(DESTINATION),
        transaction=5,
    )
    packet = set_sequence(packet, TxSequenceID(3, 77), 12, 11)
    h.engine.enqueue_message(h.far, Message(packet))
    h.sync()
    sent = h.transmit()
    assert [entry.tx_sequence_number for entry in sent] == [1, 0]
    assert sent[1].packet == packet
    h.acknowledge(*sent)
    assert (h.waiting, h.journal) == ([b"ours"], [])


def test_a_forwarded_message_may_have_the_sequence_identifier_that_is_ours(h: Outgoing) -> None:
    """Two computers that were set up in the same second."""
    h.say(b"ours", transactional=True)
    packet = forwarded(h, sequence=h.sequence_id)
    sent = h.transmit()
    assert [entry.tx_sequence_number for entry in sent] == [1, 0]
    assert sent[1].packet == packet
    h.acknowledge(*sent)
    assert h.waiting == [b"ours"]
