"""Sites, routing links, routing servers and other computers, brought into a directory by name."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace

import pytest

from lanner.directory import AttributeFilter, EmbeddedDirectory, MemoryTable, Operator
from lanner.directory.topology import (
    Computer,
    DistributionList,
    Link,
    Signer,
    Topology,
    TopologyError,
    provision,
    remove,
    survey,
)
from lanner.model.directory_objects import DirectoryObject, Queue, QueueManager, RoutingLink, Site
from lanner.security.certificates import generate_certificate
from lanner.wire.public_keys import MqdsPublicKey, MqdsPublicKeys, ProviderType

ALPHA, BETA, GAMMA = (uuid.UUID(int=number) for number in (1, 2, 3))
ORDERS = uuid.UUID(int=77)

NETWORK = Topology(
    sites=("north", "south"),
    computers=(
        Computer("ALPHA", ALPHA, "alpha.example.org", ("north",), routing_server=True),
        Computer(
            "BETA",
            BETA,
            sites=("south",),
            out_routing_servers=("GAMMA",),
            in_routing_servers=("GAMMA", "ALPHA"),
            public_queues={"orders": ORDERS},
        ),
        Computer("GAMMA", GAMMA, sites=("north", "south"), routing_server=True),
    ),
    links=(Link("north", "south", 7, ("ALPHA", "GAMMA")),),
)

LIST = uuid.UUID(int=88)
KEYS = MqdsPublicKeys((MqdsPublicKey(ProviderType.PROV_RSA_FULL, "a provider", b"a key"),)).pack()
ALICE, BOB = "S-1-5-21-1-2-3-1001", "S-1-5-21-4-5-6-1001"
EVERYBODY = DistributionList("everybody", LIST, (f"PUBLIC={ORDERS}", r"DIRECT=OS:delta\private$\q"))


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


@pytest.fixture
def directory(table: MemoryTable) -> EmbeddedDirectory:
    directory = EmbeddedDirectory(table, clock=lambda: 1_700_000_000.0)
    directory.provision("north")
    return directory


def read(directory: EmbeddedDirectory, kind: str, attribute: str, value: object) -> DirectoryObject:
    _, found = directory.read(kind, [AttributeFilter(attribute, Operator.EQUALS, value)])
    assert found is not None
    return found


def site(directory: EmbeddedDirectory, name: str) -> uuid.UUID:
    return read(directory, "Site", "Name", name).identifier


def manager(directory: EmbeddedDirectory, name: str) -> QueueManager:
    found = read(directory, "QueueManager", "ComputerName", name)
    assert isinstance(found, QueueManager)
    return found


def the_link(directory: EmbeddedDirectory) -> RoutingLink:
    _, found = directory.read("RoutingLink", None)
    assert isinstance(found, RoutingLink)
    return found


def test_what_is_named_is_there_afterwards(directory: EmbeddedDirectory) -> None:
    provision(directory, NETWORK)
    north, south = site(directory, "north"), site(directory, "south")
    alpha, beta = manager(directory, "alpha"), manager(directory, "beta")
    assert (alpha.identifier, alpha.qualified_computer_name, alpha.site_identifier_list, alpha.routing_server) == (
        ALPHA,
        "alpha.example.org",
        [north],
        True,
    )
    assert beta.site_identifier_list == [south]
    assert not beta.routing_server
    assert beta.out_routing_server_identifier_list == [GAMMA]
    assert beta.in_routing_server_identifier_list == [GAMMA, ALPHA]
    queue = read(directory, "Queue", "Identifier", ORDERS)
    assert isinstance(queue, Queue)
    assert queue.pathname == r"beta\orders"
    assert queue.queue_manager is not None
    assert queue.queue_manager.identifier == BETA
    link = the_link(directory)
    assert {link.site1_identifier, link.site2_identifier} == {north, south}
    assert (link.actual_cost, link.site_gate_identifier_list) == (7, [ALPHA, GAMMA])


def test_doing_it_again_changes_nothing(directory: EmbeddedDirectory, table: MemoryTable) -> None:
    provision(directory, NETWORK)
    before = dict(table.rows)
    provision(directory, NETWORK)
    assert table.rows == before


def test_what_is_named_differently_is_changed_and_the_rest_stays(directory: EmbeddedDirectory) -> None:
    provision(directory, NETWORK)
    changed = Topology(
        computers=(Computer("alpha", sites=("south",)), replace(NETWORK.computers[1], out_routing_servers=())),
        links=(Link("SOUTH", "north", 3, ("GAMMA",)),),
    )
    provision(directory, changed)
    alpha = manager(directory, "ALPHA")
    assert (alpha.routing_server, alpha.site_identifier_list) == (False, [site(directory, "south")])
    # Not named, so kept.
    assert alpha.qualified_computer_name == "alpha.example.org"
    assert manager(directory, "BETA").out_routing_server_identifier_list == []
    assert manager(directory, "GAMMA").routing_server
    # The same link, whichever site is named first.
    link = the_link(directory)
    assert (link.actual_cost, link.site_gate_identifier_list) == (3, [GAMMA])
    _, handle = directory.read_begin("RoutingLink", None)
    assert handle is not None
    directory.read_next(handle)
    assert directory.read_next(handle)[1] is None


def test_a_new_computer_is_in_the_only_site(directory: EmbeddedDirectory) -> None:
    provision(directory, Topology(computers=(Computer("BETA", BETA),)))
    assert manager(directory, "BETA").site_identifier_list == [site(directory, "north")]
    directory.create_object(Site(name="south"))
    # It stays where it is, and only of others one must say it.
    provision(directory, Topology(computers=(Computer("BETA"),)))
    assert manager(directory, "BETA").site_identifier_list == [site(directory, "north")]


@pytest.mark.parametrize(
    ("topology", "complaint"),
    [
        (Topology(computers=(Computer("DELTA"),)), "computer DELTA: its identifier is needed"),
        (Topology(computers=(Computer("ALPHA", BETA),)), f"computer ALPHA: the directory knows it as {ALPHA}"),
        (Topology(computers=(Computer("DELTA", uuid.UUID(int=9)),)), "computer DELTA: its site is needed"),
        (Topology(computers=(Computer("DELTA", BETA, sites=("north",)),)), "computer DELTA: something else in"),
        (Topology(computers=(Computer("ALPHA", sites=("west",)),)), "computer ALPHA: there is no site west"),
        (
            Topology(computers=(Computer("ALPHA", out_routing_servers=("X",)),)),
            "computer ALPHA: there is no computer X",
        ),
        (
            Topology(computers=(Computer("ALPHA", public_queues={"q": ORDERS}),)),
            rf"public queue ALPHA\\q: {ORDERS} is beta\\orders already",
        ),
        (Topology(sites=("west", "West")), "site West is there twice"),
        (Topology(computers=(Computer("DELTA", GAMMA), Computer("delta", GAMMA))), "computer delta is there twice"),
        (Topology(links=(Link("north", "south"), Link("South", "north"))), "routing link north - South is there twice"),
        (Topology(distribution_lists=(EVERYBODY, replace(EVERYBODY, name="EVERYBODY"))), "EVERYBODY is there twice"),
        (Topology(computers=(Computer("ALPHA", signing_keys=b"x"),)), "computer ALPHA: its keys cannot be read: "),
        (Topology(signers=(Signer("alice"),)), "user alice: 'alice' is not a SID"),
        (Topology(signers=(Signer(ALICE, "alice", (b"x",)),)), "user alice: not an X.509 certificate"),
        (Topology(signers=(Signer(ALICE), Signer(ALICE))), f"user {ALICE} is there twice"),
        (Topology(links=(Link("north", "west"),)), "routing link north - west: there is no site west"),
        (Topology(links=(Link("north", "NORTH"),)), "routing link north - NORTH: two different sites"),
        (Topology(links=(Link("north", "south", 0),)), "routing link north - south: its cost is 0"),
        (Topology(links=(Link("north", "south", 1, ("X",)),)), "routing link north - south: there is no computer X"),
        (
            Topology(sites=("west",), links=(Link("north", "west", 1, ("BETA",)),)),
            "routing link north - west: the site gate BETA belongs to neither site",
        ),
    ],
)
def test_a_mistake_is_reported(directory: EmbeddedDirectory, topology: Topology, complaint: str) -> None:
    provision(directory, NETWORK)
    with pytest.raises(TopologyError, match=complaint):
        provision(directory, topology)


def test_of_what_does_not_fit_together_nothing_is_done(directory: EmbeddedDirectory, table: MemoryTable) -> None:
    provision(directory, NETWORK)
    before = dict(table.rows)
    fine = Topology(sites=("west",), computers=(replace(NETWORK.computers[0], sites=("west",)),))
    for wrong in (
        replace(fine, computers=(*fine.computers, Computer("DELTA", uuid.UUID(int=9), sites=("east",)))),
        replace(fine, links=(Link("north", "east"),)),
        # ALPHA would be in the west by then.
        replace(fine, links=(Link("north", "south", 1, ("ALPHA",)),)),
        replace(fine, distribution_lists=(DistributionList("all", LIST, ("DIRECT=OS",)),)),
        replace(fine, distribution_lists=(DistributionList("all", LIST, (r"DIRECT=OS:beta:1801\q",)),)),
        replace(fine, distribution_lists=(DistributionList("all", LIST, ("orders",)),)),
        replace(fine, computers=(*fine.computers, Computer("DELTA:1801", uuid.UUID(int=9), sites=("west",)))),
        # What only turns out on the way: identifiers that others have, and names that cannot be.
        replace(fine, distribution_lists=(DistributionList("all", ORDERS),)),
        replace(fine, computers=(*fine.computers, Computer("BETA", public_queues={"new": ORDERS}))),
        replace(fine, computers=(*fine.computers, Computer("BETA", public_queues={"": uuid.UUID(int=5)}))),
        replace(fine, computers=(*fine.computers, Computer("BETA", public_queues={"Orders": uuid.UUID(int=5)}))),
        replace(fine, sites=("west", "")),
    ):
        with pytest.raises(TopologyError):
            provision(directory, wrong)
        assert table.rows == before


def test_what_was_done_is_reported(directory: EmbeddedDirectory) -> None:
    assert provision(directory, replace(NETWORK, distribution_lists=(EVERYBODY,))) == [
        "site south is new",
        "computer ALPHA is new",
        "computer BETA is new",
        r"public queue BETA\orders is new",
        "computer GAMMA is new",
        "routing link north - south is new",
        "distribution list everybody is new",
    ]
    shorter = replace(EVERYBODY, members=EVERYBODY.members[:1])
    changed = Topology(
        computers=(replace(NETWORK.computers[0], routing_server=False),),
        links=(Link("south", "north", 8, ("ALPHA", "GAMMA")),),
        distribution_lists=(shorter,),
    )
    assert provision(directory, changed) == [
        "computer ALPHA is changed",
        "routing link south - north is changed",
        "distribution list everybody is changed",
    ]
    assert directory.resolve_distribution_list(LIST, None)[1] == [f"PUBLIC={ORDERS}"]
    assert provision(directory, changed) == []


def test_a_survey_tells_what_was_provisioned(directory: EmbeddedDirectory) -> None:
    wanted = replace(NETWORK, distribution_lists=(EVERYBODY,))
    provision(directory, wanted)
    assert survey(directory) == wanted


@pytest.mark.parametrize(
    ("kind", "names", "complaint"),
    [
        ("site", ("west",), "site west: there is no site west"),
        ("site", ("north",), "a routing link leads there"),
        ("computer", ("DELTA",), "there is no computer DELTA"),
        ("computer", ("alpha",), "computer alpha: it is a site gate of north - south"),
        ("link", ("north", "west"), "there is no site west"),
        ("link", ("north",), "a link by its two sites"),
        ("list", ("nobody",), "distribution list nobody: there is no such list"),
        ("queue", ("orders",), "a site, a computer or a list by its name"),
    ],
)
def test_what_cannot_be_removed(
    directory: EmbeddedDirectory, table: MemoryTable, kind: str, names: tuple[str, ...], complaint: str
) -> None:
    provision(directory, NETWORK)
    before = dict(table.rows)
    with pytest.raises(TopologyError, match=complaint):
        remove(directory, kind, *names)
    assert table.rows == before


def test_things_are_removed(directory: EmbeddedDirectory) -> None:
    provision(directory, replace(NETWORK, distribution_lists=(EVERYBODY,)))
    remove(directory, "list", "EVERYBODY")
    remove(directory, "link", "south", "north")
    with pytest.raises(TopologyError, match="link south - north: there is no such link"):
        remove(directory, "link", "south", "north")
    with pytest.raises(TopologyError, match="site south: computer BETA is there"):
        remove(directory, "site", "south")
    with pytest.raises(TopologyError, match="computer GAMMA: it is a routing server of BETA"):
        remove(directory, "computer", "GAMMA")
    remove(directory, "computer", "beta")
    remove(directory, "computer", "GAMMA")
    remove(directory, "site", "SOUTH")
    assert survey(directory) == Topology(("north",), NETWORK.computers[:1])


def test_keys_of_computers_and_certificates_of_users_are_known(
    directory: EmbeddedDirectory, certificates: tuple[bytes, bytes]
) -> None:
    """Users of two computers may have the same name; their SIDs differ."""
    provision(directory, NETWORK)
    signers = (Signer(ALICE, "alice", certificates[:1]), Signer(BOB, "alice", certificates[1:]))
    secured = Topology(
        computers=(Computer("BETA", encryption_keys=KEYS), Computer("GAMMA", signing_keys=KEYS)), signers=signers
    )
    assert provision(directory, secured)[:2] == ["computer BETA is changed", "computer GAMMA is changed"]
    assert provision(directory, secured) == []
    # What a file does not say stays.
    provision(directory, Topology(computers=(Computer("BETA"), Computer("GAMMA"))))
    assert manager(directory, "BETA").public_encryption_key_list == KEYS
    assert manager(directory, "GAMMA").public_signing_key_list == KEYS
    alice, bob = survey(directory).signers
    assert alice == signers[0]
    assert (bob.sid, bob.name, bob.certificates) == (BOB, f"alice {BOB}", certificates[1:])
    # Another certificate comes beside the one that is known.
    more = Topology(signers=(Signer(ALICE, certificates=certificates[1:]),))
    assert provision(directory, more) == [f"user {ALICE} is changed"]
    assert survey(directory).signers[0].certificates == certificates
    remove(directory, "user", ALICE)
    assert survey(directory).signers == (bob,)
    with pytest.raises(TopologyError, match="there is no such user"):
        remove(directory, "user", ALICE)


@pytest.fixture(scope="module")
def certificates() -> tuple[bytes, bytes]:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return generate_certificate("one", now).certificate, generate_certificate("two", now).certificate


def test_a_directory_that_is_away_is_reported(directory: EmbeddedDirectory) -> None:
    directory.connected = False
    with pytest.raises(TopologyError, match="all objects of Site: the directory answers DirectoryNotConnected"):
        provision(directory, NETWORK)
