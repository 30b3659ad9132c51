"""Messages through routing servers, from the first queue manager to the last and back.

MS-MQBR; MS-MQQB 3.1.1.5, 3.1.5.8 and 3.1.7.
"""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanner.directory.topology import Computer, Topology, provision
from lanner.model.enums import Acknowledgements, DirectoryOperationResult, MessageClass
from lanner.transfer.tracing import parse_report
from lanner.wire import layout as at
from lanner.wire.builder import MAX_ROUTE_COUNT, set_route_count
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.transfer.enterprise import Enterprise, line, three_sites
from tests.transfer.world import Node, World

ROUTERS = ("R1", "M1", "R2")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def user_messages(node: Node, *, to: Node) -> list[Message]:
    """Return the user messages on the present connections between two computers, with OrderAcks."""
    found = []
    for connection in node.world.connections:
        if connection.node is not node or connection.peer.node is not to:
            continue
        data = b"".join(connection.sent)
        while data:
            size = int.from_bytes(data[8:12], "little")
            if not data[2] & at.IN:
                packet = bytearray(data[:size])
                packet[2] &= ~at.BASE_SH
                found.append(Message(bytes(packet)))
                size += 16 if data[2] & at.BASE_SH else 0
            data = data[size:]
    return found


def waiting(enterprise: Enterprise) -> dict[tuple[str, str], int]:
    """How many messages are in outgoing queues, of whom and for whom."""
    return {
        (name, queue.destination_format_name): queue.message_count
        for name, node in enterprise.nodes.items()
        for queue in node.engine.outgoing_queues()
        if queue.message_count
    }


# The way there
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["private", "public"])
def test_messages_of_every_kind_reach_another_site_over_its_routers(world: World, kind: str) -> None:
    """Each router counts itself, and each computer speaks only to its neighbours."""
    enterprise = three_sites(world)
    alpha, omega = enterprise["ALPHA"], enterprise["OMEGA"]
    make = enterprise.private if kind == "private" else enterprise.public
    q, tx = make("OMEGA", "q"), make("OMEGA", "tx", transactional=True)
    for number in range(40):
        alpha.send(q, b"express %d" % number, recoverable=False)
        alpha.send(q, b"recoverable %d" % number)
        alpha.commit_one(tx, b"%d" % number)
    alpha.sync()
    world.tick(30)
    assert waiting(enterprise) == {}
    mixed = omega.messages(q)
    for prefix in (b"express", b"recoverable"):
        assert [m.body for m in mixed if m.body.startswith(prefix)] == [b"%s %d" % (prefix, n) for n in range(40)]
    ordered = omega.messages(tx)
    assert [message.body for message in ordered] == [b"%d" % number for number in range(40)]
    assert {message.route_count for message in mixed + ordered} == {len(ROUTERS)}
    neighbours = {
        (connection.node.address, connection.peer.node.address)
        for connection in world.connections
        if connection.node.address < connection.peer.node.address
    }
    way = [enterprise[name].address for name in ("ALPHA", *ROUTERS, "OMEGA")]
    assert neighbours == set(itertools.pairwise(way))


@pytest.mark.spec("QQB-3.1.1.5-3")
def test_a_router_passes_sequences_on_byte_for_byte_also_when_it_sends_again(world: World) -> None:
    """Only the count of routers differs, whatever happens to the sessions on either side."""
    enterprise = line(world)
    alpha, router, omega = (enterprise[name] for name in ("ALPHA", "ROUTER", "OMEGA"))
    tx = enterprise.private("OMEGA", "tx", transactional=True)
    for number in range(10):
        alpha.commit_one(tx, b"%d" % number, positive_journaling_requested=number % 2 == 0)
    alpha.sync()
    for _ in range(3):
        # Its disk hangs, so it acknowledges nothing; then it dies.
        omega.network.writes = False
        world.tick(2)
        sent = {message.packet for message in user_messages(alpha, to=router) if message.is_transactional}
        passed = user_messages(router, to=omega)
        assert [message.body for message in passed][:10] == [b"%d" % number for number in range(10)]
        assert {message.route_count for message in passed} == {1}
        assert {set_route_count(message.packet, 0) for message in passed} == sent
        omega.crash()
    world.tick(30)
    assert [m.body for m in omega.messages(tx)] == [b"%d" % number for number in range(10)]
    assert list(router.transfer.incoming.sequences) == []
    assert all(router.engine.outgoing_sequence(queue) is None for queue in router.engine.outgoing_queues())


