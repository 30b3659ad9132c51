"""A message's way through one queue, and over a restart."""

from __future__ import annotations

from tests.engine.harness import Harness


def test_what_was_sent_is_received_in_order_of_priority(h: Harness) -> None:
    h.create()
    h.send(body=b"low", priority=1)
    h.send(body=b"high", priority=6)
    h.send(body=b"high too", priority=6)
    assert h.bodies() == [b"high", b"high too", b"low"]
    assert [h.receive(), h.receive(), h.receive(), h.receive()] == [b"high", b"high too", b"low", None]
    assert (h.queue().total_bytes, h.queue().message_count) == (0, 0)


def test_recoverable_messages_outlive_a_crash_and_express_ones_do_not(h: Harness) -> None:
    h.create()
    h.send(body=b"kept")
    h.send(body=b"lost", recoverable=False)
    h.sync()
    h.crash()
    assert h.bodies() == [b"kept"]
