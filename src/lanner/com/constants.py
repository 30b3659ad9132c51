"""Well-known identifiers and codes of COM (MS-DCOM 1.9, MS-OAUT 1.9, MS-ERREF 2.1 and 2.2).

HRESULTs are unsigned, as `StatusError.status` is.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from lanner.rpc.faults import FaultStatus


def _com(first: int) -> UUID:
    """Return one of the identifiers that differ only in the first field."""
    return UUID(fields=(first, 0, 0, 0xC0, 0x00, 0x0000_0000_0046))


# MS-DCOM 2.2.11: the major and the minor version. 5.7 adds nothing to 5.6; Windows has sent it
# since XP.
COM_VERSION: Final = (5, 7)

# MS-DCOM 2.2.19.3, C706 appendix I: the protocol sequence identifier of ncacn_ip_tcp.
NCACN_IP_TCP: Final = 7

# MS-DCOM 3.1.2.2: "SHOULD be exactly 2 minutes".
PING_PERIOD: Final = 120.0  # seconds

# Interfaces
# --------------------------------------------------------------------------------------------------

IID_IUNKNOWN: Final = _com(0x00)
IID_ICLASSFACTORY: Final = _com(0x01)
IID_IREMUNKNOWN: Final = _com(0x131)
IID_IREMUNKNOWN2: Final = _com(0x143)
IID_IREMOTESCMACTIVATOR: Final = _com(0x1A0)
IID_IACTIVATIONPROPERTIESIN: Final = _com(0x1A2)
IID_IACTIVATIONPROPERTIESOUT: Final = _com(0x1A3)
IID_ICONTEXT: Final = _com(0x1C0)
IID_IDISPATCH: Final = _com(0x2_0400)
IID_ITYPEINFO: Final = _com(0x2_0401)
IID_IENUMVARIANT: Final = _com(0x2_0404)
IID_IACTIVATION: Final = UUID("4d9f4ab8-7d1c-11cf-861e-0020af6e7c57")
IID_IOBJECTEXPORTER: Final = UUID("99fcfec4-5260-101b-bbcb-00aa0021347a")
IID_ICONNECTIONPOINTCONTAINER: Final = UUID("b196b284-bab4-101a-b69c-00aa00341d07")
IID_IENUMCONNECTIONPOINTS: Final = UUID("b196b285-bab4-101a-b69c-00aa00341d07")
IID_ICONNECTIONPOINT: Final = UUID("b196b286-bab4-101a-b69c-00aa00341d07")
IID_IENUMCONNECTIONS: Final = UUID("b196b287-bab4-101a-b69c-00aa00341d07")

# Activation properties (MS-DCOM 1.9)
# ---------------------------------------------------------------------------------

CLSID_ACTIVATIONPROPERTIESIN: Final = _com(0x338)
CLSID_ACTIVATIONPROPERTIESOUT: Final = _com(0x339)
CLSID_CONTEXTMARSHALER: Final = _com(0x33B)
CLSID_SERVERLOCATIONINFO: Final = _com(0x1A4)
CLSID_ACTIVATIONCONTEXTINFO: Final = _com(0x1A5)
CLSID_SCMREQUESTINFO: Final = _com(0x1AA)
CLSID_INSTANTIATIONINFO: Final = _com(0x1AB)
CLSID_SCMREPLYINFO: Final = _com(0x1B6)
CLSID_SPECIALSYSTEMPROPERTIES: Final = _com(0x1B9)
CLSID_PROPSOUTINFO: Final = CLSID_ACTIVATIONPROPERTIESOUT

# HRESULTs (MS-ERREF 2.1)
# ---------------------------------------------------------------------------------------------

S_OK: Final = 0x0000_0000
S_FALSE: Final = 0x0000_0001
E_NOTIMPL: Final = 0x8000_4001
E_NOINTERFACE: Final = 0x8000_4002
E_POINTER: Final = 0x8000_4003
E_ABORT: Final = 0x8000_4004
E_FAIL: Final = 0x8000_4005
E_UNEXPECTED: Final = 0x8000_FFFF
E_ACCESSDENIED: Final = 0x8007_0005
E_HANDLE: Final = 0x8007_0006
E_OUTOFMEMORY: Final = 0x8007_000E
E_INVALIDARG: Final = 0x8007_0057

RPC_E_CALL_REJECTED: Final = 0x8001_0001
RPC_E_SERVERFAULT: Final = 0x8001_0105
RPC_E_DISCONNECTED: Final = 0x8001_0108
RPC_E_VERSION_MISMATCH: Final = 0x8001_0110
RPC_E_INVALID_HEADER: Final = 0x8001_0111
RPC_E_INVALID_EXTENSION: Final = 0x8001_0112
RPC_E_INVALID_IPID: Final = 0x8001_0113
RPC_E_INVALID_OBJECT: Final = 0x8001_0114
RPC_E_ACCESS_DENIED: Final = 0x8001_011B
RPC_E_INVALID_OBJREF: Final = 0x8001_011D
RPC_E_TIMEOUT: Final = 0x8001_011F
RPC_E_UNEXPECTED: Final = 0x8001_FFFF

CLASS_E_NOAGGREGATION: Final = 0x8004_0110
CLASS_E_CLASSNOTAVAILABLE: Final = 0x8004_0111
REGDB_E_CLASSNOTREG: Final = 0x8004_0154
REGDB_E_IIDNOTREG: Final = 0x8004_0155
CO_E_OBJNOTREG: Final = 0x8004_01FB
CO_E_OBJISREG: Final = 0x8004_01FC
CO_E_OBJNOTCONNECTED: Final = 0x8004_01FD
CO_E_SERVER_EXEC_FAILURE: Final = 0x8008_0005

CONNECT_E_NOCONNECTION: Final = 0x8004_0200
CONNECT_E_ADVISELIMIT: Final = 0x8004_0201
CONNECT_E_CANNOTCONNECT: Final = 0x8004_0202

DISP_E_UNKNOWNINTERFACE: Final = 0x8002_0001
DISP_E_MEMBERNOTFOUND: Final = 0x8002_0003
DISP_E_PARAMNOTFOUND: Final = 0x8002_0004
DISP_E_TYPEMISMATCH: Final = 0x8002_0005
DISP_E_UNKNOWNNAME: Final = 0x8002_0006
DISP_E_NONAMEDARGS: Final = 0x8002_0007
DISP_E_BADVARTYPE: Final = 0x8002_0008
DISP_E_EXCEPTION: Final = 0x8002_0009
DISP_E_OVERFLOW: Final = 0x8002_000A
DISP_E_BADINDEX: Final = 0x8002_000B
DISP_E_UNKNOWNLCID: Final = 0x8002_000C
DISP_E_ARRAYISLOCKED: Final = 0x8002_000D
DISP_E_BADPARAMCOUNT: Final = 0x8002_000E
DISP_E_PARAMNOTOPTIONAL: Final = 0x8002_000F
DISP_E_BADCALLEE: Final = 0x8002_0010
DISP_E_NOTACOLLECTION: Final = 0x8002_0011
DISP_E_DIVBYZERO: Final = 0x8002_0012
DISP_E_BUFFERTOOSMALL: Final = 0x8002_0013

# Win32 codes of the RPC runtime (MS-ERREF 2.2) as HRESULTs
# ------------------------------------------------------------


def win32(code: int) -> int:
    """Return the HRESULT of a Win32 code (MS-ERREF 2.1.2); zero is success."""
    return 0x8007_0000 | code if code else 0


RPC_S_UNKNOWN_IF: Final = win32(0x06B5)
RPC_S_SERVER_UNAVAILABLE: Final = win32(FaultStatus.SERVER_UNAVAILABLE)
RPC_S_SERVER_TOO_BUSY: Final = win32(FaultStatus.SERVER_TOO_BUSY)
RPC_S_PROCNUM_OUT_OF_RANGE: Final = win32(0x06D1)

# Status codes of the resolver (MS-ERREF 2.2)
# -------------------------------------------------------------------------

OR_OK: Final = 0
ERROR_ACCESS_DENIED: Final = 0x0000_0005
ERROR_OUTOFMEMORY: Final = 0x0000_000E
OR_INVALID_OXID: Final = 0x0000_0776
OR_INVALID_OID: Final = 0x0000_0777
OR_INVALID_SET: Final = 0x0000_0778


def succeeded(hresult: int) -> bool:
    """Return whether the severity bit is clear (MS-ERREF 2.1)."""
    return hresult & 0x8000_0000 == 0
