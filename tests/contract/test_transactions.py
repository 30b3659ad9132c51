"""`Transaction`: several operations, done together or not at all."""

from __future__ import annotations

import contextlib
import uuid

import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.contract.covering import covers
from tests.contract.forms import Place, bodies, new_queue, refused
from tests.contract.waiting import until_it_waits


async def filled(qm: lanner.aio.QueueManager, *messages: str) -> lanner.aio.Queue:
    """Create a transactional queue with messages."""
    q = await new_queue(qm, transactional=True)
    async with qm.transaction() as tx:
        await q.send_many(messages, transaction=tx)
    return q


@covers(
    "QueueManager.transaction", "Transaction.commit", "Transaction.identifier", "Transaction.unit",
    "ReceivedMessage.is_transactional", "ReceivedMessage.is_first_in_transaction",
    "ReceivedMessage.is_last_in_transaction",
)  # fmt: skip
async def test_a_commit_does_everything(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm, transactional=True)
    tx = qm.transaction()
    assert str(uuid.UUID(tx.identifier)) == tx.identifier
    assert repr(tx) == f"<Transaction {tx.identifier} of ALPHA>"
    await q.send_many(["a", "b"], transaction=tx)
    await q.send("c", transaction=tx)
    await refused(errors.IOTimeout, errors.IOTimeout.__doc__ or "", q.peek(0))
    await tx.commit()
    async with qm.transaction() as tx:
        first = await q.receive(0, transaction=tx)
        second, third = await q.receive_many(5, transaction=tx)
    assert (first.body, second.body, third.body) == ("a", "b", "c")
    flags = [
        (one.is_transactional, one.is_first_in_transaction, one.is_last_in_transaction)
        for one in (first, second, third)
    ]
    assert flags == [(True, True, False), (True, False, False), (True, False, True)]
    assert await q.count() == 0


@covers("Transaction.put")
async def test_a_commit_sends_what_was_put_into_it(qm: lanner.aio.QueueManager) -> None:
    q, other = await filled(qm, "order"), await new_queue(qm, transactional=True)
    async with qm.transaction() as tx:
        order = await q.receive(0, transaction=tx)
        put = [tx.put(other, f"{order.body!r} {number}") for number in range(3)]
        put.append(tx.put(q, "again"))
        put.append(tx.put(other, lanner.Message(body="last", label="l")))
        assert [message.id for message in put] == [None] * 5
    found = [message async for message in other]
    assert [message.body for message in found] == ["'order' 0", "'order' 1", "'order' 2", "last"]
    (again,) = [message async for message in q]
    assert [message.id for message in put] == [*(one.id for one in found[:3]), again.id, found[3].id]
    assert found[0].is_first_in_transaction
    # More than one request takes, and with an answer in between.
    tx = qm.transaction()
    await other.send("early", transaction=tx)
    for _ in range(25):
        tx.put(other, lanner.Message(body=bytes(100_000)))
    await tx.commit()
    assert await other.count() == 30
    # Nothing of an aborted one is sent.
    tx = qm.transaction()
    tx.put(other, "never")
    await tx.abort()
    assert await other.count() == 30
    assert tx.is_over


async def test_a_refused_message_of_a_commit_aborts_it(qm: lanner.aio.QueueManager) -> None:
    q, full = await filled(qm, "order"), await new_queue(qm, transactional=True, quota=1)
    plain = await new_queue(qm)
    for target, body, error in (
        (full, bytes(4000), errors.InsufficientResources),
        (plain, b"x", errors.TransactionUsage),
        (qm.open("missing"), b"x", errors.QueueNotFound),
        (q, bytes(5_000_000), errors.InsufficientResources),
    ):
        tx = qm.transaction()
        assert (await q.receive(0, transaction=tx)).body == "order"
        tx.put(q, "before")
        tx.put(target, lanner.Message(body=body))
        tx.put(q, "behind")
        with pytest.raises(error):
            await tx.commit()
        assert tx.is_over
        assert await bodies(q) == ["order"]
    with pytest.raises(errors.TransactionSequence):
        tx.put(q, "late")


@covers("Transaction.abort")
async def test_an_abort_undoes_everything(qm: lanner.aio.QueueManager) -> None:
    q = await filled(qm, "a", "b", "c", "d")
    ids = [message.lookup_id async for message in q]
    tx = qm.transaction()
    await q.send("never", transaction=tx)
    assert (await q.receive(0, transaction=tx)).body == "a"
    assert (await q.receive_by_lookup_id(ids[2], transaction=tx)).body == "c"
    await q.move(ids[3], "later", transaction=tx)
    async with q.cursor() as cursor:
        assert (await cursor.peek(0)).body == "b"
        assert (await cursor.receive(0, transaction=tx)).body == "b"
    await tx.abort()
    assert await bodies(q) == ["a", "b", "c", "d"]
    assert [message.lookup_id async for message in q] == ids
    assert await q.subqueue("later").count() == 0


async def test_the_end_of_a_block_commits_and_an_error_in_it_aborts(qm: lanner.aio.QueueManager) -> None:
    q = await filled(qm, "a")
    with contextlib.suppress(ZeroDivisionError):
        async with qm.transaction() as tx:
            await q.receive(0, transaction=tx)
            raise ZeroDivisionError
    assert await bodies(q) == ["a"]
    async with qm.transaction() as tx:
        await q.receive(0, transaction=tx)
        await tx.abort()
    assert await bodies(q) == ["a"]
    async with qm.transaction() as tx:
        await q.receive(0, transaction=tx)
    assert await bodies(q) == []
    async with qm.transaction():
        pass


