"""MS-MQMQ 2.2.21, 2.2.22: the certificates of a user."""

from __future__ import annotations

import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.wire.user_certificates import UserSignCert, UserSignCerts

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
# RFC 1321 A.5: MD5 ("abc").
ENTRY = bytes.fromhex("900150983cd24fb0d6963f7d28e17f72" + "33221100554477668899aabbccddeeff" + "03000000") + b"abc"
BLOCK = bytes.fromhex("02000000") + ENTRY + ENTRY


@pytest.mark.spec("MQMQ-2.2.22-1")
def test_entry_is_digest_identifier_length_certificate() -> None:
    assert UserSignCert(GUID, b"abc").pack() == ENTRY


@pytest.mark.spec("MQMQ-2.2.22-1")
def test_block_is_a_count_and_entries() -> None:
    block = UserSignCerts((UserSignCert(GUID, b"abc"), UserSignCert(GUID, b"abc")))
    assert block.pack() == BLOCK
    assert UserSignCerts.unpack(BLOCK) == block
    assert block.digests == [hashlib.md5(b"abc").digest()] * 2


def test_no_octets_are_no_certificates() -> None:
    assert UserSignCerts.unpack(b"") == UserSignCerts()


@pytest.mark.parametrize("cut", range(1, len(BLOCK)))
def test_fail_truncated(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        UserSignCerts.unpack(BLOCK[:cut])


@pytest.mark.parametrize(
    ("offset", "value", "problem"),
    [
        (0, 1, "left over"),
        (3, 0xFF, "CertificateCount"),
        (4, 0, "Digest"),
        (36, 0xFF, "Certificate"),
        (40, 0, "Digest"),
    ],
)
def test_fail_one_field_wrong(offset: int, value: int, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        UserSignCerts.unpack(BLOCK[:offset] + bytes([value]) + BLOCK[offset + 1 :])


@given(st.lists(st.builds(UserSignCert, st.uuids(), st.binary(max_size=40)), max_size=4))
def test_blocks_come_back(entries: list[UserSignCert]) -> None:
    block = UserSignCerts(tuple(entries))
    assert UserSignCerts.unpack(block.pack()) == block
