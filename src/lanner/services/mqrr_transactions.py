"""Transactions that remote readers have enlisted (MS-MQRR 3.1.4.12).

Here a transaction is a branch of one of Lanner's distributed transactions (host/coordinator.py),
identified by Lanner's own propagation token. Its coordinator prepares and ends it with the requests
of host/distributed.py, like every other branch. A branch belongs to the user who enlisted it: no
other user may read in it or end it.

Losing an association does not end a transaction, because its outcome may be on the way. An
unprepared transaction is aborted when the last association that enlisted it has been gone for the
cleanup time (`rpc.cancel_timeout`), which also applies to delivered messages.

All code here runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.engine.dtc import Outcome
from lanner.host.coordinator import coordinator_of
from lanner.host.distributed import MAX_BRANCHES
from lanner.model.errors import (
    DtcConnect,
    InsufficientResources,
    InvalidParameter,
    TransactionEnlist,
    TransactionImport,
    TransactionSequence,
)
from lanner.model.guid_table import GuidTable
from lanner.wire.propagation_token import unpack_token
from lanner.wire.sid import ANONYMOUS_LOGON

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.committer import Committer
    from lanner.model.branches import Branch
    from lanner.model.live import Transaction
    from lanner.rpc.association import AssociationGroup
    from lanner.rpc.calls import ServerCall
    from lanner.wire.sid import Sid

# MS-MQRR 2.2.8: the value for no transaction.
NO_TRANSACTION: Final = bytes(16)
# Not in the specification: the maximum number of ended transactions that are remembered, so that
# late tokens are refused.
MAX_ENDED: Final = 10_000
# MS-DTCO 2.2.5.4: a token begins with dwVersionMin, which is 1, and dwVersionMax. The identifier of
# the transaction follows, so a token has at least 24 octets.
_DTC_VERSION_MIN: Final = (1).to_bytes(4, "little")
_DTC_LEAST: Final = 24
# The kind of the internal context handle whose rundown reports the end of an association. Clients
# never receive it.
_KIND: Final = "MS-MQRR enlistment"


@dataclass(slots=True, eq=False)
class Enlistment:
    """A transaction, the user who enlisted it, and the associations used for it."""

    transaction: Transaction
    owner: Sid
    groups: set[AssociationGroup] = field(default_factory=set)
    # The scheduled abort of a transaction whose associations have all ended.
    abandon: asyncio.TimerHandle | None = None

    def belongs_to(self, call: ServerCall) -> bool:
        """Return whether a caller may use the transaction.

        Anonymous callers count as the same user only within one association.
        """
        sid = call.identity.sid
        return sid == self.owner and (sid != ANONYMOUS_LOGON or call.group in self.groups)


class RemoteTransactions:
    """The enlisted transactions of a queue manager, by XACTUOW."""

    def __init__(self, engine: Engine, committer: Committer, grace_seconds: float) -> None:
        self._engine = engine
        self._committer = committer
        self._grace_seconds = grace_seconds
        self._enlisted: GuidTable[Enlistment] = GuidTable()
        # The enlistments of each association. Ended ones are removed when there are too many.
        self._of_group: dict[AssociationGroup, set[Enlistment]] = {}

    def enlist(self, call: ServerCall, xactuow: bytes, token: bytes) -> None:
        """3.1.4.12 R_QMEnlistRemoteTransaction.

        Raises InvalidParameter for the identifier that means no transaction, DtcConnect for a token
        of MS-DTCO, TransactionImport for a token of another transaction, and TransactionEnlist if
        the transaction has ended or belongs to another user.
        """
        if xactuow == NO_TRANSACTION:
            raise InvalidParameter("pTransactionId is zero")
        branch = unpack_token(token)
        if branch is None:
            if len(token) >= _DTC_LEAST and token.startswith(_DTC_VERSION_MIN):
                raise DtcConnect("this queue manager takes no part in transactions of MSDTC")
            raise TransactionImport("the propagation token is neither MSDTC's nor Lanner's")
        identifier = UUID(bytes_le=xactuow)
        if branch.transaction != identifier:
            raise TransactionImport(f"the propagation token is of {branch.transaction}, pTransactionId is {identifier}")
        with self._engine.store.lock:
            found = self._enlisted.get(identifier)
            if found is None:
                found = self._create(call, branch)
            elif found.transaction.is_over or found.transaction.branch != branch or not found.belongs_to(call):
                raise TransactionEnlist(f"transaction {identifier} has ended, or is another user's")
        self._watch(call, found)

    def _create(self, call: ServerCall, branch: Branch) -> Enlistment:
        owner = call.identity.sid
        collection = self._engine.queue_manager.transaction_collection
        coordinator = coordinator_of(self._engine)
        is_own = branch.coordinator == coordinator.identifier
        if is_own and coordinator.outcome(branch.transaction) is Outcome.COMMITTED:
            raise TransactionEnlist(f"transaction {branch.transaction} is committed")
        if any(one.branch == branch for one in collection.values()) or branch.transaction in collection:
            raise TransactionEnlist(f"there is a branch {branch} already")
        if sum(one.branch is not None and one.owner == str(owner) for one in collection.values()) >= MAX_BRANCHES:
            raise InsufficientResources(f"{MAX_BRANCHES} branches of this user wait for their outcome")
        transaction = self._engine.create_transaction(branch.transaction)
        transaction.branch, transaction.owner = branch, str(owner)
        self._forget_ended()
        found = self._enlisted[branch.transaction] = Enlistment(transaction, owner)
        return found

    def _forget_ended(self) -> None:
        """Make room for one more by forgetting the transactions that ended first."""
        if len(self._enlisted) >= MAX_ENDED:
            ended = [identifier for identifier, one in self._enlisted.items() if one.transaction.is_over]
            for identifier in ended[: MAX_ENDED // 10]:
                del self._enlisted[identifier]

    def find(self, call: ServerCall, xactuow: bytes) -> Transaction:
        """Return the caller's open transaction with this identifier.

        Raises TransactionSequence if there is none.
        """
        found = self._enlisted.get(UUID(bytes_le=xactuow))
        if found is None or found.transaction.is_over or found.transaction.is_prepared or not found.belongs_to(call):
            raise TransactionSequence("pTransactionId is not enlisted: call R_QMEnlistRemoteTransaction first")
        return found.transaction

    def is_of(self, call: ServerCall, transaction: Transaction | None) -> bool:
        """Return whether a transaction is open and unprepared, and was enlisted by this caller."""
        found = None if transaction is None else self._enlisted.get(transaction.identifier)
        if found is None or found.transaction is not transaction or not found.belongs_to(call):
            return False
        return not transaction.is_over and not transaction.is_prepared

    # Associations
    # ----------------------------------------------------------------------------------------------

    def _watch(self, call: ServerCall, enlistment: Enlistment) -> None:
        """Record the association of a caller, and watch for its end."""
        group = call.group
        if enlistment.abandon is not None:
            enlistment.abandon.cancel()
            enlistment.abandon = None
        enlistment.groups.add(group)
        of_group = self._of_group.get(group)
        if of_group is None:
            of_group = self._of_group[group] = set()
            call.caller.add(self, _KIND, lambda: self._gone(group))
        elif len(of_group) >= MAX_BRANCHES:
            of_group.difference_update([one for one in of_group if one.transaction.is_over])
        of_group.add(enlistment)

    def _gone(self, group: AssociationGroup) -> None:
        loop = asyncio.get_running_loop()
        for enlistment in self._of_group.pop(group):
            enlistment.groups.discard(group)
            if not enlistment.groups and not enlistment.transaction.is_over:
                enlistment.abandon = loop.call_later(self._grace_seconds, self._abort, enlistment.transaction)

    def _abort(self, transaction: Transaction) -> None:
        if transaction.is_over or transaction.is_prepared:
            return
        with self._committer.change() as change:
            self._engine.dtc_transaction_abort(transaction.identifier)
        change.soon()
