"""The functions of lanner._native compared with their references in Python.

They produce the same bytes and access no memory but their own.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib.machinery
import importlib.util
import os
import struct
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spnego._ntlm_raw.crypto import rc4init

from lanner import native
from lanner.engine import event_rows
from lanner.model.enums import PositionState
from lanner.model.live import Record
from lanner.rpc.pdu_keys import PduKeys
from lanner.store import record as record_rows
from lanner.store import rows
from lanner.store.checksum import crc32
from lanner.store.record import HEADER, INDEX_ENTRY, MESSAGE_KEY, encode, encode_reference
from lanner.store.staging import STAGED_HEAD, STAGED_KEY
from lanner.wire import packet_contents, packet_runs, packet_template
from lanner.wire.builder import MessageProperties, build
from lanner.wire.envelope import event_fields, header_offsets
from lanner.wire.format_name import FormatName
from lanner.wire.layout import locate

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "native" / "lanner_native.c"
REFERENCES = SimpleNamespace(
    crc32=crc32,
    decode_plain=record_rows._decode_plain,
    event_rows=event_rows._event_rows,
    log_rows=rows._log_rows,
    log_deletions=rows._log_deletions,
    checkpoint_rows=rows._checkpoint_rows,
    pack_packets=packet_template._pack_packets,
    equal_packets=packet_runs._equal_packets,
    stamp_packets=packet_runs._stamp_packets,
    staged_rows=rows._staged_rows,
    published_rows=rows._published_rows,
    packet_contents=packet_contents._packet_contents,
    equal_envelopes=packet_runs._equal_envelopes,
    PduKeys=PduKeys,
)
PUT, DELETE = 1, 2
# What a wrong argument may raise: the references leave it to struct and to the objects themselves.
REFUSALS = (TypeError, ValueError, OverflowError, AttributeError, struct.error)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension, compiled from its source here, whatever the environment has installed."""
    target = tmp_path_factory.mktemp("native") / "_native.abi3.so"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-std=c11", "-shared", "-fPIC"]
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([*command, include, str(SOURCE), "-o", str(target)], check=True)
    loader = importlib.machinery.ExtensionFileLoader("lanner._native", str(target))
    spec = importlib.util.spec_from_file_location("lanner._native", target, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(params=["references", "compiled"])
def functions(request: pytest.FixtureRequest) -> SimpleNamespace:
    if request.param == "references":
        return REFERENCES
    module = request.getfixturevalue("compiled")
    return SimpleNamespace(**{name: getattr(module, name) for name in vars(REFERENCES)})


# Each function, in both forms
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [*range(200), 1023, 1024, 4096, 65_537])
def test_checksum_is_that_of_zlib(functions: SimpleNamespace, size: int) -> None:
    data = os.urandom(size + 3)
    # At every alignment, because the compiled form reads 16 bytes at a time.
    for start in range(4):
        part = data[start : start + size]
        assert functions.crc32(part) == zlib.crc32(part)
        assert functions.crc32(memoryview(data)[start : start + size], 0xDEADBEEF) == zlib.crc32(part, 0xDEADBEEF)


def test_log_rows_are_operations_that_put_messages(functions: SimpleNamespace) -> None:
    layer = {7: Record(b"first", 1_700_000_000), 9: Record(b"second" * 50, 5, abort_count=70_000, flags=3)}
    encoded: dict[int, bytes] = {}
    size, parts = functions.log_rows(PUT, 3, 2, layer, {7: 11}, encoded, 10_000)
    assert encoded == {7: encode(layer[7], 11), 9: encode(layer[9], 0)}
    assert size == sum(map(len, encoded.values()))
    assert parts[1::2] == list(encoded.values())
    for head, (lookup_id, value) in zip(parts[::2], encoded.items(), strict=True):
        assert struct.unpack("<BHI", head[:7]) == (PUT, 16, len(value))
        assert MESSAGE_KEY.unpack(head[7:]) == (3, 2, lookup_id)
    assert HEADER.unpack_from(encoded[9])[4] == 0xFFFF  # a count does not wrap


