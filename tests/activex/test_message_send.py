"""IMSMQMessage::Send (MC-MQAC 3.17.4.1.48).

Covered: destinations, senders, signatures and transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from uuid import UUID

import pytest

from lanner.activex.destination import MSMQDestination
from lanner.activex.message import MSMQMessage
from lanner.activex.transaction import MSMQTransaction
from lanner.activex.transaction_dispensers import MSMQTransactionDispenser
from lanner.com.automation.values import EMPTY, MISSING, NULL, Variant
from lanner.com.constants import E_INVALIDARG
from lanner.model.enums import (
    AuthenticationLevel,
    HashAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    QueuePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import (
    AccessDenied,
    CannotSignDataEx,
    IllegalPropertyValue,
    InsufficientProperties,
    InsufficientResources,
    InvalidHandle,
    MessageNotAuthenticated,
    MissingConnectorType,
    NoInternalUserCert,
    TransactionSequence,
    TransactionUsage,
)
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.security.signing import SigningKey, verify
from lanner.transfer.incoming_senders import IncomingSenders
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import Sid
from lanner.wire.vartypes import VT
from tests.activex.messages import (
    ELSEWHERE,
    PEEK,
    RECEIVE,
    bodies_after_a_kill,
    create,
    new_message,
    number,
    octets,
    open_queue,
    packet,
    packets,
    queue_info,
    receive,
    send,
    text,
)
from tests.activex.world import World
from tests.overlay import overlay
from tests.statuses import MQ_ERROR_INSUFFICIENT_PROPERTIES, MQ_ERROR_MISSING_CONNECTOR_TYPE

ALICE = Identity("alice", Sid(5, (21, 1, 2, 3, 1001)), is_domain_user=True)
BOB = Identity("bob", Sid(5, (21, 1, 2, 3, 1002)), is_domain_user=True)
CONNECTOR = "{00112233-4455-6677-8899-AABBCCDDEEFF}"
# What only connectors may put.
CONNECTOR_PROPERTIES = {
    "msg_class": 1,
    "sender_id": octets(SYSTEM.sid.pack()),
    "destination_symmetric_key": octets(b"key"),
    "signature": octets(b"signature"),
    "authentication_provider_name": "Microsoft Base Cryptographic Provider v1.0",
}


def transaction(world: World) -> MSMQTransaction:
    begun: MSMQTransaction = world.call(MSMQTransactionDispenser(world.environment), "begin_transaction")
    world.objects.append(begun)
    return begun


def opened_destination(world: World, name: str) -> MSMQDestination:
    destination = MSMQDestination(world.environment)
    world.objects.append(destination)
    world.call(destination, "put_format_name", name)
    world.call(destination, "open")
    return destination


# Where to
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.48-1")
def test_no_destination(world: World) -> None:
    message = new_message(world)
    assert world.status(message, "send", None) == E_INVALIDARG == 0x8007_0057
    assert world.status(message, "send", None, number(0), revision=1) == E_INVALIDARG


@pytest.mark.spec("MQAC-3.17.4.1.48-2")
def test_an_open_queue_or_destination_is_sent_to(world: World) -> None:
    name = create(world)
    message = new_message(world, text("x"))
    queue, destination = open_queue(world, name), opened_destination(world, name)
    for target in (queue, destination):
        world.call(message, "send", target)
    assert len(packets(world, name)) == 2
    for access in (RECEIVE, PEEK):
        assert world.status(message, "send", open_queue(world, name, access)) & 0x8000_0000
    for target in (queue, destination):
        world.call(target, "close")
        assert world.status(message, "send", target) == InvalidHandle.status
    unopened = MSMQDestination(world.environment)
    assert world.status(message, "send", unopened) == InvalidHandle.status
    for wrong in (message, queue_info(world, name)):
        assert world.status(message, "send", wrong) == E_INVALIDARG
    assert len(packets(world, name)) == 2


@pytest.mark.spec("MQAC-3.1.1.2-1")
def test_what_is_for_another_computer_waits_in_an_outgoing_queue(world: World) -> None:
    here = create(world)
    send(world, new_message(world, text("here")), here)
    send(world, new_message(world, text("there")), ELSEWHERE)
    assert packet(world, here).body == "here".encode("utf-16-le")
    assert packet(world, ELSEWHERE).body == "there".encode("utf-16-le")
    with world.held() as h:
        assert [queue.destination_format_name for queue in h.engine.outgoing_queues()] == [ELSEWHERE]


@pytest.mark.spec("MQAC-3.17.4.1.48-13")
def test_a_message_that_is_refused_can_be_sent_again(world: World) -> None:
    name = create(world, quota=1)
    message = new_message(world, octets(bytes(2000)), delivery=1)
    queue = open_queue(world, name)
    assert world.status(message, "send", queue) == InsufficientResources.status
    assert world.call(message, "get_id") == octets(bytes(20))
    with world.held() as h:
        h.queue("q").quota = 100
    world.call(message, "send", queue)
    assert len(packets(world, name)) == 1


@pytest.mark.spec("MQAC-3.17.4.1.48-14")
def test_each_send_is_a_message_of_its_own(world: World) -> None:
    name = create(world)
    message = new_message(world, text("twice"))
    identifiers = []
    for _ in range(2):
        send(world, message, name)
        identifiers.append(world.call(message, "get_id").value)
    assert [kept.identifier_bytes for kept in packets(world, name)] == identifiers
    assert len(set(identifiers)) == 2


@pytest.mark.spec("MQAC-3.17.4.1.48-9", "MQAC-3.17.4.1.42-1")
def test_what_send_sets_can_be_read(world: World) -> None:
    name = create(world)
    message = new_message(world)
    here = world.engine.queue_manager.identifier
    with world.held() as h:
        h.now = 1_704_110_400.0  # 2024-01-01 12:00 UTC
    send(world, message, name)
    kept = packet(world, name)
    assert world.call(message, "get_source_machine_guid") == str(here).upper()
    assert kept.source_machine_identifier == here
    assert world.call(message, "get_sent_time") == Variant(VT.DATE, 45292.5)
    assert kept.sent_time == 1_704_110_400
    assert world.call(message, "get_id") == octets(MessageIdentifier(here, kept.identifier.ordinal).pack())
    destination = world.call(message, "get_destination_queue_info")
    assert world.call(destination, "get_format_name") == str(kept.destination_queue_format_name)


@pytest.mark.spec("MQAC-3.17.4.1.48-11")
def test_the_time_to_be_received_is_not_shorter_than_the_time_to_reach_the_queue(world: World) -> None:
    name = create(world)
    for to_reach, to_receive, expected in ((100, 50, 100), (50, 100, 100), (70, 70, 70), (-1, 50, -1)):
        message = new_message(world, max_time_to_reach_queue=to_reach, max_time_to_receive=to_receive)
        send(world, message, name)
        assert world.call(message, "get_max_time_to_receive") == expected
        assert packets(world, name)[-1].time_to_be_received == expected & 0xFFFF_FFFF


def test_a_time_to_be_received_alone_counts(world: World) -> None:
    name = create(world)
    send(world, new_message(world, max_time_to_receive=50), name)
    assert packet(world, name).time_to_be_received == 50
    world.tick(51)
    assert packets(world, name) == []


@pytest.mark.spec("MQAC-2.2.2.10-1")
def test_recoverable_messages_survive_and_traces_are_asked_for(world: World) -> None:
    name = create(world)
    for delivery, trace in ((0, 0), (1, 1)):
        send(world, new_message(world, text(str(delivery)), delivery=delivery, trace=trace), name)
    express, recoverable = packets(world, name)
    assert (express.is_recoverable, recoverable.is_recoverable) == (False, True)
    assert (express.tracing_requested, recoverable.tracing_requested) == (False, True)
    assert [world.call(new_message(world, trace=trace), "get_trace") for trace in (0, 1)] == [0, 1]
    assert bodies_after_a_kill(world) == ["1".encode("utf-16-le")]


@pytest.mark.spec("MQAC-2.2.2.11-1")
@pytest.mark.parametrize(
    ("ack", "classes"),
    [
        (0x00, []),
        (0x01, [MessageClass.ACK_REACH_QUEUE]),
        (0x02, [MessageClass.ACK_RECEIVE]),
        (0x05, [MessageClass.ACK_REACH_QUEUE]),
        (0x0E, [MessageClass.ACK_RECEIVE]),
        (0x08, []),
        (0x0C, []),
    ],
)
def test_acknowledgments_of_what_arrives_and_is_received(world: World, ack: int, classes: list[int]) -> None:
    name, admin = create(world), create(world, "admin")
    message = new_message(world, ack=ack)
    world.call(message, "putref_admin_queue_info", queue_info(world, admin))
    send(world, message, name)
    assert packet(world, name).acknowledgements_requested == ack
    found = receive(world, name)
    assert world.call(found, "get_ack") == ack
    told = [receive(world, admin) for _ in classes]
    assert [world.call(one, "get_class") for one in told] == classes
    assert all(world.call(one, "get_correlation_id") == world.call(found, "get_id") for one in told)
    assert packets(world, admin) == []


@pytest.mark.spec("MQAC-2.2.2.11-1")
@pytest.mark.parametrize(("ack", "is_told"), [(0x01, False), (0x04, False), (0x08, True), (0x0C, True), (0x0E, True)])
def test_acknowledgments_of_what_is_not_received(world: World, ack: int, is_told: bool) -> None:
    name, admin = create(world), create(world, "admin")
    message = new_message(world, ack=ack)
    world.call(message, "putref_admin_queue_info", queue_info(world, admin))
    send(world, message, name)
    with world.held() as h:
        h.engine.purge_queue(h.queue("q"))
    classes = [int(one.message_class) for one in packets(world, admin)]
    assert (MessageClass.NACK_QUEUE_PURGED in classes) is is_told


@pytest.mark.spec("MQAC-2.2.2.12-1")
@pytest.mark.parametrize("has_room", [True, False])
def test_dead_letters_of_what_is_not_delivered(world: World, has_room: bool) -> None:
    name = create(world)
    with world.held() as h:
        dead = h.engine.queue_manager.system_deadletter_queue
        assert dead is not None
        dead.quota = 0xFFFF_FFFF if has_room else 0
    for journal in (0, 1):
        send(world, new_message(world, text(str(journal)), journal=journal, max_time_to_receive=10), name)
    world.tick(11)
    assert packets(world, name) == []
    dead_letters = r"DIRECT=OS:.\SYSTEM$;DEADLETTER"
    assert [kept.body for kept in packets(world, dead_letters)] == (["1".encode("utf-16-le")] if has_room else [])


@pytest.mark.spec("MQAC-2.2.2.12-1")
@pytest.mark.parametrize("has_room", [True, False])
def test_copies_of_what_is_delivered(world: World, has_room: bool) -> None:
    name = create(world)
    with world.held() as h:
        h.engine.queue_manager.journal_quota = 0xFFFF_FFFF if has_room else 0
    for journal in (0, 1, 2):
        send(world, new_message(world, text(str(journal)), journal=journal), name)
    assert len(packets(world, name)) == 3
    copies = r"DIRECT=OS:.\SYSTEM$;JOURNAL"
    assert [kept.body for kept in packets(world, copies)] == (["2".encode("utf-16-le")] if has_room else [])


# Connectors
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.48-3")
@pytest.mark.parametrize("name", CONNECTOR_PROPERTIES)
def test_some_properties_are_for_connectors(world: World, name: str) -> None:
    queue = create(world)
    message = new_message(world, None, **{name: CONNECTOR_PROPERTIES[name]})
    assert (
        world.status(message, "send", open_queue(world, queue))
        == MissingConnectorType.status
        == MQ_ERROR_MISSING_CONNECTOR_TYPE
    )
    assert packets(world, queue) == []
    world.call(message, "put_connector_type_guid", CONNECTOR)
    if name not in ("signature", "destination_symmetric_key"):
        # A queue here would look whether those are any good.
        send(world, message, queue)
    send(world, message, ELSEWHERE)
    kept = packet(world, ELSEWHERE)
    assert kept.connector_type_identifier == UUID(CONNECTOR)


def test_what_a_connector_puts_is_sent(world: World) -> None:
    message = new_message(
        world, None, connector_type_guid=CONNECTOR, priv_level=1, authentication_provider_type=1, **CONNECTOR_PROPERTIES
    )
    send(world, message, ELSEWHERE)
    kept = packet(world, ELSEWHERE)
    assert (kept.message_class, kept.symmetric_key, kept.signature) == (1, b"key", b"signature")
    assert kept.authentication_provider_name == CONNECTOR_PROPERTIES["authentication_provider_name"]
    assert kept.sender_identifier == SYSTEM.sid.pack()


@pytest.mark.spec("MQAC-3.17.4.1.48-4")
@pytest.mark.parametrize(
    ("provider_type", "name"), [(0, "Microsoft Base Cryptographic Provider v1.0"), (1, ""), (1, None)]
)
def test_a_provider_has_a_type_and_a_name(world: World, provider_type: int, name: str | None) -> None:
    queue = open_queue(world, create(world))
    message = new_message(world, connector_type_guid=CONNECTOR, authentication_provider_type=provider_type)
    world.call(message, "put_authentication_provider_name", name)
    assert world.status(message, "send", queue) == InsufficientProperties.status == MQ_ERROR_INSUFFICIENT_PROPERTIES
    world.call(message, "put_authentication_provider_type", 0)
    world.call(message, "put_authentication_provider_name", None)
    world.call(message, "send", queue)


@pytest.mark.spec("MQAC-3.17.4.1.48-4")
def test_only_the_type_of_a_provider(world: World) -> None:
    message = new_message(world, authentication_provider_type=0)
    assert world.status(message, "send", open_queue(world, create(world))) == InsufficientProperties.status


@pytest.mark.spec("MQAC-3.17.4.1.48-10")
def test_the_class_of_a_message_that_is_sent_on_is_normal(world: World) -> None:
    name, other = create(world), create(world, "other")
    with world.held() as h:
        h.send("q", b"report", message_class=MessageClass.REPORT)
    found = receive(world, name)
    assert world.call(found, "get_class") == 1
    send(world, found, other)
    assert packet(world, other).message_class == 0
    assert world.call(found, "get_class") == 0


# From whom
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.48-8")
def test_the_sender_is_the_caller(world: World) -> None:
    name = create(world)
    for caller in (ALICE, BOB):
        message = new_message(world)
        send(world, message, name, by=caller)
        assert world.call(message, "get_sender_id") == octets(caller.sid.pack())
    # The caller of Send counts, not the one before.
    send(world, message, name, by=ALICE)
    kept = packets(world, name)
    assert [one.sender_identifier for one in kept] == [one.sid.pack() for one in (ALICE, BOB, ALICE)]
    assert {one.sender_identifier_type for one in kept} == {SenderIdentifierType.SID}
    assert world.call(message, "get_sender_certificate") == octets(b"")


@pytest.mark.spec("MQAC-3.17.4.1.48-8")
@pytest.mark.parametrize("caller", [ALICE, SYSTEM], ids=lambda caller: caller.name)
def test_in_the_document_profile_the_sender_is_the_caller_elsewhere_too(
    new_world: Callable[..., World], caller: Identity
) -> None:
    world = new_world(profile=Profile.DOCUMENT)
    send(world, new_message(world), ELSEWHERE, by=caller)
    assert packet(world, ELSEWHERE).sender_identifier == caller.sid.pack()


def test_a_local_account_is_not_named_elsewhere(new_world: Callable[..., World]) -> None:
    world = new_world(is_local_account=lambda sid: sid == ALICE.sid)
    for caller in (ALICE, SYSTEM):
        message = new_message(world)
        send(world, message, ELSEWHERE, by=caller)
        # The client still sees in whose name it has sent.
        assert world.call(message, "get_sender_id") == octets(caller.sid.pack())
    for kept in packets(world, ELSEWHERE):
        assert kept.sender_identifier == b""


@pytest.mark.spec("MQAC-3.17.4.1.48-8")
def test_the_certificate_is_the_callers_internal_one_where_there_is_one(world: World) -> None:
    name = create(world)
    key = world.run(world.environment.internal_signing_key(ALICE))
    message = new_message(world)
    send(world, message, name, by=ALICE)
    assert world.call(message, "get_sender_certificate") == octets(key.certificate)
    assert packet(world, name).sender_certificate == key.certificate
    # One that the client puts stays.
    own = new_message(world, sender_certificate=octets(b"own"))
    send(world, own, ELSEWHERE, by=ALICE)
    assert packet(world, ELSEWHERE).sender_certificate == b"own"


@pytest.mark.spec("MQAC-3.17.4.1.48-8", "MQAC-3.17.4.1.49-1")
@pytest.mark.parametrize("attach", ["attach_current_security_context", "attach_current_security_context2"])
def test_a_security_context_is_kept_and_the_message_stays_as_it_is(world: World, attach: str) -> None:
    name = create(world)
    asked: list[Identity] = []
    environment = world.environment

    def internal_signing_key(identity: Identity) -> Coroutine[object, object, SigningKey]:
        asked.append(identity)
        return environment.internal_signing_key(identity)

    world.environment = overlay(environment, internal_signing_key=internal_signing_key)
    message = new_message(world)
    world.call(message, attach, by=ALICE)
    assert asked == [ALICE]
    assert world.call(message, "get_sender_id") == octets(b"")
    assert world.call(message, "get_sender_certificate") == octets(b"")
    key = world.run(environment.internal_signing_key(ALICE))
    world.call(message, "put_auth_level", 4)
    send(world, message, name, by=ALICE)
    kept = packet(world, name)
    assert asked == [ALICE]
    assert kept.sender_identifier == ALICE.sid.pack()
    assert kept.sender_certificate == key.certificate
    assert kept.authentication_level == AuthenticationLevel.SIG20
    # No other user may send in that name.
    assert world.status(message, "send", open_queue(world, name, by=BOB), by=BOB) == AccessDenied.status


@pytest.mark.spec("MQAC-3.17.4.1.49-1")
def test_a_security_context_takes_the_messages_own_certificate(world: World) -> None:
    message = new_message(world, sender_certificate=octets(b"own"))
    world.call(message, "attach_current_security_context", by=ALICE)
    assert world.call(message, "get_sender_certificate") == octets(b"own")
    world.call(message, "put_sender_certificate", EMPTY)
    send(world, message, ELSEWHERE, by=ALICE)
    assert packet(world, ELSEWHERE).sender_certificate == b"own"


def test_nobody_has_a_context_without_a_certificate(world: World) -> None:
    name = create(world)
    message = new_message(world)
    world.call(message, "attach_current_security_context", by=ANONYMOUS)
    send(world, message, ELSEWHERE, by=SYSTEM)
    # The anonymous has no name elsewhere.
    assert packet(world, ELSEWHERE).sender_identifier == b""
    world.call(message, "put_auth_level", 8)
    world.call(message, "attach_current_security_context", by=ANONYMOUS)
    queue = open_queue(world, name)
    assert world.status(message, "send", queue, by=ANONYMOUS) == NoInternalUserCert.status


@pytest.mark.spec("MQAC-3.1.4.1-1")
def test_nobody_sends_in_the_name_of_another(world: World) -> None:
    name = create(world)
    message = new_message(world, connector_type_guid=CONNECTOR, sender_id=octets(BOB.sid.pack()))
    assert world.status(message, "send", open_queue(world, name, by=ALICE), by=ALICE) == AccessDenied.status
    assert packets(world, name) == []
    send(world, message, name, by=SYSTEM)
    assert packet(world, name).sender_identifier == BOB.sid.pack()


def test_a_message_that_is_sent_on_is_from_whoever_sends_it(world: World) -> None:
    name, other = create(world), create(world, "other")
    message = new_message(world, auth_level=4)
    send(world, message, name, by=ALICE)
    found = receive(world, name)
    assert world.call(found, "get_sender_id") == octets(ALICE.sid.pack())
    send(world, found, other, by=BOB)
    kept = packet(world, other)
    assert (kept.sender_identifier, kept.signature, kept.sender_certificate) == (BOB.sid.pack(), b"", b"")


def test_a_message_of_a_queue_manager_is_sent_on_by_whoever_sends_it(world: World) -> None:
    name, admin = create(world), create(world, "admin")
    message = new_message(world, ack=1)
    world.call(message, "putref_admin_queue_info", queue_info(world, admin))
    send(world, message, name)
    acknowledgment = receive(world, admin)
    assert world.call(acknowledgment, "get_sender_id_type") == 2
    send(world, acknowledgment, ELSEWHERE, by=ALICE)
    kept = packet(world, ELSEWHERE)
    assert (kept.sender_identifier_type, kept.sender_identifier) == (SenderIdentifierType.SID, ALICE.sid.pack())
    assert world.call(acknowledgment, "get_sender_id_type") == 1


@pytest.mark.spec("MQAC-2.2.2.14-1")
def test_no_identity_is_sent_where_none_is_wanted(world: World, new_world: Callable[..., World]) -> None:
    """Without an identity, the receiver checks the rights of the anonymous user.

    With one, it checks the rights of the user that the message names.
    """
    world.run(world.environment.internal_signing_key(ALICE))
    for kind in (0, 1):
        send(world, new_message(world, text(str(kind)), sender_id_type=kind), ELSEWHERE, by=ALICE)
    unnamed, named = packets(world, ELSEWHERE)
    assert (unnamed.sender_identifier_type, unnamed.sender_identifier, unnamed.sender_certificate) == (0, b"", b"")
    assert named.sender_identifier_type == SenderIdentifierType.SID
    assert named.sender_identifier == ALICE.sid.pack()
    far = new_world(computer_name="BETA", resolve_identity={ALICE.sid: ALICE}.get, profile=Profile.DOCUMENT)
    with far.held() as h:
        # Every authenticated user may send.
        queue = h.create("far", security=parse_sddl("O:SYG:SYD:(A;;0xf003f;;;AU)").pack())
        senders = IncomingSenders(h.engine)
        verdicts = [h.engine.insert_message(queue, one, senders.sender_of(one)) for one in (unnamed, named)]
    assert verdicts == [MessageClass.NACK_ACCESS_DENIED, MessageClass.ACK_REACH_QUEUE]


# Signed how
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-2.2.2.16-1", "MQAC-3.17.4.1.48-12")
@pytest.mark.parametrize(("requested", "level"), [(0, 0), (1, 5), (2, 1), (4, 3), (8, 5)])
def test_each_level_signs_as_it_says(new_world: Callable[..., World], requested: int, level: int) -> None:
    world = new_world(profile=Profile.DOCUMENT)
    name = create(world)
    message = new_message(world, text("signed"), auth_level=requested)
    for target in (name, ELSEWHERE):
        send(world, message, target, by=ALICE)
        assert world.call(message, "get_received_authentication_level") == level
        assert world.call(message, "get_is_authenticated") == int(bool(level))
    # Here it was verified on arrival, and AS tells as what.
    found = receive(world, name)
    assert world.call(found, "get_received_authentication_level") == level
    kept = packet(world, ELSEWHERE)
    assert verify(kept, preferences=world.engine.settings.encryption_preferences) == level
    assert bool(kept.signature) is bool(level)
    assert world.call(message, "get_signature") == octets(kept.signature)
    assert kept.hash_algorithm == HashAlgorithm.SHA1


def test_a_signature_for_one_queue_says_which(world: World) -> None:
    """In the default profile, the signature of a message to one queue names that queue.

    Level 1 leaves the choice of hash to the sender, and the 3.0 hash does not cover one
    destination.
    """
    name = create(world)
    send(world, new_message(world, auth_level=1), name, by=ALICE)
    assert packet(world, name).authentication_level == AuthenticationLevel.SIG20
    for level in (2, 8):
        message = new_message(world, auth_level=level)
        assert world.status(message, "send", open_queue(world, name), by=ALICE) == MessageNotAuthenticated.status


@pytest.mark.spec("MQAC-2.2.2.18-1", "MQAC-3.17.4.1.48-12")
@pytest.mark.parametrize("algorithm", [0x8001, 0x8002, 0x8003, 0x8004])
def test_each_hash_signs(world: World, algorithm: int) -> None:
    name = create(world)
    send(world, new_message(world, text("signed"), auth_level=4, hash_algorithm=algorithm), name, by=ALICE)
    kept = packet(world, name)
    assert kept.hash_algorithm == algorithm
    assert kept.authentication_level == AuthenticationLevel.SIG20
    assert [int(one) for one in (HashAlgorithm.MD2, HashAlgorithm.MD4, HashAlgorithm.MD5, HashAlgorithm.SHA1)] == [
        0x8001,
        0x8002,
        0x8003,
        0x8004,
    ]


@pytest.mark.spec("MQAC-2.2.2.18-1")
@pytest.mark.parametrize("algorithm", [0x8005, 0x2400, 0x2200, 0xA400, 0x6601, 0x6602, 0x6801, 0x6802])
def test_each_cipher_is_asked_for_by_its_number(world: World, algorithm: int) -> None:
    send(world, new_message(world, text("secret"), encrypt_algorithm=algorithm), ELSEWHERE)
    assert packet(world, ELSEWHERE).encryption_algorithm == algorithm


@pytest.mark.parametrize("algorithm", [0x8005, 0, -1])
def test_a_hash_that_there_is_not(world: World, algorithm: int) -> None:
    message = new_message(world, auth_level=4, hash_algorithm=algorithm)
    status = world.status(message, "send", open_queue(world, create(world)), by=ALICE)
    assert status == IllegalPropertyValue.status


@pytest.mark.spec("MQAC-3.17.4.1.48-12")
def test_a_signature_that_is_given_is_not_replaced(world: World) -> None:
    message = new_message(world, auth_level=8, connector_type_guid=CONNECTOR, signature=octets(b"given"))
    send(world, message, ELSEWHERE, by=ALICE)
    assert packet(world, ELSEWHERE).signature == b"given"
    assert world.call(message, "get_received_authentication_level") == 0


def test_a_certificate_whose_key_is_elsewhere_does_not_sign(world: World) -> None:
    message = new_message(world, auth_level=4, sender_certificate=octets(b"of a smart card"))
    queue = open_queue(world, create(world))
    assert world.status(message, "send", queue, by=ALICE) == CannotSignDataEx.status
    key = world.run(world.environment.internal_signing_key(ALICE))
    world.call(message, "put_sender_certificate", octets(key.certificate))
    world.call(message, "send", queue, by=ALICE)


def test_xml_signatures_are_not_made(world: World) -> None:
    message = new_message(world, auth_level=1)
    queue = open_queue(world, "DIRECT=http://beta/msmq/private$/q")
    assert world.status(message, "send", queue, by=ALICE) == CannotSignDataEx.status


def test_several_destinations_are_signed_once(world: World) -> None:
    create(world, "one")
    create(world, "two")
    names = r"DIRECT=OS:ALPHA\private$\one,DIRECT=OS:ALPHA\private$\two"
    message = new_message(world, text("both"), auth_level=2)
    world.call(message, "send", opened_destination(world, names), by=ALICE)
    for name in names.split(","):
        assert packet(world, name).authentication_level == AuthenticationLevel.SIG30


@pytest.mark.spec("MQAC-2.2.2.6-1")
def test_a_queue_that_takes_signed_messages_only(world: World) -> None:
    strict, any_message = create(world, "strict", authentication=True), create(world, "any")
    plain, signed = new_message(world), new_message(world, auth_level=4)
    assert world.status(plain, "send", open_queue(world, strict), by=ALICE) == MessageNotAuthenticated.status
    forged = new_message(world, connector_type_guid=CONNECTOR, signature=octets(bytes(256)))
    assert world.status(forged, "send", open_queue(world, strict), by=ALICE) & 0x8000_0000
    send(world, signed, strict, by=ALICE)
    assert packet(world, strict).authentication_level == AuthenticationLevel.SIG20
    for message in (plain, signed):
        send(world, message, any_message, by=ALICE)
    assert len(packets(world, any_message)) == 2


@pytest.mark.spec("MQAC-2.2.2.7-1")
@pytest.mark.parametrize(
    ("level", "takes_plain", "takes_encrypted"), [(0, True, False), (1, True, True), (2, False, True)]
)
def test_a_queue_that_takes_encrypted_messages_only_or_none(
    world: World, level: int, takes_plain: bool, takes_encrypted: bool
) -> None:
    name = create(world, privacy_level=QueuePrivacyLevel(level))
    for privacy, is_taken in ((0, takes_plain), (1, takes_encrypted), (3, takes_encrypted)):
        status = world.status(new_message(world, priv_level=privacy), "send", open_queue(world, name))
        assert status == (0 if is_taken else IllegalPropertyValue.status)


@pytest.mark.spec("MQAC-2.2.2.15-1")
@pytest.mark.parametrize(
    ("level", "meant"),
    [(0, MessagePrivacyLevel.NONE), (1, MessagePrivacyLevel.BASE), (3, MessagePrivacyLevel.ENHANCED)],
)
def test_a_privacy_level_goes_with_the_message(
    world: World, new_world: Callable[..., World], level: int, meant: MessagePrivacyLevel
) -> None:
    send(world, new_message(world, text("secret"), priv_level=level), ELSEWHERE)
    kept = packet(world, ELSEWHERE)
    assert kept.privacy_level is meant
    # To be encrypted by transfer, which knows for whom. Without a sender the header comes with the
    # key.
    assert not kept.has_security_header
    document = new_world(profile=Profile.DOCUMENT)
    send(document, new_message(document, text("secret"), priv_level=level), ELSEWHERE)
    assert packet(document, ELSEWHERE).is_body_encrypted is bool(level)


# SOAP
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.90-1")
def test_soap_elements_are_appended(world: World) -> None:
    name = create(world)
    message = new_message(world, soap_header="<h/>", soap_body="<b/>")
    assert not hasattr(message, "get_soap_header")
    assert not hasattr(message, "get_soap_body")
    for _ in range(2):
        send(world, message, "DIRECT=http://beta/msmq/private$/q")
    send(world, message, name)
    for kept in (*packets(world, "DIRECT=http://beta/msmq/private$/q"), packet(world, name)):
        assert (kept.soap_header, kept.soap_body) == ("<h/>", "<b/>")
    # What is there already stays before it.
    found = receive(world, name)
    world.call(found, "put_soap_header", "<more/>")
    send(world, found, name)
    assert packet(world, name).soap_header == "<h/><more/>"


# In which transaction
# -------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.17.4.1.48-5")
@pytest.mark.parametrize("vt", [VT.DISPATCH, VT.DISPATCH | VT.BYREF, VT.VARIANT | VT.BYREF])
def test_a_message_of_a_transaction_is_seen_when_it_commits(world: World, vt: int) -> None:
    name = create(world, transactional=True)
    for end, count in (("abort", 0), ("commit", 2)):
        begun = transaction(world)
        given = Variant(VT.DISPATCH, begun)
        argument = Variant(vt, given) if vt == VT.VARIANT | VT.BYREF else Variant(vt, begun)
        for _ in range(2):
            message = new_message(world, text("later"))
            send(world, message, name, argument)
        assert receive(world, name, number(3)) is None
        world.call(begun, end)
        assert len(packets(world, name)) == count
    assert world.status(message, "send", open_queue(world, name), argument) == TransactionSequence.status
    first, last = packets(world, name)
    assert (first.first_in_transaction, last.first_in_transaction) == (True, False)
    assert (first.last_in_transaction, last.last_in_transaction) == (False, True)


@pytest.mark.spec("MQAC-3.17.4.1.68-1", "MQAC-3.17.4.1.69-1")
def test_what_a_message_tells_of_its_transaction(world: World) -> None:
    name = create(world, transactional=True)
    begun = transaction(world)
    for _ in range(3):
        message = new_message(world)
        send(world, message, name, Variant(VT.DISPATCH, begun))
    world.call(begun, "commit")
    identifiers = set()
    for first, last in ((1, 0), (0, 0), (0, 1)):
        kept = packets(world, name)[0]
        found = receive(world, name, number(3))
        identifier = world.call(found, "get_transaction_id")
        assert (identifier.vt, len(identifier.value)) == (0x2011, 20)
        assert identifier.value[:16] == world.engine.queue_manager.identifier.bytes_le
        assert int.from_bytes(identifier.value[16:], "little") == kept.transaction_identifier
        identifiers.add(identifier.value)
        shorts = [world.call(found, f"get_is_{place}_in_transaction") for place in ("first", "last")]
        assert (shorts, {type(one) for one in shorts}) == ([first, last], {int})
        assert world.call(found, "get_is_first_in_transaction2") is bool(first)
        assert world.call(found, "get_is_last_in_transaction2") is bool(last)
    assert identifiers == {world.call(message, "get_transaction_id").value}


@pytest.mark.spec("MQAC-2.2.2.1-1", "MQAC-3.17.4.1.48-6", "MQAC-3.17.4.1.48-15")
@pytest.mark.parametrize("argument", [MISSING, number(0), number(1), number(2), Variant(VT.I2, 0)])
def test_without_a_context_transaction_a_message_is_sent_at_once(world: World, argument: Variant) -> None:
    name, strict = create(world), create(world, "strict", transactional=True)
    send(world, new_message(world, text("now")), name, argument)
    assert not packet(world, name).is_transactional
    assert world.call(receive(world, name), "get_body") == text("now")
    assert world.status(new_message(world), "send", open_queue(world, strict), argument) == TransactionUsage.status


@pytest.mark.spec("MQAC-3.17.4.1.48-6")
@pytest.mark.parametrize("argument", [number(4), number(-1), EMPTY, NULL, text("0"), Variant(VT.DISPATCH, None)])
def test_no_other_transaction_argument_is_taken(world: World, argument: Variant) -> None:
    name = create(world)
    assert world.status(new_message(world), "send", open_queue(world, name), argument) & 0x8000_0000
    message = new_message(world)
    other = Variant(VT.DISPATCH, message)
    assert world.status(message, "send", open_queue(world, name), other) & 0x8000_0000
    assert packets(world, name) == []


@pytest.mark.spec("MQAC-3.17.4.1.48-7", "MQAC-2.2.2.1-4", "MQAC-3.17.4.1.48-6")
def test_a_single_message_is_a_transaction_of_its_own(world: World) -> None:
    name = create(world, transactional=True)
    for target in (name, ELSEWHERE):
        send(world, new_message(world, text("alone"), auth_level=4), target, number(3))
        kept = packet(world, target)
        assert kept.is_transactional
        assert (kept.first_in_transaction, kept.last_in_transaction) == (True, True)
    assert world.call(receive(world, name, number(3)), "get_body") == text("alone")
    plain = open_queue(world, create(world, "plain"))
    assert world.status(new_message(world), "send", plain, number(3)) == TransactionUsage.status
    with world.held() as h:
        assert h.engine.queue_manager.transaction_collection == {}


@pytest.mark.spec("MQAC-3.17.4.1.48-13")
def test_a_single_message_that_is_refused_leaves_no_transaction(world: World) -> None:
    name = create(world, transactional=True, quota=0)
    message = new_message(world)
    assert world.status(message, "send", open_queue(world, name), number(3)) == InsufficientResources.status
    with world.held() as h:
        assert h.engine.queue_manager.transaction_collection == {}


def test_a_single_message_is_on_disk_when_it_is_sent(world: World) -> None:
    name = create(world, transactional=True)
    send(world, new_message(world, text("kept")), name, number(3))
    assert bodies_after_a_kill(world) == ["kept".encode("utf-16-le")]


def test_what_is_put_while_a_message_is_signed_is_for_the_next_one(world: World) -> None:
    name = create(world)
    message: MSMQMessage = new_message(world, text("first"), auth_level=4)
    task = world.start(message, "send", open_queue(world, name), by=ALICE)
    world.call(message, "put_body", text("second"))
    world.call(message, "put_label", "later")
    world.run(task)
    send(world, message, name, by=ALICE)
    assert [kept.body.decode("utf-16-le") for kept in packets(world, name)] == ["first", "second"]
    assert world.call(message, "get_label") == "later"
