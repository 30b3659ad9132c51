"""One message as a row, read by `wire.Message`. This module defines the meaning of every column.

`decode` does the same for whole batches, and uses this module for packets that are not common. A
test compares the two.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import INFINITE, MessageClass
from lanner.model.errors import RemoteProtocolError
from lanner.security.verified_senders import is_sender_verified
from lanner.wire.body_types import TEXT_BODIES
from lanner.wire.format_name import FormatName
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message
from lanner.wire.reader import Reader

MICROSECONDS: Final = 1_000_000
CLASS_NAMES: Final = {int(member): member.name for member in MessageClass}
# MQMSG_DEADLETTER and MQMSG_JOURNAL of the MSMQ API.
DEADLETTER: Final = 1
JOURNAL: Final = 2
OUTGOING: Final = "outgoing"

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Return text that Arrow can hold: a lone surrogate becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def read_row(packet: bytes, kind: str, keeper: UUID | None = None) -> dict[str, object]:
    """Return the columns of a packet in a queue of some kind.

    For a malformed packet these are the packet and the error. `keeper` is the Lanner queue manager
    that has the queue; None: another queue manager.
    """
    try:
        return message_row(Message.unpack(packet), kind, keeper)
    except RemoteProtocolError as error:
        return {"packet": packet, "packet_error": clean(str(error))}


def message_row(message: Message, kind: str, keeper: UUID | None) -> dict[str, object]:
    extensions = message.extensions
    subqueue = None if extensions is None else extensions.subqueue
    sequence = message.transactional_message_sequence_identifier
    return {
        "msg_id": message.identifier_bytes,
        "msg_id_text": str(message.identifier),
        **_correlation(message.correlation_identifier),
        "class": int(message.message_class),
        "class_name": CLASS_NAMES.get(message.message_class),
        "app_specific": message.application_tag,
        "label": clean(message.label),
        "sent_time": message.sent_time * MICROSECONDS,
        "time_to_reach_queue": message.time_to_reach_queue,
        "time_to_be_received": message.time_to_be_received,
        "expires_at": _expires_at(message, kind),
        "last_move_time": subqueue.last_move_time * MICROSECONDS if subqueue and subqueue.last_move_time else None,
        "priority": message.priority,
        "delivery": int(message.delivery_guarantee),
        "acknowledge": int(message.acknowledgements_requested),
        "journal": DEADLETTER * message.negative_journaling_requested + JOURNAL * message.positive_journaling_requested,
        "trace": int(message.tracing_requested),
        "hop_count": message.route_count,
        "version": message.version_number,
        "dest_format_name": _name(message.destination_queue_format_name),
        "dest_multi": _name(message.destination_multi_queue_format_name),
        "resp_format_name": _name(message.response_queue_format_name),
        "resp_multi": _name(message.response_multi_queue_format_name),
        "admin_format_name": _name(message.administration_queue_format_name),
        "admin_multi": _name(message.administration_multi_queue_format_name),
        "deadletter_format_name": clean(message.application_deadletter_queue) or None,
        "report_queue_id": _guid(message.tracing_queue_identifier),
        "src_machine_id": str(message.source_machine_identifier),
        "dest_qm_id": _guid(message.destination_queue_manager_identifier),
        "connector_type": _guid(message.connector_type_identifier),
        "xact_id": message.transaction_identifier_bytes,
        "first_in_xact": message.first_in_transaction if sequence else None,
        "last_in_xact": message.last_in_transaction if sequence else None,
        "tx_seq_id": _signed(sequence.value) if sequence else None,
        "tx_seq_no": message.transaction_sequence_number if sequence else None,
        "tx_prev_seq_no": message.transaction_previous_sequence_number if sequence else None,
        "sender_id": message.sender_identifier or None,
        "sender_id_type": int(message.sender_identifier_type),
        "sender_verified": is_sender_verified(message, keeper),
        "authenticated": int(bool(message.authentication_level)),
        "auth_level": int(message.authentication_level),
        "priv_level": _signed(int(message.privacy_level), 32),
        "hash_alg": int(message.hash_algorithm),
        "encryption_alg": int(message.encryption_algorithm),
        "prov_type": message.authentication_provider_type if message.authentication_provider_name else None,
        "prov_name": clean(message.authentication_provider_name) or None,
        "sender_cert": message.sender_certificate or None,
        "signature": message.signature or None,
        "symm_key": message.symmetric_key or None,
        "body_type": message.body_type,
        "body_size": message.body_size,
        "body": message.body,
        "body_text": body_text(message.body_type, message.body),
        "extension": message.extension or None,
        "soap_envelope": clean(message.soap_envelope) or None,
        "soap_header": clean(message.soap_header) or None,
        "soap_body": clean(message.soap_body) or None,
        "compound_message": message.soap_compound_message or None,
    }


def body_text(body_type: int, body: bytes) -> str | None:
    """Return a body as text if its type says text and it is valid. Null characters stay."""
    encoding = TEXT_BODIES.get(body_type)
    if encoding is None:
        return None
    try:
        return body.decode(encoding)
    except UnicodeDecodeError:
        return None


def _expires_at(message: Message, kind: str) -> int | None:
    """Return the end of TimeToBeReceived; in outgoing queues, of TimeToReachQueue if earlier."""
    limit = message.time_to_be_received
    if kind == OUTGOING:
        limit = min(limit, message.time_to_reach_queue)
    return None if limit == INFINITE else (message.sent_time + limit) * MICROSECONDS


def _correlation(raw: bytes) -> dict[str, object]:
    if not any(raw):
        return {}
    return {"correlation_id": raw, "correlation_text": str(MessageIdentifier.unpack(Reader(raw)))}


def _name(name: FormatName | None) -> str | None:
    return None if name is None else clean(str(name))


def _guid(guid: UUID) -> str | None:
    return None if guid == GUID_NULL else str(guid)


def _signed(value: int, bits: int = 64) -> int:
    """Return the same bits as a signed number: Spark has no unsigned ones."""
    return value - (1 << bits) if value >> bits - 1 else value
