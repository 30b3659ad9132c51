"""Packets that writers build.

They produce the same messages as rows do, and nothing that rows could not produce.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import InvalidParameter, LabelTooLong, LannerError
from lanner.host.names import QueueNames
from lanner.model.enums import DeliveryGuarantee, MessageClass
from lanner.spark.columnar import packing
from lanner.spark.columnar.packing import Destination, PacketEncoder
from lanner.spark.columnar.schema import SETTABLE, RowSchema
from lanner.spark.flight.client import FlightQueues
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from lanner.wire.message import Message

# What a message is, without what is its own in each of two queues.
SAME = [
    *(name for name in SETTABLE if name not in {"queue", "dest_format_name"}),
    *("class", "body_size", "delivery", "first_in_xact", "last_in_xact", "sender_id", "sender_id_type"),
    *("sender_verified", "src_machine_id", "dest_qm_id", "hash_alg", "encryption_alg", "priv_level", "packet_error"),
]
OTHER = UUID("88888888-2222-3333-4444-555555555555")


@pytest.fixture
def rows_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have writers send rows, as clients in other languages do."""
    return lambda: monkeypatch.setattr(packing, "can_pack", lambda _: False)


def written(root: FlightQueues, batch: pa.RecordBatch, queue: str, writer: str) -> dict[str, Any]:
    staged = root.stage([batch], batch.schema, writer=writer, queue=queue)
    root.publish(writer, 0, [staged["token"]])
    return staged


def numbered(count: int) -> list[str]:
    """Labels of every length up to the longest, with characters of one to four bytes of UTF-8."""
    return [("aé€😀"[number % 4] * number)[: 249 if number % 4 < 3 else 124] for number in range(count)]


