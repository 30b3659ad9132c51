"""What networks of processes found, each as small as it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from lanner.model.enums import MessagePrivacyLevel, OutgoingState
from lanner.model.errors import InsufficientResources
from tests.transfer.outgoing import Outgoing
from tests.transfer.world import World


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
    """It had been sent on the session before. Sent again, it would have been numbered after itself."""
    outgoing.say(b"1", b"2", b"3", transactional=True)
    outgoing.transmit()
    outgoing.table.session_opened()
    outgoing.table.peek_priority()
    assert outgoing.order_ack(3)
    assert outgoing.transmit() == []
    assert outgoing.waiting == []


def test_a_peer_that_only_acknowledges_is_not_held_back(world: World) -> None:
    """Its bytes were counted as waiting to be processed, so after a few million messages nothing was read from it any more."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    for _ in range(20):
        alpha.send(beta.direct("q"), b"one")
        alpha.sync()
        world.tick(1)
    link = alpha.route(beta.direct("q")).link
    assert link is not None
    assert link._unsettled_bytes == 0
    assert not link._unsettled


def test_a_removal_is_written_soon_although_the_batch_before_it_was_written_meanwhile(world: World) -> None:
    """It was forgotten then. After a crash hours later the message was sent again, to a receiver who had forgotten it."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    while not alpha.store.ticket():
        world.tick(0.05, 0.05)
    assert alpha.outgoing(beta.direct("q")).message_count == 0
    alpha.transfer._on_synced(alpha.store.ticket() - 1)
    world.tick(0.5)
    assert not alpha.store.ticket()


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
    """It was Inactive, as if nobody tried to connect."""
    alpha = world.node("ALPHA", "127.0.0.2")
    name = r"DIRECT=TCP:127.0.0.9\private$\q"
    alpha.send(name, b"one")
    alpha.sync()
    world.run()
    alpha.engine.pause_queue(alpha.outgoing(name))
    world.run()
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


def test_a_store_that_cannot_write_leaves_queues_as_connected_as_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They became Inactive on an open session, and what waited in them stayed."""
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    alpha.send(beta.direct("q"), b"one")
    alpha.sync()
    world.run()

    def refuse(*_args: object) -> None:
        raise lmdb.DiskError("no space left")

    alpha.create("unrelated")
    with monkeypatch.context() as patch:
        patch.setattr(type(alpha.store._commits.current), "write", refuse)
        with pytest.raises(InsufficientResources):
            alpha.sync()
    world.run()
    assert alpha.outgoing(beta.direct("q")).state is OutgoingState.CONNECTED
