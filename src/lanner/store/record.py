"""One stored message: the record, its header on disk, and its keys.

On disk a message is a 24-byte header and the packet. A message published from a staging area is a
header and the key of its staged row, which holds the packet with a checksum of its own. Publishing
therefore does not write the packet again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import lmdb

from lanner.model.enums import PositionState
from lanner.model.errors import StoreCorrupt
from lanner.model.live import MAX_LOOKUP_ID, Record
from lanner.native import chosen
from lanner.store.checksum import crc32

__all__ = [
    "HEADER",
    "INDEX_ENTRY",
    "INLINE",
    "MAX_LOOKUP_ID",
    "MESSAGE_KEY",
    "REFERENCE",
    "Record",
    "decode",
    "encode",
    "encode_reference",
    "encode_staged",
    "staged_packet",
    "stored_facts",
    "stored_reference",
]

# (queue, generation, lookup id): byte order is queue order, because a lookup id is (7 - priority)
# << 56 | SequentialID. The generation is incremented each time the contents of a queue are dropped
# (QueueView.drop). The index of visibility numbers has keys of the same shape, with the number in
# place of the lookup id.
MESSAGE_KEY = struct.Struct(">IIQ")
# A row of that index: lookup id and size of the packet (for a published message the average size in
# its staged group).
INDEX_ENTRY = struct.Struct(">QI")

# Checksum of everything that follows; then format, state, flags, abort_count, move_count,
# visibility, arrived. Another format byte may mean another length.
HEADER = _HEADER = struct.Struct("<IBBHHHQI")
_REST = struct.Struct("<BBHHHQI")
_CHECKSUM = struct.Struct("<I")
_HEADER_SIZE = _HEADER.size
INLINE = 1  # the packet follows
REFERENCE = 2  # the key of a staged row follows
_MAX_COUNT = 0xFFFF
# Format, state, flags and counts of a message that is unchanged since its arrival.
_PLAIN = bytes((INLINE, int(PositionState.AVAILABLE), 0, 0, 0, 0, 0, 0))
_PLAIN_END = _CHECKSUM.size + len(_PLAIN)

_AVAILABLE, _LOCKED = int(PositionState.AVAILABLE), int(PositionState.LOCKED)
_STATES = {int(state): state for state in (PositionState.AVAILABLE, PositionState.LOCKED)}
_FORMATS = frozenset((INLINE, REFERENCE))


def encode(record: Record, visibility: int) -> bytes:
    """Return the stored bytes of a record under a visibility number (0: locked, not visible)."""
    packet = record.packet
    # Only Available messages have a number.
    state = _AVAILABLE if visibility else _LOCKED
    aborts, moves = record.abort_count, record.move_count
    if aborts > _MAX_COUNT or moves > _MAX_COUNT:
        aborts, moves = min(aborts, _MAX_COUNT), min(moves, _MAX_COUNT)
    rest = _REST.pack(INLINE, state, record.flags, aborts, moves, visibility, record.arrived)
    return _CHECKSUM.pack(crc32(packet, crc32(rest))) + rest + packet


def encode_reference(reference: bytes, visibility: int, arrived: int, flags: int) -> bytes:
    """Return the stored bytes of a published message."""
    rest = _REST.pack(REFERENCE, 0, flags, 0, 0, visibility, arrived) + reference
    return _CHECKSUM.pack(crc32(rest)) + rest


def encode_staged(packet: bytes) -> bytes:
    """Return the bytes of a staged row."""
    return _CHECKSUM.pack(crc32(packet)) + packet


def _decode_plain(raw: bytes, make: Callable[[bytes, int, int], Record]) -> Record | None:
    """Return the record of a message unchanged since its arrival; None for any other `raw`.

    `make` is Record, called with packet, arrival time and visibility number. None is also returned
    for a wrong checksum; `decode` then finds out what is wrong.
    """
    if len(raw) < _HEADER_SIZE or raw[_CHECKSUM.size : _PLAIN_END] != _PLAIN:
        return None
    checksum, _, _, _, _, _, visibility, arrived = _HEADER.unpack_from(raw)
    return make(raw[_HEADER_SIZE:], arrived, visibility) if crc32(raw[_CHECKSUM.size :]) == checksum else None


decode_plain = chosen(_decode_plain)


def decode(raw: bytes, txn: lmdb.Transaction, staged: lmdb._Database) -> Record:
    """Return the record in stored bytes. Raises StoreCorrupt if they are damaged."""
    record = decode_plain(raw, Record)
    if record is not None:
        return record
    if len(raw) < _HEADER_SIZE:
        raise StoreCorrupt(f"record of {len(raw)} bytes, shorter than its header of {_HEADER_SIZE}")
    checksum, version, state, flags, abort_count, move_count, visibility, arrived = _HEADER.unpack_from(raw)
    packet = raw[_HEADER_SIZE:]
    if (found := crc32(packet, crc32(raw[4:_HEADER_SIZE]))) != checksum:
        raise StoreCorrupt(f"record of {len(raw)} bytes: checksum {found:#010x}, stored {checksum:#010x}")
    if version not in _FORMATS or state not in _STATES:
        raise StoreCorrupt(f"record of {len(raw)} bytes: format {version}, state {state} unknown")
    if version == INLINE:
        return Record(packet, arrived, visibility, _STATES[state], abort_count, move_count, flags)
    reference, packet = packet, staged_packet(packet, txn, staged)
    return Record(packet, arrived, visibility, _STATES[state], abort_count, move_count, flags, reference)


def staged_packet(reference: bytes, txn: lmdb.Transaction, staged: lmdb._Database) -> bytes:
    """Return the packet of a staged row. Raises StoreCorrupt if the row is missing or damaged."""
    raw = txn.get(reference, db=staged)
    if raw is None or len(raw) < _CHECKSUM.size:
        raise StoreCorrupt(f"staged row {reference.hex()} is missing or cut short")
    packet = bytes(raw[_CHECKSUM.size :])
    if (found := crc32(packet)) != _CHECKSUM.unpack_from(raw)[0]:
        raise StoreCorrupt(
            f"staged row {reference.hex()} of {len(raw)} bytes: checksum {found:#010x} is not the stored one"
        )
    return packet


def stored_facts(
    raw: bytes | memoryview, txn: lmdb.Transaction[bytes], staged: lmdb._Database
) -> tuple[int, int, bytes]:
    """Return (size of the packet, visibility number, reference), needed to delete a message.

    Reads a corrupt message as far as possible.
    """
    if len(raw) < _HEADER_SIZE:
        return 0, 0, b""
    _, version, _, _, _, _, visibility, _ = _HEADER.unpack_from(raw)
    if version != REFERENCE:
        return len(raw) - _HEADER_SIZE, visibility, b""
    reference = bytes(raw[_HEADER_SIZE:])
    row = txn.get(reference, db=staged)
    return 0 if row is None else len(row) - _CHECKSUM.size, visibility, reference


def stored_reference(raw: bytes | memoryview) -> bytes:
    """Return the key of the staged row that holds the packet; empty if the packet is inline."""
    return bytes(raw[_HEADER_SIZE:]) if len(raw) > _HEADER_SIZE and raw[4] == REFERENCE else b""
