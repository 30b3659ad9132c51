"""MS-MQQB 3.1.5.8 Receiving a UserMessage Packet: messages for queues of this queue manager."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lanner.model.directory_objects import Queue
from lanner.model.enums import (
    INFINITE,
    DirectoryOperationResult,
    MessagePrivacyLevel,
    QueuePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import InsufficientResources
from lanner.model.live import Record
from lanner.security.examination import Examination, examine
from lanner.security.identity import Identity
from lanner.security.profile import Profile
from lanner.transfer.deadlines import NEVER
from lanner.transfer.events import FinalAckReceived, OrderAckReceived, UserMessagesReceived
from lanner.transfer.incoming import Incoming
from lanner.transfer.refusals import UNVERIFIED_SOURCE
from lanner.wire.layout import locate
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import ANONYMOUS_LOGON, EVERYONE, LOCAL_SYSTEM, Sid
from tests.transfer.incoming_harness import (
    ADMIN,
    LEDGER,
    OTHER,
    PEER,
    FakeLink,
    IncomingHarness,
    asking,
    final_acks,
    sent_by,
    told,
)

ALICE = Sid.parse("S-1-5-21-1-2-3-1001")
GROUP = Sid.parse("S-1-5-21-1-2-3-2001")


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    harness = IncomingHarness(tmp_path / "data", send_insecure_nacks=True)
    harness.create("q")
    harness.create("ledger", transactional=True)
    harness.create("admin")
    yield harness
    harness.close()


# Duplicates
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8.1-1")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_message_that_came_before_is_counted_and_dropped(h: IncomingHarness, recoverable: bool) -> None:
    """The text: "The protocol MUST discard this message".

    Its entry in the history gets the current time, no acknowledgment is sent, and the session
    continues counting.
    """
    packet = h.packet(b"once", recoverable=recoverable, **asking())
    h.arrive(packet)
    assert told(h) == [0x0002]
    h.now += 10
    h.arrive(packet, packet)
    assert h.bodies() == [b"once"]
    assert told(h) == []
    assert h.link.processed_numbers == [1, 3]
    assert h.incoming.duplicates == 2
    assert h.incoming.history.time_stamp(packet[16:32] + packet[56:60]) == int(h.now)


@pytest.mark.spec("QQB-3.1.5.8.1-2")
def test_equal_ordinals_of_two_senders_are_two_messages(h: IncomingHarness) -> None:
    h.arrive(h.packet(b"ours", ordinal=5))
    h.arrive(h.packet(b"theirs", ordinal=5, source=OTHER), link=FakeLink(OTHER))
    assert h.bodies() == [b"ours", b"theirs"]


@pytest.mark.spec("QQB-3.1.5.8.1-3")
def test_transactional_messages_are_judged_by_their_numbers_alone(h: IncomingHarness) -> None:
    """Two messages with one MessageID are both accepted if they are in order.

    A resent message is dropped although its MessageID is new.
    """
    h.arrive(
        h.packet(b"1", to=LEDGER, number=1, ordinal=9),
        h.packet(b"2", to=LEDGER, number=2, ordinal=9),
        h.packet(b"2 again", to=LEDGER, number=2, ordinal=10),
    )
    assert h.bodies("ledger") == [b"1", b"2"]
    assert h.incoming.duplicates == 0


@pytest.mark.spec("QQB-3.1.1.3-3")
def test_a_message_and_that_it_came_are_on_disk_together(h: IncomingHarness) -> None:
    """Nothing may be acknowledged before both are on disk.

    A message that counts as processed is in a batch that can be waited for.
    """
    h.sync()
    packets = [h.packet(b"kept"), h.packet(b"1", to=LEDGER, number=1)]
    tickets: list[int] = []
    h.link.on_processed = lambda: tickets.append(h.store.pending_batch())
    h.arrive(*packets)
    assert tickets == [h.store.pending_batch()]
    assert tickets[0] > h.store.synced
    h.crash()
    assert h.bodies() == h.bodies("ledger") == [], "a crash before the batch was synced: neither"
    h.arrive(*packets)
    assert (h.bodies(), h.bodies("ledger")) == ([b"kept"], [b"1"]), "so it is taken when it is sent again"
    h.sync()
    h.crash()
    h.arrive(*packets)
    assert (h.bodies(), h.bodies("ledger")) == ([b"kept"], [b"1"]), "a crash after it: both"
    assert h.incoming.duplicates == 1
    assert h.incoming.out_of_order == 1


@pytest.fixture
def document(tmp_path: Path) -> Iterator[IncomingHarness]:
    """The documents' way, where the default is another."""
    harness = IncomingHarness(tmp_path / "document", send_insecure_nacks=True, profile=Profile.DOCUMENT)
    harness.create("q")
    harness.create("ledger", transactional=True)
    yield harness
    harness.close()


