"""Which queue manager identifier is accepted from which address, and what its peer may do."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from lanner.directory.topology import Computer, Topology, provision
from lanner.transfer import pins as pins_module
from lanner.transfer.addresses import HopHost, NextHop
from lanner.transfer.identities import Identities
from lanner.transfer.peers import Peer, PeerPolicy
from lanner.transfer.pins import ESTABLISHED_AFTER, MAX_CONFLICTS, UNUSED, Pins
from lanner.transfer.settings import TransferSettings
from tests.engine.harness import Harness

HERE, THERE, ELSEWHERE = "192.0.2.7", "192.0.2.8", "198.51.100.9"


class Names:
    """A network that only looks names up, when the test says so."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked: list[tuple[HopHost, Callable[[list[NextHop] | OSError], None]]] = []

    def resolve(
        self, hosts: list[HopHost], done: Callable[[list[NextHop] | OSError], None], whose: str | None = None
    ) -> None:
        del whose
        (host,) = hosts
        self.asked.append((host, done))

    def answer(self) -> None:
        for host, done in self.asked:
            found = [
                NextHop(host.qm_guid, name, one) for name in host.host_names for one in self.addresses.get(name, ())
            ]
            done(found or socket.gaierror(socket.EAI_NONAME, "no such name"))
        self.asked = []


class World(Harness):
    """`identities` on an engine; `policy` and `[peers]` as the test wants them."""

    def make(self, policy: PeerPolicy = PeerPolicy.PINNED, **peers: Peer | str) -> Identities:
        self.names = Names()
        settings = TransferSettings(peer_policy=policy, peers=peers)
        return Identities(self.engine, settings, self.names)  # type: ignore[arg-type] # looks names up, no more

    def add_computer(self, name: str, *, router: bool = False, address: str = "") -> UUID:
        guid = uuid4()
        qualified = address or f"{name}.example.com"
        computer = Computer(name, guid, sites=("west",), routing_server=router, qualified_computer_name=qualified)
        provision(self.directory, Topology(("west",), (computer,)))
        self.engine.read_routing_data()
        return guid


@pytest.fixture
def h(tmp_path: Path) -> Iterator[World]:
    harness = World(tmp_path / "data")
    yield harness
    harness.close()


def test_an_unknown_identifier_is_bound_to_the_address_it_first_comes_from(h: World) -> None:
    identities = h.make()
    guid = uuid4()
    assert not identities.admit(guid, HERE).refusal
    standing = identities.admit(guid, HERE)
    assert (standing.refusal, standing.is_known, standing.is_router) == ("", False, False)
    refused = identities.admit(guid, THERE)
    assert refused.is_conflict
    assert f"lanner peer trust {guid} {THERE}" in refused.refusal
    assert not identities.admit(uuid4(), HERE).refusal, "several may share an address"
    h.sync()
    h.restart()
    identities = h.make()
    assert identities.admit(guid, THERE).refusal
    assert not identities.admit(guid, HERE).refusal


def test_an_operator_has_the_last_word(h: World) -> None:
    identities = h.make()
    guid = uuid4()
    identities.admit(guid, HERE)
    identities.admit(guid, THERE)
    identities.pins.trust(guid, [THERE, ELSEWHERE])
    assert identities.admit(guid, THERE).is_known
    assert identities.admit(guid, ELSEWHERE).is_known
    assert identities.admit(guid, HERE).refusal, "it was only learnt"
    identities.pins.forget(guid)
    assert not identities.admit(guid, HERE).refusal


def test_an_identifier_in_the_settings_is_believed_from_its_addresses_alone(h: World) -> None:
    guid = uuid4()
    identities = h.make()
    identities.admit(guid, HERE)
    identities = h.make(BETA=Peer("BETA", (THERE, "[2001:DB8::1]"), guid))
    assert identities.admit(guid, THERE).is_known
    assert identities.admit(guid, "2001:db8::1").is_known
    assert identities.admit(guid, HERE).refusal, "it was only learnt"
    assert not identities.admit(uuid4(), THERE).is_known


