"""A user's certificates in the directory (MS-MQMQ 2.2.21, 2.2.22).

They are a MQUSERSIGNCERTS with one MQUSERSIGNCERT for each.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from dataclasses import dataclass
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader

DIGEST_SIZE: Final = 16
_FIXED_SIZE: Final = DIGEST_SIZE + 16 + 4


@dataclass(frozen=True, slots=True)
class UserSignCert:
    """MQUSERSIGNCERT, MS-MQMQ 2.2.22. The digest is always the certificate's own MD5."""

    identifier: uuid.UUID
    certificate: bytes  # X.509, DER

    @property
    def digest(self) -> bytes:
        return hashlib.md5(self.certificate, usedforsecurity=False).digest()

    def pack(self) -> bytes:
        return self.digest + self.identifier.bytes_le + struct.pack("<I", len(self.certificate)) + self.certificate

    @classmethod
    def read(cls, reader: Reader) -> UserSignCert:
        digest = reader.take(DIGEST_SIZE, "MQUSERSIGNCERT Digest")
        identifier = reader.guid("MQUSERSIGNCERT Identifier")
        length = reader.u32("MQUSERSIGNCERT CertificateLength")
        entry = cls(identifier, reader.take(length, "MQUSERSIGNCERT Certificate"))
        if entry.digest != digest:
            raise RemoteProtocolError(f"MQUSERSIGNCERT {identifier}: its Digest is not the MD5 of its Certificate")
        return entry


@dataclass(frozen=True, slots=True)
class UserSignCerts:
    """MQUSERSIGNCERTS, MS-MQMQ 2.2.21."""

    certificates: tuple[UserSignCert, ...] = ()

    @property
    def digests(self) -> list[bytes]:
        """CertificateDigestList (MS-MQDMPR 3.1.1.15), in the order of the certificates."""
        return [entry.digest for entry in self.certificates]

    def pack(self) -> bytes:
        return struct.pack("<I", len(self.certificates)) + b"".join(entry.pack() for entry in self.certificates)

    @classmethod
    def unpack(cls, data: bytes) -> UserSignCerts:
        """Parse a block. Empty octets mean a user without certificates."""
        if not data:
            return cls()
        reader = Reader(data)
        count = reader.u32("MQUSERSIGNCERTS CertificateCount")
        # Check before allocating: each entry has a fixed part.
        if count * _FIXED_SIZE > reader.remaining:
            raise RemoteProtocolError(f"CertificateCount {count}: {reader.remaining} bytes follow")
        certificates = tuple(UserSignCert.read(reader) for _ in range(count))
        reader.expect_end("MQUSERSIGNCERTS")
        return cls(certificates)
