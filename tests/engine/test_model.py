"""The engine compared with a model under random operations.

No message is lost, duplicated or out of order. `Model` is a queue manager of lists and
dictionaries. The machine does each step on both and compares afterwards what every queue shows, its
counts and sizes, and which removals were reported.
"""

from __future__ import annotations

import enum
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import given, settings

from lanner.engine import Engine
from lanner.engine.reading import ReadStart
from lanner.model.directory_objects import Queue
from lanner.model.enums import CursorState, MessageClass, MessageSeekAction, OperationType, QueueAccessType
from lanner.model.live import END, START, Cursor, MessagePosition, OpenQueueDescriptor, Transaction
from tests.engine.harness import Harness, Reader, at_once, body_of, is_waiting, status_of
from tests.statuses import (
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_TRANSACTION_USAGE,
)

PLAIN, PLAIN_SUBQUEUE = "q", "q;s"
TRANSACTIONAL, TRANSACTIONAL_SUBQUEUE = "t", "t;s"
NAMES = (PLAIN, PLAIN_SUBQUEUE, TRANSACTIONAL, TRANSACTIONAL_SUBQUEUE)
OTHER_HALF = {PLAIN: PLAIN_SUBQUEUE, TRANSACTIONAL: TRANSACTIONAL_SUBQUEUE}
OTHER_HALF |= {target: source for source, target in OTHER_HALF.items()}
ALL_ONES = 0xFFFF_FFFF_FFFF_FFFF


T = TypeVar("T")
Step = tuple[str, dict[str, Any]]  # a method of the machine and its arguments
# Any number picks an item of a list whose length the strategies do not know.
picks = st.integers(min_value=0, max_value=1000)
# Priority, and whether the message is express.
batches = st.lists(st.tuples(st.integers(0, 7), st.booleans()), min_size=1, max_size=6)
names = st.sampled_from(NAMES)


def pick(items: Sequence[T], number: int) -> T:
    return items[number % len(items)]


class State(enum.Enum):
    AVAILABLE = "available"
    LOCKED = "locked"
    UNCOMMITTED = "sent in an open transaction"
    PURGED = "purged while locked"


@dataclass(eq=False)
class Item:
    """A message of the model; its lookup id is its place."""

    body: bytes
    lookup_id: int
    size: int
    is_express: bool
    state: State = State.AVAILABLE


@dataclass(eq=False)
class Unit:
    """A transaction of the model: (operation, queue, message) in order."""

    transaction: Transaction
    operations: list[tuple[OperationType, str, Item]] = field(default_factory=list)
    is_prepared: bool = False


@dataclass(eq=False)
class Walker:
    """A cursor of the model beside the engine's."""

    name: str
    descriptor: OpenQueueDescriptor
    cursor: Cursor
    place: int = START
    is_parked: bool = False
    is_read: bool = False


@dataclass(eq=False)
class Wait:
    """A waiting read of the model: the results it got and the results it should have got."""

    is_receive: bool
    reader: Reader
    expected: list[bytes] = field(default_factory=list)