def test_log_rows_above_the_limit_are_none(functions: SimpleNamespace) -> None:
    layer = {1: Record(bytes(100)), 2: Record(bytes(100))}
    whole = 2 * (HEADER.size + 100)
    assert functions.log_rows(PUT, 1, 0, layer, {}, {}, whole)[0] == whole
    assert functions.log_rows(PUT, 1, 0, layer, {}, {}, whole - 1) is None


def test_log_deletions_name_the_number_and_the_staged_row(functions: SimpleNamespace) -> None:
    found = functions.log_deletions(DELETE, 3, 2, {7: 11, 8: 0}, {8: b"staged"})
    key = MESSAGE_KEY.pack(3, 2, 7)
    assert found[:31] == struct.pack("<BHI", DELETE, 16, 8) + key + (11).to_bytes(8)
    assert found[31:] == struct.pack("<BHI", DELETE, 16, 14) + MESSAGE_KEY.pack(3, 2, 8) + bytes(8) + b"staged"


def test_checkpoint_rows_take_what_was_logged_and_index_what_is_visible(functions: SimpleNamespace) -> None:
    some = [(7, Record(b"first")), (8, Record(b"second"))]
    messages, index = functions.checkpoint_rows(3, 2, some, {8: 21}, {7: b"as it was logged"})
    assert messages == [
        (MESSAGE_KEY.pack(3, 2, 7), b"as it was logged"),
        (MESSAGE_KEY.pack(3, 2, 8), encode(some[1][1], 21)),
    ]
    assert index == [(MESSAGE_KEY.pack(3, 2, 21), INDEX_ENTRY.pack(8, 6))]


@pytest.mark.parametrize("index", [None, 77])
@pytest.mark.parametrize("extension", [b"", b"extra"])
def test_packets_are_those_of_build(functions: SimpleNamespace, index: int | None, extension: bytes) -> None:
    properties = MessageProperties(extension=extension)
    name = FormatName.parse("DIRECT=OS:server\\private$\\orders")
    bodies = [b"", b"x", bytes(1000)]

    def built(ordinal: int, body: bytes) -> bytes:
        properties.body = body
        return build(properties, source=UUID(int=5), ordinal=ordinal, sent_time=9, destination=name, transaction=index)

    wanted = [built(ordinal, body) for ordinal, body in enumerate(bodies, 2**32 - 1)]
    sample, found = built(0, b""), locate(built(0, b""))
    front = found.properties + 56
    found_packets = functions.pack_packets(
        sample[:front] if index is None else built(0, b"")[:front],
        -1 if index is None else found.transaction,
        found.properties,
        extension,
        sample[front + len(extension) + (-len(extension) & 3) :],
        -1,
        1 << 22,
        list(range(2**32 - 1, 2**32 + 2)),
        [b""] * 3,
        bodies,
        [] if index is None else [0, 0, 0],
    )
    assert found_packets == wanted


def test_a_packet_that_is_too_long_is_refused(functions: SimpleNamespace) -> None:
    front = bytes(60 + 56)
    with pytest.raises(OverflowError):
        functions.pack_packets(front, -1, 60, b"", b"", -1, 120, [1], [b""], [bytes(5)], [])
    assert len(functions.pack_packets(front, -1, 60, b"", b"", -1, 120, [1], [b""], [bytes(4)], [])[0]) == 120


def test_staged_rows_are_checksum_and_packet(functions: SimpleNamespace) -> None:
    found = functions.staged_rows(STAGED_HEAD.pack(7, 3, 4), 2**32 - 1, [b"first", b""])
    assert found == (
        [STAGED_KEY.pack(7, 3, 4, 2**32 - 1), STAGED_KEY.pack(7, 3, 4, 2**32)],
        [zlib.crc32(b"first").to_bytes(4, "little") + b"first", bytes(4)],
    )
    assert functions.staged_rows(bytes(13), 0, []) == ([], [])


