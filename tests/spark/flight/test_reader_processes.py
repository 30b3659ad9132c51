"""Reader processes: an unprivileged process reads the data that a ticket names.

The tests include killing one of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.host.budget import Budget
from lanner.model.errors import AccessDenied, InvalidParameter
from lanner.security.users import USER_FILE
from lanner.spark.columnar import packet_source
from lanner.spark.flight import reader_pool
from lanner.spark.flight import tickets as flight_tickets
from lanner.spark.flight.client import FlightQueues, Partition
from lanner.spark.flight.errors import EpochChanged, TicketRefused, TooBusy
from lanner.spark.flight.reader_pool import MAX_SNAPSHOT, ReaderPool, Snapshots
from lanner.spark.flight.reader_process import DIRECTORY
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.flight.tickets import LIFE, Grant, Tickets

WAIT = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: these tests are about what the processes do."""
    monkeypatch.setattr(reader_pool, "PATIENCE", 300.0)


@pytest.fixture
def served(qm: QueueManager, accounts: Path) -> Iterator[FlightListener]:
    """A service with one reader process."""
    shutil.copy(accounts, runtime_of(qm).users.path)
    with FlightListener(runtime_of(qm), FlightSettings(port=0, processes=1)) as listener:
        yield listener


@pytest.fixture
def queues(served: FlightListener) -> Iterator[FlightQueues]:
    with FlightQueues(served.address, user="root", password="secret") as found:
        yield found


def pool_of(listener: FlightListener) -> ReaderPool:
    assert listener._pool is not None
    return listener._pool


def fill(qm: QueueManager, count: int, size: int = 10) -> None:
    queue = qm.create_queue("q") if not any(one.name.endswith("\\q") for one in qm.queues()) else qm.open("q")
    queue.send_many(Message(body=(b"%d" % number).ljust(size), recoverable=True) for number in range(count))


def at_readers(queues: FlightQueues, partition: Partition) -> pa.Table:
    """Return the rows of a partition, read by a reader process only."""
    return pa.Table.from_batches(batch for batch, _ in queues._read_at(partition.locations[0], partition.ticket))


def only(queues: FlightQueues, **options: object) -> Partition:
    [partition] = queues.plan("q", **options).partitions
    return partition


