"""The bounded reader of peers' bytes, and the two string forms in MS-MQMQ packets.

Every length is compared before anything is sliced. If a field does not fit, RemoteProtocolError
names it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from uuid import UUID

from lanner.model.errors import RemoteProtocolError

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@lru_cache(maxsize=4096)
def guid_from_bytes(data: bytes) -> UUID:
    """Return a GUID in packet order (MS-DTYP 2.3.4.2).

    Results are cached, because the same few GUIDs are in every packet.
    """
    return UUID(bytes_le=data)


@lru_cache(maxsize=4096)
def guid_to_bytes(guid: UUID) -> bytes:
    return guid.bytes_le


def padding(size: int, boundary: int = 4) -> int:
    """Return the number of bytes from `size` to the next boundary."""
    return -size % boundary


def encode_terminated(text: str) -> bytes:
    """Return UTF-16 with a terminating null.

    Lone surrogates are allowed, because Windows does not check WCHAR strings.
    """
    return (text + "\0").encode("utf-16-le", "surrogatepass")


def decode_terminated(data: bytes, what: str) -> str:
    """Return the text of a field with whole characters and exactly one null, at its end."""
    if len(data) % 2:
        raise RemoteProtocolError(f"{what}: {len(data)} bytes are not whole UTF-16 characters")
    text = data.decode("utf-16-le", "surrogatepass")
    end = text.find("\0")
    if end != len(text) - 1 or end < 0:
        problem = "no terminating null" if end < 0 else f"a null at character {end} of {len(text)}"
        raise RemoteProtocolError(f"{what}: {problem}")
    return text[:-1]


class Reader:
    """A position in untrusted bytes, which never moves past their end."""

    __slots__ = ("_data", "_end", "_pos")

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self._pos = start
        self._end = len(data) if end is None else end
        if not 0 <= start <= self._end <= len(data):
            raise ValueError(f"window {start}..{self._end} outside {len(data)} bytes")

    @property
    def position(self) -> int:
        return self._pos

    @property
    def remaining(self) -> int:
        return self._end - self._pos

    def take(self, size: int, what: str) -> bytes:
        left = self._end - self._pos
        if not 0 <= size <= left:
            raise RemoteProtocolError(f"{what}: {size} bytes wanted, {left} left")
        self._pos += size
        return self._data[self._pos - size : self._pos]

    def u8(self, what: str) -> int:
        return self.take(1, what)[0]

    def u16(self, what: str) -> int:
        value: int = _U16.unpack(self.take(2, what))[0]
        return value

    def u32(self, what: str) -> int:
        value: int = _U32.unpack(self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack(self.take(8, what))[0]
        return value

    def guid(self, what: str) -> UUID:
        return guid_from_bytes(self.take(16, what))

    def text(self, size: int, what: str) -> str:
        """Read a null-terminated UTF-16 string that fills exactly `size` bytes."""
        return decode_terminated(self.take(size, what), what)

    def text_to_null(self, what: str) -> str:
        """Read a null-terminated UTF-16 string whose size is given only by its terminator."""
        end = self._pos
        while True:
            end = self._data.find(b"\0\0", end, self._end)
            if end < 0:
                raise RemoteProtocolError(f"{what}: no terminating null in {self.remaining} bytes")
            if (end - self._pos) % 2 == 0:
                break
            end += 1
        return self.text(end + 2 - self._pos, what)

    def align(self, boundary: int, start: int, what: str) -> None:
        """Skip padding up to the next boundary, counted from `start` (the header's first byte)."""
        self.take(padding(self._pos - start, boundary), f"{what} padding")

    def align_or_end(self, boundary: int, start: int) -> None:
        """Skip padding, which may be missing after the last structure of a packet."""
        self._pos = min(self._pos + padding(self._pos - start, boundary), self._end)

    def window(self, size: int, what: str) -> Reader:
        """Return a reader of the next `size` bytes only, and move past them."""
        self.take(size, what)
        return Reader(self._data, self._pos - size, self._pos)

    def expect_end(self, what: str) -> None:
        if self.remaining:
            raise RemoteProtocolError(f"{what}: {self.remaining} bytes left over")
