"""Whose rights an arriving message has (MS-MQQB 3.1.5.8.3).

Nothing on the wire proves a sender but a signature; the identifier in an unsigned message is what its sender says. The document has it
checked all the same: an access list keeps out mistakes, `Authentication` of a queue keeps out liars.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

from lanner.model.enums import SenderIdentifierType
from lanner.model.errors import RemoteProtocolError
from lanner.security.identity import ANONYMOUS, Identity
from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.sid import ANONYMOUS_LOGON, EVERYONE, NT_AUTHORITY, Sid

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.wire.message import Message

_LOG = logging.getLogger(__name__)

# ST 2: "userSID MUST be set to the well-known SID ... S-1-1-0". Everyone and nobody else: no authenticated user.
EVERYONE_ALONE: Final = Identity("Everyone", EVERYONE, is_guest=True)

# UserHeader.Flags of a packet that names no queue but its destination, directly, and has no headers of a rare kind.
_ONLY = 7 << at.DQ_SHIFT | 7 << at.AQ_SHIFT | 7 << at.RQ_SHIFT | at.CQ | at.MQ | at.HH
_DIRECT = names.DIRECT_QUEUE << at.DQ_SHIFT
_COUNT = struct.Struct("<H").unpack_from
# SecurityHeader: Flags and SecurityIDSize, and the sizes of everything else.
_SECURITY = struct.Struct("<HHQI").unpack_from
_PRIVACY_LEVEL = 40  # in MessagePropertiesHeader
_NO_PRIVACY = bytes(4)
_FOR_EVER = b"\xff\xff\xff\xff"
_NOBODY = b""
_QUEUE_MANAGER = EVERYONE.pack()  # with the rights of Everyone, whichever it is


def plain_sender(packet: bytes, user_flags: int) -> bytes | None:
    """The SID of a message in which there is nothing else to check, empty if it names nobody; None: look closer.

    Plain is: no signature, nothing encrypted, no claim about either, no TimeToBeReceived.
    """
    if user_flags & _ONLY != _DIRECT or packet[48:52] != _FOR_EVER:
        return None
    position = at.DESTINATION_OFFSET + (int(_COUNT(packet, at.DESTINATION_OFFSET)[0]) + 5 & ~3)
    if user_flags & at.TH:
        position += at.TRANSACTION_HEADER_SIZE + 16 * (packet[position] & at.CG)
    sender = _NOBODY
    if user_flags & at.SH:
        flags, size, key_and_signature_and_certificate, provider = _SECURITY(packet, position)
        if key_and_signature_and_certificate or provider:
            return None
        position += at.SECURITY_HEADER_SIZE
        if flags == SenderIdentifierType.SID:
            sender = packet[position : position + size]
        elif flags == SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER:
            sender = _QUEUE_MANAGER
        else:
            return None
        position += size + 3 & ~3
    position += _PRIVACY_LEVEL
    return sender if packet[position : position + 4] == _NO_PRIVACY else None


class IncomingSenders:
    """Senders as access checks see them, remembered until `forget`: while the store's lock is held nothing changes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._identities: dict[bytes, Identity | None] = {}

    def forget(self) -> None:
        self._identities.clear()

    def sender_of(self, message: Message) -> Identity | None:
        """None: it cannot be found out, which is to have no rights."""
        kind = message.sender_identifier_type
        if kind is SenderIdentifierType.NONE:
            return ANONYMOUS
        if kind is not SenderIdentifierType.SID:
            return EVERYONE_ALONE
        sid = message.sender_identifier
        if sid not in self._identities:
            self._identities[sid] = self._identity_of(sid)
        return self._identities[sid]

    def _identity_of(self, data: bytes) -> Identity | None:
        try:
            sid = Sid.unpack(data)
        except RemoteProtocolError as error:
            _LOG.warning("a sender's SID cannot be read, it has no rights: %s", error)
            return None
        if sid == ANONYMOUS_LOGON:
            return ANONYMOUS
        if sid.identifier_authority <= NT_AUTHORITY and not sid.is_account:
            # A group, or a service of the sender's own computer (MS-DTYP 2.4.2.4), the local system for one: every computer
            # has its own, and this is not ours.
            return EVERYONE_ALONE
        resolve = self._engine.settings.resolve_identity
        try:
            identity = None if resolve is None else resolve(sid)
        except Exception:  # noqa: BLE001 (whatever the resolver is)
            _LOG.exception("the groups of %s cannot be found out, it has no rights", sid)
            return None
        # A user of whom nobody here has heard is in no group but Everyone.
        return identity or Identity(str(sid), sid, is_guest=True)
