"""The forms of the client, and one way to write a test for all of them.

Tests are written for `lanner.aio`. A blocking object is adapted to the shape of its async twin:
what is awaited there runs in a thread here, so that `asyncio.create_task` gives each form the
concurrency it has in programs, tasks or threads. What a blocking object returns is adapted in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import lanner
import lanner.aio
from lanner.client._async.enterprise import Enterprise as AsyncEnterprise
from lanner.client._sync.enterprise import Enterprise
from lanner.client.runtimes import runtime_of
from tests.client.conftest import no_keys
from tests.contract.service import BOB, USERS, Service

# Each blocking class with its async twin.
TWINS: dict[type, type] = {
    lanner.QueueManager: lanner.aio.QueueManager,
    lanner.Queue: lanner.aio.Queue,
    lanner.Cursor: lanner.aio.Cursor,
    lanner.Transaction: lanner.aio.Transaction,
    lanner.DistributedTransaction: lanner.aio.DistributedTransaction,
    Enterprise: AsyncEnterprise,
}
_END = object()


class Adapted:
    """A blocking object with the shape of its async twin."""

    def __init__(self, blocking: object) -> None:
        object.__setattr__(self, "_blocking", blocking)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (what the twin has)
        found = getattr(self._blocking, name)
        if not inspect.ismethod(found):
            return adapted(found)
        if inspect.iscoroutinefunction(getattr(TWINS[type(self._blocking)], name)):
            return lambda *arguments, **named: _in_thread(found, *arguments, **named)
        return lambda *arguments, **named: adapted(_called(found, *arguments, **named))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._blocking, name, value)

    def __repr__(self) -> str:
        return repr(self._blocking)

    async def __aenter__(self) -> object:
        return await _in_thread(self._blocking.__enter__)

    async def __aexit__(self, *error: object) -> object:
        return await _in_thread(self._blocking.__exit__, *error)

    async def __aiter__(self) -> AsyncIterator[object]:
        iterator = await asyncio.to_thread(iter, self._blocking)
        while (found := await asyncio.to_thread(next, iterator, _END)) is not _END:
            yield found


class AdaptedBlock:
    """A `with` block, such as that of `receiving`, for `async with`."""

    def __init__(self, block: AbstractContextManager[object]) -> None:
        self._block = block

    async def __aenter__(self) -> object:
        return await _in_thread(self._block.__enter__)

    async def __aexit__(self, *error: object) -> object:
        return await _in_thread(self._block.__exit__, *error)


def adapted(value: object) -> object:
    """Return a blocking object adapted, and everything else as it is."""
    if type(value) in TWINS:
        return Adapted(value)
    if isinstance(value, list):
        return [adapted(one) for one in value]
    if isinstance(value, contextlib._GeneratorContextManager):
        return AdaptedBlock(value)
    return value


def blocking(value: Any) -> Any:  # noqa: ANN401 (anything)
    """Return the blocking object that was adapted."""
    return object.__getattribute__(value, "_blocking") if isinstance(value, Adapted) else value


def _called(call: Callable[..., object], *arguments: object, **named: object) -> object:
    return call(*map(blocking, arguments), **{name: blocking(value) for name, value in named.items()})


async def _in_thread(call: Callable[..., object], *arguments: object, **named: object) -> object:
    return adapted(await asyncio.to_thread(_called, call, *arguments, **named))


# The forms
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How a program reaches a queue manager."""

    is_async: bool
    where: Literal["embedded", "unix", "tcp"]

    def __str__(self) -> str:
        return f"{self.where}-{'async' if self.is_async else 'blocking'}"

    @property
    def is_remote(self) -> bool:
        return self.where != "embedded"

    def embedded(self, data: Path, name: str = "ALPHA", **settings: Any) -> AbstractAsyncContextManager[Any]:  # noqa: ANN401
        """Return a queue manager in this process, closed."""
        settings = dict[str, Any]({"public_keys": no_keys, "dns_domain": "example.com"}, **settings)
        if self.is_async:
            return lanner.aio.QueueManager(data, name, **settings)
        return cast("AbstractAsyncContextManager[Any]", Adapted(lanner.QueueManager(data, name, **settings)))

    async def connect(self, *arguments: Any, **named: Any) -> lanner.aio.QueueManager:  # noqa: ANN401
        """Call `connect` of this form."""
        if self.is_async:
            return await lanner.aio.connect(*arguments, **named)
        return cast("lanner.aio.QueueManager", await _in_thread(lanner.connect, *arguments, **named))

    def distributed(self, qm: lanner.aio.QueueManager, resources: dict[str, Any]) -> lanner.aio.DistributedTransaction:
        """Call `distributed` of this form."""
        if self.is_async:
            return lanner.aio.distributed(qm, resources)
        given = {name: blocking(resource) for name, resource in resources.items()}
        return cast("lanner.aio.DistributedTransaction", Adapted(lanner.distributed(blocking(qm), given)))


FORMS = [Form(is_async=is_async, where=where) for where in ("embedded", "unix", "tcp") for is_async in (False, True)]
REMOTE_FORMS = [form for form in FORMS if form.is_remote]


class Place:
    """A queue manager ALPHA as a form reaches it: in this process, or as a service."""

    def __init__(self, form: Form, data: Path, service: Service | None) -> None:
        self.form = form
        self.data = data
        self.service = service

    @asynccontextmanager
    async def manager(self) -> AsyncIterator[lanner.aio.QueueManager]:
        """Give a queue manager object of an administrator."""
        if self.service is None:
            async with self.form.embedded(self.data) as qm:
                yield qm
        else:
            async with await self.connect() as qm:
                yield qm

    async def connect(self, user: str = "alice") -> lanner.aio.QueueManager:
        """Connect to the service as an administrator, or over TCP as another user."""
        service = self.service
        assert service is not None
        if self.form.where == "unix" and user == "alice":
            return await self.form.connect(data=service.data)
        return await self.form.connect(service.address, user, USERS[user], port=service.port)

    @asynccontextmanager
    async def as_bob(self, qm: lanner.aio.QueueManager) -> AsyncIterator[lanner.aio.QueueManager]:
        """Give the same queue manager as a user without any rights of its own."""
        if self.service is None:
            yield qm.as_user(BOB)
        else:
            async with await self.connect("bob") as bob:
                yield bob

    def data_of(self, qm: lanner.aio.QueueManager) -> Path:
        """Return the data directory."""
        return runtime_of(blocking(qm)).path if self.service is None else self.service.data


# What tests begin with
# ----------------------------------------------------------------------------------------------

_numbers = itertools.count(1)


def new_name() -> str:
    """Return a name that no queue has yet."""
    return f"q{next(_numbers)}"


async def new_queue(qm: lanner.aio.QueueManager, **attributes: Any) -> lanner.aio.Queue:  # noqa: ANN401
    """Create a queue."""
    return await qm.create_queue(new_name(), **attributes)


async def refused(kind: type[BaseException], text: str, work: Coroutine[Any, Any, object]) -> BaseException:
    """Expect exactly this error of an operation, in every form, and return it."""
    try:
        result = await work
    except lanner.errors.LannerError as error:
        found = (type(error), error.args[0])
        assert found == (kind, text), f"{found} != {(kind, text)}"
        return error
    raise AssertionError(f"{kind.__name__}({text!r}) expected, not {result!r}")


async def bodies(queue: lanner.aio.Queue) -> list[object]:
    """Return the bodies of the messages in a queue."""
    return [message.body async for message in queue]
