"""The generator: repeatable, readable packets, and a truth that fits what is in the queues."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.generated_queues import fill
from demo.generator import World, generate, read_truth
from lanner.client import QueueManager
from lanner.errors import LannerError
from lanner.spark.columnar.packet_files import PacketReader
from lanner.spark.columnar.schema import RowSchema
from lanner.transfer.tracing import parse_report
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message
from lanner.wire.reader import Reader


@pytest.fixture(scope="module")
def world() -> World:
    return generate(seed=3, orders=1500)


def test_the_same_seed_gives_the_same_world(world: World, tmp_path: Path) -> None:
    again = generate(seed=3, orders=1500)
    assert again.truth() == world.truth()
    assert again.sightings == world.sightings
    assert generate(seed=4, orders=1500).truth() != world.truth()
    world.write_truth(tmp_path / "truth.json")
    assert read_truth(tmp_path / "truth.json") == world.truth()


def test_every_packet_but_the_broken_ones_can_be_read(world: World) -> None:
    broken = 0
    for sighting in world.sightings:
        try:
            Message.unpack(sighting.packet)
        except LannerError:
            broken += 1
    assert broken == world.broken == 3


def test_what_there_is_to_find(world: World) -> None:
    fates = collections.Counter(message["fate"] for message in world.messages)
    assert fates["received"] > 1000
    assert {"waiting", "poison", "NACK_RECEIVE_TIMEOUT", "NACK_REACH_QUEUE_TIMEOUT", "NACK_QUEUE_EXCEED_QUOTA"} <= set(
        fates
    )
    formatters = {message["formatter"] for message in world.messages}
    assert formatters == {"bstr", "lpwstr", "lpstr", "i4", "xml", "binary", "headers", "empty"}
    kinds = {sighting.kind for sighting in world.sightings}
    assert kinds == {"journal", "destination", "report", "deadletter", "xact_deadletter", "subqueue"}
    assert world.aborted > 0
    assert {message["hops"] for message in world.messages} >= {0, 1, 2}
    asked = [m for m in world.messages if m["acknowledge"] & 3 and m["received"]]
    assert 0 < sum(not m["acks"] for m in asked) < len(asked) / 5, "some acknowledgments are lost"
    skews = [machine.skews for machine in world.machines]
    assert min(map(min, skews)) < -3500
    assert any(len(set(skew)) > 2 for skew in skews), "clocks drift"


def test_the_truth_fits_the_queues(world: World) -> None:
    ids = {message["msg_id"]: message for message in world.messages}
    assert len(ids) == len(world.messages)
    acks: collections.Counter[str] = collections.Counter()
    reports: collections.Counter[str] = collections.Counter()
    for sighting in world.sightings:
        if len(sighting.packet) < 64:
            continue
        message = Message(sighting.packet)
        if sighting.kind == "report":
            told = parse_report(message.label, message.body)
            assert told is not None
            reports[f"{told.source_queue_manager}\\{told.message_ordinal}"] += 1
        elif sighting.queue.endswith("acks"):
            acks[_identifier(message.correlation_identifier)] += 1
        else:
            assert str(message.identifier) in ids
    for identifier, about in ids.items():
        assert acks[identifier] == len(about["acks"])
        assert reports[identifier] == len(about["reports"])


def _identifier(raw: bytes) -> str:
    return str(MessageIdentifier.unpack(Reader(raw)))


def test_files_hold_everything_and_a_restored_machine_has_numbers_twice(world: World, tmp_path: Path) -> None:
    paths = world.write_files(tmp_path)
    rows = 0
    numbers: dict[int, set[int]] = {1: set(), 2: set()}
    for path in paths:
        with PacketReader(path) as reader:
            origin = reader.origin
            for batch in reader.batches(RowSchema.select("core")):
                rows += batch.num_rows
                if origin.place.qm_name == world.restored.name:
                    numbers[origin.epoch] |= set(batch.column("seq").to_pylist())
    kept = sum(s.machine is world.restored and s.time <= world.backup_at for s in world.sightings)
    assert rows == len(world.sightings) + kept
    assert numbers[2] == set(range(1, len(numbers[2]) + 1))
    assert len(numbers[1] & numbers[2]) > kept > 0, "numbers of before the crash come again for other messages"


def test_a_real_queue_manager_has_the_queues_of_a_machine(world: World, start: Callable[..., QueueManager]) -> None:
    machine = next(sighting.machine for sighting in world.sightings if sighting.subqueue)
    expected = collections.Counter(
        sighting.queue.lower()
        for sighting in world.sightings
        if sighting.machine is machine and len(sighting.packet) >= 64
    )
    qm = start(machine.name)
    assert fill(world, qm) == sum(expected.values())
    for queue, count in expected.items():
        assert qm.open(queue).count() == count
    [poison] = [sighting for sighting in world.sightings if sighting.subqueue and sighting.machine is machine][:1]
    first = qm.open(poison.queue).peek(timeout=0)
    assert (first.abort_count, first.move_count) == (poison.abort_count, 1)
    assert int(first.arrived_time.timestamp()) == machine.clock(poison.time)


def test_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 order"):
        generate(orders=0)
