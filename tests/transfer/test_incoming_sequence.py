"""Transactional messages: once, in order, acknowledged when on disk.

MS-MQQB 3.1.1.5 and 3.1.5.8.6.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import MessageClass
from lanner.transfer import incoming_sequence
from lanner.transfer.deadlines import NEVER
from lanner.transfer.identities import UNKNOWN
from lanner.transfer.incidents import Incident
from lanner.transfer.incoming import Incoming
from lanner.transfer.incoming_sequence import IncomingSequence
from lanner.transfer.settings import TransferSettings
from lanner.wire.identifiers import TxSequenceID
from tests.transfer.incoming_harness import (
    LEDGER,
    OTHER,
    PEER,
    SEQUENCE,
    FakeLink,
    IncomingHarness,
    final_acks,
    order_ack_of,
)

NEWER = TxSequenceID(2, SEQUENCE.time_stamp)


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    harness = IncomingHarness(tmp_path / "data", TransferSettings(early_order_ack=1000))
    harness.create("ledger", transactional=True)
    harness.sync()
    yield harness
    harness.close()


def arrive(h: IncomingHarness, *numbers: int | tuple[int, int], sequence: TxSequenceID = SEQUENCE) -> None:
    """Messages of a sequence: number, or (number, previous number)."""
    pairs = [number if isinstance(number, tuple) else (number, number - 1) for number in numbers]
    h.arrive(*(h.packet(b"%d" % n, to=LEDGER, number=n, previous=before, sequence=sequence) for n, before in pairs))


def state(h: IncomingHarness) -> tuple[int, int, int]:
    """IncomingTxSequenceID, IncomingTxSequenceNumber, TxMessageRejectCount."""
    (sequence,) = h.incoming.sequences
    return sequence.tx_sequence_id, sequence.tx_sequence_number, sequence.reject_count


# Acceptance
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8.6-1", "QQB-3.1.1.5-2")
def test_within_a_sequence_each_message_comes_once_and_behind_the_one_before(h: IncomingHarness) -> None:
    """The number is above the last one, the previous number is not above it.

    A gap is a message that has expired.
    """
    arrive(h, 1, 2, 2, 1)
    assert h.bodies("ledger") == [b"1", b"2"]
    arrive(h, (4, 3))
    assert h.bodies("ledger") == [b"1", b"2"], "3 is missing"
    arrive(h, (4, 2))
    assert h.bodies("ledger") == [b"1", b"2", b"4"], "number 4 with previous 2: 3 has expired"
    arrive(h, (6, 1))
    assert h.bodies("ledger") == [b"1", b"2", b"4", b"6"], "less or equal"


@pytest.mark.spec("QQB-3.1.5.8.6-2")
def test_a_newer_sequence_begins_with_a_message_that_has_no_predecessor(h: IncomingHarness) -> None:
    """Compared as 64 bits with the time on top; an older sequence is over for good."""
    arrive(h, 1, 2, 3)
    arrive(h, 2, sequence=NEWER)
    assert state(h)[:2] == (SEQUENCE.value, 3)
    arrive(h, (7, 0), sequence=NEWER)
    assert state(h)[:2] == (NEWER.value, 7)
    arrive(h, 1, 4, sequence=SEQUENCE)
    assert state(h)[:2] == (NEWER.value, 7)
    h.incoming.stop()
    h.incoming = Incoming(h.engine, TransferSettings(max_clock_skew=math.inf))
    later = TxSequenceID(1, SEQUENCE.time_stamp + 1)
    arrive(h, 1, sequence=later)
    assert state(h)[:2] == (later.value, 1), "a lower Ordinal under a higher Timestamp is newer"
    highest = TxSequenceID(0, 0xFFFF_FFFF)
    arrive(h, 1, sequence=highest)
    assert state(h)[:2] == (highest.value, 1), "unsigned"
    arrive(h, 1, sequence=TxSequenceID(9, 0x7FFF_FFFF))
    assert state(h)[:2] == (highest.value, 1)


@given(
    held=st.tuples(st.integers(0, 3), st.integers(0, 5)),
    came=st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 6)),
)
def test_acceptance_is_the_two_conditions_of_the_document(held: tuple[int, int], came: tuple[int, int, int]) -> None:
    sequence = IncomingSequence(b"", PEER, "", is_direct=True, tx_sequence_id=held[0], tx_sequence_number=held[1])
    first = came[0] == held[0] and came[1] > held[1] and came[2] <= held[1]
    second = came[0] > held[0] and came[2] == 0
    assert sequence.accepts(*came) == (first or second)


@pytest.mark.spec("QQB-3.1.5.8.6-3", "QQB-3.1.5.8-1/order")
def test_rejections_are_counted_until_one_is_accepted(h: IncomingHarness) -> None:
    arrive(h, 1)
    arrive(h, 3)
    arrive(h, 3, 1)
    assert state(h)[2] == 3
    (info,) = h.queue("ledger").incoming_transactional_transfer_info.values()
    assert info.reject_count == 3
    assert h.bodies("ledger") == [b"1"]
    assert h.link.processed_numbers[-1] == 4, "the rejected ones are acknowledged to the session, too"
    arrive(h, 2)
    assert state(h)[2] == info.reject_count == 0
    assert h.incoming.out_of_order == 3


@pytest.mark.spec("QQB-3.1.5.8.6-4", "QQB-3.1.1.3.1-3")
def test_how_far_a_sequence_is_survives_with_its_messages(h: IncomingHarness) -> None:
    """Written in the batch of the message: after a crash both are there or neither."""
    fresh = IncomingSequence(b"", PEER, "", is_direct=True)
    assert (fresh.tx_sequence_id, fresh.tx_sequence_number, fresh.reject_count) == (0, 0, 0)
    arrive(h, 1)
    (sequence,) = h.incoming.sequences
    h.now += 3
    arrive(h, 2)
    assert sequence.last_access_time == int(h.now), "of an accepted one"
    h.now += 5
    arrive(h, 2)
    assert sequence.last_access_time == int(h.now), "also of a rejected one"
    h.sync()
    arrive(h, 3)
    h.crash()
    assert state(h) == (SEQUENCE.value, 2, 1)
    assert h.bodies("ledger") == [b"1", b"2"]
    (sequence,) = h.incoming.sequences
    assert (sequence.last_access_time, sequence.remote_address) == (int(h.now), "192.0.2.7")
    arrive(h, 3)
    h.restart()
    arrive(h, 3, 4)
    assert h.bodies("ledger") == [b"1", b"2", b"3", b"4"]


def test_a_sequence_moves_only_when_its_message_is_accepted(h: IncomingHarness) -> None:
    """DECISIONS: the text sets the numbers after a rejection too.

    That would let every later duplicate in.
    """
    arrive(h, 1, 5, 3)
    assert state(h)[:2] == (SEQUENCE.value, 1)
    arrive(h, 2)
    assert h.bodies("ledger") == [b"1", b"2"]


def test_a_message_refused_in_its_turn_does_not_hold_up_the_next(h: IncomingHarness) -> None:
    """DECISIONS: a message in order is accepted.

    A full queue answers with a FinalAck, and the sequence continues.
    """
    arrive(h, 1)
    h.engine.set_queue_properties(h.queue("ledger"), {"quota": 0})
    arrive(h, 2)
    h.engine.set_queue_properties(h.queue("ledger"), {"quota": 1000})
    arrive(h, 3)
    assert h.bodies("ledger") == [b"1", b"3"]
    assert final_acks(h) == [0x8003]
    assert h.order_acks() == [(SEQUENCE.value, 3)]


def test_senders_and_names_have_sequences_of_their_own(h: IncomingHarness) -> None:
    """One sender has a sequence for each name it knows a queue by."""
    by_address = r"DIRECT=TCP:10.0.0.1\private$\ledger"
    older = TxSequenceID(1, 1000)
    for source in (PEER, OTHER):
        h.arrive(
            h.packet(b"a1", source=source, to=LEDGER, number=1),
            h.packet(b"b1", source=source, to=by_address, number=1, sequence=older),
            h.packet(b"a2", source=source, to=LEDGER.upper().replace("DIRECT=OS:", "DIRECT=os:"), number=2),
            h.packet(b"b2", source=source, to=by_address, number=2, sequence=older),
            link=FakeLink(source),
        )
    assert h.bodies("ledger") == [b"a1", b"b1", b"a2", b"b2"] * 2
    assert len(h.queue("ledger").incoming_transactional_transfer_info) == 4


def test_a_sequence_continues_over_the_life_of_its_queue(h: IncomingHarness) -> None:
    """Messages to a missing queue are rejected in their turn.

    When the queue is created, the next message is accepted.
    """
    h.engine.delete_queue(h.queue("ledger"))
    # The first we see of it may be anywhere in the sequence.
    arrive(h, 5, 6, 6, 8)
    assert final_acks(h) == [0x8000, 0x8000], "not for a duplicate or one out of order"
    assert h.order_acks() == [(SEQUENCE.value, 6)]
    h.create("ledger", transactional=True)
    h.restart()
    arrive(h, 7)
    assert h.bodies("ledger") == [b"7"]
    h.engine.delete_queue(h.queue("ledger"))
    h.create("ledger", transactional=True)
    arrive(h, 7, 8)
    assert h.bodies("ledger") == [b"8"]
    (info,) = h.queue("ledger").incoming_transactional_transfer_info.values()
    assert info.queue is h.queue("ledger")


class Unknown(FakeLink):
    def __init__(self, remote_qm_guid: uuid.UUID, remote_address: str) -> None:
        super().__init__(remote_qm_guid, remote_address)
        self.standing = UNKNOWN


def test_sequences_that_never_delivered_are_bounded(h: IncomingHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any peer can begin a sequence.

    Such sequences must not fill memory and disk, nor evict those of real senders.
    """
    monkeypatch.setattr(incoming_sequence, "MAX_REFUSED_SEQUENCES", 5)
    arrive(h, 1)
    stranger = Unknown(PEER, "192.0.2.66")
    for n in range(20):
        h.arrive(h.packet(to=rf"DIRECT=OS:ALPHA\private$\none{n}", number=1), link=stranger)
    names = {sequence.format_name for sequence in h.incoming.sequences}
    assert names == {LEDGER} | {rf"DIRECT=OS:ALPHA\private$\none{n}" for n in range(15, 20)}
    assert len(list(h.store.table(incoming_sequence.TABLE).items())) == 6
    h.restart()
    assert len(list(h.incoming.sequences)) == 6
    # One that was forgotten begins anew, though it was found without a search before.
    h.arrive(h.packet(to=r"DIRECT=OS:ALPHA\private$\none0", number=1), link=stranger)
    arrive(h, 1, 2)
    assert h.bodies("ledger") == [b"1", b"2"]


