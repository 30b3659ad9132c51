"""Why the signature or body of a message is rejected: the class of the negative acknowledgment."""

from __future__ import annotations

from lanner.model.enums import MessageClass


class Refusal(Exception):
    """MS-MQQB 3.1.5.8.3: the message must be rejected.

    `message_class` is reported to its sender.
    """

    def __init__(self, message_class: MessageClass, reason: str) -> None:
        super().__init__(reason)
        self.message_class = message_class
        self.reason = reason

    @classmethod
    def bad_signature(cls, reason: str) -> Refusal:
        return cls(MessageClass.NACK_BAD_SIGNATURE, reason)

    @classmethod
    def bad_encryption(cls, reason: str) -> Refusal:
        return cls(MessageClass.NACK_BAD_ENCRYPTION, reason)

    @classmethod
    def unsupported_provider(cls, reason: str) -> Refusal:
        return cls(MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER, reason)
