"""Mutation tests of the requirement rows: whether a row's tests notice wrong code.

`make mutants` makes small mutations and runs the tests. For each row of the requirement tables, the
candidates are the mutations (see mutations.py) of lines that the row's tests run and that fewer
than one test in twenty runs, and of functions that cite the row's section. Most of the lines that a
row's tests run do not belong to the row. The tool selects the candidates that most clearly do,
judged by citation, words and coverage (see Chooser). A seed selects rows, and one mutant of each.
Only the row's own tests run against it, the fastest first. A mutant is killed if one of them fails
or does not end. Survivors are printed.

A row's tests run lines of other rows too, so a survivor is either a weak test or a line of another
row. `--others` tells the two apart: it runs the tests of other rows that run the survivor's line.
If the mutant survives these too, the tests of no row check that line. A survivor that only the
others kill still counts as survived.

The choice of a row's lines depends only on texts and coverage, never on an outcome, and has no
threshold except the one in twenty.

An interrupted run continues where it stopped: outcomes are kept in build/mutants/outcomes.json, and
are reused as long as the package, the test helpers and the files of the row's tests are unchanged.
`--again` ignores them.

The working tree is never changed: a mutant is a file in a copy of the package, which PYTHONPATH
puts before the real one, also in the processes that the tests start. The lines that each test runs
are measured once, one folder of tests at a time, and kept in build/mutants as long as the test
file, the test helpers and the modules that it runs are unchanged.

conformance/equivalent_mutants.toml names mutants that behave like the original, each with the
reason. They are never chosen.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import enum
import functools
import hashlib
import itertools
import json
import math
import operator
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import pytest

import line_coverage
import mutations
import spec_rows
from mutations import Mutation
from row_words import Collection, words

EQUIVALENTS = "equivalent_mutants.toml"

# A line that a larger share of the tests runs is considered specific to no row.
COMMON_SHARE = 0.05
# Folders whose tests mostly watch other processes, which are not traced. They are measured only
# where a test names a row. Those of the store interrupt threads by signals, which the lock inside
# coverage.py does not support.
UNTRACED = ("adversity", "bench", "cli", "contract", "demo", "interop", "spark", "store")
# These tests listen on fixed ports, so only one mutant at a time can run them.
FIXED_PORTS = ("tests/interop/", "tests/com/server/test_listener.py")
# Seconds allowed for the tests of a mutant, in addition to ten times their measured duration.
PATIENCE = 60

DOCUMENT_NAMES = {name.upper(): document for name, document in spec_rows.DOCUMENTS.items()}
CITATION = re.compile(r"(?:\b(?P<document>[A-Z][A-Z0-9-]*)[ -])?\b(?P<section>\d+(?:\.\d+)+)(?:-(?P<number>\d+))?\b")
# Document, section, and the row's number if a single row is cited.
Citation = tuple[str, str, str | None]
DOCUMENT = re.compile(r"\bM[SC]-[A-Z]+\b")


@dataclass(frozen=True, slots=True)
class Project:
    """The directories of the project."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "src"

    @property
    def tests(self) -> Path:
        return self.root / "tests"

    @property
    def tables(self) -> Path:
        return self.root / "conformance"

    @property
    def build(self) -> Path:
        return self.root / "build" / "mutants"

    def log(self, name: str) -> Path:
        """Return the path of a log, after creating its folder."""
        self.build.mkdir(parents=True, exist_ok=True)
        return self.build / name


@dataclass(frozen=True, slots=True)
class Test:
    """A test that passed, and the rows that it names."""

    id: str
    rows: tuple[str, ...]
    seconds: float


