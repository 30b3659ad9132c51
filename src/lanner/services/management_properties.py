r"""The management properties of the machine and of queues: one function per identifier.

The identifiers and the types of their values are in `wire.property_ids` (MS-MQMR 3.1.4.1, MS-MQMQ
2.3.11 and 2.3.12). A function returns None (VT_NULL) for a property that this kind of queue does
not have. The caller holds the store's lock.
"""

from __future__ import annotations

import importlib.metadata
import platform
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState, QueueType
from lanner.model.errors import IllegalPropid, StatusError
from lanner.wire.format_name import DirectFormatName, FormatName, PublicFormatName
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.path_name import PathName
from lanner.wire.property_ids import ManagementMachineProperty, ManagementQueueProperty, PropertyIdentifier
from lanner.wire.propvariant import NULL, PropVariant, Value
from lanner.wire.vartypes import MAX_I4, VT

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import ConnectionHistoryEntry, Queue
    from lanner.model.live import OutgoingTransferInfo

_MAX_UI4: Final = 0xFFFF_FFFF
_SEQUENCE_NUMBERS: Final = struct.Struct("<II")

# MS-MQMQ 2.3.12.3.
_TYPES: Final = {
    QueueType.PUBLIC: "PUBLIC",
    QueueType.PRIVATE: "PRIVATE",
    QueueType.SYSTEM: "MACHINE",
    QueueType.CONNECTOR: "CONNECTOR",
}
# MS-MQMQ 2.3.12.11, and LOCKED, which only MS-MQMR has (DECISIONS).
_STATES: Final = {
    OutgoingState.CONNECTED: "CONNECTED",
    OutgoingState.DISCONNECTED: "DISCONNECTED",
    OutgoingState.DISCONNECTING: "DISCONNECTING",
    OutgoingState.INACTIVE: "INACTIVE",
    OutgoingState.LOCKED: "LOCKED",
    OutgoingState.NEED_VALIDATION: "NEED VALIDATION",
    OutgoingState.WAITING: "WAITING",
    OutgoingState.ON_HOLD: "ONHOLD",
}
# An outgoing queue has next hops only while it is connected or connecting.
_STATES_WITH_HOPS: Final = frozenset((OutgoingState.CONNECTED, OutgoingState.WAITING))

Subject = TypeVar("Subject")


def get_properties(
    table: Mapping[PropertyIdentifier, Callable[[Subject], Value]],
    identifiers: tuple[PropertyIdentifier, ...],
    subject: Subject,
) -> tuple[PropVariant, ...]:
    """Return property values in the order requested; duplicates are allowed."""
    values = {identifier: table[identifier](subject) for identifier in dict.fromkeys(identifiers)}
    variants = {
        identifier: NULL if value is None else PropVariant(identifier.vt, value) for identifier, value in values.items()
    }
    return tuple(variants[identifier] for identifier in identifiers)


def known_identifiers(kind: type[PropertyIdentifier], numbers: tuple[int, ...]) -> tuple[PropertyIdentifier, ...]:
    """Return the identifiers of these numbers; raise IllegalPropid for an unknown one."""
    try:
        return tuple(kind(number) for number in numbers)
    except ValueError as error:
        raise IllegalPropid(str(error)) from None


# The machine
# --------------------------------------------------------------------------------------------------


def _active_queues(engine: Engine) -> Value:
    queues = engine.queue_manager.queue_collection.values()
    return tuple(format_name_of(engine, queue) for queue in queues if queue.active)


def _private_queues(engine: Engine) -> Value:
    return tuple(queue.pathname for queue in engine.local_queues() if queue.queue_type is QueueType.PRIVATE)


def _directory_server(engine: Engine) -> Value:
    qm = engine.queue_manager
    if not qm.directory_integrated or not qm.directory_server_list:
        return None
    # MS-MQMQ 2.3.11.3: the name is prefixed.
    return "\\\\" + qm.directory_server_list[0].lstrip("\\")


def _connected(engine: Engine) -> Value:
    return "CONNECTED" if engine.queue_manager.connection_active else "DISCONNECTED"


def _version(_engine: Engine) -> Value:
    return f"{platform.system()} {platform.release()}, Lanner {importlib.metadata.version('lanner')}"


def _bytes_in_all_queues(engine: Engine) -> Value:
    return sum(queue.total_bytes for queue in engine.queue_manager.queue_collection.values())


MACHINE_PROPERTIES: Final[dict[PropertyIdentifier, Callable[[Engine], Value]]] = {
    ManagementMachineProperty.ACTIVEQUEUES: _active_queues,
    ManagementMachineProperty.PRIVATEQ: _private_queues,
    ManagementMachineProperty.DSSERVER: _directory_server,
    ManagementMachineProperty.CONNECTED: _connected,
    ManagementMachineProperty.TYPE: _version,
    ManagementMachineProperty.BYTES_IN_ALL_QUEUES: _bytes_in_all_queues,
}


# Queues
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueriedQueue:
    """A queue and the context that its properties need."""

    engine: Engine
    queue: Queue
    # Only for an outgoing queue that has carried transactional messages.
    transfer_info: OutgoingTransferInfo | None = None

    @property
    def outgoing(self) -> OutgoingQueue | None:
        return self.queue if isinstance(self.queue, OutgoingQueue) else None


