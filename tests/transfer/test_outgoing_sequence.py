"""Transactional messages: numbers, OrderAcks, sending again, and what an operator sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.daemon.settings import load_settings
from lanner.model.live import OutgoingTransferInfo
from lanner.transfer import outgoing_message_table
from lanner.transfer.packets import OrderAckBody
from lanner.transfer.settings import TransferSettings
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from tests.engine.harness import START_TIME
from tests.transfer.outgoing import Outgoing, bodies, numbers

NOW = int(START_TIME)


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Outgoing]:
    harness = Outgoing(tmp_path / "data")
    yield harness
    harness.close()


def unacked(h: Outgoing) -> list[int]:
    return [entry.tx_sequence_number for entry in h.table.tx_outgoing_sequence.unacked]


def info(h: Outgoing) -> OutgoingTransferInfo:
    found = h.far.outgoing_transfer_info
    assert found is not None
    return found


# Sending
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.1.3-1")
def test_a_transactional_message_is_sent_with_its_number_and_the_one_before(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True)
    h.say(b"plain", priority=5)
    sent = h.packets()
    assert numbers(sent[1:]) == [(1, 0), (2, 1)]
    assert {m.transactional_message_sequence_identifier for m in sent[1:]} == {TxSequenceID(1, NOW)}
    assert unacked(h) == [1, 2]
    assert h.table.next_deadline() == NOW + 30
    h.order_ack(2)
    h.say(b"c", transactional=True)
    assert numbers(h.packets()) == [(3, 2)]
    # Numbered entries are never numbered again.
    h.table.session_closed()
    h.table.session_opened()
    assert [number for number, _ in numbers(h.packets())[1:]] == [1, 2, 3]
    assert unacked(h) == [1, 2, 3], "once each"


@pytest.mark.spec("QQB-3.1.1.5-2")
@pytest.mark.spec("QQB-3.1.7.1.3-2")
def test_a_gap_that_an_expired_message_left_is_bridged(h: Outgoing) -> None:
    h.say(b"1", b"2", transactional=True)
    h.say(b"3", transactional=True, time_to_reach_queue=10)
    h.say(b"4", transactional=True)
    assert numbers(h.packets()) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    h.tick(11)
    h.now += 30
    h.table.on_timer()
    assert numbers(h.packets()) == [(1, 0), (2, 1), (4, 2)]


@pytest.mark.spec("QQB-3.1.1.5-2")
def test_a_message_that_expired_before_it_was_sent_is_bridged_at_once(h: Outgoing) -> None:
    h.say(b"1", b"2", transactional=True)
    h.say(b"3", transactional=True, time_to_reach_queue=10)
    h.say(b"4", transactional=True)
    h.acknowledge(*h.transmit(2))
    h.order_ack(2)
    h.now += 11
    assert numbers(h.packets()) == [(4, 2)]


@pytest.mark.spec("QQB-3.1.7.1.3-2")
def test_the_first_message_that_is_sent_again_has_no_predecessor(h: Outgoing) -> None:
    """What was before it has been acknowledged or deleted.

    A receiver accepts 0 whatever number it remembers.
    """
    h.say(b"1", b"2", b"3", transactional=True)
    h.acknowledge(*h.transmit())
    h.order_ack(1)
    h.now += 30
    h.table.on_timer()
    assert numbers(h.packets()) == [(2, 0), (3, 2)]


def test_after_a_restart_the_first_message_has_no_predecessor(h: Outgoing) -> None:
    h.say(b"1", b"2", b"3", transactional=True)
    h.acknowledge(*h.transmit())
    h.order_ack(2)
    h.sync()
    h.crash()
    assert numbers(h.packets()) == [(3, 0)]
    h.say(b"4", transactional=True)
    assert numbers(h.packets()) == [(4, 3)]


# OrderAcks (3.1.5.6)
# ----------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.6-1")
def test_an_order_ack_updates_the_sequence(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c", transactional=True)
    h.transmit()
    sequence = h.table.tx_outgoing_sequence
    h.now += 3
    h.order_ack(2)
    assert (sequence.time_of_last_ack, sequence.last_ack_count) == (NOW + 3, 1)
    assert (sequence.last_ack.seq_id, sequence.last_ack.seq_no) == (h.sequence_id.value, 2)
    assert unacked(h) == [3]
    h.now += 3
    h.order_ack(1)
    assert (sequence.time_of_last_ack, sequence.last_ack_count) == (NOW + 6, 2)
    assert sequence.last_ack.seq_no == 2
    assert unacked(h) == [3]


@pytest.mark.spec("QQB-3.1.1.6.2-3/the sender")
def test_one_order_ack_releases_all_up_to_its_number(h: Outgoing) -> None:
    h.say(b"5", b"6", b"7", b"8", b"9", transactional=True)
    h.acknowledge(*h.transmit())
    h.order_ack(1)
    assert unacked(h) == [2, 3, 4, 5]
    h.order_ack(4)
    assert unacked(h) == [5]
    assert h.waiting == [b"9"]


@pytest.mark.spec("QQB-3.1.5.6-1")
def test_an_order_ack_of_a_message_that_has_expired_counts(h: Outgoing) -> None:
    h.say(b"1", b"2", transactional=True)
    h.say(b"3", transactional=True, time_to_reach_queue=10)
    h.say(b"4", transactional=True)
    h.transmit()
    h.order_ack(2)
    h.tick(11)
    sequence = h.table.tx_outgoing_sequence
    assert unacked(h) == [4]
    h.order_ack(3)
    assert (sequence.last_ack.seq_id, sequence.last_ack.seq_no) == (h.sequence_id.value, 3)
    assert unacked(h) == [4]
    # Nothing above what was sent is acknowledged.
    h.order_ack(9)
    assert (sequence.last_ack.seq_no, unacked(h)) == (4, [])


@pytest.mark.spec("QQB-3.1.5.6-1")
def test_an_order_ack_of_the_last_message_counts_after_it_has_expired(h: Outgoing) -> None:
    h.say(b"1", b"2", transactional=True)
    h.say(b"3", transactional=True, time_to_reach_queue=10)
    h.transmit()
    h.order_ack(2)
    h.tick(11)
    assert unacked(h) == []
    h.order_ack(3)
    assert h.table.tx_outgoing_sequence.last_ack.seq_no == 3


@pytest.mark.spec("QQB-3.1.5.5.3-3")
@pytest.mark.spec("QQB-3.1.5.6-3")
@pytest.mark.parametrize("order_first", [True, False])
def test_a_transactional_message_is_deleted_after_both_acknowledgments(h: Outgoing, *, order_first: bool) -> None:
    h.say(b"a", b"b", b"c", transactional=True)
    sent = h.transmit()
    if order_first:
        h.order_ack(2)
        assert [entry.received_order_ack for entry in sent] == [True, True, False]
        assert h.waiting == [b"a", b"b", b"c"]
        h.acknowledge(*sent)
    else:
        h.acknowledge(*sent)
        assert h.waiting == [b"a", b"b", b"c"]
        h.order_ack(2)
    assert h.waiting == [b"c"]
    assert (h.far.message_count, h.far.total_bytes) == h.store.stats(h.far.number)


def test_an_acknowledgment_of_arrival_is_enough_when_the_destination_has_it_on_disk(h: Outgoing) -> None:
    """An OrderAck came first: RecoverableMsgAckFlags add nothing to it."""
    h.say(b"a", b"b", transactional=True)
    sent = h.transmit()
    h.order_ack(1)
    h.session_acked(sent, [])
    assert h.waiting == [b"b"]


def test_an_acknowledgment_of_many_is_done_in_slices(h: Outgoing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait to be sent meanwhile, and nothing of it is sent again, also on a new session."""
    monkeypatch.setattr(outgoing_message_table, "_END_SLICE", 2)
    h.say(*(b"%d" % number for number in range(5)), transactional=True)
    h.acknowledge(*h.transmit())
    h.table.order_ack(OrderAckBody.of(h.sequence_id, 5))
    h.table.end_some()
    assert (h.waiting, h.table.is_ending) == ([b"2", b"3", b"4"], True)
    h.say(b"new", transactional=True)
    assert bodies(h.packets()) == [b"new"]
    h.table.end_some()
    assert (h.waiting, h.table.is_ending) == ([b"4", b"new"], True)
    h.table.end_some()
    assert (h.waiting, h.table.is_ending) == ([b"new"], False)
    h.table.session_closed()
    h.table.session_opened()
    assert bodies(h.packets()) == [b"new"]
    assert (h.far.message_count, h.far.total_bytes) == h.store.stats(h.far.number)


