"""RemoteRead (MS-MQRR): what servers and clients should or may do."""

# What a method takes is told by its declaration.

from __future__ import annotations

import asyncio
import socket
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lanner.client._async.mqrr_reader import MqrrReader
from lanner.client._async.remote_reader import RemoteReader
from lanner.client.target import Target
from lanner.rpc.async_client import BoundInterface, RpcClient, connect_tcp
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS, Method
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqrr import REMOTE_READ
from lanner.services.listener import RpcSettings
from lanner.wire.format_name import parse
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from tests.cli.conftest import free_address
from tests.services.mqrr_peer import NO_TRANSACTION, RECEIVE, Site, fault, opening, served, serving
from tests.services.remote_read_peer import Fault
from tests.services.site import ADDRESS
from tests.services.test_mqrr_transactions import Unit
from tests.services.test_remote_read_ports import listening
from tests.statuses import MQ_ERROR_ACCESS_DENIED

NAME, T = r"DIRECT=OS:.\private$\q", "OS:.\\private$\\t"
OK = 0
PEEK_ACCESS, RECEIVE_ACCESS, MOVE_ACCESS = 0x20, 1, 4


# Where it is served
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.1-2")
def test_it_is_served_over_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")

    async def run() -> None:
        settings = RpcSettings(port=0, read_port=0, endpoint_mapper_port=0)
        async with (
            listening(tmp_path, "::1", settings) as listener,
            await connect_tcp("::1", listener.ports[0]) as client,
        ):
            bound = await client.bind(REMOTE_READ)
            assert (await bound.call(mqrr.R_GET_SERVER_PORT))[RETURNS] == listener.ports[0]

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.1.4.1-3")
def test_a_port_that_is_taken_is_passed_over_by_eleven(tmp_path: Path) -> None:
    async def run() -> None:
        address = free_address()
        with ExitStack() as stack:
            for port in (2103, 2114):
                stack.enter_context(socket.create_server((address, port)))
            async with (
                listening(tmp_path, address, RpcSettings(endpoint_mapper_port=0)),
                await connect_tcp(address, 2125) as client,
            ):
                bound = await client.bind(REMOTE_READ)
                assert (await bound.call(mqrr.R_GET_SERVER_PORT))[RETURNS] == 2125

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.2.4.1-6")
def test_the_client_finds_the_port_by_the_endpoint_mapper(tmp_path: Path) -> None:
    address = free_address()
    try:
        socket.create_server((address, 135)).close()
    except PermissionError:
        pytest.skip("only root may listen on port 135")

    async def run() -> None:
        # Nothing answers at the port of qmcomm.
        with socket.create_server((address, 2103)):
            async with (
                listening(tmp_path, address),
                await MqrrReader.connect(Target(address), client_id=uuid.uuid4()) as reader,
            ):
                await reader.check()

    asyncio.run(run())


# Rights
# --------------------------------------------------------------------------------------------------


def granting(rights: int) -> bytes:
    return SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl((allow(ANONYMOUS.sid, rights),))).pack()


@pytest.mark.spec("MQRR-2.1-9")
@served
async def test_the_right_to_the_journal_of_a_queue(site: Site) -> None:
    peer = await site.peer()
    for name, rights in (("messages", QueueAccess.RECEIVE_MESSAGE), ("journal", QueueAccess.RECEIVE_JOURNAL_MESSAGE)):
        site.create(name, rights=rights)
        queue_format = QueueFormat(3, 0x81, 0, f"OS:.\\private$\\{name}")
        opened = peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(queue_format, RECEIVE_ACCESS))
        if name == "journal":
            await opened
        else:
            assert await fault(opened) == MQ_ERROR_ACCESS_DENIED


@pytest.mark.spec("MQRR-2.1-10")
@pytest.mark.spec("MQRR-2.1-11")
@pytest.mark.parametrize(
    ("suffix", "needed"), [(0x82, 0x03), (0x83, 0x03), (0x81, 0xC0)], ids=["dead letters", "transactional", "journal"]
)
@served
async def test_the_rights_to_the_queues_of_the_computer(site: Site, suffix: int, needed: int) -> None:
    qm = site.runtime.engine.queue_manager
    queue_format = QueueFormat(4, suffix, 0, qm.identifier)
    peer = await site.peer()
    everything = 0x1000_00FF
    parts = [1 << bit for bit in range(8) if needed & 1 << bit]
    for rights in (0, everything & ~needed, *(needed & ~part for part in parts)):
        qm.security = granting(rights)
        opened = peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(queue_format, RECEIVE_ACCESS))
        assert await fault(opened) == MQ_ERROR_ACCESS_DENIED, hex(rights)
    qm.security = granting(needed)
    await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(queue_format, RECEIVE_ACCESS))


