"""`python -m bench --against REV` measures two versions in turn and leaves nothing behind."""

from __future__ import annotations

import ast
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.against import (
    EXIT_CODES,
    NEW,
    OLD,
    PAIRS,
    ComparisonError,
    Pair,
    Results,
    Version,
    checked_out,
    collect,
    main,
    measure,
    parse,
    print_report,
)
from bench.verdict import Verdict
from bench.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]


def worktrees() -> str:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "worktree", "list", "--porcelain"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout


# Pairs and verdicts


def record(order: list[tuple[str, str]], new: float = 1.0) -> Results:
    """Collect 3 to 6 pairs of two workloads; the figure of the old version is always 1."""

    def run(version: str, workload: str) -> float:
        order.append((version, workload))
        return new if version == NEW and workload == "send" else 1.0

    results = Results()
    collect(results, ["send", "receive"], run, pairs=3, most=6, on_pair=lambda _: None)
    return results


def test_every_second_pair_begins_with_the_new_version() -> None:
    order: list[tuple[str, str]] = []
    results = record(order)
    assert [version for version, workload in order if workload == "send"] == [OLD, NEW, NEW, OLD, OLD, NEW]
    assert [pair.first for pair in results.pairs["send"]] == [OLD, NEW, OLD]


def test_workloads_take_turns() -> None:
    order: list[tuple[str, str]] = []
    record(order)
    assert [workload for _, workload in order] == ["send", "send", "receive", "receive"] * 3


def test_decided_workloads_get_no_more_pairs() -> None:
    results = record([], new=0.5)
    assert results.comparison("send").verdict is Verdict.FAIL
    assert {name: len(pairs) for name, pairs in results.pairs.items()} == {"send": 3, "receive": 3}


@pytest.mark.parametrize(("most", "expected"), [(3, 3), (4, 4), (20, 6)])
def test_only_undecided_workloads_get_more_pairs(most: int, expected: int) -> None:
    figures = {"send": iter([0.7, 0.9, 1.2, 0.8, 1.3, 1.2]), "receive": iter([1.0] * 3)}
    results = Results()
    collect(
        results,
        figures,
        lambda version, workload: next(figures[workload]) if version == NEW else 1.0,
        pairs=3,
        most=most,
        on_pair=lambda _: None,
    )
    # Medians of 3 to 5 pairs are below the floor, with wide intervals; the median of 6 is 1.05.
    assert len(results.pairs["send"]) == expected
    assert len(results.pairs["receive"]) == 3


def test_ratio_above_one_is_faster_for_rates_and_latencies() -> None:
    results = Results(pairs={name: [Pair(OLD, 100.0, 50.0)] for name in ("send", "send-latency")})
    assert results.ratios("send") == [0.5]
    assert results.ratios("send-latency") == [2.0]


@pytest.mark.parametrize(
    ("send", "receive", "expected"),
    [
        ([1.0, 1.0, 1.0], [0.5, 0.5, 0.5], 1),
        ([0.5, 0.9, 1.2], [0.5, 0.5, 0.5], 1),
        ([0.5, 0.9, 1.2], [1.0, 1.0, 1.0], 3),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 0),
    ],
)
def test_exit_code_is_that_of_the_worst_verdict(send: list[float], receive: list[float], expected: int) -> None:
    ratios = {"send": send, "receive": receive}
    results = Results(pairs={name: [Pair(OLD, 1.0, ratio) for ratio in each] for name, each in ratios.items()})
    assert EXIT_CODES[results.verdict()] == expected


def test_report_has_ratio_interval_and_verdict_of_each_workload() -> None:
    out = io.StringIO()
    print_report(Results(pairs={"send": [Pair(OLD, 100.0, 50.0), Pair(NEW, 100.0, 60.0)]}), out)
    row = [cell.strip() for cell in out.getvalue().splitlines()[2].strip("|").split("|")]
    assert row == ["send", "messages/s", "100", "55", "0.550", "0.500 to 0.600", "2", "fail"]


@pytest.mark.parametrize(("pairs", "is_warned"), [(PAIRS - 1, True), (PAIRS, False)])
def test_report_warns_of_verdicts_on_few_pairs(pairs: int, is_warned: bool) -> None:
    out = io.StringIO()
    print_report(Results(pairs={"send": [Pair(OLD, 1.0, 1.0)] * pairs}), out)
    assert ("not reliable" in out.getvalue()) is is_warned


