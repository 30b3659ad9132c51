"""Messages of queue managers elsewhere as programs see them, and the lookups of MS-MQQP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanner.client.message import ReceivedMessage
from lanner.host.operations import check_lookup_id, seek_action
from lanner.model.enums import MessageSeekAction
from lanner.model.live import MAX_LOOKUP_ID, Record
from lanner.model.lookup_ids import lookup_id_of
from lanner.services.queue_client_buffers import packet_of
from lanner.services.remote_read import (
    MQ_LOOKUP_PEEK_CURRENT,
    MQ_LOOKUP_PEEK_NEXT,
    MQ_LOOKUP_PEEK_PREV,
    MQ_LOOKUP_RECEIVE_CURRENT,
    MQ_LOOKUP_RECEIVE_NEXT,
    MQ_LOOKUP_RECEIVE_PREV,
)

if TYPE_CHECKING:
    from lanner.services.interfaces.mqmp import CACTransferBufferV2
    from lanner.wire.message import Message

# MS-MQQP 3.1.4.11: the first message is the next of none, the last the previous of all ones.
_SEEKS: Final = {
    MessageSeekAction.CURRENT: (MQ_LOOKUP_PEEK_CURRENT, MQ_LOOKUP_RECEIVE_CURRENT, None),
    MessageSeekAction.NEXT: (MQ_LOOKUP_PEEK_NEXT, MQ_LOOKUP_RECEIVE_NEXT, None),
    MessageSeekAction.PREVIOUS: (MQ_LOOKUP_PEEK_PREV, MQ_LOOKUP_RECEIVE_PREV, None),
    MessageSeekAction.FIRST: (MQ_LOOKUP_PEEK_NEXT, MQ_LOOKUP_RECEIVE_NEXT, 0),
    MessageSeekAction.LAST: (MQ_LOOKUP_PEEK_PREV, MQ_LOOKUP_RECEIVE_PREV, MAX_LOOKUP_ID),
}


@dataclass(frozen=True, slots=True)
class RemoteMessage:
    """A message of MS-MQQP: its packet, and what the server says beside it."""

    message: Message
    arrived: int  # seconds since 1970 UTC
    # The low seven octets of its lookup identifier; 0 from servers that do not say it.
    sequential_id: int


def from_remote_read(remote: RemoteMessage) -> ReceivedMessage:
    """Return a message of MS-MQQP; its lookup id is made of SequentialId and priority (3.1.4.10)."""
    lookup_id = lookup_id_of(remote.message.priority, remote.sequential_id)
    return ReceivedMessage(lookup_id, Record(remote.message.packet, remote.arrived))


def from_buffer(filled: CACTransferBufferV2) -> ReceivedMessage:
    """Return a message of MS-MQMP. Its lookup id is 0, because the protocol has no place for it."""
    return ReceivedMessage(0, Record(packet_of(filled), filled.old.p_arrived_time or 0))


def lookup(lookup_id: int, where: str, *, is_peek: bool) -> tuple[int, int]:
    """Return the lookup id and the action of MS-MQQP for a place."""
    peeks, receives, fixed = _SEEKS[seek_action(where)]
    check_lookup_id(lookup_id)
    return lookup_id if fixed is None else fixed, peeks if is_peek else receives
