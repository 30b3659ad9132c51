"""Routes requests of management objects to this queue manager or to another (MC-MQAC 3.3.6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lanner.activex.environment import CONNECT_TIMEOUT
from lanner.model.errors import AccessDenied, RemoteMachineNotAvailable, RemoteProtocolError
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.services.callers import require_administrator
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO
from lanner.services.management_client import action_arguments, check_status, get_info_arguments, get_info_values
from lanner.services.management_events import ManagementEvents

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.rpc.interface import Method
    from lanner.rpc.ndr import Value
    from lanner.security.identity import Identity
    from lanner.wire.format_name import FormatName
    from lanner.wire.propvariant import PropVariant


class ManagementBinding:
    """The document's hQmmgmtBind.

    Local requests use the caller's identity. Requests to other computers are anonymous, and the
    caller must be an administrator here. A connection to another computer lasts for one request;
    nothing is kept between two of them.
    """

    def __init__(self, environment: Environment, computer_name: str | None) -> None:
        self._environment = environment
        self._events = ManagementEvents(environment.engine, environment.committer, environment.transfer)
        with environment.lock:
            is_here = not computer_name or environment.engine.is_local_host(computer_name)
        self._elsewhere = None if is_here else computer_name

    @property
    def is_here(self) -> bool:
        return self._elsewhere is None

    async def get_info(
        self, identity: Identity, queue: FormatName | None, *numbers: int, only_active: bool = False
    ) -> tuple[PropVariant, ...]:
        """Return properties of a queue or of the machine (3.3.6.2 QMMgmt Get Info).

        Raise the StatusError of R_QMMgmtGetInfo if it fails. With `only_active`, a local queue that
        is not in use is an error (3.3.4.1.1); other computers do not report that.
        """
        if self._elsewhere is not None:
            return get_info_values(
                await self._call(identity, self._elsewhere, R_QM_MGMT_GET_INFO, get_info_arguments(queue, numbers))
            )
        if queue is None:
            return self._events.machine_properties(identity, numbers)
        return self._events.queue_properties(identity, queue, numbers, only_active=only_active)

    async def action(self, identity: Identity, queue: FormatName | None, action: str) -> None:
        """Perform an action on a queue or the machine (3.3.6.3 QMMgmt Action).

        It is complete and durable when this returns.
        """
        if self._elsewhere is not None:
            check_status(await self._call(identity, self._elsewhere, R_QM_MGMT_ACTION, action_arguments(queue, action)))
            return
        if queue is None:
            change = self._events.machine_action(identity, action)
        else:
            change = self._events.queue_action(identity, queue, action, only_active=True)
        await change

    async def _call(
        self, identity: Identity, computer: str, method: Method, arguments: dict[str, Value]
    ) -> dict[str, Value]:
        # Only administrators may make this computer connect to others.
        require_administrator(self._environment.engine, identity)
        client = await self._environment.connect(computer)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                bound = await client.bind(QMMGMT)
                return await bound.call(method, **arguments)
        except RpcFault as fault:
            if fault.status == FaultStatus.ACCESS_DENIED:
                raise AccessDenied(f"{computer}: {fault}") from fault
            raise RemoteMachineNotAvailable(f"{computer}: {fault}") from fault
        except (OSError, RpcConnectionError, RemoteProtocolError) as error:
            raise RemoteMachineNotAvailable(f"{computer}: {error}") from error
        finally:
            await client.close()
