"""Whom an address belongs to: what is limited or counted per peer is counted by this."""

from __future__ import annotations

import ipaddress
from typing import Final

# A network of one subscriber (RFC 6177): whoever has one has all of its addresses.
_IPV6_PREFIX: Final = 64


def peer_of(address: str) -> str:
    """The peer whom an address belongs to: itself, or of IPv6 its network of 64 bits."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _IPV6_PREFIX), strict=False))
