"""The runtime behind an embedded queue manager, for the parts of Lanner that use the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.client._async import embedded as async_embedded
from lanner.client._sync import embedded as sync_embedded

if TYPE_CHECKING:
    from lanner.client._async.queue_manager import QueueManager as AsyncQueueManager
    from lanner.client._sync.queue_manager import QueueManager
    from lanner.host.operations import Operations
    from lanner.host.runtime import Runtime
    from lanner.transfer.embedded import EmbeddedTransfer

__all__ = ["is_embedded", "operations_of", "runtime_of", "transfer_of"]


def _backend(
    manager: QueueManager | AsyncQueueManager,
) -> sync_embedded.EmbeddedBackend | async_embedded.EmbeddedBackend:
    backend = manager._backend  # noqa: SLF001 (this module is the way to it)
    if not isinstance(backend, (sync_embedded.EmbeddedBackend, async_embedded.EmbeddedBackend)):
        raise TypeError(f"{manager!r} does not run in this process")
    return backend


def is_embedded(manager: QueueManager | AsyncQueueManager) -> bool:
    """Return whether a queue manager runs in this process."""
    kinds = (sync_embedded.EmbeddedBackend, async_embedded.EmbeddedBackend)
    return isinstance(manager._backend, kinds)  # noqa: SLF001 (this module is the way to it)


def runtime_of(manager: QueueManager | AsyncQueueManager) -> Runtime:
    """Return the runtime of a queue manager in this process; TypeError if it runs elsewhere."""
    return _backend(manager).runtime


def operations_of(manager: QueueManager | AsyncQueueManager) -> Operations:
    """Return the operations of a queue manager in this process, as its user."""
    return _backend(manager).operations


def transfer_of(manager: QueueManager | AsyncQueueManager) -> EmbeddedTransfer | None:
    """Return the transfer of a queue manager in this process; None if it has no address."""
    return _backend(manager).embedded.transfer
