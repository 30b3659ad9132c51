"""qmcomm and qmcomm2: remote programs use queues here and manage private ones (MS-MQMP 3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.model.errors import AccessDenied, WksCantServeClient
from lanner.rpc.faults import RpcFault
from lanner.rpc.server import ServerInterface
from lanner.services.callers import refuse_in_hardened_mode
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2, R_QM_GET_RTQM_SERVER_PORT
from lanner.services.queue_client_answers import answering
from lanner.services.queue_client_handles import QueueHandles
from lanner.services.queue_client_messages import ClientMessages
from lanner.services.queue_client_objects import QueueObjects
from lanner.services.queue_client_remote import RemoteOpens
from lanner.services.queue_client_transactions import TransactionHandles

if TYPE_CHECKING:
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.ndr import Value
    from lanner.rpc.server import Handler
    from lanner.services.ports import ServerPorts
    from lanner.services.queue_client_answers import Answers
    from lanner.services.remote_queues import RemoteQueues

# 3.1.4: the methods that remote read needs. A queue manager serves them even if it is not a
# supporting server.
_FOR_EVERYBODY: Final = frozenset(
    ("R_QMOpenRemoteQueue", "R_QMCloseRemoteQueueContext", "R_QMCreateRemoteCursor", "R_QMGetRTQMServerPort")
)


class QueueClient:
    """The two interfaces of a queue manager; register `interfaces` with a server."""

    def __init__(
        self,
        queues: RemoteQueues,
        ports: ServerPorts,
        *,
        is_supporting_server: bool = True,
    ) -> None:
        """Create the interfaces.

        `is_supporting_server` is MS-MQDMPR 3.1.1.1 SupportingServer. If false, only remote read is
        served (3.1.4).
        """
        engine, committer = queues.engine, queues.committer
        self._committer = committer
        self.handles = QueueHandles(engine, committer)
        self.transactions = TransactionHandles(engine, committer)
        self._ports = ports
        messages = ClientMessages(engine, committer, self.handles, self.transactions)
        handlers: dict[str, Handler] = {
            **RemoteOpens(queues).handlers,
            **QueueObjects(engine, committer).handlers,
            **self.handles.handlers,
            **self.transactions.handlers,
            "R_QMGetRTQMServerPort": self.get_server_port,
        }
        handlers2: dict[str, Handler] = {**self.handles.handlers2, **messages.handlers2}
        authorize = refuse_in_hardened_mode(engine)
        served = []
        for interface, known in ((QMCOMM, handlers), (QMCOMM2, handlers2)):
            answers = {
                name: answering(handler if is_supporting_server or name in _FOR_EVERYBODY else _refuse(name))
                for name, handler in known.items()
            }
            # 5.1: clients call it before they authenticate.
            ports_query = known.keys() & {R_QM_GET_RTQM_SERVER_PORT.name}
            served.append(
                ServerInterface(
                    interface, answers, authorize=authorize, open_to_all=ports_query, denied=AccessDenied.status
                )
            )
        self.interfaces: tuple[ServerInterface, ...] = tuple(served)

    def get_server_port(self, call: ServerCall, f_ip: int) -> int:
        """3.1.4.24 R_QMGetRTQMServerPort: open to every caller."""
        del call
        return self._ports.of(f_ip)


def _refuse(name: str) -> Handler:
    def refuse(call: ServerCall, **arguments: Value) -> Answers:
        del call, arguments
        if name == "R_QMGetRemoteQueueName":
            # This method reports failures as exceptions (3.1.4.1).
            raise RpcFault(WksCantServeClient.status, name, did_not_execute=True)
        raise WksCantServeClient(f"{name}: this queue manager is no supporting server")

    return refuse
