"""What every layer of the engine stands on: the store, the clocks, the tables of live things."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.engine import tables
from lanner.engine.persistence import dump_attributes
from lanner.model.directory_objects import QueueManager
from lanner.model.enums import INFINITE, PositionState, QueueManagerState
from lanner.model.errors import ServiceNotAvailable

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from lanner.directory import Directory
    from lanner.engine.directory_events import ChangeNotification
    from lanner.engine.event_recorder import EventRecorder
    from lanner.engine.settings import EngineSettings
    from lanner.model.directory_objects import DirectoryObject, OutgoingQueue, Queue
    from lanner.model.enums import MessageClass
    from lanner.model.live import MessagePosition, OpenQueueDescriptor, WaitingMessageReadOperation
    from lanner.store import Store
    from lanner.wire.message import Message

    # MS-MQDMPR 3.1.7.2: events that co-located protocols consume.
    PositionDeleted = Callable[["Queue", "MessagePosition", "MessageClass"], None]
    PositionAvailable = Callable[["Queue", "MessagePosition"], None]
    # The queue, if there is one, the message, the class, and details for an operator.
    MessageRefused = Callable[["Queue | None", "Message", "MessageClass", str], None]

# Ours: so many numbers may be left out after a crash; with fewer, each new queue would wait for the disk.
_QUEUE_NUMBERS = 256
_READY = QueueManagerState.READY  # a name of its own: each event asks, and an enumeration looks its members up slowly


def _nothing() -> None:
    pass


class EngineBase:
    """State shared by all layers. Every method is called with the store's lock held."""

    # Writes down what happens to messages, where somebody wants that.
    events: EventRecorder | None = None

    def __init__(
        self,
        store: Store,
        settings: EngineSettings,
        *,
        directory: Directory,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.store = store
        self.settings = settings
        self.directory = directory
        self.clock = clock  # seconds since 1970 UTC
        self.monotonic = monotonic  # seconds, never set back
        self.queue_manager = QueueManager()

        self._sequential_id = store.counter("SequentialID")
        self._message_ordinal = store.counter("MessageID")
        self._transaction_index = store.counter("Transaction")
        self._private_queue_number = store.counter("PrivateQueueNumber", block=_QUEUE_NUMBERS)
        self._queue_number = store.counter("Queue", block=_QUEUE_NUMBERS)
        self._handles = 0

        self._queues_table = store.table(tables.QUEUES)
        self._settings_table = store.table(tables.SETTINGS)
        self._transactions_table = store.table(tables.TRANSACTIONS)
        self._purge_pending_table = store.table(tables.PURGE_PENDING)
        self._expiry_table = store.table(tables.EXPIRY)
        self._outgoing_sequences_table = store.table(tables.OUTGOING_SEQUENCES)
        self._stage_visits_table = store.table(tables.STAGE_VISITS)
        self._expiry_holds_table = store.table(tables.EXPIRY_HOLDS)

        self._descriptors: dict[int, OpenQueueDescriptor] = {}
        self._by_path: dict[str, Queue] = {}
        self._by_identifier: dict[uuid.UUID, Queue] = {}
        self._by_private_number: dict[int, Queue] = {}
        self._by_destination: dict[str, Queue] = {}
        self._by_connector: dict[str, Queue] = {}
        # Numbers of the outgoing queues that came into being for other computers. How many there may be, transfer says.
        self._queues_for_others: set[int] = set()
        self.max_queues_for_others = INFINITE
        self._queues_for_others_complaint_due = 0.0
        # Timestamp of an outgoing sequence: the number of its queue.
        self._sequence_queues: dict[int, int] = {}

        self._read_timers: list[tuple[float, int, WaitingMessageReadOperation]] = []
        self._read_timers_limit = 0  # when the heap is longer, those that have ended are taken out
        self._waiting_read_count = 0
        # The read that the last event left waiting, for a caller who may want to end it.
        self._serving_queue_stack: list[Queue] = []

        # (deadline, queue, lookup id) of express messages and uncommitted sends; the rest is in the store.
        self._volatile_expiry: list[tuple[int, int, int]] = []
        self._volatile_expiry_limit = 0  # when the heap is longer, messages that have gone are taken out
        # Rows of the table, as (deadline, queue, first lookup id): how many messages they are there for, as far as that is known.
        self._expiry_blocks: dict[tuple[int, int, int], int] = {}
        self._next_expiry: int | None = None
        # Queue: the visibility number up to which nothing expires for now, and when that ends on the monotonic clock (None: when it is said).
        self._expiry_holds: dict[int, tuple[int, float | None]] = {}
        # How many messages have expired since the start.
        self.expiries = 0

        self._durable_callbacks: list[tuple[int, Callable[[], None]]] = []

        self._directory_sites_due: float | None = None
        self._directory_site_gates_due: float | None = None
        self._directory_online_due: float | None = None

        # Called when the next deadline moves nearer: whoever sleeps until it must look again.
        self.deadline_changed: Callable[[], None] = _nothing

        self.position_deleted_subscribers: list[PositionDeleted] = []
        self.position_available_subscribers: list[PositionAvailable] = []
        # A message has come to a queue from outside it: sent, committed or delivered; not moved or given back.
        self.position_arrived_subscribers: list[PositionAvailable] = []
        self.change_notification_subscribers: list[Callable[[ChangeNotification, DirectoryObject], None]] = []
        self.outgoing_state_subscribers: list[Callable[[OutgoingQueue], None]] = []
        # ConnectionActive has changed; ours.
        self.connection_active_subscribers: list[Callable[[], None]] = []
        self.stopped_subscribers: list[Callable[[], None]] = []
        # A message of another queue manager was refused; not in the specification.
        self.message_refused_subscribers: list[MessageRefused] = []

    def next_message_ordinals(self, count: int) -> range:
        """As many as `next_message_ordinal` would give one after the other; their lower 32 bits count."""
        first = self._message_ordinal.next(count) - 1
        return range(first, first + count)

    def next_message_ordinal(self) -> int:
        """MessageIdOrdinal (MS-MQQB 3.1.1.3): from 0, and again after 32 bits."""
        return self._message_ordinal.next() - 1 & 0xFFFF_FFFF

    def _next_handle(self) -> int:
        self._handles += 1
        return self._handles

    def save_queue_manager(self) -> None:
        """Write the queue manager's lasting attributes."""
        self._settings_table.put(tables.QUEUE_MANAGER_KEY, dump_attributes(self.queue_manager))

    def _save_attributes(self, queue: Queue) -> None:
        """Write a queue's lasting attributes here; `save_queue` tells the directory too."""
        self._queues_table.put(tables.QUEUE_KEY.pack(queue.number), dump_attributes(queue))

    def _require_ready(self) -> None:
        """MS-MQDMPR 3.1.1.1 QueueManagerState: outside Ready nothing is done for anybody."""
        state = self.queue_manager.queue_manager_state
        if state is not _READY:
            raise ServiceNotAvailable(f"queue manager {self.queue_manager.computer_name} is {state.value}")

    def _is_available(self, queue: Queue, lookup_id: int) -> bool:
        held = queue.held_positions.get(lookup_id)
        if held is not None:
            return held.state is PositionState.AVAILABLE
        return self.store.contains(queue.number, lookup_id)
