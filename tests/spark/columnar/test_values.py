"""The column `value`: the table of known bodies, as JSON and in types, and hostile ones."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lanner.client.bodies import json_value
from lanner.model.errors import InvalidParameter
from lanner.spark.columnar.values import BodyFormat, fitted, parse_type
from lanner.wire.body_values import BodyKind, decode_body
from tests.data.body_values import BODIES, BROKEN, XML, Broken, Sample


def values(form: str, bodies: list[tuple[bytes | None, int]], schema: str | None = None) -> list[object]:
    made = BodyFormat.of(form, schema)
    assert made is not None
    array = made.values(pa.array([body for body, _ in bodies], pa.binary()), pa.array([kind for _, kind in bodies]))
    assert array.type == made.type
    found: list[object] = array.to_pylist()
    return found


def test_every_known_body_has_the_value_that_a_program_gets() -> None:
    """The same table as for `message.value`, all in one batch."""
    samples: list[Sample | Broken] = [*BODIES, *BROKEN]
    bodies: list[tuple[bytes | None, int]] = [(sample.body, sample.body_type) for sample in samples]
    found = values("auto", bodies)
    for (body, kind), value in zip(bodies, found, strict=True):
        decoded = decode_body(body or b"", kind)
        assert value is not None
        assert json.loads(str(value)) == json_value(decoded.value)
    typed = [
        (sample.body, sample.body_type)
        for sample in BODIES
        if sample.body_type and decode_body(sample.body, sample.body_type).reason is None
    ]
    assert None not in values("variant", typed)  # type: ignore[arg-type] # bytes are bytes
    assert set(values("variant", [(sample.body, sample.body_type) for sample in BROKEN])) == {None}
    xml = [(sample.body, sample.body_type) for sample in XML]
    assert values("xml", xml) == values("auto", xml)  # type: ignore[arg-type]
    others = [
        (one.body, one.body_type) for one in BODIES if decode_body(one.body, one.body_type).kind is not BodyKind.XML
    ]
    assert set(values("xml", others)) == {None}  # type: ignore[arg-type]


JSON = b'{"id": 7, "items": [{"name": "a", "price": 1.25}], "when": "2026-03-01T08:00:00Z", "more": 1}'
SCHEMA = "id bigint, items array<struct<name: string, price: decimal(10,2)>>, `when` timestamp, gone int"


def test_json_in_a_schema_by_arrow_and_one_by_one_is_the_same() -> None:
    """One body that is not JSON makes the batch take the slow path.

    The other bodies have the same values.
    """
    simple = "id bigint, more int, gone string"
    quick = values("json", [(JSON, 0)] * 3, simple)
    assert quick == [{"id": 7, "more": 1, "gone": None}] * 3
    assert values("json", [(JSON, 0), (b"{", 0), (b"\xff", 0), (None, 0), (JSON, 0)], simple) == [
        quick[0],
        None,
        None,
        None,
        quick[0],
    ]
    [row] = values("json", [(JSON, 0)], SCHEMA)
    assert isinstance(row, dict)
    assert (row["id"], str(row["items"][0]["price"]), row["when"].isoformat(), row["gone"]) == (
        7,
        "1.25",
        "2026-03-01T08:00:00+00:00",
        None,
    )
    assert values("json", [("[1, 2]".encode("utf-16-le"), 8)], "array<int>") == [[1, 2]]
    assert json.loads(str(values("json", [(JSON, 0)])[0])) == json.loads(JSON)


def test_text_is_text_only_where_it_is() -> None:
    bodies: list[tuple[bytes | None, int]] = [
        (b"plain", 0),
        ("täxt".encode("utf-16-le"), 31),
        (b"\x00\xff", 0),
        (b"*\x00\x00\x00", 3),
        (None, 0),
    ]
    assert values("text", bodies) == ["plain", "täxt", None, None, None]
    assert values("text", bodies[:1]) == ["plain"]
    assert values("text", [(b"a\x00b", 0)]) == [None]


def test_numbers_have_the_type_that_is_asked_for() -> None:
    number = (b"\x2a\x00\x00\x00", 3)
    for schema, expected in {"int": 42, "bigint": 42, "double": 42.0, "string": "42", "boolean": None}.items():
        assert values("variant", [number], schema) == [expected]
    assert fitted(1 << 40, pa.int32()) is None
    assert fitted("1.5", pa.int64()) is None
    assert fitted([1, "x"], pa.list_(pa.int32())) == [1, None]
    assert fitted({"a": 1}, pa.int32()) is None


@pytest.mark.parametrize("number", [b"1e999999999", b"-1e999999999", b"1e19", b"9" * 100_000, b"sNaN", b"Infinity"])
def test_a_number_of_many_digits_is_not_computed(number: bytes) -> None:
    """Computing the first of these takes days, during which no other thread runs."""
    assert values("json", [(b'{"id": "' + number + b'"}', 0)], "id bigint") == [{"id": None}]
    assert values("json", [(b'{"id": "' + number + b'"}', 0)], "id decimal(10,2)") == [{"id": None}]


@pytest.mark.parametrize("schema", [None, "a string", "a array<string>", "a binary"])
def test_a_body_that_is_nested_deep_or_has_half_a_character_ends_no_query(schema: str | None) -> None:
    bodies: list[tuple[bytes | None, int]] = [(b'{"a": "\\ud800"}', 0), (b'{"a": 1}', 0)]
    bodies += [(b'{"a":' + b"[" * depth + b"]" * depth + b"}", 0) for depth in range(100, 1500, 100)]
    found = values("json", bodies, schema)
    assert len(found) == len(bodies)
    if schema is None:
        assert found[:2] == ['{"a": "\ufffd"}', '{"a": 1}']
    if schema == "a string":
        assert found[:2] == [{"a": "\ufffd"}, {"a": "1"}]


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "array<", "array<int", "struct<>", "struct<a int", "decimal(50,2)", "a int b int", "a int,",
        "a int, a int", "int)", "in t; drop", "array<" * 40 + "int" + ">" * 40,
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="bodySchema"):
        parse_type(text)


def test_what_is_no_format_is_refused() -> None:
    assert BodyFormat.of(None, None) is None
    assert BodyFormat.of("none", None) is None
    with pytest.raises(InvalidParameter, match="one of"):
        BodyFormat.of("yaml", None)
    with pytest.raises(InvalidParameter, match="needs bodyFormat"):
        BodyFormat.of(None, "int")


@pytest.mark.parametrize(
    "bodies",
    [
        [b'{"a":1}{"a":2,"z":', b'{"a":5}', b'}{"a":9}'],
        [b'{"a":1}{"a":2,"z":{}', b'{"a":5}', b'{}}{"a":9}'],
        [b'{"a":1}{"a":2,"z":[{}', b'{"a":5}', b'{}]}{"a":9}'],
        [b'{"a":1}{"z":"}', b'{"a":5}', b'{"a":2}"}{"a":9}'],
        [b'{"a":1}{"a":66}\0}', b'{"a":5}'],
        [b'{"a":1}\n{"a":2}', b"", b'{"a":5}'],
        [b'{"a":1} {"a":2}', b"  ", b'{"a":5}'],
        [b'{"a":1}/*}', b'{"a":5}', b'{*/{"a":2}{"a":3}'],
    ],
)
def test_the_body_of_one_message_does_not_reach_into_another(bodies: list[bytes]) -> None:
    """Senders who do not know each other send to one queue."""
    form = BodyFormat.of("json", "struct<a: int>")
    assert form is not None
    alone = [form.values(pa.array([one], pa.binary()), pa.array([0])).to_pylist()[0] for one in bodies]
    found = form.values(pa.array(bodies, pa.binary()), pa.array([0] * len(bodies))).to_pylist()
    assert found == alone
    own = bodies.index(b'{"a":5}')
    assert found[own] == {"a": 5}
