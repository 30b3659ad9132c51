"""Open queues over sockets (MC-MQAC 3.11).

Covered: waits beside other calls, clients that disconnect, and the interfaces that calls return.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.activex.queue import MSMQQueue
from lanner.activex.tables import (
    IMSMQ_MESSAGE,
    IMSMQ_MESSAGE2,
    IMSMQ_MESSAGE3,
    IMSMQ_MESSAGE4,
    IMSMQ_QUEUE,
    IMSMQ_QUEUE2,
    IMSMQ_QUEUE3,
    IMSMQ_QUEUE4,
    IMSMQ_QUEUE_INFO,
    IMSMQ_QUEUE_INFO2,
    IMSMQ_QUEUE_INFO3,
    IMSMQ_QUEUE_INFO4,
    IMSMQ_TRANSACTION3,
    IMSMQ_TRANSACTION_DISPENSER,
    IMSMQ_TRANSACTION_DISPENSER2,
    IMSMQ_TRANSACTION_DISPENSER3,
    ITRANSACTION,
    MSMQ_MESSAGE,
    MSMQ_QUEUE_INFO,
    MSMQ_TRANSACTION_DISPENSER,
)
from lanner.com.automation.values import MISSING, Variant
from lanner.com.client.client import RemoteInterface
from lanner.com.constants import E_OUTOFMEMORY
from lanner.com.members import InterfaceTable
from lanner.com.objects import ComError
from lanner.com.server.holdings import HoldingLimits
from lanner.model.directory_objects import Queue
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.wire.vartypes import VT
from tests.activex.wire import HOST, Wire
from tests.activex.world import World
from tests.com.toys import USER
from tests.engine.harness import OPEN_TO_ALL

NOW = Variant(VT.I4, 0)
RECEIVE_NOW = (MISSING, MISSING, MISSING, NOW, MISSING)
FOR_EVER = (MISSING,) * 5


@pytest.fixture
def wire(world: World, tmp_path: Path) -> Iterator[Wire]:
    made = Wire(world, tmp_path)
    yield made
    made.close()


@pytest.fixture
def q(world: World) -> Queue:
    with world.held() as h:
        return h.create("q", security=OPEN_TO_ALL)


def info(wire: Wire, table: InterfaceTable = IMSMQ_QUEUE_INFO4) -> RemoteInterface:
    made = wire.create(MSMQ_QUEUE_INFO.clsid, table)
    wire.call(made, table, "put_path_name", r".\private$\q")
    return made


def opened(wire: Wire, access: int = 1) -> RemoteInterface:
    queue: RemoteInterface = wire.call(info(wire), IMSMQ_QUEUE_INFO4, "open", access, 0)
    return queue


def send(world: World, *bodies: bytes) -> None:
    with world.held() as h:
        for body in bodies:
            h.send(body=body)


def bodies(world: World) -> list[bytes]:
    with world.held() as h:
        return h.bodies()


def body(wire: Wire, message: RemoteInterface) -> Any:  # noqa: ANN401 (as it was sent)
    return wire.call(message, IMSMQ_MESSAGE4, "get_body").value


def later(world: World, queue: RemoteInterface, name: str, *arguments: object) -> asyncio.Task[Any]:
    """A call that waits, at the server, when this returns."""
    member = next(member for member in IMSMQ_QUEUE4.members if member.python == name)
    task = world.loop.create_task(queue.call(member, *arguments))
    until(world, lambda: bool(find(world).waiting_reads))
    return task


def find(world: World) -> Queue:
    with world.held() as h:
        return h.queue()


def until(world: World, condition: Callable[[], bool]) -> None:
    """Run both sides until the server has reached a state."""

    async def wait() -> None:
        while not condition():  # noqa: ASYNC110 (nobody there tells)
            await asyncio.sleep(0.001)

    world.run(asyncio.wait_for(wait(), 20))


@pytest.mark.spec("MQAC-3.11.4.1.14-16")
def test_a_wait_blocks_nothing_but_itself(world: World, wire: Wire, q: Queue) -> None:
    """Other calls continue, both on the same object (and so the same connection) and on others."""
    queue, other = opened(wire), opened(wire)
    task = later(world, queue, "receive", *FOR_EVER)
    assert wire.call(queue, IMSMQ_QUEUE4, "get_is_open2") is True
    assert wire.call(queue, IMSMQ_QUEUE4, "receive", *RECEIVE_NOW) is None
    assert wire.call(other, IMSMQ_QUEUE4, "peek", MISSING, MISSING, NOW, MISSING) is None
    assert not task.done()
    send(world, b"1")
    (message,) = world.run(asyncio.wait_for(task, 20))
    assert body(wire, message) == b"1"
    assert bodies(world) == []


def test_a_call_that_is_given_up_takes_no_message(world: World, wire: Wire, q: Queue) -> None:
    queue = opened(wire)
    task = later(world, queue, "receive", *FOR_EVER)
    task.cancel()
    until(world, lambda: not find(world).waiting_reads)
    send(world, b"1")
    message = wire.call(queue, IMSMQ_QUEUE4, "receive", *RECEIVE_NOW)
    assert body(wire, message) == b"1"


def test_a_client_that_goes_takes_no_message(world: World, wire: Wire, q: Queue) -> None:
    queue = opened(wire)
    task = later(world, queue, "receive", *FOR_EVER)
    world.run(wire.client.close())
    until(world, lambda: not find(world).waiting_reads)
    send(world, b"1")
    world.run_ready()
    assert bodies(world) == [b"1"]
    assert isinstance(task.exception(), ComError) or task.cancelled()


def test_an_object_that_is_given_back_closes_its_queue(world: World, wire: Wire, q: Queue) -> None:
    queue = opened(wire)
    assert len(q.open_queue_descriptors) == 1
    queue.release()
    until(world, lambda: not find(world).open_queue_descriptors)
    assert not [thing for thing in wire.objects if isinstance(thing, MSMQQueue)]


@pytest.mark.spec("MQAC-3.11.4.1.3-1", "MQAC-3.11.4-4")
def test_queue_info_is_the_same_object(wire: Wire, q: Queue) -> None:
    made = info(wire)
    queue = wire.call(made, IMSMQ_QUEUE_INFO4, "open", 1, 0)
    tables = (
        (IMSMQ_QUEUE, IMSMQ_QUEUE_INFO),
        (IMSMQ_QUEUE2, IMSMQ_QUEUE_INFO2),
        (IMSMQ_QUEUE3, IMSMQ_QUEUE_INFO3),
        (IMSMQ_QUEUE4, IMSMQ_QUEUE_INFO4),
    )
    for table, returned in tables:
        found = wire.call(wire.query(queue, table), table, "get_queue_info")
        assert found.is_same_object(made)
        assert found.iid == returned.iid


@pytest.mark.spec("MQAC-3.11.4-3", "MQAC-3.10.4-1")
def test_what_comes_back_is_of_the_same_revision(world: World, wire: Wire, q: Queue) -> None:
    revisions = (
        (IMSMQ_QUEUE_INFO, IMSMQ_QUEUE, IMSMQ_MESSAGE),
        (IMSMQ_QUEUE_INFO2, IMSMQ_QUEUE2, IMSMQ_MESSAGE2),
        (IMSMQ_QUEUE_INFO3, IMSMQ_QUEUE3, IMSMQ_MESSAGE3),
        (IMSMQ_QUEUE_INFO4, IMSMQ_QUEUE4, IMSMQ_MESSAGE4),
    )
    send(world, b"1", b"2", b"3", b"4", b"5", b"6", b"7")
    for info_table, table, message_table in revisions:
        queue = wire.call(info(wire, info_table), info_table, "open", 1, 0)
        assert queue.iid == table.iid
        arguments = RECEIVE_NOW[:4] if table is IMSMQ_QUEUE else RECEIVE_NOW
        assert wire.call(queue, table, "receive", *arguments).iid == message_table.iid
        if table is not IMSMQ_QUEUE:
            assert wire.call(queue, table, "receive_v1", *RECEIVE_NOW[:4]).iid == IMSMQ_MESSAGE.iid


@pytest.mark.spec("MQAC-3.11.4.1.14-3", "MQAC-3.8.4.1-1", "MQAC-3.6.4-1")
def test_a_transaction_passed_over_the_wire(world: World, wire: Wire, q: Queue) -> None:
    """The client ends the transaction through MSMQTransaction.

    The transaction object behind it accepts no calls.
    """
    send(world, b"1")
    queue = opened(wire)
    for table in (IMSMQ_TRANSACTION_DISPENSER, IMSMQ_TRANSACTION_DISPENSER2, IMSMQ_TRANSACTION_DISPENSER3):
        dispenser = wire.create(MSMQ_TRANSACTION_DISPENSER.clsid, table)
        transaction = wire.query(wire.call(dispenser, table, "begin_transaction"), IMSMQ_TRANSACTION3)
        argument = Variant(VT.DISPATCH, transaction)
        message = wire.call(queue, IMSMQ_QUEUE4, "receive", argument, *RECEIVE_NOW[1:])
        assert body(wire, message) == b"1"
        assert bodies(world) == []
        wire.call(transaction, IMSMQ_TRANSACTION3, "abort", MISSING, MISSING)
        assert bodies(world) == [b"1"]
    inner = wire.query(wire.call(transaction, IMSMQ_TRANSACTION3, "get_i_transaction").value, ITRANSACTION)
    with pytest.raises(ComError) as caught:
        wire.call(inner, ITRANSACTION, "commit", 0, 2, 0)
    fault = caught.value.__cause__
    assert isinstance(fault, RpcFault)
    assert (fault.status, fault.did_not_execute) == (FaultStatus.NCA_OP_RNG_ERROR, True)


def test_a_transaction_that_its_client_forgot_is_aborted(world: World, wire: Wire, q: Queue) -> None:
    send(world, b"1")
    queue = opened(wire)
    dispenser = wire.create(MSMQ_TRANSACTION_DISPENSER.clsid, IMSMQ_TRANSACTION_DISPENSER3)
    transaction = wire.call(dispenser, IMSMQ_TRANSACTION_DISPENSER3, "begin_transaction")
    wire.call(queue, IMSMQ_QUEUE4, "receive", Variant(VT.DISPATCH, transaction), *RECEIVE_NOW[1:])
    assert bodies(world) == []
    transaction.release()
    until(world, lambda: bodies(world) == [b"1"])


@pytest.mark.parametrize("member", ["receive", "receive_first_by_lookup_id"])
def test_who_can_hold_no_more_takes_no_message(world: World, wire: Wire, q: Queue, member: str) -> None:
    """A message that its reader cannot be given would be lost."""
    send(world, b"1")
    queue = opened(wire)
    holdings = wire.server.com.exporter.holdings
    holdings.limits = HoldingLimits(max_objects=holdings.objects)
    arguments = RECEIVE_NOW if member == "receive" else RECEIVE_NOW[:4]
    with pytest.raises(ComError) as refused:
        wire.call(queue, IMSMQ_QUEUE4, member, *arguments)
    assert refused.value.hresult == E_OUTOFMEMORY
    holdings.limits = HoldingLimits()
    assert body(wire, wire.call(queue, IMSMQ_QUEUE4, member, *arguments)) == b"1"
    assert bodies(world) == []


def test_contents_of_objects_are_counted(world: World, wire: Wire, q: Queue) -> None:
    """The budget counts the contents of objects until they are released.

    These are bodies that clients set, bodies of received messages, and names.
    """
    holdings = wire.server.com.exporter.holdings
    message = wire.create(MSMQ_MESSAGE.clsid, IMSMQ_MESSAGE4)
    wire.call(message, IMSMQ_MESSAGE4, "put_body", Variant(VT.ARRAY | VT.UI1, bytes(50_000)))
    assert 50_000 <= holdings.octets < 51_000
    queue_info = info(wire)
    wire.call(queue_info, IMSMQ_QUEUE_INFO4, "put_label", "x" * 70_000)
    assert 120_000 <= holdings.octets < 121_000
    send(world, bytes(30_000))
    received = wire.call(opened(wire), IMSMQ_QUEUE4, "receive", *RECEIVE_NOW)
    assert 150_000 <= holdings.octets < 151_000
    for each in (message, received, queue_info):
        each.release()
    until(world, lambda: holdings.octets < 1000)


def test_changes_over_the_wire_are_in_the_audit_log(
    world: World, wire: Wire, q: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the user and the address through DCOM too."""
    with world.held() as h:
        h.send(body=b"x")
    made = info(wire)
    opened = wire.call(made, IMSMQ_QUEUE_INFO4, "open", 1, 0)
    with caplog.at_level(logging.INFO, "lanner.audit"):
        wire.call(opened, IMSMQ_QUEUE4, "purge")
        wire.call(made, IMSMQ_QUEUE_INFO4, "delete")
    purged, deleted = (json.loads(one.getMessage()) for one in caplog.records if one.name == "lanner.audit")
    assert (purged["event"], purged["messages"]) == ("purge queue", 1)
    assert (deleted["event"], deleted["outcome"]) == ("delete queue", "done")
    for record in (purged, deleted):
        assert (record["who"], record["from"], record["queue"]) == (USER, HOST, q.pathname)
