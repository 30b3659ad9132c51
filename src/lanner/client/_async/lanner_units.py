"""Cursors and transactions of another Lanner: both are lost with their connection."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from lanner.client._async.io import Lock
from lanner.client._async.lanner_connection import LannerConnection, SendError
from lanner.client.message import ReceivedMessage
from lanner.host.operations import milliseconds
from lanner.model.errors import (
    CommitInDoubt,
    InvalidHandle,
    LannerError,
    RemoteMachineNotAvailable,
    StatusError,
    TransactionSequence,
)
from lanner.services import stream_entries as entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.client._async.backend import BackendQueue, BackendTransaction
    from lanner.client._async.lanner_backend import LannerBackend
    from lanner.client._async.lanner_queue import LannerQueue
    from lanner.client.message import Message
    from lanner.rpc.async_client import Posted
    from lanner.services.interfaces.lanner import Document


class LannerCursor:
    """A cursor, which is opened on first use and lost with its connection."""

    def __init__(self, queue: LannerQueue, access: str) -> None:
        # This reference keeps the queue object, and so its handle, open.
        self._queue = queue
        self._access = access
        self._place: tuple[LannerConnection, int, int] | None = None

    def __del__(self) -> None:
        place = getattr(self, "_place", None)
        if place is not None:
            place[0].abandoned.append({"request": "close cursor", "cursor": place[2]})

    async def _opened(self, connection: LannerConnection) -> tuple[int, int]:
        if self._place is None:
            queue, number = await self._queue.handle(connection, self._access), connection.new_number()
            try:
                await connection.call({"request": "open cursor", "queue": queue, "cursor": number})
            except LannerError:
                raise
            except BaseException:
                connection.abandoned.append({"request": "close cursor", "cursor": number})
                raise
            self._place = connection, queue, number
        elif self._place[0] is not connection:
            raise InvalidHandle(f"{self._queue.text}: the connection was lost, and the cursor with it")
        return self._place[1], self._place[2]

    async def number(self, connection: LannerConnection) -> int:
        """Return the cursor's number on a connection."""
        return (await self._opened(connection))[1]

    async def close(self) -> None:
        place, self._place = self._place, None
        if place is not None and self._queue.backend.connections.is_current(place[0]):
            with contextlib.suppress(LannerError):
                await place[0].call({"request": "close cursor", "cursor": place[2]})

    async def peek(self, timeout: float | None, *, is_next: bool) -> ReceivedMessage:
        limit = milliseconds(timeout)

        async def peek(connection: LannerConnection) -> ReceivedMessage:
            queue, cursor = await self._opened(connection)
            request = {"request": "peek", "queue": queue, "cursor": cursor, "next": is_next, "timeout": limit}
            return (await connection.messages(request))[0]

        return await self._queue.do(peek)

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage:
        return await self._queue.receive_at(self, timeout, unit)


# The maximum number of octets of a frame that is sent at once, and of an entry besides its packet.
_LARGEST_FRAME: Final = 0x000F_0000
_OVERHEAD: Final = 64

# A function that sends the end of a transaction, given its connection and its number there.
_End: TypeAlias = Callable[[LannerConnection, int], Awaitable[object]]


