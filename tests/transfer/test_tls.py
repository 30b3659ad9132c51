"""Two and three queue managers over TLS, on loopback addresses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.transfer.link import Link
from lanner.transfer.peers import Peer
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener
from lanner.transfer.tls import TlsSettingsError, load_identity
from tests.cli.conftest import free_address
from tests.transfer.tls_files import Issued, authority, issue

PORT, TLS_PORT = 21803, 21804
QUICK: dict[str, object] = {"try_connect_interval": 0.1, "order_ack_timeout": 0.1, "port": PORT, "tls_port": TLS_PORT}


class Manager:
    """A queue manager with a listener, whose certificate and peers a test chooses once it knows everybody's identifier."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.address = free_address()
        self.manager = QueueManager(path / name, name)
        self.queue = self.manager.create_queue("q")
        self.ordered = self.manager.create_queue("t", transactional=True)
        self.guid = runtime_of(self.manager).engine.queue_manager.identifier
        self.listener: TransferListener | None = None

    def peer(self, certificate: Path | None = None, **other: Any) -> Peer:  # noqa: ANN401 (of Peer)
        return Peer(self.name, other.pop("addresses", (self.address,)), certificate=certificate, **other)

    def settings(self, *peers: Peer, **settings: object) -> TransferSettings:
        return TransferSettings(**{**QUICK, **settings, "peers": {peer.name: peer for peer in peers}})  # type: ignore[arg-type]

    @asynccontextmanager
    async def listening(self, *peers: Peer, **settings: object) -> AsyncIterator[Manager]:
        engine = runtime_of(self.manager).engine
        listener = TransferListener(engine, self.address, self.settings(*peers, **settings))
        await listener.start()
        self.listener = listener
        try:
            yield self
        finally:
            await listener.stop()

    def send(self, to: str, *bodies: str, queue: str = "q", recoverable: bool = False, host: str = "OS") -> None:
        target = self.manager.open(rf"DIRECT={host}:{to}\private$\{queue}")
        if queue == "t":
            with self.manager.transaction() as transaction:
                for body in bodies:
                    target.send(Message(body=body), transaction=transaction)
        else:
            for body in bodies:
                target.send(Message(body=body, recoverable=recoverable))

    @property
    def links(self) -> list[Link]:
        assert self.listener is not None
        return list(self.listener.transfer.links.values())

    @property
    def problem(self) -> str:
        assert self.listener is not None
        return "; ".join(route.problem for route in self.listener.transfer.routes.values())

    @property
    def waiting(self) -> int:
        return sum(queue.message_count for queue in runtime_of(self.manager).engine.outgoing_queues())


class Pair:
    """Alpha and beta, gamma if a test wants it, and a folder for certificates."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.alpha, self.beta, self.gamma = (Manager(path, name) for name in ("ALPHA", "BETA", "GAMMA"))

    def issue(self, manager: Manager, **options: Any) -> Issued:  # noqa: ANN401 (of issue)
        return issue(self.path / "tls", manager.name, guid=options.pop("guid", manager.guid), **options)

    def close(self) -> None:
        for one in (self.alpha, self.beta, self.gamma):
            one.manager.close()


@pytest.fixture
def pair(tmp_path: Path) -> Any:  # noqa: ANN401 (a generator)
    made = Pair(tmp_path)
    yield made
    made.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (the condition is in other threads)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_messages_of_every_kind_pass_both_ways_over_tls(pair: Pair, run: Callable[..., None]) -> None:
    alpha, beta = pair.alpha, pair.beta
    a, b = pair.issue(alpha), pair.issue(beta)

    async def main() -> None:
        async with (
            alpha.listening(beta.peer(b.certificate_file, guid=beta.guid), **a.settings),
            beta.listening(alpha.peer(a.certificate_file, guid=alpha.guid), **b.settings),
        ):
            alpha.send("BETA", "express", "large" * 100_000)
            alpha.send("BETA", "recoverable", recoverable=True)
            alpha.send("BETA", *map(str, range(100)), queue="t")
            await until(lambda: beta.queue.count() == 3 and beta.ordered.count() == 100)
            await until(lambda: not alpha.waiting)
            beta.send("ALPHA", "back")
            await until(lambda: alpha.queue.count() == 1)
            for one, other in ((alpha, "BETA"), (beta, "ALPHA")):
                assert one.links
                for link in one.links:
                    assert link.certified_peer is not None
                    assert link.certified_peer.name == other

    run(main())
    assert [message.body for message in beta.ordered] == [str(number) for number in range(100)]
    assert beta.queue.receive().body == "express"
