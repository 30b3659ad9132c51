"""ADM attributes and the LDAP attributes that hold them.

MS-MQDSSM 2.4, 3.1.6.10, 3.1.6.11, 3.1.6.20. There is one table per class and one row per attribute.
An entry is in the form that LDAP returns: attribute names with lists of values, as text or octets
in the syntax of the Active Directory schema. A row says how to read its ADM value from an entry,
how to write it into one, and which value stands for an attribute that is not set.
"""

from __future__ import annotations

import calendar
import enum
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lanner.directory.filters import plain_name
from lanner.directory.names import join_queue_name, rdn_values, unescape
from lanner.model.directory_objects import (
    DEFAULT_QUEUE_MANAGER_QUOTA,
    GUID_NULL,
    DirectoryObject,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from lanner.model.enums import INFINITE, DirectoryServerType, OperatingSystemType, QueuePrivacyLevel

Value = str | bytes
Entry = dict[str, list[Value]]


class Lookup(Protocol):
    """The queries of rows about other entries of the directory."""

    root: str

    @property
    def is_strict(self) -> bool:
        """Whether a link with a deleted site gate is unreadable (MS-MQDSSM 3.1.6.11.5.3)."""
        ...

    def dn_of(self, object_class: str, guid: uuid.UUID) -> str | None: ...

    def guid_of(self, dn: str) -> uuid.UUID | None: ...

    def above(self, entry: Entry, levels: int) -> Entry | None: ...


class Unset(Exception):
    """The entry has no value for the attribute."""


class Unresolved(ValueError):
    """A value names an object that the directory does not have."""


class _Required(enum.Enum):
    REQUIRED = "no default"


# MS-MQDSSM 3.1.6.11: "If not set: Error".
REQUIRED: Final = _Required.REQUIRED

Read = Callable[[Entry, Lookup], Any]
Write = Callable[[Any, Entry, Lookup], None]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One row: names (MS-MQDSSM 3.1.6.10), read and default (3.1.6.11), create and write.

    Create is 3.1.6.1, write is 3.1.6.7.
    """

    name: str
    field: str
    ldap: tuple[str, ...]
    read: Read
    # None: set by the directory itself (distinguishedName, whenCreated ...).
    write: Write | None
    default: object
    # Whether Write Directory may change it; others are set once, by Create.
    changeable: bool
    on_computer: bool
    # How a filter compares the first LDAP attribute; None: no server can evaluate it.
    syntax: Syntax | None = None


@dataclass(frozen=True, slots=True)
class ObjectClass:
    """A subtype of DirectoryObject and the LDAP class that stores it (MS-MQDSSM 2.2.1)."""

    name: str
    element: type[DirectoryObject]
    ldap_class: str
    attributes: tuple[Attribute, ...]
    # 3.1.6.20: attributes of the element on which any operation is a GenericError.
    unsupported: tuple[str, ...] = ()
    # 3.1.6.1.x.1 Preconditions. `required`: fields that must have a value. `listed`: fields that
    # must be among the attributes to create.
    required: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()

    def find(self, name: str) -> Attribute | None:
        wanted = plain_name(name)
        return next((row for row in self.attributes if wanted in (plain_name(row.name), plain_name(row.field))), None)


# Syntaxes
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Syntax:
    """The representation of a value in LDAP (MS-ADTS 3.1.1.2.2.2)."""

    encode: Callable[[Any], list[Value]]
    decode: Callable[[list[Value]], Any]


def _text(value: Value) -> str:
    return value if isinstance(value, str) else value.decode("utf-8")


def _octets(value: Value) -> bytes:
    if isinstance(value, str):
        raise TypeError(f"octets expected, {value!r} found")
    return value


def _generalized_time(seconds: int) -> str:
    return time.strftime("%Y%m%d%H%M%S.0Z", time.gmtime(seconds))


def _seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text[:14], "%Y%m%d%H%M%S"))


def enumeration(cls: type[enum.IntEnum]) -> Syntax:
    return Syntax(lambda value: [str(int(value))], lambda values: cls(int(_text(values[0]))))


# Active Directory's Integer is 32 bits with a sign: 0xFFFFFFFF is stored as -1.
INTEGER: Final = Syntax(
    lambda value: [str(value - (1 << 32) if value >= 1 << 31 else value)],
    lambda values: int(_text(values[0])) % (1 << 32),
)
# The same with a sign: priorities.
SIGNED: Final = Syntax(lambda value: [str(value)], lambda values: int(_text(values[0])))
BOOLEAN: Final = Syntax(lambda value: ["TRUE" if value else "FALSE"], lambda values: _text(values[0]) == "TRUE")
# mSMQNt4Stub is an Integer with the values 0 and 1 only.
BIT: Final = Syntax(lambda value: ["1" if value else "0"], lambda values: _text(values[0]) == "1")
YES_NO: Final = Syntax(lambda value: ["Y" if value else "N"], lambda values: _text(values[0]) == "Y")
# MS-MQDSSM 3.1.6.11.3: mSMQVersion 3 is a directory of MSMQ 1.0 servers, 200 is Active Directory.
OLD_DIRECTORY: Final = Syntax(lambda value: ["3" if value else "200"], lambda values: _text(values[0]) == "3")
TEXT: Final = Syntax(lambda value: [value] if value else [], lambda values: _text(values[0]))
OCTETS: Final = Syntax(lambda value: [value] if value else [], lambda values: _octets(values[0]))
OCTETS_LIST: Final = Syntax(list, lambda values: [_octets(value) for value in values])
GUID: Final = Syntax(lambda value: [value.bytes_le], lambda values: uuid.UUID(bytes_le=_octets(values[0])))
GUIDS: Final = Syntax(
    lambda value: [guid.bytes_le for guid in value],
    lambda values: [uuid.UUID(bytes_le=_octets(value)) for value in values],
)
TIME: Final = Syntax(lambda value: [_generalized_time(value)], lambda values: _seconds(_text(values[0])))


# Rows
# ------------------------------------------------------------------------------------------------


def get(entry: Entry, name: str) -> list[Value]:
    values = entry.get(name)
    if not values:
        raise Unset(name)
    return values


def put(entry: Entry, name: str, values: list[Value]) -> None:
    """Set an attribute; an empty list unsets it."""
    if values:
        entry[name] = values
    else:
        entry.pop(name, None)


def _field(name: str) -> str:
    """Return the field name of an attribute: snake case, with LDAP as one word."""
    words = name.replace("LDAP", "Ldap")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")


def _row(
    name: str,
    ldap: str | tuple[str, ...],
    read: Read,
    write: Write | None,
    default: object = REQUIRED,
    *,
    changeable: bool = True,
    on_computer: bool = False,
    syntax: Syntax | None = None,
) -> Attribute:
    names = (ldap,) if isinstance(ldap, str) else ldap
    changeable = changeable and write is not None
    return Attribute(name, _field(name), names, read, write, default, changeable, on_computer, syntax)


def plain(
    name: str,
    ldap: str,
    syntax: Syntax,
    default: object = REQUIRED,
    *,
    changeable: bool = True,
    on_computer: bool = False,
    is_own: bool = False,
) -> Attribute:
    """Return the row of a value that one LDAP attribute holds.

    `is_own`: only the directory itself sets it.
    """

    def read(entry: Entry, _: Lookup) -> object:
        return syntax.decode(get(entry, ldap))

    def write(value: object, entry: Entry, _: Lookup) -> None:
        put(entry, ldap, syntax.encode(value))

    return _row(
        name,
        ldap,
        read,
        None if is_own else write,
        default,
        changeable=changeable,
        on_computer=on_computer,
        syntax=None if on_computer else syntax,
    )


def reference(name: str, ldap: str, object_class: str) -> Attribute:
    """Return the row of a GUID that is stored as the name of its object; both must exist."""

    def read(entry: Entry, lookup: Lookup) -> uuid.UUID:
        dn = _text(get(entry, ldap)[0])
        guid = lookup.guid_of(dn)
        if guid is None:
            raise Unresolved(f"{ldap}: no object {dn}")
        return guid

    def write(value: uuid.UUID, entry: Entry, lookup: Lookup) -> None:
        dn = lookup.dn_of(object_class, value)
        if dn is None:
            raise Unresolved(f"{ldap}: no {object_class} {value}")
        put(entry, ldap, [dn])

    return _row(name, ldap, read, write)


def references(name: str, ldap: str, object_class: str, *, is_complete: bool = False) -> Attribute:
    """Return the row of a list of such GUIDs; missing objects are skipped.

    3.1.6.1.1.6, 3.1.6.11.1.3. 3.1.6.11.5.3 makes a deleted site gate an error of the whole link
    (`is_complete`). Only a strict lookup follows it: in an embedded directory such a link could
    never be repaired.
    """

    def read(entry: Entry, lookup: Lookup) -> list[uuid.UUID]:
        names = [_text(dn) for dn in get(entry, ldap)]
        found = [guid for guid in map(lookup.guid_of, names) if guid is not None]
        if is_complete and lookup.is_strict and len(found) < len(names):
            raise Unresolved(f"{ldap}: {len(names) - len(found)} of {len(names)} objects are gone")
        return found

    def write(value: list[uuid.UUID], entry: Entry, lookup: Lookup) -> None:
        found = (lookup.dn_of(object_class, guid) for guid in value)
        put(entry, ldap, [dn for dn in found if dn is not None])

    return _row(name, ldap, read, write, [])


def derived(name: str, ldap: str | tuple[str, ...], read: Read, default: object = REQUIRED) -> Attribute:
    """Return the row of a value that is computed from an object's name and never written."""
    return _row(name, ldap, read, None, default)


def _computer_name(entry: Entry, _: Lookup) -> str:
    """Return the second element of CN=msmq,CN=<computer>,... (3.1.6.11.1.1)."""
    return unescape(rdn_values(_text(get(entry, "distinguishedName")[0]))[1])


def _queue_name(entry: Entry) -> str:
    child = unescape(rdn_values(_text(get(entry, "distinguishedName")[0]))[0])
    extension = entry.get("mSMQQueueNameExt")
    return join_queue_name(child, _text(extension[0]) if extension else "")


def _pathname(entry: Entry, _: Lookup) -> str:
    """Return the path name in lower case (3.1.6.11.2.1)."""
    computer = unescape(rdn_values(_text(get(entry, "distinguishedName")[0]))[2])
    return f"{computer}\\{_queue_name(entry)}".lower()


def _qualified_pathname(entry: Entry, lookup: Lookup) -> str:
    """Return the path name with the DNS name (3.1.6.11.2.2); empty without a DNS name."""
    computer = lookup.above(entry, 2)
    if computer is None or not computer.get("dNSHostName"):
        return ""
    return f"{_text(computer['dNSHostName'][0])}\\{_queue_name(entry)}".lower()


def _directory_path(entry: Entry, _: Lookup) -> str:
    return f"LDAP://{_text(get(entry, 'distinguishedName')[0])}"


def _enterprise_name(_: Entry, lookup: Lookup) -> str:
    if not lookup.root:
        raise Unset("rootDomainNamingContext")
    return lookup.root


# 3.1.6.1.1.5: the bits of mSMQServiceType.
_ROUTING_SERVER: Final = 0x01
_REMOTE_ACCESS_SERVER: Final = 0x10
_DIRECTORY_SERVER_BITS: Final = {
    DirectoryServerType.STANDALONE: 0x00,
    DirectoryServerType.BACKUP_SITE_CONTROLLER: 0x02,
    DirectoryServerType.PRIMARY_SITE_CONTROLLER: 0x04,
    DirectoryServerType.PRIMARY_ENTERPRISE_CONTROLLER: 0x08,
}
_DIRECTORY_SERVER_MASK: Final = 0x0E


def _service_type(entry: Entry) -> int:
    values = entry.get("mSMQServiceType")
    return int(INTEGER.decode(values)) if values else 0


def _set_service_bits(entry: Entry, mask: int, bits: int) -> None:
    put(entry, "mSMQServiceType", INTEGER.encode(_service_type(entry) & ~mask | bits))


def _write_routing_server(value: bool, entry: Entry, _: Lookup) -> None:
    put(entry, "mSMQRoutingServices", BOOLEAN.encode(value))
    _set_service_bits(entry, _ROUTING_SERVER, _ROUTING_SERVER if value else 0)


def _read_routing_server(entry: Entry, _: Lookup) -> object:
    return BOOLEAN.decode(get(entry, "mSMQRoutingServices"))


def _write_remote_access_server(value: bool, entry: Entry, _: Lookup) -> None:
    _set_service_bits(entry, _REMOTE_ACCESS_SERVER, _REMOTE_ACCESS_SERVER if value else 0)


def _read_remote_access_server(entry: Entry, _: Lookup) -> bool:
    return bool(_service_type(entry) & _REMOTE_ACCESS_SERVER)


def _write_directory_server_type(value: DirectoryServerType, entry: Entry, _: Lookup) -> None:
    # 3.1.6.1.1.5: without DirectoryServer the type sets no bit. DirectoryServer precedes it in the
    # table.
    is_server = entry.get("mSMQDsServices") == ["TRUE"]
    _set_service_bits(entry, _DIRECTORY_SERVER_MASK, _DIRECTORY_SERVER_BITS[value] if is_server else 0)


def service_types(entry: Entry) -> None:
    """Clear the types of a queue manager that is no directory server (3.1.6.1.1.5)."""
    if "mSMQServiceType" in entry and entry.get("mSMQDsServices") != ["TRUE"]:
        _set_service_bits(entry, _DIRECTORY_SERVER_MASK, 0)


def _read_directory_server_type(entry: Entry, _: Lookup) -> DirectoryServerType | None:
    """Return the type of a directory server (3.1.6.11.1.5); not set for other queue managers."""
    if entry.get("mSMQDsServices") != ["TRUE"]:
        return None
    bits = _service_type(entry) & _DIRECTORY_SERVER_MASK
    return next((kind for kind, bit in _DIRECTORY_SERVER_BITS.items() if bit & bits), DirectoryServerType.STANDALONE)


_CLUSTER_PRINCIPAL: Final = "MSClusterVirtualServer"


def _read_clustered(entry: Entry, _: Lookup) -> bool:
    """Return whether the queue manager is clustered (3.1.6.11.1.6)."""
    return any(_CLUSTER_PRINCIPAL in _text(name) for name in entry.get("servicePrincipalName", []))


def _write_clustered(value: bool, entry: Entry, _: Lookup) -> None:
    others = [name for name in entry.get("servicePrincipalName", []) if _CLUSTER_PRINCIPAL not in _text(name)]
    host = unescape(rdn_values(_text(get(entry, "distinguishedName")[0]))[0])
    put(entry, "servicePrincipalName", [*others, f"{_CLUSTER_PRINCIPAL}/{host}"] if value else others)


IDENTIFIER: Final = plain("Identifier", "objectGUID", GUID, is_own=True)
FULL_PATH: Final = plain("FullPath", "distinguishedName", TEXT, is_own=True)
CREATE_TIME: Final = plain("CreateTime", "whenCreated", TIME, is_own=True)
MODIFY_TIME: Final = plain("ModifyTime", "whenChanged", TIME, is_own=True)
SECURITY: Final = plain("Security", "nTSecurityDescriptor", OCTETS)

QUEUE: Final = ObjectClass(
    "Queue",
    Queue,
    "mSMQQueue",
    (
        IDENTIFIER,
        plain("Label", "mSMQLabelEx", TEXT, ""),
        CREATE_TIME,
        MODIFY_TIME,
        plain("Type", "mSMQQueueType", GUID, GUID_NULL),
        derived("Pathname", ("distinguishedName", "mSMQQueueNameExt"), _pathname),
        derived("QualifiedPathname", ("distinguishedName", "mSMQQueueNameExt"), _qualified_pathname),
        plain("Journaling", "mSMQJournal", BOOLEAN, default=False),
        plain("Quota", "mSMQQueueQuota", INTEGER, INFINITE),
        plain("JournalQuota", "mSMQQueueJournalQuota", INTEGER, INFINITE),
        plain("Authentication", "mSMQAuthenticate", BOOLEAN, default=False),
        plain("PrivacyLevel", "mSMQPrivacyLevel", enumeration(QueuePrivacyLevel), QueuePrivacyLevel.OPTIONAL),
        # 3.1.6.7.2.2 does not list it: a queue stays as it was created.
        plain("Transactional", "mSMQTransactional", BOOLEAN, default=False, changeable=False),
        plain("MulticastAddress", "MSMQ-MulticastAddress", TEXT, None),
        SECURITY,
        plain("BasePriority", "mSMQBasePriority", SIGNED, 0),
        FULL_PATH,
        derived("DirectoryPath", "distinguishedName", _directory_path),
    ),
    unsupported=("Scope",),
    required=("pathname",),
    listed=("pathname",),
)

QUEUE_MANAGER: Final = ObjectClass(
    "QueueManager",
    QueueManager,
    "mSMQConfiguration",
    (
        IDENTIFIER,
        derived("ComputerName", "distinguishedName", _computer_name),
        plain("QueueManagerVersion", "mSMQComputerTypeEx", TEXT, ""),
        plain("OperatingSystemVersion", "operatingSystemVersion", TEXT, "", on_computer=True),
        # 3.1.6.11.1 says "Unknown", which the enumeration lacks.
        plain("OperatingSystemType", "mSMQOSType", enumeration(OperatingSystemType), OperatingSystemType.OTHER),
        plain("QualifiedComputerName", "dNSHostName", TEXT, "", on_computer=True),
        CREATE_TIME,
        MODIFY_TIME,
        # The document says 0x00100000 here and 0x00800000 in MS-MQDMPR 3.1.1.1.
        plain("QueueManagerQuota", "mSMQQuota", INTEGER, DEFAULT_QUEUE_MANAGER_QUOTA),
        plain("JournalQuota", "mSMQJournalQuota", INTEGER, INFINITE),
        plain("ForeignSystem", "mSMQForeign", BOOLEAN, default=False),
        FULL_PATH,
        plain("SiteIdentifierList", "mSMQSites", GUIDS, []),
        references("OutRoutingServerIdentifierList", "mSMQOutRoutingServers", "mSMQConfiguration"),
        references("InRoutingServerIdentifierList", "mSMQInRoutingServers", "mSMQConfiguration"),
        plain("DirectoryServer", "mSMQDsServices", BOOLEAN, default=False),
        _row("RemoteAccessServer", "mSMQServiceType", _read_remote_access_server, _write_remote_access_server, False),
        _row(
            "RoutingServer",
            ("mSMQRoutingServices", "mSMQServiceType"),
            _read_routing_server,
            _write_routing_server,
            False,
            syntax=BOOLEAN,
        ),
        plain("SupportingServer", "mSMQDependentClientServices", BOOLEAN, default=False),
        _row(
            "DirectoryServerType",
            ("mSMQDsServices", "mSMQServiceType"),
            _read_directory_server_type,
            _write_directory_server_type,
            None,
        ),
        plain("PublicEncryptionKeyList", "mSMQEncryptKey", OCTETS, b""),
        # MS-MQDSSM 3.1.6.1.1.9 treats this as an MQUSERSIGNCERTS and fills mSMQDigests from it.
        # MS-MQDMPR 3.1.1.1 and 3.1.3 make it an MQDSPUBLICKEYS, which has no digests. The octets
        # are stored unchanged.
        plain("PublicSigningKeyList", "mSMQSignCertificates", OCTETS, b"", on_computer=True),
        SECURITY,
        _row("Clustered", "servicePrincipalName", _read_clustered, _write_clustered, False, on_computer=True),
    ),
    unsupported=("ConnectedNetworkIdentifierList",),
    required=("site_identifier_list", "computer_name"),
    listed=("site_identifier_list",),
)

ENTERPRISE: Final = ObjectClass(
    "Enterprise",
    Enterprise,
    "mSMQEnterpriseSettings",
    (
        IDENTIFIER,
        derived("Name", (), _enterprise_name),
        plain("WeakenedSecurity", "mSMQNameStyle", BOOLEAN, default=False),
        plain("NonLDAPCapableQueueManagerNotification", "mSMQCSPName", YES_NO, default=True),
        plain("DefaultTimeToLive", "mSMQLongLived", INTEGER, 345_600),
        plain("OldDirectory", "mSMQVersion", OLD_DIRECTORY, default=True),
        SECURITY,
    ),
)

SITE: Final = ObjectClass(
    "Site",
    Site,
    "site",
    (
        IDENTIFIER,
        plain("Name", "cn", TEXT, changeable=False),
        plain("IntraSiteReplicationInterval", "mSMQInterval1", INTEGER, 2),
        plain("InterSiteReplicationInterval", "mSMQInterval2", INTEGER, 10),
        FULL_PATH,
        plain("ForeignSite", "mSMQSiteForeign", BOOLEAN, default=False),
        # The document makes a site without it unreadable, but every ordinary site lacks it.
        plain("MigratedFromMsmq10", "mSMQNt4Stub", BIT, default=False),
        SECURITY,
    ),
    unsupported=("PrimarySiteController", "PublicSigningKeyList"),
    required=("name",),
    listed=("name",),
)

ROUTING_LINK: Final = ObjectClass(
    "RoutingLink",
    RoutingLink,
    "mSMQSiteLink",
    (
        IDENTIFIER,
        plain("Description", "description", TEXT, ""),
        FULL_PATH,
        plain("ActualCost", "mSMQCost", INTEGER),
        reference("Site1Identifier", "mSMQSite1", "site"),
        reference("Site2Identifier", "mSMQSite2", "site"),
        references("SiteGateIdentifierList", "mSMQSiteGates", "mSMQConfiguration", is_complete=True),
    ),
    required=("site1_identifier", "site2_identifier", "actual_cost"),
    listed=("site1_identifier", "site2_identifier", "actual_cost"),
)

# 3.1.6.20.6 also lists FullPath, which the element of MS-MQDMPR 3.1.1.15 does not have.
USER: Final = ObjectClass(
    "User",
    User,
    "user",
    (
        IDENTIFIER,
        plain("SecurityIdentifier", "objectSid", OCTETS, changeable=False),
        plain("CertificateDigestList", "mSMQDigests", OCTETS_LIST, []),
        plain("Certificates", "mSMQSignCertificates", OCTETS, b""),
    ),
)

CLASSES: Final = {one.name: one for one in (QUEUE, QUEUE_MANAGER, ENTERPRISE, SITE, ROUTING_LINK, USER)}

# 3.1.6.1.1.3: the attributes that an mSMQSettings object copies from its mSMQConfiguration.
SETTINGS_ATTRIBUTES: Final = {
    "mSMQQMID": "objectGUID",
    "mSMQServices": "mSMQServiceType",
    "mSMQRoutingService": "mSMQRoutingServices",
    "mSMQDsService": "mSMQDsServices",
    "mSMQDependentClientService": "mSMQDependentClientServices",
}
