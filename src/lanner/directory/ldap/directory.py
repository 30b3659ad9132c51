"""Active Directory as the queue manager's directory: the events of MS-MQDSSM 3.1.6 over LDAP."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from lanner.directory.filters import AttributeFilter, Operator, SortOrder, field_of, matches, sort_objects
from lanner.directory.ldap import distribution
from lanner.directory.ldap.connection import LogOn
from lanner.directory.ldap.descriptors import queue_manager_descriptor, site_descriptor, to_directory
from lanner.directory.ldap.elements import (
    GENERIC_ERROR,
    GUARDED,
    Elements,
    check_filters,
    class_named,
    ldap_attributes,
    listed_rows,
)
from lanner.directory.ldap.filters import ldap_filter
from lanner.directory.ldap.lookup import LdapLookup
from lanner.directory.ldap.messages import Compare
from lanner.directory.ldap.operations import SECURITY, LdapOperations
from lanner.directory.ldap.server_settings import SERVER_ATTRIBUTES, SOURCES, ServerSettings, is_server
from lanner.directory.ldap.service_location import Server, server_key
from lanner.directory.names import (
    Naming,
    escape,
    parent_dn,
    rdn_values,
    split_pathname,
    split_queue_name,
    unescape,
    without_server,
)
from lanner.directory.protocol import Refused
from lanner.directory.schema import (
    CLASSES,
    ENTERPRISE,
    QUEUE,
    QUEUE_MANAGER,
    ROUTING_LINK,
    SITE,
    USER,
    Attribute,
    Entry,
    ObjectClass,
    service_types,
)
from lanner.model.directory_objects import (
    GUID_NULL,
    ROUTING_LINK_COST,
    DirectoryObject,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from lanner.model.enums import DirectoryOperationResult, QueueType
from lanner.model.errors import IllegalFormatname, RemoteProtocolError
from lanner.security.profile import Profile
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.sid import Sid
from lanner.wire.user_certificates import UserSignCerts

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_SUCCESS: Final = DirectoryOperationResult.SUCCESS
_NOT_FOUND: Final = DirectoryOperationResult.OBJECT_NOT_FOUND
_CREATABLE: Final = (QUEUE_MANAGER, QUEUE, SITE, ROUTING_LINK)
# The only attributes of the computer object that may be written here are the signing keys
# (3.1.6.1.1.2, 3.1.6.7.1.2).
_SIGNING_KEYS: Final = "public_signing_key_list"
_SERVICE_FIELDS: Final = frozenset(
    {"directory_server", "remote_access_server", "routing_server", "supporting_server", "directory_server_type"}
)
_DOMAIN_ADMINS_RID: Final = 512


@dataclass(slots=True)
class _Query:
    """MS-MQDSSM 3.1.1.2 ReadDirectoryIteratorState."""

    object_class: ObjectClass
    rows: list[Attribute]
    elements: Elements
    entries: Iterator[Entry]


class LdapDirectory:
    """The directory with the rights of one account, and its own connections.

    Every method blocks until the server has answered.
    """

    def __init__(
        self,
        locate: Callable[[], Sequence[Server]],
        log_on: LogOn,
        *,
        profile: Profile = Profile.SAFE,
        find_server: Callable[[str], Sequence[Server]] | None = None,
    ) -> None:
        """Use the servers that `locate` returns.

        `find_server` finds another directory server by its name.
        """
        self.operations = LdapOperations(locate, log_on)
        self._locate = locate
        # A simple bind tells the server the password, so only a domain controller that was located
        # is asked: the name of another server may come from another computer.
        self._find_server = find_server if log_on.ldaps is None else None
        self._profile = profile
        self._queries: dict[int, _Query] = {}
        self._handles = itertools.count(1)
        self._domain_sid: Sid | None = None
        self._netbios_name = ""

    def initialize(self) -> DirectoryOperationResult:
        return self._answer(self.operations.initialize)[0]

    @property
    def naming(self) -> Naming:
        return Naming(self.operations.root)

    # 3.1.6.1 Create Directory Object
    # ------------------------------------------------------------------------

    def create_object(
        self, obj: DirectoryObject, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """Create an object. The directory chooses its Identifier."""
        return self._answer(lambda: self._create(obj, attributes))

    def _create(self, obj: DirectoryObject, attributes: Sequence[str] | None) -> uuid.UUID | None:
        object_class = _class_of(obj, *_CREATABLE)
        rows = listed_rows(object_class, attributes)
        if attributes is not None and not {row.field for row in rows}.issuperset(object_class.listed):
            raise Refused(GENERIC_ERROR, f"{object_class.name}: {', '.join(object_class.listed)} must be listed")
        if not all(_is_populated(getattr(obj, name)) for name in object_class.required):
            raise Refused(GENERIC_ERROR, f"{object_class.name}: {', '.join(object_class.required)} must have values")
        if not _is_stored(obj):
            raise Refused(GENERIC_ERROR, "only public queues are stored in the directory")
        _check_values(obj)
        lookup = LdapLookup(self.operations)
        with self.operations.held():
            if isinstance(obj, QueueManager):
                return self._create_queue_manager(obj, rows, lookup)
            values = self._values(object_class, rows, obj, lookup)
            match obj:
                case Queue():
                    computer, name = split_pathname(obj.pathname)
                    child, extension = split_queue_name(name)
                    if extension:
                        values["mSMQQueueNameExt"] = [extension]
                    parent = f"CN=msmq,{self._computer_dn(computer)}"
                case Site():
                    is_listed = any(row.field == "security" for row in rows)
                    values[SECURITY] = [self._site_security(obj.security if is_listed else None)]
                    child, parent = obj.name, f"CN=Sites,{self.operations.configuration_context}"
                case RoutingLink():
                    child = obj.site1_identifier.hex + obj.site2_identifier.hex
                    parent = self.naming.enterprise
                case _:
                    raise Refused(GENERIC_ERROR)
            return self.operations.create(parent, child, object_class.ldap_class, _filled(values))

    def _create_queue_manager(self, obj: QueueManager, rows: Sequence[Attribute], lookup: LdapLookup) -> uuid.UUID:
        computer = self._computer_dn(obj.computer_name)
        values = _filled(self._values(QUEUE_MANAGER, rows, obj, lookup))
        values[SECURITY] = [self._queue_manager_security(obj, rows, computer)]
        try:
            guid = self.operations.create(computer, "msmq", QUEUE_MANAGER.ldap_class, values)
        except Refused as refused:
            if refused.result is not DirectoryOperationResult.OBJECT_ALREADY_EXISTS:
                raise
            # 3.1.6.1.1.2: a computer that is set up again keeps its existing object and the GUID.
            guid = distribution.identifier_of(self.operations.get(f"CN=msmq,{computer}", ("objectGUID",)))
        keys = next((row for row in rows if row.field == _SIGNING_KEYS), None)
        if keys is not None and obj.public_signing_key_list:
            self._write_signing_keys(computer, obj.public_signing_key_list)
        if is_server(values):
            manager = values | {"objectGUID": [guid.bytes_le]}
            ServerSettings(self.operations, obj.computer_name, obj.site_identifier_list).create(manager, replacing=True)
        return guid

    def _queue_manager_security(self, obj: QueueManager, rows: Sequence[Attribute], computer: str) -> bytes:
        """Return the descriptor of a queue manager (3.1.6.1.1.8), even if Security is not listed.

        With the default of the class, the computer could create nothing below it.
        """
        machine = None
        try:
            held = self.operations.get(computer, ("objectSid",)).get("objectSid")
            machine = Sid.unpack(held[0]) if held and isinstance(held[0], bytes) else None
        except Refused:
            _LOG.info("%s: its objectSid cannot be read; its queue manager's object gets no entry for it", computer)
        supplied = None if obj.security is None else SecurityDescriptor.unpack(obj.security)
        user = (supplied.owner if supplied is not None else None) or Sid.unpack(self.operations.caller())
        is_foreign = obj.foreign_system and any(row.field == "foreign_system" for row in rows)
        descriptor = queue_manager_descriptor(machine, user, is_foreign=is_foreign)
        return to_directory(descriptor, GUARDED[QUEUE_MANAGER.name], self._profile).pack()

    def _site_security(self, supplied: bytes | None) -> bytes:
        """Return the descriptor of a site (3.1.6.1.3.4)."""
        given = None if supplied is None else SecurityDescriptor.unpack(supplied)
        owner = (given.owner if given is not None else None) or Sid.unpack(self.operations.caller())
        domain = self._own_domain()
        descriptor = site_descriptor(
            given,
            owner,
            is_domain_user=owner.is_account and owner.domain == domain,
            domain_admins=domain.child(_DOMAIN_ADMINS_RID),
            profile=self._profile,
        )
        return to_directory(descriptor, GUARDED[SITE.name], self._profile).pack()

    def _own_domain(self) -> Sid:
        if self._domain_sid is None:
            held = self.operations.get(self.operations.domain, ("objectSid",)).get("objectSid")
            if not held or not isinstance(held[0], bytes):
                raise Refused(GENERIC_ERROR, f"{self.operations.domain}: its objectSid cannot be read")
            self._domain_sid = Sid.unpack(held[0])
        return self._domain_sid

    def _write_signing_keys(self, computer: str, keys: bytes) -> None:
        """Write the keys, and the digests of the certificates among them (3.1.6.1.1.9)."""
        self.operations.set_properties(computer, {"mSMQSignCertificates": [keys], "mSMQDigests": list(_digests(keys))})

    # 3.1.6.2 Delete Directory Object
    # ------------------------------------------------------------------------

    def delete_object(self, obj: DirectoryObject) -> DirectoryOperationResult:
        return self._answer(lambda: self._delete(obj))[0]

    def _delete(self, obj: DirectoryObject) -> None:
        object_class = _class_of(obj, *_CREATABLE)
        if not _is_stored(obj):
            return
        with self.operations.held():
            path, guid = self._place(object_class, obj)
            dn = self.operations.delete(path, guid)
            is_a_server = isinstance(obj, QueueManager) and (
                obj.routing_server or obj.directory_server or obj.supporting_server
            )
            if is_a_server and isinstance(obj, QueueManager):
                computer = obj.computer_name or _computer_of(dn)
                ServerSettings(self.operations, computer, obj.site_identifier_list).delete()

    # 3.1.6.3-3.1.6.6 Read Directory, Begin, Next, End
    # ---------------------------------------------------

    def read(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        def first() -> DirectoryObject:
            object_class = class_named(object_type)
            rows = listed_rows(object_class, attributes)
            elements = Elements(self.operations, self._profile)
            with self.operations.held():
                for entry in self._matching(object_class, check_filters(object_class, filters), rows, elements):
                    found = elements.element(object_class, entry, rows)
                    elements.attach_host(found, entry)
                    return found
            raise Refused(_NOT_FOUND, f"no {object_type} matches")

        return self._answer(first)

    @property
    def server(self) -> str:
        return self.operations.server

    def knows_server(self, name: str) -> bool:
        """Return whether a name is that of a domain controller of this domain, according to DNS."""
        return server_key(name) in self.server_keys()

    def server_keys(self) -> frozenset[str]:
        """Return the names of this domain's domain controllers, with and without the domain.

        Returns an empty set if DNS does not answer.
        """
        try:
            names = [server_key(one.host) for one in self._locate()]
        except OSError as error:
            _LOG.info("the domain controllers cannot be listed: %s", error)
            return frozenset()
        return frozenset(names) | {name.partition(".")[0] for name in names}

    def _servers_named(self, name: str) -> list[Server]:
        wanted = server_key(name)
        return [
            one for one in self._locate() if wanted in (server_key(one.host), server_key(one.host.partition(".")[0]))
        ]

    def read_at(
        self,
        server: str,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """Read over a separate connection to the server, with the rights of the same account."""
        if not server:
            return self.read(object_type, filters, attributes)

        def servers() -> Sequence[Server]:
            return self._servers_named(server) or (() if self._find_server is None else self._find_server(server))

        there = LdapDirectory(servers, self.operations.log_on, profile=self._profile)
        result = there.initialize()
        return there.read(object_type, filters, attributes) if result is _SUCCESS else (result, None)

    def queues_of(self, computer_name: str) -> tuple[DirectoryOperationResult, list[uuid.UUID] | None]:
        def found() -> list[uuid.UUID]:
            with self.operations.held():
                base = f"CN=msmq,{self._computer_dn(computer_name)}"
                wanted = Compare("objectClass", "=", QUEUE.ldap_class)
                entries = self.operations.search(QUEUE.ldap_class, wanted, (), base)
            return [distribution.identifier_of(entry) for entry in entries]

        return self._answer(found)

    def recall(
        self,
        object_type: str,  # noqa: ARG002 - the LDAP connection keeps no answers
        filters: Sequence[AttributeFilter] | None,  # noqa: ARG002
        attributes: Sequence[str] | None = None,  # noqa: ARG002
    ) -> DirectoryObject | None:
        return None

    def read_begin(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        sort_order: Sequence[SortOrder] | None = None,
    ) -> tuple[DirectoryOperationResult, int | None]:
        """Begin a read of the present content. Later changes do not show in it."""

        def begin() -> int:
            object_class = class_named(object_type)
            rows = listed_rows(object_class, attributes)
            elements = Elements(self.operations, self._profile)
            with self.operations.held():
                wanted = check_filters(object_class, filters)
                names = attributes if attributes is not None else [row.name for row in object_class.attributes]
                keys = _sortable(object_class, names, sort_order)
                needed = [*rows, *(row for row, _ in keys)]
                entries = list(self._matching(object_class, wanted, needed, elements))
                if keys:
                    entries = _sorted(object_class, entries, keys, elements)
            handle = next(self._handles)
            self._queries[handle] = _Query(object_class, rows, elements, iter(entries))
            return handle

        return self._answer(begin)

    def read_next(self, handle: int) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        def following() -> DirectoryObject:
            query = self._queries.get(handle)
            if query is None:
                raise Refused(GENERIC_ERROR, f"no query {handle}")
            entry = next(query.entries, None)
            if entry is None:
                raise Refused(DirectoryOperationResult.END_OF_DATA)
            found = query.elements.element(query.object_class, entry, query.rows)
            query.elements.attach_host(found, entry)
            return found

        return self._answer(following)

    def read_end(self, handle: int) -> DirectoryOperationResult:
        def end() -> None:
            if self._queries.pop(handle, None) is None:
                raise Refused(GENERIC_ERROR, f"no query {handle}")

        return self._answer(end)[0]

    def _matching(
        self,
        object_class: ObjectClass,
        filters: list[AttributeFilter],
        rows: Iterable[Attribute],
        elements: Elements,
    ) -> Iterator[Entry]:
        """Yield the entries that satisfy every expression.

        Expressions that no server can evaluate are checked on the values read.
        """
        rows = list(rows)
        named, rest = self._named(object_class, filters)
        if named is None:
            sought, rest = ldap_filter(object_class, filters, elements.lookup)
        fields = {field_of(object_class.element, one.name) for one in rest}
        tested = [row for row in object_class.attributes if row.field in fields]
        attributes = ldap_attributes([*rows, *tested])
        if named is not None:
            path, guid = named
            entries = [self.operations.get(path, attributes, guid)]
            entries = [one for one in entries if object_class.ldap_class in one.get("objectClass", [])]
        else:
            entries = self.operations.search(object_class.ldap_class, sought, attributes)
        for entry in entries:
            if not rest or matches(elements.element(object_class, entry, tested), rest):
                yield entry

    def _named(
        self, object_class: ObjectClass, filters: list[AttributeFilter]
    ) -> tuple[tuple[str, uuid.UUID | None] | None, list[AttributeFilter]]:
        """Return the place of the only object that can match, and the remaining expressions."""
        for one in filters:
            if one.operator is not Operator.EQUALS:
                continue
            rest = [other for other in filters if other is not one]
            match field_of(object_class.element, one.name), one.value:
                case "identifier", uuid.UUID() as guid if not rest:
                    return ("", guid), rest
                case "full_path", str() as path if path and not rest:
                    return (path, None), rest
                case "computer_name", str() as computer if computer:
                    return (f"CN=msmq,{self._computer_dn(computer)}", None), rest
                case "pathname", str() as pathname:
                    try:
                        return (self._queue_dn(pathname), None), rest
                    except ValueError:
                        raise Refused(_NOT_FOUND, f"{pathname!r} is no public queue's name") from None
        return None, filters

    # 3.1.6.7 Write Directory
    # ----------------------------------------------------------------------------

    def write(self, obj: DirectoryObject, attributes: Sequence[str] | None = None) -> DirectoryOperationResult:
        return self._answer(lambda: self._write(obj, attributes))[0]

    def _write(self, obj: DirectoryObject, attributes: Sequence[str] | None) -> None:
        object_class = _class_of(obj, *CLASSES.values())
        rows = [row for row in listed_rows(object_class, attributes) if row.changeable]
        if not _is_stored(obj):
            return
        _check_values(obj)
        lookup = LdapLookup(self.operations)
        with self.operations.held():
            path, guid = self._place(object_class, obj)
            fields = {row.field for row in rows}
            former: Entry = {}
            if isinstance(obj, QueueManager) and fields & _SERVICE_FIELDS:
                former = self.operations.get(path, (*SOURCES, "mSMQSites"), guid)
            values = self._values(object_class, rows, obj, lookup, former)
            if isinstance(obj, User) and "certificates" in fields:
                values["mSMQDigests"] = list(_digests(obj.certificates))
            self.operations.set_properties(path, values, guid)
            security = getattr(obj, "security", None)
            if "security" in fields and isinstance(security, bytes):
                descriptor = SecurityDescriptor.unpack(security)
                written = to_directory(descriptor, GUARDED[object_class.name], self._profile)
                self.operations.set_security(path, written.pack(), guid)
            if isinstance(obj, QueueManager):
                self._written_queue_manager(obj, rows, path, guid, former)

    def _written_queue_manager(
        self, obj: QueueManager, rows: Sequence[Attribute], path: str, guid: uuid.UUID | None, former: Entry
    ) -> None:
        """Write the computer's keys, and the settings objects of a server (3.1.6.7.1.3)."""
        fields = {row.field for row in rows}
        if _SIGNING_KEYS in fields and obj.public_signing_key_list:
            dn = path or str(self.operations.get(path, (), guid)["distinguishedName"][0])
            computer = self._computer_dn(obj.computer_name) if obj.computer_name else parent_dn(dn)
            self._write_signing_keys(computer, obj.public_signing_key_list)
        if not fields & _SERVICE_FIELDS:
            return
        current = self.operations.get(path, SOURCES, guid)
        sites = obj.site_identifier_list or [
            uuid.UUID(bytes_le=site) for site in former.get("mSMQSites", []) if isinstance(site, bytes)
        ]
        computer = obj.computer_name or _computer_of(str(current["distinguishedName"][0]))
        settings = ServerSettings(self.operations, computer, sites)
        match is_server(former), is_server(current):
            case False, True:
                settings.create(current, replacing=False)
            case True, False:
                settings.delete()
            case True, True:
                settings.update(current)

    # 3.1.6.8, 3.1.6.9 Queue aliases and distribution lists
    # ----------------------------------------------

    def resolve_distribution_list(
        self,
        guid: uuid.UUID,
        domain: str | None,  # noqa: ARG002 - the GUID is enough in a forest
    ) -> tuple[DirectoryOperationResult, list[str] | None]:
        def members() -> list[str]:
            with self.operations.held():
                return distribution.resolve_list(self.operations, guid)

        return self._answer(members)

    def format_name_at(self, path: str) -> tuple[DirectoryOperationResult, str | None]:
        return self._answer(lambda: distribution.format_name_at(self.operations, without_server(path)))

    # Servers and accounts
    # -------------------------------------------------------------------------------------------

    def computer_sid(self, computer_name: str) -> bytes | None:
        def sid() -> bytes:
            held = self.operations.get(self._computer_dn(computer_name), ("objectSid",)).get("objectSid")
            if not held or not isinstance(held[0], bytes):
                raise Refused(_NOT_FOUND, f"computer {computer_name}: its objectSid cannot be read")
            return held[0]

        return self._answer(sid)[1]

    def acting_for(self, account: str) -> LdapDirectory | None:
        own = self.operations.log_on
        realm = self.naming.domain.upper()
        no_kerberos = own.ldaps is not None or importlib.util.find_spec("gssapi") is None
        if own.password is None or not realm or no_kerberos:
            _LOG.warning(
                "%s: a directory call for a user takes Kerberos and the account's password, without LDAPS", account
            )
            return None
        computer = own.user.rpartition("\\")[2].partition("@")[0]
        name = account.rpartition("\\")[2].partition("@")[0]
        log_on = LogOn(f"{computer}@{realm}", own.password, protocol="kerberos", acts_for=f"{name}@{realm}")
        other = LdapDirectory(self.operations.servers, log_on, profile=self._profile, find_server=self._find_server)
        return other if other.initialize() is _SUCCESS else None

    @property
    def keeper(self) -> None:
        """Nothing: the administrators of the domain keep its lists and users."""
        return None

    def apart(self) -> LdapDirectory:
        """Return the same directory with a connection of its own, for another thread."""
        other = LdapDirectory(
            self.operations.servers, self.operations.log_on, profile=self._profile, find_server=self._find_server
        )
        # The result of a failure is that of the first read.
        other.initialize()
        return other

    def servers(self) -> list[str]:
        try:
            return list(dict.fromkeys(server.host for server in self._locate()))
        except OSError as error:
            _LOG.warning("%s", error)
            return []

    def account(self, name_or_sid: str | bytes) -> tuple[DirectoryOperationResult, tuple[str, bytes] | None]:
        def found() -> tuple[str, bytes]:
            with self.operations.held():
                if isinstance(name_or_sid, str):
                    entry = self.operations.account(self._account_name(name_or_sid))
                else:
                    entry = self.operations.account_of(name_or_sid)
                name, sid = (entry or {}).get("sAMAccountName"), (entry or {}).get("objectSid")
                if not name or not sid or not isinstance(sid[0], bytes):
                    raise Refused(_NOT_FOUND, f"{_shown_account(name_or_sid)}: the domain has no such account")
                return f"{self._short_name()}\\{name[0]!s}", sid[0]

        return self._answer(found)

    def _account_name(self, name: str) -> str:
        """Return the account's part of a name.

        Raises Refused if the other part is another domain.
        """
        domain, separator, account = name.partition("\\")
        if not separator:
            account, _, domain = name.partition("@")
        if domain.casefold() not in (self._short_name().casefold(), self.naming.domain.casefold()):
            raise Refused(_NOT_FOUND, f"{name!r}: the domain is {self._short_name()}")
        return account

    def _short_name(self) -> str:
        if not self._netbios_name:
            self._netbios_name = self.operations.netbios_name()
        return self._netbios_name

    def ensure_user(self, name: str, security_identifier: bytes) -> DirectoryOperationResult:  # noqa: ARG002
        """Return ObjectNotFound: the domain's administrators create accounts."""
        return _NOT_FOUND

    # Names and values
    # -----------------------------------------------------------------------------------

    def _computer_dn(self, computer: str) -> str:
        """Return the name of a computer's object.

        MS-MQDSSM 2.2.1 puts all computers in the same container. If it is not there, it is found by
        its account's name.
        """
        usual = self.naming.computer(computer)
        if self.operations.exists(usual):
            return usual
        return self.operations.computer_dn(computer) or usual

    def _queue_dn(self, pathname: str) -> str:
        computer, name = split_pathname(pathname)
        return f"CN={escape(split_queue_name(name)[0])},CN=msmq,{self._computer_dn(computer)}"

    def _place(self, object_class: ObjectClass, obj: DirectoryObject) -> tuple[str, uuid.UUID | None]:
        """Return path and GUID of an object (3.1.6.2, 3.1.6.7); the GUID takes precedence."""
        if object_class is ENTERPRISE:
            return self.naming.enterprise, None
        guid = obj.identifier if obj.identifier != GUID_NULL else None
        path = getattr(obj, "full_path", "")
        if path or guid is not None:
            return path, guid
        match obj:
            case Queue() if obj.directory_path:
                return without_server(obj.directory_path), None
            case Queue() if obj.pathname:
                return self._queue_dn(obj.pathname), None
            case QueueManager() if obj.computer_name:
                return f"CN=msmq,{self._computer_dn(obj.computer_name)}", None
            case Site() if obj.name:
                return self.naming.site(obj.name), None
            case User() if obj.security_identifier:
                return self._user_dn(obj.security_identifier), None
        raise Refused(GENERIC_ERROR, f"{object_class.name}: nothing says which one")

    def _user_dn(self, sid: bytes) -> str:
        wanted = AttributeFilter("SecurityIdentifier", Operator.EQUALS, sid)
        sought, _ = ldap_filter(USER, [wanted], LdapLookup(self.operations))
        found = self.operations.search(USER.ldap_class, sought, ())
        if not found:
            raise Refused(GENERIC_ERROR, f"no user has the SID {Sid.unpack(sid)}")
        return str(found[0]["distinguishedName"][0])

    def _values(
        self,
        object_class: ObjectClass,
        rows: Iterable[Attribute],
        obj: DirectoryObject,
        lookup: LdapLookup,
        former: Entry | None = None,
    ) -> Entry:
        """Return the LDAP attributes of the listed rows; [] for those to be cleared.

        A value of None leaves its attribute unchanged.
        """
        values: Entry = {}
        scratch = {
            name: held for name, held in (former or {}).items() if name in (*SERVER_ATTRIBUTES, "mSMQServiceType")
        }
        for row in rows:
            value = getattr(obj, row.field)
            if row.write is None or row.on_computer or value is None:
                continue
            if row.field == "security" and (former is not None or object_class is not QUEUE):
                continue
            row.write(value, scratch, lookup)
            for name in row.ldap:
                values[name] = []
            if row.field == "directory_server" and former is not None:
                values["mSMQServiceType"] = []
        service_types(scratch)
        found = {name: scratch.get(name, []) for name in values}
        held = found.get(SECURITY)
        if held and isinstance(held[0], bytes):
            descriptor = SecurityDescriptor.unpack(held[0])
            found[SECURITY] = [to_directory(descriptor, GUARDED[object_class.name], self._profile).pack()]
        return found

    # Answering
    # ------------------------------------------------------------------------------------------

    def _answer(self, operation: Callable[[], T]) -> tuple[DirectoryOperationResult, T | None]:
        """Convert the outcome of an operation into a result of MS-MQDMPR 3.1.1.17."""
        try:
            return _SUCCESS, operation()
        except Refused as refused:
            # `operations` logs why there is no connection, once.
            if refused.result is not DirectoryOperationResult.DIRECTORY_NOT_CONNECTED and str(refused):
                _LOG.info("%s: %s", refused.result.value, refused)
            return refused.result, None
        except (ValueError, TypeError, LookupError, RemoteProtocolError, IllegalFormatname) as error:
            _LOG.warning("directory operation failed: %s", error)
            return GENERIC_ERROR, None


