"""A queue manager that serves RemoteRead on loopback, and a client that can misbehave."""

# What a method takes is told by its declaration.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.ndr import NULL_HANDLE
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqrr import REMOTE_READ, SectionBuffer
from lanner.services.mqrr import RemoteReadService
from lanner.services.ports import ServerPorts
from lanner.services.queue_client import QueueClient
from lanner.services.remote_queues import RemoteQueues
from lanner.services.remote_read import RemoteRead
from lanner.wire.message import Message
from tests.services.remote_read_peer import CLIENT_ID, Fault, Peer, SteeredCommitter
from tests.services.site import ADDRESS, tests_of
from tests.services.site import Site as BaseSite

NO_TRANSACTION = bytes(16)
RECEIVE, PEEK = 0x00000000, 0x80000000
PEEK_NEXT = 0x80000001
FOREVER = 0xFFFF_FFFF


@dataclass
class Got:
    """The result of a read."""

    status: int
    arrived: int = 0
    sequence_id: int = 0
    sections: tuple[SectionBuffer, ...] = ()
    request_id: int = 0

    @property
    def packet(self) -> bytes:
        """The octets of all sections."""
        assert self.status == 0, hex(self.status)
        return b"".join(section.p_section_buffer or b"" for section in self.sections)

    @property
    def message(self) -> Message:
        return Message(self.packet)

    @property
    def body(self) -> bytes:
        return bytes(self.message.body)

    @property
    def lookup_id(self) -> int:
        """The lookup identifier as a client puts it together (MQRR-3.1.4.7-55)."""
        priority = 0 if self.message.is_transactional else self.message.priority
        return (7 - priority << 56) + self.sequence_id


@dataclass
class Opened:
    """A queue that is open through RemoteRead."""

    peer: Peer
    context: bytes
    move_context: int = 0
    _request_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def status(self, method: Method, **arguments: Any) -> int:
        """The status of a method that takes the handle first."""
        results = await self.peer.call(REMOTE_READ, method, **({"ph_context": self.context} | arguments))
        status: int = results[RETURNS]
        return status

    def begin(
        self, action: int = RECEIVE, timeout: int = 0, *, lookup_id: int = 0, cursor: int = 0, **changes: Any
    ) -> asyncio.Future[Got]:
        """Send a read now; what is returned waits for its end.

        `transaction` makes it R_StartTransactionalReceive.
        """
        transaction = changes.pop("transaction", None)
        peer = changes.pop("peer", self.peer)
        arguments: dict[str, Any] = {
            "ph_context": self.context,
            "lookup_id": lookup_id,
            "h_cursor": cursor,
            "ul_action": action,
            "ul_timeout": timeout,
            "dw_request_id": next(self._request_ids),
            "dw_max_body_size": FOREVER,
            "dw_max_compound_message_size": 0,
        } | changes
        method = mqrr.R_START_RECEIVE
        if transaction is not None:
            method = mqrr.R_START_TRANSACTIONAL_RECEIVE
            arguments["p_transaction_id"] = transaction
        answer = peer.begin(REMOTE_READ, method, **arguments)

        async def finish() -> Got:
            results = await answer
            sections = results["pp_packet_sections"]
            assert results["pdw_number_of_sections"] == len(sections or ())
            return Got(
                results[RETURNS],
                results["pdw_arrive_time"],
                results["p_sequence_id"],
                sections or (),
                arguments["dw_request_id"],
            )

        return asyncio.ensure_future(finish())

    async def read(self, *arguments: Any, **changes: Any) -> Got:
        return await self.begin(*arguments, **changes)

    async def end(self, got: Got | int, ack: int = 2, method: Method = mqrr.R_END_RECEIVE) -> int:
        request_id = got if isinstance(got, int) else got.request_id
        return await self.status(method, dw_ack=ack, dw_request_id=request_id)

    async def cancel(self, request_id: int) -> int:
        return await self.status(mqrr.R_CANCEL_RECEIVE, dw_request_id=request_id)

    async def cursor(self) -> int:
        results = await self.peer.call(REMOTE_READ, mqrr.R_CREATE_CURSOR, ph_context=self.context)
        assert results[RETURNS] == 0
        number: int = results["ph_cursor"]
        return number

    async def close_cursor(self, cursor: int) -> int:
        return await self.status(mqrr.R_CLOSE_CURSOR, h_cursor=cursor)

    async def purge(self) -> int:
        return await self.status(mqrr.R_PURGE_QUEUE)

    async def move(self, to: int, lookup_id: int, transaction: bytes = NO_TRANSACTION) -> int:
        results = await self.peer.call(
            REMOTE_READ,
            mqrr.R_MOVE_MESSAGE,
            ph_context_from=self.context,
            ull_context_to=to,
            lookup_id=lookup_id,
            p_transaction_id=transaction,
        )
        status: int = results[RETURNS]
        return status

    async def close(self) -> int:
        results = await self.peer.call(REMOTE_READ, mqrr.R_CLOSE_QUEUE, pph_context=self.context)
        assert results["pph_context"] == NULL_HANDLE
        status: int = results[RETURNS]
        return status


