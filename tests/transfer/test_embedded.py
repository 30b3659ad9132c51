"""A program that embeds a queue manager is a computer of the network.

It receives and sends messages.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import lanner.aio
from lanner.client import Message, QueueManager, Sender
from lanner.client.runtimes import runtime_of, transfer_of
from lanner.host.addresses import addresses_of
from lanner.model.errors import InvalidParameter, ServiceNotAvailable
from tests.client.conftest import no_keys
from tests.client.peers import PORT, SETTINGS, free_address

Start = Callable[..., QueueManager]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lanner")]


def test_transactional_messages_go_both_ways(start: Start) -> None:
    addresses = {"ALPHA": free_address(), "BETA": free_address()}
    managers = {name: start(name, name, bind=address, transfer=SETTINGS) for name, address in addresses.items()}
    queues = {name: manager.create_queue("tx", transactional=True) for name, manager in managers.items()}
    for name, other in (("ALPHA", "BETA"), ("BETA", "ALPHA")):
        manager = managers[name]
        there = manager.open(rf"DIRECT=TCP:{addresses[other]}\private$\tx")
        for number in range(0, 100, 5):
            with manager.transaction() as transaction:
                for each in range(number, number + 5):
                    there.send(f"{name} {each}", transaction=transaction)
    for name, other in (("ALPHA", "BETA"), ("BETA", "ALPHA")):
        received = [queues[name].receive(30) for _ in range(100)]
        assert [message.body for message in received] == [f"{other} {number}" for number in range(100)]
        assert all(message.is_transactional for message in received)
        assert received[0].is_first_in_transaction
        assert received[4].is_last_in_transaction
        assert not queues[name].receive_many(1)


def test_what_waits_leaves_when_the_other_computer_comes(start: Start) -> None:
    address = free_address()
    beta = start("BETA", "beta")
    beta.create_queue("orders")
    beta.close()
    alpha = start("ALPHA", bind=free_address(), transfer=SETTINGS)
    alpha.open(rf"DIRECT=TCP:{address}\private$\orders").send(Message(body="x", recoverable=True))
    beta = start("BETA", "beta", bind=address, transfer=SETTINGS)
    assert beta.open("orders").receive(30).body == "x"


def test_what_was_left_leaves_after_a_restart(start: Start) -> None:
    """Without `bind` messages for others wait, as they always did."""
    address = free_address()
    alpha = start("ALPHA")
    assert transfer_of(alpha) is None
    alpha.open(rf"DIRECT=TCP:{address}\private$\orders").send(Message(body="x", recoverable=True))
    alpha.close()
    queue = start("BETA", "beta", bind=address, transfer=SETTINGS).create_queue("orders")
    alpha = start("ALPHA", bind=free_address(), transfer=SETTINGS)
    assert queue.receive(30).body == "x"


def test_close_lets_go_of_address_and_threads(start: Start) -> None:
    address = free_address()
    before = threads()
    for _ in range(2):
        manager = start("ALPHA", bind=address, transfer=SETTINGS)
        transfer = transfer_of(manager)
        assert transfer is not None
        assert transfer.address == f"{address}:{PORT}"
        assert "lanner-transfer" in threads()
        with Sender(address, port=PORT) as sender:
            sender.send("missing", "x")
            manager.close()
        manager.close()
        assert threads() == before


def test_any_free_port(start: Start) -> None:
    manager = start("ALPHA", bind=free_address(), transfer=lanner.TransferSettings(port=0))
    transfer = transfer_of(manager)
    assert transfer is not None
    host, _, port = transfer.address.partition(":")
    with Sender(host, port=int(port)) as sender:
        assert sender.remote_guid == runtime_of(manager).engine.queue_manager.identifier
    with runtime_of(manager).lock:
        assert transfer.transfer.engine is runtime_of(manager).engine


def test_an_address_in_use(start: Start) -> None:
    address = free_address()
    before = threads()
    with (
        socket.create_server((address, PORT)),
        pytest.raises(ServiceNotAvailable, match=rf"{address}:{PORT} is in use.*another address with bind"),
    ):
        start("ALPHA", bind=address, transfer=SETTINGS)
    assert threads() == before
    start("ALPHA", bind=address, transfer=SETTINGS)  # the data directory is free as well


@pytest.mark.parametrize(
    ("bind", "complaint"),
    [
        ("192.0.2.1", "192.0.2.1 is no address of this machine: `ip address`"),
        ("example", "bind 'example' is no address; .* such as 127.0.0.2"),
    ],
)
def test_an_address_that_is_not_ours(start: Start, bind: str, complaint: str) -> None:
    with pytest.raises(InvalidParameter, match=complaint):
        start("ALPHA", bind=bind, transfer=SETTINGS)
    start("ALPHA")


def test_transfer_settings_need_an_address(start: Start) -> None:
    with pytest.raises(InvalidParameter, match="give bind"):
        start("ALPHA", transfer=SETTINGS)


def test_several_queue_managers_on_one_machine_differ_in_their_addresses(start: Start) -> None:
    address = free_address()
    alpha = start("ALPHA", bind=address, transfer=SETTINGS)
    assert runtime_of(alpha).engine.settings.local_addresses == addresses_of(address) == {address}
    assert "127.0.0.1" in runtime_of(start("BETA", "beta")).engine.settings.local_addresses
    other = start("GAMMA", "gamma", bind=free_address(), transfer=SETTINGS, local_addresses=frozenset({"gamma.test"}))
    assert runtime_of(other).engine.settings.local_addresses == {"gamma.test"}


def test_the_awaitable_queue_manager_transfers_too(tmp_path: Path) -> None:
    addresses = [free_address(), free_address()]
    before = threads()

    async def main() -> None:
        async with (
            lanner.aio.QueueManager(
                tmp_path / "a", "ALPHA", bind=addresses[0], transfer=SETTINGS, public_keys=no_keys
            ) as alpha,
            lanner.aio.QueueManager(
                tmp_path / "b", "BETA", bind=addresses[1], transfer=SETTINGS, public_keys=no_keys
            ) as beta,
        ):
            queue = await beta.create_queue("orders")
            there = alpha.open(rf"DIRECT=TCP:{addresses[1]}\private$\orders")
            await there.send_many(Message(body=b"%d" % number, recoverable=True) for number in range(100))
            assert [(await queue.receive(30)).body for _ in range(100)] == [b"%d" % number for number in range(100)]
            with pytest.raises(ServiceNotAvailable, match="is in use"):
                async with lanner.aio.QueueManager(
                    tmp_path / "c", "GAMMA", bind=addresses[1], transfer=SETTINGS, public_keys=no_keys
                ):
                    pass

    asyncio.run(main())
    assert threads() == before


@pytest.mark.spec("DMPR-3.1.1.1-7")
def test_hardened_nobody_listens(start: Start) -> None:
    """MS-MQDMPR 3.1.1.1 HardenedSecurity: no transfer over non-HTTP protocols."""
    address = free_address()
    manager = start(bind=address, transfer=SETTINGS, hardened_security=True)
    assert transfer_of(manager) is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, PORT), 30)
