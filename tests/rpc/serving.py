"""A server on a loop in a thread of its own, for blocking clients.

Run as a module, it is a process of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from lanner.rpc.calls import ServerCall
from lanner.rpc.mgmt import MgmtInterface
from lanner.rpc.pdu import SyntaxId
from lanner.rpc.server import RpcServer
from tests.rpc.harness import SECURITY
from tests.rpc.raw_interface import RawInterface

ROOT = Path(__file__).resolve().parent.parent.parent
ECHO = SyntaxId(UUID("55555555-5555-5555-5555-555555555555"), 1)
ANSWER, WAIT = 0, 1


class EchoServer:
    """A server of an interface that echoes requests.

    It answers ANSWER at once, and WAIT when it is released.
    """

    def __init__(self) -> None:
        self.port = 0
        # Stubs of the calls that wait, and of those whose clients gave up.
        self.waiting: list[bytes] = []
        self.abandoned: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._released = asyncio.Event()
        interface = RawInterface(ECHO, {ANSWER: lambda call: call.stub, WAIT: self._wait})
        self._server = RpcServer([interface], providers=SECURITY)
        self._server.register(MgmtInterface(self._server))

    async def start(self, path: Path | None) -> None:
        self.port = await self._server.listen_tcp("127.0.0.1", 0)
        if path is not None:
            await self._server.listen_unix(path)

    async def stop(self) -> None:
        self._released.set()
        await self._server.stop()

    def release(self) -> None:
        """Answer every call that waits."""
        self._loop.call_soon_threadsafe(self._released.set)

    async def _wait(self, call: ServerCall) -> bytes:
        self.waiting.append(call.stub)
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.abandoned.append(call.stub)
            raise
        return call.stub


@contextmanager
def serving(path: Path | None = None) -> Iterator[EchoServer]:
    started: list[EchoServer] = []
    is_started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        server = EchoServer()
        await server.start(path)
        started.append(server)
        is_started.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert is_started.wait(10)
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@contextmanager
def serving_process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the server where a test can kill it, and give its port."""
    command = [sys.executable, "-m", "tests.rpc.serving"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def until(is_true: Callable[[], object]) -> None:
    """Wait for another thread, but not forever."""
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


if __name__ == "__main__":
    with serving() as echo:
        sys.stdout.write(f"{echo.port}\n")
        sys.stdout.flush()
        sys.stdin.read()
