"""The timers of a session, and its windows.

MS-MQQB 3.1.2, 3.1.3.2, 3.1.5.9, 3.1.6 and 3.1.7.1.
"""

from __future__ import annotations

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.transfer.deadlines import NEVER, Deadline
from lanner.transfer.events import NothingAcknowledged, SessionClosed, UserMessagesReceived
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings
from lanner.transfer.timers import Timer
from lanner.wire.session_header import SessionHeader
from tests.transfer.pairs import THEIRS, Clock, Pair, acceptor, headers, initiator, message, out, session_ack

EXPRESS, RECOVERABLE = message(), message(recoverable=True)


def closed(session: Session) -> SessionClosed:
    (event,) = session.on_timer()
    assert isinstance(event, SessionClosed)
    assert session.state is SessionState.CLOSED
    assert session.next_deadline() == NEVER
    return event


def test_a_timer() -> None:
    owner = Deadline()
    timer, other = Timer(owner), Timer(owner)
    assert (timer.deadline, timer.has_elapsed(1e9, 0.75), owner.due) == (NEVER, False, NEVER)
    timer.start(10.0, 4.0)
    assert timer.deadline == owner.due == 14.0
    assert [timer.has_elapsed(now, 0.75) for now in (10.0, 13.0, 13.01, 15.0)] == [False, False, True, True]
    other.start(10.0, 5.0)
    assert owner.due == 14.0
    timer.stop()
    assert timer.deadline == NEVER


@pytest.mark.spec("QQB-3.1.3.2-2", "QQB-3.1.2.2-1")
@pytest.mark.parametrize(
    ("settings", "is_routing_server", "seconds"),
    [
        (TransferSettings(), False, 300.0),
        (TransferSettings(), True, 120.0),
        (TransferSettings(cleanup_interval=77.0), False, 77.0),
        (TransferSettings(cleanup_interval=77.0), True, 77.0),
    ],
)
def test_a_new_session_runs_the_cleanup_timer_alone(
    settings: TransferSettings, is_routing_server: bool, seconds: float
) -> None:
    clock = Clock()
    sessions = (
        initiator(clock, settings=settings, is_routing_server=is_routing_server),
        acceptor(clock, settings=settings, is_routing_server=is_routing_server),
    )
    for _ in range(2):
        sessions[1].receive(out(sessions[0]))
        sessions[0].receive(out(sessions[1]))
    for session in sessions:
        assert session.state is SessionState.OPEN
        assert session.next_deadline() == clock.now + seconds


@pytest.mark.spec("QQB-3.1.6.2-1", "QQB-3.1.5.9-1")
def test_an_idle_session_is_closed_at_the_second_tick() -> None:
    """The first finds SessionActive and clears it.

    No packet reports the end, and it is no error.
    """
    pair = Pair()
    pair.ours.send(EXPRESS, 1)
    pair.theirs.receive(out(pair.ours))
    pair.theirs.allow_acknowledgment(1)
    pair.advance(20.0)
    pair.theirs.on_timer()
    pair.ours.receive(out(pair.theirs))
    pair.advance(280.0)
    for session in (pair.ours, pair.theirs):
        assert session.on_timer() == []
        assert not session.session_active
    pair.advance(299.0)
    for session in (pair.ours, pair.theirs):
        assert session.on_timer() == []
    pair.advance(1.0)
    for session in (pair.ours, pair.theirs):
        assert closed(session) == SessionClosed("idle for 300 s", is_error=False)
        assert out(session) == b""


# Session Ack Wait Timer


