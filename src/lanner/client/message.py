"""Messages for programs: `Message` to send, `ReceivedMessage` as received."""

from __future__ import annotations

import datetime as dt
import enum
import math
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from lanner.client import carrying
from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    DeliveryGuarantee,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
)
from lanner.model.errors import IllegalPropertyValue
from lanner.security.verified_senders import is_sender_verified
from lanner.wire.body_types import TEXT_BODIES, VT_BSTR
from lanner.wire.body_values import BodyValue, Value, decode_body
from lanner.wire.builder import (
    DEFAULT_TIME_TO_REACH_QUEUE,
    MAX_LABEL_CHARACTERS,
    MAX_PRIORITY,
    MessageProperties,
    encode_label,
)
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message as Packet
from lanner.wire.reader import Reader

if TYPE_CHECKING:
    from lanner.host.names import QueueNames
    from lanner.model.live import Record
    from lanner.wire.format_name import FormatName

_E = TypeVar("_E", bound=enum.Enum)
# Module-level names: they are used for each message, and enumerations look up members slowly
# (Python 3.11).
_EXPRESS, _RECOVERABLE = DeliveryGuarantee.EXPRESS, DeliveryGuarantee.RECOVERABLE
_NORMAL, _AES256 = MessageClass.NORMAL, EncryptionAlgorithm.AES256
_PRIORITY = 3
# Labels up to this length need no exact check: they fit even if each character takes two UTF-16
# units.
SHORT_LABEL = MAX_LABEL_CHARACTERS // 2
_AES = {EncryptionAlgorithm.AES128, EncryptionAlgorithm.AES192, EncryptionAlgorithm.AES256}


