"""The names of `lanner`, awaitable: `async with lanner.aio.QueueManager("data", name="ALPHA") as qm: ...`."""

from lanner.client.aio import Cursor, Queue, QueueManager, Transaction
from lanner.client.aio_sender import Sender
from lanner.client.connect import connect_aio as connect

__all__ = ["Cursor", "Queue", "QueueManager", "Sender", "Transaction", "connect"]
