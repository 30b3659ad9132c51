"""Reads of queues for programs elsewhere: found at once or waited for, then taken or given back; and purges.

A receive outside a transaction takes its message in two steps, so that one that its reader cannot use stays in the queue, and one whose
reader goes away meanwhile comes back. A read that waits is a future of the loop; it ends with its handle, its cursor, its transaction, or
with whoever waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from lanner.engine.envelope import is_express
from lanner.model.enums import PositionState
from lanner.model.errors import (
    MessageAlreadyReceived,
    OperationCancelled,
    QueueNotAvailable,
    StatusError,
    TransactionSequence,
)
from lanner.model.live import MessagePosition

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine import Engine
    from lanner.engine.reading import ReadEnd
    from lanner.model.enums import CursorState
    from lanner.model.live import Cursor, OpenQueueDescriptor, Transaction, WaitingMessageReadOperation
    from lanner.store.committer import Committer


# Ours: messages purged before others get their turn, about a twentieth of a second.
PURGE_SLICE: Final = 5000


async def purge(engine: Engine, committer: Committer, descriptor: OpenQueueDescriptor) -> None:
    """Purge Queue through a handle, in slices: what is there now, and nothing that comes meanwhile; on disk when this returns."""
    newest: int | None = None
    count = PURGE_SLICE
    while count == PURGE_SLICE:
        with engine.store.lock:
            newest = engine.newest_sequential_id if newest is None else newest
            count = engine.purge_open_queue(descriptor, limit=PURGE_SLICE, newest=newest)
            ticket = engine.store.ticket()
        await committer.durable(ticket)


class Read:
    """A read in its course: `begin`, `wait`, and of a receive `take` and `taken`, or `give_back`. All in the loop's thread."""

    __slots__ = (
        "_committer",
        "_cursor_before",
        "_end",
        "_ended",
        "_engine",
        "_reader",
        "cursor",
        "descriptor",
        "is_receive",
        "transaction",
    )

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        descriptor: OpenQueueDescriptor,
        *,
        is_receive: bool,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self._engine = engine
        self._committer = committer
        self.descriptor = descriptor
        self.cursor = cursor
        self.transaction = transaction
        self.is_receive = is_receive
        # How it ended; None while it waits.
        self._end: MessagePosition | StatusError | None = None
        self._reader: WaitingMessageReadOperation | None = None
        self._ended: asyncio.Future[None] | None = None
        self._cursor_before: tuple[int, int, CursorState] | None = None
        if cursor is not None:
            self._cursor_before = cursor.position, cursor.parked_after, cursor.state

    def begin(self, event: Callable[[ReadEnd], MessagePosition | None], *, may_wait: bool) -> bool:
        """Raise an event of the engine that reads, with what a wait ends by; False: it waits. Its errors are the caller's."""
        if may_wait:
            self._ended = asyncio.get_running_loop().create_future()
        with self._engine.store.lock:
            self._end = event(self._wait_over)
            if self._end is None:
                self._reader = self._engine.last_waiting_read
        return self._end is not None

    def _wait_over(self, end: MessagePosition | StatusError) -> None:
        """Called by the engine with the store's lock held, by whichever thread."""
        self._end = end
        if self._ended is not None:
            self._ended.get_loop().call_soon_threadsafe(_wake, self._ended)

    async def wait(self) -> MessagePosition:
        """Wait until there is a message; cancelled, it waits no more, and what it has got meanwhile is given back."""
        if self._end is None and self._ended is not None:
            try:
                await self._ended
            except asyncio.CancelledError:
                self.abandon()
                raise
        return self.position

    @property
    def position(self) -> MessagePosition:
        """What was found; raises what ended the wait instead."""
        end = self._end
        if not isinstance(end, MessagePosition):
            raise end or OperationCancelled()
        return end

    def take(self) -> int:
        """The second step of a receive outside a transaction; the batch that must be on disk before anybody hears of it, or 0."""
        position = self.position
        with self._engine.store.lock:
            if self.descriptor.is_closed:
                # It went back with the handle.
                raise OperationCancelled("the queue was closed")
            is_purged = position.state is PositionState.PURGE_PENDING
            self._engine.dequeue_message_end(self.descriptor, position, delete_message=True)
            if is_purged:
                raise MessageAlreadyReceived(f"{self.descriptor.format_name} was purged")
            return 0 if is_express(position.record.packet) else self._engine.store.ticket()

    async def taken(self, ticket: int) -> None:
        """Wait for the disk; cancelled, the message stands in its place again."""
        try:
            await self._committer.durable(ticket)
        except asyncio.CancelledError:
            with self._engine.store.lock:
                self._engine.undo_receive(self.position)
                ticket = self._engine.store.ticket()
            self._committer.ask(ticket)
            raise

    def abandon(self) -> None:
        """Nobody is left to hear of it: it waits no more, and what it got is given back."""
        with self._engine.store.lock:
            reader = self._reader
            if reader is not None and reader.is_waiting:
                self._engine.stop_waiting_read(reader, OperationCancelled("the client has gone"))
        self.give_back()

    def give_back(self) -> None:
        """A message that was received, and not taken, stays in the queue, ahead of the cursor that was to receive it."""
        position = self._end
        if not self.is_receive or not isinstance(position, MessagePosition):
            return
        with self._engine.store.lock:
            if self.transaction is not None:
                self._engine.give_back_transactional_read(self.transaction, position)
            else:
                # If the queue was closed or deleted meanwhile, it went back or away then.
                with contextlib.suppress(QueueNotAvailable, TransactionSequence):
                    self._engine.dequeue_message_end(self.descriptor, position, delete_message=False)
            if self.cursor is not None and self._cursor_before is not None:
                self.cursor.position, self.cursor.parked_after, self.cursor.state = self._cursor_before
            ticket = self._engine.store.ticket()
        self._committer.ask(ticket)


def _wake(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
