"""The operations that a program can perform on a queue manager, as one identity.

Every method needs the store's lock: call it inside a `change()`. The embedded client and Lanner's
own RPC interface both use this class, so an operation has the same result and the same error text
in the process of the queue manager and through the service.
"""

from __future__ import annotations

import contextlib
import math
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lanner.engine.queue_properties import CHANGEABLE_ATTRIBUTES, rights_to_change
from lanner.host.names import QueueNames
from lanner.host.reads import Read
from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import (
    INFINITE,
    TO_ADMIN_ACCESS,
    EnqueueStatus,
    MessageSeekAction,
    OperationType,
    QueueAccessType,
    QueueShareMode,
)
from lanner.model.errors import (
    AccessDenied,
    IllegalOperation,
    InsufficientResources,
    InvalidParameter,
    IOTimeout,
    MessageNotFound,
    PropertyNotallowed,
    QueueNotAvailable,
    QueueNotFound,
    StatusError,
    TransactionUsage,
)
from lanner.model.live import MAX_LOOKUP_ID
from lanner.security.access_lists import AccessList, changed, new_descriptor, packed, refuse_lock_out
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import SYSTEM
from lanner.security.queue_security import Guarded, checked_descriptor
from lanner.wire.client_packet import body_size
from lanner.wire.packet_template import MessageRun
from lanner.wire.security_descriptor import SecurityDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.host.change import Changes
    from lanner.model.directory_objects import Queue
    from lanner.model.live import Cursor, MessagePosition, OpenQueueDescriptor, Transaction
    from lanner.security.access_lists import AccessChange
    from lanner.security.identity import Identity
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

# The longest finite time-out: 0xFFFFFFFF milliseconds mean no time-out.
_LONGEST = INFINITE - 1
# A module-level name: each message uses it, and enumerations look up their members slowly.
_OK = EnqueueStatus.OK


