"""df.write and df.writeStream with format("msmq"): each task stages its rows under a token of its own, the driver publishes them once.

Staged messages are durable and in no queue. `commit` makes those of all tasks visible together,
once per stream and batch, or per writeId: a batch that is done again after a crash finds that it
was published, and is only compared. The tokens are random, since Spark numbers the attempts of
tasks from 0 in each application: what an attempt has staged that nobody waits for any more is in no
list of tokens, so it is never published. It is dropped when its batch is published, when the write
is given up, or after a day.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lanner.model.errors import InvalidParameter, LannerError
from lanner.spark.flight.errors import PublicationDiffers
from lanner.spark.source.connections import Manager
from lanner.spark.source.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from lanner.spark.flight.client import FlightQueues

_LOG: Final = logging.getLogger(__name__)
# Not in the specification: seconds for which a write without a writeId is remembered.
FORGET_AFTER: Final = 86_400
# Of the task of a stream: set by Spark, the same after a restart from the checkpoint.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has written; no token if it had no rows."""

    writer: str
    batch: int
    token: str | None
    messages: int = 0


def _manager(options: WriteOptions) -> Manager:
    return Manager(options.access, options.access.managers[0])


def _stage(options: WriteOptions, writer: str, batch: int, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Write the rows of a task under a new token."""
    rows = (one for one in rows if len(one))
    first = next(rows, None)
    if first is None:
        return Staged(writer, batch, None)
    manager = _manager(options)
    # The rows can be read only once, so only connecting is retried.
    manager.call(lambda flight: flight.info())
    token = secrets.token_hex(16)

    def put(flight: FlightQueues) -> int:
        answer = flight.stage(
            chain([first], rows), first.schema, writer=writer, batch=batch, queue=options.queue, token=token
        )
        return int(answer["messages"])

    return Staged(writer, batch, token, manager.once(put))


def _publish(
    options: WriteOptions,
    writer: str,
    batch: int,
    messages: Sequence[WriterCommitMessage | None],
    keep: int | None = None,
) -> None:
    """Make the rows of all tasks visible, in the order of the partitions.

    `keep`: for so many seconds it may be asked for again.
    """
    tokens = [one.token for one in messages if isinstance(one, Staged) and one.token is not None]
    manager = _manager(options)
    try:
        manager.call(lambda flight: flight.publish(writer, batch, tokens, keep))
    except PublicationDiffers as error:
        if options.fail_on_changed_replay:
            raise PublicationDiffers(
                f"{error.args[0]}. What the query computes is not the same each time, or its source has changed since. The batch is in its "
                "queue as it was first; set failOnChangedReplay to false to go on with that"
            ) from None
        _LOG.warning("%s: the first one counts", error)
        manager.call(lambda flight: flight.drop(tokens))


def _give_up(options: WriteOptions, writer: str | None, batch: int) -> None:
    """Drop what was staged for a batch, as far as that can be done: it is never published anyway."""
    if writer is None:
        return
    try:
        _manager(options).once(lambda flight: flight.drop_batch(writer, batch))
    except LannerError as error:
        _LOG.warning("what was staged for %s, batch %d, stays for a day: %s", writer, batch, error)


class MsmqBatchWriter(DataSourceArrowWriter):
    """df.write: exactly once with a writeId, once per run without."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._writer = f"write {options.write_id or uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _stage(self._options, self._writer, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        # Without a writeId this name comes again only if an answer was lost.
        _publish(self._options, self._writer, 0, messages, None if self._options.write_id else FORGET_AFTER)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        del messages
        _give_up(self._options, self._writer, 0)


class MsmqStreamWriter(DataSourceStreamArrowWriter):
    """df.writeStream: exactly once per query and batch.

    Spark makes one for each call, so only messages carry the results of tasks to `commit`.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        batch = None if context is None else context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise InvalidParameter("a stream is written by a streaming query of Spark, whose number this is not told")
        return _stage(self._options, f"query {query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        writer = _writer_of(messages)
        if writer is not None:
            _publish(self._options, writer, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        _give_up(self._options, _writer_of(messages), batchId)


def _writer_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((one.writer for one in messages if isinstance(one, Staged)), None)