@pytest.mark.spec("MQRR-1.4-1/a queue that is open through one")
@pytest.mark.spec("MQRR-1.7-7")
@served
async def test_what_qm2qm_reads_can_be_opened_here(site: Site) -> None:
    site.runtime.engine.queue_manager.security = granting(0x1000_00FF)
    identifier = site.runtime.engine.queue_manager.identifier
    with site.runtime.lock:
        number = site.operations.find(".\\private$\\q").private_queue_number
    with site.runtime.change() as change:
        site.operations.create_queue(".\\pub", {"security": granting(QueueAccess.GENERIC_ALL)})
    change.wait()
    public = site.operations.find(".\\pub").identifier
    names = [
        NAME, r"DIRECT=OS:.\pub", f"PUBLIC={public}", f"PRIVATE={identifier}\\{number:x}",
        f"{NAME};JOURNAL", f"MACHINE={identifier};DEADLETTER",
    ]  # fmt: skip
    target = Target(ADDRESS, port=site.port)
    async with (
        await RemoteReader.connect(target, client_id=uuid.uuid4()) as old,
        await MqrrReader.connect(target, client_id=uuid.uuid4()) as new,
    ):
        for name in names:
            first, second = await old.open(parse(name)), await new.open(parse(name))
            assert (first.is_open, second.is_open) == (True, True), name
            await first.close()
            await second.close()


