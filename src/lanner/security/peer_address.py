"""The peer that an address belongs to, for everything that is limited or counted per peer."""

from __future__ import annotations

import ipaddress
from typing import Final

# A network of one subscriber (RFC 6177), who controls all of its addresses.
_IPV6_PREFIX: Final = 64


def peer_of(address: str) -> str:
    """Return the peer of an address: itself, or for IPv6 its network of 64 bits."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _IPV6_PREFIX), strict=False))
