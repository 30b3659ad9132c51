"""A program that only sends needs no queue manager: `Sender` opens one session of MS-MQQB to an MSMQ computer.

`lanner.aio.Sender` has the same names, awaitable; what both share is in `outbox`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

from lanner.client.outbox import BATCH, CONNECT_TIMEOUT, DEFAULT_TIMEOUT, LINGER, Outbox, Posted, Stage, no_address
from lanner.model.errors import LannerError
from lanner.transfer.addresses import resolve

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from lanner.client.message import Message, ReceivedMessage
    from lanner.security.signing import SigningKey
    from lanner.transfer.settings import TransferSettings

_READ_BUFFER = 64 << 10
# A thread that waits for the socket looks so often whether another has left it something to write.
_TICK = 0.05  # seconds
# Messages from a slow source leave after this time, though there may be room for more with them.
_IMPATIENCE = 0.005  # seconds


class BaseSender:
    """What needs no waiting."""

    _outbox: Outbox

    def __repr__(self) -> str:
        return f"<Sender to {self._outbox.place}, {self.unacknowledged} unacknowledged>"

    @property
    def guid(self) -> uuid.UUID:
        """What this sender calls itself: the source of its messages."""
        return self._outbox.guid

    @property
    def next_ordinal(self) -> int:
        """The number of the next message; whoever uses the same `guid` later goes on with it."""
        return self._outbox.next_ordinal

    @property
    def remote_guid(self) -> uuid.UUID:
        """The queue manager at the other end."""
        return self._outbox.remote_guid

    @property
    def unacknowledged(self) -> int:
        """How many messages were sent and not acknowledged."""
        return self._outbox.count


class Sender(BaseSender):
    r"""One session to one computer, Lanner or Windows. Threads may share it.

    >>> with lanner.Sender("beta") as sender:
    ...     sender.send(r"private$\orders", "hello")

    `timeout` is how many seconds may pass without any acknowledgment. `guid` None: a new one, with ordinals from 1.
    `queue_manager`: speak to this one only. `sender_id`: the SID of the user in whose name messages are sent; None, and they
    have the rights of Everyone. `peers` are addresses of names, looked at before DNS.
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
        self._changed = threading.Condition()
        self._socket: socket.socket | None = None
        self._buffer = memoryview(bytearray(_READ_BUFFER))
        self._unwritten = memoryview(b"")
        self._retry_at = 0.0
        self._is_polling = False
        self._turned = 0.0
        try:
            with self._changed:
                self._connect(time.monotonic() + timeout)
                self._run(lambda: self._outbox.is_open or not self._outbox.is_connected, timeout)
                if not self._outbox.is_open:
                    raise self._outbox.unreachable()
        except BaseException:
            self._disconnect()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._end()

    def send(
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
        with self._changed:
            posted = self._outbox.post(queue, message, transaction)
            is_awaited = posted.is_recoverable if wait is None else wait
            try:
                self._wait(posted, Stage.ACKNOWLEDGED if is_awaited else Stage.SENT, timeout)
            except BaseException:
                self._outbox.withdraw(posted)
                raise
            return posted.identifier

    def send_many(
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
                with self._changed:
                    posted = self._outbox.post(queue, message, transaction)
                    sent.append(posted)
                    if self._outbox.unsent_count >= BATCH or time.monotonic() - self._turned > _IMPATIENCE:
                        self._wait(posted, Stage.SENT, timeout)
            with self._changed:
                for posted in sent:
                    is_awaited = posted.is_recoverable if wait is None else wait
                    self._wait(posted, Stage.ACKNOWLEDGED if is_awaited else Stage.SENT, timeout)
        except BaseException:
            with self._changed:
                for posted in sent:
                    self._outbox.withdraw(posted)
            raise
        return [posted.identifier for posted in sent]

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything is acknowledged, express messages included."""
        with self._changed:
            for posted in self._outbox.unacknowledged:
                self._wait(posted, Stage.ACKNOWLEDGED, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Wait for what is recoverable, and have the rest written; then end the session. Closing twice is harmless."""
        try:
            with self._changed:
                for posted in self._outbox.unacknowledged:
                    self._wait(posted, Stage.ACKNOWLEDGED if posted.is_recoverable else Stage.SENT, timeout)
        finally:
            self._end()

    # How this API waits ---------------------------------------------------------------------------------------

    def _wait(self, posted: Posted, stage: Stage, timeout: float | None) -> None:
        """Until a message is that far, and what is sent is written. The lock is held."""
        is_awaited = stage is Stage.ACKNOWLEDGED
        if posted.stage >= stage and (is_awaited or not self._unwritten):
            return
        self._outbox.awaiting += is_awaited
        try:
            self._run(lambda: posted.stage >= stage and (is_awaited or not self._unwritten), timeout)
        finally:
            self._outbox.awaiting -= is_awaited
        if self._outbox.is_in_the_way:
            self._lost()

    def _run(self, is_over: Callable[[], bool], timeout: float | None) -> None:
        """Read, write and connect until something is over. The lock is held, but for the time of waiting."""
        timeout = self._outbox.timeout if timeout is None else timeout
        started = time.monotonic()
        while True:
            self._turn(max(started, self._outbox.progressed) + timeout)
            if is_over():
                return
            self._outbox.require_use()
            deadline = max(started, self._outbox.progressed) + timeout
            if time.monotonic() >= deadline:
                raise self._outbox.late(timeout)
            self._rest(deadline)

    def _turn(self, deadline: float) -> None:
        self._turned = time.monotonic()
        if self._socket is None and self._outbox.count and self._turned >= self._retry_at:
            with contextlib.suppress(LannerError):  # the outbox remembers why; tried again
                self._connect(deadline)
        try:
            self._read()
            self._outbox.on_timer()
            self._write()
        except OSError as error:
            self._lost(str(error.strerror or error))
        else:
            if self._socket is not None and not self._outbox.is_connected:
                self._lost()

    def _read(self) -> None:
        connection = self._socket
        while connection is not None and self._outbox.is_connected:
            try:
                size = connection.recv_into(self._buffer)
            except BlockingIOError:
                return
            if not size:
                self._lost()
                return
            self._outbox.receive(self._buffer[:size])

    def _write(self) -> None:
        connection = self._socket
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

    def _rest(self, deadline: float) -> None:
        """Until there may be something to do. One thread at a time watches the socket, for all."""
        wakes = [deadline, time.monotonic() + _TICK]
        timer = self._outbox.next_deadline()
        if timer is not None:
            wakes.append(timer)
        if self._socket is None:
            wakes.append(self._retry_at)
        seconds = max(0.0, min(wakes) - time.monotonic())
        if self._is_polling or self._socket is None:
            self._changed.wait(seconds)
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unwritten else 0))
        self._is_polling = True
        self._changed.release()
        try:
            poll.poll(1000 * seconds)
        finally:
            self._changed.acquire()
            self._is_polling = False
            self._changed.notify_all()

    def _connect(self, deadline: float) -> None:
        """A connection to the first address that takes one."""
        outbox = self._outbox
        try:
            addresses = resolve(outbox.host, outbox.settings.peers)
        except OSError as error:
            self._lost(no_address(error))
            raise outbox.unresolved() from error
        problem = ""
        for address in addresses:
            seconds = min(CONNECT_TIMEOUT, max(deadline - time.monotonic(), 0.001))
            try:
                self._socket = socket.create_connection((address, outbox.settings.port), seconds)
            except OSError as error:
                problem = str(error.strerror or error)
                continue
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            outbox.connected(address)
            return
        self._lost(problem)
        raise outbox.unreachable()

    def _lost(self, problem: str = "") -> None:
        self._disconnect()
        self._outbox.disconnected(problem)
        self._retry_at = time.monotonic() + self._outbox.retry_delay()

    def _disconnect(self) -> None:
        connection, self._socket = self._socket, None
        self._unwritten = memoryview(b"")
        if connection is not None:
            # Whoever polls it must not wait for ever.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _end(self) -> None:
        with self._changed:
            connection = self._socket
            if connection is not None:
                # The kernel throws away what we wrote last if we close with something unread: so read to the end.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(LINGER)
                    while connection.recv_into(self._buffer):
                        pass
            self._disconnect()
            self._outbox.close()
            self._changed.notify_all()
