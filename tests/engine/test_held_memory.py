"""Limits on one user's locks: unacknowledged receives, and open transactions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lanner
from lanner.client.runtimes import runtime_of
from lanner.engine import Engine
from lanner.engine.held_memory import HELD_OVERHEAD
from lanner.model.errors import InsufficientResources
from lanner.rpc.async_client import connect_unix
from lanner.rpc.interface import RETURNS
from lanner.security.identity import SYSTEM
from lanner.services.interfaces.lanner import LANNER, LANNER_CALL, LANNER_OPEN_SESSION, pack_frame
from tests.client.peers import free_address
from tests.client.served import ServedManager

MIB = 1 << 20


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[lanner.QueueManager]:
    with lanner.QueueManager(tmp_path / "data") as manager:
        engine_of(manager).held_memory.limit = 3 * MIB
        manager.create_queue("taken")
        manager.create_queue("ledger", transactional=True)
        yield manager


def engine_of(manager: lanner.QueueManager) -> Engine:
    return runtime_of(manager).engine


def held(manager: lanner.QueueManager) -> int:
    return engine_of(manager).held_memory.used(SYSTEM.sid.pack())


def test_sends_of_an_open_transaction_are_bounded(manager: lanner.QueueManager) -> None:
    ledger = manager.open("ledger")
    with pytest.raises(InsufficientResources, match="in open tr"), manager.transaction() as transaction:  # noqa: PT012
        for _ in range(4):
            ledger.send(bytes(MIB), transaction=transaction)
    assert held(manager) == 0
    with manager.transaction() as transaction:
        ledger.send(bytes(MIB), transaction=transaction)
        assert held(manager) > MIB
    assert held(manager) == 0


def test_small_messages_take_more_than_their_packets(manager: lanner.QueueManager) -> None:
    """However they come: the end of a transaction releases all of its messages at once."""
    ledger, many = manager.open("ledger"), 50
    with manager.transaction() as transaction:
        ledger.send(b"1", transaction=transaction)
        one = held(manager)
        assert one > HELD_OVERHEAD
        ledger.send_many([lanner.Message(body=b"1") for _ in range(many - 1)], transaction=transaction)
        assert held(manager) == many * one
    assert held(manager) == 0
    with manager.transaction() as transaction:
        ledger.receive(timeout=0, transaction=transaction)
        assert len(ledger.receive_many(many, timeout=0, transaction=transaction)) == many - 1
        assert held(manager) == many * one
    assert held(manager) == 0


def test_receives_of_an_open_transaction_are_bounded(manager: lanner.QueueManager) -> None:
    ledger = manager.open("ledger")
    for _ in range(4):
        with manager.transaction() as transaction:
            ledger.send(bytes(MIB), transaction=transaction)
    with pytest.raises(InsufficientResources, match="in open tr"), manager.transaction() as transaction:  # noqa: PT012
        for _ in range(4):
            ledger.receive(timeout=0, transaction=transaction)
    assert held(manager) == 0
    assert ledger.count() == 4


def test_a_wait_ends_when_its_user_has_too_much(manager: lanner.QueueManager) -> None:
    """The message stays for another reader."""
    taken, ledger = manager.open("taken"), manager.open("ledger")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            taken.receive(timeout=30)
        except InsufficientResources as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    engine = engine_of(manager)
    while not any(queue.waiting_reads for queue in engine.queue_manager.queue_collection.values()):
        pass
    with manager.transaction() as transaction:
        for _ in range(3):
            ledger.send(bytes(MIB), transaction=transaction)
        taken.send(b"for the next one")
        waiting.join(20)
        assert len(errors) == 1
    assert taken.receive(timeout=0).body == b"for the next one"


def test_removed_messages_that_may_be_put_back_are_bounded(tmp_path: Path) -> None:
    """A client that never says that it has the answer."""

    async def main(served: ServedManager) -> None:
        memory, holder = served.engine.held_memory, SYSTEM.sid.pack()
        async with await connect_unix(served.data / "lanner.sock") as client:
            bound = await client.bind(LANNER)
            session = (await bound.call(LANNER_OPEN_SESSION))["session"]

            async def call(request: str, body: bytes = b"", **more: object) -> int:
                frame = pack_frame({"request": request, **more}, body)
                answer: Any = await bound.call(LANNER_CALL, session=session, size=len(frame), request=frame)
                status: int = answer[RETURNS]
                return status

            name = r"DIRECT=OS:.\private$\taken"
            assert await call("create queue", path=r".\private$\taken", attributes={}) == 0
            assert await call("open", queue=1, access="send", name=name) == 0
            assert await call("open", queue=2, access="receive", name=name) == 0
            for number in range(1, 9):
                assert await call("send", bytes(MIB), queue=1, messages=[{"size": MIB}]) == 0
                assert await call("receive", queue=2, read=number, count=1, timeout=0) == 0
                assert await call("end", reads=[number], remove=True) == 0
                assert memory.used(holder) <= 4 * MIB
            assert memory.used(holder) > MIB
            # The last one can still be put back.
            assert await call("end", reads=[8], remove=False) == 0
            assert await call("receive", queue=2, read=9, count=1, timeout=0) == 0

    with contextlib.closing(ServedManager(tmp_path / "data", free_address())) as served:
        served.engine.held_memory.limit = 3 * MIB
        asyncio.run(main(served))
