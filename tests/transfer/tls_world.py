"""Queue managers that use TLS with each other on loopback addresses, and attackers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.transfer.embedded import EmbeddedTransfer
from lanner.transfer.events import SessionClosed
from lanner.transfer.link import Link
from lanner.transfer.peers import Peer
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings
from tests.cli.conftest import free_address
from tests.transfer.tls_files import Issued, issue

# Not 1801 and 1802: a queue manager of this machine may have those, on all addresses.
PORT, TLS_PORT = 21803, 21804
QUICK: dict[str, object] = {"try_connect_interval": 0.1, "order_ack_timeout": 0.1, "port": PORT, "tls_port": TLS_PORT}
_PATIENCE = 30.0  # seconds


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "this never came"
        time.sleep(0.01)


class Manager:
    """A queue manager whose certificate and peers a test chooses.

    It does so once it has all identifiers.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.address = free_address()
        self.manager = QueueManager(path / name, name)
        self.queue = self.manager.create_queue("q")
        self.ordered = self.manager.create_queue("t", transactional=True)
        self.engine = runtime_of(self.manager).engine
        self.guid = self.engine.queue_manager.identifier
        self.embedded: EmbeddedTransfer | None = None

    def peer(self, certificate: Path | None = None, **other: Any) -> Peer:  # noqa: ANN401 (of Peer)
        """Return the entry for other computers' peers tables."""
        return Peer(self.name, other.pop("addresses", (self.address,)), certificate=certificate, **other)

    @staticmethod
    def settings(*peers: Peer, **settings: object) -> TransferSettings:
        return TransferSettings(**{**QUICK, **settings, "peers": {peer.name: peer for peer in peers}})  # type: ignore[arg-type]

    @contextlib.contextmanager
    def listening(self, *peers: Peer, **settings: object) -> Iterator[Self]:
        self.embedded = EmbeddedTransfer(self.engine, self.address, self.settings(*peers, **settings))
        try:
            yield self
        finally:
            self.embedded.close()

    def reload(self, *peers: Peer, **settings: object) -> None:
        """Reload as SIGHUP does."""
        embedded = self._running
        embedded.run(lambda: embedded._listener.reload(self.settings(*peers, **settings)))

    @property
    def _running(self) -> EmbeddedTransfer:
        assert self.embedded is not None
        return self.embedded

    def send(self, to: str, *bodies: str, queue: str = "q", recoverable: bool = False, by: str = "OS") -> None:
        target = self.manager.open(rf"DIRECT={by}:{to}\private$\{queue}")
        if queue == "t":
            with self.manager.transaction() as transaction:
                for body in bodies:
                    target.send(Message(body=body), transaction=transaction)
        else:
            for body in bodies:
                target.send(Message(body=body, recoverable=recoverable))

    @property
    def links(self) -> list[Link]:
        with self.engine.store.lock:
            return list(self._running.transfer.links.values())

    @property
    def problem(self) -> str:
        """Return the problem that `lanner outgoing` shows."""
        with self.engine.store.lock:
            return "; ".join(route.problem for route in self._running.transfer.routes.values())

    @property
    def waiting(self) -> int:
        with self.engine.store.lock:
            return sum(queue.message_count for queue in self.engine.outgoing_queues())


class Network:
    """Alpha, beta and gamma, and a folder for certificates."""

    def __init__(self, path: Path) -> None:
        self.folder = path / "tls"
        self.alpha, self.beta, self.gamma = (Manager(path, name) for name in ("ALPHA", "BETA", "GAMMA"))

    def issue(self, manager: Manager, **options: Any) -> Issued:  # noqa: ANN401 (of issue)
        return issue(self.folder, manager.name, guid=options.pop("guid", manager.guid), **options)

    def close(self) -> None:
        for one in (self.alpha, self.beta, self.gamma):
            one.manager.close()


class Client:
    """A program that connects to a queue manager, with TLS or without, and claims to be one."""

    def __init__(self, connection: socket.socket, guid: uuid.UUID) -> None:
        self.connection = connection
        self.session = Session.initiate(own_guid=guid, settings=TransferSettings(), monotonic=time.monotonic)
        self.end = ""

    def open(self) -> bool:
        """Do the handshake of MS-MQQB; return whether there is a session.

        `end` has the reason if there is none.
        """
        with self.connection:
            try:
                self.connection.sendall(b"".join(self.session.data_to_send()))
                while self.session.state is not SessionState.OPEN:
                    data = self.connection.recv(1 << 16)
                    events = self.session.receive(data) if data else self.session.end_of_stream()
                    ends = [event.reason for event in events if isinstance(event, SessionClosed)]
                    if ends:
                        self.end = ends[0]
                        return False
                    self.connection.sendall(b"".join(self.session.data_to_send()))
            except OSError as error:
                self.end = str(error)
                return False
        return True


def client_context(certificate: Issued | None) -> ssl.SSLContext:
    """A TLS client that accepts every server and shows a certificate, or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate.certificate_file, certificate.key_file)
    return context


def tls_client(
    target: Manager, certificate: Issued | None, guid: uuid.UUID, *, port: int = TLS_PORT, source: str = "127.0.0.1"
) -> Client:
    """Connect with TLS. OSError, ssl.SSLError among them, if that fails."""
    plain = socket.create_connection((target.address, port), _PATIENCE, source_address=(source, 0))
    try:
        return Client(client_context(certificate).wrap_socket(plain), guid)
    except BaseException:
        plain.close()
        raise


def plain_client(target: Manager, guid: uuid.UUID, *, port: int = PORT, source: str = "127.0.0.1") -> Client:
    return Client(socket.create_connection((target.address, port), _PATIENCE, source_address=(source, 0)), guid)


def is_admitted(target: Manager, certificate: Issued | None, guid: uuid.UUID, **options: Any) -> bool:  # noqa: ANN401 (of tls_client)
    """Whether a client with a certificate gets a session under a GUID."""
    try:
        return tls_client(target, certificate, guid, **options).open()
    except OSError:
        return False
