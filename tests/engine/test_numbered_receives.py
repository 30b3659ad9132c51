"""Receives of messages by lookup id and visibility number, as a reader acknowledges them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.engine import positions
from lanner.model.enums import MessageClass, QueueAccessType
from lanner.model.errors import LannerError
from tests.engine.harness import Harness

RECEIVED = MessageClass.ACK_RECEIVE


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data")
    yield harness
    harness.close()


def index(h: Harness, name: str = "q", after: int = 0) -> dict[int, int]:
    """Return the visibility numbers of the messages in a queue, by lookup id, in their order."""
    h.sync()
    h.checkpoint()
    queue = h.queue(name)
    return {lookup_id: number for number, lookup_id, _ in h.store.index(queue.number, after, h.store.scan_horizon)}


def test_the_named_messages_are_received_in_the_order_of_their_numbers(h: Harness) -> None:
    queue = h.create(journaling=True)
    for number, priority in enumerate((3, 7, 0, 3, 7)):
        h.send(body=b"%d" % number, priority=priority)
    numbers = index(h)
    removals = h.removals()
    chosen = dict(list(numbers.items())[:4])
    assert h.engine.dequeue_numbered_messages(h.open(), chosen) == 4
    assert removals == [(b"%d" % number, RECEIVED) for number in range(4)]
    assert h.bodies() == [b"4"]
    # A journal has the order of priorities, too.
    assert h.bodies(r"DIRECT=OS:.\private$\q;journal") == [b"1", b"0", b"3", b"2"]
    assert (queue.message_count, h.engine.dequeue_numbered_messages(h.open(), chosen)) == (1, 0)
    assert h.engine.dequeue_numbered_messages(h.open(), {}) == 0


def test_what_another_reader_has_or_had_is_passed_over(h: Harness) -> None:
    h.create(transactional=True)
    sending = h.begin()
    for body in (b"held", b"returned", b"free"):
        h.send(body=body, transaction=sending)
    h.commit(sending)
    numbers = index(h)
    aborted, holding = h.begin(), h.begin()
    assert h.receive(transaction=holding) == b"held"
    assert h.receive(transaction=aborted) == b"returned"
    h.abort(aborted)
    assert h.engine.dequeue_numbered_messages(h.open(), numbers) == 1
    h.abort(holding)
    assert h.bodies() == [b"held", b"returned"]
    # Both have new numbers now.
    assert h.engine.dequeue_numbered_messages(h.open(), numbers) == 0
    assert h.engine.dequeue_numbered_messages(h.open(), index(h)) == 2


def test_express_and_logged_messages_are_received_too(h: Harness) -> None:
    h.create()
    h.send(body=b"in the database")
    index(h)
    h.send(body=b"logged")
    h.send(body=b"express", recoverable=False)
    h.sync()
    queue = h.queue()
    numbers = {lookup_id: number for number, lookup_id, _ in h.store.index(queue.number, 0, h.store.scan_horizon)}
    lookup_ids = h.lookup_ids()
    for lookup_id in lookup_ids.values():
        record = h.store.get(queue.number, lookup_id)
        assert record is not None
        numbers.setdefault(lookup_id, record.visibility)
    assert h.engine.dequeue_numbered_messages(h.open(), numbers) == 3
    h.sync()
    h.crash()
    assert h.bodies() == []


def test_only_a_receiver_may_do_it(h: Harness) -> None:
    h.create()
    h.send(body=b"stays")
    with pytest.raises(LannerError):
        h.engine.dequeue_numbered_messages(h.open(access=QueueAccessType.PEEK), index(h))
    assert h.bodies() == [b"stays"]


@pytest.mark.parametrize("seed", range(8))
def test_any_choice_leaves_the_rest_as_it_was(h: Harness, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the priorities, sizes and numbers are: what is left and all totals are right."""
    source = random.Random(seed)
    monkeypatch.setattr(positions, "_RUN_BYTES", 3000)  # so that runs are cut off
    queue = h.create()
    for number in range(60):
        body = b"%d " % number + bytes(source.choice((0, 100, 1500)))
        h.send(body=body, priority=source.choice((0, 3, 3, 3, 7)), recoverable=source.random() < 0.9)
        if source.random() < 0.1:
            h.sync()
        if source.random() < 0.05:
            h.checkpoint()
    h.sync()
    present = dict(h.lookup_ids())
    records = {lookup_id: h.store.get(queue.number, lookup_id) for lookup_id in present.values()}
    numbers = {i: record.visibility for i, record in records.items() if record is not None}
    chosen = {i: number for i, number in sorted(numbers.items(), key=lambda one: one[1]) if source.random() < 0.5}
    stale = set(source.sample(sorted(chosen), 5))
    asked = {i: number + (i in stale) * 1_000_000 for i, number in chosen.items()} | {1 << 60: 5}
    gone = chosen.keys() - stale
    left = [body for body, i in present.items() if i not in gone]
    assert h.engine.dequeue_numbered_messages(h.open(), asked) == len(gone)
    assert h.bodies() == left
    packets = [record.packet for i, record in records.items() if record is not None and i not in gone]
    assert (queue.message_count, queue.total_bytes) == (len(left), sum(map(len, packets)))
    h.sync()
    assert h.store.stats(queue.number) == (queue.message_count, queue.total_bytes)
    assert h.receive() == (left[0] if left else None)
