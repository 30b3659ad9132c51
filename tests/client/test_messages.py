"""Every property of a message, from the program that sends it to the one that receives it."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from lanner.client import Message, Queue, QueueManager, ReceivedMessage
from lanner.client.runtimes import runtime_of
from lanner.directory import EmbeddedDirectory
from lanner.model.directory_objects import User
from lanner.model.enums import (
    Acknowledgements,
    DeliveryGuarantee,
    DirectoryOperationResult,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    QueuePrivacyLevel,
)
from lanner.model.errors import (
    IllegalFormatname,
    IllegalPropertyValue,
    InsufficientResources,
    LabelTooLong,
    MessageNotAuthenticated,
    MessageNotFound,
    StatusError,
    TransactionUsage,
)
from lanner.security.certificates import add_certificate, generate_certificate
from lanner.security.signing import SigningKey
from lanner.wire.body_types import VT_BSTR, VT_LPSTR, VT_LPWSTR
from lanner.wire.message import Message as Packet
from lanner.wire.sid import LOCAL_SYSTEM
from tests.statuses import MQ_ERROR_INSUFFICIENT_RESOURCES, MQ_ERROR_MESSAGE_NOT_FOUND, MQ_ERROR_TRANSACTION_USAGE

GUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def there_and_back(q: Queue, message: Message | bytes | str) -> ReceivedMessage:
    q.send(message)
    return q.receive(0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("body", [b"", b"bytes", bytes(100_000), "", "text", "žluťoučký \U0001f40e"]),
        ("label", ["", "a label", "x" * 249, "ž"]),
        ("priority", [0, 3, 7]),
        ("recoverable", [True, False]),
        ("time_to_reach_queue", [10, 345_600]),
        ("time_to_be_received", [10, 4_000_000_000, None]),
        ("use_dead_letter_queue", [True, False]),
        ("use_journal_queue", [True, False]),
        ("use_tracing", [True, False]),
        ("acknowledge", [Acknowledgements.NONE, Acknowledgements.POS_ARRIVAL | Acknowledgements.POS_RECEIVE]),
        ("app_specific", [0, 0xFFFF_FFFF]),
        ("extension", [b"", b"more"]),
        ("connector_type", [None, GUID]),
        ("sender_certificate", [b"", b"certificate"]),
    ],
)
def test_a_property_arrives_as_it_was_sent(q: Queue, name: str, values: list[object]) -> None:
    for value in values:
        message = Message(**{name: value})  # type: ignore[arg-type] # one of each type
        assert getattr(there_and_back(q, message), name) == value


def test_a_message_has_defaults(q: Queue) -> None:
    """MS-MQDMPR 3.1.1.12: the defaults are express, priority 3 and four days to arrive."""
    received = there_and_back(q, Message())
    assert (received.body, received.body_bytes, received.body_type, received.label) == (b"", b"", 0, "")
    assert (received.priority, received.recoverable, received.is_transactional) == (3, False, False)
    assert (received.time_to_reach_queue, received.time_to_be_received) == (345_600, None)
    assert (received.use_dead_letter_queue, received.use_journal_queue, received.use_tracing) == (False, False, False)
    assert (received.acknowledge, received.administration_queue) == (Acknowledgements.NONE, None)
    assert (received.response_queue, received.correlation_id) == (None, None)
    assert received.correlation_id_bytes == bytes(20)
    assert (received.app_specific, received.extension, received.connector_type) == (0, b"", None)
    assert (received.authenticated, received.encrypt, received.sender_certificate) == (False, False, b"")
    assert received.message_class is MessageClass.NORMAL
    assert (received.abort_count, received.move_count) == (0, 0)
    assert not received.is_first_in_transaction
    assert not received.is_last_in_transaction


def test_a_received_message_says_where_it_comes_from(qm: QueueManager, q: Queue) -> None:
    before = int(time.time())
    identifier = q.send("x")
    me = runtime_of(qm).engine.queue_manager.identifier
    received = q.receive(0)
    assert received.id == identifier == f"{me}\\{identifier.partition(chr(92))[2]}"
    assert (received.source_machine, received.sender_id) == (me, LOCAL_SYSTEM.pack())
    assert received.destination_queue == r"DIRECT=OS:ALPHA\private$\q"
    assert before <= received.sent_time.timestamp() <= received.arrived_time.timestamp() <= time.time()
    assert received.sent_time.tzinfo is dt.UTC
    assert received.lookup_id > 0
    assert Packet(received.packet).label == ""
    assert repr(received) == f"<ReceivedMessage {identifier} '' {len(received.packet)} bytes>"


def test_the_packet_is_what_another_queue_manager_would_get(q: Queue) -> None:
    received = there_and_back(q, Message(body=b"x", label="l", recoverable=True))
    packet = Packet(received.packet)
    assert (packet.body, packet.label, packet.delivery_guarantee) == (b"x", "l", DeliveryGuarantee.RECOVERABLE)


# Bodies
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body_type", "encoded"),
    [(None, "ž".encode("utf-16-le")), (VT_BSTR, "ž".encode("utf-16-le")), (VT_LPWSTR, "ž".encode("utf-16-le"))],
)
def test_text_is_written_as_its_body_type_says(q: Queue, body_type: int | None, encoded: bytes) -> None:
    received = there_and_back(q, Message(body="ž", body_type=body_type))
    assert (received.body, received.body_bytes, received.body_type) == ("ž", encoded, body_type or VT_BSTR)


def test_narrow_text_has_one_octet_a_character(q: Queue) -> None:
    received = there_and_back(q, Message(body="café", body_type=VT_LPSTR))
    assert (received.body, received.body_bytes) == ("café", b"caf\xe9")
    with pytest.raises(IllegalPropertyValue, match="body"):
        q.send(Message(body="ž", body_type=VT_LPSTR))


def test_bytes_keep_their_body_type(q: Queue) -> None:
    received = there_and_back(q, Message(body=b"\x01\x00", body_type=0x1011))
    assert (received.body, received.body_type) == (b"\x01\x00", 0x1011)
    assert there_and_back(q, Message(body=b"o\x00k\x00", body_type=VT_BSTR)).body == "ok"
    assert there_and_back(q, Message(body=b"odd", body_type=VT_BSTR)).body == b"odd"


@pytest.mark.parametrize("body", [5, None, ["x"], 1.5])
def test_a_body_is_bytes_or_text(q: Queue, body: object) -> None:
    with pytest.raises(IllegalPropertyValue, match="body"):
        q.send(Message(body=body))  # type: ignore[arg-type] # the point
    with pytest.raises(IllegalPropertyValue, match="bytes"):
        q.send(body)  # type: ignore[arg-type] # the point
    assert q.count() == 0


@pytest.mark.parametrize("body", [bytearray(b"x"), memoryview(b"x")])
def test_any_buffer_is_bytes(q: Queue, body: bytes) -> None:
    assert there_and_back(q, Message(body=body)).body == b"x"


def test_the_largest_message(q: Queue) -> None:
    """MS-MQMQ 2.2.19.1: a packet has at most 4 MiB."""
    size = 0x0040_0000 - 1000
    assert len(there_and_back(q, bytes(size)).body) == size
    with pytest.raises(InsufficientResources, match="4194304"):
        q.send(bytes(0x0040_0000))


# Names in messages
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("replies", r"DIRECT=OS:ALPHA\private$\replies"),
        (r".\private$\replies", r"DIRECT=OS:ALPHA\private$\replies"),
        (r"DIRECT=OS:.\private$\replies", r"DIRECT=OS:ALPHA\private$\replies"),
        (r"BETA\replies", r"DIRECT=OS:BETA\replies"),
        (r"DIRECT=TCP:10.0.0.1\private$\replies", r"DIRECT=TCP:10.0.0.1\private$\replies"),
        (f"PUBLIC={GUID}", f"PUBLIC={GUID}"),
        (rf"PRIVATE={GUID}\0000000a", rf"PRIVATE={GUID}\0000000a"),
    ],
)
def test_names_of_queues_are_sent_so_that_others_understand_them(q: Queue, name: str, format_name: str) -> None:
    received = there_and_back(q, Message(response_queue=name))
    assert (received.response_queue, received.administration_queue) == (format_name, None)
    acknowledge = Acknowledgements.NEG_RECEIVE
    received = there_and_back(q, Message(acknowledge=acknowledge, administration_queue=name))
    assert (received.administration_queue, received.response_queue) == (format_name, None)
    received = there_and_back(q, Message(acknowledge=acknowledge, administration_queue=name, response_queue=name))
    assert (received.administration_queue, received.response_queue) == (format_name, format_name)
    assert there_and_back(q, Message(administration_queue=name)).administration_queue is None


def test_a_reply_finds_its_question(qm: QueueManager, q: Queue) -> None:
    replies = qm.create_queue("replies")
    question = Message(body="?", response_queue="replies")
    identifier = q.send(question)
    assert question.id == identifier
    received = q.receive(0)
    assert received.response_queue is not None
    qm.open(received.response_queue).send(Message(body="!", correlation_id=received.id))
    assert replies.receive(0).correlation_id == identifier
    assert there_and_back(q, Message(correlation_id=bytes(range(20)))).correlation_id_bytes == bytes(range(20))


def test_acknowledgments_come_to_the_administration_queue(qm: QueueManager, q: Queue) -> None:
    reports = qm.create_queue("reports")
    for wanted in (Acknowledgements.POS_ARRIVAL | Acknowledgements.POS_RECEIVE, "full_receive"):
        identifier = q.send(Message(body="x", acknowledge=wanted, administration_queue="reports"))
        q.receive(0)
        classes = [(message.message_class, message.correlation_id) for message in reports.receive_many(10)]
        assert (MessageClass.ACK_RECEIVE, identifier) in classes


# Values that cannot be
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"priority": 8}, IllegalPropertyValue),
        ({"priority": -1}, IllegalPropertyValue),
        ({"label": "x" * 250}, LabelTooLong),
        ({"label": "a\0b"}, IllegalPropertyValue),
        ({"time_to_reach_queue": -1}, IllegalPropertyValue),
        ({"time_to_be_received": 2**32}, IllegalPropertyValue),
        ({"time_to_be_received": float("nan")}, IllegalPropertyValue),
        ({"acknowledge": "everything"}, IllegalPropertyValue),
        ({"hash_algorithm": "crc"}, IllegalPropertyValue),
        ({"encrypt": True, "encryption_algorithm": "rot13"}, IllegalPropertyValue),
        ({"correlation_id": b"short"}, IllegalPropertyValue),
        ({"correlation_id": "no id"}, IllegalPropertyValue),
        ({"correlation_id": f"{GUID}\\x"}, IllegalPropertyValue),
        ({"connector_type": "no guid"}, IllegalPropertyValue),
        ({"app_specific": -1}, IllegalPropertyValue),
        ({"app_specific": 2**32}, IllegalPropertyValue),
        ({"app_specific": "x"}, IllegalPropertyValue),
        ({"extension": "text"}, IllegalPropertyValue),
        ({"body_type": 2**32}, IllegalPropertyValue),
        ({"response_queue": "PUBLIC=1"}, IllegalFormatname),
        ({"administration_queue": r"DIRECT=XX:a\b"}, IllegalFormatname),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_sent_is_refused(
    q: Queue, properties: dict[str, object], error: type[StatusError]
) -> None:
    with pytest.raises(error) as raised:
        q.send(Message(**properties))  # type: ignore[arg-type] # the point
    assert raised.value.status == error.status
    assert q.count() == 0


def test_a_fraction_of_a_second_is_not_nothing(q: Queue) -> None:
    received = there_and_back(q, Message(time_to_be_received=0.25, time_to_reach_queue=1.5))
    assert (received.time_to_be_received, received.time_to_reach_queue) == (1, 2)


def test_a_property_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(TypeError):
        Message(bodi=b"x")  # type: ignore[call-arg] # the point
    with pytest.raises(TypeError):
        Message(b"x")  # type: ignore[call-arg] # by name only


def test_what_stands_before_a_refused_message_is_sent(qm: QueueManager) -> None:
    queue = qm.create_queue("q", quota_kb=1)
    with pytest.raises(InsufficientResources):
        queue.send_many([b"good", bytes(2000), b"good too"])
    assert [message.body for message in queue] == [b"good"]


def test_nothing_is_sent_if_the_messages_cannot_be_had(q: Queue) -> None:
    def messages() -> Iterator[str]:
        yield "good"
        message = "no more"
        raise LookupError(message)

    with pytest.raises(LookupError):
        q.send_many(messages())
    assert q.count() == 0


# Quotas, security
# -------------------------------------------------------------------------------------


def test_a_full_queue_says_what_is_full(qm: QueueManager) -> None:
    queue = qm.create_queue("small", quota_kb=1)
    queue.send(bytes(500))
    with pytest.raises(InsufficientResources, match=r"private\$\\small is full: quota 1 KiB") as raised:
        queue.send(bytes(600))
    assert raised.value.status == MQ_ERROR_INSUFFICIENT_RESOURCES
    assert queue.count() == 1


def test_a_full_queue_manager_says_so(start: Callable[..., QueueManager]) -> None:
    queue = start(queue_manager_quota=1).create_queue("q")
    with pytest.raises(InsufficientResources, match="queue manager ALPHA is full"):
        queue.send(bytes(2000))


def test_a_queue_for_signed_messages_takes_no_others(qm: QueueManager) -> None:
    queue = qm.create_queue("signed", authentication=True)
    with pytest.raises(MessageNotAuthenticated):
        queue.send("x")
    assert queue.count() == 0


@pytest.fixture(scope="module")
def signing_key() -> SigningKey:
    made = generate_certificate("somebody", dt.datetime.now(dt.UTC))
    return SigningKey.load(made.certificate, made.private_key)


def register(qm: QueueManager, key: SigningKey) -> None:
    """Publish the certificate as the local system's: a queue believes what the directory knows."""
    with runtime_of(qm).lock:
        directory = runtime_of(qm).engine.directory
        assert isinstance(directory, EmbeddedDirectory)
        _, identifier = directory.add_user("system", LOCAL_SYSTEM.pack())
        assert identifier is not None
        user = User(identifier=identifier, security_identifier=LOCAL_SYSTEM.pack())
        add_certificate(user, key.certificate)
        assert directory.write(user) is DirectoryOperationResult.SUCCESS


