"""Arrow batches to messages, for writers.

A column may be missing, and a null leaves the property at its default. The names are those of
`schema`. A column that cannot be written is an error, because ignoring it would lose data silently.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from lanner.client.message import Message, encode_text
from lanner.host.names import QueueNames
from lanner.model.enums import INFINITE, Acknowledgements
from lanner.model.errors import IllegalPropertyValue, InvalidParameter, StatusError
from lanner.spark.columnar.rows import DEADLETTER, JOURNAL
from lanner.spark.columnar.schema import BINARY, BY_NAME, SETTABLE, STRING
from lanner.wire.builder import MessageProperties, encode_label
from lanner.wire.packet_template import MessageRun

__all__ = ["SAME", "RowEncoder", "cast_column", "check_columns", "is_text"]

# Columns that name the queue of a row.
_QUEUE_COLUMNS: Final = ("queue", "dest_format_name")
# Pairs of columns of which rows may have one.
SAME: Final = (_QUEUE_COLUMNS, ("correlation_text", "correlation_id"))


def _seconds(value: int) -> int | None:
    return None if value == INFINITE else value


def _acknowledge(value: int) -> Acknowledgements:
    if not 0 <= value <= 0xF:
        raise IllegalPropertyValue(f"acknowledge {value}: 0 to 15 expected")
    return Acknowledgements(value)


# Column, field of Message, conversion of the value.
_FIELDS: Final[dict[str, tuple[str, Callable[[Any], object] | None]]] = {
    "priority": ("priority", None),
    "time_to_reach_queue": ("time_to_reach_queue", _seconds),
    "time_to_be_received": ("time_to_be_received", _seconds),
    "acknowledge": ("acknowledge", _acknowledge),
    "trace": ("use_tracing", bool),
    "resp_format_name": ("response_queue", None),
    "admin_format_name": ("administration_queue", None),
    "report_queue_id": ("tracing_queue", None),
    "connector_type": ("connector_type", None),
    "correlation_id": ("correlation_id", None),
    "correlation_text": ("correlation_id", None),
    "app_specific": ("app_specific", None),
    "body_type": ("body_type", None),
    "extension": ("extension", None),
}
# Columns without a field in the client's Message, and their names in MessageProperties.
_PROPERTIES: Final = {
    "deadletter_format_name": "application_deadletter_queue",
    "soap_header": "soap_header",
    "soap_body": "soap_body",
}


class RowEncoder:
    """Makes messages of batches with one schema."""

    def __init__(self, schema: pa.Schema, names: QueueNames, queue: str | None = None) -> None:
        """Make messages for `queue`, or for the queue that a row names.

        Raises InvalidParameter if the columns cannot be sent.
        """
        self._names = names
        self._queue = queue
        self._columns = check_columns(schema, queue)
        self.queue_column = next((name for name in _QUEUE_COLUMNS if name in self._columns), None)

    def messages(self, batch: pa.RecordBatch, first: int = 0) -> Iterator[tuple[str, MessageRun]]:
        """Yield the messages of a batch in runs, in the order of the rows, each with its queue.

        Rows of a run differ only in label and body, and go to the same queue. `first` is the number
        of the first row, for errors.
        """
        columns = {name: cast_column(batch.column(name), name).to_pylist() for name in self._columns}
        bodies = columns.pop("body")
        labels = columns.pop("label", None)
        end = 0
        for values, rows in groupby(self._common(columns, bodies)):
            start, end = end, end + sum(1 for _ in rows)
            yield self.queue_of(columns, start, first), self._run(columns, bodies, labels, start, end, first)
            del values

    def _common(self, columns: dict[str, list[Any]], bodies: list[Any]) -> Iterable[object]:
        """Return for each row the values that the rows of a run have in common."""
        if columns:
            return zip(*columns.values(), map(_kind, bodies), strict=True)
        return map(_kind, bodies)

    def queue_of(self, columns: dict[str, list[Any]], row: int, first: int) -> str:
        """Return the queue of a row."""
        queue = self._queue
        if self.queue_column is not None:
            queue = columns[self.queue_column][row] or queue
        return self._known(queue, first + row)

    def _run(
        self,
        columns: dict[str, list[Any]],
        bodies: list[Any],
        labels: list[str | None] | None,
        start: int,
        end: int,
        first: int,
    ) -> MessageRun:
        try:
            properties = self.properties(columns, start, bodies[start])
        except StatusError as error:
            raise type(error)(f"row {first + start}: {error.args[0]}") from None
        own = bodies[start:end]
        if isinstance(own[0], str):
            own = [self.text(body, properties.body_type, first + row) for row, body in enumerate(own, start)]
        elif own[0] is None:
            own = [b""] * len(own)
        if labels is None:
            return MessageRun(properties, [b""] * len(own), own)
        return MessageRun(properties, [self._label(labels[row], first + row) for row in range(start, end)], own)

    @staticmethod
    def text(body: str, body_type: int, row: int) -> bytes:
        """Return the bytes of a body that was given as text."""
        try:
            return encode_text(body, body_type)
        except StatusError as error:
            raise type(error)(f"row {row}: {error.args[0]}") from None

    @staticmethod
    def _label(label: str | None, row: int) -> bytes:
        try:
            return encode_label(label) if label else b""
        except StatusError as error:
            raise type(error)(f"row {row}: {error.args[0]}") from None

    def _known(self, queue: str | None, row: int) -> str:
        if queue is None:
            raise InvalidParameter(f"row {row}: {self.queue_column} is null, and the option queue is not set")
        return queue

    def properties(self, columns: dict[str, list[Any]], row: int, body: str | bytes | None) -> MessageProperties:
        """Return the properties of a run, from its first row. The body determines the body type."""
        message = Message(body="" if isinstance(body, str) else b"")
        later: list[tuple[str, str]] = []
        for name, values in columns.items():
            value = values[row]
            if value is None:
                continue
            if name in _FIELDS:
                field, convert = _FIELDS[name]
                setattr(message, field, value if convert is None else convert(value))
            elif name == "journal":
                if not 0 <= value <= DEADLETTER | JOURNAL:
                    raise IllegalPropertyValue(f"journal {value}: 0, 1 (dead-letter queue), 2 (journal) or 3 expected")
                message.use_dead_letter_queue = bool(value & DEADLETTER)
                message.use_journal_queue = bool(value & JOURNAL)
            elif name in _PROPERTIES:
                later.append((_PROPERTIES[name], value))
        properties = message.properties(self._names)
        for field, value in later:
            setattr(properties, field, value)
        return properties


def _kind(body: str | bytes | None) -> object:
    return None if body is None else type(body)


def cast_column(column: pa.Array, name: str) -> pa.Array:
    """Return a column with the type of the schema. A body may also be text."""
    kind = STRING if name == "body" and is_text(column.type) else BY_NAME[name].type
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidParameter(f"column {name}: {error}") from None


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def check_columns(schema: pa.Schema, queue: str | None = None) -> tuple[str, ...]:
    """Return the names of the columns.

    Raises InvalidParameter if they cannot be sent. `queue` is as for RowEncoder.
    """
    names = tuple(schema.names)
    for name in names:
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, SETTABLE, 1, 0)[0]
            raise InvalidParameter(f"there is no column {name!r} to write; the nearest is {near!r}")
        if name not in SETTABLE:
            raise InvalidParameter(
                f"column {name!r} is the queue manager's and cannot be written; these can: {', '.join(SETTABLE)}"
            )
    if len(set(names)) < len(names):
        raise InvalidParameter("a column is there twice")
    if "body" not in names:
        raise InvalidParameter("a column body is needed, binary or text")
    for pair in SAME:
        if set(pair) <= set(names):
            raise InvalidParameter(f"columns {pair[0]} and {pair[1]} mean the same property: give one of them")
    kind = schema.field("body").type
    if not (is_text(kind) or pa.types.is_large_binary(kind) or kind == BINARY):
        raise InvalidParameter(f"column body is {kind}: binary or text expected")
    if queue is None and not set(_QUEUE_COLUMNS) & set(names):
        raise InvalidParameter("no destination: give the option queue, or a column of that name")
    return names
