"""RFC 1320: MD4."""

from __future__ import annotations

import pytest

from lanner.security.md4 import md4, nt_hash

# RFC 1320 A.5.
VECTORS = [
    ("", "31d6cfe0d16ae931b73c59d7e0c089c0"),
    ("a", "bde52cb31de33e46245e05fbdbd6fb24"),
    ("abc", "a448017aaf21d8525fc10ae87aa6729d"),
    ("message digest", "d9130a8164549fe818874806e1c7014b"),
    ("abcdefghijklmnopqrstuvwxyz", "d79e1c308aa5bbcdeea8ed63df412da9"),
    ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "043f8582f241db351ce627e153e7f0e4"),
    ("1234567890" * 8, "e33b4ddc9c38f2199c3e7b164fcc0536"),
]


@pytest.mark.parametrize(("text", "digest"), VECTORS)
def test_vectors(text: str, digest: str) -> None:
    assert md4(text.encode()).hex() == digest


@pytest.mark.parametrize("size", [55, 56, 63, 64, 119, 120])
def test_padding_around_a_block(size: int) -> None:
    """The length field needs eight octets: 55 still fit into one block, 56 do not."""
    assert len({md4(bytes(size)), md4(bytes(size + 1)), md4(bytes(size - 1))}) == 3


def test_nt_hash() -> None:
    """MS-NLMP 4.2.2.1.2 NTOWFv1 of "Password"."""
    assert nt_hash("Password").hex() == "a4f49c406510bdcab6824ee7c30fd852"
