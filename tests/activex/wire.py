"""The coclasses of a `World` behind DCOM, and a client that has objects of its own.

Both run in the world's loop and are connected by sockets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from lanner.activex import COCLASSES
from lanner.com.client.client import ComClient, RemoteInterface
from lanner.com.client.exporter import OwnObjects
from lanner.com.members import InterfaceTable
from lanner.com.objects import ComObject
from lanner.rpc.security import Credentials
from tests.activex.world import World
from tests.com.toys import PASSWORD, USER, ToyServer

HOST = "127.0.0.1"


class Wire:
    """`client` calls the objects that `server` serves, and can hand in its own."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        world.run(self._start(folder))

    async def _start(self, folder: Path) -> None:
        environment = self._world.environment
        classes = {clsid: (lambda clsid=clsid: environment.create(clsid)) for clsid in COCLASSES}
        self.server = ToyServer(folder, HOST, classes=classes)  # type: ignore[arg-type]  # every one can be made
        await self.server.start()
        self.client = ComClient(credentials=Credentials(USER, PASSWORD))
        self.own = await OwnObjects.start(HOST, lambda objref, _: self.client.unmarshal(objref))
        self.client.exporter = self.own.exporter

    def close(self) -> None:
        async def close() -> None:
            await self.client.close()
            await self.own.stop()
            await self.server.stop()

        self._world.run(close())

    def create(self, clsid: UUID, table: InterfaceTable) -> RemoteInterface:
        found: RemoteInterface = self._world.run(self.client.activate(HOST, clsid, table.iid, port=self.server.port))
        return found

    def call(self, remote: RemoteInterface, table: InterfaceTable, name: str, *arguments: object) -> Any:  # noqa: ANN401 (whatever it returns)
        """Call a member through the vtable; its one result, if it has one."""
        member = next(member for member in table.members if member.python == name)
        results = self._world.run(remote.call(member, *arguments))
        return results[0] if results else None

    def query(self, remote: RemoteInterface, table: InterfaceTable) -> RemoteInterface:
        found: RemoteInterface = self._world.run(remote.query_interface(table.iid))
        return found

    @property
    def objects(self) -> list[ComObject]:
        """The objects that the server serves."""
        return list(self.server.com.exporter.objects)
