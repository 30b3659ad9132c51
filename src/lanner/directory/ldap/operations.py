"""The LDAP operations of MS-MQDSSM 3.1.6.12-3.1.6.21, and the connection that they share.

All of them raise `Refused` with the result that the document assigns to the server's answer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lanner.directory.ldap.connection import ConnectionFailed, LdapConnection, LdapRefused, LogOn
from lanner.directory.ldap.messages import (
    Add,
    Alteration,
    Compare,
    Control,
    Delete,
    Filter,
    FoundEntry,
    Modify,
    Present,
    Rename,
    ResultCode,
    Scope,
    Search,
    sd_flags,
)
from lanner.directory.ldap.service_location import Server
from lanner.directory.names import escape, parent_dn, rdn_values
from lanner.directory.protocol import Refused
from lanner.directory.schema import Entry
from lanner.model.enums import DirectoryOperationResult
from lanner.wire.security_descriptor import Control as DescriptorControl
from lanner.wire.security_descriptor import SecurityDescriptor, SecurityInformation

_LOG = logging.getLogger(__name__)

SECURITY: Final = "nTSecurityDescriptor"
# MS-MQDSSM 3.1.6.15.
SEARCH_TIME_LIMIT: Final = 120
# Not in the specification: seconds for which a connection that nothing uses is kept.
IDLE_LIFETIME: Final = 60.0
# Owner, group and DACL. A request for the SACL, too, would return nothing to a caller without the
# right to read it.
_READABLE: Final = SecurityInformation.OWNER | SecurityInformation.GROUP | SecurityInformation.DACL

# The attributes whose values are octets; all others are text.
_OCTETS: Final = frozenset(
    {
        "objectGUID",
        "objectSid",
        SECURITY,
        "mSMQQueueType",
        "mSMQSites",
        "mSMQEncryptKey",
        "mSMQSignCertificates",
        "mSMQDigests",
        "mSMQQMID",
        "tokenGroups",
    }
)

# 2.2.6; every other code is GenericError.
_RESULTS: Final[dict[int, DirectoryOperationResult]] = {
    ResultCode.NO_SUCH_OBJECT: DirectoryOperationResult.OBJECT_NOT_FOUND,
    ResultCode.NO_SUCH_ATTRIBUTE: DirectoryOperationResult.ATTRIBUTE_NOT_FOUND,
    ResultCode.ENTRY_ALREADY_EXISTS: DirectoryOperationResult.OBJECT_ALREADY_EXISTS,
}

_NOT_CONNECTED: Final = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
_GENERIC_ERROR: Final = DirectoryOperationResult.GENERIC_ERROR
_NOT_FOUND: Final = DirectoryOperationResult.OBJECT_NOT_FOUND


def result_of(code: int) -> DirectoryOperationResult:
    """Return the result for an LDAP code (2.2.6)."""
    return _RESULTS.get(code, _GENERIC_ERROR)


class LdapOperations:
    """The directory as seen by one identity.

    CachedLDAPConnection, 3.1.1.6: never shared with another identity.
    """

    def __init__(self, locate: Callable[[], Sequence[Server]], log_on: LogOn) -> None:
        self.log_on = log_on
        # CachedConfigurationNamingContext (3.1.1.5), and further values of the same answer.
        self.configuration_context = ""
        self.root = ""
        self.domain = ""
        # The server of the last connection.
        self._connected_to: Server | None = None
        self.uses = 0
        self._used_at = 0.0
        self.connection: LdapConnection | None = None
        self._locate = locate
        # The servers that were located the last time, in the order to try them.
        self._servers: list[Server] = []
        # Why there is no connection; empty: there is one, or none was needed yet.
        self.problem = ""
        self._lock = threading.RLock()

    @property
    def server(self) -> str:
        """The name of the server of the last connection; empty before the first."""
        return "" if self._connected_to is None else self._connected_to.host

    def servers(self) -> list[Server]:
        """Return the servers in the order to try them: those of the last time, if there are any.

        Raises OSError if they cannot be located.
        """
        return self._servers or list(self._locate())

    # 3.1.3 Initialization
    # -----------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Read the naming contexts.

        After Refused there are none, and no operation works until this succeeds.
        """
        self.configuration_context = ""
        with self._prepared() as connection:
            (found,) = connection.search(Search(""))
        contexts = {name.lower(): values[0].decode() for name, values in found.values.items() if values}
        self.root = contexts.get("rootdomainnamingcontext", "")
        self.domain = contexts.get("defaultnamingcontext", "")
        self.configuration_context = contexts.get("configurationnamingcontext", "")

    # 3.1.6.18 Prepare, 3.1.6.21 Shut Down an LDAP Connection
    # ------------------------------------------------

    def prepare(self) -> LdapConnection:
        """Return the connection, or a new one to the first domain controller that accepts it."""
        with self._lock:
            if self.connection is not None and (self._is_stale() or self.connection.is_closed):
                self._drop(self.connection)
            if self.connection is None:
                self.connection = self._connect()
            self.uses += 1
            self._used_at = time.monotonic()
            return self.connection

    def linger(self) -> None:
        """Keep the connection between operations, too. This is a use, which `shut_down` ends."""
        with self._lock:
            self.uses += 1

    def _is_stale(self) -> bool:
        """Return whether the connection was idle so long that a firewall may have dropped it."""
        return self.uses <= 1 and time.monotonic() - self._used_at > IDLE_LIFETIME

    def _connect(self) -> LdapConnection:
        problems: list[str] = []
        known = list(self._servers)
        try:
            # A server that does not answer costs seconds, and so does a DNS server: both are asked
            # again only when no server that is known accepts a connection.
            connection = self._connect_to(known, problems) if known else None
            if connection is None:
                self._servers = list(self._locate())
                connection = self._connect_to([one for one in self._servers if one not in known], problems)
        except OSError as error:
            problems.append(str(error))
            connection = None
        if connection is not None:
            self.problem = ""
            return connection
        why = "; ".join(problems) or "no domain controller is known"
        # The same problem may occur every few seconds for days.
        _LOG.log(logging.DEBUG if why == self.problem else logging.INFO, "no connection to the directory: %s", why)
        self.problem = why
        raise Refused(_GENERIC_ERROR, why)

    def _connect_to(self, servers: Sequence[Server], problems: list[str]) -> LdapConnection | None:
        for server in servers:
            try:
                connection = LdapConnection(server.host, server.address, server.port, self.log_on)
            except (ConnectionFailed, LdapRefused) as error:
                problems.append(str(error))
                self._try_last(server)
            else:
                self._connected_to = server
                return connection
        return None

    def _try_last(self, server: Server) -> None:
        """Have a server that failed tried after all others."""
        if server in self._servers:
            self._servers.remove(server)
            self._servers.append(server)

    def shut_down(self) -> None:
        """End one use; the last one closes the connection."""
        with self._lock:
            self.uses -= 1
            if self.uses == 0 and self.connection is not None:
                self.connection.close()
                self.connection = None

    def _drop(self, connection: LdapConnection) -> None:
        with self._lock:
            if self.connection is connection:
                self.connection = None
        connection.close()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the connection over several operations, if there can be one."""
        try:
            self.prepare()
        except Refused:
            yield
            return
        try:
            yield
        finally:
            self.shut_down()

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[LdapConnection]:
        try:
            connection = self.prepare()
        except Refused as refused:
            raise Refused(_NOT_CONNECTED, str(refused)) from None
        try:
            with self._lock:
                yield connection
        except LdapRefused as refused:
            _LOG.info("%s", refused)
            raise Refused(result_of(refused.code), str(refused)) from None
        except ConnectionFailed as error:
            self._drop(connection)
            self.problem = str(error)
            _LOG.info("%s", error)
            if self._connected_to is not None:
                self._try_last(self._connected_to)
            raise Refused(_NOT_CONNECTED, str(error)) from None
        finally:
            self.shut_down()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[LdapConnection]:
        if not self.configuration_context:
            raise Refused(_NOT_CONNECTED, "the directory could not be reached when it was last asked")
        with self._prepared() as connection:
            yield connection

    # Operations
    # -------------------------------------------------------------------------------------------

    def create(self, parent: str, child: str, ldap_class: str, values: Entry) -> uuid.UUID:
        """3.1.6.12 Create Object Using LDAP."""
        dn = f"CN={escape(child)},{parent}"
        with self._connected() as connection:
            connection.search(Search(parent, attributes=("objectClass",)))
            listed = (("objectClass", (ldap_class,)), *((name, tuple(held)) for name, held in values.items()))
            controls = [_flags_of(values[SECURITY][0])] if SECURITY in values else []
            connection.perform(Add(dn, listed), *controls)
            return _guid_of(_only(connection.search(Search(dn, attributes=("objectGUID",)))))

    def delete(self, path: str, guid: uuid.UUID | None = None) -> str:
        """3.1.6.13 Delete Object Using LDAP. Returns the name that the object had."""
        with self._connected() as connection:
            dn = self._path(connection, path, guid)
            connection.search(Search(parent_dn(dn), attributes=("objectClass",)))
            connection.search(Search(dn, attributes=("objectClass",)))
            connection.perform(Delete(dn))
            return dn

    def get(self, path: str, attributes: Sequence[str], guid: uuid.UUID | None = None) -> Entry:
        """3.1.6.14 Get Object Properties Using LDAP."""
        with self._connected() as connection:
            wanted = _wanted(attributes)
            dn = self._path(connection, path, guid)
            found = connection.search(Search(dn, attributes=wanted), *_controls(wanted))
            return _entry(_only(found), wanted)

    def get_range(self, dn: str, name: str) -> list[str]:
        """Return all values of an attribute that servers send in parts (MS-ADTS 3.1.1.3.1.3.3)."""
        values: list[str] = []
        with self._connected() as connection:
            while True:
                asked = f"{name};range={len(values)}-*"
                (found,) = connection.search(Search(dn, attributes=(asked,)))
                ranged = next((key for key in found.values if key.lower().startswith(f"{name.lower()};")), "")
                values += [value.decode() for value in found.values.get(ranged, [])]
                if not ranged or ranged.endswith("-*") or not found.values[ranged]:
                    return values

    def search(
        self, ldap_class: str, wanted_filter: Filter, attributes: Sequence[str], base: str | None = None
    ) -> list[Entry]:
        """3.1.6.15 Search Using LDAP, below `base` or in the container of the class."""
        wanted = _wanted(attributes)
        with self._connected() as connection:
            base = base or self._base_of(ldap_class)
            connection.search(Search(base, attributes=("objectClass",)))
            request = Search(base, Scope.SUBTREE, wanted_filter, wanted, time_limit=SEARCH_TIME_LIMIT)
            pages = connection.search_paged(request, *_controls(wanted))
            return [_entry(found, wanted) for page in pages for found in page]

    def set_properties(self, path: str, values: Entry, guid: uuid.UUID | None = None) -> None:
        """3.1.6.16 Set Object Properties Using LDAP. An attribute without values is cleared."""
        with self._connected() as connection:
            dn = self._path(connection, path, guid)
            connection.search(Search(dn, attributes=("objectClass",)))
            changes = tuple((Alteration.REPLACE, name, tuple(held)) for name, held in values.items())
            if changes:
                connection.perform(Modify(dn, changes))

    def set_security(self, path: str, descriptor: bytes, guid: uuid.UUID | None = None) -> None:
        """3.1.6.17 Set Object Security Using LDAP."""
        with self._connected() as connection:
            dn = self._path(connection, path, guid)
            _only(connection.search(Search(dn, attributes=("objectClass",))))
            # Without the flags, a caller that may not read the SACL gets no descriptor.
            search = Search(dn, filter=Present(SECURITY), attributes=("objectClass",))
            _only(connection.search(search, sd_flags(_READABLE)))
            changes = ((Alteration.REPLACE, SECURITY, (descriptor,)),)
            connection.perform(Modify(dn, changes), _flags_of(descriptor))

    def change_password(self, dn: str, old: bytes, new: bytes) -> None:
        """Have an account change its own password (MS-ADTS 3.1.1.3.1.5.2).

        The old value is deleted and the new one added.
        """
        with self._connected() as connection:
            changes = ((Alteration.DELETE, "unicodePwd", (old,)), (Alteration.ADD, "unicodePwd", (new,)))
            connection.perform(Modify(dn, changes))

    def rename(self, dn: str, name: str) -> str:
        """Give an object another common name; return its new distinguished name."""
        with self._connected() as connection:
            connection.perform(Rename(dn, f"CN={escape(name)}"))
        return f"CN={escape(name)},{parent_dn(dn)}"

    def delete_tree(self, dn: str) -> None:
        """Delete an object and all objects below it, the deepest first."""
        with self._connected() as connection:
            below = connection.search(Search(dn, Scope.SUBTREE, attributes=("distinguishedName",)))
            for found in sorted(below, key=lambda one: -len(rdn_values(one.dn))):
                connection.perform(Delete(found.dn))

    def guids_below(self, dn: str, ldap_class: str) -> list[uuid.UUID]:
        """Return the objects of a class at or below a place."""
        with self._connected() as connection:
            request = Search(dn, Scope.SUBTREE, Compare("objectClass", "=", ldap_class), ("objectGUID",))
            return [_guid_of(found) for page in connection.search_paged(request) for found in page]

    def account(self, name: str) -> Entry | None:
        """Return the user, group or computer of an account name in this domain, or None."""
        return self._account(Compare("sAMAccountName", "=", name))

    def account_of(self, sid: bytes) -> Entry | None:
        """Return the user, group or computer of a SID in this domain, or None."""
        return self._account(Compare("objectSid", "=", sid))

    def _account(self, sought: Filter) -> Entry | None:
        wanted = ("sAMAccountName", "objectSid", "objectGUID", "distinguishedName")
        with self._connected() as connection:
            found = connection.search(Search(self.domain, Scope.SUBTREE, sought, wanted))
            return _entry(found[0], wanted) if len(found) == 1 else None

    def netbios_name(self) -> str:
        """Return the short name of this domain, as it stands before a backslash."""
        base = f"CN=Partitions,{self.configuration_context}"
        with self._connected() as connection:
            found = connection.search(
                Search(base, Scope.SUBTREE, Compare("nCName", "=", self.domain), ("nETBIOSName",))
            )
            entry = _entry(_only(found), ("nETBIOSName",))
        if "nETBIOSName" not in entry:
            raise Refused(_GENERIC_ERROR, f"{base}: the domain's NetBIOS name cannot be read")
        return str(entry["nETBIOSName"][0])

    def find(self, guid: uuid.UUID) -> str:
        """3.1.6.19 Find Object By GUID Using LDAP."""
        with self._connected() as connection:
            return self._path(connection, "", guid)

    def caller(self) -> bytes:
        """Return the SID of the account of this connection: the first one of its token."""
        with self._connected() as connection:
            return _only(connection.search(Search("", attributes=("tokenGroups",)))).values["tokenGroups"][0]

    def computer_dn(self, computer: str) -> str | None:
        """Return the computer with this account name, anywhere in the domain.

        2.2.1 has only one place.
        """
        account = Compare("sAMAccountName", "=", f"{computer}$")
        with self._connected() as connection:
            found = connection.search(Search(self.domain, Scope.SUBTREE, account, ("distinguishedName",)))
            return found[0].dn if len(found) == 1 else None

    def exists(self, dn: str) -> bool:
        try:
            with self._connected() as connection:
                return bool(connection.search(Search(dn, attributes=("objectClass",))))
        except Refused as refused:
            if refused.result is _NOT_FOUND:
                return False
            raise

    def _path(self, connection: LdapConnection, path: str, guid: uuid.UUID | None) -> str:
        if guid is None:
            return path
        # The search that the document prints finds nothing; a GUID is an address of its own
        # (MS-ADTS 3.1.1.3.1.2.4).
        return _only(connection.search(Search(f"<GUID={guid}>", attributes=("distinguishedName",)))).dn

    def _base_of(self, ldap_class: str) -> str:
        match ldap_class:
            case "site":
                return f"CN=Sites,{self.configuration_context}"
            case "mSMQEnterpriseSettings":
                return f"CN=Services,{self.configuration_context}"
            case "mSMQSiteLink":
                return f"CN=MsmqServices,CN=Services,{self.configuration_context}"
            case _:
                # The document's base contains none of them.
                return self.domain


def _wanted(attributes: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*attributes, "objectGUID", "distinguishedName", "objectClass")))


def _controls(attributes: Sequence[str]) -> list[Control]:
    return [sd_flags(_READABLE)] if SECURITY in attributes else []


def _flags_of(value: str | bytes) -> Control:
    """Return the control that selects the parts that a descriptor has.

    Selecting another part would overwrite it in the directory.
    """
    descriptor = SecurityDescriptor.unpack(value if isinstance(value, bytes) else value.encode())
    parts = (
        (SecurityInformation.OWNER, descriptor.owner is not None),
        (SecurityInformation.GROUP, descriptor.group is not None),
        (SecurityInformation.DACL, DescriptorControl.DACL_PRESENT in descriptor.control),
        (SecurityInformation.SACL, DescriptorControl.SACL_PRESENT in descriptor.control),
    )
    return sd_flags(sum(int(part) for part, is_there in parts if is_there))


def _only(found: Sequence[FoundEntry]) -> FoundEntry:
    if not found:
        raise Refused(_NOT_FOUND)
    return found[0]


def _entry(found: FoundEntry, wanted: Sequence[str]) -> Entry:
    """Return the attributes under the requested names, in the types of the schema."""
    there = {name.lower(): values for name, values in found.values.items()}
    entry: Entry = {}
    for name in wanted:
        values = there.get(name.lower())
        if values:
            entry[name] = list(values) if name in _OCTETS else [value.decode("utf-8", "replace") for value in values]
    return entry


def _guid_of(found: FoundEntry) -> uuid.UUID:
    values = _entry(found, ("objectGUID",)).get("objectGUID")
    if not values or not isinstance(values[0], bytes):
        raise Refused(_GENERIC_ERROR, f"{found.dn}: its objectGUID cannot be read")
    return uuid.UUID(bytes_le=values[0])
