r"""The client of RemoteRead, the protocol for reading from Windows Vista and later (MS-MQRR 3.2).

async with await MqrrReader.connect(Target("192.0.2.7"), client_id=own_identifier) as reader:
    queue = await reader.open(parse(r"DIRECT=OS:.\private$\orders"))
    message = await queue.receive(timeout=5000)

It has the methods of `RemoteReader`, which reads from older computers by MS-MQQP, and those that
only MS-MQRR has: moves, transactions, rejections. A receive has two phases, as in MS-MQQP. Read
time-outs are in milliseconds.
"""

# A read's time-out is the protocol's, kept by the server.
# ruff: noqa: ASYNC109

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, cast
from uuid import UUID

from lanner.client._async.closeable import Closeable
from lanner.client._async.connections import connect_to, mapped_port
from lanner.client._async.io import limited, salvaged, time_limit
from lanner.client._async.remote_reader import OPEN_TIMEOUT, call
from lanner.client.remote_message import RemoteMessage
from lanner.client.target import Target
from lanner.model.enums import INFINITE, QueueAccessType, QueueShareMode
from lanner.model.errors import InvalidHandle, LannerError, RemoteProtocolError
from lanner.rpc.async_client import BoundInterface, RpcClient
from lanner.rpc.faults import InterfaceRefused, RpcConnectionError
from lanner.rpc.interface import Method
from lanner.rpc.ndr import NULL_HANDLE, Syntax, Value
from lanner.rpc.pdu import AuthType
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmp import QMCOMM
from lanner.services.interfaces.mqqp import RemoteReadAck
from lanner.services.interfaces.mqrr import REMOTE_READ, SectionBuffer, SectionType
from lanner.services.queue_formats import queue_format_of
from lanner.services.remote_read import (
    LOOKUP_ACTIONS,
    MQ_ACTION_PEEK_CURRENT,
    MQ_ACTION_PEEK_NEXT,
    MQ_ACTION_RECEIVE,
)
from lanner.wire.format_name import FormatName
from lanner.wire.message import Message
from lanner.wire.remote_packet import Section, joined, stored_packet

# MS-MQRR 3.2.4.1 fNonRoutingServer, and the version of Windows 7.
_NO_ROUTER: Final = 1
_VERSION: Final = (6, 1, 7601)
# MS-MQRR 2.2.8: no transaction.
NO_TRANSACTION: Final = bytes(16)
_ACCESS: Final = {QueueAccessType.RECEIVE: mqrr.RECEIVE_ACCESS, QueueAccessType.PEEK: mqrr.PEEK_ACCESS}
_MAX_REQUEST_ID: Final = 0xFFFF_FFFF
# The types of the sections of one packet (2.2.7).
_SECTIONS: Final[frozenset[tuple[int, ...]]] = frozenset(
    (
        (SectionType.FULL_PACKET,),
        (SectionType.BINARY_FIRST_SECTION,),
        (SectionType.BINARY_FIRST_SECTION, SectionType.BINARY_SECOND_SECTION),
        (SectionType.SRMP_FIRST_SECTION,),
        (SectionType.SRMP_FIRST_SECTION, SectionType.SRMP_SECOND_SECTION),
    )
)


@dataclass(slots=True, eq=False)
class PendingRead:
    """A waiting read, or a receive whose second phase is pending."""

    request_id: int
    cursor: int = 0
    # The XACTUOW of the receive; zero without a transaction.
    transaction: bytes = NO_TRANSACTION
    is_waiting: bool = True