class Measured:
    """The lines that each test ran; a set of tests is a mask in which bit n stands for test n."""

    def __init__(self) -> None:
        self.tests: list[Test] = []
        self.lines: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.of_row: Counter[str] = Counter()

    def add(self, record: dict[str, Any]) -> None:
        """Add the tests of a file, from the record that line_coverage wrote."""
        offset = len(self.tests)
        for test, facts in record["tests"].items():
            rows = dict.fromkeys(row.partition("/")[0] for row in facts["rows"])
            for row in rows:
                self.of_row[row] |= 1 << len(self.tests)
            self.tests.append(Test(test, tuple(rows), facts["seconds"]))
        for module, lines in record["lines"].items():
            for line, mask in lines.items():
                self.lines[module][int(line)] |= int(mask, 16) << offset

    def members(self, mask: int) -> Iterator[Test]:
        """Yield the tests of a mask."""
        while mask:
            lowest = mask & -mask
            yield self.tests[lowest.bit_length() - 1]
            mask ^= lowest


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation of a module, with the row that it tests."""

    row: str
    module: str
    mutation: Mutation
    # The row's tests: first those that run the line, in each group the fastest first.
    tests: tuple[str, ...]
    seconds: float
    # The tests of other rows that run the line, the fastest first.
    others: tuple[str, ...]
    others_seconds: float

    @property
    def name(self) -> str:
        return f"{self.module}: {self.mutation.name}"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def folder_of(name: str) -> str:
    """Return the folder of a test file."""
    return Path(name).parent.as_posix()


def files_to_measure(tests: Path) -> list[Path]:
    """Return the test files to measure."""
    return [
        path
        for path in sorted(tests.rglob("test_*.py"))
        if (len(path.relative_to(tests).parts) > 1 and path.relative_to(tests).parts[0] not in UNTRACED)
        or "mark.spec(" in path.read_text(encoding="utf-8")
    ]


class Measurements:
    """The records of line_coverage in a folder, each with what it depends on."""

    def __init__(self, project: Project, jobs: int) -> None:
        self._project = project
        self._jobs = jobs
        self._folder = project.build / "coverage"
        helpers = hashlib.sha256()
        for path in sorted(project.tests.rglob("*.py")):
            if not path.name.startswith("test_"):
                helpers.update(path.read_bytes())
        self._helpers = helpers.hexdigest()
        self._modules = {
            path.relative_to(project.source).as_posix(): digest(path) for path in project.source.rglob("*.py")
        }

    def read(self) -> Measured:
        """Measure what has changed, and return all measurements."""
        files = {
            path.relative_to(self._project.root).as_posix(): path for path in files_to_measure(self._project.tests)
        }
        stale = [name for name, path in files.items() if not self._is_valid(name, path)]
        if stale:
            self._measure(stale)
        measured = Measured()
        for name in files:
            path = self._folder / line_coverage.file_name(name)
            if path.exists():
                measured.add(json.loads(path.read_text(encoding="utf-8")))
        return measured

    def _measure(self, names: list[str]) -> None:
        """Measure test files one folder at a time; an interrupted run keeps its progress."""
        print(f"measuring the lines of {len(names)} test files", flush=True)
        self._project.log("measuring.log").unlink(missing_ok=True)
        for folder, group in itertools.groupby(sorted(names, key=folder_of), folder_of):
            self._measure_folder(folder, list(group))

    def _measure_folder(self, folder: str, names: list[str]) -> None:
        for name in names:
            (self._folder / line_coverage.file_name(name)).unlink(missing_ok=True)
        command = ["-q", "-p", "line_coverage", "--line-coverage", str(self._folder), "-p", "no:cacheprovider", *names]
        log = self._project.log("measuring.log")
        with log.open("a", encoding="utf-8") as file:
            status = run_pytest(self._project.root, [*command, "-n", str(self._jobs)], {}, None, file)
        self._folder.mkdir(parents=True, exist_ok=True)
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise SystemExit(f"the tests of {folder} could not be measured: {log}")
        if status == pytest.ExitCode.TESTS_FAILED:
            print(f"some tests of {folder} fail (they are left out): {log}", flush=True)
        for name in names:
            path = self._folder / line_coverage.file_name(name)
            if not path.exists() and status == pytest.ExitCode.TESTS_FAILED:
                continue  # It possibly could not be imported.
            # If nothing passed there is no record: the tests were skipped.
            text = path.read_text(encoding="utf-8") if path.exists() else line_coverage.EMPTY
            record = json.loads(text)
            if not record.pop("failed"):
                record["depends"] = {
                    "test": digest(self._project.root / name),
                    "helpers": self._helpers,
                    "modules": {module: self._modules[module] for module in record["lines"]},
                }
            path.write_text(json.dumps(record), encoding="utf-8")

    def _is_valid(self, name: str, path: Path) -> bool:
        record = self._folder / line_coverage.file_name(name)
        if not record.exists():
            return False
        depends = json.loads(record.read_text(encoding="utf-8")).get("depends")
        return (
            depends is not None
            and depends["test"] == digest(path)
            and depends["helpers"] == self._helpers
            and all(self._modules.get(module) == value for module, value in depends["modules"].items())
        )


def run_pytest(
    root: Path,
    arguments: Sequence[str],
    environment: dict[str, str],
    timeout: float | None,
    output: int | IO[str] = subprocess.DEVNULL,
) -> int | None:
    """Run pytest and return its exit code; None after a timeout, with all its processes killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=root,
        env=os.environ | environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def cited(text: str, document: str | None) -> set[Citation]:
    """Return the sections that a text cites, by default of the given document."""
    found = set()
    for match in CITATION.finditer(text):
        named = match["document"]
        of = document if named is None else DOCUMENT_NAMES.get(named, named)
        if of in spec_rows.DOCUMENTS.values():
            found.add((str(of), match["section"], match["number"]))
    return found


