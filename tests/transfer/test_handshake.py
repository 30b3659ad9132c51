"""How a session begins (MS-MQQB 2.1.1, 2.2.1 to 2.2.3, 3.1.5.2.3, 3.1.5.3, 3.1.5.4, 3.1.5.10)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from uuid import UUID

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.transfer import handshake
from lanner.transfer.deadlines import NEVER
from lanner.transfer.events import SessionClosed, SessionOpened, UserMessagesReceived
from lanner.transfer.session import Session
from lanner.transfer.session_states import ACCEPTOR, INITIATOR, PacketKind, SessionState
from lanner.transfer.settings import TransferSettings
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    EstablishConnectionHeader,
    InternalHeader,
    PacketType,
    pack_internal,
)
from lanner.wire.reader import Reader, guid_from_bytes
from lanner.wire.session_header import SessionHeader
from tests.transfer.pairs import (
    FRAMES,
    OURS,
    SETTINGS,
    THEIRS,
    Clock,
    Pair,
    acceptor,
    initiator,
    message,
    out,
    session_ack,
    split,
)

OTHER = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
RE, SE, OS, QS = 0x10, 0x100, 0x200, 0x400
PARAMETERS = ConnectionParametersHeader(1000, 30_000, 32)


def establish(packet: bytes) -> tuple[InternalHeader, EstablishConnectionHeader]:
    reader = Reader(packet, 16)
    return InternalHeader.unpack(reader), EstablishConnectionHeader.unpack(reader)


def parameters(packet: bytes) -> ConnectionParametersHeader:
    return ConnectionParametersHeader.unpack(Reader(packet, 20))


def ec(
    client: UUID = OURS,
    server: UUID = THEIRS,
    time_stamp: int = 5,
    operating_system: int = RE,
    padding: bytes = bytes(512),
    *,
    refused: bool = False,
) -> bytes:
    return pack_internal(
        InternalHeader.of(PacketType.ESTABLISH_CONNECTION, refused=refused),
        EstablishConnectionHeader(client, server, time_stamp, operating_system, 0, padding),
    )


def cp(header: ConnectionParametersHeader = PARAMETERS, *, refused: bool = False) -> bytes:
    return pack_internal(InternalHeader.of(PacketType.CONNECTION_PARAMETERS, refused=refused), header)


def closed_by(session: Session, data: bytes) -> str:
    """The reason, when data closes the session and gives nothing else."""
    events = session.receive(data)
    assert [type(event) for event in events] == [SessionClosed], events
    assert session.state is SessionState.CLOSED
    assert session.next_deadline() == NEVER
    event = events[0]
    assert isinstance(event, SessionClosed)
    assert event.is_error
    return event.reason


def waiting_for_parameters() -> Session:
    session = acceptor(Clock())
    assert session.receive(ec()) == []
    out(session)
    return session


def waiting_for_answer(remote_guid: UUID = THEIRS, clock: Clock | None = None) -> Session:
    session = initiator(clock or Clock(), remote_guid)
    out(session)
    return session


def state(session: Session) -> SessionState:
    """A state that the type checker does not remember."""
    return session.state


# The whole


@pytest.mark.spec("QQB-2.1.1-3", "QQB-3.1.1.1.1.1-1", "QQB-3.1.1.1.1.2-1", "QQB-3.1.5.10-1")
def test_four_packets_in_turn_open_a_session() -> None:
    """EstablishConnection and ConnectionParameters are each sent and answered.

    The acceptor never sends first.
    """
    clock = Clock()
    ours, theirs = initiator(clock), acceptor(clock)
    assert theirs.data_to_send() == []
    assert (state(ours), state(theirs)) == (SessionState.WAITING_ECR_MSG, SessionState.WAITING_EC_MSG)
    request = out(ours)
    assert theirs.receive(request) == []
    assert state(theirs) is SessionState.WAITING_CP_MSG
    answer = out(theirs)
    assert ours.receive(answer) == []
    assert state(ours) is SessionState.WAITING_CPR_MSG
    proposal = out(ours)
    assert theirs.receive(proposal) == [SessionOpened()]
    assert state(theirs) is SessionState.OPEN
    agreement = out(theirs)
    assert ours.receive(agreement) == [SessionOpened()]
    assert state(ours) is SessionState.OPEN
    assert [len(packet) for packet in (request, answer, proposal, agreement)] == [572, 572, 32, 32]
    assert [packet[18] & 0xF for packet in (request, answer, proposal, agreement)] == [2, 2, 3, 3]
    assert out(ours) == out(theirs) == b""
    # Then user messages, both ways on the one connection.
    ours.send(message(b"there"), 1)
    theirs.send(message(b"back"), 2)
    assert theirs.receive(out(ours)) == [UserMessagesReceived(1, [message(b"there")])]
    assert ours.receive(out(theirs)) == [UserMessagesReceived(1, [message(b"back")])]


@pytest.mark.spec("QQB-2.2-1", "QQB-2.2.2-1", "QQB-2.2.3-1", "QQB-2.2.3.1-7", "QQB-2.2.6-1")
def test_the_documents_example_is_answered_byte_for_byte() -> None:
    """4.1.3 to 4.1.8: the same bytes except for GUIDs and one reserved byte.

    Windows does not set that byte.
    """

    def same(packet: bytes) -> bytes:
        return packet[:1] + b"\0" + packet[2:]

    clock = Clock()
    own = guid_from_bytes(FRAMES[3][36:52])
    session = Session.accept(own_guid=own, settings=SETTINGS, monotonic=clock, admit=lambda _: True)
    assert session.receive(FRAMES[3]) == []
    assert out(session) == same(FRAMES[4][:20] + FRAMES[3][20:52] + FRAMES[4][52:])
    assert session.receive(FRAMES[5]) == [SessionOpened()]
    assert out(session) == same(FRAMES[6])
    assert session.receive(FRAMES[7]) == [UserMessagesReceived(1, [FRAMES[7]])]
    session.allow_acknowledgment(1)
    clock.now += 60.0
    session.on_timer()
    assert out(session) == same(FRAMES[8])


@pytest.mark.spec("QQB-2.2-1", "QQB-2.2.1-1", "QQB-2.2.2.1-1", "QQB-2.2.3.1-1")
def test_our_packets_byte_by_byte() -> None:
    clock = Clock(0x0102 / 1000)
    session = initiator(clock, THEIRS)
    request = out(session)
    assert request[:60] == bytes.fromhex(
        "10000b00 4c494f52 3c020000 ffffffff 0000 0200"
        "11111111222233334444555555555555 aaaaaaaabbbbccccddddeeeeeeeeeeee 02010000 1003 0000".replace(" ", "")
    )
    assert len(request) == 572
    session.receive(ec(time_stamp=0x0102 - 0x100))
    assert out(session) == bytes.fromhex(
        "10000b00 4c494f52 20000000 ffffffff 0000 0300 00080000 204e0000 0000 4000".replace(" ", "")
    )


def test_packets_that_come_together_are_taken_one_by_one() -> None:
    """The acceptor may send as soon as it has answered.

    So its messages come with the last packet of the handshake.
    """
    pair_clock = Clock()
    ours, theirs = initiator(pair_clock), acceptor(pair_clock)
    theirs.receive(out(ours))
    ours.receive(out(theirs))
    theirs.receive(out(ours))
    theirs.send(message(), "entry")
    assert ours.receive(out(theirs)) == [SessionOpened(), UserMessagesReceived(1, [message()])]


# The table


STATES = [state for state in SessionState if state is not SessionState.CLOSED]
SAMPLES = {
    PacketKind.ESTABLISH_CONNECTION: ec(),
    PacketKind.CONNECTION_PARAMETERS: cp(),
    PacketKind.SESSION_ACK: session_ack(SessionHeader(0, 0, 0, 0, 0)),
    PacketKind.USER_MESSAGE: message(),
}


def in_state(state: SessionState) -> Session:
    if state is SessionState.WAITING_EC_MSG:
        return acceptor(Clock())
    if state is SessionState.WAITING_CP_MSG:
        return waiting_for_parameters()
    session = waiting_for_answer()
    if state is not SessionState.WAITING_ECR_MSG:
        session.receive(ec())
        out(session)
    if state is SessionState.OPEN:
        session.receive(cp())
    return session


@pytest.mark.spec(
    "QQB-3.1.5.3-1", "QQB-3.1.5.4-1", "QQB-3.1.5.5-1", "QQB-3.1.1.1.1.1-1", "QQB-3.1.1.1.1.2-1", "QQB-2.1.1-3"
)
@pytest.mark.parametrize(("state", "kind"), [*itertools.product(STATES, PacketKind)])
def test_every_packet_in_every_state(state: SessionState, kind: PacketKind) -> None:
    """A packet that the table does not name closes the session: no delivery and no answer."""
    session = in_state(state)
    assert session.state is state
    table = ACCEPTOR if state in (SessionState.WAITING_EC_MSG, SessionState.WAITING_CP_MSG) else INITIATOR
    expected = table.get((state, kind))
    allowed = {
        (SessionState.WAITING_EC_MSG, PacketKind.ESTABLISH_CONNECTION),
        (SessionState.WAITING_ECR_MSG, PacketKind.ESTABLISH_CONNECTION),
        (SessionState.WAITING_CP_MSG, PacketKind.CONNECTION_PARAMETERS),
        (SessionState.WAITING_CPR_MSG, PacketKind.CONNECTION_PARAMETERS),
        (SessionState.OPEN, PacketKind.SESSION_ACK),
        (SessionState.OPEN, PacketKind.USER_MESSAGE),
    }
    assert (expected is not None) is ((state, kind) in allowed)
    if expected is None:
        assert kind.value in closed_by(session, SAMPLES[kind])
        assert out(session) == b""
    else:
        session.receive(SAMPLES[kind])
        assert session.state is expected


def test_a_closed_session_takes_nothing_and_gives_nothing() -> None:
    session = in_state(SessionState.OPEN)
    assert session.close("enough") == [SessionClosed("enough", is_error=False)]
    assert session.close("again") == session.end_of_stream() == session.on_timer() == session.receive(message()) == []
    session.allow_acknowledgment(0)
    session.pause()
    assert session.room == 0
    with pytest.raises(RuntimeError, match="CLOSED"):
        session.send(message(), None)
    assert out(session) == b""


@pytest.mark.spec("QQB-2.2.1-2", "QQB-3.1.5.1.1-1")
@pytest.mark.parametrize("packet_type", [0, *range(4, 16)])
@pytest.mark.parametrize("size", [32, 36, 572])
def test_an_unknown_packet_type_closes_the_session(packet_type: int, size: int) -> None:
    packet = {32: cp(), 36: SAMPLES[PacketKind.SESSION_ACK], 572: ec()}[size]
    packet = packet[:18] + bytes((packet_type,)) + packet[19:]
    for state in STATES:
        assert f"PT: {packet_type} is not" in closed_by(in_state(state), packet)


@pytest.mark.spec("QQB-3.1.5.1.1-1")
def test_size_and_sh_must_fit_the_packet_type() -> None:
    for packet_type, size in ((1, 32), (1, 572), (2, 32), (2, 36), (3, 36), (3, 572)):
        packet = {32: cp(), 36: SAMPLES[PacketKind.SESSION_ACK], 572: ec()}[size]
        packet = packet[:18] + bytes((packet_type,)) + packet[19:]
        assert "PacketSize" in closed_by(in_state(SessionState.OPEN), packet)
    ack = SAMPLES[PacketKind.SESSION_ACK]
    assert "SH: 0" in closed_by(in_state(SessionState.OPEN), ack[:2] + b"\x0b" + ack[3:])
    assert "SH: 1" in closed_by(acceptor(Clock()), ec()[:2] + b"\x1b" + ec()[3:])


@pytest.mark.spec("QQB-2.2.1-1")
def test_reserved_fields_and_bits_are_ignored() -> None:
    """2.2.1: Reserved and bits 5 to 15 of Flags; 2.2.2.1, 2.2.3.1: the Reserved words."""
    session = acceptor(Clock())
    packet = ec(operating_system=0xF800 | RE)
    packet = packet[:16] + b"\xaa\xbb\xe2\xff" + packet[20:58] + b"\xcc\xdd" + packet[60:]
    assert session.receive(packet) == []
    answer = out(session)
    assert answer[16:20] == b"\0\0\x02\0"
    assert answer[56:60] == bytes((RE, 0, 0, 0))
    packet = cp()
    assert session.receive(packet[:16] + b"\xaa\xbb\xe3\xff" + packet[20:28] + b"\xee\xff" + packet[30:]) == [
        SessionOpened()
    ]
    assert out(session)[28:30] == b"\0\0"


@pytest.mark.spec("QQB-2.2.1-3")
def test_a_session_ack_never_says_refused() -> None:
    pair = Pair()
    pair.ours.send(message(), 1)
    pair.exchange()
    pair.theirs.allow_acknowledgment(1)
    pair.theirs.pause()
    (packet,) = split(out(pair.theirs))
    assert packet[18:20] == b"\x01\0"
    assert "CS: set in a packet SessionAck" in closed_by(pair.ours, packet[:18] + b"\x11" + packet[19:])


# EstablishConnection, request


@pytest.mark.spec("QQB-3.1.5.2.3-1", "QQB-2.2.3.1-3", "QQB-2.2.3.1-4", "QQB-2.2.3.1-5", "QQB-2.2.3.1-6")
@pytest.mark.parametrize("remote_guid", [GUID_NULL, THEIRS])
@pytest.mark.parametrize("was_pinged", [False, True])
@pytest.mark.parametrize("is_server_class", [False, True])
def test_the_request(remote_guid: UUID, was_pinged: bool, is_server_class: bool) -> None:
    """3.1.5.2.3; TimeStamp is in milliseconds, 32 bits of them."""
    clock = Clock(0x1_0000_0005 / 1000)
    packet = out(initiator(clock, remote_guid, was_pinged=was_pinged, is_server_class=is_server_class))
    assert packet[2] & 0x08
    internal, header = establish(packet)
    assert internal.flags == 2
    assert (header.client_guid, header.server_guid, header.time_stamp) == (OURS, remote_guid, 5)
    assert header.operating_system == RE | (0 if was_pinged else SE) | (OS if is_server_class else 0)
    assert header.reserved == 0


@pytest.mark.spec("QQB-3.1.5.3.1-1", "QQB-3.1.5.3.1-2", "QQB-2.2.3.1-2", "QQB-2.2.3.1-3")
@pytest.mark.parametrize("server", [GUID_NULL, THEIRS])
def test_the_answer_to_a_request_for_us(server: UUID) -> None:
    """Zeros are accepted, despite 2.2.1 (DECISIONS)."""
    session = acceptor(Clock())
    assert session.receive(ec(OTHER, server, 0xDEAD_BEEF)) == []
    internal, header = establish(out(session))
    assert internal.flags == 2
    assert (header.client_guid, header.server_guid, header.time_stamp) == (OTHER, THEIRS, 0xDEAD_BEEF)
    assert session.remote_qm_guid == OTHER
    assert session.state is SessionState.WAITING_CP_MSG


@pytest.mark.spec("QQB-3.1.5.3.1-2", "QQB-3.1.1.1.1.2-1")
def test_a_request_for_somebody_else_is_answered_and_refused() -> None:
    session = acceptor(Clock())
    reason = closed_by(session, ec(OTHER, OURS, 77, RE | SE))
    assert f"ServerGuid: {OURS} is not {THEIRS}" in reason
    internal, header = establish(out(session))
    assert internal.flags == 0x12
    assert (header.client_guid, header.server_guid, header.time_stamp) == (OTHER, THEIRS, 77)
    assert header.operating_system == RE | SE


def test_who_is_not_admitted_is_told_so() -> None:
    """2.2.1: CS reports a rejected connection.

    It "SHOULD be set when the connection violates server policies such as connection quotas".
    """
    asked = []

    def nobody(header: EstablishConnectionHeader) -> bool:
        asked.append(header.client_guid)
        return False

    session = acceptor(Clock(), admit=nobody)
    assert "admitted" in closed_by(session, ec(OTHER))
    assert establish(out(session))[0].is_refused
    assert asked == [OTHER]


@pytest.mark.spec("QQB-2.2.3.1-5", "QQB-2.2.3.1-6", "QQB-2.2.3.1-4")
@pytest.mark.parametrize("bits", range(8))
def test_the_answer_has_the_requests_session_bit(bits: int) -> None:
    """SE is returned as it was sent, and OS, which describes the initiator; QS changes nothing."""
    session = acceptor(Clock())
    session.receive(ec(operating_system=RE | bits << 8))
    header = establish(out(session))[1]
    assert header.operating_system == RE | bits << 8 & (SE | OS)
    assert header.was_not_pinged is bool(bits & 1)
    assert session.receive(cp()) == [SessionOpened()]


@pytest.mark.spec("QQB-2.2.3.1-7")
def test_the_answers_padding() -> None:
    """512 times 0x5A; the request's may be anything."""
    session = acceptor(Clock())
    assert session.receive(ec(padding=bytes(range(256)) * 2)) == []
    packet = out(session)
    assert packet[60:] == b"\x5a" * 512


