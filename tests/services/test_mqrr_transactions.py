"""RemoteRead in transactions (MS-MQRR 3.1.4.10-3.1.4.15).

Covered: enlisting, receives, rejections, moves, and the outcome from the coordinator.
"""

# What a test asks for is told by the declarations of the interface, and time-outs are the
# protocol's.
# ruff: noqa: ANN401, ASYNC109

from __future__ import annotations

import asyncio
import itertools
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lanner.host.coordinator import coordinator_of
from lanner.host.distributed import DistributedRequests
from lanner.model.branches import Branch
from lanner.model.enums import Acknowledgements
from lanner.model.errors import TransactionSequence
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import Syntax
from lanner.security.identity import ANONYMOUS
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqrr import REMOTE_READ
from lanner.wire.message import Message
from lanner.wire.propagation_token import pack_token
from tests.services.mqrr_peer import FOREVER, PEEK, PEEK_NEXT, RECEIVE, Got, Opened, Site, fault, served, serving
from tests.services.remote_read_peer import Peer
from tests.services.site import until
from tests.statuses import (
    MQ_ERROR_DTC_CONNECT,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_TRANSACTION_ENLIST,
    MQ_ERROR_TRANSACTION_IMPORT,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    MQ_ERROR_TRANSACTION_USAGE,
)

OK = 0
BAD_STUB = 0x6F7
LOOKUP_PEEK, LOOKUP_PEEK_NEXT, LOOKUP_PEEK_PREV = 0x40000010, 0x40000011, 0x40000012
LOOKUP_RECEIVE, LOOKUP_RECEIVE_NEXT, LOOKUP_RECEIVE_PREV = 0x40000020, 0x40000021, 0x40000022
T = "OS:.\\private$\\t"
REJECT = 0xC004
END = mqrr.R_END_TRANSACTIONAL_RECEIVE


async def enlist(peer: Peer, uow: bytes, token: bytes, name: str = T) -> int:
    results = await peer.call(
        REMOTE_READ,
        mqrr.R_QM_ENLIST_REMOTE_TRANSACTION,
        p_transaction_id=uow,
        cb_propagation_token=len(token),
        pb_propagation_token=token,
        p_queue_format=QueueFormat(3, 0, 0, name),
    )
    status: int = results[RETURNS]
    return status


class Unit:
    """A distributed transaction, of the queue manager's own coordinator unless another is named."""

    def __init__(self, site: Site, coordinator: uuid.UUID | None = None) -> None:
        self._site = site
        own = coordinator_of(site.runtime.engine).identifier
        self.branch = Branch(coordinator or own, uuid.uuid4(), "reader")
        self.is_own = self.branch.coordinator == own
        self.uow = self.branch.transaction.bytes_le
        self.token = pack_token(self.branch)

    @property
    def _named(self) -> dict[str, Any]:
        branch = self.branch
        return {
            "coordinator": str(branch.coordinator),
            "identifier": str(branch.transaction),
            "resource": branch.resource,
        }

    async def ask(self, request: str, **arguments: Any) -> Any:
        runtime = self._site.runtime
        with runtime.change() as change:
            answer = DistributedRequests(runtime.engine, ANONYMOUS).answer({"request": request, **arguments})
        await asyncio.to_thread(change.wait)
        return answer()

    async def enlist(self, peer: Peer) -> None:
        assert await enlist(peer, self.uow, self.token) == OK

    async def prepare(self) -> None:
        await self.ask("prepare", **self._named)

    async def commit(self) -> None:
        """Both phases, the decision between them."""
        if self.is_own:
            await self.ask("begin distributed", identifier=str(self.branch.transaction))
        await self.prepare()
        if self.is_own:
            resources = [self.branch.resource]
            await self.ask("decide", identifier=str(self.branch.transaction), resources=resources)
        await self.end(commit=True)

    async def end(self, *, commit: bool) -> None:
        await self.ask("end branch", commit=commit, **self._named)

    async def abort(self) -> None:
        await self.end(commit=False)


@dataclass
class Scene:
    """The transactional queue `t`, open for receiving, and an enlisted transaction.

    The association of the queue has enlisted the transaction.
    """

    site: Site
    t: Opened
    unit: Unit
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def begun(self) -> Unit:
        unit = Unit(self.site)
        await unit.enlist(self.t.peer)
        return unit

    async def receive(self, unit: Unit | None = None, action: int = RECEIVE, timeout: int = 0, **more: Any) -> Got:
        return await self.t.read(action, timeout, transaction=(unit or self.unit).uow, **more)

    async def taken(self, unit: Unit | None = None, **more: Any) -> Got:
        """Receive and acknowledge."""
        got = await self.receive(unit, **more)
        assert await self.t.end(got, 2, END) == OK
        return got

    async def reject(self, lookup_id: int, us_class: int = REJECT) -> int:
        return await self.t.status(mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, lookup_id=lookup_id, us_class=us_class)

    def bodies(self, queue: str = "t") -> list[bytes]:
        """Return the stored messages, locked or not."""
        runtime = self.site.runtime
        with runtime.lock:
            number = self.site.operations.find(f".\\private$\\{queue}").number
            found = [runtime.store.get(number, one) for one in self.site.lookup_ids(queue)]
        return [bytes(Message(record.packet).body) for record in found if record is not None]

    def acknowledgments(self) -> list[int]:
        """The classes of the acknowledgments so far."""
        runtime = self.site.runtime
        with runtime.lock:
            number = self.site.operations.find(".\\private$\\admin").number
            found = [runtime.store.get(number, one) for one in self.site.lookup_ids("admin")]
        return [int(Message(record.packet).message_class) for record in found if record is not None]

    def send(self, *bodies: bytes, acknowledge: int = 0, queue: str = "t") -> list[int]:
        more: dict[str, Any] = {}
        if acknowledge:
            more = {"acknowledge": Acknowledgements(acknowledge), "administration_queue": ".\\private$\\admin"}
        return self.site.send(*bodies, queue=queue, **more)


