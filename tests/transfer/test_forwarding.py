"""Forwarding in profile "safe": which messages are passed on, for whom and where to.

MS-MQQB 3.1.5.8.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from lanner.directory.topology import Computer, Topology, provision
from lanner.transfer.identities import Standing
from lanner.transfer.incidents import Incident
from tests.transfer.incoming_harness import OTHER, FakeLink, IncomingHarness, asking, told

ELSEWHERE = rf"PRIVATE={OTHER}\00000020"


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    """A routing server; the directory has one other computer."""
    harness = IncomingHarness(tmp_path / "data", send_insecure_nacks=True)
    harness.create("admin")
    own = harness.engine.queue_manager
    computers = (
        Computer(own.computer_name, own.identifier, sites=("west",), routing_server=True),
        Computer("BETA", OTHER, sites=("west",), qualified_computer_name="beta.example.com"),
    )
    provision(harness.directory, Topology(("west",), computers))
    harness.engine.read_routing_data()
    yield harness
    harness.close()


def addressed(packet: bytes, guid: UUID) -> bytes:
    return packet[:32] + guid.bytes_le + packet[48:]


def test_a_routing_server_passes_messages_on_to_computers_of_the_directory(h: IncomingHarness) -> None:
    direct = r"DIRECT=OS:beta\private$\q"
    h.arrive(h.packet(b"one", to=ELSEWHERE), addressed(h.packet(b"two", to=direct), OTHER))
    assert [message.body for message in h.outgoing(ELSEWHERE)] == [b"one"]
    assert [message.body for message in h.outgoing(direct)] == [b"two"]
    assert h.incoming.incidents.count(Incident.NOT_FORWARDED) == 0


def test_it_passes_nothing_on_to_others(h: IncomingHarness) -> None:
    public = f"PUBLIC={uuid4()}"
    h.arrive(
        h.packet(to=rf"PRIVATE={uuid4()}\00000020", **asking()),
        addressed(h.packet(to=r"DIRECT=TCP:192.0.2.99\private$\q"), OTHER),
        addressed(h.packet(to=r"DIRECT=OS:gamma\private$\q"), OTHER),
        addressed(h.packet(to=ELSEWHERE), uuid4()),
        addressed(h.packet(to=public), OTHER),
    )
    assert h.all_outgoing() == {}
    assert told(h) == [0x8000]
    assert h.incoming.incidents.count(Incident.NOT_FORWARDED) == 5
    assert len(h.incoming.history) == 0


def test_it_passes_nothing_on_for_peers_that_nobody_knows(h: IncomingHarness) -> None:
    h.link.standing = Standing()
    h.arrive(h.packet(to=ELSEWHERE))
    assert h.all_outgoing() == {}
    assert h.incoming.incidents.count(Incident.NOT_FORWARDED) == 1


def test_what_others_have_sent_comes_from_routing_servers_alone(h: IncomingHarness) -> None:
    third = uuid4()
    h.arrive(h.packet(b"one", to=ELSEWHERE, source=third, ordinal=1))
    assert h.all_outgoing() == {}
    assert h.incoming.incidents.count(Incident.UNVERIFIED_SOURCE) == 1
    h.arrive(h.packet(b"one", to=ELSEWHERE, source=third, ordinal=1), link=FakeLink(uuid4(), is_router=True))
    assert [message.body for message in h.outgoing(ELSEWHERE)] == [b"one"]


def test_a_message_in_anothers_name_is_acknowledged_where_it_asks_for_it(h: IncomingHarness) -> None:
    """The named sender gets no FinalAck: that one would give up a message of its own."""
    h.create("q")
    h.create("ledger", transactional=True)
    third = uuid4()
    h.arrive(
        h.packet(source=third, **asking()),
        h.packet(source=third, to=r"DIRECT=OS:ALPHA\private$\ledger", number=1),
    )
    assert told(h) == [0x8004]
    assert h.all_outgoing() == {}
