"""The checksum of many pieces, worked out of theirs, is the one that it takes to read them all."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from lanner.spark.columnar.checksums import joined_checksum
from lanner.store.checksum import crc32


@pytest.mark.parametrize("size", [1, 2, 3, 64, 255, 256, 1240, 65_537])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 100])
def test_it_is_that_of_the_pieces_together(size: int, count: int) -> None:
    pieces = [random.Random(number).randbytes(size) for number in range(count)]
    sums = np.array([zlib.crc32(piece) for piece in pieces], np.uint32)
    assert joined_checksum(sums, size) == zlib.crc32(b"".join(pieces)) == crc32(b"".join(pieces))


def test_nothing_has_the_checksum_of_nothing() -> None:
    assert joined_checksum(np.zeros(0, np.uint32), 5) == zlib.crc32(b"") == 0


def test_any_wrong_bit_of_any_piece_or_checksum_is_seen() -> None:
    size, count = 40, 9
    data = bytearray(random.Random(5).randbytes(size * count))
    sums = np.array([zlib.crc32(data[at : at + size]) for at in range(0, len(data), size)], np.uint32)
    right = joined_checksum(sums, size)
    for bit in range(0, 8 * len(data), 7):
        data[bit // 8] ^= 1 << bit % 8
        assert zlib.crc32(data) != right
        data[bit // 8] ^= 1 << bit % 8
    for place in range(count):
        for bit in range(32):
            sums[place] ^= np.uint32(1 << bit)
            assert joined_checksum(sums, size) != right
            sums[place] ^= np.uint32(1 << bit)


def test_pieces_in_another_order_have_another_one() -> None:
    sums = np.array([zlib.crc32(b"one"), zlib.crc32(b"two")], np.uint32)
    assert joined_checksum(sums, 3) != joined_checksum(sums[::-1], 3)
