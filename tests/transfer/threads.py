"""Threads for tests: what is slow runs when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Threads:
    """Work in a real thread, done when the test says so.

    Its results are delivered in the test's thread.
    """

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self._pool = ThreadPoolExecutor(1)

    def __call__(self, function: Callable[[], Any], done: Callable[[Any], None], whose: str | None) -> None:
        del whose
        self.jobs.append((function, done))

    def run_one(self) -> None:
        function, done = self.jobs.pop(0)
        # The test holds the store's lock: work that took it would never end.
        done(self._pool.submit(function).result(timeout=30))

    def run(self) -> int:
        """Everything, and what comes of it; how much that was."""
        count = 0
        while self.jobs:
            self.run_one()
            count += 1
        return count

    def close(self) -> None:
        self._pool.shutdown()
