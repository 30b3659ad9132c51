"""State notifications to the service manager (sd_notify(3)).

They are datagrams to the socket in NOTIFY_SOCKET.
"""

from __future__ import annotations

import logging
import os
import socket

_LOG = logging.getLogger(__name__)

__all__ = ["notify"]


def notify(state: str) -> None:
    """Send a state, such as `READY=1`. Does nothing without a service manager."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # A name in the abstract namespace begins with a null byte.
    path = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(state.encode(), path)
        except OSError as error:
            _LOG.warning("the service manager cannot be notified of %s: %s", state, error.strerror)
