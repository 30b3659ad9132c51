"""Connecting: getting a session for an outgoing queue (MS-MQQB 3.1.5.2, 3.1.5.9, 3.1.6.1).

A session serves every outgoing queue whose next hop is at its other end. The other end is
identified by an address that was resolved for that hop, regardless of what the peer says about
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import ConnectionStatus, OutgoingState
from lanner.transfer.addresses import NextHop, find_hosts
from lanner.transfer.packets import ORDER_QUEUE_NUMBER, acknowledges
from lanner.transfer.ping import pings_first
from lanner.transfer.route import E_FAIL, FIXED_STATES
from lanner.transfer.route_stages import Stage, Step
from lanner.transfer.tls_errors import TlsError
from lanner.wire.format_name import FormatName, PrivateFormatName

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lanner.engine import Engine
    from lanner.transfer.certified_peers import CertifiedPeers
    from lanner.transfer.link import Link
    from lanner.transfer.links import Links
    from lanner.transfer.network import Connection, Network
    from lanner.transfer.peers import Peer
    from lanner.transfer.route import Route
    from lanner.transfer.routes import Routes
    from lanner.transfer.settings import TransferSettings
    from lanner.transfer.turns import Turns


# Not in the specification: maximum seconds until the directory is asked again about an unknown
# destination.
_MAX_VALIDATION_INTERVAL = 60.0
_MAX_DOUBLINGS = 16  # more would exceed that in any case
# All other computers together, as a user who names hosts.
_OTHERS = "other computers"


class Connector:
    """The part that attaches routes to links. The caller holds the store's lock.

    `turn` begins a turn, because callbacks from the network come from outside.
    """

    def __init__(
        self,
        engine: Engine,
        settings: TransferSettings,
        network: Network,
        links: Links,
        routes: Routes,
        turns: Turns,
        turn: Callable[[], AbstractContextManager[None]],
        certified: CertifiedPeers,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._network = network
        self._links = links
        self._routes = routes
        self._turns = turns
        self._turn = turn
        self._certified = certified
        self._clock = engine.clock
        self._monotonic = engine.monotonic
        # Routes that wait for a connection, by address and by the peer expected over TLS (None: in
        # clear, with any peer).
        self._connecting: dict[tuple[str, Peer | None], dict[Route, None]] = {}

    # Establish a Protocol Session (3.1.5.2)
    # -------------------------------------------------------------------

    def attend(self, route: Route) -> None:
        """Get a session for a queue that has something to send, or mark the one that it has."""
        queue = route.queue
        if queue.state in FIXED_STATES or queue.multicast or not queue.message_count:
            return
        link = route.link
        if link is not None:
            if link.session.is_open:
                route.set_state(OutgoingState.CONNECTED)
                self._turns.mark_dirty(link)
            return
        name = FormatName.parse(queue.destination_format_name)
        if name.why_unsent:
            route.problem = name.why_unsent
            return
        if route.stage is Stage.IDLE:
            self._establish(route)
        elif route.stage is Stage.WAITING_RECONNECT and queue.state is OutgoingState.INACTIVE:
            # The route was paused and resumed meanwhile. Its next attempt is due as before.
            route.set_state(OutgoingState.DISCONNECTED)

    def _establish(self, route: Route, *, is_retry: bool = False) -> None:
        """Resolve the addresses of the next hops (3.1.5.2.1 Resolve Host Address)."""
        route.attempt += 1
        route.retry_due = None
        name = FormatName.parse(route.queue.destination_format_name)
        hosts = find_hosts(self._engine, name)
        if hosts:
            route.unknown_count = 0
            route.enter(Step.RESOLVE)
            route.set_state(OutgoingState.WAITING)
            whose = _OTHERS if route.queue.is_for_others else route.queue.maker or None
            self._network.resolve(hosts, partial(self._resolved, route, route.attempt, is_retry), whose)
            return
        link = self._link_of_peer(name)
        if link is not None:
            self.attach(route, link)
        else:
            self._need_validation(route, f"{name}: the directory does not tell the way to this queue")

    def _need_validation(self, route: Route, problem: str) -> None:
        self._routes.set_next_hops(route, [])
        route.record(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, self._clock(), E_FAIL, problem)
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
        """Take the addresses of all next hops; the first is tried first (QQB-3.1.5.2.1-2)."""
        with self._turn():
            if route.attempt != attempt:
                return
            if isinstance(result, OSError):
                self._routes.set_next_hops(route, [])
                route.record_error(result, self._clock(), what=route.queue.destination_format_name)
                route.set_state(OutgoingState.DISCONNECTED)
                self._retry_later(route)
            else:
                self._routes.set_next_hops(route, result)
                self._try_hop(route, is_retry=is_retry)

    def _try_hop(self, route: Route, *, is_retry: bool) -> None:
        """Ping the next hop (3.1.5.2.2 Ping Mechanism), unless there is a session already."""
        hop = route.next_hop
        link = self.link_to(route, hop)
        if link is not None:
            self.attach(route, link)
        elif hop.tls_peer is None and pings_first(self._settings, is_retry=is_retry):
            route.enter(Step.CONNECT)
            self._network.ping(hop.address, partial(self._pinged, route, route.attempt))
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
            route.record(ConnectionStatus.PING_FAILURE, self._clock(), E_FAIL, problem)
            route.set_state(OutgoingState.DISCONNECTED)
            self._retry_later(route)

    def _connect(self, route: Route, *, was_pinged: bool = False) -> None:
        """Connect to the next hop. All queues that need the same address share the connection."""
        route.enter(Step.CONNECT)
        route.set_state(OutgoingState.WAITING)
        address, tls_peer = where = route.next_hop.address, route.next_hop.tls_peer
        waiting = self._connecting.get(where)
        if waiting is not None:
            # The route may already wait here, if it was taken offline and brought online again.
            waiting[route] = None
            return
        self._connecting[where] = {route: None}
        self._network.connect(address, partial(self._connected, where, was_pinged), over_tls=tls_peer is not None)

    def _connected(self, where: tuple[str, Peer | None], was_pinged: bool, result: Connection | OSError) -> None:
        """Begin a session on a new connection.

        Implements 3.1.5.2.3 Sending an EstablishConnection Request Packet.
        """
        with self._turn():
            waiting = [
                route
                for route in self._connecting.pop(where)
                if route.stage is Stage.CONNECTING and (route.next_hop.address, route.next_hop.tls_peer) == where
            ]
            address, tls_peer = where
            if not isinstance(result, OSError) and waiting:
                try:
                    self._certified.check_answering(result.certification, waiting[0].next_hop)
                except TlsError as error:
                    result.close()
                    result = error
            if isinstance(result, OSError):
                for route in waiting:
                    self._cannot_connect(route, result)
                return
            if not waiting:
                result.close()
                return
            guid = waiting[0].next_hop.qm_guid
            link = self._links.initiate(result, address, guid, was_pinged=was_pinged)
            link.certified_peer = tls_peer
            for route in waiting:
                route.cannot_connect = False
                if route.next_hop.qm_guid == guid:
                    self.attach(route, link)
                else:
                    # The route is for another queue manager at the same address, so it needs its
                    # own connection.
                    self._connect(route, was_pinged=was_pinged)
            self._turns.mark_dirty(link)

    def _cannot_connect(self, route: Route, error: OSError) -> None:
        hop = route.next_hop
        what = f"connecting to {hop.address}"
        if hop.tls_peer is not None:
            what = f"TLS with {hop.tls_peer.name} at {hop.address}, port {self._settings.tls_port}"
        route.record_error(error, self._clock(), what=what)
        route.cannot_connect = True
        link = self.link_to(route, route.next_hop)
        if link is not None:
            self.attach(route, link)
        else:
            route.set_state(OutgoingState.DISCONNECTED)
            self._retry_later(route)

    # Links and routes
    # -----------------------------------------------------------------------------------------

    def link_to(self, route: Route, hop: NextHop) -> Link | None:
        """Return a session with a next hop: an open one, else one being opened from here."""
        found = None
        for link in self._links.at(hop.address):
            if hop.qm_guid not in (GUID_NULL, link.remote_qm_guid):
                continue
            if hop.tls_peer is not None and not _is_same(hop.tls_peer, link.certified_peer):
                continue
            if link.is_open and self._is_meant(route, hop, link):
                return link
            if link.is_initiator and not link.is_closed:
                found = link
        return found

    def _is_meant(self, route: Route, hop: NextHop, link: Link) -> bool:
        """Return whether the next message may go to the queue manager at the end of a link."""
        if self.is_known(route, hop, link):
            return True
        head = route.table.head()
        return not head or acknowledges(head, link.remote_qm_guid)

    @staticmethod
    def is_known(route: Route, hop: NextHop, link: Link) -> bool:
        """Return whether a link may carry any message of a route.

        It may if this end opened it to the hop's address, or if the hop's identifier is known. A
        peer may also connect from the address of a direct name. Such a link carries the
        acknowledgments of the peer's own messages, and other messages only if we cannot connect to
        that address.
        """
        return link.is_initiator or hop.qm_guid != GUID_NULL or route.cannot_connect

    def leave(self, route: Route, link: Link) -> None:
        """Detach a queue from a link, because its messages are for another queue manager."""
        link.routes.remove(route)
        route.link = None
        route.table.session_closed()
        route.enter(Step.REST)
        self._establish(route)

    def _link_of_peer(self, name: FormatName) -> Link | None:
        """Return the session that a peer's messages arrive on, for acknowledgments (QQB-1.3.5.1-1).

        The directory need not know the peer.
        """
        if not isinstance(name, PrivateFormatName) or name.number != ORDER_QUEUE_NUMBER:
            return None
        return self._links.open_link_with(name.queue_manager_identifier)

    def attach(self, route: Route, link: Link) -> None:
        """Give a queue a session, which may still be in its handshake."""
        route.link = link
        route.enter(Step.ATTACH)
        link.routes.append(route)
        if link.is_open:
            self._is_attached_and_open(route, link)
        else:
            route.record(ConnectionStatus.IN_PROCESS, self._clock())
            route.set_state(OutgoingState.WAITING)

    def _is_attached_and_open(self, route: Route, link: Link) -> None:
        """Let messages of a route leave on an open link (3.1.5.4.2)."""
        route.record(ConnectionStatus.ESTABLISHED, self._clock())
        route.show_next_hops([NextHop(link.remote_qm_guid, "", link.remote_address)])
        route.set_state(OutgoingState.CONNECTED)
        route.table.session_opened()
        if route.table.is_ending:
            # An earlier failure here has ended a session.
            self._turns.ending[route] = None
        self._turns.mark_dirty(link)

    def opened(self, link: Link) -> None:
        """Let the queues of a session send, after its handshake.

        Queues that wait for this peer are attached to it.
        """
        for route in link.routes:
            self._is_attached_and_open(route, link)
        self._attach_acknowledgments(link)
        for route in list(self._routes.at(link.remote_address)):
            if route.stage is Stage.WAITING_RECONNECT and any(
                self.link_to(route, hop) is link for hop in route.next_hops
            ):
                self.attach(route, link)

    def _attach_acknowledgments(self, link: Link) -> None:
        """Attach queues of acknowledgments for the peer, for which no other way was known."""
        queue = self._engine.find_outgoing_queue(PrivateFormatName(link.remote_qm_guid, ORDER_QUEUE_NUMBER))
        route = None if queue is None else self._routes.by_number.get(queue.number)
        if route is not None and route.stage is Stage.WAITING_RECONNECT and not route.next_hops:
            self.attach(route, link)

    def detach(self, route: Route, *, problem: str) -> None:
        """Handle the end of a session for one outgoing queue (3.1.5.9 Closing a Session)."""
        route.link = None
        route.set_state(OutgoingState.DISCONNECTING)
        route.table.session_closed()
        self._engine.remove_messages_from_dispatch_collection_by_queue(route.queue)
        route.set_state(OutgoingState.DISCONNECTED)
        if problem:
            route.problem = problem
        self._retry_later(route)

    def pause(self, route: Route) -> None:
        """Pause a route: nothing is sent and no connection is made (3.1.7.13).

        The peer is asked for a small window.
        """
        if route.queue.state is not OutgoingState.ON_HOLD:
            return
        link = route.link
        if route.stage is Stage.WAITING_RECONNECT:
            route.enter(Step.REST)
        if link is not None and link.is_open:
            link.session.pause()
            self._engine.remove_messages_from_dispatch_collection_by_queue(route.queue)
            self._turns.mark_dirty(link)

    def give_up(self) -> None:
        """Abandon every attempt at a session, because the queue manager is offline."""
        for route in self._routes.by_number.values():
            if route.stage is not Stage.IDLE:
                route.attempt += 1
                route.enter(Step.REST)
                route.set_state(OutgoingState.DISCONNECTED)

    # Session Retry Connect Timer (3.1.2.3, 3.1.6.1)
    # -----------------------------------------------------------

    def _retry_later(self, route: Route) -> None:
        """Schedule a retry if there is something to send. A paused queue waits for its operator."""
        route.attempt += 1
        if route.table.is_empty or route.queue.state in FIXED_STATES:
            route.enter(Step.REST)
            return
        route.enter(Step.WAIT, self._monotonic() + self._retry_interval(route) + self._settings.round_trip_delay)
        self._routes.watch(route)

    def _retry_interval(self, route: Route) -> float:
        """Return TryConnectInterval, or longer while the directory does not know the destination.

        The interval doubles with each failure, up to a limit (QQB-3.1.2.3-1).
        """
        interval = self._settings.try_connect_interval
        longer = interval * 2.0 ** min(route.unknown_count - 1, _MAX_DOUBLINGS)
        return max(interval, min(longer, _MAX_VALIDATION_INTERVAL))

    def retry(self, route: Route) -> None:
        """Handle the Session Retry Connect Timer event (3.1.6.1)."""
        if route.table.is_empty or route.queue.state in FIXED_STATES:
            route.enter(Step.REST)
        elif route.has_another_hop:
            route.next_hop_index += 1
            self._try_hop(route, is_retry=True)
        else:
            self._establish(route, is_retry=True)


def _is_same(wanted: Peer, certified: Peer | None) -> bool:
    return certified is not None and certified.name.lower() == wanted.name.lower()
