"""Many queue managers: three are down, one is slow, and the others are read all the same."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.model.errors import AccessDenied, ServiceNotAvailable
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.flight import client
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.source import stream_driver
from lanner.spark.source.batch_reader import MsmqBatchReader
from lanner.spark.source.options import batch_options, stream_options
from lanner.spark.source.partitions import Columns, MessagePartition
from lanner.spark.source.stream_driver import Limits, StreamDriver
from tests.spark.flight.test_kill import fill as fill_other
from tests.spark.flight.test_kill import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE = 20
MESSAGES = 5
DOWN = ("grpc://127.0.0.1:1", "grpc://127.0.0.1:2", "grpc://127.0.0.1:3")
COLUMNS = Columns("core", include_body=False)


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")


@pytest.fixture
def fleet(start: Callable[..., QueueManager], accounts: Path) -> Iterator[list[str]]:
    """The addresses of those that run, and of three that do not."""
    with ExitStack() as stack:
        addresses = []
        for number in range(SIZE - len(DOWN)):
            manager = start(f"QM{number}", f"qm{number}")
            shutil.copy(accounts, runtime_of(manager).users.path)
            fill(manager, MESSAGES)
            listener = stack.enter_context(FlightListener(runtime_of(manager), FlightSettings(port=0)))
            addresses.append(listener.address)
        yield addresses


def fill(manager: QueueManager, count: int) -> None:
    names = {queue.name.rpartition("\\")[2] for queue in manager.queues()}
    queue = manager.open("q") if "q" in names else manager.create_queue("q")
    queue.send_many(Message(body=b"%d" % number, recoverable=True) for number in range(count))


def given(addresses: list[str], **more: str) -> dict[str, str]:
    return {"managers": ",".join(addresses), "user": "root", "queues": "q", "retrySeconds": "0"} | more


def rows(reader: MsmqBatchReader, partitions: list[MessagePartition]) -> pa.Table:
    schema = RowSchema.select("core", include_body=False).arrow
    return pa.Table.from_batches((batch for part in partitions for batch in reader.read(part)), schema)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, fleet: list[str]) -> str:
    """One whose every answer takes its time."""
    act = FlightQueues.act

    def slowly(self: FlightQueues, action: str, **request: object) -> dict[str, object]:
        if self.address == fleet[0]:
            time.sleep(0.05)
        return act(self, action, **request)

    monkeypatch.setattr(FlightQueues, "act", slowly)
    return fleet[0]


def test_a_fleet_of_twenty_with_three_down_and_one_slow(
    fleet: list[str], slow: str, caplog: pytest.LogCaptureFixture
) -> None:
    everybody = [*fleet, *DOWN]
    assert len(everybody) == SIZE
    with pytest.raises(ServiceNotAvailable, match=r"127\.0\.0\.1:1"):
        MsmqBatchReader(batch_options(given(everybody)), COLUMNS).partitions()
    # A batch says what it leaves out.
    reader = MsmqBatchReader(batch_options(given(everybody, onManagerDown="skip")), COLUMNS)
    table = rows(reader, reader.partitions())
    assert set(table.column("qm_name").to_pylist()) == {f"QM{number}" for number in range(len(fleet))}
    assert table.num_rows == MESSAGES * len(fleet)
    for address in DOWN:
        assert address in caplog.text
    # So does a stream, and shares its limit: no reader waits until the fast ones have nothing left.
    driver = StreamDriver(stream_options(given(everybody, onManagerDown="skip")), COLUMNS)
    try:
        began = driver.initial()
        reached = driver.latest(began, Limits(messages=2 * len(fleet)))
        counted = [queue.messages for one in reached.managers.values() for queue in one.queues.values()]
        assert (len(counted), min(counted), max(counted)) == (len(fleet), 2, 2)
        assert driver.latest_known is not None
        assert driver.latest_known["skipped"] == sorted(DOWN)
        behind = driver.latest_known["behind"]
        assert {manager: next(iter(queues.values()))["messages"] for manager, queues in behind.items()} == {
            f"QM{number}": MESSAGES - 2 for number in range(len(fleet))
        }
        partitions = driver.plan(began, reached)
        assert rows(reader, partitions).num_rows == 2 * len(fleet)
        everything = driver.latest(reached, Limits())
        assert sum(one["messages"] for queues in driver.latest_known["behind"].values() for one in queues.values()) == 0
        assert driver.latest(everything, Limits()) == everything
    finally:
        driver.close()


def test_a_column_tells_what_was_left_out(
    start: Callable[..., QueueManager], accounts: Path, spark: SparkSession
) -> None:
    manager = start("ALPHA")
    shutil.copy(accounts, runtime_of(manager).users.path)
    fill(manager, 3)
    with FlightListener(runtime_of(manager), FlightSettings(port=0)) as service:
        for down in ((), DOWN[:2]):
            options = given([service.address, *down], onManagerDown="skip")
            frame = spark.read.format("msmq").options(**options).load()
            told = ", ".join(down) or None
            assert [row["skipped"] for row in frame.select("label", "skipped").collect()] == [told] * 3
            for more in ({"columns": "label", "bodyFormat": "text"}, {"pushFilters": "false", "limit": "2"}):
                narrow = spark.read.format("msmq").options(**options | more).load()
                assert narrow.columns[-1] == "skipped"
                assert {row["skipped"] for row in narrow.collect()} == {told}
        plain = spark.read.format("msmq").options(**given([service.address])).load()
        assert "skipped" not in plain.columns


def test_waiting_for_one_that_is_down(
    start: Callable[..., QueueManager], accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch waits until it is back."""
    manager = start("ALPHA")
    shutil.copy(accounts, runtime_of(manager).users.path)
    fill(manager, 3)
    with FlightListener(runtime_of(manager), FlightSettings(port=0)) as service:
        address, port = service.address, int(service.address.rpartition(":")[2])
    options = batch_options({"managers": address, "user": "root", "queues": "q", "onManagerDown": "wait"})
    back: list[FlightListener] = []
    pause = time.sleep

    def slept(seconds: float) -> None:
        # It has been asked for in vain, and comes back now.
        if not back:
            back.append(FlightListener(runtime_of(manager), FlightSettings(port=port)))
            back[0].open()
        pause(seconds)

    monkeypatch.setattr("lanner.spark.source.connections.time.sleep", slept)
    try:
        reader = MsmqBatchReader(options, COLUMNS)
        assert rows(reader, reader.partitions()).num_rows == 3
    finally:
        for listener in back:
            listener.close()
    assert back


