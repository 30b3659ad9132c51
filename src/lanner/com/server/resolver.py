"""The object resolver: OXID resolution, ServerAlive and pings (MS-DCOM 3.1.2.5.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lanner.com.constants import OR_INVALID_OXID, OR_OK
from lanner.com.interfaces import (
    COMPLEX_PING,
    IOBJECTEXPORTER,
    RESOLVE_OXID,
    RESOLVE_OXID2,
    SERVER_ALIVE,
    SERVER_ALIVE2,
    SIMPLE_PING,
)
from lanner.com.orpc import OUR_VERSION
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.server import ServerInterface

if TYPE_CHECKING:
    from lanner.com.server.exporter import ObjectExporter
    from lanner.com.server.ping_sets import PingSets
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Results

_OPEN_TO_ALL: Final = (SERVER_ALIVE.opnum, SERVER_ALIVE2.opnum)


class ObjectResolver(ServerInterface):
    """IObjectExporter.

    ServerAlive is open to everyone; all other calls require COM's authentication level (MS-DCOM
    3.2.4.1.2.2, 3.2.6.1).
    """

    def __init__(self, exporter: ObjectExporter, pings: PingSets, clock: Callable[[], float]) -> None:
        self._exporter = exporter
        self._pings = pings
        self._clock = clock
        super().__init__(
            IOBJECTEXPORTER,
            {
                RESOLVE_OXID.name: self.resolve_oxid,
                SIMPLE_PING.name: self.simple_ping,
                COMPLEX_PING.name: self.complex_ping,
                SERVER_ALIVE.name: self.server_alive,
                RESOLVE_OXID2.name: self.resolve_oxid2,
                SERVER_ALIVE2.name: self.server_alive2,
            },
            authorize=self._admit,
            open_to_all=IOBJECTEXPORTER.by_name,
        )

    def _admit(self, call: ServerCall) -> None:
        if call.opnum not in _OPEN_TO_ALL and not self._exporter.may_call(call):
            raise RpcFault(FaultStatus.ACCESS_DENIED, f"{call!r} of {call.identity.name}", did_not_execute=True)

    def resolve_oxid(
        self, call: ServerCall, *, p_oxid: int, c_requested_protseqs: int, ar_requested_protseqs: tuple[int, ...]
    ) -> Results:
        """Serve ResolveOxid (MS-DCOM 3.1.2.5.1.1).

        A client that asks for other protocols also gets TCP, the only one available.
        """
        del c_requested_protseqs, ar_requested_protseqs
        exporter = self._exporter
        if p_oxid != exporter.oxid:
            return OR_INVALID_OXID
        return {
            "ppdsa_oxid_bindings": exporter.addresses.exporter(call.connection.local_address),
            "pipid_rem_unknown": exporter.ipid_rem_unknown,
            "p_authn_hint": exporter.minimum_level,
            RETURNS: OR_OK,
        }

    def resolve_oxid2(
        self, call: ServerCall, *, p_oxid: int, c_requested_protseqs: int, ar_requested_protseqs: tuple[int, ...]
    ) -> Results:
        """Serve ResolveOxid2 (MS-DCOM 3.1.2.5.1.5)."""
        results = self.resolve_oxid(
            call,
            p_oxid=p_oxid,
            c_requested_protseqs=c_requested_protseqs,
            ar_requested_protseqs=ar_requested_protseqs,
        )
        return results if isinstance(results, int) else {**results, "p_com_version": OUR_VERSION}

    def simple_ping(self, call: ServerCall, *, p_set_id: int) -> Results:
        """Serve SimplePing (MS-DCOM 3.1.2.5.1.2)."""
        del call
        return self._pings.simple_ping(p_set_id, self._clock())

    def complex_ping(
        self,
        call: ServerCall,
        *,
        p_set_id: int,
        sequence_num: int,
        c_add_to_set: int,
        c_del_from_set: int,
        add_to_set: tuple[int, ...] | None,
        del_from_set: tuple[int, ...] | None,
    ) -> Results:
        """Serve ComplexPing (MS-DCOM 3.1.2.5.1.3)."""
        del c_add_to_set, c_del_from_set
        status, set_id = self._pings.complex_ping(
            p_set_id, sequence_num, add_to_set or (), del_from_set or (), call.peer, self._clock()
        )
        return {"p_set_id": set_id, "p_ping_backoff_factor": 0, RETURNS: status}

    def server_alive(self, call: ServerCall) -> Results:
        """Serve ServerAlive (MS-DCOM 3.1.2.5.1.4)."""
        del call
        return OR_OK

    def server_alive2(self, call: ServerCall) -> Results:
        """Serve ServerAlive2 (MS-DCOM 3.1.2.5.1.6)."""
        return {
            "p_com_version": OUR_VERSION,
            "ppdsa_or_bindings": self._exporter.addresses.resolver(call.connection.local_address),
            "p_reserved": 0,
            RETURNS: OR_OK,
        }
