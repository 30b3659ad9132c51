"""Queues that are open through RemoteRead, and the reads in progress on them (MS-MQRR 3.1.1).

Each handle has a PendingRequestTable of its own, because a request is always looked up together
with its handle. A read that waits is in the table so that R_CancelReceive finds it. A receive stays
in the table after its message was delivered, until the client ends it or the cleanup time has
passed.

All code here runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lanner.model.enums import PositionState, QueueAccessType
from lanner.model.errors import (
    InvalidHandle,
    InvalidParameter,
    MessageNotFound,
    QueueNotAvailable,
    StatusAccessDenied,
    StatusInvalidHandle,
    StatusNotFound,
)
from lanner.wire.extension_headers import SubqueueHeader

if TYPE_CHECKING:
    from lanner.host.reads import Read
    from lanner.model.directory_objects import Queue
    from lanner.model.live import Cursor, OpenQueueDescriptor, Record, Transaction
    from lanner.rpc.association import AssociationGroup


@dataclass(slots=True, eq=False)
class PendingRequest:
    """PendingRequestEntry (MS-MQRR 3.1.1.2). LookupIdentifier is in the read's position."""

    request_id: int
    read: Read
    # The Pending Request Cleanup Timer (3.1.2.2), started when the message is delivered
    # (DECISIONS).
    cleanup: asyncio.TimerHandle | None = None

    @property
    def transaction(self) -> Transaction | None:
        """The enlisted transaction of the read, if any."""
        return self.read.transaction

    def stop_timer(self) -> None:
        if self.cleanup is not None:
            self.cleanup.cancel()


@dataclass(slots=True, eq=False)
class OpenQueue:
    """An open descriptor, and the reads through it by RequestId."""

    descriptor: OpenQueueDescriptor
    # The association that opened the queue; no other may use its move context.
    group: AssociationGroup
    # The number by which R_MoveMessage finds a destination (3.1.4.11 pMoveContext); 0 for a queue
    # that is open for reading.
    move_context: int = 0
    requests: dict[int, PendingRequest] = field(default_factory=dict)

    @property
    def queue(self) -> Queue:
        """The queue; raises QueueNotAvailable if it was deleted."""
        queue = self.descriptor.queue
        if queue is None or queue.is_deleted:
            raise QueueNotAvailable(f"{self.descriptor.format_name}: the queue was deleted")
        return queue

    def require_receive_access(self) -> None:
        """Raise StatusAccessDenied unless the handle may receive messages (DECISIONS)."""
        access = self.descriptor.access_type
        if access is not QueueAccessType.RECEIVE:
            raise StatusAccessDenied(f"{self.descriptor.format_name} is open for {access.name.lower()} access only")

    def require_peek_access(self) -> None:
        """Raise StatusAccessDenied if the handle is only a destination of moves."""
        if self.move_context:
            self.require_receive_access()

    def cursor(self, handle: int) -> Cursor:
        """Return this handle's cursor with a number; raise StatusInvalidHandle if there is none."""
        for cursor in self.descriptor.cursors:
            if cursor.handle == handle:
                return cursor
        raise StatusInvalidHandle(f"{self.descriptor.format_name} has no cursor {handle:#x}")

    def begin(self, request_id: int, read: Read) -> PendingRequest:
        """Add a request; raise InvalidParameter if its identifier is in use."""
        self.require_free(request_id)
        request = self.requests[request_id] = PendingRequest(request_id, read)
        return request

    def require_free(self, request_id: int) -> None:
        if request_id in self.requests:
            raise InvalidParameter(f"dwRequestId {request_id:#x} is pending on {self.descriptor.format_name}")

    def forget(self, request: PendingRequest) -> None:
        """Remove a request, unless another one has taken over its identifier."""
        if self.requests.get(request.request_id) is request:
            del self.requests[request.request_id]
        request.stop_timer()

    def cancel(self, request_id: int) -> None:
        """End a wait (3.1.4.8); raise StatusNotFound if no read waits under this identifier."""
        request = self.requests.get(request_id)
        if request is None or not request.read.is_waiting:
            raise StatusNotFound(f"{self.descriptor.format_name}: no read waits under dwRequestId {request_id:#x}")
        self.forget(request)
        request.read.cancel()

    def delivered(self, request_id: int) -> PendingRequest:
        """Return the receive that a client ends (3.1.4.9, the first two steps).

        A read that still waits is not disturbed (DECISIONS).
        """
        if not any(one.read.is_receive for one in self.requests.values()):
            raise InvalidHandle(f"{self.descriptor.format_name}: no receive is pending on this handle")
        request = self.requests.get(request_id)
        if request is None or not request.read.is_receive:
            raise InvalidParameter(f"{self.descriptor.format_name}: no receive has dwRequestId {request_id:#x}")
        if request.read.is_waiting:
            raise MessageNotFound(f"{self.descriptor.format_name}: dwRequestId {request_id:#x} waits for its message")
        self.forget(request)
        pathname = self.queue.pathname
        if request.read.position.state is PositionState.DELETED:
            raise MessageNotFound(f"{pathname}: the message of dwRequestId {request_id:#x} is gone")
        return request

    def require_no_transaction(self, request_id: int) -> None:
        """Raise InvalidParameter if a read is in a transaction.

        It stays pending: only R_EndTransactionalReceive can end it (DECISIONS).
        """
        request = self.requests.get(request_id)
        if request is not None and request.transaction is not None:
            raise InvalidParameter(
                f"dwRequestId {request_id:#x} is in a transaction: R_EndTransactionalReceive ends it"
            )

    def subqueue_header(self, record: Record, last_move_time: int) -> SubqueueHeader:
        """Return the SubqueueHeader of a message in this queue (MS-MQRR 2.2.5.3)."""
        queue = self.queue
        name = queue.pathname.partition(";")[2] if queue.parent else ""
        return SubqueueHeader(
            abort_counter=record.abort_count,
            move_counter=record.move_count,
            last_move_time=last_move_time,
            subqueue_name=name,
        )


class MoveContexts:
    """Destinations of moves, by random number."""

    def __init__(self) -> None:
        self._queues: dict[int, OpenQueue] = {}

    def add(self, queue: OpenQueue) -> int:
        """Assign a destination its number, and return it."""
        while not queue.move_context or queue.move_context in self._queues:
            queue.move_context = secrets.randbits(64)
        self._queues[queue.move_context] = queue
        return queue.move_context

    def find(self, number: int, group: AssociationGroup) -> OpenQueue:
        """Return the destination with a number.

        Raises InvalidHandle if the number is unknown or another association opened the queue.
        """
        queue = self._queues.get(number)
        if queue is None or queue.group is not group:
            raise InvalidHandle(f"ullContextTo {number:#x} is no queue that this client opened for move")
        return queue

    def remove(self, queue: OpenQueue) -> None:
        self._queues.pop(queue.move_context, None)
