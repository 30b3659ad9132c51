"""Registration of format("msmq") with Spark.

Spark imports every package named `pyspark_*` and takes its `DefaultSource`. An import that failed
here would also hide the sources of all other packages, so a missing dependency is reported when the
format is used.
"""

from __future__ import annotations

from collections.abc import MutableMapping

__all__ = ["DefaultSource"]

try:
    from lanner.spark.source.data_source import MsmqDataSource as DefaultSource
except Exception as error:  # noqa: BLE001 (told below)
    _REASON = f"{type(error).__name__}: {error}"
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:
        # No Spark, or one that knows no sources in Python.
        pass
    else:

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """A substitute for the source, which raises the reason why it cannot be imported."""

            def __init__(self, options: MutableMapping[str, str]) -> None:
                del options
                raise ImportError(
                    f'format("msmq") needs pyspark 4.2 or newer and the packages of the extra lanner[spark]: {_REASON}'
                )

            @classmethod
            def name(cls) -> str:
                return "msmq"
