"""Packets to Arrow batches, a whole batch at a time.

Fixed fields of all packets are read from their common buffer with one numpy operation per field.
Arrow copies the variable ones. A column in which all rows have the same value is a scalar until the
end. Only the columns of the schema are made. Packets that are not common go through `rows`, one by
one. A malformed packet becomes a row with `packet` and `packet_error`, and never fails the batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lanner.model.enums import INFINITE, AuthenticationLevel, SenderIdentifierType
from lanner.security.verified_senders import ANONYMOUS_SID
from lanner.spark.columnar.expansion import Expansion
from lanner.spark.columnar.packet_source import Facts, PacketSource, Place
from lanner.spark.columnar.packets import Located, Packets, locate
from lanner.spark.columnar.rows import CLASS_NAMES, DEADLETTER, JOURNAL, MICROSECONDS, OUTGOING, read_row
from lanner.spark.columnar.schema import BIGINT, BINARY, BOOLEAN, INT, STRING, TIMESTAMP, RowSchema
from lanner.spark.columnar.vectors import (
    NARROW,
    Ints,
    Mask,
    Octets,
    Scratch,
    Values,
    are_alike,
    guid_text,
    identifier_text,
    joined,
    lean,
    lone_surrogates,
    nulled,
    numbers,
    parts,
    some,
    utf8,
    whole,
)
from lanner.wire import layout as at
from lanner.wire.body_types import TEXT_BODIES, VT_LPSTR

__all__ = ["MAKING", "batch_of", "batches", "decode", "decode_packets"]

# Held while a batch is made. Every step needs the interpreter, and two concurrent streams spend a
# third of their time on handing it over. Sending a batch needs neither this lock nor the
# interpreter.
MAKING: Final = threading.Lock()


def batches(source: PacketSource, schema: RowSchema) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a source as Arrow batches, independent of its packets' memory."""
    expansion = Expansion()
    for packets, facts in source.packet_batches(Scratch()):
        with MAKING:
            columns = _columns(packets, facts, source.place, schema)
            if schema.is_compact:
                batch = batch_of(columns, len(packets), schema)
            else:
                batch = expansion.batch(columns, len(packets), schema.arrow)
        yield batch


def decode_packets(
    packets: Sequence[bytes], facts: Facts | None = None, place: Place | None = None, schema: RowSchema | None = None
) -> pa.RecordBatch:
    """Return the batch of packets that are separate objects."""
    if facts is None:
        facts = Facts.of((0, 0, 0, 0, 0) for _ in packets)
    return decode(Packets.of(packets), facts, place or Place(), schema or RowSchema())


def decode(
    packets: Packets, facts: Facts, place: Place, schema: RowSchema, read_time: int | None = None
) -> pa.RecordBatch:
    """Return one batch, of at most 2 GiB of packets.

    `read_time` is in microseconds since 1970; the default is the current time.
    """
    return batch_of(_columns(packets, facts, place, schema, read_time), len(packets), schema)


def _columns(
    packets: Packets, facts: Facts, place: Place, schema: RowSchema, read_time: int | None = None
) -> list[Values]:
    outside = _outside(packets, facts, place, schema, time.time_ns() // 1000 if read_time is None else read_time)
    if outside.keys() >= set(schema.names):
        # No column needs the content of the packets.
        return [outside[name]() for name in schema.names]
    located, texts = locate(packets)
    common = _Common(packets, located, texts, place)
    odd = np.delete(np.arange(len(packets)), located.rows) if common.count < len(packets) else located.rows[:0]
    rows = [read_row(packets[index], place.queue_kind, place.keeper) for index in odd.tolist()]
    order = pa.array(np.argsort(np.concatenate([located.rows, odd]), kind="stable")) if rows else None
    found = []
    for column in schema.columns:
        if column.name in outside:
            found.append(outside[column.name]())
            continue
        make = _MAKERS.get(column.name)
        values = pa.scalar(None, column.type) if make is None or not common.count else make(common)
        if order is not None:
            odd_values = _array([row.get(column.name) for row in rows], column.type)
            values = pa.concat_arrays([whole(values, common.count), odd_values]).take(order)
        found.append(values)
    return found


def _outside(
    packets: Packets, facts: Facts, place: Place, schema: RowSchema, read_time: int
) -> dict[str, Callable[[], Values]]:
    """Return the makers of the columns that do not come from a packet."""
    columns: dict[str, Callable[[], Values]] = {
        "qm_id": lambda: pa.scalar(place.qm_id, STRING),
        "qm_name": lambda: pa.scalar(place.qm_name, STRING),
        "queue": lambda: pa.scalar(place.queue, STRING),
        "queue_kind": lambda: pa.scalar(place.queue_kind, STRING),
        "subqueue": lambda: pa.scalar(place.subqueue, STRING),
        "seq": lambda: pa.array(facts.seq, BIGINT),
        "lookup_id": lambda: pa.array(facts.lookup_id, BIGINT),
        "arrived_time": lambda: _times(facts.arrived),
        "read_time": lambda: pa.scalar(read_time, TIMESTAMP),
        "abort_count": lambda: numbers(facts.abort_count, INT),
        "move_count": lambda: numbers(facts.move_count, INT),
    }
    if schema.has_packets:
        columns["packet"] = packets.whole
    return columns


@lru_cache(256)  # cached, because most values are the same in all batches
def _one_run(value: pa.Scalar, count: int, kind: pa.DataType) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), whole(value, 1), kind)


