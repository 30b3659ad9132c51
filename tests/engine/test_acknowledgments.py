"""Acknowledgments of messages: who gets which.

MS-MQDMPR 3.1.1.12 AcknowledgementsRequested and Class.
"""

from __future__ import annotations

from typing import Any

import pytest

from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    AuthenticationLevel,
    DeliveryGuarantee,
    EnqueueStatus,
    MessageClass,
    MessagePrivacyLevel,
    QueueAccessType,
    QueuePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import IllegalPropertyValue, MessageNotAuthenticated
from lanner.security.examination import Examination
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.wire.builder import set_authentication
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import Sid
from tests.engine.harness import Harness, status_of
from tests.statuses import MQ_ERROR_TRANSACTION_USAGE

# What an administration queue gets, by what happens to the message.
ARRIVAL = MessageClass.ACK_REACH_QUEUE
RECEIPT = MessageClass.ACK_RECEIVE
REFUSAL = MessageClass.NACK_QUEUE_EXCEED_QUOTA
LOSS = MessageClass.NACK_QUEUE_PURGED

WANTED = {
    Acknowledgements.NONE: set(),
    Acknowledgements.POS_ARRIVAL: {ARRIVAL},
    Acknowledgements.POS_RECEIVE: {RECEIPT},
    Acknowledgements.NEG_ARRIVAL: {REFUSAL},
    Acknowledgements.NACK_REACH_QUEUE: {REFUSAL},
    Acknowledgements.NEG_RECEIVE: {LOSS},
    Acknowledgements.FULL_REACH_QUEUE: {ARRIVAL, REFUSAL},
    Acknowledgements.NACK_RECEIVE: {REFUSAL, LOSS},
    Acknowledgements.FULL_RECEIVE: {RECEIPT, REFUSAL, LOSS},
}


def acknowledgments(h: Harness) -> list[int]:
    """The classes of the messages in the administration queue."""
    return [message.message_class for message in h.messages("admin")]


def asking(h: Harness, requested: Acknowledgements) -> dict[str, Any]:
    return {"acknowledgements_requested": requested, "administration_queue_format_name": h.name("admin")}


def insert(h: Harness, message: Message, queue: str = "q", examination: Examination | None = None) -> MessageClass:
    """Let a message come from another queue manager, which may send anything."""
    return h.engine.insert_message(h.queue(queue), message, SYSTEM, examination)


@pytest.fixture
def admin(h: Harness) -> Harness:
    h.create("admin")
    return h


@pytest.mark.spec("DMPR-3.1.1.12-18", "DMPR-3.1.1.12-19")
@pytest.mark.parametrize(("requested", "wanted"), WANTED.items())
def test_each_kind_of_request_is_answered_by_its_events_and_no_others(
    admin: Harness, requested: Acknowledgements, wanted: set[MessageClass]
) -> None:
    """Arrival, receipt, delivery failure and non-receipt.

    Every request names the events that it covers.
    """
    h = admin
    h.create()
    demand = asking(h, requested)

    h.send(body=b"read", **demand)
    seen = set(acknowledgments(h))
    assert seen == wanted & {ARRIVAL}, "on insertion"
    h.receive()
    assert set(acknowledgments(h)) == wanted & {RECEIPT}, "on receipt"

    h.send(body=b"lost", **demand)
    h.messages("admin")
    h.engine.purge_queue(h.queue())
    assert set(acknowledgments(h)) == wanted & {LOSS}, "on a purge before receipt"

    h.engine.set_queue_properties(h.queue(), {"quota": 0})
    assert insert(h, h.message(b"refused", **demand)) is REFUSAL
    assert set(acknowledgments(h)) == wanted & {REFUSAL}, "on failure of delivery"


@pytest.mark.spec("DMPR-3.1.1.12-18")
def test_by_default_nobody_is_told_anything(admin: Harness) -> None:
    """AcknowledgementsRequested: "None ... is the default value".

    AckNackReachQueue equals AckNegArrival.
    """
    h = admin
    h.create()
    h.send(administration_queue_format_name=h.name("admin"))
    h.receive()
    assert acknowledgments(h) == []
    assert int(Acknowledgements.NACK_REACH_QUEUE) == int(Acknowledgements.NEG_ARRIVAL)


