"""The asyncio client: what happens to tasks that share a connection when things go wrong."""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lanner.rpc.async_client import RpcClient, connect_tcp, connect_unix
from lanner.rpc.faults import RpcConnectionError
from lanner.rpc.mgmt import MGMT
from lanner.rpc.ndr import Syntax
from lanner.rpc.security import Credentials
from tests.rpc.harness import FIRST, PASSWORD, SECOND, USER, Harness
from tests.rpc.loops import run
from tests.rpc.served import until
from tests.rpc.serving import ANSWER, ECHO, ROOT, WAIT, serving
from tests.rpc.test_blocking_client import fill


@asynccontextmanager
async def peer() -> AsyncIterator[tuple[RpcClient, Harness, socket.socket]]:
    """A client, and a server that reads and answers only when the test says so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = await connect_tcp(*listening.getsockname())
        theirs, _ = listening.accept()
        theirs.setblocking(False)
        with theirs:
            yield client, Harness(), theirs
        await client.close()


async def received(theirs: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(theirs, 65536)


def test_binds_at_once_wait_for_each_other() -> None:
    async def main() -> None:
        with serving() as server:
            async with await connect_tcp("127.0.0.1", server.port) as client:
                first, second, third = await asyncio.gather(
                    client.bind_raw(ECHO), client.bind(MGMT), client.bind(MGMT, (Syntax.NDR64,))
                )
                assert await first.call_raw(ANSWER, b"x") == b"x"
                for bound in (second, third):
                    assert (await bound.call(MGMT.by_name["rpc__mgmt_is_server_listening"]))["returns"] == 1

    run(main())


def test_a_cancelled_bind_leaves_the_connection_usable() -> None:
    """It cannot be abandoned, so that the next one waits for its answer."""

    async def main() -> None:
        async with peer() as (client, server, theirs):
            first = asyncio.ensure_future(client.bind_raw(FIRST))
            bind = await received(theirs)
            first.cancel()
            await asyncio.wait([first])
            second = asyncio.ensure_future(client.bind_raw(SECOND))
            await asyncio.sleep(0)
            theirs.send(b"".join(server.send(bind)))
            theirs.send(b"".join(server.send(await received(theirs))))
            calling = asyncio.ensure_future((await second).call_raw(0, b"question"))
            server.send(await received(theirs))
            assert server.calls[-1].context.interface.syntax == SECOND
            server.connection.respond(server.calls[-1], b"answer")
            theirs.send(b"".join(server.sent()))
            assert await calling == b"answer"

    run(main())


def test_close_ends_every_call() -> None:
    async def main() -> None:
        with serving() as server:
            client = await connect_tcp("127.0.0.1", server.port)
            bound = await client.bind_raw(ECHO)
            calls = [asyncio.ensure_future(bound.call_raw(WAIT, b"")) for _ in range(4)]
            await until(lambda: len(server.waiting) == 4)
            was_open = client.is_open
            await client.close()
            errors = await asyncio.gather(*calls, return_exceptions=True)
            found = [(type(error), str(error)) for error in errors]
            assert found == [(RpcConnectionError, "the connection was closed")] * 4
            assert len({id(error) for error in errors}) == 4
            assert was_open
            assert not client.is_open
            with pytest.raises(RpcConnectionError, match="the connection was closed"):
                await bound.call_raw(ANSWER, b"")
            await client.close()

    run(main())


def test_close_does_not_wait_for_a_server_that_does_not_read() -> None:
    async def main() -> None:
        async with peer() as (client, server, theirs):
            binding = asyncio.ensure_future(client.bind_raw(FIRST))
            theirs.send(b"".join(server.send(await received(theirs))))
            calling = asyncio.ensure_future((await binding).call_raw(0, bytes(32 << 20)))
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises(RpcConnectionError, match="the connection was closed"):
                await calling

    run(main())


def test_a_read_that_fails_has_its_cause() -> None:
    async def main() -> None:
        async with peer() as (client, _, theirs):
            binding = asyncio.ensure_future(client.bind_raw(FIRST))
            await asyncio.sleep(0)
            # Without lingering: a reset.
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
            with pytest.raises(RpcConnectionError, match=r"the connection failed: .*Connection reset by peer"):
                await binding
            assert not client.is_open

    run(main())


def test_a_request_that_cannot_be_signed_ends_the_connection() -> None:
    """The server would reject whatever is signed after it."""

    async def main() -> None:
        with serving() as server:
            async with await connect_tcp("127.0.0.1", server.port, credentials=Credentials(USER, PASSWORD)) as client:
                bound = await client.bind_raw(ECHO)
                waiting = asyncio.ensure_future(bound.call_raw(WAIT, b""))
                await until(lambda: len(server.waiting) == 1)
                with pytest.raises(TypeError):
                    await bound.call_raw(ANSWER, None)  # type: ignore[arg-type]
                with pytest.raises(RpcConnectionError, match="in the middle of a PDU; connect again"):
                    await waiting

    run(main())


FORKING = """
import asyncio, os, sys
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.faults import RpcConnectionError
from tests.rpc.serving import ECHO

async def main():
    client = await connect_tcp("127.0.0.1", int(sys.argv[1]))
    bound = await client.bind_raw(ECHO)
    child = os.fork()
    if not child:
        assert not client.is_open
        for work in (lambda: bound.call_raw(0, b"child"), lambda: client.bind_raw(ECHO)):
            try:
                await work()
            except RpcConnectionError as error:
                print(error, flush=True)
        await client.close()
        os._exit(0)
    os.waitpid(child, 0)
    print(os.getpid(), child, await bound.call_raw(0, b"parent"))
    await client.close()

asyncio.run(main())
"""


def test_a_child_process_does_not_use_the_connection_of_its_parent() -> None:
    with serving() as server:
        command = [sys.executable, "-c", FORKING, str(server.port)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    *refusals, last = ran.stdout.splitlines()
    parent, child, answer = last.split()
    assert refusals == [f"the connection was made in process {parent}; connect again in this one, {child}"] * 2
    assert answer == "b'parent'"


def test_no_server(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError):
                await connect_tcp("127.0.0.1", probe.getsockname()[1])
        with pytest.raises(FileNotFoundError):
            await connect_unix(tmp_path / "none.sock")

    run(main())


def test_a_server_that_does_not_accept_is_given_up() -> None:
    async def main() -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(0)
            waiting = fill(socket.AF_INET, listening.getsockname())
            port = listening.getsockname()[1]
            with pytest.raises(TimeoutError, match=rf"127.0.0.1 port {port} did not accept a connection within 0.1 s"):
                await connect_tcp("127.0.0.1", port, timeout=0.1)
            for one in waiting:
                one.close()

    run(main())