def test_a_message_to_several_destinations_goes_its_own_way_to_each(world: World) -> None:
    enterprise = three_sites(world)
    alpha = enterprise["ALPHA"]
    near = enterprise.private("R1", "near", transactional=True)
    far = enterprise.public("OMEGA", "far", transactional=True)
    direct = enterprise["M2"].direct("direct")
    enterprise.private("M2", "direct", transactional=True)
    alpha.create("home", transactional=True)
    result, guid = alpha.directory.add_distribution_list("all", [far, direct])
    assert result is DirectoryOperationResult.SUCCESS
    names = [near, far, direct, r"DIRECT=OS:.\private$\home"]
    alpha.commit_one(",".join(names), b"by list of names")
    alpha.commit_one(f"DL={guid}", b"by distribution list")
    alpha.sync()
    world.tick(20)
    both = [b"by list of names", b"by distribution list"]
    assert [m.body for m in enterprise["OMEGA"].messages(far)] == both
    assert [m.body for m in enterprise["M2"].messages("direct")] == both
    (there,) = enterprise["R1"].messages(near)
    assert there.body == alpha.receive("home") == both[0]
    assert there.destination_multi_queue_format_name is not None
    listed = {str(name) for name in there.destination_multi_queue_format_name.elements}
    assert listed == {str(parse(name)) for name in (near, far, direct)} | {r"DIRECT=OS:ALPHA\private$\home"}
    assert waiting(enterprise) == {}


@pytest.mark.spec("QQB-3.1.6.1-1", "QQB-3.1.5.2.1-2")
def test_a_second_gate_is_used_when_the_first_is_down(world: World) -> None:
    enterprise = three_sites(world)
    alpha, omega = enterprise["ALPHA"], enterprise["OMEGA"]
    tx = enterprise.private("OMEGA", "tx", transactional=True)
    enterprise.down("M1")
    sent = []
    for part in range(3):
        for number in range(part * 10, part * 10 + 10):
            alpha.commit_one(tx, b"%d" % number)
            sent.append(b"%d" % number)
        alpha.sync()
        world.tick(10)
        assert omega.bodies(tx) == sent
        (enterprise.up if part else enterprise.down)("M1")
        (enterprise.down if part else enterprise.up)("M2")
    world.tick(10)
    assert waiting(enterprise) == {}


# The way back
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.17-3", "QQB-3.1.1.5-3")
def test_acknowledgments_of_a_sequence_come_from_the_destination_through_the_router(world: World) -> None:
    """An OrderAck is sent when the message is there.

    A FinalAck is sent when a message that requested it has been received. The router adds no
    acknowledgment of its own.
    """
    enterprise = line(world)
    alpha, router, omega = (enterprise[name] for name in ("ALPHA", "ROUTER", "OMEGA"))
    tx = enterprise.private("OMEGA", "tx", transactional=True)
    alpha.commit_one(tx, b"kept", positive_journaling_requested=True)
    alpha.commit_one(tx, b"plain")
    alpha.sync()
    world.tick(5)
    assert alpha.outgoing(tx).message_count == 0
    acks = user_messages(router, to=alpha)
    assert [ack.message_class for ack in acks] == [MessageClass.ORDER_ACK]
    assert {ack.source_machine_identifier for ack in acks} == {omega.guid}
    kept = alpha.engine.queue_manager.awaiting_final_ack_queue
    assert kept is not None
    assert kept.message_count == 1

    assert [message.body for message in omega.messages(tx)] == [b"kept", b"plain"]
    omega.sync()
    world.tick(5)
    acks = user_messages(router, to=alpha)[1:]
    assert [ack.message_class for ack in acks] == [MessageClass.ACK_RECEIVE]
    assert {ack.source_machine_identifier for ack in acks} == {omega.guid}
    assert kept.message_count == 0
    assert [message.body for message in alpha.messages(f"MACHINE={alpha.guid};JOURNAL")] == [b"kept"]