@dataclass(slots=True, kw_only=True)
class Message:
    """A message to send. Times are seconds; None means no limit."""

    body: bytes | str = b""
    label: str = ""
    priority: int = _PRIORITY
    recoverable: bool = False
    time_to_reach_queue: float | None = DEFAULT_TIME_TO_REACH_QUEUE
    time_to_be_received: float | None = None
    use_dead_letter_queue: bool = False
    use_journal_queue: bool = False
    use_tracing: bool = False
    # The identifier of the public queue for report messages on the message's route. Setting it also
    # requests tracing.
    tracing_queue: uuid.UUID | str | None = None
    acknowledge: Acknowledgements | str = Acknowledgements.NONE
    # The destination of acknowledgments; sent only with a message that requests some.
    administration_queue: str | None = None
    response_queue: str | None = None
    correlation_id: bytes | str | None = None
    app_specific: int = 0
    body_type: int | None = None
    extension: bytes = b""
    # Sign with the `signing_key` of the queue manager object that sends it, or with an internal
    # certificate.
    authenticate: bool = False
    encrypt: bool = False
    hash_algorithm: HashAlgorithm | str | None = None
    encryption_algorithm: EncryptionAlgorithm | str = EncryptionAlgorithm.AES256
    sender_certificate: bytes = b""
    connector_type: uuid.UUID | str | None = None
    # Set by `send`. A reply carries it as its correlation id.
    id: str | None = field(default=None, init=False)

    def properties(self, names: QueueNames) -> MessageProperties:
        """Return what to build the packet from.

        Raises for a value that cannot be sent, and names the field.
        """
        body, body_type = self.body, self.body_type
        if isinstance(body, str):
            body_type = VT_BSTR if body_type is None else body_type
            body = encode_text(body, body_type)
        elif type(body) is not bytes:
            body = _octets(body, "body")
        if not isinstance(self.label, str):
            raise IllegalPropertyValue(f"label {self.label!r}: text expected")
        if self.priority != _PRIORITY or self.app_specific or self.body_type or len(self.label) > SHORT_LABEL:
            self._check()
        # Positional arguments, and other fields only if set: keywords would double the cost of the
        # object.
        properties = MessageProperties(
            body,
            self.label,
            self.priority,
            _RECOVERABLE if self.recoverable else _EXPRESS,
            _seconds(self.time_to_reach_queue, "time_to_reach_queue"),
            INFINITE if self.time_to_be_received is None else _seconds(self.time_to_be_received, "time_to_be_received"),
            _NORMAL,
            body_type or 0,
            self.app_specific,
        )
        if self.extension:
            properties.extension = _octets(self.extension, "extension")
        elif carrying.carrier is not None:
            properties.extension = carrying.carrier()
        if self.use_dead_letter_queue:
            properties.negative_journaling_requested = True
        if self.use_journal_queue:
            properties.positive_journaling_requested = True
        if self.use_tracing:
            properties.tracing_requested = True
        if self.tracing_queue is not None:
            properties.tracing_requested = True
            properties.tracing_queue_identifier = _guid(self.tracing_queue, "tracing_queue")
        if self.acknowledge:
            properties.acknowledgements_requested = _member(Acknowledgements, self.acknowledge, "acknowledge")
        if self.administration_queue is not None:
            properties.administration_queue_format_name = names.format_name(self.administration_queue)
        if self.response_queue is not None:
            properties.response_queue_format_name = names.format_name(self.response_queue)
        if self.correlation_id is not None:
            properties.correlation_identifier = _correlation(self.correlation_id)
        if self.hash_algorithm is not None:
            properties.hash_algorithm = _member(HashAlgorithm, self.hash_algorithm, "hash_algorithm")
        if self.encrypt or self.encryption_algorithm is not _AES256:
            algorithm = _member(EncryptionAlgorithm, self.encryption_algorithm, "encryption_algorithm")
            properties.encryption_algorithm = algorithm
            if self.encrypt:
                properties.privacy_level = (
                    MessagePrivacyLevel.ADVANCED if algorithm in _AES else MessagePrivacyLevel.ENHANCED
                )
        if self.sender_certificate:
            properties.sender_certificate = _octets(self.sender_certificate, "sender_certificate")
        if self.connector_type is not None:
            properties.connector_type_identifier = _guid(self.connector_type, "connector_type")
        return properties

    def _check(self) -> None:
        """Raise for numbers that do not fit their fields, and for a label that is too long."""
        _number(self.priority, "priority", MAX_PRIORITY)
        _number(self.app_specific, "app_specific", INFINITE)
        _number(self.body_type or 0, "body_type", INFINITE)
        encode_label(self.label)


def encode_text(text: str, body_type: int) -> bytes:
    """Return the text encoded as a body of that type."""
    encoding = TEXT_BODIES.get(body_type, "utf-16-le")
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        wrong = text[error.start : error.end]
        raise IllegalPropertyValue(
            f"body: {wrong!r} cannot be written as {encoding}, as its body_type requires"
        ) from None


