r"""DCOM and automation: activation, the object resolver, remote objects, dispatch (MS-DCOM, MS-OAUT). It knows nothing of queues.

For programs there is a client, with which scripts written for Windows COM run anywhere:

>>> with lanner.com.connect("beta", user="alice", password="secret") as computer:
...     info = computer.dispatch("MSMQ.MSMQQueueInfo")
...     info.PathName = r".\private$\orders"
...     print(info.Open(1, 0).Receive(ReceiveTimeout=1000).Body)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.com.automation_client import (
        NOTHING,
        AutomationError,
        Connection,
        Dispatch,
        EventConnection,
        connect,
        release,
        with_events,
    )
    from lanner.com.values import EMPTY, MISSING, NULL, VT, Variant

__all__ = [
    "EMPTY",
    "MISSING",
    "NOTHING",
    "NULL",
    "VT",
    "AutomationError",
    "Connection",
    "Dispatch",
    "EventConnection",
    "Variant",
    "connect",
    "release",
    "with_events",
]
_VALUES = ("EMPTY", "MISSING", "NULL", "VT", "Variant")


if not TYPE_CHECKING:  # else every name would be known to exist

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: the server has no use for the client."""
        if name not in __all__:
            raise AttributeError(f"module 'lanner.com' has no attribute {name!r}")
        found = getattr(import_module(f"lanner.com.{'values' if name in _VALUES else 'automation_client'}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
