"""The rows of a database as positions in LMDB's file, thousands at a time.

A cursor of py-lmdb makes objects for every row. This module reads the pages of thousands of rows
with a few numpy operations, and the values are used in place. `Cursor.getmulti` has 0.5 to 0.7 of
its throughput for messages of one size and 0.8 for messages of many sizes (bench/pages.py, figures
in bench/RESULTS.md). That is why this module exists although it depends on the layout of the file.

The snapshot's transaction must be open: LMDB writes to no page that a reader may still need. The
layout is that of LMDB 0.9 (mdb.c: MDB_meta, MDB_db, MDB_page, MDB_node). Anything else raises
`Unknown`, and the caller reads by cursor.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lanner.spark.columnar.vectors import SLACK, Buffer, Ints, Octets
from lanner.store.scan import Scan

# The first page is a meta page. After its header it has a magic number and the version of the
# file's layout.
_META: Final = np.dtype([("magic", "<u4"), ("version", "<u4")])
_MAGIC, _VERSION = 0xBEEF_C0DE, 1
_DATABASE: Final = np.dtype(
    [("pad", "<u4"), ("flags", "<u2"), ("depth", "<u2"), ("pages", "<u8", 3), ("entries", "<u8"), ("root", "<u8")]
)
# A page: its header, the offsets of its nodes, and at its end the nodes.
_PAGE: Final = np.dtype([("number", "<u8"), ("pad", "<u2"), ("flags", "<u2"), ("lower", "<u2"), ("upper", "<u2")])
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
# A node: the size of the value in a leaf (low, high), the number of a page in a branch (low, high,
# flags); then the key, then the value.
_NODE: Final = np.dtype([("low", "<u2"), ("high", "<u2"), ("flags", "<u2"), ("key_size", "<u2")])
_BIG: Final = 1  # the value is the number of the first of some overflow pages
_PAGE_NUMBER: Final = np.dtype("<u8")
# Not in the specification: the assumed minimum number of children of a branch page. LMDB keeps its
# pages a quarter full, and about a hundred fit. With fewer children, fewer leaf pages are read at a
# time.
_FAN: Final = 8
_LEAST: Final = 3


class Unknown(Exception):
    """The file has another layout, or is damaged."""


@dataclass(slots=True)
class Rows:
    """Rows in key order: their first bytes, and the positions of their values in the file."""

    raw: Octets  # node, key, and the first bytes of the value
    at: Ints
    sizes: Ints
    is_whole: bool  # whether the range has no more

    def heads(self, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """Return the key and the first fields of the value of each row."""
        return _fields(self.raw, kind, _NODE.itemsize)


class Pages:
    """The file of a snapshot, mapped until the last array over it is freed."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        with scan.data_file.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._page_size = scan.page_size
        self.view = memoryview(data)
        self.buffer = Buffer(self.view)
        meta = self.buffer.block(np.array([_PAGE.itemsize]), _META.itemsize).view(_META)[0, 0]
        if (meta["magic"], meta["version"]) != (_MAGIC, _VERSION):
            raise Unknown

    def rows(self, database: str, low: bytes, high: bytes, beginning: int, max_pages: int) -> Rows:
        """Return the rows with keys from `low` to `high` in about `max_pages` leaf pages.

        Both keys must have the same width. At least one row is returned if the range has any. The
        rows include the first `beginning` bytes of each value; a shorter value raises `Unknown`.
        """
        try:
            return self._rows(database, low, high, beginning, max_pages)
        except IndexError as error:
            # A page, or something in it, points outside of the file.
            raise Unknown from error

    def _rows(self, database: str, low: bytes, high: bytes, beginning: int, max_pages: int) -> Rows:
        pages, is_whole = self._leaves(database, low, high, max_pages)
        nodes, _ = self._nodes(pages, _LEAF)
        width, head = len(low), _NODE.itemsize
        raw = self.buffer.block(nodes, head + width + beginning)
        keys = _keys(raw, width)
        found = slice(int(np.searchsorted(keys, low)), int(np.searchsorted(keys, high, side="right")))
        raw = raw[found]
        about = _fields(raw, _NODE)
        at, sizes = nodes[found] + (head + width), _sizes(about)
        if (about["key_size"] != width).any() or (sizes < beginning).any() or (about["flags"] > _BIG).any():
            raise Unknown
        big = np.flatnonzero(about["flags"] == _BIG)
        if len(big):
            at[big] = self._overflow(at[big])
            raw[big, head + width :] = self.buffer.block(at[big], beginning)
        if (at + sizes).max(initial=0) + SLACK > len(self.view):
            raise Unknown
        return Rows(raw, at, sizes, is_whole)

    def _leaves(self, database: str, low: bytes, high: bytes, max_pages: int) -> tuple[Ints, bool]:
        """Return about `max_pages` leaf pages of a range, and whether these are all."""
        width = len(low)
        about = np.frombuffer(self._scan.database(database), _DATABASE)[0]
        depth = int(about["depth"])
        pages = about["root"].reshape(-1)[: min(depth, 1)].astype(np.int64)
        # for each page a key that is not above its first
        floors = np.zeros(len(pages), f"S{width}")
        is_whole = True
        for level in range(depth - 2, -1, -1):
            nodes, first = self._nodes(pages, _BRANCH)
            raw = self.buffer.block(nodes, _NODE.itemsize + width)
            keys = _keys(raw, width)
            # The first key of a branch page is empty; its parent has it.
            keys[first] = floors
            begin = max(0, int(np.searchsorted(keys, low, side="right")) - 1)
            end = int(np.searchsorted(keys, high, side="right"))
            # As many pages of this level as lead to that many leaf pages.
            most = max(max_pages // _FAN**level, _LEAST)
            is_whole = is_whole and end - begin <= most
            found = slice(begin, min(end, begin + most))
            children = _fields(raw[found], _NODE)
            pages = _sizes(children) | children["flags"].astype(np.int64) << 32
            floors = keys[found]
        return pages, is_whole

    def _nodes(self, pages: Ints, flags: int) -> tuple[Ints, Ints]:
        """Return the positions of the nodes of some pages, and the index of each page's first."""
        starts = pages * self._page_size
        counts = (self._headers(pages, flags)["lower"].astype(np.int64) - _PAGE.itemsize) // 2
        if (counts < 1).any():
            raise Unknown
        ends = np.cumsum(counts)
        first = ends - counts
        # The position of each node's offset, less the count of offsets in the pages before.
        places = np.repeat(starts + _PAGE.itemsize - 2 * first, counts)
        places += np.arange(0, 2 * len(places), 2)
        return np.repeat(starts, counts) + self.buffer.u16(places), first

    def _overflow(self, at: Ints) -> Ints:
        """Return the positions of values that are on overflow pages.

        `at` has the positions of the numbers of their first pages.
        """
        pages = self.buffer.block(at, _PAGE_NUMBER.itemsize).view(_PAGE_NUMBER)[:, 0].astype(np.int64)
        self._headers(pages, _OVERFLOW)
        values: Ints = pages * self._page_size + _PAGE.itemsize
        return values

    def _headers(self, pages: Ints, flags: int) -> npt.NDArray[np.void]:
        headers = self.buffer.block(pages * self._page_size, _PAGE.itemsize).view(_PAGE)[:, 0]
        if (headers["flags"] != flags).any() or (headers["number"] != pages).any():
            raise Unknown
        return headers


def _fields(raw: Octets, kind: np.dtype[Any], offset: int = 0) -> npt.NDArray[Any]:
    """Return the fields at an offset of each row."""
    if not len(raw):
        return np.empty(0, kind)
    return np.ndarray((len(raw),), kind, buffer=raw, offset=offset, strides=raw.strides[:1])


def _sizes(nodes: npt.NDArray[np.void]) -> Ints:
    sizes: Ints = nodes["low"] | nodes["high"].astype(np.int64) << 16
    return sizes


def _keys(raw: Octets, width: int) -> npt.NDArray[np.bytes_]:
    """Return the keys of nodes at one width. A shorter key is padded with zeros."""
    sizes = _fields(raw, _NODE)["key_size"]
    other = np.flatnonzero(sizes != width)
    if len(other):
        raw[other, _NODE.itemsize : _NODE.itemsize + width] *= np.arange(width) < sizes[other, None]
    return _fields(raw, np.dtype(f"S{width}"), _NODE.itemsize)