@pytest.mark.spec("QQB-3.1.5.8.2-4")
def test_every_message_is_remembered_also_one_that_is_refused(document: IncomingHarness) -> None:
    h = document
    h.arrive(h.packet(), h.packet(to=r"DIRECT=OS:ALPHA\private$\none"), h.packet(to=LEDGER, number=1))
    assert len(h.incoming.history) == 3
    assert h.incoming.history.deadline.due < NEVER


def test_a_refused_message_is_not_remembered(h: IncomingHarness) -> None:
    """It would make a message a duplicate that never came anywhere."""
    nowhere = h.packet(to=r"DIRECT=OS:ALPHA\private$\none", ordinal=77)
    h.arrive(nowhere, h.packet(b"q", to=LEDGER), h.packet(to=rf"PRIVATE={OTHER}\20"))
    assert len(h.incoming.history) == 0
    h.arrive(h.packet(b"real", ordinal=77))
    assert h.bodies() == [b"real"]
    assert len(h.incoming.history) == 1


def test_an_express_message_puts_nothing_on_disk(h: IncomingHarness) -> None:
    """Writing its identifier would make the sender wait for the disk.

    The entry would have no use: the message does not survive a restart, so its copy would be no
    duplicate.
    """
    h.sync()
    h.arrive(h.packet(b"quick", recoverable=False))
    assert h.bodies() == [b"quick"]
    assert h.store.pending_batch() == 0


# The order of the steps
# -----------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8-2")
def test_the_first_step_that_refuses_a_message_decides_what_its_sender_is_told(h: IncomingHarness) -> None:
    """Destination and type, then security, then expiry.

    Each of these messages breaks all rules from its step on.
    """
    h.create("signed", authentication=True)
    late: dict[str, Any] = {"age": 11, "time_to_reach_queue": 10}
    h.arrive(
        h.packet(to=r"DIRECT=OS:ALPHA\private$\none", **late, **asking()),
        h.packet(to=LEDGER, **late, **asking()),
        h.packet(to=r"DIRECT=OS:ALPHA\private$\signed", **late, **asking()),
        h.packet(**late, **asking()),
    )
    assert told(h) == [0x8000, 0x800A, 0x8006, 0x8002]


@pytest.mark.spec("QQB-3.1.5.8-2")
def test_a_duplicate_is_dropped_before_anything_else_is_looked_at(h: IncomingHarness) -> None:
    packet = h.packet(b"once", time_to_reach_queue=10, **asking())
    h.arrive(packet)
    assert told(h) == [0x0002]
    h.now += 11
    h.arrive(packet)
    assert told(h) == []


@pytest.mark.spec("QQB-3.1.5.8-2")
@pytest.mark.parametrize("cause", ["expiry", "security"])
def test_the_order_of_a_transactional_message_is_checked_before_security_and_expiry(
    h: IncomingHarness, cause: str
) -> None:
    """DECISIONS: a message that was delivered is sent again when its OrderAck was lost.

    If it were refused then, the negative FinalAck would make a dead letter of it at its sender.
    """
    lifetime: dict[str, Any] = {"time_to_reach_queue": 10} if cause == "expiry" else {}
    first = h.packet(b"1", to=LEDGER, number=1, **lifetime, **asking())
    h.arrive(first)
    assert told(h) == [0x0002]
    if cause == "expiry":
        h.now += 11
    else:
        h.queue("ledger").authentication = True
    # One that was here before, one that is too early, one that is next.
    h.arrive(
        first,
        h.packet(b"3", to=LEDGER, number=3, age=11, **lifetime, **asking()),
        h.packet(b"2", to=LEDGER, number=2, age=11, **lifetime, **asking()),
    )
    refusal = 0x8002 if cause == "expiry" else 0x8006
    assert (told(h), final_acks(h)) == ([refusal], [refusal])
    assert h.incoming.out_of_order == 2


@pytest.mark.spec("QQB-3.1.5.8-2")
def test_only_a_message_that_is_taken_is_reported(h: IncomingHarness) -> None:
    reports = h.create(r".\reports")
    traced: dict[str, Any] = {"tracing_requested": True, "tracing_queue_identifier": reports.identifier}
    twice = h.packet(**traced)
    h.arrive(twice, h.packet(to=LEDGER, number=1, **traced))
    assert len(h.messages(r"DIRECT=OS:.\reports")) == 2
    h.arrive(
        twice,
        h.packet(to=r"DIRECT=OS:ALPHA\private$\none", **traced),
        h.packet(to=LEDGER, **traced),
        h.packet(age=11, time_to_reach_queue=10, **traced),
        h.packet(to=LEDGER, number=2, age=11, time_to_reach_queue=10, **traced),
        h.packet(to=LEDGER, number=4, **traced),
    )
    assert h.messages(r"DIRECT=OS:.\reports") == []


# Order
# --------------------------------------------------------------------------------------------------


