"""The queue manager and its coordinator (MS-MQDMPR 3.1.4.6-3.1.4.11).

The coordinator is the one that ships, with a record of the events it gets. It may rely on every
event, so each test checks that an answer is absent before a sync and present after it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.engine.dtc import Outcome
from lanner.engine.tables import COORDINATOR
from lanner.host.distributed import DistributedRequests
from lanner.model.enums import PositionState, QueueManagerState
from lanner.model.live import Transaction
from lanner.security.identity import SYSTEM
from tests.coordinators import HeardCoordinator
from tests.engine.harness import Harness, status_of
from tests.statuses import MQ_ERROR_DTC_CONNECT, MQ_ERROR_SERVICE_NOT_AVAILABLE, MQ_ERROR_TRANSACTION_SEQUENCE


@pytest.fixture
def d(tmp_path: Path) -> Iterator[Harness]:
    """With queue "t", in it the message "received"."""
    harness = Harness(tmp_path / "data", make_coordinator=HeardCoordinator)
    harness.create("t", transactional=True)
    transaction = harness.begin()
    harness.send("t", b"received", transaction=transaction)
    harness.commit(transaction)
    harness.sync()
    yield harness
    harness.close()


def coordinator_of(h: Harness) -> HeardCoordinator:
    assert isinstance(h.coordinator, HeardCoordinator)
    return h.coordinator


def ask(h: Harness, request: str, transaction: Transaction | None = None, **arguments: object) -> Any:  # noqa: ANN401
    """Make a request, and return what fetches its answer when it is durable."""
    return DistributedRequests(h.engine, SYSTEM).answer({"request": request, **arguments}, transaction)


def named(h: Harness, identifier: uuid.UUID, coordinator: uuid.UUID | None = None) -> dict[str, Any]:
    """Name a branch of this queue manager's own coordinator, or of another."""
    return {
        "coordinator": str(coordinator or coordinator_of(h).identifier),
        "identifier": str(identifier),
        "resource": ".",
    }


def work(h: Harness) -> Transaction:
    """A transaction that has received the message of "t" and sent another."""
    transaction = h.begin()
    assert h.receive("t", transaction) == b"received"
    h.send("t", b"sent", transaction=transaction)
    return transaction


# In operation
# ---------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.4.6-1")
def test_prepare_for_two_phases_is_answered_when_it_is_on_disk(d: Harness) -> None:
    """PREPAREREQ with fSinglePhase zero: SinglePhase False, and PREPAREREQDONE.

    The messages stay locked.
    """
    transaction = work(d)
    vote = ask(d, "prepare", transaction, **named(d, uuid.uuid4()))
    assert transaction.single_phase is False
    assert coordinator_of(d).heard == []
    d.sync()
    assert coordinator_of(d).heard == [("prepared", transaction.identifier)]
    assert vote() == {}
    states = {operation.message_position.state for operation in transaction.transactional_operations}
    assert states == {PositionState.LOCKED}
    assert d.bodies("t") == []
    assert transaction.identifier in d.engine.queue_manager.transaction_collection


@pytest.mark.spec("DMPR-3.1.4.6-2")
def test_prepare_for_a_single_phase_goes_straight_to_commit(d: Harness) -> None:
    """PREPAREREQ with fSinglePhase nonzero: committed, COMMITREQDONE and no PREPAREREQDONE."""
    transaction = work(d)
    vote = ask(d, "prepare", transaction, single_phase=True, **named(d, uuid.uuid4()))
    assert d.bodies("t") == [b"sent"]
    assert d.engine.queue_manager.transaction_collection == {}
    d.sync()
    assert coordinator_of(d).heard == [("committed", transaction.identifier)]
    assert vote() == {}


@pytest.mark.spec("DMPR-3.1.4.6-3")
@pytest.mark.parametrize("single_phase", [True, False])
def test_a_prepare_that_fails_is_answered_as_an_abort(d: Harness, *, single_phase: bool) -> None:
    """The prepare did not return MQ_OK, because the transaction has ended.

    The answer is that of abort processing, ABORTREQDONE, a vote against the commit.
    """
    other, ended = work(d), d.begin()
    d.engine.transaction_abort(ended.identifier)
    vote = ask(d, "prepare", ended, single_phase=single_phase, **named(d, uuid.uuid4()))
    d.sync()
    assert coordinator_of(d).heard == [("aborted", ended.identifier)]
    assert status_of(vote) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert d.engine.queue_manager.transaction_collection == {other.identifier: other}


