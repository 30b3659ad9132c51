"""MSMQManagement: a queue in use, as an administrator sees it, be it one of this computer or one to another (MC-MQAC 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lanner.activex.outgoing_queue_management import OutgoingQueueManagement
from lanner.activex.queue_management import QueueManagement
from lanner.activex.tables import IMSMQ_OUTGOING_QUEUE_MANAGEMENT, IMSMQ_QUEUE_MANAGEMENT, MSMQ_MANAGEMENT

if TYPE_CHECKING:
    from lanner.com.members import InterfaceTable


class MSMQManagement(QueueManagement, OutgoingQueueManagement):
    """3.3 MSMQManagement. After Init it is one of the two others as well (3.3.1, 3.4.3, 3.5.3)."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_MANAGEMENT.interfaces

    def extra_interfaces(self) -> tuple[InterfaceTable, ...]:
        if not self.object_is_initialized:
            return ()
        return (IMSMQ_OUTGOING_QUEUE_MANAGEMENT if self.queue_is_outgoing else IMSMQ_QUEUE_MANAGEMENT,)

    def default_dispatch(self) -> InterfaceTable | None:
        """Scripts cannot ask for another interface: they find its members here.

        It repeats those of IMSMQManagement, DISPIDs and all.
        """
        return self.extra_interfaces()[0] if self.object_is_initialized else super().default_dispatch()
