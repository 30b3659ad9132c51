"""Stream reads with transport=rpc: at-least-once delivery from queues of any MSMQ computer.

    {"batch": 3, "queues": {"alpha|orders": [288230376151711745, 288230376151711746]},
     "transport": "rpc", "v": 1}

An offset names the messages of the batch that ends there, by their lookup identifiers. Reading
looks them up and leaves them in the queue. When Spark requests what comes after an offset, its
batch is in the commit log, and the driver receives its messages. Until then a repeated batch finds
the same messages. The driver has the queues open exclusively, so no other program receives them
meanwhile.
"""
# ruff: noqa: N802 (Spark names the methods)

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from lanner.model.errors import InvalidParameter, LannerError, QueueNotFound, SharingViolation
from lanner.model.lookup_ids import sequential_id_of
from lanner.spark.source.options import StreamOptions
from lanner.spark.source.partitions import Columns, MessagesVanished
from lanner.spark.source.rpc_reading import RpcManager, alone, look_up, managers, receive, walk

if TYPE_CHECKING:
    import pyarrow as pa

    from lanner.client import Queue, QueueManager

VERSION: Final = 1
# Not in the specification: the seconds between two checks of empty queues.
POLL: Final = 0.5
# Not in the specification: the seconds for which a killed driver may still hold a queue, and the
# seconds between two attempts.
GRACE: Final = 5.0
PAUSE: Final = 0.25

Messages = dict[str, list[int]]


class RpcMessages(InputPartition):
    """Some messages of a queue."""

    def __init__(self, manager: RpcManager, queue: str, lookup_ids: Sequence[int]) -> None:
        super().__init__(None)
        self.manager = manager
        self.queue = queue
        self.lookup_ids = tuple(lookup_ids)


def _offset(batch: int, messages: Messages) -> dict[str, Any]:
    # Spark compares offsets as text.
    return {"batch": batch, "queues": dict(sorted(messages.items())), "transport": "rpc", "v": VERSION}


def _messages(offset: dict[str, Any]) -> Messages:
    if offset.get("transport") != "rpc" or offset.get("v") != VERSION:
        raise InvalidParameter(f"the checkpoint is of another transport, or of another version: {str(offset)[:100]}")
    return {str(key): [int(number) for number in numbers] for key, numbers in offset["queues"].items()}


