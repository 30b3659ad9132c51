"""`Sender`: sends to one computer over a session of MS-MQQB, without a local queue manager.

The part without I/O is `lanner.client.outbox`; the connection is in `outbox_io`. This module joins
them: it waits until messages have reached the stage that the caller asks for, and reconnects after
a lost connection. There is no worker thread or task: pending work is done in turns, by callers and
by events of the connection.
"""

# A time-out is its own: it ends when nothing was acknowledged for this time, not with the call.
# ruff: noqa: ASYNC109

from __future__ import annotations

import math
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from lanner.client._async.outbox_io import Line, Opening
from lanner.client.outbox import (
    BATCH,
    CONNECT_TIMEOUT,
    DEFAULT_TIMEOUT,
    LINGER,
    Outbox,
    SendStage,
    no_address,
    reason,
    sender_settings,
)
from lanner.model.errors import LannerError

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from lanner.client.outbox import Posted
    from lanner.client.preparing import Sendable
    from lanner.security.signing import SigningKey
    from lanner.transfer.settings import TransferSettings

# The longest time that messages of a slow iterable wait to be sent together with later ones.
_IMPATIENCE: Final = 0.005  # seconds
# Module-level names, because enumerations look up members slowly.
_SENT, _ACKNOWLEDGED = SendStage.SENT, SendStage.ACKNOWLEDGED


