r"""Files of packets: the stored messages of a queue, for another place or a later time.

All numbers are little-endian.

    "LANNERPK"                8 bytes
    version                   4 bytes: 1
    size of the header        4 bytes
    header                    JSON, UTF-8: queue_manager, queue_manager_id, queue, queue_kind,
                              subqueue, epoch, exported
    then for each message:
        size of the packet    4 bytes, never 0
        seq, lookup id        8 bytes each
        arrived               4 bytes, seconds since 1970 UTC
        abort and move count  2 bytes each
        packet                a UserMessage of MS-MQMQ 2.2.20
        checksum              4 bytes: CRC-32 of everything from the size on
    and at the end:
        0                     4 bytes
        messages              8 bytes
        checksum              4 bytes: CRC-32 of all checksums before, in their order

A truncated or changed file is an error, which names the position in the file. A file is written
under a temporary name and renamed when it is complete.

    with QueueManager("data") as manager:
        export_packets(manager, r".\private$\orders", Path("orders.packets"))
        import_packets(manager, Path("orders.packets"), r".\private$\orders-again")
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, Self

import pyarrow as pa

from lanner.client._sync.queue_manager import QueueManager
from lanner.client.message import Message as NewMessage
from lanner.client.message import ReceivedMessage
from lanner.client.runtimes import operations_of, runtime_of
from lanner.model.enums import QueueAccessType
from lanner.model.errors import LannerError, RemoteProtocolError
from lanner.model.live import Record
from lanner.spark.columnar.decode import batches
from lanner.spark.columnar.packet_source import PacketBatch, PacketSource, Place, StoredPacket, one_by_one
from lanner.spark.columnar.reading import QueueSource
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.columnar.vectors import Room, Scratch
from lanner.store.checksum import crc32
from lanner.store.environment import sync_directory
from lanner.wire.layout import MAX_PACKET_SIZE
from lanner.wire.message import Message
from lanner.wire.packet_template import MessageRun

MAGIC: Final = b"LANNERPK"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<II")
_MESSAGE: Final = struct.Struct("<IQQIHH")
_SIZE: Final = struct.Struct("<I")
_END: Final = struct.Struct("<QI")
_MAX_HEADER: Final = 1 << 16
_MAX_COUNT: Final = 0xFFFF
# Not in the specification: messages that are staged in one commit.
_IMPORT_BATCH: Final = 1000

Progress = Callable[[int], None]  # called with the number of finished messages


class PacketFileError(LannerError):
    """The file is damaged or of another kind. The message names the file and the position."""


class Totals(NamedTuple):
    """Figures of an export or import."""

    messages: int
    bytes: int  # of packets


@dataclass(frozen=True, slots=True)
class Origin:
    """The header: the origin of the messages."""

    place: Place
    epoch: int
    exported: int  # seconds since 1970 UTC


class PacketWriter:
    """Writes a file.

    The file gets its name in `close`. Leaving a `with` block by an exception leaves no file.
    """

    def __init__(self, path: Path, origin: Origin) -> None:
        self.path = path
        self._partial = path.with_name(path.name + ".partial")
        # Created for this user only, because it has the bodies of messages. An existing file may
        # belong to another user.
        self._partial.unlink(missing_ok=True)
        self._file: BinaryIO = os.fdopen(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._checksum = 0
        self._messages = 0
        self._bytes = 0
        header = json.dumps(
            {
                "queue_manager": origin.place.qm_name,
                "queue_manager_id": origin.place.qm_id,
                "queue": origin.place.queue,
                "queue_kind": origin.place.queue_kind,
                "subqueue": origin.place.subqueue,
                "epoch": origin.epoch,
                "exported": origin.exported,
            }
        ).encode()
        self._file.write(MAGIC + _HEAD.pack(VERSION, len(header)) + header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()
            self._partial.unlink(missing_ok=True)

    @property
    def totals(self) -> Totals:
        return Totals(self._messages, self._bytes)

    def write(self, message: StoredPacket) -> None:
        seq, lookup_id, arrived, aborts, moves, packet = message
        head = _MESSAGE.pack(len(packet), seq, lookup_id, arrived, min(aborts, _MAX_COUNT), min(moves, _MAX_COUNT))
        checksum = _SIZE.pack(crc32(packet, crc32(head)))
        self._file.writelines((head, packet, checksum))
        self._checksum = crc32(checksum, self._checksum)
        self._messages += 1
        self._bytes += len(packet)

    def close(self) -> None:
        """Complete the file, make it durable, and give it its name."""
        self._file.write(_SIZE.pack(0) + _END.pack(self._messages, self._checksum))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.rename(self.path)
        sync_directory(self.path.parent)


class PacketReader:
    """Reads a file, as a packet source that can be iterated once. `origin` is its header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("rb")
        try:
            self.origin = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def _wrong(self, what: str) -> PacketFileError:
        return PacketFileError(f"{self.path}, byte {self._file.tell()}: {what}")

    def _take(self, size: int, what: str) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise self._wrong(f"the file ends in {what}; it was cut short")
        return data

    def _read_header(self) -> Origin:
        if self._file.read(len(MAGIC)) != MAGIC:
            raise self._wrong("this is no file of packets")
        version, size = _HEAD.unpack(self._take(_HEAD.size, "its header"))
        if version != VERSION:
            raise self._wrong(f"the file is of version {version}, and this program knows version {VERSION}")
        if size > _MAX_HEADER:
            raise self._wrong(f"a header of {size} bytes, at most {_MAX_HEADER} are allowed")
        try:
            header = json.loads(self._take(size, "its header"))
            place = Place(
                header["queue_manager_id"],
                header["queue_manager"],
                header["queue"],
                header["queue_kind"],
                header["subqueue"],
            )
            return Origin(place, int(header["epoch"]), int(header["exported"]))
        except (ValueError, KeyError, TypeError):
            raise self._wrong("the header cannot be read") from None

    def __iter__(self) -> Iterator[StoredPacket]:
        checksum = messages = 0
        while True:
            raw_size = self._take(_SIZE.size, "a message")
            (size,) = _SIZE.unpack(raw_size)
            if not size:
                break
            if size > MAX_PACKET_SIZE:
                raise self._wrong(f"a packet of {size} bytes, at most {MAX_PACKET_SIZE} are allowed")
            rest = self._take(_MESSAGE.size - _SIZE.size, "a message")
            packet = self._take(size, "a message")
            stored = self._take(_SIZE.size, "a message")
            if crc32(packet, crc32(raw_size + rest)) != _SIZE.unpack(stored)[0]:
                raise self._wrong(f"message {messages + 1} is damaged: its checksum does not match")
            checksum = crc32(stored, checksum)
            messages += 1
            _, seq, lookup_id, arrived, aborts, moves = _MESSAGE.unpack(raw_size + rest)
            yield StoredPacket(seq, lookup_id, arrived, aborts, moves, packet)
        if _END.unpack(self._take(_END.size, "its end")) != (messages, checksum) or self._file.read(1):
            raise self._wrong("the totals at the end do not match: messages are missing, or there are too many")

    @property
    def place(self) -> Place:
        return self.origin.place

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        return one_by_one(self, room)

    def batches(self, schema: RowSchema) -> Iterator[pa.RecordBatch]:
        """Yield the messages as Arrow batches, like a queue."""
        return batches(self, schema)


