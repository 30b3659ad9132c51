"""Getting a session for an outgoing queue (MS-MQQB 3.1.5.2, 3.1.5.9, 3.1.6.1).

A session serves every outgoing queue whose next hop is at its other end: at an address that was resolved for that hop, whatever
the peer says about itself.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import ConnectionStatus, DirectoryOperationResult, OutgoingState
from lanner.transfer.addresses import NextHop, find_hosts
from lanner.transfer.deadlines import Deadlines
from lanner.transfer.link import Link
from lanner.transfer.outgoing_message_table import OutgoingMessageTable
from lanner.transfer.packets import ORDER_QUEUE_NUMBER, acknowledges
from lanner.transfer.ping import pings_first
from lanner.transfer.route import E_FAIL, FIXED_STATES, Route, Stage
from lanner.transfer.session import Session
from lanner.wire.format_name import FormatName, PrivateFormatName

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.transfer.network import Connection, Network
    from lanner.transfer.settings import TransferSettings


_LOG = logging.getLogger(__name__)

# Ours, seconds: how long a queue that nobody knows the way to waits at most before the directory is asked again.
_MAX_VALIDATION_INTERVAL = 60.0
_MAX_DOUBLINGS = 16  # any more would be too long, too


def _deadline_of(link: Link) -> float | None:
    return link.session.next_deadline()


class Connecting(ABC):
    """Routes of outgoing queues, links to other computers, and how the first get the second.

    Whatever comes from outside is one turn: what it makes possible to send is sent at its end.
    """

    def __init__(self, engine: Engine, settings: TransferSettings, network: Network) -> None:
        self.engine = engine
        self.settings = settings
        self.network = network
        self.lock = engine.store.lock
        self.clock = engine.clock
        self.monotonic = engine.monotonic
        self.links: dict[int, Link] = {}
        self.routes: dict[int, Route] = {}  # by the queue's number
        self._dirty: dict[Link, None] = {}  # something may be sent, or is waiting to be written
        self._connecting: dict[str, dict[Route, None]] = {}  # routes that wait for a connection to an address
        # By address: the links there, and the routes one of whose next hops is there.
        self._links_at: dict[str, dict[Link, None]] = {}
        self._routes_at: dict[str, dict[Route, None]] = {}
        self._route_deadlines = Deadlines(Route.next_deadline)
        self._link_deadlines = Deadlines(_deadline_of)

        self._is_turning = False
        self._ending: dict[Route, None] = {}  # their queues have messages that are delivered and still there

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self.lock:
            self._is_turning = True
            try:
                yield
                self._fill_links()
            finally:
                self._is_turning = False
        self._flush_links()
        if self._ending:
            # The peer has got what it waited for; it is busy with that meanwhile.
            self._end_delivered()

    @contextmanager
    def _contained(self, link: Link | None) -> Iterator[None]:
        """An error that nobody has foreseen ends the session it came up in, whose messages come again, and nothing else."""
        try:
            yield
        except Exception:  # noqa: BLE001 (logged)
            _LOG.exception("an error of ours%s", "" if link is None else f" ends the session with {link.peer}")
            if link is not None and not link.is_closed:
                self._close(link, "an error on our side, which is in the log")

    def _need_turn(self) -> None:
        """Something is to be done that came from outside any turn."""
        if not self._is_turning:
            self.network.wake()

    @abstractmethod
    def _fill_links(self) -> None:
        """Send what can be sent."""

    @abstractmethod
    def _flush_links(self) -> None:
        """Write what was sent; without the lock."""

    @abstractmethod
    def _end_delivered(self) -> None:
        """Take messages out of outgoing queues that were acknowledged."""

    @abstractmethod
    def _processed(self, link: Link, number: int) -> None:
        """Everything up to a message that came by the link is in the engine."""

    @abstractmethod
    def _close(self, link: Link, reason: str) -> None:
        """End a session from our side."""

    def _mark_dirty(self, link: Link) -> None:
        self._dirty[link] = None
        self._need_turn()

    # Establish a Protocol Session (3.1.5.2) -------------------------------------------------------------------

    def _establish(self, route: Route, *, is_retry: bool = False) -> None:
        """3.1.5.2.1 Resolve Host Address."""
        route.attempt += 1
        route.retry_due = None
        name = FormatName.parse(route.queue.destination_format_name)
        hosts = find_hosts(self.engine, name)
        if hosts:
            route.unknown_count = 0
            route.stage = Stage.RESOLVING
            route.set_state(OutgoingState.WAITING)
            self.network.resolve(hosts, partial(self._resolved, route, route.attempt, is_retry))
            return
        link = self._link_of_peer(name)
        if link is not None:
            self._attach(route, link)
        else:
            self._need_validation(route, f"{name}: the directory does not tell the way to this queue")

    def _set_next_hops(self, route: Route, next_hops: list[NextHop]) -> None:
        for hop in route.next_hops:
            routes = self._routes_at.get(hop.address, {})
            routes.pop(route, None)
            if not routes:
                self._routes_at.pop(hop.address, None)
        route.set_next_hops(next_hops)
        for hop in next_hops:
            self._routes_at.setdefault(hop.address, {})[route] = None

    def _need_validation(self, route: Route, problem: str) -> None:
        self._set_next_hops(route, [])
        route.record(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, self.clock(), E_FAIL, problem)
        route.unknown_count += 1
        self._retry_later(route)
        if route.stage is Stage.WAITING_RECONNECT:
            route.set_state(OutgoingState.NEED_VALIDATION)

    def _resolved(
        self,
        route: Route,
        attempt: int,
        is_retry: bool,
        result: list[NextHop] | OSError,
    ) -> None:
        """The addresses of all next hops; the first is tried first (QQB-3.1.5.2.1-2)."""
        with self._turn():
            if route.attempt != attempt:
                return
            if isinstance(result, OSError):
                self._set_next_hops(route, [])
                route.record_error(result, self.clock(), what=route.queue.destination_format_name)
                route.set_state(OutgoingState.DISCONNECTED)
                self._retry_later(route)
            else:
                self._set_next_hops(route, result)
                self._try_hop(route, is_retry=is_retry)

    def _try_hop(self, route: Route, *, is_retry: bool) -> None:
        """3.1.5.2.2 Ping Mechanism, unless a session is there already."""
        hop = route.next_hop
        link = self._link_to(route, hop)
        if link is not None:
            self._attach(route, link)
        elif pings_first(self.settings, is_retry=is_retry):
            route.stage = Stage.CONNECTING
            self.network.ping(hop.address, partial(self._pinged, route, route.attempt))
        else:
            self._connect(route)

    def _pinged(self, route: Route, attempt: int, is_welcome: bool) -> None:
        with self._turn():
            if route.attempt != attempt:
                return
            if is_welcome:
                self._connect(route, was_pinged=True)
                return
            problem = f"{route.next_hop.address} does not answer pings, or wants no session"
            route.record(ConnectionStatus.PING_FAILURE, self.clock(), E_FAIL, problem)
            route.set_state(OutgoingState.DISCONNECTED)
            self._retry_later(route)

    def _connect(self, route: Route, *, was_pinged: bool = False) -> None:
        """One connection for all queues that want the same address."""
        route.stage = Stage.CONNECTING
        route.set_state(OutgoingState.WAITING)
        address = route.next_hop.address
        waiting = self._connecting.get(address)
        if waiting is not None:
            # It may have waited here before, been taken offline and brought online again.
            waiting[route] = None
            return
        self._connecting[address] = {route: None}
        self.network.connect(address, partial(self._connected, address, was_pinged))

    def _connected(self, address: str, was_pinged: bool, result: Connection | OSError) -> None:
        """3.1.5.2.3 Sending an EstablishConnection Request Packet."""
        with self._turn():
            waiting = [
                route
                for route in self._connecting.pop(address)
                if route.stage is Stage.CONNECTING and route.next_hop.address == address
            ]
            if isinstance(result, OSError):
                for route in waiting:
                    route.record_error(result, self.clock(), what=f"connecting to {address}")
                    route.cannot_connect = True
                    link = self._link_to(route, route.next_hop)
                    if link is not None:
                        self._attach(route, link)
                    else:
                        route.set_state(OutgoingState.DISCONNECTED)
                        self._retry_later(route)
                return
            if not waiting:
                result.close()
                return
            guid = waiting[0].next_hop.qm_guid
            link = self._new_link(
                Session.initiate(
                    own_guid=self.engine.queue_manager.identifier,
                    remote_guid=guid,
                    settings=self.settings,
                    monotonic=self.monotonic,
                    was_pinged=was_pinged,
                    is_routing_server=self.engine.queue_manager.routing_server,
                ),
                result,
                address,
                is_initiator=True,
            )
            for route in waiting:
                route.cannot_connect = False
                if route.next_hop.qm_guid == guid:
                    self._attach(route, link)
                else:
                    # Another queue manager is meant, by the same address: a session with it needs a connection of its own.
                    self._connect(route, was_pinged=was_pinged)
            self._mark_dirty(link)

    def _new_link(self, session: Session, connection: Connection, address: str, *, is_initiator: bool) -> Link:
        link = Link(
            session,
            connection,
            address,
            self.settings,
            is_initiator=is_initiator,
            on_processed=self._processed,
            on_close=self._close,
            on_dirty=self._mark_dirty,
        )
        connection.link = link
        self.links[link.number] = link
        self._links_at.setdefault(address, {})[link] = None
        self._link_deadlines.watch(link)
        return link

    def _remove_link(self, link: Link) -> bool:
        """False: it was removed before."""
        if self.links.pop(link.number, None) is None:
            return False
        links = self._links_at[link.remote_address]
        del links[link]
        if not links:
            del self._links_at[link.remote_address]
        self._link_deadlines.forget(link)
        return True

    # Links and routes -----------------------------------------------------------------------------------------

    def _link_to(self, route: Route, hop: NextHop) -> Link | None:
        """A session with a next hop: one that is open, else one that is being opened from here."""
        found = None
        for link in self._links_at.get(hop.address, ()):
            if hop.qm_guid not in (GUID_NULL, link.remote_qm_guid):
                continue
            if link.is_open and self._is_meant(route, hop, link):
                return link
            if link.is_initiator and not link.is_closed:
                found = link
        return found

    def _is_meant(self, route: Route, hop: NextHop, link: Link) -> bool:
        """Whether the queue manager that is meant is at the end of a link, as far as the next message goes."""
        if self._is_known(route, hop, link):
            return True
        head = route.table.head()
        return not head or acknowledges(head, link.remote_qm_guid)

    @staticmethod
    def _is_known(route: Route, hop: NextHop, link: Link) -> bool:
        """We connected to its address, or know its identifier.

        Others connect from the address of a direct name, too. They get what acknowledges their own messages, and the rest
        only if we cannot connect there.
        """
        return link.is_initiator or hop.qm_guid != GUID_NULL or route.cannot_connect

    def _leave(self, route: Route, link: Link) -> None:
        """The queue has messages that are not for whoever is at the end of this link."""
        link.routes.remove(route)
        route.link = None
        route.table.session_closed()
        self._establish(route)

    def _link_of_peer(self, name: FormatName) -> Link | None:
        """Acknowledgments go back on the session that their messages came by (QQB-1.3.5.1-1), directory or not."""
        if not isinstance(name, PrivateFormatName) or name.number != ORDER_QUEUE_NUMBER:
            return None
        return self._open_link_with(name.queue_manager_identifier)

    def _open_link_with(self, guid: UUID) -> Link | None:
        return next((link for link in self.links.values() if link.is_open and link.remote_qm_guid == guid), None)

    def _is_known_peer(self, guid: UUID) -> bool:
        """Whether an open session leads to a queue manager, or the directory may."""
        if self._open_link_with(guid) is not None:
            return True
        result, _ = self.engine.read_directory("QueueManager", identifier_is(guid))
        return result is not DirectoryOperationResult.OBJECT_NOT_FOUND

    def _route(self, queue: OutgoingQueue) -> Route:
        route = self.routes.get(queue.number)
        if route is None:
            table = OutgoingMessageTable(self.engine, queue, self.settings, self.monotonic)
            route = self.routes[queue.number] = Route(queue, table)
        return route

    def _attach(self, route: Route, link: Link) -> None:
        route.link = link
        route.stage = Stage.ATTACHED
        link.routes.append(route)
        if link.is_open:
            self._is_attached_and_open(route, link)
        else:
            route.record(ConnectionStatus.IN_PROCESS, self.clock())
            route.set_state(OutgoingState.WAITING)

    def _is_attached_and_open(self, route: Route, link: Link) -> None:
        """3.1.5.4.2: messages may leave."""
        route.record(ConnectionStatus.ESTABLISHED, self.clock())
        route.show_next_hops([NextHop(link.remote_qm_guid, "", link.remote_address)])
        route.set_state(OutgoingState.CONNECTED)
        route.table.session_opened()
        if route.table.is_ending:
            # It has failed before, and that has ended a session.
            self._ending[route] = None
        self._mark_dirty(link)

    def _detach(self, route: Route, *, problem: str) -> None:
        """3.1.5.9 Closing a Session, as one outgoing queue sees it."""
        route.link = None
        route.set_state(OutgoingState.DISCONNECTING)
        route.table.session_closed()
        self.engine.remove_messages_from_dispatch_collection_by_queue(route.queue)
        route.set_state(OutgoingState.DISCONNECTED)
        if problem:
            route.problem = problem
        self._retry_later(route)

    # Session Retry Connect Timer (3.1.2.3, 3.1.6.1) -----------------------------------------------------------

    def _retry_later(self, route: Route) -> None:
        """Try again if there is something to send; a paused queue waits for its operator."""
        route.attempt += 1
        if route.table.is_empty or route.queue.state in FIXED_STATES:
            route.stage = Stage.IDLE
            route.retry_due = None
            return
        route.stage = Stage.WAITING_RECONNECT
        route.retry_due = self.monotonic() + self._retry_interval(route) + self.settings.round_trip_delay
        self._route_deadlines.watch(route)

    def _retry_interval(self, route: Route) -> float:
        """TryConnectInterval; what the directory does not know it is asked for less and less often (QQB-3.1.2.3-1)."""
        interval = self.settings.try_connect_interval
        longer = interval * 2.0 ** min(route.unknown_count - 1, _MAX_DOUBLINGS)
        return max(interval, min(longer, _MAX_VALIDATION_INTERVAL))

    def _retry(self, route: Route) -> None:
        """3.1.6.1 Session Retry Connect Timer Event."""
        route.retry_due = None
        if route.table.is_empty or route.queue.state in FIXED_STATES:
            route.stage = Stage.IDLE
        elif route.has_another_hop:
            route.next_hop_index += 1
            self._try_hop(route, is_retry=True)
        else:
            self._establish(route, is_retry=True)
