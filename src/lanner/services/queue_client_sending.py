"""Conversion of CACTransferBufferV2 to message properties (MS-MQMP 2.2.3.2, 3.1.1.11, 3.1.5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    DeliveryGuarantee,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import IllegalPropertyValue, InvalidParameter, Property
from lanner.services.interfaces.mqmp import CACTransferSend, TransferType
from lanner.services.queue_formats import format_name_of
from lanner.wire.builder import DEFAULT_PRIORITY, MAX_LABEL_CHARACTERS, NO_CORRELATION, MessageProperties

if TYPE_CHECKING:
    from collections.abc import Container

    from lanner.rpc.ndr import Pointed
    from lanner.services.interfaces.mqmp import CACTransferBufferV1, CACTransferBufferV2
    from lanner.services.interfaces.mqmq import QueueFormat
    from lanner.wire.format_name import FormatName

T = TypeVar("T")

# 2.2.3.2 pulPrivLevel has 2 for Enhanced, but packets and all applications use 3 (MS-MQMQ 2.2.19.3,
# MC-MQAC MQMSGPRIVLEVEL). Both are accepted, and 3 is returned.
PRIVACY_LEVELS: Final = {
    0: MessagePrivacyLevel.NONE,
    1: MessagePrivacyLevel.BASE,
    2: MessagePrivacyLevel.ENHANCED,
    3: MessagePrivacyLevel.ENHANCED,
    5: MessagePrivacyLevel.ADVANCED,
}
# 2.2.3.2 pAuditing.
DEADLETTER: Final = 0x01
JOURNAL: Final = 0x02
# 3.1.5.2: the provider type that fDefaultProvider implies.
PROV_RSA_FULL: Final = 1
# 2.2.3.2 pClass: the classes that a client may send. OrderAck is reserved for queue managers.
_CLASSES: Final = frozenset(MessageClass) - {MessageClass.ORDER_ACK, MessageClass.NACK_RECEIVE_TIMEOUT_AT_SENDER}
_PRIORITIES: Final = range(8)


def message_properties(buffer: CACTransferBufferV2) -> MessageProperties:
    """Return the properties of a message to send, with the defaults of 3.1.5.2.

    Raises a StatusError for a property that cannot be sent.
    """
    old = buffer.old
    if old.u_transfer_type != TransferType.CACTB_SEND or not isinstance(old.u, CACTransferSend):
        raise InvalidParameter(f"uTransferType {old.u_transfer_type} is not CACTB_SEND")
    auditing = _choice("pAuditing", old.p_auditing, range(4), 0)
    connector, body = _inner(old.pp_connector_type), _inner(old.pp_body)
    properties = MessageProperties(
        body=body or b"",
        label=_label(_inner(old.pp_title)),
        priority=_choice("pPriority", old.p_priority, _PRIORITIES, DEFAULT_PRIORITY),
        delivery_guarantee=DeliveryGuarantee(_choice("pDelivery", old.p_delivery, range(2), 0)),
        time_to_reach_queue=old.ul_absolute_time_to_queue or INFINITE,
        time_to_be_received=old.ul_relative_time_to_live,
        message_class=_choice("pClass", old.p_class, _CLASSES, MessageClass.NORMAL),
        body_type=old.pul_body_type or 0,
        application_tag=old.p_application_tag or 0,
        correlation_identifier=_inner(old.pp_correlation_id) or NO_CORRELATION,
        extension=_inner(old.pp_msg_extension) or b"",
        acknowledgements_requested=Acknowledgements(_choice("pAcknowledge", old.p_acknowledge, range(16), 0)),
        administration_queue_format_name=_name(old.u.p_admin_queue_format),
        response_queue_format_name=_name(old.u.p_response_queue_format),
        positive_journaling_requested=bool(auditing & JOURNAL),
        negative_journaling_requested=bool(auditing & DEADLETTER),
        tracing_requested=bool(_choice("pTrace", old.p_trace, range(2), 0)),
        connector_type_identifier=GUID_NULL if connector is None else connector,
        sender_certificate=_inner(old.pp_sender_cert) or b"",
    )
    _set_sender(properties, old)
    _set_privacy(properties, old)
    _set_signature(properties, old)
    return properties


def _inner(pointer: Pointed[T | None] | None) -> T | None:
    return None if pointer is None else pointer.value


def _choice(what: str, value: int | None, allowed: Container[int], default: int) -> int:
    if value is None:
        return default
    if value not in allowed:
        raise IllegalPropertyValue(f"{what} {value:#x}")
    return value


def _name(queue_format: QueueFormat | None) -> FormatName | None:
    return None if queue_format is None else format_name_of(queue_format)


def _text(characters: str) -> str:
    """Return a string up to its terminator, which may come before the end of the buffer."""
    return characters.partition("\0")[0]


def _label(characters: str | None) -> str:
    """Return ppTitle, truncated if it is too long (3.1.5.2), but not inside a character."""
    label = _text(characters or "")
    if 2 * len(label) <= MAX_LABEL_CHARACTERS:
        return label
    cut = label.encode("utf-16-le", "surrogatepass")[: 2 * MAX_LABEL_CHARACTERS].decode("utf-16-le", "surrogatepass")
    return cut[:-1] if cut != label and "\ud800" <= cut[-1] <= "\udbff" else cut


def _set_sender(properties: MessageProperties, old: CACTransferBufferV1) -> None:
    """Set the sender.

    Without pulSenderIDType it is the user who opened the queue (MS-MQDMPR 3.1.1.12).
    """
    sender = _inner(old.pp_sender_id) or b""
    kind = old.pul_sender_id_type
    if kind is None:
        if sender:
            raise InvalidParameter(f"uSenderIDLen {old.u_sender_id_len} without pulSenderIDType")
        return
    if kind not in (0, 1, 2):
        raise IllegalPropertyValue(f"pulSenderIDType {kind:#x}")
    if bool(kind) != bool(sender):
        raise InvalidParameter(f"pulSenderIDType {kind} with a ppSenderID of {len(sender)} octets")
    properties.sender_identifier_type = SenderIdentifierType(kind)
    properties.sender_identifier = sender


def _set_privacy(properties: MessageProperties, old: CACTransferBufferV1) -> None:
    level = old.pul_priv_level or 0
    if level not in PRIVACY_LEVELS:
        raise IllegalPropertyValue(f"pulPrivLevel {level:#x}")
    key = _inner(old.pp_symm_keys) or b""
    algorithm = old.pul_encrypt_alg
    properties.privacy_level = PRIVACY_LEVELS[level]
    properties.symmetric_key = key
    properties.encryption_algorithm = algorithm or 0
    if not level:
        if key or old.b_encrypted:
            raise InvalidParameter("an encrypted body without pulPrivLevel")
        return
    if bool(key) != bool(old.b_encrypted):
        raise InvalidParameter("bEncrypted and ppSymmKeys go together")
    if algorithm is None:
        raise Property("pulPrivLevel without pulEncryptAlg")
    if algorithm not in tuple(EncryptionAlgorithm):
        raise IllegalPropertyValue(f"pulEncryptAlg {algorithm:#x}")


def _set_signature(properties: MessageProperties, old: CACTransferBufferV1) -> None:
    signature = _inner(old.pp_signature) or b""
    properties.hash_algorithm = old.pul_hash_alg or 0
    if not signature:
        return
    if old.pul_hash_alg is None:
        raise Property("ulSignatureSize without pulHashAlg")
    if old.pul_hash_alg not in tuple(HashAlgorithm):
        raise IllegalPropertyValue(f"pulHashAlg {old.pul_hash_alg:#x}")
    if old.f_default_provider:
        if old.pul_prov_type != PROV_RSA_FULL:
            raise InvalidParameter(f"fDefaultProvider with pulProvType {old.pul_prov_type}")
    else:
        provider = _inner(old.ppwcs_prov_name)
        if provider is None:
            raise InvalidParameter("neither fDefaultProvider nor ppwcsProvName")
        properties.authentication_provider_name = _text(provider)
        properties.authentication_provider_type = old.pul_prov_type or 0
    properties.signature = _newest_signature(signature, old)


def _newest_signature(signature: bytes, old: CACTransferBufferV1) -> bytes:
    """Return the signature to check (3.1.5.2).

    With pulAuthProvNameLenProp the 2.0 signature follows an older one, which is ignored.
    """
    if old.pul_auth_prov_name_len_prop is None:
        return signature
    size = old.pul_auth_prov_name_len_prop - old.ul_prov_name_len
    if not 0 < size <= len(signature):
        raise InvalidParameter(f"a second signature of {size} octets in {len(signature)}")
    return signature[-size:]
