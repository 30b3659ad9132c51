"""Compare two versions of Lanner on this machine: `python -m bench --against REV`.

The old version is the commit REV, the new one the working tree or the commit of `--new`. Commits
are checked out into temporary git worktrees; with `--new HEAD` the working tree can be edited
during a comparison. The workloads of `bench/workloads.py` in the working tree run with both
versions, each run in a process and a data directory of its own. Runs are made in pairs, old and new
one after the other, and every second pair begins with the new version, so that a slow minute of the
machine affects both. `bench/verdict.py` has the statistics and the rule for the verdict.

Exit codes: 0 if every workload passes, 1 if one fails, 3 if none fails and some need more pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import facts
from bench.peers.process import BUILD
from bench.report import Writer, number, print_rows
from bench.verdict import FLOOR, Comparison, Verdict, compare
from bench.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).with_name("workloads.py")
PAIRS = 9
SMOKE_PAIRS = 2
SMOKE_FACTOR = 0.002
PATIENCE = 180.0  # seconds that one run may take
EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNDECIDED: 3}

OLD, NEW = "old", "new"
Measure = Callable[[str, str], float]  # version and workload to figure


class ComparisonError(Exception):
    """The comparison cannot go on; the text names the version and the cause."""


@dataclass(frozen=True, slots=True)
class Version:
    """A source tree that can be measured."""

    name: str
    tree: Path

    @property
    def source(self) -> Path:
        return self.tree / "src"


@dataclass(frozen=True, slots=True)
class Pair:
    """The figures of one workload from two runs, one after the other."""

    first: str
    old: float
    new: float


@dataclass(slots=True)
class Results:
    """All pairs so far, by workload."""

    floor: float = FLOOR
    pairs: dict[str, list[Pair]] = field(default_factory=dict)

    def add(self, workload: str, measure: Measure) -> None:
        """Measure one more pair, in the opposite order of the one before."""
        order = (NEW, OLD) if len(self.pairs.get(workload, ())) % 2 else (OLD, NEW)
        figures = {version: measure(version, workload) for version in order}
        self.pairs.setdefault(workload, []).append(Pair(order[0], figures[OLD], figures[NEW]))

    def ratios(self, workload: str) -> list[float]:
        return [WORKLOADS[workload].ratio(pair.old, pair.new) for pair in self.pairs[workload]]

    def comparison(self, workload: str) -> Comparison:
        return compare(self.ratios(workload), self.floor)

    def undecided(self) -> list[str]:
        return [name for name in self.pairs if self.comparison(name).verdict is Verdict.UNDECIDED]

    def verdict(self) -> Verdict:
        """Return the worst verdict of all workloads."""
        verdicts = {self.comparison(name).verdict for name in self.pairs}
        return next((each for each in (Verdict.FAIL, Verdict.UNDECIDED) if each in verdicts), Verdict.PASS)


def collect(
    results: Results,
    workloads: Iterable[str],
    measure: Measure,
    *,
    pairs: int,
    most: int,
    on_pair: Callable[[str], None],
) -> None:
    """Measure `pairs` pairs of every workload, then up to `most` of undecided workloads."""
    wanted = list(workloads)
    for turn in range(1, max(pairs, most) + 1):
        if turn > pairs:
            wanted = results.undecided()
        for workload in wanted:
            results.add(workload, measure)
            on_pair(workload)


# Versions -----------------------------------------------------------------------------------------


def git(*arguments: str) -> str:
    """Run git on this repository and return what it prints; raise ComparisonError if it fails."""
    ran = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise ComparisonError(f"git {' '.join(arguments)} ended with {ran.returncode}: {ran.stderr.strip()}")
    return ran.stdout.strip()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back, here and in processes started meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def checked_out(revision: str, tree: Path) -> Iterator[Version]:
    """Check a commit out into a git worktree, and remove that afterwards."""
    try:
        commit = git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    except ComparisonError as error:
        raise ComparisonError(f"{revision} is no commit of this repository: {error}") from error
    try:
        with uninterrupted():
            git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        yield Version(f"{revision} ({commit[:10]})", tree)
    finally:
        with uninterrupted():
            if tree.exists():
                # `--force` twice, because git locks a worktree while it adds it.
                git("worktree", "remove", "--force", "--force", str(tree))


def working_tree() -> Version:
    """Describe the working tree: the commit it is based on, and whether `src` has been changed."""
    commit = git("rev-parse", "HEAD")[:10]
    is_changed = bool(git("status", "--porcelain", "--", "src"))
    return Version(f"working tree ({commit}{', changed' if is_changed else ''})", ROOT)


# Runs ---------------------------------------------------------------------------------------------


def measure(version: Version, workload: str, directory: Path, factor: float = 1.0) -> float:
    """Run one workload once with one version, in a new process, and return its figure."""
    count = max(1, round(WORKLOADS[workload].count * factor))
    data = Path(tempfile.mkdtemp(prefix="data-", dir=directory))
    os.sync()  # so that no run has to write back data of the previous one
    command = [sys.executable, "-P", str(SCRIPT), workload, str(data), str(count)]
    # The bytecode of both versions is kept between the runs, outside their trees.
    environment = os.environ | {"PYTHONPATH": str(version.source), "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process: subprocess.Popen[str] | None = None
    try:
        # A signal during Popen would leave a process that is never ended.
        with uninterrupted():
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        out, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise ComparisonError(f"{workload} with {version.name}: not finished after {PATIENCE:.0f} s") from error
    finally:
        # The process must have ended before its files are removed, after Ctrl-C too.
        with uninterrupted():
            if process is not None:
                process.kill()
                process.wait()
            shutil.rmtree(data, ignore_errors=True)
    if process.returncode:
        raise ComparisonError(
            f"{workload} with {version.name} ended with {process.returncode}; --only selects other workloads:\n"
            f"{errors.strip()[-2000:]}"
        )
    answer = json.loads(out)
    if not Path(answer["lanner"]).resolve().is_relative_to(version.source.resolve()):
        raise ComparisonError(
            f"{workload} with {version.name}: {answer['lanner']} was measured, which is not in {version.source}"
        )
    return float(answer["figure"])


# Reports ------------------------------------------------------------------------------------------


def print_report(results: Results, to: Writer) -> None:
    rows = [["workload", "unit", OLD, NEW, "new/old", "95 % interval", "pairs", "verdict"]]
    for name, pairs in results.pairs.items():
        found = results.comparison(name)
        rows.append(
            [
                name,
                WORKLOADS[name].unit,
                number(statistics.median(pair.old for pair in pairs)),
                number(statistics.median(pair.new for pair in pairs)),
                f"{found.median:.3f}",
                f"{found.interval.low:.3f} to {found.interval.high:.3f}",
                str(len(pairs)),
                found.verdict,
            ]
        )
    print_rows(rows, to)
    if any(len(pairs) < PAIRS for pairs in results.pairs.values()):
        # With few ratios the interval is too narrow; for a single one its width is zero.
        print(f"Verdicts on fewer than {PAIRS} pairs are not reliable.", file=to)


def write_figures(path: Path, results: Results, versions: dict[str, Version], machine: dict[str, str]) -> None:
    """Write all measurements and the conclusions from them as JSON."""
    workloads = {}
    for name, pairs in results.pairs.items():
        found = results.comparison(name)
        workloads[name] = {
            "what": WORKLOADS[name].what,
            "unit": WORKLOADS[name].unit,
            "pairs": [{"first": pair.first, OLD: pair.old, NEW: pair.new} for pair in pairs],
            "ratios": results.ratios(name),
            "median": found.median,
            "interval": [found.interval.low, found.interval.high],
            "verdict": found.verdict,
        }
    names = {name: version.name for name, version in versions.items()}
    document = {"versions": names, "machine": machine, "floor": results.floor, "workloads": workloads}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


# The command --------------------------------------------------------------------------------------


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}: 1 or more")
    return value


def parse(arguments: list[str]) -> argparse.Namespace:
    names = "; ".join(f"{name}: {workload.what}" for name, workload in WORKLOADS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compare two versions of Lanner. A ratio above 1 means that the new version is faster.",
        epilog=f"Workloads: {names}. Exit code: 0 pass, 1 fail, 3 more pairs are needed.",
    )
    parser.add_argument("--against", metavar="REV", required=True, help="the old version, any name of a commit")
    parser.add_argument("--new", metavar="REV", help="the new version; the working tree by default")
    parser.add_argument("--pairs", type=positive, metavar="N", help=f"of runs for each workload; {PAIRS} by default")
    parser.add_argument(
        "--until-decided", type=positive, metavar="N", help="add pairs for undecided workloads, up to so many"
    )
    parser.add_argument(
        "--floor", type=float, default=FLOOR, metavar="RATIO", help=f"median that passes; {FLOOR} by default"
    )
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="NAME", help="these workloads; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw figures to this file")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; build/ by default")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help=f"{SMOKE_PAIRS} pairs of very few messages, whose verdicts do not count: does everything run?",
    )
    parsed = parser.parse_args(arguments)
    parsed.pairs = parsed.pairs or (SMOKE_PAIRS if parsed.smoke else PAIRS)
    if parsed.until_decided is not None and parsed.until_decided < parsed.pairs:
        parser.error(f"--until-decided {parsed.until_decided}: fewer than {parsed.pairs} pairs")
    if parsed.json is not None and not parsed.json.parent.is_dir():
        parser.error(f"--json {parsed.json}: there is no directory {parsed.json.parent}")
    return parsed


def run(arguments: argparse.Namespace, directory: Path, out: Writer) -> Verdict:
    """Compare two versions with temporary files in a directory; return the worst verdict."""
    results = Results(arguments.floor)
    machine = facts(directory)
    workloads = list(dict.fromkeys(arguments.only or WORKLOADS))
    factor = SMOKE_FACTOR if arguments.smoke else 1.0
    most = arguments.until_decided or arguments.pairs
    with ExitStack() as trees:
        versions = {
            OLD: trees.enter_context(checked_out(arguments.against, directory / OLD)),
            NEW: trees.enter_context(checked_out(arguments.new, directory / NEW)) if arguments.new else working_tree(),
        }

        def on_pair(workload: str) -> None:
            ratios = results.ratios(workload)
            print(f"{workload}, pair {len(ratios)}: {ratios[-1]:.3f}", file=sys.stderr, flush=True)

        print(f"# {versions[NEW].name} against {versions[OLD].name}\n", file=out)
        for name, fact in machine.items():
            print(f"- {name}: {fact}", file=out)
        print(file=out, flush=True)
        try:
            collect(
                results,
                workloads,
                lambda version, workload: measure(versions[version], workload, directory, factor),
                pairs=arguments.pairs,
                most=most,
                on_pair=on_pair,
            )
        finally:
            # Also after Ctrl-C: a run takes many minutes.
            if arguments.json is not None:
                write_figures(arguments.json, results, versions, machine)
    print_report(results, out)
    return results.verdict()


def main(arguments: list[str]) -> None:
    """Run the command; ends with SystemExit unless every workload passes."""
    parsed = parse(arguments)
    BUILD.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="against-", dir=parsed.directory or BUILD)).resolve()
    try:
        verdict = run(parsed, directory, sys.stdout)
    except ComparisonError as error:
        sys.exit(f"python -m bench --against {parsed.against}: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not parsed.smoke:
        sys.exit(EXIT_CODES[verdict])
