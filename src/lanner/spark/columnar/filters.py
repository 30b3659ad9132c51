"""Conditions that the queue manager evaluates: on numbers, times, names and identifiers.

In JSON a condition is [column, operator, value]; all conditions of a list must hold. The operators
are =, <, <=, >, >= and `in`, whose value is a list. Times are microseconds since 1970. A null meets
no condition. Conditions on other columns are refused: the client must filter the rows itself.

    seq           bounds of the range, so nothing outside is read
    queue, ...    the same for all messages of a queue: all of it or nothing
    arrived_time  a lower bound also limits the range, if the queue manager has recorded when
                  numbers were issued
    others        rows are decoded, and those that do not match are not sent
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lanner.model.errors import InvalidParameter
from lanner.spark.columnar.packet_source import Place
from lanner.spark.columnar.schema import BY_NAME, TIMESTAMP

__all__ = ["COMPARED", "OPERATORS", "Filter", "Filters"]

OPERATORS: Final = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_ALL: Final = (*OPERATORS, "in")
_SAME: Final = ("=", "in")
# The columns that conditions may use, with their operators.
COMPARED: Final[dict[str, tuple[str, ...]]] = {
    "seq": _ALL,
    "queue": _SAME,
    "queue_kind": _SAME,
    "sent_time": _ALL,
    "arrived_time": _ALL,
    "label": _SAME,
    "msg_id_text": _SAME,
    "correlation_text": _SAME,
    "priority": _ALL,
    "class": _ALL,
}
_PLACES: Final = ("queue", "queue_kind")
# Not in the specification: values of one `in`, and conditions of one request.
MAX_VALUES: Final = 1000
MAX_FILTERS: Final = 100


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition."""

    column: str
    operator: str
    value: int | str | tuple[int | str, ...]

    @classmethod
    def of(cls, given: object) -> Filter:
        """Parse the JSON form. Raises InvalidParameter if it is invalid."""
        if not isinstance(given, list) or len(given) != 3:
            raise InvalidParameter(f"where: [column, operator, value] expected, not {str(given)[:100]}")
        column, operator, value = given
        if not isinstance(column, str) or column not in COMPARED:
            raise InvalidParameter(f"where: {str(column)[:100]!r}: one of {', '.join(COMPARED)} expected")
        if operator not in COMPARED[column]:
            raise InvalidParameter(f"where: {column} {str(operator)[:20]}: {', '.join(COMPARED[column])} expected")
        values = tuple(value) if operator == "in" and isinstance(value, list) else (value,)
        kind = str if pa.types.is_string(BY_NAME[column].type) else int
        if len(values) > MAX_VALUES or not all(type(one) is kind for one in values):
            raise InvalidParameter(f"where: {column} {operator}: {kind.__name__} expected, at most {MAX_VALUES}")
        if kind is int and not all(-(1 << 62) < one < 1 << 62 for one in values):
            raise InvalidParameter(f"where: {column} {operator}: a number below 2 to the power of 62 expected")
        return cls(column, operator, values if operator == "in" else values[0])

    def to_json(self) -> list[object]:
        return [self.column, self.operator, list(self.value) if isinstance(self.value, tuple) else self.value]

    def bounds(self) -> tuple[int | None, int | None]:
        """Return the least and the greatest matching number; None where there is no such bound."""
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        numbers = [int(one) for one in values]
        least, greatest = min(numbers, default=0), max(numbers, default=-1)
        return {
            "=": (least, least),
            "in": (least, greatest),
            "<": (None, greatest - 1),
            "<=": (None, greatest),
            ">": (least + 1, None),
            ">=": (least, None),
        }[self.operator]

    def mask(self, values: pa.Array) -> pa.Array:
        if isinstance(self.value, tuple):
            return pc.is_in(values, value_set=self._array(self.value, values.type))
        return OPERATORS[self.operator](values, self._array((self.value,), values.type)[0])

    @staticmethod
    def _array(values: Sequence[int | str], kind: pa.DataType) -> pa.Array:
        if kind == TIMESTAMP:
            return pa.array(values, pa.int64()).view(kind)
        # Compare as 64-bit integers: a number outside the range of the column's type then simply
        # matches nothing, and comparisons stay correct.
        return pa.array(values, pa.int64() if pa.types.is_integer(kind) else kind)


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that must all hold."""

    all: tuple[Filter, ...] = ()

    @classmethod
    def of(cls, given: object) -> Filters:
        """Parse the JSON form: a list of conditions, or None."""
        if given is None:
            return cls()
        if not isinstance(given, list) or len(given) > MAX_FILTERS:
            raise InvalidParameter(f"where: a list of at most {MAX_FILTERS} conditions expected")
        return cls(tuple(map(Filter.of, given)))

    def to_json(self) -> list[list[object]]:
        return [one.to_json() for one in self.all]

    def narrowed(self, after: int, upto: int) -> tuple[int, int]:
        """Return the part of a range whose numbers can meet all conditions on `seq`."""
        for one in self.all:
            if one.column == "seq":
                least, greatest = one.bounds()
                after = after if least is None else max(after, least - 1)
                upto = upto if greatest is None else min(upto, greatest)
        return after, max(after, upto)

    def arrived_from(self) -> int | None:
        """Return the lower bound of all conditions on `arrived_time` in microseconds, or None."""
        found = [one.bounds()[0] for one in self.all if one.column == "arrived_time"]
        return max((one for one in found if one is not None), default=None)

    def allow(self, place: Place) -> bool:
        """Return whether messages of a queue can meet the conditions on the queue."""
        return all(
            getattr(place, one.column) in (one.value if isinstance(one.value, tuple) else (one.value,))
            for one in self.all
            if one.column in _PLACES
        )

    @property
    def rest(self) -> tuple[Filter, ...]:
        """The conditions that must be evaluated for each row.

        A list of numbers limits the range, and not all numbers between them are in it.
        """
        bounds = [one for one in self.all if one.column == "seq" and one.operator != "in"]
        return tuple(one for one in self.all if one.column not in _PLACES and one not in bounds)
