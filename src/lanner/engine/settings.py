"""Settings that an engine gets at its start; everything else is in the store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lanner.model.directory_objects import GUID_NULL, Queue
from lanner.model.events import EventKind
from lanner.security.accounts import Accounts
from lanner.security.audit import AuditLog
from lanner.security.encryption import DEFAULT_PREFERENCES, EncryptionPreferences, PrivateKeys
from lanner.security.identity import Identity
from lanner.security.profile import Profile
from lanner.security.signing import SigningKey
from lanner.wire.builder import DEFAULT_TIME_TO_REACH_QUEUE
from lanner.wire.sid import Sid

# For a new queue manager on a host whose name cannot be used.
DEFAULT_COMPUTER_NAME = "LANNER"
# Lower limit of EngineSettings.express_memory.
MIN_EXPRESS_MEMORY = 32 << 20
_LONGEST_KEEP = 3650

# Kind, queue, lookup identifier, packet, and the class of its removal (0 if there is none).
EventListener: TypeAlias = Callable[[EventKind, Queue | None, int, bytes, int], None]


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """The answer of the local security authority (MS-MQDMPR 3.1.3, MS-LSAD 2.2.4)."""

    account_domain_name: str
    dns_domain_name: str = ""
    domain_guid: uuid.UUID = GUID_NULL


@dataclass(frozen=True, slots=True)
class EventSettings:
    """How far the log of events reaches back. The stricter of the two limits applies.

    Raises ValueError for values that are not allowed.
    """

    keep_days: float = 7.0
    max_mb: int = 1024  # mebibytes of the store's file

    def __post_init__(self) -> None:
        if not 0 < self.keep_days <= _LONGEST_KEEP:
            raise ValueError(f"keep_days {self.keep_days}: above 0, at most {_LONGEST_KEEP}")
        if self.max_mb < 1:
            raise ValueError(f"max_mb {self.max_mb}: 1 or more")


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """When change notifications are processed, and in which version they are sent (MS-MQCN)."""

    # MS-MQCN notes 3 and 14: False processes them when they arrive, as Windows 2000 does.
    is_delayed: bool = True
    # Version 0x01, which only a directory server sends: Windows 2000 reads no other.
    sends_version_1: bool = False


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Names, limits and switches. Times are seconds."""

    # Empty: the name in the store, or the default below for a new store.
    computer_name: str
    default_computer_name: str = DEFAULT_COMPUTER_NAME
    dns_domain: str = ""
    # Returns the names of the host, to be used instead. An exception from it ends the start.
    host_policy: Callable[[], HostPolicy] | None = None
    # Other names and addresses that mean this computer, in lower case (DECISIONS: "is this host
    # me").
    local_addresses: frozenset[str] = field(default_factory=frozenset)
    directory_integrated: bool = False
    # Whether a queue manager may change its membership at startup: enter the domain of the
    # directory, or leave its former one. Set when `lanner domain` has changed the membership of
    # this computer.
    changes_membership: bool = False
    hardened_security: bool = False
    # The defaults of the documents, or safer ones.
    profile: Profile = Profile.SAFE
    # Whether queues that the anonymous user owns get another owner at startup, with profile SAFE.
    migrates_owners: bool = True
    # Kilobytes; None keeps the value in the store.
    queue_manager_quota: int | None = None
    journal_quota: int | None = None
    # Bytes of memory for express messages; None: no limit. At least MIN_EXPRESS_MEMORY, so that the
    # largest message fits.
    express_memory: int | None = 1 << 30
    # Shares of the queue manager's quota for messages of other computers: in a queue without a
    # quota of its own, of one address, and of all addresses that the operator has not named
    # (`peer_shares`).
    queue_share: float = 0.5
    peer_share: float = 0.5
    strangers_share: float = 0.75
    # Upper limit of TimeToReachQueue for applications (MS-MQDMPR 6, note 12: LongLiveTime).
    long_live_time: int = DEFAULT_TIME_TO_REACH_QUEUE
    # MS-MQQB 3.1.1.2 SendInsecureNacks: tell strangers why a message was refused.
    send_insecure_nacks: bool = False
    # Whether the SID in an unsigned message has the rights of that account (MS-MQQB 3.1.5.8.3).
    # None: as the profile says.
    trust_unsigned_sid: bool | None = None
    # MS-MQDMPR 3.1.2.1 and 3.1.2.2.
    directory_sites_update_interval: float = 12 * 3600.0
    directory_site_gates_update_interval: float = 3600.0
    # The Directory Server List Update Timer of MS-MQDMPR 3.1.3. No published document gives its
    # interval.
    directory_server_list_update_interval: float = 12 * 3600.0
    # Sites of the queue manager in the directory, set at provisioning (MS-MQDMPR 3.1.3). No
    # directory accepts a queue manager without a site, and without its object no public queue can
    # be created.
    site_identifiers: tuple[str, ...] = ()
    # Returns the encryption and signing key lists (MQDSPUBLICKEYS) at provisioning.
    public_keys: Callable[[], tuple[bytes, bytes]] | None = None
    # Returns the private encryption keys; called when a message arrives that is encrypted for this
    # queue manager.
    private_keys: Callable[[], PrivateKeys] | None = None
    # Returns the private signing keys with their certificates; called for a message that the queue
    # manager itself signs.
    signing_keys: Callable[[], Sequence[SigningKey]] | None = None
    # How a directory-integrated queue manager handles change notifications (MS-MQCN).
    notifications: NotificationSettings = NotificationSettings()
    encryption: EncryptionPreferences = DEFAULT_PREFERENCES
    # Whether RSA keys below 1,024 bits are accepted. None: as the profile says.
    legacy_crypto: bool | None = None
    # Whether a signature is accepted whose hash leaves out the destination, for example the 1.0
    # hash. None: as the profile says.
    legacy_signatures: bool | None = None
    # Whether to keep the log of events, and for how long; True: with the defaults of EventSettings.
    events: EventSettings | bool = False
    # Called for each event of a message, with the store's lock held.
    event_listener: EventListener | None = None

    # Whether an account is known here. Without it, a caller can create objects only for itself as
    # the owner.
    is_domain_user: Callable[[Sid], bool] | None = None

    # Whether a SID has a meaning only in the account file of this computer.
    is_local_account: Callable[[Sid], bool] | None = None

    # The names of accounts, for access lists in words.
    accounts: Accounts = field(default_factory=Accounts)

    # Where changes are recorded; None: the runtime writes a file in the data directory.
    audit: AuditLog | None = None
    # How the audit log describes callers in this process.
    local_origin: str = ""

    # Returns the user of a SID with its groups, or None if it is not known (DECISIONS: a pluggable
    # resolver).
    resolve_identity: Callable[[Sid], Identity | None] | None = None
    # Returns the groups of this computer that contain one of several SIDs, which a domain cannot
    # know.
    groups_naming: Callable[[Iterable[Sid]], frozenset[Sid]] | None = None

    @property
    def encryption_preferences(self) -> EncryptionPreferences:
        """`encryption`, with the profile's rules about short keys and old signatures.

        `legacy_crypto` and `legacy_signatures` take precedence over the profile.
        """
        default = self.profile is Profile.DOCUMENT
        preferences = self.encryption
        if default if self.legacy_crypto is None else self.legacy_crypto:
            preferences = replace(preferences, accepts_short_keys=True)
        if default if self.legacy_signatures is None else self.legacy_signatures:
            preferences = replace(preferences, accepts_legacy_signatures=True)
        return preferences

    @property
    def trusts_unsigned_sid(self) -> bool:
        """Whether an unsigned SID is treated as more than a claim."""
        trusts = self.trust_unsigned_sid
        return self.profile is Profile.DOCUMENT if trusts is None else trusts

    @property
    def event_settings(self) -> EventSettings | None:
        """The settings of the log of events; None: it is not kept."""
        if isinstance(self.events, EventSettings):
            return self.events
        return EventSettings() if self.events else None

    def query_policy(self) -> HostPolicy:
        """Return the names of this computer and its domain."""
        if self.host_policy is not None:
            return self.host_policy()
        return HostPolicy(self.computer_name, self.dns_domain)
