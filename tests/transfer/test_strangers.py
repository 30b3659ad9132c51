"""Strangers against a queue manager.

They claim to be others, request acknowledgments and name queues; the tests check what is kept.
"""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import Acknowledgements
from lanner.security.profile import Profile
from lanner.transfer import incoming_sequence, pins
from lanner.transfer.framing import CONNECTION_PARAMETERS_SIZE, ESTABLISH_CONNECTION_SIZE
from lanner.transfer.incidents import Incident
from lanner.transfer.refusals import UNVERIFIED_SOURCE
from lanner.wire.builder import build
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.sid import Sid
from tests.transfer.world import FakeConnection, Node, World, strange_session

_HANDSHAKE = ESTABLISH_CONNECTION_SIZE + CONNECTION_PARAMETERS_SIZE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


class Stranger:
    """A peer with an open session that sends what no queue manager would."""

    def __init__(self, node: Node, address: str = "127.0.0.66") -> None:
        self.node = node
        self._ordinal = 0
        _, self.link = strange_session(node, address)

    def send(
        self,
        to: str,
        *,
        source: UUID | None = None,
        ordinal: int | None = None,
        address: UUID = GUID_NULL,
        number: int | None = None,
        previous: int = 0,
        **properties: Any,  # noqa: ANN401 (of MessageProperties)
    ) -> None:
        """Send one message; with `number` it is transactional, with `address` for that computer."""
        self._ordinal += 1
        content = self.node.properties(b"one", sender_identifier=SOMEBODY, **properties)
        if number is not None:
            content.transactional_message_sequence_identifier = TxSequenceID(1, 5)
            content.transaction_sequence_number = number
            content.transaction_previous_sequence_number = previous
        packet = build(
            content,
            source=source or self.link.remote_qm_guid,
            ordinal=ordinal or self._ordinal,
            sent_time=int(self.node.now),
            destination=parse(to),
            transaction=None if number is None else 7,
        )
        if address != GUID_NULL:
            packet = packet[:32] + address.bytes_le + packet[48:]
        self.node.transfer.data_received(self.link, packet)


SOMEBODY = Sid.parse("S-1-5-21-1-2-3-1001").pack()


def acknowledged_to(computer: int) -> dict[str, Any]:
    """The properties of a message whose acknowledgment is to go to a computer that is not there."""
    return {
        "acknowledgements_requested": Acknowledgements.POS_ARRIVAL,
        "administration_queue_format_name": parse(rf"DIRECT=TCP:10.9.9.{computer}\private$\a"),
    }


def destinations(node: Node) -> list[str]:
    return [queue.destination_format_name for queue in node.engine.outgoing_queues()]


