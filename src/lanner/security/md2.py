"""MD2 (RFC 1319), one of the message hashes of MS-MQMQ 2.2.19.3. No library has it any more."""

from __future__ import annotations

from typing import Final

# RFC 1319 3.2: a permutation of 0..255 made of the digits of pi.
_S: Final = bytes.fromhex(
    "292e43c9a2d87c013d3654a1ecf0061362a705f3c0c7738c98932bd9bc4c82ca"
    "1e9b573cfdd4e01667426f188a17e512be4ec4d6da9ede49a0fbf58ebb2fee7a"
    "a968799115b2073f94c210890b225f21807f5d9a5a903227353ecce7bff79703"
    "ff1930b348a5b5d1d75e922aac56aac64fb838d296a47db676fc6be29c7404f1"
    "459d705964718720865bcf65e62da8021b6025adaeb0b9f61c46616934407e0f"
    "5547a323dd51af3ac35cf9cebac5ea262c530d6e85288409d3dfcdf441814d52"
    "6adc37c86cc1abfa24e17b080cbdb14a7888958be363e86de9cbd5fe3b001d39"
    "f2efb70e6658d0e4a67772f8eb754b0a314450b48fed1f1adb998d339f118314"
)
_BLOCK: Final = 16
_ROUNDS: Final = 18


def md2(data: bytes) -> bytes:
    """Return the 16-octet digest."""
    gap = _BLOCK - len(data) % _BLOCK
    padded = data + bytes([gap]) * gap
    state = bytes(_BLOCK)
    for start in range(0, len(padded), _BLOCK):
        state = _mixed(state, padded[start : start + _BLOCK])
    return _mixed(state, _checksum(padded))


def _checksum(padded: bytes) -> bytes:
    """Return the checksum of RFC 1319 3.2.

    The text omits that the new value is XORed in, but its code and its test suite do it.
    """
    checksum = bytearray(_BLOCK)
    last = 0
    for start in range(0, len(padded), _BLOCK):
        for place in range(_BLOCK):
            checksum[place] ^= _S[padded[start + place] ^ last]
            last = checksum[place]
    return bytes(checksum)


def _mixed(state: bytes, block: bytes) -> bytes:
    """Mix one block into the first third of the 48-octet buffer (RFC 1319 3.4)."""
    both = bytes(left ^ right for left, right in zip(state, block, strict=True))
    buffer = [*state, *block, *both]
    carried = 0
    for number in range(_ROUNDS):
        for place, value in enumerate(buffer):
            buffer[place] = carried = value ^ _S[carried]
        carried = carried + number & 0xFF
    return bytes(buffer[:_BLOCK])
