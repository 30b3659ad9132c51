"""Peers that a sender may connect to.

These are a queue manager, a queue manager behind a wire that can be cut, and misbehaving peers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Self
from uuid import UUID

from lanner.client import Queue
from lanner.transfer.events import Event, UserMessagesReceived
from lanner.transfer.session import Session
from lanner.transfer.settings import TransferSettings

PORT = 21801
SETTINGS = TransferSettings(port=PORT, try_connect_interval=0.02, order_ack_timeout=0.01)
PEER_GUID = UUID("11111111-2222-3333-4444-555555555555")

_numbers = itertools.count()


def free_address() -> str:
    """Return an unused loopback address."""
    process, number = os.getpid(), next(_numbers)
    return f"127.{31 + process // 250 % 60}.{process % 250}.{1 + number % 250}"


def arrived(queue: Queue, count: int) -> None:
    """Wait until so many messages are in a queue."""
    while queue.count() < count:
        time.sleep(0.001)


class Server:
    """A server that accepts connections one by one and handles each as told, until it is closed."""

    def __init__(self, handle: Callable[[socket.socket], None], address: str = "") -> None:
        self.address = address or free_address()
        self.connections = 0
        self.is_over = threading.Event()
        self._handle = handle
        self._listening = socket.create_server((self.address, PORT))
        self._current: socket.socket | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.is_over.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                self._current = connection
                if self.is_over.is_set():
                    return
                self.connections += 1
                with contextlib.suppress(OSError):
                    self._handle(connection)
                self._current = None

    def close(self) -> None:
        self.is_over.set()
        for found in (self._listening, self._current):
            if found is not None:
                with contextlib.suppress(OSError):
                    found.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def never_answer(connection: socket.socket) -> None:
    """Read and say nothing."""
    while connection.recv(65536):
        pass


class Script:
    """A scripted queue manager: accepts messages and acknowledges them up to a number."""

    def __init__(self, on_event: Callable[[Session, Event], object]) -> None:
        self._on_event = on_event
        self.packets: list[bytes] = []
        self.sessions: list[Session] = []

    def __call__(self, connection: socket.socket) -> None:
        session = Session.accept(
            own_guid=PEER_GUID, settings=SETTINGS, monotonic=time.monotonic, admit=lambda _header: True
        )
        self.sessions.append(session)
        while data := connection.recv(65536):
            for event in session.receive(data):
                if isinstance(event, UserMessagesReceived):
                    self.packets += event.packets
                if self._on_event(session, event) is False:
                    return
            connection.sendall(b"".join(session.data_to_send()))


class Wire(Server):
    """A queue manager behind a wire that may lose all it says."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.is_deaf = False
        super().__init__(self._carry)

    def _carry(self, client: socket.socket) -> None:
        with socket.create_connection((self._target, PORT)) as server:
            self._pair = (client, server)
            poll = select.poll()
            for each in (client, server):
                poll.register(each, select.POLLIN)
            while True:
                for number, _ in poll.poll():
                    source, sink = (client, server) if number == client.fileno() else (server, client)
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client or not self.is_deaf:
                        sink.sendall(data)

    def cut(self) -> None:
        for each in self._pair:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
