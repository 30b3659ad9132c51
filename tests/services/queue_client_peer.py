"""A queue manager that serves qmcomm and qmcomm2 on loopback, and a client.

The client uses `rpc.async_client`. `served` makes a test of a coroutine that takes the queue
manager.
"""

# What a method takes is told by its declaration, and a read's time-out is the protocol's.
# ruff: noqa: ANN401, ASYNC109

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lanner.host.addresses import local_settings
from lanner.host.committer import Committer
from lanner.host.runtime import Runtime
from lanner.model.enums import DeliveryGuarantee
from lanner.model.errors import LannerError
from lanner.rpc.async_client import BoundInterface, RpcClient, connect_tcp
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS, Method
from lanner.rpc.ndr import Pointed
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials, ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2, CACTransferBufferV2, ObjectFormat
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.ports import ServerPorts
from lanner.services.queue_client import QueueClient
from lanner.services.queue_client_buffers import packet_of, receive_buffer, send_buffer
from lanner.services.queue_client_receiving import MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE
from lanner.services.queue_formats import queue_format_of
from lanner.services.remote_queues import RemoteQueues
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message as Packet
from tests.services.site import ADDRESS, tell_later, tests_of, until
from tests.services.site import Site as BaseSite

CLIENT_ID = uuid.UUID("0badc0de-0000-4000-8000-000000000001")
Q = r"DIRECT=OS:.\private$\q"
RECEIVE, SEND, PEEK = 1, 2, 0x20


def queue_object(name: str = Q) -> ObjectFormat:
    return ObjectFormat(1, queue_format_of(parse(name)))


def with_old(buffer: CACTransferBufferV2, **changes: Any) -> CACTransferBufferV2:
    return replace(buffer, old=replace(buffer.old, **changes))


@dataclass
class Received:
    """The result of a read."""

    status: int
    buffer: CACTransferBufferV2

    @property
    def message(self) -> Packet:
        assert self.status == 0, hex(self.status)
        return Packet(packet_of(self.buffer))

    @property
    def body(self) -> bytes:
        return self.message.body


@dataclass
class Open:
    """An open queue."""

    peer: Peer
    handle: bytes
    context: int

    async def send(
        self,
        body: bytes = b"",
        transaction: Begun | None = None,
        buffer: CACTransferBufferV2 | None = None,
        **properties: Any,
    ) -> dict[str, Any]:
        if buffer is None:
            plain: dict[str, Any] = {"delivery_guarantee": DeliveryGuarantee.RECOVERABLE, "body": body}
            uow = None if transaction is None else transaction.uow
            buffer = send_buffer(MessageProperties(**(plain | properties)), uow)
        identifier = MessageIdentifier(uuid.UUID(int=0), 0)
        return await self.peer.call2(
            mqmp.RPC_AC_SEND_MESSAGE_EX, h_queue=self.handle, ptb=buffer, p_message_id=identifier
        )

    async def read(
        self,
        action: int = MQ_ACTION_RECEIVE,
        timeout: int = 0,
        transaction: Begun | None = None,
        buffer: CACTransferBufferV2 | None = None,
        peer: Peer | None = None,
        **options: Any,
    ) -> Received:
        if buffer is None:
            uow = None if transaction is None else transaction.uow
            buffer = receive_buffer(action=action, timeout=timeout, uow=uow, **options)
        results = await (peer or self.peer).call2(mqmp.RPC_AC_RECEIVE_MESSAGE_EX, h_qm_context=self.context, ptb=buffer)
        return Received(results[RETURNS], results["ptb"])

    async def peek(self, timeout: int = 0, **options: Any) -> Received:
        return await self.read(MQ_ACTION_PEEK_CURRENT, timeout, **options)

    async def peek_next(self, timeout: int = 0, **options: Any) -> Received:
        return await self.read(MQ_ACTION_PEEK_NEXT, timeout, **options)

    async def create_cursor(self) -> dict[str, Any]:
        return await self.peer.call2(
            mqmp.RPC_AC_CREATE_CURSOR_EX, h_queue=self.handle, pcc=mqmp.CACCreateRemoteCursor()
        )

    async def cursor(self) -> int:
        results = await self.create_cursor()
        assert results[RETURNS] == 0, hex(results[RETURNS])
        number: int = results["pcc"].h_cursor
        return number

    async def close_cursor(self, cursor: int) -> int:
        return await self.peer.status(mqmp.RPC_AC_CLOSE_CURSOR, h_queue=self.handle, h_cursor=cursor)

    async def purge(self) -> int:
        return await self.peer.status(mqmp.RPC_AC_PURGE_QUEUE, h_queue=self.handle)

    async def format_name(self, size: int, length: int | None = None, text: str | None = None) -> dict[str, Any]:
        return await self.peer.call(
            mqmp.RPC_AC_HANDLE_TO_FORMAT_NAME,
            h_queue=self.handle,
            dw_format_name_rpc_buffer_len=size,
            lpwcs_format_name=("\0" * size or None) if text is None else text,
            pdw_length=size if length is None else length,
        )

    async def close(self) -> dict[str, Any]:
        return await self.peer.call(mqmp.RPC_AC_CLOSE_HANDLE, ph_queue=self.handle)


@dataclass
class Begun:
    """An internal transaction."""

    peer: Peer
    uow: uuid.UUID
    handle: bytes

    async def commit(self) -> dict[str, Any]:
        return await self.peer.call(mqmp.R_QM_COMMIT_TRANSACTION, ph_int_xact=self.handle)

    async def abort(self) -> dict[str, Any]:
        return await self.peer.call(mqmp.R_QM_ABORT_TRANSACTION, ph_int_xact=self.handle)


