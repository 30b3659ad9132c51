"""Expiry alone: which messages are due; another part removes them."""

from __future__ import annotations

from lanner.engine.expiry import Expiry, expiry_reason
from lanner.engine.tables import EXPIRY, EXPIRY_HOLDS
from lanner.model.enums import MessageClass
from lanner.model.live import DEAD_LETTER, MessagePosition
from lanner.wire.envelope import read_envelope
from tests.engine.parts.fakes import World


class Remover:
    """A stand-in that removes expired messages; it may find one locked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.removed: list[int] = []
        self.locked: set[int] = set()

    def __call__(self, position: MessagePosition) -> bool:
        if position.lookup_id in self.locked:
            return False
        self.removed.append(position.lookup_id)
        self._world.positions.remove(position.queue, position)
        return True


def deadline(world: World) -> int | None:
    return world.expiry.next_deadline


def test_messages_expire_at_their_time(world: World) -> None:
    queue, remover = world.queue(), Remover(world)
    for_ever = world.put(queue)
    express = world.put(queue, recoverable=False, time_to_be_received=5)
    stored = world.put(queue, time_to_be_received=10)
    assert deadline(world) == world.now + 5
    world.now += 5
    world.expiry.expire_messages(remover)
    assert remover.removed == [express.lookup_id]
    assert deadline(world) == world.now + 5
    world.now += 5
    world.expiry.expire_messages(remover)
    assert remover.removed == [express.lookup_id, stored.lookup_id]
    assert deadline(world) is None
    assert world.fake.contains(queue.number, for_ever.lookup_id)


def test_a_locked_message_is_looked_at_again_after_a_second(world: World) -> None:
    queue, remover = world.queue(), Remover(world)
    position = world.put(queue, time_to_be_received=5)
    remover.locked = {position.lookup_id}
    world.now += 5
    world.expiry.expire_messages(remover)
    assert world.expiry.next_deadline == world.now + 1
    remover.locked = set()
    world.now += 1
    world.expiry.expire_messages(remover)
    assert remover.removed == [position.lookup_id]


def test_messages_of_a_block_with_one_deadline_share_a_row(world: World) -> None:
    queue = world.queue()
    positions = [world.put(queue, time_to_be_received=5) for _ in range(10)]
    table = world.fake.table(EXPIRY)
    assert len(table.rows) == 1
    for position in positions:
        assert len(table.rows) == 1
        world.positions.remove(queue, position)
    assert table.rows == {}
    assert world.expiry.blocks == {}


def test_deadlines_in_the_store_are_found_by_the_next_run(world: World) -> None:
    queue = world.queue()
    world.put(queue, time_to_be_received=5)
    again = Expiry(world.core)
    again.find_next()
    assert again.next_deadline == world.now + 5


def test_a_hold_keeps_messages_until_it_is_released(world: World) -> None:
    queue, remover = world.queue(), Remover(world)
    held = world.put(queue, time_to_be_received=5)
    world.expiry.hold_expiry(queue, held.record.visibility, 30)
    later = world.put(queue, time_to_be_received=5)
    world.now += 5
    world.expiry.expire_messages(remover)
    assert remover.removed == [later.lookup_id]
    world.expiry.release_expiry(queue, held.record.visibility)
    assert world.fake.table(EXPIRY_HOLDS).rows == {}
    world.now += 1
    world.expiry.expire_messages(remover)
    assert remover.removed == [later.lookup_id, held.lookup_id]


def test_a_hold_of_the_last_run_ends_after_its_seconds(world: World) -> None:
    queue, remover = world.queue(), Remover(world)
    held = world.put(queue, time_to_be_received=5)
    world.expiry.hold_expiry(queue, held.record.visibility, 30)
    again = Expiry(world.core)
    again.load_holds()
    again.find_next()
    world.now += 29
    again.expire_messages(remover)
    assert remover.removed == []
    world.now += 1
    again.expire_messages(remover)
    assert remover.removed == [held.lookup_id]


def test_an_outgoing_queue_counts_the_time_to_reach_the_queue(world: World) -> None:
    outgoing = world.outgoing()
    world.put(outgoing, time_to_reach_queue=3, time_to_be_received=5)
    assert world.expiry.next_deadline == world.now + 3
    assert expiry_reason(outgoing) is MessageClass.NACK_REACH_QUEUE_TIMEOUT
    assert expiry_reason(world.queue()) is MessageClass.NACK_RECEIVE_TIMEOUT


def test_a_dead_letter_does_not_expire(world: World) -> None:
    position = world.position(world.queue(), time_to_be_received=5)
    position.record.flags = DEAD_LETTER
    world.positions.write(position, read_envelope(position.record.packet))
    assert world.expiry.next_deadline is None
    world.now += 10
    assert not world.expiry.has_expired(position)
