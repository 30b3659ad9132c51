"""The remote management interface of RPC (C706 appendix Q, MS-RPCE 2.2.1.3).

Every RPC server has it, on every endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from lanner.rpc.calls import ServerCall
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import RETURNS, In, InOut, Interface, Method, Out
from lanner.rpc.ndr import Conformant, Full, Related, Struct, Value, guid, narrow_string, u16, u32
from lanner.rpc.server import PendingAnswer, ServerInterface

if TYPE_CHECKING:
    from lanner.rpc.server import RpcServer

# MS-RPCE 2.2.1.3.2.
MAX_STATISTICS: Final = 50
# MS-RPCE 2.2.1.3.4.
MAX_PRINC_NAME: Final = 4096
_ACCESS_DENIED: Final = 5


@dataclass(frozen=True, slots=True)
class RpcIfId:
    """RPC_IF_ID, MS-RPCE 2.2.1.1.1."""

    uuid: Annotated[UUID, guid]
    vers_major: Annotated[int, u16]
    vers_minor: Annotated[int, u16]


RPC_IF_ID: Final = Struct(RpcIfId)


@dataclass(frozen=True, slots=True)
class RpcIfIdVector:
    """rpc_if_id_vector_t, MS-RPCE 2.2.1.3.1."""

    count: Annotated[int, u32]
    if_id: Annotated[tuple[RpcIfId | None, ...], Conformant(Full(RPC_IF_ID)), Related(size_is="count")]


MGMT: Final = Interface(
    "mgmt",
    UUID("afa8bd80-7d8a-11c9-bef4-08002b102989"),
    (1, 0),
    [
        Method(0, "rpc__mgmt_inq_if_ids", Out("if_id_vector", Full(Struct(RpcIfIdVector))), Out("status", u32)),
        Method(
            1,
            "rpc__mgmt_inq_stats",
            InOut("count", u32.within(0, MAX_STATISTICS)),
            Out("statistics", Conformant(u32), size_is="count"),
            Out("status", u32),
        ),
        Method(2, "rpc__mgmt_is_server_listening", Out("status", u32), returns=u32),
        Method(3, "rpc__mgmt_stop_server_listening", Out("status", u32)),
        Method(
            4,
            "rpc__mgmt_inq_princ_name",
            In("authn_proto", u32),
            In("princ_name_size", u32.within(0, MAX_PRINC_NAME)),
            Out("princ_name", narrow_string, size_is="princ_name_size"),
            Out("status", u32),
        ),
    ],
)
# Sizes of the requests. Clients that test servers send more, and Windows answers these requests,
# too.
_REQUEST_SIZES: Final = (0, 4, 0, 0, 8)


class MgmtInterface(ServerInterface):
    """The management interface of a server."""

    def __init__(self, server: RpcServer, principal: str = "") -> None:
        self._server = server
        self._principal = principal
        super().__init__(
            MGMT,
            {
                "rpc__mgmt_inq_if_ids": self.inq_if_ids,
                "rpc__mgmt_inq_stats": self.inq_stats,
                "rpc__mgmt_is_server_listening": self.is_server_listening,
                "rpc__mgmt_stop_server_listening": self.stop_server_listening,
                "rpc__mgmt_inq_princ_name": self.inq_princ_name,
            },
        )

    def invoke(self, call: ServerCall) -> bytes | PendingAnswer | Awaitable[bytes]:
        if call.opnum < len(_REQUEST_SIZES):
            call.stub = call.stub[: _REQUEST_SIZES[call.opnum]]
        return super().invoke(call)

    def inq_if_ids(self, call: ServerCall) -> dict[str, Value]:
        del call
        found = tuple(
            RpcIfId(one.syntax.uuid, one.syntax.major, one.syntax.minor)
            for one in self._server.interfaces
            if one is not self
        )
        return {"if_id_vector": RpcIfIdVector(len(found), found), "status": 0}

    def inq_stats(self, call: ServerCall, count: int) -> dict[str, Value]:
        del call
        told = self._server.statistics
        known = (told.calls_in, told.calls_out, told.packets_in, told.packets_out)[:count]
        return {"count": len(known), "statistics": known, "status": 0}

    def is_server_listening(self, call: ServerCall) -> dict[str, Value]:
        del call
        return {"status": 0, RETURNS: 1}

    def stop_server_listening(self, call: ServerCall) -> dict[str, Value]:
        """Refuse: a queue manager cannot be stopped in this way."""
        del call
        return {"status": _ACCESS_DENIED}

    def inq_princ_name(self, call: ServerCall, authn_proto: int, princ_name_size: int) -> dict[str, Value]:
        del call, authn_proto
        if princ_name_size <= len(self._principal):
            raise RpcFault(FaultStatus.BAD_STUB_DATA, f"a name of {len(self._principal)} in {princ_name_size}")
        return {"princ_name": self._principal, "status": 0}
