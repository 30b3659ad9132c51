"""The engine in a process: the lock, the clocks, the thread that minds the timers, and group commit.

The engine is called by any thread that holds the store's lock. Whoever needs its work on disk calls
`Store.sync` without the lock: one thread commits for all that came meanwhile, the others find it done.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import logging
import socket
import threading
import time
from collections import deque
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from lanner.client.event_keeper import EventKeeper
from lanner.directory import EmbeddedDirectory
from lanner.engine import Engine, EngineSettings
from lanner.model.errors import InvalidParameter
from lanner.model.live import OpenQueueDescriptor, Transaction
from lanner.security.internal_certificates import CERTIFICATE_FILE, InternalCertificates
from lanner.security.keys import QueueManagerKeys
from lanner.security.users import USER_FILE, UserFile
from lanner.services.internal_certificates import internal_signing_key
from lanner.store import Store
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanner.engine.transactions import Coordinator
    from lanner.security.encryption import PrivateKeys
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.transfer.settings import TransferSettings

_LOG = logging.getLogger(__name__)
_TIMER_RETRY = 1.0  # seconds
# How often abandoned stages are looked for.
_SWEEP_INTERVAL = 3600.0  # seconds


class Runtime:
    """One running queue manager."""

    def __init__(self, data: str | Path, settings: EngineSettings, *, coordinator: Coordinator | None = None) -> None:
        self.path = Path(data)
        self.store = Store.open(self.path)
        self.users = UserFile(self.path / USER_FILE)
        self.certificates = InternalCertificates(self.path / CERTIFICATE_FILE)
        self.lock = self.store.lock
        # A queue.SimpleQueue, since that may be used by a finalizer, in the middle of whatever this thread does.
        self._timer_wake: SimpleQueue[None] = SimpleQueue()
        self._abandoned: deque[OpenQueueDescriptor | Transaction] = deque()
        self._is_closing = False
        self._sync_wanted = False
        try:
            with self.lock:
                directory = EmbeddedDirectory(self.store.table("directory"))
                site = directory.provision()
                settings = dataclasses.replace(
                    settings,
                    site_identifiers=settings.site_identifiers or (str(site),),
                    public_keys=settings.public_keys or self._public_key_lists,
                    private_keys=settings.private_keys or self._private_keys,
                    is_domain_user=settings.is_domain_user or self.users.is_domain_user,
                    resolve_identity=settings.resolve_identity or self.users.resolve,
                )
                self.engine = Engine(
                    self.store,
                    settings,
                    directory=directory,
                    clock=time.time,
                    monotonic=time.monotonic,
                )
                self.engine.coordinator = coordinator
                self.engine.deadline_changed = self._wake_timer
                self.engine.queue_manager_started()
                self._event_keeper: EventKeeper | None = None
                if settings.event_settings is not None:
                    self._event_keeper = EventKeeper(self.store, settings.event_settings)
                ticket = self.store.ticket()
            self.store.sync(ticket)
        except BaseException:
            self.store.close()
            raise
        self._timer = threading.Thread(target=self._mind_timers, name="lanner-timers", daemon=True)
        self._timer.start()
        if self._event_keeper is not None:
            self._event_keeper.start()

    def _public_key_lists(self) -> tuple[bytes, bytes]:
        return self._keys.public_key_lists()

    def _private_keys(self) -> PrivateKeys:
        return self._keys.encryption

    @cached_property
    def _keys(self) -> QueueManagerKeys:
        return QueueManagerKeys.load_or_create(self.path / "keys.json")

    def internal_signing_key(self, identity: Identity) -> SigningKey:
        """The key of the certificate that the queue manager makes for a local user. Takes the lock itself."""
        return internal_signing_key(self.engine, self.certificates, identity)

    def abandon(self, things: Iterable[OpenQueueDescriptor | Transaction]) -> None:
        """Take what nobody can close any more. Called by finalizers, so it only takes a note."""
        found = list(things)
        if found:
            self._abandoned.extend(found)
            self._wake_timer()

    def tidy(self) -> None:
        """Close what was abandoned. Called with the lock held, before other work."""
        while self._abandoned:
            thing = self._abandoned.popleft()
            if isinstance(thing, OpenQueueDescriptor):
                self.engine.close_queue(thing)
            elif thing.identifier in self.engine.queue_manager.transaction_collection:
                self.engine.transaction_abort(thing.identifier)

    def sync_soon(self) -> None:
        """Have the timer thread sync what nobody waits for. Called with the lock held."""
        if self.store.ticket() and not self._sync_wanted:
            self._sync_wanted = True
            self._wake_timer()

    def _wake_timer(self) -> None:
        self._timer_wake.put(None)

    def _is_woken(self, delay: float | None) -> bool:
        try:
            self._timer_wake.get(timeout=delay)
        except Empty:
            return False
        return True

    def _mind_timers(self) -> None:
        sweep_at = time.monotonic()
        while not self._is_closing:
            with self.lock:
                delay = self.engine.next_delay()
            is_woken = self._is_woken(_SWEEP_INTERVAL if delay is None else min(delay, _SWEEP_INTERVAL))
            if is_woken and not (self._abandoned or self._sync_wanted):
                continue
            try:
                with self.lock:
                    self._sync_wanted = False
                    self.tidy()
                    self.engine.on_timer()
                    if time.monotonic() >= sweep_at:
                        sweep_at = time.monotonic() + _SWEEP_INTERVAL
                        self.engine.drop_abandoned_stages()
                    ticket = self.store.ticket()
                self.store.sync(ticket)
            except Exception:  # noqa: BLE001 (logged, and tried again)
                # Whatever it is must not end the timers of everybody; it is tried again.
                _LOG.exception("timer work failed; it will be done again")
                self._is_woken(_TIMER_RETRY)

    def close(self) -> None:
        """Stop the engine, sync, and let go of the data directory. Closing twice is harmless."""
        with self.lock:
            if self._is_closing:
                return
            self._is_closing = True
        self._wake_timer()
        self._timer.join()
        if self._event_keeper is not None:
            self._event_keeper.stop()
        with self.lock:
            self.engine.queue_manager_stopped()
            ticket = self.store.ticket()
        try:
            self.store.sync(ticket)
        finally:
            self.store.close()


def local_settings(name: str | None, **overrides: object) -> EngineSettings:
    """Settings of an embedded queue manager: its name and this machine's addresses."""
    if name is not None:
        # A name that no path name could contain would lock every queue out.
        PathName.parse(f"{name}\\q")
    host = socket.gethostname()
    domain = host.partition(".")[2]
    values: dict[str, object] = {
        "computer_name": (name or "").upper(),
        "dns_domain": domain,
        "local_addresses": local_addresses(),
    }
    return EngineSettings(**(values | overrides))  # type: ignore[arg-type] # one field each, checked by EngineSettings


