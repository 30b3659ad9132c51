"""MD4 (RFC 1320): the hash of NTLM passwords and one of the message hashes.

No library has it any more.
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = 0xFFFF_FFFF
_BLOCK: Final = struct.Struct("<16I")
# RFC 1320 3.4: the constant of each round, the order of the words, and the shifts.
_ROUNDS: Final = (
    (0x0000_0000, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), (3, 7, 11, 19)),
    (0x5A82_7999, (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), (3, 5, 9, 13)),
    (0x6ED9_EBA1, (0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15), (3, 9, 11, 15)),
)


def md4(data: bytes) -> bytes:
    """Return the 16-octet digest."""
    padded = data + b"\x80" + bytes((55 - len(data)) % 64) + struct.pack("<Q", len(data) * 8 & (1 << 64) - 1)
    state = (0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476)
    for words in _BLOCK.iter_unpack(padded):
        a, b, c, d = state
        for number, (constant, order, shifts) in enumerate(_ROUNDS):
            for step, index in enumerate(order):
                if number == 0:
                    mixed = b & c | ~b & d
                elif number == 1:
                    mixed = b & c | b & d | c & d
                else:
                    mixed = b ^ c ^ d
                total = a + mixed + words[index] + constant & _MASK
                shift = shifts[step % 4]
                a, b, c, d = d, (total << shift | total >> 32 - shift) & _MASK, b, c
        state = tuple(old + new & _MASK for old, new in zip(state, (a, b, c, d), strict=True))  # type: ignore[assignment]  # four of them
    return struct.pack("<4I", *state)


def nt_hash(password: str) -> bytes:
    """Return the hash that NTLM keeps instead of a password (NTOWFv1, MS-NLMP 3.3.1)."""
    return md4(password.encode("utf-16-le", "surrogatepass"))