def main_document(source: str) -> str | None:
    """Return the first document named in a module's docstring."""
    match = DOCUMENT.search(ast.get_docstring(ast.parse(source)) or "")
    return match[0] if match else None


class TestTexts:
    """The texts of tests, each read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, dict[str, frozenset[str]]] = {}

    def words(self, tests: Iterable[str]) -> frozenset[str]:
        """Return all words of these tests."""
        names = {test.partition("[")[0] for test in tests}
        return frozenset().union(*(self._words_of(*name.split("::", 1)) for name in sorted(names)))

    def _words_of(self, file: str, name: str) -> frozenset[str]:
        if file not in self._files:
            found = mutations.functions((self._root / file).read_text(encoding="utf-8"))
            self._files[file] = {each.name: words(each.text) for each in found}
        return self._files[file].get(name.replace("::", "."), frozenset())


class Claim(enum.IntEnum):
    """What the function around a line says about the row it belongs to."""

    NONE = 0
    SECTION = 1  # It cites the row's section.
    ROW = 2  # It cites the row.


# How clearly a line belongs to a row: whether its function cites the row; how well coverage and
# words match; coverage alone.
Rank = tuple[bool, float, float]
# A module and a function in it.
Place = tuple[str, str]


class Chooser:
    """The candidates of every row.

    A row's tests run many lines that implement other rows. So the search looks for the candidate
    line that is most typical of the row and whose words best match the requirement. Lines of a
    function that cites the row by its number come first. The row gets the function of this line,
    and in it the best lines that can be mutated.

    If nothing in that function can be mutated, the function of the next best line takes its place,
    and so on: no row is left out as long as its tests run a candidate. A best function with nothing
    to mutate may mean that the requirement is a table or a layout; then the line that is mutated
    can be another row's. Just as often it means that the search has stopped at a function that only
    mentions the requirement. Leaving such rows out would improve the figure by avoiding the
    question, whereas a line of another row can only make it worse.

    The search imitates a reader who looks for the lines of a requirement. For 38 rows the lines
    were found by reading: the search found the same function for 21 of them. Coverage and citations
    without the words found it for 9.

    How typical a line is of a row is measured by Ochiai's coefficient, which is used in fault
    localization:

        |own and runners| / sqrt(|own| * |runners|)

    It is 1 if all tests of the row run the line and no others do. A test runs far more than it
    checks, so its square root is used.

    The text of a line is its statement, and its function's name and docstring. The text of a row is
    its requirement and its tests (see row_words).
    """

    def __init__(
        self, project: Project, measured: Measured, rows: dict[str, spec_rows.Row], equivalents: Iterable[str]
    ) -> None:
        self._source = project.source
        self._measured = measured
        self._rows = rows
        self._equivalents = frozenset(equivalents)
        self._requirements = Collection({row.id: words(row.requirement) for row in rows.values()})
        texts = TestTexts(project.root)
        self._tests = Collection(
            {row: texts.words(test.id for test in measured.members(mask)) for row, mask in measured.of_row.items()}
        )
        self._marked = functools.reduce(operator.or_, measured.of_row.values(), 0)
        # Per row and function: its best line, and the mutations of the best line that has any.
        self._ranks: defaultdict[str, dict[Place, Rank]] = defaultdict(dict)
        self._by_place: defaultdict[str, dict[Place, tuple[Rank, list[Mutation]]]] = defaultdict(dict)
        for module in sorted(measured.lines):
            self._add_module(module)

    def _add_module(self, module: str) -> None:
        source = (self._source / module).read_text(encoding="utf-8")
        document = main_document(source)
        functions = {each.name: each for each in mutations.functions(source)}
        citations = {name: cited(each.text, document) for name, each in functions.items()}
        described = {name: words(f"{name} {each.docstring}") for name, each in functions.items()}
        by_line: defaultdict[tuple[str, int], list[Mutation]] = defaultdict(list)
        for mutation in mutations.mutations(source):
            by_line[mutation.function, mutation.statement].append(mutation)
        for statement in mutations.statements(source):
            function, text = statement.function, words(statement.text)
            runners = self._measured.lines[module][statement.line]
            is_common = runners.bit_count() >= COMMON_SHARE * len(self._measured.tests)
            for row in sorted({row for test in self._measured.members(runners & self._marked) for row in test.rows}):
                claim = self._claim(row, citations[function])
                if is_common and claim is Claim.NONE:
                    continue
                typical = self._typical(row, runners)
                likeness = self._likeness(row, text) + self._likeness(row, described[function])
                rank = (claim is Claim.ROW, round(math.sqrt(typical) * likeness, 9), typical)
                self._offer(row, rank, (module, function), by_line[function, statement.line])

    def _likeness(self, row: str, text: frozenset[str]) -> float:
        return self._requirements.likeness(row, text) + self._tests.likeness(row, text)

    def _offer(self, row: str, rank: Rank, place: Place, found: list[Mutation]) -> None:
        """Record the function's best rank for the row, and the best mutations in it."""
        ranks = self._ranks[row]
        ranks[place] = max(rank, ranks.get(place, rank))
        if found:
            best, of_place = self._by_place[row].get(place, (rank, []))
            if rank > best:
                of_place = []
            if rank >= best:
                self._by_place[row][place] = rank, of_place + found

    def _mutations(self, row: str) -> tuple[str, list[Mutation]]:
        """Return the module of the best function that has mutations, and those mutations.

        If no function has any, the module is empty.
        """
        found = self._by_place[row]
        places = [place for place in self._ranks[row] if place in found]
        if not places:
            return "", []
        best = max(places, key=self._ranks[row].__getitem__)
        return best[0], found[best][1]

    def _claim(self, row_id: str, citations: set[Citation]) -> Claim:
        row = self._rows[row_id]
        if (row.document, row.section, row_id.rpartition("-")[2]) in citations:
            return Claim.ROW
        return Claim.SECTION if (row.document, row.section, None) in citations else Claim.NONE

    def _typical(self, row: str, runners: int) -> float:
        own = self._measured.of_row[row]
        # Rounded, so that equal values compare equal regardless of the order of the arithmetic.
        return round((own & runners).bit_count() / math.sqrt(own.bit_count() * runners.bit_count()), 9)

    def candidates(self, row: str) -> list[Mutant]:
        """Return the mutants of the row's own lines."""
        module, found = self._mutations(row)
        return [
            self._mutant(row, module, mutation)
            for mutation in found
            if f"{module}: {mutation.name}" not in self._equivalents
        ]

    def _mutant(self, row: str, module: str, mutation: Mutation) -> Mutant:
        runners = {test.id for test in self._measured.members(self._measured.lines[module][mutation.statement])}
        tests = sorted(
            self._measured.members(self._measured.of_row[row]),
            key=lambda test: (test.id not in runners, test.seconds, test.id),
        )
        own = self._measured.of_row[row]
        others = sorted(
            self._measured.members(self._measured.lines[module][mutation.statement] & self._marked & ~own),
            key=lambda test: (test.seconds, test.id),
        )
        return Mutant(
            row,
            module,
            mutation,
            tuple(test.id for test in tests),
            sum(test.seconds for test in tests),
            tuple(test.id for test in others),
            sum(test.seconds for test in others),
        )

    def sample(self, seed: int, size: int) -> list[Mutant]:
        """Select rows, and a mutant of each.

        Changes to the candidates of one row do not affect the choice for the others.
        """
        chosen: list[Mutant] = []
        for row in sorted(self._measured.of_row, key=lambda row: _lot(seed, row)):
            if len(chosen) == size:
                break
            if candidates := self.candidates(row):
                chosen.append(_choice(candidates, seed))
        return chosen

    def without_candidates(self) -> list[str]:
        """Return the rows without a line that can be mutated."""
        return [row for row in self._rows if row in self._measured.of_row and not self._mutations(row)[1]]


