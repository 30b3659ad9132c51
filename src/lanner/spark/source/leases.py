"""The leases of the queues that a stream receives from, and the thread that renews them.

A lease is acquired when it is first needed. Spark does not announce the end of a process, so its
leases run out. The next process with the same checkpoint is the same stream and takes them over at
once. A process without a checkpoint waits, because another stream may use the same name.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lanner.model.errors import LannerError, ServiceNotAvailable
from lanner.spark.flight.errors import LeaseHeld
from lanner.spark.source.connections import Manager
from lanner.spark.source.queue_names import FoundQueue, KnownManager

_LOG: Final = logging.getLogger(__name__)
# Not in the specification: the seconds between two attempts to get a lease that another reader has,
# and how long after its end to go on trying.
_PAUSE, _GRACE = 0.25, 5.0


@dataclass(slots=True)
class _Lease:
    manager: Manager
    queue: FoundQueue
    fence: int
    epoch: int
    acknowledged: int


class Leases:
    """The leases of one reader, in one process."""

    def __init__(self, reader: str, lease_ms: int) -> None:
        self._reader = reader
        self._lease_ms = lease_ms
        self._leases: dict[tuple[str, int], _Lease] = {}
        self._lost: LannerError | None = None
        self._keeper: threading.Thread | None = None
        self._is_closed = threading.Event()

    def close(self) -> None:
        """Stop renewing."""
        self._is_closed.set()

    def release(self) -> None:
        """Release all leases, because there is nothing more to read. They can be acquired again."""
        leases, self._leases = self._leases, {}
        for lease in leases.values():
            with contextlib.suppress(LannerError):
                lease.manager.once(lambda flight, one=lease: flight.release(one.queue.name, self._reader, one.fence))  # type: ignore[misc]

    def check(self) -> None:
        """Raise the error of the renewing thread, if there was one."""
        if self._lost is not None:
            raise self._lost

    def acquire(self, known: KnownManager, queue: FoundQueue, start: str | int, *, take_over: bool) -> int:
        """Acquire the lease of a queue, unless it is held; return its acknowledged number.

        Everything up to that number is acknowledged. `start` counts only for a reader that is new
        to the queue manager.
        """
        key = known.identifier, queue.number
        held = self._leases.get(key)
        if held is not None:
            return held.acknowledged
        options: dict[str, object] = {
            "queue_id": queue.number,
            "epoch": known.epoch,
            "start": start,
            "lease_ms": self._lease_ms,
            "take_over": take_over,
        }
        answer = self._waited(
            lambda: known.manager.call(lambda flight: flight.acquire(queue.name, self._reader, **options))
        )
        self._leases[key] = _Lease(known.manager, queue, answer["fence"], known.epoch, answer["acknowledged"])
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name="lanner-leases", daemon=True)
            self._keeper.start()
        return int(answer["acknowledged"])

    def _waited(self, acquire: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Retry until the lease of a dead process has run out."""
        deadline = time.monotonic() + self._lease_ms / 1000 + _GRACE
        while True:
            try:
                return acquire()
            except LeaseHeld as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.info("waiting: %s", error)
            time.sleep(_PAUSE)

    def hold(self, known: KnownManager, number: int, upto: int) -> str | None:
        """Prevent expiry up to a number in a leased queue, because a batch is going to read it.

        Returns the `expiries` of the queue manager, or None if everything is acknowledged already.
        """
        lease = self._leases[known.identifier, number]
        if upto <= lease.acknowledged:
            return None
        answer = lease.manager.call(
            lambda flight: flight.hold(lease.queue.name, self._reader, lease.fence, upto, lease.epoch)
        )
        return str(answer["expiries"])

    def acknowledge(self, known: KnownManager, number: int, upto: int) -> None:
        """Remove everything up to a number from a leased queue. Repeating it makes no call."""
        lease = self._leases[known.identifier, number]
        if upto <= lease.acknowledged:
            return
        lease.manager.call(
            lambda flight: flight.acknowledge(lease.queue.name, self._reader, lease.fence, upto, lease.epoch)
        )
        lease.acknowledged = upto

    def _keep(self) -> None:
        """Renew the leases as long as the process lives: a batch may take longer than a lease."""
        while not self._is_closed.wait(self._lease_ms / 3000):
            for lease in list(self._leases.values()):
                try:
                    lease.manager.call(lambda flight, one=lease: flight.renew(one.queue.name, self._reader, one.fence))  # type: ignore[misc]
                except ServiceNotAvailable:
                    # The next call that needs the queue raises this error.
                    continue
                except LannerError as error:
                    self._lost = error
