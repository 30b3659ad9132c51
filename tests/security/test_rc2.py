from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.security.rc2 import BLOCK_SIZE, Rc2

LONG_KEY = "88bca90e90875a7f0f79c384627bafb216f80a6f85920584c42fceb0be255daf1e"


# RFC 2268 5: key, effective bits, plain, encrypted.
@pytest.mark.parametrize(
    ("key", "effective_bits", "plain", "encrypted"),
    [
        ("0000000000000000", 63, "0000000000000000", "ebb773f993278eff"),
        ("ffffffffffffffff", 64, "ffffffffffffffff", "278b27e42e2f0d49"),
        ("3000000000000000", 64, "1000000000000001", "30649edf9be7d2c2"),
        ("88", 64, "0000000000000000", "61a8a244adacccf0"),
        ("88bca90e90875a", 64, "0000000000000000", "6ccf4308974c267f"),
        (LONG_KEY[:32], 64, "0000000000000000", "1a807d272bbe5db1"),
        (LONG_KEY[:32], 128, "0000000000000000", "2269552ab0f85ca6"),
        (LONG_KEY, 129, "0000000000000000", "5b78d3a43dfff1f1"),
    ],
)
def test_the_test_vectors_of_the_rfc(key: str, effective_bits: int, plain: str, encrypted: str) -> None:
    cipher = Rc2(bytes.fromhex(key), effective_bits)
    assert cipher.encrypt_block(bytes.fromhex(plain)).hex() == encrypted
    assert cipher.decrypt_blocks(bytes.fromhex(encrypted)).hex() == plain


def test_forty_effective_bits_in_cbc_mode() -> None:
    """The RFC has no vector with 40 bits.

    This one was computed with another implementation (PyCryptodome's ARC2).
    """
    cipher = Rc2(bytes(range(5)), 40)
    encrypted = bytes.fromhex("7c898b25ff7ee41f8d26e17e5e78ffbe")
    assert cipher.encrypt_cbc(b"sixteen octets!!") == encrypted
    assert cipher.decrypt_cbc(encrypted) == b"sixteen octets!!"


def test_only_the_effective_bits_of_a_key_count() -> None:
    key = bytes(range(16))
    assert Rc2(key, 40).encrypt_block(bytes(8)) != Rc2(key, 128).encrypt_block(bytes(8))
    assert Rc2(key[:5], 40).encrypt_block(bytes(8)) != Rc2(key, 40).encrypt_block(bytes(8))


@given(
    st.binary(min_size=1, max_size=40),
    st.integers(1, 1024),
    st.lists(st.binary(min_size=BLOCK_SIZE, max_size=BLOCK_SIZE), min_size=1, max_size=9).map(b"".join),
)
def test_all_blocks_at_once_are_the_blocks_one_by_one(key: bytes, effective_bits: int, data: bytes) -> None:
    cipher = Rc2(key, effective_bits)
    blocks = [data[start : start + BLOCK_SIZE] for start in range(0, len(data), BLOCK_SIZE)]
    encrypted = [cipher.encrypt_block(block) for block in blocks]
    assert cipher.decrypt_blocks(b"".join(encrypted)) == data
    assert cipher.decrypt_cbc(cipher.encrypt_cbc(data)) == data


@pytest.mark.parametrize("size", [0, 7, 9])
def test_fail_on_parts_of_blocks(size: int) -> None:
    cipher = Rc2(b"key", 40)
    for operation in (cipher.encrypt_cbc, cipher.decrypt_cbc):
        with pytest.raises(ValueError, match="whole blocks"):
            operation(bytes(size))


@pytest.mark.parametrize(("key", "bits"), [(b"", 40), (bytes(129), 40), (b"key", 0), (b"key", 1025)])
def test_fail_on_impossible_keys(key: bytes, bits: int) -> None:
    with pytest.raises(ValueError, match="RC2"):
        Rc2(key, bits)
