"""Taking connections: within the budget, and without descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop

from lanner.host import accepting
from lanner.host.accepting import Acceptor, listen_tcp
from lanner.host.budget import Budget, Door, Pass


class Echo(asyncio.Protocol):
    def __init__(self, granted: Pass) -> None:
        self._granted = granted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._granted.give_back()


async def says(port: int) -> bytes:
    """Return the answer, which is empty if the connection is not accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(ConnectionError):
        writer.write(b"x")
        answer = await asyncio.wait_for(reader.read(1), 20)
    writer.close()
    return answer


def run(main: Callable[[], Awaitable[None]]) -> None:
    for runner in (asyncio.run, uvloop.run):
        runner(main())  # type: ignore[arg-type]


def test_connections_come_in_until_there_are_enough(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        door = Door(Budget(), "echo", limit=1, share=0.1)
        acceptor = Acceptor(listen_tcp("127.0.0.1", 0), door, Echo)
        first = await asyncio.open_connection("127.0.0.1", acceptor.port)
        first[1].write(b"1")
        assert await first[0].read(1) == b"1"
        assert await says(acceptor.port) == b""
        first[1].close()
        # The other end detects it later.
        answers = [await says(acceptor.port) for _ in range(20)]
        assert answers[-1] == b"x"
        acceptor.close()
        acceptor.close()
        await acceptor.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", acceptor.port)

    run(main)
    assert "echo: a connection of 127.0.0.1 was refused: there are 1, which is the limit" in caplog.text


def test_room_is_made_by_any_peer_that_can(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        door = Door(Budget(), "echo", limit=10, per_peer=1, share=0.1)
        passes = [door.admit("127.0.0.1")]
        asked: list[str] = []

        def make_room(peer: str) -> bool:
            asked.append(peer)
            granted = passes.pop()
            assert granted is not None
            granted.give_back()
            return True

        acceptor = Acceptor(listen_tcp("127.0.0.1", 0), door, Echo, make_room=make_room)
        assert await says(acceptor.port) == b"x"
        assert asked == ["127.0.0.1"]
        acceptor.close()
        await acceptor.wait_closed()

    run(main)
    assert "refused" not in caplog.text


def test_without_a_descriptor_it_pauses_and_does_not_spin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "_PAUSE", 0.05)
    caplog.set_level(logging.ERROR)

    async def main() -> None:
        door = Door(Budget(), "echo", limit=10, share=0.1)
        acceptor = Acceptor(listen_tcp("127.0.0.1", 0), door, Echo)
        with socket.socket() as client:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            # The kernel accepts it; the process has not yet.
            client.connect(("127.0.0.1", acceptor.port))
            client.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                await asyncio.sleep(0.3)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            client.send(b"x")
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), 20) == b"x"
        acceptor.close()
        await acceptor.wait_closed()

    uvloop.run(main())
    lines = [record.message for record in caplog.records if "no connection can be taken" in record.message]
    assert 1 <= len(lines) <= 5


def test_ip_version_6_is_not_version_4() -> None:
    try:
        listening = listen_tcp("::1", 0)
    except OSError as error:
        pytest.skip(f"no ::1 here: {error}")
    with listening:
        assert listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
