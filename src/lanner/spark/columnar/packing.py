"""Arrow batches to packets, a column at a time: the writer's side, before messages are sent.

Consecutive rows that differ only in label, body, application tag and correlation are a run. The
headers of a run are made once and repeated as a matrix of bytes. The numbers of each row are then
filled in as columns. Only the queue manager knows source, identifier, time and sender. These fields
are left out, or copied from its answer; it overwrites them, and refuses a packet that states
something else (`wire.client_packet`). Rows with other properties cannot be sent as packets. They
are sent as rows, and `encode` makes messages of them in the queue manager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lanner.host.names import QueueNames
from lanner.model.enums import DeliveryGuarantee
from lanner.model.errors import (
    IllegalPropertyValue,
    InsufficientResources,
    InvalidParameter,
    LannerError,
    StatusError,
)
from lanner.spark.columnar.encode import RowEncoder, cast_column, is_text
from lanner.spark.columnar.schema import BINARY, SETTABLE, STRING
from lanner.spark.columnar.vectors import Ints, Mask, Octets, joined
from lanner.wire import layout as at
from lanner.wire.builder import MAX_LABEL_CHARACTERS, MessageProperties, build, encode_label
from lanner.wire.format_name import FormatName, parse
from lanner.wire.layout import MAX_PACKET_SIZE, locate
from lanner.wire.packet_template import PacketTemplate

__all__ = ["Destination", "PacketEncoder", "can_pack"]

# Columns whose messages a program may not build as packets.
_ROWS_ONLY: Final = frozenset({"trace", "report_queue_id", "deadletter_format_name", "soap_header", "soap_body"})
_PACKABLE: Final = frozenset(SETTABLE) - _ROWS_ONLY
# Columns in which the rows of a run may differ.
_OWN: Final = frozenset({"body", "label", "app_specific", "correlation_id"})
# Not in the specification: rows and bytes of bodies in one batch that is sent.
MAX_ROWS: Final = 4096
MAX_BYTES: Final = 4 << 20
# Not in the specification: average length of runs, below which packets are made run by run, which
# then costs less than columns. If rows of different runs alternate, they are grouped first.
_SHORT: Final = 16
_MAX_U32: Final = 0xFFFF_FFFF
_CORRELATION_SIZE: Final = 20
_PADDING: Final = pa.array([b"", b"\0", b"\0\0", b"\0\0\0"], BINARY)
# Offsets within MessagePropertiesHeader: LabelLength, CorrelationID, ApplicationTag, MessageSize,
# AllocationBodySize; and within BaseHeader: PacketSize.
_LABEL_LENGTH, _CORRELATION, _TAG, _SIZE, _ALLOCATION, _PACKET_SIZE = 1, 4, 28, 32, 36, 8


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue that packets are built for, as the queue manager describes it."""

    format_name: FormatName
    sender: bytes  # the SID that packets name; empty for none
    is_transactional: bool
    source: UUID

    @classmethod
    def parse(cls, told: dict[str, Any]) -> Destination:
        """Read the answer of the action `destination`."""
        name = parse(told["format_name"])
        return cls(name, bytes.fromhex(told["sender"]), bool(told["is_transactional"]), UUID(told["queue_manager_id"]))


def can_pack(schema: pa.Schema) -> bool:
    """Return whether all rows with these columns can be sent as packets."""
    return set(schema.names) <= _PACKABLE


