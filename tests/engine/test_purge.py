"""Purge Queue (MS-MQDMPR 3.1.7.1.7)."""

from __future__ import annotations

from typing import Any

import pytest

from lanner.model.enums import Acknowledgements, MessageClass, PositionState, QueueAccessType
from lanner.model.live import MessagePosition
from tests.engine.harness import Harness, Reader, at_once

PURGED = MessageClass.NACK_QUEUE_PURGED


@pytest.mark.spec("DMPR-3.1.7.1.7-1")
def test_purge_deletes_every_available_message_and_says_so(h: Harness) -> None:
    """Senders that requested acknowledgments get NackQueuePurged, class 0xC001."""
    h.create("admin")
    queue = h.create()
    asking: dict[str, Any] = {
        "administration_queue_format_name": h.name("admin"),
        "acknowledgements_requested": Acknowledgements.NACK_RECEIVE,
    }
    h.send(body=b"low", priority=0, **asking)
    h.send(body=b"high", priority=7)
    h.send(body=b"express", recoverable=False, **asking)
    h.create("other")
    h.send("other", b"stays")
    removals = h.removals()
    assert h.engine.purge_queue(queue) == 3
    assert sorted(removals) == [(b"express", PURGED), (b"high", PURGED), (b"low", PURGED)]
    assert sorted((m.message_class, m.body) for m in h.messages("admin")) == [(0xC001, b"express"), (0xC001, b"low")]
    assert (h.bodies(), queue.message_count, queue.total_bytes) == ([], 0, 0)
    assert h.bodies("other") == [b"stays"]
    h.restart()
    assert h.bodies() == []


def read_begun(h: Harness) -> MessagePosition:
    return at_once(h.engine.dequeue_message_begin(h.open(), timeout=0))


@pytest.mark.spec("DMPR-3.1.7.1.7-2")
def test_purge_only_marks_what_somebody_holds(h: Harness) -> None:
    """PurgePending marks messages that are held.

    Such a message is received in a transaction, moved in one, or under a two-phase read. No reader
    gets it by any kind of read, and it is deleted when its holder releases it.
    """
    queue = h.create()
    for body in (b"received", b"moved", b"begun", b"free"):
        h.send(body=body)
    ids = h.lookup_ids()
    transaction = h.begin()
    h.receive(transaction=transaction)
    source, target = h.open("q", QueueAccessType.MOVE), h.open("q;sub", QueueAccessType.MOVE)
    h.engine.move_message_by_lookup_identifier(source, ids[b"moved"], target, transaction)
    begun = read_begun(h)
    removals = h.removals()
    assert h.engine.purge_queue(queue) == 1
    assert removals == [(b"free", PURGED)]
    held = [queue.held_positions[ids[body]].state for body in (b"received", b"moved", b"begun")]
    assert held == [PositionState.PURGE_PENDING] * 3
    assert queue.message_count == 3

    waiting = Reader()
    h.engine.dequeue_message(h.open(), on_end=waiting)
    assert (h.bodies(), h.receive(), h.lookup_ids()) == ([], None, {})
    h.engine.dequeue_message_end(h.open(), begun, delete_message=False)
    assert removals[1:] == [(b"begun", PURGED)]
    h.abort(transaction)
    assert sorted(removals[2:]) == [(b"moved", PURGED), (b"received", PURGED)]
    assert (waiting.ends, h.bodies(), h.bodies("q;sub")) == ([], [], [])
    assert (queue.message_count, queue.total_bytes, queue.held_positions) == (0, 0, {})


@pytest.mark.spec("DMPR-3.1.7.1.7-2")
@pytest.mark.parametrize("delete_message", [True, False])
def test_a_two_phase_read_of_a_purged_message_ends_its_life(h: Harness, *, delete_message: bool) -> None:
    queue = h.create()
    h.send(body=b"a")
    begun = read_begun(h)
    h.engine.purge_queue(queue)
    assert begun.state is PositionState.PURGE_PENDING
    h.engine.dequeue_message_end(h.open(), begun, delete_message=delete_message)
    assert (begun.state, queue.message_count, h.bodies()) == (PositionState.DELETED, 0, [])


@pytest.mark.spec("DMPR-3.1.7.1.7-2")
def test_a_purge_is_not_forgotten_by_a_crash(h: Harness) -> None:
    """The crash ends the holder, and the message is deleted."""
    queue = h.create()
    h.send(body=b"a")
    read_begun(h)
    h.engine.purge_queue(queue)
    h.sync()
    h.crash()
    assert (h.bodies(), h.queue().message_count) == ([], 0)


@pytest.mark.spec("DMPR-3.1.7.1.7-3")
@pytest.mark.parametrize("prepared", [True, False])
def test_a_message_sent_in_an_open_transaction_survives_a_purge(h: Harness, *, prepared: bool) -> None:
    """The commit sets it Available, whatever came before."""
    queue = h.create("t", transactional=True)
    transaction = h.begin()
    h.send("t", b"a", transaction=transaction)
    removals = h.removals()
    if prepared:
        h.engine.transaction_prepare(transaction.identifier, single_phase=False)
    assert h.engine.purge_queue(queue) == 0
    assert h.bodies("t") == []
    h.commit(transaction)
    assert (h.bodies("t"), removals) == ([b"a"], [])
    h.restart()
    assert h.bodies("t") == [b"a"]
