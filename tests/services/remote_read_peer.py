"""A queue manager that serves remote reads on loopback, and a small RPC client.

The client sends bare PDUs, so that a test can misbehave; stubs are written from the declared
interfaces. `served` makes a test of a coroutine that takes the queue manager.
"""

# What a method takes is told by its declaration, and a read's time-out is the protocol's.
# ruff: noqa: ANN401, ASYNC109

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from lanner.host.addresses import local_settings
from lanner.host.committer import Committer
from lanner.host.runtime import Runtime
from lanner.model.errors import LannerError
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer, ServerInterface
from lanner.services.guesses import Guesses
from lanner.services.interfaces import mqmp, mqqp
from lanner.services.interfaces.mqmp import QMCOMM, CACCreateRemoteCursor, CACTransferBufferV1
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqqp import QM2QM, RemoteReadDesc, RemoteReadDesc2
from lanner.services.ports import ServerPorts
from lanner.services.queue_client_remote import RemoteOpens
from lanner.services.remote_queues import RemoteQueues, RemoteReadEntry
from lanner.services.remote_read import MQ_ACTION_RECEIVE, RemoteRead
from tests.services.site import ADDRESS, tell_later, tests_of, until
from tests.services.site import Site as BaseSite

CLIENT_ID = UUID("0badc0de-0000-4000-8000-000000000001")
INFINITE = 0xFFFF_FFFF

NDR20 = UUID("8a885d04-1ceb-11c9-9fe8-08002b104860").bytes_le + struct.pack("<I", 2)
NDR64 = UUID("71710533-beba-4937-8319-b5dbef9ccc36").bytes_le + struct.pack("<I", 1)
SYNTAXES = {Syntax.NDR20: NDR20, Syntax.NDR64: NDR64}
REQUEST, RESPONSE, FAULT, BIND, BIND_ACK, ALTER, ALTER_RESP, CO_CANCEL, ORPHANED = 0, 2, 3, 11, 12, 14, 15, 18, 19
WHOLE, MULTIPLEX = 0x03, 0x10


class Fault(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"{status:#010x}")
        self.status = status


def pdu(kind: int, call_id: int, body: bytes, flags: int = WHOLE) -> bytes:
    return struct.pack("<BBBBIHHI", 5, 0, kind, flags, 0x10, 16 + len(body), 0, call_id) + body


def context(context_id: int, interface: Interface | tuple[UUID, int], *transfer_syntaxes: bytes) -> bytes:
    """A presentation context of a bind; a pair is a UUID and a major version."""
    uuid, version = interface if isinstance(interface, tuple) else (interface.uuid, interface.version[0])
    head = struct.pack("<HBB", context_id, len(transfer_syntaxes), 0)
    return head + uuid.bytes_le + struct.pack("<I", version) + b"".join(transfer_syntaxes)