def test_published_rows_refer_to_staged_ones_and_are_in_the_index(functions: SimpleNamespace) -> None:
    found = functions.published_rows(3, 2, 2**40, 70, 2, STAGED_HEAD.pack(7, 3, 4), 5, 9, 6, 1000)
    assert found == (
        [MESSAGE_KEY.pack(3, 2, 2**40 + i) for i in range(2)],
        [encode_reference(STAGED_KEY.pack(7, 3, 4, 5 + i), 70 + i, 9, 6) for i in range(2)],
        [MESSAGE_KEY.pack(3, 2, 70 + i) for i in range(2)],
        [INDEX_ENTRY.pack(2**40 + i, 1000) for i in range(2)],
    )


def packet_with(label: bytes, extension: bytes, body: bytes) -> bytes:
    sizes = struct.pack("<xB30xI16xI", len(label) // 2, len(body), len(extension))
    return bytes(64) + sizes + label + extension + body + bytes(3)


def test_contents_are_bodies_and_a_digest_of_labels_and_bodies(functions: SimpleNamespace) -> None:
    one, two = packet_with(b"l\0\0\0", b"not looked at", b"body"), packet_with(b"", b"", bytes(5000))
    digest = zlib.crc32(b"body", zlib.crc32(b"l\0\0\0")) + zlib.crc32(bytes(5000)) + 2
    assert functions.packet_contents([one, two], 64) == functions.packet_contents([two, one], 64) == (5004, digest)
    for properties in (-1, 65 + len(one), len(one)):
        with pytest.raises(REFUSALS):
            functions.packet_contents([one], properties)
    with pytest.raises(ValueError, match="shorter than"):
        functions.packet_contents([one[:-8]], 64)


# Both forms, compared
# -------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 2**32 - 1)
RECORDS = st.builds(
    Record,
    st.binary(max_size=300),
    arrived=SMALL,
    abort_count=st.integers(0, 2**40),
    move_count=st.integers(0, 2**40),
    flags=st.integers(0, 0xFFFF),
)
ROWS = st.dictionaries(st.integers(0, 20) | NUMBERS, RECORDS, max_size=8)
VISIBLE = st.dictionaries(st.integers(0, 20), NUMBERS, max_size=20)


@given(ROWS, VISIBLE, SMALL, SMALL, st.integers(0, 3000))
def test_log_rows_are_the_same(
    compiled: ModuleType, layer: dict[int, Record], visible: dict[int, int], number: int, generation: int, limit: int
) -> None:
    one: dict[int, bytes] = {}
    other: dict[int, bytes] = {}
    wanted = REFERENCES.log_rows(PUT, number, generation, layer, visible, one, limit)
    assert compiled.log_rows(PUT, number, generation, layer, visible, other, limit) == wanted
    assert other == one


@given(VISIBLE, st.dictionaries(st.integers(0, 20), st.binary(min_size=1, max_size=30)), SMALL, SMALL)
def test_log_deletions_are_the_same(
    compiled: ModuleType, hidden: dict[int, int], references: dict[int, bytes], number: int, generation: int
) -> None:
    wanted = REFERENCES.log_deletions(DELETE, number, generation, hidden, references)
    assert compiled.log_deletions(DELETE, number, generation, hidden, references) == wanted


@given(ROWS, VISIBLE, st.dictionaries(st.integers(0, 20), st.binary(min_size=24, max_size=60)), SMALL, SMALL)
def test_checkpoint_rows_are_the_same(
    compiled: ModuleType,
    layer: dict[int, Record],
    visible: dict[int, int],
    encoded: dict[int, bytes],
    number: int,
    generation: int,
) -> None:
    arguments = number, generation, list(layer.items()), visible, encoded
    assert compiled.checkpoint_rows(*arguments) == REFERENCES.checkpoint_rows(*arguments)


@given(
    st.binary(min_size=120, max_size=200),
    st.booleans(),
    st.binary(max_size=9),
    st.binary(max_size=9),
    st.integers(-1, 2**32 - 1),
    st.lists(st.tuples(NUMBERS, st.binary(max_size=250), st.binary(max_size=300), SMALL), max_size=5),
)
def test_packets_are_the_same(
    compiled: ModuleType,
    front: bytes,
    is_transactional: bool,
    extension: bytes,
    tail: bytes,
    allocation: int,
    contents: list[tuple[int, bytes, bytes, int]],
) -> None:
    lists = [list(column) for column in zip(*contents, strict=True)] or [[], [], [], []]
    at = 60 if is_transactional else -1
    arguments = front, at, len(front) - 56, extension, tail, allocation, 1 << 20, *lists
    assert compiled.pack_packets(*arguments) == REFERENCES.pack_packets(*arguments)


# MD5 reads blocks of 64 octets, after the 28 of the number and the header.
@pytest.mark.parametrize("size", [0, 1, 27, 28, 29, 35, 36, 37, 91, 92, 93, 1024, 5840])
@pytest.mark.parametrize("seals", [False, True])
def test_a_token_is_that_of_the_document(functions: SimpleNamespace, size: int, seals: bool) -> None:
    """MS-NLMP 3.4.4.2 with pyspnego's RC4 and Python's HMAC."""
    sign_key, seal_key, stub = os.urandom(16), os.urandom(16), os.urandom(size)
    cipher = rc4init(seal_key)
    sent, received = (functions.PduKeys(sign_key, seal_key, True) for _ in range(2))
    for number in range(3):
        pdu = sent.protect(b"h" * 24, stub, b"trailer.", seals)
        prefix = struct.pack("<I", number)
        body = cipher.update(stub) if seals else stub
        checksum = hmac.digest(sign_key, prefix + b"h" * 24 + stub + b"trailer.", "md5")[:8]
        token = b"\x01\0\0\0" + cipher.update(checksum) + prefix
        assert pdu == b"h" * 24 + body + b"trailer." + token
        assert received.unprotect(pdu, 24, 24 + size, seals) == stub
        if number == 1:
            sent.restart()
            received.restart()
            cipher.reset()


# An octet of the header, the stub, the trailer, and the parts of the token.
@pytest.mark.parametrize("place", [0, 6, 10, 17, 21, 29, 32])
@pytest.mark.parametrize("has_key_exchange", [False, True])
def test_a_token_that_does_not_fit_is_none(functions: SimpleNamespace, place: int, has_key_exchange: bool) -> None:
    sent, received = (functions.PduKeys(bytes(16), bytes(16), has_key_exchange) for _ in range(2))
    pdu = bytearray(sent.protect(b"header", b"stub", b"trailer", False))
    assert len(pdu) == 33
    pdu[place] ^= 1
    assert received.unprotect(bytes(pdu), 6, 10, False) is None
    # The sequence goes on, after a failure too.
    assert received.unprotect(sent.protect(b"header", b"stub", b"trailer", False), 6, 10, False) == b"stub"


@pytest.mark.parametrize(("start", "stop"), [(3, 2), (0, 5), (5, 5), (0, 2**32 - 1), (20, 21), (21, 20)])
def test_a_pdu_that_is_too_short_for_its_parts_is_refused(functions: SimpleNamespace, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="shorter than its parts"):
        functions.PduKeys(bytes(16), bytes(16), True).unprotect(bytes(20), start, stop, True)


@given(
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=16, max_size=16),
    st.booleans(),
    st.lists(st.tuples(st.binary(max_size=80), st.binary(max_size=300), st.binary(max_size=80), st.booleans())),
)
def test_both_forms_of_keys_agree(
    compiled: ModuleType,
    sign_key: bytes,
    seal_key: bytes,
    has_key_exchange: bool,
    pdus: list[tuple[bytes, bytes, bytes, bool]],
) -> None:
    one, other = (form(sign_key, seal_key, has_key_exchange) for form in (PduKeys, compiled.PduKeys))
    for pdu in pdus:
        assert one.protect(*pdu) == other.protect(*pdu)


