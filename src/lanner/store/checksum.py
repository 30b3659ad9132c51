"""The checksum of stored data: zlib's CRC-32, computed with the processor's own instructions.

Every message is checksummed when it is logged, when it is written to the database and when it is
read. zlib takes five times as long for a kilobyte.
"""

from __future__ import annotations

from isal.isal_zlib import crc32

__all__ = ["crc32"]
