"""Scans, lists, plans and polls through a real Flight client."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.engine import queue_kinds
from lanner.errors import AccessDenied, InvalidParameter, QueueNotAvailable, QueueNotFound, ServiceNotAvailable
from lanner.model.directory_objects import Queue
from lanner.model.enums import MessageClass
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import Identity
from lanner.spark.columnar import packet_source, reading
from lanner.spark.columnar.reading import QueueSource
from lanner.spark.columnar.schema import CORE, RowSchema
from lanner.spark.flight import server as flight
from lanner.spark.flight import streams as flight_streams
from lanner.spark.flight.client import FlightFailed, FlightQueues
from lanner.spark.flight.errors import EpochChanged, TooBusy
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.flight.streams import Streams
from lanner.wire.message import Message as Packet
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import Sid

Connect = Callable[..., FlightQueues]


def fill(qm: QueueManager, name: str, count: int, **properties: object) -> None:
    queue = qm.open(name)
    queue.send_many(Message(body=b"%d" % number, recoverable=True, **properties) for number in range(count))  # type: ignore[arg-type] # Message's own


def bodies(table: pa.Table) -> list[bytes]:
    found: list[bytes] = table.column("body").to_pylist()
    return found


def grant(qm: QueueManager, name: str, sid: Sid, rights: QueueAccess) -> None:
    descriptor = SecurityDescriptor(dacl=Acl((allow(sid, rights),)))
    qm.open(name).set(security=descriptor.pack())


# Reading
# --------------------------------------------------------------------------------------------------


def test_a_queue_is_a_table_with_every_column(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    fill(qm, "q", 3, label="hello")
    qm.open("q").send(Message(body="text", label="express"))
    table = root.table("q")
    assert table.schema.equals(RowSchema().arrow)
    rows = table.to_pylist()
    assert [row["body"] for row in rows] == [b"0", b"1", b"2", "text".encode("utf-16-le")]
    assert [row["body_text"] for row in rows] == [None, None, None, "text"]
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    received = list(qm.open("q"))
    assert [row["lookup_id"] for row in rows] == [message.lookup_id for message in received]
    assert [row["msg_id_text"] for row in rows] == [message.id for message in received]
    assert {(row["qm_name"], row["queue"], row["queue_kind"]) for row in rows} == {
        ("ALPHA", r"DIRECT=OS:ALPHA\private$\q", "destination")
    }
    assert qm.open("q").count() == 4, "a scan leaves everything where it is"


def test_a_column_says_whether_the_sender_is_verified(qm: QueueManager, root: FlightQueues) -> None:
    """A message that was sent here, and one of another computer that names the same sender."""
    queue = qm.create_queue("q", access={"Everyone": "send"})
    queue.send("sent here")
    runtime = runtime_of(qm)
    foreign = bytearray(queue.peek(0).packet)
    foreign[16:32] = uuid.uuid4().bytes_le  # SourceQueueManager
    claimed = Identity("claimed", Sid.parse("S-1-5-21-1-2-3-1001"))
    with runtime.change() as change:
        verdict = runtime.engine.insert_message(operations_of(qm).find("q"), Packet(bytes(foreign)), claimed)
    change.wait()
    assert verdict is MessageClass.ACK_REACH_QUEUE
    table = root.table("q", columns=["sender_id", "sender_verified"])
    assert table.column("sender_verified").to_pylist() == [True, False]
    assert len(set(table.column("sender_id").to_pylist())) == 1
    assert [message.sender_verified for message in queue] == [True, False]


def test_columns_and_bodies_are_chosen(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    fill(qm, "q", 2)
    assert tuple(root.table("q", columns="core").schema.names) == CORE
    assert root.table("q", columns=["label", "seq"]).schema.names == ["label", "seq"]
    assert "body" not in root.table("q", include_body=False).schema.names
    assert root.table("q", columns="packet").column("packet").to_pylist() == [m.packet for m in qm.open("q")]


def test_ranges_are_after_and_up_to(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    fill(qm, "q", 5)
    first = root.bounds("q")["after"]
    assert bodies(root.table("q", after=first + 1, upto=first + 3)) == [b"1", b"2"]
    assert bodies(root.table("q", after=first + 3, upto=first + 3)) == []
    assert bodies(root.table("q", after=first + 3, upto=first + 1)) == []
    assert bodies(root.table("q", after=first + 4)) == [b"4"]


def test_journals_dead_letters_subqueues_and_outgoing_queues_are_queues_too(
    qm: QueueManager, root: FlightQueues
) -> None:
    qm.create_queue("q", journal=True)
    fill(qm, "q", 3)
    qm.open("q").receive(0)
    message = qm.open("q").peek(0)
    qm.open("q").move(message.lookup_id, "retry")
    qm.open("q").send(Message(body=b"dead", use_dead_letter_queue=True, time_to_be_received=0))
    with runtime_of(qm).lock:
        runtime_of(qm).engine.on_timer()
    qm.open(r"DIRECT=OS:elsewhere\private$\q").send(Message(body=b"out", recoverable=True))
    assert bodies(root.table("q;journal")) == [b"0"]
    assert bodies(root.table("q;retry")) == [b"1"]
    assert bodies(root.table("system$;DEADLETTER")) == [b"dead"]
    assert bodies(root.table(r"DIRECT=OS:elsewhere\private$\q")) == [b"out"]
    kinds = {about["queue"]: (about["queue_kind"], about["subqueue"], about["messages"]) for about in root.queues()}
    assert kinds[r"DIRECT=OS:ALPHA\private$\q"] == ("destination", None, 1)
    assert kinds[r"DIRECT=OS:ALPHA\private$\q;journal"] == ("journal", None, 1)
    assert kinds[r"DIRECT=OS:ALPHA\private$\q;retry"] == ("subqueue", "retry", 1)
    assert kinds[r"DIRECT=OS:ALPHA\system$;DEADLETTER"] == ("deadletter", None, 1)
    assert kinds[r"DIRECT=OS:elsewhere\private$\q"][0] == "outgoing"
    row = root.table("q;retry").to_pylist()[0]
    assert (row["queue_kind"], row["subqueue"], row["move_count"]) == ("subqueue", "retry", 1)


def test_a_list_can_be_narrowed_by_a_pattern_and_every_name_in_it_can_be_read(
    qm: QueueManager, root: FlightQueues
) -> None:
    for name in ("orders", "orders-old", "bills"):
        qm.create_queue(name)
    names = [about["queue"] for about in root.queues("*ORDERS*")]
    assert names == [
        rf"DIRECT=OS:ALPHA\private$\{name}" for name in ("orders", "orders;journal", "orders-old", "orders-old;journal")
    ]
    for about in root.queues():
        assert root.table(about["queue"]).num_rows == about["messages"]


def test_a_plan_cuts_by_bytes_and_its_tickets_give_everything_once(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    fill(qm, "q", 100)
    whole = bodies(root.table("q"))
    size = root.bounds("q")["bytes"]
    for options in ({"partition_bytes": size // 7}, {"min_partitions": 7}):
        plan = root.plan("q", **options)
        assert 7 <= len(plan.partitions) <= 9
        assert sum(part.messages for part in plan.partitions) == 100
        assert [part.after for part in plan.partitions[1:]] == [part.upto for part in plan.partitions[:-1]]
        found = []
        for partition in plan.partitions:
            part = pa.Table.from_batches(root.read(partition.ticket), plan.schema)
            assert part.num_rows == partition.messages
            found += bodies(part)
        assert found == whole
    assert len(root.plan("q").partitions) == 1


def test_what_comes_many_times_in_a_row_is_sent_once(qm: QueueManager, root: FlightQueues, address: str) -> None:
    """Only for clients that request it; other tools get plain columns."""
    qm.create_queue("q")
    fill(qm, "q", 5000)
    sizes = {}
    for compact in (True, False):
        [partition] = root.plan("q", compact=compact, include_body=False).partitions
        with fl.connect(address) as client:
            reader = client.do_get(fl.Ticket(partition.ticket), root._options)
            found = reader.read_all()
        kinds = {field.name for field in found.schema if pa.types.is_run_end_encoded(field.type)}
        assert ("qm_id" in kinds, "label" in kinds, "seq" in kinds) == (compact, compact, False)
        sizes[compact] = sum(pa.ipc.get_record_batch_size(batch) for batch in found.to_batches())
    assert sizes[True] < sizes[False] / 4
    assert root.plan("q").schema.equals(RowSchema().arrow)
    assert root.table("q", compact=False).drop_columns("read_time").equals(root.table("q").drop_columns("read_time"))


def test_batches_are_cut_by_bytes_and_by_rows(
    qm: QueueManager, root: FlightQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.create_queue("q")
    fill(qm, "q", 20)
    packet = root.bounds("q")["bytes"] // 20
    monkeypatch.setattr(packet_source, "BATCH_BYTES", 3 * packet)
    assert {len(batch) for batch in root.batches("q")} <= {2, 3, 4}
    assert [body for batch in root.batches("q") for body in batch.column("body").to_pylist()] == [
        b"%d" % n for n in range(20)
    ]
    monkeypatch.setattr(packet_source, "BATCH_BYTES", 1 << 30)
    monkeypatch.setattr(packet_source, "BATCH_ROWS", 6)
    assert [len(batch) for batch in root.batches("q")] == [6, 6, 6, 2]


def test_what_is_sent_later_is_not_in_a_ticket_and_what_is_received_is_gone(
    qm: QueueManager, root: FlightQueues
) -> None:
    queue = qm.create_queue("q")
    fill(qm, "q", 3)
    [partition] = root.plan("q").partitions
    queue.send(Message(body=b"later", recoverable=True))
    queue.receive(0)
    found = pa.Table.from_batches(root.read(partition.ticket), RowSchema().arrow)
    assert bodies(found) == [b"1", b"2"]
    assert partition.messages == 3


def test_a_message_that_somebody_is_receiving_is_left_out_until_that_fails(
    qm: QueueManager, root: FlightQueues
) -> None:
    queue = qm.create_queue("q", transactional=True)
    with qm.transaction() as transaction:
        queue.send_many([b"a", b"b"], transaction=transaction)
    upto = root.bounds("q")["upto"]
    transaction = qm.transaction()
    queue.receive(0, transaction=transaction)
    assert bodies(root.table("q")) == [b"b"]
    transaction.abort()
    assert bodies(root.table("q")) == [b"b", b"a"], "under a new number, as one that came later"
    assert bodies(root.table("q", upto=upto)) == [b"b"]


def test_a_stream_that_is_given_up_frees_its_place(qm: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_source, "BATCH_ROWS", 1)
    qm.create_queue("q")
    fill(qm, "q", 200)
    runtime_of(qm).users.add("root", "secret", administrator=True)
    listener = FlightListener(runtime_of(qm), FlightSettings(port=0, max_streams=1))
    listener.open()
    try:
        with FlightQueues(listener.address, user="root", password="secret") as queues:
            deadline = time.monotonic() + 30
            given_up = 0
            while given_up < 5:
                batches = queues.batches("q")
                try:
                    next(batches)
                    given_up += 1
                except TooBusy:
                    assert time.monotonic() < deadline
                batches.close()  # type: ignore[attr-defined]  # a generator
    finally:
        listener.close()


def test_batches_stay_what_they_are_when_the_pages_of_the_store_are_used_again(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a batch is looked up in the file later. Streams run side by side."""
    monkeypatch.setattr(packet_source, "BATCH_ROWS", 7)
    for name, label in (("a", "of a"), ("b", "of queue b")):
        qm.create_queue(name)
        fill(qm, name, 50, label=label)
    sources = [QueueSource(operations_of(qm), name) for name in ("a", "b", "a")]
    streams = [source.batches(*source.bounds()[:2], RowSchema()) for source in sources]
    found = [list(batches) for batches in zip(*zip(*streams, strict=True), strict=True)]
    for _ in range(5):
        for name in ("a", "b"):
            qm.open(name).purge()
            fill(qm, name, 50, label="another one")
            runtime_of(qm).store.checkpoint()
    for label, kept in zip(("of a", "of queue b", "of a"), found, strict=True):
        table = pa.Table.from_batches(kept)
        table.validate(full=True)
        assert bodies(table) == [b"%d" % number for number in range(50)]
        assert set(table.column("label").to_pylist()) == {label}


