"""Streams through shared memory, for clients on the same machine.

They yield what Flight yields, and the memory is reused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import AccessDenied, InvalidParameter, ServiceNotAvailable
from lanner.host.budget import Budget, Door
from lanner.rpc.unix_path import short_path
from lanner.spark.columnar import packet_source
from lanner.spark.columnar.packet_source import PacketBatch, Place
from lanner.spark.columnar.schema import BY_NAME
from lanner.spark.columnar.vectors import Octets, Room
from lanner.spark.flight import near_server, near_streams
from lanner.spark.flight.client import MAX_TICKET, FlightQueues, _is_near
from lanner.spark.flight.errors import EpochChanged, NotAuthenticated, TooBusy
from lanner.spark.flight.local_user import user_of
from lanner.spark.flight.near_server import SOCKET, NearServer
from lanner.spark.flight.near_streams import SLOTS, NearReader, Slot
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings

Connect = Callable[..., FlightQueues]
IDENTIFIER = "0f5ef1a4-6a52-4a2b-9f0e-6ad5a3c0b8a1"


class Nothing:
    """A packet source without messages."""

    place = Place()

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        yield from ()


def door() -> Door:
    return Door(Budget(), "streams", limit=4, share=0.1)


def fill(qm: QueueManager, name: str, count: int) -> None:
    qm.open(name).send_many(Message(body=b"%d" % number * 100, label="x", recoverable=True) for number in range(count))


@pytest.fixture
def many(qm: QueueManager, monkeypatch: pytest.MonkeyPatch) -> int:
    """A queue `q` of many batches."""
    monkeypatch.setattr(packet_source, "BATCH_ROWS", 10)
    qm.create_queue("q")
    fill(qm, "q", 200)
    return 200


def far(queues: FlightQueues) -> FlightQueues:
    queues._is_near = False
    return queues


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("seq").to_pylist()]


@pytest.mark.parametrize(
    ("family", "address", "client"),
    [
        (socket.AF_INET, "127.0.0.1", socket.AF_INET),
        (socket.AF_INET6, "::1", socket.AF_INET6),
        (socket.AF_INET, "127.0.0.1", socket.AF_INET6),
    ],
)
def test_the_user_of_a_connection_is_known(family: int, address: str, client: int) -> None:
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        listening.listen()
        port = listening.getsockname()[1]
        with socket.socket(client) as connecting:
            connecting.connect((f"::ffff:{address}" if client != family else address, port))
            accepted, _ = listening.accept()
            ends = accepted.getsockname(), accepted.getpeername()
            assert user_of(*ends) == os.geteuid()
            accepted.close()
    assert user_of(("192.0.2.1", 1810), ("192.0.2.2", 50_000)) is None


def test_the_same_batches_come_through_memory_as_through_the_port(
    qm: QueueManager, many: int, root: FlightQueues, connect: Connect
) -> None:
    path = runtime_of(qm).path / SOCKET
    assert root.info()["near"] == str(path.resolve())
    assert path.is_socket()
    assert path.stat().st_mode & 0o777 == 0o600
    near = root.table("q")
    assert len(root._idle) == 1
    expected = far(connect("root", "secret")).table("q")
    assert (near.num_rows, near.schema) == (many, expected.schema)
    assert near.drop_columns("read_time").equals(expected.drop_columns("read_time"))
    near.validate(full=True)


def test_messages_of_every_kind_come_through_memory_as_through_the_port(
    qm: QueueManager, root: FlightQueues, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages have one size or many, and are express, published by a writer, or text.

    One of them is about to be received by another reader.
    """
    queue = qm.create_queue("q")
    fill(qm, "q", 40)
    rows = pa.RecordBatch.from_pylist([{"body": b"published %d" % number} for number in range(15)])
    tokens = [root.stage([rows], rows.schema, writer="w", queue="q")["token"]]
    root.publish("w", 0, tokens)
    queue.send_many(
        Message(body="text" * number, label="x" * (number % 5), priority=number % 8) for number in range(30)
    )
    queue.send_many(Message(body=b"of one size", recoverable=True) for _ in range(25))
    with qm.transaction() as transaction:
        assert queue.receive(transaction=transaction) is not None
        for limit in (1, 7, 1 << 14):
            monkeypatch.setattr(packet_source, "BATCH_ROWS", limit)
            # Also where all of a batch is about to be received.
            for queues in (root, far(connect("root", "secret"))):
                assert all(len(batch) for batch in queues.batches("q"))
            for columns in ("all", "core", ["packet", "seq"], ["seq"]):
                near, expected = (
                    root.table("q", columns=columns),
                    far(connect("root", "secret")).table("q", columns=columns),
                )
                assert near.num_rows == 109
                changing = [name for name in near.column_names if name == "read_time"]
                assert near.drop_columns(changing).equals(expected.drop_columns(changing))
                assert len(root._idle) == 1
        transaction.abort()


