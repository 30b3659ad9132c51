"""FinalAck packets, as another queue manager sends them (MS-MQQB 2.2.5).

Lanner's own go through outgoing queues.
"""

from __future__ import annotations

from uuid import UUID

from lanner.transfer.packets import LOWEST_FINAL_ACK_CLASS, FinalAckBody, acknowledgment_properties
from lanner.wire.builder import build
from lanner.wire.format_name import FormatName


def build_final_ack(
    body: FinalAckBody, message_class: int, *, source: UUID, ordinal: int, sent_time: int, destination: FormatName
) -> bytes:
    """Build a FinalAck packet (2.2.5), which is recoverable.

    Class 0x4000 reports a message received, a higher class one rejected.
    """
    if message_class < LOWEST_FINAL_ACK_CLASS:
        raise ValueError(f"{message_class:#06x} is no class of a FinalAck, they begin at {LOWEST_FINAL_ACK_CLASS:#06x}")
    return build(
        acknowledgment_properties(message_class, body),
        source=source,
        ordinal=ordinal,
        sent_time=sent_time,
        destination=destination,
    )
