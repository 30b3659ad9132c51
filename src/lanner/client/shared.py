"""What both APIs are made of: everything that needs no waiting; what a transaction is made of is in `unit_of_work`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

from lanner.client.handles import Handles
from lanner.client.operations import Operations

if TYPE_CHECKING:
    from lanner.client.runtime import Runtime
    from lanner.client.transferring import EmbeddedTransfer
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.model.live import OpenQueueDescriptor
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.transfer.settings import TransferSettings


class BaseQueueManager:
    """A running queue manager, as one identity."""

    runtime: Runtime
    operations: Operations
    transfer: EmbeddedTransfer | None = None

    def start_transfer(self, bind: str | None, settings: TransferSettings | None) -> None:
        """Listen on an address, if there is one; the runtime is closed if that cannot be. In hardened mode nobody listens (MS-MQDMPR 3.1.1.1)."""
        if bind is not None and not self.runtime.engine.queue_manager.hardened_security:
            # Sockets and an event loop, which a program that only has queues does without.
            from lanner.client.transferring import EmbeddedTransfer

            try:
                self.transfer = EmbeddedTransfer(self.runtime.engine, bind, settings)
            except BaseException:
                self.runtime.close()
                raise

    def stop(self) -> None:
        """End the transfer and the runtime."""
        if self.transfer is not None:
            self.transfer.close()
        self.runtime.close()

    @property
    def name(self) -> str:
        return self.operations.names.computer_name

    @property
    def signing_key(self) -> SigningKey | None:
        """Signs messages sent with `authenticate`; None: the internal certificate of the user does."""
        return self.operations.signing_key

    @signing_key.setter
    def signing_key(self, key: SigningKey | None) -> None:
        self.operations.signing_key = key

    def as_user(self, identity: Identity) -> Self:
        """The same queue manager seen by somebody whose rights are checked."""
        other = copy.copy(self)
        other.operations = Operations(self.runtime, identity)
        return other


class BaseQueue:
    """A queue by name. Handles are opened when first needed, and closed with it."""

    def __init__(self, operations: Operations, name: str, *, exclusive: bool) -> None:
        self._operations = operations
        self.name = name
        self._handles = Handles(operations, name, self, exclusive=exclusive)

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def close(self) -> None:
        """Close the handles; reads that wait on them end. The queue can be used again."""
        self._handles.close()

    @property
    def attributes(self) -> QueueObject:
        """A copy of the queue's attributes (MS-MQDMPR 3.1.1.2) as they are now; change them with `set`."""
        return self._operations.attributes(self.name)

    @property
    def path_name(self) -> str:
        return self._operations.path_name(self.name)

    @property
    def format_name(self) -> str:
        return str(self._operations.names.format_name(self.name))

    def exists(self) -> bool:
        """Whether the queue is here."""
        return self._operations.exists(self.name)

    def __len__(self) -> int:
        return self._operations.message_count(self.name)

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue


class BaseCursor:
    """A place in a queue. Stepping off the end waits, or ends with IOTimeout."""

    def __init__(self, operations: Operations, queue: BaseQueue, handle: OpenQueueDescriptor) -> None:
        self._operations = operations
        # The queue object keeps the handle open.
        self._queue = queue
        self._handle = handle
        self._cursor = operations.open_cursor(handle)

    def close(self) -> None:
        self._operations.close_cursor(self._cursor)
