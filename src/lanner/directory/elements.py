"""Entries of the embedded directory as objects of the data model, and the search for them.

MS-MQDSSM 3.1.6.10, 3.1.6.11, 3.1.6.20. The tables of `schema` say how each attribute is read and
written; `ldap.elements` does the same with the entries of a server. `embedded` has the operations.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lanner.directory.entries import Entries, guid_of, text_of
from lanner.directory.filters import AttributeFilter, Operator, SortOrder, field_of, matches, plain_name, sort_objects
from lanner.directory.protocol import Refused
from lanner.directory.schema import (
    CLASSES,
    IDENTIFIER,
    QUEUE,
    QUEUE_MANAGER,
    REQUIRED,
    SITE,
    Attribute,
    Entry,
    ObjectClass,
    Unresolved,
    Unset,
)
from lanner.model.directory_objects import (
    DirectoryObject,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from lanner.model.enums import DirectoryOperationResult, QueueType

GENERIC_ERROR: Final = DirectoryOperationResult.GENERIC_ERROR

_BY_NAME: Final = {QUEUE.name: "pathname", QUEUE_MANAGER.name: "computer_name", SITE.name: "name"}


class Elements:
    """The objects of the data model that the entries stand for."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def write_rows(
        self, rows: Iterable[Attribute], obj: DirectoryObject, entry: Entry, computer: Entry | None = None
    ) -> None:
        """Write the values of an object into its entry, and into that of its computer."""
        for row in rows:
            value = getattr(obj, row.field)
            target = computer if row.on_computer else entry
            if row.write is not None and value is not None and target is not None:
                row.write(value, target, self._entries)

    def copy_back(self, obj: DirectoryObject, object_class: ObjectClass, entry: Entry) -> None:
        """Copy the attributes that the directory has set to the caller's element."""
        for row in object_class.attributes:
            if row.field in ("full_path", "directory_path", "create_time", "modify_time"):
                setattr(obj, row.field, row.read(entry, self._entries))

    def element(
        self, object_class: ObjectClass, entry: Entry, rows: Iterable[Attribute], *, is_listed: bool
    ) -> DirectoryObject:
        """Do Create ADM Element From LDAP Values (3.1.6.11).

        A listed attribute without a value is an error.
        """
        obj = self._lenient(object_class, entry, [IDENTIFIER])
        for row in rows:
            try:
                value = self._value(row, entry)
            except Unset:
                if is_listed:
                    raise Refused(DirectoryOperationResult.ATTRIBUTE_NOT_FOUND) from None
                continue
            setattr(obj, row.field, value)
        if isinstance(obj, Queue):
            obj.queue_type = QueueType.PUBLIC
            host = self._entries.above(entry, 1)
            if host is not None:
                manager = self._lenient(QUEUE_MANAGER, host, QUEUE_MANAGER.attributes)
                obj.queue_manager = manager if isinstance(manager, QueueManager) else None
        return obj

    def _value(self, row: Attribute, entry: Entry) -> object:
        source = self._entries.above(entry, 1) if row.on_computer else entry
        try:
            if source is None:
                raise Unset(row.name)
            return row.read(source, self._entries)
        except Unset:
            if row.default is REQUIRED:
                raise
            return list(row.default) if isinstance(row.default, list) else row.default

    def _lenient(self, object_class: ObjectClass, entry: Entry, rows: Iterable[Attribute]) -> DirectoryObject:
        """Return an element with those values that the entry has."""
        obj = object_class.element()
        for row in rows:
            try:
                setattr(obj, row.field, self._value(row, entry))
            except (Unset, Unresolved):
                continue
        return obj

    # Finding
    # --------------------------------------------------------------------------------------------

    def matching(self, object_class: ObjectClass, filters: Sequence[AttributeFilter] | None) -> Iterator[Entry]:
        entries, rest = self._candidates(object_class, list(filters or ()))
        for entry in entries:
            if matches(self._lenient(object_class, entry, object_class.attributes), rest):
                yield entry

    def _candidates(
        self, object_class: ObjectClass, filters: list[AttributeFilter]
    ) -> tuple[list[Entry], list[AttributeFilter]]:
        """Return the entries to examine, and the remaining expressions.

        It is one entry if an expression identifies it.
        """
        for place, one in enumerate(filters):
            if one.operator is not Operator.EQUALS:
                continue
            field = field_of(object_class.element, one.name)
            entry: Entry | None
            if field == "identifier" and isinstance(one.value, uuid.UUID):
                entry = self._entries.get(one.value)
            elif field == "full_path" and isinstance(one.value, str):
                entry = self._entries.find(one.value)
            elif field == _BY_NAME.get(object_class.name) and isinstance(one.value, str):
                template = object_class.element()
                setattr(template, field, one.value)
                dn = self.dn_of(template)
                entry = None if dn is None else self._entries.find(dn)
            else:
                continue
            found = [entry] if entry is not None and _is_a(entry, object_class) else []
            return found, filters[:place] + filters[place + 1 :]
        return self._entries.of_class(object_class.ldap_class), filters

    def sorted_entries(
        self, object_class: ObjectClass, entries: list[Entry], names: Sequence[str], order: Sequence[SortOrder]
    ) -> list[Entry]:
        by_guid = {guid_of(entry): entry for entry in entries}
        objects = [self._lenient(object_class, entry, object_class.attributes) for entry in entries]
        sort_objects(objects, names, order)
        return [by_guid[obj.identifier] for obj in objects]

    def locate(self, object_class: ObjectClass, obj: DirectoryObject) -> Entry:
        """Return the entry of an element (3.1.6.2, 3.1.6.7).

        It is found by GUID, otherwise by FullPath or DirectoryPath, otherwise by the element's
        name.
        """
        entry = self._entries.get(obj.identifier)
        paths: list[str | None] = [getattr(obj, "full_path", None)]
        if isinstance(obj, Queue):
            paths.append(obj.directory_path.removeprefix("LDAP://"))
        paths.append(self.dn_of(obj))
        for path in paths:
            if entry is None and path:
                entry = self._entries.find(path)
        if entry is None and isinstance(obj, User) and obj.security_identifier:
            users = self._entries.of_class("user")
            entry = next((user for user in users if user["objectSid"] == [obj.security_identifier]), None)
        if entry is None or not _is_a(entry, object_class):
            raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND)
        return entry

    def dn_of(self, obj: DirectoryObject) -> str | None:
        """Return the name an object must have (MS-MQDSSM 2.2.1); None if its parts are unset."""
        match obj:
            case Queue(pathname=pathname):
                try:
                    return self._entries.naming.queue(pathname)
                except ValueError:
                    return None
            case QueueManager(computer_name=name) if name:
                return self._entries.naming.queue_manager(name)
            case Site(name=name) if name:
                return self._entries.naming.site(name)
            case RoutingLink():
                return self._entries.naming.routing_link(obj.site1_identifier, obj.site2_identifier)
            case Enterprise():
                return self._entries.naming.enterprise
        return None


