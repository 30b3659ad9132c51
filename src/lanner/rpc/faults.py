"""Status codes of fault PDUs (C706 appendix N.2, MS-RPCE 3.1.1.5.5), and their exceptions."""

from __future__ import annotations

import enum
from typing import Final

from lanner.model.errors import LannerError


class FaultStatus(enum.IntEnum):
    """The codes that this runtime sends, or has a name for.

    Codes below 0x10000 are Win32 errors, as Windows sends them.
    """

    ACCESS_DENIED = 0x0000_0005
    SERVER_UNAVAILABLE = 0x0000_06BA
    SERVER_TOO_BUSY = 0x0000_06BB
    NO_CALL_ACTIVE = 0x0000_06BD
    CALL_FAILED = 0x0000_06BE
    PROTOCOL_ERROR = 0x0000_06C0
    CANT_PERFORM_OP = 0x0000_06D8
    BAD_STUB_DATA = 0x0000_06F7
    CALL_CANCELLED = 0x0000_071A
    SEC_PKG_ERROR = 0x0000_0721
    NCA_FAULT_CANCEL = 0x1C00_000D
    NCA_FAULT_UNSPEC = 0x1C00_0012
    NCA_FAULT_CONTEXT_MISMATCH = 0x1C00_001A
    NCA_FAULT_REMOTE_NO_MEMORY = 0x1C00_001B
    NCA_UNSUPPORTED_AUTHN_LEVEL = 0x1C00_001D
    NCA_INVALID_CHECKSUM = 0x1C00_001F
    NCA_OP_RNG_ERROR = 0x1C01_0002
    NCA_UNK_IF = 0x1C01_0003
    NCA_PROTO_ERROR = 0x1C01_000B
    NCA_OUT_ARGS_TOO_BIG = 0x1C01_0013
    NCA_SERVER_TOO_BUSY = 0x1C01_0014
    NCA_UNSUPPORTED_TYPE = 0x1C01_0017


# MS-RPCE 3.3.3.5.1: a server never sends these, and a client treats them as a protocol error.
FORBIDDEN_STATUS: Final = frozenset(
    {
        0x0000_0000,
        0x8000_0001,
        0x8000_0002,
        0x8000_0003,
        0xC000_0005,
        0xC000_0006,
        0xC000_001D,
        0xC000_0096,
        0xC000_00AA,
        0xC000_00FD,
        0xC000_0194,
        0xC000_0235,
        0xC000_0409,
        0xC000_0420,
    }
)


def status_name(status: int) -> str:
    try:
        return FaultStatus(status).name
    except ValueError:
        return f"{status:#010x}"


class RpcFault(LannerError):
    """The fault that ends a call. Handlers raise it on a server, and calls on a client."""

    def __init__(self, status: int, what: str = "", *, did_not_execute: bool = False) -> None:
        super().__init__(f"{what}: {status_name(status)}" if what else f"the call failed: {status_name(status)}")
        self.status = int(status)
        # C706 12.6.4.7: the server promises that the call had no effect.
        self.did_not_execute = did_not_execute


class RpcConnectionError(LannerError):
    """There is no connection, the peer ended it, or the peer refused the bind."""


class InterfaceRefused(RpcConnectionError):
    """The server does not serve an interface here. The connection stays open."""
