"""`lanner resolve`: explain the name of a queue step by step.

It uses only requests that any program can make. For example, a computer is this one if its
dead-letter queue is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from lanner.cli.errors import nothing
from lanner.cli.options import Json
from lanner.cli.output import counted, say, write_json
from lanner.cli.session import Place, open_manager, peers_of, reaching
from lanner.client import QueueManager
from lanner.client.documents import queue_kind
from lanner.host.names import is_relative
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.errors import StatusError
from lanner.transfer.addresses import parse_literal
from lanner.transfer.addresses import resolve as addresses_of_host
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MachineFormatName,
    MulticastFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueSuffixType,
)
from lanner.wire.spelling import format_name as read_format_name
from lanner.wire.spelling import spelling_of

# The document of one destination in the JSON output.
Destination = dict[str, Any]

_CANNOT = "this name cannot be sent to from here"


@reaching
def resolve(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A queue, in any spelling.", show_default=False)],
    *,
    at: Place,
    json: Json = False,
) -> None:
    """Show step by step what a name means: its format name, and the queue here or the path to it.

    Exit code 3 if the queue is not here, its computer has no address, or nothing can be sent to
    such names.
    """
    with open_manager(at) as manager:
        format_name = manager.names.format_name(name)
        resolver = _Resolver(manager)
        destinations = [resolver.destination(element) for element in format_name.elements]
        computer = manager.name
    missing = [one["problem"] for one in destinations if one["problem"]]
    if json:
        document = {
            "name": name,
            "spelling": spelling_of(name).name.lower(),
            "queue_manager": computer,
            "format_name": str(format_name),
            "destinations": destinations,
        }
        write_json(document)
    else:
        for number, step in enumerate(_steps(name, format_name, computer, destinations), 1):
            say(f"{number:2}. {step}")
    if missing:
        raise nothing("; ".join(missing))


def _steps(name: str, format_name: FormatName, computer: str, destinations: list[Destination]) -> Iterator[str]:
    yield f"{name} is {spelling_of(name).value}"
    elements = read_format_name(name, computer).elements
    is_short = any(map(is_relative, elements))
    yield f"as a format name it is {format_name}" + (f", because this computer is {computer}" if is_short else "")
    if len(destinations) > 1:
        yield f"it names {len(destinations)} destinations, and each gets a copy of the message"
    for one in destinations:
        yield from one["steps"]


class _Resolver:
    """Resolves destinations with one queue manager."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._peers = peers_of(manager)
        self._kinds: tuple[tuple[type[FormatName], Callable[[Any, Destination], None]], ...] = (
            (DirectFormatName, self._direct),
            (PublicFormatName, self._public),
            (PrivateFormatName, self._private),
            (MachineFormatName, self._machine),
            (DistributionListFormatName, self._distribution_list),
            (MulticastFormatName, self._multicast),
            (ConnectorFormatName, self._connector),
        )

    def destination(self, name: FormatName) -> Destination:
        """Return what one element of a format name means.

        `problem` is the reason why a message would not arrive, if that is known.
        """
        found: Destination = {
            "format_name": str(name),
            "kind": name.queue_format_type.name.lower(),
            "local": None,
            "computer": None,
            "addresses": [],
            "queue": None,
            "outgoing": None,
            "problem": None,
            "steps": [],
        }
        next(describe for kind, describe in self._kinds if isinstance(name, kind))(name, found)
        return found

    # By kind
    # ----------------------------------------------------------------------------------------------

    def _direct(self, name: DirectFormatName, found: Destination) -> None:
        found["computer"], found["protocol"] = name.host, name.protocol
        found["local"] = self._is_here(DirectFormatName(rf"OS:{name.host}\system$;DEADLETTER"))
        if found["local"]:
            own = self._manager.name
            called = "" if name.host.lower() == own.lower() else f", {own}"
            found["steps"].append(f"{name.host} is this computer{called}")
            self._queue(name, found)
            return
        found["steps"].append(f"{name.host} is another computer (protocol {name.protocol})")
        if name.why_unsent:
            self._unsent(name, found)
            return
        self._addresses(name.host, found)
        self._outgoing(name, found)

    def _public(self, name: PublicFormatName, found: Destination) -> None:
        self._by_identifier(name, found, lambda one: str(name.identifier) in map(str, one.get("queues", {}).values()))

    def _private(self, name: PrivateFormatName, found: Destination) -> None:
        owner = str(name.queue_manager_identifier)
        own = MachineFormatName(name.queue_manager_identifier, QueueSuffixType.DEADLETTER)
        self._by_identifier(name, found, lambda one: str(one.get("identifier")) == owner, own)

    def _machine(self, name: MachineFormatName, found: Destination) -> None:
        own = MachineFormatName(name.identifier, QueueSuffixType.DEADLETTER)
        self._by_identifier(name, found, lambda one: str(one.get("identifier")) == str(name.identifier), own)

    def _by_identifier(
        self,
        name: FormatName,
        found: Destination,
        is_owner: Callable[[Mapping[str, Any]], bool],
        own: FormatName | None = None,
    ) -> None:
        """Describe a queue whose name has an identifier instead of a computer.

        The directory has the computer that owns it.
        """
        found["local"] = self._is_here(name if own is None else own)
        if found["local"]:
            found["steps"].append(f"the identifier is of this computer, {self._manager.name}")
            self._queue(name, found)
            return
        computers = self._directory().get("computers", {})
        computer = next((key for key, one in computers.items() if is_owner(one)), None)
        if computer is None:
            found["problem"] = f"{name}: neither this computer nor the directory knows the identifier"
            found["steps"].append(f"neither this computer nor the directory knows the identifier: {_CANNOT}")
            return
        if computer.lower() == self._manager.name.lower():
            found["local"] = True
            found["steps"].append(f"in the directory the identifier is of this computer, {computer}")
            self._queue(name, found)
            return
        found["computer"] = computer
        found["steps"].append(f"in the directory the identifier is of the computer {computer}")
        self._addresses(computers[computer].get("address") or computer, found)
        self._outgoing(name, found)

    def _distribution_list(self, name: DistributionListFormatName, found: Destination) -> None:
        lists = self._directory().get("distribution_lists", {})
        title = next((key for key, one in lists.items() if str(one["identifier"]) == str(name.identifier)), None)
        if title is None:
            found["problem"] = f"{name}: the directory has no distribution list with the identifier"
            found["steps"].append(f"the directory has no distribution list with the identifier: {_CANNOT}")
            return
        members = found["members"] = list(lists[title].get("members", []))
        found["steps"].append(f"it is the distribution list {title}, of {counted(len(members), 'queue')}")
        found["steps"] += [f"{title} has the member {member}" for member in members]

    def _multicast(self, name: MulticastFormatName, found: Destination) -> None:
        found["addresses"] = [name.address]
        found["steps"].append(
            f"it is the multicast group {name.address}, port {name.port}: every queue that listens to it"
        )
        self._unsent(name, found)

    def _connector(self, name: ConnectorFormatName, found: Destination) -> None:
        found["steps"].append(f"it is the connector queue of the foreign site {name.identifier}")
        self._queue(name, found)

    # Parts
    # ----------------------------------------------------------------------------------------------

    def _is_here(self, name: FormatName) -> bool:
        queue = self._manager.open(str(name))
        return queue.exists() and not isinstance(queue.attributes(), OutgoingQueue)

    def _unsent(self, name: FormatName, found: Destination) -> None:
        found["problem"] = f"{name}: {name.why_unsent}"
        found["steps"].append(f"{name.why_unsent}: {_CANNOT}")

    def _queue(self, name: FormatName, found: Destination) -> None:
        queue = self._manager.open(str(name))
        if not queue.exists():
            found["problem"] = f"there is no queue {name} on {self._manager.name}"
            found["steps"].append(
                "there is no such queue: `lanner queue create` makes one, `lanner queue list` shows all"
            )
            return
        about = queue.attributes()
        found["queue"] = {"name": about.pathname, "kind": queue_kind(about), "messages": about.message_count}
        transactional = "transactional " if about.transactional else ""
        found["steps"].append(
            f"the queue {about.pathname} is there: {transactional}{queue_kind(about)}, {counted(about.message_count)}"
        )

    def _addresses(self, host: str, found: Destination) -> None:
        try:
            found["addresses"] = addresses_of_host(host, self._peers)
        except OSError as error:
            found["problem"] = f"{host} has no address: {error.strerror or error}"
            found["steps"].append(
                f'{found["problem"]}; give it one in DNS, in /etc/hosts or in the settings: [peers] {host} = "ADDRESS"'
            )
            return
        if any(name.lower() == host.lower() for name in self._peers):
            source = "from the peers table of the settings"
        else:
            source = "the name is an address" if parse_literal(host) is not None else "from the hosts file or DNS"
        found["steps"].append(f"{host} has the address {', '.join(found['addresses'])} ({source})")

    def _outgoing(self, name: FormatName, found: Destination) -> None:
        queue = self._manager.open(str(name))
        if not queue.exists():
            found["steps"].append("there is no outgoing queue for it yet: the first message creates one")
            return
        about = queue.attributes()
        found["outgoing"] = {"name": about.pathname, "messages": about.message_count}
        found["steps"].append(
            f"its outgoing queue holds {counted(about.message_count)}: `lanner outgoing show '{about.pathname}'` "
            "says more"
        )

    def _directory(self) -> Mapping[str, Any]:
        """Return the enterprise that the queue manager has in its directory.

        Returns an empty mapping without a directory.
        """
        try:
            return self._manager.enterprise.document()
        except StatusError:
            return {}
