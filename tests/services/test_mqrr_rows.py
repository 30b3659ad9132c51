"""RemoteRead (MS-MQRR 1.3-3.1, 4).

Covered: ports, layouts, names, acknowledgments, and what a queue shares with other readers.
"""

# What a method takes is told by its declaration.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

import lanner.aio
from lanner.client._async.connections import mapped_port
from lanner.client._async.msmq_connection import MsmqConnection
from lanner.client._async.remote_reader import RemoteReader
from lanner.client.target import Target
from lanner.daemon.service import Daemon
from lanner.daemon.settings import SettingsError, load_settings
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.endpoint_mapper import EPMAPPER, EPMAPPER_PORT, Tower, Twr
from lanner.rpc.interface import RETURNS, Interface
from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.rpc.pdu import NDR20 as SYNTAX
from lanner.rpc.pdu import AuthLevel, AuthType, SyntaxId
from lanner.services import listener
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.interfaces.mqrr import REMOTE_READ
from lanner.services.mqrr import RemoteReadService
from tests.cli.conftest import free_address
from tests.services import test_daemon
from tests.services.mqrr_peer import PEEK, PEEK_NEXT, RECEIVE, Opened, Site, opening, served
from tests.services.remote_read_peer import NDR20, NDR64, Peer, context
from tests.services.site import ADDRESS
from tests.services.test_mqrr_transactions import LOOKUP_PEEK, OK, Scene, Unit
from tests.statuses import (
    MQ_ERROR_IO_TIMEOUT,
)

Q = "OS:.\\private$\\q"
BOTH = pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])


def plain(site: Site, q: Opened, **attributes: Any) -> Scene:
    """The queue `q`, and one for acknowledgments."""
    site.create("admin")
    if attributes:
        site.set("q", **attributes)
    return Scene(site, q, Unit(site))


# The whole daemon
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.1-1")
@pytest.mark.spec("MQRR-2.1-4")
@pytest.mark.spec("MQRR-2.1-5")
@pytest.mark.spec("MQRR-3.1.3-1")
@pytest.mark.spec("MQRR-3.1.4.1-2")
@pytest.mark.spec("MQRR-3.1.4.1-4")
@pytest.mark.spec("MQRR-1.4-1/both are registered")
def test_a_daemon_serves_it_where_qmcomm_is(tmp_path: Path) -> None:
    async def work(address: str) -> None:
        for _ in range(2):
            async with await connect_tcp(address, 2103) as client:
                for interface in (QMCOMM, QMCOMM2, QM2QM):
                    await client.bind(interface)
                bound = await client.bind(REMOTE_READ)
                told = [(await bound.call(mqrr.R_GET_SERVER_PORT))[RETURNS] for _ in range(3)]
                assert told == [2103] * 3

    test_daemon.with_daemon(tmp_path, work)


@pytest.mark.spec("MQRR-2.1-3")
def test_the_endpoint_mapper_names_its_port(tmp_path: Path) -> None:
    async def work(address: str) -> None:
        port = await mapped_port(address, REMOTE_READ)
        assert port
        async with await connect_tcp(address, port) as client:
            await client.bind(REMOTE_READ)

    test_daemon.with_daemon(tmp_path, work)


@pytest.mark.spec("MQRR-1.7-6")
def test_it_can_be_switched_off(tmp_path: Path) -> None:
    """The endpoint mapper then does not know it, and clients read by MS-MQQP."""

    async def status(address: str, interface: Interface) -> int:
        async with await connect_tcp(address, EPMAPPER_PORT) as client:
            bound = await client.bind(EPMAPPER)
            wanted = Twr.of(Tower(SyntaxId(interface.uuid, *interface.version), SYNTAX, 0))
            call = bound.call(
                EPMAPPER.by_name["ept_map"],
                obj=uuid.UUID(int=0),
                map_tower=wanted,
                entry_handle=NULL_HANDLE,
                max_towers=8,
            )
            found: int = (await call)["status"]
            return found

    async def work(address: str) -> None:
        assert await status(address, QM2QM) == 0
        assert await status(address, REMOTE_READ) == 0x16C9_A0D6
        async with await lanner.aio.connect(address, "operator", "secret") as qm:
            await (await qm.create_queue("q")).send("hello")
        connection = await MsmqConnection.make(Target(address, credentials=test_daemon.OPERATOR))
        assert isinstance(connection.reader, RemoteReader)
        await connection.close()

    test_daemon.with_daemon(tmp_path, work, "[rpc]\nmqrr = false\n")


@pytest.mark.spec("MQRR-1.7-3")
@pytest.mark.spec("MQRR-1.7-5")
@pytest.mark.spec("MQRR-4.1-1")
@pytest.mark.parametrize("mechanism", [AuthType.WINNT, AuthType.GSS_NEGOTIATE])
def test_the_purge_of_the_document(tmp_path: Path, mechanism: AuthType) -> None:
    async def work(address: str) -> None:
        async with await lanner.aio.connect(address, "operator", "secret") as qm:
            queue = await qm.create_queue("q")
            await queue.send_many([b"one", b"two"])
            assert await queue.count() == 2
            async with await connect_tcp(address, 2103) as client:
                asked = await (await client.bind(REMOTE_READ)).call(mqrr.R_GET_SERVER_PORT)
            options: dict[str, Any] = {"auth_type": mechanism, "level": AuthLevel.PKT_PRIVACY}
            async with await connect_tcp(
                address, asked[RETURNS], credentials=test_daemon.OPERATOR, **options
            ) as client:
                bound = await client.bind(REMOTE_READ)
                opened = await bound.call(mqrr.R_OPEN_QUEUE, **opening(QueueFormat(3, 0, 0, Q)))
                handle = opened["pph_context"]
                assert (await bound.call(mqrr.R_PURGE_QUEUE, ph_context=handle))[RETURNS] == OK
                assert (await bound.call(mqrr.R_CLOSE_QUEUE, pph_context=handle))[RETURNS] == OK
            assert await queue.count() == 0

    test_daemon.with_daemon(tmp_path, work)


