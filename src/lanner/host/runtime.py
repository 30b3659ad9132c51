"""The engine in a process: its store, its clocks, its accounts and keys, its timer thread.

Any thread that holds the store's lock may call the engine. A caller that needs its work on disk
makes it in a `change()` and then waits without the lock: one thread commits for all callers that
have joined meanwhile.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
import uuid
from collections import deque
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from lanner.directory import EmbeddedDirectory
from lanner.engine import Engine, EngineSettings
from lanner.host.access_migration import migrate
from lanner.host.change import Change
from lanner.host.coordinator import Coordinator
from lanner.host.event_keeper import EventKeeper
from lanner.host.internal_signing_key import internal_signing_key
from lanner.host.membership import Membership
from lanner.host.stream_lags import StreamLags
from lanner.host.timers import Timers
from lanner.model.enums import DirectoryOperationResult
from lanner.model.live import OpenQueueDescriptor, Transaction
from lanner.security.accounts import Accounts
from lanner.security.audit import AUDIT_FILE, AuditLog
from lanner.security.certificates import self_signed
from lanner.security.internal_certificates import CERTIFICATE_FILE, InternalCertificates
from lanner.security.keys import BEST_FIRST, QueueManagerKeys
from lanner.security.listed_keys import published_certificate
from lanner.security.signing import SigningKey
from lanner.security.tokens import TOKEN_FILE, TokenFile
from lanner.security.users import USER_FILE, UserFile
from lanner.store import Store
from lanner.wire.user_certificates import UserSignCert, UserSignCerts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.asymmetric import rsa

    from lanner.directory import Directory
    from lanner.directory.ldap import CachedDirectory
    from lanner.security.encryption import PrivateKeys
    from lanner.security.identity import Identity


class Runtime:
    """One running queue manager."""

    def __init__(self, data: str | Path, settings: EngineSettings, directory: Directory | None = None) -> None:
        """Open a data directory and start its engine.

        `directory` is that of a domain, in which settings.site_identifiers are. Without it, the
        directory is that of the domain which `lanner domain` has joined, or one in the store.
        """
        self.path = Path(data)
        self.store = Store.open(self.path)
        self._profile = settings.profile
        self._is_in_domain = directory is not None
        self.audit = settings.audit or AuditLog(self.path / AUDIT_FILE)
        self.users = UserFile(self.path / USER_FILE, self.audit, settings.local_origin)
        self.tokens = TokenFile(self.path / TOKEN_FILE)
        self.certificates = InternalCertificates(self.path / CERTIFICATE_FILE)
        self.lock = self.store.lock
        self.stream_lags = StreamLags()
        self._abandoned: deque[OpenQueueDescriptor | Transaction] = deque()
        self._is_closing = False
        self._own_directory: CachedDirectory | None = None
        try:
            if directory is None:
                membership = Membership.load(self.path)
                if membership is not None:
                    settings = membership.settings(settings)
                    if membership.is_member:
                        directory = self._own_directory = membership.directory(settings.profile)
                        self._is_in_domain = True
            with self.change() as change:
                if directory is None:
                    embedded = EmbeddedDirectory(self.store.table("directory"), profile=settings.profile)
                    site = embedded.provision()
                    settings = dataclasses.replace(settings, site_identifiers=settings.site_identifiers or (str(site),))
                    directory = embedded
                settings = dataclasses.replace(
                    settings,
                    public_keys=settings.public_keys or self._public_key_lists,
                    private_keys=settings.private_keys or self._private_keys,
                    signing_keys=settings.signing_keys or self._signing_keys,
                    is_domain_user=settings.is_domain_user or self.users.is_domain_user,
                    is_local_account=settings.is_local_account or self.users.is_local,
                    resolve_identity=settings.resolve_identity or self.users.resolve,
                    groups_naming=settings.groups_naming or self.users.groups_naming,
                    accounts=Accounts(self.users, partial(_account, directory)),
                    audit=self.audit,
                )
                self.engine = Engine(
                    self.store,
                    settings,
                    directory=directory,
                    clock=time.time,
                    monotonic=time.monotonic,
                    coordinator=Coordinator(self.store),
                )
                self._timers = Timers(self)
                self.engine.clocks.deadline_changed = self._timers.wake
                self.engine.queue_manager_started()
                migrate(self.engine, self.path)
                self._event_keeper: EventKeeper | None = None
                if settings.event_settings is not None:
                    self._event_keeper = EventKeeper(self.store, settings.event_settings)
            change.wait()
        except BaseException:
            self._close_directory()
            self.store.close()
            raise
        self._timers.start()
        if self._event_keeper is not None:
            self._event_keeper.start()

    def change(self) -> Change:
        """Return a change to make, and then to wait for."""
        return Change(self.store, self._ask)

    def _public_key_lists(self) -> tuple[bytes, bytes]:
        encryption, signing = self._keys.public_key_lists()
        if self._is_in_domain:
            # MS-MQDSSM 3.1.6.1.1.9: the computer's account has certificates there.
            signing = UserSignCerts((UserSignCert(uuid.uuid4(), self._new_certificate),)).pack()
        return encryption, signing

    @cached_property
    def _best_signing_key(self) -> rsa.RSAPrivateKey:
        return self._keys.signing[BEST_FIRST[0]].for_library()

    @cached_property
    def _new_certificate(self) -> bytes:
        name = self.engine.queue_manager.computer_name
        return self_signed(self._best_signing_key, name, dt.datetime.now(dt.UTC))

    def _signing_keys(self) -> list[SigningKey]:
        """Return the key that this queue manager signs with, and its published certificate."""
        key = self._best_signing_key
        published = published_certificate(
            self.engine.queue_manager.public_signing_key_list, key.public_key().public_numbers().n
        )
        return [SigningKey(key, published or self._new_certificate)]

    def _private_keys(self) -> PrivateKeys:
        return self._keys.encryption

    @cached_property
    def _keys(self) -> QueueManagerKeys:
        return QueueManagerKeys.load_or_create(self.path / "keys.json", self._profile)

    def internal_signing_key(self, identity: Identity) -> SigningKey:
        """Return the key of the internal certificate of a local user. Takes the lock itself."""
        return internal_signing_key(self.engine, self.certificates, identity)

    def abandon(self, things: Iterable[OpenQueueDescriptor | Transaction]) -> None:
        """Schedule objects to be closed that no program can reach any more.

        Finalizers call this, so it only queues them.
        """
        found = list(things)
        if found:
            self._abandoned.extend(found)
            self._timers.work_soon()

    def tidy(self) -> None:
        """Close the abandoned objects. The caller holds the lock."""
        while self._abandoned:
            thing = self._abandoned.popleft()
            if isinstance(thing, OpenQueueDescriptor):
                self.engine.close_queue(thing)
            elif thing.identifier in self.engine.queue_manager.transaction_collection:
                self.engine.transaction_abort(thing.identifier)

    def _ask(self, batch: int) -> None:
        """Have the timer thread commit a change that no caller waits for."""
        del batch  # a commit covers every earlier batch
        self._timers.work_soon()

    def close(self) -> None:
        """Stop the engine, commit, and release the data directory. Closing twice is harmless."""
        with self.lock:
            if self._is_closing:
                return
            self._is_closing = True
        self._timers.stop()
        if self._event_keeper is not None:
            self._event_keeper.stop()
        with self.change() as change:
            self.engine.queue_manager_stopped()
        self.audit.close()
        try:
            change.wait()
        finally:
            self._close_directory()
            self.store.close()

    def _close_directory(self) -> None:
        if self._own_directory is not None:
            self._own_directory.close()


def _account(directory: Directory, name_or_sid: str | bytes) -> tuple[str, bytes] | str:
    """Return the name and the SID of an account of the domain, or why it is not found."""
    if directory.keeper is not None:
        return "this computer is in no domain, and the account has not logged on"
    result, found = directory.account(name_or_sid)
    if found is not None:
        return found
    if result is DirectoryOperationResult.OBJECT_NOT_FOUND:
        return "the domain has no such account"
    return "no domain controller answers (`lanner domain status`)"
