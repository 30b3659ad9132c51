"""Published test vectors, each put through the function that messages go through.

Those of MD2, MD4 and RC2 with other key lengths are beside the code of their own (`test_md2`,
`test_md4`, `test_rc2`).
"""

from __future__ import annotations

import pytest

from lanner.model.enums import EncryptionAlgorithm, HashAlgorithm
from lanner.model.errors import RemoteProtocolError
from lanner.security.encryption import _decrypt, _encrypt, _unwrap, _wrap
from lanner.security.hashing import Hash, find_hash
from lanner.security.rc2 import Rc2
from lanner.security.rsa import RsaKey
from lanner.security.signing import _encode, _opened, _rsa_signature
from lanner.wire.public_keys import MqdsPublicKey, ProviderType, RsaPublicKey

RC2, RC4 = EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
MIXED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# FIPS 180-2 A.2 and C.2: messages of 448 and 896 bits.
BITS_448 = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"
BITS_896 = (
    "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"
)


def hash_of(algorithm: HashAlgorithm) -> Hash:
    found = find_hash(algorithm)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("algorithm", "text", "digest"),
    [
        # RFC 1321 A.5.
        (HashAlgorithm.MD5, "", "d41d8cd98f00b204e9800998ecf8427e"),
        (HashAlgorithm.MD5, "a", "0cc175b9c0f1b6a831c399e269772661"),
        (HashAlgorithm.MD5, "abc", "900150983cd24fb0d6963f7d28e17f72"),
        (HashAlgorithm.MD5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        (HashAlgorithm.MD5, ALPHABET, "c3fcd3d76192e4007dfb496cca67e13b"),
        (HashAlgorithm.MD5, MIXED, "d174ab98d277d9f5a5611c2c9f419d9f"),
        (HashAlgorithm.MD5, "1234567890" * 8, "57edf4a22be3c955ac49da2e2107b67a"),
        # FIPS 180-2 A.1-3.
        (HashAlgorithm.SHA1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (HashAlgorithm.SHA1, BITS_448, "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
        (HashAlgorithm.SHA1, "a" * 1_000_000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
        # FIPS 180-2 B.1-3.
        (HashAlgorithm.SHA_256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (HashAlgorithm.SHA_256, BITS_448, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
        (HashAlgorithm.SHA_256, "a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        # FIPS 180-2 C.1-3.
        (
            HashAlgorithm.SHA_512,
            "abc",
            (
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
            ),
        ),
        (
            HashAlgorithm.SHA_512,
            BITS_896,
            (
                "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
                "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909"
            ),
        ),
        (
            HashAlgorithm.SHA_512,
            "a" * 1_000_000,
            (
                "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973eb"
                "de0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b"
            ),
        ),
    ],
)
def test_hashes(algorithm: HashAlgorithm, text: str, digest: str) -> None:
    assert hash_of(algorithm).digest(text.encode()).hex() == digest


@pytest.mark.parametrize(
    ("key", "plain", "encrypted"),
    [
        # OpenSSL, test/recipes/30-test_evp_data/evpciph_rc2.txt: RC2-40-CBC. The RFC has none with
        # 40 bits.
        ("0000000000", "0102030405060708", "61ae28bcf59d1f6f"),
        ("000000000001", "0102030405060708", "b3ddf36b5c81b0db"),
    ],
)
def test_rc2_with_forty_effective_bits(key: str, plain: str, encrypted: str) -> None:
    cipher = Rc2(bytes.fromhex(key), 40)
    assert cipher.encrypt_cbc(bytes.fromhex(plain)).hex() == encrypted
    assert cipher.decrypt_cbc(bytes.fromhex(encrypted)).hex() == plain


def test_rc2_of_the_base_provider_has_forty_effective_bits() -> None:
    """The same vector by the way of messages, with the padding after it."""
    encrypted = _encrypt(RC2, bytes(5), bytes.fromhex("0102030405060708"))
    assert encrypted[:8].hex() == "61ae28bcf59d1f6f"
    assert len(encrypted) == 16
    assert _decrypt(RC2, bytes(5), encrypted).hex() == "0102030405060708"


def test_rc2_of_the_enhanced_provider_has_128_effective_bits() -> None:
    """RFC 2268 5, the seventh vector."""
    key = bytes.fromhex("88bca90e90875a7f0f79c384627bafb2")
    assert _encrypt(RC2, key, bytes(8))[:8].hex() == "2269552ab0f85ca6"


# RFC 6229 2: what the keystream is, from the octets 0, 16, 240 and 4096 on.
@pytest.mark.parametrize(
    ("key", "stream"),
    [
        (
            "0102030405",
            {
                0: "b2396305f03dc027ccc3524a0a1118a8",
                16: "6982944f18fc82d589c403a47a0d0919",
                240: "28cb1132c96ce286421dcaadb8b69eae",
                4096: "ff25b58995996707e51fbdf08b34d875",
            },
        ),
        ("833222772a", {0: "80ad97bdc973df8a2e879e92a497efda", 16: "20f060c2f2e5126501d3d4fea10d5fc0"}),
        (
            "0102030405060708090a0b0c0d0e0f10",
            {
                0: "9ac7cc9a609d1ef7b2932899cde41b97",
                16: "5248c4959014126a6e8a84f11d1a9e1c",
                240: "065902e4b620f6cc36c8589f66432f2b",
                4096: "a36a4c301ae8ac13610ccbc12256cacc",
            },
        ),
        ("ebb46227c6cc8b37641910833222772a", {0: "720c94b63edf44e131d950ca211a5a30"}),
    ],
)
def test_rc4(key: str, stream: dict[int, str]) -> None:
    found = _encrypt(RC4, bytes.fromhex(key), bytes(4112))
    for offset, expected in stream.items():
        assert found[offset : offset + 16].hex() == expected
    assert _decrypt(RC4, bytes.fromhex(key), found) == bytes(4112)


@pytest.mark.parametrize(
    ("algorithm", "octets", "encrypted"),
    [
        # FIPS 197 C.1-3: the key counts up from zero.
        (EncryptionAlgorithm.AES128, 16, "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (EncryptionAlgorithm.AES192, 24, "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (EncryptionAlgorithm.AES256, 32, "8ea2b7ca516745bfeafc49904b496089"),
    ],
)
def test_aes_one_block(algorithm: EncryptionAlgorithm, octets: int, encrypted: str) -> None:
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    found = _encrypt(algorithm, bytes(range(octets)), plain)
    assert found[:16].hex() == encrypted
    assert _decrypt(algorithm, bytes(range(octets)), found) == plain


# SP 800-38A F.2.
VECTOR = bytes(range(16))
PLAIN = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)


@pytest.mark.parametrize(
    ("algorithm", "key", "encrypted"),
    [
        (
            EncryptionAlgorithm.AES128,
            "2b7e151628aed2a6abf7158809cf4f3c",
            (
                "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2"
                "73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7"
            ),
        ),
        (
            EncryptionAlgorithm.AES192,
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            (
                "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a"
                "571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd"
            ),
        ),
        (
            EncryptionAlgorithm.AES256,
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            (
                "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d"
                "39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b"
            ),
        ),
    ],
)
def test_aes_cbc(algorithm: EncryptionAlgorithm, key: str, encrypted: str) -> None:
    """Messages have no initialization vector.

    The test combines the vector with the first block, where CBC applies it.
    """
    first = bytes(left ^ right for left, right in zip(PLAIN[:16], VECTOR, strict=True))
    found = _encrypt(algorithm, bytes.fromhex(key), first + PLAIN[16:])
    assert found[:64].hex() == encrypted
    assert len(found) == 80
    assert _decrypt(algorithm, bytes.fromhex(key), found) == first + PLAIN[16:]


# RSA Laboratories, pkcs1v15crypt-vectors.txt, the first key and the first message.
CRYPT_KEY = RsaKey(
    int(
        "a8b3b284af8eb50b387034a860f146c4919f318763cd6c5598c8ae4811a1e0abc4c7e0b082d693a5e7fced675cf4668512772c0cbc64a742"
        "c6c630f533c8cc72f62ae833c40bf25842e984bb78bdbf97c0107d55bdb662f5c4e0fab9845cb5148ef7392dd3aaff93ae1e6b667bb3d424"
        "7616d4f5ba10d4cfd226de88d39f16fb",
        16,
    ),
    65_537,
    int(
        "53339cfdb79fc8466a655c7316aca85c55fd8f6dd898fdaf119517ef4f52e8fd8e258df93fee180fa0e4ab29693cd83b152a553d4ac4d181"
        "2b8b9fa5af0e7f55fe7304df41570926f3311f15c4d65a732c483116ee3d3d2d0af3549ad9bf7cbfb78ad884f84d5beb04724dc7369b31de"
        "f37d0cf539e9cfcdd3de653729ead5d1",
        16,
    ),
    int(
        "d32737e7267ffe1341b2d5c0d150a81b586fb3132bed2f8d5262864a9cb9f30af38be448598d413a172efb802c21acf1c11c520c2f26a471"
        "dcad212eac7ca39d",
        16,
    ),
    int(
        "cc8853d1d54da630fac004f471f281c7b8982d8224a490edbeb33d3e3d5cc93c4765703d1dd791642f1f116a0dd852be2419b2af72bfe9a0"
        "30e860b0288b5d77",
        16,
    ),
)
CRYPT_MESSAGE = bytes.fromhex("6628194e12073db03ba94cda9ef9532397d50dba79b987004afefe34")
CRYPT_PADDING = bytes.fromhex(
    "017341ae3875d5f87101f8cc4fa9b9bc156bb04628fccdb2f4f11e905bd3a155d376f593bd7304210874eba08a5e22bcccb4c9d3882a93a54d"
    "b022f503d16338b6b7ce16dc7f4bbf9a96b59772d6606e9747c7649bf9e083db981884a954ab3c6f18b776ea21069d69776a33e96bad48e1dd"
    "a0a5ef"
)
CRYPT_ENCRYPTED = bytes.fromhex(
    "50b4c14136bd198c2f3c3ed243fce036e168d56517984a263cd66492b80804f169d210f2b9bdfb48b12f9ea05009c77da257cc600ccefe3a"
    "6283789d8ea0e607ac58e2690ec4ebc10146e8cbaa5ed4d5cce6fe7b0ff9efc1eabb564dbf498285f449ee61dd7b42ee5b5892cb90601f30"
    "cda07bf26489310bcd23b528ceab3c31"
)


def test_rsaes_pkcs1_v1_5(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of MS-MQQB 2.4.2: least significant octet first."""
    assert _unwrap(CRYPT_ENCRYPTED[::-1], CRYPT_KEY) == CRYPT_MESSAGE
    chosen = iter(CRYPT_PADDING)
    monkeypatch.setattr("lanner.security.encryption.secrets.randbelow", lambda _: next(chosen) - 1)
    public = RsaPublicKey(CRYPT_KEY.modulus, CRYPT_KEY.public_exponent, 1024)
    assert _wrap(CRYPT_MESSAGE, public)[::-1] == CRYPT_ENCRYPTED


# NIST CAVP, FIPS 186-3 SigVer15, mod 1024, SHA1.
SIGN_KEY = RsaKey(
    int(
        "a8d68acd413c5e195d5ef04e1b4faaf242365cb450196755e92e1215ba59802aafbadbf2564dd550956abb54f8b1c917844e5f36195d1088"
        "c600e07cada5c080ede679f50b3de32cf4026e514542495c54b1903768791aae9e36f082cd38e941ada89baecada61ab0dd37ad536bcb0a0"
        "946271594836e92ab5517301d45176b5",
        16,
    ),
    3,
    int(
        "1c23c1cce034ba598f8fd2b7af37f1d30b090f7362aee68e5187adae49b9955c729f24a863b7a38d6e3c748e2972f6d940b7ba89043a2d6c"
        "2100256a1cf0f56a8cd35fc6ee205244876642f6f9c3820a3d9d2c8921df7d82aaadcaf2d7334d398931ddbba553190b3a416099f3aa07fd"
        "5b26214645a828419e122cfb857ad73b",
        16,
    ),
    int(
        "c107a2fe924b76e206cb9bc4af2ab7008547c00846bf6d0680b3eac3ebcbd0c7fd7a54c2b9899b08f80cde1d3691eaaa2816b1eb11822d6b"
        "e7beaf4e30977c49",
        16,
    ),
    int(
        "dfea984ce4307eafc0d140c2bb82861e5dbac4f8567cbc981d70440dd639492079031486315e305eb83e591c4a2e96064966f7c894c3ca35"
        "1925b5ce82d8ef0d",
        16,
    ),
)
SIGNED = [
    pytest.param(
        "d73829497cddbe41b705faac50e7899fdb5a38bf3a459e536357029e64f8796ba47f4fe96ba5a8b9a4396746e2164f55a25368ddd0b9a518"
        "8c7ac3da2d1f742286c3bdee697f9d546a25efcfe53191d743fcc6b47833d993d08804daeca78fb9076c3c017f53e33a90305af06220974d"
        "46bf19ed3c9b84edbae98b45a8771258",
        "175015bda50abe0fa7d39a8353885ca01be3a7e7fcc55045744111362ee1914473a48dc537d956294b9e20a1ef661d58537acdc8de908fa0"
        "50630fcc272e6d001045e6fdeed2d10531c8603334c2e8db39e73e6d9665ee1343f9e4198302d2201b44e8e8d06b3ef49cee6197582163a8"
        "490089ca654c0012fce1ba6511089750",
        True,
        id="passes",
    ),
    pytest.param(
        "ff23e00f819bae424e41d6b762ea6b88801e651c831c964af31de0c1d6dda4a7c8587d804ed12f526819da06650e7412fb627555979ed442"
        "f2663341e5fe57527e0ddaf453a124451674976a6a6e0a31f56a79f5b73dfac39af4f3ba4a5e8bb846cb5e333812756482d975ab1910162f"
        "96bfd7c58a02f113125189f5ac05291f",
        "a3877b854832d6a6dec749a908e8bd3a73b24372e80321ed01c19ce066117d8efe78ef7168af8acd139e47dd262c0c92ed1701cf6c07e0c1"
        "140f82040167f55bb5180c18ad9e66a18dacf0742c1f05173129ed5ac523faeeb2119639cd30ae5a435884b55043d4fb7fa9af0dd92c3653"
        "86044c2e8bcd196b3787bfede47fff37",
        False,
        id="message changed",
    ),
    pytest.param(
        "a6ce108ff3100b953781496c3d081fe32b8cedaf6d14aab2ef2dc37d8f8d2613d2f599efd55c51498749c0961681ae4ea7e28bf14a8f044c"
        "2d4dd4f9102ddd25f86c7795289708eb4df2d526f91b176952eb52fd0c9de2989432d6e08e13022b82f95089d20a5704f0452f26cd1f83bc"
        "956ee7da99876c1f8da3723af388bead",
        "a5aa479d792448cc3e2ddfbe444017eea54efca7101651f4616f0260c7a48a364fe459abf98352e86b0b3d1478208687dffde1380d4462fc"
        "e68cd61895401c3791186f17f159b91c02b5c0a30e894e142657b7537e84d2574837256da6940aa14cded7fbcba24b9e12ed2bb7e3f6db69"
        "b5a02807b57c9aa10ad9c0e1bde9443a",
        False,
        id="signature changed",
    ),
    pytest.param(
        "a4397d9ab677aaa13a68a09de9ae0ed4045d479aa0ff3a7242dca477ab7884faf55cd06ddf19667f668b4589955bfd299dc7642c28a68bb2"
        "eba6f08c7ad9f5e96170913270c6463256a0537a72b32a04e5662416ecda74696d275a8bcfe999820ffc2ab210833201332f323828be7dac"
        "04c1f01f93a3dde1efe7483a51b1560d",
        "417aa0531b1da975066a1311a9bf2fa73f5daf90f0473a8937a27a9c6378c53012e0b4db3dcb5309b85a3e7f9db161848465f2e8102f75d1"
        "71b4dc5371c3dca0bd70626dff5fad68549477fea84db9ac1b405440e178f5d9f74f3935e78a6aaf774b86d509fb25bd1a93aac9a2cdbce6"
        "a897842ea3ae07d3c8b4c43f97e0bf75",
        False,
        id="hash moved to the left",
    ),
    pytest.param(
        "e4690fb08396a8bf07377778a447dbd14c771024bd2353cbbd8446eda42795971c9eda0f2575be655c68614a7cd2fd252569c664dc291410"
        "548ec3a5eb06da2078a66c59441cbc9356e5a452f4c0386d6662a663fd6b61f254997ee6d63b5e3080e98d37e873ea737f17083713f7d5ce"
        "98ca79ca27d18199470c3d596caf66ed",
        "56b25cc46a9ef9607f4f0f553265996e22a4552fc6cb2752d0595e887afad29f7f9a390c17dc427c7d9f83f19f6986c60ec6d8f8017c3419"
        "cc2a838fe2425c7c80ceebfa1a0a3de507b5601609fe54b871efde685d23e546d69fbd14a30ebc2e67ac99446ae4978f1b3c120103294318"
        "b253aa9fcee638907b84ac72b25e18fa",
        False,
        id="no zero after the padding",
    ),
]


@pytest.mark.parametrize(("message", "signature", "is_good"), SIGNED)
def test_rsassa_pkcs1_v1_5(message: str, signature: str, *, is_good: bool) -> None:
    function = hash_of(HashAlgorithm.SHA1)
    data, octets = bytes.fromhex(message), bytes.fromhex(signature)
    public = RsaPublicKey(SIGN_KEY.modulus, SIGN_KEY.public_exponent, 1024)
    # In a packet the signature stands with its octets reversed.
    assert (_opened(public, octets[::-1]) == _encode(function.digest_info(data), 128)) is is_good
    made = _rsa_signature(SIGN_KEY, function, function.digest(data), HashAlgorithm.SHA1, 128)
    assert (made == octets) is is_good


@pytest.mark.spec("QQB-2.4.1-1")
@pytest.mark.parametrize(("bits", "size"), [(512, 84), (1024, 148)])
def test_public_key_blob(bits: int, size: int) -> None:
    """MS-MQQB 2.4.1 and 3.1.7.1.5.2: constants, bitLen, pubExp and modulus.

    The last three are encoded as in aBuf.
    """
    key = RsaPublicKey((1 << bits - 1) + 0x0102_0304, 0x0001_0001, bits)
    blob = key.pack()
    assert len(blob) == size
    assert blob[:12] == bytes.fromhex("06 02 00 00 00 A4 00 00 52 53 41 31")
    assert blob[12:16] == bits.to_bytes(4, "little")
    assert blob[16:20] == bytes.fromhex("01000100")
    assert blob[20:24] == bytes.fromhex("04030201")
    assert blob[24:] == bytes(bits // 8 - 5) + b"\x80"
    entry = MqdsPublicKey(ProviderType.PROV_RSA_FULL, "provider", blob)
    assert entry.public_key == key
    assert entry.public_key.pack() == entry.buffer
    for place in (0, 1, 5, 8):
        wrong = MqdsPublicKey(ProviderType.PROV_RSA_FULL, "provider", blob[:place] + b"\x55" + blob[place + 1 :])
        with pytest.raises(RemoteProtocolError):
            _ = wrong.public_key
