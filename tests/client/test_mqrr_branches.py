"""`lanner.distributed` with a queue manager that is read by MS-MQRR.

Covered: its token, the outcome, and computers that reject it.
"""

# What a method takes is told by its declaration.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.client._async import connecting
from lanner.client._async.msmq_backend import MsmqBackend
from lanner.client._async.msmq_transaction import MsmqTransaction
from lanner.model.branches import Branch
from lanner.wire.propagation_token import pack_token, unpack_token
from tests.adversity.served import ADMINISTRATOR, PASSWORD, Served
from tests.client.conftest import no_keys
from tests.client.other_manager import PORT, OtherManager


@pytest.fixture
def by_msmq(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect by Microsoft's protocols, whatever the other side serves."""
    monkeypatch.setattr(connecting, "open_backend", MsmqBackend.connect)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


def coordinator(folder: Path) -> lanner.aio.QueueManager:
    return lanner.aio.QueueManager(folder / "coordinator", "HOME", public_keys=no_keys)


@pytest.mark.spec("MQRR-2.2.8-2")
@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.usefixtures("by_msmq")
@in_a_loop
async def test_receives_and_moves_end_with_the_transaction(tmp_path: Path, outcome: str) -> None:
    with Served(tmp_path, "FAR") as site:
        with site.manager() as manager:
            queue = manager.create_queue("t", transactional=True)
            with manager.transaction() as unit:
                queue.send_many([b"one", b"two", b"three"], transaction=unit)
            ids = [one.lookup_id for one in queue]
        async with (
            coordinator(tmp_path) as home,
            await lanner.aio.connect(site.address, ADMINISTRATOR, PASSWORD) as far,
        ):
            assert isinstance(far._backend, MsmqBackend)
            t = far.open("t")
            kept = await home.create_queue("kept", transactional=True)
            try:
                async with lanner.aio.distributed(home, {"far": far}) as unit:
                    got = await t.receive(timeout=0, transaction=unit)
                    await kept.send(got.body, transaction=unit)
                    cursor = t.cursor()
                    assert (await cursor.receive(timeout=0, transaction=unit)).body == b"two"
                    await t.move(ids[2], "later", transaction=unit)
                    with pytest.raises(errors.UnsupportedOperation, match="sends to none"):
                        await t.send(b"x", transaction=unit)
                    with site.manager() as manager:
                        assert manager.open("t").count() == 3
                    if outcome == "abort":
                        raise KeyError
            except KeyError:
                pass
            with site.manager() as manager:
                bodies = [one.body for one in manager.open("t")]
                later = [one.body for one in manager.open("t").subqueue("later")]
            if outcome == "commit":
                assert (bodies, later, await kept.count()) == ([], [b"three"], 1)
            else:
                assert (bodies, later, await kept.count()) == ([b"one", b"two", b"three"], [], 0)
        site.check()


@pytest.mark.spec("MQRR-3.2.4.2-5")
@in_a_loop
async def test_a_computer_that_refuses_the_token(tmp_path: Path) -> None:
    """As one with Windows must be expected to."""
    other = OtherManager(tmp_path / "data")
    calls: list[str] = []
    methods = other.mqrr._methods
    for number, found in enumerate(methods):
        if found is None:
            continue
        method, handler = found

        def watching(call: Any, *, _name: str = method.name, _handler: Any = handler, **arguments: Any) -> Any:
            calls.append(_name)
            if _name == "R_QMEnlistRemoteTransaction":
                assert unpack_token(bytes(arguments["pb_propagation_token"])) is not None
                return errors.DtcConnect.status
            return _handler(call, **arguments)

        methods[number] = (method, watching)
    try:
        other.serve_everything(reads_by="mqrr")
        async with (
            coordinator(tmp_path) as home,
            await lanner.aio.connect(other.address, "alice", "secret", port=PORT) as far,
        ):
            t = await far.create_queue(r".\private$\t", transactional=True)
            with pytest.raises(errors.DtcConnect):
                async with lanner.aio.distributed(home, {"far": far}) as unit:
                    await t.receive(timeout=0, transaction=unit)
        assert "R_QMEnlistRemoteTransaction" in calls
        assert not {"R_StartTransactionalReceive", "R_MoveMessage"} & set(calls)
    finally:
        other.close()


@pytest.mark.spec("MQRR-2.2.8-1")
def test_internal_transactions_have_fresh_identifiers() -> None:
    made = [MsmqTransaction(None).identifier for _ in range(100)]  # type: ignore[arg-type] # never used
    assert len(set(made)) == 100
    assert {one.version for one in made} == {4}


def test_a_token_is_its_documented_octets() -> None:
    branch = Branch(uuid.UUID(int=1), uuid.UUID(int=0x01020304_0506_0708_0900_0A0B0C0D0E0F), "far")
    octets = pack_token(branch)
    assert unpack_token(b"") is None
    assert octets == b"LNR1" + branch.coordinator.bytes_le + branch.transaction.bytes_le + b"\x03far"
    assert unpack_token(octets) == branch