def _choice(candidates: list[Mutant], seed: int) -> Mutant:
    """Choose a kind, then a mutant of that kind, so that rare kinds are chosen as well."""
    row = candidates[0].row
    kind = min({each.mutation.kind for each in candidates}, key=lambda kind: _lot(seed, row, kind))
    alike = [each for each in candidates if each.mutation.kind == kind]
    return min(alike, key=lambda each: (_lot(seed, row, each.name), each.mutation.start))


def _lot(seed: int, *names: str) -> bytes:
    return hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()


KILLED = "killed"
ENDLESS = "did not end"
# pytest itself failed, which says nothing about the mutant.
BROKEN = "broken run"
SURVIVED = "survived"
# By pytest's exit code. A mutant may make the import of a test file or a conftest fail (a usage
# error); the unchanged copy has passed with the same arguments.
OUTCOMES: dict[int | None, str] = {
    None: ENDLESS,
    pytest.ExitCode.OK: SURVIVED,
    pytest.ExitCode.TESTS_FAILED: KILLED,
    pytest.ExitCode.INTERRUPTED: KILLED,
    pytest.ExitCode.USAGE_ERROR: KILLED,
}


class Overlay:
    """A copy of the package in a folder that PYTHONPATH names, with one mutated module."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._root = project.root
        self._folder = folder
        shutil.copytree(project.source, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        # Otherwise Hypothesis would store failing examples in the working tree, and try them on the
        # next mutant.
        self.environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(folder / "src"), os.environ.get("PYTHONPATH")))),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }

    @contextlib.contextmanager
    def holding(self, mutant: Mutant) -> Iterator[None]:
        path = self._folder / "src" / mutant.module
        original = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutant.mutation.apply(original))
            yield
        finally:
            self._write(path, original)

    def _write(self, path: Path, source: str) -> None:
        # Bytecode is validated by size and time in seconds: a mutant of the same size may be
        # written within the same second.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_text(source, encoding="utf-8")

    def run(
        self, tests: Sequence[str], seconds: float, *options: str, output: int | IO[str] = subprocess.DEVNULL
    ) -> int | None:
        """Run tests against the copy."""
        with tempfile.TemporaryDirectory() as scratch:
            arguments = [
                "-q",
                "-p",
                "no:cacheprovider",
                "--hypothesis-seed=0",
                f"--basetemp={scratch}/tests",
            ]
            return run_pytest(
                self._root, [*arguments, *options, *tests], self.environment, PATIENCE + 10 * seconds, output
            )


class Outcomes:
    """Outcomes of mutants in earlier runs, saved to a file after each mutant."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._path = project.log("outcomes.json")
        self._lock = threading.Lock()
        self._known: dict[str, str] = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        shared = hashlib.sha256()
        for path in sorted([*project.source.rglob("*.py"), *project.tests.rglob("*.py")]):
            if project.source in path.parents or not path.name.startswith("test_"):
                shared.update(f"{path.relative_to(project.root)} {digest(path)}\n".encode())
        self._shared = shared.hexdigest()

    def _key(self, mutant: Mutant) -> str:
        files = sorted({test.partition("::")[0] for test in mutant.tests})
        tests = [f"{file} {digest(self._project.root / file)}" for file in files]
        named = (self._shared, mutant.row, mutant.name, str(mutant.mutation.start), *mutant.tests, *tests)
        return hashlib.sha256("\0".join(named).encode()).hexdigest()

    def get(self, mutant: Mutant) -> str | None:
        return self._known.get(self._key(mutant))

    def keep(self, mutant: Mutant, outcome: str) -> None:
        with self._lock:
            self._known[self._key(mutant)] = outcome
            written = self._path.with_suffix(".new")
            written.write_text(json.dumps(self._known), encoding="utf-8")
            written.replace(self._path)


