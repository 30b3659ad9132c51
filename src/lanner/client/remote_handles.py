"""Open queues of a queue manager elsewhere: by MS-MQMP to send, in transactions and for administrators, else by MS-MQQP to read."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from lanner.client.message import ReceivedMessage
from lanner.client.remote_messages import from_buffer, from_remote_read
from lanner.client.remote_session import Session, Sessions, check
from lanner.model.enums import MessageSeekAction, QueueAccessType, QueueShareMode
from lanner.model.errors import (
    InvalidParameter,
    LannerError,
    QueueNotFound,
    RemoteMachineNotAvailable,
    StatusError,
    UnsupportedFormatnameOperation,
    UnsupportedOperation,
)
from lanner.model.live import MAX_LOOKUP_ID
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
from lanner.services.remote_read import (
    MQ_ACTION_PEEK_CURRENT,
    MQ_ACTION_PEEK_NEXT,
    MQ_ACTION_RECEIVE,
    MQ_LOOKUP_PEEK_CURRENT,
    MQ_LOOKUP_PEEK_NEXT,
    MQ_LOOKUP_PEEK_PREV,
    MQ_LOOKUP_RECEIVE_CURRENT,
    MQ_LOOKUP_RECEIVE_NEXT,
    MQ_LOOKUP_RECEIVE_PREV,
)

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.services.interfaces.mqmp import CACTransferBufferV2
    from lanner.services.remote_read_client import OpenRemoteQueue
    from lanner.wire.format_name import FormatName

# What waits in an outgoing queue is looked at with an administrator's access (MS-MQDMPR 3.1.1.17).
_ADMIN_ACCESS: Final = {
    QueueAccessType.RECEIVE: QueueAccessType.RECEIVE_ADMIN,
    QueueAccessType.PEEK: QueueAccessType.PEEK_ADMIN,
}
# MS-MQQP 3.1.4.11: the first message is the next of none, the last the previous of all ones.
_SEEKS: Final = {
    MessageSeekAction.CURRENT: (MQ_LOOKUP_PEEK_CURRENT, MQ_LOOKUP_RECEIVE_CURRENT, None),
    MessageSeekAction.NEXT: (MQ_LOOKUP_PEEK_NEXT, MQ_LOOKUP_RECEIVE_NEXT, None),
    MessageSeekAction.PREVIOUS: (MQ_LOOKUP_PEEK_PREV, MQ_LOOKUP_RECEIVE_PREV, None),
    MessageSeekAction.FIRST: (MQ_LOOKUP_PEEK_NEXT, MQ_LOOKUP_RECEIVE_NEXT, 0),
    MessageSeekAction.LAST: (MQ_LOOKUP_PEEK_PREV, MQ_LOOKUP_RECEIVE_PREV, MAX_LOOKUP_ID),
}


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


def seek(lookup_id: int, where: str, *, is_peek: bool) -> tuple[int, int]:
    """The lookup id and the action of MS-MQQP for a place."""
    try:
        peeks, receives, fixed = _SEEKS[MessageSeekAction(where)]
    except ValueError:
        known = ", ".join(member.value for member in MessageSeekAction)
        raise InvalidParameter(f"{where!r}: one of {known}") from None
    if not 0 <= lookup_id <= MAX_LOOKUP_ID:
        raise InvalidParameter(f"lookup id {lookup_id!r}: a number from 0 to {MAX_LOOKUP_ID:#x}")
    return lookup_id if fixed is None else fixed, peeks if is_peek else receives


@dataclass(slots=True, eq=False)
class PlainQueue:
    """A queue that is read by MS-MQQP. Time-outs are milliseconds."""

    session: Session
    queue: OpenRemoteQueue

    async def peek(self, timeout: int, cursor: int = 0) -> ReceivedMessage:
        return from_remote_read(await self.queue.peek(timeout, cursor))

    async def peek_next(self, timeout: int, cursor: int) -> ReceivedMessage:
        return from_remote_read(await self.queue.peek_next(cursor, timeout))

    async def receive(self, timeout: int, cursor: int = 0) -> ReceivedMessage:
        return from_remote_read(await self.queue.receive(timeout, cursor))

    async def look_up(self, lookup_id: int, where: str, *, is_peek: bool) -> ReceivedMessage:
        return from_remote_read(await self.queue.look_up(*seek(lookup_id, where, is_peek=is_peek)))

    async def create_cursor(self) -> int:
        return await self.queue.create_cursor()

    async def close_cursor(self, cursor: int) -> None:
        await self.queue.close_cursor(cursor)

    async def purge(self) -> None:
        await self.queue.purge()

    async def close(self) -> None:
        await self.queue.close()


@dataclass(slots=True, eq=False)
class LocalQueue:
    """A queue that was opened by MS-MQMP: RPC_QUEUE_HANDLE, and the number that receives need (3.1.4.17)."""

    session: Session
    handle: bytes
    context: int
    # As much as the largest message so far needed: the next one is like it.
    _sizes: BufferSizes = field(default_factory=_DEFAULT_SIZES.copy)

    async def peek(self, timeout: int, cursor: int = 0) -> ReceivedMessage:
        return await self._read(MQ_ACTION_PEEK_CURRENT, timeout, cursor)

    async def peek_next(self, timeout: int, cursor: int) -> ReceivedMessage:
        return await self._read(MQ_ACTION_PEEK_NEXT, timeout, cursor)

    async def receive(self, timeout: int, cursor: int = 0, transaction: UUID | None = None) -> ReceivedMessage:
        return await self._read(MQ_ACTION_RECEIVE, timeout, cursor, transaction)

    async def look_up(self, lookup_id: int, where: str, *, is_peek: bool) -> ReceivedMessage:
        del lookup_id, where, is_peek
        raise UnsupportedOperation("lookup ids are for queues of the computer itself, outside transactions")

    async def _read(self, action: int, timeout: int, cursor: int, transaction: UUID | None = None) -> ReceivedMessage:
        bound = await self.session.bound(QMCOMM2)
        while True:
            asked = receive_buffer(action=action, timeout=timeout, cursor=cursor, uow=transaction, **self._sizes)
            results = await bound.call(RPC_AC_RECEIVE_MESSAGE_EX, h_qm_context=self.context, ptb=asked)
            filled: CACTransferBufferV2 = results["ptb"]
            try:
                check(results)
            except StatusError:
                # A message that does not fit stays where it is, and the sizes are told (3.1.5.3).
                larger = _larger(self._sizes, needed_sizes(filled))
                if larger == self._sizes:
                    raise
                self._sizes = larger
                continue
            return from_buffer(filled)

    async def create_cursor(self) -> int:
        results = await self.session.call(
            QMCOMM2, RPC_AC_CREATE_CURSOR_EX, h_queue=self.handle, pcc=CACCreateRemoteCursor()
        )
        cursor: int = results["pcc"].h_cursor
        return cursor

    async def close_cursor(self, cursor: int) -> None:
        await self.session.call(QMCOMM, RPC_AC_CLOSE_CURSOR, h_queue=self.handle, h_cursor=cursor)

    async def purge(self) -> None:
        await self.session.call(QMCOMM, RPC_AC_PURGE_QUEUE, h_queue=self.handle)

    async def close(self) -> None:
        await self.session.call(QMCOMM, RPC_AC_CLOSE_HANDLE, ph_queue=self.handle)


ReadQueue: TypeAlias = PlainQueue | LocalQueue


async def open_local(
    session: Session, name: FormatName, access: QueueAccessType, share_mode: QueueShareMode
) -> LocalQueue:
    """rpc_QMOpenQueueInternal."""
    results = await session.call(
        QMCOMM,
        RPC_QM_OPEN_QUEUE_INTERNAL,
        p_queue_format=queue_format_of(name),
        dw_desired_access=access.value,
        dw_share_mode=int(share_mode),
        h_remote_queue=0,
        lplp_remote_queue_name=Pointed(None),
        dwp_queue=0,
        p_lic_guid=session.reader.client_id,
        lp_client_name="lanner",
        dw_remote_protocol=0,
        dwp_remote_context=0,
    )
    if results["ph_queue"] == NULL_HANDLE:
        elsewhere: Pointed[str | None] | None = results["lplp_remote_queue_name"]
        if elsewhere is None or elsewhere.value is None:
            raise QueueNotFound(f"there is no queue {name}")
        raise RemoteMachineNotAvailable(f"{name} is {elsewhere.value}: connect to that computer to read from it")
    return LocalQueue(session, results["ph_queue"], results["pdw_qm_context"])


class Handles:
    """The open handles behind one queue object, each opened when it is first needed; those of a lost session are of no use."""

    def __init__(
        self,
        sessions: Sessions,
        name: FormatName,
        owner: object,
        abandoned: deque[ReadQueue],
        *,
        exclusive: bool,
    ) -> None:
        self._sessions = sessions
        self._name = name
        self._exclusive = exclusive
        self._abandoned = abandoned
        # Who comes while another opens a handle uses that one.
        self._opening = asyncio.Lock()
        self._local: dict[QueueAccessType, LocalQueue] = {}
        self._reading: dict[QueueAccessType, ReadQueue] = {}
        # A queue object that is forgotten instead of closed must not keep its queue open.
        weakref.finalize(owner, _abandon, abandoned, self._local, self._reading).atexit = False

    async def local(self, session: Session, access: QueueAccessType) -> LocalQueue:
        """For sending, and for receives in a transaction."""
        found = self._local.get(access)
        if found is None or found.session is not session:
            async with self._opening:
                found = self._local.get(access)
                if found is None or found.session is not session:
                    await self._tidy(session)
                    found = await open_local(session, self._name, access, self._share_mode(access))
                    self._local[access] = found
        return found

    async def reading(self, session: Session, access: QueueAccessType) -> ReadQueue:
        """For reads; of an outgoing queue as an administrator."""
        found = self._reading.get(access)
        if found is None or found.session is not session:
            async with self._opening:
                found = self._reading.get(access)
                if found is None or found.session is not session:
                    await self._tidy(session)
                    found = self._reading[access] = await self._open_to_read(session, access)
        return found

    async def _open_to_read(self, session: Session, access: QueueAccessType) -> ReadQueue:
        share_mode = self._share_mode(access)
        try:
            return PlainQueue(session, await session.reader.open(self._name, access, share_mode))
        except (QueueNotFound, UnsupportedFormatnameOperation):
            with contextlib.suppress(StatusError):
                return await open_local(session, self._name, _ADMIN_ACCESS[access], share_mode)
            raise

    def _share_mode(self, access: QueueAccessType) -> QueueShareMode:
        is_exclusive = self._exclusive and access is QueueAccessType.RECEIVE
        return QueueShareMode.DENY_RECEIVE if is_exclusive else QueueShareMode.DENY_NONE

    async def _tidy(self, session: Session) -> None:
        while self._abandoned:
            await _close(self._abandoned.popleft(), session)

    def forget(self) -> None:
        """Open them anew when they are needed again."""
        _abandon(self._abandoned, self._local, self._reading)
        self._local.clear()
        self._reading.clear()

    async def close(self) -> None:
        """Close them all; reads that wait on them end."""
        opened = [*self._local.values(), *self._reading.values()]
        self._local.clear()
        self._reading.clear()
        for one in opened:
            if self._sessions.is_current(one.session):
                await _close(one, one.session)


async def _close(opened: ReadQueue, session: Session) -> None:
    if opened.session is session:
        # What is closed already, or goes with the connection, is closed.
        with contextlib.suppress(LannerError):
            await opened.close()


def _abandon(
    abandoned: deque[ReadQueue],
    local: dict[QueueAccessType, LocalQueue],
    reading: dict[QueueAccessType, ReadQueue],
) -> None:
    abandoned.extend([*local.values(), *reading.values()])
