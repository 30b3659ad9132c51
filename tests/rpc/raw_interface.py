"""A server interface whose handlers accept and return stubs.

Its methods are not declared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from lanner.rpc.calls import MAX_REQUEST_SIZE, ServerCall
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.pdu import NDR20, SyntaxId
from lanner.rpc.server import ServedInterface

# A stub in, a stub out; or a coroutine of it, for a call that waits.
RawHandler = Callable[[ServerCall], bytes | Awaitable[bytes]]


class RawInterface(ServedInterface):
    """An interface whose handlers take and return stubs."""

    def __init__(
        self,
        syntax: SyntaxId,
        handlers: Mapping[int, RawHandler],
        *,
        name: str = "",
        transfer_syntaxes: tuple[SyntaxId, ...] = (NDR20,),
        max_request_size: int = MAX_REQUEST_SIZE,
    ) -> None:
        super().__init__(name or str(syntax), syntax, transfer_syntaxes, max_request_size)
        self._handlers = handlers

    def invoke(self, call: ServerCall) -> bytes | Awaitable[bytes]:
        handler = self._handlers.get(call.opnum)
        if handler is None:
            raise RpcFault(FaultStatus.NCA_OP_RNG_ERROR, f"{self.name} opnum {call.opnum}", did_not_execute=True)
        return handler(call)
