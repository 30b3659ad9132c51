"""Faults found by networks of processes, each reduced to its smallest case."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import ConnectionStatus, MessageClass, MessagePrivacyLevel, OutgoingState
from lanner.model.errors import InsufficientResources
from lanner.transfer import shell
from lanner.transfer.addresses import NextHop
from lanner.transfer.connecting import Connector
from lanner.transfer.deadlines import Deadline
from lanner.transfer.incidents import Incident
from lanner.transfer.link import Link
from lanner.transfer.outgoing_message_table import OutgoingMessagePosition, OutgoingMessageTable
from lanner.transfer.packets import FinalAckBody, OrderAckBody, build_order_ack
from lanner.transfer.route import Route
from lanner.transfer.route_stages import Stage
from lanner.transfer.session import Session
from lanner.wire.builder import build
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from tests.overlay import overlay
from tests.store.conftest import no_room
from tests.transfer.final_acks import build_final_ack
from tests.transfer.outgoing import Outgoing
from tests.transfer.test_shell import Manager, until
from tests.transfer.world import Node, StrangeConnection, World, strange_session

# Other tests have other addresses: the port is the same for all.
ADDRESS = "127.0.0.58"


@pytest.fixture
def outgoing(tmp_path: Path) -> Iterator[Outgoing]:
    harness = Outgoing(tmp_path / "data")
    yield harness
    harness.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_an_order_ack_ends_a_message_that_was_offered_to_a_session_and_not_yet_sent(outgoing: Outgoing) -> None:
    """It had been sent on the session before.

    Sent again, it would have been numbered after itself.
    """
    outgoing.say(b"1", b"2", b"3", transactional=True)
    outgoing.transmit()
    outgoing.table.session_opened()
    outgoing.table.next_unsent(1)
    assert outgoing.order_ack(3)
    assert outgoing.transmit() == []
    assert outgoing.waiting == []


def test_a_peer_that_only_acknowledges_is_not_held_back(world: World) -> None:
    """A peer that only acknowledges is read without limit.

    Formerly its bytes were counted as waiting to be processed, and after a few million messages
    nothing was read from it any more.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    for _ in range(20):
        alpha.send(beta.direct("q"), b"one")
        alpha.sync()
        world.tick(1)
    link = alpha.route(beta.direct("q")).link
    assert link is not None
    assert link._unprocessed_bytes == 0
    assert not link._unprocessed


def test_a_removal_is_written_soon_although_the_batch_before_it_was_written_meanwhile(world: World) -> None:
    """It was forgotten then.

    After a crash hours later the message was sent again, to a receiver who had forgotten it.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    while alpha.outgoing(beta.direct("q")).message_count:
        world.tick(0.05, 0.05)
    alpha.transfer._on_synced(alpha.store.pending_batch() - 1)
    world.tick(0.5)
    assert not alpha.store.pending_batch()


def test_a_message_that_cannot_be_encrypted_does_not_keep_those_behind_it(world: World) -> None:
    """They were not looked at again before something else happened on the session."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.send(beta.direct("q"), b"secret", privacy_level=MessagePrivacyLevel.BASE)
    alpha.send(beta.direct("q"), b"two")
    alpha.send(beta.direct("q"), b"three", privacy_level=MessagePrivacyLevel.BASE)
    alpha.send(beta.direct("q"), b"four")
    alpha.sync()
    world.run()
    assert beta.bodies("q") == [b"two", b"four"]