def test_a_request_that_refuses_itself_is_malformed() -> None:
    assert "CS: set in a request" in closed_by(acceptor(Clock()), ec(refused=True))


# EstablishConnection, answer


@pytest.mark.spec("QQB-3.1.5.3.2-1", "QQB-2.2.1-3")
def test_an_answer_that_is_not_for_us_or_not_from_whom_we_called_closes_the_session() -> None:
    assert f"ClientGuid: {OTHER}" in closed_by(waiting_for_answer(), ec(client=OTHER))
    assert f"ServerGuid: {OTHER}" in closed_by(waiting_for_answer(), ec(server=OTHER))
    assert f"ServerGuid: {GUID_NULL}" in closed_by(waiting_for_answer(), ec(server=GUID_NULL))
    refused = waiting_for_answer()
    assert "CS: set" in closed_by(refused, ec(refused=True))
    assert out(refused) == b""


@pytest.mark.spec("QQB-3.1.5.3.2-2")
def test_at_a_direct_address_whoever_answers_is_the_peer() -> None:
    session = waiting_for_answer(GUID_NULL)
    assert session.receive(ec(server=OTHER)) == []
    assert session.remote_qm_guid == OTHER
    assert session.state is SessionState.WAITING_CPR_MSG
    assert "ClientGuid" in closed_by(waiting_for_answer(GUID_NULL), ec(client=OTHER))


