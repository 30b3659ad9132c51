"""The coordinator: its state machine, its log, and whose branches are whose."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.engine.dtc import Outcome
from lanner.host import coordinator as module
from lanner.host.coordinator import ENDS, STAGES, Coordinator, Input, Stage, Steps, coordinator_of
from lanner.host.distributed import MAX_RESOURCES, DistributedRequests
from lanner.model.branches import XID_FORMAT, Branch, check_resource_name
from lanner.model.errors import (
    AccessDenied,
    DtcConnect,
    InsufficientResources,
    InvalidParameter,
    TransactionSequence,
)
from lanner.security.identity import SYSTEM, Identity
from lanner.store import Store
from lanner.wire.sid import Sid
from tests.coordinators import HeardCoordinator
from tests.engine.harness import Harness

BOB = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1002"), is_domain_user=True)
EVE = Identity("eve", Sid.parse("S-1-5-21-1-2-3-1003"), is_domain_user=True)

# The procedure
# --------------------------------------------------------------------------------------------


def done(steps: Steps, *hows: Input) -> list[str]:
    """Do every step, the first ones as said and the others well, and return what they were."""
    found, given = [], iter(hows)
    while (step := steps.next) is not None:
        found.append(str(step))
        steps.went(next(given, Input.DONE))
    return found


@pytest.mark.parametrize(("stage", "how"), list(itertools.product(Stage, Input)))
def test_every_pair_has_an_answer(stage: Stage, how: Input) -> None:
    """An end has no steps that could go any way; everything else leads on."""
    assert ((stage, how) in STAGES) is (stage not in ENDS)


def test_a_commit_asks_all_decides_and_then_tells_all() -> None:
    steps = Steps(["a", "b"], is_commit=True)
    assert done(steps) == [
        "beginning", "preparing a", "preparing b", "deciding", "committing a", "committing b", "forgetting",
    ]  # fmt: skip
    assert (steps.stage, steps.outstanding) == (Stage.COMMITTED, [])


@pytest.mark.parametrize("how", [Input.FAILED, Input.LOST])
def test_the_first_no_aborts_all(how: Input) -> None:
    """Every participant is aborted, including those not asked yet.

    The one that voted no is aborted too: it may have prepared.
    """
    steps = Steps(["a", "b", "c"], is_commit=True)
    assert done(steps, Input.DONE, Input.DONE, how) == [
        "beginning", "preparing a", "preparing b", "aborting a", "aborting b", "aborting c", "abandoning",
    ]  # fmt: skip
    assert steps.stage is Stage.ABORTED


def test_a_decision_that_is_refused_aborts_all() -> None:
    steps = Steps(["a"], is_commit=True)
    assert done(steps, Input.DONE, Input.DONE, Input.FAILED)[-2:] == ["aborting a", "abandoning"]
    assert steps.stage is Stage.ABORTED


def test_a_decision_whose_answer_is_lost_tells_nobody_anything() -> None:
    steps = Steps(["a", "b"], is_commit=True)
    assert done(steps, Input.DONE, Input.DONE, Input.DONE, Input.LOST)[-1] == "deciding"
    assert (steps.stage, steps.outstanding) == (Stage.IN_DOUBT, ["a", "b"])


@pytest.mark.parametrize("how", [Input.FAILED, Input.LOST])
def test_after_the_decision_one_that_does_not_hear_of_it_stops_nobody(how: Input) -> None:
    steps = Steps(["a", "b"], is_commit=True)
    assert done(steps, Input.DONE, Input.DONE, Input.DONE, Input.DONE, how)[-3:] == [
        "committing a", "committing b", "forgetting",
    ]  # fmt: skip
    assert (steps.stage, steps.outstanding) == (Stage.COMMITTED, ["a"])


def test_an_abort_tells_all() -> None:
    steps = Steps(["a", "b"], is_commit=False)
    assert done(steps, Input.LOST) == ["aborting a", "aborting b", "abandoning"]
    assert (steps.stage, steps.outstanding) == (Stage.ABORTED, ["a"])
    assert done(Steps([], is_commit=False)) == []


@pytest.mark.parametrize(
    ("how", "end"),
    [(Input.DONE, Stage.COMMITTED), (Input.FAILED, Stage.ABORTED), (Input.LOST, Stage.IN_DOUBT)],
)
def test_one_alone_decides_itself(how: Input, end: Stage) -> None:
    steps = Steps(["a"], is_commit=True, is_alone=True)
    assert done(steps, how) == ["committing alone"]
    assert steps.stage is end


# Names
# --------------------------------------------------------------------------------------------------


def test_a_branch_names_its_coordinator_and_its_resource() -> None:
    branch = Branch(uuid.uuid4(), uuid.uuid4(), "x" * 64)
    format_id, global_id, qualifier = branch.xid
    # XA: both parts have at most 64 octets.
    assert (format_id, len(global_id), len(qualifier)) == (XID_FORMAT, 64, 64)
    assert Branch.from_xid(*branch.xid) == branch
    assert branch.coordinator.hex in global_id


@pytest.mark.parametrize(
    "xid", [(1, "0" * 64, "a"), (XID_FORMAT, "0" * 63, "a"), (XID_FORMAT, "0" * 64, None), (None, "gid", None)]
)
def test_a_branch_of_another_maker_is_none(xid: tuple[object, object, object]) -> None:
    assert Branch.from_xid(*xid) is None


@pytest.mark.parametrize("name", ["", "-a", "a b", "a" * 65, "ä", None, 7])
def test_a_name_that_cannot_be_one(name: object) -> None:
    with pytest.raises(InvalidParameter, match="1 to 64 letters"):
        check_resource_name(name)


# The log
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", make_coordinator=HeardCoordinator)
    yield harness
    harness.close()


def coordinator(h: Harness) -> Coordinator:
    return coordinator_of(h.engine)


def ask(h: Harness, request: str, identity: Identity = SYSTEM, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
    answer = DistributedRequests(h.engine, identity).answer({"request": request, **arguments})
    h.sync()
    return answer()


def begun(h: Harness, identity: Identity = SYSTEM) -> str:
    identifier = str(uuid.uuid4())
    ask(h, "begin distributed", identity, identifier=identifier)
    return identifier


def decided(h: Harness, identity: Identity = SYSTEM, resources: tuple[str, ...] = ("a", "b")) -> str:
    identifier = begun(h, identity)
    ask(h, "decide", identity, identifier=identifier, resources=list(resources))
    return identifier


def outcome(h: Harness, identifier: str) -> str:
    return str(ask(h, "outcomes", transactions=[identifier])["outcomes"][identifier])


def test_what_is_decided_survives_and_what_is_not_is_aborted(h: Harness) -> None:
    active, committed = begun(h), decided(h)
    assert (outcome(h, active), outcome(h, committed)) == ("in doubt", "committed")
    identifier = coordinator(h).identifier
    h.crash()
    assert coordinator(h).identifier == identifier
    assert (outcome(h, active), outcome(h, committed)) == ("aborted", "committed")
    with pytest.raises(TransactionSequence, match="was aborted"):
        ask(h, "decide", identifier=active, resources=["a"])


def test_a_decision_is_forgotten_when_all_have_heard_of_it(h: Harness) -> None:
    committed = decided(h)
    told = ask(h, "coordinator", resource="b")
    assert told == {"identifier": str(coordinator(h).identifier), "pending": [committed]}
    ask(h, "end distributed", transactions=[committed], resources=["a"])
    assert ask(h, "coordinator", resource="a")["pending"] == []
    assert ask(h, "coordinator", resource="b")["pending"] == [committed]
    h.crash()
    ask(h, "end distributed", transactions=[committed], resources=["b"])
    assert (outcome(h, committed), list(coordinator(h).decisions())) == ("aborted", [])


def test_an_identifier_is_used_once(h: Harness) -> None:
    for known in (begun(h), decided(h)):
        with pytest.raises(TransactionSequence, match="already"):
            ask(h, "begin distributed", identifier=known)


def test_an_abandoned_transaction_cannot_be_decided(h: Harness) -> None:
    active = begun(h)
    ask(h, "end distributed", transactions=[active], resources=[])
    assert outcome(h, active) == "aborted"
    with pytest.raises(TransactionSequence, match="was aborted"):
        ask(h, "decide", identifier=active, resources=["a"])


def test_one_user_cannot_end_what_another_has_begun(h: Harness) -> None:
    active, committed = begun(h, BOB), decided(h, BOB)
    with pytest.raises(AccessDenied, match="another user's"):
        ask(h, "decide", EVE, identifier=active, resources=["a"])
    for identifier in (active, committed):
        with pytest.raises(AccessDenied, match="another user's"):
            ask(h, "end distributed", EVE, transactions=[identifier], resources=["a", "b"])
    assert ask(h, "coordinator", EVE, resource="a")["pending"] == []
    assert ask(h, "coordinator", BOB, resource="a")["pending"] == [committed]
    assert (outcome(h, active), outcome(h, committed)) == ("in doubt", "committed")


def test_a_user_has_a_limit(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNFINISHED", 2)
    first, _ = decided(h, BOB), decided(h, BOB)
    refused = begun(h, BOB)
    with pytest.raises(InsufficientResources, match="2 distributed transactions wait"):
        ask(h, "decide", BOB, identifier=refused, resources=["a"])
    decided(h, EVE)
    ask(h, "end distributed", BOB, transactions=[first], resources=["a", "b"])
    ask(h, "decide", BOB, identifier=refused, resources=["a"])
    h.crash()
    with pytest.raises(InsufficientResources):
        ask(h, "decide", BOB, identifier=begun(h, BOB), resources=["a"])


@pytest.mark.parametrize("resources", [[], ["a"] * (MAX_RESOURCES + 1), ["a b"], "a", None])
def test_a_decision_names_resources(h: Harness, resources: object) -> None:
    with pytest.raises(InvalidParameter):
        ask(h, "decide", identifier=begun(h), resources=resources)
    ask(h, "decide", identifier=begun(h), resources=["a"] * MAX_RESOURCES)


def test_a_store_that_was_restored_is_another_coordinator(h: Harness, tmp_path: Path) -> None:
    """Its log lacks the decisions made after the backup, so it must not abort those branches.

    It resolves the branches whose decisions are in the log.
    """
    committed, before = decided(h), coordinator(h).identifier
    h.store.lock.release()
    h.store.backup(tmp_path / "backup")
    h.store.lock.acquire()
    store = Store.open(tmp_path / "backup", reserve=1 << 20)
    try:
        with store.lock:
            restored = Coordinator(store)
            assert restored.identifier != before
            assert restored.outcome(uuid.UUID(committed)) is Outcome.COMMITTED
            assert Coordinator(store).identifier == restored.identifier
    finally:
        store.close()


def test_a_queue_manager_without_a_coordinator_says_so(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data")
    try:
        with pytest.raises(DtcConnect, match="ALPHA has no transaction coordinator"):
            ask(harness, "coordinator", resource="a")
    finally:
        harness.close()


# Branches of two coordinators
# -----------------------------------------------------------------------------


def branch_of(
    h: Harness, coordinator: uuid.UUID, identity: Identity = SYSTEM, resource: str = "here"
) -> dict[str, Any]:
    """A prepared branch, which has sent a message."""
    transaction = h.begin()
    h.send("t", b"x", transaction=transaction)
    named = {"coordinator": str(coordinator), "identifier": str(uuid.uuid4()), "resource": resource}
    answer = DistributedRequests(h.engine, identity).answer({"request": "prepare", **named}, transaction)
    h.sync()
    answer()
    return named


def test_branches_are_listed_by_coordinator_resource_and_user(h: Harness) -> None:
    h.create("t", transactional=True)
    one, other = uuid.uuid4(), uuid.uuid4()
    mine = branch_of(h, one, BOB)
    branch_of(h, other, BOB)
    branch_of(h, one, BOB, "there")
    branch_of(h, one, EVE)
    h.crash()
    found = ask(h, "branches", BOB, coordinator=str(one), resource="here")
    assert found == {"transactions": [mine["identifier"]]}
    assert len(ask(h, "branches", coordinator=str(one), resource="here")["transactions"]) == 2


def test_a_branch_is_ended_by_its_user_or_an_administrator(h: Harness) -> None:
    h.create("t", transactional=True)
    named = branch_of(h, uuid.uuid4(), BOB)
    for is_commit in (True, False):
        with pytest.raises(AccessDenied, match="another user's"):
            ask(h, "end branch", EVE, commit=is_commit, **named)
    ask(h, "end branch", BOB, commit=True, **named)
    ask(h, "end branch", commit=False, **branch_of(h, uuid.uuid4(), BOB))
    assert h.bodies("t") == [b"x"]


def test_a_branch_ends_as_its_own_coordinator_has_decided(h: Harness) -> None:
    """The coordinator here knows: no program can end a branch of it otherwise."""
    h.create("t", transactional=True)
    named = branch_of(h, coordinator(h).identifier)
    with pytest.raises(TransactionSequence, match="is aborted"):
        ask(h, "end branch", commit=True, **named)
    ask(h, "begin distributed", identifier=named["identifier"])
    with pytest.raises(TransactionSequence, match="is in doubt"):
        ask(h, "end branch", commit=True, **named)
    ask(h, "decide", identifier=named["identifier"], resources=["here"])
    with pytest.raises(TransactionSequence, match="is committed"):
        ask(h, "end branch", commit=False, **named)
    ask(h, "end branch", commit=True, **named)
    assert h.bodies("t") == [b"x"]
    assert list(coordinator(h).decisions()) == []


def test_a_branch_is_prepared_once(h: Harness) -> None:
    h.create("t", transactional=True)
    named = branch_of(h, uuid.uuid4())
    with pytest.raises(TransactionSequence, match="already"):
        DistributedRequests(h.engine, SYSTEM).answer({"request": "prepare", **named}, h.begin())


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_program_that_goes_away_leaves_no_branch_of_its_own_queue_manager(h: Harness, *, is_commit: bool) -> None:
    h.create("t", transactional=True)
    named = branch_of(h, coordinator(h).identifier, resource=".")
    ask(h, "begin distributed", identifier=named["identifier"])
    if is_commit:
        ask(h, "decide", identifier=named["identifier"], resources=[".", "far"])
    DistributedRequests(h.engine, SYSTEM).abandon([uuid.UUID(named["identifier"])])
    h.sync()
    assert h.bodies("t") == ([b"x"] if is_commit else [])
    assert [decision.resources for decision in coordinator(h).decisions()] == ([("far",)] if is_commit else [])
