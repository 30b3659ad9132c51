"""The share of the quota that messages from other computers may use.

The count stays right while messages move, leave and come back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.engine.peer_shares import _MAX_SOURCES_OF_PEER
from lanner.model.directory_objects import Queue
from lanner.model.enums import INFINITE, Acknowledgements, DeliveryGuarantee, EnqueueStatus, MessageClass
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.engine.harness import OPEN_TO_ALL, Harness

THEIRS = uuid.UUID("5717a4e0-0000-4000-8000-000000000009")
PEER, OTHER = "192.0.2.7", "192.0.2.8"
QUOTA = 100  # kilobytes


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", queue_manager_quota=QUOTA)
    yield harness
    harness.close()


def packet(h: Harness, size: int = 10_000, source: uuid.UUID = THEIRS, ordinal: int = 1) -> Message:
    name = parse(r"DIRECT=OS:ALPHA\private$\q")
    properties = MessageProperties(body=bytes(size))
    return Message(build(properties, source=source, ordinal=ordinal, sent_time=int(h.now), destination=name))


def arrive(
    h: Harness, queue: Queue, count: int, peer: str = PEER, known: frozenset[str] = frozenset()
) -> list[EnqueueStatus]:
    with h.store.lock:
        h.engine.shares.begin(peer, known)
        found = [h.engine.enqueue_message(queue, packet(h, ordinal=number)) for number in range(count)]
        h.engine.shares.end()
        return found


def test_a_queue_without_a_quota_has_a_share(h: Harness) -> None:
    q = h.create("q")
    assert arrive(h, q, 6) == [EnqueueStatus.OK] * 5 + [EnqueueStatus.QUEUE_QUOTA_EXCEEDED]


def test_a_peer_has_a_share_of_all_queues(h: Harness) -> None:
    first, second = h.create("q"), h.create("r")
    assert set(arrive(h, first, 3)) == {EnqueueStatus.OK}
    assert arrive(h, second, 3) == [EnqueueStatus.OK] * 2 + [EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED]


def test_strangers_have_a_share_and_known_peers_are_none(h: Harness) -> None:
    queues = [h.create(name) for name in ("a", "b", "c", "d")]
    for number, queue in enumerate(queues[:3]):
        with h.store.lock:
            h.engine.shares.begin(f"192.0.2.{number}")
            for ordinal in range(3):
                h.engine.enqueue_message(queue, packet(h, source=uuid.UUID(int=number + 1), ordinal=ordinal))
            h.engine.shares.end()
    assert sum(h.engine.shares.by_peer.values()) < 75 * 1024
    assert arrive(h, queues[3], 1) == [EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED]
    assert arrive(h, queues[3], 1, known=frozenset({PEER})) == [EnqueueStatus.OK]


def test_our_own_messages_have_no_share(h: Harness) -> None:
    q = h.create("q")
    with h.store.lock:
        h.engine.shares.begin(PEER)
        own = packet(h, 60_000, h.engine.queue_manager.identifier)
        assert h.engine.enqueue_message(q, own) is EnqueueStatus.OK
        h.engine.shares.end()
        assert h.engine.enqueue_message(q, packet(h)) is EnqueueStatus.OK
    assert h.engine.shares.by_peer == {}


def test_a_queue_with_a_quota_and_a_queue_manager_without_one_have_no_shares(h: Harness) -> None:
    q = h.create("q", quota=QUOTA)
    assert set(arrive(h, q, 5)) == {EnqueueStatus.OK}
    h.engine.queue_manager.queue_manager_quota = INFINITE
    assert set(arrive(h, h.create("r"), 20)) == {EnqueueStatus.OK}


def test_what_is_removed_counts_no_more(h: Harness) -> None:
    q = h.create("q")
    arrive(h, q, 5)
    assert h.engine.shares.by_peer[PEER] == q.total_bytes
    h.receive("q")
    assert h.engine.shares.by_peer[PEER] == q.total_bytes
    while q.message_count:
        h.receive("q")
    assert h.engine.shares.by_peer == {}
    assert set(arrive(h, q, 5)) == {EnqueueStatus.OK}


def test_sums_of_messages_that_did_not_survive_a_restart_are_gone(h: Harness) -> None:
    q = h.create("q")
    arrive(h, q, 4)
    # Express messages: nothing of them is left.
    h.restart()
    assert h.engine.shares.by_peer == {}


def test_sources_without_end_are_charged_to_their_peer(h: Harness) -> None:
    h.engine.queue_manager.queue_manager_quota = 1 << 20
    q = h.create("q")
    count = _MAX_SOURCES_OF_PEER + 5
    with h.store.lock:
        h.engine.shares.begin(PEER)
        for number in range(count):
            h.engine.enqueue_message(q, packet(h, 10, uuid.UUID(int=number + 1)))
        h.engine.shares.end()
    assert len(h.engine.shares.sources) == _MAX_SOURCES_OF_PEER
    assert h.engine.shares.by_peer == {PEER: q.total_bytes}
    while q.message_count:
        h.receive("q")
    assert h.engine.shares.by_peer == {}


def test_a_known_peer_sends_to_a_queue_that_a_stranger_has_filled(h: Harness) -> None:
    q = h.create("q")
    assert arrive(h, q, 6)[-1] is EnqueueStatus.QUEUE_QUOTA_EXCEEDED
    assert arrive(h, q, 2, OTHER, known=frozenset({OTHER})) == [EnqueueStatus.OK] * 2


def refuse(h: Harness, size: int, count: int = 1, *, known: frozenset[str] = frozenset()) -> None:
    """A peer sends messages that are refused, with an administration queue on this computer."""
    name = parse(r"DIRECT=OS:ALPHA\private$\q")
    properties = MessageProperties(
        body=bytes(size),
        acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
        administration_queue_format_name=parse(r"DIRECT=OS:ALPHA\private$\admin"),
    )
    with h.store.lock:
        h.engine.shares.begin(PEER, known)
        for ordinal in range(count):
            raw = build(properties, source=THEIRS, ordinal=ordinal, sent_time=int(h.now), destination=name)
            h.engine.refuse_message(Message(raw), MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE, "")
        h.engine.shares.end()


def test_acknowledgments_count_for_the_peer_that_causes_them(h: Harness) -> None:
    """They count even if all its own messages were rejected, so that none of them is here."""
    admin = h.create("admin", quota=QUOTA, security=OPEN_TO_ALL)
    refuse(h, 2_000, 100)
    assert 45 * 1024 < h.engine.shares.by_peer[PEER] == admin.total_bytes <= 50 * 1024
    assert arrive(h, h.create("q", quota=QUOTA), 1) == [EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED]
    while admin.message_count:
        h.receive("admin")
    assert h.engine.shares.by_peer == {}


@pytest.mark.parametrize(("size", "is_known", "returned"), [(4096, False, 4096), (4097, False, 0), (4097, True, 4097)])
def test_a_stranger_gets_no_large_body_back(h: Harness, size: int, returned: int, *, is_known: bool) -> None:
    h.create("admin", security=OPEN_TO_ALL)
    refuse(h, size, known=frozenset({PEER}) if is_known else frozenset())
    [answer] = h.messages("admin")
    assert len(answer.body) == returned
    assert answer.time_to_reach_queue == (INFINITE if is_known else h.engine.settings.long_live_time)


def test_final_acknowledgments_count_for_the_peer_that_causes_them(h: Harness) -> None:
    order_queue = parse(rf"PRIVATE={THEIRS}\4")
    with h.store.lock:
        h.engine.shares.begin(PEER)
        properties = MessageProperties(body=bytes(100), message_class=MessageClass.NACK_PURGED)
        assert h.engine.send_own_message(order_queue, properties) is EnqueueStatus.OK
        h.engine.shares.end()
    queue = h.engine.find_outgoing_queue(order_queue)
    assert queue is not None
    assert h.engine.shares.by_peer == {PEER: queue.total_bytes}
    h.engine.purge_queue(queue)
    assert h.engine.shares.by_peer == {}


def test_shares_bind_the_memory_of_express_messages(h: Harness) -> None:
    """A stranger leaves room for others, who leave some for known peers and programs here.

    What is received makes room again.
    """
    h.engine.queue_manager.queue_manager_quota = 1 << 20
    q = h.create("q")
    h.engine.express_memory.set_limit(100 * 1024)
    full = EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
    assert arrive(h, q, 6) == [EnqueueStatus.OK] * 5 + [full]
    with h.store.lock:
        h.engine.shares.begin(OTHER)
        found = [h.engine.enqueue_message(q, packet(h, source=uuid.UUID(int=7), ordinal=n)) for n in range(3)]
        h.engine.shares.end()
    assert found == [EnqueueStatus.OK] * 2 + [full]
    assert arrive(h, q, 1, known=frozenset({PEER})) == [full]
    assert arrive(h, q, 1, "192.0.2.9", known=frozenset({"192.0.2.9"})) == [EnqueueStatus.OK]
    h.send("q", bytes(10_000), recoverable=False)
    # One more than it may have: the source of the known peer's message was first seen at its
    # address.
    h.receive("q")
    h.receive("q")
    assert arrive(h, q, 1) == [EnqueueStatus.OK]


def test_recoverable_messages_take_no_memory_of_express_ones(h: Harness) -> None:
    h.engine.queue_manager.queue_manager_quota = 1 << 20
    q = h.create("q")
    h.engine.express_memory.set_limit(10 * 1024)
    name = parse(r"DIRECT=OS:ALPHA\private$\q")
    properties = MessageProperties(body=bytes(9_000), delivery_guarantee=DeliveryGuarantee.RECOVERABLE)
    raw = build(properties, source=THEIRS, ordinal=1, sent_time=int(h.now), destination=name)
    with h.store.lock:
        h.engine.shares.begin(PEER)
        assert h.engine.enqueue_message(q, Message(raw)) is EnqueueStatus.OK
        h.engine.shares.end()
