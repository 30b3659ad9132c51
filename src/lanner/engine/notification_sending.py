"""The client side of MS-MQCN: notify a queue manager of a change to one of its objects (3.3).

The directory events raise Send Change Notification. This part prepares the message and sends it to
the notification queue of the owner, like any other message of the queue manager itself. An error
here never changes the result of the directory operation: it is logged, and the notification is
lost.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from lanner.directory import AttributeFilter, Operator
from lanner.engine.directory_events import ChangeNotification, identifier_is
from lanner.engine.notification_updates import update_of
from lanner.model.directory_objects import Queue, QueueManager
from lanner.model.enums import (
    DirectoryOperationResult,
    EnqueueStatus,
    HashAlgorithm,
    MessageClass,
    SenderIdentifierType,
)
from lanner.model.errors import LannerError, RemoteProtocolError
from lanner.security.listed_keys import lists_certificate
from lanner.security.signing import SigningKey, sign_properties
from lanner.wire.builder import MessageProperties
from lanner.wire.change_notification import (
    NOTIFY_QUEUE_NUMBER,
    ChangeNotificationMessage,
    NotificationBody,
    NotificationEvent,
)
from lanner.wire.format_name import PrivateFormatName
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.engine.acknowledgments import Acknowledger
    from lanner.engine.core import Core
    from lanner.engine.directory_events import Completion, DirectoryEvents
    from lanner.engine.registry import QueueRegistry
    from lanner.model.directory_objects import DirectoryObject

_LOG = logging.getLogger(__name__)

# MS-MQCN 3.3.5.3: seconds.
TIME_TO_REACH_QUEUE: Final = 300

_EVENTS: Final = {
    ChangeNotification.QUEUE_CREATION: NotificationEvent.CREATE_QUEUE,
    ChangeNotification.QUEUE_UPDATE: NotificationEvent.CHANGE_QUEUE,
    ChangeNotification.QUEUE_DELETION: NotificationEvent.DELETE_QUEUE,
    ChangeNotification.QUEUE_MANAGER_UPDATE: NotificationEvent.CHANGE_MACHINE,
}


class NotificationSending:
    """Sends a notification for each change to an object that another queue manager owns."""

    def __init__(
        self, core: Core, directory_events: DirectoryEvents, registry: QueueRegistry, acknowledger: Acknowledger
    ) -> None:
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._registry = registry
        self._directory = directory_events
        self._acknowledger = acknowledger
        directory_events.change_notification_subscribers.append(self.send_change_notification)

    def send_change_notification(
        self, operation: ChangeNotification, changed: DirectoryObject, attributes: Sequence[str] | None
    ) -> Completion:
        """3.3.4.1 Send Change Notification.

        Returns a function that sends the message once the directory has made the change, or None if
        no message is needed. DECISIONS: the owner of the changed object is notified, unless it is
        this queue manager.
        """
        if not self._queue_manager.directory_integrated:
            return None
        if isinstance(changed, QueueManager):
            owner = None if changed.identifier == self._queue_manager.identifier else changed.identifier
        else:
            owner = self._owner_of(changed)
        if owner is None:
            return None
        destination = owner

        def send(identifier: uuid.UUID) -> None:
            # The server of the change, read before any other call to the directory.
            server = self._directory.directory.server
            try:
                if self._is_version_1:
                    # 3.3.5.2, for a directory server.
                    own = self._queue_manager.identifier
                    update = update_of(operation, changed, attributes, identifier, master=own, owner=destination)
                    message = ChangeNotificationMessage.of_updates(update)
                else:
                    message = ChangeNotificationMessage.of_body(
                        NotificationBody(_EVENTS[operation], identifier, server)
                    )
                self._send(destination, message)
            except (LannerError, ValueError) as error:
                _LOG.warning("%s of %s: %s is not notified: %s", operation.value, identifier, destination, error)

        return send

    def _owner_of(self, changed: DirectoryObject) -> uuid.UUID | None:
        """Return the queue manager that owns a public queue.

        Returns None if it is this queue manager, or not known.
        """
        if not isinstance(changed, Queue):
            return None
        host = changed.queue_manager
        if host is not None:
            return None if host.identifier == self._queue_manager.identifier else host.identifier
        pathname = changed.pathname
        if not pathname:
            _, found = self._directory.read_directory("Queue", identifier_is(changed.identifier), ["Pathname"])
            pathname = found.pathname if isinstance(found, Queue) else ""
        try:
            computer = PathName.parse(pathname).computer
        except LannerError:
            return None
        if self._registry.is_local_host(computer):
            return None
        wanted = [AttributeFilter("ComputerName", Operator.EQUALS, computer)]
        result, owner = self._directory.read_directory("QueueManager", wanted, ["ComputerName"])
        if result is not DirectoryOperationResult.SUCCESS or owner is None:
            _LOG.warning("queue %s: the queue manager of %s is not notified: %s", pathname, computer, result.value)
            return None
        return None if owner.identifier == self._queue_manager.identifier else owner.identifier

    @property
    def _is_version_1(self) -> bool:
        """Whether to send version 0x01, which MS-MQCN 1.7 leaves to directory servers."""
        return self._settings.notifications.sends_version_1 and self._queue_manager.directory_server

    # Sending --------------------------------------------------------------------------------------

    def _send(self, destination: uuid.UUID, message: ChangeNotificationMessage) -> None:
        """3.3.5.3 Sending a Change Notification Message."""
        name = PrivateFormatName(destination, NOTIFY_QUEUE_NUMBER)
        properties = MessageProperties(
            body=message.message_body(),
            time_to_reach_queue=TIME_TO_REACH_QUEUE,
            message_class=MessageClass.NORMAL,
        )
        key = self._signing_key()
        self._name_sender(properties, key)
        signed = sign_properties(
            properties,
            key,
            source=self._queue_manager.identifier,
            destination=name,
            hash_algorithm=HashAlgorithm(properties.hash_algorithm),
        )
        # 3.3.3: Open Queue for the destination, now that it is known.
        status = self._acknowledger.send_own_message(name, signed, for_others=False)
        if status is None:
            raise RemoteProtocolError("its notification queue cannot be opened for sending")
        if status is not EnqueueStatus.OK:
            raise RemoteProtocolError(f"the message cannot be stored: {status.name}")

    def _signing_key(self) -> SigningKey:
        """Return a signing key that receivers can verify.

        It is one that the directory lists, if there is any.
        """
        keys = () if self._settings.signing_keys is None else self._settings.signing_keys()
        if not keys:
            raise RemoteProtocolError("this queue manager has no keys to sign the notification with")
        published = self._queue_manager.public_signing_key_list
        return next((key for key in keys if lists_certificate(published, key.certificate)), keys[0])

    def _name_sender(self, properties: MessageProperties, key: SigningKey) -> None:
        """Set the sender of a notification (3.3.5.3, DECISIONS).

        Version 0x01 comes from this queue manager, which signs it. Version 0x02 comes from the
        account of this computer, if the domain lists its certificate. Otherwise it names no sender,
        because a receiver would not find the certificate and would refuse the message.
        """
        if self._is_version_1:
            properties.sender_identifier_type = SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
            properties.sender_identifier = self._queue_manager.identifier.bytes_le
            return
        sid = None
        if lists_certificate(self._queue_manager.public_signing_key_list, key.certificate, as_user=True):
            sid = self._directory.directory.computer_sid(self._queue_manager.computer_name)
        if sid is None:
            properties.sender_identifier_type = SenderIdentifierType.NONE
        else:
            properties.sender_identifier = sid