def test_names_in_the_settings_are_looked_up_and_bind_also_without_an_address(h: World) -> None:
    guid = uuid4()
    identities = h.make(BETA=Peer("BETA", ("beta.example.com",), guid))
    assert "is being looked up" in identities.admit(guid, THERE).refusal
    h.names.answer()
    assert "names without an address" in identities.admit(guid, THERE).refusal
    h.names.addresses["BETA"] = [THERE]
    h.now += 61
    identities.admit(guid, THERE)
    h.names.answer()
    assert identities.admit(guid, THERE).is_known


def test_a_computer_of_the_directory_is_where_its_name_is(h: World) -> None:
    guid = h.add_computer("BETA")
    identities = h.make()
    assert "is being looked up" in identities.admit(guid, HERE).refusal
    assert identities.admit(guid, HERE).refusal
    assert len(h.names.asked) == 1, "once a minute, however often it comes"
    h.names.addresses["BETA.example.com"] = [HERE, ELSEWHERE]
    h.names.answer()
    assert identities.admit(guid, HERE).is_known
    assert identities.admit(guid, ELSEWHERE).is_known
    assert identities.admit(guid, THERE).is_conflict
    # What was found counts while it is looked up again.
    h.now += 61
    assert identities.admit(guid, HERE).is_known
    assert len(h.names.asked) == 1


def test_a_computer_of_the_directory_may_have_an_address_for_a_name(h: World) -> None:
    guid = h.add_computer("BETA", address=HERE)
    identities = h.make()
    assert identities.admit(guid, HERE).is_known, "its first session is not refused"
    assert identities.admit(guid, THERE).is_conflict
    assert not h.names.asked


def test_a_computer_of_the_directory_whose_name_has_no_address_is_learnt(h: World) -> None:
    guid = h.add_computer("ROUTER", router=True)
    identities = h.make()
    identities.admit(guid, HERE)
    h.names.answer()
    standing = identities.admit(guid, HERE)
    assert (standing.refusal, standing.is_known, standing.is_router) == ("", False, False)
    assert identities.admit(guid, THERE).is_conflict
    assert identities.admit(guid, THERE, is_proven=True).is_router, "it was connected to by its name"


@pytest.mark.parametrize("name", ["ROUTER", "router.example.com"])
def test_a_routing_server_is_one_only_where_its_name_is(h: World, name: str) -> None:
    guid = h.add_computer("ROUTER", router=True)
    identities = h.make(PeerPolicy.PINNED, **{name: HERE})
    assert identities.admit(guid, HERE).is_router
    assert identities.admit(guid, THERE).is_conflict
    assert h.names.asked == []


def test_only_known_peers_are_admitted_where_that_is_wanted(h: World) -> None:
    guid = h.add_computer("BETA")
    identities = h.make(PeerPolicy.KNOWN, BETA=HERE, GAMMA=THERE)
    assert not identities.admit(guid, HERE).refusal
    assert not identities.admit(uuid4(), THERE).refusal, "whoever is at an address of the settings"
    stranger = uuid4()
    assert "transfer.peers is known" in identities.admit(stranger, ELSEWHERE).refusal
    assert identities.pins.get(stranger) is None
    identities.pins.trust(stranger, [ELSEWHERE])
    assert identities.admit(stranger, ELSEWHERE).is_known


def test_everybody_is_believed_where_that_is_wanted(h: World) -> None:
    guid = h.add_computer("ROUTER", router=True)
    identities = h.make(PeerPolicy.OPEN)
    assert identities.admit(guid, HERE).is_router
    assert identities.admit(guid, THERE).is_router
    assert list(identities.pins) == []


# Pins
# --------------------------------------------------------------------------------------------------