@pytest.mark.spec("QQB-2.2.5-4")
def test_a_message_to_no_queue_is_refused_by_its_destination_and_those_behind_it_are_not_held_up(
    world: World,
) -> None:
    enterprise = line(world)
    alpha, omega = enterprise["ALPHA"], enterprise["OMEGA"]
    tx = enterprise.private("OMEGA", "tx", transactional=True)
    omega.create("admin")
    nowhere = f"PRIVATE={omega.guid}\\000000ff"
    alpha.commit_one(nowhere, b"lost", negative_journaling_requested=True)
    alpha.commit_one(nowhere, b"lost too")
    alpha.commit_one(tx, b"found", negative_journaling_requested=True)
    alpha.sync()
    world.tick(15)
    assert omega.bodies(tx) == [b"found"]
    assert [message.body for message in alpha.messages(f"MACHINE={alpha.guid};DEADXACT")] == [b"lost"]
    assert waiting(enterprise) == {}


@pytest.mark.spec("QQB-3.1.5.8.2-9", "QQB-2.2.5-4")
def test_a_message_that_goes_round_in_circles_is_refused_by_the_thirtieth_router(world: World) -> None:
    """The directories of two routers send the message to each other.

    Its admin queue and a FinalAck report class 0x8005.
    """
    enterprise = Enterprise(
        world,
        (
            Computer("ALPHA", sites=("west",), out_routing_servers=("R1",)),
            Computer("R1", sites=("west",), routing_server=True),
            Computer("R2", sites=("west",), routing_server=True),
            Computer("OMEGA", sites=("west",)),
        ),
    )
    alpha = enterprise["ALPHA"]
    tx = enterprise.private("OMEGA", "tx", transactional=True)
    admin = enterprise.private("ALPHA", "admin")
    for router, other in (("R1", "R2"), ("R2", "R1")):
        node = enterprise[router]
        provision(node.directory, Topology(computers=(Computer("OMEGA", in_routing_servers=(other,)),)))
        node.engine.read_routing_data()
    alpha.commit_one(
        tx,
        b"round",
        negative_journaling_requested=True,
        administration_queue_format_name=parse(admin),
        acknowledgements_requested=Acknowledgements.NACK_REACH_QUEUE,
    )
    alpha.sync()
    world.tick(20)
    counts = [message.route_count for message in user_messages(enterprise["R1"], to=enterprise["R2"])]
    counts += [message.route_count for message in user_messages(enterprise["R2"], to=enterprise["R1"])]
    assert sorted(count for count in counts if count > 1) == list(range(2, MAX_ROUTE_COUNT + 1))
    assert [message.message_class for message in alpha.messages("admin")] == [MessageClass.NACK_HOP_COUNT_EXCEEDED]
    dead = alpha.messages(f"MACHINE={alpha.guid};DEADXACT")
    assert [(message.body, message.message_class) for message in dead] == [
        (b"round", MessageClass.NACK_HOP_COUNT_EXCEEDED)
    ]
    assert waiting(enterprise) == {}


@pytest.mark.spec("QQB-3.1.5.8.9-1", "QQB-3.1.7.1.7-1", "QQB-3.1.7.1.7-2")
def test_a_traced_message_leaves_a_report_at_every_hop(world: World) -> None:
    """Sent by, received by, for each pair of neighbours; the reports find their own way back."""
    enterprise = three_sites(world)
    alpha, omega = enterprise["ALPHA"], enterprise["OMEGA"]
    tx = enterprise.private("OMEGA", "tx", transactional=True)
    trail = enterprise.public("R1", "trail")
    alpha.commit_one(tx, b"untraced")
    alpha.commit_one(
        tx, b"traced", tracing_requested=True, tracing_queue_identifier=uuid.UUID(trail.removeprefix("PUBLIC="))
    )
    alpha.sync()
    world.tick(20)
    ordinal = omega.messages(tx)[-1].identifier.ordinal
    names = {node.guid: name for name, node in enterprise.nodes.items()}
    addresses = {node.address: name for name, node in enterprise.nodes.items()}
    told = set()
    for message in enterprise["R1"].messages(trail):
        report = parse_report(message.label, message.body)
        assert report is not None
        assert (report.source_queue_manager, report.message_ordinal) == (alpha.guid, ordinal)
        assert report.target_queue == str(parse(tx))
        next_hop = "" if report.next_hop is None else addresses[report.next_hop]
        told.add((names[message.source_machine_identifier], next_hop, report.hops))
    assert told == {
        ("ALPHA", "R1", 0),
        *((router, "", count) for count, router in enumerate(ROUTERS, 1)),
        *(
            (router, after, count)
            for count, (router, after) in enumerate(zip(ROUTERS, ("M1", "R2", "OMEGA"), strict=True), 1)
        ),
        ("OMEGA", "", 3),
    }


