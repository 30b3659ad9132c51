"""Messages between the two phases of their receive by MS-MQRR or MS-MQQP.

The queue manager keeps them locked for this client until the second phase removes them or gives
them back. An acknowledgment cannot be withdrawn once it is under way. If its answer is lost with
the connection, or the caller has stopped waiting, it is unknown whether the message is still in its
queue (ReceiveInDoubt).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from lanner.client._async.io import WINDOW, gather
from lanner.client.remote_message import from_remote_read
from lanner.model.errors import InvalidHandle, LannerError, ReceiveInDoubt, RemoteMachineNotAvailable
from lanner.services.interfaces.mqqp import RemoteReadAck

if TYPE_CHECKING:
    from lanner.client._async.connections import Connections
    from lanner.client._async.msmq_connection import MsmqConnection
    from lanner.client._async.msmq_handles import RemoteHandle
    from lanner.client.message import ReceivedMessage
    from lanner.client.remote_message import RemoteMessage


class Held:
    """A message that the queue manager keeps for this client."""

    def __init__(
        self,
        connections: Connections[MsmqConnection],
        text: str,
        handle: RemoteHandle,
        end: Callable[[RemoteReadAck], Awaitable[None]],
        message: RemoteMessage,
    ) -> None:
        self._connections = connections
        self._text = text
        self._handle = handle
        self._end = end
        self.message = from_remote_read(message)
        # Whether an acknowledgment has been sent.
        self.is_acknowledged = False

    async def remove(self) -> None:
        """Remove the message from its queue; InvalidHandle if a lost connection gave it back."""

        async def end(_: MsmqConnection) -> None:
            self.is_acknowledged = True
            await self._end(RemoteReadAck.RR_ACK)

        try:
            if self._handle.connection.is_open:
                await self._connections.do(self._text, end)
        except RemoteMachineNotAvailable as error:
            if self.is_acknowledged:
                raise ReceiveInDoubt(
                    f"{error.args[0]}: the messages are here, and whether they are gone from their queue is unknown",
                    [self.message],
                ) from error
        if not self.is_acknowledged:
            raise InvalidHandle(f"{self._text}: the connection was lost, and the messages are in their queue again")

    async def give_back(self) -> None:
        """Give the message back, unless it was acknowledged or its connection was lost."""
        if self._handle.connection.is_open:
            with contextlib.suppress(LannerError):
                await self._end(RemoteReadAck.RR_NACK)


async def remove(held: Sequence[Held]) -> list[ReceivedMessage]:
    """Remove messages from their queue and return those that were still held."""
    outcomes: list[BaseException | None] = []
    try:
        for first in range(0, len(held), WINDOW):
            outcomes += await gather([one.remove for one in held[first : first + WINDOW]])
    except BaseException as error:
        # The caller was cancelled or interrupted. Errors of the calls themselves are in `outcomes`.
        await give_back(held)
        if not any(one.is_acknowledged for one in held):
            raise
        raise ReceiveInDoubt(
            "cancelled while messages were being acknowledged: they are here, and whether they are gone from "
            "their queue is unknown",
            [one.message for one in held if one.is_acknowledged],
        ) from error
    failed = [one for one in outcomes if one is not None]
    doubts = [one for one in failed if isinstance(one, ReceiveInDoubt)]
    kept = [
        one.message
        for one, outcome in zip(held, outcomes, strict=True)
        if outcome is None or isinstance(outcome, ReceiveInDoubt)
    ]
    if doubts:
        raise ReceiveInDoubt(doubts[0].args[0], kept) from doubts[0]
    if failed and not kept:
        raise failed[0]
    return kept


async def give_back(held: Iterable[Held]) -> None:
    """Give messages back to their queue."""
    await gather([one.give_back for one in held])
