"""Ping: requests, responses, the timer, and both on UDP (MS-MQQB 2.1.2, 2.2.7, 3.1.7.6-3.1.7.9)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from lanner.host.budget import Rate
from lanner.model.enums import OperatingSystemType
from lanner.transfer.ping import (
    PING_RESPONSE_TIMEOUT,
    Ping,
    PingInitiator,
    PingService,
    answer_ping,
    ping,
    pings_first,
    start_ping_service,
)
from lanner.transfer.settings import TransferSettings
from lanner.wire.ping_packet import PingPacket
from lanner.wire.reader import Reader

OWN = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER = UUID("11111111-2222-3333-4444-555555555555")
RC, RF = 1, 2
Run = Callable[[Coroutine[Any, Any, Any]], Any]
SERVER_CLASS = (OperatingSystemType.WIN_SERVER, OperatingSystemType.WIN_ENT)


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


def an_initiator(
    clock: list[float], operating_system_type: OperatingSystemType = OperatingSystemType.WIN_SERVER
) -> PingInitiator:
    return PingInitiator(OWN, operating_system_type, lambda: clock[0])


def response_to(ping: Ping, *, flags: int = 0, cookie_offset: int = 0) -> bytes:
    cookie = int.from_bytes(ping.request[4:8], "little") + cookie_offset
    return PingPacket(flags, cookie, OTHER).pack()


def statuses_of(*pings: Ping) -> list[bool | None]:
    return [ping.status for ping in pings]


def accept(_guid: UUID) -> bool:
    return False


def frame(number: int) -> bytes:
    frames = json.loads((Path(__file__).parent.parent / "data" / "mqqb_frames.json").read_text())["frames"]
    return bytes.fromhex(frames[number - 1]["hex"])


# The request
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-2.2.7-1")
def test_a_request_is_24_bytes_and_names_who_made_it(clock: list[float]) -> None:
    """2.2.7: Flags, Signature 0x5548, Cookie, QMGuid in MS-DTYP order."""
    assert an_initiator(clock).begin().request == bytes.fromhex(
        "0000 4855 01000000 33221100 5544 7766 8899aabbccddeeff"
    )


@pytest.mark.spec("QQB-2.2.7-1")
def test_a_response_is_24_bytes_and_names_who_made_it(clock: list[float]) -> None:
    request = an_initiator(clock).begin().request
    assert answer_ping(request, OTHER, accept) == bytes.fromhex(
        "0000 4855 01000000 11111111 2222 3333 4444555555555555"
    )


@pytest.mark.spec("QQB-2.2.7-3")
@pytest.mark.parametrize("operating_system_type", list(OperatingSystemType))
def test_a_request_says_whether_a_client_asks(clock: list[float], operating_system_type: OperatingSystemType) -> None:
    """2.2.7 RC: set unless OperatingSystemType is WinServer or WinEnt. The response repeats it."""
    request = an_initiator(clock, operating_system_type).begin().request
    expected = 0 if operating_system_type in SERVER_CLASS else RC
    assert request[:2] == bytes((expected, 0))
    response = answer_ping(request, OTHER, accept)
    assert response is not None
    assert response[:2] == bytes((expected, 0))


@pytest.mark.spec("QQB-3.1.7.6-1")
def test_each_request_has_the_next_cookie(clock: list[float]) -> None:
    """3.1.7.6: PingCookie, 0 at first, is incremented before it is sent; 32 bits."""
    initiator = an_initiator(clock)
    assert initiator.ping_cookie == 0
    cookies = [PingPacket.unpack(Reader(initiator.begin().request)).cookie for _ in range(3)]
    assert cookies == [1, 2, 3]
    initiator.ping_cookie = 0xFFFF_FFFF
    assert initiator.begin().request[4:8] == bytes(4)


@pytest.mark.spec("QQB-3.1.5.2.2-1")
@pytest.mark.parametrize(
    ("is_wanted", "is_retry", "expected"), [(False, False, False), (True, False, True), (True, True, False)]
)
def test_a_retry_is_not_preceded_by_a_ping(*, is_wanted: bool, is_retry: bool, expected: bool) -> None:
    """3.1.5.2.2: MAY, if the session is not created for a Session Retry Connect Timer Event."""
    settings = TransferSettings(pings_before_connecting=is_wanted)
    assert pings_first(settings, is_retry=is_retry) is expected
    assert not pings_first(TransferSettings(), is_retry=False)


# The answer
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-2.2.7-4")
def test_a_response_says_whether_a_session_of_this_initiator_would_be_refused(clock: list[float]) -> None:
    """2.2.7 RF: the answer for the initiator's GUID at that time.

    A request has it clear.
    """
    request = an_initiator(clock, OperatingSystemType.WIN_CLIENT).begin().request
    assert request[0] & RF == 0
    refused: set[UUID] = set()
    flags = []
    for full in (False, True):
        if full:
            refused.add(OWN)
        response = answer_ping(request, OTHER, refused.__contains__)
        assert response is not None
        flags.append(response[0])
    assert flags == [RC, RC | RF]


@pytest.mark.spec("QQB-2.2.7-5")
def test_unused_flags_mean_nothing() -> None:
    """Product note 19: Windows leaves unused flags uninitialized.

    The captured request has 0x7D01, the response 0xB295.
    """
    request = frame(1)
    assert request[:2] == bytes.fromhex("017d")
    response = answer_ping(request, OTHER, accept)
    assert response is not None
    assert response[:2] == bytes((RC, 0))
    # RF may be among the garbage of a request: only RC is copied.
    response = answer_ping(b"\xfe\xff" + request[2:], OTHER, accept)
    assert response is not None
    assert response[:2] == bytes(2)


@pytest.mark.spec("QQB-2.2.7-5")
def test_garbage_in_a_response_neither_refuses_nor_accepts(clock: list[float]) -> None:
    for flags, expected in ((0xB295, True), (0xFFFD, True), (0xFFFE, False)):
        asked = an_initiator(clock).begin()
        asked.receive(response_to(asked, flags=flags))
        assert asked.status is expected, hex(flags)


@pytest.mark.spec("QQB-2.2.7-2")
@pytest.mark.parametrize("signature", [0x0000, 0x5547, 0x4855, 0xFFFF])
def test_another_signature_gets_no_answer(clock: list[float], signature: int) -> None:
    asked = an_initiator(clock).begin()
    good = response_to(asked)
    bad = good[:2] + signature.to_bytes(2, "little") + good[4:]
    assert answer_ping(bad, OTHER, accept) is None
    asked.receive(bad)
    assert asked.status is None
    asked.receive(good)
    assert asked.status is True


@pytest.mark.spec("QQB-2.2.7-6")
def test_a_response_repeats_the_cookie() -> None:
    for cookie in (0, 1, 0x8000_0001, 0xFFFF_FFFF):
        response = answer_ping(PingPacket(0, cookie, OWN).pack(), OTHER, accept)
        assert response is not None
        assert response[4:8] == cookie.to_bytes(4, "little")


@given(st.binary(max_size=64))
def test_no_answer_is_longer_than_its_question(datagram: bytes) -> None:
    response = answer_ping(datagram, OTHER, accept)
    assert response is None or len(response) == 24 <= len(datagram)
    signed = datagram[:2] + b"\x48\x55" + datagram[4:]
    assert (answer_ping(signed, OTHER, accept) is not None) == (len(signed) >= 24)


# The response
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.6-1")
@pytest.mark.parametrize(("flags", "expected"), [(0, True), (RC, True), (RF, False), (RC | RF, False)])
def test_a_response_decides_and_cancels_the_timer(clock: list[float], flags: int, expected: bool) -> None:
    asked = an_initiator(clock).begin()
    assert asked.next_deadline() is not None
    asked.receive(response_to(asked, flags=flags))
    assert asked.status is expected
    assert asked.next_deadline() is None
    clock[0] += 60
    asked.on_timer()
    assert asked.status is expected


@pytest.mark.spec("QQB-3.1.2.9-1", "QQB-3.1.7.6-1")
def test_each_request_waits_one_second(clock: list[float]) -> None:
    """3.1.2.9: a new instance of the timer for each request, always of one second."""
    initiator = an_initiator(clock)
    first = initiator.begin()
    clock[0] += 0.75
    second = initiator.begin()
    assert (first.next_deadline(), second.next_deadline()) == (101.0, 101.75)
    clock[0] = 100.999
    first.on_timer()
    assert statuses_of(first, second) == [None, None]
    clock[0] = 101.0
    first.on_timer()
    second.on_timer()
    assert statuses_of(first, second) == [False, None]
    second.receive(response_to(second))
    assert statuses_of(first, second) == [False, True]


@pytest.mark.spec("QQB-2.2.7-6")
@pytest.mark.parametrize("offset", [-1, 1, 1 << 31])
def test_a_response_to_another_request_is_disregarded(clock: list[float], offset: int) -> None:
    initiator = an_initiator(clock)
    initiator.begin()
    asked = initiator.begin()
    asked.receive(response_to(asked, cookie_offset=offset))
    assert asked.status is None
    asked.receive(response_to(asked))
    assert asked.status is True


@pytest.mark.spec("QQB-2.2.7-6")
def test_a_ping_to_another_computer_meanwhile_does_not_make_the_first_fail(clock: list[float]) -> None:
    """DECISIONS: the text compares a response with the newest request of all."""
    initiator = an_initiator(clock)
    first, second = initiator.begin(), initiator.begin()
    first.receive(response_to(second))
    assert statuses_of(first, second) == [None, None]
    first.receive(response_to(first))
    assert statuses_of(first, second) == [True, None]


@pytest.mark.spec("QQB-3.1.7.8-1")
def test_a_response_after_the_end_has_no_effect(clock: list[float]) -> None:
    """3.1.7.8: ignored unless a request waits, whether an answer or the timer has ended it."""
    initiator = an_initiator(clock)
    answered, late = initiator.begin(), initiator.begin()
    answered.receive(response_to(answered, flags=RF))
    answered.receive(response_to(answered))
    assert answered.status is False
    clock[0] += PING_RESPONSE_TIMEOUT
    # The timer has expired even if nothing has run it.
    late.receive(response_to(late))
    assert late.status is False


# UDP
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """A plain socket of another computer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.bind(("127.0.0.3", 0))
        yield sock


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """The daemon runs on uvloop, whose datagrams are not asyncio's."""
    runner: Run = request.param
    return runner


