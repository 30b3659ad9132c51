"""The idiom "change something, then wait until it is durable".

    with host.change() as change:
        engine.set_queue_properties(queue, changes)
    change.wait()        # in a thread
    await change         # in an event loop
    change.then(answer)  # in an event loop, without a task

The block runs with the store's lock held. The wait happens without it: one thread commits for every
change made meanwhile (group commit, store/commit.py). A block that raises has nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Protocol, Self

from lanner.host.uninterrupted import Uninterrupted

if TYPE_CHECKING:
    from types import TracebackType

    from lanner.host.committer import Committer
    from lanner.store import Store


class Changes(Protocol):
    """Makes changes: a `Runtime` for threads, a `Committer` for an event loop."""

    def change(self) -> Change:
        """Return a change to make, and then to wait for."""


class Change:
    """One change of the store. Not to be used twice."""

    __slots__ = ("_ask", "_committer", "_store", "batch")

    def __init__(self, store: Store, ask: Callable[[int], object], committer: Committer | None = None) -> None:
        """Prepare a change.

        `ask` has a batch written without a wait; a `committer` waits on behalf of an event loop.
        """
        self._store = store
        self._ask = ask
        self._committer = committer
        # The number of the batch that must be on disk; 0 if there is nothing to wait for.
        self.batch = 0

    def __enter__(self) -> Self:
        self._store.lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.batch = self._store.pending_batch()
        finally:
            self._store.lock.release()

    @property
    def is_pending(self) -> bool:
        """Whether there is something to wait for."""
        return self.batch != 0

    def forget(self) -> None:
        """Skip the wait: a restart loses the changed data anyway, like an express message."""
        self.batch = 0

    def wait(self) -> None:
        """Block until the change is durable.

        Raises InsufficientResources if it could not be written.
        """
        if self.batch:
            with Uninterrupted():
                self._store.sync(self.batch)

    def __await__(self) -> Generator[object, None, None]:
        """Wait in an event loop until the change is durable.

        Raises InsufficientResources if it could not be written.
        """
        if self.batch:
            if self._committer is None:
                raise RuntimeError("this change was not made for an event loop: use wait()")
            yield from self._committer.durable(self.batch).__await__()

    def then(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call back in the event loop when the change is durable.

        If it could not be written, the callback gets the error.
        """
        if not self.batch:
            callback(None)
        elif self._committer is None:
            raise RuntimeError("this change was not made for an event loop: use wait()")
        else:
            self._committer.when_durable(self.batch, callback)

    def soon(self) -> None:
        """Have the change written without waiting for it."""
        if self.batch:
            self._ask(self.batch)