@pytest.mark.parametrize(
    ("algorithm", "number"),
    [(None, HashAlgorithm.SHA_512), (HashAlgorithm.SHA1, HashAlgorithm.SHA1), ("sha_256", HashAlgorithm.SHA_256)],
)
def test_a_message_is_signed_with_the_key_that_was_set(
    qm: QueueManager, signing_key: SigningKey, algorithm: HashAlgorithm | str | None, number: int
) -> None:
    register(qm, signing_key)
    queue = qm.create_queue("signed", authentication=True)
    qm.signing_key = signing_key
    received = there_and_back(queue, Message(body="x", authenticate=True, hash_algorithm=algorithm))
    assert received.authenticated
    assert received.sender_certificate == signing_key.certificate
    assert received.hash_algorithm == number


def test_a_signed_message_goes_to_several_queues(qm: QueueManager, signing_key: SigningKey) -> None:
    register(qm, signing_key)
    queues = [qm.create_queue(name, authentication=True) for name in "ab"]
    qm.signing_key = signing_key
    qm.open(",".join(queue.format_name for queue in queues)).send(Message(body="x", authenticate=True))
    assert [queue.receive(0).authenticated for queue in queues] == [True, True]


def test_a_signed_message_is_sent_in_a_transaction(qm: QueueManager, signing_key: SigningKey) -> None:
    register(qm, signing_key)
    queue = qm.create_queue("signed", authentication=True, transactional=True)
    qm.signing_key = signing_key
    with qm.transaction() as transaction:
        queue.send(Message(body="x", authenticate=True), transaction=transaction)
    assert queue.receive(0).authenticated


