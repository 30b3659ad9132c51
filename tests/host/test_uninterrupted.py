"""Ctrl-C while a step must not be left half done."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # not in the stubs
import signal
import threading

import pytest

from lanner.host.uninterrupted import Uninterrupted


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_takes_effect_at_the_end_of_the_block() -> None:
    before = signal.getsignal(signal.SIGINT)
    noted = []

    def work() -> None:
        with Uninterrupted() as block:
            noted.append(block.is_interrupted)
            press_ctrl_c()
            noted.append(block.is_interrupted)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert noted == [False, True]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_ctrl_c_takes_effect_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with Uninterrupted():
            press_ctrl_c()
            press_ctrl_c()
            pytest.fail("the block went on")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_of_the_block_goes_before_the_interruption() -> None:
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with Uninterrupted():
            press_ctrl_c()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_block_that_is_not_interrupted_raises_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Uninterrupted() as block:
        pass
    assert not block.is_interrupted
    assert signal.getsignal(signal.SIGINT) is before


def test_a_program_that_ignores_ctrl_c_is_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Uninterrupted():
            press_ctrl_c()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_no_ctrl_c_to_hold_back() -> None:
    handlers: list[object] = []

    def work() -> None:
        with Uninterrupted():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


def test_a_signal_that_arrives_while_the_handler_is_restored_leaves_no_other_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, original = signal.getsignal(signal.SIGINT), _signal.signal

    def interrupted(number: int, handler: signal.Handlers) -> object:
        # As Python does for signals that have arrived: it runs the old handler first.
        monkeypatch.setattr(_signal, "signal", original)
        press_ctrl_c()
        return original(number, handler)

    def work() -> None:
        with Uninterrupted():
            press_ctrl_c()
            monkeypatch.setattr(_signal, "signal", interrupted)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is before
