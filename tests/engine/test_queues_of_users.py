"""How many outgoing queues one user may have: any name of a computer makes one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.model.errors import InsufficientResources
from lanner.model.live import OpenQueueDescriptor
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.wire.format_name import parse
from lanner.wire.sid import Sid
from tests.engine.harness import Harness

BOB = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1001"))
LIMIT = 3


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data")
    harness.engine.outgoing.max_per_user = LIMIT
    yield harness
    harness.close()


def opened(h: Harness, number: int, identity: Identity = BOB) -> OpenQueueDescriptor:
    name = parse(rf"DIRECT=TCP:192.0.2.{number}\private$\q")
    with h.store.lock:
        return h.engine.open_queue(name, QueueAccessType.SEND, QueueShareMode.DENY_NONE, identity)


def test_a_user_has_so_many_and_nobody_else_fewer(h: Harness) -> None:
    asked: list[None] = []
    h.engine.outgoing.full_subscribers.append(lambda: asked.append(None))
    for number in range(LIMIT):
        opened(h, number)
    with pytest.raises(
        InsufficientResources, match=r"192\.0\.2\.9.*3 outgoing queues for messages of bob.*max_queues_per_user"
    ):
        opened(h, 9)
    assert asked, "those that are empty may be removed"
    opened(h, 0)
    opened(h, 10, ANONYMOUS)
    for number in range(20, 25):
        opened(h, number, SYSTEM)
    opened(h, 20)


def test_they_count_after_a_restart_until_they_are_removed(h: Harness) -> None:
    for number in range(LIMIT):
        h.engine.close_queue(opened(h, number))
    h.sync()
    h.restart()
    h.engine.outgoing.max_per_user = LIMIT
    with pytest.raises(InsufficientResources):
        opened(h, 9)
    (first, *_) = h.engine.outgoing_queues()
    with h.store.lock:
        assert h.engine.remove_idle_outgoing_queue(first)
    opened(h, 9)
    with pytest.raises(InsufficientResources):
        opened(h, 10)
