"""The entries of Lanner's stream: message requests and their answers (docs/protocol.md).

Numbers are little-endian. A message is its packet, which contains its own size. Queues,
transactions and reads are identified by their numbers in the session (`lanner_session`). The client
chooses the numbers of queues, of reads, and of transactions that it begins with BEGIN.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from lanner.model.errors import InvalidParameter, RemoteProtocolError, StatusError
from lanner.model.live import Record
from lanner.wire import layout as at

if TYPE_CHECKING:
    from lanner.model.live import MessagePosition

# Requests. CONFIRM and BEGIN have no answer.
SEND: Final = 1
RECEIVE: Final = 2
REMOVE: Final = 3
GIVE_BACK: Final = 4
CONFIRM: Final = 5
PING: Final = 6
BEGIN: Final = 7
COMMIT: Final = 8
ABORT: Final = 9
SEND_ONCE: Final = 10
COMMIT_BEHIND: Final = 11
# Answers.
DONE: Final = 0x80
FAILED: Final = 0x81
# An earlier part of the same send failed, and this part was not processed.
SKIPPED: Final = 0x82

# A flag in the message count of a receive. It means that each message has its own read number,
# counting up from that of the request.
NUMBERED: Final = 0x8000_0000
# The maximum number of packets in one send, and of messages in one receive.
MAX_MESSAGES: Final = 1000
# The maximum number of reads that one request can end.
MAX_READS: Final = 10_000

# Queue, transaction (0: none), first entry of a send in several parts (0: this one).
_SEND: Final = struct.Struct("<QQI")
SEND_SIZE: Final = _SEND.size
# Queue, the client's number for the send, the number below which it has all answers, and the first
# entry as in _SEND.
_SEND_ONCE: Final = struct.Struct("<QQQI")
SEND_ONCE_SIZE: Final = _SEND_ONCE.size
# Queue, transaction, read, maximum number of messages, milliseconds.
_RECEIVE: Final = struct.Struct("<QQQII")
# Transaction, its identifier in RPC byte order.
_BEGIN: Final = struct.Struct("<Q16s")
_TRANSACTION: Final = struct.Struct("<Q")
# Transaction, the first entry of its sends.
_COMMIT_BEHIND: Final = struct.Struct("<QI")
# First and last of a range of read numbers.
_RANGE: Final = struct.Struct("<QQ")
_COUNT: Final = struct.Struct("<I")
# Lookup id, arrival time, abort count, move count.
_ROW: Final = struct.Struct("<QQII")
# Status, size of the text in octets.
_ERROR: Final = struct.Struct("<IH")
# A message that could not be removed: its index in the request, and the error.
_REFUSED: Final = struct.Struct("<IIH")
_MAX_TEXT: Final = 0xFFFF
_packet_size = struct.Struct("<8xI").unpack_from


class ReceiveRequest(NamedTuple):
    """A receive of up to `most` messages; it waits only for the first."""

    queue: int
    transaction: int
    read: int
    most: int
    timeout: int  # milliseconds


# Requests
# --------------------------------------------------------------------------------------------------


def pack_send(queue: int, transaction: int, first: int) -> bytes:
    return _SEND.pack(queue, transaction, first)


def unpack_send(body: memoryview) -> tuple[int, int, int]:
    if len(body) < SEND_SIZE:
        raise RemoteProtocolError(f"a send entry of {len(body)} octets is too short")
    queue, transaction, first = _SEND.unpack_from(body)
    return queue, transaction, first


def pack_send_once(queue: int, batch: int, below: int, first: int) -> bytes:
    return _SEND_ONCE.pack(queue, batch, below, first)


def unpack_send_once(body: memoryview) -> tuple[int, int, int, int]:
    if len(body) < SEND_ONCE_SIZE:
        raise RemoteProtocolError(f"a send entry of {len(body)} octets is too short")
    queue, batch, below, first = _SEND_ONCE.unpack_from(body)
    return queue, batch, below, first


def pack_receive(request: ReceiveRequest) -> bytes:
    return _RECEIVE.pack(*request)


def unpack_receive(body: memoryview) -> ReceiveRequest:
    if len(body) != _RECEIVE.size:
        raise RemoteProtocolError(f"a receive entry has {len(body)} octets, {_RECEIVE.size} expected")
    return ReceiveRequest(*_RECEIVE.unpack(body))


def pack_begin(transaction: int, identifier: UUID) -> bytes:
    return _BEGIN.pack(transaction, identifier.bytes_le)


def unpack_begin(body: memoryview) -> tuple[int, UUID]:
    if len(body) != _BEGIN.size:
        raise RemoteProtocolError(f"a begin entry has {len(body)} octets, {_BEGIN.size} expected")
    transaction, identifier = _BEGIN.unpack(body)
    return transaction, UUID(bytes_le=identifier)


def pack_transaction(transaction: int) -> bytes:
    return _TRANSACTION.pack(transaction)


def unpack_transaction(body: memoryview) -> int:
    if len(body) != _TRANSACTION.size:
        raise RemoteProtocolError(f"a commit or abort entry has {len(body)} octets, {_TRANSACTION.size} expected")
    transaction: int = _TRANSACTION.unpack(body)[0]
    return transaction


def pack_commit_behind(transaction: int, first: int) -> bytes:
    return _COMMIT_BEHIND.pack(transaction, first)


def unpack_commit_behind(body: memoryview) -> tuple[int, int]:
    if len(body) != _COMMIT_BEHIND.size:
        raise RemoteProtocolError(f"a commit behind sends has {len(body)} octets, {_COMMIT_BEHIND.size} expected")
    transaction, first = _COMMIT_BEHIND.unpack(body)
    return transaction, first


def pack_reads(numbers: Sequence[int]) -> bytes:
    """Pack read numbers as ranges."""
    packed = []
    first = last = numbers[0]
    for number in numbers[1:]:
        if number == last + 1:
            last = number
            continue
        packed.append(_RANGE.pack(first, last))
        first = last = number
    packed.append(_RANGE.pack(first, last))
    return b"".join(packed)


def unpack_reads(body: memoryview) -> list[int]:
    """Unpack read numbers; raise RemoteProtocolError for too many or for duplicates."""
    if len(body) % _RANGE.size:
        raise RemoteProtocolError(f"{len(body)} octets with numbers of reads are not a multiple of {_RANGE.size}")
    numbers: list[int] = []
    for first, last in _RANGE.iter_unpack(body):
        if not first <= last < first + MAX_READS or len(numbers) + last - first >= MAX_READS:
            raise RemoteProtocolError(f"reads {first} to {last}: at most {MAX_READS} in one request")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise RemoteProtocolError("a read is named twice")
    return numbers


# Answers
# --------------------------------------------------------------------------------------------------


def pack_ordinals(ordinals: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ordinals)}Q", *ordinals)


def unpack_ordinals(body: memoryview) -> tuple[int, ...]:
    if len(body) % 8:
        raise RemoteProtocolError(f"{len(body)} octets with numbers of messages are not a multiple of 8")
    return struct.unpack(f"<{len(body) // 8}Q", body)


def pack_messages(positions: Sequence[MessagePosition]) -> bytes:
    """Pack the messages that were read: a row for each, then their packets."""
    parts = [_COUNT.pack(len(positions))]
    row = _ROW.pack
    packets = []
    for position in positions:
        record = position.record
        parts.append(row(position.lookup_id, record.arrived, record.abort_count, record.move_count))
        packets.append(record.packet)
    parts += packets
    return b"".join(parts)


def unpack_messages(body: memoryview) -> list[tuple[int, Record]]:
    """Unpack messages as (lookup id, record)."""
    if len(body) < _COUNT.size:
        raise RemoteProtocolError(f"an answer with messages has {len(body)} octets, which is too short")
    (count,) = _COUNT.unpack_from(body)
    place, end = _COUNT.size + count * _ROW.size, len(body)
    if place > end:
        raise RemoteProtocolError(f"{count} messages do not fit into {end} octets")
    messages = []
    for lookup_id, arrived, abort_count, move_count in _ROW.iter_unpack(body[_COUNT.size : place]):
        if end - place < at.MINIMUM_SIZE:
            raise RemoteProtocolError(f"{end - place} octets are left, too few for another packet")
        stop = place + _packet_size(body, place)[0]
        if not place + at.MINIMUM_SIZE <= stop <= end:
            raise RemoteProtocolError(f"a packet ends at octet {stop} of {end}")
        record = Record(bytes(body[place:stop]), arrived, abort_count=abort_count, move_count=move_count)
        messages.append((lookup_id, record))
        place = stop
    if place < end:
        raise RemoteProtocolError(f"{end - place} octets follow the last packet")
    return messages


def pack_refused(refused: Iterable[tuple[int, StatusError]]) -> bytes:
    """Pack the messages of a request that could not be removed."""
    parts = []
    for index, error in refused:
        text = _text(error)
        parts.append(_REFUSED.pack(index, error.status, len(text)) + text)
    return b"".join(parts)


def unpack_refused(body: memoryview) -> dict[int, tuple[int, str]]:
    """Unpack refusals as (status, text) by the index of the message."""
    refused = {}
    position = 0
    while position < len(body):
        if len(body) - position < _REFUSED.size:
            raise RemoteProtocolError(f"{len(body) - position} octets are left, too few for another refusal")
        index, status, size = _REFUSED.unpack_from(body, position)
        position += _REFUSED.size
        refused[index] = status, bytes(body[position : position + size]).decode(errors="replace")
        position += size
    return refused


def pack_error(error: StatusError, ordinals: Sequence[int] = ()) -> bytes:
    """Pack an error, with the ordinals of the messages that were sent before it."""
    text = _text(error)
    return b"".join((_ERROR.pack(error.status, len(text)), text, pack_ordinals(ordinals)))


def unpack_error(body: memoryview) -> tuple[int, str, tuple[int, ...]]:
    if len(body) < _ERROR.size:
        raise RemoteProtocolError(f"an error answer has {len(body)} octets, which is too short")
    status, size = _ERROR.unpack_from(body)
    end = _ERROR.size + size
    return status, bytes(body[_ERROR.size : end]).decode(errors="replace"), unpack_ordinals(body[end:])


def _text(error: StatusError) -> bytes:
    return str(error.args[0]).encode(errors="replace")[:_MAX_TEXT]


def check_count(count: int) -> None:
    if count > MAX_MESSAGES:
        raise InvalidParameter(f"{count} messages in one request, at most {MAX_MESSAGES}")
