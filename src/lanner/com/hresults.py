"""HRESULTs by name, for people (MS-ERREF 2.1, MS-MQMQ 2.4)."""

from __future__ import annotations

from typing import Final

from lanner.com import client_connections, constants
from lanner.model.errors import StatusError

_PREFIXES: Final = ("E_", "RPC_E_", "CLASS_E_", "REGDB_E_", "CO_E_", "CONNECT_E_", "DISP_E_", "S_")
_NAMES: Final[dict[int, str]] = {
    value: name
    for name, value in [*vars(constants).items(), ("RPC_E_TIMEOUT", client_connections.RPC_E_TIMEOUT)]
    if name.startswith(_PREFIXES) and isinstance(value, int)
} | {
    client_connections.SERVER_UNAVAILABLE: "RPC_S_SERVER_UNAVAILABLE",
    client_connections.SERVER_TOO_BUSY: "RPC_S_SERVER_TOO_BUSY",
    client_connections.PROCNUM_OUT_OF_RANGE: "RPC_S_PROCNUM_OUT_OF_RANGE",
    client_connections.UNKNOWN_IF: "RPC_S_UNKNOWN_IF",
    client_connections.win32(constants.OR_INVALID_OXID): "OR_INVALID_OXID",
    client_connections.win32(constants.OR_INVALID_OID): "OR_INVALID_OID",
    client_connections.win32(constants.OR_INVALID_SET): "OR_INVALID_SET",
}


def hresult_name(hresult: int) -> str:
    """The name of a code as the documents spell it; empty if nobody here knows it."""
    found = StatusError.by_status.get(hresult)
    return found.spec_name if found is not None else _NAMES.get(hresult, "")
