"""Caches that save RSA operations and directory reads for each message.

SendSymmetricKeyCache, ReceiveSymmetricKeyCache and UserCertCache of MS-MQQB 3.1.1.3. They are
filled by 3.1.7.1.5 and 3.1.5.8.3, and emptied by the timers of 3.1.2.10-13 and 3.1.6.10-13. Windows
before Vista has separate caches for base keys (3.1.1.3, notes 22 and 23); here base keys are in the
same caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from lanner.security.encryption import PROVIDERS, SessionKey

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.security.encryption import Selection
    from lanner.security.keys import Provider
    from lanner.wire.message import Message

# MS-MQQB 3.1.3.1; times are seconds.
SEND_SYMMETRIC_KEY_CACHE_SIZE: Final = 53
RECEIVE_SYMMETRIC_KEY_CACHE_SIZE: Final = 127
USER_CERT_CACHE_SIZE: Final = 53
SYMMETRIC_KEY_SHORT_LIFETIME: Final = 600.0
# Used only by Windows XP and Windows Server 2003, for messages that they send (3.1.7.1.5, note 69).
SYMMETRIC_KEY_LONG_LIFETIME: Final = 43_200.0
USER_CERT_LIFETIME: Final = 1200.0
# 3.1.6.10-13: "plus one minute".
_GRACE: Final = 60.0

K = TypeVar("K")
V = TypeVar("V")


class TimedCache(Generic[K, V]):
    """A list of at most `size` entries, each of which expires some time after it was added.

    The document compares times of day. Here they are those of a monotonic clock, so that no entry
    outlives its time when the time of day is set back.
    """

    def __init__(self, size: int, lifetime: float, monotonic: Callable[[], float]) -> None:
        self.size = size
        self.lifetime = lifetime  # seconds
        self._monotonic = monotonic
        # Value and CachedTime, inserted in the order of CachedTime.
        self._entries: dict[K, tuple[V, float]] = {}
        self._due: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def find(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def add(self, key: K, value: V) -> None:
        """Add an entry. A full list first drops the older half of its entries."""
        entries = self._entries
        entries.pop(key, None)
        if len(entries) >= self.size:
            for old in list(entries)[: self.size // 2]:
                del entries[old]
        now = self._monotonic()
        entries[key] = (value, now)
        if self._due is None:
            self._due = now + self.lifetime

    def next_deadline(self) -> float | None:
        """Return when the cleanup timer expires; None while it is not running."""
        return self._due

    def on_timer(self) -> None:
        """Drop expired entries; if any are left, restart the timer for the oldest (3.1.6.10-13)."""
        now = self._monotonic()
        if self._due is None or now < self._due:
            return
        entries = self._entries
        for key, (_, cached_time) in list(entries.items()):
            if cached_time >= now - self.lifetime:
                break
            del entries[key]
        self._due = None
        for _, oldest in entries.values():
            self._due = now + self.lifetime + _GRACE - (now - oldest)
            break


class SendKeyIdentity(NamedTuple):
    """The conditions under which a key can be used for a message (3.1.7.1.5)."""

    remote_qm_guid: UUID
    provider: Provider
    algorithm: int

    @classmethod
    def of(cls, recipient: UUID, selection: Selection) -> SendKeyIdentity:
        return cls(recipient, selection.provider, selection.algorithm)


class ReceiveKeyIdentity(NamedTuple):
    """The fields by which an already decrypted key is recognized (3.1.5.8.3)."""

    remote_qm_guid: UUID
    provider: Provider
    algorithm: int
    encrypted_symmetric_key: bytes

    @classmethod
    def of(cls, message: Message) -> ReceiveKeyIdentity | None:
        """Return the identity of the key that the body of this message is encrypted with.

        Returns None if there can be none.
        """
        provider = PROVIDERS.get(message.privacy_level)
        if not message.is_body_encrypted or provider is None:
            return None
        return cls(
            message.source_machine_identifier, provider, int(message.encryption_algorithm), message.symmetric_key
        )


class UserCertIdentity(NamedTuple):
    """CachedUserCert (3.1.1.3.4): a certificate and the user that has it in the directory."""

    certificate: bytes
    security_id: bytes

    @classmethod
    def of(cls, message: Message) -> UserCertIdentity:
        return cls(message.sender_certificate, message.sender_identifier)


class SendSymmetricKeyCache(TimedCache[SendKeyIdentity, SessionKey]):
    """Keys generated for receivers."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(SEND_SYMMETRIC_KEY_CACHE_SIZE, SYMMETRIC_KEY_SHORT_LIFETIME, monotonic)


class ReceiveSymmetricKeyCache(TimedCache[ReceiveKeyIdentity, bytes]):
    """Decrypted keys that senders generated for this queue manager."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(RECEIVE_SYMMETRIC_KEY_CACHE_SIZE, SYMMETRIC_KEY_SHORT_LIFETIME, monotonic)


class UserCertCache(TimedCache[UserCertIdentity, bool]):
    """Certificates that the directory had for their senders."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(USER_CERT_CACHE_SIZE, USER_CERT_LIFETIME, monotonic)

    def note(self, message: Message) -> None:
        """Note that the certificate of this message was found among its sender's."""
        self.add(UserCertIdentity.of(message), value=True)

    def knows(self, message: Message) -> bool:
        return UserCertIdentity.of(message) in self
