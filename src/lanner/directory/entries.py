"""The rows of the embedded directory: LDAP entries as JSON, found by GUID, name and class.

A row is one object, so an object exists as a whole or not at all. The indexes are in memory only: a
directory holds queues and computers, not messages, and indexes on disk could disagree with the
rows.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Final

from lanner.directory.names import Naming, dn_key, parent_dn
from lanner.directory.protocol import Table
from lanner.directory.schema import Entry, Value

_OCTETS: Final = "base64"


def encode_entry(entry: Entry) -> bytes:
    return json.dumps({name: [_encode(value) for value in values] for name, values in entry.items()}).encode()


def decode_entry(data: bytes) -> Entry:
    return {name: [_decode(value) for value in values] for name, values in json.loads(data).items()}


def _encode(value: Value) -> str | dict[str, str]:
    return value if isinstance(value, str) else {_OCTETS: base64.b64encode(value).decode()}


def _decode(value: str | dict[str, str]) -> Value:
    return value if isinstance(value, str) else base64.b64decode(value[_OCTETS])


def text_of(entry: Entry, name: str) -> str:
    """Return a value that every entry has."""
    value = entry[name][0]
    return value if isinstance(value, str) else value.decode()


def guid_of(entry: Entry) -> uuid.UUID:
    value = entry["objectGUID"][0]
    if isinstance(value, str):
        raise TypeError(f"objectGUID {value!r}: octets expected")
    return uuid.UUID(bytes_le=value)


class AlreadyThere(Exception):
    """An entry with this name or this GUID exists."""


class Entries:
    """All entries under one root."""

    is_strict: Final = False

    def __init__(self, table: Table, root: str) -> None:
        self.naming = Naming(root)
        self.root = root
        self._table = table
        self._guids: dict[str, uuid.UUID] = {}
        self._classes: dict[str, dict[str, uuid.UUID]] = {}
        self._children: dict[str, int] = {}
        for _, row in table.items(b""):
            self._index(decode_entry(row))

    def get(self, guid: uuid.UUID) -> Entry | None:
        row = self._table.get(guid.bytes_le)
        return None if row is None else decode_entry(row)

    def find(self, dn: str) -> Entry | None:
        guid = self._guids.get(dn_key(dn))
        return None if guid is None else self.get(guid)

    def of_class(self, ldap_class: str) -> list[Entry]:
        """Return every entry of a class, ordered by name."""
        found = (self.get(guid) for _, guid in sorted(self._classes.get(ldap_class, {}).items()))
        return [entry for entry in found if entry is not None]

    def has_children(self, entry: Entry) -> bool:
        return self._children.get(dn_key(text_of(entry, "distinguishedName")), 0) > 0

    def check_free(self, entry: Entry) -> None:
        """Raise AlreadyThere if the name or the GUID of a new entry is taken."""
        dn = text_of(entry, "distinguishedName")
        if dn_key(dn) in self._guids or self._table.get(guid_of(entry).bytes_le) is not None:
            raise AlreadyThere(dn)

    def add(self, entry: Entry) -> None:
        self.check_free(entry)
        self._index(entry)
        self.put(entry)

    def put(self, entry: Entry) -> None:
        """Write an existing entry. Its name, class and GUID never change."""
        self._table.put(guid_of(entry).bytes_le, encode_entry(entry))

    def remove(self, entry: Entry) -> None:
        key = dn_key(text_of(entry, "distinguishedName"))
        del self._guids[key]
        del self._classes[text_of(entry, "objectClass")][key]
        self._children[dn_key(parent_dn(key))] -= 1
        self._table.delete(guid_of(entry).bytes_le)

    def _index(self, entry: Entry) -> None:
        key = dn_key(text_of(entry, "distinguishedName"))
        guid = guid_of(entry)
        self._guids[key] = guid
        self._classes.setdefault(text_of(entry, "objectClass"), {})[key] = guid
        parent = dn_key(parent_dn(key))
        self._children[parent] = self._children.get(parent, 0) + 1

    # The queries of the schema's rows (schema.Lookup).

    def dn_of(self, object_class: str, guid: uuid.UUID) -> str | None:
        entry = self.get(guid)
        if entry is None or text_of(entry, "objectClass") != object_class:
            return None
        return text_of(entry, "distinguishedName")

    def guid_of(self, dn: str) -> uuid.UUID | None:
        return self._guids.get(dn_key(dn))

    def above(self, entry: Entry, levels: int) -> Entry | None:
        dn = text_of(entry, "distinguishedName")
        for _ in range(levels):
            dn = parent_dn(dn)
        return self.find(dn)
