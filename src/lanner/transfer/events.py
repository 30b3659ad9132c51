"""Events that a session returns to its owner.

Messages of equal shape that arrive together share one event.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SessionOpened:
    """The handshake is done: user messages may flow both ways."""


@dataclass(slots=True)
class UserMessagesReceived:
    """UserMessages of equal shape (`wire.packet_runs`), validated; usually one.

    Messages are numbered 1, 2, 3, ... for the life of the session; `number` is that of the first.
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
    """One SessionHeader of the peer, alone or after a UserMessage.

    Entries are those passed to `Session.send`.
    """

    acked: list[object]  # covered by AckSequenceNumber: the peer has them
    persisted: list[object]  # recoverable ones that the peer has on disk


@dataclass(slots=True)
class NothingAcknowledged:
    """The peer is alive but has acknowledged no sent message for some time.

    The session continues (3.1.6.3).
    """

    seconds: float


@dataclass(slots=True)
class SessionClosed:
    """The last event of a session.

    The owner writes what is left in `data_to_send` before it closes the transport.
    """

    reason: str
    is_error: bool
    is_refused: bool = False  # the peer answered and rejected the session
    is_malformed: bool = False  # the peer sent an invalid packet on an open session


Event = (
    SessionOpened
    | UserMessagesReceived
    | OrderAckReceived
    | FinalAckReceived
    | SessionAckReceived
    | NothingAcknowledged
    | SessionClosed
)
