"""The connection of a blocking `Sender`: a non-blocking socket, used in the callers' threads.

`_async/outbox_io.py` has the same names for event loops. There is no worker thread: one of the
waiting callers polls the socket on behalf of all, and each takes a `turn` after waiting.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from lanner.client.outbox import reason
from lanner.transfer.addresses import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lanner.client.outbox import Outbox, Posted

_READ_BUFFER: Final = 64 << 10
# How often a thread that polls the socket checks whether another one has left bytes to write.
_TICK: Final = 0.05  # seconds


class Opening:
    """The opening of a session, which is complete when the object exists."""

    def __init__(self, work: Callable[[], None]) -> None:
        work()

    def result(self) -> None:
        """Do nothing: the session is open."""


class Line:
    """The connection of a sender, if there is one.

    Callers of every method must hold `lock`. Methods that wait release it meanwhile.
    """

    def __init__(
        self,
        outbox: Outbox,
        turn: Callable[[float], None],
        next_due: Callable[[], float | None],
        lost: Callable[[str], None],
    ) -> None:
        """Prepare a line.

        `turn` does the work that is due, and calls `pump`; `next_due` returns the time of the next
        turn, on the monotonic clock. `lost` is called with the operating system's reason.
        """
        self.lock: Final = threading.Condition()
        self.is_connecting = False
        self._outbox = outbox
        self._turn = turn
        self._next_due = next_due
        self._lost = lost
        self._socket: socket.socket | None = None
        self._buffer = memoryview(bytearray(_READ_BUFFER))
        self._unwritten = memoryview(b"")
        self._is_polling = False

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    @property
    def is_written(self) -> bool:
        """Whether the operating system has accepted all sent bytes."""
        return not self._unwritten

    # Connecting
    # ----------------------------------------------------------------------------------------------

    def start(self, work: Callable[[], None]) -> None:
        """Connect in the caller's thread, unless another thread is connecting."""
        if self.is_connecting:
            return
        self.is_connecting = True
        try:
            work()
        finally:
            self.is_connecting = False
            self.lock.notify_all()

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Release the lock during a block that waits."""
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()

    def resolve(self, seconds: float) -> list[str]:
        """Return the addresses of the host; OSError if there are none."""
        del seconds  # the system's resolver has its own time-out
        with self._released():
            return resolve(self._outbox.host, self._outbox.settings.peers)

    def connect(self, address: str, seconds: float) -> None:
        """Connect and begin a session; OSError if that fails or takes longer."""
        with self._released():
            connection = socket.create_connection((address, self._outbox.settings.port), seconds)
        if self._outbox.is_closed:
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._outbox.connected(address)

    def drop(self, problem: str = "") -> None:
        """Abort the connection."""
        if self._disconnect():
            self._lost(problem)

    def _disconnect(self) -> bool:
        connection, self._socket = self._socket, None
        self._unwritten = memoryview(b"")
        if connection is None:
            return False
        # Ends the poll of another thread, which close() alone would not do.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        return True

    # Bytes
    # ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Read arrived data and write what the peer's window allows, without waiting."""
        if self._socket is None:
            return
        try:
            self._read(self._socket)
            self._outbox.on_timer()
            self._write(self._socket)
        except OSError as error:
            self.drop(reason(error))
        else:
            if not self._outbox.is_connected:
                self.drop()

    def _read(self, connection: socket.socket) -> None:
        outbox, buffer = self._outbox, self._buffer
        while outbox.is_connected:
            try:
                size = connection.recv_into(buffer)
            except BlockingIOError:
                return
            if not size:
                self.drop()
                return
            outbox.receive(buffer[:size])

    def _write(self, connection: socket.socket | None) -> None:
        while connection is not None:
            if not self._unwritten:
                data = self._outbox.data_to_send()
                if not data:
                    return
                self._unwritten = memoryview(b"".join(data))
            try:
                size = connection.send(self._unwritten)
            except BlockingIOError:
                return
            self._unwritten = self._unwritten[size:]

    def wait(self, posted: Posted | None, deadline: float) -> None:
        """Wait until something may have changed, or until the deadline; then take a turn."""
        del posted  # a turn does the work that is due for every message
        now = time.monotonic()
        due = self._next_due()
        wake = min(deadline, now + _TICK) if due is None else min(deadline, now + _TICK, due)
        seconds = max(0.0, wake - now)
        if self._is_polling or self._socket is None:
            self.lock.wait(seconds)
        else:
            self._poll(self._socket, seconds)
        self._turn(deadline)

    def _poll(self, connection: socket.socket, seconds: float) -> None:
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if self._unwritten else 0))
        self._is_polling = True
        try:
            with self._released():
                poll.poll(1000 * seconds)
        finally:
            self._is_polling = False
            self.lock.notify_all()

    def close(self, linger: float) -> None:
        """Write all data, and wait up to `linger` seconds for the peer to close.

        Closing with data unread would make the operating system discard the last bytes written.
        """
        connection = self._socket
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                deadline = time.monotonic() + linger
                while (seconds := deadline - time.monotonic()) > 0:
                    connection.settimeout(seconds)
                    if not connection.recv_into(self._buffer):
                        break
            self._disconnect()
        self.lock.notify_all()
