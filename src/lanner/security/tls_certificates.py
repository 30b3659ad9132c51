"""The self-signed certificate that a queue manager presents to others over TLS.

Its alternative names identify the computer and the queue manager: the computer name, the host name,
and the identifier of the queue manager as urn:uuid:. It may not issue other certificates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lanner.security.certificates import MAX_COMMON_NAME, CertificateWithKey

# The clocks of two computers differ: a new certificate must be valid at once on the other one, too.
_CLOCK_TOLERANCE: Final = dt.timedelta(hours=1)


def make_tls_certificate(
    names: Iterable[str], queue_manager: UUID, now: dt.datetime, validity: dt.timedelta
) -> CertificateWithKey:
    """Make a P-256 key and a self-signed certificate for it, both in PEM."""
    names = list(dict.fromkeys(name for name in names if name))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:MAX_COMMON_NAME])])
    public_key = key.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(
            x509.SubjectAlternativeName(
                [*map(x509.DNSName, names), x509.UniformResourceIdentifier(f"urn:uuid:{queue_manager}")]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return CertificateWithKey(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