def test_what_waits_to_be_sent_again_and_is_acknowledged_meanwhile_is_not_sent(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True)
    h.acknowledge(*h.transmit())
    h.now += 30
    h.table.on_timer()
    h.order_ack(1)
    assert h.waiting == [b"b"]
    assert bodies(h.packets()) == [b"b"]
    h.table.session_closed()
    h.table.session_opened()
    h.order_ack(2)
    assert h.waiting == []
    assert h.packets() == []


@pytest.mark.spec("QQB-3.1.1.1.1.7-1")
def test_a_transactional_message_goes_through_all_its_states(h: Outgoing) -> None:
    h.say(b"a", transactional=True, positive_journaling_requested=True)

    def waiting_to_send() -> Message:
        (entry,) = h.transmit()
        assert h.packets() == []
        return Message(entry.packet)

    waiting_to_send()
    h.table.session_closed()  # no SessionAck in time
    h.table.session_opened()
    (entry,) = h.transmit()
    h.acknowledge(entry)
    assert h.waiting == [b"a"]
    h.now += 30  # no OrderAck in time
    h.table.on_timer()
    (entry,) = h.transmit()
    packet = entry.packet
    h.acknowledge(entry)
    h.order_ack(1)
    assert (h.waiting, h.unread, h.journal) == ([], [b"a"], [])
    h.final_ack(packet)
    assert (h.waiting, h.unread, h.journal) == ([], [], [b"a"])


