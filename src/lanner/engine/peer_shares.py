"""How much of the quota the messages of other computers may take, each computer and all of them. Not in the specification.

Everybody may send to a queue with the default access list, so the quota of the queue manager alone would let one sender fill it for all.
- A queue without a quota of its own takes messages of other computers up to `queue_share` of the queue manager's quota. More are
  refused as with a quota of the queue, so their senders get the acknowledgments that they have asked for.
- All messages of one peer, wherever they lie, may take up to `peer_share`, and those of all peers that the operator has not named up
  to `strangers_share`. More count as not received, as with a full queue manager: the session ends, and the sender keeps them.

A peer is an address. A message is charged to the address that first brought one of its source (SourceQueueManager), since the packet
says nothing more when it leaves. The sums per queue and source are rows of the store, written with recoverable messages. Removals are
written with the next of them, or at the end, so after a crash a sum may be too high. It is corrected at the start, when it is above what is
in the queue, and when the queue is empty.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final

from lanner.engine.tables import PEER_BYTES
from lanner.model.directory_objects import KILOBYTE
from lanner.model.enums import INFINITE, EnqueueStatus
from lanner.wire import fields

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.model.directory_objects import Queue

# Ours: sources that are told apart, of one peer and of all. The messages of further ones count as there until their queue is empty.
_MAX_SOURCES_OF_PEER: Final = 1024
_MAX_SOURCES: Final = 65_536
_KEY: Final = struct.Struct(">I16s")  # queue, source
_BYTES: Final = struct.Struct(">Q")  # and behind it the peer
_OK: Final = EnqueueStatus.OK


class PeerShares:
    """What the messages of each peer take. The store's lock is held."""

    def __init__(self, core: Core) -> None:
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._store = core.store
        self._table = core.store.table(PEER_BYTES)
        # Sources of messages that are not our own; empty: there are none.
        self.sources: dict[bytes, str] = {}
        self.by_peer: dict[str, int] = {}
        self._held: dict[int, dict[bytes, int]] = {}  # by queue and source
        self._count_of_peer: dict[str, int] = {}  # sources
        self._total = 0
        self._changed: set[tuple[int, bytes]] = set()
        # Whose messages are being taken; None: nobody's.
        self._peer: str | None = None
        self._room = 0  # bytes that it may bring
        self._queue_limit = 0  # bytes that are in a queue without a quota, at most
        # For an operator.
        self.refused = 0

    # Arrivals -------------------------------------------------------------------------------------

    def begin(self, peer: str, known_peers: frozenset[str] = frozenset()) -> None:
        """Take what a peer brings, until `end`. `known_peers`: those that are not strangers."""
        settings, quota = self._settings, self._queue_manager.queue_manager_quota
        self._peer = None
        if quota == INFINITE:
            return
        limit = quota * KILOBYTE
        self._peer = peer
        self._queue_limit = int(limit * settings.queue_share)
        self._room = int(limit * settings.peer_share) - self.by_peer.get(peer, 0)
        if peer not in known_peers:
            strange = self._total - sum(self.by_peer.get(one, 0) for one in known_peers)
            self._room = min(self._room, int(limit * settings.strangers_share) - strange)

    def end(self) -> None:
        """What comes now is our own. What has changed is written if there is something to write: no express message waits for the disk."""
        self._peer = None
        if self._changed and self._store.pending_batch():
            self.write()

    def check(self, queue: Queue, packet: bytes) -> EnqueueStatus:
        """Judge a message that is about to be stored; if it is fine, `placed` follows."""
        peer = self._peer
        source = fields.source_queue_manager(packet)
        if peer is None or source == self._queue_manager.identifier.bytes_le:
            return _OK
        size = len(packet)
        if queue.quota == INFINITE and queue.total_bytes + size > self._queue_limit:
            self.refused += 1
            return EnqueueStatus.QUEUE_QUOTA_EXCEEDED
        if size > self._room:
            self.refused += 1
            return EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
        self._room -= size
        if source not in self.sources:
            self._add_source(source, peer)
        return _OK

    @property
    def is_taking(self) -> bool:
        """Whether what comes is of a peer."""
        return self._peer is not None

    @property
    def queue_limit(self) -> int:
        """Bytes that may be in a queue without a quota of its own."""
        return self._queue_limit

    def explain(self) -> str:
        """Why a message counts as not received, if it is for its peer's sake."""
        if self._peer is None:
            return ""
        return (
            f"messages of {self._peer} take {self.by_peer.get(self._peer, 0)} bytes, and no more is taken from it for now "
            "(quota.peer_share, quota.strangers_share)"
        )

    def _add_source(self, source: bytes, peer: str) -> None:
        if self._count_of_peer.get(peer, 0) >= _MAX_SOURCES_OF_PEER or len(self.sources) >= _MAX_SOURCES:
            self._forget_sources()
        if self._count_of_peer.get(peer, 0) < _MAX_SOURCES_OF_PEER and len(self.sources) < _MAX_SOURCES:
            self.sources[source] = peer
            self._count_of_peer[peer] = self._count_of_peer.get(peer, 0) + 1

    def _forget_sources(self) -> None:
        """Forget those that have no messages here."""
        there = {source for sums in self._held.values() for source in sums}
        for source in [one for one in self.sources if one not in there]:
            self._count_of_peer[self.sources.pop(source)] -= 1

    # Sums -----------------------------------------------------------------------------------------

    def placed(self, queue: Queue, packet: bytes) -> None:
        """A message lies in a queue now: it has come, was moved there, or is a copy."""
        source = fields.source_queue_manager(packet)
        peer = self.sources.get(source)
        if peer is None:
            if self._peer is None or source == self._queue_manager.identifier.bytes_le:
                return
            peer = self._peer
            source = _all_sources_of(peer)
        self._add(queue.number, source, peer, len(packet))

    def removed(self, queue: Queue, packet: bytes) -> None:
        """A message has left a queue, whose total bytes are without it already."""
        sums = self._held.get(queue.number)
        if sums is None:
            return
        if queue.total_bytes <= 0:
            for source, size in list(sums.items()):
                self._add(queue.number, source, self._peer_of(source), -size)
            return
        source = fields.source_queue_manager(packet)
        if source in sums:
            self._add(queue.number, source, self._peer_of(source), -min(len(packet), sums[source]))

    def _peer_of(self, source: bytes) -> str:
        peer = self.sources.get(source)
        if peer is None:
            # One that stands for all further sources of a peer.
            peer = next((one for one in self.by_peer if _all_sources_of(one) == source), "")
        return peer

    def _add(self, queue: int, source: bytes, peer: str, size: int) -> None:
        sums = self._held.get(queue)
        if sums is None:
            sums = self._held[queue] = {}
        left = sums.get(source, 0) + size
        if left > 0:
            sums[source] = left
        else:
            sums.pop(source, None)
            if not sums:
                del self._held[queue]
        of_peer = self.by_peer.get(peer, 0) + size
        if of_peer > 0:
            self.by_peer[peer] = of_peer
        else:
            self.by_peer.pop(peer, None)
        self._total += size
        self._changed.add((queue, source))

    # The store ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the sums that have changed."""
        for queue, source in self._changed:
            size = self._held.get(queue, {}).get(source, 0)
            key = _KEY.pack(queue, source)
            if size:
                self._table.put(key, _BYTES.pack(size) + self._peer_of(source).encode())
            else:
                self._table.delete(key)
        self._changed.clear()

    def load(self) -> None:
        """Read the sums: at the start, and when the store has undone what was not synced."""
        for state in (self.sources, self.by_peer, self._held, self._count_of_peer):
            state.clear()
        self._changed.clear()
        self._total = 0
        rows: dict[int, dict[bytes, tuple[int, str]]] = {}
        for key, value in self._table.items():
            number, source = _KEY.unpack(key)
            rows.setdefault(number, {})[source] = (
                _BYTES.unpack_from(value)[0],
                value[_BYTES.size :].decode("utf-8", "replace"),
            )
        for number, sums in rows.items():
            queue = self._queue_manager.queue_collection.get(number)
            there = 0 if queue is None else queue.total_bytes
            told = sum(size for size, _ in sums.values())
            for source, (size, peer) in sums.items():
                self._add_source(source, peer)
                kept = size if told <= there else size * there // told
                if kept:
                    self._add(number, source, peer, kept)
                self._changed.add((number, source))


def _all_sources_of(peer: str) -> bytes:
    """What stands for the sources of a peer that are not told apart."""
    return hashlib.blake2s(peer.encode(), digest_size=16).digest()
