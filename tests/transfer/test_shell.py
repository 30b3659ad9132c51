"""The sockets around transfer: real connections on loopback addresses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import uvloop

from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.model.enums import DeliveryGuarantee, QueueAccessType, QueueShareMode
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TRANSFER_PORT, TransferSettings
from lanner.transfer.shell import TransferListener, _TcpConnection
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse

# Other tests have other addresses: the port is the same for all.
ALPHA, BETA = "127.0.0.51", "127.0.0.52"


class Manager:
    """A queue manager with its listener."""

    def __init__(self, path: Path, address: str, **settings: object) -> None:
        self.address = address
        self.runtime = Runtime(path, local_settings(path.name, local_addresses=frozenset({address})))
        self.listener = TransferListener(self.runtime.engine, address, TransferSettings(**settings))  # type: ignore[arg-type]
        with self.runtime.lock:
            engine = self.runtime.engine
            self.queue = engine.create_queue(engine.set_queue_defaults(r".\private$\q"))

    def send(self, to: Manager | SilentPeer, *bodies: bytes, express: bool = False) -> None:
        guarantee = DeliveryGuarantee.EXPRESS if express else DeliveryGuarantee.RECOVERABLE
        engine = self.runtime.engine
        host = f"[{to.address}]" if ":" in to.address else to.address
        with self.runtime.lock:
            handle = engine.open_queue(
                parse(rf"DIRECT=TCP:{host}\private$\q"), QueueAccessType.SEND, QueueShareMode.DENY_NONE
            )
            for body in bodies:
                engine.enqueue_message_to_an_open_queue(
                    handle, MessageProperties(body=body, delivery_guarantee=guarantee)
                )
            engine.close_queue(handle)
            batch = self.runtime.store.pending_batch()
        self.runtime.store.sync(batch)

    @property
    def count(self) -> int:
        return self.queue.message_count

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Manager]:
        await self.listener.start()
        try:
            yield self
        finally:
            await self.listener.stop()
            await asyncio.to_thread(self.runtime.close)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (the condition is in other threads)
            await asyncio.sleep(0.005)


@pytest.mark.spec("QQB-2.1.1-1")
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_sessions_are_on_port_1801_from_any_port_of_the_address_that_is_listened_on(
    tmp_path: Path, run: Callable[..., None]
) -> None:
    async def main() -> None:
        async with (
            Manager(tmp_path / "A", ALPHA).listening() as alpha,
            Manager(tmp_path / "B", BETA).listening() as beta,
        ):
            assert beta.listener.address == f"{BETA}:1801"
            alpha.send(beta, b"one", b"two")
            await until(lambda: beta.count == 2)
            (link,) = beta.listener.transfer.links.values()
            assert isinstance(link.connection, _TcpConnection)
            address, port = link.connection._transport.get_extra_info("peername")
            assert address == ALPHA
            assert port != 1801

    run(main())
    assert TRANSFER_PORT == 1801


def test_messages_flow_both_ways(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Manager(tmp_path / "A", ALPHA).listening() as alpha,
            Manager(tmp_path / "B", BETA).listening() as beta,
        ):
            alpha.send(beta, *[b"x" * 1000] * 500)
            await until(lambda: beta.count == 500)
            beta.send(alpha, *[b"y" * 1000] * 500, express=True)
            await until(lambda: alpha.count == 500)
            # Each reaches the other by its address: that is where the queue manager is that the
            # name means.
            assert len(alpha.listener.transfer.links) == len(beta.listener.transfer.links) == 2

    uvloop.run(main())


def test_ip_version_6(tmp_path: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no ::1 here: {error}")

    async def main() -> None:
        async with (
            Manager(tmp_path / "A", "::1", port=11801).listening() as alpha,
            Manager(tmp_path / "B", BETA, port=11801).listening() as beta,
        ):
            beta.send(alpha, b"six")
            await until(lambda: alpha.count == 1)

    uvloop.run(main())


def test_a_wildcard_address_takes_what_comes_to_any(tmp_path: Path) -> None:
    async def main() -> None:
        async with Manager(tmp_path / "B", "0.0.0.0", port=11802).listening():
            for address in ("127.0.0.1", "127.0.0.53"):
                reader, writer = await asyncio.open_connection(address, 11802)
                session = Session.initiate(own_guid=uuid4(), settings=TransferSettings(), monotonic=time.monotonic)
                writer.writelines(session.data_to_send())
                session.receive(await reader.readexactly(572))
                assert session.state is SessionState.WAITING_CPR_MSG
                writer.close()
                await writer.wait_closed()

    uvloop.run(main())


async def open_session(address: str, port: int) -> asyncio.StreamWriter:
    """Do the handshake as a new peer."""
    reader, writer = await asyncio.open_connection(address, port)
    session = Session.initiate(own_guid=uuid4(), settings=TransferSettings(), monotonic=time.monotonic)
    for size in (572, 32):
        writer.writelines(session.data_to_send())
        session.receive(await reader.readexactly(size))
    assert session.is_open
    return writer


async def is_hung_up(connection: socket.socket) -> bool:
    connection.setblocking(False)
    with contextlib.suppress(ConnectionResetError):
        return await asyncio.get_running_loop().sock_recv(connection, 1) == b""
    return True


def test_connections_beyond_the_limit_are_refused_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lanner.transfer")

    async def main() -> None:
        async with Manager(tmp_path / "B", BETA, max_sessions_per_peer=2, port=11803).listening() as beta:
            sessions = [await open_session(BETA, 11803) for _ in range(2)]
            sockets = [socket.create_connection((BETA, 11803)) for _ in range(2)]
            assert [await is_hung_up(one) for one in sockets] == [True, True]
            assert len(beta.listener.transfer.links) == 2
            for writer in sessions:
                writer.close()
            for one in sockets:
                one.close()
            await until(lambda: not beta.listener.transfer.links)

    uvloop.run(main())
    assert [record.message for record in caplog.records if "refused" in record.message] == [
        "a connection of 127.0.0.1 was refused: it has 2 sessions, or we are offline"
    ] * 2


def test_a_peer_with_too_many_connections_loses_those_on_which_it_says_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with Manager(tmp_path / "B", BETA, max_sessions_per_peer=3, port=11804).listening() as beta:
            silent = [socket.create_connection((BETA, 11804)) for _ in range(3)]
            await until(lambda: len(beta.listener.transfer.links) == 3)
            sessions = [await open_session(BETA, 11804) for _ in range(2)]
            assert [await is_hung_up(one) for one in silent[:2]] == [True, True]
            assert len(beta.listener.transfer.links) == 3
            for writer in sessions:
                writer.close()
            for one in silent:
                one.close()
            await until(lambda: not beta.listener.transfer.links)

    uvloop.run(main())


class SilentPeer:
    """Completes the handshake, then reads nothing."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self._server = socket.create_server((address, port))
        self._accepted: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        self._accepted, _ = self._server.accept()
        request = bytearray(self._accepted.recv(572, socket.MSG_WAITALL))
        request[36:52] = b"\x11" * 16  # ServerGuid
        self._accepted.sendall(request)
        self._accepted.sendall(self._accepted.recv(32, socket.MSG_WAITALL))

    def close(self) -> None:
        self._thread.join()
        self._server.close()
        if self._accepted is not None:
            self._accepted.close()


def test_what_a_slow_reader_does_not_take_stays_in_the_store(tmp_path: Path) -> None:
    """A peer that completes the handshake and then reads nothing costs a buffer, not a queue."""
    peer = SilentPeer(BETA, 11804)

    async def main() -> None:
        async with Manager(tmp_path / "A", ALPHA, port=11804).listening() as alpha:
            links = alpha.listener.transfer.links
            alpha.send(peer, *[bytes(1 << 20)] * 30)
            await until(lambda: any(link.is_open and not link.is_writable for link in links.values()))
            await asyncio.sleep(0.1)
            # What was handed to the transport: one turn's worth and what the kernel took, not
            # thirty megabytes.
            (link,) = links.values()
            assert link.session.unacked_message_count < 16

    try:
        uvloop.run(main())
    finally:
        peer.close()
