"""Translates conditions of Spark for queue managers (`columnar.filters`)."""

from __future__ import annotations

import datetime as dt
from typing import Final

from pyspark.sql import datasource as spark

from lanner.model.errors import InvalidParameter
from lanner.spark.columnar.filters import Filter

__all__ = ["pushed"]

_OPERATORS: Final[dict[type[spark.Filter], str]] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.In: "in",
}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def pushed(given: spark.Filter) -> Filter | None:
    """Return the same condition, or None if only Spark can evaluate it."""
    operator = _OPERATORS.get(type(given))
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if operator is None or len(attribute) != 1:
        return None
    value = given.value  # type: ignore[attr-defined] # all of these have it
    try:
        # A value that no row can have, such as null, raises here.
        return Filter.of([attribute[0], operator, list(map(_plain, value)) if operator == "in" else _plain(value)])
    except InvalidParameter:
        return None


def _plain(value: object) -> object:
    """Return a time in microseconds. A time without a zone is refused, as None."""
    if not isinstance(value, dt.datetime):
        return value
    return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
