"""Sending to a queue, and every way to read from it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.contract.covering import covers
from tests.contract.forms import Place, bodies, new_queue, refused
from tests.contract.waiting import until_it_waits


@covers("Queue.send", "Queue.send_many", "Queue.receive", "Queue.receive: IOTimeout", "Queue.peek")
async def test_messages_are_sent_peeked_and_received_by_priority(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    message = lanner.Message(body="b", priority=7)
    identifiers = await q.send_many([lanner.Message(body="a", priority=1), message, "c", b"d"])
    assert [message.id] == identifiers[1:2]
    identifiers.append(await q.send("e"))
    assert len(set(identifiers)) == 5
    assert await q.send_many([]) == []
    assert await bodies(q) == ["b", "c", b"d", "e", "a"]
    first = await q.peek(timeout=0)
    assert (first.body, first.id) == ("b", message.id)
    got = await q.receive(timeout=0)
    assert (got.id, got.lookup_id) == (first.id, first.lookup_id)
    assert [(await q.receive(0)).body for _ in range(4)] == ["c", b"d", "e", "a"]
    for read in (q.receive, q.peek):
        for timeout in (0, 0.01):
            await refused(errors.IOTimeout, errors.IOTimeout.__doc__ or "", read(timeout))


async def test_many_messages_arrive_in_order(qm: lanner.aio.QueueManager) -> None:
    """More than one request of the RPC forms can carry, by number and by size."""
    q = await new_queue(qm)
    await q.send_many(str(number) for number in range(2500))
    await q.send_many([bytes([number]) * 700_000 for number in range(8)])
    assert [message.body for message in await q.receive_many(2500)] == [str(number) for number in range(2500)]
    assert [message.body_bytes[:1] for message in await q.receive_many(100)] == [bytes([n]) for n in range(8)]


async def test_what_is_recoverable_is_there_after_a_restart(place: Place) -> None:
    """A recoverable message is on disk when `send` returns."""
    if place.form.is_remote:
        pytest.skip("test_lost_connections.py kills services")
    async with place.manager() as qm:
        await (await qm.create_queue("kept")).send_many([lanner.Message(body="x", recoverable=True), "express"])
    async with place.manager() as qm:
        assert await bodies(qm.open("kept")) == ["x"]


@covers("Queue.receive_many")
async def test_several_messages_are_received_at_once(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    assert await q.receive_many(3) == []
    assert await q.receive_many(3, timeout=0.01) == []
    await q.send_many(["a", "b", "c", "d"])
    assert [message.body for message in await q.receive_many(3)] == ["a", "b", "c"]
    assert [message.body for message in await q.receive_many(3)] == ["d"]
    assert await q.receive_many(0) == []
    assert await q.receive_many(-1) == []
    async with until_it_waits(q.receive_many(3, timeout=30)) as waiting:
        await q.send("late")
        assert [message.body for message in await waiting] == ["late"]
    assert await q.count() == 0


async def test_a_read_waits_for_its_message(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    async with until_it_waits(q.peek(30)) as peeking, until_it_waits(q.receive()) as receiving:
        identifier = await q.send("x")
        assert (await peeking).id == (await receiving).id == identifier
    assert await q.count() == 0


@covers("Queue.receiving", "Queue.receiving: IOTimeout")
async def test_held_messages_leave_when_the_block_ends_and_return_after_an_error(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    other = qm.open(q.name)
    await q.send_many(["a", "b", "c"])
    with contextlib.suppress(ZeroDivisionError):
        async with q.receiving(2, timeout=0) as held:
            assert [message.body for message in held] == ["a", "b"]
            assert (await other.peek(0)).body == "c"
            raise ZeroDivisionError
    assert await bodies(q) == ["a", "b", "c"]
    async with q.receiving(5, timeout=0) as held:
        assert [message.body for message in held] == ["a", "b", "c"]
    async with q.receiving(5, timeout=0) as held:
        assert held == []
    with pytest.raises(errors.IOTimeout):
        async with q.receiving(timeout=0.01):
            pytest.fail("nothing is there")
    await q.send("d")
    async with q.receiving() as held:
        assert [(message.body, message.lookup_id > 0) for message in held] == [("d", True)]
    assert await q.count() == 0


@covers("Queue.receiving_by_lookup_id")
async def test_a_message_held_by_lookup_id_leaves_when_the_block_ends(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b", "c"])
    ids = [message.lookup_id async for message in q]
    with contextlib.suppress(ZeroDivisionError):
        async with q.receiving_by_lookup_id(ids[1]) as held:
            assert (held.body, held.lookup_id) == ("b", ids[1])
            text = (
                f"message {ids[1]:#x} of queue {q.path_name} is being received by another reader: "
                "it is removed or returned when that ends"
            )
            await refused(errors.MessageNotFound, text, qm.open(q.name).receive_by_lookup_id(ids[1]))
            raise ZeroDivisionError
    assert await bodies(q) == ["a", "b", "c"]
    async with q.receiving_by_lookup_id(0, "last") as held:
        assert held.body == "c"
    async with q.receiving_by_lookup_id(ids[0], "next") as held:
        assert held.body == "b"
    assert await bodies(q) == ["a"]


@covers("Queue.receive_by_lookup_id", "Queue.peek_by_lookup_id", "ReceivedMessage.lookup_id")
async def test_messages_are_read_by_lookup_id(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b", "c", "d"])
    ids = [message.lookup_id async for message in q]
    assert ids == sorted(ids)
    for read in (q.peek_by_lookup_id, q.peek_by_lookup_id):
        assert [(await read(one)).body for one in ids] == ["a", "b", "c", "d"]
        assert (await read(ids[1], "next")).lookup_id == ids[2]
        assert (await read(ids[1], "previous")).lookup_id == ids[0]
        assert ((await read(0, "first")).body, (await read(0, "last")).body) == ("a", "d")
    got = await q.receive_by_lookup_id(ids[1])
    assert (got.body, got.lookup_id) == ("b", ids[1])
    assert (await q.receive_by_lookup_id(ids[2], "previous")).body == "a"
    assert (await q.receive_by_lookup_id(ids[2], "next")).body == "d"
    missing = f"no message with lookup id {ids[1]:#x} in queue {q.path_name}"
    for read in (q.receive_by_lookup_id, q.peek_by_lookup_id):
        await refused(errors.MessageNotFound, missing, read(ids[1]))
        none = f"queue {q.path_name}: no message next of lookup id {ids[2]:#x}"
        await refused(errors.MessageNotFound, none, read(ids[2], "next"))
        bad = "lookup id {}: a number from 0 to 0xffffffffffffffff"
        await refused(errors.InvalidParameter, bad.format(-1), read(-1))
        await refused(errors.InvalidParameter, bad.format(1 << 64), read(1 << 64))
        await refused(errors.InvalidParameter, bad.format("'x'"), read("x"))  # type: ignore[arg-type] # wrong on purpose
        where = "'beyond': one of first, previous, current, next, last"
        await refused(errors.InvalidParameter, where, read(ids[2], "beyond"))
    with pytest.raises(errors.InvalidParameter):
        async with q.receiving_by_lookup_id(-1):
            pytest.fail("there is no such lookup id")
    assert await bodies(q) == ["c"]


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
async def test_a_negative_time_out_is_refused(qm: lanner.aio.QueueManager, seconds: float) -> None:
    q = await new_queue(qm)
    text = f"time-out {seconds}: 0 or more seconds, or None for ever"
    async with q.cursor() as cursor:
        for read in (q.receive, q.peek, cursor.peek, cursor.peek_next, cursor.receive):
            await refused(errors.InvalidParameter, text, read(seconds))
    await refused(errors.InvalidParameter, text, q.receive_many(1, seconds))
    with pytest.raises(errors.InvalidParameter):
        async with q.receiving(1, seconds):
            pytest.fail("there is no such time-out")


@covers("Queue.purge")
async def test_a_purge_removes_everything(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    assert await q.purge() == 0
    await q.send_many([lanner.Message(body="x", recoverable=bool(number % 2)) for number in range(10)])
    assert await q.purge() == 10
    assert await q.count() == 0


# Cursors
# --------------------------------------------------------------------------------------------------


@covers(
    "Queue.cursor", "Cursor.peek", "Cursor.peek_next", "Cursor.receive", "Cursor.close", "Cursor: IOTimeout",
    "Cursor.receive: IOTimeout", "Cursor.receive: MessageNotFound",
)  # fmt: skip
async def test_a_cursor_steps_and_receives(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b", "c"])
    async with q.cursor() as cursor:
        assert (await cursor.peek(0)).body == (await cursor.peek(0)).body == "a"
        assert (await cursor.peek_next(0)).body == "b"
        got = await cursor.receive(0)
        assert (got.body, got.lookup_id > 0) == ("b", True)
        assert (await cursor.peek(0)).body == "c"
        for step in (cursor.peek_next(0), cursor.peek(0), cursor.peek(0.01), cursor.receive(0.01)):
            await refused(errors.IOTimeout, errors.IOTimeout.__doc__ or "", step)
        text = f"queue {q.path_name}: no message after the cursor"
        await refused(errors.MessageNotFound, text, cursor.receive(0))
        async with until_it_waits(cursor.peek(30)) as waiting:
            await q.send("late")
            assert (await waiting).body == "late"
    assert await bodies(q) == ["a", "c", "late"]
    await cursor.close()


async def test_a_message_under_a_cursor_that_another_took_is_missed(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b"])
    async with q.cursor() as cursor:
        await cursor.peek(0)
        await q.receive(0)
        for read in (cursor.peek, cursor.receive):
            with pytest.raises(
                errors.MessageAlreadyReceived, match=r"the message under cursor .* was taken by another"
            ):
                await read(0)
        assert (await cursor.peek_next(0)).body == "b"


async def test_a_new_cursor_cannot_step(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send("a")
    async with q.cursor() as cursor:
        with pytest.raises(errors.IllegalCursorAction, match="which is Unread"):
            await cursor.peek_next(0)
        assert (await cursor.peek(0)).body == "a"


async def test_iteration_peeks_at_every_message(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    assert await bodies(q) == []
    await q.send_many(["a", "b"])
    assert [(message.body, message.lookup_id > 0) async for message in q] == [("a", True), ("b", True)]
    assert await q.count() == 2


# Moves, and what is counted
# -----------------------------------------------------------------------------------------


@covers("Queue.move", "Queue.move_many", "ReceivedMessage.move_count")
async def test_messages_are_moved_all_or_none(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b", "c"])
    ids = [message.lookup_id async for message in q]
    await q.move(ids[1], "later")
    later = q.subqueue("later")
    assert [(message.body, message.move_count) async for message in later] == [("b", 1)]
    missing = f"no message with lookup id {ids[1]:#x} in queue {q.path_name}"
    await refused(errors.MessageNotFound, missing, q.move_many([ids[0], ids[1]], "later"))
    assert await bodies(q) == ["a", "c"]
    await q.move_many([ids[0], ids[2]], later)
    assert sorted(map(str, await bodies(later))) == ["a", "b", "c"]
    moved = [message.lookup_id async for message in later]
    await later.move_many(moved, q)
    assert [message.move_count async for message in q] == [2, 2, 2]
    assert [message.move_count for message in await q.receive_many(3)] == [2, 2, 2]


async def test_a_message_is_moved_within_one_queue_manager_only(qm: lanner.aio.QueueManager, place: Place) -> None:
    q = await new_queue(qm)
    await q.send("a")
    lookup_id = (await q.peek(0)).lookup_id
    bad = "lookup id -1: a number from 0 to 0xffffffffffffffff"
    await refused(errors.InvalidParameter, bad, q.move(-1, "later"))
    if place.service is None:
        foreign = place.form.embedded(place.data.with_name("foreign"), "BETA")
    else:
        foreign = await place.connect()
    async with foreign as elsewhere:
        text = "messages are moved and copied between queues of one queue manager object"
        target = elsewhere.open(q.name if place.service else "x")
        await refused(errors.InvalidParameter, text, q.move(lookup_id, target))
    assert await bodies(q) == ["a"]


@covers("ReceivedMessage.abort_count")
async def test_every_read_says_where_a_message_lay_and_what_happened_to_it(qm: lanner.aio.QueueManager) -> None:
    """Lookup id, abort count and move count, of peeks and receives, in transactions and outside."""
    q = await new_queue(qm, transactional=True)
    async with qm.transaction() as tx:
        await q.send("a", transaction=tx)
    lookup_id = (await q.peek(0)).lookup_id
    for _ in range(2):
        tx = qm.transaction()
        got = await q.receive(0, transaction=tx)
        assert got.lookup_id == lookup_id
        await tx.abort()
    await q.move(lookup_id, "later")
    later = q.subqueue("later")
    lookup_id = (await later.peek(0)).lookup_id

    def known(message: lanner.ReceivedMessage) -> tuple[int, int, int]:
        return message.lookup_id, message.abort_count, message.move_count

    async with later.cursor() as cursor:
        assert known(await cursor.peek(0)) == (lookup_id, 2, 1)
    assert known(await later.peek(0)) == (lookup_id, 2, 1)
    assert known(await later.peek_by_lookup_id(lookup_id)) == (lookup_id, 2, 1)
    assert [known(message) async for message in later] == [(lookup_id, 2, 1)]
    aborts = 2
    for read in ("receive", "receive_many", "receive_by_lookup_id", "cursor"):
        tx = qm.transaction()
        if read == "receive":
            got = await later.receive(0, transaction=tx)
        elif read == "receive_many":
            (got,) = await later.receive_many(5, transaction=tx)
        elif read == "receive_by_lookup_id":
            got = await later.receive_by_lookup_id(lookup_id, transaction=tx)
        else:
            async with later.cursor() as cursor:
                await cursor.peek(0)
                got = await cursor.receive(0, transaction=tx)
        assert known(got) == (lookup_id, aborts, 1), read
        await tx.abort()
        aborts += 1
    with contextlib.suppress(ZeroDivisionError):
        async with later.receiving(1, 0) as held:
            assert known(held[0]) == (lookup_id, aborts, 1)
            raise ZeroDivisionError
    # What a reader gives back outside a transaction was not aborted.
    assert known(await later.receive(0)) == (lookup_id, aborts, 1)


# Several at once
# --------------------------------------------------------------------------------------------------


async def test_tasks_and_threads_share_one_manager_and_one_queue_object(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    sent = [str(uuid.uuid4()) for _ in range(120)]

    async def send(part: list[str]) -> None:
        for body in part:
            await q.send(lanner.Message(body=body, recoverable=True))

    async def receive() -> list[object]:
        return [(await q.receive(30)).body for _ in range(20)]

    receiving = [asyncio.create_task(receive()) for _ in range(6)]
    await asyncio.gather(*(send(sent[start::6]) for start in range(6)))
    received = await asyncio.gather(*receiving)
    assert sorted(body for part in received for body in map(str, part)) == sorted(sent)


async def test_a_wait_does_not_keep_others_from_the_manager(qm: lanner.aio.QueueManager) -> None:
    q, other = await new_queue(qm), await new_queue(qm)
    async with until_it_waits(q.receive(30)) as waiting:
        await other.send("x")
        assert (await other.receive(0)).body == "x"
        await q.send("y")
        assert (await waiting).body == "y"
