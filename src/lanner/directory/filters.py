"""Attribute-filter expressions and sort orders (MS-MQDMPR 3.1.7.1.20, 3.1.7.1.21)."""

from __future__ import annotations

import dataclasses
import enum
import operator
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lanner.model.directory_objects import DirectoryObject


class Operator(enum.Enum):
    """MS-MQDMPR 3.1.7.1.20."""

    EQUALS = "EQUALS"
    NOT_EQUALS = "NOT-EQUALS"
    LESS_THAN = "LESS-THAN"
    GREATER_THAN = "GREATER-THAN"
    LESS_THAN_OR_EQUAL = "LESS-THAN-OR-EQUAL"
    GREATER_THAN_OR_EQUAL = "GREATER-THAN-OR-EQUAL"


_COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQUALS: operator.eq,
    Operator.LESS_THAN: operator.lt,
    Operator.GREATER_THAN: operator.gt,
    Operator.LESS_THAN_OR_EQUAL: operator.le,
    Operator.GREATER_THAN_OR_EQUAL: operator.ge,
}


@dataclass(frozen=True, slots=True)
class AttributeFilter:
    """One expression.

    `name` is written as in the document ("ActualCost") or as the field ("actual_cost").
    """

    name: str
    operator: Operator
    value: object


@dataclass(frozen=True, slots=True)
class SortOrder:
    """MS-MQDMPR 3.1.7.1.21: higher priorities come first; 0 is not used for sorting."""

    priority: int
    ascending: bool = True


def plain_name(name: str) -> str:
    """Return a form in which a name of the document and its field are equal."""
    return name.replace("_", "").lower()


_FIELDS: Final[dict[type[DirectoryObject], dict[str, str]]] = {}


def field_of(cls: type[DirectoryObject], name: str) -> str:
    """Return the field of an attribute's name. Raises ValueError if the class has none."""
    fields = _FIELDS.get(cls)
    if fields is None:
        fields = _FIELDS[cls] = {plain_name(field.name): field.name for field in dataclasses.fields(cls)}
    field = fields.get(plain_name(name))
    if field is None:
        raise ValueError(f"{cls.__name__} has no attribute {name!r}")
    return field


def matches(obj: DirectoryObject, filters: Sequence[AttributeFilter] | None) -> bool:
    """Return whether the object satisfies every expression; always, without expressions."""
    return all(is_satisfied(getattr(obj, field_of(type(obj), one.name)), one) for one in filters or ())


def sort_objects(objects: list[DirectoryObject], names: Sequence[str], order: Sequence[SortOrder]) -> None:
    """Sort in place, attributes of higher priority first.

    The elements of `order` belong to those of `names`.
    """
    if len(order) != len(names):
        raise ValueError(f"{len(order)} sort orders for {len(names)} attributes")
    used = [(one, name) for one, name in zip(order, names, strict=True) if one.priority]
    used.reverse()
    # Python's sort is stable, so the least important attribute is sorted by first. Of equal
    # priorities, the first named takes precedence.
    for one, name in sorted(used, key=lambda pair: pair[0].priority):
        objects.sort(key=_key_of(name), reverse=not one.ascending)


def _key_of(name: str) -> Callable[[DirectoryObject], tuple[bool, Any]]:
    return lambda obj: _sort_key(getattr(obj, field_of(type(obj), name)))


def is_satisfied(value: object, one: AttributeFilter) -> bool:
    """Return whether a value of the attribute satisfies an expression."""
    if one.operator is Operator.NOT_EQUALS:
        return not is_satisfied(value, AttributeFilter(one.name, Operator.EQUALS, one.value))
    compare = _COMPARE[one.operator]
    # As with any multi-valued LDAP attribute, one value that satisfies the expression is enough.
    values = value if isinstance(value, list) and not isinstance(one.value, list) else [value]
    return any(_compares(compare, item, one.value) for item in values)


def _compares(compare: Callable[[Any, Any], bool], left: object, right: object) -> bool:
    if left is None or right is None:
        return compare is operator.eq and left is right
    try:
        return compare(_comparable(left), _comparable(right))
    except TypeError:
        # The two kinds of value have no common order: the expression is not satisfied.
        return False


def _comparable(value: object) -> object:
    """Fold names of computers, queues and sites, which directory strings compare without case."""
    if isinstance(value, str):
        return value.casefold()
    if isinstance(value, enum.Enum):
        return value.value
    return value


def _sort_key(value: object) -> tuple[bool, Any]:
    if isinstance(value, list):
        return True, [str(item) for item in value]
    if isinstance(value, uuid.UUID):
        return True, value.int
    return value is not None, _comparable(value) if value is not None else 0
