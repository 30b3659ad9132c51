"""transport=rpc: queues of any MSMQ computer, by remote read (MS-MQQP), one message at a time.

Remote read has no number that shows which messages are new. It has only lookup identifiers, which
give the position of a message in its queue. So a batch reads a queue from the first message to the
last, in one task. A stream can only receive: messages that it has processed have left the queue,
and all messages in the queue are new. The columns `seq`, `abort_count` and `move_count` are null.
Reading a message takes one call, or three in a stream.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from lanner.model.errors import (
    InvalidParameter,
    IOTimeout,
    MessageNotFound,
    RemoteMachineNotAvailable,
    ServiceNotAvailable,
    SharingViolation,
)
from lanner.model.lookup_ids import sequential_id_of
from lanner.spark.source.connections import Access

if TYPE_CHECKING:
    from lanner.client import Queue, QueueManager
    from lanner.client.message import ReceivedMessage

T = TypeVar("T")

# Not in the specification: the maximum number of concurrent calls.
IN_FLIGHT: Final = 32
# Not in the specification: the seconds between two attempts to reach a computer.
_PAUSE: Final = 0.5

_KEPT: Final[dict[tuple[int, Access, str], QueueManager]] = {}
_LOCK: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class RpcManager:
    """One computer. It can be pickled, because connections are kept per process."""

    access: Access
    address: str

    def _connected(self) -> QueueManager:
        key = (os.getpid(), self.access, self.address)
        with _LOCK:
            found = _KEPT.get(key)
            if found is None:
                from lanner.client import connect

                parts = urlsplit(f"//{self.address}")
                found = connect(parts.hostname, self.access.user, self.access.password(), port=parts.port)
                _KEPT[key] = found
        return found

    def call(self, work: Callable[[QueueManager], T]) -> T:
        """Run `work`, which must be repeatable.

        It is retried while the computer does not answer, for the time in the options.
        """
        deadline = time.monotonic() + self.access.retry
        while True:
            try:
                return work(self._connected())
            except (RemoteMachineNotAvailable, ServiceNotAvailable):
                if time.monotonic() + _PAUSE > deadline:
                    raise
            time.sleep(_PAUSE)


def managers(access: Access) -> list[RpcManager]:
    return [RpcManager(access, address) for address in access.managers]


def walk(queue: Queue, *, peek_only: bool = True) -> Iterator[ReceivedMessage]:
    """Yield every message by peeking. `peek_only=False` opens the queue with receive access."""
    with queue.cursor(peek_only=peek_only) as cursor:
        try:
            yield _known(cursor.peek(0), queue)
            while True:
                yield _known(cursor.peek_next(0), queue)
        except IOTimeout:
            return


def _known(message: ReceivedMessage, queue: Queue) -> ReceivedMessage:
    if not sequential_id_of(message.lookup_id):
        raise InvalidParameter(
            f"queue {queue.name}: its computer does not report lookup identifiers, by which messages are read"
        )
    return message


def look_up(queue: Queue, lookup_ids: Sequence[int]) -> list[ReceivedMessage]:
    """Return the messages with these lookup ids that still exist."""
    return _each(queue.peek_by_lookup_id, lookup_ids)


def receive(queue: Queue, lookup_ids: Sequence[int]) -> int:
    """Receive messages, and return how many existed."""
    return len(_each(queue.receive_by_lookup_id, lookup_ids))


def _each(do: Callable[[int], ReceivedMessage], lookup_ids: Sequence[int]) -> list[ReceivedMessage]:
    """Read messages, several at a time over one connection. Missing ones are left out."""

    def one(number: int) -> ReceivedMessage | None:
        try:
            return do(number)
        except MessageNotFound:
            return None

    # The first call opens the queue for all others.
    found = [one(number) for number in lookup_ids[:1]]
    if len(lookup_ids) > 1:
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            found += pool.map(one, lookup_ids[1:])
    return [message for message in found if message is not None]


def alone(queue: Queue, name: str) -> list[ReceivedMessage]:
    """Open a queue exclusively for receiving, and return its first message, if there is one."""
    try:
        return list(islice(walk(queue, peek_only=False), 1))
    except SharingViolation as error:
        raise SharingViolation(
            f"another program receives from queue {name}; a stream with mode receive wants it to itself ({error})"
        ) from None
