"""FinalAcks as a receiver sends them (MS-MQQB 2.2.5), taken from what goes over the connection."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.directory.topology import Computer
from lanner.security.profile import Profile
from lanner.wire.message import Message
from lanner.wire.user_message import UserMessage
from tests.transfer.enterprise import Enterprise
from tests.transfer.pairs import split
from tests.transfer.world import Node, World

# UserHeader.Flags: the kind of name, MessagePropertiesHeader present, recoverable.
PRIVATE_QUEUE, DIRECT_QUEUE = 3 << 10, 7 << 10
MP, DM = 1 << 21, 1 << 5


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def final_acks(node: Node) -> list[bytes]:
    """The packets that a computer has sent with a class from 0x4000 on."""
    connections = [one for one in node.world.connections if one.node is node]
    packets = [packet for one in connections for packet in split(b"".join(one.sent))]
    # BaseHeader.Flags.IN: what is no internal packet is a user message.
    messages = [packet for packet in packets if not packet[2] & 0x08]
    return [one for one in messages if UserMessage.unpack(one).message_properties_header.message_class >= 0x4000]


def arrived(node: Node, name: str) -> list[Message]:
    """Return the contents of a queue in order, without removing them."""
    found, after = [], -1
    number = node.queue(name).number
    while (lookup_id := node.store.next(number, after)) is not None:
        after = lookup_id
        record = node.store.get(number, lookup_id)
        assert record is not None
        found.append(Message(record.packet))
    return found


@pytest.mark.spec("QQB-2.2.5-1", "QQB-2.2.5-2", "QQB-2.2.5.1-1")
@pytest.mark.parametrize("by_number", [False, True])
@pytest.mark.parametrize("profile", list(Profile))
def test_a_final_ack_of_a_received_and_one_of_a_refused_message(
    world: World, profile: Profile, *, by_number: bool
) -> None:
    """Also with the defaults of the documents, where other messages name the sender's account."""
    computers = [Computer("ALPHA", sites=("west",)), Computer("BETA", sites=("west",))]
    enterprise = Enterprise(world, computers, profile=profile)
    alpha, beta = enterprise["ALPHA"], enterprise["BETA"]
    name = enterprise.private("BETA", "tx", transactional=True)
    if not by_number:
        name = beta.direct("tx")
    for body in (b"received", b"purged"):
        alpha.commit_one(name, body, positive_journaling_requested=True, negative_journaling_requested=True)
    alpha.sync()
    world.tick(1)
    acknowledged = arrived(beta, "tx")
    assert [message.body for message in acknowledged] == [b"received", b"purged"]
    beta.receive("tx")
    beta.engine.purge_queue(beta.queue("tx"))
    beta.sync()
    world.tick(5)
    packets = final_acks(beta)
    assert len(packets) == 2
    for packet, message_class, message in zip(packets, (0x4000, 0xC001), acknowledged, strict=True):
        headers = UserMessage.unpack(packet)
        properties = headers.message_properties_header
        assert headers.base_header.flags == 0
        kind = PRIVATE_QUEUE if by_number else DIRECT_QUEUE
        assert headers.user_header.flags == kind | MP | DM
        if by_number:
            assert headers.user_header.queue_manager_address == alpha.guid
            assert headers.user_header.destination_queue == 4
        else:
            assert (
                str(headers.user_header.destination_queue).upper()
                == rf"DIRECT=TCP:{alpha.address}\PRIVATE$\ORDER_QUEUE$"
            )
        assert (headers.transaction_header, headers.security_header, headers.debug_header) == (None, None, None)
        assert not headers.extensions
        assert properties.label == "QM Ordering Ack"
        assert (properties.message_class, properties.flags, properties.body_type) == (message_class, 0, 0)
        assert len(properties.message_body) == 0x24
        # BaseHeader, UserHeader and MessagePropertiesHeader are all there is: the body stands at
        # the end.
        assert packet[-36:] == properties.message_body
        sequence = message.transactional_message_sequence_identifier
        assert sequence is not None
        assert properties.message_body == struct.pack(
            "<QII16sI",
            sequence.value,
            message.transaction_sequence_number,
            message.transaction_previous_sequence_number,
            alpha.guid.bytes_le,
            message.identifier.ordinal,
        )
