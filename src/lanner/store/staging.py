"""Staging areas for the data pipeline's sink: messages that are invisible until published.

A writer puts messages under a token. The stage of this token is a number, taken from a counter,
with rows (stage, queue, 7 - priority, number) -> packet, and one row in table "stages" that counts
them. Publishing writes for each message a header that refers to the staged row, and an index entry.
These are about 70 bytes in place of the packet, so a million messages can become visible in one
commit. A staged row is deleted with its message.

A publication is remembered by its key (for example query and batch of a stream), so publishing it
again does nothing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import lmdb

from lanner.model.errors import InvalidParameter, StoreCorrupt
from lanner.model.lookup_ids import LOWEST_LANE
from lanner.store.counters import Counter
from lanner.store.environment import Environment
from lanner.store.event_log import put_block
from lanner.store.lock import StoreLock
from lanner.store.queue_view import QueueView, Totals
from lanner.store.record import staged_packet
from lanner.store.rows import published_rows, staged_rows
from lanner.store.table import Table

__all__ = [
    "GARBAGE_STAGE",
    "STAGED_KEY",
    "EventMaker",
    "Publication",
    "PublishedEvents",
    "Stage",
    "StagedGroup",
    "StagedRows",
    "Stages",
]

# Stage, queue, 7 - priority, number within these.
STAGED_KEY = struct.Struct(">QIBQ")
# The same without the number.
STAGED_HEAD = struct.Struct(">QIB")
# A row of table "garbage": the letter s and the stage whose rows are to be swept.
GARBAGE_STAGE = struct.Struct(">cQ")

_HEAD = struct.Struct(">QI")  # stage, seconds since 1970 of its last write
_GROUP = struct.Struct(">IBQQ")  # queue, 7 - priority, messages, bytes of packets
_PUBLISHED = struct.Struct(">QQI")  # messages, bytes of packets, seconds since 1970
_MAX_TOKEN = 64
# Not in the specification: rows written between two checks for waiting threads, the duration of a
# check, and the pause if a thread is waiting (then the check takes longer, because it must get the
# interpreter lock back).
_CHUNK = 1000
# Not in the specification: bytes of packets that are read at once to make their events.
_EVENT_BYTES = 4 << 20
_LOOK_SECONDS = 0.0001
_PAUSE_SECONDS = 0.001


# Makes the events of consecutive arrivals from the first lookup id, the packets and the first
# visibility number. Returns no events if no log of them is kept.
EventMaker = Callable[[int, list[bytes], int], list[bytes]]


# Keys in ascending order, and values.
StagedRows = tuple[list[bytes], list[bytes]]


class PublishedEvents(NamedTuple):
    """The events of a publication: the number of the first, and the function that makes them.

    They are made while the publication is written.
    """

    first: int
    make: EventMaker


@dataclass(slots=True)
class StagedGroup:
    """The messages of one stage for one queue and priority."""

    queue: int
    lane: int  # 7 - priority
    messages: int
    size: int


@dataclass(slots=True)
class Stage:
    number: int
    written: int  # seconds since 1970
    groups: dict[tuple[int, int], StagedGroup] = field(default_factory=dict)

    def pack(self) -> bytes:
        groups = (_GROUP.pack(group.queue, group.lane, group.messages, group.size) for group in self.groups.values())
        return _HEAD.pack(self.number, self.written) + b"".join(groups)

    @classmethod
    def unpack(cls, raw: bytes) -> Stage:
        stage = cls(*_HEAD.unpack_from(raw))
        for row in _GROUP.iter_unpack(raw[_HEAD.size :]):
            group = StagedGroup(*row)
            stage.groups[group.queue, group.lane] = group
        return stage


@dataclass(slots=True)
class Publication:
    """One staged group that becomes visible.

    Its numbers are reserved in advance, its rows are written within the commit.
    """

    view: QueueView
    generation: int
    stage: int
    group: StagedGroup
    first_lookup_id: int
    first_visibility: int
    arrived: int
    flags: int
    events: PublishedEvents | None = None

    def added_to(self, totals: Totals) -> Totals:
        """Return totals that include the messages, unless the queue was dropped meanwhile."""
        if totals.generation != self.generation:
            return totals
        return Totals(totals.generation, totals.messages + self.group.messages, totals.size + self.group.size)

    def complete(self) -> None:
        """Update the view, because the messages are in the snapshot now."""
        view = self.view
        if view.generation == self.generation:
            view.messages += self.group.messages
            view.size += self.group.size
            view.raise_high(self.first_lookup_id + self.group.messages - 1)
            view.forget_runs()

    def write(self, txn: lmdb.Transaction[bytes], environment: Environment, lock: StoreLock) -> None:
        """Write headers and index entries.

        Tries to hold the lock for each piece, for the reason that the write phase does (commit.py).
        It never waits for it long, because its holder may be waiting for this transaction to end.
        """
        messages, visible = txn.cursor(environment.messages), txn.cursor(environment.visible)
        for done in range(0, self.group.messages, _CHUNK):
            indices = range(done, min(done + _CHUNK, self.group.messages))
            keys, values, numbers, entries = self._rows(indices)
            with lock.urgent(timeout=0.05):
                messages.putmulti(zip(keys, values, strict=True))
                visible.putmulti(zip(numbers, entries, strict=True))
                if self.events is not None:
                    self._write_events(txn, environment, self.events, indices)
            if len(indices) == _CHUNK:
                _give_way()

    def _write_events(
        self, txn: lmdb.Transaction[bytes], environment: Environment, events: PublishedEvents, indices: range
    ) -> None:
        for start, packets in self._packets(txn, environment, indices):
            made = events.make(self.first_lookup_id + start, packets, self.first_visibility + start)
            put_block(txn, environment, events.first + start, made)

    def _packets(
        self, txn: lmdb.Transaction[bytes], environment: Environment, indices: range
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the packets of consecutive messages, with the index of the first.

        Damaged ones are left out: the damage is reported when the message is read, and until then
        it has no event.
        """
        start, packets, size = indices.start, list[bytes](), 0
        for index in indices:
            key = STAGED_KEY.pack(self.stage, self.group.queue, self.group.lane, index)
            is_damaged = False
            try:
                packets.append(staged_packet(key, txn, environment.staged))
                size += len(packets[-1])
            except StoreCorrupt:
                is_damaged = True
            if packets and (is_damaged or size >= _EVENT_BYTES):
                yield start, packets
                packets, size = [], 0
            if not packets:
                start = index + 1
        if packets:
            yield start, packets

    def _rows(self, indices: range) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
        group, start = self.group, indices.start
        return published_rows(
            self.view.number,
            self.generation,
            self.first_lookup_id + start,
            self.first_visibility + start,
            len(indices),
            STAGED_HEAD.pack(self.stage, group.queue, group.lane),
            start,
            self.arrived,
            self.flags,
            min(group.size // group.messages, 0xFFFF_FFFF),
        )


def _give_way() -> None:
    """Let waiting threads run."""
    began = time.monotonic()
    time.sleep(_LOOK_SECONDS)
    if time.monotonic() - began > 5 * _LOOK_SECONDS:
        time.sleep(_PAUSE_SECONDS)


class Stages:
    """The stages and publications of a store. All methods need the store's lock."""

    def __init__(self, stages: Table, publications: Table, garbage: Table, numbers: Counter) -> None:
        self._stages = stages
        self._publications = publications
        self._garbage = garbage
        self._numbers = numbers

    def add(self, token: bytes, queue: int, packets: Iterable[tuple[int, list[bytes]]], now: int) -> list[StagedRows]:
        """Count messages, given as (priority, packets), into a stage; return the rows to write."""
        if not 0 < len(token) <= _MAX_TOKEN:
            raise InvalidParameter(f"a stage token of {len(token)} bytes: 1 to {_MAX_TOKEN} are allowed")
        raw = self._stages.get(token)
        stage = Stage(self._numbers.next(), now) if raw is None else Stage.unpack(raw)
        stage.written = now
        rows: list[StagedRows] = []
        for priority, run in packets:
            if not run:
                continue
            lane = LOWEST_LANE - priority
            group = stage.groups.get((queue, lane))
            if group is None:
                group = stage.groups[queue, lane] = StagedGroup(queue, lane, 0, 0)
            rows.append(staged_rows(STAGED_HEAD.pack(stage.number, queue, lane), group.messages, run))
            group.messages += len(run)
            group.size += sum(map(len, run))
        self._stages.put(token, stage.pack())
        return rows

    def take(self, key: bytes, tokens: Sequence[bytes], now: int) -> list[Stage] | None:
        """Take stages out for publication under `key`; None if `key` was published before."""
        if self._publications.get(key) is not None:
            return None
        stages = []
        for token in dict.fromkeys(tokens):
            raw = self._stages.get(token)
            if raw is None:
                raise InvalidParameter(f"stage {token.hex()} is unknown: never written, dropped, or published already")
            stages.append(Stage.unpack(raw))
        for token in dict.fromkeys(tokens):
            self._stages.delete(token)
        groups = [group for stage in stages for group in stage.groups.values()]
        total = sum(group.messages for group in groups), sum(group.size for group in groups)
        self._publications.put(key, _PUBLISHED.pack(*total, now))
        return stages

    def totals(self, tokens: Iterable[bytes]) -> dict[int, tuple[int, int]]:
        """Return (messages, bytes) in these stages for each queue; unknown tokens are ignored."""
        found: dict[int, tuple[int, int]] = {}
        for token in dict.fromkeys(tokens):
            raw = self._stages.get(token)
            for group in () if raw is None else Stage.unpack(raw).groups.values():
                messages, size = found.get(group.queue, (0, 0))
                found[group.queue] = messages + group.messages, size + group.size
        return found

    def published(self, key: bytes) -> tuple[int, int, int] | None:
        """Return messages, bytes and time of the publication under a key."""
        raw = self._publications.get(key)
        return None if raw is None else _PUBLISHED.unpack(raw)

    def forget(self, key: bytes) -> None:
        """Forget a publication, so that its key can be used again."""
        self._publications.delete(key)

    def drop(self, token: bytes) -> bool:
        """Drop a stage; return whether there was one."""
        raw = self._stages.get(token)
        if raw is None:
            return False
        self._stages.delete(token)
        self._garbage.put(GARBAGE_STAGE.pack(b"s", Stage.unpack(raw).number), b"")
        return True

    def expire(self, before: int) -> int:
        """Drop the stages that were last written before a time; return how many."""
        old = [token for token, raw in self._stages.items() if Stage.unpack(raw).written < before]
        for token in old:
            self.drop(token)
        return len(old)
