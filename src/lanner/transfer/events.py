"""What a session tells its owner. One object per message received: they are made to be cheap."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SessionOpened:
    """The handshake is done: user messages may flow both ways."""


@dataclass(slots=True)
class UserMessageReceived:
    """A UserMessage, checked; `number` counts 1, 2, 3 ... for the life of the session."""

    number: int
    packet: bytes  # without SessionHeader and SH, which belong to the session

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.number}, {len(self.packet)} bytes)"


@dataclass(slots=True, repr=False)
class OrderAckReceived(UserMessageReceived):
    """A UserMessage that is an OrderAck for this queue manager (MS-MQQB 3.1.5.6)."""


@dataclass(slots=True, repr=False)
class FinalAckReceived(UserMessageReceived):
    """A UserMessage that is a FinalAck for this queue manager (MS-MQQB 3.1.5.7)."""


@dataclass(slots=True)
class SessionAckReceived:
    """One SessionHeader of the peer, alone or behind a UserMessage. Entries are those given to `Session.send`."""

    acked: list[object]  # covered by AckSequenceNumber: the peer has them
    persisted: list[object]  # recoverable ones that the peer has on disk


@dataclass(slots=True)
class NothingAcknowledged:
    """The peer is there, but none of what is on its way was acknowledged for some time. The session goes on (3.1.6.3)."""

    seconds: float


@dataclass(slots=True)
class SessionClosed:
    """The last event of a session. What is left in `data_to_send` goes out before the transport is closed."""

    reason: str
    is_error: bool
    is_refused: bool = False  # the peer answered, and wants no session
    is_malformed: bool = False  # the peer sent a packet that breaks the rules, on an open session


Event = (
    SessionOpened
    | UserMessageReceived
    | OrderAckReceived
    | FinalAckReceived
    | SessionAckReceived
    | NothingAcknowledged
    | SessionClosed
)
