"""The column `value`: the contents of a body, decoded to the requested type.

`lanner.wire.body_values` decodes bodies, as for `message.value`, and describes the results for XML,
JSON and the types of COM. Without a schema a value is JSON text (`client.bodies.json_value`). With
a schema it has that type: a single one, or columns as in `a bigint, b array<string>`. A value that
is missing in the body, or does not fit its type, is null. It never fails a query.

    auto     as `message.value`: by the body type, and without one XML or bytes
    json     text that is JSON
    xml      the output of XmlSerializer
    variant  the output of COM: numbers, dates, currency, text, arrays, by the body type
    text     text: by the body type, or without one if it is UTF-8
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from types import ModuleType
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lanner.model.errors import InvalidParameter
from lanner.spark.columnar.rows import clean
from lanner.spark.columnar.schema import BIGINT, BINARY, BOOLEAN, INT, STRING, TIMESTAMP, Column
from lanner.wire.body_values import BodyKind, Value, decode_body

__all__ = ["FORMATS", "VALUE", "BodyFormat", "parse_type"]

FORMATS: Final = ("none", "auto", "json", "xml", "variant", "text")
VALUE: Final = "value"
_SIMPLE: Final = {
    "string": STRING,
    "binary": BINARY,
    "int": INT,
    "integer": INT,
    "bigint": BIGINT,
    "long": BIGINT,
    "double": pa.float64(),
    "boolean": BOOLEAN,
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
}
_TOKEN: Final = re.compile(r"\s*+(`[^`]+`|\w+|[<>(),:])")
# Not in the specification: characters of a schema, and its depth.
_MAX_SCHEMA, _MAX_DEPTH = 20_000, 20
# Digits of a precision or a scale.
_MAX_DIGITS: Final = 2
# Digits of the largest 64-bit integer.
_INTEGER_DIGITS: Final = 19
_EMPTY: Final = object()


class _Parser:
    """A parser of types in Spark's notation."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > _MAX_SCHEMA:
            raise self._wrong()
        # Tokens are matched one by one, so the time is linear in the length of the text.
        self._tokens: list[str] = []
        end = 0
        while found := _TOKEN.match(text, end):
            self._tokens.append(found[1])
            end = found.end()
        if text[end:].strip():
            raise self._wrong()
        self._at = 0

    def _wrong(self) -> InvalidParameter:
        return InvalidParameter(
            f"bodySchema {self._text[:100]!r}: a type, or columns such as `id bigint, items array<struct<name: "
            "string, price: decimal(10,2)>>`, expected"
        )

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise self._wrong()
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._wrong()

    def whole(self) -> pa.DataType:
        # Two words without a bracket between them are a name and its type.
        first, second = (*self._tokens, "", "")[:2]
        found = self._fields(0, "") if second and second not in "<(" and first else self._type(0)
        if self._peek():
            raise self._wrong()
        return found

    def _type(self, depth: int) -> pa.DataType:
        word = self._next().lower()
        if depth > _MAX_DEPTH:
            raise self._wrong()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word == "decimal":
            self._expect("(")
            precision = self._number()
            self._expect(",")
            scale = self._number()
            self._expect(")")
            if not 1 <= precision <= 38 or scale > precision:
                raise self._wrong()
            return pa.decimal128(precision, scale)
        if word not in ("array", "struct"):
            raise self._wrong()
        self._expect("<")
        found = pa.list_(self._type(depth + 1)) if word == "array" else self._fields(depth + 1, ">")
        self._expect(">")
        return found

    def _number(self) -> int:
        token = self._next()
        if not token.isascii() or not token.isdigit() or len(token) > _MAX_DIGITS:
            raise self._wrong()
        return int(token)

    def _fields(self, depth: int, end: str) -> pa.StructType:
        fields = []
        while True:
            name = self._next().strip("`")
            if self._peek() == ":":
                self._next()
            fields.append(pa.field(name, self._type(depth)))
            if self._peek() == end:
                break
            self._expect(",")
        if len({field.name for field in fields}) != len(fields):
            raise self._wrong()
        return pa.struct(fields)


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type for a type in Spark's notation. Raises InvalidParameter if invalid."""
    return _Parser(text).whole()


def _bodies() -> ModuleType:
    # Imported with the first body: it imports the client and LMDB, and planning needs neither.
    from lanner.client import bodies

    return bodies


