"""The columns, and how they are chosen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lanner.errors import InvalidParameter
from lanner.spark.columnar.schema import BODIES, COLUMNS, CORE, SETTABLE, RowSchema


def test_names_are_there_once() -> None:
    names = [column.name for column in COLUMNS]
    assert len(names) == len(set(names))
    assert len(CORE) == 18
    assert not set(CORE) & set(BODIES)


def test_spark_would_make_the_same_arrow_schema() -> None:
    """Spark compares names, order, types and nullability of the first batch with its own."""
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    kinds = (types.StringType, types.BinaryType, types.IntegerType, types.LongType, types.BooleanType)
    by_ddl = {kind().simpleString(): kind() for kind in (*kinds, types.TimestampType)}
    for schema in (RowSchema(), RowSchema.select("core"), RowSchema.select("seq, first_in_xact, sent_time")):
        spark = types.StructType([types.StructField(column.name, by_ddl[column.ddl]) for column in schema.columns])
        assert to_arrow_schema(spark, timezone="UTC").equals(schema.arrow)
        assert schema.ddl == ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in spark)


def test_no_type_that_spark_refuses() -> None:
    for field in RowSchema().arrow:
        assert field.nullable
        assert not pa.types.is_unsigned_integer(field.type)
        assert not pa.types.is_large_binary(field.type)


def test_columns_come_in_the_order_asked_for() -> None:
    assert RowSchema.select("label, seq").names == ("label", "seq")
    assert RowSchema.select(["label", "seq"]).names == ("label", "seq")
    assert not RowSchema.select("all").has_packets
    assert RowSchema.select("packet").has_packets


def test_without_bodies() -> None:
    names = RowSchema.select("all", include_body=False).names
    assert not set(names) & set(BODIES)
    assert "body_size" in names


@pytest.mark.parametrize(
    ("columns", "include_body", "complaint"),
    [
        ("lable", True, "no column 'lable'; the nearest is 'label'"),
        ("", True, "no column ''"),
        ([], True, "at least one name"),
        ("seq,seq", True, "'seq' is there twice"),
        ("seq,body", False, "names 'body' and includeBody is false"),
    ],
)
def test_what_cannot_be_selected_is_reported(columns: str | list[str], include_body: bool, complaint: str) -> None:
    with pytest.raises(InvalidParameter, match=complaint):
        RowSchema.select(columns, include_body=include_body)


def test_what_a_writer_may_set() -> None:
    assert {"queue", "body", "label", "priority", "correlation_id"} <= set(SETTABLE)
    assert not {"seq", "lookup_id", "sent_time", "packet", "msg_id", "delivery"} & set(SETTABLE)


def test_the_guide_lists_every_column_as_it_is() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    rows = [
        f"| {column.name} | {column.ddl} | {'c' * (column.name in CORE)}{'w' * column.settable} | {column.text} |"
        for column in COLUMNS
    ]
    assert guide.endswith("\n".join(["| --- | --- | --- | --- |", *rows]) + "\n")
