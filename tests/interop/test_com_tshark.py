"""Wireshark's DCOM dissectors find no malformed packet between the server and two clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from lanner.com.constants import IID_ICLASSFACTORY, IID_IDISPATCH
from lanner.com.interfaces import (
    COMPLEX_PING,
    CREATE_INSTANCE,
    ICLASSFACTORY,
    IREMUNKNOWN,
    REM_ADD_REF,
    REM_QUERY_INTERFACE,
    REM_QUERY_INTERFACE2,
    RESOLVE_OXID,
    RESOLVE_OXID2,
    SERVER_ALIVE,
    SERVER_ALIVE2,
    SIMPLE_PING,
    RemInterfaceRef,
)
from lanner.rpc.faults import RpcFault
from lanner.rpc.pdu import AuthLevel
from tests.com.server.test_activator import class_object, remote_activation
from tests.com.server.test_resolver import ping_arguments, resolve_arguments
from tests.com.toys import (
    CLONE,
    ICOUNTER,
    IID_ICOUNTER,
    IID_ICOUNTER2,
    IID_IOTHER,
    ToyServer,
    toy_client,
)
from tests.interop.peers import needs_endpoint_mapper_port
from tests.interop.wireshark import captured, shown
from tests.rpc.loops import run

ADDRESS = "127.0.0.65"
# tshark 4.0 takes a sealed stub of less than 15 octets for malformed: test_rpc_tshark has the
# reason.
MALFORMED = "_ws.malformed && !(dcerpc.auth_level == 6 && dcerpc.cn_alloc_hint < 15)"


async def conversation(folder: Path, level: AuthLevel) -> int:
    """All that a client may ask, failures among it; the exporter's port.

    All but RemQueryInterface on an object that is not there: tshark 4.0 reads results where the
    pointer to them is NULL.
    """
    async with ToyServer(folder, ADDRESS, 135) as server, toy_client(server, level=level) as client:
        exporter = server.com.exporter
        await client.alive(SERVER_ALIVE)
        await client.alive(SERVER_ALIVE2)
        (std, _) = await client.activate(IID_ICOUNTER, IID_IOTHER)
        await client.create(IID_IDISPATCH, IID_ICOUNTER)
        await client.create(clsid=uuid4())
        await class_object(client, IID_ICLASSFACTORY)
        answer = await remote_activation(client, IID_ICOUNTER2, IID_IDISPATCH)
        await remote_activation(client, IID_ICOUNTER, clsid=UUID(int=9))
        factory = (await remote_activation(client, IID_ICLASSFACTORY, mode=0xFFFFFFFF))["pp_interface_data"][0]
        await client.call(ICLASSFACTORY, factory.std.ipid, CREATE_INSTANCE, riid=IID_ICOUNTER)
        for method in (RESOLVE_OXID, RESOLVE_OXID2):
            await client.alive(method, **resolve_arguments(exporter.oxid))
            await client.alive(method, **resolve_arguments(1))
        second = answer["pp_interface_data"][0].std
        made = await client.alive(COMPLEX_PING, **ping_arguments(0, 1, (std.oid, second.oid), ()))
        await client.alive(COMPLEX_PING, **ping_arguments(made["p_set_id"], 2, (), (second.oid,)))
        await client.alive(SIMPLE_PING, p_set_id=made["p_set_id"])
        assert await client.add(std, 42) == 42
        await client.call(ICOUNTER, std.ipid, CLONE)
        await client.query(std, IID_ICOUNTER2, IID_IDISPATCH, refs=2)
        question: dict[str, Any] = {"ripid": std.ipid, "c_refs": 1, "c_iids": 1, "iids": (IID_ICOUNTER2,)}
        await client.call(IREMUNKNOWN, exporter.ipid_rem_unknown, REM_QUERY_INTERFACE, **question)
        await client.rem(REM_QUERY_INTERFACE2, ripid=std.ipid, c_iids=2, iids=(IID_IOTHER, IID_IDISPATCH))
        refs = (RemInterfaceRef(std.ipid, 1, 1), RemInterfaceRef(uuid4(), 1, 0))
        await client.rem(REM_ADD_REF, c_interface_refs=2, interface_refs=refs)
        with pytest.raises(RpcFault):
            await client.call(ICOUNTER, uuid4(), CLONE)
        await client.release(std)
        return exporter.addresses.port


@pytest.mark.parametrize("level", [AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_nothing_between_object_server_and_client_is_malformed(tmp_path: Path, level: AuthLevel) -> None:
    needs_endpoint_mapper_port(ADDRESS)
    path = tmp_path / "capture.pcapng"
    ports: list[int] = []

    async def main() -> None:
        ports.append(await conversation(tmp_path, level))

    with captured(path, f"tcp and host {ADDRESS}"):
        run(main())
    (port,) = ports
    assert shown(path, f"({MALFORMED}) || dcerpc.fragment.error", port=port) == []
    # Each dissector was asked, and had something to say.
    for name in ("oxid", "isystemactivator", "remact", "remunk", "remunk2"):
        assert shown(path, name, port=port), name
    assert shown(path, f"tcp.port == {port} && tcp.len > 0 && !dcerpc", port=port) == []
