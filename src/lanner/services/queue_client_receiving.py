"""Conversion of a message to the CACTransferBufferV2 that a client provided.

MS-MQMP 2.2.3.2, 3.1.1.11, 3.1.5.3. A pointer that was NULL on input is NULL on output. A property
of variable size has a buffer and a number with its size. The numbers are set even if a buffer is
too small: according to the document a client must not look at them then, but applications do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from lanner.model.enums import INFINITE
from lanner.model.errors import (
    BufferOverflow,
    FormatnameBufferTooSmall,
    InsufficientProperties,
    InvalidParameter,
    LabelBufferTooSmall,
    ProvNameBufferTooSmall,
    SenderCertBufferTooSmall,
    SenderidBufferTooSmall,
    SignatureBufferTooSmall,
    StatusError,
    SymmKeyBufferTooSmall,
)
from lanner.rpc.ndr import Pointed
from lanner.services.interfaces.mqmp import CACTransferReceive, TransferType
from lanner.services.queue_client_sending import DEADLETTER, JOURNAL
from lanner.wire.identifiers import MessageIdentifier

if TYPE_CHECKING:
    from lanner.services.interfaces.mqmp import CACTransferBufferV1, CACTransferBufferV2, Characters, Octets
    from lanner.wire.format_name import FormatName
    from lanner.wire.message import Message

T = TypeVar("T")

# 2.2.3.2 Action.
MQ_ACTION_RECEIVE: Final = 0x0000_0000
MQ_ACTION_PEEK_CURRENT: Final = 0x8000_0000
MQ_ACTION_PEEK_NEXT: Final = 0x8000_0001
ACTIONS: Final = frozenset((MQ_ACTION_RECEIVE, MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT))
# Note 6: the only packet version.
FALCON_PACKET_VERSION: Final = 0x10
NO_IDENTIFIER: Final = MessageIdentifier(UUID(int=0), 0)


def requested(buffer: CACTransferBufferV2) -> CACTransferReceive:
    """Return the read that a client requests, after the checks of 3.1.5.3."""
    old = buffer.old
    if old.u_transfer_type != TransferType.CACTB_RECEIVE or not isinstance(old.u, CACTransferReceive):
        raise InvalidParameter(f"uTransferType {old.u_transfer_type} is not CACTB_RECEIVE")
    receive = old.u
    if receive.action not in ACTIONS:
        raise InvalidParameter(f"Action {receive.action:#x}")
    for name in ("response", "admin", "dest", "ordering"):
        _check_text(
            name,
            getattr(receive, f"pp_{name}_format_name"),
            getattr(receive, f"ul_{name}_format_name_len"),
            getattr(receive, f"pul_{name}_format_name_len_prop"),
        )
    _check_text("title", old.pp_title, old.ul_title_buffer_size_in_wchars, old.pul_title_buffer_size_in_wchars)
    if old.pp_body is None and (old.ul_body_buffer_size_in_bytes or old.ul_alloc_body_buffer_in_bytes):
        raise InvalidParameter("a size without ppBody")
    # 2.2.3.2. NDR checks it only if there is a buffer.
    if old.ul_body_buffer_size_in_bytes > old.ul_alloc_body_buffer_in_bytes:
        raise InvalidParameter("ulBodyBufferSizeInBytes is more than ulAllocBodyBufferInBytes")
    if old.pp_msg_extension is None and old.ul_msg_extension_buffer_in_bytes:
        raise InvalidParameter("a size without ppMsgExtension")
    return receive


def _check_text(what: str, pointer: Characters, size: int, told: int | None) -> None:
    if pointer is None:
        if size:
            raise InvalidParameter(f"{what}: a size without a buffer")
    elif told is None:
        raise InsufficientProperties(f"{what}: a buffer without its length property")
    elif size > told:
        raise InvalidParameter(f"{what}: {size} characters on the wire, of {told}")


class _Room:
    """Writer into the client's buffers; it remembers the first one that is too small."""

    def __init__(self) -> None:
        self.error: StatusError | None = None

    def _refuse(self, error: type[StatusError], needed: int, size: int) -> None:
        if self.error is None:
            self.error = error(f"{needed} wanted, room for {size}")

    def text(self, pointer: Characters, size: int, text: str, error: type[StatusError]) -> tuple[Characters, int, int]:
        """Return a text buffer, its size on the wire, and the full length with the terminator.

        Buffer and size shrink to the text.
        """
        full = len(text.encode("utf-16-le", "surrogatepass")) // 2 + 1 if text else 0
        if pointer is None:
            return None, size, full
        if full > size:
            self._refuse(error, full, size)
            return pointer, size, full
        return Pointed(f"{text}\0" if full else ""), full, full

    def octets(self, pointer: Octets, size: int, data: bytes, error: type[StatusError]) -> Octets:
        """Return a buffer of octets, padded to its size."""
        if pointer is None or (not data and pointer.value is None):
            return pointer
        if len(data) > size:
            self._refuse(error, len(data), size)
            return pointer
        return Pointed(data.ljust(size, b"\0"))

    def characters(self, pointer: Characters, size: int, text: str, error: type[StatusError]) -> Characters:
        """Return a string buffer, padded to its size."""
        if pointer is None or (not text and pointer.value is None):
            return pointer
        full = _characters(text)
        if full > size:
            self._refuse(error, full, size)
            return pointer
        return Pointed(text + "\0" * (size - full + 1 if text else size))


