"""spark.read.format("msmq"): every column, patterns, partitions, ranges, errors.

What Spark itself has no part in is tried without it: `planned` does what Spark does with a source,
in this process.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.pandas.types import from_arrow_schema

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import InvalidParameter, LannerError, QueueNotAvailable, QueueNotFound
from lanner.model.enums import INFINITE
from lanner.security.access_masks import QueueAccess
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.errors import EpochChanged
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.source.batch_reader import MsmqBatchReader
from lanner.spark.source.data_source import MsmqDataSource
from lanner.spark.source.offsets import ManagerOffset, Offset, QueueOffset
from lanner.spark.source.partitions import MessagePartition, MessagesVanished
from tests.spark.flight.test_reading import fill, grant
from tests.spark.small import pickled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, address: str, **options: object) -> DataFrame:
    given = {"managers": address, "user": "root", "retrySeconds": "0"} | options
    return spark.read.format("msmq").options(**{name: str(value) for name, value in given.items()}).load()


def planned(address: str, schema: pa.Schema | None = None, **options: object) -> Plan:
    """The partitions of a read; `fetch` reads them."""
    given = {"managers": address, "user": "root", "retrySeconds": 0} | options
    source = MsmqDataSource(CaseInsensitiveDict({name: str(value) for name, value in given.items()}))
    if schema is None:
        columns = str(given.get("columns", "all"))
        schema = RowSchema.select(columns, include_body=given.get("includeBody") != "false").arrow
    reader = pickle.loads(pickled(source)).reader(from_arrow_schema(schema))
    return Plan(pickle.loads(pickle.dumps(reader)), reader.partitions(), schema)


@dataclasses.dataclass
class Plan:
    reader: MsmqBatchReader
    partitions: list[MessagePartition]
    schema: pa.Schema

    def fetch(self) -> pa.Table:
        parts = pickle.loads(pickle.dumps(self.partitions))
        return pa.Table.from_batches((batch for part in parts for batch in self.reader.read(part)), self.schema)

    def bodies(self) -> list[bytes]:
        found: list[bytes] = self.fetch().column("body").to_pylist()
        return found


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")


@pytest.fixture
def beta(start: Callable[..., QueueManager], accounts: Path) -> Iterator[tuple[QueueManager, str]]:
    """A second queue manager, and its address."""
    manager = start("BETA", "beta")
    shutil.copy(accounts, runtime_of(manager).users.path)
    listener = FlightListener(runtime_of(manager), FlightSettings(port=0))
    listener.open()
    yield manager, listener.address
    listener.close()


def utc(time: dt.datetime) -> dt.datetime:
    return time.astimezone(dt.UTC)


def test_every_column_has_what_the_api_tells(
    qm: QueueManager, address: str, root: FlightQueues, spark: SparkSession
) -> None:
    queue = qm.create_queue("q")
    queue.send(Message(body="täxt", label="first \U0001f426", recoverable=True, priority=5, app_specific=1 << 31))
    queue.send(Message(body=b"\x00\xff", use_journal_queue=True, use_dead_letter_queue=True, extension=b"ext"))
    queue.send(
        Message(
            body=b"",
            correlation_id=f"{'11' * 4}-2222-3333-4444-{'55' * 6}\\9",
            time_to_be_received=3600,
            acknowledge="full_receive",
            administration_queue="q",
            response_queue=r"DIRECT=OS:elsewhere\private$\answers",
            body_type=8,
        )
    )
    qm.create_queue("t", transactional=True)
    with qm.transaction() as transaction:
        qm.open("t").send(Message(body=b"t"), transaction=transaction)
    frame = read(spark, address, queues="q,t")
    assert frame.columns == list(RowSchema().names)
    rows = {row.seq: row.asDict() for row in frame.collect()}
    table = root.table("q").to_pylist() + root.table("t").to_pylist()
    assert sorted(rows) == [row["seq"] for row in table]
    for expected in table:
        row = rows[expected["seq"]]
        assert utc(row.pop("read_time")) <= expected.pop("read_time")
        for name, value in expected.items():
            found = row[name]
            if isinstance(found, bytearray):
                found = bytes(found)
            elif isinstance(found, dt.datetime):
                found = utc(found)
            assert found == value, name
    for message in [*qm.open("q"), *qm.open("t")]:
        row = next(
            row for row in rows.values() if row["lookup_id"] == message.lookup_id and row["msg_id_text"] == message.id
        )
        assert bytes(row["body"]) == message.body_bytes
        assert row["body_text"] == (message.body if isinstance(message.body, str) else None)
        assert (row["label"], row["priority"], row["app_specific"]) == (
            message.label,
            message.priority,
            message.app_specific,
        )
        assert row["correlation_text"] == message.correlation_id
        assert utc(row["arrived_time"]) == utc(message.arrived_time)
        assert utc(row["sent_time"]) == utc(message.sent_time)
        assert row["time_to_be_received"] == (
            INFINITE if message.time_to_be_received is None else message.time_to_be_received
        )
        assert row["acknowledge"] == message.acknowledge
        assert row["journal"] == message.use_dead_letter_queue + 2 * message.use_journal_queue
        assert row["resp_format_name"] == message.response_queue
        assert row["admin_format_name"] == message.administration_queue
        assert row["src_machine_id"] == str(message.source_machine)
        assert bytes(row["sender_id"] or b"") == message.sender_id
        assert (row["delivery"], row["first_in_xact"]) == (
            int(message.recoverable),
            message.is_first_in_transaction if message.is_transactional else None,
        )
    assert qm.open("q").count() == 3, "a batch read is a peek"


def test_columns_are_chosen_by_options_or_by_a_schema(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    fill(qm, "q", 2, label="l")
    for options in ({"columns": "core"}, {"includeBody": "false"}, {"columns": "packet, label"}):
        source = MsmqDataSource(CaseInsensitiveDict(options))
        expected = RowSchema.select(options.get("columns", "all"), include_body="includeBody" not in options)
        assert source.schema() == expected.ddl
        assert planned(address, expected.arrow, queues="q", **options).fetch().num_rows == 2
    [row, _] = planned(address, queues="q", columns="packet, label").fetch().to_pylist()
    assert row == {"packet": qm.open("q").peek(0).packet, "label": "l"}
    assert planned(address, queues="q").fetch().column("packet").null_count == 2
    some = pa.schema([("label", pa.string()), ("priority", pa.int32())])
    assert planned(address, some, queues="q").fetch().to_pylist() == [{"label": "l", "priority": 3}] * 2
    with pytest.raises(
        InvalidParameter, match="column priority is int64, and messages have it as int32: give it as `priority int`"
    ):
        planned(address, pa.schema([("priority", pa.int64())]), queues="q")
    with pytest.raises(InvalidParameter, match="there is no column 'prority'; the nearest is 'priority'"):
        planned(address, pa.schema([("prority", pa.int32())]), queues="q")


def test_patterns_reach_over_queue_managers(
    qm: QueueManager, address: str, beta: tuple[QueueManager, str], spark: SparkSession
) -> None:
    other, other_address = beta
    for manager, names in ((qm, ("orders", "orders-old", "bills")), (other, ("orders", "orders-new"))):
        for name in names:
            manager.create_queue(name, journal=True)
            fill(manager, name, 2)
    qm.open("bills").receive(0)

    def found(queues: str) -> list[tuple[str, str]]:
        rows = planned(f"{address},{other_address}", queues=queues, columns="qm_name,queue").fetch().to_pylist()
        return sorted({(row["qm_name"], row["queue"].rpartition("\\")[2]) for row in rows})

    orders = [("ALPHA", "orders"), ("ALPHA", "orders-old"), ("BETA", "orders"), ("BETA", "orders-new")]
    assert found("orders*") == orders
    assert found("*") == [("ALPHA", "bills"), *orders], "queues, and not what belongs to them"
    assert found("*;journal") == [("ALPHA", "bills;journal")]
    assert found("bills, ORDERS-?e?") == [("ALPHA", "bills"), ("BETA", "orders-new")]
    assert found(r"DIRECT=OS:BETA\*") == orders[2:]
    assert found("nothing*") == []
    with pytest.raises(QueueNotFound, match="there is no queue nothing on ALPHA, BETA"):
        found("orders,nothing")
    with pytest.raises(InvalidParameter, match="are the same queue manager, ALPHA"):
        planned(f"{address},{address.replace('127.0.0.1', 'localhost')}", queues="orders")
    frame = read(spark, f"{address},{other_address}", queues="orders*")
    counted = frame.groupBy("qm_name").count().orderBy("qm_name").collect()
    assert [tuple(row) for row in counted] == [("ALPHA", 4), ("BETA", 4)]
    assert read(spark, address, queues="nothing*").count() == 0


def test_a_queue_is_cut_into_partitions_and_small_queues_share_one(
    qm: QueueManager, address: str, spark: SparkSession
) -> None:
    for name in ("a", "b", "c"):
        qm.create_queue(name)
        fill(qm, name, 20)
    assert len(planned(address, queues="a,b,c").partitions) == 1
    plan = planned(address, queues="a,b,c", minPartitions="6")
    assert 6 <= len(plan.partitions) <= 9
    assert plan.bodies() == [b"%d" % n for n in range(20)] * 3
    frame = read(spark, address, queues="a,b,c", minPartitions="6").withColumn("task", spark_partition_id())
    tasks = frame.groupBy("task").count().collect()
    assert (len(tasks), sum(row["count"] for row in tasks)) == (len(plan.partitions), 60)
    assert [bytes(row.body) for row in frame.limit(3).collect()] == [b"0", b"1", b"2"]


def test_offsets_give_a_range(qm: QueueManager, address: str, root: FlightQueues) -> None:
    qm.create_queue("q")
    fill(qm, "q", 9)
    about, info = root.bounds("q"), root.info()

    def at(number: int, epoch: int = about["epoch"]) -> str:
        queues = {about["queue_id"]: QueueOffset(about["queue"], 0, about["after"] + number)}
        return json.dumps(Offset({info["queue_manager_id"]: ManagerOffset(epoch, queues)}).to_dict())

    assert planned(address, queues="q", startingOffsets=at(2), endingOffsets=at(5)).bodies() == [b"2", b"3", b"4"]
    assert planned(address, queues="q", startingOffsets=at(8)).bodies() == [b"8"]
    assert planned(address, queues="q", endingOffsets=at(1)).bodies() == [b"0"]
    assert planned(address, queues="q", startingOffsets=at(5), endingOffsets=at(1)).partitions == []
    with pytest.raises(
        EpochChanged, match=r"is in epoch .* and the offsets are of epoch .* begin with a new checkpoint"
    ):
        planned(address, queues="q", startingOffsets=at(2, about["epoch"] + 1))
    strange = at(2).replace(info["queue_manager_id"], "11111111-1111-1111-1111-111111111111")
    with pytest.raises(InvalidParameter, match=r"those of queue manager 1111.*, and the managers are ALPHA"):
        planned(address, queues="q", startingOffsets=strange)


def test_a_packet_that_cannot_be_read_is_a_row(qm: QueueManager, address: str, spark: SparkSession) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 3, label="whole")
    broken = list(queue)[1]
    runtime = runtime_of(qm)
    with runtime.lock:
        found = runtime.engine.queue_manager.queue_collection.values()
        number = next(one.number for one in found if one.pathname.lower().endswith("\\q"))
        record = runtime.store.get(number, broken.lookup_id)
        assert record is not None
        damaged = dataclasses.replace(record, packet=b"no packet at all")
        runtime.store.put(number, broken.lookup_id, damaged, express=False)
        batch = runtime.store.pending_batch()
    runtime.store.sync(batch)
    rows: list[Any] = read(spark, address, queues="q").orderBy("lookup_id").collect()
    assert [row.label for row in rows] == ["whole", None, "whole"]
    assert bytes(rows[1].packet) == b"no packet at all"
    assert [row.packet_error is None for row in rows] == [True, False, True]


def test_a_read_tells_what_it_no_longer_finds(qm: QueueManager, address: str, caplog: pytest.LogCaptureFixture) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 3)
    strict, lenient = planned(address, queues="q", failOnDataLoss="true"), planned(address, queues="q")
    assert strict.bodies() == lenient.bodies() == [b"0", b"1", b"2"]
    queue.receive(0)
    assert lenient.bodies() == [b"1", b"2"]
    assert "1 of 3 messages with numbers in (0, 3] are gone" in caplog.text
    with pytest.raises(MessagesVanished, match=r"1 of 3 messages .* Set failOnDataLoss to false"):
        strict.bodies()


def test_a_queue_that_was_created_again_is_another_one(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 3)
    plan = planned(address, queues="q")
    qm.delete_queue(queue.name)
    qm.create_queue("q")
    fill(qm, "q", 3)
    with pytest.raises(QueueNotAvailable, match="was deleted and created again"):
        plan.bodies()


def test_sql_and_the_path_of_load_name_queues_too(qm: QueueManager, address: str, spark: SparkSession) -> None:
    qm.create_queue("q")
    fill(qm, "q", 3)
    frame = spark.read.format("msmq").options(managers=address, user="root").load("q")
    assert frame.count() == 3
    qm.open("q").receive(0)
    assert frame.count() == 2, "a second action reads what is still there"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING msmq OPTIONS (managers '{address}', user 'root', queues 'q')")
    assert spark.sql("SELECT count(*) AS n FROM v WHERE body_size = 1").collect()[0].n == 2
    spark.catalog.dropTempView("v")


def test_errors_say_what_is_wrong(qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path) -> None:
    qm.create_queue("q")
    grant(qm, "q", runtime_of(qm).users.sid("bob"), QueueAccess.PEEK_MESSAGE)
    secret = tmp_path / "password"
    secret.write_text("wonder\n")
    secret.chmod(0o600)
    cases: list[tuple[dict[str, object], str]] = [
        ({"queues": "nowhere"}, "there is no queue nowhere on ALPHA"),
        ({"queues": "q", "user": "alice", "passwordFile": secret}, "alice"),
        ({"queues": "q", "user": "alice"}, "user or password is not right"),
        ({"queues": "q", "passwordEnv": "NOT_SET"}, "expected in the environment variable NOT_SET"),
        ({"queues": "q", "managers": "127.0.0.1:1"}, "no queue manager answers at grpc://127.0.0.1:1"),
        ({"queues": "q", "minPartition": 2}, "there is no option 'minpartition'; the nearest is 'minPartitions'"),
        ({"queues": "q", "mode": "receive"}, "option mode receive is for a stream read, not for a batch read"),
        ({"queues": "q", "password": "secret"}, "a secret cannot be one"),
        ({}, "option queues is missing"),
    ]
    for options, words in cases:
        with pytest.raises(LannerError, match=words):
            planned(address, **options)
    with pytest.raises(Exception, match="there is no option 'minpartition'; the nearest is 'minPartitions'"):
        read(spark, address, queues="q", minPartition=2)
    with pytest.raises(Exception, match=r"QueueNotFound: .* there is no queue nowhere on ALPHA"):
        read(spark, address, queues="nowhere").collect()
