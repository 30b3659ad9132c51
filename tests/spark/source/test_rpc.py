"""transport=rpc: any MSMQ computer by remote read.

Batches peek, streams receive.
"""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema

import lanner
from lanner.client import Message, Queue, QueueManager
from lanner.errors import InvalidParameter, LannerError, QueueNotFound, SharingViolation
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.source import rpc_reading, rpc_stream
from lanner.spark.source.connections import parse_host
from lanner.spark.source.data_source import MsmqDataSource
from lanner.spark.source.options import batch_options, stream_options, write_options
from lanner.spark.source.partitions import MessagesVanished
from lanner.spark.source.rpc_batch import RpcBatchReader
from lanner.spark.source.rpc_stream import RpcStreamReader
from tests.cli.conftest import LANNER, free_address
from tests.client.served import ServedManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = "body,label,priority,queue,queue_kind,seq,lookup_id,abort_count"


@pytest.fixture
def served(tmp_path: Path, accounts: Path) -> Iterator[ServedManager]:
    manager = ServedManager(tmp_path / "data", free_address())
    manager.runtime.users.path.write_bytes(accounts.read_bytes())
    manager.runtime.users.path.chmod(0o600)
    yield manager
    disconnect()
    manager.close()


@pytest.fixture
def there(served: ServedManager) -> Iterator[QueueManager]:
    with lanner.connect(data=served.data) as manager:
        yield manager


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")
    monkeypatch.setattr(rpc_stream, "POLL", 0.0)
    monkeypatch.setattr(rpc_stream, "GRACE", 0.0)


def disconnect() -> None:
    """Disconnect as the end of a process does."""
    while rpc_reading._KEPT:
        rpc_reading._KEPT.popitem()[1].close()


def source(address: str, **options: object) -> tuple[MsmqDataSource, pa.Schema]:
    given = {"managers": address, "user": "root", "transport": "rpc", "columns": NAMES, "retrySeconds": 0} | options
    made = MsmqDataSource(CaseInsensitiveDict({name: str(value) for name, value in given.items()}))
    return made, RowSchema.select(str(given["columns"])).arrow


def read(address: str, **options: object) -> list[dict[str, Any]]:
    """A batch read, without Spark."""
    made, schema = source(address, **options)
    reader = made.reader(from_arrow_schema(schema))
    assert isinstance(reader, RpcBatchReader)
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    table = pa.Table.from_batches((batch for part in parts for batch in reader.read(part)), schema)
    return table.to_pylist()  # type: ignore[no-any-return]


class RpcStream:
    """A driver of the stream that does what Spark does."""

    def __init__(self, address: str, before: RpcStream | None = None, /, **options: object) -> None:
        made, self.schema = source(address, mode="receive", **options)
        reader = made.streamReader(from_arrow_schema(self.schema))
        assert isinstance(reader, RpcStreamReader)
        self.reader = reader
        self.offsets: list[str] = [] if before is None else list(before.offsets)
        self.ended: int = 0 if before is None else before.ended

    def start(self) -> dict[str, Any]:
        found = json.loads(self.offsets[self.ended - 1]) if self.ended else self.reader.initialOffset()
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]

    def plan(self) -> bool:
        if self.ended < len(self.offsets):
            return True
        start = self.start()
        end = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if end == json.dumps(start):
            return False
        self.offsets.append(end)
        return True

    def bodies(self) -> list[bytes]:
        parts = pickle.loads(pickle.dumps(self.reader.partitions(self.start(), json.loads(self.offsets[self.ended]))))
        found = pa.Table.from_batches((batch for part in parts for batch in self.reader.read(part)), self.schema)
        return found.column("body").to_pylist()  # type: ignore[no-any-return]

    def batch(self) -> list[bytes] | None:
        if not self.plan():
            return None
        found = self.bodies()
        self.ended += 1
        return found


def fill(queue: Queue, first: int, last: int, **properties: Any) -> None:  # noqa: ANN401 (of messages)
    queue.send_many(Message(body=b"%d" % number, recoverable=True, **properties) for number in range(first, last))