class SlowExamination:
    """Examinations end when the test says so."""

    def __init__(self) -> None:
        self.pending: list[tuple[Message, Callable[[Examination], None]]] = []

    def __call__(
        self, message: Message, done: Callable[[Examination], None], whose: str, is_wanted: Callable[[], bool]
    ) -> None:
        del whose, is_wanted
        self.pending.append((message, done))

    def finish(self, index: int = 0) -> None:
        message, done = self.pending.pop(index)
        done(examine(message))


@pytest.fixture
def slow(h: IncomingHarness) -> SlowExamination:
    examination = SlowExamination()
    h.incoming.stop()
    h.incoming = Incoming(h.engine, h.transfer, examine=examination)
    return examination


def signed(h: IncomingHarness, body: bytes, **properties: Any) -> bytes:  # noqa: ANN401 (of MessageProperties)
    """A message whose signature has to be looked at (and is wrong)."""
    return h.packet(body, signature=b"s" * 64, sender_certificate=b"c" * 32, **sent_by(ALICE), **properties)


def test_messages_keep_their_order_while_one_is_examined_in_a_thread(h: IncomingHarness, slow: SlowExamination) -> None:
    other = FakeLink(OTHER, "192.0.2.8")
    h.arrive(h.packet(b"1"), signed(h, b"2"), h.packet(b"3"))
    assert (h.bodies(), h.link.processed_numbers) == ([b"1"], [1])
    h.arrive(h.packet(b"4"), signed(h, b"5"), h.packet(b"6"))
    h.arrive(h.packet(b"elsewhere", source=OTHER), link=other)
    assert h.bodies() == [b"1", b"elsewhere"], "another session does not wait"
    slow.finish(1)
    assert h.link.processed_numbers == [1], "the later one has to wait for the earlier"
    slow.finish()
    assert h.bodies() == [b"1", b"elsewhere", b"3", b"4", b"6"]
    assert h.link.processed_numbers == [1, 6]
    h.arrive(h.packet(b"7"))
    assert h.link.processed_numbers == [1, 6, 7]


def test_acknowledgments_are_counted_in_their_turn(h: IncomingHarness, slow: SlowExamination) -> None:
    h.incoming.receive(h.link, [OrderAckReceived(1, [b""]), FinalAckReceived(2, [b""])])
    assert h.link.processed_numbers == [2]
    h.incoming.receive(h.link, [UserMessagesReceived(3, [signed(h, b"")]), OrderAckReceived(4, [b""])])
    assert h.link.processed_numbers == [2]
    slow.finish()
    assert h.link.processed_numbers == [2, 4]


def test_what_is_examined_when_its_session_ends_has_not_come(h: IncomingHarness, slow: SlowExamination) -> None:
    h.arrive(signed(h, b"1"), h.packet(b"2"))
    h.link.is_open = False
    h.incoming.closed(h.link)
    slow.finish()
    assert h.bodies() == []
    assert h.link.processed_numbers == []


def test_only_what_is_for_here_is_examined(document: IncomingHarness) -> None:
    h, slow = document, SlowExamination()
    h.incoming.stop()
    h.incoming = Incoming(h.engine, h.transfer, examine=slow)
    h.arrive(
        h.packet(b"sid alone", **sent_by(ALICE)),
        signed(h, b"passed on", to=rf"PRIVATE={OTHER}\20"),
    )
    assert slow.pending == []
    assert h.link.processed_numbers == [2]
    assert [message.body for message in h.outgoing(rf"PRIVATE={OTHER}\20")] == [b"passed on"]


# Refusals
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8.2-6", "QQB-3.1.5.8-1/destination")
def test_a_message_to_a_queue_that_is_not_there_is_dropped(h: IncomingHarness) -> None:
    """The sender gets 0x8000 if it asked, and FinalAck 0x8000 for a transactional message.

    The message is counted as received all the same.
    """
    nowhere = r"DIRECT=OS:ALPHA\private$\none"
    h.arrive(h.packet(to=nowhere, **asking()), h.packet(to=nowhere, number=1, **asking()), h.packet(to=nowhere))
    assert told(h) == [0x8000, 0x8000]
    assert final_acks(h) == [0x8000]
    assert h.link.processed_numbers == [3]
    assert h.link.close_reasons == []


@pytest.mark.spec("QQB-3.1.5.8.2-7", "QQB-3.1.5.8-1/type")
def test_a_transactional_message_to_another_kind_of_queue_is_dropped(h: IncomingHarness) -> None:
    h.arrive(h.packet(number=1, **asking()), h.packet(number=2))
    assert h.bodies() == []
    assert told(h) == [0x8009]
    assert final_acks(h) == [0x8009, 0x8009], "always, whatever was asked for"
    assert h.link.processed_numbers == [2]


@pytest.mark.spec("QQB-3.1.5.8.2-8")
def test_a_plain_message_to_a_transactional_queue_is_dropped(h: IncomingHarness) -> None:
    h.arrive(h.packet(to=LEDGER, **asking()), h.packet(to=LEDGER))
    assert h.bodies("ledger") == []
    assert told(h) == [0x800A]
    assert h.all_outgoing() == {}, "no FinalAck"


