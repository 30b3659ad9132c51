"""Streams rest while the loop has work, and as long as it has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from lanner.spark.flight.courtesy import cpu_of, giving_way


class World:
    """A clock and a loop: a batch takes a hundredth of a second, and the loop uses part of it."""

    def __init__(self, busy: float) -> None:
        self.now, self.own = 100.0, 7.0
        self.busy = busy
        self.rests: list[float] = []

    def cpu(self) -> float:
        return self.now * self.busy

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds

    def make(self, count: int, seconds: float = 0.01) -> list[int]:
        def batches() -> Iterator[int]:
            for number in range(count):
                # It waits as long for others.
                self.now += 2 * seconds
                self.own += seconds
                yield number

        return list(giving_way(batches(), self.cpu, 80.0, lambda: self.now, lambda: self.own, self.sleep))


@pytest.mark.parametrize(("busy", "rest"), [(0.01, 0.0005), (0.1, 0.05), (0.2, 0.2), (0.4, 0.8), (0.9, 0.8)])
def test_a_stream_rests_the_longer_the_busier_the_loop_is(busy: float, rest: float) -> None:
    world = World(busy)
    assert world.make(3) == [0, 1, 2]
    assert world.rests == pytest.approx([rest] * 3)


def test_beside_a_loop_that_waits_it_does_not_rest() -> None:
    world = World(busy=0.0)
    assert world.make(3) == [0, 1, 2]
    assert sum(world.rests) == 0


def test_a_batch_that_takes_no_time_is_not_waited_for() -> None:
    world = World(busy=1.0)
    assert world.make(2, seconds=0.0) == [0, 1]
    assert sum(world.rests) == 0


def test_a_rest_is_not_for_long() -> None:
    world = World(busy=1.0)
    world.make(1, seconds=10.0)
    assert world.rests == [2.0]


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
