"""The mSMQSettings objects of a server, one in each of its sites.

MS-MQDSSM 3.1.6.1.1.3, 3.1.6.2.1.3, 3.1.6.7.1.9.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Final

from lanner.directory.ldap.operations import LdapOperations
from lanner.directory.names import Naming, parent_dn
from lanner.directory.protocol import Refused
from lanner.directory.schema import SETTINGS_ATTRIBUTES, Entry
from lanner.model.enums import DirectoryOperationResult

SETTINGS_NAME: Final = "MSMQ Settings"
SETTINGS_CLASS: Final = "mSMQSettings"
SERVER_ATTRIBUTES: Final = ("mSMQRoutingServices", "mSMQDsServices", "mSMQDependentClientServices")
# The attributes that are copied to them, and therefore read of a queue manager.
SOURCES: Final = tuple(SETTINGS_ATTRIBUTES.values())


def is_server(entry: Entry) -> bool:
    """Return whether RoutingServer, DirectoryServer or SupportingServer is true."""
    return any(entry.get(name) == ["TRUE"] for name in SERVER_ATTRIBUTES)


class ServerSettings:
    """The settings objects of one computer."""

    def __init__(self, operations: LdapOperations, computer: str, sites: Iterable[uuid.UUID]) -> None:
        self._operations = operations
        self._computer = computer
        self._sites = list(sites)

    def create(self, manager: Entry, *, replacing: bool) -> None:
        """Create the objects. Only a new queue manager replaces existing ones (3.1.6.1.1.3)."""
        for dn in self._names():
            parent, values = parent_dn(dn), _values(manager)
            try:
                self._operations.create(parent, SETTINGS_NAME, SETTINGS_CLASS, values)
            except Refused as refused:
                if not replacing or refused.result is not DirectoryOperationResult.OBJECT_ALREADY_EXISTS:
                    raise
                self._operations.delete(dn)
                self._operations.create(parent, SETTINGS_NAME, SETTINGS_CLASS, values)

    def update(self, manager: Entry) -> None:
        """Write all attributes, because a changed role may have changed mSMQServiceType too."""
        values = {name: manager.get(source, []) for name, source in SETTINGS_ATTRIBUTES.items()}
        for dn in self._names():
            self._operations.set_properties(dn, values)

    def delete(self) -> None:
        for dn in self._names():
            self._operations.delete(dn)

    def _names(self) -> Iterator[str]:
        """Yield the names of the sites.

        A deleted site is skipped; an unreadable one is an error.
        """
        naming = Naming(self._operations.root)
        for site in self._sites:
            try:
                found = self._operations.get("", ("cn",), site)
            except Refused as refused:
                if refused.result is DirectoryOperationResult.OBJECT_NOT_FOUND:
                    continue
                raise Refused(DirectoryOperationResult.GENERIC_ERROR, str(refused)) from None
            if not found.get("cn"):
                raise Refused(DirectoryOperationResult.GENERIC_ERROR, f"site {site}: its name cannot be read")
            yield naming.settings(self._computer, str(found["cn"][0]))


def _values(manager: Entry) -> Entry:
    return {name: manager[source] for name, source in SETTINGS_ATTRIBUTES.items() if manager.get(source)}