def test_a_slow_queue_manager_is_not_starved(fleet: list[str], slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its share of each batch, also when it answers after the patience with it is over."""
    two = fleet[:2]
    for patience in (1.0, 0.02):
        monkeypatch.setattr(stream_driver, "GRACE", patience)
        driver = StreamDriver(stream_options(given(two)), COLUMNS)
        try:
            reached = driver.initial()
            for _ in range(6):
                reached = driver.latest(reached, Limits(messages=2))
                time.sleep(0.06)
            counted = {
                driver._known[name].name: sum(queue.messages for queue in one.queues.values())
                for name, one in reached.managers.items()
            }
        finally:
            driver.close()
        assert counted["QM0"] >= 2
        assert counted["QM1"] >= 2


def test_the_directory_of_one_names_all(start: Callable[..., QueueManager], accounts: Path) -> None:
    manager = start("ALPHA")
    shutil.copy(accounts, runtime_of(manager).users.path)
    there = {"identifier": "0d9c9c0e-3f0c-4b7e-8a52-5fd5b1e9a001", "address": "10.0.0.7"}
    manager.enterprise.apply({"computers": {"BETA": there}})
    with FlightListener(runtime_of(manager), FlightSettings(port=0, allow_anonymous=True)) as service:
        place = f"directory:{service.address.removeprefix('grpc://')}"
        own = next(one for name, one in manager.enterprise.document()["computers"].items() if name == "ALPHA")
        found = batch_options(given([place, "gamma"])).access.managers
        assert set(found) == {
            f"grpc://{(own.get('address') or 'ALPHA').lower()}:1810",
            "grpc://10.0.0.7:1810",
            "grpc://gamma:1810",
        }
        with pytest.raises(AccessDenied, match="logged on"):
            batch_options({"managers": place, "queues": "q"})
    with pytest.raises(ServiceNotAvailable):
        batch_options(given([place, "gamma"]) | {"user": "bob"})


def test_one_that_comes_back_is_read_again(
    start: Callable[..., QueueManager], accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_driver, "LIST_INTERVAL", 0.0)
    managers = [start(name, name) for name in ("ONE", "TWO")]
    for manager in managers:
        shutil.copy(accounts, runtime_of(manager).users.path)
        fill(manager, 3)
    with FlightListener(runtime_of(managers[0]), FlightSettings(port=0)) as first:
        with FlightListener(runtime_of(managers[1]), FlightSettings(port=0)) as second:
            port = int(second.address.rpartition(":")[2])
            options = stream_options(given([first.address, second.address], onManagerDown="skip"))
            driver = StreamDriver(options, COLUMNS)
            reached = driver.latest(driver.initial(), Limits())
        assert sum(queue.messages for one in reached.managers.values() for queue in one.queues.values()) == 6
        fill(managers[0], 1)
        again = driver.latest(reached, Limits())
        assert driver.latest_known is not None
        assert driver.latest_known["skipped"] == [second.address]
        fill(managers[1], 2)
        with FlightListener(runtime_of(managers[1]), FlightSettings(port=port)):
            last = again
            for _ in range(5):
                last = driver.latest(last, Limits())
            assert sum(queue.messages for one in last.managers.values() for queue in one.queues.values()) == 9
            assert "skipped" not in driver.latest_known
        driver.close()


def test_one_that_hangs_counts_as_down(
    start: Callable[..., QueueManager], accounts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays open, and no call is answered."""
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    monkeypatch.setattr(stream_driver, "GRACE", 0.05)
    monkeypatch.setattr(stream_driver, "LIST_INTERVAL", 0.0)
    manager = start("ONE")
    shutil.copy(accounts, runtime_of(manager).users.path)
    manager.create_queue("source").send(Message(body=b"first", recoverable=True))
    fill_other(tmp_path / "other", accounts)
    with FlightListener(runtime_of(manager), FlightSettings(port=0)) as service, running(tmp_path / "other") as other:
        process, address = other
        options = given([service.address, address], onManagerDown="skip", queues="s*")
        driver = StreamDriver(stream_options(options), COLUMNS)
        reached = driver.latest(driver.initial(), Limits(messages=2))

        def look(until: Callable[[], bool]) -> None:
            nonlocal reached
            deadline = time.monotonic() + 60
            while not until():
                assert time.monotonic() < deadline
                reached = driver.latest(reached, Limits(messages=2))

        try:
            assert len(reached.managers) == 2
            process.send_signal(signal.SIGSTOP)
            look(lambda: (driver.latest_known or {}).get("skipped") == [address])
            manager.open("source").send(Message(body=b"second", recoverable=True))
            mine = str(manager.identifier)
            look(lambda: sum(queue.messages for queue in reached.managers[mine].queues.values()) == 2)
            batch = MsmqBatchReader(batch_options(options), COLUMNS)
            assert {part.address for part in batch.partitions()} == {service.address}
            process.send_signal(signal.SIGCONT)
            look(lambda: "skipped" not in (driver.latest_known or {}))
        finally:
            process.send_signal(signal.SIGCONT)
            driver.close()


@dataclass
class Pair:
    """Two queue managers by their addresses, with the service and the object of the second one."""

    first: str
    second: str
    service: FlightListener
    manager: QueueManager


@pytest.fixture
def pair(start: Callable[..., QueueManager], accounts: Path) -> Iterator[Pair]:
    """Only the second one has a queue `own`. The test ends its service."""
    managers = [start(name, name) for name in ("ONE", "TWO")]
    for manager in managers:
        shutil.copy(accounts, runtime_of(manager).users.path)
        fill(manager, 3)
    managers[1].create_queue("own").send(Message(body=b"own", recoverable=True))
    second = FlightListener(runtime_of(managers[1]), FlightSettings(port=0))
    with FlightListener(runtime_of(managers[0]), FlightSettings(port=0)) as first:
        second.open()
        yield Pair(first.address, second.address, second, managers[1])
        second.close()


@pytest.mark.parametrize("queues", ["*", "q,own"])
def test_one_that_goes_down_while_queues_are_looked_for(
    pair: Pair, queues: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do names count as wrong that only this one may have."""
    monkeypatch.setattr(stream_driver, "LIST_INTERVAL", 0.0)
    options = given([pair.first, pair.second], onManagerDown="skip", queues=queues)
    driver = StreamDriver(stream_options(options), COLUMNS)
    try:
        reached = driver.latest(driver.initial(), Limits())
        assert sum(queue.messages for one in reached.managers.values() for queue in one.queues.values()) == 7
        pair.service.close()
        for _ in range(3):
            assert driver.latest(reached, Limits()) == reached
            assert driver.latest_known is not None
            assert driver.latest_known["skipped"] == [pair.second]
    finally:
        driver.close()
    reader = MsmqBatchReader(batch_options(options), COLUMNS)
    assert rows(reader, reader.partitions()).num_rows == 3


def test_one_that_comes_back_is_not_part_of_what_is_there_now(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Trigger.AvailableNow a query reads what it has seen at its start."""
    monkeypatch.setattr(stream_driver, "LIST_INTERVAL", 0.0)
    pair.service.close()
    port = int(pair.second.rpartition(":")[2])
    driver = StreamDriver(stream_options(given([pair.first, pair.second], onManagerDown="skip")), COLUMNS)
    try:
        reached = driver.initial()
        driver.aim()
        with FlightListener(runtime_of(pair.manager), FlightSettings(port=port)):
            for _ in range(5):
                reached = driver.latest(reached, Limits())
            assert driver.latest_known is not None
            assert "skipped" not in driver.latest_known
        assert [queue.messages for one in reached.managers.values() for queue in one.queues.values()] == [3]
    finally:
        driver.close()
