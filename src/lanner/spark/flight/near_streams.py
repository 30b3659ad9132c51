"""Streams of messages to programs on the same machine, through memory that both sides have.

Sending messages through a socket costs more than finding them, because they are copied into the
kernel and out of it again. Here the queue manager copies packets from its file into a slot, which
is memory that the reader has mapped too, and the reader makes its columns from there. So the cost
of decoding is the reader's. A connection has SLOTS slots. The queue manager does not write to a
slot that the reader has not freed, so it waits for a slow reader.

At the socket (SOCK_SEQPACKET) every frame is a JSON object:

    reader            {ticket, [authorization]}      the next stream, please: a ticket as in Flight, and the header that Flight would get
                      {free: n}                      slot n may be written to again
    queue manager     {slots, numbers, queue_manager_id}   at the beginning, with as many descriptors of memory
                      {place}                        where the messages of the stream were seen (`packet_source.Place`)
                      {slot: n, rows, size}          there lie so many messages: `size` bytes in which the packets are, then the numbers of each, then nothing
                      {end: true}                    that was the last one of the stream; the next one may be asked for
                      {error, status, message}       so it ended, instead

The numbers are NUMBERS rows of 64 bits, behind the packets at a multiple of 8: where each begins
and its size, and what `packet_source.Facts` has.
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
    """What a queue manager of this version says first.

    Another one may have the same path on another machine, or in another container.
    """
    return json.dumps({"slots": SLOTS, "numbers": NUMBERS, "queue_manager_id": queue_manager}).encode()


def send(connection: socket.socket, frame: Frame) -> None:
    connection.sendall(json.dumps(frame).encode())


def receive(connection: socket.socket) -> Frame | None:
    """The next frame; None: the other side is gone."""
    try:
        raw = connection.recv(_MAX_FRAME)
    except ConnectionError:
        return None
    frame: Frame | None = json.loads(raw) if raw else None
    return frame


class Slot:
    """Memory in which packets are put, as long as it must be."""

    def __init__(self) -> None:
        self.file = os.memfd_create("lanner-packets", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # A reader that made it shorter would end the process that writes there.
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._map: mmap.mmap | None = None

    def room(self, size: int) -> Octets:
        """Its first bytes."""
        if self._map is None or size > len(self._map):
            length = -(-size // _MEGABYTE) * _MEGABYTE
            # The reader may have made it longer.
            if os.fstat(self.file).st_size < length:
                os.ftruncate(self.file, length)
            self._map = mmap.mmap(self.file, length)
        return np.frombuffer(self._map, np.uint8, size)

    def empty(self) -> None:
        """Give its memory back to the system; it is as long as before."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_REMOVE)

    def finish(self, batch: PacketBatch) -> Frame:
        """Add the numbers of packets that lie in its room, and return the frame that announces them."""
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
    """A connection of a program that reads; one stream at a time."""

    def __init__(self, path: Path, queue_manager: str) -> None:
        """OSError: none of this version, or not this queue manager, or it has too many readers."""
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
        """Let the queue manager write to a slot again."""
        send(self._connection, {"free": slot})

    def batch(self, slot: int, rows: int, size: int) -> PacketBatch:
        """Return the messages that lie in a slot, until it is freed."""
        begin, end = _span(rows, size)
        if end > len(self._memory[slot]):
            length = os.fstat(self._files[slot]).st_size
            self._memory[slot] = np.frombuffer(mmap.mmap(self._files[slot], length, prot=mmap.PROT_READ), np.uint8)
        memory = self._memory[slot]
        # Copied, for columns may be made of them as they are.
        starts, sizes, *facts = memory[begin:end].view(_NUMBER).reshape(NUMBERS, rows).copy()
        return PacketBatch(Packets(Buffer(memory[:size]), starts, sizes), Facts(*facts))


@dataclass(frozen=True, slots=True)
class NearStream:
    """A frame source: the messages of one stream. They lie in slots, so no other memory is used."""

    reader: NearReader
    place: Place
    refused: Callable[[Frame], Exception]

    def packet_batches(self, _room: Room) -> Generator[PacketBatch, None, None]:
        while "slot" in (frame := self.reader.next_frame(self.refused)):
            yield self.reader.batch(frame["slot"], frame["rows"], frame["size"])
            self.reader.free(frame["slot"])


def _span(rows: int, size: int) -> tuple[int, int]:
    """Where the numbers of so many messages begin behind so many bytes of packets, and end."""
    begin = size + -size % _NUMBER.itemsize
    return begin, begin + NUMBERS * rows * _NUMBER.itemsize
