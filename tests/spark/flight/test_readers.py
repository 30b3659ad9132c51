"""Named readers: one at a time, from their start; acknowledged messages are deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.errors import (
    AccessDenied,
    InsufficientResources,
    InvalidParameter,
    IOTimeout,
    QueueNotFound,
    SharingViolation,
)
from lanner.model.enums import QueueAccessType
from lanner.model.live import OpenQueueDescriptor
from lanner.security.access_masks import QueueAccess
from lanner.spark.flight import readers
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.errors import EpochChanged, LeaseHeld, LeaseLost
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from tests.spark.flight.test_reading import bodies, fill, grant

Connect = Callable[..., FlightQueues]


@pytest.fixture
def q(qm: QueueManager, root: FlightQueues) -> str:
    qm.create_queue("q")
    return "q"


def test_a_reader_reads_and_acknowledges_until_nothing_is_left(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 10)
    lease = root.acquire(q, "stream")
    assert (lease["start"], lease["acknowledged"], lease["fence"]) == (0, 0, 1)
    at, found = lease["acknowledged"], []
    while True:
        [part] = root.poll([{"queue": q, "after": at, "max_messages": 4}])
        if not part["messages"]:
            break
        found += bodies(root.table(q, after=at, upto=part["upto"]))
        at = part["upto"]
        done = root.acknowledge(q, "stream", lease["fence"], at, lease["epoch"])
        assert (done["removed"], done["acknowledged"]) == (part["messages"], at)
        again = root.acknowledge(q, "stream", lease["fence"], at, lease["epoch"])
        assert (again["removed"], again["acknowledged"]) == (0, at)
    assert found == [b"%d" % number for number in range(10)]
    assert qm.open(q).count() == 0


def test_an_older_acknowledgment_that_comes_late_does_nothing(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 4)
    lease = root.acquire(q, "r")
    root.acknowledge(q, "r", lease["fence"], 3, lease["epoch"])
    assert root.acknowledge(q, "r", lease["fence"], 1, lease["epoch"])["acknowledged"] == 3
    assert qm.open(q).count() == 1


def test_latest_is_remembered_and_what_was_there_before_stays(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 3)
    first = root.acquire(q, "r", start="latest")
    fill(qm, q, 2)
    second = root.acquire(q, "r", start="latest", take_over=True)
    assert second["start"] == first["start"]
    assert second["fence"] > first["fence"]
    root.acknowledge(q, "r", second["fence"], root.info()["horizon"], second["epoch"])
    assert qm.open(q).count() == 3


def test_a_start_may_be_a_number(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 3)
    lease = root.acquire(q, "r", start=2)
    assert lease["start"] == 2
    root.acknowledge(q, "r", lease["fence"], 3, lease["epoch"])
    assert qm.open(q).count() == 2
    with pytest.raises(InvalidParameter, match="earliest, latest, or a number up to"):
        root.acquire(q, "other", start=1 << 40)
    with pytest.raises(InvalidParameter, match="'yesterday': earliest, latest"):
        root.acquire(q, "other", start="yesterday")


def test_a_reader_has_the_queue_to_itself(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 2)
    lease = root.acquire(q, "r")
    with pytest.raises(SharingViolation):
        qm.open(q).receive(0)
    with pytest.raises(SharingViolation):
        root.acquire(q, "another")
    assert qm.open(q).peek(0).body_bytes == b"0"
    root.release(q, "r", lease["fence"])
    queue = qm.open(q)
    assert queue.receive(0).body_bytes == b"0"
    with pytest.raises(SharingViolation):
        root.acquire(q, "another")
    queue.close()
    root.acquire(q, "another")


def test_a_lease_is_held_until_it_runs_out_or_is_taken_over(qm: QueueManager, root: FlightQueues, q: str) -> None:
    first = root.acquire(q, "r")
    with pytest.raises(LeaseHeld, match=r"in use, for another \d+ s"):
        root.acquire(q, "r")
    second = root.acquire(q, "r", take_over=True)
    for call in (root.renew, root.release):
        with pytest.raises(LeaseLost, match="was taken over: its number is 2 now, not 1"):
            call(q, "r", first["fence"])
    with pytest.raises(LeaseLost):
        root.acknowledge(q, "r", first["fence"], 0, first["epoch"])
    assert root.renew(q, "r", second["fence"])["fence"] == second["fence"]


def test_a_lease_that_ran_out_lets_others_receive(
    qm: QueueManager, root: FlightQueues, q: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LEASES", range(1, 100_000))
    fill(qm, q, 2)
    lease = root.acquire(q, "r", lease_ms=1)
    queue = qm.open(q)
    deadline = time.monotonic() + 30
    while True:
        try:
            assert queue.receive(0).body_bytes == b"0"
            break
        except SharingViolation:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    with pytest.raises(LeaseLost, match="another client receives"):
        root.renew(q, "r", lease["fence"])
    queue.close()
    assert root.renew(q, "r", lease["fence"])["fence"] == lease["fence"], "nobody took over"


def test_readers_outlive_the_queue_manager(
    start: Callable[..., QueueManager], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(manager: QueueManager) -> tuple[FlightListener, FlightQueues]:
        listener = FlightListener(runtime_of(manager), FlightSettings(port=0))
        listener.open()
        return listener, FlightQueues(listener.address, user="root", password="secret")

    manager = start()
    runtime_of(manager).users.add("root", "secret", administrator=True)
    manager.create_queue("q")
    fill(manager, "q", 3)
    listener, queues = serve(manager)
    lease = queues.acquire("q", "r", start=1)
    queues.acknowledge("q", "r", lease["fence"], 2, lease["epoch"])
    queues.close()
    listener.close()
    manager.close()
    manager = start()
    listener, queues = serve(manager)
    try:
        with pytest.raises(LeaseHeld):
            queues.acquire("q", "r")
        renewed = queues.renew("q", "r", lease["fence"])
        assert (renewed["start"], renewed["acknowledged"]) == (1, 2)
        with pytest.raises(SharingViolation):
            manager.open("q").receive(0)
        queues.acknowledge("q", "r", lease["fence"], 3, lease["epoch"])
        assert [message.body_bytes for message in manager.open("q")] == [b"0"]
    finally:
        queues.close()
        listener.close()


def test_a_released_reader_continues_at_once_where_it_was(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 3)
    lease = root.acquire(q, "r")
    root.acknowledge(q, "r", lease["fence"], 1, lease["epoch"])
    root.release(q, "r", lease["fence"])
    with pytest.raises(LeaseLost):
        root.renew(q, "r", lease["fence"])
    assert root.acquire(q, "r")["acknowledged"] == 1


def test_a_reader_that_peeks_disturbs_nobody(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 2)
    lease = root.acquire(q, "watcher", mode="peek", start="latest")
    assert root.acquire(q, "watcher", mode="peek", start="latest")["start"] == lease["start"]
    assert qm.open(q).receive(0).body_bytes == b"0"
    with pytest.raises(InvalidParameter, match="only peeks"):
        root.acknowledge(q, "watcher", lease["fence"] + 1, 1, lease["epoch"])


def test_a_forgotten_reader_begins_again(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 2)
    lease = root.acquire(q, "r", start="latest")
    assert root.forget(q, "r")
    assert not root.forget(q, "r")
    with pytest.raises(LeaseLost, match="no reader r"):
        root.renew(q, "r", lease["fence"])
    assert root.acquire(q, "r")["start"] == 0


def test_acknowledging_is_receiving(qm: QueueManager, root: FlightQueues) -> None:
    """Target journals and acknowledgments come as for any receive."""
    qm.create_queue("j", journal=True)
    qm.create_queue("admin")
    qm.open("j").send(Message(body=b"a", recoverable=True, acknowledge="full_receive", administration_queue="admin"))
    lease = root.acquire("j", "r")
    root.acknowledge("j", "r", lease["fence"], root.info()["horizon"], lease["epoch"])
    assert [message.body_bytes for message in qm.open("j").journal] == [b"a"]
    assert qm.open("admin").count() == 1


def test_many_messages_are_acknowledged_in_slices(
    qm: QueueManager, root: FlightQueues, q: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ACKNOWLEDGE_AT_ONCE", 4)
    fill(qm, q, 10)
    lease = root.acquire(q, "r")
    assert root.acknowledge(q, "r", lease["fence"], 9, lease["epoch"])["removed"] == 9
    assert [message.body_bytes for message in qm.open(q)] == [b"9"]


def test_an_acknowledgment_that_ends_halfway_continues_from_there(
    qm: QueueManager, root: FlightQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice moves the mark behind what it removes, in one commit."""
    monkeypatch.setattr(readers, "ACKNOWLEDGE_AT_ONCE", 10)
    monkeypatch.setattr(readers, "SYNC_EVERY", 20)
    queue = qm.create_queue("j", journal=True)
    fill(qm, "j", 95)
    lease = root.acquire("j", "r")
    slices: list[int] = []
    remove = readers.Readers._remove

    def failing(self: readers.Readers, descriptor: OpenQueueDescriptor, after: int, upto: int) -> tuple[int, int]:
        if len(slices) == 4:
            raise InvalidParameter("the end of it")
        slices.append(after)
        return remove(self, descriptor, after, upto)

    with monkeypatch.context() as patch:
        patch.setattr(readers.Readers, "_remove", failing)
        with pytest.raises(InvalidParameter, match="the end of it"):
            root.acknowledge("j", "r", lease["fence"], 95, lease["epoch"])
    assert (queue.count(), queue.journal.count()) == (55, 40)
    again = root.acquire("j", "r", take_over=True)
    assert again["acknowledged"] == 40
    done = root.acknowledge("j", "r", again["fence"], 95, again["epoch"])
    assert (done["removed"], done["acknowledged"]) == (55, 95)
    assert (queue.count(), queue.journal.count()) == (0, 95)


