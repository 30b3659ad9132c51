"""Texts for the reasons why a message was dead-lettered or refused (MS-MQMQ 2.2.18.1.6)."""

from __future__ import annotations

from typing import Final

from lanner.model.enums import MessageClass

_REASONS: Final = {
    MessageClass.NACK_BAD_DEST_QUEUE: "there is no such queue",
    MessageClass.NACK_PURGED: "removed before it was sent",
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: "not delivered in time",
    MessageClass.NACK_QUEUE_EXCEED_QUOTA: "the queue was full",
    MessageClass.NACK_ACCESS_DENIED: "the sender may not send there",
    MessageClass.NACK_HOP_COUNT_EXCEEDED: "too many hops",
    MessageClass.NACK_BAD_SIGNATURE: "the signature is not valid",
    MessageClass.NACK_BAD_ENCRYPTION: "cannot be decrypted",
    MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE: "the queue is not transactional",
    MessageClass.NACK_NOT_TRANSACTIONAL_MESSAGE: "the queue is transactional, the message is not",
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: "unknown cryptographic provider",
    MessageClass.NACK_QUEUE_DELETED: "the queue was deleted",
    MessageClass.NACK_QUEUE_PURGED: "the queue was purged",
    MessageClass.NACK_RECEIVE_TIMEOUT: "not received in time",
    MessageClass.NACK_RECEIVE_TIMEOUT_AT_SENDER: "its receipt was not reported in time",
    MessageClass.NACK_RECEIVE_REJECTED: "rejected by the reader",
}


def reason_text(message_class: int) -> str:
    """Return the reason of a negative acknowledgment, or the name or number of another class."""
    try:
        known = MessageClass(message_class)
    except ValueError:
        return f"class {message_class:#06x}"
    return _REASONS.get(known, known.name.lower())