@dataclass(frozen=True)
class BodyFormat:
    """The expected format of bodies, and the type of their values."""

    name: str
    schema: str | None = None

    @classmethod
    def of(cls, name: str | None, schema: str | None) -> BodyFormat | None:
        """Return the format, or None for no column. Raises InvalidParameter if it is invalid."""
        if (name or "none") == "none":
            if schema is not None:
                raise InvalidParameter("bodySchema needs bodyFormat, which says how bodies are decoded")
            return None
        if name not in FORMATS:
            raise InvalidParameter(f"bodyFormat {str(name)[:50]!r}: one of {', '.join(FORMATS)} expected")
        found = cls(str(name), schema)
        _ = found.type
        return found

    @cached_property
    def type(self) -> pa.DataType:
        return STRING if self.schema is None else parse_type(self.schema)

    @property
    def column(self) -> Column:
        return Column(VALUE, self.type, "content", settable=False, text="what the body holds")

    def values(self, bodies: pa.Array, body_types: pa.Array) -> pa.Array:
        """Return the value of each body."""
        if self.name == "json" and self.schema is not None:
            found = self._json_at_once(bodies, body_types)
            if found is not None:
                return found
        if self.name == "text" and self.schema is None:
            found = _untyped_text(bodies, body_types)
            if found is not None:
                return found
        # Equal bodies are decoded once.
        pairs: dict[tuple[bytes, int], object] = {}
        rows = []
        for body, kind in zip(bodies.to_pylist(), body_types.to_pylist(), strict=True):
            key = (body or b"", kind or 0)
            value = pairs.get(key, _EMPTY)
            if value is _EMPTY:
                value = pairs[key] = None if body is None else self._one(*key)
            rows.append(value)
        return pa.array(rows, self.type)

    def _json_at_once(self, bodies: pa.Array, body_types: pa.Array) -> pa.Array | None:
        """Return the values of JSON objects in UTF-8, parsed by Arrow; None if there are others."""
        if not pa.types.is_struct(self.type) or pc.any(pc.not_equal(body_types, 0)).as_py() or bodies.null_count:
            return None
        given = bodies.to_pylist()
        lines = b"\n".join(given)
        # Bodies of this form cannot merge across lines. After a complete value, only a comma or a
        # bracket continues an open one, and no text continues after the end of a line. So each body
        # gives at least one row, and if the number of rows is right, each gives exactly one. A NUL
        # would end the text for the parser.
        if b"\0" in lines or not all(one.startswith(b"{") and one.endswith(b"}") for one in given):
            return None
        options = pj.ParseOptions(explicit_schema=pa.schema(list(self.type)), unexpected_field_behavior="ignore")
        try:
            table = pj.read_json(io.BytesIO(lines), parse_options=options)
        except (pa.ArrowException, ValueError):
            return None
        if table.num_rows != len(bodies):
            return None
        struct = table.to_struct_array()
        return struct.combine_chunks() if isinstance(struct, pa.ChunkedArray) else struct

    def _one(self, body: bytes, body_type: int) -> object:
        try:
            value = self._decoded(body, body_type)
            if value is _EMPTY:
                return None
            if self.schema is not None:
                return fitted(value, self.type)
            shown = _bodies().json_value(cast("Value", value))
            return clean(shown if self.name == "text" else json.dumps(shown, ensure_ascii=False))
        except RecursionError:
            # Nested too deep: a value that cannot be read, like any other.
            return None

    def _decoded(self, body: bytes, body_type: int) -> object:
        if self.name in ("text", "json"):
            text = _bodies().text_of(body, body_type)
            if text is None or self.name == "text":
                return _EMPTY if text is None else text
            return _parsed(text)
        found = decode_body(body, body_type)
        if self.name == "xml":
            return found.value if found.kind is BodyKind.XML else _EMPTY
        if self.name == "variant":
            return _EMPTY if body_type == 0 or found.reason is not None or found.kind is BodyKind.XML else found.value
        return found.value


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return _EMPTY


def _untyped_text(bodies: pa.Array, body_types: pa.Array) -> pa.Array | None:
    """Return untyped bodies as text if all are printable ASCII, else None."""
    if pc.any(pc.not_equal(body_types, 0)).as_py():
        return None
    try:
        found = bodies.cast(STRING)
    except pa.ArrowInvalid:
        return None
    return found if pc.all(pc.match_substring_regex(found, r"^[\x20-\x7e\t\r\n]*$")).as_py() in (True, None) else None


def fitted(value: Any, kind: pa.DataType) -> object:  # noqa: ANN401 (any JSON)
    """Return a value converted to a type, or None if it does not fit."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return None
        return {field.name: fitted(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [fitted(one, kind.value_type) for one in value] if isinstance(value, list) else None
    try:
        # Values that Arrow would convert differently, or that would fail a whole batch.
        return pa.scalar(_plain(value, kind), kind).as_py()
    except (pa.ArrowException, ValueError, TypeError, LookupError, ArithmeticError):
        return None


def _plain(value: Any, kind: pa.DataType) -> object:  # noqa: ANN401 (any JSON)
    made: dict[pa.DataType, Callable[[Any], object]] = {
        BINARY: lambda one: one if isinstance(one, bytes) else str(one).encode(),
        BOOLEAN: lambda one: {"true": True, "false": False}[str(one).lower()],
        INT: _integer,
        BIGINT: _integer,
        pa.float64(): float,
        TIMESTAMP: _moment,
        pa.date32(): lambda one: _moment(one).date(),
    }
    if kind == STRING:
        shown = _bodies().json_value(value)
        return clean(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))
    if pa.types.is_decimal(kind):
        exact = Decimal(str(value))
        return exact.quantize(Decimal(1).scaleb(-kind.scale))
    return made[kind](value)


def _integer(value: Any) -> int:  # noqa: ANN401 (any JSON)
    exact = Decimal(str(int(value) if isinstance(value, bool) else value))
    # `int` would compute all digits of 1e999999999, and hold up every other thread meanwhile.
    if exact.adjusted() >= _INTEGER_DIGITS:
        raise ValueError("too large")
    if exact != exact.to_integral_value():
        raise ValueError("a fraction")
    return int(exact)


def _moment(value: Any) -> dt.datetime:  # noqa: ANN401 (any JSON)
    found = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    # A timestamp without a zone counts as UTC, like all others in a row.
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found
