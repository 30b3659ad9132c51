"""Acknowledgments that peers send for messages sent to them (MS-MQQB 3.1.5.5, 3.1.5.6, 3.1.5.7).

Each acknowledgment goes to the OutgoingMessageTable of its queue. Delivered messages are removed
from their queue after the turn, a slice at a time, because an OrderAck may cover thousands.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING, cast

from lanner.security.log_lines import log_of_peer
from lanner.security.profile import Profile
from lanner.transfer.addresses import get_destination_info
from lanner.transfer.awaiting_final_ack import AwaitingFinalAck
from lanner.transfer.deadlines import NEVER, Deadline
from lanner.transfer.incidents import Incident
from lanner.transfer.packets import FinalAckBody, OrderAckBody
from lanner.transfer.refusals import OTHER, is_refusal
from lanner.wire.format_name import DirectFormatName, FormatName
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.transfer.events import FinalAckReceived, NothingAcknowledged, OrderAckReceived, SessionAckReceived
    from lanner.transfer.incidents import Incidents
    from lanner.transfer.link import Link
    from lanner.transfer.outgoing_message_table import OutgoingMessagePosition
    from lanner.transfer.refusals import Refusals
    from lanner.transfer.route import Route
    from lanner.transfer.routes import Routes
    from lanner.transfer.turns import Turns

_LOG = logging.getLogger(__name__)

# Not in the specification: maximum seconds until removals that no caller waits for are written.
_LAZY_SYNC = 0.2


class Deliveries:
    """The handler of acknowledgments. The caller holds the store's lock."""

    def __init__(self, engine: Engine, routes: Routes, refusals: Refusals, turns: Turns, incidents: Incidents) -> None:
        self._engine = engine
        self._routes = routes
        self._refusals = refusals
        self._turns = turns
        self._incidents = incidents
        self._awaiting_final_ack = AwaitingFinalAck(engine)
        # Due when removals must be written that no commit has carried meanwhile.
        self.lazy_sync = Deadline()

    def session_acked(self, link: Link, event: SessionAckReceived) -> None:
        """Pass the contents of a SessionAck to each outgoing queue concerned (3.1.5.5)."""
        if link.problem and (event.acked or event.persisted):
            self._something_acknowledged(link)
        acked, persisted = _by_queue(event.acked), _by_queue(event.persisted)
        for number in acked | persisted:
            route = self._routes.by_number.get(number)
            if route is not None:
                route.table.session_acked(acked.get(number, []), persisted.get(number, []))
                self.removed(route)

    def nothing_acknowledged(self, link: Link, event: NothingAcknowledged) -> None:
        """Show an operator that a peer acknowledges nothing.

        Such a session stays Connected as long as the peer sends anything.
        """
        since = dt.datetime.fromtimestamp(self._engine.clock() - event.seconds, dt.UTC)
        if not link.problem:
            link.problem = f"nothing acknowledged since {since:%Y-%m-%d %H:%M:%S} UTC, though the session is open"
            text = "session with %s: %s"
            log_of_peer(_LOG, logging.WARNING, "problem", link.remote_address, text, link.peer, link.problem)
        for route in link.routes:
            if not route.table.is_empty:
                route.problem = link.problem

    @staticmethod
    def _something_acknowledged(link: Link) -> None:
        for route in link.routes:
            if route.problem == link.problem:
                route.problem = ""
        link.problem = ""

    def order_ack(self, link: Link, event: OrderAckReceived) -> None:
        """Handle an OrderAck (3.1.5.6), which names its sequence by identifier."""
        body = OrderAckBody.from_packet(event.packets[0])
        queue = self._engine.outgoing_queue_of(body.tx_sequence_id)
        if queue is None:
            self._incidents.add(Incident.UNMATCHED_ACKNOWLEDGMENT, link.remote_address, _shown(link, body))
            self._show_newer_sequence(link, body)
            return
        route = self._routes.of(queue)
        # A distrusted OrderAck costs a resend, and then an OrderAck arrives on the queue's own
        # session.
        if self._may_acknowledge(route, link):
            before = len(route.table.tx_outgoing_sequence.unacked)
            route.table.order_ack(body)
            if len(route.table.tx_outgoing_sequence.unacked) < before:
                route.sequence_problem = ""
            self._routes.watch(route)
            self.removed(route)
        else:
            self._incidents.add(Incident.FOREIGN_ACKNOWLEDGMENT, link.remote_address, _shown(link, body))

    @staticmethod
    def _show_newer_sequence(link: Link, body: OrderAckBody) -> None:
        """Show an operator that a receiver has a newer sequence than the one being sent.

        The receiver has it under this computer's identifier. It takes the messages for old ones,
        and the only sign is the sequence that its OrderAck names.
        """
        for route in link.routes:
            unacked = route.table.tx_outgoing_sequence.unacked
            if unacked and unacked[0].tx_sequence_id < body.tx_sequence_id:
                time = dt.datetime.fromtimestamp(body.tx_sequence_id.time_stamp, dt.UTC)
                route.sequence_problem = (
                    f"the receiver takes transactional messages for old ones: it has had some under this computer's "
                    f"identifier in a sequence of {time:%Y-%m-%d %H:%M:%S} UTC, later than the one that is sent; "
                    f"compare the clocks, and see whether another computer uses the same identifier"
                )

    def _may_acknowledge(self, route: Route, link: Link) -> bool:
        """Return whether the peer of a session can know the fate of a queue's messages.

        An acknowledgment removes messages, and its identifiers can be guessed. Therefore it is
        accepted only from a queue manager to which they were sent, from their destination, or from
        a routing server.
        """
        guid = link.remote_qm_guid
        if link is route.link or guid in self._routes.sent_to.of(route.queue):
            return True
        name = FormatName.parse(route.queue.destination_format_name)
        if isinstance(name, DirectFormatName):
            return False
        if link.standing.is_router:
            return True
        destination = get_destination_info(self._engine, name)
        return destination is not None and guid == destination.queue_manager_guid

    def final_ack(self, link: Link, event: FinalAckReceived) -> None:
        """Handle a FinalAck (3.1.5.7)."""
        body = FinalAckBody.from_packet(event.packets[0])
        message = Message(event.packets[0])
        queue = self._engine.outgoing_queue_of(body.tx_sequence_id)
        route = None if queue is None else self._routes.of(queue)
        is_believed = route is not None and self._may_acknowledge(route, link)
        if not is_believed and self._engine.settings.profile is not Profile.DOCUMENT:
            self._incidents.add(Incident.FOREIGN_ACKNOWLEDGMENT, link.remote_address, _shown(link, body))
            return
        is_found = self._awaiting_final_ack.final_ack(
            body, message.message_class, None if route is None else route.table
        )
        if is_found:
            self.removed()
        else:
            self._incidents.add(Incident.UNMATCHED_ACKNOWLEDGMENT, link.remote_address, _shown(link, body))
        if is_refusal(message.message_class) and (is_found or is_believed):
            self._refused_by_peer(link, body, message, queue)

    def _refused_by_peer(self, link: Link, body: FinalAckBody, message: Message, queue: OutgoingQueue | None) -> None:
        """Count a transactional message that its destination has refused.

        Without source journaling nothing may be left of the message here, because its OrderAck came
        first.
        """
        if body.source_guid == self._engine.queue_manager.identifier:
            self._refusals.refused_by_peer(
                OTHER if queue is None else queue.destination_format_name,
                message.message_class,
                peer=link.remote_address,
                message=MessageIdentifier(body.source_guid, body.message_id),
                is_known=queue is not None,
            )

    # Removing delivered messages
    # -------------------------------------------------------------------------------

    def removed(self, route: Route | None = None) -> None:
        """Note that messages leave outgoing queues.

        No caller waits until this is durable, but it should not take long.
        """
        if self.lazy_sync.due == NEVER:
            self.lazy_sync.set(self._engine.monotonic() + _LAZY_SYNC)
        if route is not None:
            self._turns.ending[route] = None

    def sync_due(self, _now: float) -> None:
        """Have a batch written, when `lazy_sync` is due."""
        self.lazy_sync.clear()
        self._turns.want_sync(self._engine.store.pending_batch())

    def synced(self) -> None:
        """Note that a batch of the store was written."""
        if self.lazy_sync.due != NEVER and not self._engine.store.pending_batch():
            # Otherwise removals may be in a later batch than the one that was written.
            self.lazy_sync.clear()


def _by_queue(entries: list[object]) -> dict[int, list[OutgoingMessagePosition]]:
    """Return the entries of each outgoing queue; OrderAcks have none."""
    found: dict[int, list[OutgoingMessagePosition]] = {}
    for entry in cast("list[OutgoingMessagePosition | None]", entries):
        if entry is not None:
            of_queue = found.get(entry.queue.number)
            if of_queue is None:
                found[entry.queue.number] = [entry]
            else:
                of_queue.append(entry)
    return found


def _shown(link: Link, body: FinalAckBody | OrderAckBody) -> str:
    return (
        f"queue manager {link.remote_qm_guid}, sequence {body.tx_sequence_id.value:#018x}, number "
        f"{body.tx_sequence_number}"
    )
