"""Who stands where in an enterprise: sites, routing links and their costs, routing servers, other computers.

What an administrator of Windows sets up in Active Directory, written by name and brought into a directory by
`provision`. Names are those of MS-MQDMPR 3.1.1.1, 3.1.1.7 and 3.1.1.8; MS-MQBR tells what they do.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lanner.directory.filters import AttributeFilter, Operator
from lanner.directory.protocol import Directory
from lanner.model.directory_objects import DirectoryObject, Queue, QueueManager, RoutingLink, Site
from lanner.model.enums import DirectoryOperationResult

T = TypeVar("T", bound=DirectoryObject)

_SUCCESS: Final = DirectoryOperationResult.SUCCESS
_NOT_FOUND: Final = DirectoryOperationResult.OBJECT_NOT_FOUND
_ROUTING_ATTRIBUTES: Final = (
    "SiteIdentifierList",
    "RoutingServer",
    "OutRoutingServerIdentifierList",
    "InRoutingServerIdentifierList",
)


class TopologyError(Exception):
    """The directory cannot be brought to what was asked; the text says which part of it is wrong."""


@dataclass(frozen=True, slots=True)
class Computer:
    """A queue manager: this one, or another that messages go to or through."""

    name: str
    # Needed where the directory does not know the computer yet.
    identifier: uuid.UUID | None = None
    # What its address is looked up by; empty: the directory keeps what it has.
    qualified_computer_name: str = ""
    # Empty: where it is, and for a new computer the only site there is.
    sites: tuple[str, ...] = ()
    routing_server: bool = False
    out_routing_servers: tuple[str, ...] = ()
    in_routing_servers: tuple[str, ...] = ()
    # Its public queues by name, so that they can be sent to from here.
    public_queues: Mapping[str, uuid.UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """A routing link; `site_gates` are computers of either site through which messages pass between them."""

    site1: str
    site2: str
    cost: int = 1
    site_gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """What `provision` is to see to. Whatever else the directory has stays as it is."""

    sites: tuple[str, ...] = ()
    computers: tuple[Computer, ...] = ()
    links: tuple[Link, ...] = ()


def provision(directory: Directory, topology: Topology) -> None:
    """Make or change what the topology names; doing it again changes nothing. Called with the store's lock held."""
    _Provisioning(directory).run(topology)


