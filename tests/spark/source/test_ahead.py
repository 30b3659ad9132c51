"""The next batch is fetched meanwhile: one, not more, and nothing stays behind."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from lanner.spark.source.ahead import ahead


class Source:
    """Numbers, and who asked for them."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.fetched = threading.Semaphore(0)
        self.made: list[int] = []
        self.threads: set[int] = set()
        self.is_closed = False
        self._count = count
        self._error = error

    def __iter__(self) -> Generator[int, None, None]:
        try:
            for number in range(self._count):
                self.made.append(number)
                self.threads.add(threading.get_ident())
                self.fetched.release()
                yield number
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True


def is_left_behind() -> bool:
    return any(thread.name == "lanner-ahead" for thread in threading.enumerate())


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_the_same_comes_in_the_same_order(count: int) -> None:
    source = Source(count)
    assert list(ahead(iter(source))) == list(range(count))
    assert threading.get_ident() not in source.threads
    assert (source.is_closed, is_left_behind()) == (True, False)


def test_one_is_fetched_while_another_is_in_use() -> None:
    source = Source(10)
    batches = ahead(iter(source))
    for number in range(5):
        assert next(batches) == number
        # This one and the next: without anybody asking.
        for _ in range(2 if not number else 1):
            assert source.fetched.acquire(timeout=30)
        assert source.made == list(range(number + 2))


def test_an_error_comes_behind_what_was_before_it() -> None:
    problem = ValueError("broken")
    batches = ahead(iter(Source(2, problem)))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(ValueError, match="broken") as caught:
        next(batches)
    assert caught.value is problem
    assert not is_left_behind()


def test_who_goes_away_leaves_nothing_behind() -> None:
    source = Source(10)
    batches = ahead(iter(source))
    next(batches)
    batches.close()
    assert (source.is_closed, is_left_behind()) == (True, False)
    assert len(source.made) <= 3
