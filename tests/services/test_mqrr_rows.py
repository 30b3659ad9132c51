"""RemoteRead: ports, layouts, names, acknowledgments, what a queue shares with other readers (MS-MQRR 1.3-3.1, 4)."""

# What a method takes is told by its declaration.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import struct
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lanner.aio
from lanner.client._async.connections import mapped_port
from lanner.client._async.remote_reader import RemoteReader
from lanner.client.message import Message
from lanner.client.target import Target
from lanner.daemon.service import Daemon
from lanner.daemon.settings import load_settings
from lanner.directory import EmbeddedDirectory
from lanner.model.enums import PositionState, QueueAccessType
from lanner.model.errors import InvalidParameter, IOTimeout, StatusError
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import Syntax
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.services import listener
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.interfaces.mqrr import REMOTE_READ
from lanner.services.mqrr import RemoteReadService
from lanner.wire.format_name import PrivateFormatName, parse
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from tests import statuses
from tests.cli.conftest import free_address
from tests.services import test_daemon
from tests.services.mqrr_peer import FOREVER, PEEK, PEEK_NEXT, RECEIVE, Opened, Site, fault, opening, served, serving
from tests.services.remote_read_peer import NDR20, NDR64, Peer, context
from tests.services.site import ADDRESS, until
from tests.services.test_mqrr_transactions import BOTH_ACKS, LOOKUP_PEEK, LOOKUP_RECEIVE, OK, Scene, Unit
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    NCA_FAULT_CONTEXT_MISMATCH,
    STATUS_INVALID_PARAMETER,
)

Q = "OS:.\\private$\\q"
BOTH = pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])


def plain(site: Site, q: Opened, **attributes: Any) -> Scene:
    """The queue `q`, and one for acknowledgments."""
    site.create("admin")
    if attributes:
        site.set("q", **attributes)
    return Scene(site, q, Unit(site))


# The whole daemon -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.1-1")
@pytest.mark.spec("MQRR-2.1-4")
@pytest.mark.spec("MQRR-2.1-5")
@pytest.mark.spec("MQRR-3.1.3-1")
@pytest.mark.spec("MQRR-3.1.4.1-2")
@pytest.mark.spec("MQRR-3.1.4.1-4")
@pytest.mark.spec("MQRR-1.4-1")
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
        with pytest.raises(InvalidParameter, match="cancel_timeout"):
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


# Layouts --------------------------------------------------------------------------------------------------------------


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


# Statuses -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-1.8-1")
def test_statuses_are_published_ones() -> None:
    published = {value for name, value in vars(statuses).items() if name.isupper() and isinstance(value, int)}
    invented = [status for status in StatusError.by_status if status not in published]
    assert all(status & 0x2000_0000 for status in invented), [hex(status) for status in invented]


