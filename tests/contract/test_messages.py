"""`Message` and `ReceivedMessage`: what is sent is what is received, in every form."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.client.runtimes import is_embedded
from lanner.model.enums import INFINITE, Acknowledgements, HashAlgorithm, MessageClass
from lanner.security.certificates import generate_certificate
from lanner.security.signing import SigningKey
from lanner.wire.body_types import VT_BSTR
from lanner.wire.message import Message as Packet
from tests.contract.covering import covers
from tests.contract.forms import Place, blocking, new_queue, refused
from tests.contract.service import BOB

GUID = uuid.UUID("5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11")


@covers(
    "Message.acknowledge", "Message.administration_queue", "Message.app_specific", "Message.body", "Message.body_type",
    "Message.connector_type", "Message.correlation_id", "Message.extension", "Message.id", "Message.label",
    "Message.priority", "Message.recoverable", "Message.response_queue", "Message.time_to_be_received",
    "Message.time_to_reach_queue", "Message.tracing_queue", "Message.use_dead_letter_queue",
    "Message.use_journal_queue", "Message.use_tracing", "Message.properties",
    "ReceivedMessage.acknowledge", "ReceivedMessage.administration_queue", "ReceivedMessage.app_specific",
    "ReceivedMessage.arrived_time", "ReceivedMessage.body", "ReceivedMessage.body_bytes", "ReceivedMessage.body_type",
    "ReceivedMessage.connector_type", "ReceivedMessage.correlation_id", "ReceivedMessage.correlation_id_bytes",
    "ReceivedMessage.destination_queue", "ReceivedMessage.extension", "ReceivedMessage.id", "ReceivedMessage.label",
    "ReceivedMessage.message_class", "ReceivedMessage.packet", "ReceivedMessage.priority",
    "ReceivedMessage.recoverable", "ReceivedMessage.response_queue", "ReceivedMessage.sent_time",
    "ReceivedMessage.source_machine", "ReceivedMessage.time_to_be_received", "ReceivedMessage.time_to_reach_queue",
    "ReceivedMessage.tracing_queue", "ReceivedMessage.use_dead_letter_queue", "ReceivedMessage.use_journal_queue",
    "ReceivedMessage.use_tracing", "ReceivedMessage.is_transactional", "ReceivedMessage.soap_compound_message",
    "ReceivedMessage.soap_envelope",
)  # fmt: skip
async def test_every_property_arrives_as_it_was_sent(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    message = lanner.Message(
        body="h\u00e4llo",
        label="l\u00e4bel",
        priority=6,
        recoverable=True,
        time_to_reach_queue=77,
        time_to_be_received=88,
        use_dead_letter_queue=True,
        use_journal_queue=True,
        tracing_queue=GUID,
        acknowledge="full-receive",
        administration_queue="admin",
        response_queue=r"DIRECT=OS:beta\private$\answers",
        app_specific=7,
        extension=b"\x00\xff",
        correlation_id=rf"{GUID}\9",
        connector_type=GUID,
    )
    assert message.properties(qm.names).label == "l\u00e4bel"
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    identifier = await q.send(message)
    assert identifier == message.id
    got = await q.receive(timeout=0)
    assert got.id == identifier
    assert (got.body, got.body_bytes, got.body_type) == ("h\u00e4llo", "h\u00e4llo".encode("utf-16-le"), VT_BSTR)
    assert (got.label, got.priority, got.recoverable) == ("l\u00e4bel", 6, True)
    assert (got.time_to_reach_queue, got.time_to_be_received) == (77, 88)
    assert (got.use_dead_letter_queue, got.use_journal_queue) == (True, True)
    assert (got.use_tracing, got.tracing_queue) == (True, GUID)
    assert got.acknowledge == Acknowledgements.FULL_RECEIVE
    assert got.administration_queue == r"DIRECT=OS:ALPHA\private$\admin"
    assert got.response_queue == r"DIRECT=OS:beta\private$\answers"
    assert got.destination_queue == q.format_name
    assert (got.app_specific, got.extension, got.connector_type) == (7, b"\x00\xff", GUID)
    assert (got.correlation_id, got.correlation_id_bytes[:16]) == (rf"{GUID}\9", GUID.bytes_le)
    assert got.message_class is MessageClass.NORMAL
    assert got.source_machine == qm.identifier
    assert before <= got.sent_time <= got.arrived_time <= dt.datetime.now(dt.UTC)
    assert got.is_transactional is False
    assert (got.soap_envelope, got.soap_compound_message) == (None, b""), "only messages over HTTP have them"
    assert Packet(got.packet).label == "l\u00e4bel"


async def test_the_least_that_can_be_sent_has_the_defaults(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send(b"")
    got = await q.receive(timeout=0)
    assert (got.body, got.label, got.priority, got.recoverable, got.body_type) == (b"", "", 3, False, 0)
    assert got.time_to_be_received is None
    assert (got.use_dead_letter_queue, got.use_journal_queue, got.use_tracing) == (False, False, False)
    assert (got.administration_queue, got.response_queue, got.correlation_id) == (None, None, None)
    assert (got.tracing_queue, got.connector_type, got.acknowledge) == (None, None, Acknowledgements.NONE)
    assert (got.encrypt, got.authenticated, got.sender_certificate) == (False, False, b"")


@covers("ReceivedMessage.value", "ReceivedMessage.decoded")
async def test_a_body_is_decoded(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send(lanner.Message(body=(258).to_bytes(4, "little"), body_type=3))
    got = await q.receive(timeout=0)
    assert (got.value, got.decoded.value) == (258, 258)


@covers("ReceivedMessage.copy")
async def test_a_received_message_can_be_sent_on(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    first = await q.send(lanner.Message(body="again", label="x", app_specific=3, recoverable=True))
    got = await q.receive(timeout=0)
    copy = got.copy()
    assert (copy.label, copy.app_specific, copy.recoverable, copy.id) == ("x", 3, True, None)
    second = await q.send(got)
    again = await q.receive(timeout=0)
    assert (again.body, again.label, again.app_specific) == ("again", "x", 3)
    assert again.id == second != first


@covers("ReceivedMessage.sender_id", "ReceivedMessage.sender_verified")
async def test_the_sender_is_named_and_verified(place: Place, qm: lanner.aio.QueueManager) -> None:
    """A sender that logged on to the queue manager is proven, however the message is read."""
    q = await new_queue(qm, access={"bob": "send", "Everyone": "send"} if place.form.is_remote else None)
    await q.send("x")
    async with place.as_bob(qm) as bob:
        await bob.open(q.name).send("x")
    found = [message async for message in q]
    async with q.cursor() as cursor:
        found += [await cursor.peek(timeout=0), await cursor.peek_next(timeout=0)]
    async with q.receiving(1, timeout=0) as messages:
        found += messages
    found.append(await q.receive(timeout=0))
    assert all(message.sender_id for message in found)
    assert [message.sender_verified for message in found] == [True] * 6
    if is_embedded(blocking(qm)):
        assert found[-1].sender_id == BOB.sid.pack()


@covers(
    "Message.authenticate", "Message.hash_algorithm", "Message.sender_certificate", "QueueManager.signing_key",
    "ReceivedMessage.authenticated", "ReceivedMessage.hash_algorithm", "ReceivedMessage.sender_certificate",
)  # fmt: skip
async def test_a_message_is_signed_with_the_key_of_the_object(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm, authentication=True)
    await refused(errors.MessageNotAuthenticated, f"queue {q.path_name} takes signed messages only", q.send("unsigned"))
    made = generate_certificate("alice", dt.datetime.now(dt.UTC))
    assert qm.signing_key is None
    qm.signing_key = SigningKey.load(made.certificate, made.private_key)
    await q.send(lanner.Message(body="signed", authenticate=True, hash_algorithm="sha-256"))
    got = await q.receive(timeout=0)
    assert (got.body, got.authenticated, got.hash_algorithm) == ("signed", True, HashAlgorithm.SHA_256)
    assert got.sender_certificate == qm.signing_key.certificate
    plain = await new_queue(qm)
    await plain.send(lanner.Message(sender_certificate=b"certificate"))
    assert (await plain.receive(timeout=0)).sender_certificate == b"certificate"


@covers(
    "Message.encrypt", "Message.encryption_algorithm", "ReceivedMessage.encrypt",
    "ReceivedMessage.encryption_algorithm",
)  # fmt: skip
async def test_a_message_that_is_to_be_encrypted_says_so(qm: lanner.aio.QueueManager) -> None:
    """To a queue of this computer nothing is encrypted, but a queue can ask for it."""
    q = await new_queue(qm)
    await q.send(lanner.Message(body="secret", encrypt=True, encryption_algorithm="aes256"))
    got = await q.receive(timeout=0)
    assert (got.body, got.encrypt) == ("secret", True)
    assert got.encryption_algorithm == lanner.EncryptionAlgorithm.AES256


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"body": 5}, "body: bytes expected, not int"),
        ({"label": 5}, "label 5: text expected"),
        ({"body": "\u4e2d", "body_type": 30}, "body: '\u4e2d' cannot be written as latin-1, as its body_type requires"),
        ({"time_to_reach_queue": -1}, f"time_to_reach_queue -1: 0 to {INFINITE - 1} seconds, or None for ever"),
        ({"time_to_be_received": -2}, f"time_to_be_received -2: 0 to {INFINITE - 1} seconds, or None for ever"),
        ({"correlation_id": "x"}, "correlation_id 'x': a message id (guid\\number) or 20 bytes"),
        ({"correlation_id": b"x"}, "correlation_id of 1 bytes: a message id (guid\\number) or 20 bytes"),
        ({"tracing_queue": "x"}, "tracing_queue 'x': a GUID expected"),
        ({"connector_type": "x"}, "connector_type 'x': a GUID expected"),
        ({"extension": 5}, "extension: bytes expected, not int"),
        ({"priority": 8}, "priority 8 is not in 0 to 7"),
        ({"app_specific": -1}, "app_specific -1 is not in 0 to 4294967295"),
        ({"app_specific": 1 << 32}, "app_specific 4294967296 is not in 0 to 4294967295"),
        ({"body_type": -1}, "body_type -1 is not in 0 to 4294967295"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_value_that_cannot_be_sent_is_refused_by_name(
    qm: lanner.aio.QueueManager, values: dict[str, object], text: str
) -> None:
    q = await new_queue(qm)
    message = lanner.Message(**values)  # type: ignore[arg-type] # wrong on purpose
    await refused(errors.IllegalPropertyValue, text, q.send(message))
    await refused(errors.IllegalPropertyValue, text, q.send_many(["before", message]))
    assert await q.count() == 0


async def test_what_is_no_message_is_refused(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    text = "a Message, bytes or text can be sent, not int"
    await refused(errors.IllegalPropertyValue, text, q.send(5))  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize("computer", [".", "localhost", "LocalHost"])
async def test_names_of_this_computer_are_sent_as_others_can_use_them(
    qm: lanner.aio.QueueManager, computer: str
) -> None:
    q = await new_queue(qm)
    name = rf"DIRECT=OS:{computer}\private$\answers"
    await q.send(lanner.Message(acknowledge="full-receive", administration_queue=name, response_queue=name))
    got = await q.receive(0)
    assert (got.administration_queue, got.response_queue) == (r"DIRECT=OS:ALPHA\private$\answers",) * 2


@pytest.mark.parametrize("name", ["administration_queue", "response_queue"])
async def test_a_name_of_a_queue_that_cannot_be_is_refused(qm: lanner.aio.QueueManager, name: str) -> None:
    q = await new_queue(qm)
    text = (
        "format name 'DIRECT=nonsense': "
        "'nonsense' does not begin with one of HTTP, HTTPS, IPX, OS, SPX, TCP and a colon"
    )
    message = lanner.Message(**{name: "DIRECT=nonsense"})  # type: ignore[arg-type] # by name
    await refused(errors.IllegalFormatname, text, q.send(message))
    await refused(errors.IllegalFormatname, text, q.send_many(["before", message]))
    assert await q.count() == 0


async def test_a_label_that_is_too_long_is_refused_before_anything_is_sent(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send(lanner.Message(label="x" * 249))
    text = "label of 300 characters, at most 249"
    await refused(errors.LabelTooLong, text, q.send(lanner.Message(label="x" * 300)))
    await refused(errors.LabelTooLong, text, q.send_many(["before", lanner.Message(label="x" * 300)]))
    # Characters outside the basic plane take two of those of Windows.
    text = "label of 250 characters, at most 249"
    await refused(errors.LabelTooLong, text, q.send(lanner.Message(label="\U0001f985" * 125)))
    assert await q.count() == 1


# Sends that share requests
# --------------------------------------------------------------------------------------------------


async def test_sends_of_many_tasks_and_threads_end_each_by_itself(qm: lanner.aio.QueueManager) -> None:
    """Concurrent sends may share a request.

    Each caller gets its own identifier or its own error.
    """
    q = await new_queue(qm, quota_kb=10)
    messages: list[lanner.Message | bytes | str] = [lanner.Message(body=str(number)) for number in range(20)]
    messages[5] = lanner.Message(body=bytes(20_000))
    messages[9] = lanner.Message(body="9", label="x" * 1000)
    messages[13] = "13"
    messages[14] = b"14"
    ends = await asyncio.gather(*(q.send(each) for each in messages), return_exceptions=True)
    full, label = ends.pop(5), ends.pop(8)
    assert isinstance(full, errors.InsufficientResources)
    assert full.args[0].startswith(f"queue {q.path_name} is full: quota 10 KiB, used ")
    assert full.args[0].endswith(", message 20 KiB; receive or purge messages, or raise the quota")
    assert isinstance(label, errors.LabelTooLong)
    del messages[5], messages[8]
    found = await q.receive_many(100)
    by_id = {message.id: message for message in found}
    assert len(ends) == len(found) == 18
    for end, message in zip(ends, messages, strict=True):
        body = message.body if isinstance(message, lanner.Message) else message
        assert isinstance(end, str)
        assert by_id[end].body == body
        if isinstance(message, lanner.Message):
            assert message.id == end
