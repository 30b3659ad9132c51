"""Arrow data from a user with an account that attacks the Flight service.

The attacks are damaged batches, and requests that cost more than their size suggests.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Iterator
from typing import Any, Final

import pytest

import lanner
from lanner.errors import InvalidParameter
from tests.adversity.attacks.victim import USER, Victim, victim

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
fl = pytest.importorskip("pyarrow.flight")
values = pytest.importorskip("lanner.spark.columnar.values")

MIB: Final = 1 << 20
_QUEUE: Final = r"DIRECT=OS:VICTIM\private$\taken"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(tmp_path_factory.mktemp("arrow"), flight=True) as made:
        with lanner.connect(data=made.data) as manager:
            manager.create_queue("taken", access={USER.user: ["peek"], "Everyone": "send"})
        yield made


class Enemy:
    """A user of Flight who may send to one queue and peek at it."""

    def __init__(self, target: Victim) -> None:
        self.flight = fl.FlightClient(target.listeners["flight"])
        self.headers = [self.flight.authenticate_basic_token(USER.user, USER.password)]

    def options(self, **given: Any) -> Any:  # noqa: ANN401 (pyarrow may be missing)
        return fl.FlightCallOptions(headers=self.headers, timeout=60, **given)

    def put(self, batch: Any, **options: Any) -> None:  # noqa: ANN401 (pyarrow may be missing)
        """Stage a batch and publish it."""
        token = secrets.token_hex(8)
        command = {"token": token, "writer": "w", "batch": 1, "queue": _QUEUE}
        descriptor = fl.FlightDescriptor.for_command(json.dumps(command))
        writer, reader = self.flight.do_put(descriptor, batch.schema, self.options(**options))
        try:
            writer.write_batch(batch)
            writer.write_metadata(json.dumps({"messages": len(batch)}).encode())
            writer.done_writing()
            reader.read()
        finally:
            writer.close()
        publication = json.dumps({"writer": "w", "batch": 1, "tokens": [token]}).encode()
        list(self.flight.do_action(fl.Action("publish", publication), self.options()))

    def plan(self, **command: object) -> Any:  # noqa: ANN401 (pyarrow may be missing)
        asked = json.dumps({"queue": _QUEUE, **command})
        return self.flight.get_flight_info(fl.FlightDescriptor.for_command(asked), self.options())


def damaged(*offsets: int) -> Any:  # noqa: ANN401 (pyarrow may be missing)
    """Return a batch of one body less than there are offsets, which lead out of its 64 octets."""
    raw = bytearray(struct.pack(f"<{len(offsets)}i", *([0] * len(offsets))))
    buffers = [None, pa.py_buffer(raw), pa.py_buffer(bytes(64))]
    batch = pa.record_batch([pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)], ["body"])
    # Only now: pyarrow checks what it makes.
    raw[:] = struct.pack(f"<{len(offsets)}i", *offsets)
    return batch


@pytest.mark.parametrize("offsets", [(0, 3 * MIB), (0, 2**31 - 1), (-4096, 64), (0, 64, 0, 64), (0, -1)])
def test_offsets_do_not_lead_into_the_memory_of_the_queue_manager(target: Victim, offsets: tuple[int, ...]) -> None:
    with pytest.raises(fl.FlightError, match="damaged"):
        Enemy(target).put(damaged(*offsets))
    with lanner.connect(data=target.data) as manager:
        assert manager.open("taken").count() == 0


def shared(label: str) -> list[Any]:
    """Return columns of a thousand labels that are one."""
    numbers = pa.array([0] * 1000, pa.int8())
    view = struct.pack("<i4sii", len(label), label[:4].encode(), 0, 0)
    return [
        pa.DictionaryArray.from_arrays(numbers, pa.array([label])),
        pa.RunEndEncodedArray.from_arrays(pa.array([1000], pa.int32()), pa.array([label])),
        pa.Array.from_buffers(pa.string_view(), 1000, [None, pa.py_buffer(view * 1000), pa.py_buffer(label.encode())]),
    ]


def test_a_value_that_many_rows_share_is_not_repeated(target: Victim) -> None:
    """Each of these batches would have become four gigabytes."""
    for labels in shared("x" * 4_000_000):
        batch = pa.record_batch([pa.array([b""] * 1000), labels], ["body", "label"])
        with pytest.raises(fl.FlightServerError, match="one by one"):
            Enemy(target).put(batch)


def test_what_a_client_sent_is_quoted_in_part(target: Victim) -> None:
    """The answer would otherwise be too long for gRPC."""
    batch = pa.record_batch({"body": [b""], "resp_format_name": ["x" * 1_000_000]})
    with pytest.raises(fl.FlightServerError, match="path name"):
        Enemy(target).put(batch)


def test_a_schema_of_bodies_is_read_in_one_pass() -> None:
    for text in ("a " + " " * 19_000 + "`", "`" * 19_999, "a" + " int,a" * 3_000 + "`"):
        # Checking each space together with everything behind it would take hours and exceed the
        # time-out of the test.
        with pytest.raises(InvalidParameter):
            values.parse_type(text)
    with pytest.raises(InvalidParameter):
        values.parse_type(f"decimal({'9' * 5000},0)")


def test_a_plan_does_not_repeat_what_was_asked_for_without_end(target: Victim) -> None:
    enemy = Enemy(target)
    with lanner.connect(data=target.data) as manager:
        queue = manager.open("taken")
        queue.send_many([b"x"] * 1000)
        try:
            with pytest.raises(fl.FlightError, match="bigger partitions"):
                enemy.plan(partition_bytes=1, where=[["label", "=", "x" * 900_000]])
            assert len(enemy.plan(partition_bytes=1).endpoints) == 1000
        finally:
            queue.purge()
