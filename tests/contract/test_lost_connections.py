"""Lost connections.

What is in doubt is reported so, nothing is lost, and the next call connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.contract.covering import covers, public_members
from tests.contract.forms import REMOTE_FORMS, Form, Place, blocking, bodies, new_queue, refused
from tests.contract.proxy import Proxy
from tests.contract.service import USERS, Service
from tests.contract.waiting import until_it_waits

pytestmark = pytest.mark.parametrize("form", REMOTE_FORMS, ids=str, indirect=True)
WHEN = pytest.mark.parametrize("when", ["asked", "done"])


@pytest.fixture
def proxy(form: Form, service: Service, tmp_path: Path) -> Iterator[Proxy]:
    """Stand between a client and the service."""
    with Proxy(service, form.where, tmp_path / "proxy") as made:
        yield made


@contextlib.asynccontextmanager
async def through(form: Form, proxy: Proxy) -> AsyncIterator[lanner.aio.QueueManager]:
    """Connect by way of the proxy."""
    if form.where == "unix":
        connecting = form.connect(data=proxy.data)
    else:
        connecting = form.connect(proxy.address, "alice", USERS["alice"], port=proxy.port)
    async with await connecting as qm:
        yield qm


def where(form: Form, proxy: Proxy) -> str:
    return str(proxy.data) if form.where == "unix" else proxy.address


@covers("Queue.receive: ReceiveInDoubt")
@WHEN
async def test_a_receive_whose_removal_was_asked_for_is_in_doubt_and_has_its_message(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, when: Literal["asked", "done"]
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        await q.send_many([lanner.Message(body=body, recoverable=True) for body in ("a", "b")])
        ids = [message.lookup_id async for message in q]
        mine = cut.open(q.name)
        with contextlib.suppress(errors.MessageNotFound):
            await mine.receive_by_lookup_id(1)
        # A receive is two calls: the message, and its removal.
        proxy.lose_call(2, when=when)
        with pytest.raises(errors.ReceiveInDoubt) as raised:
            await mine.receive(10)
        error = raised.value
        assert (error.message.body, error.lookup_id) == ("a", ids[0])
        assert [message.body for message in error.messages] == ["a"]
        assert error.args[0] == (
            f"{where(form, proxy)}: {mine.name}: the server hung up: "
            "the messages are here, and whether they are gone from their queue is unknown"
        )
        # The lookup id shows which it was.
        if when == "done":
            with pytest.raises(errors.MessageNotFound):
                await mine.peek_by_lookup_id(error.lookup_id)
            assert await bodies(mine) == ["b"]
        else:
            async with until_it_is_back(mine):
                assert (await mine.peek_by_lookup_id(error.lookup_id)).body == "a"


@WHEN
async def test_receives_that_shared_a_request_are_in_doubt_each_about_its_own_message(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, when: Literal["asked", "done"]
) -> None:
    sent = [str(number) for number in range(8)]
    doubtful: list[object] = []
    async with through(form, proxy) as cut:
        # How many requests the receives share depends on which of them start first.
        for number in itertools.cycle(range(1, 9)):
            q = await new_queue(qm)
            await q.send_many([lanner.Message(body=body, recoverable=True) for body in sent])
            mine = cut.open(q.name)
            with contextlib.suppress(errors.MessageNotFound):
                await mine.receive_by_lookup_id(1)
            proxy.lose_call(number, when=when)
            ends = await asyncio.gather(*(mine.receive(10) for _ in sent), return_exceptions=True)
            taken, here = [], []
            for end in ends:
                if isinstance(end, errors.ReceiveInDoubt):
                    assert len(end.messages) == 1
                    here.append(end.message.body)
                elif isinstance(end, lanner.ReceivedMessage):
                    taken.append(end.body)
                else:
                    # Its message was not here yet, and is in the queue again.
                    assert isinstance(end, errors.RemoteMachineNotAvailable | errors.InvalidHandle), end
            assert len(set(here)) == len(here)
            doubtful += here
            # There may have been fewer requests than that.
            proxy.lose_call(1_000_000, when=when)
            with contextlib.suppress(errors.IOTimeout):
                while True:
                    taken.append((await mine.receive(0.5)).body)
            assert len(set(taken)) == len(taken)
            assert set(taken) | set(here) == set(sent)
            if doubtful and number >= 3:
                break


@contextlib.asynccontextmanager
async def until_it_is_back(q: lanner.aio.Queue) -> AsyncIterator[None]:
    """Wait until the service has detected that a reader has disconnected."""
    while (await q.peek(30)).body != "a":
        pass
    yield


@WHEN
@pytest.mark.parametrize("read", ["receive_many", "receive_by_lookup_id", "receiving", "cursor"])
async def test_every_other_receive_is_in_doubt_too(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, read: str, when: Literal["asked", "done"]
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        await q.send_many([lanner.Message(body=body, recoverable=True) for body in ("a", "b")])
        mine = cut.open(q.name)
        lookup_id = (await q.peek(0)).lookup_id
        with contextlib.suppress(errors.MessageNotFound):
            await mine.receive_by_lookup_id(1)
        async with mine.cursor() as cursor:
            await cursor.peek(0)

            async def hold() -> None:
                async with mine.receiving(2, 0) as held:
                    assert len(held) == 2

            reads: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
                "receive_many": lambda: mine.receive_many(2),
                "receive_by_lookup_id": lambda: mine.receive_by_lookup_id(lookup_id),
                "receiving": hold,
                "cursor": lambda: cursor.receive(0),
            }
            proxy.lose_call(2, when=when)
            with pytest.raises(errors.ReceiveInDoubt) as raised:
                await reads[read]()
        expected = ["a", "b"] if read in ("receive_many", "receiving") else ["a"]
        assert [message.body for message in raised.value.messages] == expected
        left = ["a", "b"] if when == "asked" else [body for body in ("a", "b") if body not in expected]
        for body in left:
            assert (await mine.receive(30)).body == body
        assert await mine.count() == 0


async def test_a_receive_that_is_cut_before_its_message_is_here_leaves_it_in_the_queue(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        await q.send(lanner.Message(body="a", recoverable=True))
        mine = cut.open(q.name)
        with contextlib.suppress(errors.MessageNotFound):
            await mine.receive_by_lookup_id(1)
        proxy.lose_call(1, when="done")
        with pytest.raises(errors.RemoteMachineNotAvailable) as raised:
            await mine.receive(10)
        assert raised.value.args[0] == f"{where(form, proxy)}: {mine.name}: the server hung up"
        assert (await mine.receive(30)).body == "a"


@covers("Transaction.commit: CommitInDoubt")
@WHEN
async def test_a_commit_whose_answer_is_lost_is_in_doubt(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, when: Literal["asked", "done"]
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm, transactional=True)
        tx = cut.transaction()
        await cut.open(q.name).send("a", transaction=tx)
        proxy.lose_call(1, when=when)
        with pytest.raises(errors.CommitInDoubt) as raised:
            await tx.commit()
        assert raised.value.args[0] == (
            f"transaction {tx.identifier}: {where(form, proxy)}: transaction {tx.identifier}: the server hung up: "
            "whether it is committed is unknown"
        )
        await refused(errors.TransactionSequence, f"transaction {tx.identifier} has ended", tx.commit())
        if when == "done":
            assert await bodies(cut.open(q.name)) == ["a"]
        else:
            while await q.count():
                pass


@WHEN
async def test_sends_and_their_commit_are_one_round_trip(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, when: Literal["asked", "done"]
) -> None:
    """If the connection is lost, the whole transaction is in doubt.

    It has happened completely or not at all.
    """
    async with through(form, proxy) as cut:
        q, other = await new_queue(qm, transactional=True), await new_queue(qm, transactional=True)
        one, two = cut.open(q.name), cut.open(other.name)
        async with cut.transaction() as tx:
            tx.put(one, "a")
            tx.put(two, "b")
        # Frames of a blocking client may be several, with one answer.
        proxy.lose_call(1, when=when)
        tx = cut.transaction()
        tx.put(one, "c")
        tx.put(two, "d")
        with pytest.raises(errors.CommitInDoubt):
            await tx.commit()
        if when == "done":
            assert (await bodies(q), await bodies(other)) == (["a", "c"], ["b", "d"])
        else:
            assert (await bodies(q), await bodies(other)) == (["a"], ["b"])


@WHEN
async def test_a_send_whose_connection_is_lost_is_sent_again_and_stored_once(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, when: Literal["asked", "done"]
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        mine = cut.open(q.name)
        await mine.send("first")
        expected, identifiers = ["first"], []
        for turn in range(10):
            # The reconnection, the open and the retry are lost in some of the turns, too.
            messages = [f"{turn} {one}" for one in range(3)]
            proxy.lose_call(1, when=when)
            identifiers += await mine.send_many(messages)
            expected += messages
            messages = [f"{turn} alone"]
            proxy.lose_call(1, when=when)
            identifiers.append(await mine.send(messages[0]))
            expected += messages
        found = await q.receive_many(100)
        assert [message.body for message in found] == expected
        assert [message.id for message in found[1:]] == identifiers


@WHEN
async def test_sends_of_many_tasks_are_stored_once_when_their_connection_is_lost(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, when: Literal["asked", "done"]
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        mine = cut.open(q.name)
        await mine.send("first")
        proxy.lose_call(2, when=when)
        await asyncio.gather(*(mine.send(str(one)) for one in range(40)))
        await asyncio.gather(*(mine.send(str(one)) for one in range(40, 80)))
        found = [str(body) for body in await bodies(q)][1:]
        assert sorted(found, key=int) == [str(one) for one in range(80)]


async def test_a_send_that_cannot_be_repeated_says_that_it_may_have_been_done(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        mine = cut.open(q.name)
        await mine.send("a")
        proxy.lose_call(1, when="done")
        proxy.listen_no_more()
        with pytest.raises(errors.RemoteMachineNotAvailable) as raised:
            await mine.send_many(["b", "c"])
        assert raised.value.args[0].endswith(
            "; messages that were under way may have been sent: 0 of 2 are known to be"
        )
        assert await bodies(q) == ["a", "b", "c"]


@WHEN
async def test_each_of_many_sends_that_cannot_be_repeated_speaks_of_its_own_message(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, when: Literal["asked", "done"]
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        mine = cut.open(q.name)
        await mine.send("first")
        proxy.lose_call(2, when=when)
        proxy.listen_no_more()
        sent: list[str] = []
        ends: list[str | BaseException] = []
        # All of the first twenty may share one request; then the next request is lost.
        while all(isinstance(end, str) for end in ends):
            some = [str(len(sent) + number) for number in range(20)]
            ends += await asyncio.gather(*(mine.send(each) for each in some), return_exceptions=True)
            sent += some
        failed = [end for end in ends if not isinstance(end, str)]
        known = "; messages that were under way may have been sent: 0 of 1 are known to be"
        for end in failed:
            assert isinstance(end, errors.RemoteMachineNotAvailable | errors.ServiceNotAvailable)
            assert end.args[0].endswith(known) or "are known to be" not in end.args[0]
        assert any(end.args[0].endswith(known) for end in failed if isinstance(end, errors.LannerError))
        arrived = [str(body) for body in await bodies(q)][1:]
        assert len(set(arrived)) == len(arrived)
        assert {each for each, end in zip(sent, ends, strict=True) if isinstance(end, str)} <= set(arrived)


@WHEN
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
async def test_a_send_of_several_frames_that_is_cut_between_them_loses_and_doubles_nothing(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager, number: int, when: Literal["asked", "done"]
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        mine = cut.open(q.name)
        await mine.send("first")
        sent = [lanner.Message(body=bytes([one]) * 60_000) for one in range(15)]
        proxy.lose_call(number, when=when)
        identifiers = await mine.send_many(sent)
        # The service may still be busy with what came before the cut.
        await q.send("last")
        found = await q.receive_many(100)
        assert [message.body for message in found] == ["first", *(message.body for message in sent), "last"]
        assert [message.id for message in found[1:-1]] == identifiers


async def test_what_was_open_on_a_lost_connection_says_so(
    form: Form, proxy: Proxy, qm: lanner.aio.QueueManager
) -> None:
    async with through(form, proxy) as cut:
        q = await new_queue(qm)
        await q.send_many([lanner.Message(body=body, recoverable=True) for body in "abc"])
        mine = cut.open(q.name)
        cursor = mine.cursor()
        assert (await cursor.peek(0)).body == "a"
        tx, idle = cut.transaction(), cut.transaction()
        assert (await mine.receive(0, transaction=tx)).body == "a"
        held = mine.receiving(1, 0)
        assert [message.body for message in await held.__aenter__()] == ["b"]
        proxy.lose_call(1, when="asked")
        with pytest.raises(errors.RemoteMachineNotAvailable):
            await mine.count()
        # The next call connects again.
        assert await mine.count() == 3
        text = f"{mine.name}: the connection was lost, and the messages are in their queue again"
        with pytest.raises(errors.InvalidHandle) as raised:
            await held.__aexit__(None, None, None)
        assert raised.value.args[0] == text
        text = f"{mine.name}: the connection was lost, and the cursor with it"
        await refused(errors.InvalidHandle, text, cursor.peek(0))
        await cursor.close()
        text = f"transaction {tx.identifier} was aborted: the connection was lost"
        await refused(errors.TransactionSequence, text, mine.receive(0, transaction=tx))
        await refused(errors.TransactionSequence, text, tx.commit())
        # One that was not used yet is as good as before.
        assert (await mine.receive(30, transaction=idle)).body in ("a", "b", "c")
        await idle.commit()


def values(thing: object) -> dict[str, str]:
    """Return what the properties of an object say, for which no service is needed."""
    inner = blocking(thing)
    names = [name for name in public_members(type(inner)) if not inspect.isroutine(getattr(type(inner), name, None))]
    assert names
    return {name: repr(getattr(inner, name)) for name in names if name not in ("names", "enterprise")}


async def test_the_call_after_a_failed_one_reaches_a_service_that_was_started_again(
    form: Form, tmp_path: Path, start_own: Callable[..., Service]
) -> None:
    service = start_own()
    async with Place(form, tmp_path, service).manager() as qm:
        q = await new_queue(qm)
        await q.send_many([lanner.Message(body="kept", recoverable=True), "express"])
        things = (qm, q, qm.transaction(), await q.peek(0))
        before = [values(one) for one in things]
        async with until_it_waits(qm.open((await new_queue(qm)).name).receive(60)) as waiting:
            service.kill()
            with pytest.raises(errors.RemoteMachineNotAvailable):
                await waiting
        kind: type[errors.StatusError]
        if form.where == "unix":
            kind = errors.ServiceNotAvailable
            text = f"no queue manager runs on {service.data}: `lanner serve --data {service.data}` starts one"
        else:
            kind = errors.RemoteMachineNotAvailable
            text = (
                f"{service.address} port {service.port} cannot be reached: Connection refused; "
                "is a queue manager running there?"
            )
        for _ in range(2):
            await refused(kind, text, q.send("x"))
        assert [values(one) for one in things] == before
        text = "label of 300 characters, at most 249"
        await refused(errors.LabelTooLong, text, q.send(lanner.Message(label="x" * 300)))
        port = service.port
        service.start()
        assert service.port == port
        await q.send("again")
        assert await bodies(q) == ["kept", "again"]


async def test_a_service_that_was_started_again_is_reached_by_the_first_call(
    form: Form, tmp_path: Path, start_own: Callable[..., Service]
) -> None:
    """No call has to fail first: a connection that is known to be lost is replaced."""
    service = start_own()
    async with Place(form, tmp_path, service).manager() as qm:
        q = await new_queue(qm)
        await q.send(lanner.Message(body="kept", recoverable=True))
        # In a thread: an event loop that cannot run does not see that its connection ends.
        await asyncio.to_thread(service.kill)
        await asyncio.to_thread(service.start)
        assert await q.send("again")
        assert await bodies(q) == ["kept", "again"]
