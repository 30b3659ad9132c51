"""Encryption of outgoing messages; decryption and signature checks of incoming ones.

Implements MS-MQQB 3.1.7.1.5 and 3.1.5.8.3. The cryptography is in `security`. This module has the
caches that a queue manager keeps between messages, and decides what is slow enough for a thread.
All methods are called in one thread, the loop's, and so are their callbacks.

A sender signs a message before it enters its outgoing queue (`security.signing`), because only the
sender has its key. So the signature covers the plain body, as the order of 3.1.7.1 requires.
Sequence numbers may be written into the packet before or after, because neither the signature nor
the encryption covers them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    ConnectionStatus,
    EncryptionAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    QueueNameType,
    SenderIdentifierType,
)
from lanner.model.errors import CorruptedSecurityData, StatusError, UnsupportedFormatnameOperation
from lanner.security.encryption import SessionKey, encrypt_body, open_symmetric_key, select
from lanner.security.examination import NO_KEYS, Examination, examine, is_examined_at_once
from lanner.security.key_cache import (
    ReceiveKeyIdentity,
    ReceiveSymmetricKeyCache,
    SendKeyIdentity,
    SendSymmetricKeyCache,
    UserCertCache,
)
from lanner.security.log_lines import log_of_peer
from lanner.security.refusal import Refusal
from lanner.security.signing import is_signed
from lanner.transfer.deadlines import NEVER, Deadline
from lanner.wire.message import Message

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.security.encryption import Selection
    from lanner.wire.public_keys import MqdsPublicKeys

    # Calls the first function in a thread, then the second one with its result in the loop's
    # thread. The third argument is the peer who causes the work; None: this computer.
    RunInThread = Callable[[Callable[[], Any], Callable[[Any], None], str | None], None]
    Done = Callable[[Examination], None]

_LOG = logging.getLogger(__name__)

# Not in the specification: bytes of a body that are encrypted or decrypted faster than a thread can
# be started.
_QUICK_BODY: Final = 0x1_0000
# 3.1.7.1.5: "a public format name or a private format name".
_ENCRYPTABLE: Final = frozenset({QueueNameType.PUBLIC_QUEUE, QueueNameType.PRIVATE_QUEUE_ON_DESTINATION})


class EncryptionFailed(Exception):
    """Raised if a message must not be sent and leaves its queue (3.1.7.1.5.1).

    Its attributes are for the entry in ConnectionHistory.
    """

    status = ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE
    # The class of the refusal. The documents list none for this; the nearest is that of a receiver
    # who cannot decrypt.
    message_class = MessageClass.NACK_BAD_ENCRYPTION

    def __init__(self, cause: StatusError) -> None:
        super().__init__(str(cause))
        self.error = cause.status  # HRESULT


@dataclass(slots=True)
class _Encrypting:
    """The message at the head of an outgoing queue, and the result of its encryption."""

    packet: bytes = field(repr=False)
    remote_qm_guid: UUID
    encrypted: bytes | None = field(default=None, repr=False)
    failure: EncryptionFailed | None = None

    @property
    def is_over(self) -> bool:
        return self.encrypted is not None or self.failure is not None


class Protection:
    """Protection of messages in transit, for all sessions of a queue manager."""

    def __init__(self, engine: Engine, *, run_in_thread: RunInThread, ready: Callable[[OutgoingQueue], None]) -> None:
        self._engine = engine
        self._run_in_thread = run_in_thread
        # Called when `protect` has an answer that it did not have before.
        self._ready = ready
        self.send_symmetric_key_cache = SendSymmetricKeyCache(engine.monotonic)
        self.receive_symmetric_key_cache = ReceiveSymmetricKeyCache(engine.monotonic)
        self.user_cert_cache = UserCertCache(engine.monotonic)
        self._caches = (self.send_symmetric_key_cache, self.receive_symmetric_key_cache, self.user_cert_cache)
        # The earliest of the cleanup timers of 3.1.2.10-13.
        self.deadline = Deadline()
        # RemoteQMPublicKey of each session (3.1.1.3.1), by the queue manager at its end; see
        # `_recipient`.
        self._remote_qm_public_key: dict[UUID, dict[UUID, MqdsPublicKeys]] = {}
        # By the number of the outgoing queue, which sends one message after the other.
        self._encrypting: dict[int, _Encrypting] = {}
        # Queues and messages that wait for a key that is being created or decrypted.
        self._wrapping: dict[SendKeyIdentity, list[OutgoingQueue]] = {}
        self._opening: dict[ReceiveKeyIdentity, list[Callable[[], None]]] = {}

    def on_timer(self, _now: float) -> None:
        """Handle a cleanup timer event of 3.1.2.10-13."""
        for cache in self._caches:
            cache.on_timer()
        self._set_deadline()

    def _set_deadline(self) -> None:
        """Update the deadline, because a cache has changed."""
        deadlines = [deadline for cache in self._caches if (deadline := cache.next_deadline()) is not None]
        self.deadline.set(min(deadlines, default=NEVER))

    # Sending
    # ----------------------------------------------------------------------------------------------

    def session_closed(self, remote_qm_guid: UUID) -> None:
        """Forget the keys of a queue manager, so that the next session asks the directory again."""
        self._remote_qm_public_key.pop(remote_qm_guid, None)
        for number, one in list(self._encrypting.items()):
            if one.remote_qm_guid == remote_qm_guid:
                del self._encrypting[number]

    def is_to_encrypt(self, message: Message) -> bool:
        """Return whether an outgoing message must be encrypted here.

        A message of another queue manager is forwarded as it came. One that has a key and EB was
        encrypted by the application.
        """
        return (
            message.privacy_level != MessagePrivacyLevel.NONE
            and not (message.is_body_encrypted and message.symmetric_key)
            and message.source_machine_identifier == self._engine.queue_manager.identifier
        )

    def protect(self, packet: bytes, remote_qm_guid: UUID, queue: OutgoingQueue) -> bytes | None:
        """Return the packet as it may be sent to a queue manager, or None.

        After None, `ready` is called with the queue, and then the same call has the answer. Raises
        EncryptionFailed.
        """
        message = Message(packet)
        if not self.is_to_encrypt(message):
            return packet
        current = self._encrypting.get(queue.number)
        if current is not None and current.packet == packet and current.remote_qm_guid == remote_qm_guid:
            return self._answer(queue, current) if current.is_over else None
        try:
            return self._protect(message, remote_qm_guid, queue)
        except StatusError as error:
            raise EncryptionFailed(error) from error

    def _answer(self, queue: OutgoingQueue, current: _Encrypting) -> bytes | None:
        del self._encrypting[queue.number]
        if current.failure is not None:
            raise current.failure
        return current.encrypted

    def _protect(self, message: Message, remote_qm_guid: UUID, queue: OutgoingQueue) -> bytes | None:
        if message.destination_queue_type not in _ENCRYPTABLE:
            raise UnsupportedFormatnameOperation(
                f"{message.destination_queue_format_name}: a message with a privacy level goes to public and private "
                "format names only"
            )
        recipient = _recipient(message, remote_qm_guid)
        keys = self._public_keys(remote_qm_guid, recipient)
        selection = select(keys, message.privacy_level, self._engine.settings.encryption_preferences)
        identity = SendKeyIdentity.of(recipient, selection)
        session_key = self.send_symmetric_key_cache.find(identity)
        if session_key is not None and _is_quick(session_key.algorithm, message.body_size):
            return encrypt_body(message.packet, session_key)
        current = self._encrypting[queue.number] = _Encrypting(message.packet, remote_qm_guid)
        if session_key is not None:
            self._encrypt(queue, current, session_key)
        elif identity not in self._wrapping:
            self._wrapping[identity] = [queue]
            self._wrap(identity, selection)
        elif queue not in self._wrapping[identity]:
            self._wrapping[identity].append(queue)
        return None

    def _public_keys(self, remote_qm_guid: UUID, recipient: UUID) -> MqdsPublicKeys:
        of_session = self._remote_qm_public_key.setdefault(remote_qm_guid, {})
        if recipient not in of_session:
            with self._engine.store.lock:
                of_session[recipient] = self._engine.encryption_keys_of(recipient)
        return of_session[recipient]

    def _wrap(self, identity: SendKeyIdentity, selection: Selection) -> None:
        def done(made: SessionKey | StatusError) -> None:
            if isinstance(made, SessionKey):
                self.send_symmetric_key_cache.add(identity, made)
                self._set_deadline()
            for queue in self._wrapping.pop(identity):
                if isinstance(made, SessionKey):
                    self._encrypting.pop(queue.number, None)
                elif queue.number in self._encrypting:
                    self._encrypting[queue.number].failure = EncryptionFailed(made)
                self._ready(queue)

        self._run_in_thread(lambda: _outcome(lambda: SessionKey.generate(selection)), done, None)

    def _encrypt(self, queue: OutgoingQueue, current: _Encrypting, session_key: SessionKey) -> None:
        def done(made: bytes | StatusError) -> None:
            if isinstance(made, bytes):
                current.encrypted = made
            else:
                current.failure = EncryptionFailed(made)
            if self._encrypting.get(queue.number) is current:
                self._ready(queue)

        self._run_in_thread(lambda: _outcome(lambda: encrypt_body(current.packet, session_key)), done, None)

    # Receiving
    # ---------------------------------------------------------------------------------------------

    def examine(
        self, message: Message, done: Done, whose: str | None = None, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Decrypt and verify a message to this queue manager.

        `done` is called with the result, which `insert_message` takes. If nothing is slow, that
        happens before this method returns. `whose` is the peer that sent the message. `is_wanted`,
        which is called in a thread, returns False if the result is no longer needed.
        """
        if is_examined_at_once(message):
            done(examine(message))
            return
        identity = ReceiveKeyIdentity.of(message)
        key = None if identity is None else self.receive_symmetric_key_cache.find(identity)
        if identity is not None and key is None:
            if identity in self._opening:
                # One RSA operation suffices for all messages with the same key.
                self._opening[identity].append(partial(self.examine, message, done, whose, is_wanted))
                return
            self._opening[identity] = []
        work = self._examination(message, identity, key, is_wanted)

        def finish(result: tuple[Examination, bytes | None]) -> None:
            examination, opened = result
            waiting: list[Callable[[], None]] = []
            if identity is not None and key is None:
                waiting = self._opening.pop(identity)
                if opened is not None:
                    self.receive_symmetric_key_cache.add(identity, opened)
                    self._set_deadline()
            done(self._with_sender(examination))
            for examine_another in waiting:
                examine_another()

        if key is not None and not is_signed(message) and _is_quick(message.encryption_algorithm, message.body_size):
            finish(work())
        else:
            self._run_in_thread(work, finish, whose)

    def _examination(
        self,
        message: Message,
        identity: ReceiveKeyIdentity | None,
        symmetric_key: bytes | None,
        is_wanted: Callable[[], bool],
    ) -> Callable[[], tuple[Examination, bytes | None]]:
        """Return the work for a thread: it returns the examination and the decrypted key."""
        engine = self._engine
        preferences = engine.settings.encryption_preferences
        signing_keys = None
        is_known = False
        if is_signed(message):
            with engine.store.lock:
                signing_keys = engine.signing_keys_of(message)
            is_known = message.sender_identifier_type is SenderIdentifierType.SID and self.user_cert_cache.knows(
                message
            )

        def work() -> tuple[Examination, bytes | None]:
            if not is_wanted():
                return Examination.refused(message, Refusal.bad_signature("its session has ended")), None
            key = symmetric_key
            try:
                if identity is not None and key is None:
                    key = open_symmetric_key(message, engine.private_keys(), preferences)
                examination = examine(
                    message,
                    NO_KEYS,
                    signing_keys=signing_keys,
                    symmetric_key=key,
                    preferences=preferences,
                    is_sender_known=is_known,
                )
            except Refusal as refusal:
                return Examination.refused(message, refusal), None
            except Exception:  # noqa: BLE001 - a peer chose these octets
                # Whatever these bytes cause, the session must not wait forever.
                text = "message %s cannot be examined"
                log_of_peer(_LOG, logging.ERROR, "examined", "", text, message.identifier, exc_info=True)
                wrong = Refusal.bad_encryption if message.is_body_encrypted else Refusal.bad_signature
                return Examination.refused(message, wrong("it cannot be examined")), None
            return examination, key

        return work

    def _with_sender(self, examination: Examination) -> Examination:
        """Check that the directory has the certificate for the sender (3.1.5.8.3).

        A success is cached.
        """
        if examination.refusal is not None or examination.is_sender_known:
            return examination
        with self._engine.store.lock:
            examination = self._engine.sender_checked(examination)
        if examination.is_sender_known:
            self.user_cert_cache.note(examination.message)
            self._set_deadline()
        return examination


def _recipient(message: Message, remote_qm_guid: UUID) -> UUID:
    """Return the queue manager whose key encrypts a message: its destination.

    The document names RemoteQMGuid, which behind a router is the router. But no router decrypts
    (3.1.5.8.3: "If QueueManagerAddress is equal to QueueManager.Identifier"), so a router's key
    would be useless.
    """
    address = message.destination_queue_manager_identifier
    return remote_qm_guid if address == GUID_NULL else address


def _is_quick(algorithm: int, size: int) -> bool:
    return size <= _QUICK_BODY and algorithm != EncryptionAlgorithm.RC2


def _outcome(function: Callable[[], SessionKey | bytes]) -> SessionKey | bytes | StatusError:
    """Return the function's result, or the status of its failure."""
    try:
        return function()
    except StatusError as error:
        return error
    except Exception as error:  # noqa: BLE001 - the queue behind this message must not wait for ever
        _LOG.exception("a message cannot be encrypted")
        return CorruptedSecurityData(f"{type(error).__name__}")
