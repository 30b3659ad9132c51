"""COM clients that create objects, use them and vanish without closing the connection.

After the ping period nothing of them is left.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from lanner.com.client.client import ComClient
from lanner.com.constants import PING_PERIOD
from lanner.com.objects import ComError
from tests.adversity.com_world import RECEIVE, SEND, Script, until, world
from tests.rpc.loops import run

AT_ONCE = 40


async def work_and_vanish(client: ComClient, number: int, together: asyncio.Barrier) -> None:
    """Send a message, receive another in a transaction left open, perhaps wait; then vanish."""
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
    # Who waits for one more must not get the first one of another.
    await together.wait()
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
    """Vanish like a killed program: the connections break without a last packet."""
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
            together = asyncio.Barrier(len(numbers))
            await asyncio.gather(*[work_and_vanish(made.client(), number, together) for number in numbers])
        if not real_time:
            # What was broken off is noticed, and everything else is still held: the clients may
            # come back.
            await until(lambda: made.com._server is not None and not made.com._server.connections)
            assert len(made.com.exporter.objects) >= 5 * count
            assert (made.handles, made.transactions) == (2 * count, count)
            made.wait_for_pings(ping_period)
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
    run(check(tmp_path, 10, PING_PERIOD, real_time=False))


@pytest.mark.soak
def test_a_thousand_clients_vanish(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(600):
            await check(tmp_path, 1000, 5.0, real_time=True)

    asyncio.run(main())
