"""The object model of Message Queuing for remote clients: one module per coclass (MC-MQAC 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.activex import tables
from lanner.activex.application import MSMQApplication
from lanner.activex.collection import MSMQCollection
from lanner.activex.destination import MSMQDestination
from lanner.activex.event import MSMQEvent
from lanner.activex.management import MSMQManagement
from lanner.activex.message import MSMQMessage
from lanner.activex.outgoing_queue_management import MSMQOutgoingQueueManagement
from lanner.activex.query import MSMQQuery
from lanner.activex.queue import MSMQQueue
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.activex.queue_infos import MSMQQueueInfos
from lanner.activex.queue_management import MSMQQueueManagement
from lanner.activex.transaction import MSMQTransaction
from lanner.activex.transaction_dispensers import MSMQCoordinatedTransactionDispenser, MSMQTransactionDispenser

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.com.objects import ComObject

# The constructors of coclasses, keyed by CLSID.
COCLASSES: Final[dict[UUID, Callable[[Environment], ComObject]]] = {
    tables.MSMQ_APPLICATION.clsid: MSMQApplication,
    tables.MSMQ_COLLECTION.clsid: MSMQCollection,
    tables.MSMQ_COORDINATED_TRANSACTION_DISPENSER.clsid: MSMQCoordinatedTransactionDispenser,
    tables.MSMQ_DESTINATION.clsid: MSMQDestination,
    tables.MSMQ_EVENT.clsid: MSMQEvent,
    tables.MSMQ_MANAGEMENT.clsid: MSMQManagement,
    tables.MSMQ_MESSAGE.clsid: MSMQMessage,
    tables.MSMQ_OUTGOING_QUEUE_MANAGEMENT.clsid: MSMQOutgoingQueueManagement,
    tables.MSMQ_QUERY.clsid: MSMQQuery,
    tables.MSMQ_QUEUE.clsid: MSMQQueue,
    tables.MSMQ_QUEUE_INFO.clsid: MSMQQueueInfo,
    tables.MSMQ_QUEUE_INFOS.clsid: MSMQQueueInfos,
    tables.MSMQ_QUEUE_MANAGEMENT.clsid: MSMQQueueManagement,
    tables.MSMQ_TRANSACTION.clsid: MSMQTransaction,
    tables.MSMQ_TRANSACTION_DISPENSER.clsid: MSMQTransactionDispenser,
}
