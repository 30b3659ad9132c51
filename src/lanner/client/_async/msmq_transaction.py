"""Transactions at a queue manager reached by Microsoft's protocols.

`MsmqTransaction` is an internal transaction of that queue manager (MS-MQMP 3.1.1.9). `RemoteBranch`
is a branch of one of Lanner's distributed transactions, which MS-MQRR enlists (3.2.4.2). Windows
refuses its token; another Lanner accepts it.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, cast

from lanner.client._async.io import Lock
from lanner.client._async.mqrr_reader import MqrrReader, OpenMqrrQueue
from lanner.client.remote_message import from_remote_read
from lanner.model.enums import QueueAccessType
from lanner.model.errors import (
    CommitInDoubt,
    LannerError,
    RemoteMachineNotAvailable,
    TransactionSequence,
    UnsupportedOperation,
)
from lanner.services.interfaces.mqmp import (
    QMCOMM,
    R_QM_ABORT_TRANSACTION,
    R_QM_COMMIT_TRANSACTION,
    R_QM_ENLIST_INTERNAL_TRANSACTION,
)
from lanner.wire.propagation_token import pack_token

if TYPE_CHECKING:
    from lanner.client._async.backend import BackendTransaction
    from lanner.client._async.connections import Connections
    from lanner.client._async.msmq_backend import MsmqBackend
    from lanner.client._async.msmq_connection import MsmqConnection
    from lanner.client._async.msmq_queues import MsmqQueue
    from lanner.client.message import ReceivedMessage
    from lanner.model.branches import Branch
    from lanner.rpc.interface import Method


class MsmqTransaction:
    """A transaction: begun on first use, aborted with its connection."""

    def __init__(self, connections: Connections[MsmqConnection]) -> None:
        self._connections = connections
        self.identifier = uuid.uuid4()
        self.is_over = False
        # A receive in the transaction was cancelled, and may have taken a message that the program
        # has not seen.
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
        """Receive the first message of a queue."""

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


class RemoteBranch:
    """A branch of a distributed transaction, enlisted when it first receives or moves a message."""

    def __init__(self, backend: MsmqBackend, branch: Branch) -> None:
        self._backend = backend
        self._branch = branch
        self.identifier = branch.transaction
        # MS-MQRR 2.2.8: the identifier of the coordinator's transaction.
        self.xactuow = branch.transaction.bytes_le
        self.is_over = False
        self._enlisting = Lock()
        self._connection: MsmqConnection | None = None

    @property
    def is_enlisted(self) -> bool:
        return self._connection is not None

    async def enlist(self, connection: MsmqConnection) -> uuid.UUID:
        """Raise UnsupportedOperation: this method is for sending."""
        del connection
        raise UnsupportedOperation(
            f"{self._backend.place}: a distributed transaction receives from other computers and sends to none"
        )

    async def open(self, queue: MsmqQueue, connection: MsmqConnection) -> OpenMqrrQueue:
        """Enlist the transaction, once, and return a queue to receive from (MS-MQRR 3.2.4.2)."""
        reader = connection.reader
        opened = await queue.handles.reading(connection, QueueAccessType.RECEIVE)
        remote = getattr(opened, "queue", None)
        if not isinstance(reader, MqrrReader) or not isinstance(remote, OpenMqrrQueue):
            raise UnsupportedOperation(
                f"{self._backend.place} does not serve MS-MQRR, which reads in distributed transactions"
            )
        async with self._enlisting:
            if self._connection is None:
                await reader.enlist(self.xactuow, pack_token(self._branch), queue.name)
                self._connection = connection
            elif self._connection is not connection:
                raise TransactionSequence(f"transaction {self.identifier}: the connection was lost")
        return remote

    async def receive(self, queue: MsmqQueue, limit: int) -> ReceivedMessage:
        """Receive the first message of a queue."""

        async def receive(connection: MsmqConnection) -> ReceivedMessage:
            opened = await self.open(queue, connection)
            return from_remote_read(await opened.receive(limit, transaction=self.xactuow))

        return await queue.do(receive)

    async def commit(self) -> None:
        """Raise TransactionSequence: the coordinator commits."""
        raise TransactionSequence(f"transaction {self.identifier} is committed by its coordinator")

    async def abort(self) -> None:
        self.is_over = True
        if self.is_enlisted:
            branch = self._branch
            await self._backend.distributed(
                "end branch",
                commit=False,
                coordinator=str(branch.coordinator),
                identifier=str(branch.transaction),
                resource=branch.resource,
            )


def own(unit: BackendTransaction) -> MsmqTransaction | RemoteBranch:
    """Cast a transaction to this backend's class; `Transaction.unit` has checked its backend."""
    return cast("MsmqTransaction | RemoteBranch", unit)
