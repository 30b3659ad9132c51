"""MSMQTransactionDispenser and MSMQCoordinatedTransactionDispenser (MC-MQAC 3.6, 3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lanner.activex.tables import MSMQ_COORDINATED_TRANSACTION_DISPENSER, MSMQ_TRANSACTION_DISPENSER
from lanner.activex.transaction import MSMQTransaction, TransactionImpl, enlisted
from lanner.com.objects import ComObject
from lanner.model.errors import DtcConnect

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall


class MSMQTransactionDispenser(ComObject):
    """3.6 MSMQTransactionDispenser: internal transactions."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_TRANSACTION_DISPENSER.interfaces

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def begin_transaction(self, call: ComCall) -> MSMQTransaction:
        """Begin an internal transaction (3.6.4.1.1 BeginTransaction)."""
        del call
        environment = self._environment
        transaction = TransactionImpl(environment, is_internal=True)
        with environment.lock:
            environment.engine.create_transaction(transaction.identifier)
        return MSMQTransaction(environment, transaction)


class MSMQCoordinatedTransactionDispenser(ComObject):
    """3.7 MSMQCoordinatedTransactionDispenser: external transactions.

    They need a distributed transaction manager.
    """

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_COORDINATED_TRANSACTION_DISPENSER.interfaces

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def begin_transaction(self, call: ComCall) -> MSMQTransaction:
        """Begin an external transaction (3.7.4.1.1 BeginTransaction)."""
        del call
        environment = self._environment
        manager = environment.transaction_manager
        if manager is None:
            raise DtcConnect("there is no distributed transaction manager")
        transaction = TransactionImpl(environment, await manager.begin(), is_internal=False)
        with environment.lock:
            enlisted(environment, transaction.identifier)
        return MSMQTransaction(environment, transaction)
