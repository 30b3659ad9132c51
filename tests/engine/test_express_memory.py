"""The memory limit of express messages.

The count stays right whatever happens to them, and sends beyond the limit are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.engine.express_memory import ExpressMemory
from lanner.model.enums import EnqueueStatus, QueueAccessType
from lanner.model.errors import InsufficientResources
from lanner.model.live import START
from lanner.store.queue_view import EXPRESS_OVERHEAD
from tests.engine.harness import Harness

MIB = 1 << 20
ELSEWHERE = r"DIRECT=TCP:192.0.2.7\private$\q"


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", express_memory=32 * MIB)
    yield harness
    harness.close()


def send(h: Harness, name: str = "q", size: int = MIB, **properties: object) -> EnqueueStatus:
    return h.send(name, bytes(size), recoverable=False, **properties)  # type: ignore[arg-type] # the test's own choice


def counted(h: Harness) -> int:
    """Return the memory of the messages in all queues, found by reading them."""
    total = 0
    with h.store.lock:
        for number in h.engine.queue_manager.queue_collection:
            after = START
            while (lookup_id := h.store.next(number, after)) is not None:
                after = lookup_id
                record = h.store.get(number, lookup_id)
                if record is not None and h.store.is_express(number, lookup_id):
                    total += len(record.packet) + EXPRESS_OVERHEAD
    return total


def used(h: Harness) -> int:
    found = h.engine.express_memory.used
    assert found == counted(h)
    return found


def fill(h: Harness, name: str = "q") -> int:
    """Send until it is refused; how many were taken."""
    for count in range(100):
        try:
            send(h, name)
        except InsufficientResources:
            return count
    raise AssertionError("there is no limit")


def test_what_is_sent_beyond_the_limit_is_refused_and_says_why(h: Harness) -> None:
    h.create()
    assert fill(h) == 31
    with pytest.raises(InsufficientResources) as raised:
        send(h)
    assert raised.value.args[0] == (
        "the memory for express messages is full: limit 32 MiB by quota.express_mb, used 31 MiB, message 1025 KiB; "
        "receive or purge messages, send recoverable ones, or raise the limit"
    )
    assert used(h) <= 32 * MIB
    assert h.engine.express_memory.refused == 2
    # Recoverable ones are on the disk.
    assert h.send("q", bytes(MIB)) is EnqueueStatus.OK
    h.receive()
    assert send(h) is EnqueueStatus.OK


def test_without_a_limit_all_are_taken(tmp_path: Path) -> None:
    h = Harness(tmp_path / "data", express_memory=None)
    h.create()
    for _ in range(40):
        assert send(h) is EnqueueStatus.OK
    h.close()


def test_messages_to_other_computers_leave_room_for_those_that_arrive(h: Harness) -> None:
    """Otherwise two queue managers full of messages for each other would wait forever."""
    h.create()
    assert fill(h, ELSEWHERE) == 23
    with pytest.raises(InsufficientResources, match="express messages to other computers is full: limit 24 MiB"):
        send(h, ELSEWHERE)
    assert fill(h) == 8


def test_receives_and_aborts_are_counted(h: Harness) -> None:
    h.create()
    send(h)
    send(h, size=100)
    before = used(h)
    transaction = h.begin()
    h.receive(transaction=transaction)
    assert used(h) == before
    h.abort(transaction)
    assert used(h) == before
    h.receive()
    assert 0 < used(h) < MIB
    h.receive()
    assert used(h) == 0


def test_a_purge_and_a_deleted_queue_are_counted(h: Harness) -> None:
    for name in ("q", "r"):
        h.create(name)
        send(h, name)
        send(h, name)
    h.engine.purge_queue(h.queue("q"))
    assert 2 * MIB < used(h) < 3 * MIB
    h.engine.delete_queue(h.queue("r"))
    assert used(h) == 0


def test_expired_messages_are_counted(h: Harness) -> None:
    h.create()
    send(h, time_to_be_received=10)
    h.tick(60)
    assert h.bodies() == []
    assert used(h) == 0


def test_moves_and_copies_are_counted(h: Harness) -> None:
    h.create("q", journaling=True)
    send(h)
    before = used(h)
    (lookup_id,) = h.lookup_ids("q").values()
    source, target = (h.open(name, QueueAccessType.MOVE) for name in ("q", "q;sub"))
    h.engine.move_message_by_lookup_identifier(source, lookup_id, target)
    assert used(h) == before
    h.receive("q;sub")
    assert used(h) == 0
    send(h)
    h.receive("q")
    # The copy in the journal.
    assert used(h) == before


def test_a_restart_begins_with_nothing(h: Harness) -> None:
    h.create()
    fill(h)
    h.sync()
    h.restart()
    assert used(h) == 0
    assert fill(h) == 31


def test_a_shortage_ends_when_there_is_room_for_the_largest_message(h: Harness) -> None:
    h.create()
    memory: ExpressMemory = h.engine.express_memory
    fill(h)
    with pytest.raises(InsufficientResources) as raised:
        send(h)
    assert not memory.begin_shortage(InsufficientResources("a quota"))
    assert memory.begin_shortage(raised.value)
    h.receive()
    # There is room for it, but a message of a peer waits.
    with pytest.raises(InsufficientResources, match=r"is full, and messages of other computers wait for it: limit 32"):
        send(h)
    while memory.used > 28 * MIB:
        assert not memory.end_shortage()
        h.receive()
    assert memory.end_shortage()
    assert not memory.is_short
    assert send(h, size=4 * MIB - 1000) is EnqueueStatus.OK


def test_another_limit_counts_at_once(h: Harness) -> None:
    h.create()
    memory = h.engine.express_memory
    fill(h)
    with pytest.raises(InsufficientResources) as raised:
        send(h)
    memory.begin_shortage(raised.value)
    memory.set_limit(None)
    assert memory.end_shortage()
    assert send(h) is EnqueueStatus.OK
    memory.set_limit(32 * MIB)
    with pytest.raises(InsufficientResources):
        send(h)
