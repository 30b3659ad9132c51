"""A management service on a real RPC server in a thread, and a client that sends octets.

The test holds the lock of a `Harness`'s engine; the lock is released while a call is under way.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from lanner.engine import Engine
from lanner.host.committer import Committer
from lanner.rpc.endpoint_mapper import EndpointMapper
from lanner.rpc.mgmt import MgmtInterface
from lanner.rpc.security import SecurityProviders
from lanner.rpc.server import RpcServer
from lanner.security.identity import ANONYMOUS, Identity
from lanner.services.interfaces.mqmr import R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO, MgmtObject
from lanner.services.management import ManagementService
from lanner.services.queue_formats import queue_format_of
from lanner.transfer.transfer import Transfer
from lanner.wire.format_name import parse
from lanner.wire.propvariant import NULL, PropVariant, Value
from lanner.wire.sid import Sid
from tests.engine.harness import Harness

T = TypeVar("T")

QMMGMT_UUID = UUID("41208ee0-e970-11d1-9b9e-00e02c064c39")
NDR = (UUID("8a885d04-1ceb-11c9-9fe8-08002b104860"), 2)
NDR64 = (UUID("71710533-beba-4937-8319-b5dbef9ccc36"), 1)
MACHINE = MgmtObject(1, 0)
SESSION = MgmtObject(3, 0)

# The caller without authentication, in tests that do not concern access.
ADMINISTRATOR = Identity("operator", ANONYMOUS.sid, is_administrator=True)


def queue_object(name: str) -> MgmtObject:
    return MgmtObject(2, queue_format_of(parse(name)))


class Fault(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"fault {status:#010x}")
        self.status = status


class Connection:
    """A connection of a client that does not authenticate itself."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._call_id = 0

    def close(self) -> None:
        self._socket.close()

    def bind(
        self, uuid: UUID = QMMGMT_UUID, version: int = 1, syntaxes: Sequence[tuple[UUID, int]] = (NDR,)
    ) -> list[tuple[int, int]]:
        """Offer the interface in contexts with one transfer syntax each.

        Return the result and reason of each context.
        """
        body = struct.pack("<HHIB3x", 5840, 5840, 0, len(syntaxes))
        for number, (syntax, syntax_version) in enumerate(syntaxes):
            body += struct.pack("<HBx16sI16sI", number, 1, uuid.bytes_le, version, syntax.bytes_le, syntax_version)
        self._call_id += 1
        self._socket.sendall(struct.pack("<BBBBIHHI", 5, 0, 11, 3, 0x10, 16 + len(body), 0, self._call_id) + body)
        kind, octets = self._receive()
        assert kind == 12
        (size,) = struct.unpack_from("<H", octets, 24)
        place = 26 + size
        place += -place % 4
        results = [struct.unpack_from("<HH", octets, place + 4 + 24 * number) for number in range(octets[place])]
        return [(result, reason) for result, reason in results]

    def call(self, opnum: int, stub: bytes, context: int = 0) -> bytes:
        self._call_id += 1
        parts = [stub[place : place + 5000] for place in range(0, len(stub), 5000)] or [b""]
        for number, part in enumerate(parts):
            flags = (number == 0) | (number == len(parts) - 1) << 1
            head = struct.pack("<BBBBIHHI", 5, 0, 0, flags, 0x10, 24 + len(part), 0, self._call_id)
            self._socket.sendall(head + struct.pack("<IHH", len(part), context, opnum) + part)
        answer = b""
        while True:
            kind, octets = self._receive()
            if kind == 3:
                raise Fault(struct.unpack_from("<I", octets, 24)[0])
            assert kind == 2
            answer += octets[24:]
            if octets[3] & 2:
                return answer

    def _receive(self) -> tuple[int, bytes]:
        head = self._exactly(16)
        (size,) = struct.unpack_from("<H", head, 8)
        return head[2], head + self._exactly(size - 16)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise ConnectionError("the server hung up")
            found += part
        return found


