"""MSMQTransaction, the transaction object behind it, and Transaction arguments.

MC-MQAC 3.8, 3.9 and 2.2.2.1. The queue manager owns an internal transaction. A distributed
transaction manager owns an external one: it decides, and the queue manager receives the outcome by
the events of MS-MQDMPR 3.1.4.6 to 3.1.4.8. There is no such manager unless the environment has one.

A transaction object lives while an MSMQTransaction or a client holds it. If it is released without
having ended, the transaction is aborted.
"""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from lanner.activex import arguments
from lanner.activex.tables import ITRANSACTION, MSMQ_TRANSACTION
from lanner.com.automation.values import EMPTY, Variant
from lanner.com.constants import E_INVALIDARG
from lanner.com.objects import ComError, ComObject
from lanner.model.errors import TransactionSequence, TransactionUsage
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall
    from lanner.host.change import Change
    from lanner.model.live import Transaction

# MS-ERREF 2.1.
XACT_E_NOTSUPPORTED: Final = 0x8004_D00F
# 2.2.2.21 XACTTC.
XACTTC_SYNC: Final = 0x0000_0002
# Scripts pass numeric literals as VT_I2.
_NUMBERS: Final = frozenset((VT.I4, VT.INT, VT.I2))
_OBJECTS: Final = frozenset((VT.UNKNOWN, VT.DISPATCH))


class MqTransaction(enum.IntEnum):
    """2.2.2.1 MQTRANSACTION."""

    MQ_NO_TRANSACTION = 0
    MQ_MTS_TRANSACTION = 1
    MQ_XA_TRANSACTION = 2
    MQ_SINGLE_MESSAGE = 3


@dataclass(frozen=True, slots=True)
class XactTransInfo:
    """2.2.3.2 XACTTRANSINFO."""

    uow: uuid.UUID
    iso_level: int = 0
    iso_flags: int = 0
    grf_tc_supported: int = 0
    grf_rm_supported: int = 0
    grf_tc_supported_retaining: int = 0
    grf_rm_supported_retaining: int = 0


class TransactionManager(Protocol):
    """A distributed transaction manager as seen by the owner of external transactions.

    MS-DTCO 3.3.4. Its errors are StatusErrors.
    """

    async def begin(self) -> uuid.UUID:
        """Begin a transaction in which this queue manager is enlisted."""

    async def commit(self, identifier: uuid.UUID, *, retaining: bool, grf_tc: int, grf_rm: int) -> None:
        """Request a commit. The queue manager receives the outcome later."""

    async def abort(self, identifier: uuid.UUID, *, retaining: bool, is_async: bool) -> None:
        """Request an abort."""

    async def information(self, identifier: uuid.UUID) -> XactTransInfo:
        """Return the information that the manager has about a transaction."""


class TransactionImpl(ComObject):
    """3.8 TransactionImpl.

    Its methods are not those in the table of ITransaction, because that interface takes no remote
    calls (3.8.4.1).
    """

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = (ITRANSACTION,)

    def __init__(self, environment: Environment, identifier: uuid.UUID | None = None, *, is_internal: bool) -> None:
        self._environment = environment
        self.identifier = uuid.uuid4() if identifier is None else identifier
        self.is_internal = is_internal
        self.is_committed_or_aborted = False
        # The MSMQTransactions that hold it, and whether a client holds it.
        self._holders: set[MSMQTransaction] = set()
        self._is_exported = False

    def enlisted(self) -> Transaction:
        """Return the queue manager's transaction, created if necessary.

        Called with the lock held.
        """
        if self.is_committed_or_aborted:
            raise TransactionSequence(f"transaction {self.identifier} has ended: begin another one")
        return enlisted(self._environment, self.identifier)

    async def commit_transaction(self, *, retaining: bool, grf_tc: int, grf_rm: int) -> None:
        """Commit (3.8.4.1.1 Commit). The changes are durable when this returns."""
        if not self.is_internal:
            await self._manager.commit(self.identifier, retaining=retaining, grf_tc=grf_tc, grf_rm=grf_rm)
            self.is_committed_or_aborted = True
            return
        if grf_rm or retaining or grf_tc != XACTTC_SYNC:
            raise ComError(XACT_E_NOTSUPPORTED, f"fRetaining {retaining}, grfTC {grf_tc:#x}, grfRM {grf_rm:#x}")
        self._end_once()
        environment = self._environment
        with environment.committer.change() as change:
            environment.engine.transaction_commit(self.identifier)
        await change

    async def abort_transaction(self, *, retaining: bool, is_async: bool) -> None:
        """Abort (3.8.4.1.2 Abort)."""
        if not self.is_internal:
            await self._manager.abort(self.identifier, retaining=retaining, is_async=is_async)
            self.is_committed_or_aborted = True
            return
        if retaining or is_async:
            raise ComError(XACT_E_NOTSUPPORTED, f"fRetaining {retaining}, fAsync {is_async}")
        self._end_once()
        await self._abort()

    async def transaction_info(self) -> XactTransInfo:
        """Return the transaction's information (3.8.4.1.3 GetTransactionInfo)."""
        if self.is_internal:
            return XactTransInfo(self.identifier)
        return await self._manager.information(self.identifier)

    def _end_once(self) -> None:
        if self.is_committed_or_aborted:
            raise TransactionSequence(f"transaction {self.identifier} has ended already")
        self.is_committed_or_aborted = True

    def _abort(self) -> Change:
        environment = self._environment
        with environment.committer.change() as change:
            environment.engine.transaction_abort(self.identifier)
        return change

    @property
    def _manager(self) -> TransactionManager:
        manager = self._environment.transaction_manager
        if manager is None:
            raise TransactionUsage(f"transaction {self.identifier}: there is no distributed transaction manager")
        return manager

    # Holders
    # ----------------------------------------------------------------------------------------------

    def hold(self, holder: MSMQTransaction) -> None:
        self._holders.add(holder)

    def let_go(self, holder: MSMQTransaction) -> None:
        self._holders.discard(holder)
        self._abort_if_forgotten()

    def exported(self) -> TransactionImpl:
        """Return the object for marshaling to a client."""
        self._is_exported = True
        return self

    def released(self) -> None:
        self._is_exported = False
        self._abort_if_forgotten()

    def _abort_if_forgotten(self) -> None:
        if self._holders or self._is_exported or self.is_committed_or_aborted:
            return
        self.is_committed_or_aborted = True
        environment = self._environment
        with environment.lock:
            is_open = self.identifier in environment.engine.queue_manager.transaction_collection
        if is_open:
            self._abort().soon()


