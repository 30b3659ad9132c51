"""Staged writes: invisible until they are published, then all at once, and once."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import (
    AccessDenied,
    InsufficientResources,
    InvalidParameter,
    LannerError,
    MessageNotAuthenticated,
    QueueNotFound,
)
from lanner.security.access_masks import QueueAccess
from lanner.spark.flight import writing
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.errors import EpochChanged, PublicationDiffers, StageUnknown
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from tests.spark.flight.test_reading import grant

Connect = Callable[..., FlightQueues]


def batch_of(*found: bytes, **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array(found, pa.binary()), **columns})


def stage(queues: FlightQueues, *found: bytes, writer: str = "w", batch: int = 0, queue: str | None = "q") -> str:
    rows = batch_of(*found)
    token: str = queues.stage([rows], rows.schema, writer=writer, batch=batch, queue=queue)["token"]
    return token


def contents(qm: QueueManager, name: str = "q") -> list[bytes]:
    return [message.body_bytes for message in qm.open(name)]


@pytest.fixture
def q(qm: QueueManager, root: FlightQueues) -> str:
    qm.create_queue("q")
    return "q"


def test_staged_messages_appear_together_when_they_are_published(qm: QueueManager, root: FlightQueues, q: str) -> None:
    qm.create_queue("r", transactional=True)
    one = stage(root, b"a", b"b")
    two = stage(root, b"c", queue="r")
    assert (contents(qm), contents(qm, "r")) == ([], [])
    done = root.publish("w", 0, [one, two])
    assert (done["is_new"], done["messages"], done["bytes"]) == (True, 3, 3)
    assert (contents(qm), contents(qm, "r")) == ([b"a", b"b"], [b"c"])
    assert root.last_published("w") == 0


def test_rows_go_to_the_queues_they_name_with_the_properties_they_have(
    qm: QueueManager, root: FlightQueues, q: str
) -> None:
    qm.create_queue("r")
    rows = batch_of(b"1", b"2", b"3", queue=["r", None, "r"], label=["one", "two", "three"], priority=[1, None, 7])
    staged = root.stage([rows, rows], rows.schema, writer="w", queue=q)
    assert (staged["messages"], staged["bytes"]) == (6, 6)
    root.publish("w", 0, [staged["token"]])
    assert [(m.body_bytes, m.label, m.priority, m.recoverable) for m in qm.open(q)] == [(b"2", "two", 3, True)] * 2
    assert contents(qm, "r") == [b"3", b"3", b"1", b"1"]


def test_a_batch_is_published_once(qm: QueueManager, root: FlightQueues, q: str) -> None:
    token = stage(root, b"a", batch=5)
    assert root.publish("w", 5, [token])["is_new"]
    assert not root.publish("w", 5, [token])["is_new"], "the answer got lost, and it is done again"
    retry = stage(root, b"a", batch=5)
    done = root.publish("w", 5, [retry])
    assert (done["is_new"], done["messages"]) == (False, 1)
    older = stage(root, b"x", batch=4)
    assert not root.publish("w", 4, [older])["is_new"]
    assert contents(qm) == [b"a"]
    assert root.drop([retry, older]) == 0, "they were dropped"
    root.publish("w", 6, [stage(root, b"b", batch=6)])
    assert contents(qm) == [b"a", b"b"]


def test_the_same_batch_with_other_messages_is_refused(qm: QueueManager, root: FlightQueues, q: str) -> None:
    root.publish("w", 1, [stage(root, b"a", b"b", batch=1)])
    for other in ((b"a",), (b"a", b"c")):
        with pytest.raises(PublicationDiffers, match="batch 1 of w was published with 2 messages of 2 bytes"):
            root.publish("w", 1, [stage(root, *other, batch=1)])
    root.publish("w", 1, [stage(root, b"b", b"a", batch=1)])
    assert contents(qm) == [b"a", b"b"]


def test_writers_do_not_know_each_other(qm: QueueManager, root: FlightQueues, q: str) -> None:
    root.publish("one", 3, [stage(root, b"a", writer="one", batch=3)])
    assert root.publish("two", 0, [stage(root, b"b", writer="two")])["is_new"]
    assert contents(qm) == [b"a", b"b"]
    with pytest.raises(InvalidParameter, match="was written for one, batch 4, not for two, batch 4"):
        root.publish("two", 4, [stage(root, b"c", writer="one", batch=4)])


def test_tokens_of_failed_attempts_are_never_published(qm: QueueManager, root: FlightQueues, q: str) -> None:
    straggler = stage(root, b"straggler")
    good = stage(root, b"good")
    root.publish("w", 0, [good])
    assert contents(qm) == [b"good"]
    with pytest.raises(StageUnknown, match=f"token {straggler} of w, batch 1"):
        root.publish("w", 1, [straggler])


def test_an_empty_batch_is_a_batch(qm: QueueManager, root: FlightQueues, q: str) -> None:
    empty = stage(root)
    assert root.publish("w", 0, [empty])["messages"] == 0
    assert root.publish("w", 1, [])["is_new"]
    assert root.last_published("w") == 1
    assert root.last_published("nobody") is None


def test_what_is_given_up_is_dropped(qm: QueueManager, root: FlightQueues, q: str) -> None:
    tokens = [stage(root, b"a"), stage(root, b"b"), stage(root, b"c", batch=1)]
    assert root.drop([tokens[0], "00"]) == 1
    assert root.drop_batch("w", 0) == 1
    for token in tokens[:2]:
        with pytest.raises(StageUnknown):
            root.publish("w", 0, [token])
    root.publish("w", 1, tokens[2:])
    assert contents(qm) == [b"c"]
    with runtime_of(qm).lock:
        assert list(runtime_of(qm).store.table(writing.STAGES).items()) == []


def test_a_stream_that_breaks_off_leaves_nothing(qm: QueueManager, root: FlightQueues, q: str, address: str) -> None:
    rows = batch_of(b"a", b"b")

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        root.stage(broken(), rows.schema, writer="w", queue=q, token="ab")
    with pytest.raises(StageUnknown):
        root.publish("w", 0, ["ab"])


@pytest.mark.parametrize("end", [None, b'{"messages": 3}', b'{"messages": 1}', b"{}", b"nonsense"])
def test_a_stream_without_its_end_is_not_kept(
    qm: QueueManager, root: FlightQueues, q: str, address: str, end: bytes | None
) -> None:
    rows = batch_of(b"a", b"b")
    command = json.dumps({"token": "ab", "writer": "w", "batch": 0, "queue": q}).encode()
    with fl.connect(address) as client:
        options = fl.FlightCallOptions(headers=[client.authenticate_basic_token("root", "secret")])
        put, answers = client.do_put(fl.FlightDescriptor.for_command(command), rows.schema, options)
        put.write_batch(rows)
        if end is not None:
            put.write_metadata(end)
        put.done_writing()
        assert answers.read() is None
        with pytest.raises(fl.FlightServerError, match=r"the stream has 2 rows|metadata at the end"):
            put.close()
    with pytest.raises(StageUnknown):
        root.publish("w", 0, ["ab"])


def test_a_row_that_cannot_be_sent_drops_the_whole_stream(qm: QueueManager, root: FlightQueues, q: str) -> None:
    rows = batch_of(*[b"x"] * 600, priority=[3] * 599 + [9])
    with pytest.raises(LannerError, match=r"priority 9"):
        root.stage([rows], rows.schema, writer="w", queue=q, token="ab")
    labels = batch_of(*[b"x"] * 600, connector_type=[None] * 599 + ["nonsense"])
    with pytest.raises(LannerError, match=r"row 1199: connector_type 'nonsense'"):
        root.stage(
            [batch_of(*[b"x"] * 600, connector_type=pa.nulls(600, pa.string())), labels],
            labels.schema,
            writer="w",
            queue=q,
        )
    with runtime_of(qm).lock:
        assert list(runtime_of(qm).store.table(writing.STAGES).items()) == []
        assert list(runtime_of(qm).store.table("stages").items()) == []


def test_what_cannot_be_packed_names_its_row(qm: QueueManager, root: FlightQueues, q: str) -> None:
    rows = batch_of(*[b"x"] * 300, b"x" * (5 << 20), b"x")
    with pytest.raises(LannerError, match=r"^row 300: "):
        root.stage([batch_of(b"first"), rows.slice(1)], rows.schema, writer="w", queue=q)
    qm.create_queue("signed", authentication=True)
    named = batch_of(*[b"x"] * 3, queue=[q, q, "signed"])
    with pytest.raises(MessageNotAuthenticated, match=r"row 2: queue .* takes signed messages only"):
        root.stage([named], named.schema, writer="w")
    named = batch_of(*[b"x"] * 3, queue=[q, "nowhere", q])
    with pytest.raises(QueueNotFound, match=r"row 1: "):
        root.stage([named], named.schema, writer="w")


def test_writers_that_need_not_be_remembered_are_forgotten(qm: QueueManager, root: FlightQueues, q: str) -> None:
    root.publish("kept", 0, [stage(root, b"a", writer="kept")])
    root.publish("short", 0, [stage(root, b"b", writer="short")], keep_seconds=0)
    assert root.last_published("short") == 0
    root.publish("long", 0, [stage(root, b"c", writer="long")], keep_seconds=1000)
    assert [root.last_published(name) for name in ("kept", "short", "long")] == [0, None, 0]
    with runtime_of(qm).lock:
        store = runtime_of(qm).store
        assert len(list(store.table(writing.WRITERS).items())) == 2
        assert len(list(store.table("publications").items())) == 2
        assert len(list(store.table(writing.WRITER_EXPIRY).items())) == 1
    assert root.publish("short", 0, [stage(root, b"d", writer="short")])["is_new"]


def test_writers_of_older_stores_belong_to_the_user_who_has_published(qm: QueueManager, accounts: Path) -> None:
    """There the name alone was the key, and the first writer to use it owned it."""
    runtime = runtime_of(qm)
    shutil.copy(accounts, runtime.users.path)
    for name, expires in (("nightly", b""), ("short", bytes(4))):
        digest = hashlib.sha256(name.encode()).digest()
        row = {"owner": str(runtime.users.sid("alice")), "batch": 7, "messages": 0, "bytes": 0, "digest": 0}
        with runtime.change() as change:
            runtime.store.table(writing.OLD_WRITERS).put(digest, json.dumps(row).encode())
            if expires:
                runtime.store.table(writing.OLD_WRITER_EXPIRY).put(b"\xff" * 4 + digest, b"")
        change.wait()
    with FlightListener(runtime, FlightSettings(port=0)) as listener:
        with FlightQueues(listener.address, user="alice", password="wonder") as alice:
            assert [alice.last_published(name) for name in ("nightly", "short")] == [7, 7]
            assert not alice.publish("nightly", 7, [])["is_new"]
        with FlightQueues(listener.address, user="bob", password="builder") as bob:
            assert bob.last_published("nightly") is None
    with runtime.lock:
        counts = [
            len(list(runtime.store.table(name).items()))
            for name in (writing.OLD_WRITERS, writing.OLD_WRITER_EXPIRY, writing.WRITERS, writing.WRITER_EXPIRY)
        ]
    assert counts == [0, 0, 2, 1]


def test_a_token_is_used_once(root: FlightQueues, q: str) -> None:
    rows = batch_of(b"a")
    root.stage([rows], rows.schema, writer="w", queue=q, token="ab" * 64)
    with pytest.raises(InvalidParameter, match="is in use"):
        root.stage([rows], rows.schema, writer="w", queue=q, token="ab" * 64)
    with pytest.raises(InvalidParameter, match="1 to 64 bytes, not 65"):
        root.stage([rows], rows.schema, writer="w", queue=q, token="ab" * 65)
    with pytest.raises(InvalidParameter, match="hexadecimal digits"):
        root.stage([rows], rows.schema, writer="w", queue=q, token="xyz")


def test_quota_is_reported_and_the_stage_kept(qm: QueueManager, root: FlightQueues) -> None:
    qm.create_queue("small", quota_kb=1)
    token = stage(root, b"x" * 2000, queue="small")
    with pytest.raises(InsufficientResources, match="no room"):
        root.publish("w", 0, [token])
    assert root.last_published("w") is None
    qm.open("small").set(quota=100)
    assert root.publish("w", 0, [token])["is_new"]


def test_rights_to_send_are_needed(qm: QueueManager, connect: Connect, q: str) -> None:
    grant(qm, q, runtime_of(qm).users.sid("alice"), QueueAccess.WRITE_MESSAGE)
    alice, bob = connect("alice", "wonder"), connect("bob", "builder")
    token = stage(alice, b"a")
    with pytest.raises(AccessDenied):
        stage(bob, b"b")
    with pytest.raises(AccessDenied, match="belongs to another user than bob"):
        bob.publish("w", 0, [token])
    with pytest.raises(AccessDenied):
        bob.drop([token])
    alice.publish("w", 0, [token])
    [message] = qm.open(q)
    assert message.sender_id == runtime_of(qm).users.sid("alice").pack()


@pytest.mark.parametrize(
    ("columns", "queue", "error", "complaint"),
    [
        ({"body": [b"x"]}, "nowhere", QueueNotFound, "no queue"),
        ({"body": [b"x"], "lable": ["x"]}, "q", InvalidParameter, "no column 'lable' to write; the nearest is 'label'"),
        ({"label": ["x"]}, "q", InvalidParameter, "a column body is needed"),
        ({"body": [b"x"]}, None, InvalidParameter, "no destination"),
        ({"body": [b"x"]}, "q;journal", LannerError, "cannot be opened for sending"),
        ({"body": [b"x"]}, "signed", MessageNotAuthenticated, "takes signed messages only"),
    ],
)
def test_what_cannot_be_written_is_reported(
    qm: QueueManager,
    root: FlightQueues,
    q: str,
    columns: dict[str, Any],
    queue: str | None,
    error: type[Exception],
    complaint: str,
) -> None:
    qm.create_queue("signed", authentication=True)
    rows = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(error, match=complaint):
        root.stage([rows], rows.schema, writer="w", queue=queue)


def test_a_wrong_epoch_is_refused(root: FlightQueues, q: str) -> None:
    rows = batch_of(b"a")
    with pytest.raises(EpochChanged):
        root.stage([rows], rows.schema, writer="w", queue=q, epoch=5)
    with pytest.raises(EpochChanged):
        root.act("publish", writer="w", tokens=[], epoch=5)


def test_a_put_needs_a_command(address: str, root: FlightQueues) -> None:
    rows = batch_of(b"a")
    with fl.connect(address) as client:
        options = fl.FlightCallOptions(headers=[client.authenticate_basic_token("root", "secret")])
        put, answers = client.do_put(fl.FlightDescriptor.for_path("q"), rows.schema, options)
        put.done_writing()
        assert answers.read() is None
        with pytest.raises(fl.FlightServerError, match="put under a command") as caught:
            put.close()
    assert json.loads(caught.value.extra_info)["error"] == "InvalidParameter"


def test_big_streams_are_synced_on_the_way(
    qm: QueueManager, root: FlightQueues, q: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SYNC_EVERY", 1 << 16)
    before = runtime_of(qm).store.synced
    rows = batch_of(*[bytes(1000)] * 500)
    staged = root.stage([rows], rows.schema, writer="w", queue=q)
    assert runtime_of(qm).store.synced > before + 1
    root.publish("w", 0, [staged["token"]])
    assert qm.open(q).count() == 500


def test_a_stage_that_was_not_written_to_its_end_is_dropped_at_the_next_start(
    qm: QueueManager, root: FlightQueues, q: str
) -> None:
    whole = stage(root, b"whole")
    half = writing._StageRow("S-1-5-18", "w", 0, is_whole=False)
    writes = writing.StagedWrites(runtime_of(qm))
    with runtime_of(qm).lock:
        writes._put(b"half", half)
    with pytest.raises(StageUnknown, match="never written to its end"):
        root.publish("w", 0, [b"half".hex()])
    again = writing.StagedWrites(runtime_of(qm))
    with runtime_of(qm).lock:
        assert [token.hex() for token, _ in again._stages.items()] == [whole]
