"""Open queues of a queue manager reached by Microsoft's protocols.

Reads use MS-MQRR or MS-MQQP: their messages are whole packets with lookup ids, and leave the queue
only after they have arrived here. MS-MQMP sends, and receives in transactions. Outgoing queues
cannot be opened by MS-MQRR and MS-MQQP. MS-MQMP reads them with an administrator's access, in one
step: if the receiver is cancelled or loses its connection, a message of such a queue may be lost.
"""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lanner.client._async.io import Lock
from lanner.client._async.remote_reader import OpenRemoteQueue
from lanner.client.message import ReceivedMessage
from lanner.client.remote_message import from_buffer, from_remote_read
from lanner.client.target import check
from lanner.model.enums import TO_ADMIN_ACCESS, QueueAccessType, QueueShareMode
from lanner.model.errors import (
    LannerError,
    QueueNotFound,
    RemoteMachineNotAvailable,
    StatusError,
    UnsupportedFormatnameOperation,
)
from lanner.rpc.ndr import NULL_HANDLE, Pointed
from lanner.services.interfaces.mqmp import (
    QMCOMM,
    QMCOMM2,
    RPC_AC_CLOSE_CURSOR,
    RPC_AC_CLOSE_HANDLE,
    RPC_AC_CREATE_CURSOR_EX,
    RPC_AC_PURGE_QUEUE,
    RPC_AC_RECEIVE_MESSAGE_EX,
    RPC_QM_OPEN_QUEUE_INTERNAL,
    CACCreateRemoteCursor,
)
from lanner.services.queue_client_buffers import (
    DEFAULT_BODY_SIZE,
    DEFAULT_EXTENSION_SIZE,
    DEFAULT_NAME_SIZE,
    DEFAULT_SECURITY_SIZE,
    BufferSizes,
    needed_sizes,
    receive_buffer,
)
from lanner.services.queue_formats import queue_format_of
from lanner.services.remote_read import MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.client._async.mqrr_reader import OpenMqrrQueue
    from lanner.client._async.msmq_connection import MsmqConnection
    from lanner.client.remote_message import RemoteMessage
    from lanner.services.interfaces.mqmp import CACTransferBufferV2
    from lanner.services.interfaces.mqqp import RemoteReadAck
    from lanner.wire.format_name import FormatName

# The function for the second phase of a receive, and the message from the first.
Begun: TypeAlias = "tuple[Callable[[RemoteReadAck], Awaitable[None]], RemoteMessage]"
_DEFAULT_SIZES: Final[BufferSizes] = {
    "body_size": DEFAULT_BODY_SIZE,
    "extension_size": DEFAULT_EXTENSION_SIZE,
    "name_size": DEFAULT_NAME_SIZE,
    "security_size": DEFAULT_SECURITY_SIZE,
}


def _larger(one: BufferSizes, other: BufferSizes) -> BufferSizes:
    return {
        "body_size": max(one["body_size"], other["body_size"]),
        "extension_size": max(one["extension_size"], other["extension_size"]),
        "name_size": max(one["name_size"], other["name_size"]),
        "security_size": max(one["security_size"], other["security_size"]),
    }


@dataclass(slots=True, eq=False)
class RemoteHandle:
    """A queue read through MS-MQRR or MS-MQQP. Time-outs are in milliseconds."""

    connection: MsmqConnection
    queue: OpenMqrrQueue | OpenRemoteQueue

    @property
    def is_open(self) -> bool:
        return self.queue.is_open

    @property
    def is_given_up(self) -> bool:
        """Whether an interrupted read has closed the handle, which ends other reads on it."""
        return self.queue.is_given_up

    async def peek(self, timeout: int, cursor: int = 0) -> ReceivedMessage:
        return from_remote_read(await self.queue.peek(timeout, cursor))

    async def peek_next(self, timeout: int, cursor: int) -> ReceivedMessage:
        return from_remote_read(await self.queue.peek_next(cursor, timeout))

    async def begin(self, timeout: int, cursor: int) -> Begun:
        """Make the first phase of a receive.

        Returns the function for the second phase, and the message.
        """
        queue = self.queue
        if isinstance(queue, OpenRemoteQueue):
            entry, message = await queue.begin(MQ_ACTION_RECEIVE, timeout, cursor)
            return partial(queue.end, entry), message
        pending, message = await queue.begin(MQ_ACTION_RECEIVE, timeout, cursor)
        return partial(queue.end, pending), message

    async def begin_look_up(self, lookup_id: int, action: int) -> Begun:
        """Make the first phase of a receive by lookup identifier."""
        queue = self.queue
        if isinstance(queue, OpenRemoteQueue):
            entry, message = await queue.begin_look_up(lookup_id, action)
            return partial(queue.end, entry), message
        pending, message = await queue.begin_look_up(lookup_id, action)
        return partial(queue.end, pending), message

    async def create_cursor(self) -> int:
        return await self.queue.create_cursor()

    async def close_cursor(self, cursor: int) -> None:
        await self.queue.close_cursor(cursor)

    async def purge(self) -> None:
        await self.queue.purge()

    async def close(self) -> None:
        await self.queue.close()


