"""The dead-letter queues that messages name: ApplicationDeadletterQueue (MS-MQDMPR 3.1.1.12).

Not in the specification: a sender must have the right to send the message to its dead-letter queue.
Otherwise each user could put messages into queues that it may not send to. The rights are checked
when the message is sent, and again when it becomes a dead letter, if the message names its sender
(that of a local account is withheld on the way to other computers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessagePrivacyLevel, QueueAccessType, QueuePrivacyLevel, SenderIdentifierType
from lanner.model.errors import AccessDenied, StatusError
from lanner.security.identity import SYSTEM, Identity
from lanner.wire.path_name import PathName
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.engine.registry import QueueRegistry
    from lanner.model.directory_objects import Queue
    from lanner.wire.message import Message


class ApplicationDeadletters:
    """Finds the dead-letter queue of a message and checks whether its sender may use it."""

    def __init__(self, core: Core, registry: QueueRegistry) -> None:
        self._access = core.access
        self._settings = core.settings
        self._registry = registry

    def check_sender(self, pathname: str, sid: bytes) -> None:
        """Raise AccessDenied if a sender may not send to the dead-letter queue of its message."""
        queue = self._find(pathname)
        if queue is None:
            return
        identity = self.identity_of(Sid.unpack(sid))
        try:
            self._access.check_open(queue, QueueAccessType.SEND, identity)
        except AccessDenied as error:
            raise AccessDenied(
                f"{error.args[0]}, which the message names as its dead-letter queue; name another one, or none"
            ) from None

    def queue_for(self, message: Message) -> Queue | None:
        """Return the queue that a message of this computer names, if it may be put there."""
        queue = self._find(message.application_deadletter_queue)
        if queue is None or not _takes(queue, message):
            return None
        if message.sender_identifier_type == SenderIdentifierType.SID:
            try:
                self.check_sender(message.application_deadletter_queue, message.sender_identifier)
            except StatusError:
                return None
        return queue

    def _find(self, pathname: str) -> Queue | None:
        if not pathname:
            return None
        try:
            queue = self._registry.find_by_path(PathName.parse(pathname))
        except StatusError:
            return None
        # Programs cannot send to a journal or to another queue of the queue manager itself.
        return None if queue is None or queue.is_system or isinstance(queue, OutgoingQueue) else queue

    def identity_of(self, sid: Sid) -> Identity:
        """Return the identity of a SID that the engine wrote into a message."""
        if sid == SYSTEM.sid:
            return SYSTEM
        resolve = self._settings.resolve_identity
        return (resolve(sid) if resolve is not None else None) or Identity(str(sid), sid)


def _takes(queue: Queue, message: Message) -> bool:
    """Return whether a queue's Transactional, Authentication and PrivacyLevel allow a message."""
    is_private = message.privacy_level != MessagePrivacyLevel.NONE
    return (
        queue.transactional == message.is_transactional
        # A signature was verified only if the message was in a local queue.
        and (not queue.authentication or bool(message.authentication_level))
        and queue.privacy_level is not (QueuePrivacyLevel.NONE if is_private else QueuePrivacyLevel.BODY)
    )
