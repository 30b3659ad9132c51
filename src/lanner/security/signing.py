"""Signing messages and verifying signatures (MS-MQQB 3.1.7.1.4, 3.1.5.8.3; MS-MQMQ 2.2.20.6, 2.5).

Everything here is a pure function of its arguments, so it can run in any thread. A signature is
RSASSA-PKCS1-v1_5 (RFC 8017 8.2) over one of the hash inputs of MS-MQMQ 2.5. No document states the
order of its octets in the packet. They are an integer, and integers of this protocol are written
least significant octet first (MS-MQQB 2.2). So are RSA values in the two places that the document
does describe (2.4.1, 2.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final
from uuid import UUID

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa, utils

from lanner.model.enums import AuthenticationLevel, HashAlgorithm, SenderIdentifierType
from lanner.model.errors import CannotSignDataEx, InvalidCertificate, RemoteProtocolError
from lanner.security.encryption import DEFAULT_PREFERENCES, EncryptionPreferences, is_too_short
from lanner.security.hashing import DEFAULT_HASH_ALGORITHM, Hash, InputTooLong, find_hash
from lanner.security.keys import SHORTEST_KEY_BITS, Provider
from lanner.security.refusal import Refusal
from lanner.security.rsa import RsaKey
from lanner.wire import layout as at
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import (
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MultipleElementFormatName,
)
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys, RsaPublicKey
from lanner.wire.security_header import MAX_SENDER_CERT_SIZE, SecurityHeader, join_provider_info
from lanner.wire.signature_input import hash_input_10, hash_input_20, hash_input_30
from lanner.wire.user_certificates import UserSignCerts
from lanner.wire.user_message import UserMessage

PrivateKey = rsa.RSAPrivateKey | RsaKey

# Providers whose signatures are plain RSA, so that they can be verified here (MS-MQMQ 5, notes 19
# and 21).
SUPPORTED_PROVIDERS: Final = frozenset(
    {provider.provider_name for provider in Provider}
    | {
        "Microsoft AES Cryptographic Provider",
        "Microsoft Enhanced RSA and AES Cryptographic Provider (Prototype)",
        "Microsoft RSA Signature Cryptographic Provider",
        "Microsoft Strong Cryptographic Provider",
    }
)

_INPUTS: Final[dict[AuthenticationLevel, Callable[[Message], bytes]]] = {
    AuthenticationLevel.SIG10: hash_input_10,
    AuthenticationLevel.SIG20: hash_input_20,
    AuthenticationLevel.SIG30: hash_input_30,
}
# MS-MQQB 3.1.5.8.3: 2.0, then 1.0. 3.0 is tried too, because 3.1.7.1.4 lets a sender put such a
# signature here (QQB-3.1.5.8.3-21).
_TRIED: Final[tuple[AuthenticationLevel, ...]] = (
    AuthenticationLevel.SIG20,
    AuthenticationLevel.SIG10,
    AuthenticationLevel.SIG30,
)
_LIBRARY_HASHES: Final[dict[int, hashes.HashAlgorithm]] = {
    HashAlgorithm.MD5: hashes.MD5(),
    HashAlgorithm.SHA1: hashes.SHA1(),
    HashAlgorithm.SHA_256: hashes.SHA256(),
    HashAlgorithm.SHA_512: hashes.SHA512(),
}
# The 3.0 hash does not cover DestinationQueue (MS-MQMQ 2.5.3), because each of several destinations
# has its own.
_ANY_QUEUE: Final = DirectFormatName(r"OS:localhost\private$\any")
# RFC 8017 9.2: two octets before and one after a padding of at least eight.
_ENCODING_OVERHEAD: Final = 11
# Not in the specification: the longest key, in bits, that verifies a signature, with the exponent
# that all usual keys have, and with a larger one. An operation takes two milliseconds at most; with
# any key of MS-MQMQ it could take 200.
_USUAL_EXPONENT: Final = 65_537
_LONGEST_KEY: Final = 8192
_LONGEST_OF_UNUSUAL: Final = 2048


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and the certificate of its public half."""

    key: PrivateKey = field(repr=False)
    certificate: bytes = b""  # X.509, DER; empty when a queue manager signs

    @classmethod
    def load(cls, certificate: bytes, private_key: bytes) -> SigningKey:
        """Load a certificate and its PKCS#8 private key, both DER."""
        try:
            key = serialization.load_der_private_key(private_key, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            # The error itself may quote the key.
            raise InvalidCertificate("the private key is not an RSA key in PKCS#8 and DER, unencrypted") from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise InvalidCertificate("the private key is not an RSA key")
        try:
            public = certificate_key(certificate)
        except Refusal as refusal:
            raise InvalidCertificate(refusal.reason) from None
        if public.modulus != key.public_key().public_numbers().n:
            raise InvalidCertificate("the certificate does not belong to the private key")
        return cls(key, certificate)


# Signing
# --------------------------------------------------------------------------------------------------


def sign(
    packet: bytes,
    signing_key: SigningKey,
    *,
    level: AuthenticationLevel = AuthenticationLevel.SIG20,
    hash_algorithm: HashAlgorithm = DEFAULT_HASH_ALGORITHM,
    provider: tuple[int, str] | None = None,
    queue_manager: UUID | None = None,
) -> bytes:
    """Sign a packet with a plain body. The signature replaces an earlier one.

    A packet with a MultiQueueFormatHeader is signed there, with the 3.0 hash regardless of `level`
    (MS-MQQB 3.1.7.1.4). `provider` (type and name) is the one that the application chose; without
    it, DE states that it chose none. With `queue_manager`, this queue manager signs instead of a
    user.
    """
    if len(signing_key.certificate) > MAX_SENDER_CERT_SIZE:
        raise InvalidCertificate(
            f"certificate of {len(signing_key.certificate)} octets, at most {MAX_SENDER_CERT_SIZE}"
        )
    message = UserMessage.unpack(packet)
    security = message.security_header or SecurityHeader(0)
    flags = security.flags & ~(at.DE | at.AU | at.AS_MASK) | (0 if provider else at.DE)
    identifier = security.security_id
    if queue_manager is not None:
        flags = flags & ~at.ST_MASK | SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
        identifier = queue_manager.bytes_le
    properties = replace(message.message_properties_header, hash_algorithm=hash_algorithm)
    plain = Message(replace(message, message_properties_header=properties).pack())
    signature = signature_of(plain, signing_key.key, _level(plain, level), hash_algorithm)
    several = message.multi_queue_format_header
    if several is not None:
        several = replace(several, signature=replace(several.signature, signature=signature))
        signature = b""
    return replace(
        message,
        message_properties_header=properties,
        multi_queue_format_header=several,
        security_header=replace(
            security,
            flags=flags,
            security_id=identifier,
            signature=signature,
            sender_cert=signing_key.certificate,
            provider_info=join_provider_info(*provider) if provider else b"",
        ),
    ).pack()


def sign_properties(
    properties: MessageProperties,
    signing_key: SigningKey,
    *,
    source: UUID,
    destination: FormatName,
    is_transactional: bool = False,
    level: AuthenticationLevel = AuthenticationLevel.SIG20,
    hash_algorithm: HashAlgorithm = DEFAULT_HASH_ALGORITHM,
) -> MessageProperties:
    """Return properties with the signature for the packet that will be built from them.

    No hash input contains the message's identifier or its times (MS-MQMQ 2.5), so a sender can sign
    outside the queue manager. `destination` may name several queues.
    """
    properties = replace(properties, hash_algorithm=hash_algorithm, signature=b"", multiple_destination_signature=b"")
    if isinstance(destination, (MultipleElementFormatName, DistributionListFormatName)):
        properties.destination_multi_queue_format_name = destination
        destination = _ANY_QUEUE
    packet = build(
        properties,
        source=source,
        ordinal=0,
        sent_time=0,
        destination=destination,
        transaction=0 if is_transactional else None,
    )
    message = Message(packet)
    signature = signature_of(message, signing_key.key, _level(message, level), hash_algorithm)
    properties.sender_certificate = signing_key.certificate
    if properties.destination_multi_queue_format_name is None:
        properties.signature = signature
    else:
        properties.multiple_destination_signature = signature
    return properties


def signature_of(message: Message, key: PrivateKey, level: AuthenticationLevel, hash_algorithm: HashAlgorithm) -> bytes:
    """Return the octets of the signature in the order that a packet has."""
    function = find_hash(hash_algorithm)
    hash_input = _INPUTS.get(level)
    if function is None or hash_input is None:
        raise CannotSignDataEx(f"signature level {level}, hash {hash_algorithm:#06x}: no such signature")
    try:
        digest = function.digest(hash_input(message))
    except InputTooLong as error:
        raise CannotSignDataEx(str(error)) from None
    size = (_bits(key) + 7) // 8
    needed = len(function.digest_info_prefix) + len(digest) + _ENCODING_OVERHEAD
    if size < needed:
        raise CannotSignDataEx(f"a key of {_bits(key)} bits is too short for this hash: {8 * needed} are needed")
    return _rsa_signature(key, function, digest, hash_algorithm, size)[::-1]


def _level(message: Message, wanted: AuthenticationLevel) -> AuthenticationLevel:
    return wanted if message.multi_queue_format_header is None else AuthenticationLevel.SIG30


def _bits(key: PrivateKey) -> int:
    return key.bits if isinstance(key, RsaKey) else key.key_size


def _rsa_signature(key: PrivateKey, function: Hash, digest: bytes, algorithm: HashAlgorithm, size: int) -> bytes:
    """Return the signature of RFC 8017 8.2.1, most significant octet first."""
    if not isinstance(key, RsaKey):
        library_hash = _LIBRARY_HASHES.get(algorithm)
        if library_hash is not None:
            return key.sign(digest, padding.PKCS1v15(), utils.Prehashed(library_hash))
        numbers = key.private_numbers()
        key = RsaKey(numbers.public_numbers.n, numbers.public_numbers.e, numbers.d, numbers.p, numbers.q)
    encoded = _encode(function.digest_info_prefix + digest, size)
    return key.private_operation(int.from_bytes(encoded, "big")).to_bytes(size, "big")


def _encode(digest_info: bytes, size: int) -> bytes:
    """Do EMSA-PKCS1-v1_5 encoding (RFC 8017 9.2)."""
    return b"\0\1" + b"\xff" * (size - len(digest_info) - 3) + b"\0" + digest_info


# Verifying
# --------------------------------------------------------------------------------------------------


def verify(
    message: Message,
    signing_keys: MqdsPublicKeys | None = None,
    preferences: EncryptionPreferences = DEFAULT_PREFERENCES,
) -> AuthenticationLevel:
    """Verify the signature of a message with a plain body (MS-MQQB 3.1.5.8.3).

    Returns NONE if it has no signature. Raises Refusal. Whether the certificate belongs to the
    sender is a separate question: see `is_registered`. A message that a queue manager signed (ST 2)
    is verified with `signing_keys`, the PublicSigningKeyList that the directory has for it: the
    document names no other place for that key (MS-MQMQ 2.2.20.6, note 20).
    """
    if not message.has_security_header:
        return AuthenticationLevel.NONE
    signature, levels = message.signature, _TRIED
    if not signature:
        signature, levels = message.multiple_destination_signature, (AuthenticationLevel.SIG30,)
    if not signature:
        return AuthenticationLevel.NONE
    _check_provider(message)
    function = find_hash(message.hash_algorithm)
    if function is None:
        raise Refusal.bad_signature(f"HashAlgorithm {message.hash_algorithm:#010x} is none of MS-MQMQ 2.2.19.3")
    keys = tuple(_verifying_keys(message, signing_keys))
    usable = [key for key in keys if not is_too_short(key.bit_length, preferences)]
    if not usable:
        bits = max(key.bit_length for key in keys)
        raise Refusal.bad_signature(f"the key has {bits} bits, at least {SHORTEST_KEY_BITS} are needed")
    encoded = [_opened(key, signature) for key in usable]
    try:
        for level in levels:
            info = function.digest_info(_INPUTS[level](message))
            if any(_encode(info, len(one)) == one for one in encoded if len(one) >= len(info) + _ENCODING_OVERHEAD):
                if not preferences.accepts_legacy_signatures and not _covers_destination(message, level):
                    raise Refusal.bad_signature(
                        f"the signature ({level.name}) does not say that the message is for "
                        f"{message.destination_queue_format_name}: have the sender sign with the hash of MSMQ 2.0, "
                        "or set security.legacy_signatures"
                    )
                return level
    except InputTooLong as error:
        raise Refusal.bad_signature(str(error)) from None
    raise Refusal.bad_signature("the signature does not match the message")


def _covers_destination(message: Message, level: AuthenticationLevel) -> bool:
    """Return whether the signature is for this destination alone and proves nothing elsewhere.

    The 1.0 input is application data only, without lengths. A body can therefore contain the whole
    2.0 input of another message, with its source and destination. The 3.0 input contains the list
    of destinations, if there is one, but a distribution list in it does not show which queues it is
    for.
    """
    if level is not AuthenticationLevel.SIG30:
        return level is AuthenticationLevel.SIG20
    several, destination = message.destination_multi_queue_format_name, message.destination_queue_format_name
    if several is None or destination is None:
        return False
    return destination.key in {one.key for one in several.elements}


def is_signed(message: Message) -> bool:
    """Return whether there is a signature to verify."""
    return message.has_security_header and bool(message.signature or message.multiple_destination_signature)


def is_registered(message: Message, certificates: UserSignCerts) -> bool:
    """Return whether the directory has the message's certificate for its sender.

    MS-MQQB 3.1.5.8.3.
    """
    certificate = message.sender_certificate
    return any(entry.certificate == certificate for entry in certificates.certificates)


def _check_provider(message: Message) -> None:
    """Refuse a named provider that is not supported (DECISIONS: with 0x800B)."""
    name = message.authentication_provider_name
    if name and not message.uses_default_provider and name not in SUPPORTED_PROVIDERS:
        raise Refusal.unsupported_provider(f"ProviderName {name!r}: not a provider of RSA signatures")


def _verifying_keys(message: Message, signing_keys: MqdsPublicKeys | None) -> Iterable[RsaPublicKey]:
    if message.sender_identifier_type is not SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER:
        return (certificate_key(message.sender_certificate),)
    if signing_keys is None or not signing_keys.keys:
        raise Refusal.bad_signature("the queue manager that signed has no signing keys in the directory")
    try:
        return tuple(_checked(key.public_key) for key in signing_keys.keys)
    except RemoteProtocolError as error:
        raise Refusal.bad_signature(str(error)) from None


@lru_cache(maxsize=64)
def certificate_key(certificate: bytes) -> RsaPublicKey:
    """Return the RSA key of an X.509 certificate in DER. Raises Refusal for anything else."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise Refusal.bad_signature(f"SenderCert is no X.509 certificate in DER: {error}") from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise Refusal.bad_signature("SenderCert has no RSA key")
    numbers = key.public_numbers()
    return _checked(RsaPublicKey(numbers.n, numbers.e, numbers.n.bit_length()))


def _checked(key: RsaPublicKey) -> RsaPublicKey:
    """Check the size of a key (MS-MQMQ 2.2.20.6: the exponent has 32 bits).

    With larger numbers, a peer could make one verification take as long as it likes.
    """
    longest = _LONGEST_KEY if key.public_exponent <= _USUAL_EXPONENT else _LONGEST_OF_UNUSUAL
    if not 3 <= key.public_exponent <= 0xFFFF_FFFF or not 2 < key.bit_length <= longest:
        raise Refusal.bad_signature(f"RSA key of {key.bit_length} bits, exponent {key.public_exponent:#x}: not usable")
    return key


def _opened(key: RsaPublicKey, signature: bytes) -> bytes:
    """Do steps 1 and 2 of RFC 8017 8.2.2; return nothing if the sizes of both differ."""
    size = (key.bit_length + 7) // 8
    value = int.from_bytes(signature, "little")
    if len(signature) != size or value >= key.modulus:
        return b""
    return pow(value, key.public_exponent, key.modulus).to_bytes(size, "big")
