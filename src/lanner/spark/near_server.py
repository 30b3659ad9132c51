"""The queue manager's side of `near_streams`: a socket in the data directory, and a thread for each connection."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from lanner.model.errors import LannerError
from lanner.rpc.server_socket import bind_unix
from lanner.spark.flight_auth import refusal
from lanner.spark.near_streams import SLOTS, Packet, Slot, receive, send

_LOG = logging.getLogger(__name__)

# Its name in the data directory, for whoever may go in there.
SOCKET: Final = "streams.sock"

# The batches that a header and a ticket give; an error of ours says why not.
Batches = Callable[[str | None, bytes], Iterator[pa.RecordBatch]]


class NearServer:
    """Listens from its construction on, until it is stopped."""

    def __init__(self, directory: Path, batches: Batches, most: int) -> None:
        """`most`: so many connections at a time; an OSError says why there can be none."""
        self.path = directory.resolve() / SOCKET
        self._batches = batches
        self._most = most
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._is_stopping = False
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            bind_unix(self._listening, self.path, 0o600)
            self._listening.listen()
        except BaseException:
            self._listening.close()
            raise
        self._accepting = threading.Thread(target=self._accept, name="lanner-near", daemon=True)
        self._accepting.start()

    def stop(self, timeout: float) -> bool:
        """End all streams. False: one is still at a batch, and ends with it."""
        with self._lock:
            self._is_stopping = True
            threads = [self._accepting, *self._connections.values()]
            for connection in (self._listening, *self._connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(timeout)
        self._listening.close()
        self.path.unlink(missing_ok=True)
        return not any(thread.is_alive() for thread in threads)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                if self._is_stopping or len(self._connections) == self._most:
                    # There is the port, too, and it tells why not.
                    connection.close()
                    continue
                thread = threading.Thread(target=self._serve, args=(connection,), name="lanner-near", daemon=True)
                self._connections[connection] = thread
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        slots: list[Slot] = []
        try:
            slots += [Slot() for _ in range(SLOTS)]
            socket.send_fds(connection, [json.dumps({"slots": SLOTS}).encode()], [slot.file for slot in slots])
            free = set(range(SLOTS))
            while (packet := receive(connection)) is not None:
                if "free" in packet:
                    free.add(packet["free"])
                else:
                    self._answer(connection, packet, slots, free)
        except OSError:
            pass  # The reader is gone.
        except Exception:  # noqa: BLE001 (logged; the reader sees the connection end)
            _LOG.exception("a connection for streams failed")
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()
            for slot in slots:
                slot.close()

    def _answer(self, connection: socket.socket, request: Packet, slots: list[Slot], free: set[int]) -> None:
        end: Packet = {"end": True}
        try:
            with contextlib.closing(self._batches(request["authorization"], request["ticket"].encode())) as batches:  # type: ignore[type-var]  # a generator
                for batch in batches:
                    while not free:
                        packet = receive(connection)
                        if packet is None:
                            return
                        free.add(packet["free"])
                    slot = free.pop()
                    send(connection, {"slot": slot, "size": slots[slot].write(batch)})
        except LannerError as error:
            end = json.loads(refusal(error))
        send(connection, end)
