"""What a signature covers, where it is stored, and when it is valid.

MS-MQQB 3.1.7.1.4 and 3.1.5.8.3.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509 import load_der_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from lanner.engine.settings import EngineSettings
from lanner.model.enums import Acknowledgements, AuthenticationLevel, HashAlgorithm, MessageClass, SenderIdentifierType
from lanner.model.errors import CannotSignDataEx, InvalidCertificate
from lanner.security.encryption import EncryptionPreferences
from lanner.security.keys import Provider, public_key_list
from lanner.security.profile import Profile
from lanner.security.refusal import Refusal
from lanner.security.signing import (
    SUPPORTED_PROVIDERS,
    SigningKey,
    certificate_key,
    is_registered,
    is_signed,
    sign,
    sign_properties,
    verify,
)
from lanner.wire import layout as at
from lanner.wire.builder import MessageProperties, build, set_authentication, set_route_count
from lanner.wire.format_name import FormatName, parse
from lanner.wire.message import Message
from lanner.wire.multi_queue_format_header import MultiQueueFormatHeader
from lanner.wire.public_keys import MqdsPublicKeys
from lanner.wire.security_header import MAX_SENDER_CERT_SIZE
from lanner.wire.signature_input import hash_input_10, hash_input_20, hash_input_30
from lanner.wire.user_certificates import UserSignCert, UserSignCerts
from lanner.wire.user_message import UserMessage
from tests.security.samples import SID, certificate_of, changed, queue_manager_keys, signing_key
from tests.wire.samples import DIRECT, OTHER, SENT_TIME, SOURCE, make

SEVERAL = parse(r"DIRECT=OS:a\private$\q,DIRECT=OS:b\private$\q")
# As `security.profile = "document"` has them.
DOCUMENT = EngineSettings("ALPHA", profile=Profile.DOCUMENT).encryption_preferences
LEVELS = (AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30)


def plain(**more: Any) -> bytes:  # noqa: ANN401 - any property
    return make(
        **{
            "body": b"a body",
            "label": "label",
            "sender_identifier": SID,
            "acknowledgements_requested": Acknowledgements.FULL_RECEIVE,
            "administration_queue_format_name": parse(r"DIRECT=OS:a\private$\admin"),
            **more,
        }
    )


def refusal_of(packet: bytes, keys: MqdsPublicKeys | None = None) -> MessageClass:
    with pytest.raises(Refusal) as caught:
        verify(Message.unpack(packet), keys)
    return caught.value.message_class


def opened(message: Message, signature: bytes) -> bytes:
    """Return the contents of the signature, by a library's own arithmetic."""
    key = load_der_x509_certificate(message.sender_certificate).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    return key.recover_data_from_signature(signature[::-1], padding.PKCS1v15(), hashes.SHA512())


