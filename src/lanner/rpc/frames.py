"""Frames: octets that two programs exchange on a connection beside RPC PDUs (docs/protocol.md).

A frame begins with an octet that no PDU begins with, so both can alternate on one connection. An
RPC call begins the exchange, and its answer has the keys. A frame carries all entries that wait to
be sent, each with a number and a kind. This module does no I/O.

On a connection that others can reach, a frame is sealed with AES-256-GCM. The nonce is the number
of the frame in its direction, which is not sent. So a frame that was changed, dropped, repeated or
reordered cannot be opened.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.security import SecurityError

# The first octet of a PDU is the version of RPC, 5.
FIRST_OCTET: Final = 0x4C
VERSION: Final = 1
KEY_SIZE: Final = 32
TAG_SIZE: Final = 16
# FIRST_OCTET, the version, zero, and the number of octets that follow.
_HEADER: Final = struct.Struct("<BBHI")
HEADER_SIZE: Final = _HEADER.size
# The maximum number of octets after the header, without the tag. An answer has at most 4 MiB of
# messages, and the message that exceeds them.
MAX_FRAME: Final = 0x0081_0000
# A frame of more octets than this must have only one entry, so that no client keeps the other side
# busy for long.
MAX_SHARED: Final = 0x0010_0000
# The maximum number of entries in one frame.
MAX_ENTRIES: Final = 4096
# The octets of the body, the number, the kind, and zero.
_ENTRY: Final = struct.Struct("<IIHH")
ENTRY_SIZE: Final = _ENTRY.size


class Entry(NamedTuple):
    """One request, or one answer to it."""

    number: int
    kind: int
    body: memoryview


def pack_entry(number: int, kind: int, parts: Iterable[bytes]) -> bytes:
    """Return the octets of an entry with a body in parts."""
    body = b"".join(parts)
    return _ENTRY.pack(len(body), number, kind, 0) + body


def unpack_entries(content: bytes) -> Iterator[Entry]:
    """Yield the entries of a frame. Raises RemoteProtocolError for a truncated one."""
    view = memoryview(content)
    end = len(view)
    position = count = 0
    while position < end:
        count += 1
        if count > (1 if end > MAX_SHARED else MAX_ENTRIES):
            raise RemoteProtocolError(f"a frame of {end} octets with more than {count - 1} entries")
        if end - position < ENTRY_SIZE:
            raise RemoteProtocolError(f"a frame ends {end - position} octets into the header of an entry")
        size, number, kind, reserved = _ENTRY.unpack_from(view, position)
        position += ENTRY_SIZE
        if size > end - position or reserved:
            raise RemoteProtocolError(f"an entry of {size} octets in a frame that has {end - position} more")
        yield Entry(number, kind, view[position : position + size])
        position += size


class _Seal:
    """One direction of a connection, with a key of its own and the number of its next frame."""

    __slots__ = ("_aead", "_number")

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)
        self._number = 0

    def _nonce(self) -> bytes:
        number = self._number
        self._number = number + 1
        return number.to_bytes(12, "little")

    def close(self, header: bytes, content: bytes) -> bytes:
        return self._aead.encrypt(self._nonce(), content, header)

    def open(self, header: bytes, sealed: bytes) -> bytes:
        try:
            return self._aead.decrypt(self._nonce(), sealed, header)
        except InvalidTag:
            raise SecurityError("a frame was changed, left out or repeated on its way") from None


class Frames:
    """One side's frames of a connection, in both directions."""

    def __init__(self, sending_key: bytes = b"", receiving_key: bytes = b"") -> None:
        """Seal frames with these keys. Without keys the transport must protect them."""
        self._sending = _Seal(sending_key) if sending_key else None
        self._receiving = _Seal(receiving_key) if receiving_key else None
        self._tag = TAG_SIZE if receiving_key else 0
        # The beginning of an incomplete frame.
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0
        # Entries that wait to be sent, and their octets.
        self._out: list[bytes] = []
        self._out_size = 0
        # The contents of received frames, since the last call of `received`.
        self._received: list[bytes] = []

    @property
    def unfinished(self) -> int:
        """The number of octets of an incomplete frame."""
        return self._have

    def take(self, data: bytes, position: int) -> int:
        """Read the frame at a position, or the available part of it; return where that ends.

        Raises RemoteProtocolError or SecurityError for an invalid frame. Both end the connection.
        """
        end = len(data)
        if not self._have and end - position >= HEADER_SIZE:
            # The common case: a complete frame.
            stop = position + HEADER_SIZE + self._size_of(data[position : position + HEADER_SIZE])
            if stop <= end:
                self._finish(data[position : position + HEADER_SIZE], data[position + HEADER_SIZE : stop])
                return stop
            self._need = stop - position
        elif self._have < HEADER_SIZE:
            # The header arrives in pieces.
            stop = min(end, position + HEADER_SIZE - self._have)
            self._parts.append(data[position:stop])
            self._have += stop - position
            position = stop
            if self._have < HEADER_SIZE:
                return position
            header = b"".join(self._parts)
            self._parts = [header]
            self._need = HEADER_SIZE + self._size_of(header)
        stop = min(end, position + self._need - self._have)
        self._parts.append(data[position:stop])
        self._have += stop - position
        if self._have == self._need:
            whole = b"".join(self._parts)
            self._parts.clear()
            self._have = 0
            self._finish(whole[:HEADER_SIZE], whole[HEADER_SIZE:])
        return stop

    def _size_of(self, header: bytes) -> int:
        first, version, reserved, size = _HEADER.unpack(header)
        if first != FIRST_OCTET or version != VERSION or reserved:
            raise RemoteProtocolError(f"a frame begins with {header.hex()}: version {VERSION} was agreed on")
        if not self._tag < size <= MAX_FRAME + self._tag:
            raise RemoteProtocolError(f"a frame of {size} octets, at most {MAX_FRAME + self._tag}")
        return int(size)

    def _finish(self, header: bytes, content: bytes) -> None:
        self._received.append(content if self._receiving is None else self._receiving.open(header, content))

    @property
    def has_received(self) -> bool:
        """Whether `received` has something to return."""
        return bool(self._received)

    def received(self) -> list[bytes]:
        """Return the contents of the frames that were received since the last call."""
        received, self._received = self._received, []
        return received

    @property
    def waiting(self) -> int:
        """The number of octets of the entries that wait to be sent."""
        return self._out_size

    # Sending
    # ----------------------------------------------------------------------------------------------

    def put(self, entry: bytes) -> list[bytes]:
        """Queue an entry for the next frame; return the full frame before it, if there is one."""
        is_full = self._out_size + len(entry) > MAX_SHARED or len(self._out) == MAX_ENTRIES
        full = self.flush() if is_full else []
        self._out.append(entry)
        self._out_size += len(entry)
        return full

    def flush(self) -> list[bytes]:
        """Return the frame of the waiting entries, in pieces to be sent."""
        if not self._out:
            return []
        content = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_size = 0
        header = _HEADER.pack(FIRST_OCTET, VERSION, 0, len(content) + self._tag)
        return [header, content if self._sending is None else self._sending.close(header, content)]
