"""RemoteRead (MS-MQRR 3.1).

Covered: opens, cursors, the two phases of a receive, cancels, moves and rundown.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanner.host.coordinator import coordinator_of
from lanner.model.branches import Branch
from lanner.model.enums import QueueAccessType
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.rpc.server import RpcServer
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmp import QMCOMM
from lanner.services.interfaces.mqmq import DlId, MulticastId, QueueFormat
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.interfaces.mqrr import REMOTE_READ
from lanner.services.mqrr import RemoteReadService
from lanner.wire.extension_headers import Extensions
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.propagation_token import pack_token
from lanner.wire.reader import Reader
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from tests.services.mqrr_peer import (
    FOREVER,
    PEEK,
    PEEK_NEXT,
    RECEIVE,
    Got,
    Opened,
    Site,
    fault,
    opening,
    served,
    serving,
)
from tests.services.remote_read_peer import CLIENT_ID, NDR20, NDR64, Peer, context
from tests.services.site import ADDRESS, until
from tests.services.test_mqrr_transactions import enlist
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_DTC_CONNECT,
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_SHARING_VIOLATION,
    MQ_ERROR_TRANSACTION_IMPORT,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    MQ_ERROR_TRANSACTION_USAGE,
    NCA_FAULT_CONTEXT_MISMATCH,
    STATUS_ACCESS_DENIED,
    STATUS_INVALID_HANDLE,
    STATUS_INVALID_PARAMETER,
    STATUS_NOT_FOUND,
)

OK = 0
BAD_STUB = 0x6F7
RANGE = 0x1C010002
LOOKUP_PEEK, LOOKUP_PEEK_NEXT, LOOKUP_PEEK_PREV = 0x40000010, 0x40000011, 0x40000012
LOOKUP_RECEIVE, LOOKUP_RECEIVE_NEXT, LOOKUP_RECEIVE_PREV = 0x40000020, 0x40000021, 0x40000022
BOTH = pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])
UOW = uuid.UUID("11111111-2222-4333-8444-555555555555").bytes


@pytest.mark.spec("MQRR-3.1.4-4")
def test_the_opnums() -> None:
    """Their order is the document's."""
    names = [None if method is None else method.name for method in REMOTE_READ.methods]
    assert names[0:2] == ["R_GetServerPort", None]
    assert names[2:10] == [
        "R_OpenQueue",
        "R_CloseQueue",
        "R_CreateCursor",
        "R_CloseCursor",
        "R_PurgeQueue",
        "R_StartReceive",
        "R_CancelReceive",
        "R_EndReceive",
    ]
    assert names[10:] == [
        "R_MoveMessage",
        "R_OpenQueueForMove",
        "R_QMEnlistRemoteTransaction",
        "R_StartTransactionalReceive",
        "R_SetUserAcknowledgementClass",
        "R_EndTransactionalReceive",
    ]


# Binds
# --------------------------------------------------------------------------------------------------


async def bound(site: Site, *offers: bytes) -> list[tuple[int, int, bytes]]:
    """Return the answer to a bind with these contexts."""
    peer = Peer(*await asyncio.open_connection(ADDRESS, site.port))
    try:
        return await peer.bind(list(offers))
    finally:
        await peer.close()


@pytest.mark.spec("MQRR-1.9-1")
@pytest.mark.spec("MQRR-1.9-2")
@served
async def test_version_one_is_bound_and_version_two_is_not(site: Site) -> None:
    first, second = await bound(
        site, context(0, (REMOTE_READ.uuid, 1), NDR20), context(1, (REMOTE_READ.uuid, 2), NDR20)
    )
    assert first[0] == 0
    assert second[:2] == (2, 1)


@pytest.mark.spec("MQRR-2.2-1")
@pytest.mark.spec("MQRR-2.2-2")
@pytest.mark.spec("MQRR-2.2.4.1-1")
@pytest.mark.spec("MQRR-1.7-1")
@pytest.mark.spec("MQRR-2.3-1/private queues without a domain")
@BOTH
@served
async def test_every_method_works_in_both_syntaxes(site: Site, syntax: Syntax) -> None:
    site.create("t", transactional=True)
    site.send(b"one", b"two", b"three")
    peer = await site.peer(syntax=syntax)
    assert (await peer.call(REMOTE_READ, mqrr.R_GET_SERVER_PORT))[RETURNS] == site.port
    q = await site.opened(peer=peer)
    cursor = await q.cursor()
    first = await q.read(PEEK, cursor=cursor)
    assert first.body == b"one"
    assert await q.close_cursor(cursor) == OK
    got = await q.read()
    assert await q.end(got) == OK
    again = await q.read(transaction=bytes(16))
    assert again.body == b"two"
    assert await q.end(again, 2, mqrr.R_END_TRANSACTIONAL_RECEIVE) == OK
    assert await q.cancel(99) == STATUS_NOT_FOUND
    sub = await site.opened_for_move("OS:.\\private$\\q;sub", peer)
    third = await q.read(PEEK)
    assert await q.move(sub.move_context, third.lookup_id) == OK
    assert await q.status(mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, lookup_id=1, us_class=0) == MQ_ERROR_MESSAGE_NOT_FOUND
    enlisted = await peer.call(
        REMOTE_READ,
        mqrr.R_QM_ENLIST_REMOTE_TRANSACTION,
        p_transaction_id=UOW,
        cb_propagation_token=4,
        pb_propagation_token=b"none",
        p_queue_format=QueueFormat(3, 0, 0, "OS:.\\private$\\t"),
    )
    assert enlisted[RETURNS] == MQ_ERROR_TRANSACTION_IMPORT
    assert await q.purge() == OK
    assert await sub.close() == OK
    assert await q.close() == OK


@pytest.mark.spec("MQRR-2.2-3")
@served
async def test_of_two_syntaxes_one_is_chosen(site: Site) -> None:
    for syntaxes in ((NDR20, NDR64), (NDR64, NDR20)):
        results = await bound(site, *(context(number, REMOTE_READ, syntax) for number, syntax in enumerate(syntaxes)))
        # NDR, wherever it stands among the offers.
        assert [result for result, _, _ in results] == [0 if syntax is NDR20 else 2 for syntax in syntaxes]
        assert [syntax for result, _, syntax in results if result == 0] == [NDR20]


@pytest.mark.spec("MQRR-1.7-2")
@pytest.mark.spec("MQRR-3.1.4-5")
@served
async def test_opnums_that_are_not_there(site: Site) -> None:
    peer = await site.peer()
    for opnum in (1, 16, 200):
        assert await fault(peer.raw(REMOTE_READ, opnum, b"")) == RANGE
    assert (await peer.call(REMOTE_READ, mqrr.R_GET_SERVER_PORT))[RETURNS] == site.port


@pytest.mark.spec("MQRR-3.1.4-1")
@served
async def test_a_truncated_stub(site: Site) -> None:
    peer = await site.peer()
    assert await fault(peer.raw(REMOTE_READ, 7, bytes(20))) == BAD_STUB
    assert (await peer.call(REMOTE_READ, mqrr.R_GET_SERVER_PORT))[RETURNS] == site.port


@pytest.mark.spec("MQRR-3.1.4.1-1")
@served
async def test_the_port_is_four_octets(site: Site) -> None:
    peer = await site.peer()
    assert await peer.raw(REMOTE_READ, 0, b"") == struct.pack("<I", site.port)


@pytest.mark.spec("MQRR-3.1.4.1-6")
@pytest.mark.spec("MQRR-2.1-6")
def test_a_caller_without_a_name_gets_the_port_and_nothing_else(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, level=AuthLevel.PKT_INTEGRITY) as site:
            peer = await site.peer()
            assert (await peer.call(REMOTE_READ, mqrr.R_GET_SERVER_PORT))[RETURNS] == site.port
            assert await fault(site.opened(peer=peer)) == MQ_ERROR_ACCESS_DENIED
            assert await fault(site.opened_for_move("OS:.\\private$\\q;sub", peer)) == MQ_ERROR_ACCESS_DENIED
            results = await peer.call(
                REMOTE_READ,
                mqrr.R_QM_ENLIST_REMOTE_TRANSACTION,
                p_transaction_id=UOW,
                cb_propagation_token=1,
                pb_propagation_token=b"x",
                p_queue_format=QueueFormat(3, 0, 0, "OS:.\\private$\\q"),
            )
            assert results[RETURNS] == MQ_ERROR_ACCESS_DENIED

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.1.4.2-23")
@pytest.mark.spec("MQRR-5.1-1")
@pytest.mark.spec("MQRR-5.1-2")
def test_a_user_needs_privacy(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, level=AuthLevel.PKT_INTEGRITY) as site:
            site.create("t", sid=site.add_user("alice"), transactional=True)
            site.send(b"one", queue="t")
            credentials = Credentials("alice", "alice-secret", "")
            branch = Branch(coordinator_of(site.runtime.engine).identifier, uuid.uuid4(), "reader")
            name = "OS:.\\private$\\t"
            enlistment = {
                "p_transaction_id": branch.transaction.bytes_le,
                "cb_propagation_token": len(pack_token(branch)),
                "pb_propagation_token": pack_token(branch),
                "p_queue_format": QueueFormat(3, 0, 0, name),
            }
            read: dict[str, Any] = {"ul_action": RECEIVE, "ul_timeout": 0, "lookup_id": 0, "h_cursor": 0}
            read |= {"dw_request_id": 1, "dw_max_body_size": FOREVER, "dw_max_compound_message_size": 0}
            for level in (AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY):
                async with await connect_tcp(ADDRESS, site.port, credentials=credentials, level=level) as client:
                    bound = await client.bind(REMOTE_READ)
                    if level is AuthLevel.PKT_INTEGRITY:
                        for workgroup in (0, 1):
                            arguments = opening(QueueFormat(3, 0, 0, name)) | {"f_workgroup": workgroup}
                            with pytest.raises(RpcFault) as refused:
                                await bound.call(mqrr.R_OPEN_QUEUE, **arguments)
                            assert refused.value.status == MQ_ERROR_ACCESS_DENIED
                            moved = opening(QueueFormat(8, 0, 0, f"{name};sub"), 4) | {"f_workgroup": workgroup}
                            with pytest.raises(RpcFault) as refused:
                                await bound.call(mqrr.R_OPEN_QUEUE_FOR_MOVE, **moved)
                            assert refused.value.status == MQ_ERROR_ACCESS_DENIED
                        enlisted = await bound.call(mqrr.R_QM_ENLIST_REMOTE_TRANSACTION, **enlistment)
                        assert enlisted[RETURNS] == MQ_ERROR_ACCESS_DENIED
                        assert not site.runtime.engine.opening.descriptors
                        assert not site.operations.find(".\\private$\\t").subqueues
                        continue
                    opened = await bound.call(mqrr.R_OPEN_QUEUE, **opening(QueueFormat(3, 0, 0, name)))
                    read |= {"ph_context": opened["pph_context"], "p_transaction_id": branch.transaction.bytes_le}
                    # It was not enlisted before.
                    got = await bound.call(mqrr.R_START_TRANSACTIONAL_RECEIVE, **read)
                    assert got[RETURNS] == MQ_ERROR_TRANSACTION_SEQUENCE
                    assert (await bound.call(mqrr.R_QM_ENLIST_REMOTE_TRANSACTION, **enlistment))[RETURNS] == OK
                    assert (await bound.call(mqrr.R_START_TRANSACTIONAL_RECEIVE, **read))[RETURNS] == OK

    asyncio.run(run())


