"""Whether the sender that a message names is proven, or only a claim.

A receiving queue manager writes what it has verified into AS of the packet, and clears any value
that a peer has put there (`transfer/incoming.py`). A message that was sent through this queue
manager has its identifier as SourceQueueManager, and its sender logged on here; such a message is
never accepted from a peer. So the packet and the identity of the queue manager that keeps it are
sufficient, and nothing else is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.model.enums import AuthenticationLevel, SenderIdentifierType
from lanner.wire.sid import ANONYMOUS_LOGON

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.wire.message import Message

ANONYMOUS_SID: Final = ANONYMOUS_LOGON.pack()


def is_sender_verified(message: Message, keeper: UUID | None) -> bool | None:
    """Return whether the sender of a message in a queue is proven; None if that cannot be known.

    `keeper` is the identifier of the Lanner that keeps the message. None stands for a queue manager
    of another maker, which reports only on signatures. A message without a sender has no proven
    sender.
    """
    kind = message.sender_identifier_type
    sender = message.sender_identifier
    if kind is SenderIdentifierType.NONE or not sender or sender == ANONYMOUS_SID:
        return False
    level = message.authentication_level
    # Not SIG10: from any message of the sender, forged ones can be made that have its 1.0 hash.
    if level > AuthenticationLevel.SIG10:
        return True
    if keeper is None:
        return False if level else None
    # Users may name the queue manager as the sender, so only a signature proves that it is.
    return kind is SenderIdentifierType.SID and message.source_machine_identifier == keeper
