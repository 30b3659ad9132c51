"""Objects of the data model, made from LDAP values (MS-MQDSSM 3.1.6.10, 3.1.6.11)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from lanner.directory.filters import AttributeFilter, field_of, plain_name
from lanner.directory.ldap.descriptors import from_directory
from lanner.directory.ldap.lookup import LdapLookup
from lanner.directory.ldap.operations import LdapOperations
from lanner.directory.names import parent_dn
from lanner.directory.protocol import Refused
from lanner.directory.schema import (
    CLASSES,
    IDENTIFIER,
    QUEUE_MANAGER,
    REQUIRED,
    Attribute,
    Entry,
    ObjectClass,
    Unset,
)
from lanner.model.directory_objects import DirectoryObject, Queue, QueueManager, User
from lanner.model.enums import DirectoryOperationResult, QueueType
from lanner.model.errors import RemoteProtocolError
from lanner.security.profile import Profile
from lanner.security.queue_security import Guarded
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.user_certificates import UserSignCerts

GENERIC_ERROR: Final = DirectoryOperationResult.GENERIC_ERROR

GUARDED: Final = {
    "Queue": Guarded.QUEUE,
    "QueueManager": Guarded.QUEUE_MANAGER,
    "Site": Guarded.SITE,
    "Enterprise": Guarded.ENTERPRISE,
}
# 3.1.6.11.1: attributes without a default in the document, but with one in the embedded directory.
_NEVER_UNSET: Final = frozenset({"qualified_computer_name", "clustered"})
# 3.1.6.20.1, 3.1.6.20.4: PublicSigningKeyList is spelled in two ways.
_SPELLINGS: Final = {"publicsigningkey": "publicsigningkeylist"}


def class_named(object_type: str) -> ObjectClass:
    found = CLASSES.get(object_type)
    if found is None:
        raise Refused(GENERIC_ERROR, f"{object_type}: this directory keeps no such objects")
    return found


def listed_rows(object_class: ObjectClass, names: Sequence[str] | None) -> list[Attribute]:
    """Return the rows of an attribute list; all if there is none.

    Attributes that LDAP does not have are skipped.
    """
    if names is None:
        return list(object_class.attributes)
    wanted = {_SPELLINGS.get(plain_name(name), plain_name(name)) for name in names}
    refused = wanted & {plain_name(name) for name in object_class.unsupported}
    if refused:
        raise Refused(GENERIC_ERROR, f"{object_class.name}: Active Directory keeps no {', '.join(sorted(refused))}")
    fields = {field_of(object_class.element, name) for name in wanted}
    return [row for row in object_class.attributes if row.field in fields]


def check_filters(object_class: ObjectClass, filters: Sequence[AttributeFilter] | None) -> list[AttributeFilter]:
    """Return the expressions. Raises ValueError for a name that the class does not have."""
    for one in filters or ():
        field_of(object_class.element, one.name)
    return list(filters or ())


def ldap_attributes(rows: Iterable[Attribute]) -> list[str]:
    """Do Create LDAP Attribute List (3.1.6.10).

    Attributes of the computer's object are not requested from its queue manager.
    """
    return list(dict.fromkeys(name for row in rows if not row.on_computer for name in row.ldap))


class Elements:
    """Makes the objects of one event, so that values they share are read once."""

    def __init__(self, operations: LdapOperations, profile: Profile) -> None:
        self.lookup = LdapLookup(operations)
        self._operations = operations
        self._profile = profile
        self._hosts: dict[str, QueueManager | None] = {}

    def element(self, object_class: ObjectClass, entry: Entry, rows: Iterable[Attribute]) -> DirectoryObject:
        """Do Create ADM Element From LDAP Values (3.1.6.11).

        Raises Refused for a value that is missing or invalid.
        """
        obj = object_class.element()
        # A caller that may not read an object gets it without attributes. It must not become one
        # made of defaults.
        for row in (IDENTIFIER, *rows):
            try:
                setattr(obj, row.field, self._value(object_class, row, entry))
            except (Unset, ValueError, TypeError, LookupError, RemoteProtocolError) as error:
                dn = str((entry.get("distinguishedName") or [""])[0])
                raise Refused(GENERIC_ERROR, f"{dn}: {row.name}: {error}") from None
        if isinstance(obj, Queue):
            obj.queue_type = QueueType.PUBLIC
        if isinstance(obj, User):
            obj.certificate_digest_list = _in_order(obj)
        return obj

    def _value(self, object_class: ObjectClass, row: Attribute, entry: Entry) -> object:
        try:
            source = self.lookup.above(entry, 1) if row.on_computer else entry
            value = row.read(source or {}, self.lookup)
        except Unset:
            if row.default is REQUIRED or row.field in _NEVER_UNSET:
                raise
            return list(row.default) if isinstance(row.default, list) else row.default
        if row.field in _NEVER_UNSET and source is not None and not source.get(row.ldap[0]):
            raise Unset(row.ldap[0])
        if row.field == "security" and isinstance(value, bytes):
            descriptor = SecurityDescriptor.unpack(value)
            return from_directory(descriptor, GUARDED[object_class.name], self._profile).pack()
        return value

    def attach_host(self, queue: DirectoryObject, entry: Entry) -> None:
        """Give a queue its queue manager, as far as it can be read: senders need its name."""
        if not isinstance(queue, Queue):
            return
        dn = parent_dn(str(entry["distinguishedName"][0]))
        if dn not in self._hosts:
            self._hosts[dn] = None
            with contextlib.suppress(Refused):
                rows = [row for row in QUEUE_MANAGER.attributes if row.field not in ("security", *_NEVER_UNSET)]
                host = self._operations.get(dn, ldap_attributes(rows))
                found = self.element(QUEUE_MANAGER, host, rows)
                self._hosts[dn] = found if isinstance(found, QueueManager) else None
                computer = self.lookup.above(host, 1) or {}
                if isinstance(found, QueueManager) and computer.get("dNSHostName"):
                    found.qualified_computer_name = str(computer["dNSHostName"][0])
        queue.queue_manager = self._hosts[dn]


def _in_order(user: User) -> list[bytes]:
    """Return the digests in the order of the certificates, which LDAP does not preserve."""
    with contextlib.suppress(RemoteProtocolError):
        order = {digest: place for place, digest in enumerate(UserSignCerts.unpack(user.certificates).digests)}
        return sorted(user.certificate_digest_list, key=lambda digest: order.get(digest, len(order)))
    return user.certificate_digest_list