@dataclass(slots=True, eq=False)
class MqrrReader(Closeable):
    """A connection to the queues of another computer."""

    client_id: UUID
    open_timeout: float
    is_workgroup: bool
    handshake_client: RpcClient
    handshake: BoundInterface
    reading_client: RpcClient
    reading: BoundInterface
    pending: dict[int, PendingRead] = field(default_factory=dict)
    # The transactions that this client has enlisted here, by XACTUOW.
    enlisted: set[bytes] = field(default_factory=set)
    _last_request_id: int = 0
    # A threading lock in both forms on purpose: no wait occurs while it is held.
    _numbering: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    async def connect(
        cls,
        target: Target,
        *,
        client_id: UUID,
        syntaxes: tuple[Syntax, ...] | None = None,
        open_timeout: float = OPEN_TIMEOUT,
    ) -> Self:
        """Connect; InterfaceRefused if the computer does not serve RemoteRead.

        Tries the port of qmcomm first, then the port that the endpoint mapper names (3.2.4.1).
        """
        handshake_client = reading_client = await connect_to(target)
        try:
            handshake = await handshake_client.bind(QMCOMM)
            try:
                reading = await reading_client.bind(REMOTE_READ, syntaxes)
            except InterfaceRefused:
                port = None if target.host is None or target.port else await mapped_port(target.host, REMOTE_READ)
                if port is None:
                    raise
                reading_client = await connect_to(target, REMOTE_READ, port=port)
                reading = await reading_client.bind(REMOTE_READ, syntaxes)
        except BaseException:
            await reading_client.close()
            await handshake_client.close()
            raise
        # A program has no other evidence of a domain than that its user logs on with Kerberos.
        is_workgroup = target.auth_type is not AuthType.GSS_KERBEROS
        return cls(client_id, open_timeout, is_workgroup, handshake_client, handshake, reading_client, reading)

    async def close(self) -> None:
        """Close the connection.

        The server then closes open queues and puts unacknowledged messages back.
        """
        await self.reading_client.close()
        await self.handshake_client.close()

    async def check(self) -> None:
        """Make a first call, which fails if the password is wrong."""
        await self.reading.call(mqrr.R_GET_SERVER_PORT)

    async def open(
        self,
        name: FormatName,
        access: QueueAccessType = QueueAccessType.RECEIVE,
        share_mode: QueueShareMode = QueueShareMode.DENY_NONE,
    ) -> OpenMqrrQueue:
        """Open a queue to read from (3.2.4.1)."""
        results = await self._open(mqrr.R_OPEN_QUEUE, name, _ACCESS[access], share_mode)
        return OpenMqrrQueue(self, name, results["pph_context"])

    async def open_for_move(self, name: FormatName) -> OpenMqrrQueue:
        """Open the destination of moves (3.2.4.6)."""
        results = await self._open(mqrr.R_OPEN_QUEUE_FOR_MOVE, name, mqrr.MQ_MOVE_ACCESS, QueueShareMode.DENY_NONE)
        return OpenMqrrQueue(self, name, results["pph_context"], results["p_move_context"])

    async def _open(self, method: Method, name: FormatName, access: int, share_mode: QueueShareMode) -> dict[str, Any]:
        major, minor, build = _VERSION
        return await self._limited(
            method,
            name,
            p_queue_format=queue_format_of(name),
            dw_access=access,
            dw_share_mode=int(share_mode),
            p_client_id=self.client_id,
            f_non_routing_server=_NO_ROUTER,
            major=major,
            minor=minor,
            build_number=build,
            f_workgroup=int(self.is_workgroup),
        )

    async def enlist(self, uow: bytes, token: bytes, name: FormatName) -> None:
        """Enlist a transaction, once (3.2.4.2).

        Raises the server's error if it refuses the propagation token.
        """
        if uow in self.enlisted:
            return
        await self._limited(
            mqrr.R_QM_ENLIST_REMOTE_TRANSACTION,
            name,
            p_transaction_id=uow,
            cb_propagation_token=len(token),
            pb_propagation_token=token,
            p_queue_format=queue_format_of(name),
        )
        self.enlisted.add(uow)

    async def _limited(self, method: Method, name: FormatName, **arguments: Value) -> dict[str, Any]:
        """Make a call that times out after `open_timeout` (3.1.2.1)."""
        try:
            async with time_limit(self.open_timeout):
                limited(self.reading_client)
                return await call(self.reading, method, **arguments)
        except TimeoutError:
            raise RpcConnectionError(f"{name}: {method.name} was not answered within {self.open_timeout:g} s") from None

    def new_entry(self, cursor: int, transaction: bytes) -> PendingRead:
        """Return an entry whose request id no other pending read has (3.2.4.3)."""
        with self._numbering:
            request_id = self._last_request_id
            while True:
                request_id = request_id % _MAX_REQUEST_ID + 1
                if request_id not in self.pending:
                    break
            self._last_request_id = request_id
            entry = self.pending[request_id] = PendingRead(request_id, cursor, transaction)
        return entry


