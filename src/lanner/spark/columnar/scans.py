"""A range of a queue as packets, from scans of its database.

Each batch is read from a snapshot of its own, which is closed before the batch is yielded. So a
slow or disconnected caller keeps no page of the store in use. No message is missed between two
snapshots: a number of the sequence is issued once, and a message that has one can only disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass

import numpy as np

from lanner.spark.columnar import packet_source
from lanner.spark.columnar.decode import MAKING
from lanner.spark.columnar.gathering import gather
from lanner.spark.columnar.packet_source import Facts, PacketBatch, Place, StoredPacket, first_batch
from lanner.spark.columnar.vectors import Room
from lanner.store.scan import Scan

__all__ = ["Begun", "ScannedRange", "stored_packets"]

# A scan that begins after some number, and the lookup ids of messages that a client is receiving.
# These are left out. If the receive is aborted they get new numbers.
Begun = tuple[Scan, Collection[int]]


@dataclass(frozen=True, slots=True)
class ScannedRange:
    """A packet source: the messages of a queue with numbers in (after, upto], in that order."""

    place: Place
    after: int
    upto: int
    begin: Callable[[int], Begun]

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        """Yield the messages, except for those that a client is receiving."""
        after = self.after
        while after < self.upto:
            with MAKING:
                batch, held = self._next(after, room)
            if not len(batch.packets):
                return
            after = int(batch.facts.seq[-1])
            if held:
                free = ~np.isin(batch.facts.lookup_id, list(held))
                facts = Facts(*(column[free] for column in batch.facts))
                batch = PacketBatch(batch.packets.taken(free), facts)
            if len(batch.packets):
                yield batch

    def _next(self, after: int, room: Room) -> tuple[PacketBatch, Collection[int]]:
        """Return the first messages of the range, and the lookup ids to leave out."""
        scan, held = self.begin(after)
        with scan:
            batch = gather(scan, packet_source.BATCH_ROWS, packet_source.BATCH_BYTES, room)
            return first_batch(stored_packets(scan), room) if batch is None else batch, held


def stored_packets(scan: Scan) -> Iterator[StoredPacket]:
    """Yield the messages of a scan by iterating it."""
    for number, lookup_id, record in scan:
        yield StoredPacket(number, lookup_id, record.arrived, record.abort_count, record.move_count, record.packet)