class Site(BaseSite):
    """A queue manager that serves RemoteRead."""

    def __init__(
        self, runtime: Runtime, server: RpcServer, port: int, committer: SteeredCommitter, *, make: bool = True
    ) -> None:
        super().__init__(runtime, server, port, make=make)
        self.committer = committer
        self._peers: list[Peer] = []
        self.ports: ServerPorts
        self.service: RemoteReadService

    async def peer(self, *interfaces: Interface, **options: Any) -> Peer:
        peer = await Peer.connect(self.port, *(interfaces or (REMOTE_READ,)), **options)
        self._peers.append(peer)
        return peer

    async def opened(
        self, name: str = "OS:.\\private$\\q", access: int = 1, share: int = 0, peer: Peer | None = None, **changes: Any
    ) -> Opened:
        """Open a queue, on a new connection unless one is given. Fault if it is refused."""
        peer = await self.peer() if peer is None else peer
        kind = 8 if ";" in name else 3
        results = await peer.call(
            REMOTE_READ, mqrr.R_OPEN_QUEUE, **opening(QueueFormat(kind, 0, 0, name), access, share) | changes
        )
        return Opened(peer, results["pph_context"])

    async def opened_for_move(self, name: str, peer: Peer, access: int = 4, share: int = 0, **changes: Any) -> Opened:
        kind = 8 if ";" in name else 3
        results = await peer.call(
            REMOTE_READ, mqrr.R_OPEN_QUEUE_FOR_MOVE, **opening(QueueFormat(kind, 0, 0, name), access, share) | changes
        )
        return Opened(peer, results["pph_context"], results["p_move_context"])

    async def close(self) -> None:
        for peer in self._peers:
            await peer.close()


def opening(queue_format: QueueFormat, access: int = 1, share: int = 0) -> dict[str, Any]:
    """The arguments of an open."""
    return {
        "p_queue_format": queue_format,
        "dw_access": access,
        "dw_share_mode": share,
        "p_client_id": CLIENT_ID,
        "f_non_routing_server": 1,
        "major": 6,
        "minor": 1,
        "build_number": 7601,
        "f_workgroup": 1,
    }


async def fault(awaitable: Any) -> int:
    """The status of the fault that a call ends with."""
    try:
        await awaitable
    except Fault as error:
        return error.status
    raise AssertionError("the call succeeded")


@contextlib.asynccontextmanager
async def serving(
    path: Path,
    *,
    level: AuthLevel = AuthLevel.NONE,
    cleanup_seconds: float = 300.0,
    make: bool = True,
    has_mqrr: bool = True,
    source: str | None = None,
) -> AsyncIterator[Site]:
    runtime = Runtime(path / "data", local_settings("alpha"))
    committer = SteeredCommitter(runtime.store, asyncio.get_running_loop())
    ports = ServerPorts()
    service = RemoteReadService(runtime.engine, committer, ports, cleanup_seconds, lambda _: source)
    queues = RemoteQueues(runtime.engine, committer)
    interfaces = [service.interface, RemoteRead(queues, ports).interface, *QueueClient(queues, ports).interfaces]
    server = RpcServer(
        interfaces if has_mqrr else interfaces[1:],
        users=runtime.users,
        providers=ServerSecurity(runtime.users, TargetNames("ALPHA", "ALPHA")),
        authentication_level=level,
    )
    ports.ip_read = ports.ip_handshake = await server.listen_tcp(ADDRESS, 0)
    site = Site(runtime, server, ports.ip_read, committer, make=make)
    site.ports, site.service = ports, service
    try:
        yield site
    finally:
        await site.close()
        await server.stop()
        committer.close()
        runtime.close()


served = tests_of(serving)