def test_acknowledgments_that_strangers_ask_for_make_only_so_many_queues(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Formerly each message could create an outgoing queue that stayed forever."""
    caplog.set_level(logging.INFO)
    alpha = world.node("ALPHA", "127.0.0.2", max_queues_for_others=3)
    alpha.create("q")
    stranger = Stranger(alpha)
    for computer in range(1, 6):
        stranger.send(alpha.direct("q"), **acknowledged_to(computer))
    stranger.send(alpha.direct("q"), **acknowledged_to(1))
    assert alpha.queue("q").message_count == 6
    assert destinations(alpha) == [rf"DIRECT=TCP:10.9.9.{computer}\private$\a" for computer in (1, 2, 3)]
    assert [queue.message_count for queue in alpha.engine.outgoing_queues()] == [2, 1, 1]
    assert caplog.text.count("acknowledgments to more destinations are dropped") == 1
    assert "is dropped:" not in caplog.text
    alpha.sync()
    alpha.restart()
    Stranger(alpha).send(alpha.direct("q"), **acknowledged_to(6))
    assert len(destinations(alpha)) == 3


def test_strangers_do_not_silence_the_acknowledgments_that_partners_wait_for(world: World) -> None:
    """Formerly strangers could use up the outgoing queues for other computers.

    Then a sender without an order queue got no FinalAck.
    """
    alpha = world.node("ALPHA", "127.0.0.2", max_queues_for_others=1)
    alpha.create("q")
    alpha.create("t", transactional=True)
    Stranger(alpha).send(alpha.direct("q"), **acknowledged_to(1))
    refused, received = Stranger(alpha, "127.0.0.50"), Stranger(alpha, "127.0.0.51")
    refused.send(alpha.direct("nowhere"), number=1)
    received.send(alpha.direct("t"), number=1, positive_journaling_requested=True)
    assert alpha.queue("t").message_count == 1
    alpha.engine.purge_queue(alpha.queue("t"))
    assert [name.lower() for name in destinations(alpha)[1:]] == [
        rf"direct=tcp:127.0.0.{host}\private$\order_queue$" for host in (50, 51)
    ]
    # They do not count among the others after a restart either.
    alpha.engine.purge_queue(next(alpha.engine.outgoing_queues()))
    alpha.sync()
    alpha.restart()
    assert alpha.engine.remove_idle_outgoing_queue(next(alpha.engine.outgoing_queues()))
    Stranger(alpha).send(alpha.direct("q"), **acknowledged_to(2))
    assert len(destinations(alpha)) == 3


@pytest.mark.parametrize("number", [None, 1])
def test_one_ipv6_network_causes_as_many_queues_as_one_address(world: World, number: int | None) -> None:
    """For acknowledgments that are asked for, and for those of transactional messages."""
    alpha = world.node("ALPHA", "127.0.0.2", max_queues_per_peer=2)
    alpha.create("q")
    for host in range(1, 5):
        wanted = acknowledged_to(host) if number is None else {}
        Stranger(alpha, f"2001:db8::{host}").send(
            alpha.direct("q" if number is None else "nowhere"), number=number, **wanted
        )
    assert len(destinations(alpha)) == 2
    assert alpha.transfer.incidents.count(Incident.TOO_MANY_QUEUES) == 2
    Stranger(alpha, "2001:db8:0:1::1").send(
        alpha.direct("q" if number is None else "nowhere"),
        number=number,
        **(acknowledged_to(5) if number is None else {}),
    )
    assert len(destinations(alpha)) == 3


def test_queues_that_strangers_caused_make_room_when_they_are_empty(world: World) -> None:
    alpha = world.node("ALPHA", "127.0.0.2", max_queues_for_others=2)
    alpha.create("q")
    stranger = Stranger(alpha)
    for computer in (1, 2, 3):
        stranger.send(alpha.direct("q"), **acknowledged_to(computer))
    world.tick(2)
    assert len(destinations(alpha)) == 2, "what is not empty stays"
    alpha.engine.purge_queue(alpha.outgoing(r"DIRECT=TCP:10.9.9.1\private$\a"))
    stranger = Stranger(alpha)
    stranger.send(alpha.direct("q"), **acknowledged_to(3))
    world.tick(2)
    stranger.send(alpha.direct("q"), **acknowledged_to(4))
    assert destinations(alpha) == [rf"DIRECT=TCP:10.9.9.{computer}\private$\a" for computer in (2, 4)]
    assert set(alpha.transfer.routes) <= {queue.number for queue in alpha.engine.outgoing_queues()}


def test_made_up_queue_managers_keep_no_others_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly a stranger could fill the table of pins for thirty days.

    It only had to open enough sessions under identifiers of its own invention.
    """
    monkeypatch.setattr(pins, "MAX_LEARNT", 4)
    alpha = world.node("ALPHA", "127.0.0.2")
    beta = world.node("BETA", "127.0.0.3")
    world.peers.clear()
    alpha.create("q")
    beta.create("q")
    partner = Stranger(alpha, "127.0.0.50")
    partner.send(alpha.direct("q"))
    alpha.send(beta.direct("q"), b"one")
    world.tick(1)
    assert beta.queue("q").message_count == 1
    for number in range(8):
        strange_session(alpha, f"127.0.1.{number}")
    proven = {pin.guid for pin in alpha.transfer.identities.pins if pin.is_proven}
    assert proven == {partner.link.remote_qm_guid, beta.guid}
    # Nor if each of them delivers a message.
    for number in range(8):
        Stranger(alpha, f"127.0.2.{number % 2}").send(alpha.direct("q"))
    gamma = world.node("GAMMA", "127.0.0.4")
    world.peers.clear()
    before = alpha.queue("q").message_count
    gamma.send(alpha.direct("q"), b"one")
    world.tick(1)
    assert alpha.queue("q").message_count == before + 1
    pin = alpha.transfer.identities.pins.get(gamma.guid)
    assert pin is not None
    assert pin.is_proven
    assert alpha.transfer.identities.pins.get(beta.guid) is not None


def test_queues_for_programs_here_do_not_count_among_those_for_strangers(world: World) -> None:
    alpha = world.node("ALPHA", "127.0.0.2", max_queues_for_others=1)
    alpha.create("q")
    for computer in (1, 2):
        wanted = acknowledged_to(computer) | {"acknowledgements_requested": Acknowledgements.NEG_ARRIVAL}
        alpha.send(rf"DIRECT=TCP:10.8.8.{computer}\private$\a", b"one", **wanted)
        # The negative acknowledgment goes to another computer as well.
        alpha.engine.purge_queue(alpha.outgoing(rf"DIRECT=TCP:10.8.8.{computer}\private$\a"))
    assert len(destinations(alpha)) == 4
    Stranger(alpha).send(alpha.direct("q"), **acknowledged_to(3))
    assert len(destinations(alpha)) == 5


def test_messages_that_strangers_have_passed_on_make_only_so_many_queues(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that cannot be accepted is not acknowledged: an honest sender keeps it."""
    alpha = world.node("ALPHA", "127.0.0.2", max_queues_for_others=2, profile=Profile.DOCUMENT)
    stranger = Stranger(alpha)
    for computer in (1, 2, 1):
        stranger.send(rf"DIRECT=TCP:10.8.8.{computer}\private$\a", address=uuid4())
    assert stranger.link.is_open
    stranger.send(r"DIRECT=TCP:10.8.8.3\private$\a", address=uuid4())
    assert stranger.link.is_closed
    assert [queue.message_count for queue in alpha.engine.outgoing_queues()] == [2, 1]
    assert caplog.text.count("messages are not forwarded") == 1
    # There is room again when one of them has ended.
    queue = next(alpha.engine.outgoing_queues())
    alpha.engine.purge_queue(queue)
    assert alpha.engine.remove_idle_outgoing_queue(queue)
    stranger = Stranger(alpha)
    stranger.send(r"DIRECT=TCP:10.8.8.3\private$\a", address=uuid4())
    assert stranger.link.is_open


def test_nobody_is_told_how_a_message_ended_that_a_made_up_queue_manager_sent(world: World) -> None:
    """Formerly each SourceQueueManager got a queue for its negative acknowledgment.

    That acknowledgment could never leave.
    """
    alpha = world.node("ALPHA", "127.0.0.2")
    stranger = Stranger(alpha)
    nowhere = f"PRIVATE={alpha.guid}\\999"
    for _ in range(3):
        stranger.send(nowhere, source=uuid4(), address=alpha.guid, number=1)
    world.tick(1)
    assert destinations(alpha) == []
    # Its own session leads back to this one.
    stranger.send(nowhere, address=alpha.guid, number=1)
    (queue,) = alpha.engine.outgoing_queues()
    assert str(stranger.link.remote_qm_guid) in queue.destination_format_name
    assert stranger.link.is_open


def test_acknowledgments_of_transactional_messages_do_not_wait_forever(world: World) -> None:
    alpha = world.node("ALPHA", "127.0.0.2", long_live_time=3600)
    stranger = Stranger(alpha)
    stranger.send(alpha.direct("nowhere"), number=1)
    (queue,) = alpha.engine.outgoing_queues()
    assert queue.message_count == 1
    world.tick(3602, 60)
    assert queue.message_count == 0
    world.tick(700, 20)
    assert destinations(alpha) == []


def test_the_directory_is_asked_less_and_less_for_a_queue_manager_that_it_does_not_know(world: World) -> None:
    """Formerly it was asked every five seconds, for each such queue, forever."""
    alpha = world.node("ALPHA", "127.0.0.2")
    name = f"PRIVATE={uuid4()}\\7"
    alpha.send(name, b"one")
    alpha.sync()
    world.run()
    route = alpha.route(name)
    waits = []
    for _ in range(6):
        assert route.retry_due is not None
        waits.append(route.retry_due - world.now)
        world.tick(waits[-1], 5)
    assert waits == [5, 10, 20, 40, 60, 60]


def test_acknowledgments_leave_as_soon_as_their_addressee_has_a_session(world: World) -> None:
    """Otherwise they would wait for the next query of the directory."""
    alpha = world.node("ALPHA", "127.0.0.2")
    guid = uuid4()
    name = f"PRIVATE={guid}\\4"
    alpha.send(name, b"one")
    alpha.sync()
    world.tick(20)
    _, link = strange_session(alpha, "127.0.0.66", guid)
    assert alpha.route(name).link is link


def senders_at(node: Node, queue: str) -> list[UUID]:
    return [info.sender_identifier for info in node.queue(queue).incoming_transactional_transfer_info.values()]


def rows_of_sequences(node: Node) -> int:
    return len(list(node.store.table(incoming_sequence.TABLE).items()))


def test_senders_that_were_not_heard_of_for_a_month_are_forgotten(world: World) -> None:
    """Formerly every sender of one message was remembered forever."""
    alpha = world.node("ALPHA", "127.0.0.2", profile=Profile.DOCUMENT)
    alpha.create("tx", transactional=True)
    old, busy, new = uuid4(), uuid4(), uuid4()
    stranger = Stranger(alpha)
    to = f"PRIVATE={alpha.guid}\\{number_of(alpha, 'tx')}"
    for source in (busy, old):
        stranger.send(to, source=source, address=alpha.guid, number=1)
    alpha.now += incoming_sequence.SEQUENCE_LIFETIME
    stranger.send(to, source=busy, address=alpha.guid, number=2, previous=1)
    alpha.now += 1
    stranger.send(to, source=new, address=alpha.guid, number=1)
    assert senders_at(alpha, "tx") == [busy, new]
    assert [sequence.source for sequence in alpha.transfer.incoming.sequences] == [busy, new]
    assert rows_of_sequences(alpha) == 2
    # Who comes back begins anew.
    stranger.send(to, source=old, address=alpha.guid, number=1)
    assert alpha.queue("tx").message_count == 5


def number_of(node: Node, queue: str) -> str:
    return f"{node.queue(queue).private_queue_number:x}"


def test_an_address_has_so_many_senders_and_those_that_were_heard_of_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up senders to a queue that is open to all were remembered, each with a row on disk."""
    monkeypatch.setattr(incoming_sequence, "MAX_SEQUENCES_PER_ADDRESS", 3)
    alpha = world.node("ALPHA", "127.0.0.2", profile=Profile.DOCUMENT)
    alpha.create("tx", transactional=True)
    to = f"PRIVATE={alpha.guid}\\{number_of(alpha, 'tx')}"
    one, two, three, four, five = (uuid4() for _ in range(5))
    stranger = Stranger(alpha)
    for source in (one, two, three):
        alpha.now += 1
        stranger.send(to, source=source, address=alpha.guid, number=1)
    alpha.now += 1
    stranger.send(to, source=one, address=alpha.guid, number=2, previous=1)
    stranger.send(to, source=four, address=alpha.guid, number=1)
    assert senders_at(alpha, "tx") == [one, three, four]
    assert rows_of_sequences(alpha) == 3
    alpha.sync()
    world.now = alpha.now
    alpha.restart()
    stranger = Stranger(alpha)
    stranger.send(to, source=five, ordinal=77, address=alpha.guid, number=1)
    assert len(senders_at(alpha, "tx")) == 3
    assert three not in senders_at(alpha, "tx")
    # The sequence of a kept sender continues.
    stranger.send(to, source=one, ordinal=78, address=alpha.guid, number=3, previous=2)
    assert alpha.queue("tx").message_count == 7


def test_a_start_forgets_senders_that_were_not_heard_of_for_a_month(world: World) -> None:
    alpha = world.node("ALPHA", "127.0.0.2")
    alpha.create("tx", transactional=True)
    Stranger(alpha).send(alpha.direct("tx"), number=1)
    alpha.sync()
    alpha.restart()
    assert len(senders_at(alpha, "tx")) == 1
    world.now += incoming_sequence.SEQUENCE_LIFETIME + 1
    alpha.now = world.now
    alpha.restart()
    assert senders_at(alpha, "tx") == []
    assert rows_of_sequences(alpha) == 0


@pytest.mark.parametrize("is_named", [False, True], ids=["for nobody", "for us"])
def test_nobody_sends_to_a_direct_name_in_anothers_name(
    world: World, caplog: pytest.LogCaptureFixture, is_named: bool
) -> None:
    """An attacker uses the identifiers that a victim would use next.

    Formerly the victim's messages were then dropped as duplicates.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("q")
    address = beta.guid if is_named else GUID_NULL
    stranger = Stranger(beta)
    first = alpha.engine.next_message_ordinal() + 1
    for ordinal in range(first, first + 5):
        stranger.send(beta.direct("q"), source=alpha.guid, ordinal=ordinal, address=address)
    assert [(row.message_class, row.count) for row in beta.transfer.incoming.refusals] == [(UNVERIFIED_SOURCE, 5)]
    assert [record.name for record in caplog.records if "is not at the other end of the session" in record.message] == [
        "lanner.transfer.incidents",
        "lanner.transfer.refusals",
    ]
    assert stranger.link.is_open
    alpha.send(beta.direct("q"), b"the victim's")
    alpha.sync()
    world.run()
    assert beta.bodies("q") == [b"the victim's"]
    # In its own name it may.
    stranger.send(beta.direct("q"), address=address)
    assert beta.queue("q").message_count == 2


@pytest.mark.parametrize(
    "cuts",
    [
        [_HANDSHAKE],
        [_HANDSHAKE + 1],
        [_HANDSHAKE + 40],
        # It ends with the first part of the handshake, and does not wait for the answer to the
        # second.
        [ESTABLISH_CONNECTION_SIZE, _HANDSHAKE + 1],
        [ESTABLISH_CONNECTION_SIZE, _HANDSHAKE + 40],
        [100, ESTABLISH_CONNECTION_SIZE, _HANDSHAKE - 1, _HANDSHAKE + 40],
        # Nor to the first.
        [ESTABLISH_CONNECTION_SIZE + 1, _HANDSHAKE],
        [ESTABLISH_CONNECTION_SIZE - 1, _HANDSHAKE - 1, _HANDSHAKE],
    ],
)
def test_a_connection_that_is_played_once_more_acknowledges_nothing(world: World, cuts: list[int]) -> None:
    """Networks repeat connections, and so may an attacker who recorded one.

    The acknowledgments in it are for messages of another session. The recording comes in pieces.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    alpha.create("q")
    beta.create("q")
    there, here = beta.direct("q"), alpha.direct("q")
    # So that all of it goes over the connection that ALPHA makes.
    world.unreachable["127.0.0.2"] = errno.EHOSTUNREACH
    for number in range(40):
        beta.send(here, b"%d" % number)
    beta.sync()
    world.run()
    alpha.send(there, b"opens a session")
    alpha.sync()
    world.tick(20)
    assert beta.outgoing(here).message_count == 0
    (connection,) = [one for one in world.connections if one.node is alpha]
    said = b"".join(connection.sent)
    world.cut()
    for number in range(40):
        beta.send(here, b"later %d" % number)
    beta.sync()
    world.run()
    again, nobody = FakeConnection(beta), FakeConnection(alpha)
    again.peer, nobody.peer = nobody, again
    world.connections += (again, nobody)
    beta.transfer.accepted(again, "127.0.0.2")
    for start, end in itertools.pairwise([0, *cuts, len(said)]):
        again.deliver(said[start:end])
        world.run()
    world.tick(1)
    assert beta.outgoing(here).message_count == 40
    world.unreachable.clear()
    world.tick(200)
    assert alpha.bodies("q")[40:] == [b"later %d" % number for number in range(40)]
