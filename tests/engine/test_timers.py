"""Timers (MS-MQDMPR 3.1.2, 3.1.6.3): when they fire, for whom, and what fires never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.engine import EngineSettings
from lanner.model.directory_objects import Site
from lanner.model.enums import (
    INFINITE,
    DirectoryOperationResult,
    EnqueueStatus,
    MessageClass,
    QueueAccessType,
)
from lanner.security.identity import SYSTEM
from lanner.wire.builder import MessageProperties
from tests.engine.harness import START_TIME, Harness, Reader, WatchedDirectory, at_once, is_waiting
from tests.statuses import MQ_ERROR_IO_TIMEOUT

HOUR = 3600.0


@pytest.fixture
def integrated(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "integrated", directory_integrated=True)
    yield harness
    harness.close()


class Watched(Harness):
    """A harness that records the reads of its directory since the start.

    Each record is the object type and the seconds since the start.
    """

    def __init__(self, path: Path, **settings: object) -> None:
        self.reads: list[tuple[str, float]] = []
        super().__init__(
            path,
            wrap_directory=lambda directory: WatchedDirectory(directory, self._note),
            directory_integrated=True,
            **settings,  # type: ignore[arg-type] # of the engine
        )
        self.reads.clear()

    def _note(self, object_type: str, _: object) -> None:
        self.reads.append((object_type, self.now - START_TIME))

    def times_of(self, object_type: str) -> list[float]:
        return [seconds for what, seconds in self.reads if what == object_type]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    harness = Watched(tmp_path / "watched")
    yield harness
    harness.close()


def is_offline(h: Harness) -> bool:
    return h.engine.queue_manager.directory_offline


# Directory timers
# -------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.2.1-1", "DMPR-3.1.2.2-1")
def test_sites_are_read_again_every_twelve_hours_and_gates_every_hour(watched: Watched) -> None:
    """3.1.2.1: 12 hours by default; 3.1.2.2: 1 hour; again and again."""
    for _ in range(25 * 4):
        watched.tick(HOUR / 4)
    assert watched.times_of("Site") == [12 * HOUR, 24 * HOUR]
    assert watched.times_of("RoutingLink") == [hour * HOUR for hour in range(1, 26)]


@pytest.mark.spec("DMPR-3.1.2.1-1", "DMPR-3.1.2.2-1")
def test_the_periods_of_the_directory_timers_can_be_set(tmp_path: Path) -> None:
    """The expiration time MAY be configured."""
    h = Watched(tmp_path / "data", directory_sites_update_interval=100.0, directory_site_gates_update_interval=30.0)
    assert h.engine.next_delay() == 30
    h.tick(29)
    assert h.reads == []
    h.tick(1)
    assert [what for what, _ in h.reads] == ["RoutingLink"]
    h.tick(70)
    assert [what for what, _ in h.reads] == ["RoutingLink", "Site", "RoutingLink"]
    h.close()


def test_a_refresh_takes_over_what_changed_in_the_directory(integrated: Harness) -> None:
    """3.1.6.1 Directory Sites Update: the cached site gets the values the directory has now."""
    h = integrated
    (site,) = h.engine.queue_manager.site_collection
    changed = Site(identifier=site.identifier, name=site.name, intra_site_replication_interval=77)
    assert h.directory.write(changed, ["IntraSiteReplicationInterval"]) is DirectoryOperationResult.SUCCESS
    assert site.intra_site_replication_interval != 77
    h.tick(12 * HOUR)
    assert site.intra_site_replication_interval == 77


@pytest.mark.spec("DMPR-3.1.2.5-1")
def test_a_lost_directory_is_looked_for_after_a_minute(integrated: Harness) -> None:
    """The Directory Online Timer fires one minute after its start.

    It raises Check Directory Online.
    """
    h = integrated
    h.directory.connected = False
    h.engine.read_directory("Site", None)
    assert is_offline(h)
    assert h.engine.next_delay() == 60
    h.directory.connected = True
    h.tick(59)
    assert is_offline(h)
    h.tick(1)
    assert not is_offline(h)
    # There is nothing left to look for.
    delay = h.engine.next_delay()
    assert delay is not None
    assert delay > 60


@pytest.mark.spec("DMPR-3.1.2.5-1")
def test_a_directory_that_stays_away_is_looked_for_every_minute(watched: Watched) -> None:
    """Check Directory Online reads the queue manager's own object."""
    watched.directory.connected = False
    watched.engine.read_directory("Site", None)
    for _ in range(12):
        watched.tick(15)
    assert watched.times_of("QueueManager") == [60, 120, 180]
    assert is_offline(watched)


