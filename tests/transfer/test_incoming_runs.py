"""Messages of equal shape that arrive together (MS-MQQB 3.1.5.8).

The outcome of each is the same as if it arrived alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lanner.model.directory_objects import Queue
from lanner.model.live import Record
from tests.transfer.incoming_harness import LEDGER, FakeLink, IncomingHarness, final_acks


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    harness = IncomingHarness(tmp_path / "data")
    harness.create("q")
    harness.create("ledger", transactional=True)
    yield harness
    harness.close()


@pytest.fixture
def runs(h: IncomingHarness) -> list[int]:
    """How many messages became available together, each time."""
    found: list[int] = []

    def available(_queue: Queue, _first: int, records: Sequence[Record]) -> None:
        found.append(len(records))

    h.engine.position_available_subscribers.append(available)
    return found


def numbered(h: IncomingHarness, *numbers: int) -> list[bytes]:
    return [h.packet(b"%d" % number, to=LEDGER, number=number) for number in numbers]


@pytest.mark.parametrize("recoverable", [True, False])
def test_the_first_is_judged_and_the_others_are_stored_together(
    h: IncomingHarness, runs: list[int], recoverable: bool
) -> None:
    bodies = [b"%d" % number for number in range(20)]
    h.arrive(*(h.packet(body, recoverable=recoverable) for body in bodies))
    assert runs == [1, 19]
    assert h.bodies() == bodies
    assert h.link.processed_numbers == [20]
    assert h.queue().message_count == 20
    assert h.queue().total_bytes == h.engine.queue_manager.total_bytes


def test_transactional_ones_move_their_sequence_together(h: IncomingHarness, runs: list[int]) -> None:
    h.arrive(*numbered(h, *range(1, 11)))
    assert runs == [1, 9]
    assert h.bodies("ledger") == [b"%d" % number for number in range(1, 11)]
    assert [number for _, number in h.order_acks()] == [10]
    # All of them are known when they come again.
    h.arrive(*numbered(h, *range(1, 11)), link=FakeLink())
    assert h.queue("ledger").message_count == 10
    assert h.incoming.out_of_order == 10


def test_a_gap_in_the_sequence_is_found_inside_of_a_run(h: IncomingHarness) -> None:
    h.arrive(*numbered(h, 1, 2, 3, 5, 6))
    assert h.bodies("ledger") == [b"1", b"2", b"3"]
    assert h.incoming.out_of_order == 2
    assert [number for _, number in h.order_acks()] == [3]


def test_duplicates_are_found_inside_of_a_run(h: IncomingHarness) -> None:
    packets = [h.packet(b"%d" % number) for number in range(6)]
    h.arrive(*packets[:3])
    h.arrive(packets[3], packets[1], packets[4], packets[4], packets[5], link=FakeLink())
    assert h.bodies() == [b"%d" % number for number in range(6)]
    assert h.incoming.duplicates == 2


def test_what_exceeds_the_quota_of_a_queue_is_refused_and_not_what_comes_before(h: IncomingHarness) -> None:
    packets = numbered(h, *range(1, 9))
    h.engine.set_queue_properties(h.queue("ledger"), {"quota": 1})
    fitting = 1024 // len(packets[0])
    assert 1 < fitting < 8
    h.arrive(*packets)
    assert h.queue("ledger").message_count == fitting
    assert final_acks(h) == [0x8003] * (8 - fitting)
    assert h.link.processed_numbers == [8]


def test_without_room_in_the_middle_of_a_run_the_session_ends_and_the_rest_comes_again(h: IncomingHarness) -> None:
    packets = [h.packet(b"x" * 300) for _ in range(8)]
    h.engine.set_queue_properties(h.queue(), {"quota": 1000})
    quota = h.engine.queue_manager.queue_manager_quota
    h.engine.queue_manager.queue_manager_quota = 2
    h.arrive(*packets)
    stored = h.queue().message_count
    assert 1 < stored < 8
    assert h.link.processed_numbers == []
    assert h.link.close_reasons
    h.engine.queue_manager.queue_manager_quota = quota
    h.arrive(*packets, link=FakeLink())
    assert h.queue().message_count == 8
    assert h.incoming.duplicates == stored


def test_late_messages_are_refused_inside_of_a_run(h: IncomingHarness) -> None:
    h.arrive(*(h.packet(b"%d" % age, age=age, time_to_reach_queue=10) for age in (1, 2, 11, 3, 12)))
    assert h.bodies() == [b"1", b"2", b"3"]
    assert h.link.processed_numbers == [5]
