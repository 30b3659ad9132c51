"""Counting and acknowledging user messages.

MS-MQQB 3.1.1.4, 3.1.1.6.1, 3.1.5.5, 3.1.5.8, 3.1.7.1.3 and 3.1.7.11.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.transfer.acknowledging import MAX_UNPERSISTED, ReceivedMessages, SentMessages
from lanner.transfer.events import (
    FinalAckReceived,
    OrderAckReceived,
    SessionAckReceived,
    SessionClosed,
    UserMessagesReceived,
)
from lanner.transfer.packets import FinalAckBody, OrderAckBody, build_order_ack
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings
from lanner.wire.format_name import PrivateFormatName
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.session_header import SessionHeader
from tests.transfer.final_acks import build_final_ack
from tests.transfer.pairs import OURS, THEIRS, Pair, headers, message, out, session_ack, split, with_session_header

EXPRESS, RECOVERABLE, TRANSACTIONAL = message(), message(recoverable=True), message(transaction=3)
WIDE = TransferSettings(window_size=2000)


def tick(pair: Pair, seconds: float = 10.0) -> bytes:
    """Let time pass for the acceptor; what it then has to say."""
    pair.advance(seconds)
    assert pair.theirs.on_timer() == []
    return out(pair.theirs)


def send(pair: Pair, *packets: bytes) -> None:
    """From the initiator to the acceptor, with no acknowledgment allowed there."""
    for packet in packets:
        pair.ours.send(packet, packet)
    came = [event.packets for event in pair.theirs.receive(out(pair.ours)) if isinstance(event, UserMessagesReceived)]
    assert [packet for run in came for packet in run] == list(packets)


# Receiving


@pytest.mark.spec("QQB-3.1.3.2-1", "QQB-3.1.3.2-8")
def test_a_new_session_has_counted_nothing() -> None:
    for session in (Pair().ours, Pair().theirs):
        assert session.message_sent_count == session.recoverable_message_sent_count == 0
        assert session.message_received_count == session.recoverable_message_received_count == 0
        assert session.unacked_message_count == session.unacked_received_msg_count == 0
        assert session.recoverable_msg_ack_flags == session.last_acked_recoverable_msg_seq_number == 0
        assert not session.session_active
        assert not session.direct_format_session
    assert (TransferSettings().order_ack_timeout, TransferSettings().maximum_order_ack_delay) == (0.5, 10.0)


@pytest.mark.spec(
    "QQB-3.1.1.4-1", "QQB-3.1.1.4-2", "QQB-3.1.5.8.2-2", "QQB-3.1.7.1.3-3", "QQB-3.1.1.3.1-1", "QQB-3.1.5.8-2"
)
def test_messages_are_numbered_in_the_order_they_are_sent() -> None:
    """From 1, all of them and the recoverable ones apart; transactional ones are recoverable."""
    pair = Pair()
    packets = [EXPRESS, RECOVERABLE, EXPRESS, TRANSACTIONAL, RECOVERABLE, EXPRESS, RECOVERABLE, RECOVERABLE]
    for packet in packets:
        pair.ours.send(packet, packet)
    events = pair.theirs.receive(out(pair.ours))
    *ahead, last = events
    assert ahead == [UserMessagesReceived(number, [packet]) for number, packet in enumerate(packets[:6], 1)]
    # Those of equal shape come together.
    assert last == UserMessagesReceived(7, packets[6:])
    assert (pair.ours.message_sent_count, pair.ours.recoverable_message_sent_count) == (8, 5)
    assert (pair.theirs.message_received_count, pair.theirs.recoverable_message_received_count) == (8, 5)
    assert pair.ours.unacked_message_count == pair.theirs.unacked_received_msg_count == 8
    assert pair.ours.session_active
    assert pair.theirs.session_active
    # The other direction has numbers of its own, and so has a new session.
    pair.theirs.send(EXPRESS, 1)
    assert pair.ours.receive(out(pair.theirs)) == [UserMessagesReceived(1, [EXPRESS])]
    again = Pair()
    again.ours.send(EXPRESS, 1)
    assert again.theirs.receive(out(again.ours)) == [UserMessagesReceived(1, [EXPRESS])]


@pytest.mark.spec("QQB-3.1.5.8.2-3")
def test_a_direct_name_makes_a_direct_format_session() -> None:
    pair = Pair()
    by_number = message(destination=PrivateFormatName(THEIRS, 9))
    seen = []
    for packet in (by_number, EXPRESS, by_number):
        send(pair, packet)
        seen.append(pair.theirs.direct_format_session)
    assert seen == [False, True, True]


@pytest.mark.spec("QQB-3.1.1.7.2-1", "QQB-3.1.6.4-2", "QQB-3.1.6.4-1", "QQB-3.1.1.6.1-1", "MQMQ-2.2.20.4-2")
def test_three_express_messages_have_one_delayed_acknowledgment() -> None:
    pair = Pair()
    send(pair, EXPRESS, EXPRESS, EXPRESS)
    pair.theirs.allow_acknowledgment(3)
    assert tick(pair, 9.99) == b""
    data = tick(pair, 0.01)
    assert headers(data) == [SessionHeader(3, 0, 0, 0, 0, 64)]
    assert pair.theirs.unacked_received_msg_count == 0
    assert pair.ours.receive(data) == [SessionAckReceived([EXPRESS] * 3, [])]
    # Nothing more to acknowledge: the timer has its time once more, says nothing, and is stopped.
    assert tick(pair) == b""
    assert tick(pair) == b""


@pytest.mark.spec("QQB-3.1.6.4-2", "QQB-3.1.5.8.7-2", "QQB-2.2.6-1", "MQMQ-2.2.20.4-2")
def test_what_a_session_ack_says() -> None:
    """All six fields, with traffic in both directions."""
    pair = Pair()
    for _ in range(3):
        pair.theirs.send(EXPRESS, "back")
    pair.theirs.send(RECOVERABLE, "back")
    out(pair.theirs)
    send(pair, EXPRESS, RECOVERABLE, EXPRESS, RECOVERABLE, TRANSACTIONAL)
    pair.theirs.allow_acknowledgment(5)
    assert pair.theirs.recoverable_msg_ack_flags == 0b111
    data = tick(pair)
    assert data == session_ack(SessionHeader(5, 1, 0b111, 4, 1, 64))
    assert pair.theirs.recoverable_msg_ack_flags == 0
    assert pair.theirs.last_acked_recoverable_msg_seq_number == 3
    assert pair.theirs.unacked_received_msg_count == 0
    # The next begins where this ended.
    send(pair, RECOVERABLE)
    pair.theirs.allow_acknowledgment(6)
    assert headers(tick(pair)) == [SessionHeader(6, 4, 0b1, 4, 1, 64)]


@pytest.mark.spec("QQB-3.1.6.4-2", "MQMQ-2.2.20.4-2")
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.data())
def test_nothing_is_acknowledged_before_that_is_allowed(kinds: list[bool], data: st.DataObject) -> None:
    """AckSequenceNumber and the bits cover only what may be acknowledged.

    Messages received beyond that do not matter.
    """
    pair = Pair(settings=WIDE)
    send(pair, *(RECOVERABLE if kind else EXPRESS for kind in kinds))
    allowed = data.draw(st.integers(0, len(kinds)))
    pair.theirs.allow_acknowledgment(allowed)
    acks = headers(out(pair.theirs)) + headers(tick(pair))
    assert acks[-1].ack_sequence_number == allowed
    numbers = [number for ack in acks for number in ack.recoverable_acked_numbers]
    assert numbers == list(range(1, sum(kinds[:allowed]) + 1))
    pair.theirs.allow_acknowledgment(len(kinds))
    acks = headers(out(pair.theirs)) + headers(tick(pair))
    if allowed < len(kinds):
        assert acks[-1].ack_sequence_number == len(kinds) == pair.theirs.message_received_count
        numbers += [number for ack in acks for number in ack.recoverable_acked_numbers]
        assert numbers == list(range(1, sum(kinds) + 1))


@pytest.mark.spec("QQB-3.1.6.4-1")
def test_a_peer_whose_messages_are_being_stored_hears_that_we_live() -> None:
    """UnackedReceivedMsgCount is not 0, so a SessionAck is sent.

    It acknowledges nothing new.
    """
    pair = Pair()
    send(pair, RECOVERABLE, RECOVERABLE)
    assert headers(tick(pair)) == [SessionHeader(0, 0, 0, 0, 0, 64)]
    pair.theirs.allow_acknowledgment(1)
    assert headers(tick(pair, 0.5)) == [SessionHeader(1, 1, 1, 0, 0, 64)]
    pair.theirs.allow_acknowledgment(2)
    assert headers(tick(pair, 0.5)) == [SessionHeader(2, 2, 1, 0, 0, 64)]
    assert tick(pair) == b""


@pytest.mark.spec("QQB-3.1.5.8-1/the counts of the session")
def test_what_is_rejected_is_counted_and_acknowledged_like_the_rest() -> None:
    """The session does not ask what becomes of a message: allowed is allowed."""
    pair = Pair()
    send(pair, message(destination=PrivateFormatName(THEIRS, 0xDEAD), recoverable=True), EXPRESS)
    pair.theirs.allow_acknowledgment(2)
    assert headers(tick(pair)) == [SessionHeader(2, 1, 1, 0, 0, 64)]
    assert (pair.theirs.message_received_count, pair.theirs.recoverable_message_received_count) == (2, 1)


def test_allowing_is_in_order_and_only_of_what_came() -> None:
    received = ReceivedMessages()
    received.received(1, is_recoverable=True)
    with pytest.raises(ValueError, match="only 1"):
        received.allow(2)
    received.allow(1)
    received.allow(0)
    assert (received.allowed, received.recoverable_allowed) == (1, 1)


# Early


@pytest.mark.spec("QQB-3.1.1.6.1-2")
@pytest.mark.parametrize(
    ("window", "peers_window", "early"), [(64, 64, 32), (64, 10, 5), (9, 64, 4), (1, 64, 1), (64, 1, 1)]
)
@pytest.mark.parametrize("packet", [EXPRESS, RECOVERABLE])
def test_half_a_window_is_acknowledged_at_once(window: int, peers_window: int, early: int, packet: bytes) -> None:
    """The sender stops at the smaller window, and need not wait for a timer to continue."""
    pair = Pair(
        settings=TransferSettings(window_size=peers_window), their_settings=TransferSettings(window_size=window)
    )
    assert pair.ours.room == min(window, peers_window)
    for number in range(1, early):
        send(pair, packet)
        pair.theirs.allow_acknowledgment(number)
        assert out(pair.theirs) == b""
    send(pair, packet)
    pair.theirs.allow_acknowledgment(early)
    acks = headers(out(pair.theirs))
    assert [ack.ack_sequence_number for ack in acks] == [early]
    assert pair.theirs.unacked_received_msg_count == 0


@pytest.mark.spec("QQB-3.1.1.6.1-2")
def test_a_sender_with_a_full_window_continues_without_any_timer() -> None:
    pair = Pair()
    total = 0
    for _ in range(20):
        while pair.ours.room:
            pair.ours.send(RECOVERABLE, total)
            total += 1
        events = pair.theirs.receive(out(pair.ours))
        assert events
        pair.theirs.allow_acknowledgment(total)
        pair.exchange()
    assert total == 20 * 64


@pytest.mark.spec("QQB-3.1.5.8.7-3", "QQB-3.1.5.8.7-2")
def test_32_recoverable_messages_are_acknowledged_at_once() -> None:
    """A SessionHeader has no more bits. The next message waits for the timer again."""
    pair = Pair(settings=WIDE)
    for number in range(1, 32):
        send(pair, RECOVERABLE)
        pair.theirs.allow_acknowledgment(number)
        assert pair.theirs.recoverable_msg_ack_flags == (1 << number) - 1
        assert out(pair.theirs) == b""
    send(pair, RECOVERABLE)
    pair.theirs.allow_acknowledgment(32)
    assert headers(out(pair.theirs)) == [SessionHeader(32, 1, 0xFFFF_FFFF, 0, 0, 2000)]
    assert pair.theirs.recoverable_msg_ack_flags == pair.theirs.unacked_received_msg_count == 0
    assert pair.theirs.last_acked_recoverable_msg_seq_number == pair.theirs.recoverable_message_received_count == 32
    send(pair, RECOVERABLE)
    pair.theirs.allow_acknowledgment(33)
    assert out(pair.theirs) == b""
    assert headers(tick(pair)) == [SessionHeader(33, 33, 1, 0, 0, 2000)]


@pytest.mark.spec("QQB-3.1.5.8.7-3")
def test_more_than_32_need_several_session_acks() -> None:
    pair = Pair(settings=WIDE)
    send(pair, *[RECOVERABLE] * 70)
    pair.theirs.allow_acknowledgment(70)
    data = out(pair.theirs)
    assert headers(data) == [
        SessionHeader(70, 1, 0xFFFF_FFFF, 0, 0, 2000),
        SessionHeader(70, 33, 0xFFFF_FFFF, 0, 0, 2000),
        SessionHeader(70, 65, 0x3F, 0, 0, 2000),
    ]
    events = pair.ours.receive(data)
    assert [(len(event.acked), len(event.persisted)) for event in events if isinstance(event, SessionAckReceived)] == [
        (70, 32),
        (0, 32),
        (0, 6),
    ]


# What a SessionHeader does to the sender


def sent(*packets: bytes) -> Pair:
    """A pair whose initiator has sent these, under their positions."""
    pair = Pair(settings=WIDE)
    for position, packet in enumerate(packets, 1):
        pair.ours.send(packet, position)
    out(pair.ours)
    return pair


def acks(pair: Pair, *fields: int) -> tuple[list[object], list[object]]:
    (event,) = pair.ours.receive(session_ack(SessionHeader(*fields)))
    assert isinstance(event, SessionAckReceived)
    return event.acked, event.persisted


@pytest.mark.spec("QQB-3.1.5.5.1-1")
def test_entries_up_to_the_number_are_acknowledged_once() -> None:
    pair = sent(*[EXPRESS] * 5)
    assert acks(pair, 0, 0, 0, 0, 0) == ([], [])
    assert acks(pair, 2, 0, 0, 0, 0) == ([1, 2], [])
    assert pair.ours.unacked_message_count == 3
    assert acks(pair, 2, 0, 0, 0, 0) == ([], [])
    assert acks(pair, 1, 0, 0, 0, 0) == ([], [])
    assert acks(pair, 5, 0, 0, 0, 0) == ([3, 4, 5], [])
    assert pair.ours.unacked_message_count == 0
    # Numbers wrap: half of them lie behind the last one, down to this one.
    assert acks(pair, 5 + 0x8000, 0, 0, 0, 0) == ([], [])
    # In flight they stay in flight: an acknowledgment makes nothing be sent again.
    assert out(pair.ours) == b""


def test_who_acknowledges_what_was_not_sent_is_not_believed() -> None:
    pair = sent(EXPRESS)
    (event,) = pair.ours.receive(session_ack(SessionHeader(2, 0, 0, 0, 0)))
    assert isinstance(event, SessionClosed)
    assert "AckSequenceNumber: 2, but only 1 was sent" in event.reason


@pytest.mark.spec("QQB-3.1.5.5.3-1", "QQB-3.1.5.5.3-2")
def test_recoverable_entries_are_persisted_up_to_the_number_and_by_bits() -> None:
    """At or below RecoverableMsgAckSeqNumber, and number + k for bit k.

    Without a bit, no entry is persisted.
    """
    pair = sent(*[RECOVERABLE] * 40)
    assert acks(pair, 40, 5, 0, 0, 0) == ([*range(1, 41)], [])
    assert acks(pair, 40, 3, 0b1, 0, 0) == ([], [1, 2, 3])
    assert acks(pair, 40, 5, 0b0110_1011, 0, 0) == ([], [4, 5, 6, 8, 10, 11])
    assert acks(pair, 40, 5, 0b0110_1011, 0, 0) == ([], [])
    assert acks(pair, 40, 7, 0b10, 0, 0) == ([], [7])
    # Bits for what was never sent match nothing.
    assert acks(pair, 40, 39, 0xFFFF_FFFF, 0, 0) == ([], [9, *range(12, 41)])


@pytest.mark.spec("QQB-3.1.5.5.3-1")
def test_unsent_and_express_entries_are_never_persisted() -> None:
    pair = sent(EXPRESS, RECOVERABLE, EXPRESS, RECOVERABLE)
    assert acks(pair, 0, 1, 0xFFFF_FFFF, 0, 0) == ([], [2, 4])
    assert acks(pair, 4, 2, 0b11, 0, 0) == ([1, 2, 3, 4], [])
    pair.ours.send(RECOVERABLE, 5)
    assert acks(pair, 5, 3, 0b1, 0, 0) == ([5], [5])


def test_a_peer_that_never_saves_anything_is_stopped() -> None:
    """Recoverable entries wait here until they are on the peer's disk: there is an end to that."""
    messages = SentMessages()
    for number in range(1, MAX_UNPERSISTED + 1):
        assert messages.room(64)
        messages.sent([number], [number])
        messages.acked(number & 0xFFFF)
    assert messages.unacked_count == 0
    assert messages.room(64) == 0
    assert messages.persisted(1, 1) == [1]
    assert messages.room(64) == 1


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF)), max_size=30), st.integers(0, 200))
def test_whatever_is_said_to_be_saved_is_handed_out_at_most_once(said: list[tuple[int, int]], count: int) -> None:
    messages = SentMessages()
    for number in range(1, count + 1):
        messages.sent([number], [number])
    handed: list[object] = []
    for number, flags in said:
        entries = messages.persisted(number, flags)
        expected = [
            entry
            for entry in range(1, count + 1)
            if flags
            and entry not in handed
            and (
                (0 < number <= count and entry <= number) or (0 <= entry - number < 32 and flags >> entry - number & 1)
            )
        ]
        if number <= count:
            assert entries == expected
        handed += entries
    assert len(handed) == len(set(handed))


