"""The positions of the headers in many packets: `wire.layout.locate` for a whole batch.

Only common packets are located here. Packets with rare headers (tracing, SOAP, SRMP, several
destinations, a provider's name, headers after the packet) and malformed packets are left to
`wire.Message`, which reads them one by one and words the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lanner.model.enums import SenderIdentifierType
from lanner.model.errors import RemoteProtocolError
from lanner.spark.columnar.rows import clean
from lanner.spark.columnar.vectors import SLACK, Buffer, Ints, Mask, Octets, Room, are_alike, fresh, lean, parts
from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.format_name import PublicFormatName
from lanner.wire.reader import guid_from_bytes
from lanner.wire.security_header import MAX_SENDER_CERT_SIZE

# BaseHeader and the fixed part of UserHeader (MS-MQMQ 2.2.19.1, 2.2.19.2).
HEADER: Final = np.dtype(
    [
        ("version", "u1"),
        ("reserved", "u1"),
        ("base_flags", "<u2"),
        ("signature", "<u4"),
        ("packet_size", "<u4"),
        ("time_to_reach_queue", "<u4"),
        ("source", "u1", 16),
        ("address", "u1", 16),
        ("time_to_be_received", "<u4"),
        ("sent_time", "<u4"),
        ("ordinal", "<u4"),
        ("flags", "<u4"),
    ]
)
# The fixed parts of SecurityHeader and MessagePropertiesHeader (MS-MQMQ 2.2.20.6, 2.2.19.3).
_SECURITY: Final = np.dtype(
    [
        ("flags", "<u2"),
        ("sender", "<u2"),
        ("key", "<u2"),
        ("signature", "<u2"),
        ("certificate", "<u4"),
        ("provider", "<u4"),
    ]
)
_PROPERTIES: Final = np.dtype(
    [
        ("flags", "u1"),
        ("label_length", "u1"),
        ("message_class", "<u2"),
        ("correlation", "u1", 20),
        ("body_type", "<u4"),
        ("application_tag", "<u4"),
        ("body_size", "<u4"),
        ("allocated_size", "<u4"),
        ("privacy_level", "<u4"),
        ("hash_algorithm", "<u4"),
        ("encryption_algorithm", "<u4"),
        ("extension_size", "<u4"),
    ]
)
_NAME_SIZES: Final = np.array(names.NAME_SIZES)
_IS_DESTINATION: Final = np.isin(np.arange(8), list(names.DESTINATION_TYPES))
_IS_ADMINISTRATION: Final = np.isin(np.arange(8), list(names.ADMINISTRATION_TYPES))


class Packets:
    """Packets in one buffer, in any order, possibly with gaps."""

    def __init__(self, buffer: Buffer, starts: Ints, sizes: Ints) -> None:
        """Wrap packets in a buffer, which must have SLACK bytes after the last packet."""
        self.buffer = buffer
        self.starts = starts
        self.sizes = sizes

    @classmethod
    def of(cls, packets: Sequence[bytes], room: Room = fresh) -> Packets:
        sizes = np.fromiter(map(len, packets), np.int64, len(packets))
        memory = room(int(sizes.sum()) + SLACK)
        memory[:] = np.frombuffer(b"".join((*packets, bytes(SLACK))), np.uint8)
        return cls(Buffer(memory), np.cumsum(sizes) - sizes, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> bytes:
        start = self.starts[index]
        return self.buffer.octets[start : start + self.sizes[index]].tobytes()

    def taken(self, which: Mask | slice) -> Packets:
        return Packets(self.buffer, self.starts[which], self.sizes[which])

    def whole(self) -> pa.BinaryArray:
        """Return the packets as an array."""
        return self.buffer.slices(self.starts, self.sizes)


@dataclass(slots=True)
class Located:
    """Offsets and sizes in the common packets, whose indexes are `rows`.

    An array of one element stands for all rows, if they have the same value: see `vectors.lean`.
    """

    # For each packet
    rows: Ints
    starts: Ints
    header: npt.NDArray[np.void]
    properties: npt.NDArray[np.void]
    # Within a packet; 0 if absent
    connector_at: Ints
    transaction_at: Ints
    security_at: Ints
    label_at: Ints
    # Sizes
    security_sizes: Sequence[Ints]  # SecurityID, EncryptionKey, Signature, SenderCert
    label_length: Ints  # UTF-16 units, with the terminator
    extension_size: Ints
    body_size: Ints
    # Names: index into `texts`; -1: none
    destination: Ints
    administration: Ints
    response: Ints
    # Numbers
    flags: Ints
    security_flags: Ints

    def take(self, keep: Ints) -> Located:
        def taken(values: Ints) -> Ints:
            return values if len(values) == 1 else values[keep]

        return Located(
            self.rows[keep],
            self.starts[keep],
            self.header[keep],
            self.properties[keep],
            taken(self.connector_at),
            taken(self.transaction_at),
            taken(self.security_at),
            taken(self.label_at),
            [taken(sizes) for sizes in self.security_sizes],
            taken(self.label_length),
            taken(self.extension_size),
            taken(self.body_size),
            taken(self.destination),
            taken(self.administration),
            taken(self.response),
            taken(self.flags),
            taken(self.security_flags),
        )


def locate(packets: Packets) -> tuple[Located, list[str]]:
    """Return the common packets, and the texts of the names in them."""
    buffer, starts, sizes = packets.buffer, packets.starts, packets.sizes
    header = buffer.block(starts, at.DESTINATION_OFFSET).view(HEADER)[:, 0]
    flags = lean(header["flags"])
    ok = _is_common(header, flags, sizes)

    def place(position: Ints) -> Ints:
        """Return where to read. Packets that are not common are read at their start instead."""
        return starts + (position if ok.all() else np.where(ok, position, 0))

    def has(bit: int) -> Mask:
        return np.asarray(flags & bit != 0)

    def after_name(code: Ints, position: Ints) -> Ints:
        step = _NAME_SIZES[code]
        direct = step < 0
        if not direct.any():
            return np.asarray(position + step)
        count = lean(buffer.u16(place(position)))
        return np.where(direct, position + 2 + count + 3 & ~3, position + step)

    position = np.full(1, at.DESTINATION_OFFSET)
    codes = [flags >> shift & 7 for shift in (at.DQ_SHIFT, at.AQ_SHIFT, at.RQ_SHIFT)]
    name_at = []
    for code in codes:
        name_at.append(position)
        position = after_name(code, position)
        ok &= position <= sizes
    connector, position = np.where(has(at.CQ), position, 0), position + 16 * has(at.CQ)
    ok &= position <= sizes
    transaction = np.where(has(at.TH), position, 0)
    if transaction.any():
        extra = 16 * (lean(buffer.u8(place(position))) & at.CG)
        position = position + np.where(has(at.TH), at.TRANSACTION_HEADER_SIZE + extra, 0)
        ok &= position <= sizes
    security = np.where(has(at.SH), position, 0)
    security_flags = np.zeros(1, np.int64)
    security_sizes = [security_flags] * 4
    if security.any():
        raw = buffer.block(place(security), at.SECURITY_HEADER_SIZE).view(_SECURITY)[:, 0]
        found, is_good = _security(raw)
        ok &= ~has(at.SH) | is_good
        security_flags, *security_sizes = (np.where(has(at.SH), values, 0) for values in found)
        for size in security_sizes:
            position = position + (size + 3 & ~3)
        position = position + np.where(has(at.SH), at.SECURITY_HEADER_SIZE, 0)
        ok &= position <= sizes
    label_at = position + at.PROPERTIES_HEADER_SIZE
    ok &= label_at <= sizes
    properties = buffer.block(place(position), at.PROPERTIES_HEADER_SIZE).view(_PROPERTIES)[:, 0]
    label_length, extension_size, body_size = (
        lean(properties[name]) for name in ("label_length", "extension_size", "body_size")
    )
    position = label_at + 2 * label_length + extension_size + body_size + 3 & ~3
    ok &= (position <= sizes) & (sizes - position < at.EXTENSION_HEADER_SIZE) & (label_length <= at.MAX_LABEL_LENGTH)
    ok &= _has_good_label(buffer, place(label_at), label_length if ok.all() else np.where(ok, label_length, 0))

    which, texts = _names(buffer, header, codes, [place(position) for position in name_at], ok)
    located = Located(
        np.arange(len(starts)),
        starts,
        header,
        properties,
        connector,
        transaction,
        security,
        label_at,
        security_sizes,
        label_length,
        extension_size,
        body_size,
        which[0],
        which[1],
        which[2],
        flags,
        security_flags,
    )
    return (located if ok.all() else located.take(np.flatnonzero(ok))), texts


def _is_common(header: npt.NDArray[np.void], flags: Ints, sizes: Ints) -> Mask:
    """Check the fixed part: `layout.check_flags`, and nothing rare."""
    is_recoverable = flags >> at.DM_SHIFT & 3 == 1
    common: Mask = (
        (sizes >= at.MINIMUM_SIZE)
        & (sizes <= at.MAX_PACKET_SIZE)
        & (header["version"] == at.VERSION_NUMBER)
        & (header["signature"] == at.SIGNATURE)
        & (header["packet_size"] == sizes)
        & (header["base_flags"] & (at.IN | at.BASE_SH | at.DH | at.TR) == 0)
        & (flags & (at.MP | at.AH | at.HH | at.MQ) == at.MP)
        & (flags >> at.DM_SHIFT & 3 <= 1)
        & (is_recoverable | (flags & at.TH == 0))
        & _IS_DESTINATION[flags >> at.DQ_SHIFT & 7]
        & _IS_ADMINISTRATION[flags >> at.AQ_SHIFT & 7]
        & (flags >> at.RQ_SHIFT & 7 != names.PRIVATE_QUEUE_ON_ADMIN)
    )
    return common


def _security(header: npt.NDArray[np.void]) -> tuple[list[Ints], Mask]:
    """Return the flags and the four sizes, and whether `security_header.check_sizes` accepts them.

    A provider's name is rare, so it is not accepted here.
    """
    found = [lean(header[name]) for name in ("flags", "sender", "key", "signature", "certificate")]
    flags, sender, key, signature, certificate = found
    kind = flags & at.ST_MASK
    is_good: Mask = (
        (kind <= SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER)
        & ((kind != SenderIdentifierType.NONE) | (sender == 0))
        & ((kind != SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER) | (sender == 16))
        & (certificate <= MAX_SENDER_CERT_SIZE)
        & (sender | key | signature | certificate != 0)
        & (lean(header["provider"]) == 0)
    )
    return found, is_good


def _has_good_label(buffer: Buffer, first: Ints, length: Ints) -> Mask:
    """Return whether each label has exactly one null, at its end."""
    if not length.any():
        return np.ones(1, np.bool_)
    good: Mask = (length == 0) | (buffer.u16(first + 2 * np.maximum(length, 1) - 2) == 0)
    data, offsets = parts(buffer.slices(first, 2 * np.maximum(length - 1, 0)))
    inner = np.frombuffer(data, np.uint16)
    nulls = np.flatnonzero(inner == 0)
    if len(nulls):
        good[np.searchsorted(offsets // 2, nulls, side="right") - 1] = False
    return good


def _names(
    buffer: Buffer, header: npt.NDArray[np.void], codes: list[Ints], places: list[Ints], ok: Mask
) -> tuple[list[Ints], list[str]]:
    """Return the index into `texts` of each destination, administration and response queue.

    Rows with a malformed name are no longer `ok` afterwards.
    """
    texts: list[str] = []
    columns: list[Ints] = []

    def number(raw: bytes, read: Callable[[bytes], str]) -> int:
        try:
            texts.append(read(raw))
        except RemoteProtocolError:
            return -2
        return len(texts) - 1

    def encoded(found: Octets | pa.Array, read: Callable[[bytes], str]) -> Ints:
        if isinstance(found, np.ndarray):
            if are_alike(found):
                return np.array([number(found[0].tobytes(), read)])
            found = _fixed(found)
        dictionary = found.dictionary_encode()
        numbers = np.array([number(raw, read) for raw in dictionary.dictionary.to_pylist()], np.int64)
        which: Ints = numbers[dictionary.indices.to_numpy()]
        return which

    def read_kind(kind: int, spot: Ints, heads: npt.NDArray[np.void]) -> Ints:
        if kind == names.DIRECT_QUEUE:
            size = lean(buffer.u16(spot))
            found = buffer.block(spot + 2, int(size[0])) if len(size) == 1 else buffer.slices(spot + 2, size)
            return encoded(found, _direct_text)
        if kind == names.PUBLIC_QUEUE:
            return encoded(buffer.block(spot, 16), _public_text)
        hosts = {names.PRIVATE_QUEUE_ON_SOURCE: "source", names.PRIVATE_QUEUE_ON_DESTINATION: "address"}
        if kind in hosts:
            return encoded(np.hstack([heads[hosts[kind]], buffer.block(spot, 4)]), _private_text)
        return encoded(buffer.block(spot, 20), _private_text)

    for code, place in zip(codes, places, strict=True):
        column = np.full(1, -1, np.int64)
        is_one = len(code) == 1 and bool(ok.all())
        kinds = code if is_one else np.unique(np.broadcast_to(code, ok.shape)[ok])
        for kind in kinds.tolist():
            rows = slice(None) if is_one else np.flatnonzero(ok & (code == kind))
            if not kind:
                continue
            if kind == names.SAME_AS_ADMINISTRATION_QUEUE:
                found = columns[1] if len(columns[1]) == 1 else columns[1][rows]
            else:
                found = read_kind(kind, place[rows], header[rows])
            if is_one:
                column = found
            else:
                column = np.repeat(column, len(ok)) if len(column) == 1 else column
                column[rows] = found
        ok &= column != -2
        columns.append(column)
    return columns, texts


def _fixed(matrix: Octets) -> pa.FixedSizeBinaryArray:
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    return pa.Array.from_buffers(pa.binary(matrix.shape[1]), len(matrix), [None, data])


def _direct_text(raw: bytes) -> str:
    return clean(str(names.decode_direct(raw)))


def _public_text(raw: bytes) -> str:
    return str(PublicFormatName(guid_from_bytes(raw)))


def _private_text(raw: bytes) -> str:
    return str(names.decode_private(raw))
