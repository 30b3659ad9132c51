r"""format("msmq"): queues as sources and sinks of Spark.

The package `pyspark_msmq` registers it.

    spark.read.format("msmq").option("managers", "alpha,beta").option("queues", "orders*").load()
    spark.read.format("msmq").load("orders")

`columnar.schema` describes the columns of a row, and `queue_names` the values of `queues`.

Options of reads and writes:

managers
    queue managers: host, host:port, grpc+tls://host:port, separated by commas; file:PATH for a file
    with one per line; dns:NAME or dns:NAME:PORT for all addresses of a name; directory:ADDRESS for
    all computers that the queue manager there knows. Default: 127.0.0.1. A writer spreads its rows
    over them, or sends each to the one in its column qm_name.
transport
    flight (default), or rpc: remote read of any MSMQ computer, by batches that peek and streams
    that receive, at least once; see `rpc_reading`
user
    the user who reads or writes; default: anonymous
passwordFile, passwordEnv
    the place of the password, on the driver and the workers: a file of mode 0600, or an environment
    variable (default: LANNER_PASSWORD)
tlsRoots
    a PEM file with the certificate authorities for grpc+tls addresses
retrySeconds
    how long a queue manager may be down; default: 60, for batches 5

Options of reads:

queues
    names and patterns, separated by commas or as a JSON list; also the argument of load()
columns
    all (default), core, or names separated by commas
includeBody
    false: do not read bodies; default: true
startingOffsets
    earliest (default), latest (streams), or the JSON of an offset: continue after its `to`
startingTimestamp
    read messages that arrived from this time on: milliseconds since 1970, or ISO 8601 with its zone
bodyFormat, bodySchema
    auto, json, xml, variant or text: a last column `value` has the decoded body, as JSON text or in
    a type of Spark; see `columnar.values`
onManagerDown
    fail (default), skip (continue without queue managers that do not answer, and report them in the
    log, in the progress, and in a last column `skipped`) or wait
minPartitions
    make about this many partitions of nearly equal size, if there are enough messages. The
    number of cores is a good value for a large queue, because each task has a fixed cost. Default:
    partitions of 32 to 128 MiB
failOnDataLoss
    whether it is an error if messages or events vanish before they are read; default: true only for
    streams that receive or read events
mode
    peek (default) leaves messages in their queue; receive (streams) removes messages that have been
    processed; events reads the event log

Options of batch reads:

endingOffsets
    latest (default), or the JSON of an offset: read up to its `to`
endingTimestamp
    read messages that arrived before this time
where
    conditions that the queue manager evaluates, as JSON: [["label", "=", "order"], ["seq", ">",
    100]]; see `columnar.filters`
pushFilters
    true: the queue manager evaluates Spark's own conditions too; this needs Spark's setting
    spark.sql.python.filterPushdown.enabled
limit
    the number of messages that are enough: the first, by `seq`, of the first queues

Options of stream reads:

reader
    a name for this query alone, required for mode receive and for startingOffsets latest
leaseSeconds
    how long the queues of a crashed reader stay closed to others; default: 30
maxMessagesPerTrigger, maxBytesPerTrigger
    the limits of one batch; default: 1000000, and 64 MiB for each core
minMessagesPerTrigger, maxTriggerDelay
    a batch waits for this many messages, but at most for this time (default: 15m)

Options of writes:

queue
    the destination of rows that name no queue; also the argument of save()
writeId (batch)
    the name of a write, which makes repeating it harmless. Without it, a job that runs again writes
    again
failOnChangedReplay (stream)
    false: a published batch that is repeated with other rows counts as done; default: true
"""
# ruff: noqa: N802 (Spark names the methods)

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from lanner.model.errors import InvalidParameter
from lanner.spark.source import options as msmq_options
from lanner.spark.source import tables
from lanner.spark.source.connections import RPC
from lanner.spark.source.shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from lanner.spark.columnar.schema import RowSchema
    from lanner.spark.source.partitions import Columns


