"""Messages of a remote queue as Arrow batches.

This module imports pyarrow, so only workers import it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lanner.client import Queue, QueueManager
from lanner.client.message import ReceivedMessage
from lanner.spark.columnar.decode import batches
from lanner.spark.columnar.packet_source import PacketBatch, Place, StoredPacket, one_by_one
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.columnar.vectors import Room
from lanner.spark.source.partitions import Columns
from lanner.spark.source.queue_names import kind_of_name

# Columns for which remote read has no values.
_UNKNOWN: Final = ("seq", "abort_count", "move_count")


@dataclass(frozen=True, slots=True)
class RemoteQueue:
    """A packet source: messages of a queue, read one by one."""

    place: Place
    messages: Iterable[ReceivedMessage]

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        return one_by_one(map(_stored, self.messages), room)


def _stored(message: ReceivedMessage) -> StoredPacket:
    return StoredPacket(0, message.lookup_id, int(message.arrived_time.timestamp()), 0, 0, message.packet)


def read_batches(
    manager: QueueManager, queue: Queue, messages: Iterable[ReceivedMessage], columns: Columns
) -> Iterator[pa.RecordBatch]:
    """Yield messages of a queue as Arrow batches. Columns unknown to remote read are null."""
    schema = RowSchema.select(columns.columns, include_body=columns.include_body)
    subqueue, kind = kind_of_name(queue.format_name)
    identifier = None if manager.identifier is None else str(manager.identifier)
    place = Place(identifier, manager.name, queue.format_name, kind, subqueue)
    nulls = [(index, field) for index, field in enumerate(schema.arrow) if field.name in _UNKNOWN]
    for known in batches(RemoteQueue(place, messages), schema):
        batch = known
        for index, field in nulls:
            batch = batch.set_column(index, field, pa.nulls(len(batch), field.type))
        yield batch
