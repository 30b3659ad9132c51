"""Tables of Spark's catalog: CREATE TABLE ... USING msmq, and how their options are stored.

Spark 4.3 passes the options of such a table to a Python source when the table is created, but not
when it is read or written: neither OPTIONS nor TBLPROPERTIES. The catalog keeps the schema that the
source returned. So the options are written into the metadata of its first column, and come back
with the schema. A table with declared columns does not get its schema from the source, so it has no
options.

INSERT INTO writes all columns of a table. Those that the statement does not name are null, also
those that no writer can set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lanner.model.errors import InvalidParameter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["is_created", "left_out", "options_of", "table_schema", "tidied", "without"]

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


def left_out(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a table that are not written, so that they must be null.

    Of two columns that say the same, it is the second one. All columns of other rows are written.
    """
    from lanner.spark.columnar.encode import SAME
    from lanner.spark.columnar.schema import SETTABLE
    from lanner.spark.source.spreading import PLACE

    names = schema.fieldNames()
    if not names or _KEY not in (schema.fields[0].metadata or {}):
        return ()
    doubled = {second for first, second in SAME if first in names}
    return tuple(name for name in names if (name not in SETTABLE and name != PLACE) or name in doubled)


def without(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the other columns of a batch. Raises InvalidParameter if one of these has a value."""
    for name in names:
        if batch.column(name).null_count < len(batch):
            raise InvalidParameter(
                f"column {name!r} cannot be written to this table: leave it out, as in INSERT INTO t (label, body)"
            )
    return batch.drop_columns(list(names)) if names else batch


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
