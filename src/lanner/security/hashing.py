"""The hashes that a message can be signed with (MS-MQMQ 2.2.19.3 HashAlgorithm)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lanner.model.enums import HashAlgorithm
from lanner.security.md2 import md2
from lanner.security.md4 import md4

# MS-MQMQ 2.2.19.3: "The SHA-512 hash algorithm (0x0000800E) SHOULD be used to generate the message
# signature."
DEFAULT_HASH_ALGORITHM: Final = HashAlgorithm.SHA_512


class InputTooLong(ValueError):
    """The input is longer than the limit for a hash that is computed here, octet by octet."""


@dataclass(frozen=True, slots=True)
class Hash:
    """A digest function, its prefix in PKCS#1 signatures, and the limit of its input."""

    function: Callable[[bytes], bytes]
    # DigestInfo up to the digest itself (RFC 8017 9.2, note 1; for MD4 with the identifier of RFC
    # 1320's authors).
    digest_info_prefix: bytes
    # Not in the specification: octets. A peer chooses the hash, and one that no library has is
    # slow: these take about a tenth of a second.
    longest_input: int | None = None

    def digest(self, data: bytes) -> bytes:
        if self.longest_input is not None and len(data) > self.longest_input:
            raise InputTooLong(f"{len(data)} octets, at most {self.longest_input} with this hash")
        return self.function(data)

    def digest_info(self, data: bytes) -> bytes:
        """Return the content of a PKCS#1 v1.5 signature of the data."""
        return self.digest_info_prefix + self.digest(data)


def _library(name: str) -> Callable[[bytes], bytes]:
    def function(data: bytes) -> bytes:
        return hashlib.new(name, data, usedforsecurity=False).digest()

    return function


_HASHES: Final = {
    HashAlgorithm.MD2: Hash(md2, bytes.fromhex("3020300c06082a864886f70d020205000410"), 0x8000),
    HashAlgorithm.MD4: Hash(md4, bytes.fromhex("3020300c06082a864886f70d020405000410"), 0x4_0000),
    HashAlgorithm.MD5: Hash(_library("md5"), bytes.fromhex("3020300c06082a864886f70d020505000410")),
    HashAlgorithm.SHA1: Hash(_library("sha1"), bytes.fromhex("3021300906052b0e03021a05000414")),
    HashAlgorithm.SHA_256: Hash(_library("sha256"), bytes.fromhex("3031300d060960864801650304020105000420")),
    HashAlgorithm.SHA_512: Hash(_library("sha512"), bytes.fromhex("3051300d060960864801650304020305000440")),
}


def find_hash(algorithm: int) -> Hash | None:
    """Return the hash with that number; None for one that the document does not list."""
    return _HASHES.get(algorithm)  # type: ignore[call-overload, no-any-return]  # a number equals its member
