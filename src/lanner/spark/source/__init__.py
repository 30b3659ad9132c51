"""format("msmq"): queues as sources and sinks of Spark.

Spark finds the format by itself if its Python has Lanner: the package `pyspark_msmq` names
`MsmqDataSource`. `register` does the same for one session, and tells if that Python has no Lanner,
which Spark does not. Both need pyspark only when they are used, so that `queue_names` and
`connections` can be imported without it.

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
    shipping       what a worker without Lanner reports
    rpc_reading    transport=rpc: remote read of any MSMQ computer
    rpc_columns    messages of a remote queue as Arrow batches
    rpc_batch      spark.read with transport=rpc
    rpc_stream     spark.readStream with transport=rpc
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from lanner.spark.source.data_source import MsmqDataSource

__all__ = ["MsmqDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Register format("msmq") with a session.

    Spark does this by itself, but reports only that it does not find the format if the Python that
    it runs has no Lanner. After this call the first use of the format says so.
    """
    from pyspark.sql.datasource import DataSource

    # A class inside a function is pickled with its code, so Spark's Python can run it without
    # Lanner.
    class Registered(DataSource):
        def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]
            try:
                from lanner.spark.source.data_source import MsmqDataSource
            except ImportError as error:
                import sys

                raise ImportError(
                    f"Spark runs {sys.executable}, which has no Lanner ({error}): install lanner[spark] there, on the "
                    "driver and on all workers, or set PYSPARK_PYTHON to a Python that has it"
                ) from None
            return MsmqDataSource(options)

        @classmethod
        def name(cls) -> str:
            return "msmq"

    spark.dataSource.register(Registered)


def __getattr__(name: str) -> object:
    if name != "MsmqDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lanner.spark.source.data_source import MsmqDataSource

    return MsmqDataSource