@pytest.mark.spec("QQB-3.1.5.3.2-3")
@pytest.mark.parametrize(
    ("round_trip", "timeout"),
    [(0, 500), (62, 500), (63, 504), (187, 1496), (14_999, 119_992), (15_000, 120_000), (59_000, 120_000)],
)
def test_recoverable_messages_are_acknowledged_after_eight_round_trips(round_trip: int, timeout: int) -> None:
    """Between 500 and 120,000 ms. The captured 1,496 ms are a round trip of 187."""
    # The clock's 32 bits of milliseconds go over while the answer is on its way.
    clock = Clock((0x1_0000_0000 - 10) / 1000)
    session = initiator(clock, THEIRS)
    sent = establish(out(session))[1].time_stamp
    assert session.recoverable_ack_send_timeout == 0xFFFF_FFFF
    clock.now = (0x1_0000_0000 - 10 + round_trip + 0.5) / 1000
    assert session.receive(ec(time_stamp=sent)) == []
    assert session.recoverable_ack_send_timeout == timeout
    assert parameters(out(session)).recoverable_ack_timeout == timeout


@pytest.mark.spec("QQB-3.1.5.3.2-4", "QQB-3.1.3.2-6", "QQB-3.1.3.2-7")
@pytest.mark.parametrize(
    ("settings", "ack_timeout", "window"),
    [
        (TransferSettings(), 20_000, 64),
        (TransferSettings(ack_wait_timeout=120.0, window_size=1), 120_000, 1),
        (TransferSettings(round_trip_delay=2.5, window_size=0xFFFF), 22_500, 0xFFFF),
        (TransferSettings(ack_wait_timeout=100.0, round_trip_delay=60.0), 120_000, 64),
    ],
)
def test_the_parameters_proposed(settings: TransferSettings, ack_timeout: int, window: int) -> None:
    session = initiator(Clock(), THEIRS, settings)
    time_stamp = establish(out(session))[1].time_stamp
    session.receive(ec(time_stamp=time_stamp))
    packet = out(session)
    assert packet[2] & 0x08
    assert packet[16:20] == b"\0\0\x03\0"
    assert parameters(packet) == ConnectionParametersHeader(500, ack_timeout, window)


