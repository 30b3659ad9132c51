"""A remote directory for an engine that must not wait: threads, cached answers, bounded waits.

The engine reads the directory while it holds the store's lock. Therefore the answers that it needs
again and again, to route messages, are cached for a minute, and renewed in the background while
they are in use. A call that takes too long counts as a disconnected directory. From then on no call
waits: earlier answers are used, and a thread probes the directory until it answers again.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lanner.directory.filters import AttributeFilter, SortOrder
from lanner.directory.ldap.directory import LdapDirectory
from lanner.directory.ldap.service_location import server_key
from lanner.model.directory_objects import DirectoryObject
from lanner.model.enums import DirectoryOperationResult

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

LIFETIME: Final = 60.0
# An answer of this age that is used again is renewed in the background.
RENEWAL_AGE: Final = LIFETIME / 2
PATIENCE: Final = 2.0
RETRY_INTERVAL: Final = 5.0
MAX_KEPT: Final = 20_000
# Calls wait behind renewals.
MAX_RENEWALS: Final = 4
# Names of servers that are remembered; senders of notifications choose them.
MAX_NAMED: Final = 256

_NOT_CONNECTED: Final = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
_KEPT: Final = (DirectoryOperationResult.SUCCESS, DirectoryOperationResult.OBJECT_NOT_FOUND)

_Found = tuple[DirectoryOperationResult, DirectoryObject | None]


@dataclass(slots=True)
class _Kept:
    """An answer, and when it was read on the monotonic clock; None: it has expired."""

    read_at: float | None
    answer: Any


class _Caller:
    """The thread that calls a directory, and whether the directory answers."""

    def __init__(self, directory: LdapDirectory, patience: float) -> None:
        self._directory = directory
        self._patience = patience
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="directory")
        self._lock = threading.Lock()
        self._probing: threading.Timer | None = None
        self._is_closed = False

    @property
    def is_away(self) -> bool:
        """Whether the directory did not answer the last time."""
        return self._probing is not None

    def call(self, operation: Callable[[], T], away: T) -> T:
        """Return the answer of an operation, or `away` if there is none in time."""
        if self.is_away:
            return away
        future = self._threads.submit(operation)
        try:
            answer = future.result(self._patience)
        except FutureTimeoutError:
            future.cancel()
            self._probe_later(f"no answer in {self._patience:g} s")
            return away
        if _result(answer) is _NOT_CONNECTED:
            self._probe_later(self._directory.operations.problem)
        return answer

    def submit(self, work: Callable[[], object]) -> None:
        """Do work in the thread, without a caller that waits for it."""
        self._threads.submit(work)

    def _probe_later(self, problem: str) -> None:
        with self._lock:
            if self._probing is None and not self._is_closed:
                _LOG.warning("the directory is unreachable: %s", problem)
                self._start_timer()

    def _start_timer(self) -> None:
        self._probing = threading.Timer(RETRY_INTERVAL, self._begin_probe)
        self._probing.daemon = True
        self._probing.start()

    def _begin_probe(self) -> None:
        with self._lock:
            if not self._is_closed:
                # A call that still waits for its answer ends first.
                self._threads.submit(self._probe)

    def _probe(self) -> None:
        result = _NOT_CONNECTED
        try:
            result = self._directory.initialize()
        finally:
            with self._lock:
                self._probing = None
                if result is _NOT_CONNECTED and not self._is_closed:
                    self._start_timer()
        if result is not _NOT_CONNECTED:
            _LOG.info("the directory answers again")

    def close(self, last: Callable[[], None]) -> None:
        """Do the last work, and end the thread, without waiting for either."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._probing is not None:
                self._probing.cancel()
        self._threads.submit(last)
        self._threads.shutdown(wait=False)


def _result(answer: object) -> object:
    return answer[0] if isinstance(answer, tuple) else answer