def test_one_address_displaces_only_its_own(h: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_LEARNT_PER_ADDRESS", 3)
    pins = Pins(h.store, lambda: h.now)
    honest = uuid4()
    pins.learn(honest, HERE)
    guids = [uuid4() for _ in range(5)]
    for guid in guids:
        h.now += 1
        pins.learn(guid, "2001:db8::1")
    assert pins.get(honest) is not None
    assert [guid for guid in guids if pins.get(guid) is not None] == guids[2:]
    # One IPv6 network counts as one address, and another address in it displaces nothing.
    assert pins.learn(uuid4(), "2001:db8::2") is None
    assert [guid for guid in guids if pins.get(guid) is not None] == guids[2:]


def test_a_neighbour_displaces_no_pin(h: World) -> None:
    """Sessions with made-up identifiers come from the same address and its network of 64 bits."""
    identities = h.make()
    proven, opened, shared = uuid4(), uuid4(), uuid4()
    exchange(identities, proven, "2001:db8::3")
    identities.admit(opened, "2001:db8::4")
    exchange(identities, shared, "2001:db8::66")
    for _ in range(pins_module.MAX_LEARNT_PER_ADDRESS + 1):
        h.now += 1
        identities.admit(uuid4(), "2001:db8::66")
    for guid in (proven, opened, shared):
        assert identities.admit(guid, "2001:db8::67").is_conflict
    # An address where all have exchanged messages takes no further ones.
    for _ in range(2 * pins_module.MAX_LEARNT_PER_ADDRESS):
        exchange(identities, uuid4(), THERE)
    assert sum(THERE in pin.addresses for pin in identities.pins) == pins_module.MAX_LEARNT_PER_ADDRESS
    late = uuid4()
    exchange(identities, late, THERE)
    assert identities.pins.get(late) is None


def test_an_address_in_the_settings_comes_before_one_that_was_learnt(h: World) -> None:
    """Any session tells the identifier of a queue manager, so a liar can claim it first."""
    identities = h.make(BETA=HERE, GAMMA=ELSEWHERE)
    guid = uuid4()
    exchange(identities, guid, THERE)
    displaced: list[bool] = []
    identities.displaced = lambda: displaced.append(True)
    assert identities.admit(guid, HERE).is_known
    assert displaced == [True]
    assert identities.admit(guid, THERE).is_conflict
    assert identities.judge(guid, HERE).is_known
    assert identities.admit(guid, ELSEWHERE).is_conflict, "of two that are named the first stays"
    h.sync()
    h.restart()
    identities = h.make(BETA=HERE)
    assert identities.judge(guid, THERE).is_conflict
    # `lanner peer trust` has the last word.
    identities.pins.trust(guid, [THERE])
    assert identities.admit(guid, HERE).is_conflict


def exchange(identities: Identities, guid: UUID, address: str) -> None:
    """A queue manager comes and delivers a message."""
    standing = identities.admit(guid, address)
    assert not standing.refusal
    identities.prove(guid, address, standing)


def test_new_ones_displace_none_that_came_back_after_a_day(h: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_LEARNT", 4)
    monkeypatch.setattr(pins_module, "MAX_ESTABLISHED", 3)
    identities = h.make()
    honest = [uuid4() for _ in range(3)]
    for _ in range(2):
        for guid in honest:
            exchange(identities, guid, HERE)
        h.now += ESTABLISHED_AFTER
    liars = [uuid4() for _ in range(6)]
    for number, guid in enumerate(liars):
        exchange(identities, guid, f"198.51.100.{number}")
        h.now += 1
    assert {pin.guid for pin in identities.pins} == {*honest, liars[-1]}
    h.now += UNUSED - 2 * ESTABLISHED_AFTER
    for guid in honest[1:]:
        exchange(identities, guid, HERE)
    h.now += 2 * ESTABLISHED_AFTER
    exchange(identities, liars[0], "198.51.100.0")
    assert {pin.guid for pin in identities.pins} == {*honest[1:], liars[-1], liars[0]}, (
        "one that was not used makes room"
    )


def test_one_message_each_keeps_no_new_queue_manager_out(h: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_LEARNT", 8)
    identities = h.make()
    newcomer = uuid4()
    exchange(identities, newcomer, THERE)
    for _ in range(20):
        h.now += 1
        exchange(identities, uuid4(), HERE)
        exchange(identities, uuid4(), ELSEWHERE)
    assert identities.pins.get(newcomer) is not None, "the addresses with most of them make room"
    late = uuid4()
    exchange(identities, late, "203.0.113.5")
    assert identities.admit(late, HERE).is_conflict


def test_patient_liars_leave_a_quarter_to_new_queue_managers(h: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_LEARNT", 4)
    monkeypatch.setattr(pins_module, "MAX_ESTABLISHED", 3)
    identities = h.make()
    liars = [uuid4() for _ in range(4)]
    for _ in range(3):
        for guid in liars:
            exchange(identities, guid, HERE)
        h.now += ESTABLISHED_AFTER
    for number in range(3):
        newcomer = uuid4()
        exchange(identities, newcomer, f"203.0.113.{number}")
        assert identities.admit(newcomer, HERE).is_conflict
    assert {pin.guid for pin in identities.pins} >= set(liars[:3])


def test_those_that_only_opened_sessions_make_room_for_new_ones(h: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_LEARNT", 3)
    identities = h.make()
    honest = uuid4()
    identities.prove(honest, HERE, identities.admit(honest, HERE))
    h.sync()
    h.restart()
    identities = h.make()
    made_up = [uuid4() for _ in range(6)]
    for number, guid in enumerate(made_up):
        h.now += 1
        assert not identities.admit(guid, f"198.51.100.{number}").refusal
    assert {pin.guid for pin in identities.pins} == {honest, *made_up[-2:]}, "the oldest made room"
    assert identities.admit(honest, THERE).is_conflict
    # One that had to make room is remembered again when its first message comes.
    identities.prove(made_up[0], "198.51.100.0", identities.judge(made_up[0], "198.51.100.0"))
    assert identities.admit(made_up[0], THERE).is_conflict


def test_a_pin_of_an_older_version_is_read(h: World) -> None:
    guid = uuid4()
    row = {"first": 1, "last": 2, "addresses": {HERE: "learnt"}, "conflicts": {}}
    pin = pins_module.Pin.unpack(guid.bytes, json.dumps(row).encode())
    assert (pin.addresses, pin.is_proven) == ({HERE: pins_module.Trust.LEARNT}, False)
    Pins(h.store, lambda: h.now).prove(pin)
    assert pins_module.Pin.unpack(guid.bytes, pin.pack()).is_proven


def test_of_those_who_claim_an_identifier_the_last_are_kept(h: World) -> None:
    pins = Pins(h.store, lambda: h.now)
    guid = uuid4()
    pins.learn(guid, HERE)
    for number in range(MAX_CONFLICTS + 2):
        h.now += 1
        for _ in range(2):
            pins.conflict(guid, f"198.51.100.{number}")
    pin = pins.get(guid)
    assert pin is not None
    assert list(pin.conflicts) == [f"198.51.100.{number}" for number in range(2, MAX_CONFLICTS + 2)]
    assert {one.count for one in pin.conflicts.values()} == {2}
    assert len(Pins(h.store, lambda: h.now).get(guid).conflicts) == MAX_CONFLICTS  # type: ignore[union-attr] # it is there


def test_when_it_was_seen_is_written_once_an_hour(h: World) -> None:
    pins = Pins(h.store, lambda: h.now)
    guid = uuid4()
    pins.learn(guid, HERE)
    pin = pins.get(guid)
    assert pin is not None
    h.sync()
    h.now += 60
    pins.seen(pin)
    assert h.store.pending_batch() == 0
    h.now += 3540
    pins.seen(pin)
    assert h.store.pending_batch()
