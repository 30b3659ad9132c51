"""Receiving a UserMessage Packet (MS-MQQB 3.1.5.8), after the session has checked and counted it.

This module drops duplicates, puts transactional messages in order, and passes each message to the
engine or forwards it to another queue manager. The engine decides whether a message is accepted
(`engine/admission.py`). This module decides only the refusals that concern the peer: a message from
another computer than its sender, a sequence whose time is far ahead, a message that must not be
forwarded (`forwarding`) or has passed too many routing servers. `refusals` counts and logs, by
queue, the refusals that the sender may learn of. `incidents` counts and logs, by kind and peer,
violations of the rules between queue managers.

The message and the state that it changes (its identifier, its sequence) go into the same batch of
the store, because both are written in one critical section of the store's lock.

If the disk or the memory for express messages is full, the message waits, and so do the messages
after it on its session (`flow_control`). If it cannot be stored for another reason, the session is
closed, no state changes, and the sender sends the message again.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import AuthenticationLevel, MessageClass
from lanner.model.errors import InsufficientResources, RemoteProtocolError, StatusError
from lanner.security.examination import Examination, is_examined_at_once
from lanner.security.peer_address import peer_of
from lanner.security.profile import Profile
from lanner.transfer import message_history
from lanner.transfer.events import FinalAckReceived, OrderAckReceived, UserMessagesReceived
from lanner.transfer.flow_control import FlowControl
from lanner.transfer.forwarding import Forwarding
from lanner.transfer.incidents import Incident, Incidents
from lanner.transfer.incoming_senders import IncomingSenders
from lanner.transfer.incoming_sequence import IncomingSequences
from lanner.transfer.message_history import MessageIDHistory
from lanner.transfer.peers import known_addresses
from lanner.transfer.refusals import UNVERIFIED_SOURCE, Refusals, class_name, is_refusal
from lanner.transfer.tracing import send_report
from lanner.transfer.transactional_acknowledgments import (
    AcknowledgingLink,
    TransactionalAcknowledgments,
    order_queue_of,
)
from lanner.wire import fields
from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.builder import MAX_ROUTE_COUNT, set_authentication, set_route_count
from lanner.wire.format_name import DirectFormatName, FormatName, PrivateFormatName
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message
from lanner.wire.plain_sender import plain_sender
from lanner.wire.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue, Queue
    from lanner.transfer.deadlines import Deadlines
    from lanner.transfer.identities import Standing
    from lanner.transfer.incoming_sequence import IncomingSequence
    from lanner.transfer.settings import TransferSettings

    # `Protection.examine`: calls back at once or later, in this module's thread.
    Examine = Callable[[Message, Callable[[Examination], None], str, Callable[[], bool]], None]

_DELIVERED = MessageClass.ACK_REACH_QUEUE
_ACKNOWLEDGMENTS = (OrderAckReceived, FinalAckReceived)

# Not in the specification: number of destinations and sequences that are found without decoding
# their names. Peers may spell a name in many ways.
_MAX_CACHED = 4096


class IncomingLink(AcknowledgingLink, Protocol):
    """The part of `transfer.link.Link` that `Incoming` uses: a session and its peer."""

    standing: Standing
    # A message of this session was stored here or at the peer.
    has_exchanged: bool

    @property
    def remote_address(self) -> str: ...
    def processed(self, number: int) -> None: ...
    def close(self, reason: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Run:
    """Messages of equal shape, in the order of their session. Processed messages are removed.

    A run waits for its turn while an earlier message, or its own, is examined in a thread.
    """

    last: int  # number of the last message
    packets: list[bytes] = field(repr=False)  # empty: only to be counted
    sender: bytes | None  # from `plain_sender`; None: there is one message
    examination: Examination | None = None
    is_ready: bool = True
    # One of the messages is not acceptable as it is, so they are judged one by one.
    is_apart: bool = False

    @property
    def done(self) -> int:
        """The number of the last message that is processed."""
        return self.last - len(self.packets)


class Incoming:
    """The messages that arrive from other queue managers, on all sessions.

    The store's lock is held unless a method says otherwise. Create it after the engine has started.
    If `examine` is None, RSA operations run in the caller's thread. `forwarded` is called for each
    message put into an outgoing queue for another queue manager, and `first_stored` for each
    session whose first message is stored. `is_known` returns whether a queue manager can be
    reached; without it all are assumed to be reachable.
    """

    def __init__(
        self,
        engine: Engine,
        settings: TransferSettings,
        *,
        incidents: Incidents | None = None,
        examine: Examine | None = None,
        forwarded: Callable[[OutgoingQueue], None] | None = None,
        is_known: Callable[[uuid.UUID], bool] | None = None,
        first_stored: Callable[[IncomingLink], None] | None = None,
    ) -> None:
        self._engine = engine
        self._examine = examine
        self._first_stored = first_stored
        self._forwarded = forwarded
        self._clock = engine.clock
        self._monotonic = engine.monotonic
        store = engine.store
        self._is_safe = engine.settings.profile is not Profile.DOCUMENT
        self.incidents = incidents or Incidents(engine.clock, engine.monotonic)
        self._forwarding = Forwarding(engine)
        self._max_clock_skew = settings.max_clock_skew
        self.history = MessageIDHistory(store.table(message_history.TABLE), settings, engine.clock, engine.monotonic)
        self.sequences = IncomingSequences(
            store, settings, engine.clock, engine.monotonic, displaced=self._sequence_displaced
        )
        self.acknowledgments = TransactionalAcknowledgments(engine, self.sequences, is_known)
        self._own_guid = engine.queue_manager.identifier.bytes_le
        self._waiting: dict[IncomingLink, deque[_Run]] = {}
        # The first run of each session that waits for the end of flow control.
        self._held: dict[IncomingLink, _Run] = {}
        # Caches, by DQ and the bytes of the name; for sequences the bytes of the source come first.
        self._queues: dict[tuple[int, bytes], Queue] = {}
        self._sequences: dict[tuple[bytes, int, bytes], IncomingSequence] = {}
        self._ready: dict[IncomingLink, None] = {}  # sessions whose next message may have been examined
        self._is_busy = False
        self._senders = IncomingSenders(engine)
        # Plain senders found in this call to be admitted to a queue. Nothing changes while the lock
        # is held.
        self._admitted: set[tuple[Queue, bytes]] = set()
        # For an operator: messages dropped as duplicates or as out of order.
        self.duplicates = 0
        self.out_of_order = 0
        # Messages that were not accepted or could not be forwarded, and those that peers report as
        # refused.
        self.refusals = Refusals(engine.clock, engine.monotonic)
        self.flow_control = FlowControl(engine, self._flow_control_ended)
        # Addresses of peers that the operator has named.
        self.known_peers = known_addresses(settings.peers)
        self._peer_address = ""  # of the session whose messages are being processed
        # The class under which a refusal is counted, if not its own.
        self._refused_as = ""
        engine.message_refused_subscribers.append(self._message_refused)
        engine.outgoing.too_many_subscribers.append(self._too_many_queues)
        self._of_link: dict[IncomingLink, list[IncomingSequence]] = {}
        self._show_sequences()
        store.on_failed(self._on_failed)

    def _show_sequences(self) -> None:
        """Show the sequences known from before at their queues."""
        for sequence in self.sequences:
            queue = self._find_queue(FormatName.parse(sequence.format_name))
            if queue is not None:
                sequence.bind(queue, 0, 0)

    def stop(self) -> None:
        """Discard what waits, because the queue manager stops. It is not acknowledged."""
        self._waiting.clear()
        self._held.clear()
        self._of_link.clear()
        self.acknowledgments.stop()
        self.flow_control.end()
        self._engine.message_refused_subscribers.remove(self._message_refused)
        self._engine.outgoing.too_many_subscribers.remove(self._too_many_queues)
        self.refusals.flush()

    def closed(self, link: IncomingLink) -> None:
        """Discard what waits on a session that has ended. The peer will send it again."""
        self._waiting.pop(link, None)
        self._held.pop(link, None)
        for sequence in self._of_link.pop(link, ()):
            if sequence.link is link:
                sequence.link = None

    def _on_failed(self, _batch: int) -> None:
        """Reload the state of messages, because the store went back to its last sync.

        Called by any thread, with the lock held.
        """
        self.history.reload()
        self._sequences.clear()
        self._of_link.clear()
        self.sequences.reload()
        self._queues.clear()
        self._show_sequences()

    # Timers
    # ----------------------------------------------------------------------------------------------

    def register(self, deadlines: Deadlines) -> None:
        """Have `on_timer` called when one of the timers expires."""
        for deadline in (self.history.deadline, self.sequences.deadline, self.refusals.deadline):
            deadlines.add(deadline, lambda _: self.on_timer())
        deadlines.add(self.flow_control.deadline, self.flow_control.on_timer)

    def on_timer(self) -> None:
        """Handle the MessageIDHistory Cleanup Timer and Order Ack Send Timer events.

        They are 3.1.6.7 and 3.1.6.9.
        """
        self.history.on_timer()
        self.refusals.on_timer()
        for sequence in self.sequences.due_order_acks():
            self.acknowledgments.send_order_ack(sequence, sequence.link)

    # Order of arrival
    # -----------------------------------------------------------------------------------------

    def receive(self, link: IncomingLink, events: Sequence[UserMessagesReceived]) -> None:
        """Process what arrived on a session, in order (3.1.5.8).

        OrderAcks and FinalAcks are only counted here; the outgoing queues handle them.
        """
        self._is_busy = True
        done = 0
        self._begin(link)
        try:
            for event in events:
                run = self._run(event)
                if link in self._waiting or (run.packets and run.sender is None and self._is_slow(run.packets[0])):
                    self._wait(link, run)
                    continue
                self._take(link, run)
                done = run.done
        except (StatusError, RemoteProtocolError) as error:
            self._give_up(link, error)
            done = 0
        finally:
            self._is_busy = False
            self._go_on(link, done)
            self._engine.outgoing.cause = ""

    @staticmethod
    def _run(event: UserMessagesReceived) -> _Run:
        if isinstance(event, _ACKNOWLEDGMENTS):
            return _Run(event.last_number, [], None)
        packets = event.packets
        user_flags = fields.user_flags(packets[0])[0]
        sender = plain_sender(packets[0], user_flags)
        if sender is None and user_flags & at.SH:
            # AS shows what this queue manager has verified, but a peer may have set it too.
            packets = [set_authentication(packet, AuthenticationLevel.NONE) for packet in packets]
        return _Run(event.last_number, packets, sender)

    def _is_slow(self, packet: bytes) -> bool:
        """Return whether a message that is not plain needs a slow examination.

        It then has a body to decrypt or a signature to verify here.
        """
        return (
            self._examine is not None
            and bool(fields.user_flags_2(packet) & fields.SH_IN_USER_FLAGS_2)
            and fields.queue_manager_address(packet) in (fields.NO_QUEUE_MANAGER, self._own_guid)
            and not is_examined_at_once(Message(packet))
        )

    def _wait(self, link: IncomingLink, run: _Run) -> None:
        self._waiting.setdefault(link, deque()).append(run)
        if not run.packets or run.sender is not None or self._examine is None or not self._is_slow(run.packets[0]):
            return
        run.is_ready = False

        def done(examination: Examination) -> None:
            run.examination = examination
            run.is_ready = True
            self._ready[link] = None
            if not self._is_busy:
                with self._engine.store.lock:
                    self._go_on()

        self._examine(Message(run.packets[0]), done, peer_of(link.remote_address), lambda: link in self._waiting)

    def _go_on(self, link: IncomingLink | None = None, done: int = 0) -> None:
        """Process examined messages, write changed state, and report each session's progress."""
        processed = {link: done} if link is not None and done else {}
        try:
            while self._ready:
                ready, _ = self._ready.popitem()
                done = self._advance(ready)
                if done:
                    processed[ready] = done
        finally:
            self._engine.outgoing.cause = ""
            self._write()
        for each, number in processed.items():
            each.processed(number)

    def _advance(self, link: IncomingLink) -> int:
        """Process a session's waiting messages up to the first that is still being examined.

        Return the number of the last message processed.
        """
        waiting = self._waiting.get(link)
        done = 0
        self._begin(link)
        try:
            while waiting and waiting[0].is_ready:
                run = waiting.popleft()
                self._take(link, run)
                done = run.done
        except (StatusError, RemoteProtocolError) as error:
            self._give_up(link, error)
            return 0
        if not waiting:
            self._waiting.pop(link, None)
        return done

    def _take(self, link: IncomingLink, run: _Run) -> None:
        """Process the messages of a run.

        Messages for which there is no room stay in it and wait for the end of flow control.
        """
        try:
            while run.packets and not self.flow_control.is_on:
                self._process(link, run)
        except InsufficientResources as error:
            if not self.flow_control.begin(error):
                raise
        if run.packets:
            self._hold(link, run)

    def _hold(self, link: IncomingLink, run: _Run) -> None:
        """Have messages wait for the end of flow control, before all others of their session."""
        run.is_ready = False
        self._waiting.setdefault(link, deque()).appendleft(run)
        self._held[link] = run

    def _flow_control_ended(self) -> None:
        held, self._held = self._held, {}
        for link, entry in held.items():
            if link in self._waiting:
                entry.is_ready = True
                self._ready[link] = None
        self._go_on()

    def _give_up(self, link: IncomingLink, error: Exception) -> None:
        """End the session without acknowledging anything.

        The message cannot be stored (3.1.5.8.8) or breaks a rule.
        """
        self._waiting.pop(link, None)
        self._held.pop(link, None)
        link.close(str(error))

    def _begin(self, link: IncomingLink) -> None:
        """Set the session whose messages are processed from now on."""
        self._peer_address = link.remote_address
        self.history.begin(link.remote_address)
        self._engine.outgoing.cause = peer = peer_of(link.remote_address)
        self._engine.shares.begin(peer, self.known_peers)

    def _write(self) -> None:
        self._engine.shares.end()
        self.history.write()
        self.sequences.write()
        self._senders.forget()
        self._admitted.clear()

    # Messages
    # ----------------------------------------------------------------------------------------------

    def _process(self, link: IncomingLink, run: _Run) -> None:
        """Process one or more messages at the head of a run, and remove them from it.

        The first message of a plain sender to a queue is judged in full. The next ones in the same
        call get the same verdict: they are stored together, as long as each of them is acceptable.
        """
        packet = run.packets[0]
        flags, source, address, ordinal, user_flags = fields.arrival(packet)
        is_for_here = address in (fields.NO_QUEUE_MANAGER, self._own_guid)
        problem = self._impostor(link, source, user_flags, is_for_here=is_for_here)
        if problem:
            self._drop_impostor(packet, source, problem)
            del run.packets[0]
            return
        key = fields.destination(packet)
        if is_for_here and not flags & at.TR and self._is_admitted(run, key):
            stored = self._store_run(link, run.packets, source, key, user_flags)
            run.is_apart = not stored
            if stored:
                del run.packets[:stored]
                return
        identifier = source + ordinal
        is_transactional = user_flags & at.TH
        if not is_transactional and identifier in self.history:
            self.duplicates += 1
            self.incidents.add(Incident.DUPLICATE, link.remote_address)
            is_stored = True
        elif is_for_here:
            message = Message(packet)
            if is_transactional:
                is_stored = self._deliver_in_order(link, message, user_flags, run.sender, run.examination)
            else:
                queue = self._queue_of(message, key)
                is_stored = self._deliver(message, queue, run.sender, run.examination) is _DELIVERED
                if is_stored and user_flags & fields.RQ:
                    self._read_acknowledgment(link, message)
            if is_stored and flags & at.TR:
                send_report(self._engine, message, next_hop=None)
        else:
            is_stored = self._forward(link, packet, flags)
        if is_stored or not self._is_safe:
            # Last, because a message for which there is no room will be sent again, and is no
            # duplicate then.
            self.history.add([identifier], is_lasting=bool(user_flags & fields.DM) and not is_transactional)
        del run.packets[0]
        if is_stored:
            self._exchanged(link)

    def _exchanged(self, link: IncomingLink) -> None:
        if not link.has_exchanged and self._first_stored is not None:
            self._first_stored(link)

    def _impostor(self, link: IncomingLink, source: bytes, user_flags: int, *, is_for_here: bool) -> str:
        """Return why messages of a source cannot come from this session; empty if they can."""
        if source == self._own_guid:
            # The sender of a message gets its acknowledgments and dead letters, and this queue
            # manager did not send it.
            return "which is this queue manager"
        if (
            source != link.remote_qm_guid.bytes_le
            and not link.standing.is_router
            and (self._is_safe or (is_for_here and user_flags & fields.DQ == fields.DIRECT_DQ))
        ):
            # Only a routing server forwards messages of others. A peer could otherwise use the
            # identifiers that another queue manager will use next. The messages of that queue
            # manager would then be dropped as duplicates or as out of order.
            return "which is not at the other end of the session"
        return ""

    def _is_admitted(self, run: _Run, key: tuple[int, bytes]) -> bool:
        """Return whether a message like those of a run was judged and stored in this call."""
        if run.sender is None or run.is_apart:
            return False
        queue = self._queues.get(key)
        return queue is not None and (queue, run.sender) in self._admitted

    def _store_run(
        self, link: IncomingLink, packets: list[bytes], source: bytes, key: tuple[int, bytes], user_flags: int
    ) -> int:
        """Store messages of equal shape whose sender is admitted to their queue.

        Return how many were stored; 0 if the first must be judged by itself.
        """
        queue = self._queues[key]
        if user_flags & at.TH:
            return self._store_in_order(link, queue, (source, *key), packets, user_flags)
        identifiers = [source + ordinal for ordinal in map(fields.message_id, packets)]
        count = self.history.unknown(identifiers)
        if queue.transactional or not count or not self._engine.enqueue_run(queue, packets[:count]):
            return 0
        self.history.add(identifiers[:count], is_lasting=bool(user_flags & fields.DM))
        self._exchanged(link)
        return count

    def _store_in_order(
        self, link: IncomingLink, queue: Queue, key: tuple[bytes, int, bytes], packets: list[bytes], user_flags: int
    ) -> int:
        """Store transactional messages that continue their sequence without a gap.

        Return how many were stored, as `_store_run` does.
        """
        sequence = self._sequences.get(key)
        if (
            not queue.transactional
            or sequence is None
            or sequence.is_forgotten
            or sequence.link is not link
            or sequence.info is None
            or sequence.info.queue is not queue
            or not sequence.has_delivered
        ):
            return 0
        count, expected = 0, (sequence.tx_sequence_id, sequence.tx_sequence_number + 1, sequence.tx_sequence_number)
        for found in fields.transactions(packets, user_flags):
            if found != expected:
                break
            count += 1
            expected = expected[0], expected[1] + 1, expected[1]
        if not count or not self._engine.enqueue_run(queue, packets[:count]):
            return 0
        sequence.accept(sequence.tx_sequence_id, expected[2], int(self._clock()), count)
        self._note(sequence)
        self.history.add([key[0] + ordinal for ordinal in map(fields.message_id, packets[:count])], is_lasting=False)
        self._exchanged(link)
        return count

    def _note(self, sequence: IncomingSequence) -> None:
        """Have a sequence written, and acknowledged later, because messages of it arrived."""
        self.sequences.changed(sequence)
        self.sequences.schedule_order_ack(sequence, self._monotonic())

    def _drop_impostor(self, packet: bytes, source: bytes, problem: str) -> None:
        detail = f"SourceQueueManager is {uuid.UUID(bytes_le=source)}, {problem}"
        message = Message(packet)
        self.incidents.add(Incident.UNVERIFIED_SOURCE, self._peer_address, detail)
        if source == self._own_guid:
            # An acknowledgment and a dead letter would be those of a message sent by this queue
            # manager.
            self._count_refusal(self._destination(message), message, UNVERIFIED_SOURCE, detail)
            return
        # No FinalAck: it would make the real sender, whose number it contains, drop a message of
        # its own.
        self._refused_as = UNVERIFIED_SOURCE
        try:
            self._engine.refuse_message(message, MessageClass.NACK_ACCESS_DENIED, detail)
        finally:
            self._refused_as = ""

    def _deliver(
        self, message: Message, queue: Queue | None, sender: bytes | None, examination: Examination | None
    ) -> MessageClass:
        """Pass a message to the engine: security, expiry, queue (3.1.5.8.2, 3.1.5.8.3, 3.1.5.8.8).

        A plain message has nothing to decrypt or verify, so its examination is known.
        """
        if sender is None:
            return self._engine.insert_message(queue, message, self._senders.sender_of(message), examination)
        identity = self._senders.plain_sender_of(sender)
        verdict = self._engine.insert_message(queue, message, identity, Examination(message))
        if verdict is _DELIVERED and queue is not None:
            self._admitted.add((queue, sender))
        return verdict

    # Refusals
    # ----------------------------------------------------------------------------------------------

    def _message_refused(self, queue: Queue | None, message: Message, reason: MessageClass, detail: str) -> None:
        """Count a message that the engine has refused."""
        if self._refused_as == UNVERIFIED_SOURCE:
            queue = self._destination(message)
        self._count_refusal(queue, message, self._refused_as or class_name(reason), detail)

    def _too_many_queues(self, cause: str, text: str) -> None:
        self.incidents.add(Incident.TOO_MANY_QUEUES, cause, text)

    def _count_refusal(self, queue: Queue | None, message: Message, message_class: str, detail: str) -> None:
        self.refusals.refused_here(
            self._shown_name(message) if queue is None else queue.pathname,
            message_class,
            peer=self._peer_address,
            message=message.identifier,
            detail=detail,
            is_known=queue is not None,
        )

    def _shown_name(self, message: Message) -> str:
        """Return one name for a queue that does not exist here.

        It is the same for every name of this computer that a sender may use.
        """
        name = message.destination_queue_format_name
        qm = self._engine.queue_manager
        is_for_here = fields.queue_manager_address(message.packet) in (fields.NO_QUEUE_MANAGER, self._own_guid)
        if is_for_here and isinstance(name, DirectFormatName) and name.queue_part is not None:
            return f"{qm.computer_name}\\{str(name.queue_part).lower()}"
        return "no queue" if name is None else str(name)

    def _read_acknowledgment(self, link: IncomingLink, message: Message) -> None:
        """Count an own message that a peer reports as refused (3.1.5.11).

        The report is an administration acknowledgment.
        """
        if not is_refusal(message.message_class) or message.correlated_queue_manager != self._own_guid:
            return
        # 3.1.7.15: ResponseQueue of an acknowledgment is the destination of the original message.
        name = message.response_queue_format_name
        if name is not None:
            self.refusals.refused_by_peer(
                str(name),
                message.message_class,
                peer=link.remote_address,
                message=MessageIdentifier.unpack(Reader(message.correlation_identifier)),
                is_known=self._engine.find_outgoing_queue(name) is not None,
            )

    # Destinations
    # ---------------------------------------------------------------------------------------------

    def _destination(self, message: Message) -> Queue | None:
        """Return the local queue that DestinationQueue names (3.1.5.8.5), or None."""
        return self._queue_of(message, fields.destination(message.packet))

    def _queue_of(self, message: Message, key: tuple[int, bytes]) -> Queue | None:
        """Return the same, from the kind and the bytes of DestinationQueue."""
        queue = self._queues.get(key)
        if queue is None or queue.is_deleted:
            found = message.destination_queue_format_name
            queue = None if found is None else self._find_queue(found)
            if queue is not None:
                if len(self._queues) >= _MAX_CACHED:
                    self._queues.clear()
                self._queues[key] = queue
        return queue

    def _find_queue(self, name: FormatName) -> Queue | None:
        """Return the queue of a name if peers may send to it.

        Peers cannot send to journals, subqueues and system queues, except the notification queue. A
        packet that arrives here is meant for this computer, whatever name the sender uses for it:
        behind a proxy or an address translation these are not names that we know.
        """
        engine = self._engine
        if isinstance(name, DirectFormatName):
            path = name.path_name
            queue = None if path is None else engine.find_by_path(path.with_computer("."))
        else:
            if isinstance(name, PrivateFormatName) and name.queue_manager_identifier == GUID_NULL:
                name = PrivateFormatName(engine.queue_manager.identifier, name.number)
            queue = engine.find_queue(name)
        if queue is not None and queue is engine.queue_manager.change_notification_queue:
            # MS-MQCN 3.2.3: in workgroup mode the queue is not opened and accepts no message.
            return queue if engine.notifications.is_open else None
        return None if queue is None or queue.is_system or queue.parent else queue

    # Sequences
    # ----------------------------------------------------------------------------------------------

    def _deliver_in_order(
        self,
        link: IncomingLink,
        message: Message,
        user_flags: int,
        sender: bytes | None,
        examination: Examination | None,
    ) -> bool:
        """Process a transactional message (3.1.5.8.6); return whether it is in its queue."""
        [(tx_sequence_id, number, previous)] = fields.transactions([message.packet], user_flags)
        if not number:
            raise RemoteProtocolError("TransactionHeader.TxSequenceNumber: 0, they begin at 1")
        now = int(self._clock())
        if (tx_sequence_id >> 32) - now > self._max_clock_skew:
            # It would make everything old that the sender numbers until then. A sender whose clock
            # is wrong keeps its messages.
            time = dt.datetime.fromtimestamp(tx_sequence_id >> 32, dt.UTC)
            self.incidents.add(
                Incident.SEQUENCE_AHEAD, link.remote_address, f"TxSequenceID.Timestamp is {time:%Y-%m-%d %H:%M:%S} UTC"
            )
            return False
        key = fields.destination(message.packet)
        queue = self._queue_of(message, key)
        sequence = self._sequence(link, message, *key)
        if queue is not None and (sequence.info is None or sequence.info.queue is not queue):
            sequence.bind(queue, tx_sequence_id, previous)
        verdict = None
        # For a queue that does not exist the history is unknown, so its messages are refused from
        # the first one on.
        if sequence.accepts(tx_sequence_id, number, previous) or (queue is None and not sequence.tx_sequence_id):
            verdict = self._deliver(message, queue, sender, examination)
            if verdict is not _DELIVERED and not self._refuse(sequence, message.packet, verdict):
                raise InsufficientResources("there is no room for the negative acknowledgment of a refused message")
            sequence.accept(tx_sequence_id, number, now)
            if verdict is _DELIVERED and not sequence.has_delivered:
                self.sequences.delivered(sequence)
        else:
            self.out_of_order += 1
            sequence.reject(now)
        self._note(sequence)
        return verdict is _DELIVERED

    def _sequence(self, link: IncomingLink, message: Message, kind: int, name: bytes) -> IncomingSequence:
        source = fields.source_queue_manager(message.packet)
        sequence = self._sequences.get((source, kind, name))
        if sequence is None or sequence.is_forgotten:
            destination = message.destination_queue_format_name
            if destination is None:
                raise RemoteProtocolError("UserHeader.Flags.DQ: 0 in a transactional message")
            sequence = self.sequences.find(source, destination)
            if sequence is None:
                sequence = self.sequences.begin(
                    source,
                    destination,
                    link.remote_address,
                    is_direct=kind == names.DIRECT_QUEUE,
                    is_known=link.standing.is_known,
                )
            if len(self._sequences) >= _MAX_CACHED:
                self._sequences.clear()
            self._sequences[source, kind, name] = sequence
        if sequence.link is not link:
            sequence.link = link
            self.sequences.came_from(sequence, link.remote_address, is_known=link.standing.is_known)
            self._of_link.setdefault(link, []).append(sequence)
        return sequence

    def _sequence_displaced(self, sequence: IncomingSequence) -> None:
        detail = f"the one of {sequence.source} for {sequence.format_name}"
        self.incidents.add(Incident.TOO_MANY_SEQUENCES, sequence.remote_address, detail)

    def _refuse(self, sequence: IncomingSequence, packet: bytes, verdict: MessageClass) -> bool:
        destination = order_queue_of(sequence.source, sequence.remote_address, is_direct=sequence.is_direct)
        return self.acknowledgments.send_final_ack(packet, verdict, destination, sequence.remote_address)

    # Forwarding
    # --------------------------------------------------------------------------------------

    def _forward(self, link: IncomingLink, packet: bytes, flags: int) -> bool:
        """Forward a message (3.1.5.8.2, 3.1.5.8.5); return whether it is in an outgoing queue.

        Only the count of routers in the packet changes.
        """
        message = Message(packet)
        name = message.destination_queue_format_name
        queue = None
        refusal = self._forwarding.refusal(link.standing, packet, name) if self._is_safe else ""
        if message.route_count >= MAX_ROUTE_COUNT:
            verdict = MessageClass.NACK_HOP_COUNT_EXCEEDED
            detail = f"it has passed {message.route_count} routing servers, at most {MAX_ROUTE_COUNT} are allowed"
            self._engine.refuse_message(message, verdict, detail)
        elif name is None or refusal:
            verdict = MessageClass.NACK_BAD_DEST_QUEUE
            if refusal:
                self.incidents.add(Incident.NOT_FORWARDED, link.remote_address, f"{name}: {refusal}")
            self._engine.refuse_message(message, verdict, refusal or "it names no destination queue")
        else:
            message = Message(set_route_count(packet, message.route_count + 1))
            verdict, queue = self._engine.forward_message(name, message)
        if verdict is not _DELIVERED:
            if message.is_transactional:
                is_direct = message.destination_queue_type == names.DIRECT_QUEUE
                destination = order_queue_of(
                    message.source_machine_identifier, link.remote_address, is_direct=is_direct
                )
                if not self.acknowledgments.send_final_ack(packet, verdict, destination, link.remote_address):
                    raise InsufficientResources("there is no room for the negative acknowledgment of a refused message")
            return False
        if queue is not None and message.is_transactional and self._forwarded is not None:
            self._forwarded(queue)
        if flags & at.TR:
            send_report(self._engine, message, next_hop=None)
        return True
