"""Whole batches give what single messages give, and a packet that cannot be read is a row."""

from __future__ import annotations

import itertools
import mmap
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.model.enums import INFINITE, AuthenticationLevel, MessageClass, SenderIdentifierType
from lanner.spark.columnar.decode import decode, decode_packets
from lanner.spark.columnar.expansion import Expansion
from lanner.spark.columnar.packet_source import Facts, Place
from lanner.spark.columnar.packets import Packets, locate
from lanner.spark.columnar.rows import read_row
from lanner.spark.columnar.schema import COLUMNS, CORE, INT, TIMESTAMP, RowSchema
from lanner.spark.columnar.vectors import Buffer, are_alike, lean, numbers, whole
from lanner.wire.body_types import TEXT_BODIES, VT_BSTR, VT_LPSTR
from lanner.wire.builder import MessageProperties, build, set_authentication
from lanner.wire.format_name import FormatName, parse
from lanner.wire.sid import ANONYMOUS_LOGON, LOCAL_SYSTEM, Sid
from tests.wire import samples, srmp_packet
from tests.wire.samples import SOURCE, full_packet, make

OUTSIDE = {"qm_id", "qm_name", "queue", "queue_kind", "subqueue", "seq", "read_time", "lookup_id", "arrived_time"}
OUTSIDE |= {"abort_count", "move_count"}

# What a sender usually sets: these packets go through the vectors.
COMMON = sorted(
    set(samples.sendable)
    - {"tracing_requested", "tracing_queue_identifier", "application_deadletter_queue", "soap_header", "soap_body"}
    - {"destination_multi_queue_format_name", "authentication_provider_name"}
)


def packet_of(properties: dict[str, Any], destination: FormatName, transaction: int | None, ordinal: int) -> bytes:
    return build(
        MessageProperties(**properties),
        source=SOURCE,
        ordinal=ordinal,
        sent_time=samples.SENT_TIME,
        destination=destination,
        transaction=transaction,
    )


@st.composite
def common_packets(draw: st.DrawFn) -> bytes:
    chosen = draw(st.sets(st.sampled_from(COMMON)))
    properties = {name: draw(samples.sendable[name]) for name in sorted(chosen)}
    if draw(st.booleans()):
        properties["body_type"] = draw(st.sampled_from(sorted(TEXT_BODIES)))
        text = draw(samples.texts)
        properties["body"] = draw(
            st.just(text.encode("utf-16-le", "surrogatepass")) | samples.sendable["body"] | st.just(b"\x00\xd8")
        )
    return packet_of(
        properties, draw(samples.single_names), draw(st.none() | st.integers(0, 0xF_FFFF)), draw(samples.uint32)
    )


@st.composite
def any_packets(draw: st.DrawFn) -> bytes:
    properties, destination, transaction = draw(samples.sent())
    return packet_of(properties, destination, transaction, draw(samples.uint32))


@st.composite
def broken_packets(draw: st.DrawFn) -> bytes:
    packet = draw(common_packets() | st.just(full_packet()))
    if draw(st.booleans()):
        return packet[: draw(st.integers(0, len(packet)))]
    changed = bytearray(packet)
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(st.integers(0, len(packet) - 1))] = draw(st.integers(0, 255))
    return bytes(changed)


def expected(packets: list[bytes], kind: str, keeper: UUID | None) -> dict[str, list[object]]:
    rows = [read_row(packet, kind, keeper) for packet in packets]
    return {column.name: [row.get(column.name) for row in rows] for column in COLUMNS if column.name not in OUTSIDE}


def found(batch: pa.RecordBatch) -> dict[str, list[object]]:
    values = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        column.validate(full=True)
        values[name] = (column.view(pa.int64()) if column.type == TIMESTAMP else column).to_pylist()
    return values


def check(packets: list[bytes], kind: str = "destination", keeper: UUID | None = None) -> None:
    place = Place(None if keeper is None else str(keeper), queue_kind=kind)
    batch = decode_packets(packets, place=place)
    batch.validate(full=True)
    assert batch.schema.equals(RowSchema().arrow)
    values = found(batch)
    for name, column in expected(packets, kind, keeper).items():
        assert values[name] == column, name
    compact = decode_packets(packets, place=place, schema=RowSchema(is_compact=True))
    compact.validate(full=True)
    assert Expansion().of(compact).drop_columns("read_time").equals(batch.drop_columns("read_time"))