@dataclass(slots=True, eq=False)
class LocalHandle:
    """A queue opened by MS-MQMP: its RPC_QUEUE_HANDLE, and the context for receives (3.1.4.17)."""

    connection: MsmqConnection
    handle: bytes
    context: int
    # The buffer sizes that the largest message so far needed; the next message may need the same.
    _sizes: BufferSizes = field(default_factory=_DEFAULT_SIZES.copy)

    is_open: Final = True
    is_given_up: Final = False

    async def peek(self, timeout: int, cursor: int = 0) -> ReceivedMessage:
        return await self._read(MQ_ACTION_PEEK_CURRENT, timeout, cursor)

    async def peek_next(self, timeout: int, cursor: int) -> ReceivedMessage:
        return await self._read(MQ_ACTION_PEEK_NEXT, timeout, cursor)

    async def receive(self, timeout: int, cursor: int = 0, transaction: UUID | None = None) -> ReceivedMessage:
        return await self._read(MQ_ACTION_RECEIVE, timeout, cursor, transaction)

    async def _read(self, action: int, timeout: int, cursor: int, transaction: UUID | None = None) -> ReceivedMessage:
        bound = await self.connection.bound(QMCOMM2)
        while True:
            asked = receive_buffer(action=action, timeout=timeout, cursor=cursor, uow=transaction, **self._sizes)
            results = await bound.call(RPC_AC_RECEIVE_MESSAGE_EX, h_qm_context=self.context, ptb=asked)
            filled: CACTransferBufferV2 = results["ptb"]
            try:
                check(results)
            except StatusError:
                # A message that does not fit stays in the queue, and the answer has its sizes
                # (3.1.5.3).
                larger = _larger(self._sizes, needed_sizes(filled))
                if larger == self._sizes:
                    raise
                self._sizes = larger
                continue
            return from_buffer(filled)

    async def create_cursor(self) -> int:
        results = await self.connection.call(
            QMCOMM2, RPC_AC_CREATE_CURSOR_EX, h_queue=self.handle, pcc=CACCreateRemoteCursor()
        )
        cursor: int = results["pcc"].h_cursor
        return cursor

    async def close_cursor(self, cursor: int) -> None:
        await self.connection.call(QMCOMM, RPC_AC_CLOSE_CURSOR, h_queue=self.handle, h_cursor=cursor)

    async def purge(self) -> None:
        await self.connection.call(QMCOMM, RPC_AC_PURGE_QUEUE, h_queue=self.handle)

    async def close(self) -> None:
        await self.connection.call(QMCOMM, RPC_AC_CLOSE_HANDLE, ph_queue=self.handle)


Handle: TypeAlias = RemoteHandle | LocalHandle
H = TypeVar("H", RemoteHandle | LocalHandle, LocalHandle)


