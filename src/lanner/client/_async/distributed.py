"""`distributed`: one transaction over queues and databases, which commits all or nothing.

`host.coordinator.Steps` decides the steps and their order; this module executes them. Each step is
logged at DEBUG before it is executed.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakKeyDictionary

from lanner.client._async.io import unbroken
from lanner.client._async.participants import DatabaseParticipant, QueueManagerParticipant, resolve
from lanner.client._async.queue_manager import QueueManager
from lanner.client._async.transaction import Transaction
from lanner.client.databases import Database
from lanner.engine.dtc import Outcome
from lanner.host.coordinator import Input, Stage, Step, Steps
from lanner.model.branches import OWN_RESOURCE, Branch, check_resource_name
from lanner.model.errors import (
    AccessDenied,
    CommitInDoubt,
    DtcConnect,
    InsufficientResources,
    InvalidHandle,
    InvalidParameter,
    LannerError,
    ServiceNotAvailable,
    TransactionAborted,
    TransactionSequence,
    TransactionUsage,
    UnsupportedOperation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.client._async.backend import Backend, BackendTransaction

_LOG: Final = logging.getLogger(__name__)

# Answers of a queue manager, and requests that were never sent to it. After any other error the
# step may have been done.
_REFUSALS: Final = (
    AccessDenied,
    DtcConnect,
    InsufficientResources,
    InvalidHandle,
    InvalidParameter,
    ServiceNotAvailable,
    TransactionAborted,
    TransactionSequence,
    UnsupportedOperation,
)
# For each coordinator's queue manager: the resources whose branches this process has resolved, with
# the identifier of the coordinator.
_registered: WeakKeyDictionary[Backend, dict[str, uuid.UUID]] = WeakKeyDictionary()


class DistributedTransaction(Transaction):
    """A transaction over several resources.

    It commits at the end of its block and aborts on an exception.

    Queues of the queue manager, and of those among the resources, take it as `transaction=`.
    Statements executed on a database's connection inside the block are part of it.
    """

    def __init__(self, backend: Backend, resources: Mapping[str, object]) -> None:
        """Make a transaction; programs use `distributed`."""
        self._backend = backend
        self._identifier = uuid.uuid4()
        self._put = []
        self._is_over = False
        self._is_begun = False
        self._own = QueueManagerParticipant(OWN_RESOURCE, backend)
        self._managers: dict[str, QueueManagerParticipant] = {OWN_RESOURCE: self._own}
        self._databases: dict[str, DatabaseParticipant] = {}
        # The resources that have not received the outcome. Their branches are resolved later.
        self.outstanding: list[str] = []
        for name, resource in resources.items():
            if check_resource_name(name) == OWN_RESOURCE:
                raise InvalidParameter(f"resource {name!r}: this is the name of the coordinator's own queue manager")
            if isinstance(resource, QueueManager):
                self._managers[name] = QueueManagerParticipant(name, backend_of(resource))
            else:
                self._databases[name] = DatabaseParticipant(Database(name, resource))

    def __repr__(self) -> str:
        return f"<DistributedTransaction {self.identifier} of {self._backend.name}>"

    @property
    def identifier(self) -> str:
        return str(self._identifier)

    @property
    def is_over(self) -> bool:
        """Whether the transaction has been committed or aborted."""
        return self._is_over

    async def __aenter__(self) -> Self:
        """Resolve what earlier processes left in doubt, and begin.

        Raises TransactionAborted if a database cannot begin, and UnsupportedOperation if a database
        has no prepared transactions or a queue manager has no coordinator.
        """
        coordinator = await self._register()
        begun: list[DatabaseParticipant] = []
        try:
            participants: list[Any] = [*self._managers.values(), *self._databases.values()]
            for participant in participants:
                await participant.begin(Branch(coordinator, self._identifier, participant.name))
                if isinstance(participant, DatabaseParticipant):
                    begun.append(participant)
        except BaseException:
            self._is_over = True
            for participant in begun:
                with contextlib.suppress(LannerError):
                    await participant.abort()
            raise
        self._is_begun = True
        return self

    async def _register(self) -> uuid.UUID:
        known = _registered.setdefault(self._backend, {})
        for name, database in self._databases.items():
            if name not in known:
                await database.check()
                known[name] = await resolve(self._backend.distributed, database)
        for name, manager in self._managers.items():
            if name not in known:
                known[name] = await resolve(self._backend.distributed, manager)
        return known[OWN_RESOURCE]

    async def commit(self) -> None:
        """Commit everywhere. When it returns, the decision is durable.

        Raises TransactionAborted if a resource cannot commit; then nothing has happened anywhere.
        Raises CommitInDoubt if the connection to the coordinator's queue manager is lost before its
        answer: the outcome is in its log, and every resource gets it later. A resource that cannot
        be reached after the decision also gets it later; until then it is in `outstanding`.
        """
        self._require_begun()
        await self._send_put()
        self._is_over = True
        names = self._taking_part()
        if not names:
            return
        alone = self._managers.get(names[0]) if len(names) == 1 else None
        steps = Steps(names, is_commit=True, is_alone=alone is not None)
        error = await unbroken(lambda: self._do(steps))
        if steps.stage is Stage.ABORTED:
            raise TransactionAborted(
                f"distributed transaction {self.identifier} was aborted: {_text(error)}"
            ) from error
        if steps.stage is Stage.IN_DOUBT:
            raise CommitInDoubt(
                f"distributed transaction {self.identifier}: {_text(error)}: whether it is committed is in the "
                f"log of {self._backend.name}"
            ) from error

    async def abort(self) -> None:
        """Abort in all resources."""
        self._require_begun()
        self._is_over = True
        steps = Steps(self._taking_part(), is_commit=False)
        await unbroken(lambda: self._do(steps))

    def unit(self, backend: Backend) -> BackendTransaction:
        """Return a queue manager's transaction, for an operation in it. Queues call this."""
        self._require_begun()
        for participant in self._managers.values():
            if participant.backend is backend:
                return participant.unit
        raise TransactionUsage(
            f"{backend.name} takes no part in distributed transaction {self.identifier}: name it among its resources"
        )

    def _require_begun(self) -> None:
        if self._is_over:
            raise TransactionSequence(f"transaction {self.identifier} has ended")
        if not self._is_begun:
            raise TransactionSequence(f"transaction {self.identifier} has not begun: enter its `async with` block")

    def _taking_part(self) -> list[str]:
        """Return the databases, and the queue managers that were used."""
        used = [name for name, participant in self._managers.items() if participant.is_used]
        return [*used, *self._databases]

    # The steps
    # ----------------------------------------------------------------------------------------------

    async def _do(self, steps: Steps) -> Exception | None:
        """Execute every step, and return the error that made the transaction fail."""
        failure: Exception | None = None
        while (step := steps.next) is not None:
            _LOG.debug("%s: %s", self.identifier, step)
            how = Input.DONE
            try:
                await self._do_one(step, steps)
            except Exception as error:  # noqa: BLE001 (of any driver)
                how = await self._how_failed(step, error)
                if step.stage in (Stage.COMMITTING, Stage.FORGETTING, Stage.ABORTING, Stage.ABANDONING):
                    _LOG.warning(
                        "%s: %s: %s; this is done when the resource is next used", self.identifier, step, error
                    )
                elif how is not Input.DONE:
                    failure = failure or error
            steps.went(how)
        _LOG.debug("%s: %s", self.identifier, steps.stage.value)
        self.outstanding = steps.outstanding
        for name in self.outstanding:
            _registered.get(self._backend, {}).pop(name, None)
        return failure

    async def _do_one(self, step: Step, steps: Steps) -> None:
        name = step.resource
        participant: Any = self._managers.get(name) or self._databases.get(name)
        told: dict[str, Any] = {"transactions": [self.identifier], "resources": []}
        match step.stage:
            case Stage.BEGINNING:
                await self._backend.distributed("begin distributed", identifier=self.identifier)
            case Stage.PREPARING:
                await participant.prepare()
            case Stage.DECIDING:
                names = self._taking_part()
                await self._backend.distributed("decide", identifier=self.identifier, resources=names)
            case Stage.COMMITTING:
                await participant.commit()
            case Stage.FORGETTING:
                told["resources"] = [one for one in self._taking_part() if one not in steps.outstanding]
                await self._backend.distributed("end distributed", **told)
            case Stage.COMMITTING_ALONE:
                await next(one for one in self._managers.values() if one.is_used).commit_alone()
            case Stage.ABORTING:
                await participant.abort()
            case _:
                await self._backend.distributed("end distributed", **told)

    async def _how_failed(self, step: Step, error: Exception) -> Input:
        """Classify a step that raised; if the answer was lost, ask the log for the outcome."""
        if isinstance(error, _REFUSALS):
            return Input.FAILED
        if step.stage is not Stage.DECIDING:
            return Input.LOST
        try:
            told = await self._backend.distributed("outcomes", transactions=[self.identifier])
        except LannerError:
            return Input.LOST
        outcomes = {Outcome.COMMITTED: Input.DONE, Outcome.ABORTED: Input.FAILED, Outcome.IN_DOUBT: Input.LOST}
        return outcomes[Outcome(told["outcomes"][self.identifier])]


def distributed(manager: QueueManager, resources: Mapping[str, object] | None = None) -> DistributedTransaction:
    """Return a transaction of queues and databases whose decision is logged by `manager`.

    `resources` are other queue managers and PEP 249 connections with two-phase commit, by names
    that stay the same: the next process that uses a name resolves the branches that an earlier one
    left in doubt under it.

    >>> async with lanner.aio.distributed(qm, {"ledger": psycopg.connect("dbname=books")}) as tx:
    ...     message = await orders.receive(timeout=1.0, transaction=tx)
    """
    return DistributedTransaction(backend_of(manager), {} if resources is None else resources)


def backend_of(manager: QueueManager) -> Backend:
    """Return the backend of a queue manager."""
    return manager._backend  # noqa: SLF001 (this module is the way to it)


def _text(error: Exception | None) -> str:
    return "" if error is None else str(error.args[0] if error.args else error)
