"""Cuts ranges of a queue by the sizes of messages, which are in the index. No message is read.

The index is read from the pages of LMDB's file. For express messages and damaged pages,
`Store.index` reads it row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lanner.spark.columnar.gathering import entries
from lanner.spark.columnar.pages import Pages, Unknown
from lanner.store import Store

_STEP: Final = 256  # messages that are read together


@dataclass(frozen=True, slots=True)
class Range:
    """(after, upto] of the visibility sequence, with its messages and bytes when measured."""

    after: int
    upto: int
    messages: int
    bytes: int


def cut(store: Store, queue: int, after: int, upto: int, max_messages: int, max_bytes: int) -> Iterator[Range]:
    """Yield the longest consecutive ranges within the limits, which cover the whole range.

    Each has at least one message, if there is one.
    """
    store.checkpoint()
    messages = size = 0
    for numbers, sizes in _pieces(store, queue, after, upto):
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        place = 0
        while place < len(numbers):
            fitting = min(int(ends[place]) + max_bytes - size, int(ends[-1]))
            end = min(int(np.searchsorted(ends, fitting, side="right")) - 1, place + max_messages - messages)
            end = max(end, place if messages else place + 1)
            messages += end - place
            size += int(ends[end] - ends[place])
            place = end
            if place < len(numbers):
                number = int(numbers[place]) - 1
                yield Range(after, number, messages, size)
                after, messages, size = number, 0, 0
    yield Range(after, upto, messages, size)


def _pieces(store: Store, queue: int, after: int, upto: int) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield the numbers and sizes of messages, some at a time."""
    with store.lock:
        scan = store.scan(queue, after, upto, 1)
    with scan:
        if not scan.has_express:
            try:
                for piece in entries(scan, Pages(scan)):
                    yield piece["number"], piece["size"]
                    after = int(piece["number"][-1])
            except Unknown:
                pass
            else:
                return
    found = store.index(queue, after, upto)
    while some := list(islice(found, _STEP)):
        rows = np.array(some, np.int64)
        yield rows[:, 0], rows[:, 2]
