"""The endpoint mapper and the management interface, as a client of each asks them."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.async_client import BoundInterface, connect_tcp
from lanner.rpc.endpoint_mapper import (
    EPMAPPER,
    EPT_S_NOT_REGISTERED,
    MAX_SEARCHES,
    EndpointMapper,
    EptEntry,
    Tower,
    Twr,
)
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import Interface
from lanner.rpc.mgmt import MGMT, MgmtInterface, RpcIfId
from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.rpc.pdu import NDR20, NDR64, SyntaxId
from lanner.rpc.server import RpcServer
from tests.rpc.loops import run
from tests.rpc.raw_interface import RawInterface

ORDERS = SyntaxId(UUID("11111111-1111-1111-1111-111111111111"), 1, 4)

# C706 appendix L: five floors, 75 octets.
TOWER = bytes.fromhex(
    "0500"
    "13000d" "11111111111111111111111111111111" "0100" "0200" "0400"
    "13000d" "045d888aeb1cc9119fe808002b104860" "0200" "0200" "0000"
    "01000b" "0200" "0000"
    "010007" "0200" "0837"
    "010009" "0400" "7f000001"
)  # fmt: skip
TOWER_VALUE = Tower(ORDERS, NDR20, 2103, "127.0.0.1")


def test_tower_pack_and_unpack() -> None:
    assert len(TOWER) == 75
    assert TOWER_VALUE.pack() == TOWER
    assert Tower.unpack(TOWER) == TOWER_VALUE


def test_a_request_may_leave_out_the_minor_version_of_the_protocol() -> None:
    """C706 appendix L, third floor: its right side has the minor version.

    The minor version does not determine the address.
    """
    without = TOWER.replace(bytes.fromhex("01000b02000000"), bytes.fromhex("01000b0000"))
    assert len(without) == len(TOWER) - 2
    assert Tower.unpack(without) == TOWER_VALUE


@pytest.mark.parametrize("right", ["010000", "0300000000", "040000000000"])
def test_a_third_floor_of_another_form_is_refused(right: str) -> None:
    with pytest.raises(RemoteProtocolError, match="ncacn_ip_tcp"):
        Tower.unpack(TOWER.replace(bytes.fromhex("01000b02000000"), bytes.fromhex("01000b" + right)))


@pytest.mark.parametrize("size", range(len(TOWER)))
def test_every_truncation_of_a_tower_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Tower.unpack(TOWER[:size])


ENTRY = EptEntry(UUID(int=0), Twr.of(TOWER_VALUE), "orders")
# MS-RPCE 2.2.5.3.3.1: in NDR64 offset and count of the annotation, a varying string, have 8 octets
# each; Wireshark reads 4.
ENTRIES = {
    Syntax.NDR20: struct.pack(
        "<20xI III 16xI II 6sxx II75s xI", 1, 1, 0, 1, 0x20000, 0, 7, b"orders", 75, 75, TOWER, 0
    ),
    Syntax.NDR64: struct.pack(
        "<20xI QQQ 16xQ QQ 6sxx QI75s xI", 1, 1, 0, 1, 0x20000, 0, 7, b"orders", 75, 75, TOWER, 0
    ),
}


@pytest.mark.parametrize("syntax", Syntax)
def test_elements_pack_and_unpack(syntax: Syntax) -> None:
    ept_lookup = EPMAPPER.by_name["ept_lookup"]
    found: dict[str, Any] = {"entry_handle": NULL_HANDLE, "num_ents": 1, "entries": (ENTRY,), "status": 0}
    assert ept_lookup.encode_response(found, {"max_ents": 1}, syntax) == ENTRIES[syntax]
    assert ept_lookup.decode_response(ENTRIES[syntax], {"max_ents": 1}, syntax) == found


@asynccontextmanager
async def asked(interface: Interface, syntax: Syntax = Syntax.NDR20) -> AsyncIterator[tuple[BoundInterface, int]]:
    """A client of a server with two interfaces, its endpoint mapper and its management."""
    server = RpcServer([RawInterface(ORDERS, {0: lambda _: b""}, name="orders", transfer_syntaxes=(NDR20, NDR64))])
    server.register(MgmtInterface(server, "host/qm1.mq.test"))
    server.register(EndpointMapper(server))
    port = await server.listen_tcp("127.0.0.1", 0)
    try:
        async with await connect_tcp("127.0.0.1", port) as client:
            yield await client.bind(interface, (syntax,)), port
    finally:
        await server.stop()


async def mapped(
    bound: BoundInterface, tower: Tower | None, max_towers: int = 4, handle: bytes = NULL_HANDLE
) -> dict[str, Any]:
    return await bound.call(
        EPMAPPER.by_name["ept_map"],
        obj=None,
        map_tower=None if tower is None else Twr.of(tower),
        entry_handle=handle,
        max_towers=max_towers,
    )


async def looked_up(bound: BoundInterface, **arguments: object) -> dict[str, Any]:
    asked_for = {
        "inquiry_type": 0,
        "object": None,
        "ifid": None,
        "vers_option": 1,
        "entry_handle": NULL_HANDLE,
        "max_ents": 10,
        **arguments,
    }
    return await bound.call(EPMAPPER.by_name["ept_lookup"], **asked_for)


@pytest.mark.parametrize("syntax", Syntax)
def test_a_known_interface_is_mapped_to_its_port(syntax: Syntax) -> None:
    async def main() -> None:
        async with asked(EPMAPPER, syntax) as (mapper, port):
            for wanted in (ORDERS, SyntaxId(ORDERS.uuid, 1, 0)):
                found = await mapped(mapper, Tower(wanted, NDR20, 0))
                (tower,) = found["i_towers"]
                assert Tower.unpack(tower.tower_octet_string) == Tower(ORDERS, NDR20, port, "127.0.0.1")
                assert (found["status"], found["num_towers"], found["entry_handle"]) == (0, 1, NULL_HANDLE)

    run(main())


@pytest.mark.parametrize(
    "tower",
    [
        Tower(SyntaxId(UUID(int=1), 1), NDR20, 0),
        Tower(SyntaxId(ORDERS.uuid, 2), NDR20, 0),
        Tower(SyntaxId(ORDERS.uuid, 1, 5), NDR20, 0),
        Tower(ORDERS, SyntaxId(UUID(int=1), 1), 0),
        None,
    ],
    ids=["uuid", "major version", "minor version", "transfer syntax", "no tower"],
)
def test_what_nobody_serves_is_not_registered(tower: Tower | None) -> None:
    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            found = await mapped(mapper, tower)
            assert (found["status"], found["i_towers"]) == (EPT_S_NOT_REGISTERED, ())

    run(main())


def test_a_tower_of_another_protocol_is_not_registered() -> None:
    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            # A named pipe in the place of TCP, and garbage.
            for octets in (TOWER.replace(bytes.fromhex("010007"), bytes.fromhex("01000f")), b"\xff" * 75, b""):
                found = await mapper.call(
                    EPMAPPER.by_name["ept_map"],
                    obj=None,
                    map_tower=Twr(len(octets), octets),
                    entry_handle=NULL_HANDLE,
                    max_towers=1,
                )
                assert found["status"] == EPT_S_NOT_REGISTERED

    run(main())


@pytest.mark.parametrize("syntax", Syntax)
def test_everything_is_listed_in_parts(syntax: Syntax) -> None:
    async def main() -> None:
        async with asked(EPMAPPER, syntax) as (mapper, port):
            names = []
            handle = NULL_HANDLE
            while True:
                found = await looked_up(mapper, max_ents=1, entry_handle=handle)
                assert found["status"] == 0
                (entry,) = found["entries"]
                assert isinstance(entry, EptEntry)
                assert entry.tower is not None
                assert Tower.unpack(entry.tower.tower_octet_string).port == port
                names.append(entry.annotation)
                handle = found["entry_handle"]
                if handle == NULL_HANDLE:
                    break
            # Management is everywhere, and is not listed.
            assert names == ["orders", "epmapper"]

    run(main())


@pytest.mark.parametrize(
    ("vers_option", "version", "is_found"),
    [
        (1, (9, 9), True),
        (2, (1, 4), True),
        (2, (1, 3), True),
        (2, (1, 5), False),
        (3, (1, 4), True),
        (3, (1, 3), False),
        (4, (1, 9), True),
        (4, (2, 4), False),
        (5, (1, 4), True),
        (5, (2, 0), True),
        (5, (1, 3), False),
        (6, (1, 4), False),
    ],
)
def test_version_options(vers_option: int, version: tuple[int, int], is_found: bool) -> None:
    """MS-RPCE 2.2.1.2.4."""

    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            found = await looked_up(
                mapper, inquiry_type=1, ifid=RpcIfId(ORDERS.uuid, *version), vers_option=vers_option
            )
            assert [entry.annotation for entry in found["entries"]] == (["orders"] if is_found else [])

    run(main())


def test_nothing_is_registered_for_an_object() -> None:
    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            found = await looked_up(mapper, inquiry_type=2, object=uuid4())
            assert found["status"] == EPT_S_NOT_REGISTERED

    run(main())


def test_a_search_is_given_up() -> None:
    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            free = EPMAPPER.by_name["ept_lookup_handle_free"]
            handle = (await looked_up(mapper, max_ents=1))["entry_handle"]
            assert handle != NULL_HANDLE
            assert await mapper.call(free, entry_handle=handle) == {"entry_handle": NULL_HANDLE, "status": 0}
            for again in (mapper.call(free, entry_handle=handle), looked_up(mapper, entry_handle=handle)):
                with pytest.raises(RpcFault) as caught:
                    await again
                assert caught.value.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH

    run(main())


def test_forgotten_searches_do_not_pile_up() -> None:
    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            handles = [(await looked_up(mapper, max_ents=1))["entry_handle"] for _ in range(MAX_SEARCHES + 1)]
            with pytest.raises(RpcFault):
                await looked_up(mapper, entry_handle=handles[0])
            assert (await looked_up(mapper, entry_handle=handles[1]))["status"] == 0

    run(main())


def test_more_than_500_at_once_is_bad_stub_data() -> None:
    """MS-RPCE 2.2.1.2.4: [range(0,500)]."""

    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            stub = EPMAPPER.by_name["ept_lookup"].encode_request(
                {
                    "inquiry_type": 0,
                    "object": None,
                    "ifid": None,
                    "vers_option": 1,
                    "entry_handle": NULL_HANDLE,
                    "max_ents": 500,
                }
            )
            with pytest.raises(RpcFault) as caught:
                await mapper.call_raw(2, stub[:-4] + (501).to_bytes(4, "little"))
            assert caught.value.status == FaultStatus.BAD_STUB_DATA
            assert caught.value.did_not_execute

    run(main())


@pytest.mark.parametrize("opnum", [0, 1, 5, 6, 7, 0xFFFF])
def test_what_msrpce_takes_away_is_out_of_range(opnum: int) -> None:
    """MS-RPCE 2.2.1.2.6, .7, .9, .10."""

    async def main() -> None:
        async with asked(EPMAPPER) as (mapper, _):
            with pytest.raises(RpcFault) as caught:
                await mapper.call_raw(opnum, b"")
            assert caught.value.status == FaultStatus.NCA_OP_RNG_ERROR

    run(main())


@pytest.mark.parametrize("syntax", Syntax)
def test_management(syntax: Syntax) -> None:
    """C706 appendix Q."""

    async def main() -> None:
        async with asked(MGMT, syntax) as (mgmt, _):
            found = await mgmt.call(MGMT.by_name["rpc__mgmt_inq_if_ids"])
            assert [one.uuid for one in found["if_id_vector"].if_id] == [ORDERS.uuid, EPMAPPER.uuid]
            listening = await mgmt.call(MGMT.by_name["rpc__mgmt_is_server_listening"])
            assert listening == {"status": 0, "returns": 1}
            stats = await mgmt.call(MGMT.by_name["rpc__mgmt_inq_stats"], count=2)
            assert (stats["count"], stats["status"]) == (2, 0)
            assert stats["statistics"][0] >= 3
            stopped = await mgmt.call(MGMT.by_name["rpc__mgmt_stop_server_listening"])
            assert stopped["status"] == 5
            named = await mgmt.call(MGMT.by_name["rpc__mgmt_inq_princ_name"], authn_proto=10, princ_name_size=100)
            assert named == {"princ_name": "host/qm1.mq.test", "status": 0}
            with pytest.raises(RpcFault):
                await mgmt.call(MGMT.by_name["rpc__mgmt_inq_princ_name"], authn_proto=10, princ_name_size=3)

    run(main())