@pytest.mark.spec("QQB-3.1.1.1.1.4-1", "QQB-3.1.5.8-1/expiry")
def test_a_message_that_comes_too_late_is_dropped(h: IncomingHarness) -> None:
    h.arrive(
        h.packet(b"in time", age=10, time_to_reach_queue=10),
        h.packet(b"late", age=11, time_to_reach_queue=10, **asking()),
        h.packet(b"late, unasked", age=11, time_to_reach_queue=10),
        h.packet(b"too late to be read, unasked", age=11, time_to_be_received=10),
        h.packet(b"too late to be read", age=11, time_to_be_received=10, **asking()),
        h.packet(b"late", to=LEDGER, number=1, age=11, time_to_reach_queue=10),
    )
    assert h.bodies() == [b"in time"]
    assert told(h) == [0x8002, 0x8002]
    assert final_acks(h) == [0x8002]
    assert h.link.processed_numbers == [6]
    # Expiry comes before the queue's quota.
    h.engine.set_queue_properties(h.queue(), {"quota": 0})
    h.arrive(h.packet(age=11, time_to_reach_queue=10, **asking()))
    assert told(h) == [0x8002]


@pytest.mark.spec("QQB-3.1.5.8.8-1", "QQB-3.1.5.8-1/queue quota")
def test_a_full_queue_refuses_and_keeps_a_dead_letter_of_who_asked(h: IncomingHarness) -> None:
    """The class is 0x8003.

    A non-transactional message with JN goes to the local dead-letter queue. A transactional one
    gets a FinalAck.
    """
    for name in ("q", "ledger"):
        h.engine.set_queue_properties(h.queue(name), {"quota": 0})
    h.arrive(
        h.packet(b"plain", **asking()),
        h.packet(b"kept", negative_journaling_requested=True),
        h.packet(b"unwanted"),
        h.packet(b"ledger", to=LEDGER, number=1, negative_journaling_requested=True, **asking()),
    )
    assert h.bodies() == h.bodies("ledger") == []
    assert told(h) == [0x8003, 0x8003]
    assert final_acks(h) == [0x8003]
    me = h.engine.queue_manager.identifier
    dead = h.messages(f"MACHINE={me};DEADLETTER")
    assert [(message.body, message.message_class) for message in dead] == [(b"kept", 0x8003)]
    assert h.messages(f"MACHINE={me};DEADXACT") == []
    assert h.link.processed_numbers == [4]
    assert h.link.is_open


@pytest.mark.spec("QQB-3.1.5.8.8-2")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_full_queue_manager_closes_the_session_and_acknowledges_nothing(
    h: IncomingHarness, recoverable: bool
) -> None:
    """The message has not arrived: it is not reported, and a later copy is no duplicate."""
    packets = [
        h.packet(b"no room", recoverable=recoverable, negative_journaling_requested=True, **asking()),
        h.packet(b"behind it", recoverable=recoverable),
    ]
    quota = h.engine.queue_manager.queue_manager_quota
    h.arrive(h.packet(b"before"))
    h.engine.queue_manager.queue_manager_quota = 0
    h.arrive(*packets)
    assert h.link.processed_numbers == [1]
    (reason,) = h.link.close_reasons
    assert "quota 0 KiB" in reason
    h.engine.queue_manager.queue_manager_quota = quota
    assert told(h) == []
    h.arrive(*packets, link=FakeLink())
    assert h.bodies() == [b"before", b"no room", b"behind it"]


@pytest.mark.spec("QQB-3.1.5.8.8-2")
def test_a_sequence_does_not_move_over_a_message_that_could_not_be_stored(h: IncomingHarness) -> None:
    packets = [h.packet(bytes((48 + n,)), to=LEDGER, number=n) for n in (1, 2, 3)]
    h.arrive(packets[0])
    ledger = h.queue("ledger")

    def fill(queue: Queue, _first: int, _records: Sequence[Record]) -> None:
        # The queue manager is full when the third message comes.
        if queue is ledger and ledger.message_count == 2:
            h.engine.queue_manager.queue_manager_quota = 0

    h.engine.position_available_subscribers.append(fill)
    h.arrive(*packets[1:], h.packet(b"4", to=LEDGER, number=4, previous=2))
    h.engine.position_available_subscribers.remove(fill)
    h.engine.queue_manager.queue_manager_quota = INFINITE
    (reason,) = h.link.close_reasons
    assert reason.startswith("queue manager ALPHA is full: quota 0 KiB")
    assert h.link.processed_numbers == [1], "nothing more is said on a session that was closed"
    h.arrive(*packets[1:], link=FakeLink())
    assert h.bodies("ledger") == [b"1", b"2", b"3"]
    assert h.incoming.out_of_order == 1, "2 had come"