def test_an_acknowledgment_names_its_message_and_keeps_its_guarantee(admin: Harness) -> None:
    """MS-MQQB 3.1.7.15: correlation, response queue and delivery guarantee.

    A negative acknowledgment returns the body.
    """
    h = admin
    h.create()
    demand = asking(h, Acknowledgements.FULL_REACH_QUEUE | Acknowledgements.NEG_RECEIVE)
    h.send(body=b"one", recoverable=False, **demand)
    sent = int(h.engine.last_message_identifier.rpartition("\\")[2])
    h.engine.purge_queue(h.queue())
    arrived, purged = h.messages("admin")
    for acknowledgment in (arrived, purged):
        assert acknowledgment.correlation_identifier[:16] == h.engine.queue_manager.identifier.bytes_le
        assert int.from_bytes(acknowledgment.correlation_identifier[16:], "little") == sent
        assert str(acknowledgment.response_queue_format_name) == r"DIRECT=OS:ALPHA\private$\q"
        assert acknowledgment.delivery_guarantee is DeliveryGuarantee.EXPRESS
        assert acknowledgment.time_to_reach_queue == INFINITE
        assert acknowledgment.acknowledgements_requested == Acknowledgements.NONE
    assert arrived.body == b""
    assert purged.body == b"one"


@pytest.mark.spec("DMPR-3.1.1.12-5")
def test_transactional_and_other_messages_keep_to_their_queues(admin: Harness) -> None:
    """NackNotTransactionalQueue 0x8009, NackNotTransactionalMessage 0x800A; nothing is inserted."""
    h = admin
    h.create("plain")
    h.create("ledger", transactional=True)
    demand = asking(h, Acknowledgements.FULL_REACH_QUEUE)
    assert insert(h, h.message(transaction=1, **demand), "plain") == 0x8009
    assert acknowledgments(h) == [0x8009]
    assert insert(h, h.message(**demand), "ledger") == 0x800A
    assert acknowledgments(h) == [0x800A]
    assert h.bodies("plain") == h.bodies("ledger") == []
    # An application gets the error at once: MQ_ERROR_TRANSACTION_USAGE.
    assert status_of(lambda: h.send("ledger")) == MQ_ERROR_TRANSACTION_USAGE
    transaction = h.begin()
    assert status_of(lambda: h.send("plain", transaction=transaction)) == MQ_ERROR_TRANSACTION_USAGE


@pytest.mark.spec("DMPR-3.1.1.12-6")
def test_each_of_the_two_clocks_has_its_class(admin: Harness) -> None:
    """0x8002 before arrival, 0xC002 in the destination queue.

    If TimeToBeReceived expires before insertion, the class is 0x8002 too.
    """
    h = admin
    h.create()
    demand = asking(h, Acknowledgements.FULL_RECEIVE)
    h.send(body=b"late reader", time_to_be_received=10, **demand)
    h.tick(9)
    assert acknowledgments(h) == []
    h.tick(1)
    assert acknowledgments(h) == [0xC002]

    elsewhere = r"DIRECT=OS:BETA\private$\q"
    h.send(elsewhere, time_to_reach_queue=10, **demand)
    h.send(elsewhere, time_to_be_received=20, **demand)
    h.tick(9)
    assert acknowledgments(h) == []
    h.tick(1)
    assert acknowledgments(h) == [0x8002]
    h.tick(10)
    assert acknowledgments(h) == [0x8002]

    # On arrival here: too late for its queue already.
    message = h.message(time_to_reach_queue=10, **demand)
    h.now += 11
    assert insert(h, message) == 0x8002
    assert acknowledgments(h) == [0x8002]


