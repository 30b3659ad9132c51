"""The interface between the public classes and a local or remote queue manager.

A backend reaches one queue manager as one identity. It makes one `BackendQueue` per `Queue` object,
which opens its handles on first use. Names are format names: the public classes have already parsed
the program's spelling. Time-outs are in seconds; None means no time-out.
"""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from lanner.client.found import Found
    from lanner.client.message import Message, ReceivedMessage
    from lanner.client.preparing import Sendable
    from lanner.host.names import QueueNames
    from lanner.model.branches import Branch
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.security.access_lists import AccessChange, AccessList
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.wire.format_name import FormatName

Document: TypeAlias = dict[str, Any]


class Backend(Protocol):
    """The access of one identity to a queue manager."""

    # Signs messages sent with `authenticate`. None: an internal certificate, where there is one.
    signing_key: SigningKey | None

    @property
    def name(self) -> str:
        """The computer name."""

    @property
    def identifier(self) -> UUID | None:
        """The queue manager's identifier; None if it is not known."""

    @property
    def names(self) -> QueueNames:
        """The parser for queue names of this queue manager."""

    @property
    def place(self) -> str:
        """The location of the queue manager, for error texts."""

    async def open(self) -> None:
        """Open the backend, so that it can be used."""

    async def close(self) -> None:
        """Close the backend. Closing twice is harmless."""

    def as_user(self, identity: Identity) -> Backend:
        """Return the same queue manager as another identity reaches it."""

    async def create_queue(
        self, path: str, attributes: Mapping[str, object], access: Mapping[str, list[str]] | str | None = None
    ) -> str:
        """Create a queue and return its path name; `access` is rights by account, or SDDL."""

    async def delete_queue(self, name: FormatName) -> None: ...

    async def queue_names(self) -> list[str]:
        """Return the path names of the public and private queues."""

    async def attributes(self, name: FormatName) -> QueueObject: ...

    async def set_attributes(self, name: FormatName, changes: Mapping[str, object]) -> None: ...

    async def access(self, name: FormatName) -> AccessList:
        """Return the owner and the access list of a queue."""

    async def change_access(self, name: FormatName, change: AccessChange, *, force: bool) -> None:
        """Change the access list or the owner.

        Raises IllegalOperation if that locks out the caller and is not forced.
        """

    async def exists(self, name: FormatName) -> bool: ...

    async def is_transactional(self, name: FormatName) -> bool | None:
        """Return whether a queue is transactional; None if this is not known."""

    async def count(self, name: FormatName) -> int: ...

    async def subqueue_names(self, name: FormatName) -> list[str]: ...

    def queue(self, name: FormatName, text: str, *, exclusive: bool) -> BackendQueue:
        """Return the handles of a queue; `text` is its name as the program spells it."""

    def transaction(self) -> BackendTransaction:
        """Return a transaction, which begins on first use."""

    def branch(self, branch: Branch) -> BackendTransaction:
        """Return the transaction that is this branch of a distributed one."""

    async def distributed(self, request: str, **arguments: object) -> Document:
        """Make a request about distributed transactions (host/distributed.py).

        Raises UnsupportedOperation if the queue manager has no coordinator.
        """

    async def prepare(self, unit: BackendTransaction, **arguments: object) -> None:
        """Prepare a transaction as a branch of a distributed one; its coordinator then ends it."""

    # For administrators
    # -----------------------------------------------------------------------------------------

    async def outgoing(self) -> list[Document]:
        """Return the state of the outgoing queues."""

    async def pause(self, name: FormatName) -> None: ...

    async def resume(self, name: FormatName) -> None: ...

    async def resend(self, name: FormatName) -> None: ...

    async def status(self) -> Document: ...

    async def ask(self, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """Request a document that only a Lanner has (services/documents.py)."""


class BackendQueue(Protocol):
    """One queue, and the handles that its `Queue` object has open."""

    async def open(self) -> None:
        """Open an exclusive queue at once."""

    async def close(self) -> None: ...

    async def send(self, message: Sendable, unit: BackendTransaction | None) -> str: ...

    async def send_many(self, messages: Sequence[Sendable], unit: BackendTransaction | None) -> list[str]: ...

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage: ...

    async def receive_many(
        self, count: int, timeout: float | None, unit: BackendTransaction | None
    ) -> list[ReceivedMessage]: ...

    def receiving(self, count: int, timeout: float | None) -> AbstractAsyncContextManager[list[ReceivedMessage]]:
        """Hold messages until the end of the block."""

    def receiving_by_lookup_id(self, lookup_id: int, where: str) -> AbstractAsyncContextManager[ReceivedMessage]:
        """Hold a message until the end of the block."""

    async def peek(self, timeout: float | None) -> ReceivedMessage: ...

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str, unit: BackendTransaction | None
    ) -> ReceivedMessage: ...

    async def peek_by_lookup_id(self, lookup_id: int, where: str) -> ReceivedMessage: ...

    async def move(self, lookup_ids: Sequence[int], target: BackendQueue, unit: BackendTransaction | None) -> None: ...

    async def find(
        self, conditions: Sequence[str], after: int | None, limit: int, scan: int, *, ids_only: bool
    ) -> Found: ...

    async def pass_on(
        self,
        lookup_ids: Sequence[int],
        target: BackendQueue,
        unit: BackendTransaction | None,
        *,
        is_copy: bool,
        edited: Message | None = None,
    ) -> list[str]:
        """Send messages to another queue, and remove them unless they are copied.

        With `edited`, one message is sent with changes.
        """

    async def delete(self, lookup_ids: Sequence[int]) -> None: ...

    async def purge(self) -> int: ...

    def cursor(self, *, peek_only: bool) -> BackendCursor: ...


class BackendBatch(Protocol):
    """Messages that were requested ahead in a transaction."""

    async def messages(self) -> list[ReceivedMessage]:
        """Return the messages that were available; IOTimeout if there were none."""

    async def keep(self, count: int) -> None:
        """Give back all but the first `count` messages."""

    async def begin_commit(self) -> None:
        """Request the commit of the transaction, without waiting for it."""

    async def committed(self) -> None:
        """Wait until the commit is durable.

        Raises CommitInDoubt if the connection is lost before the answer.
        """


@runtime_checkable
class ReceivesAhead(Protocol):
    """A queue whose messages can be received ahead."""

    async def receive_ahead(self, most: int, unit: BackendTransaction) -> BackendBatch: ...


@runtime_checkable
class CommitsWithSends(Protocol):
    """A transaction that can be committed in the request that sends its last messages."""

    async def commit_with(self, put: Sequence[tuple[BackendQueue, Message]]) -> bool:
        """Send messages and commit.

        Returns False, and does nothing, if these messages need requests of their own.
        """


class BackendCursor(Protocol):
    """A cursor, which is opened on first use."""

    async def close(self) -> None: ...

    async def peek(self, timeout: float | None, *, is_next: bool) -> ReceivedMessage: ...

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage: ...


class BackendTransaction(Protocol):
    """A transaction of one backend."""

    @property
    def identifier(self) -> UUID: ...

    @property
    def is_over(self) -> bool:
        """Whether the transaction has been committed or aborted."""

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...
