"""Staged sends: durable, invisible, published together and once."""

from __future__ import annotations

import pytest

from lanner.engine.staging import ABANDONED_STAGE
from lanner.model.enums import Acknowledgements, QueueAccessType, QueuePrivacyLevel
from lanner.model.errors import (
    AccessDenied,
    IllegalPropertyValue,
    InsufficientResources,
    InvalidParameter,
    MessageNotAuthenticated,
    QueueNotAvailable,
)
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.packet_template import MessageRun
from tests.engine.harness import Harness, Reader


def stage(h: Harness, token: bytes, *bodies: bytes, queue: str = "q", **properties: object) -> None:
    descriptor = h.open(queue, QueueAccessType.SEND)
    messages = [MessageProperties(body=body, **properties) for body in bodies]  # type: ignore[arg-type]
    h.engine.stage_messages(descriptor, token, map(MessageRun.of, messages))
    h.engine.close_queue(descriptor)


def test_staged_messages_are_in_no_queue_until_they_are_published_together(h: Harness) -> None:
    h.create("q")
    h.create("r")
    stage(h, b"one", b"a", b"b")
    stage(h, b"two", b"c", queue="r")
    h.sync()
    assert (h.bodies("q"), h.bodies("r"), h.queue("q").total_bytes) == ([], [], 0)
    assert h.engine.publish_stages(b"batch 1", [b"one", b"two"])
    assert h.bodies("q") == [], "not before it is on disk"
    h.sync()
    assert (h.bodies("q"), h.bodies("r")) == ([b"a", b"b"], [b"c"])
    assert h.queue("q").message_count == 2
    sizes = [message.size for message in h.messages("q")]
    assert sum(sizes) > 0
    assert h.queue("q").total_bytes == 0


def test_a_publication_happens_once_also_over_a_crash(h: Harness) -> None:
    h.create()
    stage(h, b"one", b"a")
    assert h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    h.crash()
    assert h.bodies() == [b"a"]
    stage(h, b"again", b"a")
    assert not h.engine.publish_stages(b"key", [b"again"])
    h.sync()
    assert h.bodies() == [b"a"]


def test_what_was_staged_outlives_a_crash(h: Harness) -> None:
    h.create()
    stage(h, b"one", b"a")
    h.sync()
    h.crash()
    assert h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    assert h.bodies() == [b"a"]


def test_published_messages_stand_behind_those_that_came_before_and_wake_readers(h: Harness) -> None:
    h.create()
    stage(h, b"one", b"staged", b"staged too")
    h.send(body=b"sent")
    assert h.receive() == b"sent"
    readers = [Reader(), Reader(), Reader()]
    for reader in readers:
        h.engine.dequeue_message(h.open(), on_end=reader)
    h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    assert [reader.body for reader in readers] == [b"staged", b"staged too", None]


def test_staged_messages_to_a_transactional_queue_are_transactions_of_one(h: Harness) -> None:
    h.create(transactional=True)
    stage(h, b"one", b"a", b"b")
    h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    found = h.messages()
    assert [m.body for m in found] == [b"a", b"b"]
    assert all(m.is_transactional and m.first_in_transaction and m.last_in_transaction for m in found)
    assert found[0].transaction_identifier != found[1].transaction_identifier


def test_staged_messages_expire_and_are_acknowledged_like_any_other(h: Harness) -> None:
    h.create("q")
    h.create("admin")
    stage(
        h,
        b"one",
        b"a",
        time_to_be_received=10,
        acknowledgements_requested=Acknowledgements.POS_ARRIVAL,
        administration_queue_format_name=parse(r"DIRECT=OS:ALPHA\private$\admin"),
    )
    h.engine.publish_stages(b"key", [b"one"])
    h.sync()
    assert len(h.messages("admin")) == 1
    assert h.bodies("q") == [b"a"]
    h.tick(11)
    assert h.bodies("q") == []


def test_a_stage_that_has_no_room_is_refused_whole(h: Harness) -> None:
    h.create(quota=1)
    stage(h, b"one", b"x" * 600, b"y" * 600)
    with pytest.raises(InsufficientResources, match="no room"):
        h.engine.publish_stages(b"key", [b"one"])
    h.queue().quota = 10
    assert h.engine.publish_stages(b"key", [b"one"])


def test_dropped_and_abandoned_stages_are_gone(h: Harness) -> None:
    h.create()
    stage(h, b"one", b"a")
    stage(h, b"two", b"b")
    assert h.engine.drop_stage(b"one")
    assert not h.engine.drop_stage(b"one")
    h.now += ABANDONED_STAGE + 1
    assert h.engine.drop_abandoned_stages() == 1
    with pytest.raises(InvalidParameter):
        h.engine.publish_stages(b"key", [b"two"])


def test_a_stage_for_a_deleted_queue_cannot_be_published(h: Harness) -> None:
    queue = h.create()
    stage(h, b"one", b"a")
    h.engine.delete_queue(queue)
    with pytest.raises(QueueNotAvailable):
        h.engine.publish_stages(b"key", [b"one"])


def test_staging_needs_a_handle_for_sending_to_one_queue(h: Harness) -> None:
    h.create("q")
    h.create("r")
    with pytest.raises(AccessDenied):
        h.engine.stage_messages(h.open("q"), b"one", [])
    many = h.engine.open_queue(parse(r"DIRECT=OS:ALPHA\private$\q,DIRECT=OS:ALPHA\private$\r"), QueueAccessType.SEND)
    with pytest.raises(InvalidParameter):
        h.engine.stage_messages(many, b"one", [])


def test_a_late_commit_and_an_aborted_receive_get_a_new_place_in_the_visibility_sequence(h: Harness) -> None:
    """Streams rely on this: no message appears behind a place that was read already."""
    queue = h.create(transactional=True)
    early = h.begin()
    h.send(body=b"early", transaction=early)
    late = h.begin()
    h.send(body=b"late", transaction=late)
    h.commit(late)
    h.sync()
    h.checkpoint()
    _, seen = h.store.visible_bounds(queue.number)
    h.commit(early)
    h.sync()
    assert visible(h, queue.number, seen) == [b"early"]
    _, seen = h.store.visible_bounds(queue.number)
    reader = h.begin()
    assert h.receive(transaction=reader) == b"early"
    h.abort(reader)
    h.sync()
    assert visible(h, queue.number, seen) == [b"early"]


def visible(h: Harness, number: int, after: int) -> list[bytes]:
    h.checkpoint()
    with h.store.scan(number, after) as scan:
        return [Message(record.packet).body for _, _, record in scan]


def test_a_queue_that_takes_signed_or_encrypted_messages_only_takes_no_others_by_staging(h: Harness) -> None:
    h.create("signed", authentication=True)
    h.create("secret", privacy_level=QueuePrivacyLevel.BODY)
    with pytest.raises(MessageNotAuthenticated, match="takes signed messages only"):
        stage(h, b"one", b"a", queue="signed")
    with pytest.raises(IllegalPropertyValue, match="takes encrypted messages only"):
        stage(h, b"one", b"a", queue="secret")
