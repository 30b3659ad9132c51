"""Subqueues that end when they are unused: those that an open through MS-MQRR has created."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from lanner.model.enums import QueueAccessType
from lanner.model.errors import QueueNotFound
from lanner.model.live import OpenQueueDescriptor
from tests.engine.harness import Harness

SUBQUEUE: Final = "q;sub"
MOVE, PEEK = QueueAccessType.MOVE, QueueAccessType.PEEK


@pytest.fixture
def q(h: Harness) -> OpenQueueDescriptor:
    """A transactional queue, open for moves."""
    h.create(transactional=True)
    return h.open(access=MOVE)


def opened(h: Harness, access: QueueAccessType = MOVE) -> OpenQueueDescriptor:
    """Open the subqueue as MS-MQRR does."""
    return h.engine.open_queue(h.name(SUBQUEUE), access, ends_when_unused=True)


def is_there(h: Harness) -> bool:
    try:
        return h.queue(SUBQUEUE) is h.queue().subqueues["sub"]
    except QueueNotFound:
        assert h.queue().subqueues == {}
        return False


def sent(h: Harness, body: bytes = b"a", **properties: Any) -> int:
    unit = h.begin()
    h.send(body=body, transaction=unit, **properties)
    h.commit(unit)
    return h.lookup_ids()[body]


def moved_there(h: Harness, q: OpenQueueDescriptor, **properties: Any) -> OpenQueueDescriptor:
    """Have a message in the subqueue; return the handle."""
    handle = opened(h)
    unit = h.begin()
    h.engine.move_message_by_lookup_identifier(q, sent(h, **properties), handle, unit)
    h.commit(unit)
    return handle


@pytest.mark.usefixtures("q")
@pytest.mark.parametrize("access", [MOVE, PEEK, QueueAccessType.RECEIVE])
def test_the_last_handle_ends_an_empty_one(h: Harness, access: QueueAccessType) -> None:
    first, second = opened(h, access), opened(h, PEEK)
    h.engine.close_queue(first)
    assert is_there(h)
    h.engine.close_queue(second)
    assert not is_there(h)
    h.engine.close_queue(opened(h, access))
    assert not is_there(h)


@pytest.mark.usefixtures("q")
def test_one_that_lanner_has_opened_stays(h: Harness) -> None:
    handle = opened(h)
    h.engine.close_queue(h.open(SUBQUEUE, PEEK))
    h.engine.close_queue(handle)
    h.engine.close_queue(opened(h))
    h.tick(1)
    assert is_there(h)
    h.restart()
    assert is_there(h)


def test_messages_keep_it(h: Harness, q: OpenQueueDescriptor) -> None:
    h.engine.close_queue(moved_there(h, q))
    h.tick(1)
    h.restart()
    assert is_there(h)
    assert h.lookup_ids(SUBQUEUE).keys() == {b"a"}


def received(h: Harness) -> None:
    """Close the handle while the transaction holds the message."""
    handle, unit = opened(h, QueueAccessType.RECEIVE), h.begin()
    h.engine.dequeue_message(handle, timeout=0, transaction=unit)
    h.engine.close_queue(handle)
    h.tick(1)
    assert is_there(h)
    h.commit(unit)


def moved_back(h: Harness) -> None:
    source, target, unit = opened(h), h.open(access=MOVE), h.begin()
    h.engine.move_message_by_lookup_identifier(source, h.lookup_ids(SUBQUEUE)[b"a"], target, unit)
    h.engine.close_queue(source)
    h.commit(unit)


def purged(h: Harness) -> None:
    assert h.engine.purge_queue(h.queue(SUBQUEUE)) == 1


def expired(h: Harness) -> None:
    h.tick(100)


@pytest.mark.parametrize("leave", [received, moved_back, purged, expired])
def test_one_that_is_emptied_without_a_handle_ends(
    h: Harness, q: OpenQueueDescriptor, leave: Callable[[Harness], None]
) -> None:
    h.engine.close_queue(moved_there(h, q, time_to_be_received=50 if leave is expired else 1000))
    leave(h)
    assert h.engine.next_delay() == 0 or leave is expired
    h.tick(0)
    assert not is_there(h)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_move_that_is_not_committed_keeps_it(h: Harness, q: OpenQueueDescriptor, *, is_committed: bool) -> None:
    handle, unit = opened(h), h.begin()
    h.engine.move_message_by_lookup_identifier(q, sent(h), handle, unit)
    h.engine.close_queue(handle)
    h.tick(1)
    assert is_there(h)
    (h.commit if is_committed else h.abort)(unit)
    h.tick(1)
    assert is_there(h) is is_committed
    assert h.lookup_ids(SUBQUEUE if is_committed else "q").keys() == {b"a"}


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_start_ends_those_that_nobody_uses(h: Harness, q: OpenQueueDescriptor, *, is_crash: bool) -> None:
    moved_there(h, q)
    other = h.engine.open_queue(h.name("q;other"), MOVE, ends_when_unused=True)
    assert other.queue is not None
    h.sync()
    (h.crash if is_crash else h.restart)()
    assert h.queue().subqueues.keys() == {"sub"}
