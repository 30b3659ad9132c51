"""Limits on peers: resources, descriptors, doors, newcomers, unfinished packets, rates."""

from __future__ import annotations

import pytest

from lanner.host.budget import Budget, Descriptors, Door, Newcomers, Rate, Resource, Unfinished, Usage
from lanner.security.peer_address import peer_of


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("uid 7: x", "uid 7: x"),
    ],
)
def test_a_peer_is_an_address_or_a_network_of_one_subscriber(address: str, peer: str) -> None:
    assert peer_of(address) == peer


class TestResource:
    def test_at_the_limits_and_one_more(self) -> None:
        resource = Resource("things", 3, 2)
        assert [resource.take("a"), resource.take("a"), resource.take("a")] == [True, True, False]
        assert [resource.take("b"), resource.take("c")] == [True, False]
        assert resource.usage() == Usage("things", 3, 3, 2, "a", 2, refused=2)
        resource.give_back("a")
        assert resource.take("c")

    def test_nobody_is_remembered_who_has_nothing(self) -> None:
        resource = Resource("things", 3)
        resource.take("a", 2)
        resource.give_back("a", 2)
        assert resource.greatest is None
        assert resource.of("a") == 0


class TestDescriptors:
    def test_a_listener_has_its_part_whatever_others_take(self) -> None:
        descriptors = Descriptors(100)
        descriptors.reserve("transfer", 0.3)
        descriptors.reserve("rpc", 0.1)
        taken = 0
        while descriptors.take("rpc"):
            taken += 1
        assert taken == 70
        assert all(descriptors.take("transfer") for _ in range(30))
        assert not descriptors.take("transfer")
        descriptors.give_back("rpc")
        assert descriptors.take("transfer")
        assert descriptors.usage().used == 100

    def test_a_door_takes_as_many_as_a_connection_costs(self) -> None:
        budget = Budget(96 + 10)
        door = Door(budget, "flight", limit=100, per_peer=2, share=0.5, cost=3)
        first, second = door.admit("a"), door.admit("a")
        assert first is not None
        assert second is not None
        assert door.admit("a") is None
        assert door.is_greedy("a")
        assert door.admit("b") is not None
        assert door.admit("c") is None
        assert "9 descriptors of 10" in door.situation("c")
        first.give_back()
        first.give_back()
        assert {one.resource: one.used for one in budget.usage()} == {"descriptors": 6, "flight connections": 2}


def test_the_oldest_newcomer_of_the_greediest_goes() -> None:
    newcomers: Newcomers[str] = Newcomers(3)
    for one in ("x1", "y1", "y2"):
        newcomers.add(one, one[0])
    assert newcomers.excess() is None
    newcomers.add("z1", "z")
    assert newcomers.excess() == "y1"
    assert newcomers.oldest("x") == "x1"
    assert newcomers.oldest("nobody") is None
    newcomers.remove("y1")
    newcomers.remove("y1")
    assert len(newcomers) == 3


class TestUnfinished:
    def test_the_longest_silent_connection_of_the_peer_with_too_much_ends(self) -> None:
        gone: list[str] = []
        unfinished: Unfinished[str] = Unfinished(Resource("bytes", 100, 50), lambda one, _: gone.append(one))
        unfinished.set("a1", "a", 20)
        unfinished.set("a2", "a", 20)
        unfinished.set("a1", "a", 25)
        unfinished.set("a3", "a", 10)
        assert gone == ["a2"]
        assert unfinished.held.used == 35

    def test_in_total_it_is_one_of_the_peer_that_has_most(self) -> None:
        gone: list[str] = []
        unfinished: Unfinished[str] = Unfinished(Resource("bytes", 100, 50), lambda one, _: gone.append(one))
        for peer in ("a", "b"):
            unfinished.set(f"{peer}1", peer, 20)
            unfinished.set(f"{peer}2", peer, 20 if peer == "a" else 25)
        unfinished.set("c1", "c", 20)
        assert gone == ["b1"]
        for one, peer in (("a1", "a"), ("a2", "a"), ("b2", "b"), ("c1", "c"), ("c1", "c")):
            unfinished.set(one, peer, 0)
        assert unfinished.held.used == 0


def test_a_rate_counts_seconds() -> None:
    clock = [0.0]
    rate = Rate("pings", 3, 2, lambda: clock[0])
    assert [rate.allows("a"), rate.allows("a"), rate.allows("a")] == [True, True, False]
    assert [rate.allows("b"), rate.allows("b")] == [True, False]
    assert rate.usage() == Usage("pings", 3, 3, 2, "a", 2, 2)
    clock[0] = 1.0
    assert rate.usage().used == 0
    assert rate.allows("a")


def test_a_user_leaves_room_for_others_at_its_address() -> None:
    door = Door(Budget(1000), "flight", limit=100, per_peer=4, share=0.5)
    passes = [door.admit("192.0.2.7") for _ in range(4)]
    assert [one is not None and one.count_for("bob") for one in passes] == [True, True, True, False]
    assert passes[0] is not None
    assert passes[0].count_for("alice"), "it counts for its first user"
    elsewhere = door.admit("192.0.2.8")
    assert elsewhere is not None
    assert elsewhere.count_for("bob")
    passes[0].give_back()
    passes[0].give_back()
    assert passes[3] is not None
    assert passes[3].count_for("bob")
