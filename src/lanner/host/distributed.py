"""Requests about distributed transactions, as one identity: documents in, documents out.

The embedded client and Lanner's own RPC interface both use this class, so a request has the same
result and the same error text in the process of the queue manager and through the service. A queue
manager has two roles in distributed transactions, and a request is about one of them:

- its coordinator: `coordinator`, `outcomes`, `begin distributed`, `decide`, `end distributed`;
- a branch of its own queues, for any coordinator: `prepare`, `branches`, `end branch`.

A branch and a transaction belong to the user who created them. Only that user and administrators
may end them or see them in lists. Every method needs the store's lock, and its answer may be used
when the change around it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from lanner.engine.dtc import Outcome
from lanner.host.administrators import is_administrator
from lanner.host.coordinator import Coordinator, coordinator_of
from lanner.model.branches import Branch, check_resource_name
from lanner.model.errors import AccessDenied, InsufficientResources, InvalidParameter, TransactionSequence
from lanner.model.guid_table import GuidTable
from lanner.security.scopes import OPERATE, RECEIVE, SEND, has_scope

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.live import Transaction
    from lanner.security.identity import Identity

Document: TypeAlias = dict[str, Any]
Request: TypeAlias = Mapping[str, Any]
# Called when the change is durable.
Answer: TypeAlias = Callable[[], Document]

# Not in the specification: resources of one transaction, and transactions that one request may
# name: about 10 ms of work.
MAX_RESOURCES: Final = 64
MAX_TRANSACTIONS: Final = 1000
# Not in the specification: prepared branches of one user. They outlive their session and a restart.
MAX_BRANCHES: Final = 1000
# Requests that change nothing, and the scopes of tokens that may make the others.
_QUESTIONS: Final = frozenset({"coordinator", "outcomes", "branches"})
_ENDING: Final = (SEND, RECEIVE, OPERATE)


class DistributedRequests:
    """The requests of one identity."""

    def __init__(self, engine: Engine, identity: Identity) -> None:
        self._engine = engine
        self._identity = identity
        self._handlers: dict[str, Callable[[Request, Transaction | None], Answer]] = {
            "coordinator": self._describe,
            "outcomes": self._outcomes,
            "begin distributed": self._begin,
            "decide": self._decide,
            "end distributed": self._end_distributed,
            "prepare": self._prepare,
            "branches": self._branches,
            "end branch": self._end_branch,
        }

    def answer(self, request: Request, transaction: Transaction | None = None) -> Answer:
        """Execute a request. `transaction` is the caller's transaction that it is about."""
        if request["request"] not in _QUESTIONS and not any(has_scope(self._identity, scope) for scope in _ENDING):
            raise AccessDenied(f"the token of {self._identity.name} is not for transactions")
        return self._handlers[request["request"]](request, transaction)

    @property
    def _coordinator(self) -> Coordinator:
        return coordinator_of(self._engine)

    @property
    def _owner(self) -> str:
        return str(self._identity.sid)

    def _may_end(self, owner: str) -> bool:
        return owner == self._owner or is_administrator(self._engine, self._identity)

    # The coordinator
    # ------------------------------------------------------------------------------------------

    def _describe(self, request: Request, transaction: Transaction | None) -> Answer:
        """Describe the coordinator and the commits that a resource has not confirmed."""
        del transaction
        coordinator, resource = self._coordinator, check_resource_name(request.get("resource"))
        owner = None if is_administrator(self._engine, self._identity) else self._owner
        pending = [
            str(decision.transaction)
            for decision in coordinator.decisions(owner)
            if decision.coordinator == coordinator.identifier and resource in decision.resources
        ]
        return lambda: {"identifier": str(coordinator.identifier), "pending": pending}

    def _outcomes(self, request: Request, transaction: Transaction | None) -> Answer:
        """Return the outcomes of transactions; an active one is in doubt."""
        del transaction
        coordinator = self._coordinator
        outcomes = {str(one): coordinator.outcome(one).value for one in _guids(request, "transactions")}
        return lambda: {"outcomes": outcomes}

    def _begin(self, request: Request, transaction: Transaction | None) -> Answer:
        del transaction
        self._coordinator.begin(_guid(request, "identifier"), self._owner)
        return dict

    def _decide(self, request: Request, transaction: Transaction | None) -> Answer:
        """Commit. The answer is given when the decision is durable."""
        del transaction
        resources = request.get("resources")
        if not isinstance(resources, list) or not 0 < len(resources) <= MAX_RESOURCES:
            raise InvalidParameter(f"a request needs the list `resources`, of 1 to {MAX_RESOURCES}")
        names = [check_resource_name(name) for name in resources]
        identifier = _guid(request, "identifier")
        self._coordinator.decide(identifier, names, self._owner, self._engine.clocks.wall())
        return dict

    def _end_distributed(self, request: Request, transaction: Transaction | None) -> Answer:
        """Record which resources have committed. An undecided transaction is aborted."""
        del transaction
        coordinator, told = self._coordinator, request.get("resources")
        if not isinstance(told, list):
            raise InvalidParameter("a request needs the list `resources`")
        undecided = []
        for identifier in _guids(request, "transactions"):
            decision = coordinator.decision(identifier)
            owner = coordinator.owner(identifier)
            if owner is not None and not self._may_end(owner):
                raise AccessDenied(f"distributed transaction {identifier} is another user's")
            if decision is not None:
                coordinator.done(identifier, [check_resource_name(name) for name in told])
            elif owner is not None:
                undecided.append(identifier)
        self.abandon(undecided)
        return dict

    def abandon(self, identifiers: Collection[UUID]) -> None:
        """End transactions whose program has disconnected, in one pass over the branches here.

        Their branches here are committed if they are decided, and aborted otherwise.
        """
        if not identifiers:
            return
        coordinator = self._coordinator
        commits: GuidTable[bool] = GuidTable()
        for identifier in identifiers:
            coordinator.abandon(identifier)
            commits[identifier] = coordinator.decision(identifier) is not None
        for one in self._enlisted():
            branch = one.branch
            if branch.coordinator == coordinator.identifier and branch.transaction in commits:
                self._end(one, is_commit=commits[branch.transaction])

    # Branches here
    # --------------------------------------------------------------------------------------------

    def _prepare(self, request: Request, transaction: Transaction | None) -> Answer:
        """Prepare the caller's transaction as a branch; with `single_phase`, commit it at once.

        Without a transaction, the branch is one that a program enlisted by its propagation token.
        """
        branch = _branch(request)
        found = self._find(branch)
        if transaction is None:
            return self._prepare_enlisted(request, branch, found)
        identifier = transaction.identifier
        if found is not None:
            raise TransactionSequence(f"there is a branch {branch} already")
        is_alone = request.get("single_phase") is True
        if not is_alone and sum(one.owner == self._owner for one in self._enlisted()) >= MAX_BRANCHES:
            raise InsufficientResources(
                f"{MAX_BRANCHES} branches of this user wait for their outcome: end them with their coordinator, or let "
                "an administrator use `lanner transaction list`, `commit` and `abort`"
            )
        transaction.branch, transaction.owner = branch, self._owner
        return self._ask_to_prepare(identifier, is_alone=is_alone)

    def _prepare_enlisted(self, request: Request, branch: Branch, found: EnlistedBranch | None) -> Answer:
        """Prepare a branch that R_QMEnlistRemoteTransaction created, which no session owns."""
        if found is None or found.identifier != branch.transaction:
            raise TransactionSequence(f"branch {branch} was not enlisted, or has ended")
        if not self._may_end(found.owner):
            raise AccessDenied(f"branch {branch} is another user's")
        if found.is_prepared:
            raise TransactionSequence(f"branch {branch} is prepared already")
        return self._ask_to_prepare(found.identifier, is_alone=request.get("single_phase") is True)

    def _ask_to_prepare(self, identifier: UUID, *, is_alone: bool) -> Answer:
        coordinator = self._coordinator
        coordinator.expect(identifier)
        self._engine.dtc_transaction_prepare(identifier, single_phase=is_alone)

        def vote() -> Document:
            outcome = coordinator.answer(identifier)
            if outcome in (None, Outcome.ABORTED):
                raise TransactionSequence(f"transaction {identifier} was aborted: it cannot be prepared")
            return {}

        return vote

    def _branches(self, request: Request, transaction: Transaction | None) -> Answer:
        """Return the prepared branches of a coordinator under a name that the caller may end."""
        del transaction
        coordinator, resource = _guid(request, "coordinator"), check_resource_name(request.get("resource"))
        found = [
            str(one.branch.transaction)
            for one in self._enlisted()
            if one.is_prepared
            and one.branch.coordinator == coordinator
            and one.branch.resource == resource
            and self._may_end(one.owner)
        ]
        return lambda: {"transactions": found}

    def _end_branch(self, request: Request, transaction: Transaction | None) -> Answer:
        """Commit or abort a prepared branch.

        A missing branch has ended already: a coordinator may repeat its request.
        """
        del transaction
        branch, is_commit = _branch(request), request.get("commit") is True
        found = self._find(branch)
        if found is None:
            return dict
        if not self._may_end(found.owner):
            raise AccessDenied(f"branch {branch} is another user's")
        if is_commit and not found.is_prepared:
            raise TransactionSequence(f"branch {branch} is not prepared")
        self._check_outcome(branch, is_commit=is_commit)
        identifier, coordinator = found.identifier, self._coordinator
        coordinator.expect(identifier)
        self._end(found, is_commit=is_commit)
        wanted = Outcome.COMMITTED if is_commit else Outcome.ABORTED

        def ended() -> Document:
            if coordinator.answer(identifier) is not wanted:
                raise TransactionSequence(f"branch {branch} has not ended: its store could not be written")
            return {}

        return ended

    def _check_outcome(self, branch: Branch, *, is_commit: bool) -> None:
        """Raise TransactionSequence if the local coordinator has another outcome for its branch."""
        coordinator = self._coordinator
        if branch.coordinator != coordinator.identifier:
            return
        outcome = coordinator.outcome(branch.transaction)
        if outcome is Outcome.IN_DOUBT and not is_commit:
            return
        if outcome is not (Outcome.COMMITTED if is_commit else Outcome.ABORTED):
            raise TransactionSequence(f"branch {branch}: the transaction is {outcome.value}")

    def _end(self, one: EnlistedBranch, *, is_commit: bool) -> None:
        if not is_commit:
            self._engine.dtc_transaction_abort(one.identifier)
            return
        self._engine.dtc_transaction_commit(one.identifier)
        coordinator, branch = self._coordinator, one.branch
        # Any user may prepare a branch under the names of another user's transaction. It must not
        # count as that user's resource: the coordinator would forget its decision too early.
        if branch.coordinator == coordinator.identifier and one.owner == coordinator.owner(branch.transaction):
            coordinator.done(branch.transaction, [branch.resource])

    def _enlisted(self) -> Iterator[EnlistedBranch]:
        """Yield the branches here.

        A branch that could not be written is not prepared, and can only be aborted.
        """
        for one in list(self._engine.queue_manager.transaction_collection.values()):
            if one.branch is not None:
                yield EnlistedBranch(one.identifier, one.branch, one.owner, one.is_prepared)

    def _find(self, branch: Branch) -> EnlistedBranch | None:
        return next((one for one in self._enlisted() if one.branch == branch), None)


@dataclass(frozen=True, slots=True)
class EnlistedBranch:
    """A transaction of the queue manager, with its branch and its owner."""

    identifier: UUID
    branch: Branch
    owner: str
    is_prepared: bool


def _guid(request: Request, key: str) -> UUID:
    return _read_guid(request.get(key), key)


def _read_guid(value: object, key: str) -> UUID:
    try:
        return UUID(value if isinstance(value, str) else "")
    except ValueError:
        raise InvalidParameter(f"{key} {value!r}: a GUID expected") from None


def _guids(request: Request, key: str) -> list[UUID]:
    values = request.get(key)
    if not isinstance(values, list) or len(values) > MAX_TRANSACTIONS:
        raise InvalidParameter(f"a request needs the list `{key}`, of at most {MAX_TRANSACTIONS}")
    return [_read_guid(value, key) for value in values]


def _branch(request: Request) -> Branch:
    return Branch(
        _guid(request, "coordinator"), _guid(request, "identifier"), check_resource_name(request.get("resource"))
    )
