"""Limits on how much of the quota messages of other computers may use, per computer and in total.

Not in the specification.

With the default access list everyone may send to a queue. With only the quota of the queue manager,
one sender could therefore use it up for all others.
- A stranger is a peer that the operator has not named. A queue without a quota of its own accepts
  messages of strangers up to `queue_share` of the queue manager's quota. Further messages are
  refused as if the queue's quota were reached, so their senders get the acknowledgments that they
  requested.
- All messages of one peer, in all queues together, may use up to `peer_share` of the quota and of
  the memory for express messages. Those of all strangers may use up to `strangers_share`. Further
  messages count as not received, as when the queue manager is full: the session ends, and the
  sender keeps them.

A peer is an address. A message is charged to the address that first delivered a message of the same
source (SourceQueueManager): when the message leaves, its packet still names the source, but not the
address. An acknowledgment from this queue manager is charged like the message that it answers. The
sums per queue and source are rows of the store, written together with recoverable messages.
Removals are written with the next such message, or at shutdown, so after a crash a sum may be too
high. It is corrected at startup, if it exceeds the size of the queue, and whenever the queue is
empty.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import TYPE_CHECKING, Final

from lanner.engine.tables import PEER_BYTES
from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import INFINITE, EnqueueStatus, MessageClass
from lanner.wire import fields
from lanner.wire.envelope import event_fields, is_express

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.model.directory_objects import Queue

# Not in the specification: sources counted separately, per peer and in total. Messages of further
# sources count as present until their queue is empty.
_MAX_SOURCES_OF_PEER: Final = 1024
_MAX_SOURCES: Final = 65_536
_KEY: Final = struct.Struct(">I16s")  # queue, source
_BYTES: Final = struct.Struct(">Q")  # the peer of that source
_OK: Final = EnqueueStatus.OK


class _Peer:
    """An address, and the resources that its messages use."""

    __slots__ = ("express", "name", "size", "sources")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.express = 0  # of `size`, in memory
        self.sources = 0  # sources counted separately


class _Sum:
    """The use of one queue by the messages of one source.

    Each message changes only the size. The peer is charged with the difference when its total is
    needed (`PeerShares._charge`).
    """

    __slots__ = ("charged", "charged_express", "express", "is_changed", "key", "peer", "size")

    def __init__(self, key: bytes, peer: _Peer) -> None:
        self.key = key
        self.peer = peer
        self.size = 0
        self.express = 0
        self.charged = 0
        self.charged_express = 0
        self.is_changed = False


class PeerShares:
    """The use of resources by each peer. The caller holds the store's lock."""

    def __init__(self, core: Core) -> None:
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._express_memory = core.express_memory
        self._store = core.store
        self._table = core.store.table(PEER_BYTES)
        # Sources of messages from other computers; empty: there are none.
        self.sources: dict[bytes, _Peer] = {}
        self._peers: dict[str, _Peer] = {}
        self._sums: dict[int, dict[bytes, _Sum]] = {}  # by queue and source
        self._changed: list[_Sum] = []
        # The sum of the last message, and its key: the next message mostly belongs to it too.
        self._last = _Sum(b"", _Peer(""))
        self._last_source = b""
        self._last_queue: Queue | None = None
        self._own = b""
        self._total = 0
        self._total_express = 0
        self._known_peers: frozenset[str] = frozenset()
        # The peer whose messages are being accepted; None outside `begin` and `end`.
        self._peer: _Peer | None = None
        self.is_taking = False
        self._is_stranger = False
        self._room = 0.0  # bytes that it may still bring
        # Express messages: those that stay here, and those that leave.
        self._express_room = 0.0
        self._leaving_room = 0.0
        # Bytes that may be in a queue without a quota of its own.
        self.queue_limit = 0

    @property
    def by_peer(self) -> dict[str, int]:
        """The use of resources by each peer."""
        self._charge()
        return {peer.name: peer.size for peer in self._peers.values() if peer.size}

    # Arrivals -------------------------------------------------------------------------------------

    def begin(self, name: str, known_peers: frozenset[str] = frozenset()) -> None:
        """Charge messages to a peer until `end`. Peers in `known_peers` are not strangers."""
        settings, quota = self._settings, self._queue_manager.queue_manager_quota
        self._peer, self.is_taking = None, False
        self._known_peers = known_peers
        if quota == INFINITE:
            return
        if self._changed:
            self._charge()
        limit = quota * KILOBYTE
        self.queue_limit = int(limit * settings.queue_share)
        peer = self._peer = self._named(name)
        self.is_taking = True
        self._is_stranger = name not in known_peers
        memory = math.inf if self._express_memory.limit is None else self._express_memory.limit
        self._room = _part(limit, settings.peer_share) - peer.size
        self._express_room = _part(memory, settings.peer_share) - peer.express
        self._leaving_room = _part(memory * 3 / 4, settings.peer_share) - peer.express
        if self._is_stranger:
            known = [self._peers[one] for one in known_peers if one in self._peers]
            others = self._total - sum(one.size for one in known)
            express = self._total_express - sum(one.express for one in known)
            share = settings.strangers_share
            self._room = min(self._room, _part(limit, share) - others)
            self._express_room = min(self._express_room, _part(memory, share) - express)
            self._leaving_room = min(self._leaving_room, _part(memory * 3 / 4, share) - express)

    def end(self) -> None:
        """Stop charging messages to a peer.

        Changed sums are written if there is something else to write, because no express message may
        wait for the disk.
        """
        peer, self._peer, self.is_taking = self._peer, None, False
        if self._changed and self._store.pending_batch():
            self.write()
        if peer is not None and not peer.sources and not peer.size and not self._changed:
            self._peers.pop(peer.name, None)

    def take(self, queue: Queue, packet: bytes, size: int, *, express: bool) -> EnqueueStatus:
        """Judge the message that is stored next, while `is_taking`.

        If it is accepted, it counts as placed. Several messages of one source are judged together:
        `size` is their total. If there is no room for all, none is placed.
        """
        source = fields.source_queue_manager(packet)
        if source == self._own:
            source = _cause(packet)
            if source == self._own:
                return _OK
        if self._is_stranger and queue.quota == INFINITE and queue.total_bytes + size > self.queue_limit:
            return EnqueueStatus.QUEUE_QUOTA_EXCEEDED
        if size > self._room:
            return EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
        if express:
            if size > (self._leaving_room if isinstance(queue, OutgoingQueue) else self._express_room):
                return EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
            self._express_room -= size
            self._leaving_room -= size
        self._room -= size
        if queue is self._last_queue and source == self._last_source and self._last.is_changed:
            self._last.size += size
            if express:
                self._last.express += size
            return _OK
        if self._peer is not None and source not in self.sources:
            self._add_source(source, self._peer)
        self.placed(queue, packet, size)
        return _OK

    def is_of_stranger(self, source: bytes) -> bool:
        """Return whether messages of this source come from a stranger."""
        peer = self.sources.get(source, self._peer)
        return peer is not None and source != self._own and peer.name not in self._known_peers

    def explain(self) -> str:
        """Return why a message counts as not received, if the reason is its peer's share."""
        if self._peer is None:
            return ""
        self._charge()
        return (
            f"messages of {self._peer.name} take {self._peer.size} bytes, {self._peer.express} of them in memory, "
            "and no more is accepted from it for now (quota.peer_share, quota.strangers_share)"
        )

    def _named(self, name: str) -> _Peer:
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = _Peer(name)
        return peer

    def _add_source(self, source: bytes, peer: _Peer) -> None:
        if peer.sources >= _MAX_SOURCES_OF_PEER or len(self.sources) >= _MAX_SOURCES:
            self._forget_sources()
        # A source beyond the limits has no entry of its own and is charged to its peer.
        if peer.sources < _MAX_SOURCES_OF_PEER and len(self.sources) < _MAX_SOURCES:
            self.sources[source] = peer
            peer.sources += 1

    def _forget_sources(self) -> None:
        """Forget sources that have no messages here, and their peers."""
        self.write()
        there = {source for sums in self._sums.values() for source in sums}
        for source in [one for one in self.sources if one not in there]:
            peer = self.sources.pop(source)
            peer.sources -= 1
            if not peer.sources and not peer.size and peer is not self._peer:
                self._peers.pop(peer.name, None)

    # Sums -----------------------------------------------------------------------------------------

    def placed(self, queue: Queue, packet: bytes, size: int) -> None:
        """Count a message that now lies in a queue: it arrived, was moved there, or is a copy.

        As in `take`, it may be several messages.
        """
        source = fields.source_queue_manager(packet)
        if source == self._own:
            source = _cause(packet)
        found = self._last
        if queue is not self._last_queue or source != self._last_source:
            peer = self.sources.get(source)
            if peer is None:
                peer = self._peer
                if peer is None or source == self._own:
                    return
                source = _all_sources_of(peer.name)
            sums = self._sums.setdefault(queue.number, {})
            if source not in sums:
                sums[source] = _Sum(_KEY.pack(queue.number, source), peer)
            found = self._last = sums[source]
            self._last_queue, self._last_source = queue, source
        found.size += size
        if is_express(packet):
            found.express += size
        if not found.is_changed:
            self._note(found)

    def removed(self, queue: Queue, packet: bytes) -> None:
        """Count a message that has left a queue. The queue's total no longer includes it."""
        source = fields.source_queue_manager(packet)
        if source == self._own:
            source = _cause(packet)
        found = self._last
        if queue is not self._last_queue or source != self._last_source or queue.total_bytes <= 0:
            sums = self._sums.get(queue.number)
            if sums is None:
                return
            if queue.total_bytes <= 0:
                for one in sums.values():
                    one.size = one.express = 0
                    self._note(one)
                return
            if source not in sums:
                return
            found = self._last = sums[source]
            self._last_queue, self._last_source = queue, source
        found.size -= len(packet)
        if is_express(packet):
            found.express -= len(packet)
        if not found.is_changed:
            self._note(found)

    def _note(self, found: _Sum) -> None:
        if not found.is_changed:
            found.is_changed = True
            self._changed.append(found)

    def _charge(self) -> None:
        """Charge the peers with all changes so far."""
        for one in self._changed:
            one.size = max(one.size, 0)
            one.express = min(max(one.express, 0), one.size)
            change, express = one.size - one.charged, one.express - one.charged_express
            one.charged, one.charged_express = one.size, one.express
            one.peer.size += change
            one.peer.express += express
            self._total += change
            self._total_express += express

    # The store ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the sums that have changed."""
        self._charge()
        self._last_queue, self._last_source = None, b""
        for one in self._changed:
            one.is_changed = False
            if one.size:
                self._table.put(one.key, _BYTES.pack(one.size) + one.peer.name.encode())
                continue
            self._table.delete(one.key)
            queue, source = _KEY.unpack(one.key)
            sums = self._sums.get(queue)
            if sums is not None and sums.get(source) is one:
                del sums[source]
                if not sums:
                    del self._sums[queue]
        self._changed.clear()

    def load(self) -> None:
        """Read the sums, at startup and when the store has undone unsynced changes."""
        self._own = self._queue_manager.identifier.bytes_le
        # The store does not undo express messages, and after a start there are none.
        express = {one.key: one.express for sums in self._sums.values() for one in sums.values()}
        self.sources.clear()
        self._peers.clear()
        self._sums.clear()
        self._changed.clear()
        self._last_queue, self._last_source = None, b""
        self._total = self._total_express = 0
        told: dict[int, int] = {}
        for key, value in list(self._table.items()):
            queue, source = _KEY.unpack(key)
            peer = self._named(value[_BYTES.size :].decode("utf-8", "replace"))
            if source != _all_sources_of(peer.name):
                self._add_source(source, peer)
            found = self._sums.setdefault(queue, {})[source] = _Sum(key, peer)
            found.size = _BYTES.unpack_from(value)[0]
            found.express = express.get(key, 0)
            self._note(found)
            told[queue] = told.get(queue, 0) + found.size
        queues = self._queue_manager.queue_collection
        for queue, sums in self._sums.items():
            there = queues[queue].total_bytes if queue in queues else 0
            if told[queue] > there:
                for one in sums.values():
                    one.size = one.size * there // told[queue]


def _all_sources_of(peer: str) -> bytes:
    """Return the key that stands for the sources of a peer that are not counted separately."""
    return hashlib.blake2s(peer.encode(), digest_size=16).digest()


def _part(limit: float, share: float) -> float:
    """Return the bytes of a share.

    It is infinite for a share of 1: then only the limit itself applies.
    """
    return math.inf if share >= 1 else limit * share


def _cause(packet: bytes) -> bytes:
    """Return the source to charge: that of the message which this one answers, else its own.

    A FinalAck names no message in the place where other acknowledgments do, so its destination
    stands for the source.
    """
    _, _, _, _, message_class, correlation, _, _, _ = event_fields(packet)
    if message_class == MessageClass.NORMAL:
        return fields.source_queue_manager(packet)
    if any(correlation):
        return correlation[:16]
    kind, name = fields.destination(packet)
    return hashlib.blake2s(name, digest_size=16, salt=bytes([kind])).digest()
