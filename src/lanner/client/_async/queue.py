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

    Handles are opened when they are first needed, and closed with the object.
    """

    def __init__(
        self, backend: Backend, name: str, format_name: FormatName | None = None, *, exclusive: bool = False
    ) -> None:
        """Made by `QueueManager.open`; a `format_name` that the queue manager itself has said is not read again."""
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
        """Close the handles; reads that wait on them end. The queue can be used again."""
        await self._queue.close()

    # What it is
    # ---------------------------------------------------------------------------------------------------

    @property
    def format_name(self) -> str:
        """The format name that `name` means."""
        return str(self._format_name)

    @property
    def path_name(self) -> str:
        """The path name of a queue of this queue manager, as far as `name` says it; else the format name."""
        name = self._format_name
        path = name.path_name if isinstance(name, DirectFormatName) else None
        is_there = path is not None and path.computer.lower() == self._backend.name.lower()
        return str(path if is_there else name)

    async def attributes(self) -> QueueObject:
        """Return a copy of the queue's attributes (MS-MQDMPR 3.1.1.2) as they are now; `set` changes them."""
        return await self._backend.attributes(self._format_name)

    async def set(self, **changes: object) -> None:
        """Change attributes by the data model's names: label, quota, journaling, authentication ..."""
        await self._backend.set_attributes(self._format_name, changes)

    async def exists(self) -> bool:
        """Return whether the queue is there."""
        return await self._backend.exists(self._format_name)

    async def is_transactional(self) -> bool | None:
        """Return whether the queue takes transactional messages; None if it is elsewhere, or may not be asked."""
        return await self._backend.is_transactional(self._format_name)

    async def count(self) -> int:
        """Return how many messages are in the queue."""
        return await self._backend.count(self._format_name)

    # Who may do what
    # ----------------------------------------------------------------------------------------------

    async def access(self) -> AccessList:
        """Return the owner and the access list: its entries in words, and as SDDL."""
        return await self._backend.access(self._format_name)

    async def grant(self, who: str, *rights: str, force: bool = False) -> None:
        """Give an account rights: send, receive, peek, admin, full and others; IllegalUser if there is no such account.

        Accounts are users and groups of the queue manager, Unix users of its computer, Everyone,
        Anonymous, Administrators, and SIDs. What was denied to the account before is so no more.
        IllegalOperation if a change would keep you from changing the list again, unless you `force`
        it.
        """
        await self._change_access(AccessChange("grant", who, rights), force=force)

    async def deny(self, who: str, *rights: str, force: bool = False) -> None:
        """Deny an account rights, whatever entries for its groups allow."""
        await self._change_access(AccessChange("deny", who, rights), force=force)

    async def revoke(self, who: str, *rights: str, force: bool = False) -> None:
        """Remove rights from the entries of an account, granted or denied; without rights, all its entries."""
        await self._change_access(AccessChange("revoke", who, rights), force=force)

    async def set_owner(self, who: str, *, force: bool = False) -> None:
        """Change the owner, who may always change the list; InvalidOwner for Everyone and Anonymous."""
        await self._change_access(AccessChange("owner", who), force=force)

    async def set_access(self, sddl: str, *, force: bool = False) -> None:
        """Replace the parts that an SDDL text has: owner, group, list; IllegalSecurityDescriptor if it is none."""
        await self._change_access(AccessChange("set", sddl=sddl), force=force)

    async def _change_access(self, change: AccessChange, *, force: bool) -> None:
        await self._backend.change_access(self._format_name, change, force=force)

    # Sending
    # ------------------------------------------------------------------------------------------------------

    async def send(self, message: Sendable, *, transaction: Transaction | None = None) -> str:
        """Send a message and return its id; a recoverable one is on disk when this returns."""
        return await self._queue.send(message, unit_of(transaction, self._backend))

    async def send_many(self, messages: Iterable[Sendable], *, transaction: Transaction | None = None) -> list[str]:
        """Send messages in one commit.

        Those before one that is refused stay sent: their `id` is set.
        """
        return await self._queue.send_many(list(messages), unit_of(transaction, self._backend))

    # Reading
    # ------------------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the first message; IOTimeout if none comes within `timeout` seconds.

        ReceiveInDoubt, which has the message, if the connection to the queue manager is lost when
        the message is here and its removal was asked for.
        """
        return await self._queue.receive(timeout, unit_of(transaction, self._backend))

    async def receive_many(
        self, count: int, timeout: float | None = 0, *, transaction: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Take up to `count` messages in one commit; only the first is waited for."""
        return await self._queue.receive_many(count, timeout, unit_of(transaction, self._backend))

    def receiving(
        self, count: int = 1, timeout: float | None = None
    ) -> AbstractAsyncContextManager[list[ReceivedMessage]]:
        """Hold up to `count` messages, which leave the queue when the block has ended.

        No other reader gets them meanwhile; an exception in the block gives them back. Only the
        first is waited for: IOTimeout if none comes within a `timeout` other than 0.
        """
        return self._queue.receiving(count, timeout)

    def receiving_by_lookup_id(
        self, lookup_id: int, where: str = "current"
    ) -> AbstractAsyncContextManager[ReceivedMessage]:
        """Hold the message with a lookup id, or next to it, which leaves the queue when the block has ended."""
        return self._queue.receiving_by_lookup_id(lookup_id, where)

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Return the first message and leave it in the queue."""
        return await self._queue.peek(timeout)

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Transaction | None = None
    ) -> ReceivedMessage:
        """Take the message with a lookup id, or the one next to it: current, next, previous, first, last."""
        return await self._queue.receive_by_lookup_id(lookup_id, where, unit_of(transaction, self._backend))

    async def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage:
        """Return the message with a lookup id, or the one next to it, and leave it in the queue."""
        return await self._queue.peek_by_lookup_id(lookup_id, where)

    async def purge(self) -> int:
        """Remove every message and return how many there were."""
        return await self._queue.purge()

    def cursor(self, *, peek_only: bool = False) -> Cursor:
        """Return a new cursor; one that is `peek_only` needs no right to receive."""
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
        """Call a handler for each message, until stopped; return how many were handled, retried and poison.

        Each message is received in a transaction, which is committed when the handler returns and
        aborted when it raises an exception. A handler with a second parameter gets the transaction,
        so that it can send in it.

        An aborted message returns to its place, and the worker pauses, between the two bounds of
        `backoff` (seconds; longer with each failure in a row); other workers continue, also with
        that message. The queue manager counts the aborts, and those of workers that died. After
        `retries` of them the message is poison: it is moved to the subqueue `poison`, or to another
        subqueue (";name"); or a copy is sent to the queue `poison` in the transaction that removes
        it (outside, if that queue is not transactional: then a worker that dies may leave two
        copies); or "discard" removes it.

        Handlers run in `concurrency` threads; in the async form in as many tasks. The call ends
        after `count` handled messages, when no message came for `idle` seconds, when `stop` (an
        event or a function) says so, and on Ctrl-C; in the async form when it is cancelled, with
        CancelledError. It waits for the running handlers; a second Ctrl-C or cancellation does not.

        With `prefetch`, each worker of a handler without a second parameter receives so many
        messages ahead (at most 1000) and commits those that it has handled together, which is many
        times faster. If the worker dies, that counts as one abort of each message that it had
        received and not committed, and those that were handled are handled again. Other workers do
        not see what was received ahead. A queue manager that runs in this process, or is of another
        maker, gives out messages one at a time all the same.

        If the queue manager cannot be reached, workers wait until it can. A commit in doubt is
        logged and counted: the message is handled, or comes again. A queue manager of another maker
        does not say how often a message was aborted: then each consumer counts for itself, for the
        last 10,000 messages.
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

    # Its parts
    # ----------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Queue:
        """The queue of copies of the messages that were received."""
        return self._part("journal")

    def subqueue(self, name: str) -> Queue:
        """Return a subqueue; it comes into being when it is first used."""
        return self._part(name)

    async def subqueues(self) -> list[Queue]:
        """Return the subqueues there are."""
        return [Queue(self._backend, name) for name in await self._backend.subqueue_names(self._format_name)]

    def _part(self, suffix: str) -> Queue:
        return Queue(self._backend, f"{self.path_name};{suffix}")

    # Looking for messages, and passing them on
    # -----------------------------------------------------------------------

    async def find(
        self, *conditions: str, after: int | None = None, limit: int = 100, scan: int = 10_000, ids_only: bool = False
    ) -> Found:
        """Return up to `limit` messages that meet all conditions, such as "label~order" or "priority>=4".

        At most `scan` messages are examined, so that a deep queue does not keep anybody waiting;
        `after` of the result continues the search. With `ids_only` the messages themselves stay
        where they are. InvalidParameter if a condition is none.
        """
        return await self._queue.find(conditions, after, limit, scan, ids_only=ids_only)

    async def move(self, lookup_id: int, target: str | Queue, *, transaction: Transaction | None = None) -> None:
        """Move a message to a subqueue of this queue (by its short name), or to another queue.

        Between a queue and its subqueues it stays the same message. Another queue, here or on
        another computer, gets a new message with the same content, sent by you, in the same step in
        which this one is received.
        """
        await self.move_many([lookup_id], target, transaction=transaction)

    async def move_many(
        self, lookup_ids: Iterable[int], target: str | Queue, *, transaction: Transaction | None = None
    ) -> None:
        """Move messages, all of them or none; to a queue that is not transactional each by itself.

        TransactionUsage if `transaction` is given for such a queue.
        """
        queue, unit = self._target(target), unit_of(transaction, self._backend)
        if await self._is_related(queue):
            await self._queue.move(list(lookup_ids), queue._queue, unit)  # noqa: SLF001 (another object of this class)
        else:
            await self._queue.pass_on(list(lookup_ids), queue._queue, unit, is_copy=False)  # noqa: SLF001

    async def copy_many(
        self, lookup_ids: Iterable[int], target: str | Queue, *, transaction: Transaction | None = None
    ) -> list[str]:
        """Send messages with the same content to another queue, and return their ids; those here stay.

        All of them or none; to a queue that is not transactional each by itself.
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
        """Send a message again with changes, which have the names of `Message`, and return the id of the new one.

        Without a `target` it goes to the queue that it was sent to. This message is received in the
        same step, unless you `keep` it. InvalidParameter for a name that is no field of `Message`.
        """
        message = await self.peek_by_lookup_id(lookup_id)
        edited = changed(message, changes)
        queue = self._target(message.destination_queue or self.name if target is None else target)
        unit = unit_of(transaction, self._backend)
        sent = await self._queue.pass_on([lookup_id], queue._queue, unit, is_copy=keep, edited=edited)  # noqa: SLF001
        return sent[0]

    async def delete(self, *lookup_ids: int) -> None:
        """Remove messages, all of them or none, as `purge` does: their senders hear that they were purged."""
        await self._queue.delete(lookup_ids)

    def _target(self, given: str | Queue) -> Queue:
        if isinstance(given, Queue):
            return given
        # A backslash or an equals sign is in every name of a queue, and in none of a subqueue.
        return Queue(self._backend, given) if "\\" in given or "=" in given else self.subqueue(given)

    async def _is_related(self, other: Queue) -> bool:
        """Return whether messages can move to the other queue as they are: both are parts of one queue."""
        one, two = await self._family(), await other._family()
        return one is not None and one == two

    async def _family(self) -> str | None:
        """Return the path name of the queue that this is, or is a part of; None if it is elsewhere."""
        path = self.path_name
        if not isinstance(self._format_name, DirectFormatName):
            try:
                path = (await self.attributes()).pathname
            except (QueueNotFound, AccessDenied, UnsupportedOperation):
                return None
        return path.partition(";")[0].lower()