async def a_service(
    clock: list[float], refused: set[tuple[UUID, str]] | None = None, host: str = "127.0.0.1"
) -> PingService:
    settings = TransferSettings(answers_pings=True, ping_port=0)

    def refuses(guid: UUID, address: str) -> bool:
        return (guid, address) in (refused or ())

    service = await start_ping_service(settings, host, OTHER, refuses, lambda: clock[0])
    assert service is not None
    return service


@pytest.mark.spec("QQB-2.1.2-2", "QQB-2.1.2-3")
def test_the_service_answers_where_the_request_came_from(clock: list[float], peer: socket.socket, run: Run) -> None:
    async def talk() -> tuple[bytes, object, object]:
        service = await a_service(clock)
        try:
            peer.sendto(b"no ping", service.address)
            peer.sendto(PingPacket(0, 7, OWN).pack() + b"more", service.address)
            return *await asyncio.to_thread(peer.recvfrom, 100), service.address
        finally:
            service.close()

    data, source, address = run(talk())
    assert data == PingPacket(0, 7, OTHER).pack()
    assert source == address


@pytest.mark.spec("QQB-2.1.2-3")
def test_pings_are_answered_only_if_the_settings_say_so(clock: list[float]) -> None:
    """Product notes 9 to 11: EnablePingService is off since Vista.

    MsmqIpPingPort is 3527 by default.
    """
    settings = TransferSettings()
    assert (settings.answers_pings, settings.ping_port) == (False, 3527)
    assert asyncio.run(start_ping_service(settings, "127.0.0.1", OTHER, lambda *_: False, lambda: clock[0])) is None


