"""Trace reports: their contents, their destinations, and their reader.

MS-MQQB 3.1.5.8.9 and 3.1.7.1.7.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.directory.topology import Computer, Topology, provision
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import DeliveryGuarantee, MessageClass, SenderIdentifierType
from lanner.security.identity import SYSTEM
from lanner.transfer.tracing import Report, format_time, parse_report, send_report
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import FormatName, parse
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from tests.engine.harness import START_TIME, Harness

SOURCE = uuid.UUID("deadbeef-0123-4567-89ab-cdef01234567")
TARGET = r"DIRECT=OS:beta\private$\orders"
TIME = "10:13:20 PM Tue,Nov 14 23"
LABEL = f"DEAD:0000ABCD:05 received by DEADBEEF-0123-4567-89AB-CDEF01234567 at {TIME}"
RECEIVED = f"<MESSAGE ID>0000ABCD</MESSAGE ID>\r\n<TARGET QUEUE>{TARGET}</TARGET QUEUE>\r\n"
SENT = f"{RECEIVED}<NEXT HOP>10.1.2.3</NEXT HOP>\r\n<HOP COUNT>05 </HOP COUNT>\r\n"


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data")
    yield harness
    harness.close()


@pytest.fixture
def reports(h: Harness) -> Queue:
    return h.create(r".\reports")


def traced(tracing_queue: uuid.UUID | None, target: str = TARGET, *, hops: int = 5) -> Message:
    """A message from another computer that has passed some routers."""
    properties = MessageProperties(
        body=b"body",
        tracing_requested=tracing_queue is not None,
        tracing_queue_identifier=tracing_queue or uuid.UUID(int=0),
        delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
    )
    destination: FormatName = parse(target)
    packet = bytearray(
        build(properties, source=SOURCE, ordinal=0xABCD, sent_time=int(START_TIME), destination=destination)
    )
    packet[60] |= hops
    return Message.unpack(bytes(packet))


def sent_reports(h: Harness) -> list[Message]:
    return h.messages(r"DIRECT=OS:.\reports")


# What they say
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8.9-1", "QQB-3.1.5.8.9-2", "QQB-3.1.5.8.9-3")
def test_a_received_message_is_reported(h: Harness, reports: Queue) -> None:
    """3.1.5.8.9: an express Report to the public queue of the DebugHeader.

    Its label and body follow their grammars.
    """
    send_report(h.engine, traced(reports.identifier))
    (report,) = sent_reports(h)
    assert report.message_class is MessageClass.REPORT
    assert int(report.message_class) == 0x0001
    assert report.delivery_guarantee is DeliveryGuarantee.EXPRESS
    assert report.destination_queue_format_name == parse(f"PUBLIC={reports.identifier}")
    assert report.label_bytes == f"{LABEL}\0".encode("utf-16-le")
    assert report.body == RECEIVED.encode("utf-16-le")
    # It asks for nothing itself, so that it leaves no trail of its own.
    assert not report.tracing_requested
    # ST 2: a queue that is open to everyone takes it from another computer too.
    assert report.sender_identifier_type is SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
    assert not report.signature


@pytest.mark.spec("QQB-3.1.7.1.7-1", "QQB-3.1.7.1.7-2")
@pytest.mark.parametrize(
    ("address", "told"), [("10.1.2.3", "10.1.2.3"), ("fe80::1", "fe80::1"), ("fe80::1%eth0", "fe80::1")]
)
def test_a_sent_message_is_reported_with_its_next_hop(h: Harness, reports: Queue, address: str, told: str) -> None:
    """3.1.7.1.7: the same label, "received by" included; two more lines in the body."""
    send_report(h.engine, traced(reports.identifier), next_hop=address)
    (report,) = sent_reports(h)
    assert report.message_class is MessageClass.REPORT
    assert report.delivery_guarantee is DeliveryGuarantee.EXPRESS
    assert report.label_bytes == f"{LABEL}\0".encode("utf-16-le")
    assert report.body.decode("utf-16-le") == SENT.replace("10.1.2.3", told)


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ((2024, 1, 1, 0, 0, 0), "12:00:00 AM Mon,Jan 01 24"),
        ((2024, 2, 29, 0, 59, 59), "12:59:59 AM Thu,Feb 29 24"),
        ((2024, 3, 3, 1, 0, 0), "01:00:00 AM Sun,Mar 03 24"),
        ((2030, 12, 31, 11, 59, 59), "11:59:59 AM Tue,Dec 31 30"),
        ((2023, 11, 14, 12, 0, 1), "12:00:01 PM Tue,Nov 14 23"),
        ((2023, 11, 14, 22, 13, 20), TIME),
    ],
)
@pytest.mark.spec("QQB-3.1.5.8.9-2")
def test_times_are_utc_with_a_twelve_hour_clock(
    when: tuple[int, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    try:
        assert format_time(calendar.timegm(when)) == text
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.spec("QQB-3.1.5.8.9-2")
@given(st.integers(0, 0xFFFF_FFFF))
def test_times_follow_the_grammar(now: int) -> None:
    text = format_time(now)
    day = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
    month = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
    assert re.fullmatch(rf"\d\d:\d\d:\d\d (?:AM|PM) (?:{day}),(?:{month}) \d\d \d\d", text)


# Where they go
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.8.9-1")
def test_only_what_asks_for_it_is_reported(h: Harness, reports: Queue) -> None:
    send_report(h.engine, traced(None))
    send_report(h.engine, traced(None), next_hop="10.1.2.3")
    # BaseHeader.Flags.TR decides, not that a DebugHeader is there.
    packet = bytearray(traced(reports.identifier).packet)
    packet[3] &= ~1
    send_report(h.engine, Message(bytes(packet)))
    assert sent_reports(h) == []


def test_a_request_that_names_no_queue_is_none(h: Harness, reports: Queue) -> None:
    """DebugHeader.Flags.QT may be 0 while TR is set."""
    message = traced(reports.identifier)
    packet = bytearray(message.packet)
    packet[packet.index(reports.identifier.bytes_le) - 4] = 0
    send_report(h.engine, Message(bytes(packet)))
    assert sent_reports(h) == []


@pytest.mark.spec("QQB-3.1.5.8.9-4")
def test_a_report_without_a_queue_is_dropped_and_the_message_stays(h: Harness, reports: Queue) -> None:
    """3.1.5.8.9: Open Queue did not return MQ_OK."""
    queue = h.create("q")
    message = traced(uuid.uuid4(), r"DIRECT=OS:ALPHA\private$\q")
    assert h.engine.insert_message(queue, message, SYSTEM) is MessageClass.ACK_REACH_QUEUE
    before = list(h.engine.queue_manager.queue_collection)
    send_report(h.engine, message)
    assert h.bodies("q") == [b"body"]
    assert list(h.engine.queue_manager.queue_collection) == before
    assert sent_reports(h) == []


ADMINISTRATORS_ONLY = parse_sddl("O:BAD:(A;;0xf003f;;;BA)").pack()


@pytest.mark.parametrize(
    ("attribute", "value"), [("transactional", True), ("quota", 0), ("security", ADMINISTRATORS_ONLY)]
)
def test_a_report_that_its_queue_refuses_is_dropped(h: Harness, reports: Queue, attribute: str, value: object) -> None:
    send_report(h.engine, traced(reports.identifier))
    assert len(sent_reports(h)) == 1
    setattr(reports, attribute, value)
    send_report(h.engine, traced(reports.identifier))
    assert sent_reports(h) == []


def test_a_report_queue_may_be_on_another_computer(h: Harness) -> None:
    reports = uuid.uuid4()
    beta = Computer("BETA", uuid.uuid4(), "beta.example.org", public_queues={"reports": reports})
    provision(h.directory, Topology(computers=(beta,)))
    send_report(h.engine, traced(reports), next_hop="10.1.2.3")
    outgoing = h.engine.find_outgoing_queue(parse(f"PUBLIC={reports}"))
    assert isinstance(outgoing, OutgoingQueue)
    assert outgoing.message_count == 1
    position = h.engine.positions.seek_available_message_position(outgoing, -1, peek=True)
    assert position is not None
    report = Message(position.record.packet)
    assert report.message_class is MessageClass.REPORT
    assert report.destination_queue_manager_identifier == beta.identifier


# Reading them
# --------------------------------------------------------------------------------------------------


def test_a_report_can_be_read_again(h: Harness, reports: Queue) -> None:
    send_report(h.engine, traced(reports.identifier))
    send_report(h.engine, traced(reports.identifier, hops=0x1D), next_hop="fe80::1")
    when = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert [parse_report(report.label, report.body) for report in sent_reports(h)] == [
        Report(SOURCE, 0xABCD, 5, when, TARGET),
        Report(SOURCE, 0xABCD, 0x1D, when, TARGET, "fe80::1"),
    ]


@pytest.mark.parametrize(
    ("time", "hour", "second"),
    [
        ("12:13 AM Tue,Nov 14 23", 0, 0),
        ("00:13:20 AM Tue,Nov 14 23", 0, 20),
        ("12:13:20 PM Tue,Nov 14 23", 12, 20),
        ("01:13:20 pm tue,nov 14 23", 13, 20),
        ("13:13:20 PM Tue,Nov 14 23", 13, 20),
    ],
)
def test_other_clocks_of_the_grammar_are_read(time: str, hour: int, second: int) -> None:
    """The seconds are optional, and the hours may be those of a 24-hour clock.

    Hexadecimal digits are read without regard to case.
    """
    report = parse_report(LABEL.replace(TIME, time).lower().replace("am", "AM"), f"{SENT}\0".encode("utf-16-le"))
    assert report is not None
    assert report.time == dt.datetime(2023, 11, 14, hour, 13, second, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("label", "body"),
    [
        ("", b""),
        (LABEL, b""),
        ("Report", RECEIVED.encode("utf-16-le")),
        (LABEL, RECEIVED.encode()),
        (LABEL, RECEIVED.encode("utf-16-le")[:-1]),
        (LABEL, RECEIVED.encode("utf-16-le")[:-2]),
        (LABEL, b"\x00\xd8"),
        (LABEL.replace("ABCD", "ABCE"), RECEIVED.encode("utf-16-le")),
        (LABEL.replace("Nov 14", "Nov 31"), RECEIVED.encode("utf-16-le")),
        (LABEL.replace("10:13:20", "25:13:20"), RECEIVED.encode("utf-16-le")),
        (LABEL.replace("10:13:20", "11:61:20"), RECEIVED.encode("utf-16-le")),
        (f"{LABEL} ", RECEIVED.encode("utf-16-le")),
    ],
)
def test_what_is_no_report_is_none(label: str, body: bytes) -> None:
    assert parse_report(label, body) is None


@given(st.text(), st.binary())
def test_nothing_that_a_peer_writes_is_an_error(label: str, body: bytes) -> None:
    assert parse_report(label, body) is None
    assert parse_report(LABEL, body) is None
    assert parse_report(label, RECEIVED.encode("utf-16-le")) is None
