"""Detection of connections whose other end is lost, for example after a power failure.

TCP does not detect this while no data is sent. A server would then keep the messages that such a
client has locked, and a client would wait for a server for ever.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

# Not in the specification: a peer that has acknowledged nothing for this long is considered dead.
DEAD_AFTER: Final = 120  # seconds
# The kernel probes an idle connection after _IDLE seconds, every _BETWEEN seconds.
_IDLE: Final = 60  # seconds
_BETWEEN: Final = 15  # seconds


def notice_death(connected: socket.socket) -> None:
    """Make the kernel end a TCP connection whose peer no longer answers or acknowledges."""
    # A connection that is already closed is detected soon.
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _BETWEEN)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, (DEAD_AFTER - _IDLE) // _BETWEEN)
        # This applies the same limit to unacknowledged data, which TCP alone would send again for a
        # quarter of an hour.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER * 1000)