class MsmqDataSource(Shipped, DataSource):
    """The data source. Spark makes one for each read and write, so large imports are deferred."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        options = tables.tidied(options)
        msmq_options.check_names(options)
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "msmq"

    def schema(self) -> str | StructType:
        from lanner.spark.columnar.filters import Filters
        from lanner.spark.columnar.schema import RowSchema
        from lanner.spark.columnar.shaping import Shape
        from lanner.spark.columnar.values import BodyFormat

        columns, include_body, is_events = _columns(self.options)
        is_table = tables.is_created(self.options)
        if is_events:
            return self._schema(RowSchema.select_events(columns), is_table=is_table)
        lowered = {name.lower(): value.strip() for name, value in self.options.items()}
        body = BodyFormat.of((lowered.get("bodyformat") or "none").lower(), lowered.get("bodyschema"))
        row = Shape(Filters(), body).schema(RowSchema.select(columns, include_body=include_body))
        return self._schema(row, is_table=is_table)

    def _schema(self, row: RowSchema, *, is_table: bool) -> str | StructType:
        """Return a schema in Spark's form. That of a new table has its options, after a check."""
        import pyarrow as pa

        from lanner.spark.source.partitions import SKIPPED

        has_skipped = _has_skipped(self.options)
        if is_table:
            msmq_options.check_table(self.options)
            arrow = row.arrow.append(pa.field(SKIPPED, pa.string())) if has_skipped else row.arrow
            return tables.table_schema(arrow, self.options, msmq_options.OF_SPARK)
        return f"{row.ddl}, `{SKIPPED}` string" if has_skipped else row.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        from lanner.spark.source.batch_reader import FilteringBatchReader, MsmqBatchReader

        options = msmq_options.batch_options(tables.options_of(self.options, schema))
        if options.access.transport == RPC:
            from lanner.spark.source.rpc_batch import RpcBatchReader

            return RpcBatchReader(options, _chosen(schema, options))
        if options.push_filters:
            return FilteringBatchReader(options, _chosen(schema, options))
        return MsmqBatchReader(options, _chosen(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from lanner.spark.source.stream_reader import MsmqStreamReader

        options = msmq_options.stream_options(tables.options_of(self.options, schema))
        if options.access.transport == RPC:
            from lanner.spark.source.rpc_stream import RpcStreamReader

            return RpcStreamReader(options, _chosen(schema, options))
        return MsmqStreamReader(options, _chosen(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from lanner.spark.source.writer import MsmqBatchWriter

        options = msmq_options.write_options(tables.options_of(self.options, schema), is_stream=False)
        left_out = _check_written(schema, options)
        if overwrite:
            raise InvalidParameter('mode("overwrite"): a queue cannot be replaced, only added to; use mode("append")')
        return MsmqBatchWriter(options, left_out)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from lanner.spark.source.writer import MsmqStreamWriter

        options = msmq_options.write_options(tables.options_of(self.options, schema), is_stream=True)
        left_out = _check_written(schema, options)
        if overwrite:
            raise InvalidParameter(
                'outputMode("complete"): a queue cannot be replaced, only added to; use append or update'
            )
        return MsmqStreamWriter(options, left_out)


def _columns(options: Mapping[str, str]) -> tuple[str, bool, bool]:
    lowered = {name.lower(): value.strip() for name, value in options.items()}
    is_events = lowered.get("mode", "").lower() == msmq_options.EVENTS
    return lowered.get("columns") or "all", lowered.get("includebody", "true").lower() != "false", is_events


def _has_skipped(options: Mapping[str, str]) -> bool:
    lowered = {name.lower(): value.strip().lower() for name, value in options.items()}
    return lowered.get("onmanagerdown") == msmq_options.SKIP and lowered.get("transport") != RPC


def _chosen(schema: StructType, options: msmq_options.ReadOptions) -> Columns:
    """Return the columns to request, so that rows have the schema that Spark expects.

    That is the full schema, or the columns of it that the user has given.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from lanner.spark.columnar.filters import Filters
    from lanner.spark.columnar.schema import RowSchema
    from lanner.spark.columnar.shaping import Shape
    from lanner.spark.columnar.values import VALUE
    from lanner.spark.source.partitions import SKIPPED, Columns

    has_skipped = options.on_down == msmq_options.SKIP and SKIPPED in schema.fieldNames()[-1:]
    if has_skipped:
        schema = StructType(schema.fields[:-1])
    if options.is_events:
        row = RowSchema.select_events(options.columns)
    else:
        row = RowSchema.select(options.columns, include_body=options.include_body)
    body = options.body
    told = () if body is None else (body.name, body.schema)
    columns = Columns(options.columns, options.include_body, *told)
    names = tuple(schema.fieldNames())
    row = Shape(Filters(), body).schema(row)
    if names != row.names:
        if body is not None and VALUE in names[:-1]:
            raise InvalidParameter("schema: the column value is the last one")
        body = body if VALUE in names else None
        chosen = tuple(name for name in names if name != VALUE or body is None)
        row = RowSchema.select_events(chosen) if options.is_events else RowSchema.select(chosen)
        row = Shape(Filters(), body).schema(row)
        columns = Columns(chosen, True, *(() if body is None else told))
    given = to_arrow_schema(schema, timezone="UTC")
    for field, ours in zip(given, row.arrow, strict=True):
        if field != ours:
            raise InvalidParameter(
                f"schema: column {field.name} is {field.type}{'' if field.nullable else ' not null'}, and messages "
                f"have it as {ours.type}: give it as `{field.name} {row.columns[row.names.index(field.name)].ddl}`"
            )
    return dataclasses.replace(columns, has_skipped=has_skipped)


def _check_written(schema: StructType, options: msmq_options.WriteOptions) -> tuple[str, ...]:
    """Refuse rows that cannot be sent, before the first one is sent.

    Returns the columns of a table that are not written.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from lanner.spark.columnar.encode import check_columns
    from lanner.spark.source.spreading import without_place

    left_out = tables.left_out(schema)
    arrow = to_arrow_schema(schema, timezone="UTC")
    written = [field for field in without_place(arrow) if field.name not in left_out]
    check_columns(pa.schema(written), options.queue)
    return left_out
