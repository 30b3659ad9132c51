"""Calls on automation objects without a network.

Octets go to the object and back, as a client and the exporter would have them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar
from uuid import UUID, uuid4

from lanner.com.automation.stubs import Answer, serve, stub_of
from lanner.com.automation.types import DispParams, ExcepInfo
from lanner.com.automation.values import Variant
from lanner.com.constants import E_NOINTERFACE
from lanner.com.members import IDISPATCH, InterfaceTable, Member
from lanner.com.objects import ComCall, ComError, ComObject
from lanner.com.objref import DualStringArray, ObjRef, ObjRefCustom, ObjRefStandard, StdObjRef
from lanner.rpc.ndr import Decoder, Encoder, Syntax, Value, representation
from lanner.rpc.ndr.stream import MAX_REQUEST_ELEMENTS
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import SYSTEM

NDR = representation(Syntax.NDR20)
IID_NULL = UUID(int=0)
T = TypeVar("T")


def run(awaitable: Awaitable[T]) -> T:
    async def wait() -> T:
        return await awaitable

    return asyncio.run(wait())


class Foreign:
    """A reference to an object of another exporter, with the given interfaces."""

    def __init__(self, *iids: UUID, iid: UUID = IID_NULL) -> None:
        self.iids = iids
        self.iid = iid
        self.is_released = False
        self.objref = ObjRefStandard(iid, StdObjRef(0, 1, 0xF0, 0xF1, uuid4()), DualStringArray())

    async def query_interface(self, iid: UUID) -> Foreign:
        if iid not in self.iids:
            raise ComError(E_NOINTERFACE, "not this one")
        return Foreign(*self.iids, iid=iid)

    async def reference(self) -> ObjRefStandard:
        return self.objref

    def release(self) -> None:
        self.is_released = True


class Exporter:
    """References by IPID; an interface of one object has one."""

    def __init__(self) -> None:
        self.objects: dict[UUID, ComObject] = {}
        self.ipids: dict[tuple[int, UUID], UUID] = {}
        self.foreign: dict[UUID, Foreign] = {}

    def marshal(self, obj: ComObject, iid: UUID, public_refs: int = 5) -> ObjRefStandard:
        if obj.query_interface(iid) is None:
            raise ComError(E_NOINTERFACE, f"{type(obj).__name__} has no {iid}")
        ipid = self.ipids.setdefault((id(obj), iid), uuid4())
        self.objects[ipid] = obj
        return ObjRefStandard(iid, StdObjRef(0, public_refs, 1, id(obj), ipid), DualStringArray())

    async def unmarshal(self, objref: ObjRef) -> ComObject | Foreign | None:
        await asyncio.sleep(0)
        assert not isinstance(objref, ObjRefCustom)
        ipid = objref.std.ipid
        if ipid in self.foreign:
            return self.foreign[ipid]
        if ipid not in self.objects:
            raise ComError(E_NOINTERFACE, f"no {ipid}")
        return self.objects[ipid]

    def discard(self, obj: ComObject) -> None:
        obj.released()

    def require_room(self) -> None:
        """There is always room."""

    def let_in(self, foreign: Foreign) -> ObjRefStandard:
        """Know a foreign object by its reference."""
        self.foreign[foreign.objref.std.ipid] = foreign
        return foreign.objref


class Caller:
    """A client of one object: through the vtable of an interface, or by name."""

    def __init__(self, obj: ComObject, table: InterfaceTable | None = None, exporter: Exporter | None = None) -> None:
        self.obj = obj
        self.table = table or IDISPATCH
        self.exporter = exporter or Exporter()

    def find(self, name: str, kind: str = "method") -> Member:
        return next(each for each in self.table.by_opnum.values() if (each.name, each.kind) == (name, kind))

    def raw(self, member: Member, request: bytes) -> bytes:
        """Hand a stub to the object as octets, and give the one that comes back."""
        call = ComCall(SYSTEM, AuthLevel.PKT_INTEGRITY, "test", self.exporter, self.table, member)
        answer = serve(self.obj, call, Decoder(request, NDR, elements=MAX_REQUEST_ELEMENTS))
        answered: Answer = run(answer) if inspect.isawaitable(answer) else answer
        encoder = Encoder(NDR)
        answered.encode(encoder)
        return encoder.getvalue()

    def call(self, name: str, *arguments: Value, kind: str = "method") -> tuple[list[Value], int]:
        """Call a member; its out parameters with references in them, and its HRESULT."""
        member = self.find(name, kind)
        encoder = Encoder(NDR)
        stub_of(member).encode_request(encoder, arguments, self.exporter.marshal)
        return stub_of(member).decode_response(Decoder(self.raw(member, encoder.getvalue()), NDR), arguments)

    def get(self, name: str) -> tuple[Value, int]:
        (value,), hresult = self.call(name, kind="propget")
        return value, hresult

    def put(self, name: str, value: Value, kind: str = "propput") -> int:
        return self.call(name, value, kind=kind)[1]

    def object_of(self, objref: ObjRef) -> Any:  # noqa: ANN401  whatever it is
        assert not isinstance(objref, ObjRefCustom)
        return self.exporter.objects[objref.std.ipid]

    def ids(self, *names: str | None, riid: UUID = IID_NULL) -> tuple[tuple[int, ...], int]:
        (ids,), hresult = self.call("GetIDsOfNames", riid, names, len(names), 0)
        return ids, hresult

    def invoke(
        self,
        what: str | int,
        flags: int,
        *rgvarg: Variant,
        named: tuple[int, ...] = (),
        refs: dict[int, Variant] | None = None,
        riid: UUID = IID_NULL,
    ) -> tuple[Variant, ExcepInfo, int, tuple[Variant, ...], int]:
        """Invoke a member by name or DISPID.

        The arguments are in the order of rgvarg, the last one first.
        """
        if isinstance(what, str):
            ids, hresult = self.ids(what)
            assert hresult == 0
            what = ids[0]
        refs = refs or {}
        results, hresult = self.call(
            *("Invoke", what, riid, 0x409, flags, DispParams.of(rgvarg, named)),
            *(len(refs), tuple(refs), tuple(refs.values())),
        )
        result, info, argument, changed = results
        return result, info, argument, changed, hresult
