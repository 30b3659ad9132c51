"""Certificates of users: making internal ones, and the list in a user's object.

MS-MQDMPR 3.1.1.15, 3.1.1.19.
"""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from lanner.model.directory_objects import User
from lanner.model.errors import InvalidCertificate
from lanner.wire.user_certificates import UserSignCert, UserSignCerts

# Not in the specification: any size that a provider of MS-MQDMPR 3.1.3 can verify would do.
INTERNAL_KEY_BITS: Final = 2048
PUBLIC_EXPONENT: Final = 65_537
# Internal certificates are trusted because the directory publishes them, not because of their
# dates.
VALIDITY: Final = dt.timedelta(days=8 * 365)
# RFC 5280 A.1 ub-common-name.
MAX_COMMON_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class CertificateWithKey:
    """A new certificate and its private key (PKCS#8, unencrypted), in DER or PEM."""

    certificate: bytes
    private_key: bytes = field(repr=False)


def generate_certificate(name: str, now: dt.datetime) -> CertificateWithKey:
    """Make a key and a self-signed X.509 certificate for it, both in DER."""
    key = rsa.generate_private_key(PUBLIC_EXPONENT, INTERNAL_KEY_BITS)
    return CertificateWithKey(
        self_signed(key, name, now),
        key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def self_signed(key: rsa.RSAPrivateKey, name: str, now: dt.datetime) -> bytes:
    """Make a self-signed X.509 certificate for a key, in DER."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:MAX_COMMON_NAME])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


def certificates_of(user: User) -> UserSignCerts:
    return UserSignCerts.unpack(user.certificates)


def add_certificate(user: User, certificate: bytes, identifier: uuid.UUID | None = None) -> UserSignCert:
    """Publish a certificate on the user's object; leave an existing one as it is."""
    try:
        x509.load_der_x509_certificate(certificate)
    except ValueError as error:
        raise InvalidCertificate(f"not an X.509 certificate in DER: {error}") from error
    entries = certificates_of(user).certificates
    entry = UserSignCert(identifier or uuid.uuid4(), certificate)
    known = next((one for one in entries if one.digest == entry.digest), None)
    if known is not None:
        return known
    _set(user, (*entries, entry))
    return entry


def remove_certificate(user: User, digest: bytes) -> None:
    """Remove a certificate from the user's object."""
    entries = certificates_of(user).certificates
    kept = tuple(entry for entry in entries if entry.digest != digest)
    if len(kept) == len(entries):
        raise InvalidCertificate(f"no certificate with the digest {digest.hex()}")
    _set(user, kept)


def _set(user: User, entries: tuple[UserSignCert, ...]) -> None:
    """Set digests and certificates in the same order (MS-MQDMPR 3.1.1.15)."""
    block = UserSignCerts(entries)
    user.certificates = block.pack()
    user.certificate_digest_list = block.digests
