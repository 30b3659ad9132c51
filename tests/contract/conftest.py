"""The subjects of the contract: every form of the client on a queue manager ALPHA."""

from __future__ import annotations

import asyncio
import inspect
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import lanner.aio
from tests.contract.forms import FORMS, Form, Place
from tests.contract.service import Service

_THREADS = 64


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in an event loop of its own, with its async arguments entered."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(_run(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in names}))
    return True


async def _run(test: Callable[..., Any], arguments: dict[str, Any]) -> None:
    # The default has fewer threads than some tests have waiting readers.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    async with AsyncExitStack() as stack:
        for name, value in arguments.items():
            if isinstance(value, AbstractAsyncContextManager):
                arguments[name] = await stack.enter_async_context(value)
        await test(**arguments)


@pytest.fixture(params=FORMS, ids=str)
def form(request: pytest.FixtureRequest) -> Form:
    """Give each form of the client."""
    found: Form = request.param
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start a service that the tests of a module share."""
    directory = tmp_path_factory.mktemp("service")
    started = Service(directory / "data")
    yield started
    started.close()
    shutil.rmtree(directory)


@pytest.fixture
def place(form: Form, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """Give the queue manager of a form."""
    return Place(form, tmp_path / "data", request.getfixturevalue("service") if form.is_remote else None)


@pytest.fixture
def qm(place: Place) -> AbstractAsyncContextManager[lanner.aio.QueueManager]:
    """Give the queue manager object of a form; the test gets it open."""
    return place.manager()


@pytest.fixture
def start_own(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start services that a test has for itself, to kill them or to give them settings."""
    started: list[Service] = []

    def start(settings: str = "") -> Service:
        started.append(Service(tmp_path / f"own{len(started)}", settings))
        return started[-1]

    yield start
    for service in started:
        service.close()