MANY = 300
BATCHES: dict[str, dict[str, Any]] = {
    "bodies": {"body": [bytes(number) for number in range(MANY)]},
    "labels": {"body": [b"x"] * MANY, "label": numbered(MANY)},
    "nulls": {"body": [b"x", None] * 150, "label": [None, "one", ""] * 100, "app_specific": [None, 1, 2] * 100},
    "text": {"body": ["grüße", "", None, "plain"] * 75},
    "text of a type": {"body": ["plain"] * MANY, "body_type": [30] * 150 + [31] * 150},
    "numbers of their own": {
        "body": [b"x"] * MANY,
        "app_specific": [(1 << 32) - 1 - number for number in range(MANY)],
        "correlation_id": [None if number % 3 else bytes([number % 256]) * 20 for number in range(MANY)],
        "extension": [b"ext"] * MANY,
    },
    "priorities": {"body": [b"x"] * MANY, "priority": [*range(8)] * 37 + [7] * 4},
    "long runs": {
        "body": [b"x"] * MANY,
        "priority": [1] * 100 + [None] * 100 + [2] * 100,
        "journal": [0] * 150 + [3] * 150,
        "time_to_be_received": pa.array([100] * 50 + [(1 << 32) - 1] * 250, pa.int64()),
        "time_to_reach_queue": pa.array([50] * MANY, pa.int64()),
        "acknowledge": [5] * MANY,
        "admin_format_name": [r"DIRECT=OS:alpha\private$\admin"] * MANY,
        "resp_format_name": [r"DIRECT=OS:beta\private$\answers"] * MANY,
        "connector_type": [str(OTHER)] * MANY,
        "correlation_text": [f"{OTHER}\\9"] * MANY,
    },
    "one": {"body": [b"alone"], "label": ["it"]},
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("is_transactional", [False, True])
def test_packets_make_the_messages_that_rows_make(
    qm: QueueManager, root: FlightQueues, rows_only: Callable[[], None], name: str, *, is_transactional: bool
) -> None:
    for queue in ("packed", "rows"):
        qm.create_queue(queue, transactional=is_transactional)
    batch = pa.RecordBatch.from_pydict(BATCHES[name])
    packed = written(root, batch, "packed", "one")
    rows_only()
    made = written(root, batch, "rows", "two")
    assert packed["messages"] == len(batch)
    assert (packed["bytes"], packed["digest"]) == (made["bytes"], made["digest"])
    tables = [root.table(queue, columns=[*SAME, "seq", "msg_id", "xact_id"]) for queue in ("packed", "rows")]
    assert tables[0].select(SAME).to_pylist() == tables[1].select(SAME).to_pylist()
    assert len(tables[0]) == len(batch)
    assert set(tables[0]["packet_error"].to_pylist()) == {None}
    for table in tables:
        assert len(set(table["msg_id"].to_pylist())) == len(batch)
        assert len(set(table["xact_id"].to_pylist())) == (len(batch) if is_transactional else 1)


def test_a_batch_may_come_again_in_the_other_form(
    qm: QueueManager, root: FlightQueues, rows_only: Callable[[], None]
) -> None:
    qm.create_queue("q")
    batch = pa.RecordBatch.from_pydict(BATCHES["labels"])
    written(root, batch, "q", "w")
    rows_only()
    again = root.stage([batch], batch.schema, writer="w", queue="q")
    assert not root.publish("w", 0, [again["token"]])["is_new"]
    assert qm.open("q").count() == MANY


def test_writers_send_packets_where_they_can(root: FlightQueues) -> None:
    plain, traced = pa.schema([("body", pa.binary())]), pa.schema([("body", pa.binary()), ("trace", pa.int32())])
    assert root._packet_encoder(plain, "q") is not None
    assert root._packet_encoder(traced, "q") is None
    root._about = {}
    assert root._packet_encoder(plain, "q") is None, "an older service gets rows"


def test_rows_go_where_they_say_and_those_to_other_computers_name_no_local_sender(
    qm: QueueManager, root: FlightQueues
) -> None:
    qm.create_queue("q")
    elsewhere = r"DIRECT=OS:beta\private$\in"
    queues = ["q", elsewhere, None] * 100
    batch = pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in range(300)], "queue": queues})
    written(root, batch, "q", "w")
    here, there = root.table("q", columns=["body", "sender_id"]), root.table(elsewhere, columns=["body", "sender_id"])
    assert here["body"].to_pylist() == [b"%d" % number for number in range(300) if number % 3 != 1]
    assert there["body"].to_pylist() == [b"%d" % number for number in range(1, 300, 3)]
    assert set(here["sender_id"].to_pylist()) == {runtime_of(qm).users.sid("root").pack()}
    assert set(there["sender_id"].to_pylist()) == {None}


# What a hostile writer sends
# ------------------------------------------------------------------------------------------


@pytest.fixture
def destination(qm: QueueManager, root: FlightQueues) -> Destination:
    qm.create_queue("q")
    return Destination.parse(root.act("destination", queue="q"))


def packet(destination: Destination, **changes: Any) -> bytes:  # noqa: ANN401 (of any property)
    given: dict[str, Any] = {
        "body": b"body",
        "label": "label",
        "sender_identifier": destination.sender,
        "delivery_guarantee": DeliveryGuarantee.RECOVERABLE,
    }
    source, name = changes.pop("source", OTHER), changes.pop("name", destination.format_name)
    properties = MessageProperties(**{**given, **changes})
    return build(properties, source=source, ordinal=5, sent_time=7, destination=name)


class Raw(FlightQueues):
    """Sends batches as they are."""

    def _packet_encoder(self, schema: pa.Schema, queue: str | None) -> None:
        del schema, queue


@pytest.fixture
def raw(address: str) -> Iterator[Raw]:
    with Raw(address, user="root", password="secret") as queues:
        yield queues


def put(raw: Raw, batch: pa.RecordBatch, queue: str | None = "q") -> str:
    token: str = raw.stage([batch], batch.schema, writer="w", queue=queue)["token"]
    return token


