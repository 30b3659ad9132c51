"""df.write and df.writeStream with format("msmq"): what is staged, published once, given up.

The tests do what Spark does.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import AccessDenied, InvalidParameter, LannerError, QueueNotFound, ServiceNotAvailable
from lanner.model.enums import INFINITE
from lanner.security.access_masks import QueueAccess
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.errors import PublicationDiffers, StageUnknown
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.source import writer as source_writer
from lanner.spark.source.connections import Manager
from lanner.spark.source.data_source import MsmqDataSource
from lanner.spark.source.writer import MsmqBatchWriter, MsmqStreamWriter
from tests.spark.flight.test_reading import grant
from tests.spark.small import pickled


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")


def rows(*bodies: bytes, **columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": list(bodies), **columns})


def source(address: str, **options: object) -> MsmqDataSource:
    given = {"managers": address, "user": "root", "retrySeconds": 0} | options
    return MsmqDataSource(CaseInsensitiveDict({name: str(value) for name, value in given.items()}))


def batch_writer(address: str, schema: pa.Schema | None = None, **options: object) -> MsmqBatchWriter:
    made = source(address, **options).writer(from_arrow_schema(schema or rows(b"").schema), overwrite=False)
    copied: MsmqBatchWriter = pickle.loads(pickled(made))
    return copied


def write(writer: MsmqBatchWriter, *tasks: list[pa.RecordBatch]) -> list[WriterCommitMessage | None]:
    found = [writer.write(iter(task)) for task in tasks]
    copied: list[WriterCommitMessage | None] = pickle.loads(pickle.dumps(found))
    return copied


def bodies(qm: QueueManager, name: str = "q") -> list[bytes]:
    return [message.body_bytes for message in qm.open(name)]


def stages(qm: QueueManager) -> int:
    with runtime_of(qm).lock:
        return len(list(runtime_of(qm).store.table("stages").items()))


class Query:
    """A streaming query that writes; Spark makes a writer for each call."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch, query: str = "1", **options: object) -> None:
        self._source = source(address, queue="q", **options)
        self._patch = monkeypatch
        self._query = query

    def writer(self) -> MsmqStreamWriter:
        made = self._source.streamWriter(from_arrow_schema(rows(b"").schema), overwrite=False)
        copied: MsmqStreamWriter = pickle.loads(pickled(made))
        return copied

    def write(self, batch: int, *tasks: list[bytes]) -> list[WriterCommitMessage | None]:
        told = {"sql.streaming.queryId": self._query, "streaming.sql.batchId": str(batch)}
        self._patch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty=told.get))
        found = [self.writer().write(iter([rows(*task)] if task else [])) for task in tasks]
        copied: list[WriterCommitMessage | None] = pickle.loads(pickle.dumps(found))
        return copied

    def commit(self, batch: int, messages: list[WriterCommitMessage | None]) -> None:
        self.writer().commit(messages, batch)


# Batches
# --------------------------------------------------------------------------------------------------


def test_what_tasks_write_is_seen_when_all_are_done_in_the_order_of_the_partitions(
    qm: QueueManager, address: str
) -> None:
    qm.create_queue("q", transactional=True)
    writer = batch_writer(address, queue="q")
    messages = write(writer, [rows(b"1", b"2"), rows(), rows(b"3")], [], [rows(b"4")])
    assert bodies(qm) == []
    writer.commit(messages)
    assert bodies(qm) == [b"1", b"2", b"3", b"4"]
    assert stages(qm) == 0


