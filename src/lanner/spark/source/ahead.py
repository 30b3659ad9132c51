"""Fetch the next batch while the current one is in use."""

from __future__ import annotations

import threading
from collections.abc import Generator
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


class _End:
    """The mark at the end of the batches, with the error that ended them, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(batches: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yield the same batches, fetched by a thread, at most one ahead of the consumer.

    A consumer that stops early waits for the batch that is being fetched.
    """
    fetched: SimpleQueue[T | _End] = SimpleQueue()
    room = threading.Semaphore(1)
    is_over = threading.Event()

    def fetch() -> None:
        end = _End()
        try:
            while room.acquire() and not is_over.is_set():
                fetched.put(next(batches))
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            end.error = error
        finally:
            batches.close()
            fetched.put(end)

    thread = threading.Thread(target=fetch, name="lanner-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(batch := fetched.get(), _End):
            room.release()
            yield batch
        if batch.error is not None:
            raise batch.error
    finally:
        is_over.set()
        room.release()
        thread.join()