def test_keys_of_another_size_are_refused(functions: SimpleNamespace) -> None:
    for sizes in ((15, 16), (16, 17), (0, 16)):
        with pytest.raises(ValueError, match="16 octets"):
            functions.PduKeys(bytes(sizes[0]), bytes(sizes[1]), True)


# Wrong arguments
# ------------------------------------------------------------------------------------------------

WRONG: list[Any] = [
    None,
    -1,
    2**64,
    2**70,
    1.5,
    "text",
    b"bytes",
    [],
    {},
    [()],
    {1: 2},
    {"a": "b"},
    object(),
    [(1, 2, 3)],
]
RIGHT: dict[str, list[Any]] = {
    "crc32": [b"data", 0],
    "log_rows": [PUT, 1, 1, {1: Record(b"x")}, {1: 5}, {}, 1000],
    "log_deletions": [DELETE, 1, 1, {1: 5}, {1: b"r"}],
    "checkpoint_rows": [1, 1, [(1, Record(b"x"))], {1: 5}, {}],
    "equal_packets": [bytes(200), 0, bytes(180), 64, 84],
    "stamp_packets": [bytes(200), 0, bytes(180), 64, 84, bytes(64), bytes(20), 1, 1],
    "packet_contents": [[bytes(130)], 70],
    "staged_rows": [bytes(13), 5, [b"one", b"two"]],
    "published_rows": [1, 2, 3, 4, 5, bytes(13), 6, 7, 8, 9],
    "pack_packets": [bytes(120), 60, 64, b"", b"", -1, 1000, [1], [b""], [b"body"], [0]],
    "equal_envelopes": [[bytes(64), bytes(64)]],
    "decode_plain": [encode(Record(b"x"), 5), Record],
    "event_rows": [1, 2, 3, 4, 5, [6], [bytes(120)], [7], [8], {}],
    "PduKeys": [bytes(16), bytes(16), True],
}
METHODS: dict[str, list[Any]] = {
    "protect": [b"header", b"stub", b"trailer", True],
    "unprotect": [bytes(33), 6, 10, True],
}


