"""The directory inside the queue manager's own store: MS-MQDSSM 3.1.6 without an LDAP server.

Where the document says "... Using LDAP", this module does what a server would: names are unique,
the parent of a queue must exist, and an object with children cannot be deleted. Comments mark the
places where it does more.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from lanner.directory.elements import GENERIC_ERROR, Elements, class_of, listed_rows, readable
from lanner.directory.entries import AlreadyThere, Entries, guid_of, text_of
from lanner.directory.filters import AttributeFilter, SortOrder
from lanner.directory.names import (
    dn_key,
    parent_dn,
    rdn_values,
    split_pathname,
    split_queue_name,
    unescape,
    without_server,
)
from lanner.directory.protocol import MemoryTable, Refused, Table
from lanner.directory.schema import (
    CLASSES,
    ENTERPRISE,
    QUEUE,
    QUEUE_MANAGER,
    ROUTING_LINK,
    SETTINGS_ATTRIBUTES,
    SITE,
    TIME,
    Attribute,
    Entry,
    ObjectClass,
    put,
)
from lanner.model.directory_objects import (
    GUID_NULL,
    ROUTING_LINK_COST,
    DirectoryObject,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
)
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import IllegalFormatname, RemoteProtocolError
from lanner.security.identity import Identity
from lanner.security.profile import Profile
from lanner.security.queue_security import (
    NO_OWNERS,
    default_enterprise_security,
    default_queue_manager_security,
    default_site_security,
)
from lanner.wire.format_name import DistributionListFormatName, FormatName, PublicFormatName
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, NT_AUTHORITY, SECURITY_NT_NON_UNIQUE, Sid

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# Any name will do: it is visible only if the directory is moved into a real domain.
DEFAULT_ROOT: Final = "DC=lanner,DC=local"
# The site that every new forest of Active Directory has.
DEFAULT_SITE_NAME: Final = "Default-First-Site-Name"
# Not visible to others: queue managers with a directory of their own send no notifications.
EMBEDDED_SERVER: Final = "localhost"

# Not in the specification: far above the users of the local file, which start at 1000 under the
# same SID.
FIRST_COMPUTER_RID: Final = 0x1000_0000

ADMINISTRATORS: Final = Identity("Administrators", BUILTIN_ADMINISTRATORS, is_domain_user=True)

_SERVER_ATTRIBUTES: Final = ("mSMQRoutingServices", "mSMQDsServices", "mSMQDependentClientServices")
# Classes that can be sent to by their path in the directory (MC-MQAC 3.12.6.1).
_ADDRESSABLE: Final = frozenset(("mSMQQueue", "group", "mSMQ-Custom-Recipient"))


@dataclass(slots=True)
class _Query:
    """MS-MQDSSM 3.1.1.2 ReadDirectoryIteratorState."""

    object_class: ObjectClass
    rows: list[Attribute]
    is_listed: bool
    entries: Iterator[Entry]


class EmbeddedDirectory:
    """A directory in a table of the store.

    With `connected = False` it answers like an unreachable one.
    """

    def __init__(
        self,
        table: Table,
        *,
        root: str = DEFAULT_ROOT,
        clock: Callable[[], float] = time.time,
        domain_sid: Sid | None = None,
        administrator: Identity = ADMINISTRATORS,
        profile: Profile = Profile.SAFE,
    ) -> None:
        self.connected = True
        self._table = table
        self._entries = Entries(table, root)
        self._naming = self._entries.naming
        self._elements = Elements(self._entries)
        self._clock = clock
        self._given_domain_sid = domain_sid
        self._administrator = administrator
        self._profile = profile
        self._last_rid: int | None = None  # of the SIDs of computers; read when first needed
        self._queries: dict[int, _Query] = {}
        self._handles = itertools.count(1)

    @property
    def keeper(self) -> EmbeddedDirectory:
        """This directory: its administrators keep everything in it."""
        return self

    def apart(self) -> None:
        """Return None: the lock of the store protects what is in it."""

    def rehearsal(self) -> EmbeddedDirectory:
        """Return a copy in memory, on which a change can be tried."""
        table = MemoryTable()
        table.rows.update(self._table.items(b""))
        copy = EmbeddedDirectory(
            table,
            root=self._entries.root,
            clock=self._clock,
            domain_sid=self._given_domain_sid,
            administrator=self._administrator,
            profile=self._profile,
        )
        copy.connected = self.connected
        return copy

    def initialize(self) -> DirectoryOperationResult:
        """Do nothing: MS-MQDSSM 3.1.3 has nothing to prepare here."""
        return self._answer(lambda: None)[0]

    # Provisioning
    # ------------------------------------------------------------------------------

    def provision(self, site_name: str = DEFAULT_SITE_NAME) -> uuid.UUID:
        """Create the enterprise and a first site if they are missing; return the site's identifier.

        MS-MQDSSM 2.2.3: there is one mSMQEnterpriseSettings object in a root, created with the
        root.
        """
        if self._entries.find(self._naming.enterprise) is None:
            entry = self._bare_entry(ENTERPRISE.ldap_class, self._naming.enterprise, uuid.uuid4())
            enterprise = Enterprise(security=default_enterprise_security(self._administrator, profile=self._profile))
            self._elements.write_rows(ENTERPRISE.attributes, enterprise, entry)
            self._entries.add(entry)
        site = self._entries.guid_of(self._naming.site(site_name))
        if site is None:
            _, site = self.create_object(Site(name=site_name))
        if site is None:
            raise RuntimeError(f"site {site_name!r} could not be made in a directory that is not connected")
        return site

    # 3.1.6.1 Create Directory Object
    # --------------------------------------------------------------------

    def create_object(
        self, obj: DirectoryObject, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """Create an object; set FullPath, DirectoryPath and times of `obj`.

        Its Identifier, if any, becomes the GUID.
        """
        return self._answer(lambda: self._create(obj, attributes))

    def _create(self, obj: DirectoryObject, attributes: Sequence[str] | None) -> uuid.UUID:
        object_class = class_of(obj, QUEUE_MANAGER, QUEUE, SITE, ROUTING_LINK)
        rows = listed_rows(object_class, attributes)
        if attributes is not None and not {row.field for row in rows}.issuperset(object_class.listed):
            raise Refused(GENERIC_ERROR)
        if not all(_is_populated(getattr(obj, name)) for name in object_class.required):
            raise Refused(GENERIC_ERROR)
        _check_values(obj)
        dn = self._elements.dn_of(obj)
        if dn is None:
            raise Refused(GENERIC_ERROR)
        guid = obj.identifier if obj.identifier != GUID_NULL else uuid.uuid4()
        entry = self._bare_entry(object_class.ldap_class, dn, guid)
        if isinstance(obj, QueueManager):
            return self._create_queue_manager(obj, entry, rows)
        if isinstance(obj, Queue):
            computer, name = split_pathname(obj.pathname)
            if self._entries.find(self._naming.queue_manager(computer)) is None:
                raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND)
            put(entry, "mSMQQueueNameExt", [extension] if (extension := split_queue_name(name)[1]) else [])
        self._elements.write_rows(rows, obj, entry)
        if isinstance(obj, Site):
            listed = obj.security if any(row.field == "security" for row in rows) else None
            security = default_site_security(self._administrator, listed, profile=self._profile)
            put(entry, "nTSecurityDescriptor", [security])
        self._entries.add(entry)
        self._elements.copy_back(obj, object_class, entry)
        return guid_of(entry)

    def _create_queue_manager(self, obj: QueueManager, entry: Entry, rows: Sequence[Attribute]) -> uuid.UUID:
        existing = self._entries.find(text_of(entry, "distinguishedName"))
        if existing is None:
            self._entries.check_free(entry)
        # In a real domain the computer's account exists before its queue manager. Here it is
        # created now.
        computer = self._computer(obj.computer_name) or self._new_computer(obj.computer_name)
        self._elements.write_rows(rows, obj, entry, computer)
        if existing is None:
            self._secure_queue_manager(obj, entry, computer)
            self._entries.add(entry)
        else:
            # 3.1.6.1.1.2: a computer that is set up again keeps its existing object and the GUID.
            entry = existing
        self._entries.put(computer)
        self._synchronize_settings(entry)
        self._elements.copy_back(obj, QUEUE_MANAGER, entry)
        return guid_of(entry)

    def _secure_queue_manager(self, obj: QueueManager, entry: Entry, computer: Entry) -> None:
        """Set the access list of a queue manager (3.1.6.1.1.8).

        The section always writes its own list. A supplied list is kept here, as 3.1.6.1.3.4 keeps
        that of a site.
        """
        if obj.security is not None:
            supplied = SecurityDescriptor.unpack(obj.security)
            if self._profile is Profile.SAFE and supplied.owner in NO_OWNERS:
                supplied = replace(supplied, owner=self._administrator.sid)
                put(entry, "nTSecurityDescriptor", [supplied.pack()])
            if supplied.has_dacl:
                return
        sid = computer["objectSid"][0]
        security = default_queue_manager_security(
            self._administrator,
            obj.security,
            profile=self._profile,
            machine_sid=Sid.unpack(sid) if isinstance(sid, bytes) else None,
            is_foreign=obj.foreign_system,
        )
        put(entry, "nTSecurityDescriptor", [security])

    # 3.1.6.2 Delete Directory Object
    # --------------------------------------------------------------------

    def delete_object(self, obj: DirectoryObject) -> DirectoryOperationResult:
        return self._answer(lambda: self._delete(obj))[0]

    def _delete(self, obj: DirectoryObject) -> None:
        object_class = class_of(obj, QUEUE_MANAGER, QUEUE, SITE, ROUTING_LINK)
        entry = self._elements.locate(object_class, obj)
        if self._entries.has_children(entry):
            # A server's answer to a plain delete: notAllowedOnNonLeaf.
            raise Refused(GENERIC_ERROR)
        self._entries.remove(entry)
        if object_class is QUEUE_MANAGER:
            put(entry, "mSMQSites", [])
            self._synchronize_settings(entry)

    # 3.1.6.3-3.1.6.6 Read Directory, Begin, Next, End
    # ---------------------------------------------------

    def read(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        def first() -> DirectoryObject:
            object_class, rows = readable(object_type, filters, attributes)
            entry = next(self._elements.matching(object_class, filters), None)
            if entry is None:
                # 3.1.6.3.1 passes on EndOfData from its search, but MS-MQDMPR 3.1.7.1.20 has only
                # ObjectNotFound.
                raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND)
            return self._elements.element(object_class, entry, rows, is_listed=attributes is not None)

        return self._answer(first)

    @property
    def server(self) -> str:
        """The name of the only server of this directory, which is this process."""
        return EMBEDDED_SERVER

    def knows_server(self, name: str) -> bool:
        return name == EMBEDDED_SERVER

    def read_at(
        self,
        server: str,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        if server and not self.knows_server(server):
            return DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, None
        return self.read(object_type, filters, attributes)

    def recall(
        self,
        object_type: str,  # noqa: ARG002 - the store never is unreachable
        filters: Sequence[AttributeFilter] | None,  # noqa: ARG002
        attributes: Sequence[str] | None = None,  # noqa: ARG002
    ) -> DirectoryObject | None:
        return None

    def queues_of(self, computer_name: str) -> tuple[DirectoryOperationResult, list[uuid.UUID] | None]:
        parent = dn_key(self._naming.queue_manager(computer_name))
        return self._answer(
            lambda: [
                guid_of(entry)
                for entry in self._entries.of_class(QUEUE.ldap_class)
                if dn_key(parent_dn(text_of(entry, "distinguishedName"))) == parent
            ]
        )

    def read_begin(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        sort_order: Sequence[SortOrder] | None = None,
    ) -> tuple[DirectoryOperationResult, int | None]:
        """Begin a read of the present content. Later changes do not show in it."""

        def begin() -> int:
            object_class, rows = readable(object_type, filters, attributes)
            entries = list(self._elements.matching(object_class, filters))
            if sort_order is not None:
                names = attributes if attributes is not None else [row.name for row in object_class.attributes]
                entries = self._elements.sorted_entries(object_class, entries, names, sort_order)
            handle = next(self._handles)
            self._queries[handle] = _Query(object_class, rows, attributes is not None, iter(entries))
            return handle

        return self._answer(begin)

    def read_next(self, handle: int) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        def following() -> DirectoryObject:
            query = self._queries.get(handle)
            if query is None:
                raise Refused(GENERIC_ERROR)
            entry = next(query.entries, None)
            if entry is None:
                raise Refused(DirectoryOperationResult.END_OF_DATA)
            return self._elements.element(query.object_class, entry, query.rows, is_listed=query.is_listed)

        return self._answer(following)

    def read_end(self, handle: int) -> DirectoryOperationResult:
        def end() -> None:
            if self._queries.pop(handle, None) is None:
                raise Refused(GENERIC_ERROR)

        return self._answer(end)[0]

    # 3.1.6.7 Write Directory
    # ----------------------------------------------------------------------------

    def write(self, obj: DirectoryObject, attributes: Sequence[str] | None = None) -> DirectoryOperationResult:
        return self._answer(lambda: self._write(obj, attributes))[0]

    def _write(self, obj: DirectoryObject, attributes: Sequence[str] | None) -> None:
        object_class = class_of(obj, *CLASSES.values())
        rows = [row for row in listed_rows(object_class, attributes) if row.changeable]
        _check_values(obj)
        entry = self._elements.locate(object_class, obj)
        computer = self._entries.above(entry, 1) if object_class is QUEUE_MANAGER else None
        self._elements.write_rows(rows, obj, entry, computer)
        put(entry, "whenChanged", TIME.encode(int(self._clock())))
        self._entries.put(entry)
        if computer is not None:
            self._entries.put(computer)
            self._synchronize_settings(entry)

    # 3.1.6.8, 3.1.6.9 Queue aliases and distribution lists
    # ----------------------------------------------

    def add_distribution_list(
        self, name: str, members: Iterable[str], identifier: uuid.UUID | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """Create a group whose members are format names.

        A name of an object in this directory is stored as a link to it.
        """

        def members_of(entry: Entry) -> None:
            dn = text_of(entry, "distinguishedName")
            names = [FormatName.parse(member) for member in members]
            put(entry, "member", [self._member(name, dn, member) for member in names])

        return self._answer(lambda: self._add_named("group", name, identifier, members_of))

    def distribution_lists(self) -> list[tuple[str, uuid.UUID, tuple[str, ...]]]:
        """Return the name, identifier and members' format names of every list."""
        return [
            (unescape(rdn_values(text_of(entry, "distinguishedName"))[0]), guid_of(entry), self._members(entry))
            for entry in self._entries.of_class("group")
        ]

    def _members(self, entry: Entry) -> tuple[str, ...]:
        """Return the members, without those that were deleted."""
        found = (self._entries.find(str(dn)) for dn in entry.get("member", []))
        return tuple(self._format_name(member) for member in found if member is not None)

    def add_queue_alias(
        self, name: str, format_name: str, identifier: uuid.UUID | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """Create an alias of a direct, public or private format name (MS-MQDSSM 2.3)."""

        def target_of(entry: Entry) -> None:
            put(entry, "msMQ-Recipient-FormatName", [str(FormatName.parse(format_name))])

        return self._answer(lambda: self._add_named("mSMQ-Custom-Recipient", name, identifier, target_of))

    def add_user(
        self, name: str, security_identifier: bytes, identifier: uuid.UUID | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """Create a user's object.

        In a real domain it exists before any certificate is written to it.
        """

        def sid_of(entry: Entry) -> None:
            put(entry, "objectSid", [Sid.unpack(security_identifier).pack()])

        return self._answer(lambda: self._add_named("user", name, identifier, sid_of))

    def ensure_user(self, name: str, security_identifier: bytes) -> DirectoryOperationResult:
        """Create a user's object. If another object has the name, add the unique SID to it."""
        result, _ = self.add_user(name, security_identifier)
        if result is DirectoryOperationResult.OBJECT_ALREADY_EXISTS:
            result, _ = self.add_user(f"{name} {Sid.unpack(security_identifier)}", security_identifier)
        return result

    def user_names(self) -> dict[uuid.UUID, str]:
        """Return the names of all users, by the identifiers of their objects."""
        users = self._entries.of_class("user")
        return {guid_of(entry): unescape(rdn_values(text_of(entry, "distinguishedName"))[0]) for entry in users}

    def _add_named(
        self, ldap_class: str, name: str, identifier: uuid.UUID | None, fill: Callable[[Entry], None]
    ) -> uuid.UUID:
        if not name:
            raise Refused(GENERIC_ERROR)
        entry = self._bare_entry(ldap_class, self._naming.user(name), identifier or uuid.uuid4())
        self._entries.check_free(entry)
        fill(entry)
        self._entries.add(entry)
        return guid_of(entry)

    def remove_named(self, name: str) -> DirectoryOperationResult:
        """Remove a user, a queue alias, or a distribution list.

        The aliases created for a list's members are removed with it.
        """

        def remove() -> None:
            entry = self._entries.find(self._naming.user(name))
            if entry is None:
                raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND)
            for alias in self._entries.of_class("mSMQ-Custom-Recipient"):
                if alias.get("managedBy") == entry["distinguishedName"]:
                    self._entries.remove(alias)
            self._entries.remove(entry)

        return self._answer(remove)[0]

    def resolve_distribution_list(
        self, guid: uuid.UUID, domain: str | None
    ) -> tuple[DirectoryOperationResult, list[str] | None]:
        """Return the format names of a list's members, without those that were deleted.

        Lists among the members stay DL=, for the caller's protection against cycles.
        """

        def members() -> list[str]:
            entry = self._entries.get(guid)
            is_here = domain is None or domain.casefold() == self._naming.domain.casefold()
            if not is_here or entry is None or text_of(entry, "objectClass") != "group":
                raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND)
            return list(self._members(entry))

        return self._answer(members)

    def format_name_at(self, path: str) -> tuple[DirectoryOperationResult, str | None]:
        def found() -> str:
            entry = self._entries.find(without_server(path))
            if entry is None or text_of(entry, "objectClass") not in _ADDRESSABLE:
                raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND)
            return self._format_name(entry)

        return self._answer(found)

    @staticmethod
    def _format_name(entry: Entry) -> str:
        match text_of(entry, "objectClass"):
            case "mSMQQueue":
                return str(PublicFormatName(guid_of(entry)))
            case "group":
                return str(DistributionListFormatName(guid_of(entry)))
            case _:
                return text_of(entry, "msMQ-Recipient-FormatName")

    def _member(self, list_name: str, list_dn: str, format_name: FormatName) -> str:
        if isinstance(format_name, PublicFormatName | DistributionListFormatName):
            kind = "mSMQQueue" if isinstance(format_name, PublicFormatName) else "group"
            dn = self._entries.dn_of(kind, format_name.identifier)
            if dn is not None:
                return dn
        name = f"{list_name} {uuid.uuid4()}"

        def target_of(entry: Entry) -> None:
            put(entry, "msMQ-Recipient-FormatName", [str(format_name)])
            put(entry, "managedBy", [list_dn])

        self._add_named("mSMQ-Custom-Recipient", name, None, target_of)
        return self._naming.user(name)

    # Computers
    # ------------------------------------------------------------------------------------------

    def acting_for(self, account: str) -> EmbeddedDirectory:
        """Return this directory: the queue manager itself checks rights on the objects."""
        del account
        return self

    def servers(self) -> list[str]:
        """Return no servers: the directory is in the queue manager itself."""
        return []

    def account(self, name_or_sid: str | bytes) -> tuple[DirectoryOperationResult, tuple[str, bytes] | None]:
        """Return no account: the names of accounts are those of the account file."""
        del name_or_sid
        return DirectoryOperationResult.OBJECT_NOT_FOUND, None

    def computer_sid(self, computer_name: str) -> bytes | None:
        computer = self._computer(computer_name) if self.connected else None
        sid = computer["objectSid"][0] if computer is not None else None
        return sid if isinstance(sid, bytes) else None

    def _computer(self, name: str) -> Entry | None:
        return self._entries.find(self._naming.computer(name))

    def _new_computer(self, name: str) -> Entry:
        if self._last_rid is None:
            # Read once: when thousands of computers are added, each would otherwise scan all
            # others.
            sids = (entry["objectSid"][0] for entry in self._entries.of_class("computer"))
            rids = [Sid.unpack(sid).rid or 0 for sid in sids if isinstance(sid, bytes)]
            self._last_rid = max([FIRST_COMPUTER_RID - 1, *rids])
        entry = self._bare_entry("computer", self._naming.computer(name), uuid.uuid4())
        put(entry, "objectSid", [self._domain_sid().child(self._last_rid + 1).pack()])
        self._entries.add(entry)
        self._last_rid += 1
        return entry

    def _domain_sid(self) -> Sid:
        """Return the SID of the domain.

        It is the one given, or else random numbers made once and stored on the root's object.
        """
        if self._given_domain_sid is not None:
            return self._given_domain_sid
        entry = self._entries.find(self._naming.root)
        if entry is None:
            sid = Sid(NT_AUTHORITY, (SECURITY_NT_NON_UNIQUE, *(secrets.randbits(32) for _ in range(3))))
            entry = self._bare_entry("domainDNS", self._naming.root, uuid.uuid4())
            put(entry, "objectSid", [sid.pack()])
            self._entries.add(entry)
        value = entry["objectSid"][0]
        if isinstance(value, str):
            raise TypeError("objectSid of the root: octets expected")
        return Sid.unpack(value)

    def _synchronize_settings(self, entry: Entry) -> None:
        """Keep one mSMQSettings in each site of a server, and none of other queue managers.

        3.1.6.1.1.3, 3.1.6.2.1.3, 3.1.6.7.1.9.
        """
        guid = entry["objectGUID"]
        stale = {
            text_of(one, "distinguishedName"): one
            for one in self._entries.of_class("mSMQSettings")
            if one.get("mSMQQMID") == guid
        }
        if any(entry.get(name) == ["TRUE"] for name in _SERVER_ATTRIBUTES):
            computer = QUEUE_MANAGER.find("ComputerName")
            for site in entry.get("mSMQSites", []):
                site_entry = self._entries.get(uuid.UUID(bytes_le=site)) if isinstance(site, bytes) else None
                if site_entry is None or computer is None:
                    continue
                dn = self._naming.settings(computer.read(entry, self._entries), text_of(site_entry, "cn"))
                settings = stale.pop(dn, None)
                is_new = settings is None
                settings = settings or self._bare_entry("mSMQSettings", dn, uuid.uuid4())
                for name, source in SETTINGS_ATTRIBUTES.items():
                    put(settings, name, entry.get(source, []))
                (self._entries.add if is_new else self._entries.put)(settings)
        for settings in stale.values():
            self._entries.remove(settings)

    # Entries and elements
    # -------------------------------------------------------------------------------

    def _bare_entry(self, ldap_class: str, dn: str, guid: uuid.UUID) -> Entry:
        now = TIME.encode(int(self._clock()))
        return {
            "objectClass": [ldap_class],
            "objectGUID": [guid.bytes_le],
            "distinguishedName": [dn],
            "whenCreated": now,
            "whenChanged": now,
        }

    # Answering
    # ------------------------------------------------------------------------------------------

    def _answer(self, operation: Callable[[], T]) -> tuple[DirectoryOperationResult, T | None]:
        """Convert the outcome of an operation into a result of MS-MQDMPR 3.1.1.17."""
        if not self.connected:
            return DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, None
        try:
            return DirectoryOperationResult.SUCCESS, operation()
        except Refused as refused:
            return refused.result, None
        except AlreadyThere:
            return DirectoryOperationResult.OBJECT_ALREADY_EXISTS, None
        except (ValueError, TypeError, LookupError, RemoteProtocolError, IllegalFormatname) as error:
            _LOG.warning("directory operation failed: %s", error)
            return GENERIC_ERROR, None


def _is_populated(value: object) -> bool:
    return value is not None and value not in ("", b"", [], GUID_NULL)


def _check_values(obj: DirectoryObject) -> None:
    """Check the values of a site link (MS-MQDMPR 3.1.1.8)."""
    if isinstance(obj, RoutingLink) and obj.actual_cost not in ROUTING_LINK_COST:
        raise Refused(GENERIC_ERROR)