def test_memory_is_kept_while_there_are_streams_and_given_back_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    kept: list[int] = []
    streams = Streams(2)
    monkeypatch.setattr(flight_streams, "keep", lambda _: kept.append(streams.count))
    monkeypatch.setattr(flight_streams, "give_back", lambda: given.append(streams.count))
    users = itertools.count()

    def stream() -> AbstractContextManager[object]:
        return streams.one(f"user {next(users)}", lambda: None)

    for _ in range(2):
        with stream():
            with stream(), pytest.raises(TooBusy), stream():
                pass
            assert not given
        assert given == [0]
        assert kept == [1]
        given.clear()
        kept.clear()
    with pytest.raises(KeyError), stream():
        raise KeyError
    assert given == [0]


def test_one_user_has_half_of_the_streams() -> None:
    streams = Streams(4)
    with streams.one("bob", lambda: None), streams.one("bob", lambda: None):
        with pytest.raises(TooBusy, match="bob has 2 streams"), streams.one("bob", lambda: None):
            pass
        with streams.one("alice", lambda: None):
            assert streams.count == 3
    with streams.one("bob", lambda: None):
        assert streams.count == 1


def test_a_silent_stream_makes_room_for_the_next_attempt() -> None:
    ended: list[str] = []

    def begin(streams: Streams, user: str, name: str) -> AbstractContextManager[Any]:
        return streams.one(user, lambda: ended.append(name))

    # None is silent for a minute yet.
    streams = Streams(2)
    with begin(streams, "bob", "a"), begin(streams, "eve", "b"):
        with pytest.raises(TooBusy), begin(streams, "alice", "c"):
            pass
        assert ended == []
    streams = Streams(2, quiet=-1.0)
    with begin(streams, "bob", "a") as first, begin(streams, "eve", "b"):
        assert list(first.watched([1, 2])) == [1, 2]
        with pytest.raises(TooBusy), begin(streams, "alice", "c"):
            pass
        assert ended == ["b"]
        # In its own place only one of its own.
        with pytest.raises(TooBusy), begin(streams, "bob", "d"):
            pass
        assert ended == ["b", "a"]