@pytest.mark.spec("MQRR-4.2-1")
@served
async def test_the_receive_of_the_document(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    got = await q.read(RECEIVE, dw_request_id=4711)
    assert got.body == b"one"
    assert await q.end(4711, 2) == OK
    assert site.count() == 0


@pytest.mark.spec("MQRR-3.1.4.1-5")
@served
async def test_a_port_that_is_not_known_is_0(site: Site) -> None:
    site.ports.ip_handshake = 0
    assert (await (await site.peer()).call(REMOTE_READ, mqrr.R_GET_SERVER_PORT))[RETURNS] == 0


@pytest.mark.spec("MQRR-3.1.2.2-3")
@pytest.mark.spec("MQRR-3.1.2.2-4")
def test_the_cleanup_time_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    class Watched(RemoteReadService):
        def __init__(self, *arguments: Any) -> None:
            seen.append(arguments[3])
            super().__init__(*arguments)

    monkeypatch.setattr(listener, "RemoteReadService", Watched)
    config = tmp_path / "lanner.toml"
    for minutes in ("1", "0", "-1"):
        config.write_text(f"[rpc]\ncancel_timeout = {minutes}\n")
        if minutes == "1":
            assert load_settings(config, {"data": tmp_path / "data"}).rpc.cancel_timeout == 1
            continue
        with pytest.raises(SettingsError, match="cancel_timeout"):
            load_settings(config, {"data": tmp_path / "data"})
    config.write_text("[rpc]\ncancel_timeout = 1\n")

    async def run() -> None:
        settings = load_settings(config, {"data": tmp_path / "data", "bind": free_address()})
        daemon = Daemon(lambda: settings)
        ready = asyncio.Event()
        running = asyncio.ensure_future(daemon.run(lambda _: ready.set()))
        await ready.wait()
        daemon._stop.set()
        await running

    asyncio.run(run())
    assert seen == [60]


# Layouts
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.2.3-13")
@pytest.mark.spec("MQRR-2.2.3-19")
@pytest.mark.spec("MQRR-3.1.4.2-2")
@pytest.mark.spec("MQRR-2.2.2-1")
@pytest.mark.spec("MQRR-2.2.4-1")
@BOTH
@served
async def test_the_octets_of_an_open(site: Site, syntax: Syntax) -> None:
    peer = await site.peer(syntax=syntax)
    characters = Q.encode("utf-16-le") + bytes(2)
    size = len(characters) // 2
    client = uuid.uuid4()
    if syntax is Syntax.NDR20:
        stub = struct.pack("<BBHB3xI", 3, 0, 0, 3, 0x20000) + struct.pack("<III", size, 0, size) + characters
    else:
        stub = struct.pack("<BBH4xB7xQ", 3, 0, 0, 3, 0x20000) + struct.pack("<QQQ", size, 0, size) + characters
    stub += bytes(-len(stub) % 4) + struct.pack("<II", 1, 0) + client.bytes_le
    stub += struct.pack("<IBBHI", 1, 6, 1, 7601, 1)
    answer = await peer.raw(REMOTE_READ, 2, stub)
    assert len(answer) == 20
    assert answer != bytes(20)
    assert (await Opened(peer, answer).read()).status == MQ_ERROR_IO_TIMEOUT


@pytest.mark.spec("MQRR-3.1.4-3")
@BOTH
@served
async def test_no_answer_has_a_count_without_sections(site: Site, syntax: Syntax) -> None:
    site.send(b"", b"x" * 10)
    q = await site.opened(peer=await site.peer(syntax=syntax))
    for action, more in (
        (PEEK, {}),
        (PEEK, {"dw_max_body_size": 0}),
        (RECEIVE, {"dw_max_body_size": 5}),
        (RECEIVE, {"dw_max_body_size": 5}),
        (RECEIVE, {}),
        (PEEK_NEXT, {}),
        (LOOKUP_PEEK, {"lookup_id": 9}),
    ):
        got = await q.read(action, **more)
        # `read` compares the count with the sections.
        assert bool(got.sections) is (got.status == OK)
        assert all(len(one.p_section_buffer or b"") == one.section_size for one in got.sections)


@pytest.mark.spec("MQRR-2.2-4")
@served
async def test_the_negotiation_of_features(site: Site) -> None:
    peer = Peer(*await asyncio.open_connection(ADDRESS, site.port))
    features = uuid.UUID("6cb71c2c-9812-4540-0300-000000000000").bytes_le + struct.pack("<I", 1)
    try:
        results = await peer.bind(
            [context(0, REMOTE_READ, NDR20), context(1, REMOTE_READ, NDR64), context(2, REMOTE_READ, features)]
        )
    finally:
        await peer.close()
    assert results[2][0] == 3
    assert results[2][2] == bytes(20)
    assert 0 in (results[0][0], results[1][0])
