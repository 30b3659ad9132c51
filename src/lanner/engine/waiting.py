"""Waiting reads (MS-MQDMPR 3.1.2.3, 3.1.6.3, 3.1.7.1.17, 3.1.7.3.1, 3.1.7.3.4-3.1.7.3.7).

The specification keeps a collection of waiting reads per descriptor and serves one descriptor after
the other. Here each queue has one first-in, first-out line. Reads are served in the order in which
they began, across descriptors and therefore on each descriptor. Times are milliseconds, as on the
wire (DECISIONS).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from lanner.model.enums import INFINITE, PositionState
from lanner.model.errors import IOTimeout, StatusError, StatusNotFound
from lanner.model.live import WaitingMessageReadOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lanner.engine.core import Core
    from lanner.model.directory_objects import Queue
    from lanner.model.live import Cursor, MessagePosition, OpenQueueDescriptor, Transaction
    from lanner.store import Store

# Not in the specification: a heap of timers shorter than this is not searched for waits that have
# ended.
_MIN_TIMERS: Final = 256

_AVAILABLE: Final = PositionState.AVAILABLE


def is_available(store: Store, queue: Queue, lookup_id: int) -> bool:
    """Return whether the message under a lookup id is in the queue and in state Available."""
    held = queue.held_positions.get(lookup_id)
    if held is not None:
        return held.state is _AVAILABLE
    return store.contains(queue.number, lookup_id)


class WaitingReads:
    """The reads that wait for a message, their timers, and which read gets the next message."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self._clocks = core.clocks
        self._held_memory = core.held_memory
        # A heap of (deadline, number, read). A wait that has ended stays in it until it is due or
        # dropped.
        self.timers: list[tuple[float, int, WaitingMessageReadOperation]] = []
        self._timers_limit = 0  # a longer heap is searched for waits that have ended
        self._count = 0  # waits that have begun
        self._serving: list[Queue] = []

    def wait_for_new_message(
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
        """3.1.7.3.1 Wait For New Message.

        A time-out of zero fails at once (DECISIONS: 0xC00E001B).
        """
        queue = descriptor.queue
        if queue is None or timeout <= 0:
            raise IOTimeout
        reader = WaitingMessageReadOperation(
            descriptor, destructive_read, satisfied, stopped, tag=tag, cursor=cursor, transaction=transaction
        )
        self._count += 1
        reader.number = self._count
        queue.waiting_reads[reader] = descriptor.waits[reader] = None
        if transaction is not None:
            transaction.waiting_reads[reader] = None
        if timeout != INFINITE:
            self.waiting_message_read_timer_start(reader, timeout)
        return reader

    def waiting_message_read_timer_start(self, reader: WaitingMessageReadOperation, timeout: int) -> None:
        """3.1.7.3.4 Waiting Message Read Timer Start."""
        reader.deadline = self._clocks.monotonic() + timeout / 1000
        heapq.heappush(self.timers, (reader.deadline, reader.number, reader))
        if self.timers[0][2] is reader:
            self._clocks.deadline_changed()
        if len(self.timers) > self._timers_limit:
            self._drop_ended_timers()

    def _drop_ended_timers(self) -> None:
        """Remove waits that have ended from the heap; their deadlines may be days away."""
        timers = self.timers
        timers[:] = [entry for entry in timers if entry[2].is_waiting]
        heapq.heapify(timers)
        self._timers_limit = 2 * len(timers) + _MIN_TIMERS

    def waiting_message_read_timer_stop(self, reader: WaitingMessageReadOperation, status: StatusError) -> None:
        """3.1.7.3.5 Waiting Message Read Timer Stop. The wait ends with `status`."""
        if self._end(reader):
            reader.stopped(status)

    def stop_waiting_read(self, reader: WaitingMessageReadOperation, status: StatusError) -> None:
        """End one wait whose caller has given up or disconnected."""
        self.waiting_message_read_timer_stop(reader, status)

    def stop_all(self, readers: Iterable[WaitingMessageReadOperation], status: StatusError) -> None:
        """End several waits with the same status."""
        for reader in list(readers):
            self.waiting_message_read_timer_stop(reader, status)

    def waiting_message_read_satisfied(self, reader: WaitingMessageReadOperation, position: MessagePosition) -> None:
        """3.1.7.3.6 Waiting Message Read Satisfied. Only this read gets the position."""
        if self._end(reader):
            reader.satisfied(position)

    @staticmethod
    def _end(reader: WaitingMessageReadOperation) -> bool:
        """Remove a read from the line of its queue; return False if its wait had already ended."""
        if not reader.is_waiting:
            return False
        reader.is_waiting = False
        descriptor = reader.descriptor
        descriptor.waits.pop(reader, None)
        if descriptor.queue is not None:
            descriptor.queue.waiting_reads.pop(reader, None)
        if reader.transaction is not None:
            reader.transaction.waiting_reads.pop(reader, None)
        return True

    def expire(self) -> None:
        """3.1.6.3 Waiting Message Read Timer Expired, for every wait that is due."""
        now = self._clocks.monotonic()
        timers = self.timers
        while timers and (timers[0][0] <= now or not timers[0][2].is_waiting):
            self.waiting_message_read_timer_stop(heapq.heappop(timers)[2], IOTimeout())

    def next_deadline(self) -> float | None:
        """Return when the next wait is due on the monotonic clock; None if there is no timer."""
        timers = self.timers
        while timers and not timers[0][2].is_waiting:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def cancel_waiting_message_read_request(self, queue: Queue, tag: object, status: StatusError) -> None:
        """3.1.7.1.17 Cancel Waiting Message Read Request, on any descriptor of the queue."""
        if tag is not None:
            for reader in queue.waiting_reads:
                if reader.tag == tag:
                    self.waiting_message_read_timer_stop(reader, status)
                    return
        raise StatusNotFound(f"no waiting read with tag {tag!r} on queue {queue.pathname}")

    def serve(self, queue: Queue, position: MessagePosition) -> None:
        """Run the reader loop of 3.1.7.2.2: peekers in turn, then exactly one receiver."""
        queue.unserved_positions.append((position, self._count))
        if not queue.waiting_for_release:
            self._serve_next(queue)

    def release_next_reader(self, queue: Queue) -> None:
        """3.1.7.3.7 Release Next Reader, on this queue only."""
        if queue.waiting_for_release:
            queue.waiting_for_release = False
            # Inside _serve_next, that method's loop continues. Outside, it is started again here.
            if not self._serving or self._serving[-1] is not queue:
                self._serve_next(queue)

    def _serve_next(self, queue: Queue) -> None:
        self._serving.append(queue)
        try:
            while queue.unserved_positions and queue.waiting_reads:
                position, last_number = queue.unserved_positions[0]
                reader = next(iter(queue.waiting_reads))
                if (
                    # A read that began later has examined this position itself, and waits for
                    # another one.
                    reader.number > last_number
                    or position.state is not _AVAILABLE
                    or not is_available(self._store, queue, position.lookup_id)
                ):
                    queue.unserved_positions.pop(0)
                elif reader.destructive_read and self._held_memory.is_full(reader.descriptor.sender_identifier):
                    # The message goes to the next reader.
                    refusal = self._held_memory.refusal(reader.descriptor.sender_identifier)
                    self.waiting_message_read_timer_stop(reader, refusal)
                elif reader.destructive_read:
                    queue.unserved_positions.pop(0)
                    self.waiting_message_read_satisfied(reader, position)
                else:
                    queue.waiting_for_release = True
                    self.waiting_message_read_satisfied(reader, position)
                    if queue.waiting_for_release:
                        return
            queue.unserved_positions.clear()
        finally:
            self._serving.pop()