def test_others_have_their_turn_while_many_messages_are_acknowledged(
    qm: QueueManager, root: FlightQueues, q: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ACKNOWLEDGE_AT_ONCE", 5)
    fill(qm, q, 50)
    lease = root.acquire(q, "r")
    held: list[bool] = []
    checked = readers.Readers._checked

    def looking(self: readers.Readers, *arguments: Any) -> Any:  # noqa: ANN401 (passed on)
        # Before each slice no other thread has the lock except for this look.
        held.append(runtime_of(qm).lock.is_mine)
        return checked(self, *arguments)

    monkeypatch.setattr(readers.Readers, "_checked", looking)
    assert root.acknowledge(q, "r", lease["fence"], 50, lease["epoch"])["removed"] == 50
    assert len(held) == 11, "ten slices, and the end"


def test_what_expired_or_was_purged_meanwhile_is_no_error(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 3)
    lease = root.acquire(q, "r")
    with runtime_of(qm).lock:
        queue = operations_of(qm).find(q)
        lookup_id = runtime_of(qm).store.next(queue.number, -1)
        assert lookup_id is not None
        record = runtime_of(qm).store.get(queue.number, lookup_id)
        assert record is not None
        runtime_of(qm).store.delete(queue.number, lookup_id, record)
    assert root.acknowledge(q, "r", lease["fence"], 3, lease["epoch"])["removed"] == 2


def test_a_message_that_was_moved_away_and_back_meanwhile_is_another_one(
    qm: QueueManager, root: FlightQueues, q: str
) -> None:
    """The message has a new number and comes again.

    An acknowledgment under the old number must not remove it.
    """
    fill(qm, q, 1)
    named = readers.Readers(runtime_of(qm))
    lease = named.acquire(operations_of(qm), q, "r")
    [message] = qm.open(q)
    try:
        with runtime_of(qm).lock:
            names = (qm.names.format_name(name) for name in (q, f"{q};retry"))
            here, there = (operations_of(qm).open(name, QueueAccessType.MOVE) for name in names)
            for source, target in ((here, there), (there, here)):
                operations_of(qm).move(source, message.lookup_id, target, None)
            assert named.acknowledge(operations_of(qm), q, "r", lease.fence, 1).removed == 0
    finally:
        named.close()
    assert bodies(root.table(q)) == [b"0"]


def test_numbers_that_were_never_shown_cannot_be_acknowledged(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 1)
    lease = root.acquire(q, "r")
    with pytest.raises(InvalidParameter, match="nothing beyond 1 was shown"):
        root.acknowledge(q, "r", lease["fence"], 2, lease["epoch"])
    with pytest.raises(EpochChanged):
        root.acknowledge(q, "r", lease["fence"], 1, lease["epoch"] ^ 1)
    with pytest.raises(InvalidParameter, match="epoch = None"):
        root.act("acknowledge", queue=q, reader="r", fence=1, upto=1)
    assert qm.open(q).count() == 1


def test_messages_that_come_while_a_reader_works_are_kept(qm: QueueManager, root: FlightQueues, q: str) -> None:
    """Senders continue during acknowledgments; every message is read once and none is lost."""
    stop = threading.Event()
    sent: list[bytes] = []

    def send() -> None:
        queue = qm.open(q)
        while not stop.is_set() and len(sent) < 2000:
            some = [b"%d" % number for number in range(len(sent), len(sent) + 7)]
            queue.send_many(Message(body=body, recoverable=len(sent) % 2 == 0, priority=len(sent) % 8) for body in some)
            sent.extend(some)

    sender = threading.Thread(target=send)
    sender.start()
    lease = root.acquire(q, "r")
    at = 0
    found: list[bytes] = []
    try:
        while len(found) < 1000:
            [part] = root.poll([{"queue": q, "after": at, "max_messages": 50}], 1000)
            found += bodies(root.table(q, after=at, upto=part["upto"]))
            at = part["upto"]
            root.acknowledge(q, "r", lease["fence"], at, lease["epoch"])
    finally:
        stop.set()
        sender.join()
    [part] = root.poll([{"queue": q, "after": at}])
    found += bodies(root.table(q, after=at, upto=part["upto"])) if part["messages"] else []
    root.acknowledge(q, "r", lease["fence"], part["upto"], lease["epoch"])
    assert sorted(found) == sorted(sent)
    root.release(q, "r", lease["fence"])
    with pytest.raises(IOTimeout):
        qm.open(q).receive(0)


def test_a_reader_belongs_to_whoever_made_it(qm: QueueManager, connect: Connect, root: FlightQueues, q: str) -> None:
    grant(qm, q, runtime_of(qm).users.sid("alice"), QueueAccess.RECEIVE_MESSAGE)
    alice, bob = connect("alice", "wonder"), connect("bob", "builder")
    lease = alice.acquire(q, "r")
    with pytest.raises(AccessDenied):
        bob.acquire(q, "r2")
    with pytest.raises(AccessDenied, match="made by another user than bob"):
        bob.renew(q, "r", lease["fence"])
    with pytest.raises(AccessDenied):
        bob.forget(q, "r")
    assert root.forget(q, "r"), "an administrator may"


def test_peeking_is_not_receiving(qm: QueueManager, connect: Connect, q: str) -> None:
    grant(qm, q, runtime_of(qm).users.sid("alice"), QueueAccess.PEEK_MESSAGE)
    alice = connect("alice", "wonder")
    with pytest.raises(AccessDenied):
        alice.acquire(q, "r")
    alice.acquire(q, "r", mode="peek")


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"reader": "x" * 201}, "1 to 200 bytes, not 201"),
        ({"reader": ""}, "reader = ''"),
        ({"mode": "steal"}, "mode = 'steal': receive or peek expected"),
        ({"lease_ms": 999}, "a lease of 999 ms: 1000 to 3600000"),
        ({"lease_ms": 3_600_001}, "a lease of 3600001 ms"),
        ({"take_over": 1}, "take_over = 1: true or false"),
        ({"lease": 1}, "unknown key 'lease'"),
    ],
)
def test_a_bad_request_is_reported(root: FlightQueues, q: str, request_: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidParameter, match=complaint):
        root.act("acquire", **({"queue": q, "reader": "r"} | request_))
    assert root.act("acquire", queue=q, reader="x" * 200, lease_ms=1000)["fence"] == 1


