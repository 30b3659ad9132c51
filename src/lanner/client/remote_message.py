"""Messages of queue managers elsewhere, for programs, and the lookups of MS-MQRR and MS-MQQP."""

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

# MS-MQQP 3.1.4.11: the first message is the one after lookup id 0, the last is the one before the
# highest.
_SEEKS: Final = {
    MessageSeekAction.CURRENT: (MQ_LOOKUP_PEEK_CURRENT, MQ_LOOKUP_RECEIVE_CURRENT, None),
    MessageSeekAction.NEXT: (MQ_LOOKUP_PEEK_NEXT, MQ_LOOKUP_RECEIVE_NEXT, None),
    MessageSeekAction.PREVIOUS: (MQ_LOOKUP_PEEK_PREV, MQ_LOOKUP_RECEIVE_PREV, None),
    MessageSeekAction.FIRST: (MQ_LOOKUP_PEEK_NEXT, MQ_LOOKUP_RECEIVE_NEXT, 0),
    MessageSeekAction.LAST: (MQ_LOOKUP_PEEK_PREV, MQ_LOOKUP_RECEIVE_PREV, MAX_LOOKUP_ID),
}


@dataclass(frozen=True, slots=True)
class RemoteMessage:
    """A message of MS-MQRR or MS-MQQP: its packet, and the server's additional fields."""

    message: Message
    arrived: int  # Seconds since 1970 UTC.
    # The low seven octets of its lookup identifier; 0 from servers that do not report it.
    sequential_id: int
    # How many octets of the body arrived; None: all of them.
    body_came: int | None = None

    @property
    def body(self) -> bytes:
        """The part of the body that arrived."""
        return bytes(self.message.body[: self.body_came])

    @property
    def lookup_id(self) -> int:
        """The lookup identifier; transactional messages have priority 0 in it (MS-MQRR 3.2.4.5)."""
        priority = 0 if self.message.is_transactional else self.message.priority
        return lookup_id_of(priority, self.sequential_id)


def from_remote_read(remote: RemoteMessage) -> ReceivedMessage:
    """Return the message in the form that client programs get (`ReceivedMessage`).

    MS-MQRR reports how often the message was aborted and moved; MS-MQQP does not.
    """
    extensions = remote.message.extensions
    subqueue = None if extensions is None else extensions.subqueue
    record = Record(remote.message.packet, remote.arrived)
    if subqueue is not None:
        record.abort_count, record.move_count = subqueue.abort_counter, subqueue.move_counter
    return ReceivedMessage(remote.lookup_id, record)


def from_buffer(filled: CACTransferBufferV2) -> ReceivedMessage:
    """Return a message of MS-MQMP. Its lookup id is 0, because the protocol has no field for it."""
    return ReceivedMessage(0, Record(packet_of(filled), filled.old.p_arrived_time or 0))


def lookup(lookup_id: int, where: str, *, is_peek: bool) -> tuple[int, int]:
    """Return the lookup id and the MS-MQQP action for a position (`where`)."""
    peeks, receives, fixed = _SEEKS[seek_action(where)]
    check_lookup_id(lookup_id)
    return lookup_id if fixed is None else fixed, peeks if is_peek else receives