@pytest.mark.parametrize("name", [*RIGHT, *METHODS])
def test_wrong_arguments_are_refused_or_ignored(compiled: ModuleType, name: str) -> None:
    """Every wrong value in every place, every number of arguments: an exception at worst."""
    owner = compiled.PduKeys(*RIGHT["PduKeys"]) if name in METHODS else compiled
    function: Callable[..., Any] = getattr(owner, name)
    right = (RIGHT | METHODS)[name]
    function(*right)
    for place in range(len(right)):
        for wrong in WRONG:
            with contextlib.suppress(*REFUSALS):
                function(*right[:place], wrong, *right[place + 1 :])
    for count in [*range(len(right) - (name == "crc32")), len(right) + 1]:
        if count:
            with pytest.raises(TypeError):
                function(*(right * 2)[:count])
    with pytest.raises(TypeError):
        function()


@pytest.mark.parametrize("name", ["packet", "flags", "abort_count", "move_count", "arrived"])
@pytest.mark.parametrize("value", [None, -1, 2**64, "text", b"", [1]])
def test_records_with_wrong_fields_are_refused(compiled: ModuleType, name: str, value: object) -> None:
    record = Record(b"x")
    setattr(record, name, value)
    if (name, value) == ("packet", b""):
        return
    with pytest.raises(REFUSALS):
        compiled.log_rows(PUT, 1, 1, {1: record}, {}, {}, 1000)
    with pytest.raises(REFUSALS):
        compiled.checkpoint_rows(1, 1, [(1, record)], {}, {})


