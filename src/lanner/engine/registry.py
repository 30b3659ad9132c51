"""The registry: QueueCollection with its indexes, and which queue a name means.

Queues that have a path on this computer are found by path, by identifier (public) and by number
(private). Outgoing and connector queues are found by their format name.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import QueueType
from lanner.model.errors import QueueNotFound
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    FormatName,
    MachineFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueSuffixType,
)
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from lanner.engine.core import Core
    from lanner.wire.path_name import QueuePart


class QueueRegistry:
    """The queues of a queue manager and their names."""

    def __init__(self, core: Core) -> None:
        self._queue_manager = core.queue_manager
        self._attributes = core.attributes
        self._settings = core.settings
        self._by_path: dict[str, Queue] = {}
        self._by_identifier: dict[uuid.UUID, Queue] = {}
        self._by_private_number: dict[int, Queue] = {}
        # Private queues by the number that MC-MQAC 3.1.6.2 computes from the name. A number that
        # was assigned to a queue takes precedence.
        self._by_private_name: dict[int, Queue] = {}
        self._by_destination: dict[str, Queue] = {}
        self._by_connector: dict[str, Queue] = {}
        # Numbers of the outgoing queues created for messages of other computers.
        self._for_others: set[int] = set()
        # Numbers of the outgoing queues created for messages of users, by the user's SID.
        self._by_maker: dict[str, set[int]] = {}

    @property
    def count_for_others(self) -> int:
        """The number of outgoing queues created for messages of other computers."""
        return len(self._for_others)

    def count_made_by(self, maker: str) -> int:
        """Return the number of outgoing queues created for messages of a user, given by its SID."""
        return len(self._by_maker.get(maker, ()))

    # Membership -----------------------------------------------------------------------------------

    def register(self, queue: Queue) -> None:
        """Add a queue to QueueCollection, durably."""
        self._attributes.save_queue(queue)
        self.index(queue)

    def index(self, queue: Queue) -> None:
        """Add a queue to QueueCollection and to the indexes."""
        qm = self._queue_manager
        qm.queue_collection[queue.number] = queue
        queue.queue_manager = qm
        by_name = self._by_format_name(queue)
        if by_name is not None:
            by_name[FormatName.parse(queue.pathname).key] = queue
            if isinstance(queue, OutgoingQueue) and queue.is_for_others:
                self._for_others.add(queue.number)
            if isinstance(queue, OutgoingQueue) and queue.maker:
                self._by_maker.setdefault(queue.maker, set()).add(queue.number)
            return
        part = PathName.parse(queue.pathname).queue_part
        self._by_path[path_key(part)] = queue
        if queue.queue_type is QueueType.PUBLIC and not queue.parent:
            self._by_identifier[queue.identifier] = queue
            for former in queue.former_identifiers:
                self._by_identifier.setdefault(former, queue)
        if queue.private_queue_number:
            self._by_private_number[queue.private_queue_number] = queue
            self._by_private_name.setdefault(private_queue_local_identifier(part.name), queue)
        parent = qm.queue_collection.get(queue.parent)
        if parent is not None:
            if part.is_journal:
                parent.journal_queue = queue
            elif part.subqueue is not None:
                parent.subqueues[part.subqueue.lower()] = queue

    def unindex(self, queue: Queue) -> None:
        """Remove a queue from QueueCollection and from the indexes."""
        qm = self._queue_manager
        qm.queue_collection.pop(queue.number, None)
        by_name = self._by_format_name(queue)
        if by_name is not None:
            by_name.pop(FormatName.parse(queue.pathname).key, None)
            self._for_others.discard(queue.number)
            if isinstance(queue, OutgoingQueue) and queue.maker in self._by_maker:
                self._by_maker[queue.maker].discard(queue.number)
                if not self._by_maker[queue.maker]:
                    del self._by_maker[queue.maker]
            return
        part = PathName.parse(queue.pathname).queue_part
        self._by_path.pop(path_key(part), None)
        for identifier in (queue.identifier, *queue.former_identifiers):
            if self._by_identifier.get(identifier) is queue:
                del self._by_identifier[identifier]
        self._by_private_number.pop(queue.private_queue_number, None)
        number = private_queue_local_identifier(part.name)
        if self._by_private_name.get(number) is queue:
            del self._by_private_name[number]
        parent = qm.queue_collection.get(queue.parent)
        if parent is not None and part.subqueue is not None:
            parent.subqueues.pop(part.subqueue.lower(), None)

    def _by_format_name(self, queue: Queue) -> dict[str, Queue] | None:
        """Return the index of a queue that has no path here; None for other queues."""
        if isinstance(queue, OutgoingQueue):
            return self._by_destination
        return self._by_connector if queue.queue_type is QueueType.CONNECTOR else None

    def set_identifier(self, queue: Queue, identifier: uuid.UUID) -> None:
        """Set the identifier that the directory has for a public queue.

        The caller saves the queue.
        """
        self._by_identifier.pop(queue.identifier, None)
        queue.identifier = identifier
        self._by_identifier[identifier] = queue

    def rename(self, queue: Queue, path: PathName) -> None:
        """Give a queue, its journal and its subqueues another path name, durably."""
        qm = self._queue_manager
        parts = [part for part in (queue, queue.journal_queue, *queue.subqueues.values()) if part is not None]
        for part in parts:
            self.unindex(part)
        for part in parts:
            old = PathName.parse(part.pathname)
            new = replace(path, subqueue=old.subqueue, is_journal=old.is_journal)
            part.pathname = str(new.with_computer(qm.computer_name))
            part.qualified_pathname = str(new.with_computer(qm.qualified_computer_name))
            self.register(part)

    def local_queues(self) -> Iterator[Queue]:
        """Yield public and private queues, no journals, subqueues, system or outgoing queues."""
        for queue in self._queue_manager.queue_collection.values():
            is_local = queue.queue_type in (QueueType.PRIVATE, QueueType.PUBLIC) and not queue.parent
            if is_local and not isinstance(queue, OutgoingQueue):
                yield queue

    def outgoing_queues(self) -> Iterator[OutgoingQueue]:
        """Yield the queues whose messages wait for another computer."""
        for queue in self._queue_manager.queue_collection.values():
            if isinstance(queue, OutgoingQueue):
                yield queue

    # Names ----------------------------------------------------------------------------------------

    def is_local_host(self, host: str) -> bool:
        """Return whether a host name or address means this computer.

        DECISIONS: NetBIOS name, FQDN, every local address and localhost do.
        """
        host = _canonical_host(host)
        qm = self._queue_manager
        return (
            host in (".", "localhost", qm.computer_name.lower(), qm.qualified_computer_name.lower())
            or host in self._settings.local_addresses
        )

    def is_own(self, identifier: uuid.UUID) -> bool:
        """Return whether an identifier is, or was, that of this queue manager."""
        qm = self._queue_manager
        return identifier == qm.identifier or identifier in qm.former_identifiers

    def has_path(self, path: PathName) -> bool:
        """Return whether a queue has this path. The path's computer is not compared."""
        return path_key(path.queue_part) in self._by_path

    def find_by_path(self, path: PathName) -> Queue | None:
        """Return the local queue of a path name."""
        return self._by_path.get(path_key(path.queue_part)) if self.is_local_host(path.computer) else None

    def find_queue(self, name: FormatName) -> Queue | None:
        """Return the local queue that a single-element format name means, if there is one."""
        if isinstance(name, DirectFormatName):
            if name.queue_part is not None and self.is_local_host(name.host):
                return self._by_path.get(path_key(name.queue_part))
        elif isinstance(name, PublicFormatName):
            return _queue_or_journal(self._by_identifier.get(name.identifier), is_journal=name.is_journal)
        elif isinstance(name, PrivateFormatName):
            if self.is_own(name.queue_manager_identifier):
                queue = self._by_private_number.get(name.number) or self._by_private_name.get(name.number)
                return _queue_or_journal(queue, is_journal=name.is_journal)
        elif isinstance(name, MachineFormatName):
            if self.is_own(name.identifier):
                return self._system_queue(name.system_queue)
        elif isinstance(name, ConnectorFormatName):
            return self._by_connector.get(name.key)
        return None

    def find_by_identifier(self, identifier: uuid.UUID) -> Queue | None:
        """Return the local public queue with an identifier in the directory."""
        return self._by_identifier.get(identifier)

    def find_outgoing_queue(self, name: FormatName) -> Queue | None:
        """Return the outgoing queue for a destination, if there is one."""
        return self._by_destination.get(name.key)

    def _system_queue(self, suffix: QueueSuffixType) -> Queue | None:
        qm = self._queue_manager
        return {
            QueueSuffixType.JOURNAL: qm.system_journal_queue,
            QueueSuffixType.DEADLETTER: qm.system_deadletter_queue,
            QueueSuffixType.DEADXACT: qm.system_transactional_deadletter_queue,
        }.get(suffix)

    def no_queue(self, name: FormatName) -> QueueNotFound:
        """Return the error for a name that means no local queue."""
        return QueueNotFound(f"no queue {name} on {self._queue_manager.computer_name}")


@lru_cache(maxsize=1024)
def _canonical_host(host: str) -> str:
    """Return a host in lower case. An address is shortened, because IPv6 has several spellings."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return host.lower()


def private_queue_local_identifier(name: str) -> int:
    """Return the 32-bit number computed from the name of a private queue (MC-MQAC 3.1.6.2)."""
    value = 0
    for character in name:
        value = (value << 5) + ord(character) + value & 0xFFFF_FFFF
    return value


def path_key(part: QueuePart) -> str:
    """Return the key of a local queue: its path without the computer, in lower case."""
    return str(part).lower()


def _queue_or_journal(queue: Queue | None, *, is_journal: bool) -> Queue | None:
    return queue.journal_queue if queue is not None and is_journal else queue
