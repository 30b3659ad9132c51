"""Objects that exist only while they are in use.

MS-MQDMPR 3.1.1.4, 3.1.1.5, 3.1.1.10 to 3.1.1.14, 3.1.1.16, 3.1.1.18 and 3.2.1. A queue of ten
million messages does not have an object per message. A `MessagePosition` is created when something
holds a place in the list (a lock, a cursor, a waiting read), and is forgotten when the last holder
releases it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lanner.model import directory_objects
from lanner.model.branches import Branch
from lanner.model.enums import (
    CursorState,
    MessageClass,
    OperationType,
    PositionState,
    QueueAccessType,
    QueueShareMode,
    RemoteReadState,
)
from lanner.model.errors import StatusError

MAX_LOOKUP_ID = 0xFFFF_FFFF_FFFF_FFFF
# Cursor positions without a message (MS-MQDMPR 3.1.1.2): before and after all lookup ids.
START = -1
END = MAX_LOOKUP_ID + 1

# Record.flags: a peek may see the message while it is locked (MS-MQDMPR 3.1.1.12
# AllowPeekWhenLocked).
ALLOW_PEEK_WHEN_LOCKED = 0x0001
# Record.flags: a copy in a dead-letter queue or journal. It does not expire, and the
# acknowledgments and copies that the message requested were generated when it was made. The flag is
# necessary because an application's dead-letter queue is an ordinary queue.
DEAD_LETTER = 0x0002


@dataclass(slots=True, eq=False)
class Record:
    """A message as the store keeps it: the immutable packet, and its state."""

    packet: bytes = field(repr=False)
    arrived: int = 0  # ArrivalTime, seconds since 1970 UTC
    visibility: int = 0  # place in the visibility sequence; 0 if not visible
    state: PositionState = PositionState.AVAILABLE  # AVAILABLE, or LOCKED by a prepared transaction
    abort_count: int = 0
    move_count: int = 0
    flags: int = 0
    # The location of a published message's packet, for the store's own use.
    reference: bytes = b""


# The record of an operation that was undone.
_NOTHING: Final = Record(b"")


@dataclass(slots=True, eq=False)
class MessagePosition:
    """MS-MQDMPR 3.1.1.11. The order of lookup ids replaces Next and Previous."""

    queue: directory_objects.Queue
    lookup_id: int
    record: Record
    state: PositionState = PositionState.AVAILABLE
    # Not in the specification: the transaction whose operation list contains this position, if any.
    transaction: Transaction | None = None
    # Not in the specification: sent in an open transaction, so not in the store yet.
    is_uncommitted_send: bool = False
    # Not in the specification: the SID of the user against whose memory limit a locked message
    # counts; empty if there is none.
    holder: bytes = b""


@dataclass(slots=True, eq=False)
class TransactionalOperation:
    """MS-MQDMPR 3.1.1.13."""

    operation_type: OperationType
    message_position: MessagePosition
    target_queue: directory_objects.Queue | None = None
    dequeue_reason: MessageClass | None = None


@dataclass(slots=True, eq=False)
class Transaction:
    """MS-MQDMPR 3.1.1.14. A new transaction counts as single-phase, so a crash aborts it."""

    identifier: uuid.UUID
    transactional_operations: list[TransactionalOperation] = field(default_factory=list)
    single_phase: bool = True
    # Not in the specification: its operations are durable, because Transaction Prepare was raised
    # with iSinglePhase False.
    is_prepared: bool = False
    # Not in the specification: the 20-bit number in the packets of this transaction (MS-MQMQ
    # 2.2.20.5).
    index: int = 0
    # Not in the specification: committed or aborted.
    is_over: bool = False
    # Not in the specification: its branch of a distributed transaction, and the SID of the user who
    # prepared it.
    branch: Branch | None = None
    owner: str = ""
    # Not in the specification: reads in this transaction that wait for a message. They end with it.
    waiting_reads: dict[WaitingMessageReadOperation, None] = field(default_factory=dict)
    # Not in the specification: a transaction without an identifier means no transaction
    # (DMPR-3.1.7.1.10-9).
    is_null: bool = field(init=False)
    # Not in the specification: the first operations, as many as `undo` has looked at, by their
    # positions; and how many of all operations were undone.
    _by_position: dict[MessagePosition, TransactionalOperation] = field(default_factory=dict)
    _seen: int = 0
    _undone: int = 0

    def __post_init__(self) -> None:
        self.is_null = not self.identifier.int

    def undo(self, position: MessagePosition) -> bool:
        """Remove the operation on a position; return whether there was one.

        The time that it takes does not grow with the number of operations. The operation stays in
        its place, with a deleted position, until half of the list is undone.
        """
        operations = self.transactional_operations
        for operation in operations[self._seen :]:
            self._by_position[operation.message_position] = operation
        self._seen = len(operations)
        found = self._by_position.pop(position, None)
        if found is None or self.is_over:
            return False
        found.message_position = MessagePosition(position.queue, position.lookup_id, _NOTHING, PositionState.DELETED)
        self._undone += 1
        if 2 * self._undone >= len(operations):
            self.forget_undone()
        return True

    def forget_undone(self) -> None:
        """Drop the operations that were undone."""
        if self._undone:
            operations = self.transactional_operations
            operations[:] = [one for one in operations if one.message_position.record is not _NOTHING]
            self._by_position.clear()
            self._seen = self._undone = 0


@dataclass(slots=True, eq=False)
class WaitingMessageReadOperation:
    """MS-MQDMPR 3.1.1.10.

    Exactly one of the events `satisfied` and `stopped` ends the wait, once.
    """

    descriptor: OpenQueueDescriptor
    destructive_read: bool
    satisfied: Callable[[MessagePosition], None]
    stopped: Callable[[StatusError], None]
    tag: object | None = None
    cursor: Cursor | None = None
    transaction: Transaction | None = None
    deadline: float | None = None  # seconds on the engine's monotonic clock; None means never
    # Not in the specification: the order in which the waits of this queue manager began.
    number: int = 0
    is_waiting: bool = True


@dataclass(slots=True, eq=False)
class Cursor:
    """MS-MQDMPR 3.2.1.2. `position` is a lookup id, START or END."""

    handle: int
    descriptor: OpenQueueDescriptor
    position: int = START
    # Not in the specification: the tail when the cursor was parked at END, from where it continues
    # (DMPR-3.2.7.6-2).
    parked_after: int = START
    state: CursorState = CursorState.UNREAD
    is_closed: bool = False


@dataclass(slots=True, eq=False)
class OpenQueueDescriptor:
    """MS-MQDMPR 3.1.1.16."""

    handle: int
    context_value: int
    access_type: QueueAccessType
    share_mode: QueueShareMode
    format_name: str
    queue: directory_objects.Queue | None = None
    multiple: bool = False
    children: list[OpenQueueDescriptor] = field(default_factory=list)
    remote_read_state: RemoteReadState = RemoteReadState.NONE
    cursors: list[Cursor] = field(default_factory=list)
    # Not in the specification: positions locked by unfinished two-phase reads through this
    # descriptor, keyed by lookup id.
    unfinished_reads: dict[int, MessagePosition] = field(default_factory=dict)
    # Not in the specification: the SID of the user who opened it, which is the default
    # SenderIdentifier of messages sent through it.
    sender_identifier: bytes = b""
    is_closed: bool = False
    # Its part of the queue's waiting reads.
    waits: dict[WaitingMessageReadOperation, None] = field(default_factory=dict)

    @property
    def waiting_reads(self) -> list[WaitingMessageReadOperation]:
        """The document's WaitingMessageReadOperationCollection."""
        return list(self.waits)


