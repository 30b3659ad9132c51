"""Many stored messages in one buffer, each checked against its checksum, and the facts of all of them."""

from __future__ import annotations

from io import BytesIO
from typing import Final

import numpy as np
import numpy.typing as npt

from lanner.spark.decode import Facts
from lanner.spark.packets import Packets
from lanner.spark.vectors import SLACK, Ints
from lanner.store.record import INLINE, REFERENCE
from lanner.store.scan import Rows, Scan

# An entry of the index, and what stands before a stored packet (store.record).
ENTRY: Final = np.dtype([("lookup_id", ">u8"), ("size", ">u4")])
_HEADER: Final = np.dtype(
    [
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
_CHECKSUM: Final = np.dtype([("checksum", "<u4")])  # before a staged one


class Scratch:
    """Memory that is used again and again: the system takes its time to hand out some megabytes."""

    def __init__(self) -> None:
        self._buffer = BytesIO()

    def emptied(self) -> BytesIO:
        """Where to write; from then on what was written before is gone."""
        self._buffer.seek(0)
        try:
            self._buffer.write(b"")
        except BufferError:
            # Somebody still looks at it.
            self._buffer = BytesIO()
        return self._buffer


def gather(scan: Scan, max_rows: int, max_bytes: int, scratch: Scratch) -> tuple[Packets, Facts] | None:
    """The first messages of a scan: up to so many, or until so many bytes of packets are reached; empty if there are none.

    None: there are express messages, or something is wrong with one of those that would be here; the scan must be iterated then.
    """
    if scan.has_express:
        return None
    lookup_ids = _lookup_ids(scan, max_rows, max_bytes)
    count = len(lookup_ids)
    if not count:
        return Packets.of([]), Facts.of([])
    into, rows = scratch.emptied(), None
    # Mostly the records stand in a row. So many steps lead from the first to the last, and as many numbers go up between them: it is these.
    if (lookup_ids[1:] > lookup_ids[:-1]).all():
        rows = scan.walk(int(lookup_ids[0]), int(lookup_ids[-1]), count, into)
    if rows is None:
        into.seek(0)
        rows = scan.records(lookup_ids.tolist(), into)
    found = _checked(rows, count, into, _HEADER)
    if found is None:
        return None
    packets, heads = found
    numbers = heads["visibility"].astype(np.int64)
    if numbers[0] <= scan.after or numbers[-1] > scan.upto or not (numbers[1:] > numbers[:-1]).all():
        # Not those under which the index has them.
        return None
    facts = Facts(numbers, lookup_ids, *(heads[name].astype(np.int64) for name in Facts._fields[2:]))
    kinds = heads["format"]
    if (kinds == INLINE).all():
        return packets, facts
    # Packets are either all in the records or all in staged rows.
    count = int(np.argmax(kinds != kinds[0])) or count
    packets, facts = packets.first(count), Facts(*(column[:count] for column in facts))
    if kinds[0] == INLINE:
        return packets, facts
    if kinds[0] != REFERENCE:
        return None
    into = BytesIO()
    found = _checked(scan.staged([packets[index] for index in range(count)], into), count, into, _CHECKSUM)
    return None if found is None else (found[0], facts)


def _lookup_ids(scan: Scan, max_rows: int, max_bytes: int) -> Ints:
    pieces = []
    count = size = 0
    for raw, _ in scan.entries():
        entries = np.frombuffer(raw, ENTRY)[: max_rows - count]
        sizes = entries["size"]
        count += len(entries)
        size += int(sizes.sum(dtype=np.int64))
        if size >= max_bytes:
            # Up to the first message with which the limit is reached.
            over = np.cumsum(sizes[::-1], dtype=np.int64)
            entries = entries[: len(entries) - int(np.searchsorted(over, size - max_bytes, side="right"))]
        pieces.append(entries["lookup_id"])
        if count == max_rows or size >= max_bytes:
            break
    return np.concatenate(pieces, dtype=np.int64) if pieces else np.zeros(0, np.int64)


def _checked(
    rows: Rows, count: int, into: BytesIO, head: np.dtype[np.void]
) -> tuple[Packets, npt.NDArray[np.void]] | None:
    """Rows without what they begin with, and that; None if one of them is missing, or is not what was written."""
    into.write(bytes(SLACK))
    width = head.itemsize
    sizes = np.array(rows.sizes, np.int64)
    if len(sizes) < count or sizes.min() < width:
        return None
    starts = np.cumsum(sizes) - sizes
    packets = Packets(into.getbuffer(), starts + width, sizes - width)
    heads = packets.buffer.block(starts, width).view(head)[:, 0]
    return (packets, heads) if (heads["checksum"] == np.array(rows.checksums, np.uint32)).all() else None