def _shown_account(name_or_sid: str | bytes) -> str:
    return name_or_sid if isinstance(name_or_sid, str) else str(Sid.unpack(name_or_sid))


def _class_of(obj: DirectoryObject, *allowed: ObjectClass) -> ObjectClass:
    found = next((one for one in allowed if one.element is type(obj)), None)
    if found is None:
        raise Refused(GENERIC_ERROR, f"{type(obj).__name__}: not an object that this can be done to")
    return found


def _is_stored(obj: DirectoryObject) -> bool:
    """Return whether an object is in the directory (3.1.6.20.2).

    Private, system, connector and outgoing queues are not.
    """
    return not isinstance(obj, Queue) or obj.queue_type is QueueType.PUBLIC


def _is_populated(value: object) -> bool:
    return value is not None and value not in ("", b"", [], GUID_NULL)


def _check_values(obj: DirectoryObject) -> None:
    """Check the values of a site link (MS-MQDMPR 3.1.1.8)."""
    if isinstance(obj, RoutingLink) and obj.actual_cost not in ROUTING_LINK_COST:
        raise Refused(GENERIC_ERROR, f"routing link cost {obj.actual_cost}: 1 to 999999 expected")


def _filled(values: Entry) -> Entry:
    """Return the values of a new object without empty attributes, which are not sent."""
    return {name: held for name, held in values.items() if held}


