"""The log of events: one row for each event of a message.

The row is on disk if and only if the event happened there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lanner.engine import event_recorder
from lanner.engine.event_recorder import EVENT_QUEUES, EVENT_SENDERS, SENDER_KEY
from lanner.engine.event_rows import ACKNOWLEDGE_SHIFT, TRANSACTIONAL
from lanner.engine.settings import EngineSettings, EventSettings
from lanner.engine.tables import QUEUE_KEY
from lanner.model.directory_objects import Queue
from lanner.model.enums import Acknowledgements, MessageClass, QueueAccessType
from lanner.model.events import EventKind
from lanner.security.identity import SYSTEM
from lanner.store import staging
from lanner.store.event_log import EVENT
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.packet_template import MessageRun
from tests.engine.harness import START_TIME, Harness, at_once
from tests.engine.test_staging import stage


class Event(NamedTuple):
    time: int
    lookup_id: int
    visibility: int
    queue: int
    other: int
    size: int
    sent_time: int
    message_class: int
    reason: int
    kind: int
    flags: int
    aborts: int
    source: bytes
    ordinal: int
    correlation: bytes


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", events=True)
    yield harness
    harness.close()


def logged(h: Harness) -> list[Event]:
    """Return the durable part of the log."""
    h.checkpoint()
    log = h.store.events
    blocks = log.read(0, log.horizon, 1 << 30)
    return [Event(*row) for _, data in blocks for row in EVENT.iter_unpack(data)]


def kinds(h: Harness) -> list[str]:
    h.sync()
    return [EventKind(event.kind).name for event in logged(h)]


def test_no_log_unless_one_is_wanted(tmp_path: Path) -> None:
    h = Harness(tmp_path / "data")
    h.create()
    h.send()
    h.sync()
    assert h.engine.events is None
    assert not h.store.has_events
    h.close()


def test_a_row_tells_of_message_queue_and_time(h: Harness) -> None:
    queue = h.create()
    h.now += 0.25
    correlation = bytes(range(20))
    h.send(body=b"12345", correlation_identifier=correlation, message_class=7)
    h.sync()
    (event,) = logged(h)
    (message,) = h.messages()
    assert event.time == int(START_TIME * 1000) + 250
    assert (event.kind, event.queue, event.aborts, event.reason) == (EventKind.ARRIVED, queue.number, 0, 0)
    assert event.source + event.ordinal.to_bytes(4, "little") == message.identifier_bytes
    assert (event.correlation, event.message_class) == (correlation, 7)
    assert (event.size, event.sent_time, event.flags) == (message.size, int(h.now), 1)
    assert event.lookup_id & 0xFF_FFFF
    assert event.visibility > 0
    h.sync()
    received = logged(h)[-1]
    assert received.kind == EventKind.RECEIVED
    assert received[1:4] + received[5:8] == event[1:4] + event[5:8]
    stored = h.store.table(EVENT_QUEUES).get(QUEUE_KEY.pack(queue.number))
    assert json.loads(stored or b"") == [r"DIRECT=OS:ALPHA\private$\q", "destination"]


@pytest.mark.parametrize("target", ["q", r"DIRECT=OS:BETA\private$\there"])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_run_has_the_events_that_its_messages_have_alone(h: Harness, target: str, transactional: bool) -> None:
    """Sent, and received, together and one by one: the rows differ in numbers alone."""
    h.create(transactional=transactional)
    bodies = [b"one", b"another", b"the third"]
    for is_run in (False, True):
        sending = h.begin() if transactional else None
        descriptor = h.open(target, QueueAccessType.SEND)
        properties = h.properties(application_tag=5)
        if is_run:
            ordinals: list[int] = []
            run = MessageRun(properties, [b""] * 3, bodies)
            h.engine.enqueue_messages_to_an_open_queue(descriptor, [run], ordinals, sending)
            assert len(ordinals) == 3
        else:
            for body in bodies:
                properties = h.properties(body, application_tag=5)
                h.engine.enqueue_message_to_an_open_queue(descriptor, properties, sending)
        if sending is not None:
            h.commit(sending)
        if target == "q" and is_run:
            assert len(h.engine.dequeue_messages(h.open(), 10, 1 << 30)) == 3
        elif target == "q":
            assert [h.receive() for _ in bodies] == bodies
    h.sync()
    events = logged(h)
    half = len(events) // 2
    assert half == (6 if target == "q" else 3)
    for alone, together in zip(events[:half], events[half:], strict=True):
        assert together._replace(lookup_id=0, visibility=0, ordinal=0) == alone._replace(
            lookup_id=0, visibility=0, ordinal=0
        )
    runs = events[half:]
    # Consecutive places, and the same message on its way in and out.
    assert [event.lookup_id - runs[0].lookup_id for event in runs] == [0, 1, 2] * (half // 3)
    assert [event.visibility - runs[0].visibility for event in runs] == [0, 1, 2] * (half // 3)
    assert [event.ordinal - runs[0].ordinal for event in runs] == [0, 1, 2] * (half // 3)


def test_a_listener_hears_of_every_message_of_a_run(tmp_path: Path) -> None:
    heard: list[tuple[EventKind, bytes]] = []

    def listen(kind: EventKind, queue: Queue | None, lookup_id: int, packet: bytes, reason: int) -> None:
        heard.append((kind, Message(packet).body))

    h = Harness(tmp_path / "data", event_listener=listen)
    h.create()
    run = MessageRun(h.properties(), [b""] * 2, [b"one", b"two"])
    h.engine.enqueue_messages_to_an_open_queue(h.open("q", QueueAccessType.SEND), [run], [])
    h.engine.dequeue_messages(h.open(), 10, 1 << 30)
    assert heard == [
        (EventKind.ARRIVED, b"one"),
        (EventKind.ARRIVED, b"two"),
        (EventKind.RECEIVED, b"one"),
        (EventKind.RECEIVED, b"two"),
    ]
    h.close()


def test_arrivals(h: Harness) -> None:
    h.create()
    h.send()
    h.send(r"DIRECT=OS:BETA\private$\there")
    h.engine.insert_message(h.queue(), h.message(b"from elsewhere"), SYSTEM)
    assert kinds(h) == ["ARRIVED", "SENT", "TRANSFERRED_IN"]
    assert [event.flags for event in logged(h)] == [1, 1, 1]


def test_a_row_tells_of_sender_acknowledgments_and_aborted_receives(h: Harness) -> None:
    h.create(transactional=True)
    sending = h.begin()
    h.send(transaction=sending, acknowledgements_requested=Acknowledgements.FULL_RECEIVE)
    h.commit(sending)
    for _ in range(2):
        receiving = h.begin()
        h.receive(transaction=receiving)
        h.abort(receiving)
    assert kinds(h) == ["ARRIVED", "RECEIVE_ABORTED", "RECEIVE_ABORTED"]
    events = logged(h)
    assert [event.aborts for event in events] == [0, 1, 2]
    assert {event.flags for event in events} == {1 | TRANSACTIONAL | Acknowledgements.FULL_RECEIVE << ACKNOWLEDGE_SHIFT}
    (message,) = h.messages()
    sender = h.store.table(EVENT_SENDERS).get(SENDER_KEY.pack(events[0].other))
    assert sender == bytes((message.sender_identifier_type,)) + message.sender_identifier
    assert [event.other for event in events[1:]] == [0, 0], "only an arrival tells of its sender"


def test_senders_are_known_after_a_start(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    h.create()
    h.send()
    h.restart()
    h.send()
    assert {event.other for event in logged(h) if event.kind == EventKind.ARRIVED} == {1}
    # A peer may claim any number of senders: those beyond the limit are anonymous in the log.
    monkeypatch.setattr(event_recorder, "MAX_SENDERS", 1)
    recorder = h.engine.events
    assert recorder is not None
    assert recorder._new_sender(b"\x01another") == 0


def test_a_message_passes_through(h: Harness) -> None:
    verdict, outgoing = h.engine.forward_message(parse(r"DIRECT=OS:BETA\private$\q"), h.message(b"on its way"))
    assert verdict is MessageClass.ACK_REACH_QUEUE
    assert outgoing is not None
    lookup_id = h.store.next(outgoing.number, -1)
    assert lookup_id is not None
    h.engine.messages_delivered(outgoing, [(lookup_id, None)])
    assert kinds(h) == ["TRANSFERRED_IN", "TRANSFERRED_OUT"]
    assert {event.queue for event in logged(h)} == {outgoing.number}


def test_a_message_that_is_not_taken(h: Harness) -> None:
    queue = h.create(transactional=True)
    h.engine.insert_message(queue, h.message(b"plain"))
    h.engine.insert_message(None, h.message(b"to nobody"))
    h.engine.refuse_message(h.message(), MessageClass.NACK_HOP_COUNT_EXCEEDED, "too many")
    h.store.lock.release()
    h.store.flush_events()
    h.store.lock.acquire()
    assert [(event.kind, event.queue, event.reason) for event in logged(h)] == [
        (EventKind.REFUSED, queue.number, MessageClass.NACK_NOT_TRANSACTIONAL_MESSAGE),
        (EventKind.REFUSED, 0, MessageClass.NACK_BAD_DEST_QUEUE),
        (EventKind.REFUSED, 0, MessageClass.NACK_HOP_COUNT_EXCEEDED),
    ]


def test_removals(h: Harness) -> None:
    queue = h.create(journaling=True)
    for _ in range(2):
        h.send()
    h.send(time_to_be_received=10, negative_journaling_requested=True)
    h.receive()
    h.tick(11)
    h.engine.purge_queue(queue)
    h.send()
    h.engine.delete_queue(queue)
    names = kinds(h)
    assert names == [
        *["ARRIVED"] * 3,
        "RECEIVED",
        "JOURNALED",
        "EXPIRED",
        "DEAD_LETTERED",
        "PURGED",
        "ARRIVED",
        "PURGED",
        "PURGED",
    ]
    reasons = [MessageClass(event.reason) for event in logged(h) if event.reason]
    assert reasons == [
        MessageClass.ACK_RECEIVE,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_QUEUE_PURGED,
        MessageClass.NACK_QUEUE_DELETED,
        MessageClass.NACK_QUEUE_DELETED,  # of the copy in the journal
    ]
    dead = logged(h)[6]
    assert dead.message_class == MessageClass.NACK_RECEIVE_TIMEOUT
    assert dead.queue != queue.number


def test_expiry_on_the_way(h: Harness) -> None:
    h.send(r"DIRECT=OS:BETA\private$\there", time_to_reach_queue=5)
    h.tick(6)
    assert kinds(h) == ["SENT", "EXPIRED"]
    assert logged(h)[-1].reason == MessageClass.NACK_REACH_QUEUE_TIMEOUT


def test_moves_name_both_queues(h: Harness) -> None:
    queue = h.create()
    h.send()
    ids = h.lookup_ids()
    source, target = h.open("q", QueueAccessType.MOVE), h.open("q;retry", QueueAccessType.MOVE)
    h.engine.move_message_by_lookup_identifier(source, ids[b""], target)
    assert kinds(h) == ["ARRIVED", "MOVED"]
    moved = logged(h)[-1]
    assert target.queue is not None
    assert (moved.queue, moved.other, moved.lookup_id) == (queue.number, target.queue.number, ids[b""])


def test_transactions(h: Harness) -> None:
    h.create(transactional=True)
    transaction = h.begin()
    h.send(transaction=transaction)
    h.send(transaction=transaction)
    assert kinds(h) == []
    h.commit(transaction)
    assert kinds(h) == ["ARRIVED", "ARRIVED"]
    transaction = h.begin()
    h.receive(transaction=transaction)
    h.send(transaction=transaction)
    h.abort(transaction)
    assert kinds(h)[2:] == ["RECEIVE_ABORTED", "SEND_ABORTED"]
    assert [event.flags for event in logged(h)] == [3] * 4


def test_a_receive_that_is_given_back(h: Harness) -> None:
    h.create()
    h.send()
    descriptor = h.open()
    position = at_once(h.engine.dequeue_message_begin(descriptor, timeout=0))
    h.engine.dequeue_message_end(descriptor, position, delete_message=False)
    position = at_once(h.engine.dequeue_message(descriptor, timeout=0))
    h.engine.undo_receive(position)
    assert kinds(h) == ["ARRIVED", "RECEIVE_ABORTED", "RECEIVED", "RECEIVE_ABORTED"]


def test_acknowledgments_are_messages_too(h: Harness) -> None:
    h.create()
    admin = h.create("admin")
    h.send(
        administration_queue_format_name=parse(r"DIRECT=OS:ALPHA\private$\admin"),
        acknowledgements_requested=Acknowledgements.POS_ARRIVAL,
    )
    h.sync()
    first, second = logged(h)
    assert (second.queue, second.message_class) == (admin.number, MessageClass.ACK_REACH_QUEUE)
    assert second.correlation == first.source + first.ordinal.to_bytes(4, "little")


def test_published_messages_arrive_in_the_batch_of_their_publication(h: Harness) -> None:
    queue = h.create()
    h.send()
    stage(h, b"one", *(b"%d" % number for number in range(1200)))
    h.engine.publish_stages(b"key", [b"one"])
    h.send()
    assert len(kinds(h)) == 1202
    events = logged(h)
    assert {event.kind for event in events} == {EventKind.ARRIVED}
    with h.store.scan(queue.number, 0) as scan:
        visible = {number: (lookup_id, len(record.packet)) for number, lookup_id, record in scan}
    assert {event.visibility: (event.lookup_id, event.size) for event in events} == visible


def test_the_sender_of_published_messages_is_known_from_the_first_publication_on(h: Harness) -> None:
    h.create()
    stage(h, b"one", b"first", b"second")
    h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    events = logged(h)
    assert [event.other for event in events] == [1, 1]
    (message, _) = h.messages()
    sender = h.store.table(EVENT_SENDERS).get(SENDER_KEY.pack(1))
    assert sender == bytes((message.sender_identifier_type,)) + message.sender_identifier
    stage(h, b"two", b"third")
    h.restart()
    h.engine.publish_stages(b"other", [b"two"])
    h.sync()
    assert logged(h)[-1].other == 1


@pytest.mark.parametrize("damaged", [[0], [3], [5], [1, 2, 5], list(range(6))])
def test_a_damaged_staged_message_has_no_event_and_the_others_keep_their_numbers(
    h: Harness, damaged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_EVENT_BYTES", 2000)  # so that events come in several blocks
    queue = h.create()
    stage(h, b"one", *(b"%d" % number + bytes(800) for number in range(6)))
    h.sync()
    environment = h.store._environment
    with environment.write() as txn:
        rows = list(txn.cursor(environment.staged))
        for place in damaged:
            txn.put(rows[place][0], rows[place][1][:-1] + b"?", db=environment.staged)
    with h.store.lock:
        environment.renew()
    before = h.store.events.horizon
    h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    h.checkpoint()
    blocks = h.store.events.read(before, h.store.events.horizon, 100)
    numbers = [first + row for first, data in blocks for row in range(len(data) // EVENT.size)]
    assert numbers == [before + 1 + place for place in range(6) if place not in damaged]
    with h.store.scan(queue.number, 0) as scan:
        visible = {number: lookup_id for number, lookup_id, _ in scan}
    assert {event.visibility: event.lookup_id for event in logged(h)} == visible
    assert len(visible) == 6 - len(damaged)


def test_a_listener_hears_of_every_published_message(tmp_path: Path) -> None:
    heard: list[tuple[EventKind, bytes]] = []

    def listen(kind: EventKind, queue: Queue | None, lookup_id: int, packet: bytes, reason: int) -> None:
        heard.append((kind, Message(packet).body))

    h = Harness(tmp_path / "data", event_listener=listen)
    h.create()
    stage(h, b"one", b"first", b"second")
    assert heard == []
    h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    assert heard == [(EventKind.ARRIVED, b"first"), (EventKind.ARRIVED, b"second")]
    h.close()


def test_what_is_not_on_disk_is_not_in_the_log(h: Harness) -> None:
    h.create()
    h.send(body=b"there")
    h.sync()
    h.send(body=b"lost")
    h.receive()
    h.crash()
    assert h.bodies() == [b"there"]
    assert kinds(h) == ["ARRIVED"]
    before = h.store.events.horizon
    h.send()
    h.sync()
    h.checkpoint()
    first, data = h.store.events.read(before, h.store.events.horizon, 10)[0]
    assert first > before
    assert len(data) == EVENT.size


def test_express_messages_wait_for_no_disk_and_their_events_come_along(h: Harness) -> None:
    h.create()
    h.send(body=b"first", recoverable=False)  # the name of the queue is written with it
    h.sync()
    h.send(recoverable=False)
    assert h.store.pending_batch() == 0, "nobody would wait for it"
    assert h.store.events.is_waiting
    assert len(logged(h)) == 1
    h.send()
    assert kinds(h) == ["ARRIVED"] * 3
    assert [event.flags for event in logged(h)] == [0, 0, 1]


def test_the_queues_of_the_protocols_have_no_events(h: Harness) -> None:
    inner = h.engine.queue_manager.awaiting_final_ack_queue
    assert inner is not None
    h.engine.enqueue_message(inner, h.message(source=h.engine.queue_manager.identifier))
    assert kinds(h) == []


def test_names_stay_when_a_queue_is_gone_and_after_a_restart(h: Harness) -> None:
    queue = h.create()
    h.send()
    h.engine.delete_queue(queue)
    h.restart()
    assert kinds(h) == ["ARRIVED", "PURGED"]
    assert h.store.table(EVENT_QUEUES).get(QUEUE_KEY.pack(queue.number)) is not None


def test_no_events_on_a_full_disk(
    h: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    h.create()
    h.send()
    with monkeypatch.context() as patch:
        patch.setattr(type(h.store), "refuses_sends", True)
        assert h.receive() == b""
        h.send(recoverable=False)
    h.send(recoverable=False)
    assert kinds(h) == ["ARRIVED", "ARRIVED"]
    texts = [record.getMessage() for record in caplog.records if record.name == "lanner.engine.event_recorder"]
    assert [text.split(":")[0] for text in texts] == ["the disk is full", "events are written again"]


def test_settings_of_the_log() -> None:
    assert EngineSettings("A").event_settings is None
    assert EngineSettings("A", events=True).event_settings == EventSettings()
    given = EventSettings(keep_days=0.5, max_mb=3)
    assert EngineSettings("A", events=given).event_settings is given
    with pytest.raises(ValueError, match="keep_days 0: above 0, at most 3650"):
        EventSettings(keep_days=0)
    with pytest.raises(ValueError, match="max_mb 0: 1 or more"):
        EventSettings(max_mb=0)


def test_a_transactional_message_from_here_is_concluded(h: Harness) -> None:
    transaction = h.begin()
    h.send(r"DIRECT=OS:BETA\private$\there", transaction=transaction, positive_journaling_requested=True)
    h.commit(transaction)
    (outgoing,) = h.engine.outgoing_queues()
    lookup_id = h.store.next(outgoing.number, -1)
    assert lookup_id is not None
    record = h.store.get(outgoing.number, lookup_id)
    assert record is not None
    message = Message(record.packet)
    h.engine.messages_await_final_ack(outgoing, [(lookup_id, None)])
    sequence = message.transactional_message_sequence_identifier
    assert sequence is not None
    ordinal = message.identifier.ordinal
    number = message.transaction_sequence_number
    assert h.engine.final_acknowledgment(ordinal, sequence, number, MessageClass.ACK_RECEIVE)
    assert kinds(h) == ["SENT", "TRANSFERRED_OUT", "CONCLUDED", "JOURNALED"]
    assert logged(h)[2].source == h.engine.queue_manager.identifier.bytes_le
    assert uuid.UUID(bytes_le=logged(h)[2].source) == h.engine.queue_manager.identifier
