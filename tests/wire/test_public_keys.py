"""MS-MQMQ 2.2.1, 2.2.2: public keys of queue managers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.wire.public_keys import MAX_KEY_BITS, MqdsPublicKey, MqdsPublicKeys, ProviderType, RsaPublicKey

# A 64-bit modulus keeps the literal readable.
KEY = RsaPublicKey(0x8877_6655_4433_2211, 65537, 64)
BLOB = bytes.fromhex("06 02 0000 00a40000" + "52534131 40000000 01000100" + "1122334455667788")
NAME = "Base"
ENTRY = bytes.fromhex("1c000000 0a000000 01000000") + "Base\0".encode("utf-16-le") + BLOB
KEYS = bytes.fromhex("6c000000 02000000") + ENTRY + ENTRY.replace(b"\x01\0\0\0B", b"\x18\0\0\0C")


@pytest.mark.spec("MQMQ-2.2.1-1")
def test_key_blob_is_header_and_rsapubkey_with_a_little_endian_modulus() -> None:
    assert KEY.pack() == BLOB
    assert RsaPublicKey.unpack(BLOB) == KEY


@pytest.mark.spec("MQMQ-2.2.1-1")
def test_public_key_entry() -> None:
    """An entry has three u32 fields, then the name and the key.

    The fields are the octets of the key, the octets of the name with its null, and the provider
    type.
    """
    entry = MqdsPublicKey(ProviderType.PROV_RSA_FULL, NAME, BLOB)
    assert entry.pack() == ENTRY
    (read,) = MqdsPublicKeys.unpack(MqdsPublicKeys((entry,)).pack()).keys
    assert read == entry
    assert read.public_key == KEY
    assert ProviderType(0x18) is ProviderType.PROV_RSA_AES


@pytest.mark.spec("MQMQ-2.2.2-1")
def test_list_is_length_count_and_entries_back_to_back() -> None:
    keys = MqdsPublicKeys(
        (
            MqdsPublicKey(ProviderType.PROV_RSA_FULL, "Base", BLOB),
            MqdsPublicKey(ProviderType.PROV_RSA_AES, "Case", BLOB),
        )
    )
    assert keys.pack() == KEYS
    assert MqdsPublicKeys.unpack(KEYS) == keys
    assert keys.find("Case") == keys.keys[1]
    assert keys.find("Face") is None


def test_no_octets_are_no_keys() -> None:
    assert MqdsPublicKeys.unpack(b"") == MqdsPublicKeys()
    assert MqdsPublicKeys().pack() == bytes.fromhex("08000000 00000000")


@pytest.mark.parametrize("cut", range(1, len(KEYS)))
def test_fail_truncated(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        MqdsPublicKeys.unpack(KEYS[:cut])
    # The same with a length that agrees with what is left.
    if cut > 4:
        with pytest.raises(RemoteProtocolError):
            MqdsPublicKeys.unpack(cut.to_bytes(4, "little") + KEYS[4:cut])


@pytest.mark.parametrize(
    ("offset", "value", "problem"),
    [
        (0, 0x6D, "ulLen 109"),
        (4, 1, "left over"),
        (4, 3, "ulKeyLen"),
        (7, 1, "at most 64"),
        (8, 0xFF, "aBuf"),
        (12, 9, "UTF-16"),
        (12, 8, "no terminating null"),
        (16, 2, "ulProviderType"),
    ],
)
def test_fail_one_field_wrong(offset: int, value: int, problem: str) -> None:
    data = KEYS[:offset] + bytes([value]) + KEYS[offset + 1 :]
    with pytest.raises(RemoteProtocolError, match=problem):
        MqdsPublicKeys.unpack(data)


@pytest.mark.parametrize(
    ("offset", "value", "problem"),
    [
        (0, 7, "type 0x7"),
        (1, 3, "version 3"),
        (5, 0x24, "aiKeyAlg 0x00002400"),
        (11, 0x32, "magic"),
        (12, 0, "bitlen 0"),
        (12, 0x41, "bitlen 65"),
        (12, 0x38, "left over"),
        (12, 0x48, "modulus"),
        (27, 0x08, "modulus of 60 bits"),
    ],
)
def test_fail_one_field_of_the_key_wrong(offset: int, value: int, problem: str) -> None:
    data = BLOB[:offset] + bytes([value]) + BLOB[offset + 1 :]
    with pytest.raises(RemoteProtocolError, match=problem):
        RsaPublicKey.unpack(data)


def test_largest_key_passes_and_one_octet_more_does_not() -> None:
    largest = RsaPublicKey(1 << MAX_KEY_BITS - 1, 3, MAX_KEY_BITS)
    assert RsaPublicKey.unpack(largest.pack()) == largest
    with pytest.raises(RemoteProtocolError, match="bitlen"):
        RsaPublicKey.unpack(RsaPublicKey(1 << MAX_KEY_BITS + 7, 3, MAX_KEY_BITS + 8).pack())


@given(
    st.lists(
        st.builds(
            MqdsPublicKey,
            st.sampled_from(ProviderType).map(int),
            st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20),
            st.binary(max_size=30),
        ),
        max_size=4,
    )
)
def test_lists_come_back(keys: list[MqdsPublicKey]) -> None:
    block = MqdsPublicKeys(tuple(keys))
    assert MqdsPublicKeys.unpack(block.pack()) == block
