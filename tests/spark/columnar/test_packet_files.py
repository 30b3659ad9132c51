"""Files of packets: they make round trips, and incomplete files are detected."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import InsufficientResources, QueueNotFound
from lanner.spark.columnar.packet_files import (
    Origin,
    PacketFileError,
    PacketReader,
    PacketWriter,
    Totals,
    export_packets,
    import_packets,
)
from lanner.spark.columnar.packet_source import Place, StoredPacket
from lanner.spark.columnar.schema import RowSchema
from tests.wire.samples import make


@pytest.fixture
def exported(qm: QueueManager, tmp_path: Path) -> Path:
    queue = qm.create_queue("q")
    for number in range(5):
        queue.send(Message(body=b"%d" % number, label=f"label {number}", priority=number, recoverable=True))
    queue.send(Message(body=b"express", app_specific=7))
    path = tmp_path / "q.packets"
    assert export_packets(qm, "q", path).messages == 6
    return path


def test_export_writes_what_is_there_and_leaves_it(qm: QueueManager, exported: Path) -> None:
    assert qm.open("q").count() == 6
    with PacketReader(exported) as reader:
        assert (reader.origin.place.queue_kind, reader.origin.epoch) == ("destination", runtime_of(qm).store.epoch)
        messages = list(reader)
    assert [message.seq for message in messages] == sorted(message.seq for message in messages)
    packets = {message.lookup_id: message.packet for message in qm.open("q")}
    assert {message.lookup_id: message.packet for message in messages} == packets
    assert not exported.with_name("q.packets.partial").exists()


def test_import_sends_copies_all_at_once_and_only_once(
    qm: QueueManager, exported: Path, start: Callable[..., QueueManager]
) -> None:
    beta = start("BETA", "beta")
    queue = beta.create_queue("copies")
    done: list[int] = []
    totals = import_packets(beta, exported, "copies", progress=done.append)
    assert totals is not None
    assert (totals.messages, done) == (6, [6])
    found = [(message.body_bytes, message.label, message.priority, message.recoverable) for message in queue]
    assert found == [
        (b"4", "label 4", 4, True),
        (b"3", "label 3", 3, True),
        (b"express", "", 3, True),
        (b"2", "label 2", 2, True),
        (b"1", "label 1", 1, True),
        (b"0", "label 0", 0, True),
    ]
    assert import_packets(beta, exported, "copies") is None
    assert queue.count() == 6
    assert beta.create_queue("others") is not None
    assert import_packets(beta, exported, "others") is not None


def test_an_import_that_fails_leaves_nothing_behind_and_can_be_repeated(qm: QueueManager, exported: Path) -> None:
    qm.create_queue("small", quota_kb=1)
    with pytest.raises(InsufficientResources, match="no room"):
        import_packets(qm, exported, "small")
    assert qm.open("small").count() == 0
    qm.open("small").set(quota=100)
    assert import_packets(qm, exported, "small") is not None
    assert qm.open("small").count() == 6


def test_a_file_of_packets_gives_batches(exported: Path) -> None:
    with PacketReader(exported) as reader:
        [batch] = reader.batches(RowSchema.select("seq, label, body, qm_name, queue"))
    rows = batch.to_pylist()
    assert [row["body"] for row in rows] == [b"0", b"1", b"2", b"3", b"4", b"express"]
    assert {(row["qm_name"], row["queue"]) for row in rows} == {("ALPHA", r"DIRECT=OS:ALPHA\private$\q")}


def test_an_empty_queue_is_a_file_without_messages(qm: QueueManager, tmp_path: Path) -> None:
    qm.create_queue("empty")
    path = tmp_path / "empty.packets"
    assert export_packets(qm, "empty", path) == Totals(0, 0)
    assert import_packets(qm, path, "empty") == Totals(0, 0)
    with PacketReader(path) as reader:
        assert list(reader.batches(RowSchema())) == []


def test_an_unknown_queue_leaves_no_file(qm: QueueManager, tmp_path: Path) -> None:
    with pytest.raises(QueueNotFound):
        export_packets(qm, "nowhere", tmp_path / "nowhere.packets")
    assert not list(tmp_path.glob("nowhere*"))


def test_a_writer_that_is_left_by_an_exception_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.packets"
    with pytest.raises(struct.error), PacketWriter(path, Origin(Place(), 1, 2)) as writer:
        writer.write(StoredPacket(-1, 2, 3, 4, 5, make()))
    assert not list(tmp_path.iterdir())


def test_every_truncation_and_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.packets"
    with PacketWriter(path, Origin(Place("id", "NAME", "queue"), 1, 2)) as writer:
        for number in range(2):
            writer.write(StoredPacket(number, 2, 3, 4, 5, make(body=b"x")))
    whole = path.read_bytes()
    header = whole.index(b"}") + 1

    def read() -> list[StoredPacket]:
        with PacketReader(path) as reader:
            return list(reader)

    assert [message.seq for message in read()] == [0, 1]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(PacketFileError, match=r"x\.packets, byte"):
            read()
    for place in [*range(16), *range(header, len(whole))]:
        changed = bytearray(whole)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        with pytest.raises(PacketFileError):
            read()
    path.write_bytes(whole + b"more")
    with pytest.raises(PacketFileError, match="too many"):
        read()


def test_a_file_with_a_broken_packet_is_not_imported(qm: QueueManager, tmp_path: Path) -> None:
    path = tmp_path / "x.packets"
    with PacketWriter(path, Origin(Place(), 1, 2)) as writer:
        writer.write(StoredPacket(1, 2, 3, 0, 0, make()))
        writer.write(StoredPacket(2, 2, 3, 0, 0, b"no packet"))
    qm.create_queue("q")
    with pytest.raises(PacketFileError, match="message 2 cannot be read"):
        import_packets(qm, path, "q")
    assert qm.open("q").count() == 0
