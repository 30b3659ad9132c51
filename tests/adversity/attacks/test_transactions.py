"""Distributed transactions of a user who wants to harm others. All run in one event loop."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, ValuesView
from pathlib import Path
from typing import Any

import pytest

from lanner.host import coordinator as coordinators
from lanner.host.addresses import local_settings
from lanner.host.coordinator import coordinator_of
from lanner.host.distributed import DistributedRequests
from lanner.host.runtime import Runtime
from lanner.model.errors import InsufficientResources
from lanner.model.guid_table import GuidTable
from lanner.model.live import Transaction
from lanner.security.identity import Identity
from lanner.wire.sid import Sid

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"))
MALLORY = Identity("mallory", Sid.parse("S-1-5-21-1-2-3-1002"))


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    made = Runtime(tmp_path, local_settings("ALPHA"))
    yield made
    made.close()


class _Counted(GuidTable[Transaction]):
    """The transactions of a queue manager, which counts how often code iterates over them."""

    passes = 0

    def values(self) -> ValuesView[Transaction]:
        self.passes += 1
        return super().values()


def ask(runtime: Runtime, who: Identity, request: str, transaction: Transaction | None = None, **more: Any) -> Any:  # noqa: ANN401 (JSON)
    with runtime.change() as change:
        answer = DistributedRequests(runtime.engine, who).answer({"request": request, **more}, transaction)
    change.wait()
    return answer()


def test_the_end_of_many_transactions_takes_one_pass(runtime: Runtime) -> None:
    """A user's transactions are many, and so are the ones that it disconnects from."""
    qm = runtime.engine.queue_manager
    begun = [str(uuid.uuid4()) for _ in range(60)]
    for identifier in begun:
        ask(runtime, MALLORY, "begin distributed", identifier=identifier)
    counted = _Counted()
    counted.update(qm.transaction_collection)
    qm.transaction_collection = counted
    ask(runtime, MALLORY, "end distributed", transactions=begun[:30], resources=[])
    assert counted.passes == 1
    with runtime.lock:
        DistributedRequests(runtime.engine, MALLORY).abandon([uuid.UUID(one) for one in begun[30:]])
    assert counted.passes == 2
    assert not coordinator_of(runtime.engine).active()


def test_one_user_begins_so_many_transactions(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "MAX_ACTIVE", 3)
    begun = [str(uuid.uuid4()) for _ in range(3)]
    for identifier in begun:
        ask(runtime, MALLORY, "begin distributed", identifier=identifier)
    with pytest.raises(InsufficientResources, match="of this user are open"):
        ask(runtime, MALLORY, "begin distributed", identifier=str(uuid.uuid4()))
    ask(runtime, ALICE, "begin distributed", identifier=str(uuid.uuid4()))
    # What is ended, in either way, makes room.
    ask(runtime, MALLORY, "end distributed", transactions=begun[:1], resources=[])
    ask(runtime, MALLORY, "decide", identifier=begun[1], resources=["bank"])
    for _ in range(2):
        ask(runtime, MALLORY, "begin distributed", identifier=str(uuid.uuid4()))
    with pytest.raises(InsufficientResources):
        ask(runtime, MALLORY, "begin distributed", identifier=str(uuid.uuid4()))


def test_a_branch_of_another_user_confirms_no_commit(runtime: Runtime) -> None:
    """Whoever knows a transaction's identifier may prepare a branch under its names.

    If its commit counted as that of the owner's resource, the decision would be forgotten, and the
    resource would then be told that the transaction was aborted.
    """
    engine = runtime.engine
    coordinator, shared = str(coordinator_of(engine).identifier), str(uuid.uuid4())
    names: dict[str, Any] = {"coordinator": coordinator, "identifier": shared, "resource": "bank"}
    ask(runtime, ALICE, "begin distributed", identifier=shared)
    with runtime.lock:
        branch = engine.create_transaction(uuid.uuid4())
    ask(runtime, MALLORY, "prepare", branch, **names)
    ask(runtime, ALICE, "decide", identifier=shared, resources=["bank"])
    ask(runtime, MALLORY, "end branch", commit=True, **names)
    assert ask(runtime, ALICE, "coordinator", resource="bank")["pending"] == [shared]
    assert ask(runtime, ALICE, "outcomes", transactions=[shared])["outcomes"] == {shared: "committed"}
    ask(runtime, ALICE, "end distributed", transactions=[shared], resources=["bank"])
    assert ask(runtime, ALICE, "coordinator", resource="bank")["pending"] == []
