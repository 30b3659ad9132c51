"""The fallback of every packet source: messages that come one by one, collected into batches."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from lanner.spark.columnar import packet_source
from lanner.spark.columnar.decode import batches
from lanner.spark.columnar.packet_source import PacketBatch, Place, StoredPacket, first_batch, one_by_one
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.columnar.vectors import Room, Scratch
from tests.wire.samples import make

MESSAGES = [StoredPacket(number, 100 + number, 7, 1, 2, make(body=b"x" * number)) for number in range(1, 8)]


class Source:
    place = Place("id", "ALPHA", "q")

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        return one_by_one(MESSAGES, room)


@pytest.mark.parametrize(("rows", "size", "expected"), [(3, 1 << 20, [3, 3, 1]), (7, 1 << 20, [7]), (100, 1, [1] * 7)])
def test_batches_keep_to_their_limits_and_lose_nothing(
    monkeypatch: pytest.MonkeyPatch, rows: int, size: int, expected: list[int]
) -> None:
    monkeypatch.setattr(packet_source, "BATCH_ROWS", rows)
    monkeypatch.setattr(packet_source, "BATCH_BYTES", size)
    # The memory is used again, so each batch is read before the next one.
    found = [list(batch.rows()) for batch in one_by_one(MESSAGES, Scratch())]
    assert [len(batch) for batch in found] == expected
    assert [message for batch in found for message in batch] == MESSAGES


def test_no_messages_are_no_batch() -> None:
    assert list(one_by_one([], Scratch())) == []
    assert len(first_batch([], Scratch()).packets) == 0


@pytest.mark.parametrize("is_compact", [False, True])
def test_a_source_becomes_arrow_batches(monkeypatch: pytest.MonkeyPatch, is_compact: bool) -> None:
    monkeypatch.setattr(packet_source, "BATCH_ROWS", 4)
    schema = RowSchema(is_compact=is_compact)
    found = list(batches(Source(), schema))
    assert [len(batch) for batch in found] == [4, 3]
    assert all(batch.schema == schema.arrow for batch in found)
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [(row["seq"], row["qm_name"], row["body"]) for row in rows] == [
        (message.seq, "ALPHA", b"x" * message.seq) for message in MESSAGES
    ]