class Runner:
    """Runs mutants against their tests, several at a time."""

    def __init__(self, project: Project, folder: Path, jobs: int, outcomes: Outcomes) -> None:
        self._project = project
        self._outcomes = outcomes
        self._overlays = [Overlay(project, folder / str(number)) for number in range(jobs)]
        self._free = list(self._overlays)
        self._ports = threading.Lock()
        self._done = 0

    def check(self, mutants: Sequence[Mutant]) -> None:
        """Raise SystemExit unless the tests of the mutants pass on the unchanged copy."""
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        log = self._project.log("unchanged.log")
        with log.open("w", encoding="utf-8") as file:
            status = self._overlays[0].run(tests, sum(mutant.seconds for mutant in mutants) + 600, output=file)
        if status != 0:
            raise SystemExit(f"tests of the sampled rows fail without any mutation: {log}")

    def run(self, mutants: Sequence[Mutant]) -> list[str]:
        """Return the outcome of each mutant."""
        with ThreadPoolExecutor(len(self._overlays)) as pool:
            return list(pool.map(lambda mutant: self._try(mutant, len(mutants)), mutants))

    def _try(self, mutant: Mutant, total: int) -> str:
        overlay = self._free.pop()
        needs_ports = any(test.startswith(FIXED_PORTS) for test in mutant.tests)
        began = time.monotonic()
        try:
            with self._ports if needs_ports else contextlib.nullcontext(), overlay.holding(mutant):
                status = overlay.run(mutant.tests, mutant.seconds, "-x")
        finally:
            self._free.append(overlay)
        outcome = OUTCOMES.get(status, BROKEN)
        if outcome != BROKEN:
            self._outcomes.keep(mutant, outcome)
        self._done += 1
        took = time.monotonic() - began
        print(f"{self._done}/{total} {outcome:<11} {took:5.1f} s  {mutant.row}  {mutant.name}", flush=True)
        return outcome


