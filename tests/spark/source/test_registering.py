"""Ways to Spark that need a Spark of their own: no Lanner there, Connect, declarative pipelines."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from lanner.client import Message, QueueManager
from tests.spark.small import ROOT, SPARK_ENVIRONMENT, SUBMIT_ENVIRONMENT

PATIENCE = 300
SETTINGS = os.environ | SPARK_ENVIRONMENT | SUBMIT_ENVIRONMENT


def ran(directory: Path, *command: str, **more: str) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env=SETTINGS | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


WITHOUT = """
from lanner.spark.source import register
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
register(spark)
try:
    spark.read.format("msmq").load("orders").collect()
except PySparkException as error:
    print("TOLD", error)
"""


def test_a_python_of_spark_without_lanner_is_reported(tmp_path: Path) -> None:
    # Without the module site, what is installed in place, as Lanner is here, cannot be imported.
    python = tmp_path / "python"
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    # The driver, which has Lanner, must not hand its place on.
    path = {"PYTHONPATH": "", "PYSPARK_PYTHON": str(python)}
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})" + WITHOUT
    told = ran(tmp_path, sys.executable, "-c", code, **path)
    assert "TOLD" in told
    assert f"Spark runs {sys.executable}, which has no Lanner" in told
    assert "set PYSPARK_PYTHON" in told


CONNECT = """
import json
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[1]").getOrCreate()
options = {"managers": sys.argv[1], "user": "root"}
orders = spark.read.format("msmq").options(**options, bodyFormat="json", bodySchema="id bigint").load("orders")
assert "connect" in type(orders).__module__
assert orders.selectExpr("max(value.id)").first()[0] == 299
chosen = orders.where("label = 'l1'").select("body", "label")
chosen.write.format("msmq").options(**options, queue="answers", writeId="once").mode("append").save()
stream = spark.readStream.format("msmq").options(**options, mode="receive", reader="archive").load("answers")
writer = stream.writeStream.format("parquet").option("checkpointLocation", "checkpoint").trigger(availableNow=True)
query = writer.start("archive")
query.awaitTermination()
behind = json.loads(query.lastProgress["sources"][0]["latestOffset"])["behind"]
assert [queue["messages"] for queues in behind.values() for queue in queues.values()] == [0]
assert spark.read.parquet("archive").count() == 100
spark.stop()
"""


def filled(qm: QueueManager) -> None:
    messages = (Message(body=f'{{"id": {n}}}', label=f"l{n % 3}", recoverable=True) for n in range(300))
    qm.create_queue("orders").send_many(messages)
    qm.create_queue("answers")


def test_spark_connect(qm: QueueManager, address: str, tmp_path: Path) -> None:
    """Read, written and streamed by a client without Java; nothing is behind at the end."""
    filled(qm)
    ran(tmp_path, sys.executable, "-c", CONNECT, address)
    assert qm.open("orders").count() == 300
    assert qm.open("answers").count() == 0


SPECIFICATION = """
name: orders
storage: file://{place}/state
libraries:
  - glob:
      include: orders.py
"""
TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    stream = spark.readStream.format("msmq").options(managers="{address}", user="root", reader="bronze", mode="receive")
    return stream.options(bodyFormat="json", bodySchema="id bigint").load("orders")


@dp.materialized_view
def by_label() -> DataFrame:
    return spark.table("orders").groupBy("label").count()
"""


def test_declarative_pipelines(qm: QueueManager, address: str, tmp_path: Path) -> None:
    """A table that receives a queue, and a view of it."""
    filled(qm)
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(place=tmp_path))
    (tmp_path / "orders.py").write_text(TABLES.format(address=address))
    ran(tmp_path, str(Path(sys.executable).with_name("spark-pipelines")), "run")
    assert qm.open("orders").count() == 0
    place = tmp_path / "spark-warehouse"
    rows = "import pyarrow.dataset as ds; print(ds.dataset('orders').count_rows(), ds.dataset('by_label').count_rows())"
    assert ran(place, sys.executable, "-c", rows).split() == ["300", "3"]