async def scene(site: Site, **attributes: Any) -> Scene:
    site.create("t", transactional=True, **attributes)
    site.create("admin")
    peer = await site.peer()
    t = await site.opened(T, peer=peer)
    unit = Unit(site)
    await unit.enlist(peer)
    return Scene(site, t, unit)


BOTH_ACKS = Acknowledgements.POS_RECEIVE | Acknowledgements.NEG_RECEIVE


# Enlisting
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.12-5")
@pytest.mark.spec("MQRR-3.1.4.12-12")
@pytest.mark.spec("MQRR-3.1.4.12-13")
@served
async def test_a_token_of_our_own_is_enlisted(site: Site) -> None:
    s = await scene(site)
    (one,) = s.send(b"one")
    assert (await s.taken()).body == b"one"
    for name in (T, "OS:.\\private$\\nowhere", "OS:elsewhere\\private$\\x"):
        assert await enlist(s.t.peer, s.unit.uow, s.unit.token, name) == OK
    assert (await s.receive()).status == MQ_ERROR_IO_TIMEOUT, "what was done in it stays done"
    sub = await site.opened_for_move("OS:.\\private$\\t;sub", s.t.peer)
    second = await s.begun()
    (two,) = s.send(b"two")
    assert await s.t.move(sub.move_context, two, second.uow) == OK
    assert site.lookup_ids("t") == [one, two]


@pytest.mark.spec("MQRR-3.1.4.12-9")
@served
async def test_a_token_names_its_transaction(site: Site) -> None:
    s = await scene(site)
    site.send(b"one", queue="t")
    mine, other = Unit(site), Unit(site)
    assert await enlist(s.t.peer, mine.uow, other.token) == MQ_ERROR_TRANSACTION_IMPORT
    for unit in (mine, other):
        assert (await s.receive(unit)).status == MQ_ERROR_TRANSACTION_SEQUENCE
    for broken in (mine.token[:-1], mine.token + b"x", mine.token[:36] + b"\x00", mine.token[:37] + b"/eader"):
        assert await enlist(s.t.peer, mine.uow, broken) == MQ_ERROR_TRANSACTION_IMPORT


@pytest.mark.spec("MQRR-3.1.4.12-11")
@pytest.mark.spec("MQRR-3.1.4.12-17")
@pytest.mark.parametrize("outcome", ["commit", "abort"])
@served
async def test_a_transaction_that_has_ended_is_forgotten(site: Site, outcome: str) -> None:
    s = await scene(site)
    sub = await site.opened_for_move("OS:.\\private$\\t;sub", s.t.peer)
    (one,) = s.send(b"one")
    await (s.unit.commit() if outcome == "commit" else s.unit.abort())
    assert (await s.receive()).status == MQ_ERROR_TRANSACTION_SEQUENCE
    assert await s.t.move(sub.move_context, one, s.unit.uow) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert await enlist(s.t.peer, s.unit.uow, s.unit.token) == MQ_ERROR_TRANSACTION_ENLIST
    assert (await s.receive(await s.begun())).body == b"one"


@pytest.mark.spec("MQRR-4.3-3")
@served
async def test_the_sequence_of_the_document_with_a_token_of_msdtc(site: Site) -> None:
    s = await scene(site)
    (one,) = s.send(b"one")
    uow = uuid.uuid4().bytes
    assert await enlist(s.t.peer, uow, struct.pack("<II", 1, 2) + uow + bytes(20)) == MQ_ERROR_DTC_CONNECT
    assert site.lookup_ids("t") == [one]
    assert (await s.t.read(PEEK)).body == b"one"


@pytest.mark.spec("MQRR-4.3-1")
@pytest.mark.spec("MQRR-3.1.4.12-16")
@pytest.mark.spec("MQRR-3.1.4.13-26")
@pytest.mark.spec("MQRR-3.1.4.13-62")
@pytest.mark.spec("MQRR-3.1.4.15-7")
@served
async def test_the_sequence_of_the_document(site: Site) -> None:
    s = await scene(site)
    s.send(b"one")
    other = await site.opened(T)
    got = await s.receive()
    assert got.body == b"one"
    assert await s.t.end(got, 2, END) == OK
    assert site.count("t") == 1
    assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT
    with pytest.raises(TransactionSequence, match="not prepared"):
        await s.unit.end(commit=True)
    assert site.count("t") == 1
    await s.unit.commit()
    assert site.count("t") == 0
    assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT


@pytest.mark.spec("MQRR-3.1.4.12-20")
@pytest.mark.spec("MQRR-3.1.4.13-27")
@pytest.mark.spec("MQRR-3.1.4.13-25")
@pytest.mark.spec("MQRR-3.1.4.13-63")
@served
async def test_two_transactions_of_one_connection(site: Site) -> None:
    s = await scene(site)
    s.send(b"one", b"two", b"three")
    second = await s.begun()
    assert (await s.taken()).body == b"one"
    assert (await s.receive(second)).body == b"two"
    assert (await s.receive()).body == b"three"
    await s.unit.abort()
    other = await site.opened(T)
    assert [(await other.read()).body for _ in range(2)] == [b"one", b"three"]
    assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT, "two is locked by the other transaction"
    await second.commit()
    assert b"two" not in s.bodies()


