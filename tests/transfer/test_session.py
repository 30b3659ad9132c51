"""A session as a whole: packets out, packets in, acknowledgments back (MS-MQQB 3.1)."""

from __future__ import annotations

from lanner.transfer.events import SessionAckReceived, UserMessagesReceived
from tests.transfer.pairs import Pair, headers, message, out


def test_messages_go_over_and_are_acknowledged_once_that_is_allowed() -> None:
    pair = Pair()
    express, recoverable = message(b"one"), message(b"two", recoverable=True)
    pair.ours.send(express, "express")
    pair.ours.send(recoverable, "recoverable")
    assert pair.theirs.receive(out(pair.ours)) == [
        UserMessagesReceived(1, [express]),
        UserMessagesReceived(2, [recoverable]),
    ]
    pair.theirs.allow_acknowledgment(2)
    pair.advance(pair.theirs.recoverable_ack_send_timeout / 1000)
    assert pair.theirs.on_timer() == []
    assert pair.exchange() == [SessionAckReceived(["express", "recoverable"], ["recoverable"])]
    assert pair.ours.unacked_message_count == 0
    assert headers(out(pair.theirs)) == []
