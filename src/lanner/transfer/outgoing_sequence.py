"""OutgoingTransferSequence: transactional messages that wait for their OrderAck.

Implements MS-MQQB 3.1.1.3.1.1, 3.1.2.6 Transactional Ack Wait Timer, 3.1.5.6 and 3.1.6.5. This
module decides when messages are sent again. The messages themselves, and what happens when they are
acknowledged, are in `outgoing_message_table`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lanner.wire.identifiers import SequenceInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanner.wire.identifiers import TxSequenceID

NO_SEQUENCE_INFO = SequenceInfo(0, 0, 0)


class Numbered(Protocol):
    """The attributes of a message that a sequence uses."""

    tx_sequence_id: TxSequenceID
    tx_sequence_number: int
    previous_tx_sequence_number: int


Entry = TypeVar("Entry", bound=Numbered)


def _number(entry: Numbered) -> int:
    return entry.tx_sequence_number


def sequence_info(entry: Numbered) -> SequenceInfo:
    """Return the SEQUENCE_INFO of a message (MS-MQMQ 2.2.5)."""
    return SequenceInfo(entry.tx_sequence_id.value, entry.tx_sequence_number, entry.previous_tx_sequence_number)


class OutgoingTransferSequence(Generic[Entry]):
    """TxOutgoingSequence of one outgoing queue.

    All entries are of one sequence. A new sequence begins when no entry is left.
    """

    def __init__(
        self, resend_timer_table: Sequence[float], *, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._resend_timer_table = resend_timer_table
        self._clock = clock
        self._monotonic = monotonic
        # UnackedSequence, by number. The SEQUENCE_INFO of an entry is `sequence_info(entry)`.
        self.unacked: list[Entry] = []
        self.highest_sent = 0
        self.session_opened()

    def session_opened(self) -> None:
        """Prepare for a new session (3.1.3.2 Session Initialization).

        UnackedSequence is kept, because its messages will be sent again (QQB-3.1.3.2-3).
        """
        self.last_ack = NO_SEQUENCE_INFO
        self.time_of_last_ack = int(self._clock())
        self.last_ack_count = 0
        self.resend_interval_index = 0
        self.stop()

    def stop(self) -> None:
        """Stop the Transactional Ack Wait Timer."""
        self.deadline: float | None = None  # monotonic
        self.resend_time = 0  # seconds since 1970 UTC; 0: no resend is scheduled

    @property
    def waited(self) -> float:
        """Seconds since the last acknowledgment, or since the first message was sent."""
        return max(0.0, self._clock() - self.time_of_last_ack)

    @property
    def resend_interval(self) -> float:
        """Seconds to wait for an OrderAck."""
        return self._resend_timer_table[self.resend_interval_index]

    def _start(self) -> None:
        interval = self.resend_interval
        self.deadline = self._monotonic() + interval
        self.resend_time = int(self._clock() + interval)

    def add(self, entry: Entry) -> None:
        """Add a message that is about to be sent to UnackedSequence."""
        unacked, number = self.unacked, entry.tx_sequence_number
        if not unacked or unacked[-1].tx_sequence_number < number:
            unacked.append(entry)
            return
        place = bisect_left(unacked, number, key=_number)
        if unacked[place].tx_sequence_number != number:
            unacked.insert(place, entry)

    def sent(self, number: int) -> bool:
        """Note that messages up to this number were sent (3.1.2.6).

        The timer runs from the first message that waits. Return whether this call started it.
        """
        self.highest_sent = max(self.highest_sent, number)
        if self.deadline is not None:
            return False
        self._start()
        return True

    def preceding(self, number: int) -> Entry | None:
        """Return the unacknowledged message before this number, which is usually the last."""
        unacked = self.unacked
        is_last = unacked and unacked[-1].tx_sequence_number == number
        place = len(unacked) - 1 if is_last else bisect_left(unacked, number, key=_number)
        return unacked[place - 1] if place else None

    def order_ack(self, tx_sequence_id: TxSequenceID, number: int) -> list[Entry]:
        """Remove and return the entries that an OrderAck acknowledges (3.1.5.6).

        A number that was never sent acknowledges no more than was sent.
        """
        unacked = self.unacked
        number = min(number, self.highest_sent)
        count = bisect_right(unacked, number, key=_number)
        acked = unacked[:count]
        del unacked[:count]
        self.time_of_last_ack = int(self._clock())
        self.last_ack_count += 1
        # Numbers of another sequence cannot be compared with these.
        if number > (self.last_ack.seq_no if self.last_ack.seq_id == tx_sequence_id.value else 0):
            # The message itself may be gone, because it has expired since it was sent.
            is_here = acked and acked[-1].tx_sequence_number == number
            previous = acked[-1].previous_tx_sequence_number if is_here else number - 1
            self.last_ack = SequenceInfo(tx_sequence_id.value, number, previous)
        if acked:
            # DECISIONS: progress resets the interval, timeouts lengthen it.
            self.resend_interval_index = 0
            self._restart()
        return acked

    def remove(self, entry: Entry) -> None:
        """Remove a message that has expired, or whose FinalAck came before its OrderAck."""
        unacked = self.unacked
        place = bisect_left(unacked, entry.tx_sequence_number, key=_number)
        if place < len(unacked) and unacked[place] is entry:
            del unacked[place]
            if not unacked:
                self.stop()

    def _restart(self) -> None:
        if self.unacked:
            self._start()
        else:
            self.stop()

    def timed_out(self) -> None:
        """Lengthen the interval, because no OrderAck came in time (3.1.6.5).

        ResendTimerTable has the intervals. Its last one is used from then on.
        """
        self.resend_interval_index = min(self.resend_interval_index + 1, len(self._resend_timer_table) - 1)
        self._restart()
