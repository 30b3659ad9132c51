"""How tests start Spark: on loopback alone, with this very Python, small."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPARK_ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    "LANNER_PASSWORD": "secret",
}
SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # What runs for seconds is not worth the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
# For what starts a Spark of its own and knows nothing of tests: examples, benchmarks.
SUBMIT_ENVIRONMENT = {
    "PYSPARK_SUBMIT_ARGS": shlex.join(
        [*(part for name, value in SPARK_SETTINGS.items() for part in ("--conf", f"{name}={value}")), "pyspark-shell"]
    )
}


def pickled(value: object) -> bytes:
    """Pickle a value as Spark does."""
    from pyspark import cloudpickle

    content: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call] # it has no types
    return content
