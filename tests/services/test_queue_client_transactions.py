"""Internal transactions through qmcomm, and sends and receives in them.

MS-MQMP 3.1.4.12 to 3.1.4.16 and 3.1.7.3.
"""

from __future__ import annotations

import asyncio
import uuid

import pytest

from lanner.model.errors import MessageStorageFailed
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE
from lanner.services.interfaces import mqmp
from lanner.wire.identifiers import MessageIdentifier
from tests.services.queue_client_peer import SEND, Begun, Open, Peer, Site, served, with_old
from tests.services.site import until
from tests.statuses import (
    MQ_ERROR_DTC_CONNECT,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    MQ_ERROR_TRANSACTION_USAGE,
    NCA_FAULT_CONTEXT_MISMATCH,
)

OK = 0
INFINITE = 0xFFFF_FFFF
T = r"DIRECT=OS:.\private$\t"


async def transactional(site: Site, peer: Peer) -> tuple[Open, Open]:
    """A queue for sending and for receiving."""
    site.create("t", transactional=True)
    return await peer.open(T, SEND), await peer.open(T)


async def filled(site: Site, peer: Peer, *bodies: bytes) -> tuple[Open, Open]:
    sender, reader = await transactional(site, peer)
    begun = await peer.begin()
    for body in bodies:
        assert (await sender.send(body, begun))[RETURNS] == OK
    assert (await begun.commit())[RETURNS] == OK
    return sender, reader


@served
async def test_sends_are_there_when_the_transaction_is_committed(site: Site) -> None:
    """3.1.4.15 R_QMCommitTransaction; 2.2.3.3 for what a reader gets."""
    peer = await site.peer()
    sender, reader = await transactional(site, peer)
    begun = await peer.begin()
    identifiers = [(await sender.send(body, begun))["p_message_id"] for body in (b"one", b"two", b"three")]
    assert (await reader.read()).status == MQ_ERROR_IO_TIMEOUT
    assert await begun.commit() == {"ph_int_xact": NULL_HANDLE, RETURNS: OK}
    assert len(site.queue_client.transactions) == 0
    found = [await reader.read() for _ in range(3)]
    assert [one.body for one in found] == [b"one", b"two", b"three"]
    assert [one.message.identifier for one in found] == identifiers
    assert [one.buffer.pb_first_in_xact for one in found] == [1, 0, 0]
    assert [one.buffer.pb_last_in_xact for one in found] == [0, 0, 1]
    (xact,) = {one.buffer.pp_xact_id.value for one in found if one.buffer.pp_xact_id is not None}
    assert isinstance(xact, MessageIdentifier)
    assert xact.queue_manager_guid == site.runtime.engine.queue_manager.identifier
    assert {one.buffer.old.p_delivery for one in found} == {1}


@served
async def test_nothing_of_an_aborted_transaction_is_left(site: Site) -> None:
    """3.1.4.16 R_QMAbortTransaction: sends are undone, receives given back."""
    peer = await site.peer()
    sender, reader = await filled(site, peer, b"kept")
    begun = await peer.begin()
    assert (await reader.read(transaction=begun)).body == b"kept"
    assert (await sender.send(b"undone", begun))[RETURNS] == OK
    assert site.bodies("t") == []
    assert await begun.abort() == {"ph_int_xact": NULL_HANDLE, RETURNS: OK}
    assert site.bodies("t") == [b"kept"]


@served
async def test_a_receive_is_a_receive_when_the_transaction_is_committed(site: Site) -> None:
    peer = await site.peer()
    _, reader = await filled(site, peer, b"one", b"two")
    begun = await peer.begin()
    assert (await reader.read(transaction=begun)).body == b"one"
    assert (await begun.commit())[RETURNS] == OK
    assert site.bodies("t") == [b"two"]


@served
async def test_a_unit_of_work_is_enlisted_once(site: Site) -> None:
    """3.1.4.14 R_QMEnlistInternalTransaction: MQ_ERROR_TRANSACTION_SEQUENCE for every caller."""
    peer, other = await site.peer(), await site.peer()
    begun = await peer.begin()
    for one in (peer, other):
        results = await one.call(mqmp.R_QM_ENLIST_INTERNAL_TRANSACTION, p_uow=begun.uow.bytes_le)
        assert results == {RETURNS: MQ_ERROR_TRANSACTION_SEQUENCE, "ph_int_xact": NULL_HANDLE}
    results = await peer.call(mqmp.R_QM_ENLIST_INTERNAL_TRANSACTION, p_uow=bytes(16))
    assert results[RETURNS] == MQ_ERROR_INVALID_PARAMETER
    assert (await begun.abort())[RETURNS] == OK
    # It is free again.
    await other.begin(begun.uow)


