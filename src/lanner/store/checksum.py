"""The checksum over what is stored: CRC-32 as in zlib, by the instructions that processors have for it.

Each message is summed up when it is written to the journal and to the database, and when it is read; zlib takes five times as long over a kilobyte.
"""

from __future__ import annotations

from isal.isal_zlib import crc32

__all__ = ["crc32"]
