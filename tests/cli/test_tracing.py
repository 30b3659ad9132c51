"""`lanner trace`: trails in their order."""

from __future__ import annotations

import datetime as dt
import uuid
from functools import partial
from pathlib import Path

from lanner.cli.tracing import reports
from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.transfer.tracing import send_report
from lanner.wire.message import Message as Packet
from tests.cli.conftest import Run


def test_a_trail_is_in_order_and_other_messages_are_passed_over(run: Run, data: Path) -> None:
    with QueueManager(data, "alpha") as manager:
        queue_of_reports = manager.create_queue(r".\reports")
        queue = manager.create_queue("orders")
        guid = queue_of_reports.attributes().identifier
        for body in ("one", "two"):
            queue.send(Message(body=body, tracing_queue=guid))
        queue_of_reports.send("no report")
        first, second = queue
        assert (first.tracing_queue, first.copy().tracing_queue, first.use_tracing) == (guid, guid, True)
        engine = runtime_of(manager).engine
        now = engine.clock
        with runtime_of(manager).lock:
            for seconds, message, next_hop in (
                (30, second, "192.0.2.7"),
                (20, first, None),
                (10, first, "192.0.2.8"),
            ):
                engine.clocks.wall = partial(float, seconds)
                send_report(engine, Packet(message.packet), next_hop=next_hop)
            engine.clocks.wall = now
        told = reports(queue_of_reports)
        assert [(one["message"], one["event"], one["next_hop"], one["time"]) for one in told] == [
            (second.id, "sent", "192.0.2.7", _at(30)),
            (first.id, "sent", "192.0.2.8", _at(10)),
            (first.id, "received", None, _at(20)),
        ]
        assert {one["by"] for one in told} == {str(engine.queue_manager.identifier)}
        assert queue_of_reports.count() == 4
    assert "no queue" in run("trace", "none", code=1).err
    assert "no outgoing queues" in run("outgoing", "list", code=3).err


def _at(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).replace(year=2070).isoformat()


def test_a_tracing_queue_is_a_guid(data: Path) -> None:
    with QueueManager(data, "alpha") as manager:
        guid = uuid.uuid4()
        queue = manager.create_queue("q")
        queue.send(Message(tracing_queue=str(guid)))
        assert queue.receive(0).tracing_queue == guid
        queue.send(Message())
        assert queue.receive(0).tracing_queue is None
