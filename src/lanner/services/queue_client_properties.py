"""Conversion between PROPVARIANTs and queue attributes (MS-MQMP 3.1.1.12, MS-MQMQ 2.3.1)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.model.enums import QueuePrivacyLevel
from lanner.model.errors import IllegalPropertyValue, Property, PropertyNotallowed
from lanner.wire.property_ids import QueueProperty
from lanner.wire.propvariant import EMPTY, PropVariant
from lanner.wire.vartypes import MAX_I4, VT, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lanner.model.directory_objects import Queue


class Applicable(enum.Flag):
    """The methods that accept a property."""

    CREATE = enum.auto()
    SET = enum.auto()
    GET = enum.auto()


@dataclass(frozen=True, slots=True)
class _Property:
    attribute: str
    applicable: Applicable


_GET: Final = Applicable.GET
_CREATED: Final = Applicable.CREATE | Applicable.GET
_CHANGEABLE: Final = Applicable.CREATE | Applicable.SET | Applicable.GET
# In the order of 3.1.1.12.
_PROPERTIES: Final = {
    QueueProperty.INSTANCE: _Property("identifier", _GET),
    QueueProperty.TYPE: _Property("type", _CHANGEABLE),
    QueueProperty.PATHNAME: _Property("pathname", _CREATED),
    QueueProperty.JOURNAL: _Property("journaling", _CHANGEABLE),
    QueueProperty.QUOTA: _Property("quota", _CHANGEABLE),
    QueueProperty.BASEPRIORITY: _Property("base_priority", _CHANGEABLE),
    QueueProperty.JOURNAL_QUOTA: _Property("journal_quota", _CHANGEABLE),
    QueueProperty.LABEL: _Property("label", _CHANGEABLE),
    QueueProperty.CREATE_TIME: _Property("create_time", _GET),
    QueueProperty.MODIFY_TIME: _Property("modify_time", _GET),
    QueueProperty.AUTHENTICATE: _Property("authentication", _CHANGEABLE),
    QueueProperty.PRIV_LEVEL: _Property("privacy_level", _CHANGEABLE),
    QueueProperty.TRANSACTION: _Property("transactional", _CREATED),
    QueueProperty.PATHNAME_DNS: _Property("qualified_pathname", _GET),
    QueueProperty.MULTICAST_ADDRESS: _Property("multicast_address", _CHANGEABLE),
    QueueProperty.ADS_PATH: _Property("directory_path", _GET),
}
_BOOLEANS: Final = frozenset((QueueProperty.JOURNAL, QueueProperty.AUTHENTICATE, QueueProperty.TRANSACTION))
_TIMES: Final = frozenset((QueueProperty.CREATE_TIME, QueueProperty.MODIFY_TIME))


def _known(identifier: int, method: Applicable) -> tuple[QueueProperty, str]:
    try:
        found = QueueProperty(identifier)
    except ValueError:
        raise Property(f"{identifier} is no property of queues") from None
    known = _PROPERTIES.get(found)
    if known is None or method not in known.applicable:
        raise PropertyNotallowed(f"{found.spec_name} is not for this method")
    return found, known.attribute


def given_attributes(
    a_prop: Sequence[int], ap_var: Sequence[PropVariant], method: Applicable
) -> Iterator[tuple[str, object]]:
    """Yield the attributes and values for CREATE or SET; raise for those that are not allowed."""
    seen: set[int] = set()
    for identifier, variant in zip(a_prop, ap_var, strict=True):
        found, attribute = _known(identifier, method)
        if found in seen:
            raise Property(f"{found.spec_name} is there twice")
        seen.add(found)
        yield attribute, _given(found, variant)


def _given(found: QueueProperty, variant: PropVariant) -> object:
    if found is QueueProperty.MULTICAST_ADDRESS and variant == EMPTY:
        # The value None removes the address.
        return None
    if variant.vt != found.vt:
        raise Property(f"{found.spec_name} of type {type_name(variant.vt)}")
    value = variant.value
    if value is None:
        raise IllegalPropertyValue(f"{found.spec_name} is NULL")
    if found in _BOOLEANS:
        if value not in (0, 1):
            raise IllegalPropertyValue(f"{found.spec_name} {value!r}")
        return bool(value)
    if found is QueueProperty.PRIV_LEVEL:
        if value not in tuple(QueuePrivacyLevel):
            raise IllegalPropertyValue(f"{found.spec_name} {value!r}")
        return QueuePrivacyLevel(value)  # type: ignore[arg-type]  # a VT_UI4 is an int
    return value


def wanted_properties(a_prop: Sequence[int], ap_var: Sequence[PropVariant]) -> list[QueueProperty]:
    """Return the requested properties.

    3.1.4.9: each value already has the type of its property, or VT_NULL.
    """
    wanted = []
    for identifier, variant in zip(a_prop, ap_var, strict=True):
        found, _ = _known(identifier, Applicable.GET)
        if variant.vt not in (found.vt, VT.NULL):
            raise Property(f"{found.spec_name} of type {type_name(variant.vt)}")
        wanted.append(found)
    return wanted


def told_property(queue: Queue, found: QueueProperty) -> PropVariant:
    """Return the current value of a property."""
    value = getattr(queue, _PROPERTIES[found].attribute)
    if value is None:
        return EMPTY
    if found in _TIMES:
        value = min(value, MAX_I4)
    if isinstance(value, (str, UUID)):
        return PropVariant(found.vt, value)
    return PropVariant(found.vt, int(value))