def test_a_refusal_whose_final_ack_cannot_be_kept_has_not_happened(h: IncomingHarness) -> None:
    """Otherwise the sender would learn that the message arrived, but not that it was rejected."""
    packet = h.packet(to=r"DIRECT=OS:ALPHA\private$\none", number=1)
    h.engine.begin_flow_control()
    h.arrive(packet)
    h.engine.end_flow_control()
    assert len(h.link.close_reasons) == 1
    assert h.order_acks() == []
    h.link = FakeLink()
    h.arrive(packet)
    assert final_acks(h) == [0x8000]
    assert len(h.order_acks()) == 1


def test_sequence_number_zero_breaks_the_session(h: IncomingHarness) -> None:
    """MS-MQMQ 2.2.20.5: the first message of a sequence has number 1."""
    packet = bytearray(h.packet(to=LEDGER, number=1))
    offset = locate(bytes(packet)).transaction + 12
    assert packet[offset : offset + 8] == b"\1\0\0\0\0\0\0\0"
    packet[offset] = 0
    h.arrive(bytes(packet))
    assert h.link.close_reasons == ["TransactionHeader.TxSequenceNumber: 0, they begin at 1"]
    assert h.link.processed_numbers == []


def test_a_message_that_claims_to_be_from_here_is_dropped(h: IncomingHarness) -> None:
    """Local messages' acknowledgments and dead letters are made with the local rights.

    A stranger does not have these rights.
    """
    own = h.engine.queue_manager.identifier
    h.arrive(
        h.packet(b"forged", source=own, negative_journaling_requested=True, **asking()),
        h.packet(b"forged", source=own, to=rf"PRIVATE={OTHER}\20"),
        h.packet(b"forged", source=own, to=LEDGER, number=1),
    )
    assert h.bodies() == h.bodies("ledger") == []
    assert h.all_outgoing() == {}
    assert told(h) == []
    assert {row.message_class for row in h.incoming.refusals} == {UNVERIFIED_SOURCE}
    assert h.incoming.refusals.total == 3
    assert h.link.processed_numbers == [3]


# Destinations
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8.5-1", "QQB-3.1.5.8.2-10")
def test_every_name_of_a_queue_here_leads_to_it(h: IncomingHarness) -> None:
    """QueueManagerAddress ours or zero: local queues, by number, GUID or path.

    Any name of this computer works, and no hop is counted.
    """
    me = h.engine.queue_manager.identifier
    public = h.create(r".\news")
    private = h.queue()
    names = [
        r"DIRECT=OS:ALPHA\private$\q",
        r"DIRECT=OS:alpha.example.com\PRIVATE$\Q",
        r"DIRECT=TCP:198.51.100.4\private$\q",  # the address of a proxy in front of us
        rf"PRIVATE={me}\{private.private_queue_number:x}",
    ]
    h.arrive(*(h.packet(name.encode(), to=name) for name in names))
    assert h.bodies() == [name.encode() for name in names]
    assert {message.route_count for message in h.messages()} == {0}
    # The zero address stands for ours also where a name needs one.
    packet = bytearray(h.packet(b"zero", to=rf"PRIVATE={me}\{h.create('r').private_queue_number:x}"))
    packet[32:48] = bytes(16)
    h.arrive(bytes(packet))
    assert h.bodies("r") == [b"zero"]
    publicly = f"PUBLIC={public.identifier}"
    h.arrive(
        h.packet(b"by guid", to=publicly, destination_queue_manager_identifier=me),
        h.packet(b"by path", to=r"DIRECT=OS:ALPHA\news"),
    )
    assert h.bodies(publicly) == [b"by guid", b"by path"]
    assert h.all_outgoing() == {}


@pytest.mark.spec("QQB-3.1.5.8.2-10")
def test_rules_of_local_messages_hold_for_the_zero_address(h: IncomingHarness) -> None:
    """Existence, transactions, security and acknowledgments.

    They apply to a direct name as to a name with our GUID.
    """
    me = h.engine.queue_manager.identifier
    h.create("closed", security=parse_sddl("O:SYG:SYD:P").pack())
    for to in (r"DIRECT=OS:ALPHA\private$\{}", rf"PRIVATE={me}\{{}}"):

        def name(queue: str, to: str = to) -> str:
            is_direct = to.startswith("DIRECT")
            return to.format(queue if is_direct else f"{h.queue(queue).private_queue_number:x}")

        missing = to.format("none" if to.startswith("DIRECT") else "ffff")
        h.arrive(
            h.packet(to=name("q"), **asking()),
            h.packet(to=missing, **asking()),
            h.packet(to=name("ledger"), **asking()),
            h.packet(to=name("closed"), **asking()),
        )
        assert told(h) == [0x0002, 0x8000, 0x800A, 0x8004]