def format_name_of(engine: Engine, queue: Queue) -> str:
    """Return a name that opens the queue (DECISIONS: FORMATNAME is a real format name)."""
    if isinstance(queue, OutgoingQueue):
        return queue.destination_format_name
    if queue.queue_type is QueueType.CONNECTOR:
        return str(FormatName.parse(queue.pathname))
    return str(engine.format_name_of(queue))


def _path_name(queried: QueriedQueue) -> Value:
    outgoing = queried.outgoing
    if outgoing is None:
        return None if queried.queue.queue_type is QueueType.CONNECTOR else queried.queue.pathname
    # MS-MQMR 1.1: the path name of the destination queue, if this queue manager has it.
    try:
        return queried.engine.get_queue_path(FormatName.parse(outgoing.destination_format_name))[0] or None
    except StatusError:
        return None


def _type(queried: QueriedQueue) -> Value:
    outgoing = queried.outgoing
    if outgoing is not None and outgoing.multicast:
        return "MULTICAST"
    return _TYPES[_queue_type(queried)]


def _queue_type(queried: QueriedQueue) -> QueueType:
    """Return the QueueType.

    No document sets the type of an outgoing queue: it gets its destination's, as far as the name
    shows it.
    """
    outgoing = queried.outgoing
    name = None if outgoing is None else FormatName.parse(outgoing.destination_format_name)
    if isinstance(name, PublicFormatName):
        return QueueType.PUBLIC
    if isinstance(name, DirectFormatName) and name.queue_part is not None:
        return name.queue_part.queue_type
    return queried.queue.queue_type


def _location(queried: QueriedQueue) -> Value:
    return "LOCAL" if queried.outgoing is None else "REMOTE"


def _transactional(queried: QueriedQueue) -> Value:
    return _yes_or_no(queried.queue.transactional)


def _foreign(queried: QueriedQueue) -> Value:
    qm = queried.engine.queue_manager
    if not qm.directory_offline:
        return _yes_or_no(qm.foreign_system)
    return "NO" if _queue_type(queried) is QueueType.PRIVATE else "UNKNOWN"


def _yes_or_no(is_so: bool) -> str:
    return "YES" if is_so else "NO"


def _message_count(queried: QueriedQueue) -> Value:
    return min(_positions(queried.queue), _MAX_UI4)


def _positions(queue: Queue) -> int:
    """Return the length of MessagePositionList without deleted messages.

    It includes messages whose transaction is still open.
    """
    return queue.message_count + sum(position.is_uncommitted_send for position in queue.held_positions.values())


def _bytes_in_queue(queried: QueriedQueue) -> Value:
    return min(queried.queue.total_bytes, _MAX_UI4)


def _journal_message_count(queried: QueriedQueue) -> Value:
    journal = queried.queue.journal_queue
    return 0 if journal is None else min(_positions(journal), _MAX_UI4)


def _bytes_in_journal(queried: QueriedQueue) -> Value:
    journal = queried.queue.journal_queue
    return min(journal.total_bytes, _MAX_UI4) if journal is not None and queried.queue.journaling else 0


def _state(queried: QueriedQueue) -> Value:
    outgoing = queried.outgoing
    return "LOCAL CONNECTION" if outgoing is None else _STATES[outgoing.state]


def _next_hops(queried: QueriedQueue) -> Value:
    outgoing = queried.outgoing
    if outgoing is None or outgoing.state not in _STATES_WITH_HOPS:
        return None
    if outgoing.multicast and outgoing.state is OutgoingState.CONNECTED:
        return (outgoing.destination_format_name,)
    return tuple(outgoing.next_hops or ())


def _of_transfer(value: Callable[[OutgoingTransferInfo], Value]) -> Callable[[QueriedQueue], Value]:
    """Wrap a property of transactional transfer.

    It is VT_NULL for a queue that is not outgoing, or has carried nothing transactional
    (DECISIONS).
    """

    def get(queried: QueriedQueue) -> Value:
        info = queried.transfer_info
        return None if info is None else value(info)

    return get


def _sequence_info(triple: tuple[int, int, int]) -> bytes:
    """Pack a SEQUENCE_INFO (MS-MQMQ 2.2.5.1).

    Its SeqID is signed there and a TxSequenceID here; the octets are the same.
    """
    seq_id, seq_no, prev_no = triple
    return TxSequenceID.from_value(seq_id).pack() + _SEQUENCE_NUMBERS.pack(seq_no, prev_no)


def _seconds(moment: int) -> int:
    """Clamp seconds since 1970 to VT_I4, which ends in 2038."""
    return min(moment, MAX_I4)