class Operations:
    """The operations of one identity. The caller of every method holds the store's lock."""

    def __init__(self, engine: Engine, changes: Changes, identity: Identity = SYSTEM) -> None:
        self.engine = engine
        self.identity = identity
        self.names = QueueNames(engine.queue_manager.computer_name)
        self._changes = changes

    # Queues
    # ----------------------------------------------------------------------------------------------

    def new_security(self, access: Mapping[str, Any] | str | None) -> bytes | None:
        """Return the descriptor of a queue that is to be created; None: the default one.

        `access` is rights by account, or SDDL. It can be large, so it is parsed without the store's
        lock. The lock is taken here only to check the rights of the caller. The list of a caller
        without the right to create queues is not parsed: `create_queue` refuses it.
        """
        if access is None:
            return None
        with self.engine.store.lock:
            may_create = self.engine.may_create_queues(self.identity)
        if not may_create:
            return None
        return packed(new_descriptor(access, self.engine.settings.accounts, self.identity.sid))

    def create_queue(self, pathname: str, attributes: Mapping[str, Any], security: bytes | None = None) -> Queue:
        """Create a queue with attributes of the data model and the result of `new_security`."""
        request = self.engine.set_queue_defaults(pathname)
        if security is not None:
            request.security = security
        for name, value in attributes.items():
            if name not in CHANGEABLE_ATTRIBUTES and name != "transactional":
                known = ", ".join(CHANGEABLE_ATTRIBUTES)
                raise PropertyNotallowed(f"{name} of a queue cannot be given; these can: {known}")
            setattr(request, name, value)
        return self.engine.create_queue(request, identity=self.identity)

    def delete_queue(self, name: FormatName) -> None:
        self.engine.delete_queue(self.engine.require_queue(name), identity=self.identity)

    def exists(self, name: FormatName) -> bool:
        try:
            self.engine.require_queue(name)
        except QueueNotFound:
            return False
        return True

    def attributes(self, name: FormatName) -> Queue:
        """Return a copy of the queue's current attributes."""
        return self.engine.get_queue_properties(self.engine.require_queue(name), identity=self.identity)

    def is_transactional(self, name: FormatName) -> bool | None:
        """Return whether a queue takes transactional messages.

        Returns None if the queue is on another computer, or if the caller may not read that
        attribute.
        """
        queue = self.engine.find_queue(name)
        if queue is None or isinstance(queue, OutgoingQueue):
            return None
        # A sender needs to know it, and would learn it from an error otherwise.
        for rights in (QueueAccess.GET_QUEUE_PROPERTIES, QueueAccess.WRITE_MESSAGE):
            try:
                self.engine.check_queue_access(queue, self.identity, rights)
            except AccessDenied:
                continue
            return queue.transactional
        return None

    def message_count(self, name: FormatName) -> int:
        """Return how many messages a queue has; 0 for a subqueue that does not exist yet."""
        try:
            return self.attributes(name).message_count
        except QueueNotFound:
            path = self.names.path_name(str(name))
            if path.subqueue is None or self.engine.find_by_path(path.without_suffix()) is None:
                raise
            return 0

    def subqueue_names(self, name: FormatName) -> list[str]:
        """Return the path names of the subqueues, which count as attributes of a queue."""
        return [subqueue.pathname for subqueue in self.attributes(name).subqueues.values()]

    def set_attributes(self, name: FormatName, changes: Mapping[str, Any]) -> None:
        self.engine.set_queue_properties(self.engine.require_queue(name), dict(changes), identity=self.identity)

    def access(self, name: FormatName) -> AccessList:
        """Return the owner and the access list of a queue."""
        queue = self._listed(name)
        self.engine.check_queue_access(queue, self.identity, QueueAccess.GET_QUEUE_PERMISSIONS)
        return AccessList.of(_descriptor_of(queue), self.engine.settings.accounts, self._own_rights(queue))

    def _own_rights(self, queue: Queue) -> int:
        """Return the mask of the rights that the caller has on a queue."""
        held = 0
        for right in QueueAccess:
            with contextlib.suppress(AccessDenied):
                self.engine.check_queue_access(queue, self.identity, right)
                held |= right
        return held

    def read_change(self, name: FormatName, change: AccessChange) -> AccessChange:
        """Parse the text of a change without the store's lock.

        The lock is taken here only to check the rights of the caller. They are checked first,
        because the text can be large, and that of a caller without rights is not parsed.
        """
        with self.engine.store.lock:
            self._securable(name, change)
        return change.read()

    def _securable(self, name: FormatName, change: AccessChange) -> Queue:
        """Return a queue whose descriptor the caller may change. Raises AccessDenied."""
        queue = self._listed(name)
        is_owner = change.verb == "owner"
        missing = QueueAccess.TAKE_QUEUE_OWNERSHIP if is_owner else QueueAccess.CHANGE_QUEUE_PERMISSIONS
        self.engine.check_securing(queue, self.identity, missing)
        return queue

    def change_access(self, name: FormatName, change: AccessChange, *, force: bool = False) -> None:
        """Change the owner or the access list of a queue; `change` is the result of `read_change`.

        Raises IllegalOperation if the caller would lose the right to change it, unless `force` is
        set.
        """
        queue = self._securable(name, change)
        before = _descriptor_of(queue)
        wanted, _ = changed(before, change, self.engine.settings.accounts)
        # In the form that the engine keeps: generic rights of SDDL are replaced by those of queues.
        after = checked_descriptor(packed(wanted), Guarded.QUEUE)
        data = after.pack()
        self.engine.check_queue_access(
            queue, self.identity, rights_to_change({"security": data}, queue.security, self.identity)
        )
        if not force:
            refuse_lock_out(before, after, self.identity, queue.pathname)
        self.engine.set_queue_properties(queue, {"security": data}, identity=self.identity)

    def _listed(self, name: FormatName) -> Queue:
        """Return a queue that has an access list of its own. Raises IllegalOperation."""
        queue = self.engine.require_queue(name)
        if queue.parent:
            raise IllegalOperation(f"{queue.pathname} has no access list of its own: that of its queue applies")
        if isinstance(queue, OutgoingQueue) or queue.is_system:
            raise IllegalOperation(f"{queue.pathname} has no access list: it belongs to the queue manager")
        return queue

    def find(self, text: str) -> Queue:
        """Return the queue of a name in any spelling. Raises QueueNotFound."""
        return self.engine.require_queue(self.names.format_name(text))

    # Handles
    # ----------------------------------------------------------------------------------------------

    def open(
        self, name: FormatName, access: QueueAccessType, share_mode: QueueShareMode = QueueShareMode.DENY_NONE
    ) -> OpenQueueDescriptor:
        """Open a queue. An outgoing queue is opened for reading with an administrator's access."""
        if access in TO_ADMIN_ACCESS and self._is_outgoing(name):
            access = TO_ADMIN_ACCESS[access]
        return self.engine.open_queue(name, access, share_mode, self.identity)

    def close(self, descriptor: OpenQueueDescriptor) -> None:
        """Close a handle. Takes the lock itself."""
        with self._changes.change() as change:
            self.engine.close_queue(descriptor)
        change.soon()

    def _is_outgoing(self, name: FormatName) -> bool:
        return self.engine.find_queue(name) is None and self.engine.find_outgoing_queue(name) is not None

    def open_cursor(self, descriptor: OpenQueueDescriptor) -> Cursor:
        cursor = self.engine.open_cursor(descriptor)
        if cursor is None:
            raise QueueNotAvailable(f"{descriptor.format_name}: the queue was deleted")
        return cursor

    # Messages
    # ----------------------------------------------------------------------------------------------

    def send(
        self, descriptor: OpenQueueDescriptor, properties: MessageProperties, transaction: Transaction | None
    ) -> str:
        """Send a message and return its identifier. Raises an error if it is refused."""
        status = self.engine.enqueue_message_to_an_open_queue(descriptor, properties, transaction)
        if status is not _OK:
            raise self._refusal(status, descriptor, len(properties.body))
        return self.engine.last_message_identifier

    def send_many(
        self,
        descriptor: OpenQueueDescriptor,
        messages: Sequence[MessageRun | MessageProperties],
        sent: list[str],
        transaction: Transaction | None,
    ) -> None:
        """Send messages, and add the identifiers of those that were sent to `sent`.

        Raises the error of the first message that is refused.
        """
        ordinals: list[int] = []
        try:
            status = self.engine.enqueue_messages_to_an_open_queue(descriptor, messages, ordinals, transaction)
        finally:
            sent += self.engine.message_identifiers(ordinals)
        if status is not _OK:
            sizes = chain.from_iterable(map(_body_sizes, messages))
            raise self._refusal(status, descriptor, next(islice(sizes, len(ordinals), None)))

    def send_to_each(
        self,
        descriptor: OpenQueueDescriptor,
        messages: Sequence[MessageProperties],
        sent: list[str],
        transaction: Transaction | None,
    ) -> Iterator[None]:
        """Do `send_many` for a list of queues, with a step for each message and queue."""
        for properties in messages:
            identifier = ""
            for status in self.engine.enqueue_message_to_each(descriptor, properties, transaction):
                if status is not _OK:
                    raise self._refusal(status, descriptor, len(properties.body))
                # Other messages may be sent before the next step.
                identifier = self.engine.last_message_identifier
                yield
            sent.append(identifier)

    def send_packets(
        self,
        descriptor: OpenQueueDescriptor,
        octets: memoryview,
        most: int,
        ordinals: list[int],
        transaction: Transaction | None,
    ) -> bool:
        """Send packets that the program has built; return whether all of them are express.

        `octets` contains the packets one after the other, of which at most `most` are sent. Adds
        the ordinals of those that were sent to `ordinals`, and raises the error of the first that
        is refused.
        """
        status, is_express_only = self.engine.enqueue_packets_to_an_open_queue(
            descriptor, octets, most, ordinals, transaction
        )
        if status is not _OK:
            raise self._refusal(status, descriptor, body_size(octets, len(ordinals)))
        return is_express_only

    def _refusal(self, status: EnqueueStatus, descriptor: OpenQueueDescriptor, size: int) -> StatusError:
        qm, queue = self.engine.queue_manager, descriptor.queue
        if status is EnqueueStatus.TIMED_OUT_IN_TRANSIT:
            return IOTimeout(f"{descriptor.format_name}: time_to_reach_queue had passed before the message was there")
        if qm.throttled:
            cause = ": the disk of the data directory is full" if self.engine.store.refuses_sends else ""
            return InsufficientResources(
                f"queue manager {qm.computer_name} takes no messages for the moment (flow control){cause}"
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
        timeout: int,
        *,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
    ) -> Read:
        """Begin a receive.

        Outside a transaction, its message is held until the read takes it or gives it back.
        """
        read = Read(self.engine, self._changes, descriptor, is_receive=True, cursor=cursor, transaction=transaction)
        read.begin(
            lambda on_end: self.engine.dequeue_message(
                descriptor,
                timeout=timeout,
                cursor=cursor,
                transaction=transaction,
                two_phase_read=transaction is None,
                on_end=on_end,
            )
        )
        return read

    def receive_ready(
        self, descriptor: OpenQueueDescriptor, count: int, size: int, transaction: Transaction | None
    ) -> list[Read]:
        """Receive available messages: at most `count`, and at most `size` bytes of packets.

        Returns an empty list if there are none. Outside a transaction they are held, as in
        `receive`.
        """
        engine, changes = self.engine, self._changes
        positions = engine.dequeue_messages(descriptor, count, size, transaction, two_phase_read=transaction is None)
        return [Read.of(engine, changes, descriptor, position, transaction) for position in positions]

    def receive_run(
        self, descriptor: OpenQueueDescriptor, count: int, size: int, transaction: Transaction
    ) -> list[MessagePosition]:
        """Receive messages in a transaction as `receive_ready` does, without a `Read` for each."""
        return self.engine.dequeue_messages(descriptor, count, size, transaction)

    def give_back(self, position: MessagePosition) -> None:
        """Put back a message that a transaction received and that did not reach its reader."""
        if position.transaction is not None:
            self.engine.give_back_transactional_read(position.transaction, position)

    def remove_all(self, reads: Sequence[Read]) -> list[tuple[int, StatusError]]:
        """Remove the messages that receives hold: the second step.

        Returns the index and the error of each read that failed.
        """
        failed: list[tuple[int, StatusError]] = []
        together: dict[OpenQueueDescriptor, list[MessagePosition]] = {}
        for index, read in enumerate(reads):
            try:
                if read.is_held:
                    together.setdefault(read.descriptor, []).append(read.position)
                else:
                    read.remove()
            except StatusError as error:
                failed.append((index, error))
        for descriptor, positions in together.items():
            self.engine.dequeue_messages_end(descriptor, positions)
        return failed

    def wait_to_receive(
        self, descriptor: OpenQueueDescriptor, timeout: int, *, transaction: Transaction | None = None
    ) -> Read:
        """Begin a receive from a queue that the caller has just found empty.

        The caller has held the store's lock since then. Raises IOTimeout if `timeout` is 0.
        """
        read = Read(self.engine, self._changes, descriptor, is_receive=True, transaction=transaction)
        read.begin(
            lambda on_end: self.engine.wait_to_dequeue_message(
                descriptor,
                timeout=timeout,
                transaction=transaction,
                two_phase_read=transaction is None,
                on_end=on_end,
            )
        )
        return read

    def peek(
        self,
        descriptor: OpenQueueDescriptor,
        timeout: int,
        *,
        cursor: Cursor | None = None,
        is_next: bool = False,
    ) -> Read:
        """Begin a peek. With `is_next`, the cursor moves first."""
        read = Read(self.engine, self._changes, descriptor, is_receive=False, cursor=cursor)
        if is_next and cursor is not None:
            read.begin(lambda on_end: self.engine.peek_next_message(descriptor, cursor, timeout=timeout, on_end=on_end))
        else:
            read.begin(
                lambda on_end: self.engine.peek_message(descriptor, timeout=timeout, cursor=cursor, on_end=on_end)
            )
        return read

    def look_up(
        self,
        descriptor: OpenQueueDescriptor,
        lookup_id: int,
        where: str,
        *,
        is_peek: bool,
        transaction: Transaction | None = None,
    ) -> Read:
        """Read the message with a lookup identifier, or next to it.

        A receive is held as in `receive`.
        """
        action = seek_action(where)
        check_lookup_id(lookup_id)
        read = Read(self.engine, self._changes, descriptor, is_receive=not is_peek, transaction=transaction)
        try:
            read.begin(
                lambda _: self.engine.read_message_by_lookup_identifier(
                    descriptor,
                    lookup_id,
                    peek_operation=is_peek,
                    lookup_operation=action,
                    transaction=transaction,
                    two_phase_read=not is_peek,
                )
            )
        except (MessageNotFound, TransactionUsage) as error:
            raise self._explained(error, descriptor, lookup_id, transaction) from None
        return read

    def move(
        self,
        source: OpenQueueDescriptor,
        lookup_id: int,
        target: OpenQueueDescriptor,
        transaction: Transaction | None,
    ) -> None:
        """Move a message between a queue and its subqueues."""
        check_lookup_id(lookup_id)
        try:
            self.engine.move_message_by_lookup_identifier(source, lookup_id, target, transaction)
        except MessageNotFound as error:
            raise self._explained(error, source, lookup_id, transaction) from None

    @staticmethod
    def _explained(
        error: StatusError, descriptor: OpenQueueDescriptor, lookup_id: int, transaction: Transaction | None
    ) -> StatusError:
        """Return the error for a message that could not be read; it names the holder."""
        held = None if descriptor.queue is None else descriptor.queue.held_positions.get(lookup_id)
        if held is None or held.is_uncommitted_send:
            return error
        what = f"message {lookup_id:#x} of queue {held.queue.pathname}"
        if held.transaction is None:
            return type(error)(f"{what} is being received by another reader: it is removed or returned when that ends")
        if transaction is not None and held.transaction is transaction:
            kinds = (one.operation_type for one in transaction.transactional_operations if one.message_position is held)
            done = "moved" if next(kinds, None) is OperationType.MOVE else "received"
            return type(error)(f"{what} is held by this transaction, {transaction.identifier}, which has {done} it")
        return type(error)(
            f"{what} is held by transaction {held.transaction.identifier}: "
            "it is removed when that commits, and returned when that aborts"
        )

    def undo_receive(self, positions: Iterable[MessagePosition]) -> None:
        """Put back received messages that did not reach their reader."""
        for position in positions:
            self.engine.undo_receive(position)

    # Transactions
    # -------------------------------------------------------------------------------------------

    def begin(self, identifier: UUID) -> Transaction:
        return self.engine.create_transaction(identifier)

    def commit(self, transaction: Transaction) -> None:
        self.engine.transaction_commit(transaction.identifier)

    def abort(self, transaction: Transaction) -> None:
        self.engine.transaction_abort(transaction.identifier)