def packets_of(*found: bytes | None, **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"packet": pa.array(found, pa.binary()), **columns})


def test_what_only_the_queue_manager_can_say_is_written_over(
    root: FlightQueues, raw: Raw, destination: Destination
) -> None:
    token = put(raw, packets_of(*[packet(destination)] * 3))
    root.publish("w", 0, [token])
    found = [Message(row["packet"]) for row in root.table("q", columns=["packet"]).to_pylist()]
    assert {each.source_machine_identifier for each in found} == {destination.source}
    ordinals = [each.identifier.ordinal for each in found]
    assert ordinals == [*range(ordinals[0], ordinals[0] + 3)]
    assert min(each.sent_time for each in found) > 7


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sender_identifier": bytes(12)}, "names another sender"),
        ({"sender_identifier": b""}, r"UserHeader\.Flags"),
        ({"name": parse(r"DIRECT=OS:alpha\private$\other")}, "another destination"),
        ({"message_class": MessageClass.ACK_RECEIVE}, "not one of a message to send"),
        ({"delivery_guarantee": DeliveryGuarantee.EXPRESS}, "is express"),
        ({"tracing_requested": True}, r"BaseHeader\.Flags"),
        ({"first_in_transaction": True, "signature": b"sig"}, "names another sender"),
        ({"privacy_level": 1}, "not one of a message to send|names another sender"),
    ],
)
def test_a_packet_that_says_more_is_refused_and_nothing_is_staged(
    qm: QueueManager,
    raw: Raw,
    destination: Destination,
    changes: dict[str, Any],
    complaint: str,
) -> None:
    batch = packets_of(packet(destination), packet(destination, **changes))
    with pytest.raises(InvalidParameter, match=complaint):
        put(raw, batch)
    with runtime_of(qm).lock:
        assert list(runtime_of(qm).store.table("stages").items()) == []


def test_octets_that_are_no_packets_are_refused(raw: Raw, destination: Destination) -> None:
    good = packet(destination)
    for found, complaint in (
        ([b""], "0 packets, 1 expected"),
        ([good[:-4]], "a packet of"),
        ([good + good], "more than 1 packets"),
        ([good, b"x" * 200], "a packet of"),
        ([good, None], "row 1: there is no packet"),
    ):
        with pytest.raises(InvalidParameter, match=complaint):
            put(raw, packets_of(*found))


def test_columns_beside_packets_are_refused(raw: Raw, destination: Destination) -> None:
    good = packet(destination)
    for batch, queue, complaint in (
        (packets_of(good, label=["x"]), "q", "and no others"),
        (pa.RecordBatch.from_pydict({"packet": ["text"]}), "q", "packet .binary."),
        (packets_of(good), None, "no destination"),
        (packets_of(good, queue=pa.nulls(1, pa.string())), None, "row 0: queue is null"),
    ):
        with pytest.raises(LannerError, match=complaint):
            put(raw, batch, queue)


# The encoder
# --------------------------------------------------------------------------------------------------


HERE = Destination(parse(r"DIRECT=OS:alpha\private$\q"), b"", is_transactional=False, source=OTHER)


