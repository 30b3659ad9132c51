"""What networks of processes found, each as small as it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transfer.outgoing import Outgoing
from tests.transfer.world import World


@pytest.fixture
def outgoing(tmp_path: Path) -> Iterator[Outgoing]:
    harness = Outgoing(tmp_path / "data")
    yield harness
    harness.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_an_order_ack_ends_a_message_that_was_offered_to_a_session_and_not_yet_sent(outgoing: Outgoing) -> None:
    """It had been sent on the session before. Sent again, it would have been numbered after itself."""
    outgoing.say(b"1", b"2", b"3", transactional=True)
    outgoing.transmit()
    outgoing.table.session_opened()
    outgoing.table.peek_priority()
    assert outgoing.order_ack(3)
    assert outgoing.transmit() == []
    assert outgoing.waiting == []


def test_a_peer_that_only_acknowledges_is_not_held_back(world: World) -> None:
    """Its bytes were counted as waiting to be processed, so after a few million messages nothing was read from it any more."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    for _ in range(20):
        alpha.send(beta.direct("q"), b"one")
        alpha.sync()
        world.tick(1)
    link = alpha.route(beta.direct("q")).link
    assert link is not None
    assert link._unsettled_bytes == 0
    assert not link._unsettled