@pytest.mark.spec("QQB-3.1.5.5.5-1")
@pytest.mark.parametrize(
    ("header", "field"),
    [
        (SessionHeader(0, 0, 0, 3, 1), "UserMsgSequenceNumber: 3, but 2"),
        (SessionHeader(0, 0, 0, 1, 1), "UserMsgSequenceNumber: 1, but 2"),
        (SessionHeader(0, 0, 0, 2, 0), "RecoverableMsgSeqNumber: 0, but 1"),
        (SessionHeader(0, 0, 0, 2, 2), "RecoverableMsgSeqNumber: 2, but 1"),
    ],
    ids=str,
)
def test_counts_that_differ_close_the_session(header: SessionHeader, field: str) -> None:
    pair = Pair()
    send(pair, EXPRESS, RECOVERABLE)
    assert pair.theirs.receive(session_ack(SessionHeader(0, 0, 0, 2, 1))) == [SessionAckReceived([], [])]
    *_, closed = pair.theirs.receive(session_ack(header))
    assert isinstance(closed, SessionClosed)
    assert field in closed.reason
    assert pair.theirs.state is SessionState.CLOSED


# A SessionHeader behind a UserMessage


@pytest.mark.spec("QQB-3.1.5.8.4-1", "QQB-3.1.5.8-2")
def test_a_session_header_behind_a_message_counts_that_message_and_acknowledges_others() -> None:
    pair = sent(EXPRESS, RECOVERABLE)
    data = with_session_header(RECOVERABLE, SessionHeader(2, 1, 1, 1, 1, 7))
    assert pair.ours.receive(data) == [UserMessagesReceived(1, [RECOVERABLE]), SessionAckReceived([1, 2], [2])]
    assert pair.ours.received_window_size == 7
    assert pair.ours.unacked_received_msg_count == 1