# Opens
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.2-1")
@pytest.mark.spec("MQRR-2.2.4-2")
@served
async def test_an_open_gives_a_handle_of_its_own(site: Site) -> None:
    peer = await site.peer()
    stub = mqrr.R_OPEN_QUEUE.encode_request(opening(QueueFormat(3, 0, 0, "OS:.\\private$\\q")), Syntax.NDR20)
    answers = [await peer.raw(REMOTE_READ, 2, stub) for _ in range(20)]
    assert {len(answer) for answer in answers} == {20}
    assert len(set(answers)) == 20
    assert NULL_HANDLE not in answers


@pytest.mark.spec("MQRR-3.1.4.2-30")
@served
async def test_an_open_changes_nothing(site: Site) -> None:
    before = site.send(b"one", b"two")
    await site.opened()
    assert site.lookup_ids() == before
    assert site.count() == 2


@pytest.mark.spec("MQRR-2.2.3-2")
@pytest.mark.spec("MQRR-2.2.3-3")
@pytest.mark.spec("MQRR-2.2.3-4")
@pytest.mark.spec("MQRR-2.2.3-5")
@pytest.mark.spec("MQRR-2.2.3-6")
@pytest.mark.spec("MQRR-2.2.3-7")
@pytest.mark.spec("MQRR-2.2.3-8")
@served
async def test_the_names_of_queues(site: Site) -> None:
    qm = site.runtime.engine.queue_manager
    qm.security = SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl((allow(ANONYMOUS.sid, 0x100000FF),))).pack()
    with site.runtime.change() as change:
        site.operations.create_queue(".\\pub", {"security": site.operations.find(".\\private$\\q").security})
    change.wait()
    with site.runtime.lock:
        number = site.operations.find(".\\private$\\q").private_queue_number
        public = site.operations.find(".\\pub").identifier
        descriptors = site.runtime.engine.opening.descriptors
    peer = await site.peer()
    names = {
        QueueFormat(2, 0, 0, MessageIdentifier(qm.identifier, number)): "private$\\q",
        QueueFormat(3, 0, 0, "OS:ALPHA\\private$\\q"): "private$\\q",
        QueueFormat(3, 0, 0, "os:alpha\\PRIVATE$\\Q"): "private$\\q",
        QueueFormat(3, 0, 0, "TCP:127.0.0.1\\private$\\q"): "private$\\q",
        QueueFormat(4, 0x82, 0, qm.identifier): "deadletter",
        QueueFormat(4, 0x83, 0, qm.identifier): "deadxact",
        QueueFormat(4, 0x81, 0, qm.identifier): "journal",
        QueueFormat(3, 0x81, 0, "OS:ALPHA\\private$\\q"): "q;journal",
        QueueFormat(2, 0x81, 0, MessageIdentifier(qm.identifier, number)): "q;journal",
        QueueFormat(1, 0x81, 0, public): "pub;journal",
    }
    for queue_format, wanted in names.items():
        site.runtime.engine.opening.descriptors.clear()
        await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(queue_format, 0x20))
        (descriptor,) = descriptors.values()
        assert descriptor.queue is not None
        assert descriptor.queue.pathname.lower().endswith(wanted), queue_format


INVALID = [
    {"p_queue_format": QueueFormat(0, 0, 0, None)},
    {"p_queue_format": QueueFormat(5, 0, 0, CLIENT_ID)},
    {"p_queue_format": QueueFormat(6, 0, 0, DlId(CLIENT_ID, None))},
    {"p_queue_format": QueueFormat(7, 0, 0, MulticastId(0x010203EF, 8001))},
    {"p_queue_format": QueueFormat(3, 0, 0, None)},
    {"p_queue_format": QueueFormat(8, 0, 0, None)},
    {"p_queue_format": QueueFormat(3, 0, 0, "HTTP://alpha/msmq/private$/q")},
    {"p_queue_format": QueueFormat(3, 0, 0, "HTTPS://alpha/msmq/private$/q")},
    {"p_queue_format": QueueFormat(2, 0x82, 0, MessageIdentifier(CLIENT_ID, 1))},
    {"p_queue_format": QueueFormat(4, 0, 0, CLIENT_ID)},
    {"p_queue_format": QueueFormat(3, 0x05, 0, "OS:alpha\\private$\\q;s")},
    {"p_queue_format": QueueFormat(8, 0, 0, "OS:alpha\\private$\\q;" + "s" * 32)},
    {"dw_share_mode": 2},
]


@pytest.mark.spec("MQRR-2.2.3-10")
@pytest.mark.spec("MQRR-2.2.3-11")
@pytest.mark.spec("MQRR-2.2.3-12")
@pytest.mark.spec("MQRR-2.2.3-16")
@pytest.mark.spec("MQRR-2.2.3-17")
@pytest.mark.spec("MQRR-3.1.4.2-6")
@pytest.mark.spec("MQRR-3.1.4.2-9")
@pytest.mark.spec("MQRR-2.2.5.3-15")
@pytest.mark.spec("MQRR-3.1.4.11-8")
@pytest.mark.spec("MQRR-3.1.4.11-9")
@pytest.mark.spec("MQRR-3.1.4.11-26")
@pytest.mark.parametrize("changes", INVALID, ids=str)
@served
async def test_invalid_values_are_refused_before_the_queue_is_looked_for(site: Site, changes: dict[str, Any]) -> None:
    peer = await site.peer()
    arguments = opening(QueueFormat(3, 0, 0, "OS:.\\private$\\none")) | changes
    assert await fault(peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **arguments)) == MQ_ERROR_INVALID_PARAMETER
    moved = arguments | {"dw_access": 4}
    assert await fault(peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE_FOR_MOVE, **moved)) == MQ_ERROR_INVALID_PARAMETER
    assert not site.runtime.engine.opening.descriptors


@pytest.mark.spec("MQRR-3.1.4.2-7")
@pytest.mark.spec("MQRR-3.1.4.2-8")
@pytest.mark.spec("MQRR-3.1.4.11-11")
@served
async def test_access_modes(site: Site) -> None:
    peer = await site.peer()
    for access in (0, 2, 4, 0x21, 0x81):
        assert await fault(site.opened("OS:.\\private$\\none", access, peer=peer)) == MQ_ERROR_INVALID_PARAMETER
    for access in (0, 1, 2, 0x20):
        assert await fault(site.opened_for_move("OS:.\\private$\\q;s", peer, access)) == MQ_ERROR_INVALID_PARAMETER


@pytest.mark.spec("MQRR-2.2.3-14")
@pytest.mark.spec("MQRR-2.2.3-18")
@served
async def test_a_tag_that_differs_from_the_type(site: Site) -> None:
    peer = await site.peer()
    stub = bytearray(mqrr.R_OPEN_QUEUE.encode_request(opening(QueueFormat(3, 0, 0, "OS:.\\private$\\q")), Syntax.NDR20))
    assert stub[0] == stub[4] == 3
    stub[4] = 1
    assert await fault(peer.raw(REMOTE_READ, 2, bytes(stub))) == BAD_STUB
    stub[0] = stub[4] = 9
    assert await fault(peer.raw(REMOTE_READ, 2, bytes(stub))) == BAD_STUB


@pytest.mark.spec("MQRR-2.2.3-15")
@pytest.mark.spec("MQRR-3.1.4.2-18")
@pytest.mark.spec("MQRR-3.1.4.2-19")
@pytest.mark.spec("MQRR-3.1.4.2-20")
@pytest.mark.spec("MQRR-3.1.4.2-21")
@pytest.mark.spec("MQRR-3.1.4.2-22")
@served
async def test_what_a_client_says_of_itself_changes_nothing(site: Site) -> None:
    peer = await site.peer()
    changes: list[dict[str, Any]] = [
        {"p_queue_format": QueueFormat(3, 0, 0xFFFF, "OS:.\\private$\\q")},
        {"p_client_id": uuid.UUID(int=0)},
        {"p_client_id": uuid.UUID(int=0), "f_non_routing_server": 0},
        {"f_non_routing_server": 7},
        {"f_workgroup": 0},
        {"f_workgroup": -1},
        {"major": 5, "minor": 2, "build_number": 3790},
        {"major": 0, "minor": 0, "build_number": 0},
        {"major": 255, "minor": 255, "build_number": 65535},
        *({"p_client_id": uuid.uuid4()} for _ in range(100)),
    ]
    for change in changes:
        assert (await site.opened(peer=peer, **change)).context != NULL_HANDLE


@pytest.mark.spec("MQRR-3.1.4.2-3")
@pytest.mark.spec("MQRR-3.1.4.2-4")
@pytest.mark.spec("MQRR-3.1.4.2-5")
@pytest.mark.spec("MQRR-3.1.4.11-2")
@pytest.mark.spec("MQRR-3.1.4.11-3")
@pytest.mark.spec("MQRR-3.1.4.11-6")
@served
async def test_a_queue_that_is_not_here(site: Site) -> None:
    peer = await site.peer()
    with site.runtime.change() as change:
        site.operations.open(
            site.operations.names.format_name("DIRECT=TCP:127.0.77.7\\private$\\q"), QueueAccessType.SEND
        )
    change.wait()
    queues = set(site.runtime.engine.queue_manager.queue_collection)
    for name in ("OS:.\\private$\\none", "OS:elsewhere\\private$\\q", "TCP:127.0.77.7\\private$\\q"):
        assert await fault(site.opened(name, peer=peer)) == MQ_ERROR_QUEUE_NOT_FOUND
        assert await fault(site.opened_for_move(name, peer)) == MQ_ERROR_QUEUE_NOT_FOUND
    foreign = QueueFormat(2, 0, 0, MessageIdentifier(CLIENT_ID, 1))
    assert await fault(peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(foreign))) == MQ_ERROR_QUEUE_NOT_FOUND
    assert await fault(site.opened_for_move("OS:.\\private$\\none;s", peer)) == MQ_ERROR_QUEUE_NOT_FOUND
    assert set(site.runtime.engine.queue_manager.queue_collection) == queues