def local_addresses() -> frozenset[str]:
    """Addresses and names under which other programs reach this machine, in lower case."""
    found = {"127.0.0.1", "::1"}
    host = socket.gethostname().lower()
    found |= {host, host.partition(".")[0]}
    try:
        found |= {str(info[4][0]).lower() for info in socket.getaddrinfo(host, None)}
    except OSError:
        _LOG.debug("the name %s has no address", host)
    return frozenset(found)


def addresses_of(bind: str) -> frozenset[str]:
    """The names and addresses that mean a queue manager bound to one address of this machine.

    Several of them on one machine differ in their addresses, so one that is bound to 127.0.0.2 is not 127.0.0.1.
    """
    address = ipaddress.ip_address(bind)
    everything = local_addresses()
    if address.is_unspecified or bind == "127.0.0.1":
        return everything
    if bind in everything:
        return everything - {"127.0.0.1", "::1"}
    return frozenset({bind})


def bound_settings(
    bind: str | None, transfer: TransferSettings | None, settings: dict[str, object]
) -> dict[str, object]:
    """The settings of an engine whose queue manager is at this address, or at none."""
    if bind is None:
        if transfer is not None:
            raise InvalidParameter("transfer settings without an address to use them on: give bind, too")
        return settings
    try:
        ipaddress.ip_address(bind)
    except ValueError:
        raise InvalidParameter(
            f"bind {bind!r} is no address; one of this machine is meant, such as 127.0.0.2, or 0.0.0.0 for all"
        ) from None
    return {"local_addresses": addresses_of(bind)} | settings
