"""compact: merges small files into large ones, and deletes old days.

If a day of a queue manager in `messages` or `events` has more than `compact.files` files, it is
rewritten, with each message once for each queue it was seen in and each event once. Then its old
files are deleted. Batches that `lifecycle` has not read yet are left as they are. A killed job
leaves duplicate rows, which do not affect other jobs and which the next run removes. Days before
`compact.keep_days` are deleted. `ingest` may run at the same time, because only files that were
read are deleted. Do not run it while another job reads the tables.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from lanner.spark.jobs.config import ConfigError
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.state import consumed
from lanner.spark.jobs.tables import EVENTS, KEY, MESSAGES, PARTITIONS, each_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "compact"


def latest(rows: DataFrame) -> DataFrame:
    """Return each message as it was last seen in each queue, and each unreadable packet once."""
    order = (F.desc("abort_count"), F.desc("move_count"), F.desc("seq"))
    place = F.row_number().over(Window.partitionBy(*KEY, F.sha2("packet", 256), "packet_error").orderBy(*order))
    return rows.withColumn("_place", place).where("_place = 1").drop("_place")


# The tables, and the functions that remove their duplicates.
_ONCE: Final = {MESSAGES: latest, EVENTS: each_once}


def run(context: Context, today: dt.date | None = None) -> Result:
    lake, config = context.lake, context.config.compact
    if lake.format != "parquet":
        raise ConfigError(
            f'compact is for format = "parquet"; tables of {lake.format} have their own ways, such as '
            "DeltaTable(...).optimize.compact() and .vacuum()"
        )
    lake.read(MESSAGES)  # raises NoTable if it does not exist
    today = today or dt.datetime.now(dt.UTC).date()
    deleted = 0
    if config.keep_days is not None:
        oldest = today - dt.timedelta(days=config.keep_days)
        for path in (path for table in _ONCE for path in lake.files(table, "date=*")):
            if _value(path, "date") < oldest.isoformat():
                lake.delete(path)
                context.progress.say(f"{path} is older than {config.keep_days} days: deleted")
                deleted += 1
    return {"rewritten": sum(_rewritten(context, table) for table in _ONCE), "deleted": deleted}


def _rewritten(context: Context, table: str) -> int:
    """Rewrite the days of a table that have too many files; return their number.

    Batches that `lifecycle` has not read yet keep their names, by which it finds them.
    """
    lake = context.lake
    seen = consumed(lake)
    files: dict[str, list[str]] = {}
    for path in lake.files(table, "date=*/qm_name=*/batch=*/*.parquet"):
        stream, _, number = _value(path, "batch").rpartition("-")
        if seen is not None and stream != NAME and int(number) > seen[table].get(stream, -1):
            continue
        files.setdefault(path.rpartition("/batch=")[0], []).append(path)
    many = [(place, found) for place, found in sorted(files.items()) if len(found) > context.config.compact.files]
    for place, found in many:
        # Files that are added from now on are neither read nor deleted.
        batches = {path.rpartition("/")[0] for path in found}
        day, name = _value(place, "date"), _value(place, "qm_name")
        is_found = F.col("batch").isin(sorted(_value(path, "batch") for path in batches))
        rows = _ONCE[table](lake.read(table).where((F.col("date") == day) & (F.col("qm_name") == name) & is_found))
        rows = rows.withColumn("batch", F.lit(f"{NAME}-{uuid.uuid4().hex}"))
        writer = rows.repartition(1).sortWithinPartitions("queue", "seq").write.mode("append")
        writer.partitionBy(*PARTITIONS).parquet(lake.path(table))
        for batch in batches:
            lake.delete(batch)
        context.progress.say(f"{table}, {name}, {day}: {len(found)} files were rewritten")
    return len(many)


def _value(path: str, name: str) -> str:
    """Return the value in a part of a path: date=2026-03-02."""
    return unquote(path.rpartition(f"/{name}=")[2].partition("/")[0])


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
