"""An unforeseen error ends the session in which it occurs and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.transfer import outgoing_message_table
from tests.overlay import overlay
from tests.transfer.world import Node, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


class Failing:
    """In place of a method: fails once, then does what it did."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.failed = 0
        self._method = method

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (whatever the method has)
        if self.failed == 0:
            self.failed += 1
            raise RuntimeError("nobody has foreseen this")
        return self._method(*arguments, **named)


@pytest.fixture
def network(world: World) -> tuple[Node, Node, Node]:
    """ALPHA and GAMMA have sessions with BETA."""
    alpha, beta, gamma = (world.node(name, f"127.0.0.{i}") for i, name in enumerate(("ALPHA", "BETA", "GAMMA"), 2))
    beta.create("q")
    for node in (alpha, gamma):
        node.send(beta.direct("q"), b"first")
        node.sync()
    world.tick(2)
    return alpha, beta, gamma


def test_a_message_that_cannot_be_processed_ends_one_session_and_comes_again(
    world: World,
    network: tuple[Node, Node, Node],
    caplog: pytest.LogCaptureFixture,
) -> None:
    alpha, beta, gamma = network
    kept = gamma.route(beta.direct("q")).link
    failing = Failing(beta.engine.insert_message)
    beta.transfer.incoming._engine = overlay(beta.engine, insert_message=failing)
    with caplog.at_level(logging.ERROR):
        alpha.send(beta.direct("q"), b"second")
        alpha.sync()
        world.tick(120, step=1)
    assert failing.failed == 1
    assert "an error of ours ends the session with 127.0.0.2" in caplog.text
    assert beta.queue("q").message_count == 3
    assert kept is not None
    assert not kept.is_closed


@pytest.mark.parametrize("method", ["next_unsent", "session_acked"])
def test_a_queue_that_cannot_be_sent_from_begins_again(
    world: World, network: tuple[Node, Node, Node], method: str
) -> None:
    alpha, beta, _ = network
    route = alpha.route(beta.direct("q"))
    failing = Failing(getattr(route.table, method))
    route.table = overlay(route.table, **{method: failing})
    alpha.send(beta.direct("q"), b"second")
    alpha.sync()
    world.tick(120, step=1)
    assert failing.failed == 1
    assert alpha.outgoing(beta.direct("q")).message_count == 0
    assert beta.queue("q").message_count == 3


def test_a_timer_that_fails_does_not_keep_those_of_others_from_running(
    world: World, network: tuple[Node, Node, Node]
) -> None:
    alpha, beta, gamma = network
    link = next(iter(beta.transfer.links.values()))
    failing = Failing(link.session.on_timer)
    link.session = overlay(link.session, on_timer=failing)
    for node in (alpha, gamma):
        node.send(beta.direct("q"), b"second")
        node.sync()
    world.tick(120, step=1)
    assert failing.failed == 1
    assert beta.queue("q").message_count == 4
    for node in (alpha, gamma):
        assert node.outgoing(beta.direct("q")).message_count == 0


@pytest.mark.parametrize(
    ("method", "transactional"), [("messages_delivered", False), ("messages_await_final_ack", True)]
)
def test_what_is_delivered_leaves_though_that_failed_once(
    world: World,
    network: tuple[Node, Node, Node],
    method: str,
    *,
    transactional: bool,
) -> None:
    """It is acknowledged, so it would never be sent again."""
    alpha, beta, _ = network
    beta.create("tx", transactional=True)
    there = beta.direct("tx" if transactional else "q")
    failing = Failing(getattr(alpha.engine, method))
    if transactional:
        alpha.commit_one(there, b"second")
    else:
        alpha.send(there, b"second")
    alpha.transfer._routes.of(alpha.outgoing(there)).table._engine = overlay(alpha.engine, **{method: failing})
    alpha.sync()
    world.tick(40)
    assert failing.failed == 1
    assert alpha.outgoing(there).message_count == 0
    assert beta.bodies("tx" if transactional else "q").count(b"second") == 1


def test_what_was_acknowledged_has_left_when_the_queue_manager_has_stopped(
    world: World, network: tuple[Node, Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much of it there is: it would be sent once more after the next start."""
    alpha, beta, _ = network
    there = beta.direct("q")
    monkeypatch.setattr(outgoing_message_table, "_END_SLICE", 2)
    for number in range(20):
        alpha.send(there, b"%d" % number)
    alpha.sync()
    route = alpha.route(there)
    table = route.table

    def once() -> None:
        alpha.network.wakes = False
        table.end_some()

    route.table = overlay(table, end_some=once)
    world.tick(2)
    alpha.network.wakes = True
    left = alpha.outgoing(there).message_count
    assert left > 0
    alpha.transfer.stop()
    assert alpha.outgoing(there).message_count == 0
    alpha.transfer.start()
