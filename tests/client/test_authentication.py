"""Messages that ask to be authenticated, and who signs them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from cryptography import x509

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.model.enums import HashAlgorithm
from lanner.model.errors import MessageNotAuthenticated, NoInternalUserCert
from lanner.security.certificates import generate_certificate
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.signing import SigningKey
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import LOCAL_SYSTEM, Sid

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True, is_administrator=True)


@pytest.mark.spec("MQMQ-2.2.19.3-9")
@pytest.mark.parametrize(
    ("algorithm", "number"), [(None, 0x800E), ("sha1", 0x8004), (HashAlgorithm.SHA_256, 0x800C), ("md5", 0x8003)]
)
def test_the_internal_certificate_signs_when_there_is_no_other(
    qm: QueueManager, algorithm: HashAlgorithm | str | None, number: int
) -> None:
    """SHA-512 unless another hash is chosen; an unsigned message keeps the data model's SHA-1."""
    queue = qm.create_queue("signed", authentication=True)
    queue.send(Message(body="x", authenticate=True, hash_algorithm=algorithm))
    received = queue.receive(0)
    assert received.authenticated
    assert received.hash_algorithm == number
    assert received.sender_id == LOCAL_SYSTEM.pack()
    internal = runtime_of(qm).engine.queue_manager.internal_certificate_collection[str(LOCAL_SYSTEM)]
    assert received.sender_certificate == internal.certificate
    plain = qm.create_queue("plain")
    plain.send(Message(body="x"))
    received = plain.receive(0)
    assert not received.authenticated
    assert received.hash_algorithm == 0x8004


@pytest.mark.spec("DMPR-3.1.1.1-12")
def test_each_user_has_one_certificate_and_keeps_it(start: Callable[..., QueueManager]) -> None:
    """3.1.1.1 InternalCertificateCollection: X.509, made by the server, at most one per user."""

    def certificates(manager: QueueManager) -> list[bytes]:
        found = []
        for user in (manager, manager.as_user(ALICE), manager):
            queue = user.open("signed")
            queue.send(Message(body="x", authenticate=True))
            received = queue.receive(0)
            assert received.authenticated
            found.append(received.sender_certificate)
        return found

    manager = start()
    manager.create_queue("signed", authentication=True)
    before = certificates(manager)
    assert before[0] == before[2] != before[1]
    collection = runtime_of(manager).engine.queue_manager.internal_certificate_collection
    assert {sid: internal.certificate for sid, internal in collection.items()} == {
        str(LOCAL_SYSTEM): before[0],
        str(ALICE.sid): before[1],
    }
    for certificate in before:
        loaded = x509.load_der_x509_certificate(certificate)
        loaded.verify_directly_issued_by(loaded)
    file = runtime_of(manager).path / "certificates.json"
    assert file.stat().st_mode & 0o777 == 0o600
    manager.close()
    again = start()
    assert certificates(again) == before


def test_the_applications_own_key_signs_and_is_known_from_then_on(qm: QueueManager) -> None:
    made = generate_certificate("alice", dt.datetime.now(dt.UTC))
    alice = qm.as_user(ALICE)
    qm.create_queue("signed", authentication=True)
    alice.signing_key = SigningKey.load(made.certificate, made.private_key)
    queue = alice.open("signed")
    for _ in range(2):
        queue.send(Message(body="x", authenticate=True))
        assert queue.receive(0).sender_certificate == made.certificate
    # It is alice's, so it is not the local system's; setting it is what makes it so.
    alice.signing_key = None
    queue.send(Message(body="x", authenticate=True))
    assert queue.receive(0).sender_certificate != made.certificate


def test_nobody_has_no_certificate(qm: QueueManager) -> None:
    """The anonymous user may send; no certificate could name that user."""
    qm.create_queue("signed", authentication=True, security=parse_sddl("O:SYD:(A;;0x4;;;AN)").pack())
    queue = qm.as_user(ANONYMOUS).open("signed")
    with pytest.raises(NoInternalUserCert):
        queue.send(Message(body="x", authenticate=True))
    with pytest.raises(MessageNotAuthenticated):
        queue.send("x")


def test_a_signature_for_several_queues_fits_in_whatever_order_they_are_named(qm: QueueManager) -> None:
    """A packet lists its queues in the order of MS-MQDMPR 3.1.7.3.8, which the signature covers."""
    a, b = (qm.create_queue(name, authentication=True) for name in "ab")
    for names in ((a, b), (b, a)):
        several = qm.open(",".join(queue.format_name for queue in names))
        several.send(Message(body="x", authenticate=True))
        several.send_many([Message(body="y", authenticate=True)])
        for queue in (a, b):
            assert [message.authenticated for message in queue.receive_many(5)] == [True, True]
