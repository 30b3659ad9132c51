"""Whatever happens on the way, a receiver gets each transactional message once.

The messages come in the order of the commits.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanner.model.enums import QueueAccessType
from lanner.transfer.settings import TransferSettings
from lanner.wire.identifiers import NO_SEQUENCE, TxSequenceID
from lanner.wire.message import Message
from tests.transfer.outgoing import DESTINATION, Outgoing


class Receiver:
    """The acceptance rules of MS-MQQB 3.1.5.8.6."""

    def __init__(self) -> None:
        self.sequence: TxSequenceID = NO_SEQUENCE
        self.number = 0
        self.bodies: list[bytes] = []

    def receive(self, packet: bytes) -> None:
        message = Message(packet)
        sequence = message.transactional_message_sequence_identifier
        if sequence is None:
            return
        number, previous = message.transaction_sequence_number, message.transaction_previous_sequence_number
        if (sequence == self.sequence and number > self.number and previous <= self.number) or (
            sequence > self.sequence and previous == 0
        ):
            self.sequence, self.number = sequence, number
            self.bodies.append(message.body)


class World:
    """A sender, a receiver, and what may happen between them."""

    def __init__(self, path: Path) -> None:
        self.h = Outgoing(path, TransferSettings(max_unacked_sequence=5))
        self.receiver = Receiver()
        self.sent: list[bytes] = []  # committed and durable, in the order of the commits
        self.lost: set[bytes] = set()  # may have expired, or was taken by an administrator
        self.count = 0

    def say(self, amount: int, *, expires: bool = False) -> None:
        names = [b"%d" % (self.count + i) for i in range(amount)]
        self.count += amount
        self.h.say(*names, transactional=True, time_to_reach_queue=50 if expires else 1_000_000)
        self.sent += names
        if expires:
            self.lost.update(names)

    def interleave(self) -> None:
        """Two transactions that commit in the other order than they sent."""
        h = self.h
        one, two = h.begin(), h.begin()
        names = [b"%d" % (self.count + i) for i in range(2)]
        self.count += 2
        h.send(DESTINATION, names[0], transaction=one)
        h.send(DESTINATION, names[1], transaction=two)
        h.commit(two)
        h.commit(one)
        h.sync()
        self.sent += reversed(names)

    def plain(self) -> None:
        self.h.say(b"plain", priority=self.count % 8)

    def transmit(self, arriving: int) -> None:
        """Send messages; the first of them arrive and are acknowledged.

        Then the connection may end.
        """
        entries = self.h.transmit(6)
        arrived = entries[:arriving]
        for entry in arrived:
            self.receiver.receive(entry.packet)
        self.h.acknowledge(*arrived)
        if len(arrived) < len(entries):
            self.reconnect()

    def order_ack(self) -> None:
        if self.receiver.number:
            self.h.order_ack(self.receiver.number, self.receiver.sequence)

    def reconnect(self) -> None:
        self.h.table.session_closed()
        self.h.table.session_opened()

    def time_out(self) -> None:
        self.h.now += 31
        self.h.table.on_timer()

    def expire(self) -> None:
        self.h.tick(51)

    def take(self) -> None:
        """An administrator receives a message from the outgoing queue."""
        before = set(self.h.waiting)
        descriptor = self.h.open(DESTINATION, QueueAccessType.RECEIVE_ADMIN)
        self.h.engine.try_dequeue_message(descriptor)
        self.h.engine.close_queue(descriptor)
        self.h.sync()
        self.lost |= before - set(self.h.waiting)

    def hold(self) -> None:
        """An administrator receives a message, and gives it back after others could be sent."""
        descriptor = self.h.open(DESTINATION, QueueAccessType.RECEIVE_ADMIN)
        transaction = self.h.begin()
        self.h.engine.try_dequeue_message(descriptor, transaction)
        self.transmit(6)
        self.order_ack()
        self.h.abort(transaction)
        self.h.engine.close_queue(descriptor)
        self.h.sync()

    def crash(self) -> None:
        self.h.sync()
        self.h.crash()

    def fail(self) -> None:
        """The disk refuses what was not synced yet: deletions come back."""
        self.h.store._commits._fail(OSError("no space"))
        self.h.table.store_failed()

    def settle(self) -> None:
        """Everything works for a while."""
        for _ in range(60):
            self.order_ack()
            if self.h.table.is_empty:
                return
            self.time_out()
            self.transmit(6)
            self.h.sync()
        raise AssertionError(f"still waiting: {self.h.waiting}")


STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 4)),
    st.tuples(st.just("expiring"), st.integers(1, 2)),
    st.tuples(st.just("transmit"), st.integers(0, 6)),
    st.tuples(
        st.sampled_from(
            (
                "interleave",
                "plain",
                "order_ack",
                "reconnect",
                "time_out",
                "expire",
                "take",
                "hold",
                "crash",
                "fail",
                "sync",
            )
        ),
        st.just(0),
    ),
)


@pytest.mark.spec("QQB-3.1.1.5-1")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=25))
def test_each_message_arrives_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory) / "data")
        try:
            for name, amount in steps:
                if name == "say":
                    world.say(amount)
                elif name == "expiring":
                    world.say(amount, expires=True)
                elif name == "transmit":
                    world.transmit(amount)
                elif name == "sync":
                    world.h.sync()
                else:
                    getattr(world, name)()
            world.settle()
        finally:
            world.h.close()
    arrived = world.receiver.bodies
    assert arrived == [body for body in world.sent if body in set(arrived)], "order"
    assert len(arrived) == len(set(arrived)), "once"
    assert set(world.sent) - world.lost <= set(arrived), "all"
