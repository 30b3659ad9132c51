r"""DCOM and automation (MS-DCOM, MS-OAUT). This package does not depend on the queue manager.

server                 the server side: activation, object resolver, exporter (MS-DCOM 3.1)
client                 the client side, and `connect()` for programs (MS-DCOM 3.2)
automation             values, stubs, IDispatch, connection points (MS-OAUT)

All three share:
constants              identifiers, HRESULTs and other codes (MS-DCOM 1.9, MS-OAUT 1.9, MS-ERREF 2)
hresults               the names of HRESULTs
known_classes          the class names and event interfaces of message queuing (MC-MQAC 1.9)
members                tables of the members of interfaces (MS-OAUT 2.2.49)
objects                objects that remote clients call, and their errors
objref                 object references (MS-DCOM 2.2.14 to 2.2.19)
orpc                   ORPCTHIS and ORPCTHAT (MS-DCOM 2.2.11, 2.2.13)
interfaces             the RPC interfaces of DCOM itself (MS-DCOM 3.1.1.5, 3.1.2.5)
activation_properties  the activation properties BLOB (MS-DCOM 2.2.22)

Scripts written for Windows COM run with the client on any computer:

>>> with lanner.com.connect("beta", user="alice", password="secret") as computer:
...     info = computer.dispatch("MSMQ.MSMQQueueInfo")
...     info.PathName = r".\private$\orders"
...     print(info.Open(1, 0).Receive(ReceiveTimeout=1000).Body)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.com.automation.values import EMPTY, MISSING, NULL, Variant
    from lanner.com.client.automation import (
        NOTHING,
        AutomationError,
        Connection,
        Dispatch,
        EventConnection,
        connect,
        release,
        with_events,
    )
    from lanner.wire.vartypes import VT

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


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: the server does not need the client."""
        if name not in __all__:
            raise AttributeError(f"module 'lanner.com' has no attribute {name!r}")
        found = getattr(
            import_module(f"lanner.com.{'automation.values' if name in _VALUES else 'client.automation'}"), name
        )
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