@pytest.mark.parametrize(
    ("algorithm", "level"),
    [
        (EncryptionAlgorithm.RC4, MessagePrivacyLevel.ENHANCED),
        ("aes256", MessagePrivacyLevel.ADVANCED),
    ],
)
def test_a_private_message_says_how(
    qm: QueueManager, algorithm: EncryptionAlgorithm | str, level: MessagePrivacyLevel
) -> None:
    """It is encrypted on its way; the algorithm determines the privacy level in the packet."""
    far = qm.open(r"BETA\private$\q")
    far.send(Message(body="x", encrypt=True, encryption_algorithm=algorithm))
    waiting = far.peek(0)
    assert waiting.encrypt
    assert Packet(waiting.packet).privacy_level == level


def test_a_queue_that_demands_privacy(qm: QueueManager) -> None:
    queue = qm.create_queue("private", privacy_level=QueuePrivacyLevel.BODY)
    with pytest.raises(IllegalPropertyValue):
        queue.send("x")
    queue.send(Message(body="x", encrypt=True))
    got = queue.receive(0)
    assert got.body == "x"
    # AES, unless the message says otherwise.
    assert got.encryption_algorithm == EncryptionAlgorithm.AES256
    assert Packet(got.packet).privacy_level == MessagePrivacyLevel.ADVANCED


