"""Packets to Arrow batches, a whole batch at a time.

Fixed fields are read from the buffer that holds all packets, with one numpy operation for all of them; variable ones are copied by
Arrow. Only the columns that are wanted are made. A packet that is not common goes through `rows`, one by one, and one that cannot be
read becomes a row with `packet` and `packet_error`: it never fails the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lanner.client.message import TEXT_BODIES, VT_LPSTR
from lanner.model.enums import INFINITE
from lanner.spark.packets import Located, Packets, locate
from lanner.spark.rows import CLASS_NAMES, DEADLETTER, JOURNAL, MICROSECONDS, OUTGOING, read_row
from lanner.spark.schema import BIGINT, BINARY, BOOLEAN, INT, STRING, TIMESTAMP, RowSchema
from lanner.spark.vectors import (
    Ints,
    Mask,
    Octets,
    guid_text,
    identifier_text,
    joined,
    lean,
    lone_surrogates,
    nulled,
    parts,
    some,
    utf8,
)
from lanner.wire import layout as at

__all__ = ["Facts", "Place", "decode", "decode_packets"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages were seen: the same for all of a batch."""

    qm_id: str | None = None
    qm_name: str | None = None
    queue: str | None = None
    queue_kind: str = "destination"
    subqueue: str | None = None


class Facts(NamedTuple):
    """What a queue knows of its messages beside their packets; one number each."""

    seq: Ints
    lookup_id: Ints
    arrived: Ints  # seconds since 1970 UTC
    abort_count: Ints
    move_count: Ints

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int, int]]) -> Facts:
        matrix = np.array(list(rows), np.int64).reshape(-1, len(cls._fields))
        return cls(*matrix.T)


def decode_packets(
    packets: Sequence[bytes], facts: Facts | None = None, place: Place | None = None, schema: RowSchema | None = None
) -> pa.RecordBatch:
    """Packets that are objects of their own."""
    if facts is None:
        facts = Facts.of((0, 0, 0, 0, 0) for _ in packets)
    return decode(Packets.of(packets), facts, place or Place(), schema or RowSchema())


