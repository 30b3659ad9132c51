"""Column-wise reading of fields of many packets in one buffer, with numpy and Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lanner.spark.columnar.schema import BIGINT, BINARY, INT, STRING, TIMESTAMP

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]
Units = npt.NDArray[np.uint16]
# A column: an array, or a scalar if all rows have the same value.
Values: TypeAlias = pa.Array | pa.Scalar
# Returns memory of the requested size in bytes.
Room: TypeAlias = Callable[[int], Octets]

# Bytes after the last packet of a buffer. They allow a fixed-size part to be read at any position
# inside a packet.
SLACK: Final = 64

_HEX: Final = np.frombuffer("".join(f"{value:02x}" for value in range(256)).encode(), np.uint16)  # two digits each
# The bytes of a GUID in the order of its text (MS-DTYP 2.3.4.2), and its groups: first digit,
# position in the text, length.
_GUID_ORDER: Final = np.array([3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15])
_GUID_GROUPS: Final = ((0, 0, 8), (8, 9, 4), (12, 14, 4), (16, 19, 4), (20, 24, 12))
_GUID_LENGTH: Final = 36
_DECIMALS: Final = np.frombuffer(
    "".join(f"{value:04}" for value in range(10_000)).encode(), np.uint32
)  # four digits each
_POWERS: Final = 10 ** np.arange(10, dtype=np.int64)  # for 32-bit numbers
_GROUP: Final = 4  # digits of one entry of _DECIMALS
_MAX_U32: Final = 0xFFFF_FFFF
_MAX_I32: Final = 0x7FFF_FFFF  # the limit of an Arrow array's offsets
_REPLACEMENT: Final = 0xFFFD
# Not in the specification: up to NARROW bytes numpy copies a piece. From _HUGE bytes on, numpy asks
# the system for huge pages. Between them Arrow gets its memory faster.
NARROW: Final = 256
_HUGE: Final = 4 << 20


def fresh(size: int) -> Octets:
    """Return new memory."""
    return np.empty(size, np.uint8)


class Scratch:
    """Returns the same memory for each request. It grows when needed."""

    def __init__(self) -> None:
        self._memory = fresh(0)

    def __call__(self, size: int) -> Octets:
        if size > len(self._memory):
            self._memory = fresh(0)  # frees the old memory first
            self._memory = fresh(size)
        return self._memory[:size]


class Buffer:
    """Bytes, and numbers read from many positions in them. Positions are absolute."""

    def __init__(self, data: bytes | memoryview | Octets) -> None:
        self.octets: Octets = np.frombuffer(data, np.uint8)
        size = len(self.octets)
        self._arrow = pa.py_buffer(data)
        self._u16 = np.ndarray((size - 1,), "<u2", buffer=data, strides=(1,))
        self._u32 = np.ndarray((size - 3,), "<u4", buffer=data, strides=(1,))

    def u8(self, at: Ints) -> Ints:
        return self.octets[at].astype(np.int64)

    def u16(self, at: Ints) -> Ints:
        return self._u16[at].astype(np.int64)

    def u32(self, at: Ints) -> Ints:
        return self._u32[at].astype(np.int64)

    def block(self, at: Ints, width: int) -> Octets:
        """Return rows of `width` bytes."""
        if not width:
            return np.empty((len(at), 0), np.uint8)
        # Copying items of one opaque type is three times as fast as copying windows of single
        # bytes.
        rows: npt.NDArray[np.void] = np.ndarray(
            (len(self.octets) - width + 1,), f"V{width}", buffer=self.octets, strides=(1,)
        )
        return rows[at].view(np.uint8).reshape(-1, width)

    def slices(self, at: Ints, sizes: Ints) -> pa.BinaryArray:
        """Return pieces that do not overlap, of any size or all of one size (see `lean`).

        With offsets for the pieces and for the gaps between them, the whole buffer becomes one
        Arrow array without a copy. Taking every other element of it copies the pieces at the speed
        of memory.
        """
        count = len(at)
        if len(sizes) == 1 and (sizes[0] <= NARROW or count * sizes[0] >= _HUGE):
            return joined(self.block(at, int(sizes[0])))
        sizes = np.broadcast_to(sizes, count)
        order = np.argsort(at) if (at[1:] < at[:-1]).any() else np.arange(count)
        first, end = (int(at[order[0]]), int(at[order[-1]] + sizes[order[-1]])) if count else (0, 0)
        if end - first > _MAX_I32:
            ends = (at + sizes).tolist()
            return pa.array([self._arrow[a:b].to_pybytes() for a, b in zip(at.tolist(), ends, strict=True)], BINARY)
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[:-1:2] = at[order] - first
        offsets[1::2] = offsets[:-1:2] + sizes[order]
        offsets[-1] = end - first
        whole = pa.Array.from_buffers(BINARY, 2 * count, [None, pa.py_buffer(offsets), self._arrow[first:]])
        wanted = np.empty(count, np.int64)
        wanted[order] = np.arange(0, 2 * count, 2)
        return whole.take(pa.array(wanted))


def lean(values: npt.NDArray[Any]) -> Ints:
    """Return numbers as integers: an array of one element if all are equal.

    Such an array stands for all rows. The packets of a queue are mostly alike, so a value that all
    rows share is computed once.
    """
    if len(values) > 1 and bool((values == values[0]).all()):
        values = values[:1]
    return values.astype(np.int64)


def are_alike(matrix: Octets) -> bool:
    """Return whether there are rows, and all of them are equal."""
    count, width = matrix.shape
    flat = np.ascontiguousarray(matrix).reshape(-1)
    if not width & 3:
        flat, width = flat.view(np.uint32), width // 4
    return count > 0 and bool((flat[width:] == flat[: len(flat) - width]).all())


def joined(matrix: Octets, kind: pa.DataType = BINARY) -> pa.Array:
    """Return rows of one width as a binary or text array."""
    count, width = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))])


def nulled(array: pa.Array, present: Mask) -> pa.Array:
    """Return a binary or text array with nulls where `present` is false."""
    if present.all():
        return array
    bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bits, *array.buffers()[1:]])


def parts(array: pa.BinaryArray) -> tuple[Any, Ints]:
    """Return the bytes of a binary array without nulls, and its offsets into them."""
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return (b"" if data is None else data), places


def whole(values: Values, count: int) -> pa.Array:
    """Return a column as an array."""
    if not isinstance(values, pa.Scalar):
        return values
    kind = values.type
    if not values.is_valid:
        return pa.nulls(count, kind)
    if kind in (INT, BIGINT, TIMESTAMP):
        # This takes a fifth of the time of `pa.repeat`.
        number = values.value if kind == TIMESTAMP else values.as_py()
        return pa.array(np.full(count, number, np.int32 if kind == INT else np.int64)).view(kind)
    return pa.repeat(values, count)


def numbers(values: npt.NDArray[Any], kind: pa.DataType) -> Values:
    """Return numbers as a column; for TIMESTAMP they are microseconds since 1970."""
    found = lean(values).astype(
        np.int32 if kind == INT else np.int64
    )  # the highest bit becomes the sign, because Spark has no unsigned numbers
    return pa.scalar(int(found[0]), kind) if len(found) == 1 else pa.array(found).view(kind)


def guid_text(guids: Octets) -> Values:
    """Return GUIDs in packet order as text."""
    if are_alike(guids):
        # Usually all are from one sender.
        return pa.scalar(_guid_matrix(guids[:1]).tobytes().decode(), STRING)
    return joined(_guid_matrix(guids), STRING)


def _guid_matrix(guids: Octets) -> Octets:
    digits = np.ascontiguousarray(_HEX[guids[:, _GUID_ORDER]]).view(np.uint8)
    text = np.full((len(guids), _GUID_LENGTH), ord("-"), np.uint8)
    for digit, place, length in _GUID_GROUPS:
        text[:, place : place + length] = digits[:, digit : digit + length]
    return text


def identifier_text(identifiers: Octets) -> pa.StringArray:
    r"""Return message identifiers of 20 bytes as `guid\number`."""
    count = len(identifiers)
    guids, numbers = identifiers[:, :16], np.ascontiguousarray(identifiers[:, 16:]).view("<u4")[:, 0]
    # Digits of the longest number; the number 0 has one digit.
    digits = max(1, int(np.searchsorted(_POWERS, numbers.max(initial=0), side="right")))
    width = _GUID_LENGTH + 1 + digits
    matrix = np.empty((count, width), np.uint8)
    matrix[:, :_GUID_LENGTH] = _guid_matrix(guids[:1] if are_alike(guids) else guids)
    matrix[:, _GUID_LENGTH] = ord("\\")
    left, end = numbers, width
    while True:
        size = min(_GROUP, end - _GUID_LENGTH - 1)
        matrix[:, end - size : end] = _DECIMALS[left % 10**_GROUP].view(np.uint8).reshape(-1, _GROUP)[:, -size:]
        end -= size
        if end == _GUID_LENGTH + 1:
            break
        left = left // 10**_GROUP
    if numbers.min(initial=_MAX_U32) >= _POWERS[digits - 1]:
        return joined(matrix, STRING)
    # Remove leading zeros.
    zeros = np.minimum(digits - np.searchsorted(_POWERS, numbers, side="right"), digits - 1)
    keep = np.ones((count, width), np.bool_)
    keep[:, -digits:] = np.arange(digits) >= zeros[:, None]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(width - zeros, out=offsets[1:])
    return pa.Array.from_buffers(STRING, count, [None, pa.py_buffer(offsets), pa.py_buffer(matrix[keep])])


def some(array: Callable[[Octets], Values], found: Octets, present: Mask) -> Values:
    """Return an array of the rows that are present, with nulls for the others."""
    if present.all():
        return array(found)
    rows = np.flatnonzero(present)
    made = whole(array(found[rows]), len(rows))
    if not len(rows):
        return pa.scalar(None, made.type)
    which = np.full(len(present), -1, np.int64)
    which[rows] = np.arange(len(rows))
    return made.take(pa.array(which, mask=~present))


def lone_surrogates(units: Units, offsets: Ints) -> Mask | None:
    """Return which UTF-16 units are half of a surrogate pair, in rows that begin at `offsets`.

    Returns None if there are no surrogates at all.
    """
    kinds = units & 0xFC00
    high, low = kinds == 0xD800, kinds == 0xDC00
    if not (high.any() or low.any()):
        return None
    # low surrogates that follow a high one in the same row
    follows = np.zeros(len(units) + 1, np.bool_)
    follows[1:-1] = high[:-1] & low[1:]
    follows[offsets] = False
    paired = follows[:-1] | follows[1:]
    lone: Mask = (high | low) & ~paired
    return lone


def utf8(units: Units, offsets: Ints) -> pa.StringArray:
    """Return UTF-16 rows as text. A lone surrogate becomes U+FFFD: Arrow's text cannot have it."""
    count = len(offsets) - 1
    if not len(units) or units.max() < 0x80:
        data = pa.py_buffer(units.astype(np.uint8))
        return pa.Array.from_buffers(STRING, count, [None, pa.py_buffer(offsets.astype(np.int32)), data])
    lone = lone_surrogates(units, offsets)
    sizes = 1 + (units >= 0x80).astype(np.int64) + (units >= 0x800)
    if lone is not None:
        if lone.any():
            units = np.where(lone, np.uint16(_REPLACEMENT), units)
        kinds = units & 0xFC00
        sizes[kinds == 0xD800] = 4
        sizes[kinds == 0xDC00] = 0
    ends = np.zeros(len(units) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    data = pa.py_buffer(units.astype("<u2").tobytes().decode("utf-16-le").encode())
    return pa.Array.from_buffers(STRING, count, [None, pa.py_buffer(ends[offsets].astype(np.int32)), data])
