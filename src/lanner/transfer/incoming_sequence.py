"""Sequences of transactional messages from other queue managers.

Implements MS-MQQB 3.1.1.5, 3.1.2.7 and 3.1.5.8.6. A sender has one sequence for each of its
outgoing queues, which means for each destination name. Therefore the state is kept per source queue
manager and destination name, never per connection: behind a router many senders share one
connection, and a computer may know a queue by two names at once. It is kept even if the queue does
not exist. A message to a missing queue is refused like any other message at that position in the
sequence, and the sequence continues once the queue is created.

A row is written in the batch of the message that changed it. Old sequences are forgotten: those
that were not used for a long time, and, when one address has too many, its least recently used
ones. If such a sender comes back, its sequence restarts from zero: messages that it resends are
either delivered twice or rejected as out of order. For this reason the limits are kept so that no
peer can evict the sequences of another address, and unknown peers cannot evict those of known ones.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import struct
import sys
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lanner.model.live import IncomingTransactionalTransferInfo
from lanner.security.peer_address import peer_of
from lanner.transfer.deadlines import NEVER, Deadline
from lanner.transfer.transactional_acknowledgments import AcknowledgingLink
from lanner.wire.format_name import FormatName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lanner.model.directory_objects import Queue
    from lanner.store import Store
    from lanner.transfer.settings import TransferSettings

TABLE = "incoming_sequences"

# Not in the specification: maximum number of sequences that have delivered no message. Any peer can
# begin one.
MAX_REFUSED_SEQUENCES = 4096
# Not in the specification: maximum number of sequences of unknown peers that have delivered a
# message, per address and in total. A peer that may send to a queue can begin any number, under
# made-up names and identifiers.
MAX_SEQUENCES_PER_ADDRESS = 1000
MAX_SEQUENCES_OF_STRANGERS = 50_000
# Not in the specification: maximum number of sequences per address of a known peer. It may be a
# router that forwards for many senders.
MAX_SEQUENCES_OF_KNOWN_PEER = 10_000
# Not in the specification: seconds after which an unused sequence is forgotten. Messages travel for
# days at most.
SEQUENCE_LIFETIME = 30 * 24 * 3600
# Not in the specification: seconds until a due OrderAck is tried again if the messages it would
# acknowledge are not durable yet.
NOT_DURABLE_DELAY = 0.02

_ROW = struct.Struct("<QIIIBH")
# A name from a peer may contain a lone surrogate.
_LONE = "surrogatepass"
_DIRECT = 1
_DELIVERED = 2
_KNOWN = 4


@dataclass(slots=True, eq=False)
class IncomingSequence:
    """The state of messages from one source queue manager to one destination name."""

    key: bytes
    source: uuid.UUID
    format_name: str
    is_direct: bool  # DirectFormatSession: acknowledgments go to the address, not to the GUID
    # IncomingTxSequenceID (0: none yet), IncomingTxSequenceNumber and TxMessageRejectCount of
    # 3.1.1.3.1.
    tx_sequence_id: int = 0
    tx_sequence_number: int = 0
    reject_count: int = 0
    last_access_time: int = 0  # seconds since 1970
    remote_address: str = ""
    # A message of this sender reached the queue, so it is not among the first to be forgotten.
    has_delivered: bool = False
    # The address of the peer from which its messages came is stated (`identities`).
    is_known: bool = False
    # The sequences of the same kind and address (`_Kept`), the least recently used first.
    among: OrderedDict[bytes, IncomingSequence] = field(default_factory=OrderedDict, repr=False)
    info: IncomingTransactionalTransferInfo | None = None
    # `durable`: the durable state, which OrderAcks report. `acknowledged`: the state in the last
    # OrderAck. `waiting`: states not yet durable, each with its batch number.
    durable: tuple[int, int] = (0, 0)
    acknowledged: tuple[int, int] = (0, 0)
    waiting: deque[tuple[int, int, int]] = field(default_factory=deque)
    # Order Ack Send Timer and LastOrderAckSendTime: seconds of the monotonic clock.
    order_ack_due: float | None = None
    last_order_ack_send_time: float = 0.0
    link: AcknowledgingLink | None = None
    unacknowledged: int = 0
    heap_due: float | None = None
    is_forgotten: bool = False

    def accepts(self, tx_sequence_id: int, number: int, previous: int) -> bool:
        """Return whether a message is in order and new (3.1.5.8.6). Gaps are expired messages."""
        if tx_sequence_id == self.tx_sequence_id:
            return previous <= self.tx_sequence_number < number
        return tx_sequence_id > self.tx_sequence_id and not previous

    def accept(self, tx_sequence_id: int, number: int, now: int, messages: int = 1) -> None:
        """Note that messages up to this number are in their queue or were refused for a cause."""
        self.tx_sequence_id = tx_sequence_id
        self.tx_sequence_number = number
        self.reject_count = 0
        self.last_access_time = now
        self.unacknowledged += messages
        self._show()

    def reject(self, now: int) -> None:
        """Count a message that is out of order or a duplicate."""
        self.reject_count = min(self.reject_count + 1, 0xFFFF_FFFF)
        self.last_access_time = now
        self._show()

    def bind(self, queue: Queue, tx_sequence_id: int, previous: int) -> None:
        """Show the sequence among those of the queue.

        For a new sequence, show the starting number that the sender announced (3.1.5.8.8).
        """
        self.unbind()
        self.info = IncomingTransactionalTransferInfo(
            queue,
            self.format_name,
            self.source,
            self.tx_sequence_id or tx_sequence_id,
            self.tx_sequence_number if self.tx_sequence_id else previous,
            self.last_access_time,
            self.reject_count,
        )
        queue.incoming_transactional_transfer_info[self.source, self.format_name] = self.info

    def unbind(self) -> None:
        """Remove the sequence from its queue's display."""
        if self.info is not None:
            self.info.queue.incoming_transactional_transfer_info.pop((self.source, self.format_name), None)
            self.info = None

    def _show(self) -> None:
        info = self.info
        if info is not None:
            if self.tx_sequence_id:
                info.sequence_identifier = self.tx_sequence_id
                info.sequence_number = self.tx_sequence_number
            info.last_access_time = self.last_access_time
            info.reject_count = self.reject_count

    def advance(self, synced: int) -> None:
        """Move the states that are durable now from `waiting` to `durable`."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= synced:
            _, *reached = waiting.popleft()
            self.durable = reached[0], reached[1]

    def wait_for(self, batch: int) -> None:
        """Note that the current state will be durable with this batch."""
        waiting = self.waiting
        last = waiting[-1][1:] if waiting else self.durable
        if (self.tx_sequence_id, self.tx_sequence_number) != last:
            if waiting and waiting[-1][0] == batch:
                waiting.pop()
            waiting.append((batch, self.tx_sequence_id, self.tx_sequence_number))

    def pack(self) -> bytes:
        address, name = self.remote_address.encode(), self.format_name.encode(errors=_LONE)
        flags = _DIRECT * self.is_direct | _DELIVERED * self.has_delivered | _KNOWN * self.is_known
        row = _ROW.pack(
            self.tx_sequence_id,
            self.tx_sequence_number,
            self.reject_count,
            self.last_access_time,
            flags,
            len(address),
        )
        return b"".join((row, address, name))

    @classmethod
    def unpack(cls, key: bytes, row: bytes) -> IncomingSequence:
        sequence_id, number, rejects, time, flags, size = _ROW.unpack_from(row)
        end = _ROW.size + size
        return cls(
            key,
            uuid.UUID(bytes_le=key[:16]),
            row[end:].decode(errors=_LONE),
            bool(flags & _DIRECT),
            sequence_id,
            number,
            rejects,
            time,
            row[_ROW.size : end].decode(),
            bool(flags & _DELIVERED),
            bool(flags & _KNOWN),
            durable=(sequence_id, number),
        )


def sequence_key(source: bytes, name: FormatName) -> bytes:
    """Return the key of a sequence's row.

    Names are hashed because they can be longer than the maximum key size.
    """
    return source + hashlib.blake2b(name.key.encode(errors=_LONE), digest_size=16).digest()


class _Kept:
    """Sequences of one kind, by address, with a limit per address and a limit for all."""

    def __init__(self) -> None:
        self._count = 0
        # By network and address. The least recently used sequence comes first.
        self._networks: dict[str, dict[str, OrderedDict[bytes, IncomingSequence]]] = {}

    def add(self, sequence: IncomingSequence) -> None:
        addresses = self._networks.setdefault(peer_of(sequence.remote_address), {})
        sequence.among = addresses.setdefault(sequence.remote_address, OrderedDict())
        sequence.among[sequence.key] = sequence
        self._count += 1

    def remove(self, sequence: IncomingSequence) -> None:
        network = peer_of(sequence.remote_address)
        addresses = self._networks[network]
        del addresses[sequence.remote_address][sequence.key]
        self._count -= 1
        if not addresses[sequence.remote_address]:
            del addresses[sequence.remote_address]
        if not addresses:
            del self._networks[network]

    def excess(self, newest: IncomingSequence, limit: float, share: float) -> IncomingSequence | None:
        """Return the sequence that must make room for the newest one, or None.

        If its address has too many sequences, the victim is the least recently used one of that
        address. Otherwise it is one of the network that has most: in this network one of the
        address that has most, and among such addresses one of the latest. So a network with many
        addresses at its disposal cannot displace earlier ones.
        """
        own = newest.among
        if len(own) > share:
            return next(iter(own.values()))
        if self._count <= limit:
            return None
        # The newest stays, because its message is being processed.
        crowded = max(self._networks.values(), key=lambda addresses: sum(map(len, addresses.values())))
        if len(crowded) == 1 and len(own) == 1 and own in crowded.values():
            crowded = next(addresses for addresses in self._networks.values() if addresses is not crowded)
        most = max((each for each in reversed(crowded.values()) if each is not own or len(own) > 1), key=len)
        return next(iter(most.values()))


class IncomingSequences:
    """All sequences, their table, and their Order Ack Send Timers. The store's lock is held."""

    def __init__(
        self,
        store: Store,
        settings: TransferSettings,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        displaced: Callable[[IncomingSequence], None],
    ) -> None:
        """Load the table. `displaced` is called with each sequence that makes room for another."""
        self._displaced = displaced
        self._store = store
        self._table = store.table(TABLE)
        self._settings = settings
        self._clock = clock
        self._monotonic = monotonic
        # The least recently used comes first.
        self._by_key: OrderedDict[bytes, IncomingSequence] = OrderedDict()
        # The same sequences in three groups: known peers; unknown peers that have delivered
        # nothing; other unknown peers.
        self._of_known, self._refused, self._of_strangers = _Kept(), _Kept(), _Kept()
        self._changed: dict[IncomingSequence, None] = {}
        self._timers: list[tuple[float, int, IncomingSequence]] = []
        # Deadline of the Order Ack Send Timers.
        self.deadline = Deadline()
        self._ties = itertools.count()
        self._load()

    def __iter__(self) -> Iterator[IncomingSequence]:
        return iter(self._by_key.values())

    def find(self, source: bytes, name: FormatName) -> IncomingSequence | None:
        """Return the sequence of a source for a destination name.

        `source` is the GUID as in packets.
        """
        return self._by_key.get(sequence_key(source, name))

    def begin(
        self, source: bytes, name: FormatName, address: str, *, is_direct: bool, is_known: bool
    ) -> IncomingSequence:
        """Begin a sequence, with IncomingTxSequenceID 0. Old ones make room for it."""
        oldest = self._oldest_access_time
        while self._by_key and (first := next(iter(self._by_key.values()))).last_access_time < oldest:
            self._forget(first)
        key = sequence_key(source, name)
        sequence = IncomingSequence(key, uuid.UUID(bytes_le=source), str(name), is_direct)
        sequence.last_order_ack_send_time = self._monotonic()
        sequence.last_access_time = int(self._clock())
        sequence.remote_address, sequence.is_known = address, is_known
        self._by_key[key] = sequence
        self._keep(sequence)
        return sequence

    def came_from(self, sequence: IncomingSequence, address: str, *, is_known: bool) -> None:
        """Note the address from which the newest message of a sequence came."""
        if (sequence.remote_address, sequence.is_known) != (address, is_known):
            self._kept(sequence).remove(sequence)
            sequence.remote_address, sequence.is_known = address, is_known
            self._keep(sequence)

    def _kept(self, sequence: IncomingSequence) -> _Kept:
        if sequence.is_known:
            return self._of_known
        return self._of_strangers if sequence.has_delivered else self._refused

    def _keep(self, sequence: IncomingSequence) -> None:
        """File a sequence under its kind; forget one if there are too many."""
        kept = self._kept(sequence)
        kept.add(sequence)
        limit, share = MAX_SEQUENCES_OF_STRANGERS, MAX_SEQUENCES_PER_ADDRESS
        if kept is self._of_known:
            limit, share = sys.maxsize, MAX_SEQUENCES_OF_KNOWN_PEER
        elif kept is self._refused:
            limit = share = MAX_REFUSED_SEQUENCES
        excess = kept.excess(sequence, limit, share)
        if excess is not None:
            self._forget(excess)
            self._displaced(excess)

    @property
    def _oldest_access_time(self) -> int:
        return int(self._clock()) - SEQUENCE_LIFETIME

    def _forget(self, sequence: IncomingSequence) -> None:
        key = sequence.key
        del self._by_key[key]
        self._kept(sequence).remove(sequence)
        sequence.is_forgotten = True
        sequence.order_ack_due = None
        self._changed.pop(sequence, None)
        self._table.delete(key)
        sequence.unbind()

    def changed(self, sequence: IncomingSequence) -> None:
        """Mark a sequence as changed, so that `write` stores it.

        The caller must call `write` before releasing the lock.
        """
        self._changed[sequence] = None

    def delivered(self, sequence: IncomingSequence) -> None:
        """Note that a message reached the queue."""
        self._kept(sequence).remove(sequence)
        sequence.has_delivered = True
        self._keep(sequence)

    def write(self) -> None:
        """Put everything changed since the last call into the current batch."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        for sequence in changed:
            self._by_key.move_to_end(sequence.key)
            sequence.among.move_to_end(sequence.key)
            self._table.put(sequence.key, sequence.pack())
        # Remember the batch number rather than registering a callback: OrderAcks are sent once
        # `synced` reaches it.
        batch, synced = self._store.pending_batch(), self._store.synced
        for sequence in changed:
            sequence.advance(synced)
            sequence.wait_for(batch)

    def _load(self) -> None:
        oldest = self._oldest_access_time
        found = [IncomingSequence.unpack(key, row) for key, row in self._table.items()]
        latest = self._clock() + self._settings.max_clock_skew
        for sequence in sorted(found, key=lambda each: each.last_access_time):
            # Earlier versions accepted sequence ids with a timestamp far in the future; keeping one
            # would make all later messages of that sender look outdated.
            if sequence.last_access_time < oldest or sequence.tx_sequence_id >> 32 > latest:
                self._table.delete(sequence.key)
                continue
            sequence.last_order_ack_send_time = self._monotonic()
            self._by_key[sequence.key] = sequence
            self._kept(sequence).add(sequence)

    def reload(self) -> None:
        """Reload the table, because the store went back to its last sync.

        No peer has an acknowledgment of what was undone.
        """
        for sequence in self._by_key.values():
            sequence.order_ack_due = None
            sequence.unbind()
        self._by_key.clear()
        self._of_known, self._refused, self._of_strangers = _Kept(), _Kept(), _Kept()
        self._changed.clear()
        self._timers.clear()
        self.deadline.clear()
        self._load()

    # Order Ack Send Timer (3.1.2.7)
    # ---------------------------------------------------------------------------

    def schedule_order_ack(self, sequence: IncomingSequence, now: float) -> None:
        """Start the Order Ack Send Timer, or restart it soon after an OrderAck (3.1.5.8.6)."""
        settings = self._settings
        due = sequence.order_ack_due
        if sequence.unacknowledged >= settings.early_order_ack:
            if due is None or due > now:
                self._arm(sequence, now)
        elif due is None:
            self._arm(sequence, now + settings.order_ack_timeout)
        elif now - sequence.last_order_ack_send_time < settings.maximum_order_ack_delay:
            # The heap entry is corrected when the old time comes.
            sequence.order_ack_due = now + settings.order_ack_timeout

    def _arm(self, sequence: IncomingSequence, due: float) -> None:
        sequence.order_ack_due = sequence.heap_due = due
        heapq.heappush(self._timers, (due, next(self._ties), sequence))
        self.deadline.set_earlier(due)

    def due_order_acks(self) -> list[IncomingSequence]:
        """Return the sequences whose timer has expired and that have something to acknowledge.

        Something new, or everything received, is durable.
        """
        now = self._monotonic()
        timers = self._timers
        ready = []
        while timers and timers[0][0] <= now:
            entry_due, _, sequence = heapq.heappop(timers)
            due = sequence.order_ack_due
            if due is None or entry_due != sequence.heap_due:
                continue
            if due > now:
                self._arm(sequence, due)
                continue
            sequence.advance(self._store.synced)
            if sequence.waiting and sequence.durable == sequence.acknowledged:
                self._arm(sequence, now + NOT_DURABLE_DELAY)
                continue
            sequence.acknowledged = sequence.durable
            sequence.order_ack_due = None
            if sequence.waiting:
                self._arm(sequence, now + self._settings.order_ack_timeout)
            sequence.unacknowledged = 0
            sequence.last_order_ack_send_time = now
            ready.append(sequence)
        self.deadline.set(timers[0][0] if timers else NEVER)
        return ready
