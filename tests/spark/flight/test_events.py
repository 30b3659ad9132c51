"""The log of events over Flight and as a source of Spark."""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.client import Message, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.engine.settings import EventSettings
from lanner.errors import AccessDenied, InvalidParameter, QueueNotFound
from lanner.model.events import EventKind
from lanner.spark.columnar.schema import EVENT_COLUMNS, RowSchema
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.errors import EpochChanged
from lanner.spark.flight.near_streams import NearReader
from lanner.spark.flight.server import FlightListener
from lanner.spark.source.offsets import Offset
from lanner.spark.source.options import batch_options, stream_options
from lanner.spark.source.partitions import MessagesVanished
from lanner.store.event_log import EVENT
from lanner.wire.envelope import event_fields, header_offsets, sender_of
from lanner.wire.layout import locate
from lanner.wire.message import Message as Packet
from tests.spark.columnar.test_decode import any_packets, common_packets
from tests.spark.source.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = "system$;EVENTS"
NAMES = ["seq", "event", "queue", "reason_name"]


@pytest.fixture
def qm(start: Callable[..., QueueManager]) -> QueueManager:
    return start(events=True)


@pytest.fixture(autouse=True)
def _streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")
    yield
    Stream.stop_all()


def exchange(qm: QueueManager, count: int = 3) -> None:
    """Messages that come and go."""
    if "q" not in {queue.name.rpartition("\\")[2] for queue in qm.queues()}:
        qm.create_queue("q")
    queue = qm.open("q")
    queue.send_many(Message(body=b"%d" % number, recoverable=True) for number in range(count))
    time.sleep(0.002)  # an event tells milliseconds, and `trim` tells blocks apart by them
    for _ in range(count):
        queue.receive(timeout=0)


def trim(qm: QueueManager, keep: int = 0) -> None:
    """Drop all blocks of events but so many."""
    runtime_of(qm).store.flush_events()
    log = runtime_of(qm).store.events
    blocks = list(log.blocks(0, log.horizon))
    before = 1 << 62 if not keep else log.read(blocks[-keep][0] - 1, log.horizon, 1)[0][1]
    limit = before if isinstance(before, int) else EVENT.unpack_from(before)[0]
    while runtime_of(qm).store.trim_events(limit, 1 << 40):
        pass


def test_events_have_no_packets_and_come_through_the_port(
    qm: QueueManager, root: FlightQueues, listener: FlightListener
) -> None:
    exchange(qm)
    [partition] = root.plan(EVENTS).partitions
    assert sum(map(len, root.read(partition.ticket))) == 6
    assert root._idle == []
    assert listener._near is not None
    reader = NearReader(listener._near.path, root.info()["queue_manager_id"])
    with pytest.raises(InvalidParameter, match="Flight"):
        reader.stream(partition.ticket, root._authorization, lambda told: InvalidParameter(told["message"]))
    reader.close()


def test_events_are_read_like_a_queue(qm: QueueManager, root: FlightQueues) -> None:
    exchange(qm)
    rows = root.table(EVENTS).to_pylist()
    assert [row["event"] for row in rows] == ["arrived"] * 3 + ["received"] * 3
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    assert set(rows[0]) == {column.name for column in EVENT_COLUMNS}
    first, last = rows[0], rows[3]
    assert first["msg_id_text"] == last["msg_id_text"]
    assert (first["queue"], first["queue_kind"], first["target"]) == (
        r"DIRECT=OS:ALPHA\private$\q",
        "destination",
        None,
    )
    assert (first["class"], first["class_name"], first["reason"], last["reason_name"]) == (
        0,
        "NORMAL",
        None,
        "ACK_RECEIVE",
    )
    assert (first["priority"], first["delivery"], first["is_transactional"]) == (3, 1, False)
    assert first["qm_name"] == "ALPHA"
    assert first["message_seq"] > 0
    assert first["correlation_text"] is None
    now = dt.datetime.now(dt.UTC)
    assert now - dt.timedelta(minutes=1) < first["event_time"] <= now
    assert now - dt.timedelta(minutes=1) < first["sent_time"] <= now
    assert first["event_time"].microsecond % 1000 == 0


def test_names_of_columns_and_kinds() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    for kind in EventKind:
        assert f"| `{kind.name.lower()}` |" in guide
    for column in EVENT_COLUMNS:
        assert f"| {column.name} | {column.ddl} | {column.text} |" in guide
    with pytest.raises(InvalidParameter, match="there is no column 'body'"):
        RowSchema.select_events("seq,body")


def test_the_events_of_messages_and_rows_of_messages_fit_together(qm: QueueManager, root: FlightQueues) -> None:
    queue = qm.create_queue("q", journal=True)
    queue.send(Message(body=b"1", recoverable=True, priority=6))
    message = root.table("q").to_pylist()[0]
    event = root.table(EVENTS).to_pylist()[0]
    for name in ("qm_id", "queue", "queue_kind", "lookup_id", "msg_id_text", "class", "sent_time", "priority"):
        assert event[name] == message[name]
    assert event["message_seq"] == message["seq"]
    queue.receive(timeout=0)
    (copy,) = root.table("q;journal").to_pylist()
    journaled = root.table(EVENTS).to_pylist()[-1]
    assert (journaled["event"], journaled["queue"], journaled["queue_kind"]) == ("journaled", copy["queue"], "journal")