@pytest.mark.spec("MQRR-3.1.4.2-12")
@pytest.mark.spec("MQRR-3.1.4.2-13")
@pytest.mark.spec("MQRR-3.1.4.2-14")
@pytest.mark.spec("MQRR-3.1.4.2-15")
@pytest.mark.spec("MQRR-3.1.4.2-16")
@pytest.mark.spec("MQRR-3.1.4.2-17")
@pytest.mark.spec("MQRR-3.1.4.2-31")
@pytest.mark.spec("MQRR-3.1.4.2-32")
@pytest.mark.spec("MQRR-3.1.4.3-6")
@pytest.mark.spec("MQRR-3.1.4.11-13")
@pytest.mark.spec("MQRR-3.1.4.11-14")
@served
async def test_share_modes(site: Site) -> None:
    name = "OS:.\\private$\\q"
    first, second = await site.opened(), await site.opened()
    assert await fault(site.opened(share=1)) == MQ_ERROR_SHARING_VIOLATION
    assert await fault(site.opened_for_move(name, first.peer, share=1)) == MQ_ERROR_SHARING_VIOLATION
    assert await first.close() == OK
    assert await second.close() == OK
    alone = await site.opened(share=1)
    assert await fault(site.opened()) == MQ_ERROR_SHARING_VIOLATION
    assert await fault(site.opened(share=1)) == MQ_ERROR_SHARING_VIOLATION
    assert await fault(site.opened(access=0x20, share=1)) == MQ_ERROR_SHARING_VIOLATION
    assert await (await site.opened(access=0x20)).close() == OK
    assert await (await site.opened_for_move(name, alone.peer)).close() == OK
    assert await alone.close() == OK
    peeking = await site.opened(access=0x20, share=1)
    assert await fault(site.opened()) == MQ_ERROR_SHARING_VIOLATION
    assert await fault(site.opened(share=1)) == MQ_ERROR_SHARING_VIOLATION
    await site.opened(access=0x20)
    await site.opened(access=0x20, share=1)
    await peeking.close()


@pytest.mark.spec("MQRR-2.1-7")
@pytest.mark.spec("MQRR-2.1-8")
@pytest.mark.spec("MQRR-3.1.4.11-23")
@served
async def test_the_access_list_decides(site: Site) -> None:
    site.create("peek", rights=QueueAccess.PEEK_MESSAGE)
    site.create("none", rights=QueueAccess.WRITE_MESSAGE)
    assert await fault(site.opened("OS:.\\private$\\peek")) == MQ_ERROR_ACCESS_DENIED
    assert await fault(site.opened("OS:.\\private$\\none", 0x20)) == MQ_ERROR_ACCESS_DENIED
    allowed = await site.opened("OS:.\\private$\\peek", 0x20)
    denied = site.opened_for_move("OS:.\\private$\\none;sub", allowed.peer)
    assert await fault(denied) == MQ_ERROR_ACCESS_DENIED
    with site.runtime.lock:
        assert not site.operations.find(".\\private$\\none").subqueues


# Handles
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-2.2.4-3")
@pytest.mark.spec("MQRR-2.2.4-4")
@pytest.mark.spec("MQRR-3.1.4.10-9")
@pytest.mark.spec("MQRR-3.1.4.13-8")
@pytest.mark.spec("MQRR-3.1.4.14-16")
@pytest.mark.spec("MQRR-3.1.4.15-20")
@served
async def test_a_handle_that_is_none(site: Site) -> None:
    before = site.send(b"one")
    q = await site.opened()
    closed = replace(q)
    assert await q.close() == OK
    made_up = Opened(q.peer, bytes(4) + uuid.uuid4().bytes)
    for one in (closed, made_up, Opened(q.peer, NULL_HANDLE)):
        calls = [
            one.read(),
            one.read(transaction=bytes(16)),
            one.end(1),
            one.end(1, 2, mqrr.R_END_TRANSACTIONAL_RECEIVE),
            one.cancel(1),
            one.purge(),
            one.status(mqrr.R_CREATE_CURSOR),
            one.close_cursor(1),
            one.move(1, before[0]),
            one.status(mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, lookup_id=before[0], us_class=0xC004),
        ]
        for call in calls:
            assert await fault(call) == NCA_FAULT_CONTEXT_MISMATCH
    assert await fault(closed.close()) == NCA_FAULT_CONTEXT_MISMATCH
    assert site.lookup_ids() == before


@pytest.mark.spec("MQRR-2.2.4.1-2")
@served
async def test_a_handle_of_another_interface(site: Site) -> None:
    """qm2qm has made it on the same association, and takes it."""
    site.send(b"one")
    peer = await site.peer(REMOTE_READ, QM2QM, QMCOMM)
    elsewhere = await peer.opened()
    for handle in (elsewhere.context, elsewhere.open_context):
        q = Opened(peer, handle)
        for call in (q.read(), q.purge(), q.cancel(1), q.status(mqrr.R_CREATE_CURSOR), q.close()):
            assert await fault(call) == NCA_FAULT_CONTEXT_MISMATCH
    assert (await elsewhere.read(PEEK)).status == OK


@pytest.mark.spec("MQRR-3.1.4.3-5")
@pytest.mark.spec("MQRR-3.1.4.3-1")
@pytest.mark.spec("MQRR-3.1.4.3-2")
@pytest.mark.spec("MQRR-3.1.4.3-3")
@served
async def test_closing(site: Site) -> None:
    q = await site.opened()
    null = await q.peer.call(REMOTE_READ, mqrr.R_CLOSE_QUEUE, pph_context=NULL_HANDLE)
    assert null[RETURNS] == MQ_ERROR_INVALID_HANDLE
    answer = await q.peer.raw(
        REMOTE_READ, 3, mqrr.R_CLOSE_QUEUE.encode_request({"pph_context": q.context}, Syntax.NDR20)
    )
    assert answer == bytes(24)


