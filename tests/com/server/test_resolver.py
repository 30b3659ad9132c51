"""Ping sets, and the resolver that clients talk to (MS-DCOM 3.1.2)."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lanner.com.constants import (
    ERROR_OUTOFMEMORY,
    OR_INVALID_OID,
    OR_INVALID_OXID,
    OR_INVALID_SET,
    OR_OK,
    PING_PERIOD,
)
from lanner.com.interfaces import (
    COMPLEX_PING,
    RESOLVE_OXID,
    RESOLVE_OXID2,
    SERVER_ALIVE,
    SERVER_ALIVE2,
    SIMPLE_PING,
)
from lanner.com.objref import DualStringArray
from lanner.com.server.ping_sets import PING_TIMEOUT, PingLimits, PingSets
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS, Method
from lanner.rpc.ndr import Value
from lanner.rpc.pdu import AuthLevel
from tests.com.toys import ToyServer, toy_client
from tests.rpc.loops import run

PEER = "192.0.2.1"


def made(pings: PingSets, *oids: int, now: float = 0.0, sequence: int = 1, peer: str = PEER) -> int:
    status, set_id = pings.complex_ping(0, sequence, oids, (), peer, now)
    assert status == OR_OK
    return set_id


class TestPingSets:
    @pytest.mark.spec("MQAC-2.1-22")
    def test_set_zero_makes_a_new_one_that_is_not_zero(self) -> None:
        pings = PingSets()
        first, second = made(pings), made(pings)
        assert first
        assert second
        assert first != second
        assert pings.sets == 2

    @pytest.mark.spec("MQAC-2.1-22")
    def test_an_unknown_set_is_refused(self) -> None:
        assert PingSets().complex_ping(5, 1, (), (), PEER, 0.0) == (OR_INVALID_SET, 5)

    @pytest.mark.spec("MQAC-2.1-22")
    def test_an_unknown_object_is_refused_in_a_set_that_is_there(self) -> None:
        pings = PingSets()
        set_id = made(pings)
        assert pings.complex_ping(set_id, 2, (77,), (), PEER, 0.0) == (OR_INVALID_OID, set_id)

    def test_an_unknown_object_is_passed_over_in_a_new_set(self) -> None:
        """MS-DCOM 3.1.2.5.1.3: "It MUST look up the OID entry.

        If the entry is found"; nothing is said of the others.
        """
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        made(pings, 77, oid)
        assert pings.members == 1

    @pytest.mark.spec("MQAC-2.1-23")
    def test_an_older_sequence_number_changes_nothing(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        set_id = made(pings, sequence=5)
        assert pings.complex_ping(set_id, 4, (oid,), (), PEER, 100.0) == (OR_OK, set_id)
        assert pings.members == 0
        # Not even the timer.
        assert pings.expire(PING_TIMEOUT) == [oid]
        assert pings.sets == 0

    @pytest.mark.spec("MQAC-2.1-23")
    @pytest.mark.parametrize("sequence", [5, 6, 0xFFFF])
    def test_the_same_or_a_newer_sequence_number_is_taken(self, sequence: int) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        set_id = made(pings, sequence=5)
        assert pings.complex_ping(set_id, sequence, (oid,), (), PEER, 0.0) == (OR_OK, set_id)
        assert pings.members == 1
        assert pings.complex_ping(set_id, sequence - 1, (), (oid,), PEER, 0.0) == (OR_OK, set_id)
        assert pings.members == 1

    @pytest.mark.spec("MQAC-2.1-24")
    def test_a_simple_ping_restarts_the_timer(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        set_id = made(pings, oid)
        for period in range(1, 20):
            assert pings.simple_ping(set_id, period * PING_PERIOD) == OR_OK
            assert pings.expire(period * PING_PERIOD) == []
        assert pings.next_deadline() == 19 * PING_PERIOD + PING_TIMEOUT
        assert pings.simple_ping(set_id + 1, 0.0) == OR_INVALID_SET

    @pytest.mark.spec("MQAC-2.1-25")
    def test_a_set_ends_after_three_silent_periods_and_not_before(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        set_id = made(pings, oid, now=10.0)
        assert pings.next_deadline() == 10.0 + 3 * 120.0
        assert pings.expire(10.0 + 3 * 120.0 - 0.001) == []
        assert pings.expire(10.0 + 3 * 120.0) == [oid]
        assert pings.simple_ping(set_id, 370.0) == OR_INVALID_SET
        assert pings.members == 0

    @pytest.mark.spec("MQAC-2.1-25")
    def test_an_object_in_another_set_stays(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        made(pings, oid)
        made(pings, oid, now=200.0, peer="192.0.2.2")
        assert pings.expire(PING_TIMEOUT) == []
        assert pings.sets == 1
        assert pings.expire(200.0 + PING_TIMEOUT) == [oid]

    def test_an_object_that_nobody_ever_pings_ends_too(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(5.0)
        assert pings.next_deadline() == 5.0 + PING_TIMEOUT
        assert pings.expire(4.999 + PING_TIMEOUT) == []
        assert pings.expire(5.0 + PING_TIMEOUT) == [oid]
        # It is told once.
        assert pings.expire(1e9) == []

    def test_an_object_taken_out_of_its_last_set_has_another_timeout(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        set_id = made(pings, oid)
        assert pings.complex_ping(set_id, 2, (), (oid,), PEER, 300.0) == (OR_OK, set_id)
        pings.simple_ping(set_id, 500.0)
        assert pings.expire(300.0 + PING_TIMEOUT - 1) == []
        assert pings.expire(300.0 + PING_TIMEOUT) == [oid]

    def test_a_spared_object_has_another_timeout(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        assert pings.expire(400.0) == [oid]
        pings.spare(oid, 400.0)
        assert pings.expire(400.0 + PING_TIMEOUT - 1) == []
        assert pings.expire(400.0 + PING_TIMEOUT) == [oid]

    def test_a_forgotten_object_leaves_nothing_behind(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        set_id = made(pings, oid)
        pings.forget_oid(oid)
        assert pings.oids == 0
        assert pings.complex_ping(set_id, 2, (), (oid,), PEER, 0.0) == (OR_OK, set_id)
        assert pings.members == 0
        assert pings.expire(1e9) == []
        assert pings.next_deadline() is None


class TestFloods:
    def test_sets_of_one_peer_are_bounded_and_empty_ones_make_room(self) -> None:
        limits = PingLimits(max_sets=8, max_sets_per_peer=3)
        pings = PingSets(limits)
        oid = pings.allocate_oid(0.0)
        kept = made(pings, oid)
        for _ in range(1000):
            made(pings)
        assert pings.sets == 3
        assert pings.simple_ping(kept, 0.0) == OR_OK

    def test_sets_of_one_peer_that_hold_something_are_refused_beyond_the_limit(self) -> None:
        pings = PingSets(PingLimits(max_sets=8, max_sets_per_peer=3))
        oid = pings.allocate_oid(0.0)
        for _ in range(3):
            made(pings, oid)
        assert pings.complex_ping(0, 1, (oid,), (), PEER, 0.0) == (ERROR_OUTOFMEMORY, 0)
        # Others are served.
        made(pings, oid, peer="192.0.2.2")

    def test_sets_of_all_peers_are_bounded(self) -> None:
        pings = PingSets(PingLimits(max_sets=8, max_sets_per_peer=3))
        oid = pings.allocate_oid(0.0)
        kept = [made(pings, oid, peer=f"192.0.2.{number}") for number in range(8)]
        assert pings.complex_ping(0, 1, (oid,), (), "198.51.100.1", 0.0) == (ERROR_OUTOFMEMORY, 0)
        assert pings.sets == 8
        assert [pings.simple_ping(set_id, 0.0) for set_id in kept] == [OR_OK] * 8

    def test_empty_sets_of_many_peers_keep_nobody_out(self) -> None:
        pings = PingSets(PingLimits(max_sets=8, max_sets_per_peer=3))
        oid = pings.allocate_oid(0.0)
        kept = made(pings, oid)
        for number in range(1000):
            made(pings, peer=f"2001:db8::{number:x}")
        assert pings.sets == 8
        other = made(pings, oid, peer="198.51.100.1")
        assert [pings.simple_ping(set_id, 0.0) for set_id in (kept, other)] == [OR_OK, OR_OK]

    def test_places_in_sets_are_bounded(self) -> None:
        pings = PingSets(PingLimits(max_members=10))
        oids = [pings.allocate_oid(0.0) for _ in range(6)]
        set_id = made(pings, *oids)
        assert pings.complex_ping(0, 1, oids, (), PEER, 0.0) == (ERROR_OUTOFMEMORY, 0)
        assert pings.sets == 1
        assert pings.members == 6
        second = made(pings, *oids[:4])
        assert pings.complex_ping(second, 2, oids, (), PEER, 0.0) == (ERROR_OUTOFMEMORY, second)
        assert pings.members == 10
        assert pings.simple_ping(set_id, 0.0) == OR_OK

    def test_a_flood_of_pings_holds_no_memory(self) -> None:
        pings = PingSets()
        oid = pings.allocate_oid(0.0)
        tracemalloc.start()
        try:
            for number in range(20_000):
                pings.complex_ping(0, 1, (oid, number), (), f"peer {number % 3}", 0.0)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert pings.sets <= 3 * PingLimits().max_sets_per_peer
        assert held < 1 << 20


class PingMachine(RuleBasedStateMachine):
    """Whatever clients do, the tables agree, and everything ends when they are silent."""

    def __init__(self) -> None:
        super().__init__()
        self.pings = PingSets(PingLimits(max_sets=5, max_sets_per_peer=3, max_members=12))
        self.now = 0.0
        self.oids: list[int] = []
        self.sets: list[int] = [0, 1]

    @rule()
    def allocate(self) -> None:
        self.oids.append(self.pings.allocate_oid(self.now))

    @rule(data=st.data(), sequence=st.integers(0, 5), peer=st.sampled_from("abc"))
    def complex_ping(self, data: st.DataObject, sequence: int, peer: str) -> None:
        some = st.lists(st.sampled_from([*self.oids, 7]), max_size=4)
        set_id = data.draw(st.sampled_from(self.sets))
        _, found = self.pings.complex_ping(set_id, sequence, data.draw(some), data.draw(some), peer, self.now)
        self.sets.append(found)

    @rule(data=st.data())
    def simple_ping(self, data: st.DataObject) -> None:
        self.pings.simple_ping(data.draw(st.sampled_from(self.sets)), self.now)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.oids:
            self.pings.forget_oid(data.draw(st.sampled_from(self.oids)))

    @rule(seconds=st.floats(0, 500), data=st.data())
    def time_passes(self, seconds: float, data: st.DataObject) -> None:
        self.now += seconds
        for oid in self.pings.expire(self.now):
            if data.draw(st.booleans()):
                self.pings.forget_oid(oid)
            else:
                self.pings.spare(oid, self.now)

    @invariant()
    def tables_agree(self) -> None:
        pings = self.pings
        assert pings.members == sum(len(one.oids) for one in pings._sets.values()) <= 12
        assert pings.sets <= 5
        for oid, count in pings._counts.items():
            assert count == sum(oid in one.oids for one in pings._sets.values())
            assert (oid in pings._unpinged) is (count == 0)
        deadlines = [one.deadline for one in pings._sets.values()]
        assert deadlines == sorted(deadlines)
        assert list(pings._unpinged.values()) == sorted(pings._unpinged.values())

    def teardown(self) -> None:
        for _ in range(2):
            self.now += PING_TIMEOUT
            for oid in self.pings.expire(self.now):
                self.pings.forget_oid(oid)
        assert (self.pings.sets, self.pings.oids, self.pings.members) == (0, 0, 0)
        assert self.pings.next_deadline() is None


TestPingMachine = PingMachine.TestCase
TestPingMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


# On the wire
# --------------------------------------------------------------------------------------------------


def ping_arguments(set_id: int, sequence: int, added: tuple[int, ...], removed: tuple[int, ...]) -> dict[str, Value]:
    return {
        "p_set_id": set_id,
        "sequence_num": sequence,
        "c_add_to_set": len(added),
        "c_del_from_set": len(removed),
        "add_to_set": added or None,
        "del_from_set": removed or None,
    }


def resolve_arguments(oxid: int) -> dict[str, Value]:
    return {"p_oxid": oxid, "c_requested_protseqs": 2, "ar_requested_protseqs": (7, 15)}


def hosts(bindings: DualStringArray) -> list[str]:
    return [one.network_addr for one in bindings.string_bindings]


@pytest.mark.spec("MQAC-2.1-3", "MQAC-1.7-1", "MQAC-2.1-26")
def test_aliveness_is_told_to_everybody(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            ToyServer(tmp_path) as server,
            toy_client(server, credentials=None, level=AuthLevel.NONE) as client,
        ):
            assert await client.alive(SERVER_ALIVE) == {RETURNS: OR_OK}
            answer = await client.alive(SERVER_ALIVE2)
            version = answer["p_com_version"]
            assert (version.major_version, version.minor_version) in [(5, 6), (5, 7)]
            assert answer[RETURNS] == OR_OK
            bindings = answer["ppdsa_or_bindings"]
            # Nothing but TCP, and no endpoint.
            assert [one.tower_id for one in bindings.string_bindings] == [7, 7]
            assert hosts(bindings) == ["127.0.0.1", "QM1"]
            assert {one.authn_svc for one in bindings.security_bindings} == {9, 10}

    run(main())


@pytest.mark.spec("MQAC-2.1-21", "MQAC-1.7-1")
@pytest.mark.parametrize("method", [RESOLVE_OXID, RESOLVE_OXID2])
def test_an_exporter_is_found_by_its_oxid(tmp_path: Path, method: Method) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            exporter = server.com.exporter
            answer = await client.alive(method, **resolve_arguments(exporter.oxid))
            assert answer[RETURNS] == OR_OK
            assert answer["pipid_rem_unknown"] == exporter.ipid_rem_unknown
            assert answer["p_authn_hint"] == AuthLevel.PKT_INTEGRITY
            bindings = answer["ppdsa_oxid_bindings"]
            port = exporter.addresses.port
            assert hosts(bindings) == [f"127.0.0.1[{port}]", f"QM1[{port}]"]
            assert {one.tower_id for one in bindings.string_bindings} == {7}
            if method is RESOLVE_OXID2:
                assert answer["p_com_version"].major_version == 5
            unknown = await client.alive(method, **resolve_arguments(exporter.oxid ^ 1))
            assert unknown[RETURNS] == OR_INVALID_OXID
            assert unknown["ppdsa_oxid_bindings"] is None
            assert unknown["pipid_rem_unknown"] == UUID(int=0)

    run(main())


@pytest.mark.spec("MQAC-2.1-22", "MQAC-2.1-23", "MQAC-2.1-24")
def test_pings_over_the_wire(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            (std,) = await client.activate()
            answer = await client.alive(COMPLEX_PING, **ping_arguments(0, 1, (std.oid,), ()))
            set_id = answer["p_set_id"]
            assert answer[RETURNS] == OR_OK
            assert set_id
            assert server.com.pings.members == 1
            for sequence, added, removed, status in [
                (2, (), (), OR_OK),
                (1, (), (std.oid,), OR_OK),
                (3, (std.oid ^ 1,), (), OR_INVALID_OID),
            ]:
                answer = await client.alive(COMPLEX_PING, **ping_arguments(set_id, sequence, added, removed))
                assert (answer[RETURNS], answer["p_set_id"]) == (status, set_id)
            assert server.com.pings.members == 1
            assert await client.alive(SIMPLE_PING, p_set_id=set_id) == {RETURNS: OR_OK}
            assert await client.alive(SIMPLE_PING, p_set_id=set_id ^ 1) == {RETURNS: OR_INVALID_SET}
            answer = await client.alive(COMPLEX_PING, **ping_arguments(set_id ^ 1, 3, (), ()))
            assert answer[RETURNS] == OR_INVALID_SET
            answer = await client.alive(COMPLEX_PING, **ping_arguments(set_id, 3, (), (std.oid,)))
            assert answer[RETURNS] == OR_OK
            assert server.com.pings.members == 0

    run(main())


def test_a_ping_that_announces_objects_and_has_none_is_a_fault(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            bound = await client.resolver.bind_raw(server.server.interfaces[-1].syntax)
            with pytest.raises(RpcFault, match="BAD_STUB_DATA"):
                await bound.call_raw(COMPLEX_PING.opnum, bytes(8) + b"\1\0\5\0\0\0" + bytes(10))
            assert await client.alive(SERVER_ALIVE) == {RETURNS: OR_OK}

    run(main())
