"""The log of packets: one line at DEBUG for each MS-MQQB packet and each Ping packet, and the only place that writes one.

A line has the direction, the type, the size in bytes, the peer and the session. The session asks
once per call whether the log is on (`is_enabled`), so packets cost nothing while it is off. Bodies
are never logged.
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
    """The lines of one session. Call it only if `is_enabled`."""

    def __init__(self, peer: str, session: str) -> None:
        self._peer = peer  # address
        self._session = session

    def received(self, packets: Iterable[bytes]) -> None:
        """Packets came from the peer; they may be malformed."""
        for packet in packets:
            _LOG.debug(
                "received %s, %d bytes, from %s, session %s", type_name(packet), len(packet), self._peer, self._session
            )

    def sent(self, packets: Iterable[bytes]) -> None:
        """Packets go to the peer."""
        for packet in packets:
            _LOG.debug(
                "sent %s, %d bytes, to %s, session %s", type_name(packet), len(packet), self._peer, self._session
            )


def ping_received(kind: str, datagram: bytes, peer: str) -> None:
    """A Ping packet came, a Request or a Response. Call it only if `is_enabled`."""
    _LOG.debug("received Ping %s, %d bytes, from %s, no session", kind, len(datagram), peer)


def ping_sent(kind: str, datagram: bytes, peer: str) -> None:
    """A Ping packet is sent, a Request or a Response. Call it only if `is_enabled`."""
    _LOG.debug("sent Ping %s, %d bytes, to %s, no session", kind, len(datagram), peer)


def type_name(packet: bytes) -> str:
    """The name of the document for what a packet is (2.2); for a malformed one, what its BaseHeader says it is."""
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
