"""A queue manager with an RPC server for tests of its services.

It has what these tests need beside the wire.
"""

# What is in a message, or how a queue is made, is told by the client's declarations.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import functools
import inspect
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

from lanner.client.message import Message
from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.model.enums import QueueAccessType
from lanner.model.errors import LannerError
from lanner.rpc.server import RpcServer
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.wire.format_name import FormatName
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import Sid

ADDRESS = "127.0.0.1"
S = TypeVar("S")


def tell_later(durable: asyncio.Future[None], callback: Callable[[LannerError | None], None]) -> None:
    """Call back with the outcome of a future, as `Committer.when_durable` does."""

    def tell(future: asyncio.Future[None]) -> None:
        error = future.exception()
        assert error is None or isinstance(error, LannerError)
        callback(error)

    durable.add_done_callback(tell)


class Site:
    """A queue manager with one private queue `q`, and its RPC server."""

    def __init__(self, runtime: Runtime, server: RpcServer, port: int, *, make: bool = True) -> None:
        """`make`: the queue is not there yet."""
        self.runtime = runtime
        self.server = server
        self.port = port
        self.operations = Operations(runtime.engine, runtime)
        if make:
            self.create("q")

    def add_user(self, name: str, *, is_administrator: bool = False) -> Sid:
        self.runtime.users.add(name, f"{name}-secret", administrator=is_administrator)
        identity = self.runtime.users.identity(name)
        assert identity is not None
        return identity.sid

    def create(
        self,
        name: str,
        rights: int = QueueAccess.GENERIC_ALL,
        sid: Sid = ANONYMOUS.sid,
        owner: Sid = SYSTEM.sid,
        **attributes: Any,
    ) -> None:
        """Create a private queue that grants rights, by default to anonymous callers."""
        security = SecurityDescriptor(owner=owner, dacl=Acl((allow(sid, rights),))).pack()
        with self.runtime.change() as change:
            self.operations.create_queue(f".\\private$\\{name}", {"security": security, **attributes})
        change.wait()

    def delete(self, queue: str) -> None:
        with self.runtime.change() as change:
            self.operations.delete_queue(self.name_of(queue))
        change.wait()

    def set(self, queue: str, **attributes: Any) -> None:
        with self.runtime.change() as change:
            self.operations.set_attributes(self.name_of(queue), attributes)
        change.wait()

    def name_of(self, queue: str) -> FormatName:
        """Return the format name of a private queue."""
        return self.operations.names.format_name(f".\\private$\\{queue}")

    def send(self, *bodies: bytes, queue: str = "q", **properties: Any) -> list[int]:
        """Put messages into a queue from here; their lookup identifiers."""
        before = set(self.lookup_ids(queue))
        messages = [Message(body=body, **({"recoverable": True} | properties)) for body in bodies]
        with self.runtime.change() as change:
            opened = self.operations.open(self.name_of(queue), QueueAccessType.SEND)
            is_transactional = opened.queue is not None and opened.queue.transactional
            unit = self.operations.begin(uuid.uuid4()) if is_transactional else None
            for message in messages:
                self.operations.send(opened, message.properties(self.operations.names), unit)
            if unit is not None:
                self.operations.commit(unit)
            self.operations.close(opened)
        change.wait()
        return [lookup_id for lookup_id in self.lookup_ids(queue) if lookup_id not in before]

    def lookup_ids(self, queue: str = "q") -> list[int]:
        found = []
        with self.runtime.lock:
            number = self.operations.find(f".\\private$\\{queue}").number
            after: int | None = -1
            while after is not None and (after := self.runtime.store.next(number, after)) is not None:
                found.append(after)
        return found

    def count(self, queue: str = "q") -> int:
        with self.runtime.lock:
            return self.operations.message_count(self.name_of(queue))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition without notification; fail instead of waiting forever."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def tests_of(
    serving: Callable[[Path], AbstractAsyncContextManager[S]],
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Return a decorator that makes tests of coroutines whose first parameter is the site."""

    def served(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def wrapper(tmp_path: Path, **arguments: Any) -> None:
            async def run() -> None:
                async with serving(tmp_path) as site:
                    await test(site, **arguments)

            asyncio.run(run())

        _, *rest = inspect.signature(test).parameters.values()
        site = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        wrapper.__signature__ = inspect.Signature([site, *rest])  # type: ignore[attr-defined] # what pytest looks at
        return wrapper

    return served
