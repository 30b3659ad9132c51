"""Attribute-filter expressions as LDAP filters (MS-MQDSSM 3.1.6.4).

An attribute that is not set reads as its default, so it is filtered as that value too. Expressions
that no server can evaluate are left to `lanner.directory.filters.matches`, on the values read.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from lanner.directory.filters import AttributeFilter, Operator, field_of, is_satisfied
from lanner.directory.ldap.messages import Compare, Filter, Not, Present, both, either
from lanner.directory.protocol import Refused
from lanner.directory.schema import (
    BOOLEAN,
    GUIDS,
    INTEGER,
    OCTETS_LIST,
    REQUIRED,
    SIGNED,
    TIME,
    Attribute,
    Lookup,
    ObjectClass,
    Value,
)
from lanner.model.enums import DirectoryOperationResult

_SIGN_BIT: Final = 1 << 31
# Attributes that store the name of another object, and the class of that object.
_REFERENCES: Final = {"site1_identifier": "site", "site2_identifier": "site"}
_ORDERED: Final = (INTEGER, SIGNED, TIME)


def ldap_filter(
    object_class: ObjectClass, filters: Sequence[AttributeFilter], lookup: Lookup
) -> tuple[Filter, list[AttributeFilter]]:
    """Return the filter of a search, and the remaining expressions."""
    members: list[Filter] = [Compare("objectClass", "=", object_class.ldap_class)]
    rest = []
    for one in filters:
        field = field_of(object_class.element, one.name)
        row = next((row for row in object_class.attributes if row.field == field), None)
        found = None if row is None else _expression(row, one, lookup)
        if found is None:
            rest.append(one)
        else:
            members.append(found)
    return both(*members), rest


def _expression(row: Attribute, one: AttributeFilter, lookup: Lookup) -> Filter | None:
    name = row.ldap[0] if row.ldap else ""
    if row.field in _REFERENCES and isinstance(one.value, uuid.UUID):
        dn = lookup.dn_of(_REFERENCES[row.field], one.value)
        if dn is None:
            raise Refused(DirectoryOperationResult.GENERIC_ERROR, f"{one.name}: no site {one.value}")
        same = Compare(name, "=", dn)
        by_operator: dict[Operator, Filter] = {Operator.EQUALS: same, Operator.NOT_EQUALS: Not(same)}
        return by_operator.get(one.operator)
    if row.syntax is None or name == "nTSecurityDescriptor":
        return None
    if one.operator in (Operator.EQUALS, Operator.NOT_EQUALS):
        return _equality(row, name, one)
    return _order(row, name, one)


def _equality(row: Attribute, name: str, one: AttributeFilter) -> Filter | None:
    value = one.value
    if row.syntax in (GUIDS, OCTETS_LIST) and not isinstance(value, list):
        value = [value]
    values = _encoded(row, value)
    if values is None or len(values) > 1:
        return None
    if row.syntax is BOOLEAN and row.default is False:
        is_true = Compare(name, "=", "TRUE")
        return is_true if (values == ["TRUE"]) is (one.operator is Operator.EQUALS) else Not(is_true)
    # No value: the attribute is not set.
    same = Compare(name, "=", values[0]) if values else Not(Present(name))
    is_default = row.default is not REQUIRED and is_satisfied(row.default, one)
    if one.operator is Operator.EQUALS:
        return either(same, Not(Present(name))) if values and is_default else same
    if not values:
        return Present(name)
    return Not(same) if is_default or row.default is REQUIRED else both(Not(same), Present(name))


def _order(row: Attribute, name: str, one: AttributeFilter) -> Filter | None:
    if row.syntax not in _ORDERED or not isinstance(one.value, int):
        return None
    values = _encoded(row, one.value)
    if not values:
        return None
    is_less = one.operator in (Operator.LESS_THAN, Operator.LESS_THAN_OR_EQUAL)
    found: Filter = Compare(name, "<=" if is_less else ">=", values[0])
    if row.syntax is INTEGER:
        found = _unsigned(name, found, one.value, is_less=is_less)
    if one.operator in (Operator.LESS_THAN, Operator.GREATER_THAN):
        found = both(found, Not(Compare(name, "=", values[0])))
    if row.default is not REQUIRED and is_satisfied(row.default, one):
        found = either(found, Not(Present(name)))
    return found


def _unsigned(name: str, found: Filter, value: int, *, is_less: bool) -> Filter:
    """Return a filter for an unsigned number, which a server compares as a signed one."""
    upper, lower = Compare(name, "<=", "-1"), Compare(name, ">=", "0")
    is_upper = value >= _SIGN_BIT
    if is_less:
        return either(both(found, upper), lower) if is_upper else both(found, lower)
    return both(found, upper) if is_upper else either(found, upper)


def _encoded(row: Attribute, value: object) -> list[Value] | None:
    if value is None:
        return []
    if row.syntax is None:
        return None
    try:
        return row.syntax.encode(value)
    except (TypeError, ValueError, AttributeError):
        # No possible value of this attribute: nothing equals it, as a check of the values read will
        # show.
        return None