def test_readers_of_a_deleted_queue_are_gone_with_it(qm: QueueManager, root: FlightQueues, q: str) -> None:
    fill(qm, q, 1)
    lease = root.acquire(q, "r")
    qm.delete_queue(q)
    with pytest.raises(QueueNotFound):
        root.renew(q, "r", lease["fence"])
    qm.create_queue(q)
    with pytest.raises(LeaseLost, match="no reader r"):
        root.acknowledge(q, "r", lease["fence"], 1, lease["epoch"])
    with runtime_of(qm).lock:
        again = readers.Readers(runtime_of(qm))
        assert [key for key, _ in again._table.items()] == []
    again.close()


def test_a_user_has_so_many_readers(
    qm: QueueManager, root: FlightQueues, q: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a row on the disk, for as long as the queue is there."""
    monkeypatch.setattr(readers, "MAX_READERS", 3)
    for name in ("a", "b", "c"):
        root.acquire(q, name, mode="peek")
    with pytest.raises(InsufficientResources, match="named readers"):
        root.acquire(q, "d", mode="peek")
    # One that is known goes on, and one that is forgotten makes room.
    assert root.acquire(q, "a", mode="peek")["fence"] == 2
    assert root.forget(q, "b")
    assert not root.forget(q, "b")
    root.acquire(q, "d", mode="peek")
    with pytest.raises(InsufficientResources, match="named readers"):
        root.acquire(q, "b", mode="peek")
    assert qm.open(q).count() == 0
