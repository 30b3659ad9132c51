"""Encrypting and decrypting message bodies (MS-MQQB 2.4, 3.1.7.1.5, 3.1.5.8.3; MS-MQMQ 2.2.19.3).

Everything here is a pure function of its arguments, so it can run in any thread, and the caller can
cache session keys (the caches of MS-MQQB 3.1.1.3 belong to the transfer protocol). A sender signs
before it encrypts, and a receiver decrypts before it verifies (DECISIONS).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from lanner.model.enums import EncryptionAlgorithm, MessagePrivacyLevel
from lanner.model.errors import InsufficientResources, PublicKeyNotFound, RemoteProtocolError
from lanner.security.keys import BEST_FIRST, SHORTEST_KEY_BITS, Provider
from lanner.security.rc2 import BLOCK_SIZE as RC2_BLOCK_SIZE
from lanner.security.rc2 import Rc2
from lanner.security.refusal import Refusal
from lanner.security.rsa import RsaKey
from lanner.wire import layout as at
from lanner.wire.encrypted_body import with_plain_body
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys, RsaPublicKey
from lanner.wire.security_header import SecurityHeader, join_provider_info
from lanner.wire.simple_blob import SimpleBlob
from lanner.wire.user_message import UserMessage

PrivateKeys = Mapping[Provider, RsaKey]

# MS-MQQB 3.1.5.8.3: PrivacyLevel and the provider it stands for.
PROVIDERS: Final[dict[int, Provider]] = {
    MessagePrivacyLevel.BASE: Provider.BASE,
    MessagePrivacyLevel.ENHANCED: Provider.ENHANCED,
    MessagePrivacyLevel.ADVANCED: Provider.AES,
}
PRIVACY_LEVELS: Final = {provider: MessagePrivacyLevel(level) for level, provider in PROVIDERS.items()}

# MS-MQMQ 2.2.19.3: the algorithms of each privacy level. MS-MQQB 3.1.7.1.5: the key sizes in
# octets.
_RC: Final = (EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4)
_KEY_SIZES: Final[dict[Provider, dict[int, int]]] = {
    Provider.BASE: dict.fromkeys(_RC, 5),
    Provider.ENHANCED: dict.fromkeys(_RC, 16),
    Provider.AES: {
        EncryptionAlgorithm.AES128: 16,
        EncryptionAlgorithm.AES192: 24,
        EncryptionAlgorithm.AES256: 32,
    },
}
_AES_BLOCK_SIZE: Final = 16
# MS-MQQB 3.1.7.1.5: "the 40-bit key generated MUST be padded with 88 zero bits".
_SHORT_KEY_SIZE: Final = 5
_SHORT_KEY_PADDING: Final = bytes(11)

# RFC 8017 7.2.1: two octets before and one after a padding of at least eight.
_ENCODING_OVERHEAD: Final = 11


@dataclass(frozen=True, slots=True)
class EncryptionPreferences:
    """MS-MQQB 3.1.1.3, with the values of 3.1.3.1."""

    preferred_advanced_algorithm: EncryptionAlgorithm = EncryptionAlgorithm.AES256
    preferred_enhanced_algorithm: EncryptionAlgorithm = EncryptionAlgorithm.RC4
    preferred_base_algorithm: EncryptionAlgorithm = EncryptionAlgorithm.RC4
    send_enhanced_rc2_using_40_bit_keys: bool = False
    reject_enhanced_rc2_using_40_bit_keys: bool = False
    # Not in the specification: whether RSA keys below SHORTEST_KEY_BITS are used, also for
    # decrypting and verifying.
    accepts_short_keys: bool = False
    # Not in the specification: whether to accept a signature that does not cover the queue that it
    # is for.
    accepts_legacy_signatures: bool = False

    def __post_init__(self) -> None:
        for provider in Provider:
            algorithm = self.algorithm(provider)
            if algorithm not in _KEY_SIZES[provider]:
                known = ", ".join(f"{one:#06x}" for one in _KEY_SIZES[provider])
                raise ValueError(f"algorithm {algorithm:#06x} for {provider.provider_name}: one of {known}")

    def algorithm(self, provider: Provider) -> EncryptionAlgorithm:
        return {
            Provider.AES: self.preferred_advanced_algorithm,
            Provider.ENHANCED: self.preferred_enhanced_algorithm,
            Provider.BASE: self.preferred_base_algorithm,
        }[provider]


DEFAULT_PREFERENCES: Final = EncryptionPreferences()


@dataclass(frozen=True, slots=True)
class Selection:
    """UseCSP, UseAlgorithm, UseSymmKeyLength (in octets) and UsePublicKey (MS-MQQB 3.1.7.1.5)."""

    provider: Provider
    algorithm: EncryptionAlgorithm
    key_size: int
    public_key: RsaPublicKey


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A symmetric key, in clear and as a packet carries it."""

    provider: Provider
    algorithm: EncryptionAlgorithm
    symmetric_key: bytes = field(repr=False)
    encrypted_symmetric_key: bytes = field(repr=False)  # SIMPLEBLOB

    @classmethod
    def generate(cls, selection: Selection) -> SessionKey:
        """Return a random key, encrypted for the receiver."""
        key = secrets.token_bytes(selection.key_size)
        if selection.provider is Provider.ENHANCED and selection.key_size == _SHORT_KEY_SIZE:
            key += _SHORT_KEY_PADDING
        blob = SimpleBlob(selection.algorithm, _wrap(key, selection.public_key))
        return cls(selection.provider, selection.algorithm, key, blob.pack())