def test_a_ticket_that_is_none_is_refused_by_the_port(many: int, root: FlightQueues) -> None:
    for ticket, told in (
        (b"nonsense", "not JSON"),
        (b"[]", "a JSON object"),
        (b'{"queue": "q", "epoch": %d, "columns": "colour"}' % root.info()["epoch"], "no column"),
    ):
        with pytest.raises(InvalidParameter, match=told):
            list(root.read(ticket))
    assert root._idle == []


def test_a_ticket_that_is_too_long_goes_through_the_port(many: int, root: FlightQueues) -> None:
    [partition] = root.plan("q").partitions
    assert len(numbers(root.read(partition.ticket + b" " * MAX_TICKET))) == many
    assert root._idle == []


def test_what_waits_gives_its_memory_back(many: int, root: FlightQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_server, "_QUIET_MS", 10)
    [partition] = root.plan("q").partitions
    stream = root.read(partition.ticket)
    next(stream)
    for _ in range(3):
        assert len(numbers(stream)) in (many - 10, many)
        [reader] = root._idle
        while any(os.fstat(file).st_blocks for file in reader._files):
            time.sleep(0.001)
        # It is there again for the next one.
        stream = root.read(partition.ticket)


def test_another_queue_manager_at_the_same_path_is_not_read_from(many: int, root: FlightQueues) -> None:
    """So it looks through a tunnel to another machine."""
    path = Path(root.info()["near"])
    with pytest.raises(ConnectionError, match=IDENTIFIER):
        NearReader(path, IDENTIFIER)
    root._near = (path, IDENTIFIER)
    assert len(numbers(root.batches("q"))) == many
    assert (root._is_near, root._idle) == (False, [])


def test_a_server_that_does_not_greet_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_streams, "_GREETED", 0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        with pytest.raises(TimeoutError):
            NearReader(tmp_path / "socket", IDENTIFIER)


def test_a_connection_that_cannot_be_taken_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Too many descriptors, say."""
    monkeypatch.setattr(near_server, "_PAUSE", 0.001)
    server = NearServer(tmp_path, IDENTIFIER, lambda _header, _ticket: Nothing(), door())
    listening, failures = server._listening, [OSError(24, "too many open files")] * 3

    class Failing:
        def accept(self) -> tuple[socket.socket, object]:
            if failures:
                raise failures.pop()
            return listening.accept()

        def shutdown(self, how: int) -> None:
            listening.shutdown(how)

        def close(self) -> None:
            listening.close()

    server._listening = Failing()  # type: ignore[assignment]
    for _ in range(2):
        NearReader(server.path, IDENTIFIER).close()
    assert not failures
    assert caplog.text.count("too many open files") == 3
    assert server.stop(30)


def test_connections_leave_no_descriptors(tmp_path: Path) -> None:
    def memories() -> int:
        count = 0
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += "lanner-packets" in str(path.readlink())
        return count

    before = memories()
    server = NearServer(tmp_path, IDENTIFIER, lambda _header, _ticket: Nothing(), door())
    for _ in range(5):
        reader = NearReader(server.path, IDENTIFIER)
        assert memories() >= before + SLOTS
        reader.close()
    assert server.stop(30)
    assert memories() <= before


def test_what_is_wrong_in_the_queue_manager_is_told(
    many: int, root: FlightQueues, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not mistaken for a reader that disconnected; but no token is revealed."""

    def full(_slot: Slot, _size: int) -> Octets:
        raise OSError(28, "no space left")

    monkeypatch.setattr(Slot, "room", full)
    with pytest.raises(ServiceNotAvailable):
        list(root.batches("q"))
    assert "no space left" in caplog.text
    assert "Bearer" not in caplog.text


