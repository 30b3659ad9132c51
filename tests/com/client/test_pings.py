"""Ping sets as a client keeps them (MS-DCOM 3.2.6.1)."""

from __future__ import annotations

import pytest

from lanner.com.client.pings import ComplexPing, PingSet, SimplePing
from lanner.com.constants import ERROR_ACCESS_DENIED, OR_INVALID_OID, OR_INVALID_SET, OR_OK


def made(*oids: int) -> PingSet:
    """A set that the resolver knows as 7."""
    pings = PingSet()
    for oid in oids:
        pings.hold(oid)
    first = pings.next_ping()
    assert first is not None
    pings.answered(first, OR_OK, 7)
    return pings


def test_the_first_ping_makes_the_set() -> None:
    pings = PingSet()
    pings.hold(1)
    pings.hold(2)
    assert pings.next_ping() == ComplexPing(0, 1, (1, 2), ())


def test_nothing_held_needs_no_ping() -> None:
    pings = PingSet()
    assert pings.next_ping() is None
    assert pings.is_over


def test_a_set_that_stays_the_same_gets_simple_pings() -> None:
    pings = made(1, 2)
    assert pings.next_ping() == SimplePing(7)
    assert pings.next_ping() == SimplePing(7)


def test_a_change_is_reported_with_the_next_number() -> None:
    pings = made(1, 2)
    pings.hold(3)
    pings.let_go(1)
    ping = pings.next_ping()
    assert ping == ComplexPing(7, 2, (3,), (1,))
    assert ping is not None
    pings.answered(ping, OR_OK, 7)
    assert pings.next_ping() == SimplePing(7)


def test_an_object_is_held_until_its_last_interface_goes() -> None:
    pings = made(1)
    pings.hold(1)
    pings.let_go(1)
    assert pings.next_ping() == SimplePing(7)
    pings.let_go(1)
    assert pings.next_ping() == ComplexPing(7, 2, (), (1,))


def test_an_empty_set_is_forgotten() -> None:
    pings = made(1)
    pings.let_go(1)
    ping = pings.next_ping()
    assert ping is not None
    pings.answered(ping, OR_OK, 7)
    assert pings.is_over
    pings.hold(1)
    assert pings.next_ping() == ComplexPing(0, 1, (1,), ())


@pytest.mark.parametrize("status", [OR_INVALID_SET, OR_INVALID_OID])
def test_a_set_that_the_resolver_does_not_know_is_made_again(status: int) -> None:
    pings = made(1, 2)
    pings.answered(SimplePing(7), status)
    assert pings.next_ping() == ComplexPing(0, 1, (1, 2), ())


def test_a_failed_ping_is_sent_again() -> None:
    pings = made(1)
    pings.hold(2)
    ping = pings.next_ping()
    assert ping is not None
    pings.answered(ping, ERROR_ACCESS_DENIED)
    assert pings.next_ping() == ping


def test_a_new_set_is_not_told_what_to_drop() -> None:
    pings = made(1, 2)
    pings.let_go(1)
    pings.answered(SimplePing(7), OR_INVALID_SET)
    assert pings.next_ping() == ComplexPing(0, 1, (2,), ())


def test_many_objects_are_reported_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanner.com.client.pings.MAX_OIDS_PER_PING", 2)
    pings = PingSet()
    for oid in range(5):
        pings.hold(oid)
    told: list[int] = []
    while (ping := pings.change()) is not None:
        told += ping.added
        assert len(ping.added) <= 2
        pings.answered(ping, OR_OK, 7)
    assert told == [0, 1, 2, 3, 4]


def test_sequence_numbers_that_are_used_up_begin_again_with_a_new_set() -> None:
    pings = made(1)
    for number in range(2, 0x10000):
        pings.hold(number) if number % 2 == 0 else pings.let_go(number - 1)
        ping = pings.next_ping()
        assert isinstance(ping, ComplexPing)
        assert ping.sequence == number
        pings.answered(ping, OR_OK, 7)
    pings.hold(5)
    assert pings.next_ping() == ComplexPing(0, 1, (1, 5), ())
