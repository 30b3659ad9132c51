"""The timer thread.

Covered: deadlines, abandoned objects, and changes without a caller that waits for them.
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from lanner.host.timers import Timers
from lanner.model.errors import IOTimeout
from tests.host.conftest import Signal, World
from tests.overlay import overlay


def test_a_deadline_is_kept_without_a_caller(world: World) -> None:
    over = Signal()
    read = world.receive(world.open(), timeout=5)
    read.when_over(over)
    over.wait()
    assert isinstance(read.end, IOTimeout)


def test_a_nearer_deadline_is_noticed(world: World) -> None:
    """The thread already waits for a later one."""
    descriptor = world.open()
    world.receive(descriptor, timeout=3_600_000)
    over = Signal()
    world.receive(descriptor, timeout=5).when_over(over)
    over.wait()
    assert len(descriptor.waiting_reads) == 1


def test_what_was_abandoned_is_closed(world: World) -> None:
    descriptor = world.open()
    over = Signal()
    world.receive(descriptor).when_over(over)
    aborted = uuid4()
    with world.runtime.lock:
        transaction = world.engine.create_transaction(aborted)
    world.runtime.abandon([transaction, descriptor])
    over.wait()
    with world.runtime.lock:
        assert descriptor.is_closed
        assert transaction.is_over
        assert aborted not in world.engine.queue_manager.transaction_collection


def test_a_failure_does_not_end_the_thread(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lanner.host.timers._RETRY", 0.001)
    real = world.engine.on_timer
    failures: list[int] = []

    def fails_once() -> None:
        if not failures:
            failures.append(1)
            raise OSError("a bad moment")
        real()

    world.runtime._timers.stop()
    timers = Timers(overlay(world.runtime, engine=overlay(world.engine, on_timer=fails_once)))
    world.engine.clocks.deadline_changed = timers.wake
    timers.start()
    over = Signal()
    read = world.receive(world.open(), timeout=5)
    read.when_over(over)
    over.wait()
    timers.stop()
    assert isinstance(read.end, IOTimeout)
    assert failures
    assert "it will be tried again" in caplog.text


def test_stopping_ends_the_thread(world: World) -> None:
    timers = world.runtime._timers
    assert timers._thread.is_alive()
    timers.stop()
    assert not timers._thread.is_alive()
