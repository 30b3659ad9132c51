"""Next hops by the binary reliable message routing algorithm (MS-MQBR; MS-MQQB 3.1.7.5)."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.directory import AttributeFilter
from lanner.directory.embedded import DEFAULT_SITE_NAME
from lanner.directory.topology import Computer, Link, Topology, provision
from lanner.model.directory_objects import DirectoryObject, QueueManager, RoutingLink
from lanner.model.enums import DirectoryOperationResult
from lanner.transfer.routing import get_next_hops, routing_table
from tests.engine.harness import Harness

HOME = DEFAULT_SITE_NAME
A, B, C, D = SITES = [uuid.UUID(int=number) for number in (0xA, 0xB, 0xC, 0xD)]


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    """The queue manager ALPHA, in the first site."""
    harness = Harness(tmp_path / "data")
    yield harness
    harness.close()


def computer(
    name: str, *sites: str, is_router: bool = False, out: tuple[str, ...] = (), into: tuple[str, ...] = ()
) -> Computer:
    return Computer(
        name,
        None if name == "ALPHA" else uuid.uuid5(uuid.NAMESPACE_DNS, name),
        sites=sites or (HOME,),
        routing_server=is_router,
        out_routing_servers=out,
        in_routing_servers=into,
    )


def provide(h: Harness, *computers: Computer, links: tuple[Link, ...] = ()) -> None:
    sites = {site: None for one in computers for site in one.sites} | {
        s: None for k in links for s in (k.site1, k.site2)
    }
    provision(h.directory, Topology(tuple(sites), computers, links))
    h.engine.read_routing_data()


def hops(h: Harness, destination: str) -> list[str]:
    found = get_next_hops(h.engine, uuid.uuid5(uuid.NAMESPACE_DNS, destination))
    return [hop.computer_name for hop in found]


# Within a site (3.1.5.1)
# ------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.5-1")
def test_within_a_site_the_destination_is_the_next_hop(h: Harness) -> None:
    """The result is the destination's QueueManager as the directory has it."""
    provide(h, computer("BETA"), computer("ROUTER", is_router=True))
    guid = uuid.uuid5(uuid.NAMESPACE_DNS, "BETA")
    (hop,) = get_next_hops(h.engine, guid)
    assert isinstance(hop, QueueManager)
    assert (hop.identifier, hop.computer_name) == (guid, "BETA")


@pytest.mark.spec("QQB-3.1.7.5-1")
def test_a_queue_manager_that_the_directory_does_not_know_cannot_be_reached(h: Harness) -> None:
    assert get_next_hops(h.engine, uuid.uuid4()) == []
    provide(h, computer("BETA"))
    h.directory.connected = False
    assert hops(h, "BETA") == []


def test_in_routing_servers_stand_before_their_destination(h: Harness) -> None:
    provide(h, computer("R1", is_router=True), computer("R2", is_router=True), computer("BETA", into=("R2", "R1")))
    assert hops(h, "BETA") == ["R2", "R1"]


def test_out_routing_servers_are_asked_for_everything(h: Harness) -> None:
    """Before anything about the destination is looked at."""
    provide(
        h,
        computer("R1", is_router=True),
        computer("R2", is_router=True),
        computer("ALPHA", out=("R1", "R2")),
        computer("BETA", into=("R2",)),
        computer("FAR", "far"),
    )
    assert hops(h, "BETA") == hops(h, "FAR") == ["R1", "R2"]


