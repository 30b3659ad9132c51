"""The coordinator of distributed transactions: participants, decisions, and their log.

The protocol is two-phase commit with presumed abort. Every participant is asked to prepare its
branch. When all have, the decision to commit is written to the log, and is durable before the first
participant learns of it. An abort is never written: a transaction that is neither active nor in the
log was aborted. The log is a table of the queue manager's store. A row names the resources that
have not committed yet, and is deleted with the last of them.

- `Steps` is the procedure for one transaction, without I/O; `STAGES` is its state machine. The
  program that ends the transaction performs the steps (client/_async/distributed.py) and reports
  the result of each.
- `Coordinator` is the transaction manager of one queue manager. It keeps the log and the set of
  active transactions, and is the engine's side of MS-MQDMPR 3.1.4.6-3.1.4.11, whose MTAG messages
  are calls here.
- `Participant` is the interface through which the steps reach a queue manager or a database.

The one rule: a branch may be committed only when the decision is durable, and aborted only when the
transaction is neither active nor decided. `Coordinator.outcome` says which applies. Its answer may
be used once the store's pending batch is durable.
"""

from __future__ import annotations

import enum
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from lanner.engine.dtc import Outcome
from lanner.engine.tables import COORDINATOR, COORDINATOR_KEY
from lanner.model.branches import Branch
from lanner.model.errors import AccessDenied, DtcConnect, InsufficientResources, TransactionSequence
from lanner.model.guid_table import GuidTable

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.live import Transaction
    from lanner.store import Store

# Not in the specification: decided transactions of one user that some resource has not confirmed.
MAX_UNFINISHED: Final = 1000
# Not in the specification: undecided transactions of one user.
MAX_ACTIVE: Final = 10_000

Done_co = TypeVar("Done_co", covariant=True)
Found_co = TypeVar("Found_co", covariant=True)


class Participant(Protocol[Done_co, Found_co]):
    """One resource of a distributed transaction, under its stable name.

    The types are those that a blocking or an async method returns. Every method may fail. If
    `commit` or `end` fails, the caller keeps the branch in the list of branches to be resolved.
    """

    name: str

    def begin(self, branch: Branch) -> Done_co:
        """Begin the branch."""

    def prepare(self) -> Done_co:
        """Make the branch survive a crash. Raises TransactionAborted if it cannot be committed."""

    def commit(self) -> Done_co:
        """Commit the prepared branch."""

    def abort(self) -> Done_co:
        """Abort the branch, prepared or not."""

    def recover(self, coordinator: uuid.UUID) -> Found_co:
        """Return the prepared branches of a coordinator under this name."""

    def end(self, branch: Branch, *, is_commit: bool) -> Done_co:
        """Commit or abort a branch that `recover` has returned."""


# The procedure
# --------------------------------------------------------------------------------------------


class Stage(enum.Enum):
    """The stage of a transaction's end; the last three are final."""

    BEGINNING = "beginning"
    PREPARING = "preparing"
    DECIDING = "deciding"
    COMMITTING = "committing"
    FORGETTING = "forgetting"
    # One queue manager is the only participant, so its commit is the decision.
    COMMITTING_ALONE = "committing alone"
    ABORTING = "aborting"
    ABANDONING = "abandoning"
    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_DOUBT = "in doubt"


class Input(enum.Enum):
    """The result of a step."""

    DONE = "done"
    FAILED = "failed"
    # The connection was lost before the answer, so the result is unknown.
    LOST = "lost"


