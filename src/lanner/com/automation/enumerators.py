"""Enumerators: IEnumVARIANT (MS-OAUT 3.3), IEnumConnections and IEnumConnectionPoints (MC-MQAC 6).

An enumerator has the elements that existed when it was created.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, Generic, Self, TypeVar
from uuid import UUID

from lanner.com.automation.stubs import ConnectData
from lanner.com.automation.values import Variant
from lanner.com.constants import (
    IID_ICONNECTIONPOINT,
    IID_IENUMCONNECTIONPOINTS,
    IID_IENUMCONNECTIONS,
    IID_IENUMVARIANT,
    S_FALSE,
    S_OK,
)
from lanner.com.members import InterfaceTable, Member, Parameter
from lanner.com.objects import ComCall, ComObject, Success

T = TypeVar("T")


def _enumerator(name: str, iid: UUID, element: str, element_iid: UUID | None = None) -> InterfaceTable:
    """Declare an enumerator. All of them have these four members."""
    count = Parameter("celt", "in", "ULONG")
    elements = Parameter("rgelt", "out", element, iid=element_iid, size_is="celt", length_is="pceltFetched")
    fetched = Parameter("pceltFetched", "out", "ULONG*")
    return InterfaceTable(
        name,
        iid,
        "IUnknown",
        is_dual=False,
        members=(
            Member(3, -1, "method", "Next", (count, elements, fetched), "next"),
            Member(4, -1, "method", "Skip", (count,), "skip"),
            Member(5, -1, "method", "Reset", (), "reset"),
            Member(6, -1, "method", "Clone", (Parameter("ppEnum", "out", f"{name}**", iid=iid),), "clone"),
        ),
    )


IENUM_VARIANT: Final = _enumerator("IEnumVARIANT", IID_IENUMVARIANT, "VARIANT*")
IENUM_CONNECTIONS: Final = _enumerator("IEnumConnections", IID_IENUMCONNECTIONS, "CONNECTDATA*")
IENUM_CONNECTION_POINTS: Final = _enumerator(
    "IEnumConnectionPoints", IID_IENUMCONNECTIONPOINTS, "IConnectionPoint**", IID_ICONNECTIONPOINT
)


class Enumerator(ComObject, Generic[T]):
    """A sequence of elements and the position of the next one."""

    def __init__(self, elements: Iterable[T], position: int = 0) -> None:
        self._elements = tuple(elements)
        self._position = position

    def _advance(self, count: int) -> tuple[T, ...]:
        """Return the next `count` elements, or as many as are left."""
        start = self._position
        self._position = min(start + count, len(self._elements))
        return self._elements[start : self._position]

    def next(self, call: ComCall, count: int) -> Success:  # noqa: ARG002
        """Return the next elements (MS-OAUT 3.3.4.1)."""
        found = self._advance(count)
        return Success(S_OK if len(found) == count else S_FALSE, (found, len(found)))

    def skip(self, call: ComCall, count: int) -> Success:  # noqa: ARG002
        """Skip elements (MS-OAUT 3.3.4.2)."""
        return Success(S_OK if len(self._advance(count)) == count else S_FALSE)

    def reset(self, call: ComCall) -> None:  # noqa: ARG002
        """Start again at the first element (MS-OAUT 3.3.4.3)."""
        self._position = 0

    def clone(self, call: ComCall) -> Self:  # noqa: ARG002
        """Return a copy at the same position (MS-OAUT 3.3.4.4)."""
        return type(self)(self._elements, self._position)


class EnumVariant(Enumerator[Variant]):
    """The enumerator that _NewEnum of a collection returns."""

    interfaces: ClassVar = (IENUM_VARIANT,)


class EnumConnections(Enumerator[ConnectData]):
    """The sinks of a connection point, with their cookies."""

    interfaces: ClassVar = (IENUM_CONNECTIONS,)


class EnumConnectionPoints(Enumerator[ComObject]):
    """The connection points of an object."""

    interfaces: ClassVar = (IENUM_CONNECTION_POINTS,)