@pytest.mark.spec("DMPR-3.1.4.7-1")
def test_commit_request_commits_and_is_answered_when_it_is_on_disk(d: Harness) -> None:
    other = d.begin()
    transaction, branch = decided(d)
    coordinator_of(d).heard.clear()
    ended = ask(d, "end branch", commit=True, **branch)
    assert coordinator_of(d).heard == []
    assert d.engine.queue_manager.transaction_collection == {other.identifier: other}
    d.sync()
    assert coordinator_of(d).heard == [("committed", transaction.identifier)]
    assert ended() == {}
    d.crash()
    assert d.bodies("t") == [b"sent"]


@pytest.mark.spec("DMPR-3.1.4.7-1")
def test_a_repeated_commit_request_is_answered_again(d: Harness) -> None:
    """The text sends COMMITREQDONE whatever Transaction Commit returned."""
    transaction, branch = decided(d)
    for _ in range(2):
        ended = ask(d, "end branch", commit=True, **branch)
        d.sync()
        assert ended() == {}
    coordinator_of(d).heard.clear()
    d.engine.dtc_transaction_commit(transaction.identifier)
    d.sync()
    assert coordinator_of(d).heard == [("committed", transaction.identifier)]
    assert d.bodies("t") == [b"sent"]


@pytest.mark.spec("DMPR-3.1.4.8-1")
def test_abort_request_aborts_and_is_answered(d: Harness) -> None:
    """The abort follows the prepare.

    A transaction that is not prepared has no branch yet, and ends with its program.
    """
    other = d.begin()
    transaction, branch = in_doubt(d)
    coordinator_of(d).heard.clear()
    ended = ask(d, "end branch", commit=False, **branch)
    assert coordinator_of(d).heard == []
    assert d.bodies("t") == [b"received"]
    assert d.engine.queue_manager.transaction_collection == {other.identifier: other}
    d.sync()
    assert coordinator_of(d).heard == [("aborted", transaction.identifier)]
    assert ended() == {}
    d.crash()
    assert (d.bodies("t"), coordinator_of(d).asked) == ([b"received"], [])


@pytest.mark.spec("DMPR-3.1.4.8-1")
def test_a_program_that_goes_away_has_its_branch_aborted(d: Harness) -> None:
    """Its transaction is not decided: the coordinator asks for the abort."""
    transaction, branch = in_doubt(d)
    coordinator_of(d).heard.clear()
    DistributedRequests(d.engine, SYSTEM).abandon([uuid.UUID(branch["identifier"])])
    d.sync()
    assert coordinator_of(d).heard == [("aborted", transaction.identifier)]
    assert d.bodies("t") == [b"received"]


# Recovery
# -------------------------------------------------------------------------------------------------


def state(h: Harness) -> QueueManagerState:
    return h.engine.queue_manager.queue_manager_state


def in_doubt(h: Harness, coordinator: uuid.UUID | None = None) -> tuple[Transaction, dict[str, Any]]:
    """A transaction that is prepared and not decided."""
    transaction, branch = work(h), named(h, uuid.uuid4(), coordinator)
    if coordinator is None:
        ask(h, "begin distributed", identifier=branch["identifier"])
    vote = ask(h, "prepare", transaction, **branch)
    h.sync()
    vote()
    return transaction, branch


def decided(h: Harness) -> tuple[Transaction, dict[str, Any]]:
    """Its commit is in the coordinator's log, and its branch has not received it."""
    transaction, branch = in_doubt(h)
    ask(h, "decide", identifier=branch["identifier"], resources=["."])
    h.sync()
    return transaction, branch


@pytest.mark.spec("DMPR-3.1.4.9-1")
@pytest.mark.parametrize("crash", [True, False])
def test_recovery_commits_what_the_coordinator_committed(d: Harness, *, crash: bool) -> None:
    """REENLIST_COMMITTED: its sends appear and its receives are removed, durably.

    Then the decision is forgotten.
    """
    transaction, _ = decided(d)
    d.crash() if crash else d.restart()
    assert coordinator_of(d).asked == [(transaction.identifier, Outcome.COMMITTED)]
    assert d.bodies("t") == [b"sent"]
    assert d.engine.queue_manager.transaction_collection == {}
    assert list(coordinator_of(d).decisions()) == []
    queue = d.queue("t")
    assert (queue.message_count, queue.total_bytes) == d.store.stats(queue.number)
    d.crash()
    assert (d.bodies("t"), coordinator_of(d).asked) == ([b"sent"], [])