@pytest.mark.spec("MQRR-3.1.4.12-14")
@pytest.mark.spec("MQRR-3.1.4.12-15")
@pytest.mark.parametrize("outcome", ["commit", "abort"])
@served
async def test_receives_and_moves_are_one_unit(site: Site, outcome: str) -> None:
    s = await scene(site)
    site.create("u", transactional=True)
    s.send(b"received")
    (moved,) = s.send(b"moved", queue="u")
    u = await site.opened("OS:.\\private$\\u", peer=s.t.peer)
    sub = await site.opened_for_move("OS:.\\private$\\u;sub", s.t.peer)
    there = await site.opened("OS:.\\private$\\u;sub", peer=s.t.peer)
    await s.taken()
    assert await u.move(sub.move_context, moved, s.unit.uow) == OK
    if outcome == "commit":
        await s.unit.commit()
        assert s.bodies() == s.bodies("u") == []
        assert (await there.read(PEEK)).body == b"moved"
        return
    await s.unit.abort()
    assert s.bodies() == [b"received"]
    assert (await u.read(LOOKUP_PEEK, lookup_id=moved)).body == b"moved"
    assert (await there.read(PEEK)).status == MQ_ERROR_IO_TIMEOUT


@pytest.mark.spec("MQRR-3.1.4.12-18")
@pytest.mark.spec("MQRR-3.1.4.12-19")
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_restart(tmp_path: Path, is_prepared: bool) -> None:
    coordinator = uuid.uuid4()

    async def before() -> Unit:
        async with serving(tmp_path) as site:
            s = await scene(site)
            unit = Unit(site, coordinator)
            await unit.enlist(s.t.peer)
            s.send(b"one")
            await s.taken(unit)
            if is_prepared:
                await unit.prepare()
            return unit

    async def after(unit: Unit) -> None:
        async with serving(tmp_path, make=False) as site:
            unit._site = site
            t = await site.opened(T)
            if not is_prepared:
                assert (await t.read()).body == b"one"
                return
            assert (await t.read()).status == MQ_ERROR_IO_TIMEOUT
            assert site.count("t") == 1
            await unit.end(commit=True)
            assert site.count("t") == 0

    asyncio.run(after(asyncio.run(before())))


def test_a_transaction_belongs_to_its_user(tmp_path: Path) -> None:
    """Callers without a name share nothing but their association."""

    async def run() -> None:
        async with serving(tmp_path) as site:
            s = await scene(site)
            s.send(b"one")
            stranger = await site.opened(T)
            assert (await stranger.read(transaction=s.unit.uow)).status == MQ_ERROR_TRANSACTION_SEQUENCE
            assert await enlist(stranger.peer, s.unit.uow, s.unit.token) == MQ_ERROR_TRANSACTION_ENLIST
            sister = await site.opened(T, peer=await site.peer(group=s.t.peer.group))
            assert (await sister.read(transaction=s.unit.uow)).body == b"one"
            reject = mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS
            (one,) = site.lookup_ids("t")
            assert await stranger.status(reject, lookup_id=one, us_class=REJECT) == MQ_ERROR_TRANSACTION_USAGE

    asyncio.run(run())


def test_a_transaction_that_everybody_left_is_aborted(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, cleanup_seconds=0.3) as site:
            s = await scene(site)
            s.send(b"one")
            await s.taken()
            sister = await site.peer(group=s.t.peer.group)
            s.t.peer.abort()
            await asyncio.sleep(0.5)
            other = await site.opened(T)
            assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT
            sister.abort()
            assert (await other.read(timeout=5000)).body == b"one"
            assert not site.runtime.engine.queue_manager.transaction_collection

    asyncio.run(run())


# Receives
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.13-22")
@pytest.mark.spec("MQRR-3.1.4.13-23")
@pytest.mark.spec("MQRR-3.1.4.13-24")
@served
async def test_reads_that_take_no_transaction(site: Site) -> None:
    s = await scene(site)
    (one,) = s.send(b"one")
    site.send(b"plain")
    q = await site.opened(peer=s.t.peer)
    assert (await q.read(transaction=s.unit.uow)).status == MQ_ERROR_TRANSACTION_USAGE
    cursor = await s.t.cursor()
    for action, more in (
        (PEEK, {}),
        (PEEK_NEXT, {"cursor": cursor}),
        (LOOKUP_PEEK, {"lookup_id": one}),
        (LOOKUP_PEEK_NEXT, {"lookup_id": one}),
        (LOOKUP_PEEK_PREV, {"lookup_id": one}),
    ):
        assert (await s.receive(None, action, **more)).status == MQ_ERROR_TRANSACTION_USAGE
    assert (await s.receive(Unit(site))).status == MQ_ERROR_TRANSACTION_SEQUENCE
    assert (await q.read()).body == b"plain"
    assert (await s.receive()).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.13-28")
