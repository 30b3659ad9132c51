from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.activex.world import World


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Make queue managers below the test's own directory; they are closed at its end."""
    made: list[World] = []

    def make(**settings: object) -> World:
        made.append(World(tmp_path / f"w{len(made)}", **settings))  # type: ignore[arg-type]  # the test's own choice
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world()
