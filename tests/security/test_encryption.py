"""Bodies on the wire that only the receiver can read.

MS-MQQB 2.4, 3.1.7.1.5, 3.1.5.8.3 and MS-MQMQ 2.2.19.3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.model.enums import EncryptionAlgorithm, MessageClass, MessagePrivacyLevel
from lanner.model.errors import InsufficientResources, PublicKeyNotFound
from lanner.security.encryption import (
    DEFAULT_PREFERENCES,
    PRIVACY_LEVELS,
    PROVIDERS,
    EncryptionPreferences,
    SessionKey,
    _wrap,
    check_privacy_level,
    decrypt_body,
    encrypt_body,
    open_symmetric_key,
    select,
)
from lanner.security.examination import examine
from lanner.security.keys import Provider, best_key_bits, weakness
from lanner.security.profile import Profile
from lanner.security.rc2 import Rc2
from lanner.security.refusal import Refusal
from lanner.security.signing import sign
from lanner.wire import layout as at
from lanner.wire.encrypted_body import clear_encrypted
from lanner.wire.format_name import parse
from lanner.wire.layout import MAX_PACKET_SIZE
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys, RsaPublicKey
from lanner.wire.simple_blob import SimpleBlob
from tests.security.samples import SID, changed, queue_manager_keys, signing_key
from tests.wire.samples import make

RC2, RC4 = EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4
AES128, AES192, AES256 = EncryptionAlgorithm.AES128, EncryptionAlgorithm.AES192, EncryptionAlgorithm.AES256
# Every provider with every algorithm it may use, and how many octets their keys have.
PAIRS = [
    (Provider.BASE, RC2, 5),
    (Provider.BASE, RC4, 5),
    (Provider.ENHANCED, RC2, 16),
    (Provider.ENHANCED, RC4, 16),
    (Provider.AES, AES128, 16),
    (Provider.AES, AES192, 24),
    (Provider.AES, AES256, 32),
]


def keys_of(*providers: Provider) -> MqdsPublicKeys:
    every = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
    names = {provider.provider_name for provider in providers}
    return MqdsPublicKeys(tuple(key for key in every.keys if key.provider_name in names))


def preferring(provider: Provider, algorithm: EncryptionAlgorithm, **more: bool) -> EncryptionPreferences:
    name = {
        Provider.AES: "preferred_advanced_algorithm",
        Provider.ENHANCED: "preferred_enhanced_algorithm",
        Provider.BASE: "preferred_base_algorithm",
    }[provider]
    return EncryptionPreferences(**{name: algorithm, **more})  # type: ignore[arg-type] # one field each


def session_key(provider: Provider, algorithm: EncryptionAlgorithm, **more: bool) -> SessionKey:
    preferences = preferring(provider, algorithm, **more)
    return SessionKey.generate(select(keys_of(provider), PRIVACY_LEVELS[provider], preferences))


def replace_key(key: SessionKey, octets: bytes) -> SessionKey:
    """The same with another symmetric key, wrapped for the same receiver."""
    public_key = keys_of(key.provider).keys[0].public_key
    blob = SimpleBlob(key.algorithm, _wrap(octets, public_key))
    return dataclasses.replace(key, symmetric_key=octets, encrypted_symmetric_key=blob.pack())


def encrypted(
    provider: Provider = Provider.AES,
    algorithm: EncryptionAlgorithm = AES256,
    **more: Any,  # noqa: ANN401 - any property
) -> bytes:
    packet = make(**{"body": b"a secret", "sender_identifier": SID, "privacy_level": PRIVACY_LEVELS[provider], **more})
    return encrypt_body(packet, session_key(provider, algorithm))


def decrypted(packet: bytes, preferences: EncryptionPreferences = DEFAULT_PREFERENCES) -> Message:
    """Return the packet as its receiver decrypts it; both forms are checked as packets."""
    came = Message.unpack(packet)
    return Message.unpack(decrypt_body(came.packet, queue_manager_keys().encryption, preferences=preferences))


def refusal_of(packet: bytes, preferences: EncryptionPreferences = DEFAULT_PREFERENCES) -> MessageClass:
    with pytest.raises(Refusal) as caught:
        decrypted(packet, preferences)
    return caught.value.message_class


def property_changed(packet: bytes, offset: int, value: int) -> bytes:
    return changed(packet, at.locate(packet).properties + offset, value.to_bytes(4, "little"))


class TestCiphers:
    @pytest.mark.spec("MQMQ-2.2.19.3-10", "QQB-3.1.5.8.3-12", "QQB-3.1.5.8.3-14")
    @pytest.mark.parametrize(("provider", "algorithm", "size"), PAIRS)
    def test_there_and_back(self, provider: Provider, algorithm: EncryptionAlgorithm, size: int) -> None:
        body = bytes(range(256)) * 4
        for length in (0, 1, 7, 8, 15, 16, 17, 1000):
            packet = encrypted(provider, algorithm, body=body[:length])
            message = Message.unpack(packet)
            assert message.encryption_algorithm is algorithm
            assert message.privacy_level is PRIVACY_LEVELS[provider]
            assert len(open_symmetric_key(message, queue_manager_keys().encryption)) == size
            assert not length or body[:length] != message.body
            assert decrypted(packet).body == body[:length]

    @pytest.mark.spec("MQMQ-2.2.19.3-11", "QQB-3.1.5.8.3-14", "QQB-3.1.7.1.5-8")
    @pytest.mark.parametrize(("provider", "algorithm"), [(p, a) for p, a, _ in PAIRS if a is not RC4])
    def test_zero_initialization_vector_and_pkcs_5_padding(
        self, provider: Provider, algorithm: EncryptionAlgorithm
    ) -> None:
        """A full extra block when the body fills its blocks.

        Opened here with a library; RC2 as the RFC has it.
        """
        for length in (0, 5, 8, 16, 30):
            body = bytes(range(length))
            message = Message.unpack(encrypted(provider, algorithm, body=body))
            key = open_symmetric_key(message, queue_manager_keys().encryption)
            block = 8 if algorithm is RC2 else 16
            gap = block - length % block
            assert message.body_size == length + gap
            if algorithm is RC2:
                opened = Rc2(key, 8 * len(key)).decrypt_cbc(message.body)
            else:
                decryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(16))).decryptor()
                opened = decryptor.update(message.body) + decryptor.finalize()
            assert opened == body + bytes([gap]) * gap

    def test_rc4_needs_no_padding(self) -> None:
        """RFC 6229 2: the first octets of the stream of the key 0102030405."""
        known = dataclasses.replace(session_key(Provider.BASE, RC4), symmetric_key=bytes.fromhex("0102030405"))
        message = Message(encrypt_body(make(body=bytes(16)), known))
        assert message.body.hex() == "b2396305f03dc027ccc3524a0a1118a8"

    def test_aes_known_answer(self) -> None:
        """SP 800-38A F.1.1: with a zero initialization vector, CBC's first block is that of ECB."""
        known = dataclasses.replace(
            session_key(Provider.AES, AES128), symmetric_key=bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
        )
        message = Message(encrypt_body(make(body=bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")), known))
        assert message.body[:16].hex() == "3ad77bb40d7a3660a89ecaf32466ef97"


class TestEncrypt:
    @pytest.mark.spec("QQB-2.4.2-2")
    @pytest.mark.parametrize(("provider", "algorithm"), [(Provider.ENHANCED, RC4), (Provider.AES, AES256)])
    def test_the_session_key_is_under_pkcs_1_type_2_with_its_octets_reversed(
        self, provider: Provider, algorithm: EncryptionAlgorithm
    ) -> None:
        """Opened with a library, which does not take the base provider's 512 bits."""
        key = session_key(provider, algorithm)
        private = queue_manager_keys().encryption[provider]
        library = rsa.RSAPrivateNumbers(
            private.prime1,
            private.prime2,
            private.private_exponent,
            rsa.rsa_crt_dmp1(private.private_exponent, private.prime1),
            rsa.rsa_crt_dmq1(private.private_exponent, private.prime2),
            rsa.rsa_crt_iqmp(private.prime1, private.prime2),
            rsa.RSAPublicNumbers(private.public_exponent, private.modulus),
        ).private_key()
        blob = SimpleBlob.unpack(key.encrypted_symmetric_key)
        assert library.decrypt(blob.encrypted_key[::-1], padding.PKCS1v15()) == key.symmetric_key

    @pytest.mark.spec("QQB-3.1.7.1.5-8", "QQB-3.1.7.1.5-9", "QQB-3.1.7.1.5-10")
    def test_what_an_encrypted_packet_says(self) -> None:
        key = session_key(Provider.ENHANCED, RC2)
        packet = encrypt_body(make(body=b"12345", sender_identifier=SID, privacy_level=1), key)
        message = Message.unpack(packet)
        assert message.is_body_encrypted
        assert message.encryption_algorithm == 0x6602
        # The application asked for Base; the receiver selects by what was really used.
        assert message.privacy_level == 3
        assert message.symmetric_key == key.encrypted_symmetric_key
        assert len(message.symmetric_key) == 12 + 256
        assert message.authentication_provider_type == 1
        assert message.authentication_provider_name == "Microsoft Enhanced Cryptographic Provider v1.0"
        assert message.body_size == message.allocation_body_size == 8
        assert message.size == int.from_bytes(packet[8:12], "little") == len(packet)
        assert message.sender_identifier == SID

    def test_a_message_without_a_security_header_gets_one(self) -> None:
        packet = encrypted(sender_identifier=b"")
        assert Message.unpack(packet).has_security_header
        assert decrypted(packet).body == b"a secret"

    @pytest.mark.spec("QQB-3.1.5.8.3-20")
    def test_signed_then_encrypted_decrypted_then_verified(self) -> None:
        """The signature covers the plain body.

        DE stays set, and ProviderInfo names the provider that encrypted (DECISIONS).
        """
        signed = sign(make(body=b"a secret", sender_identifier=SID), signing_key())
        message = Message.unpack(encrypt_body(signed, session_key(Provider.AES, AES256)))
        assert message.uses_default_provider
        assert message.authentication_provider_name == Provider.AES.provider_name
        found = examine(message, queue_manager_keys().encryption)
        assert found.refusal is None
        assert found.authentication_level == 3
        assert found.was_encrypted
        assert found.message.body == b"a secret"

    def test_a_provider_that_the_application_signed_with_stays_named(self) -> None:
        name = "Microsoft Strong Cryptographic Provider"
        signed = sign(make(body=b"a secret"), signing_key(), provider=(1, name))
        packet = encrypt_body(signed, session_key(Provider.AES, AES256))
        assert Message(packet).authentication_provider_name == name
        assert examine(Message(packet), queue_manager_keys().encryption).authentication_level == 3

    def test_fail_when_the_packet_grows_too_large(self) -> None:
        room = MAX_PACKET_SIZE - len(make())
        with pytest.raises(InsufficientResources):
            encrypt_body(make(body=bytes(room)), session_key(Provider.AES, AES256))

    def test_keys_are_not_shown(self) -> None:
        assert "symmetric" not in repr(session_key(Provider.AES, AES256))


class TestSelect:
    @pytest.mark.spec("QQB-3.1.7.1.5-3", "QQB-3.1.3.1-4")
    def test_the_strongest_provider_there_is_a_key_of(self) -> None:
        found = select(keys_of(*Provider), 1)
        assert (found.provider, found.algorithm, found.key_size) == (Provider.AES, 0x6610, 32)
        found = select(keys_of(Provider.BASE, Provider.ENHANCED), 1)
        assert (found.provider, found.algorithm, found.key_size) == (Provider.ENHANCED, 0x6801, 16)
        found = select(keys_of(Provider.BASE), 1)
        assert (found.provider, found.algorithm, found.key_size) == (Provider.BASE, 0x6801, 5)
        for algorithm, size in ((AES128, 16), (AES192, 24), (AES256, 32)):
            found = select(keys_of(Provider.AES), 5, EncryptionPreferences(preferred_advanced_algorithm=algorithm))
            assert (found.algorithm, found.key_size) == (algorithm, size)

    @pytest.mark.parametrize(
        ("level", "providers", "selected"),
        [
            (5, (Provider.BASE, Provider.ENHANCED), None),
            (5, (Provider.AES,), Provider.AES),
            (3, (Provider.BASE,), None),
            (3, (Provider.BASE, Provider.AES), Provider.AES),
            (3, (Provider.ENHANCED,), Provider.ENHANCED),
            (1, (), None),
        ],
    )
    def test_there_is_no_downgrade(
        self, level: int, providers: tuple[Provider, ...], selected: Provider | None
    ) -> None:
        if selected is None:
            with pytest.raises(PublicKeyNotFound):
                select(keys_of(*providers), level)
        else:
            assert select(keys_of(*providers), level).provider is selected

    @pytest.mark.spec("QQB-3.1.7.1.5-5", "QQB-3.1.3.1-5", "QQB-3.1.5.8.3-13")
    def test_enhanced_rc2_with_40_bits(self) -> None:
        """Sent only if set so: 40 bits, and 88 zero bits after them. Rejected only if set so."""
        assert not DEFAULT_PREFERENCES.send_enhanced_rc2_using_40_bit_keys
        assert not DEFAULT_PREFERENCES.reject_enhanced_rc2_using_40_bit_keys
        assert not session_key(Provider.ENHANCED, RC2).symmetric_key.endswith(bytes(11))
        short = session_key(Provider.ENHANCED, RC2, send_enhanced_rc2_using_40_bit_keys=True)
        assert len(short.symmetric_key) == 16
        assert short.symmetric_key.endswith(bytes(11))
        packet = encrypt_body(make(body=b"weak"), short)
        assert decrypted(packet).body == b"weak"
        strict = EncryptionPreferences(reject_enhanced_rc2_using_40_bit_keys=True)
        assert refusal_of(packet, strict) == 0x8007
        # Neither a full key nor another algorithm is meant, nor one with fewer zero bits at its
        # end.
        nearly = replace_key(short, short.symmetric_key[:5] + b"\1" + bytes(10))
        assert decrypted(encrypt_body(make(body=b"weak"), nearly), strict).body == b"weak"
        assert decrypted(encrypted(Provider.ENHANCED, RC2), strict).body == b"a secret"
        blob = SimpleBlob(RC4, SimpleBlob.unpack(short.encrypted_symmetric_key).encrypted_key)
        other = dataclasses.replace(short, algorithm=RC4, encrypted_symmetric_key=blob.pack())
        assert decrypted(encrypt_body(make(body=b"weak"), other), strict).body == b"weak"

    @pytest.mark.spec("QQB-3.1.1.3-1")
    @pytest.mark.parametrize("provider", Provider)
    @pytest.mark.parametrize("algorithm", EncryptionAlgorithm)
    def test_what_may_be_preferred(self, provider: Provider, algorithm: EncryptionAlgorithm) -> None:
        if (provider, algorithm) in {(p, a) for p, a, _ in PAIRS}:
            assert preferring(provider, algorithm).algorithm(provider) is algorithm
        else:
            with pytest.raises(ValueError, match="one of"):
                preferring(provider, algorithm)

    def test_fail_on_a_published_key_that_is_none(self) -> None:
        broken = dataclasses.replace(keys_of(Provider.AES).keys[0], buffer=b"broken")
        with pytest.raises(PublicKeyNotFound):
            select(MqdsPublicKeys((broken,)), 5)
        # RSA with the exponent 1 would send the session key in clear.
        legacy = EncryptionPreferences(accepts_short_keys=True)
        for weak in (RsaPublicKey((1 << 1023) + 1, 1, 1024), RsaPublicKey((1 << 127) + 1, 65_537, 128)):
            entry = dataclasses.replace(broken, buffer=weak.pack())
            with pytest.raises(PublicKeyNotFound, match="cannot protect"):
                SessionKey.generate(select(MqdsPublicKeys((entry,)), 5, legacy))


class TestShortKeys:
    """RSA keys below 1,024 bits are used only with `security.legacy_crypto`.

    Not in the specification.
    """

    LEGACY = EncryptionPreferences(accepts_short_keys=True)

    def test_nothing_is_encrypted_for_a_short_key(self) -> None:
        keys = MqdsPublicKeys.unpack(queue_manager_keys(Profile.DOCUMENT).public_key_lists()[0])
        base = MqdsPublicKeys(keys.keys[:1])
        with pytest.raises(PublicKeyNotFound, match=r"has 512 bits, at least 1024 are needed.*security.legacy_crypto"):
            select(base, MessagePrivacyLevel.BASE)
        assert select(base, MessagePrivacyLevel.BASE, self.LEGACY).public_key.bit_length == 512
        # 1,024 bits are weak, and accepted.
        assert select(keys, MessagePrivacyLevel.BASE).public_key.bit_length == 1024

    def test_nothing_is_decrypted_with_a_short_key(self) -> None:
        own = queue_manager_keys(Profile.DOCUMENT)
        keys = MqdsPublicKeys(MqdsPublicKeys.unpack(own.public_key_lists()[0]).keys[:1])
        key = SessionKey.generate(select(keys, MessagePrivacyLevel.BASE, self.LEGACY))
        packet = encrypt_body(make(body=b"secret", privacy_level=1), key)
        assert Message(decrypt_body(packet, own.encryption, preferences=self.LEGACY)).body == b"secret"
        with pytest.raises(Refusal, match="only 512 bits") as caught:
            decrypt_body(packet, own.encryption)
        assert caught.value.message_class == 0x8007

    @pytest.mark.parametrize(
        ("bits", "problem"),
        [(0, None), (512, "512 bits: too short"), (1024, "1024 bits: weak"), (2048, None), (4096, None)],
    )
    def test_what_is_wrong_with_a_key(self, bits: int, problem: str | None) -> None:
        told = weakness(bits)
        assert told is None if problem is None else told is not None and told.startswith(problem)

    def test_the_size_that_counts_is_that_of_the_best_provider(self) -> None:
        lists = {profile: queue_manager_keys(profile).public_key_lists()[0] for profile in Profile}
        assert {profile: best_key_bits(keys) for profile, keys in lists.items()} == {
            Profile.SAFE: 2048,
            Profile.DOCUMENT: 1024,
        }
        assert best_key_bits(b"") == best_key_bits(b"broken") == 0


class TestDecrypt:
    @pytest.mark.spec("MQMQ-2.2.20.6-5")
    def test_eb_alone_says_whether_the_body_is_ciphertext(self) -> None:
        packet = encrypted()
        assert decrypted(packet).body == b"a secret"
        assert not decrypted(packet).is_body_encrypted
        # The same octets without EB are a plain body, whatever EncryptionAlgorithm and PrivacyLevel
        # say.
        unmarked = clear_encrypted(packet)
        assert Message.unpack(unmarked).encryption_algorithm == 0x6610
        assert decrypt_body(unmarked, queue_manager_keys().encryption) == unmarked
        assert clear_encrypted(make()) == make()
        plain = make(body=b"plain", encryption_algorithm=AES256, sender_identifier=SID)
        assert decrypted(plain).body == b"plain"

    @pytest.mark.spec("QQB-3.1.5.8.3-9")
    def test_the_privacy_level_selects_the_provider_and_so_the_key(self) -> None:
        assert {level: provider.provider_name for level, provider in PROVIDERS.items()} == {
            1: "Microsoft Base Cryptographic Provider v1.0",
            3: "Microsoft Enhanced Cryptographic Provider v1.0",
            5: "Microsoft Enhanced RSA and AES Cryptographic Provider",
        }
        keys = queue_manager_keys().encryption
        for provider, algorithm, _ in PAIRS:
            message = Message(encrypted(provider, algorithm))
            assert Message(decrypt_body(message.packet, {provider: keys[provider]})).body == b"a secret"
            with pytest.raises(Refusal, match="no key of"):
                decrypt_body(message.packet, {other: key for other, key in keys.items() if other is not provider})

    @pytest.mark.spec("MQMQ-2.2.19.3-7")
    @pytest.mark.parametrize("level", [0, 2, 4, 6, 7, 0xFFFF_FFFF])
    def test_another_privacy_level_with_eb_is_0x8007(self, level: int) -> None:
        assert refusal_of(property_changed(encrypted(), 40, level)) == 0x8007

    @pytest.mark.spec("MQMQ-2.2.19.3-7")
    @pytest.mark.parametrize("level", range(8))
    def test_another_privacy_level_without_eb_is_0x8006(self, level: int) -> None:
        message = Message.unpack(property_changed(make(body=b"plain"), 40, level))
        if level in (0, 1, 3, 5):
            check_privacy_level(message)
        else:
            with pytest.raises(Refusal) as caught:
                check_privacy_level(message)
            assert caught.value.message_class == 0x8006

    @pytest.mark.spec("MQMQ-2.2.19.3-10", "QQB-3.1.5.8.3-15/an unknown algorithm")
    @pytest.mark.parametrize("level", list(MessagePrivacyLevel)[1:])
    @pytest.mark.parametrize("algorithm", [*EncryptionAlgorithm, 0, 0x6601, 0x6603, 0x6609, 0x6611])
    def test_an_algorithm_that_the_level_does_not_have_is_0x8007(self, level: int, algorithm: int) -> None:
        """This holds even if the session key claims to be one for it."""
        provider = PROVIDERS[level]
        first, size = next((one, size) for owner, one, size in PAIRS if owner is provider)
        key = session_key(provider, first)
        blob = SimpleBlob(algorithm, SimpleBlob.unpack(key.encrypted_symmetric_key).encrypted_key)
        packet = encrypt_body(make(body=b"x"), dataclasses.replace(key, encrypted_symmetric_key=blob.pack()))
        packet = property_changed(packet, 48, algorithm)
        sizes = {one: size for owner, one, size in PAIRS if owner is provider}
        if sizes.get(algorithm) == size:  # type: ignore[call-overload] # a number equals its member
            # Listed, and the key has the right length: RC4 decrypts anything, and to something
            # else.
            assert algorithm in (first, RC4)
        else:
            assert refusal_of(packet) == 0x8007

    @pytest.mark.spec("QQB-3.1.5.8.3-15/bad padding")
    @pytest.mark.parametrize(("provider", "algorithm"), [(p, a) for p, a, _ in PAIRS if a is not RC4])
    def test_a_wrong_body_is_0x8007(self, provider: Provider, algorithm: EncryptionAlgorithm) -> None:
        packet = encrypt_body(make(body=b"a secret"), session_key(provider, algorithm))
        size = Message(packet).body_size
        # The last block tells how much is padding: without it, with half of it, and with nothing at
        # all.
        for wrong in (size - 1, 0):
            assert refusal_of(property_changed(packet, 32, wrong)) == 0x8007

    @pytest.mark.spec("QQB-3.1.5.8.3-15/bad padding")
    @pytest.mark.parametrize("last", [b"\0", b"\x11", b"\x02"])
    def test_wrong_padding_is_0x8007(self, last: bytes) -> None:
        key = session_key(Provider.AES, AES256)
        encryptor = Cipher(algorithms.AES(key.symmetric_key), modes.CBC(bytes(16))).encryptor()
        body = encryptor.update(b"fifteen octets!" + last)
        packet = encrypt_body(make(body=b"fifteen octets!"), key)
        assert refusal_of(changed(packet, Message(packet).body_offset, body)) == 0x8007

    @pytest.mark.spec("QQB-3.1.5.8.3-15/an RSA failure")
    def test_a_wrong_session_key_is_0x8007(self) -> None:
        packet = encrypted()
        blob = Message(packet).symmetric_key
        offset = packet.index(blob)
        for place in (0, 1, 4, 8, 12, 60):
            assert refusal_of(changed(packet, offset + place, blob[place] ^ 0x55)) == 0x8007
        # One for another key, one above the modulus, none at all.
        other = session_key(Provider.ENHANCED, RC4).encrypted_symmetric_key
        assert refusal_of(changed(packet, offset + 12, other[12:])) == 0x8007
        assert refusal_of(changed(packet, offset + 12, b"\xff" * 128)) == 0x8007
        assert refusal_of(make(sender_identifier=SID, privacy_level=5, encryption_algorithm=AES256)) == 0x8007

    @pytest.mark.spec("QQB-3.1.5.8.3-15/an RSA failure")
    def test_a_session_key_of_another_length_is_0x8007(self) -> None:
        strong = session_key(Provider.AES, AES256)
        blob = SimpleBlob(AES128, SimpleBlob.unpack(strong.encrypted_symmetric_key).encrypted_key)
        short = dataclasses.replace(strong, algorithm=AES128, encrypted_symmetric_key=blob.pack())
        assert refusal_of(encrypt_body(make(body=b"x"), short)) == 0x8007

    @pytest.mark.spec("QQB-2.4.2-3")
    def test_a_longer_field_holds_the_same_number(self) -> None:
        """The figure draws 256 bytes: zeros above the modulus change nothing."""
        key = session_key(Provider.AES, AES256)
        longer = dataclasses.replace(key, encrypted_symmetric_key=key.encrypted_symmetric_key + bytes(128))
        assert decrypted(encrypt_body(make(body=b"x"), longer)).body == b"x"

    def test_a_key_that_was_opened_before_is_not_opened_again(self) -> None:
        packet = encrypted()
        key = open_symmetric_key(Message(packet), queue_manager_keys().encryption)
        assert Message(decrypt_body(packet, {}, symmetric_key=key)).body == b"a secret"

    @settings(max_examples=25)
    @given(st.binary(max_size=70), st.sampled_from(PAIRS))
    def test_nothing_but_the_body_changes(self, body: bytes, pair: tuple[Provider, EncryptionAlgorithm, int]) -> None:
        """Headers before and after the body stay identical to the octet.

        A signature may cover them.
        """
        provider, algorithm, _ = pair
        packet = make(
            body=body,
            label="label",
            extension=b"ext",
            tracing_requested=True,
            soap_body="soap",
            destination_multi_queue_format_name=parse(r"DIRECT=OS:a\q,DIRECT=OS:b\q"),
            application_deadletter_queue=r".\private$\dead",
            privacy_level=PRIVACY_LEVELS[provider],
            sender_identifier=SID,
        )
        found = decrypted(encrypt_body(packet, session_key(provider, algorithm)))
        original = Message.unpack(packet)
        assert found.body == body
        assert found.body_size == found.allocation_body_size == len(body)
        assert found.packet[at.locate(found.packet).debug :] == packet[at.locate(packet).debug :]
        assert found.label_bytes + found.extension == original.label_bytes + original.extension
        assert found.application_deadletter_queue == original.application_deadletter_queue

    def test_a_label_that_is_only_a_terminator_stays_one(self) -> None:
        """A sender may write LabelLength 1.

        The hash covers the two octets of the label, so they must survive decryption.
        """
        key = session_key(Provider.BASE, RC4)
        # RC4 keeps sizes, so the label's terminator can come from the body's first two octets.
        packet = encrypt_body(make(body=b"??four"), key)
        properties = at.locate(packet).properties
        packet = changed(changed(packet, properties + 1, 1), Message(packet).body_offset, b"\0\0")
        packet = property_changed(packet, 32, 4)
        assert Message.unpack(packet).label_bytes == b"\0\0"
        assert decrypted(packet).label_bytes == b"\0\0"
        assert decrypted(packet).body_size == 4
