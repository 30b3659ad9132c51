"""Hostile COM clients beside a well-behaved one that continues to work.

The attacks are malformed calls, references that belong to others, and floods.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from lanner.com.client.client import ComClient
from lanner.com.constants import (
    ERROR_OUTOFMEMORY,
    IID_IDISPATCH,
    IID_IUNKNOWN,
    OR_INVALID_OID,
    OR_INVALID_SET,
    OR_OK,
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_OBJECT,
)
from lanner.com.interfaces import (
    COMPLEX_PING,
    IOBJECTEXPORTER,
    REM_ADD_REF,
    REM_QUERY_INTERFACE,
    REM_RELEASE,
    RemInterfaceRef,
)
from lanner.com.known_classes import CLASSES
from lanner.com.objects import ComError
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from tests.adversity.com_world import HOST, RECEIVE, SEND, RecordedCalls, Script, World, until, world
from tests.adversity.rpc_mutator import Mutator
from tests.rpc.loops import run

# A call that is wrong may be one that waits for a message.
PATIENCE: Final = 0.1  # seconds
ORPCTHIS_SIZE: Final = 32


async def ordinary_work(script: Script) -> None:
    """Do the work of a well-behaved client, which attackers then distort."""
    info = await script.prepare()
    await info.query_interface(IID_IUNKNOWN)
    sending = await script.call(info, "Open", SEND, 0)
    message = await script.create("MSMQMessage")
    await script.put(message, "Label", "label")
    await script.put(message, "Priority", 5)
    for body in ("text", b"octets", 5, (1, "two", b"three"), 1.5):
        with contextlib.suppress(ComError):
            await script.put(message, "Body", body)
    await script.put(message, "Body", "text")
    await script.put(message, "ResponseQueueInfo", info)
    await script.call(message, "Send", sending, 0)
    reading = await script.call(info, "Open", RECEIVE, 0)
    assert await script.call(reading, "Peek", ReceiveTimeout=1000) is not None
    received = await script.call(reading, "Receive", ReceiveTimeout=1000)
    assert await script.call(received, "Label") == "label"
    dispenser = await script.create("MSMQTransactionDispenser")
    transaction = await script.call(dispenser, "BeginTransaction")
    await script.call(transaction, "Abort")
    collection = await script.create("MSMQCollection")
    assert await script.call(collection, "Count") == 0


async def attacked(folder: Path, harm: Callable[[World, ComClient], Awaitable[None]]) -> None:
    async with world(folder) as made:
        await made.make_queue(is_transactional=False)
        async with made.client() as enemy:
            await harm(made, enemy)
        # A friend comes, and everything is as it was, but for messages.
        async with made.client() as friend:
            script = Script(friend)
            reading = await script.call(await script.prepare(), "Open", RECEIVE, 0)
            await script.call(reading, "Purge")
            await ordinary_work(script)
        made.wait_for_pings()
        await until(lambda: not made.com.exporter.objects)
        assert (made.handles, made.transactions, made.com.pings.oids) == (0, 0, 0)


@pytest.mark.parametrize("seed", [6, *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 140)]])
def test_calls_that_are_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    async def harm(made: World, enemy: ComClient) -> None:
        calls = enemy.calls
        enemy.calls = recorder = RecordedCalls(enemy)
        script = Script(enemy)
        await ordinary_work(script)
        chance, mutator = random.Random(seed), Mutator(seed)
        answered = 0
        for _ in range(600):
            exporter, iid, ipid, opnum, stub = chance.choice(recorder.recorded)
            # Most of the time what stands behind ORPCTHIS.
            start = 0 if chance.random() < 0.1 else ORPCTHIS_SIZE
            changed = stub[:start] + mutator.octets(stub[start:])
            if chance.random() < 0.05:
                opnum = chance.randrange(100)
            with contextlib.suppress(ComError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await calls.request(exporter, iid, ipid, opnum, changed)
                answered += 1
        assert answered > 50
        assert len(made.com.exporter.objects) < 2000

    run(attacked(tmp_path, harm))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text


def test_interfaces_that_are_nobodys(tmp_path: Path) -> None:
    async def harm(made: World, enemy: ComClient) -> None:
        info = await enemy.activate(HOST, CLASSES["MSMQ.MSMQQueueInfo"], IID_IDISPATCH)
        exporter = info.held.exporter
        for _ in range(50):
            with pytest.raises(ComError) as refused:
                await enemy.calls.request(exporter, IID_IDISPATCH, uuid4(), 3, bytes(32))
            assert refused.value.hresult != 0
            with pytest.raises(ComError) as unknown:
                await enemy.calls.call_rem_unknown(
                    exporter,
                    REM_QUERY_INTERFACE,
                    {"ripid": uuid4(), "c_refs": 1, "c_iids": 1, "iids": (IID_IUNKNOWN,)},
                )
            assert unknown.value.hresult == RPC_E_INVALID_OBJECT
        # A count below zero is zero: the object is deleted and stays so.
        much = RemInterfaceRef(info.ipid, 0xFFFF_FFFF, 0xFFFF_FFFF)
        for _ in range(3):
            release = {"c_interface_refs": 2, "interface_refs": (much, RemInterfaceRef(uuid4(), 1, 1))}
            await enemy.calls.call_rem_unknown(exporter, REM_RELEASE, release)
        await until(lambda: not made.com.exporter.objects)
        with pytest.raises(ComError) as gone:
            await info.invoke_dispatch(1)
        assert gone.value.hresult == RPC_E_DISCONNECTED
        answer = await enemy.calls.call_rem_unknown(
            exporter, REM_ADD_REF, {"c_interface_refs": 1, "interface_refs": (much,)}
        )
        assert answer["p_results"] != (0,)

    run(attacked(tmp_path, harm))


def test_floods_of_pings(tmp_path: Path) -> None:
    """A flood of pings, each with its own set.

    They are rejected before they cost anything, and the objects of a well-behaved client survive.
    """

    async def harm(made: World, enemy: ComClient) -> None:
        info = await enemy.activate(HOST, CLASSES["MSMQ.MSMQQueueInfo"], IID_IDISPATCH)
        address = info.held.exporter.resolver.address
        assert address is not None
        told = []
        for number in range(300):
            added = (info.oid,) if number % 2 else (number + 1,) * 100
            answer = await enemy.calls.ask(
                address,
                AuthLevel.PKT_INTEGRITY,
                IOBJECTEXPORTER,
                COMPLEX_PING,
                {
                    "p_set_id": 0 if number % 3 else number,
                    "sequence_num": number,
                    "c_add_to_set": len(added),
                    "c_del_from_set": 0,
                    "add_to_set": added,
                    "del_from_set": None,
                },
            )
            told.append(answer[RETURNS])
        assert set(told) <= {OR_OK, OR_INVALID_SET, OR_INVALID_OID, ERROR_OUTOFMEMORY}
        assert ERROR_OUTOFMEMORY in told
        assert made.com.pings.sets <= 64

    run(attacked(tmp_path, harm))


def test_calls_that_wait_forever(tmp_path: Path) -> None:
    """Calls that wait forever count against their own caller.

    Other callers are served, and a wait ends when its client disconnects.
    """

    async def harm(made: World, enemy: ComClient) -> None:
        del made
        script = Script(enemy)
        reading = await script.call(await script.prepare(), "Open", RECEIVE, 0)
        calls = [script.call(reading, "Receive", ReceiveTimeout=-1) for _ in range(100)]
        waiting = [asyncio.ensure_future(each) for each in calls]
        assert not (await asyncio.wait(waiting, timeout=PATIENCE))[0]
        collection = await script.create("MSMQCollection")
        assert await script.call(collection, "Count") == 0
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)

    run(attacked(tmp_path, harm))