@pytest.mark.spec("MQRR-2.2.1-2")
@pytest.mark.spec("MQRR-2.2.1-3")
@served
async def test_failures_have_the_severity_bit(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    to = await site.opened_for_move(Q, q.peer)
    failures = {
        "close": (await q.peer.call(REMOTE_READ, mqrr.R_CLOSE_QUEUE, pph_context=bytes(20)))[RETURNS],
        "close cursor": await q.close_cursor(77),
        "purge": await to.purge(),
        "read": (await q.read(0x1234)).status,
        "read in a transaction": (await q.read(transaction=b"x" * 16)).status,
        "cancel": await q.cancel(9),
        "end": await q.end(9),
        "end in a transaction": await q.end(9, 2, mqrr.R_END_TRANSACTIONAL_RECEIVE),
        "move": await q.move(to.move_context, 1),
        "reject": await q.status(mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, lookup_id=5, us_class=1),
    }
    site.delete("q")
    failures["create cursor"] = await q.status(mqrr.R_CREATE_CURSOR)
    assert all(status & 0x8000_0000 for status in failures.values()), failures
    assert failures["close"] == failures["close cursor"] == failures["end"] == MQ_ERROR_INVALID_HANDLE


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.2.3-1")
@pytest.mark.spec("MQRR-2.2.3-20")
@pytest.mark.spec("MQRR-3.1.4.11-7")
@pytest.mark.spec("MQRR-3.1.4.11-10")
@served
async def test_more_names_of_queues(site: Site) -> None:
    engine = site.runtime.engine
    qm = engine.queue_manager
    assert isinstance(engine.directory, EmbeddedDirectory)
    with site.runtime.change() as change:
        public = site.operations.create_queue(".\\public", {})
    change.wait()
    public.security = site.operations.find(".\\private$\\q").security
    number = site.operations.find(".\\private$\\q").private_queue_number
    peer = await site.peer()
    names = {
        QueueFormat(1, 0, 0, public.identifier): "public",
        QueueFormat(2, 0, 0, MessageIdentifier(qm.identifier, number)): "q",
        QueueFormat(3, 0, 0, "OS:ALPHA\\private$\\q"): "q",
        QueueFormat(3, 0, 0, "TCP:127.0.0.1\\private$\\q"): "q",
        QueueFormat(3, 0x82, 0, "OS:ALPHA\\SYSTEM$"): "deadletter",
        QueueFormat(3, 0x83, 0, "OS:ALPHA\\SYSTEM$"): "deadxact",
    }
    qm.security = SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl((allow(ANONYMOUS.sid, 0x100000FF),))).pack()
    for queue_format, wanted in names.items():
        methods = [
            (mqrr.R_OPEN_QUEUE, 1),
            *([] if queue_format.m_suffix_and_flags else [(mqrr.R_OPEN_QUEUE_FOR_MOVE, 4)]),
        ]
        for method, access in methods:
            engine.opening.descriptors.clear()
            await peer.call(REMOTE_READ, method, **opening(queue_format, access))
            (descriptor,) = engine.opening.descriptors.values()
            assert descriptor.queue is not None
            assert descriptor.queue.pathname.lower().endswith(wanted), descriptor.queue.pathname
    await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE_FOR_MOVE, **opening(QueueFormat(8, 0, 0, f"{Q};sub"), 4))


@pytest.mark.spec("MQRR-3.1.4.2-33")
@pytest.mark.spec("MQRR-3.1.4.2-34")
@served
async def test_subqueues_are_made(site: Site) -> None:
    peer = await site.peer()

    def subqueues() -> list[str]:
        with site.runtime.lock:
            return sorted(site.operations.find(".\\private$\\q").subqueues)

    await site.opened(f"{Q};one", peer=peer)
    await site.opened(f"{Q};two", 0x20, peer=peer)
    assert subqueues() == ["one", "two"]
    for name in (f"{Q};journal;a", f"{Q};a;b", "OS:.\\system$;deadletter;a"):
        for refused in (site.opened(name, peer=peer), site.opened_for_move(name, peer)):
            assert await fault(refused) in (MQ_ERROR_QUEUE_NOT_FOUND, MQ_ERROR_INVALID_PARAMETER)
    assert subqueues() == ["one", "two"]


@pytest.mark.spec("MQRR-3.1.4.11-15")
@pytest.mark.spec("MQRR-3.1.4.11-16")
@pytest.mark.spec("MQRR-3.1.4.11-17")
@pytest.mark.spec("MQRR-3.1.4.11-24")
@pytest.mark.spec("MQRR-5.2-1")
@served
async def test_what_the_mover_says_of_itself_changes_nothing(site: Site) -> None:
    peer = await site.peer()
    zero = uuid.UUID(int=0)
    changes: list[dict[str, Any]] = [
        {"p_client_id": zero},
        {"p_client_id": zero, "f_non_routing_server": 0},
        {"f_non_routing_server": 0},
        {"f_workgroup": 0},
        {"f_workgroup": 1},
        *({"major": a, "minor": b, "build_number": c} for a, b, c in ((5, 2, 3790), (6, 0, 1), (6, 1, 9), (0, 0, 0))),
        *({} for _ in range(100)),
    ]
    for change in changes:
        assert (await site.opened_for_move(Q, peer, **change)).move_context
    site.create("closed", rights=0)
    for change in changes[:9]:
        assert await fault(site.opened_for_move("OS:.\\private$\\closed", peer, **change)) == MQ_ERROR_ACCESS_DENIED
        assert await fault(site.opened("OS:.\\private$\\closed", peer=peer, **change)) == MQ_ERROR_ACCESS_DENIED