# Descriptors and tickets of other Flight programs
# ----------------------------------------------------------------------


def test_a_path_is_enough_for_other_flight_clients(qm: QueueManager, address: str, root: FlightQueues) -> None:
    qm.create_queue("q")
    fill(qm, "q", 2)
    with fl.connect(address) as client:
        options = fl.FlightCallOptions(headers=[client.authenticate_basic_token("root", "secret")])
        info = client.get_flight_info(fl.FlightDescriptor.for_path("q"), options)
        assert info.schema.equals(RowSchema().arrow)
        assert info.total_records == 2
        table = client.do_get(info.endpoints[0].ticket, options).read_all()
        assert table.num_rows == 2
        assert client.get_schema(fl.FlightDescriptor.for_path("q"), options).schema.equals(RowSchema().arrow)
        [listed] = list(client.list_flights(b"*\\q", options))
        assert client.do_get(listed.endpoints[0].ticket, options).read_all().num_rows == 2
        assert {action.type for action in client.list_actions(options)} >= {"poll", "acquire", "publish"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"after": -1}, "ticket: after = -1: a number from 0"),
        ({"after": "x"}, "ticket: after = 'x': a number from 0"),
        ({"columns": "nothing"}, "no column 'nothing'"),
        ({"include_body": "no"}, "include_body = 'no': true or false expected"),
        ({"upto": 1 << 62}, "the highest number so far is"),
        ({"colums": "all"}, "unknown key 'colums'; the nearest known one is columns"),
        ({"queue": ""}, "queue = '': text expected"),
        ({"epoch": None}, "epoch = None: the epoch of the numbers expected"),
    ],
)
def test_a_bad_ticket_is_reported(
    qm: QueueManager, root: FlightQueues, change: dict[str, object], complaint: str
) -> None:
    qm.create_queue("q")
    [partition] = root.plan("q").partitions
    ticket = json.loads(partition.ticket) | change
    with pytest.raises(InvalidParameter, match=complaint):
        list(root.read(json.dumps(ticket).encode()))


