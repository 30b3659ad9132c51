"""The SQL and the single lines of Spark in docs/pipeline.md, against `lanner serve`.

`tests/test_docs.py` runs the programs of that page.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame

import lanner
from lanner.client import Message, QueueManager
from tests.cli.conftest import LANNER, free_address
from tests.spark.small import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
STATEMENTS = [
    statement.strip()
    for block in re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for statement in block.split(";\n")
    if statement.strip()
]
LINES = re.findall(r"^    (spark\..*)$", PAGE, re.MULTILINE)
NAMES = ("shop", "winhost")


@pytest.fixture
def shop(tmp_path: Path, accounts: Path) -> Iterator[tuple[str, QueueManager]]:
    """The address of a queue manager, and a connection to it."""
    data, address = tmp_path / "data", free_address()
    lanner.QueueManager(data, "SHOP").close()
    (data / accounts.name).write_bytes(accounts.read_bytes())
    (data / accounts.name).chmod(0o600)
    settings = tmp_path / "lanner.toml"
    settings.write_text(f'data = "{data}"\nbind = "{address}"\n[events]\nenabled = true\n', encoding="utf-8")
    command = [str(LANNER), "serve", "--config", str(settings), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            with lanner.connect(data=data) as manager:
                yield address, manager
        finally:
            process.send_signal(signal.SIGTERM)


def here(text: str, address: str) -> str:
    """An example for the queue manager of the test and its user."""
    for quote in ("'", '"'):
        for name in NAMES:
            text = text.replace(f"{quote}{name}{quote}", f"{quote}{address}{quote}")
        text = text.replace(f"{quote}alice{quote}", f"{quote}root{quote}")
    return text


def test_the_sql_of_the_guide(spark: SparkSession, shop: tuple[str, QueueManager]) -> None:
    address, manager = shop
    orders, answers = manager.create_queue("orders", journal=True), manager.create_queue("answers")
    orders.send_many(
        Message(body=b"%d" % number, label=f"l{number % 2}", priority=number, recoverable=True) for number in range(8)
    )
    orders.receive_many(2)
    assert len(STATEMENTS) == 4
    try:
        _, counted, _, both = (spark.sql(here(statement, address)).collect() for statement in STATEMENTS)
    finally:
        spark.sql("drop table if exists orders")
    assert sorted(tuple(row) for row in counted) == [("l0", 3), ("l1", 3)]
    # Of the priorities above 3, 7 and 6 have been received.
    assert sorted(message.body_bytes for message in answers) == [b"4", b"5"]
    assert len(both) == 2, "the copies in the journal"


def test_the_lines_of_the_guide(spark: SparkSession, shop: tuple[str, QueueManager], tmp_path: Path) -> None:
    address, manager = shop
    orders = manager.create_queue("orders", journal=True)
    orders.send_many(Message(body=f"{number}", recoverable=True) for number in range(8))
    orders.receive_many(3)
    orders.close()  # a stream that receives wants the queue to itself
    found = []
    for number, line in enumerate(LINES):
        frame = eval(here(line, address), {"spark": spark})
        assert isinstance(frame, DataFrame)
        if frame.isStreaming:
            place = str(tmp_path / f"rows{number}")
            writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{place}.checkpoint")
            writer.trigger(availableNow=True).start(place).awaitTermination()
            frame = spark.read.parquet(place)
        found.append(frame.count())
    # The journal; what was left, which is received; and its events: each message has arrived and
    # was received, and is in the journal.
    assert found == [3, 5, 3 * 8]
    assert orders.count() == 0