async def test_a_message_is_received_by_lookup_id_and_moved_in_a_transaction(qm: lanner.aio.QueueManager) -> None:
    q = await filled(qm, "a", "b", "c")
    ids = [message.lookup_id async for message in q]
    async with qm.transaction() as tx:
        got = await q.receive_by_lookup_id(ids[1], transaction=tx)
        assert (got.body, got.lookup_id) == ("b", ids[1])
        assert (await q.receive_by_lookup_id(0, "last", transaction=tx)).body == "c"
        await q.move(ids[0], "later", transaction=tx)
        assert await q.subqueue("later").receive_many(1) == []
    assert await bodies(q) == []
    assert await bodies(q.subqueue("later")) == ["a"]


async def test_a_message_that_a_transaction_holds_is_refused_with_its_name(qm: lanner.aio.QueueManager) -> None:
    q = await filled(qm, "a", "b")
    (a, b) = [message.lookup_id async for message in q]
    tx, other = qm.transaction(), qm.transaction()
    await q.receive(0, transaction=tx)
    await q.move(b, "later", transaction=tx)
    for lookup_id in (a, b):
        what = f"message {lookup_id:#x} of queue {q.path_name} is held by"
        done = "received" if lookup_id == a else "moved"
        own = f"{what} this transaction, {tx.identifier}, which has {done} it"
        for use in (q.receive_by_lookup_id(lookup_id, transaction=tx), q.move(lookup_id, "later", transaction=tx)):
            await refused(errors.MessageNotFound, own, use)
        theirs = f"{what} transaction {tx.identifier}: it is removed when that commits, and returned when that aborts"
        for use in (
            q.receive_by_lookup_id(lookup_id, transaction=other),
            q.move(lookup_id, "later", transaction=other),
            q.receive_by_lookup_id(lookup_id),
            q.move(lookup_id, "later"),
        ):
            await refused(errors.MessageNotFound, theirs, use)
        await refused(errors.TransactionUsage, theirs, q.peek_by_lookup_id(lookup_id))
    await tx.abort()
    await other.abort()
    assert await bodies(q) == ["a", "b"]


async def test_an_ended_transaction_is_refused(qm: lanner.aio.QueueManager) -> None:
    q = await filled(qm, "a")
    lookup_id = (await q.peek(0)).lookup_id
    for is_used in (False, True):
        for end in ("commit", "abort"):
            tx = qm.transaction()
            if is_used:
                await q.send("b", transaction=tx)
            await (tx.commit() if end == "commit" else tx.abort())
            text = f"transaction {tx.identifier} has ended"
            for use in (tx.commit, tx.abort):
                await refused(errors.TransactionSequence, text, use())
            await refused(errors.TransactionSequence, text, q.send("x", transaction=tx))
            await refused(errors.TransactionSequence, text, q.send_many(["x"], transaction=tx))
            await refused(errors.TransactionSequence, text, q.receive(0, transaction=tx))
            await refused(errors.TransactionSequence, text, q.receive_many(1, transaction=tx))
            await refused(errors.TransactionSequence, text, q.receive_by_lookup_id(lookup_id, transaction=tx))
            await refused(errors.TransactionSequence, text, q.move(lookup_id, "later", transaction=tx))
            async with q.cursor() as cursor:
                await refused(errors.TransactionSequence, text, cursor.receive(0, transaction=tx))


async def test_a_transaction_of_another_manager_is_refused(qm: lanner.aio.QueueManager, place: Place) -> None:
    q = await filled(qm, "a")
    if place.service is None:
        foreign = place.form.embedded(place.data.with_name("foreign"), "BETA")
    else:
        foreign = await place.connect()
    async with foreign as elsewhere:
        tx = elsewhere.transaction()
        text = f"transaction {tx.identifier} belongs to another queue manager"
        await refused(errors.TransactionUsage, text, q.send("x", transaction=tx))
        await refused(errors.TransactionUsage, text, q.receive(0, transaction=tx))
        await tx.abort()
    assert await bodies(q) == ["a"]


async def test_a_transactional_queue_takes_transactional_messages_and_others_take_none(
    qm: lanner.aio.QueueManager,
) -> None:
    q, tq = await new_queue(qm), await new_queue(qm, transactional=True)
    text = f"queue {tq.path_name} is transactional: send to it in a transaction"
    await refused(errors.TransactionUsage, text, tq.send("x"))
    await refused(errors.TransactionUsage, text, tq.send_many(["x"]))
    tx = qm.transaction()
    text = f"queue {q.path_name} is not transactional: send to it outside transactions"
    await refused(errors.TransactionUsage, text, q.send("x", transaction=tx))
    await refused(errors.TransactionUsage, text, q.send_many(["x"], transaction=tx))
    await q.send("x")
    # A transaction can receive from either.
    assert (await q.receive(0, transaction=tx)).body == "x"
    await tx.abort()
    assert (await q.count(), await tq.count()) == (1, 0)


async def test_the_end_of_a_transaction_ends_the_reads_that_wait_in_it(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm, transactional=True)
    tx = qm.transaction()
    async with until_it_waits(q.receive(30, transaction=tx)) as waiting:
        await tx.abort()
        text = f"transaction {tx.identifier} has ended while this read waited in it"
        with pytest.raises(errors.TransactionSequence) as raised:
            await waiting
        assert raised.value.args[0] == text


async def test_a_transaction_that_is_forgotten_is_aborted(qm: lanner.aio.QueueManager) -> None:
    q = await filled(qm, "a")

    async def take() -> None:
        tx = qm.transaction()
        assert (await q.receive(0, transaction=tx)).body == "a"

    await take()
    # Soon: the thread of a blocking form may have the object a moment longer.
    for _ in range(100):
        with contextlib.suppress(errors.IOTimeout):
            assert (await q.receive(0.1)).body == "a"
            return
    pytest.fail("it is held for ever")
