"""The states of a session and the packets that each state admits.

MS-MQQB 3.1.1.1.1.1, 3.1.1.1.1.2, 3.1.1.3.1 and 3.1.5. A packet that a side's table does not have
for the current state closes the session. Further reasons for rejecting an admitted packet - wrong
GUIDs, CS, ranges - are in `handshake`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class SessionState(enum.Enum):
    """SessionState of MS-MQQB 3.1.1.3.1.

    WAITING_RECONNECT is a state of an outgoing queue; no connection is ever in it.
    """

    WAITING_EC_MSG = "WAITING_EC_MSG"
    WAITING_ECR_MSG = "WAITING_ECR_MSG"
    WAITING_CP_MSG = "WAITING_CP_MSG"
    WAITING_CPR_MSG = "WAITING_CPR_MSG"
    OPEN = "OPEN"
    CLOSED = "CLOSED"


class PacketKind(enum.Enum):
    """The kinds of packets on a session.

    OrderAck and FinalAck are UserMessages here, because they are admitted alike.
    """

    ESTABLISH_CONNECTION = "EstablishConnection"
    CONNECTION_PARAMETERS = "ConnectionParameters"
    SESSION_ACK = "SessionAck"
    USER_MESSAGE = "UserMessage"


Transitions = Mapping[tuple[SessionState, PacketKind], SessionState]

_TRANSFER: dict[tuple[SessionState, PacketKind], SessionState] = {
    (SessionState.OPEN, PacketKind.SESSION_ACK): SessionState.OPEN,
    (SessionState.OPEN, PacketKind.USER_MESSAGE): SessionState.OPEN,
}
# 3.1.1.1.1.1: the initiator begins in WAITING_ECR_MSG, with its EstablishConnection in transit.
INITIATOR: Transitions = _TRANSFER | {
    (SessionState.WAITING_ECR_MSG, PacketKind.ESTABLISH_CONNECTION): SessionState.WAITING_CPR_MSG,
    (SessionState.WAITING_CPR_MSG, PacketKind.CONNECTION_PARAMETERS): SessionState.OPEN,
}
# 3.1.1.1.1.2, 3.1.5.10: the acceptor begins in WAITING_EC_MSG and never speaks first.
ACCEPTOR: Transitions = _TRANSFER | {
    (SessionState.WAITING_EC_MSG, PacketKind.ESTABLISH_CONNECTION): SessionState.WAITING_CP_MSG,
    (SessionState.WAITING_CP_MSG, PacketKind.CONNECTION_PARAMETERS): SessionState.OPEN,
}
