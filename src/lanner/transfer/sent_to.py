"""The queue managers to which transactional messages of outgoing queues were sent.

They are kept in a table of the store, because an acknowledgment may arrive long after its message
was sent, on another session, and after a restart. It is believed only from a queue manager that the
messages were sent to, from their destination, or from a routing server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.engine.tables import QUEUE_KEY

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue

TABLE: Final = "sent_to"

# Not in the specification: how many queue managers are recorded for one outgoing queue. The newest
# are kept. There can be several because a route chooses between routing servers.
MAX_PER_QUEUE: Final = 8
_GUID_SIZE: Final = 16


class SentTo:
    """The recorded queue managers of all outgoing queues. Callers hold the store's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._table = engine.store.table(TABLE)
        self._by_queue: dict[int, tuple[UUID, ...]] = {}
        self.reload()

    def reload(self) -> None:
        """Reload the table, at the start and when the store could not write."""
        self._by_queue.clear()
        for key, row in list(self._table.items()):
            number = QUEUE_KEY.unpack(key)[0]
            if number not in self._engine.queue_manager.queue_collection:
                self._table.delete(key)
                continue
            places = range(0, len(row), _GUID_SIZE)
            self._by_queue[number] = tuple(UUID(bytes=row[place : place + _GUID_SIZE]) for place in places)

    def of(self, queue: OutgoingQueue) -> tuple[UUID, ...]:
        """Return the queue managers to which transactional messages of a queue were sent."""
        return self._by_queue.get(queue.number, ())

    def add(self, queue: OutgoingQueue, guid: UUID) -> None:
        """Record that a transactional message of a queue is sent to a queue manager."""
        known = self.of(queue)
        if guid not in known:
            known = self._by_queue[queue.number] = (*known, guid)[-MAX_PER_QUEUE:]
            self._table.put(QUEUE_KEY.pack(queue.number), b"".join(each.bytes for each in known))

    def forget(self, queue: OutgoingQueue) -> None:
        """Forget the queue managers of a removed queue."""
        if self._by_queue.pop(queue.number, None) is not None:
            self._table.delete(QUEUE_KEY.pack(queue.number))
