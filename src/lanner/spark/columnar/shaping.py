"""Filtering of decoded rows, and the column of decoded bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lanner.spark.columnar.filters import Filters
from lanner.spark.columnar.schema import BY_NAME, RowSchema
from lanner.spark.columnar.values import VALUE, BodyFormat

__all__ = ["Shape"]

_OF_BODIES: Final = ("body", "body_type")


@dataclass(frozen=True, slots=True)
class Shape:
    """The conditions on rows and the format of bodies, if there are any."""

    where: Filters
    body: BodyFormat | None = None

    @property
    def is_plain(self) -> bool:
        """Whether rows stay as they are decoded."""
        return not self.where.rest and self.body is None

    def schema(self, selected: RowSchema) -> RowSchema:
        """Return the columns that are sent."""
        if self.is_plain:
            return selected
        columns = selected.columns if self.body is None else (*selected.columns, self.body.column)
        # Filtering would undo run-end encoding.
        return replace(selected, columns=columns, is_compact=False)

    def read_with(self, selected: RowSchema) -> RowSchema:
        """Return the columns to decode: the selected, and those conditions and values need."""
        needed = [one.column for one in self.where.rest] + list(_OF_BODIES if self.body is not None else ())
        more = dict.fromkeys(name for name in needed if name not in selected.names)
        return replace(selected, columns=(*selected.columns, *(BY_NAME[name] for name in more)), is_compact=False)

    def applied(self, batches: Iterable[pa.RecordBatch], selected: RowSchema) -> Iterator[pa.RecordBatch]:
        """Yield batches, made with `read_with`, in the form that is sent. Some may be empty."""
        sent = self.schema(selected)
        for batch in batches:
            chosen = self._chosen(batch)
            columns = [
                self.body.values(chosen.column("body"), chosen.column("body_type"))
                if name == VALUE and self.body is not None
                else chosen.column(name)
                for name in sent.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=sent.arrow)

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        mask = None
        for one in self.where.rest:
            found = one.mask(batch.column(one.column))
            mask = found if mask is None else pc.and_(mask, found)
        return batch if mask is None else batch.filter(mask)
