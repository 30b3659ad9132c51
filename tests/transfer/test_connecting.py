"""From an outgoing queue to a session, and what an operator sees of it.

MS-MQQB 3.1.5.2, 3.1.5.9, 3.1.6.1 and 3.1.7.12-14.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from lanner.model.directory_objects import GUID_NULL, OutgoingQueue
from lanner.model.enums import Acknowledgements, ConnectionStatus, OutgoingState
from lanner.transfer.addresses import HopHost, NextHop
from lanner.transfer.deadlines import NEVER
from lanner.transfer.route import Route
from lanner.transfer.route_stages import Stage
from lanner.transfer.session_states import SessionState
from lanner.wire.format_name import parse
from lanner.wire.internal_header import EstablishConnectionHeader, PacketType
from lanner.wire.reader import Reader
from tests.overlay import overlay
from tests.transfer.world import FakeConnection, Node, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def alpha(world: World) -> Node:
    return world.node("ALPHA", "127.0.0.2")


@pytest.fixture
def beta(world: World) -> Node:
    return with_queues(world.node("BETA", "127.0.0.3"))


def with_queues(node: Node) -> Node:
    node.create("q")
    node.create("tx", transactional=True)
    return node


def send(node: Node, name: str, *bodies: bytes) -> OutgoingQueue:
    for body in bodies:
        node.send(name, body)
    node.sync()
    return node.outgoing(name)


def state_of(queue: OutgoingQueue) -> OutgoingState:
    """A function, since what the world does to a queue is no business of a type checker."""
    return queue.state


def statuses(queue: OutgoingQueue) -> list[ConnectionStatus]:
    return [entry.status for entry in queue.connection_history]


def packet_types(connection: FakeConnection) -> list[PacketType | None]:
    """Return the types of the internal packets that were written first on a connection."""
    data = b"".join(connection.sent)
    found: list[PacketType | None] = []
    while data:
        size = int.from_bytes(data[8:12], "little")
        is_internal = data[2] & 0x08
        found.append(PacketType(data[18] & 0xF) if is_internal else None)
        data = data[size:]
    return found


# Establishing
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.12-2", "QQB-3.1.5.2.3-2", "QQB-3.1.5.4.2-1", "QQB-3.1.5.4.2-2", "DMPR-3.1.1.3-2")
def test_the_first_message_of_a_queue_opens_a_session_and_the_queue_tells_each_step(
    world: World, alpha: Node, beta: Node
) -> None:
    name = beta.direct("q")
    seen: list[tuple[OutgoingState, list[str] | None]] = []
    real = alpha.transfer.data_received

    def watch(*args: object) -> None:
        queue = alpha.outgoing(name)
        seen.append((queue.state, queue.next_hops))
        real(*args)  # type: ignore[arg-type]

    alpha.transfer = overlay(alpha.transfer, data_received=watch)
    queue = send(alpha, name, b"one")
    assert state_of(queue) is OutgoingState.INACTIVE
    assert queue.connection_history == []
    world.run()
    assert (OutgoingState.WAITING, ["IP=127.0.0.3"]) in seen
    assert statuses(queue) == [
        ConnectionStatus.IN_PROCESS,
        ConnectionStatus.ESTABLISH_PACKET_RECEIVED,
        ConnectionStatus.ESTABLISHED,
    ]
    for entry in queue.connection_history:
        assert entry.error == 0
        assert entry.address_list == ["IP=127.0.0.3"]
        assert entry.connection_history_time == int(world.now)
    assert state_of(queue) is OutgoingState.CONNECTED
    assert queue.next_hops == ["IP=127.0.0.3"]
    link = alpha.route(name).link
    assert link is not None
    assert link.session.received_window_size == 64
    assert beta.bodies("q") == [b"one"]


@pytest.mark.spec("QQB-2.1.1-3")
def test_the_acceptor_never_speaks_first_and_messages_flow_only_after_the_handshake(
    world: World, alpha: Node, beta: Node
) -> None:
    send(alpha, beta.direct("q"), b"one")
    while not world.connections:
        world._soon.popleft()()
    pairs = list(world.connections)
    accepting = next(one for one in pairs if one.node is beta)
    assert accepting.sent == []
    world.run()
    initiating = next(one for one in pairs if one.node is alpha)
    assert packet_types(initiating)[:3] == [
        PacketType.ESTABLISH_CONNECTION,
        PacketType.CONNECTION_PARAMETERS,
        None,
    ]
    assert packet_types(accepting)[:2] == [PacketType.ESTABLISH_CONNECTION, PacketType.CONNECTION_PARAMETERS]


@pytest.mark.spec("QQB-3.1.5.2-1", "DMPR-3.1.1.3-3", "QQB-3.1.2.3-1")
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errno.ECONNREFUSED, ConnectionStatus.SOCKET_CONNECT_FAILURE, 0x8007_274D),
        (errno.ETIMEDOUT, ConnectionStatus.SOCKET_CONNECT_FAILURE, 0x8007_274C),
        (errno.EMFILE, ConnectionStatus.SOCKET_CREATE_FAILURE, 0x8007_2728),
        (errno.EADDRNOTAVAIL, ConnectionStatus.SOCKET_BIND_FAILURE, 0x8007_2741),
        (errno.ENOMEM, ConnectionStatus.LOW_RESOURCE, 0x8000_4005),
    ],
)
def test_a_failed_attempt_is_recorded_and_tried_again_after_five_seconds(
    world: World, alpha: Node, beta: Node, error: int, status: ConnectionStatus, code: int
) -> None:
    world.unreachable["127.0.0.3"] = error
    queue = send(alpha, beta.direct("q"), b"one")
    world.run()
    entry = queue.connection_history[-1]
    assert (entry.status, entry.error) == (status, code)
    assert entry.connection_history_time == int(world.now)
    assert entry.address_list == ["IP=127.0.0.3"]
    assert state_of(queue) is OutgoingState.DISCONNECTED
    assert "127.0.0.3" in alpha.route(beta.direct("q")).problem
    assert alpha.route(beta.direct("q")).retry_due == world.now + 5
    count = len(queue.connection_history)
    world.tick(4.5)
    assert len(queue.connection_history) == count
    world.unreachable.clear()
    world.tick(0.5)
    assert state_of(queue) is OutgoingState.CONNECTED
    assert beta.bodies("q") == [b"one"]


@pytest.mark.spec("QQB-3.1.1.1.1.1-1")
def test_only_the_timer_ends_the_wait_for_another_attempt(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    world.unreachable["127.0.0.3"] = errno.ECONNREFUSED
    send(alpha, name, b"one")
    world.run()
    route = alpha.route(name)
    assert route.stage is Stage.WAITING_RECONNECT
    world.unreachable.clear()
    # Neither that a session could be opened, nor another message.
    send(alpha, name, b"two")
    world.tick(4.5)
    assert alpha.route(name).stage is Stage.WAITING_RECONNECT
    assert world.connections == []
    world.tick(0.5)
    assert alpha.route(name).stage is Stage.ATTACHED
    link = route.link
    assert link is not None
    assert link.session.state is SessionState.OPEN


@pytest.mark.spec("QQB-3.1.2.3-1")
def test_a_slow_network_has_its_delay_added_to_the_retry_interval(world: World, beta: Node) -> None:
    alpha = world.node("ALPHA", "127.0.0.2", round_trip_delay=2.0, try_connect_interval=3.0)
    world.unreachable["127.0.0.3"] = errno.ECONNREFUSED
    send(alpha, beta.direct("q"), b"one")
    world.run()
    assert alpha.route(beta.direct("q")).retry_due == world.now + 5


@pytest.mark.spec("QQB-3.1.5.2-1", "QQB-3.1.5.2.1-1")
def test_a_name_without_an_address_is_recorded_as_a_failure_of_dns(world: World, alpha: Node) -> None:
    queue = send(alpha, r"DIRECT=OS:nowhere.invalid\private$\q", b"one")
    world.run()
    assert statuses(queue) == [ConnectionStatus.DNS_FAILURE]
    assert queue.connection_history[0].error == 0x8007_2AF9
    assert queue.next_hops == []
    assert alpha.route(queue.destination_format_name).stage is Stage.WAITING_RECONNECT


@pytest.mark.spec("QQB-3.1.5.2.1-1")
def test_a_destination_that_the_directory_does_not_know_needs_validation(world: World, alpha: Node) -> None:
    queue = send(alpha, f"PRIVATE={uuid4()}\\7", b"one")
    world.run()
    assert state_of(queue) is OutgoingState.NEED_VALIDATION
    assert world.connections == []
    route = alpha.route(queue.destination_format_name)
    assert route.retry_due == world.now + 5
    assert statuses(queue) == [ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE]


@pytest.mark.spec("QQB-3.1.5.2.1-1")
def test_a_paused_queue_stays_on_hold_whatever_the_directory_says(world: World, alpha: Node) -> None:
    queue = send(alpha, f"PRIVATE={uuid4()}\\7", b"one")
    alpha.engine.pause_queue(queue)
    world.tick(20)
    assert state_of(queue) is OutgoingState.ON_HOLD
    assert queue.connection_history == []


@pytest.mark.spec("QQB-3.1.5.2.1-3")
def test_a_direct_name_is_connected_to_without_routing_or_directory(world: World, alpha: Node, beta: Node) -> None:
    alpha.directory.connected = False
    send(alpha, beta.direct("q"), b"one")
    world.run()
    assert beta.bodies("q") == [b"one"]
    connection = next(one for one in world.connections if one.node is alpha)
    request = EstablishConnectionHeader.unpack(Reader(connection.sent[0], 20))
    assert request.server_guid == GUID_NULL


@pytest.mark.spec("QQB-3.1.6.1-1", "QQB-3.1.5.2.1-2", "QQB-3.1.5.4.2-2")
def test_the_next_hop_is_tried_before_names_are_resolved_again(world: World, alpha: Node, beta: Node) -> None:
    name = r"DIRECT=OS:cluster\private$\q"
    asked: list[str] = []
    found = [NextHop(GUID_NULL, "cluster", address) for address in ("127.0.0.9", "127.0.0.3")]

    def watch(hosts: list[HopHost]) -> list[NextHop]:
        asked.extend(host.host_names[0] for host in hosts)
        return found

    alpha.network.hops = watch
    queue = send(alpha, name, b"one", b"two")
    world.run()
    assert queue.next_hops == ["IP=127.0.0.9", "IP=127.0.0.3"]
    assert queue.connection_history[-1].address_list == ["IP=127.0.0.9"]
    assert asked == ["cluster"]
    world.tick(5)
    assert asked == ["cluster"]
    assert state_of(queue) is OutgoingState.CONNECTED
    assert queue.next_hops == ["IP=127.0.0.3"]
    assert beta.bodies("q") == [b"one", b"two"]
    # After the last hop the names are asked for anew.
    beta.is_running = False
    world.cut()
    send(alpha, name, b"three")
    world.tick(5)
    assert asked == ["cluster", "cluster"]


@pytest.mark.spec("QQB-3.1.5.2.2-2", "QQB-3.1.5.2.2-1")
def test_a_ping_without_answer_opens_no_connection_and_a_retry_does_not_ping(world: World, beta: Node) -> None:
    alpha = world.node("ALPHA", "127.0.0.2", pings_before_connecting=True)
    world.refuses_pings.add("127.0.0.3")
    queue = send(alpha, beta.direct("q"), b"one")
    world.run()
    assert statuses(queue) == [ConnectionStatus.PING_FAILURE]
    assert world.connections == []
    assert alpha.route(beta.direct("q")).retry_due == world.now + 5
    world.tick(5)
    assert beta.bodies("q") == [b"one"]
    request = EstablishConnectionHeader.unpack(
        Reader(next(one for one in world.connections if one.node is alpha).sent[0], 20)
    )
    assert request.was_not_pinged


@pytest.mark.spec("QQB-2.2.3.1-5")
def test_a_session_after_a_ping_says_so(world: World, beta: Node) -> None:
    alpha = world.node("ALPHA", "127.0.0.2", pings_before_connecting=True)
    send(alpha, beta.direct("q"), b"one")
    world.run()
    assert beta.bodies("q") == [b"one"]
    request = EstablishConnectionHeader.unpack(
        Reader(next(one for one in world.connections if one.node is alpha).sent[0], 20)
    )
    assert not request.was_not_pinged


@pytest.mark.spec("QQB-2.2.1-4")
def test_a_session_above_the_maximum_is_refused_and_the_sender_sees_it(world: World, alpha: Node) -> None:
    beta = with_queues(world.node("BETA", "127.0.0.3", max_in_sessions=0))
    queue = send(alpha, beta.direct("q"), b"one")
    world.run()
    assert statuses(queue)[-1] is ConnectionStatus.CONNECTION_REFUSED
    assert "refuse" in alpha.route(beta.direct("q")).problem
    assert beta.bodies("q") == []
    assert beta.transfer.links == {}


def test_a_name_of_our_own_that_we_do_not_know_keeps_its_messages(world: World, alpha: Node) -> None:
    world.nodes["127.0.0.77"] = alpha  # an address of this computer that nobody told it of
    queue = send(alpha, r"DIRECT=TCP:127.0.0.77\private$\q", b"one")
    world.tick(1)
    assert queue.message_count == 1
    assert "itself" in alpha.route(queue.destination_format_name).problem
    del world.nodes["127.0.0.77"]


def test_queues_to_one_host_share_a_session(world: World, alpha: Node, beta: Node) -> None:
    send(alpha, beta.direct("q"), b"one")
    alpha.commit_one(beta.direct("tx"), b"two")
    alpha.sync()
    world.run()
    assert beta.bodies("q") == [b"one"]
    assert beta.bodies("tx") == [b"two"]
    assert len(alpha.transfer.links) == 1


@pytest.mark.spec("QQB-1.3.5.1-1")
def test_acknowledgments_take_the_session_that_their_messages_came_by(world: World, alpha: Node, beta: Node) -> None:
    alpha.create("admin")
    transaction = alpha.begin()
    alpha.send(
        beta.direct("tx"),
        b"one",
        transaction=transaction,
        acknowledgements_requested=Acknowledgements.POS_ARRIVAL,
        administration_queue_format_name=parse(alpha.direct("admin")),
        positive_journaling_requested=True,
    )
    alpha.commit(transaction)
    alpha.sync()
    world.tick(1)
    assert len(alpha.bodies("admin")) == 1
    assert beta.receive("tx") == b"one"
    beta.sync()
    world.tick(2)
    # The OrderAck, the FinalAck and the administration acknowledgment came by the one connection
    # there is.
    assert alpha.outgoing(beta.direct("tx")).message_count == 0
    assert alpha.engine.queue_manager.system_journal_queue is not None
    assert alpha.engine.queue_manager.system_journal_queue.message_count == 1
    assert len(beta.transfer.links) == 1
    # Without a session a FinalAck opens one.
    alpha.commit_one(beta.direct("tx"), b"two", positive_journaling_requested=True)
    alpha.sync()
    world.tick(2)
    world.cut()
    assert beta.receive("tx") == b"two"
    beta.sync()
    world.tick(1)
    assert [link.is_initiator for link in beta.transfer.links.values()] == [True]
    assert alpha.engine.queue_manager.system_journal_queue.message_count == 2


def test_who_connects_from_the_address_of_a_direct_name_does_not_get_its_messages(
    world: World, alpha: Node, beta: Node
) -> None:
    """A program on the same computer as the queue manager that is meant, for example."""
    stranger = world.node("STRANGER", "127.0.0.9")
    with_queues(alpha)
    stranger.address = beta.address
    stranger.send(alpha.direct("q"), b"hello")
    stranger.sync()
    world.run()
    assert alpha.bodies("q") == [b"hello"]
    send(alpha, beta.direct("q"), b"for beta")
    world.run()
    assert beta.bodies("q") == [b"for beta"]
    assert sorted(link.is_initiator for link in alpha.transfer.links.values()) == [False, True]


def test_a_peer_that_cannot_be_connected_to_gets_its_messages_on_the_session_it_opened(
    world: World, alpha: Node, beta: Node
) -> None:
    """Behind a firewall, for example."""
    with_queues(alpha)
    world.unreachable[beta.address] = errno.ECONNREFUSED
    send(alpha, beta.direct("q"), b"one")
    world.run()
    send(beta, alpha.direct("q"), b"hello")
    world.run()
    assert beta.bodies("q") == [b"one"]
    send(alpha, beta.direct("q"), b"two")
    world.run()
    assert beta.bodies("q") == [b"one", b"two"]


def test_a_message_behind_an_acknowledgment_takes_a_connection_of_our_own(
    world: World, alpha: Node, beta: Node
) -> None:
    with_queues(alpha)
    alpha.create("admin")
    alpha.send(
        beta.direct("q"),
        b"one",
        acknowledgements_requested=Acknowledgements.POS_ARRIVAL,
        administration_queue_format_name=parse(alpha.direct("admin")),
    )
    alpha.sync()
    world.run()
    assert [link.is_initiator for link in beta.transfer.links.values()] == [False]
    send(beta, alpha.direct("admin"), b"ordinary")
    world.run()
    assert alpha.bodies("admin")[-1] == b"ordinary"
    assert len(alpha.bodies("admin")) == 2
    assert sorted(link.is_initiator for link in beta.transfer.links.values()) == [False, True]


# Closing
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.9-1", "QQB-3.1.5.9-2", "QQB-3.1.7.3-1", "QQB-3.1.7.1.6-1")
def test_a_broken_connection_is_opened_again_when_something_is_left_to_send(
    world: World, alpha: Node, beta: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = beta.direct("q")
    states: list[OutgoingState] = []
    set_state = Route.set_state

    def noted(route: Route, state: OutgoingState) -> None:
        states.append(state)
        set_state(route, state)

    queue = send(alpha, name, b"one")
    world.run()
    route = alpha.route(name)
    monkeypatch.setattr(Route, "set_state", noted)
    link = route.link
    assert link is not None
    world.cut()
    assert link.session.state is SessionState.CLOSED
    assert link.session.next_deadline() == NEVER
    assert states == [OutgoingState.DISCONNECTING, OutgoingState.DISCONNECTED]
    assert state_of(queue) is OutgoingState.DISCONNECTED
    # The message was not acknowledged: it is in the table, and the timer runs.
    assert route.stage is Stage.WAITING_RECONNECT
    assert route.retry_due == world.now + 5
    world.tick(5)
    assert state_of(queue) is OutgoingState.CONNECTED
    assert beta.bodies("q") == [b"one"]  # sent twice, kept once
    assert beta.transfer.incoming.duplicates == 1
    world.tick(2)
    assert queue.message_count == 0


@pytest.mark.spec("QQB-3.1.7.12-3", "QQB-3.1.5.9-1")
def test_an_idle_session_is_closed_and_the_next_message_opens_another(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    queue = send(alpha, name, b"one")
    world.tick(2)
    assert queue.message_count == 0
    world.tick(601, step=5)
    assert alpha.transfer.links == {}
    assert beta.transfer.links == {}
    assert world.connections == []
    assert state_of(queue) is OutgoingState.DISCONNECTED
    send(alpha, name, b"two")
    world.run()
    assert beta.bodies("q") == [b"one", b"two"]


@pytest.mark.spec("QQB-3.1.4.1-1")
def test_a_start_connects_for_every_queue_that_has_messages(world: World, alpha: Node, beta: Node) -> None:
    guid = alpha.guid
    world.unreachable["127.0.0.3"] = errno.ECONNREFUSED
    send(alpha, beta.direct("q"), b"one")
    world.run()
    world.unreachable.clear()
    alpha.crash()
    world.run()
    assert alpha.guid == guid
    assert beta.bodies("q") == [b"one"]


@pytest.mark.spec("QQB-3.1.4.2-1")
def test_a_stop_closes_every_session(world: World, alpha: Node, beta: Node) -> None:
    send(alpha, beta.direct("q"), b"one")
    world.run()
    link = next(iter(alpha.transfer.links.values()))
    alpha.transfer.stop()
    assert link.session.state is SessionState.CLOSED
    assert link.session.next_deadline() == NEVER
    world.run()
    assert world.connections == []
    assert beta.transfer.links == {}


@pytest.mark.spec("QQB-3.1.5.10-1")
def test_an_accepted_connection_waits_for_its_establish_connection(world: World, alpha: Node, beta: Node) -> None:
    connection, other = FakeConnection(beta), FakeConnection(alpha)
    connection.peer, other.peer = other, connection
    world.connections += (connection, other)
    beta.transfer.accepted(connection, "127.0.0.9")
    assert connection.link is not None
    assert connection.link.session.state is SessionState.WAITING_EC_MSG
    world.tick(59)
    assert beta.transfer.links != {}
    world.tick(2)
    assert beta.transfer.links == {}
    assert connection.is_closed


# Pause and resume
# -------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.12-1")
@pytest.mark.parametrize("is_multicast", [False, True])
def test_other_protocols_messages_are_left_alone(world: World, alpha: Node, beta: Node, *, is_multicast: bool) -> None:
    queue = send(alpha, beta.direct("q") if is_multicast else r"DIRECT=HTTP://127.0.0.3/msmq/q", b"one")
    queue.multicast = is_multicast
    world.tick(10)
    assert queue.connection_history == []
    assert queue.message_count == 1
    assert world.connections == []
    if not is_multicast:
        # Who looks at the outgoing queue sees why it waits.
        assert alpha.transfer.routes[queue.number].problem == "this version does not send over HTTP (MC-MQSRM)"


@pytest.mark.spec("QQB-3.1.7.12-1")
def test_a_locked_queue_sends_nothing(world: World, beta: Node) -> None:
    alpha = world.node("ALPHA", "127.0.0.2", hardened_security=True)
    queue = send(alpha, beta.direct("q"), b"one")
    world.tick(10)
    assert state_of(queue) is OutgoingState.LOCKED
    assert world.connections == []


@pytest.mark.spec("QQB-3.1.7.13-1", "QQB-3.1.7.14-1", "QQB-3.1.7.12-1", "DMPR-3.1.1.3-2")
def test_a_paused_queue_sends_nothing_and_a_resumed_one_everything(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    queue = send(alpha, name, b"one")
    world.run()
    link = alpha.route(name).link
    assert link is not None
    alpha.engine.pause_queue(queue)
    world.run()
    # The peer was asked for one message at a time.
    peer = next(iter(beta.transfer.links.values()))
    assert peer.session.received_window_size == 1
    assert state_of(queue) is OutgoingState.ON_HOLD
    send(alpha, name, b"two", b"three")
    world.run()
    assert beta.bodies("q") == [b"one"]
    assert alpha.engine.queue_manager.dispatch_collection == []
    link.session.session_active = False
    alpha.engine.resume_queue(queue)
    world.run()
    assert state_of(queue) is OutgoingState.CONNECTED
    assert link.session.session_active
    assert beta.bodies("q") == [b"one", b"two", b"three"]


@pytest.mark.spec("QQB-3.1.7.14-1")
def test_a_queue_that_is_resumed_without_a_session_opens_one(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    queue = send(alpha, name, b"one")
    alpha.engine.pause_queue(queue)
    world.tick(10)
    assert world.connections == []
    alpha.engine.resume_queue(queue)
    world.run()
    assert beta.bodies("q") == [b"one"]


@pytest.mark.spec("QQB-3.1.7.1-1")
def test_the_sixty_fifth_unacknowledged_message_waits(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    send(alpha, name, *[b"%d" % number for number in range(200)])
    # Nothing becomes durable at the receiver.
    beta.network.writes = False
    world.run()
    link = alpha.route(name).link
    assert link is not None
    assert link.session.unacked_message_count == 64
    assert len(beta.bodies("q")) == 64
    beta.sync()
    beta.network.writes = True
    world.run()
    assert len(beta.bodies("q")) == 200
