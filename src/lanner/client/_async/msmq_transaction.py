"""Internal transactions of a queue manager that is reached by MS-MQMP (3.1.1.9)."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, cast

from lanner.client._async.io import Lock
from lanner.model.enums import QueueAccessType
from lanner.model.errors import CommitInDoubt, LannerError, RemoteMachineNotAvailable, TransactionSequence
from lanner.services.interfaces.mqmp import (
    QMCOMM,
    R_QM_ABORT_TRANSACTION,
    R_QM_COMMIT_TRANSACTION,
    R_QM_ENLIST_INTERNAL_TRANSACTION,
)

if TYPE_CHECKING:
    from lanner.client._async.backend import BackendTransaction
    from lanner.client._async.connections import Connections
    from lanner.client._async.msmq_connection import MsmqConnection
    from lanner.client._async.msmq_queues import MsmqQueue
    from lanner.client.message import ReceivedMessage
    from lanner.rpc.interface import Method


class MsmqTransaction:
    """A transaction, begun when it is first used, and aborted with its connection."""

    def __init__(self, connections: Connections[MsmqConnection]) -> None:
        self._connections = connections
        self.identifier = uuid.uuid4()
        self.is_over = False
        # A receive in it was cancelled, and may have taken a message that the program has not seen.
        self._is_doomed = False
        self._enlisting = Lock()
        self._enlisted: tuple[MsmqConnection, bytes] | None = None

    async def enlist(self, connection: MsmqConnection) -> uuid.UUID:
        """Begin the transaction, once, and return its identifier for an operation in it."""
        if self._is_doomed:
            raise self._doomed("must be aborted")
        async with self._enlisting:
            if self._enlisted is None:
                results = await connection.call(
                    QMCOMM, R_QM_ENLIST_INTERNAL_TRANSACTION, p_uow=self.identifier.bytes_le
                )
                self._enlisted = connection, results["ph_int_xact"]
            elif self._enlisted[0] is not connection:
                raise self._lost()
        return self.identifier

    async def receive(self, queue: MsmqQueue, limit: int) -> ReceivedMessage:
        """Take the first message of a queue."""

        async def receive(connection: MsmqConnection) -> ReceivedMessage:
            identifier = await self.enlist(connection)
            opened = await queue.handles.local(connection, QueueAccessType.RECEIVE)
            return await opened.receive(limit, transaction=identifier)

        try:
            return await queue.do(receive)
        except LannerError:
            raise
        except BaseException:
            self._is_doomed = True
            raise

    async def commit(self) -> None:
        if self._is_doomed:
            with contextlib.suppress(LannerError):
                await self.abort()
            raise self._doomed("was aborted")
        try:
            await self._end(R_QM_COMMIT_TRANSACTION)
        except RemoteMachineNotAvailable as error:
            raise CommitInDoubt(
                f"transaction {self.identifier}: {error.args[0]}: whether it is committed is unknown"
            ) from error

    async def abort(self) -> None:
        await self._end(R_QM_ABORT_TRANSACTION)

    async def _end(self, method: Method) -> None:
        self.is_over = True
        if self._enlisted is None:
            return
        made, handle = self._enlisted
        if not made.is_open or not self._connections.is_current(made):
            raise self._lost()
        await self._connections.do(
            f"transaction {self.identifier}", lambda _: made.call(QMCOMM, method, ph_int_xact=handle)
        )

    def _lost(self) -> TransactionSequence:
        return TransactionSequence(f"transaction {self.identifier} was aborted: the connection was lost")

    def _doomed(self, what: str) -> TransactionSequence:
        return TransactionSequence(
            f"transaction {self.identifier} {what}: a receive in it was cancelled, and may have taken a message"
        )


def own(unit: BackendTransaction) -> MsmqTransaction:
    """Return a transaction as its kind; `Transaction.unit` has checked whose it is."""
    return cast("MsmqTransaction", unit)