def load_equivalents(path: Path) -> dict[str, str]:
    """Return the names of the equivalent mutants, each with its reason."""
    if not path.exists():
        return {}
    equivalents: dict[str, str] = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []):
        name = f"{entry['module']}: {entry['mutation']}"
        if not entry.get("reason", "").strip():
            raise spec_rows.TableError(f"{path.name}: {name} has no reason")
        equivalents[name] = entry["reason"]
    return equivalents


def stale_equivalents(equivalents: Iterable[str], source: Path) -> list[str]:
    """Return the names that match no mutation of the sources."""
    stale = []
    for name in equivalents:
        module, _, rest = name.partition(": ")
        path = source / module
        if not path.exists() or rest not in {
            each.name for each in mutations.mutations(path.read_text(encoding="utf-8"))
        }:
            stale.append(name)
    return stale


def survivor_text(mutant: Mutant, rows: dict[str, spec_rows.Row]) -> str:
    """Describe a survivor: its place, its change, and the tests that did not notice."""
    change = mutant.mutation
    tests = [f"    {test}" for test in mutant.tests[:5]]
    if len(mutant.tests) > len(tests):
        tests.append(f"    and {len(mutant.tests) - len(tests)} more")
    return "\n".join(
        [
            f"src/{mutant.module}:{change.line}: {change.name}",
            f"  row {mutant.row}: {rows[mutant.row].requirement}",
            "  tests:",
            *tests,
        ]
    )


