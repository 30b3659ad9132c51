"""What a session tells its owner. One object for each run of messages of equal shape."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SessionOpened:
    """The handshake is done: user messages may flow both ways."""


@dataclass(slots=True)
class UserMessagesReceived:
    """UserMessages of equal shape (`wire.packet_runs`), checked; most often one.

    Messages count 1, 2, 3 ... for the life of the session; `number` is that of the first.
    """

    number: int
    packets: list[bytes]  # without SessionHeader and SH, which belong to the session

    @property
    def last_number(self) -> int:
        return self.number + len(self.packets) - 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.number}, {[len(packet) for packet in self.packets]} bytes)"


@dataclass(slots=True, repr=False)
class OrderAckReceived(UserMessagesReceived):
    """One UserMessage that is an OrderAck for this queue manager (MS-MQQB 3.1.5.6)."""


@dataclass(slots=True, repr=False)
class FinalAckReceived(UserMessagesReceived):
    """One UserMessage that is a FinalAck for this queue manager (MS-MQQB 3.1.5.7)."""


@dataclass(slots=True)
class SessionAckReceived:
    """One SessionHeader of the peer, alone or behind a UserMessage.

    Entries are those given to `Session.send`.
    """

    acked: list[object]  # covered by AckSequenceNumber: the peer has them
    persisted: list[object]  # recoverable ones that the peer has on disk


@dataclass(slots=True)
class NothingAcknowledged:
    """The peer is there, but none of what is on its way was acknowledged for some time.

    The session goes on (3.1.6.3).
    """

    seconds: float


@dataclass(slots=True)
class SessionClosed:
    """The last event of a session.

    What is left in `data_to_send` goes out before the transport is closed.
    """

    reason: str
    is_error: bool
    is_refused: bool = False  # the peer answered, and wants no session
    is_malformed: bool = False  # the peer sent a packet that breaks the rules, on an open session


Event = (
    SessionOpened
    | UserMessagesReceived
    | OrderAckReceived
    | FinalAckReceived
    | SessionAckReceived
    | NothingAcknowledged
    | SessionClosed
)
