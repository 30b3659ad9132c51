"""The fixed ports of the RPC interfaces, and what the methods that tell them answer (MS-MQQP 3.1.4.8, MS-MQMP 3.1.4.24)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lanner.services.interfaces.mqqp import PortType

# MS-MQQP 3.1.4.8: the defaults; a port that is taken is passed over by eleven.
HANDSHAKE_PORT: Final = 2103  # qmcomm, qmcomm2
READ_PORT: Final = 2105  # qm2qm
# The Unix socket, in the data directory.
LOCAL_SOCKET: Final = "lanner.sock"


@dataclass(slots=True)
class ServerPorts:
    """Where a server really listens; 0 until it does."""

    ip_handshake: int = 0
    ip_read: int = 0

    def of(self, port_type: int) -> int:
        """The port of a PortType, 0 where there is none: SPX is not served."""
        if port_type == PortType.IP_HANDSHAKE:
            return self.ip_handshake
        return self.ip_read if port_type == PortType.IP_READ else 0
