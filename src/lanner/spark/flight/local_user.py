"""The local user at the other end of a TCP connection within this machine, from the kernel."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import Final

_TABLE, _TABLE_6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
# proc(5): after the addresses come state, queues, timer, retransmits, and the user.
_USER: Final = 4
_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"

# An end of a socket: host and port; for IPv6 two more numbers.
Address = tuple[str, int] | tuple[str, int, int, int]


def user_of(here: Address, there: Address) -> int | None:
    """Return the local user who owns the other end of a connection. This end is `here`.

    Returns None if the other end is on another machine, or is closed.
    """
    ends = [(ipaddress.ip_address(host.partition("%")[0]).packed, port) for host, port, *_ in (there, here)]
    # An IPv6 socket may be connected to an IPv4 address.
    mapped = [(packed if len(packed) > 4 else _IPV4_MAPPED + packed, port) for packed, port in ends]
    for table, sought in ((_TABLE, ends), (_TABLE_6, mapped)):
        # The table has a line for each socket, so it is searched as a whole.
        text = f" {' '.join(_written(*end) for end in sought)} "
        try:
            _, found, rest = table.read_text("ascii").partition(text)
        except OSError:
            continue
        if found:
            return int(rest.split(maxsplit=_USER + 1)[_USER])
    return None


def _written(packed: bytes, port: int) -> str:
    """Return ADDRESS:PORT in hexadecimal, in words of the machine's byte order."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