# Waiting reads
# ----------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.2.3-1", "DMPR-3.1.6.3-1")
def test_a_waiting_read_ends_at_its_own_time_and_no_other_with_it(h: Harness) -> None:
    """3.1.6.3: MQ_ERROR_IO_TIMEOUT (0xC00E001B) for that read.

    The unit is milliseconds; Infinite never fires.
    """
    h.create()
    readers = {timeout: Reader() for timeout in (1500, 1500 + 1, 4000, INFINITE)}
    descriptor = h.open()
    for timeout, reader in readers.items():
        assert is_waiting(h.engine.dequeue_message(descriptor, timeout=timeout, on_end=reader))
    h.tick(1.4)
    assert [reader.ends for reader in readers.values()] == [[], [], [], []]
    assert h.engine.next_delay() == pytest.approx(0.1)
    h.tick(0.1)
    assert readers[1500].status == MQ_ERROR_IO_TIMEOUT
    assert [readers[timeout].ends for timeout in (1501, 4000, INFINITE)] == [[], [], []]
    h.tick(0.5)
    assert readers[1501].status == MQ_ERROR_IO_TIMEOUT
    h.tick(2)
    assert readers[4000].status == MQ_ERROR_IO_TIMEOUT
    h.tick(1000 * 24 * HOUR)
    assert readers[INFINITE].ends == []
    assert [len(reader.ends) for reader in readers.values()] == [1, 1, 1, 0], "a timer fires once"

    h.send(body=b"at last")
    assert readers[INFINITE].body == b"at last"


@pytest.mark.spec("DMPR-3.1.2.3-1")
def test_the_timer_of_a_read_that_was_served_does_not_fire(h: Harness) -> None:
    h.create()
    reader, other = Reader(), Reader()
    descriptor = h.open()
    h.engine.dequeue_message(descriptor, timeout=1000, on_end=reader)
    h.engine.dequeue_message(descriptor, timeout=5000, on_end=other)
    h.send(body=b"one")
    assert h.engine.next_delay() == pytest.approx(5)
    h.tick(2)
    assert reader.body == b"one"
    assert len(reader.ends) == 1
    assert other.ends == []


# Time To Be Received
# ----------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.2.4-1")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_message_leaves_when_its_time_to_be_received_is_over(h: Harness, recoverable: bool) -> None:
    """0xFFFFFFFF arms no timer, zero expires at once, other values at their deadline."""
    h.create()
    seen = h.removals()
    h.send(body=b"forever", recoverable=recoverable, time_to_be_received=INFINITE)
    assert h.engine.next_delay() is None
    h.send(body=b"never", recoverable=recoverable, time_to_be_received=0)
    assert h.engine.next_delay() == 0
    h.tick(0)
    assert seen == [(b"never", MessageClass.NACK_RECEIVE_TIMEOUT)]
    h.send(body=b"minute", recoverable=recoverable, time_to_be_received=60)
    assert h.engine.next_delay() == 60
    h.tick(59)
    assert h.bodies() == [b"forever", b"minute"]
    h.tick(1)
    assert h.bodies() == [b"forever"]
    assert seen[1:] == [(b"minute", MessageClass.NACK_RECEIVE_TIMEOUT)]
    h.tick(INFINITE)
    assert h.bodies() == [b"forever"]


@pytest.mark.spec("DMPR-3.1.2.4-1")
@pytest.mark.parametrize("recoverable", [True, False])
def test_no_event_comes_for_a_message_that_is_gone_already(h: Harness, recoverable: bool) -> None:
    """When the timer expires, *if that message is still in the queue*, the event is generated."""
    h.create()
    h.send(body=b"one", recoverable=recoverable, time_to_be_received=60)
    h.send(body=b"two", recoverable=recoverable, time_to_be_received=60)
    assert h.receive() == b"one"
    h.engine.purge_queue(h.queue())
    seen = h.removals()
    h.tick(61)
    assert seen == []
    assert h.engine.next_delay() is None


@pytest.mark.spec("DMPR-3.1.1.12-21", "DMPR-3.1.2.4-2")
def test_the_time_to_be_received_counts_from_the_sending(h: Harness) -> None:
    """TimeToBeReceived counts from SentTime, so time in transit is deducted.

    The default 0xFFFFFFFF means no expiry.
    """
    h.create()
    assert MessageProperties().time_to_be_received == 0xFFFFFFFF
    message = h.message(b"travelled", time_to_be_received=60)
    endless = h.message(b"endless")
    h.now += 45
    for arrived in (message, endless):
        assert h.engine.insert_message(h.queue(), arrived, SYSTEM) is MessageClass.ACK_REACH_QUEUE
    assert h.engine.next_delay() == 15
    h.tick(14)
    assert h.bodies() == [b"travelled", b"endless"]
    h.tick(1)
    assert h.bodies() == [b"endless"]