def _digests(certificates: bytes) -> list[bytes]:
    """Return the digests of certificates (3.1.6.1.1.9).

    MQDSPUBLICKEYS, which MS-MQDMPR 3.1.1.1 puts in the same place, have none.
    """
    try:
        return UserSignCerts.unpack(certificates).digests
    except RemoteProtocolError:
        return []


def _computer_of(dn: str) -> str:
    return unescape(rdn_values(dn)[1])


def _sortable(
    object_class: ObjectClass, names: Sequence[str], order: Sequence[SortOrder] | None
) -> list[tuple[Attribute, SortOrder]]:
    """Return the attributes to sort by, without those of the computer's object (3.1.6.4.1.2)."""
    if order is None:
        return []
    if len(order) != len(names):
        raise ValueError(f"{len(order)} sort orders for {len(names)} attributes")
    rows = {row.field: row for row in object_class.attributes if not row.on_computer}
    pairs = ((rows.get(field_of(object_class.element, name)), one) for name, one in zip(names, order, strict=True))
    return [(row, one) for row, one in pairs if row is not None and one.priority]


def _sorted(
    object_class: ObjectClass, entries: list[Entry], keys: list[tuple[Attribute, SortOrder]], elements: Elements
) -> list[Entry]:
    objects = [elements.element(object_class, entry, [row for row, _ in keys]) for entry in entries]
    by_guid = {obj.identifier: entry for obj, entry in zip(objects, entries, strict=True)}
    sort_objects(objects, [row.name for row, _ in keys], [one for _, one in keys])
    return [by_guid[obj.identifier] for obj in objects]
