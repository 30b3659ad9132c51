"""The fixed ports of the RPC interfaces, and the methods that report them.

MS-MQQP 3.1.4.8, MS-MQMP 3.1.4.24.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lanner.services.interfaces.mqqp import PortType

# MS-MQQP 3.1.4.8: the defaults. If one is taken, the next candidate is 11 higher.
HANDSHAKE_PORT: Final = 2103  # qmcomm, qmcomm2
READ_PORT: Final = 2105  # qm2qm
# Name of the Unix socket in the data directory.
LOCAL_SOCKET: Final = "lanner.sock"


@dataclass(slots=True)
class ServerPorts:
    """The ports on which a server actually listens; 0 until it does."""

    ip_handshake: int = 0
    ip_read: int = 0

    def of(self, port_type: int) -> int:
        """Return the port of a PortType; 0 if there is none, as for SPX."""
        if port_type == PortType.IP_HANDSHAKE:
            return self.ip_handshake
        return self.ip_read if port_type == PortType.IP_READ else 0
