"""MSMQEvent: notifies clients of arriving messages by calling their sinks (MC-MQAC 3.16).

Each sink is called independently, one event after the other. A sink that is slow, fails or has
disappeared delays neither the other sinks nor the queue. A sink that is unreachable or does not
respond is released.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, runtime_checkable

from lanner.activex.longs import to_long
from lanner.activex.tables import DMSMQ_EVENT_EVENTS, MSMQ_EVENT
from lanner.com.automation.connection_points import Connectable
from lanner.com.automation.values import Variant
from lanner.com.constants import E_NOTIMPL
from lanner.com.objects import ComError, ComObject, Remote
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanner.activex.environment import Environment
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall

_LOG = logging.getLogger(__name__)

# DECISIONS: sinks are called by DISPID.
DISPID_ARRIVED: Final = 0
DISPID_ARRIVED_ERROR: Final = 1
# Not in the specification: the time after which a sink is considered dead. It is long because
# programs process the message before they return. A computer that no longer runs is detected
# sooner.
SINK_TIMEOUT: Final = 600.0  # seconds
# Not in the specification: the maximum backlog of events per sink. Later events are dropped.
MAX_PENDING: Final = 64
# MS-ERREF 2.1: a code of the facility RPC or WIN32 means that the sink cannot be reached, except
# the codes below. These codes, and all codes of other facilities, are the sink's own failures.
_RPC_FACILITY: Final = 0x8001
_WIN32_FACILITY: Final = 0x8007
_OWN_FAILURES: Final = frozenset(
    (
        0x8001_0001,  # RPC_E_CALL_REJECTED
        0x8001_0105,  # RPC_E_SERVERFAULT
        0x8001_010A,  # RPC_E_SERVERCALL_RETRYLATER
        0x8007_000E,  # E_OUTOFMEMORY
        0x8007_0057,  # E_INVALIDARG
        0x8007_06BB,  # RPC_S_SERVER_TOO_BUSY
        0x8007_06F7,  # RPC_X_BAD_STUB_DATA
    )
)


@runtime_checkable
class EventSink(Protocol):
    """The calls on a sink, which `com.client.remote_interface.RemoteInterface` implements."""

    async def invoke_dispatch(
        self,
        dispid: int,
        arguments: Sequence[Variant],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the client's own word)
    ) -> Variant: ...


class MSMQEvent(Connectable):
    """3.16 MSMQEvent."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_EVENT.interfaces
    outgoing: ClassVar[InterfaceTable] = DMSMQ_EVENT_EVENTS

    def __init__(self, environment: Environment) -> None:
        del environment  # every coclass takes it
        super().__init__()
        # Keyed by the cookie of the sink.
        self._deliveries: dict[int, _Delivery] = {}

    def disconnect(self, cookie: int) -> bool:
        """Release a sink. It receives no further events."""
        delivery = self._deliveries.pop(cookie, None)
        if delivery is not None:
            delivery.stop()
        return super().disconnect(cookie)

    def fire(self, queue: ComObject | Remote | None, cursor: int, error: int | None = None) -> None:
        """Call Arrived, or ArrivedError if there is an error, on every connected sink.

        The calls happen later, on the event loop.
        """
        source, at = Variant(VT.DISPATCH, queue), Variant(VT.I4, to_long(cursor))
        dispid, arguments = DISPID_ARRIVED, [source, at]
        if error is not None:
            dispid, arguments = DISPID_ARRIVED_ERROR, [source, Variant(VT.I4, to_long(error)), at]
        for cookie, sink in self.connections.items():
            delivery = self._deliveries.get(cookie)
            if delivery is None:
                if not isinstance(sink, EventSink):
                    _LOG.warning("an event sink of type %s cannot be called", type(sink).__name__)
                    continue
                delivery = self._deliveries[cookie] = _Delivery(sink, self._dead, cookie)
            delivery.tell(dispid, arguments)

    def _dead(self, cookie: int) -> None:
        self.disconnect(cookie)

    def get_properties(self, call: ComCall) -> None:
        """Raise E_NOTIMPL: Windows does not implement this either (3.16.4.1.1)."""
        del call
        raise ComError(E_NOTIMPL, "Properties")

    # IMSMQPrivateEvent
    # --------------------------------------------------------------------------------------------

    def get_hwnd(self, call: ComCall) -> int:
        """Return 0: there is no window (3.16.4.3.1)."""
        del call
        return 0

    def fire_arrived_event(self, call: ComCall, pq: ComObject | Remote | None, msgcursor: int) -> None:
        """Fire Arrived (3.16.4.3.2)."""
        del call
        self.fire(pq, msgcursor)

    def fire_arrived_error_event(
        self, call: ComCall, pq: ComObject | Remote | None, hr_status: int, msgcursor: int
    ) -> None:
        """Fire ArrivedError (3.16.4.3.3)."""
        del call
        self.fire(pq, msgcursor, hr_status)


class _Delivery:
    """The undelivered events of one sink, and the task that delivers them."""

    def __init__(self, sink: EventSink, dead: Callable[[int], None], cookie: int) -> None:
        self._sink = sink
        self._dead = dead
        self._cookie = cookie
        self._pending: deque[tuple[int, Sequence[Variant]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def tell(self, dispid: int, arguments: Sequence[Variant]) -> None:
        if len(self._pending) >= MAX_PENDING:
            _LOG.warning("%r has %d undelivered events; another event is dropped", self._sink, MAX_PENDING)
            return
        self._pending.append((dispid, arguments))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._pending.clear()
        # A task that found its sink dead ends by itself.
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._pending:
                if not await self._is_told(*self._pending[0]):
                    self._dead(self._cookie)
                    return
                if self._pending:
                    self._pending.popleft()
        finally:
            self._task = None

    async def _is_told(self, dispid: int, arguments: Sequence[Variant]) -> bool:
        """Call the sink. Return False if it cannot be reached."""
        try:
            async with asyncio.timeout(SINK_TIMEOUT):
                await self._sink.invoke_dispatch(dispid, arguments, timeout=SINK_TIMEOUT)
        except ComError as error:
            _LOG.info("event sink %r: %s", self._sink, error)
            return _is_own_failure(error.hresult)
        except TimeoutError:
            _LOG.warning("event sink %r does not answer", self._sink)
            return False
        except Exception:  # noqa: BLE001 (logged; whatever it is must not reach the other sinks)
            _LOG.exception("event sink %r cannot be called", self._sink)
            return False
        return True


def _is_own_failure(hresult: int) -> bool:
    """Return whether the sink was reached and returned an error of its own."""
    return hresult in _OWN_FAILURES or hresult >> 16 not in (_RPC_FACILITY, _WIN32_FACILITY)
