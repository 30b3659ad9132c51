"""`Queue.consume`: workers that call a handler for each message, each in its own transaction.

A worker receives the first message in a transaction and commits it when the handler returns. If the
handler raises an exception, or the worker dies, the transaction is aborted: the message returns to
its place, and the queue manager counts the abort. All workers of a pool share that count, wherever
they run, and it survives restarts. A message with `retries` aborts is poison.

Workers wait for a message with a peek, never with a receive. An aborted message would go to a
waiting receive at once; that receive would have to abort it in turn, and as long as any worker was
idle the message could not be moved to the poison subqueue. A peek shows the abort count and leaves
the message free to be moved. Only one worker of a consumer peeks; the others wait for their turn.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from lanner.client._async.backend import ReceivesAhead
from lanner.client._async.io import AWAITS, Event, Lock, call, pause, sleep, supervise
from lanner.client._async.transaction import Transaction
from lanner.client.consuming import Consumed, Failures, passing
from lanner.model.enums import Acknowledgements
from lanner.model.errors import (
    AccessDenied,
    CommitInDoubt,
    InsufficientResources,
    IOTimeout,
    LannerError,
    MessageAlreadyReceived,
    MessageNotFound,
    MessageStorageFailed,
    OperationCancelled,
    QueueNotAvailable,
    QueueNotFound,
    RemoteMachineNotAvailable,
    ServiceNotAvailable,
    TransactionSequence,
    UnsupportedOperation,
)
from lanner.wire.format_name import DirectFormatName

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.client._async.backend import Backend, BackendBatch, BackendQueue
    from lanner.client._async.queue import Queue
    from lanner.client.consuming import Options
    from lanner.client.message import ReceivedMessage
    from lanner.wire.path_name import PathName

DISCARD: Final = "discard"
POISON_SUBQUEUE: Final = "poison"
# The seconds for which one peek waits. They also limit a peek that began after `_release` had ended
# the waiting ones.
_PEEK_SECONDS: Final = 5.0
# The seconds after which an idle worker checks again whether the others have finished.
_BUSY_SECONDS: Final = 0.1
# A transaction that was open on a lost connection is aborted. This is reported as
# TransactionSequence.
_LOST: Final = (
    RemoteMachineNotAvailable,
    ServiceNotAvailable,
    TransactionSequence,
    InsufficientResources,
    MessageStorageFailed,
)
_log: Final = logging.getLogger("lanner.consume")


class Poison:
    """The destination of poison messages: a subqueue of the same queue, another queue, or none."""

    def __init__(self, queue: Queue, backend: Backend, given: str | Queue | None) -> None:
        """Parse the argument of `consume`.

        Raises ValueError if the queue's messages cannot go there.
        """
        # A message is moved to a subqueue of its own queue; to another queue, a copy of it is sent.
        self.subqueue: Queue | None = None
        self.queue: Queue | None = None
        self.is_transactional = True
        kind = type(queue)
        source = _path(backend, queue)
        if given == DISCARD:
            return
        if given is None or (isinstance(given, str) and given.startswith(";")):
            name = POISON_SUBQUEUE if given is None else given[1:]
            if source is None or source.is_system or source.is_journal:
                raise ValueError(
                    f"{queue.name} cannot have a subqueue for poison messages, or not by this name: "
                    f"poison needs the name of another queue, or {DISCARD!r}"
                )
            self.subqueue = kind(backend, f"{source.without_suffix()};{name}")
        elif isinstance(given, (str, kind)):
            target = kind(backend, given) if isinstance(given, str) else given
            path = _path(backend, target)
            if path is None or path.subqueue is None:
                self.queue = target
            elif source is not None and _same(path.without_suffix(), source.without_suffix()):
                self.subqueue = target
            else:
                raise ValueError(f"poison {target.name}: only messages of its own queue can be moved to a subqueue")
        else:
            raise ValueError(
                f"poison {given!r}: expected a queue of this queue manager object, the name of a queue, "
                f"None for the subqueue {POISON_SUBQUEUE}, or {DISCARD!r}"
            )
        self._check_target(queue, backend)

    def _check_target(self, queue: Queue, backend: Backend) -> None:
        target = self.subqueue or self.queue or queue
        if target.format_name.lower() == queue.format_name.lower():
            raise ValueError(f"poison {target.name}: poison messages cannot stay in the queue they come from")
        if self.subqueue is not None and backend.identifier is None:
            raise ValueError(
                f"{backend.place} moves no messages for other computers: "
                f"poison needs the name of another queue, or {DISCARD!r}"
            )

    async def check(self, backend: Backend) -> None:
        """Find out whether the other queue is transactional.

        Raises QueueNotFound if it belongs to this queue manager and does not exist.
        """
        if self.queue is None:
            return
        found: bool | None = None
        # Assume that a queue is transactional if it is on another computer, or if only
        # administrators may query it.
        with contextlib.suppress(AccessDenied, UnsupportedOperation):
            found = await self.queue.is_transactional()
            path = _path(backend, self.queue)
            if found is None and path is not None and path.computer.lower() == backend.name.lower():
                raise QueueNotFound(f"there is no queue {path} for poison messages: create it first")
        self.is_transactional = found is not False


def _path(backend: Backend, queue: Queue) -> PathName | None:
    name = backend.names.format_name(queue.name)
    return name.path_name if isinstance(name, DirectFormatName) else None


def _same(one: PathName, other: PathName) -> bool:
    return str(one).lower() == str(other).lower()


class _Worker:
    """The state that a worker keeps from one message to the next."""

    def __init__(self) -> None:
        # A transaction in which nothing has been received yet.
        self.unit: Transaction | None = None
        # Consecutive failures: of the handler, and of the queue manager or the connection to it.
        self.failures = 0
        self.losses = 0
        # Receive the next message alone, regardless of `prefetch`.
        self.is_careful = False
        # The batch requested while the previous one is handled, and the handled batch whose commit
        # is under way.
        self.ahead: _Ahead | None = None
        self.committing: _Ahead | None = None


class _Ahead:
    """Messages received ahead, their transaction, and how many of `count` they reserve."""

    __slots__ = ("batch", "reserved", "unit")

    def __init__(self, batch: BackendBatch, unit: Transaction, reserved: int) -> None:
        self.batch = batch
        self.unit = unit
        self.reserved = reserved


class Consumer:
    """One call of `Queue.consume`."""

    def __init__(
        self,
        queue: Queue,
        source: BackendQueue,
        backend: Backend,
        handler: Callable[..., object],
        poison: str | Queue | None,
        options: Options,
    ) -> None:
        self._queue = queue
        self._source = source
        self._backend = backend
        self._handler = handler
        self._passing = passing(handler, is_awaited=AWAITS)
        self._options = options
        self._poison = Poison(queue, backend, poison)
        self._failures = Failures()
        self._result = Consumed()
        # A separate queue object: closing it ends the peeks and does not affect the caller's
        # object.
        self._waiting = type(queue)(backend, queue.name)
        self._stopping = Event()
        self._turn = Lock()
        # Guards the fields below and the result. Never wait while holding it.
        self._lock = threading.Lock()
        self._reserved = 0
        self._busy = 0
        self._last_activity = time.monotonic()
        self._is_lost = False

    async def run(self) -> Consumed:
        """Handle messages until the consumer is stopped."""
        await self._poison.check(self._backend)
        try:
            works = [self._work] * self._options.concurrency
            await supervise(works, self._stopping, self._options.is_stopped, self._release)
        finally:
            await self._release()
        return self._result

    async def _release(self) -> None:
        """End the waiting peek."""
        with contextlib.suppress(LannerError):
            await self._waiting.close()

    # One worker
    # ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        worker = _Worker()
        try:
            while not self._is_stopped() and self._has_work(worker):
                # Let other tasks run even if nothing below has to wait.
                await sleep(0)
                try:
                    has_failed = await self._step(worker)
                except CommitInDoubt:
                    await self._pause_lost(worker)
                except QueueNotAvailable as error:
                    # The queue was deleted while a handle was open. A worker that opens it later
                    # gets QueueNotFound; raise the same error here, so that the result does not
                    # depend on which worker is first.
                    raise QueueNotFound(f"{self._queue.name}: the queue was deleted while it was consumed") from error
                except _LOST as error:
                    self._lost(error)
                    await self._pause_lost(worker)
                else:
                    worker.losses = 0
                    self._found()
                    if has_failed:
                        await pause(self._stopping, self._options.pause(worker.failures))
            try:
                await self._await_commit(worker)
            except CommitInDoubt:
                pass
            except _LOST as error:
                self._lost(error)
        except BaseException:
            # The consumer is failing, so the other workers should receive nothing more.
            self._stopping.set()
            raise
        finally:
            with contextlib.suppress(LannerError):
                await self._await_commit(worker)
            with contextlib.suppress(LannerError):
                await self._return_ahead(worker)
            if worker.unit is not None:
                await _abandon(worker.unit)

    def _has_work(self, worker: _Worker) -> bool:
        """Return whether a worker has work under way, or unclaimed messages of `count` are left."""
        if worker.ahead is not None or worker.committing is not None or self._options.count is None:
            return True
        with self._lock:
            return self._result.handled + self._reserved < self._options.count

    def _is_stopped(self) -> bool:
        if self._options.is_stopped is not None and self._options.is_stopped():
            self._stopping.set()
        return self._stopping.is_set()

    async def _step(self, worker: _Worker) -> bool:
        """Handle messages, or wait until there may be one. Return whether the handler failed."""
        if self._options.prefetch > 1 and not self._passing and not worker.is_careful:
            found = await self._step_ahead(worker)
            if found is not None:
                return found
        await self._await_commit(worker)
        await self._return_ahead(worker)
        worker.is_careful = False
        return await self._step_one(worker) if self._reserve() else False

    async def _step_ahead(self, worker: _Worker) -> bool | None:
        """Handle messages received ahead, and commit the handled ones.

        While the handler runs, the queue manager commits the previous batch and fetches the next
        one. Returns whether the handler failed; None if no message is available, or the next one
        must be received alone.
        """
        source = self._source
        if not isinstance(source, ReceivesAhead):
            return None
        # Handle one half of the prefetched messages while the other half is on its way.
        half = (self._options.prefetch + 1) // 2
        ahead, worker.ahead = worker.ahead, None
        if ahead is None:
            ahead = await self._ask_ahead(worker, source, half)
        if ahead is None:
            return None
        self._count_busy(1)
        try:
            messages = await ahead.batch.messages()
            if len(messages) == ahead.reserved and not self._is_stopped():
                # The batch was full, so there are probably more messages.
                worker.ahead = await self._ask_ahead(worker, source, self._options.prefetch - half)
            return await self._handle_batch(worker, ahead, messages)
        except IOTimeout:
            # Reuse the transaction.
            worker.unit = worker.unit or ahead.unit
            return None
        finally:
            self._count_busy(-1)
            if ahead is not worker.committing:
                self._unreserve(ahead.reserved)
                if ahead.unit is not worker.unit:
                    await _abandon(ahead.unit)

    async def _ask_ahead(self, worker: _Worker, source: ReceivesAhead, most: int) -> _Ahead | None:
        """Request messages in a transaction of their own; None if all are claimed."""
        claimed = self._claim(most)
        if not claimed:
            return None
        unit, worker.unit = worker.unit or Transaction(self._backend), None
        try:
            return _Ahead(await source.receive_ahead(claimed, unit.unit(self._backend)), unit, claimed)
        except BaseException:
            self._unreserve(claimed)
            await _abandon(unit)
            raise

    async def _return_ahead(self, worker: _Worker) -> None:
        """Give back the requested messages that have not been handled."""
        ahead, worker.ahead = worker.ahead, None
        if ahead is None:
            return
        self._unreserve(ahead.reserved)
        try:
            with contextlib.suppress(IOTimeout):
                await ahead.batch.messages()
                await ahead.batch.keep(0)
        finally:
            await _abandon(ahead.unit)

    async def _handle_batch(self, worker: _Worker, ahead: _Ahead, messages: list[ReceivedMessage]) -> bool | None:
        handled = 0
        failed: Exception | None = None
        for message in messages:
            if handled and self._is_stopped():
                break
            if self._failures.count(message):
                # The message has failed before, so it is handled again in a transaction of its own.
                worker.is_careful = True
                break
            try:
                await call(self._handler, message)
            except Exception as error:  # noqa: BLE001 (a handler may raise anything)
                failed = error
                break
            handled += 1
        if handled < len(messages):
            # Give back from last to first, so that each message returns to its place.
            await self._return_ahead(worker)
            await ahead.batch.keep(handled)
        # Only one commit is under way at a time, so that it is clear which messages are in doubt.
        await self._await_commit(worker)
        self._unreserve(ahead.reserved - handled)
        ahead.reserved = handled
        if handled:
            try:
                await ahead.batch.begin_commit()
            except CommitInDoubt as error:
                self._doubt(handled, error)
                raise
            worker.committing = ahead
            worker.failures = 0
        if failed is not None:
            await self._await_commit(worker)
            worker.failures += 1
            await self._fail_alone(messages[handled], failed)
            return True
        return False if handled else None

    async def _await_commit(self, worker: _Worker) -> None:
        """Wait for the commit under way."""
        ahead, worker.committing = worker.committing, None
        if ahead is None:
            return
        handled = ahead.reserved
        try:
            await ahead.batch.committed()
        except CommitInDoubt as error:
            self._unreserve(handled)
            self._doubt(handled, error)
            raise
        except BaseException:
            self._unreserve(handled)
            raise
        self._add(handled=handled, reserved=handled)

    def _doubt(self, handled: int, error: CommitInDoubt) -> None:
        _log.warning("%s: %d messages: %s", self._queue.name, handled, error)
        self._add(in_doubt=handled)

    async def _fail_alone(self, message: ReceivedMessage, error: Exception) -> None:
        """Count the failure of a message that was given back together with those behind it."""
        unit = Transaction(self._backend)
        try:
            await self._queue.receive_by_lookup_id(message.lookup_id, transaction=unit)
        except (MessageNotFound, MessageAlreadyReceived):
            # Another worker has the message by now. Its failure in this worker is still counted.
            await unit.abort()
        await self._fail(message, self._failures.count(message), unit, error)

    async def _step_one(self, worker: _Worker) -> bool:
        """Handle a message, or wait until there may be one. Return whether the handler failed."""
        unit = worker.unit = worker.unit or Transaction(self._backend)
        try:
            try:
                message: ReceivedMessage | None = await self._queue.receive(0, transaction=unit)
            except IOTimeout:
                # Reuse the transaction.
                message = None
            except _LOST:
                worker.unit = None
                raise
            if message is not None:
                worker.unit = None
                return await self._take(worker, message, unit)
        finally:
            self._unreserve()
        await self._wait()
        return False

    async def _take(self, worker: _Worker, message: ReceivedMessage, unit: Transaction) -> bool:
        """Handle a message that the transaction has received. Return whether the handler failed."""
        self._count_busy(1)
        try:
            # Read the count now: this process's count of the message changes with the abort.
            failures = self._failures.count(message)
            if failures >= self._options.retries:
                await self._put_aside(message, failures, unit)
                return False
            try:
                await self._call(message, unit)
            except Exception as error:  # noqa: BLE001 (a handler may raise anything)
                worker.failures += 1
                await self._fail(message, failures, unit, error)
                return True
            await unit.commit()
            worker.failures = 0
            self._failures.forget(message)
            self._add(handled=1)
            return False
        except CommitInDoubt as error:
            _log.warning("%s: message %s, label %r: %s", self._queue.name, message.id, message.label, error)
            self._add(in_doubt=1)
            raise
        except BaseException:
            # Otherwise the message would stay locked until the connection ends.
            if not unit.is_over:
                with contextlib.suppress(LannerError):
                    await unit.abort()
            raise
        finally:
            self._count_busy(-1)

    async def _call(self, message: ReceivedMessage, unit: Transaction) -> None:
        if self._passing == "keyword":
            await call(self._handler, message, transaction=unit)
        elif self._passing:
            await call(self._handler, message, unit)
        else:
            await call(self._handler, message)
        if unit.is_over:
            raise RuntimeError("the handler has ended the transaction itself: it must return or raise instead")

    async def _wait(self) -> None:
        """Wait until there is a message, or until the consumer has been idle for long enough."""
        async with self._turn:
            if self._stopping.is_set():
                return
            seconds = self._seconds_to_wait()
            try:
                message = await self._waiting.peek(seconds)
            except IOTimeout:
                if self._seconds_to_wait() <= 0:
                    self._stopping.set()
                return
            except OperationCancelled:
                # Ended by `_release`, or the queue manager is stopping, which the next receive will
                # report.
                return
            except LannerError:
                # `_release` may have closed the queue between its opening and the peek.
                if self._stopping.is_set():
                    return
                raise
        failures = self._failures.count(message)
        if self._poison.subqueue is not None and failures >= self._options.retries:
            await self._move(message, failures, self._poison.subqueue)

    # Failures
    # ----------------------------------------------------------------------------------------------

    async def _fail(self, message: ReceivedMessage, failures: int, unit: Transaction, error: Exception) -> None:
        """Give back a message whose handler failed, and count the failure."""
        retries = self._options.retries
        attempt = failures + 1
        _log.warning(
            "%s: message %s, label %r: attempt %d of %d failed: %s: %s",
            self._queue.name, message.id, message.label, attempt, retries, type(error).__name__, error,
        )  # fmt: skip
        _log.debug("the error of message %s", message.id, exc_info=error)
        if not unit.is_over:
            # If the connection is lost, the queue manager aborts the transaction and counts the
            # abort.
            await unit.abort()
        self._failures.remember(message, attempt, error)
        self._add(retried=1)
        if attempt >= retries and self._poison.subqueue is not None:
            await self._move(message, attempt, self._poison.subqueue)

    async def _put_aside(self, message: ReceivedMessage, failures: int, unit: Transaction) -> None:
        """Remove from the queue a poison message that the transaction has received."""
        if self._poison.subqueue is not None:
            await unit.abort()
            await self._move(message, failures, self._poison.subqueue)
            return
        target = self._poison.queue
        if target is not None:
            copy = message.copy()
            # Acknowledgments would go to the original sender, which did not send this copy.
            copy.acknowledge = Acknowledgements.NONE
            # The copy waits for a person, so it must not expire.
            copy.time_to_reach_queue = copy.time_to_be_received = None
            await target.send(copy, transaction=unit if self._poison.is_transactional else None)
        await unit.commit()
        self._report_poison(message, failures, "discarded" if target is None else f"sent to {target.name}")

    async def _move(self, message: ReceivedMessage, failures: int, target: Queue) -> None:
        """Move a poison message, unless another worker has received or moved it."""
        try:
            await self._queue.move(message.lookup_id, target)
        except (MessageNotFound, MessageAlreadyReceived):
            return
        self._report_poison(message, failures, f"moved to {target.name}")

    def _report_poison(self, message: ReceivedMessage, failures: int, fate: str) -> None:
        _log.warning(
            "%s: message %s, label %r, is poison after %d failures and was %s; last error: %s",
            self._queue.name, message.id, message.label, failures, fate,
            self._failures.last_error(message),
        )  # fmt: skip
        self._failures.forget(message)
        self._add(poisoned=1)

    async def _pause_lost(self, worker: _Worker) -> None:
        worker.losses += 1
        await pause(self._stopping, self._options.pause(worker.losses))

    def _lost(self, error: LannerError) -> None:
        """Log that the queue manager is unavailable, once per outage."""
        # Imported here: a client of a remote queue manager needs no engine.
        from lanner.client._async.embedded import EmbeddedBackend

        if isinstance(self._backend, EmbeddedBackend) and isinstance(error, ServiceNotAvailable):
            # The program has closed the queue manager.
            raise error
        with self._lock:
            is_news, self._is_lost = not self._is_lost, True
        if is_news:
            _log.warning("%s: %s; trying again until it works", self._queue.name, error)

    def _found(self) -> None:
        if self._is_lost:
            with self._lock:
                is_news, self._is_lost = self._is_lost, False
            if is_news:
                _log.warning("%s: works again", self._queue.name)

    # Counting
    # ----------------------------------------------------------------------------------------------

    def _reserve(self) -> bool:
        """Claim one of the `count` messages; return False if all of them are claimed.

        A worker that gets none may end: the others handle the messages they have claimed.
        """
        with self._lock:
            count = self._options.count
            if count is not None and self._result.handled + self._reserved >= count:
                return False
            self._reserved += 1
            return True

    def _claim(self, most: int) -> int:
        """Claim up to `most` more of the `count` messages, and return how many were claimed."""
        with self._lock:
            count = self._options.count
            if count is not None:
                most = max(min(most, count - self._result.handled - self._reserved), 0)
            self._reserved += most
            return most

    def _unreserve(self, number: int = 1) -> None:
        with self._lock:
            self._reserved -= number

    def _add(
        self, *, handled: int = 0, retried: int = 0, poisoned: int = 0, in_doubt: int = 0, reserved: int = 0
    ) -> None:
        with self._lock:
            result = self._result
            self._reserved -= reserved
            result.handled += handled
            result.retried += retried
            result.poisoned += poisoned
            result.in_doubt += in_doubt
            is_done = result.handled == self._options.count
        if is_done:
            self._stopping.set()

    def _count_busy(self, change: int) -> None:
        with self._lock:
            self._busy += change
            self._last_activity = time.monotonic()

    def _seconds_to_wait(self) -> float:
        """Return how long to wait for a message; 0 if the idle time is over."""
        idle = self._options.idle
        if idle is None:
            return _PEEK_SECONDS
        with self._lock:
            # A message that is being handled may come back.
            left = max(idle, _BUSY_SECONDS) if self._busy else self._last_activity + idle - time.monotonic()
        return min(max(left, 0.0), _PEEK_SECONDS)


async def _abandon(unit: Transaction) -> None:
    """Abort a transaction that is no longer needed."""
    if not unit.is_over:
        with contextlib.suppress(LannerError):
            await unit.abort()