def decode(
    packets: Packets, facts: Facts, place: Place, schema: RowSchema, read_time: int | None = None
) -> pa.RecordBatch:
    """One batch. `read_time` is in microseconds since 1970; now, if it is not given. At most 2 GiB of packets."""
    outside = _outside(packets, facts, place, schema, time.time_ns() // 1000 if read_time is None else read_time)
    if outside.keys() >= set(schema.names):
        # Nobody wants to know what is in the packets.
        return pa.RecordBatch.from_arrays([outside[name]() for name in schema.names], schema=schema.arrow)
    located, texts = locate(packets)
    common = _Common(packets, located, texts, place)
    odd = np.delete(np.arange(len(packets)), located.rows) if common.count < len(packets) else located.rows[:0]
    rows = [read_row(packets[index], place.queue_kind) for index in odd.tolist()]
    order = pa.array(np.argsort(np.concatenate([located.rows, odd]), kind="stable")) if rows else None
    arrays = []
    for column in schema.columns:
        if column.name in outside:
            arrays.append(outside[column.name]())
            continue
        make = _MAKERS.get(column.name)
        array = pa.nulls(common.count, column.type) if make is None or not common.count else make(common)
        if order is not None:
            array = pa.concat_arrays([array, _array([row.get(column.name) for row in rows], column.type)]).take(order)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _outside(
    packets: Packets, facts: Facts, place: Place, schema: RowSchema, read_time: int
) -> dict[str, Callable[[], pa.Array]]:
    """The columns that no packet tells."""
    count = len(packets)

    def constant(value: str | None) -> Callable[[], pa.Array]:
        return lambda: pa.nulls(count, STRING) if value is None else pa.repeat(pa.scalar(value, STRING), count)

    columns: dict[str, Callable[[], pa.Array]] = {
        "qm_id": constant(place.qm_id),
        "qm_name": constant(place.qm_name),
        "queue": constant(place.queue),
        "queue_kind": constant(place.queue_kind),
        "subqueue": constant(place.subqueue),
        "seq": lambda: pa.array(facts.seq, BIGINT),
        "lookup_id": lambda: pa.array(facts.lookup_id, BIGINT),
        "arrived_time": lambda: _times(facts.arrived),
        "read_time": lambda: pa.array(np.full(count, read_time)).view(TIMESTAMP),
        "abort_count": lambda: pa.array(facts.abort_count.astype(np.int32)),
        "move_count": lambda: pa.array(facts.move_count.astype(np.int32)),
    }
    if schema.has_packets:
        columns["packet"] = packets.whole
    return columns


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    if kind == TIMESTAMP:
        return pa.array(values, BIGINT).view(TIMESTAMP)
    return pa.array(values, kind)


def _times(seconds: Ints, present: Mask | None = None) -> pa.Array:
    array = pa.array(seconds * MICROSECONDS, BIGINT, mask=None if present is None else ~present)
    return array.view(TIMESTAMP)


class _Common:
    """The common packets of a batch, and what several columns need of them. Numbers may be lean (`vectors.lean`)."""

    def __init__(self, packets: Packets, located: Located, texts: list[str], place: Place) -> None:
        self.buffer = packets.buffer
        self.located = located
        self.header = located.header
        self.properties = located.properties
        self.flags = located.flags
        self.count = len(located.rows)
        self.is_outgoing = place.queue_kind == OUTGOING
        self._texts = texts

    # Pieces

    def place(self, position: Ints) -> Ints:
        """Where something is in each of the packets."""
        return self.located.starts + position

    def full(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """One for each packet."""
        return np.repeat(values, self.count) if len(values) == 1 else values

    def ints(self, values: npt.NDArray[np.generic]) -> pa.Array:
        return pa.array(self.full(values.astype(np.int32)), INT)

    def bigints(self, values: npt.NDArray[np.generic]) -> pa.Array:
        return pa.array(self.full(values.astype(np.int64)), BIGINT)

    def some_numbers(self, values: Ints | Mask, present: Mask) -> pa.Array:
        return pa.array(self.full(values), mask=self.full(~present))

    def text(self, texts: Sequence[str | None], which: Ints) -> pa.Array:
        """One of some texts for each packet; below 0: none."""
        if len(which) != 1:
            return pa.array(texts, STRING).take(pa.array(which, mask=which < 0))
        text = None if which[0] < 0 else texts[which[0]]
        return pa.nulls(self.count, STRING) if text is None else pa.repeat(pa.scalar(text, STRING), self.count)

    def name(self, which: Ints) -> pa.Array:
        return self.text(self._texts, which)

    # Identifiers

    @cached_property
    def identifiers(self) -> Octets:
        ordinals = np.ascontiguousarray(self.header["ordinal"]).view(np.uint8).reshape(-1, 4)
        return np.hstack([self.header["source"], ordinals])

    @cached_property
    def correlations(self) -> tuple[Octets, Mask]:
        found = np.ascontiguousarray(self.properties["correlation"])
        return found, _any(found)

    @cached_property
    def message_class(self) -> Ints:
        return lean(self.properties["message_class"])

    def class_name(self) -> pa.Array:
        numbers, which = np.unique(self.message_class, return_inverse=True)
        return self.text([CLASS_NAMES.get(number) for number in numbers.tolist()], which)

    # Times

    def expires_at(self) -> pa.Array:
        limit = lean(self.header["time_to_be_received"])
        if self.is_outgoing:
            limit = np.minimum(limit, lean(self.header["time_to_reach_queue"]))
        present = limit != INFINITE
        if not present.any():
            return pa.nulls(self.count, TIMESTAMP)
        return _times(self.header["sent_time"] + limit, np.broadcast_to(present, self.count))

    # TransactionHeader

    @cached_property
    def is_transactional(self) -> Mask:
        return self.located.transaction_at > 0

    def transaction(self, make: Callable[[Ints], pa.Array], kind: pa.DataType) -> pa.Array:
        """A column made of where TransactionHeader is, unless there is none anywhere."""
        if not self.is_transactional.any():
            return pa.nulls(self.count, kind)
        return make(self.place(self.located.transaction_at))

    @cached_property
    def transaction_flags(self) -> Ints:
        return self.buffer.u32(self.place(self.located.transaction_at))

    def transaction_identifier(self, _: Ints) -> pa.Array:
        numbers = (self.transaction_flags >> at.ID_SHIFT & at.ID_MASK).astype("<u4").view(np.uint8).reshape(-1, 4)
        return nulled(joined(np.hstack([self.header["source"], numbers])), self.is_transactional)

    def sequence_identifier(self, place: Ints) -> pa.Array:
        # The highest bit is the sign: Spark has no unsigned numbers.
        return self.some_numbers(self.buffer.u32(place + 8) << 32 | self.buffer.u32(place + 4), self.is_transactional)

    def transaction_flag(self, bit: int) -> pa.Array:
        return self.transaction(
            lambda _: self.some_numbers(self.transaction_flags & bit != 0, self.is_transactional), BOOLEAN
        )

    def sequence_number(self, offset: int) -> pa.Array:
        return self.transaction(
            lambda place: self.some_numbers(self.buffer.u32(place + offset), self.is_transactional), BIGINT
        )

    # SecurityHeader

    def security_data(self, index: int) -> pa.Array:
        """An item of SecurityData; they stand in the order of their sizes, each padded to 4 bytes."""
        sizes = self.located.security_sizes
        size = sizes[index]
        present = size > 0
        if not present.any():
            return pa.nulls(self.count, BINARY)
        position = self.located.security_at + at.SECURITY_HEADER_SIZE
        for before in sizes[:index]:
            position = position + (before + 3 & ~3)
        return nulled(self.buffer.slices(self.place(position), size), present)

    @cached_property
    def authentication_level(self) -> Ints:
        return (self.located.security_flags & at.AS_MASK) >> at.AS_SHIFT

    # MessagePropertiesHeader

    def label(self) -> pa.Array:
        sizes = 2 * np.maximum(self.located.label_length - 1, 0)
        data, offsets = parts(self.buffer.slices(self.place(self.located.label_at), sizes))
        return utf8(np.frombuffer(data, np.uint16), offsets // 2)

    @cached_property
    def extension_at(self) -> Ints:
        return self.located.label_at + 2 * self.located.label_length

    def extension(self) -> pa.Array:
        present = self.located.extension_size > 0
        if not present.any():
            return pa.nulls(self.count, BINARY)
        return nulled(self.buffer.slices(self.place(self.extension_at), self.located.extension_size), present)

    @cached_property
    def body_at(self) -> Ints:
        return self.place(self.extension_at + self.located.extension_size)

    def body(self) -> pa.Array:
        return self.buffer.slices(self.body_at, self.located.body_size)

    def body_text(self) -> pa.Array:
        types = lean(self.properties["body_type"])
        found = np.isin(types, list(TEXT_BODIES))
        if not found.any():
            return pa.nulls(self.count, STRING)
        body_size = np.broadcast_to(self.located.body_size, self.count)
        is_wide = np.broadcast_to(found & (types != VT_LPSTR), self.count)
        found = found & (~is_wide | (body_size % 2 == 0))
        wide, wide_rows = self._wide_text(np.flatnonzero(is_wide & found), body_size)
        narrow_rows = np.flatnonzero(found & ~is_wide)
        data, offsets = parts(self.buffer.slices(self.body_at[narrow_rows], body_size[narrow_rows]))
        narrow = utf8(np.frombuffer(data, np.uint8).astype(np.uint16), offsets)
        which = np.full(self.count, -1, np.int64)
        which[np.concatenate([wide_rows, narrow_rows])] = np.arange(len(wide_rows) + len(narrow_rows))
        return pa.concat_arrays([wide, narrow]).take(pa.array(which, mask=which < 0))

    def _wide_text(self, rows: Ints, body_size: Ints) -> tuple[pa.Array, Ints]:
        """UTF-16 bodies, without those that are none."""
        while True:
            data, offsets = parts(self.buffer.slices(self.body_at[rows], body_size[rows]))
            units, offsets = np.frombuffer(data, np.uint16), offsets // 2
            lone = lone_surrogates(units, offsets)
            if lone is None or not lone.any():
                return utf8(units, offsets), rows
            broken = np.searchsorted(offsets, np.flatnonzero(lone), side="right") - 1
            rows = np.delete(rows, np.unique(broken))

    def is_set(self, bit: int) -> Ints:
        return np.asarray(self.flags & bit != 0, np.int64)


def _any(matrix: Octets) -> Mask:
    """Which rows have a bit that is set."""
    if not matrix.any():
        return np.zeros(len(matrix), np.bool_)
    return np.asarray(matrix.any(axis=1))


def _connector(common: _Common) -> pa.Array:
    position = common.located.connector_at
    if not position.any():
        return pa.nulls(common.count, STRING)
    found = common.buffer.block(common.place(position), 16)
    return some(guid_text, found, (position > 0) & _any(found))


def _destination_qm(common: _Common) -> pa.Array:
    found = np.ascontiguousarray(common.header["address"])
    return some(guid_text, found, _any(found))


def _priority(common: _Common) -> pa.Array:
    return common.ints(np.where(common.flags & at.TH, 0, lean(common.header["base_flags"]) & at.PRIORITY_MASK))


_MAKERS: Final[dict[str, Callable[[_Common], pa.Array]]] = {
    "msg_id": lambda c: joined(c.identifiers),
    "msg_id_text": lambda c: identifier_text(c.identifiers),
    "correlation_id": lambda c: some(joined, *c.correlations),
    "correlation_text": lambda c: some(identifier_text, *c.correlations),
    "class": lambda c: c.ints(c.message_class),
    "class_name": _Common.class_name,
    "app_specific": lambda c: c.bigints(c.properties["application_tag"]),
    "label": _Common.label,
    "sent_time": lambda c: _times(c.header["sent_time"].astype(np.int64)),
    "time_to_reach_queue": lambda c: c.bigints(c.header["time_to_reach_queue"]),
    "time_to_be_received": lambda c: c.bigints(c.header["time_to_be_received"]),
    "expires_at": _Common.expires_at,
    "priority": _priority,
    "delivery": lambda c: c.ints(c.flags >> at.DM_SHIFT & 1),
    "acknowledge": lambda c: c.ints(c.properties["flags"] & 0xF),
    "journal": lambda c: c.ints(DEADLETTER * c.is_set(at.JN) + JOURNAL * c.is_set(at.JP)),
    "trace": lambda c: c.ints(lean(c.header["base_flags"]) & at.TR != 0),
    "hop_count": lambda c: c.ints(c.flags & at.RC_MASK),
    "version": lambda c: c.ints(c.header["version"]),
    "dest_format_name": lambda c: c.name(c.located.destination),
    "resp_format_name": lambda c: c.name(c.located.response),
    "admin_format_name": lambda c: c.name(c.located.administration),
    "src_machine_id": lambda c: guid_text(c.header["source"]),
    "dest_qm_id": _destination_qm,
    "connector_type": _connector,
    "xact_id": lambda c: c.transaction(c.transaction_identifier, BINARY),
    "first_in_xact": lambda c: c.transaction_flag(at.FM),
    "last_in_xact": lambda c: c.transaction_flag(at.LM),
    "tx_seq_id": lambda c: c.transaction(c.sequence_identifier, BIGINT),
    "tx_seq_no": lambda c: c.sequence_number(12),
    "tx_prev_seq_no": lambda c: c.sequence_number(16),
    "sender_id": lambda c: c.security_data(0),
    "symm_key": lambda c: c.security_data(1),
    "signature": lambda c: c.security_data(2),
    "sender_cert": lambda c: c.security_data(3),
    "sender_id_type": lambda c: c.ints(c.located.security_flags & at.ST_MASK),
    "authenticated": lambda c: c.ints(c.authentication_level > 0),
    "auth_level": lambda c: c.ints(c.authentication_level),
    "priv_level": lambda c: c.ints(c.properties["privacy_level"]),
    "hash_alg": lambda c: c.bigints(c.properties["hash_algorithm"]),
    "encryption_alg": lambda c: c.bigints(c.properties["encryption_algorithm"]),
    "body_type": lambda c: c.bigints(c.properties["body_type"]),
    "body_size": lambda c: c.bigints(c.located.body_size),
    "body": _Common.body,
    "body_text": _Common.body_text,
    "extension": _Common.extension,
}
