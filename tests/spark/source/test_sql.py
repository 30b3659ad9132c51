"""SQL through a real Spark.

Covered: tables over queues, conditions that are pushed down, and typed bodies.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

from lanner.client import Message, QueueManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 100


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")


@pytest.fixture
def filled(qm: QueueManager) -> QueueManager:
    queue = qm.create_queue("orders")
    queue.send_many(
        Message(
            body=f'{{"id": {number}, "who": "customer {number % 3}"}}'.encode(),
            label=f"l{number % 5}",
            recoverable=True,
        )
        for number in range(COUNT)
    )
    return qm


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def read(spark: SparkSession, address: str, **options: object) -> DataFrame:
    given = {"managers": address, "user": "root", "retrySeconds": "0"} | options
    return spark.read.format("msmq").options(**{name: str(value) for name, value in given.items()}).load("orders")


def test_conditions_are_reported_by_the_queue_manager(
    filled: QueueManager, address: str, pushing: SparkSession
) -> None:
    """The queue manager evaluates some of them, Spark the rest; the rows are the same."""
    plain = read(pushing, address)
    last = plain.agg({"seq": "max"}).first()[0]  # type: ignore[index] # there is a row
    for condition in (
        f"seq > {last - 10}",
        f"seq in ({last - 50}, {last})",
        "label = 'l3' and body_size > 20 and priority in (3, 4)",
        "label like 'l%' and arrived_time > timestamp'2020-01-01 00:00:00'",
        "queue_kind = 'journal'",
        "correlation_text is null and class <=> 0",
    ):
        expected = sorted(row.seq for row in plain.where(condition).select("seq").collect())
        frame = read(pushing, address, pushFilters="true").where(condition)
        assert sorted(row.seq for row in frame.select("seq").collect()) == expected, condition
    assert read(pushing, address, pushFilters="true").where(f"seq > {last - 10}").rdd.getNumPartitions() == 1
    assert read(pushing, address, limit="7").count() == 7


def test_bodies_have_types(filled: QueueManager, address: str, spark: SparkSession) -> None:
    frame = read(spark, address, bodyFormat="json", bodySchema="id int, who string", columns="seq")
    assert frame.schema["value"].simpleString().endswith("struct<id:int,who:string>")
    found = frame.selectExpr("value.id", "value.who").orderBy("id").collect()
    assert [(row.id, row.who) for row in found] == [(number, f"customer {number % 3}") for number in range(COUNT)]
    assert frame.select("value.id").schema.simpleString() == "struct<id:int>"
    assert read(spark, address, bodyFormat="text").select("value").first()[0].startswith('{"id": 0')  # type: ignore[index] # there is a row


def test_sql_knows_queues_as_tables(filled: QueueManager, address: str, spark: SparkSession) -> None:
    options = f"managers '{address}', user 'root', retrySeconds '0', queues 'orders', columns 'core'"
    spark.sql(f"create temporary view orders_now using msmq options ({options})")
    try:
        [row] = spark.sql("select count(*) as n, max(label) as l from orders_now").collect()
        assert (row.n, row.l) == (COUNT, "l4")
    finally:
        spark.catalog.dropTempView("orders_now")


@pytest.mark.parametrize("clause", ["options", "tblproperties"])
def test_a_table_of_the_catalog_keeps_its_options(
    qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path, clause: str
) -> None:
    """Read, written, streamed; Spark does not pass the options on."""
    qm.create_queue("orders").send_many(Message(body=b"x", label=f"l{number}", recoverable=True) for number in range(5))
    qm.create_queue("answers")
    given = {"managers": address, "user": "root", "retrySeconds": "0", "queues": "orders", "queue": "answers"}
    given["columns"] = "label,body,priority"
    options = ", ".join(f"{name} = '{value}'" for name, value in given.items())
    spark.sql(f"create table both_ways using msmq {clause} ({options})")
    try:
        assert spark.sql("select max(label) from both_ways where priority = 3").first()[0] == "l4"  # type: ignore[index] # there is a row
        spark.sql("insert into both_ways (label, body) values ('sql', cast('a' as binary))")
        spark.sql("insert into both_ways select concat('again ', label), body, 5 from both_ways where label = 'l1'")
        found = [(message.label, message.body_bytes, message.priority) for message in qm.open("answers")]
        assert found == [("again l1", b"x", 5), ("sql", b"a", 3)]
        again = spark.sql("select label from both_ways with (queues = 'answers') order by label").collect()
        assert [row.label for row in again] == ["again l1", "sql"]
        query = spark.readStream.table("both_ways").writeStream.format("memory").queryName("of_a_table")
        query.option("checkpointLocation", str(tmp_path / "of_a_table")).trigger(
            availableNow=True
        ).start().awaitTermination()
        assert spark.table("of_a_table").count() == 5
    finally:
        spark.sql("drop table both_ways")


@pytest.mark.parametrize("more", [{}, {"bodyFormat": "text", "onManagerDown": "skip"}])
def test_a_table_with_all_columns_is_written_too(
    qm: QueueManager, address: str, spark: SparkSession, more: dict[str, str]
) -> None:
    """Those that the statement leaves out are null, and only the queue manager sets them."""
    qm.create_queue("orders").send(Message(body=b"x", label="l", recoverable=True))
    given = {"managers": address, "user": "root", "retrySeconds": "0", "queues": "orders", "queue": "answers"} | more
    qm.create_queue("answers")
    options = ", ".join(f"{name} = '{value}'" for name, value in given.items())
    spark.sql(f"create table whole using msmq options ({options})")
    try:
        spark.sql("insert into whole (label, body, priority) select label, body, 5 from whole")
        spark.sql("insert into whole (queue, correlation_text, body) values ('answers', null, cast('a' as binary))")
        found = [(message.label, message.body_bytes, message.priority) for message in qm.open("answers")]
        assert found == [("l", b"x", 5), ("", b"a", 3)]
        for column, value in (("seq", "5L"), ("dest_format_name", "'answers'")):
            with pytest.raises(PySparkException, match=f"column '{column}' cannot be written to this table"):
                spark.sql(f"insert into whole ({column}, body) values ({value}, cast('a' as binary))")
        with pytest.raises(PySparkException, match="cannot be written; these can"):
            spark.range(1).selectExpr("id as seq", "cast('a' as binary) as body").write.format("msmq").options(
                **{name: value for name, value in given.items() if name in ("managers", "user", "queue")}
            ).mode("append").save()
        assert qm.open("answers").count() == 2
    finally:
        spark.sql("drop table whole")


def test_a_table_that_could_not_be_read_is_not_created(address: str, spark: SparkSession) -> None:
    for options, complaint in (
        (f"managers '{address}'", "option queues"),
        (f"managers '{address}', queus 'orders'", "there is no option 'queus'; the nearest is 'queues'"),
        (f"managers '{address}', queues 'orders', password 'secret'", "passwordFile"),
    ):
        with pytest.raises(AnalysisException, match=complaint):
            spark.sql(f"create table wrong using msmq options ({options})")


def test_a_table_with_declared_columns_says_what_to_do(filled: QueueManager, address: str, spark: SparkSession) -> None:
    options = f"managers = '{address}', user = 'root', retrySeconds = '0'"
    spark.sql(f"create table declared (label string, body binary) using msmq options ({options}, queues = 'orders')")
    try:
        with pytest.raises(AnalysisException, match="Leave the columns out"):
            spark.sql("select * from declared").collect()
        with pytest.raises(AnalysisException, match="Leave the columns out"):
            spark.sql("insert into declared values ('l', cast('b' as binary))")
        assert spark.sql(f"select * from declared with ({options}, queues = 'orders')").count() == COUNT
    finally:
        spark.sql("drop table declared")
