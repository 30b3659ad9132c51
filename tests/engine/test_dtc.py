"""The resource manager of an external coordinator (MS-MQDMPR 3.1.4.6-3.1.4.11).

The coordinator here is a list of what it was told. What it is told it may rely on, so each answer is looked
for after a sync and its absence before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.engine.dtc import Outcome
from lanner.model.enums import PositionState, QueueManagerState
from lanner.model.live import Transaction
from tests.engine.harness import Harness, status_of

DTC_CONNECT = 0xC00E_004C
SERVICE_NOT_AVAILABLE = 0xC00E_000B


class Transcript:
    """A coordinator that writes down what it hears and answers reenlistments as it was told to."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, uuid.UUID]] = []
        self.outcomes: dict[uuid.UUID, Outcome] = {}
        self.asked: list[uuid.UUID] = []

    def prepare_request_done(self, identifier: uuid.UUID) -> None:
        self.heard.append(("prepared", identifier))

    def commit_request_done(self, identifier: uuid.UUID) -> None:
        self.heard.append(("committed", identifier))

    def abort_request_done(self, identifier: uuid.UUID) -> None:
        self.heard.append(("aborted", identifier))

    def reenlist(self, identifier: uuid.UUID) -> Outcome:
        self.asked.append(identifier)
        return self.outcomes[identifier]


@pytest.fixture
def coordinator() -> Transcript:
    return Transcript()


@pytest.fixture
def d(tmp_path: Path, coordinator: Transcript) -> Iterator[Harness]:
    """With queue "t", in it the message "received"."""
    harness = Harness(tmp_path / "data", coordinator=coordinator)
    harness.create("t", transactional=True)
    transaction = harness.begin()
    harness.send("t", b"received", transaction=transaction)
    harness.commit(transaction)
    harness.sync()
    yield harness
    harness.close()


def work(h: Harness) -> Transaction:
    """A transaction that has received the message of "t" and sent another."""
    transaction = h.begin()
    assert h.receive("t", transaction) == b"received"
    h.send("t", b"sent", transaction=transaction)
    return transaction


# In operation ---------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.4.6-1")
def test_prepare_for_two_phases_is_answered_when_it_is_on_disk(d: Harness, coordinator: Transcript) -> None:
    """PREPAREREQ with fSinglePhase zero: SinglePhase False, and PREPAREREQDONE; the messages stay locked."""
    transaction = work(d)
    d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
    assert transaction.single_phase is False
    assert coordinator.heard == []
    d.sync()
    assert coordinator.heard == [("prepared", transaction.identifier)]
    states = {operation.message_position.state for operation in transaction.transactional_operations}
    assert states == {PositionState.LOCKED}
    assert d.bodies("t") == []
    assert transaction.identifier in d.engine.queue_manager.transaction_collection


@pytest.mark.spec("DMPR-3.1.4.6-2")
def test_prepare_for_a_single_phase_goes_straight_to_commit(d: Harness, coordinator: Transcript) -> None:
    """PREPAREREQ with fSinglePhase nonzero: committed, COMMITREQDONE and no PREPAREREQDONE."""
    transaction = work(d)
    d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=True)
    assert d.bodies("t") == [b"sent"]
    assert d.engine.queue_manager.transaction_collection == {}
    d.sync()
    assert coordinator.heard == [("committed", transaction.identifier)]


@pytest.mark.spec("DMPR-3.1.4.6-3")
@pytest.mark.parametrize("single_phase", [True, False])
def test_a_prepare_that_fails_is_answered_as_an_abort(
    d: Harness, coordinator: Transcript, *, single_phase: bool
) -> None:
    """The prepare did not return MQ_OK (no such transaction): abort processing, so ABORTREQDONE."""
    other = work(d)
    unknown = uuid.uuid4()
    d.engine.dtc_transaction_prepare(unknown, single_phase=single_phase)
    d.sync()
    assert coordinator.heard == [("aborted", unknown)]
    assert d.engine.queue_manager.transaction_collection == {other.identifier: other}


@pytest.mark.spec("DMPR-3.1.4.7-1")
def test_commit_request_commits_and_is_answered_when_it_is_on_disk(d: Harness, coordinator: Transcript) -> None:
    transaction, other = work(d), d.begin()
    d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
    d.sync()
    coordinator.heard.clear()
    d.engine.dtc_transaction_commit(transaction.identifier)
    assert coordinator.heard == []
    assert d.engine.queue_manager.transaction_collection == {other.identifier: other}
    d.sync()
    assert coordinator.heard == [("committed", transaction.identifier)]
    d.crash()
    assert d.bodies("t") == [b"sent"]


@pytest.mark.spec("DMPR-3.1.4.7-1")
def test_a_repeated_commit_request_is_answered_again(d: Harness, coordinator: Transcript) -> None:
    """The text sends COMMITREQDONE whatever Transaction Commit returned."""
    transaction = work(d)
    d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
    d.engine.dtc_transaction_commit(transaction.identifier)
    d.sync()
    coordinator.heard.clear()
    d.engine.dtc_transaction_commit(transaction.identifier)
    d.sync()
    assert coordinator.heard == [("committed", transaction.identifier)]
    assert d.bodies("t") == [b"sent"]