@dataclass
class Caller:
    """The identity of an anonymous caller, at first an administrator; a test may change it."""

    identity: Identity | None = ADMINISTRATOR

    def resolve(self, sid: Sid) -> Identity | None:
        return self.identity if sid == ANONYMOUS.sid else None


class Managed:
    """The service of one queue manager, and a client that is bound to it."""

    def __init__(
        self,
        h: Harness,
        transfer: Transfer | None = None,
        providers: SecurityProviders | None = None,
        *,
        engine: Engine | None = None,
    ) -> None:
        """`engine` is what the service gets in place of the harness's own."""
        self.h = h
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._committer = Committer(h.store, self._loop)
        self.service = ManagementService(engine or h.engine, self._committer, transfer)
        self.server = RpcServer([self.service], providers=providers)
        self.server.register(EndpointMapper(self.server))
        self.server.register(MgmtInterface(self.server))
        self.port = self.run(self.server.listen_tcp("127.0.0.1", 0))
        self._connections: list[Connection] = []
        self._bound: Connection | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self.unlocked():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        self.h.store.lock.release()
        try:
            yield
        finally:
            self.h.store.lock.acquire()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self.run(self.server.stop())
        with self.unlocked():
            self._committer.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def connect(self) -> Connection:
        connection = Connection(self.port)
        self._connections.append(connection)
        return connection

    @property
    def bound(self) -> Connection:
        if self._bound is None:
            self._bound = self.connect()
            assert self._bound.bind() == [(0, 0)]
        return self._bound

    def call(self, opnum: int, stub: bytes, connection: Connection | None = None) -> bytes:
        with self.unlocked():
            return (connection or self.bound).call(opnum, stub)

    def get_info(
        self,
        subject: MgmtObject | str,
        properties: Sequence[int],
        variants: Sequence[PropVariant] | None = None,
        connection: Connection | None = None,
    ) -> tuple[int, tuple[PropVariant, ...]]:
        """Status and apVar."""
        arguments: dict[str, Any] = {
            "p_object_format": queue_object(subject) if isinstance(subject, str) else subject,
            "cp": len(properties),
            "a_prop": tuple(properties),
            "ap_var": tuple(variants or [NULL] * len(properties)),
        }
        stub = self.call(0, R_QM_MGMT_GET_INFO.encode_request(arguments), connection)
        results: dict[str, Any] = R_QM_MGMT_GET_INFO.decode_response(stub, arguments)
        return results["returns"], results["ap_var"]

    def variant(self, subject: MgmtObject | str, identifier: int) -> PropVariant:
        status, (variant,) = self.get_info(subject, [identifier])
        assert status == 0, f"{status:#010x}"
        return variant

    def value(self, subject: MgmtObject | str, identifier: int) -> Value:
        """The value of a property, None for VT_NULL."""
        return self.variant(subject, identifier).value

    def status(self, subject: MgmtObject | str, identifier: int = 1, connection: Connection | None = None) -> int:
        return self.get_info(subject, [identifier], connection=connection)[0]

    def action(self, subject: MgmtObject | str, word: str, connection: Connection | None = None) -> int:
        subject = queue_object(subject) if isinstance(subject, str) else subject
        arguments = {"p_object_format": subject, "lpwsz_action": word}
        stub = self.call(1, R_QM_MGMT_ACTION.encode_request(arguments), connection)
        status = R_QM_MGMT_ACTION.decode_response(stub, arguments)["returns"]
        assert isinstance(status, int)
        return status


@contextmanager
def managed(path: Path, caller: Caller | None = None, **settings: Any) -> Iterator[Managed]:  # noqa: ANN401 (of EngineSettings)
    """Run a queue manager without transfer, and its service.

    A caller that does not authenticate has the identity `caller`.
    """
    h = Harness(path, resolve_identity=(caller or Caller()).resolve, **settings)
    try:
        service = Managed(h)
        try:
            yield service
        finally:
            service.close()
    finally:
        h.close()