@pytest.mark.parametrize(
    ("start", "transaction", "properties"),
    [
        *[(-1, -1, 64), (0, -2, 64), (0, 59, 80), (0, 64, 83), (0, -1, 59), (0, -1, 125), (0, 64, 2**40)],
        *[(0, 2**63 - 1, 100), (0, 2**63 - 20, 100), (0, -1, -(2**63)), (0, 64, -(2**63)), (0, -1, 2**63 - 1)],
    ],
)
def test_a_shape_with_places_outside_is_refused(
    compiled: ModuleType, start: int, transaction: int, properties: int
) -> None:
    with pytest.raises(ValueError, match="headers"):
        compiled.equal_packets(bytes(300), start, bytes(180), transaction, properties)
    header = bytes(20 if transaction >= 0 else 0)
    with pytest.raises(ValueError, match="headers"):
        compiled.stamp_packets(bytes(300), start, bytes(180), transaction, properties, bytes(64), header, 1, 0)


@pytest.mark.parametrize(("transaction", "front", "header"), [(64, 64, 19), (64, 63, 20), (-1, 64, 20), (-1, 0, 0)])
def test_a_stamp_of_another_size_is_refused(compiled: ModuleType, transaction: int, front: int, header: int) -> None:
    with pytest.raises(ValueError, match="another size"):
        compiled.stamp_packets(bytes(300), 0, bytes(180), transaction, 84, bytes(front), bytes(header), 1, 0)


@pytest.mark.parametrize(
    ("front", "transaction_at", "properties_at"),
    [
        (bytes(100), -1, 60),
        (bytes(200), -1, 60),
        (bytes(115), -1, 59),
        (bytes(116), -1, -60),
        (bytes(116), -1, 2**40),
        (b"", -1, 0),
        (bytes(120), 59, 64),
        (bytes(120), 61, 64),
        (bytes(120), -2, 64),
        (bytes(116), 2**40, 60),
    ],
)
def test_a_template_with_places_outside_is_refused(
    compiled: ModuleType, front: bytes, transaction_at: int, properties_at: int
) -> None:
    with pytest.raises(ValueError, match="template is wrong"):
        compiled.pack_packets(front, transaction_at, properties_at, b"", b"", -1, 1000, [1], [b""], [b""], [1])


def test_lists_of_different_length_are_refused(compiled: ModuleType) -> None:
    right = RIGHT["pack_packets"]
    for place in (7, 8, 9, 10):
        with pytest.raises(ValueError, match="equally long"):
            compiled.pack_packets(*right[:place], right[place] * 2, *right[place + 1 :])


def test_a_layer_that_changes_meanwhile_does_no_harm(compiled: ModuleType) -> None:
    layer: dict[int, Any] = {}
    some: list[Any] = []

    class Changing(Record):
        @property
        def flags(self) -> int:
            layer.clear()
            some.clear()
            return 0

        @flags.setter
        def flags(self, value: int) -> None: ...

    layer.update({number: Changing(bytes(100)) for number in range(100)})
    some += list(layer.items())
    compiled.checkpoint_rows(1, 1, some, {}, {})
    layer.update({number: Changing(bytes(100)) for number in range(100)})
    compiled.log_rows(PUT, 1, 1, layer, {}, layer, 100_000)