@pytest.mark.spec("QQB-3.1.5.8.4-1", "QQB-3.1.5.5.5-1")
def test_a_session_header_that_does_not_count_its_message_closes_the_session() -> None:
    """MS-MQMQ 2.2.20.4: the message is delivered nevertheless.

    It is not acknowledged, so it is sent again.
    """
    for header in (SessionHeader(0, 0, 0, 0, 0), SessionHeader(0, 0, 0, 1, 0)):
        first, *_, last = Pair().theirs.receive(with_session_header(RECOVERABLE, header))
        assert first == UserMessagesReceived(1, [RECOVERABLE])
        assert isinstance(last, SessionClosed)


@pytest.mark.spec("QQB-3.1.7.11-1", "QQB-3.1.7.11-2", "QQB-3.1.7.1.3-4")
@pytest.mark.parametrize(("packet", "seconds"), [(EXPRESS, 7.5), (RECOVERABLE, 0.375)])
def test_a_message_takes_the_acknowledgment_along_after_three_quarters_of_its_time(
    packet: bytes, seconds: float
) -> None:
    pair = Pair()
    send(pair, packet)
    pair.theirs.allow_acknowledgment(1)
    pair.advance(seconds)
    pair.theirs.send(RECOVERABLE, "too early")
    assert headers(out(pair.theirs)) == []
    pair.advance(0.001)
    pair.theirs.send(RECOVERABLE, "now")
    bits = int(packet is RECOVERABLE)
    data = out(pair.theirs)
    # 3.1.7.1.3: the counts are of the messages sent, with this one.
    header = SessionHeader(1, bits, bits, 2, 2, 64)
    assert data == with_session_header(RECOVERABLE, header)
    assert pair.theirs.unacked_received_msg_count == pair.theirs.recoverable_msg_ack_flags == 0
    assert pair.theirs.last_acked_recoverable_msg_seq_number == bits
    # Once: neither the next message nor the timer says it again.
    pair.theirs.send(RECOVERABLE, "next")
    assert headers(out(pair.theirs)) == []
    assert tick(pair, seconds) == b""