def test_it_is_listed_and_cut_into_partitions(qm: QueueManager, root: FlightQueues) -> None:
    exchange(qm, 50)
    (about,) = root.queues("*events*")
    assert (about["queue"], about["queue_id"], about["queue_kind"]) == (EVENTS, 0, "events")
    plan = root.plan(EVENTS, columns=NAMES, partition_bytes=EVENT.size * 30)
    assert [part.messages for part in plan.partitions] == [30, 30, 30, 10]
    rows = [row for part in plan.partitions for batch in root.read(part.ticket) for row in batch.to_pylist()]
    assert len(rows) == 100
    assert list(rows[0]) == NAMES
    found = root.measure(EVENTS, rows[9]["seq"], max_messages=5)
    assert (found["upto"], found["messages"], found["lost"]) == (rows[14]["seq"], 5, 0)
    assert root.measure(EVENTS, 0, max_bytes=1)["messages"] == 1
    (polled,) = root.poll([{"queue": EVENTS, "after": rows[-1]["seq"]}], 1)
    assert polled["messages"] == 0


def test_what_happens_to_express_messages_is_seen_at_once(qm: QueueManager, root: FlightQueues) -> None:
    queue = qm.create_queue("q")
    queue.send(Message(body=b"1"))
    assert root.table(EVENTS, columns=["event", "delivery"]).to_pylist() == [{"event": "arrived", "delivery": 0}]


def test_only_those_who_may_read_the_journal_may_read_it(
    qm: QueueManager, connect: Callable[..., FlightQueues]
) -> None:
    exchange(qm)
    alice = connect("alice", "wonder")
    assert alice.queues("*events*") == []
    with pytest.raises(
        AccessDenied, match=r"alice may not read system\$;EVENTS: this takes the right to peek system\$;JOURNAL"
    ):
        alice.table(EVENTS)


def test_a_queue_manager_that_writes_no_events(
    start: Callable[..., QueueManager], accounts: Path, tmp_path: Path
) -> None:
    from lanner.spark.flight.server import FlightListener
    from lanner.spark.flight.settings import FlightSettings

    manager = start("BETA", "other")
    with FlightListener(runtime_of(manager), FlightSettings(port=0)) as service:
        runtime_of(manager).users.path.write_bytes(accounts.read_bytes())
        runtime_of(manager).users.path.chmod(0o600)
        with FlightQueues(service.address, user="root", password="secret") as queues:
            with pytest.raises(QueueNotFound, match=r"writes no events: set enabled = true in the table \[events\]"):
                queues.table(EVENTS)
            assert queues.queues("*events*") == []


def test_a_reader_of_events_keeps_its_place_and_takes_nothing_out(qm: QueueManager, root: FlightQueues) -> None:
    exchange(qm)
    first = root.acquire(EVENTS, "r", mode="peek", start="latest")
    exchange(qm)
    again = root.acquire(EVENTS, "r", mode="peek", start="latest")
    assert again["start"] == first["start"] == 6
    assert root.forget(EVENTS, "r")
    assert not root.forget(EVENTS, "r")
    with pytest.raises(InvalidParameter, match="messages cannot be received"):
        root.acquire(EVENTS, "r")
    with pytest.raises(InvalidParameter, match="start 99: earliest, latest, or a number up to 12"):
        root.acquire(EVENTS, "r", mode="peek", start=99)


def test_readers_of_events_outlive_the_service(start: Callable[..., QueueManager], tmp_path: Path) -> None:
    from lanner.spark.flight.readers import Readers

    manager = start("BETA", "other", events=True)
    exchange(manager)
    for wanted in ("latest", "earliest"):
        readers = Readers(runtime_of(manager))
        assert readers.remember(operations_of(manager), 0, "r", wanted, 6).start == 6
        readers.close()


# As a source
# --------------------------------------------------------------------------------------------------


def stream(address: str, before: Stream | None = None, **options: object) -> Stream:
    return Stream(address, before, mode="events", columns="seq,event,queue", **options)


def read(one: Stream) -> list[int]:
    """The numbers of the events of a batch, or nothing."""
    if not one.plan():
        return []
    found: list[int] = one.read().column("seq").to_pylist()
    one.end()
    return found


def test_a_stream_reads_each_event_once(qm: QueueManager, address: str) -> None:
    exchange(qm)
    one = stream(address, maxMessagesPerTrigger=4)
    assert [read(one), read(one)] == [[1, 2, 3, 4], [5, 6]]
    assert one.reader.latestOffset(one.start(), one.reader.getDefaultReadLimit()) == one.start()
    exchange(qm, 1)
    again = stream(address, one)
    assert read(again) == [7, 8]


def test_a_batch_that_was_planned_is_read_again(qm: QueueManager, address: str) -> None:
    exchange(qm)
    one = stream(address)
    assert one.plan()
    exchange(qm)
    again = stream(address, one)
    assert again.read().num_rows == 6
    again.end()
    assert len(read(again)) == 6


