"""Streams of messages to programs on the same machine, through shared memory.

Sending messages through a socket costs more than finding them, because they are copied into the
kernel and out of it again. Here the queue manager copies packets from its file into a slot, which
is memory that the reader has mapped too. The reader makes its columns from the slot, so it pays for
the decoding. A connection has SLOTS slots. The queue manager does not write to a slot that the
reader has not freed, so it waits for a slow reader.

Every frame at the socket (SOCK_SEQPACKET) is a JSON object. The reader sends:

    {ticket, [authorization]}
        requests the next stream: a ticket and the header, as for Flight
    {free: n}
        slot n may be overwritten

The queue manager sends:

    {slots, numbers, queue_manager_id}
        the greeting, with one descriptor of memory per slot
    {place}
        the place that the messages of the stream are from (`packet_source.Place`)
    {slot: n, rows, size}
        slot n has `rows` messages: `size` bytes of packets, and then their numbers
    {end: true}
        the end of the stream; the reader may request the next one
    {error, status, message}
        the end of the stream because of an error

The numbers are NUMBERS rows of 64-bit integers, after the packets at a multiple of 8: where each
packet begins, its size, and the fields of `packet_source.Facts`.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from lanner.rpc.unix_path import short_path
from lanner.spark.columnar.packet_source import Facts, PacketBatch, Place
from lanner.spark.columnar.packets import Packets
from lanner.spark.columnar.vectors import Buffer, Octets, Room

SLOTS: Final = 2
NUMBERS: Final = 2 + len(Facts._fields)
# Not in the specification: seconds within which a healthy queue manager sends its greeting.
_GREETED: Final = 5.0
_MAX_FRAME: Final = 1 << 18
_MEGABYTE: Final = 1 << 20
_NUMBER: Final = np.dtype("<i8")

Frame = dict[str, Any]


def greeting(queue_manager: str) -> bytes:
    """Return the greeting of a queue manager of this version.

    The reader compares it: another queue manager may have the same path on another machine, or in
    another container.
    """
    return json.dumps({"slots": SLOTS, "numbers": NUMBERS, "queue_manager_id": queue_manager}).encode()


def send(connection: socket.socket, frame: Frame) -> None:
    connection.sendall(json.dumps(frame).encode())


def receive(connection: socket.socket) -> Frame | None:
    """Return the next frame, or None if the other side has disconnected."""
    try:
        raw = connection.recv(_MAX_FRAME)
    except ConnectionError:
        return None
    frame: Frame | None = json.loads(raw) if raw else None
    return frame


class Slot:
    """Shared memory for packets. It grows as needed."""

    def __init__(self) -> None:
        self.file = os.memfd_create("lanner-packets", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # If a reader could shrink it, the writing process would be killed by SIGBUS.
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._map: mmap.mmap | None = None

    def room(self, size: int) -> Octets:
        """Return its first bytes."""
        if self._map is None or size > len(self._map):
            length = -(-size // _MEGABYTE) * _MEGABYTE
            # The reader may have extended it.
            if os.fstat(self.file).st_size < length:
                os.ftruncate(self.file, length)
            self._map = mmap.mmap(self.file, length)
        return np.frombuffer(self._map, np.uint8, size)

    def empty(self) -> None:
        """Return its memory to the system. Its length does not change."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_REMOVE)

    def finish(self, batch: PacketBatch) -> Frame:
        """Add the numbers of the packets in its memory; return the frame that announces them."""
        packets, facts = batch
        rows, size = len(packets), len(packets.buffer.octets)
        begin, end = _span(rows, size)
        numbers = self.room(end)[begin:].view(_NUMBER).reshape(NUMBERS, rows)
        for place, column in enumerate((packets.starts, packets.sizes, *facts)):
            numbers[place] = column
        return {"rows": rows, "size": size}

    def close(self) -> None:
        os.close(self.file)


class NearReader:
    """The connection of a program that reads, one stream at a time."""

    def __init__(self, path: Path, queue_manager: str) -> None:
        """Connect. Raises OSError if there is no such queue manager, of this version, with room."""
        self._files: list[int] = []
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._connection.settimeout(_GREETED)
            with short_path(path) as short:
                self._connection.connect(str(short))
            said, self._files, _, _ = socket.recv_fds(self._connection, _MAX_FRAME, SLOTS)
            if said != greeting(queue_manager) or len(self._files) != SLOTS:
                raise ConnectionError(
                    f"{path}: not queue manager {queue_manager} as it is expected, or it has too many readers"
                )
            self._connection.settimeout(None)
        except BaseException:
            self.close()
            raise
        self._memory: list[Octets] = [np.empty(0, np.uint8)] * SLOTS

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self.close()

    def close(self) -> None:
        self._connection.close()
        while self._files:
            os.close(self._files.pop())

    def stream(self, ticket: bytes, authorization: str | None, refused: Callable[[Frame], Exception]) -> NearStream:
        """Begin a stream. A caller that does not read it to its end must close the connection.

        `refused` makes the exception for an error that the queue manager reports, now or later.
        """
        send(self._connection, {"ticket": ticket.decode("utf-8", "replace"), "authorization": authorization})
        return NearStream(self, Place(**self.next_frame(refused)["place"]), refused)

    def next_frame(self, refused: Callable[[Frame], Exception]) -> Frame:
        frame = receive(self._connection)
        if frame is None:
            raise ConnectionError("the queue manager has closed the stream")
        if "error" in frame:
            raise refused(frame)
        return frame

    def free(self, slot: int) -> None:
        """Allow the queue manager to overwrite a slot."""
        send(self._connection, {"free": slot})

    def batch(self, slot: int, rows: int, size: int) -> PacketBatch:
        """Return the messages in a slot. They are valid until it is freed."""
        begin, end = _span(rows, size)
        if end > len(self._memory[slot]):
            length = os.fstat(self._files[slot]).st_size
            self._memory[slot] = np.frombuffer(mmap.mmap(self._files[slot], length, prot=mmap.PROT_READ), np.uint8)
        memory = self._memory[slot]
        # Copied, because columns may be views of them.
        starts, sizes, *facts = memory[begin:end].view(_NUMBER).reshape(NUMBERS, rows).copy()
        return PacketBatch(Packets(Buffer(memory[:size]), starts, sizes), Facts(*facts))


@dataclass(frozen=True, slots=True)
class NearStream:
    """A packet source: the messages of one stream. They stay in the slots, so it ignores `room`."""

    reader: NearReader
    place: Place
    refused: Callable[[Frame], Exception]

    def packet_batches(self, _room: Room) -> Generator[PacketBatch, None, None]:
        while "slot" in (frame := self.reader.next_frame(self.refused)):
            yield self.reader.batch(frame["slot"], frame["rows"], frame["size"])
            self.reader.free(frame["slot"])


def _span(rows: int, size: int) -> tuple[int, int]:
    """Return begin and end of the numbers of some messages, after `size` bytes of packets."""
    begin = size + -size % _NUMBER.itemsize
    return begin, begin + NUMBERS * rows * _NUMBER.itemsize