def test_each_refusal_has_its_class_and_stores_nothing(h: Harness) -> None:
    """MS-MQDMPR 3.1.1.12 Class: the refusals that are decided at the queue."""
    h.create("open")
    h.create("full", quota=0)
    h.create("private", privacy_level=QueuePrivacyLevel.BODY)
    h.create("plain", privacy_level=QueuePrivacyLevel.NONE)
    h.create("signed", authentication=True)
    h.create("closed", security=parse_sddl("O:SYG:SYD:(A;;0xF003F;;;SY)").pack())
    engine = h.engine
    encrypted = h.message(privacy_level=MessagePrivacyLevel.BASE)
    assert engine.insert_message(None, h.message()) == 0x8000
    assert engine.insert_message(h.queue("full"), h.message(), SYSTEM) == 0x8003
    assert engine.insert_message(h.queue("closed"), h.message(), ANONYMOUS) == 0x8004
    assert engine.insert_message(h.queue("signed"), h.message(), SYSTEM) == 0x8006
    assert engine.insert_message(h.queue("private"), h.message(), SYSTEM) == 0x8007
    assert engine.insert_message(h.queue("plain"), encrypted, SYSTEM) == 0x8007
    assert engine.insert_message(h.queue("open"), encrypted, SYSTEM) is MessageClass.ACK_REACH_QUEUE
    for name in ("full", "closed", "signed", "private", "plain"):
        assert h.bodies(name) == []


def test_a_message_removed_from_an_outgoing_queue_was_purged_on_its_way(admin: Harness) -> None:
    """NackPurged 0x8001: the message never reached its destination.

    So its sender gets a negative arrival acknowledgment.
    """
    h = admin
    elsewhere = r"DIRECT=OS:BETA\private$\q"
    h.send(elsewhere, **asking(h, Acknowledgements.NEG_ARRIVAL))
    h.engine.purge_queue(h.queue(elsewhere))
    assert acknowledgments(h) == [0x8001]


@pytest.mark.parametrize("send_insecure_nacks", [False, True])
def test_strangers_are_told_why_only_when_that_is_allowed(admin: Harness, send_insecure_nacks: bool) -> None:
    """MS-MQQB 3.1.7.15: SendInsecureNacks controls some classes of acknowledgments.

    They are those that reveal what is here and how it is protected.
    """
    h = admin
    h.settings["send_insecure_nacks"] = send_insecure_nacks
    h.restart()
    demand = asking(h, Acknowledgements.NEG_ARRIVAL)
    assert h.engine.insert_message(None, h.message(**demand)) == 0x8000
    assert acknowledgments(h) == ([0x8000] if send_insecure_nacks else [])


@pytest.mark.spec("DMPR-3.1.1.2-3")
def test_a_queue_takes_only_messages_secured_as_it_demands(h: Harness) -> None:
    """Authentication True: authenticated ones only.

    PrivacyLevel None: plain, Body: encrypted, Optional: both.
    """
    encrypted: dict[str, Any] = {"privacy_level": MessagePrivacyLevel.ADVANCED}
    plain: dict[str, Any] = {"privacy_level": MessagePrivacyLevel.NONE}
    for level, takes_plain, takes_encrypted in (
        (QueuePrivacyLevel.NONE, True, False),
        (QueuePrivacyLevel.BODY, False, True),
        (QueuePrivacyLevel.OPTIONAL, True, True),
    ):
        name = level.name.lower()
        h.create(name, privacy_level=level)
        for properties, is_taken in ((plain, takes_plain), (encrypted, takes_encrypted)):
            message = h.message(**properties)
            examination = Examination(message, was_encrypted=properties is encrypted)
            verdict = insert(h, message, name, examination)
            assert (verdict is MessageClass.ACK_REACH_QUEUE) is is_taken
            assert len(h.messages(name)) == is_taken
            if is_taken:
                assert h.send(name, **properties) is EnqueueStatus.OK
            else:
                with pytest.raises(IllegalPropertyValue):
                    h.send(name, **properties)
            assert len(h.messages(name)) == is_taken

    h.create("signed", authentication=True)
    with pytest.raises(MessageNotAuthenticated):
        h.send("signed")
    assert insert(h, h.message(), "signed") is MessageClass.NACK_BAD_SIGNATURE
    unsigned = h.message(b"claims", signature=b"x" * 64, sender_identifier=SYSTEM.sid.pack())
    assert insert(h, unsigned, "signed") is MessageClass.NACK_BAD_SIGNATURE
    claimed = Message(set_authentication(unsigned.packet, AuthenticationLevel.SIG20))
    assert insert(h, claimed, "signed") is MessageClass.NACK_BAD_SIGNATURE
    verified = Examination(claimed, AuthenticationLevel.SIG20, is_sender_known=True)
    assert insert(h, claimed, "signed", verified) is MessageClass.ACK_REACH_QUEUE
    assert [message.body for message in h.messages("signed")] == [b"claims"]


