"""spark.readStream.format("msmq"): offsets, limits, leases, what is received and when.

`Stream` does what Spark does.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.daemon.metrics import StreamCollector
from lanner.errors import IOTimeout, LannerError, QueueNotFound, ServiceNotAvailable, SharingViolation
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.errors import EpochChanged, LeaseHeld, LeaseLost
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.source import leases, stream_driver
from lanner.spark.source.partitions import MessagesVanished
from tests.spark.flight.test_reading import fill
from tests.spark.source.streams import Stream

RECEIVE: dict[str, object] = {"mode": "receive", "reader": "r", "queues": "q"}


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")
    monkeypatch.setattr(stream_driver, "POLL_MS", 0)
    monkeypatch.setattr(stream_driver, "LIST_INTERVAL", 0.0)
    monkeypatch.setattr(leases, "_PAUSE", 0.01)
    yield
    Stream.stop_all()


@pytest.fixture
def beta(start: Callable[..., QueueManager], accounts: Path) -> Iterator[tuple[QueueManager, str]]:
    manager = start("BETA", "beta")
    shutil.copy(accounts, runtime_of(manager).users.path)
    listener = FlightListener(runtime_of(manager), FlightSettings(port=0))
    listener.open()
    yield manager, listener.address
    listener.close()


# Peeking
# --------------------------------------------------------------------------------------------------


def test_a_stream_reads_everything_once_and_leaves_it_there(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    fill(qm, "q", 5)
    stream = Stream(address, queues="q", maxMessagesPerTrigger=2)
    assert list(stream.batches()) == [numbers(0, 2), numbers(2, 4), numbers(4, 5)]
    fill(qm, "q", 1)
    assert list(stream.batches()) == [numbers(0, 1)]
    assert qm.open("q").count() == 6


def test_an_offset_is_sorted_text_and_says_how_many_messages_were_read(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    fill(qm, "q", 5)
    stream = Stream(address, queues="q", maxMessagesPerTrigger=3)
    assert len(list(stream.batches())) == 2
    for text in stream.offsets:
        assert text == json.dumps(json.loads(text), sort_keys=True)
    [manager] = json.loads(stream.offsets[-1])["managers"].values()
    [queue] = manager["queues"].values()
    assert (queue["from"], queue["messages"], queue["name"]) == (0, 5, r"DIRECT=OS:ALPHA\private$\q")


def test_bytes_are_a_limit_too_and_the_end_of_limits_is_everything(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    queue.send_many([Message(body=b"%d" % n + bytes(1000), recoverable=True) for n in range(6)])
    stream = Stream(address, queues="q", maxBytesPerTrigger=3000)
    assert [len(batch) for batch in stream.batches()] == [2, 2, 2]
    again = Stream(address, queues="q", maxBytesPerTrigger=1)
    assert len(again.batch() or ()) == 1, "one message at least"
    assert len(again.batch(unlimited=True) or ()) == 5


def test_queues_share_a_limit_by_what_they_have(qm: QueueManager, address: str) -> None:
    for name, count in (("q1", 80), ("q2", 20), ("q3", 0)):
        qm.create_queue(name)
        fill(qm, name, count)
    for options, shares in (({}, [5, 5]), ({"mode": "receive", "reader": "r"}, [2, 8])):
        stream = Stream(address, queues="q1,q2,q3", maxMessagesPerTrigger=10, **options)
        assert stream.plan()
        rows = stream.read().column("queue").to_pylist()
        assert sorted(rows.count(name) for name in set(rows)) == shares
        stream.end()
        assert sum(len(batch) for batch in stream.batches()) == 90


def test_latest_is_where_the_query_began_also_after_a_crash(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    fill(qm, "q", 3)
    stream = Stream(address, queues="q", startingOffsets="latest", reader="r")
    first = stream.start()
    fill(qm, "q", 2)
    assert stream.reader.initialOffset() == first
    assert Stream(address, queues="q", startingOffsets="latest", reader="r").start() == first
    assert stream.batch() == numbers(0, 2)


def test_a_stream_begins_at_an_offset_that_is_given(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    fill(qm, "q", 6)
    stream = Stream(address, queues="q", maxMessagesPerTrigger=4)
    assert stream.batch() == numbers(0, 4)
    assert Stream(address, queues="q", startingOffsets=stream.offsets[0]).batch() == numbers(4, 6)


def test_a_queue_that_a_pattern_finds_later_is_read_from_its_beginning(qm: QueueManager, address: str) -> None:
    qm.create_queue("q1")
    fill(qm, "q1", 1)
    stream = Stream(address, queues="q*")
    assert stream.batch() == numbers(0, 1)
    qm.create_queue("q2")
    fill(qm, "q2", 3)
    assert stream.batch() == numbers(0, 3)
    assert stream.batch() is None
    resumed = Stream(address, stream, queues="q*")
    qm.create_queue("q3")
    fill(qm, "q3", 2)
    assert list(resumed.batches()) == [numbers(0, 2)]


def test_a_stream_over_two_queue_managers(qm: QueueManager, address: str, beta: tuple[QueueManager, str]) -> None:
    other, other_address = beta
    for manager in (qm, other):
        manager.create_queue("q")
        fill(manager, "q", 3)
    stream = Stream(f"{address},{other_address}", queues="q", columns="body,seq,queue")
    assert sorted(chain.from_iterable(stream.batches())) == sorted(numbers(0, 3) * 2)
    fill(other, "q", 2)
    assert list(chain.from_iterable(stream.batches())) == numbers(0, 2)
    with pytest.raises(LannerError, match="the offsets are those of queue manager"):
        Stream(address, stream, queues="q").plan()


def test_what_others_take_is_counted_and_no_error_unless_asked_for(
    qm: QueueManager, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 4)
    lenient, strict = Stream(address, queues="q"), Stream(address, queues="q", failOnDataLoss="true")
    assert lenient.plan()
    assert strict.plan()
    queue.receive(0)
    assert lenient.read().column("body").to_pylist() == numbers(1, 4)
    assert "1 of 4 messages" in caplog.text
    with pytest.raises(MessagesVanished, match=r"queue DIRECT=OS:ALPHA\\private\$\\q: 1 of 4 messages"):
        strict.read()


def test_a_queue_that_is_deleted_is_an_error_or_one_less(qm: QueueManager, address: str) -> None:
    for name in ("q1", "q2"):
        qm.create_queue(name)
        fill(qm, name, 2)
    lenient, strict = Stream(address, queues="q*"), Stream(address, queues="q*", failOnDataLoss="true")
    assert len(lenient.batch() or ()) == len(strict.batch() or ()) == 4
    qm.delete_queue("q1")
    fill(qm, "q2", 1)
    with pytest.raises(QueueNotFound):
        strict.batch()
    assert lenient.batch() is None
    assert lenient.batch() == numbers(0, 1)


def test_numbers_of_another_life_are_refused(qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    qm.create_queue("q")
    fill(qm, "q", 4)
    stream = Stream(address, queues="q", maxMessagesPerTrigger=2)
    assert stream.batch() == numbers(0, 2)
    epoch = str(next(iter(json.loads(stream.offsets[0])["managers"].values()))["epoch"])
    stream.offsets = [text.replace(epoch, str(int(epoch) ^ 1)) for text in stream.offsets]
    with pytest.raises(EpochChanged, match="begin with a new checkpoint"):
        Stream(address, stream, queues="q").plan()


# Receiving
# --------------------------------------------------------------------------------------------------


def test_what_was_processed_is_received_with_the_next_look(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 5)
    stream = Stream(address, **RECEIVE, maxMessagesPerTrigger=2)
    assert stream.batch() == numbers(0, 2)
    assert queue.count() == 5, "Spark has not told yet that the batch is in its log"
    assert stream.plan()
    assert queue.count() == 3
    assert stream.read().column("body").to_pylist() == numbers(2, 4)
    assert queue.count() == 3
    stream.end()
    assert list(stream.batches()) == [numbers(4, 5)]
    assert queue.count() == 0, "nothing is left, with no batch after the last"


def test_a_crash_before_the_end_of_a_batch_reads_it_again(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 4)
    stream = Stream(address, **RECEIVE, maxMessagesPerTrigger=2)
    assert stream.batch() == numbers(0, 2)
    assert stream.plan()
    resumed = Stream(address, stream, **RECEIVE, maxMessagesPerTrigger=2)
    fill(qm, "q", 1)
    assert resumed.read().column("body").to_pylist() == numbers(2, 4)
    resumed.end()
    assert list(resumed.batches()) == [numbers(0, 1)]
    assert queue.count() == 0


def test_a_crash_in_the_first_batch_reads_it_again(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 3)
    stream = Stream(address, **RECEIVE, leaseSeconds=1, maxMessagesPerTrigger=2)
    assert stream.plan()
    resumed = Stream(address, stream, **RECEIVE, maxMessagesPerTrigger=2)
    # It cannot know that it is the same stream, so it waits for the lease to run out.
    stream.reader.stop()
    assert list(resumed.batches()) == [numbers(0, 2), numbers(2, 3)]
    assert queue.count() == 0


def test_only_what_came_after_the_beginning_is_received(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 3)
    stream = Stream(address, **RECEIVE, startingOffsets="latest")
    assert stream.batch() is None
    queue.send(Message(body=b"new", recoverable=True))
    assert list(stream.batches()) == [[b"new"]]
    assert [message.body_bytes for message in queue] == numbers(0, 3)


def test_nobody_else_receives_meanwhile(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 3)
    stream = Stream(address, **RECEIVE)
    stream.start()
    with pytest.raises(SharingViolation):
        queue.receive(0)
    assert queue.peek(0).body_bytes == b"0"


def test_a_stream_of_the_same_name_waits_and_then_says_why(
    qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.create_queue("q")
    fill(qm, "q", 3)
    monkeypatch.setattr(leases, "_GRACE", -30.0)
    first = Stream(address, **RECEIVE)
    assert first.batch() == numbers(0, 3)
    with pytest.raises(LeaseHeld, match=r"reader r of queue .* is in use"):
        Stream(address, **RECEIVE).start()
    second = Stream(address, first, **RECEIVE)
    assert second.batch() is None, "the same checkpoint: it is the same stream, and takes over"
    fill(qm, "q", 1)
    assert second.batch() == numbers(0, 1)
    # The first one has no effect any longer, however late it comes.
    with pytest.raises(LeaseLost, match="was taken over"):
        first.plan()
    assert qm.open("q").count() == 1


def test_a_lease_is_kept_while_a_batch_takes_long(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 2)
    stream = Stream(address, **RECEIVE, leaseSeconds=1)
    assert stream.plan()
    deadline = time.monotonic() + 1.3
    while time.monotonic() < deadline:
        with pytest.raises(SharingViolation):
            queue.receive(0)
        time.sleep(0.05)
    assert stream.read().num_rows == 2


def test_messages_that_vanish_are_an_error_for_a_receiver(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 1)
    stream = Stream(address, **RECEIVE)
    assert stream.batch() == [b"0"]
    fill(qm, "q", 3)
    assert stream.plan()
    runtime = runtime_of(qm)
    with runtime.lock:
        # As when it expires.
        found = runtime.engine.queue_manager.queue_collection.values()
        number = next(one.number for one in found if one.pathname.lower().endswith("\\q"))
        lookup_id = list(queue)[1].lookup_id
        record = runtime.store.get(number, lookup_id)
        assert record is not None
        runtime.store.delete(number, lookup_id, record)
        batch = runtime.store.pending_batch()
    runtime.store.sync(batch)
    with pytest.raises(MessagesVanished, match=r"1 of 3 messages .* Set failOnDataLoss to false"):
        stream.read()
    relaxed = Stream(address, stream, **RECEIVE, failOnDataLoss="false")
    assert list(relaxed.batches()) == [[b"0", b"2"]]


def late(qm: QueueManager, seconds: float) -> None:
    """Let time pass for the queue manager, and what is due happen."""
    engine = runtime_of(qm).engine
    with runtime_of(qm).lock:
        engine.clocks.wall = lambda: time.time() + seconds
        engine.on_timer()
        batch = runtime_of(qm).store.pending_batch()
    runtime_of(qm).store.sync(batch)


def test_what_a_receiver_has_planned_does_not_expire(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q", journal=True)
    queue.send_many(Message(body=b"%d" % number, recoverable=True, time_to_be_received=100) for number in range(4))
    queue.send(Message(body=b"express", time_to_be_received=100))
    stream = Stream(address, **RECEIVE, maxMessagesPerTrigger=2)
    assert stream.plan()
    late(qm, 101)
    assert queue.count() == 2, "the others have expired"
    assert stream.read().column("body").to_pylist() == [b"0", b"1"]
    stream.end()
    assert stream.batch() is None
    assert (queue.count(), queue.journal.count()) == (0, 2)


def test_a_message_that_expires_while_a_batch_is_planned_is_not_counted(
    qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = qm.create_queue("q")
    queue.send(Message(body=b"short", recoverable=True, time_to_be_received=100))
    fill(qm, "q", 2)
    stream = Stream(address, **RECEIVE)
    hold = leases.Leases.hold

    def too_late(self: leases.Leases, *arguments: Any) -> str | None:  # noqa: ANN401 (passed on)
        late(qm, 101)
        return hold(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(leases.Leases, "hold", too_late)
        assert stream.plan()
    assert stream.read().column("body").to_pylist() == numbers(0, 2)


def test_what_a_reader_has_planned_that_is_gone_expires(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    queue.send(Message(body=b"0", recoverable=True, time_to_be_received=100))
    stream = Stream(address, **RECEIVE, leaseSeconds=1)
    assert stream.plan()
    stream.reader.stop()
    deadline = time.monotonic() + 20
    while queue.count():
        assert time.monotonic() < deadline
        time.sleep(0.02)
        late(qm, 101)
    with pytest.raises(MessagesVanished, match="1 of 1 messages"):
        Stream(address, stream, **RECEIVE).read()


def test_nobody_purges_what_a_receiver_has_to_itself(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 2)
    stream = Stream(address, **RECEIVE)
    assert stream.plan()
    with pytest.raises(SharingViolation):
        queue.purge()
    assert stream.read().num_rows == 2


def test_a_stream_that_peeks_counts_what_expired_and_continues(
    qm: QueueManager, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = qm.create_queue("q")
    queue.send(Message(body=b"short", recoverable=True, time_to_be_received=100))
    fill(qm, "q", 1)
    stream = Stream(address, queues="q")
    assert stream.plan()
    late(qm, 101)
    assert stream.read().column("body").to_pylist() == [b"0"]
    assert "1 of 2 messages" in caplog.text


def test_a_queue_manager_that_restarts_is_waited_for(
    qm: QueueManager, accounts: Path, start: Callable[..., QueueManager]
) -> None:
    shutil.copy(accounts, runtime_of(qm).users.path)
    queue = qm.create_queue("q")
    fill(qm, "q", 3)
    listener = FlightListener(runtime_of(qm), FlightSettings(port=0))
    listener.open()
    address, port = listener.address, int(listener.address.rpartition(":")[2])
    stream = Stream(address, **RECEIVE, maxMessagesPerTrigger=2, retrySeconds=20)
    assert stream.batch() == numbers(0, 2)
    listener.close()
    # The tokens of before, and the readers' leases, are gone with the service.
    again = FlightListener(runtime_of(qm), FlightSettings(port=port))
    again.open()
    try:
        assert list(stream.batches()) == [numbers(2, 3)]
        assert queue.count() == 0
    finally:
        again.close()
    with pytest.raises(ServiceNotAvailable, match="no queue manager answers"):
        Stream(address, stream, **RECEIVE).plan()


# AvailableNow, idling
# -----------------------------------------------------------------------------------------------


def test_available_now_reads_what_is_there_and_receives_all_of_it(qm: QueueManager, address: str) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 5)
    stream = Stream(address, **RECEIVE, maxMessagesPerTrigger=2)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == numbers(0, 2)
    queue.send(Message(body=b"later", recoverable=True))
    assert list(stream.batches()) == [numbers(2, 4), numbers(4, 5)]
    assert [message.body_bytes for message in queue] == [b"later"]
    resumed = Stream(address, stream, **RECEIVE)
    resumed.reader.prepareForTriggerAvailableNow()
    assert list(resumed.batches()) == [[b"later"]]
    with pytest.raises(IOTimeout):
        queue.receive(0)
    assert queue.count() == 0
    queue.send(Message(body=b"for others", recoverable=True))
    assert queue.receive(0).body_bytes == b"for others", "the queue is free again at once"


def test_an_idle_stream_asks_less_than_three_times_a_second(
    qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.create_queue("q")
    monkeypatch.setattr(stream_driver, "POLL_MS", 500)
    stream = Stream(address, **RECEIVE)
    stream.plan()
    calls: list[str] = []
    act = FlightQueues.act

    def counted(self: FlightQueues, action: str, **request: object) -> dict[str, object]:
        calls.append(action)
        return act(self, action, **request)

    monkeypatch.setattr(FlightQueues, "act", counted)
    began = time.monotonic()
    stream.plan()
    stream.plan()
    assert time.monotonic() - began > 0.9
    assert calls == ["poll", "poll"]


def test_progress_tells_how_far_each_queue_is_behind(qm: QueueManager, address: str) -> None:
    qm.create_queue("q")
    fill(qm, "q", 3)
    stream = Stream(address, queues="q", maxMessagesPerTrigger="2")
    stream.plan()
    [(manager, queues)] = (stream.reader.reportLatestOffset() or {})["behind"].items()
    [(name, found)] = queues.items()
    assert (manager, name, found["messages"]) == ("ALPHA", r"DIRECT=OS:ALPHA\private$\q", 1)


@pytest.mark.parametrize("is_available_now", [False, True])
def test_prometheus_tells_how_far_a_stream_is_behind(
    qm: QueueManager, address: str, monkeypatch: pytest.MonkeyPatch, *, is_available_now: bool
) -> None:
    monkeypatch.setattr(stream_driver, "POLL_MS", 10)
    qm.create_queue("q")
    fill(qm, "q", 5)
    collector = StreamCollector(runtime_of(qm))
    stream = Stream(address, queues="q", maxMessagesPerTrigger="2")
    if is_available_now:
        stream.reader.prepareForTriggerAvailableNow()

    def behind() -> tuple[float, float]:
        messages, size = (list(family.samples) for family in collector.collect())
        assert [sample.labels for sample in messages] == [{"name": r"DIRECT=OS:ALPHA\private$\q", "user": "root"}]
        return messages[0].value, size[0].value

    assert collector.collect()[0].samples == []
    found = [behind() for _ in stream.batches()]
    assert [messages for messages, _ in found][:1] == [3]
    assert found[0][1] > 0
    assert behind() == (0, 0)
