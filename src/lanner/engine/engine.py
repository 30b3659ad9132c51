"""Start, stop, timers, and recovery from a failing store (MS-MQDMPR 3.1.3, 3.1.4.1, 3.1.4.2, 3.1.4.12, 3.1.4.13)."""

from __future__ import annotations

import logging
import uuid

from lanner.directory.embedded import ADMINISTRATORS
from lanner.engine.directory_events import identifier_is
from lanner.engine.event_recorder import EventRecorder
from lanner.engine.persistence import apply_attributes, load_attributes
from lanner.engine.queue_kinds import ADMINISTRATION_QUEUE
from lanner.engine.staging import Staging
from lanner.engine.tables import POSITION_KEY, QUEUE_KEY, QUEUE_MANAGER_KEY
from lanner.model.directory_objects import (
    INITIALIZATION_RETRY_TIMER_DURATION,
    Enterprise,
    OutgoingQueue,
    Queue,
)
from lanner.model.enums import (
    DirectoryOperationResult,
    MessageClass,
    OutgoingState,
    PositionState,
    QueueManagerState,
    QueueType,
)
from lanner.model.errors import DsError, QueueNotAvailable
from lanner.model.live import MessagePosition
from lanner.security.queue_security import default_queue_manager_security
from lanner.wire.path_name import PathName

_LOG = logging.getLogger(__name__)

# MS-MQDMPR 3.1.3, and one of ours: attribute of the queue manager, path, label.
SYSTEM_QUEUES = (
    ("system_deadletter_queue", r".\system$;DEADLETTER", "Deadletter queue"),
    ("system_transactional_deadletter_queue", r".\system$;DEADXACT", "Transactional dead-letter queue"),
    ("system_journal_queue", r".\system$;JOURNAL", "Journal queue"),
    ("order_acknowledgment_queue", r".\private$\order_queue$", "Order acknowledgment queue"),
    ("change_notification_queue", r".\private$\notify_queue$", "Change notification queue"),
    ("awaiting_final_ack_queue", r".\private$\awaiting_final_ack$", "Messages that await their final acknowledgment"),
)


