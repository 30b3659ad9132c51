"""A queue manager that gets change notifications over a session.

The test controls its clock and its directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lanner.directory import AttributeFilter
from lanner.model.directory_objects import DirectoryObject, Queue, QueueManager
from lanner.model.enums import DirectoryOperationResult, QueueType
from lanner.security.signing import SigningKey, sign
from lanner.wire.change_notification import (
    ChangeNotificationMessage,
    NotificationBody,
    NotificationCommand,
    NotificationEvent,
    NotificationUpdate,
)
from lanner.wire.message import Message
from lanner.wire.property_ids import QueueProperty
from lanner.wire.sddl import parse_sddl
from tests.security.samples import queue_manager_keys
from tests.transfer.incoming_harness import PEER, IncomingHarness

# The name under which the embedded directory is queried, and an unknown name.
SERVER = "localhost"
STRANGE_SERVER = "dc9.elsewhere.test"
SECURITY = parse_sddl("O:BAG:BAD:(A;;0x3f;;;AU)").pack()
QUEUE_TYPE = uuid.UUID("55ee8f32-cce9-11cf-b108-0020afd61ce9")
WRITES = ("create_object", "delete_object", "write")


class Notified(IncomingHarness):
    """Directory-integrated; PEER is a directory server of the enterprise unless told otherwise."""

    def __init__(
        self,
        path: Path,
        *,
        is_peer_directory_server: bool = True,
        **settings: Any,  # noqa: ANN401 - any setting
    ) -> None:
        self.is_peer_directory_server = is_peer_directory_server
        # What the directory was asked, and what was changed in it.
        self.reads: list[tuple[str, str, object]] = []
        self.writes: list[str] = []
        self.raised: list[object] = []
        super().__init__(path, **{"directory_integrated": True} | settings)

    def start(self) -> None:
        super().start()
        sites = list(self.engine.queue_manager.site_identifier_list)
        if self.directory.read("QueueManager", [], ["ComputerName"])[1] is not None and not self._has_peer():
            peer = QueueManager(
                identifier=PEER,
                computer_name="DS",
                site_identifier_list=sites,
                directory_server=self.is_peer_directory_server,
                public_signing_key_list=queue_manager_keys().public_key_lists()[1],
            )
            assert self.directory.create_object(peer)[0] is DirectoryOperationResult.SUCCESS
        self._watch()

    def _has_peer(self) -> bool:
        from lanner.engine.directory_events import identifier_is

        return self.directory.read("QueueManager", identifier_is(PEER), ["ComputerName"])[1] is not None

    def _watch(self) -> None:
        read_at: Callable[..., tuple[DirectoryOperationResult, DirectoryObject | None]] = self.directory.read_at

        def reading(
            server: str, kind: str, filters: Sequence[AttributeFilter], attributes: Sequence[str] | None = None
        ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
            self.reads.append((server, kind, filters[0].value))
            return read_at(server, kind, filters, attributes)

        self.directory.answers["read_at"] = reading
        for name in WRITES:
            self._watch_writes(name)
        self.engine.change_notification_subscribers.append(lambda *event: self.raised.append(event))

    def _watch_writes(self, name: str) -> None:
        original: Callable[..., object] = getattr(self.directory, name)

        def writing(*arguments: object) -> object:
            self.writes.append(name)
            return original(*arguments)

        self.directory.answers[name] = writing

    # The directory
    # -----------------------------------------------------------------------------------------

    def published(self, name: str, **values: object) -> Queue:
        """A public queue of this computer that is in the directory and not here."""
        queue = Queue(pathname=rf"ALPHA\{name}", queue_type=QueueType.PUBLIC, identifier=uuid.uuid4())
        # Every object has a descriptor.
        queue.security = SECURITY
        for attribute, value in values.items():
            setattr(queue, attribute, value)
        result, identifier = self.directory.create_object(queue)
        assert result is DirectoryOperationResult.SUCCESS
        assert identifier is not None
        queue.identifier = identifier
        self.writes.clear()
        return queue

    def changed(self, queue: Queue, **values: object) -> None:
        """Change a queue in the directory alone."""
        fresh = Queue(identifier=queue.identifier, queue_type=QueueType.PUBLIC)
        for attribute, value in values.items():
            setattr(fresh, attribute, value)
        assert self.directory.write(fresh, list(values)) is DirectoryOperationResult.SUCCESS
        self.writes.clear()

    def removed(self, queue: Queue) -> None:
        """Delete a queue in the directory alone."""
        assert self.directory.delete_object(queue) is DirectoryOperationResult.SUCCESS
        self.writes.clear()

    def public(self, name: str = "orders", **values: Any) -> Queue:  # noqa: ANN401 - any attribute
        """A public queue that is here and in the directory."""
        made = self.create(rf".\{name}", **values)
        self.writes.clear()
        self.raised.clear()
        return made

    def here(self, name: str) -> Queue | None:
        found = [queue for queue in self.engine.local_queues() if queue.pathname.lower() == rf"alpha\{name}".lower()]
        assert len(found) < 2
        return found[0] if found else None

    @property
    def publics(self) -> list[str]:
        return sorted(queue.pathname for queue in self.engine.local_queues() if queue.queue_type is QueueType.PUBLIC)

    # Notifications
    # -----------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return rf"PRIVATE={self.engine.queue_manager.identifier}\3"

    def tell(self, event: NotificationEvent, identifier: uuid.UUID, server: str = SERVER) -> None:
        """Deliver an unsigned, anonymous message of version 0x02."""
        body = NotificationBody(event, identifier, server)
        self.told(ChangeNotificationMessage.of_body(body).message_body())

    def told(self, body: bytes, *, to: str = "", **properties: Any) -> None:  # noqa: ANN401 - any property
        """A message with a body comes."""
        self.arrive(self.packet(body, to=to or self.address, recoverable=False, **properties))

    def update(self, *updates: NotificationUpdate) -> None:
        """A message of version 0x01 comes, signed by the directory server."""
        self.arrive(self.signed(ChangeNotificationMessage.of_updates(*updates).message_body()))

    def signed(self, body: bytes, *, queue_manager: uuid.UUID = PEER, key: SigningKey | None = None) -> bytes:
        packet = self.packet(body, to=self.address, recoverable=False)
        return sign(packet, key or peer_key(), queue_manager=queue_manager)

    # Time
    # ------------------------------------------------------------------------------------------

    @property
    def delay(self) -> float | None:
        """How long the timer still runs; None: it does not."""
        due = self.engine.notifications.next_deadline()
        return None if due is None else due - self.now

    def process(self, seconds: float = 60.0) -> None:
        """Let time pass, and have everything done that is due then."""
        self.now += seconds
        while (delay := self.delay) is not None and delay <= 0:
            self.engine.on_timer()


def peer_key() -> SigningKey:
    """The signing key of PEER; a queue manager has no certificate."""
    from lanner.security.keys import BEST_FIRST

    return SigningKey(queue_manager_keys().signing[BEST_FIRST[0]])


def change_of(queue: Queue, values: dict[int, object]) -> NotificationUpdate:
    return NotificationUpdate(
        NotificationCommand.CHANGE,
        None,
        queue.identifier,
        PEER,
        tuple(values),
        tuple(values.values()),  # type: ignore[arg-type]
    )


def creation_of(name: str, identifier: uuid.UUID, **others: object) -> NotificationUpdate:
    """The fifteen properties of 3.3.5.2 for a new queue of this computer."""
    path = name if "\\" in name else rf"ALPHA\{name}"
    values: dict[int, object] = {
        QueueProperty.TYPE: QUEUE_TYPE,
        QueueProperty.INSTANCE: identifier,
        QueueProperty.BASEPRIORITY: -3,
        QueueProperty.JOURNAL: 1,
        QueueProperty.QUOTA: 77,
        QueueProperty.JOURNAL_QUOTA: 55,
        QueueProperty.CREATE_TIME: 1_600_000_001,
        QueueProperty.MODIFY_TIME: 1_600_000_002,
        QueueProperty.SCOPE: 0,
        QueueProperty.SECURITY: SECURITY,
        QueueProperty.PATHNAME: path,
        QueueProperty.LABEL: "from the directory",
        QueueProperty.AUTHENTICATE: 1,
        QueueProperty.PRIV_LEVEL: 2,
        QueueProperty.TRANSACTION: 1,
    }
    values |= {QueueProperty[key]: value for key, value in others.items()}
    return NotificationUpdate(
        NotificationCommand.CREATE,
        path,
        None,
        PEER,
        tuple(values),
        tuple(values.values()),  # type: ignore[arg-type]
    )


def deletion_of(identifier: uuid.UUID, *values: int) -> NotificationUpdate:
    values = values or (1, 1)
    return NotificationUpdate(NotificationCommand.DELETE, None, identifier, PEER, (1403, 1404)[: len(values)], values)


def sent_body(message: Message) -> ChangeNotificationMessage:
    """The Change Notification Message of a message, without its spare octet."""
    return ChangeNotificationMessage.unpack(message.body[:-1])
