"""Conditions of a client's calls (MS-MQQP 1.7 to 2.2, 3.1.6).

Covered: binds, versions, ports, handles of others, and durability.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lanner.model.errors import CUSTOMER_BIT, InsufficientResources, StatusError
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.services.interfaces import mqqp
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.ports import ServerPorts
from lanner.services.remote_read import MQ_ACTION_PEEK_CURRENT
from tests.services.remote_read_peer import NDR20, NDR64, Fault, Peer, RemoteOpen, Site, context, served, serving
from tests.services.site import until
from tests.statuses import (
    MQ_ERROR_INVALID_PARAMETER,
    MQ_INFORMATION_REMOTE_CANCELED,
    NCA_FAULT_CONTEXT_MISMATCH,
    NCA_OP_RNG_ERROR,
    STATUS_SHARING_VIOLATION,
)

OK = 0
BAD_STUB = 0x6F7
LONG = 3_600_000
ACCEPTANCE, PROVIDER_REJECTION, NEGOTIATE_ACK = 0, 2, 3
BOTH = pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])


async def use_every_method(site: Site, peer: Peer) -> set[int]:
    """Call all eleven; the opnums that did what they should."""
    done = set()

    async def has(opnum: int, call: Awaitable[int]) -> None:
        assert await call == OK
        done.add(opnum)

    (lookup_id, *_) = site.send(b"one", b"two", b"three")
    version = await peer.call(QM2QM, mqqp.REMOTE_QM_GET_VERSION)
    assert version == {"p_major": 6, "p_minor": 1, "p_build_number": 7601}
    done.add(8)
    port = await peer.call(QM2QM, mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=1)
    assert port[RETURNS] == site.port
    done.add(7)
    q = await peer.opened()
    done.add(2)
    cursor = await peer.create_cursor(q.handle)
    first = await q.read()
    assert first.body == b"one"
    done.add(0)
    await has(1, q.end(first, ack=1))
    second = await q.read2(MQ_ACTION_PEEK_CURRENT, cursor=cursor)
    assert (second.body, second.sequential_id) == (b"one", lookup_id & (1 << 56) - 1)
    done.add(9)
    third = await q.look_up(lookup_id, 0x40000020)
    assert third.body == b"one"
    await has(1, q.end(third))
    done.add(10)
    await has(4, q.close_cursor(cursor))
    await has(6, q.purge())
    assert site.count() == 0
    waiting = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=99))
    await site.waiting(1)
    await has(5, q.cancel(99))
    assert (await waiting).status == MQ_INFORMATION_REMOTE_CANCELED
    await has(3, q.close())
    return done


@pytest.mark.spec("MQQP-1.7-1", "MQQP-2.2-1", "MQQP-2.2-2", "MQQP-2.1-3", "MQQP-2.1-4", "MQQP-3.1.4-2")
@BOTH
@served
async def test_every_method_is_served_on_one_bind(site: Site, syntax: Syntax) -> None:
    """A bind without authentication, straight to the port, with one syntax alone."""
    peer = await site.peer(syntax=syntax)
    assert await use_every_method(site, peer) == set(range(11))


@pytest.mark.spec("MQQP-1.7-2")
@pytest.mark.parametrize("opnum", [11, 12, 0xFFFF])
@served
async def test_there_is_no_twelfth_method(site: Site, opnum: int) -> None:
    peer = await site.peer()
    with pytest.raises(Fault) as fault:
        await peer.raw(QM2QM, opnum, b"")
    assert fault.value.status == NCA_OP_RNG_ERROR
    assert (await peer.call(QM2QM, mqqp.REMOTE_QM_GET_VERSION))["p_major"] == 6


async def unbound(site: Site) -> Peer:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", site.port))
    site._peers.append(peer)
    return peer


@pytest.mark.spec("MQQP-1.9-1")
@served
async def test_the_interface_is_version_1_0(site: Site) -> None:
    peer = await unbound(site)
    results = await peer.bind(
        [
            context(0, (UUID("1088a980-eae5-11d0-8d9b-00a02453c337"), 1), NDR20),
            context(1, (UUID("1088a980-eae5-11d0-8d9b-00a02453c337"), 2), NDR20),
        ]
    )
    assert results[0] == (ACCEPTANCE, 0, NDR20)
    # abstract_syntax_not_supported.
    assert results[1][:2] == (PROVIDER_REJECTION, 1)


@pytest.mark.spec("MQQP-2.2-3")
@pytest.mark.parametrize("offered", [(NDR20, NDR64), (NDR64, NDR20)])
@served
async def test_of_two_contexts_with_one_syntax_each_one_is_accepted(site: Site, offered: tuple[bytes, bytes]) -> None:
    peer = await unbound(site)
    results = await peer.bind([context(number, QM2QM, syntax) for number, syntax in enumerate(offered)])
    assert len(results) == 2
    accepted = [number for number, (result, _, _) in enumerate(results) if result == ACCEPTANCE]
    assert len(accepted) == 1
    assert results[accepted[0]][2] == offered[accepted[0]]
    assert results[1 - accepted[0]][0] == PROVIDER_REJECTION


@pytest.mark.spec("MQQP-2.2-5")
@served
async def test_bind_time_features_are_answered_in_their_place(site: Site) -> None:
    features = bytes.fromhex("2c1cb76c 1298 4045") + b"\xff" * 8 + struct.pack("<I", 1)
    peer = await unbound(site)
    results = await peer.bind([context(0, QM2QM, NDR20), context(1, QM2QM, features)])
    assert results[0] == (ACCEPTANCE, 0, NDR20)
    result, bits, syntax = results[1]
    assert (result, syntax) == (NEGOTIATE_ACK, bytes(20))
    # MS-RPCE 2.2.2.14: two bits are defined.
    assert bits & ~0x3 == 0


@pytest.mark.spec("MQQP-1.8-1", "MQQP-2.2-4")
def test_codes_of_our_own_say_so() -> None:
    """Failures have the severity bit, and what no document names has the customer bit."""
    for status, error in StatusError.by_status.items():
        is_ours = error.spec_name.startswith("LANNER_")
        assert bool(status & CUSTOMER_BIT) == is_ours, error
        assert status & 0x8000_0000 or status == MQ_INFORMATION_REMOTE_CANCELED, error


@pytest.mark.spec("MQQP-3.1.4.9-1", "MQQP-3.1.4.9-2", "MQQP-3.1.4.9-3")
@BOTH
@served
async def test_the_version_is_four_octets(site: Site, syntax: Syntax) -> None:
    peer = await site.peer(syntax=syntax)
    for _ in range(2):
        stub = await peer.raw(QM2QM, 8, b"")
        assert stub[:2] == b"\x06\x01"
        assert len(stub) == 4
        assert struct.unpack_from("<H", stub, 2)[0] >= 6531


@pytest.mark.spec("MQQP-3.1.4.8-1", "MQQP-3.1.4.8-2", "MQQP-3.1.4.8-3", "MQQP-3.1.4.8-4", "MQQP-3.1.4.8-6")
@served
async def test_ports_are_reported(site: Site) -> None:
    ports = site.service._ports
    peer = await site.peer()

    async def port(kind: int) -> int:
        answer: int = (await peer.call(QM2QM, mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=kind))[RETURNS]
        return answer

    ports.ip_handshake = 2103
    assert await port(0) == 2103
    assert await port(1) == site.port
    assert await port(2) == await port(3) == 0
    assert await port(1) == site.port
    for kind in (4, 0xFFFF_FFFF):
        with pytest.raises(Fault) as fault:
            await peer.raw(QM2QM, 7, struct.pack("<I", kind))
        assert fault.value.status == BAD_STUB
    ports.ip_handshake = 0
    assert await port(0) == 0


def test_an_interface_that_is_not_there_has_port_zero() -> None:
    assert [ServerPorts().of(kind) for kind in range(5)] == [0] * 5


@pytest.mark.spec("MQQP-2.1-1")
def test_remote_reads_are_served_over_ipv6_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as site:
            try:
                port = await site.server.listen_tcp("::1", 0)
            except OSError as error:
                pytest.skip(f"no IPv6 here: {error}")
            peer = await Peer.connect(port, address="::1")
            site._peers.append(peer)
            site.send(b"one")
            assert (await (await peer.opened()).read()).body == b"one"

    asyncio.run(run())


# What is wrong in a stub
# ---------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-2.2.2.1-3", "MQQP-2.2.2.1-4", "MQQP-3.1.4-1")
@served
async def test_a_bad_descriptor_is_a_fault_and_takes_nothing(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    good = mqqp.REMOTE_QM_START_RECEIVE.encode_request({"lp_remote_read_desc": q.desc()})
    assert len(good) == 44
    with_buffer = struct.pack("<III", 3, 0, 3) + b"abc"
    head = good[:16] + struct.pack("<I", 3) + good[20:40] + struct.pack("<I", 0x20000)
    wrong = [
        good[:16] + struct.pack("<I", 0x420001) + good[20:],
        good[:16] + struct.pack("<I", 3) + good[20:],
        head + struct.pack("<III", 4, 0, 3) + b"abc",
        head + struct.pack("<III", 3, 0, 2) + b"ab",
        *(good[:cut] for cut in range(0, 44, 4)),
    ]
    for stub in wrong:
        with pytest.raises(Fault) as fault:
            await q.peer.raw(QM2QM, 0, stub)
        assert fault.value.status == BAD_STUB
    assert site.count() == 1
    answer = await q.peer.raw(QM2QM, 0, head + with_buffer)
    assert struct.unpack_from("<I", answer, len(answer) - 4)[0] == OK


@served
async def test_a_request_may_have_the_largest_buffer(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    buffer = bytes(mqqp.MAX_BUFFER_SIZE)
    assert (await q.read(dw_size=len(buffer), lp_buffer=buffer)).body == b"one"


# Handles
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-2.2.1.1-1")
@BOTH
@served
async def test_a_handle_is_twenty_octets(site: Site, syntax: Syntax) -> None:
    peer = await site.peer(syntax=syntax)
    handle = (await peer.open_remote_queue())["ph_queue"]
    arguments = {"p_lic_guid": uuid.uuid4(), "dw_mqs": 0, "h_queue": 0, "p_queue": handle, "dwp_context": handle}
    stub = await peer.raw(QM2QM, 2, mqqp.REMOTE_QM_OPEN_QUEUE.encode_request(arguments, syntax))
    assert len(stub) == 24
    context, status = stub[:20], stub[20:]
    assert context != NULL_HANDLE
    assert status == bytes(4)
    assert await peer.raw(QM2QM, 3, context) == bytes(24)
    refused = mqqp.REMOTE_QM_OPEN_QUEUE.encode_request(arguments | {"p_queue": 0}, syntax)
    assert await peer.raw(QM2QM, 2, refused) == bytes(20) + struct.pack("<I", MQ_ERROR_INVALID_PARAMETER)


@pytest.mark.spec("MQQP-2.2.1.1-2")
@served
async def test_made_up_closed_and_mistaken_handles_are_faults(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    read = await q.read()
    made_up = bytes(4) + uuid.uuid4().bytes
    closed = await q.peer.opened()
    assert await closed.close() == OK
    calls: list[Callable[[], Any]] = [
        lambda: q.end(made_up),
        lambda: replace(q, context=made_up).close(),
        closed.close,
        # Of another kind.
        lambda: q.end(q.context),
        lambda: replace(q, context=read.context).close(),
        lambda: replace(q, context=q.open_context).close(),
        # Attributes are part of a handle.
        lambda: q.end(b"\1" + read.context[1:]),
    ]
    for call in calls:
        with pytest.raises(Fault) as fault:
            await call()
        assert fault.value.status == NCA_FAULT_CONTEXT_MISMATCH
    assert site.count() == 1
    assert await q.end(read) == OK


@pytest.mark.spec("MQQP-2.2.1.2-2")
@served
async def test_a_handle_is_known_in_its_association_alone(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    stranger = await site.peer()
    read = await q.read()
    with pytest.raises(Fault) as fault:
        await q.end(read, peer=stranger)
    assert fault.value.status == NCA_FAULT_CONTEXT_MISMATCH
    with pytest.raises(Fault) as fault:
        await replace(q, peer=stranger).close()
    assert fault.value.status == NCA_FAULT_CONTEXT_MISMATCH
    second = await site.peer(group=q.peer.group)
    assert await q.end(read, peer=second) == OK
    assert await replace(q, peer=second).close() == OK
    assert site.count() == 0


# Rundown
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-3.1.6.1-1")
@served
async def test_a_client_that_goes_closes_its_queues(site: Site) -> None:
    q = await site.opened(share=1)
    waiting = asyncio.ensure_future(q.begin(timeout=LONG))
    await site.waiting(1)
    other = await site.peer()
    assert (await other.open_remote_queue())[RETURNS] == STATUS_SHARING_VIOLATION
    q.peer.abort()
    await until(lambda: len(site.queues) == 0)
    waiting.cancel()
    assert not site.runtime.engine.opening.descriptors
    opened = await other.opened(share=1)
    site.send(b"one")
    # No reader waits any longer, so the message is there.
    assert (await opened.read()).body == b"one"


@pytest.mark.spec("MQQP-3.1.6.2-1")
@served
async def test_a_client_that_goes_gives_back_what_it_did_not_acknowledge(site: Site) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    assert (await q.read()).body == b"one"
    other = await site.opened()
    second = await other.read()
    assert second.body == b"two"
    waiting = asyncio.ensure_future(other.begin(timeout=LONG))
    await site.waiting(1)
    q.peer.abort()
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQQP-3.1.6.2-1")
@served
async def test_a_reader_that_goes_gives_back_what_it_did_not_acknowledge_while_the_queue_stays_open(site: Site) -> None:
    """The number is the key: who reads need not be who holds the session."""
    site.send(b"one")
    q = await site.opened()
    reader = await site.peer()
    assert (await q.begin(peer=reader)).body == b"one"
    waiting = asyncio.ensure_future(q.begin(timeout=LONG))
    await site.waiting(1)
    await reader.close()
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQQP-3.1.6.2-2")
@served
async def test_a_client_has_gone_with_its_last_connection(site: Site) -> None:
    site.send(b"one")
    q = await site.opened(share=1)
    second = await site.peer(group=q.peer.group)
    read = await q.read()
    await q.peer.close()
    await until(lambda: site.server.connections == 1)
    assert len(site.queues) == 1
    other = await site.peer()
    assert (await other.open_remote_queue())[RETURNS] == STATUS_SHARING_VIOLATION
    assert await q.end(read, peer=second) == OK
    await second.close()
    await until(lambda: len(site.queues) == 0)
    assert (await other.open_remote_queue())[RETURNS] == OK
    assert site.count() == 0


@served
async def test_a_reader_outlives_whoever_opened_the_queue_for_it(site: Site) -> None:
    """An application opens, its supporting server reads: two associations."""
    site.send(b"one")
    opener, reader = await site.peer(), await site.peer()
    first = await opener.open_remote_queue()
    second = await reader.open_queue(first["ph_queue"])
    q = RemoteOpen(reader, first["ph_queue"], second["ph_context"], first["pph_context"])
    await opener.close()
    await until(lambda: site.server.connections == 1)
    assert await q.receive() == b"one"
    await reader.close()
    await until(lambda: len(site.queues) == 0)


@served
async def test_a_stop_of_the_server_runs_everything_down(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    assert (await q.read()).body == b"one"
    waiting = asyncio.ensure_future(q.begin(timeout=LONG))
    await site.waiting(1)
    await site.server.stop()
    with pytest.raises(ConnectionError):
        await waiting
    assert len(site.queues) == 0
    with site.runtime.lock:
        assert not site.operations.find(".\\private$\\q").held_positions
    assert site.count() == 1


# Durability
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["end", "purge"])
@served
async def test_what_is_acknowledged_is_on_disk(site: Site, what: str) -> None:
    """Nothing is answered before the batch is synced, and other calls are answered meanwhile."""
    site.send(b"one")
    store = site.runtime.store
    store.sync(_batch(site))
    # The timer thread would commit the change too, whenever a deadline is reached.
    site.runtime._timers.stop()
    q = await site.opened()
    read = await q.read() if what == "end" else None
    may_sync = asyncio.Event()
    asked: list[int] = []

    async def durable(batch: int) -> None:
        asked.append(batch)
        await may_sync.wait()
        await site.committer.really_durable(batch)

    site.committer.disk = durable  # a disk that takes its time
    call = asyncio.ensure_future(q.end(read) if read is not None else q.purge())
    await until(lambda: bool(asked))
    assert (await q.peer.call(QM2QM, mqqp.REMOTE_QM_GET_VERSION))["p_major"] == 6
    assert not call.done()
    assert asked[0] > store.synced
    may_sync.set()
    assert await call == OK
    assert store.synced >= asked[0]


@pytest.mark.parametrize("what", ["end", "purge"])
@served
async def test_a_disk_that_fails_is_reported(site: Site, what: str) -> None:
    site.send(b"one")
    q = await site.opened()
    read = await q.read() if what == "end" else None

    async def durable(_: int) -> None:
        raise InsufficientResources("no space left")

    site.committer.disk = durable  # a full disk
    assert await (q.end(read) if read is not None else q.purge()) == InsufficientResources.status


def _batch(site: Site) -> int:
    with site.runtime.lock:
        return site.runtime.store.pending_batch()


@served
async def test_a_long_queue_is_purged_in_slices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that come after the start of the purge stay."""
    monkeypatch.setattr("lanner.host.reads.PURGE_SLICE", 10)
    site.send(*(b"%d" % number for number in range(35)))
    q = await site.opened()
    slices: list[int] = []

    async def durable(batch: int) -> None:
        slices.append(site.count())
        if len(slices) == 2:
            site.send(b"new")
        await site.committer.really_durable(batch)

    site.committer.disk = durable  # it watches
    assert await q.purge() == OK
    assert slices == [25, 15, 6, 1]
    assert await q.receive() == b"new"
