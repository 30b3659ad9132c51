"""MessageIDHistoryTable: identifiers of the messages that have arrived.

Implements MS-MQQB 3.1.1.3, 3.1.2.8, 3.1.5.8.1 and 3.1.6.7. In memory the oldest come first. On disk
there is one row for all recoverable messages of one call and address, in the batch of the messages
themselves: after a crash both are there or neither. An express message does not outlive the
process, and neither does its identifier. Otherwise a copy that the sender sends again would be
dropped although the first message is gone.

Each address has a table of its own, so a peer that sends many messages displaces only its own
entries. When all tables together are too big, one of them is dropped: in the network that has most
entries, the table of the address that came last.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lanner.security.peer_address import peer_of
from lanner.transfer.deadlines import NEVER, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanner.store.table import Table
    from lanner.transfer.settings import TransferSettings

TABLE = "message_history"

# Not in the specification: maximum number of addresses with a table, and of full tables.
MAX_SHARES: Final = 10_000
MAX_FULL_SHARES: Final = 10

_CHUNK = struct.Struct(">Q")  # followed by the address; rows of older versions have none
_ENTRY = struct.Struct("<20sI")  # MessageIdentifier, TimeStamp


@dataclass(slots=True, eq=False)
class _Share:
    """The messages from one address."""

    address: str
    entries: OrderedDict[bytes, int] = field(default_factory=OrderedDict)  # by TimeStamp, seconds since 1970
    unwritten: list[bytes] = field(default_factory=list)
    # Rows of the table, the oldest first: number, entries, newest TimeStamp.
    chunks: deque[tuple[int, int, int]] = field(default_factory=deque)
    stored: int = 0  # entries in all rows


class MessageIDHistory:
    """MessageIdentifiers (20 bytes: source queue manager, ordinal) and the time they last came.

    The store's lock is held.
    """

    def __init__(
        self, table: Table, settings: TransferSettings, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._table = table
        self._size = settings.message_id_history_size
        self._duration = settings.message_id_history_cleanup
        self._clock = clock
        self._monotonic = monotonic
        self._shares: dict[str, _Share] = {}
        self._current = _Share("")
        # The share in which an identifier is.
        self._share_of: dict[bytes, _Share] = {}
        self._changed: dict[_Share, None] = {}
        self._next_chunk = 0
        # MessageIDHistory Cleanup Timer.
        self.deadline = Deadline()
        self.reload()

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._share_of

    def __len__(self) -> int:
        return len(self._share_of)

    def time_stamp(self, identifier: bytes) -> int:
        """Return when this message last arrived, in seconds since 1970."""
        return self._share_of[identifier].entries[identifier]

    def begin(self, address: str) -> None:
        """Set the address to which identifiers are added from now on."""
        if address != self._current.address or address not in self._shares:
            self._current = self._share(address)
        if len(self._share_of) > MAX_FULL_SHARES * self._size or len(self._shares) > MAX_SHARES:
            self._make_room()

    def _share(self, address: str) -> _Share:
        share = self._shares.get(address)
        if share is None:
            share = self._shares[address] = _Share(address)
        return share

    def _make_room(self) -> None:
        """Drop the entries of one address, but not of the current one if there is another."""
        sizes: Counter[str] = Counter()
        for share in self._shares.values():
            sizes[peer_of(share.address)] += 1 + len(share.entries)
        others = [share for share in reversed(self._shares.values()) if share is not self._current]
        # The tables are in reverse order of arrival, and max() returns the first of equal ones.
        self._forget(max(others, key=lambda share: sizes[peer_of(share.address)], default=self._current))

    def _forget(self, share: _Share) -> None:
        del self._shares[share.address]
        self._changed.pop(share, None)
        for identifier in share.entries:
            del self._share_of[identifier]
        while share.chunks:
            self._drop_chunk(share)
        if share is self._current:
            self._current = self._share(share.address)

    def unknown(self, identifiers: Sequence[bytes]) -> int:
        """Return how many of the first identifiers are new and distinct."""
        share_of = self._share_of
        seen: set[bytes] = set()
        for count, identifier in enumerate(identifiers):
            if identifier in share_of or identifier in seen:
                return count
            seen.add(identifier)
        return len(identifiers)

    def add(self, identifiers: Sequence[bytes], *, is_lasting: bool) -> None:
        """Add identifiers of messages that arrived, or one that arrived again.

        `write` follows before the lock is released.
        """
        share, size = self._current, self._size
        entries = share.entries
        if not size:
            return
        now = int(self._clock())
        for identifier in identifiers:
            before = self._share_of.get(identifier)
            if before is not None:
                del before.entries[identifier]
            elif len(entries) >= size:
                del self._share_of[entries.popitem(last=False)[0]]
            entries[identifier] = now
            self._share_of[identifier] = share
        if is_lasting:
            share.unwritten += [_ENTRY.pack(identifier, now) for identifier in identifiers]
            self._changed[share] = None
        if self.deadline.due == NEVER:
            self.deadline.set(self._monotonic() + self._duration)

    def write(self) -> None:
        """Put everything added since the last call into the current batch."""
        while self._changed:
            share, _ = self._changed.popitem()
            entries, share.unwritten = share.unwritten, []
            self._table.put(self._row(self._next_chunk, share), b"".join(entries))
            self._note(share, self._next_chunk, len(entries), int(self._clock()))
            while share.stored - share.chunks[0][1] >= self._size:
                self._drop_chunk(share)

    @staticmethod
    def _row(number: int, share: _Share) -> bytes:
        return _CHUNK.pack(number) + share.address.encode()

    def _note(self, share: _Share, number: int, entries: int, newest: int) -> None:
        share.chunks.append((number, entries, newest))
        share.stored += entries
        self._next_chunk = number + 1

    def _drop_chunk(self, share: _Share) -> None:
        number, entries, _ = share.chunks.popleft()
        share.stored -= entries
        self._table.delete(self._row(number, share))

    def reload(self) -> None:
        """Reload the table, at the start and when the store could not write.

        Express messages stay in their queues when the store fails, but their identifiers are lost
        here. A copy of one may therefore be accepted.
        """
        self._shares.clear()
        self._share_of.clear()
        self._changed.clear()
        for key, value in self._table.items():
            (number,) = _CHUNK.unpack_from(key)
            share = self._share(key[_CHUNK.size :].decode())
            newest = 0
            for identifier, newest in _ENTRY.iter_unpack(value):
                before = self._share_of.get(identifier)
                if before is not None:
                    del before.entries[identifier]
                share.entries[identifier] = newest
                self._share_of[identifier] = share
            self._note(share, number, len(value) // _ENTRY.size, newest)
        for share in self._shares.values():
            while len(share.entries) > self._size:
                oldest, _ = share.entries.popitem(last=False)
                del self._share_of[oldest]
        self._current = self._share(self._current.address)
        self.deadline.set(self._monotonic() + self._duration if self._share_of else NEVER)

    # MessageIDHistory Cleanup Timer
    # -------------------------------------------------------------------------

    def on_timer(self) -> None:
        """Handle the MessageIDHistory Cleanup Timer event (3.1.6.7)."""
        now = self._monotonic()
        if self.deadline.due > now:
            return
        before = self._clock() - self._duration
        for share in list(self._shares.values()):
            for identifier in [identifier for identifier, time in share.entries.items() if time < before]:
                del share.entries[identifier], self._share_of[identifier]
            while share.chunks and share.chunks[0][2] < before:
                self._drop_chunk(share)
            if not share.entries and not share.chunks and share is not self._current:
                del self._shares[share.address]
        self.deadline.set(now + self._duration if self._share_of else NEVER)
