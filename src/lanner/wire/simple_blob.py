"""SIMPLEBLOB: a session key encrypted with the receiver's public key (MS-MQQB 2.4.2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.wire.public_keys import BLOB_VERSION, CALG_RSA_KEYX
from lanner.wire.reader import Reader

SIMPLEBLOB: Final = 0x01
_LAYOUT: Final = struct.Struct("<BBHII")


@dataclass(frozen=True, slots=True)
class SimpleBlob:
    """`encrypted_key` is as long as the RSA modulus, least significant byte first.

    The 256 bytes in the document's figure are one case.
    """

    session_key_algorithm: int
    encrypted_key: bytes

    def pack(self) -> bytes:
        return _LAYOUT.pack(SIMPLEBLOB, BLOB_VERSION, 0, self.session_key_algorithm, CALG_RSA_KEYX) + self.encrypted_key

    @classmethod
    def unpack(cls, data: bytes) -> SimpleBlob:
        reader = Reader(data)
        kind, version, _, algorithm, exchange = _LAYOUT.unpack(reader.take(_LAYOUT.size, "SIMPLEBLOB"))
        if (kind, version) != (SIMPLEBLOB, BLOB_VERSION):
            raise RemoteProtocolError(f"SIMPLEBLOB type {kind:#x} version {version}: a session key blob expected")
        if exchange != CALG_RSA_KEYX:
            raise RemoteProtocolError(f"SIMPLEBLOB: key exchange {exchange:#010x}, {CALG_RSA_KEYX:#010x} expected")
        return cls(algorithm, reader.take(reader.remaining, "SIMPLEBLOB.encryptedKey"))
