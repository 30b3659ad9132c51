"""Queues and cursors of a queue manager reached through Microsoft's protocols."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from lanner.client._async.io import WINDOW, gather
from lanner.client._async.mqrr_reader import NO_TRANSACTION, MqrrReader
from lanner.client._async.msmq_handles import Handles, RemoteHandle
from lanner.client._async.msmq_held import Held, give_back, remove
from lanner.client._async.msmq_transaction import RemoteBranch, own
from lanner.client.found import Found
from lanner.client.preparing import to_message
from lanner.client.remote_message import from_remote_read, lookup
from lanner.host.message_filters import MessageFilter
from lanner.host.operations import milliseconds
from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import QueueAccessType
from lanner.model.errors import (
    AccessDenied,
    InvalidHandle,
    IOTimeout,
    LannerError,
    MessageNotFound,
    QueueNotAvailable,
    ReceiveInDoubt,
    RemoteMachineNotAvailable,
    StatusError,
    UnsupportedOperation,
)
from lanner.model.live import Record
from lanner.security.accounts import Accounts
from lanner.services.interfaces.mqmp import QMCOMM2, RPC_AC_SEND_MESSAGE_EX
from lanner.services.queue_client_buffers import send_buffer
from lanner.wire.builder import build
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.layout import MAX_PACKET_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.client._async.backend import BackendCursor, BackendQueue, BackendTransaction
    from lanner.client._async.mqrr_reader import OpenMqrrQueue
    from lanner.client._async.msmq_backend import MsmqBackend
    from lanner.client._async.msmq_connection import MsmqConnection
    from lanner.client._async.msmq_handles import Handle
    from lanner.client._async.msmq_transaction import MsmqTransaction
    from lanner.client.message import Message, ReceivedMessage
    from lanner.client.preparing import Sendable
    from lanner.services.interfaces.mqmp import CACTransferBufferV2
    from lanner.wire.format_name import FormatName

T = TypeVar("T")

_RECEIVE, _PEEK = QueueAccessType.RECEIVE, QueueAccessType.PEEK
# The number of messages that `receive_many` holds at once.
_MAX_HELD: Final = 1000
_NO_IDENTIFIER: Final = MessageIdentifier(GUID_NULL, 0)


class MsmqQueue:
    """A queue, and the handles behind one `Queue` object.

    A message received in a transaction has the lookup id 0, because MS-MQMP has no field for it.
    Only MS-MQRR has abort and move counts; with other protocols they are 0. An exclusive object
    receives with one handle, of MS-MQMP in transactions and of MS-MQRR or MS-MQQP outside. Changing
    between the two closes the handle, which ends reads waiting on it and gives back the messages it
    holds.
    """

    def __init__(self, backend: MsmqBackend, name: FormatName, text: str, *, exclusive: bool) -> None:
        self.backend = backend
        self.text = text
        self.handles = Handles(name, exclusive=exclusive)
        self.name = name
        self._exclusive = exclusive

    async def open(self) -> None:
        if self._exclusive:
            await self.do(lambda connection: self.handles.reading(connection, _RECEIVE))

    async def close(self) -> None:
        await self.handles.close()

    async def do(self, work: Callable[[MsmqConnection], Awaitable[T]]) -> T:
        """Run `work`, which uses open handles; reopen them once if the queue was deleted."""

        async def attempt(connection: MsmqConnection) -> T:
            try:
                return await work(connection)
            except QueueNotAvailable:
                # A new queue may have the same name by now.
                self.handles.forget()
                return await work(connection)

        return await self.backend.connections.do(self.text, attempt)

    async def read(self, access: QueueAccessType, work: Callable[[Handle], Awaitable[T]]) -> T:
        """Run `work` with the handle for reading."""

        async def attempt(connection: MsmqConnection) -> T:
            while True:
                opened = await self.handles.reading(connection, access)
                try:
                    return await work(opened)
                except StatusError:
                    if not opened.is_given_up:
                        raise
                    # Another thread that shares this handle was interrupted and closed it. Begin
                    # again.

        return await self.do(attempt)

    # Sending
    # ----------------------------------------------------------------------------------------------

    def _buffer(self, message: Message, unit: MsmqTransaction | RemoteBranch | None) -> CACTransferBufferV2:
        if message.authenticate:
            raise UnsupportedOperation(
                f"authenticate: a signature covers the identifier of the queue manager, which {self.backend.place} "
                "does not report; send the message through a Lanner"
            )
        properties = message.properties(self.backend.names)
        if len(properties.body) > MAX_PACKET_SIZE:
            # The body does not fit into a request. build() raises the error that states the
            # packet's size.
            build(properties, source=GUID_NULL, ordinal=0, sent_time=0, destination=self.name)
        return send_buffer(properties, None if unit is None else unit.identifier)

    async def send(self, message: Sendable, unit: BackendTransaction | None) -> str:
        return (await self.send_many([message], unit))[0]

    async def send_many(self, messages: Sequence[Sendable], unit: BackendTransaction | None) -> list[str]:
        """Send messages in their order.

        If one is refused, some of those after it may already be sent: their `id` is set.
        """
        prepared = [to_message(message) for message in messages]
        transaction = None if unit is None else own(unit)
        buffers = [self._buffer(message, transaction) for message in prepared]
        identifiers: list[str | None] = [None] * len(prepared)

        async def send(index: int) -> None:
            identifiers[index] = prepared[index].id = await self._send(buffers[index], transaction)

        try:
            if prepared:
                # The first send opens what the others need, so that nothing disturbs their order.
                await send(0)
            for first in range(1, len(prepared), WINDOW):
                # The messages of a window are sent concurrently and become durable with the same
                # write.
                window = range(first, min(first + WINDOW, len(prepared)))
                for outcome in await gather([partial(send, index) for index in window]):
                    if outcome is not None:
                        raise outcome
        except RemoteMachineNotAvailable as error:
            known = len([identifier for identifier in identifiers if identifier is not None])
            raise RemoteMachineNotAvailable(
                f"{error.args[0]}; messages that were under way may have been sent: "
                f"{known} of {len(prepared)} are known to be"
            ) from error
        return [str(identifier) for identifier in identifiers]

    async def _send(self, buffer: CACTransferBufferV2, unit: MsmqTransaction | RemoteBranch | None) -> str:
        async def send(connection: MsmqConnection) -> str:
            if unit is not None:
                await unit.enlist(connection)
            opened = await self.handles.local(connection, QueueAccessType.SEND)
            results = await connection.call(
                QMCOMM2, RPC_AC_SEND_MESSAGE_EX, h_queue=opened.handle, ptb=buffer, p_message_id=_NO_IDENTIFIER
            )
            return str(results["p_message_id"])

        return await self.do(send)

    # Receiving
    # ----------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage:
        limit = milliseconds(timeout)
        return await (self._receive(limit) if unit is None else own(unit).receive(self, limit))

    async def _receive(self, limit: int) -> ReceivedMessage:
        async def receive(opened: Handle) -> Held | ReceivedMessage:
            if isinstance(opened, RemoteHandle):
                return await self.hold(opened, limit)
            return await opened.receive(limit)

        got = await self.read(_RECEIVE, receive)
        return (await remove([got]))[0] if isinstance(got, Held) else got

    async def hold(self, opened: RemoteHandle, limit: int, cursor: int = 0) -> Held:
        """Make the first phase of a receive."""
        end, message = await opened.begin(limit, cursor)
        return Held(self.backend.connections, self.text, opened, end, message)

    async def _hold_many(self, count: int, limit: int) -> list[Held]:
        """Make the first phase of several receives; wait for the first one only."""
        held: dict[int, Held] = {}

        async def begin(index: int, limit: int) -> None:
            held[index] = await self.read(_RECEIVE, lambda opened: self.hold(self._remote(opened), limit))

        try:
            if count > 0:
                await begin(0, limit)
            is_more = True
            while is_more and len(held) < count:
                window = range(len(held), min(len(held) + WINDOW, count))
                for outcome in await gather([partial(begin, index, 0) for index in window]):
                    is_more = is_more and outcome is None
                    if outcome is not None and not isinstance(outcome, IOTimeout):
                        raise outcome
        except BaseException:
            await give_back(held.values())
            raise
        return [held[index] for index in sorted(held)]

    def _remote(self, opened: Handle) -> RemoteHandle:
        if not isinstance(opened, RemoteHandle):
            raise UnsupportedOperation(
                f"{self.text} waits for another computer: its messages are not held and have no lookup ids; "
                "use receive, or a cursor"
            )
        return opened

    async def receive_many(
        self, count: int, timeout: float | None, unit: BackendTransaction | None
    ) -> list[ReceivedMessage]:
        limit = milliseconds(timeout)
        found: list[ReceivedMessage] = []
        try:
            while len(found) < count:
                wait = 0 if found else limit
                if unit is not None:
                    found.append(await own(unit).receive(self, wait))
                else:
                    found += await self._take(min(count - len(found), _MAX_HELD), wait)
        except IOTimeout:
            pass
        except ReceiveInDoubt as error:
            if not found:
                raise
            raise ReceiveInDoubt(error.args[0], [*found, *error.messages]) from error
        except StatusError:
            if unit is not None or not found:
                raise
        return found

    async def _take(self, count: int, limit: int) -> list[ReceivedMessage]:
        try:
            held = await self._hold_many(count, limit)
        except UnsupportedOperation:
            # The messages of an outgoing queue are received one by one.
            return [await self._receive(limit)]
        return await remove(held)

    @asynccontextmanager
    async def receiving(self, count: int, timeout: float | None) -> AsyncIterator[list[ReceivedMessage]]:
        held: list[Held] = []
        with contextlib.suppress(*([IOTimeout] if timeout == 0 else [])):
            held = await self._hold_many(count, milliseconds(timeout))
        try:
            yield [one.message for one in held]
        except BaseException:
            await give_back(held)
            raise
        await remove(held)

    @asynccontextmanager
    async def receiving_by_lookup_id(self, lookup_id: int, where: str) -> AsyncIterator[ReceivedMessage]:
        held = await self._hold_one(lookup_id, where)
        try:
            yield held.message
        except BaseException:
            await held.give_back()
            raise
        await remove([held])

    async def _hold_one(self, lookup_id: int, where: str) -> Held:
        place = lookup(lookup_id, where, is_peek=False)

        async def begin(opened: Handle) -> Held:
            remote = self._remote(opened)
            end, message = await remote.begin_look_up(*place)
            return Held(self.backend.connections, self.text, remote, end, message)

        return await self.read(_RECEIVE, begin)

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str, unit: BackendTransaction | None
    ) -> ReceivedMessage:
        if unit is not None:
            raise UnsupportedOperation(
                f"{self.text}: no protocol of MSMQ has lookup ids in transactions; use receiving_by_lookup_id, "
                "which gives the message back if its block fails"
            )
        return (await remove([await self._hold_one(lookup_id, where)]))[0]

    # The rest
    # ----------------------------------------------------------------------------------------------

    async def peek(self, timeout: float | None) -> ReceivedMessage:
        limit = milliseconds(timeout)
        return await self.read(_PEEK, lambda opened: opened.peek(limit))

    async def peek_by_lookup_id(self, lookup_id: int, where: str) -> ReceivedMessage:
        place = lookup(lookup_id, where, is_peek=True)

        async def peek(opened: Handle) -> ReceivedMessage:
            return from_remote_read(await self._remote(opened).queue.look_up(*place))

        return await self.read(_PEEK, peek)

    async def move(self, lookup_ids: Sequence[int], target: BackendQueue, unit: BackendTransaction | None) -> None:
        """Move messages one by one through MS-MQRR, to a subqueue of the queue or back."""
        branch = None if unit is None else own(unit)
        if branch is not None and not isinstance(branch, RemoteBranch):
            raise UnsupportedOperation(
                f"{self.text}: {self.backend.place} cannot move messages in a transaction of another computer"
            )

        async def move(connection: MsmqConnection) -> None:
            if not isinstance(connection.reader, MqrrReader):
                raise UnsupportedOperation(
                    f"{self.text}: {self.backend.place} does not serve MS-MQRR, the only protocol that moves "
                    "messages of "
                    "another computer; receive them, or move them with a program there"
                )
            if branch is not None:
                queue = await branch.open(self, connection)
            else:
                opened = self._remote(await self.handles.reading(connection, _RECEIVE))
                queue = cast("OpenMqrrQueue", opened.queue)
            there = await connection.reader.open_for_move(cast("MsmqQueue", target).name)
            try:
                for lookup_id in lookup_ids:
                    await queue.move(lookup_id, there, NO_TRANSACTION if branch is None else branch.xactuow)
            finally:
                await there.close()

        await self.do(move)

    async def find(
        self, conditions: Sequence[str], after: int | None, limit: int, scan: int, *, ids_only: bool
    ) -> Found:
        """Search for messages by reading them one by one: no protocol of MSMQ searches a queue."""
        wanted = MessageFilter(conditions, Accounts(), time.time())
        found: list[ReceivedMessage] = []
        scanned = 0
        while scanned < scan and len(found) < limit:
            where = "first" if after is None else "next"
            try:
                message = await self.peek_by_lookup_id(after or 0, where)
            except MessageNotFound:
                after = None
                break
            after = message.lookup_id
            if wanted.matches(Record(message.packet, int(message.arrived_time.timestamp()))):
                found.append(message)
            scanned += 1
        return Found([] if ids_only else found, [one.lookup_id for one in found], scanned, after)

    async def pass_on(
        self,
        lookup_ids: Sequence[int],
        target: BackendQueue,
        unit: BackendTransaction | None,
        *,
        is_copy: bool,
        edited: Message | None = None,
    ) -> list[str]:
        if not is_copy:
            raise UnsupportedOperation(
                f"{self.text}: no protocol of MSMQ moves messages of another computer in one step; "
                "copy them and delete them here, or move them with a program there"
            )
        if edited is not None:
            return await target.send_many([edited], unit)
        return await target.send_many([await self.peek_by_lookup_id(one, "current") for one in lookup_ids], unit)

    async def delete(self, lookup_ids: Sequence[int]) -> None:
        for lookup_id in lookup_ids:
            await self.receive_by_lookup_id(lookup_id, "current", None)

    async def purge(self) -> int:
        """Remove every message and return their number; 0 if the user may not query it."""
        count = 0
        with contextlib.suppress(AccessDenied, UnsupportedOperation):
            count = await self.backend.count(self.name)
        await self.read(_RECEIVE, lambda opened: opened.purge())
        return count

    def cursor(self, *, peek_only: bool) -> BackendCursor:
        return MsmqCursor(self, _PEEK if peek_only else _RECEIVE)


class MsmqCursor:
    """A cursor, which is opened on first use and lost with its handle."""

    def __init__(self, queue: MsmqQueue, access: QueueAccessType) -> None:
        # This reference keeps the queue object, and so its handle, open.
        self._queue = queue
        self._access = access
        self._place: tuple[Handle, int] | None = None

    async def _at(self, connection: MsmqConnection) -> tuple[Handle, int]:
        if self._place is None:
            opened = await self._queue.handles.reading(connection, self._access)
            self._place = opened, await opened.create_cursor()
        elif self._place[0].connection is not connection:
            raise InvalidHandle(f"{self._queue.text}: the connection was lost, and the cursor with it")
        return self._place

    async def close(self) -> None:
        place, self._place = self._place, None
        if place is not None and place[0].connection.is_open:
            with contextlib.suppress(LannerError):
                await place[0].close_cursor(place[1])

    async def peek(self, timeout: float | None, *, is_next: bool) -> ReceivedMessage:
        limit = milliseconds(timeout)

        async def peek(connection: MsmqConnection) -> ReceivedMessage:
            opened, cursor = await self._at(connection)
            return await (opened.peek_next(limit, cursor) if is_next else opened.peek(limit, cursor))

        return await self._queue.backend.connections.do(self._queue.text, peek)

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage:
        limit = milliseconds(timeout)
        branch = None if unit is None else own(unit)
        if isinstance(branch, RemoteBranch):
            return await self._receive_in(branch, limit)
        if branch is not None:
            raise UnsupportedOperation(
                f"{self._queue.text}: a cursor receives outside transactions; use receive of the queue in them"
            )

        async def receive(connection: MsmqConnection) -> Held | ReceivedMessage:
            opened, cursor = await self._at(connection)
            if isinstance(opened, RemoteHandle):
                return await self._queue.hold(opened, limit, cursor)
            return await opened.receive(limit, cursor)

        got = await self._queue.backend.connections.do(self._queue.text, receive)
        return (await remove([got]))[0] if isinstance(got, Held) else got

    async def _receive_in(self, branch: RemoteBranch, limit: int) -> ReceivedMessage:
        async def receive(connection: MsmqConnection) -> ReceivedMessage:
            queue = await branch.open(self._queue, connection)
            opened, cursor = await self._at(connection)
            if opened is not await self._queue.handles.reading(connection, _RECEIVE):
                raise InvalidHandle(f"{self._queue.text}: the cursor is for peeking, or its handle was closed")
            return from_remote_read(await queue.receive(limit, cursor, branch.xactuow))

        return await self._queue.backend.connections.do(self._queue.text, receive)
