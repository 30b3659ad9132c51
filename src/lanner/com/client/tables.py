"""The tables of a client (MS-DCOM 3.2.1): resolvers, exporters, interfaces, and their addresses."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from lanner.com.client.connections import Address
from lanner.com.client.pings import PingSet
from lanner.com.constants import RPC_E_INVALID_OBJREF, RPC_E_VERSION_MISMATCH
from lanner.com.objects import ComError
from lanner.com.objref import SORF_NOPING, DualStringArray, ObjRef, ObjRefCustom, StdObjRef, StringBinding
from lanner.com.orpc import OUR_VERSION, ComVersion
from lanner.rpc.pdu import AuthLevel

# Not in the specification: the number of a peer's addresses that are tried.
MAX_ADDRESSES: Final = 4
_LEVELS: Final = frozenset(AuthLevel)


class Resolver:
    """An object resolver: the address where it answered, and the objects pinged there."""

    def __init__(self, addresses: tuple[Address, ...], peer: str | None = None) -> None:
        self.addresses = addresses
        # The address of the untrusted peer to which it belongs, if any. Its references may name no
        # other address.
        self.peer = peer
        # The address where it answered.
        self.address: Address | None = None
        self.pings = PingSet()
        # The lock is held while the resolver resolves an exporter, so that no other task resolves
        # the same one.
        self.lock = asyncio.Lock()
        # The number of interfaces held on objects of this resolver.
        self.interfaces = 0

    @property
    def host(self) -> str:
        return self.addresses[0].host


class RemoteExporter:
    """An object exporter and how to call it."""

    def __init__(
        self,
        oxid: int,
        resolver: Resolver,
        addresses: tuple[Address, ...],
        ipid_rem_unknown: UUID,
        level: AuthLevel,
        version: ComVersion,
    ) -> None:
        self.oxid = oxid
        self.resolver = resolver
        self.addresses = addresses
        # The address where it answered.
        self.address: Address | None = None
        self.ipid_rem_unknown = ipid_rem_unknown
        self.level = level
        self.version = version
        self.interfaces: dict[UUID, HeldInterface] = {}
        # Calls in progress.
        self.calls = 0
        # The idle timer, which runs while no interface of this exporter is held.
        self.idle: asyncio.TimerHandle | None = None

    def __str__(self) -> str:
        return str(self.address or self.addresses[0])


class HeldInterface:
    """An interface that is held; `handles` counts its RemoteInterfaces."""

    __slots__ = ("exporter", "handles", "iid", "ipid", "is_pinged", "oid", "public_refs", "res_addr")

    def __init__(self, exporter: RemoteExporter, iid: UUID, std: StdObjRef, res_addr: DualStringArray) -> None:
        self.exporter = exporter
        self.iid = iid
        self.ipid = std.ipid
        self.oid = std.oid
        self.res_addr = res_addr
        self.is_pinged = not std.flags & SORF_NOPING
        self.public_refs = std.public_refs
        self.handles = 0


def negotiated(version: ComVersion, who: str) -> ComVersion:
    """Return the highest version that both sides support (MS-DCOM 1.7)."""
    if version.major_version != OUR_VERSION.major_version:
        raise ComError(RPC_E_VERSION_MISMATCH, f"{who} speaks COM {version.major_version}.{version.minor_version}")
    return ComVersion(version.major_version, min(version.minor_version, OUR_VERSION.minor_version))


def level_for(bindings: DualStringArray, authn_hint: int, level: AuthLevel) -> AuthLevel:
    """Return the authentication level for an exporter (MS-DCOM 3.2.4.2).

    Without security bindings, the level is NONE. Otherwise it is the higher of our level and the
    exporter's hint, or packet privacy if the hint is not a known level.
    """
    if not bindings.security_bindings:
        return AuthLevel.NONE
    return max(level, AuthLevel(authn_hint)) if authn_hint in _LEVELS else AuthLevel.PKT_PRIVACY


def reference_parts(objref: ObjRef) -> tuple[StdObjRef, DualStringArray]:
    """Return the reference and the resolver of an OBJREF.

    For HANDLER and EXTENDED, return the ones of the embedded standard OBJREF.
    """
    if isinstance(objref, ObjRefCustom):
        text = f"an object of class {objref.clsid} marshals itself, which is not supported"
        raise ComError(RPC_E_INVALID_OBJREF, text)
    return objref.std, objref.res_addr


def usable_addresses(
    bindings: Sequence[StringBinding],
    port: int | None,
    *,
    peer: str | None = None,
    first: str = "",
    is_anonymous: bool = False,
) -> tuple[Address, ...]:
    """Return the addresses of these bindings, with `port` where a binding names none.

    The host `first` is known to answer. It comes first, even if no binding contains it, because the
    names in the bindings may not resolve here.

    With `peer`, all addresses are on that host: an untrusted peer chooses only its own ports, never
    another computer.
    """
    found: dict[Address, None] = {}
    for binding in bindings:
        chosen = port if binding.port is None else binding.port
        if chosen is None or not 0 < chosen <= 0xFFFF or not binding.host:
            continue
        host = binding.host if peer is None else peer
        if peer is not None and _is_another(binding.host, peer):
            continue
        found[Address(host, chosen, is_anonymous)] = None
    if first and found and first.lower() not in {address.host.lower() for address in found}:
        found = {Address(first, next(iter(found)).port, is_anonymous): None, **found}
    ordered = sorted(found, key=lambda address: address.host.lower() != first.lower())
    return tuple(ordered[:MAX_ADDRESSES])


def _is_another(host: str, peer: str) -> bool:
    """Return whether a host is an address other than the peer's.

    A name is assumed to be the peer's.
    """
    try:
        return ipaddress.ip_address(host) != ipaddress.ip_address(peer)
    except ValueError:
        return False