@pytest.mark.spec("QQB-3.1.7.11-1")
def test_nothing_to_acknowledge_is_not_sent_along() -> None:
    pair = Pair()
    pair.advance(100.0)
    pair.theirs.send(EXPRESS, 1)
    assert out(pair.theirs) == EXPRESS


@pytest.mark.spec("QQB-3.1.7.11-2")
def test_a_restarted_timer_acknowledges_what_came_after() -> None:
    pair = Pair()
    send(pair, EXPRESS)
    pair.theirs.allow_acknowledgment(1)
    pair.advance(8.0)
    pair.theirs.send(EXPRESS, 1)
    send(pair, EXPRESS)
    pair.theirs.allow_acknowledgment(2)
    out(pair.theirs)
    assert tick(pair, 9.99) == b""
    assert headers(tick(pair, 0.01)) == [SessionHeader(2, 0, 0, 1, 0, 64)]


def test_what_one_session_header_cannot_hold_goes_before_the_message() -> None:
    pair = Pair(settings=WIDE)
    send(pair, *[RECOVERABLE] * 31)
    pair.theirs.allow_acknowledgment(31)
    pair.advance(0.45)
    send(pair, *[RECOVERABLE] * 40)
    pair.theirs._received.allow(71)
    pair.theirs.send(EXPRESS, "entry")
    data = out(pair.theirs)
    assert [len(packet) for packet in split(data)] == [36, 36, len(EXPRESS) + 16]
    assert [ack.recoverable_msg_ack_seq_number for ack in headers(data)] == [1, 33, 65]
    assert headers(data)[0].user_msg_sequence_number == 0
    assert headers(data)[2].user_msg_sequence_number == 1
    assert not any(isinstance(event, SessionClosed) for event in pair.ours.receive(data))


