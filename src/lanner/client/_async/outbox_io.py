"""The connection of an async `Sender`: an asyncio protocol and a timer.

`_sync/outbox_io.py` has the same names for threads. A `Line` moves bytes between a TCP connection
and an `Outbox`. It calls `turn` whenever work may be due: data has arrived or was written, the
connection was made or lost, or the time returned by `next_due` has come.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from lanner.client.outbox import reason
from lanner.transfer.addresses import resolve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from lanner.client.outbox import Outbox, Posted


class Opening:
    """The opening of a session. It begins when it is awaited, because a constructor cannot wait."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work

    async def result(self) -> None:
        await self._work()


class Line:
    """The connection of a sender, if there is one. It belongs to one event loop."""

    # Tasks of one event loop need no lock; the threads of the blocking form do.
    lock: Final = nullcontext()

    def __init__(
        self,
        outbox: Outbox,
        turn: Callable[[], None],
        next_due: Callable[[], float | None],
        lost: Callable[[str], None],
    ) -> None:
        """Prepare a line.

        `turn` does the work that is due, and calls `pump`; `next_due` returns the time of the next
        turn, on the monotonic clock. `lost` is called with the operating system's reason.
        """
        self._outbox = outbox
        self._turn = turn
        self._next_due = next_due
        self._lost = lost
        self._connection: _Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # When the timer ends, on the monotonic clock.
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def is_connecting(self) -> bool:
        """Whether the last work given to `start` is still running."""
        return self._connecting is not None

    @property
    def is_written(self) -> bool:
        """Whether the operating system has accepted all sent bytes."""
        return self._connection is None or self._connection.is_writable

    # Connecting
    # ----------------------------------------------------------------------------------------------

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Connect in a task, unless one is running.

        A task, because other callers still need the connection if one is cancelled.
        """
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        finally:
            self._connecting = None
        self._happened()

    async def resolve(self, seconds: float) -> list[str]:
        """Return the addresses of the host; OSError if there are none."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.to_thread(resolve, self._outbox.host, self._outbox.settings.peers)
        except TimeoutError:
            raise TimeoutError(f"no answer within {seconds:g} s") from None

    async def connect(self, address: str, seconds: float) -> None:
        """Connect and begin a session; OSError if that fails or takes longer."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await loop.create_connection(partial(_Connection, self, address), address, self._outbox.settings.port)
        except TimeoutError:
            raise TimeoutError("timed out") from None

    def drop(self, problem: str = "") -> None:
        """Abort the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.transport.abort()
            self._lost(problem)

    # Bytes
    # ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Write what the peer's window allows, without waiting, and set the timer."""
        outbox, connection = self._outbox, self._connection
        if connection is not None:
            while connection.is_writable and (data := outbox.data_to_send()):
                connection.transport.writelines(data)
            if not outbox.is_connected:
                self.drop()
        self._arm(self._next_due())

    def _arm(self, when: float | None) -> None:
        # A turn that is too early does no harm, so a timer that ends before `when` stays.
        if when is None or (self._timer is not None and self._due <= when):
            return
        self._disarm()
        self._due = when
        delay = max(0.0, when - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._outbox.on_timer()
        self._happened()

    async def wait(self, posted: Posted | None, deadline: float) -> None:
        """Wait for the next stage of a message, or for any change, until the deadline."""
        loop = asyncio.get_running_loop()
        further = loop.create_future()
        if posted is None:
            self._waiting.append(further)
        else:
            posted.watch(partial(_resolve, further))
        timer = loop.call_later(deadline - time.monotonic(), _resolve, further)
        try:
            await further
        finally:
            timer.cancel()

    def _happened(self) -> None:
        self._turn()
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                _resolve(each)

    async def close(self, linger: float) -> None:
        """Write all buffered data, and wait up to `linger` seconds for the peer to close.

        Closing with data unread would make the operating system discard the last bytes written.
        """
        self._disarm()
        connecting = self._connecting
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait((connecting,))
        connection = self._connection
        if connection is not None:
            try:
                connection.end()
                await asyncio.wait((connection.ended,), timeout=linger)
            finally:
                connection.transport.abort()
            await connection.ended
        self._wake()

    # Called by the connection
    # -------------------------------------------------------------------------------------

    def connected(self, connection: _Connection) -> None:
        if self._outbox.is_closed:
            connection.transport.abort()
            return
        self._connection = connection
        self._outbox.connected(connection.address)
        self._happened()

    def received(self, connection: _Connection, data: bytes) -> None:
        if connection is self._connection:
            self._outbox.receive(data)
            self._happened()

    def written(self) -> None:
        self._happened()

    def disconnected(self, connection: _Connection, error: Exception | None) -> None:
        if connection is self._connection:
            self._connection = None
            self._lost("" if error is None else reason(error))
            self._happened()


class _Connection(asyncio.Protocol):
    """One TCP connection of a line."""

    transport: asyncio.Transport

    def __init__(self, line: Line, address: str) -> None:
        self._line = line
        self.address = address
        self.is_writable = True
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        # Pause writing as long as any byte is left in the transport's buffer.
        self.transport.set_write_buffer_limits(high=0)
        self._line.connected(self)

    def data_received(self, data: bytes) -> None:
        self._line.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)
        self._line.disconnected(self, error)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self._line.written()

    def end(self) -> None:
        """Write the buffered data, then nothing more."""
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