# Cuts and crashes
# -------------------------------------------------------------------------------------------------


class Storm:
    """Senders at both ends, a reader, and everything that can go wrong between them."""

    def __init__(self, path: Path, build: Callable[..., Enterprise], window_size: int) -> None:
        self.world = World(path)
        self.enterprise = build(self.world, window_size=window_size)
        self.names = list(self.enterprise.nodes)
        self.ends = ("ALPHA", "OMEGA")
        self.queues = {
            (end, kind): self.enterprise.private(end, kind, transactional=kind.startswith("tx"))
            for end in self.ends
            for kind in ("tx", "q", "txdirect")
        }
        self.names_of = self.queues | {(end, "txdirect"): self.enterprise[end].direct("txdirect") for end in self.ends}
        self.sent: Counter[tuple[str, str]] = Counter()
        # Bodies of messages to an end that were not on disk when their sender crashed; and those
        # that are not yet.
        self.doubtful: dict[str, set[bytes]] = {end: set() for end in self.ends}
        self.unsynced: dict[str, set[bytes]] = {end: set() for end in self.ends}
        self.read: dict[str, list[bytes]] = {end: [] for end in self.ends}
        self.has_crashed = False

    def send(self, sender: int, count: int) -> None:
        """So many of each kind, on disk before anything else happens."""
        self.post(sender, count)
        self.sync(self.ends[sender])

    def sync(self, end: str) -> None:
        self.enterprise[end].sync()
        self.unsynced[self.other(end)].clear()

    def other(self, end: str) -> str:
        return self.ends[1 - self.ends.index(end)]

    def post(self, sender: int, count: int) -> None:
        """As `send`, but without waiting for the disk."""
        source, target = self.ends[sender], self.ends[1 - sender]
        node = self.enterprise[source]
        for _ in range(count):
            for kind in ("tx", "txdirect", "recoverable", "express"):
                number = self.sent[target, kind]
                self.sent[target, kind] += 1
                body = b"%s %d" % (kind.encode(), number)
                self.unsynced[target].add(body)
                if kind.startswith("tx"):
                    node.commit_one(self.names_of[target, kind], body, positive_journaling_requested=number % 3 == 0)
                else:
                    node.send(self.queues[target, "q"], body, recoverable=kind == "recoverable")

    def take(self, reader: int, count: int) -> None:
        """Read some of the transactional messages."""
        end = self.ends[reader]
        node = self.enterprise[end]
        for _ in range(count):
            transaction = node.begin()
            body = node.receive(self.queues[end, "tx"], transaction)
            if body is not None:
                self.read[end].append(body)
            node.commit(transaction)
        self.sync(end)

    def work(self, steps: int) -> None:
        """Let some of what is under way happen, and stop in the middle of it."""
        for _ in range(steps):
            if self.world._soon:
                self.world._soon.popleft()()

    def tick(self, quarters: int) -> None:
        self.world.tick(quarters / 4)

    def cut(self, which: int) -> None:
        connections = self.world.connections
        if connections:
            connections[which % len(connections)].cut()

    def crash(self, which: int) -> None:
        self.has_crashed = True
        name = self.names[which % len(self.names)]
        self.enterprise[name].crash()
        if name in self.ends:
            target = self.other(name)
            self.doubtful[target] |= self.unsynced[target]
            self.unsynced[target].clear()

    def gust(self, sender: int, count: int, quarters: int, steps: int, which: int) -> None:
        """Break a connection or a computer while messages or acknowledgments are under way."""
        self.send(sender, count)
        self.tick(quarters)
        self.world.now += 0.25
        for node in self.enterprise.nodes.values():
            node.now = self.world.now
            node.transfer.on_timer()
        self.work(steps)
        if which % 2:
            self.crash(which // 2)
        else:
            self.cut(which // 2)
        self.tick(5)

    def down(self, which: int) -> None:
        self.enterprise.down(self.names[which % len(self.names)])

    def up(self, which: int) -> None:
        self.enterprise.up(self.names[which % len(self.names)])

    def check(self) -> None:
        """When the storm is over everything arrives."""
        self.enterprise.up(*self.names)
        for end in self.ends:
            self.sync(end)
        self.world.tick(60, step=0.5)
        arrived: dict[str, list[bytes]] = {}
        for end in self.ends:
            node = self.enterprise[end]
            of_kind = {kind: self.take_all(end, kind) for kind in ("tx", "txdirect", "q")}
            of_kind["tx"][:0] = self.read[end]
            for kind in ("tx", "txdirect"):
                numbers = [int(body.split()[1]) for body in of_kind[kind]]
                assert numbers == sorted(set(numbers)), "transactional messages arrive once and in order"
                self.check_nothing_is_lost(end, kind, set(of_kind[kind]))
            others = Counter(of_kind["q"])
            assert max(others.values(), default=1) == 1, "nothing comes twice"
            self.check_nothing_is_lost(end, "recoverable", {body for body in others if body.startswith(b"r")})
            self.check_nothing_is_lost(end, "express", {body for body in others if body.startswith(b"e")})
            arrived[end] = of_kind["tx"] + of_kind["txdirect"]
            node.sync()
        self.world.tick(60, step=0.5)
        assert waiting(self.enterprise) == {}
        for end in self.ends:
            node = self.enterprise[end]
            journal = Counter(message.body for message in node.messages(f"MACHINE={node.guid};JOURNAL"))
            expected = [body for body in arrived[self.other(end)] if int(body.split()[1]) % 3 == 0]
            assert journal == Counter(expected), "every message that was read is told of once"

    def take_all(self, end: str, kind: str) -> list[bytes]:
        return [message.body for message in self.enterprise[end].messages(self.queues[end, kind])]

    def check_nothing_is_lost(self, end: str, kind: str, found: set[bytes]) -> None:
        sent = {b"%s %d" % (kind.encode(), number) for number in range(self.sent[end, kind])}
        assert found <= sent
        if kind != "express" or not self.has_crashed:
            assert found >= sent - self.doubtful[end]


_which = st.integers(0, 11)
_STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.just("gust"), st.integers(0, 1), st.integers(1, 30), st.integers(0, 2), st.integers(0, 120), _which),
    st.tuples(st.just("post"), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.just("take"), st.integers(0, 1), st.integers(1, 5)),
    st.tuples(st.just("work"), st.integers(1, 60)),
    st.tuples(st.just("tick"), st.integers(1, 30)),
    st.tuples(st.just("cut"), _which),
    st.tuples(st.just("crash"), _which),
    st.tuples(st.just("down"), _which),
    st.tuples(st.just("up"), _which),
)