# OrderAck and FinalAck


def order_ack() -> bytes:
    return build_order_ack(
        OrderAckBody.of(TxSequenceID(1, 2), 3),
        source=THEIRS,
        ordinal=1,
        sent_time=0,
        destination=PrivateFormatName(OURS, 4),
    )


def final_ack() -> bytes:
    return build_final_ack(
        FinalAckBody(TxSequenceID(1, 2), 3, 2, OURS, 1),
        0x4000,
        source=THEIRS,
        ordinal=1,
        sent_time=0,
        destination=PrivateFormatName(OURS, 4),
    )


@pytest.mark.spec("QQB-3.1.1.7.3-1")
def test_sequence_acknowledgments_are_user_messages_of_the_other_direction() -> None:
    """They are counted, the FinalAck as recoverable, and covered by SessionAcks."""
    pair = Pair()
    send(pair, TRANSACTIONAL)
    pair.theirs.send(order_ack(), "order")
    pair.theirs.send(final_ack(), "final")
    assert pair.ours.receive(out(pair.theirs)) == [
        OrderAckReceived(1, [order_ack()]),
        FinalAckReceived(2, [final_ack()]),
    ]
    assert (pair.ours.message_received_count, pair.ours.recoverable_message_received_count) == (2, 1)
    pair.ours.allow_acknowledgment(2)
    pair.advance(10.0)
    pair.ours.on_timer()
    data = out(pair.ours)
    assert headers(data) == [SessionHeader(2, 1, 1, 1, 1, 64)]
    assert pair.theirs.receive(data) == [SessionAckReceived(["order", "final"], ["final"])]