@served
async def test_a_transaction_is_good_in_its_association_only(site: Site) -> None:
    """PUow is no handle, so the runtime does not look after it."""
    peer, stranger = await site.peer(), await site.peer()
    sender, _ = await transactional(site, peer)
    begun = await peer.begin()
    theirs = await stranger.open(T, SEND)
    assert (await theirs.send(b"x", begun))[RETURNS] == MQ_ERROR_TRANSACTION_SEQUENCE
    assert (await (await stranger.open(T)).read(transaction=begun)).status == MQ_ERROR_TRANSACTION_SEQUENCE
    for method in (mqmp.R_QM_COMMIT_TRANSACTION, mqmp.R_QM_ABORT_TRANSACTION):
        assert await stranger.fault(method, ph_int_xact=begun.handle) == NCA_FAULT_CONTEXT_MISMATCH
    friend = await site.peer(group=peer.client.assoc_group_id)
    assert (await sender.send(b"y", begun))[RETURNS] == OK
    assert (await Begun(friend, begun.uow, begun.handle).commit())[RETURNS] == OK
    assert site.bodies("t") == [b"y"]


@served
async def test_what_has_ended_is_over(site: Site) -> None:
    """Double commit, use after commit, a queue's handle for a transaction's."""
    peer = await site.peer()
    sender, reader = await transactional(site, peer)
    begun = await peer.begin()
    assert (await begun.commit())[RETURNS] == OK
    for again in (begun.commit, begun.abort):
        with pytest.raises(RpcFault) as caught:
            await again()
        assert caught.value.status == NCA_FAULT_CONTEXT_MISMATCH
    assert (await sender.send(b"x", begun))[RETURNS] == MQ_ERROR_TRANSACTION_SEQUENCE
    assert (await reader.read(transaction=begun)).status == MQ_ERROR_TRANSACTION_SEQUENCE
    assert await peer.fault(mqmp.R_QM_COMMIT_TRANSACTION, ph_int_xact=sender.handle) == NCA_FAULT_CONTEXT_MISMATCH
    other = await peer.begin()
    assert await peer.fault(mqmp.RPC_AC_CLOSE_HANDLE, ph_queue=other.handle) == NCA_FAULT_CONTEXT_MISMATCH
    for method in (mqmp.R_QM_COMMIT_TRANSACTION, mqmp.R_QM_ABORT_TRANSACTION):
        assert await peer.status(method, ph_int_xact=NULL_HANDLE) == MQ_ERROR_INVALID_HANDLE


@served
async def test_transactional_queues_want_transactions_and_others_none(site: Site) -> None:
    """Note 72: MQ_ERROR_TRANSACTION_USAGE."""
    peer = await site.peer()
    sender, reader = await transactional(site, peer)
    assert (await sender.send(b"x"))[RETURNS] == MQ_ERROR_TRANSACTION_USAGE
    begun = await peer.begin()
    plain = await peer.open(access=SEND)
    assert (await plain.send(b"x", begun))[RETURNS] == MQ_ERROR_TRANSACTION_USAGE
    assert (await reader.peek(transaction=begun)).status == MQ_ERROR_TRANSACTION_USAGE
    # A pUow of zeros is none.
    from lanner.services.queue_client_buffers import send_buffer
    from lanner.wire.builder import MessageProperties

    zeros = with_old(send_buffer(MessageProperties()), p_uow=bytes(16))
    assert (await plain.send(buffer=zeros))[RETURNS] == OK
    assert (await sender.send(buffer=zeros))[RETURNS] == MQ_ERROR_TRANSACTION_USAGE


