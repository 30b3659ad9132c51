"""The counters of a queue manager."""

from __future__ import annotations

from tests.engine.parts.fakes import World


def test_message_ordinals_begin_with_0_and_again_after_32_bits(world: World) -> None:
    assert world.numbers.next_message_ordinal() == 0
    assert world.numbers.next_message_ordinals(3) == range(1, 4)
    world.fake.counter("MessageID").last = 0xFFFF_FFFF
    assert [world.numbers.next_message_ordinal() for _ in range(2)] == [0xFFFF_FFFF, 0]


def test_a_transaction_index_has_20_bits(world: World) -> None:
    world.fake.counter("Transaction").last = 0xF_FFFE
    assert [world.numbers.next_transaction_index() for _ in range(2)] == [0xF_FFFF, 0]


def test_handles_are_never_used_again(world: World) -> None:
    assert [world.numbers.next_handle() for _ in range(3)] == [1, 2, 3]
