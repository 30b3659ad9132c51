"""The program or formatter that wrote a body, guessed from its type and first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column


def formatter() -> Column:
    """Return what wrote the body of a row of `tables.observations`."""
    kind, start = F.col("body_type"), F.hex("body_start")
    text = F.substring(start, 1, 2)
    return (
        F.when(F.col("body_size") == 0, "empty")
        .when(kind == 8, "text (VT_BSTR)")
        .when(kind == 31, "text (VT_LPWSTR)")
        .when(kind == 30, "text (VT_LPSTR)")
        .when((kind == 768) | start.startswith("0001000000FFFFFFFF"), ".NET binary")
        .when((kind == 0) & text.isin("3C", "EF"), F.when(F.col("has_extension"), "XML with headers").otherwise("XML"))
        .when(kind == 0, "bytes")
        .otherwise(F.concat(F.lit("VARIANT "), kind.cast("string")))
    )
