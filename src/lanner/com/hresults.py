"""The names of HRESULTs, for error texts (MS-ERREF 2.1 and 2.2, MS-MQMQ 2.4)."""

from __future__ import annotations

from typing import Final

from lanner.com import constants
from lanner.model.errors import StatusError

_PREFIXES: Final = ("E_", "RPC_E_", "RPC_S_", "CLASS_E_", "REGDB_E_", "CO_E_", "CONNECT_E_", "DISP_E_", "S_")
_NAMES: Final[dict[int, str]] = {
    value: name for name, value in vars(constants).items() if name.startswith(_PREFIXES) and isinstance(value, int)
} | {
    constants.win32(constants.OR_INVALID_OXID): "OR_INVALID_OXID",
    constants.win32(constants.OR_INVALID_OID): "OR_INVALID_OID",
    constants.win32(constants.OR_INVALID_SET): "OR_INVALID_SET",
}


def hresult_name(hresult: int) -> str:
    """Return the name of a code as the documents spell it; empty for an unknown code."""
    found = StatusError.by_status.get(hresult)
    return found.spec_name if found is not None else _NAMES.get(hresult, "")
