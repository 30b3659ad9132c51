"""MSMQCollection: named values from a management object (MC-MQAC 3.15, 2.2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lanner.activex import arguments
from lanner.activex.tables import MSMQ_COLLECTION
from lanner.com.automation.enumerators import EnumVariant
from lanner.com.objects import ComObject
from lanner.model.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.activex.environment import Environment
    from lanner.com.automation.values import Variant
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall


class MSMQCollection(ComObject):
    """3.15 MSMQCollection. An instance that a client creates is always empty (3.15.3)."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_COLLECTION.interfaces

    def __init__(self, environment: Environment, values: Mapping[str, Variant] | None = None) -> None:
        del environment  # every coclass takes it
        self._values: Mapping[str, Variant] = {} if values is None else values

    def item(self, call: ComCall, index: Variant) -> Variant:
        """Return an element by name (3.15.4.1.1 Item)."""
        del call
        key = arguments.text(index, "Index")
        if key is None or key not in self._values:
            raise InvalidParameter(f"no element {key!r}; there are {', '.join(self._values) or 'none'}")
        return self._values[key]

    def get_count(self, call: ComCall) -> int:
        """Return Count (3.15.4.1.2)."""
        del call
        return len(self._values)

    def get_new_enum(self, call: ComCall) -> EnumVariant:
        """Enumerate the elements, in the order of the document's table (3.15.4.1.3 _NewEnum)."""
        del call
        return EnumVariant(tuple(self._values.values()))
