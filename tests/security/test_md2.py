from __future__ import annotations

import pytest

from lanner.security.md2 import md2


# RFC 1319 A.5.
@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("", "8350e5a3e24c153df2275c9f80692773"),
        ("a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"),
        ("abc", "da853b0d3f88d99b30283a69e6ded6bb"),
        ("message digest", "ab4f496bfb2a530b219ff33031fe06b0"),
        ("abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "da33def2a42df13975352846c30338cd"),
        ("1234567890" * 8, "d5976f79d83d3a0dc9806c3c66f3efd8"),
    ],
)
def test_the_test_suite_of_the_rfc(text: str, digest: str) -> None:
    assert md2(text.encode()).hex() == digest


def test_a_whole_block_is_padded_with_another() -> None:
    assert len({md2(bytes(size)) for size in (15, 16, 17, 31, 32, 33)}) == 6
