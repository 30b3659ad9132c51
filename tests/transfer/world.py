"""Several queue managers and the network between them, in one thread, with one clock.

`World.run` lets everything happen that needs no time to pass; `World.tick` lets time pass.
Connections are pairs of byte streams that a test can cut, and watch.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from lanner.model.directory_objects import OutgoingQueue
from lanner.transfer.addresses import HopHost, NextHop, resolve_hosts
from lanner.transfer.link import Link
from lanner.transfer.network import Connection
from lanner.transfer.route import Route
from lanner.transfer.session import Session
from lanner.transfer.settings import TransferSettings
from lanner.transfer.tls import Certification
from lanner.transfer.transfer import Transfer
from lanner.wire.format_name import parse
from tests.engine.harness import START_TIME, Harness


class World:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.now = START_TIME
        self.nodes: dict[str, Node] = {}
        self.peers: dict[str, str] = {}
        self.connections: list[FakeConnection] = []
        # Addresses that currently refuse connections, with the error.
        self.unreachable: dict[str, int] = {}
        self.refuses_pings: set[str] = set()
        self._soon: deque[Callable[[], None]] = deque()

    def node(self, name: str, address: str, **settings: object) -> Node:
        self.peers[name] = self.peers[f"{name}.example.com"] = address
        node = Node(self, self._path / name, name, address, settings)
        self.nodes[address] = node
        return node

    def later(self, function: Callable[[], None]) -> None:
        self._soon.append(function)

    def run(self) -> None:
        """Until nothing more happens."""
        for _ in range(100_000):
            if not self._soon:
                return
            self._soon.popleft()()
        raise AssertionError("it never ends")

    def tick(self, seconds: float, step: float = 0.25) -> None:
        """Let time pass in steps, with everything that becomes due."""
        end = self.now + seconds
        self.run()
        while self.now < end:
            self.now = min(end, self.now + step)
            for node in list(self.nodes.values()):
                node.now = self.now
            for node in list(self.nodes.values()):
                if node.is_running:
                    node.engine.on_timer()
                    node.transfer.on_timer()
            self.run()

    def cut(self) -> None:
        """Break every connection."""
        for connection in list(self.connections):
            connection.cut()
        self.run()

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


class Node(Harness):
    """One queue manager with transfer."""

    def __init__(self, world: World, path: Path, name: str, address: str, settings: dict[str, object]) -> None:
        self.world = world
        self.address = address
        known = TransferSettings.__dataclass_fields__
        self._transfer_settings = {key: value for key, value in settings.items() if key in known}
        engine_settings: dict[str, Any] = {key: value for key, value in settings.items() if key not in known}
        self.is_running = False
        # A deaf node accepts connections and answers nothing.
        self.is_deaf = False
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, computer_name=name, local_addresses=frozenset({address}), **engine_settings)

    def start(self) -> None:
        super().start()
        self.now = self.world.now
        self.network = FakeNetwork(self)
        settings = replace(TransferSettings(peers=self.world.peers), **self._transfer_settings)  # type: ignore[arg-type] # the test's own choice
        self.transfer = Transfer(self.engine, settings, self.network)
        self.transfer.start()
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False
        self.transfer.stop()
        super().stop()

    def crash(self) -> None:
        """Crash like a killed process: its connections break, and unsynced data is lost."""
        self.is_running = False
        for connection in [one for one in self.world.connections if one.node is self]:
            connection.cut(tell_own_side=False)
        super().crash()

    def close(self) -> None:
        self.is_running = False
        super().close()

    def direct(self, queue: str) -> str:
        """A direct format name of a queue here."""
        return rf"DIRECT=TCP:{self.address}\private$\{queue}"

    def outgoing(self, name: str) -> OutgoingQueue:
        """The outgoing queue to a destination."""
        destination = str(parse(name))
        return next(queue for queue in self.engine.outgoing_queues() if queue.destination_format_name == destination)

    def route(self, name: str) -> Route:
        return self.transfer.routes[self.outgoing(name).number]

    @property
    def guid(self) -> UUID:
        return self.engine.queue_manager.identifier

    def commit_one(self, name: str, body: bytes, **properties: Any) -> None:  # noqa: ANN401 (of MessageProperties)
        """A transaction of one send."""
        transaction = self.begin()
        self.send(name, body, transaction=transaction, **properties)
        self.commit(transaction)


class FakeNetwork:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._world = node.world
        self._is_woken = False
        # False: the disk does not come to an end, and nothing becomes durable that transfer wants
        # to be.
        self.writes = True
        # False: the loop has no more turns.
        self.wakes = True
        # The attempts to connect, where a test makes them.
        self.attempts: list[Callable[[], None]] | None = None
        # What names are resolved to.
        self.hops: Callable[[list[HopHost]], list[NextHop] | OSError] = self._hops

    def _hops(self, hosts: list[HopHost]) -> list[NextHop] | OSError:
        try:
            return resolve_hosts(hosts, self._node.transfer.settings.peers)
        except OSError as error:
            return error

    def resolve(
        self, hosts: list[HopHost], done: Callable[[list[NextHop] | OSError], None], whose: str | None = None
    ) -> None:
        del whose
        found = self.hops(hosts)
        self._world.later(lambda: self._alive(lambda: done(found)))

    def ping(self, address: str, done: Callable[[bool], None]) -> None:
        is_welcome = address in self._world.nodes and address not in self._world.refuses_pings
        self._world.later(lambda: self._alive(lambda: done(is_welcome)))

    def connect(self, address: str, done: Callable[[Connection | OSError], None], *, over_tls: bool = False) -> None:
        assert not over_tls
        attempt = partial(self._alive, partial(self._connect, address, done))
        if self.attempts is None:
            self._world.later(attempt)
        else:
            self.attempts.append(attempt)

    def _connect(self, address: str, done: Callable[[Connection | OSError], None]) -> None:
        world = self._world
        peer = world.nodes.get(address)
        error = world.unreachable.get(address)
        if error is None and (peer is None or not peer.is_running):
            error = errno.ECONNREFUSED
        if error is not None or peer is None:
            number = error or errno.EHOSTUNREACH
            done(OSError(number, os.strerror(number)))
            return
        if not peer.transfer.accepts(self._node.address):
            done(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            return
        own, other = FakeConnection(self._node), FakeConnection(peer)
        own.peer, other.peer = other, own
        world.connections += (own, other)
        peer.transfer.accepted(other, self._node.address)
        done(own)

    def sync(self, ticket: int) -> None:
        del ticket
        if self.writes:
            self._world.later(lambda: self._alive(self._node.sync))

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any], None], whose: str | None = None) -> None:
        del whose
        result = work()
        self._world.later(lambda: self._alive(lambda: done(result)))

    def wake(self) -> None:
        if self.wakes and not self._is_woken:
            self._is_woken = True
            self._world.later(self._pump)

    def _pump(self) -> None:
        self._is_woken = False
        self._alive(self._node.transfer.pump)

    def _alive(self, function: Callable[[], None]) -> None:
        """A killed queue manager does nothing more; its successor gets a new network object."""
        if self._node.is_running and self._node.network is self:
            function()


class FakeConnection:
    peer: FakeConnection

    def __init__(self, node: Node) -> None:
        self.node = node
        self.link: Link | None = None
        self.certification: Certification | None = None
        self.sent: list[bytes] = []  # everything that was written, for tests that look
        self.is_closed = False
        self.is_reading = True
        self._network = node.network
        self._waiting: list[bytes] = []

    def write(self, data: list[bytes]) -> None:
        assert not self.is_closed
        joined = b"".join(data)
        self.sent.append(joined)
        self.peer.deliver(joined)

    def deliver(self, data: bytes) -> None:
        self._waiting.append(data)
        self.node.world.later(self._take)

    def _take(self) -> None:
        while self._waiting and self.is_reading and not self.is_closed and self._is_alive:
            data = self._waiting.pop(0)
            if self.link is not None and not self.link.is_closed and not self.node.is_deaf:
                self.node.transfer.data_received(self.link, data)

    @property
    def _is_alive(self) -> bool:
        return self.node.is_running and self.node.network is self._network

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.node.world.connections.remove(self)
            self.node.world.later(self.peer.lose)

    def lose(self) -> None:
        """The other side has closed: what it sent before is still read."""
        self._take()
        if not self.is_closed:
            self.is_closed = True
            self.node.world.connections.remove(self)
            if self.link is not None and not self.link.is_closed and self._is_alive:
                self.node.transfer.disconnected(self.link)

    def cut(self, *, tell_own_side: bool = True) -> None:
        """The cable breaks: what is on its way is lost."""
        for end in (self, self.peer):
            end._waiting.clear()
            if not end.is_closed:
                end.is_closed = True
                end.node.world.connections.remove(end)
                if end.link is not None and end._is_alive and (tell_own_side or end is not self):
                    end.node.transfer.disconnected(end.link)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True
        self.node.world.later(self._take)


class StrangeConnection(FakeConnection):
    """A connection of a peer that is no queue manager of this world.

    Received data goes into its session, if it has one.
    """

    def __init__(self, node: Node, session: Session | None = None) -> None:
        super().__init__(node)
        self._session = session

    def write(self, data: list[bytes]) -> None:
        if self._session is not None:
            self._session.receive(b"".join(data))

    def close(self) -> None:
        self.is_closed = True


def strange_session(node: Node, address: str, guid: UUID | None = None) -> tuple[Session, Link]:
    """Open a session of a peer that is no queue manager of this world."""
    session = Session.initiate(own_guid=guid or uuid4(), settings=TransferSettings(), monotonic=lambda: node.world.now)
    connection = StrangeConnection(node, session)
    node.transfer.accepted(connection, address)
    assert connection.link is not None
    while data := session.data_to_send():
        node.transfer.data_received(connection.link, b"".join(data))
    assert connection.link.is_open
    return session, connection.link
