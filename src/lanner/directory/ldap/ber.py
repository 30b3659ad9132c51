"""The basic encoding rules of LDAP (RFC 4511 5.1, X.690): definite lengths, one-octet tags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
ENUMERATED: Final = 0x0A
SEQUENCE: Final = 0x30
SET: Final = 0x31


class BerError(ValueError):
    """Octets that are no element."""


def element(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def integer(value: int, tag: int = INTEGER) -> bytes:
    return element(tag, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def boolean(value: bool, tag: int = BOOLEAN) -> bytes:
    return element(tag, b"\xff" if value else b"\x00")


def text(value: str | bytes, tag: int = OCTET_STRING) -> bytes:
    return element(tag, value.encode() if isinstance(value, str) else value)


def sequence(parts: Iterable[bytes], tag: int = SEQUENCE) -> bytes:
    return element(tag, b"".join(parts))


def complete_length(data: bytes | bytearray) -> int | None:
    """Return the size of the first element with its header; None while that is incomplete."""
    if len(data) < 2:
        return None
    short = data[1]
    if short < 0x80:
        return 2 + short
    count = short & 0x7F
    if not 1 <= count <= 4:
        raise BerError(f"length of {count} octets: 1 to 4 expected")
    if len(data) < 2 + count:
        return None
    return 2 + count + int.from_bytes(data[2 : 2 + count], "big")


class BerReader:
    """Reads elements from octets, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    @property
    def tag(self) -> int | None:
        """The tag of the next element; None at the end."""
        return self._data[self._at] if self else None

    def any(self) -> tuple[int, bytes]:
        rest = self._data[self._at :]
        size = complete_length(rest)
        if size is None or size > len(rest):
            raise BerError(f"element at {self._at}: {len(rest)} octets left of a longer one")
        header = 2 if rest[1] < 0x80 else 2 + (rest[1] & 0x7F)
        self._at += size
        return rest[0], rest[header:size]

    def octets(self, tag: int = OCTET_STRING) -> bytes:
        found, content = self.any()
        if found != tag:
            raise BerError(f"tag {found:#04x} where {tag:#04x} was expected")
        return content

    def text(self, tag: int = OCTET_STRING) -> str:
        return self.octets(tag).decode("utf-8", "replace")

    def integer(self, tag: int = INTEGER) -> int:
        return int.from_bytes(self.octets(tag), "big", signed=True)

    def inner(self, tag: int = SEQUENCE) -> BerReader:
        return BerReader(self.octets(tag))
