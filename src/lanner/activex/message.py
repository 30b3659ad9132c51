"""MSMQMessage: a message to send, or one that was received (MC-MQAC 3.17).

One object serves all four revisions of the interface; the older members of a property (`_v1`,
`_v2`) are the property itself. The attributes are in a `MessageState`, which most members just read
or write. Longs are signed outside and unsigned inside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final, Self

from lanner.activex.arguments import from_guid, to_date, to_guid
from lanner.activex.longs import from_long, to_long
from lanner.activex.message_body import BYTES, decode_body, octets, saved_body
from lanner.activex.message_sending import SIGNATURE_LEVELS, SecurityContext, Sending
from lanner.activex.message_state import MessageState
from lanner.activex.names import read_format_name
from lanner.activex.tables import MSMQ_MESSAGE
from lanner.activex.transaction import resolve_transaction
from lanner.com.automation.values import EMPTY, Variant
from lanner.com.constants import E_INVALIDARG, E_NOTIMPL
from lanner.com.objects import ComError, ComObject
from lanner.model.enums import Acknowledgements, DeliveryGuarantee, MessagePrivacyLevel, SenderIdentifierType
from lanner.model.errors import (
    IllegalPropertySize,
    IllegalPropertyValue,
    InvalidHandle,
    LabelTooLong,
    StatusError,
)
from lanner.wire.builder import MAX_LABEL_CHARACTERS, MAX_PRIORITY
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from collections.abc import Container

    from lanner.activex.destination import MSMQDestination
    from lanner.activex.environment import Environment
    from lanner.activex.queue_info import MSMQQueueInfo
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall, Remote
    from lanner.model.live import MessagePosition, OpenQueueDescriptor

# 2.2.2.15 MQMSGPRIVLEVEL. The later value Advanced is not among them.
_PRIVACY_LEVELS: Final = (MessagePrivacyLevel.NONE, MessagePrivacyLevel.BASE, MessagePrivacyLevel.ENHANCED)
# 2.2.2.11 MQMSGACKNOWLEDGEMENT.
_ACKNOWLEDGEMENTS: Final = frozenset(
    (
        Acknowledgements.NONE,
        Acknowledgements.POS_ARRIVAL,
        Acknowledgements.POS_RECEIVE,
        Acknowledgements.NEG_ARRIVAL,
        Acknowledgements.NEG_RECEIVE,
        Acknowledgements.FULL_REACH_QUEUE,
        Acknowledgements.NACK_RECEIVE,
        Acknowledgements.FULL_RECEIVE,
    )
)
# 2.2.2.12 MQMSGJOURNAL.
_DEADLETTER: Final = 1
_JOURNAL: Final = 2
# 3.17.4.1.50.
_SENDER_VERSION: Final = 0x10


# Members that just read or write an attribute
# --------------------------------------------------------------------


def _get_long(attribute: str) -> Callable[[MSMQMessage, ComCall], int]:
    def get(self: MSMQMessage, call: ComCall) -> int:
        del call
        return to_long(int(getattr(self.state, attribute)))

    return get


def _put_long(attribute: str, allowed: Container[int] | None = None) -> Callable[[MSMQMessage, ComCall, int], None]:
    """Return a setter that accepts the allowed numbers; None allows all."""

    def put(self: MSMQMessage, call: ComCall, value: int) -> None:
        if allowed is not None and value not in allowed:
            raise IllegalPropertyValue(f"{call.member.name} {value:#x}")
        self.set(attribute, from_long(value))

    return put


def _get_octets(attribute: str) -> Callable[[MSMQMessage, ComCall], Variant]:
    def get(self: MSMQMessage, call: ComCall) -> Variant:
        del call
        return Variant(BYTES, getattr(self.state, attribute))

    return get


def _put_octets(attribute: str) -> Callable[[MSMQMessage, ComCall, Variant], None]:
    def put(self: MSMQMessage, call: ComCall, value: Variant) -> None:
        self.set(attribute, octets(value, call.member.name))

    return put


def _get_short(attribute: str) -> Callable[[MSMQMessage, ComCall], int]:
    """Return a getter whose result is 1 or 0."""

    def get(self: MSMQMessage, call: ComCall) -> int:
        del call
        return int(bool(getattr(self.state, attribute)))

    return get


def _get_flag(attribute: str) -> Callable[[MSMQMessage, ComCall], bool]:
    def get(self: MSMQMessage, call: ComCall) -> bool:
        del call
        return bool(getattr(self.state, attribute))

    return get


def _get_date(attribute: str) -> Callable[[MSMQMessage, ComCall], Variant]:
    def get(self: MSMQMessage, call: ComCall) -> Variant:
        del call
        return to_date(getattr(self.state, attribute))

    return get


def _get_queue_info(attribute: str) -> Callable[[MSMQMessage, ComCall], Awaitable[MSMQQueueInfo | None]]:
    """Return a getter of an MSMQQueueInfo for a queue name in the message."""

    async def get(self: MSMQMessage, call: ComCall) -> MSMQQueueInfo | None:
        return await self.queue_info(call, getattr(self.state, attribute))

    return get


def _put_queue_info(attribute: str) -> Callable[[MSMQMessage, ComCall, ComObject | Remote | None], Awaitable[None]]:
    """Return a setter that stores the name of an MSMQQueueInfo's queue; NULL clears it."""

    async def put(self: MSMQMessage, call: ComCall, value: ComObject | Remote | None) -> None:
        from lanner.activex.queue_info import MSMQQueueInfo

        if value is not None and not isinstance(value, MSMQQueueInfo):
            raise ComError(E_INVALIDARG, f"{call.member.name}: no MSMQQueueInfo of this queue manager")
        self.set(attribute, None if value is None else str(await value.update_format_name(call)))

    return put