def test_what_comes_to_a_paused_queue_does_not_pause_its_session_again(world: World) -> None:
    """Each message made the peer's window 1 once more, also for what the peer sends to us."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.run()
    queue = alpha.outgoing(beta.direct("q"))
    alpha.engine.pause_queue(queue)
    world.run()
    sent = [list(connection.sent) for connection in world.connections]
    alpha.send(beta.direct("q"), b"two")
    alpha.sync()
    world.run()
    assert [connection.sent for connection in world.connections] == sent


def test_a_queue_that_is_resumed_while_it_waits_for_its_next_attempt_says_so(world: World) -> None:
    """Formerly it was Inactive, as if there were no attempts to connect."""
    alpha = world.node("ALPHA", "127.0.0.2")
    name = r"DIRECT=TCP:127.0.0.9\private$\q"
    alpha.send(name, b"one")
    alpha.sync()
    world.run()
    alpha.engine.pause_queue(alpha.outgoing(name))
    alpha.engine.resume_queue(alpha.outgoing(name))
    world.run()
    assert alpha.outgoing(name).state is OutgoingState.DISCONNECTED


def test_the_end_of_an_idle_session_is_no_problem(world: World) -> None:
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.tick(605, 5)
    route = alpha.route(beta.direct("q"))
    assert route.link is None
    assert route.problem == ""


def test_a_store_that_cannot_write_leaves_queues_as_connected_as_they_are(world: World) -> None:
    """They became Inactive on an open session, and what waited in them stayed."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.run()

    alpha.create("unrelated")
    with no_room(), pytest.raises(InsufficientResources):
        alpha.sync()
    world.run()
    assert alpha.outgoing(beta.direct("q")).state is OutgoingState.CONNECTED


def test_an_order_ack_from_elsewhere_removes_nothing(world: World) -> None:
    """A stranger may guess the second in which a sequence began.

    Formerly that sufficed to make messages vanish that were on their way.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("tx", transactional=True)
    name = beta.direct("tx")
    alpha.commit_one(name, b"one")
    alpha.sync()
    route = alpha.transfer._routes.of(alpha.outgoing(name))
    while not any(entry.transmitted for entry in route.table._entries.values()):
        world._soon.popleft()()
    world.unreachable["127.0.0.3"] = errno.ECONNREFUSED
    world.cut()
    assert beta.bodies("tx") == []
    sequence = alpha.engine.outgoing_sequence(alpha.outgoing(name))
    assert sequence is not None
    _, link = strange_session(alpha, "127.0.0.66")
    packet = build_order_ack(
        OrderAckBody.of(sequence.tx_sequence_id, 1),
        source=beta.guid,
        ordinal=1,
        sent_time=int(world.now),
        destination=parse(alpha.direct("order_queue$")),
    )
    alpha.transfer.data_received(link, packet)
    assert alpha.transfer.incidents.count(Incident.FOREIGN_ACKNOWLEDGMENT) == 1
    world.unreachable.clear()
    world.tick(6)
    assert beta.bodies("tx") == [b"one"]


def test_a_final_ack_of_another_place_in_the_sequence_ends_nothing(world: World) -> None:
    """Message identifiers are sequential.

    A peer that predicts them could otherwise control journals and dead letters.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("tx", transactional=True)
    alpha.commit_one(beta.direct("tx"), b"one", positive_journaling_requested=True)
    alpha.sync()
    world.tick(2)
    queue = alpha.engine.queue_manager.awaiting_final_ack_queue
    assert queue is not None
    ordinal = alpha.store.next(queue.number, -1)
    assert ordinal is not None
    waiting = alpha.store.get(queue.number, ordinal)
    assert waiting is not None
    right = FinalAckBody.of(waiting.packet)
    _, link = strange_session(alpha, "127.0.0.3", beta.guid)
    for wrong in (
        replace(right, tx_sequence_number=right.tx_sequence_number + 1),
        replace(right, tx_sequence_id=TxSequenceID(7, 7)),
    ):
        alpha.transfer.data_received(link, final_ack(alpha, wrong))
        assert queue.message_count == 1
    alpha.transfer.data_received(link, final_ack(alpha, right))
    assert queue.message_count == 0


def final_ack(node: Node, body: FinalAckBody) -> bytes:
    return build_final_ack(
        body,
        MessageClass.ACK_RECEIVE,
        source=uuid4(),
        ordinal=1,
        sent_time=int(node.now),
        destination=parse(node.direct("order_queue$")),
    )


def test_queues_that_have_nothing_to_send_cost_a_session_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session examines only queues with messages to send.

    Formerly each message examined every queue of the session: with four thousand queues, sending
    one message each took a minute.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    names = [beta.direct(beta.create(f"q{number}").pathname.rpartition("\\")[2]) for number in range(10)]
    for name in names:
        alpha.send(name, b"one")
    alpha.sync()
    world.tick(2)
    looked_at: list[OutgoingQueue] = []
    next_unsent = OutgoingMessageTable.next_unsent

    def watch(table: OutgoingMessageTable, room: int, size: int = 1 << 20) -> list[OutgoingMessagePosition]:
        looked_at.append(table.queue)
        return next_unsent(table, room, size)

    monkeypatch.setattr(OutgoingMessageTable, "next_unsent", watch)
    alpha.send(names[3], b"two")
    alpha.sync()
    world.run()
    assert beta.bodies("q3") == [b"one", b"two"]
    assert set(looked_at) == {alpha.outgoing(names[3])}


