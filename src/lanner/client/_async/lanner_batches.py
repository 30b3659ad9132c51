"""Messages of another Lanner received ahead, many of them in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.client._async.io import Uninterrupted
from lanner.services import stream_entries as entries

if TYPE_CHECKING:
    from lanner.client._async.lanner_connection import LannerConnection
    from lanner.client._async.lanner_queue import LannerQueue
    from lanner.client._async.lanner_units import LannerTransaction
    from lanner.client.message import ReceivedMessage
    from lanner.rpc.async_client import Posted


class LannerBatch:
    """Messages that were requested; `messages` waits for them."""

    def __init__(
        self, queue: LannerQueue, connection: LannerConnection, unit: LannerTransaction, first: int, posted: Posted
    ) -> None:
        self._queue = queue
        self._unit = unit
        self._connection = connection
        self._first = first
        self._posted = posted
        self._count = 0

    async def messages(self) -> list[ReceivedMessage]:
        """Return the messages that were available; IOTimeout if there were none."""
        connections = self._queue.backend.connections
        body = await connections.on(self._connection, self._queue.text, self._answered)
        found = self._connection.received(body)
        self._count = len(found)
        return found

    async def _answered(self, connection: LannerConnection) -> memoryview:
        return await connection.answer(self._posted)

    async def keep(self, count: int) -> None:
        """Give back all but the first `count` messages."""
        numbers = list(range(self._first + count, self._first + self._count))
        self._count = min(self._count, count)
        if numbers and self._queue.backend.connections.is_current(self._connection):
            with Uninterrupted():
                await self._connection.give_back(numbers)

    async def begin_commit(self) -> None:
        """Request the commit of the transaction, without waiting for it."""
        await self._unit.begin_commit()

    async def committed(self) -> None:
        """Wait until the commit is durable.

        Raises CommitInDoubt if the connection is lost before the answer.
        """
        await self._unit.committed()


async def ask_for_batch(
    queue: LannerQueue, connection: LannerConnection, unit: LannerTransaction, most: int
) -> LannerBatch:
    """Request available messages, each under a number of its own."""
    handle = await queue.handle(connection, "receive")
    transaction = await unit.enlist(connection)
    first = connection.new_numbers()
    request = entries.ReceiveRequest(handle, transaction, first, most | entries.NUMBERED, 0)
    posted = connection.post(entries.RECEIVE, entries.pack_receive(request))
    return LannerBatch(queue, connection, unit, first, posted)
