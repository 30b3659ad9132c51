"""Internal transactions of the queue client.

MS-MQMP 3.1.1.9, 3.1.4.12 to 3.1.4.16, 3.1.7.3. A transaction has two names: a context handle that
ends it, and the XACTUOW that its sends and receives carry. Both are valid in the association that
created the transaction; when the association ends, an open transaction is aborted. There is no
MS-DTCO transaction manager to name (3.1.4.12, 3.1.4.13).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import MQ_OK, DtcConnect, InvalidHandle, InvalidParameter, StatusError, TransactionSequence
from lanner.model.guid_table import GuidTable
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE
from lanner.rpc.server import WhenDurable
from lanner.services.interfaces.mqmp import RPC_INT_XACT_HANDLE
from lanner.services.queue_client_tables import HandleTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine import Engine
    from lanner.host.committer import Committer
    from lanner.model.live import Transaction
    from lanner.rpc.calls import Caller, ServerCall
    from lanner.rpc.server import Handler
    from lanner.services.queue_client_answers import Answer, Answers

_KIND: Final = RPC_INT_XACT_HANDLE.kind


@dataclass(frozen=True, slots=True, eq=False)
class TransactionHandle:
    """TransactionHandle (3.1.1.10)."""

    transaction: Transaction
    caller: Caller


class TransactionHandles(HandleTable[UUID, TransactionHandle]):
    """iTransactionHandleTable (3.1.1.9) and the methods on it."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        super().__init__(engine, committer)
        # Clients choose the identifiers.
        self._held = GuidTable()

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers of qmcomm, by method name."""
        return {
            "R_QMGetTmWhereabouts": self.get_whereabouts,
            "R_QMEnlistTransaction": self.enlist_transaction,
            "R_QMEnlistInternalTransaction": self.enlist_internal_transaction,
            "R_QMCommitTransaction": self.commit_transaction,
            "R_QMAbortTransaction": self.abort_transaction,
        }

    def find(self, call: ServerCall, uow: bytes | None) -> Transaction | None:
        """Return the transaction of pUow; TransactionSequence if this client did not enlist it.

        None or zeros mean no transaction (3.1.5.2).
        """
        identifier = None if uow is None else UUID(bytes_le=uow)
        if identifier is None or identifier == GUID_NULL:
            return None
        held = self._held.get(identifier)
        if held is None or not held.caller.includes(call.caller):
            raise TransactionSequence(f"transaction {identifier} was not enlisted")
        return held.transaction

    def get_whereabouts(self, call: ServerCall, cb_buf_size: int) -> Answer:
        """3.1.4.12 R_QMGetTmWhereabouts."""
        del call, cb_buf_size
        return DtcConnect.status

    def enlist_transaction(self, call: ServerCall, p_uow: bytes, cb_cookie: int, pb_cookie: bytes) -> Answer:
        """3.1.4.13 R_QMEnlistTransaction: external transactions cannot be imported."""
        del call, cb_cookie, pb_cookie
        with self._lock:
            is_known = UUID(bytes_le=p_uow) in self._engine.queue_manager.transaction_collection
        return MQ_OK if is_known else DtcConnect.status

    def enlist_internal_transaction(self, call: ServerCall, p_uow: bytes) -> Answer:
        """3.1.4.14 R_QMEnlistInternalTransaction."""
        identifier = UUID(bytes_le=p_uow)
        if identifier == GUID_NULL:
            raise InvalidParameter("pUow is zero")
        with self._lock:
            transaction = self._engine.create_transaction(identifier)
        held = TransactionHandle(transaction, call.caller)
        self._held[identifier] = held
        try:
            handle = call.caller.add(held, _KIND, partial(self._run_down, held))
        except RpcFault:
            self._run_down(held)
            raise
        return {"ph_int_xact": handle, RETURNS: MQ_OK}

    def commit_transaction(self, call: ServerCall, ph_int_xact: bytes) -> Answers:
        """3.1.4.15 R_QMCommitTransaction: answered when the commit is durable."""
        return self._end(call, ph_int_xact, self._engine.transaction_commit)

    def abort_transaction(self, call: ServerCall, ph_int_xact: bytes) -> Answers:
        """3.1.4.16 R_QMAbortTransaction."""
        return self._end(call, ph_int_xact, self._engine.transaction_abort)

    def _end(self, call: ServerCall, handle: bytes, event: Callable[[UUID], None]) -> Answers:
        if handle == NULL_HANDLE:
            raise InvalidHandle("a NULL transaction handle")
        held = cast("TransactionHandle", call.caller.remove(handle, _KIND))
        identifier = held.transaction.identifier
        del self._held[identifier]
        try:
            with self._committer.change() as change:
                event(identifier)
        except StatusError as error:
            # It ended in another way: the queue manager was stopped.
            return {"ph_int_xact": NULL_HANDLE, RETURNS: error.status}
        return WhenDurable(change, {"ph_int_xact": NULL_HANDLE})

    def _run_down(self, held: TransactionHandle) -> None:
        """Abort an open transaction in the rundown (3.1.7.3)."""
        identifier = held.transaction.identifier
        if self._held.pop(identifier, None) is None:
            return
        with self._committer.change() as change:
            if held.transaction.is_over:
                return
            self._engine.transaction_abort(identifier)
        change.soon()
