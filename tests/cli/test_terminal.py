"""What differs on a terminal: questions, colours, bars."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager
from tests.cli.conftest import LANNER


def on_terminal(*arguments: object, answers: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run the command with a terminal on all sides, answer each prompt; the exit code and what the person saw."""
    master, slave = os.openpty()
    environment = {"COLUMNS": "100", **os.environ, "TERM": "xterm"}
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
        # One that asks what nobody answers would wait for ever.
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


def test_a_closed_output_is_told_and_leaves_the_messages(full: Path) -> None:
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
