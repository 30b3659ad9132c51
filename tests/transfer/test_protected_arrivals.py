"""Unproven messages from the session to the queue (MS-MQQB 3.1.5.8.3).

The tests check who is told what.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.engine.acknowledgments import INSECURE_NACKS
from lanner.model.directory_objects import OutgoingQueue, User
from lanner.model.enums import Acknowledgements, AuthenticationLevel, DirectoryOperationResult
from lanner.security.certificates import add_certificate
from lanner.security.encryption import SessionKey, encrypt_body, select
from lanner.security.profile import Profile
from lanner.security.signing import sign
from lanner.transfer.incoming import Incoming
from lanner.transfer.protection import Protection
from lanner.wire import layout as at
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys
from lanner.wire.sid import Sid
from tests.security.samples import changed, queue_manager_keys, signing_key
from tests.transfer.incoming_harness import ADMIN, PEER_ADDRESS, IncomingHarness
from tests.transfer.threads import Threads

ALICE = Sid.parse("S-1-5-21-1-2-3-1001")
LEDGER = r"DIRECT=OS:ALPHA\private$\ledger"
ORDERS = rf"DIRECT=TCP:{PEER_ADDRESS}\PRIVATE$\order_queue$"


class Arrivals(IncomingHarness):
    """`Incoming` with its protection, whose threads run when the test says so."""

    def __init__(self, path: Path, *, send_insecure_nacks: bool = True, profile: Profile = Profile.SAFE) -> None:
        self.threads = Threads()
        super().__init__(
            path,
            private_keys=lambda: queue_manager_keys().encryption,
            send_insecure_nacks=send_insecure_nacks,
            profile=profile,
        )
        self.create("q")
        self.create("ledger", transactional=True)
        self.create("admin")

    def start(self) -> None:
        super().start()
        self.protection = Protection(self.engine, run_in_thread=self.threads, ready=self._nobody_sends)
        self.incoming = Incoming(self.engine, self.transfer, examine=self.protection.examine)

    @staticmethod
    def _nobody_sends(_queue: OutgoingQueue) -> None:
        pytest.fail("nothing leaves here")

    def register(self) -> None:
        assert self.directory.add_user("alice", ALICE.pack())[0] is DirectoryOperationResult.SUCCESS
        user = User(security_identifier=ALICE.pack())
        add_certificate(user, signing_key().certificate)
        assert self.directory.write(user, ["Certificates", "CertificateDigestList"]) is DirectoryOperationResult.SUCCESS

    def asking(self, body: bytes = b"body", **more: Any) -> bytes:  # noqa: ANN401 - any property
        """Return a message whose sender requested acknowledgments."""
        more = {
            "administration_queue_format_name": parse(ADMIN),
            "acknowledgements_requested": Acknowledgements.NACK_REACH_QUEUE,
            **more,
        }
        return self.packet(body, **more)


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Arrivals]:
    harness = Arrivals(tmp_path / "data")
    yield harness
    harness.threads.close()
    harness.close()


def encrypted(packet: bytes) -> bytes:
    keys = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
    return encrypt_body(packet, SessionKey.generate(select(keys, 5)))


def with_other_body(packet: bytes) -> bytes:
    return changed(packet, Message(packet).body_offset, b"x")


def property_changed(packet: bytes, offset: int, value: int) -> bytes:
    return changed(packet, at.locate(packet).properties + offset, value.to_bytes(4, "little"))


# What is wrong with a message, and the class of the answer.
WRONG = [
    pytest.param(
        lambda packet: with_other_body(sign(packet, signing_key())),
        0x8006,
        id="signature",
        marks=pytest.mark.spec("QQB-3.1.5.8.3-5"),
    ),
    pytest.param(
        lambda packet: sign(packet, signing_key()), 0x8006, id="sender", marks=pytest.mark.spec("QQB-3.1.5.8.3-8")
    ),
    pytest.param(
        lambda packet: property_changed(encrypted(packet), 40, 4),
        0x8007,
        id="privacy level",
        marks=pytest.mark.spec("QQB-3.1.5.8.3-10"),
    ),
    pytest.param(
        lambda packet: property_changed(encrypted(packet), 48, 0x6609),
        0x8007,
        id="algorithm",
        marks=pytest.mark.spec("QQB-3.1.5.8.3-15"),
    ),
    pytest.param(
        lambda packet: property_changed(one := encrypted(packet), 32, Message(one).body_size - 1),
        0x8007,
        id="length",
        marks=pytest.mark.spec("QQB-3.1.5.8.3-15"),
    ),
    pytest.param(
        lambda packet: changed(one := encrypted(packet), one.index(Message(one).symmetric_key) + 40, bytes(9)),
        0x8007,
        id="session key",
        marks=pytest.mark.spec("QQB-3.1.5.8.3-15"),
    ),
]


class TestRefusal:
    @pytest.mark.parametrize(("spoil", "expected"), WRONG)
    def test_dropped_and_told_to_who_asked(self, h: Arrivals, spoil: Any, expected: int) -> None:  # noqa: ANN401
        h.arrive(spoil(h.asking(sender_identifier=ALICE.pack())), h.packet(b"after"))
        h.threads.run()
        # The session goes on, and the message counts as received.
        assert h.bodies() == [b"after"]
        assert h.link.processed_numbers == [2]
        assert [answer.message_class for answer in h.messages("admin")] == [expected]
        assert h.all_outgoing() == {}
        # Who did not ask is not told.
        h.arrive(spoil(h.packet(sender_identifier=ALICE.pack())))
        h.threads.run()
        assert h.messages("admin") == []
        assert h.bodies() == [b"after"]

    @pytest.mark.parametrize(("spoil", "expected"), WRONG)
    def test_a_transactional_one_gets_its_final_ack(self, h: Arrivals, spoil: Any, expected: int) -> None:  # noqa: ANN401
        h.arrive(spoil(h.asking(to=LEDGER, number=1, sender_identifier=ALICE.pack())))
        h.threads.run()
        assert h.bodies("ledger") == []
        assert [answer.message_class for answer in h.messages("admin")] == [expected]
        assert [answer.message_class for answer in h.outgoing(ORDERS)] == [expected]

    @pytest.mark.parametrize(("spoil", "expected"), WRONG)
    def test_a_stranger_is_not_told(self, tmp_path: Path, spoil: Any, expected: int) -> None:  # noqa: ANN401
        """3.1.7.15: SendInsecureNacks is FALSE unless set."""
        assert expected in INSECURE_NACKS
        h = Arrivals(tmp_path / "data", send_insecure_nacks=False)
        h.arrive(spoil(h.asking(sender_identifier=ALICE.pack())))
        h.threads.run()
        assert h.bodies() == []
        assert h.bodies("admin") == []
        h.threads.close()
        h.close()


class TestAcceptance:
    def test_signed_and_encrypted_in_order_with_others(self, h: Arrivals) -> None:
        h.register()
        h.arrive(
            h.packet(b"one"),
            encrypted(sign(h.packet(b"two", sender_identifier=ALICE.pack()), signing_key())),
            h.packet(b"three"),
        )
        assert h.bodies() == [b"one"]
        assert h.link.processed_numbers == [1]
        h.threads.run()
        assert h.link.processed_numbers == [1, 3]
        found = h.messages()
        assert [message.body for message in found] == [b"one", b"two", b"three"]
        levels = [message.authentication_level for message in found]
        assert levels == [AuthenticationLevel.NONE, AuthenticationLevel.SIG20, AuthenticationLevel.NONE]

    @pytest.mark.spec("QQB-3.1.5.8.3-1")
    def test_only_what_is_addressed_here_is_checked(self, tmp_path: Path) -> None:
        """A message in transit is not checked.

        Only its receiver rejects an invalid signature, and only its receiver can decrypt the body.
        """
        h = Arrivals(tmp_path / "document", profile=Profile.DOCUMENT)
        far = f"PRIVATE={uuid.uuid4()}\\00000007"
        for packet in (
            with_other_body(sign(h.packet(b"1", to=far), signing_key())),
            property_changed(encrypted(h.packet(b"2", to=far)), 40, 4),
        ):
            h.arrive(packet)
            assert h.threads.jobs == []
            (passed,) = h.outgoing(far)[-1:]
            assert passed.body == Message(packet).body
            assert passed.signature == Message(packet).signature
        # Without a signature there is nothing to check, with a SecurityHeader or without one.
        h.arrive(h.packet(b"3"), h.packet(b"4", sender_identifier=ALICE.pack()))
        assert h.threads.jobs == []
        assert h.bodies() == [b"3", b"4"]
        h.close()
