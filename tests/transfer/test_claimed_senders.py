"""A SID that no signature proves is a claim (docs/security.md).

It grants no rights, and it can remove some.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.directory_objects import User
from lanner.model.enums import (
    AuthenticationLevel,
    DirectoryOperationResult,
    MessageClass,
    QueueAccessType,
    SenderIdentifierType,
)
from lanner.security.certificates import add_certificate
from lanner.security.identity import Identity
from lanner.security.profile import Profile
from lanner.security.signing import sign
from lanner.security.verified_senders import is_sender_verified
from lanner.wire.builder import set_authentication
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import ANONYMOUS_LOGON, Sid
from tests.security.samples import signing_key
from tests.transfer.incoming_harness import LEDGER, OTHER, IncomingHarness, asking, final_acks, sent_by, told

ALICE = Sid.parse("S-1-5-21-1-2-3-1001")
BOB = Sid.parse("S-1-5-21-1-2-3-1002")
GROUP = Sid.parse("S-1-5-21-1-2-3-2001")
# AS of a peer that says it has verified the message for us.
MARKED = AuthenticationLevel.SIG20


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    known = Identity("alice", ALICE, groups=frozenset({GROUP}), is_domain_user=True)
    harness = IncomingHarness(tmp_path / "data", send_insecure_nacks=True, resolve_identity={ALICE: known}.get)
    harness.create("q")
    harness.create("ledger", transactional=True)
    harness.create("admin")
    yield harness
    harness.close()


def guard(h: IncomingHarness, entries: str, queue: str = "q") -> None:
    h.engine.set_queue_properties(h.queue(queue), {"security": parse_sddl(f"O:SYG:SYD:{entries}").pack()})


def signed(h: IncomingHarness, body: bytes) -> bytes:
    """A message that alice signed, with her certificate in the directory."""
    assert h.directory.add_user("alice", ALICE.pack())[0] is DirectoryOperationResult.SUCCESS
    user = User(security_identifier=ALICE.pack())
    add_certificate(user, signing_key().certificate)
    assert h.directory.write(user, ["Certificates", "CertificateDigestList"]) is DirectoryOperationResult.SUCCESS
    return sign(h.packet(body, **sent_by(ALICE)), signing_key())


@pytest.mark.parametrize(
    "entries",
    [
        f"(A;;0x4;;;{ALICE})",
        f"(A;;0x4;;;{GROUP})",
        "(A;;0x4;;;AU)",
        f"(D;;0x4;;;WD)(A;;0x4;;;{ALICE})",
    ],
)
def test_a_claim_gives_no_rights(h: IncomingHarness, entries: str) -> None:
    """The named account, its groups and Authenticated Users get no rights by a claim."""
    guard(h, entries)
    guard(h, entries, "ledger")
    h.arrive(h.packet(b"claimed", **sent_by(ALICE), **asking()), h.packet(to=LEDGER, number=1, **sent_by(ALICE)))
    assert h.bodies() == []
    assert told(h) == [0x8004]
    assert final_acks(h) == [0x8004]


@pytest.mark.parametrize("trustee", ["WD", "AN"])
def test_a_claim_is_taken_from_where_strangers_may_send(h: IncomingHarness, trustee: str) -> None:
    """Known, unknown and unreadable SIDs are all the same."""
    guard(h, f"(A;;0x4;;;{trustee})")
    h.arrive(
        h.packet(b"known", **sent_by(ALICE)),
        h.packet(b"unknown", **sent_by(BOB)),
        h.packet(b"unreadable", sender_identifier=b"no SID at all"),
        h.packet(b"anonymous", **sent_by(ANONYMOUS_LOGON)) if trustee == "AN" else h.packet(b"again", **sent_by(BOB)),
    )
    assert len(h.bodies()) == 4


@pytest.mark.parametrize("trustee", ["WD", "AN"])
def test_a_denial_holds_for_whoever_claims_to_be_denied(h: IncomingHarness, trustee: str) -> None:
    guard(h, f"(D;;0x4;;;{GROUP})(D;;0x4;;;{BOB})(A;;0x4;;;{trustee})")
    h.arrive(
        h.packet(b"in a group that is denied", **sent_by(ALICE)),
        h.packet(b"denied", **sent_by(BOB)),
        h.packet(b"another", **sent_by(Sid.parse("S-1-5-21-1-2-3-1003"))),
    )
    assert h.bodies() == [b"another"]


def test_a_signature_gives_the_rights_of_the_account(h: IncomingHarness) -> None:
    guard(h, f"(A;;0x4;;;{GROUP})")
    h.arrive(h.packet(b"claimed", **sent_by(ALICE)), signed(h, b"signed"))
    [message] = h.messages()
    assert message.body == b"signed"
    assert is_sender_verified(message, h.engine.queue_manager.identifier)


def test_the_setting_wins_over_the_profile(h: IncomingHarness) -> None:
    for profile, trusts, is_taken in (
        (Profile.SAFE, True, True),
        (Profile.DOCUMENT, False, False),
        (Profile.DOCUMENT, None, True),
        (Profile.SAFE, None, False),
    ):
        h.settings |= {"profile": profile, "trust_unsigned_sid": trusts}
        h.restart()
        guard(h, f"(A;;0x4;;;{ALICE})")
        body = f"{profile} {trusts}".encode()
        h.arrive(h.packet(body, **sent_by(ALICE)))
        assert (body in h.bodies()) is is_taken


def test_a_mark_of_a_peer_is_not_taken_over(h: IncomingHarness) -> None:
    """AS and AU are 0 on the wire.

    A peer that sets them proves nothing, wherever the message ends.
    """
    # Only this profile passes messages on where there is no directory.
    h.settings |= {"profile": Profile.DOCUMENT}
    h.restart()
    own = h.engine.queue_manager.identifier
    marked = set_authentication(h.packet(b"marked", **sent_by(ALICE)), MARKED)
    assert Message(marked).authentication_level
    h.arrive(marked)
    h.create("full", quota=1)
    too_large = h.packet(
        bytes(2000), to=r"DIRECT=OS:ALPHA\private$\full", negative_journaling_requested=True, **sent_by(ALICE)
    )
    h.arrive(set_authentication(too_large, MARKED))
    far = rf"PRIVATE={OTHER}\5"
    forwarded = h.packet(b"forwarded", to=far, destination_queue_manager_identifier=OTHER, **sent_by(ALICE))
    h.arrive(set_authentication(forwarded, MARKED))
    found = [*h.messages(), *h.messages("DIRECT=OS:.\\SYSTEM$;DEADLETTER")]
    found += [message for messages in h.all_outgoing().values() for message in messages]
    assert [message.message_class for message in found].count(MessageClass.NACK_QUEUE_EXCEED_QUOTA) == 1
    assert len(found) == 3
    for message in found:
        assert not message.authentication_level
        assert is_sender_verified(message, own) is False


def test_a_message_that_a_user_sends_as_the_queue_manager_has_no_verified_sender(h: IncomingHarness) -> None:
    """Everyone who may send may name the queue manager as the sender."""
    own = h.engine.queue_manager.identifier
    descriptor = h.open("q", QueueAccessType.SEND)
    for kind in SenderIdentifierType:
        h.engine.enqueue_message_to_an_open_queue(descriptor, h.properties(sender_identifier_type=kind))
    found = {message.sender_identifier_type: is_sender_verified(message, own) for message in h.messages()}
    assert found == {
        SenderIdentifierType.NONE: False,
        SenderIdentifierType.SID: True,
        SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER: False,
    }
