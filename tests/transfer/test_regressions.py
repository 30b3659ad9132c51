"""What networks of processes found, each as small as it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transfer.outgoing import Outgoing


@pytest.fixture
def outgoing(tmp_path: Path) -> Iterator[Outgoing]:
    harness = Outgoing(tmp_path / "data")
    yield harness
    harness.close()


def test_an_order_ack_ends_a_message_that_was_offered_to_a_session_and_not_yet_sent(outgoing: Outgoing) -> None:
    """It had been sent on the session before. Sent again, it would have been numbered after itself."""
    outgoing.say(b"1", b"2", b"3", transactional=True)
    outgoing.transmit()
    outgoing.table.session_opened()
    outgoing.table.peek_priority()
    assert outgoing.order_ack(3)
    assert outgoing.transmit() == []
    assert outgoing.waiting == []
