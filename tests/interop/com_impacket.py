"""Automation objects through impacket's dcomrt and dcom.oaut.

All workarounds for these modules are here and nowhere else. impacket uses port 135 only, asks for
one interface at a time, authenticates anew each time it changes the interface on a connection, and
has faults in VARIANT arrays and in arguments by reference. Byte arrays are therefore read here from
the octets.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias
from uuid import UUID

import pytest

dcomrt = pytest.importorskip("impacket.dcerpc.v5.dcomrt", reason="impacket is not installed")
oaut = pytest.importorskip("impacket.dcerpc.v5.dcom.oaut")
dtypes = pytest.importorskip("impacket.dcerpc.v5.dtypes")

Untyped: TypeAlias = Any  # impacket has no types

VT = oaut.VARENUM
METHOD, GET, PUT, PUTREF = 1, 2, 4, 8
PROPERTYPUT = -3
LCID = 0x409
IID_IDISPATCH = "00020400-0000-0000-c000-000000000046"


# IDispatch::Invoke once more: impacket leaves out rgVarRef, with which the answer ends, and looks
# for these beside each other.


class DCERPCSessionError(oaut.DCERPCSessionError):  # type: ignore[misc,name-defined]  # untyped
    """The error with which a call ends."""


class IDispatch_Invoke(oaut.IDispatch_Invoke):  # type: ignore[misc,name-defined]  # noqa: N801 (impacket's name)
    """The request, as it is."""


class IDispatch_InvokeResponse(dcomrt.DCOMANSWER):  # type: ignore[misc,name-defined]  # noqa: N801
    structure = (
        ("pVarResult", oaut.VARIANT),
        ("pExcepInfo", oaut.EXCEPINFO),
        ("pArgErr", oaut.UINT),
        ("rgVarRef", oaut.VARIANT_ARRAY),
        ("ErrorCode", oaut.error_status_t),
    )


def wire(identifier: str | UUID) -> bytes:
    found: bytes = UUID(str(identifier)).bytes_le
    return found


class Object:
    """One interface of an object, and the octets of the reference that it came as."""

    def __init__(self, peer: Peer, interface: Untyped, objref: bytes) -> None:
        self.peer = peer
        self.interface = interface
        self.objref = objref
        self._dispids: dict[str, list[int]] = {}

    @property
    def iid(self) -> UUID:
        return UUID(bytes_le=self.objref[8:24])

    @property
    def ipid(self) -> bytes:
        return self.objref[48:64]

    # IDispatch

    def dispids(self, *names: str) -> list[int]:
        key = "\0".join(names)
        if key not in self._dispids:
            found = oaut.IDispatch(self.interface).GetIDsOfNames(list(names))
            # Its arrays of DISPIDs have no sign.
            self._dispids[key] = [struct.unpack("<i", struct.pack("<I", each))[0] for each in found]
        return self._dispids[key]

    def invoke(self, name: str, flags: int, values: list[Untyped], named: list[int]) -> Untyped:
        dispid = self.dispids(name)[0]
        params = oaut.DISPPARAMS(None, False)
        for each in reversed(values):
            params["rgvarg"].append(each)
        for place in reversed(named):
            params["rgdispidNamedArgs"].append(place & 0xFFFF_FFFF)
        # A list without anything in it is NULL.
        if not values:
            params["rgvarg"] = dtypes.NULL
        if not named:
            params["rgdispidNamedArgs"] = dtypes.NULL
        params["cArgs"] = len(values)
        params["cNamedArgs"] = len(named)
        request = IDispatch_Invoke()
        for field, value in {
            "dispIdMember": dispid,
            "riid": oaut.IID_NULL,
            "lcid": LCID,
            "dwFlags": flags,
            "pDispParams": params,
            "cVarRef": 0,
            "rgVarRefIdx": [],
            "rgVarRef": [],
        }.items():
            request[field] = value
        return self.interface.request(request, iid=oaut.IID_IDispatch, uuid=self.ipid)

    def get(self, name: str) -> Untyped:
        return self.peer.value(self, self.invoke(name, GET, [], []))

    def put(self, name: str, value: object) -> None:
        flags = PUTREF if isinstance(value, Object) else PUT
        self.invoke(name, flags, [variant(value)], [PROPERTYPUT])

    def call(self, name: str, *arguments: object, **named: object) -> Untyped:
        values = [variant(each) for each in (*arguments, *named.values())]
        places = self.dispids(name, *named)[1:] if named else []
        return self.peer.value(self, self.invoke(name, METHOD | GET, values, places))

    # IRemUnknown

    def query(self, iid: str | UUID) -> Object:
        """RemQueryInterface; the reference is put together of what it answers."""
        asked = self.interface.RemQueryInterface(1, (wire(iid),))
        std = struct.pack("<II", 0, 1) + self.objref[32:48] + bytes(asked.get_iPid())
        return self.peer.of(self, self.objref[:8] + wire(iid) + std + self.objref[64:])

    def add_ref(self) -> None:
        self.interface.RemAddRef()

    def release(self, times: int = 1) -> None:
        for _ in range(times):
            self.interface.RemRelease()

    def request(self, call: Untyped) -> Untyped:
        """Call through the vtable of this interface."""
        return self.interface.request(call, iid=wire(self.iid), uuid=self.ipid)


class Peer:
    """A computer as a client sees it, at one level."""

    def __init__(self, address: str, user: str, password: str, level: int) -> None:
        self.address = address
        self.level = level
        self._who = user, password

    def create(self, clsid: str | UUID, iid: str | UUID = IID_IDISPATCH) -> Object:
        # It sends a second bind on a connection that has had one: so each activation gets its own.
        connection = dcomrt.DCOMConnection(self.address, *self._who, authLevel=self.level)
        activator = connection.get_dce_rpc()
        try:
            made = connection.CoCreateInstanceEx(wire(clsid), wire(iid))
        finally:
            activator.disconnect()
        # It goes by the hint of the server, which is the least that it takes.
        made.get_cinstance().set_auth_level(self.level)
        return Object(self, made, bytes(made.get_objRef()))

    def of(self, owner: Object, objref: bytes) -> Object:
        """Return the object that a call has returned; it belongs to the same exporter."""
        near = owner.interface
        made = dcomrt.INTERFACE(
            near.get_cinstance(), objref, near.get_ipidRemUnknown(), oxid=near.get_oxid(), target=near.get_target()
        )
        return Object(self, dcomrt.IRemUnknown2(made), objref)

    def value(self, owner: Object, answer: Untyped) -> Untyped:
        found = answer["pVarResult"]
        kind = found["vt"]
        if kind in (VT.VT_DISPATCH, VT.VT_UNKNOWN):
            arm = "pdispVal" if kind == VT.VT_DISPATCH else "punkVal"
            if found["_varUnion"].fields[arm]["ReferentID"] == 0:
                return None
            return self.of(owner, b"".join(found["_varUnion"][arm]["abData"]))
        return plain(found)

    def close(self) -> None:
        for of_thread in dcomrt.INTERFACE.CONNECTIONS.pop(self.address, {}).values():
            for of_exporter in of_thread.values():
                of_exporter["dce"].disconnect()
        for table in (dcomrt.DCOMConnection.PORTMAPS, dcomrt.DCOMConnection.OID_ADD, dcomrt.DCOMConnection.OID_SET):
            table.pop(self.address, None)


_ARMS = {
    VT.VT_I2: "iVal",
    VT.VT_I4: "lVal",
    VT.VT_BOOL: "boolVal",
    VT.VT_DATE: "date",
    VT.VT_UI1: "bVal",
    VT.VT_UI2: "uiVal",
    VT.VT_UI4: "ulVal",
    VT.VT_UI8: "ullVal",
    VT.VT_I8: "llVal",
    VT.VT_R8: "dblVal",
}


def plain(found: Untyped) -> Untyped:
    """The value of a VARIANT that is no object."""
    kind = found["vt"]
    if kind in (VT.VT_EMPTY, VT.VT_NULL):
        return None
    if kind == VT.VT_BSTR:
        return found["_varUnion"]["bstrVal"]["asData"]
    if kind == VT.VT_BOOL:
        return found["_varUnion"]["boolVal"] == 0xFFFF
    if kind in _ARMS:
        return found["_varUnion"][_ARMS[kind]]
    raise AssertionError(f"VARIANT of type {kind:#x}")


def variant(value: object) -> Untyped:
    made = oaut.VARIANT(None, False)
    made["clSize"] = 5

    def of(kind: int, arm: str = "", content: object = None) -> None:
        made["vt"] = kind
        made["_varUnion"]["tag"] = kind
        if arm:
            made["_varUnion"][arm] = content

    match value:
        case None:
            of(VT.VT_NULL)
        case bool():
            of(VT.VT_BOOL, "boolVal", 0xFFFF if value else 0)
        case int():
            of(VT.VT_I4, "lVal", value)
        case float():
            of(VT.VT_R8, "dblVal", value)
        case str():
            of(VT.VT_BSTR)
            made["_varUnion"]["bstrVal"]["asData"] = value
        case Object():
            value.add_ref()
            of(VT.VT_DISPATCH)
            octets = value.objref[:28] + struct.pack("<I", 1) + value.objref[32:]
            made["_varUnion"]["pdispVal"]["ulCntData"] = len(octets)
            made["_varUnion"]["pdispVal"]["abData"] = list(octets)
        case _:
            raise TypeError(type(value).__name__)
    return made
