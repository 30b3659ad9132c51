r"""Lanner: a message queue manager that speaks Microsoft Message Queuing's own protocols.

>>> import lanner
>>> with lanner.QueueManager("data", name="ALPHA") as qm:
...     q = qm.create_queue(r".\private$\orders")
...     q.send(lanner.Message(body=b"hi", recoverable=True))
...     print(q.receive(timeout=1.0).body)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner import com, errors
    from lanner.client import (
        Cursor,
        DistributedTransaction,
        Message,
        Queue,
        QueueManager,
        ReceivedMessage,
        Sender,
        Transaction,
        connect,
        distributed,
    )
    from lanner.model.enums import Acknowledgements, EncryptionAlgorithm, HashAlgorithm, MessageClass
    from lanner.transfer.settings import TransferSettings

__all__ = [
    "Acknowledgements",
    "Cursor",
    "DistributedTransaction",
    "EncryptionAlgorithm",
    "HashAlgorithm",
    "Message",
    "MessageClass",
    "Queue",
    "QueueManager",
    "ReceivedMessage",
    "Sender",
    "Transaction",
    "TransferSettings",
    "com",
    "connect",
    "distributed",
    "errors",
]
__version__ = "0.2.0"

# Names from modules other than the client.
_ELSEWHERE = dict.fromkeys(
    ("Acknowledgements", "EncryptionAlgorithm", "HashAlgorithm", "MessageClass"), "lanner.model.enums"
) | {"TransferSettings": "lanner.transfer.settings"}


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name on first use, so that a program loads only the layers that it needs."""
        if name in ("aio", "com", "errors", "telemetry"):
            return import_module(f"lanner.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'lanner' has no attribute {name!r}")
        found = getattr(import_module(_ELSEWHERE.get(name, "lanner.client")), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