@served
async def test_the_association_s_end_aborts_its_transactions(site: Site) -> None:
    """3.1.7.3: the rundown of RPC_INT_XACT_HANDLE; locks are given back."""
    peer = await site.peer()
    sender, reader = await filled(site, peer, b"kept")
    begun = await peer.begin()
    assert (await reader.read(transaction=begun)).body == b"kept"
    assert (await sender.send(b"undone", begun))[RETURNS] == OK
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE, transaction=begun))
    await site.waiting(1, "t")
    await peer.client.close()
    with pytest.raises(Exception, match="the connection was closed"):
        await waiting
    await until(lambda: len(site.queue_client.transactions) == 0)
    assert not site.runtime.engine.queue_manager.transaction_collection
    assert site.bodies("t") == [b"kept"]
    assert site.count("t") == 1


@served
async def test_a_transaction_outlives_one_of_several_connections(site: Site) -> None:
    peer = await site.peer()
    sender, _ = await transactional(site, peer)
    friend = await site.peer(group=peer.client.assoc_group_id)
    begun = await peer.begin()
    assert (await sender.send(b"x", begun))[RETURNS] == OK
    await peer.client.close()
    assert (await Begun(friend, begun.uow, begun.handle).commit())[RETURNS] == OK
    assert site.bodies("t") == [b"x"]


@pytest.mark.parametrize("end", ["commit", "abort"])
@served
async def test_a_read_that_waits_in_a_transaction_ends_with_it(site: Site, end: str) -> None:
    peer = await site.peer()
    sender, reader = await transactional(site, peer)
    begun = await peer.begin()
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE, transaction=begun))
    await site.waiting(1, "t")
    assert (await getattr(begun, end)())[RETURNS] == OK
    assert (await waiting).status == MQ_ERROR_TRANSACTION_SEQUENCE
    later = await peer.begin()
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE, transaction=later))
    await site.waiting(1, "t")
    other = await peer.begin()
    assert (await sender.send(b"x", other))[RETURNS] == OK
    assert (await other.commit())[RETURNS] == OK
    assert (await waiting).body == b"x"
    assert site.bodies("t") == []
    assert (await later.abort())[RETURNS] == OK
    assert site.bodies("t") == [b"x"]


@served
async def test_a_cancelled_read_leaves_its_transaction_as_it_was(site: Site) -> None:
    peer = await site.peer()
    _, reader = await filled(site, peer, b"one")
    begun = await peer.begin()
    assert (await reader.read(transaction=begun)).body == b"one"
    waiting = asyncio.ensure_future(reader.read(timeout=INFINITE, transaction=begun))
    await site.waiting(1, "t")
    waiting.cancel()
    await site.waiting(0, "t")
    assert (await begun.commit())[RETURNS] == OK
    assert site.count("t") == 0


@served
async def test_a_commit_is_answered_when_it_is_on_disk(site: Site) -> None:
    """An answer before that would be false; the handle is closed either way."""
    peer = await site.peer()
    sender, _ = await transactional(site, peer)
    begun = await peer.begin()
    assert (await sender.send(b"x", begun))[RETURNS] == OK
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    site.committer.outcome = gate
    answer = asyncio.ensure_future(begun.commit())
    await until(lambda: len(site.queue_client.transactions) == 0)
    # The connection goes on meanwhile.
    assert await peer.status(mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=0) == site.port
    assert not answer.done()
    gate.set_exception(MessageStorageFailed("no room"))
    assert await answer == {"ph_int_xact": NULL_HANDLE, RETURNS: MessageStorageFailed.status}


@served
async def test_there_is_no_distributed_transaction_coordinator(site: Site) -> None:
    """3.1.4.12 R_QMGetTmWhereabouts and 3.1.4.13 R_QMEnlistTransaction: "a failure HRESULT"."""
    peer = await site.peer()
    for size in (0, 100):
        results = await peer.call(mqmp.R_QM_GET_TM_WHEREABOUTS, cb_buf_size=size)
        assert results == {"pb_whereabouts": bytes(size), "pcb_whereabouts": 0, RETURNS: MQ_ERROR_DTC_CONNECT}
    uow = uuid.uuid4()
    arguments = {"p_uow": uow.bytes_le, "cb_cookie": 3, "pb_cookie": b"abc"}
    assert await peer.status(mqmp.R_QM_ENLIST_TRANSACTION, **arguments) == MQ_ERROR_DTC_CONNECT
    assert not site.runtime.engine.queue_manager.transaction_collection
    # "The transaction has already been enlisted."
    await peer.begin(uow)
    assert await peer.status(mqmp.R_QM_ENLIST_TRANSACTION, **arguments) == OK