@pytest.mark.spec("QQB-3.1.2.4-1", "QQB-3.1.7.1.3-5")
@pytest.mark.parametrize(
    ("remote_guid", "settings", "seconds"),
    [
        (THEIRS, TransferSettings(), 20.0),
        (GUID_NULL, TransferSettings(), 40.0),
        (THEIRS, TransferSettings(ack_wait_timeout=50.0), 50.0),
        (GUID_NULL, TransferSettings(ack_wait_timeout=50.0, direct_ack_wait_multiplier=3), 150.0),
        (THEIRS, TransferSettings(round_trip_delay=1.5), 21.5),
    ],
)
def test_how_long_an_acknowledgment_is_waited_for(
    remote_guid: object, settings: TransferSettings, seconds: float
) -> None:
    """AckWaitTimeout once, or twice for a session made for a direct format name.

    Both sides use it, the acceptor with our time.
    """
    for sender in ("ours", "theirs"):
        pair = Pair(settings=settings, remote_guid=THEIRS if remote_guid == THEIRS else GUID_NULL)
        session = pair.ours if sender == "ours" else pair.theirs
        before = session.next_deadline()
        assert [session.session_active] == [False]
        session.send(EXPRESS, 1)
        assert session.session_active
        assert session.next_deadline() == pytest.approx(pair.clock.now + seconds)
        assert session.next_deadline() != before
        pair.advance(seconds / 2)
        # It is not started anew by the next message.
        session.send(EXPRESS, 2)
        assert session.next_deadline() == pytest.approx(pair.clock.now + seconds / 2)


@pytest.mark.spec("QQB-3.1.6.3-2", "QQB-3.1.5.9-1")
def test_a_peer_that_says_nothing_is_given_up() -> None:
    pair = Pair(remote_guid=THEIRS)
    pair.ours.send(EXPRESS, 1)
    # The handshake was activity: the first tick finds ReceivedAck, the second does not.
    pair.advance(20.0)
    assert pair.ours.on_timer() == [NothingAcknowledged(20.0)]
    assert not pair.ours.received_ack
    pair.advance(19.9)
    assert pair.ours.on_timer() == []
    pair.advance(0.1)
    event = closed(pair.ours)
    assert event.is_error
    assert "1 messages were not acknowledged" in event.reason


@pytest.mark.spec("QQB-3.1.7.1.3-5")
def test_a_peer_that_says_nothing_is_given_up_also_by_a_sender_that_continues_sending() -> None:
    pair = Pair(remote_guid=THEIRS)
    pair.ours.send(EXPRESS, 1)
    pair.advance(20.0)
    pair.ours.on_timer()
    for number in range(2, 21):
        pair.advance(1.0)
        pair.ours.send(EXPRESS, number)
        assert pair.ours.on_timer() == []
    pair.advance(1.0)
    assert "20 messages were not acknowledged" in closed(pair.ours).reason


@pytest.mark.spec("QQB-3.1.6.3-2", "QQB-3.1.5.1-1")
@pytest.mark.parametrize("kind", ["session ack", "user message", "user message with session header"])
def test_any_packet_keeps_the_session_for_another_time(kind: str) -> None:
    pair = Pair(remote_guid=THEIRS)
    pair.ours.send(EXPRESS, 1)
    out(pair.ours)
    for _ in range(5):
        pair.advance(19.0)
        pair.ours.on_timer()
        count = pair.ours.message_received_count
        if kind == "session ack":
            data = session_ack(SessionHeader(0, 0, 0, count, 0))
        elif kind == "user message":
            data = EXPRESS
        else:
            data = EXPRESS[:2] + b"\x13" + EXPRESS[3:] + SessionHeader(0, 0, 0, count + 1, 0).pack()
        pair.ours.receive(data)
        assert pair.ours.received_ack
    assert pair.ours.state is SessionState.OPEN
    assert pair.ours.unacked_message_count == 1


@pytest.mark.spec("QQB-3.1.6.3-1")
def test_with_nothing_pending_the_ack_wait_timer_stops() -> None:
    pair = Pair(remote_guid=THEIRS)
    pair.ours.send(EXPRESS, 1)
    pair.theirs.receive(out(pair.ours))
    pair.theirs.allow_acknowledgment(1)
    pair.advance(10.0)
    pair.theirs.on_timer()
    pair.ours.receive(out(pair.theirs))
    assert pair.ours.received_ack
    pair.advance(10.0)
    assert pair.ours.on_timer() == []
    assert [pair.ours.received_ack] == [False]
    # Only Session Cleanup is left.
    assert pair.ours.next_deadline() == pytest.approx(pair.clock.now - 20.0 + 300.0)


