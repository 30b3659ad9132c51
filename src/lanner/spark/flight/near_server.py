"""The server side of `near_streams`: a socket in the data directory, one thread per connection."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lanner.host.accepting import peer_at
from lanner.host.budget import Door, Pass
from lanner.model.errors import LannerError
from lanner.rpc.server_socket import bind_unix
from lanner.security.log_lines import log_of_peer
from lanner.spark.columnar.packet_source import PacketBatch, PacketSource
from lanner.spark.columnar.vectors import Octets
from lanner.spark.flight.near_streams import SLOTS, Frame, Slot, greeting, receive, send
from lanner.spark.flight.refusals import refusal

_LOG = logging.getLogger(__name__)

# The name of the socket in the data directory. The directory's permissions decide who can connect.
SOCKET: Final = "streams.sock"
# Not in the specification: seconds before accepting is retried; milliseconds after which an idle
# connection returns its memory.
_PAUSE: Final = 0.5
_QUIET_MS: Final = 1000

# Returns the messages that a header and a ticket select, or raises a LannerError.
Streaming = Callable[[str | None, bytes], PacketSource]


class NearServer:
    """The listener. It accepts connections from its construction until `stop`."""

    def __init__(self, directory: Path, identifier: str, streaming: Streaming, door: Door) -> None:
        """Listen. `identifier`: of the queue manager; `door`: admits connections.

        Raises OSError if that is not possible.
        """
        self.path = directory.resolve() / SOCKET
        self._greeting = greeting(identifier)
        self._streaming = streaming
        self._door = door
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
        """End all streams. Returns False if one is still making a batch, after which it ends."""
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
            except OSError as error:
                if self._is_stopping:
                    return
                # For example, the process is out of descriptors. Meanwhile clients use the port.
                text = "a connection for streams could not be taken: %s"
                log_of_peer(_LOG, logging.WARNING, "accept", "", text, error)
                time.sleep(_PAUSE)
                continue
            with self._lock:
                granted = None if self._is_stopping else self._door.admit(peer_at(connection))
                if granted is None:
                    # The client falls back to the port, which reports the reason.
                    connection.close()
                    continue
                arguments = (connection, granted)
                thread = threading.Thread(target=self._serve, args=arguments, name="lanner-near", daemon=True)
                self._connections[connection] = thread
                try:
                    thread.start()
                except RuntimeError as error:
                    _LOG.warning("a connection for streams could not be served: %s", error)
                    del self._connections[connection]
                    connection.close()
                    granted.give_back()

    def _serve(self, connection: socket.socket, granted: Pass) -> None:
        try:
            with contextlib.closing(_Slots(connection)) as slots:
                slots.show(self._greeting)
                while True:
                    if not slots.are_empty and _is_quiet(connection):
                        slots.empty()
                    frame = receive(connection)
                    if frame is None:
                        return
                    if "free" in frame:
                        slots.take_back(frame)
                    else:
                        self._answer(connection, frame, slots)
        except ConnectionError:
            pass  # The reader has disconnected.
        except Exception:  # noqa: BLE001 (logged; the reader sees the connection end)
            log_of_peer(_LOG, logging.ERROR, "failed", granted.peer, "a connection for streams failed", exc_info=True)
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()
            granted.give_back()

    def _answer(self, connection: socket.socket, request: Frame, slots: _Slots) -> None:
        end: Frame = {"end": True}
        try:
            header, ticket = request.get("authorization"), request["ticket"].encode()
            source = self._streaming(header, ticket)
            with contextlib.closing(source.packet_batches(slots.room)) as batches:
                send(connection, {"place": dataclasses.asdict(source.place)})
                # Wait for a free slot before making a batch: a snapshot of the store must not wait
                # for a reader.
                while slots.wait() and (batch := next(batches, None)) is not None:
                    slots.hand_out(batch)
        except LannerError as error:
            end = json.loads(refusal(error))
        send(connection, end)


def _is_quiet(connection: socket.socket) -> bool:
    """Return whether nothing arrives for a while."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(_QUIET_MS)


class _Slots:
    """The memory of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._slots: list[Slot] = []
        self._free = set(range(SLOTS))
        self._current = 0
        self.are_empty = True

    def show(self, greeting: bytes) -> None:
        for _ in range(SLOTS):
            self._slots.append(Slot())  # one by one: `close` must find every descriptor
        socket.send_fds(self._connection, [greeting], [slot.file for slot in self._slots])

    def take_back(self, frame: Frame) -> None:
        """Mark the slot that the reader has freed."""
        number = frame.get("free")
        if type(number) is not int or number not in range(SLOTS) or number in self._free:
            # The frame is not shown: it may have a token.
            raise ValueError("what came is not a slot that was handed out")
        self._free.add(number)

    def wait(self) -> bool:
        """Wait until a slot is free, and make it the current one. Returns False on disconnect."""
        while not self._free:
            frame = receive(self._connection)
            if frame is None:
                return False
            self.take_back(frame)
        self._current = min(self._free)
        return True

    def room(self, size: int) -> Octets:
        """Return memory of the current slot."""
        self.are_empty = False
        return self._slots[self._current].room(size)

    def hand_out(self, batch: PacketBatch) -> None:
        """Announce the batch in the current slot to the reader."""
        self._free.discard(self._current)
        told = self._slots[self._current].finish(batch)
        send(self._connection, {"slot": self._current, **told})

    def empty(self) -> None:
        """Return the memory of all free slots to the system."""
        for number in self._free:
            self._slots[number].empty()
        self.are_empty = len(self._free) == SLOTS

    def close(self) -> None:
        for slot in self._slots:
            slot.close()
