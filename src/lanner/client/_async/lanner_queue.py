"""A queue of another Lanner, and the handles that its `Queue` object has open there."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from lanner.client._async.io import Lock, Together, Uninterrupted, gather, spawn
from lanner.client._async.lanner_batches import LannerBatch, ask_for_batch
from lanner.client._async.lanner_connection import LannerConnection, SendError
from lanner.client._async.lanner_sending import Sending, is_plain
from lanner.client._async.lanner_units import LannerCursor, LannerTransaction
from lanner.client.found import Found
from lanner.client.message import ReceivedMessage
from lanner.client.preparing import alike, signed, to_message, together
from lanner.host.operations import check_lookup_id, milliseconds, seek_action
from lanner.model.errors import (
    InvalidHandle,
    InvalidParameter,
    IOTimeout,
    LannerError,
    QueueNotAvailable,
    ReceiveInDoubt,
    RemoteMachineNotAvailable,
    StatusError,
    status_error,
)
from lanner.services import stream_entries as entries
from lanner.services.interfaces.lanner import (
    MAX_REQUEST_SIZE,
    Document,
)
from lanner.services.message_documents import properties_to_document
from lanner.wire.builder import build
from lanner.wire.format_name import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.client._async.backend import BackendCursor, BackendQueue, BackendTransaction
    from lanner.client._async.lanner_backend import LannerBackend
    from lanner.client.message import Message
    from lanner.client.preparing import Sendable
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName
    from lanner.wire.packet_template import MessageRun

T = TypeVar("T")
_Runs: TypeAlias = "list[MessageRun | MessageProperties]"

# The largest body that fits into a request. For a larger one the packet's own error is raised,
# which states how large the packet would be.
_LARGEST_BODY: Final = MAX_REQUEST_SIZE - 0x0001_0000


class LannerQueue:
    """The handles behind one `Queue` object, each with the connection it was opened on."""

    def __init__(self, backend: LannerBackend, name: FormatName, text: str, *, exclusive: bool) -> None:
        self.backend = backend
        self.text = text
        self._name = name
        self._exclusive = exclusive
        self._opening = Lock()
        self._open: dict[str, tuple[LannerConnection, int]] = {}
        # The queue's name as packets carry it: the queue manager sorts the names of a multi-queue
        # format name.
        self._packet_name = name
        # The sender identifier for packets to this queue. None: the queue manager builds the
        # packets.
        self._sender: bytes | None = None
        # Sends and receives of one message outside transactions: the calls under way, and the
        # objects that merge concurrent calls into one request.
        self._sends: dict[object, None] = {}
        self._sends_together: Together[tuple[LannerQueue, Sendable], str] = Together(_send_together, _keep)
        self._receiving: dict[object, None] = {}
        self._together: Together[LannerQueue, Held] = Together(_receive_together, Held.give_back)
        # A queue object that is garbage-collected without close() must not keep its queue open.
        weakref.finalize(self, _abandon, self._open).atexit = False

    async def open(self) -> None:
        if self._exclusive:
            await self.do(lambda connection: self.handle(connection, "receive"))

    async def close(self) -> None:
        opened = list(self._open.values())
        self._open.clear()
        for connection, number in opened:
            if self.backend.connections.is_current(connection):
                with contextlib.suppress(LannerError):
                    request = {"request": "close", "queue": number}
                    await self.backend.connections.on(connection, self.text, lambda one, r=request: one.call(r))  # type: ignore[misc]

    async def do(self, work: Callable[[LannerConnection], Awaitable[T]]) -> T:
        """Run `work`, which uses open handles; reopen them if their queue was deleted."""

        async def attempt(connection: LannerConnection) -> T:
            # Try twice: a stale handle may also have been opened by another thread in the meantime.
            for _ in range(2):
                before = dict(self._open)
                try:
                    return await work(connection)
                except QueueNotAvailable:
                    # A new queue may have the same name by now, and another thread may have handles
                    # to it.
                    async with self._opening:
                        stale = {access: one for access, one in before.items() if self._open.get(access) == one}
                        for access in stale:
                            del self._open[access]
                    _abandon(stale)
            return await work(connection)

        return await self.backend.do(self.text, attempt)

    async def handle(self, connection: LannerConnection, access: str) -> int:
        """Return the number of a connection's handle for this access; open it if needed."""
        found = self._open.get(access)
        if found is None or found[0] is not connection:
            async with self._opening:
                found = self._open.get(access)
                if found is None or found[0] is not connection:
                    found = self._open[access] = connection, await self._open_for(connection, access)
        return found[1]

    async def _open_for(self, connection: LannerConnection, access: str) -> int:
        number = connection.new_number()
        request: Document = {
            "request": "open",
            "queue": number,
            "name": str(self._name),
            "access": access,
            "exclusive": self._exclusive and access == "receive",
        }
        if access == "send":
            request["client"] = self.backend.sends.client
        try:
            document, _ = await connection.call(request)
        except LannerError:
            raise
        except BaseException:
            # The open may or may not have succeeded. Either way, a cancelled caller must not keep
            # others out.
            connection.abandoned.append({"request": "close", "queue": number})
            raise
        self._packet_name = parse(document["format_name"])
        if access == "send":
            # Without a sender, the queue manager builds the packets (for several destinations).
            self._sender = None if document.get("sender") is None else bytes.fromhex(document["sender"])
            connection.memory = document.get("memory", connection.memory)
        return number

    # Sending
    # ----------------------------------------------------------------------------------------------

    async def _destination(self, connection: LannerConnection) -> FormatName:
        await self.handle(connection, "send")
        return self._packet_name

    async def prepare(self, message: Message, *, is_transactional: bool) -> MessageProperties:
        """Return the properties for a message's packet, signed if the message requests it."""
        properties = message.properties(self.backend.names)
        if message.authenticate:
            properties = signed(
                message,
                properties,
                await self.backend.key_to_sign_with(),
                source=self.backend.identifier,
                destination=await self.do(self._destination),
                is_transactional=is_transactional,
            )
        if len(properties.body) > _LARGEST_BODY:
            # The body does not fit into a request. build() raises the error that states the
            # packet's size.
            build(properties, source=uuid.UUID(int=0), ordinal=0, sent_time=0, destination=self._name)
        return properties

    async def send(self, message: Sendable, unit: BackendTransaction | None) -> str:
        if unit is not None:
            return (await self.send_many([message], unit))[0]
        call = object()
        try:
            self._sends[call] = None
            if len(self._sends) > 1:
                return await self._sends_together.call((self, message))
            return (await self.send_many([message], None))[0]
        finally:
            self._sends.pop(call, None)

    async def send_for(self, messages: Sequence[Sendable]) -> list[str | Exception]:
        """Send one message for each of several callers.

        Returns, for each caller, the message's identifier or the error.
        """
        found: list[str | Exception] = []
        runs: _Runs | None = None
        # If a message is invalid, its own caller gets the error below.
        with contextlib.suppress(Exception):
            prepared = [to_message(message) for message in messages]
            runs = await self._runs(prepared, is_transactional=False)
        if runs is not None:
            try:
                found += await self._send_runs(prepared, runs, None)
            except SendError as error:
                found += error.sent
            except _Lost as lost:
                found += lost.sent
                found += [lost.error_of(1, 0) for _ in range(len(found), len(messages))]
            except RemoteMachineNotAvailable as error:
                found += [copy(error) for _ in messages]
            except StatusError:
                # The first message was refused. The others may still be accepted.
                pass
        if len(found) < len(messages):
            left = [partial(self.send_many, [message], None) for message in messages[len(found) :]]
            for each in await gather(left):
                if not isinstance(each, (list, Exception)):
                    raise each
                found.append(each[0] if isinstance(each, list) else each)
        return found

    async def send_many(self, messages: Sequence[Sendable], unit: BackendTransaction | None) -> list[str]:
        prepared = [to_message(message) for message in messages]
        runs = await self._runs(prepared, is_transactional=unit is not None)
        try:
            return await self._send_runs(prepared, runs, unit)
        except SendError as error:
            raise error.error from None
        except _Lost as lost:
            raise lost.error_of(len(prepared), len(lost.sent)) from lost.error

    async def _runs(self, messages: Sequence[Message], *, is_transactional: bool) -> _Runs:
        """Return the properties for the packets.

        Consecutive messages that differ only in label and body share a run.
        """
        return [
            together(some, await self.prepare(some[0], is_transactional=is_transactional)) for some in alike(messages)
        ]

    async def _send_runs(self, messages: Sequence[Message], runs: _Runs, unit: BackendTransaction | None) -> list[str]:
        """Send messages and return their identifiers.

        Raises SendError if a message was refused after others were sent, and _Lost if the outcome
        of some messages is unknown.
        """
        sending = Sending(runs, None if unit is None else _own(unit), self.backend.sends)
        try:
            while len(sending.identifiers) < len(messages):
                try:
                    await self.do(partial(self._send, sending))
                except RemoteMachineNotAvailable:
                    if not sending.may_repeat():
                        raise
        except SendError as error:
            sending.identifiers += error.sent
            raise SendError(error.error, sending.identifiers) from None
        except StatusError as error:
            is_lost = isinstance(error, RemoteMachineNotAvailable) and (sending.is_under_way or sending.identifiers)
            if is_lost or sending.is_repeating:
                raise _Lost(error, sending.identifiers) from error
            if sending.identifiers:
                raise SendError(error, sending.identifiers) from None
            raise
        finally:
            sending.end()
            for message, identifier in zip(messages, sending.identifiers, strict=False):
                message.id = identifier
        return sending.identifiers

    async def packets(self, connection: LannerConnection, message: Message) -> tuple[int, bytes] | None:
        """Return the handle and the packet of a transactional message.

        Returns None if the message cannot be sent as a packet built by the client.
        """
        properties = await self.prepare(message, is_transactional=True)
        queue = await self.handle(connection, "send")
        if self._sender is None or not is_plain(properties):
            return None
        properties.sender_identifier = self._sender
        packet = build(
            properties,
            source=connection.identifier,
            ordinal=0,
            sent_time=0,
            destination=self._packet_name,
            transaction=0,
        )
        return queue, packet

    async def _send(self, sending: Sending, connection: LannerConnection) -> None:
        """Send the first remaining message, and those after it that fit the same request."""
        queue = await self.handle(connection, "send")
        transaction = 0 if sending.unit is None else await sending.unit.enlist(connection)
        if self._sender is not None and is_plain(sending.next):
            await sending.in_packets(connection, queue, transaction, self._packet_name, self._sender)
        else:
            await sending.in_documents(connection, queue, transaction)

    # Receiving
    # ----------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage:
        limit = milliseconds(timeout)
        if unit is not None:
            return (await self._receive(1, limit, _own(unit))).confirmed()[0]
        call = object()
        try:
            self._receiving[call] = None
            if len(self._receiving) > 1:
                with contextlib.suppress(IOTimeout):
                    return (await self._together.call(self)).confirmed()[0]
            # This call is alone, or there are fewer messages than callers; each then waits by
            # itself.
            return (await self._remove([await self._receive(1, limit, None)]))[0]
        finally:
            self._receiving.pop(call, None)

    async def receive_for(self, callers: int) -> list[Held | LannerError]:
        """Receive one message for each of several callers, without waiting.

        A caller for whom there is no message gets IOTimeout.
        """
        found: list[Held | LannerError] = []
        while len(found) < callers:
            wanted = min(callers - len(found), entries.MAX_MESSAGES)
            held: list[Held] = []
            try:
                held = await self._receive_numbered(wanted)
                failed = await self._removal(held) if held else {}
                found += [failed.get(index, one) for index, one in enumerate(held)]
            except ReceiveInDoubt as error:
                # Give each caller the message that is in doubt for it.
                found += [ReceiveInDoubt(error.args[0], one.messages) for one in held]
            except LannerError as error:
                # Messages received before the error still go to their callers.
                found += [copy(error) for _ in range(len(found), callers)]
            if len(held) < wanted:
                found += [IOTimeout(f"{self.text}: no message for each caller") for _ in range(len(found), callers)]
        return found

    async def _receive_numbered(self, most: int) -> list[Held]:
        """Hold available messages, each under a read number of its own."""

        async def begin(connection: LannerConnection) -> list[Held]:
            queue = await self.handle(connection, "receive")
            first = connection.new_numbers()
            request = entries.ReceiveRequest(queue, 0, first, most | entries.NUMBERED, 0)
            try:
                body = await connection.exchange(entries.RECEIVE, entries.pack_receive(request))
            except IOTimeout:
                return []
            except LannerError:
                raise
            except BaseException:
                spawn(connection.give_back, list(range(first, first + most)))
                raise
            return [Held(connection, number, [one]) for number, one in enumerate(connection.received(body), first)]

        return await self.do(begin)

    async def _receive(self, count: int, limit: int, unit: LannerTransaction | None) -> Held:
        """Begin a receive of up to `count` messages; wait up to `limit` ms for the first."""

        async def begin(connection: LannerConnection) -> Held:
            number = connection.new_number()
            queue = await self.handle(connection, "receive")
            transaction = 0 if unit is None else await unit.enlist(connection)
            request = entries.ReceiveRequest(queue, transaction, number, count, limit)
            try:
                body = await connection.exchange(entries.RECEIVE, entries.pack_receive(request))
                return Held(connection, number, connection.received(body))
            except LannerError:
                raise
            except BaseException:
                spawn(connection.give_back, [number])
                raise

        return await self.do(begin)

    async def _receive_one(
        self, request: Document, unit: BackendTransaction | None, cursor: LannerCursor | None = None
    ) -> ReceivedMessage:
        if unit is not None:
            return (await self._begin(request, _own(unit), cursor)).confirmed()[0]
        return (await self._remove([await self._begin(request, None, cursor)]))[0]

    async def receive_many(
        self, count: int, timeout: float | None, unit: BackendTransaction | None
    ) -> list[ReceivedMessage]:
        held: list[Held] = []
        try:
            await self._gather(held, count, timeout, None if unit is None else _own(unit))
        except IOTimeout:
            return []
        if unit is not None:
            return [message for one in held for message in one.confirmed()]
        return await self._remove(held)

    async def receive_ahead(self, most: int, unit: BackendTransaction) -> LannerBatch:
        """Request up to `most` available messages in a transaction."""

        async def ask(connection: LannerConnection) -> LannerBatch:
            return await ask_for_batch(self, connection, _own(unit), most)

        return await self.do(ask)

    async def _gather(
        self, held: list[Held], count: int, timeout: float | None, unit: LannerTransaction | None = None
    ) -> None:
        """Hold up to `count` messages, and wait only for the first.

        On error, give them all back.
        """
        limit = milliseconds(timeout)
        try:
            while (found := sum(len(one.messages) for one in held)) < count:
                # An answer has a size limit: many or large messages take several requests.
                wanted = min(count - found, entries.MAX_MESSAGES)
                try:
                    held.append(await self._receive(wanted, 0 if held else limit, unit))
                except IOTimeout:
                    if held:
                        return
                    raise
        except BaseException:
            await self._give_back(held)
            raise

    async def _begin(
        self,
        request: Document,
        unit: LannerTransaction | None = None,
        cursor: LannerCursor | None = None,
    ) -> Held:
        """Begin a receive: fetch the messages, which stay locked for this read."""

        async def begin(connection: LannerConnection) -> Held:
            number = connection.new_number()
            whole = {**request, "read": number, "queue": await self.handle(connection, "receive")}
            if unit is not None:
                whole["transaction"] = await unit.enlist(connection)
            if cursor is not None:
                whole["cursor"] = await cursor.number(connection)
            try:
                messages = await connection.messages(whole)
            except LannerError:
                raise
            except BaseException:
                spawn(connection.give_back, [number])
                raise
            return Held(connection, number, messages)

        return await self.do(begin)

    async def _remove(self, held: list[Held]) -> list[ReceivedMessage]:
        """Complete a receive: remove the messages durably, and return those that were removed."""
        if not held:
            return []
        failed = await self._removal(held)
        held[0].connection.done.extend(one.number for one in held)
        messages = [message for one in held for message in one.messages]
        if failed and len(failed) == len(messages):
            raise failed[0]
        return [message for index, message in enumerate(messages) if index not in failed]

    async def _removal(self, held: list[Held]) -> dict[int, StatusError]:
        """Remove messages durably; return the errors of those that failed, by index."""
        connection, connections = held[0].connection, self.backend.connections
        numbers = [one.number for one in held]
        if any(one.connection is not connection for one in held) or not connections.is_current(connection):
            raise InvalidHandle(f"{self.text}: the connection was lost, and the messages are in their queue again")
        with Uninterrupted() as step:
            try:
                body = await connections.on(connection, self.text, partial(_end, numbers))
            except RemoteMachineNotAvailable as error:
                raise ReceiveInDoubt(
                    f"{error.args[0]}: the messages are here, and whether they are gone from their queue is unknown",
                    [message for one in held for message in one.messages],
                ) from error
            except LannerError:
                raise
            except BaseException:
                spawn(connection.give_back, numbers)
                raise
            if step.is_interrupted:
                await connection.give_back(numbers)
        refused = entries.unpack_refused(body)
        return {index: status_error(status, text) for index, (status, text) in refused.items()}

    async def _give_back(self, held: list[Held]) -> None:
        for one in held:
            if self.backend.connections.is_current(one.connection):
                await one.connection.give_back([one.number])

    @asynccontextmanager
    async def receiving(self, count: int, timeout: float | None) -> AsyncIterator[list[ReceivedMessage]]:
        held: list[Held] = []
        with contextlib.suppress(*([IOTimeout] if timeout == 0 else [])):
            await self._gather(held, count, timeout)
        try:
            yield [message for one in held for message in one.messages]
        except BaseException:
            await self._give_back(held)
            raise
        await self._remove(held)

    @asynccontextmanager
    async def receiving_by_lookup_id(self, lookup_id: int, where: str) -> AsyncIterator[ReceivedMessage]:
        held = await self._begin(_look_up(lookup_id, where))
        try:
            yield held.messages[0]
        except BaseException:
            await self._give_back([held])
            raise
        await self._remove([held])

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str, unit: BackendTransaction | None
    ) -> ReceivedMessage:
        return await self._receive_one(_look_up(lookup_id, where), unit)

    async def receive_at(
        self, cursor: LannerCursor, timeout: float | None, unit: BackendTransaction | None
    ) -> ReceivedMessage:
        """Receive the message under a cursor."""
        request = {"request": "receive", "timeout": milliseconds(timeout), "count": 1}
        return await self._receive_one(request, unit, cursor)

    # The rest
    # ----------------------------------------------------------------------------------------------

    async def peek(self, timeout: float | None) -> ReceivedMessage:
        limit = milliseconds(timeout)

        async def peek(connection: LannerConnection) -> ReceivedMessage:
            queue = await self.handle(connection, "peek")
            return (await connection.messages({"request": "peek", "queue": queue, "timeout": limit}))[0]

        return await self.do(peek)

    async def peek_by_lookup_id(self, lookup_id: int, where: str) -> ReceivedMessage:
        request = {**_look_up(lookup_id, where), "peek": True}

        async def peek(connection: LannerConnection) -> ReceivedMessage:
            queue = await self.handle(connection, "peek")
            return (await connection.messages({**request, "queue": queue}))[0]

        return await self.do(peek)

    def _neighbour(self, target: BackendQueue) -> LannerQueue:
        """Return the queue as one of the same queue manager object, or raise InvalidParameter."""
        if not isinstance(target, LannerQueue) or target.backend.connections is not self.backend.connections:
            raise InvalidParameter("messages are moved and copied between queues of one queue manager object")
        return target

    async def move(self, lookup_ids: Sequence[int], target: BackendQueue, unit: BackendTransaction | None) -> None:
        other = self._neighbour(target)
        for lookup_id in lookup_ids:
            check_lookup_id(lookup_id)

        async def move(connection: LannerConnection) -> None:
            request: Document = {
                "request": "move",
                "queue": await self.handle(connection, "move"),
                "target": await other.handle(connection, "move"),
                "lookup_ids": list(lookup_ids),
            }
            if unit is not None:
                request["transaction"] = await _own(unit).enlist(connection)
            await connection.call(request)

        await self.do(move)

    async def find(
        self, conditions: Sequence[str], after: int | None, limit: int, scan: int, *, ids_only: bool
    ) -> Found:
        request = {
            "request": "find",
            "conditions": list(conditions),
            "after": after,
            "limit": limit,
            "scan": scan,
            "ids_only": ids_only,
        }

        async def find(connection: LannerConnection) -> Found:
            queue = await self.handle(connection, "peek")
            document, octets = await connection.call({**request, "queue": queue})
            messages = [] if ids_only else connection.unpacked(document, octets)
            return Found(messages, document["lookup_ids"], document["scanned"], document["after"])

        return await self.do(find)

    async def pass_on(
        self,
        lookup_ids: Sequence[int],
        target: BackendQueue,
        unit: BackendTransaction | None,
        *,
        is_copy: bool,
        edited: Message | None = None,
    ) -> list[str]:
        other = self._neighbour(target)
        for lookup_id in lookup_ids:
            check_lookup_id(lookup_id)
        request: Document = {"request": "pass on", "lookup_ids": list(lookup_ids), "copy": is_copy}
        body = b""
        if edited is not None:
            properties = await other.prepare(edited, is_transactional=unit is not None)
            request["message"], body = properties_to_document(properties), bytes(properties.body)

        async def pass_on(connection: LannerConnection) -> list[str]:
            whole = {
                **request,
                "queue": await self.handle(connection, "peek" if is_copy else "receive"),
                "target": await other.handle(connection, "send"),
            }
            if unit is not None:
                whole["transaction"] = await _own(unit).enlist(connection)
            document, _ = await connection.call(whole, body)
            identifiers: list[str] = document["ids"]
            return identifiers

        return await self.do(pass_on)

    async def delete(self, lookup_ids: Sequence[int]) -> None:
        for lookup_id in lookup_ids:
            check_lookup_id(lookup_id)

        async def delete(connection: LannerConnection) -> None:
            queue = await self.handle(connection, "receive")
            await connection.call({"request": "delete", "queue": queue, "lookup_ids": list(lookup_ids)})

        await self.do(delete)

    async def purge(self) -> int:
        async def purge(connection: LannerConnection) -> int:
            queue = await self.handle(connection, "receive")
            document, _ = await connection.call({"request": "purge", "queue": queue})
            count: int = document["count"]
            return count

        return await self.do(purge)

    def cursor(self, *, peek_only: bool) -> BackendCursor:
        return LannerCursor(self, "peek" if peek_only else "receive")