# ConnectionParameters


@pytest.mark.spec("QQB-3.1.5.4.1-1", "QQB-3.1.5.4.1-2")
def test_the_acceptor_takes_the_times_and_answers_with_its_own_window() -> None:
    session = acceptor(Clock(), TransferSettings(window_size=7))
    session.receive(ec())
    out(session)
    assert session.receive(cp(ConnectionParametersHeader(1234, 56_789, 10))) == [SessionOpened()]
    packet = out(session)
    assert packet[16:20] == b"\0\0\x03\0"
    assert parameters(packet) == ConnectionParametersHeader(1234, 56_789, 7)
    assert (session.recoverable_ack_send_timeout, session.ack_wait_timeout) == (1234, 56_789)
    assert (session.received_window_size, session.window_size) == (10, 7)


@pytest.mark.spec("QQB-3.1.5.4.2-1")
def test_the_initiator_takes_the_acceptors_window() -> None:
    session = waiting_for_answer()
    session.receive(ec(time_stamp=1_000_000))
    out(session)
    assert session.receive(cp(ConnectionParametersHeader(9999, 99_999, 3))) == [SessionOpened()]
    assert session.received_window_size == 3
    assert session.ack_wait_timeout == 20_000
    assert session.state is SessionState.OPEN
    assert out(session) == b""


