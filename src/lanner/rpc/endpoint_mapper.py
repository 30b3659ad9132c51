"""The endpoint mapper: the ports of interfaces (C706 appendices L and O, MS-RPCE 2.2.1.2)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.calls import ServerCall
from lanner.rpc.interface import In, InOut, Interface, Method, Out
from lanner.rpc.mgmt import MGMT, RPC_IF_ID, RpcIfId
from lanner.rpc.ndr import (
    NULL_HANDLE,
    Conformant,
    ConformantVarying,
    ContextHandle,
    Full,
    Related,
    Struct,
    Value,
    Varying,
    char,
    guid,
    u8,
    u32,
)
from lanner.rpc.pdu import NDR20, SyntaxId
from lanner.rpc.server import ServerInterface
from lanner.wire.reader import Reader

if TYPE_CHECKING:
    from lanner.rpc.server import RpcServer

EPMAPPER_PORT: Final = 135
# MS-RPCE 2.2.1.2.2.
MAX_TOWER_LENGTH: Final = 2000
# MS-RPCE 2.2.1.2.4, 2.2.1.2.5.
MAX_ENTRIES: Final = 500
_ANNOTATION_SIZE: Final = 64
# Not in the specification: the maximum number of unfinished searches of one client.
MAX_SEARCHES: Final = 16
_HANDLE_KIND: Final = "ept_lookup_handle_t"

# The status of MS-RPCE 2.2.1.2.4 for the end of a search.
EPT_S_NOT_REGISTERED: Final = 0x16C9_A0D6

# C706 appendix I: the first octet of a floor.
_PROTOCOL_UUID: Final = 0x0D
_PROTOCOL_NCACN: Final = 0x0B
_PROTOCOL_TCP: Final = 0x07
_PROTOCOL_IP: Final = 0x09

# ept_lookup inquiry_type and vers_option, MS-RPCE 2.2.1.2.4.
_MATCH_BY_IF: Final = 1
_MATCH_BY_OBJ: Final = 2


@dataclass(frozen=True, slots=True)
class Twr:
    """twr_t, MS-RPCE 2.2.1.2.2."""

    tower_length: Annotated[int, u32.within(0, MAX_TOWER_LENGTH)]
    tower_octet_string: Annotated[bytes, Conformant(u8), Related(size_is="tower_length")]

    @classmethod
    def of(cls, tower: Tower) -> Twr:
        octets = tower.pack()
        return cls(len(octets), octets)


TWR: Final = Struct(Twr)


@dataclass(frozen=True, slots=True)
class EptEntry:
    """ept_entry_t, C706 appendix O."""

    object: Annotated[UUID, guid]
    tower: Annotated[Twr | None, Full(TWR)]
    annotation: Annotated[str, Varying(char, _ANNOTATION_SIZE, is_string=True)]


_EPT_LOOKUP_HANDLE: Final = ContextHandle(_HANDLE_KIND)

EPMAPPER: Final = Interface(
    "epmapper",
    UUID("e1af8308-5d1f-11c9-91a4-08002b14a0fa"),
    (3, 0),
    [
        # ept_insert and ept_delete: MS-RPCE does not offer them to remote callers.
        None,
        None,
        Method(
            2,
            "ept_lookup",
            In("inquiry_type", u32),
            In("object", Full(guid)),
            In("ifid", Full(RPC_IF_ID)),
            In("vers_option", u32),
            InOut("entry_handle", _EPT_LOOKUP_HANDLE),
            In("max_ents", u32.within(0, MAX_ENTRIES)),
            Out("num_ents", u32),
            Out("entries", ConformantVarying(Struct(EptEntry)), size_is="max_ents", length_is="num_ents"),
            Out("status", u32),
        ),
        Method(
            3,
            "ept_map",
            In("obj", Full(guid)),
            In("map_tower", Full(TWR)),
            InOut("entry_handle", _EPT_LOOKUP_HANDLE),
            In("max_towers", u32.within(0, MAX_ENTRIES)),
            Out("num_towers", u32),
            Out("i_towers", ConformantVarying(Full(TWR)), size_is="max_towers", length_is="num_towers"),
            Out("status", u32),
        ),
        Method(4, "ept_lookup_handle_free", InOut("entry_handle", _EPT_LOOKUP_HANDLE), Out("status", u32)),
    ],
)


@dataclass(frozen=True, slots=True)
class Tower:
    """A protocol tower for ncacn_ip_tcp (C706 appendix L).

    Its floors are interface, transfer syntax, RPC, TCP port and IP address.
    """

    interface: SyntaxId
    transfer_syntax: SyntaxId
    port: int
    address: str = "0.0.0.0"  # noqa: S104 (any, as towers write it)

    def pack(self) -> bytes:
        floors = [
            _syntax_floor(self.interface),
            _syntax_floor(self.transfer_syntax),
            (bytes([_PROTOCOL_NCACN]), bytes(2)),
            (bytes([_PROTOCOL_TCP]), self.port.to_bytes(2, "big")),
            (bytes([_PROTOCOL_IP]), ipaddress.IPv4Address(self.address).packed),
        ]
        parts = [len(floors).to_bytes(2, "little")]
        for left, right in floors:
            parts += (len(left).to_bytes(2, "little"), left, len(right).to_bytes(2, "little"), right)
        return b"".join(parts)

    @classmethod
    def unpack(cls, octets: bytes) -> Tower:
        """Parse a tower.

        Raises RemoteProtocolError if it is malformed or of another protocol sequence.
        """
        reader = Reader(octets)
        count = reader.u16("floor count")
        if count != 5:
            raise RemoteProtocolError(f"a tower of {count} floors is not of ncacn_ip_tcp")
        floors = [
            (reader.take(reader.u16("lhs length"), "lhs"), reader.take(reader.u16("rhs length"), "rhs"))
            for _ in range(count)
        ]
        interface, transfer_syntax = _floor_syntax(*floors[0]), _floor_syntax(*floors[1])
        # C706 appendix L: the right side of the third floor is the minor version of the RPC
        # protocol. Clients that look for a port may omit it.
        for (left, right), protocol, sizes in zip(
            floors[2:], (_PROTOCOL_NCACN, _PROTOCOL_TCP, _PROTOCOL_IP), ((0, 2), (2,), (4,)), strict=True
        ):
            if left[:1] != bytes([protocol]) or len(right) not in sizes:
                raise RemoteProtocolError(f"floor {left.hex()} {right.hex()} is not of ncacn_ip_tcp")
        port = int.from_bytes(floors[3][1], "big")
        return cls(interface, transfer_syntax, port, str(ipaddress.IPv4Address(floors[4][1])))


def _syntax_floor(syntax: SyntaxId) -> tuple[bytes, bytes]:
    left = bytes([_PROTOCOL_UUID]) + syntax.uuid.bytes_le + struct.pack("<H", syntax.major)
    return left, struct.pack("<H", syntax.minor)


def _floor_syntax(left: bytes, right: bytes) -> SyntaxId:
    if len(left) != 19 or left[0] != _PROTOCOL_UUID or len(right) < 2:
        raise RemoteProtocolError(f"floor {left.hex()} {right.hex()} names no interface")
    return SyntaxId(UUID(bytes_le=left[1:17]), *struct.unpack("<HH", left[17:] + right[:2]))


@dataclass(frozen=True, slots=True)
class Registration:
    """An element of the endpoint map."""

    tower: Tower
    annotation: str = ""


class EndpointMapper(ServerInterface):
    """The endpoint mapper of one server. It lists the interfaces of that server."""

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        super().__init__(
            EPMAPPER,
            {
                "ept_lookup": self.ept_lookup,
                "ept_map": self.ept_map,
                "ept_lookup_handle_free": self.ept_lookup_handle_free,
            },
            # A client must find the port of an interface before it can authenticate there.
            open_to_all=EPMAPPER.by_name,
        )

    def registrations(self, call: ServerCall) -> Iterator[Registration]:
        """Yield every interface on every port.

        The mapper's own port is listed only for itself, or if there is no other.
        """
        endpoints = self._server.endpoints
        others = [one for one in endpoints if one.port != EPMAPPER_PORT] or endpoints
        for interface in self._server.interfaces:
            if interface.syntax.uuid == MGMT.uuid:
                continue
            for endpoint in endpoints if interface is self else others:
                address = _address(endpoint.address, call.connection.local_address)
                for transfer_syntax in interface.transfer_syntaxes:
                    yield Registration(Tower(interface.syntax, transfer_syntax, endpoint.port, address), interface.name)

    def ept_lookup(
        self,
        call: ServerCall,
        *,
        inquiry_type: int,
        object: UUID | None,  # noqa: A002 (its name in the IDL)
        ifid: RpcIfId | None,
        vers_option: int,
        entry_handle: bytes,
        max_ents: int,
    ) -> dict[str, Value]:
        if entry_handle == NULL_HANDLE:
            found = [
                one
                # Each is listed with one transfer syntax, because a lookup lists endpoints.
                for one in self.registrations(call)
                if one.tower.transfer_syntax == NDR20
                and _matches(one.tower.interface, inquiry_type, object, ifid, vers_option)
            ]
        else:
            found = self._taken(call, entry_handle)
        part, left = found[:max_ents], found[max_ents:]
        entries = tuple(
            EptEntry(UUID(int=0), Twr.of(one.tower), one.annotation[: _ANNOTATION_SIZE - 1]) for one in part
        )
        return {
            # impacket assumes that there are more entries if it gets a handle.
            "entry_handle": self._kept(call, left) if left else NULL_HANDLE,
            "num_ents": len(entries),
            "entries": entries,
            "status": 0 if entries else EPT_S_NOT_REGISTERED,
        }

    def ept_map(
        self, call: ServerCall, *, obj: UUID | None, map_tower: Twr | None, entry_handle: bytes, max_towers: int
    ) -> dict[str, Value]:
        # No interface is registered for an object, and that matches every object.
        del obj
        if entry_handle == NULL_HANDLE:
            found = [] if map_tower is None else list(self._mapped(call, map_tower))
        else:
            found = self._taken(call, entry_handle)
        part, left = found[:max_towers], found[max_towers:]
        return {
            "entry_handle": self._kept(call, left) if left else NULL_HANDLE,
            "num_towers": len(part),
            "i_towers": tuple(Twr.of(one.tower) for one in part),
            "status": 0 if part else EPT_S_NOT_REGISTERED,
        }

    def _mapped(self, call: ServerCall, map_tower: Twr) -> Iterator[Registration]:
        try:
            wanted = Tower.unpack(map_tower.tower_octet_string)
        except RemoteProtocolError:
            # No server listens on this protocol sequence.
            return
        for one in self.registrations(call):
            interface = one.tower.interface
            if (
                interface.uuid == wanted.interface.uuid
                and interface.major == wanted.interface.major
                and interface.minor >= wanted.interface.minor
                and one.tower.transfer_syntax.uuid == wanted.transfer_syntax.uuid
            ):
                yield one

    @staticmethod
    def ept_lookup_handle_free(call: ServerCall, *, entry_handle: bytes) -> dict[str, Value]:
        if entry_handle != NULL_HANDLE:
            call.caller.remove(entry_handle, _HANDLE_KIND)
        return {"entry_handle": NULL_HANDLE, "status": 0}

    @staticmethod
    def _taken(call: ServerCall, handle: bytes) -> list[Registration]:
        value = call.caller.remove(handle, _HANDLE_KIND)
        return value if isinstance(value, list) else []

    @staticmethod
    def _kept(call: ServerCall, left: list[Registration]) -> bytes:
        handles = call.group.handles
        open_searches = [handle for handle, _ in handles.values(_HANDLE_KIND)]
        if len(open_searches) >= MAX_SEARCHES:
            # Some clients do not close searches, so the oldest one is removed.
            handles.remove(open_searches[0], _HANDLE_KIND)
        # Their results are public, so the handles belong to all users.
        return handles.add(left, _HANDLE_KIND)


def _matches(
    interface: SyntaxId,
    inquiry_type: int,
    object_uuid: UUID | None,
    ifid: RpcIfId | None,
    vers_option: int,
) -> bool:
    """Return whether an interface matches (MS-RPCE 2.2.1.2.4).

    The elements of this map have no object, so a search for one finds nothing.
    """
    if inquiry_type & _MATCH_BY_OBJ and object_uuid is not None and object_uuid.int:
        return False
    if not inquiry_type & _MATCH_BY_IF:
        return True
    if ifid is None or interface.uuid != ifid.uuid:
        return False
    ours, theirs = (interface.major, interface.minor), (ifid.vers_major, ifid.vers_minor)
    match vers_option:
        case 1:
            return True
        case 2:
            return ours[0] == theirs[0] and ours[1] >= theirs[1]
        case 3:
            return ours == theirs
        case 4:
            return ours[0] == theirs[0]
        case 5:
            return ours <= theirs
        case _:
            return False


def _address(bound: str, reached: str) -> str:
    """Return the IPv4 address for a tower: the listener's, or the one that the client has used."""
    for text in (bound, reached):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if isinstance(address, ipaddress.IPv4Address) and not address.is_unspecified:
            return str(address)
    return "0.0.0.0"  # noqa: S104 (none, as towers write it)