@pytest.mark.spec("QQB-2.2.4-1", "QQB-3.1.7.11-1")
@pytest.mark.parametrize("packet", [order_ack(), final_ack()])
def test_a_sequence_acknowledgment_takes_no_session_header_along(packet: bytes) -> None:
    """Its BaseHeader.Flags are 0. What is to be acknowledged goes before it."""
    pair = Pair()
    send(pair, EXPRESS)
    pair.theirs.allow_acknowledgment(1)
    pair.advance(8.0)
    pair.theirs.send(packet, "entry")
    data = out(pair.theirs)
    assert data == session_ack(SessionHeader(1, 0, 0, 0, 0, 64)) + packet
    assert pair.ours.receive(data)[-1].__class__ in (OrderAckReceived, FinalAckReceived)


def test_a_sequence_acknowledgment_with_a_session_header_is_one_still() -> None:
    """SH is of the session: without it the flags are 0."""
    data = with_session_header(order_ack(), SessionHeader(0, 0, 0, 1, 0))
    assert Pair().ours.receive(data) == [OrderAckReceived(1, [order_ack()]), SessionAckReceived([], [])]


# Retransmission, pause, and 65,536


@pytest.mark.spec("QQB-3.1.7.1.3-6")
def test_a_message_sent_again_takes_new_numbers_and_no_window() -> None:
    pair = sent(TRANSACTIONAL, RECOVERABLE)
    pair.ours.send(TRANSACTIONAL, 1)
    assert (pair.ours.message_sent_count, pair.ours.recoverable_message_sent_count) == (3, 3)
    assert acks(pair, 3, 1, 0b111, 0, 0) == ([1, 2, 1], [1, 2, 1])
    assert pair.ours.unacked_message_count == 0
    assert pair.ours.room == 64


