"""The queue manager's own RSA keys, one per cryptographic provider (MS-MQDMPR 3.1.3).

There is one set for encryption and one for signing. They are generated at first use and kept in a
file that only the queue manager can read.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.security.private_files import PrivateFileError, locked, read_private, write_private
from lanner.security.profile import Profile
from lanner.security.rsa import RsaKey
from lanner.wire.public_keys import MqdsPublicKey, MqdsPublicKeys, ProviderType, RsaPublicKey

_NUMBERS: Final = ("modulus", "public_exponent", "private_exponent", "prime1", "prime2")


# Not in the specification: a key below the first size is weak, and one below the second is used
# only with `security.legacy_crypto`.
STRONG_KEY_BITS: Final = 2048
SHORTEST_KEY_BITS: Final = 1024


class Provider(enum.Enum):
    """The providers of MS-MQDMPR 3.1.3, with their type (MS-MQMQ 2.2.1) and the size of their keys.

    `bits` is the size in the document. `most_bits` is the size of this queue manager's keys under
    the profile "safe": the base provider has no longer keys for encryption.
    """

    BASE = ("Microsoft Base Cryptographic Provider v1.0", ProviderType.PROV_RSA_FULL, 512, SHORTEST_KEY_BITS)
    ENHANCED = ("Microsoft Enhanced Cryptographic Provider v1.0", ProviderType.PROV_RSA_FULL, 1024, STRONG_KEY_BITS)
    AES = ("Microsoft Enhanced RSA and AES Cryptographic Provider", ProviderType.PROV_RSA_AES, 1024, STRONG_KEY_BITS)

    def __init__(self, provider_name: str, provider_type: ProviderType, bits: int, most_bits: int) -> None:
        self.provider_name = provider_name
        self.provider_type = provider_type
        self.bits = bits
        self.most_bits = most_bits


# MS-MQQB 3.1.7.1.5: the order in which a receiver's keys are chosen.
BEST_FIRST: Final = (Provider.AES, Provider.ENHANCED, Provider.BASE)


@dataclass(frozen=True, slots=True)
class QueueManagerKeys:
    """Both sets of private keys."""

    encryption: dict[Provider, RsaKey] = field(repr=False)
    signing: dict[Provider, RsaKey] = field(repr=False)

    @classmethod
    def generate(cls, profile: Profile = Profile.SAFE) -> QueueManagerKeys:
        sizes = {
            provider: provider.bits if profile is Profile.DOCUMENT else provider.most_bits for provider in Provider
        }
        return cls(*({provider: RsaKey.generate(bits) for provider, bits in sizes.items()} for _ in range(2)))

    @classmethod
    def load_or_create(cls, path: Path | str, profile: Profile = Profile.SAFE) -> QueueManagerKeys:
        """Return the keys in the file; generate and store them if there are none yet.

        Existing keys keep their size.
        """
        path = Path(path)
        data = read_private(path)
        if data is None:
            with locked(path):
                data = read_private(path)
                if data is None:
                    keys = cls.generate(profile)
                    write_private(path, _dump(keys))
                    return keys
        return _load(path, data)

    def public_key_lists(self) -> tuple[bytes, bytes]:
        """Return PublicEncryptionKeyList and PublicSigningKeyList (MS-MQDMPR 3.1.1.1).

        Both are MQDSPUBLICKEYS.
        """
        return public_key_list(self.encryption), public_key_list(self.signing)


def _dump(keys: QueueManagerKeys) -> bytes:
    content = {
        name: {
            provider.name: {number: f"{getattr(key, number):x}" for number in _NUMBERS} for provider, key in one.items()
        }
        for name, one in (("encryption", keys.encryption), ("signing", keys.signing))
    }
    return json.dumps(content, indent=1).encode()


def _load(path: Path, data: bytes) -> QueueManagerKeys:
    try:
        content = json.loads(data)
        keys = [
            {
                provider: RsaKey(*(int(content[name][provider.name][number], 16) for number in _NUMBERS))
                for provider in Provider
            }
            for name in ("encryption", "signing")
        ]
    except (ValueError, LookupError, TypeError) as error:
        # The error itself may quote a number of a private key.
        raise PrivateFileError(
            f"{path} holds no usable keys ({type(error).__name__}): restore it, or remove it to make new ones"
        ) from None
    return QueueManagerKeys(*keys)


def best_key_bits(data: bytes) -> int:
    """Return the size of the key in MQDSPUBLICKEYS that messages are encrypted with.

    Returns 0 if none can be read.
    """
    try:
        keys = MqdsPublicKeys.unpack(data)
        found = (keys.find(provider.provider_name) for provider in BEST_FIRST)
        return next((entry.public_key.bit_length for entry in found if entry is not None), 0)
    except RemoteProtocolError:
        return 0


def weakness(bits: int) -> str | None:
    """Describe the weakness of another computer's RSA key for users; None if there is none."""
    if not bits or bits >= STRONG_KEY_BITS:
        return None
    if bits < SHORTEST_KEY_BITS:
        return f"{bits} bits: too short, and used only with security.legacy_crypto"
    return f"{bits} bits: weak, {STRONG_KEY_BITS} are recommended"


def public_key_list(keys: dict[Provider, RsaKey]) -> bytes:
    """Return the public halves as MQDSPUBLICKEYS (MS-MQMQ 2.2.2)."""
    entries = tuple(
        MqdsPublicKey(
            provider.provider_type,
            provider.provider_name,
            RsaPublicKey(key.modulus, key.public_exponent, key.bits).pack(),
        )
        for provider, key in keys.items()
    )
    return MqdsPublicKeys(entries).pack()
