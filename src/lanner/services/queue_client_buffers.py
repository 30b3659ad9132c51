"""CACTransferBufferV2 on the client side (MS-MQMP 3.2.4.10 to 3.2.4.12).

`send_buffer` fills a buffer from the properties of a message. `receive_buffer` makes room for every
property. `packet_of` makes a packet again from a received buffer, as far as the protocol reports
the properties, so that all code that reads messages can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import Acknowledgements, AuthenticationLevel, DeliveryGuarantee, SenderIdentifierType
from lanner.model.errors import IllegalOperation, RemoteProtocolError
from lanner.rpc.ndr import Pointed
from lanner.services.interfaces.mqmp import (
    MAX_FORMAT_NAME_LENGTH,
    CACTransferBufferV1,
    CACTransferBufferV2,
    CACTransferReceive,
    CACTransferSend,
    TransferType,
)
from lanner.services.queue_client_receiving import NO_IDENTIFIER
from lanner.services.queue_client_sending import DEADLETTER, JOURNAL, PRIVACY_LEVELS, PROV_RSA_FULL
from lanner.services.queue_formats import queue_format_of
from lanner.wire.builder import NO_CORRELATION, MessageProperties, build, set_authentication
from lanner.wire.format_name import FormatName, parse
from lanner.wire.message import Message

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.services.interfaces.mqmp import Characters
    from lanner.services.interfaces.mqmq import QueueFormat

T = TypeVar("T")

# Not in the specification: the default buffer sizes of a receive. A larger body or extension costs
# a second call.
DEFAULT_BODY_SIZE: Final = 16 * 1024
DEFAULT_EXTENSION_SIZE: Final = 0
DEFAULT_NAME_SIZE: Final = 256
DEFAULT_SECURITY_SIZE: Final = 2048
# The maximum lengths of labels and SIDs (2.2.3.2, MS-DTYP 2.4.2), and room for provider names.
_LABEL_SIZE: Final = 250
_SENDER_SIZE: Final = 68
_PROVIDER_SIZE: Final = 256


def send_buffer(properties: MessageProperties, uow: UUID | None = None) -> CACTransferBufferV2:
    """Return a message in the form that rpc_ACSendMessageEx takes.

    Raises IllegalOperation if a property cannot be carried by the protocol.
    """
    if properties.application_deadletter_queue or properties.soap_header or properties.soap_body:
        raise IllegalOperation("an application's own dead-letter queue and SOAP cannot be requested through MS-MQMP")
    if properties.tracing_queue_identifier != GUID_NULL or properties.multiple_destination_signature:
        raise IllegalOperation("a tracing queue and signatures of several destinations cannot be sent through MS-MQMP")
    body, label, extension = bytes(properties.body), properties.label, properties.extension
    sender, certificate = properties.sender_identifier, properties.sender_certificate
    key, signature, provider = properties.symmetric_key, properties.signature, properties.authentication_provider_name
    title = f"{label}\0" if label else ""
    title_size = len(title.encode("utf-16-le", "surrogatepass")) // 2
    old = CACTransferBufferV1(
        TransferType.CACTB_SEND,
        CACTransferSend(
            _format(properties.administration_queue_format_name), _format(properties.response_queue_format_name)
        ),
        p_class=properties.message_class,
        pp_correlation_id=Pointed(properties.correlation_identifier),
        p_priority=properties.priority,
        p_delivery=properties.delivery_guarantee,
        p_acknowledge=properties.acknowledgements_requested,
        p_auditing=(JOURNAL if properties.positive_journaling_requested else 0)
        | (DEADLETTER if properties.negative_journaling_requested else 0),
        p_application_tag=properties.application_tag,
        pp_body=Pointed(body) if body else None,
        ul_body_buffer_size_in_bytes=len(body),
        ul_alloc_body_buffer_in_bytes=len(body),
        pp_title=Pointed(title) if title else None,
        ul_title_buffer_size_in_wchars=title_size,
        ul_absolute_time_to_queue=properties.time_to_reach_queue,
        ul_relative_time_to_live=properties.time_to_be_received,
        p_trace=properties.tracing_requested,
        # Without an identifier, let the server determine the sender.
        pul_sender_id_type=properties.sender_identifier_type
        if sender or not properties.sender_identifier_type
        else None,
        pp_sender_id=Pointed(sender) if sender else None,
        u_sender_id_len=len(sender),
        pul_priv_level=properties.privacy_level,
        pul_hash_alg=properties.hash_algorithm,
        pul_encrypt_alg=properties.encryption_algorithm,
        pp_sender_cert=Pointed(certificate) if certificate else None,
        ul_sender_cert_len=len(certificate),
        ppwcs_prov_name=Pointed(f"{provider}\0") if provider else None,
        ul_prov_name_len=len(provider) + 1 if provider else 0,
        pul_prov_type=properties.authentication_provider_type if provider else PROV_RSA_FULL,
        f_default_provider=not provider,
        pp_symm_keys=Pointed(key) if key else None,
        ul_symm_keys_size=len(key),
        b_encrypted=bool(key),
        pp_signature=Pointed(signature) if signature else None,
        ul_signature_size=len(signature),
        p_uow=None if uow is None else uow.bytes_le,
        pp_msg_extension=Pointed(extension) if extension else None,
        ul_msg_extension_buffer_in_bytes=len(extension),
        pp_connector_type=_unless_null(properties.connector_type_identifier),
        pul_body_type=properties.body_type,
    )
    return CACTransferBufferV2(old)


def _format(name: FormatName | None) -> QueueFormat | None:
    return None if name is None else queue_format_of(name)


def _unless_null(identifier: UUID) -> Pointed[UUID | None] | None:
    return None if identifier == GUID_NULL else Pointed(identifier)


def receive_buffer(
    *,
    action: int,
    timeout: int,
    cursor: int = 0,
    uow: UUID | None = None,
    body_size: int = DEFAULT_BODY_SIZE,
    extension_size: int = DEFAULT_EXTENSION_SIZE,
    name_size: int = DEFAULT_NAME_SIZE,
    security_size: int = DEFAULT_SECURITY_SIZE,
) -> CACTransferBufferV2:
    """Return a buffer with room for a message and everything reported with it.

    `timeout` is in milliseconds. The octets of buffers travel in both directions.
    """
    names = CACTransferReceive(
        request_timeout=timeout,
        action=action,
        cursor=cursor,
        ul_response_format_name_len=name_size,
        pp_response_format_name=_room(name_size),
        pul_response_format_name_len_prop=name_size,
        ul_admin_format_name_len=name_size,
        pp_admin_format_name=_room(name_size),
        pul_admin_format_name_len_prop=name_size,
        ul_dest_format_name_len=name_size,
        pp_dest_format_name=_room(name_size),
        pul_dest_format_name_len_prop=name_size,
    )
    old = CACTransferBufferV1(
        TransferType.CACTB_RECEIVE,
        names,
        p_class=0,
        pp_message_id=Pointed(NO_IDENTIFIER),
        pp_correlation_id=Pointed(NO_CORRELATION),
        p_sent_time=0,
        p_arrived_time=0,
        p_priority=0,
        p_delivery=0,
        p_acknowledge=0,
        p_auditing=0,
        p_application_tag=0,
        pp_body=Pointed(bytes(body_size)),
        ul_body_buffer_size_in_bytes=body_size,
        ul_alloc_body_buffer_in_bytes=body_size,
        p_body_size=0,
        pp_title=_room(_LABEL_SIZE),
        ul_title_buffer_size_in_wchars=_LABEL_SIZE,
        pul_title_buffer_size_in_wchars=_LABEL_SIZE,
        pul_relative_time_to_queue=0,
        pul_relative_time_to_live=0,
        p_trace=0,
        pul_sender_id_type=0,
        pp_sender_id=Pointed(bytes(_SENDER_SIZE)),
        u_sender_id_len=_SENDER_SIZE,
        pul_sender_id_len_prop=0,
        pul_priv_level=0,
        p_authenticated=0,
        pul_hash_alg=0,
        pul_encrypt_alg=0,
        pp_sender_cert=Pointed(bytes(security_size)),
        ul_sender_cert_len=security_size,
        pul_sender_cert_len_prop=0,
        ppwcs_prov_name=_room(_PROVIDER_SIZE),
        ul_prov_name_len=_PROVIDER_SIZE,
        pul_auth_prov_name_len_prop=0,
        pul_prov_type=0,
        pp_signature=Pointed(bytes(security_size)),
        ul_signature_size=security_size,
        pul_signature_size_prop=0,
        pp_src_qm_id=Pointed(GUID_NULL),
        p_uow=None if uow is None else uow.bytes_le,
        pp_msg_extension=Pointed(bytes(extension_size)),
        ul_msg_extension_buffer_in_bytes=extension_size,
        p_msg_extension_size=0,
        pp_connector_type=Pointed(GUID_NULL),
        pul_body_type=0,
        pul_version=0,
    )
    return CACTransferBufferV2(old, pb_first_in_xact=0, pb_last_in_xact=0, pp_xact_id=Pointed(NO_IDENTIFIER))


class BufferSizes(TypedDict):
    """The sizes that `receive_buffer` takes as arguments."""

    body_size: int
    extension_size: int
    name_size: int
    security_size: int


def needed_sizes(buffer: CACTransferBufferV2) -> BufferSizes:
    """Return the sizes that a message needs after it did not fit.

    Lanner reports them with the error. No document says whether Windows does.
    """
    old = buffer.old
    names: tuple[int | None, ...] = ()
    if isinstance(old.u, CACTransferReceive):
        names = (
            old.u.pul_response_format_name_len_prop,
            old.u.pul_admin_format_name_len_prop,
            old.u.pul_dest_format_name_len_prop,
        )
    return {
        "body_size": old.p_body_size or 0,
        "extension_size": old.p_msg_extension_size or 0,
        "name_size": min(max((length or 0 for length in names), default=0), MAX_FORMAT_NAME_LENGTH),
        "security_size": max(old.pul_sender_cert_len_prop or 0, old.pul_signature_size_prop or 0),
    }


def _room(size: int) -> Characters:
    return Pointed("\0" * size)


def packet_of(buffer: CACTransferBufferV2) -> bytes:
    """Return the UserMessage packet of a received buffer.

    Raises RemoteProtocolError if the contents are inconsistent.
    """
    old = buffer.old
    names = old.u
    if not isinstance(names, CACTransferReceive):
        raise RemoteProtocolError("not a buffer that was received with")
    identifier = _given("ppMessageID", old.pp_message_id)
    transaction = _given("ppXactID", buffer.pp_xact_id)
    auditing = old.p_auditing or 0
    level = old.pul_priv_level or 0
    destination = _name(names.pp_dest_format_name)
    if destination is None or level not in PRIVACY_LEVELS:
        raise RemoteProtocolError(f"a message to {destination}, pulPrivLevel {level}")
    properties = MessageProperties(
        body=_part(old.pp_body, old.p_body_size),
        label=_text(old.pp_title),
        priority=old.p_priority or 0,
        delivery_guarantee=DeliveryGuarantee(bool(old.p_delivery)),
        time_to_reach_queue=old.pul_relative_time_to_queue or 0,
        time_to_be_received=old.pul_relative_time_to_live or 0,
        message_class=old.p_class or 0,
        body_type=old.pul_body_type or 0,
        application_tag=old.p_application_tag or 0,
        correlation_identifier=_given("ppCorrelationID", old.pp_correlation_id),
        extension=_part(old.pp_msg_extension, old.p_msg_extension_size),
        acknowledgements_requested=Acknowledgements((old.p_acknowledge or 0) & 0x0F),
        administration_queue_format_name=_name(names.pp_admin_format_name),
        response_queue_format_name=_name(names.pp_response_format_name),
        positive_journaling_requested=bool(auditing & JOURNAL),
        negative_journaling_requested=bool(auditing & DEADLETTER),
        tracing_requested=bool(old.p_trace),
        connector_type_identifier=_given("ppConnectorType", old.pp_connector_type),
        # The body arrived unencrypted.
        hash_algorithm=old.pul_hash_alg or 0,
        encryption_algorithm=old.pul_encrypt_alg or 0,
        sender_identifier_type=SenderIdentifierType((old.pul_sender_id_type or 0) % 3),
        sender_identifier=_part(old.pp_sender_id, old.pul_sender_id_len_prop),
        sender_certificate=_part(old.pp_sender_cert, old.pul_sender_cert_len_prop),
        signature=_part(old.pp_signature, old.pul_signature_size_prop),
        authentication_provider_type=old.pul_prov_type or 0,
        authentication_provider_name=_text(old.ppwcs_prov_name),
        first_in_transaction=bool(buffer.pb_first_in_xact),
        last_in_transaction=bool(buffer.pb_last_in_xact),
    )
    packet = build(
        properties,
        source=identifier.queue_manager_guid,
        ordinal=identifier.ordinal,
        sent_time=old.p_sent_time or 0,
        destination=destination,
        transaction=None if transaction == NO_IDENTIFIER else transaction.ordinal & 0xF_FFFF,
    )
    authenticated = old.p_authenticated or 0
    if authenticated in tuple(AuthenticationLevel) and Message(packet).has_security_header:
        return set_authentication(packet, AuthenticationLevel(authenticated))
    return packet


def _given(what: str, pointer: Pointed[T | None] | None) -> T:
    if pointer is None or pointer.value is None:
        raise RemoteProtocolError(f"{what} is NULL, although it was requested")
    return pointer.value


def _part(pointer: Pointed[bytes | None] | None, size: int | None) -> bytes:
    """Return the used part of a buffer."""
    data = b"" if pointer is None else pointer.value or b""
    if size is None or size > len(data):
        raise RemoteProtocolError(f"{size} octets in a buffer of {len(data)}")
    return data[:size]


def _text(pointer: Characters) -> str:
    text = "" if pointer is None else pointer.value or ""
    return text.partition("\0")[0]


def _name(pointer: Characters) -> FormatName | None:
    text = _text(pointer)
    return parse(text) if text else None
