"""One read of a queue: found at once or waited for, then taken or given back; and purges.

A receive outside a transaction takes its message in two steps. A message that its reader cannot use
stays in the queue, and a message whose reader disappears in between returns to it:

    read = Read(engine, changes, descriptor, is_receive=True)
    read.begin(event)                  # raises the engine's event
    position = await read.wait()       # or read.block(timeout) in a thread
    change = read.take()               # the second step
    await read.taken(change)           # durable; cancelled, the message is back in its place

A wait ends when a message arrives, at its time-out, or when its handle, cursor or transaction ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from lanner.host.waking import turn, wake
from lanner.model.enums import PositionState
from lanner.model.errors import (
    MessageAlreadyReceived,
    OperationCancelled,
    QueueNotAvailable,
    StatusError,
    TransactionSequence,
)
from lanner.model.live import MessagePosition
from lanner.wire.envelope import is_express

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lanner.engine import Engine
    from lanner.engine.reading import ReadEnd, ReadStart
    from lanner.host.change import Change, Changes
    from lanner.host.committer import Committer
    from lanner.model.enums import CursorState
    from lanner.model.live import Cursor, OpenQueueDescriptor, Transaction, WaitingMessageReadOperation
    from lanner.security.identity import Identity


# Not in the specification: messages purged before other callers get their turn, about 50 ms of
# work.
PURGE_SLICE: Final = 5000
# Seconds between checks of a thread whether the timer has ended its wait, once that is due.
_TICK: Final = 0.001


def purge_slices(
    engine: Engine, changes: Changes, descriptor: OpenQueueDescriptor, identity: Identity
) -> Generator[tuple[Change, int], None, None]:
    """Purge Queue through a handle, in slices.

    Yields each change, for the caller to wait for, and how many messages it removed. Messages that
    arrive in the meantime stay. The audit log has one record for all slices.
    """
    newest: int | None = None
    count, total, is_begun = PURGE_SLICE, 0, False
    queue = descriptor.queue
    details: dict[str, object] = {"queue": descriptor.format_name if queue is None else queue.pathname}
    try:
        while count == PURGE_SLICE:
            with changes.change() as change:
                newest = engine.newest_sequential_id if newest is None else newest
                count = engine.purge_open_queue(descriptor, limit=PURGE_SLICE, newest=newest)
            total, is_begun = total + count, True
            yield change, count
    finally:
        # If a client gave up, the slices so far are purged.
        if is_begun:
            engine.audit.done("purge queue", identity, **details, messages=total)


async def purge(engine: Engine, committer: Committer, descriptor: OpenQueueDescriptor, identity: Identity) -> int:
    """Purge Queue through a handle; return how many messages were removed, durably."""
    total, holder = 0, identity.sid.pack()
    with contextlib.closing(purge_slices(engine, committer, descriptor, identity)) as slices:
        await turn(holder)
        for change, count in slices:
            await change
            total += count
            await turn(holder)
    return total


class Read:
    """One read: `begin`, `wait` or `block`; for a receive also `take`, `taken` or `give_back`."""

    __slots__ = (
        "_changes",
        "_cursor_before",
        "_engine",
        "_on_over",
        "_waiting",
        "cursor",
        "descriptor",
        "end",
        "is_receive",
        "transaction",
    )

    def __init__(
        self,
        engine: Engine,
        changes: Changes,
        descriptor: OpenQueueDescriptor,
        *,
        is_receive: bool,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self._engine = engine
        self._changes = changes
        self.descriptor = descriptor
        self.cursor = cursor
        self.transaction = transaction
        self.is_receive = is_receive
        # The result; None while it waits.
        self.end: MessagePosition | StatusError | None = None
        self._waiting: WaitingMessageReadOperation | None = None
        self._on_over: Callable[[], object] | None = None
        self._cursor_before: tuple[int, int, CursorState] | None = None
        if cursor is not None:
            self._cursor_before = cursor.position, cursor.parked_after, cursor.state

    @classmethod
    def of(
        cls,
        engine: Engine,
        changes: Changes,
        descriptor: OpenQueueDescriptor,
        position: MessagePosition,
        transaction: Transaction | None,
    ) -> Read:
        """Return a receive that has found its message."""
        read = cls(engine, changes, descriptor, is_receive=True, transaction=transaction)
        read.end = position
        return read

    @property
    def is_held(self) -> bool:
        """Whether it holds a message that can be removed together with others of its handle."""
        end = self.end
        return (
            isinstance(end, MessagePosition)
            and end.state is PositionState.LOCKED
            and self.descriptor.queue is not None
            and not self.descriptor.is_closed
        )

    def begin(self, event: Callable[[ReadEnd], ReadStart]) -> bool:
        """Raise one of the engine's reading events; return False if the read waits.

        Errors of the event are raised.
        """
        with self._engine.store.lock:
            start = event(self._over)
            if isinstance(start, MessagePosition):
                self.end = start
                return True
            self._waiting = start
            return False

    @property
    def is_waiting(self) -> bool:
        return self.end is None

    def _over(self, end: MessagePosition | StatusError) -> None:
        """End the wait. The engine calls this once, in any thread, with the store's lock held."""
        self.end = end
        if self._on_over is not None:
            self._on_over()

    def when_over(self, callback: Callable[[], object]) -> None:
        """Have a callback called when the wait is over; at once if it is over already.

        It may be called in any thread.
        """
        with self._engine.store.lock:
            if self.end is None:
                self._on_over = callback
                return
        callback()

    async def wait(self) -> MessagePosition:
        """Wait for the message in an event loop.

        A cancelled wait gives back a message found meanwhile.
        """
        if self.end is None:
            ended = asyncio.get_running_loop().create_future()
            self.when_over(partial(ended.get_loop().call_soon_threadsafe, self._wake, ended))
            try:
                await ended
            except asyncio.CancelledError:
                self.abandon()
                raise
        return self.position

    def _wake(self, ended: asyncio.Future[None]) -> None:
        end = self.end
        size = len(end.record.packet) if isinstance(end, MessagePosition) else 0
        wake(ended, self.descriptor.sender_identifier, size)

    def block(self, timeout: float | None) -> MessagePosition:
        """Wait for the message in a thread.

        `timeout` (in seconds) is the one that was passed to the engine.
        """
        if self.end is None:
            over = threading.Event()
            try:
                self.when_over(over.set)
                limit = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
                while not over.wait(limit):
                    # The engine ends the wait here; otherwise the thread would depend on the timer
                    # thread.
                    with self._engine.store.lock:
                        self._engine.on_timer()
                    limit = _TICK
            except BaseException:
                self.abandon()
                raise
        return self.position

    @property
    def position(self) -> MessagePosition:
        """The position that was found. Raises the error that ended the wait instead."""
        end = self.end
        if not isinstance(end, MessagePosition):
            raise end or OperationCancelled()
        return end

    def take(self) -> Change:
        """Remove the message: the second step of a receive outside a transaction."""
        with self._changes.change() as change:
            self.remove()
        if is_express(self.position.record.packet):
            change.forget()
        return change

    def remove(self) -> None:
        """Remove the message as part of a larger change. The caller holds the lock."""
        position = self.position
        if self.descriptor.is_closed:
            # Closing the handle gave the message back.
            raise OperationCancelled("the queue was closed")
        is_purged = position.state is PositionState.PURGE_PENDING
        self._engine.dequeue_message_end(self.descriptor, position, delete_message=True)
        if is_purged:
            raise MessageAlreadyReceived(f"{self.descriptor.format_name} was purged")

    async def taken(self, change: Change) -> None:
        """Wait in an event loop until `take` is durable.

        If the caller is cancelled, the message returns to its place.
        """
        try:
            await change
        except asyncio.CancelledError:
            self.undo()
            raise

    def undo(self) -> None:
        """Put back a message whose reader was interrupted in `take`, or before that was durable."""
        if self.position.state is not PositionState.DELETED:
            self.give_back()
            return
        with self._changes.change() as undo:
            self._engine.undo_receive(self.position)
        undo.soon()

    def abandon(self) -> None:
        """End the wait without a reader. A message received meanwhile is given back."""
        with self._engine.store.lock:
            self._on_over = None
        self.cancel()

    def cancel(self) -> None:
        """End the wait with OperationCancelled. A message received meanwhile is given back."""
        with self._engine.store.lock:
            waiting = self._waiting
            if waiting is not None and waiting.is_waiting:
                self._engine.stop_waiting_read(waiting, OperationCancelled("the wait was cancelled"))
        self.give_back()

    def give_back(self) -> None:
        """Return a received message to its queue, and the cursor to its former place.

        The message was not taken.
        """
        position, self.end = self.end, OperationCancelled("the message was given back")
        if not self.is_receive or not isinstance(position, MessagePosition):
            return
        with self._changes.change() as change:
            if self.transaction is not None:
                self._engine.give_back_transactional_read(self.transaction, position)
            else:
                # A queue that was closed or deleted meanwhile has given it back, or lost it,
                # already.
                with contextlib.suppress(QueueNotAvailable, TransactionSequence):
                    self._engine.dequeue_message_end(self.descriptor, position, delete_message=False)
            if self.cursor is not None and self._cursor_before is not None:
                self.cursor.position, self.cursor.parked_after, self.cursor.state = self._cursor_before
        change.soon()
