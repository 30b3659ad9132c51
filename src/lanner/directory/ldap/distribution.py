"""Queue aliases and distribution lists in the directory (MS-MQDSSM 3.1.6.8, 3.1.6.9)."""

from __future__ import annotations

import uuid
from typing import Final

from lanner.directory.ldap.operations import LdapOperations
from lanner.directory.protocol import Refused
from lanner.directory.schema import Entry
from lanner.model.enums import DirectoryOperationResult
from lanner.wire.format_name import DistributionListFormatName, PublicFormatName

ALIAS: Final = "msmq-custom-recipient"
QUEUE: Final = "msmqqueue"
GROUP: Final = "group"
_TARGET: Final = "msMQ-Recipient-FormatName"


def resolve_alias(operations: LdapOperations, path: str) -> str:
    """3.1.6.8 Resolve Queue Alias."""
    found = operations.get(path, (_TARGET,)).get(_TARGET)
    if not found:
        raise Refused(DirectoryOperationResult.ATTRIBUTE_NOT_FOUND, f"{path}: no {_TARGET}")
    return str(found[0])


def resolve_list(operations: LdapOperations, guid: uuid.UUID) -> list[str]:
    """3.1.6.9 Resolve Distribution List: return all its queues, or raise Refused.

    Each list is expanded once, even if lists contain each other.
    """
    return _resolve(operations, guid, set())


def _resolve(operations: LdapOperations, guid: uuid.UUID, seen: set[uuid.UUID]) -> list[str]:
    seen.add(guid)
    names: list[str] = []
    for dn in operations.get_range(operations.find(guid), "member"):
        member = operations.get(dn, ("objectClass",))
        kind, identifier = class_of(member), identifier_of(member)
        if kind == QUEUE:
            names.append(str(PublicFormatName(identifier)))
        elif kind == ALIAS:
            try:
                names.append(resolve_alias(operations, dn))
            except Refused as refused:
                raise Refused(DirectoryOperationResult.GENERIC_ERROR, str(refused)) from None
        elif kind == GROUP:
            if identifier not in seen:
                names += _resolve(operations, identifier, seen)
        else:
            raise Refused(DirectoryOperationResult.GENERIC_ERROR, f"{dn}: messages cannot be sent to a {kind}")
    return names


def format_name_at(operations: LdapOperations, path: str) -> str:
    """Return the format name with which to send to the object at a path (MC-MQAC 3.12.6.1)."""
    found = operations.get(path, ("objectClass",))
    match class_of(found):
        case "msmqqueue":
            return str(PublicFormatName(identifier_of(found)))
        case "group":
            return str(DistributionListFormatName(identifier_of(found)))
        case "msmq-custom-recipient":
            return resolve_alias(operations, path)
        case kind:
            raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND, f"{path}: messages cannot be sent to a {kind}")


def class_of(entry: Entry) -> str:
    """Return the most specific class, which a server names last."""
    return str(entry.get("objectClass", [""])[-1]).lower()


def identifier_of(entry: Entry) -> uuid.UUID:
    found = entry.get("objectGUID")
    if not found or not isinstance(found[0], bytes):
        raise Refused(DirectoryOperationResult.GENERIC_ERROR, "an objectGUID that cannot be read")
    return uuid.UUID(bytes_le=found[0])
