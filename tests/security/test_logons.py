"""The waiting times before passwords are checked."""

from __future__ import annotations

import contextlib
import logging

import pytest

from lanner.security import logons as module
from lanner.security.log_lines import PER_PEER
from lanner.security.logons import LockoutPolicy, LogonRefused, Logons

HERE, THERE = "192.0.2.1", "198.51.100.7"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logons(clock: Clock) -> Logons:
    return Logons(clock=clock)


def fail(logons: Logons, clock: Clock, account: str = "alice", address: str = HERE) -> float:
    """Wait, and fail; return the wait."""
    attempt = logons.begin(account, address, "test")
    clock.now += attempt.wait
    attempt.failed()
    return attempt.wait


def test_the_wait_grows_and_has_an_end(logons: Logons, clock: Clock) -> None:
    assert [fail(logons, clock) for _ in range(11)] == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_tries_at_once_wait_for_each_other_and_are_refused_soon(logons: Logons, clock: Clock) -> None:
    for _ in range(4):
        fail(logons, clock)
    assert [logons.begin("alice", HERE, "test").wait for _ in range(5)] == [1, 2, 4, 8, 16]
    with pytest.raises(LogonRefused, match="too many wrong passwords"):
        logons.begin("alice", HERE, "test")


def test_an_address_that_tries_many_accounts_waits_too(logons: Logons, clock: Clock) -> None:
    waits = [fail(logons, clock, f"user{number}") for number in range(7)]
    assert waits == [0, 0, 0, 0, 1, 2, 4]


def test_a_user_elsewhere_waits_a_little_and_never_in_a_line(logons: Logons, clock: Clock) -> None:
    for number in range(50):
        logons.begin("alice", f"192.0.2.{number}", "test").failed()
    assert [logons.begin("alice", THERE, "test").wait for _ in range(50)] == [5.0] * 50
    logons.begin("alice", THERE, "test").succeeded()
    assert logons.begin("alice", THERE, "test").wait == 0


def test_an_account_that_is_known_at_an_address_waits_for_its_own_failures_only(logons: Logons, clock: Clock) -> None:
    logons.begin("alice", HERE, "test").succeeded()
    for number in range(20):
        fail(logons, clock, f"user{number}")
        fail(logons, clock, "alice", f"203.0.113.{number}")
    assert logons.begin("Alice", HERE, "test").wait == 0
    for _ in range(4):
        fail(logons, clock)
    assert logons.begin("alice", HERE, "test").wait == 1


def test_who_has_an_account_does_not_begin_again_with_it(logons: Logons, clock: Clock) -> None:
    for number in range(4):
        fail(logons, clock, f"user{number}")
        logons.begin("mallory", HERE, "test").succeeded()
    assert logons.begin("user9", HERE, "test").wait > 0


def test_everything_is_forgotten_after_a_while(logons: Logons, clock: Clock) -> None:
    for _ in range(8):
        fail(logons, clock)
    clock.now += module.FORGET_AFTER
    assert logons.begin("alice", HERE, "test").wait == 0


def test_an_ipv6_network_is_one_address(logons: Logons, clock: Clock) -> None:
    waits = [fail(logons, clock, f"user{number}", f"2001:db8::{number:x}") for number in range(6)]
    assert waits == [0, 0, 0, 0, 1, 2]
    assert fail(logons, clock, "other", "2001:db8:0:1::1") == 0


def test_names_that_nobody_has_fill_no_memory(logons: Logons, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    for number in range(100):
        fail(logons, clock, f"user{number}" * 1000, f"10.0.0.{number}")
        logons.begin(f"known{number}", f"10.0.0.{number}", "test").succeeded()
    assert logons.entries <= 40


def test_a_locked_account_is_locked_for_its_time(clock: Clock) -> None:
    logons = Logons(LockoutPolicy(3, 2000.0), clock)
    for number in range(3):
        logons.begin("alice", f"192.0.2.{number}", "test").failed()
    with pytest.raises(LogonRefused, match="the account is locked"):
        logons.begin("ALICE", THERE, "test")
    logons.begin("bob", THERE, "test").succeeded()
    clock.now += 1999.0
    with pytest.raises(LogonRefused, match="the account is locked"):
        logons.begin("alice", THERE, "test")
    clock.now += 1.0
    assert logons.begin("alice", THERE, "test").wait == 0


def test_the_log_has_a_few_lines_a_minute(logons: Logons, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(500):
        with contextlib.suppress(LogonRefused):
            logons.begin("alice", HERE, "test").failed()
    lines = [record.getMessage() for record in caplog.records]
    assert set(lines) == {
        f"{HERE}: test: user name or password of 'alice' is wrong",
        f"{HERE}: test: 'alice' is refused without checking the password: too many wrong passwords",
    }
    assert len(lines) <= 2 * PER_PEER
