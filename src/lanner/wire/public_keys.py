"""Public keys of queue managers: MQDSPUBLICKEYS and its contents.

MS-MQMQ 2.2.1, 2.2.2; MS-MQDS 2.2.18, 2.2.19.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader, encode_terminated

# MS-MQDS 2.2.19 BLOBHEADER: bType PUBLICKEYBLOB, bVersion 2, reserved, aiKeyAlg.
PUBLICKEYBLOB: Final = 0x06
BLOB_VERSION: Final = 0x02
CALG_RSA_KEYX: Final = 0x0000_A400
# MS-MQDS 2.2.18 RSAPUBKEY: "RSA1".
RSA1: Final = 0x3141_5352

_BLOB_HEADER: Final = struct.Struct("<BBHI")
_RSAPUBKEY: Final = struct.Struct("<III")
_KEY_HEADER: Final = struct.Struct("<III")
_KEYS_HEADER: Final = struct.Struct("<II")

# Not in the specification: no provider of MSMQ generates larger keys, and arithmetic on them is
# expensive.
MAX_KEY_BITS: Final = 16_384
# Not in the specification: MS-MQDMPR 3.1.3 names three providers.
MAX_KEYS: Final = 64


class ProviderType(enum.IntEnum):
    """MS-MQMQ 2.2.1 ulProviderType."""

    PROV_RSA_FULL = 0x01
    PROV_RSA_AES = 0x18


@dataclass(frozen=True, slots=True)
class RsaPublicKey:
    """BLOBHEADER and RSAPUBKEY: an RSA public key as CryptoAPI writes it.

    The modulus is little-endian.
    """

    modulus: int
    public_exponent: int
    bit_length: int

    def pack(self) -> bytes:
        return (
            _BLOB_HEADER.pack(PUBLICKEYBLOB, BLOB_VERSION, 0, CALG_RSA_KEYX)
            + _RSAPUBKEY.pack(RSA1, self.bit_length, self.public_exponent)
            + self.modulus.to_bytes(self.bit_length // 8, "little")
        )

    @classmethod
    def unpack(cls, data: bytes) -> RsaPublicKey:
        reader = Reader(data)
        blob_type, version, _, algorithm = _BLOB_HEADER.unpack(reader.take(_BLOB_HEADER.size, "BLOBHEADER"))
        if (blob_type, version) != (PUBLICKEYBLOB, BLOB_VERSION):
            raise RemoteProtocolError(f"BLOBHEADER type {blob_type:#x} version {version}: a public key blob expected")
        if algorithm != CALG_RSA_KEYX:
            raise RemoteProtocolError(f"BLOBHEADER aiKeyAlg {algorithm:#010x}: {CALG_RSA_KEYX:#010x} expected")
        magic, bits, exponent = _RSAPUBKEY.unpack(reader.take(_RSAPUBKEY.size, "RSAPUBKEY"))
        if magic != RSA1:
            raise RemoteProtocolError(f"RSAPUBKEY magic {magic:#010x}: {RSA1:#010x} expected")
        if not 0 < bits <= MAX_KEY_BITS or bits % 8:
            raise RemoteProtocolError(f"RSAPUBKEY bitlen {bits}: whole octets up to {MAX_KEY_BITS} bits expected")
        modulus = int.from_bytes(reader.take(bits // 8, "RSAPUBKEY modulus"), "little")
        reader.expect_end("RSAPUBKEY")
        if modulus.bit_length() != bits:
            raise RemoteProtocolError(f"RSAPUBKEY modulus of {modulus.bit_length()} bits: bitlen says {bits}")
        return cls(modulus, exponent, bits)


@dataclass(frozen=True, slots=True)
class MqdsPublicKey:
    """MQDSPUBLICKEY, MS-MQMQ 2.2.1. `buffer` (aBuf) is kept unchanged; `public_key` parses it."""

    provider_type: int
    provider_name: str
    buffer: bytes

    @property
    def public_key(self) -> RsaPublicKey:
        return RsaPublicKey.unpack(self.buffer)

    def pack(self) -> bytes:
        name = encode_terminated(self.provider_name)
        return _KEY_HEADER.pack(len(self.buffer), len(name), self.provider_type) + name + self.buffer

    @classmethod
    def read(cls, reader: Reader) -> MqdsPublicKey:
        key_length = reader.u32("ulKeyLen")
        provider_length = reader.u32("ulProviderLen")
        provider_type = reader.u32("ulProviderType")
        if provider_type not in frozenset(ProviderType):
            raise RemoteProtocolError(f"ulProviderType {provider_type:#x}: PROV_RSA_FULL or PROV_RSA_AES expected")
        name = reader.text(provider_length, "sProviderName")
        return cls(provider_type, name, reader.take(key_length, "aBuf"))


@dataclass(frozen=True, slots=True)
class MqdsPublicKeys:
    """MQDSPUBLICKEYS, MS-MQMQ 2.2.2."""

    keys: tuple[MqdsPublicKey, ...] = ()

    def find(self, provider_name: str) -> MqdsPublicKey | None:
        """Return the key of a provider."""
        return next((key for key in self.keys if key.provider_name == provider_name), None)

    def pack(self) -> bytes:
        entries = b"".join(key.pack() for key in self.keys)
        return _KEYS_HEADER.pack(_KEYS_HEADER.size + len(entries), len(self.keys)) + entries

    @classmethod
    def unpack(cls, data: bytes) -> MqdsPublicKeys:
        """Parse a list.

        Empty octets are the empty list of a queue manager that never published keys.
        """
        if not data:
            return cls()
        reader = Reader(data)
        length = reader.u32("ulLen")
        if length != len(data):
            raise RemoteProtocolError(f"ulLen {length}: {len(data)} bytes are there")
        count = reader.u32("cNumofKeys")
        if count > MAX_KEYS:
            raise RemoteProtocolError(f"cNumofKeys {count}: at most {MAX_KEYS}")
        keys = tuple(MqdsPublicKey.read(reader) for _ in range(count))
        reader.expect_end("MQDSPUBLICKEYS")
        return cls(keys)
