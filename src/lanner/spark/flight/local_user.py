"""Whose connection it is: the kernel knows the user at the other end of a TCP connection within this machine."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import Final

_TABLE, _TABLE_6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
# proc(5): after the addresses come state, queues, timer, retransmits, and the user.
_USER: Final = 4
_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"

# What a socket calls its ends: host and port, and of IPv6 two numbers more.
Address = tuple[str, int] | tuple[str, int, int, int]


def user_of(here: Address, there: Address) -> int | None:
    """Return the user who has the other end of a connection, of which this end is `here`.

    None: that is on another machine, or is gone.
    """
    ends = [(ipaddress.ip_address(host.partition("%")[0]).packed, port) for host, port, *_ in (there, here)]
    # A socket of IPv6 may be connected to an address of IPv4.
    mapped = [(packed if len(packed) > 4 else _IPV4_MAPPED + packed, port) for packed, port in ends]
    for table, sought in ((_TABLE, ends), (_TABLE_6, mapped)):
        # As many lines as there are sockets: they are not read one by one.
        text = f" {' '.join(_written(*end) for end in sought)} "
        try:
            _, found, rest = table.read_text("ascii").partition(text)
        except OSError:
            continue
        if found:
            return int(rest.split(maxsplit=_USER + 1)[_USER])
    return None


def _written(packed: bytes, port: int) -> str:
    """ADDRESS:PORT: words of the machine's byte order, in hexadecimal digits."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