@pytest.mark.parametrize("suffix", [";journal", ";sub"])
def test_nobody_sends_to_journals_and_subqueues(h: IncomingHarness, suffix: str) -> None:
    """They are filled by the queue manager and by moves.

    A local caller gets MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION.
    """
    h.open(r"DIRECT=OS:.\private$\q;sub")
    h.arrive(h.packet(to=rf"DIRECT=OS:ALPHA\private$\q{suffix}", **asking()))
    assert told(h) == [0x8000]
    assert h.bodies(rf"DIRECT=OS:.\private$\q{suffix}") == []


@pytest.mark.parametrize("queue", [r"private$\order_queue$", r"private$\notify_queue$", "system$;deadletter"])
def test_nobody_sends_to_the_queue_managers_own_queues(h: IncomingHarness, queue: str) -> None:
    h.settings["resolve_identity"] = lambda sid: Identity("admin", sid, is_administrator=True)
    h.restart()
    h.arrive(h.packet(b"planted", to=rf"DIRECT=OS:ALPHA\{queue}", **sent_by(ALICE)))
    for own in h.engine.queue_manager.queue_collection.values():
        assert own.message_count == 0


def test_a_queue_that_is_deleted_or_made_is_noticed(h: IncomingHarness) -> None:
    """Cached answers are reused only as long as they are true."""
    h.arrive(h.packet(b"1"))
    h.engine.delete_queue(h.queue())
    h.arrive(h.packet(b"2", **asking()))
    assert told(h) == [0x8000]
    h.create("q")
    h.arrive(h.packet(b"3"))
    assert h.bodies() == [b"3"]


# Senders
# --------------------------------------------------------------------------------------------------

BY_THE_DOCUMENT: dict[str, object] = {"profile": Profile.DOCUMENT}


def guarded(h: IncomingHarness, sddl: str, **settings: object) -> None:
    h.settings |= settings
    h.restart()
    h.engine.delete_queue(h.queue())
    h.create("q", security=parse_sddl(f"O:SYG:SY{sddl}").pack())


@pytest.mark.spec("QQB-3.1.5.8.3-16", "QQB-3.1.5.8.3-19")
def test_the_sender_needs_the_right_to_write_messages(h: IncomingHarness) -> None:
    """MQSEC_WRITE_MESSAGE 0x4 for the SID, of itself or by a group.

    Otherwise 0x8004, and a FinalAck for a transactional message.
    """
    known = Identity("alice", ALICE, groups=frozenset({GROUP}))
    bob = Sid.parse("S-1-5-21-1-2-3-1002")
    guarded(h, f"D:(A;;0x4;;;{GROUP})(A;;0x1003b;;;{bob})", resolve_identity={ALICE: known}.get, **BY_THE_DOCUMENT)
    h.arrive(
        h.packet(b"alice", **sent_by(ALICE)),
        h.packet(b"bob", **sent_by(bob), **asking()),
        h.packet(b"nobody", **asking()),
    )
    assert h.bodies() == [b"alice"]
    assert told(h) == [0x8004, 0x8004]
    h.engine.set_queue_properties(h.queue("ledger"), {"security": parse_sddl("O:SYG:SYD:P").pack()})
    h.arrive(h.packet(to=LEDGER, number=1, **sent_by(ALICE)))
    assert final_acks(h) == [0x8004]
    # Reported only to permitted callers.
    h.settings["send_insecure_nacks"] = False
    h.restart()
    h.arrive(h.packet(**sent_by(bob), **asking()))
    assert told(h) == []


@pytest.mark.spec("QQB-3.1.5.8.3-16")
def test_the_descriptor_of_a_public_queue_is_the_directorys(h: IncomingHarness) -> None:
    """The text says where the descriptor of a public queue is.

    "If destinationQueue.QueueType = Public, the security descriptor MUST be queried from the
    directory".
    """
    public = h.create(r".\news", security=parse_sddl("O:SYG:SYD:P(A;;0x4;;;AN)").pack())
    to = r"DIRECT=OS:ALPHA\news"
    h.arrive(h.packet(b"may", to=to))
    in_directory = h.engine.names.read_queue(public.identifier)
    assert in_directory is not None
    in_directory.security = parse_sddl("O:SYG:SYD:P").pack()
    assert h.engine.directory.write(in_directory, ["Security"]) is DirectoryOperationResult.SUCCESS
    h.now += 61
    h.arrive(h.packet(b"may not", to=to, **asking()))
    assert told(h) == [0x8004]
    assert [message.body for message in h.messages(to)] == [b"may"]
    # Of a directory that does not answer the copy here holds.
    h.engine.queue_manager.directory_offline = True
    h.now += 61
    h.arrive(h.packet(b"offline", to=to))
    assert [message.body for message in h.messages(to)] == [b"offline"]


