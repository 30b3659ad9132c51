"""The routes of a queue manager: one for each outgoing queue used so far (MS-MQQB 3.1.1.3.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lanner.transfer.outgoing_message_table import OutgoingMessageTable
from lanner.transfer.route import Route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.transfer.addresses import NextHop
    from lanner.transfer.deadlines import Deadlines
    from lanner.transfer.sent_to import SentTo
    from lanner.transfer.settings import TransferSettings

# Not in the specification: seconds for which an unused outgoing queue is kept. Otherwise a peer
# that sends to many destinations through this queue manager would leave a queue behind for each.
_IDLE_LIMIT = 600.0


class Routes:
    """The collection of routes. The caller holds the store's lock.

    `on_due` is called with a route when one of its timers expires.
    """

    def __init__(
        self,
        engine: Engine,
        settings: TransferSettings,
        deadlines: Deadlines,
        on_due: Callable[[Route, float], None],
        sent_to: SentTo,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._deadlines = deadlines
        self._on_due = on_due
        self.sent_to = sent_to
        # The sequences of an earlier process, which may have sent messages.
        self._sent_before = {queue.number: engine.outgoing_sequence(queue) for queue in engine.outgoing_queues()}
        self.by_number: dict[int, Route] = {}  # by the numbers of their queues
        self._at: dict[str, dict[Route, None]] = {}  # by the addresses of their next hops
        self._idle_since: dict[int, float] = {}  # unused outgoing queues, by number

    def of(self, queue: OutgoingQueue) -> Route:
        """Return the route of an outgoing queue, creating it if necessary."""
        route = self.by_number.get(queue.number)
        if route is None:
            table = OutgoingMessageTable(
                self._engine,
                queue,
                self._settings,
                self._engine.monotonic,
                sent_before=self._sent_before.pop(queue.number, None),
            )
            route = self.by_number[queue.number] = Route(queue, table)
            self._deadlines.add(route.deadline, partial(self._on_due, route))
        return route

    def watch(self, route: Route) -> None:
        """Update the deadline of a route."""
        route.deadline.set(route.next_deadline())

    def at(self, address: str) -> Iterable[Route]:
        """Return the routes that have a next hop at an address."""
        return self._at.get(address, ())

    def set_next_hops(self, route: Route, next_hops: list[NextHop]) -> None:
        for hop in route.next_hops:
            routes = self._at.get(hop.address, {})
            routes.pop(route, None)
            if not routes:
                self._at.pop(hop.address, None)
        route.set_next_hops(next_hops)
        for hop in next_hops:
            self._at.setdefault(hop.address, {})[route] = None

    def show_sequence(self, queue: OutgoingQueue) -> None:
        """Show the sequence of an outgoing queue that forwards messages (QQB-3.1.5.8.8-4)."""
        self.of(queue).table.refresh_transfer_info()

    def remove_idle(self, now: float, *, makes_room: bool = False) -> bool:
        """Remove outgoing queues that are unused for a long time; return whether there were any.

        With `makes_room`, queues that other computers or users have caused are removed as soon as
        they are idle.
        """
        engine = self._engine
        idle = {queue.number: queue for queue in engine.outgoing_queues() if engine.is_idle(queue)}
        self._idle_since = {number: self._idle_since.get(number, now) for number in idle}
        is_any_removed = False
        for number, since in list(self._idle_since.items()):
            is_due = now - since >= _IDLE_LIMIT or (makes_room and (idle[number].is_for_others or idle[number].maker))
            if not is_due or not engine.remove_idle_outgoing_queue(idle[number]):
                continue
            is_any_removed = True
            del self._idle_since[number]
            route = self.by_number.pop(number, None)
            if route is not None:
                self._forget(route)
        return is_any_removed

    def _forget(self, route: Route) -> None:
        if route.link is not None:
            route.link.routes.remove(route)
        self.set_next_hops(route, [])
        self._deadlines.remove(route.deadline)
        self.sent_to.forget(route.queue)