@dataclass(slots=True, eq=False)
class OpenMqrrQueue:
    """An open queue: its context handle and its cursors (3.2.1)."""

    reader: MqrrReader
    name: FormatName
    context: bytes
    # The handle that identifies the queue in moves; 0 for a queue that is open for reading.
    move_context: int = 0
    _entries: set[PendingRead] = field(default_factory=set)
    _cursors: set[int] = field(default_factory=set)

    is_given_up: Final = False

    @property
    def is_open(self) -> bool:
        return self.context != NULL_HANDLE

    async def peek(self, timeout: int = INFINITE, cursor: int = 0) -> RemoteMessage:
        """Return the message at the front, or under a cursor (3.2.4.3, 3.2.4.9)."""
        return (await self.begin(MQ_ACTION_PEEK_CURRENT, timeout, cursor))[1]

    async def peek_next(self, cursor: int, timeout: int = INFINITE) -> RemoteMessage:
        """Return the message after the one under a cursor (3.2.4.9)."""
        return (await self.begin(MQ_ACTION_PEEK_NEXT, timeout, cursor))[1]

    async def receive(
        self, timeout: int = INFINITE, cursor: int = 0, transaction: bytes = NO_TRANSACTION
    ) -> RemoteMessage:
        """Receive a message, in both phases (3.2.4.4, 3.2.4.10)."""
        return await self._finish(*await self.begin(MQ_ACTION_RECEIVE, timeout, cursor, transaction))

    async def look_up(self, lookup_id: int, action: int, transaction: bytes = NO_TRANSACTION) -> RemoteMessage:
        """Peek or receive by lookup identifier: `action` is one of MQ_LOOKUP_*."""
        return await self._finish(*await self.begin_look_up(lookup_id, action, transaction))

    async def _finish(self, entry: PendingRead, message: RemoteMessage) -> RemoteMessage:
        if entry.request_id in self.reader.pending:
            await self.end(entry, RemoteReadAck.RR_ACK)
        return message

    async def begin(
        self,
        action: int = MQ_ACTION_RECEIVE,
        timeout: int = INFINITE,
        cursor: int = 0,
        transaction: bytes = NO_TRANSACTION,
        *,
        max_body_size: int = INFINITE,
    ) -> tuple[PendingRead, RemoteMessage]:
        """Make the first phase of a read; a received message is kept until `end` is called."""
        return await self._begin(action, 0, timeout, cursor, transaction, max_body_size)

    async def begin_look_up(
        self, lookup_id: int, action: int, transaction: bytes = NO_TRANSACTION
    ) -> tuple[PendingRead, RemoteMessage]:
        """Make the first phase of a read by lookup identifier."""
        return await self._begin(action, lookup_id, 0, 0, transaction, INFINITE)

    async def _begin(
        self, action: int, lookup_id: int, timeout: int, cursor: int, transaction: bytes, max_body_size: int
    ) -> tuple[PendingRead, RemoteMessage]:
        self._require_open()
        if cursor and cursor not in self._cursors:
            raise InvalidHandle(f"{self.name}: cursor {cursor} is closed")
        entry = self.reader.new_entry(cursor, transaction)
        is_receive = action == MQ_ACTION_RECEIVE or (action in LOOKUP_ACTIONS and not LOOKUP_ACTIONS[action][0])
        arguments: dict[str, Value] = {
            "ph_context": self.context,
            "lookup_id": lookup_id,
            "h_cursor": cursor,
            "ul_action": action,
            "ul_timeout": timeout,
            "dw_request_id": entry.request_id,
            "dw_max_body_size": max_body_size,
            # SRMP messages are always requested whole (3.2.4.3).
            "dw_max_compound_message_size": INFINITE,
        }
        method = mqrr.R_START_RECEIVE
        if transaction != NO_TRANSACTION:
            method = mqrr.R_START_TRANSACTIONAL_RECEIVE
            arguments["p_transaction_id"] = transaction

        async def undo(message: RemoteMessage | None) -> None:
            del message
            if is_receive:
                # The client chose the request id, so it can name a message that has arrived or is
                # on its way.
                await self.end(entry, RemoteReadAck.RR_NACK)

        self._entries.add(entry)
        try:
            message = await salvaged(partial(self._start, method, arguments), partial(self._cancel, entry), undo)
        except RemoteProtocolError:
            # A message arrived, but it cannot be parsed.
            entry.is_waiting = False
            with contextlib.suppress(LannerError):
                await undo(None)
            self._forget(entry)
            raise
        except LannerError:
            self._forget(entry)
            raise
        entry.is_waiting = False
        if not is_receive:
            self._forget(entry)
        return entry, message

    async def _start(self, method: Method, arguments: Mapping[str, Value]) -> RemoteMessage:
        results = await call(self.reader.reading, method, **arguments)
        return _message(results)

    def _forget(self, entry: PendingRead) -> None:
        self.reader.pending.pop(entry.request_id, None)
        self._entries.discard(entry)

    async def end(self, entry: PendingRead, ack: RemoteReadAck) -> None:
        """Make the second phase: acknowledge or return a message (3.2.4.4.1, 3.2.4.4.2)."""
        self._forget(entry)
        is_transacted = entry.transaction != NO_TRANSACTION
        await self._call(
            mqrr.R_END_TRANSACTIONAL_RECEIVE if is_transacted else mqrr.R_END_RECEIVE,
            dw_ack=int(ack),
            dw_request_id=entry.request_id,
        )

    async def cancel(self, request_id: int) -> None:
        """End a pending read, which then raises OperationCancelled (3.2.4.11).

        Raises InvalidHandle if the read has already ended.
        """
        entry = self.reader.pending.get(request_id)
        if entry is None or entry not in self._entries:
            raise InvalidHandle(f"no read {request_id} is pending")
        await self._cancel(entry)

    async def _cancel(self, entry: PendingRead) -> None:
        entry.is_waiting = False
        await self._call(mqrr.R_CANCEL_RECEIVE, dw_request_id=entry.request_id)

    async def _cancel_all(self, wanted: Callable[[PendingRead], bool]) -> None:
        for entry in [one for one in self._entries if one.is_waiting and wanted(one)]:
            with contextlib.suppress(LannerError):
                await self._cancel(entry)

    async def create_cursor(self) -> int:
        """Return the handle of a new cursor (3.2.4.8)."""
        cursor: int = (await self._call(mqrr.R_CREATE_CURSOR))["ph_cursor"]
        self._cursors.add(cursor)
        return cursor

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor, after cancelling the reads that wait at it (3.2.4.12)."""
        if cursor not in self._cursors:
            raise InvalidHandle(f"{self.name}: cursor {cursor} is closed")
        await self._cancel_all(lambda one: one.cursor == cursor)
        self._cursors.discard(cursor)
        await self._call(mqrr.R_CLOSE_CURSOR, h_cursor=cursor)

    async def purge(self) -> None:
        """Remove every message (3.2.4.7)."""
        await self._call(mqrr.R_PURGE_QUEUE)

    async def move(self, lookup_id: int, target: OpenMqrrQueue, transaction: bytes = NO_TRANSACTION) -> None:
        """Move a message to the queue or subqueue that `open_for_move` has opened (3.2.4.6)."""
        self._require_open()
        await call(
            self.reader.reading,
            mqrr.R_MOVE_MESSAGE,
            ph_context_from=self.context,
            ull_context_to=target.move_context,
            lookup_id=lookup_id,
            p_transaction_id=transaction,
        )

    async def reject(self, lookup_id: int, us_class: int) -> None:
        """Reject a message received in a transaction that is still open (3.2.4.5)."""
        await self._call(mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, lookup_id=lookup_id, us_class=us_class)

    async def close(self) -> None:
        """Close the queue, after its reads and cursors (3.2.4.13).

        Unacknowledged messages return to the queue.
        """
        if not self.is_open:
            return
        await self._cancel_all(lambda _: True)
        for cursor in list(self._cursors):
            with contextlib.suppress(LannerError):
                await self.close_cursor(cursor)
        handle, self.context = self.context, NULL_HANDLE
        await call(self.reader.reading, mqrr.R_CLOSE_QUEUE, pph_context=handle)

    def _require_open(self) -> None:
        if not self.is_open:
            raise InvalidHandle(f"{self.name} is closed")

    async def _call(self, method: Method, **arguments: Value) -> dict[str, Any]:
        self._require_open()
        return await call(self.reader.reading, method, ph_context=self.context, **arguments)


def _message(results: Mapping[str, Any]) -> RemoteMessage:
    """Return the message of a read; RemoteProtocolError if its sections do not form one."""
    buffers = cast("tuple[SectionBuffer, ...]", results["pp_packet_sections"] or ())
    if len(buffers) != results["pdw_number_of_sections"]:
        raise RemoteProtocolError(
            f"pdwNumberOfSections: {results['pdw_number_of_sections']} for {len(buffers)} sections"
        )
    types = tuple(one.section_buffer_type for one in buffers)
    if types not in _SECTIONS:
        raise RemoteProtocolError(f"ppPacketSections: sections of the types {types}")
    parts = []
    for one in buffers:
        octets = one.p_section_buffer or b""
        if len(octets) != one.section_size:
            raise RemoteProtocolError(f"SectionSize: {one.section_size} for {len(octets)} octets")
        parts.append(Section(octets, one.section_size_alloc))
    message = Message(stored_packet(joined(parts)))
    if types[0] == SectionType.SRMP_FIRST_SECTION:
        _check_srmp(message, parts[0])
    came = min(len(parts[0].octets) - message.body_offset, message.body_size)
    return RemoteMessage(message, results["pdw_arrive_time"], results["p_sequence_id"], max(came, 0))


def _check_srmp(message: Message, first: Section) -> None:
    """Refuse a first section that does not end with CompoundMessageHeader, as 2.2.7 demands.

    The document does not say which section has the padding after that header.
    """
    end = message.end_of_compound_message
    if not end <= first.whole_size <= end + 3 & ~3:
        raise RemoteProtocolError(f"SectionSizeAlloc: {first.whole_size}, but CompoundMessageHeader ends at {end}")