class Nowhere:
    def __init__(self, number: int = 0) -> None:
        self.address = f"nowhere{number}"


def test_names_that_nobody_answers_for_keep_no_other_work_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had all threads that there are, and signatures were not verified meanwhile."""
    answer = threading.Event()

    def never(*_args: object) -> list[NextHop]:
        answer.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    async def main() -> None:
        async with Manager(tmp_path / "A", ADDRESS).listening() as alpha:
            try:
                for number in range(40):
                    alpha.send(Nowhere(number), b"one")  # type: ignore[arg-type] # it has the address that is asked for
                routes = alpha.listener.transfer.routes
                await until(lambda: sum(route.stage is Stage.RESOLVING for route in routes.values()) == 40)
                done: list[str] = []
                alpha.listener.run_in_thread(lambda: "done", done.append)
                await until(lambda: done == ["done"])
            finally:
                answer.set()

    monkeypatch.setattr(shell, "resolve_hosts", never)
    asyncio.run(main())


def test_an_attempt_that_fails_in_a_way_of_its_own_is_a_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formerly the queue got no result then, and waited forever."""

    def fail(*_args: object) -> list[NextHop]:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with Manager(tmp_path / "A", ADDRESS).listening() as alpha:
            alpha.send(Nowhere(), b"one")  # type: ignore[arg-type] # it has the address that is asked for
            routes = alpha.listener.transfer.routes
            await until(lambda: any(route.stage is Stage.WAITING_RECONNECT for route in routes.values()))
            (route,) = routes.values()
            assert "can't start new thread" in route.problem

    monkeypatch.setattr(shell, "resolve_hosts", fail)
    asyncio.run(main())


def test_time_continues_after_an_error(tmp_path: Path) -> None:
    """An error in one timer must not stop the others.

    Formerly it ended all timers: no retries, no time-outs, no acknowledgments.
    """
    errors: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
        async with Manager(tmp_path / "A", ADDRESS).listening() as alpha:
            transfer = alpha.listener.transfer

            def fail(now: float) -> None:
                deadline.set(now)
                raise RuntimeError("nobody has foreseen this")

            with transfer.lock:
                deadline = transfer.deadlines.add(Deadline(), fail)
                deadline.set(0.0)
            await until(lambda: len(errors) > 1)

    asyncio.run(main())


def test_order_acks_of_many_sequences_all_leave(world: World) -> None:
    """Only the newest 256 did.

    The messages of the other queues were sent again half a minute later.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    for number in range(400):
        beta.create(f"tx{number}", transactional=True)
        alpha.commit_one(beta.direct(f"tx{number}"), b"one")
    alpha.sync()
    world.tick(2)
    assert [queue for queue in alpha.engine.outgoing_queues() if queue.message_count] == []


def test_a_peer_that_ends_every_session_leaves_traces(world: World) -> None:
    """Formerly ConnectionHistory recorded only sessions that were established."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    beta.engine.queue_manager.queue_manager_quota = 1
    alpha.send(beta.direct("q"), bytes(2000))
    alpha.sync()
    world.run()
    entry = alpha.outgoing(beta.direct("q")).connection_history[-1]
    assert entry.status is ConnectionStatus.UNKNOWN_FAILURE
    assert entry.error
    assert entry.address_list == ["IP=127.0.0.3"]