def _characters(text: str) -> int:
    """Return the length with the terminator; an absent string has length 0."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 + 1 if text else 0


def _told(asked: int | None, value: int) -> int | None:
    return None if asked is None else value


def _pointed(asked: Pointed[T | None] | None, value: T) -> Pointed[T | None] | None:
    return None if asked is None else Pointed(value)


def fill(
    buffer: CACTransferBufferV2, message: Message, arrived: int, now: int
) -> tuple[CACTransferBufferV2, StatusError | None]:
    """Return the buffer filled with a message, and the error of the first part that did not fit.

    `arrived` and `now` are in seconds since 1970.
    """
    room = _Room()
    identifier = message.transaction_identifier
    transaction = (
        NO_IDENTIFIER if identifier is None else MessageIdentifier(message.source_machine_identifier, identifier)
    )
    filled = replace(
        buffer,
        old=_fill_old(buffer.old, message, arrived, now, room),
        pb_first_in_xact=_told(buffer.pb_first_in_xact, message.first_in_transaction),
        pb_last_in_xact=_told(buffer.pb_last_in_xact, message.last_in_transaction),
        pp_xact_id=_pointed(buffer.pp_xact_id, transaction),
    )
    return filled, room.error


def _fill_old(old: CACTransferBufferV1, message: Message, arrived: int, now: int, room: _Room) -> CACTransferBufferV1:
    auditing = (JOURNAL if message.positive_journaling_requested else 0) | (
        DEADLETTER if message.negative_journaling_requested else 0
    )
    body, extension = message.body, message.extension
    title, title_size, title_length = room.text(
        old.pp_title, old.ul_title_buffer_size_in_wchars, message.label, LabelBufferTooSmall
    )
    receive = old.u
    if isinstance(receive, CACTransferReceive):
        receive = _fill_names(receive, message, room)
    changes: dict[str, Any] = {
        "u": receive,
        "p_class": _told(old.p_class, message.message_class),
        "pp_message_id": _pointed(old.pp_message_id, message.identifier),
        "pp_correlation_id": _pointed(old.pp_correlation_id, message.correlation_identifier),
        "p_sent_time": _told(old.p_sent_time, message.sent_time),
        "p_arrived_time": _told(old.p_arrived_time, arrived),
        "p_priority": _told(old.p_priority, message.priority),
        "p_delivery": _told(old.p_delivery, message.delivery_guarantee),
        "p_acknowledge": _told(old.p_acknowledge, message.acknowledgements_requested),
        "p_auditing": _told(old.p_auditing, auditing),
        "p_application_tag": _told(old.p_application_tag, message.application_tag),
        "pp_body": room.octets(old.pp_body, old.ul_body_buffer_size_in_bytes, body, BufferOverflow),
        "p_body_size": _told(old.p_body_size, len(body)),
        "pp_title": title,
        "ul_title_buffer_size_in_wchars": title_size,
        "pul_title_buffer_size_in_wchars": _told(old.pul_title_buffer_size_in_wchars, title_length),
        "pul_relative_time_to_queue": _told(old.pul_relative_time_to_queue, message.time_to_reach_queue),
        "pul_relative_time_to_live": _told(old.pul_relative_time_to_live, _time_left(message, now)),
        "p_trace": _told(old.p_trace, message.tracing_requested),
        "pul_priv_level": _told(old.pul_priv_level, message.privacy_level),
        "p_authenticated": _told(old.p_authenticated, message.authentication_level),
        "pul_hash_alg": _told(old.pul_hash_alg, message.hash_algorithm),
        "pul_encrypt_alg": _told(old.pul_encrypt_alg, message.encryption_algorithm),
        "pp_src_qm_id": _pointed(old.pp_src_qm_id, message.source_machine_identifier),
        "pp_msg_extension": room.octets(
            old.pp_msg_extension, old.ul_msg_extension_buffer_in_bytes, extension, BufferOverflow
        ),
        "p_msg_extension_size": _told(old.p_msg_extension_size, len(extension)),
        "pp_connector_type": _pointed(old.pp_connector_type, message.connector_type_identifier),
        "pul_body_type": _told(old.pul_body_type, message.body_type),
        "pul_version": _told(old.pul_version, FALCON_PACKET_VERSION),
    }
    return replace(old, **changes, **_security(old, message, room))


def _security(old: CACTransferBufferV1, message: Message, room: _Room) -> dict[str, Any]:
    sender, certificate = message.sender_identifier, message.sender_certificate
    key, signature, provider = message.symmetric_key, message.signature, message.authentication_provider_name
    return {
        "pul_sender_id_type": _told(old.pul_sender_id_type, message.sender_identifier_type),
        "pp_sender_id": room.octets(old.pp_sender_id, old.u_sender_id_len, sender, SenderidBufferTooSmall),
        "pul_sender_id_len_prop": _told(old.pul_sender_id_len_prop, len(sender)),
        "pp_sender_cert": room.octets(
            old.pp_sender_cert, old.ul_sender_cert_len, certificate, SenderCertBufferTooSmall
        ),
        "pul_sender_cert_len_prop": _told(old.pul_sender_cert_len_prop, len(certificate)),
        "ppwcs_prov_name": room.characters(old.ppwcs_prov_name, old.ul_prov_name_len, provider, ProvNameBufferTooSmall),
        "pul_auth_prov_name_len_prop": _told(old.pul_auth_prov_name_len_prop, _characters(provider)),
        "pul_prov_type": _told(old.pul_prov_type, message.authentication_provider_type),
        "pp_symm_keys": room.octets(old.pp_symm_keys, old.ul_symm_keys_size, key, SymmKeyBufferTooSmall),
        "pul_symm_keys_size_prop": _told(old.pul_symm_keys_size_prop, len(key)),
        "pp_signature": room.octets(old.pp_signature, old.ul_signature_size, signature, SignatureBufferTooSmall),
        "pul_signature_size_prop": _told(old.pul_signature_size_prop, len(signature)),
    }


def _fill_names(receive: CACTransferReceive, message: Message, room: _Room) -> CACTransferReceive:
    names: dict[str, FormatName | None] = {
        "response": message.response_multi_queue_format_name or message.response_queue_format_name,
        "admin": message.administration_multi_queue_format_name or message.administration_queue_format_name,
        "dest": message.destination_multi_queue_format_name or message.destination_queue_format_name,
        # TransactionStatusQueueFormatName: packets have no such field.
        "ordering": None,
    }
    changes: dict[str, Any] = {}
    for name, value in names.items():
        buffer, size, prop = (
            f"pp_{name}_format_name",
            f"ul_{name}_format_name_len",
            f"pul_{name}_format_name_len_prop",
        )
        changes[buffer], changes[size], length = room.text(
            getattr(receive, buffer),
            getattr(receive, size),
            "" if value is None else str(value),
            FormatnameBufferTooSmall,
        )
        changes[prop] = _told(getattr(receive, prop), length)
    return replace(receive, **changes)


def _time_left(message: Message, now: int) -> int:
    """Return the seconds until TimeToBeReceived expires (2.2.3.2 pulRelativeTimeToLive)."""
    limit = message.time_to_be_received
    return limit if limit == INFINITE else max(0, message.sent_time + limit - now)
