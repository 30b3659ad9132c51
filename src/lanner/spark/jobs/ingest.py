"""ingest: messages of queues and packet files into `messages`, event logs into `events`.

Each queue manager has a stream, with a checkpoint per epoch. A queue manager that was restored from
a backup is read again, and messages that were seen before are recognized by their identifiers. Each
batch is written under a name of its own, so a repeated batch replaces itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lanner.model.errors import AccessDenied, QueueNotFound, UnsupportedOperation
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.jobs.config import AVAILABLE_NOW, ConfigError
from lanner.spark.jobs.lake import Lake, batch_name
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import EVENTS, MESSAGES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME: Final = "ingest"
_BINARY_FILES: Final = "path string, modificationTime timestamp, length bigint, content binary"
# Not in the specification: packet files that are read in one batch. Each is in memory as a whole.
_FILES_PER_BATCH: Final = 64


def run(context: Context) -> Result:
    config = context.config
    if not config.source.managers and config.ingest.packet_files is None:
        raise ConfigError(
            'ingest: nothing to read; give source.managers, such as ["127.0.0.1:1810"], or ingest.packet_files'
        )
    written, told = Written(), Written()
    sources: list[Callable[[], StreamingQuery]] = []
    if config.ingest.events:
        # Events come first: an event whose message is read later is complete, but a message that is
        # gone by then is not.
        writers = [manager for manager in config.source.managers if _has_events(context, manager)]
        sources += [partial(_start_events, context, manager, told) for manager in writers]
    if config.ingest.packet_files is not None:
        directory = config.resolve(config.ingest.packet_files)
        sources.append(lambda: _start(context, packet_files(context.spark, directory), "files", written))
    sources += [partial(_start_manager, context, manager, written) for manager in config.source.managers]
    if config.ingest.trigger == AVAILABLE_NOW:
        for start in sources:
            context.progress.follow([start()], written.total)
    else:
        context.progress.follow([start() for start in sources], written.total)
    return {"messages": written.total(), "events": told.total()}


class Written:
    """The count of rows that the streams have written."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def add(self, batch: str, rows: int) -> None:
        """Count a batch. A repeated batch counts once."""
        self._rows[batch] = rows

    def total(self) -> int:
        return sum(self._rows.values())


def _start_manager(context: Context, manager: str, written: Written) -> StreamingQuery:
    config = context.config.ingest
    options = {"mode": config.mode, "includeBody": str(config.include_body).lower()}
    if config.mode == "receive":
        options["reader"] = config.reader
    if config.max_messages_per_trigger is not None:
        options["maxMessagesPerTrigger"] = str(config.max_messages_per_trigger)
    key, frame = manager_stream(context, manager, config.queues, options)
    return _start(context, frame, key, written)


def _has_events(context: Context, manager: str) -> bool:
    """Return whether a queue manager has an event log that may be read; if not, report it."""
    from lanner.spark.source.options import batch_options
    from lanner.spark.source.queue_names import ask_all

    access = batch_options({**context.config.source.options(manager), "queues": "*"}).access
    try:
        ask_all(access, is_log=True)
    except (QueueNotFound, AccessDenied, UnsupportedOperation) as error:
        context.progress.say(
            f"{manager}: {error.args[0]}; without events times are whole seconds, and what left a queue without a "
            "journal is known only from an acknowledgment"
        )
        return False
    return True


def _start_events(context: Context, manager: str, written: Written) -> StreamingQuery:
    key, frame = manager_stream(context, manager, (), {"mode": "events"})
    return _start(context, frame, f"events-{key}", written, EVENTS)


def manager_stream(
    context: Context, manager: str, queues: Sequence[str], options: Mapping[str, str]
) -> tuple[str, DataFrame]:
    """Return a stream of queues of one queue manager, and its name: queue manager and epoch."""
    from lanner.spark.source import register
    from lanner.spark.source.options import batch_options
    from lanner.spark.source.queue_names import ask_all, patterns_without_queues

    access = context.config.source.options(manager)
    [known] = ask_all(batch_options({**access, "queues": "*"}).access).managers
    # Spark would change settings that several streams share.
    session = context.spark.newSession()
    register(session)
    reader = session.readStream.format("msmq").options(**access).options(**options)
    context.progress.say(f"{known.name} at {known.manager.address}, epoch {known.epoch:x}")
    for pattern in patterns_without_queues(known, queues):
        # Missing dead letters would look like good news.
        reader_name = context.config.source.user or "nobody in particular"
        context.progress.say(f"{known.name}: {pattern} finds no queue that {reader_name} may read")
    return f"{known.identifier}-{known.epoch:x}", reader.load(",".join(queues) or None)


def packet_files(spark: SparkSession, directory: str) -> DataFrame:
    """Return a stream of the messages in packet files. A truncated file is a row with the error."""
    files = spark.readStream.format("binaryFile").schema(_BINARY_FILES)
    files = files.option("pathGlobFilter", "*.packets").option("maxFilesPerTrigger", _FILES_PER_BATCH)
    return files.load(directory).select("path", "content").mapInArrow(_decoded, RowSchema().ddl)


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch.to_pylist():
            yield from _decoded_file(file["path"], file["content"])


def _decoded_file(path: str, content: bytes) -> Iterator[pa.RecordBatch]:
    from lanner.spark.columnar.decode import decode_packets
    from lanner.spark.columnar.packet_files import PacketFileError, PacketReader
    from lanner.spark.columnar.packet_source import Place

    with tempfile.NamedTemporaryFile() as copy:
        copy.write(content)
        copy.flush()
        try:
            with PacketReader(Path(copy.name)) as reader:
                yield from reader.batches(RowSchema())
        except PacketFileError as error:
            # There is no packet, so the row has the error of the reader.
            row = decode_packets([b""], place=Place(queue=path)).to_pylist()[0]
            text = str(error).replace(copy.name, path)
            import pyarrow as pa

            schema = RowSchema().arrow
            yield pa.RecordBatch.from_pylist([{**row, "packet_error": text}], schema=schema)


def _start(context: Context, frame: DataFrame, key: str, written: Written, table: str = MESSAGES) -> StreamingQuery:
    lake = context.lake

    def write(batch: DataFrame, number: int) -> None:
        written.add(batch_name(key, number), write_batch(batch, lake, table, key, number))

    writer = frame.writeStream.queryName(f"{NAME} {key}").foreachBatch(write)
    writer = writer.option("checkpointLocation", context.lake.checkpoint(f"{NAME}/{key}"))
    trigger = context.config.ingest.trigger
    writer = writer.trigger(availableNow=True) if trigger == AVAILABLE_NOW else writer.trigger(processingTime=trigger)
    return writer.start()


def write_batch(batch: DataFrame, lake: Lake, table: str, stream: str, number: int) -> int:
    """Add a batch of a stream to a table, once.

    Returns the number of rows, or 0 if the table already has the batch.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    counted = Observation()
    day = F.to_date("event_time" if "event_time" in batch.columns else F.coalesce("arrived_time", "read_time"))
    rows = batch.withColumn("date", day).withColumn("batch", F.lit(batch_name(stream, number)))
    rows = rows.withColumn("qm_name", F.coalesce("qm_name", F.lit("unknown")))
    # One file for each day of a queue manager, unless it is large.
    rows = rows.hint("rebalance", "date", "qm_name")
    rows = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
    return int(counted.get["rows"]) if lake.append(rows, table, stream, number) else 0


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
