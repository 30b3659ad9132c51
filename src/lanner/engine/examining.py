"""Signatures and encrypted bodies of messages that arrive in a local queue (MS-MQQB 3.1.5.8.3).

`security.examination` does the cryptography. The examiner fetches its inputs from the queue manager
and the directory, and publishes the certificates of local users.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from lanner.directory import AttributeFilter, Operator
from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import GUID_NULL, InternalCertificate, QueueManager, User
from lanner.model.enums import DirectoryOperationResult, MessageClass, SenderIdentifierType
from lanner.model.errors import (
    CannotImpersonateClient,
    CorruptedSecurityData,
    MessageNotAuthenticated,
    NoDs,
    PublicKeyNotFound,
    RemoteProtocolError,
)
from lanner.security.certificates import add_certificate, remove_certificate
from lanner.security.examination import NO_KEYS, Examination, examine
from lanner.security.listed_keys import read_signing_keys
from lanner.security.signing import is_registered, is_signed
from lanner.wire.encrypted_body import clear_encrypted
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys
from lanner.wire.sid import sid_text
from lanner.wire.user_certificates import UserSignCert, UserSignCerts

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.engine.directory_events import DirectoryEvents
    from lanner.model.directory_objects import Queue
    from lanner.security.encryption import PrivateKeys
    from lanner.security.identity import Identity


def names_certified_sender(examination: Examination) -> bool:
    """Return whether there is a user to verify: the message is signed and names a user.

    The signature of a queue manager was verified with the key that the directory has for it.
    """
    return (
        bool(examination.authentication_level)
        and examination.message.sender_identifier_type is SenderIdentifierType.SID
    )


_LOG = logging.getLogger(__name__)


class Examiner:
    """Checks of the claims that a message makes about its sender."""

    def __init__(self, core: Core, directory_events: DirectoryEvents) -> None:
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._directory = directory_events

    def private_keys(self) -> PrivateKeys:
        """Return the private keys for messages encrypted for this queue manager."""
        keys = self._settings.private_keys
        return NO_KEYS if keys is None else keys()

    def signing_keys_of(self, message: Message) -> MqdsPublicKeys | None:
        """Return PublicSigningKeyList of the queue manager that signed the message.

        Returns None if a user signed it. DECISIONS: a certificate in the message must be one of the
        list, or belong to a key in it.
        """
        if message.sender_identifier_type is not SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER:
            return None
        identifier = uuid.UUID(bytes_le=message.sender_identifier)
        keys = self._queue_manager.public_signing_key_list
        if identifier != self._queue_manager.identifier:
            result, found = self._directory.read_directory(
                "QueueManager", identifier_is(identifier), ["PublicSigningKeyList"]
            )
            if result is not DirectoryOperationResult.SUCCESS or not isinstance(found, QueueManager):
                return None
            keys = found.public_signing_key_list
        try:
            return read_signing_keys(keys, message.sender_certificate)
        except RemoteProtocolError:
            return None

    def encryption_keys_of(self, identifier: uuid.UUID) -> MqdsPublicKeys:
        """Return PublicEncryptionKeyList of a queue manager (MS-MQQB 3.1.7.1.5).

        Raises NoDs or PublicKeyNotFound.
        """
        result, found = self._directory.read_directory(
            "QueueManager", identifier_is(identifier), ["PublicEncryptionKeyList"]
        )
        if result is DirectoryOperationResult.OBJECT_NOT_FOUND:
            raise PublicKeyNotFound(f"the directory has no queue manager {identifier}")
        if result is not DirectoryOperationResult.SUCCESS or not isinstance(found, QueueManager):
            raise NoDs(f"the directory did not return the keys of queue manager {identifier}: {result.name}")
        try:
            return MqdsPublicKeys.unpack(found.public_encryption_key_list)
        except RemoteProtocolError as error:
            raise PublicKeyNotFound(f"the keys of queue manager {identifier} cannot be read: {error}") from None

    def examine_message(self, message: Message) -> Examination:
        """Decrypt and verify a message in this thread.

        Transfer protocols call `security.examination` in another thread instead.
        """
        if not message.has_security_header:
            return examine(message)
        signing_keys = self.signing_keys_of(message) if is_signed(message) else None
        keys = self.private_keys() if message.is_body_encrypted else NO_KEYS
        return examine(message, keys, signing_keys=signing_keys, preferences=self._settings.encryption_preferences)

    def sender_checked(self, examination: Examination) -> Examination:
        """Return the examination, refused if the certificate is not the sender's (3.1.5.8.3)."""
        if examination.refusal is not None or examination.is_sender_known or not names_certified_sender(examination):
            return examination
        if self._is_sender_verified(examination.message):
            return replace(examination, is_sender_known=True)
        reason = "the directory has no such certificate for the sender"
        return replace(examination, refusal=MessageClass.NACK_BAD_SIGNATURE, reason=reason)

    def _is_sender_verified(self, message: Message) -> bool:
        """Return whether the directory has the message's certificate for the user that it names."""
        sid = message.sender_identifier
        try:
            internal = self._queue_manager.internal_certificate_collection.get(sid_text(sid))
            if internal is not None and internal.certificate == message.sender_certificate:
                return True
            user = self.read_user(sid)
            return user is not None and is_registered(message, UserSignCerts.unpack(user.certificates))
        except RemoteProtocolError:
            return False

    # Certificates of local users ------------------------------------------------------------------

    def register_certificate(self, identity: Identity, certificate: bytes, *, is_internal: bool = False) -> bool:
        """Publish a certificate on the user's object, where receivers look for it.

        Returns False if that fails. An internal certificate is registered here in any case
        (MS-MQDMPR 3.1.1.19).
        """
        user = self._user_of(identity)
        if user is None:
            return False
        if is_internal:
            collection = self._queue_manager.internal_certificate_collection
            collection[str(identity.sid)] = InternalCertificate(certificate, user)
        published = user.certificates
        add_certificate(user, certificate)
        if user.certificates == published:
            return True
        try:
            result = self._directory.write_directory(user, ["Certificates", "CertificateDigestList"], identity=identity)
        except CannotImpersonateClient as error:
            if not is_internal:
                raise
            _LOG.warning("signatures of %s can be verified on this computer only: %s", identity.name, error)
            return False
        return result is DirectoryOperationResult.SUCCESS

    def unregister_certificate(self, identity: Identity, certificate: bytes) -> bool:
        """Remove a certificate from the user's object; an internal one here too.

        Returns False if that fails.
        """
        collection = self._queue_manager.internal_certificate_collection
        internal = collection.get(str(identity.sid))
        if internal is not None and internal.certificate == certificate:
            del collection[str(identity.sid)]
        user = self._user_of(identity)
        if user is None:
            return False
        remove_certificate(user, UserSignCert(GUID_NULL, certificate).digest)
        result = self._directory.write_directory(user, ["Certificates", "CertificateDigestList"], identity=identity)
        return result is DirectoryOperationResult.SUCCESS

    def _user_of(self, identity: Identity) -> User | None:
        """Return the user's object.

        The embedded directory creates it on first use. A domain has an object for every user.
        """
        if identity.is_anonymous:
            return None
        sid = identity.sid.pack()
        found = self.read_user(sid)
        if found is None:
            self._directory.directory.ensure_user(identity.name, sid)
            found = self.read_user(sid)
        return found

    def read_user(self, sid: bytes) -> User | None:
        """Return the user object of a SID in the directory."""
        result, found = self._directory.read_directory(
            "User", [AttributeFilter("SecurityIdentifier", Operator.EQUALS, sid)]
        )
        is_found = result is DirectoryOperationResult.SUCCESS
        return found if is_found and isinstance(found, User) else None

    def examined_here(self, queue: Queue, message: Message) -> Message:
        """Return a message from this computer to a local queue in the form that is stored.

        Raises an error if it fails the examination.
        """
        if message.is_body_encrypted and not message.symmetric_key:
            # The body would be encrypted when the message is transferred, but it is not
            # transferred.
            message = Message(clear_encrypted(message.packet))
        examination = self.sender_checked(self.examine_message(message))
        if examination.refusal is None:
            return examination.message
        problem = f"message to {queue.pathname}: {examination.reason}"
        if examination.refusal is MessageClass.NACK_BAD_SIGNATURE:
            raise MessageNotAuthenticated(problem)
        raise CorruptedSecurityData(problem)
