"""`lanner consume`: what a command gets, what its exit code does, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager
from tests.cli.conftest import LANNER, Run, Served


@pytest.fixture
def orders(run: Run) -> str:
    run("queue", "create", "orders", "--transactional", "--name", "alpha")
    return "orders"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def send(run: Run, *bodies: str) -> None:
    for body in bodies:
        run("send", "orders", body, "--label", f"label of {body}")


def test_the_command_gets_the_body_and_the_properties(run: Run, orders: str, log: Path, data: Path) -> None:
    run("queue", "create", "answers")
    with QueueManager(data) as manager, manager.transaction() as unit:
        message = Message(
            body="h\u00e4llo",
            label="a 'label' $(with) \u00e4",
            response_queue="answers",
            correlation_id=r"5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11\9",
            app_specific=7,
        )
        manager.open(orders).send(message, transaction=unit)
    lookup_id = run("peek", orders, "--json").json["lookup_id"]
    names = ("QUEUE", "ID", "LOOKUP_ID", "LABEL", "PRIORITY", "CORRELATION_ID", "RESPONSE_QUEUE", "BODY_TYPE",
             "APP_SPECIFIC", "ABORT_COUNT")  # fmt: skip
    values = " ".join(f'"$LANNER_{name}"' for name in names)
    ran = run("consume", orders, "--exec", f"(cat; printf '\\n%s' {values}) >> {log}", "--idle", "0", "--json")
    assert ran.json == {"queue": r"ALPHA\private$\orders", "handled": 1, "retried": 0, "poisoned": 0, "in_doubt": 0}
    assert log.read_text(encoding="utf-8").splitlines() == [
        "h\u00e4llo",
        r"ALPHA\private$\orders",
        message.id,
        str(lookup_id),
        "a 'label' $(with) \u00e4",
        "0",
        r"5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11\9",
        r"DIRECT=OS:ALPHA\private$\answers",
        "8",
        "7",
        "0",
    ]


def test_bytes_come_as_bytes(run: Run, orders: str, log: Path) -> None:
    run("send", orders, stdin=b"\x00\xff\n")
    run("consume", orders, "--exec", f"cat > {log}", "--idle", "0")
    assert log.read_bytes() == b"\x00\xff\n"


def test_a_command_need_not_read_its_input(run: Run, orders: str) -> None:
    run("send", orders, "x" * 1_000_000)
    assert "1 handled, 0 failed attempts, 0 poison" in run("consume", orders, "--exec", "true", "--idle", "0").err


@pytest.mark.parametrize("ending", ["exit 1", "exit 75", "kill -9 $$"])
def test_a_command_that_fails_is_run_again_and_then_its_message_is_poison(
    run: Run, orders: str, log: Path, ending: str
) -> None:
    send(run, "bad", "good")
    command = f'echo "$LANNER_LABEL" >> {log}; [ "$LANNER_LABEL" = "label of good" ] || {ending}'
    ran = run("consume", orders, "--exec", command, "--idle", "0", "--retries", "2", "--json")
    assert (ran.json["handled"], ran.json["retried"], ran.json["poisoned"]) == (1, 2, 1)
    assert log.read_text().splitlines() == ["label of bad"] * 2 + ["label of good"]
    assert run("peek", "orders;poison", "--json").json["body"] == "bad"


@pytest.mark.parametrize(("poison", "place"), [("dead", "dead"), (";failed", "orders;failed")])
def test_where_poison_goes(run: Run, orders: str, poison: str, place: str) -> None:
    run("queue", "create", "dead", "--transactional")
    send(run, "bad")
    run("consume", orders, "--exec", "false", "--idle", "0", "--retries", "1", "--poison", poison)
    assert run("peek", place, "--json").json["body"] == "bad"
    run("peek", orders, code=3)


def test_poison_can_be_discarded(run: Run, orders: str) -> None:
    send(run, "bad")
    run("consume", orders, "--exec", "false", "--idle", "0", "--retries", "1", "--poison", "discard")
    run("peek", orders, code=3)
    run("peek", "orders;poison", code=3)


def test_it_ends_after_a_count(run: Run, orders: str) -> None:
    send(run, *"abcd")
    ran = run("consume", orders, "--exec", "true", "--count", "3", "--concurrency", "2", "--json")
    assert ran.json["handled"] == 3
    assert run("receive", orders, "--json").json["body"] in "abcd"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--exec", "true", "--idle", "soon"), "--idle soon: seconds"),
        (("--exec", "true", "--poison", "orders"), "cannot stay in the queue they come from"),
        (("--exec", "true", "--retries", "0"), "--retries"),
        ((), "--exec"),
    ],
)
def test_wrong_use(run: Run, orders: str, arguments: tuple[str, ...], text: str) -> None:
    assert text in run("consume", orders, *arguments, code=2).err


def test_a_queue_that_does_not_exist(run: Run, orders: str) -> None:
    assert "missing" in run("consume", "missing", "--exec", "true", code=1).err
    assert "create it first" in run("consume", orders, "--exec", "true", "--poison", "missing", code=1).err


@pytest.fixture
def consumer(data: Path, log: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `lanner consume` as a process that runs a command which waits for a file."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [LANNER, "consume", "orders", *map(str, arguments)],
            env={**os.environ, "LANNER_DATA": str(data)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # As a terminal has it, whose Ctrl-C goes to the whole group.
            process_group=0,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


NOTE = "lanner: finishing the commands that run; once more ends them\n"
WAITING = 'echo running; until [ -e "{go}" ]; do sleep 0.05; done; echo finished'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_command(
    run: Run, serve: Callable[..., Served], consumer: Callable[..., subprocess.Popen[str]],
    tmp_path: Path, number: signal.Signals,
) -> None:  # fmt: skip
    served = serve("--json", "--name", "alpha")
    served.ready()
    run("queue", "create", "orders", "--transactional")
    send(run, "a", "b")
    go = tmp_path / "go"
    process = consumer("--exec", WAITING.format(go=go), "--json")
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert process.stderr is not None
    os.killpg(process.pid, number)
    assert process.stderr.readline() == NOTE
    # It takes no other message from now on.
    go.touch()
    assert process.stdout.readline() == "finished\n"
    # Not communicate(), which misses what a readline() has buffered.
    assert json.loads(process.stdout.read())["handled"] == 1
    assert (process.wait(timeout=60), process.stderr.read()) == (0, "")
    assert run("receive", "orders", "--json").json["body"] == "b"


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_more_signals_end_the_command(
    run: Run, orders: str, consumer: Callable[..., subprocess.Popen[str]], tmp_path: Path, trap: str
) -> None:
    send(run, "a")
    process = consumer("--exec", f"{trap}echo $$; {WAITING.format(go=tmp_path / 'never')}")
    assert process.stdout is not None
    shell = int(process.stdout.readline())
    assert process.stdout.readline() == "running\n"
    assert process.stderr is not None
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr.readline() == NOTE
    os.killpg(process.pid, signal.SIGINT)
    if trap:
        # What does not end by SIGTERM does so by a third signal, which a second one on its way
        # would swallow.
        assert process.stderr.readline() == "lanner: asking the commands that run to end; once more kills them\n"
        os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    # Its output has ended, so the command has ended too.
    assert (process.returncode, out) == (130, "")
    with pytest.raises(ProcessLookupError):
        os.kill(shell, 0)
    assert run("receive", orders, "--json").json["body"] == "a"
