"""A queue manager that an operator has taken offline, as transfer sees it.

MS-MQDMPR 3.1.4.12 and 3.1.4.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.enums import OutgoingState
from tests.transfer.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.node("ALPHA", "127.0.0.2")
    world.node("BETA", "127.0.0.3").create("q")
    yield world
    world.close()


def test_offline_nothing_leaves_and_a_session_ends(world: World) -> None:
    alpha, beta = world.nodes.values()
    alpha.send(beta.direct("q"), b"1", recoverable=False)
    world.run()
    assert beta.bodies() == [b"1"]
    world.tick(11)
    assert world.connections
    alpha.engine.take_offline()
    world.run()
    assert not world.connections
    alpha.send(beta.direct("q"), b"2", recoverable=False)
    world.tick(120)
    assert beta.bodies() == [b"1"]
    queue = alpha.outgoing(beta.direct("q"))
    assert (queue.state, queue.message_count) == (OutgoingState.DISCONNECTED, 1)
    assert not world.connections
    alpha.engine.bring_online()
    world.run()
    assert beta.bodies() == [b"1", b"2"]
    assert queue.state is OutgoingState.CONNECTED


def test_offline_nothing_comes_in_and_pings_are_refused(world: World) -> None:
    alpha, beta = world.nodes.values()
    beta.engine.take_offline()
    world.run()
    assert not beta.transfer.would_accept
    assert not beta.transfer.accepts("127.0.0.2")
    alpha.send(beta.direct("q"), b"1", recoverable=False)
    world.tick(30)
    assert beta.bodies() == []
    beta.engine.bring_online()
    world.tick(120)
    assert beta.bodies() == [b"1"]


def test_local_queues_work_offline(world: World) -> None:
    alpha, _ = world.nodes.values()
    alpha.create("here")
    alpha.engine.take_offline()
    world.run()
    alpha.send("here", b"1")
    assert alpha.receive("here") == b"1"


def test_an_attempt_under_way_when_it_goes_offline_comes_to_nothing(world: World) -> None:
    alpha, beta = world.nodes.values()
    for steps in range(6):
        alpha.send(beta.direct("q"), b"1", recoverable=False)
        for _ in range(steps):
            if world._soon:
                world._soon.popleft()()
        alpha.engine.take_offline()
        world.run()
        assert not world.connections, f"after {steps} steps"
        before = len(beta.bodies())
        world.tick(60)
        assert len(beta.bodies()) == before
        alpha.engine.bring_online()
        world.run()
        assert len(beta.bodies()) == steps + 1


def test_a_queue_on_hold_stays_so(world: World) -> None:
    alpha, beta = world.nodes.values()
    alpha.send(beta.direct("q"), b"1", recoverable=False)
    queue = alpha.outgoing(beta.direct("q"))
    alpha.engine.pause_queue(queue)
    alpha.engine.take_offline()
    world.run()
    alpha.engine.bring_online()
    world.tick(60)
    assert queue.state is OutgoingState.ON_HOLD
    assert beta.bodies() == []


def test_a_repeated_notification_is_reported_once(world: World) -> None:
    alpha, _ = world.nodes.values()
    told: list[bool] = []
    alpha.engine.connection_active_subscribers.append(lambda: told.append(True))
    alpha.engine.bring_online()
    assert told == []
    alpha.engine.take_offline()
    alpha.engine.take_offline()
    assert told == [True]