class Peer:
    """One connection, bound to both interfaces."""

    def __init__(self, client: RpcClient, qmcomm: BoundInterface, qmcomm2: BoundInterface) -> None:
        self.client = client
        self.qmcomm = qmcomm
        self.qmcomm2 = qmcomm2

    async def call(self, method: Method, **arguments: Any) -> dict[str, Any]:
        return await self.qmcomm.call(method, **arguments)

    async def call2(self, method: Method, **arguments: Any) -> dict[str, Any]:
        return await self.qmcomm2.call(method, **arguments)

    async def status(self, method: Method, **arguments: Any) -> int:
        status: int = (await self.call(method, **arguments))[RETURNS]
        return status

    async def fault(self, method: Method, **arguments: Any) -> int:
        """The status of the fault that a call of qmcomm ends with."""
        try:
            results = await self.call(method, **arguments)
        except RpcFault as fault:
            return fault.status
        raise AssertionError(results)

    async def open_queue(self, name: str | QueueFormat = Q, access: int = RECEIVE, **changes: Any) -> dict[str, Any]:
        arguments = {
            "p_queue_format": queue_format_of(parse(name)) if isinstance(name, str) else name,
            "dw_desired_access": access,
            "dw_share_mode": 0,
            "h_remote_queue": 0,
            "lplp_remote_queue_name": Pointed(None),
            "dwp_queue": 0,
            "p_lic_guid": CLIENT_ID,
            "lp_client_name": "client",
            "dw_remote_protocol": 0,
            "dwp_remote_context": 0,
        } | changes
        return await self.call(mqmp.RPC_QM_OPEN_QUEUE_INTERNAL, **arguments)

    async def open(self, name: str | QueueFormat = Q, access: int = RECEIVE, **changes: Any) -> Open:
        results = await self.open_queue(name, access, **changes)
        assert results[RETURNS] == 0, hex(results[RETURNS])
        assert results["lplp_remote_queue_name"] == Pointed(None)
        return Open(self, results["ph_queue"], results["pdw_qm_context"])

    async def begin(self, uow: uuid.UUID | None = None) -> Begun:
        uow = uow or uuid.uuid4()
        results = await self.call(mqmp.R_QM_ENLIST_INTERNAL_TRANSACTION, p_uow=uow.bytes_le)
        assert results[RETURNS] == 0, hex(results[RETURNS])
        return Begun(self, uow, results["ph_int_xact"])


class HeldCommitter(Committer):
    """A committer that waits for the test's outcome instead of the disk while one is set."""

    outcome: asyncio.Future[None] | None = None

    def durable(self, batch: int) -> asyncio.Future[None]:
        return super().durable(batch) if self.outcome is None else self.outcome

    def when_durable(self, batch: int, callback: Callable[[LannerError | None], None]) -> None:
        tell_later(self.durable(batch), callback)


class Site(BaseSite):
    """A queue manager that serves qmcomm and qmcomm2."""

    def __init__(
        self,
        runtime: Runtime,
        server: RpcServer,
        queue_client: QueueClient,
        ports: ServerPorts,
        committer: HeldCommitter,
    ) -> None:
        super().__init__(runtime, server, ports.ip_handshake)
        self.queue_client = queue_client
        self.ports = ports
        self.committer = committer
        self._peers: list[Peer] = []

    async def peer(self, user: str | None = None, group: int = 0) -> Peer:
        credentials = None if user is None else Credentials(user, f"{user}-secret")
        client = await connect_tcp(ADDRESS, self.port, credentials=credentials, assoc_group_id=group)
        peer = Peer(client, await client.bind(QMCOMM), await client.bind(QMCOMM2))
        self._peers.append(peer)
        return peer

    async def close(self) -> None:
        for peer in self._peers:
            await peer.client.close()

    def bodies(self, queue: str = "q") -> list[bytes]:
        """Return the unlocked messages of a queue in order."""
        with self.runtime.lock:
            found = self.operations.find(f".\\private$\\{queue}")
            bodies, after = [], -1
            while (position := self.runtime.engine.positions.seek_forward(found, after)) is not None:
                after = position.lookup_id
                bodies.append(bytes(Packet(position.record.packet).body))
        return bodies

    async def waiting(self, count: int, queue: str = "q") -> None:
        """As soon as so many reads wait for a queue."""
        await until(lambda: len(self.operations.find(f".\\private$\\{queue}").waiting_reads) == count)


@contextlib.asynccontextmanager
async def serving(path: Path, *, level: AuthLevel = AuthLevel.NONE, **options: Any) -> AsyncIterator[Site]:
    runtime = Runtime(path / "data", local_settings("alpha"))
    committer = HeldCommitter(runtime.store, asyncio.get_running_loop())
    ports = ServerPorts()
    queue_client = QueueClient(RemoteQueues(runtime.engine, committer), ports, **options)
    providers = ServerSecurity(runtime.users, TargetNames("ALPHA", "ALPHA"))
    server = RpcServer(queue_client.interfaces, users=runtime.users, providers=providers, authentication_level=level)
    ports.ip_read = ports.ip_handshake = await server.listen_tcp(ADDRESS, 0)
    site = Site(runtime, server, queue_client, ports, committer)
    try:
        yield site
    finally:
        await site.close()
        await server.stop()
        committer.close()
        runtime.close()


served = tests_of(serving)
