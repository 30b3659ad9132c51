"""Which queue manager each row of a write goes to, if there are several.

A column `qm_name` names it. Other rows are spread by a checksum of label and body, and not by task
or order: a batch that is done again after a crash may be cut into other tasks, and each row must
come to the same queue manager again, which then knows that it has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from lanner.model.errors import InvalidParameter
from lanner.store.checksum import crc32

__all__ = ["PLACE", "spread", "without_place"]

PLACE: Final = "qm_name"


def without_place(schema: pa.Schema) -> pa.Schema:
    """Return what a queue manager is sent of rows with these columns."""
    return pa.schema([field for field in schema if field.name != PLACE])


def spread(
    batch: pa.RecordBatch, count: int, names: Callable[[], Mapping[str, int]], first: int = 0
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield numbers of queue managers, of which there are `count`, and the rows that go there, in their order.

    `names` returns the numbers by computer name in capitals. InvalidParameter for a name that is
    none of them; `first` is the number of the first row, for its text.
    """
    sent = batch.select(without_place(batch.schema).names)
    if count == 1 and PLACE not in batch.schema.names:
        yield 0, sent
        return
    bodies = sent.column("body").cast(pa.binary()).to_pylist()
    has_labels = "label" in sent.schema.names
    labels = sent.column("label").cast(pa.binary()).to_pylist() if has_labels else [None] * len(bodies)
    sums = [crc32(body or b"", crc32(label or b"")) for body, label in zip(bodies, labels, strict=True)]
    places = np.array(sums, np.int64) % count
    if PLACE in batch.schema.names:
        known = names()
        for row, name in enumerate(batch.column(PLACE).to_pylist()):
            if name is None:
                continue
            place = known.get(name.upper())
            if place is None:
                raise InvalidParameter(
                    f"row {first + row}: qm_name {name!r} is none of the queue managers of the option managers: {', '.join(known)}"
                )
            places[row] = place
    for place in np.unique(places).tolist():
        yield place, sent.take(pa.array(np.flatnonzero(places == place)))
