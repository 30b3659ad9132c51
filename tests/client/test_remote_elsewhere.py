"""`lanner.connect` to queue managers that others made: without our own interface, and with qm2qm on a port of its own."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path

import pytest

import lanner
from lanner import errors
from lanner.client import remote
from lanner.client.runtime import Runtime, addresses_of, local_settings
from lanner.rpc.calls import ServerCall
from lanner.rpc.pdu import SyntaxId
from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.rpc.server import RawInterface, RpcServer, ServedInterface
from lanner.services.interfaces.lanner import LANNER, LANNER_WHO
from lanner.services.listener import LOCAL_SOCKET
from lanner.services.management import ManagementService
from lanner.services.ports import ServerPorts
from lanner.services.queue_client import QueueClient
from lanner.services.remote_queues import RemoteQueues
from lanner.services.remote_read import RemoteRead
from lanner.store.committer import Committer
from tests.cli.conftest import free_address
from tests.client.conftest import no_keys


class OtherManager:
    """A queue manager of the documents alone, each of whose interfaces is on the ports that a test wants."""

    def __init__(self, data: Path) -> None:
        self.address = free_address()
        settings = local_settings("alpha", local_addresses=addresses_of(self.address), public_keys=no_keys)
        self.runtime = Runtime(data, settings)
        self.runtime.users.add("alice", "secret", administrator=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        engine = self.runtime.engine
        self.ports = ServerPorts()
        self._committer = Committer(engine.store, self._loop)
        queues = RemoteQueues(engine, self._committer)
        self.queue_client = QueueClient(queues, self.ports).interfaces
        self.remote_read = RemoteRead(queues, self.ports).interface
        self.management = ManagementService(engine, self._committer, None)
        self._servers: list[RpcServer] = []

    def _run(self, work: Coroutine[object, object, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def serve(self, interfaces: Sequence[ServedInterface], port: int) -> RpcServer:
        users = self.runtime.users
        server = RpcServer(interfaces, users=users, providers=ServerSecurity(users, TargetNames("ALPHA", "ALPHA")))
        self._servers.append(server)
        self._run(server.listen_tcp(self.address, port, step=0))
        return server

    def serve_local(self, server: RpcServer, directory: Path) -> None:
        self._run(server.listen_unix(directory / LOCAL_SOCKET))

    def close(self) -> None:
        for server in self._servers:
            self._run(server.stop())
        self._committer.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.runtime.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OtherManager]:
    manager = OtherManager(tmp_path / "data")
    try:
        yield manager
    finally:
        manager.close()
        shutil.rmtree(tmp_path)


def send_and_receive(qm: remote.QueueManager) -> None:
    queue = qm.create_queue("orders")
    queue.send(lanner.Message(body="hello", recoverable=True))
    assert queue.peek(timeout=0).body == "hello"
    assert queue.receive(timeout=0).body == "hello"


@pytest.mark.parametrize("read_port", [2105, 2116])
def test_where_remote_reads_are_is_asked_for(other: OtherManager, read_port: int) -> None:
    """Where qmcomm has its port for itself it tells the port of qm2qm, which need not be 2105 (MS-MQMP 3.1.4.24)."""
    other.serve(other.queue_client, 2103)
    other.serve([other.remote_read], read_port)
    other.ports.ip_read = read_port
    with lanner.connect(other.address, "alice", "secret", port=2103) as qm:
        send_and_receive(qm)


def test_a_server_that_does_not_know_its_ports_reads_on_2105(other: OtherManager) -> None:
    other.serve(other.queue_client, 2103)
    other.serve([other.remote_read], 2105)
    with lanner.connect(other.address, "alice", "secret", port=2103) as qm:
        send_and_receive(qm)


def test_without_remote_reads_there_is_no_connection(other: OtherManager) -> None:
    other.serve(other.queue_client, 2103)
    with pytest.raises(errors.RemoteMachineNotAvailable, match="2105"):
        lanner.connect(other.address, "alice", "secret", port=2103)


def test_everything_of_the_documents_works_without_our_own_interface(other: OtherManager, tmp_path: Path) -> None:
    """Who connects by the socket is an administrator; what only we tell is refused by name."""
    server = other.serve([*other.queue_client, other.remote_read, other.management], 2103)
    other.serve_local(server, tmp_path)
    with lanner.connect(data=tmp_path) as qm:
        assert (qm.is_lanner, qm.identifier) == (False, None)
        send_and_receive(qm)
        qm.open(r"DIRECT=OS:beta\private$\far").send("far")
        assert r"ALPHA\private$\orders" in [queue.name for queue in qm.queues()]
        (outgoing,) = qm.outgoing()
        assert outgoing["name"].lower() == r"direct=os:beta\private$\far"
        qm.pause(outgoing["name"])
        with qm.transaction() as tx, pytest.raises(errors.TransactionUsage):
            qm.open("orders").send("not transactional", transaction=tx)
        with pytest.raises(errors.UnsupportedOperation, match="no Lanner"):
            qm.status()
        with pytest.raises(errors.IllegalOperation, match="tracing queue"):
            qm.open("orders").send(lanner.Message(tracing_queue="5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11"))
        with pytest.raises(errors.IllegalQueuePathname):
            qm.create_queue(r".\public")
        qm.delete_queue("orders")
        assert r"ALPHA\private$\orders" not in [queue.name for queue in qm.queues()]


def test_what_a_server_does_not_serve_is_told_and_costs_nothing_else(other: OtherManager) -> None:
    other.serve([*other.queue_client, other.remote_read], 2103)
    with lanner.connect(other.address, "alice", "secret", port=2103) as qm:
        queue = qm.create_queue("orders", transactional=True)
        with qm.transaction() as tx:
            queue.send("hello", transaction=tx)
            with pytest.raises(errors.UnsupportedOperation, match="does not serve"):
                qm.pause(r"DIRECT=OS:beta\private$\far")
        assert queue.receive(timeout=0).body == "hello"


def test_a_server_that_never_answers_is_given_up() -> None:
    """Somebody takes the connection, and says nothing."""
    with socket.create_server((free_address(), 0)) as silent:
        address, port = silent.getsockname()
        with pytest.raises(errors.RemoteMachineNotAvailable, match=r"did not answer in 0\.05 s"):
            lanner.connect(address, port=port, timeout=0.05)


def test_a_server_that_stops_answering_is_given_up(other: OtherManager) -> None:
    """It takes the binds, and then a call has no answer."""
    never: asyncio.Future[bytes] = asyncio.Future(loop=other._loop)
    asked = []

    def say_nothing(call: ServerCall) -> asyncio.Future[bytes]:
        asked.append(call)
        return never

    silent = RawInterface(SyntaxId(LANNER.uuid, *LANNER.version), {LANNER_WHO.opnum: say_nothing})
    other.serve([*other.queue_client, other.remote_read, silent], 2103)
    with pytest.raises(errors.RemoteMachineNotAvailable, match="did not answer"):
        lanner.connect(other.address, port=2103, timeout=0.5)
    assert len(asked) == 1
