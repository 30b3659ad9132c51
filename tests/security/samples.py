"""Keys, certificates and packets that several tests use.

Keys are small and made once: these are tests.
"""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from lanner.security.keys import QueueManagerKeys
from lanner.security.profile import Profile
from lanner.security.signing import SigningKey

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SID = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")


def certificate_of(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, name: str = "alice", public: rsa.RSAPublicKey | None = None
) -> bytes:
    """A certificate signed with `key`; of its public half unless another is given."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public or key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


def signing_key(name: str = "alice") -> SigningKey:
    return _signing_key(name)


@cache
def _signing_key(name: str) -> SigningKey:
    key = rsa.generate_private_key(65_537, 1024)
    return SigningKey(key, certificate_of(key, name))


@cache
def queue_manager_keys(profile: Profile = Profile.SAFE) -> QueueManagerKeys:
    return QueueManagerKeys.generate(profile)


def changed(data: bytes, place: int, value: Any) -> bytes:  # noqa: ANN401 - an octet or octets
    octets = bytes([value]) if isinstance(value, int) else value
    return data[:place] + octets + data[place + len(octets) :]
