"""Keys as transfer handles them (MS-MQQB 3.1.7.1.5, 3.1.5.8.3).

They are requested once, made in threads, and cached for a while.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.model.directory_objects import OutgoingQueue, QueueManager, User
from lanner.model.enums import (
    Acknowledgements,
    AuthenticationLevel,
    ConnectionStatus,
    DirectoryOperationResult,
    EncryptionAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    OutgoingState,
    QueueAccessType,
)
from lanner.model.errors import CannotSignDataEx
from lanner.model.live import START, MessagePosition, Record
from lanner.security.certificates import add_certificate
from lanner.security.encryption import (
    EncryptionPreferences,
    PrivateKeys,
    SessionKey,
    encrypt_body,
    open_symmetric_key,
    select,
)
from lanner.security.examination import Examination, examine
from lanner.security.identity import SYSTEM
from lanner.security.keys import Provider, QueueManagerKeys, public_key_list
from lanner.security.profile import Profile
from lanner.security.signing import SigningKey, sign, sign_properties
from lanner.transfer import protection as protection_module
from lanner.transfer.deadlines import NEVER
from lanner.transfer.protection import EncryptionFailed, Protection
from lanner.wire import layout as at
from lanner.wire.builder import build, set_sequence
from lanner.wire.format_name import PrivateFormatName, PublicFormatName, parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys, RsaPublicKey
from lanner.wire.sid import Sid
from lanner.wire.simple_blob import SimpleBlob
from tests.engine.harness import Harness, WatchedDirectory
from tests.security.samples import changed, queue_manager_keys, signing_key
from tests.statuses import (
    MQ_ERROR_INSUFFICIENT_RESOURCES,
    MQ_ERROR_NO_DS,
    MQ_ERROR_PUBLIC_KEY_NOT_FOUND,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
)
from tests.transfer.threads import Threads
from tests.transfer.world import Node, World

ALICE = Sid.parse("S-1-5-21-1-2-3-1001")
BETA = uuid.UUID("bbbbbbbb-0000-0000-0000-000000000001")
ROUTER = uuid.UUID("cccccccc-0000-0000-0000-000000000001")
PRIVATE = f"PRIVATE={BETA}\\00000007"
DIRECT = r"DIRECT=OS:BETA\private$\q"
SECRET = b"a secret body"


class Bench(Harness):
    """An engine, its protection, and a directory that knows BETA."""

    def __init__(self, path: Path, **settings: Any) -> None:  # noqa: ANN401 - of the engine
        self.reads: list[tuple[str, object]] = []
        super().__init__(
            path,
            wrap_directory=lambda directory: WatchedDirectory(directory, lambda *read: self.reads.append(read)),
            private_keys=lambda: queue_manager_keys().encryption,
            **settings,
        )
        self.reads.clear()
        self.threads = Threads()
        self.told: list[OutgoingQueue] = []
        self.protection = Protection(self.engine, run_in_thread=self.threads, ready=self.told.append)

    def add_queue_manager(self, identifier: uuid.UUID, keys: bytes, name: str = "BETA") -> None:
        other = QueueManager(
            identifier=identifier,
            computer_name=name,
            qualified_computer_name=f"{name}.example.com",
            public_encryption_key_list=keys,
            site_identifier_list=list(self.engine.queue_manager.site_identifier_list),
        )
        assert self.directory.create_object(other)[0] is DirectoryOperationResult.SUCCESS

    # What leaves

    def sent(self, name: str = PRIVATE, body: bytes = SECRET, **more: object) -> MessagePosition:
        """A message in an outgoing queue."""
        more = {"privacy_level": MessagePrivacyLevel.BASE, **more}
        transaction = self.begin() if more.pop("transactional", False) else None
        self.send(name, body, transaction=transaction, **more)  # type: ignore[arg-type]
        if transaction is not None:
            self.commit(transaction)
        return self.last(name)

    def last(self, name: str) -> MessagePosition:
        queue = self.outgoing(name)
        position, after = None, START
        while (found := self.engine.positions.seek_available_message_position(queue, after, peek=True)) is not None:
            position, after = found, found.lookup_id
        assert position is not None
        return position

    def outgoing(self, name: str = PRIVATE) -> OutgoingQueue:
        descriptor = self.open(name, QueueAccessType.SEND)
        queue = descriptor.queue
        self.engine.close_queue(descriptor)
        assert isinstance(queue, OutgoingQueue)
        return queue

    def protect(self, position: MessagePosition, remote: uuid.UUID = BETA) -> bytes | None:
        queue = position.queue
        assert isinstance(queue, OutgoingQueue)
        return self.protection.protect(position.record.packet, remote, queue)

    def protected(self, position: MessagePosition, remote: uuid.UUID = BETA) -> bytes:
        """Return the packet that is finally sent."""
        while (found := self.protect(position, remote)) is None:
            assert self.threads.run() == 1
            assert self.told.pop() is position.queue
        return found

    # What arrives

    def register(self, sid: Sid = ALICE, name: str = "alice") -> None:
        assert self.directory.add_user(name, sid.pack())[0] is DirectoryOperationResult.SUCCESS
        user = User(security_identifier=sid.pack())
        add_certificate(user, signing_key(name).certificate)
        assert self.directory.write(user, ["Certificates", "CertificateDigestList"]) is DirectoryOperationResult.SUCCESS

    def examined(self, packet: bytes) -> Examination:
        found: list[Examination] = []
        self.protection.examine(Message.unpack(packet), found.append)
        self.threads.run()
        (examination,) = found
        return examination


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "data", send_insecure_nacks=True)
    bench.add_queue_manager(BETA, queue_manager_keys().public_key_lists()[0])
    yield bench
    bench.threads.close()
    bench.close()


def only(*providers: Provider) -> bytes:
    return public_key_list({provider: queue_manager_keys().encryption[provider] for provider in providers})


def received(packet: bytes, **more: Any) -> Examination:  # noqa: ANN401 - any argument of it
    """Return the message as its receiver decodes it, without our caches."""
    return examine(Message.unpack(packet), queue_manager_keys().encryption, **more)


class TestProtect:
    def test_a_message_without_privacy_passes_as_it_is(self, b: Bench) -> None:
        position = b.sent(privacy_level=MessagePrivacyLevel.NONE)
        assert b.protect(position) is position.record.packet
        position = b.sent(DIRECT, privacy_level=MessagePrivacyLevel.NONE)
        assert b.protect(position) is position.record.packet
        assert b.reads == []
        assert b.threads.jobs == []

    @pytest.mark.spec("QQB-3.1.7.1.5-7")
    def test_a_new_key_is_random_and_wrapped_in_a_thread(self, b: Bench) -> None:
        position = b.sent()
        assert b.protect(position) is None
        # The key is not requested twice.
        assert b.protect(position) is None
        assert len(b.threads.jobs) == 1
        assert b.told == []
        b.threads.run()
        assert b.told == [position.queue]
        packet = b.protect(position)
        assert packet is not None
        message = Message.unpack(packet)
        assert SECRET not in packet
        blob = SimpleBlob.unpack(message.symmetric_key)
        assert blob.session_key_algorithm == message.encryption_algorithm == 0x6610
        key = open_symmetric_key(message, queue_manager_keys().encryption)
        assert len(key) == 32
        assert received(packet).message.body == SECRET
        assert b.protection.deadline.due == b.now + 600
        # Of another session with another queue manager: another key.
        b.add_queue_manager(ROUTER, queue_manager_keys().public_key_lists()[0], "GAMMA")
        other = Message(b.protected(b.sent(f"PRIVATE={ROUTER}\\00000007"), ROUTER))
        assert open_symmetric_key(other, queue_manager_keys().encryption) != key

    @pytest.mark.spec("QQB-3.1.7.1.5-6")
    def test_the_messages_that_follow_have_the_same_key(self, b: Bench) -> None:
        first = Message(b.protected(b.sent()))
        # Other levels too: the provider is what the receiver has best.
        for level in (MessagePrivacyLevel.BASE, MessagePrivacyLevel.ENHANCED, MessagePrivacyLevel.ADVANCED):
            packet = b.protect(b.sent(privacy_level=level))
            assert packet is not None
            assert Message(packet).symmetric_key == first.symmetric_key
        assert b.threads.jobs == []
        # Until it is too old.
        b.now += 661
        b.protection.on_timer(b.now)
        assert Message(b.protected(b.sent())).symmetric_key != first.symmetric_key

    @pytest.mark.spec("QQB-3.1.7.1.5-7")
    def test_a_full_cache_loses_its_older_half(self, b: Bench) -> None:
        b.protected(b.sent())
        cache = b.protection.send_symmetric_key_cache
        for number in range(60):
            identifier = uuid.UUID(int=0xF000 + number)
            b.add_queue_manager(identifier, only(Provider.BASE), f"M{number}")
            b.protected(b.sent(f"PRIVATE={identifier}\\00000001"), identifier)
            assert len(cache) == (number + 2 if number < 52 else number + 2 - 26)

    @pytest.mark.spec("QQB-3.1.7.1.5-2")
    def test_the_receivers_keys_are_those_of_the_document(self, tmp_path: Path) -> None:
        """Base 512 bits, Enhanced 1,024 and AES 1,024, and each of them is used."""
        own = queue_manager_keys(Profile.DOCUMENT)
        b = Bench(tmp_path / "data", profile=Profile.DOCUMENT)
        b.add_queue_manager(BETA, own.public_key_lists()[0])
        sizes = [key.public_key.bit_length for key in b.engine.encryption_keys_of(BETA).keys]
        assert sizes == [512, 1024, 1024]
        assert Message(b.protected(b.sent())).privacy_level == MessagePrivacyLevel.ADVANCED
        b.add_queue_manager(ROUTER, public_key_list({Provider.BASE: own.encryption[Provider.BASE]}), "GAMMA")
        packet = b.protected(b.sent(f"PRIVATE={ROUTER}\\00000007"), ROUTER)
        assert Message(packet).privacy_level == MessagePrivacyLevel.BASE
        b.threads.close()
        b.close()

    def test_fail_on_a_key_below_1024_bits(self, b: Bench) -> None:
        """The safe way: the message stays, and the reason names the setting."""
        base = public_key_list({Provider.BASE: queue_manager_keys(Profile.DOCUMENT).encryption[Provider.BASE]})
        b.add_queue_manager(ROUTER, base, "GAMMA")
        with pytest.raises(EncryptionFailed, match=r"512 bits.*security.legacy_crypto") as caught:
            b.protect(b.sent(f"PRIVATE={ROUTER}\\00000007"), ROUTER)
        assert caught.value.error == MQ_ERROR_PUBLIC_KEY_NOT_FOUND

    @pytest.mark.spec("QQB-3.1.7.1.5-2")
    def test_the_receivers_keys_are_read_once_per_session(self, b: Bench) -> None:
        for body in (b"1", b"2"):
            b.protected(b.sent(body=body))
        b.now += 700
        b.protection.on_timer(b.now)
        b.protected(b.sent())
        assert b.reads == [("QueueManager", BETA)]
        b.protection.session_closed(BETA)
        b.protected(b.sent())
        assert b.reads == [("QueueManager", BETA)] * 2

    @pytest.mark.spec("QQB-3.1.7.1.5-2")
    def test_fail_when_the_directory_does_not_tell(self, b: Bench) -> None:
        unknown = uuid.uuid4()
        with pytest.raises(EncryptionFailed) as caught:
            b.protect(b.sent(f"PRIVATE={unknown}\\00000007"), unknown)
        assert caught.value.error == MQ_ERROR_PUBLIC_KEY_NOT_FOUND
        position = b.sent()
        b.engine.queue_manager.directory_offline = True
        with pytest.raises(EncryptionFailed) as caught:
            b.protect(position)
        assert caught.value.error == MQ_ERROR_NO_DS
        assert caught.value.status is ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE
        # It is asked again for the next message.
        b.engine.queue_manager.directory_offline = False
        assert received(b.protected(position)).message.body == SECRET

    def test_fail_on_keys_that_cannot_be_read(self, b: Bench) -> None:
        b.add_queue_manager(ROUTER, b"broken", "GAMMA")
        with pytest.raises(EncryptionFailed, match="cannot be read"):
            b.protect(b.sent(f"PRIVATE={ROUTER}\\00000007"), ROUTER)

    @pytest.mark.spec("QQB-3.1.7.1.5-1")
    def test_only_public_and_private_format_names(self, b: Bench) -> None:
        for name in (DIRECT, r"DIRECT=TCP:127.0.0.9\private$\q", r"DIRECT=HTTP://beta/msmq/private$/q"):
            with pytest.raises(EncryptionFailed, match="DIRECT") as caught:
                b.protect(b.sent(name))
            assert caught.value.error == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
        assert b.reads == []
        queue = b.outgoing()
        for destination in (PrivateFormatName(BETA, 7), PublicFormatName(uuid.uuid4())):
            packet = build(
                b.properties(SECRET, privacy_level=MessagePrivacyLevel.BASE),
                source=b.engine.queue_manager.identifier,
                ordinal=1,
                sent_time=int(b.now),
                destination=destination,
            )
            found = b.protected(MessagePosition(queue, 1, Record(packet)))
            assert received(found).message.body == SECRET

    @pytest.mark.spec("QQB-3.1.7.1.5-4")
    @pytest.mark.parametrize(
        ("level", "providers", "used"),
        [
            (5, (Provider.BASE, Provider.ENHANCED), None),
            (3, (Provider.BASE,), None),
            (1, (), None),
            (5, (Provider.AES,), Provider.AES),
            (3, (Provider.AES, Provider.BASE), Provider.AES),
            (3, (Provider.ENHANCED, Provider.BASE), Provider.ENHANCED),
            (1, (Provider.BASE,), Provider.BASE),
        ],
    )
    def test_there_is_no_silent_downgrade(
        self, b: Bench, level: int, providers: tuple[Provider, ...], used: Provider | None
    ) -> None:
        b.add_queue_manager(ROUTER, only(*providers) if providers else b"", "GAMMA")
        position = b.sent(f"PRIVATE={ROUTER}\\00000007", privacy_level=MessagePrivacyLevel(level))
        if used is None:
            with pytest.raises(EncryptionFailed) as caught:
                b.protect(position, ROUTER)
            assert caught.value.error == MQ_ERROR_PUBLIC_KEY_NOT_FOUND
            assert b.threads.jobs == []
        else:
            message = Message(b.protected(position, ROUTER))
            assert message.authentication_provider_name == used.provider_name

    @pytest.mark.spec("DMPR-3.1.1.12-8")
    @pytest.mark.parametrize(
        ("provider", "level", "algorithm", "octets"),
        [
            (Provider.BASE, MessagePrivacyLevel.BASE, EncryptionAlgorithm.RC4, 5),
            (Provider.ENHANCED, MessagePrivacyLevel.ENHANCED, EncryptionAlgorithm.RC4, 16),
            (Provider.AES, MessagePrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256, 32),
        ],
    )
    def test_the_privacy_level_decides_about_the_body(
        self,
        b: Bench,
        provider: Provider,
        level: MessagePrivacyLevel,
        algorithm: EncryptionAlgorithm,
        octets: int,
    ) -> None:
        """None is the default and leaves the body as it is.

        Base is 40 bits, Enhanced 128, Advanced AES.
        """
        b.add_queue_manager(ROUTER, only(provider), "GAMMA")
        name = f"PRIVATE={ROUTER}\\00000007"
        b.send(name, SECRET)
        plain = b.last(name)
        assert Message(plain.record.packet).privacy_level is MessagePrivacyLevel.NONE
        assert b.protect(plain, ROUTER) is plain.record.packet
        message = Message(b.protected(b.sent(name, privacy_level=level), ROUTER))
        assert (message.privacy_level, message.encryption_algorithm) == (level, algorithm)
        assert len(open_symmetric_key(message, queue_manager_keys().encryption)) == octets
        assert received(message.packet).message.body == SECRET

    @pytest.mark.spec("DMPR-3.1.1.12-8", "QQB-3.1.7.1-2")
    @pytest.mark.parametrize("level", [AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30])
    @pytest.mark.parametrize("privacy", [MessagePrivacyLevel.NONE, MessagePrivacyLevel.ADVANCED])
    def test_the_authentication_level_decides_about_the_signature_which_covers_the_plain_body(
        self, b: Bench, level: AuthenticationLevel, privacy: MessagePrivacyLevel
    ) -> None:
        properties = sign_properties(
            b.properties(SECRET, privacy_level=privacy),
            signing_key(),
            source=b.engine.queue_manager.identifier,
            destination=parse(PRIVATE),
            level=level,
        )
        descriptor = b.open(PRIVATE, QueueAccessType.SEND)
        b.engine.enqueue_message_to_an_open_queue(descriptor, properties)
        packet = b.protected(b.last(PRIVATE))
        assert Message(packet).is_body_encrypted == (SECRET not in packet) == bool(privacy)
        found = received(packet, preferences=EncryptionPreferences(accepts_legacy_signatures=True))
        assert found.refusal is None
        assert found.authentication_level is level
        assert found.message.body == SECRET
        # XmlSig is of MC-MQSRM, and nothing that this protocol could carry.
        with pytest.raises(CannotSignDataEx):
            sign_properties(
                properties,
                signing_key(),
                source=b.engine.queue_manager.identifier,
                destination=parse(PRIVATE),
                level=AuthenticationLevel.XML_SIG,
            )
        # Without one it is not signed, which is the default.
        b.send(PRIVATE, SECRET)
        assert received(b.last(PRIVATE).record.packet).authentication_level is AuthenticationLevel.NONE

    @pytest.mark.spec("QQB-3.1.7.1-2")
    def test_sequence_numbers_can_be_written_before_or_after(self, b: Bench) -> None:
        """Updating the packet (3.1.7.1.3) follows encryption; neither hash nor cipher covers it."""
        position = b.sent(transactional=True)
        packet = position.record.packet
        signed = sign(packet, signing_key())
        before = set_sequence(signed, TxSequenceID(5, 1_700_000_000), 9, 8)
        queue = b.outgoing()
        assert b.protection.protect(signed, BETA, queue) is None
        b.threads.run()
        after = b.protection.protect(signed, BETA, queue)
        assert after is not None
        numbered = set_sequence(after, TxSequenceID(5, 1_700_000_000), 9, 8)
        assert b.protection.protect(before, BETA, queue) == numbered
        assert received(numbered).authentication_level is AuthenticationLevel.SIG20

    def test_behind_a_router_it_is_encrypted_for_the_end_of_the_way(self, b: Bench) -> None:
        """Routers do not decrypt (3.1.5.8.3), so the key of the next hop would be useless."""
        b.add_queue_manager(ROUTER, QueueManagerKeys.generate().public_key_lists()[0], "GAMMA")
        packet = b.protected(b.sent(), ROUTER)
        assert b.reads == [("QueueManager", BETA)]
        assert received(packet).message.body == SECRET

    def test_what_others_sent_passes_as_it_came(self, b: Bench) -> None:
        """A router has no business with the body, whatever the header says of it."""
        queue = b.outgoing()
        packet = b.message(SECRET, privacy_level=MessagePrivacyLevel.ADVANCED).packet
        assert b.protection.protect(packet, BETA, queue) is packet
        encrypted = encrypt_body(packet, SessionKey.generate(select(b.engine.encryption_keys_of(BETA), 5)))
        assert b.protection.protect(encrypted, BETA, queue) is encrypted

    def test_what_an_application_has_encrypted_is_not_encrypted_again(self, b: Bench) -> None:
        for name in (PRIVATE, DIRECT):
            position = b.sent(name, privacy_level=MessagePrivacyLevel.ADVANCED, symmetric_key=b"wrapped")
            assert b.protect(position) is position.record.packet

    def test_a_plain_body_beside_an_old_key_is_encrypted(self, b: Bench) -> None:
        """The message is sent again after it was received and decrypted.

        EB is clear, so the key is that of another body.
        """
        packet = b.sent().record.packet
        stale = encrypt_body(packet, SessionKey.generate(select(b.engine.encryption_keys_of(BETA), 5)))
        plain = received(stale).message.packet
        assert Message(plain).symmetric_key
        found = Message(b.protected(MessagePosition(b.outgoing(), 1, Record(plain))))
        assert found.is_body_encrypted
        assert found.symmetric_key != Message(plain).symmetric_key

    def test_a_large_body_is_encrypted_in_a_thread(self, b: Bench) -> None:
        b.protected(b.sent())
        small, large = b.sent(body=bytes(0x1_0000)), b.sent(body=bytes(0x1_0001))
        assert b.protect(small) is not None
        assert b.protect(large) is None
        assert b.protect(large) is None
        assert b.threads.run() == 1
        assert b.told == [b.outgoing()]
        packet = b.protect(large)
        assert packet is not None
        assert received(packet).message.body == bytes(0x1_0001)

    def test_rc2_which_is_slow_is_encrypted_in_a_thread(self, tmp_path: Path) -> None:
        slow = EncryptionPreferences(preferred_base_algorithm=EncryptionAlgorithm.RC2)
        b = Bench(tmp_path / "data", encryption=slow)
        b.add_queue_manager(BETA, only(Provider.BASE))
        b.protected(b.sent())
        assert b.protect(b.sent(body=b"x")) is None
        b.threads.run()
        assert Message(b.protected(b.sent(body=b"x"))).encryption_algorithm is EncryptionAlgorithm.RC2
        b.threads.close()
        b.close()

    def test_queues_that_want_the_same_key_wait_for_one(self, b: Bench) -> None:
        one, two = b.sent(), b.sent(f"PRIVATE={BETA}\\00000008")
        assert b.protect(one) is None
        assert b.protect(two) is None
        assert b.threads.run() == 1
        assert b.told == [one.queue, two.queue]
        packets = [b.protect(one), b.protect(two)]
        assert len({Message(packet).symmetric_key for packet in packets if packet is not None}) == 1
        assert None not in packets

    def test_the_next_message_may_come_before_the_key_is_there(self, b: Bench) -> None:
        """The first has expired meanwhile, for example."""
        first, second = b.sent(), b.sent(body=b"second")
        assert b.protect(first) is None
        assert b.protect(second) is None
        assert b.threads.run() == 1
        assert b.told == [b.outgoing()]
        packet = b.protect(second)
        assert packet is not None
        assert received(packet).message.body == b"second"

    def test_fail_when_no_key_can_be_wrapped(self, b: Bench) -> None:
        """Not to be seen before RSA: an exponent of 1 would send the session key in clear."""
        entry = MqdsPublicKeys.unpack(only(Provider.AES)).keys[0]
        weak = dataclasses.replace(entry, buffer=RsaPublicKey((1 << 1023) + 1, 1, 1024).pack())
        b.add_queue_manager(ROUTER, MqdsPublicKeys((weak,)).pack(), "GAMMA")
        one, two = b.sent(f"PRIVATE={ROUTER}\\00000007"), b.sent(f"PRIVATE={ROUTER}\\00000008")
        assert b.protect(one, ROUTER) is None
        assert b.protect(two, ROUTER) is None
        b.threads.run()
        assert b.told == [one.queue, two.queue]
        for position in (one, two):
            with pytest.raises(EncryptionFailed, match="cannot protect") as caught:
                b.protect(position, ROUTER)
            assert caught.value.error == MQ_ERROR_PUBLIC_KEY_NOT_FOUND
        assert len(b.protection.send_symmetric_key_cache) == 0

    def test_fail_when_the_packet_grows_too_large(self, b: Bench) -> None:
        b.protected(b.sent())
        room = at.MAX_PACKET_SIZE - len(b.sent(body=b"").record.packet)
        position = b.sent(body=bytes(room & ~15))
        assert b.protect(position) is None
        b.threads.run()
        with pytest.raises(EncryptionFailed) as caught:
            b.protect(position)
        assert caught.value.error == MQ_ERROR_INSUFFICIENT_RESOURCES

    def test_an_accident_is_a_failure_of_that_message(
        self, b: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(SessionKey, "generate", lambda _: 1 // 0)
        position = b.sent()
        assert b.protect(position) is None
        b.threads.run()
        with pytest.raises(EncryptionFailed, match="ZeroDivisionError"):
            b.protect(position)
        assert "cannot be encrypted" in caplog.text

    def test_a_closed_session_forgets_what_was_under_way(self, b: Bench) -> None:
        b.protected(b.sent())
        large = b.sent(body=bytes(0x2_0000))
        assert b.protect(large) is None
        b.protection.session_closed(BETA)
        b.threads.run()
        assert b.told == []
        assert b.protect(large) is None
        b.threads.run()
        assert b.protect(large) is not None
        # Nothing is kept of what has been handed out.
        assert b.protection._encrypting == {}


class TestFailure:
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[World]:
        world = World(tmp_path)
        yield world
        world.close()

    @staticmethod
    def _fail(world: World, *, transactional: bool, **properties: Any) -> Node:  # noqa: ANN401 - any property
        """Send a message to a direct format name, which identifies no key, and transfer it."""
        alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
        beta.create("q", transactional=transactional)
        if properties.get("application_deadletter_queue"):
            alpha.create("failed", transactional=transactional)
        send = alpha.commit_one if transactional else alpha.send
        send(beta.direct("q"), SECRET, privacy_level=MessagePrivacyLevel.BASE, **properties)
        alpha.sync()
        world.run()
        assert alpha.outgoing(beta.direct("q")).state is OutgoingState.CONNECTED
        assert alpha.outgoing(beta.direct("q")).message_count == 0
        assert beta.bodies("q") == []
        return alpha

    @staticmethod
    def _dead_letters(alpha: Node) -> tuple[list[Message], list[Message]]:
        """What is in the plain and in the transactional dead-letter queue of the system."""
        name = r"DIRECT=OS:.\SYSTEM$;"
        return alpha.messages(f"{name}DEADLETTER"), alpha.messages(f"{name}DEADXACT")

    @pytest.mark.spec("QQB-3.1.7.1.5.1-1")
    @pytest.mark.parametrize("transactional", [False, True])
    @pytest.mark.parametrize("journaling", [False, True])
    def test_the_message_is_removed_unsent_and_kept_as_a_dead_letter_if_it_wants_that(
        self, world: World, *, transactional: bool, journaling: bool
    ) -> None:
        alpha = self._fail(world, transactional=transactional, negative_journaling_requested=journaling)
        plain, transacted = self._dead_letters(alpha)
        kept, other = (transacted, plain) if transactional else (plain, transacted)
        # Readable where it stays, and the class says why it does.
        expected = [(SECRET, MessageClass.NACK_BAD_ENCRYPTION)] * journaling
        assert [(message.body, message.message_class) for message in kept] == expected
        assert other == []

    @pytest.mark.spec("QQB-3.1.7.1.5.1-1")
    @pytest.mark.parametrize("transactional", [False, True])
    def test_the_dead_letter_goes_where_the_application_said(self, world: World, *, transactional: bool) -> None:
        """DECISIONS: one rule for all dead letters.

        The text names only the queues of the system.
        """
        alpha = self._fail(
            world,
            transactional=transactional,
            negative_journaling_requested=True,
            application_deadletter_queue=r"ALPHA\private$\failed",
        )
        assert self._dead_letters(alpha) == ([], [])
        assert [message.message_class for message in alpha.messages("failed")] == [MessageClass.NACK_BAD_ENCRYPTION]

    @pytest.mark.spec("QQB-3.1.7.1.5.1-1")
    def test_what_the_connection_history_says(self, world: World) -> None:
        alpha = self._fail(world, transactional=False)
        (outgoing,) = alpha.engine.outgoing_queues()
        entries = [entry for entry in outgoing.connection_history if entry.error]
        assert [
            (int(entry.status), entry.connection_history_time, entry.error, entry.address_list) for entry in entries
        ] == [(0x8000_0009, int(alpha.now), MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, ["IP=127.0.0.3"])]


def arriving(b: Bench, body: bytes = SECRET, **more: Any) -> bytes:  # noqa: ANN401 - any property
    return b.message(body, **{"sender_identifier": ALICE.pack(), **more}).packet


def encrypted(packet: bytes, key: SessionKey | None = None, provider: Provider = Provider.AES) -> bytes:
    return encrypt_body(packet, key or new_key(provider))


def new_key(provider: Provider = Provider.AES) -> SessionKey:
    return SessionKey.generate(select(MqdsPublicKeys.unpack(only(provider)), 1))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """A list of the messages whose session key was opened with RSA from now on."""
    opened: list[Message] = []

    def opening(message: Message, keys: PrivateKeys, preferences: EncryptionPreferences) -> bytes:
        opened.append(message)
        return open_symmetric_key(message, keys, preferences)

    monkeypatch.setattr(protection_module, "open_symmetric_key", opening)
    return opened


class TestExamine:
    @pytest.mark.spec("QQB-3.1.5.8.3-1")
    def test_what_is_neither_signed_nor_encrypted_makes_no_detour(self, b: Bench) -> None:
        """It is not rejected: MS-MQQB 4.1.7 is such a message, with a SID and no signature."""
        several = parse(r"DIRECT=OS:a\private$\q,DIRECT=OS:b\private$\q")
        unsigned: dict[str, Any] = {
            "destination_multi_queue_format_name": several,
            "multiple_destination_signature": b"no header",
        }
        for packet in (arriving(b), arriving(b, sender_identifier=b""), arriving(b, sender_identifier=b"", **unsigned)):
            found: list[Examination] = []
            b.protection.examine(Message.unpack(packet), found.append)
            assert [one.refusal for one in found] == [None]
            assert found[0].authentication_level is AuthenticationLevel.NONE
        assert b.threads.jobs == []
        assert b.reads == []

    @pytest.mark.spec("QQB-3.1.5.8.3-1")
    def test_a_signature_in_either_place_is_checked_in_a_thread(self, b: Bench) -> None:
        here = Message(arriving(b)).destination_queue_format_name
        several = parse(rf"{here},DIRECT=OS:b\private$\q")
        b.register()
        cases: list[tuple[dict[str, Any], int]] = [({}, 3), ({"destination_multi_queue_format_name": several}, 5)]
        for more, level in cases:
            packet = sign(arriving(b, **more), signing_key())
            found: list[Examination] = []
            b.protection.examine(Message.unpack(packet), found.append)
            assert found == []
            b.threads.run()
            assert [(one.refusal, one.authentication_level) for one in found] == [(None, level)]
            wrong = changed(packet, Message(packet).body_offset, b"x")
            assert b.examined(wrong).refusal is MessageClass.NACK_BAD_SIGNATURE

    @pytest.mark.spec("QQB-3.1.5.8.3-6", "QQB-3.1.5.8.3-7")
    def test_a_sender_is_looked_up_once(self, b: Bench) -> None:
        b.register()
        assert b.examined(sign(arriving(b), signing_key())).refusal is None
        assert b.reads == [("User", ALICE.pack())]
        assert b.protection.deadline.due == b.now + 1200
        b.reads.clear()
        examination = b.examined(sign(arriving(b, b"another"), signing_key()))
        assert examination.refusal is None
        assert examination.is_sender_known
        # Nor does the engine ask again.
        b.create("q")
        assert b.engine.insert_message(b.queue(), examination.message, SYSTEM, examination) == 2
        assert b.reads == []
        # Another certificate, and the same one for another user, are other questions.
        assert b.examined(sign(arriving(b), signing_key("bob"))).refusal is MessageClass.NACK_BAD_SIGNATURE
        other = Sid.parse("S-1-5-21-1-2-3-1002").pack()
        packet = sign(arriving(b, sender_identifier=other), signing_key())
        assert b.examined(packet).refusal is MessageClass.NACK_BAD_SIGNATURE
        assert b.reads == [("User", ALICE.pack()), ("User", other)]
        # And after twenty minutes it is asked again.
        b.reads.clear()
        b.now += 1261
        b.protection.on_timer(b.now)
        assert b.examined(sign(arriving(b), signing_key())).refusal is None
        assert b.reads == [("User", ALICE.pack())]

    @pytest.mark.spec("QQB-3.1.5.8.3-6")
    def test_an_unsigned_message_may_name_anybody(self, b: Bench) -> None:
        assert b.examined(encrypted(arriving(b))).refusal is None
        assert b.reads == []
        assert len(b.protection.user_cert_cache) == 0

    @pytest.mark.spec("QQB-3.1.5.8.3-7")
    def test_a_full_certificate_cache_loses_its_older_half(self, b: Bench) -> None:
        cache = b.protection.user_cert_cache
        for number in range(54):
            sid = Sid.parse(f"S-1-5-21-1-2-3-{2000 + number}")
            user = User(security_identifier=sid.pack())
            assert b.directory.add_user(f"user{number}", sid.pack())[0] is DirectoryOperationResult.SUCCESS
            add_certificate(user, signing_key().certificate)
            b.directory.write(user, ["Certificates", "CertificateDigestList"])
            packet = sign(arriving(b, sender_identifier=sid.pack()), signing_key())
            assert b.examined(packet).refusal is None
            assert len(cache) == (number + 1 if number < 53 else 28)

    @pytest.mark.spec("QQB-3.1.5.8.3-8")
    @pytest.mark.parametrize("transactional", [False, True])
    def test_an_unregistered_certificate_is_0x8006(self, b: Bench, *, transactional: bool) -> None:
        """No such certificate, no such user, or no directory.

        In each case a sender that asked gets the acknowledgment.
        """
        b.create("admin")
        b.create("q", transactional=transactional)
        more: dict[str, Any] = {
            "administration_queue_format_name": b.name("admin"),
            "acknowledgements_requested": Acknowledgements.NACK_REACH_QUEUE,
            "transaction": 1 if transactional else None,
        }
        packet = sign(arriving(b, **more), signing_key())

        def is_refused() -> None:
            examination = b.examined(packet)
            assert examination.refusal is MessageClass.NACK_BAD_SIGNATURE
            message = Message.unpack(packet)
            assert b.engine.insert_message(b.queue(), message, SYSTEM, examination) == 0x8006
            assert b.messages() == []
            assert [answer.message_class for answer in b.messages("admin")] == [0x8006]
            assert len(b.protection.user_cert_cache) == 0

        is_refused()
        b.register(ALICE, "bob")
        is_refused()
        b.engine.queue_manager.directory_offline = True
        is_refused()

    @pytest.mark.spec("QQB-3.1.5.8.3-11")
    def test_a_session_key_is_opened_once(self, b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = counted(monkeypatch)
        key = new_key()
        packet = encrypted(arriving(b), key)
        source = Message(packet).source_machine_identifier
        assert b.examined(packet).message.body == SECRET
        assert len(opened) == 1
        assert b.protection.deadline.due == b.now + 600
        second = encrypted(arriving(b, b"another", source=source), key)
        # Now nothing of it is slow.
        found: list[Examination] = []
        b.protection.examine(Message.unpack(second), found.append)
        assert [one.message.body for one in found] == [b"another"]
        assert found[0].was_encrypted
        assert not found[0].message.is_body_encrypted
        assert len(opened) == 1
        # The same key from another computer is another key.
        assert b.examined(encrypted(arriving(b), key)).message.body == SECRET
        assert len(opened) == 2
        assert b.examined(encrypted(arriving(b, source=source))).message.body == SECRET
        assert len(opened) == 3
        b.now += 661
        b.protection.on_timer(b.now)
        assert len(b.protection.receive_symmetric_key_cache) == 0
        assert b.examined(second).message.body == b"another"
        assert len(opened) == 4

    @pytest.mark.spec("QQB-3.1.5.8.3-11")
    def test_a_cached_key_is_for_its_provider_and_algorithm(self, b: Bench) -> None:
        packet = encrypted(arriving(b), provider=Provider.ENHANCED)
        assert b.examined(packet).refusal is None
        properties = at.locate(packet).properties
        for offset, value in ((40, 5), (48, 0x6602), (48, 0x6610)):
            wrong = changed(packet, properties + offset, value.to_bytes(4, "little"))
            assert b.examined(wrong).refusal is MessageClass.NACK_BAD_ENCRYPTION
        assert len(b.protection.receive_symmetric_key_cache) == 1

    @pytest.mark.spec("QQB-3.1.5.8.3-11")
    def test_a_full_cache_of_keys_loses_its_older_half(self, b: Bench) -> None:
        cache = b.protection.receive_symmetric_key_cache
        for number in range(130):
            assert b.examined(encrypted(arriving(b), provider=Provider.BASE)).refusal is None
            assert len(cache) == (number + 1 if number < 127 else number + 1 - 63)

    def test_messages_with_the_same_key_wait_for_it_and_keep_their_order(
        self, b: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = counted(monkeypatch)
        key = new_key()
        source = uuid.uuid4()
        bodies = [b"first", b"second", b"third"]
        found: list[bytes] = []
        for body in bodies:
            message = Message(encrypted(arriving(b, body, source=source), key))
            b.protection.examine(message, lambda examination: found.append(examination.message.body))
        assert len(b.threads.jobs) == 1
        b.threads.run()
        assert found == bodies
        assert len(opened) == 1

    def test_a_key_that_opens_nothing_is_refused_for_each(self, b: Bench) -> None:
        packet = encrypted(arriving(b))
        wrong = changed(packet, packet.index(Message(packet).symmetric_key) + 50, b"\0" * 8)
        found: list[MessageClass | None] = []
        for _ in range(3):
            b.protection.examine(Message(wrong), lambda examination: found.append(examination.refusal))
        b.threads.run()
        assert found == [MessageClass.NACK_BAD_ENCRYPTION] * 3
        assert len(b.protection.receive_symmetric_key_cache) == 0
        assert b.protection._opening == {}

    def test_a_large_body_and_rc2_are_decrypted_in_a_thread_every_time(self, b: Bench) -> None:
        source = uuid.uuid4()
        slow = EncryptionPreferences(preferred_base_algorithm=EncryptionAlgorithm.RC2)
        rc2 = SessionKey.generate(select(MqdsPublicKeys.unpack(only(Provider.BASE)), 1, slow))
        for key, body in ((new_key(), bytes(0x1_0010)), (rc2, b"x")):
            for _ in range(2):
                found: list[Examination] = []
                b.protection.examine(Message(encrypted(arriving(b, body, source=source), key)), found.append)
                assert found == []
                assert b.threads.run() == 1
                assert [one.message.body for one in found] == [body]

    @pytest.mark.spec("QQB-3.1.5.8.3-13")
    @pytest.mark.parametrize("is_rejected", [False, True])
    def test_rc2_with_40_bits_is_rejected_by_setting(self, tmp_path: Path, *, is_rejected: bool) -> None:
        """Every message of a key, whether the key is opened for it or has been before."""
        weak = EncryptionPreferences(
            preferred_enhanced_algorithm=EncryptionAlgorithm.RC2, send_enhanced_rc2_using_40_bit_keys=True
        )
        key = SessionKey.generate(select(MqdsPublicKeys.unpack(only(Provider.ENHANCED)), 3, weak))
        source = uuid.uuid4()
        settings = EncryptionPreferences(reject_enhanced_rc2_using_40_bit_keys=is_rejected)
        with contextlib.closing(Bench(tmp_path / "other", encryption=settings)) as b:
            found = [b.examined(encrypted(arriving(b, source=source), key)).refusal for _ in range(2)]
        assert found == [MessageClass.NACK_BAD_ENCRYPTION if is_rejected else None] * 2

    @pytest.mark.spec("QQB-3.1.5.8.3-10")
    @pytest.mark.parametrize("level", [0, 2, 4, 6, 0xFFFF_FFFF])
    def test_another_privacy_level_is_0x8007(self, b: Bench, level: int) -> None:
        packet = encrypted(arriving(b))
        wrong = changed(packet, at.locate(packet).properties + 40, level.to_bytes(4, "little"))
        assert b.examined(wrong).refusal is MessageClass.NACK_BAD_ENCRYPTION

    def test_signed_and_encrypted(self, b: Bench) -> None:
        b.register()
        for _ in range(2):
            found = b.examined(encrypted(sign(arriving(b), signing_key())))
            assert (found.refusal, found.authentication_level, found.was_encrypted) == (None, 3, True)
            assert found.message.body == SECRET
        wrong = encrypted(changed(packet := sign(arriving(b), signing_key()), Message(packet).body_offset, b"x"))
        assert b.examined(wrong).refusal is MessageClass.NACK_BAD_SIGNATURE

    def test_a_queue_manager_is_verified_with_its_published_key(self, b: Bench) -> None:
        b.engine.queue_manager.public_signing_key_list = queue_manager_keys().public_key_lists()[1]
        key = SigningKey(queue_manager_keys().signing[Provider.ENHANCED])
        packet = sign(arriving(b), key, queue_manager=b.engine.queue_manager.identifier)
        assert b.examined(packet).authentication_level is AuthenticationLevel.SIG20
        assert len(b.protection.user_cert_cache) == 0

    @pytest.mark.parametrize("is_encrypted", [False, True])
    def test_an_accident_is_a_refusal_of_that_message(
        self, b: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_encrypted: bool
    ) -> None:
        monkeypatch.setattr(protection_module, "examine", lambda *_, **__: 1 // 0)
        packet = encrypted(arriving(b)) if is_encrypted else sign(arriving(b), signing_key())
        assert b.examined(packet).refusal == (0x8007 if is_encrypted else 0x8006)
        assert "cannot be examined" in caplog.text
        assert b.protection._opening == {}


class TestTimers:
    @pytest.mark.spec("QQB-3.1.2.10-1")
    def test_the_nearest_of_all_caches(self, b: Bench) -> None:
        assert b.protection.deadline.due == NEVER
        b.register()
        start = b.now
        b.examined(sign(arriving(b), signing_key()))
        assert b.protection.deadline.due == start + 1200
        b.now += 700
        b.protected(b.sent())
        b.now += 10
        b.examined(encrypted(arriving(b)))
        caches = b.protection.send_symmetric_key_cache, b.protection.receive_symmetric_key_cache
        assert b.protection.deadline.due == start + 1200
        b.now = start + 1300
        b.protection.on_timer(b.now)
        assert len(b.protection.user_cert_cache) == 0
        assert [len(cache) for cache in caches] == [1, 1]
        # Each is as old as its lifetime: they go a minute later.
        assert b.protection.deadline.due == start + 1310
        b.now = start + 1310
        b.protection.on_timer(b.now)
        b.now = start + 1371
        b.protection.on_timer(b.now)
        assert [len(cache) for cache in caches] == [0, 0]
        assert b.protection.deadline.due == NEVER
