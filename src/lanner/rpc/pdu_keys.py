"""Keys of one direction of an NTLM session, to sign and seal PDUs (MS-NLMP 3.4.3, 3.4.4)."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from spnego._ntlm_raw.crypto import rc4init

from lanner.native import chosen

SIGNATURE_SIZE: Final = 16
VERSION: Final = b"\x01\x00\x00\x00"  # MS-NLMP 2.2.2.9.1
_KEY_SIZE: Final = 16
_U32: Final = struct.Struct("<I")


class PduKeys:
    """Keys with extended session security, where NTLM signs the whole PDU.

    The two blocks of HMAC's key (RFC 2104) are digested once, not again for every PDU.
    """

    def __init__(self, sign_key: bytes, seal_key: bytes, has_key_exchange: bool, /) -> None:
        if len(sign_key) != _KEY_SIZE or len(seal_key) != _KEY_SIZE:
            raise ValueError(f"the keys of a session have {_KEY_SIZE} octets")
        block = sign_key.ljust(64, b"\0")
        self._inner = hashlib.md5(bytes(octet ^ 0x36 for octet in block), usedforsecurity=False)
        self._outer = hashlib.md5(bytes(octet ^ 0x5C for octet in block), usedforsecurity=False)
        self._cipher = rc4init(seal_key)
        self._has_key_exchange = has_key_exchange
        self._number = 0

    def protect(self, header: bytes, stub: bytes, trailer: bytes, seals: bool, /) -> bytes:
        """Return the PDU as it is sent, with the next signature of the sequence at its end."""
        body = self._cipher.update(stub) if seals else stub
        return b"".join((header, body, trailer, self._token(header, stub, trailer)))

    def unprotect(self, pdu: bytes, start: int, stop: int, seals: bool, /) -> bytes | None:
        """Return the original stub of a PDU, which has it from `start` to `stop`.

        Return None if the PDU does not end with the next signature of the sequence. Raises
        ValueError if it is too short to do so.
        """
        end = len(pdu) - SIGNATURE_SIZE
        if not 0 <= start <= stop <= end:
            raise ValueError("a PDU is shorter than its parts")
        stub = self._cipher.update(pdu[start:stop]) if seals else pdu[start:stop]
        token = self._token(pdu[:start], stub, pdu[stop:end])
        return stub if hmac.compare_digest(token, pdu[end:]) else None

    def restart(self) -> None:
        """Begin the key stream again. The sequence continues."""
        self._cipher.reset()

    def _token(self, header: bytes, stub: bytes, trailer: bytes) -> bytes:
        number = _U32.pack(self._number)
        self._number = self._number + 1 & 0xFFFF_FFFF
        inner = self._inner.copy()
        inner.update(b"".join((number, header, stub, trailer)))
        outer = self._outer.copy()
        outer.update(inner.digest())
        checksum = outer.digest()[:8]
        if self._has_key_exchange:
            checksum = self._cipher.update(checksum)
        return VERSION + checksum + number


new_keys = chosen(PduKeys)
