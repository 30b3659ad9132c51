"""The Remote Unknown: interface queries and reference counts (MS-DCOM 3.1.1.5.6, 3.1.1.5.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.com.constants import (
    CO_E_OBJNOTREG,
    E_ACCESSDENIED,
    E_INVALIDARG,
    E_NOINTERFACE,
    IID_IREMUNKNOWN,
    IID_IREMUNKNOWN2,
    IID_IUNKNOWN,
    RPC_E_ACCESS_DENIED,
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_IPID,
    RPC_E_INVALID_OBJECT,
    S_OK,
)
from lanner.com.interfaces import (
    IREMUNKNOWN,
    IREMUNKNOWN2,
    REM_ADD_REF,
    REM_QUERY_INTERFACE,
    REM_QUERY_INTERFACE2,
    REM_RELEASE,
    RemInterfaceRef,
    RemQiResult,
)
from lanner.com.objects import ComError
from lanner.com.objref import NULL_STDOBJREF, SORF_NOPING, ObjRefStandard, StdObjRef
from lanner.com.orpc import OrpcThat, OrpcThis
from lanner.com.server.exporter import PUBLIC_REFS
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.server import Handler, ServerInterface

if TYPE_CHECKING:
    from lanner.com.server.exporter import ObjectExporter
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.interface import Interface
    from lanner.rpc.server import Results
    from lanner.wire.sid import Sid

# Not in the specification: the maximum number of interfaces that one call queries. No class has
# twenty.
MAX_QUERIED_INTERFACES: Final = 256
_OWN_INTERFACES: Final = (IID_IUNKNOWN, IID_IREMUNKNOWN, IID_IREMUNKNOWN2)


class RemUnknown(ServerInterface):
    """IRemUnknown or IRemUnknown2 of an exporter. Both have the same IPID."""

    def __init__(self, exporter: ObjectExporter, interface: Interface) -> None:
        handlers: dict[str, Handler] = {
            REM_QUERY_INTERFACE.name: self.rem_query_interface,
            REM_ADD_REF.name: self.rem_add_ref,
            REM_RELEASE.name: self.rem_release,
            REM_QUERY_INTERFACE2.name: self.rem_query_interface2,
        }
        super().__init__(
            interface,
            {name: handler for name, handler in handlers.items() if name in interface.by_name},
            authorize=self._admit,
        )
        self._exporter = exporter

    def _admit(self, call: ServerCall) -> None:
        self._exporter.admit(call, denied=E_ACCESSDENIED)
        if call.object_uuid == self._exporter.ipid_rem_unknown:
            return
        known = call.object_uuid is not None and self._exporter.find(call.object_uuid) is not None
        raise RpcFault(
            RPC_E_INVALID_IPID if known else RPC_E_DISCONNECTED,
            f"{call!r}: IPID {call.object_uuid}",
            did_not_execute=True,
        )

    def _query(self, user: Sid, ripid: UUID, iids: tuple[UUID, ...], refs: int) -> list[RemQiResult]:
        """Query an object for interfaces. Raise ComError if the object cannot be queried."""
        exporter = self._exporter
        if len(iids) > MAX_QUERIED_INTERFACES:
            raise ComError(E_INVALIDARG, f"{len(iids)} interfaces at once")
        if ripid == exporter.ipid_rem_unknown:
            # IRemUnknown lives as long as the exporter, regardless of references.
            std = StdObjRef(SORF_NOPING, refs, exporter.oxid, exporter.oid_rem_unknown, ripid)
            return [RemQiResult(S_OK, std) if iid in _OWN_INTERFACES else _NO_INTERFACE for iid in iids]
        interface = exporter.find(ripid)
        if interface is None:
            raise ComError(RPC_E_INVALID_OBJECT, f"no IPID {ripid}")
        if not interface.exported.serves(user):
            raise ComError(RPC_E_ACCESS_DENIED, f"the object of {ripid} was not given to {user}")
        results = []
        for iid in iids:
            try:
                std = exporter.add_references(interface.exported.object, iid, refs, user=user)
                results.append(RemQiResult(S_OK, std))
            except ComError as error:
                results.append(RemQiResult(error.hresult, NULL_STDOBJREF))
        return results

    def rem_query_interface(
        self,
        call: ServerCall,
        *,
        orpc_this: OrpcThis,
        ripid: UUID,
        c_refs: int,
        c_iids: int,
        iids: tuple[UUID, ...],
    ) -> Results:
        """Serve RemQueryInterface (MS-DCOM 3.1.1.5.6.1.1)."""
        del orpc_this, c_iids
        try:
            results = self._query(call.identity.sid, ripid, iids, c_refs)
        except ComError as error:
            return {"orpc_that": OrpcThat(), "pp_qi_results": None, RETURNS: error.hresult}
        return {"orpc_that": OrpcThat(), "pp_qi_results": tuple(results), RETURNS: S_OK}

    def rem_query_interface2(
        self, call: ServerCall, *, orpc_this: OrpcThis, ripid: UUID, c_iids: int, iids: tuple[UUID, ...]
    ) -> Results:
        """Serve RemQueryInterface2 (MS-DCOM 3.1.1.5.7.1.1)."""
        del orpc_this
        try:
            results = self._query(call.identity.sid, ripid, iids, PUBLIC_REFS)
        except ComError as error:
            nothing = {"phr": (error.hresult,) * c_iids, "pp_mif": (None,) * c_iids}
            return {"orpc_that": OrpcThat(), **nothing, RETURNS: error.hresult}
        res_addr = self._exporter.addresses.resolver(call.connection.local_address)
        return {
            "orpc_that": OrpcThat(),
            "phr": tuple([one.hresult for one in results]),
            "pp_mif": tuple(
                [
                    None if one.hresult else ObjRefStandard(iid, one.std, res_addr)
                    for iid, one in zip(iids, results, strict=True)
                ]
            ),
            RETURNS: S_OK,
        }

    def rem_add_ref(
        self,
        call: ServerCall,
        *,
        orpc_this: OrpcThis,
        c_interface_refs: int,
        interface_refs: tuple[RemInterfaceRef, ...],
    ) -> Results:
        """Serve RemAddRef (MS-DCOM 3.1.1.5.6.1.2)."""
        del orpc_this, c_interface_refs
        owner = call.identity.sid
        results = [
            S_OK if self._exporter.add_ref(one.ipid, one.public_refs, one.private_refs, owner) else CO_E_OBJNOTREG
            for one in interface_refs
        ]
        return {"orpc_that": OrpcThat(), "p_results": tuple(results), RETURNS: S_OK}

    def rem_release(
        self,
        call: ServerCall,
        *,
        orpc_this: OrpcThis,
        c_interface_refs: int,
        interface_refs: tuple[RemInterfaceRef, ...],
    ) -> Results:
        """Serve RemRelease (MS-DCOM 3.1.1.5.6.1.3)."""
        del orpc_this, c_interface_refs
        for one in interface_refs:
            self._exporter.release(one.ipid, one.public_refs, one.private_refs, call.identity.sid)
        return {"orpc_that": OrpcThat(), RETURNS: S_OK}


_NO_INTERFACE: Final = RemQiResult(E_NOINTERFACE, NULL_STDOBJREF)


def rem_unknowns(exporter: ObjectExporter) -> list[RemUnknown]:
    """Return the interfaces that an exporter must register first (MS-DCOM 3.1.1.3)."""
    return [RemUnknown(exporter, IREMUNKNOWN), RemUnknown(exporter, IREMUNKNOWN2)]