class Model:
    def __init__(self) -> None:
        self.queues: dict[str, list[Item]] = {name: [] for name in NAMES}
        self.waits: dict[str, list[Wait]] = {name: [] for name in NAMES}
        self.removals: Counter[tuple[bytes, MessageClass]] = Counter()

    def available(self, name: str) -> list[Item]:
        return [item for item in self.queues[name] if item.state is State.AVAILABLE]

    def add(self, name: str, item: Item) -> None:
        self.queues[name].append(item)
        self.queues[name].sort(key=lambda other: other.lookup_id)

    def becomes_available(self, name: str, item: Item) -> None:
        """Peeks in turn, then one receive."""
        item.state = State.AVAILABLE
        while self.waits[name]:
            wait = self.waits[name].pop(0)
            wait.expected.append(item.body)
            if wait.is_receive:
                self.remove(name, item, MessageClass.ACK_RECEIVE)
                return

    def remove(self, name: str, item: Item, reason: MessageClass | None) -> None:
        self.queues[name].remove(item)
        if reason is not None:
            self.removals[item.body, reason] += 1

    def give_back(self, name: str, item: Item) -> None:
        if item.state is State.PURGED:
            self.remove(name, item, MessageClass.NACK_QUEUE_PURGED)
        else:
            self.becomes_available(name, item)

    def move(self, name: str, item: Item) -> None:
        self.remove(name, item, None)
        self.add(OTHER_HALF[name], item)
        self.becomes_available(OTHER_HALF[name], item)

    def purge(self, name: str) -> None:
        for item in list(self.queues[name]):
            if item.state is State.AVAILABLE:
                self.remove(name, item, MessageClass.NACK_QUEUE_PURGED)
            elif item.state is State.LOCKED:
                item.state = State.PURGED

    def commit(self, unit: Unit) -> None:
        for operation, name, item in unit.operations:
            if operation is OperationType.ENQUEUE:
                self.becomes_available(name, item)
            elif operation is OperationType.DEQUEUE:
                self.remove(name, item, MessageClass.ACK_RECEIVE)
            else:
                self.move(name, item)

    def abort(self, unit: Unit) -> None:
        for operation, name, item in unit.operations:
            if operation is OperationType.ENQUEUE:
                self.remove(name, item, None)
            else:
                self.give_back(name, item)

    def seek(
        self, name: str, lookup_id: int, action: MessageSeekAction, *, peek: bool, under_cursor: set[int]
    ) -> Item | int:
        """The message a lookup finds, or the status with which it fails."""
        by_id = {item.lookup_id: item for item in self.queues[name]}
        available = self.available(name)
        if action is MessageSeekAction.CURRENT:
            item = by_id.get(lookup_id)
            if item is None:
                return MQ_ERROR_MESSAGE_ALREADY_RECEIVED if lookup_id in under_cursor else MQ_ERROR_MESSAGE_NOT_FOUND
            if item.state is State.AVAILABLE:
                return item
            return MQ_ERROR_TRANSACTION_USAGE if peek and item.state is not State.PURGED else MQ_ERROR_MESSAGE_NOT_FOUND
        if action is MessageSeekAction.FIRST or (action is MessageSeekAction.NEXT and lookup_id == 0):
            found = available[:1]
        elif action is MessageSeekAction.LAST or (action is MessageSeekAction.PREVIOUS and lookup_id == ALL_ONES):
            found = available[-1:]
        elif lookup_id not in by_id and lookup_id not in under_cursor:
            found = []
        elif action is MessageSeekAction.NEXT:
            found = [item for item in available if item.lookup_id > lookup_id][:1]
        else:
            found = [item for item in available if item.lookup_id < lookup_id][-1:]
        return found[0] if found else MQ_ERROR_MESSAGE_NOT_FOUND


