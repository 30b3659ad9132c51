r"""format("msmq"): queues as sources and sinks of Spark.

The package `pyspark_msmq` makes Spark find it.

    spark.read.format("msmq").option("managers", "alpha,beta").option("queues",
    "orders*;journal").load() spark.read.format("msmq").load("orders")

What a row has is in `schema`; which queues `queues` means, in `queue_names`.

| option | of | what |
|---|---|---|
| managers | all | queue managers: host, host:port, grpc+tls://host:port, with commas; file:PATH with one on each line; dns:NAME or dns:NAME:PORT for all addresses of a name; default 127.0.0.1. A writer spreads its rows over them, or sends each to the one that its column qm_name names |
| transport | all | flight (default); rpc: remote read of any MSMQ computer, by batches that peek and streams that receive, at least once, see `rpc_reading` |
| user | all | who reads or writes; without it, anonymous |
| passwordFile, passwordEnv | all | where the password is: a file of mode 0600, or a variable (default LANNER_PASSWORD), on driver and workers |
| tlsRoots | all | file with the PEM of who vouches for grpc+tls addresses |
| retrySeconds | all | how long a queue manager may be away; default 60, of batches 5 |
| queues | read | names and patterns, with commas or as a JSON list; also the argument of load() |
| columns | read | all (default), core, or names with commas |
| includeBody | read | false leaves the bodies where they are; default true |
| startingOffsets | read | earliest (default), latest (streams), or the JSON of an offset: read on from its `to` |
| startingTimestamp, endingTimestamp | read, batch read | messages that arrived from a time on, and before one: milliseconds since 1970, or ISO 8601 with its zone |
| endingOffsets | batch read | latest (default) or the JSON of an offset: read up to its `to` |
| where | batch read | conditions that the queue manager tells, as JSON: [["label", "=", "order"], ["seq", ">", 100]], see `columnar.filters` |
| pushFilters | batch read | true: Spark's own conditions are told there, too; needs its setting spark.sql.python.filterPushdown.enabled |
| limit | batch read | so many messages are enough: the first, by `seq`, of the first queues |
| bodyFormat, bodySchema | read | auto, json, xml, variant, text: a last column `value` has what the body holds, as JSON text or in a type of Spark's, see `columnar.values` |
| onManagerDown | read | fail (default); skip goes on without queue managers that do not answer, and says so; wait waits |
| minPartitions | read | about so many partitions of one size, and not fewer if there are messages enough: the number of cores is good for a large queue, since each task has its price. Without it, parts of 32 to 128 MiB |
| failOnDataLoss | read | whether it is an error that messages or events vanish which were to be read; default: only of streams that receive or read events |
| mode | read | peek (default) leaves messages in their queue, receive (streams) removes what has been processed; events reads what happened to messages |
| reader | stream read | a name of this query's own, needed for mode receive and for startingOffsets latest |
| leaseSeconds | stream read | how long the queues of a reader that died stay closed for others; default 30 |
| maxMessagesPerTrigger, maxBytesPerTrigger | stream read | what one batch reads at most; default 1000000 and 64 MiB for each core |
| minMessagesPerTrigger, maxTriggerDelay | stream read | a batch waits for so many messages, but not longer than that (15m) |
| queue | write | where messages go whose row names no queue; also the argument of save() |
| writeId | batch write | the name of what is written: done again it does nothing. Without it, a job that runs again writes again |
| failOnChangedReplay | stream write | false: a batch that was published and comes again with other rows counts as done; default true |
"""
# ruff: noqa: N802 (Spark names the methods)

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from lanner.model.errors import InvalidParameter
from lanner.spark.source import options as msmq_options
from lanner.spark.source import tables
from lanner.spark.source.connections import RPC

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


class MsmqDataSource(DataSource):
    """Made by Spark for each read and write; what is heavy is imported where it is used."""

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
            events = RowSchema.select_events(columns)
            return self._table(events) if is_table else events.ddl
        lowered = {name.lower(): value.strip() for name, value in self.options.items()}
        body = BodyFormat.of((lowered.get("bodyformat") or "none").lower(), lowered.get("bodyschema"))
        row = Shape(Filters(), body).schema(RowSchema.select(columns, include_body=include_body))
        return self._table(row) if is_table else row.ddl

    def _table(self, row: RowSchema) -> StructType:
        """The schema of a table that is being created: with its options, which must be right."""
        msmq_options.check_table(self.options)
        return tables.table_schema(row.arrow, self.options, msmq_options.OF_SPARK)

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
        _check_written(schema, options)
        if overwrite:
            raise InvalidParameter('mode("overwrite"): a queue cannot be replaced, only added to; use mode("append")')
        return MsmqBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from lanner.spark.source.writer import MsmqStreamWriter

        options = msmq_options.write_options(tables.options_of(self.options, schema), is_stream=True)
        _check_written(schema, options)
        if overwrite:
            raise InvalidParameter(
                'outputMode("complete"): a queue cannot be replaced, only added to; use append or update'
            )
        return MsmqStreamWriter(options)


def _columns(options: Mapping[str, str]) -> tuple[str, bool, bool]:
    lowered = {name.lower(): value.strip() for name, value in options.items()}
    is_events = lowered.get("mode", "").lower() == msmq_options.EVENTS
    return lowered.get("columns") or "all", lowered.get("includebody", "true").lower() != "false", is_events


def _chosen(schema: StructType, options: msmq_options.ReadOptions) -> Columns:
    """What to ask for so that rows have the schema that Spark was told: ours, or some columns of it that the user has given."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from lanner.spark.columnar.filters import Filters
    from lanner.spark.columnar.schema import RowSchema
    from lanner.spark.columnar.shaping import Shape
    from lanner.spark.columnar.values import VALUE
    from lanner.spark.source.partitions import Columns

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
                f"schema: column {field.name} is {field.type}{'' if field.nullable else ' not null'}, and messages have it as {ours.type}: "
                f"give it as `{field.name} {row.columns[row.names.index(field.name)].ddl}`"
            )
    return columns


def _check_written(schema: StructType, options: msmq_options.WriteOptions) -> None:
    """Refuse rows that cannot be sent before the first one is."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from lanner.spark.columnar.encode import check_columns
    from lanner.spark.source.spreading import without_place

    check_columns(without_place(to_arrow_schema(schema, timezone="UTC")), options.queue)
