"""What spans several calls to a queue manager elsewhere: messages that are held, cursors, transactions."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from lanner.client.operations import milliseconds
from lanner.model.enums import QueueAccessType
from lanner.model.errors import (
    InvalidHandle,
    StatusError,
    TransactionSequence,
    TransactionUsage,
    UnsupportedOperation,
)
from lanner.services.interfaces.mqmp import (
    QMCOMM,
    R_QM_ABORT_TRANSACTION,
    R_QM_COMMIT_TRANSACTION,
    R_QM_ENLIST_INTERNAL_TRANSACTION,
)

if TYPE_CHECKING:
    from types import TracebackType

    from lanner.client.message import ReceivedMessage
    from lanner.client.remote_aio import Queue, QueueManager
    from lanner.client.remote_handles import PlainQueue, ReadQueue
    from lanner.client.remote_session import Session
    from lanner.rpc.interface import Method
    from lanner.services.interfaces.mqqp import RemoteReadAck
    from lanner.services.remote_read_client import PendingRemoteReadEntry, RemoteMessage


class Held:
    """A message between the two phases of its receive."""

    def __init__(self, opened: PlainQueue, entry: PendingRemoteReadEntry, message: RemoteMessage) -> None:
        self.opened = opened
        self.entry = entry
        self.message = message

    def ender(self, ack: RemoteReadAck) -> Callable[[Session], Awaitable[None]]:
        return lambda _session: self.opened.queue.end(self.entry, ack)


class Cursor:
    """A place in a queue, made when it is first used. Stepping off the end waits, or ends with IOTimeout."""

    def __init__(self, queue: Queue, access: QueueAccessType) -> None:
        # The queue object keeps the handle open.
        self._queue = queue
        self._access = access
        self._place: tuple[ReadQueue, int] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        place, self._place = self._place, None
        if place is not None and self._queue.sessions.is_current(place[0].session):
            with contextlib.suppress(StatusError):
                await self._queue.sessions.do(self._queue.name, lambda _: place[0].close_cursor(place[1]))

    async def _at(self, session: Session) -> tuple[ReadQueue, int]:
        if self._place is None:
            opened = await self._queue.handles.reading(session, self._access)
            self._place = opened, await opened.create_cursor()
        elif self._place[0].session is not session:
            raise InvalidHandle(f"{self._queue.name}: the connection was lost, and the cursor with it")
        return self._place

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message under the cursor; a new cursor first moves to the first one."""
        limit = milliseconds(timeout)

        async def peek(session: Session) -> ReceivedMessage:
            opened, cursor = await self._at(session)
            return await opened.peek(limit, cursor)

        return await self._queue.sessions.do(self._queue.name, peek)

    async def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """Step to the next message and look at it."""
        limit = milliseconds(timeout)

        async def peek_next(session: Session) -> ReceivedMessage:
            opened, cursor = await self._at(session)
            return await opened.peek_next(limit, cursor)

        return await self._queue.sessions.do(self._queue.name, peek_next)

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the message under the cursor."""
        if transaction is not None:
            raise UnsupportedOperation("a cursor of a queue elsewhere receives outside transactions")
        limit = milliseconds(timeout)

        async def receive(session: Session) -> ReceivedMessage:
            opened, cursor = await self._at(session)
            return await opened.receive(limit, cursor)

        return await self._queue.sessions.do(self._queue.name, receive)


class Transaction:
    """All of it or nothing: an internal transaction of that queue manager (MS-MQMP 3.1.1.9), begun when it is first used."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._identifier = uuid.uuid4()
        self._enlisted: tuple[Session, bytes] | None = None
        self._enlisting = asyncio.Lock()
        self._is_over = False
        # A receive was given up, and may have taken a message that nobody has seen.
        self._is_doomed = False

    @property
    def identifier(self) -> str:
        return str(self._identifier)

    def check(self, manager: QueueManager) -> uuid.UUID:
        """The identifier, for an operation in it."""
        if self._is_over or self._is_doomed:
            raise TransactionSequence(f"transaction {self.identifier} has ended, or must be aborted")
        if manager.sessions is not self._manager.sessions:
            raise TransactionUsage(f"transaction {self.identifier} belongs to another queue manager")
        return self._identifier

    async def enlist(self, session: Session) -> None:
        """R_QMEnlistInternalTransaction, once."""
        async with self._enlisting:
            if self._enlisted is None:
                results = await session.call(QMCOMM, R_QM_ENLIST_INTERNAL_TRANSACTION, p_uow=self._identifier.bytes_le)
                self._enlisted = session, results["ph_int_xact"]
            elif self._enlisted[0] is not session:
                raise TransactionSequence(f"transaction {self.identifier} was aborted: the connection was lost")

    async def receive(self, manager: QueueManager, queue: Queue, limit: int) -> ReceivedMessage:
        """Take the first message of a queue."""
        identifier = self.check(manager)

        async def receive(session: Session) -> ReceivedMessage:
            await self.enlist(session)
            opened = await queue.handles.local(session, QueueAccessType.RECEIVE)
            return await opened.receive(limit, transaction=identifier)

        try:
            return await manager.sessions.do(queue.name, receive)
        except asyncio.CancelledError:
            self._is_doomed = True
            raise

    async def commit(self) -> None:
        """Do it all, durably."""
        self.check(self._manager)
        await self._end(R_QM_COMMIT_TRANSACTION)

    async def abort(self) -> None:
        """Undo it all: what was received is back in its place, what was sent never was."""
        if self._is_over:
            raise TransactionSequence(f"transaction {self.identifier} has ended")
        await self._end(R_QM_ABORT_TRANSACTION)

    async def _end(self, method: Method) -> None:
        self._is_over = True
        if self._enlisted is None:
            return
        made, handle = self._enlisted

        async def end(session: Session) -> None:
            if session is not made:
                raise TransactionSequence(f"transaction {self.identifier} was aborted: the connection was lost")
            await session.call(QMCOMM, method, ph_int_xact=handle)

        await self._manager.sessions.do(f"transaction {self.identifier}", end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if kind is None:
            await self.commit()
        else:
            # What ended the block is told, not that a lost connection has aborted it already.
            with contextlib.suppress(StatusError):
                await self.abort()
