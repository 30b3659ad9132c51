"""Small stand-ins for what the parts of the engine get through their constructors.

`FakeStore` keeps messages and tables in dictionaries and has no batches: a change is visible at
once. `World` has the collaborators that nearly every part takes, and makes queues, packets and
positions.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterator
from typing import cast

from lanner.engine.clocks import Clocks
from lanner.engine.core import Core
from lanner.engine.expiry import Expiry
from lanner.engine.positions import Positions
from lanner.engine.settings import EngineSettings
from lanner.engine.waiting import WaitingReads
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import DeliveryGuarantee, QueueAccessType, QueueManagerState, QueueShareMode, QueueType
from lanner.model.live import MessagePosition, OpenQueueDescriptor, Record
from lanner.model.lookup_ids import lookup_id_of
from lanner.store import Store
from lanner.wire.builder import MessageProperties, build
from lanner.wire.envelope import read_envelope
from lanner.wire.format_name import parse

START_TIME = 1_700_000_000.0
SOURCE = uuid.UUID("11111111-2222-3333-4444-555555555555")


class FakeTable:
    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        self.rows.pop(key, None)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self.rows.items()))

    def first(self) -> tuple[bytes, bytes] | None:
        return next(self.items(), None)


class FakeCounter:
    def __init__(self) -> None:
        self.last = 0

    def next(self, n: int = 1) -> int:
        first = self.last + 1
        self.last += n
        return first


class FakeStore:
    def __init__(self) -> None:
        self.messages: dict[tuple[int, int], Record] = {}
        self.express: set[tuple[int, int]] = set()
        self.tables: dict[str, FakeTable] = {}
        self.counters: dict[str, FakeCounter] = {}
        self.epoch = 1
        self.refuses_sends = False
        self.visibility = 0

    def table(self, name: str) -> FakeTable:
        return self.tables.setdefault(name, FakeTable())

    def counter(self, name: str, block: int = 0) -> FakeCounter:
        del block
        return self.counters.setdefault(name, FakeCounter())

    def put(self, queue: int, lookup_id: int, record: Record, *, express: bool) -> None:
        self.visibility += 1
        record.visibility = self.visibility
        self.messages[queue, lookup_id] = record
        if express:
            self.express.add((queue, lookup_id))

    def delete(self, queue: int, lookup_id: int, record: Record) -> bool:
        del record
        self.express.discard((queue, lookup_id))
        return self.messages.pop((queue, lookup_id), None) is not None

    def get(self, queue: int, lookup_id: int) -> Record | None:
        return self.messages.get((queue, lookup_id))

    def contains(self, queue: int, lookup_id: int) -> bool:
        return (queue, lookup_id) in self.messages

    def is_express(self, queue: int, lookup_id: int) -> bool:
        return (queue, lookup_id) in self.express

    def _ids(self, queue: int) -> list[int]:
        return sorted(lookup_id for number, lookup_id in self.messages if number == queue)

    def next(self, queue: int, after: int) -> int | None:
        return next((lookup_id for lookup_id in self._ids(queue) if lookup_id > after), None)

    def previous(self, queue: int, before: int) -> int | None:
        return next((lookup_id for lookup_id in reversed(self._ids(queue)) if lookup_id < before), None)

    def read_next(self, queue: int, after: int, passed_over: Container[int]) -> tuple[int, Record] | None:
        for lookup_id in self._ids(queue):
            if lookup_id > after and lookup_id not in passed_over:
                return lookup_id, self.messages[queue, lookup_id]
        return None

    def stats(self, queue: int) -> tuple[int, int]:
        sizes = [len(record.packet) for (number, _), record in self.messages.items() if number == queue]
        return len(sizes), sum(sizes)


class World:
    """The collaborators of a part, on a fake store, with a clock that stands still at `now`."""

    def __init__(self) -> None:
        self.now = START_TIME
        self.fake = FakeStore()
        self.store = cast(Store, self.fake)
        self.clocks = Clocks(lambda: self.now, lambda: self.now)
        settings = EngineSettings("ALPHA", local_addresses=frozenset({"192.0.2.1"}))
        self.core = Core(self.store, settings, self.clocks)
        self.queue_manager = self.core.queue_manager
        self.queue_manager.identifier = SOURCE
        self.queue_manager.computer_name = "ALPHA"
        self.queue_manager.qualified_computer_name = "alpha.example.com"
        self.queue_manager.queue_manager_state = QueueManagerState.READY
        self.numbers = self.core.numbers
        self.attributes = self.core.attributes
        self.waiting = WaitingReads(self.core)
        self.expiry = Expiry(self.core)
        self.positions = Positions(self.core, self.waiting, self.expiry)

    def queue(self, name: str = "q", **attributes: object) -> Queue:
        queue = Queue(pathname=rf"ALPHA\private$\{name}", queue_type=QueueType.PRIVATE, **attributes)  # type: ignore[arg-type] # the test's own choice
        return self._add(queue)

    def outgoing(self, name: str = r"DIRECT=OS:BETA\private$\q") -> OutgoingQueue:
        queue = OutgoingQueue(pathname=name, destination_format_name=name)
        queue.queue_type = QueueType.PRIVATE
        self._add(queue)
        return queue

    def _add(self, queue: Queue) -> Queue:
        queue.number = self.numbers.queue.next()
        queue.queue_manager = self.queue_manager
        self.queue_manager.queue_collection[queue.number] = queue
        return queue

    def open(self, queue: Queue, access: QueueAccessType = QueueAccessType.RECEIVE) -> OpenQueueDescriptor:
        handle = self.numbers.next_handle()
        descriptor = OpenQueueDescriptor(handle, handle, access, QueueShareMode.DENY_NONE, queue.pathname)
        descriptor.queue = queue
        queue.open_queue_descriptors[descriptor.handle] = descriptor
        return descriptor

    def packet(
        self, body: bytes = b"", *, recoverable: bool = True, is_transactional: bool = False, **more: object
    ) -> bytes:
        mode = DeliveryGuarantee.RECOVERABLE if recoverable else DeliveryGuarantee.EXPRESS
        return build(
            MessageProperties(body=body, delivery_guarantee=mode, **more),  # type: ignore[arg-type] # the test's own choice
            source=SOURCE,
            ordinal=1,
            sent_time=int(self.now),
            destination=parse(r"DIRECT=OS:ALPHA\private$\q"),
            transaction=7 if is_transactional else None,
        )

    def position(self, queue: Queue, body: bytes = b"", **more: object) -> MessagePosition:
        """Return the position of a new message that is not stored yet."""
        packet = self.packet(body, **more)  # type: ignore[arg-type] # the test's own choice
        lookup_id = lookup_id_of(read_envelope(packet).priority, self.numbers.sequential_id.next())
        queue.total_bytes += len(packet)
        self.queue_manager.total_bytes += len(packet)
        return MessagePosition(queue, lookup_id, Record(packet, int(self.now)))

    def put(self, queue: Queue, body: bytes = b"", **more: object) -> MessagePosition:
        """Store a message and return its position."""
        position = self.position(queue, body, **more)
        self.positions.write(position, read_envelope(position.record.packet))
        return position
