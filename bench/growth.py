"""Growth: the cost of a message with more connections and queues, deeper queues, larger bodies.

The figures are the processor time of the server, and of one client process that has all
connections. A flat cost does not depend on what grows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import lanner.aio
from bench.report import Figures
from bench.service import ADDRESS, Service, cpu_of
from bench.service_clients import target
from lanner import Message

# Messages of one request, and the maximum of their octets together.
PER = 100
AT_ONCE = 0x0010_0000
# Messages in each request that fills a queue.
FILL = 1000
WAIT = 10.0


class Growth:
    """Measurements of a service, over TCP connections of a user with a password."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def connections(self, count: int, messages: int, body: bytes) -> Figures:
        """Measure `count` connections, each with a queue of its own, that share the messages."""
        names = [self._service.queue(0) for _ in range(count)]
        return asyncio.run(self._measure(names, max(messages // count, 1), body))

    def depth(self, deep: int, messages: int, body: bytes) -> Figures:
        """Measure one queue that holds `deep` messages before and after."""
        name = self._service.queue(0)
        with lanner.connect(data=self._service.data) as qm:
            queue = qm.open(name)
            for start in range(0, deep, FILL):
                queue.send_many([new(body)] * min(FILL, deep - start))
        try:
            return asyncio.run(self._measure([name], messages, body))
        finally:
            with lanner.connect(data=self._service.data) as qm:
                qm.open(name).purge()

    def bodies(self, size: int, messages: int) -> Figures:
        """Measure one queue with bodies of a given size."""
        return asyncio.run(self._measure([self._service.queue(0)], messages, bytes(size)))

    async def _measure(self, names: list[str], each: int, body: bytes) -> Figures:
        per = max(min(PER, each, AT_ONCE // max(len(body), 1)), 1)
        managers = [await lanner.aio.connect(**target(ADDRESS)) for _ in names]
        try:
            queues = [manager.open(name) for manager, name in zip(managers, names, strict=True)]
            for queue in queues:
                # Open the handles before the measurement begins.
                await queue.send(new(body))
                await queue.receive(WAIT)

            async def send(queue: Any) -> None:  # noqa: ANN401 (a queue of either colour)
                for start in range(0, each, per):
                    await queue.send_many([new(body) for _ in range(min(per, each - start))])

            async def receive(queue: Any) -> None:  # noqa: ANN401 (a queue of either colour)
                left = each
                while left:
                    left -= len(await queue.receive_many(min(per, left), WAIT))

            total = each * len(names)
            return await self._cost("send", total, [send(queue) for queue in queues]) | await self._cost(
                "receive", total, [receive(queue) for queue in queues]
            )
        finally:
            for manager in managers:
                await manager.close()

    async def _cost(self, what: str, total: int, works: list[Awaitable[None]]) -> Figures:
        pid = self._service.server.process.pid
        server, client = cpu_of(pid), time.process_time()
        await asyncio.gather(*works)
        client = time.process_time() - client
        return {
            f"{what}, server": (cpu_of(pid) - server) / total * 1e6,
            f"{what}, client": client / total * 1e6,
        }


def new(body: bytes) -> Message:
    return Message(body=body, recoverable=True)


def rows(service: Service, count: Callable[[int], int], deepest: int) -> dict[str, dict[str, Callable[[], Figures]]]:
    """Return the measurements: tables by title, with rows by what has grown to what size."""
    growth = Growth(service)
    body = bytes(1024)
    tables: dict[str, dict[str, Callable[[], Figures]]] = {"connections and queues": {}, "depth": {}, "bodies": {}}
    for number in (1, 10, 100):
        tables["connections and queues"][f"{number} connections, each with a queue"] = (
            lambda number=number: growth.connections(number, count(20_000), body)  # type: ignore[misc]
        )
    for deep in [10**power for power in range(3, 8) if 10**power <= max(deepest, 1000)]:
        tables["depth"][f"{deep:,} messages deep"] = lambda deep=deep: growth.depth(deep, count(20_000), bytes(100))  # type: ignore[misc]
    for size, messages in ((100, 20_000), (1024, 20_000), (0x4000, 4000), (0x10000, 1000), (0x100000, 100)):
        tables["bodies"][f"bodies of {size:,} octets"] = (
            lambda size=size, messages=messages: growth.bodies(size, count(messages))  # type: ignore[misc]
        )
    return tables
