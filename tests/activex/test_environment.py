"""The environment through which the coclasses reach the queue manager."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

import lanner.activex.environment as environment_module
from lanner.activex.environment import ActivexSettings, Environment
from lanner.model.errors import NoInternalUserCert, RemoteMachineNotAvailable
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.wire.sid import Sid
from tests.activex.world import World

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)


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


def test_new_keys_of_one_user_keep_no_other_work_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may ask for keys and signatures as often as it likes. Each takes long."""
    go_on = threading.Event()
    monkeypatch.setattr(environment_module, "internal_signing_key", lambda *_: go_on.wait(60))

    async def main() -> None:
        async with asyncio.timeout(30):
            keys = [asyncio.ensure_future(world.environment.internal_signing_key(ALICE)) for _ in range(40)]
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "done") == "done"
            go_on.set()
            await asyncio.gather(*keys)

    try:
        world.run(main())
    finally:
        go_on.set()


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