@pytest.mark.spec("QQB-3.1.7.5-1")
def test_hops_that_cannot_be_read_are_skipped(h: Harness) -> None:
    provide(h, computer("R1"), computer("R2"), computer("ALPHA", out=("R1", "R2")), computer("BETA"))
    assert hops(h, "BETA") == ["R1", "R2"]
    unreadable = {"R1"}
    read = h.directory.read

    def read_others(
        object_type: str, filters: Sequence[AttributeFilter] | None, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        result, found = read(object_type, filters, attributes)
        if isinstance(found, QueueManager) and found.computer_name in unreadable:
            return DirectoryOperationResult.GENERIC_ERROR, None
        return result, found

    h.directory.answers["read"] = read_others
    assert hops(h, "BETA") == ["R2"]
    unreadable.add("R2")
    assert hops(h, "BETA") == []


def test_beyond_the_site_routing_servers_of_the_own_site_help(h: Harness) -> None:
    """3.1.5.5 GetRoutingServer takes the first; the others are there in case it does not answer."""
    provide(h, computer("FAR", "far"), computer("FARROUTER", "far", is_router=True))
    assert hops(h, "FAR") == []
    provide(h, computer("R1", is_router=True), computer("R2", HOME, "far", is_router=True), computer("PLAIN"))
    assert hops(h, "FAR") == ["R1", "R2"]


def test_one_common_site_is_enough(h: Harness) -> None:
    provide(h, computer("ALPHA", HOME, "second"), computer("BETA", "third", "second"))
    assert hops(h, "BETA") == ["BETA"]


# A routing server (3.1.5.2)
# ---------------------------------------------------------------------------------------


def test_a_router_uses_no_out_routing_server(h: Harness) -> None:
    provide(h, computer("R1"), computer("ALPHA", is_router=True, out=("R1",)), computer("BETA"))
    assert hops(h, "BETA") == ["BETA"]


@pytest.mark.parametrize("is_router", [True, False])
def test_an_in_routing_server_delivers(h: Harness, *, is_router: bool) -> None:
    provide(
        h,
        computer("R1", is_router=True),
        computer("ALPHA", is_router=is_router),
        computer("BETA", into=("R1", "ALPHA")),
    )
    assert hops(h, "BETA") == ["BETA"]


def test_an_in_routing_server_of_another_site_delivers(h: Harness) -> None:
    """3.1.5.2: only then are the sites looked at."""
    provide(h, computer("ALPHA", is_router=True), computer("FAR", "far", into=("ALPHA",)))
    assert hops(h, "FAR") == ["FAR"]


def test_a_router_respects_in_routing_servers_of_others(h: Harness) -> None:
    provide(h, computer("R1"), computer("ALPHA", is_router=True), computer("BETA", into=("R1",)))
    assert hops(h, "BETA") == ["R1"]


def test_a_router_sends_to_the_gates_of_its_site(h: Harness) -> None:
    """3.1.5.6 GetSiteGate: gates of the far site, and routers that are no gates, do not count."""
    provide(
        h,
        computer("ALPHA", is_router=True),
        computer("PLAIN", is_router=True),
        computer("GATE1", is_router=True),
        computer("GATE2", is_router=True),
        computer("FARGATE", "far", is_router=True),
        computer("FAR", "far"),
        links=(Link(HOME, "far", 1, ("FARGATE", "GATE2", "GATE1")),),
    )
    assert hops(h, "FAR") == ["GATE2", "GATE1"]


def test_a_queue_manager_is_never_its_own_next_hop(h: Harness) -> None:
    provide(h, computer("R1"), computer("ALPHA", out=("ALPHA", "R1")), computer("BETA"))
    assert hops(h, "BETA") == ["R1"]
    provide(h, computer("ALPHA", out=("ALPHA",)))
    assert hops(h, "BETA") == []


# A site gate (3.1.5.3)
# --------------------------------------------------------------------------------------------


def four_sites(h: Harness, at: str, costs: dict[str, int]) -> None:
    """Figure 4 of MS-MQBR: the sites A, B, C and D with a gate and a computer in each.

    ALPHA is the gate of one of them.
    """
    gates = {site: "ALPHA" if site == at else f"GATE{site}" for site in "ABCD"}
    provide(
        h,
        *(computer(gate, site, is_router=True) for site, gate in gates.items()),
        *(computer(f"PC{site}", site) for site in "ABCD"),
        links=tuple(Link(p[0], p[1], cost, (gates[p[0]], gates[p[1]])) for p, cost in costs.items()),
    )


@pytest.mark.parametrize(
    ("costs", "path"),
    [({"AB": 3, "BC": 1, "BD": 1, "CD": 1}, "ABC"), ({"AB": 3, "BC": 3, "BD": 1, "CD": 1}, "ABDC")],
)
def test_gates_follow_the_least_cost(tmp_path: Path, costs: dict[str, int], path: str) -> None:
    """MS-MQBR 4: from A to C over B, or over B and D when the link from B to C costs 3."""
    for here, there in itertools.pairwise(path):
        h = Harness(tmp_path / here)
        four_sites(h, here, costs)
        assert hops(h, "PCC") == [f"GATE{there}"]
        assert hops(h, f"PC{here}") == [f"PC{here}"]
        h.close()


def test_a_change_counts_after_a_minute_or_when_an_operator_says_so(h: Harness) -> None:
    """MS-MQBR 3.1.6.1 would have it after an hour."""
    four_sites(h, "B", {"AB": 3, "BC": 1, "BD": 1, "CD": 1})
    assert hops(h, "PCC") == ["GATEC"]
    provision(h.directory, Topology(links=(Link("B", "C", 3, ("ALPHA", "GATEC")),)))
    h.now += 59
    assert hops(h, "PCC") == ["GATEC"]
    h.now += 1
    assert hops(h, "PCC") == ["GATED"]
    provision(h.directory, Topology(links=(Link("B", "C", 1, ("ALPHA", "GATEC")),)))
    h.engine.read_routing_data()
    assert hops(h, "PCC") == ["GATEC"]


def test_a_site_that_no_link_leads_to_cannot_be_reached(h: Harness) -> None:
    four_sites(h, "A", {"AB": 1})
    assert hops(h, "PCB") == ["GATEB"]
    assert hops(h, "PCC") == []


def test_a_gate_that_is_no_routing_server_is_none(h: Harness) -> None:
    """3.1.5.8 IsSiteGate; what is left to it is the routing server of its site."""
    four_sites(h, "A", {"AB": 1})
    provide(h, computer("ALPHA", "A"), computer("ROUTER", "A", is_router=True))
    assert hops(h, "PCB") == ["ROUTER"]


def test_of_several_sites_of_the_destination_the_nearest_counts(h: Harness) -> None:
    four_sites(h, "A", {"AB": 5, "AC": 2, "AD": 9})
    provide(h, computer("BETA", "B", "C", "D"))
    assert hops(h, "BETA") == ["GATEC"]


def test_all_gates_of_the_next_site_are_given(h: Harness) -> None:
    """3.1.5.7 takes one of them."""
    four_sites(h, "A", {"AB": 1})
    provide(h, computer("SECOND", "B", is_router=True), links=(Link("A", "B", 1, ("ALPHA", "GATEB", "SECOND")),))
    assert hops(h, "PCB") == ["GATEB", "SECOND"]


# The routing table (3.1.3.1)
# --------------------------------------------------------------------------------------


def link(site1: uuid.UUID, site2: uuid.UUID, cost: int) -> RoutingLink:
    return RoutingLink(site1_identifier=site1, site2_identifier=site2, actual_cost=cost)


def test_a_link_leads_both_ways() -> None:
    links = [link(A, B, 1), link(C, B, 1)]
    assert routing_table([A], links) == {B: B, C: B}
    assert routing_table([C], links) == {B: B, A: B}


def test_a_gate_of_two_sites_starts_from_both() -> None:
    assert routing_table([A, D], [link(A, B, 5), link(D, B, 1), link(B, C, 1)]) == {B: B, C: B}
    assert routing_table([A, D], [link(A, B, 9), link(D, C, 1), link(C, B, 1)]) == {C: C, B: C}


def test_no_links_make_no_table() -> None:
    assert routing_table([A], []) == {}


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda pair: pair[0] < pair[1]), st.integers(1, 9)
    )
)
def test_every_hop_lies_on_a_path_of_least_cost(costs: dict[tuple[int, int], int]) -> None:
    sites = [uuid.UUID(int=number) for number in range(7)]
    table = routing_table([sites[0]], [link(sites[x], sites[y], cost) for (x, y), cost in costs.items()])
    far = 1_000
    distance = {(x, y): 0 if x == y else costs.get((min(x, y), max(x, y)), far) for x in range(7) for y in range(7)}
    direct = dict(distance)
    for via, x, y in itertools.product(range(7), repeat=3):
        distance[x, y] = min(distance[x, y], distance[x, via] + distance[via, y])
    for number, site in enumerate(sites[1:], 1):
        if distance[0, number] >= far:
            assert site not in table
        else:
            hop = table[site].int
            assert direct[0, hop] + distance[hop, number] == distance[0, number]
    assert [distance[0, site.int] for site in table] == sorted(distance[0, site.int] for site in table)
