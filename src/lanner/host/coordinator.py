"""The coordinator of distributed transactions: who takes part, what is decided, and what is in the log.

Two phases, presumed abort. Every participant is asked to prepare its branch; when all have, the
decision to commit is written to the log, and durable before the first participant is told of it.
Nothing is written for an abort: a transaction that is neither active nor in the log was aborted.
The log is a table of the queue manager's store. A row names the resources that have not committed
yet, and goes with the last.

- `Steps` is the procedure of one transaction without I/O: `STAGES` is its state machine. The
  program that ends the transaction does the steps (client/_async/distributed.py) and says how each
  went.
- `Coordinator` is the transaction manager of one queue manager: it has the log, knows which
  transactions are active, and is the engine's side of MS-MQDMPR 3.1.4.6-3.1.4.11, whose MTAG
  messages are calls here.
- `Participant` is what the steps are done with: a queue manager, or a database.

The one rule to know: a branch may be committed only when the decision is durable, and aborted only
when the transaction is neither active nor decided. `Coordinator.outcome` says which, and its answer
may be used when the store's pending batch is durable.
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

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.live import Transaction
    from lanner.store import Store

# Not in the specification: transactions of one user that are decided and that a resource has not
# heard of.
MAX_UNFINISHED: Final = 1000

Done_co = TypeVar("Done_co", covariant=True)
Found_co = TypeVar("Found_co", covariant=True)


class Participant(Protocol[Done_co, Found_co]):
    """One resource of a distributed transaction, under its stable name.

    The types are those that a blocking or an async method returns. Every method may fail; the
    caller of `commit` and `end` keeps the branch among those to be resolved then.
    """

    name: str

    def begin(self, branch: Branch) -> Done_co:
        """Begin the branch."""

    def prepare(self) -> Done_co:
        """Make the branch survive a crash. TransactionAborted if it cannot be committed."""

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
    """What is being done; the last three are ends."""

    BEGINNING = "beginning"
    PREPARING = "preparing"
    DECIDING = "deciding"
    COMMITTING = "committing"
    FORGETTING = "forgetting"
    # One queue manager takes part and nothing else: its commit is the decision.
    COMMITTING_ALONE = "committing alone"
    ABORTING = "aborting"
    ABANDONING = "abandoning"
    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_DOUBT = "in doubt"


class Input(enum.Enum):
    """How a step went."""

    DONE = "done"
    FAILED = "failed"
    # The connection was lost before the answer: it was done, or was not.
    LOST = "lost"


# What follows a step that is done, one that failed, and one whose answer was lost.
_NEXT: Final = {
    Stage.BEGINNING: (Stage.PREPARING, Stage.ABORTING, Stage.ABORTING),
    Stage.PREPARING: (Stage.DECIDING, Stage.ABORTING, Stage.ABORTING),
    # Neither outcome may be guessed: the log has it, and the branches wait for it.
    Stage.DECIDING: (Stage.COMMITTING, Stage.ABORTING, Stage.IN_DOUBT),
    # What one participant has not heard, it hears later: the others are told now.
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
# The stages with a step for each participant, and those that a failure does not end.
_WITH_ALL: Final = frozenset((Stage.PREPARING, Stage.COMMITTING, Stage.ABORTING))
_THROUGH: Final = frozenset((Stage.COMMITTING, Stage.ABORTING))


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do; `resource` is empty where it is the coordinator's."""

    stage: Stage
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.stage.value} {self.resource}".rstrip()


class Steps:
    """The steps of one transaction's end, in order.

    Does no I/O: the caller does each step and says how it went.
    """

    def __init__(self, resources: Sequence[str], *, is_commit: bool, is_alone: bool = False) -> None:
        self._resources = tuple(resources)
        if is_commit:
            self.stage = Stage.COMMITTING_ALONE if is_alone else Stage.BEGINNING
        else:
            self.stage = Stage.ABORTING
        self._left = self._steps()
        # The resources that were not told of the outcome, or have not confirmed it.
        self.outstanding: list[str] = []

    def _steps(self) -> list[Step]:
        if self.stage in _WITH_ALL:
            return [Step(self.stage, resource) for resource in self._resources]
        return [] if self.stage in ENDS else [Step(self.stage)]

    @property
    def next(self) -> Step | None:
        """What is to be done now; None when it has ended."""
        return self._left[0] if self._left else None

    def went(self, how: Input) -> None:
        """Say how the step went that was next."""
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
                # Nothing takes part: on to the next stage.
                self.stage = STAGES[self.stage, Input.DONE]
                self._left = self._steps()


# The log
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """A transaction that is committed, and the resources that have not heard of it."""

    transaction: uuid.UUID
    coordinator: uuid.UUID
    resources: tuple[str, ...]
    # SID of the user who decided, and when.
    owner: str
    decided: float  # seconds since 1970 UTC