def test_a_batch_peeks_at_everything(served: ServedManager, there: QueueManager) -> None:
    queue = there.create_queue("q", journal=True)
    fill(queue, 0, 3)
    fill(queue, 3, 4, priority=7, label="first")
    rows = read(f"{served.bind}:{served.port}", queues="q")
    assert [row["body"] for row in rows] == [b"3", b"0", b"1", b"2"]
    assert rows[0] == {
        "body": b"3",
        "label": "first",
        "priority": 7,
        "queue": queue.format_name,
        "queue_kind": "destination",
        "seq": None,
        "lookup_id": queue.peek(0).lookup_id,
        "abort_count": None,
    }
    assert queue.count() == 4
    queue.receive(0)
    (row,) = read(served.bind, queues="q;journal")
    assert (row["body"], row["queue_kind"]) == (b"3", "journal")


def test_a_batch_of_several_queues_and_of_none(served: ServedManager, there: QueueManager) -> None:
    fill(there.create_queue("a"), 0, 2)
    fill(there.create_queue("b"), 2, 3)
    there.create_queue("empty")
    assert [row["body"] for row in read(served.bind, queues="a,empty,b")] == [b"0", b"1", b"2"]
    with pytest.raises(QueueNotFound, match="there is no queue none on"):
        read(served.bind, queues="a,none")
    with pytest.raises(LannerError):
        read(served.bind, queues="a", user="alice")
    with pytest.raises(LannerError, match="cannot be reached"):
        read("127.0.0.1:1", queues="a")


def test_a_stream_receives_what_has_been_processed(served: ServedManager, there: QueueManager) -> None:
    queue = there.create_queue("q")
    fill(queue, 0, 5)
    stream = RpcStream(served.bind, queues="q", maxMessagesPerTrigger=2, minPartitions=2)
    assert stream.batch() == [b"0", b"1"]
    assert queue.count() == 5, "only when Spark has written down that the batch is done"
    assert stream.batch() == [b"2", b"3"]
    assert queue.count() == 3
    fill(queue, 5, 6, priority=6)
    assert stream.batch() == [b"5", b"4"]
    assert stream.batch() is None
    assert queue.count() == 0
    assert stream.batch() is None


def test_a_batch_that_is_done_again_has_the_same_messages(served: ServedManager, there: QueueManager) -> None:
    queue = there.create_queue("q", transactional=True)
    with there.transaction() as unit:
        queue.send_many([Message(body=b"0", recoverable=True)] * 3, transaction=unit)
    stream = RpcStream(served.bind, queues="q")
    assert stream.plan()
    disconnect()  # the application is killed
    with there.transaction() as unit:
        queue.send(Message(body=b"late"), transaction=unit)
    again = RpcStream(served.bind, stream, queues="q")
    assert again.batch() == [b"0"] * 3
    disconnect()  # killed after the batch was written down, before its messages were received
    third = RpcStream(served.bind, again, queues="q")
    assert third.batch() == [b"late"]
    assert third.batch() is None
    assert queue.count() == 0


def test_what_is_there_when_it_begins_and_nothing_more(served: ServedManager, there: QueueManager) -> None:
    queue = there.create_queue("q")
    fill(queue, 0, 3)
    stream = RpcStream(served.bind, queues="q", maxMessagesPerTrigger=2)
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()
    fill(queue, 3, 4, priority=7)
    assert [stream.batch(), stream.batch(), stream.batch()] == [[b"0", b"1"], [b"2"], None]
    assert [message.body_bytes for message in queue] == [b"3"]


def receive_when_free(queue: Queue) -> None:
    """It takes a moment until a queue manager notices that a connection has ended."""
    end = time.monotonic() + 10
    while True:
        try:
            queue.receive(0)
        except SharingViolation:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def test_a_stream_has_its_queues_to_itself(served: ServedManager, there: QueueManager) -> None:
    queue = there.create_queue("q")
    fill(queue, 0, 1)
    stream = RpcStream(served.bind, queues="q")
    assert stream.plan()
    with pytest.raises(SharingViolation):
        queue.receive(0)
    disconnect()
    receive_when_free(queue)
    with pytest.raises(
        SharingViolation, match="another program receives from queue q; a stream with mode receive wants"
    ):
        RpcStream(served.bind, queues="q").start()
    queue.close()
    failing = RpcStream(served.bind, stream, queues="q")
    with pytest.raises(MessagesVanished, match="1 of 1 messages are gone"):
        failing.bodies()
    failing.reader.stop()
    assert RpcStream(served.bind, stream, queues="q", failOnDataLoss=False).bodies() == []