class PacketEncoder:
    """Makes packets of batches with one schema."""

    def __init__(
        self,
        schema: pa.Schema,
        names: QueueNames,
        queue: str | None,
        destination: Callable[[str], Destination],
    ) -> None:
        """Make packets for `queue`, or for the queue that a row names.

        `destination` is called once for each queue. Raises InvalidParameter if the columns cannot
        be sent.
        """
        self._rows = RowEncoder(schema, names, queue)
        self._names = names
        self._queue = queue
        self._destination = destination
        self._known: dict[str, Destination] = {}
        self._count = 0  # rows so far
        self._body_kind = STRING if is_text(schema.field("body").type) else BINARY
        columns = ["packet"] if self._rows.queue_column is None else ["packet", "queue"]
        self.schema = pa.schema([pa.field(name, BINARY if name == "packet" else STRING) for name in columns])

    def packets(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield batches of `schema` with the packets of all rows, in the order of the rows."""
        for piece in _pieces(batch):
            yield self._packed(piece, self._count)
            self._count += len(piece)

    def _packed(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        columns = {
            name: cast_column(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        starts = self._starts(columns, len(batch))
        if len(starts) * _SHORT <= len(batch):
            return self._joined(self._in_columns(columns, starts, first))
        order = self._order(columns, len(batch))
        if order is not None:
            with contextlib.suppress(LannerError):
                return self._in_groups(columns, order, first)
        # Its errors name the row.
        return self._joined(self._one_by_one(batch, first))

    def _joined(self, runs: Iterable[tuple[str, pa.Array]]) -> pa.RecordBatch:
        packets: list[pa.Array] = []
        queues: list[pa.Array] = []
        for queue, run in runs:
            packets.append(run)
            queues.append(pa.repeat(queue, len(run)))
        found = [pa.concat_arrays(packets)]
        if "queue" in self.schema.names:
            found.append(pa.concat_arrays(queues))
        return pa.RecordBatch.from_arrays(found, schema=self.schema)

    def _in_groups(self, columns: dict[str, pa.Array], order: Ints, first: int) -> pa.RecordBatch:
        """Make packets of rows in an order with long runs, and put them back into their own."""
        grouped = {name: column.take(pa.array(order)) for name, column in columns.items()}
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        found = self._joined(self._in_columns(grouped, self._starts(grouped, len(order)), first))
        return found.take(pa.array(back))

    def _in_columns(
        self, columns: dict[str, pa.Array], starts: list[int], first: int
    ) -> Iterator[tuple[str, pa.Array]]:
        count = len(columns["body"])
        for start, end in zip(starts, [*starts[1:], count], strict=True):
            run = {name: column[start:end] for name, column in columns.items()}
            named = {name: run[name][:1].to_pylist() for name in _QUEUES & run.keys()}
            queue = self._rows.queue_of(named, 0, first + start)
            yield queue, self._run(run, self._destination_of(queue, first + start), first + start)

    def _one_by_one(self, batch: pa.RecordBatch, first: int) -> Iterator[tuple[str, pa.Array]]:
        for queue, run in self._rows.messages(batch, first):
            destination = self._destination_of(queue, first)
            _complete(run.properties, destination)
            count = len(run)
            zeros = [0] * count
            try:
                template = PacketTemplate(
                    run.properties,
                    source=destination.source,
                    sent_time=0,
                    destination=destination.format_name,
                    is_transactional=destination.is_transactional,
                )
                packets = template.pack(zeros, run.labels, run.bodies, zeros if destination.is_transactional else [])
            except StatusError as error:
                row = first + max(range(count), key=lambda row: len(run.bodies[row]))
                raise type(error)(f"row {row}: {error.args[0]}") from None
            yield queue, pa.array(packets, BINARY)
            first += count

    def _starts(self, columns: dict[str, pa.Array], count: int) -> list[int]:
        """Return the rows at which runs begin."""
        begins = np.zeros(count, np.bool_)
        begins[:1] = True
        for name, column in columns.items():
            if name not in _OWN:
                begins |= _changes(column)
        if self._body_kind == STRING and columns["body"].null_count:
            # Text has another body type than no body.
            begins |= _changes(pc.is_null(columns["body"]))
        starts: list[int] = np.flatnonzero(begins).tolist()
        return starts

    def _order(self, columns: dict[str, pa.Array], count: int) -> Ints | None:
        """Return the order of rows in which those of one run are together.

        Returns None if the runs would be short all the same.
        """
        keys: npt.NDArray[Any] = np.zeros(count, np.int64)
        distinguishing = [column for name, column in columns.items() if name not in _OWN]
        if self._body_kind == STRING and columns["body"].null_count:
            distinguishing.append(pc.is_null(columns["body"]))
        for column in distinguishing:
            codes = column.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
            found, keys = np.unique(keys * (count + 1) + codes + 1, return_inverse=True)
            if len(found) * _SHORT > count:
                return None
        return np.argsort(keys, kind="stable").astype(np.int64)

    def _destination_of(self, queue: str, row: int) -> Destination:
        found = self._known.get(queue)
        if found is None:
            try:
                found = self._known[queue] = self._destination(queue)
            except StatusError as error:
                raise type(error)(f"row {row}: {error.args[0]}") from None
        return found

    def _run(self, run: dict[str, pa.Array], destination: Destination, first: int) -> pa.Array:
        common = {name: column[:1].to_pylist() for name, column in run.items() if name not in _OWN}
        sample = run["body"][0].as_py()
        try:
            properties = self._rows.properties(common, 0, sample)
        except StatusError as error:
            raise type(error)(f"row {first}: {error.args[0]}") from None
        _complete(properties, destination)
        labels = _labels(run.get("label"), len(run["body"]), first)
        bodies = self._bodies(run["body"], properties, first)
        correlations = self._correlations(run, first)
        tags = self._tags(run, first)
        return _together(properties, destination, labels, bodies, correlations, tags, first)

    def _bodies(self, column: pa.Array, properties: MessageProperties, first: int) -> pa.Array:
        if column.type == BINARY:
            return column.fill_null(b"") if column.null_count else column
        texts = column.to_pylist()
        return pa.array(
            [RowEncoder.text(text or "", properties.body_type, first + row) for row, text in enumerate(texts)], BINARY
        )

    def _tags(self, run: dict[str, pa.Array], first: int) -> Ints | None:
        column = run.get("app_specific")
        if column is None:
            return None
        tags: Ints = column.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero((tags < 0) | (tags > _MAX_U32))
        if len(wrong):
            self._refuse("app_specific", int(tags[wrong[0]]), first + int(wrong[0]))
        return tags

    def _correlations(self, run: dict[str, pa.Array], first: int) -> Octets | None:
        column = run.get("correlation_id")
        if column is None:
            return None
        column = column.fill_null(bytes(_CORRELATION_SIZE))
        wrong = np.flatnonzero(_lengths(column) != _CORRELATION_SIZE)
        if len(wrong):
            self._refuse("correlation_id", column[int(wrong[0])].as_py(), first + int(wrong[0]))
        return _content(column).reshape(-1, _CORRELATION_SIZE)

    def _refuse(self, name: str, value: object, row: int) -> None:
        """Raise the exception that `encode` raises for a value."""
        try:
            self._rows.properties({name: [value]}, 0, b"")
        except StatusError as error:
            raise type(error)(f"row {row}: {error.args[0]}") from None
        raise IllegalPropertyValue(f"row {row}: {name} {value!r} cannot be sent")


_QUEUES: Final = frozenset({"queue", "dest_format_name"})


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces that are packed and sent one by one."""
    body = batch.column(batch.schema.get_field_index("body"))
    ends = np.cumsum(pc.binary_length(body).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    start = 0
    while start < len(batch):
        done = int(ends[start - 1]) if start else 0
        end = min(start + MAX_ROWS, max(start + 1, int(np.searchsorted(ends, done + MAX_BYTES, side="right"))))
        yield batch.slice(start, end - start)
        start = end


def _changes(column: pa.Array) -> Mask:
    """Return the rows at which the value of a column changes."""
    count = len(column)
    found = np.zeros(count, np.bool_)
    if count > 1 and column.null_count < count:
        before, after = column[:-1], column[1:]
        if column.null_count:
            is_null = pc.is_null(column).to_numpy(zero_copy_only=False)
            found[1:] = is_null[1:] != is_null[:-1]
        found[1:] |= pc.not_equal(before, after).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _offsets(column: pa.Array) -> Ints:
    """Return the offsets of a binary or text array without nulls."""
    places = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return places.astype(np.int64)


def _lengths(column: pa.Array) -> Ints:
    return np.diff(_offsets(column))


def _content(column: pa.Array) -> Octets:
    """Return the bytes of a binary or text array, all values concatenated."""
    places, data = _offsets(column), column.buffers()[2]
    return np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]


def _labels(column: pa.Array | None, count: int, first: int) -> pa.Array:
    """Return labels in the form of packets: UTF-16 with a terminator; empty for no label."""
    if column is None:
        return pa.repeat(pa.scalar(b"", BINARY), count)
    if column.null_count:
        column = column.fill_null("")
    octets, places = _content(column), _offsets(column)
    places = places - places[0]
    # A UTF-16 unit for the first byte of each character, and one more if the character has four
    # bytes.
    begun = np.zeros(len(octets) + 1, np.int64)
    np.cumsum((octets & 0xC0 != 0x80).astype(np.int64) + (octets >= 0xF0), out=begun[1:])
    units = np.diff(begun[places])
    if (units > MAX_LABEL_CHARACTERS).any() or not octets.all():
        for row, text in enumerate(column.to_pylist()):
            try:
                encode_label(text)
            except StatusError as error:
                raise type(error)(f"row {first + row}: {error.args[0]}") from None
    is_there = units > 0
    ended = pc.binary_join_element_wise(column, _terminators(is_there), "")
    sizes = np.zeros(count + 1, np.int32)
    np.cumsum(2 * (units + is_there), out=sizes[1:])
    try:
        data = _content(ended).tobytes().decode().encode("utf-16-le")
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"column label: {error}") from None
    return pa.Array.from_buffers(BINARY, count, [None, pa.py_buffer(sizes), pa.py_buffer(data)])