class Machine:
    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.model = Model()
        self.removals: Counter[tuple[bytes, MessageClass]] = Counter()
        self.arrivals: list[MessagePosition] = []
        self.units: list[Unit] = []
        self.reads: list[tuple[str, Item, MessagePosition]] = []
        self.walkers: list[Walker] = []
        self.told: list[Wait] = []
        self.known_ids: list[int] = [0, ALL_ONES]
        self.sent = 0
        self.h = Harness(Path(self.directory.name) / "data")
        self.h.create(PLAIN)
        self.h.create(TRANSACTIONAL, transactional=True)
        self.h.before_start = self.watch
        self.watch(self.h.engine)
        self.open_handles()

    def close(self) -> None:
        self.h.close()
        self.directory.cleanup()

    def watch(self, engine: Engine) -> None:
        def removed(_queue: Queue, position: MessagePosition, reason: MessageClass) -> None:
            self.removals[body_of(position), reason] += 1

        engine.position_deleted_subscribers.append(removed)
        engine.position_available_subscribers.append(
            lambda queue, first, records: self.arrivals.append(MessagePosition(queue, first, records[0]))
        )

    def open_handles(self) -> None:
        self.handles = {name: self.h.open(name) for name in NAMES}

    # Sending
    # ----------------------------------------------------------------------------------------------

    def send(self, kinds: list[tuple[int, bool]]) -> None:
        for priority, express in kinds:
            body = self.new_body()
            self.h.send(PLAIN, body, priority=priority, recoverable=not express)
            # A waiting receive may have taken it in the same step.
            position = self.arrivals[-1]
            item = Item(body, position.lookup_id, len(position.record.packet), express)
            assert item.lookup_id >> 56 == 7 - priority
            self.came(PLAIN, item)
            self.model.becomes_available(PLAIN, item)

    def send_in_transaction(self, number: int, kinds: list[tuple[int, bool]]) -> None:
        if not self.open_units():
            self.units.append(Unit(self.h.begin()))
        unit, queue = pick(self.open_units(), number), self.h.queue(TRANSACTIONAL)
        for priority, express in kinds:
            body, before = self.new_body(), queue.total_bytes
            self.h.send(TRANSACTIONAL, body, transaction=unit.transaction, priority=priority, recoverable=not express)
            lookup_id = unit.transaction.transactional_operations[-1].message_position.lookup_id
            # A transactional message is always recoverable and of priority 0.
            item = Item(body, lookup_id, queue.total_bytes - before, is_express=False, state=State.UNCOMMITTED)
            assert item.lookup_id >> 56 == 7
            self.came(TRANSACTIONAL, item)
            unit.operations.append((OperationType.ENQUEUE, TRANSACTIONAL, item))

    def new_body(self) -> bytes:
        self.sent += 1
        return b"%d:" % self.sent + bytes(7 * self.sent)

    def came(self, name: str, item: Item) -> None:
        assert item.size > len(item.body)
        sequence = (1 << 56) - 1
        assert all(item.lookup_id & sequence > other & sequence for other in self.known_ids[2:])
        self.known_ids.append(item.lookup_id)
        self.model.add(name, item)

    # Reading
    # ----------------------------------------------------------------------------------------------

    def read(self, name: str, number: int, how: str) -> None:
        if how == "plain":
            self.receive(name)
        elif how == "two phases":
            self.begin_read(name)
        elif self.open_units() and name in (TRANSACTIONAL, TRANSACTIONAL_SUBQUEUE):
            self.receive_in_transaction(number, name)

    def receive(self, name: str) -> None:
        first = self.first(name)
        assert self.h.receive(name) == (None if first is None else first.body)
        if first is not None:
            self.model.remove(name, first, MessageClass.ACK_RECEIVE)

    def begin_read(self, name: str) -> None:
        first = self.first(name)
        position = self.attempt(lambda: self.h.engine.dequeue_message_begin(self.handles[name], timeout=0), first)
        if first is not None and position is not None:
            first.state = State.LOCKED
            self.reads.append((name, first, position))

    def end_read(self, number: int, delete: bool) -> None:
        if not self.reads:
            return
        name, item, position = read = pick(self.reads, number)
        self.reads.remove(read)
        self.h.engine.dequeue_message_end(self.handles[name], position, delete_message=delete)
        if delete and item.state is State.LOCKED:
            self.model.remove(name, item, MessageClass.ACK_RECEIVE)
        else:
            self.model.give_back(name, item)

    def receive_in_transaction(self, number: int, name: str) -> None:
        unit, first = pick(self.open_units(), number), self.first(name)
        assert self.h.receive(name, unit.transaction) == (None if first is None else first.body)
        if first is not None:
            first.state = State.LOCKED
            unit.operations.append((OperationType.DEQUEUE, name, first))

    def wait_for_a_message(self, name: str, is_receive: bool) -> None:
        if self.first(name) is not None:
            return
        wait = Wait(is_receive, Reader())
        read = self.h.engine.dequeue_message if is_receive else self.h.engine.peek_message
        assert is_waiting(read(self.handles[name], on_end=wait.reader))
        self.model.waits[name].append(wait)
        self.told.append(wait)

    def look_up(self, name: str, action: MessageSeekAction, number: int, peek: bool) -> None:
        lookup_id = pick(self.known_ids, number)
        under_cursor = {walker.cursor.position for walker in self.walkers if walker.name == name}
        expected = self.model.seek(name, lookup_id, action, peek=peek, under_cursor=under_cursor)

        def read() -> MessagePosition:
            return self.h.engine.read_message_by_lookup_identifier(
                self.handles[name], lookup_id, peek_operation=peek, lookup_operation=action
            )

        self.attempt(read, expected)
        if isinstance(expected, Item) and not peek:
            self.model.remove(name, expected, MessageClass.ACK_RECEIVE)

    def first(self, name: str) -> Item | None:
        return next(iter(self.model.available(name)), None)

    @staticmethod
    def attempt(read: Callable[[], ReadStart], expected: Item | int | None) -> MessagePosition | None:
        """Run an operation and compare its outcome with the model's: a message or a status.

        None stands for a time-out.
        """
        if not isinstance(expected, Item):
            assert status_of(read) == (MQ_ERROR_IO_TIMEOUT if expected is None else expected)
            return None
        position = at_once(read())
        assert (body_of(position), position.lookup_id) == (expected.body, expected.lookup_id)
        return position

    # Cursors
    # ----------------------------------------------------------------------------------------------

    def use_cursor(self, number: int, how: str) -> None:
        if not self.walkers:
            return
        if how == "close":
            self.close_cursor(number)
        elif how in ("peek", "next"):
            self.peek_through_cursor(number, is_next=how == "next")
        else:
            self.receive_through_cursor(number, 1000 if how == "wait" else 0)

    def open_cursor(self, name: str) -> None:
        cursor = self.h.engine.open_cursor(self.handles[name])
        assert cursor is not None
        self.walkers.append(Walker(name, self.handles[name], cursor))

    def close_cursor(self, number: int) -> None:
        walker = pick(self.walkers, number)
        self.walkers.remove(walker)
        self.h.engine.close_cursor(walker.cursor)

    def peek_through_cursor(self, number: int, *, is_next: bool) -> None:
        walker, engine = pick(self.walkers, number), self.h.engine
        expected: Item | int | None
        if is_next and not walker.is_read:
            expected = MQ_ERROR_ILLEGAL_CURSOR_ACTION
        elif walker.is_read and not is_next:
            expected = self.under(walker)
        else:
            expected = self.ahead(walker)
            walker.is_read = expected is not None
            self.walk_to(walker, expected)
        if is_next:
            self.attempt(lambda: engine.peek_next_message(walker.descriptor, walker.cursor, timeout=0), expected)
        else:
            self.attempt(lambda: engine.peek_message(walker.descriptor, cursor=walker.cursor, timeout=0), expected)

    def receive_through_cursor(self, number: int, timeout: int) -> None:
        walker, reader = pick(self.walkers, number), Reader()
        expected: Item | int | None = self.under(walker) if walker.is_read else self.ahead(walker)
        if isinstance(expected, Item):
            walker.is_read = False
            self.walk_to(walker, expected)
        elif expected is None and timeout:
            walker.is_parked = True
            stored = [i.lookup_id for i in self.model.queues[walker.name] if i.state is not State.UNCOMMITTED]
            stored += [i.lookup_id for _, name, i in self.prepared() if name == walker.name]
            walker.place = max(stored, default=START)
            walker.is_read = False

        def read() -> ReadStart:
            return self.h.engine.dequeue_message(
                walker.descriptor, cursor=walker.cursor, timeout=timeout, on_end=reader
            )

        if expected is None and timeout:
            assert is_waiting(read())
            self.h.tick(timeout / 1000)
            assert reader.status == MQ_ERROR_IO_TIMEOUT
        else:
            self.attempt(read, MQ_ERROR_MESSAGE_NOT_FOUND if expected is None else expected)
        if isinstance(expected, Item):
            self.model.remove(walker.name, expected, MessageClass.ACK_RECEIVE)

    def prepared(self) -> list[tuple[OperationType, str, Item]]:
        return [operation for unit in self.units if unit.is_prepared for operation in unit.operations]

    def under(self, walker: Walker) -> Item | int:
        found = [i for i in self.model.available(walker.name) if i.lookup_id == walker.place]
        return found[0] if found else MQ_ERROR_MESSAGE_ALREADY_RECEIVED

    def ahead(self, walker: Walker) -> Item | None:
        return next((i for i in self.model.available(walker.name) if i.lookup_id > walker.place), None)

    @staticmethod
    def walk_to(walker: Walker, found: Item | None) -> None:
        if found is not None:
            walker.place, walker.is_parked = found.lookup_id, False

    # Moving and purging
    # -----------------------------------------------------------------------------------------

    def move(self, name: str, number: int, in_transaction: bool) -> None:
        available = self.model.available(name)
        if not available:
            return
        item = pick(available, number)
        if not in_transaction:
            self.move_by_id(name, item)
            self.model.move(name, item)
        elif self.open_units() and name in (TRANSACTIONAL, TRANSACTIONAL_SUBQUEUE):
            unit = pick(self.open_units(), number)
            self.move_by_id(name, item, unit.transaction)
            item.state = State.LOCKED
            unit.operations.append((OperationType.MOVE, name, item))

    def move_by_id(self, name: str, item: Item, transaction: Transaction | None = None) -> None:
        source = self.h.open(name, QueueAccessType.MOVE)
        target = self.h.open(OTHER_HALF[name], QueueAccessType.MOVE)
        position = self.h.engine.move_message_by_lookup_identifier(source, item.lookup_id, target, transaction)
        assert body_of(position) == item.body
        self.h.engine.close_queue(source)
        self.h.engine.close_queue(target)

    def purge(self, name: str) -> None:
        self.h.engine.purge_queue(self.h.queue(name))
        self.model.purge(name)

    # Transactions
    # ----------------------------------------------------------------------------------------------

    def open_units(self) -> list[Unit]:
        return [unit for unit in self.units if not unit.is_prepared]

    def begin(self) -> None:
        if len(self.units) < 3:
            self.units.append(Unit(self.h.begin()))

    def prepare(self, number: int) -> None:
        if self.open_units():
            unit = pick(self.open_units(), number)
            self.h.engine.transaction_prepare(unit.transaction.identifier, single_phase=False)
            unit.is_prepared = True

    def end_transaction(self, number: int, how: str) -> None:
        if how == "prepare":
            self.prepare(number)
            return
        if not self.units:
            return
        unit = pick(self.units, number)
        self.units.remove(unit)
        if how == "commit":
            self.h.commit(unit.transaction)
            self.model.commit(unit)
        else:
            self.h.abort(unit.transaction)
            self.model.abort(unit)

    # Restart
    # ----------------------------------------------------------------------------------------------

    def restart(self, crashes: bool) -> None:
        """Restart the queue manager and the model.

        Waits and handles end, express messages and unprepared work vanish, and prepared work stays.
        """
        for waits in self.model.waits.values():
            self.told = [wait for wait in self.told if wait not in waits]
            waits.clear()
        self.walkers.clear()
        if crashes:
            self.h.sync()
            self.h.crash()
        else:
            self.h.restart()
            for name, item, _ in self.reads:  # a handle that closes gives back what was read through it
                self.model.give_back(name, item)
        for unit in self.open_units():
            self.units.remove(unit)
            self.model.abort(unit)
        prepared = {id(item) for _, _, item in self.prepared()}
        for name, items in self.model.queues.items():
            for item in list(items):
                if item.is_express:
                    items.remove(item)
                elif id(item) not in prepared and item.state is not State.AVAILABLE:
                    self.model.give_back(name, item)
        self.reads.clear()
        self.open_handles()

    # What must hold
    # ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.queues_are_equal()
        self.removals_are_equal()
        self.waiting_reads_are_equal()
        self.cursors_are_equal()

    def queues_are_equal(self) -> None:
        total = 0
        for name in NAMES:
            queue, items = self.h.queue(name), self.model.queues[name]
            assert list(self.h.lookup_ids(name)) == [item.body for item in self.model.available(name)]
            assert queue.total_bytes == sum(item.size for item in items)
            assert queue.message_count == sum(item.state is not State.UNCOMMITTED for item in items)
            total += queue.total_bytes
        assert self.h.engine.queue_manager.total_bytes == total

    def removals_are_equal(self) -> None:
        assert self.removals == self.model.removals
        received = [body for (body, reason) in self.removals if reason is MessageClass.ACK_RECEIVE]
        assert len(received) == len(set(received))
        assert all(count == 1 for count in self.removals.values())

    def waiting_reads_are_equal(self) -> None:
        for wait in self.told:
            assert [body_of(end) for end in wait.reader.ends if isinstance(end, MessagePosition)] == wait.expected
            assert len(wait.reader.ends) == len(wait.expected)
        for name in NAMES:
            assert len(self.h.queue(name).waiting_reads) == len(self.model.waits[name])

    def cursors_are_equal(self) -> None:
        for walker in self.walkers:
            assert walker.cursor.state is (CursorState.READ if walker.is_read else CursorState.UNREAD)
            assert walker.cursor.position == (END if walker.is_parked else walker.place)


