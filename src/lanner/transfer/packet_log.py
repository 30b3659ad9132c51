"""The log of packets: one line at DEBUG for each MS-MQQB packet and each Ping packet.

No other module logs packets. A line has the direction, type, size in bytes, peer and session. The
session checks once per call whether the log is on (`is_enabled`), so packets cost nothing while it
is off. Message bodies are never logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.transfer.handshake import identify_internal
from lanner.transfer.packets import LOWEST_FINAL_ACK_CLASS, is_acknowledgment
from lanner.transfer.session_states import PacketKind
from lanner.wire import fields
from lanner.wire import layout as at
from lanner.wire.message import Message

_LOG = logging.getLogger(__name__)

is_enabled: Final[Callable[[], bool]] = partial(_LOG.isEnabledFor, logging.DEBUG)


class PacketLog:
    """The lines of one session. Call its methods only if `is_enabled`."""

    def __init__(self, peer: str, session: str) -> None:
        self._peer = peer  # address
        self._session = session

    def received(self, packets: Iterable[bytes]) -> None:
        """Log packets from the peer, which may be malformed."""
        for packet in packets:
            _LOG.debug(
                "received %s, %d bytes, from %s, session %s", type_name(packet), len(packet), self._peer, self._session
            )

    def sent(self, packets: Iterable[bytes]) -> None:
        """Log packets to the peer."""
        for packet in packets:
            _LOG.debug(
                "sent %s, %d bytes, to %s, session %s", type_name(packet), len(packet), self._peer, self._session
            )


def ping_received(kind: str, datagram: bytes, peer: str) -> None:
    """Log a received Ping packet, a Request or a Response. Call only if `is_enabled`."""
    _LOG.debug("received Ping %s, %d bytes, from %s, no session", kind, len(datagram), peer)


def ping_sent(kind: str, datagram: bytes, peer: str) -> None:
    """Log a sent Ping packet, a Request or a Response. Call only if `is_enabled`."""
    _LOG.debug("sent Ping %s, %d bytes, to %s, no session", kind, len(datagram), peer)


def type_name(packet: bytes) -> str:
    """Return the document's name for a packet (2.2).

    For a malformed packet it follows from the BaseHeader alone.
    """
    is_internal = fields.base_flags_low(packet) & at.IN
    try:
        if is_internal:
            return identify_internal(packet)[0].value
        message = Message.unpack(packet)
        if is_acknowledgment(message.packet):
            return "OrderAck" if message.message_class < LOWEST_FINAL_ACK_CLASS else "FinalAck"
    except RemoteProtocolError:
        return "malformed internal packet" if is_internal else f"malformed {PacketKind.USER_MESSAGE.value}"
    return PacketKind.USER_MESSAGE.value
