"""What a queue manager remembers so as not to do RSA or ask the directory for each message.

SendSymmetricKeyCache, ReceiveSymmetricKeyCache and UserCertCache of MS-MQQB 3.1.1.3, filled by
3.1.7.1.5 and 3.1.5.8.3, emptied by the timers of 3.1.2.10-13 and 3.1.6.10-13. The separate caches
for base keys are those of Windows before Vista (3.1.1.3, notes 22 and 23); base keys are in the
same caches here.
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
# Used by Windows XP and Windows Server 2003 alone, for what they send (3.1.7.1.5, note 69).
SYMMETRIC_KEY_LONG_LIFETIME: Final = 43_200.0
USER_CERT_LIFETIME: Final = 1200.0
# 3.1.6.10-13: "plus one minute".
_GRACE: Final = 60.0

K = TypeVar("K")
V = TypeVar("V")


class TimedCache(Generic[K, V]):
    """A list of so many entries, each of which is forgotten some time after it came.

    The document compares times of day; these are of a clock that nobody sets, so that no entry
    outlives its time because an hour was repeated.
    """

    def __init__(self, size: int, lifetime: float, monotonic: Callable[[], float]) -> None:
        self.size = size
        self.lifetime = lifetime  # seconds
        self._monotonic = monotonic
        # Value and CachedTime; the order of insertion is the order of CachedTime.
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
        """Keep an entry; a full list first loses the older half of what it may hold."""
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
        """When the cleanup timer expires; None while it does not run."""
        return self._due

    def on_timer(self) -> None:
        """3.1.6.10-13: drop what is too old and, if anything is left, come back when the oldest of it may be."""
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
    """What makes a key usable for a message (3.1.7.1.5)."""

    remote_qm_guid: UUID
    provider: Provider
    algorithm: int

    @classmethod
    def of(cls, recipient: UUID, selection: Selection) -> SendKeyIdentity:
        return cls(recipient, selection.provider, selection.algorithm)


class ReceiveKeyIdentity(NamedTuple):
    """What says that a key was decrypted before (3.1.5.8.3)."""

    remote_qm_guid: UUID
    provider: Provider
    algorithm: int
    encrypted_symmetric_key: bytes

    @classmethod
    def of(cls, message: Message) -> ReceiveKeyIdentity | None:
        """The key that the body of this message is encrypted with; None when there is none that could be."""
        provider = PROVIDERS.get(message.privacy_level)
        if not message.is_body_encrypted or provider is None:
            return None
        return cls(
            message.source_machine_identifier, provider, int(message.encryption_algorithm), message.symmetric_key
        )


class UserCertIdentity(NamedTuple):
    """3.1.1.3.4 CachedUserCert: a certificate and the user that the directory has it for."""

    certificate: bytes
    security_id: bytes

    @classmethod
    def of(cls, message: Message) -> UserCertIdentity:
        return cls(message.sender_certificate, message.sender_identifier)


class SendSymmetricKeyCache(TimedCache[SendKeyIdentity, SessionKey]):
    """Keys made for others."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(SEND_SYMMETRIC_KEY_CACHE_SIZE, SYMMETRIC_KEY_SHORT_LIFETIME, monotonic)


class ReceiveSymmetricKeyCache(TimedCache[ReceiveKeyIdentity, bytes]):
    """Keys that others made for us, decrypted."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(RECEIVE_SYMMETRIC_KEY_CACHE_SIZE, SYMMETRIC_KEY_SHORT_LIFETIME, monotonic)


class UserCertCache(TimedCache[UserCertIdentity, bool]):
    """Certificates that the directory had for their senders."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(USER_CERT_CACHE_SIZE, USER_CERT_LIFETIME, monotonic)

    def note(self, message: Message) -> None:
        """The certificate of this message was found among its sender's."""
        self.add(UserCertIdentity.of(message), value=True)

    def knows(self, message: Message) -> bool:
        return UserCertIdentity.of(message) in self
