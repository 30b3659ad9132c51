"""Moving, copying and resending messages to any queue, and deleting single ones: each in one step.

A message that goes to another queue is sent there anew. It has the content of the old one, a new
id, and the identity of the caller as its sender. It takes the rights of a receive (of a peek, for a
copy) and of a send. The old message is received in the same change of the store, so after a crash
there is either the old message or the new one. (Between a queue and its own subqueues messages keep
their ids: `Operations.move`.)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lanner.engine.checks import RECEIVE_ACCESS, readable
from lanner.host.operations import Operations, check_lookup_id
from lanner.host.reads import Read
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass, MessageSeekAction
from lanner.model.errors import TransactionUsage
from lanner.model.live import OpenQueueDescriptor, Transaction
from lanner.wire.builder import MessageProperties
from lanner.wire.copied_properties import copied_properties
from lanner.wire.message import Message as Packet


@dataclass(slots=True)
class Passing:
    """Messages of one queue that go to another."""

    operations: Operations
    source: OpenQueueDescriptor
    target: OpenQueueDescriptor
    # Whether the old messages stay.
    is_copy: bool
    transaction: Transaction | None = None
    # The content to send instead of that of the single message.
    edited: MessageProperties | None = None
    # Checks and completes the properties to send, as for any other message of the caller.
    complete: Callable[[MessageProperties], None] | None = None

    @property
    def needs_one_transaction(self) -> bool:
        """Whether all messages are passed on in one transaction that is still to begin."""
        queue = self.target.queue
        is_here = queue is not None and not isinstance(queue, OutgoingQueue)
        return self.transaction is None and is_here and queue is not None and queue.transactional

    def run(self, lookup_ids: Sequence[int]) -> list[str]:
        """Pass the messages on; return the new identifiers. The caller holds the store's lock.

        All messages are passed on, or none, if they are sent in a transaction: because the target
        is transactional, or because it is on another computer and the message was once sent in a
        transaction. Otherwise the messages before the first that is refused have been passed on.
        """
        own: Transaction | None = None
        reads: list[Read] = []
        identifiers: list[str] = []
        try:
            for lookup_id in lookup_ids:
                read = self._read(lookup_id)
                reads.append(read)
                packet = Packet(read.position.record.packet)
                is_transactional = self._needs_transaction(packet)
                if is_transactional and self.transaction is None and own is None:
                    own = self.operations.begin(uuid.uuid4())
                unit = (self.transaction or own) if is_transactional else None
                identifiers.append(self._send(packet, unit))
                if unit is not own or unit is None:
                    # The send has happened, or happens together with the receive when the caller
                    # commits.
                    reads.pop()
                if unit is None and not self.is_copy:
                    read.remove()
        except BaseException:
            for read in reversed(reads):
                read.give_back()
            if own is not None:
                self.operations.abort(own)
            raise
        if own is not None:
            self.operations.commit(own)
        for read in reads if not self.is_copy else ():
            read.remove()
        return identifiers

    def _read(self, lookup_id: int) -> Read:
        """Find a message; hold it if it is to leave its queue."""
        return self.operations.look_up(
            self.source,
            lookup_id,
            MessageSeekAction.CURRENT.value,
            is_peek=self.is_copy,
            transaction=None if self.is_copy else self.transaction,
        )

    def _needs_transaction(self, packet: Packet) -> bool:
        queue = self.target.queue
        is_here = queue is not None and not isinstance(queue, OutgoingQueue)
        wanted = queue.transactional if is_here and queue is not None else packet.is_transactional
        if self.transaction is None:
            return wanted
        if is_here and not wanted:
            raise TransactionUsage(
                f"{self.target.format_name} is not transactional: messages cannot be passed on to it in a transaction"
            )
        return True

    def _send(self, packet: Packet, unit: Transaction | None) -> str:
        properties = copied_properties(packet) if self.edited is None else self.edited
        if self.complete is not None:
            self.complete(properties)
        return self.operations.send(self.target, properties, unit)


def delete(operations: Operations, source: OpenQueueDescriptor, lookup_ids: Sequence[int]) -> None:
    """Delete messages as a purge does, so their senders are notified that they were purged.

    The caller holds the store's lock.
    """
    engine = operations.engine
    queue = readable(engine.queue_manager, source, RECEIVE_ACCESS)
    for lookup_id in lookup_ids:
        check_lookup_id(lookup_id)
    # All are looked up first, so that either all are deleted or none.
    positions = [engine.positions.seek_current(queue, lookup_id, peek=False) for lookup_id in dict.fromkeys(lookup_ids)]
    for position in positions:
        engine.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_PURGED)
    engine.audit.done("delete messages", operations.identity, queue=queue.pathname, messages=len(positions))
