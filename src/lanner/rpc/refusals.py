"""How a connection says no: bind_nak for a bind, a fault for everything else (MS-RPCE 3.3.3.5)."""

from __future__ import annotations

from lanner.rpc.pdu import PFC_DID_NOT_EXECUTE, RejectReason


class Refused(Exception):
    """A PDU is answered with a fault; `ends` hangs up behind it."""

    def __init__(self, status: int, why: str, *, context_id: int = 0, flags: int = 0, ends: bool = True) -> None:
        super().__init__(why)
        self.status = status
        self.context_id = context_id
        self.flags = flags
        self.ends = ends


class Nak(Exception):
    """A bind is answered with a bind_nak."""

    def __init__(self, reason: RejectReason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def not_executed(status: int, why: str) -> Refused:
    """A fault that promises that nothing happened, with no context, and the end."""
    return Refused(status, why, flags=PFC_DID_NOT_EXECUTE)