def _source_info(queried: QueriedQueue) -> Value:
    """Return six vectors with one entry per incoming sequence (MS-MQMQ 2.3.12.24)."""
    infos = list(queried.queue.incoming_transactional_transfer_info.values())
    return (
        PropVariant.vector(VT.LPWSTR, [info.format_name for info in infos]),
        PropVariant.vector(VT.CLSID, [info.sender_identifier for info in infos]),
        PropVariant.vector(VT.UI8, [info.sequence_identifier for info in infos]),
        PropVariant.vector(VT.UI4, [info.sequence_number for info in infos]),
        PropVariant.vector(VT.I4, [_seconds(info.last_access_time) for info in infos]),
        PropVariant.vector(VT.UI4, [info.reject_count for info in infos]),
    )


def _connection_history(queried: QueriedQueue) -> Value:
    """Return four vectors with one entry per state change, oldest first (MS-MQMQ 2.3.12.25)."""
    outgoing = queried.outgoing
    if outgoing is None:
        return None
    entries = outgoing.connection_history
    return (
        PropVariant.vector(VT.UI4, [int(entry.status) for entry in entries]),
        PropVariant.vector(VT.I4, [_seconds(entry.connection_history_time) for entry in entries]),
        PropVariant.vector(VT.I4, [_signed(entry.error) for entry in entries]),
        # DECISIONS: the document's double VT_VECTOR is read as a vector of vectors.
        PropVariant.vector(VT.VARIANT, [_addresses(entry) for entry in entries]),
    )


def _signed(hresult: int) -> int:
    return hresult - (1 << 32) if hresult > MAX_I4 else hresult


def _addresses(entry: ConnectionHistoryEntry) -> PropVariant:
    return PropVariant.vector(VT.LPWSTR, [_plain_address(address) for address in entry.address_list])


def _plain_address(address: str) -> str:
    r"""Return an address as digits and dots, or as \\ and a name (MS-MQMQ 2.3.12.25).

    NEXTHOPS puts the kind of address before it.
    """
    kind, separator, literal = address.partition("=")
    return literal if separator and kind in ("IP", "IPv6") else f"\\\\{address}"


def _subqueue_count(queried: QueriedQueue) -> Value:
    return len(queried.queue.subqueues)


def _subqueue_names(queried: QueriedQueue) -> Value:
    return tuple(PathName.parse(queue.pathname).subqueue or "" for queue in queried.queue.subqueues.values())


QUEUE_PROPERTIES: Final[dict[PropertyIdentifier, Callable[[QueriedQueue], Value]]] = {
    ManagementQueueProperty.PATHNAME: _path_name,
    ManagementQueueProperty.FORMATNAME: lambda queried: format_name_of(queried.engine, queried.queue),
    ManagementQueueProperty.TYPE: _type,
    ManagementQueueProperty.LOCATION: _location,
    ManagementQueueProperty.XACT: _transactional,
    ManagementQueueProperty.FOREIGN: _foreign,
    ManagementQueueProperty.MESSAGE_COUNT: _message_count,
    ManagementQueueProperty.BYTES_IN_QUEUE: _bytes_in_queue,
    ManagementQueueProperty.JOURNAL_MESSAGE_COUNT: _journal_message_count,
    ManagementQueueProperty.BYTES_IN_JOURNAL: _bytes_in_journal,
    ManagementQueueProperty.STATE: _state,
    ManagementQueueProperty.NEXTHOPS: _next_hops,
    # MS-MQMR 3.1.4.1 gives the value while messages are unacknowledged, and leaves the other case
    # out. Here it is VT_NULL.
    ManagementQueueProperty.EOD_LAST_ACK: _of_transfer(
        lambda info: _sequence_info(info.eod_last_ack) if info.eod_no_ack_count else None
    ),
    ManagementQueueProperty.EOD_LAST_ACK_TIME: _of_transfer(lambda info: _seconds(info.eod_last_ack_time)),
    ManagementQueueProperty.EOD_LAST_ACK_COUNT: _of_transfer(lambda info: info.eod_last_ack_count),
    ManagementQueueProperty.EOD_FIRST_NON_ACK: _of_transfer(lambda info: _sequence_info(info.eod_first_non_ack)),
    ManagementQueueProperty.EOD_LAST_NON_ACK: _of_transfer(lambda info: _sequence_info(info.eod_last_non_ack)),
    ManagementQueueProperty.EOD_NEXT_SEQ: _of_transfer(lambda info: _sequence_info(info.eod_next_seq)),
    ManagementQueueProperty.EOD_NO_READ_COUNT: _of_transfer(lambda info: info.eod_no_read_count),
    ManagementQueueProperty.EOD_NO_ACK_COUNT: _of_transfer(lambda info: info.eod_no_ack_count),
    ManagementQueueProperty.EOD_RESEND_TIME: _of_transfer(lambda info: _seconds(info.eod_resend_time)),
    ManagementQueueProperty.EOD_RESEND_INTERVAL: _of_transfer(lambda info: info.eod_resend_interval),
    ManagementQueueProperty.EOD_RESEND_COUNT: _of_transfer(lambda info: info.eod_resend_count),
    ManagementQueueProperty.EOD_SOURCE_INFO: _source_info,
    ManagementQueueProperty.CONNECTION_HISTORY: _connection_history,
    ManagementQueueProperty.SUBQUEUE_COUNT: _subqueue_count,
    ManagementQueueProperty.SUBQUEUE_NAMES: _subqueue_names,
}
