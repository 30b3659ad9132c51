"""The oldest message of one queue and of all queues, for monitoring."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lanner.model.live import START
from lanner.model.lookup_ids import LANE_SHIFT, lane_of

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import Queue
    from lanner.store import Store

Document = dict[str, Any]

# Not in the specification: the number of queues that are examined while the store's lock is held
# once.
SLICE: Final = 100


def oldest_arrival(store: Store, queue: Queue) -> float | None:
    """Return the arrival time of the oldest message; None if the queue is empty.

    The oldest message is the first of one of the priorities, so the time taken does not depend on
    the queue's depth. The caller holds the store's lock.
    """
    oldest, after = None, START
    while (lookup_id := store.next(queue.number, after)) is not None:
        record = store.get(queue.number, lookup_id)
        if record is not None:
            oldest = record.arrived if oldest is None else min(oldest, record.arrived)
        after = (lane_of(lookup_id) + 1 << LANE_SHIFT) - 1
    return oldest


def oldest_message(engine: Engine) -> Document | None:
    """Return the local queue with the oldest message, and its arrival time.

    Takes the store's lock.
    """
    with engine.store.lock:
        queues = iter([queue for queue in engine.local_queues() if queue.message_count])
    found: Document | None = None
    while some := list(islice(queues, SLICE)):
        with engine.store.lock:
            for queue in some:
                arrived = oldest_arrival(engine.store, queue)
                if arrived is not None and (found is None or arrived < found["arrived"]):
                    found = {"queue": queue.pathname, "arrived": arrived}
    return found
