"""MSMQQueue: an open queue, to receive from, peek at and send to (MC-MQAC 3.11).

A waiting read is a coroutine and blocks neither the connection nor the object nor the server. It
ends with a message, by its time-out, when the queue closes, or when the client disconnects. A
message that the read has obtained but not delivered returns to the queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from lanner.activex import arguments
from lanner.activex.message import MSMQMessage
from lanner.activex.notifications import MAX_NOTIFICATIONS, MqMsgCursor, Notification
from lanner.activex.tables import MSMQ_QUEUE
from lanner.activex.transaction import resolve_transaction
from lanner.com.automation.values import MISSING, Variant
from lanner.com.constants import E_INVALIDARG
from lanner.com.objects import ComError, ComObject
from lanner.engine.checks import PEEK_ACCESS, RECEIVE_ACCESS
from lanner.host.reads import Read, purge
from lanner.model.enums import INFINITE, MessageSeekAction, QueueAccessType, QueueShareMode
from lanner.model.errors import (
    AccessDenied,
    InsufficientResources,
    InvalidHandle,
    IOTimeout,
    MessageAlreadyReceived,
    MessageNotFound,
    QueueNotAvailable,
    TransactionUsage,
)
from lanner.model.live import MAX_LOOKUP_ID
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from collections.abc import Container

    from lanner.activex.environment import Environment
    from lanner.activex.queue_info import MSMQQueueInfo
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall, Remote
    from lanner.engine.reading import ReadEnd, ReadStart
    from lanner.model.live import Cursor, MessagePosition, OpenQueueDescriptor, Transaction

# MS-ERREF 2.1.
OLE_E_BLANK: Final = 0x8004_0007
# 2.2.2.3 MQACCESS, combined with MQ_ADMIN_ACCESS where that is allowed.
ACCESS: Final = {
    0x01: QueueAccessType.RECEIVE,
    0x02: QueueAccessType.SEND,
    0x20: QueueAccessType.PEEK,
    0x81: QueueAccessType.RECEIVE_ADMIN,
    0xA0: QueueAccessType.PEEK_ADMIN,
}
# A placeholder for seeks that ignore the lookup identifier.
_ANYWHERE: Final = 0


@dataclass(frozen=True, slots=True)
class _Wants:
    """The parts of a message that the reader wants."""

    destination: bool
    body: bool
    connector_type: bool

    @classmethod
    def of(cls, destination: Variant, body: Variant, connector_type: Variant) -> _Wants:
        return cls(
            arguments.flag(destination, "WantDestinationQueue", default=False),
            arguments.flag(body, "WantBody", default=True),
            arguments.flag(connector_type, "WantConnectorType", default=False),
        )


def _receive_by(
    seek: MessageSeekAction, *, allow_peek: bool = False
) -> Callable[[MSMQQueue, ComCall, Variant, Variant, Variant, Variant, Variant], Awaitable[MSMQMessage]]:
    """Define a member that receives the message at or next to a lookup identifier."""

    async def receive(
        self: MSMQQueue,
        call: ComCall,
        lookup_id: Variant,
        transaction: Variant,
        want_destination_queue: Variant,
        want_body: Variant,
        want_connector_type: Variant,
    ) -> MSMQMessage:
        position = _lookup_id(lookup_id)
        self.require(RECEIVE_ACCESS)
        unit = resolve_transaction(self.environment, transaction).transaction
        wants = _Wants.of(want_destination_queue, want_body, want_connector_type)
        return await self.receive_at(call, seek, position, unit, wants, allow_peek=allow_peek)

    return receive


def _receive_from(
    seek: MessageSeekAction,
) -> Callable[[MSMQQueue, ComCall, Variant, Variant, Variant, Variant], Awaitable[MSMQMessage]]:
    """Define a member that receives the first or the last message."""

    async def receive(
        self: MSMQQueue,
        call: ComCall,
        transaction: Variant,
        want_destination_queue: Variant,
        want_body: Variant,
        want_connector_type: Variant,
    ) -> MSMQMessage:
        self.require(RECEIVE_ACCESS)
        unit = resolve_transaction(self.environment, transaction).transaction
        wants = _Wants.of(want_destination_queue, want_body, want_connector_type)
        return await self.receive_at(call, seek, _ANYWHERE, unit, wants)

    return receive


def _peek_by(
    seek: MessageSeekAction,
) -> Callable[[MSMQQueue, ComCall, Variant, Variant, Variant, Variant], MSMQMessage]:
    """Define a member that peeks at the message at or next to a lookup identifier."""

    def peek(
        self: MSMQQueue,
        call: ComCall,
        lookup_id: Variant,
        want_destination_queue: Variant,
        want_body: Variant,
        want_connector_type: Variant,
    ) -> MSMQMessage:
        del call
        position = _lookup_id(lookup_id)
        self.require(PEEK_ACCESS)
        return self.peek_at(seek, position, _Wants.of(want_destination_queue, want_body, want_connector_type))

    return peek


def _peek_from(seek: MessageSeekAction) -> Callable[[MSMQQueue, ComCall, Variant, Variant, Variant], MSMQMessage]:
    """Define a member that peeks at the first or the last message."""

    def peek(
        self: MSMQQueue,
        call: ComCall,
        want_destination_queue: Variant,
        want_body: Variant,
        want_connector_type: Variant,
    ) -> MSMQMessage:
        del call
        self.require(PEEK_ACCESS)
        return self.peek_at(seek, _ANYWHERE, _Wants.of(want_destination_queue, want_body, want_connector_type))

    return peek


class MSMQQueue(ComObject):
    """3.11 MSMQQueue. An instance that a client creates directly is unusable (3.11.3)."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_QUEUE.interfaces

    def __init__(
        self,
        environment: Environment,
        descriptor: OpenQueueDescriptor | None = None,
        queue_info: MSMQQueueInfo | None = None,
    ) -> None:
        self.environment = environment
        self._descriptor = descriptor
        self._queue_info = queue_info
        # The object is created on first use.
        self._cursor: Cursor | None = None
        self._notifications: set[Notification] = set()

    # State (3.11.1)
    # ----------------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> OpenQueueDescriptor | None:
        """The open queue, or None if it was never opened or is closed."""
        descriptor = self._descriptor
        return None if descriptor is None or descriptor.is_closed else descriptor

    @property
    def _is_open(self) -> bool:
        if self._descriptor is None:
            raise ComError(OLE_E_BLANK, "the object was not made by MSMQQueueInfo.Open")
        return not self._descriptor.is_closed

    def _opened(self) -> OpenQueueDescriptor:
        if not self._is_open or self._descriptor is None:
            raise InvalidHandle("the queue is closed")
        return self._descriptor

    def require(self, access: Container[QueueAccessType]) -> OpenQueueDescriptor:
        """Return the open queue, or raise if it is closed or open for other access."""
        descriptor = self._opened()
        if descriptor.access_type not in access:
            name = descriptor.access_type.name.lower()
            raise AccessDenied(f"{descriptor.format_name} is open for {name} access only")
        return descriptor

    def released(self) -> None:
        self._close()

    def _close(self) -> None:
        descriptor = self._descriptor
        for notification in list(self._notifications):
            notification.forget()
        if descriptor is None or descriptor.is_closed:
            return
        environment = self.environment
        with environment.committer.change() as change:
            environment.engine.close_queue(descriptor)
        change.soon()

    # Properties
    # ----------------------------------------------------------------------------------------------

    def get_access(self, call: ComCall) -> int:
        """Return Access (3.11.4.1.1)."""
        del call
        return self._opened().access_type.value

    def get_share_mode(self, call: ComCall) -> int:
        """Return ShareMode (3.11.4.1.2)."""
        del call
        return int(self._opened().share_mode is QueueShareMode.DENY_RECEIVE)

    def get_queue_info(self, call: ComCall) -> MSMQQueueInfo | None:
        """Return QueueInfo (3.11.4.1.3)."""
        del call
        self._opened()
        return self._queue_info

    def get_handle(self, call: ComCall) -> int:
        """Return Handle (3.11.4.1.4)."""
        del call
        return self._opened().handle

    def get_handle2(self, call: ComCall) -> Variant:
        """Return Handle2 (3.11.4.1.20)."""
        return Variant(VT.I8, self.get_handle(call))

    def get_is_open(self, call: ComCall) -> int:
        """Return IsOpen (3.11.4.1.5)."""
        del call
        return int(self._is_open)

    def get_is_open2(self, call: ComCall) -> bool:
        """Return IsOpen2 (3.11.4.1.32)."""
        del call
        return self._is_open

    def close(self, call: ComCall) -> None:
        """Close the queue (3.11.4.1.6). Waiting reads end."""
        del call
        self._opened()
        self._close()

    def reset(self, call: ComCall) -> None:
        """Reset the cursor (3.11.4.1.10). A read that waits at the cursor ends."""
        del call
        self._opened()
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            with self.environment.lock:
                self.environment.engine.close_cursor(cursor)

    async def purge(self, call: ComCall) -> None:
        """Purge the queue (3.11.4.1.31)."""
        await purge(self.environment.engine, self.environment.committer, self.require(RECEIVE_ACCESS), call.identity)

    # Reads from the head and at the cursor
    # ------------------------------------------------------------------------

    async def receive(
        self,
        call: ComCall,
        transaction: Variant = MISSING,
        want_destination_queue: Variant = MISSING,
        want_body: Variant = MISSING,
        receive_timeout: Variant = MISSING,
        want_connector_type: Variant = MISSING,
    ) -> MSMQMessage | None:
        """Receive the first message (3.11.4.1.14)."""
        self.require(RECEIVE_ACCESS)
        unit = resolve_transaction(self.environment, transaction).transaction
        wants = _Wants.of(want_destination_queue, want_body, want_connector_type)
        return await self._receive(call, unit, wants, _milliseconds(receive_timeout), None)

    async def receive_current(
        self,
        call: ComCall,
        transaction: Variant = MISSING,
        want_destination_queue: Variant = MISSING,
        want_body: Variant = MISSING,
        receive_timeout: Variant = MISSING,
        want_connector_type: Variant = MISSING,
    ) -> MSMQMessage | None:
        """Receive the message at the cursor (3.11.4.1.16)."""
        self.require(RECEIVE_ACCESS)
        unit = resolve_transaction(self.environment, transaction).transaction
        wants = _Wants.of(want_destination_queue, want_body, want_connector_type)
        return await self._receive(call, unit, wants, _milliseconds(receive_timeout), self._own_cursor())

    async def peek(self, call: ComCall, *arguments: Variant) -> MSMQMessage | None:
        """Peek at the first message (3.11.4.1.15)."""
        del call
        descriptor, wants, timeout = self._peek_arguments(*arguments)
        return await self._peek(wants, timeout, partial(self.environment.engine.peek_message, descriptor), None)

    async def peek_current(self, call: ComCall, *arguments: Variant) -> MSMQMessage | None:
        """Peek at the message at the cursor (3.11.4.1.18)."""
        del call
        descriptor, wants, timeout = self._peek_arguments(*arguments)
        cursor = self._own_cursor()
        event = partial(self.environment.engine.peek_message, descriptor, cursor=cursor)
        return await self._peek(wants, timeout, event, cursor)

    async def peek_next(self, call: ComCall, *arguments: Variant) -> MSMQMessage | None:
        """Advance the cursor and peek (3.11.4.1.17)."""
        del call
        descriptor, wants, timeout = self._peek_arguments(*arguments)
        cursor = self._own_cursor()
        event = partial(self.environment.engine.peek_next_message, descriptor, cursor)
        return await self._peek(wants, timeout, event, cursor)

    def _peek_arguments(
        self,
        want_destination_queue: Variant = MISSING,
        want_body: Variant = MISSING,
        receive_timeout: Variant = MISSING,
        want_connector_type: Variant = MISSING,
    ) -> tuple[OpenQueueDescriptor, _Wants, int]:
        """Return the open queue and the arguments common to the three peek members.

        Raise if the queue does not allow peeking.
        """
        descriptor = self.require(PEEK_ACCESS)
        wants = _Wants.of(want_destination_queue, want_body, want_connector_type)
        return descriptor, wants, _milliseconds(receive_timeout)

    # 3.11.4.1.7, .8, .11, .12, .13: the same, without WantConnectorType.
    receive_v1 = receive
    receive_current_v1 = receive_current
    peek_v1 = peek
    peek_current_v1 = peek_current
    peek_next_v1 = peek_next

    async def _receive(
        self,
        call: ComCall,
        transaction: Transaction | None,
        wants: _Wants,
        milliseconds: int,
        cursor: Cursor | None,
    ) -> MSMQMessage | None:
        environment, descriptor = self.environment, self._opened()
        read = Read(
            environment.engine,
            environment.committer,
            descriptor,
            is_receive=True,
            cursor=cursor,
            transaction=transaction,
        )

        def event(on_end: ReadEnd) -> ReadStart:
            return environment.engine.dequeue_message(
                descriptor,
                timeout=milliseconds,
                cursor=cursor,
                transaction=transaction,
                two_phase_read=True,
                on_end=on_end,
            )

        try:
            read.begin(event)
            await read.wait()
        except (IOTimeout, MessageNotFound) as error:
            self._timed_out(error, milliseconds)
            return None
        return await self._received(call, read, wants)

    async def _received(self, call: ComCall, read: Read, wants: _Wants) -> MSMQMessage:
        """Return the message of a receive when its removal from the queue is durable.

        Inside a transaction, the removal waits for the commit.
        """
        try:
            # A message that cannot be delivered to the client stays in the queue.
            call.exporter.require_room()
            message = self._message(read.position, wants)
        except BaseException:
            read.give_back()
            raise
        if read.transaction is None:
            await read.taken(read.take())
        return message

    async def _peek(
        self,
        wants: _Wants,
        milliseconds: int,
        event: Callable[..., ReadStart],
        cursor: Cursor | None,
    ) -> MSMQMessage | None:
        environment = self.environment
        read = Read(environment.engine, environment.committer, self._opened(), is_receive=False, cursor=cursor)
        try:
            read.begin(lambda on_end: event(timeout=milliseconds, on_end=on_end))
            position = await read.wait()
        except (IOTimeout, MessageNotFound) as error:
            self._timed_out(error, milliseconds)
            return None
        return self._message(position, wants)

    def _timed_out(self, error: IOTimeout | MessageNotFound, milliseconds: int) -> None:
        """Return None for a read without a message, or raise the document's codes (DECISIONS)."""
        if self.environment.settings.timeout == "error":
            raise error if milliseconds else MessageNotFound("there is no message")

    def _message(self, position: MessagePosition, wants: _Wants) -> MSMQMessage:
        return MSMQMessage.received(
            self.environment,
            position,
            want_body=wants.body,
            want_destination=wants.destination,
            want_connector_type=wants.connector_type,
        )

    def _own_cursor(self) -> Cursor:
        """Return this object's own cursor, opening it first if necessary (3.11.1 Cursor)."""
        descriptor = self._opened()
        if self._cursor is None:
            with self.environment.lock:
                self._cursor = self.environment.engine.open_cursor(descriptor)
        if self._cursor is None:
            raise QueueNotAvailable(f"{descriptor.format_name}: the queue was deleted")
        return self._cursor

    # Reads by lookup identifier
    # -----------------------------------------------------------------------------------

    receive_by_lookup_id = _receive_by(MessageSeekAction.CURRENT)
    receive_by_lookup_id_allow_peek = _receive_by(MessageSeekAction.CURRENT, allow_peek=True)
    receive_next_by_lookup_id = _receive_by(MessageSeekAction.NEXT)
    receive_previous_by_lookup_id = _receive_by(MessageSeekAction.PREVIOUS)
    receive_first_by_lookup_id = _receive_from(MessageSeekAction.FIRST)
    receive_last_by_lookup_id = _receive_from(MessageSeekAction.LAST)
    peek_by_lookup_id = _peek_by(MessageSeekAction.CURRENT)
    peek_next_by_lookup_id = _peek_by(MessageSeekAction.NEXT)
    peek_previous_by_lookup_id = _peek_by(MessageSeekAction.PREVIOUS)
    peek_first_by_lookup_id = _peek_from(MessageSeekAction.FIRST)
    peek_last_by_lookup_id = _peek_from(MessageSeekAction.LAST)

    async def receive_at(
        self,
        call: ComCall,
        seek: MessageSeekAction,
        lookup_id: int,
        transaction: Transaction | None,
        wants: _Wants,
        *,
        allow_peek: bool = False,
    ) -> MSMQMessage:
        """Receive by lookup identifier (Read Message By Lookup Identifier).

        With `allow_peek`, others can peek at the message until the transaction ends.
        """
        environment, descriptor = self.environment, self._opened()
        read = Read(environment.engine, environment.committer, descriptor, is_receive=True, transaction=transaction)

        def event(on_end: ReadEnd) -> MessagePosition:
            del on_end  # it never waits
            return environment.engine.read_message_by_lookup_identifier(
                descriptor,
                lookup_id,
                peek_operation=False,
                lookup_operation=seek,
                transaction=transaction,
                two_phase_read=True,
                allow_peek_when_locked=allow_peek,
            )

        with _not_found():
            read.begin(event)
        return await self._received(call, read, wants)

    def peek_at(self, seek: MessageSeekAction, lookup_id: int, wants: _Wants) -> MSMQMessage:
        """Peek by lookup identifier (Read Message By Lookup Identifier)."""
        with self.environment.lock, _not_found():
            position = self.environment.engine.read_message_by_lookup_identifier(
                self._opened(), lookup_id, peek_operation=True, lookup_operation=seek
            )
        return self._message(position, wants)

    # Notification
    # ----------------------------------------------------------------------------------------------

    def enable_notification(
        self, call: ComCall, event: ComObject | Remote | None, cursor: Variant, receive_timeout: Variant
    ) -> None:
        """Request one event (3.11.4.1.9). The checks are in the order of the document."""
        del call
        try:
            kind = MqMsgCursor(arguments.number(cursor, MqMsgCursor.MQMSG_FIRST, "Cursor"))
        except ValueError:
            raise ComError(E_INVALIDARG, "Cursor is not a value of MQMSGCURSOR") from None
        self._opened()
        if event is None:
            raise ComError(E_INVALIDARG, "Event is NULL")
        descriptor = self.require(PEEK_ACCESS)
        milliseconds = _milliseconds(receive_timeout)
        if len(self._notifications) >= MAX_NOTIFICATIONS:
            raise InsufficientResources(f"{MAX_NOTIFICATIONS} notifications are pending on {descriptor.format_name}")
        own = None if kind is MqMsgCursor.MQMSG_FIRST else self._own_cursor()
        notification = Notification(self, descriptor, event, kind, own, milliseconds)
        self._notifications.add(notification)
        notification.begin(self._notifications.discard)


@contextlib.contextmanager
def _not_found() -> Iterator[None]:
    """Raise MessageNotFound whenever a lookup fails, whatever the reason (3.11.4.1.21).

    The engine distinguishes a message that is locked or was received from one that never existed.
    """
    try:
        yield
    except (MessageAlreadyReceived, TransactionUsage) as error:
        raise MessageNotFound(str(error)) from error


def _milliseconds(variant: Variant) -> int:
    """Return ReceiveTimeout. Languages without unsigned numbers pass INFINITE as -1."""
    return arguments.number(variant, INFINITE, "ReceiveTimeout") & INFINITE


def _lookup_id(variant: Variant) -> int:
    """Return a lookup identifier given as a number or in decimal digits (DECISIONS).

    Zero is rejected.
    """
    found = arguments.dereferenced(variant)
    value = found.value
    if found.vt == VT.BSTR and isinstance(value, str) and value.isascii() and value.strip().isdigit():
        number = int(value) if len(value) <= 24 else 0
    elif found.vt in arguments.INTEGERS:
        number = int(value)
    else:
        raise arguments.wrong_type(found, "LookupId")
    if not 0 < number <= MAX_LOOKUP_ID:
        raise ComError(E_INVALIDARG, f"LookupId {number}")
    return number
