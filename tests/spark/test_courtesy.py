"""Streams rest while the loop has work, and only then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from lanner.spark.courtesy import cpu_of, giving_way


class World:
    """Time, in which a batch takes a tenth of a second to make, and a loop that uses a part of it."""

    def __init__(self, busy: float) -> None:
        self.now = 100.0
        self.busy = busy
        self.rests: list[float] = []

    def cpu(self) -> float:
        return self.now * self.busy

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds

    def make(self, count: int, seconds: float = 0.1) -> list[int]:
        def batches() -> Iterator[int]:
            for number in range(count):
                self.now += seconds
                yield number

        return list(giving_way(batches(), self.cpu, lambda: self.now, self.sleep))


def test_a_stream_rests_while_the_loop_is_busy() -> None:
    world = World(busy=0.3)
    assert world.make(3) == [0, 1, 2]
    assert world.rests == pytest.approx([0.4, 0.4, 0.4])


def test_alone_it_does_not() -> None:
    world = World(busy=0.02)
    assert world.make(3) == [0, 1, 2]
    assert world.rests == []


def test_a_rest_is_not_for_long() -> None:
    world = World(busy=1.0)
    world.make(1, seconds=10.0)
    assert world.rests == [0.5]


def test_the_cpu_of_a_thread() -> None:
    """A thread that works, and one that waits."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=work), threading.Thread(target=is_over.wait)]
    for thread in threads:
        thread.start()
    try:
        busy, idle = (cpu_of(thread.ident or 0) for thread in threads)
        before = busy()
        while busy() < before + 0.05:
            time.sleep(0.001)
        assert idle() < busy() / 2
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
