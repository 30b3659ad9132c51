"""The queries of the schema's rows (schema.Lookup), answered by LDAP and cached for one event."""

from __future__ import annotations

import contextlib
import uuid
from typing import Final

from lanner.directory.ldap.operations import LdapOperations
from lanner.directory.names import parent_dn
from lanner.directory.protocol import Refused
from lanner.directory.schema import Entry
from lanner.model.enums import DirectoryOperationResult

_NOT_FOUND: Final = DirectoryOperationResult.OBJECT_NOT_FOUND

COMPUTER_ATTRIBUTES: Final = (
    "objectSid",
    "dNSHostName",
    "operatingSystemVersion",
    "servicePrincipalName",
    "mSMQSignCertificates",
)


class LdapLookup:
    """Reads each other object once, however many objects of an answer name it."""

    is_strict: Final = True

    def __init__(self, operations: LdapOperations) -> None:
        self.root = operations.root
        self._operations = operations
        self._computers: dict[str, Entry] = {}
        self._guids: dict[str, uuid.UUID | None] = {}

    def dn_of(self, object_class: str, guid: uuid.UUID) -> str | None:
        """Return the name of an object; None if it cannot be read for any reason (3.1.6.1.1.6)."""
        with contextlib.suppress(Refused):
            found = self._operations.get("", (), guid)
            if object_class in found.get("objectClass", []):
                return str(found["distinguishedName"][0])
        return None

    def guid_of(self, dn: str) -> uuid.UUID | None:
        """Return the GUID of an object; None only if it does not exist (3.1.6.11.1.3)."""
        if dn not in self._guids:
            try:
                found = self._operations.get(dn, ()).get("objectGUID")
            except Refused as refused:
                if refused.result is not _NOT_FOUND:
                    raise Refused(DirectoryOperationResult.GENERIC_ERROR, str(refused)) from None
                self._guids[dn] = None
            else:
                if not found or not isinstance(found[0], bytes):
                    raise Refused(DirectoryOperationResult.GENERIC_ERROR, f"{dn}: its objectGUID cannot be read")
                self._guids[dn] = uuid.UUID(bytes_le=found[0])
        return self._guids[dn]

    def above(self, entry: Entry, levels: int) -> Entry | None:
        """Return the computer of a queue manager (one level) or of a queue (two).

        Raises Refused if it cannot be read.
        """
        dn = str(entry["distinguishedName"][0])
        for _ in range(levels):
            dn = parent_dn(dn)
        if dn not in self._computers:
            self._computers[dn] = self._operations.get(dn, COMPUTER_ATTRIBUTES)
        return self._computers[dn]