def encoded(batch: pa.RecordBatch) -> list[bytes]:
    encoder = PacketEncoder(batch.schema, QueueNames("ALPHA"), "q", lambda _: HERE)
    made = list(encoder.packets(batch))
    assert all(each.schema == encoder.schema for each in made)
    return list(itertools.chain.from_iterable(each.column(0).to_pylist() for each in made))


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.none() | st.binary(max_size=40),
            "label": st.none() | st.text(max_size=20).filter(lambda text: "\0" not in text),
            "app_specific": st.none() | st.integers(0, (1 << 32) - 1),
            "correlation_id": st.none() | st.binary(min_size=20, max_size=20),
            "priority": st.sampled_from([None, 3, 5]),
        }
    ),
    min_size=1,
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(ROWS, st.integers(0, 10), st.sampled_from([1, 7, 1000]))
def test_columns_and_single_rows_give_the_same_packets(rows: list[dict[str, Any]], skipped: int, at_once: int) -> None:
    """This holds also for a slice, and however the rows are cut."""
    schema = pa.schema([field for field in RowSchema().arrow if field.name in rows[0]])
    batch = pa.Table.from_pylist(rows, schema=schema).to_batches()[0].slice(min(skipped, len(rows) - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MAX_ROWS", at_once)
        patch.setattr(packing, "_SHORT", 0)
        together = encoded(batch)
        # With 2, rows of several runs that alternate are grouped.
        for short in (2, 1 << 20):
            patch.setattr(packing, "_SHORT", short)
            assert encoded(batch) == together
    assert len(together) == len(batch)


def test_rows_that_alternate_are_packed_in_groups_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 200
    rows = {
        "body": [None if number % 5 == 0 else f"body {number}" for number in range(count)],
        "label": [f"label {number}" for number in range(count)],
        "priority": [number % 3 for number in range(count)],
        "queue": ["q", "other"] * (count // 2),
    }
    runs: list[int] = []
    made = packing._together

    def together(*arguments: Any) -> pa.Array:  # noqa: ANN401 (as the function)
        runs.append(len(arguments[3]))
        return made(*arguments)

    monkeypatch.setattr(packing, "_together", together)
    batch = pa.RecordBatch.from_pydict(rows)
    encoder = PacketEncoder(batch.schema, QueueNames("ALPHA"), None, lambda _: HERE)
    [found] = encoder.packets(batch)
    assert (len(runs), sum(runs)) == (12, count)
    assert found.column("queue").to_pylist() == rows["queue"]
    messages = [Message.unpack(packet) for packet in found.column("packet").to_pylist()]
    assert [message.label for message in messages] == rows["label"]
    assert [message.priority for message in messages] == rows["priority"]
    # An error has the number of its row, in all that was encoded.
    rows["label"][131] = "x" * 250
    with pytest.raises(LabelTooLong, match="row 331: label of 250"):
        list(encoder.packets(pa.RecordBatch.from_pydict(rows)))


@pytest.mark.parametrize("short", [0, 1 << 20])
@pytest.mark.parametrize(
    ("columns", "error", "complaint"),
    [
        ({"body": [b"x"] * 3, "label": ["a", "b", "c" * 250]}, LabelTooLong, "row 2: label of 250 characters"),
        ({"body": [b"x"] * 3, "label": ["a", "😀" * 125, "c"]}, LabelTooLong, "row 1: label of 250 characters"),
        ({"body": [b"x"] * 3, "label": ["a", "b\0", "c"]}, LannerError, "row 1: a label cannot contain a null"),
        ({"body": [b"x"] * 3, "app_specific": [1, 1 << 32, 1]}, LannerError, "row 1: app_specific 4294967296"),
        ({"body": [b"x"] * 3, "app_specific": [1, 1, -1]}, LannerError, "row 2: app_specific -1"),
        ({"body": [b"x"] * 2, "correlation_id": [None, b"no"]}, LannerError, "row 1: correlation_id of 2 bytes"),
        ({"body": [b"x", bytes(5 << 20)]}, LannerError, r"row 1: .*packet of \d+ bytes"),
        ({"body": ["x", "€"], "body_type": [30, 30]}, LannerError, "row 1: body: '€' cannot be written as latin-1"),
        ({"body": [b"x"] * 2, "priority": [1, 9]}, LannerError, "row 1: priority 9"),
    ],
)
def test_what_cannot_be_packed_is_reported_by_row(
    monkeypatch: pytest.MonkeyPatch, short: int, columns: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    monkeypatch.setattr(packing, "_SHORT", short)
    with pytest.raises(error, match=complaint):
        encoded(pa.RecordBatch.from_pydict(columns))
