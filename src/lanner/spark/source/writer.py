"""df.write and df.writeStream with format("msmq"): tasks stage rows, the driver publishes them.

Each task stages its rows under a token of its own. Staged messages are durable and in no queue.
`commit` makes those of all tasks visible together, once per stream and batch, or per writeId. A
batch that is repeated after a crash was already published, so it is only compared. Spark numbers
the attempts of tasks from 0 in each application, so tokens are random: the token of an abandoned
attempt is in no list, and is never published. It is dropped when its batch is published, when the
write is aborted, or after a day.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lanner.model.errors import InvalidParameter, LannerError
from lanner.spark.flight.errors import PublicationDiffers
from lanner.spark.source.connections import Manager
from lanner.spark.source.options import WriteOptions
from lanner.spark.source.shipping import Shipped
from lanner.spark.source.spreading import spread
from lanner.spark.source.tables import without

if TYPE_CHECKING:
    import pyarrow as pa

    from lanner.spark.flight.client import FlightQueues, Staging

_LOG: Final = logging.getLogger(__name__)
# Not in the specification: the seconds for which a write without a writeId is recorded.
FORGET_AFTER: Final = 86_400
# Local properties of a stream's task, set by Spark. They are the same after a restart from the
# checkpoint.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The result of one task: a token for each queue manager that has rows of it, by index."""

    writer: str
    batch: int
    tokens: dict[int, str]
    messages: int = 0


def _managers(options: WriteOptions) -> list[Manager]:
    return [Manager(options.access, address) for address in options.access.managers]


def _stage(
    options: WriteOptions, writer: str, batch: int, rows: Iterator[pa.RecordBatch], left_out: Sequence[str] = ()
) -> Staged:
    """Write the rows of a task under a new token, to each queue manager that some of them go to.

    `left_out`: columns that are not written (`tables.left_out`).
    """
    managers = _managers(options)
    staged = Staged(writer, batch, {place: secrets.token_hex(16) for place in range(len(managers))})
    streams: dict[int, Staging] = {}
    messages = 0

    def names() -> dict[str, int]:
        return {
            str(manager.call(lambda flight: flight.info())["queue_manager"]).upper(): place
            for place, manager in enumerate(managers)
        }

    known = lru_cache(1)(names)
    try:
        for one in rows:
            for place, part in spread(without(one, left_out), len(managers), known, messages):
                if not len(part):
                    continue
                if place not in streams:
                    streams[place] = _begin(options, managers[place], staged, staged.tokens[place], part.schema)
                streams[place].put(part)
            messages += len(one)
        messages = sum(int(stream.finish()["messages"]) for stream in streams.values())
    except BaseException:
        for stream in streams.values():
            stream.abandon()
        raise
    return Staged(writer, batch, {place: staged.tokens[place] for place in streams}, messages)


def _begin(options: WriteOptions, manager: Manager, staged: Staged, token: str, schema: pa.Schema) -> Staging:
    # The rows can be read only once, so only connecting is retried.
    manager.call(lambda flight: flight.info())

    def begin(flight: FlightQueues) -> Staging:
        return flight.staging(schema, writer=staged.writer, batch=staged.batch, queue=options.queue, token=token)

    return manager.once(begin)


def _publish(
    options: WriteOptions,
    writer: str,
    batch: int,
    messages: Sequence[WriterCommitMessage | None],
    keep: int | None = None,
) -> None:
    """Make the rows of all tasks visible, in the order of partitions: one commit per queue manager.

    `keep`: seconds for which the publication may be repeated.
    """
    for place, manager in enumerate(_managers(options)):
        tokens = [one.tokens[place] for one in messages if isinstance(one, Staged) and place in one.tokens]
        # Also without tokens: a queue manager that has published other rows of this batch then
        # reports it.
        _publish_at(manager, options, writer, batch, tokens, keep)


def _publish_at(
    manager: Manager, options: WriteOptions, writer: str, batch: int, tokens: list[str], keep: int | None
) -> None:
    try:
        manager.call(lambda flight: flight.publish(writer, batch, tokens, keep))
    except PublicationDiffers as error:
        if options.fail_on_changed_replay:
            raise PublicationDiffers(
                f"{error.args[0]}. What the query computes is not the same each time, or its source has changed "
                "since. The batch is in its queue as it was first; set failOnChangedReplay to false to go on with "
                "that"
            ) from None
        _LOG.warning("%s: the first one counts", error)
        manager.call(lambda flight: flight.drop(tokens))


def _give_up(options: WriteOptions, writer: str | None, batch: int) -> None:
    """Drop what was staged for a batch, if possible. It is never published anyway."""
    if writer is None:
        return
    for manager in _managers(options):
        try:
            manager.once(lambda flight: flight.drop_batch(writer, batch))
        except LannerError as error:
            _LOG.warning("what was staged for %s, batch %d, stays for a day: %s", writer, batch, error)


class MsmqBatchWriter(Shipped, DataSourceArrowWriter):
    """df.write: exactly once with a writeId, once per run without."""

    def __init__(self, options: WriteOptions, left_out: Sequence[str] = ()) -> None:
        self._options = options
        self._left_out = tuple(left_out)
        self._writer = f"write {options.write_id or uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _stage(self._options, self._writer, 0, iterator, self._left_out)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        # Without a writeId, this name is repeated only if an answer was lost.
        _publish(self._options, self._writer, 0, messages, None if self._options.write_id else FORGET_AFTER)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        del messages
        _give_up(self._options, self._writer, 0)


class MsmqStreamWriter(Shipped, DataSourceStreamArrowWriter):
    """df.writeStream: exactly once per query and batch.

    Spark makes one for each call, so only messages carry the results of tasks to `commit`.
    """

    def __init__(self, options: WriteOptions, left_out: Sequence[str] = ()) -> None:
        self._options = options
        self._left_out = tuple(left_out)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        batch = None if context is None else context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise InvalidParameter("a stream is written by a streaming query of Spark, whose number this is not told")
        return _stage(self._options, f"query {query}", int(batch), iterator, self._left_out)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        writer = _writer_of(messages)
        if writer is not None:
            _publish(self._options, writer, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        _give_up(self._options, _writer_of(messages), batchId)


def _writer_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((one.writer for one in messages if isinstance(one, Staged)), None)
