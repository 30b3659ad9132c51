"""Conversion between Automation's signed long and unsigned 32-bit numbers."""

from __future__ import annotations

from typing import Final

_SIGN: Final = 0x8000_0000
_UNSIGNED: Final = 0xFFFF_FFFF


def to_long(value: int) -> int:
    """Return an unsigned 32-bit number as a long."""
    value &= _UNSIGNED
    return value - (1 << 32) if value & _SIGN else value


def from_long(value: int) -> int:
    """Return a long as an unsigned 32-bit number."""
    return value & _UNSIGNED
