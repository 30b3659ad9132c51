"""What waits in outgoing queues leaves, as far as the sessions have room (MS-MQQB 3.1.7.1)."""

from __future__ import annotations

import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

from lanner.model.enums import MessageClass
from lanner.transfer.connecting import Connecting
from lanner.transfer.incoming_senders import plain_sender
from lanner.transfer.outgoing_message_table import OutgoingMessagePosition
from lanner.transfer.packets import acknowledges
from lanner.transfer.protection import EncryptionFailed, Protection
from lanner.transfer.route import Route
from lanner.transfer.tracing import send_report
from lanner.wire.message import Message
from lanner.wire.session_header import DEFAULT_WINDOW_SIZE

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.model.live import DispatchEntry
    from lanner.transfer.link import Link
    from lanner.transfer.network import Network
    from lanner.transfer.settings import TransferSettings

_LOG = logging.getLogger(__name__)

_user_flags = struct.Struct("<60xI").unpack_from  # UserHeader.Flags of a packet

# Ours: so many bytes and messages are handed to a connection before the others have their turn. Half a window of messages: while
# the receiver writes one half to its disk the other half is on its way.
_TURN_BYTES = 1 << 20
_TURN_MESSAGES = DEFAULT_WINDOW_SIZE // 2


class Leaving(Connecting):
    """From outgoing queues to sessions."""

    def __init__(self, engine: Engine, settings: TransferSettings, network: Network) -> None:
        super().__init__(engine, settings, network)
        self.protection = Protection(engine, run_in_thread=network.run_in_thread, ready=self._protected)
        # Numbers of outgoing queues that something happened to, and whether an operator paused or resumed them.
        self._awake: dict[int, bool] = {}
        self._unsynced: dict[Route, None] = {}  # their next message is not on disk yet
        self._unfilled: list[Link] = []  # there was more to send than one turn should take
        self._is_sync_wanted = False

    def _fill_links(self) -> None:
        self._unfilled = []
        for link in list(self._dirty):
            with self._contained(link):
                if self._fill(link):
                    self._unfilled.append(link)
        if self._is_sync_wanted:
            self._is_sync_wanted = False
            # A ticket, not a change: a turn waits for nothing, and `_settle` compares what is unsettled with what is synced.
            ticket = self.engine.store.pending_batch()
            if ticket:
                self.network.sync(ticket)

    def _fill(self, link: Link) -> bool:
        """Send from the link's queues while there is room, the highest priority first; whether more could be sent."""
        if not link.is_open or not link.is_writable:
            return False
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
            entries = route.table.next_unsent(1 if waiting else min(room, count), limit)
            count -= len(entries)
            if route.table.is_waiting_for_sync:
                self._unsynced[route] = None
            if entries and waiting and (own := route.table.priority_of(entries[0])) < max(waiting):
                # What stands before it cannot be sent yet; others come first.
                waiting.setdefault(own, deque()).append(route)
                continue
            for entry in entries:
                if not self._is_for(route, link, entry):
                    self._leave(route, link)
                    break
                if not self._protect(route, link, entry):
                    # Those behind it wait, too: the order of a queue is kept.
                    break
                limit -= len(entry.packet)
                self.engine.add_message_to_dispatch_collection(entry.message_position, entry)
            else:
                # Whoever was served stands behind the others of its priority.
                priority = (route.table.peek_priority() if waiting else highest) if entries else None
                if priority is not None:
                    waiting.setdefault(priority, deque()).append(route)
        return False

    @staticmethod
    def _waiting_routes(link: Link) -> dict[int, deque[Route]]:
        """The routes of a link that may have something to send, by the priority of the next message of each.

        Asked once in a turn: while the lock is held, sending changes only the queue that is sent from.
        """
        waiting: dict[int, deque[Route]] = {}
        if link.session.room > 0:
            routes = [route for route in link.routes if route.is_sending and not route.table.is_empty]
            if len(routes) == 1:
                return {0: deque(routes)}
            for route in routes:
                priority = route.table.peek_priority()
                if priority is not None:
                    waiting.setdefault(priority, deque()).append(route)
        return waiting

    def _is_for(self, route: Route, link: Link, entry: OutgoingMessagePosition) -> bool:
        """Whether a message may go to whoever is at the end of a link."""
        return (
            link.is_initiator
            or not route.next_hops
            or self._is_known(route, route.next_hop, link)
            or acknowledges(entry.packet, link.remote_qm_guid)
        )

    def _protect(self, route: Route, link: Link, entry: OutgoingMessagePosition) -> bool:
        """3.1.7.1.5 Encrypting the Message Body; False: not yet, or never."""
        if plain_sender(entry.packet, *_user_flags(entry.packet)) is not None:
            return True
        try:
            packet = self.protection.protect(entry.packet, link.remote_qm_guid, route.queue)
        except EncryptionFailed as failure:
            # 3.1.7.1.5.1. The documents list no class for this; the nearest is that of a receiver who cannot decrypt.
            _LOG.warning("%s: a message cannot be encrypted and is not sent: %s", route.queue.pathname, failure)
            route.table.refused(entry, MessageClass.NACK_BAD_ENCRYPTION)
            route.record(failure.status, self.clock(), failure.error, str(failure))
            # Those behind it get another turn: this one has begun without them.
            self._awake.setdefault(route.queue.number, False)
            self.network.wake()
            return False
        if packet is None:
            return False
        entry.packet = packet
        return True

    def _protected(self, queue: OutgoingQueue) -> None:
        """A key was made, or a body encrypted: the queue's next message may leave."""
        route = self.routes.get(queue.number)
        if route is not None and route.link is not None:
            self._mark_dirty(route.link)

    def _send_user_message(self, dispatched: DispatchEntry) -> None:
        """3.1.7.16 Send User Message Wrapper, 3.1.7.1 Send User Message Event."""
        entry = cast("OutgoingMessagePosition", dispatched.protocol_data)
        position = dispatched.message_position
        route = self.routes[position.queue.number]
        if route.link is not None and route.is_sending:
            route.link.session.send(entry.packet, entry)
            route.table.sent(entry)
            if entry.tx_sequence_number:
                self._route_deadlines.watch(route)
            message = Message(entry.packet)
            if message.tracing_requested:
                send_report(self.engine, message, next_hop=route.link.remote_address)
        self.engine.remove_message_from_dispatch_collection(position)

    def _flush_links(self) -> None:
        dirty, self._dirty = self._dirty, dict.fromkeys(self._unfilled)
        for link in dirty:
            link.flush()
            if not link.is_closed:
                self._link_deadlines.watch(link)
        if self._dirty:
            self.network.wake()
