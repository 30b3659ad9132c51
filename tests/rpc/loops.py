"""Run a test's coroutine on the loop that the daemon uses."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import uvloop


def run(coroutine: Coroutine[object, object, None]) -> None:
    """No test waits for long."""

    async def main() -> None:
        async with asyncio.timeout(20):
            await coroutine

    uvloop.run(main())
