"""An engine on a real store with a clock that stands still, for tests of events.

`Harness` gives short words for what every test does; the engine itself is `h.engine`, and tests
that are about an event call it there. `restart` is a clean stop and a new start on the same
directory, `crash` leaves the old store behind as a killed process would: what was not synced is
gone.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lanner.directory import AttributeFilter, Directory, EmbeddedDirectory, SortOrder, Table
from lanner.engine import Engine, EngineSettings
from lanner.engine.dtc import LocalTransactionManager
from lanner.engine.reading import ReadStart
from lanner.model.directory_objects import DirectoryObject, Queue
from lanner.model.enums import (
    DeliveryGuarantee,
    DirectoryOperationResult,
    EnqueueStatus,
    MessageClass,
    QueueAccessType,
    QueueShareMode,
)
from lanner.model.errors import IOTimeout, StatusError
from lanner.model.live import START, MessagePosition, OpenQueueDescriptor, Transaction, WaitingMessageReadOperation
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.store import Store
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import FormatName, parse
from lanner.wire.message import Message
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, EVERYONE

START_TIME = 1_700_000_000.0


# A list for tests that are not about rights: every user has all of them.
OPEN_TO_ALL = SecurityDescriptor(
    owner=BUILTIN_ADMINISTRATORS, dacl=Acl((allow(EVERYONE, QueueAccess.GENERIC_ALL),))
).pack()


class WatchedDirectory:
    """A directory that reports each read: the object type and the first filter's value."""

    def __init__(self, directory: Directory, on_read: Callable[[str, object], None]) -> None:
        self._directory = directory
        self._on_read = on_read

    def __getattr__(self, name: str) -> object:
        return getattr(self._directory, name)

    def read(
        self, object_type: str, filters: Sequence[AttributeFilter] | None, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        self._on_read(object_type, filters[0].value if filters else None)
        return self._directory.read(object_type, filters, attributes)

    def read_at(
        self,
        server: str,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        self._on_read(object_type, filters[0].value if filters else None)
        return self._directory.read_at(server, object_type, filters, attributes)

    def read_begin(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        sort_order: Sequence[SortOrder] | None = None,
    ) -> tuple[DirectoryOperationResult, int | None]:
        self._on_read(object_type, filters[0].value if filters else None)
        return self._directory.read_begin(object_type, filters, attributes, sort_order)


class SteeredDirectory(EmbeddedDirectory):
    """The embedded directory, with a test's own functions for some operations."""

    def __init__(self, table: Table, *, clock: Callable[[], float], profile: Profile) -> None:
        # By the name of the operation.
        self.answers: dict[str, Any] = {}
        super().__init__(table, clock=clock, profile=profile)

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 (as the directory has it)
        answers = super().__getattribute__("__dict__").get("answers", {})
        return answers[name] if name in answers else super().__getattribute__(name)


class Harness:
    def __init__(
        self,
        path: Path,
        *,
        before_start: Callable[[Engine], None] | None = None,
        wrap_directory: Callable[[Directory], object] | None = None,
        coordinator: LocalTransactionManager | None = None,
        make_coordinator: Callable[[Store], LocalTransactionManager] | None = None,
        **settings: object,
    ) -> None:
        self.path = path
        self.settings: dict[str, object] = {"computer_name": "ALPHA", "dns_domain": "example.com"} | settings
        self.now = START_TIME
        self.coordinator = coordinator
        # Makes the coordinator of each life, whose log is in the store.
        self.make_coordinator = make_coordinator
        # Called with the new engine before it starts.
        self.before_start = before_start
        # Makes the directory that the engine gets of the one in the store.
        self.wrap_directory = wrap_directory
        self.start()

    # Life
    # ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.store = Store.open(self.path, reserve=1 << 20)
        self.store.lock.acquire()
        self.directory = SteeredDirectory(
            self.store.table("directory"),
            clock=lambda: self.now,
            profile=Profile(self.settings.get("profile", Profile.SAFE)),
        )
        site = self.directory.provision()
        if self.make_coordinator is not None:
            self.coordinator = self.make_coordinator(self.store)
        directory = self.directory if self.wrap_directory is None else self.wrap_directory(self.directory)
        self.engine = Engine(
            self.store,
            EngineSettings(**{"site_identifiers": (str(site),)} | self.settings),  # type: ignore[arg-type] # the test's own choice
            directory=directory,  # type: ignore[arg-type] # a wrapper has the methods by __getattr__
            clock=lambda: self.now,
            monotonic=lambda: self.now,
            coordinator=self.coordinator,
        )
        if self.before_start is not None:
            self.before_start(self.engine)
        self.engine.queue_manager_started()
        self.sync()

    def sync(self) -> None:
        """Everything done so far is on disk."""
        batch = self.store.pending_batch()
        self.store.lock.release()
        try:
            self.store.sync(batch)
        finally:
            self.store.lock.acquire()

    def checkpoint(self) -> None:
        """Everything that is on disk is in the snapshot."""
        self.store.lock.release()
        try:
            self.store.checkpoint()
        finally:
            self.store.lock.acquire()

    def stop(self) -> None:
        self.engine.queue_manager_stopped()
        self.sync()
        self.store.lock.release()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        """Continue from a copy of the current state of the disk."""
        copy = self.path.with_name(f"{self.path.name}-{uuid.uuid4().hex[:6]}")
        shutil.copytree(self.path, copy)
        self.store.lock.release()
        self.store.close()
        self.path = copy
        self.start()

    def close(self) -> None:
        if self.store.lock.is_mine:
            self.store.lock.release()
        self.store.close()

    def tick(self, seconds: float) -> None:
        """Let time pass and run what is due."""
        self.now += seconds
        self.engine.on_timer()

    # Queues and handles
    # -----------------------------------------------------------------------------------

    def create(self, name: str = "q", *, identity: Identity = SYSTEM, **attributes: object) -> Queue:
        pathname = name if "\\" in name else rf".\private$\{name}"
        request = self.engine.set_queue_defaults(pathname)
        for attribute, value in attributes.items():
            setattr(request, attribute, value)
        return self.engine.create_queue(request, identity=identity)

    def queue(self, name: str = "q") -> Queue:
        return self.engine.require_queue(self.name(name))

    def name(self, name: str) -> FormatName:
        return parse(name if "=" in name else rf"DIRECT=OS:.\private$\{name}")

    def open(
        self,
        name: str = "q",
        access: QueueAccessType = QueueAccessType.RECEIVE,
        share: QueueShareMode = QueueShareMode.DENY_NONE,
        identity: Identity = SYSTEM,
    ) -> OpenQueueDescriptor:
        return self.engine.open_queue(self.name(name), access, share, identity)

    # Messages
    # ---------------------------------------------------------------------------------------------

    def send(
        self,
        name: str = "q",
        body: bytes = b"",
        *,
        transaction: Transaction | None = None,
        recoverable: bool = True,
        **properties: object,
    ) -> EnqueueStatus:
        descriptor = self.open(name, QueueAccessType.SEND)
        try:
            return self.engine.enqueue_message_to_an_open_queue(
                descriptor, self.properties(body, recoverable=recoverable, **properties), transaction
            )
        finally:
            self.engine.close_queue(descriptor)

    @staticmethod
    def properties(body: bytes = b"", *, recoverable: bool = True, **properties: object) -> MessageProperties:
        mode = DeliveryGuarantee.RECOVERABLE if recoverable else DeliveryGuarantee.EXPRESS
        return MessageProperties(body=body, delivery_guarantee=mode, **properties)  # type: ignore[arg-type]

    def message(
        self,
        body: bytes = b"",
        *,
        source: uuid.UUID | None = None,
        transaction: int | None = None,
        **properties: object,
    ) -> Message:
        """A packet as it might come from another queue manager (or from here, with `source`)."""
        packet = build(
            self.properties(body, **properties),  # type: ignore[arg-type]
            source=source or uuid.uuid4(),
            ordinal=1,
            sent_time=int(self.now),
            destination=parse(r"DIRECT=OS:ALPHA\private$\q"),
            transaction=transaction,
        )
        return Message(packet)

    def begin(self) -> Transaction:
        return self.engine.create_transaction(uuid.uuid4())

    def commit(self, transaction: Transaction) -> None:
        self.engine.transaction_commit(transaction.identifier)

    def abort(self, transaction: Transaction) -> None:
        self.engine.transaction_abort(transaction.identifier)

    def receive(self, name: str = "q", transaction: Transaction | None = None) -> bytes | None:
        """The body of the first message, taken; None when there is none."""
        descriptor = self.open(name)
        try:
            position = self.engine.dequeue_message(descriptor, timeout=0, transaction=transaction)
        except IOTimeout:
            return None
        finally:
            self.engine.close_queue(descriptor)
        return body_of(at_once(position))

    def bodies(self, name: str = "q") -> list[bytes]:
        """The bodies of all messages in order, as a cursor peeks at them."""
        descriptor = self.open(name, QueueAccessType.PEEK)
        cursor = self.engine.open_cursor(descriptor)
        assert cursor is not None
        found = []
        try:
            position = at_once(self.engine.peek_message(descriptor, timeout=0, cursor=cursor))
            while True:
                found.append(body_of(position))
                position = at_once(self.engine.peek_next_message(descriptor, cursor, timeout=0))
        except IOTimeout:
            return found
        finally:
            self.engine.close_queue(descriptor)

    def lookup_ids(self, name: str = "q") -> dict[bytes, int]:
        """The lookup id of every message a peek sees, by body."""
        queue = self.queue(name)
        found, after = {}, START
        while (position := self.engine.positions.seek_available_message_position(queue, after, peek=True)) is not None:
            after = position.lookup_id
            found[body_of(position)] = after
        return found

    def removals(self) -> list[tuple[bytes, MessageClass]]:
        """A list that fills with (body, reason) of every message that is deleted from now on."""
        seen: list[tuple[bytes, MessageClass]] = []
        self.engine.position_deleted_subscribers.append(
            lambda _queue, position, reason: seen.append((body_of(position), reason))
        )
        return seen

    def messages(self, name: str = "q") -> list[Message]:
        """All messages in order, received and so removed."""
        descriptor = self.open(name)
        found = []
        while (position := self.engine.try_dequeue_message(descriptor)) is not None:
            found.append(Message(position.record.packet))
        self.engine.close_queue(descriptor)
        return found


class Reader:
    """Remembers how a waiting read ended: `h.engine.dequeue_message(d, on_end=reader)`."""

    def __init__(self) -> None:
        self.ends: list[MessagePosition | StatusError] = []

    def __call__(self, end: MessagePosition | StatusError) -> None:
        self.ends.append(end)

    @property
    def body(self) -> bytes | None:
        return body_of(self.ends[0]) if self.ends and isinstance(self.ends[0], MessagePosition) else None

    @property
    def status(self) -> int | None:
        return self.ends[0].status if self.ends and isinstance(self.ends[0], StatusError) else None


def status_of(call: Callable[[], object]) -> int:
    """The status code with which a call fails."""
    with pytest.raises(StatusError) as caught:
        call()
    return caught.value.status


def at_once(start: ReadStart) -> MessagePosition:
    """Return the message that a read found without waiting."""
    assert isinstance(start, MessagePosition)
    return start


def is_waiting(start: ReadStart) -> bool:
    """Whether a read found no message and waits for one."""
    return isinstance(start, WaitingMessageReadOperation) and start.is_waiting


def body_of(position: MessagePosition) -> bytes:
    return Message(position.record.packet).body
