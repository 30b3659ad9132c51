"""A remote directory for an engine that must not wait: threads, cached answers, bounded waits.

The engine reads the directory while it holds the store's lock. Therefore the answers that it needs
again and again, to route messages, are cached for a minute. A call that takes too long counts as a
disconnected directory, and for `RETRY_INTERVAL` after that no further call waits for it. During
that time, earlier answers are used.
"""

from __future__ import annotations

import copy
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from lanner.directory.filters import AttributeFilter, SortOrder
from lanner.directory.ldap.directory import LdapDirectory
from lanner.directory.ldap.service_location import server_key
from lanner.model.directory_objects import DirectoryObject
from lanner.model.enums import DirectoryOperationResult

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

LIFETIME: Final = 60.0
PATIENCE: Final = 2.0
RETRY_INTERVAL: Final = 10.0
MAX_KEPT: Final = 20_000
# Names of servers that are remembered; senders of notifications choose them.
MAX_NAMED: Final = 256

_NOT_CONNECTED: Final = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
_KEPT: Final = (DirectoryOperationResult.SUCCESS, DirectoryOperationResult.OBJECT_NOT_FOUND)

_Found = tuple[DirectoryOperationResult, DirectoryObject | None]


class CachedDirectory:
    """An LdapDirectory behind a thread of its own."""

    def __init__(
        self,
        directory: LdapDirectory,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._patience = patience
        self._clock = clock
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="directory")
        self._kept: OrderedDict[Any, tuple[float, Any]] = OrderedDict()
        self._away_until = 0.0
        # A thread for reads at a server that a notification names: one that does not answer must
        # not delay those of the domain. Below, by its name: until when a server counts as
        # unreachable.
        self._named_threads = ThreadPoolExecutor(1, thread_name_prefix="directory-named")
        self._named_away: dict[str, float] = {}
        # When the names of the domain controllers were read, and the names.
        self._server_keys: tuple[float, frozenset[str]] | None = None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._named_threads.shutdown(wait=False, cancel_futures=True)

    # Calls
    # ----------------------------------------------------------------------------------------------

    def _call(self, operation: Callable[[], T], away: T, *, forced: bool = False) -> T:
        """Return the thread's answer, or `away` if it is not in time."""
        if self._clock() < self._away_until and not forced:
            return away
        future = self._threads.submit(operation)
        try:
            answer = future.result(self._patience)
        except FutureTimeoutError:
            future.cancel()
            _LOG.warning("the directory has not answered in %.0f s", self._patience)
            answer = away
        result = answer[0] if isinstance(answer, tuple) else answer
        self._away_until = self._clock() + RETRY_INTERVAL if result is _NOT_CONNECTED else 0.0
        return answer

    def _read(self, key: object, operation: Callable[[], T], away: T) -> T:
        """Return a cached answer or a new one; while the directory is away, also an old one."""
        read_at, kept = self._kept.get(key, (0.0, None))
        if kept is not None and self._clock() - read_at < LIFETIME:
            return copy.deepcopy(kept)  # type: ignore[no-any-return]
        answer = self._call(operation, away)
        result = answer[0] if isinstance(answer, tuple) else answer
        if result is _NOT_CONNECTED and kept is not None:
            return copy.deepcopy(kept)  # type: ignore[no-any-return]
        if result in _KEPT:
            self._kept[key] = (self._clock(), copy.deepcopy(answer))
            self._kept.move_to_end(key)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return answer

    def _changed(self) -> None:
        """Expire every cached answer, because any may have changed.

        Expired answers still serve while the directory is unreachable.
        """
        self._kept = OrderedDict((key, (0.0, answer)) for key, (_, answer) in self._kept.items())

    # The events of MS-MQDSSM 3.1.6
    # ------------------------------------------------------------------------

    def initialize(self) -> DirectoryOperationResult:
        return self._call(self._directory.initialize, _NOT_CONNECTED, forced=True)

    def create_object(
        self, obj: DirectoryObject, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        self._changed()
        away: tuple[DirectoryOperationResult, uuid.UUID | None] = (_NOT_CONNECTED, None)
        return self._call(lambda: self._directory.create_object(obj, attributes), away)

    def delete_object(self, obj: DirectoryObject) -> DirectoryOperationResult:
        self._changed()
        return self._call(lambda: self._directory.delete_object(obj), _NOT_CONNECTED)

    def write(self, obj: DirectoryObject, attributes: Sequence[str] | None = None) -> DirectoryOperationResult:
        self._changed()
        return self._call(lambda: self._directory.write(obj, attributes), _NOT_CONNECTED)

    def read(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> _Found:
        key = ("read", object_type, repr(filters), repr(attributes))
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
            return self._call(lambda: self._directory.read(object_type, filters, attributes), away)
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
        return self._call(lambda: self._directory.queues_of(computer_name), away)

    def read_begin(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        sort_order: Sequence[SortOrder] | None = None,
    ) -> tuple[DirectoryOperationResult, int | None]:
        away: tuple[DirectoryOperationResult, int | None] = (_NOT_CONNECTED, None)
        return self._call(lambda: self._directory.read_begin(object_type, filters, attributes, sort_order), away)

    def read_next(self, handle: int) -> _Found:
        away: _Found = (_NOT_CONNECTED, None)
        return self._call(lambda: self._directory.read_next(handle), away)

    def read_end(self, handle: int) -> DirectoryOperationResult:
        return self._directory.read_end(handle)

    def resolve_distribution_list(
        self, guid: uuid.UUID, domain: str | None
    ) -> tuple[DirectoryOperationResult, list[str] | None]:
        away: tuple[DirectoryOperationResult, list[str] | None] = (_NOT_CONNECTED, None)
        return self._read(("list", guid), lambda: self._directory.resolve_distribution_list(guid, domain), away)

    def format_name_at(self, path: str) -> tuple[DirectoryOperationResult, str | None]:
        away: tuple[DirectoryOperationResult, str | None] = (_NOT_CONNECTED, None)
        return self._call(lambda: self._directory.format_name_at(path), away)

    def acting_for(self, account: str) -> CachedDirectory | None:
        # Its user is about to change something.
        self._changed()
        directory = self._call(lambda: self._directory.acting_for(account), None, forced=True)
        if directory is None:
            return None
        other = CachedDirectory(directory, patience=self._patience, clock=self._clock)
        # One thread for both: a thread of its own would outlive the call.
        other.close()
        other._threads = self._threads
        return other

    def servers(self) -> list[str]:
        return self._call(self._directory.servers, [], forced=True)

    def account(self, name_or_sid: str | bytes) -> tuple[DirectoryOperationResult, tuple[str, bytes] | None]:
        away: tuple[DirectoryOperationResult, tuple[str, bytes] | None] = (_NOT_CONNECTED, None)
        return self._read(("account", name_or_sid), lambda: self._directory.account(name_or_sid), away)

    def computer_sid(self, computer_name: str) -> bytes | None:
        return self._call(lambda: self._directory.computer_sid(computer_name), None)

    def ensure_user(self, name: str, security_identifier: bytes) -> DirectoryOperationResult:
        return self._directory.ensure_user(name, security_identifier)
