"""MS-MQQB 3.1.5.8.3 in the engine.

A queue accepts a message only with a valid signature and a readable body.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.model.directory_objects import InternalCertificate, QueueManager, User
from lanner.model.enums import (
    Acknowledgements,
    AuthenticationLevel,
    DirectoryOperationResult,
    EncryptionAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    QueueAccessType,
    QueuePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import CorruptedSecurityData, MessageNotAuthenticated
from lanner.security.certificates import add_certificate
from lanner.security.encryption import EncryptionPreferences, SessionKey, encrypt_body, select
from lanner.security.examination import examine
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.security.keys import Provider
from lanner.security.profile import Profile
from lanner.security.signing import SigningKey, sign, sign_properties
from lanner.wire import layout as at
from lanner.wire.builder import set_authentication
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys
from lanner.wire.sid import Sid
from tests.engine.harness import Harness
from tests.security.samples import changed, queue_manager_keys, signing_key

ALICE = Sid.parse("S-1-5-21-1-2-3-1001")
ANSWERS = {"acknowledgements_requested": Acknowledgements.FULL_REACH_QUEUE}


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", private_keys=lambda: queue_manager_keys().encryption, send_insecure_nacks=True)
    harness.create()
    harness.create("signed", authentication=True)
    harness.create("admin")
    yield harness
    harness.close()


def register(h: Harness, sid: Sid = ALICE, name: str = "alice") -> None:
    """Publish the certificate of that name for the user with that SID."""
    assert h.directory.add_user(name, sid.pack())[0] is DirectoryOperationResult.SUCCESS
    user = User(security_identifier=sid.pack())
    add_certificate(user, signing_key(name).certificate)
    assert h.directory.write(user, ["Certificates", "CertificateDigestList"]) is DirectoryOperationResult.SUCCESS


def arriving(h: Harness, body: bytes = b"body", **more: Any) -> bytes:  # noqa: ANN401 - any property
    more = {"administration_queue_format_name": h.name("admin"), **ANSWERS, **more}
    return h.message(body, **more).packet


def insert(h: Harness, packet: bytes, queue: str = "q") -> MessageClass:
    return h.engine.insert_message(h.queue(queue), Message.unpack(packet), SYSTEM)


def encrypted(packet: bytes, provider: Provider = Provider.AES) -> bytes:
    every = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
    keys = MqdsPublicKeys(tuple(key for key in every.keys if key.provider_name == provider.provider_name))
    return encrypt_body(packet, SessionKey.generate(select(keys, 1)))


def property_changed(packet: bytes, offset: int, value: int) -> bytes:
    return changed(packet, at.locate(packet).properties + offset, value.to_bytes(4, "little"))


def refused(h: Harness, packet: bytes, expected: int, queue: str = "q") -> None:
    """Assert that nothing is stored and that the sender gets the reason."""
    assert insert(h, packet, queue) == expected
    assert h.messages(queue) == []
    assert [answer.message_class for answer in h.messages("admin")] == [expected]


class TestSignature:
    @pytest.mark.parametrize("level", [AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30])
    def test_what_was_verified_is_stored_in_as(self, h: Harness, level: AuthenticationLevel) -> None:
        h.settings |= {"profile": Profile.DOCUMENT}
        h.restart()
        register(h)
        packet = sign(arriving(h, sender_identifier=ALICE.pack()), signing_key(), level=level)
        for queue in ("q", "signed"):
            assert insert(h, packet, queue) is MessageClass.ACK_REACH_QUEUE
            (stored,) = h.messages(queue)
            assert stored.authentication_level is level
            assert stored.body == b"body"

    @pytest.mark.parametrize("level", [AuthenticationLevel.SIG10, AuthenticationLevel.SIG30])
    def test_a_signature_must_be_for_the_queue(self, h: Harness, level: AuthenticationLevel) -> None:
        """Neither hash of a message to one queue names the queue.

        So its signature could be for another queue.
        """
        register(h)
        packet = sign(arriving(h, sender_identifier=ALICE.pack()), signing_key(), level=level)
        for queue in ("q", "signed"):
            refused(h, packet, 0x8006, queue)
        # The setting wins over the profile.
        h.settings |= {"legacy_signatures": True}
        h.restart()
        assert insert(h, packet, "signed") is MessageClass.ACK_REACH_QUEUE

    def test_a_peer_cannot_write_as_itself(self, h: Harness) -> None:
        """AS is 0 on the wire (MS-MQMQ 2.2.20.6); any other value of a peer is ignored."""
        for more in ({"sender_identifier": ALICE.pack()}, {"sender_certificate": signing_key().certificate}):
            forged = set_authentication(arriving(h, **more), AuthenticationLevel.SIG30)
            assert insert(h, forged) is MessageClass.ACK_REACH_QUEUE
            (stored,) = h.messages()
            assert stored.authentication_level is AuthenticationLevel.NONE
            h.messages("admin")
            refused(h, forged, 0x8006, "signed")

    def test_an_unsigned_message_is_refused_only_where_a_signature_is_demanded(self, h: Harness) -> None:
        assert insert(h, arriving(h)) is MessageClass.ACK_REACH_QUEUE
        h.messages("admin")
        refused(h, arriving(h), 0x8006, "signed")

    @pytest.mark.spec("QQB-3.1.5.8.3-4")
    def test_a_signature_that_does_not_fit_is_refused_everywhere(self, h: Harness) -> None:
        packet = sign(arriving(h), signing_key())
        refused(h, changed(packet, Message(packet).body_offset, b"x"), 0x8006)

    @pytest.mark.spec("MQMQ-2.2.19.3-8")
    def test_an_unlisted_hash_is_refused_with_a_signature_and_passes_without(self, h: Harness) -> None:
        for number in (0, 0x8000, 0x8005, 0x800D, 0xFFFF_FFFF):
            refused(h, property_changed(sign(arriving(h), signing_key()), 44, number), 0x8006)
            assert insert(h, property_changed(arriving(h), 44, number)) is MessageClass.ACK_REACH_QUEUE
            h.messages()
            h.messages("admin")

    def test_an_unsupported_provider_is_0x800b(self, h: Harness) -> None:
        packet = sign(arriving(h), signing_key(), provider=(3, "Microsoft Base DSS Cryptographic Provider"))
        refused(h, packet, 0x800B)

    def test_a_signature_without_a_named_sender_needs_no_directory(self, h: Harness) -> None:
        assert insert(h, sign(arriving(h), signing_key()), "signed") is MessageClass.ACK_REACH_QUEUE


class TestSender:
    def test_the_certificate_must_be_one_the_directory_has_for_the_sender(self, h: Harness) -> None:
        packet = sign(arriving(h, sender_identifier=ALICE.pack(), transaction=None), signing_key())
        refused(h, packet, 0x8006)
        register(h, ALICE, "bob")
        refused(h, packet, 0x8006)
        other = Sid.parse("S-1-5-21-1-2-3-1002")
        register(h, other)
        refused(h, packet, 0x8006)
        mine = sign(arriving(h, sender_identifier=other.pack()), signing_key())
        assert insert(h, mine, "signed") is MessageClass.ACK_REACH_QUEUE

    def test_an_unsigned_message_names_whom_it_likes(self, h: Harness) -> None:
        """MS-MQQB 4.1.7 is one: a SID and no signature.

        Its rights are looked up, its certificate is not.
        """
        assert insert(h, arriving(h, sender_identifier=ALICE.pack())) is MessageClass.ACK_REACH_QUEUE

    def test_internal_certificates_are_known_here(self, h: Harness) -> None:
        packet = sign(arriving(h, sender_identifier=ALICE.pack()), signing_key())
        user = User(security_identifier=ALICE.pack())
        h.engine.queue_manager.internal_certificate_collection[str(ALICE)] = InternalCertificate(
            signing_key().certificate, user
        )
        assert insert(h, packet, "signed") is MessageClass.ACK_REACH_QUEUE

    @pytest.mark.parametrize("sender", [b"\1", b"not a security identifier"])
    def test_a_sender_that_is_no_sid_is_nobody(self, h: Harness, sender: bytes) -> None:
        refused(h, sign(arriving(h, sender_identifier=sender), signing_key()), 0x8006)

    def test_a_sender_that_is_announced_and_absent_is_nobody(self, h: Harness) -> None:
        packet = sign(arriving(h), signing_key())
        offset = at.locate(packet).security
        refused(h, changed(packet, offset, packet[offset] | SenderIdentifierType.SID), 0x8006)

    def test_certificates_that_cannot_be_read_prove_nothing(self, h: Harness) -> None:
        assert h.directory.add_user("alice", ALICE.pack())[0] is DirectoryOperationResult.SUCCESS
        user = User(security_identifier=ALICE.pack(), certificates=b"broken")
        assert h.directory.write(user, ["Certificates"]) is DirectoryOperationResult.SUCCESS
        refused(h, sign(arriving(h, sender_identifier=ALICE.pack()), signing_key()), 0x8006)


class TestRegistration:
    def test_a_certificate_is_published_once(self, h: Harness) -> None:
        alice = Identity("alice", ALICE)
        packet = sign(arriving(h, sender_identifier=ALICE.pack()), signing_key())
        assert h.engine.register_certificate(alice, signing_key("bob").certificate)
        refused(h, packet, 0x8006, "signed")
        for _ in range(2):
            assert h.engine.register_certificate(alice, signing_key().certificate)
        assert insert(h, packet, "signed") is MessageClass.ACK_REACH_QUEUE
        user = h.engine.examiner.read_user(ALICE.pack())
        assert user is not None
        # Both are alice's: a user may have several.
        assert len(user.certificate_digest_list) == 2

    def test_an_internal_one_is_known_here_before_the_directory_says_so(self, h: Harness) -> None:
        assert h.engine.register_certificate(Identity("alice", ALICE), signing_key().certificate, is_internal=True)
        collection = h.engine.queue_manager.internal_certificate_collection
        assert collection[str(ALICE)].certificate == signing_key().certificate

    def test_a_name_that_is_taken_does_not_matter(self, h: Harness) -> None:
        assert h.directory.add_user("alice", SYSTEM.sid.pack())[0] is DirectoryOperationResult.SUCCESS
        assert h.engine.register_certificate(Identity("alice", ALICE), signing_key().certificate)
        assert insert(h, sign(arriving(h, sender_identifier=ALICE.pack()), signing_key()), "signed") == 2

    def test_nobody_has_no_certificates(self, h: Harness) -> None:
        assert not h.engine.register_certificate(ANONYMOUS, signing_key().certificate)

    def test_it_outlives_a_restart(self, h: Harness) -> None:
        assert h.engine.register_certificate(Identity("alice", ALICE), signing_key().certificate, is_internal=True)
        h.restart()
        assert h.engine.queue_manager.internal_certificate_collection == {}
        assert insert(h, sign(arriving(h, sender_identifier=ALICE.pack()), signing_key()), "signed") == 2


class TestQueueManagerSender:
    def signed(self, h: Harness, queue_manager: uuid.UUID) -> bytes:
        key = SigningKey(queue_manager_keys().signing[Provider.ENHANCED])
        return sign(arriving(h), key, queue_manager=queue_manager)

    def test_a_queue_manager_is_verified_with_the_key_it_published(self, h: Harness) -> None:
        other = QueueManager(
            computer_name="BETA",
            qualified_computer_name="BETA.example.com",
            public_signing_key_list=queue_manager_keys().public_key_lists()[1],
            site_identifier_list=list(h.engine.queue_manager.site_identifier_list),
        )
        packet = self.signed(h, other.identifier)
        refused(h, packet, 0x8006)
        assert h.directory.create_object(other)[0] is DirectoryOperationResult.SUCCESS
        assert insert(h, packet, "signed") is MessageClass.ACK_REACH_QUEUE
        (stored,) = h.messages("signed")
        assert stored.authentication_level is AuthenticationLevel.SIG20

    def test_so_is_this_one(self, h: Harness) -> None:
        queue_manager = h.engine.queue_manager
        packet = self.signed(h, queue_manager.identifier)
        refused(h, packet, 0x8006)
        queue_manager.public_signing_key_list = queue_manager_keys().public_key_lists()[1]
        assert insert(h, packet, "signed") is MessageClass.ACK_REACH_QUEUE
        queue_manager.public_signing_key_list = b"broken"
        h.messages("admin")
        h.messages("signed")
        refused(h, packet, 0x8006, "signed")


class TestEncryption:
    @pytest.mark.spec("MQMQ-2.2.20.6-5")
    @pytest.mark.parametrize("provider", Provider)
    def test_the_body_is_stored_in_clear(self, h: Harness, provider: Provider) -> None:
        packet = encrypted(arriving(h, b"a secret"), provider)
        assert b"a secret" not in packet
        assert insert(h, packet) is MessageClass.ACK_REACH_QUEUE
        (stored,) = h.messages()
        assert stored.body == b"a secret"
        assert not stored.is_body_encrypted
        # How it came is still to be seen.
        assert stored.privacy_level != MessagePrivacyLevel.NONE

    @pytest.mark.spec("MQMQ-2.2.20.6-5")
    def test_without_eb_the_body_is_plain_whatever_the_algorithm(self, h: Harness) -> None:
        packet = property_changed(arriving(h, b"plain", sender_identifier=ALICE.pack()), 48, 0x6610)
        assert insert(h, packet) is MessageClass.ACK_REACH_QUEUE
        assert h.bodies() == [b"plain"]

    @pytest.mark.spec("MQMQ-2.2.19.3-7")
    @pytest.mark.parametrize("level", [2, 4, 6, 0xFFFF_FFFF])
    def test_an_unlisted_privacy_level_is_0x8007_with_eb_and_0x8006_without(self, h: Harness, level: int) -> None:
        refused(h, property_changed(encrypted(arriving(h)), 40, level), 0x8007)
        refused(h, property_changed(arriving(h), 40, level), 0x8006)
        refused(h, property_changed(arriving(h, sender_identifier=ALICE.pack()), 40, level), 0x8006)

    @pytest.mark.spec("MQMQ-2.2.19.3-10")
    def test_an_unlisted_algorithm_with_eb_is_0x8007(self, h: Harness) -> None:
        for number in (0, 0x6601, 0x6611, 0x6602, 0x6801):
            refused(h, property_changed(encrypted(arriving(h)), 48, number), 0x8007)

    def test_a_body_that_cannot_be_decrypted_is_0x8007(self, h: Harness) -> None:
        packet = encrypted(arriving(h))
        refused(h, property_changed(packet, 32, Message(packet).body_size - 1), 0x8007)

    @pytest.mark.spec("QQB-3.1.5.8.3-20")
    def test_decrypted_then_verified(self, h: Harness) -> None:
        packet = encrypted(sign(arriving(h, b"a secret"), signing_key()))
        assert insert(h, packet, "signed") is MessageClass.ACK_REACH_QUEUE
        (stored,) = h.messages("signed")
        assert (stored.body, stored.authentication_level) == (b"a secret", AuthenticationLevel.SIG20)

    def test_only_a_body_that_came_encrypted_satisfies_a_queue_that_demands_it(self, h: Harness) -> None:
        h.create("secret", privacy_level=QueuePrivacyLevel.BODY)
        h.create("open", privacy_level=QueuePrivacyLevel.NONE)
        assert insert(h, encrypted(arriving(h)), "secret") is MessageClass.ACK_REACH_QUEUE
        h.messages("admin")
        h.messages("secret")
        refused(h, encrypted(arriving(h)), 0x8007, "open")
        # A PrivacyLevel is a claim; the body is plain.
        claimed = property_changed(arriving(h, sender_identifier=ALICE.pack()), 40, 5)
        refused(h, claimed, 0x8007, "secret")

    def test_a_queue_manager_without_keys_reads_nothing(self, tmp_path: Path) -> None:
        other = Harness(tmp_path / "other", send_insecure_nacks=True)
        other.create()
        other.create("admin")
        refused(other, encrypted(arriving(other)), 0x8007)
        other.close()

    @pytest.mark.spec("QQB-3.1.5.8.3-13")
    def test_what_is_rejected_by_setting(self, tmp_path: Path) -> None:
        other = Harness(
            tmp_path / "other",
            private_keys=lambda: queue_manager_keys().encryption,
            encryption=EncryptionPreferences(reject_enhanced_rc2_using_40_bit_keys=True),
            send_insecure_nacks=True,
        )
        other.create()
        other.create("admin")
        weak = EncryptionPreferences(
            preferred_enhanced_algorithm=EncryptionAlgorithm.RC2,
            send_enhanced_rc2_using_40_bit_keys=True,
        )
        every = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
        enhanced = MqdsPublicKeys(every.keys[1:2])
        assert enhanced.keys[0].provider_name == Provider.ENHANCED.provider_name
        packet = encrypt_body(arriving(other), SessionKey.generate(select(enhanced, 3, weak)))
        refused(other, packet, 0x8007)
        other.close()


class TestExamination:
    def test_what_was_examined_elsewhere_is_not_examined_again(self, tmp_path: Path) -> None:
        """RSA can be computed in a thread.

        The engine uses the result and does not ask for its own keys.
        """
        h = Harness(tmp_path / "other", private_keys=lambda: pytest.fail("it was examined again"))
        h.create("signed", authentication=True)
        message = Message(encrypted(sign(arriving(h, b"a secret"), signing_key())))
        examination = examine(message, queue_manager_keys().encryption)
        verdict = h.engine.insert_message(h.queue("signed"), message, SYSTEM, examination)
        assert verdict is MessageClass.ACK_REACH_QUEUE
        (stored,) = h.messages("signed")
        assert (stored.body, stored.authentication_level) == (b"a secret", AuthenticationLevel.SIG20)
        h.close()

    def test_a_refusal_made_elsewhere_counts(self, h: Harness) -> None:
        packet = sign(arriving(h), signing_key())
        message = Message(changed(packet, Message(packet).body_offset, b"x"))
        assert h.engine.insert_message(h.queue(), message, SYSTEM, examine(message)) == 0x8006

    def test_a_sender_found_in_a_cache_is_not_looked_up(self, h: Harness) -> None:
        message = Message(sign(arriving(h, sender_identifier=ALICE.pack()), signing_key()))
        assert h.engine.insert_message(h.queue(), message, SYSTEM, examine(message)) == 0x8006
        known = examine(message, is_sender_known=True)
        assert h.engine.insert_message(h.queue(), message, SYSTEM, known) is MessageClass.ACK_REACH_QUEUE


class TestLocalSend:
    def send(self, h: Harness, queue: str, **more: Any) -> None:  # noqa: ANN401
        descriptor = h.open(queue, QueueAccessType.SEND)
        properties = h.properties(b"body", sender_identifier_type=SenderIdentifierType.NONE, **more)
        h.engine.enqueue_message_to_an_open_queue(descriptor, properties)

    def test_a_signed_message_is_verified_when_it_is_sent(self, h: Harness) -> None:
        descriptor = h.open("signed", QueueAccessType.SEND)
        properties = sign_properties(
            h.properties(b"body", sender_identifier_type=SenderIdentifierType.NONE),
            signing_key(),
            source=h.engine.queue_manager.identifier,
            destination=h.name(descriptor.format_name),
        )
        h.engine.enqueue_message_to_an_open_queue(descriptor, properties)
        (stored,) = h.messages("signed")
        assert stored.authentication_level is AuthenticationLevel.SIG20
        properties.body = b"other"
        with pytest.raises(MessageNotAuthenticated, match="does not match"):
            h.engine.enqueue_message_to_an_open_queue(descriptor, properties)
        with pytest.raises(MessageNotAuthenticated, match="signed messages only"):
            self.send(h, "signed")

    def test_a_body_to_be_encrypted_stays_plain_here(self, h: Harness) -> None:
        h.create("secret", privacy_level=QueuePrivacyLevel.BODY)
        descriptor = h.open("secret", QueueAccessType.SEND)
        h.engine.enqueue_message_to_an_open_queue(
            descriptor, h.properties(b"body", privacy_level=MessagePrivacyLevel.ADVANCED)
        )
        (stored,) = h.messages("secret")
        assert stored.body == b"body"
        assert stored.has_security_header
        assert not stored.is_body_encrypted
        assert stored.privacy_level is MessagePrivacyLevel.ADVANCED

    def test_a_key_that_opens_nothing_is_told_to_the_sender(self, h: Harness) -> None:
        with pytest.raises(CorruptedSecurityData):
            self.send(h, "q", privacy_level=MessagePrivacyLevel.ADVANCED, symmetric_key=b"key")
        with pytest.raises(CorruptedSecurityData, match="ProviderName"):
            self.send(h, "q", signature=b"x", authentication_provider_name="other")
