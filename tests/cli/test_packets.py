"""`lanner export` and `lanner import`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.cli import packets
from lanner.client import Message, Queue
from lanner.spark.columnar.packet_files import PacketReader
from tests.cli.conftest import Run, free_address
from tests.cli.test_messages import bodies
from tests.client.served import ServedManager


@pytest.fixture
def served(data: Path, run: Run) -> Iterator[ServedManager]:
    served = ServedManager(data, free_address())
    yield served
    served.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders.packets"


def fill(run: Run, queue: str = "orders") -> None:
    run("send", queue, "low", "--priority", "1", "--label", "one")
    run("send", queue, "high", "--priority", "5")


def test_there_and_back(run: Run, orders: str, file: Path) -> None:
    fill(run)
    ran = run("export", orders, file)
    assert ran.out.startswith(rf"2 messages of ALPHA\private$\orders are in {file}, ")
    assert len(run("peek", orders, "--all", "--json").lines) == 2, "they stay"
    run("queue", "create", "copies")
    assert run("import", file, "copies", "--dry-run").out.startswith("would import 2 messages from ")
    run("peek", "copies", code=3)
    assert run("import", file, "copies").out == (
        rf"imported 2 messages from {file} to DIRECT=OS:ALPHA\private$\copies" + "\n"
    )
    again = run("import", file, "copies")
    assert again.out.endswith("before: nothing was done\n")
    assert bodies(run, "peek", "copies", "--all") == ["high", "low"]
    found = run("peek", "copies", "--all", "--json").lines
    assert [(line["priority"], line["label"]) for line in found] == [(5, ""), (1, "one")]


def test_the_file_is_for_its_user_alone(run: Run, orders: str, file: Path) -> None:
    fill(run)
    planted = file.with_name(f"{file.name}.partial")
    planted.touch(0o666)
    planted.chmod(0o666)
    run("export", orders, file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_as_json(run: Run, orders: str, file: Path) -> None:
    fill(run)
    document = run("export", orders, file, "--json").json
    with PacketReader(file) as reader:
        packets = [message.packet for message in reader]
    assert document == {
        "queue": r"ALPHA\private$\orders",
        "file": str(file),
        "messages": 2,
        "bytes": sum(map(len, packets)),
    }
    run("queue", "create", "t", "--transactional")
    expected = {"file": str(file), "queue": r"DIRECT=OS:ALPHA\private$\t", "messages": 2, "dry_run": False}
    assert run("import", file, "t", "--json").json == expected | {"is_new": True}
    assert run("import", file, "t", "--json").json == expected | {"is_new": False, "messages": 0}


def test_what_cannot_be_done_is_reported(run: Run, orders: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is empty" in run("export", orders, file, code=3).err
    assert not file.exists()
    fill(run)
    run("export", orders, file)
    assert "exists: give another name, or --force to replace it" in run("export", orders, file, code=2).err
    run("send", orders, "third")
    assert run("export", orders, file, "--force", "--json").json["messages"] == 3
    assert "there is no directory" in run("export", orders, file.parent / "none" / "x", code=2).err
    assert "QUEUE_NOT_FOUND" in run("export", "nowhere", file, "--force", code=1).err
    assert "QUEUE_NOT_FOUND" in run("import", file, "nowhere", code=1).err
    assert "No such file" in run("import", file.with_name("none"), orders, code=1).err
    cut = file.with_name("cut")
    cut.write_bytes(file.read_bytes()[:-20])
    assert "it was cut short" in run("import", cut, orders, code=1).err
    assert len(run("peek", orders, "--all", "--json").lines) == 3
    monkeypatch.setattr("lanner.cli.packets.is_available", lambda: False)
    assert "pip install 'lanner[spark]'" in run("export", orders, file, code=1).err


def test_a_file_without_messages(run: Run, orders: str, file: Path) -> None:
    from lanner.spark.columnar.packet_files import Origin, PacketWriter
    from lanner.spark.columnar.packet_source import Place

    with PacketWriter(file, Origin(Place(), 0, 0)):
        pass
    assert "has no messages" in run("import", file, orders, code=3).err


def test_while_the_queue_manager_runs(served: ServedManager, run: Run, file: Path) -> None:
    run("queue", "create", "orders", "--journal")
    fill(run)
    run("receive", "orders", "--all")
    fill(run)
    assert run("export", "orders", file, "--json").json["messages"] == 2
    with PacketReader(file) as reader:
        assert (reader.origin.place.qm_name, reader.origin.place.queue_kind) == ("ALPHA", "destination")
        assert reader.origin.place.queue == r"DIRECT=OS:ALPHA\private$\orders"
    run("queue", "create", "copies")
    run("queue", "create", "t", "--transactional")
    for queue in ("copies", "t"):
        assert run("import", file, queue, "--json").json["messages"] == 2
        assert len(run("peek", queue, "--all", "--json").lines) == 2
    run("export", "orders;journal", file, "--force")
    with PacketReader(file) as reader:
        assert (reader.origin.place.queue_kind, reader.origin.place.subqueue) == ("journal", None)
        assert len(list(reader)) == 2
    run("move", "orders", "retry", "--all")
    run("export", "orders;retry", file, "--force")
    with PacketReader(file) as reader:
        assert (reader.origin.place.queue_kind, reader.origin.place.subqueue) == ("subqueue", "retry")
        assert len(list(reader)) == 2


def test_a_failing_import_into_a_running_queue_manager(served: ServedManager, run: Run, file: Path) -> None:
    run("queue", "create", "orders")
    run("queue", "create", "small", "--quota-kb", "1")
    run("queue", "create", "small-t", "--transactional", "--quota-kb", "1")
    for _ in range(10):
        run("send", "orders", "x" * 100)
    run("export", "orders", file)
    assert "messages of" in run("import", file, "small", code=1).err
    run("import", file, "small-t", code=1)
    run("peek", "small-t", code=3)


def test_an_import_continues_where_it_was_refused_and_never_doubles(
    served: ServedManager, run: Run, file: Path
) -> None:
    run("queue", "create", "orders")
    run("queue", "create", "small", "--quota-kb", "1")
    for number in range(10):
        run("send", "orders", f"{number} " + "x" * 100)
    run("export", "orders", file)
    refused = run("import", file, "small", code=1).err
    there = len(run("peek", "small", "--all", "--json").lines)
    assert 0 < there < 10
    assert f"{there} messages of" in refused
    run("queue", "set", "small", "--quota-kb", "none")
    assert run("import", file, "small", "--json").json["messages"] == 10 - there
    bodies = [one["body"].split()[0] for one in run("peek", "small", "--all", "--json").lines]
    assert bodies == [str(number) for number in range(10)]
    for queue in ("small", "copies"):
        if queue == "copies":
            run("queue", "create", "copies", "--transactional")
            run("import", file, queue)
        assert not run("import", file, queue, "--json").json["is_new"]
        assert len(run("peek", queue, "--all", "--json").lines) == 10


def test_an_import_that_was_killed_asks_what_has_arrived(
    served: ServedManager, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("queue", "create", "orders")
    run("queue", "create", "copies")
    for number in range(6):
        run("send", "orders", str(number))
    run("export", "orders", file)
    monkeypatch.setattr(packets, "BATCH", 2)
    send_many, batches = Queue.send_many, iter(range(9))

    def killed(self: Queue, messages: list[Message]) -> list[str]:
        if next(batches) == 1:
            raise KeyboardInterrupt  # the messages of this batch are not sent
        return send_many(self, messages)

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "send_many", killed)
        run("import", file, "copies", code=130)
    told = run("import", file, "copies", code=1).err
    assert "messages 3 to 4 were being sent" in told
    assert "--resume-at 5: 2 to 4 expected" in run("import", file, "copies", "--resume-at", "5", code=1).err
    assert run("import", file, "copies", "--resume-at", "2", "--json").json["messages"] == 4
    assert [one["body"] for one in run("peek", "copies", "--all", "--json").lines] == [
        str(number) for number in range(6)
    ]
