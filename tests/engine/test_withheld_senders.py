"""Which sender a message to another computer names (DECISIONS, safe defaults).

Inside this computer the SID of a local account is kept. Elsewhere it means nothing, so it is not
sent, unless the message is signed: its receiver looks up the certificate by the SID.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.enums import QueueAccessType, SenderIdentifierType
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.wire.message import Message
from lanner.wire.packet_template import MessageRun
from lanner.wire.sid import Sid
from tests.engine.harness import Harness

MACHINE = Sid.parse("S-1-5-21-1-2-3")
ALICE = Identity("alice", MACHINE.child(1001), is_domain_user=True)
CAROL = Identity("carol", Sid.parse("S-1-22-1-1000"))
OF_A_DOMAIN = Identity("dave", Sid.parse("S-1-5-21-9-9-9-1001"), is_domain_user=True)
LOCAL = (ALICE, CAROL, SYSTEM, ANONYMOUS)
ELSEWHERE = r"DIRECT=OS:BETA\private$\q"
HERE = r"DIRECT=OS:.\private$\q"


def harness(path: Path, profile: Profile = Profile.SAFE) -> Harness:
    return Harness(path, is_local_account=lambda sid: sid.domain == MACHINE, profile=profile)


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    made = harness(tmp_path / "data")
    made.create()
    yield made
    made.close()


def sent(h: Harness, name: str, identity: Identity, **attributes: object) -> None:
    descriptor = h.open(name, QueueAccessType.SEND, identity=identity)
    h.engine.enqueue_message_to_an_open_queue(descriptor, h.properties(b"x", recoverable=True, **attributes))
    h.engine.close_queue(descriptor)


def waiting(h: Harness) -> list[Message]:
    """Return the messages that wait to be sent to the other computer."""
    return [Message(position.record.packet) for position in h.engine.positions.all_positions(h.queue(ELSEWHERE))]


@pytest.mark.parametrize("identity", LOCAL, ids=lambda identity: identity.name)
def test_a_local_account_is_named_here_and_not_elsewhere(h: Harness, identity: Identity) -> None:
    sent(h, HERE, identity)
    sent(h, ELSEWHERE, identity)
    # COM fills in the sender itself.
    sent(h, ELSEWHERE, identity, sender_identifier=identity.sid.pack())
    (here,) = h.messages()
    assert here.sender_identifier == identity.sid.pack()
    for there in waiting(h):
        assert not there.has_security_header
        assert there.sender_identifier_type is SenderIdentifierType.NONE
        assert identity.sid.pack() not in there.packet


def test_an_account_of_a_domain_is_named_elsewhere(h: Harness) -> None:
    sent(h, ELSEWHERE, OF_A_DOMAIN)
    (message,) = waiting(h)
    assert message.sender_identifier == OF_A_DOMAIN.sid.pack()


@pytest.mark.parametrize("attribute", ["signature", "multiple_destination_signature"])
def test_a_signed_message_names_its_sender(h: Harness, attribute: str) -> None:
    sent(h, ELSEWHERE, ALICE, **{attribute: b"s" * 64})
    (message,) = waiting(h)
    assert message.sender_identifier == ALICE.sid.pack()


def test_the_queue_manager_may_still_name_itself(h: Harness) -> None:
    sent(h, ELSEWHERE, ALICE, sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER)
    (message,) = waiting(h)
    assert message.sender_identifier == h.engine.queue_manager.identifier.bytes_le


@pytest.mark.parametrize("names", [(HERE, ELSEWHERE), (ELSEWHERE, HERE)])
def test_of_several_copies_the_local_one_names_the_sender(h: Harness, names: tuple[str, str]) -> None:
    sent(h, ",".join(names), ALICE)
    (here,), (there,) = h.messages(), waiting(h)
    assert here.sender_identifier == ALICE.sid.pack()
    assert not there.has_security_header


def test_the_properties_can_be_sent_again(h: Harness) -> None:
    properties = h.properties(b"x")
    for name in (ELSEWHERE, HERE):
        descriptor = h.open(name, QueueAccessType.SEND, identity=ALICE)
        h.engine.enqueue_message_to_an_open_queue(descriptor, properties)
    (here,) = h.messages()
    assert here.sender_identifier == ALICE.sid.pack()


def test_staged_messages_name_no_local_account_elsewhere(h: Harness) -> None:
    for number, name in enumerate((HERE, ELSEWHERE)):
        descriptor = h.open(name, QueueAccessType.SEND, identity=ALICE)
        run = MessageRun(h.properties(), [b""], [b"x"])
        h.engine.stage_messages(descriptor, bytes([number]), [run])
        h.engine.publish_stages(bytes([number]), [bytes([number])])
    h.sync()
    (here,), (there,) = h.messages(), waiting(h)
    assert here.sender_identifier == ALICE.sid.pack()
    assert not there.has_security_header


@pytest.mark.spec("DMPR-3.1.1.12-23")
@pytest.mark.parametrize("identity", LOCAL, ids=lambda identity: identity.name)
def test_in_the_document_profile_every_sender_is_named(tmp_path: Path, identity: Identity) -> None:
    h = harness(tmp_path / "data", profile=Profile.DOCUMENT)
    sent(h, ELSEWHERE, identity)
    (message,) = waiting(h)
    assert message.sender_identifier == identity.sid.pack()
    h.close()