def test_a_slot_that_its_reader_made_longer_serves_all_the_same(many: int, root: FlightQueues) -> None:
    assert root.table("q").num_rows == many
    [reader] = root._idle
    for file in reader._files:
        os.ftruncate(file, 64 << 20)
    assert root.table("q").num_rows == many
    slot = Slot()
    os.ftruncate(slot.file, 8 << 20)
    assert len(slot.room(100)) == 100
    slot.close()


def test_a_connection_serves_one_stream_after_the_other_and_its_memory_goes_round(
    many: int, root: FlightQueues
) -> None:
    [partition] = root.plan("q").partitions
    assert len(numbers(root.read(partition.ticket))) == many
    [reader] = root._idle
    for _ in range(3):
        assert len(numbers(root.read(partition.ticket))) == many
    assert root._idle == [reader]
    assert len(reader._files) == SLOTS


def test_batches_in_hands_stay_what_they_are(many: int, root: FlightQueues) -> None:
    """There are more batches than slots.

    Batches that are held own their memory, so no reader waits forever.
    """
    [partition] = root.plan("q", columns=[*BY_NAME]).partitions
    stream = root.read(partition.ticket)
    kept = [next(stream) for _ in range(SLOTS + 3)]
    before = [batch.to_pydict() for batch in kept]
    rest = list(stream)
    assert len(kept) + len(rest) == many // 10
    assert [batch.to_pydict() for batch in kept] == before
    assert numbers(iter(kept + rest)) == sorted(numbers(iter(kept + rest)))
    root.close()
    assert [batch.to_pydict() for batch in kept] == before


def test_two_streams_at_a_time_have_memory_of_their_own(many: int, root: FlightQueues) -> None:
    [partition] = root.plan("q").partitions
    both = [
        list(pair)
        for pair in zip(*zip(root.read(partition.ticket), root.read(partition.ticket), strict=True), strict=True)
    ]
    assert numbers(iter(both[0])) == numbers(iter(both[1]))
    assert len(root._idle) == 2


def test_a_slot_grows_with_the_batches(qm: QueueManager, root: FlightQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_source, "BATCH_ROWS", 1)
    queue = qm.create_queue("q")
    bodies = [os.urandom(size) for size in (10, 1_000_000, 10, 3_000_000, 2_000_000, 3_500_000, 10)]
    queue.send_many(Message(body=body, recoverable=True) for body in bodies)
    assert [batch.column("body")[0].as_py() for batch in root.batches("q")] == bodies


def test_no_reader_makes_a_slot_shorter(many: int, root: FlightQueues) -> None:
    """Otherwise the queue manager would write beyond the end of the file, and crash."""
    assert root.table("q").num_rows == many
    [reader] = root._idle
    for file in reader._files:
        size = os.fstat(file).st_size
        assert size
        with pytest.raises(PermissionError):
            os.ftruncate(file, size - 1)
    assert root.table("q").num_rows == many


def test_who_goes_away_in_the_middle_leaves_nothing(
    qm: QueueManager, many: int, root: FlightQueues, listener: FlightListener
) -> None:
    [partition] = root.plan("q").partitions
    stream = root.read(partition.ticket)
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # a generator
    assert root._idle == []
    assert listener._near is not None
    for thread in list(listener._near._connections.values()):
        thread.join(30)
    assert listener._near._connections == {}
    assert len(numbers(root.read(partition.ticket))) == many


def test_errors_are_those_of_the_service(qm: QueueManager, many: int, root: FlightQueues, connect: Connect) -> None:
    [partition] = root.plan("q").partitions
    qm.open("q").revoke("Everyone")
    for caller, change, kind in (
        (connect(None), b"", NotAuthenticated),
        (connect("alice", "wonder"), b"", AccessDenied),
        (root, b'"epoch": 1, ', EpochChanged),
    ):
        ticket = (
            partition.ticket.replace(b'"epoch": %d, ' % root.info()["epoch"], change) if change else partition.ticket
        )
        with pytest.raises(kind):
            list(caller.read(ticket))
    root._authorization = "Bearer made-up"
    with pytest.raises(NotAuthenticated, match="log on again"):
        list(root.read(partition.ticket))
    root._authorization = "Basic YWxpY2U6d29uZGVy"
    with pytest.raises(NotAuthenticated, match="Bearer expected"):
        list(root.read(partition.ticket))


