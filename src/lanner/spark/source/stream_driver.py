"""The driver side of a stream: where it begins, how far it may read, and what it has processed.

Two facts about Spark determine the design (DESIGN, section 8). First, Spark calls `commit` only
when it plans the next batch, so the last batch would stay in its queue. But it requests the latest
offset after X only when the batch that ends at X is in its commit log. So the driver then
acknowledges everything up to X. Second, Spark requests the initial offset more than once, also
after a crash. So the queue manager stores, under the reader's name, what "latest" meant.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from lanner.model.errors import QueueNotAvailable, QueueNotFound, ServiceNotAvailable
from lanner.spark.source.batch_reader import check_managers, position
from lanner.spark.source.leases import Leases
from lanner.spark.source.offsets import ManagerOffset, Offset, QueueOffset
from lanner.spark.source.options import EARLIEST, LATEST, SKIP, StreamOptions
from lanner.spark.source.partitions import Columns, MessagePartition, Planner, Wanted, aged_out
from lanner.spark.source.queue_names import (
    Fleet,
    FoundQueue,
    KnownManager,
    ask_all,
    at_once,
    find_queues,
    is_pattern,
)

_LOG: Final = logging.getLogger(__name__)

# Not in the specification: the milliseconds for which one poll waits for messages. An idle stream
# polls twice a second.
POLL_MS: Final = 500
# Not in the specification: the seconds between two searches for new queues that match a pattern.
LIST_INTERVAL: Final = 5.0
UNLIMITED: Final = 1 << 62
# Not in the specification: the seconds to wait for a slow queue manager while others have messages.
GRACE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    messages: int = UNLIMITED
    bytes: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class _Ask:
    """A queue that may have messages after the position of the stream."""

    known: KnownManager
    queue: FoundQueue
    at: QueueOffset

    def request(self, limits: Limits) -> dict[str, Any]:
        return {
            "queue": self.queue.name,
            "queue_id": self.queue.number,
            "after": self.at.end,
            "max_messages": limits.messages,
            "max_bytes": limits.bytes,
        }


_NOTHING: Final[dict[str, Any]] = {"messages": 0, "bytes": 0}


def _messages(offset: Offset) -> int:
    return sum(queue.messages for manager in offset.managers.values() for queue in manager.queues.values())


class StreamDriver:
    """The driver of one stream. Spark calls its methods one by one, always in the same process."""

    def __init__(self, options: StreamOptions, columns: Columns) -> None:
        self._options = options
        self._planner = Planner(columns, options.min_partitions, fail_on_data_loss=options.fail_on_data_loss)
        self._leases = (
            Leases(options.reader, options.lease_ms) if options.is_receiver and options.reader is not None else None
        )
        self._managers: list[KnownManager] = []
        self._skipped: dict[str, str] = {}
        self._ask_managers()
        self._queues: dict[tuple[str, int], FoundQueue] = {}
        self._next_listing = 0.0
        # With Trigger.AvailableNow: the last number to read, by queue manager.
        self._targets: dict[str, int] | None = None
        # Spark never requests the initial offset of a stream with a checkpoint. Without a
        # checkpoint it does so repeatedly, until the stream has read something.
        self._is_resumed = True
        self._initial: Offset | None = None
        self._pool: ThreadPoolExecutor | None = None
        self.latest_known: dict[str, Any] | None = None
        self._waits_since: float | None = None
        # The lag, by queue manager and queue.
        self._behind: dict[tuple[str, str], dict[str, int]] = {}
        # Calls that took too long, by queue manager: the request, and the future of the answer.
        self._late: dict[str, tuple[list[dict[str, Any]], Future[list[dict[str, Any]]]]] = {}
        # The answers of skipped queue managers, if they have been asked again.
        self._returning: Future[Fleet] | None = None

    def _ask_managers(self) -> None:
        """Connect to all queue managers."""
        self._take(self._fleet())

    def _fleet(self) -> Fleet:
        return ask_all(self._options.access, is_log=self._options.is_events, skip=self._options.on_down == SKIP)

    def _take(self, fleet: Fleet) -> None:
        before = {known.identifier: known for known in self._managers}
        now = {known.identifier: known for known in fleet.managers}
        self._known = {**before, **now}
        self._managers = list(self._known.values())
        self._skipped = fleet.skipped

    def close(self) -> None:
        """End the renewal of leases, and stop the threads."""
        if self._leases is not None:
            self._leases.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(4 * len(self._options.access.managers) + 1, "lanner-poll")
        return self._pool

    # Beginning
    # ----------------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Return the offset at which a new stream begins."""
        if self._initial is None:
            self._initial = self._begin()
        return self._initial

    def _begin(self) -> Offset:
        self._is_resumed = False
        if isinstance(self._options.starting, Offset):
            check_managers(self._options.starting, self._managers)
        self._list()
        offset = Offset()
        for (identifier, _), queue in self._queues.items():
            offset = self._with(offset, self._known[identifier], queue, self._first(self._known[identifier], queue))
        return offset

    def _first(self, known: KnownManager, queue: FoundQueue) -> QueueOffset:
        starting = self._options.starting
        start: str | int
        if isinstance(starting, Offset):
            given = starting.queue(known.identifier, queue.number)
            start = 0 if given is None else given.end
        elif self._options.starting_ms is not None:
            start = position(known, queue, self._options.starting_ms)
        else:
            start = starting
        return self._begun(known, queue, start)

    def _begun(self, known: KnownManager, queue: FoundQueue, start: str | int) -> QueueOffset:
        """Return the offset of a queue that the stream has not read yet."""
        if self._leases is not None:
            number = self._leases.acquire(known, queue, start, take_over=self._is_resumed)
        elif start == LATEST:
            request = {"queue_id": queue.number, "epoch": known.epoch, "mode": "peek", "start": LATEST}
            reader = self._options.reader or ""
            number = known.manager.call(lambda flight: flight.acquire(queue.name, reader, **request))["start"]
        elif start == EARLIEST and self._options.is_events:
            # Events that were dropped before the stream began do not count as lost.
            number = known.manager.call(lambda flight: flight.bounds(queue.name))["after"]
        else:
            number = 0 if start == EARLIEST else int(start)
        return QueueOffset(queue.name, number, number)

    @staticmethod
    def _with(offset: Offset, known: KnownManager, queue: FoundQueue, reached: QueueOffset) -> Offset:
        before = offset.managers.get(known.identifier, ManagerOffset(known.epoch))
        changed = replace(before, queues={**before.queues, queue.number: reached})
        return Offset({**offset.managers, known.identifier: changed})

    def aim(self) -> None:
        """Read only messages that are in the queues now (Trigger.AvailableNow)."""
        self._ask_managers()
        self._targets = {known.identifier: known.horizon for known in self._managers}

    # Queues
    # ----------------------------------------------------------------------------------------------

    def _list(self, *, patterns_only: bool = False) -> None:
        """Find the queues that the option names."""
        managers = [known for known in self._managers if known.manager.address not in self._skipped]
        found = find_queues(
            managers,
            self._options.queues,
            patterns_only=patterns_only,
            is_log=self._options.is_events,
            skipped=self._skipped if self._options.on_down == SKIP else None,
        )
        queues = {(identifier, queue.number): queue for identifier, some in found.items() for queue in some}
        keeps = patterns_only or bool(self._skipped)
        self._queues = {**self._queues, **queues} if keeps else queues
        self._next_listing = time.monotonic() + LIST_INTERVAL

    def _list_again(self) -> None:
        if not self._queues and self._next_listing == 0:
            self._list()
        elif time.monotonic() >= self._next_listing:
            is_back = self._take_back()
            if is_back or any(map(is_pattern, self._options.queues)):
                self._list(patterns_only=not is_back)
            elif self._returning is None:
                self._next_listing = time.monotonic() + LIST_INTERVAL

    def _take_back(self) -> bool:
        """Return whether queue managers that were skipped answer again.

        They are asked in the background: if one has lost its power, that takes twenty seconds.
        """
        if not self._skipped:
            return False
        if self._returning is None:
            self._returning = self._threads().submit(self._fleet)
            wait([self._returning], GRACE)
        if not self._returning.done():
            return False
        fleet, self._returning = self._returning.result(), None
        is_back = not self._skipped.keys() <= fleet.skipped.keys()
        self._take(fleet)
        return is_back

    def _forget_deleted(self, error: QueueNotFound | QueueNotAvailable) -> None:
        """Drop deleted queues from the stream, or raise the error."""
        if self._options.fail_on_data_loss:
            raise error
        for (identifier, number), queue in list(self._queues.items()):
            request = {"queue": queue.name, "queue_id": number}
            try:
                self._known[identifier].manager.call(lambda flight, one=request: flight.act("bounds", **one))  # type: ignore[misc]
            except (QueueNotFound, QueueNotAvailable) as gone:
                _LOG.warning("the stream continues without a queue: %s", gone)
                del self._queues[identifier, number]

    # Reading on
    # ----------------------------------------------------------------------------------------------

    def latest(self, start: Offset, limits: Limits) -> Offset:
        """Return how far the next batch reads, or `start` if there is nothing new.

        It acknowledges what was read up to `start`.
        """
        self.acknowledge(start)
        self._list_again()
        if self._targets is not None or self._options.min_messages <= 1:
            return self._reached(start, limits)
        # A trigger that finds too few messages waits for more, up to a limit.
        if self._waits_since is None:
            self._waits_since = time.monotonic()
        reached = self._reached(start, limits)
        found = _messages(reached) - _messages(start)
        if found < self._options.min_messages and time.monotonic() - self._waits_since < self._options.max_delay:
            if found:
                time.sleep(POLL_MS / 1000)
            return start
        self._waits_since = None
        return reached

    def _reached(self, start: Offset, limits: Limits) -> Offset:
        asks = []
        for (identifier, _), queue in self._queues.items():
            known = self._known[identifier]
            if known.manager.address in self._skipped:
                continue
            with self._perhaps_away(known):
                asks.append(self._ask(start, known, queue))
        try:
            answers = self._look(asks, limits)
        except (QueueNotFound, QueueNotAvailable) as error:
            self._forget_deleted(error)
            return start
        reached = start
        for ask, answer in zip(asks, answers, strict=True):
            if answer["messages"]:
                if answer.get("lost"):
                    aged_out(ask.known.name, ask.at.end, answer["lost"], is_error=self._options.fail_on_data_loss)
                messages = ask.at.messages + self._held(ask, answer)
                at = replace(ask.at, name=ask.queue.name, end=answer["upto"], messages=messages)
                reached = self._with(reached, ask.known, ask.queue, at)
        if self._targets is not None and self._leases is not None and reached == start:
            # Spark ends the query now, without calling `stop`.
            self._leases.release()
        return reached

    def _held(self, ask: _Ask, answer: dict[str, Any]) -> int:
        """Return the number of messages in a batch. If the stream receives, hold them first.

        The hold is in place before Spark records the range.
        """
        if self._leases is None or self._leases.hold(ask.known, ask.queue.number, answer["upto"]) == answer["expiries"]:
            return int(answer["messages"])
        request = ask.request(Limits()) | {"epoch": ask.known.epoch, "upto": answer["upto"]}
        return int(ask.known.manager.call(lambda flight: flight.act("measure", **request))["messages"])

    def _ask(self, start: Offset, known: KnownManager, queue: FoundQueue) -> _Ask:
        # A queue that is new to the stream is read from its beginning.
        at = start.queue(known.identifier, queue.number) or self._begun(known, queue, EARLIEST)
        self._hold(known, queue, at)
        return _Ask(known, queue, at)

    def _look(self, asks: Sequence[_Ask], limits: Limits) -> list[dict[str, Any]]:
        """Return ranges with new messages, within the limits in total.

        Each queue gets a share in proportion to what it has to read.
        """
        answers = self._answers(asks, [limits] * len(asks), POLL_MS)
        answers = self._within(asks, answers, limits)
        self._remember(asks, answers)
        return answers

    def _within(self, asks: Sequence[_Ask], answers: list[dict[str, Any]], limits: Limits) -> list[dict[str, Any]]:
        messages, size = (sum(answer[what] for answer in answers) for what in ("messages", "bytes"))
        busy = [(ask, answer) for ask, answer in zip(asks, answers, strict=True) if answer["messages"]]
        if len(busy) < 2 or (messages <= limits.messages and size <= limits.bytes):
            return answers
        weights = [self._weight(answer) for _, answer in busy]
        whole = sum(weights)
        shares = [
            Limits(max(limits.messages * weight // whole, 1), max(limits.bytes * weight // whole, 1))
            for weight in weights
        ]
        cut = iter(self._answers([ask for ask, _ in busy], shares, 0))
        return [next(cut) if answer["messages"] else answer for answer in answers]

    def _weight(self, answer: dict[str, Any]) -> int:
        """Return how much a queue has to read.

        For a receiver that is the whole backlog, otherwise the part that was seen.
        """
        return max(int(answer["bytes"]), int(answer.get("backlog_bytes", 0)) if self._leases is not None else 0, 1)

    def _answers(self, asks: Sequence[_Ask], limits: Sequence[Limits], timeout: int) -> list[dict[str, Any]]:
        """Return the answer for each queue, in the order of `asks`."""
        if self._targets is not None:
            return at_once(lambda one: self._measured(*one), list(zip(asks, limits, strict=True)))
        groups: dict[str, list[int]] = {}
        for index, ask in enumerate(asks):
            groups.setdefault(ask.known.identifier, []).append(index)
        answers = [_NOTHING] * len(asks)
        requests = {
            identifier: [asks[index].request(limits[index]) for index in some] for identifier, some in groups.items()
        }
        if not asks:
            time.sleep(timeout / 1000)
        for identifier, found in self._polled(requests, timeout):
            for index, answer in zip(groups[identifier], found, strict=True):
                answers[index] = answer
        return answers

    def _measured(self, ask: _Ask, limits: Limits) -> dict[str, Any]:
        upto = (self._targets or {}).get(ask.known.identifier)
        answer = _NOTHING
        if upto is None:
            return answer  # It was away when the query began.
        request = ask.request(limits) | {"epoch": ask.known.epoch, "upto": upto}
        with self._perhaps_away(ask.known):
            answer = ask.known.manager.call(lambda flight: flight.act("measure", **request))
        return answer  # noqa: RET504 (nothing, if it is away)

    def _polled(
        self, requests: dict[str, list[dict[str, Any]]], timeout: int
    ) -> Iterable[tuple[str, list[dict[str, Any]]]]:
        """Poll all queue managers at the same time.

        The first poll does not wait, so that a fast queue manager does not always come first. Only
        if none has messages, the second poll waits until one has some.
        """
        if len(requests) < 2:
            return [(identifier, self._poll(identifier, some, timeout)) for identifier, some in requests.items()]
        now = self._all_polled(requests, 0, GRACE, ALL_COMPLETED)
        if not timeout or any(answer["messages"] for _, answers in now for answer in answers):
            return now
        return self._all_polled(requests, timeout, timeout / 1000 + GRACE, FIRST_COMPLETED)

    def _all_polled(
        self, requests: dict[str, list[dict[str, Any]]], timeout: int, patience: float, until: str
    ) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return the answers that arrived in time.

        A late answer is kept for the next poll, and the request is not repeated.
        """
        pool = self._threads()
        running: dict[Future[list[dict[str, Any]]], str] = {}
        for identifier, some in requests.items():
            asked, late = self._late.pop(identifier, (None, None))
            future = late if late is not None and asked == some else None
            running[future or pool.submit(self._poll, identifier, some, timeout)] = identifier
        deadline = time.monotonic() + patience
        done: list[tuple[str, list[dict[str, Any]]]] = []
        while running and time.monotonic() < deadline:
            ended = wait(running, deadline - time.monotonic(), until).done
            done += [(running.pop(future), future.result()) for future in ended]
            if until == FIRST_COMPLETED and any(answer["messages"] for _, answers in done for answer in answers):
                break
        self._late |= {identifier: (requests[identifier], future) for future, identifier in running.items()}
        return done

    def _poll(self, identifier: str, request: list[dict[str, Any]], timeout: int) -> list[dict[str, Any]]:
        known = self._known[identifier]
        answers = [_NOTHING] * len(request)
        with self._perhaps_away(known):
            answers = known.manager.call(lambda flight: flight.poll(request, timeout, known.epoch))
        return answers  # noqa: RET504 (nothing, if it is away)

    @contextmanager
    def _perhaps_away(self, known: KnownManager) -> Iterator[None]:
        """Skip a queue manager that does not answer, if onManagerDown is skip."""
        try:
            yield
        except ServiceNotAvailable as error:
            if self._options.on_down != SKIP:
                raise
            self._skipped[known.manager.address] = str(error)
            _LOG.warning("queue manager %s is left out (onManagerDown=skip): %s", known.name, error)

    def _remember(self, asks: Sequence[_Ask], answers: Sequence[dict[str, Any]]) -> None:
        """Record the lag of each queue and the skipped queue managers, for the query's progress."""
        for ask, answer in zip(asks, answers, strict=True):
            if "behind_messages" in answer:
                self._behind[ask.known.name, ask.queue.name] = {
                    "bytes": answer["behind_bytes"],
                    "messages": answer["behind_messages"],
                }
        shown: dict[str, dict[str, Any]] = {}
        for (manager, queue), behind in sorted(self._behind.items()):
            shown.setdefault(manager, {})[queue] = behind
        self.latest_known = {"behind": shown} | ({"skipped": sorted(self._skipped)} if self._skipped else {})

    # Batches
    # ----------------------------------------------------------------------------------------------

    def plan(self, start: Offset, end: Offset) -> list[MessagePartition]:
        """Return the partitions of a batch, which may be one from before a crash."""
        self._check(end)
        wanted = []
        for identifier, reached in end.managers.items():
            known = self._known.get(identifier)
            if known is None:
                away = "; ".join(self._skipped.values())
                raise ServiceNotAvailable(
                    f"the batch was planned with queue manager {identifier}, which is away: {away}"
                )
            ranges = []
            for number, upto in reached.queues.items():
                before = start.queue(identifier, number)
                after, messages = (upto.start, 0) if before is None else (before.end, before.messages)
                if upto.end > after:
                    self._hold(known, FoundQueue(number, upto.name), upto)
                    if self._leases is not None:
                        self._leases.hold(known, number, upto.end)
                    ranges.append(Wanted(upto.name, number, after, upto.end, upto.messages - messages))
            wanted.append((known.manager, reached.epoch, ranges))
        return self._planner.plan(wanted, self._skipped)

    def _check(self, offset: Offset) -> None:
        """Refuse offsets of other queue managers. Those that are down cannot be checked."""
        managers = offset.managers
        if self._skipped:
            managers = {identifier: one for identifier, one in managers.items() if identifier in self._known}
        check_managers(Offset(managers), self._managers)

    def _hold(self, known: KnownManager, queue: FoundQueue, at: QueueOffset) -> None:
        if self._leases is not None:
            self._leases.check()
            self._leases.acquire(known, queue, at.start, take_over=self._is_resumed)

    def acknowledge(self, offset: Offset) -> None:
        """Receive everything up to an offset, after Spark has recorded that it was processed."""
        self._check(offset)
        if self._leases is None:
            return
        self._leases.check()
        for identifier, reached in offset.managers.items():
            known = self._known.get(identifier)
            if known is None:
                continue  # It has been down since before this process started.
            # If it is down now, the next offset has the same range, and acknowledges it later.
            with self._perhaps_away(known):
                for number, at in reached.queues.items():
                    if at.end > at.start:
                        self._hold(known, FoundQueue(number, at.name), at)
                        self._leases.acknowledge(known, number, at.end)
