"""SQL: tables over queues, conditions that are pushed down, and typed bodies, through a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

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


def test_conditions_are_told_by_the_queue_manager(filled: QueueManager, address: str, pushing: SparkSession) -> None:
    """Those that it knows; Spark tells the rest, and both give the same rows."""
    plain = read(pushing, address)
    last = plain.agg({"seq": "max"}).first()[0]  # type: ignore[index] # there is a row
    for condition in (
        f"seq > {last - 10}",
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
