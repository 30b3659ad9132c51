"""MS-MQQB 3.1.5.8 Receiving a UserMessage Packet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transfer.incoming_harness import IncomingHarness


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    harness = IncomingHarness(tmp_path / "data")
    harness.create("q")
    harness.create("ledger", transactional=True)
    yield harness
    harness.close()


def test_a_message_goes_to_its_queue_and_is_counted(h: IncomingHarness) -> None:
    h.arrive(h.packet(b"one"), h.packet(b"two"))
    assert h.bodies() == [b"one", b"two"]
    assert h.link.processed_numbers == [2]


def test_transactional(h: IncomingHarness) -> None:
    to = r"DIRECT=OS:ALPHA\private$\ledger"
    h.arrive(
        h.packet(b"one", to=to, number=1),
        h.packet(b"two", to=to, number=2),
        h.packet(b"two", to=to, number=2),
        h.packet(b"4", to=to, number=4),
    )
    assert h.bodies("ledger") == [b"one", b"two"]
    assert [n for _, n in h.order_acks()] == [2]