# Sending
# --------------------------------------------------------------------------------------------------


def select(keys: MqdsPublicKeys, level: int, preferences: EncryptionPreferences = DEFAULT_PREFERENCES) -> Selection:
    """Return the best provider that the receiver has a key of (MS-MQQB 3.1.7.1.5).

    It is never weaker than `level` demands. Raises PublicKeyNotFound.
    """
    for provider in BEST_FIRST:
        entry = keys.find(provider.provider_name)
        if entry is not None:
            algorithm = preferences.algorithm(provider)
            size = _KEY_SIZES[provider][algorithm]
            if (
                provider is Provider.ENHANCED
                and algorithm == EncryptionAlgorithm.RC2
                and preferences.send_enhanced_rc2_using_40_bit_keys
            ):
                size = _SHORT_KEY_SIZE
            try:
                public_key = entry.public_key
            except RemoteProtocolError as error:
                raise PublicKeyNotFound(f"{provider.provider_name}: {error}") from None
            if is_too_short(public_key.bit_length, preferences):
                raise PublicKeyNotFound(
                    f"the receiver's key of {provider.provider_name} has {public_key.bit_length} bits, at least "
                    f"{SHORTEST_KEY_BITS} are needed: have it make a longer one, or set security.legacy_crypto"
                )
            return Selection(provider, algorithm, size, public_key)
        if PRIVACY_LEVELS[provider] == level:
            break
    raise PublicKeyNotFound(f"the receiver has no key for privacy level {level}")


def is_too_short(bits: int, preferences: EncryptionPreferences) -> bool:
    """Return whether an RSA key must not be used."""
    return bits < SHORTEST_KEY_BITS and not preferences.accepts_short_keys