def test_without_the_socket_there_is_the_port(qm: QueueManager, many: int, root: FlightQueues) -> None:
    """It may be of another user, or lie in another container."""
    (runtime_of(qm).path / SOCKET).unlink()
    assert root.table("q").num_rows == many
    assert (root._is_near, root._idle) == (False, [])


def test_streams_through_memory_and_port_count_together_and_so_do_connections(qm: QueueManager, many: int) -> None:
    runtime_of(qm).users.add("chief", "secret", administrator=True)
    with (
        FlightListener(runtime_of(qm), FlightSettings(port=0, max_streams=1)) as listener,
        FlightQueues(listener.address, user="chief", password="secret") as queues,
    ):
        [partition] = queues.plan("q").partitions
        stream = queues.read(partition.ticket)
        next(stream)
        with pytest.raises(TooBusy):
            list(far(queues).read(partition.ticket))
        assert listener._near is not None
        with pytest.raises(ConnectionError):
            NearReader(listener._near.path, queues.info()["queue_manager_id"])
        assert len(list(stream)) == many // 10 - 1


def test_a_queue_manager_that_stops_ends_its_streams(qm: QueueManager, many: int) -> None:
    runtime_of(qm).users.add("chief", "secret", administrator=True)
    listener = FlightListener(runtime_of(qm), FlightSettings(port=0))
    listener.open()
    with FlightQueues(listener.address, user="chief", password="secret") as queues:
        [partition] = queues.plan("q").partitions
        stream = queues.read(partition.ticket)
        held = [next(stream)]
        listener.close()
        with pytest.raises(ServiceNotAvailable):
            held.extend(stream)
        assert not (runtime_of(qm).path / SOCKET).exists()


def test_a_directory_that_is_too_deep_for_a_socket_address_has_one_all_the_same(tmp_path: Path) -> None:
    with (
        QueueManager(tmp_path / ("deep" * 40), name="ALPHA") as qm,
        FlightListener(runtime_of(qm), FlightSettings(port=0)) as listener,
    ):
        runtime_of(qm).users.add("root", "secret", administrator=True)
        qm.create_queue("q")
        fill(qm, "q", 5)
        with FlightQueues(listener.address, user="root", password="secret") as queues:
            assert queues.table("q").num_rows == 5
            assert len(queues._idle) == 1


@pytest.mark.parametrize(
    "packets",
    [
        [b"no json"],
        [b"{}"],
        [b"[]"],
        [b'{"ticket": 5}'],
        [b'{"free": 0}'],
        [b'{"free": -1}'],
        [b'{"free": 99}'],
        [b'{"free": "a"}'],
        [b'{"free": true}'],
        [b'{"free": null}'],
        [],
    ],
)
def test_a_client_that_sends_nonsense_is_disconnected_and_others_continue(
    many: int, root: FlightQueues, listener: FlightListener, packets: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    near = listener._near
    assert near is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        with short_path(near.path) as short:
            stranger.connect(str(short))
        _, files, _, _ = socket.recv_fds(stranger, 1000, SLOTS)
        for file in files:
            os.close(file)
        for packet in packets:
            stranger.send(packet)
        if packets:
            assert stranger.recv(1000) == b""
    assert root.table("q").num_rows == many
    assert ("failed" in caplog.text) == bool(packets)


@pytest.mark.parametrize(
    ("address", "is_near"),
    [
        ("grpc://127.0.0.1:1810", True),
        ("grpc://[::1]:1810", True),
        ("grpc+tcp://127.5.0.1:1810", True),
        ("grpc://localhost:1810", True),
        ("grpc+tls://localhost:1810", False),
        ("grpc+tls://127.0.0.1:1810", False),
        ("grpc://10.0.0.1:1810", False),
        ("grpc://alpha.example.com:1810", False),
    ],
)
def test_only_what_is_surely_this_machine_is_near(address: str, is_near: bool) -> None:
    assert _is_near(address) is is_near


def test_a_server_stops_while_nobody_and_while_somebody_is_there(tmp_path: Path) -> None:
    for is_there in (False, True):
        server = NearServer(tmp_path, IDENTIFIER, lambda _header, _ticket: Nothing(), door())
        readers = [NearReader(server.path, IDENTIFIER)] if is_there else []
        assert server.stop(30)
        for reader in readers:
            with pytest.raises(OSError, match=r"closed|Broken"):
                reader.stream(b"{}", None, lambda _: ValueError())
            reader.close()
