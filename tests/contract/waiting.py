"""Operations that wait, for tests that do something meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")

# Long enough for a request to reach its queue manager. A test whose operation takes longer still
# passes, but not for the reason it names.
_SOON = 0.1


@asynccontextmanager
async def until_it_waits(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Start an operation and give it time to begin to wait."""
    task = asyncio.create_task(work)
    await asyncio.sleep(_SOON)
    assert not task.done(), task
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