@pytest.mark.spec("QQB-3.1.5.5.5-2")
def test_a_session_header_gives_those_still_waiting_their_full_time() -> None:
    pair = Pair(remote_guid=THEIRS)
    for number in range(2):
        pair.ours.send(EXPRESS, number)
    pair.advance(15.0)
    pair.ours.receive(session_ack(SessionHeader(1, 0, 0, 0, 0)))
    assert pair.ours.next_deadline() == pytest.approx(pair.clock.now + 20.0)
    pair.advance(5.0)
    pair.ours.receive(session_ack(SessionHeader(2, 0, 0, 0, 0)))
    # None is waiting: as it was.
    assert pair.ours.next_deadline() == pytest.approx(pair.clock.now + 15.0)


# Session Ack Send Timer


@pytest.mark.spec("QQB-3.1.5.8.2-5", "QQB-3.1.5.4.1-1")
@pytest.mark.parametrize("ack_wait_timeout", [20.0, 120.0])
def test_the_first_message_starts_the_ack_send_timer(ack_wait_timeout: float) -> None:
    """Half of AckWaitTimeout, as the initiator proposed it; later ones do not restart it."""
    pair = Pair(settings=TransferSettings(ack_wait_timeout=ack_wait_timeout), their_settings=TransferSettings())
    for _ in range(3):
        pair.ours.send(EXPRESS, 1)
        pair.theirs.receive(out(pair.ours))
        assert pair.theirs.next_deadline() == pytest.approx(1000.0 + ack_wait_timeout / 2)
        pair.advance(1.0)


@pytest.mark.spec("QQB-3.1.5.8.7-4")
def test_the_first_recoverable_message_since_an_ack_shortens_the_ack_send_timer() -> None:
    pair = Pair()
    sent = 0

    def deliver(packet: bytes) -> None:
        nonlocal sent
        pair.ours.send(packet, 1)
        (event,) = pair.theirs.receive(out(pair.ours))
        assert isinstance(event, UserMessagesReceived)
        sent += 1
        pair.theirs.allow_acknowledgment(sent)

    for _ in range(2):
        deliver(EXPRESS)
        assert pair.theirs.next_deadline() == pytest.approx(pair.clock.now + 10.0)
        pair.advance(2.0)
        deliver(RECOVERABLE)
        due = pair.clock.now + 0.5
        assert pair.theirs.next_deadline() == pytest.approx(due)
        pair.advance(0.2)
        # Not the second, nor an express one.
        deliver(RECOVERABLE)
        deliver(EXPRESS)
        assert pair.theirs.next_deadline() == pytest.approx(due)
        pair.advance(0.3)
        pair.theirs.on_timer()
        (ack,) = headers(out(pair.theirs))
        assert (ack.ack_sequence_number, ack.recoverable_msg_ack_flags) == (sent, 0b11)


def test_what_is_allowed_after_an_ack_is_not_kept_waiting() -> None:
    """A recoverable message came before the SessionAck and was on disk only after it.

    It is acknowledged after a short delay of its own.
    """
    pair = Pair()
    for _ in range(33):
        pair.ours.send(RECOVERABLE, 1)
    pair.theirs.receive(out(pair.ours))
    pair.theirs.allow_acknowledgment(32)
    assert len(headers(out(pair.theirs))) == 1
    pair.theirs.allow_acknowledgment(33)
    pair.advance(0.5)
    pair.theirs.on_timer()
    assert headers(out(pair.theirs)) == [SessionHeader(33, 33, 1, 0, 0, 64)]


# Windows


