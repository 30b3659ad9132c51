"""A wire to an RPC server that knows which calls it carries, and can lose them or their answers."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Final, Self

from lanner.rpc.interface import Method
from lanner.rpc.pdu import PacketType
from tests.cli.conftest import free_address

# C706 12.6.3.1, 12.6.4.9: where the common header has PTYPE and frag_length, and a request its
# opnum.
_PTYPE: Final = 2
_FRAG_LENGTH: Final = slice(8, 10)
_OPNUM: Final = slice(22, 24)
_U16: Final = struct.Struct("<H")


class RpcWire:
    """A TCP proxy in front of a server.

    Interfaces share opnums: say what to do right before the call.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.address, self._target = free_address(), target
        self.port = target[1]
        # The opnums of the requests so far.
        self.seen: list[int] = []
        self._cut_at: int | None = None
        self._skipped = 0
        self._is_carried = False
        self._loses_answers = False
        self._opening_call: int | None = None
        self._closing_count = 0
        self._gate = threading.Event()
        self._gate.set()
        self._listening = socket.create_server((self.address, self.port))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut_at(self, method: Method, *, is_carried: bool, skip: int = 0) -> None:
        """Hang up at a call: before it reaches the server, or when the server has answered it."""
        self._cut_at, self._is_carried, self._skipped = method.opnum, is_carried, skip

    def hold_answers(self, until: Method | None = None, since: int = 0) -> None:
        """Keep answers back from a number of calls on, until a call is seen."""
        self.seen.clear()
        self._opening_call = None if until is None else until.opnum
        self._closing_count = since
        if not since:
            self._gate.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for work in (self._carry_requests, self._carry_answers):
                self._threads.append(threading.Thread(target=work, args=(client, server)))
                self._threads[-1].start()

    def _carry_requests(self, client: socket.socket, server: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            while more := client.recv(65536):
                data += more
                while len(data) >= 16 and len(data) >= (size := _U16.unpack(data[_FRAG_LENGTH])[0]):
                    pdu, data = data[:size], data[size:]
                    if not self._see(pdu):
                        return _hang_up(client, server)
                    server.sendall(pdu)
        return _hang_up(client, server)

    def _see(self, pdu: bytes) -> bool:
        """Return whether a PDU is carried."""
        if pdu[_PTYPE] != PacketType.REQUEST:
            return True
        opnum = _U16.unpack(pdu[_OPNUM])[0]
        self.seen.append(opnum)
        if len(self.seen) == self._closing_count:
            self._gate.clear()
        if opnum == self._opening_call:
            self._gate.set()
        if opnum != self._cut_at:
            return True
        if self._skipped:
            self._skipped -= 1
            return True
        self._cut_at = None
        self._loses_answers = self._is_carried
        return self._is_carried

    def _carry_answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self._gate.wait()
                if self._loses_answers:
                    self._loses_answers = False
                    break
                client.sendall(data)
        _hang_up(client, server)

    def close(self) -> None:
        self._gate.set()
        _hang_up(self._listening, *self._sockets)
        for thread in self._threads:
            thread.join()
        for one in (self._listening, *self._sockets):
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hang_up(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
