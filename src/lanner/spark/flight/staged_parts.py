"""The rows of a writer, cut into parts that are staged one by one under the store's lock.

A stream has rows, from which messages are made here (`columnar.encode`), or packets that the writer
has built (`columnar.packing`), which are checked and stored unchanged. Both give the same
`Contents` for the same messages, so a batch can be repeated in the other form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.engine import Engine
from lanner.host.names import QueueNames
from lanner.model.errors import InvalidParameter
from lanner.model.live import OpenQueueDescriptor
from lanner.spark.columnar.encode import RowEncoder
from lanner.store.checksum import crc32
from lanner.wire.layout import locate
from lanner.wire.packet_contents import packet_contents
from lanner.wire.packet_template import MessageRun

__all__ = ["Contents", "Part", "parts"]

# Not in the specification: messages that are made, and packets that are stored, in one hold of the
# store's lock: a few milliseconds. A packet takes less time than a message.
AT_ONCE: Final = 250
PACKETS_AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 2 << 20
_DIGEST_BITS: Final = 64
# The types of columns that can be sent as rows.
_PLAIN: Final = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
Packets = list[bytes]


@dataclass(frozen=True, slots=True)
class Contents:
    """Figures of staged or published messages. `digest` does not depend on their order."""

    messages: int = 0
    bytes: int = 0  # of bodies
    digest: int = 0

    def __add__(self, other: Contents) -> Contents:
        digest = (self.digest + other.digest) % (1 << _DIGEST_BITS)
        return Contents(self.messages + other.messages, self.bytes + other.bytes, digest)

    @classmethod
    def of(cls, run: MessageRun) -> Contents:
        digest = sum(map(crc32, run.bodies, map(crc32, run.labels))) + len(run)
        return cls(len(run), sum(map(len, run.bodies)), digest % (1 << _DIGEST_BITS))

    @classmethod
    def of_packets(cls, packets: Packets) -> Contents:
        """Return the figures of packets of equal shape, at least one."""
        return cls(len(packets), *packet_contents(packets, locate(packets[0]).properties))


class Part(Protocol):
    """Messages of consecutive rows for one queue."""

    first: int  # the number of the first row
    queue: str

    @property
    def row(self) -> int:
        """The row at fault, if the part cannot be staged."""

    def stage(self, engine: Engine, handle: OpenQueueDescriptor, token: bytes) -> Contents:
        """Stage the messages. The caller must hold the store's lock."""


def parts(schema: pa.Schema, names: QueueNames, queue: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    """Return the parts of a stream. `queue` is the destination of rows that name none.

    Raises InvalidParameter at once if the columns cannot be written.
    """
    if "packet" in schema.names:
        _check_packets(schema, queue)
        return _packet_parts(queue, batches)
    _check_plain(schema)
    return _row_parts(RowEncoder(schema, names, queue), batches)


def _check_plain(schema: pa.Schema) -> None:
    """Refuse columns in which many rows share one value, such as those with a dictionary.

    A batch of some megabytes could have thousands of times as many when its rows are read.
    """
    for field in schema:
        if not any(is_plain(field.type) for is_plain in _PLAIN):
            raise InvalidParameter(f"column {field.name} is {field.type}: send its values one by one (cast the column)")


# Rows
# --------------------------------------------------------------------------------------------------


class _RowPart:
    def __init__(self, first: int, queue: str, run: MessageRun) -> None:
        self.first = first
        self.queue = queue
        self._run = run
        self._bodies = _Counted(first, run.bodies)

    @property
    def row(self) -> int:
        return self._bodies.row

    def stage(self, engine: Engine, handle: OpenQueueDescriptor, token: bytes) -> Contents:
        run = self._run
        engine.stage_messages(handle, token, [MessageRun(run.properties, run.labels, self._bodies)])
        return Contents.of(run)


def _row_parts(encoder: RowEncoder, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    row = 0
    for batch in batches:
        for start in range(0, len(batch), AT_ONCE):
            for name, run in encoder.messages(batch.slice(start, AT_ONCE), row):
                yield _RowPart(row, name, run)
                row += len(run)


class _Counted(Sequence[bytes]):
    """Bodies that record which one was last read: the row that could not be packed."""

    def __init__(self, first: int, bodies: Sequence[bytes]) -> None:
        self.row = first
        self._first = first
        self._bodies = bodies

    def __len__(self) -> int:
        return len(self._bodies)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (a number or a slice)
        return self._bodies[index]

    def __iter__(self) -> Iterator[bytes]:
        for row, body in enumerate(self._bodies, self._first):
            self.row = row
            yield body


# Packets
# --------------------------------------------------------------------------------------------------


class _PacketPart:
    def __init__(self, first: int, queue: str, octets: memoryview, count: int) -> None:
        self.first = self.row = first
        self.queue = queue
        self._octets = octets
        self._count = count

    def stage(self, engine: Engine, handle: OpenQueueDescriptor, token: bytes) -> Contents:
        runs = engine.stage_packets(handle, token, self._octets, self._count)
        return sum(map(Contents.of_packets, runs), Contents())


def _check_packets(schema: pa.Schema, queue: str | None) -> None:
    kinds = {field.name: field.type for field in schema}
    wanted = {"packet": pa.binary(), "queue": pa.string()}
    if len(kinds) < len(schema) or any(kinds[name] != wanted.get(name) for name in kinds):
        raise InvalidParameter("packets are written as columns packet (binary) and queue (string), and no others")
    if queue is None and "queue" not in kinds:
        raise InvalidParameter("no destination: give the option queue, or a column of that name")


def _packet_parts(queue: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    row = 0
    for batch in batches:
        packets = batch.column(batch.schema.get_field_index("packet"))
        if packets.null_count:
            raise InvalidParameter(f"row {row + int(np.argmax(pc.is_null(packets)))}: there is no packet")
        for name, start, end in _queue_runs(batch, queue, row):
            for at in _cut(packets, start, end):
                places, data = _octets(packets[at.start : at.stop])
                yield _PacketPart(row + at.start, name, memoryview(data)[places[0] : places[-1]], len(at))
        row += len(batch)


def _octets(packets: pa.BinaryArray) -> tuple[np.ndarray[Any, Any], Any]:
    _, offsets, data = packets.buffers()
    places = np.frombuffer(offsets, np.int32)[packets.offset : packets.offset + len(packets) + 1]
    return places, b"" if data is None else data


def _cut(packets: pa.BinaryArray, start: int, end: int) -> Iterator[range]:
    """Cut rows into ranges that are staged under one hold of the lock."""
    places, _ = _octets(packets)
    while start < end:
        upto = int(np.searchsorted(places, int(places[start]) + BYTES_AT_ONCE, side="right")) - 1
        upto = min(end, start + PACKETS_AT_ONCE, max(upto, start + 1))
        yield range(start, upto)
        start = upto


def _queue_runs(batch: pa.RecordBatch, queue: str | None, first: int) -> Iterator[tuple[str, int, int]]:
    """Yield each queue with the range of rows for it."""
    if not len(batch):
        return
    if "queue" not in batch.schema.names:
        assert queue is not None  # noqa: S101 (it was checked)
        yield queue, 0, len(batch)
        return
    runs = pc.run_end_encode(batch.column(batch.schema.get_field_index("queue")))
    start = 0
    for name, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        target = name or queue
        if target is None:
            raise InvalidParameter(f"row {first + start}: queue is null, and the option queue is not set")
        yield target, start, end
        start = end
