"""Where the headers of many packets lie: `wire.layout.locate` for a whole batch.

Only common packets are located here. Whatever is rare (tracing, SOAP, several destinations, a provider's name, headers behind the
packet) or wrong in any way is odd: it is left to `wire.Message`, one by one, which also finds the words for what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lanner.model.enums import SenderIdentifierType
from lanner.model.errors import RemoteProtocolError
from lanner.spark.rows import clean
from lanner.spark.vectors import SLACK, Buffer, Ints, Mask, Octets, parts
from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.format_name import PrivateFormatName, PublicFormatName
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
_NAME_SIZES: Final = np.array(names.NAME_SIZES)
_IS_DESTINATION: Final = np.isin(np.arange(8), list(names.DESTINATION_TYPES))
_IS_ADMINISTRATION: Final = np.isin(np.arange(8), list(names.ADMINISTRATION_TYPES))


class Packets:
    """Packets in one buffer, one behind the other, perhaps with other bytes between them."""

    def __init__(self, data: bytes | memoryview, starts: Ints, sizes: Ints) -> None:
        """`data` has SLACK bytes behind the last packet."""
        self.data = data
        self.buffer = Buffer(data)
        self.starts = starts
        self.sizes = sizes

    @classmethod
    def of(cls, packets: Sequence[bytes]) -> Packets:
        sizes = np.fromiter(map(len, packets), np.int64, len(packets))
        return cls(b"".join((*packets, bytes(SLACK))), np.cumsum(sizes) - sizes, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> bytes:
        start = self.starts[index]
        return self.buffer.octets[start : start + self.sizes[index]].tobytes()

    def first(self, count: int) -> Packets:
        return Packets(self.data, self.starts[:count], self.sizes[:count])

    def whole(self) -> pa.BinaryArray:
        """The packets themselves."""
        return self.buffer.slices(self.starts, self.sizes)


@dataclass(slots=True)
class Located:
    """Offsets and sizes in the packets that are common, as `rows` says; places are absolute, 0 where there is nothing."""

    rows: Ints
    header: npt.NDArray[np.void]
    starts: Ints
    destination: Ints  # which of `texts`
    administration: Ints
    response: Ints
    connector: Ints
    transaction: Ints
    security: Ints
    sizes: Ints  # (packets, 4): SecurityID, EncryptionKey, Signature, SenderCert
    properties: Ints
    label_length: Ints  # UTF-16 units with the terminator
    extension_size: Ints
    body_size: Ints

    def take(self, keep: Ints) -> Located:
        return Located(*(getattr(self, field.name)[keep] for field in fields(self)))


def locate(packets: Packets) -> tuple[Located, list[str]]:
    """The common packets, and the texts that their names are."""
    buffer, starts, sizes = packets.buffer, packets.starts, packets.sizes
    header = buffer.block(starts, at.DESTINATION_OFFSET).view(HEADER)[:, 0]
    flags = header["flags"].astype(np.int64)
    ok = _is_common(header, flags, sizes)

    def place(position: Ints) -> Ints:
        """Where to read; what is not common is not read any further."""
        return starts + np.where(ok, position, 0)

    def has(bit: int) -> Mask:
        return np.asarray(flags & bit != 0)

    def after_name(code: Ints, position: Ints) -> Ints:
        step = _NAME_SIZES[code]
        direct = step < 0
        if not direct.any():
            return np.asarray(position + step)
        count = buffer.u16(place(position))
        return np.where(direct, position + 2 + count + 3 & ~3, position + step)

    position = np.full(len(starts), at.DESTINATION_OFFSET)
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
        extra = 16 * (buffer.u8(place(position)) & at.CG)
        position = position + np.where(has(at.TH), at.TRANSACTION_HEADER_SIZE + extra, 0)
        ok &= position <= sizes
    security = np.where(has(at.SH), position, 0)
    security_sizes = np.zeros((len(starts), 4), np.int64)
    if security.any():
        security_sizes, is_good = _security_sizes(buffer, place(security))
        ok &= ~has(at.SH) | is_good
        security_sizes[~has(at.SH)] = 0
        padded = (security_sizes + 3 & ~3).sum(axis=1)
        position = position + np.where(has(at.SH), at.SECURITY_HEADER_SIZE + padded, 0)
        ok &= position <= sizes
    properties = position
    position = position + at.PROPERTIES_HEADER_SIZE
    ok &= position <= sizes
    label_length = buffer.u8(place(properties + 1))
    body_size = buffer.u32(place(properties + 32))
    extension_size = buffer.u32(place(properties + 52))
    position = position + 2 * label_length + extension_size + body_size + 3 & ~3
    ok &= (position <= sizes) & (sizes - position < at.EXTENSION_HEADER_SIZE) & (label_length <= at.MAX_LABEL_LENGTH)
    ok &= _has_good_label(buffer, starts, np.where(ok, properties, 0), np.where(ok, label_length, 0))

    which, texts = _names(buffer, header, codes, [place(position) for position in name_at], ok)
    located = Located(
        np.arange(len(starts)),
        header,
        starts,
        which[0],
        which[1],
        which[2],
        np.where(connector > 0, starts + connector, 0),
        np.where(transaction > 0, starts + transaction, 0),
        np.where(security > 0, starts + security, 0),
        security_sizes,
        starts + properties,
        label_length,
        extension_size,
        body_size,
    )
    return (located if ok.all() else located.take(np.flatnonzero(ok))), texts


def _is_common(header: npt.NDArray[np.void], flags: Ints, sizes: Ints) -> Mask:
    """What can be told from the fixed part: `layout.check_flags`, and nothing rare."""
    is_recoverable = flags >> at.DM_SHIFT & 3 == 1
    common: Mask = (
        (sizes >= at.MINIMUM_SIZE)
        & (sizes <= at.MAX_PACKET_SIZE)
        & (header["version"] == at.VERSION_NUMBER)
        & (header["signature"] == at.SIGNATURE)
        & (header["packet_size"] == sizes)
        & (header["base_flags"] & (at.IN | at.BASE_SH | at.DH | at.TR) == 0)
        & (flags & (at.MP | at.HH | at.MQ) == at.MP)
        & (flags >> at.DM_SHIFT & 3 <= 1)
        & (is_recoverable | (flags & at.TH == 0))
        & _IS_DESTINATION[flags >> at.DQ_SHIFT & 7]
        & _IS_ADMINISTRATION[flags >> at.AQ_SHIFT & 7]
        & (flags >> at.RQ_SHIFT & 7 != names.PRIVATE_QUEUE_ON_ADMIN)
    )
    return common


def _security_sizes(buffer: Buffer, security: Ints) -> tuple[Ints, Mask]:
    """The four sizes, and whether `security_header.check_sizes` would take them; a provider's name is rare."""
    kind = buffer.u16(security) & at.ST_MASK
    sizes = np.stack(
        [
            buffer.u16(security + 2),
            buffer.u16(security + 4),
            buffer.u16(security + 6),
            buffer.u32(security + 8),
        ],
        axis=1,
    )
    sender, certificate = sizes[:, 0], sizes[:, 3]
    is_good: Mask = (
        (kind <= SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER)
        & ((kind != SenderIdentifierType.NONE) | (sender == 0))
        & ((kind != SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER) | (sender == 16))
        & (certificate <= MAX_SENDER_CERT_SIZE)
        & sizes.any(axis=1)
        & (buffer.u32(security + 12) == 0)
    )
    return sizes, is_good


