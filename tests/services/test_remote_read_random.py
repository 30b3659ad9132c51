"""Many clients act at random (MS-MQQP 3.1).

Whatever happens, a message is received once or is still there.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from lanner.services.interfaces import mqqp
from lanner.services.interfaces.mqqp import QM2QM, RemoteReadDesc2
from lanner.services.remote_read import (
    MQ_ACTION_PEEK_CURRENT,
    MQ_ACTION_RECEIVE,
    MQ_LOOKUP_RECEIVE_NEXT,
    MQ_LOOKUP_RECEIVE_PREV,
)
from tests.services.remote_read_peer import CLIENT_ID, Fault, Read, RemoteOpen, Site, served
from tests.services.site import until
from tests.statuses import MQ_INFORMATION_REMOTE_CANCELED

CLIENTS = 6
OK = 0


@dataclass
class World:
    site: Site
    chance: random.Random
    sent: int = 0
    taken: list[bytes] = field(default_factory=list)
    # Told to the server by a client that did not wait for the answer.
    in_doubt: set[bytes] = field(default_factory=set)

    def send(self) -> None:
        self.site.send(b"%d" % self.sent, recoverable=self.chance.random() < 0.8)
        self.sent += 1


@dataclass
class Client:
    world: World
    q: RemoteOpen
    held: list[Read] = field(default_factory=list)
    waiting: list[tuple[int, asyncio.Future[Read]]] = field(default_factory=list)
    next_id: int = 1

    async def receive(self) -> None:
        self.keep(await self.q.read(MQ_ACTION_RECEIVE))

    async def look_up(self) -> None:
        if self.world.chance.random() < 0.5:
            self.keep(await self.q.look_up(0, MQ_LOOKUP_RECEIVE_NEXT))
        else:
            self.keep(await self.q.look_up((1 << 64) - 1, MQ_LOOKUP_RECEIVE_PREV))

    async def peek(self) -> None:
        await self.q.read(MQ_ACTION_PEEK_CURRENT)

    async def wait(self) -> None:
        self.next_id += 1
        reading = self.q.begin(timeout=3_600_000, dw_request_id=1000 + self.next_id)
        self.waiting.append((1000 + self.next_id, asyncio.ensure_future(reading)))

    async def cancel(self) -> None:
        """It may have its message by now."""
        if self.waiting:
            request_id, read = self.waiting.pop(self.world.chance.randrange(len(self.waiting)))
            await self.q.cancel(request_id)
            self.keep(await read)

    async def end(self) -> None:
        if self.held:
            read = self.held.pop(self.world.chance.randrange(len(self.held)))
            ack = self.world.chance.choice([1, 2, 2])
            assert await self.q.end(read, ack) == OK
            if ack == 2:
                self.world.taken.append(read.body)

    async def reopen(self) -> None:
        """The messages that it holds return to the queue."""
        assert await self.q.close() == OK
        for _, read in self.waiting:
            found = await read
            assert found.status in (OK, MQ_INFORMATION_REMOTE_CANCELED)
        self.held.clear()
        self.waiting.clear()
        self.q = await self.q.peer.opened()

    async def die(self) -> None:
        """In the middle of everything: also of an acknowledgment."""
        if self.held and self.world.chance.random() < 0.5:
            read = self.held.pop()
            ending = asyncio.ensure_future(self.q.end(read))
            self.world.in_doubt.add(read.body)
            await asyncio.sleep(0)
            self.q.peer.abort()
            ending.cancel()
        self.q.peer.abort()
        for _, waiting in self.waiting:
            waiting.cancel()
        self.held.clear()
        self.waiting.clear()
        self.q = await self.world.site.opened()

    def keep(self, read: Read) -> None:
        if read.status == OK:
            self.held.append(read)


ACTIONS = [
    (Client.receive, 6),
    (Client.look_up, 3),
    (Client.peek, 2),
    (Client.wait, 5),
    (Client.cancel, 3),
    (Client.end, 8),
    (Client.reopen, 1),
    (Client.die, 1),
]


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 60))])
@served
async def test_nothing_is_lost_and_nothing_is_taken_twice(site: Site, seed: int) -> None:
    world = World(site, random.Random(seed))
    clients = [Client(world, await site.opened()) for _ in range(CLIENTS)]

    async def play(client: Client) -> None:
        for _ in range(40):
            if world.chance.random() < 0.5:
                world.send()
            (action,) = world.chance.choices([one for one, _ in ACTIONS], [weight for _, weight in ACTIONS])
            await action(client)

    await asyncio.gather(*(play(client) for client in clients))
    for client in clients:
        await client.q.peer.close()
        for _, read in client.waiting:
            read.cancel()
    await until(lambda: site.server.connections == 0)
    assert len(site.queues) == 0
    with site.runtime.lock:
        assert not site.operations.find(".\\private$\\q").held_positions
        assert not site.operations.find(".\\private$\\q").waiting_reads
    last = await site.opened()
    left = []
    while (found := await last.read()).status == OK:
        left.append(found.body)
        assert await last.end(found) == OK
    assert len(world.taken) == len(set(world.taken))
    assert set(world.taken).isdisjoint(left)
    assert len(left) == len(set(left))
    missing = {b"%d" % number for number in range(world.sent)} - set(world.taken) - set(left)
    assert missing <= world.in_doubt


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 40))])
@served
async def test_stubs_of_chance_harm_nobody(site: Site, seed: int) -> None:
    """Valid requests with octets changed, cut off or inserted.

    The result is an answer or a fault, and the queue is unchanged.
    """
    chance = random.Random(seed)
    site.send(b"one", b"two")
    keeper = await site.opened()
    q = await site.opened()
    desc = q.desc(timeout=0)
    good = [
        mqqp.REMOTE_QM_START_RECEIVE.encode_request({"lp_remote_read_desc": desc}),
        mqqp.REMOTE_QM_END_RECEIVE.encode_request({"pph_context": q.context, "dw_ack": 2}),
        mqqp.REMOTE_QM_OPEN_QUEUE.encode_request(
            {"p_lic_guid": CLIENT_ID, "dw_mqs": 0, "h_queue": 0, "p_queue": q.handle, "dwp_context": q.handle}
        ),
        q.context,
        bytes(8),
        bytes(12),
        bytes(4),
        bytes(4),
        b"",
        mqqp.REMOTE_QM_START_RECEIVE2.encode_request({"lp_remote_read_desc2": RemoteReadDesc2(desc, 0)}),
        mqqp.REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID.encode_request(
            {"lookup_id": 1, "lp_remote_read_desc2": RemoteReadDesc2(desc, 0)}
        ),
    ]
    for _ in range(150):
        opnum = chance.randrange(11)
        stub = bytearray(good[opnum])
        for _ in range(chance.randrange(1, 4)):
            kind = chance.randrange(3)
            if kind == 0 and stub:
                stub[chance.randrange(len(stub))] = chance.randrange(256)
            elif kind == 1:
                del stub[chance.randrange(len(stub) + 1) :]
            else:
                stub += chance.randbytes(chance.randrange(12))
        # A time-out that chance has made long is cut short by the next client that goes.
        try:
            async with asyncio.timeout(0.02):
                await q.peer.raw(QM2QM, opnum, bytes(stub))
        except (Fault, TimeoutError, ConnectionError):
            pass
        if q.peer.is_closed:
            q = await site.opened()
    await q.peer.close()
    await until(lambda: site.server.connections == 1)
    assert [await keeper.receive(), await keeper.receive()] == [b"one", b"two"]
    assert not list(site.queues.remote_read_entries)