class _Provisioning:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def run(self, topology: Topology) -> None:
        for name in topology.sites:
            if self._find(Site, "Name", name) is None:
                self._create(Site(name=name), f"site {name}")
        for computer in topology.computers:
            self._ensure_computer(computer)
        # Only now is everybody there whom others may name.
        for computer in topology.computers:
            self._set_routing_servers(computer)
        for link in topology.links:
            self._set_link(link)

    # Computers --------------------------------------------------------------------------------------------------

    def _ensure_computer(self, computer: Computer) -> None:
        what = f"computer {computer.name}"
        there = self._find(QueueManager, "ComputerName", computer.name)
        if there is None:
            if computer.identifier is None:
                raise TopologyError(f"{what}: its identifier is needed, since the directory does not know it yet")
            there = QueueManager(
                identifier=computer.identifier,
                computer_name=computer.name,
                qualified_computer_name=computer.qualified_computer_name,
                site_identifier_list=self._sites_of_new(computer),
                routing_server=computer.routing_server,
            )
            self._create(there, what)
        elif computer.identifier not in (None, there.identifier):
            raise TopologyError(f"{what}: the directory knows it as {there.identifier}, not as {computer.identifier}")
        for name, identifier in computer.public_queues.items():
            self._ensure_queue(f"{computer.name}\\{name}", identifier)

    def _sites_of_new(self, computer: Computer) -> list[uuid.UUID]:
        if computer.sites:
            return self._site_identifiers(computer)
        sites = self._all(Site)
        if len(sites) != 1:
            names = ", ".join(site.name for site in sites)
            raise TopologyError(f"computer {computer.name}: its site is needed, one or more of {names}")
        return [sites[0].identifier]

    def _site_identifiers(self, computer: Computer) -> list[uuid.UUID]:
        return [self._site(name, f"computer {computer.name}") for name in computer.sites]

    def _ensure_queue(self, pathname: str, identifier: uuid.UUID) -> None:
        queue = self._find(Queue, "Identifier", identifier)
        if queue is None:
            self._create(Queue(identifier=identifier, pathname=pathname), f"public queue {pathname}")
        elif queue.pathname != pathname.lower():
            raise TopologyError(f"public queue {pathname}: {identifier} is {queue.pathname} already")

    def _set_routing_servers(self, computer: Computer) -> None:
        what = f"computer {computer.name}"
        there = self._computer(computer.name, what)
        there.routing_server = computer.routing_server
        there.out_routing_server_identifier_list = self._identifiers(computer.out_routing_servers, what)
        there.in_routing_server_identifier_list = self._identifiers(computer.in_routing_servers, what)
        attributes = [*_ROUTING_ATTRIBUTES]
        if computer.sites:
            there.site_identifier_list = self._site_identifiers(computer)
        if computer.qualified_computer_name:
            there.qualified_computer_name = computer.qualified_computer_name
            attributes.append("QualifiedComputerName")
        self._write(there, attributes, what)

    def _identifiers(self, names: Iterable[str], what: str) -> list[uuid.UUID]:
        return [self._computer(name, what).identifier for name in names]

    # Links --------------------------------------------------------------------------------------------------------

    def _set_link(self, link: Link) -> None:
        what = f"routing link {link.site1} - {link.site2}"
        sites = {self._site(link.site1, what), self._site(link.site2, what)}
        if len(sites) != 2:
            raise TopologyError(f"{what}: two different sites are needed")
        gates = [self._computer(name, what) for name in link.site_gates]
        for gate in gates:
            if sites.isdisjoint(gate.site_identifier_list):
                raise TopologyError(f"{what}: the site gate {gate.computer_name} belongs to neither site")
        # It is one link whichever of its sites is named first.
        links = self._all(RoutingLink)
        there = next((one for one in links if {one.site1_identifier, one.site2_identifier} == sites), None)
        is_new = there is None
        if there is None:
            site1 = self._site(link.site1, what)
            (site2,) = sites - {site1}
            there = RoutingLink(site1_identifier=site1, site2_identifier=site2)
        there.actual_cost = link.cost
        there.site_gate_identifier_list = [gate.identifier for gate in gates]
        if is_new:
            self._create(there, what)
        else:
            self._write(there, ["ActualCost", "SiteGateIdentifierList"], what)

    # The directory ------------------------------------------------------------------------------------------------

    def _site(self, name: str, what: str) -> uuid.UUID:
        site = self._find(Site, "Name", name)
        if site is None:
            raise TopologyError(f"{what}: there is no site {name}")
        return site.identifier

    def _computer(self, name: str, what: str) -> QueueManager:
        found = self._find(QueueManager, "ComputerName", name)
        if found is None:
            raise TopologyError(f"{what}: there is no computer {name}")
        return found

    def _find(self, kind: type[T], attribute: str, value: object) -> T | None:
        result, found = self._directory.read(kind.__name__, [AttributeFilter(attribute, Operator.EQUALS, value)])
        if result is not _NOT_FOUND:
            _require(result, f"{kind.__name__} {value}")
        return found if isinstance(found, kind) else None

    def _all(self, kind: type[T]) -> list[T]:
        result, handle = self._directory.read_begin(kind.__name__, None)
        _require(result, f"all objects of {kind.__name__}")
        found: list[T] = []
        if handle is not None:
            while isinstance(member := self._directory.read_next(handle)[1], kind):
                found.append(member)
            self._directory.read_end(handle)
        return found

    def _create(self, obj: DirectoryObject, what: str) -> None:
        _require(self._directory.create_object(obj)[0], what)

    def _write(self, obj: DirectoryObject, attributes: Sequence[str], what: str) -> None:
        _require(self._directory.write(obj, attributes), what)


def _require(result: DirectoryOperationResult, what: str) -> None:
    if result is not _SUCCESS:
        raise TopologyError(f"{what}: the directory answers {result.value}")
