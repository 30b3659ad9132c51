"""The reasons why a message could not be delivered, in words.

The class of a dead letter is that of the negative acknowledgment.
"""

from __future__ import annotations

from typing import Final

from lanner.model.enums import MessageClass

_REASONS: Final = {
    MessageClass.NACK_BAD_DEST_QUEUE: "its queue does not exist",
    MessageClass.NACK_PURGED: "it was purged before it had reached its queue",
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: "it did not reach its queue in time",
    MessageClass.NACK_QUEUE_EXCEED_QUOTA: "its queue was full",
    MessageClass.NACK_ACCESS_DENIED: "its sender may not send to its queue",
    MessageClass.NACK_HOP_COUNT_EXCEEDED: "it passed too many computers",
    MessageClass.NACK_BAD_SIGNATURE: "its signature was wrong",
    MessageClass.NACK_BAD_ENCRYPTION: "it could not be decrypted",
    MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE: "it was transactional, and its queue is not",
    MessageClass.NACK_NOT_TRANSACTIONAL_MESSAGE: "its queue is transactional, and it was not",
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: "its signature or encryption is of a kind that is not known",
    MessageClass.NACK_QUEUE_DELETED: "its queue was deleted before it was received",
    MessageClass.NACK_QUEUE_PURGED: "its queue was purged before it was received",
    MessageClass.NACK_RECEIVE_TIMEOUT: "it was not received in time",
    MessageClass.NACK_RECEIVE_TIMEOUT_AT_SENDER: "its sender did not hear in time that it was received",
    MessageClass.NACK_RECEIVE_REJECTED: "its receiver rejected it",
}


def reason_of(message_class: int) -> str | None:
    """Return why a message of a class was not delivered; None for other classes."""
    return next((text for known, text in _REASONS.items() if known == message_class), None)
