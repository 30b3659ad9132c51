"""Frames beside PDUs: how they are cut, sealed and limited (docs/protocol.md)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.rpc import frames
from lanner.rpc.frames import Entry, Frames, pack_entry, unpack_entries
from lanner.rpc.security import SecurityError

KEYS = bytes(range(64))
MAX_ENTRY = frames.MAX_FRAME - frames.ENTRY_SIZE
SEALED = pytest.mark.parametrize("keys", [b"", KEYS], ids=["plain", "sealed"])


def both(keys: bytes) -> tuple[Frames, Frames]:
    """Return the two ends of a connection."""
    first, second = keys[:32], keys[32:]
    return Frames(first, second), Frames(second, first)


def sent(side: Frames, *entries: bytes) -> bytes:
    pieces = [piece for entry in entries for piece in side.put(entry)]
    return b"".join(pieces + side.flush())


def taken(side: Frames, data: bytes) -> list[Entry]:
    position = 0
    while position < len(data):
        position = side.take(data, position)
    return [entry for content in side.received() for entry in unpack_entries(content)]


def with_size(frame: bytes, size: int) -> bytes:
    return frame[:4] + struct.pack("<I", size) + frame[8:]


@SEALED
@given(
    bodies=st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), max_size=6),
    cuts=st.lists(st.integers(1, 30), max_size=40),
)
def test_frames_come_whole_however_they_are_cut(keys: bytes, bodies: list[list[bytes]], cuts: list[int]) -> None:
    client, server = both(keys)
    stream = b""
    expected = []
    for number, group in enumerate(bodies):
        entries = [pack_entry(number, kind, (body,)) for kind, body in enumerate(group)]
        expected += [(number, kind, body) for kind, body in enumerate(group)]
        stream += sent(client, *entries)
    found = []
    while stream:
        size = cuts.pop() if cuts else len(stream)
        found += [(one.number, one.kind, bytes(one.body)) for one in taken(server, stream[:size])]
        stream = stream[size:]
    assert found == expected
    assert server.unfinished == 0


@SEALED
def test_the_octets_of_an_incomplete_frame_are_counted(keys: bytes) -> None:
    client, server = both(keys)
    frame = sent(client, pack_entry(1, 2, (b"hello",)))
    assert taken(server, frame[:3]) == []
    assert server.unfinished == 3
    assert taken(server, frame[3:-1]) == []
    assert server.unfinished == len(frame) - 1
    assert [bytes(entry.body) for entry in taken(server, frame[-1:])] == [b"hello"]
    assert server.unfinished == 0


@given(data=st.data())
def test_a_changed_frame_does_not_open(data: st.DataObject) -> None:
    client, server = both(KEYS)
    frame = bytearray(sent(client, pack_entry(1, 2, (b"hello",))))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = taken(server, bytes(frame))
    except (SecurityError, RemoteProtocolError):
        return
    # A size that was made larger: the frame waits for octets that never come.
    assert found == []
    assert server.unfinished == len(frame)


def test_a_frame_opens_once_in_its_place_and_direction_only() -> None:
    client, server = both(KEYS)
    first, second = (sent(client, pack_entry(number, 1, ())) for number in (1, 2))
    with pytest.raises(SecurityError):
        taken(both(KEYS)[1], second)
    with pytest.raises(SecurityError):
        taken(client, first)
    assert [entry.number for entry in taken(server, first)] == [1]
    with pytest.raises(SecurityError):
        taken(server, first)


def test_entries_of_one_turn_share_a_frame_up_to_its_limits() -> None:
    client, server = both(b"")
    small = pack_entry(1, 1, ())
    assert [*map(len, split(sent(client, *[small] * (frames.MAX_ENTRIES + 1))))] == [
        frames.HEADER_SIZE + frames.ENTRY_SIZE * frames.MAX_ENTRIES,
        frames.HEADER_SIZE + frames.ENTRY_SIZE,
    ]
    half = pack_entry(1, 1, (bytes(frames.MAX_SHARED // 2 - frames.ENTRY_SIZE),))
    assert len(split(sent(client, half, half))) == 1
    assert len(split(sent(client, half, half, small))) == 2
    assert len(taken(server, sent(client, half, half))) == 2


def split(stream: bytes) -> list[bytes]:
    found = []
    while stream:
        end = frames.HEADER_SIZE + int.from_bytes(stream[4:8], "little")
        found.append(stream[:end])
        stream = stream[end:]
    return found


@SEALED
def test_a_frame_has_a_largest_size(keys: bytes) -> None:
    client, server = both(keys)
    whole = sent(client, pack_entry(1, 1, (bytes(MAX_ENTRY),)))
    (entry,) = taken(server, whole)
    assert len(entry.body) == MAX_ENTRY
    tag = frames.TAG_SIZE if keys else 0
    header = whole[: frames.HEADER_SIZE]
    assert server.take(with_size(header, frames.MAX_FRAME + tag), 0) == frames.HEADER_SIZE
    for size in (frames.MAX_FRAME + tag + 1, tag, 0xFFFF_FFFF):
        with pytest.raises(RemoteProtocolError, match=f"a frame of {size} octets"):
            both(keys)[1].take(with_size(header, size), 0)


def test_another_version_ends_the_connection() -> None:
    with pytest.raises(RemoteProtocolError, match="version 1 was agreed on"):
        Frames().take(struct.pack("<BBHI", frames.FIRST_OCTET, 2, 0, 12) + bytes(12), 0)
    with pytest.raises(RemoteProtocolError):
        Frames().take(struct.pack("<BBHI", frames.FIRST_OCTET, 1, 1, 12) + bytes(12), 0)


def test_too_many_entries_are_refused() -> None:
    small = pack_entry(1, 1, ())
    assert len(list(unpack_entries(small * frames.MAX_ENTRIES))) == frames.MAX_ENTRIES
    with pytest.raises(RemoteProtocolError, match=f"more than {frames.MAX_ENTRIES} entries"):
        list(unpack_entries(small * (frames.MAX_ENTRIES + 1)))
    large = pack_entry(1, 1, (bytes(frames.MAX_SHARED),))
    assert len(list(unpack_entries(large))) == 1
    with pytest.raises(RemoteProtocolError, match="more than 1 entries"):
        list(unpack_entries(large + small))


@given(st.binary(max_size=200))
def test_any_octets_are_entries_or_refused(content: bytes) -> None:
    try:
        found = list(unpack_entries(content))
    except RemoteProtocolError:
        return
    assert sum(frames.ENTRY_SIZE + len(entry.body) for entry in found) == len(content)