@pytest.mark.spec("QQB-2.2.1-5")
def test_refused_parameters_close_the_session() -> None:
    assert "CS: set" in closed_by(waiting_for_parameters(), cp(refused=True))
    session = in_state(SessionState.WAITING_CPR_MSG)
    assert "CS: set" in closed_by(session, cp(refused=True))


@pytest.mark.spec("QQB-2.2.2.1-2")
@pytest.mark.parametrize("state", [SessionState.WAITING_CP_MSG, SessionState.WAITING_CPR_MSG])
def test_times_out_of_range_are_malformed(state: SessionState) -> None:
    for name, lowest, highest in (
        ("recoverable_ack_timeout", 0x1F4, 0x1D4C0),
        ("ack_timeout", 0x4E20, 0x1D4C0),
    ):
        for value in (lowest, highest):
            assert in_state(state).receive(cp(replace(PARAMETERS, **{name: value}))) == [SessionOpened()]
        for value in (0, lowest - 1, highest + 1, 0xFFFF_FFFF):
            assert f": {value} is not in" in closed_by(in_state(state), cp(replace(PARAMETERS, **{name: value})))


@pytest.mark.spec("QQB-2.2.2.1-3")
@pytest.mark.parametrize("state", [SessionState.WAITING_CP_MSG, SessionState.WAITING_CPR_MSG])
@pytest.mark.parametrize(("window", "room"), [(0, 1), (1, 1), (2, 2), (64, 64), (65, 64), (0xFFFF, 64)])
def test_any_window_is_taken_and_none_wedges_the_sender(state: SessionState, window: int, room: int) -> None:
    session = in_state(state)
    session.receive(cp(replace(PARAMETERS, window_size=window)))
    assert session.room == room