class TestSign:
    @pytest.mark.spec("QQB-3.1.7.1.4-2", "MQMQ-2.2.20.6-6")
    @pytest.mark.parametrize(
        ("level", "covered"), list(zip(LEVELS, (hash_input_10, hash_input_20, hash_input_30), strict=True))
    )
    def test_a_message_to_one_queue_is_signed_in_its_security_header(
        self,
        level: AuthenticationLevel,
        covered: Callable[[Message], bytes],
    ) -> None:
        """SecurityData.Signature has the hash of the level under the sender's private key.

        The public key in the certificate verifies it.
        """
        message = Message.unpack(sign(plain(), signing_key(), level=level))
        assert len(message.signature) == 128
        digest = hashes.Hash(hashes.SHA512())
        digest.update(covered(message))
        assert opened(message, message.signature) == digest.finalize()
        assert message.sender_certificate == signing_key().certificate
        assert message.multiple_destination_signature == b""

    @pytest.mark.spec("QQB-3.1.7.1.4-1", "DMPR-3.1.1.12-17")
    @pytest.mark.parametrize(
        "lists",
        [(SEVERAL, None, None), (None, SEVERAL, None), (None, None, SEVERAL)],
        ids=["destination", "administration", "response"],
    )
    def test_a_message_with_a_list_of_queues_is_signed_beside_the_list(
        self, lists: tuple[FormatName | None, FormatName | None, FormatName | None]
    ) -> None:
        """MultiQueueFormatHeader.Signature has the 3.0 hash.

        This holds for every requested level and for either list.
        """
        unsigned = UserMessage.unpack(plain(destination_multi_queue_format_name=SEVERAL))
        unsigned = dataclasses.replace(unsigned, multi_queue_format_header=MultiQueueFormatHeader.of(*lists))
        message = Message.unpack(sign(unsigned.pack(), signing_key(), level=AuthenticationLevel.SIG10))
        assert message.signature == b""
        digest = hashes.Hash(hashes.SHA512())
        digest.update(hash_input_30(message))
        assert opened(message, message.multiple_destination_signature) == digest.finalize()
        assert verify(message, preferences=DOCUMENT) is AuthenticationLevel.SIG30

    @pytest.mark.spec("MQMQ-2.2.19.3-9")
    def test_the_hash_is_sha_512_unless_another_is_chosen(self) -> None:
        assert Message(plain()).hash_algorithm == 0x8004
        assert Message(sign(plain(), signing_key())).hash_algorithm == 0x800E
        for algorithm in HashAlgorithm:
            message = Message.unpack(sign(plain(), signing_key(), hash_algorithm=algorithm))
            assert message.hash_algorithm == algorithm
            assert verify(message) is AuthenticationLevel.SIG20

    def test_the_flags_tell_whose_provider_signed_and_nothing_of_the_receiver(self) -> None:
        """DE says that the provider is the default one.

        AU and AS belong to the receiver (MS-MQMQ 2.2.20.6).
        """
        before = set_authentication(plain(), AuthenticationLevel.SIG30)
        message = Message.unpack(sign(before, signing_key()))
        assert message.uses_default_provider
        assert not message.is_body_encrypted
        assert message.authentication_level is AuthenticationLevel.NONE
        assert message.authentication_provider_name == ""
        assert message.sender_identifier_type is SenderIdentifierType.SID
        assert message.sender_identifier == SID
        name = "Microsoft Strong Cryptographic Provider"
        message = Message.unpack(sign(plain(), signing_key(), provider=(1, name)))
        assert not message.uses_default_provider
        assert (message.authentication_provider_type, message.authentication_provider_name) == (1, name)
        assert verify(message) is AuthenticationLevel.SIG20

    def test_a_message_without_a_sender_gets_its_security_header(self) -> None:
        message = Message.unpack(sign(make(body=b"x"), signing_key()))
        assert message.sender_identifier_type is SenderIdentifierType.NONE
        assert verify(message) is AuthenticationLevel.SIG20

    def test_signing_again_replaces_the_signature(self) -> None:
        once = sign(plain(), signing_key("bob"), level=AuthenticationLevel.SIG10)
        again = Message.unpack(sign(once, signing_key()))
        assert again.sender_certificate == signing_key().certificate
        assert verify(again) is AuthenticationLevel.SIG20

    def test_fail_on_a_key_too_short_for_the_hash(self) -> None:
        """A key of 512 bits holds SHA-1 and nothing longer than SHA-256."""
        short = SigningKey(queue_manager_keys(Profile.DOCUMENT).signing[Provider.BASE])
        with pytest.raises(CannotSignDataEx, match="512 bits"):
            sign(plain(), short)
        assert Message(sign(plain(), short, hash_algorithm=HashAlgorithm.SHA1)).signature

    def test_fail_on_no_level(self) -> None:
        with pytest.raises(CannotSignDataEx):
            sign(plain(), signing_key(), level=AuthenticationLevel.NONE)

    def test_fail_on_more_than_a_slow_hash_takes(self) -> None:
        with pytest.raises(CannotSignDataEx, match="at most"):
            sign(plain(body=bytes(0x8000)), signing_key(), hash_algorithm=HashAlgorithm.MD2)

    @pytest.mark.spec("MQMQ-2.2.20.6-6")
    def test_fail_on_a_certificate_above_the_limit(self) -> None:
        """SenderCertSize: at most 0xFFFF."""
        key = signing_key().key
        message = Message.unpack(sign(plain(), SigningKey(key, bytes(MAX_SENDER_CERT_SIZE))))
        assert len(message.sender_certificate) == 0xFFFF
        with pytest.raises(InvalidCertificate, match="65536"):
            sign(plain(), SigningKey(key, bytes(MAX_SENDER_CERT_SIZE + 1)))