@dataclass(slots=True, eq=False)
class DispatchEntry:
    """MS-MQDMPR 3.1.1.18."""

    message_position: MessagePosition
    protocol_data: object
    priority: int
    send_in_progress: bool = False


@dataclass(slots=True, eq=False)
class OutgoingTransferInfo:
    """MS-MQDMPR 3.1.1.4. Sequence triples are (SeqID, SeqNo, PrevNo) of MS-MQMQ 2.2.5."""

    outgoing_queue: directory_objects.OutgoingQueue
    eod_first_non_ack: tuple[int, int, int] = (0, 0, 0)
    eod_last_ack: tuple[int, int, int] = (0, 0, 0)
    eod_last_ack_count: int = 0
    eod_last_ack_time: int = 0  # seconds since 1970 UTC
    eod_last_non_ack: tuple[int, int, int] = (0, 0, 0)
    eod_next_seq: tuple[int, int, int] = (0, 0, 0)
    eod_no_ack_count: int = 0
    eod_no_read_count: int = 0
    eod_resend_count: int = 0
    eod_resend_interval: int = 0  # seconds
    eod_resend_time: int = 0  # seconds since 1970 UTC


@dataclass(slots=True, eq=False)
class IncomingTransactionalTransferInfo:
    """MS-MQDMPR 3.1.1.5: one for each remote sender of transactional messages to a queue."""

    queue: directory_objects.Queue
    format_name: str
    sender_identifier: uuid.UUID
    sequence_identifier: int = 0
    sequence_number: int = 0
    last_access_time: int = 0  # seconds since 1970 UTC
    reject_count: int = 0
