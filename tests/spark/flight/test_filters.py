"""Conditions that the queue manager evaluates itself.

It reads no more than they require.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.model.errors import InvalidParameter
from lanner.spark.flight.arrival_marks import ArrivalMarks
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings


class Clock:
    """The queue manager's time."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def qm(start: Callable[..., QueueManager], clock: Clock) -> QueueManager:
    manager = start()
    runtime_of(manager).engine.clocks.wall = clock
    queue = manager.create_queue("q")
    for number in range(40):
        clock.now += 1
        queue.send(Message(body=b"%d" % number, label=f"label {number % 4}", priority=number % 8, recoverable=True))
    return manager


@pytest.fixture(params=[0, 1])
def queues(request: pytest.FixtureRequest, qm: QueueManager, accounts: Path) -> object:
    """Served by the queue manager, and by a reader process."""
    shutil.copy(accounts, runtime_of(qm).users.path)
    settings = FlightSettings(port=0, processes=request.param)
    with (
        FlightListener(runtime_of(qm), settings) as listener,
        FlightQueues(listener.address, user="root", password="secret") as found,
    ):
        yield found


def numbers(table: pa.Table) -> list[int]:
    return [int(body) for body in table.column("body").to_pylist()]


def test_each_condition_chooses_what_the_same_condition_in_arrow_chooses(
    qm: QueueManager, queues: FlightQueues, clock: Clock
) -> None:
    everything = queues.table("q")
    rows = everything.to_pylist()
    middle = rows[20]
    time = int(middle["arrived_time"].timestamp() * 1_000_000)
    cases: list[tuple[list[object], pc.Expression]] = [
        (["seq", ">", middle["seq"]], pc.field("seq") > middle["seq"]),
        (["seq", ">=", middle["seq"]], pc.field("seq") >= middle["seq"]),
        (["seq", "<", middle["seq"]], pc.field("seq") < middle["seq"]),
        (["seq", "<=", middle["seq"]], pc.field("seq") <= middle["seq"]),
        (["seq", "=", middle["seq"]], pc.field("seq") == middle["seq"]),
        (
            ["seq", "in", [rows[3]["seq"], middle["seq"], 1 << 40]],
            pc.field("seq").isin([rows[3]["seq"], middle["seq"]]),
        ),
        (["seq", "in", []], pc.field("seq") < 0),
        (["queue", "=", middle["queue"]], pc.field("queue") == middle["queue"]),
        (["queue", "=", "another"], pc.field("queue") == "another"),
        (["queue_kind", "in", ["journal", "destination"]], pc.field("queue_kind") == "destination"),
        (["label", "=", "label 2"], pc.field("label") == "label 2"),
        (["label", "in", ["label 1", "label 3"]], pc.field("label").isin(["label 1", "label 3"])),
        (["msg_id_text", "=", middle["msg_id_text"]], pc.field("msg_id_text") == middle["msg_id_text"]),
        (["correlation_text", "=", "x"], pc.field("correlation_text") == "x"),
        (["priority", ">=", 5], pc.field("priority") >= 5),
        (["priority", "in", [1, 2, 1 << 40]], pc.field("priority").isin([1, 2])),
        (["priority", "<", 1 << 40], pc.field("priority") < 100),
        (["class", "=", 0], pc.field("class") == 0),
        (["class", "<", 0], pc.field("class") < 0),
        (["arrived_time", ">=", time], pc.field("arrived_time") >= pa.scalar(time, pa.timestamp("us", tz="UTC"))),
        (["arrived_time", "<", time], pc.field("arrived_time") < pa.scalar(time, pa.timestamp("us", tz="UTC"))),
        (["sent_time", "<=", time], pc.field("sent_time") <= pa.scalar(time, pa.timestamp("us", tz="UTC"))),
    ]
    for condition, expression in cases:
        expected = numbers(everything.filter(expression))
        assert numbers(queues.table("q", where=[condition])) == expected, condition
        # Also where the column itself is not among those that are wanted.
        assert queues.table("q", where=[condition], columns="body").column_names == ["body"]
        assert numbers(queues.table("q", where=[condition], columns="body")) == expected, condition
    both = [["label", "=", "label 1"], ["priority", ">", 4], ["seq", ">", middle["seq"]]]
    assert numbers(queues.table("q", where=both)) == [21, 29, 37]
    assert qm.open("q").count() == 40


def test_a_condition_on_seq_or_time_is_a_bound_of_what_is_read(
    qm: QueueManager, queues: FlightQueues, clock: Clock
) -> None:
    """The plan counts only what is in the bounds: nothing else is looked at."""
    last = queues.bounds("q")["upto"]
    assert queues.plan("q", where=[["seq", ">", last - 3]]).partitions[0].messages == 3
    assert queues.plan("q", where=[["queue", "=", "another"]]).partitions[0].messages == 0
    marks = runtime_of(qm).store.table("arrival_marks")
    clock.now += 10
    with runtime_of(qm).lock:
        assert len(list(marks.items())) >= 1
    # Made when the service began, after 40 messages; then two more come.
    queue = qm.open("q")
    queue.send(Message(body=b"40", recoverable=True))
    queue.send(Message(body=b"41", recoverable=True))
    since = dt.datetime.fromtimestamp(clock.now - 5, dt.UTC)
    condition = ["arrived_time", ">=", int(since.timestamp()) * 1_000_000]
    assert queues.plan("q", where=[condition]).partitions[0].messages == 2
    assert numbers(queues.table("q", where=[condition])) == [40, 41]
    position = queues.act("position", queue="q", time_ms=int(since.timestamp()) * 1000)["after"]
    assert numbers(queues.table("q", after=position)) == [40, 41]
    assert queues.act("position", queue="q", time_ms=0)["after"] == queues.bounds("q")["after"]
    later = queues.act("position", queue="q", time_ms=int(clock.now + 100) * 1000)
    assert later["after"] >= queues.bounds("q")["upto"]


@pytest.mark.parametrize(
    "where",
    [
        {},
        [["body", "=", "x"]],
        [["seq", "like", 1]],
        [["label", "<", "x"]],
        [["label", "=", 1]],
        [["seq", "=", "1"]],
        [["seq", "=", True]],
        [["seq", "=", None]],
        [["seq", "=", 1 << 63]],
        [["seq", "in", list(range(2000))]],
        [["seq", "="]],
        [["seq", "=", 1]] * 101,
    ],
)
def test_what_is_no_condition_is_refused(root: FlightQueues, where: object) -> None:
    with pytest.raises(InvalidParameter, match="where"):
        root.plan("q", where=where)


def test_marks_tell_less_than_the_truth_when_a_clock_is_set_back(qm: QueueManager, clock: Clock) -> None:
    marks = ArrivalMarks(runtime_of(qm), interval=3600)
    try:
        first = runtime_of(qm).store.last_number
        assert marks.before(int(clock.now)) == 0
        assert marks.before(int(clock.now) + 1) == first
        clock.now -= 600
        qm.open("q").send(Message(body=b"back", recoverable=True))
        marks.mark()
        assert marks.before(int(clock.now) + 5) == 0
        assert marks.before(int(clock.now) + 700) == first + 1
    finally:
        marks.close()
    # They are on disk, and few.
    again = ArrivalMarks(runtime_of(qm), interval=3600)
    again.close()
    assert again.before(int(clock.now) + 700) == first + 1