@pytest.mark.spec("DMPR-3.1.4.10-1")
@pytest.mark.parametrize("crash", [True, False])
def test_recovery_aborts_what_the_coordinator_aborted(d: Harness, *, crash: bool) -> None:
    """REENLIST_ABORTED, for what is not in the log.

    The receives return and the sends vanish, durably.
    """
    transaction, _ = in_doubt(d)
    d.crash() if crash else d.restart()
    assert coordinator_of(d).asked == [(transaction.identifier, Outcome.ABORTED)]
    assert d.bodies("t") == [b"received"]
    assert d.engine.queue_manager.transaction_collection == {}
    queue = d.queue("t")
    assert (queue.message_count, queue.total_bytes) == d.store.stats(queue.number)
    d.crash()
    assert (d.bodies("t"), coordinator_of(d).asked) == ([b"received"], [])


@pytest.mark.parametrize(("is_commit", "places"), [(False, ([b"received"], [])), (True, ([], [b"received"]))])
def test_recovered_moves_end_as_the_coordinator_says(
    d: Harness, *, is_commit: bool, places: tuple[list[bytes], list[bytes]]
) -> None:
    """A Move of a prepared transaction survives with its target queue."""
    transaction, branch = d.begin(), named(d, uuid.uuid4())
    source, target = d.queue("t"), d.create("t;sub")
    position = d.engine.positions.seek_available_message_position(source, -1, peek=False)
    assert position is not None
    d.engine.move_message(position, target, transaction)
    ask(d, "begin distributed", identifier=branch["identifier"])
    ask(d, "prepare", transaction, **branch)
    if is_commit:
        ask(d, "decide", identifier=branch["identifier"], resources=["."])
    d.sync()
    d.crash()
    assert (d.bodies("t"), d.bodies("t;sub")) == places


def test_each_recovered_transaction_gets_its_own_outcome(d: Harness) -> None:
    for is_commit in (True, False):
        transaction, branch = d.begin(), named(d, uuid.uuid4())
        d.send("t", b"%d" % is_commit, transaction=transaction)
        ask(d, "begin distributed", identifier=branch["identifier"])
        ask(d, "prepare", transaction, **branch)
        if is_commit:
            ask(d, "decide", identifier=branch["identifier"], resources=["."])
    d.sync()
    d.crash()
    assert d.bodies("t") == [b"received", b"1"]


def test_what_another_coordinator_decides_stays_locked(d: Harness) -> None:
    """Neither outcome may be guessed; the other coordinator reports it when it has one."""
    transaction, branch = in_doubt(d, uuid.uuid4())
    d.crash()
    assert coordinator_of(d).asked == [(transaction.identifier, Outcome.IN_DOUBT)]
    assert d.bodies("t") == []
    assert list(d.engine.queue_manager.transaction_collection) == [transaction.identifier]
    assert ask(d, "branches", coordinator=branch["coordinator"], resource=".")() == {
        "transactions": [branch["identifier"]]
    }
    ask(d, "end branch", commit=True, **branch)
    d.sync()
    assert d.bodies("t") == [b"sent"]


def test_a_transaction_without_a_branch_stays_locked(d: Harness) -> None:
    """Such as one of a store that was written before branches were."""
    transaction = work(d)
    d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
    d.sync()
    d.crash()
    assert coordinator_of(d).asked == [(transaction.identifier, Outcome.IN_DOUBT)]
    assert d.bodies("t") == []


@pytest.mark.spec("DMPR-3.1.4.11-1")
def test_a_coordinator_that_cannot_answer_halts_the_start(d: Harness) -> None:
    """Reenlistment Timeout: the caller of start gets an error.

    The state never becomes Ready, and nothing is decided.
    """
    decided(d)
    table = d.store.table(COORDINATOR)
    rows = dict(table.items())
    for key in rows:
        table.put(key, b"unreadable")
    d.sync()
    assert status_of(d.crash) == MQ_ERROR_DTC_CONNECT
    assert state(d) is QueueManagerState.INITIALIZING
    assert status_of(lambda: d.open("t")) == MQ_ERROR_SERVICE_NOT_AVAILABLE
    for key, row in rows.items():
        d.store.table(COORDINATOR).put(key, row)
    d.sync()
    d.crash()
    assert state(d) is QueueManagerState.READY
    assert d.bodies("t") == [b"sent"]