@settings(max_examples=200, deadline=None)
@given(st.lists(common_packets(), max_size=6), st.sampled_from(("destination", "outgoing")))
def test_common_packets_give_the_same_as_one_by_one(packets: list[bytes], kind: str) -> None:
    check(packets, kind)


@settings(max_examples=100, deadline=None)
@given(st.lists(any_packets(), max_size=6))
def test_any_packets_give_the_same_as_one_by_one(packets: list[bytes]) -> None:
    check(packets)


BY_USER = {"sender_identifier": Sid.parse("S-1-5-21-1-2-3-1001").pack()}
# As long as the SID of the anonymous user.
BY_SYSTEM = {"sender_identifier": LOCAL_SYSTEM.pack()}
BY_NOBODY = {"sender_identifier": ANONYMOUS_LOGON.pack()}
BY_MACHINE = {
    "sender_identifier_type": SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
    "sender_identifier": SOURCE.bytes_le,
}


@pytest.mark.parametrize("keeper", [SOURCE, UUID(int=7), None])
def test_which_senders_are_verified(keeper: UUID | None) -> None:
    """A sender is verified by a signature or by its own queue manager.

    The latter holds when the message was sent through the queue manager that stores it.
    """
    signed = AuthenticationLevel.SIG20
    plain = [make(**properties) for properties in (BY_USER, BY_SYSTEM, BY_NOBODY, BY_MACHINE, {})]
    marked = [set_authentication(packet, signed) for packet in plain[:4]]
    unsigned_user = {SOURCE: True, None: None}.get(keeper, False)
    unsigned_machine = None if keeper is None else False
    # A 1.0 hash does not say which queue a message is for.
    weak = set_authentication(plain[0], AuthenticationLevel.SIG10)
    packets = [*plain, *marked, weak]
    column = decode_packets(packets, place=Place(None if keeper is None else str(keeper))).column("sender_verified")
    expected = [unsigned_user, unsigned_user, False, unsigned_machine, False, True, True, False, True]
    assert column.to_pylist() == [*expected, keeper == SOURCE]
    for some in (packets, *([packet] * 3 for packet in packets)):
        check(some, keeper=keeper)


@settings(max_examples=300, deadline=None)
@given(st.lists(common_packets() | broken_packets(), max_size=6))
def test_broken_packets_give_the_same_as_one_by_one(packets: list[bytes]) -> None:
    check(packets)


@st.composite
def like_packets(draw: st.DrawFn) -> list[bytes]:
    """Return packets that are nearly equal, as those of one sender are.

    Some properties vary, perhaps in a single packet.
    """
    chosen = draw(st.sets(st.sampled_from(COMMON)))
    shared = {name: draw(samples.sendable[name]) for name in sorted(chosen)}
    varying = draw(st.sets(st.sampled_from(COMMON), max_size=2))
    destination, transaction = draw(samples.single_names), draw(st.none() | st.integers(0, 0xF_FFFF))
    first = draw(st.sampled_from([0, 5, 97, 9_998, 99_999_997, 0xFFFF_FFF0]))
    packets = []
    for number in range(draw(st.integers(2, 6))):
        own = dict(shared)
        for name in sorted(varying):
            if draw(st.booleans()):
                own[name] = draw(samples.sendable[name])
        packets.append(packet_of(own, destination, transaction, first + number))
    return packets


@settings(max_examples=300, deadline=None)
@given(like_packets(), st.sampled_from(("destination", "outgoing")))
def test_packets_that_are_alike_give_the_same_as_one_by_one(packets: list[bytes], kind: str) -> None:
    check(packets, kind)


@settings(max_examples=300, deadline=None)
@given(like_packets(), st.data())
def test_one_that_is_broken_among_many_that_are_alike(packets: list[bytes], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(packets) - 1))
    changed = bytearray(packets[which])
    place = data.draw(st.integers(0, min(len(changed) - 1, 250)))
    changed[place] ^= data.draw(st.integers(1, 255))
    packets[which] = bytes(changed[: data.draw(st.just(len(changed)) | st.integers(0, len(changed)))])
    check(packets)


