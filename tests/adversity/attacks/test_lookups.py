"""Names of computers for which no name server answers."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lanner.host.addresses import local_settings
from lanner.host.fair_threads import AT_ONCE, FairThreads
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.security.identity import SYSTEM, Identity
from lanner.transfer import shell
from lanner.transfer.addresses import HopHost
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.sid import Sid
from tests.adversity.stranger import message
from tests.client.peers import free_address

MALLORY = Identity("mallory", Sid.parse("S-1-5-21-1-2-3-1002"))
# More than there are threads.
MANY = 2 * shell._RESOLVERS


class Names:
    """A name server that answers for `good` alone, and for a name that it has learnt to answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = {"good"}
        self.go_on = threading.Event()

    def look_up(self, name: str, *rest: Any, **more: Any) -> list[Any]:  # noqa: ANN401
        del rest, more
        self.asked.append(name)
        if name not in self.answers:
            self.go_on.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))]


async def until(condition: Any) -> None:  # noqa: ANN401
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (the condition is in other threads)
            await asyncio.sleep(0.01)


def send(runtime: Runtime, who: Identity, host: str) -> None:
    with runtime.lock:
        engine = runtime.engine
        name = parse(rf"DIRECT=OS:{host}\private$\q")
        handle = engine.open_queue(name, QueueAccessType.SEND, QueueShareMode.DENY_NONE, who)
        engine.enqueue_message_to_an_open_queue(handle, MessageProperties(body=b"x"))
        engine.close_queue(handle)


def test_names_without_an_answer_keep_no_other_message_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    address = free_address()
    runtime = Runtime(tmp_path, local_settings("ALPHA", local_addresses=frozenset({address})))
    listener = TransferListener(runtime.engine, address, TransferSettings())

    async def main() -> None:
        await listener.start()
        monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
        try:
            packet = Message(message(r"DIRECT=OS:x\private$\q", source=uuid4()))
            with runtime.lock:
                for number in range(MANY):
                    # As an acknowledgment that a stranger has asked for.
                    runtime.engine.forward_message(parse(rf"DIRECT=OS:theirs{number}\private$\q"), packet)
            for number in range(MANY):
                send(runtime, MALLORY, f"his{number}")
            await until(lambda: len(names.asked) == 2 * AT_ONCE)
            send(runtime, SYSTEM, "good")
            await until(lambda: "good" in names.asked)
            # The name is known now to be answered, whoever sends there.
            names.asked.clear()
            found: list[Any] = []
            listener.resolve([HopHost(GUID_NULL, ("good",))], found.append, str(MALLORY.sid))
            await until(lambda: found)
            assert not isinstance(found[0], OSError)
        finally:
            names.go_on.set()
            monkeypatch.undo()
            await listener.stop()
            await asyncio.to_thread(runtime.close)

    asyncio.run(main())


def test_who_goes_away_leaves_the_threads_counted() -> None:
    """Otherwise a client that disconnects again and again has all threads."""
    go_on = threading.Event()
    running: list[None] = []

    def work() -> None:
        running.append(None)
        go_on.wait(60)

    async def main() -> None:
        threads = FairThreads()
        for _ in range(5):
            gone = [asyncio.ensure_future(threads.run("mallory", work)) for _ in range(10)]
            await until(lambda: len(running) >= AT_ONCE)
            for one in gone:
                one.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
        assert len(running) == AT_ONCE
        go_on.set()
        await threads.run("mallory", lambda: None)

    try:
        asyncio.run(main())
    finally:
        go_on.set()