class TestSignProperties:
    @pytest.mark.parametrize("destination", [DIRECT, parse(f"PUBLIC={OTHER}"), parse(rf"PRIVATE={OTHER}\7")])
    @pytest.mark.parametrize("transaction", [None, 5])
    def test_what_is_signed_before_there_is_a_packet_fits_the_packet(
        self, destination: FormatName, transaction: int | None
    ) -> None:
        properties = sign_properties(
            MessageProperties(body=b"body", priority=6, response_queue_format_name=parse(rf"PRIVATE={OTHER}\9")),
            signing_key(),
            source=SOURCE,
            destination=destination,
            is_transactional=transaction is not None,
        )
        packet = build(
            dataclasses.replace(properties, sender_identifier=SID, destination_queue_manager_identifier=OTHER),
            source=SOURCE,
            ordinal=99,
            sent_time=SENT_TIME,
            destination=destination,
            transaction=transaction,
        )
        assert verify(Message.unpack(packet)) is AuthenticationLevel.SIG20

    @pytest.mark.parametrize("several", [SEVERAL, parse(f"DL={OTHER}")])
    def test_several_destinations_share_one_signature(self, several: FormatName) -> None:
        properties = sign_properties(MessageProperties(body=b"body"), signing_key(), source=SOURCE, destination=several)
        assert properties.signature == b""
        for name in (r"DIRECT=OS:a\private$\q", r"DIRECT=OS:b\private$\q"):
            packet = build(properties, source=SOURCE, ordinal=1, sent_time=SENT_TIME, destination=parse(name))
            assert verify(Message.unpack(packet), preferences=DOCUMENT) is AuthenticationLevel.SIG30

    def test_the_properties_given_stay_as_they_are(self) -> None:
        properties = MessageProperties(body=b"body")
        sign_properties(properties, signing_key(), source=SOURCE, destination=DIRECT)
        assert properties == MessageProperties(body=b"body")


