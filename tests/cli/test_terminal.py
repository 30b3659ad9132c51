"""Features of a terminal: questions, colours, bars."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager, connect
from tests.cli.conftest import LANNER, Run, Served, free_address


def on_terminal(*arguments: object, answers: tuple[str, ...] = (), columns: int = 100) -> tuple[int, str]:
    """Run the command on a terminal and answer each prompt.

    Return the exit code and what the person saw.
    """
    master, slave = os.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen(
        [LANNER, *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    seen, waiting, answered = b"", list(answers), 0
    try:
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                # Linux: the other side is closed.
                break
            if not part:
                break
            seen += part
            if waiting and seen[answered:].endswith(b": "):
                answered = len(seen)
                os.write(master, f"{waiting.pop(0)}\n".encode())
        return process.wait(timeout=30), seen.decode()
    finally:
        # A prompt without an answer would wait forever.
        process.kill()
        process.wait()
        os.close(master)


@pytest.fixture
def full(data: Path) -> Path:
    with QueueManager(data, "alpha") as manager:
        queue = manager.create_queue("orders")
        queue.send_many(Message(body=b"x", recoverable=True) for _ in range(300))
        manager.create_queue("copies")
    return data


def count(data: Path, queue: str) -> int:
    with QueueManager(data) as manager:
        return manager.open(queue).count()


def test_what_destroys_asks_and_no_means_no(full: Path) -> None:
    code, seen = on_terminal("queue", "purge", "orders", "--data", full, answers=("n",))
    assert (code, "Remove 300 messages of ALPHA" in seen) == (1, True)
    assert count(full, "orders") == 300
    assert on_terminal("queue", "purge", "orders", "--data", full, answers=("y",))[0] == 0
    assert count(full, "orders") == 0


def test_yes_is_not_asked(full: Path) -> None:
    code, seen = on_terminal("queue", "delete", "orders", "--yes", "--data", full)
    assert (code, "?" in seen.replace("\x1b[?25", "")) == (0, False)


def test_long_work_shows_a_bar_and_an_error_ends_it(full: Path) -> None:
    code, seen = on_terminal("copy", "orders", "copies", "--data", full)
    assert (code, "copying" in seen, "copied 300 messages" in seen) == (0, True, True)
    assert count(full, "copies") == 300


def test_names_are_not_broken_over_lines(full: Path) -> None:
    assert "ALPHA\\private$\\copies" in on_terminal("queue", "list", "--data", full)[1]


def test_a_password_is_asked_for_twice_and_not_shown(data: Path) -> None:
    code, seen = on_terminal("user", "add", "alice", "--data", data, answers=("s3cret-word", "s3cret-word"))
    assert (code, "user alice is added" in seen) == (0, True), seen
    assert "s3cret-word" not in seen


def test_output_that_nobody_takes_leaves_the_messages(full: Path) -> None:
    process = subprocess.Popen(
        [LANNER, "receive", "orders", "--all", "--data", str(full)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=30) == 1
    assert count(full, "orders") == 300


def test_a_narrow_terminal_keeps_times_whole(data: Path, serve: Callable[..., Served], run: Run) -> None:
    name, address = "somebody.with.a.long.name", free_address()
    run("queue", "create", "orders")
    run("user", "add", name, "--password-stdin", stdin="a long word\n")
    serve("--json", "--bind", address).ready()
    with connect(address, name, "a long word") as manager:
        assert manager.who_am_i()["user"] == name
        code, seen = on_terminal("sessions", "--data", data, columns=60)
    assert code == 0
    assert re.search(r"client .* 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\r", seen), seen
    assert "somebody" in seen


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_keeps_names_and_numbers_whole(
    full: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, seen = on_terminal("queue", "list", "--data", full)
    assert code == 0
    lines = seen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert lines[0].split() == ["NAME", "KIND", "MESSAGES", "SIZE", "JOURNAL", "TRANS", "QUOTA", "LABEL"]
    assert [line.split()[:3] for line in lines[-2:]] == [
        [r"ALPHA\private$\copies", "private", "0"],
        [r"ALPHA\private$\orders", "private", "300"],
    ]


def test_a_narrow_terminal_keeps_the_role_of_a_user(data: Path, run: Run) -> None:
    run("user", "add", "alice", "--role", "administrator", "--password-stdin", stdin="a long word\n")
    seen = on_terminal("user", "list", "--data", data, columns=80)[1]
    assert re.search(r"alice +administrator +no +yes +S-1-5-21-", seen), seen


def test_a_closed_output_is_reported_and_leaves_the_messages(full: Path) -> None:
    script = f"{LANNER} receive orders --all --data {full} >&-"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (
        1,
        "lanner: standard output is closed; give it a place, such as /dev/null\n",
    )
    assert count(full, "orders") == 300
    script = f"{LANNER} send orders --data {full} <&- 2>&-"
    assert subprocess.run(["bash", "-c", script], capture_output=True, check=False).returncode == 0
    assert count(full, "orders") == 301


@pytest.mark.parametrize("columns", [80, 60])
def test_each_row_of_a_table_is_one_line(data: Path, columns: int) -> None:
    with QueueManager(data, "alpha") as manager:
        manager.create_queue("a-queue-with-a-long-name-" + "x" * 60, label="and a label of its own " * 4)
        manager.create_queue("orders", label="short")
        manager.open("orders").send(
            Message(body="late " * 30, recoverable=True, time_to_be_received=0, use_dead_letter_queue=True)
        )
        manager.dead_letter.peek(10)
        manager.open("DIRECT=TCP:127.9.9.9\\private$\\" + "far" * 20).send(Message(recoverable=True, label="l" * 50))
    for command, rows in (("queue list", 5), ("deadletter list", 2), ("outgoing list", 2)):
        code, seen = on_terminal(*command.split(), "--data", data, columns=columns)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in seen.splitlines() if line]
        assert (code, len(lines)) == (0, rows), seen
        assert max(map(len, lines)) <= columns, seen
        if columns == 80:
            assert any("orders" in line for line in lines) or command == "outgoing list", seen
        assert command != "deadletter list" or "not received in time" in lines[1], seen
    # The end of a name says more than its beginning.
    assert "far" in lines[-1]


def test_completion_gives_the_names_of_queues(full: Path) -> None:
    environment = {**os.environ, "_LANNER_COMPLETE": "complete_bash", "LANNER_DATA": str(full)}
    for words, expected in (("peek o", "orders"), ("peek ", "copies\norders"), ("peek x", "")):
        given = {"COMP_WORDS": f"lanner {words}", "COMP_CWORD": "2"}
        ran = subprocess.run(
            [LANNER], env={**environment, **given}, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.stdout.strip() == expected, ran.stderr


def test_a_narrow_terminal_leaves_out_what_can_be_spared_before_it_cuts_names(data: Path) -> None:
    name = "orders-of-the-northern-region"
    with QueueManager(data, "alpha") as manager:
        manager.create_queue(name, label="what somebody wrote about it in 2009")
    lines = {}
    for columns in (80, 140):
        _, seen = on_terminal("queue", "list", "--data", data, columns=columns)
        lines[columns] = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in seen.splitlines()]
    assert lines[80][0].split() == ["NAME", "KIND", "MESSAGES", "SIZE", "JOURNAL"]
    assert lines[140][0].split()[-1] == "LABEL"
    for found in lines.values():
        assert any(line.startswith(f"ALPHA\\private$\\{name} ") for line in found), found