def test_every_property_that_can_be_set_is_a_column(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    batch = pa.RecordBatch.from_pydict(
        {
            "body": ["täxt", None],
            "label": ["l", None],
            "priority": [6, None],
            "app_specific": [7, None],
            "time_to_be_received": [3600, INFINITE],
            "time_to_reach_queue": [60, None],
            "acknowledge": [5, None],
            "journal": [3, None],
            "admin_format_name": [r"DIRECT=OS:ALPHA\private$\a", None],
            "resp_format_name": [r"DIRECT=OS:ALPHA\private$\r", None],
            "correlation_text": ["11111111-1111-1111-1111-111111111111\\9", None],
            "extension": [b"ext", None],
        }
    )
    writer = batch_writer(address, batch.schema, queue="q")
    writer.commit(write(writer, [batch]))
    first, second = list(qm.open("q"))
    assert (first.body, first.label, first.priority, first.app_specific) == ("täxt", "l", 6, 7)
    assert (first.time_to_be_received, first.time_to_reach_queue, first.acknowledge) == (3600, 60, 5)
    assert (first.use_dead_letter_queue, first.use_journal_queue, first.extension) == (True, True, b"ext")
    assert first.administration_queue == r"DIRECT=OS:ALPHA\private$\a"
    assert first.response_queue == r"DIRECT=OS:ALPHA\private$\r"
    assert first.correlation_id == "11111111-1111-1111-1111-111111111111\\9"
    assert (second.body_bytes, second.label, second.priority, second.recoverable) == (b"", "", 3, True)


def test_a_column_says_which_queue_and_the_option_what_else(qm: QueueManager, address: str) -> None:
    for name in ("a", "b", "rest"):
        qm.create_queue(name)
    batch = rows(b"1", b"2", b"3", queue=["a", r".\private$\b", None])
    writer = batch_writer(address, batch.schema, queue="rest")
    writer.commit(write(writer, [batch]))
    assert [bodies(qm, name) for name in ("a", "b", "rest")] == [[b"1"], [b"2"], [b"3"]]


def test_a_write_with_an_id_happens_once(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    for _ in range(2):
        writer = batch_writer(address, queue="q", writeId="june")
        writer.commit(write(writer, [rows(b"1")], [rows(b"2")]))
    assert bodies(qm) == [b"1", b"2"]
    changed = batch_writer(address, queue="q", writeId="june")
    with pytest.raises(PublicationDiffers, match="write june was published with 2 messages"):
        changed.commit(write(changed, [rows(b"3")]))
    for _ in range(2):
        writer = batch_writer(address, queue="q")
        writer.commit(write(writer, [rows(b"x")]))
    assert bodies(qm) == [b"1", b"2", b"x", b"x"], "without an id each run is another write"


def test_a_write_that_is_given_up_leaves_nothing_and_stragglers_are_never_seen(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    writer = batch_writer(address, queue="q")
    [done] = write(writer, [rows(b"1")])
    writer.abort([None, None])
    assert stages(qm) == 0
    write(writer, [rows(b"straggler")])
    with pytest.raises(StageUnknown):
        writer.commit([done])
    assert bodies(qm) == []


def test_a_second_attempt_of_a_task_replaces_the_first(qm: QueueManager, address: str) -> None:
    """Spark numbers attempts anew in each application.

    Only the token that `commit` gets counts.
    """
    qm.create_queue("q")
    writer = batch_writer(address, queue="q")
    write(writer, [rows(b"1")])
    writer.commit(write(writer, [rows(b"1")]))
    assert bodies(qm) == [b"1"]
    assert stages(qm) == 0


# Streams
# --------------------------------------------------------------------------------------------------


def test_a_batch_that_is_done_again_is_published_once(
    qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.create_queue("q")
    query = Query(address, monkeypatch)
    query.commit(0, query.write(0, [b"1"], [b"2"], []))
    again = query.write(0, [b"2", b"1"], [])
    query.commit(0, again)
    query.commit(0, again)
    query.commit(1, query.write(1, [b"3"]))
    query.commit(2, query.write(2, []))
    Query(address, monkeypatch, query="2").commit(0, Query(address, monkeypatch, query="2").write(0, [b"4"]))
    assert bodies(qm) == [b"1", b"2", b"3", b"4"]
    assert stages(qm) == 0


def test_a_batch_that_comes_again_with_other_rows_is_refused_unless_told(
    qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.create_queue("q")
    query = Query(address, monkeypatch)
    query.commit(0, query.write(0, [b"1"]))
    with pytest.raises(PublicationDiffers, match="set failOnChangedReplay to false"):
        query.commit(0, query.write(0, [b"2"]))
    relaxed = Query(address, monkeypatch, failOnChangedReplay="false")
    relaxed.commit(0, relaxed.write(0, [b"3"]))
    assert bodies(qm) == [b"1"]


def test_a_batch_that_is_given_up_comes_again(qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    qm.create_queue("q")
    query = Query(address, monkeypatch)
    [message] = query.write(0, [b"1"])
    query.writer().abort([None, message], 0)
    assert stages(qm) == 0
    query.write(0, [b"straggler"])
    query.writer().abort([None, None], 0)
    query.commit(0, query.write(0, [b"1"]))
    assert bodies(qm) == [b"1"]
    assert stages(qm) == 0, "the publication drops what stragglers have staged"


def test_giving_up_is_no_error_when_the_queue_manager_is_away(caplog: pytest.LogCaptureFixture) -> None:
    batch_writer("127.0.0.1:1", queue="q").abort([None])
    assert "stays for a day" in caplog.text


# Several queue managers
# ----------------------------------------------------------------------------------------------


@pytest.fixture
def beta(start: Callable[..., QueueManager], accounts: Path) -> Iterator[tuple[QueueManager, str]]:
    manager = start("BETA", "beta")
    shutil.copy(accounts, runtime_of(manager).users.path)
    manager.create_queue("q")
    with FlightListener(runtime_of(manager), FlightSettings(port=0)) as listener:
        yield manager, listener.address


def test_rows_are_spread_or_go_where_they_say(qm: QueueManager, address: str, beta: tuple[QueueManager, str]) -> None:
    qm.create_queue("q")
    both = f"{address},{beta[1]}"
    names: list[object] = ["alpha", "BETA", None, None] * 50
    batch = rows(*[b"%d" % number for number in range(200)], qm_name=names)
    writer = batch_writer(both, batch.schema, queue="q")
    writer.commit(write(writer, [batch], []))
    here, there = [*map(int, bodies(qm))], [*map(int, bodies(beta[0]))]
    assert sorted(here + there) == [*range(200)]
    assert (here, there) == (sorted(here), sorted(there)), "in their order"
    assert {number % 4 for number in here} == {0, 2, 3}
    assert {number % 4 for number in there} == {1, 2, 3}
    plain = rows(*[b"%d" % number for number in range(200)])
    writer = batch_writer(both, queue="q")
    writer.commit(write(writer, [plain.slice(0, 70)], [plain.slice(70)]))
    assert 50 < len(bodies(qm)) - len(here) < 150
    assert len(bodies(qm)) + len(bodies(beta[0])) == 400
    batch = rows(b"1", b"2", qm_name=["BETA", "GAMMA"])
    writer = batch_writer(both, batch.schema, queue="q")
    with pytest.raises(InvalidParameter, match=r"row 1: qm_name 'GAMMA' is none of .* ALPHA, BETA"):
        write(writer, [batch])
    assert stages(qm) == stages(beta[0]) == 0


def test_a_spread_batch_that_is_cut_another_way_is_published_once(
    qm: QueueManager, address: str, beta: tuple[QueueManager, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash was between the commits of the two queue managers."""
    qm.create_queue("q")
    found = [b"%d" % number for number in range(60)]
    query = Query(f"{address},{beta[1]}", monkeypatch)
    with monkeypatch.context() as patch:
        publish_at = source_writer._publish_at

        def crash_at_beta(manager: Manager, *rest: Any) -> None:  # noqa: ANN401 (as _publish_at has them)
            if manager.address == beta[1]:
                raise ServiceNotAvailable("crash")
            publish_at(manager, *rest)

        patch.setattr(source_writer, "_publish_at", crash_at_beta)
        with pytest.raises(ServiceNotAvailable):
            query.commit(0, query.write(0, found[:30], found[30:]))
    assert 0 < len(bodies(qm)) < 60
    assert bodies(beta[0]) == []
    query.commit(0, query.write(0, found[:7], found[7:50], found[50:]))
    assert sorted(bodies(qm) + bodies(beta[0])) == sorted(found)
    with pytest.raises(PublicationDiffers):
        query.commit(0, query.write(0, found[:7]))


# What is refused
# --------------------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_refused_before_anything_is_read(address: str) -> None:
    cases: list[tuple[dict[str, object], pa.Schema, str]] = [
        ({}, rows(b"").schema, "no destination: give the option queue, or a column of that name"),
        ({"queue": "q"}, pa.schema([("label", pa.string())]), "a column body is needed"),
        ({"queue": "q"}, pa.schema([("body", pa.int32())]), "column body is int32: binary or text expected"),
        ({"queue": "q"}, rows(b"", lable=["x"]).schema, "there is no column 'lable' to write; the nearest is 'label'"),
        ({"queue": "q"}, rows(b"", seq=[1]).schema, "column 'seq' is the queue manager's"),
        ({"queue": "q", "reader": "r"}, rows(b"").schema, "option reader is for a stream read, not for a batch write"),
    ]
    for options, schema, words in cases:
        with pytest.raises(InvalidParameter, match=words):
            batch_writer(address, schema, **options)
    schema = from_arrow_schema(rows(b"").schema)
    with pytest.raises(InvalidParameter, match=r'use mode\("append"\)'):
        source(address, queue="q").writer(schema, overwrite=True)
    with pytest.raises(InvalidParameter, match=r'outputMode\("complete"\)'):
        source(address, queue="q").streamWriter(schema, overwrite=True)


def test_what_is_wrong_with_the_queue_is_reported(qm: QueueManager, address: str, root: FlightQueues) -> None:
    qm.create_queue("q")
    grant(qm, "q", runtime_of(qm).users.sid("bob"), QueueAccess.WRITE_MESSAGE)
    with pytest.raises(QueueNotFound, match="nowhere"):
        write(batch_writer(address, queue="nowhere"), [rows(b"1")])
    with pytest.raises(AccessDenied):
        write(batch_writer(address, queue="q"), [rows(b"1")])
    with pytest.raises(ServiceNotAvailable, match=r"no queue manager answers at grpc://127\.0\.0\.1:1"):
        write(batch_writer("127.0.0.1:1", queue="q"), [rows(b"1")])
    qm.create_queue("p")
    batch = rows(b"1", b"2", priority=[1, 9])
    writer = batch_writer(address, batch.schema, queue="p")
    with pytest.raises(LannerError, match="priority 9 is not in 0 to 7"):
        write(writer, [batch])
    assert stages(qm) == 0
