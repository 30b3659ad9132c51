"""One stored message: the record, its header on disk, its keys.

On disk a message is a 24-byte header and the packet. The checksum runs over the packet first and the rest of
the header after it, so whoever knows the packet's own checksum can make a new header without reading the packet.
"""

from __future__ import annotations

import struct
from zlib import crc32

from lanner.model.enums import PositionState
from lanner.model.errors import StoreCorrupt

__all__ = ["HEADER_SIZE", "MAX_LOOKUP_ID", "MESSAGE_KEY", "Record", "decode", "encode", "encode_header"]

# (queue, generation, lookup id): byte order is queue order, because a lookup id is
# (7 - priority) << 56 | SequentialID. A generation is one life of a queue's contents (QueueView.drop).
# The index of visibility numbers has keys of the same shape, with the number in place of the lookup id.
MESSAGE_KEY = struct.Struct(">IIQ")
MAX_LOOKUP_ID = 0xFFFF_FFFF_FFFF_FFFF

# format, state, flags, abort_count, move_count, visibility, arrived; another format byte may mean another length.
_REST = struct.Struct("<BBHHHQI")
_HEADER = struct.Struct("<IBBHHHQI")
_CHECKSUM = struct.Struct("<I")
HEADER_SIZE = _HEADER.size
_FORMAT = 1
_MAX_COUNT = 0xFFFF

_STATES = {int(state): state for state in (PositionState.AVAILABLE, PositionState.LOCKED)}


class Record:
    """A message as the store keeps it. Treat `packet` as frozen once the record was put."""

    __slots__ = ("abort_count", "arrived", "flags", "move_count", "packet", "state", "visibility")

    def __init__(
        self,
        packet: bytes,
        arrived: int,
        visibility: int = 0,
        state: PositionState = PositionState.AVAILABLE,
        abort_count: int = 0,
        move_count: int = 0,
        flags: int = 0,
    ) -> None:
        self.packet = packet
        self.arrived = arrived  # seconds since 1970
        self.visibility = visibility  # 0: not visible
        self.state = state
        self.abort_count = abort_count
        self.move_count = move_count
        self.flags = flags  # the engine's own, 16 bits

    def __repr__(self) -> str:
        return (
            f"<Record {len(self.packet)} bytes, arrived {self.arrived}, visibility {self.visibility}, "
            f"{self.state.name}, aborts {self.abort_count}, moves {self.move_count}, flags {self.flags:#06x}>"
        )


def encode_header(record: Record, visibility: int, packet_checksum: int) -> bytes:
    """Make the header; the state follows from the visibility number, which only Available messages have."""
    rest = _REST.pack(
        _FORMAT,
        0 if visibility else 1,  # PositionState.AVAILABLE, LOCKED
        record.flags,
        min(record.abort_count, _MAX_COUNT),
        min(record.move_count, _MAX_COUNT),
        visibility,
        record.arrived,
    )
    return _CHECKSUM.pack(crc32(rest, packet_checksum)) + rest


def encode(record: Record, visibility: int) -> bytes:
    """Make the stored bytes of a record under a visibility number (0: locked, not visible)."""
    packet = record.packet
    return encode_header(record, visibility, crc32(packet)) + packet


def decode(raw: bytes) -> Record:
    """Make the record of stored bytes; StoreCorrupt if they are not what was written."""
    if len(raw) < HEADER_SIZE:
        raise StoreCorrupt(f"record of {len(raw)} bytes, shorter than its header of {HEADER_SIZE}")
    checksum, version, state, flags, abort_count, move_count, visibility, arrived = _HEADER.unpack_from(raw)
    packet = raw[HEADER_SIZE:]
    found = crc32(raw[4:HEADER_SIZE], crc32(packet))
    if found != checksum:
        raise StoreCorrupt(f"record of {len(raw)} bytes: checksum {found:#010x}, stored {checksum:#010x}")
    if version != _FORMAT or state not in _STATES:
        raise StoreCorrupt(f"record of {len(raw)} bytes: format {version}, state {state} unknown")
    return Record(packet, arrived, visibility, _STATES[state], abort_count, move_count, flags)


def stored_visibility(raw: bytes) -> int:
    """Read the visibility number out of stored bytes without checking them."""
    return int(_HEADER.unpack_from(raw)[6]) if len(raw) >= HEADER_SIZE else 0
