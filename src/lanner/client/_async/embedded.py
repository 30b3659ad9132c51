"""The backend for a queue manager in this process.

Operations run in the caller's thread, under the store's lock.
"""

# A read's time-out is the protocol's, kept by the queue manager.

from __future__ import annotations

import copy
import os
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from lanner.client._async.asked import Asked
from lanner.client._async.embedded_queue import EmbeddedQueue
from lanner.client._async.embedded_units import EmbeddedTransaction, prepared
from lanner.client._async.io import Opening, Waiter, durable, in_thread, open_early
from lanner.host.distributed import DistributedRequests
from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.model.errors import UnsupportedOperation
from lanner.security.identity import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lanner.client._async.backend import Backend, BackendQueue, BackendTransaction, Document
    from lanner.engine import Engine, EngineSettings
    from lanner.host.names import QueueNames
    from lanner.model.branches import Branch
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.model.live import Transaction
    from lanner.security.access_lists import AccessChange, AccessList
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.transfer.embedded import EmbeddedTransfer
    from lanner.transfer.settings import TransferSettings
    from lanner.wire.format_name import FormatName

_NOT_OPEN = "the queue manager is not open: enter its `async with` block"


class Embedded:
    """A running queue manager: its runtime and, with an address, its transfer."""

    def __init__(
        self,
        data: str | Path,
        settings: EngineSettings,
        *,
        bind: str | None,
        transfer: TransferSettings | None,
    ) -> None:
        self.runtime = Runtime(data, settings)
        self.transfer: EmbeddedTransfer | None = None
        # In hardened mode it accepts no sessions (MS-MQDMPR 3.1.1.1).
        if bind is not None and not self.runtime.engine.queue_manager.hardened_security:
            # Imported here: a program that only uses queues needs no sockets and no event loop.
            from lanner.transfer.embedded import EmbeddedTransfer

            try:
                self.transfer = EmbeddedTransfer(self.runtime.engine, bind, transfer)
            except BaseException:
                self.runtime.close()
                raise

    def close(self) -> None:
        """Close the transfer and the runtime. Closing twice is harmless."""
        if self.transfer is not None:
            self.transfer.close()
        self.runtime.close()


def _no_service(identity: Identity, request: Mapping[str, object]) -> object:
    del identity
    raise UnsupportedOperation(f"a queue manager in this process has no {request['request']}: `lanner serve` has them")