# The command line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--against", "HEAD", "--only", "speed"], "invalid choice: 'speed'"),
        (["--against", "HEAD", "--pairs", "0"], "0: 1 or more"),
        (["--against", "HEAD", "--pairs", "9", "--until-decided", "8"], "--until-decided 8: fewer than 9 pairs"),
        (["--against", "HEAD", "--json", "no-such/file"], "no-such/file: there is no directory no-such"),
        (["--new", "HEAD"], "--against"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert complaint in capsys.readouterr().err


def test_unknown_commit_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no-such-commit is no commit of this repository"):
        main(["--against", "no-such-commit", "--directory", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


# Versions


def test_commit_is_checked_out_and_removed_after_an_error(tmp_path: Path) -> None:
    tree = tmp_path / "old"
    with pytest.raises(KeyboardInterrupt), checked_out("HEAD", tree) as version:  # noqa: PT012 (it ends the block)
        assert (version.source / "lanner" / "__init__.py").is_file()
        assert str(tree) in worktrees()
        raise KeyboardInterrupt
    assert not tree.exists()
    assert str(tree) not in worktrees()


def test_figure_of_another_version_is_refused(tmp_path: Path) -> None:
    """Without a `lanner` in its tree the installed one would be measured instead."""
    with pytest.raises(ComparisonError, match=r"send with empty: .* was measured, which is not in"):
        measure(Version("empty", tmp_path / "tree"), "send", tmp_path, factor=0.001)


def test_version_that_cannot_run_is_named_with_its_error(tmp_path: Path) -> None:
    package = tmp_path / "tree" / "src" / "lanner"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('broken on purpose')\n")
    with pytest.raises(ComparisonError, match=r"(?s)send with broken ended with 1.*broken on purpose"):
        measure(Version("broken", tmp_path / "tree"), "send", tmp_path, factor=0.001)


# Runs


def test_workloads_import_only_what_every_version_has() -> None:
    tree = ast.parse((ROOT / "bench" / "workloads.py").read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in names | modules if name.partition(".")[0] in ("lanner", "bench")}
    assert ours == {"lanner", "lanner.aio"}


RUN_ALL = """
import json, sys
from pathlib import Path
from bench.workloads import WORKLOADS
print(json.dumps({name: each.run(Path(sys.argv[1], name), 250) for name, each in WORKLOADS.items()}))
"""


def test_every_workload_gives_a_figure(tmp_path: Path) -> None:
    """In a process of its own, because the workloads change how its threads take turns."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN_ALL, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)
    assert list(figures) == list(WORKLOADS)
    assert all(figure > 0 for figure in figures.values())


def start(directory: Path, *options: str) -> subprocess.Popen[str]:
    """Compare HEAD with itself; its files are kept apart in a directory."""
    words = ["--new", "HEAD", "--smoke", "--directory", str(directory), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "bench", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_head_is_compared_with_itself(tmp_path: Path) -> None:
    figures, directory = tmp_path / "figures.json", tmp_path / "run"
    directory.mkdir()
    with start(directory, "--against=HEAD", "--only", "transfer", "--json", str(figures)) as process:
        out, errors = process.communicate(timeout=110)
    assert process.returncode == 0, errors
    assert "| transfer " in out
    found = json.loads(figures.read_text(encoding="utf-8"))["workloads"]["transfer"]
    assert [pair["first"] for pair in found["pairs"]] == [OLD, NEW]
    assert found["verdict"] in list(Verdict)
    assert list(directory.iterdir()) == []
    assert str(directory) not in worktrees()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_comparison_leaves_nothing_behind(number: signal.Signals, code: int, tmp_path: Path) -> None:
    figures, directory = tmp_path / "figures.json", tmp_path / "run"
    directory.mkdir()
    with start(directory, "--against", "HEAD", "--only", "send", "--pairs", "1000", "--json", str(figures)) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("send, pair 1: ")
        assert str(directory) in worktrees()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert list(directory.iterdir()) == []
    assert str(directory) not in worktrees()
    assert json.loads(figures.read_text(encoding="utf-8"))["workloads"]["send"]["pairs"]
