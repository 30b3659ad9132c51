"""RemoteRead (MS-MQRR 2.2, 3.1).

Covered: state shared with other readers, subqueues, acknowledgments, moves, and the origins of
messages.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lanner
import lanner.aio
from lanner.model.enums import PositionState, QueueAccessType
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS, Method
from lanner.rpc.ndr import NULL_HANDLE
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqrr import REMOTE_READ
from lanner.wire.extension_headers import SubqueueHeader
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from tests.cli.conftest import free_address
from tests.services import test_daemon
from tests.services.mqrr_peer import FOREVER, PEEK, RECEIVE, Site, fault, opening, served, serving
from tests.services.remote_read_peer import Fault
from tests.services.site import until
from tests.services.test_mqrr_transactions import OK
from tests.statuses import (
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    STATUS_INVALID_PARAMETER,
)

Q = "OS:.\\private$\\q"
LOOKUP_PEEK, LOOKUP_RECEIVE = 0x40000010, 0x40000020
ACK, NACK = 2, 1
FULL_RECEIVE = 0x0E  # acknowledge a receive, positively or negatively
CLASS_RECEIVED, CLASS_PURGED = 0x4000, 0xC001


def local_read(site: Site, queue: str = "q") -> bytes | None:
    """Receive a message as a local program would; return None if there is none."""
    with site.runtime.change() as change:
        opened = site.operations.open(site.name_of(queue), QueueAccessType.RECEIVE)
        found = site.operations.receive_ready(opened, 1, 1 << 20, None)
        body = None
        if found:
            assert opened.queue is not None
            record = site.runtime.store.get(opened.queue.number, found[0].position.lookup_id)
            assert record is not None
            body = bytes(Message(record.packet).body)
            site.operations.remove_all(found)
        site.operations.close(opened)
    change.wait()
    return body


def classes(site: Site) -> list[int]:
    """The classes of the acknowledgments that have come."""
    found = []
    with site.runtime.lock:
        number = site.operations.find(".\\private$\\admin").number
    for lookup_id in site.lookup_ids("admin"):
        record = site.runtime.store.get(number, lookup_id)
        assert record is not None
        found.append(Message(record.packet).message_class)
    return found


@pytest.mark.spec("MQRR-1.3.1-1")
@served
async def test_lookup_identifiers_are_the_messages_own(site: Site) -> None:
    ids = site.send(*[b"x"] * 20) + site.send(b"urgent", priority=7)
    assert len(set(ids)) == 21
    assert all(0 < one < 1 << 64 for one in ids)
    q = await site.opened()
    for one in ids:
        assert (await q.read(LOOKUP_PEEK, lookup_id=one)).lookup_id == one


@pytest.mark.spec("MQRR-2.2.1-2")
@pytest.mark.spec("MQRR-2.2.1-3")
@served
async def test_failures_have_the_severity_bit(site: Site) -> None:
    site.create("doomed")
    q = await site.opened()
    sub = await site.opened_for_move("OS:.\\private$\\q;s", q.peer)
    statuses = {
        "cursor": await q.close_cursor(0x7777),
        "cancel": await q.cancel(99),
        "end": await q.end(99),
        "start": (await q.read()).status,
        "move": await q.move(sub.move_context, 4711),
        "user class": await q.status(mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, lookup_id=1, us_class=0),
        "transactional end": await q.end(99, method=mqrr.R_END_TRANSACTIONAL_RECEIVE),
        "unknown transaction": (await q.read(transaction=uuid.uuid4().bytes)).status,
        "purge": await (await site.opened(access=0x20, peer=q.peer)).purge(),
        "close": await replace(q, context=NULL_HANDLE).close(),
    }
    enlisted = {
        "p_transaction_id": uuid.uuid4().bytes,
        "cb_propagation_token": 5,
        "pb_propagation_token": b"token",
        "p_queue_format": QueueFormat(3, 0, 0, Q),
    }
    statuses["enlist"] = (await q.peer.call(REMOTE_READ, mqrr.R_QM_ENLIST_REMOTE_TRANSACTION, **enlisted))[RETURNS]
    doomed = await site.opened("OS:.\\private$\\doomed", peer=q.peer)
    site.delete("doomed")
    statuses["open cursor"] = await doomed.status(mqrr.R_CREATE_CURSOR)
    assert all(status & 0x8000_0000 for status in statuses.values()), statuses
    assert statuses["cursor"] == MQ_ERROR_INVALID_HANDLE


@pytest.mark.spec("MQRR-2.2.3-1")
@served
async def test_a_public_queue_by_its_identifier(site: Site) -> None:
    with site.runtime.change() as change:
        site.operations.create_queue(".\\pub", {})
    change.wait()
    identifier = site.operations.find(".\\pub").identifier
    with site.runtime.change() as change:
        site.operations.set_attributes(
            site.operations.names.format_name(".\\pub"),
            {"security": site.operations.find(".\\private$\\q").security},
        )
    change.wait()
    peer = await site.peer()
    await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(QueueFormat(1, 0, 0, identifier)))
    (descriptor,) = site.runtime.engine.opening.descriptors.values()
    assert descriptor.queue is not None
    assert descriptor.queue.pathname.lower().endswith("\\pub")


@pytest.mark.spec("MQRR-2.2.4.2-1")
@served
async def test_of_two_closes_at_once_one_acts(site: Site) -> None:
    q = await site.opened()
    both = [q.peer.begin(REMOTE_READ, mqrr.R_CLOSE_QUEUE, pph_context=q.context) for _ in range(2)]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    closed = [one for one in outcomes if isinstance(one, dict) and one[RETURNS] == OK]
    refused = [one for one in outcomes if isinstance(one, Fault) or (isinstance(one, dict) and one[RETURNS])]
    assert (len(closed), len(refused)) == (1, 1)
    assert closed[0]["pph_context"] == NULL_HANDLE
    assert (await (await site.opened(peer=q.peer)).read()).status == MQ_ERROR_IO_TIMEOUT


@pytest.mark.spec("MQRR-2.2.5.1-11")
@pytest.mark.spec("MQRR-2.2.5.1.1-1")
@pytest.mark.spec("MQRR-2.2.5.1.1-2")
@pytest.mark.spec("MQRR-2.2.5.1-12")
@pytest.mark.spec("MQRR-2.2.5.1-1")
@served
async def test_a_message_to_a_private_name_keeps_its_destination(site: Site) -> None:
    qm = site.runtime.engine.queue_manager
    with site.runtime.change() as change:
        number = site.operations.find(".\\private$\\q").private_queue_number
        name = site.operations.names.format_name(f"PRIVATE={qm.identifier}\\{number:08x}")
        opened = site.operations.open(name, QueueAccessType.SEND)
        site.operations.send(
            opened, lanner.Message(body=b"x", recoverable=True).properties(site.operations.names), None
        )
        site.operations.close(opened)
    change.wait()
    packet = (await (await site.opened()).read(PEEK)).packet
    assert packet[32:48] == qm.identifier.bytes_le
    # AH: neither a SOAP envelope nor a compound message.
    assert not struct.unpack_from("<I", packet, 60)[0] & 0x0200_0000
    # Raises for headers that are not in the order of the document.
    Message.unpack(packet)


@pytest.mark.spec("MQRR-2.2.5.1-5")
@pytest.mark.spec("MQRR-2.2.5.1-6")
@pytest.mark.spec("MQRR-2.2.5.1-7")
@pytest.mark.spec("MQRR-2.2.5.1-8")
@pytest.mark.spec("MQRR-2.2.5.1-9")
@pytest.mark.spec("MQRR-2.2.5.5-2")
@pytest.mark.spec("MQRR-2.2.5.5-3")
@pytest.mark.parametrize(
    ("source", "overlay", "extended"),
    [
        (
            "192.0.2.7",
            struct.pack("<HHI8s", 4, 1, 0, bytes((192, 0, 2, 7))),
            struct.pack("<IHHI16s", 28, 4, 1, 0, bytes((192, 0, 2, 7))),
        ),
        (
            "2001:db8::1%3",
            struct.pack("<HHI8s", 8, 6, 3, bytes.fromhex("20010db800000000")),
            struct.pack("<IHHI16s", 28, 16, 6, 3, bytes.fromhex("20010db8000000000000000000000001")),
        ),
    ],
)
def test_where_a_direct_message_came_from(tmp_path: Path, source: str, overlay: bytes, extended: bytes) -> None:
    async def run() -> None:
        async with serving(tmp_path, source=source) as site:
            site.send(b"x")
            packet = (await (await site.opened()).read(PEEK)).packet
        assert packet[32:48] == overlay
        assert packet.endswith(extended)

    asyncio.run(run())


async def until_arrived(qm: lanner.aio.QueueManager) -> None:
    async with asyncio.timeout(30):
        while not await qm.open("q").count():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.spec("MQRR-2.2.5.1-6")
def test_the_address_of_another_queue_manager(tmp_path: Path) -> None:
    """Over the network, as the daemon does it."""
    other = free_address()

    async def work(address: str) -> None:
        async with await lanner.aio.connect(address, "operator", "secret") as qm:
            await qm.create_queue("q")

            beta = await asyncio.to_thread(lanner.QueueManager, tmp_path / "other", "BETA", bind=other)
            with beta:
                await asyncio.to_thread(beta.open(f"DIRECT=TCP:{address}\\private$\\q").send, b"from beta")
                await until_arrived(qm)
        options: dict[str, Any] = {"auth_type": AuthType.WINNT, "level": AuthLevel.PKT_PRIVACY}
        async with await connect_tcp(address, 2103, credentials=test_daemon.OPERATOR, **options) as client:
            bound = await client.bind(REMOTE_READ)
            opened = await bound.call(mqrr.R_OPEN_QUEUE, **opening(QueueFormat(3, 0, 0, Q)))
            got = await bound.call(
                mqrr.R_START_RECEIVE,
                ph_context=opened["pph_context"],
                lookup_id=0,
                h_cursor=0,
                ul_action=PEEK,
                ul_timeout=20_000,
                dw_request_id=1,
                dw_max_body_size=FOREVER,
                dw_max_compound_message_size=0,
            )
            packet = b"".join(one.p_section_buffer for one in got["pp_packet_sections"])
        numbers = bytes(map(int, other.split(".")))
        assert packet[32:48] == struct.pack("<HHI8s", 4, 1, 0, numbers)

    test_daemon.with_daemon(tmp_path, work)


@pytest.mark.spec("MQRR-2.2.5.3-11")
def test_the_target_of_a_move_that_is_not_committed() -> None:
    packed = SubqueueHeader(target_subqueue_name="later").pack()
    assert packed[-64:] == "later".encode("utf-16-le").ljust(64, b"\0")


@pytest.mark.spec("MQRR-3.1.1.1-1")
@served
async def test_a_message_of_another_protocol_wakes_a_wait(site: Site) -> None:
    q = await site.opened()
    waiting = q.begin(RECEIVE, 20_000)
    await until(lambda: bool(site.runtime.engine.find_queue(site.name_of("q")).waiting_reads))  # type: ignore[union-attr]
    site.send(b"from a program here")
    assert (await waiting).body == b"from a program here"


@pytest.mark.spec("MQRR-3.1.1.1-2")
@served
async def test_a_message_is_locked_and_gone_for_everybody(site: Site) -> None:
    site.send(b"only one")
    q = await site.opened()
    got = await q.read()
    assert local_read(site) is None
    assert await q.end(got, NACK) == OK
    got = await q.read()
    assert await q.end(got, ACK) == OK
    assert local_read(site) is None
    assert site.count() == 0


@pytest.mark.spec("MQRR-3.1.1.2-1")
@pytest.mark.spec("MQRR-3.1.1.3-1")
@served
async def test_one_request_id_on_two_handles(site: Site) -> None:
    site.send(b"one", b"two")
    first, second = await site.opened(), await site.opened()
    one = await first.read(dw_request_id=5)
    two = await second.read(dw_request_id=5)
    assert (one.body, two.body) == (b"one", b"two")
    assert await first.end(5) == OK
    assert site.lookup_ids() == [two.lookup_id]
    assert local_read(site) is None
    assert await second.end(5, NACK) == OK
    assert local_read(site) == b"two"


@pytest.mark.spec("MQRR-3.1.1.4-1")
def test_sections_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async def read(*, make: bool) -> list[tuple[int, int, bytes]]:
        async with serving(tmp_path, make=make) as site:
            if make:
                site.send(b"0123456789" * 10)
            got = await (await site.opened()).read(PEEK, dw_max_body_size=7)
            return [(one.section_buffer_type, one.section_size, one.p_section_buffer or b"") for one in got.sections]

    before = asyncio.run(read(make=True))
    assert len(before) == 2
    assert asyncio.run(read(make=False)) == before


@pytest.mark.spec("MQRR-3.1.4.2-33")
@served
async def test_an_open_makes_a_subqueue(site: Site) -> None:
    for access in (1, 0x20):
        opened = await site.opened("OS:.\\private$\\q;later", access)
        with site.runtime.lock:
            assert list(site.operations.find(".\\private$\\q").subqueues) == ["later"]
        assert await opened.close() == OK
    assert await fault(site.opened("OS:.\\private$\\none;later")) == MQ_ERROR_QUEUE_NOT_FOUND


@pytest.mark.spec("MQRR-3.1.4.11-5")
@served
async def test_a_subqueue_ends_when_it_is_empty_and_closed(site: Site) -> None:
    def names() -> list[str]:
        with site.runtime.lock:
            return list(site.operations.find(".\\private$\\q").subqueues)

    (one,) = site.send(b"one")
    q = await site.opened()
    sub = await site.opened_for_move("OS:.\\private$\\q;sub", q.peer)
    there = await site.opened("OS:.\\private$\\q;sub")
    assert await sub.close() == OK
    assert names() == ["sub"]
    sub = await site.opened_for_move("OS:.\\private$\\q;sub", q.peer)
    assert await q.move(sub.move_context, one) == OK
    got = await there.read()
    assert await sub.close() == OK
    assert await there.end(got) == OK
    assert names() == ["sub"]
    assert await there.close() == OK
    assert names() == []
    await site.opened("OS:.\\private$\\q;lost", peer=there.peer)
    assert names() == ["lost"]
    there.peer.abort()
    await until(lambda: names() == [])


@pytest.mark.spec("MQRR-3.1.4.2-34")
@pytest.mark.parametrize("name", ["OS:.\\private$\\q;s;t", "OS:.\\private$\\q;journal;s", "OS:.\\system$;deadletter;s"])
@served
async def test_a_subqueue_of_what_has_none(site: Site, name: str) -> None:
    peer = await site.peer()
    before = len(site.runtime.engine.queue_manager.queue_collection)
    for call in (site.opened(name, peer=peer), site.opened_for_move(name, peer)):
        assert await fault(call) == MQ_ERROR_QUEUE_NOT_FOUND
    assert len(site.runtime.engine.queue_manager.queue_collection) == before


@pytest.mark.spec("MQRR-3.1.4.6-7")
@pytest.mark.spec("MQRR-3.1.4.9-7")
@pytest.mark.spec("MQRR-3.1.4.9-8")
@served
async def test_acknowledgments(site: Site) -> None:
    site.create("admin")
    wanted = {"acknowledge": "full-receive", "administration_queue": ".\\private$\\admin"}
    site.send(b"one", b"two", **wanted)
    q = await site.opened()
    got = await q.read()
    assert await q.end(got, NACK) == OK
    assert classes(site) == []
    got = await q.read()
    assert await q.end(got, ACK) == OK
    assert classes(site) == [CLASS_RECEIVED]
    assert await q.purge() == OK
    await until(lambda: len(site.lookup_ids("admin")) == 2)
    assert classes(site) == [CLASS_RECEIVED, CLASS_PURGED]


@pytest.mark.spec("MQRR-3.1.4.9-20")
@served
async def test_a_message_purged_under_its_lock_is_received(site: Site) -> None:
    site.create("admin")
    site.send(b"one", acknowledge="full-receive", administration_queue=".\\private$\\admin")
    q = await site.opened()
    got = await q.read()
    assert await q.purge() == OK
    assert await q.end(got, ACK) == OK
    assert classes(site) == [CLASS_RECEIVED]
    assert site.count() == 0


@pytest.mark.spec("MQRR-3.1.4.9-21")
@pytest.mark.spec("MQRR-3.1.4.9-22")
@served
async def test_the_journal_has_what_was_received(site: Site) -> None:
    site.set("q", journaling=True)
    site.send(b"one")
    q = await site.opened()
    journal = await site.opened(f"{Q};journal", 0x20)
    got = await q.read()
    assert (await journal.read(PEEK)).status == MQ_ERROR_IO_TIMEOUT
    assert await q.end(got, NACK) == OK
    assert (await journal.read(PEEK)).status == MQ_ERROR_IO_TIMEOUT
    got = await q.read()
    assert await q.end(got, ACK) == OK
    assert (await journal.read(PEEK)).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.7-42")
@served
async def test_messages_that_are_gone(site: Site) -> None:
    (first,) = site.send(b"one")
    q, other = await site.opened(), await site.opened()
    cursor = await other.cursor()
    assert (await other.read(PEEK, cursor=cursor)).body == b"one"
    got = await q.read()
    assert await q.end(got) == OK
    assert (await other.read(LOOKUP_PEEK, lookup_id=first)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert await q.end(got) == MQ_ERROR_INVALID_HANDLE


@pytest.mark.spec("MQRR-3.1.4.10-6")
@pytest.mark.spec("MQRR-3.1.4.10-7")
@served
async def test_related_queues(site: Site) -> None:
    site.create("p")
    (one,) = site.send(b"one")
    peer = await site.peer()
    q = await site.opened("TCP:127.0.0.1\\private$\\q", peer=peer)
    strange = await site.opened_for_move("OS:.\\private$\\p;b", peer)
    assert await q.move(strange.move_context, one) == STATUS_INVALID_PARAMETER
    target = await site.opened_for_move("OS:ALPHA\\private$\\q;b", peer)
    assert await q.move(target.move_context, one) == OK
    other = await site.opened_for_move("TCP:127.0.0.1\\private$\\q;c", peer)
    source = await site.opened("OS:.\\private$\\q;b", peer=peer)
    moved = await source.read(PEEK)
    assert await source.move(other.move_context, moved.lookup_id) == OK
    # A subqueue of the same name, of another queue.
    same = await site.opened_for_move("OS:.\\private$\\p;c", peer)
    source = await site.opened("OS:.\\private$\\q;c", peer=peer)
    assert await source.move(same.move_context, moved.lookup_id) == STATUS_INVALID_PARAMETER


@pytest.mark.spec("MQRR-3.1.4.10-13")
@pytest.mark.spec("MQRR-3.1.6.2-6")
@served
async def test_move_contexts(site: Site) -> None:
    (one,) = site.send(b"one")
    peer = await site.peer()
    q = await site.opened(peer=peer)
    reading = await site.opened(peer=peer)
    for number in (int.from_bytes(reading.context[4:12], "little"), int.from_bytes(reading.context[:8], "little")):
        assert await q.move(number, one) == MQ_ERROR_INVALID_HANDLE
    target = await site.opened_for_move("OS:.\\private$\\q;b", peer)
    other = await site.peer()
    gone = await site.opened_for_move("OS:.\\private$\\q;c", other)
    await other.close()
    assert await q.move(gone.move_context, one) == MQ_ERROR_INVALID_HANDLE
    assert await q.move(target.move_context, one) == OK


@pytest.mark.spec("MQRR-3.1.4.10-33")
@served
async def test_a_move_satisfies_a_wait(site: Site) -> None:
    (one,) = site.send(b"one")
    peer = await site.peer()
    q = await site.opened(peer=peer)
    target = await site.opened_for_move("OS:.\\private$\\q;b", peer)
    reader = await site.opened("OS:.\\private$\\q;b")
    waiting = reader.begin(RECEIVE, 20_000)
    await until(lambda: bool(site.operations.find(".\\private$\\q").subqueues["b"].waiting_reads))
    assert await q.move(target.move_context, one) == OK
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.11-7")
@pytest.mark.spec("MQRR-3.1.4.11-10")
@pytest.mark.spec("MQRR-3.1.4.11-15")
@pytest.mark.spec("MQRR-3.1.4.11-16")
@pytest.mark.spec("MQRR-3.1.4.11-17")
@pytest.mark.spec("MQRR-3.1.4.11-24")
@pytest.mark.spec("MQRR-5.2-1")
@served
async def test_opens_for_move(site: Site) -> None:
    peer = await site.peer()
    qm = site.runtime.engine.queue_manager
    number = site.operations.find(".\\private$\\q").private_queue_number
    with site.runtime.change() as change:
        security = site.operations.find(".\\private$\\q").security
        site.operations.create_queue(".\\pub", {"security": security})
    change.wait()
    formats = [
        QueueFormat(2, 0, 0, MessageIdentifier(qm.identifier, number)),
        QueueFormat(3, 0, 0, "TCP:127.0.0.1\\private$\\q"),
        QueueFormat(3, 0, 0, "OS:ALPHA\\private$\\q"),
    ]
    changes: list[dict[str, Any]] = [
        {},
        {"p_client_id": uuid.UUID(int=0)},
        {"f_non_routing_server": 0, "p_client_id": uuid.UUID(int=0)},
        {"f_non_routing_server": 0},
        *({"major": major, "minor": minor, "build_number": 0} for major, minor in ((5, 2), (6, 0), (6, 1), (0, 0))),
        {"f_workgroup": 0},
    ]
    queues = set()
    for queue_format in formats:
        for changed in changes:
            site.runtime.engine.opening.descriptors.clear()
            await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE_FOR_MOVE, **(opening(queue_format, 4) | changed))
            (descriptor,) = site.runtime.engine.opening.descriptors.values()
            assert descriptor.queue is not None
            queues.add(descriptor.queue.number)
    assert len(queues) == 1
    await site.opened_for_move("OS:.\\private$\\q;a", peer)
    by_identifier = opening(QueueFormat(1, 0, 0, site.operations.find(".\\pub").identifier), 4)
    site.runtime.engine.opening.descriptors.clear()
    await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE_FOR_MOVE, **by_identifier)
    (descriptor,) = site.runtime.engine.opening.descriptors.values()
    assert descriptor.queue is site.operations.find(".\\pub")


@pytest.mark.spec("MQRR-3.1.1.1-1")
@served
async def test_500_readers_wait(site: Site) -> None:
    """On ten connections: each reader gets a message, and none gets two."""
    handles = [await site.opened() for _ in range(10)]
    readers = [handle for handle in handles for _ in range(50)]
    waiting = [q.begin(RECEIVE, 60_000) for q in readers]
    queue = site.operations.find(".\\private$\\q")
    await until(lambda: len(queue.waiting_reads) == 500)
    site.send(*[b"%d" % number for number in range(500)])
    got = await asyncio.gather(*waiting)
    assert sorted(int(one.body) for one in got) == list(range(500))
    assert await asyncio.gather(*(q.end(one) for q, one in zip(readers, got, strict=True))) == [OK] * 500
    assert site.count() == 0


@pytest.mark.spec("MQRR-2.2.3-20")
@served
async def test_dead_letter_queues_by_direct_names(site: Site) -> None:
    qm = site.runtime.engine.queue_manager
    qm.security = SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl((allow(ANONYMOUS.sid, 0x100000FF),))).pack()
    peer = await site.peer()
    for suffix, name in ((0x82, "deadletter"), (0x83, "deadxact")):
        site.runtime.engine.opening.descriptors.clear()
        queue_format = QueueFormat(3, suffix, 0, "OS:ALPHA\\SYSTEM$")
        await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(queue_format, 0x20))
        (descriptor,) = site.runtime.engine.opening.descriptors.values()
        assert descriptor.queue is not None
        assert descriptor.queue.pathname.lower().endswith(name)


@pytest.mark.spec("MQRR-3.1.4.10-15")
@served
async def test_a_move_over_another_connection_of_the_association(site: Site) -> None:
    (one,) = site.send(b"one")
    first = await site.peer()
    second = await site.peer(group=first.group)
    target = await site.opened_for_move("OS:.\\private$\\q;b", first)
    source = await site.opened(peer=second)
    assert await source.move(target.move_context, one) == OK


@pytest.mark.spec("MQRR-3.1.4.9-12")
@pytest.mark.parametrize("method", [mqrr.R_END_RECEIVE, mqrr.R_END_TRANSACTIONAL_RECEIVE])
@served
async def test_the_message_of_a_read_is_gone(site: Site, method: Method) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    got = await q.read()
    queue = site.operations.find(".\\private$\\q")
    (position,) = queue.held_positions.values()
    with site.runtime.change() as change:
        site.runtime.engine.positions.remove(queue, position)
    await asyncio.to_thread(change.wait)
    assert await q.end(got, ACK, method) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await q.read(PEEK)).body == b"two"


@pytest.mark.spec("MQRR-3.1.4.9-14")
@served
async def test_the_message_of_a_read_is_available(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    got = await q.read()
    (position,) = site.operations.find(".\\private$\\q").held_positions.values()
    position.state = PositionState.AVAILABLE
    assert await q.end(got) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert site.count() == 1
