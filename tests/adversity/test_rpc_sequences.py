"""Invalid sequences of RPC, by an anonymous caller and by an ordinary user.

The ports are 135, 2103, 2105 and that of COM. LANNER_FUZZ_SEED repeats a run, LANNER_FUZZ_SESSIONS
is the number of its attackers.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator

import pytest
import uvloop

import lanner
from lanner.model.errors import MQ_OK
from lanner.rpc.async_client import RpcClient, connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.security import Credentials
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from tests.adversity.mqqb_recording import until
from tests.adversity.rpc_enemies import ENEMY, Enemy
from tests.adversity.served import MIB, PASSWORD, Served
from tests.interop.peers import needs_endpoint_mapper_port
from tests.services.queue_client_peer import Peer

SEED = int(os.environ.get("LANNER_FUZZ_SEED", "1"))
SESSIONS = int(os.environ.get("LANNER_FUZZ_SESSIONS", "120"))
FRIEND = "friend"
# More than a busy machine needs for anything here.
PATIENCE = 60.0  # seconds
_TOGETHER = 4
_SECRETS = [f"secret {number}" for number in range(5)]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    needs_endpoint_mapper_port("127.0.0.1")
    with Served(tmp_path_factory.mktemp("rpc"), "VICTIM", users=(ENEMY, FRIEND)) as served:
        with served.manager() as manager:
            # What the enemy may do with its own queues it does; these are small.
            for name in ("q", "busy"):
                manager.create_queue(name, access={ENEMY: "full"}, quota_kb=1024)
            manager.create_queue("tx", transactional=True, access={ENEMY: "full"}, quota_kb=1024)
            manager.create_queue(FRIEND, access={FRIEND: "full"})
            secret = manager.create_queue("secret", access={"Administrators": "full"})
            secret.send_many([lanner.Message(body=body, recoverable=True) for body in _SECRETS])
        yield served


async def there_and_back(client: RpcClient, is_over: asyncio.Event) -> int:
    """Send and receive, one message after the other, until it is over; each must come back."""
    peer = Peer(client, await client.bind(QMCOMM), await client.bind(QMCOMM2))
    name = rf"DIRECT=OS:.\private$\{FRIEND}"
    sending, reading = await peer.open(name, 2), await peer.open(name, 1)
    for number in itertools.count(1):
        body = b"%d" % number
        async with asyncio.timeout(PATIENCE):
            assert (await sending.send(body))[RETURNS] == MQ_OK
            assert (await reading.read(timeout=0, body_size=64)).body == body
        if is_over.is_set():
            return number
        await asyncio.sleep(0.02)
    raise AssertionError


def state(victim: Served) -> list[object]:
    """Return the state of the victim that the attacker must not change."""
    with victim.manager() as manager:
        secret = manager.open("secret")
        return [[message.body for message in secret], secret.access().document(), secret.attributes().label]


def attack(victim: Served, seed: int, count: int, *, growth: int) -> int:
    """Attack while a friend works; then everything of the oracle.

    Return the number of the attackers' calls.
    """
    print(f"LANNER_FUZZ_SEED={seed}")  # noqa: T201 (pytest shows it if the test fails)
    numbers, made = iter(range(count)), 0

    async def enemies() -> None:
        nonlocal made
        for number in numbers:
            enemy = Enemy(victim, seed, number)
            await enemy.attack()
            made += enemy.calls

    async def main() -> None:
        is_over = asyncio.Event()
        credentials = Credentials(FRIEND, PASSWORD)
        async with await connect_tcp(victim.address, victim.port("rpc"), credentials=credentials) as client:
            working = asyncio.ensure_future(there_and_back(client, is_over))
            attacking = asyncio.gather(*(enemies() for _ in range(_TOGETHER)))
            await asyncio.wait((working, attacking), return_when=asyncio.FIRST_COMPLETED)
            is_over.set()
            await working
            await attacking

    before, files, memory = state(victim), victim.files, victim.memory
    uvloop.run(main())
    victim.check()
    assert state(victim) == before
    until(lambda: victim.files <= files + 2)
    check_nothing_is_held(victim)
    assert victim.memory - memory < growth
    victim.check()
    return made


def check_nothing_is_held(victim: Served) -> None:
    """Assert that the attacker's handles were closed with its connections.

    An exclusive reader can open a queue only if it is open nowhere else.
    """
    for name in ("q", "tx", FRIEND):
        with victim.manager() as manager:

            def is_free(manager: lanner.QueueManager = manager, name: str = name) -> bool:
                try:
                    with manager.open(name, exclusive=True) as queue:
                        queue.purge()
                except lanner.errors.SharingViolation:
                    return False
                return True

            until(is_free)


def test_sequences_that_go_wrong(victim: Served) -> None:
    made = attack(victim, SEED, SESSIONS, growth=64 * MIB)
    assert made > 3 * SESSIONS


@pytest.mark.soak
def test_sequences_that_go_wrong_for_ten_minutes(victim: Served) -> None:
    end = time.monotonic() + 600
    for seed in itertools.count(SEED):
        attack(victim, seed, 100, growth=128 * MIB)
        if time.monotonic() > end:
            break
