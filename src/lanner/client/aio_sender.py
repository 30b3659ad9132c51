"""`lanner.aio.Sender`: the names of `lanner.Sender`, awaitable, for one event loop."""

# A time-out here ends with no acknowledgment having come, not with the call.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from lanner.client.outbox import BATCH, CONNECT_TIMEOUT, DEFAULT_TIMEOUT, LINGER, Outbox, Posted, Stage, no_address
from lanner.client.sender import BaseSender
from lanner.model.errors import LannerError
from lanner.transfer.addresses import resolve

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from lanner.client.message import Message, ReceivedMessage
    from lanner.security.signing import SigningKey
    from lanner.transfer.settings import TransferSettings


class Sender(BaseSender):
    r"""One session to one computer: `async with lanner.aio.Sender("beta") as sender: ...`."""

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
        self._outbox = Outbox(
            host,
            port=port,
            timeout=timeout,
            guid=guid,
            first_ordinal=first_ordinal,
            queue_manager=queue_manager,
            sender_id=sender_id,
            signing_key=signing_key,
            peers=peers,
            settings=settings,
        )
        self._connection: _Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer ends, on the monotonic clock
        self._reconnecting: asyncio.Task[None] | None = None
        self._writing: list[asyncio.Future[None]] = []  # of those who wait for bytes to be written
        self._changed: asyncio.Future[None] | None = None  # of who waits for the session to be open or gone

    async def __aenter__(self) -> Self:
        outbox = self._outbox
        try:
            async with asyncio.timeout(outbox.timeout):
                await self._connect()
                while not outbox.is_open:
                    if not outbox.is_connected:
                        raise outbox.unreachable()
                    self._changed = asyncio.get_running_loop().create_future()
                    await self._changed
        except TimeoutError:
            error = outbox.late(outbox.timeout)
            await self._end(linger=0.0)
            raise error from None
        except BaseException:
            await self._end(linger=0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self._end()

    async def send(
        self,
        queue: str,
        message: Message | ReceivedMessage | bytes | str,
        *,
        wait: bool | None = None,
        timeout: float | None = None,
        transaction: object = None,
    ) -> str:
        r"""Send to `private$\name`, `name` (a public queue) or a direct format name of the host; gives the message's id.

        A recoverable message is on the peer's disk when this returns, an express one is written to the connection. `wait`
        True: an express one has arrived, too. `wait` False: either is written; `flush` waits for it.
        """
        posted = self._outbox.post(queue, message, transaction)
        is_awaited = posted.is_recoverable if wait is None else wait
        try:
            await self._wait(posted, Stage.ACKNOWLEDGED if is_awaited else Stage.SENT, timeout)
        except BaseException:
            self._outbox.withdraw(posted)
            raise
        return posted.identifier

    async def send_many(
        self,
        queue: str,
        messages: Iterable[Message | ReceivedMessage | bytes | str],
        *,
        wait: bool | None = None,
        timeout: float | None = None,
        transaction: object = None,
    ) -> list[str]:
        """Send several messages, as many at once as the peer's window holds; `send` says what `wait` is."""
        sent: list[Posted] = []
        try:
            for message in messages:
                posted = self._outbox.post(queue, message, transaction)
                sent.append(posted)
                if self._outbox.unsent_count >= BATCH:
                    await self._wait(posted, Stage.SENT, timeout)
            for posted in sent:
                is_awaited = posted.is_recoverable if wait is None else wait
                await self._wait(posted, Stage.ACKNOWLEDGED if is_awaited else Stage.SENT, timeout)
        except BaseException:
            for posted in sent:
                self._outbox.withdraw(posted)
            raise
        return [posted.identifier for posted in sent]

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything is acknowledged, express messages included."""
        for posted in self._outbox.unacknowledged:
            await self._wait(posted, Stage.ACKNOWLEDGED, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Wait for what is recoverable, and have the rest written; then end the session. Closing twice is harmless."""
        try:
            for posted in self._outbox.unacknowledged:
                await self._wait(posted, Stage.ACKNOWLEDGED if posted.is_recoverable else Stage.SENT, timeout)
        finally:
            await self._end()

    # How this API waits ---------------------------------------------------------------------------------------

    async def _wait(self, posted: Posted, stage: Stage, timeout: float | None) -> None:
        """Until a message is that far, and what is sent is written."""
        outbox = self._outbox
        is_awaited = stage is Stage.ACKNOWLEDGED
        timeout = outbox.timeout if timeout is None else timeout
        started = time.monotonic()
        outbox.awaiting += is_awaited
        try:
            if posted.stage < stage:
                self._pump()
            while posted.stage < stage or not (is_awaited or self._is_written):
                outbox.require_use()
                seconds = max(started, outbox.progressed) + timeout - time.monotonic()
                if seconds <= 0:
                    raise outbox.late(timeout)
                further = asyncio.get_running_loop().create_future()
                if posted.stage < stage:
                    posted.watch(partial(_resolve, further))
                else:
                    self._writing.append(further)
                await asyncio.wait((further,), timeout=seconds)
        finally:
            outbox.awaiting -= is_awaited
        if outbox.is_in_the_way and self._connection is not None:
            self._connection.transport.abort()

    @property
    def _is_written(self) -> bool:
        return self._connection is None or self._connection.is_writable

    def _pump(self) -> None:
        """Write what may be written, and see that somebody connects if nobody is connected."""
        outbox, connection = self._outbox, self._connection
        if connection is not None:
            while connection.is_writable and (data := outbox.data_to_send()):
                connection.transport.writelines(data)
            if outbox.is_connected:
                self._arm()
            else:
                connection.transport.abort()
        elif outbox.count and (self._reconnecting is None or self._reconnecting.done()):
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    def _arm(self) -> None:
        deadline = self._outbox.next_deadline()
        if deadline is None or (self._timer is not None and self._due <= deadline):
            return
        self._disarm()
        self._due = deadline
        delay = max(0.0, deadline - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._outbox.on_timer()
        self._pump()

    async def _connect(self) -> None:
        """A connection to the first address that takes one."""
        outbox = self._outbox
        try:
            addresses = await asyncio.to_thread(resolve, outbox.host, outbox.settings.peers)
        except OSError as error:
            outbox.disconnected(no_address(error))
            raise outbox.unresolved() from error
        loop = asyncio.get_running_loop()
        problem = ""
        for address in addresses:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await loop.create_connection(partial(_Connection, self, address), address, outbox.settings.port)
            except TimeoutError:
                problem = "timed out"
            except OSError as error:
                problem = os.strerror(error.errno) if error.errno else str(error)
            else:
                return
        outbox.disconnected(problem)
        raise outbox.unreachable()

    async def _reconnect(self) -> None:
        while self._connection is None and self._outbox.count:
            await asyncio.sleep(self._outbox.retry_delay())
            try:
                await self._connect()
            except LannerError:
                continue  # the outbox remembers why

    async def _end(self, linger: float = LINGER) -> None:
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.wait((self._reconnecting,))
        self._outbox.close()
        connection = self._connection
        if connection is not None:
            connection.finish()
            await asyncio.wait((connection.lost,), timeout=linger)
            if not connection.lost.done():
                connection.transport.abort()
                await connection.lost
        for posted in self._outbox.unacknowledged:
            posted.wake()

    # What the connection tells --------------------------------------------------------------------------------

    def connected(self, connection: _Connection) -> None:
        self._connection = connection
        self._outbox.connected(connection.address)
        self._pump()

    def received(self, data: bytes) -> None:
        self._outbox.receive(data)
        self._pump()
        self._tell()

    def written(self) -> None:
        self._pump()
        if self._is_written:
            self._wake_writers()

    def _wake_writers(self) -> None:
        writing, self._writing = self._writing, []
        for each in writing:
            _resolve(each)

    def lost(self, error: Exception | None) -> None:
        self._connection = None
        self._disarm()
        problem = "" if error is None else str(getattr(error, "strerror", None) or error)
        self._outbox.disconnected(problem)
        if not self._outbox.is_closed:
            self._pump()
        self._wake_writers()
        self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            _resolve(self._changed)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Connection(asyncio.Protocol):
    """One TCP connection of a sender."""

    transport: asyncio.Transport

    def __init__(self, sender: Sender, address: str) -> None:
        self._sender = sender
        self.address = address
        self.is_writable = True
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        # Writable is: everything is written.
        self.transport.set_write_buffer_limits(high=0)
        self._sender.connected(self)

    def data_received(self, data: bytes) -> None:
        self._sender.received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(None)
        self._sender.lost(error)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self._sender.written()

    def finish(self) -> None:
        """Write to the end and let the peer close: what is unread at a close would cost what was written last."""
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
