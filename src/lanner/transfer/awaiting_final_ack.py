"""AwaitingFinalACKTable: delivered messages whose outcome is unknown (MS-MQQB 3.1.1.3.1, 3.1.5.7).

The messages are in a queue of the engine (`engine.delivery`). This module finds the message of a
FinalAck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.transfer.outgoing_message_table import OutgoingMessageTable
    from lanner.transfer.packets import FinalAckBody


class AwaitingFinalAck:
    """Finder of the message to which a FinalAck belongs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def final_ack(self, body: FinalAckBody, message_class: int, table: OutgoingMessageTable | None) -> bool:
        """Handle a FinalAck packet (3.1.5.7); return False if no message waits for it.

        Needs the store's lock. `table` is the table of the sequence's outgoing queue, for a
        FinalAck that arrives before the OrderAck.
        """
        if body.source_guid != self._engine.queue_manager.identifier:
            return False
        if self._engine.final_acknowledgment(
            body.message_id, body.tx_sequence_id, body.tx_sequence_number, message_class
        ):
            return True
        return table is not None and table.final_ack(body, message_class)
