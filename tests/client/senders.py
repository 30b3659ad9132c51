"""Both colours of `Sender` behind the names of the blocking one, for tests that hold for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self
from uuid import UUID

import lanner.aio
from lanner.client import Sender
from lanner.client.preparing import Sendable
from lanner.host.loop_thread import LoopThread


class AwaitedSender:
    """`lanner.aio.Sender` on an event loop in a thread; its block begins when it is made."""

    def __init__(self, host: str, **settings: object) -> None:
        self._sender = lanner.aio.Sender(host, **settings)  # type: ignore[arg-type] # a parameter each
        self._loop = LoopThread("sender")
        try:
            self._loop.call(self._sender.__aenter__())
        except BaseException:
            self._loop.stop()
            raise

    def __repr__(self) -> str:
        return repr(self._sender)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call(self._sender.__aexit__(kind, error, trace))

    def stop(self) -> None:
        """Stop the event loop."""
        self._loop.stop()

    @property
    def guid(self) -> UUID:
        return self._sender.guid

    @property
    def next_ordinal(self) -> int:
        return self._sender.next_ordinal

    @property
    def remote_guid(self) -> UUID:
        return self._sender.remote_guid

    @property
    def unacknowledged(self) -> int:
        return self._sender.unacknowledged

    def send(self, queue: str, message: Sendable, **options: object) -> str:
        return self._loop.call(self._sender.send(queue, message, **options))  # type: ignore[arg-type]

    def send_many(self, queue: str, messages: Iterable[Sendable], **options: object) -> list[str]:
        return self._loop.call(self._sender.send_many(queue, messages, **options))  # type: ignore[arg-type]

    def flush(self, timeout: float | None = None) -> None:
        self._loop.call(self._sender.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        self._loop.call(self._sender.close(timeout))


AnySender = Sender | AwaitedSender
Connect = Callable[..., AnySender]