@pytest.mark.spec("QQB-2.1.2-1", "QQB-3.1.7.6-1")
def test_the_initiator_takes_the_response_at_its_source_port(clock: list[float], peer: socket.socket, run: Run) -> None:
    async def talk(flags: int) -> bool:
        settings = TransferSettings(ping_port=peer.getsockname()[1])
        result = asyncio.create_task(ping(an_initiator(clock), "127.0.0.3", settings, "127.0.0.2"))
        request, source = await asyncio.to_thread(peer.recvfrom, 100)
        assert source[0] == "127.0.0.2"
        assert source[1] >= 1024, "one that the system has chosen"
        # Neither a stranger's datagram nor one with another cookie ends it.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.sendto(answer_to(request, flags ^ RF), source)
        peer.sendto(PingPacket(0, 99, OTHER).pack(), source)
        peer.sendto(answer_to(request, flags), source)
        return await result

    def answer_to(request: bytes, flags: int) -> bytes:
        return PingPacket(flags, int.from_bytes(request[4:8], "little"), OTHER).pack()

    assert run(talk(0)) is True
    assert run(talk(RF)) is False


def has_ipv6_loopback() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.bind(("::1", 0))
        return True
    return False


@pytest.mark.parametrize(
    "host", ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6_loopback(), reason="no IPv6"))]
)
def test_two_ends_understand_each_other(clock: list[float], run: Run, host: str) -> None:
    async def talk() -> list[bool]:
        refused: set[tuple[UUID, str]] = set()
        service = await a_service(clock, refused, host)
        try:
            initiator = an_initiator(clock)
            settings = TransferSettings(ping_port=service.address[1])
            both = await asyncio.gather(*(ping(initiator, host, settings, "127.0.0.1") for _ in range(2)))
            refused.add((OWN, host))
            return [*both, await ping(initiator, host, settings)]
        finally:
            service.close()

    assert run(talk()) == [True, True, False]


