"""Checks before an event: the state of the queue manager, a handle, a transaction.

Events that run once per message compare the state themselves (`QueueManager.queue_manager_state`)
and call `not_ready` only to make the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.model.enums import QueueAccessType, QueueManagerState
from lanner.model.errors import AccessDenied, QueueNotAvailable, ServiceNotAvailable, TransactionSequence

if TYPE_CHECKING:
    from collections.abc import Container

    from lanner.model.directory_objects import Queue, QueueManager
    from lanner.model.live import OpenQueueDescriptor, Transaction

RECEIVE_ACCESS: Final = (QueueAccessType.RECEIVE, QueueAccessType.RECEIVE_ADMIN)
PEEK_ACCESS: Final = (*RECEIVE_ACCESS, QueueAccessType.PEEK, QueueAccessType.PEEK_ADMIN)

# A module-level name: each event uses it, and Python 3.11 looks up members of an enumeration
# slowly.
READY: Final = QueueManagerState.READY


def not_ready(queue_manager: QueueManager) -> ServiceNotAvailable:
    """Return the error of an event that is raised outside state Ready."""
    state = queue_manager.queue_manager_state
    return ServiceNotAvailable(f"queue manager {queue_manager.computer_name} is {state.value}")


def require_ready(queue_manager: QueueManager) -> None:
    """Raise ServiceNotAvailable outside state Ready (QueueManagerState, MS-MQDMPR 3.1.1.1)."""
    if queue_manager.queue_manager_state is not READY:
        raise not_ready(queue_manager)


def require_open(transaction: Transaction) -> None:
    """Raise TransactionSequence if a transaction has ended or is prepared.

    No operation can join it then.
    """
    if transaction.is_over or transaction.is_prepared:
        state = "has ended" if transaction.is_over else "is prepared"
        raise TransactionSequence(f"transaction {transaction.identifier} {state}: begin another one")


def readable(queue_manager: QueueManager, descriptor: OpenQueueDescriptor, access: Container[QueueAccessType]) -> Queue:
    """Return the queue of a descriptor whose access type allows the read."""
    if queue_manager.queue_manager_state is not READY:
        raise not_ready(queue_manager)
    queue = descriptor.queue
    if queue is None:
        raise not_available(descriptor)
    if descriptor.access_type not in access:
        raise wrong_access(descriptor)
    return queue


def wrong_access(descriptor: OpenQueueDescriptor) -> AccessDenied:
    """Return the error of an operation that the access type of a descriptor does not allow."""
    name = descriptor.access_type.name.lower()
    return AccessDenied(f"{descriptor.format_name} is open for {name} access only")


def not_available(descriptor: OpenQueueDescriptor) -> QueueNotAvailable:
    """Return the error of an operation through a descriptor whose queue was deleted."""
    state = "closed" if descriptor.is_closed else "deleted"
    return QueueNotAvailable(f"{descriptor.format_name}: the queue was {state}")
