"""Sending messages of outgoing queues, as far as the sessions have room (MS-MQQB 3.1.7.1)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from lanner.model.enums import OutgoingState
from lanner.transfer.outgoing_message_table import OutgoingMessagePosition
from lanner.transfer.packets import acknowledges
from lanner.transfer.protection import EncryptionFailed
from lanner.transfer.route import Route
from lanner.transfer.tracing import send_report
from lanner.wire import fields
from lanner.wire.message import Message
from lanner.wire.plain_sender import plain_sender
from lanner.wire.session_header import DEFAULT_WINDOW_SIZE

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.model.live import DispatchEntry
    from lanner.transfer.connecting import Connector
    from lanner.transfer.link import Link
    from lanner.transfer.network import Network
    from lanner.transfer.protection import Protection
    from lanner.transfer.routes import Routes
    from lanner.transfer.turns import Turns

_LOG = logging.getLogger(__name__)

# Not in the specification: bytes and messages passed to a connection before others have their turn.
# The messages are half a window: while the receiver writes one half to its disk, the other half is
# in transit.
_TURN_BYTES = 1 << 20
_TURN_MESSAGES = DEFAULT_WINDOW_SIZE // 2
# A module-level name, because every message uses it and attribute access on an enumeration is slow
# (Python 3.11).
_CONNECTED = OutgoingState.CONNECTED


class Outflow:
    """The flow from outgoing queues to sessions, and from sessions to connections.

    `on_error` is called in an exception handler, with the link for which the error was raised.
    """

    def __init__(
        self,
        engine: Engine,
        network: Network,
        routes: Routes,
        connector: Connector,
        protection: Protection,
        turns: Turns,
        on_error: Callable[[Link | None], None],
    ) -> None:
        self._engine = engine
        self._network = network
        self._routes = routes
        self._connector = connector
        self._protection = protection
        self._turns = turns
        self._on_error = on_error
        self.unsynced: dict[Route, None] = {}  # their next message is not durable yet
        self._unfilled: list[Link] = []  # there was more to send than one turn allows

    # Filling sessions: the caller holds the store's lock
    # -------------------------------------------------------

    def synced(self) -> None:
        """Let routes send whose next message was not durable before this batch of the store."""
        unsynced, self.unsynced = self.unsynced, {}
        for route in unsynced:
            if route.link is not None:
                self._turns.mark_dirty(route.link)

    def fill_links(self) -> None:
        """Send as much as possible on the links marked in this turn."""
        self._unfilled = []
        for link in list(self._turns.dirty):
            if link.session.is_open and link.is_writable and (link.routes or link.waiting_express):
                try:
                    if self._fill(link):
                        self._unfilled.append(link)
                except Exception:  # noqa: BLE001 (logged)
                    self._on_error(link)

    def _fill(self, link: Link) -> bool:
        """Send from a link's queues, the highest priority first.

        Return whether more could be sent.
        """
        if link.waiting_express:
            link.send_waiting_express()
        session = link.session
        limit, count = _TURN_BYTES, _TURN_MESSAGES
        waiting = self._waiting_routes(link)
        while waiting and (room := session.room) > 0:
            if limit <= 0 or count <= 0:
                return True
            highest = max(waiting)
            routes = waiting[highest]
            route = routes.popleft()
            if not routes:
                del waiting[highest]
            table = route.table
            entries = table.next_unsent(1 if waiting else min(room, count), limit)
            count -= len(entries)
            if table.is_waiting_for_sync:
                self.unsynced[route] = None
            if entries and waiting and (own := table.priority_of(entries[0])) < max(waiting):
                # A message of higher priority cannot be sent yet, so other queues come first.
                waiting.setdefault(own, deque()).append(route)
                continue
            if not self._send_all(route, link, entries):
                table.take_back()
                continue
            for entry in entries:
                limit -= len(entry.packet)
            if entries and table.may_have_unsent:
                # A queue that was served goes behind the others of its priority.
                priority = table.peek_priority() if waiting else highest
                if priority is not None:
                    waiting.setdefault(priority, deque()).append(route)
        return False

    @staticmethod
    def _waiting_routes(link: Link) -> dict[int, deque[Route]]:
        """Return the routes of a link that may have something to send, by their next priority.

        Computed once per turn: while the lock is held, sending changes only the queue that is sent
        from.
        """
        waiting: dict[int, deque[Route]] = {}
        routes: deque[Route] = deque()
        for route in link.routes:
            if route.queue.state is _CONNECTED and route.table.may_have_unsent and route.queue.message_count:
                routes.append(route)
        if len(routes) == 1:
            return {0: routes}
        if link.session.room < 1:
            return waiting
        for route in routes:
            priority = route.table.peek_priority()
            if priority is not None:
                waiting.setdefault(priority, deque()).append(route)
        return waiting

    def _send_all(self, route: Route, link: Link, entries: list[OutgoingMessagePosition]) -> bool:
        """Send messages of one queue; return False if one cannot be sent on this link now."""
        ready: list[OutgoingMessagePosition] = []
        is_foreign = False
        for entry in entries:
            packet = entry.packet
            is_foreign = not link.is_initiator and not self._is_for(route, link, packet)
            if is_foreign or (
                plain_sender(packet, *fields.user_flags(packet)) is None and not self._protect(route, link, entry)
            ):
                # The messages after it wait too, because the order of a queue is kept.
                break
            ready.append(entry)
        if self._engine.queue_manager.dispatch_collection:
            for entry in ready:
                self._engine.add_message_to_dispatch_collection(entry.message_position, entry)
        elif ready:
            # MS-MQDMPR 3.1.7.3.9 would choose these messages in this order, because they would be
            # the only ones in the collection.
            self._send(route, link, ready)
        if is_foreign:
            self._connector.leave(route, link)
        return len(ready) == len(entries)

    def _is_for(self, route: Route, link: Link, packet: bytes) -> bool:
        """Return whether a message may go to the peer of a link that the peer has opened."""
        return (
            not route.next_hops
            or self._connector.is_known(route, route.next_hop, link)
            or acknowledges(packet, link.remote_qm_guid)
        )

    def _protect(self, route: Route, link: Link, entry: OutgoingMessagePosition) -> bool:
        """Encrypt the message body (3.1.7.1.5).

        Return False if the message cannot be sent yet, or must never be sent.
        """
        try:
            packet = self._protection.protect(entry.packet, link.remote_qm_guid, route.queue)
        except EncryptionFailed as failure:
            # 3.1.7.1.5.1
            _LOG.warning("%s: a message cannot be encrypted and is not sent: %s", route.queue.pathname, failure)
            route.table.refused(entry, failure.message_class)
            route.record(failure.status, self._engine.clock(), failure.error, str(failure))
            # The messages after it get another turn, because this one has begun without them.
            self._turns.awaken(route.queue.number)
            return False
        if packet is None:
            return False
        entry.packet = packet
        return True

    def protected(self, queue: OutgoingQueue) -> None:
        """Let a queue send, because a key was made or a body encrypted."""
        route = self._routes.by_number.get(queue.number)
        if route is not None and route.link is not None:
            self._turns.mark_dirty(route.link)

    def send_user_message(self, dispatched: DispatchEntry) -> None:
        """Send a message of the engine's dispatch collection.

        Implements 3.1.7.16 Send User Message Wrapper; the engine calls it.
        """
        position = dispatched.message_position
        route = self._routes.by_number[position.queue.number]
        if route.link is not None and route.is_sending:
            self._send(route, route.link, [cast("OutgoingMessagePosition", dispatched.protocol_data)])
        self._engine.remove_message_from_dispatch_collection(position)

    def _send(self, route: Route, link: Link, entries: list[OutgoingMessagePosition]) -> None:
        """Send messages of one queue (3.1.7.1 Send User Message Event)."""
        packets = [entry.packet for entry in entries]
        link.session.send_all(packets, entries)
        route.table.sent(entries)
        if any(entry.tx_sequence_number for entry in entries):
            self._routes.watch(route)
            if route.noted_link is not link:
                route.noted_link = link
                self._routes.sent_to.add(route.queue, link.remote_qm_guid)
        for packet in packets:
            if fields.base_flags_high(packet) & fields.TR_IN_BASE_FLAGS_HIGH:
                send_report(self._engine, Message(packet), next_hop=link.remote_address)

    # Writing to connections: without the lock
    # ------------------------------------------------------------------

    def flush_links(self) -> None:
        """Write the output of the sessions."""
        turns = self._turns
        dirty, turns.dirty = turns.dirty, dict.fromkeys(self._unfilled)
        for link in dirty:
            session = link.session
            if session.out or session.is_closed:
                link.flush()
        if turns.dirty:
            self._network.wake()
