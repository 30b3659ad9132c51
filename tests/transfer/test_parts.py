"""The parts of transfer alone: each gets what it needs by its constructor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.transfer.addresses import HopHost, NextHop
from lanner.transfer.awaiting_durability import AwaitingDurability
from lanner.transfer.deadlines import Deadlines
from lanner.transfer.link import Link
from lanner.transfer.links import Links
from lanner.transfer.network import Connection
from lanner.transfer.route import Route
from lanner.transfer.routes import Routes
from lanner.transfer.sent_to import SentTo
from lanner.transfer.settings import TransferSettings
from lanner.transfer.tls import Certification
from lanner.transfer.turns import Turns
from lanner.wire.internal_header import EstablishConnectionHeader
from tests.engine.harness import Harness

PEER = "127.0.0.9"
THEIRS = UUID("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")


class FakeNetwork:
    """Counts the turns that are asked for; nothing else is asked of it here."""

    def __init__(self) -> None:
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    def resolve(
        self, hosts: list[HopHost], done: Callable[[list[NextHop] | OSError], None], whose: str | None = None
    ) -> None:
        del whose
        raise NotImplementedError

    def ping(self, address: str, done: Callable[[bool], None]) -> None:
        raise NotImplementedError

    def connect(self, address: str, done: Callable[[Connection | OSError], None], *, over_tls: bool = False) -> None:
        raise NotImplementedError

    def sync(self, ticket: int) -> None:
        raise NotImplementedError

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any], None], whose: str | None = None) -> None:
        raise NotImplementedError


class FakeConnection:
    def __init__(self) -> None:
        self.link: Link | None = None
        self.written: list[bytes] = []
        self.is_closed = False
        self.certification: Certification | None = None

    def write(self, data: list[bytes]) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        raise NotImplementedError

    def resume_reading(self) -> None:
        raise NotImplementedError


class FakeStore:
    """Batches that become durable when a test says so."""

    def __init__(self) -> None:
        self.batch = 0
        self.synced = 0

    def pending_batch(self) -> int:
        return self.batch


class FakeLink:
    """As much of a link as `AwaitingDurability` uses."""

    def __init__(self) -> None:
        self.session = SimpleNamespace(is_closed=False)
        self.released: list[int] = []
        self.fails = False

    def release(self, number: int) -> None:
        if self.fails:
            raise RuntimeError("nobody has foreseen this")
        self.released.append(number)


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def turns(network: FakeNetwork) -> Turns:
    return Turns(network)


class TestTurns:
    def test_work_outside_a_turn_asks_for_one(self, turns: Turns, network: FakeNetwork) -> None:
        turns.mark_dirty(cast("Link", FakeLink()))
        turns.want_sync(3)
        assert (len(turns.dirty), turns.wanted_batch, network.wakes) == (1, 3, 2)

    def test_work_in_a_turn_is_done_at_its_end(self, turns: Turns, network: FakeNetwork) -> None:
        turns.is_running = True
        turns.mark_dirty(cast("Link", FakeLink()))
        turns.want_sync(3)
        turns.want_sync(0)
        assert (len(turns.dirty), turns.wanted_batch, network.wakes) == (1, 3, 0)

    def test_an_operator_who_paused_a_queue_is_not_forgotten(self, turns: Turns) -> None:
        turns.awake[7] = True
        turns.awaken(7)
        turns.awaken(8)
        assert turns.awake == {7: True, 8: False}


class Waiting:
    """`AwaitingDurability` between fakes."""

    def __init__(self, turns: Turns) -> None:
        self.store = FakeStore()
        self.closed: list[tuple[object, str]] = []
        self.failed: list[object] = []
        self.turns = turns
        self.part = AwaitingDurability(
            cast("Any", self.store), turns, lambda link, reason: self.closed.append((link, reason)), self.failed.append
        )

    def processed(self, link: FakeLink, number: int) -> None:
        self.part.processed(cast("Link", link), number)


class TestAwaitingDurability:
    @pytest.fixture
    def waiting(self, turns: Turns) -> Waiting:
        turns.is_running = True
        return Waiting(turns)

    def test_what_is_durable_already_is_released_at_once(self, waiting: Waiting) -> None:
        link = FakeLink()
        waiting.processed(link, 4)
        assert link.released == [4]
        assert [*map(id, waiting.turns.dirty)] == [id(link)]

    def test_what_is_not_durable_waits_for_its_batch(self, waiting: Waiting) -> None:
        one, other = FakeLink(), FakeLink()
        waiting.store.batch = 1
        waiting.processed(one, 4)
        waiting.store.batch = 2
        waiting.processed(other, 9)
        assert waiting.turns.wanted_batch == 2
        waiting.part.release_durable()
        assert (one.released, other.released) == ([], [])
        waiting.store.synced = 1
        waiting.part.release_durable()
        assert (one.released, other.released) == ([4], [])
        waiting.store.synced = 2
        waiting.part.release_durable()
        assert other.released == [9]
        assert not waiting.part.waiting

    def test_a_batch_that_failed_ends_the_session(self, waiting: Waiting) -> None:
        link = FakeLink()
        waiting.part.failed(1)
        waiting.store.batch = 1
        waiting.processed(link, 1)
        waiting.part.failed(1)
        waiting.part.release_durable()
        assert waiting.closed == [(link, "the store could not be written")]
        assert link.released == []

    def test_an_error_is_of_one_session(self, waiting: Waiting) -> None:
        failing, other = FakeLink(), FakeLink()
        failing.fails = True
        waiting.store.batch = 1
        waiting.processed(failing, 1)
        waiting.processed(other, 2)
        waiting.store.synced = 1
        waiting.part.release_durable()
        assert waiting.failed == [failing]
        assert other.released == [2]

    def test_a_session_that_has_ended_is_left_alone(self, waiting: Waiting) -> None:
        link = FakeLink()
        link.session.is_closed = True
        waiting.processed(link, 4)
        assert (link.released, waiting.turns.dirty) == ([], {})


def everyone(_: EstablishConnectionHeader) -> bool:
    return True


class Parts:
    """`Links` and `Routes` on an engine, without transfer."""

    def __init__(self, path: Path, turns: Turns) -> None:
        self.h = Harness(path)
        settings = TransferSettings(max_sessions_per_peer=2, max_half_open=2, max_in_sessions=1)
        self.deadlines = Deadlines()
        self.due: list[object] = []
        self.links = Links(
            self.h.engine,
            settings,
            turns,
            self.deadlines,
            on_processed=lambda _link, _number: None,
            on_close=lambda _link, _reason: None,
            on_due=lambda link, _now: self.due.append(link),
        )
        self.routes = Routes(
            self.h.engine,
            settings,
            self.deadlines,
            lambda route, _now: self.due.append(route),
            SentTo(self.h.engine),
        )

    def accept(self, address: str = PEER) -> Link:
        return self.links.accept(FakeConnection(), address, everyone)

    def route(self, name: str) -> Route:
        self.h.send(name, b"one")
        return self.routes.of(
            next(queue for queue in self.h.engine.outgoing_queues() if queue.destination_format_name == name)
        )


@pytest.fixture
def parts(tmp_path: Path, turns: Turns) -> Parts:
    return Parts(tmp_path / "data", turns)


class TestLinks:
    def test_an_address_has_so_many(self, parts: Parts) -> None:
        first = parts.accept()
        assert parts.links.accepts(PEER)
        parts.accept()
        assert not parts.links.accepts(PEER)
        assert parts.links.accepts("127.0.0.10")
        assert parts.links.remove(first)
        assert not parts.links.remove(first)
        assert parts.links.accepts(PEER)
        assert len(list(parts.links.at(PEER))) == 1

    def test_of_too_many_half_open_ones_the_oldest_of_the_greediest_goes(self, parts: Parts) -> None:
        parts.accept("127.0.0.10")
        greedy = parts.accept()
        assert parts.links.excess_half_open() is None
        parts.accept()
        assert parts.links.excess_half_open() is greedy

    def test_its_timers_are_watched_until_it_is_removed(self, parts: Parts) -> None:
        link = parts.accept()
        now = parts.h.now + 60
        assert parts.deadlines.earliest == now
        parts.deadlines.run_due(now, 10)
        assert parts.due == [link]
        link.session.on_timer()
        parts.links.remove(link)
        parts.deadlines.run_due(now + 1000, 10)
        assert parts.due == [link]

    def test_one_that_was_opened_from_here_asks_for_a_session(self, parts: Parts) -> None:
        link = parts.links.initiate(FakeConnection(), PEER, GUID_NULL, was_pinged=False)
        assert link.is_initiator
        link.flush()
        assert isinstance(link.connection, FakeConnection)
        assert [len(packet) for packet in link.connection.written] == [572]
        assert parts.links.open_link_with(THEIRS) is None
        assert parts.links.has_room


class TestRoutes:
    def test_a_queue_has_one(self, parts: Parts) -> None:
        route = parts.route(r"DIRECT=TCP:10.7.7.7\private$\q")
        assert parts.routes.of(route.queue) is route

    def test_it_is_found_by_the_addresses_of_its_next_hops(self, parts: Parts) -> None:
        route = parts.route(r"DIRECT=TCP:10.7.7.7\private$\q")
        hops = [NextHop(GUID_NULL, "", address) for address in ("10.7.7.7", "10.7.7.8")]
        parts.routes.set_next_hops(route, hops)
        assert [list(parts.routes.at(hop.address)) for hop in hops] == [[route], [route]]
        parts.routes.set_next_hops(route, hops[1:])
        assert [list(parts.routes.at(hop.address)) for hop in hops] == [[], [route]]

    def test_its_timers_are_watched(self, parts: Parts) -> None:
        route = parts.route(r"DIRECT=TCP:10.7.7.7\private$\q")
        route.retry_due = 5.0
        parts.routes.watch(route)
        parts.deadlines.run_due(5.0, 10)
        assert parts.due == [route]

    def test_one_of_an_unused_queue_is_removed_after_ten_minutes(self, parts: Parts) -> None:
        route = parts.route(r"DIRECT=TCP:10.7.7.7\private$\q")
        parts.h.engine.purge_queue(route.queue)
        for descriptor in list(route.queue.open_queue_descriptors.values()):
            parts.h.engine.close_queue(descriptor)
        now = parts.h.now
        assert [parts.routes.remove_idle(now + seconds) for seconds in (0, 599, 600, 700)] == [
            False,
            False,
            True,
            False,
        ]
        assert parts.routes.by_number == {}
