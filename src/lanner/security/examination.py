"""The checks of a receiving queue manager on one message (MS-MQQB 3.1.5.8.3).

RSA takes time, so this is a pure function: a transfer protocol can call it in a thread and pass the
result to the engine's `insert_message`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lanner.model.enums import AuthenticationLevel, MessageClass
from lanner.security.encryption import (
    DEFAULT_PREFERENCES,
    EncryptionPreferences,
    PrivateKeys,
    check_privacy_level,
    decrypt_body,
)
from lanner.security.refusal import Refusal
from lanner.security.signing import verify
from lanner.wire.builder import set_authentication
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys

NO_KEYS: Final[PrivateKeys] = {}


@dataclass(frozen=True, slots=True)
class Examination:
    """The message to be kept (body in clear, AS as verified), or why it is refused."""

    message: Message
    authentication_level: AuthenticationLevel = AuthenticationLevel.NONE
    was_encrypted: bool = False
    refusal: MessageClass | None = None
    reason: str = ""
    # The certificate is known as the sender's already (UserCertCache of MS-MQQB 3.1.1.3), so the
    # directory need not be asked.
    is_sender_known: bool = False

    @classmethod
    def refused(cls, message: Message, refusal: Refusal) -> Examination:
        return cls(
            message,
            was_encrypted=message.is_body_encrypted,
            refusal=refusal.message_class,
            reason=refusal.reason,
        )


def is_examined_at_once(message: Message) -> bool:
    """Return whether an examination of this message has nothing to compute."""
    return not message.has_security_header or not (
        message.is_body_encrypted or message.signature or message.multiple_destination_signature
    )


def examine(
    message: Message,
    private_keys: PrivateKeys = NO_KEYS,
    *,
    signing_keys: MqdsPublicKeys | None = None,
    symmetric_key: bytes | None = None,
    preferences: EncryptionPreferences = DEFAULT_PREFERENCES,
    is_sender_known: bool = False,
) -> Examination:
    """Decrypt, then verify (DECISIONS).

    AS is set to the level that was verified here. The value in the packet is ignored.
    """
    was_encrypted = message.is_body_encrypted
    try:
        check_privacy_level(message)
        if not message.has_security_header:
            return Examination(message)
        packet = decrypt_body(message.packet, private_keys, symmetric_key=symmetric_key, preferences=preferences)
        plain = message if packet is message.packet else Message(packet)
        level = verify(plain, signing_keys, preferences)
    except Refusal as refusal:
        return Examination.refused(message, refusal)
    if plain.authentication_level != level or plain.is_marked_authenticated:
        plain = Message(set_authentication(packet, level))
    return Examination(plain, level, was_encrypted, is_sender_known=is_sender_known)