class Peer:
    """One connection; many calls at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._last_call = 0
        self._contexts: dict[Interface, tuple[int, Syntax]] = {}
        self._parts: dict[int, bytes] = {}
        self.fragments: list[int] = []
        self.group = 0
        self._task = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def connect(
        cls,
        port: int,
        *interfaces: Interface,
        syntax: Syntax = Syntax.NDR20,
        group: int = 0,
        address: str = ADDRESS,
        local_address: str | None = None,
    ) -> Self:
        """Connect and bind, by default to qm2qm and qmcomm, the latter in NDR as it is declared."""
        local = None if local_address is None else (local_address, 0)
        peer = cls(*await asyncio.open_connection(address, port, local_addr=local))
        offers = []
        for number, interface in enumerate(interfaces or (QM2QM, QMCOMM)):
            used = syntax if syntax in interface.syntaxes else Syntax.NDR20
            peer._contexts[interface] = number, used
            offers.append(context(number, interface, SYNTAXES[used]))
        results = await peer.bind(offers, group=group)
        assert [result for result, _, _ in results] == [0] * len(offers), results
        return peer

    async def bind(self, offers: list[bytes], *, group: int = 0) -> list[tuple[int, int, bytes]]:
        """(result, reason, transfer syntax) of every context."""
        head = struct.pack("<HHIB3x", 5840, 5840, group, len(offers))
        kind, body = await self._exchange(BIND, head + b"".join(offers), MULTIPLEX | WHOLE)
        assert kind == BIND_ACK, body.hex()
        self.group, size = struct.unpack_from("<IH", body, 4)
        offset = 10 + size
        offset += -(16 + offset) % 4
        count = body[offset]
        offset += 4
        return [
            (*struct.unpack_from("<HH", body, offset + 24 * number), body[offset + 24 * number + 4 :][:20])
            for number in range(count)
        ]

    def _send(self, kind: int, body: bytes, flags: int = WHOLE, call_id: int | None = None) -> int:
        if call_id is None:
            self._last_call += 1
            call_id = self._last_call
        self._writer.write(pdu(kind, call_id, body, flags))
        return call_id

    async def _exchange(self, kind: int, body: bytes, flags: int = WHOLE) -> tuple[int, bytes]:
        return await self._expect(self._send(kind, body, flags))

    def _expect(self, call_id: int) -> asyncio.Future[tuple[int, bytes]]:
        future = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        return future

    async def raw(self, interface: Interface, opnum: int, stub: bytes) -> bytes:
        """The stub that comes back; Fault otherwise."""
        return self._stub(await self._request(interface, opnum, stub))

    def _request(self, interface: Interface, opnum: int, stub: bytes) -> asyncio.Future[tuple[int, bytes]]:
        number, _ = self._contexts[interface]
        size = 5840 - 24
        pieces = [stub[start : start + size] for start in range(0, len(stub), size)] or [b""]
        call_id = None
        for index, piece in enumerate(pieces):
            flags = (1 if index == 0 else 0) | (2 if index == len(pieces) - 1 else 0)
            body = struct.pack("<IHH", len(stub), number, opnum) + piece
            call_id = self._send(REQUEST, body, flags, call_id)
        assert call_id is not None
        return self._expect(call_id)

    @staticmethod
    def _stub(answer: tuple[int, bytes]) -> bytes:
        kind, body = answer
        if kind == FAULT:
            raise Fault(struct.unpack_from("<I", body, 8)[0])
        assert kind == RESPONSE
        return body

    async def call(self, interface: Interface, method: Method, **arguments: Any) -> dict[str, Any]:
        """The results of a call by name."""
        return await self.begin(interface, method, **arguments)

    def begin(self, interface: Interface, method: Method, **arguments: Any) -> asyncio.Future[dict[str, Any]]:
        """Send a call now; what is returned waits for its end."""
        syntax = self._contexts[interface][1]
        answer = self._request(interface, method.opnum, method.encode_request(arguments, syntax))

        async def finish() -> dict[str, Any]:
            return method.decode_response(self._stub(await answer), arguments, syntax)

        return asyncio.ensure_future(finish())

    def cancel_last(self, kind: int = CO_CANCEL) -> None:
        """Ask for the last call to end early, or (ORPHANED) abandon it."""
        self._send(kind, b"", call_id=self._last_call)

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                header = await self._reader.readexactly(16)
                kind, flags = header[2], header[3]
                length, _, call_id = struct.unpack_from("<HHI", header, 8)
                body = await self._reader.readexactly(length - 16)
                if kind == RESPONSE:
                    self.fragments.append(length)
                    self._parts[call_id] = self._parts.get(call_id, b"") + body[8:]
                    if not flags & 2:
                        continue
                    body = self._parts.pop(call_id)
                future = self._calls.pop(call_id, None)
                if future is not None and not future.done():
                    future.set_result((kind, body))
        for future in self._calls.values():
            if not future.done():
                future.set_exception(ConnectionError("the server hung up"))

    @property
    def is_closed(self) -> bool:
        return self._task.done()

    def abort(self) -> None:
        """Hang up without a word."""
        self._task.cancel()
        self._writer.transport.abort()

    async def close(self) -> None:
        self.abort()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    # The methods, with what a good client passes
    # ---------------------------------------------------------------

    async def open_remote_queue(
        self, name: str = "OS:.\\private$\\q", access: int = 1, share: int = 0, **changes: Any
    ) -> dict[str, Any]:
        arguments = {
            "p_queue_format": QueueFormat(3, 0, 0, name),
            "dw_calling_process_id": 0,
            "dw_desired_access": access,
            "dw_share_mode": share,
            "p_lic_guid": CLIENT_ID,
            "dw_mqs": 0,
        } | changes
        return await self.call(QMCOMM, mqmp.R_QM_OPEN_REMOTE_QUEUE, **arguments)

    async def create_cursor(self, h_queue: int) -> int:
        results = await self.call(
            QMCOMM,
            mqmp.R_QM_CREATE_REMOTE_CURSOR,
            ptb1=CACTransferBufferV1(2, CACCreateRemoteCursor()),
            h_queue=h_queue,
        )
        assert results[RETURNS] == 0
        cursor: int = results["ph_cursor"]
        return cursor

    async def open_queue(self, handle: int, **changes: Any) -> dict[str, Any]:
        arguments = {
            "p_lic_guid": CLIENT_ID,
            "dw_mqs": 0,
            "h_queue": handle,
            "p_queue": handle,
            "dwp_context": handle,
        } | changes
        return await self.call(QM2QM, mqqp.REMOTE_QM_OPEN_QUEUE, **arguments)

    async def opened(self, name: str = "OS:.\\private$\\q", access: int = 1, share: int = 0) -> RemoteOpen:
        """Both halves of an open."""
        first = await self.open_remote_queue(name, access, share)
        assert first[RETURNS] == 0, hex(first[RETURNS])
        second = await self.open_queue(first["ph_queue"])
        assert second[RETURNS] == 0, hex(second[RETURNS])
        return RemoteOpen(self, first["ph_queue"], second["ph_context"], first["pph_context"])


@dataclass
class Read:
    """The result of a read."""

    status: int
    context: bytes
    desc: RemoteReadDesc | None
    sequential_id: int = 0

    @property
    def packet(self) -> bytes:
        assert self.status == 0, hex(self.status)
        assert self.desc is not None
        assert self.desc.lp_buffer is not None
        return self.desc.lp_buffer

    @property
    def body(self) -> bytes:
        from lanner.wire.message import Message as Packet

        return bytes(Packet(self.packet).body)


@dataclass
class RemoteOpen:
    """A queue that is open for reading."""

    peer: Peer
    handle: int
    context: bytes
    open_context: bytes
    _request_ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 32)))

    def desc(
        self, action: int = MQ_ACTION_RECEIVE, timeout: int = 0, cursor: int = 0, **changes: Any
    ) -> RemoteReadDesc:
        plain = RemoteReadDesc(
            self.handle, cursor, action, timeout, 0, self.handle, next(self._request_ids), 0, 0, 0, None
        )
        return replace(plain, **changes)

    def begin(
        self,
        action: int = MQ_ACTION_RECEIVE,
        timeout: int = 0,
        cursor: int = 0,
        *,
        peer: Peer | None = None,
        **changes: Any,
    ) -> asyncio.Future[Read]:
        desc = self.desc(action, timeout, cursor, **changes)
        answer = (peer or self.peer).begin(QM2QM, mqqp.REMOTE_QM_START_RECEIVE, lp_remote_read_desc=desc)

        async def finish() -> Read:
            results = await answer
            return Read(results[RETURNS], results["pph_context"], results["lp_remote_read_desc"])

        return asyncio.ensure_future(finish())

    async def read(self, action: int = MQ_ACTION_RECEIVE, timeout: int = 0, cursor: int = 0, **changes: Any) -> Read:
        return await self.begin(action, timeout, cursor, **changes)

    async def read2(self, action: int = MQ_ACTION_RECEIVE, timeout: int = 0, cursor: int = 0, **changes: Any) -> Read:
        return await self._second(mqqp.REMOTE_QM_START_RECEIVE2, self.desc(action, timeout, cursor, **changes), {})

    async def look_up(self, lookup_id: int, action: int, **changes: Any) -> Read:
        return await self._second(
            mqqp.REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID, self.desc(action, **changes), {"lookup_id": lookup_id}
        )

    async def _second(self, method: Method, desc: RemoteReadDesc | None, more: dict[str, Any]) -> Read:
        results = await self.peer.call(QM2QM, method, lp_remote_read_desc2=RemoteReadDesc2(desc, 0), **more)
        told = results["lp_remote_read_desc2"]
        return Read(results[RETURNS], results["pph_context"], told.p_remote_read_desc, told.sequential_id)

    async def end(self, context: bytes | Read, ack: int = 2, *, peer: Peer | None = None) -> int:
        """RemoteQMEndReceive; the handle that comes back is NULL."""
        if isinstance(context, Read):
            context = context.context
        results = await (peer or self.peer).call(QM2QM, mqqp.REMOTE_QM_END_RECEIVE, pph_context=context, dw_ack=ack)
        assert results["pph_context"] == NULL_HANDLE
        status: int = results[RETURNS]
        return status

    async def receive(self) -> bytes:
        """Both halves of a receive: the body."""
        read = await self.read()
        assert await self.end(read) == 0
        return read.body

    async def cancel(self, request_id: int, *, peer: Peer | None = None, **changes: Any) -> int:
        arguments = {"h_queue": self.handle, "p_queue": self.handle, "dw_request_id": request_id} | changes
        status: int = (await (peer or self.peer).call(QM2QM, mqqp.REMOTE_QM_CANCEL_RECEIVE, **arguments))[RETURNS]
        return status

    async def close(self) -> int:
        results = await self.peer.call(QM2QM, mqqp.REMOTE_QM_CLOSE_QUEUE, pph_context=self.context)
        assert results["pph_context"] == NULL_HANDLE
        status: int = results[RETURNS]
        return status

    async def close_cursor(self, cursor: int, **changes: Any) -> int:
        arguments = {"h_queue": self.handle, "h_cursor": cursor} | changes
        status: int = (await self.peer.call(QM2QM, mqqp.REMOTE_QM_CLOSE_CURSOR, **arguments))[RETURNS]
        return status

    async def purge(self, **changes: Any) -> int:
        arguments = {"h_queue": self.handle} | changes
        status: int = (await self.peer.call(QM2QM, mqqp.REMOTE_QM_PURGE_QUEUE, **arguments))[RETURNS]
        return status


class SteeredCommitter(Committer):
    """A committer whose disk is slow, full or watched, as a test says."""

    disk: Callable[[int], Awaitable[None]] | None = None

    def durable(self, batch: int) -> asyncio.Future[None]:
        return self.really_durable(batch) if self.disk is None else asyncio.ensure_future(self.disk(batch))

    def when_durable(self, batch: int, callback: Callable[[LannerError | None], None]) -> None:
        tell_later(self.durable(batch), callback)

    def really_durable(self, batch: int) -> asyncio.Future[None]:
        return super().durable(batch)


class Site(BaseSite):
    """A queue manager that serves remote reads."""

    def __init__(
        self,
        runtime: Runtime,
        server: RpcServer,
        queues: RemoteQueues,
        service: RemoteRead,
        port: int,
        committer: SteeredCommitter,
    ) -> None:
        super().__init__(runtime, server, port)
        self.queues = queues
        self.committer = committer
        self.service = service
        # Of the clock for guesses at open queues.
        self.now = 0.0
        self._peers: list[Peer] = []

    async def peer(self, *interfaces: Interface, **options: Any) -> Peer:
        peer = await Peer.connect(self.port, *interfaces, **options)
        self._peers.append(peer)
        return peer

    async def opened(
        self, name: str = "OS:.\\private$\\q", access: int = 1, share: int = 0, **options: Any
    ) -> RemoteOpen:
        """A new connection with an open queue."""
        peer = await self.peer(**options)
        return await peer.opened(name, access, share)

    async def close(self) -> None:
        for peer in self._peers:
            await peer.close()

    async def waiting(self, count: int) -> list[RemoteReadEntry]:
        """The pending reads, as soon as there are so many."""
        await until(lambda: len(list(self.queues.remote_read_entries)) == count)
        return list(self.queues.remote_read_entries)


@contextlib.asynccontextmanager
async def serving(path: Path, *, level: AuthLevel = AuthLevel.NONE, authenticates: bool = False) -> AsyncIterator[Site]:
    runtime = Runtime(path / "data", local_settings("alpha"))
    committer = SteeredCommitter(runtime.store, asyncio.get_running_loop())
    queues = RemoteQueues(runtime.engine, committer, Guesses(lambda: site.now))
    ports = ServerPorts()
    service = RemoteRead(queues, ports)
    opens = ServerInterface(QMCOMM, RemoteOpens(queues).handlers)
    providers = ServerSecurity(runtime.users, TargetNames("ALPHA", "MQ")) if authenticates else None
    server = RpcServer([service.interface, opens], users=runtime.users, providers=providers, authentication_level=level)
    ports.ip_read = ports.ip_handshake = await server.listen_tcp(ADDRESS, 0)
    site = Site(runtime, server, queues, service, ports.ip_read, committer)
    try:
        yield site
    finally:
        await site.close()
        await server.stop()
        committer.close()
        runtime.close()


served = tests_of(serving)