@pytest.mark.spec("MQRR-2.2.4-5")
@pytest.mark.spec("MQRR-2.2.4-6")
@pytest.mark.spec("MQRR-3.1.4.9-15")
@served
async def test_a_handle_serves_its_association(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    got = await q.read()
    sister = replace(q, peer=await site.peer(group=q.peer.group))
    assert await sister.end(got) == OK
    stranger = replace(q, peer=await site.peer())
    assert await fault(stranger.purge()) == NCA_FAULT_CONTEXT_MISMATCH


# Reads
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-1.3.3-1")
@pytest.mark.spec("MQRR-1.3.4-1")
@pytest.mark.spec("MQRR-3.1.4.7-8")
@pytest.mark.spec("MQRR-3.1.4.7-9")
@pytest.mark.spec("MQRR-3.1.4.9-2")
@pytest.mark.spec("MQRR-3.1.4.9-4")
@pytest.mark.spec("MQRR-3.1.4.9-5")
@pytest.mark.spec("MQRR-1.3.1-2/peek, receive and give back")
@served
async def test_a_receive_has_two_phases(site: Site) -> None:
    site.send(b"low", priority=1)
    site.send(b"first", b"second", priority=5)
    q, other = await site.opened(), await site.opened()
    seen = await q.read(PEEK)
    assert (await q.read(PEEK)).body == b"first"
    got = await q.read()
    assert (got.body, got.sequence_id) == (b"first", seen.sequence_id)
    assert (await other.read(PEEK)).body == b"second"
    assert await q.end(got, 1) == OK
    again = await q.read()
    assert (again.body, again.sequence_id) == (b"first", seen.sequence_id)
    assert await q.end(again) == OK
    assert site.count() == 2
    assert (await other.read()).body == b"second"
    assert (await other.read()).body == b"low"


@pytest.mark.spec("MQRR-1.3.1-2/a restart")
def test_a_lookup_identifier_outlives_a_restart(tmp_path: Path) -> None:
    async def seen(*bodies: bytes) -> list[tuple[bytes, int]]:
        async with serving(tmp_path, make=bool(bodies)) as site:
            site.send(*bodies)
            q = await site.opened()
            cursor = await q.cursor()
            first, second = await q.read(PEEK, cursor=cursor), await q.read(PEEK_NEXT, cursor=cursor)
            return [(one.body, one.lookup_id) for one in (first, second)]

    before = asyncio.run(seen(b"one", b"two"))
    assert [body for body, _ in before] == [b"one", b"two"]
    assert asyncio.run(seen()) == before


@pytest.mark.spec("MQRR-3.1.4.9-3")
def test_what_was_acknowledged_does_not_come_back(tmp_path: Path) -> None:
    async def life(*bodies: bytes) -> None:
        async with serving(tmp_path, make=bool(bodies)) as site:
            site.send(*bodies)
            q = await site.opened()
            if bodies:
                assert await q.end(await q.read()) == OK
            assert site.count() == 1
            assert (await q.read(PEEK)).body == b"two"

    asyncio.run(life(b"one", b"two"))
    asyncio.run(life())


@pytest.mark.spec("MQRR-3.1.4.7-11")
@pytest.mark.spec("MQRR-3.1.4.7-5")
@pytest.mark.spec("MQRR-3.1.4.7-51")
@pytest.mark.spec("MQRR-3.1.4.7-49")
@served
async def test_an_empty_queue(site: Site) -> None:
    q = await site.opened()
    got = await q.read(dw_request_id=7)
    assert got == Got(MQ_ERROR_IO_TIMEOUT, 0, 0, (), 7)
    assert await q.end(7) == MQ_ERROR_INVALID_HANDLE
    assert (await q.read(dw_request_id=7)).status == MQ_ERROR_IO_TIMEOUT


@pytest.mark.spec("MQRR-2.2.4.1-3")
@served
async def test_calls_of_another_connection_do_not_wait_for_a_read(site: Site) -> None:
    q = await site.opened()
    waiting = q.begin(RECEIVE, FOREVER)
    await q.cursor()
    sister = replace(q, peer=await site.peer(group=q.peer.group), _request_ids=q._request_ids)
    assert (await sister.read(RECEIVE, 0)).status == MQ_ERROR_IO_TIMEOUT
    assert await sister.cursor()
    assert not waiting.done()
    site.send(b"one")
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.7-10")
@pytest.mark.spec("MQRR-3.1.4.7-12")
@pytest.mark.spec("MQRR-3.1.2.1-4")
@served
async def test_a_read_waits(site: Site) -> None:
    q = await site.opened()
    waiting = [q.begin(RECEIVE, FOREVER), q.begin(RECEIVE, FOREVER)]
    assert await q.cursor()
    site.send(b"one")
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [one.result().body for one in done] == [b"one"]
    site.send(b"two")
    assert [(await one).body for one in pending] == [b"two"]


@pytest.mark.spec("MQRR-3.1.4.7-13")
@served
async def test_one_message_answers_the_peeks_before_a_receive(site: Site) -> None:
    q = await site.opened()
    waiting = [q.begin(PEEK, FOREVER), q.begin(PEEK, FOREVER), q.begin(RECEIVE, FOREVER)]
    await q.cursor()
    site.send(b"one")
    assert [(await one).body for one in waiting] == [b"one"] * 3


@pytest.mark.spec("MQRR-3.1.2.1-2")
@pytest.mark.spec("MQRR-3.1.2.1-3")
@served
async def test_a_time_out_is_in_milliseconds(site: Site) -> None:
    q = await site.opened()
    clock = asyncio.get_running_loop().time
    before = clock()
    assert (await q.read(RECEIVE, 300)).status == MQ_ERROR_IO_TIMEOUT
    assert clock() - before >= 0.29


@pytest.mark.spec("MQRR-3.1.4.8-1")
@pytest.mark.spec("MQRR-3.1.4.8-2")
@pytest.mark.spec("MQRR-3.1.4.8-3")
@pytest.mark.spec("MQRR-3.1.4.8-4")
@pytest.mark.spec("MQRR-3.1.4.8-5")
@pytest.mark.spec("MQRR-3.1.4.8-6")
@pytest.mark.spec("MQRR-3.1.4.8-9")
@pytest.mark.spec("MQRR-3.1.4.7-48")
@pytest.mark.spec("MQRR-2.2.4.1-4")
@pytest.mark.parametrize("action", [RECEIVE, PEEK])
@served
async def test_a_wait_is_cancelled(site: Site, action: int) -> None:
    q, other = await site.opened(), await site.opened()
    waiting = q.begin(action, FOREVER, dw_request_id=5)
    sister = q.begin(action, FOREVER, dw_request_id=6)
    elsewhere = other.begin(action, FOREVER, dw_request_id=5)
    await other.cursor()
    assert await q.cancel(5) == OK
    assert (await waiting).status == MQ_ERROR_OPERATION_CANCELLED
    # The other receive of the handle is an entry; a peek is none.
    assert await q.end(5) == (MQ_ERROR_INVALID_PARAMETER if action == RECEIVE else MQ_ERROR_INVALID_HANDLE)
    assert not sister.done()
    assert not elsewhere.done()
    assert await q.cancel(6) == await other.cancel(5) == OK
    assert await q.end(5) == MQ_ERROR_INVALID_HANDLE
    assert ((await sister).status, (await elsewhere).status) == (
        MQ_ERROR_OPERATION_CANCELLED,
        MQ_ERROR_OPERATION_CANCELLED,
    )
    assert await q.end(5) == MQ_ERROR_INVALID_HANDLE
    site.send(b"one")
    assert (await q.read(dw_request_id=5)).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.8-7")
@pytest.mark.spec("MQRR-3.1.4.8-8")
@served
async def test_there_is_nothing_to_cancel(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    assert await q.cancel(1) == STATUS_NOT_FOUND
    got = await q.read()
    assert await q.cancel(got.request_id) == STATUS_NOT_FOUND
    assert (await q.read(PEEK)).status == MQ_ERROR_IO_TIMEOUT
    assert await q.end(got) == OK


@pytest.mark.spec("MQRR-3.1.4.9-1")
@pytest.mark.spec("MQRR-3.1.4.9-9")
@pytest.mark.spec("MQRR-3.1.4.9-10")
@pytest.mark.spec("MQRR-3.1.4.9-11")
@pytest.mark.spec("MQRR-3.1.4.9-16")
@pytest.mark.spec("MQRR-3.1.4.9-19")
@pytest.mark.spec("MQRR-3.1.4.15-2")
@pytest.mark.spec("MQRR-3.1.4.15-4")
@pytest.mark.spec("MQRR-3.1.4.15-5")
@pytest.mark.spec("MQRR-3.1.4.15-26")
@served
async def test_which_request_is_ended(site: Site) -> None:
    site.send(b"one", b"two", b"three")
    q, other = await site.opened(), await site.opened()
    for method in (mqrr.R_END_RECEIVE, mqrr.R_END_TRANSACTIONAL_RECEIVE):
        assert await q.end(1, 2, method) == MQ_ERROR_INVALID_HANDLE
    one, two, three = [await q.read() for _ in range(3)]
    assert await other.end(one) == MQ_ERROR_INVALID_HANDLE
    for method in (mqrr.R_END_RECEIVE, mqrr.R_END_TRANSACTIONAL_RECEIVE):
        assert await q.end(99, 2, method) == MQ_ERROR_INVALID_PARAMETER
        for ack in (0, 3):
            stub = q.context + struct.pack("<II", ack, two.request_id)
            assert await fault(q.peer.raw(REMOTE_READ, method.opnum, stub)) == BAD_STUB
    assert await q.end(two) == OK
    assert await q.end(two) == MQ_ERROR_INVALID_PARAMETER
    assert await q.end(three, 1) == OK
    assert await q.end(one) == OK
    assert await q.end(one) == MQ_ERROR_INVALID_HANDLE
    assert (await q.read()).body == b"three"


@pytest.mark.spec("MQRR-3.1.4.9-13")
@pytest.mark.spec("MQRR-3.1.4.15-23")
@served
async def test_a_read_that_waits_cannot_be_ended(site: Site) -> None:
    q = await site.opened()
    waiting = q.begin(RECEIVE, FOREVER, dw_request_id=1)
    await q.cursor()
    assert await q.end(1) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert await q.end(1, 2, mqrr.R_END_TRANSACTIONAL_RECEIVE) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert await q.cancel(1) == OK
    assert (await waiting).status == MQ_ERROR_OPERATION_CANCELLED


@pytest.mark.spec("MQRR-3.1.4.7-7")
@pytest.mark.spec("MQRR-3.1.4.7-47")
@served
async def test_identifiers_of_requests(site: Site) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    assert (await q.read(PEEK, dw_request_id=1)).body == b"one"
    assert await q.end(1) == MQ_ERROR_INVALID_HANDLE
    got = await q.read(dw_request_id=1)
    assert (await q.read(dw_request_id=1)).status == MQ_ERROR_INVALID_PARAMETER
    assert await q.end(got) == OK
    assert (await q.read(dw_request_id=1)).body == b"two"


@pytest.mark.spec("MQRR-3.1.4.9-6")
@served
async def test_what_is_given_back_wakes_a_receive(site: Site) -> None:
    site.send(b"one")
    q, other = await site.opened(), await site.opened()
    got = await q.read()
    waiting = other.begin(RECEIVE, FOREVER)
    await other.cursor()
    assert await q.end(got, 1) == OK
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.9-18")
@served
async def test_a_removal_is_on_disk_before_it_is_answered(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    got = await q.read()
    held = asyncio.Event()

    async def disk(batch: int) -> None:
        await held.wait()
        await site.committer.really_durable(batch)

    site.committer.disk = disk
    ended = asyncio.ensure_future(q.end(got))
    await q.peer.call(REMOTE_READ, mqrr.R_GET_SERVER_PORT)
    await asyncio.sleep(0.05)
    assert not ended.done()
    held.set()
    assert await ended == OK


@pytest.mark.spec("MQRR-3.1.4.7-73")
@pytest.mark.spec("MQRR-3.1.4.9-23")
@pytest.mark.spec("MQRR-3.1.4.4-6")
@pytest.mark.spec("MQRR-3.1.4.13-10")
@pytest.mark.spec("MQRR-3.1.4.15-21")
@served
async def test_a_queue_that_was_deleted(site: Site) -> None:
    site.send(b"one", b"two", b"three")
    q = await site.opened()
    ended = [await q.read(), await q.read()]
    site.delete("q")
    assert (await q.read()).status == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert (await q.read(transaction=bytes(16))).status == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await q.end(ended[0]) == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await q.end(ended[1], 1, mqrr.R_END_TRANSACTIONAL_RECEIVE) == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await q.status(mqrr.R_CREATE_CURSOR) == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await q.close() == OK


@pytest.mark.spec("MQRR-3.1.4.7-50")
@served
async def test_a_wait_ends_with_its_queue(site: Site) -> None:
    q = await site.opened()
    waiting = q.begin(RECEIVE, FOREVER)
    await q.cursor()
    site.delete("q")
    assert (await waiting).status & 0x8000_0000


@pytest.mark.spec("MQRR-3.1.2.2-1")
@pytest.mark.spec("MQRR-3.1.2.2-2")
@pytest.mark.spec("MQRR-3.1.2.2-5")
@pytest.mark.spec("MQRR-3.1.5.1-7")
def test_a_receive_that_is_not_ended_is_given_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, cleanup_seconds=0.3) as site:
            q = await site.opened()
            waiting = q.begin(RECEIVE, FOREVER)
            await asyncio.sleep(0.4)
            site.send(b"one", b"two")
            late = await waiting
            assert late.body == b"one"
            ended = await q.read()
            assert await q.end(ended) == OK
            cursor = await q.cursor()
            await asyncio.sleep(0.5)
            assert await q.end(late) == MQ_ERROR_INVALID_HANDLE
            assert site.count() == 1
            assert (await q.read(PEEK, cursor=cursor)).body == b"one"

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.1.2.2-1")
@served
async def test_the_cleanup_time_is_five_minutes_unless_configured(site: Site) -> None:
    service = RemoteReadService(site.runtime.engine, site.committer, site.ports)
    loop = asyncio.get_running_loop()
    site.send(b"one")
    server = RpcServer([service.interface], users=site.runtime.users)
    port = await server.listen_tcp(ADDRESS, 0)
    peer = await Peer.connect(port, REMOTE_READ)
    try:
        before = loop.time()
        assert (await (await site.opened(peer=peer)).read()).body == b"one"
        (timer,) = cleanup_timers()
        assert before + 300 <= timer.when() <= loop.time() + 300
    finally:
        await peer.close()
        await server.stop()


def cleanup_timers() -> list[asyncio.TimerHandle]:
    """Return the timers that will give messages back."""
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [one for one in scheduled if one._callback is RemoteReadService._give_back and not one.cancelled()]


@pytest.mark.spec("MQRR-3.1.4.9-17")
@pytest.mark.parametrize("ack", [1, 2])
@served
async def test_an_end_stops_the_cleanup_timer(site: Site, ack: int) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    first, second = await q.read(), await q.read()
    assert len(cleanup_timers()) == 2
    assert await q.end(first, ack) == OK
    assert len(cleanup_timers()) == 1
    assert await q.end(second, ack) == OK
    assert cleanup_timers() == []


# Parameters of a read
# -------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.7-22")
@pytest.mark.spec("MQRR-3.1.4.7-32")
@pytest.mark.spec("MQRR-3.1.4.7-35")
@pytest.mark.spec("MQRR-3.1.4.7-36")
@pytest.mark.spec("MQRR-3.1.4.7-37")
@pytest.mark.spec("MQRR-3.1.4.7-43")
@pytest.mark.spec("MQRR-3.1.4.7-44")
@pytest.mark.spec("MQRR-3.1.4.13-11")
@pytest.mark.spec("MQRR-3.1.4.13-12")
@pytest.mark.spec("MQRR-3.1.4.13-13")
@pytest.mark.spec("MQRR-3.1.4.13-14")
@pytest.mark.spec("MQRR-3.1.4.13-15")
@pytest.mark.spec("MQRR-3.1.4.13-16")
@pytest.mark.spec("MQRR-3.1.4.13-17")
@pytest.mark.parametrize("transaction", [None, bytes(16)], ids=["R_StartReceive", "R_StartTransactionalReceive"])
@pytest.mark.parametrize(
    ("action", "changes"),
    [
        (PEEK_NEXT, {}),
        *((action, {}) for action in (LOOKUP_PEEK, LOOKUP_PEEK_PREV, LOOKUP_RECEIVE, LOOKUP_RECEIVE_PREV)),
        *((action, {"timeout": 1}) for action in (LOOKUP_PEEK_NEXT, LOOKUP_RECEIVE_NEXT)),
        *((action, {"cursor": 1}) for action in (LOOKUP_PEEK_NEXT, LOOKUP_RECEIVE_NEXT)),
        *((action, {"lookup_id": 1, "timeout": 1}) for action in (LOOKUP_PEEK, LOOKUP_RECEIVE)),
        *((action, {"lookup_id": 1, "cursor": 1}) for action in (LOOKUP_PEEK, LOOKUP_RECEIVE)),
        *((action, {"lookup_id": 1}) for action in (RECEIVE, PEEK, PEEK_NEXT)),
        *((action, {}) for action in (1, 0x80000002, 0x40000013, 0x40000014, 0x40000018, 0xFFFFFFFF)),
        (5, {"cursor": 77}),
    ],
)
@served
async def test_values_that_do_not_go_together(
    site: Site, action: int, changes: dict[str, int], transaction: bytes | None
) -> None:
    before = site.send(b"one")
    q = await site.opened()
    more: dict[str, Any] = {} if transaction is None else {"transaction": transaction}
    assert (await q.read(action, **changes, **more)).status == MQ_ERROR_INVALID_PARAMETER
    assert site.lookup_ids() == before
    assert (await q.read()).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.7-25")
@pytest.mark.spec("MQRR-3.1.4.7-26")
@pytest.mark.spec("MQRR-3.1.4.7-27")
@pytest.mark.spec("MQRR-3.1.4.7-28")
@pytest.mark.spec("MQRR-3.1.4.7-29")
@pytest.mark.spec("MQRR-3.1.4.7-30")
@pytest.mark.spec("MQRR-3.1.4.7-31")
@pytest.mark.spec("MQRR-3.1.4.7-33")
@pytest.mark.spec("MQRR-3.1.4.7-34")
@pytest.mark.spec("MQRR-3.1.4.7-38")
@pytest.mark.spec("MQRR-3.1.4.7-39")
@pytest.mark.spec("MQRR-3.1.4.7-40")
@pytest.mark.spec("MQRR-3.1.4.7-41")
@served
async def test_lookups(site: Site) -> None:
    one, two, three = site.send(b"one", b"two", b"three")
    q = await site.opened()
    peeks = {
        (LOOKUP_PEEK, two): b"two",
        (LOOKUP_PEEK_NEXT, one): b"two",
        (LOOKUP_PEEK_PREV, three): b"two",
        (LOOKUP_PEEK_NEXT, 0): b"one",
        (LOOKUP_PEEK_PREV, 0xFFFF_FFFF_FFFF_FFFF): b"three",
    }
    for (action, lookup_id), body in peeks.items():
        assert (await q.read(action, lookup_id=lookup_id)).body == body
        got = await q.read(action + 0x10, lookup_id=lookup_id)
        assert got.body == body
        assert (await q.read(LOOKUP_PEEK, lookup_id=got.lookup_id)).status == MQ_ERROR_TRANSACTION_USAGE
        assert (await q.read(LOOKUP_RECEIVE, lookup_id=got.lookup_id)).status == MQ_ERROR_MESSAGE_NOT_FOUND
        assert await q.end(got, 1) == OK
    assert (await q.read(LOOKUP_PEEK, lookup_id=three + 99)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await q.read(LOOKUP_PEEK_NEXT, lookup_id=three)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await q.read(LOOKUP_PEEK_PREV, lookup_id=one)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    got = await q.read(LOOKUP_RECEIVE, lookup_id=two)
    assert await q.end(got) == OK
    assert site.lookup_ids() == [one, three]


@pytest.mark.spec("MQRR-3.1.4.7-26")
@pytest.mark.spec("MQRR-3.1.4.7-27")
@pytest.mark.spec("MQRR-3.1.4.7-29")
@pytest.mark.spec("MQRR-3.1.4.7-30")
@pytest.mark.spec("MQRR-3.1.4.7-33")
@pytest.mark.spec("MQRR-3.1.4.7-34")
@served
async def test_lookups_pass_over_locked_messages(site: Site) -> None:
    first, one, two, three, last = site.send(b"first", b"one", b"two", b"three", b"last")
    q = await site.opened()
    for locked in (first, two, last):
        assert (await q.read(LOOKUP_RECEIVE, lookup_id=locked)).lookup_id == locked
    for action, lookup_id, body in (
        (LOOKUP_PEEK_NEXT, one, b"three"),
        (LOOKUP_PEEK_PREV, three, b"one"),
        (LOOKUP_PEEK_NEXT, 0, b"one"),
        (LOOKUP_PEEK_PREV, 0xFFFF_FFFF_FFFF_FFFF, b"three"),
    ):
        assert (await q.read(action, lookup_id=lookup_id)).body == body
        got = await q.read(action + 0x10, lookup_id=lookup_id)
        assert got.body == body
        assert await q.end(got, 1) == OK
    assert (await q.read(LOOKUP_PEEK_NEXT, lookup_id=three)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await q.read(LOOKUP_PEEK_PREV, lookup_id=one)).status == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("MQRR-3.1.4.2-10")
@pytest.mark.spec("MQRR-3.1.4.2-11")
@pytest.mark.spec("MQRR-3.1.4.7-45")
@pytest.mark.spec("MQRR-3.1.4.7-46")
@pytest.mark.spec("MQRR-3.1.4.6-2")
@pytest.mark.spec("MQRR-3.1.4.6-3")
@pytest.mark.spec("MQRR-3.1.4.4-5")
@pytest.mark.spec("MQRR-3.1.4.13-9")
@pytest.mark.spec("MQRR-3.1.4.14-17")
@served
async def test_a_handle_for_peeks_takes_nothing(site: Site) -> None:
    one, two = site.send(b"one", b"two")
    q = await site.opened(access=0x20)
    cursor = await q.cursor()
    assert (await q.read(PEEK)).body == (await q.read(PEEK, cursor=cursor)).body == b"one"
    assert (await q.read(PEEK_NEXT, cursor=cursor)).body == b"two"
    assert (await q.read(LOOKUP_PEEK, lookup_id=one)).body == b"one"
    assert (await q.read(LOOKUP_PEEK_NEXT, lookup_id=one)).body == b"two"
    assert (await q.read(LOOKUP_PEEK_PREV, lookup_id=two)).body == b"one"
    receives = ((RECEIVE, 0), (LOOKUP_RECEIVE, one), (LOOKUP_RECEIVE_NEXT, one), (LOOKUP_RECEIVE_PREV, two))
    for action, lookup_id in receives:
        assert (await q.read(action, lookup_id=lookup_id)).status == STATUS_ACCESS_DENIED
        assert (await q.read(action, lookup_id=lookup_id, transaction=bytes(16))).status == STATUS_ACCESS_DENIED
    assert await q.purge() == STATUS_ACCESS_DENIED
    rejected = await q.status(mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, lookup_id=one, us_class=0xC004)
    assert rejected == MQ_ERROR_INVALID_HANDLE
    assert site.lookup_ids() == [one, two]
    taking = await site.opened()
    assert (await taking.read(PEEK)).body == (await taking.read()).body == b"one"


# Cursors
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.4-1")
@pytest.mark.spec("MQRR-3.1.4.4-2")
@pytest.mark.spec("MQRR-3.1.4.4-3")
@pytest.mark.spec("MQRR-3.1.4.4-4")
@pytest.mark.spec("MQRR-1.3.4-2")
@pytest.mark.spec("MQRR-3.1.4.7-14")
@pytest.mark.spec("MQRR-3.1.4.7-15")
@pytest.mark.spec("MQRR-3.1.4.7-16")
@pytest.mark.spec("MQRR-3.1.4.7-17")
@pytest.mark.spec("MQRR-3.1.4.7-21")
@served
async def test_cursors_move_by_themselves(site: Site) -> None:
    site.send(b"one", b"two", b"three")
    q, other = await site.opened(), await site.opened()
    cursors = [await q.cursor() for _ in range(1000)]
    assert len({*cursors, await other.cursor()}) == 1001
    assert 0 not in cursors
    first, second = cursors[:2]
    assert (await q.read(PEEK_NEXT, cursor=first)).status == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert (await q.read(PEEK, cursor=first)).body == (await q.read(PEEK, cursor=first)).body == b"one"
    assert (await q.read(PEEK_NEXT, cursor=first)).body == b"two"
    assert (await q.read(PEEK, cursor=second)).body == b"one"
    got = await q.read(RECEIVE, cursor=first)
    assert got.body == b"two"
    assert await q.end(got) == OK
    assert (await q.read(PEEK, cursor=first)).body == b"three"


@pytest.mark.spec("MQRR-3.1.4.7-18")
@pytest.mark.spec("MQRR-3.1.4.7-19")
@pytest.mark.spec("MQRR-3.1.4.7-20")
@served
async def test_a_cursor_with_nothing_ahead(site: Site) -> None:
    site.send(b"one")
    q, other = await site.opened(), await site.opened()
    cursor = await q.cursor()
    assert (await q.read(PEEK, cursor=cursor)).body == b"one"
    got = await other.read()
    assert (await q.read(RECEIVE, cursor=cursor)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert (await q.read(PEEK, cursor=cursor)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert await other.end(got) == OK
    assert (await q.read(RECEIVE, cursor=cursor)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert (await q.read(PEEK, cursor=cursor)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    fresh = await q.cursor()
    assert (await q.read(PEEK, cursor=fresh)).status == MQ_ERROR_IO_TIMEOUT
    assert (await q.read(RECEIVE, cursor=await q.cursor())).status == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("MQRR-3.1.4.5-1")
@pytest.mark.spec("MQRR-3.1.4.5-2")
@pytest.mark.spec("MQRR-3.1.4.5-3")
@pytest.mark.spec("MQRR-3.1.4.5-4")
@pytest.mark.spec("MQRR-3.1.4.7-23")
@pytest.mark.spec("MQRR-3.1.4.7-24")
@served
async def test_cursors_belong_to_their_handle(site: Site) -> None:
    site.send(b"one")
    q, other = await site.opened(), await site.opened()
    cursor = await q.cursor()
    assert await other.close_cursor(cursor) == MQ_ERROR_INVALID_HANDLE
    assert (await other.read(PEEK, cursor=cursor)).status == STATUS_INVALID_HANDLE
    assert (await q.read(PEEK, cursor=cursor)).body == b"one"
    assert await q.close_cursor(cursor) == OK
    assert await q.close_cursor(cursor) == MQ_ERROR_INVALID_HANDLE
    assert (await q.read(PEEK, cursor=cursor)).status == STATUS_INVALID_HANDLE


@pytest.mark.spec("MQRR-3.1.4.5-5")
@pytest.mark.spec("MQRR-3.1.4.5-6")
@served
async def test_closing_a_cursor_ends_its_waits_and_no_receive(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    cursor = await q.cursor()
    got = await q.read(RECEIVE, cursor=cursor)
    waiting = q.begin(PEEK, FOREVER, cursor=cursor)
    await q.cursor()
    assert await q.close_cursor(cursor) == OK
    assert (await waiting).status == MQ_ERROR_OPERATION_CANCELLED
    assert await q.end(got) == OK
    assert site.count() == 0


# Purge, close, rundown
# ------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.6-1")
@pytest.mark.spec("MQRR-3.1.4.6-4")
@pytest.mark.spec("MQRR-3.1.4.6-5")
@pytest.mark.spec("MQRR-3.1.4.6-6")
@served
async def test_a_purge(site: Site) -> None:
    q, other = await site.opened(), await site.opened()
    assert await q.purge() == OK
    site.send(b"locked", b"one", b"two")
    got = await q.read()
    assert await q.purge() == OK
    waiting = other.begin(RECEIVE, FOREVER)
    await other.cursor()
    assert await q.end(got, 1) == OK
    assert site.count() == 0
    site.send(b"later")
    assert (await waiting).body == b"later"


@pytest.mark.spec("MQRR-3.1.4.3-7")
@pytest.mark.spec("MQRR-3.1.4.3-8/the wait of a receive")
@pytest.mark.spec("MQRR-3.1.4.3-9/the wait of a peek")
@pytest.mark.spec("MQRR-3.1.4.3-10")
@pytest.mark.spec("MQRR-3.1.4.3-11")
@pytest.mark.spec("MQRR-3.1.4.3-12")
@served
async def test_closing_gives_back_and_ends(site: Site) -> None:
    site.send(b"one", b"two")
    q, other = await site.opened(), await site.opened()
    cursor = await other.cursor()
    assert (await other.read(PEEK, cursor=cursor)).body == b"one"
    got, kept = await q.read(), await other.read()
    assert (got.body, kept.body) == (b"one", b"two")
    receive, peek = q.begin(RECEIVE, FOREVER), q.begin(PEEK, FOREVER)
    await q.cursor()
    assert await q.close() == OK
    assert ((await receive).status, (await peek).status) == (MQ_ERROR_OPERATION_CANCELLED, MQ_ERROR_OPERATION_CANCELLED)
    assert await other.end(kept) == OK
    assert (await other.read(PEEK, cursor=cursor)).body == b"one"


@pytest.mark.spec("MQRR-3.1.6.2-5")
@pytest.mark.parametrize("transaction", [None, bytes(16)], ids=["R_StartReceive", "R_StartTransactionalReceive"])
@served
async def test_a_read_that_waits_when_its_association_ends_takes_nothing(site: Site, transaction: bytes | None) -> None:
    q, other = await site.opened(), await site.opened()
    more: dict[str, Any] = {} if transaction is None else {"transaction": transaction}
    waiting = q.begin(RECEIVE, FOREVER, **more)
    await q.cursor()
    late = other.begin(RECEIVE, FOREVER)
    await other.cursor()
    q.peer.abort()
    await until(lambda: len(site.runtime.engine.opening.descriptors) == 1)
    site.send(b"one")
    assert (await late).body == b"one"
    waiting.cancel()


@pytest.mark.spec("MQRR-3.1.6.1-1")
@pytest.mark.spec("MQRR-3.1.6.1-2")
@pytest.mark.spec("MQRR-3.1.6.1-3")
@pytest.mark.spec("MQRR-3.1.6.2-1")
@pytest.mark.spec("MQRR-3.1.6.2-8")
@pytest.mark.parametrize("transaction", [None, bytes(16)], ids=["R_StartReceive", "R_StartTransactionalReceive"])
@served
async def test_the_end_of_an_association_runs_its_handles_down(site: Site, transaction: bytes | None) -> None:
    site.create("alone")
    site.send(b"one", b"two")
    q, other = await site.opened(), await site.opened()
    sister = await site.peer(group=q.peer.group)
    await site.opened("OS:.\\private$\\alone", share=1, peer=q.peer)
    cursor = await other.cursor()
    assert (await other.read(PEEK, cursor=cursor)).body == b"one"
    await q.cursor()
    more: dict[str, Any] = {} if transaction is None else {"transaction": transaction}
    assert (await q.read(**more)).body == b"one"
    q.peer.abort()
    await sister.call(REMOTE_READ, mqrr.R_GET_SERVER_PORT)
    await asyncio.sleep(0.05)
    assert await fault(site.opened("OS:.\\private$\\alone")) == MQ_ERROR_SHARING_VIOLATION
    waiting = replace(q, peer=sister).begin(RECEIVE, FOREVER, **more)
    assert (await waiting).body == b"two"
    sister.abort()
    engine = site.runtime.engine
    await until(lambda: len(engine.opening.descriptors) == 1)
    (descriptor,) = engine.opening.descriptors.values()
    assert len(descriptor.cursors) == 1
    assert await (await site.opened("OS:.\\private$\\alone", share=1)).close() == OK
    assert (await other.read(PEEK, cursor=cursor)).body == b"one"
    assert [(await other.read()).body for _ in range(2)] == [b"one", b"two"]


# Packets
# --------------------------------------------------------------------------------------------------


def extensions(got: Got) -> tuple[bytes, Extensions]:
    """The octets behind the headers of MS-MQMQ, and what they say."""
    octets = got.packet[got.message.end_of_headers :]
    return octets, Extensions.unpack_all(Reader(octets))


@pytest.mark.spec("MQRR-2.2.5-1")
@pytest.mark.spec("MQRR-2.2.5-2")
@pytest.mark.spec("MQRR-2.2.5-4")
@pytest.mark.spec("MQRR-2.2.5-5")
@pytest.mark.spec("MQRR-2.2.5.1-13")
@pytest.mark.spec("MQRR-2.2.5.1-14")
@pytest.mark.spec("MQRR-2.2.5.2-1")
@pytest.mark.spec("MQRR-2.2.5.2-2")
@pytest.mark.spec("MQRR-2.2.5.2-3")
@pytest.mark.spec("MQRR-2.2.5.2-4")
@pytest.mark.spec("MQRR-2.2.5.2-5")
@pytest.mark.spec("MQRR-2.2.5.3-1")
@pytest.mark.spec("MQRR-2.2.5.3-3")
@pytest.mark.spec("MQRR-2.2.5.3-4")
@pytest.mark.spec("MQRR-2.2.5.3-6")
@pytest.mark.spec("MQRR-2.2.5.3-9")
@pytest.mark.spec("MQRR-2.2.5.3-10")
@pytest.mark.spec("MQRR-2.2.5.5-1")
@pytest.mark.spec("MQRR-2.2.5.5-4")
@pytest.mark.spec("MQRR-2.2.5.1-10")
@served
async def test_the_packet_of_a_message(site: Site) -> None:
    site.send(b"body", label="label", extension=b"ext", app_specific=42, priority=6, correlation_id=bytes(range(20)))
    got = await (await site.opened()).read(PEEK)
    message = got.message
    assert got.packet[0] == 0x10
    assert got.packet[4:8] == b"LIOR"
    assert struct.unpack_from("<I", got.packet, 8)[0] == len(got.packet)
    assert not struct.unpack_from("<H", got.packet, 2)[0] & 0x10
    assert (message.body, message.label, message.extension, message.application_tag, message.priority) == (
        b"body",
        "label",
        b"ext",
        42,
        6,
    )
    assert bytes(message.correlation_identifier) == bytes(range(20))
    octets, _ = extensions(got)
    assert struct.unpack_from("<IIB", octets) == (12, 176, 0x12)
    assert octets[12 : 12 + 148] == struct.pack("<I", 148) + bytes(144)
    assert octets[160:] == struct.pack("<I", 28) + bytes(24)
    assert got.packet[32:48] == bytes(16)


@pytest.mark.spec("MQRR-2.2.5.1-2")
@pytest.mark.spec("MQRR-3.1.4.7-72")
@served
async def test_the_time_to_reach_the_queue_is_absolute(site: Site) -> None:
    site.send(b"one", time_to_reach_queue=1000)
    q = await site.opened()
    for _ in range(2):
        message = (await q.read(PEEK)).message
        assert message.time_to_reach_queue == message.sent_time + 1000


@pytest.mark.spec("MQRR-2.2.5.3-5")
@pytest.mark.spec("MQRR-2.2.5.3-7")
@pytest.mark.spec("MQRR-2.2.5.3-8")
@pytest.mark.spec("MQRR-3.1.4.10-2")
@pytest.mark.spec("MQRR-3.1.4.10-3")
@pytest.mark.spec("MQRR-3.1.4.10-4")
@pytest.mark.spec("MQRR-3.1.4.10-20")
@pytest.mark.spec("MQRR-3.1.4.10-34")
@pytest.mark.spec("MQRR-3.1.4.11-4")
@pytest.mark.spec("MQRR-3.1.4.11-18")
@pytest.mark.spec("MQRR-2.2.3-9")
@served
async def test_moves(site: Site) -> None:
    (one,) = site.send(b"one")
    q = await site.opened()
    peer = q.peer
    begun = int(site.runtime.engine.clock())
    sub, other, parent = [
        await site.opened_for_move(f"OS:.\\private$\\q{suffix}", peer) for suffix in (";sub", ";other", "")
    ]
    assert await q.move(sub.move_context, one) == OK
    assert (await q.read(PEEK)).status == MQ_ERROR_IO_TIMEOUT
    there = await site.opened("OS:.\\private$\\q;sub", peer=peer)
    got = await there.read(LOOKUP_PEEK, lookup_id=one)
    assert got.body == b"one"
    _, found = extensions(got)
    assert found.subqueue is not None
    assert (found.subqueue.move_counter, found.subqueue.subqueue_name) == (1, "sub")
    assert begun <= found.subqueue.last_move_time <= site.runtime.engine.clock()
    assert await there.move(other.move_context, one) == OK
    elsewhere = await site.opened("OS:.\\private$\\q;other", peer=peer)
    assert (await elsewhere.read(PEEK)).body == b"one"
    assert await elsewhere.move(parent.move_context, one) == OK
    back = await q.read(PEEK)
    assert back.body == b"one"
    _, found = extensions(back)
    assert found.subqueue is not None
    assert (found.subqueue.move_counter, found.subqueue.subqueue_name) == (3, "")


@pytest.mark.spec("MQRR-3.1.4.10-5")
@pytest.mark.spec("MQRR-3.1.4.10-8")
@pytest.mark.spec("MQRR-3.1.4.10-10")
@pytest.mark.spec("MQRR-3.1.4.10-11")
@pytest.mark.spec("MQRR-3.1.4.10-12")
@pytest.mark.spec("MQRR-3.1.4.10-14")
@pytest.mark.spec("MQRR-3.1.4.10-16")
@pytest.mark.spec("MQRR-3.1.4.10-18")
@pytest.mark.spec("MQRR-3.1.4.10-21")
@pytest.mark.spec("MQRR-3.1.4.10-24")
@pytest.mark.spec("MQRR-3.1.4.10-26")
@pytest.mark.spec("MQRR-3.1.4.10-27")
@pytest.mark.spec("MQRR-3.1.4.10-28")
@pytest.mark.spec("MQRR-3.1.4.10-36")
@pytest.mark.spec("MQRR-3.1.4.11-25")
@served
async def test_moves_that_are_refused(site: Site) -> None:
    site.create("far")
    site.create("t", transactional=True)
    one, two = site.send(b"one", b"two")
    q = await site.opened()
    peer = q.peer
    sub = await site.opened_for_move("OS:.\\private$\\q;sub", peer)
    same = await site.opened_for_move("OS:.\\private$\\q", peer)
    far = await site.opened_for_move("OS:.\\private$\\far;sub", peer)
    manager = site.runtime.engine.queue_manager
    manager.security = SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl((allow(ANONYMOUS.sid, 0x100000FF),))).pack()
    qm = manager.identifier
    machine = [
        await peer.call(REMOTE_READ, mqrr.R_OPEN_QUEUE_FOR_MOVE, **opening(QueueFormat(4, suffix, 0, qm), 4))
        for suffix in (0x82, 0x83)
    ]
    assert await q.move(far.move_context, one) == STATUS_INVALID_PARAMETER
    assert await q.move(far.move_context, one, UOW) == STATUS_INVALID_PARAMETER
    assert await q.move(same.move_context, one) == STATUS_INVALID_PARAMETER
    for opened in machine:
        assert await q.move(opened["p_move_context"], one) == STATUS_INVALID_PARAMETER
    there = await site.opened("OS:.\\private$\\q;sub", peer=peer)
    (three,) = site.send(b"three")
    assert await q.move(sub.move_context, three) == OK
    assert await there.move(sub.move_context, three) == STATUS_INVALID_PARAMETER
    assert (await there.read(PEEK)).body == b"three"
    assert await (await site.opened(access=0x20, peer=peer)).move(sub.move_context, one) == STATUS_ACCESS_DENIED
    assert await sub.move(sub.move_context, one) == STATUS_ACCESS_DENIED
    for number in (0, 1, int.from_bytes(q.context[4:12], "little")):
        assert await q.move(number, one) == MQ_ERROR_INVALID_HANDLE
    assert await (await site.opened()).move(sub.move_context, one) == MQ_ERROR_INVALID_HANDLE
    assert await q.move(sub.move_context, one, UOW) == MQ_ERROR_TRANSACTION_USAGE
    assert await q.move(sub.move_context, two + 50) == MQ_ERROR_MESSAGE_NOT_FOUND
    got = await q.read()
    assert await q.move(sub.move_context, one) == MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    assert await q.end(got, 1) == OK
    source = await site.opened("OS:.\\private$\\t", peer=peer)
    target = await site.opened_for_move("OS:.\\private$\\t;sub", peer)
    assert await source.move(target.move_context, 5, UOW) == MQ_ERROR_MESSAGE_NOT_FOUND
    (four,) = site.send(b"four", queue="t")
    assert await source.move(target.move_context, four, UOW) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert (await source.read()).body == b"four", "it is not locked"
    branch = Branch(coordinator_of(site.runtime.engine).identifier, uuid.uuid4(), "mover")
    assert await enlist(peer, branch.transaction.bytes_le, pack_token(branch)) == OK
    assert await q.move(sub.move_context, one, branch.transaction.bytes_le) == MQ_ERROR_TRANSACTION_USAGE
    assert await sub.close() == OK
    assert await q.move(sub.move_context, one) == MQ_ERROR_INVALID_HANDLE
    assert site.lookup_ids() == [one, two]


@pytest.mark.spec("MQRR-3.1.4.11-12")
@pytest.mark.spec("MQRR-3.1.4.11-19")
@pytest.mark.spec("MQRR-3.1.4.11-20")
@pytest.mark.spec("MQRR-3.1.4.11-21")
@pytest.mark.spec("MQRR-3.1.4.11-22")
@served
async def test_a_handle_for_moves_reads_nothing(site: Site) -> None:
    (one,) = site.send(b"one")
    peer = await site.peer()
    opened = [await site.opened_for_move("OS:.\\private$\\q", peer) for _ in range(1000)]
    assert len({one.move_context >> 32 for one in opened}) > 990
    q = opened[0]
    source = await site.opened("OS:.\\private$\\q;sub", peer=peer)
    sub = await site.opened_for_move("OS:.\\private$\\q;sub", peer)
    queue = await site.opened(peer=peer)
    for target in (opened[0], opened[500], opened[-1]):
        assert await queue.move(sub.move_context, one) == OK
        assert await source.move(target.move_context, one) == OK
    for action, lookup_id in ((RECEIVE, 0), (PEEK, 0), (LOOKUP_PEEK, one)):
        assert (await q.read(action, lookup_id=lookup_id)).status == STATUS_ACCESS_DENIED
        assert (await q.read(action, lookup_id=lookup_id, transaction=bytes(16))).status == STATUS_ACCESS_DENIED
    assert await q.purge() == STATUS_ACCESS_DENIED
    assert await q.close() == OK
    assert (await (await site.opened()).read()).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.7-52")
@pytest.mark.spec("MQRR-3.1.4.7-53")
@pytest.mark.spec("MQRR-3.1.4.7-54")
@pytest.mark.spec("MQRR-3.1.4.7-55")
@served
async def test_arrival_and_sequence(site: Site) -> None:
    (lookup_id,) = site.send(b"one", priority=2)
    with site.runtime.lock:
        record = site.runtime.store.get(site.operations.find(".\\private$\\q").number, lookup_id)
    assert record is not None
    q = await site.opened()
    seen, got = await q.read(PEEK), await q.read()
    assert seen.arrived == got.arrived == record.arrived
    assert seen.sequence_id == got.sequence_id == lookup_id & (1 << 56) - 1
    assert got.lookup_id == lookup_id


@pytest.mark.spec("MQRR-2.2.6-4")
@pytest.mark.spec("MQRR-2.2.6-5")
@pytest.mark.spec("MQRR-2.2.6-6")
@pytest.mark.spec("MQRR-2.2.6-7")
@pytest.mark.spec("MQRR-2.2.7-1")
@pytest.mark.spec("MQRR-2.2.7-2")
@pytest.mark.spec("MQRR-2.2.7-3")
@pytest.mark.spec("MQRR-3.1.4.7-56")
@pytest.mark.spec("MQRR-3.1.4.7-57")
@pytest.mark.spec("MQRR-3.1.4.7-58")
@pytest.mark.spec("MQRR-3.1.4.7-59")
@pytest.mark.spec("MQRR-3.1.4.7-60")
@pytest.mark.spec("MQRR-3.1.4.7-61")
@pytest.mark.spec("MQRR-3.1.4.7-63")
@pytest.mark.spec("MQRR-3.1.4.7-65")
@pytest.mark.spec("MQRR-3.1.4.7-66")
@pytest.mark.spec("MQRR-3.1.4.7-71")
@BOTH
@served
async def test_sections(site: Site, syntax: Syntax) -> None:
    body = b"twelve octets and one"
    site.send(body, b"")
    q = await site.opened(peer=await site.peer(syntax=syntax))
    (whole,) = (await q.read(PEEK, dw_max_body_size=len(body))).sections
    assert (whole.section_buffer_type, whole.section_size) == (0, whole.section_size_alloc)
    packet = whole.p_section_buffer
    assert packet is not None
    assert len(packet) == whole.section_size
    start = packet.index(body)
    for size in (0, 1, 5, len(body) - 1):
        got = await q.read(PEEK, dw_max_body_size=size, dw_max_compound_message_size=FOREVER)
        first, second = got.sections
        assert (first.section_buffer_type, second.section_buffer_type) == (1, 2)
        assert first.p_section_buffer == packet[: start + size]
        assert first.section_size == start + size
        assert first.section_size_alloc % 4 == 0
        assert first.section_size_alloc - start - len(body) in range(4)
        assert second.p_section_buffer == packet[first.section_size_alloc :]
        assert second.section_size == second.section_size_alloc == len(packet) - first.section_size_alloc
    got = await q.read(RECEIVE, dw_max_body_size=0)
    assert await q.end(got) == OK
    (empty,) = (await q.read(PEEK, dw_max_body_size=0)).sections
    assert empty.section_buffer_type == 0
    assert site.count() == 1


@pytest.mark.spec("MQRR-3.1.4.7-6")
@served
async def test_a_large_message_comes_whole(site: Site) -> None:
    body = bytes(range(256)) * (4 * 1024 * 1024 // 256 - 8)
    site.send(body)
    q = await site.opened()
    assert (await q.read(PEEK)).body == body
    assert max(q.peer.fragments) <= 5840


@pytest.mark.spec("MQRR-3.1.4.7-1")
@pytest.mark.spec("MQRR-3.1.4.7-2")
@pytest.mark.spec("MQRR-3.1.4.7-4")
@pytest.mark.spec("MQRR-2.2.6-1")
@pytest.mark.spec("MQRR-2.2.6-3")
@pytest.mark.spec("MQRR-2.2.1-1")
@served
async def test_the_octets_of_a_read(site: Site) -> None:
    (one,) = site.send(b"abc")
    q = await site.opened()
    asked = struct.pack("<20s4xQIIIIII", q.context, one, 0, LOOKUP_RECEIVE, 0, 9, 2, 0)
    assert len(asked) == 56
    answer = await q.peer.raw(REMOTE_READ, 7, asked)
    assert await q.end(9, 1) == OK
    arrived, sequence, count, referent, most = struct.unpack_from("<I4xQIII", answer)
    assert (bool(arrived), bool(sequence), count, bool(referent), most) == (True, True, 2, True, 2)
    first = struct.unpack_from("<H2xIII", answer, 28)
    second = struct.unpack_from("<H2xIII", answer, 44)
    assert (first[0], second[0]) == (1, 2)
    assert struct.unpack_from("<I", answer, 60)[0] == first[2]
    assert answer[64:65] == b"\x10"
    assert answer[64 : 64 + first[2]].endswith(b"ab")
    at = 64 + first[2] + -first[2] % 4
    assert struct.unpack_from("<I", answer, at)[0] == second[2]
    assert answer[-4:] == bytes(4)
    assert len(answer) == at + 4 + second[2] + -second[2] % 4 + 4
    # The numbers that a lookup has not: a cursor, and a time to wait.
    cursor = await q.cursor()
    answer = await q.peer.raw(
        REMOTE_READ, 7, struct.pack("<20s4xQIIIIII", q.context, 0, cursor, PEEK, 1_000, 10, 0xFFFFFFFF, 0)
    )
    assert struct.unpack_from("<I", answer, 16) == (1,)


@pytest.mark.spec("MQRR-3.1.4.10-1")
@pytest.mark.spec("MQRR-3.1.4.11-1")
@served
async def test_the_octets_of_a_move(site: Site) -> None:
    (one,) = site.send(b"one")
    q = await site.opened()
    name = "OS:.\\private$\\q;sub"
    arguments = opening(QueueFormat(8, 0, 0, name), 4)
    opened = await q.peer.raw(REMOTE_READ, 11, mqrr.R_OPEN_QUEUE_FOR_MOVE.encode_request(arguments, Syntax.NDR20))
    assert len(opened) == 28
    move_context, context = struct.unpack("<Q20s", opened)
    asked = struct.pack("<20s4xQQ16s", q.context, move_context, one, bytes(16))
    assert len(asked) == 56
    assert await q.peer.raw(REMOTE_READ, 10, asked) == bytes(4)
    assert await replace(q, context=context).close() == OK
    assert (await (await site.opened(name, peer=q.peer)).read()).body == b"one"


# Transactions
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.12-1")
@pytest.mark.spec("MQRR-3.1.4.12-2")
@pytest.mark.spec("MQRR-3.1.4.12-3")
@pytest.mark.spec("MQRR-3.1.4.12-4")
@pytest.mark.spec("MQRR-3.1.4.12-6")
@pytest.mark.spec("MQRR-3.1.4.12-8")
@pytest.mark.spec("MQRR-3.1.4.12-10")
@served
async def test_tokens_that_are_not_ours(site: Site) -> None:
    peer = await site.peer()
    name = "OS:.\\private$\\q"

    def stub(uow: bytes, token: bytes, size: int | None = None) -> bytes:
        size = len(token) if size is None else size
        characters = name.encode("utf-16-le") + bytes(2)
        tail = struct.pack("<BBHB3xI", 3, 0, 0, 3, 0x20000)
        tail += struct.pack("<III", len(characters) // 2, 0, len(characters) // 2) + characters
        return uow + struct.pack("<II", size, len(token)) + token + bytes(-len(token) % 4) + tail

    dtc = struct.pack("<II", 1, 2) + UOW + bytes(20)
    for uow, token, status in (
        (UOW, dtc, MQ_ERROR_DTC_CONNECT),
        (UOW, b"", MQ_ERROR_TRANSACTION_IMPORT),
        (UOW, b"nonsense", MQ_ERROR_TRANSACTION_IMPORT),
        (UOW, bytes(131072), MQ_ERROR_TRANSACTION_IMPORT),
        (bytes(16), dtc, MQ_ERROR_INVALID_PARAMETER),
    ):
        assert await peer.raw(REMOTE_READ, 12, stub(uow, token)) == struct.pack("<I", status)
    assert await fault(peer.raw(REMOTE_READ, 12, stub(UOW, bytes(131073)))) == BAD_STUB
    assert await fault(peer.raw(REMOTE_READ, 12, stub(UOW, bytes(8), 12))) == BAD_STUB


@pytest.mark.spec("MQRR-3.1.4.12-7")
@pytest.mark.spec("MQRR-3.1.4.13-18")
@pytest.mark.spec("MQRR-3.1.4.13-19")
@pytest.mark.spec("MQRR-3.1.4.13-20")
@pytest.mark.spec("MQRR-3.1.4.13-21")
@served
async def test_a_transaction_that_is_not_enlisted(site: Site) -> None:
    site.create("t", transactional=True)
    site.send(b"one")
    q, t = await site.opened(), await site.opened("OS:.\\private$\\t")
    site.send(b"two", queue="t")
    for token, status in (
        (b"nonsense", MQ_ERROR_TRANSACTION_IMPORT),
        (struct.pack("<II", 1, 2) + UOW + bytes(20), MQ_ERROR_DTC_CONNECT),
    ):
        assert await enlist(t.peer, UOW, token) == status
        assert (await t.read(transaction=UOW)).status == MQ_ERROR_TRANSACTION_SEQUENCE
    assert (await t.read()).body == b"two", "it is not locked"
    assert (await q.read(transaction=UOW)).status == MQ_ERROR_TRANSACTION_USAGE
    invalid = await q.read(LOOKUP_RECEIVE, 1, lookup_id=1, transaction=UOW)
    assert invalid.status == MQ_ERROR_INVALID_PARAMETER
    for handle in (q, t):
        closed = await handle.cursor()
        assert await handle.close_cursor(closed) == OK
        of_another = await (t if handle is q else q).cursor()
        for cursor in (closed, of_another, closed + 1000):
            assert (await handle.read(cursor=cursor, transaction=UOW)).status == STATUS_INVALID_HANDLE
    assert (await q.read()).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.13-5")
@pytest.mark.spec("MQRR-3.1.4.13-6")
@pytest.mark.spec("MQRR-3.1.4.13-7")
@pytest.mark.spec("MQRR-3.1.4.15-27")
@pytest.mark.spec("MQRR-1.3.5-1")
@pytest.mark.parametrize("is_transactional", [False, True])
@served
async def test_without_a_transaction_both_reads_are_one(site: Site, is_transactional: bool) -> None:
    site.create("other", transactional=is_transactional)
    site.send(b"one", b"two", b"three", queue="other")
    q = await site.opened("OS:.\\private$\\other")
    assert (await q.read(PEEK, transaction=bytes(16))).body == b"one"
    for begins, ends in (
        ({"transaction": bytes(16)}, mqrr.R_END_TRANSACTIONAL_RECEIVE),
        ({}, mqrr.R_END_TRANSACTIONAL_RECEIVE),
        ({"transaction": bytes(16)}, mqrr.R_END_RECEIVE),
    ):
        before = site.count("other")
        assert await q.end(await q.read(**begins), 2, ends) == OK
        assert site.count("other") == before - 1


@pytest.mark.spec("MQRR-3.1.4.14-1")
@pytest.mark.spec("MQRR-3.1.4.14-11")
@pytest.mark.spec("MQRR-3.1.4.14-12")
@pytest.mark.spec("MQRR-3.1.4.14-13")
@served
async def test_a_rejection_outside_a_transaction(site: Site) -> None:
    one, two = site.send(b"one", b"two")
    q = await site.opened()
    got = await q.read()
    for lookup_id, status in (
        (one, MQ_ERROR_TRANSACTION_USAGE),
        (two, MQ_ERROR_TRANSACTION_USAGE),
        (two + 9, MQ_ERROR_MESSAGE_NOT_FOUND),
    ):
        stub = struct.pack("<20s4xQH", q.context, lookup_id, 0xC004)
        assert len(stub) == 34
        assert await q.peer.raw(REMOTE_READ, 14, stub) == struct.pack("<I", status)
    assert (await q.read(PEEK)).body == b"two"
    assert await q.end(got) == OK