def test_a_stream_outlives_a_restart_of_the_listener(served: ServedManager, there: QueueManager) -> None:
    queue = there.create_queue("q")
    fill(queue, 0, 2)
    stream = RpcStream(served.bind, queues="q", retrySeconds=10)
    assert stream.batch() == [b"0", b"1"]
    fill(queue, 2, 3)
    served.stop()
    served.start()
    assert stream.batch() == [b"2"]


def test_checkpoints_of_something_else(served: ServedManager, there: QueueManager) -> None:
    there.create_queue("q")
    stream = RpcStream(served.bind, queues="q")
    limit = stream.reader.getDefaultReadLimit()
    with pytest.raises(InvalidParameter, match="of another transport"):
        stream.reader.latestOffset({"managers": {}, "v": 1}, limit)
    start = {"batch": 1, "queues": {"elsewhere|q": [7]}, "transport": "rpc", "v": 1}
    with pytest.raises(InvalidParameter, match="the checkpoint is of elsewhere, and the managers are"):
        stream.reader.latestOffset(start, limit)


@pytest.mark.parametrize(
    ("read_it", "options", "words"),
    [
        (stream_options, {"queues": "q"}, "mode peek of a stream needs transport flight"),
        (stream_options, {"mode": "events"}, "only Lanner has events"),
        (batch_options, {"queues": "q*"}, "'q\\*' is a pattern, and transport rpc takes names only"),
        (batch_options, {"queues": "q", "endingOffsets": "latest"}, "it has no positions"),
        (batch_options, {"queues": "q", "startingOffsets": "latest"}, "it has no positions"),
        (batch_options, {"queues": "q", "tlsRoots": "x"}, "transport rpc has no TLS"),
        (batch_options, {"queues": "q", "managers": "grpc://a"}, "with transport rpc a host or host:port expected"),
        (lambda given: write_options(given, is_stream=False), {"queue": "q"}, "it only reads"),
    ],
)
def test_what_remote_read_cannot_do(
    read_it: Callable[[dict[str, str]], object], options: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidParameter, match=words):
        read_it({"transport": "rpc"} | options)


def test_addresses() -> None:
    assert [parse_host(text) for text in ("alpha", "10.0.0.1:99", "[::1]:7")] == ["alpha", "10.0.0.1:99", "[::1]:7"]
    for wrong in ("", "a/b", "a:port", "user@a"):
        with pytest.raises(InvalidParameter):
            parse_host(wrong)


@pytest.fixture
def daemon(tmp_path: Path, accounts: Path) -> Iterator[tuple[str, Path]]:
    """A `lanner serve` of its own: address and data directory."""
    data, address = tmp_path / "data", free_address()
    lanner.QueueManager(data, "ALPHA").close()
    (data / accounts.name).write_bytes(accounts.read_bytes())
    (data / accounts.name).chmod(0o600)
    command = [LANNER, "serve", "--data", data, "--bind", address, "--json"]
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield address, data
        finally:
            process.send_signal(signal.SIGTERM)


def test_spark_reads_a_running_daemon(spark: SparkSession, daemon: tuple[str, Path], tmp_path: Path) -> None:
    address, data = daemon
    with lanner.connect(data=data) as there:
        queue = there.create_queue("q")
        fill(queue, 0, 50)
        options = {"managers": address, "user": "root", "transport": "rpc", "columns": "body,label"}
        assert spark.read.format("msmq").options(**options).load("q").count() == 50
        stream = (
            spark.readStream.format("msmq").options(**options, mode="receive", maxMessagesPerTrigger="20").load("q")
        )
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "rows")).collect()
        assert sorted(int(row.body) for row in rows) == list(range(50))
        assert queue.count() == 0
