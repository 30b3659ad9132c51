from __future__ import annotations

import pytest

from tests.engine.parts.fakes import World


@pytest.fixture
def world() -> World:
    return World()
