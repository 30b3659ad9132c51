"""MSMQManagement: an active queue, local or outgoing, as an administrator sees it (MC-MQAC 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lanner.activex.outgoing_queue_management import OutgoingQueueManagement
from lanner.activex.queue_management import QueueManagement
from lanner.activex.tables import IMSMQ_OUTGOING_QUEUE_MANAGEMENT, IMSMQ_QUEUE_MANAGEMENT, MSMQ_MANAGEMENT

if TYPE_CHECKING:
    from lanner.com.members import InterfaceTable


class MSMQManagement(QueueManagement, OutgoingQueueManagement):
    """3.3 MSMQManagement. Init also gives it the interface of a local or an outgoing queue."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_MANAGEMENT.interfaces

    def extra_interfaces(self) -> tuple[InterfaceTable, ...]:
        if not self.object_is_initialized:
            return ()
        return (IMSMQ_OUTGOING_QUEUE_MANAGEMENT if self.queue_is_outgoing else IMSMQ_QUEUE_MANAGEMENT,)

    def default_dispatch(self) -> InterfaceTable | None:
        """Return the table of the interface that Init added (3.3.1, 3.4.3, 3.5.3).

        Scripts cannot query for another interface, so they must find its members here. It repeats
        those of IMSMQManagement, including their DISPIDs.
        """
        return self.extra_interfaces()[0] if self.object_is_initialized else super().default_dispatch()
