"""The blocking API of a queue manager elsewhere: the words of `lanner.QueueManager`, over the connection of `remote_aio`.

The connection lives on an event loop in a thread of its own, so that all may be shared by threads: a receive that waits holds nobody up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import uvloop

from lanner.client import remote_aio, remote_units
from lanner.client.enterprise import RemoteEnterprise
from lanner.model.errors import InvalidHandle, IOTimeout

if TYPE_CHECKING:
    import uuid
    from types import TracebackType

    from lanner.client.message import Message, ReceivedMessage
    from lanner.client.names import QueueNames
    from lanner.client.remote_properties import Document
    from lanner.client.remote_session import Target
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.security.signing import SigningKey

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lanner-connection", daemon=True)
        self._thread.start()
        self._closing = threading.Lock()
        self._is_closed = False

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of a coroutine; whoever is interrupted meanwhile has it cancelled."""
        if self._is_closed:
            work.close()
            raise InvalidHandle("the connection is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, work: Coroutine[Any, Any, object]) -> None:
        """The last coroutine, then the end of the thread. Closing twice is harmless."""
        with self._closing:
            if self._is_closed:
                work.close()
                return
            try:
                self.do(work)
            finally:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
                self._loop.close()


class QueueManager:
    """A connection to a queue manager; made by `lanner.connect`. Threads may share it.

    A lost connection is made again by the next call, but takes open transactions and cursors with it.
    """

    def __init__(self, target: Target) -> None:
        self._loop = _Loop()
        try:
            self._remote = self.do(remote_aio.QueueManager.connect(target))
        except BaseException:
            self._loop.close(_nothing())
            raise

    def __repr__(self) -> str:
        return repr(self._remote)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up: what is open is closed, transactions are aborted."""
        self._loop.close(self._remote.close())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.do(work)

    @property
    def name(self) -> str:
        return self._remote.name

    @property
    def identifier(self) -> uuid.UUID | None:
        """None: a queue manager of another maker has not told it."""
        return self._remote.identifier

    @property
    def is_lanner(self) -> bool:
        return self._remote.is_lanner

    @property
    def names(self) -> QueueNames:
        return self._remote.names

    @property
    def signing_key(self) -> SigningKey | None:
        """Signs messages sent with `authenticate`."""
        return self._remote.signing_key

    @signing_key.setter
    def signing_key(self, key: SigningKey | None) -> None:
        self._remote.signing_key = key

    def create_queue(
        self,
        name: str,
        *,
        transactional: bool = False,
        journal: bool = False,
        label: str = "",
        quota_kb: int | None = None,
        journal_quota_kb: int | None = None,
        **attributes: object,
    ) -> Queue:
        """Create a private queue, or on a queue manager of ours a public one; QueueExists if there is one of that name."""
        made = self._remote.create_queue(
            name,
            transactional=transactional,
            journal=journal,
            label=label,
            quota_kb=quota_kb,
            journal_quota_kb=journal_quota_kb,
            **attributes,
        )
        return Queue(self, self.do(made))

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, journal and subqueues; a public one on a queue manager of ours only."""
        self.do(self._remote.delete_queue(name))

    def open(self, name: str, *, exclusive: bool = False) -> Queue:
        """A queue by any spelling of its name; it is looked for when first used."""
        return Queue(self, self._remote.open(name, exclusive=exclusive))

    def queues(self) -> list[Queue]:
        """The public and private queues there; of another maker's, the private ones and those that somebody uses."""
        return [Queue(self, queue) for queue in self.do(self._remote.queues())]

    def outgoing_queues(self) -> list[Queue]:
        """Queues whose messages wait for another computer."""
        return [Queue(self, queue) for queue in self.do(self._remote.outgoing_queues())]

    @property
    def dead_letter(self) -> Queue:
        return Queue(self, self._remote.dead_letter)

    @property
    def transactional_dead_letter(self) -> Queue:
        return Queue(self, self._remote.transactional_dead_letter)

    @property
    def system_journal(self) -> Queue:
        return Queue(self, self._remote.system_journal)

    @property
    def enterprise(self) -> RemoteEnterprise:
        """Sites, routing links, other computers and distribution lists: of a queue manager of ours only."""
        return RemoteEnterprise(self.ask)

    def transaction(self) -> Transaction:
        """A unit of work: commits at the end of its `with` block, aborts on an exception."""
        return Transaction(self, self._remote.transaction())

    def outgoing(self) -> list[Document]:
        """How the outgoing queues get on."""
        return self.do(self._remote.outgoing())

    def pause(self, name: str) -> None:
        """Keep the messages of an outgoing queue until it is resumed, over restarts too."""
        self.do(self._remote.pause(name))

    def resume(self, name: str) -> None:
        """Let the messages of a paused queue go."""
        self.do(self._remote.resume(name))

    def resend(self, name: str) -> None:
        """Send what is not acknowledged now, not when its timer says so."""
        self.do(self._remote.resend(name))

    def status(self) -> Document:
        """Who is connected, and where the queue manager listens: of a queue manager of ours only."""
        return self.do(self._remote.status())

    def ask(self, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """What only queue managers of ours tell (see services/facts.py)."""
        return self.do(self._remote.ask(request, **arguments))


async def _nothing() -> None:
    pass


class Queue:
    """A queue by name. Handles are opened when first needed, and closed with it."""

    def __init__(self, manager: QueueManager, remote: remote_aio.Queue) -> None:
        self._manager = manager
        self._do = manager.do
        self.remote = remote

    def __repr__(self) -> str:
        return repr(self.remote)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the handles; reads that wait on them end. The queue can be used again."""
        self._do(self.remote.close())

    @property
    def name(self) -> str:
        return self.remote.name

    @property
    def format_name(self) -> str:
        return self.remote.format_name

    @property
    def full_name(self) -> str:
        """The path name of a queue there, as far as its name tells; else its format name. `path_name` asks, as an administrator."""
        return self.remote.full_name

    @property
    def path_name(self) -> str:
        return self._do(self.remote.path_name())

    @property
    def attributes(self) -> QueueObject:
        """The queue's attributes (MS-MQDMPR 3.1.1.2) and what is in it now, for administrators; change them with `set`."""
        return self._do(self.remote.attributes())

    def is_transactional(self) -> bool | None:
        """Whether the queue takes transactional messages; None: it is not there, or does not tell."""
        return self._do(self.remote.is_transactional())

    def set(self, **changes: object) -> None:
        """Change attributes by the data model's names: label, quota, journaling, authentication ..."""
        self._do(self.remote.set(**changes))

    def exists(self) -> bool:
        """Whether the queue is there."""
        return self._do(self.remote.exists())

    def __len__(self) -> int:
        return self._do(self.remote.count())

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Peek at every message, from the first to the last."""
        with self.cursor(peek_only=True) as cursor:
            try:
                yield cursor.peek(timeout=0)
                while True:
                    yield cursor.peek_next(timeout=0)
            except IOTimeout:
                return

    def send(self, message: Message | ReceivedMessage | bytes | str, *, transaction: Transaction | None = None) -> str:
        """Send; when this returns, a recoverable message is on disk. Gives the message's id."""
        return self._do(self.remote.send(message, transaction=_inner(transaction)))

    def send_many(
        self,
        messages: Iterable[Message | ReceivedMessage | bytes | str],
        *,
        transaction: Transaction | None = None,
    ) -> list[str]:
        """Send several messages, one after the other. What stands before one that is refused stays sent."""
        # Here, not on the loop: they may come from anywhere.
        return self._do(self.remote.send_many(list(messages), transaction=_inner(transaction)))

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the first message; IOTimeout if none comes within `timeout` seconds. It leaves the queue when it is here.

        In a transaction, it comes with its properties, but without lookup id and packet: MS-MQMP has no place for them.
        """
        return self._do(self.remote.receive(timeout, transaction=_inner(transaction)))

    def receive_many(
        self, count: int, timeout: float | None = 0, *, transaction: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Take up to `count` messages; waits for the first one only."""
        return self._do(self.remote.receive_many(count, timeout, transaction=_inner(transaction)))

    @contextmanager
    def receiving(self, count: int = 1, timeout: float | None = None) -> Iterator[list[ReceivedMessage]]:
        """Up to `count` messages, which leave the queue when the block has ended; an exception in it gives them back.

        Nobody else gets them meanwhile. Waits for the first one only; IOTimeout if none comes.
        """
        with self._entered(self.remote.receiving(count, timeout)) as messages:
            yield messages

    @contextmanager
    def receiving_by_lookup_id(self, lookup_id: int, where: str = "current") -> Iterator[ReceivedMessage]:
        """The message with a lookup id, or next to it, which leaves the queue when the block has ended."""
        with self._entered(self.remote.receiving_by_lookup_id(lookup_id, where)) as message:
            yield message

    @contextmanager
    def _entered(self, inside: AbstractAsyncContextManager[T]) -> Iterator[T]:
        value = self._do(inside.__aenter__())
        try:
            yield value
        except BaseException as error:
            self._do(_left(inside, error))
            raise
        self._do(_left(inside, None))

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Look at the first message and leave it there."""
        return self._do(self.remote.peek(timeout))

    def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Transaction | None = None
    ) -> ReceivedMessage:
        """Take the message with a lookup id, or the one next to it: current, next, previous, first, last."""
        return self._do(self.remote.receive_by_lookup_id(lookup_id, where, transaction=_inner(transaction)))

    def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage:
        """Look at the message with a lookup id, or next to it."""
        return self._do(self.remote.peek_by_lookup_id(lookup_id, where))

    def purge(self) -> int:
        """Remove every message; how many there were, which only administrators are told: 0 for others."""
        return self._do(self.remote.purge())

    def cursor(self, *, peek_only: bool = False) -> Cursor:
        """A place in the queue that moves over the messages; who may only peek asks for `peek_only`."""
        return Cursor(self._manager, self.remote.cursor(peek_only=peek_only))

    def subqueue(self, name: str) -> Queue:
        """A subqueue; it comes into being when first used."""
        return Queue(self._manager, self.remote.subqueue(name))

    def subqueues(self) -> list[Queue]:
        """The subqueues there are."""
        return [Queue(self._manager, queue) for queue in self._do(self.remote.subqueues())]

    def move(self, lookup_id: int, target: str | Queue, *, transaction: Transaction | None = None) -> None:
        """Move a message to a subqueue of this queue (by its short name), or from one back to its queue."""
        queue = target.remote if isinstance(target, Queue) else target
        self._do(self.remote.move(lookup_id, queue, transaction=_inner(transaction)))

    def move_many(self, lookup_ids: Iterable[int], target: str | Queue) -> None:
        """Move messages, all of them or none; for administrators of a queue manager of ours."""
        queue = target.remote if isinstance(target, Queue) else target
        self._do(self.remote.move_many(list(lookup_ids), queue))

    @property
    def journal(self) -> Queue:
        return Queue(self._manager, self.remote.journal)


async def _left(inside: AbstractAsyncContextManager[object], error: BaseException | None) -> None:
    try:
        await inside.__aexit__(None if error is None else type(error), error, None)
    except BaseException as raised:
        if raised is not error:
            raise


class Cursor:
    """A place in a queue. Stepping off the end waits, or ends with IOTimeout."""

    def __init__(self, manager: QueueManager, remote: remote_units.Cursor) -> None:
        self._do = manager.do
        self._remote = remote

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._do(self._remote.close())

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message under the cursor; a new cursor first moves to the first one."""
        return self._do(self._remote.peek(timeout))

    def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """Step to the next message and look at it."""
        return self._do(self._remote.peek_next(timeout))

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the message under the cursor."""
        return self._do(self._remote.receive(timeout, transaction=_inner(transaction)))


class Transaction:
    """All of it or nothing: an internal transaction of that queue manager, begun when it is first used."""

    def __init__(self, manager: QueueManager, remote: remote_units.Transaction) -> None:
        self._do = manager.do
        self.remote = remote

    @property
    def identifier(self) -> str:
        return self.remote.identifier

    def commit(self) -> None:
        """Do it all, durably."""
        self._do(self.remote.commit())

    def abort(self) -> None:
        """Undo it all: what was received is back in its place, what was sent never was."""
        self._do(self.remote.abort())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self.remote.__aexit__(kind, error, trace))


def _inner(transaction: Transaction | None) -> remote_units.Transaction | None:
    return None if transaction is None else transaction.remote
