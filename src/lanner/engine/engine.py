"""The facade: the events of MS-MQDMPR over the parts that implement them.

Start, stop, timers and failures of the store concern all parts and are implemented here: MS-MQDMPR
3.1.4.1, 3.1.4.2, 3.1.4.12, 3.1.4.13, 3.1.6, 3.1.7.2.5, 3.1.7.2.6. An event that one part implements
is a method of that part, which the facade offers under the same name: an attribute that is bound
once, since a method that only delegates would cost a call per message.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lanner.engine.acknowledgments import Acknowledger
from lanner.engine.admission import Admission
from lanner.engine.application_deadletters import ApplicationDeadletters
from lanner.engine.arrivals import Arrivals
from lanner.engine.clocks import Clocks
from lanner.engine.copies import Copies
from lanner.engine.core import Core
from lanner.engine.cursors import Cursors
from lanner.engine.delivery import Delivery
from lanner.engine.directory_events import DirectoryEvents
from lanner.engine.dispatch import Dispatch
from lanner.engine.dtc import DistributedTransactions
from lanner.engine.examining import Examiner
from lanner.engine.expiry import Expiry
from lanner.engine.initialization import Initialization
from lanner.engine.moving import Moving
from lanner.engine.names import Names
from lanner.engine.notification_processing import NotificationProcessing
from lanner.engine.notification_queue import NotificationQueue
from lanner.engine.notification_sending import NotificationSending
from lanner.engine.opening import OpenQueues
from lanner.engine.outgoing_queues import OutgoingQueues
from lanner.engine.outgoing_sequences import OutgoingSequences
from lanner.engine.positions import Positions
from lanner.engine.queue_kinds import format_name_of
from lanner.engine.queues import Queues
from lanner.engine.reading import Reading
from lanner.engine.registry import QueueRegistry
from lanner.engine.sending import Sending
from lanner.engine.staging import Staging
from lanner.engine.transactions import Transactions
from lanner.engine.waiting import WaitingReads
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import OutgoingState, QueueManagerState

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable

    from lanner.directory import Directory
    from lanner.engine.dtc import LocalTransactionManager
    from lanner.engine.settings import EngineSettings
    from lanner.store import Store

_LOG = logging.getLogger(__name__)


class Engine:
    """The queue manager. The caller of every event holds the store's lock."""

    def __init__(
        self,
        store: Store,
        settings: EngineSettings,
        *,
        directory: Directory,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        coordinator: LocalTransactionManager | None = None,
    ) -> None:
        """Create the parts of the engine.

        `clock` returns seconds since 1970 UTC. `monotonic` returns seconds that never go back.
        """
        self.store = store
        self.settings = settings
        self.directory = directory
        self.clocks = clocks = Clocks(clock, monotonic)
        core = Core(store, settings, clocks)
        self.queue_manager = core.queue_manager
        self.numbers = numbers = core.numbers
        self.shares = core.shares
        self.express_memory = core.express_memory
        self.held_memory = core.held_memory
        access, attributes = core.access, core.attributes
        # None: events are neither logged nor reported to a listener.
        self.events = core.recorder
        self.audit = core.audit
        self._identifier_text = ""
        # Not in the specification: called when ConnectionActive has changed.
        self.connection_active_subscribers: list[Callable[[], None]] = []
        self.stopped_subscribers: list[Callable[[], None]] = []

        # The parts, each with the parts that it uses.
        self.waiting = waiting = WaitingReads(core)
        self.expiry = expiry = Expiry(core)
        self.positions = positions = Positions(core, waiting, expiry)
        self.cursors = cursors = Cursors(core, positions)
        self.reading = reading = Reading(core, cursors)
        self.directory_events = events = DirectoryEvents(core, directory)
        registry = QueueRegistry(core)
        self.names = names = Names(core, registry, events)
        self.sequences = sequences = OutgoingSequences(core, positions)
        self.queues = queues = Queues(core, names, positions, sequences)
        self.outgoing = outgoing = OutgoingQueues(core, names, queues, sequences)
        self.opening = opening = OpenQueues(core, names, queues, outgoing, reading)
        self.examiner = examiner = Examiner(core, events)
        self.arrivals = arrivals = Arrivals(core, positions)
        deadletters = ApplicationDeadletters(core, registry)
        self.sending = sending = Sending(core, names, examiner, arrivals, deadletters)
        moving = Moving(core, positions)
        self.copies = copies = Copies(core, registry, positions, arrivals, deadletters)
        self.delivery = delivery = Delivery(core, positions, sequences, copies)
        acknowledger = Acknowledger(core, opening, sending, copies, delivery)
        positions.deleted_subscribers.append(acknowledger.message_removed)
        arrivals.arrived_subscribers.append(acknowledger.message_arrived)
        admission = Admission(core, examiner, arrivals, acknowledger)
        self.transactions = transactions = Transactions(core, arrivals, moving, sequences)
        self.dtc = dtc = DistributedTransactions(core, transactions, coordinator)
        self.dispatch = dispatch = Dispatch(core)
        staging = Staging(core, positions, arrivals, sending)
        NotificationSending(core, events, registry, acknowledger)
        processing = NotificationProcessing(core, names, queues)
        self.notifications = NotificationQueue(core, opening, reading, processing)
        self._initialization = Initialization(core, names, positions, outgoing)

        # Events that a higher layer raises (3.1.4).
        self.transaction_prepare = transactions.transaction_prepare
        self.transaction_commit = transactions.transaction_commit
        self.transaction_abort = transactions.transaction_abort
        self.dtc_transaction_prepare = dtc.dtc_transaction_prepare
        self.dtc_transaction_commit = dtc.dtc_transaction_commit
        self.dtc_transaction_abort = dtc.dtc_transaction_abort
        self.dtc_reenlistment_commit = dtc.dtc_reenlistment_commit
        self.dtc_reenlistment_abort = dtc.dtc_reenlistment_abort
        self.pause_queue = outgoing.pause_queue

        # Timer events (3.1.6).
        self.directory_sites_update = events.directory_sites_update
        self.directory_site_gates_update = events.directory_site_gates_update

        # Queues and handles (3.1.7.1.1-3.1.7.1.6, 3.1.7.1.33).
        self.open_cursor = cursors.open_cursor
        self.close_cursor = cursors.close_cursor
        self.create_queue = queues.create_queue
        self.create_elsewhere = queues.create_elsewhere
        self.delete_queue = queues.delete_queue
        self.open_queue = opening.open_queue
        self.close_queue = opening.close_queue
        self.descriptor = opening.descriptor
        self.set_queue_defaults = queues.set_queue_defaults
        self.require_queue = queues.require_queue
        self.set_queue_properties = queues.set_queue_properties
        self.replace_security = queues.replace_security
        self.get_queue_properties = queues.get_queue_properties
        self.check_queue_access = access.check_queue_access
        self.check_securing = access.check_securing
        self.may_create_queues = access.may_create_queues
        self.local_queues = registry.local_queues
        self.outgoing_queues = registry.outgoing_queues
        self.remove_idle_outgoing_queue = outgoing.remove_idle_outgoing_queue
        self.outgoing_state_subscribers = outgoing.state_subscribers

        # Messages (3.1.7.1.7-3.1.7.1.17, 3.1.7.1.27).
        self.purge_queue = moving.purge_queue
        self.purge_open_queue = moving.purge_open_queue
        self.create_transaction = transactions.create_transaction
        self.enqueue_message = arrivals.enqueue_message
        self.enqueue_message_to_an_open_queue = sending.enqueue_message_to_an_open_queue
        self.enqueue_messages_to_an_open_queue = sending.enqueue_messages_to_an_open_queue
        self.enqueue_message_to_each = sending.enqueue_message_to_each
        self.enqueue_packets_to_an_open_queue = sending.enqueue_packets_to_an_open_queue
        self.sender_shown = sending.sender_shown
        self.restore_message = arrivals.restore_message
        self.dequeue_message = reading.dequeue_message
        self.dequeue_messages = reading.dequeue_messages
        self.dequeue_messages_end = reading.dequeue_messages_end
        self.dequeue_numbered_messages = reading.dequeue_numbered_messages
        self.try_dequeue_message = reading.try_dequeue_message
        self.wait_to_dequeue_message = reading.wait_to_dequeue_message
        self.dequeue_message_begin = reading.dequeue_message_begin
        self.dequeue_message_end = reading.dequeue_message_end
        self.give_back_transactional_read = reading.give_back_transactional_read
        self.undo_receive = moving.undo_receive
        self.read_message_by_lookup_identifier = reading.read_message_by_lookup_identifier
        self.peek_next_message = reading.peek_next_message
        self.peek_message = reading.peek_message
        self.move_message = moving.move_message
        self.move_message_by_lookup_identifier = moving.move_message_by_lookup_identifier
        self.cancel_waiting_message_read_request = waiting.cancel_waiting_message_read_request
        self.stop_waiting_read = waiting.stop_waiting_read

        # The directory (3.1.7.1.18-3.1.7.1.25).
        self.create_directory_object = events.create_directory_object
        self.delete_directory_object = events.delete_directory_object
        self.read_directory = events.read_directory
        self.read_directory_begin = events.read_directory_begin
        self.read_directory_next = events.read_directory_next
        self.read_directory_end = events.read_directory_end
        self.read_all_of = events.read_all_of
        self.write_directory = events.write_directory
        self.check_directory_online = events.check_directory_online
        self.site_gates = events.site_gates
        self.routing_links = events.routing_links
        self.routing_servers = events.routing_servers
        self.read_routing_data = events.read_routing_data
        self.provision_directory = events.provision_directory
        self.remove_from_directory = events.remove_from_directory
        self.save_queue_manager = attributes.save_queue_manager
        self.change_notification_subscribers = events.change_notification_subscribers

        # Names (3.1.7.1.26).
        self.get_queue_path = names.get_queue_path
        self.private_format_name = names.private_format_name
        self.format_name_of = format_name_of
        self.is_local_host = registry.is_local_host
        self.find_queue = registry.find_queue
        self.find_by_path = registry.find_by_path
        self.find_outgoing_queue = registry.find_outgoing_queue

        # Dispatch (3.1.7.1.28, 3.1.7.1.29, 3.1.7.1.34).
        self.add_message_to_dispatch_collection = dispatch.add_message_to_dispatch_collection
        self.remove_message_from_dispatch_collection = dispatch.remove_message_from_dispatch_collection
        self.remove_messages_from_dispatch_collection_by_queue = (
            dispatch.remove_messages_from_dispatch_collection_by_queue
        )

        # Events that protocols consume (3.1.7.2).
        self.message_position_deleted = positions.message_position_deleted
        self.position_deleted_subscribers = positions.deleted_subscribers
        self.position_available_subscribers = positions.available_subscribers

        # What MS-MQQB needs: arrivals, sequences, acknowledgments, identifiers, keys.
        self.enqueue_run = arrivals.enqueue_run
        self.insert_message = admission.insert_message
        self.forward_message = admission.forward_message
        self.refuse_message = admission.refuse_message
        self.message_refused_subscribers = admission.refused_subscribers
        self.messages_delivered = delivery.messages_delivered
        self.messages_await_final_ack = delivery.messages_await_final_ack
        self.final_acknowledgment = delivery.final_acknowledgment
        self.final_acknowledgment_in_queue = delivery.final_acknowledgment_in_queue
        self.outgoing_sequence = sequences.outgoing_sequence
        self.outgoing_queue_of = sequences.outgoing_queue_of
        self.begin_outgoing_sequence = sequences.begin_outgoing_sequence
        self.is_to_internal_queue = copies.is_to_internal_queue
        self.is_idle = outgoing.is_idle
        self.send_own_message = acknowledger.send_own_message
        self.sender_of = acknowledger.sender_of
        self.next_message_ordinal = numbers.next_message_ordinal
        self.private_keys = examiner.private_keys
        self.signing_keys_of = examiner.signing_keys_of
        self.encryption_keys_of = examiner.encryption_keys_of
        self.examine_message = examiner.examine_message
        self.sender_checked = examiner.sender_checked
        self.register_certificate = examiner.register_certificate
        self.unregister_certificate = examiner.unregister_certificate

        # What the data pipeline needs: staged sends, holds on expiry.
        self.stage_messages = staging.stage_messages
        self.stage_packets = staging.stage_packets
        self.stage_terms = staging.stage_terms
        self.publish_stages = staging.publish_stages
        self.drop_stage = staging.drop_stage
        self.drop_abandoned_stages = staging.drop_abandoned_stages
        self.hold_expiry = expiry.hold_expiry
        self.release_expiry = expiry.release_expiry

    # Figures --------------------------------------------------------------------------------------

    @property
    def clock(self) -> Callable[[], float]:
        """The wall clock: seconds since 1970 UTC."""
        return self.clocks.wall

    @property
    def monotonic(self) -> Callable[[], float]:
        """The monotonic clock: seconds."""
        return self.clocks.monotonic

    @property
    def expiries(self) -> int:
        """Messages that have expired since the start."""
        return self.positions.expiries

    @property
    def last_ordinal(self) -> int:
        """The ordinal in the identifier of the message that was sent last."""
        return self.sending.last_ordinal

    def message_identifiers(self, ordinals: Iterable[int]) -> list[str]:
        """Return the identifiers of messages of this queue manager."""
        text = self._identifier_text
        return [f"{text}\\{ordinal}" for ordinal in ordinals]

    @property
    def last_message_identifier(self) -> str:
        """The identifier of the message that was sent last."""
        return f"{self._identifier_text}\\{self.sending.last_ordinal}"

    @property
    def newest_sequential_id(self) -> int:
        """The SequentialID issued last."""
        return self.numbers.sequential_id.last

    # Start and stop -------------------------------------------------------------------------------

    def queue_manager_started(self) -> None:
        """3.1.4.1 Queue Manager Started: initialization.

        An error leaves the state at Initializing.
        """
        qm = self.queue_manager
        qm.queue_manager_state = QueueManagerState.INITIALIZING
        self.store.on_synced(self.dtc.on_synced)
        self.store.on_failed(self._on_failed)
        self._initialization.run()
        self._identifier_text = str(qm.identifier)
        self.sequences.load()
        self.shares.load()
        self.expiry.load_holds()
        if self.events is not None:
            self.events.start()
        self._recover()
        self.expiry.find_next()
        self.save_queue_manager()
        qm.connection_active = True
        qm.queue_manager_state = QueueManagerState.READY
        self.notifications.start()

    def _recover(self) -> None:
        """Recover in-doubt transactions, then what a purge left behind."""
        self.transactions.recover_prepared()
        self.positions.recover_purges()
        self.positions.recover_move_times()
        self.dtc.reenlist()
        self.queues.end_all_unused()

    def check_leaving_identifier(self) -> None:
        """Raise CannotJoinDomain if messages on their way carry this queue manager's identifier."""
        self._initialization.membership.refuse_messages_on_their_way()

    def restore_queue(self, identifier: uuid.UUID) -> Queue | None:
        """Create the queue for an object that this queue manager has in its domain.

        Returns None if the queue exists here.
        """
        return self._initialization.membership.restore_queue(identifier)

    def queue_manager_stopped(self) -> None:
        """3.1.4.2 Queue Manager Stopped.

        Every subscribed protocol shuts down, and waiting reads end.
        """
        qm = self.queue_manager
        qm.queue_manager_state = QueueManagerState.STOPPING
        for subscriber in self.stopped_subscribers:
            subscriber()
        self.opening.close_all()
        self.transactions.abort_unprepared()
        self.shares.write()
        qm.queue_manager_state = QueueManagerState.STOPPED

    def take_offline(self) -> None:
        """3.1.4.12 Take Offline."""
        self._set_connection_active(is_active=False)

    def bring_online(self) -> None:
        """3.1.4.13 Bring Online."""
        self._set_connection_active(is_active=True)

    def _set_connection_active(self, *, is_active: bool) -> None:
        if self.queue_manager.connection_active is not is_active:
            self.queue_manager.connection_active = is_active
            for subscriber in self.connection_active_subscribers:
                subscriber()

    def begin_flow_control(self) -> None:
        """3.1.7.2.5 Begin Flow Control."""
        self.queue_manager.throttled = True

    def end_flow_control(self) -> None:
        """3.1.7.2.6 End Flow Control."""
        self.queue_manager.throttled = False

    def resume_queue(self, queue: OutgoingQueue) -> None:
        """3.1.4.15 and 3.1.7.2.4 Resume Queue.

        Messages that were dispatched for the queue may be sent again.
        """
        self.outgoing.set_state(queue, OutgoingState.INACTIVE)
        self.dispatch.dispatch_send_message()

    # Timers ---------------------------------------------------------------------------------------

    def next_delay(self) -> float | None:
        """Return the seconds until the next timer event; None if no timer runs."""
        if self.positions.emptied:
            return 0.0
        now = self.clocks.monotonic()
        timers = (
            self.waiting.next_deadline(),
            self.directory_events.next_deadline(),
            self.notifications.next_deadline(),
        )
        delays = [due - now for due in timers if due is not None]
        expiry = self.expiry.next_deadline
        if expiry is not None:
            delays.append(expiry - self.clocks.wall())
        return max(0.0, min(delays)) if delays else None

    def on_timer(self) -> None:
        """Raise every timer event that is due (3.1.6)."""
        self.waiting.expire()
        self.expiry.expire_messages(self.positions.time_to_be_received_timer_expired)
        self.directory_events.on_timer()
        self.notifications.on_timer()
        self.queues.end_unused()

    # A failing store ------------------------------------------------------------------------------

    def _on_failed(self, _batch: int) -> None:
        """Undo in memory every change that the store has undone because it was not synced."""
        self.dtc.go_back()
        self.queues.go_back()
        self.positions.go_back()
        self.transactions.go_back()
        self._initialization.reload_queues()
        self.sequences.load()
        self.shares.load()
        # An outcome that was not stored does not count: those transactions are in doubt again.
        self.transactions.recover_prepared()
        self.expiry.go_back()
        _LOG.error("the store could not be written: everything since the last sync is undone")
