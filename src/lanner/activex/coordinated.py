"""The queue manager's coordinator, as the owner of external transactions (3.7, 3.8.4.1).

A client of these objects has one queue manager in its transaction, so the coordinator requests a
single-phase commit. What the documents send as MTAG messages are calls of the engine and its
answers (host/coordinator.py).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from lanner.activex.transaction import XACT_E_NOTSUPPORTED, XACTTC_SYNC, XactTransInfo
from lanner.com.objects import ComError
from lanner.engine.dtc import Outcome
from lanner.host.coordinator import coordinator_of
from lanner.model.errors import TransactionSequence

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.committer import Committer

# 2.2.2.21 XACTTC: the default, and waiting for either phase. A single-phase commit satisfies all.
_TC: Final = frozenset((0, 1, XACTTC_SYNC))


class CoordinatedTransactions:
    """The TransactionManager of a queue manager that has a coordinator."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer

    async def begin(self) -> uuid.UUID:
        """Return the identifier of a new transaction.

        Raise DtcConnect if there is no coordinator, or if it has no log.
        """
        with self._engine.store.lock:
            # A coordinator without a readable log could not report the outcome.
            coordinator_of(self._engine).require_log()
        return uuid.uuid4()

    async def commit(self, identifier: uuid.UUID, *, retaining: bool, grf_tc: int, grf_rm: int) -> None:
        if retaining or grf_rm or grf_tc not in _TC:
            raise ComError(XACT_E_NOTSUPPORTED, f"fRetaining {retaining}, grfTC {grf_tc:#x}, grfRM {grf_rm:#x}")
        await self._end(identifier, Outcome.COMMITTED)

    async def abort(self, identifier: uuid.UUID, *, retaining: bool, is_async: bool) -> None:
        del is_async  # waiting for the end takes no longer
        if retaining:
            raise ComError(XACT_E_NOTSUPPORTED, f"fRetaining {retaining}")
        await self._end(identifier, Outcome.ABORTED)

    async def _end(self, identifier: uuid.UUID, wanted: Outcome) -> None:
        coordinator = coordinator_of(self._engine)
        with self._committer.change() as change:
            if identifier not in self._engine.queue_manager.transaction_collection:
                raise TransactionSequence(f"transaction {identifier} has ended already")
            coordinator.expect(identifier)
            if wanted is Outcome.COMMITTED:
                self._engine.dtc_transaction_prepare(identifier, single_phase=True)
            else:
                self._engine.dtc_transaction_abort(identifier)
        await change
        with self._engine.store.lock:
            answer = coordinator.answer(identifier)
        if answer is not wanted:
            raise TransactionSequence(f"transaction {identifier} was not {wanted.value}")

    async def information(self, identifier: uuid.UUID) -> XactTransInfo:
        return XactTransInfo(identifier)
