"""The stages of an outgoing queue on its way to a session (MS-MQQB 3.1.5.2).

The test tries every pair of stage and step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.transfer.route import Route
from lanner.transfer.route_stages import TRANSITIONS, Stage, Step
from tests.transfer.world import World

DUE = 12.5


@pytest.fixture
def route(tmp_path: Path) -> Iterator[Route]:
    """A route that has no session and wants none."""
    world = World(tmp_path)
    alpha = world.node("ALPHA", "127.0.0.2")
    alpha.send(r"DIRECT=TCP:10.7.7.7\private$\q", b"one")
    (queue,) = alpha.engine.outgoing_queues()
    yield alpha.transfer._routes.of(queue)
    world.close()


@pytest.mark.parametrize(("stage", "step"), list(itertools.product(Stage, Step)))
def test_every_pair_has_an_answer(route: Route, stage: Stage, step: Step) -> None:
    """A step of the table leads to its stage.

    Any other step is an error, and the route stays where it is.
    """
    route.stage = stage
    expected = TRANSITIONS.get((stage, step))
    if expected is None:
        with pytest.raises(RuntimeError, match=f"no step {step.name} in stage {stage.name}"):
            route.enter(step)
        assert route.stage is stage
    else:
        route.enter(step)
        assert route.stage is expected


@pytest.mark.parametrize("stage", list(Stage))
def test_a_route_can_come_to_rest_from_every_stage(stage: Stage) -> None:
    """An operator can take the queue manager offline at any time."""
    assert TRANSITIONS[stage, Step.REST] is Stage.IDLE


def test_every_stage_and_every_step_is_used() -> None:
    assert {stage for stage, _ in TRANSITIONS} == set(TRANSITIONS.values()) == set(Stage)
    assert {step for _, step in TRANSITIONS} == set(Step)


def test_the_retry_timer_runs_only_while_a_route_waits(route: Route) -> None:
    """MS-MQQB 3.1.2.3 Session Retry Connect Timer."""
    route.enter(Step.RESOLVE)
    route.enter(Step.WAIT, DUE)
    assert route.next_deadline() == route.retry_due == DUE
    route.enter(Step.CONNECT)
    assert route.retry_due is None