# The stages that follow a step that succeeded, one that failed, and one whose answer was lost.
_NEXT: Final = {
    Stage.BEGINNING: (Stage.PREPARING, Stage.ABORTING, Stage.ABORTING),
    Stage.PREPARING: (Stage.DECIDING, Stage.ABORTING, Stage.ABORTING),
    # The outcome must not be guessed: it is in the log, and the branches wait for it.
    Stage.DECIDING: (Stage.COMMITTING, Stage.ABORTING, Stage.IN_DOUBT),
    # A participant that was not reached is informed later; the others are informed now.
    Stage.COMMITTING: (Stage.FORGETTING, Stage.FORGETTING, Stage.FORGETTING),
    Stage.FORGETTING: (Stage.COMMITTED, Stage.COMMITTED, Stage.COMMITTED),
    Stage.COMMITTING_ALONE: (Stage.COMMITTED, Stage.ABORTED, Stage.IN_DOUBT),
    Stage.ABORTING: (Stage.ABANDONING, Stage.ABANDONING, Stage.ABANDONING),
    Stage.ABANDONING: (Stage.ABORTED, Stage.ABORTED, Stage.ABORTED),
}
STAGES: Final[dict[tuple[Stage, Input], Stage]] = {
    (stage, how): after for stage, row in _NEXT.items() for how, after in zip(Input, row, strict=True)
}
ENDS: Final = frozenset((Stage.COMMITTED, Stage.ABORTED, Stage.IN_DOUBT))
# The stages with a step for each participant, and the stages that a failure does not end.
_WITH_ALL: Final = frozenset((Stage.PREPARING, Stage.COMMITTING, Stage.ABORTING))
_THROUGH: Final = frozenset((Stage.COMMITTING, Stage.ABORTING))


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `resource` is empty for a step of the coordinator."""

    stage: Stage
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.stage.value} {self.resource}".rstrip()


class Steps:
    """The steps that end one transaction, in order.

    Does no I/O: the caller performs each step and reports its result.
    """

    def __init__(self, resources: Sequence[str], *, is_commit: bool, is_alone: bool = False) -> None:
        self._resources = tuple(resources)
        if is_commit:
            self.stage = Stage.COMMITTING_ALONE if is_alone else Stage.BEGINNING
        else:
            self.stage = Stage.ABORTING
        self._left = self._steps()
        # The resources that were not informed of the outcome, or have not confirmed it.
        self.outstanding: list[str] = []

    def _steps(self) -> list[Step]:
        if self.stage in _WITH_ALL:
            return [Step(self.stage, resource) for resource in self._resources]
        return [] if self.stage in ENDS else [Step(self.stage)]

    @property
    def next(self) -> Step | None:
        """The current step; None when the transaction has ended."""
        return self._left[0] if self._left else None

    def went(self, how: Input) -> None:
        """Record the result of the current step."""
        step = self._left.pop(0)
        if step.stage in _THROUGH and how is not Input.DONE:
            self.outstanding.append(step.resource)
        if step.stage is Stage.DECIDING and how is Input.LOST:
            self.outstanding = list(self._resources)
        is_over = how is not Input.DONE and self.stage not in _THROUGH
        if is_over or not self._left:
            self.stage = STAGES[self.stage, how]
            self._left = self._steps()
            if not self._left and self.stage not in ENDS:
                # There are no participants: go on to the next stage.
                self.stage = STAGES[self.stage, Input.DONE]
                self._left = self._steps()


# The log
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """A committed transaction, and the resources that have not confirmed it."""

    transaction: uuid.UUID
    coordinator: uuid.UUID
    resources: tuple[str, ...]
    # SID of the user who decided, and the time of the decision.
    owner: str
    decided: float  # seconds since 1970 UTC


class Coordinator:
    """The transaction manager of one queue manager.

    The caller of a method holds the store's lock.
    """

    def __init__(self, store: Store) -> None:
        self._table = store.table(COORDINATOR)
        # Transactions that are being prepared, with the SIDs of their users. A restart aborts them.
        self._active: GuidTable[str] = GuidTable()
        self._active_of: Counter[str] = Counter()
        # Answers of the queue manager to requests, kept until the requester fetches them.
        self._answers: GuidTable[Outcome | None] = GuidTable()
        self._unfinished: Counter[str] = Counter()
        self._is_readable = True
        try:
            self._unfinished.update(decision.owner for decision in self.decisions())
            known = json.loads(self._table.get(COORDINATOR_KEY) or b"{}")
            identifier, epoch = uuid.UUID(known.get("identifier", str(uuid.uuid4()))), known.get("epoch")
        except (ValueError, KeyError, TypeError, AttributeError):
            self._is_readable = False
            self.identifier = uuid.uuid4()
            return
        if epoch != store.epoch:
            # The store is new or was restored. A restored log lacks the decisions made after the
            # backup, so this coordinator must not abort branches under its former identifier.
            identifier = uuid.uuid4()
            document = {"identifier": str(identifier), "epoch": store.epoch}
            self._table.put(COORDINATOR_KEY, json.dumps(document).encode())
        self.identifier = identifier

    # Transactions
    # ---------------------------------------------------------------------------------------------

    def begin(self, transaction: uuid.UUID, owner: str) -> None:
        """Make a transaction active, so that no other process treats its branches as abandoned."""
        self.require_log()
        if transaction in self._active or self.decision(transaction) is not None:
            raise TransactionSequence(f"there is a distributed transaction {transaction} already")
        if self._active_of[owner] >= MAX_ACTIVE:
            raise InsufficientResources(f"{MAX_ACTIVE} distributed transactions of this user are open: end some")
        self._active[transaction] = owner
        self._active_of[owner] += 1

    def decide(self, transaction: uuid.UUID, resources: Iterable[str], owner: str, now: float) -> None:
        """Commit: the decision is made once the caller's change is durable.

        Raises TransactionSequence if the transaction was aborted before.
        """
        known = self._active.get(transaction)
        if known is not None and known != owner:
            raise AccessDenied(f"distributed transaction {transaction} is another user's")
        if known is None:
            raise TransactionSequence(
                f"distributed transaction {transaction} was aborted: the connection to its coordinator was lost, "
                "or the queue manager has restarted"
            )
        if self._unfinished[owner] >= MAX_UNFINISHED:
            # A batch that could not be written has undone rows, but not their count.
            self._unfinished = Counter(decision.owner for decision in self.decisions())
        if self._unfinished[owner] >= MAX_UNFINISHED:
            raise InsufficientResources(
                f"{MAX_UNFINISHED} distributed transactions wait until a resource receives their commit: "
                "`lanner transaction list` shows which"
            )
        self.abandon(transaction)
        self._put(Decision(transaction, self.identifier, tuple(resources), owner, now))
        self._unfinished[owner] += 1

    def abandon(self, transaction: uuid.UUID) -> None:
        """Abort an undecided transaction. Its branches may be aborted from now on."""
        owner = self._active.pop(transaction, None)
        if owner is not None:
            self._active_of[owner] -= 1
            if not self._active_of[owner]:
                del self._active_of[owner]

    def done(self, transaction: uuid.UUID, resources: Iterable[str]) -> None:
        """Record which resources have committed. After the last one, the decision is deleted."""
        decision = self.decision(transaction)
        if decision is None:
            return
        told = frozenset(resources)
        left = tuple(name for name in decision.resources if name not in told)
        if left:
            self._put(Decision(transaction, decision.coordinator, left, decision.owner, decision.decided))
            return
        self._table.delete(transaction.bytes)
        self._unfinished[decision.owner] -= 1

    # Queries
    # --------------------------------------------------------------------------------------------

    def active(self) -> list[tuple[uuid.UUID, str]]:
        """Return the transactions that programs are about to end, with the SIDs of their users."""
        return list(self._active.items())

    def owner(self, transaction: uuid.UUID) -> str | None:
        """Return the SID of the user of a transaction; None if it is not known here."""
        decision = self.decision(transaction)
        return self._active.get(transaction) if decision is None else decision.owner

    def outcome(self, transaction: uuid.UUID) -> Outcome:
        """Return the outcome of a transaction of this coordinator; IN_DOUBT while it is active.

        The answer may be used when the store's pending batch is durable.
        """
        self.require_log()
        if self.decision(transaction) is not None:
            return Outcome.COMMITTED
        return Outcome.IN_DOUBT if transaction in self._active else Outcome.ABORTED

    def decision(self, transaction: uuid.UUID) -> Decision | None:
        """Return the log's row of a transaction.

        Returns None if it was not committed, or if all resources have confirmed it.
        """
        row = self._table.get(transaction.bytes)
        return None if row is None else _decision(transaction, row)

    def decisions(self, owner: str | None = None) -> Iterator[Decision]:
        """Yield the committed transactions that a resource has not confirmed.

        With `owner`, only those of this SID.
        """
        text = b"" if owner is None else owner.encode()
        for key, row in self._table.items():
            # Rows of other owners are not decoded.
            if key != COORDINATOR_KEY and text in row:
                decision = _decision(uuid.UUID(bytes=key), row)
                if owner in (None, decision.owner):
                    yield decision

    def _put(self, decision: Decision) -> None:
        document = {
            "coordinator": str(decision.coordinator),
            "resources": decision.resources,
            "owner": decision.owner,
            "decided": decision.decided,
        }
        self._table.put(decision.transaction.bytes, json.dumps(document).encode())

    def require_log(self) -> None:
        """Raise DtcConnect if the log cannot be read."""
        if not self._is_readable:
            raise DtcConnect(
                "the coordinator's log cannot be read, so no outcome is known: restore a backup of the data directory"
            )

    # The queue manager's side (MS-MQDMPR 3.1.4.6-3.1.4.11)
    # ----------------------------------------------------

    def expect(self, identifier: uuid.UUID) -> None:
        """Keep the next answer of the queue manager about one of its transactions."""
        self._answers[identifier] = None

    def answer(self, identifier: uuid.UUID) -> Outcome | None:
        """Return and forget the expected answer; None if there was none.

        IN_DOUBT means "prepared".
        """
        return self._answers.pop(identifier, None)

    def prepare_request_done(self, identifier: uuid.UUID) -> None:
        """Handle TXUSER_ENLISTMENT_MTAG_PREPAREREQDONE."""
        self._note(identifier, Outcome.IN_DOUBT)

    def commit_request_done(self, identifier: uuid.UUID) -> None:
        """Handle TXUSER_ENLISTMENT_MTAG_COMMITREQDONE."""
        self._note(identifier, Outcome.COMMITTED)

    def abort_request_done(self, identifier: uuid.UUID) -> None:
        """Handle TXUSER_ENLISTMENT_MTAG_ABORTREQDONE."""
        self._note(identifier, Outcome.ABORTED)

    def _note(self, identifier: uuid.UUID, outcome: Outcome) -> None:
        if identifier in self._answers:
            self._answers[identifier] = outcome

    def reenlist(self, transaction: Transaction) -> Outcome:
        """Return the outcome of a prepared transaction when the queue manager starts.

        The batch that ends the branch also records that it has ended.
        """
        branch = transaction.branch
        if branch is None:
            return Outcome.IN_DOUBT
        if not self._is_readable:
            return Outcome.TIMEOUT
        decision = self.decision(branch.transaction)
        if decision is not None and decision.coordinator == branch.coordinator:
            self.done(branch.transaction, [branch.resource])
            return Outcome.COMMITTED
        # A branch of another coordinator, which resolves it: this one has no record of its
        # transactions.
        return Outcome.ABORTED if branch.coordinator == self.identifier else Outcome.IN_DOUBT


def _decision(transaction: uuid.UUID, row: bytes) -> Decision:
    document = json.loads(row)
    return Decision(
        transaction,
        uuid.UUID(document["coordinator"]),
        tuple(document["resources"]),
        document["owner"],
        document["decided"],
    )


def coordinator_of(engine: Engine) -> Coordinator:
    """Return the coordinator of a queue manager. Raises DtcConnect if it has none."""
    found = engine.dtc.coordinator
    if not isinstance(found, Coordinator):
        raise DtcConnect(f"queue manager {engine.queue_manager.computer_name} has no transaction coordinator")
    return found