def test_references_are_counted_right(compiled: ModuleType) -> None:
    """Arguments have the same number of references afterwards, also after an error."""
    packet, record, label, body = bytes(1000), Record(bytes(2000)), b"label!", bytes(3000)
    record.packet = packet
    broken = Record(packet)
    broken.arrived = -1
    staged = b"staged row of some message"
    shaped = bytes(8) + (120).to_bytes(4, "little") + bytes(108)
    signed, header = bytes(60) + (1 << 19).to_bytes(4, "little") + bytes(80), bytes(16)
    held = (packet, record, label, body, broken, staged, shaped, signed, header)
    before = [sys.getrefcount(each) for each in held]
    for _ in range(50):
        encoded: dict[int, bytes] = {}
        compiled.log_rows(PUT, 1, 1, {1: record, 2: record}, {1: 5}, encoded, 10_000)
        compiled.checkpoint_rows(1, 1, [(1, record), (2, record)], {1: 5}, {})
        compiled.log_deletions(DELETE, 1, 1, {1: 2, 3: 4}, {3: staged})
        compiled.pack_packets(bytes(120), 60, 64, b"", b"", -1, 10_000, [1], [label], [body], [0])
        assert len(compiled.equal_packets(shaped * 2, 0, shaped, -1, 64)[0]) == 2
        assert len(compiled.stamp_packets(shaped * 2, 0, shaped, -1, 64, bytes(64), b"", 2**32, 0)[0]) == 2
        assert len(compiled.staged_rows(bytes(13), 1, [packet, packet])[1]) == 2
        compiled.published_rows(1, 1, 1, 1, 3, bytes(13), 1, 1, 1, 1)
        compiled.packet_contents([shaped, shaped], 64)
        with pytest.raises(TypeError):
            compiled.staged_rows(bytes(13), 1, [packet, None])
        compiled.decode_plain(staged, Record)
        compiled.decode_plain(encode(record, 7), Record)
        for known in ({}, {header: (7, 4)}, {header: (7, "")}):
            with contextlib.suppress(TypeError):
                compiled.event_rows(1, 2, 3, 4, 5, [6], [signed], [7], [8], known)
            known.clear()  # the name lasts longer than the loop
        with pytest.raises(ZeroDivisionError):
            compiled.decode_plain(encode(record, 7), lambda *_: 1 // 0)
        assert compiled.equal_envelopes([shaped, shaped[:-1], b"x" * 64]) == 2
        with pytest.raises(OverflowError):
            compiled.log_rows(PUT, 1, 1, {1: record, 2: broken}, {}, {}, 10_000)
        with pytest.raises(OverflowError):
            compiled.checkpoint_rows(1, 1, [(1, record), (2, broken)], {}, {})
        with pytest.raises(OverflowError):
            compiled.pack_packets(bytes(120), 60, 64, b"", b"", -1, 1000, [1], [label], [body], [0])
    assert [sys.getrefcount(each) for each in held] == before


def fields_of(record: Record | None) -> tuple[object, ...]:
    if record is None:
        return ()
    return tuple(getattr(record, name) for name in Record.__slots__)


@given(RECORDS | st.builds(Record, st.binary(max_size=300), arrived=SMALL), NUMBERS)
def test_decoded_records_are_the_same(compiled: ModuleType, record: Record, visibility: int) -> None:
    raw = encode(record, visibility)
    made = compiled.decode_plain(raw, Record)
    assert fields_of(made) == fields_of(record_rows._decode_plain(raw, Record))
    is_plain = visibility and not (record.flags or record.abort_count or record.move_count)
    assert fields_of(made) == (
        (record.packet, record.arrived, visibility, PositionState.AVAILABLE, 0, 0, 0, b"") if is_plain else ()
    )


@pytest.mark.parametrize("place", range(40))
def test_a_record_that_was_changed_is_not_decoded(functions: SimpleNamespace, place: int) -> None:
    raw = bytearray(encode(Record(b"packet of 16 .. ", 9), 5))
    raw[place] ^= 0x10
    assert functions.decode_plain(bytes(raw), Record) is None
    assert functions.decode_plain(bytes(raw[:23]), Record) is None


# Every shape of names and headers, also wrong ones: the sizes and flags are at random.
PACKETS = st.builds(
    lambda flags, fixed, rest: fixed[:60] + flags.to_bytes(4, "little") + rest,
    st.builds(lambda names, others: names << 10 | others, st.integers(0, 0x1FF), st.integers(0, 0x3FF))
    | st.integers(0, 2**32 - 1),
    st.binary(min_size=60, max_size=60),
    st.binary(max_size=20).map(lambda rest: rest + bytes(130)) | st.binary(max_size=300),
)


@given(PACKETS, NUMBERS, NUMBERS, NUMBERS, st.booleans())
def test_rows_of_events_are_the_same(
    compiled: ModuleType, packet: bytes, lookup_id: int, visibility: int, aborts: int, has_senders: bool
) -> None:
    senders: dict[bytes, tuple[int, int]] | None = {} if has_senders else None
    arguments = (1, 2, 3, 4, 5, [lookup_id], [packet], [visibility], [aborts])
    wanted: list[bytes | None] | None
    for _ in range(2):
        try:
            wanted = REFERENCES.event_rows(*arguments, senders)
            end = headers_end(packet)
        except (struct.error, IndexError):
            wanted = None
        if wanted is None or end > len(packet):
            # The reference reads what is there of an unchecked packet; a slice ends where the
            # packet ends.
            with contextlib.suppress(ValueError):
                compiled.event_rows(*arguments, senders)
            return
        assert compiled.event_rows(*arguments, senders) == wanted
        if senders is None or wanted != [None]:
            return
        senders = {event_fields(packet)[-1]: (77, 4)}


def headers_end(packet: bytes) -> int:
    """Return where the headers end that an event is made of, as far as the packet says it."""
    security, properties = header_offsets(packet, int.from_bytes(packet[60:64], "little"))
    sender = int.from_bytes(packet[security + 2 : security + 4], "little") if security else 0
    return max(properties + 44, security + 16 + sender)


envelopes = st.lists(
    st.builds(
        lambda at, change: bytes(at) + change + bytes(80 - at - len(change)),
        st.integers(0, 70),
        st.sampled_from([b"", b"x", b"\0", b"xy"]),
    ),
    max_size=6,
)


@given(envelopes)
def test_equal_envelopes_are_counted_the_same(compiled: ModuleType, packets: list[bytes]) -> None:
    assert compiled.equal_envelopes(packets) == packet_runs._equal_envelopes(packets)


@pytest.mark.parametrize("place", range(64))
def test_an_envelope_is_flags_times_and_source(functions: SimpleNamespace, place: int) -> None:
    """PacketSize, the signature and MessageID are not in `Envelope`, so they may differ."""
    other = bytes(place) + b"x" + bytes(63 - place)
    is_equal = not (2 <= place < 4 or 12 <= place < 56 or place >= 60)
    assert functions.equal_envelopes([bytes(64), bytes(64), other]) == (3 if is_equal else 2)
    assert functions.equal_envelopes([]) == 0


def test_a_packet_without_fixed_headers_has_no_envelope(compiled: ModuleType) -> None:
    with pytest.raises(ValueError, match="shorter"):
        compiled.equal_envelopes([bytes(64), bytes(63)])


# The choice
# --------------------------------------------------------------------------------------------------


def description(**environment: str) -> str:
    program = "from lanner import native; from lanner.store import rows; print(rows.log_rows, native.description())"
    given = {key: value for key, value in os.environ.items() if key != "LANNER_NO_NATIVE"} | environment
    result = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True)
    return result.stdout


def test_the_environment_can_choose_the_references() -> None:
    assert "<function _log_rows" in description(LANNER_NO_NATIVE="1")
    assert "because LANNER_NO_NATIVE is set" in description(LANNER_NO_NATIVE="1")


@pytest.mark.skipif(not native.is_native, reason="lanner._native is not built here")
def test_the_compiled_functions_are_used_where_they_are() -> None:
    assert "<built-in function log_rows>" in description()
    assert "compiled functions are used" in description()
