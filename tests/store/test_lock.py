"""The store's lock lets a commit in before a busy engine."""

from __future__ import annotations

import contextlib
import signal
import threading

from lanner.store.lock import StoreLock


def test_who_is_urgent_comes_before_who_came_later() -> None:
    lock = StoreLock()
    order: list[str] = []

    def commit() -> None:
        with lock.before_others:
            order.append("commit")

    def engine() -> None:
        with lock:
            order.append("engine")

    with lock:
        committer = threading.Thread(target=commit)
        committer.start()
        while not lock.is_wanted:
            pass
        other = threading.Thread(target=engine)
        other.start()
        with lock:  # the holder may come again and must not wait at the gate
            order.append("holder")
    committer.join()
    other.join()
    assert order == ["holder", "commit", "engine"]


def test_urgency_with_a_time_limit_continues_without_the_lock() -> None:
    lock = StoreLock()
    answers: list[bool] = []

    def publish() -> None:
        with lock.urgent(timeout=0.001) as has_lock:
            answers.append(has_lock)

    with lock:
        publisher = threading.Thread(target=publish)
        publisher.start()
        publisher.join()
    assert answers == [False]
    publish()
    assert answers == [False, True]
    assert lock.acquire(blocking=False)
    lock.release()


def test_a_time_limit_holds_also_behind_somebody_urgent_without_one() -> None:
    """The time limit holds behind an urgent thread without one.

    A checkpoint has the database's writer and gives up soon. A leader waits for the lock, whose
    holder wants the writer.
    """
    lock = StoreLock()
    answers: list[bool] = []

    def lead() -> None:
        with lock.before_others:
            pass

    def checkpoint() -> None:
        with lock.urgent(timeout=0.001) as has_lock:
            answers.append(has_lock)

    with lock:
        leader = threading.Thread(target=lead)
        leader.start()
        while not lock.is_wanted:
            pass
        writer = threading.Thread(target=checkpoint)
        writer.start()
        writer.join(timeout=10)
        assert answers == [False]
    leader.join()
    writer.join()


class Interrupted(Exception):
    """An exception that the handler of a signal raises."""


def test_a_signal_that_interrupts_the_acquisition_leaves_the_lock_free() -> None:
    """A handler may raise between the acquisition and the block: some of these do."""
    lock = StoreLock()

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(2000):
            with contextlib.suppress(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, 0.0001)
                while True:
                    with lock:
                        pass
            assert not lock.is_mine
    finally:
        signal.signal(signal.SIGALRM, before)
