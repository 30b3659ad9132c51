"""Which messages have come already (MS-MQQB 3.1.1.3 MessageIDHistoryTable, 3.1.2.8, 3.1.5.8.1, 3.1.6.7).

In memory, the oldest first. On disk, one row for all recoverable messages of one call, in the batch of the messages
themselves: after a crash both are there or neither. An express message does not outlive the process, and neither does what is
remembered of it, or a copy that the sender sends again would be dropped although the first is gone.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from lanner.transfer.deadlines import NEVER, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.store.table import Table
    from lanner.transfer.settings import TransferSettings

TABLE = "message_history"

_CHUNK = struct.Struct(">Q")
_ENTRY = struct.Struct("<20sI")  # MessageIdentifier, TimeStamp


class MessageIDHistory:
    """MessageIdentifiers (20 bytes: source queue manager, ordinal) and when they last came. The store's lock is held."""

    def __init__(
        self, table: Table, settings: TransferSettings, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._table = table
        self._size = settings.message_id_history_size
        self._duration = settings.message_id_history_cleanup
        self._clock = clock
        self._monotonic = monotonic
        self._entries: OrderedDict[bytes, int] = OrderedDict()  # by TimeStamp, seconds since 1970
        self._unwritten: list[bytes] = []
        # Rows of the table, the oldest first: number, entries, the newest TimeStamp.
        self._chunks: deque[tuple[int, int, int]] = deque()
        self._stored = 0  # entries in all rows
        self._next_chunk = 0
        # MessageIDHistory Cleanup Timer.
        self.deadline = Deadline()
        self.reload()

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def time_stamp(self, identifier: bytes) -> int:
        """When this message last came, in seconds since 1970."""
        return self._entries[identifier]

    def add(self, identifier: bytes, *, is_lasting: bool) -> None:
        """A message has come, or come again. `write` follows before the lock is released."""
        entries = self._entries
        now = int(self._clock())
        if identifier in entries:
            entries.move_to_end(identifier)
        elif len(entries) >= self._size:
            if not self._size:
                return
            entries.popitem(last=False)
        entries[identifier] = now
        if is_lasting:
            self._unwritten.append(_ENTRY.pack(identifier, now))
        if self.deadline.due == NEVER:
            self.deadline.set(self._monotonic() + self._duration)

    def write(self) -> None:
        """Put what has come since the last call into the current batch."""
        if not self._unwritten:
            return
        entries, self._unwritten = self._unwritten, []
        self._table.put(_CHUNK.pack(self._next_chunk), b"".join(entries))
        self._note(self._next_chunk, len(entries), int(self._clock()))
        while self._stored - self._chunks[0][1] >= self._size:
            self._drop_chunk()

    def _note(self, number: int, entries: int, newest: int) -> None:
        self._chunks.append((number, entries, newest))
        self._stored += entries
        self._next_chunk = number + 1

    def _drop_chunk(self) -> None:
        number, entries, _ = self._chunks.popleft()
        self._stored -= entries
        self._table.delete(_CHUNK.pack(number))

    def reload(self) -> None:
        """Go back to what the table has: at the start, and when the store could not write.

        Express messages stay where they are when the store fails, but are forgotten here: a copy of one may come through.
        """
        entries = self._entries
        entries.clear()
        self._unwritten.clear()
        self._chunks.clear()
        self._stored = 0
        for key, value in self._table.items():
            newest = 0
            for identifier, newest in _ENTRY.iter_unpack(value):
                entries[identifier] = newest
                entries.move_to_end(identifier)
            self._note(_CHUNK.unpack(key)[0], len(value) // _ENTRY.size, newest)
        while len(entries) > self._size:
            entries.popitem(last=False)
        self.deadline.set(self._monotonic() + self._duration if entries else NEVER)

    # MessageIDHistory Cleanup Timer -------------------------------------------------------------------------

    def on_timer(self) -> None:
        """3.1.6.7 MessageIDHistory Cleanup Timer Event."""
        now = self._monotonic()
        if self.deadline.due > now:
            return
        before = self._clock() - self._duration
        entries = self._entries
        for identifier in [identifier for identifier, time in entries.items() if time < before]:
            del entries[identifier]
        while self._chunks and self._chunks[0][2] < before:
            self._drop_chunk()
        self.deadline.set(now + self._duration if entries else NEVER)