def _body_sizes(messages: MessageRun | MessageProperties) -> Iterator[int]:
    return map(len, messages.bodies) if isinstance(messages, MessageRun) else iter((len(messages.body),))


def _descriptor_of(queue: Queue) -> SecurityDescriptor:
    return SecurityDescriptor() if queue.security is None else SecurityDescriptor.unpack(queue.security)


def seek_action(where: str) -> MessageSeekAction:
    """Return the action for a word: current, next, previous, first, last."""
    try:
        return MessageSeekAction(where)
    except ValueError:
        known = ", ".join(member.value for member in MessageSeekAction)
        raise InvalidParameter(f"{where!r}: one of {known}") from None


def check_lookup_id(lookup_id: object) -> None:
    """Raise InvalidParameter unless the value can be a lookup identifier."""
    if not isinstance(lookup_id, int) or not 0 <= lookup_id <= MAX_LOOKUP_ID:
        raise InvalidParameter(f"lookup id {lookup_id!r}: a number from 0 to {MAX_LOOKUP_ID:#x}")


def milliseconds(timeout: float | None) -> int:
    """Convert a time-out of the API, in seconds, to milliseconds; None means no time-out."""
    if timeout is None or timeout == math.inf:
        return INFINITE
    if not timeout >= 0:
        raise InvalidParameter(f"time-out {timeout}: 0 or more seconds, or None for ever")
    # A wait shorter than a millisecond must still wait.
    return min(max(int(timeout * 1000), 1 if timeout else 0), _LONGEST)
