"""Strangers whose signatures take long to verify.

Anybody who reaches port 1801 chooses the hash of a signature, and Python computes the oldest ones
itself: two hundred messages of 32 KiB kept every thread of the service busy for 40 seconds.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lanner.host.addresses import local_settings
from lanner.host.fair_threads import AT_ONCE
from lanner.host.runtime import Runtime
from lanner.security.examination import Examination, examine
from lanner.transfer import protection
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener
from lanner.wire.message import Message
from tests.adversity.network import PORT
from tests.adversity.stranger import Stranger, message
from tests.client.peers import free_address

# More than an event loop has threads, on any computer.
MANY = 40


class Slow:
    """Examines messages as the queue manager does; the slow ones when the test says so."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.go_on = threading.Event()

    def __call__(self, message: Message, *rest: object, **more: object) -> Examination:
        body = bytes(message.body)
        self.begun.append(body)
        if body.startswith(b"slow"):
            self.go_on.wait(60)
        return examine(message, *rest, **more)  # type: ignore[arg-type] # whatever it was called with


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (the condition is in other threads)
            await asyncio.sleep(0.01)


def signed(address: str, stranger: Stranger, body: bytes, ordinal: int) -> bytes:
    return message(
        rf"DIRECT=TCP:{address}\private$\open",
        body,
        ordinal=ordinal,
        source=stranger.session._own_guid,
        recoverable=False,
        signature=b"s" * 64,
        sender_certificate=b"c" * 32,
    )


def test_signatures_of_one_stranger_keep_nobody_else_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, address = Slow(), free_address()
    monkeypatch.setattr(protection, "examine", slow)
    runtime = Runtime(tmp_path, local_settings("ALPHA", local_addresses=frozenset({address})))
    listener = TransferListener(runtime.engine, address, TransferSettings(port=PORT))
    # The strangers' own threads.
    pool = ThreadPoolExecutor(1)

    async def stranger(source: str) -> Stranger:
        connect = lambda: Stranger.connect(source, address, guid=uuid.uuid4()).open()  # noqa: E731
        return await asyncio.get_running_loop().run_in_executor(pool, connect)

    async def main() -> None:
        await listener.start()
        try:
            attackers = [await stranger("127.9.8.1") for _ in range(2)]
            for one in attackers:
                for ordinal in range(1, MANY):
                    one.connection.sendall(signed(address, one, b"slow %d" % ordinal, ordinal))
            await until(lambda: len(slow.begun) >= AT_ONCE)
            async with asyncio.timeout(30):
                # Any other work in a thread.
                assert await asyncio.to_thread(lambda: "done") == "done"
            honest = await stranger("127.9.8.2")
            honest.connection.sendall(signed(address, honest, b"honest", 1))
            await until(lambda: b"honest" in slow.begun)
            assert len(slow.begun) == AT_ONCE + 1
            # Work for those who have gone is not done.
            for one in (*attackers, honest):
                one.connection.close()
            await until(lambda: not listener.transfer.links)
            slow.go_on.set()
            again = await stranger("127.9.8.1")
            again.connection.sendall(signed(address, again, b"again", 1))
            await until(lambda: b"again" in slow.begun)
            assert len(slow.begun) == AT_ONCE + 2
            again.connection.close()
        finally:
            slow.go_on.set()
            await listener.stop()

    asyncio.run(main())
    pool.shutdown()
    runtime.close()
