"""migrate: the content of queues to Parquet, to a database by JDBC, or to Kafka with its jar.

The job is a stream that ends when everything is read, with a checkpoint under `migrate.name`, so it
can be killed and run again. Parquet and JDBC get each message once. A Parquet batch replaces
itself. A database batch is one transaction, and has its name in the column `lanner_batch`, by which
a second attempt recognizes it. Kafka may get a batch twice. With `mode = "receive"`, messages leave
their queues once they have been written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lanner.spark.jobs.config import ConfigError, MigrateConfig
from lanner.spark.jobs.ingest import Written, manager_stream, write_batch
from lanner.spark.jobs.lake import Lake
from lanner.spark.jobs.session import Context, Result, submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "migrate"
BATCH_COLUMN: Final = "lanner_batch"
_KAFKA: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

Writer = Callable[["DataFrame", str], int]


def run(context: Context) -> Result:
    config = context.config.migrate
    if not context.config.source.managers or not config.queues:
        raise ConfigError(
            'migrate: nothing is named; give source.managers, such as ["127.0.0.1:1810"], and migrate.queues, such as '
            '["orders"]'
        )
    write = _writer(context, config)
    written = Written()
    for manager in context.config.source.managers:
        options = {"mode": config.mode, "columns": config.columns}
        if config.mode == "receive":
            options["reader"] = config.reader
        key, frame = manager_stream(context, manager, config.queues, options)
        query = (
            frame.writeStream.queryName(f"{NAME} {key}")
            .foreachBatch(_batches(write, f"{config.name}-{key}", written))
            .option("checkpointLocation", context.lake.checkpoint(f"{NAME}/{config.name}/{key}"))
            .trigger(availableNow=True)
            .start()
        )
        context.progress.follow([query], written.total)
    return {"messages": written.total()}


def _batches(write: Writer, key: str, written: Written) -> Callable[[DataFrame, int], None]:
    def write_one(batch: DataFrame, number: int) -> None:
        name = f"{key}-{number:08d}"
        written.add(name, write(batch, name))

    return write_one


def _writer(context: Context, config: MigrateConfig) -> Writer:
    if config.to == "parquet":
        path = context.config.resolve(config.path or "")
        root, _, table = path.rstrip("/").rpartition("/")
        lake = Lake(context.spark, root)

        def write(batch: DataFrame, name: str) -> int:
            stream, _, number = name.rpartition("-")
            return write_batch(batch, lake, table, stream, int(number))

        return write
    if config.to == "jdbc":
        options = _jdbc_options(config)
        return lambda batch, name: _write_jdbc(batch, name, options)
    _check_kafka(context.spark)
    return lambda batch, _: _write_kafka(batch, config)


def _jdbc_options(config: MigrateConfig) -> dict[str, str]:
    password = None
    if config.password_env is not None:
        password = os.environ.get(config.password_env)
        if password is None:
            raise ConfigError(f"migrate.password_env: there is no environment variable {config.password_env}")
    found = {
        "url": config.url,
        "dbtable": config.table,
        "driver": config.driver,
        "user": config.user,
        "password": password,
    }
    return {name: value for name, value in found.items() if value is not None}


def _write_jdbc(batch: DataFrame, name: str, options: dict[str, str]) -> int:
    from pyspark.sql import functions as F  # noqa: N812

    if _has_batch(batch.sparkSession, name, options):
        return 0
    # Each partition is a transaction of its own, so there must be one.
    rows = batch.withColumn(BATCH_COLUMN, F.lit(name)).coalesce(1).persist()
    try:
        # Some databases map text to CLOB, which cannot be compared.
        writer = (
            rows.write.format("jdbc")
            .options(**options)
            .option("createTableColumnTypes", f"{BATCH_COLUMN} VARCHAR(255)")
        )
        writer.mode("append").save()
        return rows.count()
    finally:
        rows.unpersist()


def _has_batch(spark: SparkSession, name: str, options: dict[str, str]) -> bool:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it has no types
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812

    try:
        table = spark.read.format("jdbc").options(**options).load()
    except (PySparkException, Py4JJavaError):
        # There is no such table yet. If it is another error, the write raises it too.
        return False
    if BATCH_COLUMN not in table.columns:
        raise ConfigError(
            f"migrate.table {options['dbtable']} has no column {BATCH_COLUMN}: it was not made by this job"
        )
    return table.where(F.col(BATCH_COLUMN) == name).limit(1).count() > 0


def _check_kafka(spark: SparkSession) -> None:
    java: Any = spark._jvm  # noqa: SLF001
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(_KAFKA.replace(".", "/") + ".class") is None:
        raise ConfigError(
            f"migrate.to kafka: Spark has no connector for it; give its jar, with "
            f'spark.jars.packages = "org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"'
        )


def _write_kafka(batch: DataFrame, config: MigrateConfig) -> int:
    from pyspark.sql import functions as F  # noqa: N812

    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
            for name in ("label", "correlation_text", "dest_format_name")
        )
    )
    rows = batch.select(F.col("msg_id_text").alias("key"), F.col("body").alias("value"), headers.alias("headers"))
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", config.servers or "")
    writer.option("topic", config.topic or "").option("includeHeaders", "true").save()
    return batch.count()


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
