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
from lanner.spark.schema import BIGINT, BINARY, INT, STRING, TIMESTAMP, RowSchema
from lanner.spark.vectors import (
    Ints,
    Mask,
    Octets,
    guid_text,
    identifier_text,
    joined,
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
    odd = np.setdiff1d(np.arange(len(packets)), located.rows, assume_unique=True)
    rows = [read_row(packets[index], place.queue_kind) for index in odd.tolist()]
    order = pa.array(np.argsort(np.concatenate([located.rows, odd]), kind="stable")) if rows else None
    arrays = []
    for column in schema.columns:
        if column.name in outside:
            arrays.append(outside[column.name]())
            continue
        make = _MAKERS.get(column.name)
        array = pa.nulls(common.count, column.type) if make is None else make(common)
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
    """The common packets of a batch, and what several columns need of them."""

    def __init__(self, packets: Packets, located: Located, texts: list[str], place: Place) -> None:
        self.buffer = packets.buffer
        self.located = located
        self.header = located.header
        self.count = len(located.rows)
        self.is_outgoing = place.queue_kind == OUTGOING
        self._texts = pa.array(texts, STRING)

    # Pieces

    @cached_property
    def flags(self) -> Ints:
        return self.header["flags"].astype(np.int64)

    def number(self, field: str) -> pa.Array:
        return pa.array(self.header[field].astype(np.int64))

    def property(self, offset: int, kind: pa.DataType = BIGINT) -> pa.Array:
        """A 32-bit number of MessagePropertiesHeader."""
        return pa.array(self.buffer.u32(self.located.properties + offset)).cast(kind, safe=False)

    def name(self, which: Ints) -> pa.Array:
        return self._texts.take(pa.array(which, mask=which < 0))

    def ints(self, values: npt.NDArray[np.generic], present: Mask | None = None) -> pa.Array:
        return pa.array(values.astype(np.int32), INT, mask=None if present is None else ~present)

    # Identifiers

    @cached_property
    def identifiers(self) -> Octets:
        ordinals = np.ascontiguousarray(self.header["ordinal"]).view(np.uint8).reshape(-1, 4)
        return np.hstack([self.header["source"], ordinals])

    @cached_property
    def correlations(self) -> tuple[Octets, Mask]:
        found = self.buffer.block(self.located.properties + 4, 20)
        return found, _any(found)

    @cached_property
    def message_class(self) -> Ints:
        return self.buffer.u16(self.located.properties + 2)

    def class_name(self) -> pa.Array:
        numbers, which = np.unique(self.message_class, return_inverse=True)
        return pa.array([CLASS_NAMES.get(number) for number in numbers.tolist()], STRING).take(pa.array(which))

    # Times

    def expires_at(self) -> pa.Array:
        limit = self.header["time_to_be_received"].astype(np.int64)
        if self.is_outgoing:
            limit = np.minimum(limit, self.header["time_to_reach_queue"])
        return _times(self.header["sent_time"] + limit, limit != INFINITE)

    # TransactionHeader

    @cached_property
    def is_transactional(self) -> Mask:
        return self.located.transaction > 0

    @cached_property
    def transaction_flags(self) -> Ints:
        return self.buffer.u32(self.located.transaction)

    def transaction_identifier(self) -> pa.Array:
        numbers = (self.transaction_flags >> at.ID_SHIFT & at.ID_MASK).astype("<u4").view(np.uint8).reshape(-1, 4)
        return nulled(joined(np.hstack([self.header["source"], numbers])), self.is_transactional)

    def transaction_flag(self, bit: int) -> pa.Array:
        return pa.array(self.transaction_flags & bit != 0, mask=~self.is_transactional)

    def sequence_identifier(self) -> pa.Array:
        place = self.located.transaction
        # The highest bit is the sign: Spark has no unsigned numbers.
        return pa.array(self.buffer.u32(place + 8) << 32 | self.buffer.u32(place + 4), mask=~self.is_transactional)

    def sequence_number(self, offset: int) -> pa.Array:
        return pa.array(self.buffer.u32(self.located.transaction + offset), mask=~self.is_transactional)

    # SecurityHeader

    @cached_property
    def security_flags(self) -> Ints:
        return np.where(self.located.security > 0, self.buffer.u16(self.located.security), 0)

    def security_data(self, index: int) -> pa.Array:
        """An item of SecurityData; they stand in the order of their sizes, each padded to 4 bytes."""
        sizes = self.located.sizes
        size = sizes[:, index]
        present = size > 0
        if not present.any():
            return pa.nulls(self.count, BINARY)
        before = (sizes[:, :index] + 3 & ~3).sum(axis=1)
        place = self.located.security + at.SECURITY_HEADER_SIZE + before
        return nulled(self.buffer.slices(np.where(present, place, self.located.starts), size), present)

    @cached_property
    def authentication_level(self) -> Ints:
        return (self.security_flags & at.AS_MASK) >> at.AS_SHIFT

    # MessagePropertiesHeader

    @cached_property
    def label_at(self) -> Ints:
        return self.located.properties + at.PROPERTIES_HEADER_SIZE

    def label(self) -> pa.Array:
        sizes = 2 * np.maximum(self.located.label_length - 1, 0)
        data, offsets = parts(self.buffer.slices(self.label_at, sizes))
        return utf8(np.frombuffer(data, np.uint16), offsets // 2)

    @cached_property
    def extension_at(self) -> Ints:
        return self.label_at + 2 * self.located.label_length

    def extension(self) -> pa.Array:
        present = self.located.extension_size > 0
        if not present.any():
            return pa.nulls(self.count, BINARY)
        return nulled(self.buffer.slices(self.extension_at, self.located.extension_size), present)

    @cached_property
    def body_at(self) -> Ints:
        return self.extension_at + self.located.extension_size

    def body(self) -> pa.Array:
        return self.buffer.slices(self.body_at, self.located.body_size)

    def body_text(self) -> pa.Array:
        types = self.buffer.u32(self.located.properties + 24)
        found = np.isin(types, list(TEXT_BODIES))
        if not found.any():
            return pa.nulls(self.count, STRING)
        is_wide = found & (types != VT_LPSTR)
        found &= ~is_wide | (self.located.body_size % 2 == 0)
        is_wide &= found
        wide, wide_rows = self._wide_text(np.flatnonzero(is_wide))
        narrow_rows = np.flatnonzero(found & ~is_wide)
        data, offsets = parts(self.buffer.slices(self.body_at[narrow_rows], self.located.body_size[narrow_rows]))
        narrow = utf8(np.frombuffer(data, np.uint8).astype(np.uint16), offsets)
        which = np.full(self.count, -1, np.int64)
        which[np.concatenate([wide_rows, narrow_rows])] = np.arange(len(wide_rows) + len(narrow_rows))
        return pa.concat_arrays([wide, narrow]).take(pa.array(which, mask=which < 0))

    def _wide_text(self, rows: Ints) -> tuple[pa.Array, Ints]:
        """UTF-16 bodies, without those that are none."""
        while True:
            data, offsets = parts(self.buffer.slices(self.body_at[rows], self.located.body_size[rows]))
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
    return np.asarray(matrix.any(axis=1))


def _connector(common: _Common) -> pa.Array:
    place = common.located.connector
    if not place.any():
        return pa.nulls(common.count, STRING)
    found = common.buffer.block(place, 16)
    return some(guid_text, found, (place > 0) & _any(found))


def _authenticated(common: _Common) -> pa.Array:
    return common.ints(common.authentication_level > 0)


def _priority(common: _Common) -> pa.Array:
    return common.ints(np.where(common.flags & at.TH, 0, common.header["base_flags"] & at.PRIORITY_MASK))


_MAKERS: Final[dict[str, Callable[[_Common], pa.Array]]] = {
    "msg_id": lambda c: joined(c.identifiers),
    "msg_id_text": lambda c: identifier_text(c.identifiers),
    "correlation_id": lambda c: some(joined, *c.correlations),
    "correlation_text": lambda c: some(identifier_text, *c.correlations),
    "class": lambda c: c.ints(c.message_class),
    "class_name": _Common.class_name,
    "app_specific": lambda c: c.property(28),
    "label": _Common.label,
    "sent_time": lambda c: _times(c.header["sent_time"].astype(np.int64)),
    "time_to_reach_queue": lambda c: c.number("time_to_reach_queue"),
    "time_to_be_received": lambda c: c.number("time_to_be_received"),
    "expires_at": _Common.expires_at,
    "priority": _priority,
    "delivery": lambda c: c.ints(c.flags >> at.DM_SHIFT & 1),
    "acknowledge": lambda c: c.ints(c.buffer.u8(c.located.properties) & 0xF),
    "journal": lambda c: c.ints(DEADLETTER * c.is_set(at.JN) + JOURNAL * c.is_set(at.JP)),
    "trace": lambda c: c.ints(c.header["base_flags"] & at.TR != 0),
    "hop_count": lambda c: c.ints(c.flags & at.RC_MASK),
    "version": lambda c: c.ints(c.header["version"]),
    "dest_format_name": lambda c: c.name(c.located.destination),
    "resp_format_name": lambda c: c.name(c.located.response),
    "admin_format_name": lambda c: c.name(c.located.administration),
    "src_machine_id": lambda c: guid_text(c.header["source"]),
    "dest_qm_id": lambda c: some(guid_text, c.header["address"], _any(c.header["address"])),
    "connector_type": _connector,
    "xact_id": _Common.transaction_identifier,
    "first_in_xact": lambda c: c.transaction_flag(at.FM),
    "last_in_xact": lambda c: c.transaction_flag(at.LM),
    "tx_seq_id": _Common.sequence_identifier,
    "tx_seq_no": lambda c: c.sequence_number(12),
    "tx_prev_seq_no": lambda c: c.sequence_number(16),
    "sender_id": lambda c: c.security_data(0),
    "symm_key": lambda c: c.security_data(1),
    "signature": lambda c: c.security_data(2),
    "sender_cert": lambda c: c.security_data(3),
    "sender_id_type": lambda c: c.ints(c.security_flags & at.ST_MASK),
    "authenticated": _authenticated,
    "auth_level": lambda c: c.ints(c.authentication_level),
    "priv_level": lambda c: c.property(40, INT),
    "hash_alg": lambda c: c.property(44),
    "encryption_alg": lambda c: c.property(48),
    "body_type": lambda c: c.property(24),
    "body_size": lambda c: pa.array(c.located.body_size),
    "body": _Common.body,
    "body_text": _Common.body_text,
    "extension": _Common.extension,
}
