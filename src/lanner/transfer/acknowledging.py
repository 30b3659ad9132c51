"""Counts and acknowledgments of a session's user messages.

Implements MS-MQQB 3.1.1.4, 3.1.1.6.1, 3.1.5.5 and 3.1.5.8.7. Counts begin at 0 with the session and
are kept unwrapped; packets carry their lower 16 bits. Each direction has its own object:
`SentMessages` for messages to the peer, `ReceivedMessages` for messages from the peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from lanner.model.errors import RemoteProtocolError
from lanner.wire.session_header import MAX_RECOVERABLE_ACKS, SMALLEST_WINDOW_SIZE, SessionHeader

NUMBER_MASK = 0xFFFF
# Not in the specification: recoverable messages that a peer has acknowledged by count but not as on
# disk. A peer that never acknowledges them as on disk is stopped here, well before their 16-bit
# numbers become ambiguous.
MAX_UNPERSISTED = 0x4000


class SentMessages:
    """Messages that were sent and not yet acknowledged, in sending order."""

    __slots__ = ("_lowest_unpersisted", "_unacked", "_unpersisted", "count", "recoverable_count")

    def __init__(self) -> None:
        self.count = 0  # MessageSentCount
        self.recoverable_count = 0  # RecoverableMessageSentCount
        self._unacked: deque[object] = deque()
        # By recoverable number. All entries below the lowest have been returned by `persisted`.
        self._unpersisted: dict[int, object] = {}
        self._lowest_unpersisted = 1

    @property
    def unacked_count(self) -> int:
        """UnAckedMessageCount: sent messages only (DECISIONS), so a backlog never blocks itself."""
        return len(self._unacked)

    @property
    def is_unacked(self) -> bool:
        """Whether any sent message is not acknowledged."""
        return bool(self._unacked)

    @property
    def is_waiting(self) -> bool:
        """Whether the peer has anything left to acknowledge, as received or as on disk."""
        return bool(self._unacked or self._unpersisted)

    def room(self, window: int) -> int:
        """Return how many more messages may be sent within a window."""
        return max(0, min(window - len(self._unacked), MAX_UNPERSISTED - len(self._unpersisted)))

    def sent(self, entries: Sequence[object], recoverable: Sequence[object]) -> None:
        """Number messages that are sent (3.1.7.1.3).

        Each entry takes the next number. Each recoverable one also takes the next recoverable
        number.
        """
        self.count += len(entries)
        self._unacked.extend(entries)
        first = self.recoverable_count + 1
        self.recoverable_count += len(recoverable)
        self._unpersisted.update(enumerate(recoverable, first))

    def acked(self, ack_sequence_number: int) -> list[object]:
        """Return the entries newly covered by AckSequenceNumber (3.1.5.5.1).

        A number that was acknowledged before covers nothing new. A number that was never sent
        raises RemoteProtocolError.
        """
        unacked = self._unacked
        new = ack_sequence_number - (self.count - len(unacked)) & NUMBER_MASK
        if new <= len(unacked):
            if new == len(unacked):
                acked = list(unacked)
                unacked.clear()
                return acked
            return [unacked.popleft() for _ in range(new)]
        if new - len(unacked) < 0x8000:
            raise RemoteProtocolError(
                f"SessionHeader.AckSequenceNumber: {ack_sequence_number}, but only {self.count & NUMBER_MASK} was sent"
            )
        return []

    def persisted(self, number: int, flags: int) -> list[object]:
        """Return the entries newly covered as on disk (3.1.5.5.3).

        `number` is RecoverableMsgAckSeqNumber, `flags` is RecoverableMsgAckFlags. If any bit is
        set, the packet covers everything up to the number, and for each bit k the number plus k.
        Without bits it covers nothing.
        """
        if not flags:
            return []
        unpersisted = self._unpersisted
        lowest = self.recoverable_count - (self.recoverable_count - number & NUMBER_MASK)
        # The number of consecutive ones at the low end of the flags: usually all of them, because
        # the receiver saves messages in order.
        run = (~flags & flags + 1).bit_length() - 1
        covered = min(lowest + max(run, 1), self.recoverable_count + 1)
        numbers = range(self._lowest_unpersisted, covered)
        # Usually all of these numbers are present. Those covered by an earlier bit are not.
        entries = [unpersisted.pop(each) for each in numbers if each in unpersisted]
        self._lowest_unpersisted = max(self._lowest_unpersisted, covered)
        flags >>= run
        while flags:
            bit = (flags & -flags).bit_length() - 1
            flags &= flags - 1
            if lowest + run + bit in unpersisted:
                entries.append(unpersisted.pop(lowest + run + bit))
        return entries


class ReceivedMessages:
    """Counts of received, acknowledgeable and acknowledged messages.

    A message may be acknowledged once it is processed and, if it is recoverable, durable. Therefore
    a SessionAck never covers a recoverable message that could be lost.
    """

    __slots__ = (
        "_disallowed_recoverable",
        "acked",
        "allowed",
        "count",
        "recoverable_acked",
        "recoverable_allowed",
        "recoverable_count",
    )

    def __init__(self) -> None:
        self.count = 0  # MessageReceivedCount
        self.recoverable_count = 0  # RecoverableMessageReceivedCount
        self.allowed = 0
        self.recoverable_allowed = 0
        self.acked = 0
        self.recoverable_acked = 0  # LastAckedRecoverableMsgSeqNumber
        # Received recoverable messages that may not be acknowledged yet: the first and the last
        # message number of each run.
        self._disallowed_recoverable: deque[tuple[int, int]] = deque()

    @property
    def unacked_count(self) -> int:
        """UnackedReceivedMsgCount."""
        return self.count - self.acked

    @property
    def recoverable_msg_ack_flags(self) -> int:
        """RecoverableMsgAckFlags of the next SessionHeader.

        It has a bit for each message that is on disk and not acknowledged, 32 at most.
        """
        return (1 << min(self.recoverable_allowed - self.recoverable_acked, MAX_RECOVERABLE_ACKS)) - 1

    def received(self, messages: int, *, is_recoverable: bool) -> int:
        """Count messages (3.1.5.8.2, 3.1.5.8.7); return the number of the first.

        They count even if they are refused later (QQB-3.1.5.8-1).
        """
        first = self.count + 1
        self.count += messages
        if is_recoverable:
            self.recoverable_count += messages
            self._disallowed_recoverable.append((first, self.count))
        return first

    def allow(self, upto: int) -> None:
        """Allow the acknowledgment of every message up to this number."""
        if upto > self.count:
            raise ValueError(f"message {upto} may be acknowledged, but only {self.count} were received")
        if upto <= self.allowed:
            return
        self.allowed = upto
        disallowed = self._disallowed_recoverable
        while disallowed and disallowed[0][0] <= upto:
            first, last = disallowed.popleft()
            self.recoverable_allowed += min(last, upto) - first + 1
            if last > upto:
                disallowed.appendleft((upto + 1, last))

    def session_header(self, sent: SentMessages, window_size: int) -> SessionHeader:
        """Return the next SessionHeader (3.1.6.4) and count its contents as acknowledged.

        Its bits are not sent again. It has room for 32 recoverable messages: if `has_more` is true
        afterwards, another must follow.
        """
        flags = self.recoverable_msg_ack_flags
        lowest = self.recoverable_acked + 1 if flags else 0
        self.recoverable_acked += flags.bit_length()
        self.acked = self.allowed
        return SessionHeader(
            self.allowed & NUMBER_MASK,
            lowest & NUMBER_MASK,
            flags,
            sent.count & NUMBER_MASK,
            sent.recoverable_count & NUMBER_MASK,
            window_size,
        )

    @property
    def has_more(self) -> bool:
        """Whether recoverable messages are on disk whose bits have not been sent."""
        return self.recoverable_acked < self.recoverable_allowed

    def check_counts(self, header: SessionHeader) -> None:
        """Raise RemoteProtocolError unless the peer's counts match ours (3.1.5.5.5)."""
        if header.user_msg_sequence_number != self.count & NUMBER_MASK:
            raise RemoteProtocolError(
                f"SessionHeader.UserMsgSequenceNumber: {header.user_msg_sequence_number}, "
                f"but {self.count & NUMBER_MASK} was received"
            )
        if header.recoverable_msg_seq_number != self.recoverable_count & NUMBER_MASK:
            raise RemoteProtocolError(
                f"SessionHeader.RecoverableMsgSeqNumber: {header.recoverable_msg_seq_number}, "
                f"but {self.recoverable_count & NUMBER_MASK} was received"
            )


def usable_window(window_size: int, received_window_size: int) -> int:
    """Return how many messages may be unacknowledged (DECISIONS).

    It is the smaller of the two windows, and at least one.
    """
    return max(SMALLEST_WINDOW_SIZE, min(window_size, received_window_size))