def encrypt_body(packet: bytes, session_key: SessionKey) -> bytes:
    """Return the packet with its body encrypted.

    PrivacyLevel names the provider used, because receivers select by it.
    """
    message = UserMessage.unpack(packet)
    properties = message.message_properties_header
    security = message.security_header or SecurityHeader(0)
    provider = session_key.provider
    body = _encrypt(session_key.algorithm, session_key.symmetric_key, properties.message_body)
    # ProviderInfo of a signature stays if the application named the provider. A receiver finds the
    # provider of the encryption by the PrivacyLevel. With DE set, the field may name that one
    # (DECISIONS).
    is_named = security.signature and not security.uses_default_provider and security.provider_info
    info = security.provider_info if is_named else join_provider_info(provider.provider_type, provider.provider_name)
    encrypted = replace(
        message,
        security_header=replace(
            security,
            flags=security.flags | at.EB,
            encryption_key=session_key.encrypted_symmetric_key,
            provider_info=info,
        ),
        message_properties_header=replace(
            properties,
            message_body=body,
            allocation_body_size=len(body),
            privacy_level=PRIVACY_LEVELS[provider],
            encryption_algorithm=session_key.algorithm,
        ),
    ).pack()
    if len(encrypted) > at.MAX_PACKET_SIZE:
        raise InsufficientResources(
            f"the message makes a packet of {len(encrypted)} octets when encrypted, at most {at.MAX_PACKET_SIZE}"
        )
    return encrypted


# Receiving
# --------------------------------------------------------------------------------------------------


def check_privacy_level(message: Message) -> None:
    """Refuse a bad PrivacyLevel: it "MUST be treated as an authentication failure".

    MS-MQMQ 2.2.19.3.
    """
    level = message.privacy_level
    if level not in PROVIDERS and level != MessagePrivacyLevel.NONE and not message.is_body_encrypted:
        raise Refusal.bad_signature(f"PrivacyLevel {level:#x} is not 0, 1, 3 or 5")


def decrypt_body(
    packet: bytes,
    private_keys: PrivateKeys,
    *,
    symmetric_key: bytes | None = None,
    preferences: EncryptionPreferences = DEFAULT_PREFERENCES,
) -> bytes:
    """Return the packet with its body decrypted and EB cleared; unchanged if EB is clear already.

    Raises Refusal.

    `symmetric_key` is the result of `open_symmetric_key` for a message with the same EncryptionKey
    from the same sender.
    """
    message = Message(packet)
    if not message.is_body_encrypted:
        return packet
    if symmetric_key is None:
        symmetric_key = open_symmetric_key(message, private_keys, preferences)
    algorithm = message.encryption_algorithm
    if (
        preferences.reject_enhanced_rc2_using_40_bit_keys
        and _provider(message) is Provider.ENHANCED
        and algorithm == EncryptionAlgorithm.RC2
        and symmetric_key.endswith(_SHORT_KEY_PADDING)
    ):
        raise Refusal.bad_encryption("RC2 with a key of 40 bits, which is set to be rejected")
    try:
        body = _decrypt(algorithm, symmetric_key, message.body)
    except ValueError as error:
        raise Refusal.bad_encryption(f"the body cannot be decrypted: {error}") from None
    return with_plain_body(message, body)


def open_symmetric_key(
    message: Message, private_keys: PrivateKeys, preferences: EncryptionPreferences = DEFAULT_PREFERENCES
) -> bytes:
    """Decrypt the key in the message, with the private key of the provider in PrivacyLevel."""
    provider = _provider(message)
    size = _KEY_SIZES[provider].get(message.encryption_algorithm)
    if size is None:
        raise Refusal.bad_encryption(
            f"EncryptionAlgorithm {message.encryption_algorithm:#010x} with PrivacyLevel {message.privacy_level}"
        )
    private_key = private_keys.get(provider)
    if private_key is None:
        raise Refusal.bad_encryption(f"there is no key of {provider.provider_name}")
    if is_too_short(private_key.bits, preferences):
        raise Refusal.bad_encryption(f"the key of {provider.provider_name} has only {private_key.bits} bits")
    try:
        blob = SimpleBlob.unpack(message.symmetric_key)
    except RemoteProtocolError as error:
        raise Refusal.bad_encryption(str(error)) from None
    if blob.session_key_algorithm != message.encryption_algorithm:
        raise Refusal.bad_encryption(f"the session key is one for {blob.session_key_algorithm:#010x}")
    key = _unwrap(blob.encrypted_key, private_key)
    if key is None or len(key) != size:
        raise Refusal.bad_encryption("the session key cannot be decrypted")
    return key