def flood(h: IncomingHarness, count: int, addresses: Sequence[str]) -> None:
    """Made-up senders, each with a message that is stored."""
    for n in range(count):
        guid = uuid.uuid4()
        h.arrive(h.packet(to=LEDGER, number=1, source=guid), link=Unknown(guid, addresses[n % len(addresses)]))


def is_remembered(h: IncomingHarness, source: uuid.UUID) -> bool:
    return (source, LEDGER) in h.queue("ledger").incoming_transactional_transfer_info


@pytest.mark.parametrize(
    "addresses",
    [
        ["192.0.2.66"],
        ["192.0.2.66", "192.0.2.67"],
        ["2001:db8::66"],
        # A neighbour has all addresses of its network for the asking.
        [f"2001:db8::{n:x}" for n in range(0x66, 0xA0)],
    ],
    ids=["one", "two", "neighbour", "network"],
)
def test_strangers_displace_no_sequence_of_another_address(
    h: IncomingHarness, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """A forgotten sender's messages are delivered twice, or no longer.

    So made-up senders evict only each other.
    """
    monkeypatch.setattr(incoming_sequence, "MAX_SEQUENCES_PER_ADDRESS", 4)
    monkeypatch.setattr(incoming_sequence, "MAX_SEQUENCES_OF_STRANGERS", 8)
    honest = Unknown(OTHER, "2001:db8::3")
    h.arrive(h.packet(b"once", to=LEDGER, number=1, source=OTHER), link=honest)
    arrive(h, 1)
    flood(h, 50, addresses)
    assert is_remembered(h, OTHER)
    assert is_remembered(h, PEER)
    assert len(h.queue("ledger").incoming_transactional_transfer_info) <= 9
    assert h.incoming.incidents.count(Incident.TOO_MANY_SEQUENCES) >= 42
    h.restart()
    h.arrive(h.packet(b"once", to=LEDGER, number=1, source=OTHER), link=honest)
    h.arrive(h.packet(b"next", to=LEDGER, number=2, previous=1, source=OTHER), link=honest)
    flood(h, 1, addresses)
    assert [body for body in h.bodies("ledger") if body in (b"once", b"next")] == [b"once", b"next"]


def test_an_honest_sender_of_many_that_have_one_sequence_each_is_not_the_first_to_go(
    h: IncomingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of addresses with equally many sequences, one makes room.

    Messages that are being processed stay.
    """
    monkeypatch.setattr(incoming_sequence, "MAX_SEQUENCES_OF_STRANGERS", 2)
    flood(h, 3, ["192.0.2.1", "192.0.2.2", "192.0.2.3"])
    sequences = list(h.incoming.sequences)
    assert {sequence.remote_address for sequence in sequences} > {"192.0.2.3"}
    assert len(sequences) == 2


# What an administrator sees
# -------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8.8-3", "DMPR-3.1.1.5-1")
def test_a_queue_shows_each_sequence_that_comes_to_it(h: IncomingHarness) -> None:
    """IncomingTransactionalTransferInfo describes each sequence.

    It has QueueReference, FormatName, SenderIdentifier, identifier, number, time and rejections.
    """
    queue = h.queue("ledger")
    assert queue.incoming_transactional_transfer_info == {}
    # The first that is heard of the sequence is its fourth message: it begins where its sender
    # says.
    arrive(h, 4)
    (info,) = queue.incoming_transactional_transfer_info.values()
    assert info.queue is queue
    assert info.format_name == LEDGER
    assert info.sender_identifier == PEER
    assert (info.sequence_identifier, info.sequence_number) == (SEQUENCE.value, 3)
    assert (info.last_access_time, info.reject_count) == (int(h.now), 1)
    h.now += 9
    arrive(h, 1, 2)
    assert (info.sequence_identifier, info.sequence_number) == (SEQUENCE.value, 2)
    assert (info.last_access_time, info.reject_count) == (int(h.now), 0)
    h.now += 1
    arrive(h, 9)
    assert (info.last_access_time, info.reject_count) == (int(h.now), 1)
    # Of 32 bits: it stays where it cannot go on.
    (sequence,) = h.incoming.sequences
    sequence.reject_count = 0xFFFF_FFFE
    arrive(h, 9, 9)
    assert info.reject_count == 0xFFFF_FFFF
    arrive(h, 1, sequence=NEWER)
    assert list(queue.incoming_transactional_transfer_info.values()) == [info]
    assert (info.sequence_identifier, info.sequence_number) == (NEWER.value, 1)
    # Its sender is the source, not the router at the other end of the session.
    h.arrive(h.packet(to=LEDGER, number=1, source=OTHER), link=FakeLink(uuid.uuid4(), is_router=True))
    assert {each.sender_identifier for each in queue.incoming_transactional_transfer_info.values()} == {PEER, OTHER}
    h.restart()
    restored = h.queue("ledger").incoming_transactional_transfer_info[PEER, LEDGER]
    assert (restored.sequence_identifier, restored.sequence_number) == (NEWER.value, 1)
    assert restored.last_access_time == int(h.now)


# Order acknowledgments
# --------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.1.6.2-1")
def test_order_acks_stop_at_the_first_message_that_is_missing(h: IncomingHarness) -> None:
    """The text describes a missing message.

    "if the receiver has received messages 1, 2, and 4 ... it cannot send an acknowledgment for
    message 4".
    """
    arrive(h, 1, 2, 4)
    assert h.order_acks() == [(SEQUENCE.value, 2)]
    arrive(h, 3)
    assert h.order_acks() == [(SEQUENCE.value, 3)]
    arrive(h, 4)
    assert h.order_acks() == [(SEQUENCE.value, 4)]


@pytest.mark.spec("QQB-3.1.1.6.2-1")
def test_order_acks_speak_only_of_what_is_on_disk(h: IncomingHarness) -> None:
    arrive(h, 1, 2)
    h.sync()
    arrive(h, 3)
    h.now += 0.5
    h.incoming.on_timer()
    assert [order_ack_of(message) for message in h.link.express] == [(SEQUENCE.value, 2)]
    assert h.order_acks() == [(SEQUENCE.value, 3)], "the rest follows"
    # With nothing on disk there is nothing to acknowledge yet; the acknowledgment follows soon.
    arrive(h, 4)
    h.now += 0.5
    h.incoming.on_timer()
    assert len(h.link.express) == 2
    deadline = h.incoming.sequences.deadline.due
    assert deadline is not None
    assert deadline - h.now < 0.1
    assert h.order_acks() == [(SEQUENCE.value, 4)]
    assert h.incoming.sequences.deadline.due == NEVER


@pytest.mark.spec("QQB-3.1.1.6.2-2")
def test_the_timer_is_restarted_only_while_the_last_order_ack_is_recent(h: IncomingHarness) -> None:
    """OrderAckTimeout is 0.5 s after the last message.

    MaximumOrderAckDelay limits the delay to 10 s.
    """
    number = 0
    start = h.now
    arrive(h, 1)
    number = 1
    assert h.incoming.sequences.deadline.due == start + 0.5, "an idle timer is started"
    while h.now < start + 9.8:
        assert h.order_acks(0.4) == [], "a running one is restarted"
        number += 1
        arrive(h, number)
    sent: list[tuple[int, int]] = []
    while not sent:
        sent = h.order_acks(0.1)
        number += 1
        arrive(h, number)
        assert h.now < start + 10.7
    assert h.now >= start + 10.0
    # From now on it is recent again.
    assert h.order_acks(0.4) == []
    number += 1
    arrive(h, number)
    assert h.order_acks(0.4) == []
    assert h.order_acks(0.2) == [(SEQUENCE.value, number)]


@pytest.mark.spec("QQB-3.1.1.6.2-3/the receiver")
def test_one_order_ack_covers_all_that_came_since_the_last(h: IncomingHarness) -> None:
    arrive(h, 1, 2, 3, 4, 5)
    assert h.order_acks() == [(SEQUENCE.value, 5)]
    arrive(h, 6)
    arrive(h, 7, 8)
    assert h.order_acks() == [(SEQUENCE.value, 8)]


@pytest.mark.spec("QQB-3.1.5.8.6-5")
def test_every_arrival_schedules_an_order_ack(h: IncomingHarness) -> None:
    """This includes a duplicate: its sender may have missed the first OrderAck."""
    arrive(h, 1)
    assert h.order_acks() == [(SEQUENCE.value, 1)]
    assert h.order_acks(60) == []
    arrive(h, 1)
    assert h.order_acks() == [(SEQUENCE.value, 1)]
    arrive(h, 3)
    assert h.order_acks() == [(SEQUENCE.value, 1)]


@pytest.mark.spec("QQB-3.1.6.9-1")
def test_a_tick_sends_one_order_ack_unless_the_session_is_closed_or_nothing_came(h: IncomingHarness) -> None:
    arrive(h, 7)
    assert h.order_acks() == [], "IncomingTxSequenceNumber is 0"
    arrive(h, 1)
    assert h.order_acks() == [(SEQUENCE.value, 1)]
    (sequence,) = h.incoming.sequences
    assert sequence.last_order_ack_send_time == h.now
    assert h.link.express[0].message_class is MessageClass.ORDER_ACK
    arrive(h, 2)
    h.link.is_open = False
    assert h.order_acks() == []
    assert h.incoming.sequences.deadline.due == NEVER
    # On the next session the sender resends it and gets the acknowledgment.
    h.link = FakeLink()
    arrive(h, 2)
    assert h.order_acks() == [(SEQUENCE.value, 2)]
    h.incoming.closed(h.link)
    assert sequence.link is None


def test_many_messages_are_acknowledged_early(tmp_path: Path) -> None:
    """Ours: a sender keeps what is not acknowledged, and stops at a limit."""
    h = IncomingHarness(tmp_path / "early", TransferSettings(early_order_ack=4))
    h.create("ledger", transactional=True)
    arrive(h, 1, 2, 3)
    assert h.order_acks(0) == []
    arrive(h, 4)
    assert h.order_acks(0) == [(SEQUENCE.value, 4)]
    arrive(h, 5)
    assert h.order_acks(0.4) == []
    assert h.order_acks(0.1) == [(SEQUENCE.value, 5)]
    h.close()


def test_timers_of_many_sequences_are_independent(h: IncomingHarness) -> None:
    h.arrive(h.packet(to=LEDGER, number=1))
    h.now += 0.3
    h.arrive(h.packet(to=LEDGER, number=1, source=OTHER), link=h.link)
    h.sync()
    h.now += 0.2
    h.incoming.on_timer()
    assert len(h.link.express) == 1, "the second is not due yet"
    h.arrive(h.packet(to=LEDGER, number=2))
    assert h.incoming.sequences.deadline.due == pytest.approx(h.now + 0.3)


def test_a_time_far_ahead_is_refused_and_forgotten(h: IncomingHarness) -> None:
    """A time more than max_clock_skew ahead is rejected.

    What was accepted before there was a limit no longer blocks its sender.
    """
    ahead = TxSequenceID(1, int(h.now) + 86_400)
    too_far = TxSequenceID(1, int(h.now) + 86_402)
    arrive(h, 1, sequence=too_far)
    assert list(h.incoming.sequences) == []
    assert h.bodies("ledger") == []
    assert h.incoming.incidents.count(Incident.SEQUENCE_AHEAD) == 1
    assert h.order_acks() == []
    arrive(h, 1, sequence=ahead)
    assert state(h)[:2] == (ahead.value, 1)
    h.incoming.stop()
    h.incoming = Incoming(h.engine, TransferSettings(max_clock_skew=60))
    assert list(h.incoming.sequences) == []
    arrive(h, 1)
    assert state(h)[:2] == (SEQUENCE.value, 1)
