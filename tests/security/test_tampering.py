"""Every bit of a signed packet, and of one that is also encrypted.

A change on the way is detected, unless the bit is not covered. What MS-MQMQ 2.5 leaves out of the
hash is listed here by name. Everything else in the packet is covered. A change of any other bit
must have the message rejected (MS-MQQB 3.1.5.8.3), make the packet malformed, or name another
certificate or sender than the directory has.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lanner.model.enums import Acknowledgements, AuthenticationLevel, EncryptionAlgorithm
from lanner.model.errors import RemoteProtocolError
from lanner.security.encryption import EncryptionPreferences, SessionKey, encrypt_body, open_symmetric_key, select
from lanner.security.examination import examine
from lanner.security.key_cache import ReceiveKeyIdentity
from lanner.security.keys import Provider
from lanner.security.signing import sign
from lanner.wire import layout as at
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys
from tests.security.samples import SID, changed, queue_manager_keys, signing_key
from tests.wire.samples import make

# The library warns of serial numbers that RFC 5280 forbids; nothing here depends on them.
pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")

SIG10, SIG20, SIG30 = AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30
BODY, LABEL, EXTENSION = b"a secret body", "label", b"extension"
DESTINATION = parse(r"DIRECT=OS:server\private$\orders")
NAME = "OS:server\\private$\\orders\0".encode("utf-16-le")


def plain() -> bytes:
    return make(
        DESTINATION,
        transaction=1,
        body=BODY,
        label=LABEL,
        extension=EXTENSION,
        sender_identifier=SID,
        correlation_identifier=bytes(range(20)),
        application_tag=7,
        acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
        administration_queue_format_name=parse(r"DIRECT=OS:a\private$\admin"),
        response_queue_format_name=parse(r"DIRECT=OS:a\private$\resp"),
        privacy_level=0,
    )


def free_bits(packet: bytes, level: AuthenticationLevel) -> dict[int, int]:
    """Return the bits that no hash of that version covers, as masks by offset."""
    located = at.locate(packet)
    free: dict[int, int] = {}

    def release(start: int, end: int, mask: int = 0xFF) -> None:
        for place in range(start, end):
            free[place] = free.get(place, 0) | mask

    release(1, 2)  # BaseHeader.Reserved
    release(2, 3, 0xC0)  # BaseHeader.Flags: reserved
    release(3, 4, 0xFE)  # reserved; DH says where a header is
    release(12, 16)  # TimeToReachQueue
    release(32, 48)  # QueueManagerAddress
    release(48, 56)  # TimeToBeReceived, SentTime
    release(56, 60)  # MessageID
    release(60, 61, 0x9F)  # RC, which routers count; and a reserved bit
    release(63, 64, 0xEF)  # reserved and AH; HH says where a header is
    for end in ends_of_items(packet):
        release(end, end + 3 & ~3)  # nothing is written between two items
    release(located.transaction, located.transaction + 1, 0xFE)  # all but the flag that a GUID follows
    release(located.transaction + 1, located.transaction + 20)  # sequence, which the sending queue manager writes
    release(located.security, located.security + 1, at.AU | at.AI | at.DE)  # DE with no provider named
    release(located.security + 1, located.security + 2)  # AS, which the receiver writes; reserved
    properties = located.properties
    release(properties, properties + 1, 0xF0)  # reserved
    release(properties + 36, properties + 40)  # AllocationBodySize
    release(properties + 40, properties + 44)  # PrivacyLevel: a claim while the body is plain
    release(properties + 48, properties + 52)  # EncryptionAlgorithm, likewise
    if level is not SIG30:
        start = packet.index(EXTENSION)
        release(start, start + len(EXTENSION))
    if level is not SIG20:
        release(66, 66 + len(NAME))
    if level is SIG10:
        release(2, 3, at.PRIORITY_MASK)
        release(16, 32)  # SourceQueueManager
        release(61, 62, 0x03)  # JN, JP
        release(properties, properties + 1)  # acknowledgments wanted
        release(properties + 2, properties + 4)  # class
        release(properties + 24, properties + 28)  # body type
    return free


def ends_of_items(packet: bytes) -> Iterator[int]:
    located = at.locate(packet)
    for name in (64, located.administration, located.response):
        yield name + 2 + int.from_bytes(packet[name : name + 2], "little")
    message = Message(packet)
    place = located.security + 16
    info = int.from_bytes(packet[located.security + 12 : located.security + 16], "little")
    for size in (
        len(message.sender_identifier),
        len(message.symmetric_key),
        len(message.signature),
        len(message.sender_certificate),
        info,
    ):
        yield place + size
        place = place + size + 3 & ~3
    yield message.body_offset + message.body_size


def accepted(packet: bytes, symmetric_key: bytes | None = None) -> bool:
    """Return whether a receiver accepts the packet.

    Its key cache has one key, and its directory has alice.
    """
    try:
        message = Message.unpack(packet)
    except RemoteProtocolError:
        return False
    # Those of the profile "document", which all three kinds of signatures count with.
    preferences = EncryptionPreferences(accepts_legacy_signatures=True)
    found = examine(message, queue_manager_keys().encryption, symmetric_key=symmetric_key, preferences=preferences)
    return (
        found.refusal is None
        and found.authentication_level != AuthenticationLevel.NONE
        and (message.sender_certificate, message.sender_identifier) == (signing_key().certificate, SID)
    )


@pytest.mark.parametrize("level", [SIG10, SIG20, SIG30])
def test_every_bit_of_a_signed_message(level: AuthenticationLevel) -> None:
    packet = sign(plain(), signing_key(), level=level)
    assert accepted(packet)
    free = free_bits(packet, level)
    wrong = [
        (place, bit)
        for place, octet in enumerate(packet)
        for bit in range(8)
        if not free.get(place, 0) >> bit & 1 and accepted(changed(packet, place, octet ^ 1 << bit))
    ]
    assert wrong == []
    # What the versions differ in, so that the list above is none of everything.
    priority, source, name = changed(packet, 2, packet[2] ^ 1), changed(packet, 20, 0), changed(packet, 66, b"o")
    extension = changed(packet, packet.index(EXTENSION), b"E")
    assert [accepted(one) for one in (priority, source, name, extension)] == {
        SIG10: [True, True, True, True],
        SIG20: [False, False, False, True],
        SIG30: [False, False, True, False],
    }[level]


@pytest.mark.parametrize(
    ("provider", "algorithm"),
    [
        (Provider.AES, EncryptionAlgorithm.AES256),
        (Provider.ENHANCED, EncryptionAlgorithm.RC4),
        (Provider.BASE, EncryptionAlgorithm.RC2),
    ],
)
def test_every_octet_of_a_signed_and_encrypted_message(provider: Provider, algorithm: EncryptionAlgorithm) -> None:
    """Each octet in two ways.

    Where the packet no longer names the same session key RSA is needed: there one in four.
    """
    preferences = EncryptionPreferences(
        preferred_advanced_algorithm=EncryptionAlgorithm.AES256,
        preferred_enhanced_algorithm=EncryptionAlgorithm.RC4,
        preferred_base_algorithm=EncryptionAlgorithm.RC2,
    )
    every = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
    keys = MqdsPublicKeys(tuple(key for key in every.keys if key.provider_name == provider.provider_name))
    session_key = SessionKey.generate(select(keys, 1, preferences))
    assert session_key.algorithm is algorithm
    packet = encrypt_body(sign(plain(), signing_key()), session_key)
    assert accepted(packet)
    message = Message(packet)
    identity = ReceiveKeyIdentity.of(message)
    known = open_symmetric_key(message, queue_manager_keys().encryption)
    blob = packet.index(message.symmetric_key)
    info = packet.index(message.sender_certificate) + len(message.sender_certificate) + 3 & ~3
    free = free_bits(packet, SIG20) | dict.fromkeys((blob + 2, blob + 3), 0xFF)  # SIMPLEBLOB: reserved
    # Beside DE it names who encrypted; the receiver goes by PrivacyLevel. Without DE it would name
    # who signed.
    free |= dict.fromkeys(range(info, at.locate(packet).properties), 0xFF)
    properties = at.locate(packet).properties
    for place in (*range(properties + 40, properties + 44), *range(properties + 48, properties + 52)):
        del free[place]
    wrong = []
    for place, octet in enumerate(packet):
        for mask in (0x01, 0x80):
            if mask & free.get(place, 0):
                continue
            other = changed(packet, place, octet ^ mask)
            try:
                is_same_key = ReceiveKeyIdentity.of(Message.unpack(other)) == identity
            except RemoteProtocolError:
                continue
            if not is_same_key and blob + 12 < place and place % 4:
                continue
            if accepted(other, known if is_same_key else None):
                wrong.append((place, mask))
    assert wrong == []
