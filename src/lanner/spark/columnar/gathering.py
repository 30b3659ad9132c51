"""Bulk reads of stored messages from the pages of LMDB's file, with a check of their checksums.

This is the fast way of `scans.ScannedRange`. Express messages, which are not in the file, and
damaged records are left to its fallback.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lanner.spark.columnar.checksums import Sums, joined_checksum
from lanner.spark.columnar.packet_source import Facts, PacketBatch
from lanner.spark.columnar.packets import Packets
from lanner.spark.columnar.pages import Pages, Rows, Unknown
from lanner.spark.columnar.vectors import SLACK, Buffer, Ints, Octets, Room, fresh, lean, parts
from lanner.store.checksum import crc32
from lanner.store.record import INLINE, REFERENCE
from lanner.store.scan import Scan

# A row of the index, a stored message and a staged packet: the key and the first fields of the
# value (store.record, store.staging).
_ENTRY: Final = np.dtype([("queue", "V8"), ("number", ">u8"), ("lookup_id", ">u8"), ("size", ">u4")])
_MESSAGE: Final = np.dtype(
    [
        ("key", "S16"),
        ("checksum", "<u4"),
        ("format", "u1"),
        ("state", "u1"),
        ("flags", "<u2"),
        ("abort_count", "<u2"),
        ("move_count", "<u2"),
        ("visibility", "<u8"),
        ("arrived", "<u4"),
    ]
)
_STAGED: Final = np.dtype([("key", "S21"), ("checksum", "<u4")])
_CHECKSUM_SIZE: Final = 4
# Not in the specification: bytes that are copied at a time. They are still in the processor's cache
# when their checksum is computed.
_COPIED: Final = 512 << 10
# Not in the specification: leaf pages of the index that are read together, enough for most batches.
# Each has fifty to a hundred entries.
_INDEX_PAGES: Final = 160
# Keys of consecutive messages differ only in the last bytes. The others are queue and priority, or
# stage, queue and priority.
_NUMBER_BYTES: Final = 7
# Not in the specification: the number of groups that are always looked up one by one; there are
# eight priorities. More groups are looked up so only if each has _WORTH messages on average.
_GROUPS: Final = 8
_WORTH: Final = 16


def entries(scan: Scan, pages: Pages) -> Iterator[npt.NDArray[np.void]]:
    """Yield the index entries of a scan, some at a time: `number`, `lookup_id` and `size`."""
    after, last = scan.after, scan.prefix + scan.upto.to_bytes(8, "big")
    beginning = _ENTRY.itemsize - len(last)
    while after < scan.upto:
        rows = pages.rows("visible", scan.prefix + (after + 1).to_bytes(8, "big"), last, beginning, _INDEX_PAGES)
        if not len(rows.at):
            return
        found = rows.heads(_ENTRY)
        yield found
        if rows.is_whole:
            return
        after = int(found["number"][-1])


def gather(scan: Scan, max_rows: int, max_bytes: int, room: Room = fresh) -> PacketBatch | None:
    """Return the first messages of a scan, up to `max_rows` or until `max_bytes` of packets.

    The batch is empty if there are none. The packets lie in the last memory that `room` returned.
    Returns None if there are express messages or if a record is damaged: the caller must then
    iterate the scan (`packet_source.first_batch`).
    """
    if scan.has_express:
        return None
    try:
        return _gathered(scan, max_rows, max_bytes, room)
    except Unknown:
        return None


def _gathered(scan: Scan, max_rows: int, max_bytes: int, room: Room) -> PacketBatch:
    pages = Pages(scan)
    numbers, lookup_ids = _first(scan, pages, max_rows, max_bytes)
    if not len(numbers):
        return PacketBatch(Packets.of([], room), Facts.of([]))
    keys = np.empty(len(numbers), [("queue", f"V{len(scan.prefix)}"), ("lookup_id", ">u8")])
    keys["queue"] = np.void(scan.prefix)
    keys["lookup_id"] = lookup_ids
    found = _found(pages, "messages", keys.view(_MESSAGE["key"]), _MESSAGE)
    if (found.heads["visibility"] != numbers).any():
        # The messages have other numbers than the index.
        raise Unknown
    # Packets are either all in the records or all in staged rows.
    kinds = found.heads["format"]
    found = found.first(int(np.argmax(kinds != kinds[0])) or len(kinds))
    count, heads = len(found.at), found.heads
    facts = Facts(numbers[:count], lookup_ids[:count], *(heads[name].astype(np.int64) for name in Facts._fields[2:]))
    if kinds[0] == INLINE:
        return PacketBatch(_packets(pages, found, room), facts)
    references, width = _packets(pages, found, fresh), _STAGED["key"].itemsize
    if kinds[0] != REFERENCE or (references.sizes != width).any():
        raise Unknown
    staged_keys = references.buffer.block(references.starts, width).view(_STAGED["key"])[:, 0]
    return PacketBatch(_packets(pages, _found(pages, "staged", staged_keys, _STAGED), room), facts)


def _first(scan: Scan, pages: Pages, max_rows: int, max_bytes: int) -> tuple[Ints, Ints]:
    """Return numbers and lookup ids up to the limits, including the message that reaches one."""
    numbers, lookup_ids = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for piece in entries(scan, pages):
        ends = np.cumsum(piece["size"], dtype=np.int64)
        count = min(max_rows, int(np.searchsorted(ends, max_bytes)) + 1)
        numbers.append(piece["number"][:count].astype(np.int64))
        lookup_ids.append(piece["lookup_id"][:count].astype(np.int64))
        max_rows -= len(ends)
        max_bytes -= int(ends[-1])
        if max_rows <= 0 or max_bytes <= 0:
            break
    return np.concatenate(numbers), np.concatenate(lookup_ids)


class _Found(NamedTuple):
    """Rows: the positions of their values in the file, and the key and first fields of each."""

    at: Ints
    sizes: Ints
    heads: npt.NDArray[np.void]

    def first(self, count: int) -> _Found:
        return _Found(self.at[:count], self.sizes[:count], self.heads[:count])


def _found(pages: Pages, database: str, keys: npt.NDArray[np.bytes_], kind: np.dtype[np.void]) -> _Found:
    """Return the rows with these keys, in the order of the keys."""
    ascending = keys if (keys[1:] > keys[:-1]).all() else np.sort(keys)
    beginning = kind.itemsize - keys.itemsize
    groups = [_group(pages, database, group, beginning) for group in _groups(ascending)]
    at, sizes, heads = (
        parts[0] if len(groups) == 1 else np.concatenate(parts)
        for parts in zip(*((group.at, group.sizes, group.heads(kind)) for group in groups), strict=True)
    )
    if len(heads) != len(keys) or (heads["key"] != keys).any():
        places = np.searchsorted(heads["key"], keys)
        if places.max() == len(heads) or (heads["key"][places] != keys).any():
            raise Unknown
        at, sizes, heads = at[places], sizes[places], heads[places]
    return _Found(at, sizes, heads)


def _packets(pages: Pages, found: _Found, room: Room) -> Packets:
    """Return the packets that follow the headers of values.

    Raises `Unknown` unless each value has the right checksum.
    """
    buffer = _copied(pages, found.at, found.sizes, found.heads["checksum"], room)
    sizes = found.sizes - (found.heads.dtype.itemsize - found.heads.dtype["key"].itemsize)
    return Packets(buffer, np.cumsum(found.sizes - _CHECKSUM_SIZE) - sizes, sizes)


def _copied(pages: Pages, at: Ints, sizes: Ints, checksums: Sums, room: Room) -> Buffer:
    """Copy values one after the other, without the checksum at the start of each."""
    begins, sizes = at + _CHECKSUM_SIZE, lean(sizes - _CHECKSUM_SIZE)
    if not sizes.all():
        # Records of length zero have no checksum worth comparing.
        raise Unknown
    ends = np.cumsum(np.broadcast_to(sizes, len(at)))
    memory = room(int(ends[-1]) + SLACK)
    found, first, done = 0, 0, 0
    while first < len(at):
        end = max(first + 1, int(np.searchsorted(ends, done + _COPIED)))
        if len(sizes) == 1:
            piece = pages.buffer.block(begins[first:end], int(sizes[0])).reshape(-1)
            found = crc32(piece, found)
        else:
            piece = np.frombuffer(parts(pages.buffer.slices(begins[first:end], sizes[first:end]))[0], np.uint8)
        memory[done : int(ends[end - 1])] = piece
        first, done = end, int(ends[end - 1])
    if len(sizes) == 1:
        is_right = found == joined_checksum(checksums, int(sizes[0]))
    else:
        each = map(slice, (ends - sizes).tolist(), ends.tolist())
        is_right = list(map(crc32, map(memory.data.__getitem__, each))) == checksums.tolist()
    if not is_right:
        raise Unknown
    return Buffer(memory)


def _groups(keys: npt.NDArray[np.bytes_]) -> list[Octets]:
    """Split ascending keys where more than the number changes, unless there are too many groups."""
    octets: Octets = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
    heads = octets[:, :-_NUMBER_BYTES]
    if (heads[0] == heads[-1]).all():
        return [octets]
    cuts = np.flatnonzero((heads[1:] != heads[:-1]).any(axis=1)) + 1
    if len(cuts) >= max(_GROUPS, len(heads) // _WORTH):
        return [octets]
    return [octets[first:end] for first, end in zip([0, *cuts], [*cuts, len(heads)], strict=True)]


def _group(pages: Pages, database: str, keys: Octets, beginning: int) -> Rows:
    """Return the rows from the first to the last key.

    Raises `Unknown` if the range has far more rows than there are keys.
    """
    rows = pages.rows(database, keys[0].tobytes(), keys[-1].tobytes(), beginning, 2 * len(keys) + 2)
    if not rows.is_whole:
        raise Unknown
    return rows
