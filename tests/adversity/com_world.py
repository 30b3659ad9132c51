"""A queue manager whose objects COM clients use, in the loop of a test.

A script uses the objects by name.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

from lanner.activex import COCLASSES
from lanner.activex.environment import Environment
from lanner.com.client.calls import Calls
from lanner.com.client.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.client.dispatch import DISPATCH_METHOD, DISPATCH_PROPERTYGET, DISPATCH_PROPERTYPUT, DISPID_PROPERTYPUT
from lanner.com.client.dispatch import get_ids_of_names as ids_of
from lanner.com.client.tables import RemoteExporter
from lanner.com.constants import IID_IDISPATCH, PING_PERIOD
from lanner.com.known_classes import CLASSES
from lanner.com.objects import ComObject
from lanner.com.server.listener import ComSettings
from lanner.com.server.ping_sets import PERIODS
from lanner.host.addresses import local_settings
from lanner.host.committer import Committer
from lanner.host.runtime import Runtime
from lanner.rpc.client_connection import Answered
from lanner.rpc.ndr import Value
from lanner.rpc.security import Credentials
from lanner.security.users import UserFile
from lanner.wire.format_name import parse
from tests.com.toys import PASSWORD, USER, ToyServer

HOST = "127.0.0.1"
PATH = r".\private$\busy"
RECEIVE, SEND = 1, 2


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.001)


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
        """Return the objects in memory, whoever holds them."""
        gc.collect()
        kinds = tuple(kind for kind in COCLASSES.values() if isinstance(kind, type))
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    def client(self) -> ComClient:
        settings = ClientSettings(resolver_port=self.server.port)
        return ComClient(settings, credentials=Credentials(USER, PASSWORD))

    def wait_for_pings(self, ping_period: float = PING_PERIOD) -> None:
        """Advance the time until clients that have not pinged hold nothing."""
        self.com.tick(asyncio.get_running_loop().time() + (PERIODS + 1) * ping_period)

    async def make_queue(self, *, is_transactional: bool) -> None:
        async with self.client() as client:
            script = Script(client)
            info = await script.prepare()
            await script.call(info, "Create", is_transactional)
        await until(lambda: not self.com.exporter.objects)


@asynccontextmanager
async def world(folder: Path, ping_period: float = PING_PERIOD) -> AsyncIterator[World]:
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


class RecordedCalls(Calls):
    """The calls of a client on objects, noted as they go out."""

    def __init__(self, client: ComClient) -> None:
        super().__init__(client.settings, client.calls.connections)
        self.recorded: list[tuple[RemoteExporter, UUID, UUID, int, bytes]] = []

    async def request(
        self,
        exporter: RemoteExporter,
        iid: UUID,
        ipid: UUID,
        opnum: int,
        stub: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 (as the client has it)
    ) -> Answered:
        self.recorded.append((exporter, iid, ipid, opnum, stub))
        return await super().request(exporter, iid, ipid, opnum, stub, timeout)


class Script:
    """A program that uses members by name."""

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
