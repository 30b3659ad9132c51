"""Looking for messages, and moving, copying, resending and deleting them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Coroutine
from typing import Any

import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.contract.covering import covers
from tests.contract.forms import Place, bodies, new_queue
from tests.contract.test_access import bob_of


async def fails(kind: type[Exception], text: str, work: Coroutine[Any, Any, object]) -> None:
    """Expect an error whose text has this part."""
    with pytest.raises(kind) as error:
        await work
    assert text in str(error.value)


async def ids(q: lanner.aio.Queue) -> list[int]:
    return [message.lookup_id async for message in q]


@covers("Queue.find", "Queue.find: InvalidParameter")
async def test_messages_are_found_by_conditions(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send(lanner.Message(body="Straße", label="Order 1", priority=5, app_specific=7, response_queue="answers"))
    await q.send(lanner.Message(body=b"plain octets", label="invoice", recoverable=True))
    await q.send(
        lanner.Message(body="third", label="order 2", correlation_id="5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11\\9")
    )
    first, second, third = [message async for message in q]
    hour = dt.timedelta(hours=1)
    for conditions, expected in (
        ((), [first, second, third]),
        (("label~ORDER",), [first, third]),
        (("label=order 2",), [third]),
        (("label!=invoice", "priority>=4"), [first]),
        (("body~strasse",), [first]),
        (("body=plain octets",), [second]),
        (("body~OCTETS", "recoverable=yes"), [second]),
        (("class=normal", "app_specific=0x7"), [first]),
        (("correlation_id~6d0c-4b7e",), [third]),
        ((f"id={second.id}",), [second]),
        (("response_queue~answers",), [first]),
        ((f"sent>={(first.sent_time - hour).isoformat()}", "age<1h", "size<20"), [first, second, third]),
        ((f"arrived>{(first.sent_time + hour).isoformat()}",), []),
        (("age>1.5h",), []),
        (("sender!=Everyone", "transactional=no", "authenticated=no", "aborts=0", "moves<1"), [first, second, third]),
    ):
        found = await q.find(*conditions)
        assert found.lookup_ids == [one.lookup_id for one in expected], conditions
        assert [one.id for one in found.messages] == [one.id for one in expected]
        assert (found.scanned, found.after) == (3, None)
    for wrong, text in (
        ("label", "condition 'label': FIELD, an operator and a value, such as label~order"),
        ("colour=red", "there is no field 'colour'"),
        ("label>x", "label has no '>'; use = != ~"),
        ("priority=high", "priority is compared with a number"),
        ("sent>yesterday", "sent is compared with a time"),
        ("recoverable=maybe", "recoverable is compared with yes or no"),
        ("sender=nobody at all", "there is no account 'nobody at all'"),
        ("x" * 5000, "FIELD, an operator and a value"),
    ):
        await fails(errors.InvalidParameter, text, q.find(wrong))
    await fails(errors.InvalidParameter, "limit 0 of a search", q.find(limit=0))
    await fails(errors.InvalidParameter, "scan 1000000 of a search", q.find(scan=1_000_000))
    await fails(errors.InvalidParameter, "after -1 of a search", q.find(after=-1))
    await fails(errors.InvalidParameter, "33", q.find(*["priority=3"] * 33))


async def test_a_search_is_continued_where_it_ended(qm: lanner.aio.QueueManager) -> None:
    """A search continues by the numbers of messages found and examined.

    It does so even if the message at that place is gone.
    """
    q = await new_queue(qm)
    await q.send_many(
        [lanner.Message(body=str(number), label="even" if number % 2 == 0 else "odd") for number in range(500)]
    )
    page = await q.find("label=odd", limit=3)
    assert ([one.body for one in page.messages], page.scanned) == (["1", "3", "5"], 6)
    assert page.after == page.lookup_ids[-1]
    await q.receive_by_lookup_id(page.lookup_ids[-1])
    page = await q.find("label=odd", limit=2, after=page.after)
    assert [one.body for one in page.messages] == ["7", "9"]
    page = await q.find("body=499", scan=250)
    assert (page.messages, page.scanned) == ([], 250)
    page = await q.find("body=499", scan=1000, after=page.after, ids_only=True)
    assert (page.messages, len(page.lookup_ids), page.scanned, page.after) == ([], 1, 249, None)


@covers("Queue.move_many: TransactionUsage", "Queue.copy_many")
async def test_messages_go_to_any_queue(qm: lanner.aio.QueueManager) -> None:
    """Messages pass between transactional and other queues in both directions.

    They become new messages with the same content.
    """
    plain, tx_queue = await new_queue(qm), await new_queue(qm, transactional=True)
    await plain.send_many([lanner.Message(body=one, label=one, app_specific=5, recoverable=True) for one in "abc"])
    old = [message async for message in plain]
    await plain.move(old[0].lookup_id, tx_queue)
    assert (await bodies(plain), await bodies(tx_queue)) == (["b", "c"], ["a"])
    moved = await tx_queue.peek(0)
    assert moved.id != old[0].id
    assert (moved.label, moved.app_specific, moved.is_transactional, moved.abort_count) == ("a", 5, True, 0)
    await plain.move_many(await ids(plain), tx_queue.format_name)
    assert (await bodies(plain), await bodies(tx_queue)) == ([], ["a", "b", "c"])
    await tx_queue.move((await ids(tx_queue))[1], plain)
    assert (await bodies(plain), await bodies(tx_queue)) == (["b"], ["a", "c"])
    copied = await tx_queue.copy_many(await ids(tx_queue), plain)
    assert [message.id async for message in plain][1:] == copied
    assert (await bodies(plain), await bodies(tx_queue)) == (["b", "a", "c"], ["a", "c"])
    assert await plain.copy_many((await ids(plain))[:1], plain)
    assert await bodies(plain) == ["b", "a", "c", "b"]
    async with qm.transaction() as tx:
        text = f"{plain.format_name} is not transactional"
        await fails(errors.TransactionUsage, text, tx_queue.move_many(await ids(tx_queue), plain, transaction=tx))
    assert await bodies(tx_queue) == ["a", "c"]


async def test_a_move_to_a_transactional_queue_is_whole_or_not_at_all(qm: lanner.aio.QueueManager) -> None:
    q, small = await new_queue(qm), await new_queue(qm, transactional=True, quota_kb=3)
    await q.send_many([lanner.Message(body=bytes(1000), label=one) for one in "abcd"])
    before = [(message.lookup_id, message.abort_count) async for message in q]
    await fails(errors.InsufficientResources, "is full: quota 3 KiB", q.move_many(await ids(q), small))
    assert [(message.lookup_id, message.abort_count) async for message in q] == before
    assert await small.count() == 0
    missing = [*(await ids(q))[:2], 5]
    await fails(errors.MessageNotFound, "no message with lookup id 0x5", q.move_many(missing, small))
    assert (await q.count(), await small.count()) == (4, 0)
    await q.move_many((await ids(q))[:2], small)
    assert (await q.count(), await small.count()) == (2, 2)


async def test_a_move_to_a_plain_queue_keeps_those_before_a_refusal(qm: lanner.aio.QueueManager) -> None:
    q, small = await new_queue(qm), await new_queue(qm, quota_kb=3)
    await q.send_many([lanner.Message(body=bytes(1000), label=one) for one in "abcd"])
    await fails(errors.InsufficientResources, "is full: quota 3 KiB", q.move_many(await ids(q), small))
    assert [message.label async for message in small] == ["a", "b"]
    assert [message.label async for message in q] == ["c", "d"]


async def test_a_move_in_a_transaction_happens_when_it_commits(qm: lanner.aio.QueueManager) -> None:
    q, other = await new_queue(qm, transactional=True), await new_queue(qm, transactional=True)
    async with qm.transaction() as tx:
        await q.send_many(["a", "b"], transaction=tx)
    tx = qm.transaction()
    await q.move_many(await ids(q), other, transaction=tx)
    assert (await bodies(q), await bodies(other)) == ([], [])
    await tx.abort()
    assert (await bodies(q), await bodies(other)) == (["a", "b"], [])
    async with qm.transaction() as tx:
        await q.move_many(await ids(q), other, transaction=tx)
        await other.send("c", transaction=tx)
    assert (await bodies(q), await bodies(other)) == ([], ["a", "b", "c"])


async def test_messages_for_another_computer_wait_in_its_outgoing_queue(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b"])
    away = qm.open(r"DIRECT=OS:NOWHERE\private$\passed")
    await q.move((await ids(q))[0], away)
    await q.copy_many(await ids(q), away)
    assert await bodies(q) == ["b"]
    assert await bodies(away) == ["a", "b"]
    await away.purge()


@covers("Queue.resend", "Queue.resend: InvalidParameter")
async def test_a_message_is_sent_again_with_changes(qm: lanner.aio.QueueManager) -> None:
    q, other = await new_queue(qm), await new_queue(qm, transactional=True)
    await q.send(lanner.Message(body=b"\x01\x02", label="old", app_specific=9, priority=1))
    (lookup_id,) = await ids(q)
    text = "colour is no field of a message to send"
    await fails(errors.InvalidParameter, text, q.resend(lookup_id, colour="red"))
    identifier = await q.resend(lookup_id, body="new text", label="new", priority=6)
    (message,) = [one async for one in q]
    assert (message.id, message.body, message.label) == (identifier, "new text", "new")
    assert (message.priority, message.app_specific) == (6, 9)
    await q.resend(message.lookup_id, other, keep=True, time_to_be_received=None)
    assert (await bodies(q), await bodies(other)) == (["new text"], ["new text"])
    async with qm.transaction() as tx:
        await other.resend((await ids(other))[0], label="third", transaction=tx)
    assert [one.label async for one in other] == ["third"]
    await q.send(lanner.Message(body="late", time_to_be_received=0, use_dead_letter_queue=True))
    letter = await qm.dead_letter.peek(5)
    await qm.dead_letter.resend(letter.lookup_id, time_to_be_received=None)
    assert await bodies(q) == ["new text", "late"]
    assert letter.lookup_id not in await ids(qm.dead_letter)


@covers("Queue.delete")
async def test_messages_are_deleted_by_lookup_id(qm: lanner.aio.QueueManager) -> None:
    """Their senders get the same acknowledgments as for a purge."""
    q, admin = await new_queue(qm), await new_queue(qm)
    for body in "abc":
        message = lanner.Message(body=body, acknowledge="nack_receive", administration_queue=admin.path_name)
        await q.send(message)
    first, second, third = await ids(q)
    await fails(errors.MessageNotFound, "no message with lookup id 0x7", q.delete(first, 7))
    assert await bodies(q) == ["a", "b", "c"]
    await q.delete(first, third)
    assert await ids(q) == [second]
    told = [await admin.receive(5), await admin.receive(5)]
    assert {one.message_class for one in told} == {lanner.MessageClass.NACK_QUEUE_PURGED}


async def test_the_rights_are_those_of_a_receive_and_a_send(qm: lanner.aio.QueueManager, place: Place) -> None:
    q, other = await new_queue(qm), await new_queue(qm)
    await q.send("a")
    (lookup_id,) = await ids(q)
    who = await bob_of(place, qm)
    async with place.as_bob(qm) as bobs:
        his, target = bobs.open(q.name), bobs.open(other.name)
        for use in (his.find(), his.copy_many([lookup_id], target), his.delete(lookup_id), his.move(lookup_id, target)):
            await fails(errors.AccessDenied, "", use)
        await q.grant(who, "peek")
        assert (await his.find("body=a")).lookup_ids == [lookup_id]
        await other.deny(who, "send")
        await fails(errors.AccessDenied, "", his.copy_many([lookup_id], target))
        await fails(errors.AccessDenied, "", his.delete(lookup_id))
        await q.grant(who, "receive")
        await fails(errors.AccessDenied, "", his.move(lookup_id, target))
        await fails(errors.AccessDenied, "", his.resend(lookup_id, target, label="x"))
        assert (await bodies(q), await bodies(other)) == (["a"], [])
        await other.grant(who, "send")
        await his.move(lookup_id, target)
    assert (await bodies(q), await bodies(other)) == ([], ["a"])
    assert (await other.peek(0)).sender_id != b""