def _terminators(is_there: Mask) -> pa.Array:
    return pa.array(["", "\0"], STRING).take(pa.array(is_there.astype(np.int8)))


def _complete(properties: MessageProperties, destination: Destination) -> None:
    properties.delivery_guarantee = DeliveryGuarantee.RECOVERABLE
    properties.sender_identifier = destination.sender
    # Each message to a transactional queue is a transaction of its own.
    properties.first_in_transaction = properties.last_in_transaction = destination.is_transactional


def _together(
    properties: MessageProperties,
    destination: Destination,
    labels: pa.Array,
    bodies: pa.Array,
    correlations: Octets | None,
    tags: Ints | None,
    first: int,
) -> pa.Array:
    """Return the packets of a run, made as columns."""
    sample = build(
        properties,
        source=destination.source,
        ordinal=0,
        sent_time=0,
        destination=destination.format_name,
        transaction=0 if destination.is_transactional else None,
    )
    properties_at = locate(sample).properties
    end = properties_at + at.PROPERTIES_HEADER_SIZE
    fronts = np.tile(np.frombuffer(sample, np.uint8, end), (len(bodies), 1))
    label_sizes, body_sizes = _lengths(labels), _lengths(bodies)
    extension = bytes(properties.extension)
    contents = label_sizes + body_sizes + len(extension)
    gaps = -contents & 3
    sizes = end + contents + gaps
    wrong = np.flatnonzero(sizes > MAX_PACKET_SIZE)
    if len(wrong):
        row = int(wrong[0])
        raise InsufficientResources(
            f"row {first + row}: the message makes a packet of {sizes[row]} bytes, at most {MAX_PACKET_SIZE} can be "
            f"sent (body of {body_sizes[row]} bytes)"
        )
    fronts[:, properties_at + _LABEL_LENGTH] = label_sizes >> 1
    for place, numbers in (
        (_PACKET_SIZE, sizes),
        (properties_at + _SIZE, body_sizes),
        (properties_at + _ALLOCATION, body_sizes),
        (properties_at + _TAG, tags),
    ):
        if numbers is not None:
            fronts[:, place : place + 4] = _as_u32(numbers)
    if correlations is not None:
        place = properties_at + _CORRELATION
        fronts[:, place : place + _CORRELATION_SIZE] = correlations
    padding = _PADDING.take(pa.array(gaps))
    parts = [joined(fronts), labels, *([pa.scalar(extension, BINARY)] if extension else []), bodies, padding]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", BINARY))


def _as_u32(numbers: npt.NDArray[Any]) -> Octets:
    return numbers.astype("<u4").view(np.uint8).reshape(-1, 4)
