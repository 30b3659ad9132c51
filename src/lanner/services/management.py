"""qmmgmt: an administrator asks about the queue manager and its queues, and steers them (MS-MQMR 3.1).

What is wrong with the parameters is told to everybody; everything else, and whether a queue exists, to administrators only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import QueueManagerState
from lanner.model.errors import MQ_OK, GenericError, InvalidParameter, ServiceNotAvailable, StatusError
from lanner.rpc.interface import RETURNS
from lanner.rpc.server import ServerInterface
from lanner.services import outgoing_queues
from lanner.services.callers import refuse_in_hardened_mode, require_administrator
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO, MgmtObject, MgmtObjectType
from lanner.services.management_properties import (
    MACHINE_PROPERTIES,
    QUEUE_PROPERTIES,
    QueriedQueue,
    get_properties,
    known_identifiers,
)
from lanner.services.queue_formats import format_name_of
from lanner.wire.property_ids import ManagementMachineProperty, ManagementQueueProperty

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine import Engine
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Results
    from lanner.store.committer import Committer
    from lanner.transfer.transfer import Transfer
    from lanner.wire.format_name import FormatName
    from lanner.wire.propvariant import PropVariant

_LOG: Final = logging.getLogger(__name__)

_EOD_RESEND: Final = "EOD_RESEND"


class ManagementService(ServerInterface):
    """MS-MQMR for one queue manager. It lives on the event loop, and in the thread of `transfer` if there is one."""

    def __init__(self, engine: Engine, committer: Committer, transfer: Transfer | None = None) -> None:
        self._engine = engine
        self._committer = committer
        self._transfer = transfer
        # MS-MQMR 3.1.4.2.
        self._machine_actions: dict[str, Callable[[], None]] = {
            "CONNECT": engine.bring_online,
            "DISCONNECT": engine.take_offline,
            "TIDY": self._tidy,
        }
        self._queue_actions: dict[str, Callable[[OutgoingQueue], None]] = {
            "PAUSE": lambda queue: outgoing_queues.pause(engine, queue),
            "RESUME": lambda queue: outgoing_queues.resume(engine, queue),
            _EOD_RESEND: self._can_resend,
        }
        super().__init__(
            QMMGMT,
            {R_QM_MGMT_GET_INFO.name: self.get_info, R_QM_MGMT_ACTION.name: self.action},
            authorize=refuse_in_hardened_mode(engine),
        )

    # R_QMMgmtGetInfo (3.1.4.1) ----------------------------------------------------------------------------------

    def get_info(
        self,
        call: ServerCall,
        *,
        p_object_format: MgmtObject,
        cp: int,
        a_prop: tuple[int, ...],
        ap_var: tuple[PropVariant, ...],
    ) -> Results:
        """All that was asked for, or a status and apVar as it came."""
        del cp, ap_var  # the count of both, and what stood there before
        try:
            return {"ap_var": self._get_info(call, p_object_format, a_prop), RETURNS: MQ_OK}
        except StatusError as error:
            return _refused(call, error)
        except Exception:  # noqa: BLE001 (logged; MS-MQMR 3.1.4: "All methods MUST NOT throw exceptions")
            _LOG.exception("%r failed", call)
            return GenericError.status

    def _get_info(self, call: ServerCall, subject: MgmtObject, a_prop: tuple[int, ...]) -> tuple[PropVariant, ...]:
        match subject.type:
            case MgmtObjectType.MGMT_MACHINE:
                identifiers = known_identifiers(ManagementMachineProperty, a_prop)
                with self._engine.store.lock:
                    self._admit(call)
                    return get_properties(MACHINE_PROPERTIES, identifiers, self._engine)
            case MgmtObjectType.MGMT_QUEUE:
                identifiers = known_identifiers(ManagementQueueProperty, a_prop)
                name = _queue_name(subject)
                with self._engine.store.lock:
                    self._admit(call)
                    return get_properties(QUEUE_PROPERTIES, identifiers, self._query(name))
            case _:
                raise InvalidParameter("nothing is told of sessions")

    def _query(self, name: FormatName) -> QueriedQueue:
        """The queue of a name.

        MS-MQMR opens it with ReceiveAccess. It is only looked up here (DECISIONS): it would count as active while it is open, be
        made if it is a subqueue or a connector, and be out of reach while somebody else has it exclusively; nor can an outgoing
        queue be opened so.
        """
        queue = self._engine.require_queue(name)
        info = outgoing_queues.transfer_info(queue, self._transfer) if isinstance(queue, OutgoingQueue) else None
        return QueriedQueue(self._engine, queue, info)

    # R_QMMgmtAction (3.1.4.2) -----------------------------------------------------------------------------------

    async def action(self, call: ServerCall, *, p_object_format: MgmtObject, lpwsz_action: str) -> Results:
        """Answers when what was done is on disk."""
        try:
            ticket = self._act(call, p_object_format, lpwsz_action)
            await self._committer.durable(ticket)
        except StatusError as error:
            return _refused(call, error)
        except Exception:  # noqa: BLE001 (logged; MS-MQMR 3.1.4: "All methods MUST NOT throw exceptions")
            _LOG.exception("%r failed", call)
            return GenericError.status
        return MQ_OK

    def _act(self, call: ServerCall, subject: MgmtObject, action: str) -> int:
        """Do it; the ticket of the batch that keeps it."""
        # Only ASCII letters have two cases here: to Python the Turkish dotless i is another small I.
        word = action.upper() if action.isascii() else action
        machine_action = self._machine_actions.get(word)
        queue_action = self._queue_actions.get(word)
        engine = self._engine
        if subject.type == MgmtObjectType.MGMT_MACHINE and machine_action is not None:
            with engine.store.lock:
                self._admit(call)
                machine_action()
                return engine.store.ticket()
        if subject.type == MgmtObjectType.MGMT_QUEUE and queue_action is not None:
            name = _queue_name(subject)
            with engine.store.lock:
                self._admit(call)
                queue = engine.require_queue(name)
                if not isinstance(queue, OutgoingQueue):
                    raise InvalidParameter(f"{word} is for outgoing queues, {name} is here")
                queue_action(queue)
                ticket = engine.store.ticket()
            if word == _EOD_RESEND and self._transfer is not None:
                # What is sent is written without the lock.
                self._transfer.resend(queue)
            return ticket
        raise InvalidParameter(f"no action {action!r} for an object of type {subject.type}")

    def _tidy(self) -> None:
        """MS-MQMR 3.1.4.2 purges every queue at this, which would lose messages (DECISIONS: never).

        What is freed is room that no message needs: stages that nobody will publish.
        """
        self._engine.drop_abandoned_stages()

    def _can_resend(self, queue: OutgoingQueue) -> None:
        if self._transfer is None:
            raise ServiceNotAvailable(f"{queue.destination_format_name}: transfer is not enabled, nothing is sent")

    # Who, and whether at all ------------------------------------------------------------------------------------

    def _admit(self, call: ServerCall) -> None:
        require_administrator(self._engine, call.identity)
        state = self._engine.queue_manager.queue_manager_state
        if state is not QueueManagerState.READY:
            raise ServiceNotAvailable(f"queue manager {self._engine.queue_manager.computer_name} is {state.value}")


def _queue_name(subject: MgmtObject) -> FormatName:
    if not isinstance(subject.u, QueueFormat):
        raise InvalidParameter("a queue object without a queue format")
    return format_name_of(subject.u)


def _refused(call: ServerCall, error: StatusError) -> int:
    _LOG.info("%r: %s", call, error)
    return error.status
