"""The RPC server of qmmgmt, which queries and controls the queue manager (MS-MQMR 3.1).

This module maps the RPC calls. `management_events` implements them and checks the caller's rights.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lanner.model.errors import MQ_OK, AccessDenied, GenericError, InvalidParameter, StatusError
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.server import ServerInterface
from lanner.security.log_lines import log_of_peer
from lanner.services.callers import refuse_in_hardened_mode
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO, MgmtObject, MgmtObjectType
from lanner.services.management_events import ManagementEvents
from lanner.services.queue_formats import format_name_of

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.change import Change
    from lanner.host.committer import Committer
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Results
    from lanner.transfer.transfer import Transfer
    from lanner.wire.format_name import FormatName
    from lanner.wire.propvariant import PropVariant

_LOG: Final = logging.getLogger(__name__)


class ManagementService(ServerInterface):
    """The MS-MQMR interface of one queue manager.

    It runs in the event loop's thread, which is also the thread of `transfer` if there is one.
    """

    def __init__(self, engine: Engine, committer: Committer, transfer: Transfer | None = None) -> None:
        self._events = ManagementEvents(engine, committer, transfer)
        super().__init__(
            QMMGMT,
            {R_QM_MGMT_GET_INFO.name: self.get_info, R_QM_MGMT_ACTION.name: self.action},
            authorize=refuse_in_hardened_mode(engine),
            # Answers reveal queues, computers and users, and actions can stop the service.
            least_level=AuthLevel.PKT_PRIVACY,
            denied=AccessDenied.status,
        )

    # R_QMMgmtGetInfo (3.1.4.1)
    # ----------------------------------------------------------------------------------

    def get_info(
        self,
        call: ServerCall,
        *,
        p_object_format: MgmtObject,
        cp: int,
        a_prop: tuple[int, ...],
        ap_var: tuple[PropVariant, ...],
    ) -> Results:
        """Return all requested values, or a status and apVar unchanged."""
        del cp, ap_var  # the number of properties, and the values passed in
        try:
            return {"ap_var": self._get_info(call, p_object_format, a_prop), RETURNS: MQ_OK}
        except StatusError as error:
            return _refused(call, error)
        except Exception:  # noqa: BLE001 (logged; MS-MQMR 3.1.4: "All methods MUST NOT throw exceptions")
            log_of_peer(_LOG, logging.ERROR, "failed", call.peer, "%r failed", call, exc_info=True)
            return GenericError.status

    def _get_info(self, call: ServerCall, subject: MgmtObject, a_prop: tuple[int, ...]) -> tuple[PropVariant, ...]:
        match subject.type:
            case MgmtObjectType.MGMT_MACHINE:
                return self._events.machine_properties(call.identity, a_prop)
            case MgmtObjectType.MGMT_QUEUE:
                return self._events.queue_properties(call.identity, _queue_name(subject), a_prop)
            case _:
                raise InvalidParameter("no information about sessions is available")

    # R_QMMgmtAction (3.1.4.2)
    # -----------------------------------------------------------------------------------

    async def action(self, call: ServerCall, *, p_object_format: MgmtObject, lpwsz_action: str) -> Results:
        """Perform an action; answer when it is durable."""
        try:
            await self._act(call, p_object_format, lpwsz_action)
        except StatusError as error:
            return _refused(call, error)
        except Exception:  # noqa: BLE001 (logged; MS-MQMR 3.1.4: "All methods MUST NOT throw exceptions")
            log_of_peer(_LOG, logging.ERROR, "failed", call.peer, "%r failed", call, exc_info=True)
            return GenericError.status
        return MQ_OK

    def _act(self, call: ServerCall, subject: MgmtObject, action: str) -> Change:
        """Perform an action; the caller awaits the returned change."""
        match subject.type:
            case MgmtObjectType.MGMT_MACHINE:
                return self._events.machine_action(call.identity, action)
            case MgmtObjectType.MGMT_QUEUE:
                return self._events.queue_action(call.identity, _queue_name(subject), action)
            case _:
                raise InvalidParameter(f"no action {action!r} for an object of type {subject.type}")


def _queue_name(subject: MgmtObject) -> FormatName:
    if not isinstance(subject.u, QueueFormat):
        raise InvalidParameter("a queue object without a queue format")
    return format_name_of(subject.u)


def _refused(call: ServerCall, error: StatusError) -> int:
    log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
    return error.status
