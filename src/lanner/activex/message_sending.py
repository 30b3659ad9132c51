"""IMSMQMessage::Send: sender, signature, destination and transaction of a message.

MC-MQAC 3.17.4.1.48 and 3.17.4.1.49.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    INFINITE,
    AuthenticationLevel,
    EnqueueStatus,
    HashAlgorithm,
    MessageClass,
    SenderIdentifierType,
)
from lanner.model.errors import (
    CannotSignDataEx,
    IllegalPropertyValue,
    InsufficientProperties,
    MissingConnectorType,
    NoInternalUserCert,
)
from lanner.security.signing import sign_properties
from lanner.services.sending import check_sender, name_here, refusal
from lanner.wire.format_name import DirectFormatName, FormatName, MultipleElementFormatName
from lanner.wire.identifiers import MessageIdentifier

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.activex.message_state import MessageState
    from lanner.activex.transaction import TransactionArgument
    from lanner.host.change import Change
    from lanner.model.live import OpenQueueDescriptor, Transaction
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.wire.builder import MessageProperties

# 2.2.2.16 MQMSGAUTHLEVEL. MQMSG_AUTH_LEVEL_ALWAYS means the newest kind of signature.
AUTH_LEVEL_ALWAYS: Final = 1
SIGNATURE_LEVELS: Final = {
    AUTH_LEVEL_ALWAYS: AuthenticationLevel.SIG30,
    2: AuthenticationLevel.SIG10,
    4: AuthenticationLevel.SIG20,
    8: AuthenticationLevel.SIG30,
}
# Attributes of MessageState that only a connector may set (3.17.4.1.48).
CONNECTOR_PROPERTIES: Final = frozenset(
    ("message_class", "sender_identifier", "symmetric_key", "signature", "authentication_provider_name")
)


@dataclass(frozen=True, slots=True)
class SecurityContext:
    """SenderIdentifierCache and SenderCertificateCache (3.17.1).

    `key` is the private key of the certificate, if it is on this computer.
    """

    sender_identifier: bytes
    sender_certificate: bytes = b""
    key: SigningKey | None = field(default=None, repr=False)

    @classmethod
    async def of(cls, environment: Environment, identity: Identity, certificate: bytes) -> SecurityContext:
        """Return the caller's context, with the internal certificate if `certificate` is empty."""
        try:
            key = await environment.internal_signing_key(identity)
        except NoInternalUserCert:
            return cls(identity.sid.pack(), certificate)
        return cls(identity.sid.pack(), certificate or key.certificate, key)