@pytest.mark.spec("QQB-3.1.7.13-1")
def test_a_pause_asks_for_one_message_at_a_time() -> None:
    pair = Pair()
    send(pair, EXPRESS, RECOVERABLE, RECOVERABLE)
    pair.theirs.allow_acknowledgment(2)
    pair.theirs.pause()
    data = out(pair.theirs)
    assert headers(data) == [SessionHeader(2, 1, 1, 0, 0, 1)]
    assert pair.theirs.recoverable_msg_ack_flags == 0
    assert pair.theirs.last_acked_recoverable_msg_seq_number == 1
    assert not pair.theirs.session_active
    # The Session Ack Send Timer is stopped.
    assert tick(pair) == b""
    pair.ours.receive(data)
    assert pair.ours.received_window_size == 1
    assert pair.ours.room == 0
    # What is allowed later is acknowledged at once: the peer waits for it.
    pair.theirs.allow_acknowledgment(3)
    pair.ours.receive(out(pair.theirs))
    assert pair.ours.unacked_message_count == 0
    assert pair.ours.received_window_size == 64


@pytest.mark.spec("QQB-3.1.7.13-1")
def test_a_pause_says_so_even_with_nothing_to_acknowledge() -> None:
    pair = Pair()
    pair.theirs.pause()
    assert headers(out(pair.theirs)) == [SessionHeader(0, 0, 0, 0, 0, 1)]
    send(pair, EXPRESS)
    pair.theirs.allow_acknowledgment(1)
    assert headers(out(pair.theirs)) == [SessionHeader(1, 0, 0, 0, 0, 64)]