def step(weight: int, what: str, /, **arguments: st.SearchStrategy[Any]) -> list[st.SearchStrategy[Step]]:
    # As many different objects: one_of takes the same one once.
    return [st.tuples(st.just(what), st.fixed_dictionaries(arguments)) for _ in range(weight)]


# Sends and reads are frequent, so that there is something to purge and to restart with. Rules of a
# hypothesis state machine would be left out of whole runs at random, and half of the steps here
# make sense in pairs only.
STEPS = st.one_of(
    *step(4, "send", kinds=batches),
    *step(3, "send_in_transaction", number=picks, kinds=batches),
    *step(6, "read", name=names, number=picks, how=st.sampled_from(["plain", "two phases", "transaction"])),
    *step(3, "end_read", number=picks, delete=st.booleans()),
    *step(2, "wait_for_a_message", name=names, is_receive=st.booleans()),
    *step(4, "look_up", name=names, action=st.sampled_from(MessageSeekAction), number=picks, peek=st.booleans()),
    *step(1, "open_cursor", name=names),
    *step(5, "use_cursor", number=picks, how=st.sampled_from(["peek", "next", "next", "receive", "wait", "close"])),
    *step(4, "move", name=names, number=picks, in_transaction=st.booleans()),
    *step(2, "begin"),
    *step(4, "end_transaction", number=picks, how=st.sampled_from(["commit", "abort", "prepare"])),
    *step(1, "purge", name=names),
    *step(1, "restart", crashes=st.sampled_from([False, False, False, True])),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(STEPS, min_size=40, max_size=120))
def test_the_engine_does_what_the_model_does(program: list[Step]) -> None:
    machine = Machine()
    try:
        for name, arguments in program:
            getattr(machine, name)(**arguments)
            machine.check()
    finally:
        machine.close()
