"""Distributed transactions as documents, for administrators, who may also end them by hand.

There are three kinds of rows. A `decision` is a commit decided by the local coordinator that a
resource has not received. A `branch` is a prepared transaction of this queue manager, whose
messages are locked. An `active` transaction is being ended by a program.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

from lanner.engine.dtc import Outcome
from lanner.host.coordinator import coordinator_of
from lanner.model.errors import InvalidParameter, TransactionSequence
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.live import Transaction

Document = dict[str, Any]


class TransactionDocuments:
    """The distributed transactions of one queue manager. The caller holds the store's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Document]:
        """Return every row."""
        coordinator = coordinator_of(self._engine)
        rows: list[Document] = [
            {
                "kind": "decision",
                "transaction": str(decision.transaction),
                "state": Outcome.COMMITTED.value,
                "coordinator": str(decision.coordinator),
                "resources": list(decision.resources),
                "owner": self._name(decision.owner),
                "since": dt.datetime.fromtimestamp(decision.decided, dt.UTC).isoformat(timespec="seconds"),
            }
            for decision in coordinator.decisions()
        ]
        rows += [self._branch(transaction) for transaction in self._prepared()]
        rows += [
            {
                "kind": "active",
                "transaction": str(transaction),
                "state": "active",
                "coordinator": str(coordinator.identifier),
                "resources": [],
                "owner": self._name(owner),
            }
            for transaction, owner in coordinator.active()
        ]
        return rows

    def _prepared(self) -> list[Transaction]:
        collection = self._engine.queue_manager.transaction_collection
        return [transaction for transaction in collection.values() if transaction.is_prepared]

    def _branch(self, transaction: Transaction) -> Document:
        branch = transaction.branch
        counts = Counter(
            (operation.message_position.queue.pathname, operation.operation_type.name.lower())
            for operation in transaction.transactional_operations
        )
        return {
            "kind": "branch",
            "transaction": str(transaction.identifier if branch is None else branch.transaction),
            "state": "prepared",
            # None if it was prepared by a version that did not store the branch.
            "coordinator": None if branch is None else str(branch.coordinator),
            "resources": [] if branch is None else [branch.resource],
            "owner": self._name(transaction.owner),
            "identifier": str(transaction.identifier),
            "operations": [
                {"queue": queue, "operation": kind, "messages": count}
                for (queue, kind), count in sorted(counts.items())
            ],
        }

    def _name(self, sid: str) -> str:
        """Return the account name of a SID, or the SID if it has none."""
        resolve = self._engine.settings.resolve_identity
        found = resolve(Sid.parse(sid)) if resolve and sid else None
        return sid if found is None else found.name

    def end(self, transaction: uuid.UUID, *, is_commit: bool) -> list[Document]:
        """End a transaction that is in doubt here; return the rows concerned.

        A commit decision of the local coordinator is then forgotten, because its resources are
        being ended by hand. Raises InvalidParameter if the transaction is unknown here, and
        TransactionSequence if it is active or the local coordinator has decided otherwise.
        """
        engine, coordinator = self._engine, coordinator_of(self._engine)
        rows = [row for row in self.describe() if str(transaction) in (row["transaction"], row.get("identifier"))]
        if not rows:
            raise InvalidParameter(
                f"no transaction {transaction} is in doubt here: `lanner transaction list` shows all"
            )
        wanted = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        for row in rows:
            known = uuid.UUID(row["transaction"])
            if row["coordinator"] != str(coordinator.identifier):
                continue
            outcome = coordinator.outcome(known)
            if outcome is Outcome.IN_DOUBT:
                raise TransactionSequence(f"transaction {known} is active: its program is about to end it")
            if outcome is not wanted:
                raise TransactionSequence(f"transaction {known} is {outcome.value}: it cannot be {wanted.value}")
        for row in rows:
            if row["kind"] == "branch":
                identifier = uuid.UUID(row["identifier"])
                if is_commit:
                    engine.dtc_transaction_commit(identifier)
                else:
                    engine.dtc_transaction_abort(identifier)
            elif is_commit:
                coordinator.done(uuid.UUID(row["transaction"]), row["resources"])
            else:
                raise TransactionSequence(f"transaction {row['transaction']} is committed: it cannot be aborted")
        return rows