@dataclass(frozen=True, slots=True)
class Held:
    """Messages between the two steps of their receive, or received in a transaction."""

    connection: LannerConnection
    number: int
    messages: list[ReceivedMessage]

    def confirmed(self) -> list[ReceivedMessage]:
        """Return messages received in a transaction, and report their answer as arrived."""
        self.connection.done.append(self.number)
        return self.messages

    async def give_back(self) -> None:
        """Put the messages back, because the caller they were for was cancelled."""
        await self.connection.give_back([self.number])


class _Lost(Exception):
    """The connection was lost during a send. Some messages are sent, and others may be."""

    def __init__(self, error: StatusError, sent: list[str]) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent

    def error_of(self, count: int, known: int) -> RemoteMachineNotAvailable:
        """Return the error of a call with `count` messages, `known` of which are sent."""
        return RemoteMachineNotAvailable(
            f"{self.error.args[0]}; messages that were under way may have been sent: {known} of {count} are known to be"
        )


async def _send_together(calls: list[tuple[LannerQueue, Sendable]]) -> list[str | Exception]:
    """Send for all callers, which use the same queue object."""
    return await calls[0][0].send_for([message for _, message in calls])


async def _keep(identifier: str) -> None:
    """Do nothing: a message whose caller was cancelled meanwhile stays sent."""


async def _receive_together(callers: list[LannerQueue]) -> list[Held | LannerError]:
    """Receive for all callers, which use the same queue object.

    A module function rather than a bound method, so that an unused queue object can be freed.
    """
    return await callers[0].receive_for(len(callers))


def _own(unit: BackendTransaction) -> LannerTransaction:
    """Cast a transaction to this backend's class; `Transaction.unit` has checked its backend."""
    return cast("LannerTransaction", unit)


def _abandon(opened: dict[str, tuple[LannerConnection, int]]) -> None:
    for connection, number in opened.values():
        connection.abandoned.append({"request": "close", "queue": number})


def _look_up(lookup_id: int, where: str) -> Document:
    seek_action(where)
    check_lookup_id(lookup_id)
    return {"request": "look up", "lookup_id": lookup_id, "where": where}


async def _end(numbers: list[int], connection: LannerConnection) -> memoryview:
    return await connection.exchange(entries.REMOVE, entries.pack_reads(numbers))
