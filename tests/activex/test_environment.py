"""The environment through which the coclasses reach the queue manager."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lanner.activex.environment import ActivexSettings, Environment
from lanner.model.errors import NoInternalUserCert, RemoteMachineNotAvailable
from lanner.security.identity import ANONYMOUS, SYSTEM
from tests.activex.world import World


def test_settings_by_default(world: World) -> None:
    environment = Environment(world.engine, world.environment.committer)
    assert environment.settings == ActivexSettings(timeout="null")


def test_internal_keys(world: World) -> None:
    """There is one per user, but none for the anonymous user or without a store."""
    with pytest.raises(NoInternalUserCert):
        world.run(world.environment.internal_signing_key(ANONYMOUS))
    world.environment.certificates = None
    with pytest.raises(NoInternalUserCert):
        world.run(world.environment.internal_signing_key(SYSTEM))


def test_a_computer_that_cannot_be_reached(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        world.environment.remote_port = taken.getsockname()[1]
        with pytest.raises(RemoteMachineNotAvailable):
            world.run(world.environment.connect("127.0.0.1"))
    with pytest.raises(RemoteMachineNotAvailable):
        world.run(world.environment.connect("\0"))


def test_a_computer_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("lanner.activex.environment.CONNECT_TIMEOUT", 0.01)
    monkeypatch.setattr("lanner.activex.environment.connect_tcp", never)
    with pytest.raises(RemoteMachineNotAvailable):
        world.run(world.environment.connect("127.0.0.1"))
