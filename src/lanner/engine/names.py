"""Which queue a name means (MS-MQDMPR 3.1.7.1.26, 3.1.7.3.8, and the matching step of Open Queue)."""

from __future__ import annotations

import ipaddress
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from lanner.engine.directory_events import DirectoryEvents, identifier_is
from lanner.model.directory_objects import Queue, QueueManager
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import IllegalFormatname, QueueNotFound
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MachineFormatName,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueSuffixType,
    parse,
)

if TYPE_CHECKING:
    import uuid

    from lanner.wire.path_name import PathName, QueuePart


class Names(DirectoryEvents):
    """From names to queues and back."""

    def is_local_host(self, host: str) -> bool:
        """DECISIONS: NetBIOS name, FQDN, every local address and localhost mean this computer."""
        host = _canonical_host(host)
        qm = self.queue_manager
        return (
            host in (".", "localhost", qm.computer_name.lower(), qm.qualified_computer_name.lower())
            or host in self.settings.local_addresses
        )

    def find_by_path(self, path: PathName) -> Queue | None:
        """The local queue of a path name."""
        return self._by_path.get(path_key(path.queue_part)) if self.is_local_host(path.computer) else None

    def find_queue(self, name: FormatName) -> Queue | None:
        """The queue of QueueCollection that a single-element format name means, if it is here."""
        if isinstance(name, DirectFormatName):
            if name.queue_part is not None and self.is_local_host(name.host):
                return self._by_path.get(path_key(name.queue_part))
        elif isinstance(name, PublicFormatName):
            return _queue_or_journal(self._by_identifier.get(name.identifier), is_journal=name.is_journal)
        elif isinstance(name, PrivateFormatName):
            if name.queue_manager_identifier == self.queue_manager.identifier:
                queue = self._by_private_number.get(name.number) or self._by_private_name.get(name.number)
                return _queue_or_journal(queue, is_journal=name.is_journal)
        elif isinstance(name, MachineFormatName):
            if name.identifier == self.queue_manager.identifier:
                return self._system_queue(name.system_queue)
        elif isinstance(name, ConnectorFormatName):
            return self._by_connector.get(name.key)
        return None

    @cached_property
    def _by_private_name(self) -> dict[int, Queue]:
        """Private queues by what MC-MQAC 3.1.6.2 makes of their names; a number that was given to a queue counts first."""
        return {}

    def private_format_name(self, path: PathName) -> PrivateFormatName:
        """MS-MQMP 3.1.4.11: the private format name of a private queue here or of its journal."""
        queue = None if path.subqueue is not None else self.find_by_path(path.without_suffix())
        if queue is None or not queue.private_queue_number:
            raise QueueNotFound(f"no private queue {path}")
        return PrivateFormatName(self.queue_manager.identifier, queue.private_queue_number, path.is_journal)

    def find_outgoing_queue(self, name: FormatName) -> Queue | None:
        """The outgoing queue for a destination, if there is one."""
        return self._by_destination.get(name.key)

    def _system_queue(self, suffix: QueueSuffixType) -> Queue | None:
        qm = self.queue_manager
        return {
            QueueSuffixType.JOURNAL: qm.system_journal_queue,
            QueueSuffixType.DEADLETTER: qm.system_deadletter_queue,
            QueueSuffixType.DEADXACT: qm.system_transactional_deadletter_queue,
        }.get(suffix)

    def format_name_of(self, queue: Queue) -> FormatName:
        """The name other computers use: DIRECT=OS:computer and the path of the queue."""
        return parse(f"DIRECT=OS:{queue.pathname}")

    def get_queue_path(self, name: FormatName) -> tuple[str, str]:
        """3.1.7.1.26 Get Queue Path: (path name, machine name), empty where there is none."""
        if isinstance(name, DirectFormatName):
            if name.is_http:
                return "", name.host
            return f"{name.address}\\{name.text.partition(chr(92))[2]}", name.address
        if isinstance(name, PublicFormatName):
            queue = self._read_queue(name.identifier)
            if queue is None:
                raise IllegalFormatname(f"{name}: no such public queue in the directory")
            host = queue.queue_manager.computer_name if queue.queue_manager else ""
            return queue.pathname, host
        if isinstance(name, PrivateFormatName):
            result, found = self.read_directory("QueueManager", identifier_is(name.queue_manager_identifier))
            if result is not DirectoryOperationResult.SUCCESS or not isinstance(found, QueueManager):
                raise IllegalFormatname(f"{name}: no such computer in the directory")
            local = self.find_queue(name)
            return local.pathname if local is not None else "", found.computer_name
        return "", ""

    def _read_queue(self, identifier: uuid.UUID) -> Queue | None:
        result, found = self.read_directory("Queue", identifier_is(identifier))
        return found if result is DirectoryOperationResult.SUCCESS and isinstance(found, Queue) else None

    def _expand_format_name(self, name: FormatName) -> FormatName:
        """3.1.7.3.8 Expand Format Name: distribution lists replaced by their members, each list once."""
        if not isinstance(name, (DistributionListFormatName, MultipleElementFormatName)):
            return name
        found: dict[str, FormatName] = {}
        seen: set[str] = set()
        pending = list(name.elements)
        while pending:
            element = pending.pop()
            if element.key in seen:
                continue
            seen.add(element.key)
            if not isinstance(element, DistributionListFormatName):
                found[element.key] = element
                continue
            members = self.directory.resolve_distribution_list(element.identifier, element.domain)
            if members is None:
                raise IllegalFormatname(f"{element}: no such distribution list in the directory")
            for member in members:
                pending.extend(parse(member).elements)
        if not found:
            raise IllegalFormatname(f"{name}: the distribution list has no members")
        elements = tuple(found[key] for key in sorted(found))
        return elements[0] if len(elements) == 1 else MultipleElementFormatName(elements)


@lru_cache(maxsize=1024)
def _canonical_host(host: str) -> str:
    """Return a host in lower case; an address in its shortest form, since IPv6 has several."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return host.lower()


def private_queue_local_identifier(name: str) -> int:
    """MC-MQAC 3.1.6.2: a number of 32 bits for the name of a private queue, which no queue manager has to be asked for."""
    value = 0
    for character in name:
        value = (value << 5) + ord(character) + value & 0xFFFF_FFFF
    return value


def path_key(part: QueuePart) -> str:
    """The key of a local queue: its path without the computer, without case."""
    return str(part).lower()


def _queue_or_journal(queue: Queue | None, *, is_journal: bool) -> Queue | None:
    return queue.journal_queue if queue is not None and is_journal else queue
