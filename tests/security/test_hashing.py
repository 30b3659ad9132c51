from __future__ import annotations

import pytest

from lanner.model.enums import HashAlgorithm
from lanner.security.hashing import InputTooLong, find_hash

# RFC 1319 A.5, RFC 1320 A.5, RFC 1321 A.5, FIPS 180-2 A.1, B.1, C.1: all of "abc".
ABC = {
    0x8001: "da853b0d3f88d99b30283a69e6ded6bb",
    0x8002: "a448017aaf21d8525fc10ae87aa6729d",
    0x8003: "900150983cd24fb0d6963f7d28e17f72",
    0x8004: "a9993e364706816aba3e25717850c26c9cd0d89d",
    0x800C: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    0x800E: "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
}


@pytest.mark.spec("MQMQ-2.2.19.3-8")
@pytest.mark.parametrize("number", range(0x8000, 0x8010))
def test_the_numbers_of_the_document_and_no_others(number: int) -> None:
    """MS-MQMQ 2.2.19.3 HashAlgorithm."""
    found = find_hash(number)
    if number not in ABC:
        assert found is None
        return
    assert found is not None
    assert found.digest(b"abc").hex() == ABC[number]
    assert HashAlgorithm(number).value == number


def test_digest_info_is_der_around_the_digest() -> None:
    """RFC 8017 9.2: SEQUENCE { SEQUENCE { OID, NULL }, OCTET STRING }."""
    for number, digest in ABC.items():
        found = find_hash(number)
        assert found is not None
        info = found.digest_info(b"abc")
        assert info.endswith(bytes.fromhex(digest))
        assert info[0] == 0x30
        assert info[1] == len(info) - 2
        assert info[-len(digest) // 2 - 2 :][:2] == bytes([0x04, len(digest) // 2])
        assert info[3] == len(info) - 4 - 2 - len(digest) // 2


@pytest.mark.parametrize("algorithm", [HashAlgorithm.MD2, HashAlgorithm.MD4])
def test_a_hash_that_no_library_has_takes_so_much_and_no_more(algorithm: HashAlgorithm) -> None:
    found = find_hash(algorithm)
    assert found is not None
    assert found.longest_input is not None
    quick = type(found)(lambda data: data[:16], b"", found.longest_input)
    assert quick.digest(bytes(found.longest_input)) == bytes(16)
    with pytest.raises(InputTooLong):
        found.digest(bytes(found.longest_input + 1))