@pytest.mark.spec("QQB-3.1.5.6-5")
@pytest.mark.spec("QQB-3.1.1.5-1")
def test_a_new_sequence_begins_when_no_numbered_message_is_left(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True)
    h.acknowledge(*h.transmit())
    h.order_ack(1)
    assert h.sequence_id == TxSequenceID(1, NOW)
    h.say(b"c", transactional=True)
    h.order_ack(2)
    assert h.sequence_id == TxSequenceID(1, NOW)
    h.acknowledge(*h.transmit())
    h.order_ack(3)
    assert h.sequence_id == TxSequenceID(2, NOW)
    h.say(b"d", transactional=True)
    (fresh,) = h.packets()
    assert fresh.transactional_message_sequence_identifier == TxSequenceID(2, NOW)
    assert numbers([fresh]) == [(1, 0)]
    h.sync()
    h.crash()
    assert h.sequence_id == TxSequenceID(2, NOW)


@pytest.mark.spec("QQB-3.1.5.6-5")
def test_a_new_sequence_begins_also_when_the_session_ack_comes_last_or_the_last_message_expires(h: Outgoing) -> None:
    h.say(b"a", transactional=True)
    sent = h.transmit()
    h.order_ack(1)
    assert h.sequence_id.ordinal == 1
    h.acknowledge(*sent)
    assert h.sequence_id.ordinal == 2
    h.say(b"b", b"c", transactional=True)
    h.say(b"expires", transactional=True, time_to_reach_queue=10)
    h.acknowledge(*h.transmit(2))
    h.tick(11)  # it was not even read
    h.order_ack(2)
    assert h.sequence_id.ordinal == 3
    assert h.waiting == []


def test_a_sequence_continues_while_others_wait_behind_messages_that_are_none_of_it(h: Outgoing) -> None:
    h.say(b"a", transactional=True)
    sent = h.transmit()
    h.say(*[b"plain"] * 20, priority=0)
    h.say(b"b", transactional=True)
    h.acknowledge(*sent)
    h.order_ack(1)
    assert h.sequence_id.ordinal == 1
    assert numbers(h.packets()[-1:]) == [(2, 1)]


@pytest.mark.spec("QQB-3.1.5.6-7")
def test_a_stale_or_foreign_order_ack_changes_nothing(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True)
    h.acknowledge(*h.transmit())
    h.order_ack(2)
    h.say(b"c", b"d", transactional=True)
    h.acknowledge(*h.transmit())
    before = (info(h).eod_last_ack, info(h).eod_last_ack_count)
    assert h.order_ack(2, TxSequenceID(1, NOW))  # of the sequence before
    assert h.order_ack(2, TxSequenceID(3, NOW))  # of one that never was
    assert not h.order_ack(2, TxSequenceID(2, NOW + 1))  # of another queue
    assert h.waiting == [b"c", b"d"]
    assert unacked(h) == [1, 2]
    assert (info(h).eod_last_ack, info(h).eod_last_ack_count) == before
    # LastAck of the sequence before, which was 2, does not count for this one.
    h.order_ack(1)
    assert h.waiting == [b"d"]
    assert h.table.tx_outgoing_sequence.last_ack.seq_no == 1