@pytest.mark.spec("QQB-3.1.1.3.1-1", "QQB-3.1.5.5.1-1")
def test_counts_go_past_65535_both_ways_without_closing() -> None:
    pair = Pair(settings=TransferSettings(window_size=1000))
    total = 70_000
    seen = {id(pair.ours): 0, id(pair.theirs): 0}
    acked = {id(pair.ours): 0, id(pair.theirs): 0}
    persisted = {id(pair.ours): 0, id(pair.theirs): 0}
    while min(acked.values()) < total or min(persisted.values()) < total:
        for one, other in ((pair.ours, pair.theirs), (pair.theirs, pair.ours)):
            for number in range(one._sent.count, min(one._sent.count + one.room, total)):
                one.send(RECOVERABLE, number)
            for event in other.receive(out(one)):
                if isinstance(event, SessionAckReceived):
                    for entries, counts in ((event.acked, acked), (event.persisted, persisted)):
                        first = counts[id(other)]
                        assert entries == list(range(first, first + len(entries)))
                        counts[id(other)] += len(entries)
                else:
                    assert isinstance(event, UserMessagesReceived), event
                    assert event.number == seen[id(other)] + 1
                    seen[id(other)] = event.last_number
            other.allow_acknowledgment(seen[id(other)])
        if min(seen.values()) == total:
            # The last ones are less than half a window.
            pair.advance(0.5)
            pair.ours.on_timer()
            pair.theirs.on_timer()
    for session in (pair.ours, pair.theirs):
        assert session.state is SessionState.OPEN
        assert session.message_sent_count == session.message_received_count == total & 0xFFFF
        assert session.recoverable_message_received_count == total & 0xFFFF
        assert session.room == 1000


def test_numbers_around_65536_are_told_apart() -> None:
    messages = SentMessages()
    for number in range(1, 0x1_0000 + 51):
        messages.sent([number], [number])
        if number <= 0xFFF0:
            messages.acked(number)
            messages.persisted(number, 1)
    assert messages.unacked_count == 66
    assert messages.acked(0xFFFF) == [*range(0xFFF1, 0x1_0000)]
    assert messages.persisted(0xFFF1, 0xFFFF_FFFF) == [*range(0xFFF1, 0x1_0011)]
    assert messages.acked(0) == [0x1_0000]
    assert messages.acked(0xFFFF) == []
    assert messages.acked(50) == [*range(0x1_0001, 0x1_0033)]
    with pytest.raises(RemoteProtocolError):
        messages.acked(51)
    assert messages.persisted(0x11, 0b1001) == [0x1_0011, 0x1_0014]
