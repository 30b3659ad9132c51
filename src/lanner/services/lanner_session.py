"""One client's session on Lanner's own interface: its open objects and the requests on them.

A request refers to a queue, cursor, transaction or read by number (`request_fields` reads the
fields of requests). A message received outside a transaction is held until the client acknowledges
it; `session_reads` keeps the receives. When the session ends, every held message returns to its
queue and every open transaction is aborted.

Requests go to `Operations`, like those of a program in this process. All code here runs in the
event loop's thread.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID, uuid4

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
from lanner.services.request_fields import (
    Request,
    access_of,
    client_name_of,
    find_open,
    is_number,
    list_of,
    lookup_id_of,
    new_number_of,
    number_of,
    queue_name_of,
    read_number_of,
    text_of,
)
from lanner.services.sending import check_sender, name_here
from lanner.services.session_reads import SessionReads

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

Document: TypeAlias = dict[str, Any]
Reply: TypeAlias = tuple[Document, bytes]
Replies: TypeAlias = Reply | Awaitable[Reply]

# Not in the specification: the maximum number of queues, cursors, reads and transactions that one
# session may have open.
MAX_OPEN: Final = 10_000
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
    reads: SessionReads = field(init=False)
    # The SID against whose memory limit this session's held messages count.
    _holder: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.operations = Operations(self.engine, self.committer, self.identity)
        self.distributed = DistributedRequests(self.engine, self.identity)
        self._holder = self.identity.sid.pack()
        self.reads = SessionReads(self.operations, self._holder)

    def handle(self, request: Request, octets: memoryview) -> Replies:
        """Answer a request; a StatusError or SendRefused that it raises is an answer too."""
        name = request.get("request")
        handler = _REQUESTS.get(name) if isinstance(name, str) else None
        if handler is None:
            raise InvalidParameter(f"unknown request {name!r}: one of {', '.join(_REQUESTS)}")
        for number in request.get("done", ()) if isinstance(request.get("done"), list) else ():
            if is_number(number):
                self.reads.confirm(number)
        return handler(self, request, octets)

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
        self.reads.close()

    @property
    def opened(self) -> int:
        """The number of queues, cursors, transactions and reads that are open."""
        return len(self.queues) + len(self.cursors) + len(self.transactions) + self.reads.opened

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
        self.reads.check_new(first, count)

    def _queue(self, request: Request, key: str = "queue") -> OpenQueueDescriptor:
        return find_open(self.queues, request.get(key), "queue")

    def _cursor(self, request: Request) -> Cursor | None:
        return None if request.get("cursor") is None else find_open(self.cursors, request.get("cursor"), "cursor")

    def _transaction(self, request: Request) -> Transaction | None:
        if request.get("transaction") is None:
            return None
        return find_open(self.transactions, request.get("transaction"), "transaction")

    async def _later(self, change: Awaitable[None], document: Document) -> Reply:
        await change
        return document, b""

    # Queues
    # ----------------------------------------------------------------------------------------------

    def create_queue(self, request: Request, octets: memoryview) -> Replies:
        del octets
        attributes = read_attributes(check_document(request.get("attributes"), "attributes"))
        access = None if request.get("access") is None else access_of(request["access"])
        security = self.operations.new_security(access)
        with self.committer.change() as change:
            queue = self.operations.create_queue(text_of(request, "path"), attributes, security)
        return self._later(change, {"pathname": queue.pathname})

    def delete_queue(self, request: Request, octets: memoryview) -> Replies:
        del octets
        with self.committer.change() as change:
            self.operations.delete_queue(queue_name_of(request))
        return self._later(change, {})

    def attributes(self, request: Request, octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return to_document(self.operations.attributes(queue_name_of(request))), b""

    def set_attributes(self, request: Request, octets: memoryview) -> Replies:
        del octets
        changes = read_attributes(check_document(request.get("attributes"), "attributes"))
        with self.committer.change() as change:
            self.operations.set_attributes(queue_name_of(request), changes)
        return self._later(change, {})

    def access(self, request: Request, octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return self.operations.access(queue_name_of(request)).document(), b""

    def change_access(self, request: Request, octets: memoryview) -> Replies:
        del octets
        given = AccessChange.from_document(check_document(request.get("change"), "change"))
        wanted = self.operations.read_change(queue_name_of(request), given)
        with self.committer.change() as change:
            self.operations.change_access(queue_name_of(request), wanted, force=request.get("force") is True)
        return self._later(change, {})

    def exists(self, request: Request, octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"exists": self.operations.exists(queue_name_of(request))}, b""

    def is_transactional(self, request: Request, octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"transactional": self.operations.is_transactional(queue_name_of(request))}, b""

    def count(self, request: Request, octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"count": self.operations.message_count(queue_name_of(request))}, b""

    def subqueues(self, request: Request, octets: memoryview) -> Replies:
        del octets
        with self.engine.store.lock:
            return {"names": self.operations.subqueue_names(queue_name_of(request))}, b""

    def open(self, request: Request, octets: memoryview) -> Replies:
        del octets
        self._require_room()
        number = new_number_of(self.queues, request, "queue")
        access = _ACCESS.get(text_of(request, "access"))
        if access is None:
            raise InvalidParameter(f"access {request['access']!r}: one of {', '.join(_ACCESS)}")
        share_mode = QueueShareMode.DENY_RECEIVE if request.get("exclusive") else QueueShareMode.DENY_NONE
        with self.committer.change() as change:
            descriptor = self.operations.open(queue_name_of(request), access, share_mode)
        self.queues[number] = descriptor
        document: Document = {"format_name": descriptor.format_name}
        if access is QueueAccessType.SEND and not descriptor.multiple:
            # The sender that packets for this handle have to name.
            document["sender"] = self.engine.sender_shown(descriptor).hex()
            if self.sent is None and request.get("client") is not None:
                self.sent = self.memory.of(self.identity.sid, client_name_of(request["client"]))
            if self.sent is not None:
                document["memory"] = self.sent.identifier
        return self._later(change, document) if change.batch else (document, b"")

    def close_queue(self, request: Request, octets: memoryview) -> Replies:
        del octets
        descriptor = self._queue(request)
        del self.queues[request["queue"]]
        for number in [number for number, cursor in self.cursors.items() if cursor.descriptor is descriptor]:
            del self.cursors[number]
        self.reads.forget_queue(descriptor)
        with self.committer.change() as change:
            self.engine.close_queue(descriptor)
        change.soon()
        return {}, b""

    def purge(self, request: Request, octets: memoryview) -> Replies:
        del octets
        return self._purge(self._queue(request))

    async def _purge(self, descriptor: OpenQueueDescriptor) -> Reply:
        return {"count": await purge(self.engine, self.committer, descriptor, self.identity)}, b""

    def open_cursor(self, request: Request, octets: memoryview) -> Replies:
        del octets
        self._require_room()
        number = new_number_of(self.cursors, request, "cursor")
        with self.engine.store.lock:
            self.cursors[number] = self.operations.open_cursor(self._queue(request))
        return {}, b""

    def close_cursor(self, request: Request, octets: memoryview) -> Replies:
        del octets
        cursor = self._cursor(request)
        if cursor is not None:
            del self.cursors[request["cursor"]]
            with self.engine.store.lock:
                self.engine.close_cursor(cursor)
        return {}, b""

    # Messages
    # ----------------------------------------------------------------------------------------------

    def send(self, request: Request, octets: memoryview) -> Replies:
        descriptor, transaction = self._queue(request), self._transaction(request)
        messages = []
        names = 0
        for document in list_of(request, "messages", _MAX_MESSAGES):
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

    def receive(self, request: Request, octets: memoryview) -> Replies:
        """Begin a receive of up to `count` messages; it waits only for the first."""
        del octets
        number, wanted = self.new_read(number_of(request, "read")), number_of(request, "count")
        read = self.operations.receive(
            self._queue(request),
            min(number_of(request, "timeout"), INFINITE),
            cursor=self._cursor(request),
            transaction=self._transaction(request),
        )
        if not read.is_waiting:
            return _messages(self.reads.hold(number, read, wanted))
        self.reads.waiting[number] = read
        return self._receive_later(number, read, wanted)

    async def _receive_later(self, number: int, read: Read, wanted: int) -> Reply:
        try:
            await read.wait()
        finally:
            self.reads.waiting.pop(number, None)
        return _messages(self.reads.hold(number, read, wanted))

    def look_up(self, request: Request, octets: memoryview) -> Replies:
        del octets
        is_peek = request.get("peek") is True
        number = None if is_peek else self.new_read(number_of(request, "read"))
        transaction = self._transaction(request)
        read = self.operations.look_up(
            self._queue(request),
            lookup_id_of(request.get("lookup_id")),
            text_of(request, "where"),
            is_peek=is_peek,
            transaction=transaction,
        )
        return _messages([read.position] if number is None else self.reads.hold(number, read, 1))

    def end(self, request: Request, octets: memoryview) -> Replies:
        """End receives in any state: remove their messages, or return them to the queue."""
        del octets
        numbers = [read_number_of(value) for value in list_of(request, "reads", _MAX_MOVES)]
        with self.committer.change() as change:
            failed = self.reads.remove(numbers) if request.get("remove") is True else self.reads.give_back(numbers)
        document = {"failed": [[index, error.status, error.args[0]] for index, error in failed]}
        return self._later(change, document) if change.is_pending else (document, b"")

    def peek(self, request: Request, octets: memoryview) -> Replies:
        del octets
        read = self.operations.peek(
            self._queue(request),
            min(number_of(request, "timeout"), INFINITE),
            cursor=self._cursor(request),
            is_next=request.get("next") is True,
        )
        return self._peek_later(read) if read.is_waiting else _messages([read.position])

    @staticmethod
    async def _peek_later(read: Read) -> Reply:
        return _messages([await read.wait()])

    def move(self, request: Request, octets: memoryview) -> Replies:
        """Move messages, all or none, in the client's transaction if it has one."""
        del octets
        source, target = self._queue(request), self._queue(request, "target")
        lookup_ids = [lookup_id_of(value) for value in list_of(request, "lookup_ids", _MAX_MOVES)]
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

    def find(self, request: Request, octets: memoryview) -> Replies:
        """Search for messages that match conditions; return them too, unless `ids_only` is set."""
        del octets
        conditions = list_of(request, "conditions", MAX_CONDITIONS)
        search = Search(
            self.engine,
            self._queue(request),
            conditions,
            request.get("after"),
            number_of(request, "limit"),
            number_of(request, "scan"),
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

    def pass_on(self, request: Request, octets: memoryview) -> Replies:
        """Send messages to another queue, optionally edited; remove the originals unless copied."""
        lookup_ids = [lookup_id_of(value) for value in list_of(request, "lookup_ids", _MAX_MOVES)]
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

    def delete(self, request: Request, octets: memoryview) -> Replies:
        """Delete messages, all or none."""
        del octets
        lookup_ids = [lookup_id_of(value) for value in list_of(request, "lookup_ids", _MAX_MOVES)]
        with self.committer.change() as change:
            delete(self.operations, self._queue(request), lookup_ids)
        return self._later(change, {})

    # Transactions
    # ---------------------------------------------------------------------------------------------

    def begin(self, request: Request, octets: memoryview) -> Replies:
        """Begin a transaction under the identifier that the client has chosen."""
        del octets
        try:
            identifier = UUID(text_of(request, "identifier"))
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

    def commit(self, request: Request, octets: memoryview) -> Replies:
        del octets
        return self._end_transaction(request, self.operations.commit)

    def abort(self, request: Request, octets: memoryview) -> Replies:
        del octets
        return self._end_transaction(request, self.operations.abort)

    def _end_transaction(self, request: Request, event: Callable[[Transaction], None]) -> Replies:
        with self.committer.change() as change:
            self.end_transaction(request.get("transaction"), event)
        return self._later(change, {}) if change.batch else ({}, b"")

    def end_transaction(self, number: object, event: Callable[[Transaction], None]) -> None:
        """Commit or abort a transaction. The caller holds the store's lock."""
        transaction = find_open(self.transactions, number, "transaction")
        self.forget_transaction(cast("int", number), transaction)
        event(transaction)

    def forget_transaction(self, number: int, transaction: Transaction) -> None:
        """Forget a transaction that has left the session, and the receives in it."""
        del self.transactions[number]
        self.reads.forget_transaction(transaction)


_REQUESTS: Final[dict[str, Callable[[LannerSession, Request, memoryview], Replies]]] = {
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


def _messages(positions: list[MessagePosition]) -> Reply:
    packets = [position.record.packet for position in positions]
    return {"messages": [position_to_document(position) for position in positions]}, b"".join(packets)