class MSMQMessage(ComObject):
    """3.17 MSMQMessage."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_MESSAGE.interfaces

    def __init__(self, environment: Environment, state: MessageState | None = None) -> None:
        self._environment = environment
        self.state = MessageState() if state is None else state
        # The attributes that the client has set. All others came with a received message or from
        # Send.
        self._given: set[str] = set()
        self._requested_authentication_level = 0
        self._soap_header = ""
        self._soap_body = ""
        self._context: SecurityContext | None = None

    @classmethod
    def received(
        cls,
        environment: Environment,
        position: MessagePosition,
        *,
        want_body: bool = True,
        want_destination: bool = False,
        want_connector_type: bool = False,
    ) -> Self:
        """Return the object for a message in a queue; unwanted parts stay unset."""
        state = MessageState.of(
            Message(position.record.packet),
            lookup_identifier=position.lookup_id,
            arrived_time=position.record.arrived,
            want_body=want_body,
            want_destination=want_destination,
            want_connector_type=want_connector_type,
        )
        return cls(environment, state)

    @property
    def octets(self) -> int:
        return self.state.octets + len(self._soap_header) + len(self._soap_body)

    def released(self) -> None:
        """Drop the state: it holds nothing but octets, but the body may be large."""
        self.state = MessageState()
        self._context = None

    def set(self, attribute: str, value: object) -> None:
        """Set an attribute on behalf of the client."""
        setattr(self.state, attribute, value)
        self._given.add(attribute)

    # Numbers
    # ----------------------------------------------------------------------------------------------

    get_class = _get_long("message_class")
    get_msg_class = get_class
    put_msg_class = _put_long("message_class")
    get_priv_level = _get_long("privacy_level")
    put_priv_level = _put_long("privacy_level", _PRIVACY_LEVELS)
    get_delivery = _get_long("delivery_guarantee")
    put_delivery = _put_long("delivery_guarantee", tuple(DeliveryGuarantee))
    get_trace = _get_long("tracing_requested")
    put_trace = _put_long("tracing_requested", (0, 1))
    get_priority = _get_long("priority")
    put_priority = _put_long("priority", range(MAX_PRIORITY + 1))
    get_app_specific = _get_long("application_tag")
    put_app_specific = _put_long("application_tag")
    get_body_length = _get_long("body_length")
    get_ack = _get_long("acknowledgements_requested")
    put_ack = _put_long("acknowledgements_requested", _ACKNOWLEDGEMENTS)
    get_max_time_to_reach_queue = _get_long("time_to_reach_queue")
    put_max_time_to_reach_queue = _put_long("time_to_reach_queue")
    get_max_time_to_receive = _get_long("time_to_be_received")
    put_max_time_to_receive = _put_long("time_to_be_received")
    get_hash_algorithm = _get_long("hash_algorithm")
    put_hash_algorithm = _put_long("hash_algorithm")
    get_encrypt_algorithm = _get_long("encryption_algorithm")
    put_encrypt_algorithm = _put_long("encryption_algorithm")
    get_sender_id_type = _get_long("sender_identifier_type")
    put_sender_id_type = _put_long("sender_identifier_type", (SenderIdentifierType.NONE, SenderIdentifierType.SID))
    get_authentication_provider_type = _get_long("authentication_provider_type")
    put_authentication_provider_type = _put_long("authentication_provider_type")
    get_received_authentication_level = _get_long("authentication_level")

    get_is_authenticated = _get_short("authentication_level")
    get_is_authenticated2 = _get_flag("authentication_level")
    get_is_first_in_transaction = _get_short("first_in_transaction")
    get_is_first_in_transaction2 = _get_flag("first_in_transaction")
    get_is_last_in_transaction = _get_short("last_in_transaction")
    get_is_last_in_transaction2 = _get_flag("last_in_transaction")

    def get_auth_level(self, call: ComCall) -> int:
        """Return the requested level, not the verified one (3.17.4.1.4)."""
        del call
        return self._requested_authentication_level

    def put_auth_level(self, call: ComCall, value: int) -> None:
        """Set AuthLevel (3.17.4.1.5)."""
        if value and value not in SIGNATURE_LEVELS:
            raise IllegalPropertyValue(f"{call.member.name} {value:#x}")
        self._requested_authentication_level = value

    def get_journal(self, call: ComCall) -> int:
        """Return Journal (3.17.4.1.13)."""
        del call
        state = self.state
        return (_JOURNAL if state.positive_journaling_requested else 0) | (
            _DEADLETTER if state.negative_journaling_requested else 0
        )

    def put_journal(self, call: ComCall, value: int) -> None:
        """Set Journal (3.17.4.1.14)."""
        if not 0 <= value <= _JOURNAL | _DEADLETTER:
            raise IllegalPropertyValue(f"{call.member.name} {value:#x}")
        self.set("positive_journaling_requested", bool(value & _JOURNAL))
        self.set("negative_journaling_requested", bool(value & _DEADLETTER))

    def get_sender_version(self, call: ComCall) -> int:
        """Return SenderVersion (3.17.4.1.50)."""
        del call
        return _SENDER_VERSION

    # Octets
    # ----------------------------------------------------------------------------------------------

    get_id = _get_octets("identifier")
    get_transaction_id = _get_octets("transaction_identifier")
    get_correlation_id = _get_octets("correlation_identifier")
    get_sender_certificate = _get_octets("sender_certificate")
    put_sender_certificate = _put_octets("sender_certificate")
    get_sender_id = _get_octets("sender_identifier")
    put_sender_id = _put_octets("sender_identifier")
    get_extension = _get_octets("extension")
    put_extension = _put_octets("extension")
    get_destination_symmetric_key = _get_octets("symmetric_key")
    put_destination_symmetric_key = _put_octets("symmetric_key")
    get_signature = _get_octets("signature")
    put_signature = _put_octets("signature")
    get_compound_message = _get_octets("soap_compound_message")

    def put_correlation_id(self, call: ComCall, value: Variant) -> None:
        """Set CorrelationId (3.17.4.1.27)."""
        identifier = octets(value, call.member.name)
        if len(identifier) != MessageIdentifier.SIZE:
            raise IllegalPropertySize(f"CorrelationId of {len(identifier)} octets, {MessageIdentifier.SIZE} are needed")
        self.set("correlation_identifier", identifier)

    def get_body(self, call: ComCall) -> Variant:
        """Return the body, converted to its recorded type (3.17.4.1.21)."""
        del call
        body = self.state.body
        return EMPTY if body is None else decode_body(body, self.state.body_type)

    async def put_body(self, call: ComCall, value: Variant) -> None:
        """Set the body (3.17.4.1.22). A client's object is asked to save itself."""
        del call
        body, body_type = await saved_body(value)
        self.set("body", body)
        self.set("body_type", body_type)
        self.set("body_length", len(body))

    # Text and times
    # ----------------------------------------------------------------------------------------------

    get_sent_time = _get_date("sent_time")
    get_arrived_time = _get_date("arrived_time")

    def get_label(self, call: ComCall) -> str:
        """Return Label (3.17.4.1.30)."""
        del call
        return self.state.label or ""

    def put_label(self, call: ComCall, value: str | None) -> None:
        """Set Label (3.17.4.1.31). Its length is counted in UTF-16 units."""
        del call
        length = len((value or "").encode("utf-16-le", "surrogatepass")) // 2
        if length > MAX_LABEL_CHARACTERS:
            raise LabelTooLong(f"label of {length} characters, at most {MAX_LABEL_CHARACTERS}")
        self.set("label", value)

    def get_source_machine_guid(self, call: ComCall) -> str:
        """Return SourceMachineGuid without braces (3.17.4.1.19)."""
        del call
        return str(self.state.source_machine_identifier).upper()

    def get_connector_type_guid(self, call: ComCall) -> str:
        """Return ConnectorTypeGuid with braces (3.17.4.1.53)."""
        del call
        return to_guid(self.state.connector_type_identifier)

    def put_connector_type_guid(self, call: ComCall, value: str | None) -> None:
        """Set ConnectorTypeGuid (3.17.4.1.54)."""
        self.set("connector_type_identifier", from_guid(value or "", call.member.name, without_braces=False))

    def get_authentication_provider_name(self, call: ComCall) -> str:
        """Return AuthenticationProviderName (3.17.4.1.62)."""
        del call
        return self.state.authentication_provider_name or ""

    def put_authentication_provider_name(self, call: ComCall, value: str | None) -> None:
        """Set AuthenticationProviderName (3.17.4.1.63)."""
        del call
        self.set("authentication_provider_name", value)

    def get_lookup_id(self, call: ComCall) -> Variant:
        """Return LookupId in decimal (3.17.4.1.83, DECISIONS)."""
        del call
        return Variant(VT.BSTR, str(self.state.lookup_identifier))

    def get_soap_envelope(self, call: ComCall) -> str | None:
        """Return SoapEnvelope (3.17.4.1.88)."""
        del call
        return self.state.soap_envelope

    def put_soap_header(self, call: ComCall, value: str | None) -> None:
        """Set SoapHeader (3.17.4.1.90)."""
        del call
        self._soap_header = value or ""

    def put_soap_body(self, call: ComCall, value: str | None) -> None:
        """Set SoapBody (3.17.4.1.91)."""
        del call
        self._soap_body = value or ""

    def get_properties(self, call: ComCall) -> None:
        """Raise E_NOTIMPL: Windows does not implement this either (3.17.4.1.67)."""
        del call
        raise ComError(E_NOTIMPL, "Properties")

    # Queues
    # ----------------------------------------------------------------------------------------------

    get_response_queue_info = _get_queue_info("response_queue_format_name")
    get_response_queue_info_v1 = get_response_queue_info
    get_response_queue_info_v2 = get_response_queue_info
    putref_response_queue_info = _put_queue_info("response_queue_format_name")
    put_response_queue_info_v1 = putref_response_queue_info
    put_response_queue_info_v2 = putref_response_queue_info
    get_admin_queue_info = _get_queue_info("administration_queue_format_name")
    get_admin_queue_info_v1 = get_admin_queue_info
    get_admin_queue_info_v2 = get_admin_queue_info
    putref_admin_queue_info = _put_queue_info("administration_queue_format_name")
    put_admin_queue_info_v1 = putref_admin_queue_info
    put_admin_queue_info_v2 = putref_admin_queue_info
    get_destination_queue_info = _get_queue_info("destination_queue_format_name")
    get_transaction_status_queue_info = _get_queue_info("transaction_status_queue_format_name")

    async def queue_info(self, call: ComCall, name: str | None) -> MSMQQueueInfo | None:
        """Return an object for a queue, or None without a name (DECISIONS).

        Its properties are set as far as they can be read.
        """
        from lanner.activex.queue_info import MSMQQueueInfo

        if name is None:
            return None
        found = MSMQQueueInfo(self._environment)
        found.put_format_name(call, name)
        with suppress(StatusError, ComError):
            await found.refresh(call)
        return found

    async def get_destination(self, call: ComCall) -> MSMQDestination | None:
        """Return Destination (3.17.4.1.82)."""
        state = self.state
        return await self._destination(
            call, state.destination_multi_queue_format_name or state.destination_queue_format_name
        )

    async def get_response_destination(self, call: ComCall) -> MSMQDestination | None:
        """Return ResponseDestination (3.17.4.1.80).

        The rules of that section wrongly use the message's destinations (MQAC-3.17.4.1.80-1).
        """
        state = self.state
        return await self._destination(call, state.response_multi_queue_format_name or state.response_queue_format_name)

    async def putref_response_destination(self, call: ComCall, value: ComObject | Remote | None) -> None:
        """Set ResponseDestination (3.17.4.1.81)."""
        from lanner.activex.destination import MSMQDestination

        if value is not None and not isinstance(value, MSMQDestination):
            raise ComError(E_INVALIDARG, f"{call.member.name}: no MSMQDestination of this queue manager")
        name = None if value is None else value.get_format_name(call)
        # Parse it now: otherwise an invalid name would be detected only by Send.
        self.set(
            "response_multi_queue_format_name", None if name is None else str(read_format_name(self._environment, name))
        )

    async def _destination(self, call: ComCall, name: str | None) -> MSMQDestination | None:
        from lanner.activex.destination import MSMQDestination

        if name is None:
            return None
        found = MSMQDestination(self._environment)
        await found.put_format_name(call, name)
        return found

    # Sending
    # ----------------------------------------------------------------------------------------------

    async def send(self, call: ComCall, destination_queue: ComObject | Remote | None, transaction: Variant) -> None:
        """Send the message (3.17.4.1.48). A recoverable one is durable when this returns."""
        if destination_queue is None:
            raise ComError(E_INVALIDARG, "DestinationQueue is NULL")
        sending = Sending(
            self._environment,
            call.identity,
            self.state,
            frozenset(self._given),
            self._requested_authentication_level,
            self._context,
            self._soap_header,
            self._soap_body,
        )
        sending.check()
        argument = resolve_transaction(self._environment, transaction)
        await sending.send(_descriptor(destination_queue), argument)

    async def attach_current_security_context(self, call: ComCall) -> None:
        """Cache the caller's security context for later calls of Send (3.17.4.1.49).

        The message itself does not change.
        """
        certificate = self.state.sender_certificate if "sender_certificate" in self._given else b""
        self._context = await SecurityContext.of(self._environment, call.identity, certificate)

    async def attach_current_security_context2(self, call: ComCall) -> None:
        """Cache the caller's security context (3.17.4.1.87)."""
        await self.attach_current_security_context(call)


def _descriptor(destination: ComObject | Remote) -> OpenQueueDescriptor:
    """Return the open queue or queues of an MSMQQueue or an MSMQDestination."""
    from lanner.activex.destination import MSMQDestination
    from lanner.activex.queue import MSMQQueue

    if not isinstance(destination, (MSMQQueue, MSMQDestination)):
        raise ComError(
            E_INVALIDARG, "DestinationQueue is neither an MSMQQueue nor an MSMQDestination of this queue manager"
        )
    descriptor = destination.descriptor
    if descriptor is None:
        raise InvalidHandle("DestinationQueue is not open")
    return descriptor
