"""Tables of Spark's catalog: CREATE TABLE ... USING msmq, and how their options are stored.

Spark 4.3 passes the options of such a table to a Python source when the table is created, but not
when it is read or written: neither OPTIONS nor TBLPROPERTIES. The catalog keeps the schema that the
source returned. So the options are written into the metadata of its first column, and come back
with the schema. A table with declared columns does not get its schema from the source, so it has no
options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lanner.model.errors import InvalidParameter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["is_created", "options_of", "table_schema", "tidied"]

# The key in the metadata of the first column.
_KEY: Final = "msmq.options"
# CREATE TABLE passes each of OPTIONS twice, once with this prefix.
_TWICE: Final = "option."
_WHAT_TO_DO: Final = (
    "Of a table whose columns are declared Spark 4.3 hands none on. Leave the columns out: CREATE TABLE t USING msmq "
    "OPTIONS (managers '...', queues '...'); or say them each time: SELECT ... FROM t WITH (queues = '...'), INSERT "
    "INTO t WITH (queue = '...')"
)


def tidied(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a source without those that Spark has added."""
    return {name: value for name, value in options.items() if not name.lower().startswith(_TWICE)}


def is_created(options: Mapping[str, str]) -> bool:
    """Return whether a table is being created with these options."""
    return "provider" in {name.lower() for name in options}


def table_schema(arrow: pa.Schema, options: Mapping[str, str], of_spark: frozenset[str]) -> StructType:
    """Return the schema of a new table, with its options. `of_spark` are those that Spark adds."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(arrow)
    own = {name: value for name, value in options.items() if name.lower() not in of_spark}
    schema.fields[0].metadata = {_KEY: json.dumps(own, sort_keys=True)}
    return schema


def options_of(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read or write: those of its table, if any, and the given ones.

    Raises InvalidParameter if there are none at all.
    """
    first = schema.fields[0].metadata or {} if schema.fields else {}
    kept: dict[str, str] = json.loads(first[_KEY]) if _KEY in first else {}
    # Views and tables have options for reads and writes.
    found = {name.lower(): value for name, value in kept.items()} | {
        name.lower(): value for name, value in given.items()
    }
    if not found:
        raise InvalidParameter(
            f"no options are given: queues says what is read, queue where messages go. {_WHAT_TO_DO}"
        )
    return found