class TestVerify:
    @pytest.mark.spec("QQB-3.1.5.8.3-2", "QQB-3.1.5.8.3-21", "DMPR-3.1.7.1.31-3")
    @pytest.mark.parametrize("level", LEVELS)
    def test_the_level_is_that_of_the_hash_that_fits(self, level: AuthenticationLevel) -> None:
        message = Message.unpack(sign(plain(), signing_key(), level=level))
        assert verify(message, preferences=DOCUMENT) is level
        assert [int(one) for one in LEVELS] == [1, 3, 5]

    @pytest.mark.parametrize("level", [AuthenticationLevel.SIG10, AuthenticationLevel.SIG30])
    def test_a_signature_that_leaves_out_the_destination_proves_nothing(self, level: AuthenticationLevel) -> None:
        """Not in the documents: only with `security.legacy_signatures`."""
        packet = sign(plain(), signing_key(), level=level)
        with pytest.raises(Refusal, match=r"does not say that the message is for DIRECT.*security.legacy_signatures"):
            verify(Message.unpack(packet))

    @pytest.mark.parametrize("level", LEVELS)
    def test_a_signature_of_another_message_cannot_be_used_again(self, level: AuthenticationLevel) -> None:
        """No input has lengths: what was hashed of one message is put into the body of another."""
        captured = Message(sign(plain(), signing_key(), level=level))
        covered = {1: hash_input_10, 3: hash_input_20, 5: hash_input_30}[level](captured)
        forged = make(
            parse(r"DIRECT=OS:other\private$\pay"),
            body=covered[24:],
            sender_identifier=SID,
            signature=captured.signature,
            sender_certificate=captured.sender_certificate,
            hash_algorithm=captured.hash_algorithm,
        )
        assert verify(Message.unpack(forged), preferences=DOCUMENT) is AuthenticationLevel.SIG10
        assert refusal_of(forged) == 0x8006

    @pytest.mark.parametrize("several", [SEVERAL, parse(f"DL={OTHER}")])
    def test_a_signature_for_several_destinations_is_for_those(self, several: FormatName) -> None:
        properties = sign_properties(MessageProperties(body=b"body"), signing_key(), source=SOURCE, destination=several)

        def level_at(name: FormatName) -> AuthenticationLevel:
            packet = build(properties, source=SOURCE, ordinal=1, sent_time=SENT_TIME, destination=name)
            return verify(Message.unpack(packet))

        if several is SEVERAL:
            assert {level_at(one) for one in several.elements} == {AuthenticationLevel.SIG30}
        with pytest.raises(Refusal, match="does not say"):
            level_at(parse(r"DIRECT=OS:c\private$\q"))

    @pytest.mark.spec("QQB-3.1.5.8.3-3")
    def test_a_signature_for_several_destinations_is_a_3_0_one(self) -> None:
        packet = sign(plain(destination_multi_queue_format_name=SEVERAL), signing_key())
        assert verify(Message.unpack(packet), preferences=DOCUMENT) is AuthenticationLevel.SIG30
        offset = packet.rindex(Message(packet).multiple_destination_signature)
        assert refusal_of(changed(packet, offset, packet[offset] ^ 1)) == 0x8006
        # A 2.0 signature has no business there.
        message = Message(plain(destination_multi_queue_format_name=SEVERAL))
        other = Message(sign(plain(), signing_key())).signature
        wrong = changed(packet, offset, other)
        assert message.multi_queue_format_header is not None
        assert refusal_of(wrong) == 0x8006

    def test_an_unsigned_message_is_not_refused(self) -> None:
        assert verify(Message(make())) is AuthenticationLevel.NONE
        assert verify(Message(plain())) is AuthenticationLevel.NONE
        # Without a SecurityHeader there is no certificate, and nothing is checked.
        unsigned = make(destination_multi_queue_format_name=SEVERAL, multiple_destination_signature=b"signed")
        assert verify(Message.unpack(unsigned)) is AuthenticationLevel.NONE
        assert not is_signed(Message(unsigned))

    @pytest.mark.spec("QQB-3.1.5.8.3-4", "MQMQ-2.2.20.6-6")
    def test_only_the_key_of_the_certificate_opens_the_signature(self) -> None:
        packet = sign(plain(), signing_key())
        stolen = sign(plain(), SigningKey(signing_key("bob").key, signing_key().certificate))
        assert verify(Message.unpack(packet)) is AuthenticationLevel.SIG20
        assert refusal_of(stolen) == 0x8006

    @pytest.mark.spec("QQB-3.1.5.8.3-4")
    @pytest.mark.parametrize("algorithm", HashAlgorithm)
    def test_the_hash_is_the_one_that_hash_algorithm_names(self, algorithm: HashAlgorithm) -> None:
        packet = sign(plain(), signing_key(), hash_algorithm=algorithm)
        assert verify(Message.unpack(packet)) is AuthenticationLevel.SIG20
        offset = at.locate(packet).properties + 44
        assert int.from_bytes(packet[offset : offset + 4], "little") == algorithm
        for other in set(HashAlgorithm) - {algorithm}:
            assert refusal_of(changed(packet, offset, int(other).to_bytes(4, "little"))) == 0x8006

    @pytest.mark.parametrize("place", ["body", "label", "signature", "certificate", "priority", "tag"])
    def test_nothing_that_is_signed_may_change(self, place: str) -> None:
        packet = sign(plain(), signing_key())
        message = Message(packet)
        offset = {
            "body": message.body_offset,
            "label": packet.index(message.label_bytes),
            "signature": packet.index(message.signature),
            "certificate": packet.index(message.sender_certificate),
            "priority": 2,
            "tag": at.locate(packet).properties + 28,
        }[place]
        assert refusal_of(changed(packet, offset, packet[offset] ^ 1)) == 0x8006

    def test_what_routers_change_is_not_signed(self) -> None:
        packet = sign(plain(), signing_key())
        assert verify(Message.unpack(set_route_count(packet, 9))) is AuthenticationLevel.SIG20

    @pytest.mark.spec("MQMQ-2.2.19.3-8")
    @pytest.mark.parametrize("number", [0, 0x8000, 0x8005, 0x800B, 0x800D, 0x800F, 0xFFFF_FFFF])
    def test_an_unlisted_hash_fails_authentication_when_there_is_a_signature(self, number: int) -> None:
        """MS-MQMQ 2.2.19.3."""
        packet = sign(plain(), signing_key())
        place = at.locate(packet).properties + 44
        assert refusal_of(changed(packet, place, number.to_bytes(4, "little"))) == 0x8006
        unsigned = plain()
        place = at.locate(unsigned).properties + 44
        unsigned = changed(unsigned, place, number.to_bytes(4, "little"))
        assert verify(Message.unpack(unsigned)) is AuthenticationLevel.NONE

    def test_a_slow_hash_of_a_large_message_is_refused(self) -> None:
        packet = sign(plain(body=bytes(0x8000)), signing_key())
        place = at.locate(packet).properties + 44
        assert refusal_of(changed(packet, place, (0x8001).to_bytes(4, "little"))) == 0x8006

    def test_a_named_provider_that_we_do_not_have_is_0x800b(self) -> None:
        """DECISIONS: 0x800B is for a named but unsupported provider."""
        packet = sign(plain(), signing_key(), provider=(3, "Microsoft Base DSS Cryptographic Provider"))
        assert refusal_of(packet) == 0x800B
        for name in SUPPORTED_PROVIDERS:
            assert verify(Message(sign(plain(), signing_key(), provider=(1, name)))) is AuthenticationLevel.SIG20

    def test_beside_de_the_provider_is_not_the_signatures(self) -> None:
        """The message was signed by default and then encrypted.

        It names the provider that encrypted (DECISIONS).
        """
        packet = sign(plain(), signing_key(), provider=(3, "anything"))
        offset = at.locate(packet).security
        assert refusal_of(packet) == 0x800B
        assert verify(Message.unpack(changed(packet, offset, packet[offset] | at.DE))) is AuthenticationLevel.SIG20

    def test_a_signature_of_another_size_is_refused(self) -> None:
        message = Message(sign(plain(), signing_key()))
        for signature in (b"\0", message.signature + b"\0", message.signature[:-1], b"\xff" * 128):
            packet = plain(signature=signature, sender_certificate=message.sender_certificate, hash_algorithm=0x800E)
            assert refusal_of(packet) == 0x8006

    def test_a_short_key_proves_nothing(self) -> None:
        """Not in the documents: below 1,024 bits only with `security.legacy_crypto`."""
        own = queue_manager_keys(Profile.DOCUMENT).signing
        packet = sign(
            plain(
                sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
                sender_identifier=SOURCE.bytes_le,
            ),
            SigningKey(own[Provider.BASE]),
            hash_algorithm=HashAlgorithm.SHA1,
        )
        message = Message.unpack(packet)
        for providers in ([Provider.BASE], list(Provider)):
            keys = MqdsPublicKeys.unpack(public_key_list({one: own[one] for one in providers}))
            assert refusal_of(packet, keys) == 0x8006
            legacy = EncryptionPreferences(accepts_short_keys=True)
            assert verify(message, keys, legacy) is AuthenticationLevel.SIG20

    def test_padding_is_part_of_the_signature(self) -> None:
        """RFC 8017 8.2.2: the whole encoding is compared, so nothing can hide behind the hash."""
        key = queue_manager_keys(Profile.DOCUMENT).signing[Provider.ENHANCED]
        message = Message(plain(hash_algorithm=HashAlgorithm.SHA1))
        digest = hashes.Hash(hashes.SHA1())
        digest.update(hash_input_20(message))
        info = bytes.fromhex("3021300906052b0e03021a05000414") + digest.finalize()
        keys = MqdsPublicKeys.unpack(public_key_list({Provider.ENHANCED: key}))

        def signed_with(encoded: bytes) -> bytes:
            signature = key.private_operation(int.from_bytes(encoded, "big")).to_bytes(128, "little")
            return plain(
                hash_algorithm=HashAlgorithm.SHA1,
                signature=signature,
                sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
                sender_identifier=SOURCE.bytes_le,
            )

        good = b"\0\1" + b"\xff" * (125 - len(info)) + b"\0" + info
        assert verify(Message.unpack(signed_with(good)), keys) is AuthenticationLevel.SIG20
        hidden = b"\0\1" + b"\xff" * 8 + b"\0" + info
        assert refusal_of(signed_with(hidden + bytes(128 - len(hidden))), keys) == 0x8006
        assert refusal_of(signed_with(b"\0\2" + good[2:]), keys) == 0x8006