# Copies
# -----------------------------------------------------------------------------------------------


def test_a_copy_has_the_content_and_a_new_journey(qm: QueueManager, q: Queue) -> None:
    sent = Message(
        body="text",
        label="label",
        priority=5,
        recoverable=True,
        time_to_reach_queue=100,
        time_to_be_received=200,
        use_dead_letter_queue=True,
        use_journal_queue=True,
        use_tracing=True,
        acknowledge=Acknowledgements.POS_RECEIVE,
        administration_queue="admin",
        response_queue="replies",
        correlation_id=bytes(range(20)),
        app_specific=7,
        extension=b"more",
        connector_type=GUID,
    )
    qm.create_queue("admin")
    received = there_and_back(q, sent)
    copy = received.copy()
    assert copy.id is None
    other = qm.create_queue("other")
    again = there_and_back(other, copy)
    forwarded = there_and_back(other, received)  # type: ignore[arg-type] # a received message may be sent
    for message in (again, forwarded):
        assert message.id != received.id
        assert message.destination_queue == r"DIRECT=OS:ALPHA\private$\other"
        for name in (
            "body",
            "body_type",
            "label",
            "priority",
            "recoverable",
            "time_to_reach_queue",
            "time_to_be_received",
            "use_dead_letter_queue",
            "use_journal_queue",
            "use_tracing",
            "acknowledge",
            "administration_queue",
            "response_queue",
            "correlation_id_bytes",
            "app_specific",
            "extension",
            "connector_type",
        ):
            assert getattr(message, name) == getattr(received, name), name


