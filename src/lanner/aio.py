"""The asynchronous API, with the same names as `lanner`.

Use it as in `async with lanner.aio.QueueManager("data", name="ALPHA") as qm: ...`.
"""

from lanner.client._async.cursor import Cursor
from lanner.client._async.distributed import DistributedTransaction, distributed
from lanner.client._async.queue import Queue
from lanner.client._async.queue_manager import QueueManager, connect
from lanner.client._async.sender import Sender
from lanner.client._async.transaction import Transaction

__all__ = [
    "Cursor",
    "DistributedTransaction",
    "Queue",
    "QueueManager",
    "Sender",
    "Transaction",
    "connect",
    "distributed",
]
