"""A two-phase read whose handle closes before the read ends.

The message returns to the queue (DECISIONS).
"""

from __future__ import annotations

import pytest

from lanner.model.enums import QueueAccessType
from lanner.model.errors import QueueNotAvailable
from tests.engine.harness import Harness, Reader, at_once, body_of


def test_closing_the_handle_gives_the_message_back(h: Harness) -> None:
    h.create()
    h.send(body=b"x")
    handle = h.open()
    position = at_once(h.engine.dequeue_message_begin(handle, timeout=0))
    assert h.receive() is None
    h.engine.close_queue(handle)
    with pytest.raises(QueueNotAvailable):
        h.engine.dequeue_message_end(handle, position, delete_message=True)
    assert h.receive() == b"x"


def test_a_reader_that_waits_elsewhere_gets_it(h: Harness) -> None:
    h.create()
    first, second = h.open(), h.open()
    taken, waiting = Reader(), Reader()
    h.engine.dequeue_message_begin(first, on_end=taken)
    h.engine.dequeue_message(second, on_end=waiting)
    h.send(body=b"x")
    assert (taken.body, waiting.body) == (b"x", None)
    h.engine.close_queue(first)
    assert waiting.body == b"x"
    assert h.queue().message_count == 0


def test_what_was_ended_is_left_alone(h: Harness) -> None:
    h.create()
    for body in (b"kept", b"refused", b"open"):
        h.send(body=body)
    handle = h.open()
    positions = [at_once(h.engine.dequeue_message_begin(handle, timeout=0)) for _ in range(3)]
    h.engine.dequeue_message_end(handle, positions[0], delete_message=True)
    h.engine.dequeue_message_end(handle, positions[1], delete_message=False)
    other = h.open()
    again = at_once(h.engine.dequeue_message_begin(other, timeout=0))
    assert body_of(again) == b"refused"
    h.engine.close_queue(handle)
    # The refused one is another reader's now.
    assert h.bodies() == [b"open"]
    h.engine.dequeue_message_end(other, again, delete_message=True)
    assert h.bodies() == [b"open"]


def test_a_purge_meanwhile_takes_it_away(h: Harness) -> None:
    """DECISIONS: a message purged while locked goes when the lock ends without a receive."""
    queue = h.create()
    h.send(body=b"x")
    handle = h.open()
    h.engine.dequeue_message_begin(handle, timeout=0)
    h.engine.purge_queue(queue)
    h.engine.close_queue(handle)
    assert (h.bodies(), queue.message_count, queue.total_bytes) == ([], 0, 0)


def test_a_deleted_queue_has_nothing_to_give_back(h: Harness) -> None:
    queue = h.create()
    h.send(body=b"x")
    handle = h.open()
    h.engine.dequeue_message_begin(handle, timeout=0)
    h.engine.delete_queue(queue)
    h.engine.close_queue(handle)
    h.create()
    assert h.bodies() == []


def test_a_stop_gives_everything_back(h: Harness) -> None:
    h.create()
    h.send(body=b"x")
    h.engine.dequeue_message_begin(h.open(access=QueueAccessType.RECEIVE), timeout=0)
    h.restart()
    assert h.bodies() == [b"x"]
