"""Measure the processor time that the event log costs the engine.

It sends and receives messages of 1 KiB, alternately with and without the log. Run `python -m
tools.event_cost` in the root of the project.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path

from lanner.model.enums import QueueAccessType
from tests.engine.harness import Harness

MESSAGES = 10_000
AT_ONCE = 1_000
ROUNDS = 3


def measure(directory: Path, *, events: bool, express: bool) -> tuple[list[float], float]:
    """Return the microseconds of a send, its commit, a receive and its commit.

    Also returns the bytes of the log per event.
    """
    harness = Harness(directory, events=events)
    harness.create()
    sender, receiver = harness.open("q", QueueAccessType.SEND), harness.open("q")
    messages = [harness.properties(bytes(1024), recoverable=not express) for _ in range(MESSAGES)]
    rounds = []
    for first in range(0, MESSAGES, AT_ONCE):
        marks = [time.thread_time()]
        for properties in messages[first : first + AT_ONCE]:
            harness.engine.enqueue_message_to_an_open_queue(sender, properties)
        marks.append(time.thread_time())
        harness.sync()
        marks.append(time.thread_time())
        while harness.engine.try_dequeue_message(receiver) is not None:
            pass
        marks.append(time.thread_time())
        harness.sync()
        marks.append(time.thread_time())
        rounds.append([1e6 * (after - before) / AT_ONCE for before, after in itertools.pairwise(marks)])
    size = harness.store.events.size() / (2 * MESSAGES) if events else 0.0
    harness.close()
    return [statistics.median(column) for column in zip(*rounds, strict=True)], size


def main() -> None:
    for express in (True, False):
        for _ in range(ROUNDS):
            told = []
            for events in (False, True):
                with tempfile.TemporaryDirectory() as place:
                    figures, size = measure(Path(place) / "data", events=events, express=express)
                text = ", ".join(f"{figure:.2f}" for figure in figures)
                told.append(
                    f"{'on' if events else 'off'} {text}" + (f" us, {size:.0f} bytes an event" if events else "")
                )
            print(f"{'express' if express else 'recoverable'}: send, commit, receive, commit: {'; '.join(told)}")


if __name__ == "__main__":
    main()