# Time


@pytest.mark.spec("QQB-3.1.2.1-1", "QQB-3.1.2.1-2", "QQB-3.1.6.6-1", "QQB-3.1.5.10-1")
@pytest.mark.parametrize(
    ("settings", "seconds"), [(TransferSettings(), 60.0), (TransferSettings(round_trip_delay=3.0), 66.0)]
)
def test_a_handshake_that_takes_too_long_closes_the_session(settings: TransferSettings, seconds: float) -> None:
    """60 s and two round trips, in each of the four states it can hang in."""
    clock = Clock()
    sessions = [initiator(clock, THEIRS, settings) for _ in range(2)] + [acceptor(clock, settings) for _ in range(2)]
    sessions[1].receive(ec())
    sessions[3].receive(ec())
    clock.now += seconds - 0.001
    for session in sessions:
        assert session.next_deadline() == pytest.approx(clock.now + 0.001)
        assert session.on_timer() == []
    clock.now += 0.001
    for session in sessions:
        (event,) = session.on_timer()
        assert isinstance(event, SessionClosed)
        assert event.is_error
        assert "handshake" in event.reason
        assert session.state is SessionState.CLOSED
        assert session.next_deadline() == NEVER


@pytest.mark.spec("QQB-3.1.2.1-1", "QQB-3.1.5.4.1-2", "QQB-3.1.5.4.2-1")
def test_an_open_session_is_not_timed_by_its_handshake() -> None:
    pair = Pair()
    pair.advance(61.0)
    assert pair.ours.on_timer() == pair.theirs.on_timer() == []
    assert pair.ours.state is pair.theirs.state is SessionState.OPEN


def test_the_time_of_a_round_trip_is_reckoned_in_32_bits() -> None:
    assert handshake.recoverable_ack_send_timeout(5, 0xFFFF_FFFF - 94) == 800