Steps = list[tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int, int, int]]


def weather(build: Callable[..., Enterprise], window_size: int, steps: Steps) -> None:
    with tempfile.TemporaryDirectory() as path:
        storm = Storm(Path(path), build, window_size)
        try:
            storm.send(0, 5)
            for name, *arguments in steps:
                getattr(storm, name)(*arguments)
            storm.check()
        finally:
            storm.world.close()


_WINDOWS = st.sampled_from((1, 3, 10, 64))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(_WINDOWS, st.lists(_STEPS, min_size=5, max_size=25))
def test_nothing_is_lost_or_doubled_over_one_router(window_size: int, steps: Steps) -> None:
    weather(line, window_size, steps)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(_WINDOWS, st.lists(_STEPS, min_size=5, max_size=25))
def test_nothing_is_lost_or_doubled_over_three_routers_of_which_one_has_a_stand_in(
    window_size: int, steps: Steps
) -> None:
    weather(three_sites, window_size, steps)


@pytest.mark.soak
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([line, three_sites]), _WINDOWS, st.lists(_STEPS, min_size=5, max_size=60))
def test_nothing_is_lost_or_doubled_in_any_weather(
    build: Callable[..., Enterprise], window_size: int, steps: Steps
) -> None:
    weather(build, window_size, steps)
