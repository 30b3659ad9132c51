"""The interface for reading messages as columns, and its one fallback.

A packet source yields packets many at a time, in one buffer, with an array for each fact that a
queue keeps about a message. `decode.batches` turns any source into Arrow batches. The sources:

    scans.ScannedRange         a range of a queue in a store, here or in another process
    near_streams.NearStream    the same in the store of another process, through shared memory
    packet_files.PacketReader  a file of packets
    rpc_columns.RemoteQueue    a queue of any MSMQ computer, through remote read

`one_by_one` is the fallback, for messages that can only be read one by one. Files and remote queues
always use it. A store uses it where LMDB's pages cannot be read (`gathering`): for express
messages, and for damaged records. The event log is not a source: it has no packets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import numpy as np

from lanner.spark.columnar.packets import Packets
from lanner.spark.columnar.vectors import Ints, Room

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "Facts",
    "PacketBatch",
    "PacketSource",
    "Place",
    "StoredPacket",
    "first_batch",
    "one_by_one",
]

# Not in the specification: a batch ends at this many bytes of packets or this many rows. Each batch
# has a fixed cost of some milliseconds.
BATCH_BYTES: Final = 16 << 20
BATCH_ROWS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Place:
    """The place where messages were read: the same for all messages of a source."""

    qm_id: str | None = None
    qm_name: str | None = None
    queue: str | None = None
    queue_kind: str = "destination"
    subqueue: str | None = None

    @property
    def keeper(self) -> UUID | None:
        """The queue manager, or None if it is unknown or a file names none."""
        try:
            return None if self.qm_id is None else UUID(self.qm_id)
        except ValueError:
            return None


class StoredPacket(NamedTuple):
    """One message: the facts that a queue keeps about it, and its packet."""

    seq: int
    lookup_id: int
    arrived: int  # seconds since 1970 UTC
    abort_count: int
    move_count: int
    packet: bytes


class Facts(NamedTuple):
    """The facts of many messages: an array for each field of `StoredPacket` except the packet."""

    seq: Ints
    lookup_id: Ints
    arrived: Ints
    abort_count: Ints
    move_count: Ints

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int, int]]) -> Facts:
        matrix = np.array(list(rows), np.int64).reshape(-1, len(cls._fields))
        return cls(*matrix.T)


class PacketBatch(NamedTuple):
    """Many messages: their packets, and the facts of each."""

    packets: Packets
    facts: Facts

    def rows(self) -> Iterator[StoredPacket]:
        """Yield the messages one by one."""
        rows = zip(*(column.tolist() for column in self.facts), strict=True)
        for index, (seq, lookup_id, arrived, abort_count, move_count) in enumerate(rows):
            yield StoredPacket(seq, lookup_id, arrived, abort_count, move_count, self.packets[index])


class PacketSource(Protocol):
    """Messages of one place that can be read as columns, once."""

    @property
    def place(self) -> Place: ...

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        """Yield the messages in order.

        The packets lie in memory from `room`, or in memory of the source. Both may be reused for
        the next batch.
        """
        ...


def first_batch(messages: Iterable[StoredPacket], room: Room) -> PacketBatch:
    """Collect the next messages into one batch, which is empty if there are none."""
    packets: list[bytes] = []
    facts: list[tuple[int, int, int, int, int]] = []
    size = 0
    for message in messages:
        packets.append(message.packet)
        facts.append(message[:-1])
        size += len(message.packet)
        if size >= BATCH_BYTES or len(facts) == BATCH_ROWS:
            break
    return PacketBatch(Packets.of(packets, room), Facts.of(facts))


def one_by_one(messages: Iterable[StoredPacket], room: Room) -> Generator[PacketBatch, None, None]:
    """Collect messages into batches."""
    found = iter(messages)
    while len((batch := first_batch(found, room)).packets):
        yield batch
