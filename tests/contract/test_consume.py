"""`Queue.consume`: a handler for each message, with retries and a place for poison.

More is in tests/client/test_consume.py.
"""

from __future__ import annotations

import lanner.aio
from lanner import ReceivedMessage
from tests.contract.covering import covers
from tests.contract.forms import bodies, new_queue


@covers("Queue.consume", "Transaction.is_over")
async def test_a_message_that_fails_too_often_is_set_aside(qm: lanner.aio.QueueManager) -> None:
    q, results = await new_queue(qm, transactional=True), await new_queue(qm, transactional=True)
    async with qm.transaction() as tx:
        await q.send_many(["good", "bad", "better"], transaction=tx)
        before = tx.is_over
    assert (before, tx.is_over) == (False, True)
    seen: list[tuple[object, int]] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, message.abort_count))
        if message.body == "bad":
            raise ValueError(message.body)

    result = await q.consume(handle, retries=2, backoff=(0.001, 0.001), idle=0)
    assert (result.handled, result.retried, result.poisoned, result.in_doubt) == (2, 2, 1, 0)
    assert sorted(seen, key=str) == [("bad", 0), ("bad", 1), ("better", 0), ("good", 0)]
    assert (await q.count(), await bodies(q.subqueue("poison"))) == (0, ["bad"])
    assert await results.count() == 0
