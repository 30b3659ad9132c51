"""The gRPC data of a client is followed through the frames of HTTP/2, however it is cut."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any, Final

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
from lanner.spark.flight.arrow_headers import MAX_HEADER, MessageRefused, is_compressed  # noqa: E402
from lanner.spark.flight.grpc_messages import Messages  # noqa: E402

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LIMIT: Final = 1 << 20
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, PADDED = 1, 8


def frame(kind: int, payload: bytes = b"", *, stream: int = 1, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def data(payload: bytes, *, stream: int = 1, ends: bool = False, padding: int | None = None) -> bytes:
    flags = END_STREAM if ends else 0
    if padding is not None:
        payload, flags = bytes([padding]) + payload + bytes(padding), flags | PADDED
    return frame(DATA, payload, stream=stream, flags=flags)


def message(content: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(content)) + content


def varint(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def headers(batch: Any, **options: Any) -> list[bytes]:  # noqa: ANN401 (pyarrow may be missing)
    """Return the headers with which Arrow writes a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return [one.metadata.to_pybytes() for one in pa.ipc.MessageReader.open_stream(sink.getvalue())]


def take(octets: bytes, cuts: Iterable[int] = ()) -> Messages:
    messages = Messages(LIMIT)
    start = 0
    for cut in (*cuts, len(octets)):
        messages.take(memoryview(octets)[start:cut])
        start = cut
    return messages


PLAIN: Final = pa.record_batch({"body": [b"x" * 1000]})
ENCODED: Final = pa.record_batch([pa.array(["text"] * 100).dictionary_encode()], ["label"])


def flight_data(header: bytes) -> bytes:
    """A FlightData: descriptor, data_header, app_metadata, data_body."""
    return field(1, b"d" * 10) + field(2, header) + field(3, b"m") + field(1000, b"b" * 5000)


@pytest.mark.parametrize("batch", [PLAIN, ENCODED])
def test_compression_is_seen_in_the_header(batch: Any) -> None:  # noqa: ANN401 (pyarrow may be missing)
    assert not any(map(is_compressed, headers(batch)))
    for codec in ("zstd", "lz4"):
        assert any(map(is_compressed, headers(batch, compression=codec)))


def test_what_is_no_header_is_not_compressed() -> None:
    chance = random.Random(5)
    for header in (b"", b"{}", b'{"queue": "orders"}', bytes(100), b"\xff" * 100, *map(chance.randbytes, range(300))):
        assert not is_compressed(header)


def test_octets_of_messages_are_counted_until_their_end() -> None:
    whole = message(b"\x0a\x04abcd")
    assert take(PREFACE + data(whole)).unfinished == 0
    for size in range(1, len(whole)):
        assert take(PREFACE + data(whole[:size])).unfinished == size
        # The stream ends, or is given up, before its message does.
        assert take(PREFACE + data(whole[:size], ends=True)).unfinished == 0
        assert take(PREFACE + data(whole[:size]) + frame(RST_STREAM, bytes(4))).unfinished == 0
    both = data(whole[:3]) + data(whole[:4], stream=3)
    assert take(PREFACE + both).unfinished == 7
    assert take(PREFACE + both + data(whole[3:]) + data(whole[4:], stream=3)).unfinished == 0


def test_it_does_not_matter_how_octets_are_cut() -> None:
    chance = random.Random(7)
    (_, plain), (_, packed) = headers(PLAIN), headers(PLAIN, compression="zstd")
    sound = message(flight_data(plain))
    begin = PREFACE + frame(SETTINGS, bytes(12), stream=0) + frame(HEADERS, b"h" * 50)
    for _ in range(200):
        place, padding = chance.randrange(len(sound)), chance.choice([None, 0, 1, 200])
        other = data(message(b"")[: chance.randrange(6)], stream=3)
        octets = begin + data(sound[:place], padding=padding) + other + data(sound[place:], padding=padding, ends=True)
        cuts = sorted(chance.sample(range(len(octets)), 20))
        assert take(octets, cuts).unfinished in range(5)
        with pytest.raises(MessageRefused, match="compressed"):
            take(octets + data(message(flight_data(packed)), stream=5), cuts)


@pytest.mark.parametrize(
    "octets",
    [
        message(b"", flag=1),
        struct.pack(">BI", 0, LIMIT + 1),
        # Fields that readers might understand in different ways.
        message(varint((1 << 32) + (2 << 3 | 2)) + b"\x00"),
        message(b"\x80" * 11),
        message(b"\x0a\x7f"),
        message(b"\x0b\x0c"),
        message(varint(2 << 3 | 2) + varint(1 << 31)),
    ],
)
def test_what_is_refused(octets: bytes) -> None:
    for cut in range(25, 24 + len(data(octets))):
        with pytest.raises(MessageRefused):
            take(PREFACE + data(octets), [cut])


def test_a_long_header_is_refused() -> None:
    messages = Messages(4 * MAX_HEADER)
    messages.take(memoryview(PREFACE))
    octets = message(field(2, bytes(MAX_HEADER + 1)))
    with pytest.raises(MessageRefused, match="header"):
        messages.take(memoryview(data(octets)))


def test_padding_is_no_longer_than_its_frame() -> None:
    with pytest.raises(MessageRefused, match="padding"):
        take(PREFACE + frame(DATA, b"\x05abcd", flags=PADDED))


def test_messages_at_a_time_are_bounded() -> None:
    octets = b"".join(data(b"\0", stream=2 * number + 1) for number in range(1000))
    assert take(PREFACE + octets).unfinished == 1000
    with pytest.raises(MessageRefused, match="at a time"):
        take(PREFACE + octets + data(b"\0", stream=5001))
