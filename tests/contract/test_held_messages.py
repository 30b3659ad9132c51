"""Messages inside an open block, and objects that a program drops without closing them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.contract.forms import FORMS, REMOTE_FORMS, Form, Place, bodies, new_queue
from tests.contract.service import Service
from tests.contract.test_interruptions import in_this_thread

BLOCKING = pytest.mark.parametrize("form", [form for form in FORMS if not form.is_async], ids=str, indirect=True)
REMOTE = pytest.mark.parametrize("form", REMOTE_FORMS, ids=str, indirect=True)


@REMOTE
async def test_messages_held_on_a_connection_that_was_replaced_are_in_their_queue_again(
    form: Form, tmp_path: Path, start_own: Callable[..., Service]
) -> None:
    service = start_own()
    async with Place(form, tmp_path, service).manager() as qm:
        q, other = await new_queue(qm), await new_queue(qm)
        for one in (q, other):
            await one.send(lanner.Message(body="a", recoverable=True))
        held, later = q.receiving(1, 30), other.receiving(1, 30)
        assert [message.body for message in await held.__aenter__()] == ["a"]
        service.kill()
        service.start()
        # A client may detect the loss on its own or by a call.
        with contextlib.suppress(errors.RemoteMachineNotAvailable):
            await other.count()
        # What is held on the new connection shows that it is left alone.
        assert [message.body for message in await later.__aenter__()] == ["a"]
        text = "the connection was lost, and the messages are in their queue again"
        with pytest.raises(errors.InvalidHandle, match=text):
            await held.__aexit__(None, None, None)
        await later.__aexit__(None, None, None)
        assert await other.count() == 0
        assert await bodies(q) == ["a"]


@pytest.mark.parametrize("how", ["several", "lookup id"])
async def test_messages_purged_while_they_are_held_leave_nothing_behind(qm: lanner.aio.QueueManager, how: str) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b", "c"])
    lookup_id = (await q.peek(0)).lookup_id
    block = q.receiving(2, 0) if how == "several" else q.receiving_by_lookup_id(lookup_id)
    with pytest.raises(errors.MessageAlreadyReceived, match="was purged"):
        async with block:
            await q.purge()
    assert await bodies(q) == []
    assert await q.count() == 0
    await q.send("d")
    assert [message.body for message in await q.receive_many(5)] == ["d"]


async def test_a_queue_that_was_deleted_and_created_again_can_be_iterated(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send("a")
    assert await bodies(q) == ["a"]
    await qm.delete_queue(q.name)
    await (await qm.create_queue(q.name)).send("b")
    assert await bodies(q) == ["b"]
    assert await bodies(q) == ["b"]


@BLOCKING
def test_cursors_that_are_dropped_are_closed(place: Place) -> None:
    """More of them than a connection may have open."""
    with in_this_thread(place) as qm:
        q = qm.create_queue("dropped-cursors")
        try:
            q.send("a")
            for _ in range(12_000):
                assert q.cursor().peek(0).body == "a"
            q.send("b")
            assert [message.body for message in q.receive_many(5)] == ["a", "b"]
        finally:
            qm.delete_queue("dropped-cursors")