def batch_of(columns: Iterable[Values], count: int, schema: RowSchema) -> pa.RecordBatch:
    """Return a batch with columns in the form of the schema: plain, or run-end encoded."""
    arrays = []
    for values, kind in zip(columns, schema.arrow.types, strict=True):
        if not pa.types.is_run_end_encoded(kind):
            arrays.append(whole(values, count))
        elif isinstance(values, pa.Scalar) and count:
            arrays.append(_one_run(values, count, kind))
        else:
            arrays.append(pc.run_end_encode(whole(values, count)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    if kind == TIMESTAMP:
        return pa.array(values, BIGINT).view(TIMESTAMP)
    return pa.array(values, kind)


def _times(seconds: npt.NDArray[np.generic]) -> Values:
    return numbers(lean(seconds) * MICROSECONDS, TIMESTAMP)


class _Common:
    """The common packets of a batch, and values that several columns need.

    Numbers may be lean (`vectors.lean`).
    """

    def __init__(self, packets: Packets, located: Located, texts: list[str], place: Place) -> None:
        self.buffer = packets.buffer
        self.located = located
        self.header = located.header
        self.properties = located.properties
        self.flags = located.flags
        self.count = len(located.rows)
        self.is_outgoing = place.queue_kind == OUTGOING
        self._keeper = place.keeper
        self._texts = texts

    # Pieces

    def place(self, position: Ints) -> Ints:
        """Return the absolute positions for an offset within each packet."""
        return self.located.starts + position

    def full(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Return an array with one value for each packet."""
        return np.repeat(values, self.count) if len(values) == 1 else values

    def some_numbers(self, values: Ints | Mask, present: Mask) -> pa.Array:
        return pa.array(self.full(values), mask=self.full(~present))

    @staticmethod
    def text(texts: Sequence[str | None], which: Ints) -> Values:
        """Return one of some texts for each packet; an index below 0 means null."""
        if len(which) != 1:
            return pa.array(texts, STRING).take(pa.array(which, mask=which < 0))
        return pa.scalar(None if which[0] < 0 else texts[which[0]], STRING)

    def name(self, which: Ints) -> Values:
        return self.text(self._texts, which)

    def pieces(self, position: Ints, size: Ints, present: Mask) -> Values:
        """Return bytes of the packets, with nulls where `present` is false."""
        if len(size) == 1 and size[0] <= NARROW:
            found = self.buffer.block(position, int(size[0]))
            return pa.scalar(found[0].tobytes(), BINARY) if are_alike(found) else joined(found)
        return nulled(self.buffer.slices(position, size), present)

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

    def class_name(self) -> Values:
        numbers, which = np.unique(self.message_class, return_inverse=True)
        return self.text([CLASS_NAMES.get(number) for number in numbers.tolist()], which)

    # Times

    def expires_at(self) -> Values:
        limit = lean(self.header["time_to_be_received"])
        if self.is_outgoing:
            limit = np.minimum(limit, lean(self.header["time_to_reach_queue"]))
        present = limit != INFINITE
        if not present.any():
            return pa.scalar(None, TIMESTAMP)
        seconds = self.header["sent_time"] + limit
        return pa.array(seconds * MICROSECONDS, TIMESTAMP, mask=np.broadcast_to(~present, self.count))

    # TransactionHeader

    @cached_property
    def is_transactional(self) -> Mask:
        return self.located.transaction_at > 0

    def transaction(self, make: Callable[[Ints], pa.Array], kind: pa.DataType) -> Values:
        """Return a column made from TransactionHeader positions, or null if there is none."""
        if not self.is_transactional.any():
            return pa.scalar(None, kind)
        return make(self.place(self.located.transaction_at))

    @cached_property
    def transaction_flags(self) -> Ints:
        return self.buffer.u32(self.place(self.located.transaction_at))

    def transaction_identifier(self, _: Ints) -> Values:
        numbers = (self.transaction_flags >> at.ID_SHIFT & at.ID_MASK).astype("<u4").view(np.uint8).reshape(-1, 4)
        return nulled(joined(np.hstack([self.header["source"], numbers])), self.is_transactional)

    def sequence_identifier(self, place: Ints) -> Values:
        # The highest bit becomes the sign, because Spark has no unsigned numbers.
        low, high = (self.buffer.u32(place + at.TX_SEQUENCE_ID_OFFSET + part) for part in (0, 4))
        return self.some_numbers(high << 32 | low, self.is_transactional)

    def transaction_flag(self, bit: int) -> Values:
        return self.transaction(
            lambda _: self.some_numbers(self.transaction_flags & bit != 0, self.is_transactional), BOOLEAN
        )

    def sequence_number(self, offset: int) -> Values:
        return self.transaction(
            lambda place: self.some_numbers(self.buffer.u32(place + offset), self.is_transactional), BIGINT
        )

    # SecurityHeader

    def security_data(self, index: int) -> Values:
        """Return an item of SecurityData: items are in the order of sizes, padded to 4 bytes."""
        sizes = self.located.security_sizes
        size = sizes[index]
        present = size > 0
        if not present.any():
            return pa.scalar(None, BINARY)
        position = self.located.security_at + at.SECURITY_HEADER_SIZE
        for before in sizes[:index]:
            position = position + (before + 3 & ~3)
        return self.pieces(self.place(position), size, present)

    @cached_property
    def authentication_level(self) -> Ints:
        return (self.located.security_flags & at.AS_MASK) >> at.AS_SHIFT

    def sender_verified(self) -> Values:
        """Return the result of `security.verified_senders` for all packets."""
        kind = self.located.security_flags & at.ST_MASK
        size = self.located.security_sizes[0]
        is_named = (kind != SenderIdentifierType.NONE) & (size > 0)
        if (is_named & (size == len(ANONYMOUS_SID))).any():
            place = self.place(self.located.security_at + at.SECURITY_HEADER_SIZE)
            found = self.buffer.block(place, len(ANONYMOUS_SID))
            is_anonymous = (found == np.frombuffer(ANONYMOUS_SID, np.uint8)).all(axis=1)
            is_named = is_named & ~(is_anonymous & (size == len(ANONYMOUS_SID)))
        is_signed = self.authentication_level > AuthenticationLevel.SIG10
        if self._keeper is None:
            return self.some_numbers(is_named & is_signed, ~is_named | (self.authentication_level > 0))
        is_from_here = (self.header["source"] == np.frombuffer(self._keeper.bytes_le, np.uint8)).all(axis=1)
        is_user = kind == SenderIdentifierType.SID
        return pa.array(self.full(is_named & (is_signed | (is_from_here & is_user))), BOOLEAN)

    # MessagePropertiesHeader

    def label(self) -> Values:
        sizes = 2 * np.maximum(self.located.label_length - 1, 0)
        if not sizes.any():
            return pa.scalar("", STRING)
        data, offsets = parts(self.buffer.slices(self.place(self.located.label_at), sizes))
        return utf8(np.frombuffer(data, np.uint16), offsets // 2)

    @cached_property
    def extension_at(self) -> Ints:
        return self.located.label_at + 2 * self.located.label_length

    def extension(self) -> Values:
        present = self.located.extension_size > 0
        if not present.any():
            return pa.scalar(None, BINARY)
        return self.pieces(self.place(self.extension_at), self.located.extension_size, present)

    @cached_property
    def body_at(self) -> Ints:
        return self.place(self.extension_at + self.located.extension_size)

    def body(self) -> Values:
        return self.buffer.slices(self.body_at, self.located.body_size)

    def body_text(self) -> Values:
        types = lean(self.properties["body_type"])
        found = np.isin(types, list(TEXT_BODIES))
        if not found.any():
            return pa.scalar(None, STRING)
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
        """Return the valid UTF-16 bodies as text, and their rows."""
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
    """Return which rows have a bit that is set."""
    if not matrix.any():
        return np.zeros(len(matrix), np.bool_)
    return np.asarray(matrix.any(axis=1))


def _connector(common: _Common) -> Values:
    position = common.located.connector_at
    if not position.any():
        return pa.scalar(None, STRING)
    found = common.buffer.block(common.place(position), 16)
    return some(guid_text, found, (position > 0) & _any(found))


def _destination_qm(common: _Common) -> Values:
    found = np.ascontiguousarray(common.header["address"])
    return some(guid_text, found, _any(found))


def _priority(common: _Common) -> Values:
    return numbers(np.where(common.flags & at.TH, 0, lean(common.header["base_flags"]) & at.PRIORITY_MASK), INT)


_MAKERS: Final[dict[str, Callable[[_Common], Values]]] = {
    "msg_id": lambda c: joined(c.identifiers),
    "msg_id_text": lambda c: identifier_text(c.identifiers),
    "correlation_id": lambda c: some(joined, *c.correlations),
    "correlation_text": lambda c: some(identifier_text, *c.correlations),
    "class": lambda c: numbers(c.message_class, INT),
    "class_name": _Common.class_name,
    "app_specific": lambda c: numbers(c.properties["application_tag"], BIGINT),
    "label": _Common.label,
    "sent_time": lambda c: _times(c.header["sent_time"]),
    "time_to_reach_queue": lambda c: numbers(c.header["time_to_reach_queue"], BIGINT),
    "time_to_be_received": lambda c: numbers(c.header["time_to_be_received"], BIGINT),
    "expires_at": _Common.expires_at,
    "priority": _priority,
    "delivery": lambda c: numbers(c.flags >> at.DM_SHIFT & 1, INT),
    "acknowledge": lambda c: numbers(c.properties["flags"] & at.ACKNOWLEDGE_MASK, INT),
    "journal": lambda c: numbers(DEADLETTER * c.is_set(at.JN) + JOURNAL * c.is_set(at.JP), INT),
    "trace": lambda c: numbers(lean(c.header["base_flags"]) & at.TR != 0, INT),
    "hop_count": lambda c: numbers(c.flags & at.RC_MASK, INT),
    "version": lambda c: numbers(c.header["version"], INT),
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
    "tx_seq_no": lambda c: c.sequence_number(at.TX_SEQUENCE_NUMBER_OFFSET),
    "tx_prev_seq_no": lambda c: c.sequence_number(at.PREVIOUS_TX_SEQUENCE_NUMBER_OFFSET),
    "sender_id": lambda c: c.security_data(0),
    "symm_key": lambda c: c.security_data(1),
    "signature": lambda c: c.security_data(2),
    "sender_cert": lambda c: c.security_data(3),
    "sender_id_type": lambda c: numbers(c.located.security_flags & at.ST_MASK, INT),
    "sender_verified": _Common.sender_verified,
    "authenticated": lambda c: numbers(c.authentication_level > 0, INT),
    "auth_level": lambda c: numbers(c.authentication_level, INT),
    "priv_level": lambda c: numbers(c.properties["privacy_level"], INT),
    "hash_alg": lambda c: numbers(c.properties["hash_algorithm"], BIGINT),
    "encryption_alg": lambda c: numbers(c.properties["encryption_algorithm"], BIGINT),
    "body_type": lambda c: numbers(c.properties["body_type"], BIGINT),
    "body_size": lambda c: numbers(c.located.body_size, BIGINT),
    "body": _Common.body,
    "body_text": _Common.body_text,
    "extension": _Common.extension,
}
