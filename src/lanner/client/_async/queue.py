"""`Queue`: a queue by name, and its messages."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Self

from lanner.client._async.closeable import Closeable
from lanner.client._async.consume import Consumer
from lanner.client._async.cursor import Cursor
from lanner.client._async.transaction import Transaction, unit_of
from lanner.client.consuming import Consumed, Options, Stop
from lanner.client.preparing import changed
from lanner.model.errors import AccessDenied, IOTimeout, QueueNotFound, UnsupportedOperation
from lanner.security.access_lists import AccessChange
from lanner.wire.format_name import DirectFormatName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lanner.client._async.backend import Backend
    from lanner.client.found import Found
    from lanner.client.message import ReceivedMessage
    from lanner.client.preparing import Sendable
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.security.access_lists import AccessList
    from lanner.wire.format_name import FormatName


class Queue(Closeable):
    """A queue by name.

    Handles are opened on first use and closed with the object.
    """

    def __init__(
        self, backend: Backend, name: str, format_name: FormatName | None = None, *, exclusive: bool = False
    ) -> None:
        """Make a queue object; programs use `QueueManager.open`.

        A `format_name` that comes from the queue manager itself is not parsed again.
        """
        self._backend = backend
        self.name = name
        self._format_name = backend.names.format_name(name) if format_name is None else format_name
        self._queue = backend.queue(self._format_name, name, exclusive=exclusive)

    def __repr__(self) -> str:
        return f"<Queue {self.name} of {self._backend.place}>"

    async def __aenter__(self) -> Self:
        await self._queue.open()
        return self

    async def close(self) -> None:
        """Close the handles and end the reads waiting on them. The queue can be used again."""
        await self._queue.close()

    # Properties of the queue
    # ----------------------------------------------------------------------------------------------

    @property
    def format_name(self) -> str:
        """The format name that `name` stands for."""
        return str(self._format_name)

    @property
    def path_name(self) -> str:
        """The path name if `name` gives one on this queue manager, else the format name."""
        name = self._format_name
        path = name.path_name if isinstance(name, DirectFormatName) else None
        is_there = path is not None and path.computer.lower() == self._backend.name.lower()
        return str(path if is_there else name)

    async def attributes(self) -> QueueObject:
        """Return a copy of the queue's current attributes (MS-MQDMPR 3.1.1.2).

        To change them, use `set`.
        """
        return await self._backend.attributes(self._format_name)

    async def set(self, **changes: object) -> None:
        """Change attributes by the data model's names: label, quota, journaling ..."""
        await self._backend.set_attributes(self._format_name, changes)

    async def exists(self) -> bool:
        """Return whether the queue exists."""
        return await self._backend.exists(self._format_name)

    async def is_transactional(self) -> bool | None:
        """Return whether the queue is transactional.

        Returns None if the queue is elsewhere, or if the user may not query it.
        """
        return await self._backend.is_transactional(self._format_name)

    async def count(self) -> int:
        """Return the number of messages in the queue."""
        return await self._backend.count(self._format_name)

    # Access rights
    # ----------------------------------------------------------------------------------------------

    async def access(self) -> AccessList:
        """Return the owner and the access list, with its entries in words and as SDDL."""
        return await self._backend.access(self._format_name)

    async def grant(self, who: str, *rights: str, force: bool = False) -> None:
        """Grant an account rights: send, receive, peek, admin, full and others.

        Accounts are users and groups of the queue manager, Unix users of its computer, Everyone,
        Anonymous, Administrators, and SIDs. A grant replaces an earlier denial of the same rights.
        Raises IllegalUser if there is no such account, and IllegalOperation if a change would keep
        you from changing the list again, unless you `force` it.
        """
        await self._change_access(AccessChange("grant", who, rights), force=force)

    async def deny(self, who: str, *rights: str, force: bool = False) -> None:
        """Deny an account rights, regardless of what entries for its groups allow."""
        await self._change_access(AccessChange("deny", who, rights), force=force)

    async def revoke(self, who: str, *rights: str, force: bool = False) -> None:
        """Remove rights from an account's entries, both granted and denied.

        Without rights, remove all of its entries.
        """
        await self._change_access(AccessChange("revoke", who, rights), force=force)

    async def set_owner(self, who: str, *, force: bool = False) -> None:
        """Change the owner, who may always change the list.

        Raises InvalidOwner for Everyone and Anonymous.
        """
        await self._change_access(AccessChange("owner", who), force=force)

    async def set_access(self, sddl: str, *, force: bool = False) -> None:
        """Replace the parts given in an SDDL text: owner, group, list.

        Raises IllegalSecurityDescriptor if the text is not SDDL.
        """
        await self._change_access(AccessChange("set", sddl=sddl), force=force)

    async def _change_access(self, change: AccessChange, *, force: bool) -> None:
        await self._backend.change_access(self._format_name, change, force=force)

    # Sending
    # ----------------------------------------------------------------------------------------------

    async def send(self, message: Sendable, *, transaction: Transaction | None = None) -> str:
        """Send a message and return its id; a recoverable one is on disk when this returns."""
        return await self._queue.send(message, unit_of(transaction, self._backend))

    async def send_many(self, messages: Iterable[Sendable], *, transaction: Transaction | None = None) -> list[str]:
        """Send messages in one commit, and return their ids.

        If one is refused, those before it stay sent: their `id` is set.
        """
        return await self._queue.send_many(list(messages), unit_of(transaction, self._backend))

    # Reading
    # ----------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Receive the first message; IOTimeout if none comes within `timeout` seconds.

        Raises ReceiveInDoubt, which has the message, if the connection to the queue manager is lost
        after the message has arrived here and while its removal is being requested.
        """
        return await self._queue.receive(timeout, unit_of(transaction, self._backend))

    async def receive_many(
        self, count: int, timeout: float | None = 0, *, transaction: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Receive up to `count` messages in one commit; wait only for the first."""
        return await self._queue.receive_many(count, timeout, unit_of(transaction, self._backend))

    def receiving(
        self, count: int = 1, timeout: float | None = None
    ) -> AbstractAsyncContextManager[list[ReceivedMessage]]:
        """Hold up to `count` messages, and remove them from the queue at the end of the block.

        Meanwhile no other reader gets them; an exception in the block gives them back. Only the
        first is waited for: IOTimeout if none comes within a `timeout` other than 0.
        """
        return self._queue.receiving(count, timeout)

    def receiving_by_lookup_id(
        self, lookup_id: int, where: str = "current"
    ) -> AbstractAsyncContextManager[ReceivedMessage]:
        """Hold the message with a lookup id, or next to it; remove it at the end of the block."""
        return self._queue.receiving_by_lookup_id(lookup_id, where)

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Return the first message and leave it in the queue."""
        return await self._queue.peek(timeout)

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Transaction | None = None
    ) -> ReceivedMessage:
        """Receive the message with a lookup id, or one relative to it.

        `where` is current, next, previous, first or last.
        """
        return await self._queue.receive_by_lookup_id(lookup_id, where, unit_of(transaction, self._backend))

    async def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage:
        """Return the message with a lookup id, or one relative to it, and leave it in the queue."""
        return await self._queue.peek_by_lookup_id(lookup_id, where)

    async def purge(self) -> int:
        """Remove every message and return how many there were."""
        return await self._queue.purge()

    def cursor(self, *, peek_only: bool = False) -> Cursor:
        """Return a new cursor; with `peek_only`, no right to receive is needed."""
        return Cursor(self._backend, self._queue.cursor(peek_only=peek_only))

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Peek at every message, from the first to the last."""
        async with self.cursor(peek_only=True) as cursor:
            try:
                yield await cursor.peek(timeout=0)
                while True:
                    yield await cursor.peek_next(timeout=0)
            except IOTimeout:
                return

    async def consume(
        self,
        handler: Callable[[ReceivedMessage], object] | Callable[[ReceivedMessage, Transaction], object],
        *,
        retries: int = 3,
        poison: str | Queue | None = None,
        concurrency: int = 1,
        backoff: tuple[float, float] = (0.1, 30.0),
        stop: Stop | None = None,
        idle: float | None = None,
        count: int | None = None,
        prefetch: int = 1,
    ) -> Consumed:
        """Call a handler for each message, until stopped.

        Returns the numbers of messages handled, retried and poisoned.

        Each message is received in a transaction, which is committed when the handler returns and
        aborted when it raises an exception. A handler with a second parameter gets the transaction,
        so that it can send in it.

        An aborted message returns to its place, and the worker pauses for a time between the two
        bounds of `backoff` (seconds; longer with each consecutive failure). Other workers continue,
        and may take that message. The queue manager counts the aborts, including those of workers
        that died. After `retries` of them the message is poison. By default it is moved to the
        subqueue `poison`; `poison` may name another subqueue (";name"). If `poison` is another
        queue, a copy is sent there in the transaction that removes the message (outside it if that
        queue is not transactional: a worker that dies may then leave two copies). With "discard",
        it is removed.

        Handlers run in `concurrency` threads, in the async form in as many tasks. The call ends
        after `count` handled messages, when no message has come for `idle` seconds, when `stop` is
        set (an event) or returns true (a function), and on Ctrl-C. In the async form it also ends
        when it is cancelled, with CancelledError. It waits for the running handlers; a second
        Ctrl-C or cancellation does not.

        With `prefetch`, each worker of a handler without a second parameter receives that many
        messages ahead (at most 1000) and commits the handled ones together, which is many times
        faster. If the worker dies, this counts as one abort of each message that it had received
        and not committed, and handled ones among them are handled again. Other workers do not see
        messages received ahead. A queue manager in this process, or one that is not a Lanner, still
        gives out messages one at a time.

        If the queue manager cannot be reached, workers wait until it can. A commit in doubt is
        logged and counted: the message is handled, or comes again. A queue manager that is not a
        Lanner does not report how often a message was aborted; each consumer then counts for
        itself, for the last 10,000 messages.
        """
        options = Options.of(
            retries=retries,
            concurrency=concurrency,
            backoff=backoff,
            stop=stop,
            idle=idle,
            count=count,
            prefetch=prefetch,
        )
        return await Consumer(self, self._queue, self._backend, handler, poison, options).run()

    # Journal and subqueues
    # ----------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Queue:
        """The journal: copies of the messages that were received."""
        return self._part("journal")

    def subqueue(self, name: str) -> Queue:
        """Return a subqueue; it is created on first use."""
        return self._part(name)

    async def subqueues(self) -> list[Queue]:
        """Return the existing subqueues."""
        return [Queue(self._backend, name) for name in await self._backend.subqueue_names(self._format_name)]

    def _part(self, suffix: str) -> Queue:
        return Queue(self._backend, f"{self.path_name};{suffix}")

    # Finding and forwarding messages
    # -----------------------------------------------------------------------

    async def find(
        self, *conditions: str, after: int | None = None, limit: int = 100, scan: int = 10_000, ids_only: bool = False
    ) -> Found:
        """Return up to `limit` messages that meet all conditions.

        Conditions are texts such as "label~order" or "priority>=4". At most `scan` messages are
        examined, so that a deep queue does not delay other users; pass `after` of the result to
        continue. With `ids_only`, only lookup ids are returned. Raises InvalidParameter if a
        condition is not valid.
        """
        return await self._queue.find(conditions, after, limit, scan, ids_only=ids_only)

    async def move(self, lookup_id: int, target: str | Queue, *, transaction: Transaction | None = None) -> None:
        """Move a message to a subqueue of this queue (by its short name), or to another queue.

        Between a queue and its subqueues it stays the same message. Another queue, here or on
        another computer, gets a new message with the same content, sent by you. It is sent in the
        same step that receives this one.
        """
        await self.move_many([lookup_id], target, transaction=transaction)

    async def move_many(
        self, lookup_ids: Iterable[int], target: str | Queue, *, transaction: Transaction | None = None
    ) -> None:
        """Move messages, all or none; one by one if the target is not transactional.

        Raises TransactionUsage if `transaction` is given for such a queue.
        """
        queue, unit = self._target(target), unit_of(transaction, self._backend)
        if await self._is_related(queue):
            await self._queue.move(list(lookup_ids), queue._queue, unit)  # noqa: SLF001 (another object of this class)
        else:
            await self._queue.pass_on(list(lookup_ids), queue._queue, unit, is_copy=False)  # noqa: SLF001

    async def copy_many(
        self, lookup_ids: Iterable[int], target: str | Queue, *, transaction: Transaction | None = None
    ) -> list[str]:
        """Send copies of messages to another queue, and return the ids of the copies.

        All or none are sent; one by one if the target is not transactional.
        """
        queue, unit = self._target(target), unit_of(transaction, self._backend)
        return await self._queue.pass_on(list(lookup_ids), queue._queue, unit, is_copy=True)  # noqa: SLF001

    async def resend(
        self,
        lookup_id: int,
        target: str | Queue | None = None,
        *,
        keep: bool = False,
        transaction: Transaction | None = None,
        **changes: object,
    ) -> str:
        """Send a message again with changes, and return the id of the new one.

        Changes have the names of `Message`. Without a `target` the message goes to the queue that
        it was sent to. The original is received in the same step, unless you `keep` it. Raises
        InvalidParameter for a name that is not a field of `Message`.
        """
        message = await self.peek_by_lookup_id(lookup_id)
        edited = changed(message, changes)
        queue = self._target(message.destination_queue or self.name if target is None else target)
        unit = unit_of(transaction, self._backend)
        sent = await self._queue.pass_on([lookup_id], queue._queue, unit, is_copy=keep, edited=edited)  # noqa: SLF001
        return sent[0]

    async def delete(self, *lookup_ids: int) -> None:
        """Remove messages, all of them or none.

        As with `purge`, senders that request acknowledgments get one that says that their messages
        were purged.
        """
        await self._queue.delete(lookup_ids)

    def _target(self, given: str | Queue) -> Queue:
        if isinstance(given, Queue):
            return given
        # The name of a queue has a backslash or an equals sign; the short name of a subqueue does
        # not.
        return Queue(self._backend, given) if "\\" in given or "=" in given else self.subqueue(given)

    async def _is_related(self, other: Queue) -> bool:
        """Return whether both are parts of one queue, so that messages can be moved unchanged."""
        one, two = await self._family(), await other._family()
        return one is not None and one == two

    async def _family(self) -> str | None:
        """Return the path name of the queue itself, without its suffix; None if it is elsewhere."""
        path = self.path_name
        if not isinstance(self._format_name, DirectFormatName):
            try:
                path = (await self.attributes()).pathname
            except (QueueNotFound, AccessDenied, UnsupportedOperation):
                return None
        return path.partition(";")[0].lower()
