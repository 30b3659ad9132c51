"""The place of a queue manager in its enterprise: site gates and an operator's changes.

MS-MQDMPR 3.1.1.7 and 3.1.6.2.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.directory.embedded import DEFAULT_SITE_NAME
from lanner.directory.topology import Computer, Link, Topology, provision
from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import QueueManager, RoutingLink, Site
from tests.engine.harness import Harness

GATE, SECOND, FAR, OTHER = (uuid.UUID(int=number) for number in (11, 12, 13, 14))
HOME = DEFAULT_SITE_NAME
NETWORK = Topology(
    sites=("south", "west"),
    computers=(
        Computer("GATE", GATE, sites=(HOME,), routing_server=True),
        Computer("SECOND", SECOND, sites=(HOME,), routing_server=True),
        Computer("FAR", FAR, sites=("south",), routing_server=True),
        Computer("OTHER", OTHER, sites=(HOME,)),
    ),
    links=(Link(HOME, "south", 1, ("FAR", "GATE")), Link("west", "south", 1, ("FAR",))),
)


@pytest.fixture
def integrated(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", directory_integrated=True)
    yield harness
    harness.close()


def gates(h: Harness) -> list[str]:
    (site,) = h.engine.queue_manager.site_collection
    return [gate.computer_name for gate in site.site_gate_collection]


def test_the_gates_of_a_site_are_its_own_computers_that_its_links_name(integrated: Harness) -> None:
    """A link names the gates of both its sites (3.1.1.8).

    A gate belongs to its site (MS-MQBR 1.5).
    """
    h = integrated
    provision(h.directory, NETWORK)
    links = h.engine.read_all_of(RoutingLink)
    assert links is not None
    sites = {site.name: site.identifier for site in h.engine.read_all_of(Site) or ()}
    found = {name: [gate.identifier for gate in h.engine.site_gates(sites[name], links)] for name in sites}
    assert found == {HOME: [GATE], "south": [FAR], "west": []}


def test_gates_are_known_after_a_start_and_follow_the_links(integrated: Harness) -> None:
    h = integrated
    assert gates(h) == []
    provision(h.directory, NETWORK)
    h.restart()
    assert gates(h) == ["GATE"]
    # 3.1.2.2: the hourly timer adds gates that were named since.
    provision(h.directory, Topology(links=(Link(HOME, "south", 1, ("FAR", "GATE", "SECOND")),)))
    h.tick(3600)
    assert gates(h) == ["GATE", "SECOND"]
    provision(h.directory, Topology(links=(Link(HOME, "south", 1, ("SECOND",)),)))
    h.restart()
    assert gates(h) == ["SECOND"]


def test_gates_are_kept_while_the_directory_is_away(integrated: Harness) -> None:
    h = integrated
    provision(h.directory, NETWORK)
    h.engine.read_routing_data()
    h.directory.connected = False
    h.tick(3600)
    h.engine.read_routing_data()
    assert gates(h) == ["GATE"]


@pytest.mark.parametrize("directory_integrated", [False, True])
def test_an_operators_change_is_taken_over_at_once(tmp_path: Path, *, directory_integrated: bool) -> None:
    h = Harness(tmp_path / "data", directory_integrated=directory_integrated)
    qm = h.engine.queue_manager
    qm.queue_manager_quota = 12_345
    own = Computer(
        "ALPHA", sites=("south",), routing_server=True, out_routing_servers=("GATE",), in_routing_servers=("GATE",)
    )
    provision(h.directory, NETWORK)
    provision(h.directory, Topology(computers=(own,)))
    h.engine.read_routing_data()
    assert [site.name for site in qm.site_collection] == ["south"]
    assert gates(h) == ["FAR"]
    assert qm.routing_server
    assert [server.computer_name for server in qm.out_routing_server_collection] == ["GATE"]
    assert [server.computer_name for server in qm.in_routing_server_collection] == ["GATE"]
    # What is not about routing is the queue manager's own.
    assert qm.queue_manager_quota == 12_345
    h.restart()
    assert h.engine.queue_manager.routing_server
    assert h.engine.queue_manager.in_routing_server_identifier_list == [GATE]
    h.close()


def test_all_objects_of_a_kind_or_none(integrated: Harness) -> None:
    """MS-MQBR 3.1.5.9 GetDirectoryData: a result that ended early is no result."""
    h = integrated
    provision(h.directory, NETWORK)
    assert len(h.engine.read_all_of(QueueManager) or ()) == 5
    assert [one.identifier for one in h.engine.read_all_of(QueueManager, identifier_is(FAR)) or ()] == [FAR]
    assert h.engine.read_all_of(QueueManager, identifier_is(uuid.uuid4())) == []
    # A link to a deleted site cannot be read (MS-MQDSSM 3.1.6.11.5.2).
    (west,) = (site for site in h.engine.read_all_of(Site) or () if site.name == "west")
    h.directory.delete_object(west)
    assert h.engine.read_all_of(RoutingLink) is None
    assert h.directory._queries == {}
    h.directory.connected = False
    assert h.engine.read_all_of(Site) is None


def test_routing_reads_the_enterprise_once_a_minute(integrated: Harness) -> None:
    """Or when an object that routing is about was changed through this queue manager."""
    h = integrated
    provision(h.directory, NETWORK)
    reads: list[str] = []
    begin = h.directory.read_begin

    def read_begin(object_type: str, *rest: object) -> object:
        reads.append(object_type)
        return begin(object_type, *rest)  # type: ignore[arg-type] # passed on

    h.directory.answers["read_begin"] = read_begin
    for _ in range(3):
        assert len(h.engine.routing_links()) == 2
        assert [server.identifier for server in h.engine.routing_servers()] == [FAR, GATE, SECOND]
    assert reads == ["RoutingLink", "QueueManager"]
    h.now += 60
    h.engine.routing_links()
    assert reads[2:] == ["RoutingLink"]
    other = QueueManager(identifier=OTHER, routing_server=True)
    h.engine.write_directory(other, ["RoutingServer"])
    assert OTHER in [server.identifier for server in h.engine.routing_servers()]
    assert reads[3:] == ["QueueManager"]
    # A directory that is away does not make the enterprise vanish.
    h.engine.routing_links()
    h.directory.connected = False
    h.now += 60
    assert len(h.engine.routing_links()) == 2