def export_packets(manager: QueueManager, queue: str, path: Path, *, progress: Progress | None = None) -> Totals:
    """Write all messages of a queue to a file; they stay in the queue.

    The queue may also be a journal, a dead-letter queue or a subqueue.
    """
    source = QueueSource(operations_of(manager), queue)
    after, upto, _ = source.bounds()
    with PacketWriter(path, Origin(source.place, runtime_of(manager).store.epoch, int(time.time()))) as writer:
        for message in _messages(source.range(after, upto)):
            writer.write(message)
            if progress is not None and not writer.totals.messages % _IMPORT_BATCH:
                progress(writer.totals.messages)
    return writer.totals


def _messages(source: PacketSource) -> Iterator[StoredPacket]:
    for batch in source.packet_batches(Scratch()):
        yield from batch.rows()


def export_messages(
    messages: Iterable[ReceivedMessage], origin: Origin, path: Path, *, progress: Progress | None = None
) -> Totals:
    """Write messages that were peeked at on any computer to a file.

    Their numbers in the visibility sequence are unknown, so they are 0.
    """
    with PacketWriter(path, origin) as writer:
        for message in messages:
            counts = message.abort_count, message.move_count
            arrived = int(message.arrived_time.timestamp())
            writer.write(StoredPacket(0, message.lookup_id, arrived, *counts, message.packet))
            if progress is not None and not writer.totals.messages % _IMPORT_BATCH:
                progress(writer.totals.messages)
    return writer.totals


def import_packets(manager: QueueManager, path: Path, queue: str, *, progress: Progress | None = None) -> Totals | None:
    """Send a copy of every message of a file to a queue, in one commit: all of them or none.

    Each copy is a new message with the properties of the old one: it has a new identifier, and is
    sent now by the caller. Returns None, and does nothing, if this file was already imported into
    this queue.
    """
    runtime, operations = runtime_of(manager), operations_of(manager)
    engine, store = runtime.engine, runtime.store
    key = hashlib.sha256(f"import {operations.find(queue).pathname}\0".encode())
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            key.update(data)
    with runtime.lock:
        if store.published(key.digest()) is not None:
            return None
        # An interrupted import may have left a stage.
        engine.drop_stage(key.digest())
        handle = operations.open(operations.names.format_name(queue), QueueAccessType.SEND)
    messages = size = 0
    try:
        with PacketReader(path) as reader:
            found = iter(reader)
            while batch := list(islice(found, _IMPORT_BATCH)):
                made = [
                    MessageRun.of(_copy(message, reader, messages + number).properties(operations.names))
                    for number, message in enumerate(batch)
                ]
                with runtime.change() as change:
                    engine.stage_messages(handle, key.digest(), made)
                change.wait()
                messages += len(batch)
                size += sum(len(message.packet) for message in batch)
                if progress is not None:
                    progress(messages)
        with runtime.change() as change:
            if messages:
                engine.publish_stages(key.digest(), [key.digest()])
        change.wait()
    except BaseException:
        with runtime.lock:
            engine.drop_stage(key.digest())
        raise
    finally:
        operations.close(handle)
    return Totals(messages, size)


def check_packets(path: Path) -> Totals:
    """Check a file, and count its messages.

    Raises PacketFileError if it is incomplete, or has a message that cannot be sent again.
    """
    messages = size = 0
    with PacketReader(path) as reader:
        for message in reader:
            _copy(message, reader, messages)
            messages += 1
            size += len(message.packet)
    return Totals(messages, size)


def copies(reader: PacketReader) -> Iterator[NewMessage]:
    """Yield the messages of a file as new messages. Raises PacketFileError if one is malformed."""
    for number, message in enumerate(reader):
        yield _copy(message, reader, number)


def _copy(message: StoredPacket, reader: PacketReader, number: int) -> NewMessage:
    try:
        Message.unpack(message.packet)
    except RemoteProtocolError as error:
        raise PacketFileError(f"{reader.path}: message {number + 1} cannot be read: {error}") from None
    return ReceivedMessage(message.lookup_id, Record(message.packet, message.arrived)).copy()
