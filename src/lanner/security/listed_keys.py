"""PublicSigningKeyList of a queue manager, in the two forms of the documents.

In MS-MQDMPR 3.1.1.1 it is an MQDSPUBLICKEYS. MS-MQDSSM 3.1.6.1.1.9 stores it as an MQUSERSIGNCERTS
in mSMQSignCertificates of the computer's account, which also holds the certificates of that
account. A queue manager publishes the second form in a domain and the first one elsewhere. Both are
accepted everywhere.
"""

from __future__ import annotations

from lanner.model.errors import RemoteProtocolError
from lanner.security.refusal import Refusal
from lanner.security.signing import certificate_key
from lanner.wire.public_keys import MqdsPublicKey, MqdsPublicKeys, ProviderType, RsaPublicKey
from lanner.wire.user_certificates import UserSignCerts


def read_signing_keys(data: bytes, certificate: bytes = b"") -> MqdsPublicKeys:
    """Return the keys of a list that may have signed a message with this certificate.

    From a list of certificates, that is the key of the message's certificate, if it is listed. From
    a list of bare keys, it is each key, or only the certificate's key if the message has one.
    Raises RemoteProtocolError.
    """
    certificates = _certificates(data)
    if certificates is not None:
        return MqdsPublicKeys((_as_key(certificate),) if certificate in certificates else ())
    keys = MqdsPublicKeys.unpack(data)
    if not certificate:
        return keys
    wanted = _key_of(certificate)
    return MqdsPublicKeys(tuple(key for key in keys.keys if _is_same(key.public_key, wanted)))


def lists_certificate(data: bytes, certificate: bytes, *, as_user: bool = False) -> bool:
    """Return whether a list has a certificate, or its key.

    With `as_user`, it must have the certificate itself, because receivers look for that of an
    account.
    """
    if not certificate:
        return False
    try:
        if as_user:
            return certificate in (_certificates(data) or ())
        return bool(read_signing_keys(data, certificate).keys)
    except RemoteProtocolError:
        return False


def published_certificate(data: bytes, modulus: int) -> bytes | None:
    """Return the certificate of a key among those of a list."""
    return next((one for one in _certificates(data) or () if _key_of(one).modulus == modulus), None)


def check_signing_keys(data: bytes) -> None:
    """Raise RemoteProtocolError for octets that are no list of signing keys."""
    if _certificates(data) is None:
        MqdsPublicKeys.unpack(data)


def _certificates(data: bytes) -> tuple[bytes, ...] | None:
    """Return the certificates of an MQUSERSIGNCERTS; None for other octets."""
    try:
        found = tuple(entry.certificate for entry in UserSignCerts.unpack(data).certificates)
    except RemoteProtocolError:
        return None
    return found or None


def _key_of(certificate: bytes) -> RsaPublicKey:
    try:
        return certificate_key(certificate)
    except Refusal as refusal:
        raise RemoteProtocolError(refusal.reason) from None


def _as_key(certificate: bytes) -> MqdsPublicKey:
    key = _key_of(certificate)
    if key.bit_length % 8:
        raise RemoteProtocolError(f"RSA key of {key.bit_length} bits: a multiple of 8 expected")
    return MqdsPublicKey(ProviderType.PROV_RSA_FULL, "", key.pack())


def _is_same(one: RsaPublicKey, other: RsaPublicKey) -> bool:
    return (one.modulus, one.public_exponent) == (other.modulus, other.public_exponent)