@pytest.mark.spec("QQB-3.1.7.1-1", "QQB-3.1.3.2-5", "QQB-3.1.3.2-6")
def test_the_65th_message_waits() -> None:
    """A window of 64 counts only messages that were sent, not those that wait in queues."""
    clock = Clock()
    session = initiator(clock)
    assert session.room == 0
    with pytest.raises(RuntimeError, match="WAITING_ECR_MSG"):
        session.send(EXPRESS, 0)
    pair = Pair()
    for number in range(64):
        assert pair.ours.room == 64 - number
        pair.ours.send(EXPRESS, number)
    assert pair.ours.room == 0
    with pytest.raises(RuntimeError, match="64 unacknowledged"):
        pair.ours.send(EXPRESS, 64)
    assert len(pair.ours.data_to_send()) == 64
    pair.ours.receive(session_ack(SessionHeader(1, 0, 0, 0, 0)))
    assert pair.ours.room == 1


@pytest.mark.spec("QQB-3.1.7.1-1")
@pytest.mark.parametrize(("own", "peers", "room"), [(64, 10, 10), (10, 64, 10), (5, 5, 5), (0xFFFF, 0xFFFF, 0x4000)])
def test_the_smaller_window_counts(own: int, peers: int, room: int) -> None:
    pair = Pair(settings=TransferSettings(window_size=own), their_settings=TransferSettings(window_size=peers))
    assert pair.ours.room == pair.theirs.room == room


@pytest.mark.spec("MQMQ-2.2.20.4-3")
def test_a_lowered_window_doubles_every_30_seconds() -> None:
    """MS-MQMQ note 15. Up to what the peer came with, unless it says otherwise meanwhile."""
    pair = Pair()
    ack = SessionHeader(0, 0, 0, 0, 0, 1)
    pair.ours.receive(session_ack(ack))
    seen = []
    for _ in range(8):
        seen.append(pair.ours.room)
        pair.advance(30.0)
        assert pair.ours.on_timer() == []
    assert seen == [1, 2, 4, 8, 16, 32, 64, 64]


def test_every_session_header_sets_the_window() -> None:
    pair = Pair()
    for window, room in ((3, 3), (0, 1), (64, 64), (100, 64), (8, 8)):
        data = session_ack(SessionHeader(0, 0, 0, 0, 0))
        pair.ours.receive(data[:-4] + window.to_bytes(2, "little") + data[-2:])
        assert pair.ours.received_window_size == max(window, 1)
        assert pair.ours.room == room
    # Lowered further, the 30 seconds begin anew.
    pair.advance(20.0)
    pair.ours.receive(session_ack(SessionHeader(0, 0, 0, 0, 0, 4)))
    pair.advance(20.0)
    pair.ours.on_timer()
    assert pair.ours.room == 4
    pair.ours.receive(session_ack(SessionHeader(0, 0, 0, 0, 0, 4)))
    pair.advance(10.0)
    pair.ours.on_timer()
    assert pair.ours.room == 8
    # And the peer's word that all is well ends it.
    pair.ours.receive(session_ack(SessionHeader(0, 0, 0, 0, 0, 64)))
    assert pair.ours.next_deadline() == pytest.approx(1300.0)


# The end


@pytest.mark.spec("QQB-3.1.7.3-1")
def test_the_end_of_the_stream_closes_the_session_in_every_state() -> None:
    clock = Clock()
    half = acceptor(clock)
    half.receive(out(initiator(clock)))
    pair = Pair()
    for session, is_error in ((initiator(clock), True), (acceptor(clock), True), (half, True), (pair.ours, False)):
        (event,) = session.end_of_stream()
        assert isinstance(event, SessionClosed)
        assert event.is_error is is_error
        assert session.state is SessionState.CLOSED
        assert session.next_deadline() == NEVER
    assert pair.theirs.receive(EXPRESS[:50]) == []
    assert pair.theirs.end_of_stream() == [SessionClosed("the connection was closed, inside a packet", is_error=True)]
    waiting = Pair().ours
    waiting.send(EXPRESS, 1)
    assert waiting.end_of_stream() == [
        SessionClosed("the connection was closed, 1 messages unacknowledged", is_error=True)
    ]
