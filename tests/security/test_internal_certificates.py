from __future__ import annotations

from pathlib import Path

import pytest

from lanner.security.internal_certificates import InternalCertificates
from lanner.security.private_files import PrivateFileError
from lanner.security.signing import SigningKey
from tests.security.samples import NOW

ALICE = "S-1-5-21-1-2-3-1001"
BOB = "S-1-5-21-1-2-3-1002"


def test_a_certificate_is_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "certificates.json"
    certificates = InternalCertificates(path)
    assert certificates.find(ALICE) is None
    assert not path.exists()
    made = certificates.find_or_create(ALICE, "alice", NOW)
    assert path.stat().st_mode & 0o777 == 0o600
    assert InternalCertificates(path).find_or_create(ALICE, "alice", NOW) == made
    assert SigningKey.load(made.certificate, made.private_key).certificate == made.certificate
    other = certificates.find_or_create(BOB, "bob", NOW)
    assert other.certificate != made.certificate
    certificates.remove(ALICE)
    assert certificates.find(ALICE) is None
    assert certificates.find(BOB) == other
    certificates.remove(ALICE)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 2, "certificates": {}}',
        b'{"version": 1, "certificates": []}',
        b'{"version": 1, "certificates": {"S-1": {"certificate": "zz", "private_key": ""}}}',
        b'{"version": 1, "certificates": {"S-1": {"certificate": ""}}}',
    ],
)
def test_fail_on_a_file_that_holds_something_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "certificates.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(PrivateFileError, match="no usable certificates"):
        InternalCertificates(path).find(ALICE)


def test_fail_on_a_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "certificates.json"
    path.write_bytes(b"{}")
    path.chmod(0o644)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        InternalCertificates(path).find(ALICE)
