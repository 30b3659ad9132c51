"""A connection to a service that is cut at a chosen point, on a Unix socket or TCP.

It counts the last fragments of PDUs (MS-RPCE 2.2.2) and the frames between them, whose headers are
readable whatever the level of protection: one for each request, one for each answer.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Final, Literal, Self

from lanner.rpc.frames import FIRST_OCTET, HEADER_SIZE
from lanner.services.ports import LOCAL_SOCKET
from tests.client.peers import free_address
from tests.contract.service import Service

_CHUNK: Final = 1 << 16
_LAST_FRAGMENT: Final = 0x02
# Where a PDU has its flags and its length.
_FLAGS: Final = 3
_LENGTH: Final = 8
_HEADER: Final = 16


class Proxy:
    """Forwards connections to a service until told to lose a call."""

    def __init__(self, service: Service, kind: str, directory: Path) -> None:
        self._service = service
        self._is_unix = kind == "unix"
        self.data = directory
        self.address = free_address()
        self._left: int | None = None
        self._is_done = False
        if self._is_unix:
            directory.mkdir()
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(str(directory / LOCAL_SOCKET))
            self._listening.listen()
            self.port = 0
        else:
            self._listening = socket.create_server((self.address, 0))
            self.port = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose_call(self, number: int, *, when: Literal["asked", "done"]) -> None:
        """Cut the connection at the n-th call from now, before it is forwarded or once answered."""
        self._left, self._is_done = number, when == "done"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        if self._is_unix:
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._service.data / LOCAL_SOCKET))
        else:
            server = socket.create_connection((self._service.address, self._service.port))
        with client, server:
            answers = threading.Thread(target=self._carry, args=(server, client), kwargs={"is_answer": True})
            answers.start()
            self._carry(client, server, is_answer=False)
            answers.join()

    def _carry(self, source: socket.socket, sink: socket.socket, *, is_answer: bool) -> None:
        received = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                received += data
                while len(received) >= _HEADER:
                    is_frame = received[0] == FIRST_OCTET
                    if is_frame:
                        size = HEADER_SIZE + int.from_bytes(received[4:HEADER_SIZE], "little")
                    else:
                        size = int.from_bytes(received[_LENGTH : _LENGTH + 2], "little")
                    if len(received) < size:
                        break
                    pdu = bytes(received[:size])
                    del received[:size]
                    if (is_frame or pdu[_FLAGS] & _LAST_FRAGMENT) and self._is_lost(is_answer=is_answer):
                        self._cut(source, sink)
                        return
                    sink.sendall(pdu)
        self._cut(source, sink)

    def _is_lost(self, *, is_answer: bool) -> bool:
        if self._left is None or is_answer is not self._is_done:
            return False
        self._left -= 1
        if self._left:
            return False
        self._left = None
        return True

    @staticmethod
    def _cut(*both: socket.socket) -> None:
        for one in both:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def listen_no_more(self) -> None:
        """Accept no more connections; those that are open stay."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def close(self) -> None:
        """Accept no more connections. Those that are open end with their clients."""
        self.listen_no_more()
        for thread in self._threads:
            thread.join(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
