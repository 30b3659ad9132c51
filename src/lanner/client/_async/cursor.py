"""`Cursor`: a position in a queue for peeking and receiving."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.client._async.closeable import Closeable
from lanner.client._async.transaction import Transaction, unit_of
from lanner.model.errors import InvalidHandle

if TYPE_CHECKING:
    from lanner.client._async.backend import Backend, BackendCursor
    from lanner.client.message import ReceivedMessage


class Cursor(Closeable):
    """A position in a queue. Past the last message, a read waits or ends with IOTimeout."""

    def __init__(self, backend: Backend, cursor: BackendCursor) -> None:
        """Make a cursor; programs use `Queue.cursor`."""
        self._backend = backend
        self._cursor = cursor
        self._is_closed = False

    async def close(self) -> None:
        """Close the cursor. Closing twice is harmless."""
        self._is_closed = True
        await self._cursor.close()

    def _require_open(self) -> BackendCursor:
        if self._is_closed:
            raise InvalidHandle("the cursor is closed: Queue.cursor() opens another")
        return self._cursor

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Return the message under the cursor; a new cursor first moves to the first message."""
        return await self._require_open().peek(timeout, is_next=False)

    async def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """Step to the next message and return it."""
        return await self._require_open().peek(timeout, is_next=True)

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Receive the message under the cursor.

        Raises IOTimeout if none comes within `timeout` seconds. If `timeout` is 0 and there is
        none, raises MessageNotFound.
        """
        return await self._require_open().receive(timeout, unit_of(transaction, self._backend))
