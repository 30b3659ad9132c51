"""format("msmq"): queues as sources and sinks of Spark.

The package `pyspark_msmq` registers `MsmqDataSource` with Spark. It is imported on first use, so
that `queue_names` and `connections` can be imported without pyspark.

    data_source    the class that Spark registers; its docstring lists the options
    options        the options: names, values, and errors that name what was expected
    connections    connections from the processes of a job to queue managers, with retries
    queue_names    names and patterns of the option `queues`
    pushing        translates conditions of Spark for queue managers
    offsets        the offsets of a stream, as JSON
    partitions     ranges of queues as partitions of Spark
    batch_reader   spark.read
    stream_reader  spark.readStream
    stream_driver  the part of a stream that runs in the driver
    leases         the leases of a stream that receives, renewed by a thread
    ahead          fetches the next batch while one is in use
    writer         df.write and df.writeStream
    spreading      chooses a queue manager for each row of a write
    tables         the options of tables of Spark's catalog
    rpc_reading    transport=rpc: remote read of any MSMQ computer
    rpc_columns    messages of a remote queue as Arrow batches
    rpc_batch      spark.read with transport=rpc
    rpc_stream     spark.readStream with transport=rpc
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.spark.source.data_source import MsmqDataSource

__all__ = ["MsmqDataSource"]


def __getattr__(name: str) -> object:
    if name != "MsmqDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lanner.spark.source.data_source import MsmqDataSource

    return MsmqDataSource
