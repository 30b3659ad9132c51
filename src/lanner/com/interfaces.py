"""The interfaces of DCOM itself, declared for servers and clients (MS-DCOM 3.1.1.5, 3.1.2.5, 6).

The resolver's interfaces are plain RPC. On object interfaces, each request starts with ORPCTHIS and
each response with ORPCTHAT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from lanner.com.activation_properties import MAX_REQUESTED_INTERFACES, MAX_REQUESTED_PROTSEQS
from lanner.com.constants import (
    IID_IACTIVATION,
    IID_ICLASSFACTORY,
    IID_IOBJECTEXPORTER,
    IID_IREMOTESCMACTIVATOR,
    IID_IREMUNKNOWN,
    IID_IREMUNKNOWN2,
)
from lanner.com.objref import DUALSTRINGARRAY, INTERFACE_POINTER, RAW_INTERFACE_POINTER, STDOBJREF, StdObjRef
from lanner.com.orpc import COMVERSION, ORPCTHAT, ORPCTHIS
from lanner.rpc.interface import In, InOut, Interface, Method, Out, Parameter
from lanner.rpc.ndr import Conformant, Struct, Syntax, Unique, guid, i32, u16, u32, u64, wide_string

# MS-DCOM 2.2: "the NDR transfer syntax only".
_SYNTAXES: Final = (Syntax.NDR20,)
_VERSION: Final = (0, 0)  # MS-DCOM 2.1


def object_method(opnum: int, name: str, *parameters: Parameter) -> Method:
    """Declare a method of an object interface, which returns an HRESULT (MS-DCOM 2.2.12)."""
    return Method(opnum, name, In("orpc_this", ORPCTHIS), Out("orpc_that", ORPCTHAT), *parameters, returns=u32)


# IObjectExporter (MS-DCOM 3.1.2.5.1)
# ---------------------------------------------------------------------------------

_RESOLVE_OXID: Final = (
    In("p_oxid", u64),
    In("c_requested_protseqs", u16),
    In("ar_requested_protseqs", Conformant(u16), size_is="c_requested_protseqs"),
    Out("ppdsa_oxid_bindings", DUALSTRINGARRAY),
    Out("pipid_rem_unknown", guid),
    Out("p_authn_hint", u32),
)
RESOLVE_OXID: Final = Method(0, "ResolveOxid", *_RESOLVE_OXID, returns=u32)
SIMPLE_PING: Final = Method(1, "SimplePing", In("p_set_id", u64), returns=u32)
COMPLEX_PING: Final = Method(
    2,
    "ComplexPing",
    InOut("p_set_id", u64),
    In("sequence_num", u16),
    In("c_add_to_set", u16),
    In("c_del_from_set", u16),
    In("add_to_set", Unique(Conformant(u64)), size_is="c_add_to_set"),
    In("del_from_set", Unique(Conformant(u64)), size_is="c_del_from_set"),
    Out("p_ping_backoff_factor", u16),
    returns=u32,
)
SERVER_ALIVE: Final = Method(3, "ServerAlive", returns=u32)
RESOLVE_OXID2: Final = Method(4, "ResolveOxid2", *_RESOLVE_OXID, Out("p_com_version", COMVERSION), returns=u32)
SERVER_ALIVE2: Final = Method(
    5,
    "ServerAlive2",
    Out("p_com_version", COMVERSION),
    Out("ppdsa_or_bindings", DUALSTRINGARRAY),
    Out("p_reserved", u32),
    returns=u32,
)
IOBJECTEXPORTER: Final = Interface(
    "IObjectExporter",
    IID_IOBJECTEXPORTER,
    _VERSION,
    [RESOLVE_OXID, SIMPLE_PING, COMPLEX_PING, SERVER_ALIVE, RESOLVE_OXID2, SERVER_ALIVE2],
    _SYNTAXES,
)

# IActivation and IRemoteSCMActivator (MS-DCOM 3.1.2.5.2)
# -------------------------------------------------------------

# The Mode of RemoteActivation for a class factory.
MODE_GET_CLASS_OBJECT: Final = 0xFFFF_FFFF

REMOTE_ACTIVATION: Final = Method(
    0,
    "RemoteActivation",
    In("orpc_this", ORPCTHIS),
    Out("orpc_that", ORPCTHAT),
    In("clsid", guid),
    In("pwsz_object_name", Unique(wide_string)),
    In("p_object_storage", RAW_INTERFACE_POINTER),
    In("client_imp_level", u32),
    In("mode", u32),
    In("interfaces", u32.within(1, MAX_REQUESTED_INTERFACES)),
    In("p_iids", Unique(Conformant(guid)), size_is="interfaces"),
    In("c_requested_protseqs", u16.within(0, MAX_REQUESTED_PROTSEQS)),
    In("a_requested_protseqs", Conformant(u16), size_is="c_requested_protseqs"),
    Out("p_oxid", u64),
    Out("ppdsa_oxid_bindings", DUALSTRINGARRAY),
    Out("pipid_rem_unknown", guid),
    Out("p_authn_hint", u32),
    Out("p_server_version", COMVERSION),
    Out("phr", u32),
    Out("pp_interface_data", Conformant(INTERFACE_POINTER), size_is="interfaces"),
    Out("p_results", Conformant(u32), size_is="interfaces"),
    returns=u32,
)
IACTIVATION: Final = Interface("IActivation", IID_IACTIVATION, _VERSION, [REMOTE_ACTIVATION], _SYNTAXES)

REMOTE_GET_CLASS_OBJECT: Final = Method(
    3,
    "RemoteGetClassObject",
    In("orpc_this", ORPCTHIS),
    Out("orpc_that", ORPCTHAT),
    In("p_act_properties", RAW_INTERFACE_POINTER),
    Out("pp_act_properties", INTERFACE_POINTER),
    returns=u32,
)
REMOTE_CREATE_INSTANCE: Final = Method(
    4,
    "RemoteCreateInstance",
    In("orpc_this", ORPCTHIS),
    Out("orpc_that", ORPCTHAT),
    In("p_unk_outer", RAW_INTERFACE_POINTER),
    In("p_act_properties", RAW_INTERFACE_POINTER),
    Out("pp_act_properties", INTERFACE_POINTER),
    returns=u32,
)
IREMOTESCMACTIVATOR: Final = Interface(
    "IRemoteSCMActivator",
    IID_IREMOTESCMACTIVATOR,
    _VERSION,
    [None, None, None, REMOTE_GET_CLASS_OBJECT, REMOTE_CREATE_INSTANCE],
    _SYNTAXES,
)

# IRemUnknown and IRemUnknown2 (MS-DCOM 3.1.1.5.6, 3.1.1.5.7)
# ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemInterfaceRef:
    """REMINTERFACEREF, MS-DCOM 2.2.23."""

    ipid: Annotated[UUID, guid]
    public_refs: Annotated[int, u32]
    private_refs: Annotated[int, u32]


@dataclass(frozen=True, slots=True)
class RemQiResult:
    """REMQIRESULT, MS-DCOM 2.2.24."""

    hresult: Annotated[int, u32]
    std: Annotated[StdObjRef, STDOBJREF]


_INTERFACE_REFS: Final = In("interface_refs", Conformant(Struct(RemInterfaceRef)), size_is="c_interface_refs")

REM_QUERY_INTERFACE: Final = object_method(
    3,
    "RemQueryInterface",
    In("ripid", guid),
    In("c_refs", u32),
    In("c_iids", u16),
    In("iids", Conformant(guid), size_is="c_iids"),
    # disable_consistency_check (MS-DCOM 2.2.25): NULL when the call fails.
    Out("pp_qi_results", Unique(Conformant(Struct(RemQiResult)))),
)
REM_ADD_REF: Final = object_method(
    4,
    "RemAddRef",
    In("c_interface_refs", u16),
    _INTERFACE_REFS,
    Out("p_results", Conformant(u32), size_is="c_interface_refs"),
)
REM_RELEASE: Final = object_method(5, "RemRelease", In("c_interface_refs", u16), _INTERFACE_REFS)
REM_QUERY_INTERFACE2: Final = object_method(
    6,
    "RemQueryInterface2",
    In("ripid", guid),
    In("c_iids", u16),
    In("iids", Conformant(guid), size_is="c_iids"),
    Out("phr", Conformant(u32), size_is="c_iids"),
    Out("pp_mif", Conformant(INTERFACE_POINTER), size_is="c_iids"),
)
_REM_UNKNOWN: Final = [None, None, None, REM_QUERY_INTERFACE, REM_ADD_REF, REM_RELEASE]
IREMUNKNOWN: Final = Interface("IRemUnknown", IID_IREMUNKNOWN, _VERSION, _REM_UNKNOWN, _SYNTAXES)
IREMUNKNOWN2: Final = Interface(
    "IRemUnknown2", IID_IREMUNKNOWN2, _VERSION, [*_REM_UNKNOWN, REM_QUERY_INTERFACE2], _SYNTAXES
)

# IClassFactory: the [call_as] forms of CreateInstance and LockServer, which are [local]
# ------------------------------

CREATE_INSTANCE: Final = object_method(3, "CreateInstance", In("riid", guid), Out("ppv_object", INTERFACE_POINTER))
LOCK_SERVER: Final = object_method(4, "LockServer", In("f_lock", i32))
ICLASSFACTORY: Final = Interface(
    "IClassFactory", IID_ICLASSFACTORY, _VERSION, [None, None, None, CREATE_INSTANCE, LOCK_SERVER], _SYNTAXES
)
