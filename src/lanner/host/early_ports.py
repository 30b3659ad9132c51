"""Sockets that are bound before the process gives up the right to bind them.

The service reads its settings, binds ports below 1024, and drops its privileges. Only then does it
open the store and accept connections. A listener calls `take_early` before it binds an address
itself.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

__all__ = ["bind_early", "close_early", "is_privileged", "take_early"]

# ip(7): the first port that needs no privilege.
_FIRST_UNPRIVILEGED: Final = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_DEFAULT: Final = 1024
# The key is the address and the port. The value is the bound socket, or the error that binding
# raised, which the listener reports.
_bound: dict[tuple[str, int], socket.socket | OSError] = {}


def is_privileged(port: int) -> bool:
    """Return whether a port can be bound only with CAP_NET_BIND_SERVICE."""
    try:
        first = int(_FIRST_UNPRIVILEGED.read_text(encoding="ascii"))
    except (OSError, ValueError):
        first = _DEFAULT
    return 0 < port < first


def bind_early(address: str, port: int) -> None:
    """Bind a TCP socket, without listening. A failure is kept for `take_early`."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # As asyncio's `create_server` does.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
    except OSError as error:
        made.close()
        _bound[address, port] = error
    else:
        _bound[address, port] = made


def take_early(address: str, port: int) -> socket.socket | None:
    """Return the socket that was bound early to an address and port, and forget it.

    Return None if there is none. Raises the OSError with which binding it failed.
    """
    found = _bound.pop((address, port), None)
    if isinstance(found, OSError):
        raise found
    return found


def close_early() -> None:
    """Close the sockets that no listener has taken."""
    while _bound:
        _, left = _bound.popitem()
        if isinstance(left, socket.socket):
            left.close()
