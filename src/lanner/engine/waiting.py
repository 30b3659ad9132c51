"""Waiting reads (MS-MQDMPR 3.1.2.3, 3.1.6.3, 3.1.7.1.17, 3.1.7.3.1, 3.1.7.3.4-3.1.7.3.7).

The text keeps a collection of waiting reads per descriptor and serves descriptor by descriptor. Ours is
one first-in first-out line per queue: first come, first served also between descriptors, and still
first-in first-out on each of them. Times are milliseconds, as on the wire (DECISIONS).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from lanner.engine.base import EngineBase
from lanner.model.enums import INFINITE, PositionState
from lanner.model.errors import IOTimeout, StatusError, StatusNotFound, TransactionSequence
from lanner.model.live import WaitingMessageReadOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.model.directory_objects import Queue
    from lanner.model.live import Cursor, MessagePosition, OpenQueueDescriptor, Transaction

# Ours: a heap of timers that is shorter is not worth a look.
_MIN_TIMERS = 256


class WaitingReads(EngineBase):
    """Who waits for a message, and who gets the next one."""

    def _wait_for_new_message(
        self,
        descriptor: OpenQueueDescriptor,
        timeout: int,
        *,
        destructive_read: bool,
        tag: object | None,
        cursor: Cursor | None,
        satisfied: Callable[[MessagePosition], None],
        stopped: Callable[[StatusError], None],
        transaction: Transaction | None = None,
    ) -> WaitingMessageReadOperation:
        """3.1.7.3.1 Wait For New Message; a time-out of zero fails at once (DECISIONS: 0xC00E001B)."""
        queue = descriptor.queue
        if queue is None or timeout <= 0:
            raise IOTimeout
        reader = WaitingMessageReadOperation(
            descriptor, destructive_read, satisfied, stopped, tag=tag, cursor=cursor, transaction=transaction
        )
        self._waiting_read_count += 1
        reader.number = self._waiting_read_count
        queue.waiting_reads[reader] = None
        if transaction is not None:
            transaction.waiting_reads[reader] = None
        self._waiting_message_read_timer_start(reader, timeout)
        return reader

    def _waiting_message_read_timer_start(self, reader: WaitingMessageReadOperation, timeout: int) -> None:
        """3.1.7.3.4 Waiting Message Read Timer Start; an infinite one never fires."""
        if timeout != INFINITE:
            reader.deadline = self.monotonic() + timeout / 1000
            heapq.heappush(self._read_timers, (reader.deadline, reader.number, reader))
            if self._read_timers[0][2] is reader:
                self.deadline_changed()
            if len(self._read_timers) > self._read_timers_limit:
                self._drop_ended_timers()

    def _drop_ended_timers(self) -> None:
        """Take waits that have ended out of the heap: some would stay there for days."""
        timers = self._read_timers
        timers[:] = [entry for entry in timers if entry[2].is_waiting]
        heapq.heapify(timers)
        self._read_timers_limit = 2 * len(timers) + _MIN_TIMERS

    def _waiting_message_read_timer_stop(self, reader: WaitingMessageReadOperation, status: StatusError) -> None:
        """3.1.7.3.5 Waiting Message Read Timer Stop: the wait ends with that status."""
        if self._end_wait(reader):
            reader.stopped(status)

    def _waiting_message_read_satisfied(self, reader: WaitingMessageReadOperation, position: MessagePosition) -> None:
        """3.1.7.3.6 Waiting Message Read Satisfied: this read, and no other, gets the position."""
        if self._end_wait(reader):
            reader.satisfied(position)

    def _end_wait(self, reader: WaitingMessageReadOperation) -> bool:
        """Take the record out of its queue; a timer that is still in the heap finds it ended."""
        if not reader.is_waiting:
            return False
        reader.is_waiting = False
        queue = reader.descriptor.queue
        if queue is not None:
            queue.waiting_reads.pop(reader, None)
        if reader.transaction is not None:
            reader.transaction.waiting_reads.pop(reader, None)
        return True

    def _waiting_message_read_timer_expired(self, reader: WaitingMessageReadOperation) -> None:
        """3.1.6.3 Waiting Message Read Timer Expired."""
        self._waiting_message_read_timer_stop(reader, IOTimeout())

    def _expire_waiting_reads(self) -> None:
        now = self.monotonic()
        timers = self._read_timers
        while timers and (timers[0][0] <= now or not timers[0][2].is_waiting):
            reader = heapq.heappop(timers)[2]
            if reader.is_waiting:
                self._waiting_message_read_timer_expired(reader)

    def _next_read_deadline(self) -> float | None:
        timers = self._read_timers
        while timers and not timers[0][2].is_waiting:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def cancel_waiting_message_read_request(self, queue: Queue, tag: object, status: StatusError) -> None:
        """3.1.7.1.17 Cancel Waiting Message Read Request, on any descriptor of the queue."""
        if tag is not None:
            for reader in queue.waiting_reads:
                if reader.tag == tag:
                    self._waiting_message_read_timer_stop(reader, status)
                    return
        raise StatusNotFound(f"no waiting read with tag {tag!r} on queue {queue.pathname}")

    def stop_waiting_read(self, reader: WaitingMessageReadOperation, status: StatusError) -> None:
        """End one wait from outside: whoever asked has gone."""
        self._waiting_message_read_timer_stop(reader, status)

    @staticmethod
    def _require_open(transaction: Transaction | None) -> None:
        """Nothing joins a transaction that has ended, or has promised what it will do."""
        if transaction is not None and (transaction.is_over or transaction.is_prepared):
            state = "has ended" if transaction.is_over else "is prepared"
            raise TransactionSequence(f"transaction {transaction.identifier} {state}: begin another one")

    def _stop_waiting_reads(self, readers: list[WaitingMessageReadOperation], status: StatusError) -> None:
        for reader in readers:
            self._waiting_message_read_timer_stop(reader, status)

    def _serve_waiting_reads(self, queue: Queue, position: MessagePosition) -> None:
        """The reader loop of 3.1.7.2.2: peekers in turn, then exactly one receiver."""
        queue.unserved_positions.append((position, self._waiting_read_count))
        if not queue.waiting_for_release:
            self._serve_next(queue)

    def _release_next_reader(self, queue: Queue) -> None:
        """3.1.7.3.7 Release Next Reader: on this queue only."""
        if queue.waiting_for_release:
            queue.waiting_for_release = False
            # Inside _serve_next the loop itself goes on; outside it begins again here.
            if not self._serving_queue_stack or self._serving_queue_stack[-1] is not queue:
                self._serve_next(queue)

    def _serve_next(self, queue: Queue) -> None:
        self._serving_queue_stack.append(queue)
        try:
            while queue.unserved_positions and queue.waiting_reads:
                position, last_number = queue.unserved_positions[0]
                reader = next(iter(queue.waiting_reads))
                if (
                    # A read that began since has looked at this position itself, and wants another.
                    reader.number > last_number
                    or position.state is not PositionState.AVAILABLE
                    or not self._is_available(queue, position.lookup_id)
                ):
                    queue.unserved_positions.pop(0)
                elif reader.destructive_read:
                    queue.unserved_positions.pop(0)
                    self._waiting_message_read_satisfied(reader, position)
                else:
                    queue.waiting_for_release = True
                    self._waiting_message_read_satisfied(reader, position)
                    if queue.waiting_for_release:
                        return
            queue.unserved_positions.clear()
        finally:
            self._serving_queue_stack.pop()