# One packet of each kind of layout: what may be there or not, and what may be of another size.
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"label": "a"},
    {"label": "b"},
    {"label": "longer"},
    {"label": "\ud83d\ude00"},
    {"body": b"body"},
    {"body": b"longer body"},
    {"body": "text".encode("utf-16-le"), "body_type": VT_BSTR},
    {"body": b"text", "body_type": VT_LPSTR},
    {"extension": b"extension"},
    {"correlation_identifier": bytes(range(20))},
    {"sender_identifier": LOCAL_SYSTEM.pack()},
    {"time_to_be_received": 60},
    {"time_to_reach_queue": 30},
    {"priority": 7},
    {"application_tag": 0xFFFF_FFFF},
    {"response_queue_format_name": parse(r"DIRECT=OS:other\private$\answers")},
    {
        "administration_queue_format_name": parse("PUBLIC=11111111-2222-3333-4444-555555555555"),
        "acknowledgements_requested": 1,
    },
]


def of_layout(number: int, ordinal: int) -> bytes:
    """The packet of a layout; those above the last one are transactional."""
    properties = LAYOUTS[number % len(LAYOUTS)]
    transaction = 5 if number >= len(LAYOUTS) else None
    return packet_of(properties, parse(r"DIRECT=OS:server\private$\orders"), transaction, ordinal)


@pytest.mark.parametrize("number", range(2 * len(LAYOUTS)))
def test_one_layout_in_all_packets_or_in_all_but_one(number: int) -> None:
    check([of_layout(number, 40 + n) for n in range(3)])
    for place, other in itertools.product(range(3), range(0, 2 * len(LAYOUTS), 5)):
        check([of_layout(other if n == place else number, 98 + n) for n in range(3)])


@pytest.mark.parametrize(
    "numbers", [[0], [9, 10], [10, 99], [1, 0], [0, 0xFFFF_FFFF], [10_000, 99_999], [9_999, 10_000]]
)
def test_numbers_of_identifiers(numbers: list[int]) -> None:
    check([of_layout(0, number) for number in numbers])


@pytest.mark.parametrize("size", [64, 119, 120, 160])
def test_nothing_is_read_behind_the_last_packet(size: int) -> None:
    """Were it read as a common one, this would have a label of 510 bytes."""
    check([of_layout(1, 1), of_layout(1, 2), b"\0\xff" + of_layout(1, 3)[2:size].ljust(size - 2, b"\xff")])
    check([b"\0\xff" + bytes(size - 2)])


def test_rows_that_are_alike() -> None:
    for width in (0, 1, 3, 4, 16, 20):
        row = bytes(range(100, 100 + width))
        same = np.frombuffer(row * 3, np.uint8).reshape(3, width)
        assert are_alike(same)
        assert are_alike(same[:1])
        assert not are_alike(same[:0])
        for place in range(3 * width):
            other = same.copy()
            other.reshape(-1)[place] ^= 1
            assert not are_alike(other)


