"""RSA keys per provider, their sizes and validity, and the file that stores them.

MS-MQDMPR 3.1.3.
"""

from __future__ import annotations

import math
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from lanner.security.keys import Provider, QueueManagerKeys
from lanner.security.private_files import PrivateFileError
from lanner.security.profile import Profile
from lanner.security.rsa import RsaKey, generate_prime, is_probable_prime
from lanner.wire.public_keys import MqdsPublicKeys

PROVIDERS = [
    ("Microsoft Base Cryptographic Provider v1.0", 0x01, 512),
    ("Microsoft Enhanced Cryptographic Provider v1.0", 0x01, 1024),
    ("Microsoft Enhanced RSA and AES Cryptographic Provider", 0x18, 1024),
]


@pytest.fixture(scope="module")
def keys() -> QueueManagerKeys:
    return QueueManagerKeys.generate(Profile.DOCUMENT)


def test_keys_are_as_long_as_their_provider_allows() -> None:
    """The sizes are not the document's: keys have 2,048 bits.

    The base provider has at most 1,024 for encryption.
    """
    keys = QueueManagerKeys.generate()
    for private in (keys.encryption, keys.signing):
        assert {provider: key.bits for provider, key in private.items()} == {
            Provider.BASE: 1024,
            Provider.ENHANCED: 2048,
            Provider.AES: 2048,
        }


def test_keys_that_are_there_keep_their_size(tmp_path: Path) -> None:
    """Other computers have the public halves already."""
    path = tmp_path / "keys.json"
    first = QueueManagerKeys.load_or_create(path, Profile.DOCUMENT)
    assert QueueManagerKeys.load_or_create(path, Profile.SAFE) == first


@pytest.mark.spec("DMPR-3.1.3-5")
def test_both_lists_have_a_key_of_each_provider(keys: QueueManagerKeys) -> None:
    encryption, signing = keys.public_key_lists()
    assert encryption != signing
    for data in (encryption, signing):
        entries = MqdsPublicKeys.unpack(data).keys
        assert [(key.provider_name, key.provider_type) for key in entries] == [one[:2] for one in PROVIDERS]
        for name, _, _ in PROVIDERS:
            assert (name + "\0").encode("utf-16-le") in data


@pytest.mark.spec("DMPR-3.1.3-6")
def test_sizes_and_validity_of_the_keys(keys: QueueManagerKeys) -> None:
    """RFC 8017 3.1: n is a product of distinct odd primes, 3 <= e < n, gcd(e, lambda(n)) = 1.

    3.2: e d = 1.
    """
    for private in (keys.encryption, keys.signing):
        assert [key.bits for key in private.values()] == [bits for _, _, bits in PROVIDERS]
        for key in private.values():
            assert key.prime1 * key.prime2 == key.modulus
            assert key.prime1 != key.prime2
            assert is_probable_prime(key.prime1)
            assert is_probable_prime(key.prime2)
            order = math.lcm(key.prime1 - 1, key.prime2 - 1)
            assert 3 <= key.public_exponent < key.modulus
            assert math.gcd(key.public_exponent, order) == 1
            assert key.public_exponent * key.private_exponent % order == 1
    for data, private in zip(keys.public_key_lists(), (keys.encryption, keys.signing), strict=True):
        for entry, key in zip(MqdsPublicKeys.unpack(data).keys, private.values(), strict=True):
            public = entry.public_key
            assert (public.modulus, public.public_exponent, public.bit_length) == (
                key.modulus,
                key.public_exponent,
                key.bits,
            )


def test_no_two_keys_are_the_same(keys: QueueManagerKeys) -> None:
    moduli = [key.modulus for private in (keys.encryption, keys.signing) for key in private.values()]
    assert len(set(moduli)) == len(moduli)


def test_private_operation_undoes_the_public_one(keys: QueueManagerKeys) -> None:
    for key in keys.encryption.values():
        message = 0x1234_5678_9ABC_DEF0
        assert key.private_operation(pow(message, key.public_exponent, key.modulus)) == message
        with pytest.raises(ValueError, match="modulus"):
            key.private_operation(key.modulus)


def test_keys_are_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = QueueManagerKeys.load_or_create(path)
    assert QueueManagerKeys.load_or_create(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_fail_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("{}")
    path.chmod(0o644)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        QueueManagerKeys.load_or_create(path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"encryption": {"BASE": {}}}'])
def test_fail_damaged_file_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(PrivateFileError, match="no usable keys"):
        QueueManagerKeys.load_or_create(path)
    assert path.read_text() == content


def test_fail_changed_number_is_found_and_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key = QueueManagerKeys.load_or_create(path).encryption[Provider.BASE]
    path.write_text(path.read_text().replace(f"{key.private_exponent:x}", f"{key.private_exponent ^ 2:x}"))
    with pytest.raises(PrivateFileError) as caught:
        QueueManagerKeys.load_or_create(path)
    assert f"{key.private_exponent ^ 2:x}" not in str(caught.value)


def test_repr_hides_the_private_half(keys: QueueManagerKeys) -> None:
    key = keys.encryption[Provider.BASE]
    assert str(key.private_exponent) not in repr(key) + repr(keys)
    assert str(key.prime1) not in repr(key) + repr(keys)


# Primes: small ones, Mersenne primes, Carmichael numbers, strong pseudoprimes to base 2, products
# of two primes.
@pytest.mark.parametrize("number", [2, 3, 5, 1999, 2003, 104_729, 2**61 - 1, 2**127 - 1, 2**521 - 1])
def test_primes_pass(number: int) -> None:
    assert is_probable_prime(number)


@pytest.mark.parametrize(
    "number",
    [
        -7,
        0,
        1,
        4,
        561,
        2047,
        3_215_031_751,
        2003 * 2003,
        825_265 * 2003,
        341_550_071_728_321,
        (2**61 - 1) * (2**89 - 1),
        2**521 + 1,
        56_052_361,
        3_825_123_056_546_413_051,
    ],
)
def test_composites_fail(number: int) -> None:
    assert not is_probable_prime(number)


def test_agrees_with_trial_division() -> None:
    for number in range(2000, 6000):
        is_prime = all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
        assert is_probable_prime(number) == is_prime


def test_primes_of_the_library_pass_and_their_products_fail() -> None:
    numbers = rsa.generate_private_key(65537, 1024).private_numbers()
    assert is_probable_prime(numbers.p)
    assert is_probable_prime(numbers.q)
    assert not is_probable_prime(numbers.p * numbers.q)


@pytest.mark.parametrize("bits", [64, 128, 256])
def test_generated_primes_have_their_size(bits: int) -> None:
    prime = generate_prime(bits)
    assert prime.bit_length() == bits
    assert prime >> bits - 2 == 0b11
    assert pow(2, prime - 1, prime) == 1


def test_fail_numbers_that_do_not_belong_together() -> None:
    key = RsaKey.generate(512)
    with pytest.raises(ValueError, match="RFC 8017"):
        RsaKey(key.modulus, key.public_exponent, key.private_exponent + 2, key.prime1, key.prime2)
    with pytest.raises(ValueError, match="RFC 8017"):
        RsaKey(key.prime1**2, key.public_exponent, key.private_exponent, key.prime1, key.prime1)
