"""Participants of distributed transactions (queue managers, databases), and resolving branches."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lanner.client._async.io import in_thread
from lanner.client.databases import Database
from lanner.engine.dtc import Outcome
from lanner.host.coordinator import Participant
from lanner.host.distributed import MAX_TRANSACTIONS
from lanner.model.branches import Branch
from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from lanner.client._async.backend import Backend, BackendTransaction, Document

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)


class Ask(Protocol):
    """Makes a request to the coordinator's queue manager (host/distributed.py)."""

    async def __call__(self, request: str, **arguments: object) -> Document: ...


class QueueManagerParticipant:
    """A queue manager, which takes part if one of its queues was used."""

    def __init__(self, name: str, backend: Backend) -> None:
        self.name = name
        self.backend = backend
        self._unit: BackendTransaction | None = None
        self._branch: Branch | None = None

    @property
    def is_used(self) -> bool:
        return self._unit is not None

    @property
    def unit(self) -> BackendTransaction:
        """The transaction of the queue manager, begun on first access."""
        if self._unit is None:
            self._unit = self.backend.branch(self._require_begun())
        return self._unit

    async def begin(self, branch: Branch) -> None:
        self._branch = branch

    async def prepare(self) -> None:
        await self._prepare(is_single_phase=False)

    async def commit_alone(self) -> None:
        """Commit in a single phase, as the only participant."""
        await self._prepare(is_single_phase=True)

    async def _prepare(self, *, is_single_phase: bool) -> None:
        await self.backend.prepare(self.unit, single_phase=is_single_phase, **self._named())

    async def commit(self) -> None:
        await self.backend.distributed("end branch", commit=True, **self._named())

    async def abort(self) -> None:
        if self.unit.is_over:
            await self.backend.distributed("end branch", commit=False, **self._named())
        else:
            await self.unit.abort()

    async def recover(self, coordinator: uuid.UUID) -> list[Branch]:
        told = await self.backend.distributed("branches", coordinator=str(coordinator), resource=self.name)
        return [Branch(coordinator, uuid.UUID(one), self.name) for one in told["transactions"]]

    async def end(self, branch: Branch, *, is_commit: bool) -> None:
        await self.backend.distributed("end branch", commit=is_commit, **_named(branch))

    def _require_begun(self) -> Branch:
        if self._branch is None:
            raise RuntimeError(f"resource {self.name}: its branch was not begun")
        return self._branch

    def _named(self) -> dict[str, Any]:
        return _named(self._require_begun())


class DatabaseParticipant:
    """A database with a PEP 249 connection, whose calls are made in a thread."""

    def __init__(self, database: Database) -> None:
        self.name = database.name
        self._database = database

    async def check(self) -> None:
        """Raise if the database cannot take part."""
        await in_thread(self._database.check)

    async def begin(self, branch: Branch) -> None:
        await in_thread(partial(self._database.begin, branch))

    async def prepare(self) -> None:
        await in_thread(self._database.prepare)

    async def commit(self) -> None:
        await in_thread(self._database.commit)

    async def abort(self) -> None:
        await in_thread(self._database.abort)

    async def recover(self, coordinator: uuid.UUID) -> list[Branch]:
        return await in_thread(partial(self._database.recover, coordinator))

    async def end(self, branch: Branch, *, is_commit: bool) -> None:
        await in_thread(partial(self._database.end, branch, is_commit=is_commit))


def _named(branch: Branch) -> dict[str, Any]:
    return {
        "coordinator": str(branch.coordinator),
        "identifier": str(branch.transaction),
        "resource": branch.resource,
    }


async def resolve(ask: Ask, participant: Participant[Awaitable[None], Awaitable[list[Branch]]]) -> uuid.UUID:
    """End the branches that earlier processes left behind; return the coordinator's GUID.

    A branch is committed if its transaction is in the coordinator's log, left alone while a program
    is about to end it, and aborted otherwise. If a commit is in the log and the resource has no
    branch for it, the resource has committed: a branch is prepared before its transaction is
    decided.
    """
    name = participant.name
    # Read the commits before the branches. Otherwise a transaction that is decided in between would
    # look finished.
    told = await ask("coordinator", resource=name)
    coordinator = uuid.UUID(told["identifier"])
    branches = await participant.recover(coordinator)
    finished = set(told["pending"]) - {str(branch.transaction) for branch in branches}
    for some in _parts(branches):
        answer = await ask("outcomes", transactions=[str(branch.transaction) for branch in some])
        for branch in some:
            outcome = Outcome(answer["outcomes"][str(branch.transaction)])
            if outcome is Outcome.IN_DOUBT:
                continue
            is_commit = outcome is Outcome.COMMITTED
            try:
                await participant.end(branch, is_commit=is_commit)
            except LannerError as error:
                _LOG.warning("branch %s stays in doubt, although it is %s: %s", branch, outcome.value, error)
                continue
            _LOG.info("branch %s was left behind and is %s now", branch, outcome.value)
            if is_commit:
                finished.add(str(branch.transaction))
    for told_of in _parts(sorted(finished)):
        await ask("end distributed", transactions=told_of, resources=[name])
    return coordinator


def _parts(items: list[T]) -> Iterator[list[T]]:
    """Yield slices, each as many as one request may name."""
    for start in range(0, len(items), MAX_TRANSACTIONS):
        yield items[start : start + MAX_TRANSACTIONS]
