"""RC2 (RFC 2268) in CBC mode with a zero initialization vector, as MS-MQMQ 2.2.19.3 requires.

The library's RC2 supports only 128 effective bits, and the base provider's keys have 40. Encryption
works block by block. The blocks of a CBC message can be decrypted in any order, so all are
decrypted at once, as lanes of long integers. A peer may send 4 MB, and one block at a time would
take seconds.
"""

from __future__ import annotations

import array
import struct
import sys
from typing import Final

BLOCK_SIZE: Final = 8

# RFC 2268 2: a permutation of 0..255 made of the digits of pi.
_PITABLE: Final = bytes.fromhex(
    "d978f9c419ddb5ed28e9fd794aa0d89dc67e37832b76538e624c6488448bfba2"
    "179a59f587b34f1361456d8d09817d32bd8f40eb86b77b0bf09521225c6b4e82"
    "54d66593ce60b21c7356c014a78cf1dc1275ca1f3bbee4d1423dd430a33cb626"
    "6fbf0eda4669075727f21d9bbc944303f811c7f690ef3ee706c3d52fc8661ed7"
    "08e8eade8052eef784aa72ac354d6a2a961ad2715a1549744b9fd05e0418a4ec"
    "c2e0416e0f51cbcc2491af50a1f47039997c3a8523b8b47afc02365b25559731"
    "2d5dfa98e38a92ae05df2910676cbac9d300e6cfe19ea82c6316013f58e289a9"
    "0d38341bab33ffb0bb480c5fb9b1cd2ec5f3db47e5a59c770aa62068fe7fc1ad"
)
_MASK: Final = 0xFFFF
_WORDS: Final = struct.Struct("<4H")
_SHIFTS: Final = (1, 2, 3, 5)
# RFC 2268 3: a mashing round follows the mixing rounds with these numbers (after 5, 6 and 5 of
# them).
_MASH_AFTER: Final = frozenset({4, 10})
_ROUNDS: Final = 16


class Rc2:
    """A key and its expansion. `effective_bits` is T1 of RFC 2268, the effective key length."""

    def __init__(self, key: bytes, effective_bits: int) -> None:
        if not 1 <= len(key) <= 128 or not 1 <= effective_bits <= 1024:
            raise ValueError(f"RC2: a key of {len(key)} octets, {effective_bits} effective bits")
        self._key = _expand(key, effective_bits)

    def encrypt_block(self, block: bytes) -> bytes:
        """Encrypt one block (RFC 2268 3)."""
        words = list(_WORDS.unpack(block))
        key = self._key
        for number in range(_ROUNDS):
            for i, shift in enumerate(_SHIFTS):
                last = words[i - 1]
                mixed = words[i] + key[4 * number + i] + (last & words[i - 2]) + (~last & words[i - 3]) & _MASK
                words[i] = (mixed << shift | mixed >> 16 - shift) & _MASK
            if number in _MASH_AFTER:
                for i in range(4):
                    words[i] = words[i] + key[words[i - 1] & 63] & _MASK
        return _WORDS.pack(*words)

    def encrypt_cbc(self, data: bytes) -> bytes:
        """Encrypt whole blocks, from a zero initialization vector."""
        _check_blocks(data)
        done = []
        last = 0
        for start in range(0, len(data), BLOCK_SIZE):
            block = int.from_bytes(data[start : start + BLOCK_SIZE], "little") ^ last
            encrypted = self.encrypt_block(block.to_bytes(BLOCK_SIZE, "little"))
            last = int.from_bytes(encrypted, "little")
            done.append(encrypted)
        return b"".join(done)

    def decrypt_cbc(self, data: bytes) -> bytes:
        """Decrypt whole blocks, from a zero initialization vector."""
        _check_blocks(data)
        chained = int.from_bytes(data[:-BLOCK_SIZE], "little") << 8 * BLOCK_SIZE
        plain = int.from_bytes(self.decrypt_blocks(data), "little") ^ chained
        return plain.to_bytes(len(data), "little")

    def decrypt_blocks(self, data: bytes) -> bytes:
        """Decrypt every block by itself (RFC 2268 4), all at once.

        Each of the four words is one integer, with a lane of 32 bits for each block. The upper half
        of a lane takes the borrow of a subtraction and the bits that a rotation shifts out.
        """
        count = len(data) // BLOCK_SIZE
        ones = int.from_bytes(b"\1\0\0\0" * count, "little")
        mask = _MASK * ones
        # Three terms of 16 bits are subtracted. This prevents a lane from borrowing from its
        # neighbour.
        loan = ones << 18
        words = _lanes(data)
        for number in reversed(range(_ROUNDS)):
            if number in _MASH_AFTER:
                for i in reversed(range(4)):
                    words[i] = words[i] + loan - self._chosen(words[i - 1] & 63 * ones, count) & mask
            for i in reversed(range(4)):
                shift = _SHIFTS[i]
                word, last = words[i], words[i - 1]
                word = (word >> shift | word << 16 - shift) & mask
                taken = (last & words[i - 2]) + ((last ^ mask) & words[i - 3]) + self._key[4 * number + i] * ones
                words[i] = word + loan - taken & mask
        return _joined(words, count)

    def _chosen(self, places: int, count: int) -> int:
        """Return the word of the expanded key that each lane names."""
        octets = places.to_bytes(4 * count, "little")
        key = self._key
        low = octets.translate(bytes(word & 0xFF for word in key) + bytes(192))
        high = octets.translate(bytes(word >> 8 for word in key) + bytes(192))
        only = int.from_bytes(b"\xff\0\0\0" * count, "little")
        return (int.from_bytes(low, "little") & only) | (int.from_bytes(high, "little") & only) << 8


def _check_blocks(data: bytes) -> None:
    if not data or len(data) % BLOCK_SIZE:
        raise ValueError(f"RC2: {len(data)} octets are not whole blocks of {BLOCK_SIZE}")


def _expand(key: bytes, effective_bits: int) -> tuple[int, ...]:
    """Expand a key of any length to 64 words of at most `effective_bits` strength (RFC 2268 2)."""
    buffer = bytearray(key)
    size = len(key)
    for place in range(size, 128):
        buffer.append(_PITABLE[buffer[place - 1] + buffer[place - size] & 0xFF])
    effective = (effective_bits + 7) // 8
    buffer[128 - effective] = _PITABLE[buffer[128 - effective] & 0xFF >> (-effective_bits & 7)]
    for place in reversed(range(128 - effective)):
        buffer[place] = _PITABLE[buffer[place + 1] ^ buffer[place + effective]]
    return struct.unpack("<64H", buffer)


def _lanes(data: bytes) -> list[int]:
    words = array.array("H", data)
    if sys.byteorder == "big":
        words.byteswap()
    lanes = []
    for first in range(4):
        wide = array.array("I", words[first::4])
        if sys.byteorder == "big":
            wide.byteswap()
        lanes.append(int.from_bytes(wide.tobytes(), "little"))
    return lanes


def _joined(lanes: list[int], count: int) -> bytes:
    data = bytearray(BLOCK_SIZE * count)
    for place, lane in enumerate(lanes):
        octets = lane.to_bytes(4 * count, "little")
        data[2 * place :: BLOCK_SIZE] = octets[::4]
        data[2 * place + 1 :: BLOCK_SIZE] = octets[1::4]
    return bytes(data)
