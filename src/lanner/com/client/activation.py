"""Calls of an activator (MS-DCOM 3.2.4.1.1): IRemoteSCMActivator, or the older IActivation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from lanner.com.activation_properties import ActivationReply, ActivationRequest, InterfaceResult
from lanner.com.client.calls import Calls, check_hresult
from lanner.com.client.connections import Address
from lanner.com.client.tables import negotiated
from lanner.com.constants import E_NOINTERFACE, NCACN_IP_TCP, RPC_E_INVALID_OBJREF, RPC_S_PROCNUM_OUT_OF_RANGE, win32
from lanner.com.interfaces import (
    IACTIVATION,
    IOBJECTEXPORTER,
    IREMOTESCMACTIVATOR,
    MODE_GET_CLASS_OBJECT,
    REMOTE_ACTIVATION,
    REMOTE_CREATE_INSTANCE,
    REMOTE_GET_CLASS_OBJECT,
    SERVER_ALIVE2,
)
from lanner.com.objects import ComError
from lanner.com.objref import DualStringArray
from lanner.com.orpc import ComVersion, OrpcThis
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel

if TYPE_CHECKING:
    from lanner.rpc.ndr import Value

# MS-DCOM 3.2.4.1.1.2: lower versions use IActivation.
_SCM_ACTIVATOR_MINOR: Final = 6
# MS-DCOM 1.7: the version of a server that does not report one.
OLDEST_VERSION: Final = ComVersion(5, 1)
# RPC_C_IMP_LEVEL_IDENTIFY, which servers ignore.
_IDENTIFY: Final = 2


async def server_alive(calls: Calls, address: Address) -> ComVersion:
    """Return the version to use with a resolver. Raise ComError if there is no resolver.

    MS-DCOM 3.2.4.1.1.1 and 3.2.4.1.2.1. The call has no security.
    """
    try:
        answer = await calls.ask(address, AuthLevel.NONE, IOBJECTEXPORTER, SERVER_ALIVE2)
    except ComError as error:
        if error.hresult == RPC_S_PROCNUM_OUT_OF_RANGE:
            return OLDEST_VERSION
        raise
    return negotiated(answer["p_com_version"], str(address))


async def request_activation(
    calls: Calls, address: Address, version: ComVersion, clsid: UUID, iids: tuple[UUID, ...], *, is_class_object: bool
) -> ActivationReply:
    """Request an object, or its class factory. Return a result for each requested interface."""
    if version.minor_version >= _SCM_ACTIVATOR_MINOR:
        try:
            reply = await _remote_create(calls, address, version, clsid, iids, is_class_object=is_class_object)
        except ComError as error:
            if error.hresult != E_NOINTERFACE:
                raise
        else:
            return reply
    return await _remote_activation(calls, address, version, clsid, iids, is_class_object=is_class_object)


async def _remote_create(
    calls: Calls, address: Address, version: ComVersion, clsid: UUID, iids: tuple[UUID, ...], *, is_class_object: bool
) -> ActivationReply:
    arguments: dict[str, Value] = {
        "orpc_this": OrpcThis.of(uuid4(), version),
        "p_act_properties": ActivationRequest(clsid, iids, client_version=version).pack().pack(),
    }
    if not is_class_object:
        arguments["p_unk_outer"] = None
    method = REMOTE_GET_CLASS_OBJECT if is_class_object else REMOTE_CREATE_INSTANCE
    answer = await calls.ask(address, calls.settings.resolver_level, IREMOTESCMACTIVATOR, method, arguments)
    if answer[RETURNS] == E_NOINTERFACE:
        # The object lacks the interface: a server without this activator would have failed before.
        return ActivationReply(
            tuple([InterfaceResult(iid, E_NOINTERFACE) for iid in iids]), 0, DualStringArray(), UUID(int=0), 0
        )
    check_hresult(answer[RETURNS], f"{address}: class {clsid}")
    try:
        return ActivationReply.unpack(answer["pp_act_properties"])
    except RemoteProtocolError as error:
        raise ComError(RPC_E_INVALID_OBJREF, f"{address}: {error}") from error


async def _remote_activation(
    calls: Calls, address: Address, version: ComVersion, clsid: UUID, iids: tuple[UUID, ...], *, is_class_object: bool
) -> ActivationReply:
    arguments: dict[str, Value] = {
        "orpc_this": OrpcThis.of(uuid4(), version),
        "clsid": clsid,
        "pwsz_object_name": None,
        "p_object_storage": None,
        "client_imp_level": _IDENTIFY,
        "mode": MODE_GET_CLASS_OBJECT if is_class_object else 0,
        "interfaces": len(iids),
        "p_iids": iids,
        "c_requested_protseqs": 1,
        "a_requested_protseqs": (NCACN_IP_TCP,),
    }
    answer = await calls.ask(address, calls.settings.resolver_level, IACTIVATION, REMOTE_ACTIVATION, arguments)
    check_hresult(win32(answer[RETURNS]), f"{address}: activation")
    check_hresult(answer["phr"], f"{address}: class {clsid}")
    return ActivationReply(
        tuple(map(InterfaceResult, iids, answer["p_results"], answer["pp_interface_data"])),
        answer["p_oxid"],
        answer["ppdsa_oxid_bindings"] or DualStringArray(),
        answer["pipid_rem_unknown"],
        answer["p_authn_hint"],
        answer["p_server_version"],
    )
