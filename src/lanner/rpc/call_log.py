"""The log of calls, at DEBUG: a record for each request and each answer, of servers and clients.

Only `connection` and `client_connection` use it. Calls of DCOM pass through them, too. A new
connection checks once whether the log is enabled; while it is off, a call costs one comparison. A
record has the direction, the peer, the association, the call id, the names of the interface and the
method, and a size or a status. Parameters are not logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Literal
from uuid import UUID

from lanner.rpc.faults import status_name

_LOG: Final = logging.getLogger(__name__)

# The interfaces that this process declares. Only the log needs them, because connections have UUIDs
# and opnums.
_INTERFACES: Final[dict[UUID, tuple[str, Callable[[int], str | None]]]] = {}


def name_interface(uuid: UUID, name: str, method_name: Callable[[int], str | None]) -> None:
    """Name an interface in the log. `method_name` returns the name of an opnum, or None."""
    _INTERFACES[uuid] = name, method_name


def _name(interface: UUID, opnum: int) -> str:
    name, method_name = _INTERFACES.get(interface, (str(interface), lambda _: None))
    return f"{name} {method_name(opnum) or f'opnum {opnum}'}"


class CallLog:
    """The log of one connection."""

    def __init__(self, side: Literal["server", "client"], peer: str) -> None:
        is_server = side == "server"
        self._request = f"received request from {peer}" if is_server else f"sent request to {peer}"
        self._answer = f"sent %s to {peer}" if is_server else f"received %s from {peer}"
        # Unanswered calls, by call id.
        self._names: dict[int, str] = {}

    def request(self, association: int, call_id: int, interface: UUID, opnum: int, size: int) -> None:
        name = self._names[call_id] = _name(interface, opnum)
        _LOG.debug("%s, association %#010x, call %d: %s, %d bytes", self._request, association, call_id, name, size)

    def response(self, association: int, call_id: int, size: int) -> None:
        self._answered(association, call_id, "response", f"{size} bytes")

    def fault(self, association: int, call_id: int, status: int) -> None:
        """Log a fault, including that of a request that was refused before it became a call."""
        self._answered(association, call_id, "fault", status_name(status))

    def abandoned(self, call_id: int) -> None:
        """Forget a call without an answer, because its client abandoned it."""
        self._names.pop(call_id, None)

    def _answered(self, association: int, call_id: int, kind: str, what: str) -> None:
        name = self._names.pop(call_id, "refused request")
        _LOG.debug("%s, association %#010x, call %d: %s, %s", self._answer % kind, association, call_id, name, what)


def call_log(side: Literal["server", "client"], peer: str) -> CallLog | None:
    """Return the log of a new connection, or None while the log is off."""
    return CallLog(side, peer) if _LOG.isEnabledFor(logging.DEBUG) else None
