"""Rows of the log of events for messages in one queue at one time (`store.event_log.EVENT`).

The loop runs once for each message. `lanner.native` chooses between it and the same function in C.
"""

from __future__ import annotations

from typing import Final

from lanner.native import chosen
from lanner.store.event_log import EVENT
from lanner.wire import layout as at
from lanner.wire.envelope import event_fields
from lanner.wire.fields import source_queue_manager

__all__ = ["ACKNOWLEDGE_SHIFT", "ENCRYPTED", "RECOVERABLE", "SIGNED", "TRANSACTIONAL", "event_rows"]

# The flags of EVENT. The bits above them are the acknowledgments that the message requests.
RECOVERABLE: Final = 0x01
TRANSACTIONAL: Final = 0x02
SIGNED: Final = 0x04
ENCRYPTED: Final = 0x08
ACKNOWLEDGE_SHIFT: Final = 4

_MOST_ABORTS: Final = 0xFFFF
_DM_SHIFT, _TH = at.DM_SHIFT, at.TH
_pack = EVENT.pack


def _event_rows(
    kind: int,
    now: int,
    queue: int,
    reason: int,
    other: int,
    lookup_ids: list[int],
    packets: list[bytes],
    visibilities: list[int],
    aborts: list[int],
    senders: dict[bytes, tuple[int, int]] | None,
) -> list[bytes | None]:
    """Return the row of each message; `now` is in milliseconds.

    With `senders`, rows contain the sender: `other` and further flags are looked up by the
    SecurityHeader, up to its sender identifier. A message whose header is not in `senders` has None
    for its row.
    """
    rows: list[bytes | None] = []
    for lookup_id, packet, visibility, aborted in zip(lookup_ids, packets, visibilities, aborts, strict=True):
        sent_time, ordinal, flags, acknowledge, message_class, correlation, privacy, security, header = event_fields(
            packet
        )
        bits = flags >> _DM_SHIFT & 1 | (acknowledge & 15) << ACKNOWLEDGE_SHIFT
        if flags & _TH:
            bits |= TRANSACTIONAL
        if privacy:
            bits |= ENCRYPTED
        sender = other
        if security and senders is not None:
            found = senders.get(header)
            if found is None:
                rows.append(None)
                continue
            sender = found[0]
            bits |= found[1]
        rows.append(
            _pack(
                now,
                lookup_id,
                visibility,
                queue,
                sender,
                len(packet),
                sent_time,
                message_class,
                reason,
                kind,
                bits,
                min(_MOST_ABORTS, aborted),
                source_queue_manager(packet),
                ordinal,
                correlation,
            )
        )
    return rows


event_rows = chosen(_event_rows)