class EmbeddedBackend(Asked):
    """The access of one identity to a queue manager in this process."""

    waiter: Waiter

    def __init__(
        self,
        data: str | Path,
        settings: EngineSettings,
        *,
        bind: str | None = None,
        transfer: TransferSettings | None = None,
    ) -> None:
        self._data = data
        self._embedded: Embedded | None = None
        self._operations: Operations | None = None
        self._opening = Opening(partial(Embedded, data, settings, bind=bind, transfer=transfer), Embedded.close)
        self._forget_keys()
        open_early(self.open)

    def _forget_keys(self) -> None:
        self.signing_key: SigningKey | None = None
        self._registered_key: SigningKey | None = None
        self._internal_key: SigningKey | None = None

    async def open(self) -> None:
        if self._embedded is None:
            self._embedded = await self._opening.result()
            self.waiter = Waiter(self.runtime)
            origin = self.engine.settings.local_origin or f"process {os.getpid()} uid {os.geteuid()}"
            self._operations = Operations(self.runtime.engine, self.waiter, SYSTEM.at(origin))

    async def close(self) -> None:
        # A process forked from this one has nothing to close.
        if self._embedded is not None and not self.runtime.lock.is_foreign:
            await in_thread(self._embedded.close)
            await self.waiter.close()

    def as_user(self, identity: Identity) -> Backend:
        other = copy.copy(self)
        other._operations = Operations(self.runtime.engine, self.waiter, identity)  # noqa: SLF001 (of this class)
        # Keys belong to their user.
        other._forget_keys()  # noqa: SLF001 (an object of this class)
        return other

    @property
    def embedded(self) -> Embedded:
        if self._embedded is None:
            raise RuntimeError(_NOT_OPEN)
        return self._embedded

    @property
    def operations(self) -> Operations:
        """The operations of the identity."""
        if self._operations is None:
            raise RuntimeError(_NOT_OPEN)
        return self._operations

    @property
    def runtime(self) -> Runtime:
        return self.embedded.runtime

    @property
    def engine(self) -> Engine:
        return self.runtime.engine

    @property
    def name(self) -> str:
        return self.names.computer_name

    @property
    def identifier(self) -> uuid.UUID:
        return self.engine.queue_manager.identifier

    @property
    def names(self) -> QueueNames:
        return self.operations.names

    @property
    def place(self) -> str:
        return str(self._data)

    # Queues
    # ----------------------------------------------------------------------------------------------

    async def create_queue(
        self, path: str, attributes: Mapping[str, object], access: Mapping[str, list[str]] | str | None = None
    ) -> str:
        security = self.operations.new_security(access)
        with self.waiter.change() as change:
            queue = self.operations.create_queue(path, attributes, security)
        await durable(change)
        return queue.pathname

    async def delete_queue(self, name: FormatName) -> None:
        with self.waiter.change() as change:
            self.operations.delete_queue(name)
        await durable(change)

    async def attributes(self, name: FormatName) -> QueueObject:
        with self.runtime.lock:
            return self.operations.attributes(name)

    async def set_attributes(self, name: FormatName, changes: Mapping[str, object]) -> None:
        with self.waiter.change() as change:
            self.operations.set_attributes(name, changes)
        await durable(change)

    async def access(self, name: FormatName) -> AccessList:
        with self.runtime.lock:
            return self.operations.access(name)

    async def change_access(self, name: FormatName, change: AccessChange, *, force: bool) -> None:
        change = self.operations.read_change(name, change)
        with self.waiter.change() as written:
            self.operations.change_access(name, change, force=force)
        await durable(written)

    async def exists(self, name: FormatName) -> bool:
        with self.runtime.lock:
            return self.operations.exists(name)

    async def is_transactional(self, name: FormatName) -> bool | None:
        with self.runtime.lock:
            return self.operations.is_transactional(name)

    async def count(self, name: FormatName) -> int:
        with self.runtime.lock:
            return self.operations.message_count(name)

    async def subqueue_names(self, name: FormatName) -> list[str]:
        with self.runtime.lock:
            return self.operations.subqueue_names(name)

    def queue(self, name: FormatName, text: str, *, exclusive: bool) -> BackendQueue:
        del text
        return EmbeddedQueue(self, name, exclusive=exclusive)

    def transaction(self) -> BackendTransaction:
        return EmbeddedTransaction(self)

    def branch(self, branch: Branch) -> BackendTransaction:
        """Return a session transaction, which becomes the branch when it is prepared."""
        del branch
        return EmbeddedTransaction(self)

    async def distributed(self, request: str, **arguments: object) -> Document:
        return await self._distributed({"request": request, **arguments})

    async def prepare(self, unit: BackendTransaction, **arguments: object) -> None:
        await self._distributed({"request": "prepare", **arguments}, prepared(unit))

    async def _distributed(self, request: Document, transaction: Transaction | None = None) -> Document:
        with self.waiter.change() as change:
            answer = DistributedRequests(self.engine, self.operations.identity).answer(request, transaction)
        await durable(change)
        return answer()

    def key_to_sign_with(self) -> SigningKey:
        """Return the program's own key, else that of the user's internal certificate.

        The certificate of the program's key is registered, so that receivers know it.
        """
        key = self.signing_key or self._internal_key
        if key is None:
            key = self._internal_key = self.runtime.internal_signing_key(self.operations.identity)
        elif key is self.signing_key and key is not self._registered_key:
            with self.runtime.lock:
                self.engine.register_certificate(self.operations.identity, key.certificate)
            self._registered_key = key
        return key

    # For administrators
    # -------------------------------------------------------------------------------------------

    async def ask(self, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        # Imported here: management takes time to import, and few programs need it.
        from lanner.services.account_documents import AccountDocuments
        from lanner.services.documents import Documents
        from lanner.services.user_documents import UserDocuments

        identity, transfer = self.operations.identity, self.embedded.transfer
        of_users = UserDocuments(self.engine, self.runtime.tokens)
        documents = Documents(
            self.engine,
            self.waiter,
            None if transfer is None else transfer.transfer,
            of_users=of_users,
            others={
                **AccountDocuments(self.runtime.users).handlers,
                **dict.fromkeys(("metrics", "settings", "reports", "report"), _no_service),
            },
        )
        documents.check(identity, {"request": request})
        slow = documents.slow(identity, {"request": request, **arguments})
        if slow is not None:
            return await in_thread(slow)
        work = partial(documents.answer, identity, {"request": request, **arguments})
        # The transfer belongs to the thread of its event loop.
        answer, change = work() if transfer is None else await in_thread(partial(transfer.run, work))
        await durable(change)
        return answer
