"""Rows to messages."""

from __future__ import annotations

import dataclasses
import uuid

import pyarrow as pa
import pytest

from lanner.errors import IllegalPropertyValue, InvalidParameter, LannerError
from lanner.host.names import QueueNames
from lanner.model.enums import INFINITE
from lanner.spark.columnar.decode import decode_packets
from lanner.spark.columnar.encode import RowEncoder
from lanner.spark.columnar.schema import SETTABLE, RowSchema
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse

NAMES = QueueNames("ALPHA")
SOURCE = uuid.UUID(int=7)


def encode(
    rows: list[dict[str, object]], queue: str | None = "q", schema: pa.Schema | None = None
) -> list[tuple[str, list[MessageProperties]]]:
    """Queues, and the messages of rows behind each other that go there."""
    table = pa.Table.from_pylist(rows, schema=schema)
    batch = table.to_batches()[0]
    made: list[tuple[str, list[MessageProperties]]] = []
    for name, run in RowEncoder(batch.schema, NAMES, queue).messages(batch):
        if not made or made[-1][0] != name:
            made.append((name, []))
        for label, body in zip(run.labels, run.bodies, strict=True):
            text = label.decode("utf-16-le").rstrip("\0")
            made[-1][1].append(dataclasses.replace(run.properties, label=text, body=body))
    return made


def packets(messages: list[MessageProperties]) -> list[bytes]:
    destination = parse(r"DIRECT=OS:alpha\private$\q")
    return [
        build(properties, source=SOURCE, ordinal=number, sent_time=1, destination=destination)
        for number, properties in enumerate(messages)
    ]


def test_every_settable_column_comes_out_as_it_went_in() -> None:
    row: dict[str, object] = {
        "correlation_id": bytes(range(20)),
        "app_specific": 0xFFFF_FFFF,
        "label": "ünï",
        "time_to_reach_queue": 100,
        "time_to_be_received": 200,
        "priority": 5,
        "acknowledge": 5,
        "journal": 3,
        "trace": 1,
        "resp_format_name": r"DIRECT=OS:beta\private$\answers",
        "admin_format_name": r"DIRECT=OS:alpha\private$\admin",
        "deadletter_format_name": r".\private$\dead",
        "report_queue_id": str(uuid.uuid4()),
        "connector_type": str(uuid.uuid4()),
        "body_type": 0,
        "body": b"body",
        "extension": b"ext",
        "soap_header": "head",
        "soap_body": "soap",
    }
    assert set(SETTABLE) - row.keys() == {"queue", "dest_format_name", "correlation_text"}
    schema = pa.schema([field for field in RowSchema().arrow if field.name in row])
    [(queue, messages)] = encode([row], schema=schema)
    [found] = decode_packets(packets(messages)).to_pylist()
    assert queue == "q"
    assert {name: found[name] for name in row} == row


def test_nulls_and_missing_columns_keep_the_defaults() -> None:
    [(_, [made])] = encode([{"body": b"x", "label": None}])
    assert made == MessageProperties(body=b"x")


def test_text_becomes_a_body_that_programs_read_as_text() -> None:
    [(_, messages)] = encode([{"body": "grüße", "body_type": None}, {"body": "plain", "body_type": 30}])
    assert [(bytes(made.body), made.body_type) for made in messages] == [
        ("grüße".encode("utf-16-le"), 8),
        (b"plain", 30),
    ]


def test_times_forever() -> None:
    [(_, [made])] = encode([{"body": b"", "time_to_reach_queue": INFINITE, "time_to_be_received": INFINITE}])
    assert (made.time_to_reach_queue, made.time_to_be_received) == (INFINITE, INFINITE)


def test_a_correlation_may_be_text() -> None:
    text = f"{SOURCE}\\9"
    [(_, [made])] = encode([{"body": b"", "correlation_text": text}])
    assert made.correlation_identifier == SOURCE.bytes_le + b"\x09\0\0\0"


@pytest.mark.parametrize("column", ["queue", "dest_format_name"])
def test_rows_name_their_queues_and_keep_their_order(column: str) -> None:
    rows: list[dict[str, object]] = [
        {"body": b"1", column: "a"},
        {"body": b"2", column: "a"},
        {"body": b"3", column: None},
        {"body": b"4", column: "a"},
    ]
    runs = encode(rows)
    assert [(queue, [made.body for made in messages]) for queue, messages in runs] == [
        ("a", [b"1", b"2"]),
        ("q", [b"3"]),
        ("a", [b"4"]),
    ]


def test_no_rows_are_no_messages() -> None:
    batch = pa.RecordBatch.from_pylist([], schema=pa.schema([pa.field("body", pa.binary())]))
    assert list(RowEncoder(batch.schema, NAMES, "q").messages(batch)) == []


@pytest.mark.parametrize(
    ("row", "queue", "complaint"),
    [
        ({"bdy": b"x"}, "q", "no column 'bdy' to write; the nearest is 'body'"),
        ({"body": b"x", "seq": 1}, "q", "'seq' is the queue manager's and cannot be written"),
        ({"label": "x"}, "q", "a column body is needed"),
        ({"body": 5}, "q", "column body is int64: binary or text expected"),
        ({"body": b"x"}, None, "no destination"),
        ({"body": b"x", "queue": None}, None, "row 0: queue is null"),
        ({"body": b"x", "queue": "a", "dest_format_name": "a"}, None, "mean the same"),
        ({"body": b"x", "priority": "high"}, "q", "column priority"),
        ({"body": b"x", "acknowledge": 16}, "q", "row 0: acknowledge 16"),
        ({"body": b"x", "journal": 4}, "q", "row 0: journal 4"),
        ({"body": b"x", "time_to_reach_queue": -1}, "q", "row 0: time_to_reach_queue -1"),
        ({"body": b"x", "correlation_id": b"short"}, "q", "row 0: correlation_id of 5 bytes"),
        ({"body": b"x", "correlation_text": "nonsense"}, "q", "row 0: correlation_id 'nonsense'"),
        ({"body": b"x", "connector_type": "nonsense"}, "q", "row 0: connector_type 'nonsense'"),
        ({"body": b"x", "resp_format_name": "DIRECT=nonsense"}, "q", "row 0: .*nonsense"),
    ],
)
def test_what_cannot_be_written_is_reported_by_row_and_column(
    row: dict[str, object], queue: str | None, complaint: str
) -> None:
    with pytest.raises(LannerError, match=complaint) as caught:
        encode([row], queue)
    assert isinstance(caught.value, (InvalidParameter, IllegalPropertyValue)) or "resp_format_name" in row
