"""RSA keys of the sizes that MSMQ uses (RFC 8017 3.1, 3.2), including 512 bits.

The cryptography package generates no key below 1024 bits, but MS-MQDMPR 3.1.3 requires 512 for the
base provider. Such primes are therefore found here: random odd numbers, sieved by small primes,
then Miller-Rabin.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

PUBLIC_EXPONENT: Final = 65_537
# The smallest key that the cryptography package generates.
SMALLEST_LIBRARY_KEY: Final = 1024
# FIPS 186-5 B.3.1 requires 7 rounds for 512-bit primes and an error of 2**-100. More rounds cost
# nothing at these sizes.
MILLER_RABIN_ROUNDS: Final = 40
_SIEVE_LIMIT: Final = 2000


def _small_primes(limit: int) -> tuple[int, ...]:
    is_prime = bytearray([1]) * limit
    is_prime[:2] = b"\0\0"
    for number in range(2, math.isqrt(limit) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return tuple(number for number in range(limit) if is_prime[number])


SMALL_PRIMES: Final = _small_primes(_SIEVE_LIMIT)


def is_probable_prime(number: int, rounds: int = MILLER_RABIN_ROUNDS) -> bool:
    """Test a number by Miller-Rabin with random bases.

    A composite passes with a probability below 4**-rounds.
    """
    if number < 2:
        return False
    for prime in SMALL_PRIMES:
        if number % prime == 0:
            return number == prime
    odd = number - 1
    twos = (odd & -odd).bit_length() - 1
    odd >>= twos
    return all(_is_no_witness(2 + secrets.randbelow(number - 3), odd, twos, number) for _ in range(rounds))


def _is_no_witness(base: int, odd: int, twos: int, number: int) -> bool:
    value = pow(base, odd, number)
    if value in (1, number - 1):
        return True
    for _ in range(twos - 1):
        value = value * value % number
        if value == number - 1:
            return True
    return False


def generate_prime(bits: int) -> int:
    """Return a random prime with this many bits.

    Its two highest bits are set, so that the product of two such primes has twice as many bits.
    """
    top = 0b11 << bits - 2
    while True:
        candidate = secrets.randbits(bits) | top | 1
        if math.gcd(candidate - 1, PUBLIC_EXPONENT) == 1 and is_probable_prime(candidate):
            return candidate


@dataclass(frozen=True, slots=True)
class RsaKey:
    """A private key (RFC 8017 3.2); the public half is modulus and public_exponent."""

    modulus: int
    public_exponent: int
    private_exponent: int = field(repr=False)
    prime1: int = field(repr=False)
    prime2: int = field(repr=False)

    def __post_init__(self) -> None:
        """Check the conditions for a valid key (RFC 8017 3.1, 3.2)."""
        order = math.lcm(self.prime1 - 1, self.prime2 - 1)
        is_valid = (
            self.prime1 != self.prime2
            and self.prime1 * self.prime2 == self.modulus
            and self.prime1 % 2
            and self.prime2 % 2
            and 3 <= self.public_exponent < self.modulus
            and 0 < self.private_exponent < self.modulus
            and self.public_exponent * self.private_exponent % order == 1
        )
        if not is_valid:
            raise ValueError("RSA key: its numbers do not belong together (RFC 8017 3.1)")

    @property
    def bits(self) -> int:
        return self.modulus.bit_length()

    def for_library(self) -> rsa.RSAPrivateKey:
        """Return the key as an object of the cryptography package.

        Raises ValueError if it is too short for that.
        """
        primes = self.prime1, self.prime2
        exponents = (
            rsa.rsa_crt_dmp1(self.private_exponent, primes[0]),
            rsa.rsa_crt_dmq1(self.private_exponent, primes[1]),
        )
        public = rsa.RSAPublicNumbers(self.public_exponent, self.modulus)
        coefficient = rsa.rsa_crt_iqmp(*primes)
        return rsa.RSAPrivateNumbers(*primes, self.private_exponent, *exponents, coefficient, public).private_key()

    @classmethod
    def generate(cls, bits: int) -> RsaKey:
        if bits >= SMALLEST_LIBRARY_KEY:
            numbers = rsa.generate_private_key(PUBLIC_EXPONENT, bits).private_numbers()
            return cls(numbers.public_numbers.n, numbers.public_numbers.e, numbers.d, numbers.p, numbers.q)
        prime1 = generate_prime((bits + 1) // 2)
        prime2 = prime1
        while prime2 == prime1:
            prime2 = generate_prime(bits // 2)
        order = math.lcm(prime1 - 1, prime2 - 1)
        return cls(prime1 * prime2, PUBLIC_EXPONENT, pow(PUBLIC_EXPONENT, -1, order), prime1, prime2)

    def private_operation(self, value: int) -> int:
        """Do RSADP or RSASP1 (RFC 8017 5.1.2, 5.2.1), blinded.

        With blinding, the time taken reveals nothing about `value`.
        """
        if not 0 <= value < self.modulus:
            raise ValueError("RSA: the representative is not below the modulus")
        while True:
            factor = 2 + secrets.randbelow(self.modulus - 2)
            if math.gcd(factor, self.modulus) == 1:
                break
        blinded = value * pow(factor, self.public_exponent, self.modulus) % self.modulus
        return pow(blinded, self.private_exponent, self.modulus) * pow(factor, -1, self.modulus) % self.modulus
