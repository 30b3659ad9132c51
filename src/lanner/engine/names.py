"""Names that need the directory, and names of local queues (MS-MQDMPR 3.1.7.1.26, 3.1.7.3.8).

The `registry` decides which local queue a name means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import Queue, QueueManager
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import IllegalFormatname, QueueNotFound
from lanner.wire.format_name import (
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
    parse,
)

if TYPE_CHECKING:
    import uuid

    from lanner.engine.core import Core
    from lanner.engine.directory_events import DirectoryEvents
    from lanner.engine.registry import QueueRegistry
    from lanner.wire.path_name import PathName


class Names:
    """Conversions between names."""

    def __init__(self, core: Core, registry: QueueRegistry, directory_events: DirectoryEvents) -> None:
        self._queue_manager = core.queue_manager
        self.registry = registry
        self.directory_events = directory_events

    def where(self) -> str:
        """Return where indirect names are looked up, for the error about a missing one."""
        if self._queue_manager.directory_offline:
            return (
                "among the answers that the directory gave before it became unreachable; try again when a domain "
                "controller answers (`lanner domain status`)"
            )
        if self._queue_manager.directory_integrated:
            return "in the directory"
        return (
            "in the directory of this computer, which is in no domain: it knows only what `lanner directory apply` "
            "has told it; use a direct name (DIRECT=OS:computer\\private$\\queue), or make the other computer known"
        )

    def private_format_name(self, path: PathName) -> PrivateFormatName:
        """Return the private format name of a local queue or of its journal (MS-MQMP 3.1.4.11)."""
        queue = None if path.subqueue is not None else self.registry.find_by_path(path.without_suffix())
        if queue is None or not queue.private_queue_number:
            raise QueueNotFound(f"no private queue {path}")
        return PrivateFormatName(self._queue_manager.identifier, queue.private_queue_number, path.is_journal)

    def get_queue_path(self, name: FormatName) -> tuple[str, str]:
        """3.1.7.1.26 Get Queue Path.

        Returns the path name and the machine name, each empty if there is none.
        """
        if isinstance(name, DirectFormatName):
            if name.is_http:
                return "", name.host
            return f"{name.address}\\{name.text.partition(chr(92))[2]}", name.address
        if isinstance(name, PublicFormatName):
            queue = self.read_queue(name.identifier)
            if queue is None:
                raise IllegalFormatname(f"{name}: no such public queue {self.where()}")
            host = queue.queue_manager.computer_name if queue.queue_manager else ""
            return queue.pathname, host
        if isinstance(name, PrivateFormatName):
            result, found = self.directory_events.read_directory(
                "QueueManager", identifier_is(name.queue_manager_identifier)
            )
            if result is not DirectoryOperationResult.SUCCESS or not isinstance(found, QueueManager):
                raise IllegalFormatname(f"{name}: no such computer {self.where()}")
            local = self.registry.find_queue(name)
            return local.pathname if local is not None else "", found.computer_name
        return "", ""

    def read_queue(self, identifier: uuid.UUID) -> Queue | None:
        """Return the object of a public queue in the directory."""
        result, found = self.directory_events.read_directory("Queue", identifier_is(identifier))
        return found if result is DirectoryOperationResult.SUCCESS and isinstance(found, Queue) else None

    def expand_format_name(self, name: FormatName) -> FormatName:
        """3.1.7.3.8 Expand Format Name.

        Returns the name with distribution lists replaced by their members. Each list is expanded
        once.
        """
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
            directory = self.directory_events.directory
            result, members = directory.resolve_distribution_list(element.identifier, element.domain)
            if members is None:
                raise IllegalFormatname(f"{element}: no such distribution list {self.where()} ({result.value})")
            for member in members:
                pending.extend(parse(member).elements)
        if not found:
            raise IllegalFormatname(f"{name}: the distribution list has no members")
        elements = tuple(found[key] for key in sorted(found))
        return elements[0] if len(elements) == 1 else MultipleElementFormatName(elements)
