"""Cutting a queue by the sizes of its messages: the index tells them, and no message is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from lanner.spark.gathering import ENTRY
from lanner.store import Store
from lanner.store.scan import Scan

_STEP: Final = 256  # messages that are looked at together


@dataclass(frozen=True, slots=True)
class Range:
    """(after, upto] of the visibility sequence, with what was in it when it was measured."""

    after: int
    upto: int
    messages: int
    bytes: int


def cut(store: Store, queue: int, after: int, upto: int, max_messages: int, max_bytes: int) -> Iterator[Range]:
    """Ranges that keep to the limits, each as long as can be; but each has a message, if there is one. Together they are the range."""
    store.settle()
    messages = size = 0
    for count, total, rows in _pieces(store, queue, after, upto):
        if messages + count <= max_messages and size + total <= max_bytes:
            messages += count
            size += total
            continue
        for number, packet_size in rows:
            if messages and (messages >= max_messages or size + packet_size > max_bytes):
                yield Range(after, number - 1, messages, size)
                after, messages, size = number - 1, 0, 0
            messages += 1
            size += packet_size
    yield Range(after, upto, messages, size)


def _pieces(store: Store, queue: int, after: int, upto: int) -> Iterator[tuple[int, int, Iterable[tuple[int, int]]]]:
    """Some messages at a time: how many, their bytes; and number and size of each, for whoever looks at these."""
    with store.lock:
        scan = store.scan(queue, after, upto, 1)
    with scan:
        if not scan.has_express:
            for raw, last in scan.entries():
                sizes = np.frombuffer(raw, ENTRY)["size"]
                yield len(sizes), int(sizes.sum(dtype=np.int64)), _rows(scan, after, sizes)
                after = last
            return
    found = ((number, size) for number, _, size in store.index(queue, after, upto))
    while some := list(islice(found, _STEP)):
        yield len(some), sum(size for _, size in some), some


def _rows(scan: Scan, after: int, sizes: npt.NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    yield from zip(scan.numbers(after, len(sizes)), sizes.tolist(), strict=True)