def eventually(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Reading
# --------------------------------------------------------------------------------------------------


def test_a_reader_process_shows_the_very_same_rows(qm: QueueManager, queues: FlightQueues) -> None:
    fill(qm, 50)
    partition = only(queues)
    theirs = at_readers(queues, partition).drop_columns(["read_time"])
    ours = pa.Table.from_batches(queues._read_here(partition.ticket)).drop_columns(["read_time"])
    assert theirs.num_rows == 50
    assert theirs.equals(ours)
    core = at_readers(queues, only(queues, columns="core", after=partition.after + 10))
    assert (core.num_rows, "body" in core.schema.names) == (40, False)


def test_a_message_that_was_acknowledged_before_the_plan_is_always_in_the_scan(
    qm: QueueManager, queues: FlightQueues
) -> None:
    """This includes a message that is only in the write-ahead log.

    Its sender has the acknowledgment at that point.
    """
    fill(qm, 1)
    queue, stop, sent = qm.open("q"), threading.Event(), [1]

    def send() -> None:
        while not stop.is_set():
            queue.send(Message(body=b"more", recoverable=True))
            sent[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for _ in range(20):
            before = sent[0]
            rows = sum(at_readers(queues, one).num_rows for one in queues.plan("q", columns="seq").partitions)
            assert rows >= before
    finally:
        stop.set()
        thread.join()
    assert sent[0] > 20


def test_what_only_the_queue_manager_can_read_is_served_by_it(qm: QueueManager, queues: FlightQueues) -> None:
    fill(qm, 3)
    assert only(queues).locations
    qm.open("q").send(Message(body=b"express"))
    assert not only(queues).locations
    assert [row.strip() for row in queues.table("q").column("body").to_pylist()] == [b"0", b"1", b"2", b"express"]


def test_messages_that_somebody_is_receiving_are_left_out(qm: QueueManager, queues: FlightQueues) -> None:
    qm.create_queue("q", transactional=True)
    with qm.transaction() as sending:
        for number in range(3):
            qm.open("q").send(Message(body=b"%d" % number), transaction=sending)
    with qm.transaction() as receiving:
        assert qm.open("q").receive(0, transaction=receiving).body_bytes == b"0"
        partition = only(queues)
        assert partition.locations
        assert at_readers(queues, partition).column("body").to_pylist() == [b"1", b"2"]
        receiving.abort()


def test_any_flight_client_may_read_a_ticket_at_either_place(
    qm: QueueManager, queues: FlightQueues, served: FlightListener
) -> None:
    fill(qm, 5)
    with fl.connect(served.address) as client:
        options = fl.FlightCallOptions(headers=[client.authenticate_basic_token("root", "secret")])
        [endpoint] = client.get_flight_info(fl.FlightDescriptor.for_path("q"), options).endpoints
        readers, same = endpoint.locations
        assert same.uri == b"arrow-flight-reuse-connection://?"
        assert client.do_get(endpoint.ticket, options).read_all().num_rows == 5
    with fl.connect(readers) as client:
        assert client.do_get(endpoint.ticket).read_all().num_rows == 5
        for call in (
            lambda: list(client.list_flights()),
            lambda: list(client.list_actions()),
            lambda: client.get_flight_info(fl.FlightDescriptor.for_path("q")),
            lambda: client.get_schema(fl.FlightDescriptor.for_path("q")),
            lambda: list(client.do_action(fl.Action("info", b"{}"))),
            client.do_put(fl.FlightDescriptor.for_command(b"{}"), pa.schema([]))[0].close,
            client.do_exchange(fl.FlightDescriptor.for_command(b"{}"))[1].read_chunk,
        ):
            with pytest.raises(pa.ArrowException, match="only takes tickets"):
                call()


# Failures
# --------------------------------------------------------------------------------------------------


def test_kill_9_in_the_middle_of_a_scan(qm: QueueManager, queues: FlightQueues, served: FlightListener) -> None:
    """The client continues where the process ended, and gets every row once.

    Another process is started, and LMDB forgets the first.
    """
    fill(qm, 300, 200_000)
    partition = only(queues, partition_bytes=1 << 30)
    found = queues.read(partition)
    numbers = next(found).column("seq").to_pylist()
    [first] = pool_of(served).processes
    os.kill(first, signal.SIGKILL)
    for batch in found:
        numbers += batch.column("seq").to_pylist()
    assert len(numbers) == 300
    assert numbers == sorted(set(numbers))
    eventually(lambda: first not in pool_of(served).processes and pool_of(served).processes)
    eventually(lambda: only(queues, partition_bytes=1 << 30).locations)
    assert at_readers(queues, only(queues, columns="seq", partition_bytes=1 << 30)).num_rows == 300
    assert first not in {process for process, _ in runtime_of(qm).store.snapshots()[1]}


def test_a_process_that_stands_still_is_replaced(
    qm: QueueManager, queues: FlightQueues, served: FlightListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(qm, 3)
    assert at_readers(queues, only(queues)).num_rows == 3
    [first] = pool_of(served).processes
    monkeypatch.setattr(reader_pool, "MAX_SILENCE", 2.0)
    os.kill(first, signal.SIGSTOP)
    eventually(lambda: pool_of(served).processes not in ([], [first]))
    assert queues.table("q").num_rows == 3


def test_a_snapshot_may_be_old_only_while_nothing_is_written() -> None:
    snapshots = Snapshots()
    assert snapshots.too_old(7, [(1, 7), (2, 6)], 0.0) == set()
    assert snapshots.too_old(7, [(1, 7), (2, 6)], MAX_SNAPSHOT + 1) == {2}
    assert snapshots.too_old(8, [(1, 7), (2, 8)], MAX_SNAPSHOT + 1) == set()
    assert snapshots.too_old(9, [(1, 7)], 3 * MAX_SNAPSHOT) == {1}


def test_the_file_of_a_database_may_grow_while_it_is_read(
    qm: QueueManager, queues: FlightQueues, tmp_path: Path
) -> None:
    """The map of a reader process is as large as the file may ever be."""
    fill(qm, 1)
    assert at_readers(queues, only(queues)).num_rows == 1
    before = (tmp_path / "data" / "data.mdb").stat().st_size
    fill(qm, 100, 200_000)
    assert at_readers(queues, only(queues)).num_rows == 101
    assert (tmp_path / "data" / "data.mdb").stat().st_size > 2 * before


def test_queue_managers_continue_without_reader_processes(
    qm: QueueManager, queues: FlightQueues, served: FlightListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none can be started, the queue manager serves everything itself."""
    fill(qm, 3)
    monkeypatch.setattr(reader_pool, "PATIENCE", 0.5)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    partition = only(queues)
    assert partition.locations == ()
    assert b"grant" not in partition.ticket
    assert sum(map(len, queues.read(partition))) == 3


# What they may not do
# -----------------------------------------------------------------------------------------------


def test_a_reader_process_takes_only_tickets_that_its_queue_manager_has_signed(
    qm: QueueManager, queues: FlightQueues
) -> None:
    fill(qm, 6)
    partition = only(queues, after=queues.bounds("q")["after"] + 1)
    ticket = json.loads(partition.ticket)

    def read(**changes: object) -> pa.Table:
        changed = json.dumps(ticket | changes).encode()
        return at_readers(queues, Partition(changed, 0, 0, 0, 0, partition.locations))

    # What is outside of the grant counts for nothing, but for where to go on.
    assert read(queue="another", queue_id=1, epoch=0, columns="core", upto=1 << 40).schema.names[0] == "qm_id"
    assert read(after=partition.after + 2).num_rows == 3
    with pytest.raises(InvalidParameter, match="its grant begins at"):
        read(after=0)
    content, signature = ticket["grant"].split(".")
    for forged in ("", ".", content, f"{content}.{signature[:-4]}AAA=", f"{content[4:]}.{signature}", "grant"):
        with pytest.raises((TicketRefused, InvalidParameter), match="ticket"):
            read(grant=forged)
    with pytest.raises(TicketRefused, match="has not issued"):
        read(grant=Tickets().sealed(grant(queue=1)))


def grant(**changes: object) -> Grant:
    values: dict[str, object] = {
        "user": "alice",
        "epoch": 1,
        "queue": 2,
        "generation": 3,
        "held": [],
        "after": 0,
        "upto": 9,
        "place": {},
        "columns": "all",
        "include_body": True,
        "compact": False,
        "where": [],
    }
    return Grant(**(values | changes))  # type: ignore[arg-type] # of all fields


def test_tickets_of_another_key_or_another_time_are_refused() -> None:
    now = [1000.0]
    ours = Tickets(clock=lambda: now[0])
    text = ours.sealed(grant())
    assert ours.opened(text) == grant(until=1000.0 + LIFE)
    with pytest.raises(TicketRefused, match="has not issued"):
        Tickets(clock=lambda: now[0]).opened(text)
    now[0] += LIFE + 1
    with pytest.raises(TicketRefused, match="has expired"):
        ours.opened(text)


def test_setting_the_clock_neither_prolongs_nor_ends_a_ticket() -> None:
    """Its time is that of the monotonic clock, which the processes of a machine share."""
    before = time.monotonic()
    until = (tickets := Tickets()).opened(tickets.sealed(grant())).until
    assert before + LIFE <= until <= time.monotonic() + LIFE


def test_a_client_with_an_old_ticket_is_served_by_the_queue_manager(
    qm: QueueManager, queues: FlightQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(qm, 4)
    monkeypatch.setattr(flight_tickets, "LIFE", -1.0)
    partition = only(queues)
    with pytest.raises(TicketRefused):
        at_readers(queues, partition)
    assert sum(map(len, queues.read(partition))) == 4


def test_a_client_with_an_old_ticket_gets_a_new_one_for_the_reader_process(
    qm: QueueManager, queues: FlightQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan may take longer to read than its tickets are valid."""
    fill(qm, 9)
    asked = {"columns": ["seq", "label"], "body_format": "text", "where": [["label", "=", ""]]}
    with monkeypatch.context() as changed:
        changed.setattr(flight_tickets, "LIFE", -1.0)
        partition = only(queues, **asked, after=queues.bounds("q")["after"] + 2)
    with pytest.raises(TicketRefused):
        at_readers(queues, partition)
    monkeypatch.setattr(FlightQueues, "_read_here", lambda *_: pytest.fail("read in the queue manager"))
    found = pa.Table.from_batches(queues.read(partition))
    assert found.schema.names == ["seq", "label", "value"]
    assert [value.strip() for value in found.column("value").to_pylist()] == [str(n) for n in range(2, 9)]
    # Messages that arrived since the plan are not read.
    fill(qm, 3)
    assert sum(map(len, queues.read(partition))) == 7


def test_the_queue_manager_looks_at_the_rights_whatever_a_ticket_says(
    qm: QueueManager, queues: FlightQueues, served: FlightListener
) -> None:
    fill(qm, 4)
    partition = only(queues)
    with FlightQueues(served.address, user="bob", password="builder") as bob:
        with pytest.raises(AccessDenied, match="bob"):
            list(bob.read(partition.ticket))
        # A signed ticket works for every holder, as a token does.
        assert at_readers(bob, partition).num_rows == 4


def test_a_ticket_of_another_epoch_is_refused(qm: QueueManager, queues: FlightQueues, served: FlightListener) -> None:
    fill(qm, 1)
    partition = only(queues)
    ticket = json.loads(partition.ticket) | {"grant": pool_of(served).tickets.sealed(grant(epoch=77))}
    with pytest.raises(EpochChanged):
        at_readers(queues, Partition(json.dumps(ticket).encode(), 0, 9, 0, 0, partition.locations))


def test_a_reader_process_has_no_more_rights_than_it_needs(
    qm: QueueManager, queues: FlightQueues, served: FlightListener, tmp_path: Path
) -> None:
    """Asked of the kernel: it opens the database, and nothing else of the data directory."""
    fill(qm, 1)
    assert at_readers(queues, only(queues)).num_rows == 1
    [process] = map(psutil.Process, pool_of(served).processes)
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    assert status["NoNewPrivs"] == "1"
    data = (tmp_path / "data").resolve()
    opened = {Path(one.path).name for one in process.open_files() if Path(one.path).is_relative_to(data)}
    assert opened <= {"data.mdb", "lock.mdb"}
    assert process.nice() > 0
    limits = Path(f"/proc/{process.pid}/limits").read_text()
    assert next(line for line in limits.splitlines() if "core file" in line).split()[4:6] == ["0", "0"]


CONFINED = """
import os, socket, sys
from pathlib import Path
from lanner.spark.flight.confinement import confine
from lanner.spark.flight.reader_process import _allowed
data = Path(sys.argv[1])
if not confine(_allowed(data, {"tls_certificate": None, "tls_key": None})):
    print("none"); raise SystemExit
def tried(work):
    try:
        work()
    except OSError:
        return False
    return True
print(*(int(tried(work)) for work in (
    lambda: (data / "data.mdb").open("rb"),
    lambda: (data / "data.mdb").open("r+b"),
    lambda: (data / sys.argv[3]).open("rb"),
    lambda: os.listdir(data),
    lambda: (data / "new").open("wb"),
    lambda: (data / "readers" / "new").open("wb"),
    lambda: (data / "data.mdb").unlink(),
    lambda: os.execv("/bin/true", ["true"]),
    lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2])), 1),
    lambda: socket.socket(socket.AF_UNIX).bind(str(data / "readers" / "s")),
    lambda: os.kill(os.getppid(), 0),
)))
"""


def test_what_it_is_not_to_touch_is_refused_by_the_kernel(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY).mkdir()
    for name in ("data.mdb", "lock.mdb", USER_FILE):
        (tmp_path / name).write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-P", "-c", CONFINED, str(tmp_path), str(listening.getsockname()[1]), USER_FILE]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True).stdout.split()
    if answer == ["none"]:
        pytest.skip("this kernel has no Landlock")
    assert answer == ["1", *["0"] * 8, "1", "0"]


# Limits
# --------------------------------------------------------------------------------------------------


def test_their_streams_and_connections_are_counted_in_the_budget(
    qm: QueueManager, accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than a client's buffers take, which have grown with the streams of earlier tests.
    fill(qm, 800, 200_000)
    shutil.copy(accounts, runtime_of(qm).users.path)
    budget = Budget()
    monkeypatch.setattr(packet_source, "BATCH_BYTES", 1 << 20)
    with (
        FlightListener(runtime_of(qm), FlightSettings(port=0, processes=1, max_streams=2), budget=budget) as listener,
        FlightQueues(listener.address, user="root", password="secret") as queues,
    ):
        partition = only(queues, partition_bytes=1 << 30)
        begun = queues._read_at(partition.locations[0], partition.ticket)
        next(begun)

        def used() -> dict[str, int]:
            return {one.resource: one.used for one in budget.usage() if one.resource.startswith("flight reader")}

        eventually(lambda: used() == {"flight reader streams": 1, "flight reader connections": 1})
        with pytest.raises(TooBusy, match="streams"):
            at_readers(queues, partition)
        begun.close()
        eventually(lambda: used()["flight reader streams"] == 0)


def test_settings_say_how_many_there_are() -> None:
    assert FlightSettings().processes == 0
    for wrong in ({"processes": -1}, {"processes": 1000}, {"reader_port": 70_000}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            FlightSettings(**wrong)  # type: ignore[arg-type] # one of them
