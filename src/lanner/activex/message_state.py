"""The attributes of the Message that an MSMQMessage object represents.

MS-MQDMPR 3.1.1.12, MC-MQAC 3.17.1 and 3.17.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    AuthenticationLevel,
    DeliveryGuarantee,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    SenderIdentifierType,
)
from lanner.wire.builder import DEFAULT_PRIORITY, NO_CORRELATION, MessageProperties
from lanner.wire.format_name import FormatName
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.public_keys import ProviderType

if TYPE_CHECKING:
    from lanner.wire.message import Message

# 3.17.3 has this name. The provider's name on Windows has no comma.
BASE_PROVIDER: Final = "Microsoft Base Cryptographic Provider, v1.0"
NO_IDENTIFIER: Final = bytes(MessageIdentifier.SIZE)


@dataclass(slots=True, repr=False)
class MessageState:
    """The attributes, initially those of a message that a client has just created (3.17.3).

    Empty octets and None are the document's NULL.
    """

    lookup_identifier: int = 0
    identifier: bytes = NO_IDENTIFIER
    message_class: int = MessageClass.NORMAL
    privacy_level: int = MessagePrivacyLevel.NONE
    authentication_level: int = AuthenticationLevel.NONE
    delivery_guarantee: int = DeliveryGuarantee.EXPRESS
    tracing_requested: bool = False
    priority: int = DEFAULT_PRIORITY
    positive_journaling_requested: bool = False
    negative_journaling_requested: bool = False
    response_queue_format_name: str | None = None
    response_multi_queue_format_name: str | None = None
    application_tag: int = 0
    source_machine_identifier: UUID = GUID_NULL
    body: bytes | None = None
    body_type: int = 0
    body_length: int = 0
    administration_queue_format_name: str | None = None
    administration_multi_queue_format_name: str | None = None
    correlation_identifier: bytes = NO_CORRELATION
    acknowledgements_requested: int = Acknowledgements.NONE
    label: str | None = None
    time_to_reach_queue: int = INFINITE  # seconds
    time_to_be_received: int = INFINITE  # seconds
    hash_algorithm: int = HashAlgorithm.SHA1
    encryption_algorithm: int = EncryptionAlgorithm.RC4
    sent_time: int = INFINITE  # seconds since 1970 UTC
    arrived_time: int = INFINITE  # seconds since 1970 UTC
    destination_queue_format_name: str | None = None
    destination_multi_queue_format_name: str | None = None
    sender_certificate: bytes = b""
    sender_identifier_type: int = SenderIdentifierType.SID
    sender_identifier: bytes = b""
    extension: bytes = b""
    connector_type_identifier: UUID = GUID_NULL
    # This is never set, because packets have no such field (MS-MQMQ 2.2.20).
    transaction_status_queue_format_name: str | None = None
    symmetric_key: bytes = b""
    signature: bytes = b""
    authentication_provider_type: int = ProviderType.PROV_RSA_FULL
    authentication_provider_name: str | None = BASE_PROVIDER
    transaction_identifier: bytes = NO_IDENTIFIER
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    # These are for messages that arrive over HTTP, which this queue manager does not receive.
    soap_envelope: str | None = None
    soap_compound_message: bytes = b""
    soap_header: str = ""
    soap_body: str = ""

    @classmethod
    def of(
        cls,
        message: Message,
        *,
        lookup_identifier: int,
        arrived_time: int,
        want_body: bool = True,
        want_destination: bool = False,
        want_connector_type: bool = False,
    ) -> MessageState:
        """Return the state of a received message; unwanted parts stay unset (3.11.4.1.14)."""
        source = message.source_machine_identifier
        transaction = message.transaction_identifier
        provider = message.authentication_provider_name
        state = cls(
            lookup_identifier=lookup_identifier,
            identifier=message.identifier_bytes,
            message_class=message.message_class,
            privacy_level=message.privacy_level,
            authentication_level=message.authentication_level,
            delivery_guarantee=message.delivery_guarantee,
            tracing_requested=message.tracing_requested,
            priority=message.priority,
            positive_journaling_requested=message.positive_journaling_requested,
            negative_journaling_requested=message.negative_journaling_requested,
            response_queue_format_name=_text(message.response_queue_format_name),
            application_tag=message.application_tag,
            source_machine_identifier=source,
            body=message.body if want_body else None,
            body_type=message.body_type,
            body_length=message.body_size,
            administration_queue_format_name=_text(message.administration_queue_format_name),
            correlation_identifier=message.correlation_identifier,
            acknowledgements_requested=message.acknowledgements_requested,
            label=message.label,
            time_to_reach_queue=message.time_to_reach_queue,
            time_to_be_received=message.time_to_be_received,
            hash_algorithm=message.hash_algorithm,
            encryption_algorithm=message.encryption_algorithm,
            sent_time=message.sent_time,
            arrived_time=arrived_time,
            sender_certificate=message.sender_certificate,
            sender_identifier_type=message.sender_identifier_type,
            sender_identifier=message.sender_identifier,
            extension=message.extension,
            symmetric_key=message.symmetric_key,
            signature=message.signature or message.multiple_destination_signature,
            authentication_provider_type=message.authentication_provider_type,
            authentication_provider_name=provider or None,
            first_in_transaction=message.first_in_transaction,
            last_in_transaction=message.last_in_transaction,
            soap_header=message.soap_header,
            soap_body=message.soap_body,
        )
        if transaction is not None:
            state.transaction_identifier = MessageIdentifier(source, transaction).pack()
        if want_destination:
            state.destination_queue_format_name = _text(message.destination_queue_format_name)
        if want_connector_type:
            state.connector_type_identifier = message.connector_type_identifier
        several = message.multi_queue_format_header
        if several is not None:
            state.response_multi_queue_format_name = _text(several.response.format_name)
            state.administration_multi_queue_format_name = _text(several.administration.format_name)
            if want_destination:
                state.destination_multi_queue_format_name = _text(several.destination.format_name)
        return state

    @property
    def octets(self) -> int:
        """The approximate size of the attributes, without names and small values."""
        return (
            len(self.body or b"")
            + len(self.extension)
            + len(self.sender_certificate)
            + len(self.sender_identifier)
            + len(self.symmetric_key)
            + len(self.signature)
            + len(self.authentication_provider_name or "")
        )

    def __repr__(self) -> str:
        """Return a text without body and keys."""
        return f"<MessageState {self.identifier.hex()}, a body of {self.body_length} octets>"

    def properties(self) -> MessageProperties:
        """Return the properties that can be sent as they are.

        The class, and the properties that identify the sender, are left out.
        """
        return MessageProperties(
            body=self.body or b"",
            body_type=0 if self.body is None else self.body_type,
            label=self.label or "",
            priority=self.priority,
            delivery_guarantee=DeliveryGuarantee(self.delivery_guarantee),
            time_to_reach_queue=self.time_to_reach_queue,
            time_to_be_received=self.time_to_be_received,
            application_tag=self.application_tag,
            correlation_identifier=self.correlation_identifier,
            extension=self.extension,
            acknowledgements_requested=Acknowledgements(self.acknowledgements_requested),
            administration_queue_format_name=_name(self.administration_queue_format_name),
            administration_multi_queue_format_name=_name(self.administration_multi_queue_format_name),
            response_queue_format_name=_name(self.response_queue_format_name),
            response_multi_queue_format_name=_name(self.response_multi_queue_format_name),
            positive_journaling_requested=self.positive_journaling_requested,
            negative_journaling_requested=self.negative_journaling_requested,
            tracing_requested=self.tracing_requested,
            connector_type_identifier=self.connector_type_identifier,
            privacy_level=self.privacy_level,
            hash_algorithm=self.hash_algorithm,
            encryption_algorithm=self.encryption_algorithm,
            soap_header=self.soap_header,
            soap_body=self.soap_body,
        )


def _text(name: FormatName | None) -> str | None:
    return None if name is None else str(name)


def _name(text: str | None) -> FormatName | None:
    return None if text is None else FormatName.parse(text)