@pytest.mark.spec("QQB-3.1.7.6-1")
def test_silence_is_no(peer: socket.socket, run: Run) -> None:
    """The clock has passed the second before the wait begins."""
    times = iter([0.0])

    async def talk() -> bool:
        initiator = PingInitiator(OWN, OperatingSystemType.WIN_SERVER, lambda: next(times, 1.0))
        return await ping(initiator, "127.0.0.3", TransferSettings(ping_port=peer.getsockname()[1]))

    assert run(talk()) is False


def test_a_port_where_nobody_listens_is_no(clock: list[float], peer: socket.socket, run: Run) -> None:
    port = peer.getsockname()[1]
    peer.close()
    settings = TransferSettings(ping_port=port)
    assert run(ping(an_initiator(clock), "127.0.0.3", settings)) is False
    # An address that cannot be sent to at all.
    assert run(ping(an_initiator(clock), "127.0.0.3", settings, "192.0.2.1")) is False


def test_two_services_do_not_answer_each_other_forever(clock: list[float]) -> None:
    """A response looks like a request.

    Of the packets from its own port number, the service answers one per second.
    """

    class Transport(asyncio.DatagramTransport):
        def __init__(self) -> None:
            super().__init__({"sockname": ("127.0.0.1", 3527)})
            self.sent: list[object] = []

        def sendto(self, data: object, addr: object = None) -> None:
            self.sent.append(addr)

        def is_closing(self) -> bool:
            return False

    transport = Transport()
    service = PingService(OWN, lambda *_: False, lambda: clock[0], Rate("pings", 100, 100, lambda: clock[0]))
    service.connection_made(transport)
    datagram = PingPacket(0, 1, OTHER).pack()
    for _ in range(5):
        service.datagram_received(datagram, ("127.0.0.2", 3527))
        service.datagram_received(datagram, ("127.0.0.2", 50000))
    assert transport.sent.count(("127.0.0.2", 3527)) == 1
    assert transport.sent.count(("127.0.0.2", 50000)) == 5
    clock[0] += 1
    service.datagram_received(datagram, ("127.0.0.2", 3527))
    assert transport.sent.count(("127.0.0.2", 3527)) == 2
