"""The public API: queue managers, queues, messages, cursors, transactions.

`_async` has the classes in async form, `_sync` the blocking form generated from it. `lanner` offers
the blocking names, `lanner.aio` the async ones. Names, meanings and errors are the same in both,
for a queue manager in this process and for one elsewhere.
"""

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