class TestCertificates:
    @pytest.mark.spec("MQMQ-2.2.20.6-6")
    def test_a_certificate_is_x_509_in_der_with_an_rsa_key(self) -> None:
        der = signing_key().certificate
        numbers = signing_key().key.public_key().public_numbers()  # type: ignore[union-attr]
        assert certificate_key(der).modulus == numbers.n
        pem = load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)
        for wrong in (
            b"",
            b"certificate",
            pem,
            der[:-1],
            der + b"\0",
            certificate_of(ec.generate_private_key(ec.SECP256R1())),
        ):
            with pytest.raises(Refusal) as caught:
                certificate_key(wrong)
            assert caught.value.message_class == 0x8006

    def test_an_exponent_beyond_32_bits_is_not_computed(self) -> None:
        """MS-MQMQ 2.2.20.6 Public Exponent: a 32-bit unsigned integer."""
        key = rsa.generate_private_key(65_537, 1024)
        modulus = key.public_key().public_numbers().n
        largest = rsa.RSAPublicNumbers((1 << 32) - 1, modulus).public_key()
        assert certificate_key(certificate_of(key, public=largest)).public_exponent == 0xFFFF_FFFF
        beyond = rsa.RSAPublicNumbers((1 << 32) + 1, modulus).public_key()
        with pytest.raises(Refusal, match="not usable"):
            certificate_key(certificate_of(key, public=beyond))

    @pytest.mark.parametrize(
        ("bits", "exponent"), [(8200, 65_537), (16_384, 65_537), (2056, 65_539), (8192, 0xFFFF_FFFF)]
    )
    def test_a_key_that_takes_long_to_use_is_not_used(self, bits: int, exponent: int) -> None:
        """Anyone who can connect may send messages with certificates.

        Nothing else runs during the arithmetic.
        """
        key = rsa.generate_private_key(65_537, 1024)

        def certificate(size: int, number: int) -> bytes:
            return certificate_of(key, public=rsa.RSAPublicNumbers(number, (1 << size) - 1).public_key())

        with pytest.raises(Refusal, match="not usable"):
            certificate_key(certificate(bits, exponent))
        assert certificate_key(certificate(8192, 65_537)).bit_length == 8192
        assert certificate_key(certificate(2048, 0xFFFF_FFFF)).bit_length == 2048

    # The library warns of serial numbers that RFC 5280 forbids; nothing here depends on them.
    @pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
    @given(st.data())
    def test_whatever_is_in_place_of_a_certificate_is_refused_or_read(self, data: st.DataObject) -> None:
        der = signing_key().certificate
        place = data.draw(st.integers(0, len(der) - 1))
        # Any exception but a Refusal fails the test.
        with suppress(Refusal):
            assert certificate_key(changed(der, place, data.draw(st.integers(0, 255)))).bit_length > 2

    def test_a_certificate_is_the_senders_when_the_directory_has_it(self) -> None:
        message = Message(sign(plain(), signing_key()))
        mine = UserSignCert(uuid.uuid4(), signing_key().certificate)
        other = UserSignCert(uuid.uuid4(), signing_key("bob").certificate)
        assert is_registered(message, UserSignCerts((other, mine)))
        assert not is_registered(message, UserSignCerts((other,)))
        assert not is_registered(message, UserSignCerts())