def test_the_last_problem_is_reported_until_there_is_a_session(world: World) -> None:
    """The last problem is reported until there is a session.

    Formerly it was forgotten at the next attempt, and an attempt takes a minute if the peer does
    not answer.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    beta.is_deaf = True
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.tick(67)
    route = alpha.route(beta.direct("q"))
    assert route.stage is Stage.ATTACHED
    assert "the handshake was not done in time" in route.problem
    beta.is_deaf = False
    world.tick(67)
    assert beta.bodies("q") == [b"one"]
    assert route.problem == ""


def test_a_queue_that_asks_for_a_connection_twice_is_served_by_it_once(world: World) -> None:
    """A queue was taken offline and brought online while it was being connected.

    Formerly it was on the session twice.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    attempts: list[Callable[[], None]] = []
    alpha.network.attempts = attempts
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.run()
    alpha.engine.take_offline()
    world.run()
    alpha.engine.bring_online()
    world.run()
    for attempt in attempts:
        attempt()
    world.run()
    route = alpha.route(beta.direct("q"))
    assert route.link is not None
    assert route.link.routes == [route]


def test_impostors_do_not_fill_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """There was a line for each message, which may be shorter than the line."""
    alpha = world.node("ALPHA", "127.0.0.2")
    alpha.create("q")
    _, link = strange_session(alpha, "127.0.0.66")
    for ordinal in range(1, 6):
        packet = build(
            alpha.properties(b"one"),
            source=alpha.guid,
            ordinal=ordinal,
            sent_time=int(world.now),
            destination=parse(alpha.direct("q")),
        )
        alpha.transfer.data_received(link, packet)
    assert caplog.text.count("unverified_source") == 1
    world.tick(60)
    assert caplog.text.count("unverified_source") == 2
    assert "4 messages from 127.0.0.66" in caplog.text
    assert [(row.queue, row.count) for row in alpha.transfer.incoming.refusals] == [(r"ALPHA\private$\q", 5)]


def test_a_restored_sender_gives_no_message_identifier_again(world: World, tmp_path: Path) -> None:
    """Identifiers used after the backup are not used again.

    Formerly receivers dropped new messages as duplicates of those sent after the backup.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.store.lock.release()
    alpha.store.backup(tmp_path / "backup")
    alpha.store.lock.acquire()
    for _ in range(70_000):
        given = alpha.engine.next_message_ordinal()
    alpha.stop()
    alpha.path = tmp_path / "backup"
    alpha.start()
    first = alpha.engine.next_message_ordinal()
    assert first > given
    alpha.restart()
    assert alpha.engine.next_message_ordinal() - first < 1 << 20


def test_peers_that_do_not_answer_keep_nobody_out(world: World) -> None:
    """Our own handshakes counted as half-open connections, of which only so many are let in."""
    alpha = world.node("ALPHA", "127.0.0.2", max_half_open=2)
    for address in ("127.0.0.3", "127.0.0.4"):
        silent = world.node(f"SILENT{address[-1]}", address)
        silent.is_deaf = True
        alpha.send(silent.direct("q"), b"one")
    alpha.sync()
    world.run()
    assert [link.is_initiator for link in alpha.transfer.links.values()] == [True, True]
    for address in ("127.0.0.5", "127.0.0.6"):
        say_nothing(alpha, address)
    assert [link.is_initiator for link in alpha.transfer.links.values()] == [True, True, False, False]


def say_nothing(node: Node, address: str) -> Link:
    """A connection of a peer that does not begin the handshake."""
    connection = StrangeConnection(node)
    assert node.transfer.accepts(address)
    node.transfer.accepted(connection, address)
    assert connection.link is not None
    return connection.link


def test_the_peer_with_most_silent_connections_makes_room_for_others(world: World) -> None:
    """A few addresses could hold all that there are, and no new peer was let in for a minute."""
    alpha = world.node("ALPHA", "127.0.0.2", max_half_open=5)
    one = say_nothing(alpha, "127.0.0.7")
    many = [say_nothing(alpha, "127.0.0.66") for _ in range(3)]
    other = say_nothing(alpha, "127.0.0.8")
    _, opened = strange_session(alpha, "127.0.0.9")
    assert opened.is_open
    assert [link.is_closed for link in (one, *many, other)] == [False, True, False, False, False]
    say_nothing(alpha, "127.0.0.10")
    say_nothing(alpha, "127.0.0.66")
    assert [link.is_closed for link in (one, *many, other)] == [False, True, True, False, False]


def test_the_first_messages_of_queues_that_wait_are_not_kept_in_memory(world: World) -> None:
    """Queues that wait do not keep their first messages in memory.

    Formerly sixty queues with three megabytes at their head held all of them while the window of
    their session was full.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2", window_size=1), world.node("BETA", "127.0.0.3")
    beta.network.writes = False  # so it acknowledges nothing
    for number in range(5):
        beta.create(f"q{number}")
        alpha.send(beta.direct(f"q{number}"), b"one")
    alpha.sync()
    world.tick(2)
    loaded = [
        entry for route in alpha.transfer.routes.values() for entry in route.table._entries.values() if entry.packet
    ]
    assert [entry.awaiting_ack for entry in loaded] == [True]