def class_of(obj: DirectoryObject, *allowed: ObjectClass) -> ObjectClass:
    """Return the row of the schema for an element.

    An element that the directory does not store is a GenericError (3.1.6.1, 3.1.6.7).
    """
    found = next((one for one in allowed if one.element is type(obj)), None)
    if found is None or (isinstance(obj, Queue) and obj.queue_type is not QueueType.PUBLIC):
        # 3.1.6.20.2: only public queues are stored.
        raise Refused(GENERIC_ERROR)
    return found


def listed_rows(object_class: ObjectClass, names: Sequence[str] | None) -> list[Attribute]:
    """Return the rows of the listed attributes; all if there is no list.

    By 3.1.6.20 some attributes are a GenericError. Other attributes of the element that the
    directory lacks are ignored. A name that the element does not have is the caller's mistake.
    """
    if names is None:
        return list(object_class.attributes)
    wanted = {plain_name(name) for name in names}
    if wanted & {plain_name(name) for name in object_class.unsupported}:
        raise Refused(GENERIC_ERROR)
    fields = {field_of(object_class.element, name) for name in names}
    return [row for row in object_class.attributes if row.field in fields]


def readable(
    object_type: str, filters: Sequence[AttributeFilter] | None, attributes: Sequence[str] | None
) -> tuple[ObjectClass, list[Attribute]]:
    object_class = CLASSES.get(object_type)
    if object_class is None:
        raise Refused(GENERIC_ERROR)
    # The document ignores an expression on an attribute that LDAP cannot search for, such as
    # ComputerName, and would return any object. Here every expression is applied (MS-MQDMPR
    # 3.1.7.1.20).
    listed_rows(object_class, [one.name for one in filters or ()])
    return object_class, listed_rows(object_class, attributes)


def _is_a(entry: Entry, object_class: ObjectClass) -> bool:
    return text_of(entry, "objectClass") == object_class.ldap_class
