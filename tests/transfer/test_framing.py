"""Cutting a stream into packets (MS-MQQB 2.1.1, 3.1.5.1.2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.transfer.framing import PacketStream
from lanner.wire import layout as at
from lanner.wire.base_header import BaseHeader
from lanner.wire.session_header import SessionHeader
from tests.transfer.pairs import FRAMES, message, session_ack, with_session_header

HEADER = SessionHeader(1, 0, 0, 1, 0)
PACKETS = [message(b"a"), session_ack(HEADER), with_session_header(message(b"bb"), HEADER), FRAMES[7], FRAMES[8]]


class Stream(PacketStream):
    """A stream without a judge of its packets, so that none has a shape."""

    def one_by_one(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        for packets, is_equal in self.runs(data):
            assert not is_equal
            yield from packets


def stream(*, user_messages_allowed: bool = True) -> Stream:
    opened = Stream()
    opened.user_messages_allowed = user_messages_allowed
    return opened


def header(size: int, flags: int = 3) -> bytes:
    return BaseHeader(flags, size).pack()


@pytest.mark.spec("MQMQ-2.2.19.1-5")
def test_packets_follow_each_other_without_a_gap() -> None:
    """PacketSize excludes the SessionHeader behind a UserMessage.

    It includes that of a SessionAck (DECISIONS).
    """
    assert list(stream().one_by_one(b"".join(PACKETS))) == PACKETS


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_taken_and_none_is_kept(view: type) -> None:
    buffer = bytearray(b"".join(PACKETS[:2]) + PACKETS[2][:50])
    packets = stream()
    taken = list(packets.one_by_one(memoryview(buffer) if view is memoryview else view(buffer)))
    buffer[:] = bytes(len(buffer))
    assert taken == PACKETS[:2]
    assert all(type(packet) is bytes for packet in taken)
    assert packets.is_cut
    assert list(packets.one_by_one(PACKETS[2][50:])) == PACKETS[2:3]
    assert not packets.is_cut


@given(st.lists(st.integers(0, sum(map(len, PACKETS))), max_size=8))
def test_cuts_anywhere_give_the_same_packets(cuts: list[int]) -> None:
    data = b"".join(PACKETS)
    packets = stream()
    places = [0, *sorted(cuts), len(data)]
    taken = [
        packet
        for start, end in itertools.pairwise(places)
        for packet in packets.one_by_one(memoryview(data)[start:end])
    ]
    assert taken == PACKETS


def test_one_byte_at_a_time_gives_the_same_packets() -> None:
    packets = stream()
    taken = [packet for byte in b"".join(PACKETS) for packet in packets.one_by_one(bytes((byte,)))]
    assert taken == PACKETS


@pytest.mark.spec("QQB-2.1.1-2", "QQB-3.1.5.1.2-1")
@pytest.mark.parametrize("offset", [0, 4, 5, 6, 7])
def test_a_unit_without_base_header_is_refused_by_its_first_16_bytes(offset: int) -> None:
    """3.1.5.1.2: VersionNumber 0x10 and the four bytes of the signature, nothing else."""
    for value in range(256):
        data = bytearray(header(at.MINIMUM_SIZE))
        if data[offset] == value:
            continue
        data[offset] = value
        with pytest.raises(RemoteProtocolError, match="VersionNumber" if offset == 0 else "Signature"):
            list(stream().one_by_one(data))


@pytest.mark.spec("MQMQ-2.2.19.1-6")
@pytest.mark.parametrize("flags", [3, 0x13])
def test_the_size_of_a_user_message_is_judged_before_it_is_kept(flags: int) -> None:
    for size in (at.MINIMUM_SIZE, at.MAX_PACKET_SIZE):
        packets = stream()
        assert list(packets.one_by_one(header(size, flags))) == []
        assert packets.is_cut
    for size in (0, 15, 16, at.MINIMUM_SIZE - 1, at.MAX_PACKET_SIZE + 1, 0xFFFF_FFFF):
        with pytest.raises(RemoteProtocolError, match=r"BaseHeader\.PacketSize"):
            list(stream().one_by_one(header(size, flags)))
        cut = stream()
        assert list(cut.one_by_one(header(size, flags)[:9])) == []
        with pytest.raises(RemoteProtocolError, match=r"BaseHeader\.PacketSize"):
            list(cut.one_by_one(header(size, flags)[9:]))


@pytest.mark.spec("QQB-2.2.2-1", "QQB-2.2.3-1", "QQB-2.2.6-1")
def test_an_internal_packet_has_one_of_three_sizes() -> None:
    for size in range(16, 700):
        if size in (32, 36, 572):
            assert list(stream().one_by_one(header(size, 0x0B))) == []
        else:
            with pytest.raises(RemoteProtocolError, match=f"PacketSize: {size} of an internal packet"):
                list(stream().one_by_one(header(size, 0x0B)))


def test_a_user_message_is_refused_by_its_header_while_none_is_allowed() -> None:
    """A peer that has not finished the handshake cannot make us hold more than a packet of it."""
    with pytest.raises(RemoteProtocolError, match="not OPEN"):
        list(stream(user_messages_allowed=False).one_by_one(header(at.MAX_PACKET_SIZE)))
    assert list(stream(user_messages_allowed=False).one_by_one(FRAMES[3])) == [FRAMES[3]]


def test_good_packets_before_a_bad_one_are_given() -> None:
    packets = stream().one_by_one(PACKETS[0] + PACKETS[1] + b"GET / HTTP/1.1\r\n\r\n")
    assert [next(packets), next(packets)] == PACKETS[:2]
    with pytest.raises(RemoteProtocolError, match="VersionNumber"):
        next(packets)
