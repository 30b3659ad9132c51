"""Connections whose other end has vanished without a word: a computer without power, a cable that was pulled.

Nothing tells of it while nobody sends. A server would keep what such a client has locked, and a
client would wait for a server for ever.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

# Ours: whoever has not even acknowledged anything for so long is gone.
DEAD_AFTER: Final = 120  # seconds
# When nothing else is sent, it is asked for.
_IDLE: Final = 60  # seconds
_BETWEEN: Final = 15  # seconds


def notice_death(connected: socket.socket) -> None:
    """Have the kernel end a TCP connection whose other end does not answer any more, or does not take what it asked for."""
    # One that is gone already says so soon enough.
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _BETWEEN)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, (DEAD_AFTER - _IDLE) // _BETWEEN)
        # The same with data on the way, where TCP alone would try for a quarter of an hour.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER * 1000)