def _has_good_label(buffer: Buffer, starts: Ints, properties: Ints, length: Ints) -> Mask:
    """One null, at the end."""
    first = starts + properties + at.PROPERTIES_HEADER_SIZE
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
    """For destination, administration and response queue which text it is; rows with a bad name are no longer `ok`."""
    texts: list[str] = []
    columns: list[Ints] = []

    def encode(found: pa.Array, rows: Ints, column: Ints, read: Callable[[bytes], str]) -> None:
        encoded = found.dictionary_encode()
        numbers = []
        for raw in encoded.dictionary.to_pylist():
            try:
                texts.append(read(raw))
                numbers.append(len(texts) - 1)
            except RemoteProtocolError:
                numbers.append(-2)
        column[rows] = np.array(numbers, np.int64)[encoded.indices.to_numpy()]

    for code, place in zip(codes, places, strict=True):
        column = np.full(len(ok), -1, np.int64)
        for kind in (np.flatnonzero(np.bincount(code[ok], minlength=8)[1:]) + 1).tolist():
            rows = np.flatnonzero(ok & (code == kind))
            spot = place[rows]
            if kind == names.DIRECT_QUEUE:
                encode(buffer.slices(spot + 2, buffer.u16(spot)), rows, column, _direct_text)
            elif kind == names.PUBLIC_QUEUE:
                encode(_fixed(buffer.block(spot, 16)), rows, column, _public_text)
            elif kind == names.SAME_AS_ADMINISTRATION_QUEUE:
                column[rows] = columns[1][rows]
            else:
                hosts = {names.PRIVATE_QUEUE_ON_SOURCE: "source", names.PRIVATE_QUEUE_ON_DESTINATION: "address"}
                if kind in hosts:
                    raw = np.hstack([header[hosts[kind]][rows], buffer.block(spot, 4)])
                else:
                    raw = buffer.block(spot, 20)
                encode(_fixed(raw), rows, column, _private_text)
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
    return str(PrivateFormatName(guid_from_bytes(raw[:16]), int.from_bytes(raw[16:], "little")))