def _octets(value: object, name: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise IllegalPropertyValue(f"{name}: bytes expected, not {type(value).__name__}")


def _guid(value: uuid.UUID | str, name: str) -> uuid.UUID:
    try:
        return uuid.UUID(str(value))
    except ValueError:
        raise IllegalPropertyValue(f"{name} {value!r}: a GUID expected") from None


def _seconds(value: float | None, name: str) -> int:
    if value is None:
        return INFINITE
    if type(value) is int and 0 <= value < INFINITE:
        return value
    if not 0 <= value < INFINITE:
        raise IllegalPropertyValue(f"{name} {value}: 0 to {INFINITE - 1} seconds, or None for ever")
    return math.ceil(value)


def _number(value: object, name: str, limit: int) -> None:
    if not isinstance(value, int) or not 0 <= value <= limit:
        raise IllegalPropertyValue(f"{name} {value!r} is not in 0 to {limit}")


def _correlation(value: bytes | str) -> bytes:
    if isinstance(value, str):
        lineage, _, ordinal = value.partition("\\")
        try:
            return MessageIdentifier(uuid.UUID(lineage), int(ordinal)).pack()
        except ValueError:
            raise IllegalPropertyValue(f"correlation_id {value!r}: a message id (guid\\number) or 20 bytes") from None
    if len(value) != MessageIdentifier.SIZE:
        raise IllegalPropertyValue(f"correlation_id of {len(value)} bytes: a message id (guid\\number) or 20 bytes")
    return value


def _member(kind: type[_E], value: _E | str, name: str) -> _E:
    if not isinstance(value, str):
        return value
    try:
        return kind[value.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(member.lower() for member in kind.__members__)
        raise IllegalPropertyValue(f"{name} {value!r}: one of {known}") from None


class ReceivedMessage:
    """A message that was received or peeked. Properties are decoded on access."""

    __slots__ = ("_keeper", "_packet", "_record", "lookup_id")

    def __init__(self, lookup_id: int, record: Record, keeper: uuid.UUID | None = None) -> None:
        """Make the object from a record.

        `keeper` is the identifier of the Lanner that has the message; None for a queue manager of
        another maker.
        """
        # Identifies the message in its queue; 0 if the queue manager does not report it.
        self.lookup_id = lookup_id
        self._record = record
        self._keeper = keeper
        self._packet = Packet(record.packet)

    @property
    def packet(self) -> bytes:
        """The message as it is stored and sent: a UserMessage packet of MS-MQMQ 2.2.20."""
        return self._packet.packet

    @property
    def body(self) -> bytes | str:
        """Text if the body type says so, else bytes; `body_bytes` is always the bytes."""
        encoding = TEXT_BODIES.get(self._packet.body_type)
        if encoding is None:
            return self._packet.body
        try:
            return self._packet.body.decode(encoding)
        except UnicodeDecodeError:
            return self._packet.body

    @property
    def body_bytes(self) -> bytes:
        return self._packet.body

    @property
    def body_type(self) -> int:
        return self._packet.body_type

    @property
    def value(self) -> Value:
        """The body as its sender meant it: number, date, object of an XML body, text, or bytes.

        Bodies written by the formatters of .NET and Visual Basic are decoded; a body that cannot be
        decoded is returned as bytes.
        """
        return self.decoded.value

    @property
    def decoded(self) -> BodyValue:
        """The decoded value with its `kind` and `type_name`, or the reason why decoding failed."""
        return decode_body(self._packet.body, self._packet.body_type)

    @property
    def label(self) -> str:
        return self._packet.label

    @property
    def priority(self) -> int:
        return self._packet.priority

    @property
    def recoverable(self) -> bool:
        return self._packet.is_recoverable

    @property
    def is_transactional(self) -> bool:
        return self._packet.is_transactional

    @property
    def is_first_in_transaction(self) -> bool:
        return self._packet.first_in_transaction

    @property
    def is_last_in_transaction(self) -> bool:
        return self._packet.last_in_transaction

    @property
    def id(self) -> str:
        r"""`guid\number`: unique among all queue managers."""
        return str(self._packet.identifier)

    @property
    def correlation_id(self) -> str | None:
        """The id of the message this one answers, or None."""
        raw = self._packet.correlation_identifier
        if not any(raw):
            return None
        return str(MessageIdentifier.unpack(Reader(raw)))

    @property
    def correlation_id_bytes(self) -> bytes:
        return self._packet.correlation_identifier

    @property
    def sent_time(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._packet.sent_time, dt.UTC)

    @property
    def arrived_time(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._record.arrived, dt.UTC)

    @property
    def message_class(self) -> MessageClass | int:
        number = self._packet.message_class
        try:
            return MessageClass(number)
        except ValueError:
            return number

    @property
    def time_to_reach_queue(self) -> int | None:
        return _limited(self._packet.time_to_reach_queue)

    @property
    def time_to_be_received(self) -> int | None:
        return _limited(self._packet.time_to_be_received)

    @property
    def use_dead_letter_queue(self) -> bool:
        return self._packet.negative_journaling_requested

    @property
    def use_journal_queue(self) -> bool:
        return self._packet.positive_journaling_requested

    @property
    def use_tracing(self) -> bool:
        return self._packet.tracing_requested

    @property
    def tracing_queue(self) -> uuid.UUID | None:
        """The identifier of the public queue for report messages on its route, or None."""
        found = self._packet.tracing_queue_identifier
        return None if found == GUID_NULL else found

    @property
    def acknowledge(self) -> Acknowledgements:
        return self._packet.acknowledgements_requested

    @property
    def administration_queue(self) -> str | None:
        return _text(self._packet.administration_queue_format_name)

    @property
    def response_queue(self) -> str | None:
        return _text(self._packet.response_queue_format_name)

    @property
    def destination_queue(self) -> str | None:
        return _text(self._packet.destination_queue_format_name)

    @property
    def app_specific(self) -> int:
        return self._packet.application_tag

    @property
    def extension(self) -> bytes:
        return self._packet.extension

    @property
    def soap_envelope(self) -> str | None:
        """The SOAP envelope of a message that came to a Windows computer over HTTP, else None."""
        return self._packet.soap_envelope or None

    @property
    def soap_compound_message(self) -> bytes:
        """The HTTP request in which such a message came; `body` is a part of it. Else empty."""
        return self._packet.soap_compound_message

    @property
    def source_machine(self) -> uuid.UUID:
        return self._packet.source_machine_identifier

    @property
    def sender_id(self) -> bytes:
        """The sender's SID, as bytes; empty if the sender did not identify itself."""
        return self._packet.sender_identifier

    @property
    def sender_verified(self) -> bool | None:
        """Whether `sender_id` is proven: by a signature, or by the sender's logon.

        The logon is that to this queue manager. False: `sender_id` is a claim, or empty. None: a
        queue manager of another maker does not report it.
        """
        return is_sender_verified(self._packet, self._keeper)

    @property
    def sender_certificate(self) -> bytes:
        return self._packet.sender_certificate

    @property
    def authenticated(self) -> bool:
        """Whether the queue manager has verified a signature of the message."""
        return bool(self._packet.authentication_level)

    @property
    def encrypt(self) -> bool:
        return self._packet.privacy_level != MessagePrivacyLevel.NONE

    @property
    def hash_algorithm(self) -> int:
        return self._packet.hash_algorithm

    @property
    def encryption_algorithm(self) -> int:
        return self._packet.encryption_algorithm

    @property
    def connector_type(self) -> uuid.UUID | None:
        found = self._packet.connector_type_identifier
        return None if found == GUID_NULL else found

    @property
    def abort_count(self) -> int:
        """How often a transaction has received this message and aborted."""
        return self._record.abort_count

    @property
    def move_count(self) -> int:
        return self._record.move_count

    def copy(self) -> Message:
        """Return a message to send with the same content; it has no delivery history."""
        return Message(
            body=self.body_bytes,
            label=self.label,
            priority=self.priority,
            recoverable=self.recoverable,
            time_to_reach_queue=self.time_to_reach_queue,
            time_to_be_received=self.time_to_be_received,
            use_dead_letter_queue=self.use_dead_letter_queue,
            use_journal_queue=self.use_journal_queue,
            use_tracing=self.use_tracing,
            tracing_queue=self.tracing_queue,
            acknowledge=self.acknowledge,
            administration_queue=self.administration_queue,
            response_queue=self.response_queue,
            correlation_id=self.correlation_id_bytes,
            app_specific=self.app_specific,
            body_type=self.body_type,
            extension=self.extension,
            connector_type=self.connector_type,
        )

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.id} {self.label!r} {len(self.packet)} bytes>"


def _limited(value: int) -> int | None:
    return None if value == INFINITE else value


def _text(name: FormatName | None) -> str | None:
    return None if name is None else str(name)
