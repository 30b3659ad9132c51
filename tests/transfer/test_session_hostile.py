"""Invalid bytes from peers, and streams that arrive in pieces.

MS-MQQB 3.1.5.1.2 and 3.1.5.1.3.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.transfer.deadlines import NEVER
from lanner.transfer.events import Event, SessionClosed, UserMessagesReceived
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.wire.reader import guid_from_bytes
from lanner.wire.session_header import SessionHeader
from tests.transfer.pairs import (
    FRAMES,
    SETTINGS,
    Clock,
    everybody,
    message,
    out,
    session_ack,
    with_session_header,
)

EXPRESS, RECOVERABLE = message(label="order"), message(recoverable=True)
TAIL = [
    FRAMES[7],
    EXPRESS,
    with_session_header(RECOVERABLE, SessionHeader(1, 0, 0, 3, 1)),
    session_ack(SessionHeader(2, 1, 1, 3, 1)),
    RECOVERABLE,
]


def example_acceptor() -> Session:
    """Whom frame 3 is for."""
    own = guid_from_bytes(FRAMES[3][36:52])
    return Session.accept(own_guid=own, settings=SETTINGS, monotonic=Clock(), admit=everybody)


def example_initiator() -> Session:
    """Whom frame 4 is for."""
    own, remote = guid_from_bytes(FRAMES[4][20:36]), guid_from_bytes(FRAMES[4][36:52])
    return Session.initiate(own_guid=own, remote_guid=remote, settings=SETTINGS, monotonic=Clock())


def acceptor_with_parameters_to_come() -> Session:
    session = example_acceptor()
    session.receive(FRAMES[3])
    return session


def initiator_with_parameters_to_come() -> Session:
    session = example_initiator()
    session.receive(FRAMES[4])
    return session


def opened() -> Session:
    session = initiator_with_parameters_to_come()
    session.receive(FRAMES[6])
    session.send(EXPRESS, "express")
    session.send(RECOVERABLE, "recoverable")
    return session


# Each frame of the document's example with the session that it is sent to.
RECEIVERS: dict[int, Callable[[], Session]] = {
    3: example_acceptor,
    4: example_initiator,
    5: acceptor_with_parameters_to_come,
    6: initiator_with_parameters_to_come,
    7: opened,
    8: opened,
}


def check(session: Session, events: list[Event]) -> None:
    """A session is open or closed, and reports its close exactly once, as its last event."""
    closings = [event for event in events if isinstance(event, SessionClosed)]
    assert len(closings) <= 1
    if closings:
        assert events[-1] is closings[0]
        assert session.state is SessionState.CLOSED
        assert session.next_deadline() == NEVER
        assert session.receive(EXPRESS) == []
    else:
        assert session.state is not SessionState.CLOSED


@pytest.mark.spec("QQB-3.1.5.1.3-1")
@pytest.mark.parametrize("number", RECEIVERS)
def test_every_truncation_of_a_frame_waits_for_more(number: int) -> None:
    for size in range(len(FRAMES[number])):
        session = RECEIVERS[number]()
        assert session.receive(FRAMES[number][:size]) == []
        (event,) = session.end_of_stream()
        assert isinstance(event, SessionClosed)
        assert event.is_error
    session = RECEIVERS[number]()
    check(session, session.receive(FRAMES[number]))
    assert session.state is not SessionState.CLOSED


@pytest.mark.spec("QQB-3.1.5.1.3-1", "QQB-3.1.5.1.2-1")
@pytest.mark.parametrize("number", RECEIVERS)
def test_every_corrupted_byte_of_a_frame_ends_in_events(number: int) -> None:
    """Each byte zeroed, filled, and with each bit flipped."""
    frame = FRAMES[number]
    for offset in range(len(frame)):
        for value in {0, 0xFF, *(frame[offset] ^ 1 << bit for bit in range(8))} - {frame[offset]}:
            session = RECEIVERS[number]()
            check(session, session.receive(frame[:offset] + bytes((value,)) + frame[offset + 1 :] + EXPRESS))
            if offset in (0, 4, 5, 6, 7):
                assert session.state is SessionState.CLOSED


@pytest.mark.spec("QQB-3.1.5.1.3-1")
def test_a_malformed_packet_is_not_delivered_and_those_before_it_are() -> None:
    session = opened()
    bad = EXPRESS[:60] + b"\xff" + EXPRESS[61:]
    *good, last = session.receive(EXPRESS + RECOVERABLE + bad + EXPRESS)
    assert good == [UserMessagesReceived(1, [EXPRESS]), UserMessagesReceived(2, [RECOVERABLE])]
    assert isinstance(last, SessionClosed)
    assert last.is_error
    assert "UserHeader.Flags.DM: 3 is neither 0 nor 1" in last.reason
    assert session.message_received_count == 2


@given(st.binary(max_size=700))
def test_noise_never_raises(noise: bytes) -> None:
    for make in RECEIVERS.values():
        session = make()
        check(session, session.receive(noise))


@given(st.binary(min_size=12, max_size=700), st.sampled_from([0x0B, 0x1B, 0x03, 0x13, 0x00, 0x123]))
def test_noise_behind_a_good_base_header_never_raises(noise: bytes, flags: int) -> None:
    front = b"\x10\0" + flags.to_bytes(2, "little") + b"LIOR"
    for size in (32, 36, 572, 8 + len(noise)):
        for make in (example_acceptor, initiator_with_parameters_to_come, opened):
            session = make()
            check(session, session.receive(front + size.to_bytes(4, "little") + noise))


def test_a_stream_cut_at_every_byte_gives_the_same_events() -> None:
    """The whole of an example, acceptor's side; one cut everywhere, and one byte at a time."""

    def take(pieces: list[bytes]) -> tuple[list[Event], bytes]:
        session = example_acceptor()
        events = session.receive(FRAMES[3] + FRAMES[5])
        session.send(EXPRESS, "first")
        session.send(RECOVERABLE, "second")
        for piece in pieces:
            events += session.receive(memoryview(bytearray(piece)))
        return events, out(session)

    data = b"".join(TAIL)
    whole = take([data])
    assert len(whole[0]) == 1 + 6
    assert not any(isinstance(event, SessionClosed) for event in whole[0])
    for cut in range(len(data)):
        assert take([data[:cut], data[cut:]]) == whole
    assert take([bytes((byte,)) for byte in data]) == whole


@pytest.mark.parametrize("first", [3, 4])
def test_a_handshake_cut_at_every_byte_gives_the_same_answers(first: int) -> None:
    def take(pieces: list[bytes]) -> tuple[list[Event], bytes]:
        session = RECEIVERS[first]()
        events = [event for piece in pieces for event in session.receive(piece)]
        return events, out(session)

    data = FRAMES[first] + FRAMES[first + 2] + EXPRESS
    whole = take([data])
    assert len(whole[0]) == 2
    for cut in range(len(data)):
        assert take([data[:cut], data[cut:]]) == whole


def test_a_refused_size_is_not_waited_for() -> None:
    """A sender announces 4 GiB: the session is closed at the header, nothing is kept."""
    for make in (example_acceptor, opened):
        session = make()
        (event,) = session.receive(b"\x10\0\x03\0LIOR\xff\xff\xff\xff\xff\xff\xff\xff")
        assert isinstance(event, SessionClosed)