def test_latest_begins_now_and_available_now_ends_there(qm: QueueManager, address: str) -> None:
    exchange(qm)
    one = stream(address, startingOffsets="latest", reader="r")
    one.start()
    exchange(qm, 1)
    one.reader.prepareForTriggerAvailableNow()
    exchange(qm, 1)
    assert read(one) == [7, 8]
    assert read(one) == []
    assert stream(address, startingOffsets="latest", reader="r").start() == json.loads(
        json.dumps(one.reader.initialOffset())
    )


def test_events_that_were_dropped_before_they_were_read(
    qm: QueueManager, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(qm)
    one = stream(address)
    assert len(read(one)) == 6
    exchange(qm)
    trim(qm)
    exchange(qm)
    with pytest.raises(MessagesVanished, match=r"queue manager ALPHA: events with numbers in \(6, 12\] are gone"):
        read(stream(address, one))
    with caplog.at_level(logging.WARNING):
        assert read(stream(address, one, failOnDataLoss=False)) == [13, 14, 15, 16, 17, 18]
    assert "(6, 12] are gone" in caplog.text
    # A new stream has lost nothing.
    assert read(stream(address)) == [13, 14, 15, 16, 17, 18]


def test_events_that_were_dropped_after_they_were_planned(qm: QueueManager, address: str) -> None:
    exchange(qm)
    one = stream(address)
    assert one.plan()
    trim(qm, keep=1)
    with pytest.raises(MessagesVanished, match="of 6 messages with numbers in"):
        one.read()


def test_another_epoch_is_refused(qm: QueueManager, address: str) -> None:
    exchange(qm)
    one = stream(address)
    read(one)
    offset: dict[str, Any] = json.loads(one.offsets[0])
    for manager in offset["managers"].values():
        manager["epoch"] += 1
    one.offsets[0] = json.dumps(offset)
    with pytest.raises(EpochChanged):
        read(stream(address, one))


def test_options_of_mode_events() -> None:
    assert stream_options({"mode": "events"}).queues == (EVENTS,)
    assert stream_options({"mode": "events"}).fail_on_data_loss
    assert batch_options({"mode": "Events"}).is_events
    assert not batch_options({"mode": "events"}).fail_on_data_loss
    with pytest.raises(InvalidParameter, match="mode events reads what happened in all queues; leave it out"):
        batch_options({"mode": "events", "path": "q"})
    with pytest.raises(InvalidParameter, match="option mode receive is for a stream read"):
        batch_options({"mode": "receive", "queues": "q"})
    with pytest.raises(InvalidParameter, match="startingOffsets latest needs the option reader"):
        stream_options({"mode": "events", "startingOffsets": "latest"})


def test_the_log_is_no_queue_of_messages(qm: QueueManager, address: str) -> None:
    exchange(qm)
    with pytest.raises(InvalidParameter, match=r"system\$;EVENTS has no messages; read it with mode events"):
        Stream(address, queues=EVENTS).start()
    found = Offset.from_dict(Stream(address, queues="system$;*").start())
    (queues,) = [manager.queues.values() for manager in found.managers.values()]
    assert len(queues) == 3


@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_spark_reads_events(spark: SparkSession, qm: QueueManager, address: str, tmp_path: Path, mode: str) -> None:
    exchange(qm, 100)
    options = {"managers": address, "user": "root", "mode": "events"}
    if mode == "batch":
        rows = spark.read.format("msmq").options(**options).load()
    else:
        source = spark.readStream.format("msmq").options(**options, maxMessagesPerTrigger="70").load()
        writer = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "events")).awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "events"))
    counts = {row["event"]: row["count"] for row in rows.groupBy("event").count().collect()}
    assert counts == {"arrived": 100, "received": 100}
    assert rows.select("msg_id_text").distinct().count() == 100


# What an event is made of
# ---------------------------------------------------------------------------------------------


@given(st.one_of(common_packets(), any_packets()))
def test_class_and_correlation_are_found_where_they_are(packet: bytes) -> None:
    flags = int.from_bytes(packet[60:64], "little")
    layout, message = locate(packet), Packet(packet)
    _, ordinal, _, acknowledge, message_class, correlation, privacy, security, header = event_fields(packet)
    assert header_offsets(packet, flags) == (layout.security, layout.properties)
    assert security == layout.security
    assert (message_class, correlation) == (message.message_class, message.correlation_identifier)
    assert ordinal.to_bytes(4, "little") == message.identifier_bytes[16:]
    assert (acknowledge & 15, privacy) == (message.acknowledgements_requested, message.privacy_level)
    if security:
        sender, level, is_signed = sender_of(packet, security)
        assert sender[1:] == message.sender_identifier == header[len(header) - len(message.sender_identifier) :]
        assert (level, is_signed) == (message.authentication_level, bool(message.signature))


def test_events_end_where_the_settings_say(start: Callable[..., QueueManager]) -> None:
    manager = start("BETA", "other", events=EventSettings(max_mb=1))
    assert runtime_of(manager).engine.settings.event_settings == EventSettings(max_mb=1)
