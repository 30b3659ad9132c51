"""The CRC-32 of consecutive pieces of one size, computed from the CRC-32 of each piece.

Comparing thousands of small pieces with their checksums one by one takes longer than copying them.
With this module one comparison covers all of them. CRC-32 is linear: appending n bytes multiplies
the checksum by a matrix of bits that depends only on n, and then adds the checksum of the appended
bytes by exclusive or.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Sums = npt.NDArray[np.uint32]

_POLYNOMIAL: Final = 0xEDB8_8320  # of zlib's CRC-32, lowest bit first
_BYTES: Final = np.arange(256, dtype=np.uint32)


def joined_checksum(checksums: Sums, size: int) -> int:
    """Return the checksum of all pieces together, in this order."""
    while len(checksums) > 1:
        if len(checksums) & 1:
            # An empty piece in front: its checksum is 0, whatever follows.
            checksums = np.append(np.uint32(0), checksums)
        checksums = _times(_followed(size), checksums[::2]) ^ checksums[1::2]
        size *= 2
    return int(checksums[0]) if len(checksums) else 0


# A matrix is four tables: its product with each value of the lowest byte, of the next byte, and so
# on.


def _times(matrix: Sums, values: Sums) -> Sums:
    octets = np.ascontiguousarray(values, "<u4").view(np.uint8)
    product: Sums = matrix[0].take(octets[0::4])
    for place in (1, 2, 3):
        product ^= matrix[place].take(octets[place::4])
    return product


@lru_cache(1024)  # 4 KiB each
def _followed(size: int) -> Sums:
    """Return the matrix for `size` appended bytes."""
    found = _BYTES << 8 * np.arange(4, dtype=np.uint32)[:, None]
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            found = _times(_followed_by_power(bit), found.reshape(-1)).reshape(4, -1)
    return found


@cache
def _followed_by_power(exponent: int) -> Sums:
    """Return the matrix for 2 to the power of `exponent` appended bytes."""
    if exponent:
        half = _followed_by_power(exponent - 1)
        return _times(half, half.reshape(-1)).reshape(4, -1)
    lowest = _BYTES
    for _ in range(8):
        lowest = np.where(lowest & 1, lowest >> 1 ^ _POLYNOMIAL, lowest >> 1).astype(np.uint32)
    return np.stack([lowest, _BYTES, _BYTES << 8, _BYTES << 16])
