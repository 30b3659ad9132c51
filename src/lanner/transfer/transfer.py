"""Transfer as a whole: between the network and the engine (MS-MQQB 3.1.4 to 3.1.7).

Received messages go to the engine, and messages in outgoing queues are sent. The module is
deterministic: it has no socket, no thread and no clock of its own. Everything runs in one thread.
Other threads only mark what has happened, under the store's lock, and wake it.

`Transfer` is the facade for the network, the services and the engine. It begins and ends the turns
and passes the events of sessions to its parts, which own the state:

- `links`, `routes`: the sessions, and the outgoing queues on their way to one
- `connecting`: how routes get links
- `outflow`, `protection`: sending
- `deliveries`: acknowledgments from peers
- `incoming`, `awaiting_durability`: receiving
- `turns`, `deadlines`: work for the end of a turn, and for later
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import ConnectionStatus, MessageClass
from lanner.security.log_lines import log_of_peer
from lanner.transfer.awaiting_durability import AwaitingDurability
from lanner.transfer.certified_peers import CertifiedPeers
from lanner.transfer.connecting import Connector
from lanner.transfer.deadlines import Deadline, Deadlines
from lanner.transfer.deliveries import Deliveries
from lanner.transfer.events import (
    FinalAckReceived,
    NothingAcknowledged,
    OrderAckReceived,
    SessionAckReceived,
    SessionClosed,
    SessionOpened,
    UserMessagesReceived,
)
from lanner.transfer.identities import Identities
from lanner.transfer.incidents import Incident, Incidents
from lanner.transfer.incoming import Incoming
from lanner.transfer.links import Links
from lanner.transfer.outflow import Outflow
from lanner.transfer.peers import known_addresses
from lanner.transfer.protection import Protection
from lanner.transfer.refusals import printable
from lanner.transfer.route import E_FAIL
from lanner.transfer.route_stages import Stage
from lanner.transfer.routes import Routes
from lanner.transfer.routing import get_queue_manager
from lanner.transfer.sent_to import SentTo
from lanner.transfer.session_states import SessionState
from lanner.transfer.tls_errors import TlsError
from lanner.transfer.turns import Turns
from lanner.wire import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.host.budget import Budget
    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition, Record
    from lanner.transfer.events import Event
    from lanner.transfer.identities import Standing
    from lanner.transfer.incoming import IncomingLink
    from lanner.transfer.link import Link
    from lanner.transfer.network import Connection, Network
    from lanner.transfer.peers import Peer
    from lanner.transfer.pins import Pin
    from lanner.transfer.route import Route
    from lanner.transfer.settings import TransferSettings
    from lanner.transfer.tls import TlsIdentity
    from lanner.wire.internal_header import EstablishConnectionHeader

_LOG = logging.getLogger(__name__)

# Not in the specification: timers handled before other work has its turn, so that thousands of dead
# peers cannot delay others.
_TURN_TIMERS = 50
# Not in the specification: seconds between two searches for unused outgoing queues.
_IDLE_CHECK = 60.0
# Not in the specification: seconds until idle outgoing queues make room for more, and the minimum
# between two such searches.
_ROOM_CHECK = 1.0


class Transfer:
    """MS-MQQB for one queue manager."""

    def __init__(
        self,
        engine: Engine,
        settings: TransferSettings,
        network: Network,
        identity: TlsIdentity | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.network = network
        self.lock = engine.store.lock
        self.clock = engine.clock
        self.monotonic = engine.monotonic
        engine.outgoing.max_for_others = settings.max_queues_for_others
        engine.outgoing.max_per_cause = settings.max_queues_per_peer
        engine.outgoing.max_per_user = settings.max_queues_per_user
        # Acts of peers that were rejected.
        self.incidents = Incidents(engine.clock, engine.monotonic)
        self._is_running = False
        # A pump was requested because of an outgoing queue and has not run yet.
        self._is_pump_wanted = False
        self.deadlines = Deadlines()
        self._turns = Turns(network)
        self._links = Links(
            engine,
            settings,
            self._turns,
            self.deadlines,
            budget,
            on_processed=self._processed,
            on_close=self._close,
            on_due=self._link_due,
        )
        self.links = self._links.by_number
        # The stored rows are read, which other threads may be changing.
        with self.lock:
            self._routes = Routes(engine, settings, self.deadlines, self._route_due, SentTo(engine))
        self.routes = self._routes.by_number
        self.certified = CertifiedPeers(settings.peers, identity, self._names_in_directory)
        self._connector = Connector(
            engine, settings, network, self._links, self._routes, self._turns, self._turn, self.certified
        )
        self.protection = Protection(engine, run_in_thread=network.run_in_thread, ready=self._protected)
        self._outflow = Outflow(
            engine, network, self._routes, self._connector, self.protection, self._turns, self._contain
        )
        self._awaiting_durability = AwaitingDurability(engine.store, self._turns, self._close, self._contain)
        # The state of messages is read from the store, which other threads already use.
        with self.lock:
            self.identities = Identities(engine, settings, network)
            self.identities.displaced = self.judge_peers
            self.incoming = Incoming(
                engine,
                settings,
                incidents=self.incidents,
                examine=self.protection.examine,
                forwarded=self._routes.show_sequence,
                is_known=self._links.is_known_peer,
                first_stored=self._exchanged,
            )
        self._deliveries = Deliveries(engine, self._routes, self.incoming.refusals, self._turns, self.incidents)
        self._idle_check = Deadline()
        self._idle_check.set(self.monotonic() + _IDLE_CHECK)
        self.deadlines.add(self._idle_check, self._check_idle)
        self._room_check = Deadline()
        self.deadlines.add(self._room_check, self._make_room)
        self.deadlines.add(self._deliveries.lazy_sync, self._deliveries.sync_due)
        self.deadlines.add(self.protection.deadline, self.protection.on_timer)
        self.deadlines.add(self.incidents.deadline, lambda _: self.incidents.on_timer())
        self.incoming.register(self.deadlines)

    # Start and stop (3.1.4)
    # -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Send what waits in outgoing queues (3.1.4.1 Queue Manager Started)."""
        with self._turn():
            engine = self.engine
            engine.position_available_subscribers.append(self._position_available)
            engine.position_deleted_subscribers.append(self._position_deleted)
            engine.outgoing_state_subscribers.append(self._outgoing_state_changed)
            engine.outgoing.full_subscribers.append(self._queues_full)
            engine.connection_active_subscribers.append(self._connection_active_changed)
            engine.dispatch.send_user_message = self._outflow.send_user_message
            engine.store.on_synced(self._on_synced)
            engine.store.on_failed(self._on_failed)
            self._is_running = True
            for queue in engine.outgoing_queues():
                self._turns.awake.setdefault(queue.number, False)
        self.network.wake()

    def stop(self) -> None:
        """Close every session (3.1.4.2 Queue Manager Stopped)."""
        with self._turn():
            self._is_running = False
            for link in list(self.links.values()):
                self._close(link, "the queue manager stops")
            self.incoming.stop()
            self.incidents.flush()
            engine = self.engine
            engine.position_available_subscribers.remove(self._position_available)
            engine.position_deleted_subscribers.remove(self._position_deleted)
            engine.outgoing_state_subscribers.remove(self._outgoing_state_changed)
            engine.outgoing.full_subscribers.remove(self._queues_full)
            engine.connection_active_subscribers.remove(self._connection_active_changed)
            engine.dispatch.send_user_message = None
        while self._turns.ending:
            self._end_delivered()

    # Called by other threads, with the lock held

    def _position_available(self, queue: Queue, first: int, records: Sequence[Record]) -> None:
        """Have messages under consecutive lookup ids sent.

        Implements 3.1.7.12 Message Position Available Event.
        """
        if not isinstance(queue, OutgoingQueue):
            return
        route = self.routes.get(queue.number)
        if route is not None:
            route.table.message_available(first)
        self._turns.awake.setdefault(queue.number, False)
        if self._is_pump_wanted:
            return
        is_recoverable = fields.user_flags_0(records[0].packet) & fields.DM_IN_USER_FLAGS_0
        if not is_recoverable or route is None or route.link is None:
            self._is_pump_wanted = True
            self.network.wake()
        # Otherwise the message cannot be sent before it is durable; then `_on_synced` wakes
        # transfer.

    def _position_deleted(self, queue: Queue, position: MessagePosition, _reason: MessageClass) -> None:
        """Note that a message left an outgoing queue undelivered: it expired or was purged."""
        if isinstance(queue, OutgoingQueue):
            route = self.routes.get(queue.number)
            if route is not None:
                route.table.message_removed(position)

    def _outgoing_state_changed(self, queue: OutgoingQueue) -> None:
        """Handle 3.1.7.13 Pause Queue Event and 3.1.7.14 Resume Queue Event."""
        self._turns.awake[queue.number] = True
        self.network.wake()

    def _connection_active_changed(self) -> None:
        """Handle MS-MQDMPR 3.1.4.12 Take Offline and 3.1.4.13 Bring Online."""
        for queue in self.engine.outgoing_queues():
            self._turns.awake.setdefault(queue.number, False)
        self.network.wake()

    def _on_synced(self, _batch: int) -> None:
        self._deliveries.synced()
        if self._awaiting_durability.waiting or self._turns.awake or self._outflow.unsynced:
            self.network.wake()

    def _on_failed(self, batch: int) -> None:
        self._awaiting_durability.failed(batch)
        self.identities.pins.reload()
        self._routes.sent_to.reload()
        for route in self.routes.values():
            route.table.store_failed()
            route.noted_link = None
            # A pause that was not durable is undone too.
            self._turns.awake.setdefault(route.queue.number, False)
        self.network.wake()

    # Turns
    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Run a turn: an event from outside, then the work that it has marked (`turns`)."""
        turns = self._turns
        with self.lock:
            turns.is_running = True
            try:
                yield
                if turns.dirty:
                    self._outflow.fill_links()
                if turns.wanted_batch:
                    batch, turns.wanted_batch = turns.wanted_batch, 0
                    self.network.sync(batch)
            finally:
                turns.is_running = False
        if turns.dirty:
            self._outflow.flush_links()
        if turns.ending:
            # The peer has received what it waited for, and is busy with that meanwhile.
            self._end_delivered()

    def _contain(self, link: Link | None) -> None:
        """Handle an unforeseen error by ending the session in which it was raised.

        Nothing else is affected. The messages of that session will be sent again.
        """
        where = "" if link is None else f" ends the session with {link.peer}"
        peer = "" if link is None else link.budget_peer
        log_of_peer(_LOG, logging.ERROR, "error", peer, "an error of ours%s", where, exc_info=True)
        if link is not None and not link.is_closed:
            self._close(link, "an error on our side, which is in the log")

    def pump(self) -> None:
        """Do what has become possible: acknowledge durable messages, send new ones."""
        with self._turn():
            self._is_pump_wanted = False
            if self._awaiting_durability.waiting:
                self._awaiting_durability.release_durable()
            # Also after a sync, because an OrderAck may have waited for it.
            if self.deadlines.earliest <= self.monotonic():
                self._run_due()
            if not self.engine.queue_manager.connection_active:
                self._disconnect()
            awake = self._turns.awake
            while awake:
                number, is_steered = awake.popitem()
                queue = self.engine.queue_manager.queue_collection.get(number)
                if isinstance(queue, OutgoingQueue) and not queue.is_deleted:
                    self._attend(queue, is_steered=is_steered)
            if self._outflow.unsynced:
                self._outflow.synced()

    def _attend(self, queue: OutgoingQueue, *, is_steered: bool) -> None:
        """Handle a change of an outgoing queue.

        `is_steered`: an operator paused or resumed it.
        """
        route = self._routes.of(queue)
        try:
            if is_steered:
                self._connector.pause(route)
            if self._is_running and self.engine.queue_manager.connection_active:
                self._connector.attend(route)
        except Exception:  # noqa: BLE001 (logged)
            self._contain(route.link)

    def _disconnect(self) -> None:
        """End every session and every attempt at one.

        Nothing is sent or received until the queue manager is online again.
        """
        for link in list(self.links.values()):
            self._close(link, "the queue manager was taken offline")
        self._connector.give_up()

    def _end_delivered(self) -> None:
        turns = self._turns
        ending, turns.ending = turns.ending, {}
        with self.lock:
            for route in ending:
                try:
                    route.table.end_some()
                except Exception:  # noqa: BLE001 (logged)
                    self._contain(route.link)
                    continue
                if route.table.is_ending:
                    # The others leave in turns of their own, so that messages can be sent in
                    # between.
                    turns.ending[route] = None
                    self.network.wake()

    # Connections
    # ----------------------------------------------------------------------------------------------

    @property
    def is_online(self) -> bool:
        return self.engine.queue_manager.connection_active

    def accepts(self, address: str) -> bool:
        """Return whether another connection from an address is accepted at all."""
        return self.is_online and self._links.accepts(address)

    def accepted(self, connection: Connection, address: str) -> None:
        """Handle an incoming connection (3.1.5.10 Handling an Incoming Transport Connection)."""
        with self._turn():
            self._links.accept(connection, address, partial(self._admit, connection, address))
            excess = self._links.excess_half_open()
            if excess is not None:
                self._close(excess, "too many connections wait for their handshake")

    def _admit(self, connection: Connection, address: str, request: EstablishConnectionHeader) -> bool:
        try:
            certified = self.certified.check(connection.certification, request.client_guid, address)
        except TlsError as error:
            self.incidents.add(Incident.REFUSED_PEER, address, str(error))
            return False
        return self.would_accept and not self._refusal(request.client_guid, address, is_proven=certified is not None)

    def _refusal(self, guid: UUID, address: str, *, is_proven: bool) -> str:
        """Return why a queue manager gets no session; empty if it gets one.

        It claims the identifier `guid` from an address.
        """
        refusal = self.identities.admit(guid, address, is_proven=is_proven).refusal
        # A pin may have been written, for which no caller waits.
        self._deliveries.removed()
        if refusal:
            self.incidents.add(Incident.REFUSED_PEER, address, refusal)
        return refusal

    def _names_in_directory(self, guid: UUID) -> tuple[str, ...]:
        found = get_queue_manager(self.engine, guid)
        names = () if found is None else (found.computer_name, found.qualified_computer_name)
        return tuple(name for name in names if name)

    def set_peers(self, peers: Mapping[str, Peer | str], identity: TlsIdentity | None) -> None:
        """Replace the peers table and its certificates; end sessions that are not allowed now."""
        with self._turn():
            self.certified.set_peers(peers, identity)
            self.identities.peers = peers
            self.incoming.known_peers = known_addresses(peers)
            for link in [link for link in self.links.values() if link.is_open]:
                self._certify(link)
            self.judge_peers()

    def sessions_of(self, address: str) -> int:
        """Return how many sessions an address has, from the first byte of a connection on."""
        return self._links.sessions_of(address)

    def end_half_open(self, peer: str | None = None) -> Connection | None:
        """End a half-open connection and return it, to make room for another one.

        It is one of `peer`, if it is this peer that has no room. Return None if there is none.
        """
        return self._end(self._links.oldest_half_open(peer), "its handshake was not done")

    def end_dispensable(self, newcomer: str) -> Connection | None:
        """End an unknown peer's session and return its connection, to make room for a newcomer.

        Return None if there is no such session.
        """
        return self._end(self._links.dispensable(newcomer), "nobody has named this peer")

    def _end(self, link: Link | None, reason: str) -> Connection | None:
        if link is None:
            return None
        with self._turn():
            self._close(link, f"{reason}, and another connection needed the room")
            return link.connection

    @property
    def would_accept(self) -> bool:
        """Whether a session would be accepted now, which is the answer to a ping."""
        return self._is_running and self.engine.queue_manager.connection_active and self._links.has_room

    def data_received(self, link: Link, data: bytes | memoryview) -> None:
        """Process bytes of a connection."""
        with self._turn():
            session = link.session
            before = session.state
            try:
                events = session.receive(data)
                if before is not SessionState.OPEN and link.has_not_waited(before, len(data)):
                    # An honest peer continues only after our answers have arrived (3.1.5.3.2,
                    # 3.1.5.4). A replay of an earlier connection does not wait. Its acknowledgments
                    # would match the messages that we send now, which would be lost.
                    events = session.close("the peer has not waited for our answer: a connection that was repeated")
                if events:
                    self._handle(link, events)
                link.received(len(data))
                self._links.unfinished.set(link, link.budget_peer, session.unfinished)
                if before is SessionState.WAITING_ECR_MSG and session.state is SessionState.WAITING_CPR_MSG:
                    for route in link.routes:
                        route.record(ConnectionStatus.ESTABLISH_PACKET_RECEIVED, self.clock())
            except Exception:  # noqa: BLE001 (logged)
                self._contain(link)
            self._turns.mark_dirty(link)

    def disconnected(self, link: Link, problem: str = "") -> None:
        """Handle the end of a connection (3.1.7.3 Handling a Network Disconnect).

        `problem` is the cause, if it is known.
        """
        with self._turn():
            session = link.session
            self._handle(link, session.close(problem, is_error=True) if problem else session.end_of_stream())

    def set_writable(self, link: Link, *, is_writable: bool) -> None:
        """Note whether the transport accepts more data."""
        link.is_writable = is_writable
        if is_writable:
            with self._turn():
                self._turns.mark_dirty(link)

    def resend(self, queue: OutgoingQueue) -> None:
        """Send unacknowledged transactional messages again now, for an operator (EOD_RESEND)."""
        with self._turn():
            route = self._routes.of(queue)
            route.table.resend()
            if route.stage is Stage.WAITING_RECONNECT:
                self._connector.retry(route)
            self._turns.awaken(queue.number)

    # Timers (3.1.6)
    # -------------------------------------------------------------------------------------------

    def on_timer(self) -> None:
        """Handle the timer events that are due. Call it when `deadlines.earliest` has passed."""
        with self._turn():
            self._run_due()

    def _run_due(self) -> None:
        if self.deadlines.run_due(self.monotonic(), _TURN_TIMERS):
            self.network.wake()

    def _link_due(self, link: Link, _now: float) -> None:
        try:
            events = link.session.on_timer()
            if events:
                self._handle(link, events)
        except Exception:  # noqa: BLE001 (logged)
            self._contain(link)
        self._turns.mark_dirty(link)

    def _route_due(self, route: Route, now: float) -> None:
        try:
            if route.retry_due is not None and route.retry_due <= now:
                self._connector.retry(route)
            deadline = route.table.next_deadline()
            if deadline is not None and deadline <= now:
                route.table.on_timer()
                route.sequence_timed_out()
                if route.link is not None:
                    self._turns.mark_dirty(route.link)
        except Exception:  # noqa: BLE001 (logged)
            self._contain(route.link)
        self._routes.watch(route)

    def _check_idle(self, now: float) -> None:
        self._idle_check.set(now + _IDLE_CHECK)
        self.judge_peers()
        if self._routes.remove_idle(now):
            self._deliveries.removed()

    def _queues_full(self) -> None:
        """Have idle outgoing queues removed, because others have caused as many as they may.

        They are caused by other computers or by a user. Removal is deferred, because the caller may
        be using a queue.
        """
        self._room_check.set_earlier(self.monotonic() + _ROOM_CHECK)

    def _make_room(self, now: float) -> None:
        self._room_check.clear()
        if self._routes.remove_idle(now, makes_room=True):
            self._deliveries.removed()

    # Events of sessions
    # ---------------------------------------------------------------------------------------

    def _handle(self, link: Link, events: Iterable[Event]) -> None:
        messages: list[UserMessagesReceived] = []
        for event in _joined(events):
            if isinstance(event, UserMessagesReceived):
                if isinstance(event, OrderAckReceived):
                    self._deliveries.order_ack(link, event)
                elif isinstance(event, FinalAckReceived):
                    self._deliveries.final_ack(link, event)
                messages.append(event)
            elif isinstance(event, SessionAckReceived):
                self._deliveries.session_acked(link, event)
                if event.acked and link.is_initiator and not link.has_exchanged:
                    self._exchanged(link)
            elif isinstance(event, NothingAcknowledged):
                self._deliveries.nothing_acknowledged(link, event)
            elif isinstance(event, SessionOpened):
                self._opened(link)
                if link.number not in self.links:
                    # The session was rejected, and so is everything after it.
                    return
            elif isinstance(event, SessionClosed):
                # Messages that arrived before the end of the session are received.
                if messages:
                    self.incoming.receive(link, messages)
                messages = []
                self._closed(link, event)
        if messages:
            self.incoming.receive(link, messages)

    def _processed(self, link: Link, number: int) -> None:
        self._awaiting_durability.processed(link, number)

    def _protected(self, queue: OutgoingQueue) -> None:
        self._outflow.protected(queue)

    def _close(self, link: Link, reason: str) -> None:
        """End a session from our side."""
        self._handle(link, link.session.close(reason))

    def _opened(self, link: Link) -> None:
        if link.remote_qm_guid == self.engine.queue_manager.identifier:
            # A message that returned to us would be rejected as forged. This way it stays in its
            # queue, where an operator sees it.
            self._close(link, "the peer is this queue manager itself, under a name that it does not know for its own")
            return
        if not self._certify(link):
            return
        # A peer that has connected to us was admitted before it was answered.
        if link.is_initiator and (
            refusal := self._refusal(link.remote_qm_guid, link.remote_address, is_proven=self._is_proven(link))
        ):
            self._close(link, refusal)
            return
        link.standing = self._standing(link)
        link.was_open = True
        self._links.handshake_done(link)
        log_of_peer(_LOG, logging.INFO, "opened", link.budget_peer, "session with %s is open", link.peer)
        self._connector.opened(link)

    def _certify(self, link: Link) -> bool:
        """Determine the peer of an open session.

        End the session if the certificate, or its absence, does not fit the GUID.
        """
        try:
            link.certified_peer = self.certified.check(
                link.connection.certification, link.remote_qm_guid, link.remote_address
            )
        except TlsError as error:
            self._handle(link, link.session.close(printable(str(error)), is_error=True))
            return False
        return True

    def _standing(self, link: Link) -> Standing:
        return self.identities.judge(link.remote_qm_guid, link.remote_address, is_proven=self._is_proven(link))

    @staticmethod
    def _is_proven(link: Link) -> bool:
        """Return whether the peer's identity is proven.

        It has a certificate for its identifier, or it is where the directory's name for it was
        resolved.
        """
        return link.certified_peer is not None or (link.is_initiator and link.meant_guid == link.remote_qm_guid)

    def _exchanged(self, link: IncomingLink) -> None:
        """Note that the first message of a session was stored here or acknowledged by the peer."""
        link.has_exchanged = True
        self.identities.prove(link.remote_qm_guid, link.remote_address, link.standing)
        # No caller waits for the pin.
        self._deliveries.removed()

    def judge_peers(self) -> None:
        """Judge every peer again, because what is known about it may have changed.

        A session that is no longer admitted is closed.
        """
        for link in [link for link in self.links.values() if link.was_open]:
            link.standing = self._standing(link)
            if link.standing.refusal:
                self._close(link, link.standing.refusal)

    def trust_peer(self, guid: UUID, addresses: list[str]) -> Pin:
        """Bind a queue manager to the addresses that an operator states.

        Sessions of other addresses with its identifier are ended.
        """
        with self._turn():
            pin = self.identities.pins.trust(guid, addresses)
            self.judge_peers()
            return pin

    def forget_peer(self, guid: UUID) -> bool:
        """Remove what is bound to an identifier, for an operator, and end its sessions.

        Return False if nothing is bound to it.
        """
        with self._turn():
            is_found = self.identities.pins.forget(guid)
            for link in [link for link in self.links.values() if link.remote_qm_guid == guid and is_found]:
                self._close(link, "an operator has forgotten this peer")
            return is_found

    def _closed(self, link: Link, event: SessionClosed) -> None:
        """Handle the end of a session (3.1.5.9 Closing a Session)."""
        if not self._links.remove(link):
            return
        level = logging.WARNING if event.is_error else logging.INFO
        log_of_peer(_LOG, level, "closed", link.budget_peer, "session with %s closed: %s", link.peer, event.reason)
        if event.is_malformed:
            self.incidents.add(Incident.REFUSED_PACKET, link.remote_address, event.reason)
        self.incoming.closed(link)
        self.protection.session_closed(link.remote_qm_guid)
        routes, link.routes = link.routes, []
        for route in routes:
            if not link.was_open:
                status = (
                    ConnectionStatus.CONNECTION_REFUSED if event.is_refused else ConnectionStatus.CONNECTION_NOT_READY
                )
                route.record(status, self.clock(), E_FAIL, event.reason)
            elif event.is_error and not route.table.is_empty:
                # Otherwise a peer that ends every session would have only successes in the history.
                route.record(ConnectionStatus.UNKNOWN_FAILURE, self.clock(), E_FAIL, event.reason)
            # An empty queue is not affected by the end of its session.
            self._connector.detach(route, problem="" if route.table.is_empty and not event.is_error else event.reason)
        self._turns.mark_dirty(link)


def _joined(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events, with consecutive SessionHeaders joined into one.

    One SessionHeader has room for 32 recoverable messages, so a peer may send several in a row.
    """
    acknowledged: SessionAckReceived | None = None
    for event in events:
        if not isinstance(event, SessionAckReceived):
            if acknowledged is not None:
                yield acknowledged
                acknowledged = None
            yield event
        elif acknowledged is None:
            acknowledged = event
        else:
            acknowledged.acked += event.acked
            acknowledged.persisted += event.persisted
    if acknowledged is not None:
        yield acknowledged