@pytest.mark.spec("DMPR-3.1.1.12-23")
def test_the_sender_is_named_by_its_sid_unless_it_asks_otherwise(h: Harness) -> None:
    """SenderIdentifierType: Sid of the current user by default.

    It is None for the anonymous user, or names the queue manager.
    """
    h.settings["profile"] = Profile.DOCUMENT
    h.restart()
    alice = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
    h.create(security=parse_sddl("O:SYG:SYD:(A;;0x4;;;S-1-5-21-1-2-3-1001)").pack())
    descriptor = h.open("q", QueueAccessType.SEND, identity=alice)
    for kind in (None, SenderIdentifierType.NONE, SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER):
        properties = h.properties() if kind is None else h.properties(sender_identifier_type=kind)
        h.engine.enqueue_message_to_an_open_queue(descriptor, properties)
    by_default, unnamed, by_machine = h.messages()
    assert by_default.sender_identifier_type is SenderIdentifierType.SID
    assert by_default.sender_identifier == alice.sid.pack()
    assert unnamed.sender_identifier_type is SenderIdentifierType.NONE
    assert unnamed.sender_identifier == b""
    assert by_machine.sender_identifier_type is SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
    assert by_machine.sender_identifier == h.engine.queue_manager.identifier.bytes_le

    # The access check of a message without a named sender is that of the anonymous user.
    assert h.engine.insert_message(h.queue(), unnamed) is MessageClass.NACK_ACCESS_DENIED
    assert h.engine.insert_message(h.queue(), by_default, alice) is MessageClass.ACK_REACH_QUEUE
    h.create("anonymous", security=parse_sddl("O:SYG:SYD:(A;;0x4;;;AN)").pack())
    assert h.engine.insert_message(h.queue("anonymous"), unnamed) is MessageClass.ACK_REACH_QUEUE
    assert h.engine.insert_message(h.queue("anonymous"), by_default, alice) is MessageClass.NACK_ACCESS_DENIED


def test_an_acknowledgment_goes_only_where_its_asker_may_send(h: Harness) -> None:
    """A message to a queue that is open to all must not carry its body into one that is not."""
    bob = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
    everyone = parse_sddl("D:(A;;0xf003f;;;WD)").pack()
    nobody = parse_sddl("O:SYD:P").pack()
    h.create("open", security=everyone)
    h.create("victim", security=nobody)
    h.create("own", security=everyone)
    for target in ("victim", "own", "order_queue$"):
        descriptor = h.open("open", QueueAccessType.SEND, identity=bob)
        properties = h.properties(
            b"planted",
            time_to_be_received=1,
            acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
            administration_queue_format_name=parse(rf"DIRECT=OS:ALPHA\private$\{target}"),
        )
        h.engine.enqueue_message_to_an_open_queue(descriptor, properties)
    # From another computer, whose word about the sender is not taken.
    h.engine.insert_message(
        h.queue("open"),
        h.message(
            b"planted",
            time_to_be_received=1,
            sender_identifier=SYSTEM.sid.pack(),
            acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
            administration_queue_format_name=parse(r"DIRECT=OS:ALPHA\private$\victim"),
        ),
        sender=bob,
    )
    h.tick(2)
    assert (h.bodies("victim"), h.bodies("order_queue$")) == ([], [])
    assert h.bodies("own") == [b"planted"]
