"""Transfer as a whole: what arrives goes to the engine, what waits in outgoing queues leaves (MS-MQQB 3.1.4 to 3.1.7).

Deterministic: no socket, no thread, no clock of its own. Everything runs in one thread; other threads only mark what has
happened, under the store's lock, and wake it.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, cast

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import ConnectionStatus, MessageClass, OutgoingState
from lanner.transfer.addresses import get_destination_info
from lanner.transfer.awaiting_final_ack import AwaitingFinalAck
from lanner.transfer.events import (
    FinalAckReceived,
    NothingAcknowledged,
    OrderAckReceived,
    SessionAckReceived,
    SessionClosed,
    SessionOpened,
    UserMessageReceived,
)
from lanner.transfer.incoming import Incoming
from lanner.transfer.leaving import Leaving
from lanner.transfer.outgoing_message_table import OutgoingMessagePosition
from lanner.transfer.packets import ORDER_QUEUE_NUMBER, FinalAckBody, OrderAckBody
from lanner.transfer.refusals import OTHER, is_refusal
from lanner.transfer.route import E_FAIL, FIXED_STATES, Route, Stage
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.wire.format_name import DirectFormatName, FormatName, PrivateFormatName
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition
    from lanner.transfer.events import Event
    from lanner.transfer.link import Link
    from lanner.transfer.network import Connection, Network
    from lanner.transfer.settings import TransferSettings
    from lanner.wire.internal_header import EstablishConnectionHeader

_LOG = logging.getLogger(__name__)

# Ours: so many outgoing queues have their timers run before anything else has its turn.
_TURN_ROUTES = 50
# Ours: removals that nobody waits for are written at latest after so many seconds.
_LAZY_SYNC = 0.2
# Ours, seconds: how often outgoing queues that nobody uses are looked for, and how long they are kept. Whoever sends through us
# to many destinations would otherwise leave a queue behind for each.
_IDLE_CHECK = 60.0
_IDLE_LIMIT = 600.0


class Transfer(Leaving):
    """MS-MQQB for one queue manager."""

    def __init__(self, engine: Engine, settings: TransferSettings, network: Network) -> None:
        super().__init__(engine, settings, network)
        engine.max_queues_for_others = settings.max_queues_for_others
        self.awaiting_final_ack = AwaitingFinalAck(engine, lambda queue: self._route(queue).table)
        # What is remembered of messages is read from the store, which other threads are using already.
        with self.lock:
            self.incoming = Incoming(
                engine,
                settings,
                examine=self.protection.examine,
                forwarded=self._show_sequence,
                is_known=self._is_known_peer,
            )
        self._unsettled: deque[tuple[int, Link, int]] = deque()  # (batch, link, message number)
        self._failed_batches: set[int] = set()
        # For an operator: OrderAcks that came from elsewhere than the messages had gone to.
        self.foreign_order_acks = 0
        self._lazy_sync_due: float | None = None
        self._is_running = False
        # Outgoing queues that nobody uses, by number, and since when.
        self._idle_since: dict[int, float] = {}
        self._idle_check_due = self.monotonic() + _IDLE_CHECK

    # Start and stop (3.1.4) -----------------------------------------------------------------------------------

    def start(self) -> None:
        """3.1.4.1 Queue Manager Started: what waits in outgoing queues is sent."""
        with self._turn():
            engine = self.engine
            engine.position_available_subscribers.append(self._position_available)
            engine.position_deleted_subscribers.append(self._position_deleted)
            engine.outgoing_state_subscribers.append(self._outgoing_state_changed)
            engine.connection_active_subscribers.append(self._connection_active_changed)
            engine.send_user_message = self._send_user_message
            engine.store.on_synced(self._on_synced)
            engine.store.on_failed(self._on_failed)
            self._is_running = True
            for queue in engine.outgoing_queues():
                self._awake.setdefault(queue.number, False)
        self.network.wake()

    def stop(self) -> None:
        """3.1.4.2 Queue Manager Stopped: every session is closed."""
        with self._turn():
            self._is_running = False
            for link in list(self.links.values()):
                self._close(link, "the queue manager stops")
            self.incoming.stop()
            engine = self.engine
            engine.position_available_subscribers.remove(self._position_available)
            engine.position_deleted_subscribers.remove(self._position_deleted)
            engine.outgoing_state_subscribers.remove(self._outgoing_state_changed)
            engine.connection_active_subscribers.remove(self._connection_active_changed)
            engine.send_user_message = None
        while self._ending:
            self._end_delivered()

    # What other threads tell us, under the lock ---------------------------------------------------------------

    def _position_available(self, queue: Queue, position: MessagePosition) -> None:
        """3.1.7.12 Message Position Available Event."""
        if isinstance(queue, OutgoingQueue):
            route = self.routes.get(queue.number)
            if route is not None:
                route.table.message_available(position)
            if queue.number not in self._awake:
                self._awake[queue.number] = False
                self.network.wake()

    def _position_deleted(self, queue: Queue, position: MessagePosition, _reason: MessageClass) -> None:
        """A message left an outgoing queue otherwise than by being delivered: it expired, or was purged."""
        if isinstance(queue, OutgoingQueue):
            route = self.routes.get(queue.number)
            if route is not None:
                route.table.message_removed(position)

    def _outgoing_state_changed(self, queue: OutgoingQueue) -> None:
        """3.1.7.13 Pause Queue Event, 3.1.7.14 Resume Queue Event."""
        self._awake[queue.number] = True
        self.network.wake()

    def _connection_active_changed(self) -> None:
        """MS-MQDMPR 3.1.4.12 Take Offline, 3.1.4.13 Bring Online."""
        for queue in self.engine.outgoing_queues():
            self._awake.setdefault(queue.number, False)
        self.network.wake()

    def _on_synced(self, _batch: int) -> None:
        if not self.engine.store.pending_batch():
            # Else removals may be in a later batch than the one that was written.
            self._lazy_sync_due = None
        self.network.wake()

    def _on_failed(self, batch: int) -> None:
        self._failed_batches.add(batch)
        for route in self.routes.values():
            route.table.store_failed()
            # A pause that was not on disk is undone as well.
            self._awake.setdefault(route.queue.number, False)
        self.network.wake()

    # Turns ----------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Do what has become possible: acknowledge what is on disk, send what has come."""
        with self._turn():
            self._settle()
            self._run_incoming_timers(self.monotonic())
            if not self.engine.queue_manager.connection_active:
                self._disconnect()
            while self._awake:
                number, is_steered = self._awake.popitem()
                queue = self.engine.queue_manager.queue_collection.get(number)
                if isinstance(queue, OutgoingQueue) and not queue.is_deleted:
                    route = self._route(queue)
                    with self._contained(route.link):
                        if is_steered:
                            self._pause(route)
                        self._attend(route)
            unsynced, self._unsynced = self._unsynced, {}
            for route in unsynced:
                if route.link is not None:
                    self._mark_dirty(route.link)
            self._run_route_timers(self.monotonic())

    @property
    def _is_online(self) -> bool:
        return self._is_running and self.engine.queue_manager.connection_active

    def _disconnect(self) -> None:
        """End every session and every attempt at one: nothing leaves or comes in until the queue manager is online again."""
        for link in list(self.links.values()):
            self._close(link, "the queue manager was taken offline")
        for route in self.routes.values():
            if route.stage is not Stage.IDLE:
                route.attempt += 1
                route.stage = Stage.IDLE
                route.retry_due = None
                route.set_state(OutgoingState.DISCONNECTED)

    def _pause(self, route: Route) -> None:
        """3.1.7.13: nothing leaves the queue, nobody connects for it, and the peer is asked for little."""
        if route.queue.state is not OutgoingState.ON_HOLD:
            return
        link = route.link
        if route.stage is Stage.WAITING_RECONNECT:
            route.stage = Stage.IDLE
            route.retry_due = None
        if link is not None and link.is_open:
            link.session.pause()
            self.engine.remove_messages_from_dispatch_collection_by_queue(route.queue)
            self._mark_dirty(link)

    def _attend(self, route: Route) -> None:
        queue = route.queue
        link = route.link
        if queue.state in FIXED_STATES or queue.multicast or route.table.is_empty or not self._is_online:
            return
        name = FormatName.parse(queue.destination_format_name)
        if isinstance(name, DirectFormatName) and name.is_http:
            return
        if link is not None:
            if link.is_open:
                route.set_state(OutgoingState.CONNECTED)
                self._mark_dirty(link)
        elif route.stage is Stage.IDLE:
            self._establish(route)
        elif route.stage is Stage.WAITING_RECONNECT and queue.state is OutgoingState.INACTIVE:
            # It was paused and resumed meanwhile; its next attempt is due all the same.
            route.set_state(OutgoingState.DISCONNECTED)

    def accepts(self, address: str) -> bool:
        """Whether another connection from an address is taken at all."""
        if not self.engine.queue_manager.connection_active:
            return False
        return len(self._links_at.get(address, ())) < self.settings.max_sessions_per_peer

    def accepted(self, connection: Connection, address: str) -> None:
        """3.1.5.10 Handling an Incoming Transport Connection."""
        with self._turn():
            session = Session.accept(
                own_guid=self.engine.queue_manager.identifier,
                settings=self.settings,
                monotonic=self.monotonic,
                admit=self._admit,
                is_routing_server=self.engine.queue_manager.routing_server,
            )
            self._new_link(session, connection, address, is_initiator=False)
            self._limit_half_open()

    def _limit_half_open(self) -> None:
        """Who opens connections and says nothing must keep nobody out: of too many, the one goes that its address misses least."""
        # Not those that we open: they are as many as our peers.
        half_open = [link for link in self.links.values() if not link.is_open and not link.is_initiator]
        if len(half_open) > self.settings.max_half_open:
            ((address, _),) = Counter(link.remote_address for link in half_open).most_common(1)
            oldest = next(link for link in half_open if link.remote_address == address)
            self._close(oldest, "too many connections wait for their handshake")

    def _admit(self, _request: EstablishConnectionHeader) -> bool:
        """QQB-2.2.1-4: not more sessions than an administrator allows."""
        return self.would_accept

    @property
    def would_accept(self) -> bool:
        """Whether a session would be taken now; what a ping is answered with."""
        inbound = sum(not link.is_initiator and link.is_open for link in self.links.values())
        return self._is_online and inbound < self.settings.max_in_sessions

    def data_received(self, link: Link, data: bytes | memoryview) -> None:
        with self._turn():
            session = link.session
            before = session.state
            with self._contained(link):
                events = session.receive(data)
                if link.has_not_waited(before, len(data)):
                    # Nobody goes on before our answers have come (3.1.5.3.2, 3.1.5.4), unless it is a connection of before that is played once more. Its acknowledgments
                    # would be taken for those of what we would send now, and that would be lost.
                    events = session.close("the peer has not waited for our answer: a connection that was repeated")
                self._handle(link, events)
                link.received(len(data))
                if before is SessionState.WAITING_ECR_MSG and session.state is SessionState.WAITING_CPR_MSG:
                    for route in link.routes:
                        route.record(ConnectionStatus.ESTABLISH_PACKET_RECEIVED, self.clock())
            self._mark_dirty(link)

    def disconnected(self, link: Link) -> None:
        """3.1.7.3 Handling a Network Disconnect."""
        with self._turn():
            self._handle(link, link.session.end_of_stream())

    def set_writable(self, link: Link, *, is_writable: bool) -> None:
        """The transport takes more, or does not."""
        link.is_writable = is_writable
        if is_writable:
            with self._turn():
                self._mark_dirty(link)

    def resend(self, queue: OutgoingQueue) -> None:
        """An operator wants transactional messages that are not acknowledged to be sent now (EOD_RESEND)."""
        with self._turn():
            route = self._route(queue)
            route.table.resend()
            if route.stage is Stage.WAITING_RECONNECT:
                self._retry(route)
            self._awake.setdefault(queue.number, False)
        self.network.wake()

    # Timers ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `on_timer` has something to do, on the monotonic clock."""
        deadlines = [
            self._idle_check_due,
            self._lazy_sync_due,
            self.incoming.next_deadline(),
            self.protection.next_deadline(),
            self._link_deadlines.next_deadline(),
            self._route_deadlines.next_deadline(),
        ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_timer(self) -> None:
        """Raise the timer events that are due (3.1.6)."""
        with self._turn():
            now = self.monotonic()
            while (link := self._link_deadlines.take_due(now)) is not None:
                with self._contained(link):
                    self._handle(link, link.session.on_timer())
                self._mark_dirty(link)
            self._run_route_timers(now)
            self._run_incoming_timers(now)
            deadline = self.protection.next_deadline()
            if deadline is not None and deadline <= now:
                self.protection.on_timer()
            if self._lazy_sync_due is not None and self._lazy_sync_due <= now:
                self._lazy_sync_due = None
                self._is_sync_wanted = True
            if self._idle_check_due <= now:
                self._idle_check_due = now + _IDLE_CHECK
                self._remove_idle_queues(now)

    def _run_incoming_timers(self, now: float) -> None:
        """Also after a sync: an OrderAck may have waited for it."""
        deadline = self.incoming.next_deadline()
        if deadline is not None and deadline <= now:
            self.incoming.on_timer()

    def _run_route_timers(self, now: float) -> None:
        """Some of those that are due, and the others soon: thousands of dead peers must not keep others waiting."""
        for _ in range(_TURN_ROUTES):
            route = self._route_deadlines.take_due(now)
            if route is None:
                return
            with self._contained(route.link):
                self._run_timers(route, now)
            self._route_deadlines.watch(route)
        self.network.wake()

    def _run_timers(self, route: Route, now: float) -> None:
        if route.retry_due is not None and route.retry_due <= now:
            self._retry(route)
        deadline = route.table.next_deadline()
        if deadline is not None and deadline <= now:
            route.table.on_timer()
            if route.link is not None:
                self._mark_dirty(route.link)

    def _remove_idle_queues(self, now: float) -> None:
        idle = {queue.number: queue for queue in self.engine.outgoing_queues() if self.engine.is_idle(queue)}
        self._idle_since = {number: self._idle_since.get(number, now) for number in idle}
        for number, since in list(self._idle_since.items()):
            if now - since < _IDLE_LIMIT or not self.engine.remove_idle_outgoing_queue(idle[number]):
                continue
            del self._idle_since[number]
            route = self.routes.pop(number, None)
            if route is not None:
                self._forget_route(route)
            self._removed()

    def _forget_route(self, route: Route) -> None:
        if route.link is not None:
            route.link.routes.remove(route)
        self._set_next_hops(route, [])
        self._route_deadlines.forget(route)

    # What arrives ---------------------------------------------------------------------------------------------

    def _handle(self, link: Link, events: Iterable[Event]) -> None:
        messages: list[UserMessageReceived | OrderAckReceived | FinalAckReceived] = []
        for event in events:
            if isinstance(event, (UserMessageReceived, OrderAckReceived, FinalAckReceived)):
                messages.append(event)
            elif isinstance(event, SessionAckReceived):
                self._session_acked(link, event)
            elif isinstance(event, NothingAcknowledged):
                self._nothing_acknowledged(link, event)
            elif isinstance(event, SessionOpened):
                self._opened(link)
            elif isinstance(event, SessionClosed):
                # What came before the end has come.
                self._receive(link, messages)
                messages = []
                self._closed(link, event)
        self._receive(link, messages)

    def _receive(self, link: Link, events: list[UserMessageReceived | OrderAckReceived | FinalAckReceived]) -> None:
        if events:
            for event in events:
                if isinstance(event, OrderAckReceived):
                    self._order_ack(link, event)
                elif isinstance(event, FinalAckReceived):
                    self._final_ack(link, event)
            self.incoming.receive(link, events)

    def _show_sequence(self, queue: OutgoingQueue) -> None:
        """QQB-3.1.5.8.8-4: another's message goes through an outgoing queue, which shows its own sequence."""
        self._route(queue).table.refresh_transfer_info()

    def _order_ack(self, link: Link, event: OrderAckReceived) -> None:
        """3.1.5.6 Receiving an OrderAck Packet: the sequence is known by its identifier."""
        body = OrderAckBody.from_packet(event.packet)
        queue = self.engine.outgoing_queue_of(body.tx_sequence_id)
        if queue is None:
            return
        route = self._route(queue)
        if self._is_destination(route, link, Message(event.packet).source_machine_identifier):
            route.table.order_ack(body)
            self._route_deadlines.watch(route)
            self._removed(route)
        else:
            self.foreign_order_acks += 1

    def _is_destination(self, route: Route, link: Link, source: UUID) -> bool:
        """Whether an OrderAck comes from where a queue's messages go: it removes them, and its identifiers can be guessed.

        One that is not believed costs a resend, whose OrderAck comes on the session of the queue itself.
        """
        if link is route.link:
            return True
        name = FormatName.parse(route.queue.destination_format_name)
        if isinstance(name, DirectFormatName):
            return any(link.remote_address == hop.address for hop in route.next_hops)
        destination = get_destination_info(self.engine, name)
        return destination is not None and source == destination.queue_manager_guid

    def _final_ack(self, link: Link, event: FinalAckReceived) -> None:
        """3.1.5.7 Receiving a FinalAck Packet."""
        body = FinalAckBody.from_packet(event.packet)
        message = Message(event.packet)
        is_found = self.awaiting_final_ack.final_ack(body, message.message_class)
        self._removed()
        if is_refusal(message.message_class) and body.source_guid == self.engine.queue_manager.identifier:
            self._refused_by_peer(link, body, message, is_found=is_found)

    def _refused_by_peer(self, link: Link, body: FinalAckBody, message: Message, *, is_found: bool) -> None:
        """Count a transactional message that its destination has refused.

        Without source journaling nothing may be left of it here (its OrderAck came first). Then only the destination is believed.
        """
        queue = self.engine.outgoing_queue_of(body.tx_sequence_id)
        is_from_destination = queue is not None and self._is_destination(
            self._route(queue), link, message.source_machine_identifier
        )
        if is_found or is_from_destination:
            self.incoming.refusals.refused_by_peer(
                OTHER if queue is None else queue.destination_format_name,
                message.message_class,
                peer=link.remote_address,
                message=MessageIdentifier(body.source_guid, body.message_id),
                is_known=queue is not None,
            )

    def _nothing_acknowledged(self, link: Link, event: NothingAcknowledged) -> None:
        """A session is Connected as long as the peer says anything at all: an operator must see that nothing comes of it."""
        since = dt.datetime.fromtimestamp(self.clock() - event.seconds, dt.UTC)
        if not link.problem:
            link.problem = f"nothing acknowledged since {since:%Y-%m-%d %H:%M:%S} UTC, though the session is open"
            _LOG.warning("session with %s: %s", link.peer, link.problem)
        for route in link.routes:
            if not route.table.is_empty:
                route.problem = link.problem

    @staticmethod
    def _something_acknowledged(link: Link) -> None:
        for route in link.routes:
            if route.problem == link.problem:
                route.problem = ""
        link.problem = ""

    def _session_acked(self, link: Link, event: SessionAckReceived) -> None:
        """3.1.5.5 Receiving a SessionAck Packet: to each outgoing queue its own."""
        if link.problem and (event.acked or event.persisted):
            self._something_acknowledged(link)
        by_queue: dict[int, tuple[list[OutgoingMessagePosition], list[OutgoingMessagePosition]]] = {}
        for place, entries in enumerate((event.acked, event.persisted)):
            for entry in cast("list[OutgoingMessagePosition | None]", entries):
                if entry is not None:
                    number = entry.message_position.queue.number
                    by_queue.setdefault(number, ([], []))[place].append(entry)
        for number, (acked, persisted) in by_queue.items():
            route = self.routes.get(number)
            if route is not None:
                route.table.session_acked(acked, persisted)
                self._removed(route)

    def _removed(self, route: Route | None = None) -> None:
        """Messages left an outgoing queue: nobody waits for that to be on disk, but it should not take long."""
        if self._lazy_sync_due is None:
            self._lazy_sync_due = self.monotonic() + _LAZY_SYNC
        if route is not None:
            self._ending[route] = None

    def _end_delivered(self) -> None:
        ending, self._ending = self._ending, {}
        with self.lock:
            for route in ending:
                with self._contained(route.link):
                    route.table.end_some()
                    if route.table.is_ending:
                        # The others leave in turns of their own, between which there is time to send.
                        self._ending[route] = None
                        self.network.wake()

    def _processed(self, link: Link, number: int) -> None:
        # A ticket, not a change: `_settle` compares it with the batch that is synced, in the turn after each commit.
        ticket = self.engine.store.pending_batch()
        if ticket:
            self._unsettled.append((ticket, link, number))
            self._is_sync_wanted = True
            self._need_turn()
        else:
            self._settle_link(link, number)

    def _settle(self) -> None:
        """Acknowledge what is on disk; end the sessions whose messages could not be written."""
        synced = self.engine.store.synced
        waiting = self._unsettled
        while waiting:
            ticket, link, number = waiting[0]
            if ticket in self._failed_batches:
                waiting.popleft()
                self._close(link, "the store could not be written")
            elif ticket <= synced:
                waiting.popleft()
                self._settle_link(link, number)
            else:
                break
        if not waiting:
            self._failed_batches.clear()

    def _settle_link(self, link: Link, number: int) -> None:
        if not link.is_closed:
            with self._contained(link):
                self._handle(link, link.session.settle(number))
                link.settled(number)
            self._mark_dirty(link)

    def _close(self, link: Link, reason: str) -> None:
        self._handle(link, link.session.close(reason))

    # Sessions -------------------------------------------------------------------------------------------------

    def _opened(self, link: Link) -> None:
        if link.remote_qm_guid == self.engine.queue_manager.identifier:
            # What came back to us would be taken for a forgery: it stays where an operator sees it.
            self._close(link, "the peer is this queue manager itself, under a name that it does not know for its own")
            return
        link.was_open = True
        for route in link.routes:
            self._is_attached_and_open(route, link)
        _LOG.info("session with %s is open", link.peer)
        # Who waits for its next attempt to reach this peer need not wait.
        self._attach_acknowledgments(link)
        for route in list(self._routes_at.get(link.remote_address, ())):
            if route.stage is Stage.WAITING_RECONNECT and any(
                self._link_to(route, hop) is link for hop in route.next_hops
            ):
                route.retry_due = None
                self._attach(route, link)

    def _attach_acknowledgments(self, link: Link) -> None:
        """Acknowledgments for the peer that nobody knew another way for."""
        queue = self.engine.find_outgoing_queue(PrivateFormatName(link.remote_qm_guid, ORDER_QUEUE_NUMBER))
        route = None if queue is None else self.routes.get(queue.number)
        if route is not None and route.stage is Stage.WAITING_RECONNECT and not route.next_hops:
            route.retry_due = None
            self._attach(route, link)

    def _closed(self, link: Link, event: SessionClosed) -> None:
        """3.1.5.9 Closing a Session."""
        if not self._remove_link(link):
            return
        log = _LOG.warning if event.is_error else _LOG.info
        log("session with %s closed: %s", link.peer, event.reason)
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
                # Else there would be nothing but successes to see of a peer that ends every session.
                route.record(ConnectionStatus.UNKNOWN_FAILURE, self.clock(), E_FAIL, event.reason)
            # An empty queue misses nothing when its session ends.
            self._detach(route, problem="" if route.table.is_empty and not event.is_error else event.reason)
        self._mark_dirty(link)