def test_a_peer_that_acknowledges_nothing_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A peer that acknowledges nothing is reported.

    Formerly its queue was Connected as long as it sent anything at all, and nothing explained why
    no message left.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    beta.network.writes = False  # so it acknowledges nothing
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.run()
    route, sent = alpha.route(beta.direct("q")), world.now
    (link,) = beta.transfer.links.values()

    def say_something(seconds: int) -> None:
        for _ in range(seconds // 10):
            link.session._acknowledge()
            beta.transfer._turns.mark_dirty(link)
            world.tick(10)

    say_something(30)
    assert route.problem == ""
    say_something(60)
    assert route.queue.state is OutgoingState.CONNECTED
    assert route.problem.startswith(
        f"nothing acknowledged since {dt.datetime.fromtimestamp(sent, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    )
    assert caplog.text.count("nothing acknowledged since") == 1
    beta.network.writes = True
    beta.sync()
    world.tick(2)
    assert route.table.is_empty
    assert route.problem == ""
    say_something(60)
    assert route.problem == ""
    assert caplog.text.count("nothing acknowledged since") == 1


def test_a_message_that_is_looked_at_only_is_not_kept_in_memory(outgoing: Outgoing) -> None:
    outgoing.say(b"one")
    assert Message(outgoing.table.head()).body == b"one"
    assert [entry.packet for entry in outgoing.table._entries.values()] == [b""]
    assert len(outgoing.transmit()) == 1


def test_a_message_that_is_not_on_disk_yet_lends_its_priority_to_no_other(world: World) -> None:
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    for name in ("a", "b"):
        beta.create(name)
        alpha.send(beta.direct(name), b"first")
    alpha.sync()
    world.tick(2)
    for body in (b"1", b"2"):
        alpha.send(beta.direct("a"), body, priority=1)
        alpha.send(beta.direct("b"), body, priority=4)
    alpha.sync()
    alpha.send(beta.direct("a"), b"last", priority=7)
    sent: list[tuple[str, bytes]] = []
    link = alpha.route(beta.direct("a")).link
    assert link is not None
    send_all = link.session.send_all

    def watch(packets: list[bytes], entries: list[OutgoingMessagePosition]) -> None:
        for packet, entry in zip(packets, entries, strict=True):
            sent.append((entry.queue.pathname[-1], Message(packet).body))
        send_all(packets, entries)

    link.session = overlay(link.session, send_all=watch)
    alpha.transfer.pump()
    assert sent == [("b", b"1"), ("b", b"2"), ("a", b"1"), ("a", b"2")]
    alpha.sync()
    world.run()
    assert sent[-1] == ("a", b"last")


def send_to_the_dead(node: Node, count: int) -> list[Route]:
    """Routes to so many computers that are not there; all wait for their next attempt."""
    for computer in range(count):
        node.send(rf"DIRECT=TCP:10.7.7.{computer}\private$\q", b"one")
    node.sync()
    node.world.run()
    routes = list(node.transfer.routes.values())
    assert {route.stage for route in routes} == {Stage.WAITING_RECONNECT}
    return routes


def test_whether_anything_is_due_is_known_without_asking_each_queue_and_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times a second all were asked, which took milliseconds with thousands of them."""
    alpha = world.node("ALPHA", "127.0.0.2")
    send_to_the_dead(alpha, 10)
    for address in ("127.0.0.66", "127.0.0.67"):
        strange_session(alpha, address)
    asked: list[object] = []
    monkeypatch.setattr(Route, "next_deadline", asked.append)
    monkeypatch.setattr(Session, "next_deadline", asked.append)
    assert alpha.transfer.deadlines.earliest <= world.now + 5
    assert asked == []


def test_a_session_that_opens_is_nothing_to_queues_for_other_addresses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new session does not concern queues for other addresses.

    Formerly each waiting queue was checked, for each of its next hops and each session.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    beta.is_running = False
    routes = send_to_the_dead(alpha, 10)
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.run()
    looked_at: list[Route] = []
    link_to = Connector.link_to

    def watch(connector: Connector, route: Route, hop: NextHop) -> Link | None:
        looked_at.append(route)
        return link_to(connector, route, hop)

    monkeypatch.setattr(Connector, "link_to", watch)
    _, link = strange_session(alpha, "127.0.0.3", beta.guid)
    assert set(looked_at) == {alpha.route(beta.direct("q"))}
    assert alpha.route(beta.direct("q")).link is link
    # Queues that are removed are not kept for a session that never opens.
    for route in routes:
        alpha.engine.purge_queue(route.queue)
    world.tick(700, 20)
    assert not any(route in waiting for waiting in alpha.transfer._routes._at.values() for route in routes)


def test_the_retries_of_many_queues_leave_others_their_turn(world: World) -> None:
    """All of them were made in one hold of the lock."""
    alpha = world.node("ALPHA", "127.0.0.2")
    routes = send_to_the_dead(alpha, 120)
    alpha.now = world.now = world.now + 5
    alpha.transfer.on_timer()
    assert sum(route.stage is Stage.RESOLVING for route in routes) == 50
    world.run()
    assert {len(route.queue.connection_history) for route in routes} == {2}


def test_a_paused_queue_is_tried_again_when_it_is_resumed_and_not_before(world: World) -> None:
    """It showed when its next attempt would be, though none was to come."""
    alpha = world.node("ALPHA", "127.0.0.2")
    (route,) = send_to_the_dead(alpha, 1)
    alpha.engine.pause_queue(route.queue)
    world.run()
    assert route.retry_due is None
    world.tick(20)
    assert len(route.queue.connection_history) == 1
    alpha.engine.resume_queue(route.queue)
    world.run()
    assert len(route.queue.connection_history) == 2
    assert route.retry_due == world.now + 5


def test_two_queue_managers_at_one_address_get_a_connection_each_at_once(world: World) -> None:
    """Formerly the queue to the second was Waiting for five seconds without an attempt."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    guids = iter((beta.guid, uuid4()))
    alpha.network.hops = lambda _: [NextHop(next(guids), "", "127.0.0.3")]
    names = [beta.direct("one"), beta.direct("other")]
    for name in names:
        alpha.send(name, b"one")
    alpha.sync()
    world.run()
    last = {alpha.outgoing(name).connection_history[-1].status for name in names}
    assert last == {ConnectionStatus.ESTABLISHED, ConnectionStatus.CONNECTION_REFUSED}


def test_outgoing_queues_that_are_removed_leave_nothing_behind(world: World) -> None:
    """Their sequences were remembered until the next start."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("tx", transactional=True)
    alpha.commit_one(beta.direct("tx"), b"one")
    alpha.sync()
    world.tick(2)
    queue = alpha.outgoing(beta.direct("tx"))
    sequence = alpha.engine.outgoing_sequence(queue)
    assert sequence is not None
    alpha.sync()
    assert alpha.engine.remove_idle_outgoing_queue(queue)
    assert alpha.engine.sequences.queues == {}

    with no_room(), pytest.raises(InsufficientResources):
        alpha.sync()
    # The removal is undone, so OrderAcks must find the queue again.
    assert alpha.engine.outgoing_queue_of(sequence.tx_sequence_id) is alpha.outgoing(beta.direct("tx"))


def test_transfer_that_has_stopped_hears_of_nothing(world: World) -> None:
    alpha = world.node("ALPHA", "127.0.0.2")
    engine = alpha.engine
    lists: list[list[Any]] = [
        engine.position_available_subscribers,
        engine.position_deleted_subscribers,
        engine.outgoing_state_subscribers,
        engine.connection_active_subscribers,
    ]
    alpha.is_running = False
    alpha.transfer.stop()
    owners = {type(getattr(each, "__self__", None)).__module__ for subscribers in lists for each in subscribers}
    assert not [owner for owner in owners if owner.startswith("lanner.transfer")]
