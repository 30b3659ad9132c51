"""What Python programs import: a queue manager in this process, its queues, messages, cursors and transactions.

`lanner.QueueManager` blocks and may be shared by threads; `lanner.aio.QueueManager` has the same names,
awaitable. Both are thin: an operation is written once (`operations.py`), runs under the store's lock, and
is answered when its batch is on disk.
"""

from lanner.client.message import Message, ReceivedMessage
from lanner.client.queue_manager import Cursor, Queue, QueueManager, Transaction
from lanner.client.sender import Sender

__all__ = ["Cursor", "Message", "Queue", "QueueManager", "ReceivedMessage", "Sender", "Transaction"]
