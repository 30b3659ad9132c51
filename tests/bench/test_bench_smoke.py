"""Lanner's side of every benchmark runs, with counts that say nothing about speed."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as command
from bench.cases import CASES, Bench
from bench.peers.process import Missing, Server, free_port, require
from bench.report import Contender, Goal, Table, alternate, print_table
from bench.workload import Scale
from tests.spark.small import SUBMIT_ENVIRONMENT

ROOT = Path(__file__).parents[2]
TINY = Scale(rounds=1, factor=0.002, depth=2000)


def run_case(name: str, directory: Path) -> str:
    out = io.StringIO()
    with Bench(directory, TINY, peers=False, out=out) as bench:
        CASES[name](bench)
    return out.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_case_runs_without_peers(name: str, tmp_path: Path) -> None:
    """Each case runs in its own process.

    Otherwise its changes of the environment, above all Spark's Java, would affect other tests.
    """
    command = "import sys; from pathlib import Path; from tests.bench.test_bench_smoke import run_case; "
    command += "print(run_case(sys.argv[1], Path(sys.argv[2])))"
    environment = os.environ | SUBMIT_ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", command, name, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=500)
        finally:
            # Its servers have ports that the next run needs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    assert "Lanner" in out


def test_ratio_compares_the_best_of_each_side_and_above_one_is_better() -> None:
    rows = {"Lanner a": {"us": [3.0, 4.0, 5.0]}, "Lanner b": {"us": [2.0]}, "Peer": {"us": [1.0]}}
    goal = Goal("Peer", must=0.6)
    assert Table("latency", rows, is_lower_better=True).advantage(goal, "us") == pytest.approx(0.5)
    assert Table("rate", rows).advantage(goal, "us") == pytest.approx(4.0)


def test_rounds_alternate_between_contenders() -> None:
    order: list[str] = []

    def contender(name: str) -> Contender:
        def measure() -> dict[str, float]:
            order.append(name)
            return {"n": 1.0}

        return Contender(name, measure)

    table = alternate("turns", [contender("a"), contender("b")], 3)
    assert order == ["a", "b"] * 3
    assert table.rows == {"a": {"n": [1.0] * 3}, "b": {"n": [1.0] * 3}}


def test_report_says_which_goal_was_missed() -> None:
    out = io.StringIO()
    table = Table("send", {"Lanner": {"messages/s": [90.0]}, "Peer": {"messages/s": [100.0]}})
    print_table(table, [Goal("Peer", must=1), Goal("Nobody", must=1)], out)
    assert "0.90 x (missed)" in out.getvalue()
    assert "Nobody" not in out.getvalue()


def test_missing_peer_is_named_with_its_cure() -> None:
    with pytest.raises(Missing, match=r"Hare.*no-such-hare.*apt-get install hare-server"):
        require("Hare", ["no-such-hare"], [], "hare-server")


# Holds a pipe open, and so does its child.
PARENT = """
import subprocess, sys
pipe = open(sys.argv[1], "w")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=pipe)
print("ready", file=pipe, flush=True)
child.wait()
"""


def test_server_is_ended_with_its_children(tmp_path: Path) -> None:
    """A pipe reports its end when its last writer has gone."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    server = Server([sys.executable, "-c", PARENT, str(path)], tmp_path)
    with path.open() as pipe:
        assert pipe.readline() == "ready\n"
        server.check()
        server.stop()
        assert server.process.returncode is not None
        assert pipe.read() == ""


def test_free_port_is_a_port() -> None:
    assert 0 < free_port() < 65536


def test_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "speed"])
    with pytest.raises(SystemExit):
        command.parse()
    assert "speed: not one of send" in capsys.readouterr().err