class RpcDriver:
    """The part of the stream that runs in the driver."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._managers = {manager.address: manager for manager in managers(options.access)}
        self._known: list[str] | None = None
        self._queues: dict[str, Queue] = {}
        self._acknowledged: dict[str, Any] | None = None
        # With Trigger.AvailableNow: the highest SequentialID of each queue when the query began.
        self._targets: dict[str, int] | None = None

    def initial(self) -> dict[str, Any]:
        """Return the offset of a new stream, which begins with all messages in the queues.

        Raises an error for a queue that cannot be opened.
        """
        self._keys()
        return _offset(0, {})

    def _keys(self) -> list[str]:
        """Return all queues on all queue managers. Raises QueueNotFound if one does not exist."""
        if self._known is None:
            known = []
            for name in self._options.queues:
                found = [key for key in (f"{address}|{name}" for address in self._managers) if self._is_there(key)]
                if not found:
                    raise QueueNotFound(f"option queues: there is no queue {name} on {', '.join(self._managers)}")
                known += found
            self._known = known
        return self._known

    def _is_there(self, key: str) -> bool:
        try:
            self._opened(key)
        except QueueNotFound:
            return False
        return True

    def _split(self, key: str) -> tuple[RpcManager, str]:
        address, _, name = key.partition("|")
        if address not in self._managers:
            raise InvalidParameter(f"the checkpoint is of {address}, and the managers are {', '.join(self._managers)}")
        return self._managers[address], name

    def _opened(self, key: str) -> Queue:
        """Return a queue, opened exclusively."""
        queue = self._queues.get(key)
        if queue is None:
            manager, name = self._split(key)
            queue = manager.call(lambda connected: connected.open(name, exclusive=True))
            deadline = time.monotonic() + GRACE
            while True:
                try:
                    manager.call(lambda _: alone(queue, name))
                    break
                except SharingViolation:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(PAUSE)
            self._queues[key] = queue
        return queue

    def close(self) -> None:
        """Close the queues, so that others can receive."""
        for queue in self._queues.values():
            with contextlib.suppress(LannerError):
                queue.close()
        self._queues.clear()

    def _found(self, key: str, limit: int, max_bytes: int) -> list[int]:
        """Return the lookup ids of the first messages of a queue."""
        manager, _ = self._split(key)
        target = None if self._targets is None else self._targets.get(key, 0)

        def look(_: QueueManager) -> list[int]:
            ids: list[int] = []
            size = 0
            for message in walk(self._opened(key), peek_only=False):
                if target is not None and sequential_id_of(message.lookup_id) > target:
                    continue
                size += len(message.packet)
                if len(ids) == limit or (ids and size > max_bytes):
                    break
                ids.append(message.lookup_id)
            return ids

        return manager.call(look)

    def aim(self) -> None:
        """Read the messages that are in the queues now, and none that arrive later."""
        self._targets = {}
        for key in self._keys():
            manager, _ = self._split(key)
            ids = manager.call(lambda _, key=key: [one.lookup_id for one in walk(self._opened(key), peek_only=False)])  # type: ignore[misc]
            self._targets[key] = max(map(sequential_id_of, ids), default=0)

    def latest(self, start: dict[str, Any], limit: int, max_bytes: int) -> dict[str, Any]:
        self.acknowledge(start)
        found: Messages = {}
        left = limit
        for key in self._keys():
            ids = self._found(key, left, max_bytes) if left else []
            if ids:
                found[key] = ids
                left -= len(ids)
        if found:
            return _offset(int(start["batch"]) + 1, found)
        if self._targets is None:
            time.sleep(POLL)
        return start

    def acknowledge(self, offset: dict[str, Any]) -> None:
        """Receive the messages of a batch that was processed, after Spark has recorded that."""
        if offset == self._acknowledged:
            return
        for key, ids in _messages(offset).items():
            manager, _ = self._split(key)
            manager.call(lambda _, key=key, ids=ids: receive(self._opened(key), ids))  # type: ignore[misc]
        self._acknowledged = offset

    def plan(self, end: dict[str, Any]) -> list[RpcMessages]:
        parts = []
        for key, ids in _messages(end).items():
            manager, name = self._split(key)
            self._opened(key)
            size = -(-len(ids) // (self._options.min_partitions or 1))
            parts += [RpcMessages(manager, name, ids[at : at + size]) for at in range(0, len(ids), size)]
        return parts


class RpcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader, like `stream_reader.MsmqStreamReader`.

    Spark makes two of these objects. Only the one on the driver side uses `driver`.
    """

    def __init__(self, options: StreamOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._driver: RpcDriver | None = None

    @property
    def driver(self) -> RpcDriver:
        if self._driver is None:
            self._driver = RpcDriver(self._options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        return self.driver.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        del limit  # each message is named in an offset, so there is always a limit
        return self.driver.latest(start, self._options.max_messages, self._options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self.driver.aim()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RpcMessages]:
        del start
        return self.driver.plan(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RpcMessages):
            return
        from lanner.spark.source.rpc_columns import read_batches

        manager, ids = partition.manager, partition.lookup_ids
        connected = manager.call(lambda one: one)
        with connected.open(partition.queue) as queue:
            found = manager.call(lambda _: look_up(queue, ids))
            if len(found) < len(ids) and self._options.fail_on_data_loss:
                raise MessagesVanished(
                    f"queue {partition.queue} of {manager.address}: {len(ids) - len(found)} of {len(ids)} messages "
                    "are gone: they were received or purged by others, or have expired. Set failOnDataLoss to false "
                    "to go on without them"
                )
            yield from read_batches(connected, queue, found, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        self.driver.acknowledge(end)

    def stop(self) -> None:
        """Close the queues after a failed call. Stopping a query ends the process instead."""
        if self._driver is not None:
            self._driver.close()
