"""The public API: queue managers, queues, messages, cursors, transactions.

`_async` has the classes in async form, `_sync` the blocking form generated from it. `lanner` offers
the blocking names, `lanner.aio` the async ones. Names, meanings and errors are the same in both,
for a queue manager in this process and for one elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.client._sync.cursor import Cursor
    from lanner.client._sync.distributed import DistributedTransaction, distributed
    from lanner.client._sync.queue import Queue
    from lanner.client._sync.queue_manager import QueueManager, connect
    from lanner.client._sync.sender import Sender
    from lanner.client._sync.transaction import Transaction
    from lanner.client.message import Message, ReceivedMessage

__all__ = [
    "Cursor",
    "DistributedTransaction",
    "Message",
    "Queue",
    "QueueManager",
    "ReceivedMessage",
    "Sender",
    "Transaction",
    "connect",
    "distributed",
]

_MODULES = {
    "Cursor": "_sync.cursor",
    "DistributedTransaction": "_sync.distributed",
    "Message": "message",
    "Queue": "_sync.queue",
    "QueueManager": "_sync.queue_manager",
    "ReceivedMessage": "message",
    "Sender": "_sync.sender",
    "Transaction": "_sync.transaction",
    "connect": "_sync.queue_manager",
    "distributed": "_sync.distributed",
}


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name on first use, so that a program loads only what it needs."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = found
        return found
