"""The output of a running job: lines for a log, and a changing one on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Not in the specification: seconds between two checks of a stream.
_LOOK: Final = 1


class Progress:
    """Writes to standard error. Standard output is for results."""

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self.name = name
        self._out = out
        self._is_open_line = False
        self._started = time.monotonic()

    @property
    def _stream(self) -> TextIO:
        return self._out if self._out is not None else sys.stderr

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self._clear()
        for line in text.splitlines() or [""]:
            print(f"{self.name}: {line}", file=self._stream, flush=True)

    def show(self, text: str) -> None:
        """Print a line that the next one replaces, if the output is a terminal."""
        if self._stream.isatty():
            self._clear()
            print(f"{self.name}: {text}", end="", file=self._stream, flush=True)
            self._is_open_line = True

    def _clear(self) -> None:
        if self._is_open_line:
            print("\r\x1b[K", end="", file=self._stream)
            self._is_open_line = False

    def finish(self, result: dict[str, Any]) -> None:
        told = ", ".join(f"{name} {value}" for name, value in result.items())
        self.say(f"done in {time.monotonic() - self._started:.1f} s{': ' + told if told else ''}")

    def follow(self, queries: Sequence[StreamingQuery], done: Callable[[], int]) -> None:
        """Wait until streams have ended, and show how many messages are done.

        Raises the error of a stream that failed.
        """
        while True:
            are_active = [query.isActive for query in queries]
            self.show(f"{done()} messages, {time.monotonic() - self._started:.0f} s")
            for query in queries:
                if not query.isActive and (error := query.exception()) is not None:
                    raise error
            if not any(are_active):
                self._clear()
                return
            next(query for query, is_active in zip(queries, are_active, strict=True) if is_active).awaitTermination(
                _LOOK
            )
