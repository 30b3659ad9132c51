"""Queues from a Python program: created, found by every spelling, changed, listed, deleted."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner.client import Message, Queue, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.host.change import Change
from lanner.model.enums import INFINITE, QueueAccessType, QueuePrivacyLevel
from lanner.model.errors import (
    IllegalFormatname,
    IllegalPropertyValue,
    IllegalQueuePathname,
    IOTimeout,
    PropertyNotallowed,
    QueueExists,
    QueueNotFound,
    SharingViolation,
    StatusError,
    UnsupportedFormatnameOperation,
)
from lanner.wire.format_name import DirectFormatName, parse
from tests.client.conftest import handle_of
from tests.statuses import (
    MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
    MQ_ERROR_QUEUE_EXISTS,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_SHARING_VIOLATION,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
)

# Making and deleting
# ----------------------------------------------------------------------------------


def test_a_queue_is_made_with_what_was_said(qm: QueueManager) -> None:
    type_id = uuid.uuid4()
    queue = qm.create_queue(
        r".\private$\orders",
        journal=True,
        label="Orders",
        quota_kb=64,
        journal_quota_kb=32,
        authentication=True,
        privacy_level=QueuePrivacyLevel.BODY,
        base_priority=7,
        multicast_address="234.1.1.1:8001",
        type=type_id,
    )
    found = queue.attributes()
    assert (found.label, found.journaling, found.transactional) == ("Orders", True, False)
    assert (found.quota, found.journal_quota, found.base_priority) == (64, 32, 7)
    assert (found.authentication, found.privacy_level) == (True, QueuePrivacyLevel.BODY)
    assert (found.multicast_address, found.type) == ("234.1.1.1:8001", type_id)
    assert qm.create_queue("ledger", transactional=True).attributes().transactional


def test_a_queue_has_defaults(q: Queue) -> None:
    found = q.attributes()
    assert (found.label, found.journaling, found.transactional, found.authentication) == ("", False, False, False)
    assert (found.quota, found.journal_quota, found.privacy_level) == (INFINITE, INFINITE, QueuePrivacyLevel.OPTIONAL)


@pytest.mark.parametrize("name", ["pathname", "transactional_", "number", "message_count", "identifier", "nonsense"])
def test_a_queue_takes_no_attribute_that_is_not_its_makers(qm: QueueManager, name: str) -> None:
    with pytest.raises(PropertyNotallowed, match=name):
        qm.create_queue("q", **{name: 1})  # type: ignore[arg-type] # the point
    assert not qm.open("q").exists()


def test_a_second_queue_of_a_name_is_refused(qm: QueueManager, q: Queue) -> None:
    with pytest.raises(QueueExists) as raised:
        qm.create_queue(r".\private$\Q")
    assert raised.value.status == MQ_ERROR_QUEUE_EXISTS


def test_a_deleted_queue_is_gone_with_all_it_had(qm: QueueManager, q: Queue) -> None:
    q.send("x")
    assert list(q.subqueue("retry")) == []
    qm.delete_queue("q")
    assert not q.exists()
    assert not qm.open("q;retry").exists()
    assert not qm.open("q;journal").exists()
    with pytest.raises(QueueNotFound) as raised:
        qm.delete_queue("q")
    assert raised.value.status == MQ_ERROR_QUEUE_NOT_FOUND


def test_a_queue_object_is_a_name_and_finds_the_next_queue_of_that_name(qm: QueueManager, q: Queue) -> None:
    q.send("old")
    assert q.peek(0).body == "old"
    qm.delete_queue("q")
    for use in (lambda: q.send("x"), lambda: q.receive(0), lambda: q.peek(0)):
        with pytest.raises(QueueNotFound):
            use()
    qm.create_queue("q")
    q.send("new")
    assert q.receive(0).body == "new"


def test_queues_are_listed_without_those_of_the_system(qm: QueueManager, q: Queue) -> None:
    qm.create_queue(r".\orders")
    assert list(q.subqueue("retry")) == []
    qm.open(r"BETA\private$\far").send("x")
    names = [queue.name for queue in qm.queues()]
    assert r"ALPHA\private$\q" in names
    assert r"ALPHA\orders" in names
    assert not [name for name in names if ";" in name or "BETA" in name or "order_queue" in name]
    assert [queue.name for queue in qm.outgoing_queues()] == [r"DIRECT=OS:BETA\private$\far"]
    assert [queue.name for queue in q.subqueues()] == [r"ALPHA\private$\q;retry"]


# Names
# ------------------------------------------------------------------------------------------------

# How a name is spelled, and the path name that this says without a look at the queues.
SPELLINGS = [
    ("orders", r"ALPHA\private$\orders"),
    ("ORDERS", r"ALPHA\private$\ORDERS"),
    (r"private$\orders", r"ALPHA\private$\orders"),
    (r"PRIVATE$\Orders", r"ALPHA\private$\Orders"),
    (r".\private$\orders", r"ALPHA\private$\orders"),
    (r"alpha\private$\orders", r"alpha\private$\orders"),
    (r"ALPHA.example.com\private$\orders", r"DIRECT=OS:ALPHA.example.com\private$\orders"),
    (r"localhost\private$\orders", r"ALPHA\private$\orders"),
    (r"127.0.0.1\private$\orders", r"DIRECT=OS:127.0.0.1\private$\orders"),
    (r"DIRECT=OS:.\private$\orders", r"ALPHA\private$\orders"),
    (r"direct=os:alpha\private$\ORDERS", r"alpha\private$\ORDERS"),
    (r"DIRECT=TCP:127.0.0.1\private$\orders", r"DIRECT=TCP:127.0.0.1\private$\orders"),
    ("PRIVATE={me}\\{number:x}", "PRIVATE={me}\\{number:08x}"),
]


@pytest.mark.parametrize(("spelling", "path_name"), SPELLINGS)
def test_a_queue_is_found_in_every_spelling(qm: QueueManager, spelling: str, path_name: str) -> None:
    queue = qm.create_queue("orders", label="the one")
    number = queue.attributes().private_queue_number
    found = qm.open(spelling.format(me=qm.identifier, number=number))
    assert found.exists()
    assert found.attributes().label == "the one"
    assert found.attributes().pathname == r"ALPHA\private$\orders"
    assert found.path_name == path_name.format(me=qm.identifier, number=number)
    assert found.journal.count() == 0
    if isinstance(parse(found.format_name), DirectFormatName):
        assert list(found.subqueue("s")) == []
    else:
        # Format names of other kinds have no subqueues (MS-MQMQ 2.1.1).
        with pytest.raises(IllegalFormatname):
            found.subqueue("s")
    found.send(spelling)
    assert queue.receive(0).body == spelling
    found.set(label=spelling)
    assert queue.attributes().label == spelling


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bare", r"ALPHA\private$\bare"),
        (r"private$\p", r"ALPHA\private$\p"),
        (r".\private$\p", r"ALPHA\private$\p"),
        (r"Alpha\private$\p", r"ALPHA\private$\p"),
        (r".\public", r"ALPHA\public"),
        (r"DIRECT=OS:.\private$\p", r"ALPHA\private$\p"),
        (r"direct=os:localhost\p", r"ALPHA\p"),
    ],
)
def test_a_queue_is_made_by_any_spelling_of_a_path(qm: QueueManager, name: str, path: str) -> None:
    assert qm.create_queue(name).path_name == path
    assert qm.open(path).exists()


@pytest.mark.parametrize(
    "name", ["", "a+b", r"BETA\private$\q", f"PUBLIC={uuid.UUID(int=1)}", "q;journal", "system$;X", "a\\"]
)
def test_a_queue_is_not_made_by_what_is_no_path_here(qm: QueueManager, name: str) -> None:
    with pytest.raises(IllegalQueuePathname) as raised:
        qm.create_queue(name)
    assert raised.value.status == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME


@pytest.mark.parametrize("name", [r"DIRECT=XX:.\q", "PUBLIC=1", r"PRIVATE=1\2", "DL=x"])
def test_what_is_no_format_name_is_reported(qm: QueueManager, name: str) -> None:
    for use in (qm.open, qm.delete_queue, qm.pause):
        with pytest.raises(IllegalFormatname):
            use(name)


def test_format_names_say_the_computer(qm: QueueManager) -> None:
    assert qm.open("q").format_name == r"DIRECT=OS:ALPHA\private$\q"
    assert qm.open(r"DIRECT=OS:.\private$\q").format_name == r"DIRECT=OS:ALPHA\private$\q"
    assert qm.open(r"BETA\q").format_name == r"DIRECT=OS:BETA\q"
    several = qm.open(r"DIRECT=OS:.\a,DIRECT=TCP:1.2.3.4\b")
    assert several.format_name == r"DIRECT=OS:ALPHA\a,DIRECT=TCP:1.2.3.4\b"
    assert repr(qm.open("q")) == f"<Queue q of {runtime_of(qm).path}>"


def test_a_public_queue_is_found_by_its_identifier(qm: QueueManager) -> None:
    public = qm.create_queue(r".\orders")
    public.send("x")
    assert qm.open(f"PUBLIC={public.attributes().identifier}").receive(0).body == "x"


def test_several_queues_are_sent_to_at_once(qm: QueueManager) -> None:
    a, b = qm.create_queue("a"), qm.create_queue("b")
    both = qm.open(r"DIRECT=OS:.\private$\a,DIRECT=OS:.\private$\b")
    both.send(Message(body="x", label="both"))
    assert [(m.body, m.label) for q in (a, b) for m in q] == [("x", "both")] * 2
    with pytest.raises(UnsupportedFormatnameOperation) as raised:
        both.receive(0)
    assert raised.value.status == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION


def test_what_does_not_exist_is_reported_when_it_is_used(qm: QueueManager) -> None:
    queue = qm.open("none")
    assert not queue.exists()
    uses: list[Callable[[], object]] = [
        lambda: queue.send("x"),
        lambda: queue.send_many(["x"]),
        lambda: queue.receive(0),
        lambda: queue.receive_many(1),
        lambda: queue.peek(0),
        lambda: list(queue),
        queue.count,
        queue.purge,
        lambda: queue.cursor().peek(0),
        lambda: queue.cursor(peek_only=True).peek(0),
        lambda: queue.set(label="x"),
        queue.attributes,
        queue.journal.count,
        lambda: queue.journal.peek(0),
        queue.subqueue("x").count,
        lambda: queue.subqueue("x").peek(0),
        queue.subqueues,
    ]
    for use in uses:
        with pytest.raises(QueueNotFound, match="none"):
            use()
    assert queue.path_name == r"ALPHA\private$\none"
    queue.close()


# Attributes
# -------------------------------------------------------------------------------------------


def test_attributes_are_changed_by_name_and_kept(start: Callable[..., QueueManager]) -> None:
    qm = start()
    queue = qm.create_queue("q")
    queue.set(label="new", quota=10, journaling=True)
    qm.close()
    found = start().open("q").attributes()
    assert (found.label, found.quota, found.journaling) == ("new", 10, True)


def test_attributes_are_a_copy(q: Queue) -> None:
    found = q.attributes()
    found.label = "mine alone"
    q.send("x")
    assert (q.attributes().label, found.message_count, q.attributes().message_count) == ("", 0, 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"quota": -1}, IllegalPropertyValue),
        ({"label": "x" * 125}, IllegalPropertyValue),
        ({"journaling": "yes"}, IllegalPropertyValue),
        ({"transactional": True}, PropertyNotallowed),
        ({"pathname": r".\private$\other"}, PropertyNotallowed),
    ],
)
def test_a_change_that_cannot_be_is_refused(q: Queue, changes: dict[str, object], error: type[StatusError]) -> None:
    with pytest.raises(error, match=next(iter(changes))):
        q.set(label="after", **changes) if "label" not in changes else q.set(**changes)
    assert q.attributes().label == ""


# Handles
# ----------------------------------------------------------------------------------------------


def handles(qm: QueueManager, name: str) -> int:
    with runtime_of(qm).lock:
        return len(operations_of(qm).find(name).open_queue_descriptors)


def test_handles_are_opened_when_needed_and_kept(qm: QueueManager, q: Queue) -> None:
    assert handles(qm, "q") == 0
    for _ in range(3):
        q.send("x")
    assert handles(qm, "q") == 1
    q.receive(0)
    q.peek(0)
    assert handles(qm, "q") == 3
    q.close()
    assert handles(qm, "q") == 0
    q.send("used again")
    assert q.count() == 3


def test_a_with_block_closes_the_queue(qm: QueueManager, q: Queue) -> None:
    with qm.open("q") as other:
        other.send("x")
        assert handles(qm, "q") == 1
    assert handles(qm, "q") == 0


def test_a_queue_that_is_forgotten_is_closed(qm: QueueManager, q: Queue) -> None:
    """Programs write `qm.open("q").send(...)`; that must not keep the queue open forever."""
    for _ in range(5):
        qm.open("q").send("x")
        qm.dead_letter.cursor().close()
        q.move(q.peek(0).lookup_id, "retry")
    gc.collect()
    q.close()
    qm.create_queue("other").send("x")  # opening anything tidies up first
    assert handles(qm, "q") == 0
    assert handles(qm, "q;retry") == 0
    assert handles(qm, "system$;DEADLETTER") == 0


def test_a_cursor_keeps_its_queue_open(qm: QueueManager, q: Queue) -> None:
    q.send_many(["1", "2"])
    cursor = qm.open("q").cursor()
    gc.collect()
    qm.create_queue("other").send("x")
    assert [cursor.peek(0).body, cursor.peek_next(0).body] == ["1", "2"]


def test_an_exclusive_queue_is_received_from_by_one(qm: QueueManager, q: Queue) -> None:
    q.send_many(["1", "2"])
    with qm.open("q", exclusive=True) as mine:
        with pytest.raises(SharingViolation) as raised:
            q.receive(0)
        assert raised.value.status == MQ_ERROR_SHARING_VIOLATION
        theirs = qm.open("q", exclusive=True)
        for use in (theirs.__enter__, lambda: theirs.receive(0)):
            with pytest.raises(SharingViolation):
                use()
        assert q.peek(0).body == "1"
        assert [message.body for message in q] == ["1", "2"]
        q.send("3")
        assert mine.receive(0).body == "1"
    assert q.receive(0).body == "2"
    with pytest.raises(SharingViolation):
        mine.__enter__()
    # Without a block it is opened by its first receive, and not before.
    q.close()
    assert mine.peek(0).body == "3"
    assert q.receive(0).body == "3"
    q.close()
    with pytest.raises(IOTimeout):
        mine.receive(0)
    with pytest.raises(SharingViolation):
        q.receive(0)


def test_an_exclusive_queue_that_is_forgotten_is_free_again(qm: QueueManager, q: Queue) -> None:
    mine = qm.open("q", exclusive=True).__enter__()
    with pytest.raises(SharingViolation):
        q.receive(0)
    del mine
    gc.collect()
    with qm.open("q", exclusive=True):
        pass
    assert q.attributes().label == ""


# Other queues
# -----------------------------------------------------------------------------------------


def test_the_journal_has_what_was_received(qm: QueueManager) -> None:
    queue = qm.create_queue("q", journal=True)
    queue.send("x")
    queue.receive(0)
    assert [message.body for message in queue.journal] == ["x"]
    assert queue.journal.receive(0).body == "x"
    with pytest.raises(UnsupportedFormatnameOperation):
        queue.journal.send("x")


def test_messages_move_to_subqueues_and_back(q: Queue) -> None:
    q.send_many(["1", "2"])
    first = q.peek(0)
    q.move(first.lookup_id, "retry")
    retry = q.subqueue("retry")
    assert ([m.body for m in q], [m.body for m in retry]) == (["2"], ["1"])
    moved = retry.peek(0)
    assert (moved.move_count, moved.lookup_id) == (1, first.lookup_id)
    retry.move(moved.lookup_id, q)
    assert ([m.body for m in q], retry.count()) == (["1", "2"], 0)
    with pytest.raises(UnsupportedFormatnameOperation):
        retry.send("x")


def test_the_systems_queues_are_there(qm: QueueManager, q: Queue) -> None:
    q.send(Message(body="late", time_to_be_received=0, use_dead_letter_queue=True))
    q.send(Message(body="kept", use_journal_queue=True))
    with runtime_of(qm).lock:
        runtime_of(qm).engine.clocks.wall = lambda: 4e9  # long after
        runtime_of(qm).engine.on_timer()
    assert [message.body for message in qm.dead_letter] == ["late"]
    assert [message.body for message in qm.system_journal] == ["kept"]
    assert list(qm.transactional_dead_letter) == []


def test_what_waits_for_another_computer_can_be_looked_at(qm: QueueManager) -> None:
    far = qm.open(r"BETA\private$\far")
    far.send_many(["1", "2"])
    (outgoing,) = qm.outgoing_queues()
    assert outgoing.count() == 2
    assert [message.body for message in outgoing] == ["1", "2"]
    assert outgoing.peek(0).body == "1"
    assert outgoing.receive(0).body == "1"
    assert outgoing.purge() == 1
    assert outgoing.attributes().label == r"DIRECT=OS:BETA\private$\far"


def test_purge_says_how_many_there_were(q: Queue) -> None:
    q.send_many(["1", "2", "3"])
    assert (q.purge(), q.purge(), q.count()) == (3, 0, 0)
    with pytest.raises(IOTimeout):
        q.receive(0)


def test_an_empty_queue_is_true(q: Queue) -> None:
    assert bool(q)
    assert q.count() == 0
    assert handle_of(q, QueueAccessType.SEND) is handle_of(q, QueueAccessType.SEND)


def test_a_purge_in_slices_takes_what_was_there_and_nothing_that_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long purge lets others have their turn; what they send meanwhile stays."""
    monkeypatch.setattr("lanner.host.reads.PURGE_SLICE", 4)
    with QueueManager(tmp_path / "data", name="ALPHA") as manager:
        queue, other = manager.create_queue("q"), manager.open("q")
        queue.send_many(Message(body=b"old", priority=number % 8) for number in range(10))
        left = [10]

        def sent_in_between(change: Change) -> None:
            change.wait()
            # Opening a queue is waited for too, and changes nothing here.
            if other.count() == left[-1]:
                return
            left.append(other.count())
            if len(left) == 2:
                other.send(Message(body=b"new", priority=7))

        monkeypatch.setattr("lanner.client._sync.embedded_queue.durable", sent_in_between)
        assert queue.purge() == 10
        # The message that was sent after the first slice is counted from then on.
        assert left == [10, 6, 3, 1]
        assert [message.body for message in queue] == [b"new"]
        assert queue.purge() == 1