class CachedDirectory:
    """An LdapDirectory behind a thread of its own. Thread-safe."""

    def __init__(
        self,
        directory: LdapDirectory,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        caller: _Caller | None = None,
    ) -> None:
        """Use a directory; `caller` is that of another one whose thread this one shares."""
        self._directory = directory
        self._patience = patience
        self._clock = clock
        if caller is None:
            caller = _Caller(directory, patience)
            # Connecting takes longer than most reads.
            directory.operations.linger()
        self._caller = caller
        # Guards the answers, and the renewals that have begun.
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._renewals: set[Hashable] = set()
        # Incremented by every change. An answer that was requested before a change is not kept.
        self._changes = 0
        # A thread for reads at a server that a notification names: one that does not answer must
        # not delay those of the domain. Below, by its name: until when a server counts as
        # unreachable.
        self._named_threads = ThreadPoolExecutor(1, thread_name_prefix="directory-named")
        self._named_away: dict[str, float] = {}
        # When the names of the domain controllers were read, and the names.
        self._server_keys: tuple[float, frozenset[str]] | None = None

    def close(self) -> None:
        self._caller.close(self._directory.operations.shut_down)
        self._named_threads.shutdown(wait=False, cancel_futures=True)

    # Answers that are kept
    # ----------------------------------------------------------------------------------------------

    def _read(self, key: Hashable, operation: Callable[[], T], away: T) -> T:
        """Return a cached answer or a new one; while the directory is away, also an old one."""
        with self._lock:
            kept = self._kept.get(key)
            changes = self._changes
        age = None if kept is None or kept.read_at is None else self._clock() - kept.read_at
        if kept is not None and age is not None and age < LIFETIME:
            if age >= RENEWAL_AGE:
                self._renew(key, operation)
            return copy.deepcopy(kept.answer)  # type: ignore[no-any-return]
        answer = self._caller.call(operation, away)
        if _result(answer) is _NOT_CONNECTED and kept is not None:
            return copy.deepcopy(kept.answer)  # type: ignore[no-any-return]
        self._keep(key, answer, changes)
        return answer

    def _keep(self, key: Hashable, answer: object, changes: int) -> None:
        if _result(answer) not in _KEPT:
            return
        with self._lock:
            if changes != self._changes:
                return
            self._kept[key] = _Kept(self._clock(), copy.deepcopy(answer))
            self._kept.move_to_end(key)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def _renew(self, key: Hashable, operation: Callable[[], object]) -> None:
        with self._lock:
            if self._caller.is_away or key in self._renewals or len(self._renewals) >= MAX_RENEWALS:
                return
            self._renewals.add(key)
            changes = self._changes

        def renew() -> None:
            try:
                self._keep(key, operation(), changes)
            finally:
                with self._lock:
                    self._renewals.discard(key)

        self._caller.submit(renew)

    def _changed(self) -> None:
        """Expire every cached answer, because any may have changed.

        Expired answers still serve while the directory is unreachable.
        """
        with self._lock:
            self._changes += 1
            for kept in self._kept.values():
                kept.read_at = None

    def recall(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> DirectoryObject | None:
        with self._lock:
            kept = self._kept.get(_key(object_type, filters, attributes))
        return None if kept is None else copy.deepcopy(kept.answer[1])

    # The events of MS-MQDSSM 3.1.6
    # ------------------------------------------------------------------------

    def initialize(self) -> DirectoryOperationResult:
        """Return whether the directory answers. While it does not, it is probed in any case."""
        return self._caller.call(self._directory.initialize, _NOT_CONNECTED)

    def create_object(
        self, obj: DirectoryObject, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        self._changed()
        away: tuple[DirectoryOperationResult, uuid.UUID | None] = (_NOT_CONNECTED, None)
        return self._caller.call(lambda: self._directory.create_object(obj, attributes), away)

    def delete_object(self, obj: DirectoryObject) -> DirectoryOperationResult:
        self._changed()
        return self._caller.call(lambda: self._directory.delete_object(obj), _NOT_CONNECTED)

    def write(self, obj: DirectoryObject, attributes: Sequence[str] | None = None) -> DirectoryOperationResult:
        self._changed()
        return self._caller.call(lambda: self._directory.write(obj, attributes), _NOT_CONNECTED)

    def read(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> _Found:
        key = _key(object_type, filters, attributes)
        away: _Found = (_NOT_CONNECTED, None)
        return self._read(key, lambda: self._directory.read(object_type, filters, attributes), away)

    @property
    def server(self) -> str:
        return self._directory.server

    def knows_server(self, name: str) -> bool:
        """Return whether a name is that of a domain controller.

        All names are read together and cached, even the lack of an answer. Senders of notifications
        choose the names, and must not be able to cause a DNS query each.
        """
        now = self._clock()
        if self._server_keys is None or now - self._server_keys[0] >= LIFETIME:
            nothing: frozenset[str] = frozenset()
            self._server_keys = (now, self._call_named(self._directory.server_keys, nothing))
        return server_key(name) in self._server_keys[1]

    def read_at(
        self,
        server: str,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> _Found:
        away: _Found = (_NOT_CONNECTED, None)
        if not server:
            return self._caller.call(lambda: self._directory.read(object_type, filters, attributes), away)
        if self._clock() < self._named_away.get(server, 0.0):
            return away
        answer = self._call_named(lambda: self._directory.read_at(server, object_type, filters, attributes), away)
        if answer[0] is _NOT_CONNECTED:
            if len(self._named_away) >= MAX_NAMED:
                self._named_away.clear()
            self._named_away[server] = self._clock() + RETRY_INTERVAL
        return answer

    def _call_named(self, operation: Callable[[], T], away: T) -> T:
        """Return the answer of the thread for named servers, or `away` if it takes too long."""
        future = self._named_threads.submit(operation)
        try:
            return future.result(self._patience)
        except FutureTimeoutError:
            future.cancel()
            return away

    def queues_of(self, computer_name: str) -> tuple[DirectoryOperationResult, list[uuid.UUID] | None]:
        away: tuple[DirectoryOperationResult, list[uuid.UUID] | None] = (_NOT_CONNECTED, None)
        return self._caller.call(lambda: self._directory.queues_of(computer_name), away)

    def read_begin(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        sort_order: Sequence[SortOrder] | None = None,
    ) -> tuple[DirectoryOperationResult, int | None]:
        away: tuple[DirectoryOperationResult, int | None] = (_NOT_CONNECTED, None)
        return self._caller.call(lambda: self._directory.read_begin(object_type, filters, attributes, sort_order), away)

    def read_next(self, handle: int) -> _Found:
        away: _Found = (_NOT_CONNECTED, None)
        return self._caller.call(lambda: self._directory.read_next(handle), away)

    def read_end(self, handle: int) -> DirectoryOperationResult:
        return self._directory.read_end(handle)

    def resolve_distribution_list(
        self, guid: uuid.UUID, domain: str | None
    ) -> tuple[DirectoryOperationResult, list[str] | None]:
        away: tuple[DirectoryOperationResult, list[str] | None] = (_NOT_CONNECTED, None)
        return self._read(("list", guid), lambda: self._directory.resolve_distribution_list(guid, domain), away)

    def format_name_at(self, path: str) -> tuple[DirectoryOperationResult, str | None]:
        away: tuple[DirectoryOperationResult, str | None] = (_NOT_CONNECTED, None)
        return self._caller.call(lambda: self._directory.format_name_at(path), away)

    def acting_for(self, account: str) -> CachedDirectory | None:
        # Its user is about to change something.
        self._changed()
        directory = self._caller.call(lambda: self._directory.acting_for(account), None)
        if directory is None:
            return None
        # One thread for both: a thread of its own would outlive the call.
        return CachedDirectory(directory, patience=self._patience, clock=self._clock, caller=self._caller)

    @property
    def keeper(self) -> None:
        return self._directory.keeper

    def apart(self) -> LdapDirectory:
        return self._directory.apart()

    def servers(self) -> list[str]:
        return self._caller.call(self._directory.servers, [])

    def account(self, name_or_sid: str | bytes) -> tuple[DirectoryOperationResult, tuple[str, bytes] | None]:
        away: tuple[DirectoryOperationResult, tuple[str, bytes] | None] = (_NOT_CONNECTED, None)
        return self._read(("account", name_or_sid), lambda: self._directory.account(name_or_sid), away)

    def computer_sid(self, computer_name: str) -> bytes | None:
        return self._caller.call(lambda: self._directory.computer_sid(computer_name), None)

    def ensure_user(self, name: str, security_identifier: bytes) -> DirectoryOperationResult:
        return self._directory.ensure_user(name, security_identifier)


def _key(
    object_type: str, filters: Sequence[AttributeFilter] | None, attributes: Sequence[str] | None
) -> tuple[str, ...]:
    return ("read", object_type, repr(filters), repr(attributes))