@pytest.mark.spec("MQRR-3.1.4.13-29")
@pytest.mark.spec("MQRR-3.1.4.13-31")
@served
async def test_cursors(site: Site) -> None:
    s = await scene(site)
    s.send(b"one", b"two", b"three")
    cursor, other = await s.t.cursor(), await s.t.cursor()
    assert (await s.t.read(PEEK, cursor=other)).body == b"one"
    assert [(await s.receive(cursor=cursor)).body for _ in range(3)] == [b"one", b"two", b"three"]
    assert (await s.receive(cursor=other)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert (await s.receive(cursor=await s.t.cursor())).status == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("MQRR-3.1.4.13-30")
@pytest.mark.spec("MQRR-3.1.4.13-32")
@pytest.mark.spec("MQRR-3.1.4.13-33")
@pytest.mark.spec("MQRR-3.1.4.13-34")
@pytest.mark.spec("MQRR-3.1.4.13-36")
@pytest.mark.spec("MQRR-3.1.4.13-39")
@served
async def test_waiting(site: Site) -> None:
    s = await scene(site)
    clock = asyncio.get_running_loop().time
    assert (await s.receive(dw_request_id=7)).status == MQ_ERROR_IO_TIMEOUT
    before = clock()
    assert (await s.receive(timeout=300, dw_request_id=7)).status == MQ_ERROR_IO_TIMEOUT
    assert 0.29 <= clock() - before < 60
    waiting = s.t.begin(RECEIVE, FOREVER, transaction=s.unit.uow, dw_request_id=7)
    assert await s.t.cursor()
    assert (await s.t.read(PEEK)).status == MQ_ERROR_IO_TIMEOUT
    assert (await s.receive()).status == MQ_ERROR_IO_TIMEOUT
    assert await s.t.cancel(99) & 0x8000_0000
    assert not waiting.done()
    s.send(b"one")
    assert (await waiting).body == b"one"
    assert (await (await site.opened(T)).read()).status == MQ_ERROR_IO_TIMEOUT
    await s.unit.abort()
    assert (await (await site.opened(T)).read()).body == b"one"


@pytest.mark.spec("MQRR-3.1.4.13-30")
@served
async def test_what_may_not_wait_does_not_get_what_comes_next(site: Site) -> None:
    """The cursor is answered after the read was: a message that comes now is too late for it."""
    s = await scene(site)
    read = s.t.begin(RECEIVE, 0, transaction=s.unit.uow)
    assert await s.t.cursor()
    s.send(b"late")
    assert (await read).status == MQ_ERROR_IO_TIMEOUT
    assert (await s.receive()).body == b"late"


@pytest.mark.spec("MQRR-3.1.4.13-35")
@pytest.mark.spec("MQRR-3.1.4.13-37")
@pytest.mark.spec("MQRR-3.1.4.13-38")
@served
async def test_requests_by_their_numbers(site: Site) -> None:
    s = await scene(site)
    other = await site.opened(T, peer=s.t.peer)
    waiting = s.t.begin(RECEIVE, FOREVER, transaction=s.unit.uow, dw_request_id=5)
    elsewhere = other.begin(RECEIVE, FOREVER, transaction=s.unit.uow, dw_request_id=5)
    await s.t.cursor()
    assert (await s.receive(dw_request_id=5)).status == MQ_ERROR_INVALID_PARAMETER
    assert await s.t.cancel(5) == OK
    assert (await waiting).status == MQ_ERROR_OPERATION_CANCELLED
    assert not elsewhere.done()
    s.send(b"one", b"two")
    there = await elsewhere
    assert there.body == b"one"
    here = await s.receive(dw_request_id=5)
    assert here.body == b"two"
    assert (await s.receive(dw_request_id=5)).status == MQ_ERROR_INVALID_PARAMETER
    assert await s.t.end(5, 1, END) == OK
    assert (await s.receive(dw_request_id=5)).body == b"two"
    assert await other.end(5, 2, END) == OK
    assert await s.t.end(5, 2, END) == OK


@pytest.mark.spec("MQRR-3.1.4.13-40")
@pytest.mark.spec("MQRR-3.1.4.13-41")
@pytest.mark.spec("MQRR-3.1.4.13-42")
@pytest.mark.spec("MQRR-3.1.4.13-43")
@pytest.mark.spec("MQRR-3.1.4.13-44")
@pytest.mark.spec("MQRR-3.1.4.13-45")
@pytest.mark.spec("MQRR-3.1.4.13-46")
@pytest.mark.spec("MQRR-3.1.4.13-67")
@pytest.mark.spec("MQRR-3.1.4.13-68")
@served
async def test_lookups(site: Site) -> None:
    s = await scene(site)
    one, two, three = s.send(b"one", b"two", b"three")
    for action, lookup_id, body in (
        (LOOKUP_RECEIVE, two, b"two"),
        (LOOKUP_RECEIVE_NEXT, one, b"two"),
        (LOOKUP_RECEIVE_PREV, three, b"two"),
        (LOOKUP_RECEIVE_NEXT, 0, b"one"),
        (LOOKUP_RECEIVE_PREV, 0xFFFF_FFFF_FFFF_FFFF, b"three"),
    ):
        unit = await s.begun()
        got = await s.receive(unit, action, lookup_id=lookup_id)
        assert got.body == body
        assert (await s.receive(s.unit, LOOKUP_RECEIVE, lookup_id=got.lookup_id)).status == MQ_ERROR_MESSAGE_NOT_FOUND
        assert await s.t.end(got, 2, END) == OK
        await unit.abort()
    got = await s.receive(None, LOOKUP_RECEIVE, lookup_id=two)
    assert (await s.receive(None, LOOKUP_RECEIVE_NEXT, lookup_id=one)).body == b"three"
    assert (await s.receive(None, LOOKUP_RECEIVE_PREV, lookup_id=three)).body == b"one"
    for action in (LOOKUP_RECEIVE, LOOKUP_RECEIVE_NEXT, LOOKUP_RECEIVE_PREV):
        assert (await s.receive(None, action, lookup_id=three + 99)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await s.receive(None, LOOKUP_RECEIVE_NEXT, lookup_id=three)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await s.receive(None, LOOKUP_RECEIVE_PREV, lookup_id=one)).status == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("MQRR-3.1.4.13-1")
@pytest.mark.spec("MQRR-3.1.4.13-2")
@pytest.mark.spec("MQRR-3.1.4.13-4")
@pytest.mark.spec("MQRR-3.1.4.13-47")
@pytest.mark.spec("MQRR-3.1.4.13-48")
@pytest.mark.spec("MQRR-3.1.4.13-49")
@served
async def test_the_octets_of_a_receive(site: Site) -> None:
    s = await scene(site)
    (one,) = s.send(b"abc")
    asked = struct.pack("<20s4xQIIIIII16s", s.t.context, one, 0, LOOKUP_RECEIVE, 0, 9, 2, 0, s.unit.uow)
    assert len(asked) == 72
    answer = await s.t.peer.raw(REMOTE_READ, 13, asked)
    assert await s.t.end(9, 2, END) == OK
    arrived, sequence, count, referent, most = struct.unpack_from("<I4xQIII", answer)
    record = site.runtime.store.get(site.operations.find(".\\private$\\t").number, one)
    assert record is not None
    assert (arrived, sequence, count, bool(referent), most) == (record.arrived, one & (1 << 56) - 1, 2, True, 2)
    first = struct.unpack_from("<H2xIII", answer, 28)
    second = struct.unpack_from("<H2xIII", answer, 44)
    assert (first[0], second[0]) == (1, 2)
    assert struct.unpack_from("<I", answer, 60)[0] == first[2]
    assert answer[64 : 64 + first[2]].endswith(b"ab")
    at = 64 + first[2] + -first[2] % 4
    assert struct.unpack_from("<I", answer, at)[0] == second[2]
    assert answer[-4:] == bytes(4)
    assert len(answer) == at + 4 + second[2] + -second[2] % 4 + 4
    cursor = await s.t.cursor()
    asked = struct.pack("<20s4xQIIIIII16s", s.t.context, 0, cursor, RECEIVE, 1, 10, 0, 0, s.unit.uow)
    nothing = await s.t.peer.raw(REMOTE_READ, 13, asked)
    assert nothing[:24] == bytes(24)
    assert nothing[24:] == struct.pack("<I", MQ_ERROR_IO_TIMEOUT)


@pytest.mark.spec("MQRR-3.1.4.13-3")
@pytest.mark.spec("MQRR-3.1.4.7-3")
@pytest.mark.spec("MQRR-2.2.6-2")
@pytest.mark.spec("MQRR-2.2.4-1")
@pytest.mark.parametrize("opnum", [7, 13])
@served
async def test_the_octets_of_a_read_in_ndr64(site: Site, opnum: int) -> None:
    site.create("t", transactional=True)
    peer = await site.peer(syntax=Syntax.NDR64)
    t = await site.opened(T, peer=peer)
    assert len(t.context) == 20
    unit = Unit(site)
    await unit.enlist(peer)
    (one,) = site.send(b"abc", queue="t")
    asked = struct.pack("<20s4xQIIIIII", t.context, one, 0, LOOKUP_RECEIVE, 0, 9, 2, 0)
    answer = await peer.raw(REMOTE_READ, opnum, asked + (unit.uow if opnum == 13 else b""))
    arrived, sequence, count, referent, most = struct.unpack_from("<I4xQI4xQQ", answer)
    assert (bool(arrived), bool(sequence), count, bool(referent), most) == (True, True, 2, True, 2)
    first, second = (struct.unpack_from("<III4xQ", answer, 40 + 24 * number) for number in range(2))
    assert (first[0], second[0]) == (1, 2)
    assert first[3]
    assert second[3]
    at = 40 + 48
    assert struct.unpack_from("<Q", answer, at)[0] == first[2]
    assert answer[at + 8] == 0x10
    assert answer[at + 8 : at + 8 + first[2]].endswith(b"ab")
    at += 8 + first[2] + -first[2] % 8
    assert struct.unpack_from("<Q", answer, at)[0] == second[2]
    at += 8 + second[2]
    assert answer[at + -at % 4 :] == bytes(4)
    assert site.count("t") == 1


@pytest.mark.spec("MQRR-3.1.4.13-50")
@pytest.mark.spec("MQRR-3.1.4.13-51")
@pytest.mark.spec("MQRR-3.1.4.13-52")
@pytest.mark.spec("MQRR-3.1.4.13-53")
@pytest.mark.spec("MQRR-3.1.4.13-54")
@pytest.mark.spec("MQRR-3.1.4.13-58")
@pytest.mark.spec("MQRR-3.1.4.13-59")
@pytest.mark.spec("MQRR-3.1.4.13-60")
@pytest.mark.spec("MQRR-3.1.4.13-61")
@served
async def test_sections(site: Site) -> None:
    s = await scene(site)
    site.send(b"0123456789", queue="t", time_to_reach_queue=1000)
    # LongLiveTime, which no message may exceed.
    site.runtime.engine.sending._long_live_time = 0xFFFF_FFFF
    site.send(b"never", queue="t", time_to_reach_queue=None)
    whole = await s.receive(dw_max_body_size=10, dw_max_compound_message_size=0)
    (entry,) = whole.sections
    assert (entry.section_buffer_type, entry.section_size, entry.section_size_alloc) == (
        0,
        len(whole.packet),
        len(whole.packet),
    )
    assert whole.message.time_to_reach_queue == whole.message.sent_time + 1000
    assert await s.t.end(whole, 1, END) == OK
    cut = await s.receive(dw_max_body_size=9)
    first, second = cut.sections
    packet, start = whole.packet, whole.message.body_offset
    assert (first.section_buffer_type, second.section_buffer_type) == (1, 2)
    assert first.p_section_buffer == packet[: start + 9]
    assert first.section_size == start + 9
    assert first.section_size_alloc == whole.message.end_of_properties
    assert first.section_size_alloc - (start + 10) in range(4)
    assert second.p_section_buffer == packet[first.section_size_alloc :]
    assert second.section_size == second.section_size_alloc == len(packet) - first.section_size_alloc
    assert await s.t.end(cut, 2, END) == OK
    await s.unit.commit()
    assert s.bodies() == [b"never"]
    assert (await s.t.read(PEEK)).message.time_to_reach_queue == 0xFFFF_FFFF


@pytest.mark.spec("MQRR-3.1.4.13-64")
@pytest.mark.spec("MQRR-3.1.4.13-65")
@served
async def test_a_commit_acknowledges_and_journals(site: Site) -> None:
    s = await scene(site, journaling=True)
    s.send(b"one", acknowledge=BOTH_ACKS)
    await s.taken()
    assert s.acknowledgments() == []
    assert site.count("t;journal") == 0
    await s.unit.commit()
    assert s.acknowledgments() == [0x4000]
    assert site.count("t;journal") == 1


@pytest.mark.spec("MQRR-3.1.4.13-66")
@served
async def test_a_rollback_neither_acknowledges_nor_journals(site: Site) -> None:
    s = await scene(site, journaling=True)
    s.send(b"one", acknowledge=BOTH_ACKS)
    await s.taken()
    await s.unit.abort()
    assert (s.acknowledgments(), site.count("t;journal")) == ([], 0)


@pytest.mark.spec("MQRR-2.2.5.3-13")
@served
async def test_rollbacks_are_counted(site: Site) -> None:
    s = await scene(site)
    s.send(b"one")
    for _ in range(2):
        unit = await s.begun()
        await s.taken(unit)
        await unit.abort()
    packet = (await s.receive()).packet
    at = Message(packet).end_of_headers + 12
    assert struct.unpack_from("<IIII", packet, at) == (148, 0, 2, 0)


# Rejections
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.14-2")
@pytest.mark.spec("MQRR-3.1.4.14-3")
@pytest.mark.spec("MQRR-3.1.4.14-4")
@pytest.mark.spec("MQRR-3.1.4.14-7")
@pytest.mark.spec("MQRR-3.1.4.14-8")
@pytest.mark.spec("MQRR-3.1.4.14-9")
@pytest.mark.parametrize(
    ("classes", "sent"),
    [([REJECT], REJECT), ([0], 0x4000), ([REJECT, 0], REJECT), ([0xC000], REJECT), ([0, 0], 0x4000), ([], 0x4000)],
)
@served
async def test_classes_of_acknowledgments(site: Site, classes: list[int], sent: int) -> None:
    s = await scene(site)
    (one,) = s.send(b"one", acknowledge=BOTH_ACKS)
    await s.taken()
    for us_class in classes:
        assert await s.reject(one, us_class) == OK
    await s.unit.commit()
    assert s.acknowledgments() == [sent]
    assert s.bodies() == []


@pytest.mark.spec("MQRR-3.1.4.14-5")
@pytest.mark.spec("MQRR-3.1.4.14-6")
@pytest.mark.spec("MQRR-3.1.4.14-14")
@pytest.mark.spec("MQRR-3.1.4.14-15")
@served
async def test_a_rejection_ends_with_its_transaction(site: Site) -> None:
    s = await scene(site)
    (one,) = s.send(b"one", acknowledge=BOTH_ACKS)
    await s.taken()
    assert await s.reject(one) == OK
    await s.unit.abort()
    assert s.acknowledgments() == []
    assert await s.reject(one) == MQ_ERROR_TRANSACTION_USAGE
    again = await s.begun()
    assert (await s.taken(again)).body == b"one"
    await again.commit()
    assert s.acknowledgments() == [0x4000]
    assert await s.reject(one) == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("MQRR-3.1.4.14-10")
@pytest.mark.spec("MQRR-3.1.4.14-18")
@pytest.mark.spec("MQRR-3.1.4.14-19")
@served
async def test_a_rejection_names_one_message(site: Site) -> None:
    s = await scene(site)
    one, two = s.send(b"one", b"two", acknowledge=BOTH_ACKS)
    assert one >> 56, "the top octet is what the low seven octets lack"
    first = await s.receive()
    assert await s.reject(one & (1 << 56) - 1) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert await s.reject(one) == OK, "before opnum 15, too"
    assert await s.t.end(first, 2, END) == OK
    assert (await s.taken()).lookup_id == two
    await s.unit.commit()
    assert sorted(s.acknowledgments()) == [0x4000, REJECT]


# Ends
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.15-1")
@pytest.mark.spec("MQRR-3.1.4.15-3")
@pytest.mark.spec("MQRR-3.1.4.15-6")
@pytest.mark.spec("MQRR-3.1.4.15-12")
@served
async def test_the_octets_of_an_end(site: Site) -> None:
    s = await scene(site)
    s.send(b"one", b"two")
    one, two = await s.receive(), await s.receive()
    assert await fault(s.t.peer.raw(REMOTE_READ, 15, s.t.context + struct.pack("<II", 3, one.request_id))) == BAD_STUB
    assert await s.t.end(99, 2, END) == MQ_ERROR_INVALID_PARAMETER
    stub = s.t.context + struct.pack("<II", 2, one.request_id)
    assert len(stub) == 28
    assert await s.t.peer.raw(REMOTE_READ, 15, stub) == bytes(4)
    assert await s.t.end(two, 2, END) == OK
    assert await s.t.end(two, 2, END) == MQ_ERROR_INVALID_HANDLE
    await s.unit.commit()
    assert s.bodies() == []


@pytest.mark.spec("MQRR-3.1.4.15-10")
@pytest.mark.spec("MQRR-3.1.4.15-11")
@served
async def test_what_is_given_back_leaves_its_transaction(site: Site) -> None:
    s = await scene(site)
    s.send(b"one", b"two", acknowledge=BOTH_ACKS)
    other = await site.opened(T)
    got = await s.receive()
    await s.taken()
    assert await s.t.end(got, 1, END) == OK
    held = await other.read()
    assert held.body == b"one"
    await s.unit.commit()
    assert s.acknowledgments() == [0x4000]
    assert s.bodies() == [b"one"]
    assert await other.end(held) == OK


@pytest.mark.spec("MQRR-3.1.4.15-13")
@pytest.mark.spec("MQRR-3.1.4.15-15")
@pytest.mark.spec("MQRR-3.1.4.15-28")
@pytest.mark.parametrize("is_locked", [False, True])
@served
async def test_an_end_after_the_rollback(site: Site, is_locked: bool) -> None:
    s = await scene(site)
    s.send(b"one", b"two")
    got, other = await s.receive(), await s.receive()
    await s.unit.abort()
    reader = await site.opened(T)
    if is_locked:
        held = await reader.read()
        assert held.body == b"one"
    assert await s.t.end(got, 2, END) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert await s.t.end(got, 2, END) == MQ_ERROR_INVALID_PARAMETER
    assert await s.t.end(other, 1, END) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert await s.t.end(other, 2, END) == MQ_ERROR_INVALID_HANDLE
    if is_locked:
        assert (await s.t.read()).body == b"two"
        assert await reader.end(held) == OK
        assert s.bodies() == [b"two"]
    else:
        assert s.bodies() == [b"one", b"two"]


@pytest.mark.spec("MQRR-3.1.4.15-14")
@served
async def test_an_end_after_the_commit(site: Site) -> None:
    s = await scene(site)
    s.send(b"one")
    got = await s.receive()
    await s.unit.commit()
    assert s.bodies() == []
    assert await s.t.end(got, 2, END) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert await s.t.end(got, 2, END) == MQ_ERROR_INVALID_HANDLE


@pytest.mark.spec("MQRR-3.1.4.15-16")
@pytest.mark.spec("MQRR-3.1.4.15-17")
@pytest.mark.spec("MQRR-3.1.4.15-18")
@pytest.mark.spec("MQRR-3.1.4.15-19")
@pytest.mark.parametrize(
    ("ack", "outcome", "sent"),
    [(2, "commit", [0x4000]), (2, "abort", [0xC001]), (1, "commit", [0xC001]), (1, "abort", [0xC001])],
)
@served
async def test_a_purge_meanwhile(site: Site, ack: int, outcome: str, sent: list[int]) -> None:
    s = await scene(site)
    s.send(b"one", acknowledge=BOTH_ACKS)
    other = await site.opened(T)
    got = await s.receive()
    assert await other.purge() == OK
    assert s.acknowledgments() == []
    assert await s.t.end(got, ack, END) == OK
    assert s.acknowledgments() == ([] if ack == 2 else sent)
    await (s.unit.commit() if outcome == "commit" else s.unit.abort())
    assert s.acknowledgments() == sent
    assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT
    assert s.bodies() == []


@pytest.mark.spec("MQRR-3.1.4.15-22")
@served
async def test_the_other_end_is_refused(site: Site) -> None:
    s = await scene(site)
    s.send(b"one")
    got = await s.receive()
    for ack in (1, 2):
        assert await s.t.end(got, ack) == MQ_ERROR_INVALID_PARAMETER
    assert site.count("t") == 1
    assert await s.t.end(got, 2, END) == OK
    await s.unit.abort()
    assert s.bodies() == [b"one"]


@pytest.mark.spec("MQRR-3.1.4.15-24")
@pytest.mark.spec("MQRR-3.1.4.15-25")
@served
async def test_closing_the_queue(site: Site) -> None:
    s = await scene(site)
    s.send(b"ended", b"open")
    await s.taken()
    assert (await s.receive()).body == b"open"
    assert await s.t.close() == OK
    other = await site.opened(T)
    held = await other.read()
    assert held.body == b"open"
    assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT
    await s.unit.commit()
    assert s.bodies() == [b"open"]
    assert await other.end(held, 1) == OK


# Rundown, the cleanup timer
# -------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.6-1")
@pytest.mark.spec("MQRR-3.1.4.3-8/a message that goes back")
@pytest.mark.spec("MQRR-3.1.4.3-9/a message that goes back")
@pytest.mark.parametrize("action", [RECEIVE, PEEK])
@served
async def test_a_wait_of_the_closed_handle_does_not_get_what_goes_back(site: Site, action: int) -> None:
    s = await scene(site)
    s.send(b"one")
    assert (await s.receive()).body == b"one"
    waiting = s.t.begin(action, FOREVER)
    other = await site.opened(T)
    late = other.begin(RECEIVE, FOREVER)
    await other.cursor()
    assert await s.t.close() == OK
    assert (await waiting).status == MQ_ERROR_OPERATION_CANCELLED
    assert (await late).body == b"one"


@pytest.mark.spec("MQRR-3.1.6.2-2")
@pytest.mark.spec("MQRR-3.1.6.2-3")
@pytest.mark.spec("MQRR-3.1.6.2-4")
@served
async def test_a_lost_association(site: Site) -> None:
    s = await scene(site)
    s.send(b"ended", b"open")
    await s.taken()
    await s.receive()
    other = await site.opened(T)
    s.t.peer.abort()
    held = await other.read(RECEIVE, 5000)
    assert held.body == b"open"
    assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT
    assert site.count("t") == 2
    await s.unit.commit()
    assert s.bodies() == [b"open"]
    assert await other.end(held, 1) == OK


@pytest.mark.spec("MQRR-3.1.6.2-7")
@pytest.mark.parametrize("is_transacted", [True, False])
@served
async def test_what_was_purged_is_not_given_back_by_rundown(site: Site, is_transacted: bool) -> None:
    s = await scene(site)
    s.send(b"one", acknowledge=BOTH_ACKS)
    await (s.receive() if is_transacted else s.t.read())
    assert await (await site.opened(T)).purge() == OK
    assert s.bodies() == [b"one"]
    s.t.peer.abort()
    await until(lambda: s.acknowledgments() == [0xC001])
    assert s.bodies() == []


@pytest.mark.spec("MQRR-3.1.6.2-9")
@served
async def test_rundown_of_a_queue_that_was_deleted(site: Site) -> None:
    s = await scene(site)
    s.send(b"one", b"two")
    await s.taken()
    await s.receive()
    site.send(b"kept")
    q = await site.opened(peer=s.t.peer)
    assert (await q.read()).body == b"kept"
    site.delete("t")
    s.t.peer.abort()
    assert (await (await site.opened()).read(RECEIVE, 5000)).body == b"kept"


@pytest.mark.spec("MQRR-3.1.5.1-1")
@pytest.mark.spec("MQRR-3.1.5.1-2")
@pytest.mark.spec("MQRR-3.1.5.1-3")
@pytest.mark.spec("MQRR-3.1.5.1-4")
@pytest.mark.spec("MQRR-3.1.5.1-5")
@pytest.mark.spec("MQRR-3.1.5.1-6")
def test_the_cleanup_timer(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, cleanup_seconds=0.3) as site:
            s = await scene(site)
            other = await site.opened(T)
            waiting = s.t.begin(RECEIVE, FOREVER, transaction=s.unit.uow)
            await asyncio.sleep(0.4)
            s.send(b"late")
            late = await waiting
            assert late.body == b"late"
            assert await s.t.end(late, 2, END) == OK
            s.send(b"one", b"two")
            got = await s.receive()
            assert got.body == b"one"
            held = await other.read(LOOKUP_RECEIVE, 0, lookup_id=got.lookup_id)
            assert held.status == MQ_ERROR_MESSAGE_NOT_FOUND
            await asyncio.sleep(0.5)
            assert await s.t.end(got, 2, END) == MQ_ERROR_INVALID_HANDLE
            held = await other.read()
            assert held.body == b"one"
            await s.unit.commit()
            assert s.bodies() == [b"one", b"two"]
            assert await other.end(held, 1) == OK

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.1.5.1-8")
def test_the_cleanup_of_what_was_purged(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, cleanup_seconds=0.2) as site:
            s = await scene(site)
            s.send(b"one", b"two", acknowledge=BOTH_ACKS)
            await s.receive()
            await s.t.read()
            assert await (await site.opened(T)).purge() == OK
            await until(lambda: s.acknowledgments() == [0xC001, 0xC001])
            assert s.bodies() == []

    asyncio.run(run())


# Moves
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.1.4.10-17")
@pytest.mark.spec("MQRR-3.1.4.10-19")
@pytest.mark.spec("MQRR-3.1.4.10-22")
@pytest.mark.spec("MQRR-3.1.4.10-23")
@pytest.mark.spec("MQRR-3.1.4.10-25")
@pytest.mark.spec("MQRR-3.1.4.10-29")
@pytest.mark.spec("MQRR-3.1.4.10-30")
@pytest.mark.spec("MQRR-3.1.4.10-31")
@pytest.mark.spec("MQRR-3.1.4.10-32")
@pytest.mark.spec("MQRR-3.1.4.10-35")
@served
async def test_moves(site: Site) -> None:
    s = await scene(site)
    one, two, three = s.send(b"one", b"two", b"three", acknowledge=BOTH_ACKS)
    sub = await site.opened_for_move("OS:.\\private$\\t;sub", s.t.peer)
    there = await site.opened("OS:.\\private$\\t;sub", peer=s.t.peer)
    to = sub.move_context
    assert await s.t.move(to, one, s.unit.uow) == OK
    for reader in (s.t, there):
        assert (await reader.read(LOOKUP_PEEK, lookup_id=one)).status & 0x8000_0000
    assert (await there.read()).status == MQ_ERROR_IO_TIMEOUT
    assert (await s.t.read(PEEK)).body == b"two"
    second = await s.begun()
    for unit in (s.unit, second):
        assert await s.t.move(to, one, unit.uow) == MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    assert await s.t.move(to, one) == MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    received = await s.receive(second, LOOKUP_RECEIVE, lookup_id=two)
    assert received.body == b"two"
    for unit in (s.unit, second):
        assert await s.t.move(to, two, unit.uow) == MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    await second.abort()
    await s.unit.commit()
    assert (await there.read(PEEK)).body == b"one"
    assert (await s.t.read(LOOKUP_PEEK, lookup_id=one)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert await s.t.move(to, one) == MQ_ERROR_MESSAGE_NOT_FOUND, "it is in the destination"
    third = await s.begun()
    assert await s.t.move(to, two, third.uow) == OK
    await third.abort()
    assert (await s.t.read(PEEK)).body == b"two"
    assert await s.t.move(to, three) == OK, "no transaction: at once"
    assert (await there.read(LOOKUP_PEEK, lookup_id=three)).body == b"three"
    assert s.acknowledgments() == []
    got = await there.read()
    assert await there.end(got) == OK
    assert s.acknowledgments() == [0x4000]