def _provider(message: Message) -> Provider:
    provider = PROVIDERS.get(message.privacy_level)
    if provider is None:
        raise Refusal.bad_encryption(f"PrivacyLevel {message.privacy_level:#x} of an encrypted body is not 1, 3 or 5")
    return provider


# Ciphers
# --------------------------------------------------------------------------------------------------


def _encrypt(algorithm: int, key: bytes, data: bytes) -> bytes:
    if algorithm == EncryptionAlgorithm.RC4:
        return _rc4(key, data)
    if algorithm == EncryptionAlgorithm.RC2:
        return _rc2(key).encrypt_cbc(_padded(data, RC2_BLOCK_SIZE))
    encryptor = _aes(key).encryptor()
    return encryptor.update(_padded(data, _AES_BLOCK_SIZE)) + encryptor.finalize()


def _decrypt(algorithm: int, key: bytes, data: bytes) -> bytes:
    """Decrypt data. Raises ValueError."""
    if algorithm == EncryptionAlgorithm.RC4:
        return _rc4(key, data)
    if algorithm == EncryptionAlgorithm.RC2:
        return _unpadded(_rc2(key).decrypt_cbc(data), RC2_BLOCK_SIZE)
    decryptor = _aes(key).decryptor()
    return _unpadded(decryptor.update(data) + decryptor.finalize(), _AES_BLOCK_SIZE)


def _rc4(key: bytes, data: bytes) -> bytes:
    return Cipher(ARC4(key), None).encryptor().update(data)


def _rc2(key: bytes) -> Rc2:
    """Return the cipher for a key of the base provider: its 40 bits and nothing else.

    This follows the document's text. By default, Microsoft's CryptoAPI appends eleven zero octets
    of salt to a key of exactly 40 bits. Only a Windows peer can show whether MSMQ keeps that
    default. It would concern this function and `_rc4`.
    """
    return Rc2(key, 8 * len(key))


def _aes(key: bytes) -> Cipher[modes.CBC]:
    return Cipher(algorithms.AES(key), modes.CBC(bytes(_AES_BLOCK_SIZE)))


def _padded(data: bytes, block: int) -> bytes:
    """Add PKCS#5 padding: 1 to `block` octets, each of which contains their number."""
    gap = block - len(data) % block
    return data + bytes([gap]) * gap


def _unpadded(data: bytes, block: int) -> bytes:
    gap = data[-1] if data else 0
    if not 1 <= gap <= block or data[-gap:] != bytes([gap]) * gap:
        raise ValueError("the padding is wrong")
    return data[:-gap]


# RSAES-PKCS1-v1_5 (RFC 8017 7.2), least significant octet first (MS-MQQB 2.4.2)
# -------------------------------------


def _wrap(key: bytes, public_key: RsaPublicKey) -> bytes:
    size = public_key.bit_length // 8
    gap = size - len(key) - 3
    if gap < _ENCODING_OVERHEAD - 3 or public_key.public_exponent < 3:
        raise PublicKeyNotFound(f"a public key of {public_key.bit_length} bits cannot protect a session key")
    padding = bytes(1 + secrets.randbelow(255) for _ in range(gap))
    value = int.from_bytes(b"\0\2" + padding + b"\0" + key, "big")
    return pow(value, public_key.public_exponent, public_key.modulus).to_bytes(size, "little")


def _unwrap(encrypted: bytes, private_key: RsaKey) -> bytes | None:
    """Return the key; None for any error.

    The reason must not be revealed (RFC 8017 7.2.2, note).
    """
    value = int.from_bytes(encrypted, "little")
    if value >= private_key.modulus:
        return None
    size = (private_key.bits + 7) // 8
    encoded = private_key.private_operation(value).to_bytes(size, "big")
    end = encoded.find(b"\0", 2)
    if encoded[:2] != b"\0\2" or end < _ENCODING_OVERHEAD - 1:
        return None
    return encoded[end + 1 :]