def try_mutants(project: Project, mutants: Sequence[Mutant], *, jobs: int, again: bool) -> list[str]:
    """Return the outcome of each mutant, from an earlier run unless `again` is set."""
    outcomes = Outcomes(project)
    known = {} if again else {mutant: found for mutant in mutants if (found := outcomes.get(mutant)) is not None}
    left = [mutant for mutant in mutants if mutant not in known]
    if known:
        print(f"{len(known)} were tried before")
    if left:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            runner = Runner(project, Path(folder), jobs, outcomes)
            runner.check(left)
            known |= dict(zip(left, runner.run(left), strict=True))
    return [known[mutant] for mutant in mutants]


def survivors_of_all(project: Project, survivors: Sequence[Mutant], *, jobs: int, again: bool) -> list[Mutant]:
    """Return the survivors that the tests of other rows do not notice either."""
    swapped = {
        mutant: replace(mutant, tests=mutant.others, seconds=mutant.others_seconds, others=(), others_seconds=0.0)
        for mutant in survivors
        if mutant.others
    }
    outcomes = dict(zip(swapped, try_mutants(project, list(swapped.values()), jobs=jobs, again=again), strict=True))
    return [mutant for mutant in survivors if outcomes.get(mutant, SURVIVED) in (SURVIVED, BROKEN)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="which sample (1)")
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="how many mutants (100)")
    parser.add_argument("--row", action="append", default=[], metavar="ID", help="all candidates of this row instead")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many mutants at a time (2)")
    parser.add_argument(
        "--at-least", type=float, default=95, metavar="PERCENT", help="fail below this share of killed ones (95)"
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parent.parent, metavar="FOLDER", help="another project"
    )
    parser.add_argument("--list", action="store_true", help="only print the chosen mutants")
    parser.add_argument("--others", action="store_true", help="which survivors do the tests of other rows kill?")
    parser.add_argument("--again", action="store_true", help="try again what an earlier run has tried")
    options = parser.parse_args(arguments)
    project = Project(options.root)
    rows = spec_rows.load_rows(project.tables)
    equivalents = load_equivalents(project.tables / EQUIVALENTS)
    if stale := stale_equivalents(equivalents, project.source):
        raise SystemExit("\n".join((f"{EQUIVALENTS} names mutants that do not exist:", *stale)))
    chooser = Chooser(project, Measurements(project, options.jobs).read(), rows, equivalents)
    if options.row:
        chosen = [mutant for row in options.row for mutant in chooser.candidates(row)]
    else:
        chosen = chooser.sample(options.seed, options.sample)
    print(
        f"{len(chosen)} mutants; {len(equivalents)} equivalent ones are known; "
        f"{len(chooser.without_candidates())} rows have no line to mutate"
    )
    if options.list:
        for mutant in chosen:
            print(mutant.row, mutant.name)
        return 0
    if not chosen:
        raise SystemExit("no mutant to try: the rows' tests fail, or run no line of their own")
    outcomes = try_mutants(project, chosen, jobs=options.jobs, again=options.again)
    survivors = [mutant for mutant, outcome in zip(chosen, outcomes, strict=True) if outcome in (SURVIVED, BROKEN)]
    for mutant in survivors:
        print(survivor_text(mutant, rows))
    if options.others and survivors:
        unseen = survivors_of_all(project, survivors, jobs=options.jobs, again=options.again)
        print(
            f"the tests of other rows kill {len(survivors) - len(unseen)} of the {len(survivors)} survivors; not these:"
        )
        for mutant in unseen:
            print(f"  {mutant.row}  src/{mutant.module}:{mutant.mutation.line}: {mutant.mutation.name}")
    counts = Counter(outcomes)
    killed = len(chosen) - len(survivors)
    print(f"killed {killed} of {len(chosen)} ({counts[ENDLESS]} of them did not end), seed {options.seed}")
    return 0 if killed * 100 >= options.at_least * len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