class MSMQTransaction(ComObject):
    """3.9 MSMQTransaction."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_TRANSACTION.interfaces

    def __init__(self, environment: Environment, transaction: TransactionImpl | None = None) -> None:
        del environment  # every coclass takes it; here the transaction does the work
        self.transaction = transaction
        if transaction is not None:
            transaction.hold(self)

    def released(self) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            transaction.let_go(self)

    async def commit(self, call: ComCall, f_retaining: Variant, grf_tc: Variant, grf_rm: Variant) -> None:
        """Commit (3.9.4.1.2 Commit)."""
        del call
        await self._attached().commit_transaction(
            retaining=arguments.flag(f_retaining, "fRetaining", default=False),
            grf_tc=arguments.number(grf_tc, XACTTC_SYNC, "grfTC"),
            grf_rm=arguments.number(grf_rm, 0, "grfRM"),
        )

    async def abort(self, call: ComCall, f_retaining: Variant, f_async: Variant) -> None:
        """Abort (3.9.4.1.3 Abort)."""
        del call
        await self._attached().abort_transaction(
            retaining=arguments.flag(f_retaining, "fRetaining", default=False),
            is_async=arguments.flag(f_async, "fAsync", default=False),
        )

    def init_new(self, call: ComCall, var_transaction: Variant) -> None:
        """Take over a transaction (3.9.4.2.1 InitNew)."""
        del call
        if self.transaction is not None:
            raise TransactionUsage("the object has a transaction already")
        found = arguments.dereferenced(var_transaction)
        if found.vt not in _OBJECTS or not isinstance(found.value, TransactionImpl):
            # A foreign transaction object cannot be one of this queue manager.
            raise ComError(E_INVALIDARG, f"varTransaction: {var_transaction!r} has no ITransaction")
        self.transaction = found.value
        self.transaction.hold(self)

    def get_i_transaction(self, call: ComCall) -> Variant:
        """Return ITransaction (3.9.4.3.1)."""
        del call
        return EMPTY if self.transaction is None else Variant(VT.UNKNOWN, self.transaction.exported())

    def _attached(self) -> TransactionImpl:
        if self.transaction is None:
            raise ComError(E_INVALIDARG, "the object has no transaction")
        return self.transaction


# Transaction arguments
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransactionArgument:
    """The transaction in which an operation takes place."""

    transaction: Transaction | None = None
    # MQ_SINGLE_MESSAGE: a separate transaction for one message.
    is_single_message: bool = False


def resolve_transaction(
    environment: Environment,
    variant: Variant,
    *,
    default: MqTransaction = MqTransaction.MQ_MTS_TRANSACTION,
) -> TransactionArgument:
    """Return the meaning of the Transaction argument of Send or Receive.

    It is an MSMQTransaction, directly or by reference, or a number of MQTRANSACTION; anything else
    raises an error. Called without the lock.
    """
    found = arguments.given(variant)
    if found is None:
        return _numbered(default)
    if found.vt in _NUMBERS:
        try:
            kind = MqTransaction(found.value)
        except ValueError:
            raise ComError(E_INVALIDARG, f"Transaction {found.value}") from None
        return _numbered(kind)
    if found.vt != VT.DISPATCH or not isinstance(found.value, MSMQTransaction):
        raise ComError(E_INVALIDARG, f"Transaction: {found!r} is no MSMQTransaction")
    transaction = found.value.transaction
    if transaction is None:
        raise ComError(E_INVALIDARG, "Transaction: the MSMQTransaction has no transaction")
    with environment.lock:
        return TransactionArgument(transaction.enlisted())


def _numbered(kind: MqTransaction) -> TransactionArgument:
    # DECISIONS: MQ_MTS_TRANSACTION and MQ_XA_TRANSACTION mean no transaction unless there is a
    # context transaction, and no activation context that reaches us has one.
    return TransactionArgument(is_single_message=kind is MqTransaction.MQ_SINGLE_MESSAGE)


def enlisted(environment: Environment, identifier: uuid.UUID) -> Transaction:
    """Return a transaction of TransactionCollection, adding it if necessary.

    Called with the lock held.
    """
    engine = environment.engine
    found = engine.queue_manager.transaction_collection.get(identifier)
    return engine.create_transaction(identifier) if found is None else found
