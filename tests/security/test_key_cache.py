"""The cache of keys and certificates, and its lifetimes.

MS-MQQB 3.1.1.3, 3.1.2.10-13, 3.1.3.1 and 3.1.6.10-13.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from lanner.model.enums import EncryptionAlgorithm
from lanner.security.encryption import Selection, SessionKey, encrypt_body, select
from lanner.security.key_cache import (
    SYMMETRIC_KEY_LONG_LIFETIME,
    ReceiveKeyIdentity,
    ReceiveSymmetricKeyCache,
    SendKeyIdentity,
    SendSymmetricKeyCache,
    TimedCache,
    UserCertCache,
    UserCertIdentity,
)
from lanner.security.keys import Provider
from lanner.security.signing import sign
from lanner.wire import layout as at
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys
from tests.security.samples import SID, changed, queue_manager_keys, signing_key
from tests.wire.samples import OTHER, SOURCE, make

Cache = TimedCache[Any, Any]
Kind = Callable[[Callable[[], float]], Cache]

CERTIFICATES = pytest.mark.spec("QQB-3.1.3.1-2")
KEYS = pytest.mark.spec("QQB-3.1.3.1-3")
ALL: list[tuple[Kind, int, int, str, pytest.MarkDecorator]] = [
    (SendSymmetricKeyCache, 53, 600, "send", KEYS),
    (ReceiveSymmetricKeyCache, 127, 600, "receive", KEYS),
    (UserCertCache, 53, 1200, "certificates", CERTIFICATES),
]
FIGURES = ("kind", "size", "lifetime")
every_cache = pytest.mark.parametrize(FIGURES, [pytest.param(*figures, id=name) for *figures, name, _ in ALL])


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def expire(clock: Clock, cache: Cache) -> float:
    """Let the cleanup timer expire; how long that takes."""
    due = cache.next_deadline()
    assert due is not None
    passed, clock.now = due - clock.now, due
    cache.on_timer()
    return passed


class TestSizes:
    @pytest.mark.parametrize(FIGURES, [pytest.param(*figures, id=name, marks=row) for *figures, name, row in ALL])
    def test_empty_at_first_with_the_documents_sizes_and_lifetimes(self, kind: Kind, size: int, lifetime: int) -> None:
        cache = kind(Clock())
        assert len(cache) == 0
        assert (cache.size, cache.lifetime) == (size, lifetime)
        assert cache.next_deadline() is None
        assert SYMMETRIC_KEY_LONG_LIFETIME == 43_200
        for number in range(size):
            cache.add(number, "value")
        assert len(cache) == size

    @pytest.mark.spec("QQB-3.1.7.1.5-7", "QQB-3.1.5.8.3-7", "QQB-3.1.5.8.3-11")
    @every_cache
    def test_one_too_many_and_the_oldest_half_goes(self, kind: Kind, size: int, lifetime: int) -> None:
        assert lifetime
        clock = Clock()
        cache = kind(clock)
        for number in range(size):
            cache.add(number, f"value {number}")
            clock.now += 0.5
        assert 0 in cache
        cache.add("new", "value")
        half = {53: 26, 127: 63}[size]
        assert len(cache) == size - half + 1
        assert [number in cache for number in range(size)] == [False] * half + [True] * (size - half)
        assert cache.find("new") == "value"
        assert cache.find(size - 1) == f"value {size - 1}"
        assert cache.find(0) is None

    @every_cache
    def test_a_key_that_is_there_already_takes_no_room(self, kind: Kind, size: int, lifetime: int) -> None:
        assert lifetime
        cache = kind(Clock())
        for number in range(size):
            cache.add(number, "old")
        cache.add(0, "new")
        assert len(cache) == size
        assert cache.find(0) == "new"
        # It is the newest now.
        cache.add("another", "value")
        assert 0 in cache
        assert 1 not in cache


class TestTimers:
    @pytest.mark.spec("QQB-3.1.2.10-1", "QQB-3.1.5.8.3-7", "QQB-3.1.5.8.3-11", "QQB-3.1.7.1.5-7")
    @every_cache
    def test_the_first_insertion_arms_the_timer_and_no_other_moves_it(
        self, kind: Kind, size: int, lifetime: int
    ) -> None:
        assert size
        clock = Clock()
        cache = kind(clock)
        cache.add("a", 1)
        assert cache.next_deadline() == 1000 + lifetime
        clock.now += 100
        cache.add("b", 2)
        assert cache.next_deadline() == 1000 + lifetime

    @pytest.mark.spec("QQB-3.1.2.10-1", "QQB-3.1.6.10-1", "QQB-3.1.6.11-1", "QQB-3.1.6.13-1")
    @every_cache
    def test_what_is_too_old_goes_and_the_timer_follows_the_oldest_that_stays(
        self, kind: Kind, size: int, lifetime: int
    ) -> None:
        """3.1.6.10: an entry older than "less than CURRENT_TIME minus" the lifetime is removed.

        The timer is then set to the lifetime plus one minute minus the age of the oldest entry.
        """
        assert size
        clock = Clock()
        cache = kind(clock)
        cache.add("a", 1)
        clock.now += 100
        cache.add("b", 2)
        # "a" has exactly the age of its lifetime: not more.
        assert expire(clock, cache) == lifetime - 100
        assert "a" in cache
        assert expire(clock, cache) == 60
        assert "a" not in cache
        assert "b" in cache
        # "b" is lifetime - 40 old: another 100 seconds.
        assert expire(clock, cache) == 100
        assert len(cache) == 0
        assert cache.next_deadline() is None
        # Armed again by the next insertion.
        clock.now += 5
        cache.add("c", 3)
        assert cache.next_deadline() == clock.now + lifetime

    @every_cache
    def test_before_its_time_nothing_happens(self, kind: Kind, size: int, lifetime: int) -> None:
        assert size
        clock = Clock()
        cache = kind(clock)
        cache.on_timer()
        cache.add("a", 1)
        clock.now += lifetime - 1
        cache.on_timer()
        assert cache.next_deadline() == 1000 + lifetime
        clock.now += 1000
        cache.on_timer()
        assert len(cache) == 0

    def test_a_late_timer_drops_all_that_is_too_old(self) -> None:
        clock = Clock()
        cache = SendSymmetricKeyCache(clock)
        entries: Cache = cache
        for number in range(10):
            entries.add(number, "value")
            clock.now += 100
        # Number 9 is 100 seconds old, number 3 700.
        cache.on_timer()
        assert [number in entries for number in range(10)] == [False] * 4 + [True] * 6
        assert cache.next_deadline() == clock.now + 60


class TestIdentities:
    def selection(self, provider: Provider = Provider.AES) -> Selection:
        every = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
        return select(MqdsPublicKeys(tuple(k for k in every.keys if k.provider_name == provider.provider_name)), 1)

    @pytest.mark.spec("QQB-3.1.7.1.5-6")
    def test_a_key_to_send_with_is_known_by_receiver_provider_and_algorithm(self) -> None:
        cache = SendSymmetricKeyCache(Clock())
        selection = self.selection()
        key = SessionKey.generate(selection)
        cache.add(SendKeyIdentity.of(OTHER, selection), key)
        assert cache.find(SendKeyIdentity.of(OTHER, selection)) is key
        assert cache.find(SendKeyIdentity.of(SOURCE, selection)) is None
        weaker = dataclasses.replace(selection, algorithm=EncryptionAlgorithm.AES128)
        assert cache.find(SendKeyIdentity.of(OTHER, weaker)) is None
        other = dataclasses.replace(selection, provider=Provider.ENHANCED)
        assert cache.find(SendKeyIdentity.of(OTHER, other)) is None

    @pytest.mark.spec("QQB-3.1.5.8.3-11")
    def test_a_received_key_is_known_by_sender_provider_algorithm_and_its_octets(self) -> None:
        packet = encrypt_body(make(body=b"x", sender_identifier=SID), SessionKey.generate(self.selection()))
        identity = ReceiveKeyIdentity.of(Message(packet))
        assert identity == (SOURCE, Provider.AES, 0x6610, Message(packet).symmetric_key)
        properties = at.locate(packet).properties
        others = [
            changed(packet, 16, packet[16] ^ 1),  # SourceQueueManager
            changed(packet, properties + 40, 3),  # PrivacyLevel
            changed(packet, properties + 48, 0x0E),  # EncryptionAlgorithm
            changed(packet, packet.index(Message(packet).symmetric_key) + 50, b"\0\0\0\0"),
        ]
        found = {ReceiveKeyIdentity.of(Message(other)) for other in others}
        assert len(found) == 4
        assert identity not in found
        assert None not in found

    def test_no_key_where_nothing_is_encrypted_or_the_level_is_none(self) -> None:
        assert ReceiveKeyIdentity.of(Message(make(body=b"x", sender_identifier=SID))) is None
        packet = encrypt_body(make(body=b"x"), SessionKey.generate(self.selection()))
        assert ReceiveKeyIdentity.of(Message(changed(packet, at.locate(packet).properties + 40, 2))) is None

    @pytest.mark.spec("QQB-3.1.5.8.3-6")
    def test_a_certificate_is_known_for_one_user(self) -> None:
        cache = UserCertCache(Clock())
        message = Message(sign(make(sender_identifier=SID), signing_key()))
        assert not cache.knows(message)
        cache.note(message)
        assert cache.knows(Message(sign(make(body=b"another", sender_identifier=SID), signing_key())))
        assert not cache.knows(Message(sign(make(sender_identifier=SID), signing_key("bob"))))
        assert not cache.knows(Message(sign(make(sender_identifier=SID[:-1] + b"\1"), signing_key())))
        assert UserCertIdentity.of(message) == (signing_key().certificate, SID)
