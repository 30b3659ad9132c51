"""The choice of the stranger that is removed when there is no room."""

from __future__ import annotations

from lanner.host.strangers import Strangers


def test_the_peer_with_most_strangers_makes_room() -> None:
    known: set[str] = set()
    strangers: Strangers[str] = Strangers(known.__contains__)
    for one in ("a1", "b1", "b2", "b3"):
        strangers.add(one, one[0])
        strangers.has_spoken(one)
    assert strangers.victim("c", is_greedy=False) == "b1"
    known.add("b1")
    assert strangers.victim("c", is_greedy=False) == "b2"
    strangers.add("b4", "b")
    # Silent strangers are removed before active ones.
    assert strangers.victim("c", is_greedy=False) == "b4"
    known.update(("b2", "b3"))
    strangers.has_spoken("b4")
    strangers.remove("a1")
    assert strangers.victim("c", is_greedy=False) == "b4"
    strangers.remove("b4")
    assert strangers.victim("c", is_greedy=False) is None


def test_a_peer_with_as_many_strangers_gets_no_room_of_others() -> None:
    strangers: Strangers[str] = Strangers(lambda _: False)
    for one in ("a1", "b1"):
        strangers.add(one, one[0])
        strangers.has_spoken(one)
    assert strangers.victim("b", is_greedy=False) is None
    strangers.add("b2", "b")
    assert strangers.victim("b", is_greedy=False) == "b2"
    assert strangers.victim("b", is_greedy=True) == "b2"
    assert strangers.victim("a", is_greedy=True) is None


def test_who_had_time_to_log_on_makes_room_for_others_at_the_address() -> None:
    """One user of a computer cannot keep the others out with connections that only greet."""
    now, known = [0.0], {"a1"}
    strangers: Strangers[str] = Strangers(known.__contains__, lambda: now[0])
    for one in ("a1", "a2", "a3"):
        strangers.add(one, "a")
        strangers.has_spoken(one)
    now[0] = 9.0
    strangers.add("a4", "a")
    strangers.has_spoken("a4")
    assert strangers.victim("a", is_greedy=True) is None
    now[0] = 11.0
    assert strangers.victim("a", is_greedy=True) == "a2"
    strangers.remove("a2")
    assert strangers.victim("a", is_greedy=True) == "a3"
    strangers.remove("a3")
    assert strangers.victim("a", is_greedy=True) is None
