"""Expand run-end encoded columns for consumers that need one value per row."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lanner.spark.columnar.vectors import Values, whole


class Expansion:
    """Expands the batches of one stream.

    It keeps expanded columns, because constant values rarely change between batches.
    """

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._made: dict[int, tuple[pa.Scalar, pa.Array]] = {}  # by column: the constant value, and its array

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same batch without run-end encoding."""
        if self._schema is None:
            self._schema = plain(batch.schema)
        return self.batch(map(_lean, batch.columns), len(batch), self._schema)

    def batch(self, columns: Iterable[Values], count: int, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [
            self._whole(place, values, count) if isinstance(values, pa.Scalar) else values
            for place, values in enumerate(columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _whole(self, place: int, value: pa.Scalar, count: int) -> pa.Array:
        known, array = self._made.get(place, (None, None))
        if array is None or len(array) < count or not value.equals(known):
            array = whole(value, count)
            self._made[place] = (value, array)
        return array if len(array) == count else array[:count]


def _lean(column: pa.Array) -> Values:
    if not isinstance(column, pa.RunEndEncodedArray):
        return column
    if len(column.values) == 1:
        return column.values[0]
    # Imported here: it takes 20 ms, and planning does not need it.
    import pyarrow.compute as pc

    return pc.run_end_decode(column)


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without run-end encoding."""
    kinds = (field.type.value_type if pa.types.is_run_end_encoded(field.type) else field.type for field in schema)
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])
