"""MS-MQMQ 2.2.20.4: what a SessionHeader says about recoverable messages and about the window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.wire.reader import Reader
from lanner.wire.session_header import (
    DEFAULT_WINDOW_SIZE,
    MAX_RECOVERABLE_ACKS,
    WINDOW_RECOVERY_INTERVAL,
    SessionHeader,
    recoverable_acks,
    recovered_window,
)


def header(persisted: list[int], window_size: int = DEFAULT_WINDOW_SIZE) -> SessionHeader:
    number, flags = recoverable_acks(persisted)
    return SessionHeader(9, number, flags, 5, 4, window_size)


def there(sent: SessionHeader) -> SessionHeader:
    return SessionHeader.unpack(Reader(sent.pack()))


@pytest.mark.spec("MQMQ-2.2.20.4-2")
@pytest.mark.parametrize(
    ("persisted", "number", "flags"),
    [
        ([], 0, 0),
        ([1], 1, 0b1),
        ([1, 2, 3], 1, 0b111),
        ([7, 5, 8], 5, 0b1101),
        (list(range(10, 42)), 10, 0xFFFF_FFFF),
        ([3, 34], 3, 0x8000_0001),
        # One too far for a bit waits.
        ([3, 35], 3, 0x0000_0001),
        ([0x1_0002], 2, 1),
    ],
)
def test_the_lowest_number_and_a_bit_for_each_from_there(persisted: list[int], number: int, flags: int) -> None:
    assert recoverable_acks(persisted) == (number, flags)
    sent = there(header(persisted))
    assert (sent.recoverable_msg_ack_seq_number, sent.recoverable_msg_ack_flags) == (number, flags)


@pytest.mark.spec("MQMQ-2.2.20.4-2")
@given(st.integers(1, 200_000), st.sets(st.integers(0, MAX_RECOVERABLE_ACKS - 1)))
def test_what_one_side_has_on_disk_the_other_side_reads(first: int, offsets: set[int]) -> None:
    """Also where the number of the session's messages no longer fits 16 bits."""
    persisted = {first + offset for offset in offsets}
    found = there(header(sorted(persisted))).recoverable_acked_numbers
    assert list(found) == [number & 0xFFFF for number in sorted(persisted)]


@pytest.mark.spec("MQMQ-2.2.20.4-2")
def test_the_wrap_of_the_counter_is_not_an_empty_acknowledgment() -> None:
    """Number 65536 is written as 0; only without bits does 0 mean that there is nothing."""
    assert there(header([0x1_0000])).recoverable_acked_numbers == (0,)
    assert there(header([])).recoverable_acked_numbers == ()
    assert there(header([0xFFFF, 0x1_0000, 0x1_0001])).recoverable_acked_numbers == (0xFFFF, 0, 1)


@pytest.mark.spec("MQMQ-2.2.20.4-3")
def test_the_window_is_64_unless_lowered_and_never_0() -> None:
    assert SessionHeader(0, 0, 0, 0, 0).window_size == 0x40
    assert header([]).pack()[12:14] == b"\x40\0"
    assert there(header([], 1)).window_size == 1
    assert header([], 0).pack()[12:14] == b"\1\0"
    # A peer that writes 0 all the same asks for as little as there is.
    zero = header([]).pack()[:12] + bytes(4)
    assert SessionHeader.unpack(Reader(zero)).window_size == 1
    assert there(header([], 0xFFFF)).window_size == 0xFFFF


@pytest.mark.spec("MQMQ-2.2.20.4-3")
def test_a_lowered_window_doubles_until_it_is_whole_again() -> None:
    """Note 15: every 30 seconds, back to the default of 64."""
    assert WINDOW_RECOVERY_INTERVAL == 30
    sizes = [1]
    while sizes[-1] != DEFAULT_WINDOW_SIZE:
        sizes.append(recovered_window(sizes[-1]))
    assert sizes == [1, 2, 4, 8, 16, 32, 64]
    assert recovered_window(DEFAULT_WINDOW_SIZE) == DEFAULT_WINDOW_SIZE
    assert recovered_window(48) == DEFAULT_WINDOW_SIZE
    assert recovered_window(4, maximum=5) == 5
    assert recovered_window(0) == 2