@pytest.mark.spec("DMPR-3.1.4.8-1")
@pytest.mark.parametrize("prepared", [True, False])
def test_abort_request_aborts_and_is_answered(d: Harness, coordinator: Transcript, *, prepared: bool) -> None:
    """Before and after the prepare."""
    transaction, other = work(d), d.begin()
    if prepared:
        d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
        d.sync()
        coordinator.heard.clear()
    d.engine.dtc_transaction_abort(transaction.identifier)
    assert coordinator.heard == []
    assert d.bodies("t") == [b"received"]
    assert d.engine.queue_manager.transaction_collection == {other.identifier: other}
    d.sync()
    assert coordinator.heard == [("aborted", transaction.identifier)]
    d.crash()
    assert (d.bodies("t"), coordinator.asked) == ([b"received"], [])


# Recovery -------------------------------------------------------------------------------------------------


def state(h: Harness) -> QueueManagerState:
    return h.engine.queue_manager.queue_manager_state


def in_doubt(h: Harness) -> Transaction:
    transaction = work(h)
    h.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
    h.sync()
    return transaction


@pytest.mark.spec("DMPR-3.1.4.9-1")
@pytest.mark.parametrize("crash", [True, False])
def test_recovery_commits_what_the_coordinator_committed(d: Harness, coordinator: Transcript, *, crash: bool) -> None:
    """REENLIST_COMMITTED: its sends appear and its receives are removed, for good."""
    transaction = in_doubt(d)
    coordinator.outcomes[transaction.identifier] = Outcome.COMMITTED
    d.crash() if crash else d.restart()
    assert coordinator.asked == [transaction.identifier]
    assert d.bodies("t") == [b"sent"]
    assert d.engine.queue_manager.transaction_collection == {}
    queue = d.queue("t")
    assert (queue.message_count, queue.total_bytes) == d.store.stats(queue.number)
    d.crash()
    assert (d.bodies("t"), len(coordinator.asked)) == ([b"sent"], 1)


@pytest.mark.spec("DMPR-3.1.4.10-1")
@pytest.mark.parametrize("crash", [True, False])
def test_recovery_aborts_what_the_coordinator_aborted(d: Harness, coordinator: Transcript, *, crash: bool) -> None:
    """REENLIST_ABORTED: its receives return and its sends vanish, for good."""
    transaction = in_doubt(d)
    coordinator.outcomes[transaction.identifier] = Outcome.ABORTED
    d.crash() if crash else d.restart()
    assert coordinator.asked == [transaction.identifier]
    assert d.bodies("t") == [b"received"]
    assert d.engine.queue_manager.transaction_collection == {}
    queue = d.queue("t")
    assert (queue.message_count, queue.total_bytes) == d.store.stats(queue.number)
    d.crash()
    assert (d.bodies("t"), len(coordinator.asked)) == ([b"received"], 1)


def test_recovered_moves_end_as_the_coordinator_says(d: Harness, coordinator: Transcript) -> None:
    """A Move of a prepared transaction survives with its target queue."""
    for outcome, places in ((Outcome.ABORTED, ([b"received"], [])), (Outcome.COMMITTED, ([], [b"received"]))):
        transaction = d.begin()
        source, target = d.queue("t"), d.create(f"t;{outcome.name}")
        position = d.engine.positions.seek_available_message_position(source, -1, peek=False)
        assert position is not None
        d.engine.move_message(position, target, transaction)
        d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
        d.sync()
        coordinator.outcomes[transaction.identifier] = outcome
        d.crash()
        assert (d.bodies("t"), d.bodies(f"t;{outcome.name}")) == places


def test_each_recovered_transaction_gets_its_own_outcome(d: Harness, coordinator: Transcript) -> None:
    identifiers = {}
    for outcome in (Outcome.COMMITTED, Outcome.ABORTED):
        transaction = d.begin()
        d.send("t", outcome.name.encode(), transaction=transaction)
        d.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
        identifiers[transaction.identifier] = outcome
    d.sync()
    coordinator.outcomes = identifiers
    d.crash()
    assert d.bodies("t") == [b"received", b"COMMITTED"]


def test_without_a_coordinator_what_is_in_doubt_stays_locked(d: Harness) -> None:
    """Neither outcome may be guessed; a later start with the coordinator decides."""
    transaction = in_doubt(d)
    coordinator = d.coordinator
    assert isinstance(coordinator, Transcript)
    d.coordinator = None
    d.crash()
    assert d.bodies("t") == []
    assert list(d.engine.queue_manager.transaction_collection) == [transaction.identifier]
    d.coordinator = coordinator
    coordinator.outcomes[transaction.identifier] = Outcome.COMMITTED
    d.restart()
    assert d.bodies("t") == [b"sent"]


@pytest.mark.spec("DMPR-3.1.4.11-1")
def test_a_coordinator_that_does_not_answer_halts_the_start(d: Harness, coordinator: Transcript) -> None:
    """Reenlistment Timeout: an error to who started us, the state never Ready, and nothing is decided."""
    transaction = in_doubt(d)
    coordinator.outcomes[transaction.identifier] = Outcome.TIMEOUT
    assert status_of(d.crash) == DTC_CONNECT
    assert state(d) is QueueManagerState.INITIALIZING
    assert status_of(lambda: d.open("t")) == SERVICE_NOT_AVAILABLE
    coordinator.outcomes[transaction.identifier] = Outcome.COMMITTED
    d.crash()
    assert state(d) is QueueManagerState.READY
    assert d.bodies("t") == [b"sent"]