class TestQueueManagerSignatures:
    def signed(self) -> Message:
        key = SigningKey(queue_manager_keys().signing[Provider.AES])
        return Message.unpack(sign(make(body=b"ours"), key, queue_manager=SOURCE))

    @pytest.mark.spec("MQMQ-2.2.20.6-4")
    def test_a_queue_manager_signs_under_its_guid(self) -> None:
        message = self.signed()
        assert message.sender_identifier_type == 2
        assert message.sender_identifier == SOURCE.bytes_le
        keys = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[1])
        assert verify(message, keys) is AuthenticationLevel.SIG20

    def test_only_its_published_keys_count(self) -> None:
        message = self.signed()
        encryption = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
        for keys in (None, MqdsPublicKeys(), encryption):
            assert refusal_of(message.packet, keys) == 0x8006
        # A certificate in the message proves nothing about a queue manager.
        forged = sign(make(body=b"ours"), signing_key(), queue_manager=SOURCE)
        assert refusal_of(forged) == 0x8006

    def test_a_broken_key_list_is_refused(self) -> None:
        good = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[1])
        broken = MqdsPublicKeys((dataclasses.replace(good.keys[0], buffer=b"broken"),))
        assert refusal_of(self.signed().packet, broken) == 0x8006


class TestSigningKey:
    def test_a_key_is_loaded_only_with_its_own_certificate(self) -> None:
        key = signing_key().key
        assert isinstance(key, rsa.RSAPrivateKey)
        der = key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        loaded = SigningKey.load(signing_key().certificate, der)
        assert verify(Message(sign(plain(), loaded))) is AuthenticationLevel.SIG20
        assert "key=" not in repr(loaded)
        with pytest.raises(InvalidCertificate, match="does not belong"):
            SigningKey.load(signing_key("bob").certificate, der)
        with pytest.raises(InvalidCertificate, match="PKCS#8"):
            SigningKey.load(signing_key().certificate, b"no key")
        with pytest.raises(InvalidCertificate, match=r"X\.509"):
            SigningKey.load(b"no certificate", der)
        curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with pytest.raises(InvalidCertificate, match="not an RSA key"):
            SigningKey.load(signing_key().certificate, curve)