# Callers without authentication, and below the level that the server demands
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.2-25")
@pytest.mark.spec("MQRR-3.1.4.2-27")
@pytest.mark.spec("MQRR-3.1.4.2-35")
@pytest.mark.spec("MQRR-5.1-4")
@pytest.mark.spec("MQRR-5.1-6")
@pytest.mark.parametrize("workgroup", [0, 1])
def test_callers_without_authentication(tmp_path: Path, workgroup: int) -> None:
    """`rpc.authentication_level = "none"` lets them in, to what ANONYMOUS LOGON may open."""

    async def status_of(site: Site, name: str, access: int) -> int:
        peer = await site.peer()
        name = f"OS:.\\private$\\{name}"
        try:
            if access == MOVE_ACCESS:
                await site.opened_for_move(f"{name};sub", peer, f_workgroup=workgroup)
            else:
                await site.opened(name, access, peer=peer, f_workgroup=workgroup)
        except Fault as error:
            return error.status
        return OK

    async def run() -> None:
        allowed = {("all", PEEK_ACCESS), ("all", RECEIVE_ACCESS), ("all", MOVE_ACCESS), ("peek", PEEK_ACCESS)}
        for level in (AuthLevel.NONE, AuthLevel.PKT_INTEGRITY):
            async with serving(tmp_path / level.name, level=level) as site:
                site.create("all")
                site.create("peek", rights=QueueAccess.PEEK_MESSAGE)
                site.create("none", sid=SYSTEM.sid)
                for name in ("all", "peek", "none"):
                    for access in (PEEK_ACCESS, RECEIVE_ACCESS, MOVE_ACCESS):
                        is_in = level is AuthLevel.NONE and (name, access) in allowed
                        wanted = OK if is_in else MQ_ERROR_ACCESS_DENIED
                        assert await status_of(site, name, access) == wanted, (level, name, access)

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.1.4.2-23")
@pytest.mark.spec("MQRR-5.1-1")
@pytest.mark.spec("MQRR-5.1-2")
@pytest.mark.parametrize("workgroup", [0, 1])
@pytest.mark.parametrize("level", [AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY])
def test_a_user_below_the_level_opens_and_enlists_nothing(tmp_path: Path, level: AuthLevel, workgroup: int) -> None:
    """The owner of the queue is refused too, with a token that is accepted at privacy."""

    async def run() -> None:
        async with serving(tmp_path, level=AuthLevel.PKT_INTEGRITY) as site:
            site.create("t", sid=site.add_user("alice"), transactional=True)
            unit = Unit(site)
            credentials = Credentials("alice", "alice-secret", "")

            async def statuses(level: AuthLevel) -> list[int]:
                found = []
                async with await connect_tcp(ADDRESS, site.port, credentials=credentials, level=level) as client:
                    bound = await client.bind(REMOTE_READ)
                    assert (await bound.call(mqrr.R_GET_SERVER_PORT))[RETURNS] == site.port
                    for method, name, access in (
                        (mqrr.R_OPEN_QUEUE, QueueFormat(3, 0, 0, T), RECEIVE_ACCESS),
                        (mqrr.R_OPEN_QUEUE_FOR_MOVE, QueueFormat(8, 0, 0, f"{T};sub"), MOVE_ACCESS),
                    ):
                        arguments = opening(name, access) | {"f_workgroup": workgroup}
                        try:
                            await bound.call(method, **arguments)
                            found.append(OK)
                        except RpcFault as error:
                            found.append(error.status)
                    results = await bound.call(
                        mqrr.R_QM_ENLIST_REMOTE_TRANSACTION,
                        p_transaction_id=unit.uow,
                        cb_propagation_token=len(unit.token),
                        pb_propagation_token=unit.token,
                        p_queue_format=QueueFormat(3, 0, 0, T),
                    )
                    return [*found, results[RETURNS]]

            assert await statuses(level) == [MQ_ERROR_ACCESS_DENIED] * 3
            engine = site.runtime.engine
            assert not engine.opening.descriptors
            assert not engine.queue_manager.transaction_collection
            assert await statuses(AuthLevel.PKT_PRIVACY) == [OK] * 3

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.1.4.2-28")
@pytest.mark.spec("MQRR-5.1-7")
def test_a_handle_over_a_connection_below_the_level(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, level=AuthLevel.PKT_INTEGRITY) as site:
            site.create("t", sid=site.add_user("alice"), transactional=True)
            credentials = Credentials("alice", "alice-secret", "")

            async def bound_at(level: AuthLevel, group: int = 0) -> BoundInterface:
                client = await connect_tcp(
                    ADDRESS, site.port, credentials=credentials, level=level, assoc_group_id=group
                )
                clients.append(client)
                return await client.bind(REMOTE_READ)

            clients: list[RpcClient] = []
            private = await bound_at(AuthLevel.PKT_PRIVACY)
            signed = await bound_at(AuthLevel.PKT_INTEGRITY, clients[0].assoc_group_id)
            again = await bound_at(AuthLevel.PKT_PRIVACY, clients[0].assoc_group_id)
            one, two = site.send(b"one", b"two", queue="t")
            handle = (await private.call(mqrr.R_OPEN_QUEUE, **opening(QueueFormat(3, 0, 0, T))))["pph_context"]
            there = await private.call(
                mqrr.R_OPEN_QUEUE_FOR_MOVE, **opening(QueueFormat(8, 0, 0, f"{T};sub"), MOVE_ACCESS)
            )
            read = {
                "ph_context": handle, "lookup_id": 0, "h_cursor": 0, "ul_action": RECEIVE, "ul_timeout": 0,
                "dw_max_body_size": 0xFFFF_FFFF, "dw_max_compound_message_size": 0, "dw_request_id": 1,
            }  # fmt: skip
            ending = {"ph_context": handle, "dw_ack": 2, "dw_request_id": 1}
            started = await private.call(mqrr.R_START_RECEIVE, **read)
            assert started[RETURNS] == OK
            calls: list[tuple[Method, dict[str, Any]]] = [
                (mqrr.R_CREATE_CURSOR, {"ph_context": handle}),
                (mqrr.R_PURGE_QUEUE, {"ph_context": handle}),
                (mqrr.R_START_RECEIVE, read | {"dw_request_id": 2}),
                (mqrr.R_CANCEL_RECEIVE, {"ph_context": handle, "dw_request_id": 1}),
                (mqrr.R_END_RECEIVE, ending),
                (mqrr.R_MOVE_MESSAGE, {
                    "ph_context_from": handle, "ull_context_to": there["p_move_context"], "lookup_id": two,
                    "p_transaction_id": NO_TRANSACTION,
                }),
                (mqrr.R_START_TRANSACTIONAL_RECEIVE,
                 read | {"dw_request_id": 2, "p_transaction_id": NO_TRANSACTION}),
                (mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, {"ph_context": handle, "lookup_id": one, "us_class": 0}),
                (mqrr.R_END_TRANSACTIONAL_RECEIVE, ending),
            ]  # fmt: skip
            for method, arguments in calls:
                assert (await signed.call(method, **arguments))[RETURNS] == MQ_ERROR_ACCESS_DENIED, method.name
            assert site.lookup_ids("t") == [one, two]
            # Nothing has ended the receive, and the same user may end it over another connection.
            assert (await again.call(mqrr.R_END_RECEIVE, **ending))[RETURNS] == OK
            assert site.lookup_ids("t") == [two]
            for client in clients:
                await client.close()

    asyncio.run(run())