class LannerTransaction:
    """A transaction of the queue manager: begun on first use, aborted with its connection."""

    def __init__(self, backend: LannerBackend) -> None:
        self._backend = backend
        self.identifier = uuid.uuid4()
        self.is_over = False
        self._enlisting = Lock()
        self._enlisted: tuple[LannerConnection, int] | None = None
        # The commit that was requested, if its answer is pending.
        self._posted: Posted | None = None

    def __del__(self) -> None:
        # A transaction that is dropped before its end is aborted, as in the queue manager's own
        # process.
        if not getattr(self, "is_over", True) and self._enlisted is not None:
            connection, number = self._enlisted
            connection.abandoned.append({"request": "abort", "transaction": number})

    async def enlist(self, connection: LannerConnection) -> int:
        """Return the transaction's number on a connection."""
        async with self._enlisting:
            if self._enlisted is None:
                number = connection.new_number()
                # Sent with the transaction's first request, whose answer carries the error if the
                # transaction could not begin.
                connection.tell(entries.BEGIN, entries.pack_begin(number, self.identifier))
                self._enlisted = connection, number
            elif self._enlisted[0] is not connection:
                raise TransactionSequence(f"transaction {self.identifier} was aborted: the connection was lost")
            return self._enlisted[1]

    async def commit(self) -> None:
        with self._in_doubt():
            await self._end(_ending(entries.COMMIT))

    async def commit_with(self, put: Sequence[tuple[BackendQueue, Message]]) -> bool:
        """Send messages and commit in one frame.

        Returns False if they do not fit, or are not plain packets.
        """
        queues = [cast("LannerQueue", queue) for queue, _ in put]
        packets: list[tuple[int, bytes]] = []

        async def build(connection: LannerConnection) -> bool:
            packets.clear()
            size = 0
            for queue, (_, message) in zip(queues, put, strict=True):
                built = await queue.packets(connection, message)
                size += _LARGEST_FRAME if built is None else len(built[1]) + _OVERHEAD
                if built is None or size > _LARGEST_FRAME:
                    return False
                packets.append(built)
            await self.enlist(connection)
            return True

        try:
            if not await queues[0].do(build):
                return False
        except BaseException:
            with contextlib.suppress(LannerError):
                await self.abort()
            raise
        identifiers: list[str] = []

        async def send(connection: LannerConnection, number: int) -> None:
            first = 0
            posted = []
            for queue, group in groupby(packets, lambda one: one[0]):
                body = entries.pack_send(queue, number, first)
                posted.append(connection.put(entries.SEND, body, *(packet for _, packet in group)))
                first = posted[0].number
            behind = connection.post(entries.COMMIT_BEHIND, entries.pack_commit_behind(number, first))
            try:
                for one in posted:
                    answer = await connection.answer(one)
                    identifiers.extend(connection.identifiers(entries.unpack_ordinals(answer)))
                await connection.answer(behind)
            except (StatusError, SendError) as error:
                with contextlib.suppress(LannerError):
                    await connection.exchange(entries.ABORT, entries.pack_transaction(number))
                raise error.error if isinstance(error, SendError) else error from None
            except LannerError:
                raise
            except BaseException:
                # Whether or not it was committed, it must not stay open.
                connection.abandoned.append({"request": "abort", "transaction": number})
                raise
            finally:
                for one in (*posted, behind):
                    connection.forget(one)

        with self._in_doubt():
            await self._end(send)
        for (_, message), identifier in zip(put, identifiers, strict=True):
            message.id = identifier
        return True

    async def begin_commit(self) -> None:
        """Request the commit, without waiting for it."""
        with self._in_doubt():
            await self._end(self._post_commit)

    async def _post_commit(self, connection: LannerConnection, number: int) -> None:
        self._posted = connection.post(entries.COMMIT, entries.pack_transaction(number))

    async def committed(self) -> None:
        """Wait for the requested commit.

        Raises CommitInDoubt if the connection is lost before the answer.
        """
        posted, self._posted = self._posted, None
        if posted is None or self._enlisted is None:
            return

        async def wait(connection: LannerConnection) -> object:
            return await connection.answer(posted)

        with self._in_doubt():
            await self._backend.connections.on(self._enlisted[0], f"transaction {self.identifier}", wait)

    @contextlib.contextmanager
    def _in_doubt(self) -> Iterator[None]:
        try:
            yield
        except RemoteMachineNotAvailable as error:
            raise CommitInDoubt(
                f"transaction {self.identifier}: {error.args[0]}: whether it is committed is unknown"
            ) from error

    async def abort(self) -> None:
        await self._end(_ending(entries.ABORT))

    async def prepare(self, request: Document) -> None:
        """Prepare the transaction.

        From then on its coordinator ends it, and it survives the connection.
        """
        if self._enlisted is None:
            raise TransactionSequence(f"transaction {self.identifier} was never begun")
        await self._end(lambda connection, number: connection.call({**request, "transaction": number}))

    async def _end(self, send: _End) -> None:
        self.is_over = True
        if self._enlisted is None:
            return
        made, number = self._enlisted
        if not self._backend.connections.is_current(made):
            raise TransactionSequence(f"transaction {self.identifier} was aborted: the connection was lost")
        what = f"transaction {self.identifier}"
        await self._backend.connections.on(made, what, lambda connection: send(connection, number))


def _ending(kind: int) -> _End:
    return lambda connection, number: connection.exchange(kind, entries.pack_transaction(number))