@pytest.mark.parametrize(
    ("count", "size"), [(3, 0), (3, 1), (3, 256), (3, 257), (2, 2 << 20), (3, (4 << 20) // 3), (0, 5)]
)
def test_pieces_of_one_size_are_as_those_of_several(count: int, size: int) -> None:
    data = np.resize(np.arange(251, dtype=np.uint8), count * (size + 7) + 64).tobytes()
    places = np.arange(count) * (size + 7) + 3
    buffer = Buffer(data)
    found = buffer.slices(places, np.array([size]))
    found.validate(full=True)
    assert found.equals(buffer.slices(places, np.full(count, size)))
    assert found.to_pylist() == [data[place : place + size] for place in places.tolist()]


def test_pieces_may_stand_in_any_order_and_far_apart() -> None:
    """A file is no queue, and Arrow's offsets reach two gigabytes."""
    data = mmap.mmap(-1, (2 << 30) + (1 << 20))
    places = np.array([500, 20, 900, 700, 0, (2 << 30) + 5])
    sizes = np.array([7, 300, 0, 90, 20, 1000])
    pieces = [bytes([n]) * size for n, size in enumerate(sizes.tolist())]
    for place, piece in zip(places.tolist(), pieces, strict=True):
        data[place : place + len(piece)] = piece
    buffer = Buffer(memoryview(data))
    for count in (0, 1, 5, 6):
        found = buffer.slices(places[:count], sizes[:count])
        found.validate(full=True)
        assert found.to_pylist() == pieces[:count]
    assert buffer.slices(places[-1:], sizes[-1:]).to_pylist() == pieces[-1:]


@pytest.mark.parametrize("values", [[0x8000_0000], [0x8000_0000, 0x8000_0000], [1, 0xFFFF_FFFF, 0x8000_0000]])
def test_the_highest_bit_of_a_number_is_its_sign(values: list[int]) -> None:
    """In one row, in all of them, or in some."""
    found = whole(numbers(np.array(values, np.uint32), INT), len(values))
    assert found.to_pylist() == np.array(values, np.uint32).astype(np.int32).tolist()[: len(found)]


def test_numbers_that_are_all_the_same_are_one() -> None:
    for values, expected in (([], []), ([7], [7]), ([7, 7, 7], [7]), ([7, 7, 8], [7, 7, 8]), ([8, 7, 7], [8, 7, 7])):
        found = lean(np.array(values, np.uint32))
        assert found.tolist() == expected
        assert found.dtype == np.int64


def test_a_batch_keeps_nothing_of_what_it_was_made_of() -> None:
    """The memory is used again for the next one."""
    packets = [of_layout(n, n) for n in range(2 * len(LAYOUTS))]
    for some in (packets, packets[5:6] * 3, packets[11:12] * 3, packets[-1:] * 3):
        data = bytearray(b"".join(some) + bytes(64))
        sizes = np.array([len(packet) for packet in some])
        schema = RowSchema((*COLUMNS,), has_packets=True)
        facts = Facts.of((n, n, n, n, n) for n in range(len(some)))
        batch = decode(Packets(Buffer(memoryview(data)), np.cumsum(sizes) - sizes, sizes), facts, Place(), schema, 0)
        before = batch.to_pydict()
        data[:] = bytes(len(data))
        assert batch.to_pydict() == before
        assert before["packet"] == some


@given(common_packets())
def test_what_a_sender_usually_sets_needs_no_look_at_single_packets(packet: bytes) -> None:
    located, _ = locate(Packets.of([packet]))
    code = packet[62] & 7  # a response queue on the computer of the administration queue is rare
    assert located.rows.tolist() == ([] if code == 4 else [0])


def test_every_truncation_of_a_full_packet_is_a_row_with_its_error() -> None:
    whole = full_packet()
    packets = [whole[:size] for size in range(len(whole))]
    batch = decode_packets(packets)
    assert batch.column("packet").to_pylist() == packets
    assert all(text for text in batch.column("packet_error").to_pylist())
    assert batch.column("label").null_count == len(packets)


def test_a_message_over_http_among_others() -> None:
    packets = [make(body=b"a"), srmp_packet.packet(), make(body=b"b")]
    batch = decode_packets(packets)
    assert batch.column("body").to_pylist() == [b"a", srmp_packet.BODY, b"b"]
    assert batch.column("body_size").to_pylist() == [1, len(srmp_packet.BODY), 1]
    assert batch.column("soap_envelope").to_pylist() == [None, srmp_packet.ENVELOPE, None]
    assert batch.column("compound_message").to_pylist() == [None, srmp_packet.COMPOUND_MESSAGE, None]


def test_a_broken_packet_between_good_ones_keeps_its_place() -> None:
    packets = [make(label="a"), b"no packet", make(label="b"), full_packet()]
    facts = Facts.of((10 + n, 20 + n, 30 + n, n, 2 * n) for n in range(4))
    place = Place("qm", "ALPHA", r"DIRECT=OS:alpha\q", "subqueue", "retry")
    batch = decode_packets(packets, facts, place)
    assert batch.column("label").to_pylist() == ["a", None, "b", "label"]
    assert batch.column("seq").to_pylist() == [10, 11, 12, 13]
    assert batch.column("lookup_id").to_pylist() == [20, 21, 22, 23]
    assert batch.column("arrived_time").view(pa.int64()).to_pylist() == [30_000_000, 31_000_000, 32_000_000, 33_000_000]
    assert batch.column("abort_count").to_pylist() == [0, 1, 2, 3]
    assert batch.column("move_count").to_pylist() == [0, 2, 4, 6]
    assert batch.column("packet").to_pylist() == [None, b"no packet", None, None]
    assert batch.column("queue").to_pylist() == [r"DIRECT=OS:alpha\q"] * 4
    assert batch.column("subqueue").to_pylist() == ["retry"] * 4


def test_packets_are_there_when_they_are_asked_for() -> None:
    packets = [make(label="a"), b"no packet"]
    schema = RowSchema.select(["packet", "seq"])
    batch = decode_packets(packets, schema=schema)
    assert batch.schema.names == ["packet", "seq"]
    assert batch.column("packet").to_pylist() == packets


def test_what_all_rows_have_is_made_again_when_it_is_another_or_there_are_more() -> None:
    expansion = Expansion()
    made = []
    for label, count in (("a", 3), ("a", 2), ("a", 3), ("b", 2), ("b", 5), ("", 4), ("a", 1)):
        packets = [make(label=label, body=bytes(n)) for n in range(count)]
        batch = expansion.of(decode_packets(packets, schema=RowSchema(is_compact=True)))
        batch.validate(full=True)
        assert batch.column("label").to_pylist() == [label] * count
        assert batch.column("body").to_pylist() == [bytes(n) for n in range(count)]
        assert batch.column("subqueue").null_count == count
        made.append(batch.column("label").buffers()[2].address)
    assert made[0] == made[1] == made[2]


def test_a_batch_of_nothing_has_the_schema_all_the_same() -> None:
    for schema in (RowSchema.select("all"), RowSchema.select("core"), RowSchema(is_compact=True)):
        batch = decode_packets([], schema=schema)
        assert (len(batch), batch.schema) == (0, schema.arrow)


def test_core_columns_of_a_plain_message() -> None:
    packet = make(body=b"hello", label="greeting", time_to_be_received=60)
    batch = decode_packets([packet], schema=RowSchema.select("core"))
    row = batch.to_pylist()[0]
    assert tuple(row) == CORE
    assert row["msg_id_text"] == f"{SOURCE}\\7"
    assert (row["label"], row["body_size"], row["class"], row["priority"]) == ("greeting", 5, MessageClass.NORMAL, 3)
    assert row["dest_format_name"] == r"DIRECT=OS:server\private$\orders"
    assert row["packet_error"] is None


def test_expiry_in_an_outgoing_queue_is_the_earlier_of_both() -> None:
    packets = [
        make(time_to_reach_queue=10, time_to_be_received=20),
        make(time_to_reach_queue=INFINITE, time_to_be_received=20),
        make(time_to_reach_queue=INFINITE, time_to_be_received=INFINITE),
    ]
    schema = RowSchema.select("expires_at")

    def seconds(kind: str) -> list[int | None]:
        batch = decode_packets(packets, place=Place(queue_kind=kind), schema=schema)
        times = batch.column("expires_at").view(pa.int64()).to_pylist()
        return [None if value is None else value // 1_000_000 - samples.SENT_TIME for value in times]

    assert seconds("outgoing") == [10, 20, None]
    assert seconds("destination") == [20, 20, None]


@pytest.mark.parametrize("gap", [0, 1, 24])
def test_packets_may_have_other_bytes_between_them(gap: int) -> None:
    packets = [make(label=f"label {n}", body=bytes(n)) for n in range(5)]
    data = b"".join(bytes(gap) + packet for packet in packets) + bytes(64)
    sizes = np.array([len(packet) for packet in packets])
    starts = np.cumsum(sizes + gap) - sizes
    apart = Packets(Buffer(data), starts, sizes)
    assert [apart[n] for n in range(5)] == packets
    located, _ = locate(apart)
    assert located.rows.tolist() == [0, 1, 2, 3, 4]
