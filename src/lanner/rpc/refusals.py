"""Refusals of a connection: bind_nak for a bind, a fault for all other PDUs (MS-RPCE 3.3.3.5)."""

from __future__ import annotations

from lanner.rpc.pdu import PFC_DID_NOT_EXECUTE, RejectReason


class Refused(Exception):
    """The refusal of a PDU by a fault. If `ends` is true, the connection is closed after it."""

    def __init__(self, status: int, why: str, *, context_id: int = 0, flags: int = 0, ends: bool = True) -> None:
        super().__init__(why)
        self.status = status
        self.context_id = context_id
        self.flags = flags
        self.ends = ends


class Nak(Exception):
    """The refusal of a bind by a bind_nak."""

    def __init__(self, reason: RejectReason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def not_executed(status: int, why: str) -> Refused:
    """Return a refusal which promises that the call had no effect. It ends the connection."""
    return Refused(status, why, flags=PFC_DID_NOT_EXECUTE)
