"""A minimal transfer in Python: frames, a window, one commit and acknowledgment per batch.

    python -m bench.skeleton ADDRESS PORT [DIRECTORY]

receives frames of a fixed size. With a directory, a thread syncs each batch to LMDB before it is
acknowledged.
"""

from __future__ import annotations

import asyncio
import queue
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

import lmdb
import uvloop

from bench.floor import PACKET

WINDOW = 64
_ACK = struct.Struct("<Q")
_KEY = struct.Struct(">Q")
_MAP_SIZE = 1 << 36


class _Receiver(asyncio.BufferedProtocol):
    def __init__(self, environment: lmdb.Environment | None) -> None:
        self._buffer = memoryview(bytearray(256 << 10))
        self._rest = b""
        self._count = 0
        self._is_durable = environment is not None
        self._waiting: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        if environment is not None:
            threading.Thread(target=self._write, args=(environment,), daemon=True).start()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        data = self._rest + self._buffer[:size]
        step = len(PACKET)
        packets = [data[at : at + step] for at in range(0, len(data) - step + 1, step)]
        self._rest = data[len(packets) * step :]
        if not self._is_durable:
            self._acknowledge(len(packets))
        elif packets:
            self._waiting.put(packets)

    def _write(self, environment: lmdb.Environment) -> None:
        # An earlier connection may have left packets here. LMDB ignores an append that does not
        # come after the last key, so numbering from 1 again would measure a receiver that stores
        # nothing.
        with environment.begin() as transaction, transaction.cursor() as cursor:
            number = _KEY.unpack(cursor.key())[0] if cursor.last() else 0
        while True:
            packets = self._waiting.get()
            while not self._waiting.empty():
                packets += self._waiting.get()
            with environment.begin(write=True) as transaction:
                for packet in packets:
                    number += 1
                    if not transaction.put(_KEY.pack(number), packet, append=True):
                        raise RuntimeError(f"packet {number} was not stored: LMDB has a key at or after it")
            self._loop.call_soon_threadsafe(self._acknowledge, len(packets))

    def _acknowledge(self, count: int) -> None:
        self._count += count
        self._transport.write(_ACK.pack(self._count))


class Skeleton:
    """The sender, and the process of the receiver."""

    def __init__(self, address: str, port: int, directory: Path | None) -> None:
        command = [sys.executable, "-m", "bench.skeleton", address, str(port)]
        if directory is not None:
            directory.mkdir()
            command.append(str(directory))
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self._process.stdout is None or not self._process.stdout.readline():
            raise RuntimeError("the skeleton does not start")
        self._address, self._port = address, port

    def rate(self, count: int) -> float:
        """Return the messages per second until the last one is acknowledged."""
        return uvloop.run(self._rate(count))

    async def _rate(self, count: int) -> float:
        reader, writer = await asyncio.open_connection(self._address, self._port)
        start = time.perf_counter()
        sent = acked = 0
        while acked < count:
            room = min(WINDOW - (sent - acked), count - sent)
            if room:
                writer.writelines([PACKET] * room)
                sent += room
            data = await reader.read(1 << 16)
            data += await reader.readexactly(-len(data) % _ACK.size)
            (acked,) = _ACK.unpack_from(data, len(data) - _ACK.size)
        rate = count / (time.perf_counter() - start)
        writer.close()
        await writer.wait_closed()
        return rate

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


async def _serve(address: str, port: int, directory: str | None) -> None:
    environment = None if directory is None else lmdb.open(directory, map_size=_MAP_SIZE, readahead=False)
    server = await asyncio.get_running_loop().create_server(lambda: _Receiver(environment), address, port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