def test_an_order_ack_for_what_was_never_sent_acknowledges_no_more_than_was(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c", transactional=True)
    h.acknowledge(*h.transmit(2))
    h.order_ack(0xFFFF_FFFF)
    assert h.waiting == [b"c"]
    assert numbers(h.packets()) == [(3, 2)]
    h.order_ack(0)
    assert unacked(h) == [3]
    h.say(b"d", transactional=True)
    (offered,) = h.table.next_unsent(1)  # and the connection takes no more
    h.order_ack(0xFFFF_FFFF)
    assert not offered.received_order_ack
    assert unacked(h) == [4]


def test_an_order_ack_before_the_first_transactional_message_is_not_ours(h: Outgoing) -> None:
    assert not h.order_ack(1, TxSequenceID(1, NOW))


# The Transactional Ack Wait Timer
# ---------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.3.1-1")
@pytest.mark.spec("QQB-3.1.1.3-6")
def test_the_resend_timer_table_has_ten_entries_that_can_be_set() -> None:
    assert TransferSettings().resend_timer_table == (30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600)
    settings = TransferSettings(
        resend_timeouts_short=1, resend_timeouts_medium=2, resend_timeouts_long=3, resend_timeouts_final=4
    )
    assert settings.resend_timer_table == (1, 1, 1, 2, 2, 2, 3, 3, 3, 4)


@pytest.mark.spec("QQB-3.1.1.3-6")
@pytest.mark.spec("QQB-3.1.1.3.2-1")
def test_resend_timeouts_stand_in_the_configuration_which_every_start_reads(tmp_path: Path) -> None:
    file = tmp_path / "lanner.toml"
    file.write_text("[transfer]\nresend_timeouts_short = 10\nresend_timeouts_final = 40\n")
    table = load_settings(file, {}).transfer_settings.resend_timer_table
    assert table == (10, 10, 10, 300, 300, 300, 1800, 1800, 1800, 40)


@pytest.mark.spec("QQB-3.1.1.3-6")
def test_resend_timeouts_that_were_set_are_used(tmp_path: Path) -> None:
    h = Outgoing(tmp_path / "data", TransferSettings(resend_timeouts_short=7))
    h.say(b"a", transactional=True)
    h.transmit()
    assert h.table.next_deadline() == NOW + 7
    h.close()


@pytest.mark.spec("QQB-3.1.2.6-1")
def test_the_timer_runs_from_sending_a_transactional_message(h: Outgoing) -> None:
    h.say(b"plain")
    h.transmit()
    assert h.table.next_deadline() is None
    h.say(b"a", b"b", transactional=True)
    h.transmit(1)
    sequence = h.table.tx_outgoing_sequence
    assert h.table.next_deadline() == NOW + 30
    assert sequence.resend_time == NOW + 30
    assert info(h).eod_resend_time == NOW + 30
    h.now += 10
    h.transmit(1)  # the first waits for its acknowledgment all the same
    assert h.table.next_deadline() == NOW + 30
    h.order_ack(1)
    assert h.table.next_deadline() == NOW + 40
    assert sequence.resend_time == NOW + 40
    h.order_ack(2)
    assert h.table.next_deadline() is None
    assert sequence.resend_time == 0


@pytest.mark.spec("QQB-3.1.6.5-1")
def test_a_time_out_sends_all_transactional_messages_again_with_their_numbers(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c", transactional=True)
    h.say(b"plain")
    first = h.transmit()
    h.session_acked([entry for entry in first if entry.tx_sequence_number], [])
    h.say(b"d", transactional=True)
    h.now += 29
    h.table.on_timer()
    assert bodies(h.packets(0)) == []
    h.now += 1
    h.table.on_timer()
    assert not any(entry.received_session_ack for entry in first)
    again = h.packets()
    assert bodies(again) == [b"a", b"b", b"c", b"d"]
    assert numbers(again) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert {m.transactional_message_sequence_identifier for m in again} == {TxSequenceID(1, NOW)}


@pytest.mark.spec("QQB-3.1.6.5-2")
@pytest.mark.spec("QQB-3.1.5.6-2")
def test_the_interval_grows_with_time_outs_and_progress_sets_it_back(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True)
    waits = []
    for _ in range(12):
        h.acknowledge(*h.transmit())
        deadline = h.table.next_deadline()
        assert deadline is not None
        waits.append(deadline - h.now)
        assert info(h).eod_resend_interval == waits[-1]
        h.now = deadline
        h.table.on_timer()
    assert waits == [30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600, 21600, 21600]
    h.acknowledge(*h.transmit())
    h.order_ack(1)
    assert h.table.tx_outgoing_sequence.resend_interval_index == 0
    assert h.table.next_deadline() == h.now + 30
    h.now += 30
    h.table.on_timer()
    h.acknowledge(*h.transmit())
    assert h.table.tx_outgoing_sequence.resend_interval_index == 1
    h.order_ack(1)  # nothing new
    assert h.table.tx_outgoing_sequence.resend_interval_index == 1
    assert h.table.next_deadline() == h.now + 30


def test_an_operator_can_have_them_sent_again_at_once(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True)
    h.acknowledge(*h.transmit(1))
    h.table.resend()
    assert numbers(h.packets()) == [(1, 0), (2, 1)]
    assert h.table.tx_outgoing_sequence.resend_interval_index == 0


def test_the_timer_stops_with_the_session_and_with_the_last_message(h: Outgoing) -> None:
    h.say(b"a", transactional=True, time_to_reach_queue=10)
    h.transmit()
    h.table.session_closed()
    assert h.table.next_deadline() is None
    h.table.session_opened()
    h.transmit()
    h.tick(11)
    assert h.table.next_deadline() is None
    assert unacked(h) == []


# What an operator sees
# --------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.3.2-3")
def test_a_new_session_starts_the_sequence_again_and_lists_what_was_numbered(h: Outgoing) -> None:
    h.say(b"a", b"b", b"c", transactional=True)
    h.acknowledge(*h.transmit())
    h.now += 30
    h.table.on_timer()
    h.order_ack(1)
    h.table.session_closed()
    h.now += 5
    h.table.session_opened()
    sequence = h.table.tx_outgoing_sequence
    assert (sequence.last_ack.seq_no, sequence.last_ack_count) == (0, 0)
    assert sequence.time_of_last_ack == NOW + 35
    assert (sequence.resend_interval_index, sequence.resend_interval, sequence.resend_time) == (0, 30, 0)
    assert unacked(h) == [2, 3]
    assert info(h).eod_no_ack_count == 2


@pytest.mark.spec("QQB-3.1.5.6-6")
@pytest.mark.spec("DMPR-3.1.1.4-1")
def test_the_values_an_operator_sees_follow_the_acknowledgments(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True, negative_journaling_requested=True)
    h.say(b"c", b"d", b"e", transactional=True)
    sequence = h.sequence_id.value
    sent = h.transmit(4)
    assert info(h).eod_no_ack_count == 4
    assert info(h).eod_no_read_count == 0
    assert info(h).eod_next_seq == (sequence, 5, 4)
    assert info(h).eod_resend_interval == 30
    h.acknowledge(*sent)
    h.now += 30
    h.table.on_timer()
    assert (info(h).eod_resend_count, info(h).eod_resend_interval) == (1, 30)
    h.acknowledge(*h.transmit(4))
    h.now += 4
    h.order_ack(2)
    found = info(h)
    assert found.eod_last_ack == (sequence, 2, 1)
    assert (found.eod_last_ack_count, found.eod_last_ack_time) == (1, NOW + 34)
    assert (found.eod_first_non_ack, found.eod_last_non_ack) == ((sequence, 3, 2), (sequence, 4, 3))
    assert (found.eod_no_ack_count, found.eod_no_read_count) == (2, 2)
    assert (found.eod_resend_count, found.eod_resend_interval, found.eod_resend_time) == (0, 30, NOW + 64)
    h.final_ack(sent[0].packet or _stored(h, b"a"))
    assert info(h).eod_no_read_count == 1
    h.acknowledge(*h.transmit())
    h.order_ack(5)
    assert (info(h).eod_no_ack_count, info(h).eod_resend_time) == (0, 0)
    assert info(h).eod_first_non_ack == (0, 0, 0)
    assert info(h).eod_next_seq == (TxSequenceID(2, NOW).value, 1, 0)


def _stored(h: Outgoing, body: bytes) -> bytes:
    """A packet that awaits its FinalAck."""
    queue = h.engine.queue_manager.awaiting_final_ack_queue
    assert queue is not None
    after = -1
    while (lookup_id := h.store.next(queue.number, after)) is not None:
        after = lookup_id
        record = h.store.get(queue.number, lookup_id)
        assert record is not None
        if Message(record.packet).body == body:
            return record.packet
    raise AssertionError(body)


@pytest.mark.spec("DMPR-3.1.1.4-1")
def test_the_values_are_there_after_a_restart(h: Outgoing) -> None:
    h.say(b"a", b"b", transactional=True, negative_journaling_requested=True)
    h.acknowledge(*h.transmit())
    h.order_ack(1)
    h.sync()
    h.crash()
    assert info(h).eod_no_read_count == 1
    assert info(h).eod_next_seq == (h.sequence_id.value, 2, 1)


def test_a_queue_without_transactional_messages_has_no_such_values(h: Outgoing) -> None:
    h.say(b"plain")
    h.acknowledge(*h.transmit())
    assert h.far.outgoing_transfer_info is None
