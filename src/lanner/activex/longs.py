"""Automation's long, which is signed, for numbers of 32 bits that are not."""

from __future__ import annotations

from typing import Final

_SIGN: Final = 0x8000_0000
_UNSIGNED: Final = 0xFFFF_FFFF


def to_long(value: int) -> int:
    """A number of 32 bits as a long."""
    value &= _UNSIGNED
    return value - (1 << 32) if value & _SIGN else value


def from_long(value: int) -> int:
    """A long as a number of 32 bits."""
    return value & _UNSIGNED
