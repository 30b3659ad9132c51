"""The sender that an arriving message names (MS-MQQB 3.1.5.8.3).

Only a signature proves a sender; the identifier in an unsigned message is a claim. This module
returns the identity that the message names, with its groups. `engine/admission.py` decides how much
a claim is worth.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from lanner.model.enums import SenderIdentifierType
from lanner.model.errors import RemoteProtocolError
from lanner.security.identity import ANONYMOUS, EVERYONE_ALONE, Identity
from lanner.security.log_lines import log_of_peer
from lanner.wire.plain_sender import NO_SENDER, QUEUE_MANAGER
from lanner.wire.sid import ANONYMOUS_LOGON, NT_AUTHORITY, Sid

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.wire.message import Message

_LOG = logging.getLogger(__name__)

# Not in the specification: number of SIDs cached in decoded form.
_MAX_SIDS: Final = 1024


@lru_cache(maxsize=_MAX_SIDS)
def _read_sid(data: bytes) -> Sid:
    return Sid.unpack(data)


class IncomingSenders:
    """Senders as access checks see them, cached until `forget`.

    The cache is valid because nothing changes while the store's lock is held.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._identities: dict[bytes, Identity | None] = {}

    def forget(self) -> None:
        self._identities.clear()

    def sender_of(self, message: Message) -> Identity | None:
        """Return the sender that a message names; None if the identity cannot be determined."""
        kind = message.sender_identifier_type
        if kind is SenderIdentifierType.NONE:
            return ANONYMOUS
        if kind is not SenderIdentifierType.SID:
            return EVERYONE_ALONE
        return self._identity(message.sender_identifier)

    def plain_sender_of(self, sender: bytes) -> Identity | None:
        """Return the same for a result of `plain_sender`."""
        if sender == NO_SENDER:
            return ANONYMOUS
        return EVERYONE_ALONE if sender == QUEUE_MANAGER else self._identity(sender)

    def _identity(self, sid: bytes) -> Identity | None:
        if sid not in self._identities:
            self._identities[sid] = self._identity_of(sid)
        return self._identities[sid]

    def _identity_of(self, data: bytes) -> Identity | None:
        try:
            sid = _read_sid(data)
        except RemoteProtocolError as error:
            log_of_peer(_LOG, logging.WARNING, "SID", "", "a sender's SID cannot be read: %s", error)
            return None
        if sid == ANONYMOUS_LOGON:
            return ANONYMOUS
        if sid.identifier_authority <= NT_AUTHORITY and not sid.is_account:
            # A group, or a service of the sender's own computer (MS-DTYP 2.4.2.4), such as its
            # local system: every computer has its own, and this one is not ours.
            return EVERYONE_ALONE
        resolve = self._engine.settings.resolve_identity
        try:
            identity = None if resolve is None else resolve(sid)
        except Exception:  # noqa: BLE001 (whatever the resolver is)
            text = "the groups of the sender %s cannot be determined"
            log_of_peer(_LOG, logging.ERROR, "groups", "", text, sid, exc_info=True)
            return None
        # A user unknown to this computer is in no group but Everyone.
        return identity or Identity(str(sid), sid, is_guest=True)