@pytest.mark.parametrize("ticket", [b"\xff", b"[1]", b"{", b"x" * ((1 << 20) + 1), b"[" * 100_000])
def test_what_is_no_ticket_is_reported(root: FlightQueues, ticket: bytes) -> None:
    with pytest.raises(InvalidParameter, match="ticket"):
        list(root.read(ticket))


def test_numbers_of_another_epoch_are_refused(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    epoch = root.info()["epoch"]
    assert epoch == runtime_of(qm).store.epoch
    [partition] = root.plan("q", epoch=epoch).partitions
    wrong = json.dumps(json.loads(partition.ticket) | {"epoch": 5}).encode()
    with pytest.raises(EpochChanged, match=f"in epoch {epoch}, not 5"):
        list(root.read(wrong))
    with pytest.raises(EpochChanged):
        root.plan("q", epoch=5)
    with pytest.raises(EpochChanged):
        root.poll([{"queue": "q", "after": 0}], epoch=5)


def test_a_queue_that_was_created_again_is_another_one(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    [partition] = root.plan("q").partitions
    qm.delete_queue("q")
    with pytest.raises(QueueNotFound):
        list(root.read(partition.ticket))
    qm.create_queue("q")
    with pytest.raises(QueueNotAvailable, match="was deleted and created again"):
        list(root.read(partition.ticket))


def test_a_queue_that_is_deleted_in_the_middle_of_a_stream_ends_it_with_an_error(
    qm: QueueManager, root: FlightQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packet_source, "BATCH_ROWS", 1)
    qm.create_queue("q")
    queue = qm.open("q")
    queue.send_many(Message(body=bytes(200_000), recoverable=True) for _ in range(200))
    batches = root.batches("q")
    next(batches)
    qm.delete_queue("q")
    with pytest.raises(QueueNotAvailable, match="was deleted"):
        list(batches)


# Who may read
# --------------------------------------------------------------------------------------------------


def test_rights_are_those_of_the_access_list(qm: QueueManager, connect: Connect) -> None:
    qm.create_queue("q")
    fill(qm, "q", 1)
    alice = connect("alice", "wonder")
    grant(qm, "q", runtime_of(qm).users.sid("bob"), QueueAccess.PEEK_MESSAGE)
    with pytest.raises(AccessDenied, match="has no right"):
        alice.table("q")
    with pytest.raises(AccessDenied):
        alice.bounds("q")
    with pytest.raises(AccessDenied):
        alice.poll([{"queue": "q", "after": 0}])
    assert alice.queues("*\\q") == []
    bob = connect("bob", "builder")
    assert bob.table("q").num_rows == 1
    assert [about["messages"] for about in bob.queues("*\\q")] == [1]
    grant(qm, "q", runtime_of(qm).users.sid("alice"), QueueAccess.PEEK_MESSAGE)
    assert alice.table("q").num_rows == 1
    with pytest.raises(AccessDenied):
        bob.table("q")


def test_a_ticket_is_no_permission(qm: QueueManager, connect: Connect, root: FlightQueues) -> None:
    qm.create_queue("q")
    grant(qm, "q", runtime_of(qm).users.sid("bob"), QueueAccess.PEEK_MESSAGE)
    [partition] = connect("bob", "builder").plan("q").partitions
    with pytest.raises(AccessDenied):
        list(connect("alice", "wonder").read(partition.ticket))


def test_dead_letters_and_outgoing_queues_need_more(qm: QueueManager, connect: Connect) -> None:
    qm.open(r"DIRECT=OS:elsewhere\private$\q").send(Message(body=b"out", recoverable=True))
    alice = connect("alice", "wonder")
    for name in ("system$;DEADLETTER", "system$;JOURNAL", r"DIRECT=OS:elsewhere\private$\q"):
        with pytest.raises(AccessDenied):
            alice.table(name)


def test_an_unknown_queue_is_reported_by_name(root: FlightQueues) -> None:
    with pytest.raises(QueueNotFound, match=r"no queue DIRECT=OS:ALPHA\\private\$\\nowhere on ALPHA"):
        root.table("nowhere")
    with pytest.raises(QueueNotFound):
        root.table("nowhere;sub")


def test_a_subqueue_is_not_made_by_looking_for_it(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    with pytest.raises(QueueNotFound):
        root.table("q;retry")
    assert operations_of(qm).subqueue_names(qm.names.format_name("q")) == []


def test_unknown_actions_and_keys_are_reported(root: FlightQueues) -> None:
    with pytest.raises(InvalidParameter, match="there is no action 'dance'"):
        root.act("dance")
    with pytest.raises(InvalidParameter, match="unknown key 'quue'"):
        root.act("info", quue="q")


def test_a_failure_inside_is_logged_and_told_without_its_insides(
    qm: QueueManager, root: FlightQueues, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    qm.create_queue("q")

    def fail(self: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(reading.QueueSource, "bounds", fail)
    with pytest.raises(FlightFailed, match="RuntimeError in the queue manager") as caught:
        root.bounds("q")
    assert "inside" not in str(caught.value).replace("queue manager", "")
    assert "Traceback" not in str(caught.value)
    assert "a Flight call failed" in caplog.text


# Measuring and waiting
# --------------------------------------------------------------------------------------------------


def test_measures_keep_to_limits_but_never_to_nothing(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    fill(qm, "q", 10)
    about = root.bounds("q")
    size, start = about["bytes"] // 10, about["after"]
    found = root.measure("q", start, max_messages=4)
    assert (found["messages"], found["after"], found["upto"]) == (4, start, start + 4)
    assert root.measure("q", start, max_bytes=3 * size)["messages"] == 3
    assert root.measure("q", start, max_bytes=1)["messages"] == 1
    assert root.measure("q", start, max_messages=4, max_bytes=2 * size)["messages"] == 2
    assert root.measure("q", start, upto=start + 5)["messages"] == 5
    found = root.measure("q", start)
    assert (found["messages"], found["upto"]) == (10, found["horizon"])


def test_a_poll_answers_at_once_when_there_is_something(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    qm.create_queue("empty")
    fill(qm, "q", 3)
    [empty, q] = root.poll([{"queue": "empty", "after": 0}, {"queue": "q", "after": 0, "max_messages": 2}], 60_000)
    assert (empty["messages"], empty["after"], empty["upto"]) == (0, 0, 0)
    assert (q["messages"], q["backlog_messages"]) == (2, 3)
    assert bodies(root.table("q", after=q["after"], upto=q["upto"])) == [b"0", b"1"]


def test_an_idle_poll_keeps_its_place(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    qm.create_queue("other")
    fill(qm, "q", 3)
    [q] = root.poll([{"queue": "q", "after": 0}])
    fill(qm, "other", 3)
    [again] = root.poll([{"queue": "q", "after": q["upto"]}], 20)
    assert (again["messages"], again["upto"]) == (0, q["upto"])


@pytest.mark.parametrize("kind", ["recoverable", "express", "transaction", "published"])
def test_a_poll_wakes_when_a_message_becomes_visible(qm: QueueManager, accounts: Path, kind: str) -> None:
    shutil.copy(accounts, runtime_of(qm).users.path)
    queue = qm.create_queue("q", transactional=kind == "transaction")
    found: list[dict[str, object]] = []
    with (
        FlightListener(runtime_of(qm), FlightSettings(port=0)) as listener,
        FlightQueues(listener.address, user="root", password="secret") as root,
    ):
        after = root.info()["horizon"]
        batch = pa.RecordBatch.from_pylist([{"body": b"new"}])
        token = root.stage([batch], batch.schema, writer="w", queue="q")["token"]
        waiter = threading.Thread(target=lambda: found.extend(root.poll([{"queue": "q", "after": after}], 60_000)))
        waiter.start()
        assert listener._service is not None
        while not listener._service._arrivals._waiting:
            time.sleep(0.001)
        # it has looked once, most likely; a test that looked too late passes all the same
        time.sleep(0.02)
        if kind == "transaction":
            with qm.transaction() as transaction:
                queue.send(b"new", transaction=transaction)
        elif kind == "published":
            root.publish("w", 0, [token])
        else:
            queue.send(Message(body=b"new", recoverable=kind == "recoverable"))
        waiter.join(30)
    assert [(one["messages"], one["after"]) for one in found] == [(1, after)]


def test_express_messages_are_found_while_others_are_being_written(qm: QueueManager, root: FlightQueues) -> None:
    """A number reported as decided stays decided when a commit begins."""
    queue = qm.create_queue("q")
    fill(qm, "q", 1)
    queue.send(Message(body=b"express"))
    [found] = root.poll([{"queue": "q", "after": 0}])
    assert found["messages"] == 2
    with runtime_of(qm).lock:
        runtime_of(qm).store.table("test").put(b"key", b"unsynced")
        scan = runtime_of(qm).store.scan(operations_of(qm).find("q").number, 0, found["upto"])
    assert len(list(scan)) == 2


def test_stopping_ends_polls(qm: QueueManager) -> None:
    qm.create_queue("q")
    runtime_of(qm).users.add("root", "secret", administrator=True)
    listener = FlightListener(runtime_of(qm), FlightSettings(port=0))
    listener.open()
    found: list[object] = []
    with FlightQueues(listener.address, user="root", password="secret") as queues:
        waiter = threading.Thread(target=lambda: found.extend(queues.poll([{"queue": "q", "after": 0}], 60_000)))
        waiter.start()
        assert listener._service is not None
        while not listener._service._arrivals._waiting:
            time.sleep(0.001)
        listener.close()
        waiter.join(60)
    assert len(found) == 1


def test_calls_that_do_not_end_do_not_keep_the_service_from_stopping(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    shutdown = flight.FlightServer.shutdown

    def wait(server: flight.FlightServer) -> None:
        ended.wait()
        shutdown(server)

    monkeypatch.setattr(flight, "STOP_SECONDS", 0.01)
    monkeypatch.setattr(flight.FlightServer, "shutdown", wait)
    listener = FlightListener(runtime_of(qm), FlightSettings(port=0))
    listener.open()
    listener.close()
    assert "its reader does not read" in caplog.text
    ended.set()


def test_stopping_ends_a_stream_whose_reader_does_not_read(qm: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "STOP_SECONDS", 0.05)
    qm.create_queue("q")
    qm.open("q").send_many(Message(body=bytes(1 << 20), recoverable=True) for _ in range(64))
    runtime_of(qm).users.add("root", "secret", administrator=True)
    listener = FlightListener(runtime_of(qm), FlightSettings(port=0))
    listener.open()
    with FlightQueues(listener.address, user="root", password="secret") as queues:
        batches = queues.batches("q")
        next(batches)
        listener.close()
        with pytest.raises((ServiceNotAvailable, FlightFailed)):
            list(batches)


def test_messages_of_the_greatest_size(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("q")
    body = bytes(4_190_000)
    qm.open("q").send_many(Message(body=body, recoverable=True) for _ in range(3))
    table = root.table("q", columns="body,packet")
    assert bodies(table) == [body] * 3
    staged = root.stage(table.select(["body"]).to_batches(), table.select(["body"]).schema, writer="w", queue="q")
    root.publish("w", 0, [staged["token"]])
    assert qm.open("q").count() == 6


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"queues": []}, "queues = .*a list of JSON objects"),
        ({"queues": [{"queue": "q", "after": 0}], "timeout_ms": 60_001}, "timeout_ms = 60001: 0 to 60000"),
        ({"queues": [{"queue": "q", "after": 0, "limit": 1}]}, "unknown key 'limit'"),
        ({"queues": [{"after": 0}]}, "queue = None: text expected"),
        ({"queues": [{"queue": "q"}] * 1001}, "at most 1000"),
    ],
)
def test_a_bad_poll_is_reported(
    qm: QueueManager, root: FlightQueues, request_: dict[str, object], complaint: str
) -> None:
    qm.create_queue("q")
    with pytest.raises(InvalidParameter, match=complaint):
        root.act("poll", **request_)


def test_kinds_of_queues_have_names(qm: QueueManager) -> None:
    with runtime_of(qm).lock:
        report = Queue(queue_kinds.REPORT_QUEUE, pathname=r"ALPHA\reports")
        assert queue_kinds.queue_kind(runtime_of(qm).engine.queue_manager, report) == "report"
        assert (
            queue_kinds.queue_kind(runtime_of(qm).engine.queue_manager, operations_of(qm).find("admin_queue$"))
            == "admin"
        )
        assert (
            queue_kinds.queue_kind(runtime_of(qm).engine.queue_manager, operations_of(qm).find("system$;DEADXACT"))
            == "xact_deadletter"
        )
