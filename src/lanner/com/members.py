"""Tables of the members of interfaces, in vtable order (MS-OAUT 2.2.49).

Calls through the vtable (`automation.stubs`) and by name (`automation.dispatch`) both use these
tables. The tables of MC-MQAC are package data (`lanner.activex.tables`). Those of COM's own
interfaces are in the modules that serve them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias
from uuid import UUID

from lanner.com.constants import IID_IDISPATCH, IID_ITYPEINFO, IID_IUNKNOWN
from lanner.rpc.call_log import name_interface

Direction: TypeAlias = Literal["in", "out", "inout"]
Kind: TypeAlias = Literal["method", "propget", "propput", "propputref"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as the IDL declares it."""

    name: str
    direction: Direction
    type: str  # the IDL type, including its stars
    optional: bool = False
    retval: bool = False
    # The IID of the target of an interface pointer.
    iid: UUID | None = None
    # The parameters that give the maximum and the actual number of elements of an array.
    size_is: str = ""
    length_is: str = ""

    @property
    def is_in(self) -> bool:
        return self.direction != "out"

    @property
    def is_out(self) -> bool:
        return self.direction != "in"


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A method, or one accessor of a property.

    Members are compared by identity, so each exists only once.
    """

    opnum: int
    dispid: int
    kind: Kind
    name: str
    parameters: tuple[Parameter, ...]
    python: str  # the name of the method that implements it


@dataclass(frozen=True, eq=False)
class InterfaceTable:
    """An interface and its members, inherited ones first.

    The members of IUnknown and IDispatch are not listed.
    """

    name: str
    iid: UUID
    base: str
    is_dual: bool
    members: tuple[Member, ...]
    # The tables of its base interfaces, nearest first, without IDispatch and IUnknown.
    bases: tuple[InterfaceTable, ...] = ()
    # Whether clients may call its members: false for an interface that only marks an object
    # (MC-MQAC 3.8.4.1).
    is_remote: bool = True

    def __post_init__(self) -> None:
        name_interface(self.iid, self.name, self._member_name)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _member_name(self, opnum: int) -> str | None:
        member = self.by_opnum.get(opnum)
        return None if member is None else member.name

    @cached_property
    def is_dispatch(self) -> bool:
        """Whether opnums 3 to 6 belong to IDispatch."""
        return self.is_dual or self.base == "IDispatch" or self.iid == IID_IDISPATCH

    @cached_property
    def by_opnum(self) -> dict[int, Member]:
        """The callable members, including those of IDispatch."""
        inherited = IDISPATCH.members if self.is_dispatch else ()
        return {member.opnum: member for member in (*inherited, *self.members)}

    @cached_property
    def by_name(self) -> dict[str, tuple[Member, ...]]:
        """The members by lower-case name (MS-OAUT 3.1.4.3).

        All accessors of a property are together.
        """
        found: dict[str, list[Member]] = {}
        for member in self.members:
            found.setdefault(member.name.lower(), []).append(member)
        return {name: tuple(members) for name, members in found.items()}

    @cached_property
    def by_dispid(self) -> dict[int, tuple[Member, ...]]:
        found: dict[int, list[Member]] = {}
        for member in self.members:
            found.setdefault(member.dispid, []).append(member)
        return {dispid: tuple(members) for dispid, members in found.items()}

    @cached_property
    def last_opnum(self) -> int:
        """The last slot of the vtable, or 2 if there is only IUnknown.

        A call beyond it gets a fault.
        """
        return max([2, *self.by_opnum])


# MS-OAUT 3.1.4. lanner.com.automation.dispatch serves them for every object.
_DISPATCH_MEMBERS: Final = (
    Member(3, -1, "method", "GetTypeInfoCount", (Parameter("pctinfo", "out", "UINT*"),), "get_type_info_count"),
    Member(
        4,
        -1,
        "method",
        "GetTypeInfo",
        (
            Parameter("iTInfo", "in", "UINT"),
            Parameter("lcid", "in", "LCID"),
            Parameter("ppTInfo", "out", "ITypeInfo**", iid=IID_ITYPEINFO),
        ),
        "get_type_info",
    ),
    Member(
        5,
        -1,
        "method",
        "GetIDsOfNames",
        (
            Parameter("riid", "in", "REFIID"),
            Parameter("rgszNames", "in", "LPOLESTR*", size_is="cNames"),
            Parameter("cNames", "in", "UINT"),
            Parameter("lcid", "in", "LCID"),
            Parameter("rgDispId", "out", "DISPID*", size_is="cNames"),
        ),
        "get_ids_of_names",
    ),
    Member(
        6,
        -1,
        "method",
        "Invoke",
        (
            Parameter("dispIdMember", "in", "DISPID"),
            Parameter("riid", "in", "REFIID"),
            Parameter("lcid", "in", "LCID"),
            Parameter("dwFlags", "in", "DWORD"),
            Parameter("pDispParams", "in", "DISPPARAMS*"),
            Parameter("pVarResult", "out", "VARIANT*"),
            Parameter("pExcepInfo", "out", "EXCEPINFO*"),
            Parameter("pArgErr", "out", "UINT*"),
            Parameter("cVarRef", "in", "UINT"),
            Parameter("rgVarRefIdx", "in", "UINT*", size_is="cVarRef"),
            Parameter("rgVarRef", "inout", "VARIANT*", size_is="cVarRef"),
        ),
        "invoke",
    ),
)

IUNKNOWN: Final = InterfaceTable("IUnknown", IID_IUNKNOWN, "", is_dual=False, members=())
IDISPATCH: Final = InterfaceTable("IDispatch", IID_IDISPATCH, "IUnknown", is_dual=False, members=_DISPATCH_MEMBERS)


@dataclass(frozen=True, slots=True)
class Coclass:
    """A class that clients can create: the interfaces it lists, the default one last."""

    name: str
    clsid: UUID
    interfaces: tuple[InterfaceTable, ...]
    # The interfaces that it calls on clients' sinks.
    source_interfaces: tuple[InterfaceTable, ...] = ()
