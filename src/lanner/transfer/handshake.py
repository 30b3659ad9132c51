"""The four packets that open a session: how they are built and checked.

Implements MS-MQQB 2.2.1 to 2.2.3, 3.1.5.2.3, 3.1.5.3 and 3.1.5.4.
"""

from __future__ import annotations

from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import RemoteProtocolError
from lanner.transfer.framing import CONNECTION_PARAMETERS_SIZE, ESTABLISH_CONNECTION_SIZE, SESSION_ACK_SIZE
from lanner.transfer.session_states import PacketKind
from lanner.wire import fields
from lanner.wire import layout as at
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    EstablishConnectionHeader,
    InternalHeader,
    PacketType,
    pack_internal,
)
from lanner.wire.reader import Reader

# 2.2.2.1, milliseconds.
RECOVERABLE_ACK_TIMEOUT_RANGE = (0x1F4, 0x1_D4C0)
ACK_TIMEOUT_RANGE = (0x4E20, 0x1_D4C0)
# 3.1.5.3.2: RecoverableAckSendTimeout in round trips.
ROUND_TRIPS = 8
_U32 = 0xFFFF_FFFF

KINDS = {
    PacketType.SESSION_ACK: (PacketKind.SESSION_ACK, SESSION_ACK_SIZE),
    PacketType.ESTABLISH_CONNECTION: (PacketKind.ESTABLISH_CONNECTION, ESTABLISH_CONNECTION_SIZE),
    PacketType.CONNECTION_PARAMETERS: (PacketKind.CONNECTION_PARAMETERS, CONNECTION_PARAMETERS_SIZE),
}


def identify_internal(packet: bytes) -> tuple[PacketKind, InternalHeader]:
    """Return the kind of a packet with IN set, and its InternalHeader (3.1.5.1.1)."""
    internal = InternalHeader.unpack(Reader(packet, at.BASE_HEADER_SIZE))
    kind, size = KINDS[internal.packet_type]
    if len(packet) != size:
        raise RemoteProtocolError(f"BaseHeader.PacketSize: {len(packet)} of a packet {kind.value} is not {size}")
    # 2.2.6: a SessionHeader is in SessionAcks and in no other internal packet.
    has_session_header = bool(fields.base_flags_low(packet) & at.BASE_SH)
    if has_session_header is not (kind is PacketKind.SESSION_ACK):
        raise RemoteProtocolError(f"BaseHeader.Flags.SH: {has_session_header:d} in a packet {kind.value}")
    if kind is PacketKind.SESSION_ACK and internal.is_refused:
        raise RemoteProtocolError("InternalHeader.Flags.CS: set in a packet SessionAck")
    return kind, internal


def body_of(packet: bytes) -> Reader:
    """Return a reader of the data after the InternalHeader."""
    return Reader(packet, at.BASE_HEADER_SIZE + InternalHeader.SIZE)


def clamp(value: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1])


def request_connection(
    own_guid: UUID, remote_guid: UUID, time_stamp: int, *, is_server_class: bool, was_pinged: bool
) -> bytes:
    """Return an EstablishConnection request (3.1.5.2.3). GUID_NULL is for a direct format name."""
    operating_system = (
        EstablishConnectionHeader.RE
        | (0 if was_pinged else EstablishConnectionHeader.SE)
        | (EstablishConnectionHeader.OS if is_server_class else 0)
    )
    return pack_internal(
        InternalHeader.of(PacketType.ESTABLISH_CONNECTION),
        EstablishConnectionHeader(own_guid, remote_guid, time_stamp & _U32, operating_system),
    )


def answer_connection(request: EstablishConnectionHeader, own_guid: UUID, *, refused: bool) -> bytes:
    """Return an EstablishConnection response (3.1.5.3.1).

    OS describes the initiator, like SE, and is returned unchanged.
    """
    echoed = request.operating_system & (EstablishConnectionHeader.SE | EstablishConnectionHeader.OS)
    return pack_internal(
        InternalHeader.of(PacketType.ESTABLISH_CONNECTION, refused=refused),
        EstablishConnectionHeader(
            request.client_guid, own_guid, request.time_stamp, EstablishConnectionHeader.RE | echoed
        ),
    )


def is_for(request: EstablishConnectionHeader, own_guid: UUID) -> bool:
    """Return whether a request is for us, or for any queue manager at this address (3.1.5.3.1).

    2.2.1, which rejects the latter, is in error (DECISIONS).
    """
    return request.server_guid in (own_guid, GUID_NULL)


class ConnectionRefused(RemoteProtocolError):
    """CS: the peer is there and rejects the session."""


def check_answer(
    internal: InternalHeader, answer: EstablishConnectionHeader, own_guid: UUID, remote_guid: UUID
) -> None:
    """Raise unless the acceptor is the expected queue manager and accepts (3.1.5.3.2).

    At a direct address any queue manager is expected; it states its own GUID.
    """
    if internal.is_refused:
        raise ConnectionRefused(
            f"InternalHeader.Flags.CS: set, queue manager {answer.server_guid} refuses the connection"
        )
    if answer.client_guid != own_guid:
        raise RemoteProtocolError(f"EstablishConnectionHeader.ClientGuid: {answer.client_guid} is not {own_guid}")
    if remote_guid not in (GUID_NULL, answer.server_guid):
        raise RemoteProtocolError(f"EstablishConnectionHeader.ServerGuid: {answer.server_guid} is not {remote_guid}")


def recoverable_ack_send_timeout(now: int, time_stamp: int) -> int:
    """Return RecoverableAckSendTimeout in milliseconds (3.1.5.3.2).

    It is eight round trips of the EstablishConnection, within the range of 2.2.2.1.
    """
    return clamp(ROUND_TRIPS * (now - time_stamp & _U32), RECOVERABLE_ACK_TIMEOUT_RANGE)


def connection_parameters(parameters: ConnectionParametersHeader) -> bytes:
    """Return a ConnectionParameters request or response (3.1.5.3.2, 3.1.5.4.1)."""
    return pack_internal(InternalHeader.of(PacketType.CONNECTION_PARAMETERS), parameters)


def read_parameters(internal: InternalHeader, packet: bytes) -> ConnectionParametersHeader:
    """Read a ConnectionParameters packet and check its ranges (2.2.2.1).

    Raises RemoteProtocolError if the packet is a refusal (QQB-2.2.1-5).
    """
    if internal.is_refused:
        raise ConnectionRefused("InternalHeader.Flags.CS: set, the connection is refused")
    parameters = ConnectionParametersHeader.unpack(body_of(packet))
    for name, value, (lowest, highest) in (
        ("RecoverableAckTimeout", parameters.recoverable_ack_timeout, RECOVERABLE_ACK_TIMEOUT_RANGE),
        ("AckTimeout", parameters.ack_timeout, ACK_TIMEOUT_RANGE),
    ):
        if not lowest <= value <= highest:
            raise RemoteProtocolError(f"ConnectionParametersHeader.{name}: {value} is not in {lowest} to {highest}")
    return parameters
