"""AwaitingFinalACKTable: messages that were delivered, and whose end is not known yet (MS-MQQB 3.1.1.3.1, 3.1.5.7).

The messages lie in a queue of the engine (`engine.delivery`); here a FinalAck finds its message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.transfer.outgoing_message_table import OutgoingMessageTable
    from lanner.transfer.packets import FinalAckBody


class AwaitingFinalAck:
    """`table_of` gives the OutgoingMessageTable of an outgoing queue, for a FinalAck that comes before the OrderAck."""

    def __init__(self, engine: Engine, table_of: Callable[[OutgoingQueue], OutgoingMessageTable]) -> None:
        self._engine = engine
        self._table_of = table_of

    def final_ack(self, body: FinalAckBody, message_class: int) -> bool:
        """3.1.5.7 Receiving a FinalAck Packet; False if no message waits for it. Needs the store's lock."""
        if body.source_guid != self._engine.queue_manager.identifier:
            return False
        if self._engine.final_acknowledgment(
            body.message_id, body.tx_sequence_id, body.tx_sequence_number, message_class
        ):
            return True
        queue = self._engine.outgoing_queue_of(body.tx_sequence_id)
        return queue is not None and self._table_of(queue).final_ack(body, message_class)
