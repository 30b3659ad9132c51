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
    recovered_window,
)


def header(window_size: int = DEFAULT_WINDOW_SIZE) -> SessionHeader:
    return SessionHeader(9, 0, 0, 5, 4, window_size)


def there(sent: SessionHeader) -> SessionHeader:
    return SessionHeader.unpack(Reader(sent.pack()))


@given(st.integers(0, 0xFFFF), st.sets(st.integers(0, MAX_RECOVERABLE_ACKS - 1)))
def test_each_bit_stands_for_a_number(lowest: int, bits: set[int]) -> None:
    """This holds also if the number of the session's messages no longer fits 16 bits."""
    sent = SessionHeader(9, lowest, sum(1 << bit for bit in bits), 5, 4)
    assert list(there(sent).recoverable_acked_numbers) == [lowest + bit & 0xFFFF for bit in sorted(bits)]


@pytest.mark.spec("MQMQ-2.2.20.4-3")
def test_the_window_is_64_unless_lowered_and_never_0() -> None:
    assert SessionHeader(0, 0, 0, 0, 0).window_size == 0x40
    assert header().pack()[12:14] == b"\x40\0"
    assert there(header(1)).window_size == 1
    assert header(0).pack()[12:14] == b"\1\0"
    # A peer that writes 0 all the same asks for as little as there is.
    zero = header().pack()[:12] + bytes(4)
    assert SessionHeader.unpack(Reader(zero)).window_size == 1
    assert there(header(0xFFFF)).window_size == 0xFFFF


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
