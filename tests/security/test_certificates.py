"""MS-MQDMPR 3.1.1.1, 3.1.1.15: internal certificates, and the certificates a user publishes."""

from __future__ import annotations

import datetime as dt
import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lanner.model.directory_objects import User
from lanner.model.errors import InvalidCertificate
from lanner.security.certificates import (
    CertificateWithKey,
    add_certificate,
    certificates_of,
    generate_certificate,
    remove_certificate,
)
from lanner.wire.sid import Sid
from lanner.wire.user_certificates import UserSignCerts

NOW = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def made() -> list[CertificateWithKey]:
    return [generate_certificate(name, NOW) for name in ("one", "two")]


def user(rid: int = 1000) -> User:
    return User(security_identifier=Sid.parse(f"S-1-5-21-1-2-3-{rid}").pack())


def test_a_generated_certificate_is_x509_and_signs_itself(made: list[CertificateWithKey]) -> None:
    certificate = x509.load_der_x509_certificate(made[0].certificate)
    assert certificate.subject == certificate.issuer
    certificate.verify_directly_issued_by(certificate)
    assert certificate.not_valid_before_utc <= NOW < certificate.not_valid_after_utc


@pytest.mark.spec("DMPR-3.1.1.15-1")
def test_digests_are_the_md5_of_the_certificates_in_the_block(made: list[CertificateWithKey]) -> None:
    alice = user()
    for one in made:
        add_certificate(alice, one.certificate)
    assert alice.certificate_digest_list == [hashlib.md5(one.certificate).digest() for one in made]
    assert all(len(digest) == 16 for digest in alice.certificate_digest_list)
    block = UserSignCerts.unpack(alice.certificates)
    assert [entry.certificate for entry in block.certificates] == [one.certificate for one in made]
    assert alice.certificates[:4] == (2).to_bytes(4, "little")
    remove_certificate(alice, alice.certificate_digest_list[0])
    assert alice.certificate_digest_list == [hashlib.md5(made[1].certificate).digest()]
    assert [entry.certificate for entry in certificates_of(alice).certificates] == [made[1].certificate]


def test_a_certificate_is_published_once(made: list[CertificateWithKey]) -> None:
    alice = user()
    first = add_certificate(alice, made[0].certificate)
    assert add_certificate(alice, made[0].certificate) == first
    assert len(alice.certificate_digest_list) == 1


def test_the_private_key_belongs_to_the_certificate(made: list[CertificateWithKey]) -> None:
    private = serialization.load_der_private_key(made[0].private_key, None)
    assert isinstance(private, rsa.RSAPrivateKey)
    public = x509.load_der_x509_certificate(made[0].certificate).public_key()
    assert private.public_key() == public
    assert "private_key" not in repr(made[0])


def test_fail_what_is_no_certificate(made: list[CertificateWithKey]) -> None:
    with pytest.raises(InvalidCertificate, match="not an X"):
        add_certificate(user(), b"none")
    with pytest.raises(InvalidCertificate, match="digest"):
        remove_certificate(user(), bytes(16))