# Handles --------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.2.4.1-1")
@served
async def test_one_handle_serves_both_kinds_of_methods(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    cursor = await q.cursor()
    assert await q.close_cursor(cursor) == OK
    got = await q.read()
    assert await q.cancel(got.request_id) & 0x8000_0000
    assert await q.end(got) == OK
    assert await q.purge() == OK


@pytest.mark.spec("MQRR-2.2.4.2-1")
@served
async def test_one_close_acts(site: Site) -> None:
    q = await site.opened()
    sister = replace(q, peer=await site.peer(group=q.peer.group))
    outcomes = await asyncio.gather(q.close(), sister.close(), return_exceptions=True)
    refused = [one for one in outcomes if one != OK]
    assert len(refused) == 1
    assert getattr(refused[0], "status", 0) == NCA_FAULT_CONTEXT_MISMATCH
    assert (await q.peer.call(REMOTE_READ, mqrr.R_GET_SERVER_PORT))[RETURNS] == site.port


@pytest.mark.spec("MQRR-3.1.1.2-1")
@pytest.mark.spec("MQRR-3.1.1.3-1")
@served
async def test_requests_are_known_by_number_and_handle(site: Site) -> None:
    site.send(b"one", b"two", b"three")
    q, other = await site.opened(), await site.opened()
    first = await q.read(dw_request_id=1)
    second = await other.read(dw_request_id=1)
    third = await q.read(dw_request_id=2)
    assert [one.body for one in (first, second, third)] == [b"one", b"two", b"three"]
    assert await q.end(1) == OK
    assert (await (await site.opened()).read()).status == MQ_ERROR_IO_TIMEOUT, "two and three are locked"
    assert await other.end(1, 1) == OK
    assert await q.end(2) == OK
    assert (await other.read()).body == b"two"


# Queues are shared ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.1.1-1")
@pytest.mark.spec("MQRR-3.1.1.1-2")
@pytest.mark.spec("MQRR-1.3.1-1")
@served
async def test_the_queue_is_the_one_of_every_protocol(site: Site) -> None:
    q = await site.opened()
    waiting = q.begin(RECEIVE, FOREVER)
    await q.cursor()
    ids = site.send(b"one", b"two", b"three")
    assert len(set(ids)) == 3
    assert (await waiting).body == b"one"
    old = await RemoteReader.connect(Target(ADDRESS, port=site.port), client_id=uuid.uuid4())
    async with old:
        there = await old.open(parse(r"DIRECT=OS:.\private$\q"))
        assert (await there.receive(0)).body == b"two"
        got = await q.read()
        assert got.body == b"three"
        with pytest.raises(IOTimeout):
            await there.receive(0)
        assert await q.end(got) == OK


@pytest.mark.spec("MQRR-3.1.1.4-1")
def test_sections_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async def read(*, make: bool) -> list[Any]:
        async with serving(tmp_path, make=make) as site:
            if make:
                site.send(b"0123456789", label="label", extension=b"ext")
            q = await site.opened()
            return [(await q.read(PEEK, dw_max_body_size=size)).sections for size in (0, 5, 9, 10)]

    before = asyncio.run(read(make=True))
    assert asyncio.run(read(make=False)) == before


@pytest.mark.spec("MQRR-3.1.4.6-7")
@served
async def test_a_purge_is_acknowledged(site: Site) -> None:
    q = await site.opened()
    s = plain(site, q)
    s.send(b"one", acknowledge=BOTH_ACKS, queue="q")
    s.send(b"two", queue="q")
    assert await q.purge() == OK
    assert s.acknowledgments() == [0xC001]


@pytest.mark.spec("MQRR-3.1.4.9-7")
@pytest.mark.spec("MQRR-3.1.4.9-8")
@pytest.mark.spec("MQRR-3.1.4.9-21")
@pytest.mark.spec("MQRR-3.1.4.9-22")
@served
async def test_ends_acknowledge_and_journal(site: Site) -> None:
    q = await site.opened()
    s = plain(site, q, journaling=True)
    s.send(b"one", acknowledge=BOTH_ACKS, queue="q")
    got = await q.read()
    assert await q.end(got, 1) == OK
    assert (s.acknowledgments(), site.count("q;journal")) == ([], 0)
    got = await q.read()
    assert (s.acknowledgments(), site.count("q;journal")) == ([], 0)
    assert await q.end(got) == OK
    assert (s.acknowledgments(), site.count("q;journal")) == ([0x4000], 1)


@pytest.mark.spec("MQRR-3.1.4.9-20")
@served
async def test_what_was_purged_and_is_taken_counts_as_received(site: Site) -> None:
    q = await site.opened()
    s = plain(site, q)
    s.send(b"one", acknowledge=BOTH_ACKS, queue="q")
    got = await q.read()
    assert await (await site.opened()).purge() == OK
    assert await q.end(got) == OK
    assert s.acknowledgments() == [0x4000]


@pytest.mark.spec("MQRR-3.1.4.9-12")
@pytest.mark.spec("MQRR-3.1.4.9-14")
@pytest.mark.parametrize(
    ("state", "status"),
    [
        (PositionState.DELETED, MQ_ERROR_MESSAGE_NOT_FOUND),
        (PositionState.AVAILABLE, MQ_ERROR_TRANSACTION_SEQUENCE),
    ],
)
@served
async def test_ends_of_messages_that_are_not_held(site: Site, state: PositionState, status: int) -> None:
    (one,) = site.send(b"one")
    q = await site.opened()
    got = await q.read()
    (position,) = site.operations.find(".\\private$\\q").held_positions.values()
    position.state = state
    assert await q.end(got) == status
    assert site.lookup_ids() == [one]
    position.state = PositionState.LOCKED


@pytest.mark.spec("MQRR-3.1.4.7-42")
@served
async def test_a_lookup_of_what_was_received_under_a_cursor(site: Site) -> None:
    (one,) = site.send(b"one")
    q, other = await site.opened(), await site.opened()
    cursor = await other.cursor()
    assert (await other.read(PEEK, cursor=cursor)).body == b"one"
    assert await q.end(await q.read()) == OK
    for action in (LOOKUP_PEEK, LOOKUP_RECEIVE):
        assert (await q.read(action, lookup_id=one)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED


# Moves ----------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.10-6")
@pytest.mark.spec("MQRR-3.1.4.10-7")
@pytest.mark.spec("MQRR-3.1.4.10-13")
@pytest.mark.spec("MQRR-3.1.4.10-15")
@pytest.mark.spec("MQRR-3.1.4.10-33")
@served
async def test_moves_between_the_parts_of_a_queue(site: Site) -> None:
    site.create("far")
    (one,) = site.send(b"one")
    q = await site.opened()
    peer = q.peer
    a = await site.opened_for_move(f"{Q};a", peer)
    alien = await site.opened_for_move("OS:.\\private$\\far;a", peer)
    assert await q.move(alien.move_context, one) == STATUS_INVALID_PARAMETER
    assert await q.move(int.from_bytes(q.context[4:12], "little"), one) == MQ_ERROR_INVALID_HANDLE
    sister = replace(q, peer=await site.peer(group=peer.group))
    assert await sister.move(a.move_context, one) == OK
    source = await site.opened("TCP:127.0.0.1\\private$\\q;a", peer=peer)
    b = await site.opened_for_move("OS:ALPHA\\private$\\q;b", peer)
    there = await site.opened(f"{Q};b")
    waiting = there.begin(RECEIVE, FOREVER)
    await there.cursor()
    assert await source.move(b.move_context, one) == OK
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQRR-3.1.6.2-6")
@served
async def test_the_number_of_a_destination_ends_with_its_association(site: Site) -> None:
    (one,) = site.send(b"one")
    q = await site.opened()
    gone = await site.opened_for_move(f"{Q};sub", await site.peer())
    gone.peer.abort()
    await until(lambda: len(site.runtime.engine.opening.descriptors) == 1)
    assert await q.move(gone.move_context, one) == MQ_ERROR_INVALID_HANDLE
    assert site.lookup_ids() == [one]


# Packets --------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.2.5.1-11")
@served
async def test_the_address_of_a_private_name_stays(site: Site) -> None:
    qm = site.runtime.engine.queue_manager
    number = site.operations.find(".\\private$\\q").private_queue_number
    with site.runtime.change() as change:
        opened = site.operations.open(PrivateFormatName(qm.identifier, number), QueueAccessType.SEND)
        site.operations.send(opened, Message(body=b"one").properties(site.operations.names), None)
        site.operations.close(opened)
    change.wait()
    got = await (await site.opened()).read(PEEK)
    assert got.packet[32:48] == qm.identifier.bytes_le
