"""Every operation of the client API, written once, without blocking.

An operation runs under the store's lock and gives an `Outcome`: the value, and the ticket of the batch
that must be on disk before the value may be handed out. A read that has to wait gives a `Waiting`
instead, which calls back when it is over. The blocking and the awaitable API only differ in how they
wait for the two.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from lanner.client.message import Message, ReceivedMessage
from lanner.client.names import QueueNames
from lanner.engine.envelope import is_express
from lanner.engine.queue_properties import CHANGEABLE_ATTRIBUTES
from lanner.model.directory_objects import KILOBYTE
from lanner.model.enums import (
    INFINITE,
    EnqueueStatus,
    HashAlgorithm,
    MessageSeekAction,
    QueueAccessType,
    QueueShareMode,
)
from lanner.model.errors import (
    IllegalPropertyValue,
    InsufficientResources,
    InvalidParameter,
    IOTimeout,
    MessageNotFound,
    OperationCancelled,
    PropertyNotallowed,
    QueueNotAvailable,
    QueueNotFound,
    StatusError,
    TransactionSequence,
)
from lanner.model.live import MAX_LOOKUP_ID
from lanner.security.hashing import DEFAULT_HASH_ALGORITHM
from lanner.security.identity import SYSTEM
from lanner.security.signing import sign_properties
from lanner.wire.format_name import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lanner.client.runtime import Runtime
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.model.live import (
        Cursor,
        MessagePosition,
        OpenQueueDescriptor,
        Transaction,
        WaitingMessageReadOperation,
    )
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

T = TypeVar("T")
# Ours: messages purged before others get their turn, about a twentieth of a second.
PURGE_SLICE = 5000
# The longest finite time-out: 0xFFFFFFFF milliseconds mean for ever.
_LONGEST = INFINITE - 1
# What waits in an outgoing queue is looked at with an administrator's access (MS-MQDMPR 3.1.1.17).
_ADMIN_ACCESS = {
    QueueAccessType.RECEIVE: QueueAccessType.RECEIVE_ADMIN,
    QueueAccessType.PEEK: QueueAccessType.PEEK_ADMIN,
}


class Outcome(NamedTuple, Generic[T]):
    """A result, and the batch that must be synced before anybody may rely on it."""

    value: T
    ticket: int


# A name of its own: each message asks, and an enumeration looks its members up slowly (Python 3.11).
_OK = EnqueueStatus.OK
# What Outcome(...) does, without a Python function of its own: for what is done for each message.
_new = tuple.__new__


class Waiting:
    """A read that waits for a message. The message is locked for us first and removed in `finish`.

    So a waiter that is interrupted between the two gives the message back and loses nothing.
    """

    __slots__ = ("_descriptor", "_end", "_is_two_phase", "_operations", "_transaction", "is_over", "on_over", "reader")

    def __init__(
        self,
        operations: Operations,
        descriptor: OpenQueueDescriptor,
        *,
        is_two_phase: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        self._operations = operations
        self._descriptor = descriptor
        self._is_two_phase = is_two_phase
        self._transaction = transaction
        self._end: MessagePosition | StatusError | None = None
        self.is_over = False
        self.reader: WaitingMessageReadOperation | None = None
        self.on_over: Callable[[], object] | None = None

    def ended(self, end: MessagePosition | StatusError) -> None:
        """Called by the engine, once, with the lock held."""
        self._end = end
        self.is_over = True
        if self.on_over is not None:
            self.on_over()

    def finish(self) -> Outcome[ReceivedMessage]:
        """The message, removed if this was a receive; raises what ended the wait instead."""
        operations = self._operations
        with operations.lock:
            end = self._end
            if end is None or isinstance(end, StatusError):
                raise end or OperationCancelled()
            if self._is_two_phase:
                operations.engine.dequeue_message_end(self._descriptor, end, delete_message=True)
            self._end = None
            return Outcome(ReceivedMessage(end), operations.store.ticket() if self._is_two_phase else 0)

    def abandon(self) -> None:
        """Nobody wants the answer any more: stop waiting, or give the message back."""
        operations = self._operations
        with operations.lock:
            self.on_over = None
            end, self._end = self._end, None
            if self.reader is not None and self.reader.is_waiting:
                operations.engine.stop_waiting_read(self.reader, OperationCancelled("the wait was given up"))
            elif end is None or isinstance(end, StatusError):
                return
            elif self._transaction is not None:
                # A commit that follows must not take what nobody has seen.
                operations.engine.give_back_transactional_read(self._transaction, end)
            elif self._is_two_phase:
                # A handle that was closed meanwhile has given it back already, and `finish` may have removed it.
                with contextlib.suppress(QueueNotAvailable, TransactionSequence):
                    operations.engine.dequeue_message_end(self._descriptor, end, delete_message=False)
            operations.runtime.sync_soon()


class Operations:
    """What can be done with a running queue manager, as one identity."""

    def __init__(self, runtime: Runtime, identity: Identity = SYSTEM) -> None:
        self.runtime = runtime
        self.engine = runtime.engine
        self.store = runtime.store
        self.lock = runtime.lock
        self.identity = identity
        # Signs what asks for it (Message.authenticate); without it, the user's internal certificate does.
        self.signing_key: SigningKey | None = None
        self._registered_key: SigningKey | None = None
        self._internal_key: SigningKey | None = None
        self.names = QueueNames(self.engine.queue_manager.computer_name)

    # Queues -------------------------------------------------------------------------------------------------

    def create_queue(
        self,
        name: str,
        *,
        transactional: bool = False,
        journal: bool = False,
        label: str = "",
        quota_kb: int | None = None,
        journal_quota_kb: int | None = None,
        **attributes: object,
    ) -> Outcome[QueueObject]:
        with self.lock:
            request = self.engine.set_queue_defaults(str(self.names.path_name(name)))
            request.transactional = transactional
            request.journaling = journal
            request.label = label
            request.quota = INFINITE if quota_kb is None else quota_kb
            request.journal_quota = INFINITE if journal_quota_kb is None else journal_quota_kb
            for attribute, value in attributes.items():
                if attribute not in CHANGEABLE_ATTRIBUTES:
                    known = ", ".join(CHANGEABLE_ATTRIBUTES)
                    raise PropertyNotallowed(f"{attribute} of a queue cannot be given; these can: {known}")
                setattr(request, attribute, value)
            queue = self.engine.create_queue(request, identity=self.identity)
            return Outcome(queue, self.store.ticket())

    def delete_queue(self, name: str) -> Outcome[None]:
        with self.lock:
            self.engine.delete_queue(self.find(name), identity=self.identity)
            return Outcome(None, self.store.ticket())

    def find(self, name: str) -> QueueObject:
        """The queue of a name, local or outgoing: the engine's own, to be used with the lock held."""
        return self.engine.require_queue(self.names.format_name(name))

    def exists(self, name: str) -> bool:
        with self.lock:
            try:
                self.find(name)
            except QueueNotFound:
                return False
            return True

    def path_name(self, name: str) -> str:
        with self.lock:
            return self.find(name).pathname

    def attributes(self, name: str) -> QueueObject:
        """A copy of the queue's attributes as they are now."""
        with self.lock:
            return self.engine.get_queue_properties(self.find(name), identity=self.identity)

    def message_count(self, name: str) -> int:
        """How many messages are in the queue; none in a subqueue that is yet to come into being."""
        with self.lock:
            try:
                return self.attributes(name).message_count
            except QueueNotFound:
                path = self.names.path_name(name)
                if path.subqueue is None or self.engine.find_by_path(path.without_suffix()) is None:
                    raise
                return 0

    def subqueue_names(self, name: str) -> list[str]:
        with self.lock:
            return [subqueue.pathname for subqueue in self.find(name).subqueues.values()]

    def queue_names(self) -> list[str]:
        """Path names of the public and private queues here."""
        with self.lock:
            return [queue.pathname for queue in self.engine.local_queues()]

    def outgoing_names(self) -> list[str]:
        """Destinations whose messages wait for another computer."""
        with self.lock:
            return [queue.destination_format_name for queue in self.engine.outgoing_queues()]

    def set_attributes(self, name: str, changes: dict[str, object]) -> Outcome[None]:
        with self.lock:
            self.engine.set_queue_properties(self.find(name), changes, identity=self.identity)
            return Outcome(None, self.store.ticket())

    # Handles ------------------------------------------------------------------------------------------------

    def open(
        self, name: str, access: QueueAccessType, share_mode: QueueShareMode = QueueShareMode.DENY_NONE
    ) -> Outcome[OpenQueueDescriptor]:
        format_name = self.names.format_name(name)
        with self.lock:
            self.runtime.tidy()
            if access in _ADMIN_ACCESS and self._is_outgoing(format_name):
                access = _ADMIN_ACCESS[access]
            descriptor = self.engine.open_queue(format_name, access, share_mode, self.identity)
            return Outcome(descriptor, self.store.ticket())

    def _is_outgoing(self, name: FormatName) -> bool:
        return self.engine.find_queue(name) is None and self.engine.find_outgoing_queue(name) is not None

    def close(self, descriptor: OpenQueueDescriptor) -> None:
        with self.lock:
            self.engine.close_queue(descriptor)
            self.runtime.sync_soon()

    # Messages -----------------------------------------------------------------------------------------------

    def send(
        self,
        descriptor: OpenQueueDescriptor,
        message: Message | ReceivedMessage | bytes | str,
        transaction: Transaction | None,
    ) -> Outcome[str]:
        message, properties = self._prepare(descriptor, message, transaction)
        with self.lock:
            status = self.engine.enqueue_message_to_an_open_queue(descriptor, properties, transaction)
            identifier = self._sent(descriptor, message, properties, status)
            # An express message has nothing to wait for, though others may have.
            is_durable = message.recoverable and transaction is None
            return _new(Outcome, (identifier, self.store.ticket() if is_durable else 0))

    def send_many(
        self,
        descriptor: OpenQueueDescriptor,
        messages: Iterable[Message | ReceivedMessage | bytes | str],
        transaction: Transaction | None,
    ) -> Outcome[list[str]]:
        # Before the lock is taken: the messages may come from anywhere.
        prepared = [self._prepare(descriptor, message, transaction) for message in messages]
        with self.lock:
            statuses = self.engine.enqueue_messages_to_an_open_queue(
                descriptor, (properties for _, properties in prepared), transaction
            )
            identifiers = [
                self._sent(descriptor, message, properties, status)
                for (message, properties), status in zip(prepared, statuses, strict=True)
            ]
            return Outcome(identifiers, 0 if transaction is not None else self.store.ticket())

    def _prepare(
        self,
        descriptor: OpenQueueDescriptor,
        message: Message | ReceivedMessage | bytes | str,
        transaction: Transaction | None,
    ) -> tuple[Message, MessageProperties]:
        if isinstance(message, (bytes, str)):
            message = Message(body=message)
        elif isinstance(message, ReceivedMessage):
            message = message.copy()
        elif not isinstance(message, Message):
            raise IllegalPropertyValue(f"a Message, bytes or text can be sent, not {type(message).__name__}")
        properties = message.properties(self.names)
        if message.authenticate:
            chosen = properties.hash_algorithm if message.hash_algorithm is not None else DEFAULT_HASH_ALGORITHM
            properties = sign_properties(
                properties,
                self._key_to_sign_with(),
                source=self.engine.queue_manager.identifier,
                destination=parse(descriptor.format_name),
                is_transactional=transaction is not None,
                hash_algorithm=HashAlgorithm(chosen),
            )
        return message, properties

    def _key_to_sign_with(self) -> SigningKey:
        """The application's own key, else that of the user's internal certificate; known to receivers from then on."""
        key = self.signing_key or self._internal_key
        if key is None:
            key = self._internal_key = self.runtime.internal_signing_key(self.identity)
        elif key is self.signing_key and key is not self._registered_key:
            with self.lock:
                self.engine.register_certificate(self.identity, key.certificate)
            self._registered_key = key
        return key

    def _sent(
        self, descriptor: OpenQueueDescriptor, message: Message, properties: MessageProperties, status: EnqueueStatus
    ) -> str:
        """The id of the message that was just sent, or an error that tells why it was refused."""
        if status is not _OK:
            raise self._refusal(status, descriptor, len(properties.body))
        identifier = message.id = self.engine.last_message_identifier
        return identifier

    def _refusal(self, status: EnqueueStatus, descriptor: OpenQueueDescriptor, size: int) -> StatusError:
        qm, queue = self.engine.queue_manager, descriptor.queue
        if status is EnqueueStatus.TIMED_OUT_IN_TRANSIT:
            return IOTimeout(f"{descriptor.format_name}: time_to_reach_queue had passed before the message was there")
        if qm.throttled:
            return InsufficientResources(
                f"queue manager {qm.computer_name} takes no messages for the moment (flow control)"
            )
        if status is EnqueueStatus.QUEUE_QUOTA_EXCEEDED and queue is None:
            return InsufficientResources(
                f"{descriptor.format_name}: one of these queues is full, and those behind it did not get the message; "
                "receive or purge messages, or raise its quota"
            )
        if status is EnqueueStatus.QUEUE_QUOTA_EXCEEDED and queue is not None:
            what, quota, used = f"queue {queue.pathname}", queue.quota, queue.total_bytes
        else:
            what, quota, used = f"queue manager {qm.computer_name}", qm.queue_manager_quota, qm.total_bytes
        return InsufficientResources(
            f"{what} is full: quota {quota} KiB, used {used // KILOBYTE} KiB, "
            f"message {-(-size // KILOBYTE)} KiB; receive or purge messages, or raise the quota"
        )

    def receive(
        self,
        descriptor: OpenQueueDescriptor,
        timeout: float | None,
        *,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
    ) -> Outcome[ReceivedMessage] | Waiting:
        if timeout is not None and not timeout >= 0:
            raise _bad_timeout(timeout)
        with self.lock:
            if cursor is None:
                # A message that is there is removed at once; one that must be waited for, in two phases.
                position = self.engine.try_dequeue_message(descriptor, transaction)
                if position is not None:
                    return self._taken(position, transaction)
            limit = milliseconds(timeout)
            is_two_phase = transaction is None and timeout != 0
            waiting = Waiting(self, descriptor, is_two_phase=is_two_phase, transaction=transaction)
            position = self.engine.dequeue_message(
                descriptor,
                timeout=limit,
                cursor=cursor,
                transaction=transaction,
                two_phase_read=is_two_phase,
                on_end=waiting.ended,
            )
            if position is None:
                waiting.reader = self.engine.last_waiting_read
                return waiting
            if is_two_phase:
                self.engine.dequeue_message_end(descriptor, position, delete_message=True)
            return self._taken(position, transaction)

    def _taken(self, position: MessagePosition, transaction: Transaction | None) -> Outcome[ReceivedMessage]:
        is_durable = transaction is None and not is_express(position.record.packet)
        return _new(Outcome, (ReceivedMessage(position), self.store.ticket() if is_durable else 0))

    def undo_receive(self, messages: Iterable[ReceivedMessage]) -> int:
        """Put messages back that nobody will see; the ticket of the batch that does it."""
        with self.lock:
            for message in messages:
                self.engine.undo_receive(message.position)
            return self.store.ticket()

    def receive_many(
        self, descriptor: OpenQueueDescriptor, count: int, transaction: Transaction | None
    ) -> Outcome[list[ReceivedMessage]]:
        """What is there now, at most `count`, in one commit."""
        with self.lock:
            positions = islice(self.engine.dequeue_messages(descriptor, transaction), max(count, 0))
            found = [ReceivedMessage(position) for position in positions]
            return Outcome(found, 0 if transaction is not None else self.store.ticket())

    def peek(
        self,
        descriptor: OpenQueueDescriptor,
        timeout: float | None,
        *,
        cursor: Cursor | None = None,
        is_next: bool = False,
    ) -> Outcome[ReceivedMessage] | Waiting:
        with self.lock:
            waiting = Waiting(self, descriptor)
            limit = milliseconds(timeout)
            if is_next and cursor is not None:
                position = self.engine.peek_next_message(descriptor, cursor, timeout=limit, on_end=waiting.ended)
            else:
                position = self.engine.peek_message(descriptor, timeout=limit, cursor=cursor, on_end=waiting.ended)
            if position is None:
                waiting.reader = self.engine.last_waiting_read
                return waiting
            return Outcome(ReceivedMessage(position), 0)

    def by_lookup_id(
        self,
        descriptor: OpenQueueDescriptor,
        lookup_id: int,
        where: str,
        *,
        is_peek: bool,
        transaction: Transaction | None = None,
    ) -> Outcome[ReceivedMessage]:
        try:
            action = MessageSeekAction(where)
        except ValueError:
            known = ", ".join(member.value for member in MessageSeekAction)
            raise InvalidParameter(f"{where!r}: one of {known}") from None
        _check_lookup_id(lookup_id)
        with self.lock:
            position = self.engine.read_message_by_lookup_identifier(
                descriptor, lookup_id, peek_operation=is_peek, lookup_operation=action, transaction=transaction
            )
            durable = is_peek or transaction is not None
            return Outcome(ReceivedMessage(position), 0 if durable else self.store.ticket())

    def move(
        self,
        source: OpenQueueDescriptor,
        lookup_id: int,
        target: OpenQueueDescriptor,
        transaction: Transaction | None,
    ) -> Outcome[None]:
        _check_lookup_id(lookup_id)
        with self.lock:
            self.engine.move_message_by_lookup_identifier(source, lookup_id, target, transaction)
            return Outcome(None, 0 if transaction is not None else self.store.ticket())

    def purge(self, descriptor: OpenQueueDescriptor) -> Iterator[Outcome[int]]:
        """Remove what is there now, slice by slice: others are served between two of them."""
        with self.lock:
            newest = self.engine.newest_sequential_id
        count = PURGE_SLICE
        while count == PURGE_SLICE:
            with self.lock:
                count = self.engine.purge_open_queue(descriptor, limit=PURGE_SLICE, newest=newest)
                outcome = Outcome(count, self.store.ticket())
            yield outcome

    # Cursors and transactions ---------------------------------------------------------------------------------

    def open_cursor(self, descriptor: OpenQueueDescriptor) -> Cursor:
        with self.lock:
            cursor = self.engine.open_cursor(descriptor)
        if cursor is None:
            raise MessageNotFound(f"{descriptor.format_name}: the queue is gone")
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        with self.lock:
            self.engine.close_cursor(cursor)

    def begin(self) -> Transaction:
        with self.lock:
            self.runtime.tidy()
            return self.engine.create_transaction(uuid.uuid4())

    def commit(self, transaction: Transaction) -> Outcome[None]:
        with self.lock:
            self.engine.transaction_commit(transaction.identifier)
            return Outcome(None, self.store.ticket())

    def abort(self, transaction: Transaction) -> Outcome[None]:
        with self.lock:
            self.engine.transaction_abort(transaction.identifier)
            return Outcome(None, self.store.ticket())


def _check_lookup_id(lookup_id: object) -> None:
    if not isinstance(lookup_id, int) or not 0 <= lookup_id <= MAX_LOOKUP_ID:
        raise InvalidParameter(f"lookup id {lookup_id!r}: a number from 0 to {MAX_LOOKUP_ID:#x}")


def milliseconds(timeout: float | None) -> int:
    """Seconds of the API as the milliseconds of the engine; None is for ever."""
    if timeout is None or timeout == math.inf:
        return INFINITE
    if not timeout >= 0:
        raise _bad_timeout(timeout)
    # A wait of less than a millisecond still waits.
    return min(max(int(timeout * 1000), 1 if timeout else 0), _LONGEST)


def _bad_timeout(timeout: float) -> InvalidParameter:
    return InvalidParameter(f"time-out {timeout}: 0 or more seconds, or None for ever")
