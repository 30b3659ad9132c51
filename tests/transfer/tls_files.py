"""Certificates for tests, by authorities or self-signed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as objects and as files."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    certificate_file: Path
    key_file: Path

    @property
    def settings(self) -> dict[str, object]:
        """The settings of a queue manager that shows it."""
        return {"tls_certificate": self.certificate_file, "tls_key": self.key_file}


def issue(
    folder: Path,
    name: str,
    *,
    guid: UUID | None = None,
    names: Iterable[str] | None = None,
    by: Issued | None = None,
    may_issue: bool = False,
    days: float = 30,
    age: float = 1,
    purposes: Iterable[x509.ObjectIdentifier] = BOTH,
    key: ec.EllipticCurvePrivateKey | None = None,
) -> Issued:
    """Issue a certificate, self-signed if there is no authority.

    It is `age` days old and valid for `days` more.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    alternatives: list[x509.GeneralName] = [x509.DNSName(one) for one in ([name] if names is None else names)]
    if guid is not None:
        alternatives.append(x509.UniformResourceIdentifier(f"urn:uuid:{guid}"))
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=age))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=may_issue, path_length=None), critical=True)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    if not may_issue:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    certificate = builder.sign(key if by is None else by.key, hashes.SHA256())
    folder.mkdir(parents=True, exist_ok=True)
    certificate_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    certificate_file.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_file.touch(0o600)
    key_file.chmod(0o600)
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Issued(certificate, key, certificate_file, key_file)


def authority(folder: Path, name: str) -> Issued:
    """Make a certificate that may issue others."""
    return issue(folder, name, names=(), may_issue=True)