class Handles:
    """The handles behind one queue object, each opened when a connection first needs it."""

    def __init__(self, name: FormatName, *, exclusive: bool) -> None:
        self._name = name
        self._exclusive = exclusive
        self._opening = Lock()
        self._local: dict[QueueAccessType, LocalHandle] = {}
        self._reading: dict[QueueAccessType, Handle] = {}
        # A queue object that is garbage-collected without close() must not keep its queue open.
        weakref.finalize(self, _abandon, self._local, self._reading).atexit = False

    async def local(self, connection: MsmqConnection, access: QueueAccessType) -> LocalHandle:
        """Return the handle for sending, or for receiving in transactions."""
        found = _usable(self._local, connection, access)
        if found is None:
            async with self._opening:
                found = _usable(self._local, connection, access)
                if found is None:
                    await self._prepare(connection, access, self._reading)
                    found = await _open_local(connection, self._name, access, self._share_mode(access))
                    self._local[access] = found
        return found

    async def reading(self, connection: MsmqConnection, access: QueueAccessType) -> Handle:
        """Return the handle for reading."""
        found = _usable(self._reading, connection, access)
        if found is None:
            async with self._opening:
                found = _usable(self._reading, connection, access)
                if found is None:
                    await self._prepare(connection, access, self._local)
                    found = self._reading[access] = await self._open_to_read(connection, access)
        return found

    async def _open_to_read(self, connection: MsmqConnection, access: QueueAccessType) -> Handle:
        share_mode = self._share_mode(access)
        try:
            return RemoteHandle(connection, await connection.reader.open(self._name, access, share_mode))
        except (QueueNotFound, UnsupportedFormatnameOperation):
            with contextlib.suppress(StatusError):
                return await _open_local(connection, self._name, TO_ADMIN_ACCESS[access], share_mode)
            raise

    async def _prepare(
        self, connection: MsmqConnection, access: QueueAccessType, others: dict[QueueAccessType, H]
    ) -> None:
        """Close abandoned handles, and the handle of the other kind if this one is exclusive."""
        while connection.abandoned:
            await _close(connection.abandoned.popleft())
        other = others.pop(access, None) if self._is_exclusive(access) else None
        if other is not None and other.connection is connection:
            await _close(other)

    def _is_exclusive(self, access: QueueAccessType) -> bool:
        return self._exclusive and access is QueueAccessType.RECEIVE

    def _share_mode(self, access: QueueAccessType) -> QueueShareMode:
        return QueueShareMode.DENY_RECEIVE if self._is_exclusive(access) else QueueShareMode.DENY_NONE

    def forget(self) -> None:
        """Abandon the handles, so that they are reopened on next use."""
        _abandon(self._local, self._reading)
        self._local.clear()
        self._reading.clear()

    async def close(self) -> None:
        """Close all handles; reads waiting on them end."""
        opened = [*self._local.values(), *self._reading.values()]
        self._local.clear()
        self._reading.clear()
        for one in opened:
            await _close(one)


def _usable(handles: dict[QueueAccessType, H], connection: MsmqConnection, access: QueueAccessType) -> H | None:
    found = handles.get(access)
    return found if found is not None and found.connection is connection and found.is_open else None


async def _open_local(
    connection: MsmqConnection, name: FormatName, access: QueueAccessType, share_mode: QueueShareMode
) -> LocalHandle:
    """Open a queue by rpc_QMOpenQueueInternal."""
    results = await connection.call(
        QMCOMM,
        RPC_QM_OPEN_QUEUE_INTERNAL,
        p_queue_format=queue_format_of(name),
        dw_desired_access=access.value,
        dw_share_mode=int(share_mode),
        h_remote_queue=0,
        lplp_remote_queue_name=Pointed(None),
        dwp_queue=0,
        p_lic_guid=connection.reader.client_id,
        lp_client_name="lanner",
        dw_remote_protocol=0,
        dwp_remote_context=0,
    )
    if results["ph_queue"] == NULL_HANDLE:
        elsewhere: Pointed[str | None] | None = results["lplp_remote_queue_name"]
        if elsewhere is None or elsewhere.value is None:
            raise QueueNotFound(f"there is no queue {name}")
        raise RemoteMachineNotAvailable(f"{name} is {elsewhere.value}: connect to that computer to read from it")
    return LocalHandle(connection, results["ph_queue"], results["pdw_qm_context"])


async def _close(opened: Handle) -> None:
    # A lost connection has already closed its handles.
    if opened.connection.is_open:
        with contextlib.suppress(LannerError):
            await opened.close()


def _abandon(*opened: dict[QueueAccessType, RemoteHandle | LocalHandle] | dict[QueueAccessType, LocalHandle]) -> None:
    for handles in opened:
        for handle in handles.values():
            handle.connection.abandoned.append(handle)
