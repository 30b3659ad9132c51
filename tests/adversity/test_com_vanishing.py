"""COM clients that make objects, work with them and vanish without a word: after the ping period nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from lanner.activex import COCLASSES
from lanner.activex.environment import Environment
from lanner.client.runtime import Runtime, local_settings
from lanner.com.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.client_dispatch import DISPATCH_METHOD, DISPATCH_PROPERTYGET, DISPATCH_PROPERTYPUT, DISPID_PROPERTYPUT
from lanner.com.client_dispatch import get_ids_of_names as ids_of
from lanner.com.constants import IID_IDISPATCH
from lanner.com.known_classes import CLASSES
from lanner.com.listener import ComSettings
from lanner.com.objects import ComError, ComObject
from lanner.com.ping_sets import PERIODS
from lanner.rpc.ndr import Value
from lanner.rpc.security import Credentials
from lanner.security.users import UserFile
from lanner.store.committer import Committer
from lanner.wire.format_name import parse
from tests.com.toys import PASSWORD, USER, ToyServer
from tests.rpc.loops import run

HOST = "127.0.0.1"
PATH = r".\private$\busy"
RECEIVE, SEND = 1, 2
AT_ONCE = 40


class World:
    """A queue manager whose objects clients use."""

    def __init__(self, runtime: Runtime, server: ToyServer) -> None:
        self.runtime = runtime
        self.server = server
        self.com = server.com

    def _queue(self) -> Value:
        return self.runtime.engine.find_queue(parse(f"DIRECT=OS:{PATH}"))

    @property
    def handles(self) -> int:
        with self.runtime.lock:
            return len(self._queue().open_queue_descriptors)

    @property
    def transactions(self) -> int:
        with self.runtime.lock:
            return len(self.runtime.engine.queue_manager.transaction_collection)

    @property
    def coclass_objects(self) -> int:
        """Those in memory, whoever holds them."""
        gc.collect()
        kinds = tuple(kind for kind in COCLASSES.values() if isinstance(kind, type))
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    def client(self) -> ComClient:
        settings = ClientSettings(resolver_port=self.server.port)
        return ComClient(settings, credentials=Credentials(USER, PASSWORD))


@asynccontextmanager
async def world(folder: Path, ping_period: float) -> AsyncIterator[World]:
    UserFile(folder / "users.json").add(USER, PASSWORD, administrator=True)
    runtime = Runtime(folder / "data", local_settings("COMQM"))
    try:
        committer = Committer(runtime.store, asyncio.get_running_loop())
        environment = Environment(runtime.engine, committer, users=runtime.users)
        classes: dict[object, Callable[[], ComObject]] = {
            clsid: partial(coclass, environment) for clsid, coclass in COCLASSES.items()
        }
        settings = ComSettings(ping_period=ping_period)
        try:
            async with ToyServer(folder, settings=settings, classes=classes) as server:  # type: ignore[arg-type]  # UUIDs
                yield World(runtime, server)
        finally:
            await asyncio.to_thread(committer.close)
    finally:
        await asyncio.to_thread(runtime.close)


class Script:
    """What a program does, by name."""

    def __init__(self, client: ComClient) -> None:
        self.client = client
        # As in a program that holds on to everything.
        self.kept: list[RemoteInterface] = []

    async def create(self, name: str) -> RemoteInterface:
        made = await self.client.activate(HOST, CLASSES[f"MSMQ.{name}"], IID_IDISPATCH)
        self.kept.append(made)
        return made

    async def put(self, target: RemoteInterface, name: str, value: object) -> None:
        (dispid,) = await ids_of(target, [name])
        await target.invoke_dispatch(dispid, [value], flags=DISPATCH_PROPERTYPUT, named=[DISPID_PROPERTYPUT])

    async def call(self, target: RemoteInterface, name: str, *arguments: object, **named: object) -> Value:
        dispid, *places = await ids_of(target, [name, *named])
        flags = DISPATCH_METHOD | DISPATCH_PROPERTYGET
        values = (*arguments, *named.values())
        result = await target.invoke_dispatch(dispid, values, flags=flags, named=places)
        if isinstance(result.value, RemoteInterface):
            self.kept.append(result.value)
        return result.value

    async def prepare(self) -> RemoteInterface:
        info = await self.create("MSMQQueueInfo")
        await self.put(info, "PathName", PATH)
        return info


async def work_and_vanish(client: ComClient, number: int) -> None:
    """Send a message, take another in a transaction that stays open, perhaps wait for one more; then nothing."""
    script = Script(client)
    info = await script.prepare()
    sending = await script.call(info, "Open", SEND, 0)
    message = await script.create("MSMQMessage")
    await script.put(message, "Label", f"of {number}")
    await script.call(message, "Send", sending, 3)
    dispenser = await script.create("MSMQTransactionDispenser")
    transaction = await script.call(dispenser, "BeginTransaction")
    reading = await script.call(info, "Open", RECEIVE, 0)
    assert await script.call(reading, "Receive", transaction, ReceiveTimeout=10_000) is not None
    waiting = None
    if number % 2:
        waiting = asyncio.ensure_future(
            script.call(reading, "Receive", ReceiveTimeout=600_000, Transaction=transaction)
        )
    if number % 3 == 0:
        await client.ping()
    await asyncio.sleep(0)
    vanish(client)
    if waiting is not None:
        # Unless it was in time for a message that another one has lost.
        with contextlib.suppress(ComError):
            await waiting


def vanish(client: ComClient) -> None:
    """As a program that is killed: the connections break, and nobody says anything more."""
    for dialled in client.calls.connections._dials.values():
        transport = dialled.result().client._transport
        assert transport is not None
        transport.abort()
    client._is_closed = True
    if client._pinging is not None:
        client._pinging.cancel()
    for exporter in client._exporters.values():
        if exporter.idle is not None:
            exporter.idle.cancel()


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.001)


async def check(folder: Path, count: int, ping_period: float, *, real_time: bool) -> None:
    async with world(folder, ping_period) as made:
        async with made.client() as client:
            script = Script(client)
            info = await script.prepare()
            await script.call(info, "Create", True)
        # A release is one call; the objects of the script are gone with it.
        await until(lambda: not made.com.exporter.objects)
        before = made.coclass_objects
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            await asyncio.gather(*[work_and_vanish(made.client(), number) for number in numbers])
        if not real_time:
            # What was broken off is noticed, and everything else is still held: the clients may come back.
            await until(lambda: made.com._server is not None and not made.com._server.connections)
            assert len(made.com.exporter.objects) >= 5 * count
            assert (made.handles, made.transactions) == (2 * count, count)
            clock = asyncio.get_running_loop().time
            later = clock() + (PERIODS + 1) * ping_period
            made.com.exporter._clock = lambda: later
            made.com.tick(later)
            made.com.exporter._clock = clock
        await until(lambda: not made.com.exporter.objects)
        assert (made.handles, made.transactions) == (0, 0)
        assert (made.com.pings.sets, made.com.pings.oids, made.com.pings.members) == (0, 0, 0)
        assert made.coclass_objects == before
        # Every message is there again, and can be had.
        async with made.client() as client:
            script = Script(client)
            reading = await script.call(await script.prepare(), "Open", RECEIVE, 0)
            for _ in range(count):
                assert await script.call(reading, "Receive", 3, ReceiveTimeout=1000) is not None
            assert await script.call(reading, "Receive", 3, ReceiveTimeout=0) is None
            script.kept.clear()


def test_a_few_clients_vanish(tmp_path: Path) -> None:
    run(check(tmp_path, 10, 120.0, real_time=False))


@pytest.mark.soak
def test_a_thousand_clients_vanish(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(600):
            await check(tmp_path, 1000, 5.0, real_time=True)

    asyncio.run(main())