@pytest.mark.spec("QQB-3.1.5.8.3-17")
def test_a_queue_manager_as_sender_counts_as_everyone(h: IncomingHarness) -> None:
    """ST 2: S-1-1-0 and nothing more: neither the anonymous user nor an authenticated one."""
    by_machine: dict[str, Any] = {
        "sender_identifier_type": SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
        "sender_identifier": PEER.bytes_le,
    }
    for trustee, is_taken in (("WD", True), ("AN", False), ("AU", False)):
        guarded(h, f"D:(A;;0x4;;;{trustee})")
        h.arrive(h.packet(trustee.encode(), **by_machine))
        assert h.bodies() == ([trustee.encode()] if is_taken else [])


@pytest.mark.spec("QQB-3.1.5.8.3-18")
def test_a_sender_whose_groups_cannot_be_found_out_has_no_rights(
    h: IncomingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """The text says what a failure means.

    "If any failure occurs in these actions, the protocol MUST continue as if access_denied is
    returned".
    """

    def fail(_: Sid) -> Identity | None:
        raise OSError("the domain does not answer")

    guarded(h, "D:(A;;0x4;;;WD)", resolve_identity=fail, **BY_THE_DOCUMENT)
    h.arrive(h.packet(**sent_by(ALICE), **asking()))
    assert told(h) == [0x8004]
    assert "S-1-5-21-1-2-3-1001" in caplog.text
    h.arrive(h.packet(sender_identifier=b"no SID at all", **asking()))
    assert told(h) == [0x8004]


def test_a_sender_nobody_knows_is_in_everyone_and_no_other_group(h: IncomingHarness) -> None:
    guarded(h, "D:(A;;0x4;;;WD)", resolve_identity=lambda _: None)
    h.arrive(h.packet(b"stranger", **sent_by(ALICE)))
    assert h.bodies() == [b"stranger"]
    guarded(h, "D:(A;;0x4;;;AU)")
    h.arrive(h.packet(b"stranger", **sent_by(ALICE)))
    assert h.bodies() == []


@pytest.mark.parametrize("claimed", [LOCAL_SYSTEM, Sid.parse("S-1-5-32-544"), Sid.parse("S-1-5-11"), EVERYONE])
def test_nobody_gains_rights_by_naming_what_every_computer_has(h: IncomingHarness, claimed: Sid) -> None:
    """SIDs such as the local system and Administrators mean different accounts on each computer."""
    guarded(h, "D:(A;;0xF003F;;;SY)(A;;0xF003F;;;BA)(A;;0xF003F;;;AU)")
    h.arrive(h.packet(b"forged", **sent_by(claimed)))
    assert h.bodies() == []
    guarded(h, "D:(A;;0x4;;;WD)")
    h.arrive(h.packet(b"as everyone", **sent_by(claimed)))
    assert h.bodies() == [b"as everyone"]


def test_rights_are_asked_again_in_each_call(h: IncomingHarness) -> None:
    h.arrive(h.packet(b"1"), h.packet(b"2"))
    h.engine.set_queue_properties(h.queue(), {"security": parse_sddl("O:SYG:SYD:P").pack()})
    h.arrive(h.packet(b"3"), h.packet(b"4"))
    assert h.bodies() == [b"1", b"2"]


def test_a_sender_who_was_let_in_opens_the_door_for_nobody_else(h: IncomingHarness) -> None:
    """Verdicts hold for one sender, one queue and messages with nothing else to check."""
    guarded(h, f"D:(A;;0x4;;;{ALICE})", **BY_THE_DOCUMENT)
    h.create("signed", authentication=True)
    h.create("secret", privacy_level=QueuePrivacyLevel.BODY)
    h.arrive(
        h.packet(b"alice", **sent_by(ALICE)),
        h.packet(b"anonymous"),
        h.packet(b"other", **sent_by(Sid.parse("S-1-5-21-1-2-3-1003"))),
        signed(h, b"badly signed"),
        h.packet(b"claims privacy", privacy_level=MessagePrivacyLevel.BASE, **sent_by(ALICE)),
        h.packet(b"transactional", number=1, **sent_by(ALICE)),
        h.packet(b"unsigned", to=r"DIRECT=OS:ALPHA\private$\signed", **sent_by(ALICE)),
        h.packet(b"unsigned", to=r"DIRECT=OS:ALPHA\private$\signed", **sent_by(ALICE)),
        h.packet(b"open", to=r"DIRECT=OS:ALPHA\private$\secret", **sent_by(ALICE)),
        h.packet(b"alice again", **sent_by(ALICE)),
    )
    assert h.bodies() == [b"alice", b"alice again"]
    assert h.bodies("signed") == h.bodies("secret") == []


def test_what_a_message_claims_is_looked_at_behind_any_number_of_plain_ones(h: IncomingHarness) -> None:
    """A PrivacyLevel without encryption, or a signature of another provider.

    Each of these messages is rejected by its queue.
    """
    h.create("plain", privacy_level=QueuePrivacyLevel.NONE)
    plain = r"DIRECT=OS:ALPHA\private$\plain"
    h.arrive(
        h.packet(b"1", to=plain),
        h.packet(b"claims privacy", to=plain, privacy_level=MessagePrivacyLevel.BASE),
        h.packet(b"2", to=plain),
    )
    assert h.bodies("plain") == [b"1", b"2"]
    h.arrive(
        h.packet(b"1", **sent_by(ALICE)),
        h.packet(
            b"signed",
            signature=bytes(64),
            sender_certificate=bytes(64),
            authentication_provider_type=1,
            authentication_provider_name="Somebody's",
            **sent_by(ALICE),
        ),
        h.packet(b"2", **sent_by(ALICE)),
    )
    assert h.bodies() == [b"1", b"2"]


def test_who_says_to_be_nobody_is_the_anonymous_user(h: IncomingHarness) -> None:
    guarded(h, "D:(A;;0x4;;;AN)")
    h.arrive(h.packet(b"nobody", **sent_by(ANONYMOUS_LOGON)))
    assert h.bodies() == [b"nobody"]
    guarded(h, "D:(A;;0x4;;;WD)")
    h.arrive(h.packet(b"nobody", **sent_by(ANONYMOUS_LOGON)))
    assert h.bodies() == []


@pytest.mark.spec("QQB-3.1.5.8.3-1", "QQB-3.1.5.8.3-5", "QQB-3.1.5.8-1/security")
def test_a_signature_that_is_wrong_refuses_the_message(h: IncomingHarness) -> None:
    """0x8006 to who asked, FinalAck 0x8006; without a signature there is nothing to be wrong."""
    h.arrive(
        h.packet(b"unsigned"),
        h.packet(b"named", **sent_by(ALICE)),
        signed(h, b"bad", **asking()),
        signed(h, b"bad", to=LEDGER, number=1),
    )
    assert h.bodies() == [b"unsigned", b"named"]
    assert h.bodies("ledger") == []
    assert told(h) == [0x8006]
    assert final_acks(h) == [0x8006]
    assert h.link.processed_numbers == [4]


@pytest.mark.spec("QQB-3.1.5.8.3-10", "QQB-3.1.5.8.3-15")
@pytest.mark.parametrize("level", [1, 2, 3, 4, 5, 6])
def test_a_body_that_cannot_be_decrypted_refuses_the_message(h: IncomingHarness, level: int) -> None:
    """A PrivacyLevel other than 1, 3 or 5, or a key that is none: 0x8007, FinalAck 0x8007."""
    encrypted = {"privacy_level": level, "symmetric_key": b"k" * 140, **sent_by(ALICE)}
    h.arrive(h.packet(b"?" * 16, **encrypted, **asking()), h.packet(b"?" * 16, to=LEDGER, number=1, **encrypted))
    assert h.bodies() == h.bodies("ledger") == []
    (nack,) = h.messages("admin")
    assert nack.message_class == 0x8007
    assert nack.body == b"", "what was encrypted is not given to an administration queue"
    assert final_acks(h) == [0x8007]


@pytest.mark.spec("QQB-3.1.5.11-1/delivered")
@pytest.mark.parametrize("message_class", [0x0002, 0x4000, 0x8000, 0x8003, 0xC001])
def test_administration_acknowledgments_come_as_messages(h: IncomingHarness, message_class: int) -> None:
    h.arrive(h.packet(b"ack", to=ADMIN, message_class=message_class))
    assert told(h) == [message_class]


def test_a_failing_store_forgets_what_it_lost(h: IncomingHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that could not be written comes again and is accepted."""
    kept = [h.packet(b"kept"), h.packet(b"1", to=LEDGER, number=1)]
    lost = [h.packet(b"lost"), h.packet(b"2", to=LEDGER, number=2)]
    h.arrive(*kept)
    h.sync()
    h.arrive(*lost)

    def refuse(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lanner.store.write_ahead_log.WriteAheadLog.append", refuse)
        with pytest.raises(InsufficientResources):
            h.sync()
    assert (h.bodies(), h.bodies("ledger")) == ([b"kept"], [b"1"])
    (info,) = h.queue("ledger").incoming_transactional_transfer_info.values()
    assert info.sequence_number == 1
    h.link = FakeLink()
    h.arrive(*kept, *lost)
    assert (h.bodies(), h.bodies("ledger")) == ([b"kept", b"lost"], [b"1", b"2"])
    assert [number for _, number in h.order_acks()] == [2]


def test_a_stopped_engine_ends_the_session(h: IncomingHarness) -> None:
    h.engine.queue_manager_stopped()
    h.arrive(h.packet(b"late"))
    assert len(h.link.close_reasons) == 1
    assert h.link.processed_numbers == []


def test_identifiers_in_the_log_are_those_of_the_sender(h: IncomingHarness, caplog: pytest.LogCaptureFixture) -> None:
    own: uuid.UUID = h.engine.queue_manager.identifier
    h.arrive(h.packet(source=own))
    assert str(own) in caplog.text
    assert "192.0.2.7" in caplog.text
