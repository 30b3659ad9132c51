"""Whose connection it is: the kernel knows the user at the other end of a TCP connection within this machine."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import Final

# proc(5): sl, local_address, rem_address, st, queues, timer, retransmits, uid
_LOCAL, _REMOTE, _UID = 1, 2, 7
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"

# What a socket calls its ends: host and port, and of IPv6 two numbers more.
Address = tuple[str, int] | tuple[str, int, int, int]
Endpoint = tuple[bytes, int]


def user_of(here: Address, there: Address) -> int | None:
    """Return the user who has the other end of a connection, of which this end is `here`.

    None: that is on another machine, or is gone.
    """
    other_end = (_endpoint(there), _endpoint(here))
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if (_read(fields[_LOCAL]), _read(fields[_REMOTE])) == other_end:
                return int(fields[_UID])
    return None


def _endpoint(address: Address) -> Endpoint:
    parsed = ipaddress.ip_address(address[0].partition("%")[0])
    return (_IPV4_MAPPED + parsed.packed if parsed.version == 4 else parsed.packed), address[1]


def _read(text: str) -> Endpoint:
    """Read ADDRESS:PORT: words of the machine's byte order, in hexadecimal digits."""
    address, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
    return (_IPV4_MAPPED + packed if len(packed) == 4 else packed), int(port, 16)
