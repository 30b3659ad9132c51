"""Messages that pass through on their way to another queue manager.

MS-MQQB 3.1.5.8.2 and 3.1.5.8.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.live import OutgoingTransferInfo
from lanner.security.profile import Profile
from lanner.transfer.incoming import Incoming
from lanner.transfer.outgoing_message_table import OutgoingMessageTable
from lanner.wire.builder import set_route_count
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.transfer.incoming_harness import OTHER, PEER, SEQUENCE, FakeLink, IncomingHarness, asking, told

ELSEWHERE = rf"PRIVATE={OTHER}\00000020"
BACK = rf"PRIVATE={PEER}\00000004"


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    """As the document has it: every message for another queue manager is passed on.

    `test_forwarding` has the safe way.
    """
    harness = IncomingHarness(tmp_path / "data", send_insecure_nacks=True, profile=Profile.DOCUMENT)
    harness.create("admin")
    yield harness
    harness.close()


@pytest.mark.spec("QQB-3.1.5.8.5-1")
def test_a_message_for_another_queue_manager_waits_in_an_outgoing_queue(h: IncomingHarness) -> None:
    h.arrive(h.packet(b"through", to=ELSEWHERE))
    queue = h.engine.find_outgoing_queue(parse(ELSEWHERE))
    assert isinstance(queue, OutgoingQueue)
    assert not queue.open_queue_descriptors, "it was open for as long as it took"
    (message,) = h.outgoing(ELSEWHERE)
    assert (message.body, message.source_machine_identifier) == (b"through", PEER)
    assert h.link.processed_numbers == [1]
    h.arrive(h.packet(b"again", to=ELSEWHERE, ordinal=1), h.packet(b"again", to=ELSEWHERE, ordinal=1))
    assert len(h.outgoing(ELSEWHERE)) == 2, "duplicates are dropped on the way too"


@pytest.mark.spec("QQB-3.1.5.8.2-9", "DMPR-3.1.1.12-7")
def test_each_router_counts_and_the_thirtieth_refuses(h: IncomingHarness) -> None:
    """RC up to 0x1D; then 0x8005 to who asked, and a FinalAck 0x8005."""
    for count in (0, 7, 28):
        h.arrive(set_route_count(h.packet(to=ELSEWHERE), count))
    assert [message.route_count for message in h.outgoing(ELSEWHERE)] == [1, 8, 29]
    h.arrive(
        set_route_count(h.packet(to=ELSEWHERE, **asking()), 29),
        set_route_count(h.packet(to=ELSEWHERE), 29),
        set_route_count(h.packet(to=ELSEWHERE, number=3), 29),
    )
    assert len(h.outgoing(ELSEWHERE)) == 3
    assert told(h) == [0x8005]
    assert [message.message_class for message in h.outgoing(BACK)] == [0x8005]
    assert h.link.processed_numbers == [1, 2, 3, 6]


@pytest.mark.spec("QQB-3.1.1.5-3")
def test_a_sequence_passes_through_untouched(h: IncomingHarness) -> None:
    """TransactionHeader passes byte for byte, in any order, twice if it comes twice.

    There is no acknowledgment and no state.
    """
    packets = [h.packet(b"%d" % n, to=ELSEWHERE, number=n, previous=0, final_ack_required=True) for n in (4, 2, 2, 9)]
    h.arrive(*packets)
    passed = h.outgoing(ELSEWHERE)
    assert [message.body for message in passed] == [b"4", b"2", b"2", b"9"]
    for message, packet in zip(passed, packets, strict=True):
        assert set_route_count(message.packet, 0) == packet
        assert message.transactional_message_sequence_identifier == SEQUENCE
    assert h.order_acks(60) == []
    assert list(h.incoming.sequences) == []
    queue = h.engine.find_outgoing_queue(parse(ELSEWHERE))
    assert isinstance(queue, OutgoingQueue)
    assert h.engine.outgoing_sequence(queue) is None, "nor are our own numbers used up"
    # What happens to it here afterwards is not the end of the message.
    h.engine.purge_queue(queue)
    assert list(h.all_outgoing()) == [ELSEWHERE]


@pytest.mark.spec("QQB-3.1.1.5-3")
def test_a_sequence_that_passes_through_is_sent_as_it_came(h: IncomingHarness) -> None:
    """On retransmission too."""
    packets = [h.packet(b"%d" % n, to=ELSEWHERE, number=n, previous=0) for n in (4, 9)]
    h.arrive(*packets)
    h.sync()
    queue = h.engine.find_outgoing_queue(parse(ELSEWHERE))
    assert isinstance(queue, OutgoingQueue)
    table = OutgoingMessageTable(h.engine, queue, h.transfer, h.engine.monotonic)
    for _ in range(2):
        table.session_opened()
        entries = table.next_unsent(10)
        assert [set_route_count(entry.packet, 0) for entry in entries] == packets
        for entry in entries:
            table.sent([entry])
        table.session_closed()


@pytest.mark.spec("QQB-3.1.5.8.8-4")
def test_a_transactional_message_on_its_way_refreshes_what_is_shown_of_the_queue(h: IncomingHarness) -> None:
    """OutgoingTransferInfo: EodNextSeq has three parts.

    They are OutgoingTxSequenceID, OutgoingTxSequenceNumber, and that number less one.
    """
    refreshed: list[OutgoingQueue] = []

    def forwarded(queue: OutgoingQueue) -> None:
        refreshed.append(queue)
        OutgoingMessageTable(h.engine, queue, h.transfer, h.engine.monotonic).refresh_transfer_info()

    h.incoming.stop()
    h.incoming = Incoming(h.engine, h.transfer, forwarded=forwarded)
    # The queue also has a sequence that began here.
    transaction = h.begin()
    h.send(ELSEWHERE, b"ours", transaction=transaction)
    h.commit(transaction)
    queue = h.engine.find_outgoing_queue(parse(ELSEWHERE))
    assert isinstance(queue, OutgoingQueue)
    queue.outgoing_transfer_info = OutgoingTransferInfo(queue)
    info = queue.outgoing_transfer_info
    h.arrive(h.packet(to=ELSEWHERE))
    assert (refreshed, info.eod_next_seq) == ([], (0, 0, 0))
    h.arrive(h.packet(to=ELSEWHERE, number=1))
    assert refreshed == [queue]
    sequence = h.engine.outgoing_sequence(queue)
    assert sequence is not None
    identifier, number, previous = info.eod_next_seq
    assert identifier == sequence.tx_sequence_id.value
    assert previous == number - 1


@pytest.mark.spec("QQB-3.1.5.8.2-1")
def test_what_cannot_be_kept_for_another_queue_manager_has_not_come(
    h: IncomingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    packet = h.packet(b"through", to=ELSEWHERE, **asking())
    with monkeypatch.context() as patch:
        patch.setattr(type(h.store), "refuses_sends", True)
        h.arrive(packet)
    assert h.link.processed_numbers == []
    assert h.link.close_reasons == [], "it waits for room on the disk"
    h.incoming.closed(h.link)
    h.incoming.flow_control.end()
    h.link = FakeLink()
    quota = h.engine.queue_manager.queue_manager_quota
    h.engine.queue_manager.queue_manager_quota = 0
    h.arrive(packet)
    assert h.link.processed_numbers == []
    assert len(h.link.close_reasons) == 1
    h.engine.queue_manager.queue_manager_quota = quota
    assert told(h) == []
    h.link = FakeLink()
    h.arrive(packet)
    assert [message.body for message in h.outgoing(ELSEWHERE)] == [b"through"]


def test_a_message_that_cannot_be_passed_on_is_refused(h: IncomingHarness) -> None:
    """Its queue is in no directory: 0x8000. Its time has run out: 0x8002."""
    unknown = f"PUBLIC={PEER}"
    h.arrive(
        h.packet(to=unknown, destination_queue_manager_identifier=OTHER, **asking()),
        h.packet(to=unknown, destination_queue_manager_identifier=OTHER, number=1),
        h.packet(to=ELSEWHERE, age=11, time_to_reach_queue=10, **asking()),
    )
    assert told(h) == [0x8000, 0x8002]
    assert [message.message_class for message in h.outgoing(BACK)] == [0x8000]
    assert h.outgoing(ELSEWHERE) == []
    assert {(row.queue, row.message_class): row.count for row in h.incoming.refusals} == {
        (unknown, "nack_bad_dest_queue"): 2,
        (ELSEWHERE.replace(r"\20", r"\00000020"), "nack_reach_queue_timeout"): 1,
    }


@pytest.mark.spec("QQB-3.1.7.1.2-3")
def test_a_plain_message_that_expires_on_its_way_is_a_dead_letter_where_it_expired(h: IncomingHarness) -> None:
    """3.1.7.1.2: its source has it no more. A transactional one is kept by its source."""
    asked: dict[str, Any] = {"time_to_reach_queue": 10, "negative_journaling_requested": True}
    h.arrive(
        h.packet(b"late", to=ELSEWHERE, age=11, **asked),
        h.packet(b"waits", to=ELSEWHERE, **asked),
        h.packet(b"waits unasked", to=ELSEWHERE, time_to_reach_queue=10),
        h.packet(b"waits in order", to=ELSEWHERE, number=1, **asked),
    )
    h.tick(11)
    assert h.outgoing(ELSEWHERE) == []
    dead = h.messages(r"DIRECT=OS:ALPHA\SYSTEM$;DEADLETTER")
    assert [(message.body, message.message_class) for message in dead] == [(b"late", 0x8002), (b"waits", 0x8002)]
    assert h.bodies(r"DIRECT=OS:ALPHA\SYSTEM$;DEADXACT") == []


def test_a_queue_here_is_not_reached_by_the_address_of_another(h: IncomingHarness) -> None:
    """The sender's right to send to it was not checked."""
    public = h.create(r".\news")
    h.arrive(
        h.packet(to=f"PUBLIC={public.identifier}", destination_queue_manager_identifier=OTHER, **asking()),
    )
    assert public.message_count == 0
    assert told(h) == [0x8000]


def test_a_trace_is_left_of_what_passes_and_of_what_arrives(h: IncomingHarness) -> None:
    """TR: a report for each; none for a message that was refused."""
    h.create("q")
    trail = h.create(r".\trail")
    traced: dict[str, Any] = {"tracing_requested": True, "tracing_queue_identifier": trail.identifier}
    h.arrive(
        h.packet(to=ELSEWHERE, **traced),
        h.packet(**traced),
        h.packet(to=r"DIRECT=OS:ALPHA\private$\none", **traced),
        h.packet(number=1, **traced),
    )
    reports = h.messages(f"PUBLIC={trail.identifier}")
    assert [report.message_class for report in reports] == [1, 1]
    assert all(isinstance(report, Message) for report in reports)