@dataclass(frozen=True, slots=True)
class Sending:
    """One call of Send.

    Properties that the object does not set are filled in. The object is updated only after the
    message was sent.
    """

    environment: Environment
    identity: Identity
    state: MessageState
    # The attributes that the client has set since the object was created.
    given: frozenset[str]
    requested_authentication_level: int
    context: SecurityContext | None
    soap_header: str
    soap_body: str

    def check(self) -> None:
        """Check that the properties are consistent."""
        state = self.state
        if self.given & CONNECTOR_PROPERTIES and state.connector_type_identifier == GUID_NULL:
            raise MissingConnectorType(f"{', '.join(sorted(self.given & CONNECTOR_PROPERTIES))}: only for connectors")
        if bool(state.authentication_provider_type) != bool(state.authentication_provider_name):
            raise InsufficientProperties("AuthenticationProviderType and AuthenticationProviderName go together")

    async def send(self, descriptor: OpenQueueDescriptor, argument: TransactionArgument) -> None:
        """Send the message. A recoverable one is durable when this returns."""
        properties = self._properties(descriptor)
        check_sender(properties, descriptor, self.identity)
        name_here(self.environment.engine, properties)
        level = AuthenticationLevel.NONE
        if self.requested_authentication_level and not properties.signature:
            level = self._signature_level()
            is_transactional = argument.transaction is not None or argument.is_single_message
            properties = await self._signed(properties, descriptor, level, is_transactional=is_transactional)
        await self._enqueue(descriptor, properties, argument, level)

    def _signature_level(self) -> AuthenticationLevel:
        requested = self.requested_authentication_level
        preferences = self.environment.engine.settings.encryption_preferences
        if requested == AUTH_LEVEL_ALWAYS and not preferences.accepts_legacy_signatures:
            # The MSMQ 3.0 hash of a message to a single queue does not cover the queue's name, so
            # receivers like this one reject it.
            return AuthenticationLevel.SIG20
        return SIGNATURE_LEVELS[requested]

    # Message properties
    # ----------------------------------------------------------------------------------------

    def _properties(self, descriptor: OpenQueueDescriptor) -> MessageProperties:
        state, given = self.state, self.given
        properties = state.properties()
        is_of_connector = state.connector_type_identifier != GUID_NULL
        properties.message_class = state.message_class if is_of_connector else MessageClass.NORMAL
        properties.sender_identifier_type = kind = self._sender_identifier_type()
        if kind:
            properties.sender_identifier = self._sender_identifier()
        properties.sender_certificate = self._sender_certificate(is_named=bool(kind))
        properties.time_to_be_received = self._time_to_be_received()
        properties.soap_header += self.soap_header
        properties.soap_body += self.soap_body
        if "symmetric_key" in given:
            properties.symmetric_key = state.symmetric_key
        if "signature" in given:
            properties.signature = state.signature
        if "authentication_provider_name" in given:
            properties.authentication_provider_type = state.authentication_provider_type
            properties.authentication_provider_name = state.authentication_provider_name or ""
        self._set_response(properties, descriptor)
        return properties

    def _sender_identifier_type(self) -> SenderIdentifierType:
        """Return the sender identifier type of this message.

        If the object holds a received message, the type of that message is ignored, because the
        sender of the new message is never a queue manager.
        """
        if "sender_identifier_type" in self.given:
            return SenderIdentifierType(self.state.sender_identifier_type)
        return SenderIdentifierType.SID

    def _sender_identifier(self) -> bytes:
        if "sender_identifier" in self.given and self.state.sender_identifier:
            return self.state.sender_identifier
        return self.identity.sid.pack() if self.context is None else self.context.sender_identifier

    def _sender_certificate(self, *, is_named: bool) -> bytes:
        if "sender_certificate" in self.given and self.state.sender_certificate:
            return self.state.sender_certificate
        if not is_named:
            # A message without a sender identifier does not have a certificate that identifies the
            # sender, either.
            return b""
        if self.context is not None and self.context.sender_certificate:
            return self.context.sender_certificate
        environment = self.environment
        with environment.lock:
            known = environment.engine.queue_manager.internal_certificate_collection.get(str(self.identity.sid))
        return b"" if known is None else known.certificate

    def _time_to_be_received(self) -> int:
        """Return TimeToBeReceived, at least TimeToReachQueue (3.17.4.1.48).

        A TimeToReachQueue that the client never set does not raise the value; otherwise a
        MaxTimeToReceive alone would never take effect.
        """
        state = self.state
        to_reach = state.time_to_reach_queue
        if to_reach == INFINITE and "time_to_reach_queue" not in self.given:
            return state.time_to_be_received
        return max(state.time_to_be_received, to_reach)

    @staticmethod
    def _set_response(properties: MessageProperties, descriptor: OpenQueueDescriptor) -> None:
        """Set the response queue or queues (ResponseMultiQueueFormatName).

        Any message can name one response queue. A message that names several also needs a list of
        destinations, which is then made of the open queue.
        """
        several = properties.response_multi_queue_format_name
        if several is None:
            return
        if not isinstance(several, MultipleElementFormatName):
            properties.response_queue_format_name, properties.response_multi_queue_format_name = several, None
        elif not descriptor.multiple:
            properties.destination_multi_queue_format_name = FormatName.parse(descriptor.format_name)

    # Signing
    # ----------------------------------------------------------------------------------------------

    async def _signed(
        self,
        properties: MessageProperties,
        descriptor: OpenQueueDescriptor,
        level: AuthenticationLevel,
        *,
        is_transactional: bool,
    ) -> MessageProperties:
        destination = FormatName.parse(descriptor.format_name)
        if any(isinstance(name, DirectFormatName) and name.is_http for name in destination.elements):
            raise CannotSignDataEx(f"{destination}: messages over HTTP need XML signatures, which Lanner does not make")
        try:
            hash_algorithm = HashAlgorithm(properties.hash_algorithm)
        except ValueError:
            raise IllegalPropertyValue(f"HashAlgorithm {properties.hash_algorithm:#x}") from None
        key = await self._key_of(properties.sender_certificate)
        # RSA is slow, so it runs in a thread while other work continues.
        return await self.environment.in_thread(
            self.identity,
            partial(
                sign_properties,
                properties,
                key,
                source=self.environment.engine.queue_manager.identifier,
                destination=destination,
                is_transactional=is_transactional,
                level=level,
                hash_algorithm=hash_algorithm,
            ),
        )

    async def _key_of(self, certificate: bytes) -> SigningKey:
        """Return the private key of the sender's certificate.

        Only the keys of internal certificates are on this computer.
        """
        key = None if self.context is None else self.context.key
        if key is None:
            key = await self.environment.internal_signing_key(self.identity)
        if certificate and certificate != key.certificate:
            raise CannotSignDataEx("the private key of SenderCertificate is not on this computer")
        return key

    # The engine's event
    # ----------------------------------------------------------------------------------------------

    def _enqueue(
        self,
        descriptor: OpenQueueDescriptor,
        properties: MessageProperties,
        argument: TransactionArgument,
        level: AuthenticationLevel,
    ) -> Change:
        """Enqueue the message. The caller awaits the change for durability."""
        environment = self.environment
        engine = environment.engine
        with environment.committer.change() as change:
            own = engine.create_transaction(uuid.uuid4()) if argument.is_single_message else None
            transaction = argument.transaction if own is None else own
            try:
                status = engine.enqueue_message_to_an_open_queue(descriptor, properties, transaction)
                if status is not EnqueueStatus.OK:
                    raise refusal(status, descriptor)
                ordinal = engine.last_ordinal
                if own is not None:
                    engine.transaction_commit(own.identifier)
            except BaseException:
                if own is not None and not own.is_over:
                    engine.transaction_abort(own.identifier)
                raise
            self._tell(descriptor, properties, ordinal, transaction, level)
        if own is None and (argument.transaction is not None or not properties.delivery_guarantee):
            change.forget()
        return change

    def _tell(
        self,
        descriptor: OpenQueueDescriptor,
        properties: MessageProperties,
        ordinal: int,
        transaction: Transaction | None,
        level: AuthenticationLevel,
    ) -> None:
        """Set the attributes that Send fills in. None of them counts as set by the client."""
        state, engine = self.state, self.environment.engine
        here = engine.queue_manager.identifier
        state.identifier = MessageIdentifier(here, ordinal).pack()
        state.source_machine_identifier = here
        state.sent_time = int(engine.clock())
        state.message_class = properties.message_class
        state.time_to_be_received = properties.time_to_be_received
        state.sender_identifier_type = properties.sender_identifier_type
        state.sender_identifier = properties.sender_identifier
        state.sender_certificate = properties.sender_certificate
        state.destination_queue_format_name = None if descriptor.multiple else descriptor.format_name
        state.destination_multi_queue_format_name = descriptor.format_name if descriptor.multiple else None
        if transaction is not None:
            state.transaction_identifier = MessageIdentifier(here, transaction.index).pack()
        if level:
            state.signature = properties.signature or properties.multiple_destination_signature
            state.authentication_level = level