class Engine(Staging):
    """The queue manager. Every method is called with the store's lock held."""

    # Start and stop ---------------------------------------------------------------------------------------

    def queue_manager_started(self) -> None:
        """3.1.4.1 Queue Manager Started: initialization; an error leaves the state at Initializing."""
        qm = self.queue_manager
        qm.queue_manager_state = QueueManagerState.INITIALIZING
        self.store.on_synced(self._on_synced)
        self.store.on_failed(self._on_failed)
        provisioning = self._load_queue_manager()
        self._query_policy()
        if provisioning:
            self._provision()
        self._load_queues()
        if qm.directory_integrated:
            self._synchronise_with_directory(provisioning=provisioning)
            self._start_directory_timers()
        self._create_system_queues()
        self._set_outgoing_states()
        self._subscribe_acknowledgments()
        self._load_sequences()
        self._load_expiry_holds()
        if self.settings.event_settings is not None:
            self.events = EventRecorder(self)
        self._recover()
        self._find_next_expiry()
        self.save_queue_manager()
        qm.connection_active = True
        qm.queue_manager_state = QueueManagerState.READY

    def queue_manager_stopped(self) -> None:
        """3.1.4.2 Queue Manager Stopped: every protocol that subscribed shuts down; waiting reads end."""
        qm = self.queue_manager
        qm.queue_manager_state = QueueManagerState.STOPPING
        for subscriber in self.stopped_subscribers:
            subscriber()
        for descriptor in list(self._descriptors.values()):
            self.close_queue(descriptor)
        for transaction in list(qm.transaction_collection.values()):
            if not transaction.is_prepared:
                self.transaction_abort(transaction.identifier)
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

    # Initialization (3.1.3) ---------------------------------------------------------------------------------

    def _load_queue_manager(self) -> bool:
        """True when this store has no queue manager yet: provisioning."""
        stored = self._settings_table.get(QUEUE_MANAGER_KEY)
        if stored is None:
            return True
        apply_attributes(self.queue_manager, load_attributes(stored)[1])
        return False

    def _query_policy(self) -> None:
        """The names of the computer; an error here ends the initialization before any later step."""
        qm, settings = self.queue_manager, self.settings
        policy = settings.query_policy()
        qm.machine_domain_id = policy.domain_guid
        # A queue manager that is not told its name keeps the one it has.
        name = policy.account_domain_name or qm.computer_name or settings.default_computer_name
        if qm.computer_name and name.lower() != qm.computer_name.lower():
            _LOG.warning(
                "the queue manager %s is now called %s: what is sent to the old name no longer comes here",
                qm.computer_name,
                name,
            )
        qm.computer_name = name
        domain = policy.dns_domain_name
        qm.qualified_computer_name = f"{qm.computer_name}.{domain}" if domain else qm.computer_name
        qm.hardened_security = settings.hardened_security
        if settings.queue_manager_quota is not None:
            qm.queue_manager_quota = settings.queue_manager_quota
        if settings.journal_quota is not None:
            qm.journal_quota = settings.journal_quota

    def _provision(self) -> None:
        qm, settings = self.queue_manager, self.settings
        qm.create_time = qm.modify_time = int(self.clock())
        qm.directory_integrated = settings.directory_integrated
        qm.security = default_queue_manager_security(ADMINISTRATORS)
        qm.initialization_retry_timer_duration = INITIALIZATION_RETRY_TIMER_DURATION
        if settings.public_keys is not None:
            qm.public_encryption_key_list, qm.public_signing_key_list = settings.public_keys()
        qm.site_identifier_list = [uuid.UUID(site) for site in settings.site_identifiers]
        result, identifier = self.directory.create_object(qm)
        if identifier is not None:
            # A computer that is set up again keeps the object it has (MS-MQDSSM 3.1.6.1.1.2).
            qm.identifier = identifier
        else:
            _LOG.warning("the queue manager's object was not created in the directory: %s", result.value)

    def _synchronise_with_directory(self, *, provisioning: bool) -> None:
        qm = self.queue_manager
        result, found = self.read_directory("QueueManager", identifier_is(qm.identifier))
        if result is DirectoryOperationResult.SUCCESS and found is not None:
            self._adopt(qm, found)
            self._read_collections()
        elif not (result is DirectoryOperationResult.OBJECT_NOT_FOUND and provisioning):
            self._raise_unless_offline(result, "the queue manager's own object cannot be read")
        result, enterprise = self.read_directory("Enterprise", None, ["NonLDAPCapableQueueManagerNotification"])
        if result is DirectoryOperationResult.SUCCESS and isinstance(enterprise, Enterprise):
            qm.enterprise_reference = enterprise
        elif result is DirectoryOperationResult.ATTRIBUTE_NOT_FOUND:
            qm.enterprise_reference = Enterprise(non_ldap_capable_queue_manager_notification=True)
        else:
            self._raise_unless_offline(result, "the enterprise's object cannot be read")

    @staticmethod
    def _raise_unless_offline(result: DirectoryOperationResult, what: str) -> None:
        """A directory that is away starts the offline mode, it does not stop the queue manager."""
        if result is not DirectoryOperationResult.DIRECTORY_NOT_CONNECTED:
            raise DsError(f"{what}: {result.value}")

    def _load_queues(self) -> None:
        classes = {"Queue": Queue, "OutgoingQueue": OutgoingQueue}
        for key, value in self._queues_table.items():
            class_name, attributes = load_attributes(value)
            queue = self.queue_manager.queue_collection.get(QUEUE_KEY.unpack(key)[0])
            if queue is None:
                queue = classes[class_name]()
            apply_attributes(queue, attributes)
            self._name_host(queue)
            self._index(queue)
            self._count(queue)
        self._count_all()

    def _name_host(self, queue: Queue) -> None:
        """The computer in a queue's path names is this one's name, also after it was renamed."""
        if isinstance(queue, OutgoingQueue) or queue.queue_type is QueueType.CONNECTOR:
            return
        path = PathName.parse(queue.pathname)
        queue.pathname = str(path.with_computer(self.queue_manager.computer_name))
        queue.qualified_pathname = str(path.with_computer(self.queue_manager.qualified_computer_name))

    def _count_all(self) -> None:
        qm = self.queue_manager
        qm.total_bytes = sum(queue.total_bytes for queue in qm.queue_collection.values())

    def _create_system_queues(self) -> None:
        for attribute, pathname, label in SYSTEM_QUEUES:
            path = PathName.parse(pathname)
            queue = self.find_by_path(path)
            if queue is None:
                queue = Queue(label=label, queue_type=QueueType.SYSTEM)
                queue.pathname = str(path.with_computer(self.queue_manager.computer_name))
                self._complete(queue, path)
                if attribute == "system_transactional_deadletter_queue":
                    queue.transactional = True
                self._register(queue)
            setattr(self.queue_manager, attribute, queue)
        path = PathName.parse(ADMINISTRATION_QUEUE)
        if self.find_by_path(path) is None:
            request = self.set_queue_defaults(ADMINISTRATION_QUEUE)
            request.label = "Administration queue"
            self._create_queue(request, path)

    def _set_outgoing_states(self) -> None:
        """HardenedSecurity decides whether an outgoing queue is Locked (DMPR-3.1.3-12)."""
        for queue in self.outgoing_queues():
            stored = queue.state
            if self._initial_state(queue) is OutgoingState.LOCKED:
                queue.state = OutgoingState.LOCKED
            elif stored is OutgoingState.LOCKED:
                queue.state = OutgoingState.WAITING
            elif stored is not OutgoingState.ON_HOLD:
                queue.state = OutgoingState.INACTIVE
            if queue.state is not stored:
                self._save_attributes(queue)

    def _recover(self) -> None:
        """In-doubt transactions, then what a purge left behind. Nothing here grows with the messages."""
        self._recover_prepared()
        for key, _ in list(self._purge_pending_table.items()):
            self._recover_purge_pending(*POSITION_KEY.unpack(key))
        self._reenlist()
        for transaction in list(self.queue_manager.transaction_collection.values()):
            if transaction.single_phase:
                self.transaction_abort(transaction.identifier)

    def _recover_purge_pending(self, number: int, lookup_id: int) -> None:
        queue = self.queue_manager.queue_collection.get(number)
        record = None if queue is None else self.store.get(number, lookup_id)
        if queue is None or record is None:
            self._purge_pending_table.delete(POSITION_KEY.pack(number, lookup_id))
            return
        held = queue.held_positions.get(lookup_id)
        if held is not None:
            held.state = PositionState.PURGE_PENDING
            return
        position = MessagePosition(queue, lookup_id, record, PositionState.PURGE_PENDING)
        self.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_PURGED)

    # Timers ---------------------------------------------------------------------------------------------------

    def next_delay(self) -> float | None:
        """Seconds until `on_timer` has something to do; None: until somebody calls an event."""
        now = self.monotonic()
        timers = (
            self._next_read_deadline(),
            self._directory_sites_due,
            self._directory_site_gates_due,
            self._directory_online_due,
        )
        delays = [due - now for due in timers if due is not None]
        if self._next_expiry is not None:
            delays.append(self._next_expiry - self.clock())
        return max(0.0, min(delays)) if delays else None

    def on_timer(self) -> None:
        """Raise every timer event that is due (3.1.6)."""
        self._expire_waiting_reads()
        self._expire_messages()
        self._run_directory_timers()

    # A failing store --------------------------------------------------------------------------------------------

    def _on_failed(self, _batch: int) -> None:
        """Everything unsynced is undone in the store; go back with it."""
        self._durable_callbacks.clear()
        stored = {QUEUE_KEY.unpack(key)[0] for key, _ in self._queues_table.items()}
        for number, queue in list(self.queue_manager.queue_collection.items()):
            if number not in stored:
                error = f"queue {queue.pathname} could not be stored"
                self._stop_waiting_reads(list(queue.waiting_reads), QueueNotAvailable(error))
                queue.is_deleted = True
                for descriptor in queue.open_queue_descriptors:
                    descriptor.queue = None
                self._unindex(queue)
        for queue in self.queue_manager.queue_collection.values():
            queue.head_hint = -1
            queue.unserved_positions.clear()
            for position in list(queue.held_positions.values()):
                if position.is_uncommitted_send:
                    continue
                if self.store.get(queue.number, position.lookup_id) is None:
                    position.state = PositionState.DELETED
                    self._unhold(position)
        self._undo_unsynced_promises()
        states = {queue.number: queue.state for queue in self.outgoing_queues()}
        self._load_queues()
        self._load_sequences()
        for queue in self.outgoing_queues():
            # Where a connection is, the disk does not know; what an operator wants, it does.
            if OutgoingState.ON_HOLD not in (queue.state, states.get(queue.number)):
                queue.state = states.get(queue.number, queue.state)
        # An outcome that was not stored was not reached: those transactions are in doubt again.
        self._recover_prepared()
        self._expiry_blocks.clear()
        self._find_next_expiry()
        _LOG.error("the store could not be written: everything since the last sync is undone")