class Coordinator:
    """The transaction manager of one queue manager. All methods need the store's lock."""

    def __init__(self, store: Store) -> None:
        self._table = store.table(COORDINATOR)
        # Transactions that are being prepared, with the SIDs of their users. They are aborted by a
        # restart.
        self._active: dict[uuid.UUID, str] = {}
        # What the queue manager has answered, of what it was asked and its asker has not fetched
        # yet.
        self._answers: dict[uuid.UUID, Outcome | None] = {}
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
            # A new store, or one that was restored: its log lacks what was decided after the
            # backup, so the branches of the coordinator that it was before are not this one's to
            # abort.
            identifier = uuid.uuid4()
            document = {"identifier": str(identifier), "epoch": store.epoch}
            self._table.put(COORDINATOR_KEY, json.dumps(document).encode())
        self.identifier = identifier

    # Transactions
    # ---------------------------------------------------------------------------------------------

    def begin(self, transaction: uuid.UUID, owner: str) -> None:
        """Make a transaction active, so that no other process takes its branches for left behind."""
        self.require_log()
        if transaction in self._active or self.decision(transaction) is not None:
            raise TransactionSequence(f"there is a distributed transaction {transaction} already")
        self._active[transaction] = owner

    def decide(self, transaction: uuid.UUID, resources: Iterable[str], owner: str, now: float) -> None:
        """Commit: a decision, once the caller's change is durable.

        TransactionSequence if it was aborted before.
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
            # A batch that could not be written has taken rows back, but not their count.
            self._unfinished = Counter(decision.owner for decision in self.decisions())
        if self._unfinished[owner] >= MAX_UNFINISHED:
            raise InsufficientResources(
                f"{MAX_UNFINISHED} distributed transactions wait for a resource to hear of their commit: "
                "`lanner transaction list` shows which"
            )
        del self._active[transaction]
        self._put(Decision(transaction, self.identifier, tuple(resources), owner, now))
        self._unfinished[owner] += 1

    def abandon(self, transaction: uuid.UUID) -> None:
        """Abort a transaction that is not decided: its branches may be aborted from now on."""
        self._active.pop(transaction, None)

    def done(self, transaction: uuid.UUID, resources: Iterable[str]) -> None:
        """Note which resources have committed; with the last one the decision is forgotten."""
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

    # What is known
    # --------------------------------------------------------------------------------------------

    def active(self) -> list[tuple[uuid.UUID, str]]:
        """Return the transactions that programs are about to end, with the SIDs of their users."""
        return list(self._active.items())

    def owner(self, transaction: uuid.UUID) -> str | None:
        """Return the SID of the user of a transaction; None if it is not known here."""
        decision = self.decision(transaction)
        return self._active.get(transaction) if decision is None else decision.owner

    def outcome(self, transaction: uuid.UUID) -> Outcome:
        """Return what became of a transaction of this coordinator; IN_DOUBT while it is active.

        The answer may be used when the store's pending batch is durable.
        """
        self.require_log()
        if self.decision(transaction) is not None:
            return Outcome.COMMITTED
        return Outcome.IN_DOUBT if transaction in self._active else Outcome.ABORTED

    def decision(self, transaction: uuid.UUID) -> Decision | None:
        """Return the log's row of a transaction; None if it was not committed, or all have heard of it."""
        row = self._table.get(transaction.bytes)
        return None if row is None else _decision(transaction, row)

    def decisions(self, owner: str | None = None) -> Iterator[Decision]:
        """Yield the transactions that a resource has not heard of yet; with `owner` those of this SID."""
        text = b"" if owner is None else owner.encode()
        for key, row in self._table.items():
            # Those of others are not read.
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
        """Return and forget the answer that was expected: IN_DOUBT is "prepared"; None: there was none."""
        return self._answers.pop(identifier, None)

    def prepare_request_done(self, identifier: uuid.UUID) -> None:
        """TXUSER_ENLISTMENT_MTAG_PREPAREREQDONE."""
        self._note(identifier, Outcome.IN_DOUBT)

    def commit_request_done(self, identifier: uuid.UUID) -> None:
        """TXUSER_ENLISTMENT_MTAG_COMMITREQDONE."""
        self._note(identifier, Outcome.COMMITTED)

    def abort_request_done(self, identifier: uuid.UUID) -> None:
        """TXUSER_ENLISTMENT_MTAG_ABORTREQDONE."""
        self._note(identifier, Outcome.ABORTED)

    def _note(self, identifier: uuid.UUID, outcome: Outcome) -> None:
        if identifier in self._answers:
            self._answers[identifier] = outcome

    def reenlist(self, transaction: Transaction) -> Outcome:
        """Return the outcome of a prepared transaction when the queue manager starts.

        The batch that ends the branch also notes that it has ended.
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
        # Another coordinator's, which resolves it: this one knows nothing about its transactions.
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
    """Return the coordinator of a queue manager. DtcConnect if it has none."""
    found = engine.dtc.coordinator
    if not isinstance(found, Coordinator):
        raise DtcConnect(f"queue manager {engine.queue_manager.computer_name} has no transaction coordinator")
    return found
