"""Keys of a Kerberos principal from its password, and the file that a server keeps them in.

The keys are those of RFC 3962 (AES) and RFC 4757 (RC4). The file has the format that MIT Kerberos
and Heimdal read: version 0x0502, with every number most significant octet first.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from lanner.security.md4 import nt_hash

# RFC 3961 8, RFC 4757 5.
AES128: Final = 17
AES256: Final = 18
RC4: Final = 23
_AES_SIZES: Final = {AES256: 32, AES128: 16}
# RFC 3962 4: the default of a salt without parameters.
_ITERATIONS: Final = 4096
# RFC 3961 5.3: the 128-fold of the word "kerberos".
_FOLDED: Final = bytes.fromhex("6b65726265726f737b9b5b2b93132b93")

_VERSION: Final = b"\x05\x02"
_NT_PRINCIPAL: Final = 1


def computer_salt(realm: str, computer: str) -> str:
    """Return the salt of a computer account's keys (MS-KILE 3.1.1.2)."""
    return f"{realm.upper()}host{computer.lower()}.{realm.lower()}"


def aes_key(encryption_type: int, password: str, salt: str) -> bytes:
    """Return the key of a password (RFC 3962 4, string to key)."""
    size = _AES_SIZES[encryption_type]
    key = hashlib.pbkdf2_hmac("sha1", password.encode(), salt.encode(), _ITERATIONS, size)
    # One block at a time with a zero vector: the cipher's modes make no difference.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    derived, block = b"", _FOLDED
    while len(derived) < size:
        block = encryptor.update(block)
        derived += block
    return derived[:size]


def keytab(realm: str, principals: Iterable[str], password: str, salt: str, version: int) -> bytes:
    """Return a file with the keys of a password for each of several names of one account."""
    keys = [(kind, aes_key(kind, password, salt)) for kind in _AES_SIZES] + [(RC4, nt_hash(password))]
    entries = [_entry(realm, name, kind, key, version) for name in principals for kind, key in keys]
    return _VERSION + b"".join(struct.pack(">i", len(entry)) + entry for entry in entries)


def _entry(realm: str, name: str, encryption_type: int, key: bytes, version: int) -> bytes:
    components = name.split("/")
    return b"".join(
        (
            struct.pack(">H", len(components)),
            _counted(realm.encode()),
            *(_counted(component.encode()) for component in components),
            # The time of the change is not disclosed.
            struct.pack(">IIB", _NT_PRINCIPAL, 0, version & 0xFF),
            struct.pack(">H", encryption_type),
            _counted(key),
            struct.pack(">I", version),
        )
    )


def _counted(octets: bytes) -> bytes:
    return struct.pack(">H", len(octets)) + octets
