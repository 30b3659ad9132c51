"""The topology of an enterprise: sites, routing links, servers, computers, distribution lists.

On Windows, an administrator sets it up in Active Directory. Here its parts refer to each other by
name. `provision` writes it to a directory, and `survey` reads it back. The classes have the names
of MS-MQDMPR 3.1.1.1, 3.1.1.7 and 3.1.1.8; MS-MQBR describes what they do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from lanner.directory.filters import AttributeFilter, Operator
from lanner.directory.names import split_pathname
from lanner.directory.protocol import Directory, Keeper, read_all
from lanner.model.directory_objects import (
    ROUTING_LINK_COST,
    DirectoryObject,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import LannerError, RemoteProtocolError
from lanner.security.certificates import add_certificate, certificates_of
from lanner.security.listed_keys import check_signing_keys
from lanner.wire.public_keys import MqdsPublicKeys
from lanner.wire.sid import Sid, sid_text
from lanner.wire.spelling import check_computer, format_name

T = TypeVar("T", bound=DirectoryObject)

_SUCCESS: Final = DirectoryOperationResult.SUCCESS
_EXISTS: Final = DirectoryOperationResult.OBJECT_ALREADY_EXISTS
_NOT_FOUND: Final = DirectoryOperationResult.OBJECT_NOT_FOUND
_ROUTING_ATTRIBUTES: Final = (
    "SiteIdentifierList",
    "RoutingServer",
    "OutRoutingServerIdentifierList",
    "InRoutingServerIdentifierList",
)


class TopologyError(LannerError):
    """The directory cannot be brought to the requested state; the text names the wrong part."""


@dataclass(frozen=True, slots=True)
class Computer:
    """A queue manager: this one, or another that messages go to or through."""

    name: str
    # Needed if the directory does not have the computer yet.
    identifier: uuid.UUID | None = None
    # The name by which its address is looked up; empty: unchanged.
    qualified_computer_name: str = ""
    # Empty: unchanged; for a new computer, the only existing site.
    sites: tuple[str, ...] = ()
    routing_server: bool = False
    out_routing_servers: tuple[str, ...] = ()
    in_routing_servers: tuple[str, ...] = ()
    # Its public queues by name, so that messages can be sent to them from here.
    public_queues: Mapping[str, uuid.UUID] = field(default_factory=dict)
    # PublicEncryptionKeyList and PublicSigningKeyList, MQDSPUBLICKEYS: to encrypt for the computer,
    # and to verify its signatures. Empty: unchanged.
    encryption_keys: bytes = b""
    signing_keys: bytes = b""


@dataclass(frozen=True, slots=True)
class Link:
    """A routing link between two sites.

    `site_gates` are computers of either site through which messages pass between them.
    """

    site1: str
    site2: str
    cost: int = 1
    site_gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DistributionList:
    """A list of queues, addressed by DL= and its identifier.

    Its members are format names, which may be other lists.
    """

    name: str
    identifier: uuid.UUID
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signer:
    """A user of any computer, and the certificates for its signatures (X.509, DER)."""

    sid: str
    name: str = ""
    certificates: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """The content that `provision` ensures. All other objects of the directory stay as they are."""

    sites: tuple[str, ...] = ()
    computers: tuple[Computer, ...] = ()
    links: tuple[Link, ...] = ()
    distribution_lists: tuple[DistributionList, ...] = ()
    signers: tuple[Signer, ...] = ()


class Changes(Protocol):
    """Makes changes to objects: a directory, or queue manager events that announce them."""

    def create_object(self, obj: DirectoryObject) -> tuple[DirectoryOperationResult, uuid.UUID | None]: ...

    def delete_object(self, obj: DirectoryObject) -> DirectoryOperationResult: ...

    def write(self, obj: DirectoryObject, attributes: Sequence[str] | None = None) -> DirectoryOperationResult: ...


def provision(directory: Directory, topology: Topology, changes: Changes | None = None) -> list[str]:
    """Create or change the objects of the topology; return the changes made.

    A second call changes nothing. The caller holds the store's lock. `changes` makes the changes;
    without it, the directory does.

    Raises TopologyError, with nothing changed, if the parts of the topology contradict each other.
    """
    if directory.keeper is not None:
        # Some errors appear only when the changes are made, such as an identifier that is in use.
        # The rehearsal finds them before anything is changed.
        _Provisioning(directory.keeper.rehearsal()).run(topology)
    return _Provisioning(directory, changes).run(topology)


def survey(directory: Directory) -> Topology:
    """Return everything that the directory knows, in the order of names."""
    return _Provisioning(directory).survey()


def signers(directory: Directory) -> list[Signer]:
    """Return the users that have a certificate, in the order of their SIDs."""
    return _Provisioning(directory).signers()


def remove(directory: Directory, kind: str, *names: str, changes: Changes | None = None) -> None:
    """Remove a site, a computer with its public queues, a link, a list or a user.

    A link is named by its two sites. The caller holds the store's lock.
    """
    _Provisioning(directory, changes).remove(kind, names)


class _Provisioning:
    def __init__(self, directory: Directory, changes: Changes | None = None) -> None:
        self._directory = directory
        self._changes: Changes = changes or directory
        self._done: list[str] = []

    def run(self, topology: Topology) -> list[str]:
        self._check(topology)
        for name in topology.sites:
            if self._find(Site, "Name", name) is None:
                self._create(Site(name=name), f"site {name}")
        for computer in topology.computers:
            self._ensure_computer(computer)
        # Now every object exists, and the rest may refer to them.
        for computer in topology.computers:
            self._set_routing_servers(computer)
        for link in topology.links:
            self._set_link(link)
        for each in topology.distribution_lists:
            self._set_list(each)
        for signer in topology.signers:
            self._set_signer(signer)
        return self._done

    def _check(self, topology: Topology) -> None:
        """Check that everything named exists, before anything is changed."""
        sites = {site.name.casefold() for site in self._all(Site)} | {name.casefold() for name in topology.sites}
        there = {found.computer_name.casefold(): found for found in self._all(QueueManager)}
        computers = there.keys() | {computer.name.casefold() for computer in topology.computers}

        def need(names: Iterable[str], known: Iterable[str], what: str, kind: str) -> None:
            for name in names:
                if name.casefold() not in known:
                    raise TopologyError(f"{what}: there is no {kind} {name}")

        _check_once("site", topology.sites)
        _check_once("computer", (computer.name for computer in topology.computers))
        _check_once("distribution list", (each.name for each in topology.distribution_lists))
        _check_once("user", (signer.sid for signer in topology.signers))
        _check_once(
            "routing link", (" - ".join(sorted((one.site1, one.site2), key=str.casefold)) for one in topology.links)
        )
        for computer in topology.computers:
            what = f"computer {computer.name}"
            try:
                check_computer(computer.name)
            except ValueError as error:
                raise TopologyError(f"{what}: {error}") from None
            found = there.get(computer.name.casefold())
            if found is None and computer.identifier is None:
                raise TopologyError(f"{what}: its identifier is needed, since the directory does not know it yet")
            if found is not None and computer.identifier not in (None, found.identifier):
                raise TopologyError(
                    f"{what}: the directory knows it as {found.identifier}, not as {computer.identifier}"
                )
            for keys, check in (
                (computer.encryption_keys, MqdsPublicKeys.unpack),
                (computer.signing_keys, check_signing_keys),
            ):
                try:
                    check(keys)
                except LannerError as error:
                    raise TopologyError(f"{what}: its keys cannot be read: {error}") from None
            need(computer.sites, sites, what, "site")
            need((*computer.out_routing_servers, *computer.in_routing_servers), computers, what, "computer")
            if found is None and not computer.sites and len(sites) != 1:
                raise TopologyError(f"{what}: its site is needed, one or more of {', '.join(sorted(sites))}")
        for link in topology.links:
            what = f"routing link {link.site1} - {link.site2}"
            need((link.site1, link.site2), sites, what, "site")
            need(link.site_gates, computers, what, "computer")
            if link.site1.casefold() == link.site2.casefold():
                raise TopologyError(f"{what}: two different sites are needed")
            if link.cost not in ROUTING_LINK_COST:
                raise TopologyError(f"{what}: its cost is {link.cost}: 1 to 999999 expected")
            for gate in link.site_gates:
                if {link.site1.casefold(), link.site2.casefold()}.isdisjoint(self._sites_of(gate, topology)):
                    raise TopologyError(f"{what}: the site gate {gate} belongs to neither site")
        for each in topology.distribution_lists:
            for member in each.members:
                try:
                    format_name(member, short_names=False)
                except LannerError as error:
                    raise TopologyError(f"distribution list {each.name}: {error}") from None

    def _sites_of(self, name: str, topology: Topology) -> set[str]:
        """Return the sites where a computer will be."""
        for computer in topology.computers:
            if computer.name.casefold() == name.casefold() and computer.sites:
                return {site.casefold() for site in computer.sites}
        found = self._find(QueueManager, "ComputerName", name)
        if found is None:
            return {site.name.casefold() for site in self._all(Site)}
        return {site.name.casefold() for site in self._all(Site) if site.identifier in found.site_identifier_list}

    # Survey
    # ----------------------------------------------------------------------------------------------

    def survey(self) -> Topology:
        sites = {site.identifier: site.name for site in self._all(Site)}
        managers = {found.identifier: found for found in self._all(QueueManager)}
        queues: dict[str, dict[str, uuid.UUID]] = {}
        for queue in self._all(Queue):
            computer, name = split_pathname(queue.pathname)
            queues.setdefault(computer.casefold(), {})[name] = queue.identifier

        def names(identifiers: Iterable[uuid.UUID]) -> tuple[str, ...]:
            return tuple(managers[one].computer_name for one in identifiers if one in managers)

        computers = [
            Computer(
                found.computer_name,
                found.identifier,
                found.qualified_computer_name,
                tuple(sites[one] for one in found.site_identifier_list if one in sites),
                found.routing_server,
                names(found.out_routing_server_identifier_list),
                names(found.in_routing_server_identifier_list),
                dict(sorted(queues.get(found.computer_name.casefold(), {}).items())),
                found.public_encryption_key_list,
                found.public_signing_key_list,
            )
            for found in managers.values()
        ]
        links = [
            Link(
                sites[link.site1_identifier],
                sites[link.site2_identifier],
                link.actual_cost,
                names(link.site_gate_identifier_list),
            )
            for link in self._all(RoutingLink)
            if {link.site1_identifier, link.site2_identifier} <= sites.keys()
        ]
        lists = [DistributionList(*each) for each in self._lists()]
        return Topology(
            tuple(sorted(sites.values())),
            tuple(sorted(computers, key=lambda computer: computer.name)),
            tuple(sorted(links, key=lambda link: (link.site1, link.site2))),
            tuple(sorted(lists, key=lambda each: each.name)),
            tuple(self.signers()),
        )

    def signers(self) -> list[Signer]:
        names = {} if self._directory.keeper is None else self._directory.keeper.user_names()
        found = [
            Signer(
                sid_text(user.security_identifier),
                names.get(user.identifier, ""),
                _certificates(user),
            )
            for user in self._all(User)
        ]
        return sorted((signer for signer in found if signer.certificates), key=lambda signer: signer.sid)

    def _lists(self) -> list[tuple[str, uuid.UUID, tuple[str, ...]]]:
        return [] if self._directory.keeper is None else self._directory.keeper.distribution_lists()

    # Removing
    # ------------------------------------------------------------------------------------------

    def remove(self, kind: str, names: tuple[str, ...]) -> None:
        ways: dict[str, Callable[..., None]] = {
            "site": self._remove_site,
            "computer": self._remove_computer,
            "link": self._remove_link,
            "list": self._remove_list,
            "user": self._remove_signer,
        }
        wanted = 2 if kind == "link" else 1
        if kind not in ways or len(names) != wanted:
            raise TopologyError(
                "what is removed is a site, a computer or a list by its name, a link by its two sites, or a user by "
                "its SID"
            )
        ways[kind](*names)

    def _remove_site(self, name: str) -> None:
        what = f"site {name}"
        identifier = self._site(name, what)
        for link in self._all(RoutingLink):
            if identifier in (link.site1_identifier, link.site2_identifier):
                raise TopologyError(f"{what}: a routing link leads there; remove that first")
        for computer in self._all(QueueManager):
            if identifier in computer.site_identifier_list:
                raise TopologyError(f"{what}: computer {computer.computer_name} is there; give it another site first")
        self._delete(Site(identifier=identifier, name=name), what)

    def _remove_computer(self, name: str) -> None:
        what = f"computer {name}"
        there = self._computer(name, what)
        known = self.survey()
        for link in known.links:
            if there.computer_name in link.site_gates:
                raise TopologyError(
                    f"{what}: it is a site gate of {link.site1} - {link.site2}; name others there first"
                )
        for computer in known.computers:
            servers = (*computer.out_routing_servers, *computer.in_routing_servers)
            if there.computer_name in servers and computer.name != there.computer_name:
                raise TopologyError(f"{what}: it is a routing server of {computer.name}; name others there first")
        for queue in self._all(Queue):
            if split_pathname(queue.pathname)[0].casefold() == name.casefold():
                self._delete(queue, f"public queue {queue.pathname}")
        self._delete(there, what)

    def _remove_link(self, site1: str, site2: str) -> None:
        what = f"routing link {site1} - {site2}"
        sites = {self._site(site1, what), self._site(site2, what)}
        link = self._link_between(sites)
        if link is None:
            raise TopologyError(f"{what}: there is no such link")
        self._delete(link, what)

    def _remove_list(self, name: str) -> None:
        what = f"distribution list {name}"
        if not any(found.casefold() == name.casefold() for found, *_ in self._lists()):
            raise TopologyError(f"{what}: there is no such list")
        self._keeper(what).remove_named(name)

    def _remove_signer(self, sid: str) -> None:
        what = f"user {sid}"
        user = self._find(User, "SecurityIdentifier", _sid(sid, what))
        if user is None:
            raise TopologyError(f"{what}: there is no such user")
        keeper = self._keeper(what)
        _require(keeper.remove_named(keeper.user_names()[user.identifier]), what)

    # Computers
    # ----------------------------------------------------------------------------------------------

    def _ensure_computer(self, computer: Computer) -> None:
        what = f"computer {computer.name}"
        there = self._find(QueueManager, "ComputerName", computer.name)
        if there is None and computer.identifier is not None:
            there = QueueManager(
                identifier=computer.identifier,
                computer_name=computer.name,
                qualified_computer_name=computer.qualified_computer_name,
                site_identifier_list=self._sites_of_new(computer),
                routing_server=computer.routing_server,
            )
            self._create(there, what)
        for name, identifier in computer.public_queues.items():
            self._ensure_queue(f"{computer.name}\\{name}", identifier)

    def _sites_of_new(self, computer: Computer) -> list[uuid.UUID]:
        return self._site_identifiers(computer) or [site.identifier for site in self._all(Site)]

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
        before = _standing(there)
        there.routing_server = computer.routing_server
        there.out_routing_server_identifier_list = self._identifiers(computer.out_routing_servers, what)
        there.in_routing_server_identifier_list = self._identifiers(computer.in_routing_servers, what)
        attributes = [*_ROUTING_ATTRIBUTES]
        if computer.sites:
            there.site_identifier_list = self._site_identifiers(computer)
        if computer.qualified_computer_name:
            there.qualified_computer_name = computer.qualified_computer_name
            attributes.append("QualifiedComputerName")
        if computer.encryption_keys:
            there.public_encryption_key_list = computer.encryption_keys
            attributes.append("PublicEncryptionKeyList")
        if computer.signing_keys:
            there.public_signing_key_list = computer.signing_keys
            attributes.append("PublicSigningKeyList")
        if _standing(there) != before:
            self._write(there, attributes, what)

    def _identifiers(self, names: Iterable[str], what: str) -> list[uuid.UUID]:
        return [self._computer(name, what).identifier for name in names]

    # Links
    # ----------------------------------------------------------------------------------------------

    def _set_link(self, link: Link) -> None:
        what = f"routing link {link.site1} - {link.site2}"
        site1, site2 = self._site(link.site1, what), self._site(link.site2, what)
        gates = self._identifiers(link.site_gates, what)
        there = self._link_between({site1, site2})
        if there is None:
            made = RoutingLink(site1_identifier=site1, site2_identifier=site2, actual_cost=link.cost)
            made.site_gate_identifier_list = gates
            self._create(made, what)
        elif (there.actual_cost, there.site_gate_identifier_list) != (link.cost, gates):
            there.actual_cost, there.site_gate_identifier_list = link.cost, gates
            self._write(there, ["ActualCost", "SiteGateIdentifierList"], what)

    def _link_between(self, sites: set[uuid.UUID]) -> RoutingLink | None:
        """Return the link between two sites, in either order."""
        links = self._all(RoutingLink)
        return next((one for one in links if {one.site1_identifier, one.site2_identifier} == sites), None)

    # Distribution lists
    # -------------------------------------------------------------------------------------------

    def _set_list(self, wanted: DistributionList) -> None:
        what = f"distribution list {wanted.name}"
        keeper = self._keeper(what)
        there = next((one for one in keeper.distribution_lists() if one[0].casefold() == wanted.name.casefold()), None)
        members = tuple(str(format_name(member, short_names=False)) for member in wanted.members)
        if there is not None:
            if there[1:] == (wanted.identifier, members):
                return
            _require(keeper.remove_named(there[0]), what)
        _require(keeper.add_distribution_list(wanted.name, members, wanted.identifier)[0], what)
        self._done.append(f"{what} is {'new' if there is None else 'changed'}")

    def _keeper(self, what: str) -> Keeper:
        keeper = self._directory.keeper
        if keeper is None:
            raise TopologyError(f"{what}: the lists and users of the domain are for its administrators to change")
        return keeper

    # Users
    # ----------------------------------------------------------------------------------------------

    def _set_signer(self, signer: Signer) -> None:
        """Add the certificates of a user.

        Existing ones stay: a computer knows those of its own users, and a file may be older.
        """
        what = f"user {signer.name or signer.sid}"
        sid = _sid(signer.sid, what)
        user = self._find(User, "SecurityIdentifier", sid)
        if user is None:
            keeper = self._keeper(what)
            # A user of another computer may have the same name, but not the same SID.
            for name in (signer.name or signer.sid, f"{signer.name} {signer.sid}"):
                result, _ = keeper.add_user(name, sid)
                if result is not _EXISTS:
                    break
            _require(result, what)
            self._done.append(f"{what} is new")
            user = self._find(User, "SecurityIdentifier", sid)
        if user is None:
            raise TopologyError(f"{what}: the directory does not know it")
        before = user.certificates
        for certificate in signer.certificates:
            try:
                add_certificate(user, certificate)
            except LannerError as error:
                raise TopologyError(f"{what}: {error}") from None
        if user.certificates != before:
            self._write(user, ["Certificates", "CertificateDigestList"], what)

    # The directory
    # ----------------------------------------------------------------------------------------------

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
        result, found = read_all(self._directory, kind)
        _require(result, f"all objects of {kind.__name__}")
        return found

    def _create(self, obj: DirectoryObject, what: str) -> None:
        _require(self._changes.create_object(obj)[0], what)
        self._done.append(f"{what} is new")

    def _write(self, obj: DirectoryObject, attributes: Sequence[str], what: str) -> None:
        _require(self._changes.write(obj, attributes), what)
        if f"{what} is new" not in self._done:
            self._done.append(f"{what} is changed")

    def _delete(self, obj: DirectoryObject, what: str) -> None:
        _require(self._changes.delete_object(obj), what)


def _standing(computer: QueueManager) -> tuple[object, ...]:
    return (
        computer.site_identifier_list,
        computer.routing_server,
        computer.out_routing_server_identifier_list,
        computer.in_routing_server_identifier_list,
        computer.qualified_computer_name,
        computer.public_encryption_key_list,
        computer.public_signing_key_list,
    )


def _certificates(user: User) -> tuple[bytes, ...]:
    """Return the certificates of a user or of a computer of a domain, which may list other keys."""
    try:
        return tuple(one.certificate for one in certificates_of(user).certificates)
    except RemoteProtocolError:
        return ()


def _sid(text: str, what: str) -> bytes:
    try:
        return Sid.parse(text).pack()
    except ValueError as error:
        raise TopologyError(f"{what}: {error}") from None


def _check_once(kind: str, names: Iterable[str]) -> None:
    """Refuse names that differ only in case, because only one of the definitions would count."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise TopologyError(f"{kind} {name} is there twice")
        seen.add(name.casefold())


def _require(result: DirectoryOperationResult, what: str) -> None:
    if result is _EXISTS:
        raise TopologyError(f"{what}: something else in the directory has its name or its identifier")
    if result is not _SUCCESS:
        raise TopologyError(f"{what}: the directory answers {result.value}")