def test_a_message_may_be_sent_twice(q: Queue) -> None:
    message = Message(body="x")
    first = q.send(message)
    second = q.send(message)
    assert first != second
    assert message.id == second
    assert [received.id for received in q] == [first, second]


def test_several_messages_cost_one_commit(q: Queue) -> None:
    identifiers = q.send_many([b"bytes", "text", Message(body="message", recoverable=True)])
    assert [message.id for message in q] == identifiers
    assert [message.body for message in q] == [b"bytes", "text", "message"]
    assert q.send_many(message for message in q) != identifiers
    assert q.count() == 6
    assert q.send_many([]) == []


def test_a_transactional_queue_wants_a_transaction(qm: QueueManager, q: Queue) -> None:
    ledger = qm.create_queue("ledger", transactional=True)
    with pytest.raises(TransactionUsage) as raised:
        ledger.send("x")
    assert raised.value.status == MQ_ERROR_TRANSACTION_USAGE
    with qm.transaction() as transaction, pytest.raises(TransactionUsage):
        q.send("x", transaction=transaction)


def test_a_message_is_found_by_its_lookup_id(q: Queue) -> None:
    q.send_many(["1", "2", "3"])
    first, second, third = [message.lookup_id for message in q]
    assert q.peek_by_lookup_id(second).body == "2"
    assert q.peek_by_lookup_id(second, "next").body == "3"
    assert q.peek_by_lookup_id(second, "previous").body == "1"
    assert q.peek_by_lookup_id(0, "first").body == "1"
    assert q.peek_by_lookup_id(0, "last").body == "3"
    assert q.receive_by_lookup_id(second).body == "2"
    with pytest.raises(MessageNotFound) as raised:
        q.receive_by_lookup_id(second)
    assert raised.value.status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert q.receive_by_lookup_id(first, "next").body == "3"
    with pytest.raises(MessageNotFound):
        q.peek_by_lookup_id(third, "next")
    with pytest.raises(StatusError, match="sideways"):
        q.peek_by_lookup_id(first, "sideways")
