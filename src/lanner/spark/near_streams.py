"""Streams of batches to programs on the same machine, through memory that both sides have.

What a network costs is more than what it takes to find the batches: they are copied into the system and out of it again. Here the queue manager writes a batch
into a slot, a piece of memory that the reader has mapped too, and the reader uses it where it lies. There are SLOTS slots to a connection; a slot that the reader
does not give back is not written to, so a reader that is slow is waited for.

At the socket (SOCK_SEQPACKET) every packet is a JSON object:

    reader            {ticket, [authorization]}      the next stream, please: a ticket as in Flight, and the header that Flight would get
                      {free: n}                      slot n may be written to again
    queue manager     {slots: SLOTS}                 at the beginning, with as many descriptors of memory
                      {slot: n, size: bytes}         there lies a batch, as an Arrow IPC stream
                      {end: true}                    that was the last one of the stream; the next one may be asked for
                      {error, status, message}       so it ended, instead
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lanner.rpc.unix_path import short_path

SLOTS: Final = 4
# Ours: so many batches may be in a reader's hands before it gets copies: the memory of the others must go round.
HANDS: Final = SLOTS - 1
# Ours: a longer ticket is none of ours, but for Flight to refuse.
MAX_TICKET: Final = 1 << 15
_MAX_PACKET: Final = 1 << 18
_MEGABYTE: Final = 1 << 20
_ROOM: Final = 4096  # for the ends of an Arrow IPC stream, and its alignment

Packet = dict[str, Any]


def send(connection: socket.socket, packet: Packet) -> None:
    connection.sendall(json.dumps(packet).encode())


def receive(connection: socket.socket) -> Packet | None:
    """The next packet; None: the other side is gone."""
    try:
        raw = connection.recv(_MAX_PACKET)
    except ConnectionError:
        return None
    packet: Packet | None = json.loads(raw) if raw else None
    return packet


class Slot:
    """Memory to which batches are written, as long as it must be."""

    def __init__(self) -> None:
        self.file = os.memfd_create("lanner-batch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # A reader that made it shorter would end the process that writes there.
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._schema, self._schema_size = None, 0  # of the batch before
        self._memory: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def write(self, batch: pa.RecordBatch) -> int:
        """Put a batch there; how long it is."""
        if batch.schema != self._schema:
            self._schema, self._schema_size = batch.schema, batch.schema.serialize().size
        needed = self._schema_size + pa.ipc.get_record_batch_size(batch) + _ROOM
        if needed > len(self._memory):
            size = -(-needed // _MEGABYTE) * _MEGABYTE
            os.ftruncate(self.file, size)
            self._memory = np.frombuffer(mmap.mmap(self.file, size), np.uint8)
        with pa.FixedSizeBufferWriter(pa.py_buffer(self._memory)) as sink:
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            return int(sink.tell())

    def close(self) -> None:
        os.close(self.file)


class NearReader:
    """A connection of a program that reads; one stream at a time. The batches stay good when it is closed."""

    def __init__(self, path: Path) -> None:
        self._files: list[int] = []
        self._in_hands: set[int] = set()
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with short_path(path) as short:
                self._connection.connect(str(short))
            _, self._files, _, _ = socket.recv_fds(self._connection, _MAX_PACKET, SLOTS)
        except BaseException:
            self._connection.close()
            raise
        self._maps: list[mmap.mmap | None] = [None] * len(self._files)
        if len(self._files) != SLOTS:
            self.close()
            raise ConnectionError(f"{path}: {len(self._files)} slots, {SLOTS} expected")

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        while self._files:
            os.close(self._files.pop())

    def read(
        self, ticket: bytes, authorization: str | None, refused: Callable[[Packet], Exception]
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a stream. Who goes away before the end must close the connection."""
        send(self._connection, {"ticket": ticket.decode("utf-8", "replace"), "authorization": authorization})
        while True:
            packet = receive(self._connection)
            if packet is None:
                raise ConnectionError("the queue manager has closed the stream")
            if "slot" not in packet:
                break
            yield self._batch(packet["slot"], packet["size"])
        if "error" in packet:
            raise refused(packet)

    def _batch(self, slot: int, size: int) -> pa.RecordBatch:
        mapped = self._maps[slot]
        if mapped is None or len(mapped) < size:
            mapped = self._maps[slot] = mmap.mmap(
                self._files[slot], os.fstat(self._files[slot]).st_size, prot=mmap.PROT_READ
            )
        # An object of its own for each batch: it goes with the last array that looks at it.
        memory = np.frombuffer(mapped, np.uint8, size)
        self._in_hands.add(slot)
        weakref.finalize(memory, self._given_back, slot).atexit = False
        if len(self._in_hands) > HANDS:
            memory = memory.copy()
        return pa.ipc.open_stream(pa.py_buffer(memory)).read_next_batch()

    def _given_back(self, slot: int) -> None:
        self._in_hands.discard(slot)
        # It may come long after the end, and in any thread.
        with contextlib.suppress(OSError):
            send(self._connection, {"free": slot})
