"""Where remote reads are served (MS-MQQP 2.1, 3.1.4.8).

Covered: the fixed ports, those that are eleven higher, and the answers of the endpoint mapper.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.services.interfaces.mqqp import QM2QM, REMOTE_QM_GET_QMQM_SERVER_PORT, REMOTE_QM_GET_VERSION
from lanner.services.listener import RpcListener, RpcSettings
from tests.cli.conftest import free_address


@asynccontextmanager
async def listening(path: Path, address: str, settings: RpcSettings | None = None) -> AsyncIterator[RpcListener]:
    """Everything that a queue manager serves by RPC."""
    runtime = Runtime(path / "data", local_settings("alpha"))
    listener = RpcListener(runtime.engine, runtime.users, directory=path, bind=address, settings=settings)
    try:
        await listener.start()
        try:
            yield listener
        finally:
            await listener.stop()
    finally:
        runtime.close()


async def told_port(address: str, port: int, kind: int) -> int:
    async with await connect_tcp(address, port) as client:
        bound = await client.bind(QM2QM)
        answer: int = (await bound.call(REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=kind))[RETURNS]
        return answer


@pytest.mark.spec("MQQP-3.1.4.8-1", "MQQP-3.1.4.8-2", "MQQP-3.1.4.8-3", "MQQP-2.1-3")
def test_the_ports_are_the_fixed_ones(tmp_path: Path) -> None:
    async def run() -> None:
        address = free_address()
        async with listening(tmp_path, address):
            for port in (2103, 2105):
                assert [await told_port(address, port, kind) for kind in range(4)] == [2103, 2105, 0, 0]

    asyncio.run(run())


@pytest.mark.spec("MQQP-3.1.4.8-5", "MQQP-3.1.4.8-6")
def test_ports_that_are_taken_are_passed_over_by_eleven(tmp_path: Path) -> None:
    async def run() -> None:
        address = free_address()
        with ExitStack() as stack:
            taken = [stack.enter_context(socket.create_server((address, port))) for port in (2103, 2105, 2116)]
            async with listening(tmp_path, address, RpcSettings(endpoint_mapper_port=0)):
                assert await told_port(address, 2114, 0) == 2114
                assert await told_port(address, 2114, 1) == 2127
                # It stays, also when the others are free.
                taken[1].close()
                taken[2].close()
                assert await told_port(address, 2127, 1) == 2127

    asyncio.run(run())


@pytest.mark.spec("MQQP-2.1-2")
@pytest.mark.parametrize("is_taken", [False, True])
def test_the_endpoint_mapper_tells_of_a_port_that_serves_remote_reads(tmp_path: Path, is_taken: bool) -> None:
    epm = pytest.importorskip("impacket.dcerpc.v5.epm", reason="impacket is not installed")
    uuidtup_to_bin = pytest.importorskip("impacket.uuid").uuidtup_to_bin
    address = free_address()
    try:
        socket.create_server((address, 135)).close()
    except PermissionError:
        pytest.skip("only root may listen on port 135")

    async def run() -> None:
        with ExitStack() as stack:
            if is_taken:
                stack.enter_context(socket.create_server((address, 2105)))
            async with listening(tmp_path, address, RpcSettings(authentication_level=AuthLevel.NONE)):
                interface = uuidtup_to_bin((str(QM2QM.uuid), "1.0"))
                found = await asyncio.to_thread(epm.hept_map, address, interface, protocol="ncacn_ip_tcp")
                port = int(found.partition("[")[2].rstrip("]"))
                assert port in ((2103, 2116) if is_taken else (2103, 2105))
                async with await connect_tcp(address, port) as client:
                    bound = await client.bind(QM2QM)
                    assert (await bound.call(REMOTE_QM_GET_VERSION))["p_major"] == 6

    asyncio.run(run())
