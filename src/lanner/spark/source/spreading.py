"""The choice of a queue manager for each row of a write, if there are several.

The column `qm_name` names the queue manager. Rows without a name are distributed by a checksum of
label and body, not by task or order: a batch that is repeated after a crash may be cut into other
tasks, and each row must go to the same queue manager again, which recognizes the repetition.
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
    """Return the columns of a schema that are sent to a queue manager."""
    return pa.schema([field for field in schema if field.name != PLACE])


def spread(
    batch: pa.RecordBatch, count: int, names: Callable[[], Mapping[str, int]], first: int = 0
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield indexes of queue managers, below `count`, each with its rows in order.

    `names` returns the indexes by computer name in upper case. Raises InvalidParameter for an
    unknown name; `first` is the number of the first row, for the message.
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
                    f"row {first + row}: qm_name {name!r} is none of the queue managers of the option managers: "
                    f"{', '.join(known)}"
                )
            places[row] = place
    for place in np.unique(places).tolist():
        yield place, sent.take(pa.array(np.flatnonzero(places == place)))
