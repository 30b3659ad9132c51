"""The RPC interfaces of a queue manager that got only a data directory and an address.

MS-MQMR 2.1, 3.1.3; MS-MQQP 3.1.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lanner.daemon import service
from lanner.daemon.settings import load_settings
from lanner.model.errors import AccessDenied
from lanner.rpc.async_client import RpcClient, connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.security import Credentials
from lanner.services.interfaces.mqmp import QMCOMM
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO
from lanner.services.interfaces.mqqp import QM2QM, REMOTE_QM_GET_QMQM_SERVER_PORT
from lanner.services.management_client import action_arguments, check_status, get_info_arguments, get_info_values
from lanner.wire.property_ids import ManagementMachineProperty as Machine
from lanner.wire.propvariant import PropVariant
from lanner.wire.vartypes import VT
from tests.cli.conftest import free_address

HANDSHAKE_PORT = 2103
READ_PORT = 2105
OPERATOR = Credentials("operator", "secret")


@asynccontextmanager
async def started(path: Path, config: str = "") -> AsyncIterator[str]:
    """A whole daemon; its address."""
    address = free_address()
    file = path / "lanner.toml"
    file.write_text(config)
    settings = load_settings(file, {"data": path / "data", "name": "alpha", "bind": address})
    ready = asyncio.Event()
    served = service.Daemon(lambda: settings)
    served.runtime.users.add("operator", "secret", administrator=True)
    running = asyncio.ensure_future(served.run(lambda _: ready.set()))
    try:
        await ready.wait()
        yield address
    finally:
        served._stop.set()
        await running


def with_daemon(path: Path, work: Callable[[str], Awaitable[None]], config: str = "") -> None:
    async def run() -> None:
        async with started(path, config) as address:
            await work(address)

    asyncio.run(run())


async def type_of_machine(client: RpcClient) -> PropVariant:
    """Return its type as qmmgmt reports it, and check that it accepts an order."""
    bound = await client.bind(QMMGMT)
    asked = get_info_arguments(None, [Machine.TYPE])
    (value,) = get_info_values(await bound.call(R_QM_MGMT_GET_INFO, **asked))
    check_status(await bound.call(R_QM_MGMT_ACTION, **action_arguments(None, "TIDY")))
    return value


@pytest.mark.spec("MQMR-3.1.3-1", "MQMR-2.1-3")
@pytest.mark.parametrize("port", [HANDSHAKE_PORT, READ_PORT])
def test_it_is_managed_on_the_ports_of_the_other_interfaces(tmp_path: Path, port: int) -> None:
    """On 2103, where qmcomm is, clients find qmmgmt without the endpoint mapper."""

    async def work(address: str) -> None:
        async with await connect_tcp(address, port, credentials=OPERATOR) as client:
            await client.bind(QMCOMM)
            value = await type_of_machine(client)
            assert value.vt == VT.LPWSTR
        async with await connect_tcp(address, port) as client:
            with pytest.raises(AccessDenied):
                await type_of_machine(client)

    with_daemon(tmp_path, work)


@pytest.mark.spec("MQQP-3.1.3-1")
def test_it_serves_remote_reads(tmp_path: Path) -> None:
    async def work(address: str) -> None:
        async with await connect_tcp(address, READ_PORT) as client:
            bound = await client.bind(QM2QM)
            assert (await bound.call(REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=1))[RETURNS] == READ_PORT

    with_daemon(tmp_path, work)
