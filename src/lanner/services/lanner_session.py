"""One client's session on Lanner's own interface: its open objects and the requests on them.

A request refers to a queue, cursor, transaction or read by number. The client chooses the number of
a read, so that it can end a read whose answer it never received. A message received outside a
transaction is held until the client acknowledges it (`end`). When the session ends, every held
message returns to its queue and every open transaction is aborted.

Requests go to `Operations`, like those of a program in this process. All code here runs in the
event loop's thread.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast
from uuid import UUID, uuid4

from lanner.engine.held_memory import HELD_OVERHEAD
from lanner.host.distributed import DistributedRequests
from lanner.host.finding import Search
from lanner.host.message_filters import MAX_CONDITIONS
from lanner.host.operations import Operations
from lanner.host.passing import Passing, delete
from lanner.host.queue_documents import check_document, read_attributes, to_document
from lanner.host.reads import purge
from lanner.host.waking import turn
from lanner.model.enums import INFINITE, DeliveryGuarantee, QueueAccessType, QueueShareMode
from lanner.model.errors import (
    InsufficientResources,
    InvalidHandle,
    InvalidParameter,
    StatusError,
)
from lanner.model.guid_table import GuidTable
from lanner.model.live import MessagePosition
from lanner.security.access_lists import AccessChange
from lanner.services import lanner_transactions
from lanner.services.message_documents import document_to_properties, position_to_document
from lanner.services.received_runs import ReceivedRuns
from lanner.services.sending import check_sender, name_here
from lanner.services.sent_batches import NAME_SIZE
from lanner.wire.format_name import FormatName, parse

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.change import Change
    from lanner.host.committer import Committer
    from lanner.host.reads import Read
    from lanner.model.live import Cursor, OpenQueueDescriptor, Transaction
    from lanner.security.identity import Identity
    from lanner.services.open_objects import OpenObjects
    from lanner.services.sent_batches import ClientMemory, SentBatches
    from lanner.wire.builder import MessageProperties

T = TypeVar("T")
Document: TypeAlias = dict[str, Any]
Reply: TypeAlias = tuple[Document, bytes]
Replies: TypeAlias = Reply | Awaitable[Reply]

# Not in the specification: the maximum number of queues, cursors, reads and transactions that one
# session may have open.
MAX_OPEN: Final = 10_000
# Not in the specification: the maximum number of octets of messages in one answer. A single message
# may exceed it.
MAX_ANSWER: Final = 0x0040_0000
# Not in the specification: the maximum number of receives in a transaction that a client can still
# undo by number.
_MAX_UNCONFIRMED: Final = 1024

# Not in the specification: the maximum number of receives that a client can still undo after
# requesting their removal. A connection has at most 256 calls in progress, and each request
# confirms those answered before it.
_MAX_ENDED: Final = 1024
# Not in the specification: the maximum number of messages in one send and in one move.
_MAX_MESSAGES: Final = 1000
# Not in the specification: the maximum number of queue names in the messages of one send. Reading
# one takes some microseconds.
_MAX_NAMES: Final = 20_000
_MAX_MOVES: Final = 10_000
# Not in the specification: the number of messages that are passed on in one slice, and the seconds
# below which the slice size doubles.
_MAX_PASSED: Final = 1024
_SHORT: Final = 0.003
# The maximum of a number that a client chooses, as in the stream. With longer ones it could choose
# many that have the same hash, and each lookup of one of them would go through all of them.
_MAX_NUMBER: Final = 0xFFFF_FFFF_FFFF_FFFF

_ACCESS: Final = {
    "send": QueueAccessType.SEND,
    "receive": QueueAccessType.RECEIVE,
    "peek": QueueAccessType.PEEK,
    "move": QueueAccessType.MOVE,
}


class SendRefused(Exception):
    """One message of a send was refused; the messages before it are sent."""

    def __init__(self, error: StatusError, sent: list[str]) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent


@dataclass(slots=True, eq=False)
class LannerSession:
    """The open objects of one client, by number."""

    engine: Engine
    committer: Committer
    identity: Identity
    memory: ClientMemory
    of_users: OpenObjects
    queues: dict[int, OpenQueueDescriptor] = field(default_factory=dict)
    cursors: dict[int, Cursor] = field(default_factory=dict)
    transactions: dict[int, Transaction] = field(default_factory=dict)
    # Unacknowledged messages, by the number of their read.
    held: dict[int, list[Read]] = field(default_factory=dict)
    # The messages that were removed last. They are restored if the client was cancelled meanwhile.
    ended: dict[int, list[Read]] = field(default_factory=dict)
    # The receives in transactions. A receive is kept so that it can be undone if its client is
    # cancelled before the answer.
    unconfirmed: dict[int, list[Read]] = field(default_factory=dict)
    # The receives in transactions whose messages are numbered individually.
    received: ReceivedRuns = field(default_factory=ReceivedRuns)
    # Receives that wait for a message, by number.
    waiting: dict[int, Read] = field(default_factory=dict)
    # Distributed transactions that the client coordinates through this queue manager.
    coordinated: GuidTable[None] = field(default_factory=GuidTable)
    # Outcomes of the client's sends, including those on earlier connections. Set once the client
    # has given its name.
    sent: SentBatches | None = None
    # The stream of a closed session may outlive it, but must not begin anything.
    is_closed: bool = False
    _numbers: count[int] = field(default_factory=lambda: count(1))
    operations: Operations = field(init=False)
    distributed: DistributedRequests = field(init=False)
    # The SID against whose memory limit this session's held messages count.
    _holder: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.operations = Operations(self.engine, self.committer, self.identity)
        self.distributed = DistributedRequests(self.engine, self.identity)
        self._holder = self.identity.sid.pack()

    def handle(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """Answer a request; a StatusError or SendRefused that it raises is an answer too."""
        name = request.get("request")
        handler = _REQUESTS.get(name) if isinstance(name, str) else None
        if handler is None:
            raise InvalidParameter(f"unknown request {name!r}: one of {', '.join(_REQUESTS)}")
        for number in request.get("done", ()) if isinstance(request.get("done"), list) else ():
            if _is_number(number):
                self.confirm(number)
        return handler(self, request, octets)

    def confirm(self, number: int) -> None:
        """Forget a read whose answer the client has received: it will not be undone."""
        self._forget_ended(number)
        self.unconfirmed.pop(number, None)
        self.received.pop(number)

    def close(self) -> None:
        """Return held messages, abort open transactions and close the queues."""
        self.is_closed = True
        self.of_users.closed(self.identity, self)
        with self.committer.change() as change:
            for transaction in self.transactions.values():
                if not transaction.is_over:
                    self.engine.transaction_abort(transaction.identifier)
            lanner_transactions.close(self)
            for descriptor in self.queues.values():
                self.engine.close_queue(descriptor)
        change.soon()
        self.transactions.clear()
        self.queues.clear()
        self.held.clear()
        self.received.clear()
        for number in list(self.ended):
            self._forget_ended(number)

    @property
    def opened(self) -> int:
        """The number of queues, cursors, transactions and reads that are open."""
        return len(self.queues) + len(self.cursors) + len(self.transactions) + len(self.held) + len(self.waiting)

    def _require_room(self) -> None:
        if self.is_closed:
            raise InvalidHandle("the session was closed: open another one")
        if self.opened >= MAX_OPEN:
            raise InsufficientResources(
                f"{MAX_OPEN} queues, cursors, reads and transactions are open on this connection: close some"
            )
        self.of_users.require_room(self.identity, self)

    def new_read(self, number: int) -> int:
        """Check the number that the client has chosen for a receive, and return it."""
        self.new_reads(number, 1)
        return number

    def new_reads(self, first: int, count: int) -> None:
        """Check the consecutive numbers that the client has chosen for receives."""
        self._require_room()
        numbers = range(first, first + count)
        for used in (self.held.keys(), self.unconfirmed.keys(), self.received.numbers, self.waiting.keys()):
            if used and not used.isdisjoint(numbers):
                raise InvalidParameter(f"read {next(number for number in numbers if number in used)} is in use")
        if self.ended and not self.ended.keys().isdisjoint(numbers):
            for number in numbers:
                self._forget_ended(number)

    def _queue(self, request: Mapping[str, Any], key: str = "queue") -> OpenQueueDescriptor:
        return find(self.queues, request.get(key), "queue")

    def _cursor(self, request: Mapping[str, Any]) -> Cursor | None:
        return None if request.get("cursor") is None else find(self.cursors, request.get("cursor"), "cursor")

    def _transaction(self, request: Mapping[str, Any]) -> Transaction | None:
        if request.get("transaction") is None:
            return None
        return find(self.transactions, request.get("transaction"), "transaction")

    async def _later(self, change: Awaitable[None], document: Document) -> Reply:
        await change
        return document, b""

    # Queues
    # ----------------------------------------------------------------------------------------------

    def create_queue(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        attributes = read_attributes(check_document(request.get("attributes"), "attributes"))
        access = None if request.get("access") is None else _access(request["access"])
        security = self.operations.new_security(access)
        with self.committer.change() as change:
            queue = self.operations.create_queue(_text(request, "path"), attributes, security)
        return self._later(change, {"pathname": queue.pathname})

    def delete_queue(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        with self.committer.change() as change:
            self.operations.delete_queue(_name(request))
        return self._later(change, {})

    def attributes(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return to_document(self.operations.attributes(_name(request))), b""

    def set_attributes(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        changes = read_attributes(check_document(request.get("attributes"), "attributes"))
        with self.committer.change() as change:
            self.operations.set_attributes(_name(request), changes)
        return self._later(change, {})

    def access(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return self.operations.access(_name(request)).document(), b""

    def change_access(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        given = AccessChange.from_document(check_document(request.get("change"), "change"))
        wanted = self.operations.read_change(_name(request), given)
        with self.committer.change() as change:
            self.operations.change_access(_name(request), wanted, force=request.get("force") is True)
        return self._later(change, {})

    def exists(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"exists": self.operations.exists(_name(request))}, b""

    def is_transactional(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"transactional": self.operations.is_transactional(_name(request))}, b""

    def count(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"count": self.operations.message_count(_name(request))}, b""

    def subqueues(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"names": self.operations.subqueue_names(_name(request))}, b""

    def open(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        self._require_room()
        number = _new_number(self.queues, request, "queue")
        access = _ACCESS.get(_text(request, "access"))
        if access is None:
            raise InvalidParameter(f"access {request['access']!r}: one of {', '.join(_ACCESS)}")
        share_mode = QueueShareMode.DENY_RECEIVE if request.get("exclusive") else QueueShareMode.DENY_NONE
        with self.committer.change() as change:
            descriptor = self.operations.open(_name(request), access, share_mode)
        self.queues[number] = descriptor
        document: Document = {"format_name": descriptor.format_name}
        if access is QueueAccessType.SEND and not descriptor.multiple:
            # The sender that packets for this handle have to name.
            document["sender"] = self.engine.sender_shown(descriptor).hex()
            if self.sent is None and request.get("client") is not None:
                self.sent = self.memory.of(self.identity.sid, _client_name(request["client"]))
            if self.sent is not None:
                document["memory"] = self.sent.identifier
        return self._later(change, document) if change.batch else (document, b"")

    def close_queue(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        descriptor = self._queue(request)
        del self.queues[request["queue"]]
        for number in [number for number, cursor in self.cursors.items() if cursor.descriptor is descriptor]:
            del self.cursors[number]
        for number in [number for number, reads in self.held.items() if reads[0].descriptor is descriptor]:
            del self.held[number]
        with self.committer.change() as change:
            self.engine.close_queue(descriptor)
        change.soon()
        return {}, b""

    def purge(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        return self._purge(self._queue(request))

    async def _purge(self, descriptor: OpenQueueDescriptor) -> Reply:
        return {"count": await purge(self.engine, self.committer, descriptor, self.identity)}, b""

    def open_cursor(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        self._require_room()
        number = _new_number(self.cursors, request, "cursor")
        with self.engine.store.lock:
            self.cursors[number] = self.operations.open_cursor(self._queue(request))
        return {}, b""

    def close_cursor(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        cursor = self._cursor(request)
        if cursor is not None:
            del self.cursors[request["cursor"]]
            with self.engine.store.lock:
                self.engine.close_cursor(cursor)
        return {}, b""

    # Messages
    # ----------------------------------------------------------------------------------------------

    def send(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        descriptor, transaction = self._queue(request), self._transaction(request)
        messages = []
        names = 0
        for document in _list(request, "messages", _MAX_MESSAGES):
            size = document.pop("size", None) if isinstance(document, dict) else None
            if type(size) is not int or not 0 <= size <= len(octets):
                raise InvalidParameter(f"a body of {size!r} octets, {len(octets)} are left")
            properties = document_to_properties(document, bytes(octets[:size]))
            octets = octets[size:]
            for name in (properties.administration_queue_format_name, properties.response_queue_format_name):
                names += 0 if name is None else len(name.elements)
            if names > _MAX_NAMES:
                raise InvalidParameter(
                    f"more than {_MAX_NAMES} administration and response queues in one request: send fewer messages "
                    "at a time"
                )
            check_sender(properties, descriptor, self.identity)
            name_here(self.engine, properties)
            messages.append(properties)
        if descriptor.multiple:
            return self._send_to_each(descriptor, messages, transaction)
        sent: list[str] = []
        error: StatusError | None = None
        with self.committer.change() as change:
            try:
                self.operations.send_many(descriptor, messages, sent, transaction)
            except StatusError as caught:
                error = caught
        if transaction is not None or all(
            one.delivery_guarantee is DeliveryGuarantee.EXPRESS for one in messages[: len(sent)]
        ):
            change.forget()
        if error is None and not change.batch:
            return {"ids": sent}, b""
        return self._sent(change, sent, error)

    async def _sent(self, change: Awaitable[None], sent: list[str], error: StatusError | None) -> Reply:
        await change
        if error is not None:
            raise SendRefused(error, sent)
        return {"ids": sent}, b""

    async def _send_to_each(
        self, descriptor: OpenQueueDescriptor, messages: list[MessageProperties], transaction: Transaction | None
    ) -> Reply:
        """Send messages to a list of queues, in slices: it may be a million packets."""
        sent: list[str] = []
        changes: dict[int, Change] = {}
        steps = self.operations.send_to_each(descriptor, messages, sent, transaction)
        error: StatusError | None = None
        is_lasting = transaction is None and any(
            one.delivery_guarantee is not DeliveryGuarantee.EXPRESS for one in messages
        )
        is_over = False
        while not is_over:
            await turn(self._holder)
            end = time.perf_counter() + _SHORT
            with self.committer.change() as change:
                try:
                    is_over = all(time.perf_counter() < end for _ in steps)
                except StatusError as caught:
                    error, is_over = caught, True
            if is_lasting and change.batch:
                changes[change.batch] = change
                change.soon()
        for change in changes.values():
            await change
        if error is not None:
            raise SendRefused(error, sent)
        return {"ids": sent}, b""

    def receive(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """Begin a receive of up to `count` messages; it waits only for the first."""
        del octets
        number, wanted = self.new_read(_number(request, "read")), _number(request, "count")
        read = self.operations.receive(
            self._queue(request),
            min(_number(request, "timeout"), INFINITE),
            cursor=self._cursor(request),
            transaction=self._transaction(request),
        )
        if not read.is_waiting:
            return _messages(self.hold(number, read, wanted))
        self.waiting[number] = read
        return self._receive_later(number, read, wanted)

    async def _receive_later(self, number: int, read: Read, wanted: int) -> Reply:
        try:
            await read.wait()
        finally:
            self.waiting.pop(number, None)
        return _messages(self.hold(number, read, wanted))

    def hold(self, number: int, first: Read, wanted: int) -> list[MessagePosition]:
        """Hold a message, and others that are available, until the client acknowledges them."""
        reads = [first]
        room = MAX_ANSWER - len(first.position.record.packet)
        # If anything fails here, for example because the queue was deleted or too much is held, the
        # first message is still delivered.
        with suppress(StatusError):
            if first.cursor is None:
                reads += self.operations.receive_ready(first.descriptor, wanted - 1, room, first.transaction)
        if first.transaction is None:
            self.held[number] = reads
        else:
            self.unconfirmed[number] = reads
            if len(self.unconfirmed) > _MAX_UNCONFIRMED:
                del self.unconfirmed[next(iter(self.unconfirmed))]
        return [read.position for read in reads]

    def receive_ready(
        self, first: int, most: int, descriptor: OpenQueueDescriptor, transaction: Transaction | None
    ) -> list[MessagePosition]:
        """Receive available messages, each under its own number; IOTimeout if there are none."""
        if transaction is None:
            reads = self.operations.receive_ready(descriptor, most, MAX_ANSWER, None)
            self.held.update((number, [read]) for number, read in enumerate(reads, first))
            positions = [read.position for read in reads]
        else:
            positions = self.operations.receive_run(descriptor, most, MAX_ANSWER, transaction)
            if positions:
                self.received.add(first, positions, transaction)
        if not positions:
            # An empty queue raises the same error as any other receive.
            self.operations.receive(descriptor, 0, transaction=transaction)
        return positions

    def look_up(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        is_peek = request.get("peek") is True
        number = None if is_peek else self.new_read(_number(request, "read"))
        transaction = self._transaction(request)
        read = self.operations.look_up(
            self._queue(request),
            _lookup_id(request.get("lookup_id")),
            _text(request, "where"),
            is_peek=is_peek,
            transaction=transaction,
        )
        return _messages([read.position] if number is None else self.hold(number, read, 1))

    def end(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """End receives in any state: remove their messages, or return them to the queue."""
        del octets
        numbers = [_read_number(value) for value in _list(request, "reads", _MAX_MOVES)]
        with self.committer.change() as change:
            failed = self.remove(numbers) if request.get("remove") is True else self.give_back(numbers)
        document = {"failed": [[index, error.status, error.args[0]] for index, error in failed]}
        return self._later(change, document) if change.is_pending else (document, b"")

    def remove(self, numbers: list[int]) -> list[tuple[int, StatusError]]:
        """Remove the messages that receives hold; return those that failed, with the errors.

        The caller holds the store's lock.
        """
        for number in numbers:
            if number not in self.held:
                raise InvalidHandle(f"read {number} is not held: its queue was closed, and its messages are back in it")
        if len(set(numbers)) != len(numbers):
            raise InvalidParameter("a read is named twice")
        reads = {number: self.held.pop(number) for number in numbers}
        failed = self.operations.remove_all(list(chain.from_iterable(reads.values())))
        refused = {index for index, _ in failed}
        index = 0
        for number, those in reads.items():
            removed = those
            if refused:
                removed = [read for place, read in enumerate(those, index) if place not in refused]
                index += len(those)
            self._remember(number, removed)
        return failed

    def give_back(self, numbers: list[int]) -> list[tuple[int, StatusError]]:
        """Return the messages of receives in any state. The caller holds the store's lock."""
        for number in reversed(numbers):
            waiting = self.waiting.pop(number, None)
            if waiting is not None:
                waiting.cancel()
            for read in reversed(self.held.pop(number, []) or self.unconfirmed.pop(number, [])):
                read.give_back()
            position = self.received.pop(number)
            if position is not None:
                self.operations.give_back(position)
        # The client was cancelled while the removal was being written or answered.
        for number in numbers:
            self.operations.undo_receive([read.position for read in self._forget_ended(number)])
        return []

    def _remember(self, number: int, reads: list[Read]) -> None:
        """Keep removed messages until the client has the answer: it may be cancelled before."""
        self.ended[number] = reads
        memory, holder = self.engine.held_memory, self._holder
        memory.add(holder, _octets(reads))
        while len(self.ended) > _MAX_ENDED or (memory.is_full(holder) and len(self.ended) > 1):
            self._forget_ended(next(iter(self.ended)))

    def _forget_ended(self, number: int) -> list[Read]:
        reads = self.ended.pop(number, None)
        if reads is None:
            return []
        with self.engine.store.lock:
            self.engine.held_memory.add(self._holder, -_octets(reads))
        return reads

    def peek(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        read = self.operations.peek(
            self._queue(request),
            min(_number(request, "timeout"), INFINITE),
            cursor=self._cursor(request),
            is_next=request.get("next") is True,
        )
        return self._peek_later(read) if read.is_waiting else _messages([read.position])

    @staticmethod
    async def _peek_later(read: Read) -> Reply:
        return _messages([await read.wait()])

    def move(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """Move messages, all or none, in the client's transaction if it has one."""
        del octets
        source, target = self._queue(request), self._queue(request, "target")
        lookup_ids = [_lookup_id(value) for value in _list(request, "lookup_ids", _MAX_MOVES)]
        given = self._transaction(request)
        with self.committer.change() as change:
            transaction = self.operations.begin(uuid4()) if given is None else given
            try:
                for lookup_id in lookup_ids:
                    self.operations.move(source, lookup_id, target, transaction)
            except BaseException:
                if given is None:
                    self.operations.abort(transaction)
                raise
            if given is None:
                self.operations.commit(transaction)
        if given is not None:
            change.forget()
        return self._later(change, {}) if change.batch else ({}, b"")

    def find(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """Search for messages that match conditions; return them too, unless `ids_only` is set."""
        del octets
        conditions = _list(request, "conditions", MAX_CONDITIONS)
        search = Search(
            self.engine,
            self._queue(request),
            conditions,
            request.get("after"),
            _number(request, "limit"),
            _number(request, "scan"),
        )
        return self._find(search, ids_only=request.get("ids_only") is True)

    async def _find(self, search: Search, *, ids_only: bool) -> Reply:
        slices = search.slices()
        is_over = False
        while not is_over:
            await turn(self._holder)
            is_over = next(slices, slices) is slices
        document, octets = ({}, b"") if ids_only else _messages(search.found)
        document |= {
            "lookup_ids": [position.lookup_id for position in search.found],
            "scanned": search.scanned,
            "after": search.after,
        }
        return document, octets

    def pass_on(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """Send messages to another queue, optionally edited; remove the originals unless copied."""
        lookup_ids = [_lookup_id(value) for value in _list(request, "lookup_ids", _MAX_MOVES)]
        target, edited = self._queue(request, "target"), None
        if request.get("message") is not None:
            edited = document_to_properties(request["message"], bytes(octets))
            if len(lookup_ids) != 1:
                raise InvalidParameter(f"changes are for one message, not for {len(lookup_ids)}")

        def complete(properties: MessageProperties) -> None:
            check_sender(properties, target, self.identity)
            name_here(self.engine, properties)

        passing = Passing(
            self.operations,
            self._queue(request),
            target,
            is_copy=request.get("copy") is True,
            transaction=self._transaction(request),
            edited=edited,
            complete=complete,
        )
        return self._passed_on(passing, lookup_ids)

    async def _passed_on(self, passing: Passing, lookup_ids: list[int]) -> Reply:
        """Pass messages on in slices, so that large ones do not delay other clients.

        Messages that are moved in one transaction are passed on in one slice: if the transaction
        were aborted part of the way, the abort would count against those already moved.
        """
        identifiers: list[str] = []
        own: Transaction | None = None
        place, size = 0, 1
        if passing.needs_one_transaction and passing.is_copy:
            with self.engine.store.lock:
                own = passing.transaction = self.operations.begin(uuid4())
        elif passing.needs_one_transaction:
            size = len(lookup_ids)
        try:
            while place < len(lookup_ids):
                await turn(self._holder)
                begun = time.perf_counter()
                error: StatusError | None = None
                with self.committer.change() as change:
                    try:
                        identifiers += passing.run(lookup_ids[place : place + size])
                    except StatusError as caught:
                        error = caught
                if passing.transaction is not None:
                    change.forget()
                place += size
                size = min(2 * size, _MAX_PASSED) if time.perf_counter() - begun < _SHORT else max(size // 2, 1)
                # Messages before the refused one may have been passed on. Make that durable before
                # answering.
                await change
                if error is not None:
                    raise error
        except BaseException:
            if own is not None:
                self._end_own(own, self.operations.abort).soon()
            raise
        if own is not None:
            await self._end_own(own, self.operations.commit)
        return {"ids": identifiers}, b""

    def _end_own(self, own: Transaction, event: Callable[[Transaction], None]) -> Change:
        with self.committer.change() as change:
            event(own)
        return change

    def delete(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """Delete messages, all or none."""
        del octets
        lookup_ids = [_lookup_id(value) for value in _list(request, "lookup_ids", _MAX_MOVES)]
        with self.committer.change() as change:
            delete(self.operations, self._queue(request), lookup_ids)
        return self._later(change, {})

    # Transactions
    # ---------------------------------------------------------------------------------------------

    def begin(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        """Begin a transaction under the identifier that the client has chosen."""
        del octets
        try:
            identifier = UUID(_text(request, "identifier"))
        except ValueError:
            raise InvalidParameter(f"identifier {request['identifier']!r}: a GUID expected") from None
        for number, transaction in self.transactions.items():
            if transaction.identifier == identifier:
                # The client was cancelled before it received the answer, and has repeated the
                # request.
                return {"transaction": number}, b""
        # Skip numbers that the client has chosen itself.
        number = next(number for number in self._numbers if number not in self.transactions)
        self.begin_as(number, identifier)
        return {"transaction": number}, b""

    def begin_as(self, number: int, identifier: UUID) -> None:
        """Begin a transaction with a given number and identifier."""
        self._require_room()
        if number in self.transactions:
            raise InvalidParameter(f"transaction {number} is in use")
        with self.engine.store.lock:
            if identifier in self.engine.queue_manager.transaction_collection:
                raise InvalidParameter(f"there is a transaction {identifier} already")
            self.transactions[number] = self.operations.begin(identifier)

    def commit(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        return self._end_transaction(request, self.operations.commit)

    def abort(self, request: Mapping[str, Any], octets: memoryview) -> Replies:
        del octets
        return self._end_transaction(request, self.operations.abort)

    def _end_transaction(self, request: Mapping[str, Any], event: Callable[[Transaction], None]) -> Replies:
        with self.committer.change() as change:
            self.end_transaction(request.get("transaction"), event)
        return self._later(change, {}) if change.batch else ({}, b"")

    def end_transaction(self, number: object, event: Callable[[Transaction], None]) -> None:
        """Commit or abort a transaction. The caller holds the store's lock."""
        transaction = find(self.transactions, number, "transaction")
        self.forget_transaction(cast("int", number), transaction)
        event(transaction)

    def forget_transaction(self, number: int, transaction: Transaction) -> None:
        """Forget a transaction that has left the session, and the receives in it."""
        del self.transactions[number]
        self.received.forget(transaction)
        for read in [read for read, reads in self.unconfirmed.items() if reads[0].transaction is transaction]:
            del self.unconfirmed[read]


_REQUESTS: Final[dict[str, Callable[[LannerSession, Mapping[str, Any], memoryview], Replies]]] = {
    "create queue": LannerSession.create_queue,
    "delete queue": LannerSession.delete_queue,
    "attributes": LannerSession.attributes,
    "set attributes": LannerSession.set_attributes,
    "access": LannerSession.access,
    "change access": LannerSession.change_access,
    "exists": LannerSession.exists,
    "is transactional": LannerSession.is_transactional,
    "count": LannerSession.count,
    "subqueues": LannerSession.subqueues,
    "open": LannerSession.open,
    "close": LannerSession.close_queue,
    "purge": LannerSession.purge,
    "open cursor": LannerSession.open_cursor,
    "close cursor": LannerSession.close_cursor,
    "send": LannerSession.send,
    "receive": LannerSession.receive,
    "look up": LannerSession.look_up,
    "end": LannerSession.end,
    "peek": LannerSession.peek,
    "move": LannerSession.move,
    "find": LannerSession.find,
    "pass on": LannerSession.pass_on,
    "delete": LannerSession.delete,
    "begin": LannerSession.begin,
    "commit": LannerSession.commit,
    "abort": LannerSession.abort,
    **lanner_transactions.REQUESTS,
}


def _octets(reads: list[Read]) -> int:
    return sum(len(read.position.record.packet) + HELD_OVERHEAD for read in reads)


def _messages(positions: list[MessagePosition]) -> Reply:
    packets = [position.record.packet for position in positions]
    return {"messages": [position_to_document(position) for position in positions]}, b"".join(packets)


def find(table: Mapping[int, T], number: object, what: str) -> T:
    """Return the object that a client refers to by number; raise InvalidHandle if there is none."""
    found = table.get(number) if type(number) is int else None
    if found is None:
        raise InvalidHandle(f"there is no {what} {number!r} on this connection: it was closed, or has ended")
    return found


def _new_number(table: Mapping[int, object], request: Mapping[str, Any], key: str) -> int:
    """Return the number that the client has chosen for an object that it opens."""
    number = _number(request, key)
    if number in table:
        raise InvalidParameter(f"{key} {number} is in use")
    return number


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise InvalidParameter(f"a request needs the text `{key}`")
    return value


def _access(value: object) -> Mapping[str, list[str]] | str:
    """Return the access list of a new queue: SDDL, or lists of rights by account."""
    if isinstance(value, dict):
        lists = value.values()
        if all(isinstance(rights, list) and all(isinstance(one, str) for one in rights) for rights in lists):
            return value
    elif isinstance(value, str):
        return value
    raise InvalidParameter("`access` of a new queue: SDDL, or an object with a list of rights for each account")


def _client_name(value: object) -> bytes:
    try:
        name = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        name = b""
    if len(name) != NAME_SIZE:
        raise InvalidParameter(f"`client` {value!r}: {NAME_SIZE} octets in hexadecimal expected")
    return name


def _name(request: Mapping[str, Any]) -> FormatName:
    return parse(_text(request, "name"))


def _number(request: Mapping[str, Any], key: str) -> int:
    value = request.get(key)
    if not _is_number(value):
        raise InvalidParameter(f"a request needs the number `{key}`, of at most 64 bits")
    return cast("int", value)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_NUMBER


def _list(request: Mapping[str, Any], key: str, longest: int) -> list[Any]:
    value = request.get(key)
    if not isinstance(value, list):
        raise InvalidParameter(f"a request needs the list `{key}`")
    if len(value) > longest:
        raise InvalidParameter(f"{len(value)} `{key}` in one request, at most {longest}")
    return value


def _read_number(value: object) -> int:
    if not _is_number(value):
        raise InvalidParameter(f"read {value!r}: a number expected, of at most 64 bits")
    return cast("int", value)


def _lookup_id(value: object) -> int:
    if type(value) is not int:
        raise InvalidParameter(f"lookup id {value!r}: a number expected")
    return value