@pytest.mark.spec("DMPR-3.1.2.4-2")
def test_a_message_expires_in_public_and_private_queues_but_not_in_system_ones(h: Harness) -> None:
    """3.1.2.4: "from a public queue or a private queue".

    Journals and dead-letter queues keep their messages.
    """
    h.create("private", journaling=True)
    h.create(r".\public")
    for name in ("private", r"DIRECT=OS:.\public"):
        h.send(name, b"short", time_to_be_received=60)
    h.send("private", b"copied", time_to_be_received=60, positive_journaling_requested=True)
    h.send("private", b"dead", time_to_be_received=10, negative_journaling_requested=True)
    assert h.receive("private") == b"short"
    # The transfer protocols move messages to system queues.
    h.send("private", b"moved", time_to_be_received=60, priority=7)
    position = at_once(h.engine.dequeue_message_begin(h.open("private"), timeout=0))
    target = h.engine.queue_manager.system_deadletter_queue
    assert target is not None
    h.engine.move_message(position, target)
    machine = f"MACHINE={h.engine.queue_manager.identifier}"
    h.tick(10)
    h.tick(50)
    assert h.bodies("private") == h.bodies(r"DIRECT=OS:.\public") == []
    h.tick(1000)
    assert h.bodies(r"DIRECT=OS:.\private$\private;journal") == [b"short"]
    assert h.bodies(f"{machine};JOURNAL") == [b"copied"]
    assert h.bodies(f"{machine};DEADLETTER") == [b"moved", b"dead"]


@pytest.mark.spec("DMPR-3.1.2.4-2")
@pytest.mark.parametrize("how", ["restart", "crash"])
def test_deadlines_are_armed_again_after_a_restart(h: Harness, how: str) -> None:
    """The deadline is SentTime plus TimeToBeReceived.

    It is armed again for recovered messages after a restart.
    """
    h.create()
    h.send(body=b"long", time_to_be_received=100)
    h.send(body=b"short", time_to_be_received=10)
    h.sync()
    h.now += 50
    getattr(h, how)()
    seen = h.removals()
    assert h.engine.next_delay() == 0
    h.tick(0)
    assert seen == [(b"short", MessageClass.NACK_RECEIVE_TIMEOUT)]
    assert h.engine.next_delay() == 50
    h.tick(50)
    assert h.bodies() == []


# Time To Reach Queue
# ----------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.12-20")
def test_the_time_to_reach_a_queue_counts_from_the_sending_and_is_four_days(h: Harness) -> None:
    """TimeToReachQueue: seconds from SentTime, 0x54600 by default."""
    h.create()
    elsewhere = r"DIRECT=OS:BETA\private$\q"
    h.send(elsewhere)
    assert h.engine.next_delay() == 345_600
    h.tick(345_599)
    assert h.queue(elsewhere).message_count == 1
    h.tick(1)
    assert h.queue(elsewhere).message_count == 0

    h.send(body=b"here")
    (message,) = h.messages()
    assert message.time_to_reach_queue == 0x54600
    in_time, late = h.message(b"in time"), h.message(b"late")
    h.now += 345_600
    assert h.engine.enqueue_message(h.queue(), in_time) is EnqueueStatus.OK
    h.now += 1
    assert h.engine.enqueue_message(h.queue(), late) is EnqueueStatus.TIMED_OUT_IN_TRANSIT
    assert h.bodies() == [b"in time"]


@pytest.mark.spec("DMPR-6-6", "DMPR-3.1.1.12-20")
@pytest.mark.parametrize(("configured", "limit"), [(None, 345_600), (100, 100), (INFINITE, INFINITE)])
def test_the_longest_time_to_reach_a_queue_can_be_set(h: Harness, configured: int | None, limit: int) -> None:
    """Note 12: the maximum can be configured (LongLiveTime), and is four days when it is not."""
    if configured is not None:
        h.settings["long_live_time"] = configured
        h.restart()
    assert EngineSettings("ALPHA").long_live_time == 345_600
    h.create()
    for asked in (limit - 1, limit, min(limit + 1, INFINITE), INFINITE):
        h.send(time_to_reach_queue=asked)
    assert [message.time_to_reach_queue for message in h.messages()] == [limit - 1, limit, limit, limit]


def test_peeking_does_not_keep_a_message_from_expiring(h: Harness) -> None:
    h.create()
    h.send(body=b"seen", time_to_be_received=10)
    descriptor = h.open(access=QueueAccessType.PEEK)
    cursor = h.engine.open_cursor(descriptor)
    assert h.engine.peek_message(descriptor, timeout=0, cursor=cursor) is not None
    h.tick(10)
    assert h.bodies() == []
