"""A faulty network: it cuts, delays, stalls and sometimes repeats connections.

Every node has a second address, by which the others know it. The proxy accepts connections there
and forwards them to the node from the second address of the initiator. So both ends can reply to
the address that they see.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Coroutine, Mapping
from typing import Any

_LOG = logging.getLogger(__name__)

_CHUNK = 1 << 16
# So much of a connection is remembered to be said again.
_MEMORY = 1 << 18


class CuttingProxy:
    """Runs in a thread. `addresses`: of each node, by its second address."""

    def __init__(self, addresses: Mapping[str, str], port: int, seed: int) -> None:
        self._outer = {inner: outer for outer, inner in addresses.items()}
        self._addresses = addresses
        self._port = port
        self._chance = random.Random(seed)
        self.is_calm = True
        # Bytes after which a connection is cut, on average.
        self.mean_life = 60_000.0
        self.cuts = 0
        self.repeats = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._run(self._listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        for outer in self._addresses:
            self._servers.append(await asyncio.start_server(self._connected, outer, self._port))

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(3):  # the transports' last calls
            await asyncio.sleep(0)

    # One connection
    # -------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except OSError:
            pass
        except asyncio.CancelledError:
            if not task.cancelling():
                raise
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self._outer[writer.get_extra_info("peername")[0]]
        target = self._addresses[writer.get_extra_info("sockname")[0]]
        far_reader, far_writer = await asyncio.open_connection(target, self._port, local_addr=(source, 0))
        said = bytearray()
        try:
            both = [
                asyncio.ensure_future(self._pump(reader, far_writer, said)),
                asyncio.ensure_future(self._pump(far_reader, writer, bytearray())),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        finally:
            far_writer.transport.abort()
            writer.transport.abort()
        if not self.is_calm and self._chance.random() < 0.4:
            await self._repeat(source, target, bytes(said))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytearray) -> None:
        life = self._chance.expovariate(1 / self.mean_life)
        while data := await reader.read(_CHUNK):
            if not self.is_calm:
                life -= len(data)
                if life < 0:
                    # In the middle of what came last; sometimes only after a long silence.
                    writer.write(data[: self._chance.randrange(len(data) + 1)])
                    self.cuts += 1
                    await asyncio.sleep(self._chance.choice((0, 0, 0.02, 0.5)))
                    return
                if self._chance.random() < 0.2:
                    await asyncio.sleep(self._chance.uniform(0, 0.03))
            said += data[: _MEMORY - len(said)]
            writer.write(data)
            await writer.drain()

    async def _repeat(self, source: str, target: str, said: bytes) -> None:
        """Repeat recorded data on a connection that looks the same, perhaps after later data."""
        await asyncio.sleep(self._chance.uniform(0, 0.6))
        reader, writer = await asyncio.open_connection(target, self._port, local_addr=(source, 0))
        self.repeats += 1
        try:
            writer.write(said)
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(self._chance.uniform(0.05, 0.5)):
                    while await reader.read(_CHUNK):
                        pass
        finally:
            writer.transport.abort()