class Sender:
    r"""One session to one computer, Lanner or Windows.

    >>> async with lanner.aio.Sender("beta") as sender:
    ...     await sender.send(r"private$\orders", "hello")

    Threads may share a blocking sender, tasks of one event loop an async one. The blocking one
    connects when it is made, the async one when its block begins.
    """

    def __init__(
        self,
        host: str,
        *,
        port: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        guid: uuid.UUID | None = None,
        first_ordinal: int | None = None,
        queue_manager: uuid.UUID | None = None,
        sender_id: str | None = None,
        signing_key: SigningKey | None = None,
        peers: Mapping[str, str] | None = None,
        settings: TransferSettings | None = None,
    ) -> None:
        """Prepare a sender to `host`, a name or an address.

        `timeout` is the number of seconds that may pass without any acknowledgment. `guid`
        identifies the sender; without it, a new one is chosen, whose ordinals begin at 1.
        `queue_manager` is the only identifier to accept at the other end. `sender_id` is the SID of
        the user in whose name messages are sent; without it they have the rights of Everyone.
        `peers` maps host names to addresses that take precedence over DNS.
        """
        self._outbox = Outbox(
            host,
            sender_settings(settings, port, peers),
            timeout=timeout,
            guid=guid,
            first_ordinal=first_ordinal,
            queue_manager=queue_manager,
            sender_id=sender_id,
            signing_key=signing_key,
        )
        self._line = Line(self._outbox, self._turn, self._next_due, self._lost)
        self._turned = 0.0  # When the last turn was taken.
        self._retry_at = 0.0  # The earliest time of the next attempt to connect.
        self._opening = Opening(self._open)

    def __repr__(self) -> str:
        return f"<Sender to {self._outbox.place}, {self.unacknowledged} unacknowledged>"

    @property
    def guid(self) -> uuid.UUID:
        """The identifier of this sender: the source of its messages."""
        return self._outbox.guid

    @property
    def next_ordinal(self) -> int:
        """The number of the next message; a later sender with the same `guid` continues with it."""
        return self._outbox.next_ordinal

    @property
    def remote_guid(self) -> uuid.UUID:
        """The identifier of the queue manager at the other end."""
        return self._outbox.remote_guid

    @property
    def unacknowledged(self) -> int:
        """The number of messages that are posted and not acknowledged."""
        return self._outbox.count

    async def __aenter__(self) -> Self:
        await self._opening.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self._end(LINGER)

    async def send(
        self,
        queue: str,
        message: Sendable,
        *,
        wait: bool | None = None,
        timeout: float | None = None,
        transaction: object = None,
    ) -> str:
        r"""Send a message and return its id.

        `queue` is `private$\name`, `name` (a public queue) or a direct format name of the host. By
        default, when this returns, a recoverable message is on the peer's disk, and an express one
        is written to the connection. With `wait` True, an express message has also arrived. With
        `wait` False, both are only written to the connection, and `flush` waits for them.
        """
        with self._line.lock:
            posted = self._outbox.post(queue, message, transaction)
            try:
                await self._wait(posted, _wanted(posted, wait), timeout)
            except BaseException:
                self._outbox.withdraw(posted)
                raise
            return posted.identifier

    async def send_many(
        self,
        queue: str,
        messages: Iterable[Sendable],
        *,
        wait: bool | None = None,
        timeout: float | None = None,
        transaction: object = None,
    ) -> list[str]:
        """Send messages, as many at once as the peer's window allows, and return their ids.

        `wait` has the same meaning as for `send`.
        """
        outbox, line = self._outbox, self._line
        sent: list[Posted] = []
        try:
            for message in messages:
                with line.lock:
                    posted = outbox.post(queue, message, transaction)
                    sent.append(posted)
                    if outbox.unsent_count >= BATCH or time.monotonic() - self._turned > _IMPATIENCE:
                        await self._wait(posted, _SENT, timeout)
            with line.lock:
                for posted in sent:
                    stage = _wanted(posted, wait)
                    if posted.stage < stage or not line.is_written:
                        await self._wait(posted, stage, timeout)
        except BaseException:
            with line.lock:
                for posted in sent:
                    outbox.withdraw(posted)
            raise
        return [posted.identifier for posted in sent]

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything is acknowledged, including express messages."""
        with self._line.lock:
            for posted in self._outbox.unacknowledged:
                await self._wait(posted, _ACKNOWLEDGED, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Wait for every message as `send` does by default, then end the session.

        Closing twice is harmless.
        """
        if self._outbox.is_closed:
            return
        try:
            with self._line.lock:
                for posted in self._outbox.unacknowledged:
                    await self._wait(posted, _wanted(posted, None), timeout)
        finally:
            await self._end(LINGER)

    # Turns: in the blocking form, the caller holds the lock of the line
    # -------------------------------------------

    async def _wait(self, posted: Posted, stage: SendStage, timeout: float | None) -> None:
        """Wait until a message has reached a stage and, if the stage is SENT, is written."""
        outbox, line = self._outbox, self._line
        is_awaited = stage is _ACKNOWLEDGED
        if posted.stage >= stage and (is_awaited or line.is_written):
            return
        timeout = outbox.timeout if timeout is None else timeout
        started = time.monotonic()
        outbox.awaiting += is_awaited
        try:
            self._turn(started + timeout)
            while posted.stage < stage or not (is_awaited or line.is_written):
                await self._rest(posted if posted.stage < stage else None, started, timeout)
        finally:
            outbox.awaiting -= is_awaited
        if outbox.is_in_the_way:
            line.drop()

    async def _rest(self, posted: Posted | None, started: float, timeout: float) -> None:
        """Wait for a change. Raises if the sender is closed, or if acknowledgments are overdue."""
        outbox = self._outbox
        outbox.require_use()
        deadline = max(started, outbox.progressed) + timeout
        if time.monotonic() >= deadline:
            raise outbox.late(timeout)
        await self._line.wait(posted, deadline)

    def _turn(self, deadline: float = math.inf) -> None:
        """Reconnect if that is due, and move bytes."""
        outbox, line = self._outbox, self._line
        if outbox.is_closed:
            return
        self._turned = time.monotonic()
        if not line.is_connected and outbox.count and self._turned >= self._retry_at:
            line.start(partial(self._reconnect, deadline))
        line.pump()

    def _next_due(self) -> float | None:
        """Return when the next turn is due, on the monotonic clock."""
        if self._line.is_connected:
            return self._outbox.next_deadline()
        return self._retry_at if self._outbox.count and not self._line.is_connecting else None

    async def _reconnect(self, deadline: float) -> None:
        # The outbox keeps the reason, for the error of a caller whose time-out ends.
        with suppress(LannerError):
            await self._connect(deadline)

    async def _connect(self, deadline: float) -> None:
        """Connect to the first address that accepts."""
        outbox, line = self._outbox, self._line
        try:
            addresses = await line.resolve(_remaining(deadline))
        except OSError as error:
            self._lost(no_address(error))
            raise outbox.unresolved() from error
        problem = ""
        for address in addresses:
            outbox.require_use()
            try:
                await line.connect(address, _remaining(deadline))
            except OSError as error:
                problem = reason(error)
                continue
            outbox.require_use()
            return
        self._lost(problem)
        raise outbox.unreachable()

    def _lost(self, problem: str) -> None:
        """Record that the connection is lost or failed, and schedule the next attempt."""
        self._outbox.disconnected(problem)
        self._retry_at = time.monotonic() + self._outbox.retry_delay()

    async def _open(self) -> None:
        """Open the first session; raise the reason if that fails."""
        outbox = self._outbox
        started = time.monotonic()
        try:
            with self._line.lock:
                await self._connect(started + outbox.timeout)
                self._turn()
                while outbox.is_connected and not outbox.is_open:
                    await self._rest(None, started, outbox.timeout)
                if not outbox.is_open:
                    raise outbox.unreachable()
        except BaseException:
            await self._end(0.0)
            raise

    async def _end(self, linger: float) -> None:
        with self._line.lock:
            self._outbox.close()
            for posted in self._outbox.unacknowledged:
                posted.wake()
            await self._line.close(linger)


def _wanted(posted: Posted, wait: bool | None) -> SendStage:
    """Return the stage that a message must reach before `send` returns."""
    return _ACKNOWLEDGED if (posted.is_recoverable if wait is None else wait) else _SENT


def _remaining(deadline: float) -> float:
    """Return how many seconds one connection attempt may take."""
    return min(CONNECT_TIMEOUT, max(deadline - time.monotonic(), 0.001))
